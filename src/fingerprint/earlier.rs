//! Fingerprints of the first version. Records that have one keep it for as long as they live, and are compared by it (T36).

use sha2::{Digest, Sha256};

use super::{
    Content, Fingerprint, FingerprintRule,
    body::{Form, Unpacked},
    canonical::canonical_json,
    rule::{number, part},
};

const FORM: u8 = 1;

/// The fingerprint of `content` by this rule; `None` if the first version had no such rules.
pub(super) fn fingerprint(
    rule: &FingerprintRule,
    operation: &str,
    content: &Content<'_>,
    body: &Unpacked<'_>,
    form: &Form<'_>,
) -> Option<Fingerprint> {
    let id = id(rule)?;
    // The first version ignored the content coding, and read one line of the media type.
    let own;
    let (form, body) = match form {
        _ if !content.earlier.json => (b'b', content.body),
        Form::Json(canonical) if !body.was_packed() => (b'j', canonical.as_slice()),
        _ => {
            own = canonical_json(content.body, rule.left_out()?);
            own.as_deref().map_or((b'b', content.body), |canonical| (b'j', canonical))
        }
    };
    let mut hash = Sha256::new_with_prefix([FORM, form]);
    for bytes in [operation.as_bytes(), content.earlier.target.as_bytes(), body] {
        part(&mut hash, bytes);
    }
    Some(Fingerprint { rule: id, digest: hash.finalize().into() })
}

fn id(rule: &FingerprintRule) -> Option<u32> {
    let mut hash = Sha256::new_with_prefix([FORM]);
    for pointer in rule.sorted_pointers()? {
        part(&mut hash, pointer.as_bytes());
    }
    Some(number(hash))
}

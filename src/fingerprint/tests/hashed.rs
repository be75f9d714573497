//! The hashed form, made once more by hand.

use super::*;

/// The form as `rule` makes it, made here by hand.
fn by_hand(kind: u8, id: &[u8], parts: &[u8]) -> Fingerprint {
    use sha2::{Digest, Sha256};
    let id = Sha256::digest([&[1, kind], id].concat());
    let digest = Sha256::digest([&[1, kind], parts].concat());
    Fingerprint::new(u32::from_be_bytes([id[0], id[1], id[2], id[3]]), digest.into())
}

fn parts(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().flat_map(|part| [&(part.len() as u64).to_be_bytes()[..], part].concat()).collect()
}

/// The number of pairs, then their parts.
fn pairs(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let parts: Vec<_> = pairs.iter().map(|&(name, value)| self::parts(&[name, value])).collect();
    [(pairs.len() as u64).to_be_bytes().to_vec(), parts.concat()].concat()
}

/// The number of parts, then the parts.
fn list(items: &[&[u8]]) -> Vec<u8> {
    [(items.len() as u64).to_be_bytes().to_vec(), parts(items)].concat()
}

// T36: records are compared for as long as they live. Once a version is published, a change of the form needs a new number.
#[test]
fn the_form_of_today_never_changes() {
    let query = [(Cow::Borrowed("a"), Cow::Borrowed("b")), (Cow::Borrowed("c"), Cow::Borrowed(""))];
    let header = |name: &str| match name {
        "content-type" => Some(Cow::Borrowed("application/json; v=\"2\"; charset=utf-8")),
        "if-match" => Some(Cow::Borrowed("\"e1\"")),
        "prefer" => Some(Cow::Borrowed("wait=1")),
        _ => None,
    };
    let content = Content::new("POST", "/payments", br#"{"b":1,"a":2,"t":3}"#).headers(&header);
    let content = Content { query: &query, raw_query: Some("c&a=b"), ..content };
    let rule = FingerprintRule::new().leave_out("/t").header("prefer").header("absent");
    let absent = |headers: usize| [vec![0], parts(&[b""])].concat().repeat(headers);
    let expected = by_hand(
        b'r',
        &[list(&[b"/t"]), list(&[b"absent", b"prefer"])].concat(),
        &[
            parts(&[b"pay", b"POST", b"/payments"]),
            pairs(&[(b"a", b"b"), (b"c", b"")]),
            [vec![2], parts(&[b"c&a=b"])].concat(),
            // Content-Range, If-Match, If-Modified-Since, If-None-Match, If-Range, If-Unmodified-Since.
            [absent(1), vec![1], parts(&[b"\"e1\""]), absent(4)].concat(),
            [absent(1), vec![1], parts(&[b"wait=1"])].concat(),
            parts(&[b"application/json"]),
            pairs(&[(b"v", b"2")]),
            parts(&[b""]),
            [b"j".to_vec(), parts(&[br#"{"a":2,"b":1}"#])].concat(),
        ]
        .concat(),
    );
    assert_eq!(content.fingerprints("pay", &rule, &[]).current(), expected);

    let plain = |content_type: &'static str, coding: &'static str, body: &[u8], tagged: Vec<u8>| {
        let header = |name: &str| match name {
            "content-type" => Some(Cow::Borrowed(content_type)),
            "content-encoding" => Some(Cow::Borrowed(coding)),
            _ => None,
        };
        let content = Content::new("POST", "/", body).headers(&header);
        let media_type = content_type.split(';').next().unwrap().as_bytes();
        let head = [
            parts(&[b"pay", b"POST", b"/"]),
            pairs(&[]),
            absent(6),
            parts(&[media_type]),
            pairs(&[]),
            parts(&[coding.as_bytes()]),
        ]
        .concat();
        let id = [list(&[]), list(&[])].concat();
        assert_eq!(current(&content), by_hand(b'r', &id, &[head, tagged].concat()), "{content_type}");
    };
    plain("text/plain", "br", b"text", [b"b".to_vec(), parts(&[b"text"])].concat());
    plain(
        "application/x-www-form-urlencoded",
        "",
        b"b=2&a=1",
        [b"u".to_vec(), pairs(&[(b"a", b"1"), (b"b", b"2")])].concat(),
    );
    let pieces = list(&[b"one", b"two"]);
    plain(
        "multipart/mixed; boundary=x",
        "",
        b"--x\r\none\r\n--x\r\ntwo\r\n--x--",
        [b"m".to_vec(), pieces].concat(),
    );

    let custom = FingerprintRule::custom(7, |content| content.body.to_vec());
    let content = Content::new("POST", "/", b"intent");
    let expected = by_hand(b'f', &7u32.to_be_bytes(), &parts(&[b"pay", b"intent"]));
    assert_eq!(content.fingerprints("pay", &custom, &[]).current(), expected);
}

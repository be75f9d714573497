//! Encodes bodies for keeping, and decodes them for replays.

use std::{cell::RefCell, io::Read};

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress, Status, read::ZlibDecoder};

use crate::record::Encoding;

/// A kept body that is not what was kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnreadableBodyError {
    /// It cannot be decoded.
    #[error("the kept body cannot be decoded")]
    Encoding(#[from] std::io::Error),
    /// It has another length than was kept with it.
    #[error("the kept body has the wrong length")]
    Length,
}

thread_local! {
    /// A compressor's tables take 400 KB: more time goes into getting them from the system than into compressing a
    /// small body. They are made once a thread.
    static COMPRESSOR: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), true));
}

/// The body compressed, where that makes it smaller.
pub(super) fn encode(body: &Bytes) -> (Bytes, Encoding) {
    // There is no room for more than a smaller body: what does not fit is kept as it is.
    let mut packed = Vec::with_capacity(body.len());
    let status = COMPRESSOR.with_borrow_mut(|compressor| {
        compressor.reset();
        compressor.compress_vec(body, &mut packed, FlushCompress::Finish)
    });
    match status {
        Ok(Status::StreamEnd) if packed.len() < body.len() => (packed.into(), Encoding::Zlib),
        _ => (body.clone(), Encoding::Identity),
    }
}

/// The body as it was. Reads no more than `length`, so that a corrupt one cannot fill the memory.
pub(super) fn decode(bytes: Bytes, encoding: Encoding, length: u64) -> Result<Bytes, UnreadableBodyError> {
    let body = match encoding {
        Encoding::Identity => bytes,
        Encoding::Zlib => {
            let mut body = Vec::new();
            ZlibDecoder::new(&bytes[..]).take(length.saturating_add(1)).read_to_end(&mut body)?;
            body.into()
        }
    };
    if body.len() as u64 == length { Ok(body) } else { Err(UnreadableBodyError::Length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Revision;

    // R13, R14
    #[test]
    fn a_body_comes_back_as_it_was_and_is_compressed_where_that_helps() {
        let text = Bytes::from("all work and no play ".repeat(1000));
        let (packed, encoding) = encode(&text);
        assert!(encoding == Encoding::Zlib && packed.len() < text.len() / 10);
        assert_eq!(decode(packed, encoding, text.len() as u64).unwrap(), text);

        let noise = Bytes::from(
            (0..256u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect::<Vec<_>>(),
        );
        let (kept, encoding) = encode(&noise);
        assert_eq!(decode(kept, encoding, noise.len() as u64).unwrap(), noise);
    }

    #[test]
    fn a_body_that_does_not_get_smaller_leaves_nothing_behind_for_the_next_one() {
        let noise: Bytes = (0..40).flat_map(|_| *Revision::mint().as_bytes()).collect();
        assert_eq!(encode(&noise), (noise, Encoding::Identity));
        let text = Bytes::from("no news is good news ".repeat(100));
        let (packed, encoding) = encode(&text);
        assert_eq!(encoding, Encoding::Zlib);
        assert_eq!(decode(packed, encoding, text.len() as u64).unwrap(), text);
    }

    #[test]
    fn a_kept_body_of_another_length_is_an_error_and_not_an_answer() {
        let (packed, encoding) = encode(&Bytes::from("x".repeat(1000)));
        for length in [0, 999, 1001] {
            assert!(
                matches!(decode(packed.clone(), encoding, length), Err(UnreadableBodyError::Length)),
                "{length}"
            );
        }
        let torn = packed.slice(..packed.len() - 1);
        assert!(decode(torn, encoding, 1000).is_err());
    }
}

//! Encodes bodies for storage, and decodes them for replays.

use std::{
    cell::RefCell,
    io::{self, Read},
};

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress, Status, read::ZlibDecoder};

use crate::record::Encoding;

thread_local! {
    /// A compressor's tables take 400 KB. Allocating them takes longer than compressing a small body, so each thread keeps its
    /// compressor.
    static COMPRESSOR: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), true));
}

/// No body up to this length becomes smaller: header, end and checksum of the compressed form take as much.
const OVERHEAD: usize = 8;

/// Of a body longer than this, a sample is tried first: to find that 300 KB do not shrink takes as long as a write.
const SAMPLED: usize = 16 * 1024;

/// How long the sample is.
const SAMPLE: usize = 4 * 1024;

/// The body, compressed if that makes it smaller. A long one whose beginning does not shrink, such as an image, stays as it is.
pub(super) fn encode(body: &Bytes) -> (Bytes, Encoding) {
    let shrinks = || body.len() <= SAMPLED || packed(&body[..SAMPLE]).is_some();
    // zlib-rs 0.6.8 panics if its output has only one byte and it is reset 65,536 times.
    let packed = if body.len() > OVERHEAD && shrinks() { packed(body) } else { None };
    packed.map_or_else(|| (body.clone(), Encoding::Identity), |packed| (packed.into(), Encoding::Zlib))
}

/// The compressed form, if it is shorter.
fn packed(body: &[u8]) -> Option<Vec<u8>> {
    // Capacity for a smaller body only: if the compressed form does not fit, the body stays as it is.
    let mut packed = Vec::with_capacity(body.len());
    let status = COMPRESSOR.with_borrow_mut(|compressor| {
        compressor.reset();
        compressor.compress_vec(body, &mut packed, FlushCompress::Finish)
    });
    (matches!(status, Ok(Status::StreamEnd)) && packed.len() < body.len()).then_some(packed)
}

/// The original body. Reads at most one byte more than `length`, so that a corrupt body cannot fill the memory.
pub(super) fn decode(bytes: Bytes, encoding: Encoding, length: u64) -> io::Result<Bytes> {
    let body = match encoding {
        Encoding::Identity => bytes,
        Encoding::Zlib => {
            let mut body = Vec::new();
            ZlibDecoder::new(&bytes[..]).take(length.saturating_add(1)).read_to_end(&mut body)?;
            body.into()
        }
    };
    if body.len() as u64 == length {
        Ok(body)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "the body has another length than the record says"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Revision, tests::Mint};

    #[test]
    fn a_body_round_trips_and_is_compressed_if_that_helps() {
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
    fn an_incompressible_body_does_not_spoil_the_next_compression() {
        let noise: Bytes = (0..40).flat_map(|_| *Revision::mint().as_bytes()).collect();
        assert_eq!(encode(&noise), (noise, Encoding::Identity));
        let text = Bytes::from("no news is good news ".repeat(100));
        let (packed, encoding) = encode(&text);
        assert_eq!(encoding, Encoding::Zlib);
        assert_eq!(decode(packed, encoding, text.len() as u64).unwrap(), text);
    }

    #[test]
    fn a_long_body_whose_beginning_does_not_shrink_stays_as_it_is() {
        let noise = |length: usize| -> Vec<u8> {
            (0..length.div_ceil(16)).flat_map(|_| *Revision::mint().as_bytes()).collect()
        };
        let text = b"no news is good news ".repeat(2 * SAMPLED / 21);
        let after = |head: Vec<u8>, tail: &[u8]| Bytes::from([&head[..], tail].concat());
        for (body, encoding) in [
            (after(noise(SAMPLE), &text), Encoding::Identity),
            (after(noise(SAMPLE / 2), &text), Encoding::Zlib),
            // Short enough to be tried whole.
            (after(noise(SAMPLE), &text[..SAMPLED - SAMPLE]), Encoding::Zlib),
            (after(text.clone(), &noise(SAMPLED)), Encoding::Zlib),
        ] {
            let (kept, found) = encode(&body);
            assert_eq!((found, kept.len() < body.len()), (encoding, encoding == Encoding::Zlib));
            assert_eq!(decode(kept, found, body.len() as u64).unwrap(), body);
        }
    }

    #[test]
    fn bodies_of_one_byte_can_be_encoded_for_ever() {
        let body = Bytes::from_static(b"1");
        for _ in 0..70_000 {
            assert_eq!(encode(&body), (body.clone(), Encoding::Identity));
        }
    }

    #[test]
    fn a_kept_body_of_the_wrong_length_is_an_error() {
        let (packed, encoding) = encode(&Bytes::from("x".repeat(1000)));
        for length in [0, 999, 1001] {
            assert!(decode(packed.clone(), encoding, length).is_err(), "{length}");
        }
        let torn = packed.slice(..packed.len() - 1);
        assert!(decode(torn, encoding, 1000).is_err());
    }
}

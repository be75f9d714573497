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

/// The body, compressed if that makes it smaller.
pub(super) fn encode(body: &Bytes) -> (Bytes, Encoding) {
    // zlib-rs 0.6.8 panics if its output has only one byte and it is reset 65,536 times.
    if body.len() <= OVERHEAD {
        return (body.clone(), Encoding::Identity);
    }
    // Capacity for a smaller body only: if the compressed form does not fit, the body stays as it is.
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

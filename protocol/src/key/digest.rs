//! Digests of keys and paths.

use sha2::{Digest, Sha256};

/// The first bytes of a digest.
pub(super) fn shortened<const N: usize>(hash: Sha256) -> [u8; N] {
    let digest: [u8; 32] = hash.finalize().into();
    std::array::from_fn(|at| digest[at])
}

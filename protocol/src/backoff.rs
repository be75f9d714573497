//! The waits between tries.

use std::time::Duration;

/// Waits that grow from the first to the maximum, with jitter: it shortens each wait by up to a quarter, so that tries that failed
/// together are not repeated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first wait.
    pub first: Duration,
    /// How much longer each wait is than the one before it.
    pub factor: u32,
    /// The longest wait.
    pub max: Duration,
}

impl Backoff {
    /// The wait after this many tries. `nonce` is the source of its jitter.
    pub fn after(&self, tries: u32, nonce: [u8; 16]) -> Duration {
        let factor = self.factor.saturating_pow(tries.saturating_sub(1));
        let full = self.first.saturating_mul(factor).min(self.max);
        // The first byte of a random UUID is random.
        full - full / 4 / 255 * u32::from(nonce[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(100), factor: 2, max: Duration::from_millis(500) };

    #[test]
    fn waits_grow_by_the_factor_up_to_the_maximum() {
        let waits = |backoff: Backoff| [1, 2, 3, 4, 5].map(|tries| backoff.after(tries, [0; 16]).as_millis());
        assert_eq!(waits(BACKOFF), [100, 200, 400, 500, 500]);
        assert_eq!(waits(Backoff { factor: 4, ..BACKOFF }), [100, 400, 500, 500, 500]);
        assert_eq!(BACKOFF.after(0, [0; 16]), BACKOFF.first);
    }

    #[test]
    fn jitter_takes_up_to_a_quarter_of_a_wait() {
        assert_eq!(BACKOFF.after(3, [255; 16]).as_millis(), 300);
        assert_eq!(BACKOFF.after(3, [51; 16]).as_millis(), 380);
    }
}

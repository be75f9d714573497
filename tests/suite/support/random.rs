//! Reproducible randomness: a failure names its seed.

use std::time::Duration;
use uuid::Uuid;

/// SplitMix64, by Steele, Lea and Flood ("Fast splittable pseudorandom number generators", 2014).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub fn up_to(&mut self, longest: Duration) -> Duration {
        Duration::from_micros(self.below(longest.as_micros() as usize + 1) as u64)
    }
}

/// `SEED`, or a fresh one. It is printed if the test fails while this is held.
pub struct Seed(pub u64);

impl Seed {
    pub fn find() -> Self {
        match std::env::var("SEED") {
            Ok(seed) => Self(seed.parse().expect("SEED is a whole number")),
            Err(_) => Self(Uuid::new_v4().as_u64_pair().0),
        }
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was SEED={}", self.0);
        }
    }
}

//! Waiting for another process: short, growing, and never in step with it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

/// The longest single wait.
const LONGEST: Duration = Duration::from_millis(16);

/// The waits between attempts at something that another process is in the way of.
pub(crate) struct Jitter {
    bound: Duration,
    random: u64,
}

impl Jitter {
    pub(crate) fn new() -> Self {
        Self {
            bound: Duration::from_micros(200),
            // Two processes that wait for each other must not do so in step.
            random: RandomState::new().hash_one(0) | 1,
        }
    }

    /// The next wait: between a half and the whole of a bound that doubles.
    pub(crate) fn next(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let bound = self.bound;
        self.bound = (bound * 2).min(LONGEST);
        let half = bound / 2;
        half + half * u32::from(self.random as u8) / 255
    }
}

//! The default ports: the system's clock, and ids that grow with time.

use std::time::{SystemTime, UNIX_EPOCH};

use settled_ledger::{Clock, Ids, Timestamp};

/// The system's wall clock.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Ids of 48 bits of time and 80 random bits: unique over processes, and growing with time.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct RandomIds;

impl Ids for RandomIds {
    fn next(&self) -> u128 {
        let mut random = [0; 16];
        if getrandom::fill(&mut random).is_err() {
            // Without the system's source there is still the allocation's address and the time; better than a stop.
            let place = std::ptr::from_ref(&random) as usize;
            random[..8].copy_from_slice(&(place as u64).to_be_bytes());
        }
        let millis = u128::from(SystemClock.now().as_millis().unsigned_abs());
        (millis << 80) | (u128::from_be_bytes(random) >> 48)
    }
}

//! Counting attempts that were dropped before they settled: a test harness asserts that there are none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many attempts were dropped unsettled; shared by a runner's sessions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped(Arc<AtomicU64>);

impl Dropped {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn guard(&self) -> Unsettled {
        Unsettled(Some(self.clone()))
    }
}

/// Counts when it is dropped before it was disarmed.
///
/// A panic instead would be swallowed where a runtime is being dropped.
pub(crate) struct Unsettled(Option<Dropped>);

impl Unsettled {
    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl Drop for Unsettled {
    fn drop(&mut self) {
        if let Some(dropped) = &self.0 {
            dropped.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

//! Calls under way: how many, and what is held while they are.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a call takes hold of while it is under way.
pub(crate) type Hold = dyn Fn() -> Box<dyn Any + Send> + Send + Sync;

/// The calls that are under way.
#[derive(Default)]
pub(crate) struct Flights {
    count: AtomicUsize,
    hold: Option<Box<Hold>>,
}

impl Flights {
    pub(crate) fn new(hold: Option<Box<Hold>>) -> Arc<Self> {
        Arc::new(Self { count: AtomicUsize::new(0), hold })
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Begins a call; it is under way until what this answers is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Flight {
        self.count.fetch_add(1, Ordering::SeqCst);
        Flight { _held: self.hold.as_ref().map(|hold| hold()), flights: self.clone() }
    }
}

impl fmt::Debug for Flights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").field("count", &self.count()).finish_non_exhaustive()
    }
}

/// One call under way; it travels with the work, so that a call whose future was dropped counts until its effect is there.
pub(crate) struct Flight {
    flights: Arc<Flights>,
    _held: Option<Box<dyn Any + Send>>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights.count.fetch_sub(1, Ordering::SeqCst);
    }
}

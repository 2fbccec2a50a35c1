//! Calls under way: how many, and what is held while they are.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What a call takes hold of while it is under way.
pub(crate) type Hold = dyn Fn() -> Box<dyn Any + Send> + Send + Sync;

/// The calls that are under way.
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

    /// Begins a call.
    pub(crate) fn begin(self: &Arc<Self>) -> Flight {
        self.count.fetch_add(1, Ordering::SeqCst);
        let held = self.hold.as_ref().map(|hold| Mutex::new(hold()));
        Flight { _call: Arc::new(Call { flights: self.clone(), _held: held }) }
    }
}

/// One call under way, until this and its clones are dropped.
///
/// Whoever asked has one until the answer is there; the work has the other until its effect is there.
/// So a call ends in the very moment in which its answer is seen, and one whose future was dropped counts until it is done.
#[derive(Clone)]
pub(crate) struct Flight {
    _call: Arc<Call>,
}

struct Call {
    flights: Arc<Flights>,
    // The lock is never taken: what is held may not be shared between threads, and needs not be.
    _held: Option<Mutex<Box<dyn Any + Send>>>,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.flights.count.fetch_sub(1, Ordering::SeqCst);
    }
}

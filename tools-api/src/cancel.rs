//! A cancellation signal that needs no runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Default)]
struct Shared {
    fired: AtomicBool,
    /// One slot per waiting future; a freed slot is `None` and is used again.
    waiting: Mutex<Vec<Option<Waker>>>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Vec<Option<Waker>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end that cancels.
///
/// Dropping it cancels nothing.
#[derive(Clone, Default)]
pub struct CancelSource(Arc<Shared>);

impl CancelSource {
    /// A source that has not fired.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fires the signal, once and for all; every waiting future is woken.
    pub fn cancel(&self) {
        if !self.0.fired.swap(true, Ordering::AcqRel) {
            let woken = std::mem::take(&mut *self.0.waiting());
            woken.into_iter().flatten().for_each(Waker::wake);
        }
    }

    /// Whether it has fired.
    pub fn is_cancelled(&self) -> bool {
        self.0.fired.load(Ordering::Acquire)
    }

    /// The end that listens.
    pub fn signal(&self) -> CancelSignal {
        CancelSignal(Arc::clone(&self.0))
    }
}

impl fmt::Debug for CancelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelSource").field("cancelled", &self.is_cancelled()).finish()
    }
}

/// The end that listens for a cancel.
#[derive(Clone)]
pub struct CancelSignal(Arc<Shared>);

impl CancelSignal {
    /// A signal that never fires.
    pub fn never() -> Self {
        Self(Arc::default())
    }

    /// Whether the cancel has come.
    pub fn is_cancelled(&self) -> bool {
        self.0.fired.load(Ordering::Acquire)
    }

    /// Waits for the cancel.
    ///
    /// The future may be dropped at any time, and made anew as often as wanted.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled { shared: Arc::clone(&self.0), slot: None }
    }
}

impl fmt::Debug for CancelSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelSignal").field("cancelled", &self.is_cancelled()).finish()
    }
}

/// The future of [`CancelSignal::cancelled`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Cancelled {
    shared: Arc<Shared>,
    slot: Option<usize>,
}

impl Future for Cancelled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.shared.fired.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let shared = Arc::clone(&self.shared);
        let mut waiting = shared.waiting();
        // Looked at again under the lock: a cancel between the first look and the lock has taken the list already.
        if shared.fired.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        match self.slot.and_then(|slot| waiting.get_mut(slot)) {
            Some(own) => *own = Some(waker),
            None => {
                let free = waiting.iter().position(Option::is_none);
                let slot = free.unwrap_or(waiting.len());
                match free {
                    Some(slot) => waiting[slot] = Some(waker),
                    None => waiting.push(Some(waker)),
                }
                self.slot = Some(slot);
            }
        }
        Poll::Pending
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        if let Some(slot) = self.slot
            && let Some(own) = self.shared.waiting().get_mut(slot)
        {
            *own = None;
        }
    }
}

impl fmt::Debug for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancelled").finish_non_exhaustive()
    }
}

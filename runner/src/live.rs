//! Live events on their way to whoever follows a session in this process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use settled_ledger::{Backoff, Delta, LiveDelta, LiveEvent};
use settled_tools_api::{CallKey, MessageId};
use tokio::sync::{broadcast, oneshot};

/// How many live events a reader may be behind before it misses some.
const RING: usize = 256;

/// A session's live events; without a reader there is no buffer and publishing does nothing.
#[derive(Debug, Default)]
pub(crate) struct Live {
    ring: Mutex<Option<broadcast::Sender<LiveEvent>>>,
    /// Readers that want to know what is open now.
    asking: Mutex<Vec<oneshot::Sender<Snapshot>>>,
    asked: AtomicBool,
}

/// What was open in a session when a reader had caught up with its log.
///
/// Pieces that come afterwards carry their offset: what overlaps is the same.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// What has come so far of each open block.
    pub blocks: Vec<LiveDelta>,
    /// The calls that run, each with its last progress.
    pub running: Vec<(CallKey, Option<Value>)>,
    /// The attempt that is waited for, after one that failed.
    pub retry: Option<Backoff>,
}

impl Live {
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<LiveEvent> {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        match ring.as_ref() {
            Some(ring) => ring.subscribe(),
            None => {
                let (sender, receiver) = broadcast::channel(RING);
                *ring = Some(sender);
                receiver
            }
        }
    }

    /// Publishes what `event` makes, if anybody reads.
    pub(crate) fn publish(&self, event: impl FnOnce() -> LiveEvent) {
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // It fails where nobody reads any more.
        if ring.as_ref().is_some_and(|readers| readers.send(event()).is_err()) {
            *ring = None;
        }
    }

    /// Asks what is open; whoever runs the session answers soon.
    pub(crate) fn ask(&self) -> oneshot::Receiver<Snapshot> {
        let (answer, open) = oneshot::channel();
        self.asking.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        self.asked.store(true, Ordering::Release);
        open
    }

    /// Answers whoever has asked what is open.
    pub(crate) fn answer(&self, snapshot: impl FnOnce() -> Snapshot) {
        if !self.asked.load(Ordering::Acquire) {
            return;
        }
        self.asked.store(false, Ordering::Release);
        let snapshot = snapshot();
        for asking in std::mem::take(&mut *self.asking.lock().unwrap_or_else(PoisonError::into_inner)) {
            // The reader may be gone.
            let _ = asking.send(snapshot.clone());
        }
    }

    /// Publishes a piece of a step.
    pub(crate) fn delta(&self, message: MessageId, delta: Delta<'_>) {
        self.publish(|| LiveEvent::Delta(LiveDelta::new(message, delta)));
    }
}

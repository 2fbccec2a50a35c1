//! Live events on their way to whoever follows a session in this process.

use std::sync::{Arc, Mutex, PoisonError};

use settled_ledger::{Delta, LiveDelta, LiveEvent};
use settled_tools_api::MessageId;
use tokio::sync::broadcast;

/// How many live events a reader may be behind before it misses some.
const RING: usize = 256;

/// A session's live events; without a reader there is no buffer and publishing does nothing.
#[derive(Debug, Default)]
pub(crate) struct Live(Mutex<Option<broadcast::Sender<Arc<LiveEvent>>>>);

impl Live {
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<LiveEvent>> {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let nobody = match ring.as_ref() {
            None => return,
            Some(readers) => readers.receiver_count() == 0 || readers.send(Arc::new(event())).is_err(),
        };
        if nobody {
            *ring = None;
        }
    }

    /// Publishes a piece of a step.
    pub(crate) fn delta(&self, message: MessageId, delta: Delta<'_>) {
        self.publish(|| LiveEvent::Delta(LiveDelta::new(message, delta)));
    }
}

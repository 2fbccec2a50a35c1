//! A store that fails at its nth call, or from then on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, HintStream, Inbox,
    NewSession, Ownership, Page, Query, RecordedStream, SessionInfo, StoreError, StoreErrorKind,
};
use settled_ledger::{Delivery, InboxItem, InputId, NewInput, Recorded, Seq, WorkerId};
use settled_store_memory::MemoryStore;
use settled_tools_api::SessionId;

/// What happens at the nth call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Blow {
    /// It fails without effect.
    FailsBefore,
    /// It has its effect, and its answer is lost.
    FailsAfter,
    /// The process dies before it: nothing has an effect any more.
    DiesBefore,
    /// The process dies after it.
    DiesAfter,
    /// Somebody hands this in just before it.
    Meanwhile(Box<(SessionId, NewInput)>),
}

/// A store that is struck at one call.
pub(crate) struct Dying {
    inner: MemoryStore,
    calls: AtomicUsize,
    at: usize,
    blow: Blow,
}

impl Dying {
    pub(crate) fn new(inner: MemoryStore, at: usize, blow: Blow) -> Self {
        Self { inner, calls: AtomicUsize::new(0), at, blow }
    }

    /// Whether so many calls were made that one was struck.
    pub(crate) fn was_struck(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > self.at
    }

    /// Makes a call, as the blow has it.
    async fn call<T, E>(&self, call: impl Future<Output = Result<T, E>>, lost: fn(StoreError) -> E) -> Result<T, E> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let error = || StoreError::new(StoreErrorKind::Unavailable, "struck");
        let dead = number > self.at && matches!(self.blow, Blow::DiesBefore | Blow::DiesAfter);
        match &self.blow {
            _ if dead => Err(lost(error())),
            Blow::FailsBefore | Blow::DiesBefore if number == self.at => Err(lost(error())),
            Blow::FailsAfter | Blow::DiesAfter if number == self.at => {
                let _ = call.await;
                Err(lost(error()))
            }
            Blow::Meanwhile(handed_in) if number == self.at => {
                let (session, input) = &**handed_in;
                assert!(self.inner.admit(session, input.clone()).await.is_ok());
                call.await
            }
            _ => call.await,
        }
    }
}

#[async_trait]
impl EventLog for Dying {
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
        self.call(self.inner.append(fence, expected, batch), AppendError::Unknown).await
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.call(self.inner.read(session, after, limit), |error| error).await
    }

    fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream {
        self.inner.follow(session, after)
    }
}

#[async_trait]
impl Inbox for Dying {
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
        self.call(self.inner.admit(session, input), AdmitError::Store).await
    }

    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError> {
        self.call(self.inner.cancel(session, input), |error| error).await
    }

    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError> {
        self.call(self.inner.change(session, input, delivery), |error| error).await
    }

    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError> {
        self.call(self.inner.pending(session), |error| error).await
    }

    fn hints(&self) -> HintStream {
        self.inner.hints()
    }
}

#[async_trait]
impl Ownership for Dying {
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
        self.call(self.inner.create(session, new), |error| error).await
    }

    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
        self.call(self.inner.claim(worker, lease, session), ClaimError::Store).await
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        self.call(self.inner.renew(worker, lease), |error| error).await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.call(self.inner.release(fence), |error| error).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.call(self.inner.due(limit), |error| error).await
    }
}

#[async_trait]
impl Catalog for Dying {
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError> {
        self.call(self.inner.info(session), |error| error).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.call(self.inner.list(query), |error| error).await
    }

    async fn erase(&self, session: &SessionId) -> Result<(), StoreError> {
        self.call(self.inner.erase(session), |error| error).await
    }
}

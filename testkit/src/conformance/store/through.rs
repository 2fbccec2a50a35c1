//! A wrapper that adds nothing.

use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, HintStream, Inbox,
    NewSession, Ownership, Page, Query, RecordedStream, SessionInfo, Store, StoreError,
};
use settled_ledger::{Delivery, InboxItem, InputId, NewInput, Recorded, Seq, WorkerId};
use settled_tools_api::SessionId;

/// A store in a wrapper: it passes every call on, as a store that adds something to another does with most of them.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "it is the store in it")]
pub struct Through<S>(pub S);

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store> EventLog for Through<S> {
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
        self.0.append(fence, expected, batch).await
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.0.read(session, after, limit).await
    }

    fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream {
        self.0.follow(session, after)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store> Inbox for Through<S> {
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
        self.0.admit(session, input).await
    }

    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError> {
        self.0.cancel(session, input).await
    }

    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError> {
        self.0.change(session, input, delivery).await
    }

    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError> {
        self.0.pending(session).await
    }

    fn hints(&self) -> HintStream {
        self.0.hints()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store> Ownership for Through<S> {
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
        self.0.create(session, new).await
    }

    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
        self.0.claim(worker, lease, session).await
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        self.0.renew(worker, lease).await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.0.release(fence).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.0.due(limit).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store> Catalog for Through<S> {
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError> {
        self.0.info(session).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.0.list(query).await
    }

    async fn erase(&self, session: &SessionId) -> Result<(), StoreError> {
        self.0.erase(session).await
    }
}

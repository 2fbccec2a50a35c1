//! A store whose process dies at one of its writes: before it, or when it is done and nobody knows yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, HintStream, Inbox,
    NewSession, Ownership, Page, Query, RecordedStream, SessionInfo, Store, StoreError,
};
use settled_ledger::{Delivery, InboxItem, InputId, NewInput, Recorded, Seq, WorkerId};
use settled_tools_api::SessionId;
use tokio::sync::Notify;

/// On which side of a write a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    Before,
    After,
}

/// A store that gives no answers any more once its process has died.
pub(crate) struct Dying {
    inner: Arc<dyn Store>,
    at: Option<(u64, Death)>,
    writes: AtomicU64,
    appends: AtomicU64,
    dead: AtomicBool,
    died: Notify,
    what: std::sync::Mutex<&'static str>,
}

impl Dying {
    /// One that lives.
    pub(crate) fn never(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            at: None,
            writes: AtomicU64::new(0),
            appends: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            died: Notify::new(),
            what: Default::default(),
        }
    }

    /// One that dies at its n-th write.
    pub(crate) fn at(inner: Arc<dyn Store>, write: u64, death: Death) -> Self {
        Self { at: Some((write, death)), ..Self::never(inner) }
    }

    /// Waits for the death; gives what was being written.
    pub(crate) async fn died(&self) -> &'static str {
        self.died.notified().await;
        *self.what.lock().unwrap()
    }

    /// How many writes there were, and how many of them were appends.
    pub(crate) fn writes(&self) -> (u64, u64) {
        (self.writes.load(Ordering::SeqCst), self.appends.load(Ordering::SeqCst))
    }

    async fn alive(&self) {
        if self.dead.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    async fn read<T>(&self, read: impl Future<Output = T>) -> T {
        self.alive().await;
        read.await
    }

    async fn write<T>(&self, what: &'static str, write: impl Future<Output = T>) -> T {
        self.alive().await;
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        self.die_if(number, Death::Before, what);
        self.alive().await;
        let answer = write.await;
        self.die_if(number, Death::After, what);
        self.alive().await;
        answer
    }

    fn die_if(&self, write: u64, death: Death, what: &'static str) {
        if self.at == Some((write, death)) {
            *self.what.lock().unwrap() = what;
            self.dead.store(true, Ordering::SeqCst);
            self.died.notify_one();
        }
    }
}

#[async_trait]
impl EventLog for Dying {
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
        self.appends.fetch_add(1, Ordering::SeqCst);
        self.write("append", self.inner.append(fence, expected, batch)).await
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.read(self.inner.read(session, after, limit)).await
    }

    fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream {
        self.inner.follow(session, after)
    }
}

#[async_trait]
impl Inbox for Dying {
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
        self.write("admit", self.inner.admit(session, input)).await
    }

    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError> {
        self.write("cancel", self.inner.cancel(session, input)).await
    }

    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError> {
        self.write("change", self.inner.change(session, input, delivery)).await
    }

    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError> {
        self.read(self.inner.pending(session)).await
    }

    fn hints(&self) -> HintStream {
        self.inner.hints()
    }
}

#[async_trait]
impl Ownership for Dying {
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
        self.write("create", self.inner.create(session, new)).await
    }

    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
        self.write("claim", self.inner.claim(worker, lease, session)).await
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        self.read(self.inner.renew(worker, lease)).await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.write("release", self.inner.release(fence)).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.read(self.inner.due(limit)).await
    }
}

#[async_trait]
impl Catalog for Dying {
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError> {
        self.read(self.inner.info(session)).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.read(self.inner.list(query)).await
    }

    async fn erase(&self, session: &SessionId) -> Result<(), StoreError> {
        self.write("erase", self.inner.erase(session)).await
    }
}

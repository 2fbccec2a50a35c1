//! A store that fails where it is told to.
//!
//! [`FaultyStore`] stands before any store, and can be used with any runner; in a test of an [`agent`](crate::agent), `AgentTest::fault` does the same.
//!
//! ```
//! use std::sync::Arc;
//! use serde_json::json;
//! use settled_store_memory::MemoryStore;
//! use settled_testkit::faults::{At, Fault, FaultyStore};
//! use settled_testkit::{agent, script, tools};
//!
//! // The result of the call lands, and the store does not say so.
//! let script = script().step(|s| s.call("charge", json!({})).finish()).step(|s| s.text("Done.").finish());
//! let charge = tools().tool("charge", |run| run.effect().ok("charged"));
//! let store = |clock| FaultyStore::new(MemoryStore::new(clock)).fault(At::event("tool.success").of("charge"), Fault::UnknownLanded);
//! let run = agent(store, script).tools(charge.clone()).run("Charge me.");
//! assert_eq!((run.answer(), charge.effects("charge")), (Some("Done."), 1));
//! ```

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_core::Stream;
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, HintStream, Inbox,
    NewSession, Ownership, Page, Query, RecordedStream, SessionInfo, Store, StoreError, StoreErrorKind,
};
use settled_ledger::{Delivery, InboxItem, InputId, NewInput, Recorded, Seq, WorkerId};
use settled_tools_api::SessionId;
use tokio::sync::watch;

use crate::spot::{Landed, Seen};

/// The n-th durable event of a kind, perhaps of one call; what it names is the append that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a place does nothing until a fault happens there"]
pub struct At {
    pub(crate) event: String,
    pub(crate) call: Option<String>,
    pub(crate) nth: u64,
}

impl At {
    /// The first event of a kind: `tool.started`.
    pub fn event(kind: impl Into<String>) -> Self {
        Self { event: kind.into(), call: None, nth: 1 }
    }

    /// Of one call only; it is named by its label: the id that the provider gave it, and `id#2` for the second one of that id.
    pub fn of(self, call: impl Into<String>) -> Self {
        Self { call: Some(call.into()), ..self }
    }

    /// The n-th one, from 1.
    pub fn nth(self, nth: u64) -> Self {
        Self { nth, ..self }
    }

    /// Whether an event is of the kind and call that is meant.
    pub(crate) fn is_of(&self, kind: &str, label: Option<&str>) -> bool {
        self.event == kind && self.call.as_deref().is_none_or(|call| label == Some(call))
    }
}

/// What goes wrong at an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The process dies, and nothing has landed.
    CrashBefore,
    /// The process dies, and the append has landed.
    CrashAfter,
    /// The store cannot take it, and nothing has landed.
    Unavailable,
    /// The store does not say whether it has landed, and it has.
    UnknownLanded,
    /// The store does not say whether it has landed, and it has not.
    UnknownLost,
    /// Another worker has the session.
    Fenced,
    /// Input is pending that the append does not see.
    Busy,
    /// It takes so long.
    Slow(Duration),
}

impl Fault {
    /// What the append answers instead, where it does not even reach the store.
    pub(crate) fn refusal(self) -> Option<AppendError> {
        match self {
            Self::Unavailable => Some(AppendError::Unavailable(no_answer())),
            Self::UnknownLost => Some(AppendError::Unknown(no_answer())),
            Self::Fenced => Some(AppendError::Fenced),
            Self::Busy => Some(AppendError::Busy),
            Self::CrashBefore | Self::CrashAfter | Self::UnknownLanded | Self::Slow(_) => None,
        }
    }
}

/// What a store says that says nothing.
pub(crate) fn no_answer() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the store does not answer, as the test wants it")
}

/// A store that fails where it is told to; everything else goes to the store behind it.
///
/// A clone is another handle on the same one.
/// Each fault happens once.
/// It counts events over all sessions, from when it was made.
///
/// At a crash it stops to answer, to everybody and for good, as a process that has died: wait for [`crashed`](Self::crashed), drop the runner and its runtime, and go on with a new runner on the store behind.
#[derive(Clone)]
#[must_use = "a store does nothing unless a runner uses it"]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    dead: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    landed: Landed,
    /// The faults that have not happened yet.
    faults: Vec<(At, Fault)>,
    slow: Duration,
    deaf: bool,
}

impl FaultyStore {
    /// A store that does everything right so far.
    pub fn new(inner: impl Store + 'static) -> Self {
        Self::shared(Arc::new(inner))
    }

    /// The same, before a store that others use too.
    pub fn shared(inner: Arc<dyn Store>) -> Self {
        let shared = Shared { state: Mutex::default(), dead: watch::Sender::new(false) };
        Self { inner, shared: Arc::new(shared) }
    }

    /// What goes wrong at an append.
    pub fn fault(self, at: At, fault: Fault) -> Self {
        self.state().faults.push((at, fault));
        self
    }

    /// Every append takes so long, by tokio's clock.
    pub fn slow(self, span: Duration) -> Self {
        self.state().slow = span;
        self
    }

    /// Nobody is told of input: it has to be found.
    pub fn loses_hints(self) -> Self {
        self.state().deaf = true;
        self
    }

    /// Waits until the process has died.
    pub async fn crashed(&self) {
        let mut dead = self.shared.dead.subscribe();
        // The sender lives as long as this handle.
        let _ = dead.wait_for(|dead| *dead).await;
    }

    /// Whether the process has died.
    pub fn is_crashed(&self) -> bool {
        *self.shared.dead.borrow()
    }

    /// Where faults were to happen and have not.
    pub fn unused(&self) -> Vec<(At, Fault)> {
        self.state().faults.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault that happens at an append of these events.
    fn take(&self, seen: &[Seen], wanted: impl Fn(Fault) -> bool) -> Option<Fault> {
        let mut state = self.state();
        let place =
            state.faults.iter().position(|(at, fault)| wanted(*fault) && seen.iter().any(|seen| seen.is_at(at)));
        place.map(|place| state.faults.remove(place).1)
    }

    /// Whoever calls after the crash gets no answer.
    async fn alive(&self) {
        if self.is_crashed() {
            std::future::pending::<()>().await;
        }
    }

    async fn crash(&self) {
        self.shared.dead.send_replace(true);
        self.alive().await;
    }

    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.alive().await;
        let answer = call.await;
        self.alive().await;
        answer
    }
}

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state();
        f.debug_struct("FaultyStore").field("faults", &state.faults).field("crashed", &self.is_crashed()).finish()
    }
}

#[async_trait]
impl EventLog for FaultyStore {
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
        self.alive().await;
        let seen = self.state().landed.look_at(&fence.session, &batch);
        let mut span = self.state().slow;
        while let Some(Fault::Slow(more)) = self.take(&seen, |fault| matches!(fault, Fault::Slow(_))) {
            span += more;
        }
        if !span.is_zero() {
            tokio::time::sleep(span).await;
        }
        self.alive().await;
        let fault = self.take(&seen, |fault| !matches!(fault, Fault::Slow(_)));
        if fault == Some(Fault::CrashBefore) {
            self.crash().await;
        }
        if let Some(refusal) = fault.and_then(Fault::refusal) {
            return Err(refusal);
        }
        let id = batch.id;
        let answer = self.inner.append(fence, expected, batch).await;
        if answer.is_ok() {
            self.state().landed.land(id, &seen);
            if fault == Some(Fault::CrashAfter) {
                self.crash().await;
            }
            if fault == Some(Fault::UnknownLanded) {
                return Err(AppendError::Unknown(no_answer()));
            }
        }
        self.alive().await;
        answer
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.call(self.inner.read(session, after, limit)).await
    }

    fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream {
        self.inner.follow(session, after)
    }
}

#[async_trait]
impl Inbox for FaultyStore {
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
        self.call(self.inner.admit(session, input)).await
    }

    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError> {
        self.call(self.inner.cancel(session, input)).await
    }

    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError> {
        self.call(self.inner.change(session, input, delivery)).await
    }

    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError> {
        self.call(self.inner.pending(session)).await
    }

    fn hints(&self) -> HintStream {
        if self.state().deaf { Box::pin(Never) } else { self.inner.hints() }
    }
}

#[async_trait]
impl Ownership for FaultyStore {
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
        self.call(self.inner.create(session, new)).await
    }

    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
        self.call(self.inner.claim(worker, lease, session)).await
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        self.call(self.inner.renew(worker, lease)).await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.call(self.inner.release(fence)).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.call(self.inner.due(limit)).await
    }
}

#[async_trait]
impl Catalog for FaultyStore {
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError> {
        self.call(self.inner.info(session)).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.call(self.inner.list(query)).await
    }

    async fn erase(&self, session: &SessionId) -> Result<(), StoreError> {
        self.call(self.inner.erase(session)).await
    }
}

/// Hints that are all lost.
pub(crate) struct Never;

impl Stream for Never {
    type Item = SessionId;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<SessionId>> {
        Poll::Pending
    }
}

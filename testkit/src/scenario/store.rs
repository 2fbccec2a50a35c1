//! The store of a scenario: another store, with the faults that the scenario asks for.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, HintStream, Inbox,
    NewSession, Ownership, Page, Query, RecordedStream, SessionInfo, Store, StoreError,
};
use settled_ledger::{Delivery, InboxItem, InputId, NewInput, Recorded, Seq, WorkerId};
use settled_tools_api::SessionId;

use super::world::{World, fact};
use crate::faults::{Fault, Never, no_answer};
use crate::ordeal::{Side, Write};
use crate::pace::Class;

/// A store with faults, which stands still for ever once its process has died.
pub(super) struct Staged {
    pub(super) world: Arc<World>,
    pub(super) inner: Arc<dyn Store>,
}

impl Staged {
    /// Whoever calls after the crash gets no answer.
    async fn alive(&self) {
        if self.world.conductor.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.alive().await;
        let answer = call.await;
        self.alive().await;
        answer
    }

    /// A call that writes: the process may die before it and after it.
    async fn write<T, E>(&self, write: Write, call: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.alive().await;
        let number = self.world.begin_write(write);
        self.crash_at(number, Side::Before).await;
        let answer = self.call(call).await;
        if answer.is_ok() {
            self.world.end_write(number);
            self.crash_at(number, Side::After).await;
        }
        answer
    }

    async fn crash_at(&self, write: usize, side: Side) {
        if self.world.crashes_at(write, side) {
            self.world.crash();
        }
        self.alive().await;
    }
}

#[async_trait]
impl EventLog for Staged {
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
        self.alive().await;
        let seen = self.world.look_at(&batch);
        let delay = self.world.delay(&seen);
        if delay > 0 {
            self.world.conductor.turn(Class::Store, (0, 0), delay).await;
        }
        self.alive().await;
        let number = self.world.begin_write(Write::Append(seen.iter().map(fact).collect()));
        self.crash_at(number, Side::Before).await;
        let then = self.world.fault(&seen);
        match then {
            Some(Fault::CrashBefore) => {
                self.world.crash();
                self.alive().await;
            }
            Some(fault) => {
                if let Some(refusal) = fault.refusal() {
                    return Err(refusal);
                }
            }
            None => {}
        }
        let id = batch.id;
        let answer = self.inner.append(fence, expected, batch).await;
        if answer.is_ok() {
            self.world.end_write(number);
            // What a trigger does is over before the runner sees the acknowledgement.
            for (place, act) in self.world.landed(id, seen) {
                self.world.act(&place, &act).await;
                self.alive().await;
            }
            self.crash_at(number, Side::After).await;
            match then {
                Some(Fault::CrashAfter) => {
                    self.world.crash();
                    self.alive().await;
                }
                Some(Fault::UnknownLanded) => return Err(AppendError::Unknown(no_answer())),
                _ => {}
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
impl Inbox for Staged {
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
        self.write(Write::Admit, self.inner.admit(session, input)).await
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
        if self.world.loses_hints() { Box::pin(Never) } else { self.inner.hints() }
    }
}

#[async_trait]
impl Ownership for Staged {
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
        self.write(Write::Create, self.inner.create(session, new)).await
    }

    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
        self.write(Write::Claim, self.inner.claim(worker, lease, session)).await
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        self.call(self.inner.renew(worker, lease)).await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.write(Write::Release, self.inner.release(fence)).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.call(self.inner.due(limit)).await
    }
}

#[async_trait]
impl Catalog for Staged {
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

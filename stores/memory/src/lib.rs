//! The reference store of sessions: small, exact, in memory; for tests and short-lived sessions.
//!
//! It is the four contracts of [`settled_ledger::store`] to the letter, and what another store is measured against.
//! Nothing in it waits: every call answers at its first poll, so dropping a call's future before then changes nothing, and afterwards undoes nothing.
//! A clone is another handle on the same sessions: "the process died, open the store again" is a clone.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use settled_ledger::store::{Batch, EventLog, NewSession, Ownership};
//! use settled_ledger::{BatchId, Clock, NewRow, Seq, Timestamp, WorkerId};
//! use settled_store_memory::MemoryStore;
//! use settled_tools_api::SessionId;
//!
//! struct Noon;
//! impl Clock for Noon {
//!     fn now(&self) -> Timestamp {
//!         Timestamp::from_millis(43_200_000)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new(Arc::new(Noon));
//! let session = SessionId::new("s1")?;
//! store.create(&session, NewSession::default()).await?;
//! let claimed = store.claim(WorkerId::from_u128(1), Duration::from_secs(15), &session).await?;
//!
//! let row = NewRow::from_parts(Noon.now(), "synthetic".into(), 1, r#"{"reason":"restart","text":"Back."}"#.into());
//! let head = store.append(&claimed.fence, claimed.head, Batch::new(BatchId::from_u128(1), vec![row])).await?;
//! assert_eq!(head, Seq::new(1));
//! assert_eq!(store.read(&session, Seq::START, 10).await?.len(), 1);
//! # Ok(())
//! # }
//! ```

mod streams;

mod world;

use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, FoldCache, HintStream,
    Inbox, NewSession, Ownership, Page, Query, RecordedStream, SessionInfo, StoreError, StoreErrorKind,
};
use settled_ledger::{
    Arrival, CachedFold, Clock, Delivery, InboxItem, InputId, NewInput, NewInputKind, Recorded, Seq, WorkerId,
};
use settled_tools_api::SessionId;

use crate::streams::{Follow, Hints};
use crate::world::World;

/// How many sessions a page has when the query leaves it to the store.
const PAGE: usize = 100;

/// A store that keeps everything in memory.
///
/// A clone is another handle on the same sessions; they are gone with the last handle and the last stream.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

impl MemoryStore {
    /// A store without sessions; leases, and the order in which sessions are due, go by this clock.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { shared: Arc::new(Shared { clock, world: Mutex::default() }) }
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sessions = self.shared.lock().sessions.len();
        f.debug_struct("MemoryStore").field("sessions", &sessions).finish_non_exhaustive()
    }
}

/// What all handles and streams share.
struct Shared {
    clock: Arc<dyn Clock>,
    world: Mutex<World>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, World> {
        // Every change is made after its last check, so a panic in between leaves nothing half done.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl EventLog for MemoryStore {
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
        let now = self.shared.clock.now();
        let mut world = self.shared.lock();
        let session = world.session_mut(&fence.session).map_err(AppendError::Unavailable)?;
        if session.epoch != fence.epoch || session.owner != Some(fence.worker) {
            return Err(AppendError::Fenced);
        }
        let head = session.head();
        if session.last_batch == Some(batch.id) {
            return Ok(head);
        }
        let conflict = AppendError::Conflict { head, batch: session.last_batch };
        if expected != head {
            return Err(conflict);
        }
        let mut left = session.inbox.clone();
        for taken in &batch.taken {
            let Some(place) = left.iter().position(|item| item.id == *taken) else {
                return Err(conflict);
            };
            left.remove(place);
        }
        if batch.state.as_ref().is_some_and(|state| !state.admissible(&left)) {
            return Err(AppendError::Busy);
        }

        // Nothing fails from here on, so it is all or nothing.
        session.inbox = left;
        session.last_batch = Some(batch.id);
        if let Some(state) = batch.state {
            session.take(state, now);
        }
        session.push(&fence.session, batch.rows);
        let head = session.head();
        let readers = session.waiting_readers();
        drop(world);
        readers.into_iter().for_each(Waker::wake);
        Ok(head)
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        Ok(self.shared.lock().session(session)?.read(after, limit))
    }

    fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream {
        Box::pin(Follow::new(self.shared.clone(), session.clone(), after))
    }
}

#[async_trait]
impl Inbox for MemoryStore {
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
        let now = self.shared.clock.now();
        let mut world = self.shared.lock();
        let target = world.session_mut(session)?;
        if let Some((id, content)) = input.key.as_ref().and_then(|key| target.keys.get(key)) {
            return if *content == input.kind {
                Ok(Admitted::Again(*id))
            } else {
                Err(AdmitError::KeyConflict { input: *id })
            };
        }
        let Some(next) = target.state.after_admit(&input) else {
            return Ok(Admitted::Dropped);
        };
        let mut state = target.state.clone();
        state.next = next;
        target.take(state, now);
        target.arrivals += 1;
        let item = InboxItem::new(input, Arrival::new(target.arrivals));
        if let Some(key) = &item.key {
            target.keys.insert(key.clone(), (item.id, item.input.clone()));
        }
        let admitted = Admitted::New(item.id, item.arrival);
        target.inbox.push(item);
        let listeners = world.hint(session);
        drop(world);
        listeners.into_iter().for_each(Waker::wake);
        Ok(admitted)
    }

    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError> {
        let mut world = self.shared.lock();
        let inbox = &mut world.session_mut(session)?.inbox;
        let place = inbox.iter().position(|item| item.id == input);
        Ok(place.map(|place| inbox.remove(place)).is_some())
    }

    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError> {
        let mut world = self.shared.lock();
        let inbox = &mut world.session_mut(session)?.inbox;
        match inbox.iter_mut().find(|item| item.id == input).map(|item| &mut item.input) {
            Some(NewInputKind::Prompt(prompt)) => prompt.delivery = delivery,
            Some(NewInputKind::Notice(notice)) => notice.delivery = delivery,
            _ => return Ok(false),
        }
        // What was to wait may now be due at the next border of a step.
        let listeners = world.hint(session);
        drop(world);
        listeners.into_iter().for_each(Waker::wake);
        Ok(true)
    }

    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError> {
        Ok(self.shared.lock().session(session)?.inbox.clone())
    }

    fn hints(&self) -> HintStream {
        Box::pin(Hints::new(self.shared.clone()))
    }
}

#[async_trait]
impl Ownership for MemoryStore {
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
        let now = self.shared.clock.now();
        self.shared.lock().create(session, new, now)
    }

    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
        let now = self.shared.clock.now();
        let mut world = self.shared.lock();
        if let Some((owner, until)) = world.live_owner(world.session(session)?, now)
            && owner != worker
        {
            return Err(ClaimError::Owned { worker: owner, until });
        }
        world.leases.insert(worker, now.plus(lease));
        let claimed = world.session_mut(session)?;
        claimed.owner = Some(worker);
        claimed.epoch += 1;
        let fence = Fence::new(session.clone(), worker, claimed.epoch);
        Ok(Claimed::new(fence, claimed.head(), claimed.state.clone()))
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        let until = self.shared.clock.now().plus(lease);
        self.shared.lock().leases.insert(worker, until);
        Ok(())
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let mut world = self.shared.lock();
        let Ok(session) = world.session_mut(&fence.session) else {
            return Ok(());
        };
        if session.epoch != fence.epoch || session.owner != Some(fence.worker) {
            return Ok(());
        }
        session.owner = None;
        if session.due.is_some_and(|due| due <= now) {
            let listeners = world.hint(&fence.session);
            drop(world);
            listeners.into_iter().for_each(Waker::wake);
        }
        Ok(())
    }

    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let now = self.shared.clock.now();
        let world = self.shared.lock();
        let free = world.sessions.iter().filter(|(_, s)| world.live_owner(s, now).is_none());
        let mut due: Vec<_> =
            free.filter_map(|(id, session)| session.due.filter(|due| *due <= now).map(|due| (due, id))).collect();
        due.sort();
        Ok(due.into_iter().take(limit).map(|(_, id)| id.clone()).collect())
    }
}

#[async_trait]
impl Catalog for MemoryStore {
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError> {
        let now = self.shared.clock.now();
        let world = self.shared.lock();
        Ok(world.info(session, world.session(session)?, now))
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let now = self.shared.clock.now();
        let world = self.shared.lock();
        let limit = if query.limit == 0 { PAGE } else { query.limit };
        let from = query.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut found = world
            .sessions
            .range::<SessionId, _>((from, Bound::Unbounded))
            .filter(|(_, session)| match &query.tag {
                Some((name, value)) => session.tags.get(name) == Some(value),
                None => true,
            })
            .filter(|(_, session)| query.state.is_none_or(|state| state.matches(&session.state.next)))
            .map(|(id, session)| world.info(id, session, now));
        let sessions: Vec<_> = found.by_ref().take(limit).collect();
        let more = found.next().is_some();
        let after = sessions.last().map(|last| last.session.clone()).filter(|_| more);
        Ok(Page::new(sessions, after))
    }

    async fn erase(&self, session: &SessionId) -> Result<(), StoreError> {
        let now = self.shared.clock.now();
        let mut world = self.shared.lock();
        if let Some((owner, until)) = world.live_owner(world.session(session)?, now) {
            let message = format!("worker {owner} works on session `{session}` until {until}: stop it first, or wait");
            return Err(StoreError::new(StoreErrorKind::InUse, message));
        }
        let erased = world.sessions.remove(session);
        drop(world);
        let readers = erased.map(|mut session| session.waiting_readers());
        readers.into_iter().flatten().for_each(Waker::wake);
        Ok(())
    }
}

#[async_trait]
impl FoldCache for MemoryStore {
    async fn kept(&self, session: &SessionId) -> Result<Option<CachedFold>, StoreError> {
        Ok(self.shared.lock().sessions.get(session).and_then(|session| session.fold.clone()))
    }

    async fn keep(&self, session: &SessionId, fold: CachedFold) -> Result<(), StoreError> {
        self.shared.lock().session_mut(session)?.fold = Some(fold);
        Ok(())
    }
}

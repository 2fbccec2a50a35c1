//! The memory store behind a wrapper that is wrong in one thing.
//!
//! A mutation is named after the case that must find it, and stands in the method that it spoils.

mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, HintStream, Inbox,
    NewSession, Next, Ownership, Page, Query, RecordedStream, SessionInfo, SessionState, StoreError, StoreErrorKind,
};
use settled_ledger::{
    Arrival, BatchId, Clock, Delivery, InboxItem, InputId, NewInput, NewInputKind, Recorded, Seq, Timestamp, Wake,
    WorkerId,
};
use settled_store_memory::MemoryStore;
use settled_tools_api::SessionId;

/// A store that is wrong in one thing.
pub(crate) struct Mutant {
    fault: &'static str,
    inner: MemoryStore,
    clock: Arc<dyn Clock>,
    notes: Arc<Mutex<Notes>>,
    /// How many calls are under way, for mutants that can bear one.
    busy: Arc<AtomicUsize>,
    /// What this handle has read before, for the mutant that does not look again.
    cache: Mutex<BTreeMap<(SessionId, Seq, usize), Vec<Recorded>>>,
}

/// What the mutants remember of what went through them.
#[derive(Default)]
struct Notes {
    /// Every claim that was answered, in order.
    fences: Vec<Fence>,
    leases: BTreeMap<WorkerId, Timestamp>,
    landed: Vec<(Fence, BatchId)>,
    refused: BTreeSet<BatchId>,
    rows: u64,
    admitted: Vec<(SessionId, NewInput)>,
    dropped_keys: BTreeSet<String>,
    cancelled: BTreeSet<InputId>,
    changed: BTreeSet<InputId>,
    /// States that are shown in place of the true ones.
    shown: BTreeMap<SessionId, Next>,
    readers: usize,
    listeners: usize,
    last_id: u128,
}

impl Notes {
    fn fence(&self, session: &SessionId) -> Option<Fence> {
        self.fences.iter().rfind(|fence| fence.session == *session).cloned()
    }

    fn fresh(&mut self) -> BatchId {
        self.last_id += 1;
        BatchId::from_u128(u128::MAX - self.last_id)
    }

    /// The input that was admitted under a key.
    fn keyed(&self, key: Option<&String>) -> Option<&(SessionId, NewInput)> {
        self.admitted.iter().find(|(_, input)| input.key.as_ref() == key && key.is_some())
    }
}

impl Mutant {
    pub(crate) fn new(fault: &'static str, inner: MemoryStore, clock: Arc<dyn Clock>) -> Self {
        Self { fault, inner, clock, notes: Arc::default(), busy: Arc::default(), cache: Mutex::default() }
    }

    /// Another handle on the same store, wrong in the same thing.
    pub(crate) fn other_handle(&self) -> Self {
        Self {
            fault: self.fault,
            inner: self.inner.clone(),
            clock: self.clock.clone(),
            notes: self.notes.clone(),
            busy: self.busy.clone(),
            cache: Mutex::default(),
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap()
    }

    /// The memory store's row of a session, if there is one.
    fn row(&self, session: &SessionId) -> Option<SessionInfo> {
        now(self.inner.info(session)).ok()
    }

    fn head(&self, session: &SessionId) -> Seq {
        self.row(session).map_or(Seq::START, |row| row.head)
    }

    fn next(&self, session: &SessionId) -> Option<Next> {
        self.row(session).map(|row| row.state.next)
    }

    fn is_pending(&self, session: &SessionId, input: InputId) -> bool {
        let pending = now(self.inner.pending(session)).unwrap_or_default();
        pending.iter().any(|item| item.id == input)
    }

    fn all(&self) -> Vec<SessionInfo> {
        now(self.inner.list(&Query::all(usize::MAX))).unwrap().sessions
    }

    /// Gives up whatever claim a session is under.
    fn give_up(&self, session: &SessionId) {
        if let Some(fence) = self.notes().fence(session) {
            now(self.inner.release(&fence)).unwrap();
        }
    }
}

/// The answer of a call of the memory store: it is there at the first poll.
fn now<T>(call: impl Future<Output = T>) -> T {
    match pin!(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the memory store does not wait"),
    }
}

/// Lets the others go first, once.
async fn turn() {
    let mut turned = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut turned, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn locked() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the store is locked")
}

fn missing<T: Debug>(answer: &Result<T, StoreError>) -> bool {
    matches!(answer, Err(error) if error.kind == StoreErrorKind::NotFound)
}

#[async_trait]
impl EventLog for Mutant {
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
        let (mut fence, mut expected, mut batch) = (fence.clone(), expected, batch);
        let session = fence.session.clone();
        let head = self.head(&session);
        let present = self.notes().fence(&session).unwrap_or_else(|| fence.clone());
        let next = batch.state.as_ref().map(|state| state.next.clone());
        let pending = now(self.inner.pending(&session)).unwrap_or_default();
        let last = self.notes().landed.iter().rfind(|(by, _)| by.session == session).cloned();

        // Before it lands.
        match self.fault {
            "append.rows_as_they_are" => batch.rows.iter_mut().for_each(|row| row.body = row.body.replace(' ', "")),
            "append.behind_the_head" => expected = expected.max(head),
            "append.beyond_the_head" => expected = expected.min(head),
            "append.other_claim" if fence.worker != present.worker && fence.epoch < present.epoch => fence = present,
            "append.own_newer_claim" if fence.worker == present.worker => fence.epoch = fence.epoch.max(present.epoch),
            "append.other_worker" if fence.epoch == present.epoch => fence = present,
            "append.future_epoch" => fence.epoch = fence.epoch.min(present.epoch),
            "append.released" if self.row(&session).is_some_and(|row| row.owner.is_none()) => {
                fence = now(self.inner.claim(fence.worker, Duration::ZERO, &session)).unwrap().fence;
            }
            "append.lease_run_out" if self.row(&session).is_some_and(|row| row.owner.is_none()) => {
                return Err(AppendError::Fenced);
            }
            "append.fenced_first" if last.as_ref().is_some_and(|(_, id)| *id == batch.id) => return Ok(head),
            "append.same_batch" => batch.id = self.notes().fresh(),
            "append.same_batch_new_claim" if last.as_ref().is_some_and(|(by, _)| *by != fence) => {
                batch.id = self.notes().fresh();
            }
            "append.older_batch" if self.notes().landed.iter().any(|(_, id)| *id == batch.id) => return Ok(head),
            "append.refused_batch" if self.notes().refused.contains(&batch.id) => return Ok(head),
            "append.dropped" if batch.rows.len() > 1 => {
                let first = Batch::new(self.notes().fresh(), vec![batch.rows.remove(0)]);
                expected = self.inner.append(&fence, expected, first).await?;
                turn().await;
            }
            "append.takes_input" => batch.taken.clear(),
            "append.taken_already" | "append.taken_cancelled" | "append.taken_elsewhere" => {
                let mut seen = BTreeSet::new();
                batch.taken.retain(|id| seen.insert(*id) && self.is_pending(&session, *id));
            }
            "append.state" if batch.state.is_none() => batch.state = Some(SessionState::default()),
            "append.taken_does_not_count" if next == Some(Next::Idle) && !pending.is_empty() => {
                return Err(AppendError::Busy);
            }
            "append.held_on_input" if next.is_some() && next != Some(Next::Runnable) && !pending.is_empty() => {
                return Err(AppendError::Busy);
            }
            "append.many_at_once" => {
                if self.busy.fetch_add(1, Ordering::SeqCst) > 0 {
                    self.busy.fetch_sub(1, Ordering::SeqCst);
                    return Err(AppendError::Unavailable(locked()));
                }
                turn().await;
                self.busy.fetch_sub(1, Ordering::SeqCst);
            }
            "append.one_head_once" if expected == head => {
                turn().await;
                expected = self.head(&session);
            }
            _ => {}
        }

        let (id, taken, rows) = (batch.id, batch.taken.clone(), batch.rows.len() as u64);
        let answer = self.inner.append(&fence, expected, batch).await;
        match &answer {
            Ok(_) => {
                self.notes().landed.push((fence, id));
                self.notes().rows += rows;
            }
            Err(_) => drop(self.notes().refused.insert(id)),
        }

        // After it has landed, or has not.
        match (self.fault, &answer, next) {
            ("append.lands", Ok(_), _) => Ok(expected),
            ("append.without_rows", Ok(head), _) if rows == 0 => Ok(head.plus(1)),
            ("append.all_or_nothing", Err(_), _) => {
                for input in taken {
                    now(self.inner.cancel(&session, input)).unwrap();
                }
                answer
            }
            ("append.idle_on_input", Err(AppendError::Busy), Some(Next::Idle))
            | (
                "append.waiting_on_answer" | "append.waiting_on_interrupt",
                Err(AppendError::Busy),
                Some(Next::Waiting(_)),
            ) => Ok(head),
            ("append.races_with_input", Err(AppendError::Busy), Some(next)) => {
                self.notes().shown.insert(session, next);
                Ok(head)
            }
            ("append.no_session", Err(AppendError::Unavailable(_)), _) => Err(AppendError::Fenced),
            ("append.sessions_apart", Ok(_), _) => Ok(Seq::new(self.notes().rows)),
            _ => answer,
        }
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        let limit = match self.fault {
            "read.range" => limit.min(64),
            "read.nothing" => limit.max(1),
            _ => limit,
        };
        let answer = self.inner.read(session, after, limit).await;
        match self.fault {
            "read.there" if answer.is_ok() => {
                let mut cache = self.cache.lock().unwrap();
                let seen = cache.entry((session.clone(), after, limit)).or_insert(answer?);
                Ok(seen.clone())
            }
            "read.no_session" if missing(&answer) => Ok(Vec::new()),
            _ => answer,
        }
    }

    fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream {
        streams::follow(self, session, after)
    }
}

#[async_trait]
impl Inbox for Mutant {
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
        let mut input = input;
        let handed_in = input.clone();
        let id = input.id;
        let before = self.next(session);
        let state = self.row(session).map(|row| row.state).unwrap_or_default();
        let known = self.notes().keyed(input.key.as_ref()).cloned();
        let known_id = known.as_ref().map(|(_, known)| known.id);
        let still_pending = known_id.is_some_and(|known| self.is_pending(session, known));

        match (self.fault, known_id) {
            ("admit.same_key", _) => input.key = None,
            ("admit.same_key_promoted", Some(known)) if !still_pending && !self.notes().cancelled.contains(&known) => {
                input.key = None;
            }
            ("admit.same_key_cancelled", Some(known)) if self.notes().cancelled.contains(&known) => input.key = None,
            ("admit.same_key_changed", Some(known)) if self.notes().changed.contains(&known) => {
                return Err(AdmitError::KeyConflict { input: known });
            }
            ("admit.key_of_session" | "erase.anew", Some(known)) => return Ok(Admitted::Again(known)),
            ("admit.key_of_interrupt", _) if matches!(input.kind, NewInputKind::Interrupt(_)) => input.key = None,
            ("admit.without_key", _) => {
                let pending = now(self.inner.pending(session)).unwrap_or_default();
                if let Some(twin) = pending.iter().find(|item| item.input == input.kind) {
                    return Ok(Admitted::Again(twin.id));
                }
            }
            ("admit.same_key_at_once", Some(known)) => return Ok(Admitted::Again(known)),
            ("admit.same_key_at_once", None) => {
                turn().await;
                input.key = None;
            }
            ("admit.many_at_once", _) => {
                if self.busy.fetch_add(1, Ordering::SeqCst) > 0 {
                    self.busy.fetch_sub(1, Ordering::SeqCst);
                    return Err(locked().into());
                }
                turn().await;
                self.busy.fetch_sub(1, Ordering::SeqCst);
            }
            ("admit.wakes", _) => input.wake = Wake::Later,
            ("admit.later", _) => input.wake = Wake::Now,
            ("admit.interrupt_other_execution", _) => {
                if let (NewInputKind::Interrupt(interrupt), Some(execution)) = (&mut input.kind, state.execution) {
                    interrupt.execution = execution;
                }
            }
            ("admit.dropped_leaves_nothing", _)
                if input.key.as_ref().is_some_and(|key| self.notes().dropped_keys.contains(key)) =>
            {
                return Ok(Admitted::Again(id));
            }
            _ => {}
        }

        let key = input.key.clone();
        let answer = self.inner.admit(session, input).await;
        let mut notes = self.notes();
        match &answer {
            Ok(Admitted::New(..)) => notes.admitted.push((session.clone(), handed_in.clone())),
            Ok(Admitted::Dropped) => notes.dropped_keys.extend(key),
            _ => {}
        }
        let total = notes.admitted.len() as u64;
        let show = match (self.fault, &handed_in.kind, before) {
            ("admit.input_while_waiting", _, Some(Next::Waiting(_)))
            | ("admit.input_while_backing_off", _, Some(Next::At(_)))
            | ("admit.answer_to_other_call", NewInputKind::Answer(_), _) => Some(Next::Runnable),
            ("admit.answer", NewInputKind::Answer(_), before) => before,
            ("admit.interrupt", NewInputKind::Interrupt(_), before) => before,
            _ => None,
        };
        notes.shown.extend(show.map(|show| (session.clone(), show)));
        drop(notes);

        match (self.fault, answer) {
            ("admit.arrival_once", Ok(Admitted::New(..))) => {
                let place = now(self.inner.pending(session)).unwrap().len() as u64;
                Ok(Admitted::New(id, Arrival::new(place)))
            }
            ("admit.sessions_apart", Ok(Admitted::New(..))) => Ok(Admitted::New(id, Arrival::new(total))),
            ("admit.key_conflict", Err(AdmitError::KeyConflict { input })) => Ok(Admitted::Again(input)),
            ("admit.key_conflict_promoted", Err(AdmitError::KeyConflict { input })) if !still_pending => {
                Ok(Admitted::Again(input))
            }
            ("admit.interrupt_at_rest", Ok(Admitted::Dropped)) => Ok(Admitted::New(id, Arrival::new(1))),
            ("admit.no_session", Err(AdmitError::Store(_))) => Ok(Admitted::Dropped),
            (_, answer) => answer,
        }
    }

    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError> {
        if self.fault == "cancel.pending" {
            return Ok(true);
        }
        let answer = self.inner.cancel(session, input).await;
        self.notes().cancelled.insert(input);
        match self.fault {
            "cancel.gone" => answer.map(|_| true),
            "cancel.no_session" if missing(&answer) => Ok(false),
            _ => answer,
        }
    }

    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError> {
        if self.fault == "change.delivery" {
            return Ok(true);
        }
        let answer = self.inner.change(session, input, delivery).await;
        self.notes().changed.insert(input);
        match self.fault {
            "change.others" => answer.map(|_| true),
            "change.no_session" if missing(&answer) => Ok(false),
            _ => answer,
        }
    }

    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError> {
        let mut answer = self.inner.pending(session).await;
        match (self.fault, &mut answer) {
            ("admit.pending", Ok(items)) => items.iter_mut().for_each(|item| item.key = None),
            ("admit.order", Ok(items)) => items.sort_by_key(|item| item.id),
            ("pending.no_session", Err(_)) => return Ok(Vec::new()),
            _ => {}
        }
        answer
    }

    fn hints(&self) -> HintStream {
        let mut notes = self.notes();
        notes.listeners += 1;
        match self.fault {
            "hints.admit" => streams::never(),
            "hints.listeners" if notes.listeners > 1 => streams::never(),
            _ => self.inner.hints(),
        }
    }
}

#[async_trait]
impl Ownership for Mutant {
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
        let mut new = new;
        match self.fault {
            "create.events" => drop(new.rows.pop()),
            "create.at_rest" => drop(self.notes().shown.insert(session.clone(), Next::Runnable)),
            _ => {}
        }
        let answer = self.inner.create(session, new).await;
        match self.fault {
            "create.exists" if answer.is_err() => Ok(self.head(session)),
            _ => answer,
        }
    }

    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
        let owner = self.row(session).and_then(|row| row.owner);
        let present = self.notes().fence(session);
        let until_of = |owner: WorkerId| self.notes().leases.get(&owner).copied().unwrap_or_default();
        let before = until_of(worker);
        match (self.fault, owner) {
            ("claim.epoch_grows", _) => drop(now(self.inner.claim(worker, lease, session))),
            ("claim.owned", Some(_)) => self.give_up(session),
            ("claim.run_out", None) => {
                if let Some(owner) = present.map(|fence| fence.worker).filter(|owner| *owner != worker)
                    && until_of(owner) == self.clock.now()
                {
                    let until = until_of(owner);
                    return Err(ClaimError::Owned { worker: owner, until });
                }
            }
            ("claim.own_anew", Some(owner)) => {
                let until = until_of(owner);
                return Err(ClaimError::Owned { worker: owner, until });
            }
            ("claim.no_session", _) if self.row(session).is_none() => {
                now(self.inner.create(session, NewSession::default())).unwrap();
            }
            ("claim.one_at_once", None) => {
                turn().await;
                self.give_up(session);
            }
            _ => {}
        }
        let mut answer = self.inner.claim(worker, lease, session).await;
        if let Ok(claimed) = &mut answer {
            self.notes().fences.push(claimed.fence.clone());
            self.notes().leases.insert(worker, self.clock.now().plus(lease));
            match self.fault {
                "claim.answers" => claimed.head = Seq::START,
                "claim.lease_of_worker" if before > self.clock.now() => {
                    now(self.inner.renew(worker, before.since(self.clock.now()))).unwrap();
                }
                _ => {}
            }
        }
        answer
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        let fences = self.notes().fences.clone();
        let owned = fences.iter().filter(|fence| fence.worker == worker);
        match self.fault {
            "renew.all_sessions" => return Ok(()),
            "renew.fence" => {
                for fence in owned {
                    drop(now(self.inner.claim(worker, lease, &fence.session)));
                }
            }
            "renew.not_others" => {
                for fence in &fences {
                    now(self.inner.renew(fence.worker, lease)).unwrap();
                }
            }
            "renew.after_other_claim" => {
                for fence in owned {
                    self.give_up(&fence.session);
                    drop(now(self.inner.claim(worker, lease, &fence.session)));
                }
            }
            _ => {}
        }
        self.inner.renew(worker, lease).await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        match self.fault {
            "release.free" => return Ok(()),
            "release.stale" => self.give_up(&fence.session),
            "release.others_session" => {
                let fences = self.notes().fences.clone();
                for other in fences.iter().filter(|other| other.worker == fence.worker) {
                    now(self.inner.release(other)).unwrap();
                }
            }
            "release.no_session" if self.row(&fence.session).is_none() => {
                return Err(StoreError::not_found(&fence.session));
            }
            _ => {}
        }
        self.inner.release(fence).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let mut answer = self.inner.due(if self.fault == "due.limit" { 100 } else { limit }).await?;
        let now = self.clock.now();
        let also = |found: &dyn Fn(&SessionInfo) -> bool| {
            let rows = self.all().into_iter().filter(|row| found(row));
            rows.map(|row| row.session).collect::<Vec<_>>()
        };
        match self.fault {
            "due.order" => answer.reverse(),
            "due.since_runnable" => {
                let notes = self.notes();
                answer.sort_by_key(|id| notes.admitted.iter().any(|(session, _)| session == id));
            }
            "due.not_before_time" => {
                let soon = now.plus(Duration::from_secs(1));
                answer = also(&|row| matches!(row.state.next, Next::At(time) if time <= soon));
            }
            "due.others_not" => answer.extend(also(&|row| matches!(row.state.next, Next::Waiting(_)))),
            "due.owned" => answer = also(&|row| row.state.next == Next::Runnable),
            _ => {}
        }
        Ok(answer)
    }
}

#[async_trait]
impl Catalog for Mutant {
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError> {
        let mut row = match (self.fault, self.inner.info(session).await) {
            ("info.no_session", Err(_)) => SessionInfo::new(session.clone(), Seq::START, SessionState::default()),
            (_, answer) => answer?,
        };
        match self.fault {
            "info.whole" => row.updated = row.created,
            "admit.rest_of_state" if !self.notes().admitted.is_empty() => row.state.handed_over = false,
            "info.owner" => row.owner = self.notes().fence(session).map(|fence| fence.worker),
            _ => {}
        }
        if let Some(next) = self.notes().shown.get(session) {
            row.state.next = next.clone();
        }
        Ok(row)
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let mut query = query.clone();
        let asked = query.clone();
        match self.fault {
            "list.own_limit" if query.limit == 0 => return Ok(Page::default()),
            "list.cursor" if query.after.as_ref().is_some_and(|after| self.row(after).is_none()) => {
                return Ok(Page::default());
            }
            "list.tag" => query.tag = None,
            "list.state" => query.state = None,
            "list.filtered_pages" => (query.tag, query.state) = (None, None),
            _ => {}
        }
        let mut page = self.inner.list(&query).await?;
        match self.fault {
            "list.order" => page.sessions.reverse(),
            "list.pages" => page.after = page.sessions.last().map(|row| row.session.clone()),
            "list.tag" => page.sessions.retain(|row| {
                let tag = asked.tag.as_ref();
                tag.is_none_or(|(name, _)| row.tags.contains_key(name))
            }),
            "list.filtered_pages" => page.sessions.retain(|row| {
                let tag = asked.tag.as_ref();
                tag.is_none_or(|(name, value)| row.tags.get(name) == Some(value))
            }),
            "list.rows" => page.sessions.iter_mut().for_each(|row| row.owner = None),
            _ => {}
        }
        Ok(page)
    }

    async fn erase(&self, session: &SessionId) -> Result<(), StoreError> {
        match self.fault {
            "erase.gone" => return Ok(()),
            "erase.in_use" => self.give_up(session),
            "erase.others" => {
                for row in self.all() {
                    for item in now(self.inner.pending(&row.session)).unwrap() {
                        now(self.inner.cancel(&row.session, item.id)).unwrap();
                    }
                }
            }
            "erase.no_session" if self.row(session).is_none() => return Ok(()),
            _ => {}
        }
        self.inner.erase(session).await
    }
}

//! What a store of sessions implements: four small contracts.
//!
//! [`EventLog`] and [`Inbox`] are spanned by one transaction: a [`Batch`] appends events and takes input, all or nothing.
//! The ledger defines these traits and never calls them; the runner does.
//!
//! # Rules for all four
//!
//! 1. Only the owner of a session appends to its log; from outside comes only the inbox.
//! 2. What was answered is durable, to the store's promise; what was not answered may be there or not, whole.
//! 3. Any future may be dropped at any await: the effect has then happened, or has not, or happens later; nothing is half done.
//! 4. Any number of tasks may call at once, through any number of handles, in any number of processes where the store allows them.
//! 5. A call that fails with a [`StoreError`] has changed nothing, unless its page says otherwise.
//!
//! # How to read the pages
//!
//! Each method's page is law for every store: what it answers, what it may lose (*Loses*), and what dropping its future does (*Cancelling*).
//! The names in brackets are the cases of the conformance suite in `settled-testkit` that hold a store to the sentence; each case there stands behind one here.
//! The reference implementation is `settled-store-memory`.

mod pointers;

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use async_trait::async_trait;
use futures_core::Stream;
use serde::{Deserialize, Serialize};
use settled_tools_api::{CallKey, SessionId};

use crate::inbox::{Arrival, InboxItem, NewInput, NewInputKind, Wake};
use crate::{BatchId, CachedFold, Delivery, ExecutionId, InputId, NewRow, Recorded, Seq, Timestamp, WorkerId};

/// A store: all four contracts in one value.
///
/// A reference, a `Box` and an `Arc` of a store are stores themselves, a `dyn Store` behind them included.
pub trait Store: EventLog + Inbox + Ownership + Catalog {}

impl<T: EventLog + Inbox + Ownership + Catalog + ?Sized> Store for T {}

/// The durable log of events, one sequence for each session.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Appends a batch behind `expected`, all or nothing, and answers the new head when it is durable.
    ///
    /// What is looked at, in this order:
    ///
    /// 1. Without a session it is [`AppendError::Unavailable`] with [`StoreErrorKind::NotFound`] (`append.no_session`).
    /// 2. The fence must be the session's present claim, epoch and worker; otherwise it is [`AppendError::Fenced`], even where the batch is the last that landed (`append.other_claim`, `append.own_newer_claim`, `append.other_worker`, `append.future_epoch`, `append.released`, `append.fenced_first`).
    ///    A lease that has run out takes nothing away until another claim comes (`append.lease_run_out`).
    /// 3. A batch whose id is that of the last batch that landed answers the head again, and changes nothing: so `Unknown` is resolved (`append.same_batch`, `append.same_batch_new_claim`).
    ///    Only the last batch is known by its id; one that landed before it is a conflict, and one that was refused may land yet (`append.older_batch`, `append.refused_batch`).
    /// 4. `expected` must be the head, and every input taken must be in the session's inbox; otherwise it is [`AppendError::Conflict`] with the head and the last batch (`append.behind_the_head`, `append.beyond_the_head`, `append.one_head_once`, `append.taken_already`, `append.taken_cancelled`, `append.taken_elsewhere`).
    /// 5. The batch's state must be [admissible](SessionState::admissible) beside the input that is left; otherwise it is [`AppendError::Busy`] (`append.idle_on_input`, `append.waiting_on_answer`, `append.waiting_on_interrupt`, `append.taken_does_not_count`, `append.held_on_input`, `append.races_with_input`).
    ///
    /// Then it lands, in one transaction:
    ///
    /// - The rows stand behind the head, to the letter; a batch without rows keeps the head (`append.lands`, `append.rows_as_they_are`, `append.without_rows`).
    /// - The taken input leaves the inbox (`append.takes_input`).
    /// - The session takes the batch's state, and keeps its own where the batch has none (`append.state`).
    /// - Of a batch that is refused, nothing of this (`append.all_or_nothing`).
    ///
    /// Sessions do not touch each other (`append.sessions_apart`, `append.many_at_once`).
    ///
    /// *Loses* nothing that was answered; after [`AppendError::Unknown`] the batch is there as a whole, or not at all.
    /// *Cancelling* is the same as [`AppendError::Unknown`]: the batch lands once, whether it is appended again or not (`append.dropped`).
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError>;

    /// Reads up to `limit` events after a place, in order; fewer only at the head, none behind it (`read.range`, `read.nothing`).
    ///
    /// What any handle was answered is seen by every other (`read.there`).
    /// *Fails* with [`StoreErrorKind::NotFound`] without a session (`read.no_session`), and with [`StoreErrorKind::Corrupt`] where an event in the range is missing or not as it was written: never a silently shorter log.
    ///
    /// *Loses* nothing.
    /// *Cancelling* ends the reading.
    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError>;

    /// Follows the log from a place: replays, says once that it is synced, then gives what is appended, without gap or double.
    ///
    /// - The marker comes once, with the head when following began; from beyond the head it comes at once (`follow.replays`, `follow.empty`, `follow.beyond_the_head`, `follow.one_marker`).
    /// - What is appended comes behind it, over changes of owner, and nothing of other sessions (`follow.tail`, `follow.during_replay`, `follow.over_claims`, `follow.sessions_apart`).
    /// - Every reader gets everything from its own place; one that is slow slows nobody down: the store reads again from the log when it comes back (`follow.many_readers`, `follow.slow_reader`).
    /// - Without a session, and when the session is erased, it gives one error, [`StoreErrorKind::NotFound`], and ends; a session made anew under the id is another (`follow.no_session`, `follow.erased`).
    ///
    /// *Loses* nothing: a reader that failed follows again from the last event it had.
    /// *Cancelling* is dropping the stream: it takes nothing from others.
    fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream;
}

/// The stream of [`EventLog::follow`]; after an `Err` it ends.
pub type RecordedStream = Pin<Box<dyn Stream<Item = Result<Followed, StoreError>> + Send>>;

/// One item of [`EventLog::follow`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a reader must handle both")]
pub enum Followed {
    /// An event.
    Event(Recorded),
    /// All that was there when following began has been given; the head then.
    Synced(Seq),
}

/// Everything that comes to a session from outside.
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Admits an input; durable, and seen by every handle, when it answers (`admit.pending`).
    ///
    /// - It has the next place in its session's order of arrival, numbered from 1, and none is used twice (`admit.order`, `admit.arrival_once`, `admit.sessions_apart`, `admit.many_at_once`).
    /// - The same key with the same content is the input admitted before ([`Admitted::Again`]), whether it is pending, promoted, cancelled or changed (`admit.same_key`, `admit.same_key_promoted`, `admit.same_key_cancelled`, `admit.same_key_changed`, `admit.key_of_interrupt`, `admit.same_key_at_once`).
    /// - The same key with other content is [`AdmitError::KeyConflict`], and nothing changes (`admit.key_conflict`, `admit.key_conflict_promoted`).
    /// - A key counts within its session; without one, the same content twice is two inputs (`admit.key_of_session`, `admit.without_key`).
    /// - In the same transaction [`SessionState::next`] becomes what [`SessionState::after_admit`] says; the rest of the state stays as it is (`admit.wakes`, `admit.later`, `admit.input_while_waiting`, `admit.input_while_backing_off`, `admit.answer`, `admit.answer_to_other_call`, `admit.interrupt`, `admit.rest_of_state`).
    /// - An interrupt of an execution that is not the session's present one is [`Admitted::Dropped`] and leaves nothing, not even its key (`admit.interrupt_other_execution`, `admit.interrupt_at_rest`, `admit.dropped_leaves_nothing`).
    ///
    /// *Fails* with [`StoreErrorKind::NotFound`] without a session (`admit.no_session`).
    /// After another [`StoreError`] the input may be there or not; admitting it again under the same key is safe.
    ///
    /// *Loses* nothing that was answered.
    /// *Cancelling*: it is admitted, or not, or later; under the same key it can be admitted again.
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError>;

    /// Takes a pending input back (`cancel.pending`); `false` if it is not pending any more, or never was (`cancel.gone`).
    ///
    /// *Fails* with [`StoreErrorKind::NotFound`] without a session (`cancel.no_session`).
    ///
    /// *Loses* nothing that was answered.
    /// *Cancelling*: it is taken back, or not, or later; asking again is safe.
    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError>;

    /// Changes when a pending prompt or notice is delivered, in its place (`change.delivery`); `false` if it is not pending any more, or is neither (`change.others`).
    ///
    /// *Fails* with [`StoreErrorKind::NotFound`] without a session (`change.no_session`).
    ///
    /// *Loses* nothing that was answered.
    /// *Cancelling*: it is changed, or not, or later; asking again is safe.
    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError>;

    /// All pending input, in order of arrival.
    ///
    /// *Fails* with [`StoreErrorKind::NotFound`] without a session (`pending.no_session`).
    ///
    /// *Loses* nothing.
    /// *Cancelling* ends the reading.
    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError>;

    /// Says which sessions may have new input or may have become due (`hints.admit`).
    ///
    /// Every listener hears, and one that does not listen holds nobody up (`hints.listeners`).
    ///
    /// *Loses* what it likes: hints may be lost, doubled or late, so whoever listens must poll [`Ownership::due`] as well.
    /// *Cancelling* is dropping the stream.
    fn hints(&self) -> HintStream;
}

/// The stream of [`Inbox::hints`].
pub type HintStream = Pin<Box<dyn Stream<Item = SessionId> + Send>>;

/// Who may append: one lease for each worker, one epoch for each session.
///
/// Leases go by the store's clock.
#[async_trait]
pub trait Ownership: Send + Sync {
    /// Makes a session with its first events, idle and nobody's, and answers its head (`create.events`, `create.at_rest`).
    ///
    /// *Fails* with [`StoreErrorKind::Exists`] if there is one of that id, which stays as it was (`create.exists`).
    ///
    /// *Loses* nothing that was answered.
    /// *Cancelling*: it is made, or not, or later; making it again then says that it exists.
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError>;

    /// Takes a session for a worker whose lease runs from now, and answers the fence, the head and the state (`claim.answers`).
    ///
    /// - Its epoch is one more with every claim, over releases and whoever claims (`claim.epoch_grows`).
    /// - A worker has one lease for all its sessions (`claim.lease_of_worker`).
    /// - The worker's own session may be claimed anew: its older fence is then stale (`claim.own_anew`).
    ///
    /// *Fails* with [`ClaimError::Owned`] while another worker's lease on it has not run out, to the millisecond; of two that claim at once one gets it (`claim.owned`, `claim.run_out`, `claim.one_at_once`).
    /// *Fails* with [`StoreErrorKind::NotFound`] without a session (`claim.no_session`).
    ///
    /// *Loses* nothing that was answered.
    /// *Cancelling*: it is claimed, or not, or later; claiming it anew makes a fence that counts.
    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError>;

    /// Makes a worker's lease run from now, for all its sessions at once (`renew.all_sessions`).
    ///
    /// It changes no fence, renews nobody else's lease, and takes back nothing that another worker has claimed since (`renew.fence`, `renew.not_others`, `renew.after_other_claim`).
    ///
    /// *Loses* nothing that was answered.
    /// *Cancelling*: it is renewed, or not, or later; renewing again is safe.
    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError>;

    /// Gives a session up, so that another worker may claim it at once (`release.free`); the worker's other sessions stay its own (`release.others_session`).
    ///
    /// If the fence is stale nothing happens; nor if there is no such session: it is `Ok` all the same (`release.stale`, `release.no_session`).
    ///
    /// *Loses* nothing that was answered.
    /// *Cancelling*: it is given up, or not, or later; the lease runs out in any case.
    async fn release(&self, fence: &Fence) -> Result<(), StoreError>;

    /// Up to `limit` sessions that are due and that no live worker owns, longest due first (`due.order`, `due.limit`, `due.owned`).
    ///
    /// A session is due since it became runnable, however often it was woken after, and from its moment on, to the millisecond; what waits, is held or idle is not (`due.since_runnable`, `due.not_before_time`, `due.others_not`).
    ///
    /// *Loses* nothing.
    /// *Cancelling* ends the reading.
    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError>;
}

/// Finding sessions, and erasing them.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// One session's row, whole; the owner is the worker whose lease has not run out (`info.whole`, `info.owner`).
    ///
    /// *Fails* with [`StoreErrorKind::NotFound`] without a session (`info.no_session`).
    ///
    /// *Loses* nothing.
    /// *Cancelling* ends the reading.
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError>;

    /// Sessions in the order of their ids, from a cursor, with the rows that [`info`](Self::info) gives (`list.order`, `list.rows`).
    ///
    /// - Page by page it gives each session once, and says where it ends; with a limit of 0 pages are as long as the store likes (`list.pages`, `list.own_limit`).
    /// - The cursor is an id, whether there is such a session or not (`list.cursor`).
    /// - It gives only those that the query asks for (`list.tag`, `list.state`, `list.filtered_pages`).
    ///
    /// *Loses* nothing; a session that is made or erased between two pages may be in them or not.
    /// *Cancelling* ends the reading.
    async fn list(&self, query: &Query) -> Result<Page, StoreError>;

    /// Erases a session: its row, its log, its inbox, its keys (`erase.gone`); others stay as they were (`erase.others`).
    ///
    /// A session made anew under its id begins anew (`erase.anew`).
    ///
    /// *Fails* with [`StoreErrorKind::InUse`] while a worker's lease on it has not run out, and with [`StoreErrorKind::NotFound`] without a session (`erase.in_use`, `erase.no_session`).
    ///
    /// *Loses* the session, as a whole.
    /// *Cancelling*: it is erased, or not, or later, as a whole.
    async fn erase(&self, session: &SessionId) -> Result<(), StoreError>;
}

/// The right to append to a session, as it was when it was claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fence {
    /// The session.
    pub session: SessionId,
    /// The worker that owns it.
    pub worker: WorkerId,
    /// The session's fencing number: it grows with every claim.
    pub epoch: u64,
}

impl Fence {
    /// A fence as a store hands it out.
    pub fn new(session: SessionId, worker: WorkerId, epoch: u64) -> Self {
        Self { session, worker, epoch }
    }
}

/// What is appended at once, all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Batch {
    /// The id by which a lost answer is looked up.
    pub id: BatchId,
    /// The events, in order; may be empty.
    pub rows: Vec<NewRow>,
    /// The inputs that leave the inbox with it.
    pub taken: Vec<InputId>,
    /// The state that the session takes with it; unchanged where `None`.
    pub state: Option<SessionState>,
}

impl Batch {
    /// A batch of events that takes no input and changes no state.
    pub fn new(id: BatchId, rows: Vec<NewRow>) -> Self {
        Self { id, rows, taken: Vec::new(), state: None }
    }
}

/// What a session waits for, and the execution that is open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionState {
    /// What it waits for next: the one part of the state that a store changes in place, as [`after_admit`](Self::after_admit) says.
    pub next: Next,
    /// The execution that has started and not settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionId>,
    /// Whether its last owner has left the execution at a border, in order; otherwise a claim means that the owner died.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub handed_over: bool,
}

impl SessionState {
    /// A state.
    pub fn new(next: Next, execution: Option<ExecutionId>) -> Self {
        Self { next, execution, handed_over: false }
    }

    /// The same state, left in order by the owner of an open execution.
    #[must_use]
    pub fn handed_over(mut self) -> Self {
        self.handed_over = true;
        self
    }

    /// Whether a batch may bring this state while these inputs are pending (those that the batch takes left out).
    ///
    /// A store answers [`AppendError::Busy`] where not: a session must not fall asleep on input that it should see.
    pub fn admissible<'a>(&self, pending: impl IntoIterator<Item = &'a InboxItem>) -> bool {
        let stands_in_the_way = |item: &InboxItem| match &self.next {
            Next::Idle => item.input.asks_for_a_run(),
            Next::Waiting(calls) => match &item.input {
                NewInputKind::Answer(answer) => calls.contains(&answer.call),
                NewInputKind::Interrupt(interrupt) => Some(interrupt.execution) == self.execution,
                NewInputKind::Prompt(_) | NewInputKind::Notice(_) | NewInputKind::Compact | NewInputKind::Switch(_) => {
                    false
                }
            },
            Next::Runnable | Next::At(_) | Next::Held => false,
        };
        !pending.into_iter().any(stands_in_the_way)
    }

    /// What a session waits for after an input was admitted; `None` where the input is dropped instead.
    ///
    /// A store calls it in the transaction of [`Inbox::admit`].
    pub fn after_admit(&self, input: &NewInput) -> Option<Next> {
        let next = match (&input.kind, &self.next) {
            (NewInputKind::Interrupt(interrupt), next) => match next {
                _ if self.execution != Some(interrupt.execution) => return None,
                Next::Idle | Next::Held => return None,
                Next::Runnable | Next::At(_) | Next::Waiting(_) => Next::Runnable,
            },
            (NewInputKind::Answer(answer), Next::Waiting(calls)) if calls.contains(&answer.call) => Next::Runnable,
            (NewInputKind::Answer(_), next) => next.clone(),
            // Input never answers for the person, and never shortens a backoff: it is held until the session goes on.
            (_, next @ (Next::Waiting(_) | Next::At(_))) => next.clone(),
            (_, next) => match input.wake {
                Wake::Now => Next::Runnable,
                Wake::Later => next.clone(),
            },
        };
        Some(next)
    }
}

/// What a session waits for next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "a store must handle every state")]
pub enum Next {
    /// A worker: there is work.
    Runnable,
    /// A moment: a retry is due then.
    At(Timestamp),
    /// A person's answers to these calls.
    Waiting(Vec<CallKey>),
    /// The next wake: input may be pending, and is held because the last execution was interrupted or failed.
    Held,
    /// Input.
    #[default]
    Idle,
}

/// Why an append did not answer `Ok`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AppendError {
    /// The fence is stale: another claim has come since. Stop, append nothing more.
    Fenced,
    /// The head is not the expected one, or an input to be taken is gone.
    Conflict {
        /// The head.
        head: Seq,
        /// The batch that landed last, if it is known.
        batch: Option<BatchId>,
    },
    /// The batch would put the session to sleep on input that it should see. Nothing has landed; compose it again, under a new id.
    Busy,
    /// Whether it has landed is not known. Append the same batch again, behind the same head.
    Unknown(StoreError),
    /// It has not landed and the store cannot take it.
    Unavailable(StoreError),
}

impl fmt::Display for AppendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fenced => f.write_str("another worker owns the session now"),
            Self::Conflict { head, .. } => write!(f, "the log's head is {head}, not what was expected"),
            Self::Busy => f.write_str("input is pending that the session should see"),
            Self::Unknown(error) => write!(f, "whether the batch has landed is not known: {error}"),
            Self::Unavailable(error) => write!(f, "the batch was not taken: {error}"),
        }
    }
}

impl std::error::Error for AppendError {}

/// A store's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreError {
    /// What can be done about it.
    pub kind: StoreErrorKind,
    /// What went wrong and where, and what to do.
    pub message: String,
}

impl StoreError {
    /// A failure of a kind.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// There is no such session.
    pub fn not_found(session: &SessionId) -> Self {
        Self::new(StoreErrorKind::NotFound, format!("there is no session `{session}`"))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for StoreError {}

/// The kinds of a store's failure, by what can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// There is no such session.
    NotFound,
    /// There is a session of that id already.
    Exists,
    /// A live worker owns the session.
    InUse,
    /// The store cannot be reached or is out of space; trying again may help.
    Unavailable,
    /// What is stored does not read; trying again does not help.
    Corrupt,
    /// A newer version has written the store.
    Newer,
    /// The store may not be written to.
    ReadOnly,
}

/// Why an input was not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdmitError {
    /// The key was used before, for other content.
    KeyConflict {
        /// The input that has the key.
        input: InputId,
    },
    /// The store failed; the input may or may not be admitted: admitting it again under the same key is safe.
    Store(StoreError),
}

impl fmt::Display for AdmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyConflict { input } => write!(f, "the key belongs to input {input}, which says something else"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AdmitError {}

impl From<StoreError> for AdmitError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What became of an input that was handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "whoever admits must know which it was")]
pub enum Admitted {
    /// It is new and pending.
    New(InputId, Arrival),
    /// It was admitted before under the same key.
    Again(InputId),
    /// It was an interrupt of an execution that is not running.
    Dropped,
}

/// Why a session was not claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// Another worker's lease on it has not run out.
    Owned {
        /// The worker.
        worker: WorkerId,
        /// When its lease runs out, by the store's clock.
        until: Timestamp,
    },
    /// The store failed.
    Store(StoreError),
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owned { worker, .. } => write!(f, "worker {worker} owns the session"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ClaimError {}

impl From<StoreError> for ClaimError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A session that a worker has claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claimed {
    /// The right to append.
    pub fence: Fence,
    /// The log's head.
    pub head: Seq,
    /// What the session waits for.
    pub state: SessionState,
}

impl Claimed {
    /// A claim as a store answers it.
    pub fn new(fence: Fence, head: Seq, state: SessionState) -> Self {
        Self { fence, head, state }
    }
}

/// A session that is to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewSession {
    /// Its first events.
    pub rows: Vec<NewRow>,
    /// What it can be found by.
    pub tags: BTreeMap<String, String>,
}

impl NewSession {
    /// A session with its first events and its tags.
    pub fn new(rows: Vec<NewRow>, tags: BTreeMap<String, String>) -> Self {
        Self { rows, tags }
    }
}

/// A session's row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The session.
    pub session: SessionId,
    /// The log's head.
    pub head: Seq,
    /// What it waits for.
    pub state: SessionState,
    /// The worker whose lease on it has not run out.
    pub owner: Option<WorkerId>,
    /// What it can be found by.
    pub tags: BTreeMap<String, String>,
    /// When its first event happened.
    pub created: Timestamp,
    /// When its last event happened.
    pub updated: Timestamp,
}

impl SessionInfo {
    /// A row as a store keeps it.
    pub fn new(session: SessionId, head: Seq, state: SessionState) -> Self {
        Self {
            session,
            head,
            state,
            owner: None,
            tags: BTreeMap::new(),
            created: Timestamp::default(),
            updated: Timestamp::default(),
        }
    }
}

/// Which sessions are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// Only those with this tag.
    pub tag: Option<(String, String)>,
    /// Only those that wait for this kind of thing.
    pub state: Option<StateFilter>,
    /// Only those whose id comes after this one.
    pub after: Option<SessionId>,
    /// At most so many; 0 means the store's own limit.
    pub limit: usize,
}

impl Query {
    /// All sessions, up to a limit.
    pub fn all(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }
}

/// The kinds of state that sessions can be listed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateFilter {
    /// There is work: runnable, or due at a moment.
    Busy,
    /// A person's answer is waited for.
    Waiting,
    /// Neither: idle or held.
    Quiet,
}

impl StateFilter {
    /// Whether a state is of this kind.
    pub fn matches(self, next: &Next) -> bool {
        let kind = match next {
            Next::Runnable | Next::At(_) => Self::Busy,
            Next::Waiting(_) => Self::Waiting,
            Next::Held | Next::Idle => Self::Quiet,
        };
        kind == self
    }
}

/// A page of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The sessions.
    pub sessions: Vec<SessionInfo>,
    /// Where the next page begins; `None` at the end.
    pub after: Option<SessionId>,
}

impl Page {
    /// A page and where the next one begins.
    pub fn new(sessions: Vec<SessionInfo>, after: Option<SessionId>) -> Self {
        Self { sessions, after }
    }
}

/// A place for history caches: optional, beside the four contracts.
///
/// With one, a runner opens a session from its last kept fold and the events behind it; without, from its first event.
///
/// # Contract
///
/// - What is kept is never the truth: a cache may lose or delete anything at any time, and that changes nothing but time.
/// - [`keep`](Self::keep) replaces what was kept of the session before, whole or not at all.
/// - What is kept of a session that is erased goes with it.
#[async_trait]
pub trait FoldCache: Send + Sync {
    /// What is kept of a session; `None` where there is nothing, or no such session.
    ///
    /// *May fail*; the session's log is then folded from its beginning.
    async fn kept(&self, session: &SessionId) -> Result<Option<CachedFold>, StoreError>;

    /// Keeps a session's fold.
    ///
    /// *May fail*, and may lose it later: nobody waits for it to be durable.
    /// *Cancelling* leaves the one before, or this one.
    async fn keep(&self, session: &SessionId, fold: CachedFold) -> Result<(), StoreError>;
}

/// Every trait of this module can be a trait object: this compiles only while that is so.
#[expect(dead_code, reason = "it is checked by being compiled")]
fn object_safe(_: &dyn FoldCache, _: &dyn EventLog, _: &dyn Inbox, _: &dyn Ownership, _: &dyn Catalog, _: &dyn Store) {}

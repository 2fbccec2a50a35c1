//! What a store of sessions implements: four small contracts.
//!
//! [`EventLog`] and [`Inbox`] are spanned by one transaction: a [`Batch`] appends events and takes input, all or nothing.
//! The ledger defines these traits and never calls them; the runner does.
//!
//! # Rules for all four
//!
//! 1. Only the owner of a session appends to its log; from outside comes only the inbox.
//! 2. What was answered is durable, to the store's promise.
//! 3. Any future may be dropped at any await: the effect has then happened, or has not, or happens later; nothing is half done.
//! 4. Any number of tasks may call at once.
//!
//! The reference implementation is `settled-store-memory`; the conformance suite in `settled-testkit` checks every sentence here that says what a method answers.

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
    /// - It lands only if the fence's epoch is the session's present one, its worker the owner, and `expected` the head.
    /// - In the same transaction the batch's taken input leaves the inbox and the session takes its new state.
    /// - A batch whose id is that of the last batch that landed answers `Ok` with the head again, and changes nothing: so `Unknown` is resolved.
    /// - A batch that takes an input which is not in the inbox any more is a `Conflict`.
    /// - *Cancelling*: as after [`AppendError::Unknown`].
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError>;

    /// Reads up to `limit` events after a place, in order; fewer only at the head.
    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError>;

    /// Follows the log from a place: replays, says once that it is synced, then gives what is appended, without gap or double.
    ///
    /// A reader that is slow slows nobody down: the store reads again from the log when it comes back.
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
    /// Admits an input; durable when it answers.
    ///
    /// - The same key with the same content is the input admitted before, whether it is pending, promoted or cancelled.
    /// - The same key with other content is [`AdmitError::KeyConflict`].
    /// - It wakes the session as [`SessionState::after_admit`] says.
    /// - An interrupt of an execution that is not the session's present one is [`Admitted::Dropped`] and leaves nothing.
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError>;

    /// Takes a pending input back; `false` if it is not pending any more.
    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError>;

    /// Changes when a pending prompt or notice is delivered; `false` if it is not pending any more, or is neither.
    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError>;

    /// All pending input, in order of arrival.
    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError>;

    /// Says which sessions may have new input or may have become due.
    ///
    /// Hints may be lost, doubled or late: whoever listens must poll as well.
    fn hints(&self) -> HintStream;
}

/// The stream of [`Inbox::hints`].
pub type HintStream = Pin<Box<dyn Stream<Item = SessionId> + Send>>;

/// Who may append: one lease for each worker, one epoch for each session.
#[async_trait]
pub trait Ownership: Send + Sync {
    /// Makes a session with its first events.
    ///
    /// *Fails* with [`StoreErrorKind::Exists`] if there is one of that id.
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError>;

    /// Takes a session for a worker whose lease runs from now; its epoch grows by one.
    ///
    /// - The worker's own session may be claimed anew: its older fence is then stale.
    /// - *Fails* with [`ClaimError::Owned`] while another worker's lease on it has not run out.
    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError>;

    /// Makes a worker's lease run from now, for all its sessions at once.
    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError>;

    /// Gives a session up, if the fence is still its own; otherwise nothing happens.
    async fn release(&self, fence: &Fence) -> Result<(), StoreError>;

    /// Sessions that are due (runnable, or their time has come) and that no live worker owns, longest due first.
    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError>;
}

/// Finding sessions, and erasing them.
#[async_trait]
pub trait Catalog: Send + Sync {
    /// One session's row.
    ///
    /// *Fails* with [`StoreErrorKind::NotFound`].
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError>;

    /// Sessions in the order of their ids, from a cursor.
    async fn list(&self, query: &Query) -> Result<Page, StoreError>;

    /// Erases a session: its log, its inbox, its keys.
    ///
    /// *Fails* with [`StoreErrorKind::InUse`] while a worker's lease on it has not run out.
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
    /// What it waits for next.
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

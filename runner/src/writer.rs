//! The session's writer: everything durable goes through it, in order.
//!
//! It is driven by the drain that owns it, so there is no task, no channel and no lock.
//! Pushing never waits; what was pushed is appended in one batch when something must be durable, or when the drain is about to wait.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use settled_ledger::store::{AppendError, Batch, Fence, Next, SessionState, Store, StoreError};
use settled_ledger::{BatchId, Clock, Event, Ids, InputId, NewRow, Seq, StepError};
use tokio::time::{Sleep, sleep};

/// The most rows that one batch takes.
const MAX_ROWS: usize = 512;

/// How long to wait before asking again what became of a batch.
const UNKNOWN_PAUSE: Duration = Duration::from_millis(50);

/// How often to ask; the lease ends it sooner where it is shorter.
const UNKNOWN_TRIES: u32 = 100;

/// A place in the order of what was pushed.
pub(crate) type Mark = u64;

pub(crate) struct Writer {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    fence: Fence,
    /// The head, as far as it is known to be durable.
    head: Seq,
    queue: VecDeque<Unit>,
    pushed: Mark,
    durable: Mark,
    /// Up to here it must be appended.
    wanted: Mark,
    /// How many rows are not durable.
    waiting_rows: usize,
    append: Option<Append>,
    refused: bool,
    lost: Option<Lost>,
}

/// What is pushed at once; it is never split over batches.
struct Unit {
    rows: Vec<NewRow>,
    taken: Vec<InputId>,
    state: Option<SessionState>,
    mark: Mark,
}

/// A batch on its way.
struct Append {
    batch: Batch,
    /// The units in it, without their rows.
    marks: Vec<Mark>,
    rows: usize,
    /// Where its last unit puts the session to sleep and may be refused: how many rows and inputs come before that unit.
    prefix: Option<(usize, usize)>,
    /// Whether that unit was refused, and only what comes before it is on its way.
    refused: bool,
    tries: u32,
    stage: AppendStage,
}

enum AppendStage {
    Sending(Pin<Box<dyn Future<Output = Result<Seq, AppendError>> + Send>>),
    Pausing(Pin<Box<Sleep>>),
}

/// Why a drain can append no more: it must be left without a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Another claim has come since.
    Fenced,
    /// The worker's lease may have run out.
    Lease,
    /// The store cannot take it, or nobody knows whether it has.
    Store(StoreError),
    /// The log is not what this drain has seen.
    Diverged(Seq),
    /// An event has no JSON form.
    Unencodable(String),
    /// What the session needs is not known here any more.
    Misconfigured(StepError),
    /// The runner shuts down, and its grace is over.
    Stopped,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fenced => f.write_str("another worker owns the session now"),
            Self::Lease => f.write_str("the worker's lease was not renewed in time"),
            Self::Store(error) => write!(f, "the log is lost: {error}"),
            Self::Diverged(head) => write!(f, "the log's head is {head}, which this worker has not written"),
            Self::Unencodable(why) => f.write_str(why),
            Self::Misconfigured(error) => error.fmt(f),
            Self::Stopped => f.write_str("the runner was shut down"),
        }
    }
}

/// What became of a unit that puts the session to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Landed,
    /// Input is pending that the session should see; everything before the unit has landed.
    Refused,
}

impl Writer {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
        fence: Fence,
        head: Seq,
    ) -> Self {
        Self {
            store,
            clock,
            ids,
            fence,
            head,
            queue: VecDeque::new(),
            pushed: 0,
            durable: 0,
            wanted: 0,
            waiting_rows: 0,
            append: None,
            refused: false,
            lost: None,
        }
    }

    /// Takes events, and inputs that leave the inbox with them.
    pub(crate) fn push(&mut self, events: &[Event], taken: Vec<InputId>, state: Option<SessionState>) -> Mark {
        let at = self.clock.now();
        let mut rows = Vec::with_capacity(events.len());
        for event in events {
            match NewRow::encode(event, at) {
                Ok(row) => {
                    debug_assert!(
                        row.clone().placed(self.fence.session.clone(), self.head).event().as_ref() == Ok(event),
                        "what is written is not what is read: {event:?} became {}",
                        row.body
                    );
                    rows.push(row);
                }
                Err(error) => self.lost = self.lost.take().or_else(|| Some(Lost::Unencodable(error.to_string()))),
            }
        }
        self.pushed += 1;
        self.waiting_rows += rows.len();
        self.queue.push_back(Unit { rows, taken, state, mark: self.pushed });
        self.pushed
    }

    /// Asks for everything pushed so far to be appended.
    pub(crate) fn flush(&mut self) {
        self.wanted = self.pushed;
    }

    /// Whether something was pushed that nobody has asked to be appended.
    pub(crate) fn is_lazy(&self) -> bool {
        self.wanted < self.pushed
    }

    /// How many rows are not durable.
    pub(crate) fn backlog(&self) -> usize {
        self.waiting_rows
    }

    /// Whether everything up to a mark is durable.
    pub(crate) fn is_durable(&self, mark: Mark) -> bool {
        self.durable >= mark
    }

    /// The place of what was pushed last.
    pub(crate) fn mark(&self) -> Mark {
        self.pushed
    }

    pub(crate) fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }

    /// Waits until everything pushed so far is durable.
    pub(crate) async fn settle(&mut self) -> Result<Written, Lost> {
        self.flush();
        let mark = self.pushed;
        self.refused = false;
        poll_fn(|context| {
            loop {
                if let Some(lost) = &self.lost {
                    return Poll::Ready(Err(lost.clone()));
                }
                if self.refused {
                    self.refused = false;
                    return Poll::Ready(Ok(Written::Refused));
                }
                if self.is_durable(mark) {
                    return Poll::Ready(Ok(Written::Landed));
                }
                if self.poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Sends what is wanted, and drives it; ready when something has become durable, was refused, or is lost.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.lost.is_none() && self.append.is_none() && self.wanted > self.durable {
                self.compose();
            }
            match self.poll_sent(context) {
                Poll::Ready(()) => return Poll::Ready(()),
                // A batch that had to be composed anew may be on its way already.
                Poll::Pending if self.lost.is_none() && self.append.is_none() && self.wanted > self.durable => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Drives what is on its way, and sends nothing new: what is pushed in the meantime shares the next batch.
    pub(crate) fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.lost.is_some() {
                return Poll::Pending;
            }
            let Some(append) = &mut self.append else { return Poll::Pending };
            let answer = match &mut append.stage {
                AppendStage::Sending(sending) => match sending.as_mut().poll(context) {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => return Poll::Pending,
                },
                AppendStage::Pausing(pause) => match pause.as_mut().poll(context) {
                    Poll::Ready(()) => {
                        append.stage = send(&self.store, &self.fence, self.head, &append.batch);
                        continue;
                    }
                    Poll::Pending => return Poll::Pending,
                },
            };
            if self.answered(answer) {
                return Poll::Ready(());
            }
        }
    }

    /// Puts a batch together from what is wanted, and sends it.
    fn compose(&mut self) {
        let mut batch = Batch::new(BatchId::from_u128(self.ids.next()), Vec::new());
        let mut marks = Vec::new();
        let mut prefix = None;
        while let Some(unit) = self.queue.front() {
            let full = !batch.rows.is_empty() && batch.rows.len() + unit.rows.len() > MAX_ROWS;
            if prefix.is_some() || full || unit.mark > self.wanted {
                break;
            }
            let Some(unit) = self.queue.pop_front() else { break };
            if unit.state.as_ref().is_some_and(|state| matches!(state.next, Next::Idle | Next::Waiting(_))) {
                prefix = Some((batch.rows.len(), batch.taken.len()));
            }
            batch.rows.extend(unit.rows);
            batch.taken.extend(unit.taken);
            batch.state = unit.state.or(batch.state);
            marks.push(unit.mark);
        }
        if marks.is_empty() {
            return;
        }
        let rows = batch.rows.len();
        let stage = send(&self.store, &self.fence, self.head, &batch);
        self.append = Some(Append { batch, marks, rows, prefix, refused: false, tries: 0, stage });
    }

    /// Acts on the store's answer; `true` if whoever waits should look.
    fn answered(&mut self, answer: Result<Seq, AppendError>) -> bool {
        // A refusal is handled here and sent again, so the loop above must look again: `false`.
        let Some(mut append) = self.append.take() else { return false };
        match answer {
            Ok(head) => self.landed(&append, head),
            // The answer to an earlier try was lost, and it had landed.
            Err(AppendError::Conflict { head, batch }) if batch == Some(append.batch.id) => self.landed(&append, head),
            Err(AppendError::Conflict { head, .. }) => self.lost = Some(Lost::Diverged(head)),
            Err(AppendError::Fenced) => self.lost = Some(Lost::Fenced),
            Err(AppendError::Busy) if append.prefix.is_some() => {
                let (rows, taken) = append.prefix.unwrap_or_default();
                // Nothing has landed: what comes before the unit that was refused goes again, under a new id.
                append.prefix = None;
                append.refused = true;
                append.batch.id = BatchId::from_u128(self.ids.next());
                append.batch.rows.truncate(rows);
                append.batch.taken.truncate(taken);
                append.batch.state = None;
                if rows == 0 && taken == 0 {
                    self.landed(&append, self.head);
                } else {
                    append.stage = send(&self.store, &self.fence, self.head, &append.batch);
                    self.append = Some(append);
                    return false;
                }
            }
            Err(AppendError::Unknown(error)) => {
                append.tries += 1;
                if append.tries > UNKNOWN_TRIES {
                    self.lost = Some(Lost::Store(error));
                } else {
                    append.stage = AppendStage::Pausing(Box::pin(sleep(UNKNOWN_PAUSE)));
                    self.append = Some(append);
                    return false;
                }
            }
            Err(AppendError::Unavailable(error)) => self.lost = Some(Lost::Store(error)),
            Err(other) => {
                let kind = settled_ledger::store::StoreErrorKind::Unavailable;
                self.lost = Some(Lost::Store(StoreError::new(kind, other.to_string())));
            }
        }
        true
    }

    fn landed(&mut self, append: &Append, head: Seq) {
        self.head = head;
        self.waiting_rows -= append.rows;
        self.durable = append.marks.last().copied().unwrap_or(self.durable);
        self.refused |= append.refused;
    }
}

fn send(store: &Arc<dyn Store>, fence: &Fence, head: Seq, batch: &Batch) -> AppendStage {
    let (store, fence, batch) = (Arc::clone(store), fence.clone(), batch.clone());
    AppendStage::Sending(Box::pin(async move { store.append(&fence, head, batch).await }))
}

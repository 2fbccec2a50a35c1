//! What a case works with: the handles, a clock, ids, and short ways to say what is done and what must be seen.

use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_core::Stream;
use settled_ledger::store::{
    AppendError, Batch, Claimed, Fence, Followed, NewSession, Next, RecordedStream, SessionState, Store, StoreError,
    StoreErrorKind,
};
use settled_ledger::{
    AnswerKind, BatchId, Clock, Delivery, ExecutionId, InputId, Interrupt, InterruptedBy, NewInput, NewInputKind,
    NewRow, Prompt, Recorded, Seq, Timestamp, WorkerId,
};
use settled_tools_api::{CallKey, Content, EffectKey, MessageId, SessionId};

pub(super) use super::super::suite::{Checked, Details, all, same};
use super::{Handles, ManualClock, StoreFixture};

/// The worker that owns what a case works on, unless the case says otherwise.
pub(super) const WORKER: WorkerId = WorkerId::from_u128(0xa);
/// Another worker.
pub(super) const OTHER: WorkerId = WorkerId::from_u128(0xb);
/// How long a lease runs, unless the case says otherwise.
pub(super) const LEASE: Duration = Duration::from_secs(15);
/// The execution that is open, where one is.
pub(super) const EXECUTION: ExecutionId = ExecutionId::from_u128(0xe);
/// The shortest time there is.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// Holds a failure's kind against what should have been.
pub(super) fn fails<T: Debug>(what: &str, seen: Result<T, StoreError>, kind: StoreErrorKind) -> Checked {
    same(what, seen.map(|_| ()).map_err(|error| error.kind), Err(kind))
}

/// A case's subject and what it says to it.
pub(super) struct Bench {
    handles: Handles,
    pub(super) clock: ManualClock,
    ids: AtomicU64,
}

/// A session that [`WORKER`] owns.
pub(super) struct Owned<'a> {
    bench: &'a Bench,
    pub(super) session: SessionId,
    pub(super) fence: Fence,
    pub(super) head: Seq,
}

impl Bench {
    pub(super) async fn open(fixture: &dyn StoreFixture) -> Result<Self, String> {
        let clock = ManualClock::at(Timestamp::from_millis(1_700_000_000_000));
        let handles = fixture.open(Arc::new(clock.clone())).await?;
        Ok(Self { handles, clock, ids: AtomicU64::new(1) })
    }

    /// The owner's handle.
    pub(super) fn here(&self) -> &dyn Store {
        &*self.handles.here
    }

    /// Everybody else's handle.
    pub(super) fn there(&self) -> &dyn Store {
        &*self.handles.there
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn id(&self) -> u128 {
        self.ids.fetch_add(1, Ordering::Relaxed).into()
    }

    pub(super) fn batch_id(&self) -> BatchId {
        BatchId::from_u128(self.id())
    }

    /// This many rows, no two the same.
    pub(super) fn rows(&self, count: usize) -> Vec<NewRow> {
        let row = |_| {
            let body = format!(r#"{{"reason":"restart","text":"Row {}."}}"#, self.id());
            NewRow::from_parts(self.now(), "synthetic".to_owned(), 1, body)
        };
        (0..count).map(row).collect()
    }

    /// A batch of this many rows.
    pub(super) fn batch(&self, rows: usize) -> Batch {
        Batch::new(self.batch_id(), self.rows(rows))
    }

    /// A batch without rows that brings a state.
    pub(super) fn turning(&self, next: Next, execution: Option<ExecutionId>) -> Batch {
        let mut batch = self.batch(0);
        batch.state = Some(SessionState::new(next, execution));
        batch
    }

    pub(super) fn input(&self, kind: NewInputKind) -> NewInput {
        NewInput::new(InputId::from_u128(self.id()), self.now(), kind)
    }

    pub(super) fn prompt(&self, text: &str) -> NewInput {
        self.input(prompt(text, Delivery::Queue))
    }

    /// Makes a session without events.
    pub(super) async fn created(&self, name: &str) -> Result<SessionId, Details> {
        let session = SessionId::new(name)?;
        self.here().create(&session, NewSession::default()).await?;
        Ok(session)
    }

    /// Makes a session without events and claims it.
    pub(super) async fn owned(&self, name: &str) -> Result<Owned<'_>, Details> {
        let session = self.created(name).await?;
        let Claimed { fence, head, .. } = self.here().claim(WORKER, LEASE, &session).await?;
        Ok(Owned { bench: self, session, fence, head })
    }

    /// Makes sessions and lets them wait for something, unowned.
    pub(super) async fn waiting_for(&self, name: &str, next: Next) -> Result<SessionId, Details> {
        let mut owned = self.owned(name).await?;
        owned.turn(next).await?;
        self.here().release(&owned.fence).await?;
        Ok(owned.session)
    }

    /// What a session waits for, as others see it.
    pub(super) async fn next(&self, session: &SessionId) -> Result<Next, Details> {
        Ok(self.there().info(session).await?.state.next)
    }

    /// What is pending, as others see it.
    pub(super) async fn pending(&self, session: &SessionId) -> Result<Vec<InputId>, Details> {
        let pending = self.there().pending(session).await?;
        Ok(pending.into_iter().map(|item| item.id).collect())
    }

    /// The whole log, as others see it.
    pub(super) async fn log(&self, session: &SessionId) -> Result<Vec<Recorded>, Details> {
        Ok(self.there().read(session, Seq::START, usize::MAX).await?)
    }
}

impl Owned<'_> {
    pub(super) async fn append(&self, batch: Batch) -> Result<Seq, AppendError> {
        self.bench.here().append(&self.fence, self.head, batch).await
    }

    /// Appends this many rows, and answers what the log has for them.
    pub(super) async fn push(&mut self, rows: usize) -> Result<Vec<Recorded>, Details> {
        let batch = self.bench.batch(rows);
        let placed = placed(&self.session, self.head, batch.rows.clone());
        self.head = self.append(batch).await?;
        Ok(placed)
    }

    /// Lets the session wait for something, with [`EXECUTION`] open.
    pub(super) async fn turn(&mut self, next: Next) -> Checked {
        self.head = self.append(self.bench.turning(next, Some(EXECUTION))).await?;
        Ok(())
    }

    /// Holds the session against what it must be where nothing has changed: its log, its inbox, its state.
    pub(super) async fn untouched(&self, log: &[Recorded], pending: &[InputId], next: &Next) -> Checked {
        same("the log", self.bench.log(&self.session).await?.as_slice(), log)?;
        same("the inbox", self.bench.pending(&self.session).await?.as_slice(), pending)?;
        same("what it waits for", &self.bench.next(&self.session).await?, next)
    }
}

/// Rows at their places behind a head.
pub(super) fn placed(session: &SessionId, after: Seq, rows: Vec<NewRow>) -> Vec<Recorded> {
    let places = (1..).map(|place| after.plus(place));
    rows.into_iter().zip(places).map(|(row, seq)| row.placed(session.clone(), seq)).collect()
}

/// A state with no execution open.
pub(super) fn at_rest(next: Next) -> SessionState {
    SessionState::new(next, None)
}

pub(super) fn prompt(text: &str, delivery: Delivery) -> NewInputKind {
    NewInputKind::Prompt(Prompt::new(vec![Content::text(text)], delivery))
}

pub(super) fn interrupt(execution: ExecutionId) -> NewInputKind {
    NewInputKind::Interrupt(Interrupt::new(execution, InterruptedBy::User))
}

/// A call, by its ordinal.
pub(super) fn call(ordinal: u32) -> CallKey {
    CallKey { step: MessageId::from_u128(7), ordinal }
}

/// A person's answer to a call.
pub(super) fn answer(ordinal: u32) -> Result<NewInputKind, Details> {
    let answer =
        settled_ledger::Answer::new(call(ordinal), EffectKey::new("effect")?, "hash".to_owned(), AnswerKind::Approved);
    Ok(NewInputKind::Answer(answer))
}

/// The next item of a stream; a stream that has ended is a breach.
pub(super) async fn next<S: Stream + Unpin + ?Sized>(stream: &mut S) -> Result<S::Item, Details> {
    let item = poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await;
    item.ok_or_else(|| Details::Broken("the stream has ended".to_owned()))
}

/// Whether a stream has ended.
pub(super) async fn ended<S: Stream + Unpin + ?Sized>(stream: &mut S) -> bool {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await.is_none()
}

/// Holds the next items of a followed log against what should come.
pub(super) async fn follows(stream: &mut RecordedStream, events: &[Recorded]) -> Checked {
    for event in events {
        same("the next item", next(stream).await??, Followed::Event(event.clone()))?;
    }
    Ok(())
}

/// Holds the next item of a followed log against the marker.
pub(super) async fn syncs(stream: &mut RecordedStream, head: Seq) -> Checked {
    same("the marker", next(stream).await??, Followed::Synced(head))
}

//! The writer: one thread, one transaction for all that waits.
//!
//! Calls come over a channel.
//! The writer takes the first, begins a transaction, runs it and all that has come in the meantime, commits once, and answers them all.
//! Where the transaction fails, it is rolled back and its calls are run again one by one, so that each fails only for itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, Sender, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use rusqlite::Connection;
use settled_ledger::Clock;
use settled_ledger::store::StoreError;

use crate::answer::Answer;
use crate::checkpoint::Gate;
use crate::error::{Fault, closed};
use crate::flight::Flight;
use crate::read::session_id;
use crate::schema::Identity;
use crate::wait::Jitter;
use crate::watch::Watch;
use crate::write::{Done, Memory, News, Tx};

/// What is sent to the writer.
pub(crate) enum Message {
    /// Something to write.
    Call(Box<dyn Call>),
    /// Somebody listens now: look for what other processes write.
    Watched,
}

/// Something to write, and somebody to answer.
pub(crate) trait Call: Send {
    /// Does it; it may be done again after a transaction that failed.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), Fault>;
    /// Since when it waits.
    fn since(&self) -> Instant;
    /// Answers whoever asked.
    fn answer(self: Box<Self>, end: Result<(), Lost>);
}

/// Why a call has no answer of its own.
#[derive(Clone, Debug)]
pub(crate) enum Lost {
    /// Nothing of it was written.
    Refused(StoreError),
    /// It may have been written, or not.
    Unknown(StoreError),
}

impl Lost {
    pub(crate) fn error(self) -> StoreError {
        match self {
            Self::Refused(error) | Self::Unknown(error) => error,
        }
    }
}

/// How calls are put together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouping {
    /// At most so many calls in a transaction.
    pub(crate) most: usize,
    /// How long it is waited for one more call that is expected.
    pub(crate) gather: Duration,
}

/// What the writer has done so far.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) commits: AtomicU64,
    pub(crate) calls: AtomicU64,
    pub(crate) rows: AtomicU64,
}

/// The handles' end of the writer's channel.
#[derive(Debug)]
pub(crate) struct ToWriter {
    calls: Sender<Message>,
    file: Arc<Path>,
}

impl ToWriter {
    pub(crate) fn new(calls: Sender<Message>, file: Arc<Path>) -> Self {
        Self { calls, file }
    }

    /// Has something written; what is answered is durable.
    pub(crate) fn call<T, F>(&self, flight: Flight, work: F) -> Answer<Result<T, Lost>>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        // The writer answers everything that it takes; if it is gone, what it had in hand may have been committed.
        let gone = |file: &Path| Err(Lost::Unknown(closed(file)));
        let (reply, answer) = Answer::new(&self.file, flight.clone(), gone);
        let work = Work { work, done: None, reply, since: Instant::now(), flight };
        if let Err(SendError(Message::Call(work))) = self.calls.send(Message::Call(Box::new(work))) {
            work.answer(Err(Lost::Refused(closed(&self.file))));
        }
        answer
    }

    /// Says that somebody listens.
    pub(crate) fn watched(&self) {
        // A writer that is gone has nothing to tell.
        let _ = self.calls.send(Message::Watched);
    }
}

struct Work<T, F> {
    work: F,
    done: Option<T>,
    reply: oneshot::Sender<Result<T, Lost>>,
    since: Instant,
    flight: Flight,
}

impl<T, F> Call for Work<T, F>
where
    T: Send,
    F: FnMut(&mut Tx<'_>) -> Result<T, Fault> + Send,
{
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), Fault> {
        self.done = Some((self.work)(tx)?);
        Ok(())
    }

    fn since(&self) -> Instant {
        self.since
    }

    fn answer(self: Box<Self>, end: Result<(), Lost>) {
        let Self { done, reply, flight, .. } = *self;
        // Whoever still asks has another, until the answer is seen.
        drop(flight);
        let answer = match (end, done) {
            (Ok(()), Some(done)) => Ok(done),
            (Ok(()), None) => return,
            (Err(lost), _) => Err(lost),
        };
        // Whoever asked may have gone away.
        let _ = reply.send(answer);
    }
}

/// The writer's thread.
pub(crate) struct Writer {
    pub(crate) db: Connection,
    pub(crate) identity: Identity,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) calls: Receiver<Message>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) grouping: Grouping,
    pub(crate) busy: Duration,
    pub(crate) poll: Duration,
    pub(crate) memory: Memory,
    /// The file's data version when it was last looked at; another one means that another connection has written.
    pub(crate) version: i64,
    /// The rows of `events` and `inbox` up to which others' writing is known.
    pub(crate) seen: (i64, i64),
    /// How many calls the last transaction had: so many are expected again.
    pub(crate) last: usize,
}

impl Writer {
    /// Serves until the last handle is gone.
    pub(crate) fn run(mut self) {
        loop {
            let message = if self.watch.is_watched() {
                match self.calls.recv_timeout(self.poll) {
                    Ok(message) => message,
                    Err(RecvTimeoutError::Timeout) => {
                        // What cannot be read now is looked for again in a moment.
                        let _ = execute(&self.db, "BEGIN").map_err(Fault::from).and_then(|()| self.look());
                        if execute(&self.db, "COMMIT").is_err() {
                            self.roll_back();
                        }
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            } else {
                match self.calls.recv() {
                    Ok(message) => message,
                    Err(_) => return,
                }
            };
            if let Message::Call(call) = message {
                self.settle(vec![call], Company::Welcome);
            }
        }
    }

    /// Commits calls and answers them all: in one transaction where that goes well, else one by one.
    ///
    /// While another process is in the way they wait; whoever has waited for long enough is told so.
    fn settle(&mut self, mut calls: Vec<Box<dyn Call>>, company: Company) {
        let mut jitter = Jitter::new();
        while !calls.is_empty() {
            match self.commit(&mut calls, company) {
                Err(Failed::Before(fault)) if fault.is_busy() => {
                    // They are in the order in which they came.
                    let patient = calls.iter().position(|call| call.since().elapsed() < self.busy);
                    let rest = calls.split_off(patient.unwrap_or(calls.len()));
                    self.answer(calls, Err(Failed::Before(fault)));
                    calls = rest;
                    thread::sleep(jitter.next());
                }
                Err(Failed::Before(_)) if calls.len() > 1 => {
                    for call in std::mem::take(&mut calls) {
                        self.settle(vec![call], Company::None);
                    }
                }
                end => self.answer(std::mem::take(&mut calls), end),
            }
        }
    }

    /// Runs calls in one transaction, and commits it.
    fn commit(&mut self, calls: &mut Vec<Box<dyn Call>>, company: Company) -> Result<(), Failed> {
        self.begin()?;
        let before = self.db.total_changes();
        match self.run_all(calls, company) {
            Ok(done) => {
                if let Err(error) = execute(&self.db, "COMMIT") {
                    self.roll_back();
                    return Err(Failed::AtCommit(error.into()));
                }
                self.last = calls.len();
                self.counts.calls.fetch_add(calls.len() as u64, Ordering::Relaxed);
                self.counts.rows.fetch_add(done.rows, Ordering::Relaxed);
                if self.db.total_changes() != before {
                    self.counts.commits.fetch_add(1, Ordering::Relaxed);
                }
                self.seen.0 = done.last_event.unwrap_or(self.seen.0);
                self.seen.1 = done.last_input.unwrap_or(self.seen.1);
                self.watch.tell(&done.news);
                Ok(())
            }
            Err(fault) => {
                self.roll_back();
                Err(Failed::Before(fault))
            }
        }
    }

    /// Begins a transaction that may write.
    fn begin(&mut self) -> Result<(), Failed> {
        self.identity.check().map_err(Failed::Before)?;
        self.gate.let_pass();
        execute(&self.db, "BEGIN IMMEDIATE").map_err(|error| Failed::Before(error.into()))?;
        self.look().map_err(|fault| {
            self.roll_back();
            Failed::Before(fault)
        })
    }

    /// Runs calls, and those that come meanwhile.
    ///
    /// Sessions that append one batch after another come back right after they were answered.
    /// So as many calls as the last time are expected, and those that are late are waited for for a moment: without it the first to come back would be committed alone.
    fn run_all(&mut self, calls: &mut Vec<Box<dyn Call>>, company: Company) -> Result<Done, Fault> {
        let mut tx = Tx::new(&self.db, &*self.clock, &mut self.memory)?;
        let (mut next, mut idle) = (0, None);
        loop {
            while let Some(call) = calls.get_mut(next) {
                call.run(&mut tx)?;
                (next, idle) = (next + 1, None);
            }
            if company == Company::None || next >= self.grouping.most {
                break;
            }
            match self.calls.try_recv() {
                Ok(Message::Call(call)) => calls.push(call),
                Ok(Message::Watched) => {}
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) if next >= self.last => break,
                Err(TryRecvError::Empty) => {
                    if idle.get_or_insert_with(Instant::now).elapsed() >= self.grouping.gather {
                        break;
                    }
                    thread::yield_now();
                }
            }
        }
        Ok(tx.done())
    }

    fn roll_back(&mut self) {
        self.memory.forget();
        // SQLite may have rolled it back already; the failure that counts came before.
        let _ = execute(&self.db, "ROLLBACK");
    }

    fn answer(&self, calls: Vec<Box<dyn Call>>, end: Result<(), Failed>) {
        let end = end.map_err(|failed| match failed {
            Failed::Before(fault) => Lost::Refused(fault.named(self.identity.file())),
            Failed::AtCommit(fault) => Lost::Unknown(fault.named(self.identity.file())),
        });
        for call in calls {
            call.answer(end.clone());
        }
    }

    /// Looks whether another connection has written: what is kept in mind is then old, and who listens is told.
    ///
    /// It is done in a transaction: what is committed between its queries would count as seen, and nobody would be told.
    fn look(&mut self) -> Result<(), Fault> {
        let version = self.db.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))?;
        if version == self.version {
            return Ok(());
        }
        self.memory.forget();
        if self.watch.is_watched() {
            self.watch.tell(&self.news()?);
        }
        self.seen = newest(&self.db)?;
        self.version = version;
        Ok(())
    }

    /// What others have written since it was last looked at.
    fn news(&self) -> Result<Vec<News>, Fault> {
        let mut news = Vec::new();
        let mut logs = self.db.prepare_cached(
            "SELECT DISTINCT sessions.id FROM events LEFT JOIN sessions ON sessions.number = events.session
             WHERE events.id > ?1",
        )?;
        let mut rows = logs.query([self.seen.0])?;
        while let Some(row) = rows.next()? {
            news.push(match row.get::<_, Option<String>>(0)? {
                Some(_) => News::Log(session_id(row, 0)?),
                None => News::Erased,
            });
        }
        let mut hints = self.db.prepare_cached(
            "SELECT DISTINCT sessions.id FROM inbox JOIN sessions ON sessions.number = inbox.session
             WHERE inbox.number > ?1",
        )?;
        let mut rows = hints.query([self.seen.1])?;
        while let Some(row) = rows.next()? {
            news.push(News::Hint(session_id(row, 0)?));
        }
        Ok(news)
    }
}

/// Whether others' calls may join a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    Welcome,
    None,
}

/// Why a transaction's calls have no answers of their own.
enum Failed {
    /// It was rolled back, or has never begun.
    Before(Fault),
    /// The commit failed: whether it is durable is not known.
    AtCommit(Fault),
}

/// Runs a statement that was parsed before.
fn execute(db: &Connection, statement: &str) -> rusqlite::Result<()> {
    db.prepare_cached(statement)?.execute([]).map(drop)
}

/// The newest rows of `events` and `inbox`.
pub(crate) fn newest(db: &Connection) -> Result<(i64, i64), Fault> {
    let newest = "SELECT ifnull((SELECT max(id) FROM events), 0), ifnull((SELECT max(number) FROM inbox), 0)";
    Ok(db.prepare_cached(newest)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

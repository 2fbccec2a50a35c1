//! The embedded default store: sessions in one SQLite file, durable, shared by processes.
//!
//! ```
//! use settled_ledger::store::{Catalog, NewSession, Ownership, Query};
//! use settled_store_sqlite::SqliteStore;
//! use settled_tools_api::SessionId;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("sessions.db");
//! let store = SqliteStore::open(&path)?;
//! store.create(&SessionId::new("s1")?, NewSession::default()).await?;
//! store.close().await;
//!
//! let store = SqliteStore::open(&path)?;
//! assert_eq!(store.list(&Query::all(10)).await?.sessions.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! - **What is answered is durable**: the write-ahead log is synced at every commit (`synchronous = FULL`).
//! - **One commit for all that wait**: one thread writes; calls that come while a commit is under way share the next one.
//!   Calls that refuse to land write nothing; one whose transaction fails does not take the others with it.
//! - **Reading waits for nobody**: readers have connections of their own.
//! - **Checkpoints are made off the writer's thread**, and the write-ahead log stays bounded (a few times 4 MiB, unless a long read holds it).
//! - **Several processes may use one file**, on one machine: leases and epochs go by the store's clock, which has to be the same for all.
//!   A process waits for another's commit up to [`Builder::busy_timeout`]; then the call answers that the store is not available.
//!   What another process has appended or admitted is noticed after at most [`Builder::poll`], and only looked for while somebody listens.
//! - **Failures name the file and say what to do.** A file that was deleted or replaced while it was open, or its write-ahead log, is noticed before the next commit.
//! - **Damage is found, and hurts its own session alone**: every event and every pending input has a checksum, and a log says where it ends.
//!   What does not match is [`StoreErrorKind::Corrupt`](settled_ledger::store::StoreErrorKind::Corrupt), never a shorter log or another text; the other sessions go on.
//!   The rows that only say who a session is and what it waits for have none: a session whose entry there is hurt may not be found.
//! - **A full disk loses nothing**: what was acknowledged is there, what was not is told, and with room again the store goes on where it is.
//!
//! # Runtimes
//!
//! The store has threads of its own and needs no runtime; its futures can be awaited in any.
//! A runtime with a virtual clock does not see those threads, and its clock would jump while a call is under way.
//! [`SqliteStore::in_flight`] counts the calls under way, those included whose futures were dropped; [`Builder::hold`] takes hold of something during each call, such as a blocking task that keeps tokio's paused clock from moving.
//!
//! # Reading the file
//!
//! `sqlite3 sessions.db "SELECT * FROM timeline WHERE session = 's1'"` shows a session's log: `session`, `seq`, `time` (UTC), `event`, `version`, `fields` (JSON).
//! The view is kept from version to version; the tables behind it may change.
//! A new file is readable by its owner alone.

mod builder;

mod follow;

mod write;

mod writer;

mod read;

mod readers;

mod watch;

mod checkpoint;

mod schema;

mod sum;

mod error;

mod flight;

mod answer;

mod wait;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, FoldCache, HintStream,
    Inbox, NewSession, Ownership, Page, Query, RecordedStream, SessionInfo, StoreError,
};
use settled_ledger::{CachedFold, Clock, Delivery, InboxItem, InputId, NewInput, Recorded, Seq, WorkerId};
use settled_tools_api::SessionId;

use crate::answer::Answer;
pub use crate::builder::Builder;
use crate::builder::Threads;
use crate::error::Fault;
use crate::flight::Flights;
use crate::follow::Follow;
use crate::readers::ToReaders;
use crate::watch::Watch;
use crate::write::Tx;
use crate::writer::{Counts, Lost, ToWriter};

/// A store that keeps its sessions in one SQLite file.
///
/// A clone is another handle on the same threads; the file is closed when the last handle and the last followed log are gone.
/// What was under way then is still done: [`close`](Self::close) waits for it.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

/// What all handles and followed logs share.
struct Shared {
    file: Arc<Path>,
    clock: Arc<dyn Clock>,
    writer: ToWriter,
    readers: ToReaders,
    watch: Arc<Watch>,
    flights: Arc<Flights>,
    counts: Arc<Counts>,
    threads: Arc<Threads>,
}

/// What a store has committed since it was opened; exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The transactions that wrote something and were synced.
    pub commits: u64,
    /// The calls that were answered by the writer, those included that wrote nothing.
    pub calls: u64,
    /// The events that were appended.
    pub rows: u64,
}

impl SqliteStore {
    /// Opens a file, and makes it if there is none; with the machine's clock and the settings of [`Builder`].
    ///
    /// It blocks for as long as opening takes: a few milliseconds, more only while another process has the file locked.
    /// *Fails* where the folder is not there, where the file may not be written to, is no database, is damaged, belongs to another application or was written by a newer version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::builder(path).open()
    }

    /// Settings for a store on a file.
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder::new(path.as_ref())
    }

    /// How many calls are under way: from the first poll until the answer is seen, or, where nobody waits for it any more, until its effect is there.
    ///
    /// While it is not 0, something may still come that no runtime knows of: a virtual clock should not move.
    pub fn in_flight(&self) -> usize {
        self.shared.flights.count()
    }

    /// What has been committed since the store was opened.
    pub fn stats(&self) -> Stats {
        let counts = &self.shared.counts;
        Stats {
            commits: counts.commits.load(Ordering::Relaxed),
            calls: counts.calls.load(Ordering::Relaxed),
            rows: counts.rows.load(Ordering::Relaxed),
        }
    }

    /// Gives this handle up, and returns when the file is closed: everything under way is done, and every other handle and followed log is gone.
    ///
    /// *Cancelling*: the handle is gone all the same, and the file is closed in its own time.
    pub async fn close(self) {
        let threads = self.shared.threads.clone();
        drop(self);
        threads.ended().await;
    }

    fn write<T, F>(&self, work: F) -> Answer<Result<T, Lost>>
    where
        T: Send + 'static,
        F: FnMut(&mut Tx<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.shared.writer.call(self.shared.flights.begin(), work)
    }

    fn read<T, F>(&self, read: F) -> Answer<Result<T, StoreError>>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<Result<T, StoreError>, Fault> + Send + 'static,
    {
        self.shared.readers.call(self.shared.flights.begin(), read)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("file", &self.shared.file)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl EventLog for SqliteStore {
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
        let fence = fence.clone();
        let landed = self.write(move |tx| tx.append(&fence, expected, &batch)).await;
        landed.unwrap_or_else(|lost| {
            Err(match lost {
                Lost::Refused(error) => AppendError::Unavailable(error),
                Lost::Unknown(error) => AppendError::Unknown(error),
            })
        })
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        let session = session.clone();
        self.read(move |db| match read::end(db, &session)? {
            Some(end) => Ok(Ok(read::range(db, &session, end, after, limit)?)),
            None => Ok(Err(StoreError::not_found(&session))),
        })
        .await
    }

    fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream {
        Box::pin(Follow::new(self.shared.clone(), session.clone(), after))
    }
}

#[async_trait]
impl Inbox for SqliteStore {
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
        let session = session.clone();
        let admitted = self.write(move |tx| tx.admit(&session, &input)).await;
        admitted.unwrap_or_else(|lost| Err(lost.error().into()))
    }

    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError> {
        let session = session.clone();
        let cancelled = self.write(move |tx| tx.cancel(&session, input)).await;
        cancelled.unwrap_or_else(|lost| Err(lost.error()))
    }

    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError> {
        let session = session.clone();
        let changed = self.write(move |tx| tx.change(&session, input, delivery)).await;
        changed.unwrap_or_else(|lost| Err(lost.error()))
    }

    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError> {
        let session = session.clone();
        self.read(move |db| match read::end(db, &session)? {
            Some(end) => Ok(Ok(read::pending(db, &session, end.number)?)),
            None => Ok(Err(StoreError::not_found(&session))),
        })
        .await
    }

    fn hints(&self) -> HintStream {
        let hints = self.shared.watch.listen();
        self.shared.writer.watched();
        Box::pin(hints)
    }
}

#[async_trait]
impl Ownership for SqliteStore {
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
        let session = session.clone();
        let created = self.write(move |tx| tx.create(&session, &new)).await;
        created.unwrap_or_else(|lost| Err(lost.error()))
    }

    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
        let session = session.clone();
        let claimed = self.write(move |tx| tx.claim(worker, lease, &session)).await;
        claimed.unwrap_or_else(|lost| Err(lost.error().into()))
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        let renewed = self.write(move |tx| tx.renew(worker, lease)).await;
        renewed.map_err(Lost::error)
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        let fence = fence.clone();
        let released = self.write(move |tx| tx.release(&fence)).await;
        released.map_err(Lost::error)
    }

    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        let now = self.shared.clock.now();
        self.read(move |db| Ok(Ok(read::due(db, now, limit)?))).await
    }
}

#[async_trait]
impl Catalog for SqliteStore {
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError> {
        let (session, now) = (session.clone(), self.shared.clock.now());
        self.read(move |db| Ok(read::info(db, &session, now)?.ok_or_else(|| StoreError::not_found(&session)))).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let (query, now) = (query.clone(), self.shared.clock.now());
        self.read(move |db| Ok(Ok(read::list(db, &query, now)?))).await
    }

    async fn erase(&self, session: &SessionId) -> Result<(), StoreError> {
        let session = session.clone();
        let erased = self.write(move |tx| tx.erase(&session)).await;
        erased.unwrap_or_else(|lost| Err(lost.error()))
    }
}

#[async_trait]
impl FoldCache for SqliteStore {
    async fn kept(&self, session: &SessionId) -> Result<Option<CachedFold>, StoreError> {
        let session = session.clone();
        self.read(move |db| Ok(Ok(read::fold(db, &session)?))).await
    }

    async fn keep(&self, session: &SessionId, fold: CachedFold) -> Result<(), StoreError> {
        let session = session.clone();
        let kept = self.write(move |tx| tx.keep(&session, &fold)).await;
        kept.unwrap_or_else(|lost| Err(lost.error()))
    }
}

//! Opening a store: its settings, its threads.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use settled_ledger::store::{StoreError, StoreErrorKind};
use settled_ledger::{Clock, Timestamp};

use crate::checkpoint::Gate;
use crate::error::Fault;
use crate::flight::{Flights, Hold};
use crate::readers::ToReaders;
use crate::schema::Identity;
use crate::watch::Watch;
use crate::write::Memory;
use crate::writer::{Counts, Grouping, ToWriter, Writer, newest};
use crate::{Shared, SqliteStore, checkpoint, readers, schema};

/// How many threads read.
const READERS: usize = 2;

/// Leases that ran out so many milliseconds ago, a day, are forgotten.
const LONG_GONE: i64 = 24 * 60 * 60 * 1_000;

/// How long a checkpoint that stops the writer waits for others.
const CHECKPOINT_BUSY: Duration = Duration::from_millis(100);

/// Settings for a store, and the way to open it.
pub struct Builder {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    busy: Duration,
    grouping: Grouping,
    poll: Duration,
    hold: Option<Box<Hold>>,
}

impl Builder {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            clock: Arc::new(WallClock),
            busy: Duration::from_secs(5),
            grouping: Grouping { most: 1_024, gather: Duration::from_micros(50) },
            poll: Duration::from_millis(50),
            hold: None,
        }
    }

    /// The clock that leases and what is due go by; the machine's, unless it is given.
    ///
    /// All processes that use one file must go by the same clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// How long a call may wait while another process has the file locked, until it answers that the store is not available: 5 s.
    #[must_use]
    pub fn busy_timeout(mut self, busy: Duration) -> Self {
        self.busy = busy;
        self
    }

    /// At most so many calls share one commit: 1,024.
    ///
    /// It bounds how long another process waits for the file.
    #[must_use]
    pub fn group_limit(mut self, calls: usize) -> Self {
        self.grouping.most = calls.max(1);
        self
    }

    /// How long a transaction waits for one more call to share its commit: 50 µs.
    ///
    /// It waits only until as many calls have come as shared the last commit: a session that is alone never waits.
    #[must_use]
    pub fn gather(mut self, gather: Duration) -> Self {
        self.grouping.gather = gather;
        self
    }

    /// How often it is looked for what other processes have written, while somebody listens to hints or follows a log: every 50 ms.
    #[must_use]
    pub fn poll(mut self, interval: Duration) -> Self {
        self.poll = interval;
        self
    }

    /// Something to take hold of at the beginning of each call, and to drop when its answer has been given.
    ///
    /// It is called in whatever context the call is first polled in.
    /// A runtime whose clock is paused does not see the store's threads: taking hold of a blocking task keeps its clock from moving.
    ///
    /// ```
    /// # use settled_store_sqlite::SqliteStore;
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("sessions.db");
    /// let store = SqliteStore::builder(path).hold(|| {
    ///     let (held, wait) = std::sync::mpsc::channel::<()>();
    ///     tokio::task::spawn_blocking(move || wait.recv());
    ///     Box::new(held)
    /// });
    /// ```
    #[must_use]
    pub fn hold(mut self, hold: impl Fn() -> Box<dyn Any + Send> + Send + Sync + 'static) -> Self {
        self.hold = Some(Box::new(hold));
        self
    }

    /// Opens the file, and makes it if there is none; see [`SqliteStore::open`].
    pub fn open(self) -> Result<SqliteStore, StoreError> {
        let file: Arc<Path> = std::path::absolute(&self.path)
            .map_err(|error| {
                let message = format!("`{}` is no path for a file: {error}", self.path.display());
                StoreError::new(StoreErrorKind::Unavailable, message)
            })?
            .into();
        let named = |fault: Fault| fault.named(&file);
        let mut db = schema::open(&file, self.busy)?;
        let (grown, log_grown) = mpsc::sync_channel(1);
        let mut told = 0;
        db.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            // A log with fewer pages than before has begun anew.
            told = if pages < told { 0 } else { told };
            if pages - told >= checkpoint::EVERY_PAGES {
                told = pages;
                // A channel that is full has told it already.
                let _ = grown.try_send(());
            }
            Ok(())
        }))
        .map_err(|error| named(error.into()))?;
        // A lease that has run out is as good as none; those of workers that are long gone would stay for ever.
        // If that cannot be done now it is done at another opening.
        let long_gone = self.clock.now().as_millis().saturating_sub(LONG_GONE);
        let _ = db.execute("DELETE FROM workers WHERE until <= ?1", [long_gone]);
        // The writer waits by itself, so that those who have waited for long are answered while others wait on.
        db.busy_timeout(Duration::ZERO).map_err(|error| named(error.into()))?;
        let version = db.query_row("PRAGMA data_version", [], |row| row.get(0)).map_err(|error| named(error.into()))?;
        let seen = newest(&db).map_err(named)?;
        let identity = Identity::of(&file);
        let cleaner = schema::join(&identity, CHECKPOINT_BUSY).map_err(named)?;

        let threads = Arc::new(Threads::default());
        let (counts, watch) = (Arc::<Counts>::default(), Arc::<Watch>::default());
        let gate = Arc::<Gate>::default();
        let (to_writer, calls) = mpsc::channel();
        let writer = Writer {
            db,
            identity: identity.clone(),
            clock: self.clock.clone(),
            calls,
            counts: counts.clone(),
            watch: watch.clone(),
            gate: gate.clone(),
            grouping: self.grouping,
            busy: self.busy,
            poll: self.poll,
            memory: Memory::default(),
            version,
            seen,
            last: 0,
        };
        threads.start("write", || writer.run())?;
        let its = identity.clone();
        threads.start("checkpoint", move || checkpoint::run(&cleaner, &its, &log_grown, &gate))?;
        let (to_readers, reads) = mpsc::channel();
        let reads = Arc::new(Mutex::new(reads));
        for _ in 0..READERS {
            let (reads, identity, busy) = (reads.clone(), identity.clone(), self.busy);
            threads.start("read", move || readers::run(&reads, &identity, busy))?;
        }
        Ok(SqliteStore {
            shared: Arc::new(Shared {
                writer: ToWriter::new(to_writer, file.clone()),
                readers: ToReaders::new(to_readers, file.clone()),
                file,
                clock: self.clock,
                watch,
                flights: Flights::new(self.hold),
                counts,
                threads,
            }),
        })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("path", &self.path)
            .field("busy_timeout", &self.busy)
            .field("grouping", &self.grouping)
            .field("poll", &self.poll)
            .finish_non_exhaustive()
    }
}

/// The machine's clock.
struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::default().plus(since)
    }
}

/// The store's threads, and who waits for their end.
#[derive(Default)]
pub(crate) struct Threads {
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    count: usize,
    wakers: Vec<Waker>,
}

impl Threads {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>, what: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        self.running().count += 1;
        let ends = Ends(self.clone());
        let thread = thread::Builder::new().name(format!("sqlite-{what}"));
        let started = thread.spawn(move || {
            // It ends when the thread's connection is closed, a panic included.
            let _ends = ends;
            work();
        });
        started.map(drop).map_err(|error| {
            let message = format!("no thread can be started to {what}: {error}");
            StoreError::new(StoreErrorKind::Unavailable, message)
        })
    }

    /// Returns when every thread has ended.
    pub(crate) async fn ended(&self) {
        poll_fn(|cx| {
            let mut running = self.running();
            if running.count == 0 {
                return Poll::Ready(());
            }
            running.wakers.push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

/// Counts a thread off when it ends.
struct Ends(Arc<Threads>);

impl Drop for Ends {
    fn drop(&mut self) {
        let mut running = self.0.running();
        running.count -= 1;
        let wakers = match running.count {
            0 => std::mem::take(&mut running.wakers),
            _ => Vec::new(),
        };
        drop(running);
        wakers.into_iter().for_each(Waker::wake);
    }
}

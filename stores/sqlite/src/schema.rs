//! The file: its tables, its version, and opening it.
//!
//! | table | holds |
//! |---|---|
//! | `events` | every event of every session, in the order in which they were appended; `prev` is the row before it of the same session, `sum` a checksum of the rest |
//! | `marks` | the rows of each session's every 64th event: from there a place in its log is found |
//! | `heads` | what every append changes of a session: kept apart from the rest so that a commit of many sessions touches few pages |
//! | `sessions` | the rest of a session: state, owner, tags, how much input is pending |
//! | `tags` | the sessions by their tags |
//! | `inbox` | pending input, in order of arrival |
//! | `keys` | every key that input was admitted under, with the input's id and a hash of its content |
//! | `workers` | when each worker's lease runs out |
//! | `folds` | history caches: they may be deleted, and that changes nothing but time |
//!
//! An index on (session, seq) would make a commit of 64 sessions' rows touch 64 pages of the index; a mark is written for one row in 64.
//! The view `timeline` shows the log to people; see the crate's page.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use settled_ledger::store::{StoreError, StoreErrorKind};

use crate::error::Fault;
use crate::wait::Jitter;

/// The version of the schema that this version writes; there is none older that would have to be brought up.
pub(crate) const VERSION: i64 = 1;

/// What the file says it is: `setl`.
const APPLICATION: i64 = 0x7365_746c;

/// One event in so many has a mark.
pub(crate) const MARK_EVERY: u64 = 64;

/// Held while a file is opened.
static OPENING: Mutex<()> = Mutex::new(());

const SCHEMA: &str = "
CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    prev INTEGER NOT NULL,
    at INTEGER NOT NULL,
    version INTEGER NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    sum INTEGER NOT NULL
);
CREATE TABLE marks (
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    event INTEGER NOT NULL,
    PRIMARY KEY (session, seq)
) WITHOUT ROWID;
CREATE TABLE heads (
    session INTEGER PRIMARY KEY,
    head INTEGER NOT NULL,
    event INTEGER NOT NULL,
    batch BLOB,
    updated INTEGER NOT NULL
);
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    waits INTEGER NOT NULL,
    due INTEGER,
    epoch INTEGER NOT NULL,
    worker BLOB,
    arrivals INTEGER NOT NULL,
    pending INTEGER NOT NULL,
    tags TEXT NOT NULL,
    created INTEGER NOT NULL
);
CREATE INDEX sessions_due ON sessions (due) WHERE due IS NOT NULL;
CREATE TABLE tags (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (name, value, id)
) WITHOUT ROWID;
CREATE TABLE inbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL,
    arrival INTEGER NOT NULL,
    id BLOB NOT NULL,
    key TEXT,
    at INTEGER NOT NULL,
    input TEXT NOT NULL,
    sum INTEGER NOT NULL,
    UNIQUE (session, arrival)
);
CREATE TABLE keys (
    session INTEGER NOT NULL,
    key TEXT NOT NULL,
    input BLOB NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (session, key)
) WITHOUT ROWID;
CREATE TABLE workers (
    id BLOB PRIMARY KEY,
    until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE folds (
    session INTEGER PRIMARY KEY,
    head INTEGER NOT NULL,
    mark TEXT NOT NULL,
    format TEXT NOT NULL,
    body TEXT NOT NULL,
    sum INTEGER NOT NULL
);
CREATE VIEW timeline AS
    SELECT sessions.id AS session,
           events.seq AS seq,
           strftime('%Y-%m-%d %H:%M:%f', events.at / 1000.0, 'unixepoch') AS time,
           events.kind AS event,
           events.version AS version,
           events.body AS fields
    FROM events JOIN sessions ON sessions.number = events.session
    ORDER BY events.id;
";

/// Opens the file for writing, and makes it if there is none.
pub(crate) fn open(file: &Path, busy: Duration) -> Result<Connection, StoreError> {
    // Whoever makes the file closes it once more before SQLite opens it; nobody else in this process may have it open by then.
    let _alone = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    make(file)?;
    let db = connect(file, OpenFlags::SQLITE_OPEN_READ_WRITE, busy).map_err(|fault| fault.named(file))?;
    let read_only = db.is_readonly(rusqlite::MAIN_DB).map_err(|error| Fault::from(error).named(file))?;
    if read_only {
        let message =
            format!("`{}` may not be written to: look at its permissions and those of its folder", file.display());
        return Err(StoreError::new(StoreErrorKind::ReadOnly, message));
    }
    let (application, empty) = patiently(busy, || {
        // One transaction: another process may be making the tables just now.
        let tx = db.unchecked_transaction()?;
        let empty = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)";
        let empty = tx.query_row(empty, [], |row| row.get::<_, bool>(0))?;
        Ok((number(&tx, "application_id")?, empty))
    })
    .map_err(|fault| fault.named(file))?;
    if application != APPLICATION && !empty {
        let message = format!("`{}` is a SQLite database of another application: give another path", file.display());
        return Err(StoreError::new(StoreErrorKind::Corrupt, message));
    }
    let version = patiently(busy, || prepare(&db)).map_err(|fault| fault.named(file))?;
    if version > VERSION {
        let message = format!(
            "`{}` was written by a newer version (its schema is {version}, this version knows {VERSION}): \
             update the program, or give another path",
            file.display()
        );
        return Err(StoreError::new(StoreErrorKind::Newer, message));
    }
    whole(&db).map_err(|fault| fault.named(file))?;
    Ok(db)
}

/// Opens a connection.
fn connect(file: &Path, access: OpenFlags, busy: Duration) -> Result<Connection, Fault> {
    let db = Connection::open_with_flags(file, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(busy)?;
    db.set_prepared_statement_cache_capacity(64);
    // On Apple's disks a sync reaches the disk only so; a checkpoint needs it as much as a commit.
    db.execute_batch("PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON; PRAGMA wal_autocheckpoint = 0;")?;
    Ok(db)
}

/// Opens one more connection on a file that is open, with its write-ahead log: SQLite opens that only when it first reads.
///
/// *Fails* where the path leads elsewhere by now.
pub(crate) fn join(identity: &Identity, busy: Duration) -> Result<Connection, Fault> {
    identity.check()?;
    // It may write, so that whichever connection closes last can bring the write-ahead log into the file.
    let db = connect(&identity.file, OpenFlags::SQLITE_OPEN_READ_WRITE, busy)?;
    number(&db, "schema_version")?;
    identity.check()?;
    Ok(db)
}

/// Makes the file if there is none, so that nobody but its owner may read it.
///
/// A file that is there is not opened: closing it again would take away the locks that SQLite holds on it in this process.
fn make(file: &Path) -> Result<(), StoreError> {
    let shown = file.display();
    let folder = file.parent().unwrap_or(file);
    if !folder.is_dir() {
        let message = format!("the folder `{}` of `{shown}` is not there: make it first", folder.display());
        return Err(StoreError::new(StoreErrorKind::Unavailable, message));
    }
    if file.is_dir() {
        let message = format!("`{shown}` is a folder: give the path of a file");
        return Err(StoreError::new(StoreErrorKind::Unavailable, message));
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let Err(error) = options.open(file) else { return Ok(()) };
    let kind = match error.kind() {
        io::ErrorKind::AlreadyExists => return Ok(()),
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StoreErrorKind::ReadOnly,
        _ => StoreErrorKind::Unavailable,
    };
    let message = format!("`{shown}` cannot be made: {error}; look at the permissions of its folder");
    Err(StoreError::new(kind, message))
}

/// Sets a connection up to write, makes the tables where there are none, and answers the schema's version.
fn prepare(db: &Connection) -> Result<i64, Fault> {
    let version = number(db, "user_version")?;
    if version > VERSION {
        return Ok(version);
    }
    // A commit is durable when it is answered: the log is synced at every one.
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;")?;
    if version < VERSION {
        db.execute_batch("BEGIN IMMEDIATE")?;
        let made = made(db).and_then(|()| Ok(db.execute_batch("COMMIT")?));
        if made.is_err() {
            // The failure that counts is the first.
            let _ = db.execute_batch("ROLLBACK");
        }
        made?;
    }
    number(db, "user_version")
}

/// Makes the tables, unless another process has done so in the meantime.
fn made(db: &Connection) -> Result<(), Fault> {
    if number(db, "user_version")? == 0 {
        db.execute_batch(SCHEMA)?;
        db.execute_batch(&format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"))?;
    }
    Ok(())
}

/// Looks whether the tables are those that this version has made; there may be others beside them.
fn whole(db: &Connection) -> Result<(), Fault> {
    let mut made = db.prepare("SELECT 1 FROM sqlite_schema WHERE sql = ?1")?;
    for table in SCHEMA.split(';').map(str::trim).filter(|table| !table.is_empty()) {
        if !made.exists([table])? {
            let name = table.split('(').next().unwrap_or(table);
            return Err(Fault::Corrupt(format!("what `{name}` made is not as it was")));
        }
    }
    Ok(())
}

fn number(db: &Connection, pragma: &str) -> Result<i64, Fault> {
    Ok(db.pragma_query_value(None, pragma, |row| row.get(0))?)
}

/// Does something again while another process is in the way, for as long as is bearable.
fn patiently<T>(bearable: Duration, mut attempt: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    let (start, mut jitter) = (Instant::now(), Jitter::new());
    loop {
        match attempt() {
            Err(fault) if fault.is_busy() && start.elapsed() < bearable => std::thread::sleep(jitter.next()),
            done => return done,
        }
    }
}

/// Which files the database's path and its write-ahead log's lead to.
///
/// Another file at the same path, or none, is not the one that was opened: what is written would be lost with it.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    file: Arc<Path>,
    log: Arc<Path>,
    opened: [Option<Inode>; 2],
}

/// A file on this machine, whatever it is called.
type Inode = (u64, u64);

impl Identity {
    /// What a database that is open leads to now.
    pub(crate) fn of(file: &Arc<Path>) -> Self {
        let mut log = file.as_os_str().to_owned();
        log.push("-wal");
        let log: Arc<Path> = Path::new(&log).into();
        Self { opened: [inode(file), inode(&log)], file: file.clone(), log }
    }

    /// The path of the database.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// The path of the write-ahead log.
    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// *Fails* where a path leads elsewhere now.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let same = |path: &Path, opened: Option<Inode>| opened.is_some() && inode(path) == opened;
        if !same(&self.file, self.opened[0]) {
            return Err(Fault::Gone);
        }
        if !same(&self.log, self.opened[1]) {
            return Err(Fault::LogGone);
        }
        Ok(())
    }
}

fn inode(path: &Path) -> Option<Inode> {
    let found = fs::metadata(path).ok()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        Some((found.dev(), found.ino()))
    }
    #[cfg(not(unix))]
    {
        let _ = found;
        Some((0, 0))
    }
}

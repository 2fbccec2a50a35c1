//! The data folder: where sessions are kept, and which process runs one.

use std::env;
use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use settled_ledger::store::{EventLog, StoreError, StoreErrorKind};
use settled_ledger::{Ids, Recorded, Seq, WorkerId};
use settled_runner::RandomIds;
use settled_store_sqlite::SqliteStore;
use settled_tools_api::SessionId;
use sha2::{Digest, Sha256};

use crate::exit::{Exit, Failure};

/// How many events are read at once.
const PAGE: usize = 1_024;

/// The folder that has a user's sessions.
#[derive(Clone, Debug)]
pub(crate) struct DataFolder(PathBuf);

impl DataFolder {
    /// The folder that is given, else `SETTLED_DATA`, else the place for a user's data on this system.
    pub(crate) fn choose(given: Option<PathBuf>) -> Result<Self, Failure> {
        let from_env = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty());
        if let Some(folder) = given.or_else(|| from_env("SETTLED_DATA")) {
            return Ok(Self(folder));
        }
        // A relative `XDG_DATA_HOME` is to be ignored, by its specification.
        let xdg = from_env("XDG_DATA_HOME").filter(|path| path.is_absolute());
        let home = || from_env("HOME").filter(|path| path.is_absolute());
        let of_home = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".local/share" };
        match xdg.or_else(|| home().map(|home| home.join(of_home))) {
            Some(base) => Ok(Self(base.join("settled"))),
            None => Err(Failure::usage("there is no home folder to keep sessions in: give one with --data DIR")),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn file(&self) -> PathBuf {
        self.0.join("sessions.db")
    }

    /// Opens the store, and makes it if there is none.
    pub(crate) fn open(&self) -> Result<SqliteStore, Failure> {
        make_private(&self.0).map_err(|error| self.unusable(&error))?;
        Ok(SqliteStore::open(self.file())?)
    }

    /// Opens the store if there is one.
    pub(crate) fn existing(&self) -> Result<Option<SqliteStore>, Failure> {
        match self.file().try_exists() {
            Ok(true) => Ok(Some(SqliteStore::open(self.file())?)),
            Ok(false) => Ok(None),
            Err(error) => Err(self.unusable(&error)),
        }
    }

    /// Opens the store for a session that should be there.
    pub(crate) fn open_for(&self, session: &SessionId) -> Result<SqliteStore, Failure> {
        self.existing()?.ok_or_else(|| StoreError::not_found(session).into())
    }

    /// Takes the session for this process, if no other process of this machine has it.
    ///
    /// The system gives the lock up when the process dies, however it dies.
    /// So whoever has it may act under the worker that the session had before: there is no lease to wait for.
    pub(crate) fn hold(&self, session: &SessionId) -> Result<Hold, Failure> {
        let folder = self.0.join("running");
        make_private(&folder).map_err(|error| self.unusable(&error))?;
        let digest = Sha256::digest(session.as_str());
        let mut bits = [0; 16];
        bits.copy_from_slice(&digest[..16]);
        let worker = WorkerId::from_u128(u128::from_be_bytes(bits));
        let file = File::create(folder.join(worker.to_string())).map_err(|error| self.unusable(&error))?;
        match file.try_lock() {
            Ok(()) => Ok(Hold { worker, lock: Some(file) }),
            Err(TryLockError::WouldBlock) => {
                Ok(Hold { worker: WorkerId::from_u128(RandomIds::default().next()), lock: None })
            }
            Err(TryLockError::Error(error)) => Err(self.unusable(&error)),
        }
    }

    fn unusable(&self, error: &io::Error) -> Failure {
        let folder = self.0.display();
        let message = format!("`{folder}` cannot be used to keep sessions in: {error}; give another with --data DIR");
        Failure { exit: Exit::Usage, message }
    }
}

/// A session as this process has it.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The worker to run it as.
    pub(crate) worker: WorkerId,
    /// Held for as long as the process runs the session; `None` where another process has it.
    lock: Option<File>,
}

impl Hold {
    /// Whether another process of this machine has the session.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.lock.is_none()
    }
}

/// A session's whole log.
pub(crate) async fn whole_log(store: &SqliteStore, session: &SessionId) -> Result<Vec<Recorded>, Failure> {
    let mut log = Vec::new();
    let mut after = Seq::START;
    loop {
        let page = store.read(session, after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(log) };
        after = last.seq;
        log.extend(page);
    }
}

/// The failure of a log that has an event that does not read.
pub(crate) fn corrupt(error: settled_ledger::DecodeError) -> Failure {
    StoreError::new(StoreErrorKind::Corrupt, error.to_string()).into()
}

/// A whole file, or standard input for `-`.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().read_to_end(&mut bytes).map(drop)
    } else {
        std::fs::read(file).map(|read| bytes = read)
    };
    read.map_err(|error| Failure::usage(format!("`{}` cannot be read: {error}", file.display())))?;
    Ok(bytes)
}

/// Makes a folder, with those on its way, that only its user may enter; one that is there stays as it is.
fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

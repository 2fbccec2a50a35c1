//! Failures: what SQLite says, turned into what can be done about it, with the file's name.

use std::path::Path;

use rusqlite::ErrorCode;
use settled_ledger::store::{StoreError, StoreErrorKind};

/// Why work on a connection did not end well.
#[derive(Debug)]
pub(crate) enum Fault {
    /// SQLite failed.
    Sqlite(rusqlite::Error),
    /// What is stored does not read; the words say what and where.
    Corrupt(String),
    /// The file is not at its path any more: what is written would be lost with it.
    Gone,
    /// The write-ahead log is not at its path any more; what is in it is not lost as long as the file is open.
    LogGone,
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl Fault {
    /// The failure as whoever called is told it.
    pub(crate) fn named(&self, path: &Path) -> StoreError {
        let error = match self {
            Self::Corrupt(what) => return corrupt(path, what),
            Self::Gone => {
                let message = format!(
                    "`{}` was deleted or replaced while it was open: bring it back, and open the store again",
                    path.display()
                );
                return StoreError::new(StoreErrorKind::Unavailable, message);
            }
            Self::LogGone => {
                let file = path.display();
                let message = format!(
                    "the write-ahead log `{file}-wal` was deleted or replaced while `{file}` was open: \
                     close the store, which brings what is in it into the file, and open it again"
                );
                return StoreError::new(StoreErrorKind::Unavailable, message);
            }
            Self::Sqlite(error) => error,
        };
        let file = path.display();
        let (kind, message) = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
                StoreErrorKind::Unavailable,
                format!("`{file}` is locked by another process: try again, or stop the process that holds it"),
            ),
            Some(ErrorCode::DiskFull) => {
                (StoreErrorKind::Unavailable, format!("there is no room left for `{file}`: make some and try again"))
            }
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
                StoreErrorKind::ReadOnly,
                format!("`{file}` may not be written to: look at the permissions of the file and of its folder"),
            ),
            Some(ErrorCode::CannotOpen) => (
                StoreErrorKind::Unavailable,
                format!("`{file}` cannot be opened: look whether its folder is there and who may use it"),
            ),
            Some(ErrorCode::NotADatabase) => (
                StoreErrorKind::Corrupt,
                format!("`{file}` is not a SQLite database: give another path, or move the file away"),
            ),
            Some(ErrorCode::SystemIoFailure) => (
                StoreErrorKind::Unavailable,
                format!(
                    "the disk did not read or write `{file}` ({error}): look whether there is room and whether the disk is sound, then try again"
                ),
            ),
            // The statements are fixed and the tables were made for them: what does not fit has changed since.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::Unknown | ErrorCode::TypeMismatch) => {
                return corrupt(path, &error.to_string());
            }
            _ if is_of_what_is_stored(error) => return corrupt(path, &error.to_string()),
            _ => (StoreErrorKind::Unavailable, format!("`{file}`: {error}")),
        };
        StoreError::new(kind, message)
    }

    /// Whether another connection is in the way.
    pub(crate) fn is_busy(&self) -> bool {
        let Self::Sqlite(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }
}

/// Whether a value in a row, or a table, is not what it must be.
fn is_of_what_is_stored(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::QueryReturnedNoRows
            | rusqlite::Error::SqlInputError { .. }
    )
}

fn corrupt(file: &Path, what: &str) -> StoreError {
    let file = file.display();
    let message = format!(
        "`{file}` is damaged: {what}; bring back a copy, or save what can be read with `sqlite3 {file} .recover`"
    );
    StoreError::new(StoreErrorKind::Corrupt, message)
}

/// The store is closed, or its thread is gone: nothing has been done.
pub(crate) fn closed(file: &Path) -> StoreError {
    let message = format!("the store on `{}` is closed: open it again", file.display());
    StoreError::new(StoreErrorKind::Unavailable, message)
}

//! How the runner's own calls fail.

use std::fmt;

use settled_ledger::store::{AdmitError, StoreError};
use settled_tools_api::{CallKey, InvalidId};

/// Why a call of the runner failed.
///
/// A step or an execution that fails is not an error here: it is an outcome; see [`crate::Settled`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The runner was not given what it needs; the text says what.
    Configuration(String),
    /// A name is not what it must be.
    InvalidId(InvalidId),
    /// The store failed.
    Store(StoreError),
    /// The input's key was used before, for other content.
    KeyConflict(String),
    /// The call does not wait for an answer.
    NotWaiting(CallKey),
    /// The runner is shutting down.
    ShuttingDown,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(what) => f.write_str(what),
            Self::InvalidId(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::KeyConflict(key) => write!(f, "the key `{key}` was used before, for other content"),
            Self::NotWaiting(call) => write!(f, "call {call} does not wait for an answer"),
            Self::ShuttingDown => f.write_str("the runner is shutting down"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InvalidId(error) => Some(error),
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<InvalidId> for Error {
    fn from(error: InvalidId) -> Self {
        Self::InvalidId(error)
    }
}

impl Error {
    /// Why an input was not admitted under its key.
    pub(crate) fn of_admission(error: AdmitError, key: &str) -> Self {
        match error {
            AdmitError::Store(error) => Self::Store(error),
            _ => Self::KeyConflict(key.to_owned()),
        }
    }
}

impl From<std::convert::Infallible> for Error {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

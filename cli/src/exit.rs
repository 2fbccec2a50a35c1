//! How the command ends: its exit codes, and failures that a person meets.

use std::fmt;
use std::io;
use std::process::ExitCode;

use settled_ledger::Outcome;
use settled_ledger::store::{StoreError, StoreErrorKind};
use settled_tools_api::InvalidId;

/// The exit codes, as `settled --help` shows them and the crate's page explains.
pub(crate) const TABLE: &str = "\
Exit codes:
  0    done; the run completed
  1    the run failed, or `check` found a breach
  2    bad usage: a wrong flag, folder, session or file; no key
  3    the run waits for a person: see `approve`, `decline`, `answer`, `dismiss`
  4    the store cannot be used
  130  interrupted
  143  told to stop: `settled run --session ID` goes on";

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Completed,
    Failed,
    Usage,
    Parked,
    Store,
    Interrupted,
    Terminated,
}

impl Exit {
    pub(crate) fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Completed,
            Outcome::Interrupted => Self::Interrupted,
            Outcome::Parked => Self::Parked,
            _ => Self::Failed,
        }
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Parked => 3,
            Self::Store => 4,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command did not do what it was asked: one line for a person, that says what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Empty where nobody listens any more.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error.kind {
            StoreErrorKind::NotFound => Self::usage(format!("{error}: `settled sessions` lists those that there are")),
            StoreErrorKind::Exists => Self::usage(error.message),
            StoreErrorKind::InUse => Self { exit: Exit::Store, message: format!("{error}: wait until it has ended") },
            _ => Self { exit: Exit::Store, message: error.message },
        }
    }
}

impl From<settled_runner::Error> for Failure {
    fn from(error: settled_runner::Error) -> Self {
        use settled_runner::Error;
        match error {
            Error::Store(error) => error.into(),
            Error::Configuration(_) | Error::InvalidId(_) | Error::NotWaiting(_) => Self::usage(error.to_string()),
            error => Self::failed(error.to_string()),
        }
    }
}

impl From<InvalidId> for Failure {
    fn from(error: InvalidId) -> Self {
        Self::usage(error.to_string())
    }
}

/// Writing to the person failed.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            // Whoever read has read enough: `settled log ID | head`.
            io::ErrorKind::BrokenPipe => Self { exit: Exit::Completed, message: String::new() },
            _ => Self::failed(format!("the output cannot be written: {error}")),
        }
    }
}

//! How a tool describes itself: to the model, and to the runner.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Reconciler;

/// One tool as it is advertised and run.
///
/// The model sees the name, the description and the schema; the rest tells the runner how to run it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolDefinition {
    /// The name the model calls it by; unique among the tools of one request.
    pub name: String,
    /// What it does and when to use it, in words for the model.
    pub description: String,
    /// JSON Schema of the input, an object; arguments are validated against it before every run.
    pub input_schema: Value,
    /// What may happen when a run's result was lost.
    pub replay: Replay,
    /// Whether other calls may run beside it.
    pub concurrency: Concurrency,
    /// The longest time a run may take; the runner's own limit where `None`.
    pub deadline: Option<Duration>,
    /// The longest time between two signs of progress; the runner's own limit where `None`.
    pub idle: Option<Duration>,
}

impl ToolDefinition {
    /// A tool that runs at most once a call, beside others, within the runner's limits.
    pub fn new(name: impl Into<String>, description: impl Into<String>, input_schema: Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            input_schema,
            replay: Replay::AtMostOnce,
            concurrency: Concurrency::Parallel,
            deadline: None,
            idle: None,
        }
    }

    /// The same tool with another replay class.
    #[must_use]
    pub fn replay(mut self, replay: Replay) -> Self {
        self.replay = replay;
        self
    }

    /// The same tool, run with no other call beside it.
    #[must_use]
    pub fn exclusive(mut self) -> Self {
        self.concurrency = Concurrency::Exclusive;
        self
    }

    /// The same tool with its own longest time for a run.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The same tool with its own longest time between two signs of progress.
    #[must_use]
    pub fn idle(mut self, idle: Duration) -> Self {
        self.idle = Some(idle);
        self
    }
}

/// What a tool says about running again, with what that needs.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Replay {
    /// It is never run again: a lost result becomes an unknown outcome.
    #[default]
    AtMostOnce,
    /// It has no side effect: it may run again at any time.
    Pure,
    /// Running again under the same effect key does nothing new, for this long after the first run.
    Idempotent {
        /// How long the other side remembers the key.
        valid_for: Duration,
    },
    /// Whether it has happened can be asked.
    Reconcile(Arc<dyn Reconciler>),
}

impl Replay {
    /// The class alone, as it is recorded with a call.
    pub fn class(&self) -> ReplayClass {
        match self {
            Self::AtMostOnce => ReplayClass::AtMostOnce,
            Self::Pure => ReplayClass::Pure,
            Self::Idempotent { valid_for } => {
                ReplayClass::Idempotent { valid_for_ms: u64::try_from(valid_for.as_millis()).unwrap_or(u64::MAX) }
            }
            Self::Reconcile(_) => ReplayClass::Reconcile,
        }
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.class().fmt(f)
    }
}

impl PartialEq for Replay {
    /// Two are equal when their classes are: a reconciler is behaviour, not data.
    fn eq(&self, other: &Self) -> bool {
        self.class() == other.class()
    }
}

/// The replay class of a call as it is recorded in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReplayClass {
    /// Never run again.
    #[default]
    AtMostOnce,
    /// May run again at any time.
    Pure,
    /// May run again under the same effect key.
    Idempotent {
        /// For how long after the first run, in milliseconds.
        valid_for_ms: u64,
    },
    /// Its reconciler is asked.
    Reconcile,
}

impl ReplayClass {
    /// The name of the class: `at_most_once`, `pure`, `idempotent`, `reconcile`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AtMostOnce => "at_most_once",
            Self::Pure => "pure",
            Self::Idempotent { .. } => "idempotent",
            Self::Reconcile => "reconcile",
        }
    }

    /// The stricter of two classes: what a tool said when it was called, and what it says today.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::AtMostOnce, _) | (_, Self::AtMostOnce) => Self::AtMostOnce,
            (Self::Reconcile, _) | (_, Self::Reconcile) => Self::Reconcile,
            (Self::Idempotent { valid_for_ms: a }, Self::Idempotent { valid_for_ms: b }) => {
                Self::Idempotent { valid_for_ms: a.min(b) }
            }
            (idempotent @ Self::Idempotent { .. }, Self::Pure) | (Self::Pure, idempotent @ Self::Idempotent { .. }) => {
                idempotent
            }
            (Self::Pure, Self::Pure) => Self::Pure,
        }
    }
}

/// Whether other calls of the step may run while a tool runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concurrency {
    /// Beside others, up to the runner's limit.
    #[default]
    Parallel,
    /// Alone: it waits for all that run, and all that come wait for it.
    Exclusive,
}

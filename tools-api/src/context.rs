//! What a run of a tool is told, and what it may tell.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;

use crate::{CallKey, CancelSignal, EffectKey, SessionId};

/// The facts about one run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RunInfo {
    /// The stable name of this call's side effect.
    pub effect_key: EffectKey,
    /// The session that the call belongs to.
    pub session: SessionId,
    /// The call, and with it the step.
    pub call: CallKey,
    /// The number of the attempt at the step that made the call, from 1.
    pub attempt: u32,
    /// The session's tags.
    pub tags: Arc<BTreeMap<String, String>>,
    /// The notes that earlier runs of this call have left, oldest first.
    pub notes: Vec<Value>,
}

impl RunInfo {
    /// Facts without tags and notes, for attempt 1.
    pub fn new(effect_key: EffectKey, session: SessionId, call: CallKey) -> Self {
        Self { effect_key, session, call, attempt: 1, tags: Arc::default(), notes: Vec::new() }
    }
}

/// The runner's side of a run: where progress and notes go.
///
/// The runner implements it; a tool sees it only through its [`ToolContext`].
#[async_trait]
pub trait ToolHost: Send + Sync {
    /// Takes a sign of progress; never waits.
    fn progress(&self, progress: Value);

    /// Writes a note into the session's log and returns when it is durable.
    async fn note(&self, note: Value) -> Result<(), NoteError>;

    /// The time left until the run's deadline; `None` without one.
    fn remaining(&self) -> Option<Duration>;
}

/// A note could not be made durable: the session's log is lost to this run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoteError;

impl fmt::Display for NoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the note is not durable: the session's log is lost to this run; stop without acting")
    }
}

impl std::error::Error for NoteError {}

/// What a run of a tool is told, and its line back to the runner.
#[derive(Clone)]
pub struct ToolContext {
    info: Arc<RunInfo>,
    cancel: CancelSignal,
    host: Arc<dyn ToolHost>,
}

impl ToolContext {
    /// Puts a context together; the runner does this, and whoever tests a tool without one.
    pub fn new(info: RunInfo, cancel: CancelSignal, host: Arc<dyn ToolHost>) -> Self {
        Self { info: Arc::new(info), cancel, host }
    }

    /// A context outside any runner, for a tool's own tests: it is never cancelled, has no deadline, and drops progress and notes.
    pub fn detached(info: RunInfo) -> Self {
        Self::new(info, CancelSignal::never(), Arc::new(Detached))
    }

    /// The facts about this run.
    pub fn info(&self) -> &RunInfo {
        &self.info
    }

    /// The stable name of this call's side effect: hand it to the other side as its idempotency key.
    pub fn effect_key(&self) -> &EffectKey {
        &self.info.effect_key
    }

    /// The cancel signal of this run.
    ///
    /// When it fires the tool should stop and return soon; after the runner's grace its task is aborted.
    pub fn cancel(&self) -> &CancelSignal {
        &self.cancel
    }

    /// The time left until the run's deadline; `None` without one.
    pub fn remaining(&self) -> Option<Duration> {
        self.host.remaining()
    }

    /// Shows a sign of progress to whoever watches, and resets the idle limit.
    ///
    /// It is not durable; if the run gives no answer, the last one is kept with its outcome.
    pub fn progress(&self, progress: Value) {
        self.host.progress(progress);
    }

    /// Leaves a durable note for a later run or the reconciler: an order number, a file name.
    ///
    /// It is durable when this returns.
    pub async fn note(&self, note: Value) -> Result<(), NoteError> {
        self.host.note(note).await
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext").field("info", &self.info).field("cancel", &self.cancel).finish_non_exhaustive()
    }
}

struct Detached;

#[async_trait]
impl ToolHost for Detached {
    fn progress(&self, _: Value) {}

    async fn note(&self, _: Value) -> Result<(), NoteError> {
        Ok(())
    }

    fn remaining(&self) -> Option<Duration> {
        None
    }
}

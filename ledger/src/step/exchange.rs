//! What goes in and out of the ledger.

use serde_json::Value;
use settled_provider_api::ProviderError;
use settled_tools_api::{CallKey, ToolOutput};

use super::PersonsAnswer;
use crate::event::{Bounded, Event};
use crate::violation::Violation;

/// Whether the step's calls are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "they are run or they are not")]
pub enum ToolUse {
    /// They are.
    On,
    /// They are not: it is the final, text-only step.
    Off,
}

/// What admitting an event of the provider led to.
#[derive(Debug, PartialEq)]
#[must_use = "what is owed must go to the writer before the ledger is touched again"]
#[expect(clippy::exhaustive_enums, reason = "the runner must act on every kind")]
pub enum Admission<'e> {
    /// Nothing.
    Nothing,
    /// A piece for whoever follows live.
    Delta(Delta<'e>),
    /// Events are owed.
    Owed(Events),
    /// Events are owed, and a local call may start.
    Call(Events, CallKey),
    /// The stream protocol was broken: stop reading.
    Broken(Violation),
}

/// Durable events that are owed, in order.
pub type Events = Vec<Event>;

/// A piece of an open block, for whoever follows live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delta<'e> {
    /// What kind of block.
    pub kind: DeltaKind,
    /// The block's ordinal of its kind; for arguments, the call's.
    pub ordinal: u32,
    /// How many bytes of the block came before.
    pub offset: u64,
    /// The piece.
    pub text: &'e str,
}

/// The kinds of block that come in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "whoever follows live must show every kind")]
pub enum DeltaKind {
    /// Text.
    Text,
    /// Reasoning.
    Reasoning,
    /// A call's arguments.
    ToolInput,
}

/// How the stream ended.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "the settlement must decide on every exit")]
pub enum StreamExit {
    /// It ended by itself.
    Completed,
    /// It threw, or stalled.
    Failed(ProviderError),
    /// Reading it stopped because of a violation that was admitted.
    BrokenOff,
    /// The adapter panicked.
    Panicked(String),
    /// Reading it stopped because of an interrupt.
    Interrupted,
}

/// How the tools as a whole ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the settlement must decide on every exit")]
pub enum ToolsExit {
    /// Every call that was started has its outcome.
    Settled,
    /// A tool was stopped from inside: its task was cancelled, and not by us.
    Interrupted,
}

/// What became of a run of a local call.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "the ledger must record every outcome")]
pub enum ToolOutcome {
    /// It succeeded.
    Success(ToolOutput, Option<Bounded>),
    /// It asks a person.
    Ask {
        /// The question.
        question: String,
        /// The state for the run that goes on.
        state: Value,
    },
    /// Its own answer is a failure.
    Failed(ToolOutput, Option<Bounded>),
    /// It does not know whether it acted.
    Unknown(ToolOutput),
    /// A person refused it while it ran.
    Declined {
        /// What the person said.
        feedback: Option<String>,
    },
    /// A person closed its question.
    Dismissed,
    /// The host's machinery broke.
    Infra(String),
    /// It panicked, with this text.
    Panicked(String),
    /// It took too long; which limit, and the last progress.
    TimedOut(String),
    /// It was stopped; the last progress, if any.
    Stopped(Option<Value>),
    /// Its arguments do not fit the schema.
    SchemaViolated(String),
    /// A rule refused it.
    Denied {
        /// The rule.
        rule: String,
    },
    /// It will not be started.
    NotRun,
    /// Its result was lost with a process.
    Lost,
}

/// Whether a call whose start is durable may run.
#[derive(Clone, Debug, PartialEq)]
#[must_use = "the call is released and must be run"]
#[expect(clippy::exhaustive_enums, reason = "a call is released or it is not")]
pub enum Release {
    /// It may; this is what to run.
    Run {
        /// The tool.
        name: String,
        /// The arguments.
        input: Value,
        /// What a person answered.
        answered: Option<PersonsAnswer>,
    },
    /// It may not: something has come in the meantime.
    Forbidden,
}

/// Why calls without an outcome are failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a call is left open by its step or by its process")]
pub enum Unsettled {
    /// The step settles in the process that ran it.
    AtSettlement,
    /// The process that ran it is gone.
    AtSweep,
}

/// What the end of a step brings with it besides the ledger's own evidence.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StepEnd {
    /// What the answer cost, in nano-units of money, where the price is known.
    pub cost_nanos: Option<u64>,
    /// The files that the step changed, where they are watched.
    pub files: Option<Value>,
}

impl StepEnd {
    /// A cost and files.
    pub fn new(cost_nanos: Option<u64>, files: Option<Value>) -> Self {
        Self { cost_nanos, files }
    }
}

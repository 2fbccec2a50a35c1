//! Durable events: the facts of a session, stable from the first release.
//!
//! An event says what happened and nothing that could be computed from other events.
//! Deltas are never durable; [`crate::LiveEvent`] has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use settled_provider_api::{ErrorClass, FinishReason, ModelRef, Usage};
use settled_tools_api::{CallKey, Content, EffectKey, Media, MessageId, ReplayClass};

use crate::{ExecutionId, InputId, Settlement, Timestamp};

macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $kind:literal, $version:literal;)*) => {
        /// One durable event.
        ///
        /// In the log it is a row: its kind, a schema version, and a JSON object; see [`crate::Recorded`].
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$doc])* $variant($variant),)*
            /// An event of a kind, or of a version, that this version does not know; it is kept as it is.
            Unknown(UnknownEvent),
        }

        impl Event {
            /// Every kind that this version writes, with its schema version.
            pub const KINDS: &'static [(&'static str, u16)] = &[$(($kind, $version),)*];

            /// The kind as it stands in the log: `step.started`, ….
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$variant(_) => $kind,)*
                    Self::Unknown(event) => &event.kind,
                }
            }

            /// The schema version it is written with.
            pub fn version(&self) -> u16 {
                match self {
                    $(Self::$variant(_) => $version,)*
                    Self::Unknown(event) => event.version,
                }
            }

            /// The JSON object of its fields.
            pub(crate) fn encode(&self) -> Result<String, serde_json::Error> {
                match self {
                    $(Self::$variant(event) => serde_json::to_string(event),)*
                    Self::Unknown(event) => Ok(event.body.clone()),
                }
            }

            /// Reads the fields of a kind in its present version; `None` for a kind that is not known.
            pub(crate) fn decode(kind: &str, body: &str) -> Option<Result<Self, serde_json::Error>> {
                match kind {
                    $($kind => Some(serde_json::from_str(body).map(Self::$variant)),)*
                    _ => None,
                }
            }
        }

        $(impl From<$variant> for Event {
            fn from(event: $variant) -> Self {
                Self::$variant(event)
            }
        })*
    };
}

events! {
    /// The session exists.
    SessionCreated = "session.created", 1;
    /// From here on this agent runs.
    AgentSelected = "agent.selected", 1;
    /// From here on this model is asked.
    ModelSelected = "model.selected", 1;
    /// A busy period begins, or goes on in a new process.
    ExecutionStarted = "execution.started", 1;
    /// The busy period is over.
    ExecutionSettled = "execution.settled", 1;
    /// Admitted input has become part of the history.
    InputPromoted = "input.promoted", 1;
    /// The system says something in a person's place.
    Synthetic = "synthetic", 1;
    /// Sources of instructions say something else than before.
    InstructionsUpdated = "instructions.updated", 1;
    /// A request is about to be sent.
    StepStarted = "step.started", 1;
    /// A block of text has opened.
    TextStarted = "text.started", 1;
    /// A block of text has closed; this is all of it.
    TextEnded = "text.ended", 1;
    /// A block of reasoning has opened.
    ReasoningStarted = "reasoning.started", 1;
    /// A block of reasoning has closed; this is all of it.
    ReasoningEnded = "reasoning.ended", 1;
    /// The model has made media.
    MediaAdded = "media.added", 1;
    /// The provider has added a citation or a source.
    AnnotationAdded = "annotation.added", 1;
    /// The first sign of a call.
    ToolInputStarted = "tool.input.started", 1;
    /// No more of a call's arguments will come.
    ToolInputEnded = "tool.input.ended", 1;
    /// The model has made a complete call.
    ToolCalled = "tool.called", 1;
    /// From here on the tool may act.
    ToolStarted = "tool.started", 1;
    /// A running tool has left a note.
    ToolNoted = "tool.noted", 1;
    /// The call has succeeded.
    ToolSuccess = "tool.success", 1;
    /// The call has failed.
    ToolFailed = "tool.failed", 1;
    /// Whether the call has acted is not known.
    ToolUnknown = "tool.unknown", 1;
    /// A call waits for a person.
    InteractionRequested = "interaction.requested", 1;
    /// The person has answered.
    InteractionAnswered = "interaction.answered", 1;
    /// The step was interrupted from outside.
    InterruptRecorded = "interrupt.recorded", 1;
    /// The stream is over; the step can be rebuilt from here.
    StepStreamed = "step.streamed", 1;
    /// The step has settled, cleanly.
    StepEnded = "step.ended", 1;
    /// The step has settled, otherwise.
    StepFailed = "step.failed", 1;
    /// Another attempt is due.
    RetryScheduled = "retry.scheduled", 1;
    /// A summary is about to be asked for.
    CompactionStarted = "compaction.started", 1;
    /// From here on the summary stands for what came before.
    CompactionEnded = "compaction.ended", 1;
    /// There is no summary; the history stands.
    CompactionFailed = "compaction.failed", 1;
}

macro_rules! facts {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident : $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            #[expect(clippy::exhaustive_structs, reason = "facts are written by the runner, which moves in step with this crate")]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }
        )*
    };
}

facts! {
    /// The session exists.
    SessionCreated {
        /// The agent it starts with.
        agent: String,
        /// The model it starts with.
        model: ModelRef,
        /// What it can be found by.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        tags: BTreeMap<String, String>,
    }

    /// From here on this agent runs.
    AgentSelected {
        /// The agent.
        agent: String,
    }

    /// From here on this model is asked.
    ModelSelected {
        /// The model.
        model: ModelRef,
    }

    /// A busy period begins, or goes on in a new process.
    ExecutionStarted {
        /// The busy period.
        execution: ExecutionId,
        /// How often it was taken up again without settling: 0 at its beginning.
        #[serde(default)]
        resume: u32,
    }

    /// The busy period is over.
    ExecutionSettled {
        /// The busy period.
        execution: ExecutionId,
        /// How it went.
        outcome: Outcome,
        /// What went wrong, if something did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<StepError>,
    }

    /// Admitted input has become part of the history.
    InputPromoted {
        /// The input.
        input: InputId,
        /// How it was to be delivered.
        delivery: Delivery,
        /// What it says.
        content: Vec<Content>,
    }

    /// The system says something in a person's place.
    Synthetic {
        /// Why.
        reason: SyntheticReason,
        /// What it says.
        text: String,
    }

    /// Sources of instructions say something else than before; the first observation stands in the prefix of every request.
    InstructionsUpdated {
        /// What has changed, in the order of the sources; at the first observation, all there is.
        changed: Vec<Instruction>,
    }

    /// What one source of instructions says.
    Instruction {
        /// The source.
        key: String,
        /// The text; `None` where the source has nothing to say any more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    }

    /// A request is about to be sent.
    StepStarted {
        /// The step.
        message: MessageId,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The agent that runs.
        agent: String,
        /// The model that is asked.
        model: ModelRef,
        /// The step whose cut answer it goes on from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        continues: Option<MessageId>,
        /// Whether it is a final, text-only step: its calls are not run.
        #[serde(default, skip_serializing_if = "is_false")]
        last: bool,
    }

    /// A block of text has opened.
    TextStarted {
        /// The step.
        message: MessageId,
        /// Its place among the step's blocks of text, from 0.
        ordinal: u32,
    }

    /// A block of text has closed; this is all of it.
    TextEnded {
        /// The step.
        message: MessageId,
        /// Its place among the step's blocks of text, from 0.
        ordinal: u32,
        /// The whole text.
        text: String,
        /// Provider state that goes back with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Value>,
    }

    /// A block of reasoning has opened.
    ReasoningStarted {
        /// The step.
        message: MessageId,
        /// Its place among the step's blocks of reasoning, from 0.
        ordinal: u32,
    }

    /// A block of reasoning has closed; this is all of it.
    ReasoningEnded {
        /// The step.
        message: MessageId,
        /// Its place among the step's blocks of reasoning, from 0.
        ordinal: u32,
        /// The whole text; empty where only state came.
        text: String,
        /// Provider state that goes back with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Value>,
    }

    /// The model has made media.
    MediaAdded {
        /// The step.
        message: MessageId,
        /// The media.
        media: Media,
        /// Provider state that goes back with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Value>,
    }

    /// The provider has added a citation or a source.
    AnnotationAdded {
        /// The step.
        message: MessageId,
        /// What kind of note, in the provider's words.
        kind: String,
        /// The note as the provider gave it.
        data: Value,
    }

    /// The first sign of a call.
    ToolInputStarted {
        /// The step.
        message: MessageId,
        /// The call's place in the step.
        call: u32,
        /// The provider's id: a label on the wire.
        id: String,
        /// The tool's name.
        name: String,
        /// Whether the provider runs it itself.
        #[serde(default, skip_serializing_if = "is_false")]
        hosted: bool,
    }

    /// No more of a call's arguments will come.
    ToolInputEnded {
        /// The step.
        message: MessageId,
        /// The call's place in the step.
        call: u32,
        /// The raw text of the arguments.
        text: String,
    }

    /// The model has made a complete call.
    ToolCalled {
        /// The step.
        message: MessageId,
        /// The call's place in the step.
        call: u32,
        /// The tool's name.
        name: String,
        /// The arguments, as an object.
        input: Value,
        /// Whether the provider runs it itself.
        #[serde(default, skip_serializing_if = "is_false")]
        hosted: bool,
        /// What the tool says about running again; `None` for a hosted call and an unknown tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        replay: Option<ReplayClass>,
        /// Provider state that goes back with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Value>,
    }

    /// From here on the tool may act.
    ToolStarted {
        /// The step.
        message: MessageId,
        /// The call's place in the step.
        call: u32,
    }

    /// A running tool has left a note for a later run or its reconciler.
    ToolNoted {
        /// The step.
        message: MessageId,
        /// The call's place in the step.
        call: u32,
        /// The note.
        note: Value,
    }

    /// The call has succeeded.
    ToolSuccess {
        /// The step.
        message: MessageId,
        /// The call's place in the step.
        call: u32,
        /// What the model is shown; never empty.
        content: Vec<Content>,
        /// What only the application sees.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Value>,
        /// What was done to bound the content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bounded: Option<Bounded>,
        /// Provider state of a hosted result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Value>,
    }

    /// The call has failed.
    ToolFailed {
        /// The step.
        message: MessageId,
        /// The call's place in the step.
        call: u32,
        /// Why.
        cause: FailureCause,
        /// What is wrong with the arguments, for `invalid_arguments`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<ArgumentsFault>,
        /// Whether the tool may have acted without saying so.
        #[serde(default, skip_serializing_if = "is_false")]
        may_have_acted: bool,
        /// What the model is shown; never empty.
        content: Vec<Content>,
        /// What only the application sees.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Value>,
        /// What was done to bound the content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        bounded: Option<Bounded>,
        /// Provider state of a hosted result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Value>,
    }

    /// Whether the call has acted is not known.
    ToolUnknown {
        /// The step.
        message: MessageId,
        /// The call's place in the step.
        call: u32,
        /// What the model is shown; never empty.
        content: Vec<Content>,
    }

    /// A call waits for a person.
    InteractionRequested {
        /// The step.
        message: MessageId,
        /// The call's place in the step.
        call: u32,
        /// What is asked for.
        kind: InteractionKind,
        /// The question, for the person.
        text: String,
        /// What the tool needs to go on, for a question.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Value>,
        /// The call's effect key; an answer must name it.
        effect_key: EffectKey,
        /// The hash of the canonical arguments; an answer must name it.
        arguments_hash: String,
    }

    /// The person has answered.
    InteractionAnswered {
        /// The step.
        message: MessageId,
        /// The call's place in the step.
        call: u32,
        /// What kind of answer.
        answer: AnswerKind,
        /// The answer's text, or the feedback of a decline.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    }

    /// The step was interrupted from outside.
    InterruptRecorded {
        /// The step; `None` where none was running.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<MessageId>,
        /// By whom.
        by: InterruptedBy,
    }

    /// The stream is over; the step can be rebuilt from here.
    StepStreamed {
        /// The step.
        message: MessageId,
        /// How the stream ended.
        exit: ExitKind,
        /// The failure that was recorded first, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<StepError>,
        /// Whether an error in the stream, a violation or a released overflow broke the answer.
        #[serde(default, skip_serializing_if = "is_false")]
        broken: bool,
        /// Why the provider stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish: Option<FinishReason>,
        /// The provider's own word for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw_finish: Option<String>,
        /// What the answer used, where the provider said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// Provider state of the whole response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Value>,
    }

    /// The step has settled, cleanly.
    StepEnded {
        /// The step.
        message: MessageId,
        /// Why the provider stopped.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish: Option<FinishReason>,
        /// The provider's own word for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw_finish: Option<String>,
        /// What the answer used, where the provider said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// What it cost, in nano-units of money, where the price is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_nanos: Option<u64>,
        /// The files that it changed, where they are watched.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<Value>,
        /// Provider state of the whole response.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Value>,
    }

    /// The step has settled, otherwise.
    StepFailed {
        /// The step.
        message: MessageId,
        /// The failure that was recorded first; `aborted` if there is none.
        error: StepError,
        /// The one classification of the step.
        settlement: Settlement,
        /// Why the provider stopped, if it said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish: Option<FinishReason>,
        /// The provider's own word for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw_finish: Option<String>,
        /// What the answer used, where the provider said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// What it cost, in nano-units of money, where the price is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_nanos: Option<u64>,
        /// The files that it changed, where they are watched.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        files: Option<Value>,
    }

    /// Another attempt is due.
    RetryScheduled {
        /// The step that failed: an attempt at it, or the cut step that a new one continues.
        message: MessageId,
        /// The number of the attempt that will run, counted over the step and its continuations.
        attempt: u32,
        /// How long to wait, in milliseconds.
        delay_ms: u64,
        /// When it is due.
        at: Timestamp,
        /// The failure.
        error: StepError,
    }

    /// A summary is about to be asked for.
    CompactionStarted {
        /// Why.
        reason: CompactionReason,
    }

    /// From here on the summary stands for what came before.
    CompactionEnded {
        /// Why.
        reason: CompactionReason,
        /// The summary.
        text: String,
        /// The end of the old history, word for word; empty where everything was summarised.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        recent: String,
        /// The model that was asked.
        model: ModelRef,
        /// What the summary used, where the provider said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// What it cost, in nano-units of money, where the price is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_nanos: Option<u64>,
    }

    /// There is no summary; the history stands.
    CompactionFailed {
        /// Why it was asked for.
        reason: CompactionReason,
        /// What went wrong.
        error: StepError,
        /// What the attempt used, where the provider said so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// What it cost, in nano-units of money, where the price is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_nanos: Option<u64>,
    }
}

/// An event that this version does not know, kept as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownEvent {
    /// Its kind.
    pub kind: String,
    /// Its schema version.
    pub version: u16,
    /// The JSON object of its fields.
    pub body: String,
}

impl Event {
    /// The step it belongs to, if it belongs to one.
    pub fn message(&self) -> Option<MessageId> {
        match self {
            Self::StepStarted(StepStarted { message, .. })
            | Self::TextStarted(TextStarted { message, .. })
            | Self::TextEnded(TextEnded { message, .. })
            | Self::ReasoningStarted(ReasoningStarted { message, .. })
            | Self::ReasoningEnded(ReasoningEnded { message, .. })
            | Self::MediaAdded(MediaAdded { message, .. })
            | Self::AnnotationAdded(AnnotationAdded { message, .. })
            | Self::ToolInputStarted(ToolInputStarted { message, .. })
            | Self::ToolInputEnded(ToolInputEnded { message, .. })
            | Self::ToolCalled(ToolCalled { message, .. })
            | Self::ToolStarted(ToolStarted { message, .. })
            | Self::ToolNoted(ToolNoted { message, .. })
            | Self::ToolSuccess(ToolSuccess { message, .. })
            | Self::ToolFailed(ToolFailed { message, .. })
            | Self::ToolUnknown(ToolUnknown { message, .. })
            | Self::InteractionRequested(InteractionRequested { message, .. })
            | Self::InteractionAnswered(InteractionAnswered { message, .. })
            | Self::StepStreamed(StepStreamed { message, .. })
            | Self::StepEnded(StepEnded { message, .. })
            | Self::StepFailed(StepFailed { message, .. })
            | Self::RetryScheduled(RetryScheduled { message, .. }) => Some(*message),
            Self::InterruptRecorded(InterruptRecorded { message, .. }) => *message,
            Self::SessionCreated(_)
            | Self::AgentSelected(_)
            | Self::ModelSelected(_)
            | Self::ExecutionStarted(_)
            | Self::ExecutionSettled(_)
            | Self::InputPromoted(_)
            | Self::Synthetic(_)
            | Self::InstructionsUpdated(_)
            | Self::CompactionStarted(_)
            | Self::CompactionEnded(_)
            | Self::CompactionFailed(_)
            | Self::Unknown(_) => None,
        }
    }

    /// The call it is about, if it is about one.
    #[expect(clippy::wildcard_enum_match_arm, reason = "most events are about no call")]
    pub fn call(&self) -> Option<CallKey> {
        match self {
            Self::ToolInputStarted(ToolInputStarted { message, call, .. })
            | Self::ToolInputEnded(ToolInputEnded { message, call, .. })
            | Self::ToolCalled(ToolCalled { message, call, .. })
            | Self::ToolStarted(ToolStarted { message, call })
            | Self::ToolNoted(ToolNoted { message, call, .. })
            | Self::ToolSuccess(ToolSuccess { message, call, .. })
            | Self::ToolFailed(ToolFailed { message, call, .. })
            | Self::ToolUnknown(ToolUnknown { message, call, .. })
            | Self::InteractionRequested(InteractionRequested { message, call, .. })
            | Self::InteractionAnswered(InteractionAnswered { message, call, .. }) => {
                Some(CallKey { step: *message, ordinal: *call })
            }
            _ => None,
        }
    }
}

/// What went wrong with a step, or with an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepError {
    /// What kind of failure it is.
    pub class: FailureClass,
    /// What a person may read; never empty.
    pub message: String,
}

impl StepError {
    /// A failure of a class.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }
}

impl std::fmt::Display for StepError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.class.name(), self.message)
    }
}

/// The kinds of failure of a step or an execution: a provider's classes and our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureClass {
    /// The provider failed.
    Provider(ErrorClass),
    /// The provider never gave the result of a call that it ran itself.
    ResultMissing,
    /// The host's machinery broke under a tool.
    Infra,
    /// Our code, or an adapter's, broke: a panic.
    Internal,
    /// Nothing failed: it was stopped.
    Aborted,
    /// The session's log is lost to this process.
    Store,
    /// The history could not be summarised, and does not fit.
    Compaction,
    /// The runner was not told what it needs: an agent, a model.
    Configuration,
}

impl FailureClass {
    const OWN: [Self; 7] = [
        Self::ResultMissing,
        Self::Infra,
        Self::Internal,
        Self::Aborted,
        Self::Store,
        Self::Compaction,
        Self::Configuration,
    ];

    /// The class as it is recorded: `rate_limit`, `aborted`, ….
    pub fn name(self) -> &'static str {
        match self {
            Self::Provider(class) => class.name(),
            Self::ResultMissing => "result_missing",
            Self::Infra => "infra",
            Self::Internal => "internal",
            Self::Aborted => "aborted",
            Self::Store => "store",
            Self::Compaction => "compaction",
            Self::Configuration => "configuration",
        }
    }
}

impl Serialize for FailureClass {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for FailureClass {
    /// A class that a newer version wrote reads as the provider's `unknown`.
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        let own = Self::OWN.into_iter().find(|class| class.name() == name);
        let class = ErrorClass::ALL.into_iter().find(|class| class.name() == name);
        Ok(own.unwrap_or_else(|| Self::Provider(class.unwrap_or(ErrorClass::Unknown))))
    }
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
            #[non_exhaustive]
            pub enum $name {
                $($(#[$word_doc])* #[serde(rename = $word)] $variant,)*
            }

            impl $name {
                /// The word as it stands in the log.
                pub fn name(self) -> &'static str {
                    match self {
                        $(Self::$variant => $word,)*
                    }
                }
            }
        )*
    };
}

words! {
    /// How an execution went.
    Outcome {
        /// Its last step settled cleanly and nothing is left to do.
        Completed = "completed",
        /// It was stopped.
        Interrupted = "interrupted",
        /// It failed.
        Failed = "failed",
        /// It waits for a person.
        Parked = "parked",
    }

    /// When input is to be promoted.
    Delivery {
        /// At the next step boundary.
        Steer = "steer",
        /// When the session would go idle, one at a time.
        Queue = "queue",
    }

    /// Why the system says something in a person's place.
    SyntheticReason {
        /// A cut answer goes on.
        Continue = "continue",
        /// The process was restarted while something was visible.
        Restart = "restart",
        /// The application says it.
        Application = "application",
    }

    /// Who interrupted.
    InterruptedBy {
        /// A person, or the application in a person's place.
        User = "user",
        /// The process is shutting down.
        Shutdown = "shutdown",
    }

    /// How a stream ended.
    ExitKind {
        /// By itself.
        Completed = "completed",
        /// With an error, or because we broke it off.
        Failed = "failed",
        /// Because of an interrupt.
        Interrupted = "interrupted",
    }

    /// Why a call failed.
    FailureCause {
        /// The tool answered with a failure.
        Execution = "execution",
        /// The tool panicked.
        Panic = "panic",
        /// It took too long.
        Timeout = "timeout",
        /// No tool of that name was on offer.
        UnknownTool = "unknown_tool",
        /// The arguments cannot be used; the detail says why.
        InvalidArguments = "invalid_arguments",
        /// A person refused it.
        Declined = "declined",
        /// A person closed its question unanswered.
        Dismissed = "dismissed",
        /// A rule refused it.
        Denied = "denied",
        /// It was stopped after it had begun to run.
        Interrupted = "interrupted",
        /// It was stopped before it began to run.
        NotRun = "not_run",
        /// The host's machinery broke.
        Infra = "infra",
        /// The provider never gave its result.
        ResultMissing = "result_missing",
        /// Tools are off in the final step.
        ToolsDisabled = "tools_disabled",
    }

    /// What is wrong with a call's arguments.
    ArgumentsFault {
        /// They are no JSON.
        NotJson = "not_json",
        /// They ended before they were closed.
        CutOff = "cut_off",
        /// They do not fit the tool's schema.
        Schema = "schema",
    }

    /// What a person is asked for.
    InteractionKind {
        /// Whether the call may run.
        Approval = "approval",
        /// An answer that the tool needs.
        Question = "question",
    }

    /// What kind of answer a person gave.
    AnswerKind {
        /// The call may run.
        Approved = "approved",
        /// The call may not run.
        Declined = "declined",
        /// The question was closed unanswered.
        Dismissed = "dismissed",
        /// A text.
        Text = "text",
    }

    /// Why history is summarised.
    CompactionReason {
        /// It is about to become too long.
        Auto = "auto",
        /// The provider refused it as too long.
        Overflow = "overflow",
        /// Somebody asked for it.
        Manual = "manual",
    }
}

/// What was done to bound a call's content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Bounded {
    /// How many lines were left out.
    pub lines: u64,
    /// How many bytes were left out.
    pub bytes: u64,
    /// Where the full text is kept; `None` where keeping it failed, or nobody keeps it: then what was left out is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
}

impl Bounded {
    /// So many lines and bytes were left out; the full text is kept there, or is lost.
    pub fn new(lines: u64, bytes: u64, kept: Option<String>) -> Self {
        Self { lines, bytes, kept }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

//! What the ledger records: blocks, calls, failures.

use serde_json::Value;
use settled_provider_api::{ErrorClass, ProviderError};
use settled_tools_api::{CallKey, MessageId, ReplayClass, SessionId};

use super::DeltaKind;
use super::settle::merge;
use crate::event::*;
use crate::violation::{Rule, Violation};
use crate::{InfraCause, arguments_hash, effect_key};

/// A block of the stream.
#[derive(Clone, Debug)]
pub(super) enum Block {
    Vacant,
    Text(Fragment),
    Reasoning(Fragment),
    Call(u32),
    Media,
}

/// A block of text or reasoning.
#[derive(Clone, Debug)]
pub(super) struct Fragment {
    pub(super) ordinal: u32,
    /// What has come so far; `None` once it is closed.
    pub(super) open: Option<OpenFragment>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct OpenFragment {
    pub(super) text: String,
    pub(super) state: Option<Value>,
}

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) label: String,
    pub(super) name: String,
    pub(super) hosted: bool,
    pub(super) stage: Stage,
    /// The arguments as text, as far as they have come.
    pub(super) raw: String,
    /// The arguments of a complete call.
    pub(super) input: Value,
    pub(super) replay: Option<ReplayClass>,
    /// What a person answered, for as long as the call has no outcome: a run whose result is lost may be taken up with it again.
    pub(super) answer: Option<PersonsAnswer>,
    /// Whether it was ever released to run.
    pub(super) ran: bool,
    /// How a settled call ended, as far as the settlement of the step depends on it.
    pub(super) end: Option<CallEnd>,
}

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Stage {
    /// Its arguments are coming.
    InputOpen,
    /// Its arguments have ended; it has not been called.
    InputClosed,
    /// It is complete; it has not been started.
    Called,
    /// It waits for a person's leave to start.
    ParkedForApproval,
    /// It has asked a person a question.
    ParkedForQuestion,
    /// Its start is recorded; it may run once that is durable.
    Starting,
    /// It may be running.
    Running,
    /// It has its outcome.
    Settled,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallEnd {
    Answered,
    Stopped,
    Dismissed,
    /// It ran and was stopped without an answer.
    Cancelled,
    Infra(InfraCause),
}

/// What a person said, kept for the run that goes on with it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PersonsAnswer {
    /// The call may run.
    Approved,
    /// The answer to a tool's question, with the state that the tool gave.
    Text {
        /// The state.
        state: Value,
        /// The answer.
        text: String,
    },
}

/// A hosted call that an earlier, paused step left open.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CarriedCall {
    /// The call.
    pub key: CallKey,
    /// Its label on the wire.
    pub label: String,
    pub(super) settled: bool,
}

impl CarriedCall {
    /// An open hosted call of an earlier step.
    pub fn new(key: CallKey, label: impl Into<String>) -> Self {
        Self { key, label: label.into(), settled: false }
    }
}

/// A failure that was recorded, with what a retry needs to know about it.
///
/// Read from the log it is [`Provider`](Self::Provider), without status, code and hint, or [`Other`](Self::Other).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Failure {
    /// The provider failed, in its stream or instead of it.
    Provider(ProviderError),
    /// The stream protocol was broken.
    Violation(Violation),
    /// The adapter panicked.
    Panic(String),
    /// Anything else.
    Other(StepError),
}

impl Failure {
    /// The failure as it is recorded.
    pub fn to_error(&self) -> StepError {
        match self {
            Self::Provider(error) => {
                let message = match (error.status, &error.code) {
                    (None, None) => error.message.clone(),
                    (Some(status), None) => format!("{} (status {status})", error.message),
                    (None, Some(code)) => format!("{} (code {code})", error.message),
                    (Some(status), Some(code)) => format!("{} (status {status}, code {code})", error.message),
                };
                StepError::new(FailureClass::Provider(error.class), message)
            }
            Self::Violation(violation) => {
                StepError::new(FailureClass::Provider(ErrorClass::InvalidOutput), violation.to_string())
            }
            Self::Panic(text) => {
                StepError::new(FailureClass::Internal, format!("the provider's adapter panicked: {text}"))
            }
            Self::Other(error) => error.clone(),
        }
    }
}

impl Fragment {
    /// Closes it; a text at the end wins over the pieces.
    pub(super) fn close(
        &mut self,
        message: MessageId,
        kind: DeltaKind,
        authoritative: Option<&str>,
        last_state: Option<&Value>,
    ) -> Result<Event, Violation> {
        let ordinal = self.ordinal;
        let Some(mut open) = self.open.take() else {
            return Err(Violation::new(Rule::EndTwice, format!("{kind:?} {ordinal}")));
        };
        merge(&mut open.state, last_state);
        let text = authoritative.map_or(open.text, str::to_owned);
        let state = open.state;
        Ok(match kind {
            DeltaKind::Text => TextEnded { message, ordinal, text, state }.into(),
            DeltaKind::Reasoning | DeltaKind::ToolInput => ReasoningEnded { message, ordinal, text, state }.into(),
        })
    }
}

impl Call {
    pub(super) fn new(label: &str, name: &str, hosted: bool) -> Self {
        Self {
            label: label.to_owned(),
            name: name.to_owned(),
            hosted,
            stage: Stage::InputOpen,
            raw: String::new(),
            input: Value::Null,
            replay: None,
            answer: None,
            ran: false,
            end: None,
        }
    }

    pub(super) fn close_input(&mut self, message: MessageId, ordinal: u32) -> Option<Event> {
        (self.stage == Stage::InputOpen).then(|| {
            self.stage = Stage::InputClosed;
            ToolInputEnded { message, call: ordinal, text: self.raw.clone() }.into()
        })
    }

    /// Takes a name that came later; a blank one changes nothing, and another one is a violation.
    pub(super) fn rename(&mut self, ordinal: u32, name: &str) -> Result<(), Violation> {
        if self.name.is_empty() {
            name.clone_into(&mut self.name);
        }
        if name.is_empty() || name == self.name {
            Ok(())
        } else {
            Err(Violation::new(Rule::NameChanged, format!("call {ordinal}: `{name}` after `{}`", self.name)))
        }
    }

    pub(super) fn request(
        &self,
        key: CallKey,
        kind: InteractionKind,
        text: String,
        state: Option<Value>,
        session: &SessionId,
    ) -> Event {
        InteractionRequested {
            message: key.step,
            call: key.ordinal,
            kind,
            text,
            state,
            effect_key: effect_key(session, key),
            arguments_hash: arguments_hash(&self.input),
        }
        .into()
    }
}

//! Input from outside: what may be handed to a session, and what is pending.

use serde::{Deserialize, Serialize};
use settled_provider_api::ModelRef;
use settled_tools_api::{CallKey, Content, EffectKey};

use crate::{AnswerKind, Delivery, ExecutionId, InputId, InterruptedBy, Timestamp};

/// An input that is to be admitted.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NewInput {
    /// Its id, should it be new.
    pub id: InputId,
    /// A key by which admitting it again is recognised, within its session and for good.
    pub key: Option<String>,
    /// When it was handed in.
    pub at: Timestamp,
    /// Whether it wakes the session.
    pub wake: Wake,
    /// What it says.
    pub kind: NewInputKind,
}

impl NewInput {
    /// An input without a key that wakes the session.
    pub fn new(id: InputId, at: Timestamp, kind: NewInputKind) -> Self {
        Self { id, key: None, at, wake: Wake::Now, kind }
    }

    /// The same input under a key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Option<String>>) -> Self {
        self.key = key.into();
        self
    }

    /// The same input, recorded without waking the session.
    #[must_use]
    pub fn without_waking(mut self) -> Self {
        self.wake = Wake::Later;
        self
    }
}

/// Whether an input wakes its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "it wakes or it does not")]
pub enum Wake {
    /// It does.
    #[default]
    Now,
    /// It waits until something else does.
    Later,
}

/// The place of an input in its session's order of arrival, from 1; it is never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Arrival(u64);

impl Arrival {
    /// A place by its number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of this place.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// An input that is pending.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InboxItem {
    /// Its id.
    pub id: InputId,
    /// Its place in the order of arrival.
    pub arrival: Arrival,
    /// The key it was admitted under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When it was handed in.
    pub at: Timestamp,
    /// What it says.
    pub input: NewInputKind,
}

impl InboxItem {
    /// An input at its place.
    pub fn new(input: NewInput, arrival: Arrival) -> Self {
        Self { id: input.id, arrival, key: input.key, at: input.at, input: input.kind }
    }
}

/// What an input says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "a drain must handle every kind of input")]
pub enum NewInputKind {
    /// A person says something.
    Prompt(Prompt),
    /// The application says something in a person's place.
    Notice(Notice),
    /// History is to be summarised at the next border.
    Compact,
    /// The session is to go on with another agent or model.
    Switch(Switch),
    /// An execution is to stop.
    Interrupt(Interrupt),
    /// A person answers a call that waits.
    Answer(Answer),
}

impl NewInputKind {
    /// Whether it needs a drain: a session must not go idle on it.
    pub fn asks_for_a_run(&self) -> bool {
        match self {
            Self::Prompt(_) | Self::Notice(_) | Self::Compact | Self::Switch(_) => true,
            Self::Interrupt(_) | Self::Answer(_) => false,
        }
    }

    /// When it is to be delivered, for what is delivered as a message.
    pub fn delivery(&self) -> Option<Delivery> {
        match self {
            Self::Prompt(Prompt { delivery, .. }) | Self::Notice(Notice { delivery, .. }) => Some(*delivery),
            Self::Compact | Self::Switch(_) | Self::Interrupt(_) | Self::Answer(_) => None,
        }
    }
}

/// A person says something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Prompt {
    /// What it says.
    pub content: Vec<Content>,
    /// When it is to be delivered.
    pub delivery: Delivery,
}

impl Prompt {
    /// A prompt for a delivery.
    pub fn new(content: Vec<Content>, delivery: Delivery) -> Self {
        Self { content, delivery }
    }
}

/// The application says something in a person's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Notice {
    /// What it says.
    pub text: String,
    /// When it is to be delivered.
    pub delivery: Delivery,
}

impl Notice {
    /// A notice for a delivery.
    pub fn new(text: impl Into<String>, delivery: Delivery) -> Self {
        Self { text: text.into(), delivery }
    }
}

/// The session is to go on with another agent or model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Switch {
    /// The agent, if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model, if it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
}

impl Switch {
    /// A switch to another model.
    pub fn model(model: ModelRef) -> Self {
        Self { agent: None, model: Some(model) }
    }

    /// A switch to another agent.
    pub fn agent(agent: impl Into<String>) -> Self {
        Self { agent: Some(agent.into()), model: None }
    }
}

/// An execution is to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Interrupt {
    /// The execution that whoever interrupts saw running.
    pub execution: ExecutionId,
    /// Who interrupts.
    pub by: InterruptedBy,
}

impl Interrupt {
    /// An interrupt of an execution.
    pub fn new(execution: ExecutionId, by: InterruptedBy) -> Self {
        Self { execution, by }
    }
}

/// A person answers a call that waits.
///
/// It counts only for the very call and arguments that the person saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Answer {
    /// The call.
    pub call: CallKey,
    /// The call's effect key, as the request for the answer gave it.
    pub effect_key: EffectKey,
    /// The hash of the call's canonical arguments, as the request gave it.
    pub arguments_hash: String,
    /// What kind of answer.
    pub answer: AnswerKind,
    /// The answer's text, or the feedback of a decline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl Answer {
    /// An answer to a call, bound to its effect key and arguments.
    pub fn new(call: CallKey, effect_key: EffectKey, arguments_hash: String, answer: AnswerKind) -> Self {
        Self { call, effect_key, arguments_hash, answer, text: None }
    }

    /// The same answer with a text.
    #[must_use]
    pub fn text(mut self, text: impl Into<Option<String>>) -> Self {
        self.text = text.into();
        self
    }
}

//! What one attempt asks of a provider.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use settled_tools_api::{CallKey, Content, Media, MessageId, SessionId, ToolDefinition};

use crate::ModelRef;

/// One request: immutable, shared, its messages shared with earlier requests.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Request {
    /// The model that is asked.
    pub model: ModelRef,
    /// The system prompt in parts, in order; none is empty.
    pub system: Arc<[Arc<str>]>,
    /// The history, oldest first.
    pub messages: Vec<Arc<Message>>,
    /// The tools on offer.
    pub tools: Arc<[ToolDefinition]>,
    /// Which of them the model may call.
    pub tool_choice: ToolChoice,
    /// The most tokens the answer may have; the provider's own limit where `None`.
    pub max_output: Option<u64>,
    /// Further settings.
    pub options: Arc<Options>,
    /// For which session, step and attempt it is.
    pub purpose: Purpose,
}

impl Request {
    /// A request without tools and settings.
    pub fn new(model: ModelRef, purpose: Purpose) -> Self {
        Self {
            model,
            system: Arc::default(),
            messages: Vec::new(),
            tools: Arc::default(),
            tool_choice: ToolChoice::Auto,
            max_output: None,
            options: Arc::default(),
            purpose,
        }
    }
}

/// For which session, step and attempt a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Purpose {
    /// The session.
    pub session: SessionId,
    /// What the answer is for.
    pub kind: RequestKind,
    /// The step that is asked for; for a summary, the step before which it is made.
    pub step: MessageId,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

impl Purpose {
    /// Attempt 1 at a step.
    pub fn step(session: SessionId, step: MessageId) -> Self {
        Self { session, kind: RequestKind::Step, step, attempt: 1 }
    }

    /// Attempt 1 at a summary.
    pub fn summary(session: SessionId, step: MessageId) -> Self {
        Self { session, kind: RequestKind::Summary, step, attempt: 1 }
    }

    /// The session's name in at most 64 characters, for a provider that keeps a cache under a key: the same in all requests of the session.
    ///
    /// A longer name keeps its beginning and ends with a hash of the whole.
    pub fn cache_key(&self) -> Cow<'_, str> {
        const LONGEST: usize = 64;
        let name = self.session.as_str();
        if name.chars().count() <= LONGEST {
            return Cow::Borrowed(name);
        }
        // FNV-1a: stable over versions and machines, which the standard library's hashes are not.
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, step);
        let begin: String = name.chars().take(LONGEST - 17).collect();
        Cow::Owned(format!("{begin}-{hash:016x}"))
    }

    /// The same purpose with another attempt number.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }
}

/// What an answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RequestKind {
    /// A step of the session.
    Step,
    /// A summary of old history.
    Summary,
}

/// Which tools the model may call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "an adapter must lower every choice")]
pub enum ToolChoice {
    /// Any or none.
    #[default]
    Auto,
    /// None; the definitions are still sent.
    None,
    /// At least one.
    Required,
    /// This one.
    Tool(String),
}

/// Further settings of a request.
///
/// An adapter that cannot express one refuses the request with `unsupported`; it never drops one silently.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Options {
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// A seed for sampling.
    pub seed: Option<u64>,
    /// The form the answer must have.
    pub response_format: Option<ResponseFormat>,
    /// Whether the model may call several tools at once.
    pub parallel_tool_calls: Option<bool>,
    /// How much the model should reason, in the provider's own words.
    pub reasoning_effort: Option<String>,
    /// The provider's tier of service.
    pub service_tier: Option<String>,
    /// Fields that go into the request body as they are; they win over everything else.
    pub raw: Map<String, Value>,
}

/// The form an answer must have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ResponseFormat {
    /// A JSON object of any form.
    JsonObject,
    /// JSON that fits a schema.
    JsonSchema {
        /// A name for the schema.
        name: String,
        /// The schema.
        schema: Value,
        /// Whether the provider must hold to it strictly.
        strict: bool,
    },
}

/// One message of the history.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "an adapter must lower every role")]
pub enum Message {
    /// A notice from the system in the middle of the history; only to models that allow it.
    System(String),
    /// What a person, or the system in a person's place, said.
    User(Vec<Content>),
    /// What the model answered.
    Assistant(Vec<AssistantPart>),
    /// The result of one local call; results follow right behind the message that called, in its order.
    Tool(ToolResult),
}

impl Message {
    /// A person's text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(vec![Content::Text(text.into())])
    }

    /// A model's text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::Assistant(vec![AssistantPart::Text(TextPart::new(text))])
    }
}

/// One part of an assistant message.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "an adapter must lower every part")]
pub enum AssistantPart {
    /// Text.
    Text(TextPart),
    /// Reasoning, sent back only to the model that it came from.
    Reasoning(TextPart),
    /// A tool call, local or hosted.
    Call(CallPart),
    /// The result of a hosted call.
    HostedResult(HostedResultPart),
    /// Media that the model made.
    Media(Media),
}

/// Text or reasoning.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TextPart {
    /// The text; empty only where there is state.
    pub text: String,
    /// Provider state, present only where it may go back.
    pub state: Option<Value>,
}

impl TextPart {
    /// Text without state.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), state: None }
    }

    /// The same text with state.
    #[must_use]
    pub fn state(mut self, state: Option<Value>) -> Self {
        self.state = state;
        self
    }
}

/// A call in an assistant message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CallPart {
    /// The call's identity.
    pub key: CallKey,
    /// The label for the wire: never blank, unique in the request.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, always an object.
    pub input: Value,
    /// Whether the provider ran it itself.
    pub hosted: bool,
    /// Provider state, present only where it may go back.
    pub state: Option<Value>,
}

impl CallPart {
    /// A local call without state.
    pub fn new(key: CallKey, id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        Self { key, id: id.into(), name: name.into(), input, hosted: false, state: None }
    }

    /// The same call, run by the provider.
    #[must_use]
    pub fn hosted(mut self) -> Self {
        self.hosted = true;
        self
    }

    /// The same call with state.
    #[must_use]
    pub fn state(mut self, state: Option<Value>) -> Self {
        self.state = state;
        self
    }
}

/// The result of a hosted call in an assistant message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HostedResultPart {
    /// The call's identity.
    pub key: CallKey,
    /// The label of the call on the wire.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Whether it failed.
    pub error: bool,
    /// What it gave.
    pub content: Vec<Content>,
    /// The result as the provider wants it back.
    pub state: Option<Value>,
}

impl HostedResultPart {
    /// A hosted call's result.
    pub fn new(key: CallKey, id: impl Into<String>, name: impl Into<String>, content: Vec<Content>) -> Self {
        Self { key, id: id.into(), name: name.into(), error: false, content, state: None }
    }
}

/// The result of a local call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolResult {
    /// The call's identity.
    pub key: CallKey,
    /// The label of the call on the wire.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Whether the call failed, or its outcome is unknown.
    pub error: bool,
    /// What the model is shown; never empty.
    pub content: Vec<Content>,
}

impl ToolResult {
    /// A local call's result.
    pub fn new(
        key: CallKey,
        id: impl Into<String>,
        name: impl Into<String>,
        error: bool,
        content: Vec<Content>,
    ) -> Self {
        Self { key, id: id.into(), name: name.into(), error, content }
    }
}

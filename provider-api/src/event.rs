//! The events of one stream, in the order in which the model produced them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use settled_tools_api::{Content, Media};

use crate::{ProviderError, Usage};

/// One event of a provider's stream.
///
/// Blocks (text, reasoning, tool input) carry an index that the adapter gives: 0, 1, 2, … in order of appearance, one number space for all kinds, never used twice in a stream.
/// Several blocks may be open at once.
///
/// The enum is exhaustive on purpose: a wildcard arm where events are admitted would drop evidence.
/// Its payloads are `#[non_exhaustive]`: they are made with the constructors here.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "a wildcard arm in the ledger would drop evidence")]
pub enum ProviderEvent {
    /// The provider has begun to answer; optional, changes nothing by itself.
    StepStart,
    /// What the provider says about its response: ids, the model that served it.
    ResponseInfo(ResponseInfo),
    /// A block of text opens.
    TextStart(BlockStart),
    /// Text of an open block.
    TextDelta(BlockDelta),
    /// A block of text closes.
    TextEnd(BlockEnd),
    /// A block of reasoning opens.
    ReasoningStart(BlockStart),
    /// Reasoning of an open block.
    ReasoningDelta(BlockDelta),
    /// A block of reasoning closes.
    ReasoningEnd(BlockEnd),
    /// The first sign of a tool call.
    ToolInputStart(ToolInputStart),
    /// Raw JSON text of a call's arguments.
    ToolInputDelta(BlockDelta),
    /// The provider has closed a call's arguments.
    ToolInputEnd(ToolInputEnd),
    /// A call's arguments are closed and are no JSON.
    ToolInputMalformed(ToolInputMalformed),
    /// A complete call.
    ToolCall(ToolCallEvent),
    /// The result of a call that the provider ran itself.
    HostedResult(HostedResult),
    /// The failure of a call that the provider ran itself.
    HostedError(HostedError),
    /// Media that the model made.
    Media(MediaBlock),
    /// A citation or a source; changes no settlement.
    Annotation(Annotation),
    /// A sign of life without content; resets the idle limit, boundedly.
    Alive,
    /// The provider says why it stopped.
    Finish(Finish),
    /// The provider reports an error inside the stream.
    Error(ProviderError),
}

/// What the provider says about its response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ResponseInfo {
    /// The provider's id of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// The model that really served it, as the provider names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_model: Option<String>,
}

impl ResponseInfo {
    /// What the provider says: both may be missing.
    pub fn new(response_id: Option<String>, served_model: Option<String>) -> Self {
        Self { response_id, served_model }
    }
}

/// A block opens.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BlockStart {
    /// The block.
    pub index: u32,
    /// Provider state that goes back with the part; merged with that of the end.
    pub state: Option<Value>,
}

/// A piece of an open block.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BlockDelta {
    /// The block.
    pub index: u32,
    /// The piece; it may be empty.
    pub text: String,
    /// Provider state that came with the piece; merged.
    pub state: Option<Value>,
}

/// A block closes.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct BlockEnd {
    /// The block.
    pub index: u32,
    /// The whole text, where the provider gives an authoritative one: it wins over the pieces.
    pub text: Option<String>,
    /// Provider state that goes back with the part; merged.
    pub state: Option<Value>,
}

/// The first sign of a tool call.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolInputStart {
    /// The block.
    pub index: u32,
    /// The provider's id of the call: a label on the wire, which may be blank or repeated.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Whether the provider runs it itself.
    pub hosted: bool,
}

/// A call's arguments are closed.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolInputEnd {
    /// The block.
    pub index: u32,
}

/// A call whose closed arguments are no JSON.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolInputMalformed {
    /// The block.
    pub index: u32,
    /// The provider's id of the call.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Whether the provider runs it itself.
    pub hosted: bool,
    /// The text that is no JSON.
    pub raw: String,
}

/// A complete call.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ToolCallEvent {
    /// The block.
    pub index: u32,
    /// The provider's id of the call: a label on the wire, which may be blank or repeated.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The parsed arguments.
    pub input: Value,
    /// Whether the provider runs it itself.
    pub hosted: bool,
    /// Provider state that goes back with the call.
    pub state: Option<Value>,
}

/// The result of a hosted call.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HostedResult {
    /// The provider's id of the call it answers; the call may be of an earlier step that was paused.
    pub id: String,
    /// What the provider shows of the result.
    pub content: Vec<Content>,
    /// The result as the provider wants it back.
    pub state: Option<Value>,
}

/// The failure of a hosted call.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HostedError {
    /// The provider's id of the call.
    pub id: String,
    /// What went wrong.
    pub message: String,
    /// The result as the provider wants it back.
    pub state: Option<Value>,
}

/// Media that the model made.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MediaBlock {
    /// The block.
    pub index: u32,
    /// The media.
    pub media: Media,
    /// Provider state that goes back with the part.
    pub state: Option<Value>,
}

impl MediaBlock {
    /// A block of media.
    pub fn new(index: u32, media: Media, state: Option<Value>) -> Self {
        Self { index, media, state }
    }
}

/// A citation, a source, or another note beside the answer.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Annotation {
    /// The block it belongs to, if it belongs to one.
    pub index: Option<u32>,
    /// What kind it is, as the provider names it.
    pub kind: String,
    /// The note as the provider gave it.
    pub data: Value,
}

impl Annotation {
    /// A note of a kind, to a block or to the whole answer.
    pub fn new(index: Option<u32>, kind: impl Into<String>, data: Value) -> Self {
        Self { index, kind: kind.into(), data }
    }
}

/// Why the provider stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finish {
    /// The reason, normalised.
    pub reason: FinishReason,
    /// The provider's own word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// What the answer used; `None` where the provider did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Provider state of the whole response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
}

impl Finish {
    /// A finish with a reason and nothing else.
    pub fn new(reason: FinishReason) -> Self {
        Self { reason, raw: None, usage: None, state: None }
    }

    /// The same finish with the provider's own word.
    #[must_use]
    pub fn raw(mut self, raw: impl Into<String>) -> Self {
        self.raw = Some(raw.into());
        self
    }

    /// The same finish with what was used.
    #[must_use]
    pub fn usage(mut self, usage: impl Into<Option<Usage>>) -> Self {
        self.usage = usage.into();
        self
    }

    /// The same finish with provider state.
    #[must_use]
    pub fn state(mut self, state: impl Into<Option<Value>>) -> Self {
        self.state = state.into();
        self
    }
}

/// Why a provider stopped, normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "settlement must decide on every reason; what is not known is `Unknown`")]
pub enum FinishReason {
    /// The answer is complete.
    Stop,
    /// The model waits for tool results.
    ToolCalls,
    /// The output limit was reached.
    Length,
    /// A filter cut the answer.
    ContentFilter,
    /// The model refused.
    Refusal,
    /// The provider paused a long answer; it goes on when the same history is sent again.
    Pause,
    /// A reason that the adapter does not know.
    Unknown,
}

impl FinishReason {
    /// The reason as it is recorded: `stop`, `tool_calls`, ….
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
            Self::Refusal => "refusal",
            Self::Pause => "pause",
            Self::Unknown => "unknown",
        }
    }
}

/// Short ways to make an event.
impl ProviderEvent {
    /// A block of text opens.
    pub fn text_start(index: u32) -> Self {
        Self::TextStart(BlockStart { index, state: None })
    }

    /// A piece of text.
    pub fn text_delta(index: u32, text: impl Into<String>) -> Self {
        Self::TextDelta(BlockDelta { index, text: text.into(), state: None })
    }

    /// A block of text closes.
    pub fn text_end(index: u32) -> Self {
        Self::TextEnd(BlockEnd { index, text: None, state: None })
    }

    /// A block of reasoning opens.
    pub fn reasoning_start(index: u32) -> Self {
        Self::ReasoningStart(BlockStart { index, state: None })
    }

    /// A piece of reasoning.
    pub fn reasoning_delta(index: u32, text: impl Into<String>) -> Self {
        Self::ReasoningDelta(BlockDelta { index, text: text.into(), state: None })
    }

    /// A block of reasoning closes, perhaps with state that goes back with it.
    pub fn reasoning_end(index: u32, state: Option<Value>) -> Self {
        Self::ReasoningEnd(BlockEnd { index, text: None, state })
    }

    /// The first sign of a local call.
    pub fn tool_input_start(index: u32, id: impl Into<String>, name: impl Into<String>) -> Self {
        Self::ToolInputStart(ToolInputStart { index, id: id.into(), name: name.into(), hosted: false })
    }

    /// A piece of a call's arguments.
    pub fn tool_input_delta(index: u32, text: impl Into<String>) -> Self {
        Self::ToolInputDelta(BlockDelta { index, text: text.into(), state: None })
    }

    /// A call's arguments are closed.
    pub fn tool_input_end(index: u32) -> Self {
        Self::ToolInputEnd(ToolInputEnd { index })
    }

    /// A call's arguments are closed and are no JSON.
    pub fn tool_input_malformed(
        index: u32,
        id: impl Into<String>,
        name: impl Into<String>,
        raw: impl Into<String>,
    ) -> Self {
        Self::ToolInputMalformed(ToolInputMalformed {
            index,
            id: id.into(),
            name: name.into(),
            hosted: false,
            raw: raw.into(),
        })
    }

    /// A complete local call.
    pub fn tool_call(index: u32, id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        Self::ToolCall(ToolCallEvent::new(index, id, name, input))
    }

    /// A finish with a reason and what was used.
    pub fn finish(reason: FinishReason, usage: impl Into<Option<Usage>>) -> Self {
        Self::Finish(Finish::new(reason).usage(usage))
    }
}

impl BlockStart {
    /// A block opens.
    pub fn new(index: u32, state: Option<Value>) -> Self {
        Self { index, state }
    }
}

impl BlockDelta {
    /// A piece of a block.
    pub fn new(index: u32, text: impl Into<String>, state: Option<Value>) -> Self {
        Self { index, text: text.into(), state }
    }
}

impl BlockEnd {
    /// A block closes.
    pub fn new(index: u32, text: Option<String>, state: Option<Value>) -> Self {
        Self { index, text, state }
    }
}

impl ToolInputStart {
    /// The first sign of a call.
    pub fn new(index: u32, id: impl Into<String>, name: impl Into<String>, hosted: bool) -> Self {
        Self { index, id: id.into(), name: name.into(), hosted }
    }
}

impl ToolInputEnd {
    /// A call's arguments are closed.
    pub fn new(index: u32) -> Self {
        Self { index }
    }
}

impl ToolInputMalformed {
    /// A call whose arguments are no JSON.
    pub fn new(
        index: u32,
        id: impl Into<String>,
        name: impl Into<String>,
        hosted: bool,
        raw: impl Into<String>,
    ) -> Self {
        Self { index, id: id.into(), name: name.into(), hosted, raw: raw.into() }
    }
}

impl ToolCallEvent {
    /// A complete local call.
    pub fn new(index: u32, id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        Self { index, id: id.into(), name: name.into(), input, hosted: false, state: None }
    }

    /// The same call, run by the provider itself.
    #[must_use]
    pub fn hosted(mut self) -> Self {
        self.hosted = true;
        self
    }

    /// The same call with provider state.
    #[must_use]
    pub fn state(mut self, state: Option<Value>) -> Self {
        self.state = state;
        self
    }
}

impl HostedResult {
    /// A hosted call's result.
    pub fn new(id: impl Into<String>, content: Vec<Content>, state: Option<Value>) -> Self {
        Self { id: id.into(), content, state }
    }
}

impl HostedError {
    /// A hosted call's failure.
    pub fn new(id: impl Into<String>, message: impl Into<String>, state: Option<Value>) -> Self {
        Self { id: id.into(), message: message.into(), state }
    }
}

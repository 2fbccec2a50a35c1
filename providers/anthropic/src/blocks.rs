//! The blocks of one answer while they are open.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde_json::{Map, Value, json};
use settled_provider_api::{
    Annotation, BlockEnd, HostedError, HostedResult, ProviderEvent, ToolCallEvent, ToolInputMalformed, ToolInputStart,
};

/// A block that has not ended, under the number that the wire gives it.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) wire: u64,
    pub(crate) kind: Kind,
}

/// What a block is.
///
/// Text and reasoning get a block of ours with their first piece, so that what opens and says nothing leaves no trace.
#[derive(Debug)]
pub(crate) enum Kind {
    Text {
        block: Option<u32>,
        citations: Vec<Value>,
    },
    Thinking {
        block: Option<u32>,
        signature: String,
    },
    Call(Call),
    /// A block that goes back as it came, and is otherwise nothing of ours.
    Kept(Map<String, Value>),
    /// A block that its start has said all of.
    Said,
}

/// A call whose arguments are arriving.
#[derive(Debug)]
pub(crate) struct Call {
    block: u32,
    id: String,
    name: String,
    hosted: bool,
    /// The input that came with the start: a gateway that does not stream it puts it there.
    given: Value,
    arguments: String,
    state: Option<Value>,
}

impl Kind {
    /// Adds text to a block of text or reasoning; nothing opens no block.
    pub(crate) fn say(&mut self, text: Cow<'_, str>, next_block: &mut u32, events: &mut VecDeque<ProviderEvent>) {
        if !text.is_empty()
            && let Some(block) = self.open(next_block, events)
        {
            events.push_back(match self {
                Self::Thinking { .. } => ProviderEvent::reasoning_delta(block, text),
                _ => ProviderEvent::text_delta(block, text),
            });
        }
    }

    /// Adds a citation to a block of text: it goes back with the text.
    pub(crate) fn cite(&mut self, citation: Value, next_block: &mut u32, events: &mut VecDeque<ProviderEvent>) {
        let block = self.open(next_block, events);
        if let Self::Text { citations, .. } = self {
            let kind = citation.get("type").and_then(Value::as_str).unwrap_or("citation").to_owned();
            citations.push(citation.clone());
            events.push_back(ProviderEvent::Annotation(Annotation::new(block, kind, citation)));
        }
    }

    /// The block of ours of text or reasoning, opened if it is not.
    fn open(&mut self, next_block: &mut u32, events: &mut VecDeque<ProviderEvent>) -> Option<u32> {
        let (Self::Text { block, .. } | Self::Thinking { block, .. }) = self else { return None };
        if let Some(block) = *block {
            return Some(block);
        }
        let opened = *next_block;
        *next_block += 1;
        *block = Some(opened);
        events.push_back(match self {
            Self::Thinking { .. } => ProviderEvent::reasoning_start(opened),
            _ => ProviderEvent::text_start(opened),
        });
        Some(opened)
    }

    /// Ends a block; a call is given back if its arguments do not show that they are whole.
    pub(crate) fn end(mut self, next_block: &mut u32, events: &mut VecDeque<ProviderEvent>) -> Option<Call> {
        // Reasoning that is signed and says nothing has to go back all the same.
        if matches!(&self, Self::Thinking { signature, .. } if !signature.is_empty()) {
            self.open(next_block, events);
        }
        match self {
            Self::Text { block: Some(block), citations } => {
                let state = (!citations.is_empty()).then(|| json!({"citations": citations}));
                events.push_back(ProviderEvent::TextEnd(BlockEnd::new(block, None, state)));
            }
            Self::Thinking { block: Some(block), signature } => {
                let state = (!signature.is_empty()).then(|| json!({"signature": signature}));
                events.push_back(ProviderEvent::reasoning_end(block, state));
            }
            Self::Text { block: None, .. } | Self::Thinking { block: None, .. } | Self::Said => {}
            Self::Kept(kept) => {
                let block = *next_block;
                *next_block += 1;
                events.push_back(ProviderEvent::reasoning_start(block));
                events.push_back(ProviderEvent::reasoning_end(block, Some(json!({"block": kept}))));
            }
            Self::Call(call) => return call.end(events),
        }
        None
    }
}

impl Call {
    /// A call by its first sign; what the start says beside id, name and input is its state.
    pub(crate) fn open(
        mut start: Map<String, Value>,
        next_block: &mut u32,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<Self, &'static str> {
        let mut take = |field: &str| start.remove(field).unwrap_or_default();
        let (id, name, given) = (take("id"), take("name"), take("input"));
        let name = match name.as_str() {
            Some(name) if !name.trim().is_empty() => name.to_owned(),
            _ => return Err("a call has no name"),
        };
        let id = id.as_str().unwrap_or_default().to_owned();
        let hosted = start.get("type").and_then(Value::as_str) != Some("tool_use");
        // A local call with nothing but its type has no state.
        let state = (hosted || start.len() > 1).then(|| json!({"block": start}));
        let block = *next_block;
        *next_block += 1;
        events.push_back(ProviderEvent::ToolInputStart(ToolInputStart::new(block, &*id, &*name, hosted)));
        Ok(Self { block, id, name, hosted, given, arguments: String::new(), state })
    }

    /// Takes a piece of the arguments.
    pub(crate) fn take(&mut self, piece: &str, events: &mut VecDeque<ProviderEvent>) {
        if !piece.is_empty() {
            self.arguments.push_str(piece);
            events.push_back(ProviderEvent::tool_input_delta(self.block, piece));
        }
    }

    /// The end of its block: a whole object makes the call; anything else gives it back.
    ///
    /// The wire ends the block of a call that the output limit cut off like any other, so that nothing and a piece of JSON may mean both a call without arguments and one that was cut.
    fn end(mut self, events: &mut VecDeque<ProviderEvent>) -> Option<Self> {
        if self.arguments.is_empty() && self.given.as_object().is_some_and(|given| !given.is_empty()) {
            let given = self.given.to_string();
            self.take(&given, events);
        }
        match serde_json::from_str::<Value>(&self.arguments) {
            Ok(input @ Value::Object(_)) => {
                self.call(input, events);
                None
            }
            _ => Some(self),
        }
    }

    /// Closes what its block's end left undecided, when the answer has shown that it was not cut: nothing and `null` are the empty object, anything else is malformed.
    pub(crate) fn close(self, events: &mut VecDeque<ProviderEvent>) {
        match self.arguments.trim() {
            "" | "null" => self.call(json!({}), events),
            _ => {
                let Self { block, id, name, hosted, arguments, .. } = self;
                let malformed = ToolInputMalformed::new(block, id, name, hosted, arguments);
                events.push_back(ProviderEvent::ToolInputMalformed(malformed));
            }
        }
    }

    fn call(self, input: Value, events: &mut VecDeque<ProviderEvent>) {
        events.push_back(ProviderEvent::tool_input_end(self.block));
        let call = ToolCallEvent::new(self.block, self.id, self.name, input).state(self.state);
        events.push_back(ProviderEvent::ToolCall(if self.hosted { call.hosted() } else { call }));
    }
}

/// The result of a hosted call, from its block: what can be shown of it, and the block as state.
pub(crate) fn hosted_result(mut block: Map<String, Value>) -> ProviderEvent {
    let id = block.remove("tool_use_id").unwrap_or_default();
    let id = id.as_str().unwrap_or_default();
    let content = block.get("content").unwrap_or(&Value::Null);
    let kind = content.get("type").and_then(Value::as_str).unwrap_or_default();
    let failed = block.get("is_error") == Some(&Value::Bool(true)) || kind.ends_with("_error");
    let shown = shown(content);
    let state = Some(json!({"block": block}));
    match failed {
        true => ProviderEvent::HostedError(HostedError::new(id, shown, state)),
        false => ProviderEvent::HostedResult(HostedResult::new(id, vec![shown.into()], state)),
    }
}

/// What a person, or another model, may read of a hosted result: its text, and not what is encrypted.
fn shown(content: &Value) -> String {
    let field = |name: &str| content.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    match content {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(shown).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => {
            let document = content.pointer("/content/source/data").and_then(Value::as_str);
            let document = document.filter(|_| content.pointer("/content/source/type") == Some(&json!("text")));
            let lines = [
                field("title").or_else(|| content.pointer("/content/title").and_then(Value::as_str)),
                field("url"),
                field("text"),
                field("stdout"),
                field("stderr"),
                field("error_code"),
                field("error_message"),
                document,
            ];
            let lines: Vec<&str> = lines.into_iter().flatten().map(str::trim_end).collect();
            match lines.is_empty() {
                false => lines.join("\n"),
                true => {
                    let plain = fields.iter().filter(|(name, _)| !name.starts_with("encrypted"));
                    let plain: Map<String, Value> = plain.map(|(name, value)| (name.clone(), value.clone())).collect();
                    Value::Object(plain).to_string()
                }
            }
        }
        other => other.to_string(),
    }
}

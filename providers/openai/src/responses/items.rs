//! The items of one response while they are open.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde_json::{Map, Value, json};
use settled_provider_api::{Annotation, BlockEnd, ProviderEvent, ToolCallEvent, ToolInputMalformed, ToolInputStart};

/// An item under its number in the response, the only identity that all servers keep.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) wire: u64,
    pub(super) id: String,
    /// Its type, as the wire names it.
    pub(super) kind: String,
    pub(super) content: Content,
    /// Whether the wire has ended it.
    pub(super) done: bool,
}

/// What an item is to us.
#[derive(Debug)]
pub(super) enum Content {
    /// A message: its parts.
    Message(Vec<Piece>),
    /// Reasoning: the parts of its summary and of its raw text, one block open at a time.
    Reasoning(Vec<Piece>),
    /// A call of ours.
    Call(Call),
    /// A call that the provider runs itself: its block.
    Hosted(u32),
    /// Anything else: only its end says something.
    Other,
}

/// A part of a message or of reasoning.
///
/// It gets a block of ours with its first text, so that what opens and says nothing leaves no trace.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) form: Form,
    /// Its number among the parts of its form.
    number: u64,
    block: Option<u32>,
    /// How many bytes of text have streamed.
    streamed: usize,
    /// The whole text, where the wire has told it.
    whole: Option<String>,
    annotations: Vec<Value>,
    ended: bool,
}

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Refusal,
    Summary,
    Raw,
}

impl Form {
    fn is_reasoning(self) -> bool {
        matches!(self, Self::Summary | Self::Raw)
    }
}

/// The next block's number.
pub(super) type Next = u32;

impl Content {
    /// The number of a part by its order among those of its form; one that is not in use for a part beyond them.
    pub(super) fn number(&self, form: Form, order: usize) -> u64 {
        let (Self::Message(pieces) | Self::Reasoning(pieces)) = self else { return 0 };
        let numbers = pieces.iter().filter(|piece| piece.form == form).map(|piece| piece.number);
        numbers.clone().nth(order).unwrap_or_else(|| numbers.max().map_or(0, |number| number + 1))
    }

    /// The part of a form and number; a new one ends the part of reasoning before it. `None` where the item has no such parts.
    pub(super) fn piece(
        &mut self,
        form: Form,
        number: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Option<&mut Piece> {
        let pieces = match self {
            Self::Message(pieces) if !form.is_reasoning() => pieces,
            Self::Reasoning(pieces) if form.is_reasoning() => pieces,
            _ => return None,
        };
        let at = match pieces.iter().position(|piece| piece.form == form && piece.number == number) {
            Some(at) => at,
            None => {
                if form.is_reasoning()
                    && let Some(before) = pieces.last_mut()
                {
                    before.end(None, events);
                }
                pieces.push(Piece {
                    form,
                    number,
                    block: None,
                    streamed: 0,
                    whole: None,
                    annotations: Vec::new(),
                    ended: false,
                });
                pieces.len() - 1
            }
        };
        pieces.get_mut(at)
    }
}

impl Piece {
    /// Adds text that has streamed; nothing opens no block.
    pub(super) fn say(&mut self, text: Cow<'_, str>, next: &mut Next, events: &mut VecDeque<ProviderEvent>) {
        if text.is_empty() || self.ended {
            return;
        }
        let block = self.open(next, events);
        self.streamed += text.len();
        events.push_back(match self.form.is_reasoning() {
            true => ProviderEvent::reasoning_delta(block, text),
            false => ProviderEvent::text_delta(block, text),
        });
    }

    /// Takes the whole text; what has not streamed at all is said now.
    pub(super) fn tell(&mut self, text: Cow<'_, str>, next: &mut Next, events: &mut VecDeque<ProviderEvent>) {
        if text.is_empty() || self.ended || self.whole.is_some() {
            return;
        }
        if self.streamed == 0 {
            self.say(Cow::Borrowed(&text), next, events);
        }
        self.whole = Some(text.into_owned());
    }

    /// Adds an annotation.
    pub(super) fn note(&mut self, annotation: Value, next: &mut Next, events: &mut VecDeque<ProviderEvent>) {
        let block = self.open(next, events);
        let kind = annotation.get("type").and_then(Value::as_str).unwrap_or("annotation").to_owned();
        self.annotations.push(annotation.clone());
        events.push_back(ProviderEvent::Annotation(Annotation::new(Some(block), kind, annotation)));
    }

    /// How many annotations it has.
    pub(super) fn noted(&self) -> usize {
        self.annotations.len()
    }

    fn open(&mut self, next: &mut Next, events: &mut VecDeque<ProviderEvent>) -> u32 {
        if let Some(block) = self.block {
            return block;
        }
        let block = take(next);
        self.block = Some(block);
        events.push_back(match self.form.is_reasoning() {
            true => ProviderEvent::reasoning_start(block),
            false => ProviderEvent::text_start(block),
        });
        block
    }

    /// Ends its block, if it has one that is open, with the state of its item; whether it had.
    pub(super) fn end(&mut self, state: Option<&Map<String, Value>>, events: &mut VecDeque<ProviderEvent>) -> bool {
        let Some(block) = self.block.filter(|_| !self.ended) else { return false };
        self.ended = true;
        // The text that the wire tells at the end wins over the pieces; most often they are the same.
        let whole = self.whole.take().filter(|whole| whole.len() != self.streamed);
        let mut state = state.cloned().unwrap_or_default();
        if self.form == Form::Refusal {
            state.insert("refusal".to_owned(), json!(true));
        }
        if !self.annotations.is_empty() {
            state.insert("annotations".to_owned(), Value::Array(std::mem::take(&mut self.annotations)));
        }
        let end = BlockEnd::new(block, whole, (!state.is_empty()).then_some(Value::Object(state)));
        events.push_back(match self.form.is_reasoning() {
            true => ProviderEvent::ReasoningEnd(end),
            false => ProviderEvent::TextEnd(end),
        });
        true
    }
}

/// A call of ours whose arguments are arriving.
#[derive(Debug)]
pub(super) struct Call {
    block: u32,
    id: String,
    name: String,
    /// What has streamed.
    streamed: String,
    /// The whole arguments, where the wire has told them.
    whole: Option<String>,
    /// The item says that it is cut off.
    cut: bool,
    state: Map<String, Value>,
    over: bool,
}

impl Call {
    /// A call by its first sign.
    pub(super) fn open(
        item: &Map<String, Value>,
        next: &mut Next,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<Self, &'static str> {
        let name = match item.get("name").and_then(Value::as_str) {
            Some(name) if !name.trim().is_empty() => name.to_owned(),
            _ => return Err("a call has no name"),
        };
        let (block, id) = (take(next), label(item));
        events.push_back(ProviderEvent::ToolInputStart(ToolInputStart::new(block, &*id, &*name, false)));
        Ok(Self { block, id, name, streamed: String::new(), whole: None, cut: false, state: Map::new(), over: false })
    }

    /// Takes a piece of the arguments.
    pub(super) fn take(&mut self, text: Cow<'_, str>, events: &mut VecDeque<ProviderEvent>) {
        if !text.is_empty() && !self.over {
            self.streamed.push_str(&text);
            events.push_back(ProviderEvent::tool_input_delta(self.block, text));
        }
    }

    /// Takes the whole arguments; what has not streamed is said now.
    pub(super) fn tell(&mut self, text: &str, events: &mut VecDeque<ProviderEvent>) {
        if text.is_empty() || self.over {
            return;
        }
        if let Some(rest) = text.strip_prefix(self.streamed.as_str()).filter(|rest| !rest.is_empty()) {
            self.take(Cow::Owned(rest.to_owned()), events);
        }
        self.whole = Some(text.to_owned());
    }

    /// The wire has ended the item: arguments that are a whole object make the call, unless the item says that it is cut off.
    pub(super) fn end(
        &mut self,
        item: &Map<String, Value>,
        state: Map<String, Value>,
        events: &mut VecDeque<ProviderEvent>,
    ) {
        self.cut = item.get("status").and_then(Value::as_str) == Some("incomplete");
        self.state = state;
        if !self.cut
            && let Some(input) = self.object()
        {
            self.call(input, events);
        }
    }

    /// The response is complete: nothing and `null` are the empty object, what is no object is malformed.
    pub(super) fn close(&mut self, events: &mut VecDeque<ProviderEvent>) {
        if self.over || self.cut {
            return;
        }
        let input = match self.arguments().trim() {
            "" | "null" => Some(json!({})),
            _ => self.object(),
        };
        if let Some(input) = input {
            return self.call(input, events);
        }
        self.over = true;
        let raw = self.arguments().to_owned();
        let malformed = ToolInputMalformed::new(self.block, &*self.id, &*self.name, false, raw);
        events.push_back(ProviderEvent::ToolInputMalformed(malformed));
    }

    fn arguments(&self) -> &str {
        self.whole.as_ref().unwrap_or(&self.streamed)
    }

    fn object(&self) -> Option<Value> {
        serde_json::from_str::<Value>(self.arguments()).ok().filter(Value::is_object)
    }

    fn call(&mut self, input: Value, events: &mut VecDeque<ProviderEvent>) {
        if self.over {
            return;
        }
        self.over = true;
        // Written anew they would be another text, and what follows them no prefix that the server has cached.
        let anew = input.to_string();
        if self.object().is_some() && self.arguments() != anew {
            let arguments = json!(self.arguments());
            let item = self.state.entry("item").or_insert_with(|| json!({}));
            item.as_object_mut().map(|item| item.insert("arguments".to_owned(), arguments));
        }
        let state = std::mem::take(&mut self.state);
        events.push_back(ProviderEvent::tool_input_end(self.block));
        let call = ToolCallEvent::new(self.block, &*self.id, &*self.name, input);
        let state = (!state.is_empty()).then_some(Value::Object(state));
        events.push_back(ProviderEvent::ToolCall(call.state(state)));
    }
}

/// The id by which a call and its result know each other; that of the item where there is none, or a blank one.
pub(super) fn label(item: &Map<String, Value>) -> String {
    let field = |name: &str| item.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    field("call_id").or_else(|| field("id")).unwrap_or_default().to_owned()
}

/// A new block's number.
pub(super) fn take(next: &mut Next) -> u32 {
    let block = *next;
    *next += 1;
    block
}

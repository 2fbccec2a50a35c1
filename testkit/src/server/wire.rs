//! What all wires share: pieces of a body, blocks, names and counts.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use settled_provider_api::{Finish, FinishReason, ProviderEvent, ResponseInfo, Usage};

use super::{Wire, chat, gemini, messages, responses};
use crate::script::Item;

/// One thing that the body of an answer does.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    /// An event.
    Bytes(Vec<u8>),
    /// Nothing comes for so many milliseconds.
    Wait(u64),
    /// Nothing comes until a gate is open.
    Gate(String),
    /// Nothing comes any more.
    Hang,
    /// The connection is cut.
    Cut,
}

/// What an answer says about itself.
pub(super) struct Head {
    /// The number of the request, from 1: ids are made of it.
    pub(super) number: usize,
    pub(super) id: Option<String>,
    pub(super) model: String,
    pub(super) usage: Option<Usage>,
    /// The answer is a refusal: what it says is one.
    pub(super) refusal: bool,
}

/// A wire's own way to say things; a fault of the script where it has none.
pub(super) trait Speak {
    /// One event of the script.
    fn event(&mut self, event: &ProviderEvent, out: &mut Vec<Piece>) -> Result<(), String>;
}

/// The body of an answer on a wire.
pub(super) fn render(wire: Wire, items: &[Item], number: usize, model: &str) -> Result<Vec<Piece>, String> {
    let mut head = Head { number, id: None, model: model.to_owned(), usage: None, refusal: false };
    for item in items {
        match item {
            Item::Event(ProviderEvent::ResponseInfo(ResponseInfo { response_id, served_model, .. })) => {
                head.id = head.id.or_else(|| response_id.clone());
                head.model = served_model.clone().unwrap_or(head.model);
            }
            Item::Event(ProviderEvent::Finish(Finish { usage, reason, .. })) => {
                head.usage = *usage;
                head.refusal = *reason == FinishReason::Refusal;
            }
            _ => {}
        }
    }
    let mut speaks: Box<dyn Speak> = match wire {
        Wire::Chat => Box::new(chat::Chat::new(head)),
        Wire::Responses => Box::new(responses::Responses::new(head)),
        Wire::Messages => Box::new(messages::Messages::new(head)),
        Wire::Gemini | Wire::GeminiArray => {
            let called = items.iter().filter_map(|item| match item {
                Item::Event(ProviderEvent::ToolCall(call)) => Some(call.index),
                Item::Event(ProviderEvent::ToolInputMalformed(call)) => Some(call.index),
                _ => None,
            });
            Box::new(gemini::Gemini::new(head, wire, called.collect()))
        }
    };
    let mut out = Vec::new();
    for item in items {
        match item {
            Item::Event(event) => speaks.event(event, &mut out)?,
            Item::Wait(millis) => out.push(Piece::Wait(*millis)),
            Item::Gate(name) => out.push(Piece::Gate(name.clone())),
            Item::Hang => out.push(Piece::Hang),
            Item::Throw(_) | Item::Panic(_) => out.push(Piece::Cut),
        }
    }
    Ok(out)
}

/// The bytes of a body, without its waits, up to where it is cut.
pub(super) fn bytes(pieces: &[Piece]) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => all.extend_from_slice(bytes),
            Piece::Wait(_) | Piece::Gate(_) => {}
            Piece::Hang | Piece::Cut => break,
        }
    }
    all
}

/// An event with a name.
pub(super) fn named(name: &str, data: impl std::fmt::Display) -> Piece {
    Piece::Bytes(format!("event: {name}\ndata: {data}\n\n").into_bytes())
}

/// An event without a name.
pub(super) fn unnamed(data: impl std::fmt::Display) -> Piece {
    Piece::Bytes(format!("data: {data}\n\n").into_bytes())
}

/// A comment.
pub(super) fn comment() -> Piece {
    Piece::Bytes(b": keepalive\n\n".to_vec())
}

/// A text as JSON.
pub(super) fn quoted(text: &str) -> Value {
    json!(text)
}

/// State as the one opaque text that goes over a wire: a text as it is, anything else as JSON.
pub(super) fn opaque(state: &Value) -> String {
    state.as_str().map_or_else(|| state.to_string(), str::to_owned)
}

/// What a wire has no place for.
pub(super) fn no_place(wire: &str, what: &str) -> String {
    format!("{wire} has no place for {what}")
}

/// The blocks of an answer, in the order in which they appeared.
#[derive(Debug, Default)]
pub(super) struct Blocks(BTreeMap<u32, Block>, usize);

/// A block on the wire.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// Its number among the blocks.
    pub(super) order: usize,
    pub(super) id: String,
    pub(super) name: String,
    /// What it has said.
    pub(super) text: String,
    /// The wire has ended it.
    pub(super) ended: bool,
}

impl Blocks {
    /// The block of an index; whether it is new.
    pub(super) fn get(&mut self, index: u32) -> (&mut Block, bool) {
        let new = !self.0.contains_key(&index);
        let order = self.1;
        self.1 += usize::from(new);
        (self.0.entry(index).or_insert_with(|| Block { order, ..Block::default() }), new)
    }

    /// A number of its own, for what is no block of the script.
    pub(super) fn number(&mut self) -> usize {
        self.1 += 1;
        self.1 - 1
    }
}

/// The sum of counts, if there is one.
pub(super) fn sum<const N: usize>(counts: [Option<u64>; N]) -> Option<u64> {
    counts.into_iter().flatten().reduce(u64::saturating_add)
}

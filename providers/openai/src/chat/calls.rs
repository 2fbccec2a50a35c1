//! The calls of one answer, put together from pieces whose labels cannot be trusted.

use std::borrow::Cow;
use std::collections::VecDeque;

use serde_json::{Map, Value};
use settled_provider_api::{ErrorClass, ProviderError, ProviderEvent};

/// The calls of one answer, in order of appearance.
///
/// Which call a piece belongs to is found from its id, its index and its name together, since servers leave out, blank or repeat each of them:
///
/// - A known id names its call, unless a name comes with it under another index: then the id is used twice.
/// - Without an id, a known index names its call; without either, the call before goes on.
/// - A piece with a name that belongs to a call whose arguments are whole already, or that has another name, opens a new call; the same name again is a repeated label.
/// - A piece without a name opens a call only where both its id and its index are new.
///
/// # When arguments are closed
///
/// The wire has no mark for it.
/// A call's arguments are closed when another call opens behind them and they are a whole object that is not empty (`{}` is also what some gateways send before the real ones);
/// and all are closed at the end of the answer (`[DONE]`, or the end of a body without it) if it was reached in order, behind a finish that says that the answer is complete.
/// Not at the finish itself: some servers send a finish early, and go on.
/// At any other end (`length`, a filter, an error, no finish) what is open stays open, and no arguments are made up for it.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Call>);

#[derive(Debug, Default)]
struct Call {
    /// Its block, from the moment that it has a name and its input start was given out.
    block: Option<u32>,
    index: Option<i64>,
    id: String,
    name: String,
    arguments: String,
    shape: Shape,
    closed: bool,
}

/// One piece, with blank labels taken for missing ones.
pub(super) struct Piece<'a> {
    pub(super) index: Option<i64>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) arguments: Cow<'a, str>,
}

impl Calls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a piece; a call gets the next block once it has a name.
    pub(super) fn take(
        &mut self,
        piece: Piece<'_>,
        next_block: &mut u32,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        let at = match self.place(&piece) {
            Some(at) => at,
            None => {
                for call in &mut self.0 {
                    if !call.closed && call.shape.is_whole() && call.arguments.trim() != "{}" {
                        call.close(events)?;
                    }
                }
                self.0.push(Call { index: piece.index, ..Call::default() });
                self.0.len() - 1
            }
        };
        match self.0.get_mut(at) {
            Some(call) => call.take(piece, next_block, events),
            None => Ok(()),
        }
    }

    /// Closes what is open, at the end of a complete answer.
    pub(super) fn close(&mut self, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        self.0.iter_mut().filter(|call| !call.closed).try_for_each(|call| call.close(events))
    }

    /// The call that a piece belongs to; `None` for a new one.
    fn place(&self, piece: &Piece<'_>) -> Option<usize> {
        let last = self.0.len().checked_sub(1)?;
        let of_index = piece.index.and_then(|index| self.0.iter().rposition(|call| call.index == Some(index)));
        let of_id = piece.id.as_deref().and_then(|id| {
            // Where an id is used twice, the index tells which call is meant.
            let both = self.0.iter().rposition(|call| call.id == id && call.index == piece.index);
            both.or_else(|| self.0.iter().rposition(|call| call.id == id))
        });
        let named = piece.name.is_some();
        let at = match (&piece.id, of_id, of_index) {
            (Some(_), Some(at), _) => {
                let call = self.0.get(at)?;
                let elsewhere = piece.index.is_some() && call.index.is_some() && call.index != piece.index;
                if named && elsewhere {
                    return None;
                }
                at
            }
            // An id that is new: the call of the index may have got it late; with a name it is a new call.
            (Some(_), None, Some(at)) if !named || self.0.get(at)?.id.is_empty() => at,
            (Some(_), None, _) if named => return None,
            // Both labels are new: a call whose name comes later.
            (Some(_), None, None) if piece.index.is_some() => return None,
            (None, _, Some(at)) => at,
            (None, _, None) if named => return None,
            _ => last,
        };
        let call = self.0.get(at)?;
        let Some(name) = piece.name.as_deref().filter(|_| !call.name.is_empty()) else {
            return Some(at);
        };
        // A name again: the label is repeated, or another call begins under the same labels.
        let repeats_id = piece.id.as_deref().is_some_and(|id| id == call.id);
        let adds_nothing = repeats_id && piece.arguments.trim().is_empty();
        let begins = name != call.name || (call.shape.is_whole() && !adds_nothing);
        (!begins).then_some(at)
    }
}

impl Call {
    fn take(
        &mut self,
        piece: Piece<'_>,
        next_block: &mut u32,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        if self.closed {
            return match piece.arguments.trim() {
                "" => Ok(()),
                more => Err(ProviderError::new(
                    ErrorClass::InvalidOutput,
                    format!("the arguments of the call {:?} ({:?}) go on behind their end: {more}", self.id, self.name),
                )),
            };
        }
        if self.index.is_none() {
            self.index = piece.index;
        }
        if let Some(id) = piece.id.filter(|_| self.id.is_empty()) {
            self.id = id.into_owned();
        }
        if let Some(name) = piece.name.filter(|_| self.name.is_empty()) {
            self.name = name.into_owned();
        }
        if self.block.is_none() && !self.name.is_empty() {
            let block = *next_block;
            *next_block += 1;
            self.block = Some(block);
            events.push_back(ProviderEvent::tool_input_start(block, &*self.id, &*self.name));
            if !self.arguments.is_empty() {
                events.push_back(ProviderEvent::tool_input_delta(block, &*self.arguments));
            }
        }
        if !piece.arguments.is_empty() {
            self.arguments.push_str(&piece.arguments);
            self.shape.read(&piece.arguments);
            if let Some(block) = self.block {
                events.push_back(ProviderEvent::tool_input_delta(block, piece.arguments));
            }
        }
        Ok(())
    }

    /// Closes the arguments: an object makes a call, nothing and `null` the empty object, anything else is malformed.
    fn close(&mut self, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        let Some(block) = self.block else {
            return Err(ProviderError::new(
                ErrorClass::InvalidOutput,
                format!("the call {:?} has no name; its arguments are: {}", self.id, self.arguments),
            ));
        };
        self.closed = true;
        let input = match self.arguments.trim() {
            "" | "null" => Some(Value::Object(Map::new())),
            text => serde_json::from_str::<Value>(text).ok().filter(Value::is_object),
        };
        match input {
            Some(input) => {
                events.push_back(ProviderEvent::tool_input_end(block));
                events.push_back(ProviderEvent::tool_call(block, &*self.id, &*self.name, input));
            }
            None => {
                events.push_back(ProviderEvent::tool_input_malformed(block, &*self.id, &*self.name, &*self.arguments))
            }
        }
        Ok(())
    }
}

/// How far the text of an object has come; read once, so that asking costs nothing.
#[derive(Debug, Default)]
struct Shape {
    depth: u32,
    place: Place,
    begun: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Plain,
    Text,
    Escape,
}

impl Shape {
    fn read(&mut self, text: &str) {
        for byte in text.bytes() {
            self.place = match (&self.place, byte) {
                (Place::Plain, b'"') => Place::Text,
                (Place::Plain, b'{' | b'[') => {
                    self.begun = true;
                    self.depth += 1;
                    Place::Plain
                }
                (Place::Plain, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(1);
                    Place::Plain
                }
                (Place::Plain, _) => Place::Plain,
                (Place::Text, b'"') => Place::Plain,
                (Place::Text, b'\\') => Place::Escape,
                (Place::Text | Place::Escape, _) => Place::Text,
            };
        }
    }

    fn is_whole(&self) -> bool {
        self.begun && self.depth == 0 && self.place == Place::Plain
    }
}

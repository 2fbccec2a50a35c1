//! The decoder of the Messages API: bytes in, events out, no I/O.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use settled_provider_api::{
    Annotation, ErrorClass, Finish, FinishReason, ProviderError, ProviderEvent, ResponseInfo, Usage,
};
use settled_provider_wire::{BodyKind, DEFAULT_LIMIT, Decoder, SseDecoder, SseItem, Tally, sniff};

use crate::blocks::{Call, Kind, Open, hosted_result};
use crate::chunk::{Line, MessageDelta, Piece, PieceLine, json_text};
use crate::error::{stream_error, undecoded};
use crate::options::Dialect;
use crate::usage::Counts;

/// Fields of lines that are read by nobody: they carry nothing of the answer.
///
/// A test walks through recorded traffic and fails at a field that is neither here nor decoded.
pub const IGNORED_FIELDS: [&str; 12] = [
    "message.provider",
    "message.role",
    "message.type",
    "usage.cache_creation",
    "usage.cost",
    "usage.cost_details",
    "usage.inference_geo",
    "usage.is_byok",
    "usage.iterations",
    "usage.server_tool_use",
    "usage.service_tier",
    "usage.speed",
];

/// The type of the lines that bring pieces of blocks.
const PIECE: &str = PieceLine::KIND;

/// How much of a body is looked at to see what it is.
const LONGEST_LEAD: usize = 4_096;

/// Decodes the body of one answer of the Messages API.
///
/// The body is looked at, not its content type: a stream of events, or one JSON document (an error under status 200, or the whole answer of a server that does not stream).
///
/// # What becomes what
///
/// | the wire's | ours |
/// |---|---|
/// | `message_start` | response info |
/// | `text` | a block of text, from its first piece; its citations are annotations, and go back as the state `{"citations": […]}` |
/// | `thinking` | a block of reasoning, from its first piece; its signature is the state `{"signature": "…"}`, with or without text |
/// | `tool_use` | a local call |
/// | `server_tool_use`, `mcp_tool_use` and the like | a hosted call; what the block says beside id, name and input is the state `{"block": {…}}` |
/// | a block with `tool_use_id` | the result or the failure of that hosted call, the block as its state |
/// | `redacted_thinking`, `compaction`, a block of an unknown type | a block of reasoning without text, with the block as its state `{"block": {…}}` |
/// | `message_delta` | remembered: the stop reason, the last usage, field by field |
/// | the end (`message_stop`, or the body's) | annotations `stop_sequence`, `stop_details`, `context_management` where they were given; the finish, once |
/// | `error`, and any line or document with one | an in-band error; what follows it is ignored |
/// | `ping`, comments, lines without content | a sign of life |
///
/// # When a call's arguments are closed
///
/// The wire ends the block of a call that the output limit cut off like any other.
/// So an object that is whole makes the call at the end of its block; nothing, `null` and what is no JSON wait until another block begins behind them, or until a finish says that the answer is complete (`end_turn`, `tool_use`, `pause_turn`): then nothing and `null` are `{}`, and the rest is malformed.
/// At any other end they stay open, and no arguments are made up for them.
///
/// # What is refused
///
/// A line that is no JSON, a piece for a block that is not open or of another type, and a second answer inside the first fail with `invalid_output`; a repeated `message_start` of the same answer before its first block is a sign of life.
/// Anthropic promises to add types of events and asks clients to live with them: an event of an unknown type without content is counted as [unknown](Tally::unknown), is a sign of life, and the stream goes on.
#[derive(Debug)]
pub struct MessagesDecoder {
    body: Body,
    sse: SseDecoder,
    state: State,
}

/// What the body is, by its first bytes.
#[derive(Debug)]
enum Body {
    Unseen(Vec<u8>),
    Events,
    Document(Vec<u8>),
}

#[derive(Debug)]
struct State {
    dialect: Arc<Dialect>,
    tally: Tally,
    next_block: u32,
    /// The id of the answer, once it has begun.
    message: Option<String>,
    /// Whether a block has begun.
    begun: bool,
    /// The blocks that have not ended, in the order in which they began.
    open: Vec<Open>,
    /// Calls whose block has ended, and whose arguments do not show that they are whole.
    held: Vec<Call>,
    counts: Counts,
    finish: Option<String>,
    container: Option<Value>,
    notes: Vec<(&'static str, Value)>,
    failed: bool,
    /// `message_stop` has come.
    over: bool,
}

impl MessagesDecoder {
    /// A decoder of one body.
    pub fn new(dialect: Arc<Dialect>) -> Self {
        let state = State {
            dialect,
            tally: Tally::default(),
            next_block: 0,
            message: None,
            begun: false,
            open: Vec::new(),
            held: Vec::new(),
            counts: Counts::default(),
            finish: None,
            container: None,
            notes: Vec::new(),
            failed: false,
            over: false,
        };
        Self { body: Body::Unseen(Vec::new()), sse: SseDecoder::new(), state }
    }

    /// The last usage that the body has reported, whether or not a finish has come that carries it.
    pub fn usage(&self) -> Option<Usage> {
        self.state.counts.usage()
    }

    /// Looks at what the body is; its first bytes go to where they belong.
    fn look(&mut self, bytes: &[u8]) -> Result<(), ProviderError> {
        let Body::Unseen(lead) = &mut self.body else { return Ok(()) };
        lead.extend_from_slice(bytes);
        let kind = match sniff(lead) {
            None if lead.len() < LONGEST_LEAD => return Ok(()),
            kind => kind,
        };
        let lead = std::mem::take(lead);
        self.body = match kind {
            Some(BodyKind::Json) => Body::Document(lead),
            Some(BodyKind::Markup) => {
                self.state.tally.unknown += 1;
                return Err(ProviderError::new(
                    ErrorClass::InvalidOutput,
                    "the server answered with a page of markup instead of a stream: check --base-url, and whether a proxy or a login page is in the way",
                ));
            }
            _ => {
                self.sse.push(&lead);
                Body::Events
            }
        };
        Ok(())
    }
}

impl Decoder for MessagesDecoder {
    fn push(&mut self, bytes: &[u8], events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        match &mut self.body {
            Body::Unseen(_) => self.look(bytes)?,
            Body::Events => self.sse.push(bytes),
            Body::Document(document) => document.extend_from_slice(bytes),
        }
        match &self.body {
            Body::Document(document) if document.len() > DEFAULT_LIMIT => Err(ProviderError::new(
                ErrorClass::InvalidOutput,
                format!("the body is one document of more than {DEFAULT_LIMIT} bytes"),
            )),
            Body::Document(_) | Body::Unseen(_) => Ok(()),
            Body::Events => {
                while let Some(item) = self.sse.pull() {
                    match item? {
                        SseItem::Event(event) => self.state.line(event.event, event.data, event.offset, events)?,
                        SseItem::Comment(_) => self.state.ignore("comment", events),
                    }
                }
                Ok(())
            }
        }
    }

    fn finish(&mut self, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        match &self.body {
            Body::Document(document) => {
                let text = String::from_utf8_lossy(document);
                let text = text.trim_start_matches('\u{feff}').trim();
                self.state.document(text, events)?;
            }
            Body::Events => {
                if let Some(event) = self.sse.finish() {
                    let event = event?;
                    let whole = event.data.trim() == "[DONE]" || serde_json::from_str::<&RawValue>(event.data).is_ok();
                    match whole {
                        true => self.state.line(event.event, event.data, event.offset, events)?,
                        // A line that the end of the body cut off: what it would have said did not arrive.
                        false => self.state.ignore("cut", events),
                    }
                }
            }
            Body::Unseen(_) => {}
        }
        if !self.state.over {
            self.state.conclude(events);
        }
        Ok(())
    }

    fn tally(&self) -> &Tally {
        &self.state.tally
    }
}

impl State {
    /// Reads the data of one event.
    fn line(
        &mut self,
        name: &str,
        data: &str,
        offset: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        let text = data.trim();
        if text == "[DONE]" {
            self.tally.ignore("[DONE]");
            return Ok(());
        }
        if text.is_empty() {
            self.ignore("ping", events);
            return Ok(());
        }
        // Most lines are pieces: they are read at one go, and what is none the slower way.
        if name == PIECE
            && !self.over
            && !self.failed
            && let Some(line) = PieceLine::read(text)
        {
            let before = events.len();
            self.piece(line.index, line.delta, events).map_err(|what| undecoded(&what, offset, text))?;
            if events.len() == before {
                self.ignore(PIECE, events);
            }
            return Ok(());
        }
        let line = match serde_json::from_str::<Line<'_>>(text) {
            Ok(line) => line,
            Err(_) if name == "error" => {
                // An error may be of any shape, or plain text.
                let error = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
                self.fail(&error, events);
                return Ok(());
            }
            Err(error) => {
                self.tally.unknown += 1;
                return Err(undecoded(&format!("a line is no event ({error})"), offset, text));
            }
        };
        let kind = line.kind.as_ref().map_or(name, |kind| &*kind.0);
        if kind == "error" || line.error.is_some() {
            let error = serde_json::from_str(text).unwrap_or_else(|_| json!(text));
            self.fail(&error, events);
            return Ok(());
        }
        if self.over || self.failed {
            self.tally.ignore(if self.failed { "behind the error" } else { "behind message_stop" });
            return Ok(());
        }
        let before = events.len();
        let said_nothing = match (kind, line.index) {
            (PIECE, Some(wire)) => {
                let raw = line.delta.ok_or_else(|| undecoded("a line has no delta", offset, text))?;
                let piece = serde_json::from_str::<Piece<'_>>(raw.get())
                    .map_err(|error| undecoded(&format!("a delta does not decode ({error})"), offset, text))?;
                self.piece(wire, piece, events).map_err(|what| undecoded(&what, offset, text))?;
                PIECE
            }
            ("content_block_start", Some(wire)) => {
                let block =
                    object(line.content_block).ok_or_else(|| undecoded("a block has no description", offset, text))?;
                self.start(wire, block, events).map_err(|what| undecoded(&what, offset, text))?;
                "content_block_start"
            }
            ("content_block_stop", Some(wire)) => {
                self.stop(wire, events);
                "content_block_stop"
            }
            ("message_start", _) => {
                let message =
                    object(line.message).ok_or_else(|| undecoded("a message has no description", offset, text))?;
                self.message_start(message, events).map_err(|what| undecoded(&what, offset, text))?;
                "message_start"
            }
            ("message_delta", _) => {
                self.counts.take(object(line.usage).unwrap_or_default());
                if let Some(raw) = line.delta {
                    let delta = serde_json::from_str::<MessageDelta<'_>>(raw.get())
                        .map_err(|error| undecoded(&format!("a delta does not decode ({error})"), offset, text))?;
                    if let Some(reason) = delta.stop_reason {
                        self.finish = Some(reason.0.into_owned());
                    }
                    if let Some(container) = value(delta.container) {
                        self.container = Some(container);
                    }
                    self.note("stop_sequence", value(delta.stop_sequence));
                    self.note("stop_details", value(delta.stop_details));
                }
                self.note("context_management", value(line.context_management));
                "message_delta"
            }
            ("message_stop", _) => {
                self.over = true;
                self.conclude(events);
                "message_stop"
            }
            ("ping" | "keepalive" | "heartbeat", _) => "ping",
            _ if line.delta.is_none() && line.content_block.is_none() && line.message.is_none() => {
                self.tally.unknown += 1;
                events.push_back(ProviderEvent::Alive);
                return Ok(());
            }
            (kind, index) => {
                self.tally.unknown += 1;
                let what = if index.is_some() { "of an unknown type" } else { "without an index" };
                return Err(undecoded(&format!("a line of type {kind:?} has content and is {what}"), offset, text));
            }
        };
        if events.len() == before {
            self.ignore(said_nothing, events);
        }
        Ok(())
    }

    /// Reads a body that is one document.
    fn document(&mut self, text: &str, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        let read = serde_json::from_str::<Value>(text).map_err(|error| {
            self.tally.unknown += 1;
            undecoded(&format!("the body is one document and no JSON ({error})"), 0, text)
        })?;
        let is = |word: &str| read.get("type").and_then(Value::as_str) == Some(word);
        let has_error = read.get("error").is_some_and(|error| !error.is_null());
        if is("error") || has_error || read.get(0).is_some_and(|first| first.get("error").is_some()) {
            self.fail(&read, events);
            return Ok(());
        }
        let blocks = read.get("content").and_then(Value::as_array).cloned();
        let (Value::Object(mut message), Some(blocks)) = (read, blocks) else {
            self.tally.unknown += 1;
            return Err(undecoded("the body is a document that is neither answer nor error", 0, text));
        };
        let mut take = |field: &str| message.remove(field).filter(|value| !value.is_null());
        let (container, reason) = (take("container"), take("stop_reason"));
        let notes = ["stop_sequence", "stop_details", "context_management"].map(|name| (name, take(name)));
        self.message_start(message, events).map_err(|what| undecoded(&what, 0, text))?;
        for (wire, block) in (0..).zip(blocks) {
            let Value::Object(block) = block else {
                return Err(undecoded("a block is no object", 0, &block.to_string()));
            };
            self.start(wire, block, events).map_err(|what| undecoded(&what, 0, text))?;
            self.stop(wire, events);
        }
        self.container = container;
        self.finish = reason.and_then(|reason| reason.as_str().map(str::to_owned));
        for (name, note) in notes {
            self.note(name, note);
        }
        Ok(())
    }

    fn message_start(
        &mut self,
        mut message: Map<String, Value>,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), String> {
        let text = |field: &str| message.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        let (id, model) = (text("id").map(str::to_owned), text("model").map(str::to_owned));
        let known = id.clone().unwrap_or_default();
        match &self.message {
            Some(first) if *first != known || self.begun => {
                return Err(format!("another answer ({known:?}) begins inside the answer {first:?}"));
            }
            Some(_) => {}
            None => events.push_back(ProviderEvent::ResponseInfo(ResponseInfo::new(id, model))),
        }
        self.message = Some(known);
        if let Some(Value::Object(usage)) = message.remove("usage") {
            self.counts.take(usage);
        }
        self.container = message.remove("container").filter(|container| !container.is_null());
        Ok(())
    }

    /// A block begins.
    fn start(
        &mut self,
        wire: u64,
        mut block: Map<String, Value>,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), String> {
        self.begun = true;
        // Some servers leave ends out, and give each block the same number.
        self.stop(wire, events);
        self.close_held(events);
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let take = |block: &mut Map<String, Value>, field: &str| match block.remove(field) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let next_block = &mut self.next_block;
        let kind = match kind.as_str() {
            "text" => {
                let mut text = Kind::Text { block: None, citations: Vec::new() };
                text.say(take(&mut block, "text").into(), next_block, events);
                if let Some(Value::Array(citations)) = block.remove("citations") {
                    citations.into_iter().for_each(|citation| text.cite(citation, next_block, events));
                }
                text
            }
            "thinking" => {
                let mut thinking = Kind::Thinking { block: None, signature: take(&mut block, "signature") };
                thinking.say(take(&mut block, "thinking").into(), next_block, events);
                thinking
            }
            "" => return Err("a block has no type".to_owned()),
            _ if block.contains_key("tool_use_id") => {
                events.push_back(hosted_result(block));
                Kind::Said
            }
            kind if kind.ends_with("tool_use") => Kind::Call(Call::open(block, next_block, events)?),
            _ => Kind::Kept(block),
        };
        self.open.push(Open { wire, kind });
        Ok(())
    }

    /// A piece of a block.
    fn piece(&mut self, wire: u64, piece: Piece<'_>, events: &mut VecDeque<ProviderEvent>) -> Result<(), String> {
        let Some(open) = self.open.iter_mut().rev().find(|open| open.wire == wire) else {
            return Err(format!("a piece is of block {wire}, which is not open"));
        };
        let next_block = &mut self.next_block;
        match (&*piece.kind.0, &mut open.kind) {
            ("text_delta", text @ Kind::Text { .. }) => {
                text.say(piece.text.unwrap_or_default().0, next_block, events);
            }
            ("thinking_delta", thinking @ Kind::Thinking { .. }) => {
                thinking.say(piece.text.unwrap_or_default().0, next_block, events);
            }
            ("signature_delta", Kind::Thinking { signature, .. }) => {
                signature.push_str(&piece.text.unwrap_or_default().0);
            }
            ("input_json_delta", Kind::Call(call)) => {
                if let Some(raw) = piece.partial_json {
                    let arguments =
                        json_text(raw).map_err(|error| format!("a piece of arguments is no text ({error})"))?;
                    call.take(&arguments, events);
                }
            }
            ("citations_delta", text @ Kind::Text { .. }) => {
                if let Some(citation) = value(piece.citation) {
                    text.cite(citation, next_block, events);
                }
            }
            ("compaction_delta", Kind::Kept(kept)) => {
                for (field, more) in [("content", piece.content), ("encrypted_content", piece.encrypted_content)] {
                    match (kept.get_mut(field), value(more)) {
                        (_, None) => {}
                        (Some(Value::String(text)), Some(Value::String(more))) => text.push_str(&more),
                        (_, Some(more)) => {
                            kept.insert(field.to_owned(), more);
                        }
                    }
                }
            }
            (kind, _) => return Err(format!("a piece of type {kind:?} does not belong to block {wire}")),
        }
        Ok(())
    }

    /// A block ends; one that is not open has nothing to end.
    fn stop(&mut self, wire: u64, events: &mut VecDeque<ProviderEvent>) {
        if let Some(at) = self.open.iter().rposition(|open| open.wire == wire) {
            let Open { kind, .. } = self.open.remove(at);
            self.held.extend(kind.end(&mut self.next_block, events));
        }
    }

    /// Closes calls that the answer has shown to be whole.
    fn close_held(&mut self, events: &mut VecDeque<ProviderEvent>) {
        self.held.drain(..).for_each(|call| call.close(events));
    }

    /// Keeps a note for the end.
    fn note(&mut self, name: &'static str, note: Option<Value>) {
        if let Some(note) = note {
            self.notes.retain(|(known, _)| *known != name);
            self.notes.push((name, note));
        }
    }

    fn fail(&mut self, error: &Value, events: &mut VecDeque<ProviderEvent>) {
        if self.failed {
            self.tally.ignore("behind the error");
            return;
        }
        self.failed = true;
        self.shut(events);
        events.push_back(ProviderEvent::Error(stream_error(&self.dialect, error)));
    }

    /// Counts a line without content, which is a sign of life.
    fn ignore(&mut self, reason: &'static str, events: &mut VecDeque<ProviderEvent>) {
        self.tally.ignore(reason);
        events.push_back(ProviderEvent::Alive);
    }

    /// Ends what is open, but for calls.
    fn shut(&mut self, events: &mut VecDeque<ProviderEvent>) {
        for open in std::mem::take(&mut self.open) {
            match open.kind {
                Kind::Call(_) => self.open.push(open),
                kind => self.held.extend(kind.end(&mut self.next_block, events)),
            }
        }
    }

    /// The end of the answer: what was held back for it.
    fn conclude(&mut self, events: &mut VecDeque<ProviderEvent>) {
        self.shut(events);
        if self.failed {
            return;
        }
        let Some(raw) = self.finish.take() else { return };
        let reason = self.dialect.finish_reason(&raw);
        // A stop sequence may stand in the middle of arguments.
        let complete = matches!(reason, FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Pause);
        if complete && raw != "stop_sequence" {
            for open in std::mem::take(&mut self.open) {
                self.held.extend(open.kind.end(&mut self.next_block, events));
            }
            self.close_held(events);
        }
        let notes = self.notes.drain(..).map(|(name, note)| Annotation::new(None, name, note));
        events.extend(notes.map(ProviderEvent::Annotation));
        let state = self.container.take().map(|container| json!({"container": container}));
        events.push_back(ProviderEvent::Finish(Finish::new(reason).raw(raw).usage(self.counts.usage()).state(state)));
    }
}

/// A field as a value; nothing where it is not there or `null`.
fn value(raw: Option<&RawValue>) -> Option<Value> {
    serde_json::from_str(raw?.get()).ok().filter(|value: &Value| !value.is_null())
}

/// A field as an object; nothing where it is none.
fn object(raw: Option<&RawValue>) -> Option<Map<String, Value>> {
    serde_json::from_str(raw?.get()).ok()
}

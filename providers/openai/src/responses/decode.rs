//! The decoder of the Responses API: bytes in, events out, no I/O.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use settled_provider_api::{
    ErrorClass, Finish, FinishReason, ProviderError, ProviderEvent, ResponseInfo, ToolCallEvent, ToolInputStart, Usage,
};
use settled_provider_wire::{BodyKind, DEFAULT_LIMIT, Decoder, SseDecoder, SseItem, Tally, sniff};

use super::error::stream_error;
use super::hosted;
use super::items::{Call, Content, Form, Item, Next, Piece, label, take};
use super::line::{Line, PieceLine, Response, text, value};
use super::options::{Dialect, ItemIds};
use super::usage::Counts;
use crate::template::Templates;
use crate::undecoded;

/// Fields of lines that are read by nobody: they carry nothing of the answer.
///
/// A test walks through recorded traffic and fails at a field that is neither here nor decoded.
/// The fields of a response that only repeat the request are not listed; of a response, `id`, `model`, `status`, `incomplete_details`, `error`, `output` and `usage` are read.
pub const IGNORED_FIELDS: [&str; 16] = [
    "annotation_index",
    "background",
    "code",
    "command",
    "command_index",
    "copilot_usage",
    "cost",
    "logprobs",
    "obfuscation",
    "output",
    "output_format",
    "partial_image_b64",
    "partial_image_index",
    "quality",
    "sequence_number",
    "size",
];

/// How much of a body is looked at to see what it is.
const LONGEST_LEAD: usize = 4_096;

/// Decodes the body of one answer of the Responses API, in any dialect.
///
/// The body is looked at, not its content type: a stream of events, or one JSON document (an error under status 200, or the whole response of a server that does not stream).
/// Events are known by the type in their data; lines with their names may be missing.
///
/// # What becomes what
///
/// | the wire's | ours |
/// |---|---|
/// | the first response (`response.created`, …) | response info |
/// | `output_text` | a block of text per part; its annotations are annotations, and go back as the state `annotations` |
/// | `refusal` | a block of text with the state `"refusal": true` |
/// | `reasoning` | a block of reasoning per part of its summary or raw text, the last with the item as its state; without any part, one without text |
/// | `function_call` | a local call |
/// | an item of a type that ends in `_call`, `mcp_list_tools`, `mcp_approval_request`, `program` | a hosted call with the item as its state, from its end on |
/// | the same, where the item has the result in it | its result or failure, behind the call |
/// | an item of a type that ends in `_output` | the result of the call that it names; where it names none, of the last open one of its kind |
/// | any other item | a block of reasoning without text, with the item as its state |
/// | `response.completed`, `response.incomplete` | what never streamed, then the finish |
/// | `response.failed`, `error`, a document with an error | an in-band error; what follows it is ignored |
/// | progress of hosted calls, `queued`, `in_progress`, pings, comments | a sign of life |
///
/// State has the item's fields that go back under `item`, and under `after` the ids of the reasoning in front of it, with which the server links it.
///
/// # Which item a line belongs to
///
/// The one of its `output_index`: ids change with every event at some servers.
/// Where that is missing, the item of its id, else the last one.
///
/// # When something never streams
///
/// Deltas may be missing: what a part's, an item's or the response's end tells is said then.
/// The response's own list may be empty or short, so that nothing is rebuilt from it: the first item of a type in it is the first of that type that streamed, and so on; only an item beyond those is new, and only one that had no end gets it from there.
///
/// # When a call's arguments are closed
///
/// A whole object makes the call at the end of its item, unless the item calls itself incomplete; nothing and `null` are `{}`, and anything else is malformed, when the response has completed.
/// At any other end they stay open.
/// A call for the client to run (a shell, a computer, a patch, an approval) that no output follows fails with a message that says so when the response has completed.
#[derive(Debug)]
pub struct ResponsesDecoder {
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
    next: Next,
    informed: bool,
    /// Every item so far, in the order in which they began.
    items: Vec<Item>,
    /// The ids of the reasoning so far.
    reasoning: Vec<String>,
    /// Hosted calls whose result is another item, or nobody's: type and label.
    waiting: Vec<(String, String)>,
    refused: bool,
    counts: Option<Counts>,
    failed: bool,
    /// The response has ended.
    over: bool,
    /// Lines of which it is known that they say a piece of text and nothing else: of which item, which form and which part.
    templates: Templates<(u64, Form, u64)>,
}

impl ResponsesDecoder {
    /// A decoder of one body.
    pub fn new(dialect: Arc<Dialect>) -> Self {
        let state = State {
            dialect,
            tally: Tally::default(),
            next: 0,
            informed: false,
            items: Vec::new(),
            reasoning: Vec::new(),
            waiting: Vec::new(),
            refused: false,
            counts: None,
            failed: false,
            over: false,
            templates: Templates::default(),
        };
        Self { body: Body::Unseen(Vec::new()), sse: SseDecoder::new(), state }
    }

    /// The last usage that the body has reported, whether or not a finish has come that carries it.
    pub fn usage(&self) -> Option<Usage> {
        self.state.counts.and_then(|counts| counts.usage())
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

impl Decoder for ResponsesDecoder {
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
        self.state.shut(events);
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
        let whole = data.trim();
        if whole == "[DONE]" {
            self.tally.ignore("[DONE]");
            return Ok(());
        }
        if whole.is_empty() {
            self.ignore("ping", events);
            return Ok(());
        }
        // Most lines are pieces of text: they are those before them with another text, or read at one go; what is none the slower way.
        if (name.is_empty() || name.ends_with(".delta")) && !self.over && !self.failed {
            if let Some((place, piece)) = self.templates.read(whole) {
                return self.text(place, Cow::Borrowed(piece), whole, offset, events);
            }
            if let Ok(line) = serde_json::from_str::<PieceLine<'_>>(whole)
                && let Some(form) = form(&line.kind.0)
            {
                let place = (line.output_index, form, line.content_index.unwrap_or(0));
                self.templates.learn(whole, &line.delta.0, place);
                return self.text(place, line.delta.0, whole, offset, events);
            }
        }
        let line = match serde_json::from_str::<Line<'_>>(whole) {
            Ok(line) => line,
            Err(_) if name == "error" => {
                // An error may be of any shape, or plain text.
                self.fail(&json!(whole), events);
                return Ok(());
            }
            Err(error) => {
                self.tally.unknown += 1;
                return Err(undecoded(&format!("a line is no event ({error})"), offset, whole));
            }
        };
        let kind = if line.kind.is_blank() { name } else { &*line.kind.0 };
        let untyped = !kind.contains('.') && (value(line.error).is_some() || line.detail.is_some());
        if kind == "error" || untyped {
            let error = serde_json::from_str(whole).unwrap_or_else(|_| json!(whole));
            self.fail(&error, events);
            return Ok(());
        }
        if self.over || self.failed {
            self.tally.ignore(if self.failed { "behind the error" } else { "behind the end" });
            return Ok(());
        }
        let before = events.len();
        let said_nothing = self.event(kind, &line, events).map_err(|what| undecoded(&what, offset, whole))?;
        if events.len() == before && !self.over {
            self.ignore(said_nothing, events);
        }
        Ok(())
    }

    /// A piece of text of an item, a form and a part.
    fn text(
        &mut self,
        (index, form, number): (u64, Form, u64),
        piece: Cow<'_, str>,
        line: &str,
        offset: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        let before = events.len();
        self.piece(Some(index), "", form, number, |part, next, events| part.say(piece, next, events), events)
            .map_err(|what| undecoded(&what, offset, line))?;
        if events.len() == before {
            self.ignore("no content", events);
        }
        Ok(())
    }

    /// Reads an event of a type; its name among the ignored lines, should it say nothing.
    fn event(
        &mut self,
        kind: &str,
        line: &Line<'_>,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<&'static str, String> {
        let (index, id) = (line.output_index, &*line.item_id.0);
        let number = line.content_index.or(line.summary_index).unwrap_or(0);
        let plain = kind.strip_prefix("response.").unwrap_or(kind);
        Ok(match plain {
            "created" | "queued" | "in_progress" => {
                let response = line.response.ok_or("a line has no response")?;
                self.inform(&read_response(response)?, events);
                "response begins"
            }
            "completed" | "done" | "incomplete" | "failed" | "cancelled" => {
                let raw = line.response.ok_or("a line has no response")?;
                let response = read_response(raw)?;
                // Some servers leave the status to the event's name.
                let status = response.status.0.trim();
                let status =
                    if status.is_empty() || status == "in_progress" { plain.to_owned() } else { status.to_owned() };
                self.inform(&response, events);
                self.conclude(&response, &status, raw, events)?;
                "end"
            }
            "output_item.added" => {
                let item = item(line.item)?;
                self.added(index.unwrap_or(self.items.len() as u64), item, events)?;
                "item begins"
            }
            "output_item.done" => {
                let item = item(line.item)?;
                let index = index.or_else(|| self.place(None, &string(&item, "id")).map(|at| self.wire(at)));
                self.done(index.unwrap_or(self.items.len() as u64), item, events)?;
                "item ends"
            }
            "output_text.annotation.added" => {
                let annotation = value(line.annotation).ok_or("a line has no annotation")?;
                self.piece(
                    index,
                    id,
                    Form::Text,
                    number,
                    |piece, next, events| piece.note(annotation, next, events),
                    events,
                )?;
                "annotation"
            }
            "content_part.added" | "reasoning_summary_part.added" | "reasoning_part.added" => "part begins",
            "content_part.done" | "reasoning_summary_part.done" | "reasoning_part.done" => {
                let part = value(line.part).unwrap_or_default();
                if let Some((form, text)) = part_text(&part) {
                    self.piece(
                        index,
                        id,
                        form,
                        number,
                        |piece, next, events| {
                            piece.tell(Cow::Borrowed(text), next, events);
                        },
                        events,
                    )?;
                }
                "part ends"
            }
            "function_call_arguments.delta" | "function_call_arguments.done" => {
                let at = self
                    .place(index, id)
                    .ok_or_else(|| format!("arguments are of item {index:?}, which is not open"))?;
                let Some(Item { content: Content::Call(call), .. }) = self.items.get_mut(at) else {
                    return Err(format!("arguments are of item {index:?}, which is no call"));
                };
                match plain.ends_with("delta") {
                    true => call.take(text(line.delta), events),
                    false => call.tell(&text(line.arguments), events),
                }
                "arguments"
            }
            "ping" | "keepalive" | "heartbeat" => "ping",
            // What the account may still use, at ChatGPT.
            "codex.rate_limits" | "rate_limits.updated" => "rate limits",
            _ => match (
                form(kind),
                plain.strip_suffix(".done").and_then(|begin| form(&format!("response.{begin}.delta"))),
            ) {
                (Some(form), _) => {
                    let said = text(line.delta);
                    self.piece(index, id, form, number, |piece, next, events| piece.say(said, next, events), events)?;
                    "no content"
                }
                (None, Some(form)) => {
                    let told = text(if form == Form::Refusal { line.refusal } else { line.text });
                    self.piece(index, id, form, number, |piece, next, events| piece.tell(told, next, events), events)?;
                    "part ends"
                }
                (None, None) => return self.progress(plain, line, events),
            },
        })
    }

    /// An event that belongs to an item whose end says everything, or one that nobody knows.
    fn progress(
        &mut self,
        kind: &str,
        line: &Line<'_>,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<&'static str, String> {
        let at = self.place(line.output_index, &line.item_id.0);
        let item = at.and_then(|at| self.items.get(at));
        match item.map(|item| &item.content) {
            Some(Content::Hosted(block))
                if kind == "mcp_call_arguments.delta" && item.is_some_and(|item| !item.done) =>
            {
                events.push_back(ProviderEvent::tool_input_delta(*block, text(line.delta)));
                Ok("arguments")
            }
            Some(Content::Hosted(_) | Content::Other) => Ok("progress of a hosted call"),
            _ if line.delta.is_none() && line.part.is_none() && line.item.is_none() && line.text.is_none() => {
                // The wire adds types of events: one without content can be lived with.
                self.tally.unknown += 1;
                events.push_back(ProviderEvent::Alive);
                Ok("unknown")
            }
            _ => {
                self.tally.unknown += 1;
                Err(format!("a line of the unknown type {kind:?} has content"))
            }
        }
    }

    /// Reads a body that is one document.
    fn document(&mut self, text: &str, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        let undecoded = |what: &str| undecoded(what, 0, text);
        let raw = serde_json::from_str::<&RawValue>(text).map_err(|error| {
            self.tally.unknown += 1;
            undecoded(&format!("the body is one document and no JSON ({error})"))
        })?;
        let is_response = serde_json::from_str::<Response<'_>>(text).ok().filter(|response| response.output.is_some());
        if let Some(response) = is_response {
            self.inform(&response, events);
            let status = response.status.0.clone().into_owned();
            return self.conclude(&response, &status, raw, events).map_err(|what| undecoded(&what));
        }
        let read: Value = serde_json::from_str(text).unwrap_or_default();
        let has = |field: &str| read.get(field).is_some_and(|value| !value.is_null());
        if has("error")
            || has("detail")
            || has("message")
            || read.get(0).is_some_and(|first| first.get("error").is_some())
        {
            self.fail(&read, events);
            return Ok(());
        }
        self.tally.unknown += 1;
        Err(undecoded("the body is a document that is neither response nor error"))
    }

    fn inform(&mut self, response: &Response<'_>, events: &mut VecDeque<ProviderEvent>) {
        if response.usage.is_some() {
            self.counts = response.usage;
        }
        let given = |text: &str| (!text.trim().is_empty()).then(|| text.to_owned());
        let (id, model) = (given(&response.id.0), given(&response.model.0));
        if !self.informed && (id.is_some() || model.is_some()) {
            self.informed = true;
            events.push_back(ProviderEvent::ResponseInfo(ResponseInfo::new(id, model)));
        }
    }

    /// Which item a line belongs to.
    fn place(&self, index: Option<u64>, id: &str) -> Option<usize> {
        match index {
            Some(index) => self.items.iter().rposition(|item| item.wire == index),
            None => self
                .items
                .iter()
                .rposition(|item| !id.is_empty() && item.id == id)
                .or_else(|| self.items.len().checked_sub(1)),
        }
    }

    fn wire(&self, at: usize) -> u64 {
        self.items.get(at).map_or(0, |item| item.wire)
    }

    /// Does something with a part of an item; an item that nobody has announced is opened for it.
    fn piece(
        &mut self,
        index: Option<u64>,
        id: &str,
        form: Form,
        number: u64,
        run: impl FnOnce(&mut Piece, &mut Next, &mut VecDeque<ProviderEvent>),
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), String> {
        let reasoning = matches!(form, Form::Summary | Form::Raw);
        let at = match self.place(index, id) {
            Some(at) => at,
            None => {
                let (kind, content) = match reasoning {
                    true => ("reasoning", Content::Reasoning(Vec::new())),
                    false => ("message", Content::Message(Vec::new())),
                };
                let wire = index.unwrap_or(0);
                self.items.push(Item { wire, id: id.to_owned(), kind: kind.to_owned(), content, done: false });
                self.items.len() - 1
            }
        };
        self.refused |= form == Form::Refusal;
        let Some(item) = self.items.get_mut(at) else { return Ok(()) };
        match item.content.piece(form, number, events) {
            Some(piece) => {
                run(piece, &mut self.next, events);
                Ok(())
            }
            None => Err(format!("a part of the form {form:?} does not belong to item {}, a {}", item.wire, item.kind)),
        }
    }

    /// An item begins.
    fn added(
        &mut self,
        wire: u64,
        item: Map<String, Value>,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), String> {
        // Some servers leave ends out, and give each item the same number.
        if let Some(open) = self.items.iter_mut().rfind(|known| known.wire == wire && !known.done) {
            open.done = true;
            end_pieces(&mut open.content, None, events);
        }
        let kind = string(&item, "type");
        let content = match kind.as_str() {
            "" => return Err("an item has no type".to_owned()),
            "message" => Content::Message(Vec::new()),
            "reasoning" => Content::Reasoning(Vec::new()),
            "function_call" => Content::Call(Call::open(&item, &mut self.next, events)?),
            kind if hosted::is_call(kind) => {
                let block = take(&mut self.next);
                let start = ToolInputStart::new(block, label(&item), hosted::name(kind, &item), true);
                events.push_back(ProviderEvent::ToolInputStart(start));
                Content::Hosted(block)
            }
            _ => Content::Other,
        };
        self.items.push(Item { wire, id: string(&item, "id"), kind, content, done: false });
        Ok(())
    }

    /// An item ends; one that has not begun does both.
    fn done(
        &mut self,
        wire: u64,
        item: Map<String, Value>,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), String> {
        let kind = string(&item, "type");
        let id = string(&item, "id");
        // Another item under the number of one that has ended: some servers give each the same.
        let same = |known: &Item| known.kind == kind && (!known.done || known.id == id);
        let known = self.place(Some(wire), "").filter(|at| self.items.get(*at).is_some_and(same));
        let at = match known {
            Some(at) => at,
            None => {
                self.added(wire, item.clone(), events)?;
                self.items.len() - 1
            }
        };
        self.end(at, item, events);
        Ok(())
    }

    /// Ends an item with what it is in the end; a second end is ignored.
    fn end(&mut self, at: usize, item: Map<String, Value>, events: &mut VecDeque<ProviderEvent>) {
        let Some(known) = self.items.get_mut(at).filter(|known| !known.done) else { return };
        known.done = true;
        let (next, after) = (&mut self.next, &self.reasoning);
        match &mut known.content {
            content @ (Content::Message(_) | Content::Reasoning(_)) => {
                let reasoning = matches!(content, Content::Reasoning(_));
                self.refused |= fill(content, &item, next, events);
                let state = match reasoning {
                    true => Map::from_iter([("item".to_owned(), Value::Object(reasoning_item(item.clone())))]),
                    false => linked(&self.dialect, message_item(&item), after),
                };
                let ended = end_pieces(content, Some(&state), events);
                if reasoning {
                    self.reasoning.extend(Some(string(&item, "id")).filter(|id| !id.is_empty()));
                    if !ended {
                        // Reasoning that says nothing has to go back all the same.
                        let block = take(next);
                        events.push_back(ProviderEvent::reasoning_start(block));
                        events.push_back(ProviderEvent::reasoning_end(block, Some(Value::Object(state))));
                    }
                }
            }
            Content::Call(call) => {
                if let Some(arguments) = item.get("arguments").filter(|arguments| !arguments.is_null()) {
                    let told = arguments.as_str().map_or_else(|| Cow::Owned(arguments.to_string()), Cow::Borrowed);
                    call.tell(&told, events);
                }
                call.end(&item, linked(&self.dialect, call_item(&item), after), events);
            }
            Content::Hosted(block) => {
                let (kind, id) = (known.kind.clone(), label(&item));
                events.push_back(ProviderEvent::tool_input_end(*block));
                let state = linked(&self.dialect, hosted::kept(item.clone()), after);
                let call = ToolCallEvent::new(*block, &*id, hosted::name(&kind, &item), hosted::input(&item));
                events.push_back(ProviderEvent::ToolCall(call.hosted().state(Some(Value::Object(state)))));
                match self.dialect.client_run.contains(&kind) {
                    true => self.waiting.push((kind, id)),
                    false => events.push_back(hosted::result(&id, &item, hosted::within())),
                }
            }
            Content::Other => {
                let state = json!({"item": item});
                let call = answered(&mut self.waiting, &known.kind, &string(&item, "call_id"));
                match call {
                    Some(id) => events.push_back(hosted::result(&id, &item, state)),
                    None => {
                        let block = take(&mut self.next);
                        events.push_back(ProviderEvent::reasoning_start(block));
                        events.push_back(ProviderEvent::reasoning_end(block, Some(state)));
                    }
                }
            }
        }
    }

    /// The response has ended.
    fn conclude(
        &mut self,
        response: &Response<'_>,
        status: &str,
        raw: &RawValue,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), String> {
        if let Some(error) = value(response.error) {
            self.fail(&error, events);
            return Ok(());
        }
        if matches!(status, "failed" | "cancelled") {
            let response: Value = serde_json::from_str(raw.get()).unwrap_or_default();
            self.fail(&json!({"message": format!("the response ended as {status:?}"), "cause": response}), events);
            return Ok(());
        }
        self.fill(response, events)?;
        self.shut(events);
        // Still queued, or in progress: there is no finish yet.
        if !matches!(status, "completed" | "done" | "incomplete") {
            return Ok(());
        }
        self.over = true;
        let status = if status == "done" { "completed" } else { status };
        let details = value(response.incomplete_details).unwrap_or_default();
        let raw = match details.get("reason").and_then(Value::as_str) {
            Some(reason) if status == "incomplete" => format!("incomplete:{reason}"),
            _ => status.to_owned(),
        };
        if status == "completed" {
            for item in &mut self.items {
                if let Content::Call(call) = &mut item.content {
                    call.close(events);
                }
            }
            let not_run = self.waiting.drain(..).map(|(kind, id)| hosted::not_run(&id, &kind));
            events.extend(not_run);
        }
        let called = self.items.iter().any(|item| matches!(item.content, Content::Call(_)));
        let reason = match self.dialect.finish_reason(&raw) {
            _ if self.refused => FinishReason::Refusal,
            FinishReason::Stop if called => FinishReason::ToolCalls,
            reason => reason,
        };
        let usage = self.counts.and_then(|counts| counts.usage());
        events.push_back(ProviderEvent::Finish(Finish::new(reason).raw(raw).usage(usage)));
        Ok(())
    }

    /// Takes from the response's own list what never streamed: items by their number among those of their type.
    fn fill(&mut self, response: &Response<'_>, events: &mut VecDeque<ProviderEvent>) -> Result<(), String> {
        let Some(Value::Array(list)) = value(response.output) else { return Ok(()) };
        let streamed = self.items.len();
        let mut seen: Vec<String> = Vec::new();
        for item in list {
            let Value::Object(item) = item else { return Err("an item is no object".to_owned()) };
            let kind = string(&item, "type");
            let number = seen.iter().filter(|known| **known == kind).count();
            let known =
                self.items.iter().take(streamed).enumerate().filter(|(_, known)| known.kind == kind).nth(number);
            match known.map(|(at, _)| at) {
                Some(at) => self.end(at, item, events),
                None => {
                    let wire = self.items.iter().map(|item| item.wire.saturating_add(1)).max().unwrap_or(0);
                    self.done(wire, item, events)?;
                }
            }
            seen.push(kind);
        }
        Ok(())
    }

    /// Ends what is open of text and reasoning.
    fn shut(&mut self, events: &mut VecDeque<ProviderEvent>) {
        for item in &mut self.items {
            end_pieces(&mut item.content, None, events);
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

    /// Counts a line without content, which is a sign of life unless the response is over.
    fn ignore(&mut self, reason: &'static str, events: &mut VecDeque<ProviderEvent>) {
        self.tally.ignore(reason);
        if !self.over {
            events.push_back(ProviderEvent::Alive);
        }
    }
}

/// The call that an output answers: the one that it names, else the last open one of its kind.
fn answered(waiting: &mut Vec<(String, String)>, kind: &str, id: &str) -> Option<String> {
    // `shell_call` is answered by a `shell_call_output`, but `tool_search_call` by a `tool_search_output`.
    let kind = kind.strip_suffix("_output")?;
    let kind = kind.strip_suffix("_call").unwrap_or(kind);
    let at = match id {
        "" => waiting.iter().rposition(|(call, _)| call.strip_suffix("_call") == Some(kind)),
        id => waiting.iter().rposition(|(_, label)| label == id),
    };
    at.map(|at| waiting.remove(at).1)
}

/// The form of the part that a delta of a type belongs to.
fn form(kind: &str) -> Option<Form> {
    match kind {
        "response.output_text.delta" => Some(Form::Text),
        "response.refusal.delta" => Some(Form::Refusal),
        "response.reasoning_summary_text.delta" => Some(Form::Summary),
        "response.reasoning_text.delta" => Some(Form::Raw),
        _ => None,
    }
}

/// The form and the text of a part.
fn part_text(part: &Value) -> Option<(Form, &str)> {
    let form = match part.get("type").and_then(Value::as_str)? {
        "output_text" | "text" => Form::Text,
        "refusal" => Form::Refusal,
        "summary_text" => Form::Summary,
        "reasoning_text" => Form::Raw,
        _ => return None,
    };
    let field = if form == Form::Refusal { "refusal" } else { "text" };
    Some((form, part.get(field).and_then(Value::as_str).unwrap_or_default()))
}

/// Takes from an item what of its parts has not streamed; whether one of them is a refusal.
///
/// Parts are told apart by their order: their numbers are not those of the item's lists at every server.
fn fill(
    content: &mut Content,
    item: &Map<String, Value>,
    next: &mut Next,
    events: &mut VecDeque<ProviderEvent>,
) -> bool {
    let lists = ["summary", "content"].into_iter().filter_map(|field| item.get(field)?.as_array());
    let mut seen: Vec<Form> = Vec::new();
    for part in lists.flatten() {
        let Some((form, text)) = part_text(part) else { continue };
        let order = seen.iter().filter(|known| **known == form).count();
        seen.push(form);
        let number = content.number(form, order);
        let Some(piece) = content.piece(form, number, events) else { continue };
        piece.tell(Cow::Borrowed(text), next, events);
        let annotations = part.get("annotations").and_then(Value::as_array);
        for annotation in annotations.into_iter().flatten().skip(piece.noted()) {
            piece.note(annotation.clone(), next, events);
        }
    }
    seen.contains(&Form::Refusal)
}

/// Ends the parts of a message or of reasoning that are open; whether there was one.
fn end_pieces(content: &mut Content, state: Option<&Map<String, Value>>, events: &mut VecDeque<ProviderEvent>) -> bool {
    let (Content::Message(pieces) | Content::Reasoning(pieces)) = content else { return false };
    let mut ended = false;
    for piece in pieces {
        ended |= piece.end(state, events);
    }
    ended
}

/// State: an item as it goes back, and the reasoning that it is linked with.
fn linked(dialect: &Dialect, mut item: Map<String, Value>, after: &[String]) -> Map<String, Value> {
    let mut state = Map::new();
    match dialect.item_ids {
        ItemIds::Sent if item.contains_key("id") && !after.is_empty() => {
            state.insert("after".to_owned(), json!(after));
        }
        ItemIds::Sent => {}
        ItemIds::LeftOut => {
            item.remove("id");
        }
    }
    if !item.is_empty() {
        state.insert("item".to_owned(), Value::Object(item));
    }
    state
}

/// What of a reasoning item goes back: all but its status, which the wire refuses, and a list of no texts.
fn reasoning_item(mut item: Map<String, Value>) -> Map<String, Value> {
    item.retain(|field, value| match field.as_str() {
        "status" => false,
        "content" => *value != json!([]) && !value.is_null(),
        _ => !value.is_null(),
    });
    item.entry("summary").or_insert_with(|| json!([]));
    item
}

/// What of a message goes back beside its parts.
fn message_item(item: &Map<String, Value>) -> Map<String, Value> {
    let fields = item.iter().filter(|(field, value)| matches!(field.as_str(), "id" | "phase") && !value.is_null());
    fields.map(|(field, value)| (field.clone(), value.clone())).collect()
}

/// What of a call goes back beside its label, its name and its arguments.
fn call_item(item: &Map<String, Value>) -> Map<String, Value> {
    const OWN: [&str; 5] = ["type", "call_id", "name", "arguments", "status"];
    let fields = item.iter().filter(|(field, value)| !OWN.contains(&field.as_str()) && !value.is_null());
    fields.map(|(field, value)| (field.clone(), value.clone())).collect()
}

fn read_response<'a>(raw: &'a RawValue) -> Result<Response<'a>, String> {
    serde_json::from_str(raw.get()).map_err(|error| format!("a response does not decode ({error})"))
}

fn item(raw: Option<&RawValue>) -> Result<Map<String, Value>, String> {
    let raw = raw.ok_or("a line has no item")?;
    serde_json::from_str(raw.get()).map_err(|error| format!("an item is no object ({error})"))
}

/// A field of an item as text; empty where it is none.
fn string(item: &Map<String, Value>, field: &str) -> String {
    item.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

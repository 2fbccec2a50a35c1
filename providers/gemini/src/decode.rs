//! The decoder of Gemini: bytes in, events out, no I/O.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use memchr::memchr;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use settled_provider_api::{
    Annotation, BlockEnd, Content, ErrorClass, Finish, FinishReason, HostedError, HostedResult, Media, MediaBlock,
    ProviderError, ProviderEvent, ResponseInfo, ToolCallEvent, ToolInputEnd, ToolInputStart, Usage,
};
use settled_provider_wire::{BodyKind, Decoder, JsonArray, SseDecoder, SseItem, Tally, sniff};

use crate::chunk::{Call, Candidate, Chunk, Counts, Data, Part};
use crate::error::{stream_error, undecoded};
use crate::options::Dialect;
use crate::partial::Arguments;
use crate::usage::usage;

/// Fields that are read by nobody: they carry nothing of the answer.
///
/// A test walks through recorded traffic and fails at a field that is neither here nor decoded.
pub const IGNORED_FIELDS: [&str; 10] = [
    "avgLogprobs",
    "cacheTokensDetails",
    "candidatesTokensDetails",
    "createTime",
    "logprobsResult",
    "promptTokensDetails",
    "safetyRatings",
    "serviceTier",
    "toolUsePromptTokensDetails",
    "trafficType",
];

/// How much of a body is looked at to see what it is.
const LONGEST_LEAD: usize = 4_096;

/// Decodes the body of one answer of Gemini, of either server.
///
/// The body is looked at, not its content type: server-sent events (`alt=sse`), one JSON array that grows, or one JSON document (the whole answer of a call that does not stream, or an error under status 200).
/// A line of events that begins with a brace or a bracket belongs to no event: from there on the body is read as a document, which is how an error comes in the middle of a stream.
///
/// # What becomes what
///
/// - Text, and thoughts as reasoning; a block closes when another kind begins.
///   A part with a thought signature is a block of its own, with the state `{"thoughtSignature": …}`, also where it has no text: the signature must go back on the part it came on.
/// - A call of ours that comes whole is complete at once: its part says that it is. It has the server's id, or a blank one, and the state `{"id": …, "thoughtSignature": …}` of what came.
///   Only where the same chunk has a finish other than `STOP` it stays open: what the model wrote was cut.
/// - A call whose arguments come in pieces by place is put together; it is complete when a piece says that nothing follows. Nothing is made up for one that is not.
/// - Code that the server runs is a hosted call `code_execution`, its result the hosted result, or its hosted error; other tools of the server are hosted calls by their type in small letters. Both keep their part as state. Without an id on the wire they get one that is unique in the answer.
/// - Media that the model made; those that it drew while thinking are an annotation `thought_media`.
/// - Grounding becomes annotations: a `source` for each chunk, a `citation` for each support, a `search` for the rest; citations and fetched URLs as well.
/// - The finish is remembered, and given once, at the end of the body, with the last usage: with code execution there are two of each, and text behind the first. What was not sent is not made up. A blocked prompt is a content filter, its raw word the block reason.
///   What the server says about a finish other than `STOP` is an annotation `finish_message`.
/// - An error inside the body is an event, the first alone; behind it no finish is given.
/// - Comments and chunks without content are signs of life.
///
/// Unknown fields are ignored ([`IGNORED_FIELDS`] names those in use), but not an unknown kind of part; a line that is neither chunk nor error fails with `invalid_output`.
#[derive(Debug)]
pub struct GeminiDecoder {
    body: Body,
    sse: SseDecoder,
    /// How many bytes went to the decoder of events.
    seen: u64,
    /// Whether the next byte is the first of a line.
    at_line: bool,
    state: State,
}

/// What the body is, by its first bytes.
#[derive(Debug)]
enum Body {
    Unseen(Vec<u8>),
    Events,
    /// An array or one document, and the offset of its first byte in the body.
    Array(JsonArray, u64),
}

#[derive(Debug)]
struct State {
    dialect: Arc<Dialect>,
    tally: Tally,
    next_block: u32,
    /// The open block of text or reasoning.
    open: Option<(u32, Kind)>,
    /// The call whose arguments come in pieces.
    partial: Option<Partial>,
    /// The hosted calls without a result, in order.
    awaited: VecDeque<Hosted>,
    /// How many calls of ours have begun.
    calls: usize,
    informed: bool,
    finish: Option<String>,
    finish_message: String,
    blocked: Option<String>,
    counts: Option<Counts>,
    grounding: Map<String, Value>,
    citations: Vec<Annotation>,
    /// The line at hand has said something that is held for the end.
    held: bool,
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
}

#[derive(Debug)]
struct Partial {
    block: u32,
    id: String,
    name: String,
    state: Option<Value>,
    arguments: Arguments,
}

/// A hosted call that waits for its result.
#[derive(Debug)]
struct Hosted {
    /// The field of the part that answers it.
    answer: &'static str,
    id: String,
}

impl GeminiDecoder {
    /// A decoder of one body.
    pub fn new(dialect: Arc<Dialect>) -> Self {
        let state = State {
            dialect,
            tally: Tally::default(),
            next_block: 0,
            open: None,
            partial: None,
            awaited: VecDeque::new(),
            calls: 0,
            informed: false,
            finish: None,
            finish_message: String::new(),
            blocked: None,
            counts: None,
            grounding: Map::new(),
            citations: Vec::new(),
            held: false,
            failed: false,
        };
        Self { body: Body::Unseen(Vec::new()), sse: SseDecoder::new(), seen: 0, at_line: false, state }
    }

    /// The last usage that the body has reported, whether or not a finish has come that carries it.
    pub fn usage(&self) -> Option<Usage> {
        self.state.counts.as_ref().map(usage)
    }

    /// Takes bytes of events, up to a line that belongs to no event.
    fn events(&mut self, bytes: &[u8], events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        let document = self.document_in(bytes);
        let (lines, document) = bytes.split_at(document.unwrap_or(bytes.len()));
        self.sse.push(lines);
        self.seen += lines.len() as u64;
        while let Some(item) = self.sse.pull() {
            match item? {
                SseItem::Event(event) => self.state.line(event.data, event.offset, events)?,
                SseItem::Comment(_) => self.state.ignore("comment", events),
            }
        }
        if document.is_empty() {
            return Ok(());
        }
        self.last_line(events)?;
        self.body = Body::Array(JsonArray::new(), self.seen);
        self.array(document, events)
    }

    /// Where in a chunk a line begins that belongs to no event.
    fn document_in(&mut self, bytes: &[u8]) -> Option<usize> {
        let is_document = |byte: &u8| matches!(byte, b'{' | b'[');
        let mut from = 0;
        loop {
            if self.at_line && bytes.get(from).is_some_and(is_document) {
                return Some(from);
            }
            let Some(length) = memchr(b'\n', bytes.get(from..)?) else {
                self.at_line &= bytes.len() == from;
                return None;
            };
            self.at_line = true;
            from += length + 1;
        }
    }

    /// Takes bytes of an array or a document.
    fn array(&mut self, bytes: &[u8], events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        let Body::Array(array, base) = &mut self.body else { return Ok(()) };
        array.push(bytes);
        while let Some(frame) = array.pull() {
            let frame = frame.map_err(|mut error| {
                error.offset += *base;
                error
            })?;
            self.state.line(frame.text, *base + frame.offset, events)?;
        }
        Ok(())
    }

    /// Reads the event that nothing follows.
    fn last_line(&mut self, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        let Some(event) = self.sse.finish() else { return Ok(()) };
        let event = event?;
        let whole = event.data.trim() == "[DONE]" || serde_json::from_str::<&RawValue>(event.data).is_ok();
        match whole {
            true => self.state.line(event.data, event.offset, events),
            // A line that the end of the body cut off: what it would have said did not arrive.
            false => {
                self.state.ignore("cut", events);
                Ok(())
            }
        }
    }
}

impl Decoder for GeminiDecoder {
    fn push(&mut self, bytes: &[u8], events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        let lead = match &mut self.body {
            Body::Events => return self.events(bytes, events),
            Body::Array(..) => return self.array(bytes, events),
            Body::Unseen(lead) => {
                lead.extend_from_slice(bytes);
                lead
            }
        };
        let kind = match sniff(lead) {
            None if lead.len() < LONGEST_LEAD => return Ok(()),
            kind => kind,
        };
        let lead = std::mem::take(lead);
        match kind {
            Some(BodyKind::Json) => {
                self.body = Body::Array(JsonArray::new(), 0);
                self.array(&lead, events)
            }
            Some(BodyKind::Markup) => {
                self.state.tally.unknown += 1;
                Err(ProviderError::new(
                    ErrorClass::InvalidOutput,
                    "the server answered with a page of markup instead of a stream: check --base-url, and whether a proxy or a login page is in the way",
                ))
            }
            _ => {
                self.body = Body::Events;
                self.events(&lead, events)
            }
        }
    }

    fn finish(&mut self, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        match &mut self.body {
            Body::Events => self.last_line(events)?,
            // An element that the end of the body cut off: what it would have said did not arrive.
            Body::Array(array, _) => {
                if let Some(frame) = array.finish() {
                    frame?;
                    self.state.ignore("cut", events);
                }
            }
            Body::Unseen(_) => {}
        }
        self.state.conclude(events);
        Ok(())
    }

    fn tally(&self) -> &Tally {
        &self.state.tally
    }
}

impl State {
    /// Reads the data of one event, or one element.
    fn line(&mut self, data: &str, offset: u64, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        let text = data.trim();
        if text.is_empty() || text == "[DONE]" {
            self.ignore(if text.is_empty() { "no data" } else { "[DONE]" }, events);
            return Ok(());
        }
        let before = events.len();
        self.held = false;
        match serde_json::from_str::<Chunk<'_>>(text) {
            Ok(chunk) if chunk.error.is_some() => self.fail(text, offset, events)?,
            Ok(chunk) if chunk.is_known() => self.chunk(chunk, offset, events)?,
            Ok(_) => {
                self.tally.unknown += 1;
                return Err(undecoded("what came is neither chunk nor error", offset, text));
            }
            Err(error) => {
                self.tally.unknown += 1;
                return Err(undecoded(&format!("what came is no chunk ({error})"), offset, text));
            }
        }
        if events.len() == before {
            self.ignore(if self.held { "held for the end" } else { "no content" }, events);
        }
        Ok(())
    }

    fn chunk(
        &mut self,
        chunk: Chunk<'_>,
        offset: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        if !self.informed && (!chunk.response_id.0.is_empty() || !chunk.model_version.0.is_empty()) {
            self.informed = true;
            let given = |text: Cow<'_, str>| (!text.is_empty()).then(|| text.into_owned());
            let info = ResponseInfo::new(given(chunk.response_id.0), given(chunk.model_version.0));
            events.push_back(ProviderEvent::ResponseInfo(info));
        }
        // Usage without a count says of which kind the traffic is, and nothing of the answer.
        if let Some(counts) = chunk.usage_metadata.filter(|counts| *counts != Counts::default()) {
            self.counts = Some(counts);
            self.held = true;
        }
        if let Some(feedback) = chunk.prompt_feedback.filter(|feedback| !feedback.block_reason.0.is_empty()) {
            self.blocked = Some(feedback.block_reason.0.into_owned());
            self.finish_message = feedback.block_reason_message.0.into_owned();
            self.held = true;
        }
        if chunk.candidates.others > 0 {
            self.tally.ignore("other candidate");
        }
        match chunk.candidates.first {
            Some(candidate) => self.candidate(candidate, offset, events),
            None => Ok(()),
        }
    }

    fn candidate(
        &mut self,
        candidate: Candidate<'_>,
        offset: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        let finish = &*candidate.finish_reason.0;
        // What is cut is not called, though it looks whole.
        let closes = matches!(finish, "" | "STOP");
        for part in candidate.content.into_iter().flat_map(|content| content.parts.into_iter()) {
            self.part(part, closes, offset, events)?;
        }
        if !finish.is_empty() {
            self.finish = Some(finish.to_owned());
            self.finish_message = candidate.finish_message.0.into_owned();
            self.held = true;
        }
        if let Some(Value::Object(grounding)) = value(candidate.grounding_metadata, offset)? {
            // It may come with each chunk, empty again in the last: what says something stays.
            let says = |value: &Value| !matches!(value, Value::Null) && *value != json!([]) && *value != json!({});
            self.grounding.extend(grounding.into_iter().filter(|(_, value)| says(value)));
            self.held = true;
        }
        let mut note = |kind: &str, holder: Option<Value>, lists: &[&str]| {
            let list = lists.iter().find_map(|name| holder.as_ref()?.get(*name)?.as_array());
            for data in list.into_iter().flatten() {
                let note = Annotation::new(None, kind, data.clone());
                if !self.citations.contains(&note) {
                    self.citations.push(note);
                }
                self.held = true;
            }
        };
        note("url_context", value(candidate.url_context_metadata, offset)?, &["urlMetadata"]);
        // The Developer API and Vertex call the list differently.
        note("citation", value(candidate.citation_metadata, offset)?, &["citationSources", "citations"]);
        Ok(())
    }

    fn part(
        &mut self,
        part: Part<'_>,
        closes: bool,
        offset: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        let signature = part.signature.0;
        let thought = part.thought.unwrap_or(false);
        let kind = if thought { Kind::Reasoning } else { Kind::Text };
        match part.data {
            Data::None if part.unknown.is_some() => {
                self.tally.unknown += 1;
                Err(undecoded("a part has data of an unknown kind", offset, &part.unknown.unwrap_or_default()))
            }
            Data::None => {
                self.say(kind, Cow::Borrowed(""), signature, events);
                Ok(())
            }
            Data::Text(text) => {
                self.say(kind, text.0, signature, events);
                Ok(())
            }
            Data::Call(raw) => {
                self.shut(events);
                let call = serde_json::from_str::<Call<'_>>(raw.get())
                    .map_err(|error| undecoded(&format!("a call does not decode ({error})"), offset, raw.get()))?;
                self.call(call, &signature, closes, events).map_err(|why| undecoded(&why, offset, raw.get()))
            }
            Data::Code(raw) => self.hosted("executableCode", raw, &signature, offset, events),
            Data::ServerCall(raw) => self.hosted("toolCall", raw, &signature, offset, events),
            Data::CodeResult(raw) => self.hosted_result("codeExecutionResult", raw, &signature, offset, events),
            Data::ServerResult(raw) => self.hosted_result("toolResponse", raw, &signature, offset, events),
            Data::Inline(raw) if thought => {
                let data = value(Some(raw), offset)?.unwrap_or_default();
                events.push_back(ProviderEvent::Annotation(Annotation::new(None, "thought_media", data)));
                Ok(())
            }
            Data::Inline(raw) | Data::File(raw) => self.media(raw, &signature, offset, events),
        }
    }

    /// Adds text to the open block of a kind, or to a new one; nothing opens no block, but a signature one of its own.
    fn say(&mut self, kind: Kind, text: Cow<'_, str>, signature: Cow<'_, str>, events: &mut VecDeque<ProviderEvent>) {
        if text.is_empty() && signature.is_empty() {
            return;
        }
        let block = match self.open {
            Some((block, open)) if open == kind && signature.is_empty() => block,
            _ => {
                self.shut(events);
                let block = self.block();
                self.open = Some((block, kind));
                events.push_back(match kind {
                    Kind::Reasoning => ProviderEvent::reasoning_start(block),
                    Kind::Text => ProviderEvent::text_start(block),
                });
                block
            }
        };
        if !text.is_empty() {
            events.push_back(match kind {
                Kind::Reasoning => ProviderEvent::reasoning_delta(block, text),
                Kind::Text => ProviderEvent::text_delta(block, text),
            });
        }
        if !signature.is_empty() {
            self.close(Some(json!({"thoughtSignature": signature})), events);
        }
    }

    /// Closes the open block of text or reasoning.
    fn shut(&mut self, events: &mut VecDeque<ProviderEvent>) {
        self.close(None, events);
    }

    fn close(&mut self, state: Option<Value>, events: &mut VecDeque<ProviderEvent>) {
        let Some((block, kind)) = self.open.take() else { return };
        events.push_back(match kind {
            Kind::Text => ProviderEvent::TextEnd(BlockEnd::new(block, None, state)),
            Kind::Reasoning => ProviderEvent::reasoning_end(block, state),
        });
    }

    fn block(&mut self) -> u32 {
        self.next_block += 1;
        self.next_block - 1
    }

    /// Takes a call of ours, or a piece of one.
    fn call(
        &mut self,
        call: Call<'_>,
        signature: &str,
        closes: bool,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), String> {
        let goes_on = call.will_continue.unwrap_or(false);
        let begins = !call.name.0.is_empty();
        if begins {
            // A call that was not closed before stays open: what is missing is not made up.
            let block = self.block();
            self.calls += 1;
            let (id, name) = (call.id.0.into_owned(), call.name.0.into_owned());
            events.push_back(ProviderEvent::tool_input_start(block, &*id, &*name));
            let mut state = Map::new();
            if !id.is_empty() {
                state.insert("id".to_owned(), json!(id));
            }
            if !signature.is_empty() {
                state.insert("thoughtSignature".to_owned(), json!(signature));
            }
            let state = (!state.is_empty()).then_some(Value::Object(state));
            self.partial = Some(Partial { block, id, name, state, arguments: Arguments::default() });
        }
        let Some(partial) = &mut self.partial else { return Err("a call has no name".to_owned()) };
        let args = call.args.map(RawValue::get).filter(|args| *args != "null");
        let mut malformed = None;
        match args.map(serde_json::from_str::<Value>) {
            Some(Ok(Value::Object(object))) => partial.arguments.extend(object),
            Some(_) => malformed = args,
            None => {}
        }
        let pieces = call.partial_args.unwrap_or_default();
        let whole = begins && pieces.is_empty();
        pieces.into_iter().try_for_each(|piece| partial.arguments.take(piece))?;
        if goes_on && malformed.is_none() {
            // Pieces by place have no text of their own: the arguments are given as one when they are whole.
            events.push_back(ProviderEvent::Alive);
            return Ok(());
        }
        let Some(Partial { block, id, name, state, arguments }) = self.partial.take() else { return Ok(()) };
        let input = Value::Object(arguments.into_object());
        let raw = malformed.or_else(|| args.filter(|_| whole)).map_or_else(|| input.to_string(), str::to_owned);
        events.push_back(ProviderEvent::tool_input_delta(block, &*raw));
        match (closes, malformed) {
            (false, _) => {}
            (true, Some(_)) => events.push_back(ProviderEvent::tool_input_malformed(block, id, name, raw)),
            (true, None) => {
                events.push_back(ProviderEvent::tool_input_end(block));
                events.push_back(ProviderEvent::ToolCall(ToolCallEvent::new(block, id, name, input).state(state)));
            }
        }
        Ok(())
    }

    /// A call that the server runs itself.
    fn hosted(
        &mut self,
        field: &'static str,
        raw: &RawValue,
        signature: &str,
        offset: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        self.shut(events);
        let call = value(Some(raw), offset)?.unwrap_or_default();
        let text = |name: &str| call.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let block = self.block();
        let (name, answer, input) = match field {
            "executableCode" => {
                let input = json!({"language": call.get("language"), "code": call.get("code")});
                ("code_execution".to_owned(), "codeExecutionResult", input)
            }
            _ => {
                let kind = text("toolType").unwrap_or("tool");
                let input = call.get("args").filter(|args| args.is_object()).cloned();
                (kind.to_lowercase(), "toolResponse", input.unwrap_or_else(|| json!({})))
            }
        };
        let id = text("id").map_or_else(|| format!("{name}_{block}"), str::to_owned);
        events.push_back(ProviderEvent::ToolInputStart(ToolInputStart::new(block, &*id, &*name, true)));
        events.push_back(ProviderEvent::tool_input_delta(block, input.to_string()));
        events.push_back(ProviderEvent::ToolInputEnd(ToolInputEnd::new(block)));
        let state = verbatim(field, call, signature);
        let called = ToolCallEvent::new(block, &*id, name, input).hosted().state(Some(state));
        events.push_back(ProviderEvent::ToolCall(called));
        self.awaited.push_back(Hosted { answer, id });
        Ok(())
    }

    /// The result of a call that the server ran itself: of the one with its id, else of the first of its kind that waits.
    fn hosted_result(
        &mut self,
        field: &'static str,
        raw: &RawValue,
        signature: &str,
        offset: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        self.shut(events);
        let result = value(Some(raw), offset)?.unwrap_or_default();
        let id = result.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
        let answers = |call: &Hosted| call.answer == field && id.is_none_or(|id| id == call.id);
        let call = self.awaited.iter().position(answers).and_then(|at| self.awaited.remove(at));
        let id = match (call, id) {
            (Some(call), _) => call.id,
            (None, Some(id)) => id.to_owned(),
            (None, None) => return Err(undecoded("a hosted result answers no call", offset, raw.get())),
        };
        let output = match field {
            "codeExecutionResult" => result.get("output").and_then(Value::as_str).unwrap_or_default().to_owned(),
            _ => result.get("response").map(Value::to_string).unwrap_or_default(),
        };
        let failed = match result.get("outcome").and_then(Value::as_str) {
            Some(outcome @ ("OUTCOME_FAILED" | "OUTCOME_DEADLINE_EXCEEDED")) => Some(outcome.to_owned()),
            _ => None,
        };
        let state = Some(verbatim(field, result, signature));
        events.push_back(match failed {
            Some(outcome) => ProviderEvent::HostedError(HostedError::new(id, format!("{outcome}: {output}"), state)),
            None => {
                let content = if output.is_empty() { Vec::new() } else { vec![Content::Text(output)] };
                ProviderEvent::HostedResult(HostedResult::new(id, content, state))
            }
        });
        Ok(())
    }

    /// Media that the model made.
    fn media(
        &mut self,
        raw: &RawValue,
        signature: &str,
        offset: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        let data = value(Some(raw), offset)?.unwrap_or_default();
        let text = |name: &str| data.get(name).and_then(Value::as_str);
        let media = match (text("mimeType"), text("data"), text("fileUri")) {
            (Some(mime), Some(data), _) => Media::base64(mime, data),
            (Some(mime), None, Some(uri)) => Media::url(mime, uri),
            _ => return Err(undecoded("media have no type or no data", offset, raw.get())),
        };
        self.shut(events);
        let state = (!signature.is_empty()).then(|| json!({"thoughtSignature": signature}));
        let block = self.block();
        events.push_back(ProviderEvent::Media(MediaBlock::new(block, media, state)));
        Ok(())
    }

    fn fail(&mut self, text: &str, offset: u64, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        if self.failed {
            self.tally.ignore("behind the error");
            return Ok(());
        }
        self.failed = true;
        self.shut(events);
        let error = serde_json::from_str::<Value>(text)
            .map_err(|error| undecoded(&format!("an error does not decode ({error})"), offset, text))?;
        events.push_back(ProviderEvent::Error(stream_error(&self.dialect, &error)));
        Ok(())
    }

    /// Counts a line without content, which is a sign of life.
    fn ignore(&mut self, reason: &'static str, events: &mut VecDeque<ProviderEvent>) {
        self.tally.ignore(reason);
        events.push_back(ProviderEvent::Alive);
    }

    /// The end of the answer: what was held back for it.
    fn conclude(&mut self, events: &mut VecDeque<ProviderEvent>) {
        self.shut(events);
        if self.failed {
            return;
        }
        let (reason, raw) = match (self.finish.take(), self.blocked.take()) {
            (Some(raw), _) => (self.dialect.finish_reason(&raw, self.calls), raw),
            (None, Some(raw)) => (FinishReason::ContentFilter, raw),
            (None, None) => return,
        };
        let mut note = |kind: &str, data: Value| {
            events.push_back(ProviderEvent::Annotation(Annotation::new(None, kind, data)));
        };
        for (field, kind) in [("groundingChunks", "source"), ("groundingSupports", "citation")] {
            if let Some(Value::Array(list)) = self.grounding.remove(field) {
                list.into_iter().for_each(|data| note(kind, data));
            }
        }
        if !self.grounding.is_empty() {
            note("search", Value::Object(std::mem::take(&mut self.grounding)));
        }
        if raw != "STOP" && !self.finish_message.is_empty() {
            note("finish_message", json!(self.finish_message));
        }
        events.extend(self.citations.drain(..).map(ProviderEvent::Annotation));
        let finish = Finish::new(reason).raw(raw).usage(self.counts.as_ref().map(usage));
        events.push_back(ProviderEvent::Finish(finish));
    }
}

/// A value that is read as it is.
fn value(raw: Option<&RawValue>, offset: u64) -> Result<Option<Value>, ProviderError> {
    let Some(raw) = raw else { return Ok(None) };
    let value = serde_json::from_str(raw.get());
    value.map(Some).map_err(|error| undecoded(&format!("a field does not decode ({error})"), offset, raw.get()))
}

/// A part of the server's own, to go back as it came.
fn verbatim(field: &str, data: Value, signature: &str) -> Value {
    let mut part = Map::new();
    part.insert(field.to_owned(), data);
    if !signature.is_empty() {
        part.insert("thoughtSignature".to_owned(), json!(signature));
    }
    json!({"part": part})
}

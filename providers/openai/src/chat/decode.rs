//! The decoder of Chat Completions: bytes in, events out, no I/O.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use settled_provider_api::{
    Annotation, BlockEnd, ErrorClass, Finish, FinishReason, Media, MediaBlock, ProviderError, ProviderEvent,
    ResponseInfo, Usage,
};
use settled_provider_wire::{BodyKind, DEFAULT_LIMIT, Decoder, SseDecoder, SseItem, Tally, sniff};

use super::calls::{Calls, Piece};
use super::chunk::{Chunk, Content, Counts, Delta, Fragment, Part};
use super::error::stream_error;
use super::options::{Dialect, ReasoningBack, ReasoningField};
use super::usage::usage;
use crate::template::Templates;
use crate::undecoded;

/// Fields that are read by nobody: they carry nothing of the answer.
///
/// A test walks through recorded traffic and fails at a field that is neither here nor decoded.
pub const IGNORED_FIELDS: [&str; 30] = [
    "__verbose",
    "audio",
    "channel",
    "content_filter_results",
    "copilot_usage",
    "cost",
    "created",
    "delta.index",
    "latency_checkpoint",
    "logprobs",
    "native_finish_reason",
    "obfuscation",
    "p",
    "prompt_filter_results",
    "prompt_text",
    "prompt_token_ids",
    "provider",
    "role",
    "seed",
    "service_tier",
    "stop_reason",
    "stream_options",
    "system_fingerprint",
    "text",
    "time_info",
    "timings",
    "token_id",
    "token_ids",
    "tool_calls.type",
    "x_groq.id",
];

/// How much of a body is looked at to see what it is.
const LONGEST_LEAD: usize = 4_096;

/// Decodes the body of one answer of Chat Completions, in any dialect.
///
/// The body is looked at, not its content type: a stream of events, or one JSON document (an error under status 200, or the whole answer of a server that does not stream).
///
/// # What becomes what
///
/// - A line that differs from one before it in its text alone is recognised without parsing.
/// - Reasoning is read from the first field of the dialect that has some, and from `thinking` parts; text from `content`. A block closes when another kind begins.
/// - A refusal is a block of text with the state `{"refusal":true}`, and makes the finish `stop` a refusal.
/// - Calls are put together from pieces whose labels may be missing, blank or repeated: a known id, else a known index, else the call before; a name under labels that have a whole call, or another name, opens a new one.
/// - Arguments are closed when another call opens behind a whole object, and at the end of an answer (`[DONE]`, or the body's end) that has a finish other than `length`, a filter or an unknown one; nothing and `null` then are `{}`. Else they stay open.
/// - The finish is remembered, and given once, at the end, with the last usage: both may come twice, and before the last text. What was not sent is not made up.
/// - An error inside the body is an event, the first alone; behind it no call is closed and no finish given.
/// - Comments, pings and chunks without content are signs of life.
///
/// Unknown fields are ignored ([`IGNORED_FIELDS`] names those in use); a line that is no chunk, no error and no ping fails with `invalid_output`.
#[derive(Debug)]
pub struct ChatDecoder {
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
    /// The open block of text or reasoning; calls are open beside it.
    open: Option<(u32, Kind)>,
    /// The reasoning details of the open block, to go back as they came.
    details: Vec<Value>,
    calls: Calls,
    informed: bool,
    /// Whether the answer has any content yet.
    begun: bool,
    refused: bool,
    finish: Option<String>,
    counts: Option<Counts>,
    citations: Option<Value>,
    sources: Option<Value>,
    /// The line at hand has said something that is held for the end.
    held: bool,
    failed: bool,
    /// `[DONE]` has come.
    over: bool,
    /// Lines of which it is known that they say a piece of text and nothing else.
    templates: Templates<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
    Refusal,
}

impl ChatDecoder {
    /// A decoder of one body.
    pub fn new(dialect: Arc<Dialect>) -> Self {
        let state = State {
            dialect,
            tally: Tally::default(),
            next_block: 0,
            open: None,
            details: Vec::new(),
            calls: Calls::default(),
            informed: false,
            begun: false,
            refused: false,
            finish: None,
            counts: None,
            citations: None,
            sources: None,
            held: false,
            failed: false,
            over: false,
            templates: Templates::default(),
        };
        Self { body: Body::Unseen(Vec::new()), sse: SseDecoder::new(), state }
    }

    /// The last usage that the body has reported, whether or not a finish has come that carries it.
    pub fn usage(&self) -> Option<Usage> {
        self.state.counts.map(|counts| usage(&self.state.dialect, &counts))
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

impl Decoder for ChatDecoder {
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
        self.state.end(events)
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
            if !self.over {
                self.over = true;
                self.conclude(events)?;
            }
            return Ok(());
        }
        if text.is_empty() || matches!(name, "ping" | "keepalive" | "heartbeat") {
            self.ignore("ping", events);
            return Ok(());
        }
        // Most lines are those before them with another text.
        if name.is_empty()
            && !self.over
            && let Some((kind, piece)) = self.templates.read(text)
        {
            self.say(kind, Cow::Borrowed(piece), events);
            return Ok(());
        }
        let before = (events.len(), self.details.len());
        self.held = false;
        let taken = match serde_json::from_str::<Chunk<'_>>(text) {
            Ok(chunk) if name != "error" && chunk.is_known() => {
                if self.over && chunk.error.is_none() {
                    self.tally.ignore("behind [DONE]");
                    return Ok(());
                }
                let alone = name.is_empty() && chunk.choices.others == 0;
                self.chunk(chunk, text, offset, events)?;
                if alone && !self.held && (before.0 + 1, before.1) == (events.len(), self.details.len()) {
                    match events.back() {
                        Some(ProviderEvent::TextDelta(delta)) if !self.refused => {
                            self.templates.learn(text, &delta.text, Kind::Text);
                        }
                        Some(ProviderEvent::ReasoningDelta(delta)) => {
                            self.templates.learn(text, &delta.text, Kind::Reasoning);
                        }
                        _ => {}
                    }
                }
                true
            }
            _ => self.other(name, text, events),
        };
        if !taken {
            self.tally.unknown += 1;
            let what = match serde_json::from_str::<Chunk<'_>>(text) {
                Err(error) => format!("a line is no chunk ({error})"),
                Ok(_) => "a line is neither chunk, error nor ping".to_owned(),
            };
            return Err(undecoded(&what, offset, text));
        }
        if events.len() == before.0 {
            self.ignore(if self.held { "held for the end" } else { "no content" }, events);
        }
        Ok(())
    }

    /// Reads a body that is one document.
    fn document(&mut self, text: &str, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        match serde_json::from_str::<Chunk<'_>>(text) {
            Ok(chunk) if chunk.is_known() => self.chunk(chunk, text, 0, events),
            _ if self.other("error", text, events) => Ok(()),
            _ => {
                self.tally.unknown += 1;
                Err(undecoded("the body is a document that is neither answer nor error", 0, text))
            }
        }
    }

    /// Reads a line that is no chunk: an error of another shape, or a ping; whether it is one of these.
    fn other(&mut self, name: &str, text: &str, events: &mut VecDeque<ProviderEvent>) -> bool {
        let Ok(value) = serde_json::from_str::<Value>(text) else { return false };
        let has = |field: &str| value.get(field).is_some_and(|value| !value.is_null());
        let is = |field: &str, word: &str| value.get(field).and_then(Value::as_str) == Some(word);
        if is("type", "ping") || is("object", "ping") {
            self.ignore("ping", events);
            return true;
        }
        let in_list = value.get(0).is_some_and(|first| first.get("error").is_some());
        let named = (has("message") || has("detail")) && (has("code") || has("type") || has("status") || has("detail"));
        let error = name == "error" || is("object", "error") || is("type", "error") || has("error") || in_list || named;
        if error && (value.is_object() || value.is_array()) {
            self.fail(&value, events);
            return true;
        }
        false
    }

    fn chunk(
        &mut self,
        chunk: Chunk<'_>,
        text: &str,
        offset: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        if !self.informed && (!chunk.id.is_blank() || !chunk.model.is_blank()) {
            self.informed = true;
            let (id, model) = (chunk.id.given(), chunk.model.given());
            let info = ResponseInfo::new(id.map(Cow::into_owned), model.map(Cow::into_owned));
            events.push_back(ProviderEvent::ResponseInfo(info));
        }
        if let Some(counts) = chunk.usage.or_else(|| chunk.x_groq.and_then(|groq| groq.usage)) {
            self.counts = Some(*counts);
            self.held = true;
        }
        let value = |raw: &RawValue| serde_json::from_str::<Value>(raw.get()).ok();
        if let Some(citations) = chunk.citations.and_then(value) {
            self.citations = Some(citations);
        }
        if let Some(sources) = chunk.search_results.and_then(value) {
            self.sources = Some(sources);
        }
        if chunk.choices.others > 0 {
            self.tally.ignore("other choice");
        }
        if let Some(choice) = chunk.choices.first {
            // Some servers repeat the whole message beside each delta; alone it is the answer.
            let delta = choice.delta.or_else(|| choice.message.map(|message| *message).filter(|_| !self.begun));
            if let Some(delta) = delta {
                self.delta(delta, offset, events)?;
            }
            if !choice.finish_reason.is_blank() {
                self.finish = Some(choice.finish_reason.0.into_owned());
                self.held = true;
            }
        }
        if chunk.error.is_some() {
            match serde_json::from_str::<Value>(text) {
                Ok(value) => self.fail(&value, events),
                Err(error) => return Err(undecoded(&format!("an error does not decode ({error})"), offset, text)),
            }
        }
        Ok(())
    }

    fn delta(
        &mut self,
        delta: Delta<'_>,
        offset: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        let mut details = match delta.reasoning_details {
            Some(raw) => serde_json::from_str::<Option<Vec<Value>>>(raw.get())
                .map_err(|error| undecoded(&format!("reasoning_details are no list ({error})"), offset, raw.get()))?
                .unwrap_or_default(),
            None => Vec::new(),
        };
        let (mut content, mut plain) = (Some(delta.reasoning_content), Some(delta.reasoning));
        for at in 0..self.dialect.reasoning.len() {
            let text = match self.dialect.reasoning.get(at) {
                Some(ReasoningField::ReasoningContent) => content.take().unwrap_or_default().0,
                Some(ReasoningField::Reasoning) => plain.take().unwrap_or_default().0,
                _ => Cow::Owned(details.iter().filter_map(detail_text).collect()),
            };
            if !text.is_empty() {
                self.say(Kind::Reasoning, text, events);
                break;
            }
        }
        // Without text they still have to go back: signatures, and reasoning that is encrypted.
        let keep = self.dialect.reasoning_back == ReasoningBack::ReasoningDetails;
        if keep && !details.is_empty() {
            self.open(Kind::Reasoning, events);
            self.details.append(&mut details);
        }
        match delta.content {
            Content::Text(text) => self.say(Kind::Text, text.0, events),
            Content::Parts(parts) => {
                parts.into_iter().try_for_each(|part| self.part(part, offset, events))?;
            }
        }
        if !delta.refusal.0.is_empty() {
            self.refused = true;
            self.say(Kind::Refusal, delta.refusal.0, events);
        }
        let legacy = delta.function_call.map(|function| Fragment { function: Some(*function), ..Fragment::default() });
        for fragment in delta.tool_calls.into_iter().flatten().chain(legacy) {
            self.fragment(fragment, offset, events)?;
        }
        let list = |raw: Option<&RawValue>| match raw.map(|raw| serde_json::from_str::<Value>(raw.get())) {
            Some(Ok(Value::Array(list))) => list,
            _ => Vec::new(),
        };
        for annotation in list(delta.annotations) {
            let kind = annotation.get("type").and_then(Value::as_str).unwrap_or("annotation").to_owned();
            events.push_back(ProviderEvent::Annotation(Annotation::new(None, kind, annotation)));
        }
        for image in list(delta.images) {
            self.image(&image, offset, events)?;
        }
        Ok(())
    }

    /// A part of a content that is a list.
    fn part(&mut self, part: Part<'_>, offset: u64, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        match &*part.kind.0 {
            "text" | "output_text" => self.say(Kind::Text, part.text.0, events),
            "thinking" => match part.thinking.map(|thinking| *thinking).unwrap_or_default() {
                Content::Text(text) => self.say(Kind::Reasoning, text.0, events),
                Content::Parts(parts) => {
                    parts.into_iter().for_each(|part| self.say(Kind::Reasoning, part.text.0, events))
                }
            },
            // Numbers of sources beside the text.
            "reference" => self.tally.ignore("reference"),
            kind => return Err(undecoded("a part of the content has an unknown type", offset, kind)),
        }
        Ok(())
    }

    fn fragment(
        &mut self,
        fragment: Fragment<'_>,
        offset: u64,
        events: &mut VecDeque<ProviderEvent>,
    ) -> Result<(), ProviderError> {
        let function = fragment.function;
        let arguments = match &function {
            Some(function) => function.arguments().map_err(|error| {
                let raw = function.arguments.map(RawValue::get).unwrap_or_default();
                undecoded(&format!("arguments of a call do not decode ({error})"), offset, raw)
            })?,
            None => Cow::Borrowed(""),
        };
        let name = function.and_then(|function| function.name.given());
        let piece = Piece { index: fragment.index, id: fragment.id.given(), name, arguments };
        if self.calls.is_empty() && piece.id.is_none() && piece.name.is_none() && piece.arguments.is_empty() {
            return Ok(());
        }
        self.shut(events);
        self.begun = true;
        self.calls.take(piece, &mut self.next_block, events)
    }

    /// A picture that the model made.
    fn image(&mut self, image: &Value, offset: u64, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        let url = image.pointer("/image_url/url").and_then(Value::as_str);
        let url = url.ok_or_else(|| undecoded("an image has no URL", offset, &image.to_string()))?;
        let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        let media = data.map_or_else(|| Media::url("image/*", url), |(mime, data)| Media::base64(mime, data));
        self.shut(events);
        self.begun = true;
        events.push_back(ProviderEvent::Media(MediaBlock::new(self.next_block, media, None)));
        self.next_block += 1;
        Ok(())
    }

    /// Adds text to the open block of a kind, or to a new one; nothing opens no block.
    fn say(&mut self, kind: Kind, text: Cow<'_, str>, events: &mut VecDeque<ProviderEvent>) {
        if text.is_empty() {
            return;
        }
        let block = self.open(kind, events);
        events.push_back(match kind {
            Kind::Reasoning => ProviderEvent::reasoning_delta(block, text),
            Kind::Text | Kind::Refusal => ProviderEvent::text_delta(block, text),
        });
    }

    /// The open block of a kind; another one is closed for it.
    fn open(&mut self, kind: Kind, events: &mut VecDeque<ProviderEvent>) -> u32 {
        match self.open {
            Some((block, open)) if open == kind => return block,
            _ => self.shut(events),
        }
        let block = self.next_block;
        self.next_block += 1;
        self.open = Some((block, kind));
        self.begun = true;
        events.push_back(match kind {
            Kind::Reasoning => ProviderEvent::reasoning_start(block),
            Kind::Text | Kind::Refusal => ProviderEvent::text_start(block),
        });
        block
    }

    /// Closes the open block of text or reasoning.
    fn shut(&mut self, events: &mut VecDeque<ProviderEvent>) {
        let Some((block, kind)) = self.open.take() else { return };
        events.push_back(match kind {
            Kind::Text => ProviderEvent::text_end(block),
            Kind::Refusal => ProviderEvent::TextEnd(BlockEnd::new(block, None, Some(json!({"refusal": true})))),
            Kind::Reasoning => {
                let details = merge(std::mem::take(&mut self.details));
                let state = (!details.is_empty()).then(|| json!({"reasoning_details": details}));
                ProviderEvent::reasoning_end(block, state)
            }
        });
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

    /// The end of the body.
    fn end(&mut self, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        match self.over {
            true => Ok(()),
            false => self.conclude(events),
        }
    }

    /// The end of the answer: what was held back for it.
    fn conclude(&mut self, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        self.shut(events);
        if self.failed {
            return Ok(());
        }
        let raw = self.finish.take();
        let marked = self.over && self.dialect.marker_finishes;
        let reason = match raw.as_deref().map(|raw| self.dialect.finish_reason(raw)) {
            Some(FinishReason::Stop) if self.refused => FinishReason::Refusal,
            Some(reason) => reason,
            None if marked && self.refused => FinishReason::Refusal,
            None if marked && self.calls.is_empty() => FinishReason::Stop,
            None if marked => FinishReason::ToolCalls,
            None => return Ok(()),
        };
        if matches!(reason, FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Refusal) {
            self.calls.close(events)?;
        }
        for (kind, list) in [("citation", self.citations.take()), ("source", self.sources.take())] {
            if let Some(Value::Array(list)) = list {
                let notes = list.into_iter().map(|data| Annotation::new(None, kind, data));
                events.extend(notes.map(ProviderEvent::Annotation));
            }
        }
        let mut finish = Finish::new(reason).usage(self.counts.map(|counts| usage(&self.dialect, &counts)));
        if let Some(raw) = raw {
            finish = finish.raw(raw);
        }
        events.push_back(ProviderEvent::Finish(finish));
        Ok(())
    }
}

impl Chunk<'_> {
    /// Whether it has a field by which a chunk is known.
    fn is_known(&self) -> bool {
        self.choices.given
            || self.usage.is_some()
            || self.x_groq.is_some()
            || self.error.is_some()
            || self.object.0.starts_with("chat.completion")
    }
}

/// The text of a reasoning detail.
fn detail_text(detail: &Value) -> Option<&str> {
    ["text", "summary"].into_iter().find_map(|field| detail.get(field)?.as_str())
}

/// Pieces of reasoning details as the whole ones that they make: texts joined, the last of everything else.
fn merge(pieces: Vec<Value>) -> Vec<Value> {
    let mut whole: Vec<Value> = Vec::new();
    for piece in pieces {
        let same = |one: &Value| ["type", "index"].into_iter().all(|field| one.get(field) == piece.get(field));
        match (whole.last_mut().filter(|last| same(last)), piece) {
            (Some(Value::Object(last)), Value::Object(piece)) => {
                for (field, value) in piece {
                    match (last.get_mut(&field), value) {
                        (Some(Value::String(text)), Value::String(more))
                            if matches!(field.as_str(), "text" | "summary" | "data") =>
                        {
                            text.push_str(&more);
                        }
                        (Some(_), Value::Null) => {}
                        (_, value) => {
                            last.insert(field, value);
                        }
                    }
                }
            }
            (_, piece) => whole.push(piece),
        }
    }
    whole
}

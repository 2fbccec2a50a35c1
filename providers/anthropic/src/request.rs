//! Lowering: a request as the body of the Messages API.
//!
//! Beside what other clients sent in recorded sessions with tools and thinking, what we send in the same situation differs in this, and in nothing else (a test compares them field by field):
//!
//! | where | who has it | why |
//! |---|---|---|
//! | `cache_control` | we | we set breakpoints; those clients set none there |
//! | a call's `caller` | we | all that a call said of itself goes back |
//! | a blank text | they | the wire refuses it where it stands alone |
//! | a search, its result and the citations | we | they drop them, and send the text alone |
//! | a tool's empty `description`, `strict`, `defer_loading`; `tool_choice: auto` | they | a definition of ours has no such word, and what is the default is not sent |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use settled_provider_api::{
    AssistantPart, CallPart, Content, ErrorClass, HostedResultPart, Media, MediaData, Message, ProviderError, Request,
    ResponseFormat, TextPart, ToolChoice, ToolResult,
};

use crate::options::{Cache, Dialect, UnsignedThinking};

/// The most breakpoints that the wire takes in one request.
const BREAKPOINTS: usize = 4;

/// What stands for a result that is not there.
const UNKNOWN_RESULT: &str = "(the result is not known)";

/// The body of a request, in a dialect; the same request always gives the same text.
///
/// - Each system part is a block; a system message in the middle is a text of the user's in `<system>` tags, since the wire has no such role.
/// - Neighbours of one role make one message: results, and what a person says behind them; a paused answer, and the one that goes on from it.
/// - Reasoning goes back with its signature; redacted reasoning, compactions and blocks of unknown types as they came; without a signature as the dialect says.
/// - Text goes back with its citations; a hosted call and its result as they came, where both may go back.
///   Where one of them may not, the pair is lowered like a local call and its result, which stands right behind it.
/// - In front of calls stands what was said, also what was said behind them: the wire wants results right behind calls.
/// - Ids that have other characters than letters, digits, `_` and `-` get `_` for them, in the call and in its result.
/// - Blank text is left out, an empty message with it, and white space at the end of an assistant's last message.
/// - Where the history has calls and the request no tools, the called tools are named without a schema and may not be called: the wire wants a definition.
/// - A person's text files are documents, as are PDF files; media that a model made are a note.
/// - `max_tokens` is the dialect's for the model where the request has none.
/// - Breakpoints for the cache, four at most, stand at the end of the tools, of the system, of the last message of the user's and of the one before, where the request before had its last: what is in front of them never changes while the history grows.
///   Those that raw options or hosted tools bring along count.
/// - The raw options win over everything.
///
/// # Errors
///
/// Class `unsupported`: media that the wire cannot carry; a choice of tools without tools; a seed; JSON without a schema.
pub fn lower(request: &Request, dialect: &Dialect) -> Result<Value, ProviderError> {
    let options = &request.options;
    let mut body = Map::new();
    let mut set = |field: &str, value: Value| body.insert(field.to_owned(), value);
    set("model", json!(request.model.model));
    set("max_tokens", json!(request.max_output.unwrap_or_else(|| dialect.max_output(&request.model.model))));
    set("stream", json!(true));
    let mut system: Vec<Value> = request.system.iter().map(|part| text_block(part)).collect();
    let mut messages = Lowering::of(&request.messages, dialect)?;
    let (mut tools, choice) = tools(request, dialect)?;
    if let Some(choice) = choice {
        set("tool_choice", choice);
    }
    let brought: usize = options.raw.values().chain(&dialect.hosted_tools).map(breakpoints).sum();
    // Set for the whole request, the wire puts a breakpoint at its end by itself.
    let automatic = options.raw.contains_key("cache_control");
    let left = if automatic { 0 } else { BREAKPOINTS.saturating_sub(brought) };
    let mark = match dialect.cache {
        Cache::FiveMinutes => Some(json!({"type": "ephemeral"})),
        Cache::OneHour => Some(json!({"type": "ephemeral", "ttl": "1h"})),
        Cache::Off => None,
    };
    if let Some(mark) = mark {
        let mut users = messages.iter_mut().rev().filter(|turn| turn.role == "user").map(|turn| turn.blocks.last_mut());
        // The most telling first, for where some are taken.
        let places = [users.next().flatten(), system.last_mut(), tools.last_mut(), users.next().flatten()];
        for place in places.into_iter().flatten().filter_map(Value::as_object_mut).take(left) {
            place.entry("cache_control").or_insert_with(|| mark.clone());
        }
    }
    if !system.is_empty() {
        set("system", Value::Array(system));
    }
    if !tools.is_empty() {
        set("tools", Value::Array(tools));
    }
    let messages = messages.into_iter().map(|turn| json!({"role": turn.role, "content": turn.blocks}));
    set("messages", messages.collect());
    if let Some(temperature) = options.temperature {
        set("temperature", json!(temperature));
    }
    if let Some(top_p) = options.top_p {
        set("top_p", json!(top_p));
    }
    if !options.stop.is_empty() {
        set("stop_sequences", json!(options.stop));
    }
    if options.seed.is_some() {
        return Err(unsupported("the Messages API has no seed"));
    }
    let mut output = Map::new();
    match &options.response_format {
        None => {}
        // The schema's name has no place on the wire, and it is always held to strictly.
        Some(ResponseFormat::JsonSchema { schema, .. }) => {
            output.insert("format".to_owned(), json!({"type": "json_schema", "schema": schema}));
        }
        Some(other) => {
            return Err(unsupported(&format!("the response format {other:?} has no place in the Messages API")));
        }
    }
    if let Some(effort) = &options.reasoning_effort {
        output.insert("effort".to_owned(), json!(effort));
    }
    if !output.is_empty() {
        set("output_config", Value::Object(output));
    }
    if let Some(tier) = &options.service_tier {
        set("service_tier", json!(tier));
    }
    for (field, value) in &options.raw {
        body.insert(field.clone(), value.clone());
    }
    Ok(Value::Object(body))
}

/// The tools on offer, and the choice among them.
fn tools(request: &Request, dialect: &Dialect) -> Result<(Vec<Value>, Option<Value>), ProviderError> {
    let own = request.tools.iter().map(|tool| {
        let mut definition = json!({"name": tool.name, "input_schema": tool.input_schema});
        if !tool.description.is_empty() {
            definition["description"] = json!(tool.description);
        }
        definition
    });
    let mut tools: Vec<Value> = dialect.hosted_tools.iter().cloned().chain(own).collect();
    let mut choice = match &request.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::None => (!tools.is_empty()).then(|| json!({"type": "none"})),
        ToolChoice::Required | ToolChoice::Tool(_) if tools.is_empty() => {
            return Err(unsupported("a call is required, and there is no tool"));
        }
        ToolChoice::Required => Some(json!({"type": "any"})),
        ToolChoice::Tool(name) => Some(json!({"type": "tool", "name": name})),
    };
    if request.options.parallel_tool_calls == Some(false)
        && !tools.is_empty()
        && request.tool_choice != ToolChoice::None
    {
        choice.get_or_insert_with(|| json!({"type": "auto"}))["disable_parallel_tool_use"] = json!(true);
    }
    if tools.is_empty() {
        let local = calls(&request.messages).filter(|call| !call.hosted || block(&call.state).is_none());
        let called: BTreeSet<&str> = local.map(|call| call.name.as_str()).collect();
        if !called.is_empty() {
            tools.extend(called.into_iter().map(|name| json!({"name": name, "input_schema": {"type": "object"}})));
            choice = Some(json!({"type": "none"}));
        }
    }
    Ok((tools, choice))
}

/// Every call of a history.
fn calls(messages: &[Arc<Message>]) -> impl Iterator<Item = &CallPart> {
    let parts = messages.iter().filter_map(|message| match &**message {
        Message::Assistant(parts) => Some(parts),
        _ => None,
    });
    parts.flatten().filter_map(|part| match part {
        AssistantPart::Call(call) => Some(call),
        _ => None,
    })
}

/// One message on the wire.
struct Turn {
    role: &'static str,
    blocks: Vec<Value>,
}

/// A history on its way to the wire.
struct Lowering<'a> {
    dialect: &'a Dialect,
    /// What each id is on the wire.
    ids: BTreeMap<&'a str, String>,
    /// The results of local calls, by the id of the call.
    results: BTreeMap<&'a str, &'a ToolResult>,
    /// The results of hosted calls, by the id of the call.
    hosted: BTreeMap<&'a str, &'a HostedResultPart>,
    /// The hosted calls that go back as they came, by id.
    native: BTreeSet<&'a str>,
    turns: Vec<Turn>,
}

/// What an assistant says between two messages of the user's.
#[derive(Default)]
struct Said<'a> {
    blocks: Vec<Value>,
    /// Where the first call stands that has its result in the next message.
    first_call: Option<usize>,
    /// The calls that have their results in the next message.
    calls: Vec<&'a CallPart>,
}

impl<'a> Lowering<'a> {
    fn of(messages: &'a [Arc<Message>], dialect: &'a Dialect) -> Result<Vec<Turn>, ProviderError> {
        let mut lowering = Self {
            dialect,
            ids: BTreeMap::new(),
            results: BTreeMap::new(),
            hosted: BTreeMap::new(),
            native: BTreeSet::new(),
            turns: Vec::new(),
        };
        for message in messages {
            match &**message {
                Message::Tool(result) => {
                    lowering.results.insert(&result.id, result);
                }
                Message::Assistant(parts) => {
                    let results = parts.iter().filter_map(|part| match part {
                        AssistantPart::HostedResult(result) => Some((result.id.as_str(), result)),
                        _ => None,
                    });
                    lowering.hosted.extend(results);
                }
                Message::System(_) | Message::User(_) => {}
            }
        }
        let mut used = BTreeSet::new();
        for call in calls(messages) {
            let id = wire_id(&call.id, &used);
            used.insert(id.clone());
            lowering.ids.insert(&call.id, id);
            let result = lowering.hosted.get(call.id.as_str());
            if call.hosted && block(&call.state).is_some() && result.is_none_or(|result| block(&result.state).is_some())
            {
                lowering.native.insert(&call.id);
            }
        }
        for message in messages {
            match &**message {
                Message::System(text) => lowering.push("user", text_block(&format!("<system>\n{text}\n</system>"))),
                Message::User(content) => {
                    content.iter().filter(|piece| !blank(piece)).try_for_each(|piece| {
                        lowering.push("user", content_block(piece)?);
                        Ok::<_, ProviderError>(())
                    })?;
                }
                Message::Assistant(parts) => lowering.assistant(parts)?,
                // Behind its call it has been said already.
                Message::Tool(result) if lowering.ids.contains_key(result.id.as_str()) => {}
                Message::Tool(result) => {
                    let block = lowering.result(&result.id, result.error, &result.content)?;
                    lowering.push("user", block);
                }
            }
        }
        // The wire refuses white space at the end of what the model is to go on from.
        if let Some(Turn { role: "assistant", blocks }) = lowering.turns.last_mut()
            && let Some(Value::String(text)) = blocks.last_mut().and_then(|block| block.get_mut("text"))
        {
            text.truncate(text.trim_end().len());
        }
        Ok(lowering.turns)
    }

    fn push(&mut self, role: &'static str, block: Value) {
        match self.turns.last_mut() {
            Some(turn) if turn.role == role => turn.blocks.push(block),
            _ => self.turns.push(Turn { role, blocks: vec![block] }),
        }
    }

    fn assistant(&mut self, parts: &'a [AssistantPart]) -> Result<(), ProviderError> {
        let mut said = Said::default();
        for part in parts {
            match part {
                AssistantPart::Text(text) => {
                    if !text.text.trim().is_empty() {
                        let mut block = text_block(&text.text);
                        if let Some(citations) = text.state.as_ref().and_then(|state| state.get("citations")) {
                            block["citations"] = citations.clone();
                        }
                        self.say(&mut said, block)?;
                    }
                }
                AssistantPart::Reasoning(reasoning) => {
                    if let Some(block) = self.reasoning(reasoning) {
                        self.say(&mut said, block)?;
                    }
                }
                AssistantPart::Media(media) => {
                    self.say(&mut said, text_block(&format!("[{} made by the model]", media.mime)))?;
                }
                AssistantPart::Call(call) => {
                    let native = self.native.contains(call.id.as_str());
                    if native && said.calls.iter().any(|call| call.hosted) {
                        self.flush(&mut said)?;
                    }
                    let mut block = block(&call.state).filter(|_| native || !call.hosted).cloned().unwrap_or_default();
                    block.entry("type").or_insert_with(|| json!("tool_use"));
                    block.insert("id".to_owned(), json!(self.ids.get(call.id.as_str())));
                    block.insert("name".to_owned(), json!(call.name));
                    block.insert("input".to_owned(), call.input.clone());
                    if !native {
                        said.first_call.get_or_insert(said.blocks.len());
                        said.calls.push(call);
                    }
                    said.blocks.push(Value::Object(block));
                }
                AssistantPart::HostedResult(result) => {
                    let native = self.native.contains(result.id.as_str());
                    if let Some(mut block) = block(&result.state).filter(|_| native).cloned() {
                        block.insert("tool_use_id".to_owned(), json!(self.ids.get(result.id.as_str())));
                        said.blocks.push(Value::Object(block));
                    }
                }
            }
        }
        self.flush(&mut said)
    }

    /// Adds what was said: behind a hosted pair that is lowered like a local one it begins a new message, and it stands in front of local calls.
    fn say(&mut self, said: &mut Said<'a>, block: Value) -> Result<(), ProviderError> {
        if said.calls.iter().any(|call| call.hosted) {
            self.flush(said)?;
        }
        match &mut said.first_call {
            Some(at) => {
                said.blocks.insert(*at, block);
                *at += 1;
            }
            None => said.blocks.push(block),
        }
        Ok(())
    }

    /// Gives what was said to the wire, and the results of its calls right behind it.
    fn flush(&mut self, said: &mut Said<'a>) -> Result<(), ProviderError> {
        let Said { blocks, calls, .. } = std::mem::take(said);
        for block in blocks {
            self.push("assistant", block);
        }
        for call in calls {
            let id = call.id.as_str();
            let unknown = [Content::text(UNKNOWN_RESULT)];
            let (error, content) = match (self.results.get(id), self.hosted.get(id)) {
                (Some(result), _) => (result.error, result.content.as_slice()),
                (None, Some(result)) => (result.error, result.content.as_slice()),
                (None, None) => (true, unknown.as_slice()),
            };
            let block = self.result(id, error, content)?;
            self.push("user", block);
        }
        Ok(())
    }

    /// Reasoning that may go back to its model.
    fn reasoning(&self, reasoning: &TextPart) -> Option<Value> {
        let signature = reasoning.state.as_ref().and_then(|state| state.get("signature"));
        let unsigned = match self.dialect.unsigned_thinking {
            UnsignedThinking::Sent => Some(json!("")).filter(|_| !reasoning.text.trim().is_empty()),
            UnsignedThinking::LeftOut => None,
        };
        match (block(&reasoning.state), signature.cloned().or(unsigned)) {
            (Some(block), _) => Some(Value::Object(block.clone())),
            (None, Some(signature)) => {
                Some(json!({"type": "thinking", "thinking": reasoning.text, "signature": signature}))
            }
            (None, None) => None,
        }
    }

    /// A call's result; one text is sent as such.
    fn result(&self, id: &str, error: bool, content: &[Content]) -> Result<Value, ProviderError> {
        let content: Vec<&Content> = content.iter().filter(|piece| !blank(piece)).collect();
        let content = match content.as_slice() {
            [] => json!("(no output)"),
            [Content::Text(text)] => json!(text),
            pieces => pieces.iter().map(|piece| content_block(piece)).collect::<Result<Value, _>>()?,
        };
        let id = self.ids.get(id).map_or(id, String::as_str);
        let mut block = json!({"type": "tool_result", "tool_use_id": id, "content": content});
        if error {
            block["is_error"] = json!(true);
        }
        Ok(block)
    }
}

/// The block that provider state keeps.
fn block(state: &Option<Value>) -> Option<&Map<String, Value>> {
    state.as_ref()?.get("block")?.as_object()
}

/// An id as the wire takes it, unlike any in use; it depends on the ids before it alone, so that it stays the same while the history grows.
fn wire_id(id: &str, used: &BTreeSet<String>) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let plain: String = id.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
    let mut candidate = if plain.is_empty() { "call".to_owned() } else { plain.clone() };
    let mut number = 2;
    while used.contains(&candidate) {
        candidate = format!("{plain}_{number}");
        number += 1;
    }
    candidate
}

/// How many breakpoints a value brings along.
fn breakpoints(value: &Value) -> usize {
    match value {
        Value::Object(fields) => {
            let own = fields.get("cache_control").is_some_and(|mark| !mark.is_null());
            usize::from(own) + fields.values().map(breakpoints).sum::<usize>()
        }
        Value::Array(list) => list.iter().map(breakpoints).sum(),
        _ => 0,
    }
}

/// Whether a piece of content is text without anything to read.
fn blank(piece: &Content) -> bool {
    piece.as_text().is_some_and(|text| text.trim().is_empty())
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn content_block(piece: &Content) -> Result<Value, ProviderError> {
    match piece {
        Content::Text(text) => Ok(text_block(text)),
        Content::Media(media) => media_block(media),
    }
}

/// An image, a PDF file or a text file.
fn media_block(media: &Media) -> Result<Value, ProviderError> {
    let refused = |what: &str| unsupported(&format!("media of type {} {what}", media.mime));
    let inline = |data: &str| json!({"type": "base64", "media_type": media.mime, "data": data});
    // A URL that has its data in it is no address that a provider could fetch.
    let data = match &media.data {
        MediaData::Base64(data) => Ok(&**data),
        MediaData::Url(url) => match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((_, data)) => Ok(data),
            None => Err(url),
        },
        _ => return Err(refused("has its data in a place that the Messages API does not know")),
    };
    let (kind, source) = match (media.mime.split_once('/'), data) {
        (Some(("image", _)), Ok(data)) => ("image", inline(data)),
        (Some(("image", _)), Err(url)) => ("image", json!({"type": "url", "url": url})),
        (Some(("application", "pdf")), Ok(data)) => ("document", inline(data)),
        (Some(("application", "pdf")), Err(url)) => ("document", json!({"type": "url", "url": url})),
        (Some(("text", _)), Ok(data)) => {
            let text = STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            let text = text.ok_or_else(|| refused("is no UTF-8 text in base64"))?;
            ("document", json!({"type": "text", "media_type": "text/plain", "data": text}))
        }
        (_, Ok(_)) => return Err(refused("has no place in the Messages API")),
        (_, Err(_)) => return Err(refused("by URL has no place in the Messages API")),
    };
    let mut block = json!({"type": kind, "source": source});
    if let (Some(name), "document") = (&media.name, kind) {
        block["title"] = json!(name);
    }
    Ok(block)
}

fn unsupported(what: &str) -> ProviderError {
    ProviderError::new(ErrorClass::Unsupported, what)
}

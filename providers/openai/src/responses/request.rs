//! Lowering: a request as the body of the Responses API.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value, json};
use settled_provider_api::{
    AssistantPart, CallPart, Content, ErrorClass, HostedResultPart, Media, MediaData, Message, ProviderError, Request,
    ResponseFormat, TextPart, ToolChoice,
};

use super::options::{Dialect, ItemIds};

/// The longest id of a call that the wire takes, in bytes.
const LONGEST_ID: usize = 64;

/// What stands for a result that is not there.
const UNKNOWN_RESULT: &str = "(the result is not known)";

/// The body of a request, in a dialect; the same request always gives the same text.
///
/// - The system parts are the instructions, joined by blank lines; a system message in the middle has the dialect's role for it.
/// - The provider keeps nothing (`store` is false) unless the dialect or raw options say so; what it encrypts of its reasoning is asked for, of models that reason.
/// - Reasoning goes back as the item it came as, where the server can read it (its content is encrypted or in the open, or the server has stored it) and something of the same answer follows it, as the wire wants.
/// - Ids of messages and calls go back where all the reasoning goes back that they are linked with; else they are left out, and calls and their results still know each other.
/// - A hosted call and its result go back as they came, where both may go back with their ids; else they are lowered like a local call and its result.
/// - The arguments of a call go back in the very text that came, as long as they say the same.
/// - Text goes back with its phase, its annotations, or as the refusal it was; blank text is left out.
/// - A call's result is one text, or a list of texts, images and files.
/// - Images go in by URL or inline; PDF and text files, and other documents, as files.
/// - Labels of more than 64 bytes, which the wire refuses, are shortened, in the call and in its result.
/// - The schema of a tool is as it is: the wire is told not to be strict about it.
/// - The limit of the answer is left out where the dialect's server refuses it.
/// - The raw options win over everything.
///
/// # Errors
///
/// Class `unsupported`: media that the wire cannot carry; a choice of tools without tools; a seed; stop sequences; an option that the dialect's server refuses.
pub fn lower(request: &Request, dialect: &Dialect) -> Result<Value, ProviderError> {
    let options = &request.options;
    if options.seed.is_some() {
        return Err(unsupported("the Responses API has no seed"));
    }
    if !options.stop.is_empty() {
        return Err(unsupported("the Responses API has no stop sequences"));
    }
    let mut body = Map::new();
    let mut set = |field: &str, value: Value| body.insert(field.to_owned(), value);
    set("model", json!(request.model.model));
    if !request.system.is_empty() {
        let parts: Vec<&str> = request.system.iter().map(Arc::as_ref).collect();
        set("instructions", json!(parts.join("\n\n")));
    }
    let store = options.raw.get("store").map_or(dialect.store, Value::as_bool);
    set("input", Value::Array(Lowering::of(&request.messages, dialect, store)?));
    set("stream", json!(true));
    if let Some(store) = dialect.store {
        set("store", json!(store));
    }
    let reasons = dialect.reasons(&request.model.model);
    if reasons && !dialect.include.is_empty() {
        set("include", json!(dialect.include));
    }
    let (tools, choice) = tools(request, dialect)?;
    if let Some(parallel) = options.parallel_tool_calls.filter(|_| !tools.is_empty()) {
        set("parallel_tool_calls", json!(parallel));
    }
    if !tools.is_empty() {
        set("tools", Value::Array(tools));
    }
    if let Some(choice) = choice {
        set("tool_choice", choice);
    }
    let refused = |field: &str| dialect.refused.iter().any(|refused| refused == field);
    if let Some(most) = request.max_output.filter(|_| !refused("max_output_tokens")) {
        set("max_output_tokens", json!(most));
    }
    for (field, value) in [("temperature", options.temperature), ("top_p", options.top_p)] {
        match value {
            Some(_) if refused(field) => return Err(unsupported(&format!("{} takes no {field}", dialect.name))),
            Some(value) => {
                set(field, json!(value));
            }
            None => {}
        }
    }
    match &options.response_format {
        None => {}
        Some(ResponseFormat::JsonObject) => {
            set("text", json!({"format": {"type": "json_object"}}));
        }
        Some(ResponseFormat::JsonSchema { name, schema, strict }) => {
            let format = json!({"type": "json_schema", "name": name, "schema": schema, "strict": strict});
            set("text", json!({"format": format}));
        }
        Some(other) => {
            return Err(unsupported(&format!("the response format {other:?} has no place in the Responses API")));
        }
    }
    let mut reasoning = Map::new();
    if let Some(effort) = &options.reasoning_effort {
        reasoning.insert("effort".to_owned(), json!(effort));
    }
    if let Some(summary) = dialect.reasoning_summary.as_ref().filter(|_| reasons) {
        reasoning.insert("summary".to_owned(), json!(summary));
    }
    if !reasoning.is_empty() {
        set("reasoning", Value::Object(reasoning));
    }
    if let Some(tier) = &options.service_tier {
        set("service_tier", json!(tier));
    }
    if let Some(field) = &dialect.cache_key {
        set(field, json!(request.purpose.cache_key()));
    }
    for (field, value) in &options.raw {
        body.insert(field.clone(), value.clone());
    }
    Ok(Value::Object(body))
}

/// The tools on offer, and the choice among them.
fn tools(request: &Request, dialect: &Dialect) -> Result<(Vec<Value>, Option<Value>), ProviderError> {
    let own = request.tools.iter().map(|tool| {
        // Where nothing is said, the wire is strict, and refuses most schemas.
        let mut own = json!({"type": "function", "name": tool.name, "parameters": tool.input_schema, "strict": false});
        if !tool.description.is_empty() {
            own["description"] = json!(tool.description);
        }
        own
    });
    let tools: Vec<Value> = dialect.hosted_tools.iter().cloned().chain(own).collect();
    let choice = match &request.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::None => (!tools.is_empty()).then(|| json!("none")),
        ToolChoice::Required | ToolChoice::Tool(_) if tools.is_empty() => {
            return Err(unsupported("a call is required, and there is no tool"));
        }
        ToolChoice::Required => Some(json!("required")),
        ToolChoice::Tool(name) => Some(json!({"type": "function", "name": name})),
    };
    Ok((tools, choice))
}

/// A history on its way to the wire.
struct Lowering<'a> {
    dialect: &'a Dialect,
    /// Whether the server keeps responses; not known where `None`.
    store: Option<bool>,
    /// What the label of each call is on the wire.
    labels: BTreeMap<&'a str, String>,
    /// The results of hosted calls, by the label of the call.
    hosted: BTreeMap<&'a str, &'a HostedResultPart>,
    /// The hosted calls that go back as they came, by label.
    native: BTreeSet<&'a str>,
    input: Vec<Value>,
}

impl<'a> Lowering<'a> {
    fn of(
        messages: &'a [Arc<Message>],
        dialect: &'a Dialect,
        store: Option<bool>,
    ) -> Result<Vec<Value>, ProviderError> {
        let mut lowering = Self {
            dialect,
            store,
            labels: BTreeMap::new(),
            hosted: BTreeMap::new(),
            native: BTreeSet::new(),
            input: Vec::new(),
        };
        let mut used = BTreeSet::new();
        for message in messages {
            let Message::Assistant(parts) = &**message else { continue };
            for part in parts {
                match part {
                    AssistantPart::Call(call) => {
                        let label = short_label(&call.id, &used);
                        used.insert(label.clone());
                        lowering.labels.insert(&call.id, label);
                    }
                    AssistantPart::HostedResult(result) => {
                        lowering.hosted.insert(&result.id, result);
                    }
                    AssistantPart::Text(_) | AssistantPart::Reasoning(_) | AssistantPart::Media(_) => {}
                }
            }
        }
        for message in messages {
            match &**message {
                Message::System(text) => {
                    lowering.input.push(json!({"role": dialect.system_role, "content": text}));
                }
                Message::User(content) => {
                    let content = content_list(content)?;
                    if !content.is_empty() {
                        lowering.input.push(json!({"role": "user", "content": content}));
                    }
                }
                Message::Assistant(parts) => lowering.assistant(parts)?,
                Message::Tool(result) => lowering.output(&result.id, &result.content)?,
            }
        }
        Ok(lowering.input)
    }

    fn assistant(&mut self, parts: &'a [AssistantPart]) -> Result<(), ProviderError> {
        // Reasoning behind which nothing follows is refused by the wire.
        let followed = parts.iter().rposition(|part| match part {
            AssistantPart::Text(text) => !text.text.trim().is_empty(),
            AssistantPart::Call(_) | AssistantPart::Media(_) => true,
            AssistantPart::Reasoning(_) | AssistantPart::HostedResult(_) => false,
        });
        let reasoning = parts.iter().take(followed.unwrap_or(0)).filter_map(|part| match part {
            AssistantPart::Reasoning(reasoning) => item(&reasoning.state).filter(|item| self.readable(item)),
            _ => None,
        });
        let back: BTreeSet<&str> = reasoning.filter_map(|item| item.get("id")?.as_str()).collect();
        for (at, part) in parts.iter().enumerate() {
            match part {
                AssistantPart::Reasoning(reasoning) => {
                    let item = item(&reasoning.state).cloned();
                    let kept = item.filter(|item| !is_reasoning(item) || self.readable(item) && Some(at) < followed);
                    if let Some(mut item) = kept {
                        if self.dialect.item_ids == ItemIds::LeftOut {
                            item.remove("id");
                        }
                        self.input.push(Value::Object(item));
                    }
                }
                AssistantPart::Text(text) => {
                    if !text.text.trim().is_empty() {
                        self.text(text, &back);
                    }
                }
                AssistantPart::Media(media) => {
                    let note = format!("[{} made by the model]", media.mime);
                    self.input.push(json!({"role": "assistant", "content": note}));
                }
                AssistantPart::Call(call) => self.call(call, &back)?,
                AssistantPart::HostedResult(result) => {
                    if let Some(item) = item(&result.state).filter(|_| self.native.contains(result.id.as_str())) {
                        self.input.push(Value::Object(item.clone()));
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether the server can read reasoning: it is encrypted or in the open, or the server itself has it.
    fn readable(&self, item: &Map<String, Value>) -> bool {
        let empty = |field: &str| match item.get(field) {
            Some(Value::String(text)) => text.is_empty(),
            Some(Value::Array(list)) => list.is_empty(),
            _ => true,
        };
        is_reasoning(item) && (self.store != Some(false) || !empty("encrypted_content") || !empty("content"))
    }

    /// The item in a state, if it may go back with its id: all the reasoning goes back that it is linked with.
    fn with_id<'s>(&self, state: &'s Option<Value>, back: &BTreeSet<&str>) -> Option<&'s Map<String, Value>> {
        let after = state.as_ref()?.get("after").and_then(Value::as_array);
        let complete = after.into_iter().flatten().all(|id| id.as_str().is_some_and(|id| back.contains(id)));
        item(state).filter(|item| complete && self.dialect.item_ids == ItemIds::Sent && item.contains_key("id"))
    }

    /// A text; the parts of one message that may go back with its id make one message again.
    fn text(&mut self, text: &TextPart, back: &BTreeSet<&str>) {
        let field = |name: &str| text.state.as_ref().and_then(|state| state.get(name));
        let refused = field("refusal").is_some();
        let part = match refused {
            true => json!({"type": "refusal", "refusal": text.text}),
            false => {
                let annotations = field("annotations").cloned().unwrap_or_else(|| json!([]));
                json!({"type": "output_text", "text": text.text, "annotations": annotations})
            }
        };
        let mut message = Map::from_iter([("role".to_owned(), json!("assistant"))]);
        match self.with_id(&text.state, back) {
            Some(item) => {
                if let Some(Value::Array(content)) = self
                    .input
                    .last_mut()
                    .filter(|last| last.get("id").is_some() && last.get("id") == item.get("id"))
                    .and_then(|last| last.get_mut("content"))
                {
                    content.push(part);
                    return;
                }
                message.insert("type".to_owned(), json!("message"));
                message.insert("status".to_owned(), json!("completed"));
                message.insert("content".to_owned(), json!([part]));
                message.extend(item.clone());
            }
            None => {
                let content = if refused { json!([part]) } else { json!(text.text) };
                message.insert("content".to_owned(), content);
                // It tells the model what it was about to do, with or without the id.
                let phase = item(&text.state).and_then(|item| item.get("phase"));
                message.extend(phase.map(|phase| ("phase".to_owned(), phase.clone())));
            }
        }
        self.input.push(Value::Object(message));
    }

    fn call(&mut self, call: &'a CallPart, back: &BTreeSet<&str>) -> Result<(), ProviderError> {
        let with_id = self.with_id(&call.state, back);
        let result = self.hosted.get(call.id.as_str()).copied();
        if call.hosted
            && let Some(known) = with_id
            && let Some(result) = result.filter(|result| result.state.is_some())
            && let Some(known) = whole(known, result)
        {
            self.native.insert(&call.id);
            self.input.push(Value::Object(known));
            return Ok(());
        }
        let mut lowered = match with_id {
            Some(item) if !call.hosted => item.clone(),
            _ => {
                // The name may mean nothing without its namespace.
                let namespace = item(&call.state).filter(|_| !call.hosted).and_then(|item| item.get("namespace"));
                namespace.map(|namespace| ("namespace".to_owned(), namespace.clone())).into_iter().collect()
            }
        };
        lowered.insert("type".to_owned(), json!("function_call"));
        lowered.insert("call_id".to_owned(), json!(self.label(&call.id)));
        lowered.insert("name".to_owned(), json!(call.name));
        let arguments = item(&call.state).and_then(|item| item.get("arguments")?.as_str());
        let same = |text: &&str| serde_json::from_str(text).ok() == Some(call.input.clone());
        let arguments = arguments.filter(same).map_or_else(|| call.input.to_string(), str::to_owned);
        lowered.insert("arguments".to_owned(), json!(arguments));
        self.input.push(Value::Object(lowered));
        if call.hosted {
            let unknown = [Content::text(UNKNOWN_RESULT)];
            self.output(&call.id, result.map_or(unknown.as_slice(), |result| &result.content))?;
        }
        Ok(())
    }

    /// A call's result; one text is sent as such.
    fn output(&mut self, id: &str, content: &[Content]) -> Result<(), ProviderError> {
        let list = content_list(content)?;
        let output = match (list.as_slice(), content) {
            ([], _) => json!("(no output)"),
            ([lone], _) if lone.get("text").is_some() => lone.get("text").cloned().unwrap_or_default(),
            _ => Value::Array(list),
        };
        self.input.push(json!({"type": "function_call_output", "call_id": self.label(id), "output": output}));
        Ok(())
    }

    fn label<'l>(&'l self, id: &'l str) -> &'l str {
        self.labels.get(id).map_or(id, String::as_str)
    }
}

/// The item that provider state keeps.
fn item(state: &Option<Value>) -> Option<&Map<String, Value>> {
    state.as_ref()?.get("item")?.as_object()
}

fn is_reasoning(item: &Map<String, Value>) -> bool {
    item.get("type").and_then(Value::as_str) == Some("reasoning")
}

/// The item of a hosted call with what its result has in its place; `None` where that is gone.
fn whole(item: &Map<String, Value>, result: &HostedResultPart) -> Option<Map<String, Value>> {
    let mut item = item.clone();
    if item.get("type").and_then(Value::as_str) == Some("image_generation_call") && !result.error {
        let image = result.content.iter().find_map(|piece| match piece {
            Content::Media(Media { data: MediaData::Base64(data), .. }) => Some(data),
            _ => None,
        });
        item.insert("result".to_owned(), json!(&**image?));
    }
    Some(item)
}

/// A label as the wire takes it, unlike any in use; it depends on the labels before it alone, so that it stays the same while the history grows.
fn short_label(id: &str, used: &BTreeSet<String>) -> String {
    if id.len() <= LONGEST_ID && !used.contains(id) {
        return id.to_owned();
    }
    let mut number = 1;
    loop {
        let tail = format!("_{number}");
        let mut end = id.len().min(LONGEST_ID - tail.len());
        while !id.is_char_boundary(end) {
            end -= 1;
        }
        let candidate = format!("{}{tail}", id.get(..end).unwrap_or_default());
        if !used.contains(&candidate) {
            return candidate;
        }
        number += 1;
    }
}

/// Content as a list of parts, without blank text.
fn content_list(content: &[Content]) -> Result<Vec<Value>, ProviderError> {
    let pieces = content.iter().filter(|piece| piece.as_text().is_none_or(|text| !text.trim().is_empty()));
    let part = |piece: &Content| match piece {
        Content::Text(text) => Ok(json!({"type": "input_text", "text": text})),
        Content::Media(media) => media_part(media),
    };
    pieces.map(part).collect()
}

/// An image or a file.
fn media_part(media: &Media) -> Result<Value, ProviderError> {
    let refused = |what: &str| unsupported(&format!("media of type {} {what}", media.mime));
    let url = match &media.data {
        MediaData::Url(url) => url.to_string(),
        MediaData::Base64(data) => format!("data:{};base64,{data}", media.mime),
        _ => return Err(refused("has its data in a place that the Responses API does not know")),
    };
    match media.mime.split_once('/') {
        Some(("image", _)) => Ok(json!({"type": "input_image", "image_url": url})),
        Some(("text" | "application", _)) if url.starts_with("data:") => {
            let unnamed = if media.mime == "application/pdf" { "document.pdf" } else { "document" };
            let name = media.name.as_deref().unwrap_or(unnamed);
            Ok(json!({"type": "input_file", "filename": name, "file_data": url}))
        }
        Some(("text" | "application", _)) => Ok(json!({"type": "input_file", "file_url": url})),
        _ => Err(refused("has no place in the Responses API")),
    }
}

fn unsupported(what: &str) -> ProviderError {
    ProviderError::new(ErrorClass::Unsupported, what)
}

//! Lowering: a request as the body of Chat Completions.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use settled_provider_api::{
    AssistantPart, CallPart, Content, ErrorClass, Media, MediaData, Message, ProviderError, Request, ResponseFormat,
    TextPart, ToolChoice, ToolResult,
};

use super::options::{Dialect, Effort, MaxOutput, ReasoningBack, StreamUsage};

/// The body of a request, in a dialect; the same request always gives the same text.
///
/// - The system parts make one message in front, joined by blank lines: many servers take no second one.
/// - Content that is text alone is one text, joined by blank lines; with media it is a list of parts: images by URL or inline, PDF files and sound inline.
/// - Reasoning goes back as the dialect wants it, or not at all.
/// - Media in a tool's result follow the results in a message of the user's, since a result has text alone.
/// - A hosted call of another provider is lowered like a local one, its result as a result; media that a model made as a note.
/// - The raw options win over everything.
///
/// # Errors
///
/// Class `unsupported`: media that the wire cannot carry; a choice of tools without tools.
pub fn lower(request: &Request, dialect: &Dialect) -> Result<Value, ProviderError> {
    let options = &request.options;
    let mut body = Map::new();
    let mut set = |field: &str, value: Value| body.insert(field.to_owned(), value);
    set("model", json!(request.model.model));
    set("messages", Value::Array(messages(request, dialect)?));
    set("stream", json!(true));
    if dialect.stream_usage == StreamUsage::Asked {
        set("stream_options", json!({"include_usage": true}));
    }
    if !request.tools.is_empty() {
        let tools = request.tools.iter().map(|tool| {
            let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.input_schema});
            json!({"type": "function", "function": function})
        });
        set("tools", tools.collect());
        if let Some(parallel) = options.parallel_tool_calls {
            set("parallel_tool_calls", json!(parallel));
        }
    }
    match (&request.tool_choice, request.tools.is_empty()) {
        (ToolChoice::Auto, _) | (ToolChoice::None, true) => {}
        (ToolChoice::None, false) => {
            set("tool_choice", json!("none"));
        }
        (ToolChoice::Required, false) => {
            set("tool_choice", json!(dialect.required));
        }
        (ToolChoice::Tool(name), false) => {
            set("tool_choice", json!({"type": "function", "function": {"name": name}}));
        }
        (ToolChoice::Required | ToolChoice::Tool(_), true) => {
            return Err(unsupported("a call is required, and there is no tool"));
        }
    }
    if let Some(most) = request.max_output {
        let field = match dialect.max_output {
            MaxOutput::MaxTokens => "max_tokens",
            MaxOutput::MaxCompletionTokens => "max_completion_tokens",
        };
        set(field, json!(most));
    }
    if let Some(temperature) = options.temperature {
        set("temperature", json!(temperature));
    }
    if let Some(top_p) = options.top_p {
        set("top_p", json!(top_p));
    }
    if !options.stop.is_empty() {
        set("stop", json!(options.stop));
    }
    if let Some(seed) = options.seed {
        set(&dialect.seed, json!(seed));
    }
    match &options.response_format {
        None => {}
        Some(ResponseFormat::JsonObject) => {
            set("response_format", json!({"type": "json_object"}));
        }
        Some(ResponseFormat::JsonSchema { name, schema, strict }) => {
            let schema = json!({"name": name, "schema": schema, "strict": strict});
            set("response_format", json!({"type": "json_schema", "json_schema": schema}));
        }
        Some(other) => {
            return Err(unsupported(&format!("the response format {other:?} has no place in Chat Completions")));
        }
    }
    if let Some(effort) = &options.reasoning_effort {
        match dialect.effort {
            Effort::ReasoningEffort => set("reasoning_effort", json!(effort)),
            Effort::ReasoningObject => set("reasoning", json!({"effort": effort})),
        };
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

fn messages(request: &Request, dialect: &Dialect) -> Result<Vec<Value>, ProviderError> {
    let mut out = Vec::new();
    if !request.system.is_empty() {
        let parts: Vec<&str> = request.system.iter().map(Arc::as_ref).collect();
        out.push(json!({"role": "system", "content": parts.join("\n\n")}));
    }
    // Media of the results of one message, which follow behind the last of them.
    let mut media = Vec::new();
    for message in &request.messages {
        if !matches!(**message, Message::Tool(_)) {
            out.extend(user_of_media(&mut media));
        }
        match &**message {
            Message::System(text) => out.push(json!({"role": "system", "content": text})),
            Message::User(content) => out.push(json!({"role": "user", "content": user(content)?})),
            Message::Assistant(parts) => assistant(parts, dialect, &mut out),
            Message::Tool(result) => out.push(tool(result, &mut media)?),
        }
    }
    out.extend(user_of_media(&mut media));
    Ok(out)
}

/// A person's content: one text, or a list of parts where there is media.
fn user(content: &[Content]) -> Result<Value, ProviderError> {
    let texts: Option<Vec<&str>> = content.iter().map(Content::as_text).collect();
    match texts {
        Some(texts) => Ok(json!(texts.join("\n\n"))),
        None => content
            .iter()
            .map(|piece| match piece {
                Content::Text(text) => Ok(text_part(text)),
                Content::Media(media) => media_part(media),
            })
            .collect(),
    }
}

/// An assistant's message; hosted results split it, so that what was said behind them stays behind them.
fn assistant(parts: &[AssistantPart], dialect: &Dialect, out: &mut Vec<Value>) {
    let mut said = Said::default();
    for part in parts {
        let more = matches!(part, AssistantPart::Text(_) | AssistantPart::Reasoning(_) | AssistantPart::Call(_));
        if more && !said.results.is_empty() {
            out.append(&mut std::mem::take(&mut said).lower(dialect));
        }
        match part {
            AssistantPart::Text(text) if text.state.as_ref().is_some_and(|state| state.get("refusal").is_some()) => {
                said.refusals.push(&text.text);
            }
            AssistantPart::Text(text) => said.texts.push(text.text.clone()),
            AssistantPart::Reasoning(reasoning) => said.reasoning.push(reasoning),
            AssistantPart::Call(call) => said.calls.push(call),
            AssistantPart::HostedResult(result) => {
                let texts: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
                let text = if texts.is_empty() { "(no text)".to_owned() } else { texts.join("\n\n") };
                said.results.push(json!({"role": "tool", "tool_call_id": result.id, "content": text}));
            }
            AssistantPart::Media(media) => said.texts.push(format!("[{} made by the model]", media.mime)),
        }
    }
    out.append(&mut said.lower(dialect));
}

/// What an assistant said up to a hosted result.
#[derive(Default)]
struct Said<'a> {
    texts: Vec<String>,
    refusals: Vec<&'a str>,
    reasoning: Vec<&'a TextPart>,
    calls: Vec<&'a CallPart>,
    results: Vec<Value>,
}

impl Said<'_> {
    fn lower(self, dialect: &Dialect) -> Vec<Value> {
        let mut message = Map::new();
        message.insert("role".to_owned(), json!("assistant"));
        let text = self.texts.concat();
        let reasoning: String = self.reasoning.iter().map(|part| part.text.as_str()).collect();
        let mut content = if text.is_empty() { Value::Null } else { json!(text) };
        match dialect.reasoning_back {
            ReasoningBack::Reasoning if !reasoning.is_empty() => {
                message.insert("reasoning".to_owned(), json!(reasoning));
            }
            ReasoningBack::ReasoningContentWithCalls if !reasoning.is_empty() && !self.calls.is_empty() => {
                message.insert("reasoning_content".to_owned(), json!(reasoning));
            }
            ReasoningBack::ReasoningDetails => {
                let details =
                    self.reasoning.iter().filter_map(|part| part.state.as_ref()?.get("reasoning_details")?.as_array());
                let details: Vec<&Value> = details.flatten().collect();
                if !details.is_empty() {
                    message.insert("reasoning_details".to_owned(), json!(details));
                } else if !reasoning.is_empty() {
                    message.insert("reasoning".to_owned(), json!(reasoning));
                }
            }
            ReasoningBack::ThinkingParts if !reasoning.is_empty() => {
                let thinking = json!({"type": "thinking", "thinking": [text_part(&reasoning)]});
                content = if text.is_empty() { json!([thinking]) } else { json!([thinking, text_part(&text)]) };
            }
            _ => {}
        }
        let refusal = self.refusals.concat();
        if !refusal.is_empty() {
            message.insert("refusal".to_owned(), json!(refusal));
        }
        if !self.calls.is_empty() {
            let calls = self.calls.iter().map(|call| {
                let function = json!({"name": call.name, "arguments": call.input.to_string()});
                json!({"id": call.id, "type": "function", "function": function})
            });
            message.insert("tool_calls".to_owned(), calls.collect());
        }
        // An assistant that said nothing that the wire can carry is left out: an empty message is refused.
        if content.is_null() && refusal.is_empty() && self.calls.is_empty() {
            return self.results;
        }
        message.insert("content".to_owned(), content);
        let answered: Vec<&Value> = self.results.iter().filter_map(|result| result.get("tool_call_id")).collect();
        let lost = self.calls.iter().filter(|call| call.hosted && !answered.iter().any(|id| **id == call.id.as_str()));
        let lost: Vec<Value> = lost
            .map(|call| json!({"role": "tool", "tool_call_id": call.id, "content": "(the result is not known)"}))
            .collect();
        [vec![Value::Object(message)], self.results, lost].concat()
    }
}

/// A local call's result; its media are set aside.
fn tool(result: &ToolResult, media: &mut Vec<Value>) -> Result<Value, ProviderError> {
    let mut texts: Vec<&str> = Vec::new();
    for piece in &result.content {
        match piece {
            Content::Text(text) => texts.push(text),
            Content::Media(piece) => {
                texts.push("(media: see below)");
                media.push(text_part(&format!("Media from the result of {} ({}):", result.name, result.id)));
                media.push(media_part(piece)?);
            }
        }
    }
    Ok(json!({"role": "tool", "tool_call_id": result.id, "content": texts.join("\n\n")}))
}

/// The user's message that carries the media of tools, if there are any.
fn user_of_media(media: &mut Vec<Value>) -> Option<Value> {
    (!media.is_empty()).then(|| json!({"role": "user", "content": std::mem::take(media)}))
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn media_part(media: &Media) -> Result<Value, ProviderError> {
    let refused =
        || unsupported(&format!("media of type {} by URL or kind has no place in Chat Completions", media.mime));
    match (&media.data, media.mime.split_once('/')) {
        (MediaData::Url(url), Some(("image", _))) => Ok(json!({"type": "image_url", "image_url": {"url": url}})),
        (MediaData::Base64(data), Some(("image", _))) => {
            let url = format!("data:{};base64,{data}", media.mime);
            Ok(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        (MediaData::Base64(data), Some(("application", "pdf"))) => {
            let url = format!("data:application/pdf;base64,{data}");
            let name = media.name.as_deref().unwrap_or("document.pdf");
            Ok(json!({"type": "file", "file": {"filename": name, "file_data": url}}))
        }
        (MediaData::Base64(data), Some(("audio", format))) => {
            let format = match format {
                "mpeg" | "mp3" => "mp3",
                "wav" | "x-wav" | "wave" => "wav",
                _ => return Err(refused()),
            };
            Ok(json!({"type": "input_audio", "input_audio": {"data": data, "format": format}}))
        }
        _ => Err(refused()),
    }
}

fn unsupported(what: &str) -> ProviderError {
    ProviderError::new(ErrorClass::Unsupported, what)
}

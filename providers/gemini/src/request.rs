//! Lowering: a request as the body of `streamGenerateContent`.
//!
//! Beside what other clients sent in recorded sessions with tools and thoughts, what we send in the same situation differs in this, and in nothing else (a test compares them field by field):
//!
//! | field | theirs | ours | why |
//! |---|---|---|---|
//! | `systemInstruction.role` | `user`, `model` | - | the field has no role |
//! | `functionCall.id`, `functionResponse.id` | ids of their own making | only the server's | pairs without ids are by order |
//! | `functionResponse.response` | `{"result": 5}`, the tool's own keys | `{"output": "5"}` or `{"error": …}` | Google's own words |
//! | a signature on an empty text | moved to the text before | on its own part | it must go back on the part it came on |
//! | text in pieces | a part for each piece | one part | the pieces are one text |
//! | `toolCall`, `toolResponse` | with arguments and a response put in | as they came | they are the server's |
//! | `parameters` without properties | an empty object | - | some models refuse it |
//! | `description` | left out | an empty text | the same thing |
//! | empty `generationConfig`, fields that are null | sent | - | they say nothing |

use serde_json::{Map, Value, json};
use settled_provider_api::{
    AssistantPart, CallKey, CallPart, Content, ErrorClass, HostedResultPart, Media, MediaData, Message, ProviderError,
    Request, ResponseFormat, TextPart, ToolChoice, ToolDefinition, ToolResult,
};

use crate::options::{Dialect, MediaInResults, ModelRule, Tier};
use crate::schema::{is_empty, subset};

/// The body of a request, in a dialect; the same request always gives the same text.
///
/// - The system parts are the parts of `systemInstruction`.
/// - What a person says is `user`, what the model says `model`; messages of one role behind each other are one content.
///   The results of one message's calls are a content of their own, in the order of the calls: the server counts them, and text among them breaks the count.
/// - A call has an id only where the server gave it one; then so has its result. Results without ids are paired by order.
/// - Thought signatures go back on the parts they came on. Thoughts without one stay here: the server wants none of them back.
/// - A call without a signature of its own gets the model's placeholder, where it has one, if it is the first of its message: calls of other models, and of answers that failed, would be refused.
/// - Hosted calls and results go back as they came. Those of another provider are lowered like local ones.
/// - The name of a response's schema, and whether it is strict, have no place here: the server always holds to it.
/// - Schemas become Gemini's own where these can say the same; else they go whole into the fields that take JSON Schema.
/// - Media in a tool's result are parts of it where the model takes that, else they follow the results in a content of the user's.
/// - The raw options win over everything: objects are merged field by field, `tools` are added to ours, anything else replaces what is there.
///
/// # Errors
///
/// Class `unsupported`: a system message in the middle; calls that must not be parallel; a choice of tools without tools; a form of response or a place of media that the wire does not know.
pub fn lower(request: &Request, dialect: &Dialect) -> Result<Value, ProviderError> {
    let options = &request.options;
    let mut body = Map::new();
    let mut set = |field: &str, value: Value| body.insert(field.to_owned(), value);
    if !request.system.is_empty() {
        let parts: Vec<Value> = request.system.iter().map(|part| text_part(part)).collect();
        set("systemInstruction", json!({"parts": parts}));
    }
    set("contents", Value::Array(contents(request, &dialect.model(&request.model.model))?));
    if !request.tools.is_empty() {
        let declarations: Vec<Value> = request.tools.iter().map(declaration).collect();
        set("tools", json!([{"functionDeclarations": declarations}]));
    }
    let choice = match (&request.tool_choice, request.tools.is_empty()) {
        (ToolChoice::Auto, _) | (ToolChoice::None, true) => None,
        (ToolChoice::None, false) => Some(json!({"mode": "NONE"})),
        (ToolChoice::Required, false) => Some(json!({"mode": "ANY"})),
        (ToolChoice::Tool(name), false) => Some(json!({"mode": "ANY", "allowedFunctionNames": [name]})),
        (ToolChoice::Required | ToolChoice::Tool(_), true) => {
            return Err(unsupported("a call is required, and there is no tool"));
        }
    };
    if let Some(choice) = choice {
        set("toolConfig", json!({"functionCallingConfig": choice}));
    }
    if options.parallel_tool_calls == Some(false) {
        return Err(unsupported("Gemini cannot be told to call one tool at a time: leave parallel_tool_calls out"));
    }
    let config = generation_config(request)?;
    if !config.is_empty() {
        set("generationConfig", Value::Object(config));
    }
    if let (Some(tier), Tier::Body) = (&options.service_tier, &dialect.tier) {
        set("serviceTier", json!(tier));
    }
    for (field, value) in &options.raw {
        match (body.get_mut(field), value) {
            (Some(Value::Array(tools)), Value::Array(more)) if field == "tools" => tools.extend(more.iter().cloned()),
            (Some(here), value) => merge(here, value),
            (None, value) => {
                body.insert(field.clone(), value.clone());
            }
        }
    }
    Ok(Value::Object(body))
}

fn generation_config(request: &Request) -> Result<Map<String, Value>, ProviderError> {
    let options = &request.options;
    let mut config = Map::new();
    let mut set = |field: &str, value: Value| config.insert(field.to_owned(), value);
    if let Some(most) = request.max_output {
        set("maxOutputTokens", json!(most));
    }
    if let Some(temperature) = options.temperature {
        set("temperature", json!(temperature));
    }
    if let Some(top_p) = options.top_p {
        set("topP", json!(top_p));
    }
    if !options.stop.is_empty() {
        set("stopSequences", json!(options.stop));
    }
    if let Some(seed) = options.seed {
        set("seed", json!(seed));
    }
    match &options.response_format {
        None => {}
        Some(ResponseFormat::JsonObject) => {
            set("responseMimeType", json!("application/json"));
        }
        Some(ResponseFormat::JsonSchema { schema, .. }) => {
            set("responseMimeType", json!("application/json"));
            match subset(schema) {
                Some(schema) => set("responseSchema", schema),
                None => set("responseJsonSchema", schema.clone()),
            };
        }
        Some(other) => return Err(unsupported(&format!("the response format {other:?} has no place in Gemini"))),
    }
    if let Some(effort) = &options.reasoning_effort {
        // Older models take a number of tokens, newer ones a word; thoughts are shown unless there are none.
        let thinking = match effort.parse::<i64>() {
            Ok(0) => json!({"thinkingBudget": 0}),
            Ok(budget) => json!({"includeThoughts": true, "thinkingBudget": budget}),
            Err(_) => json!({"includeThoughts": true, "thinkingLevel": effort}),
        };
        set("thinkingConfig", thinking);
    }
    Ok(config)
}

fn declaration(tool: &ToolDefinition) -> Value {
    let mut declaration = Map::new();
    declaration.insert("name".to_owned(), json!(tool.name));
    declaration.insert("description".to_owned(), json!(tool.description));
    if !is_empty(&tool.input_schema) {
        match subset(&tool.input_schema) {
            Some(schema) => declaration.insert("parameters".to_owned(), schema),
            None => declaration.insert("parametersJsonSchema".to_owned(), tool.input_schema.clone()),
        };
    }
    Value::Object(declaration)
}

/// Contents that grow: who speaks, and what they say.
#[derive(Default)]
struct Contents {
    out: Vec<Value>,
    speaker: Option<Speaker>,
    parts: Vec<Value>,
}

/// Who says a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Speaker {
    User,
    Model,
    /// The user's side as well, but apart from what a person says.
    Tools,
}

impl Contents {
    /// Adds parts to the open content of a speaker, or to a new one; no parts change nothing.
    fn say(&mut self, speaker: Speaker, parts: impl IntoIterator<Item = Value>) {
        for part in parts {
            if self.speaker != Some(speaker) {
                self.close();
                self.speaker = Some(speaker);
            }
            self.parts.push(part);
        }
    }

    fn close(&mut self) {
        let role = match self.speaker.take() {
            Some(Speaker::Model) => "model",
            Some(Speaker::User | Speaker::Tools) => "user",
            None => return,
        };
        self.out.push(json!({"role": role, "parts": std::mem::take(&mut self.parts)}));
    }
}

fn contents(request: &Request, model: &ModelRule) -> Result<Vec<Value>, ProviderError> {
    let mut contents = Contents::default();
    // Media of the results of one message, which follow behind the last of them.
    let mut media = Vec::new();
    // The ids that the server gave to calls.
    let mut ids: Vec<(CallKey, Value)> = Vec::new();
    for message in &request.messages {
        if !matches!(**message, Message::Tool(_)) {
            contents.say(Speaker::User, std::mem::take(&mut media));
        }
        match &**message {
            Message::System(_) => {
                return Err(unsupported(
                    "Gemini has no system message in the middle: leave `system_in_middle` off in the model's capabilities",
                ));
            }
            Message::User(content) => {
                let parts: Result<Vec<Value>, _> = content.iter().map(content_part).collect();
                contents.say(Speaker::User, parts?);
            }
            Message::Assistant(parts) => assistant(parts, model, &mut ids, &mut contents)?,
            Message::Tool(result) => contents.say(Speaker::Tools, [tool(result, model, &ids, &mut media)?]),
        }
    }
    contents.say(Speaker::User, media);
    contents.close();
    Ok(contents.out)
}

/// An assistant's message; results of hosted calls of another provider split it, so that what was said behind them stays behind them.
fn assistant(
    parts: &[AssistantPart],
    model: &ModelRule,
    ids: &mut Vec<(CallKey, Value)>,
    contents: &mut Contents,
) -> Result<(), ProviderError> {
    let mut unsigned = model.missing_signature.as_ref();
    for part in parts {
        match part {
            AssistantPart::Text(text) => contents.say(Speaker::Model, said(text, None)),
            // A thought without a signature is a summary, which the server does not want back.
            AssistantPart::Reasoning(text) => {
                contents.say(Speaker::Model, said(text, Some("thought")).filter(|_| text.state.is_some()));
            }
            AssistantPart::Call(call) => match verbatim(call.state.as_ref()) {
                Some(part) => contents.say(Speaker::Model, [part.clone()]),
                None => {
                    let mut function = Map::new();
                    if let Some(id) = field(call.state.as_ref(), "id") {
                        function.insert("id".to_owned(), id.clone());
                        ids.push((call.key, id.clone()));
                    }
                    function.insert("name".to_owned(), json!(call.name));
                    function.insert("args".to_owned(), call.input.clone());
                    let signature = field(call.state.as_ref(), "thoughtSignature").cloned();
                    let signature = signature.or_else(|| unsigned.map(|placeholder| json!(placeholder)));
                    contents.say(Speaker::Model, [signed("functionCall", Value::Object(function), signature)]);
                    if call.hosted && !is_answered(call, parts) {
                        let answer = json!({"name": call.name, "response": {"error": "(the result is not known)"}});
                        contents.say(Speaker::Tools, [json!({"functionResponse": answer})]);
                    }
                    // One signature is enough for the calls of one content.
                    unsigned = None;
                }
            },
            AssistantPart::HostedResult(result) => hosted_result(result, parts, contents),
            AssistantPart::Media(media) => {
                let placeholder = model.missing_signature.as_ref().map(|placeholder| json!(placeholder));
                let (name, data) = media_part(media)?;
                contents.say(Speaker::Model, [signed(name, data, placeholder)]);
            }
        }
        if contents.speaker == Some(Speaker::Tools) {
            unsigned = model.missing_signature.as_ref();
        }
    }
    Ok(())
}

/// The result of a hosted call: as it came, else in the words of its call.
fn hosted_result(result: &HostedResultPart, parts: &[AssistantPart], contents: &mut Contents) {
    if let Some(part) = verbatim(result.state.as_ref()) {
        return contents.say(Speaker::Model, [part.clone()]);
    }
    let text = joined(&result.content);
    let call = parts.iter().find_map(|part| match part {
        AssistantPart::Call(call) if call.key == result.key => Some(call),
        _ => None,
    });
    let part = call.and_then(|call| verbatim(call.state.as_ref()));
    let key = if result.error { "error" } else { "output" };
    let own = |field: &str| part.and_then(|part| part.get(field));
    let id = |of: &Value| of.get("id").cloned();
    if let Some(code) = own("executableCode") {
        let outcome = if result.error { "OUTCOME_FAILED" } else { "OUTCOME_OK" };
        let mut answer = json!({"outcome": outcome, "output": text});
        insert(&mut answer, "id", id(code));
        contents.say(Speaker::Model, [json!({"codeExecutionResult": answer})]);
    } else if let Some(tool) = own("toolCall") {
        let mut answer = json!({"response": {key: text}});
        insert(&mut answer, "toolType", tool.get("toolType").cloned());
        insert(&mut answer, "id", id(tool));
        contents.say(Speaker::Model, [json!({"toolResponse": answer})]);
    } else {
        let answer = json!({"name": result.name, "response": {key: text}});
        contents.say(Speaker::Tools, [json!({"functionResponse": answer})]);
    }
}

/// A local call's result; its media are parts of it, or set aside.
fn tool(
    result: &ToolResult,
    model: &ModelRule,
    ids: &[(CallKey, Value)],
    media: &mut Vec<Value>,
) -> Result<Value, ProviderError> {
    let mut texts: Vec<&str> = Vec::new();
    let mut inside = Vec::new();
    for piece in &result.content {
        match (piece, model.media_in_results) {
            (Content::Text(text), _) => texts.push(text),
            (Content::Media(_), MediaInResults::Inside) => inside.push(content_part(piece)?),
            (Content::Media(_), MediaInResults::Behind) => {
                texts.push("(media: see below)");
                media.push(text_part(&format!("Media from the result of {} ({}):", result.name, result.id)));
                media.push(content_part(piece)?);
            }
        }
    }
    let key = if result.error { "error" } else { "output" };
    let mut answer = json!({"name": result.name, "response": {key: texts.join("\n\n")}});
    insert(&mut answer, "id", ids.iter().find(|(key, _)| *key == result.key).map(|(_, id)| id.clone()));
    insert(&mut answer, "parts", (!inside.is_empty()).then_some(Value::Array(inside)));
    Ok(json!({"functionResponse": answer}))
}

/// Whether a hosted call has its result in the same message.
fn is_answered(call: &CallPart, parts: &[AssistantPart]) -> bool {
    parts.iter().any(|part| matches!(part, AssistantPart::HostedResult(result) if result.key == call.key))
}

/// Text or a thought with its signature; nothing where there is neither.
fn said(text: &TextPart, mark: Option<&str>) -> Option<Value> {
    let signature = field(text.state.as_ref(), "thoughtSignature").cloned();
    let mut part = text_part(&text.text);
    insert(&mut part, "thoughtSignature", signature.clone());
    if let Some(mark) = mark {
        insert(&mut part, mark, Some(json!(true)));
    }
    (!text.text.is_empty() || signature.is_some()).then_some(part)
}

fn content_part(piece: &Content) -> Result<Value, ProviderError> {
    match piece {
        Content::Text(text) => Ok(text_part(text)),
        Content::Media(media) => media_part(media).map(|(name, data)| json!({name: data})),
    }
}

/// Media with the field they go in.
fn media_part(media: &Media) -> Result<(&'static str, Value), ProviderError> {
    match &media.data {
        MediaData::Base64(data) => Ok(("inlineData", json!({"mimeType": media.mime, "data": data}))),
        MediaData::Url(url) => Ok(("fileData", json!({"mimeType": media.mime, "fileUri": url}))),
        _ => Err(unsupported(&format!("media of type {} are in a place that Gemini does not know", media.mime))),
    }
}

fn text_part(text: &str) -> Value {
    json!({"text": text})
}

fn joined(content: &[Content]) -> String {
    let texts: Vec<&str> = content.iter().filter_map(Content::as_text).collect();
    texts.join("\n\n")
}

/// A part with a signature, if there is one.
fn signed(name: &str, data: Value, signature: Option<Value>) -> Value {
    let mut part = json!({name: data});
    insert(&mut part, "thoughtSignature", signature);
    part
}

/// A part that goes back as it came.
fn verbatim(state: Option<&Value>) -> Option<&Value> {
    field(state, "part")
}

fn field<'s>(state: Option<&'s Value>, name: &str) -> Option<&'s Value> {
    state?.get(name)
}

fn insert(object: &mut Value, name: &str, value: Option<Value>) {
    if let (Value::Object(fields), Some(value)) = (object, value) {
        fields.insert(name.to_owned(), value);
    }
}

/// Puts a raw option in place: objects field by field, anything else whole.
fn merge(here: &mut Value, raw: &Value) {
    match (here, raw) {
        (Value::Object(here), Value::Object(raw)) => {
            for (name, value) in raw {
                merge(here.entry(name.as_str()).or_insert(Value::Null), value);
            }
        }
        (here, raw) => *here = raw.clone(),
    }
}

fn unsupported(what: &str) -> ProviderError {
    ProviderError::new(ErrorClass::Unsupported, what)
}

//! What we would send, beside what the recording clients sent in the same situation.
//!
//! Each request of a recorded session is made again: what a person and the tools said is read from it, what the model said is decoded from the answers before it.
//! Both bodies are compared field by field; a difference that no rule below justifies fails.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, and says what it counted")]

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use settled_provider_api::{
    AssistantPart, CallKey, CallPart, Content, HostedResultPart, Media, Message, MessageId, ModelRef, Options,
    ProviderEvent, Purpose, Request, SessionId, TextPart, ToolChoice, ToolDefinition, ToolResult,
};
use settled_provider_gemini::{Dialect, GeminiDecoder, lower};
use settled_provider_wire::Decoder as _;

/// Differences that are meant: in which recordings (part of the name), a pattern of the place (`*` is any index or name), who has it, and why.
const JUSTIFIED: [(&str, &str, &str, &str); 17] = [
    ("", "systemInstruction.role", "theirs", "the field has no role"),
    ("", "generationConfig", "theirs", "an empty object says nothing"),
    (
        "",
        "contents.*.parts.*.functionCall.id",
        "theirs",
        "an id that the client made up; where the server gave none, pairs are by order",
    ),
    ("", "contents.*.parts.*.functionResponse.id", "theirs", "as above"),
    (
        "",
        "contents.*.parts.*.functionResponse.response.*",
        "theirs",
        "Google's words are `output` and `error`; with other keys the whole object is the output",
    ),
    ("", "contents.*.parts.*.functionResponse.response.*", "ours", "as above"),
    (
        "streamed_repair",
        "contents.*.parts.*.functionCall.name",
        "both",
        "the client repaired the name of a tool that the model made up",
    ),
    ("streamed_repair", "contents.*.parts.*.functionResponse.name", "both", "as above"),
    (
        "web-search",
        "contents.*.parts.*.text",
        "both",
        "the client keeps each piece of the stream as a part; ours are one text",
    ),
    ("web-search", "contents.*.parts.*", "theirs", "as above"),
    ("file_search", "contents.*.parts.*", "ours", "the signature stays on the empty text that it came on"),
    ("file_search", "contents.*.parts.*.thoughtSignature", "theirs", "the client moves it to the text before"),
    (
        "file_search",
        "contents.*.parts.*.toolCall.args",
        "theirs",
        "the client adds an empty object; ours goes back as it came",
    ),
    (
        "file_search",
        "contents.*.parts.*.toolResponse.response",
        "theirs",
        "the client writes the grounding into the answer of a search; ours goes back as it came",
    ),
    (
        "",
        "tools.*.functionDeclarations.*.parameters",
        "theirs",
        "a function without parameters has none: an object without properties is refused by some models",
    ),
    ("", "tools.*.functionDeclarations.*.parametersJsonSchema", "theirs", "as above"),
    (
        "",
        "tools.*.functionDeclarations.*.description",
        "ours",
        "a description that the client left out is an empty text",
    ),
];

#[test]
fn requests_differ_from_those_of_the_recording_clients_as_justified() {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/recordings");
    let folder = std::env::var_os("SETTLED_RECORDINGS").map_or(default, PathBuf::from).join("gemini");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: there are no recordings at {}", folder.display());
        return;
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let (mut count, mut sessions) = (0, 0);
    let mut met: BTreeMap<_, usize> = BTreeMap::new();
    for path in paths {
        let recording: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let mut answers = Vec::new();
        for (number, exchange) in recording["exchanges"].as_array().unwrap().iter().enumerate() {
            let name = format!("{}#{number}", path.file_stem().unwrap().to_string_lossy());
            if let Value::Object(sent) = &exchange["request"]["body"] {
                count += 1;
                let sent = tidy(&Value::Object(sent.clone()));
                let (request, said) = request(&sent, &answers);
                sessions += usize::from(said > 0);
                let ours = tidy(&lower(&request, &Dialect::default()).unwrap());
                for (place, side) in differences("", &ours, &sent) {
                    let known = JUSTIFIED
                        .iter()
                        .find(|row| name.contains(row.0) && fits(row.1, &place) && row.2 == side)
                        .unwrap_or_else(|| panic!("{name}: {place} ({side})\nours: {ours:#}\ntheirs: {sent:#}"));
                    *met.entry(*known).or_default() += 1;
                }
            }
            let status = exchange["response"]["status"].as_u64().unwrap();
            answers.push(if status == 200 { decode(&exchange["response"]["body"]) } else { Vec::new() });
        }
    }
    assert!(JUSTIFIED.iter().all(|row| met.contains_key(row)), "justified, and nowhere to be seen: {met:#?}");
    eprintln!("{count} requests, {sessions} of them with answers of the model; differences:");
    for ((_, place, side, why), times) in met {
        eprintln!("{times:>4} {place} ({side}): {why}");
    }
}

/// A request that says what a recorded one says, with the model's messages as we decoded them; and how many there are.
fn request(sent: &Value, answers: &[Vec<AssistantPart>]) -> (Request, usize) {
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(1));
    // The placeholder of newer models is not at issue here: each call has its own signature or needs none.
    let mut request = Request::new(ModelRef::new("google", "gemini-2.5-flash"), purpose);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    request.system =
        list(&sent["systemInstruction"]["parts"]).iter().map(|part| Arc::from(text(&part["text"]))).collect();
    let (mut said, mut called) = (0, VecDeque::new());
    for content in list(&sent["contents"]) {
        let parts = list(&content["parts"]);
        if content["role"] == "model" {
            // A history that the client made up has no answer of ours.
            let parts = match answers.get(said) {
                Some(answer) if !answer.is_empty() => answer.clone(),
                _ => parts.iter().map(|part| AssistantPart::Text(TextPart::new(text(&part["text"])))).collect(),
            };
            said += 1;
            called = parts
                .iter()
                .filter_map(|part| match part {
                    AssistantPart::Call(call) if !call.hosted => Some(call.clone()),
                    _ => None,
                })
                .collect();
            request.messages.push(Arc::new(Message::Assistant(parts)));
            continue;
        }
        let mut spoken = Vec::new();
        for part in parts {
            if let Value::Object(answer) = &part["functionResponse"] {
                let call: CallPart = called.pop_front().unwrap();
                let (key, output) = answer["response"]
                    .as_object()
                    .unwrap()
                    .iter()
                    .next()
                    .map_or_else(|| ("output", json!("")), |(key, value)| (key, value.clone()));
                let output = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
                let mut content = vec![Content::Text(output)];
                content.extend(list(&answer.get("parts").cloned().unwrap_or_default()).iter().map(media));
                let result = ToolResult::new(call.key, call.id, call.name, key == "error", content);
                request.messages.push(Arc::new(Message::Tool(result)));
            } else {
                spoken.push(if part["text"].is_string() { Content::Text(text(&part["text"])) } else { media(&part) });
            }
        }
        if !spoken.is_empty() {
            request.messages.push(Arc::new(Message::User(spoken)));
        }
        if request
            .messages
            .iter()
            .any(|message| matches!(&**message, Message::Tool(result) if result.content.len() > 1))
        {
            // Media in results are a matter of the newer models.
            request.model = ModelRef::new("google", "gemini-3-flash-preview");
        }
    }
    let mut raw = sent.as_object().unwrap().clone();
    let mut tools = Vec::new();
    let mut others = Vec::new();
    for tool in list(&raw.remove("tools").unwrap_or_default()) {
        for (name, value) in tool.as_object().unwrap() {
            if name != "functionDeclarations" {
                others.push(json!({name: value}));
                continue;
            }
            tools.extend(list(value).iter().map(|tool| {
                let schema =
                    tool.get("parameters").or_else(|| tool.get("parametersJsonSchema")).cloned().unwrap_or_default();
                ToolDefinition::new(text(&tool["name"]), text(&tool["description"]), small(&schema))
            }));
        }
    }
    request.tools = tools.into();
    match raw.get("toolConfig").and_then(|config| config["functionCallingConfig"]["mode"].as_str()) {
        Some("ANY") => request.tool_choice = ToolChoice::Required,
        Some("NONE") if !request.tools.is_empty() => request.tool_choice = ToolChoice::None,
        Some("NONE") => {}
        Some(other) => panic!("{other}"),
        None => {}
    }
    // What else a client configures goes as it is.
    if raw.get("toolConfig").is_some_and(|config| config.get("functionCallingConfig").is_some()) {
        raw.remove("toolConfig");
    }
    let mut options = Options::default();
    if let Some(Value::Object(mut config)) = raw.remove("generationConfig") {
        request.max_output = config.remove("maxOutputTokens").and_then(|most| most.as_u64());
        options.temperature = config.remove("temperature").and_then(|temperature| temperature.as_f64());
        options.stop = list(&config.remove("stopSequences").unwrap_or_default()).iter().map(text).collect();
        // What has no setting of its own goes as it is.
        if !config.is_empty() {
            options.raw.insert("generationConfig".to_owned(), Value::Object(config));
        }
    }
    raw.remove("contents");
    raw.remove("systemInstruction");
    options.raw.extend(raw);
    if !others.is_empty() {
        options.raw.insert("tools".to_owned(), Value::Array(others));
    }
    request.options = Arc::new(options);
    (request, said)
}

/// What the model said in an answer, as it lies in the history.
fn decode(body: &Value) -> Vec<AssistantPart> {
    let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
    let mut decoder = GeminiDecoder::new(Dialect::named("gemini").unwrap());
    let mut events = VecDeque::new();
    decoder.push(body.as_bytes(), &mut events).unwrap();
    decoder.finish(&mut events).unwrap();
    let mut parts = Vec::new();
    let mut open = BTreeMap::new();
    let key = |ordinal: u32| CallKey { step: MessageId::from_u128(1), ordinal };
    let mut hosted = BTreeMap::new();
    for event in events {
        match event {
            ProviderEvent::TextDelta(delta) | ProviderEvent::ReasoningDelta(delta) => {
                open.entry(delta.index).or_insert_with(String::new).push_str(&delta.text);
            }
            ProviderEvent::TextEnd(end) => {
                let text = open.remove(&end.index).unwrap_or_default();
                parts.push(AssistantPart::Text(TextPart::new(text).state(end.state)));
            }
            ProviderEvent::ReasoningEnd(end) => {
                let text = open.remove(&end.index).unwrap_or_default();
                parts.push(AssistantPart::Reasoning(TextPart::new(text).state(end.state)));
            }
            ProviderEvent::ToolCall(call) => {
                let part = CallPart::new(key(call.index), format!("call_{}", call.index), call.name, call.input);
                let part = part.state(call.state);
                if call.hosted {
                    hosted.insert(call.id, call.index);
                }
                parts.push(AssistantPart::Call(if call.hosted { part.hosted() } else { part }));
            }
            ProviderEvent::HostedResult(result) => {
                let mut part = HostedResultPart::new(key(hosted[&result.id]), result.id, "", result.content);
                part.state = result.state;
                parts.push(AssistantPart::HostedResult(part));
            }
            _ => {}
        }
    }
    parts
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn media(part: &Value) -> Content {
    let of = |field: &str, data: &str| Some((text(&part[field]["mimeType"]), text(part[field].get(data)?)));
    let inline = of("inlineData", "data").map(|(mime, data)| Media::base64(mime, data));
    let media = inline.or_else(|| of("fileData", "fileUri").map(|(mime, uri)| Media::url(mime, uri)));
    Content::Media(media.unwrap_or_else(|| panic!("{part}")))
}

/// A schema with its types in small letters, as JSON Schema has them.
fn small(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| match value {
                Value::String(kind) if name == "type" => (name.clone(), json!(kind.to_lowercase())),
                value => (name.clone(), small(value)),
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(list) => list.iter().map(small).collect(),
        leaf => leaf.clone(),
    }
}

/// A body in one way of writing: names in camel case, types in capitals, signatures in one alphabet, nothing that is null, false or said by leaving it out.
fn tidy(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(name, value)| match name.as_str() {
                "thought" => **value != json!(false),
                "required" => **value != json!([]),
                _ => !value.is_null(),
            })
            .map(|(name, value)| {
                let name = match name.as_str() {
                    "function_call" => "functionCall",
                    "function_response" => "functionResponse",
                    "thought_signature" => "thoughtSignature",
                    "tool_type" => "toolType",
                    "inline_data" => "inlineData",
                    "file_data" => "fileData",
                    "mime_type" => "mimeType",
                    "file_uri" => "fileUri",
                    name => name,
                };
                let value = match (name, value) {
                    ("thoughtSignature", Value::String(text)) => json!(text.replace('-', "+").replace('_', "/")),
                    // A tool may have an argument of this name: its value is left alone.
                    ("type", Value::String(kind)) if kind.chars().all(char::is_alphabetic) => {
                        json!(kind.to_uppercase())
                    }
                    (_, value) => tidy(value),
                };
                (name.to_owned(), value)
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(list) => list.iter().map(tidy).collect(),
        leaf => leaf.clone(),
    }
}

/// The places where two bodies differ, and who has what is there.
fn differences(place: &str, ours: &Value, theirs: &Value) -> Vec<(String, &'static str)> {
    let under = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let mut all: Vec<_> = ours.keys().chain(theirs.keys()).collect();
            all.sort();
            all.dedup();
            let differ = all.into_iter().flat_map(|name| match (ours.get(name), theirs.get(name)) {
                (Some(a), Some(b)) => differences(&under(name), a, b),
                (Some(_), None) => vec![(under(name), "ours")],
                _ => vec![(under(name), "theirs")],
            });
            differ.collect()
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            let most = ours.len().max(theirs.len());
            let differ = (0..most).flat_map(|at| match (ours.get(at), theirs.get(at)) {
                (Some(a), Some(b)) => differences(&under(&at.to_string()), a, b),
                (Some(_), None) => vec![(under(&at.to_string()), "ours")],
                _ => vec![(under(&at.to_string()), "theirs")],
            });
            differ.collect()
        }
        (a, b) if a.as_f64().is_some() && a.as_f64() == b.as_f64() => Vec::new(),
        (a, b) if a == b => Vec::new(),
        _ => vec![(place.to_owned(), "both")],
    }
}

fn fits(pattern: &str, place: &str) -> bool {
    let (pattern, place): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), place.split('.').collect());
    pattern.len() == place.len() && pattern.iter().zip(place).all(|(wanted, is)| *wanted == "*" || *wanted == is)
}

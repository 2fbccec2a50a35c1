//! The requests that we send for a session of several steps, beside those that the recording clients sent in the same situation.
//!
//! What the model said is taken from our decoding of the recorded answer, so that what must go back makes the whole way round.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, and says what it counted")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use settled_provider_api::{
    AssistantPart, CallKey, CallPart, Content, HostedResultPart, Message, MessageId, ModelRef, Options, ProviderEvent,
    Purpose, Request, SessionId, TextPart, ToolDefinition, ToolResult,
};
use settled_provider_openai::responses::{Dialect, ResponsesDecoder, lower};
use settled_provider_wire::Decoder as _;

/// Where our requests differ from the clients', by exchange and place, and why.
const DIFFERENCES: &str = include_str!("data/responses_requests.json");

const KEY: CallKey = CallKey { step: MessageId::from_u128(1), ordinal: 0 };

/// What an answer becomes in a history.
fn parts(dialect: &Arc<Dialect>, body: &str) -> Vec<AssistantPart> {
    let mut decoder = ResponsesDecoder::new(Arc::clone(dialect));
    let mut events = VecDeque::new();
    decoder.push(body.as_bytes(), &mut events).unwrap();
    decoder.finish(&mut events).unwrap();
    let (mut parts, mut said, mut names) = (Vec::new(), BTreeMap::<u32, String>::new(), BTreeMap::new());
    for event in events {
        match event {
            ProviderEvent::TextDelta(delta) | ProviderEvent::ReasoningDelta(delta) => {
                said.entry(delta.index).or_default().push_str(&delta.text);
            }
            ProviderEvent::TextEnd(end) => {
                let text = end.text.or_else(|| said.remove(&end.index)).unwrap_or_default();
                parts.push(AssistantPart::Text(TextPart::new(text).state(end.state)));
            }
            ProviderEvent::ReasoningEnd(end) => {
                let text = end.text.or_else(|| said.remove(&end.index)).unwrap_or_default();
                parts.push(AssistantPart::Reasoning(TextPart::new(text).state(end.state)));
            }
            ProviderEvent::ToolCall(call) => {
                names.insert(call.id.clone(), call.name.clone());
                let part = CallPart::new(KEY, call.id, call.name, call.input).state(call.state);
                parts.push(AssistantPart::Call(if call.hosted { part.hosted() } else { part }));
            }
            ProviderEvent::HostedResult(result) => {
                let name = names[&result.id].clone();
                let mut part = HostedResultPart::new(KEY, result.id, name, result.content);
                part.state = result.state;
                parts.push(AssistantPart::HostedResult(part));
            }
            ProviderEvent::HostedError(error) => {
                let name = names[&error.id].clone();
                let content = vec![Content::text(error.message.as_str())];
                let mut part = HostedResultPart::new(KEY, error.id, name, content);
                part.error = true;
                part.state = error.state;
                parts.push(AssistantPart::HostedResult(part));
            }
            _ => {}
        }
    }
    parts
}

/// The text of a content that is a text or a list of one text.
fn text_of(content: &Value) -> &str {
    content.as_str().unwrap_or_else(|| content[0]["text"].as_str().unwrap())
}

/// Whether an item of a client's input is what a model said.
fn is_said(item: &Value) -> bool {
    let kind = item["type"].as_str().unwrap_or("message");
    item["role"] == "assistant" || !(kind == "message" || kind == "function_call_output" || kind.ends_with("_output"))
}

/// The request that we would have made where the client made this one, after these answers.
fn request(dialect: &Arc<Dialect>, theirs: &Value, answers: &[&str]) -> Request {
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(2));
    let mut request = Request::new(ModelRef::new("openai", theirs["model"].as_str().unwrap()), purpose);
    let mut system: Vec<Arc<str>> = theirs["instructions"].as_str().into_iter().map(Arc::from).collect();
    let mut answers = answers.iter();
    let mut before = false;
    for item in theirs["input"].as_array().unwrap() {
        let said = is_said(item);
        if said && !before {
            request.messages.push(Arc::new(Message::Assistant(parts(dialect, answers.next().unwrap()))));
        }
        before = said;
        match (item["type"].as_str().unwrap_or("message"), item["role"].as_str()) {
            _ if said => {}
            (_, Some("system" | "developer")) => system.push(Arc::from(text_of(&item["content"]))),
            (_, Some("user")) => request.messages.push(Arc::new(Message::user(text_of(&item["content"])))),
            (kind, _) => {
                // A client that ran a search of tools itself: ours does not.
                if kind == "function_call_output" {
                    let id = item["call_id"].as_str().unwrap();
                    let content = vec![Content::text(text_of(&item["output"]))];
                    request.messages.push(Arc::new(Message::Tool(ToolResult::new(KEY, id, "f", false, content))));
                }
            }
        }
    }
    request.system = system.into();
    let tools = theirs["tools"].as_array().into_iter().flatten().filter(|tool| tool["type"] == "function");
    let tools = tools.filter(|tool| tool.get("defer_loading").is_none()).map(|tool| {
        let description = tool["description"].as_str().unwrap_or_default();
        ToolDefinition::new(tool["name"].as_str().unwrap(), description, tool["parameters"].clone())
    });
    request.tools = tools.collect();
    request.max_output = theirs["max_output_tokens"].as_u64();
    let mut options = Options::default();
    options.temperature = theirs["temperature"].as_f64();
    options.raw = ["reasoning", "text"]
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), theirs.get(field)?.clone())))
        .collect();
    request.options = Arc::new(options);
    request
}

/// A body in which what means the same is the same: a lone text as such, what the wire assumes anyway, a system message as instructions.
fn same(body: &Value) -> Value {
    let mut body = same_value(body);
    let tools = body.get_mut("tools").map(Value::take);
    if let Some(Value::Array(tools)) = tools {
        let name = |tool: &Value| tool["name"].as_str().or_else(|| tool["type"].as_str()).unwrap().to_owned();
        body["tools"] = tools.into_iter().map(|tool| (name(&tool), tool)).collect();
    }
    let first = body.pointer("/input/0/role").and_then(Value::as_str);
    if matches!(first, Some("system" | "developer")) {
        let first = body["input"].as_array_mut().unwrap().remove(0);
        body["instructions"] = json!(text_of(&first["content"]));
    }
    body
}

fn same_value(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Map<String, Value> =
                fields.iter().map(|(name, value)| (name.clone(), same_value(value))).collect();
            if fields.get("type") == Some(&json!("message")) && fields.get("id").is_none() {
                fields.remove("type");
            }
            if matches!(fields.get("content"), Some(Value::Array(list)) if list.len() == 1 && list[0]["type"] == "input_text")
            {
                let text = fields["content"][0]["text"].take();
                fields.insert("content".to_owned(), text);
            }
            fields.retain(|name, value| {
                let usual = match name.as_str() {
                    "tool_choice" => json!("auto"),
                    "status" => json!("completed"),
                    "strict" => json!(false),
                    "include" => json!([]),
                    _ => Value::Null,
                };
                *value != usual && !value.is_null()
            });
            Value::Object(fields)
        }
        Value::Array(list) => list.iter().map(same_value).collect(),
        other => other.clone(),
    }
}

/// Every place where two bodies differ.
fn differences(ours: &Value, theirs: &Value, place: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let fields: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for field in fields {
                let place = format!("{place}/{field}");
                match (a.get(field), b.get(field)) {
                    (Some(a), Some(b)) => differences(a, b, &place, found),
                    (Some(_), None) => found.push(format!("{place}: ours alone")),
                    (None, _) => found.push(format!("{place}: theirs alone")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &format!("{place}/{at}"), found);
            }
        }
        (a, b) if a != b => found.push(format!("{place}: another value")),
        _ => {}
    }
}

#[test]
fn requests_beside_those_of_the_recording_clients() {
    let listed: BTreeMap<String, BTreeMap<String, String>> = serde_json::from_str(DIFFERENCES).unwrap();
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/recordings");
    let folder = std::env::var_os("SETTLED_RECORDINGS").map_or(default, PathBuf::from).join("openai-responses");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: there are no recordings at {}", folder.display());
        return;
    };
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        let recording: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let exchanges = recording["exchanges"].as_array().unwrap();
        for number in 1..exchanges.len() {
            let theirs = &exchanges[number]["request"]["body"];
            let input = theirs["input"].as_array().map(Vec::as_slice).unwrap_or_default();
            // The answers that the client has in its history are those of the exchanges before.
            let mut answers = input.iter().zip(std::iter::once(&Value::Null).chain(input));
            let answers = answers.by_ref().filter(|(item, before)| is_said(item) && !is_said(before)).count();
            let before = &exchanges[..number];
            let streamed = before.iter().all(|exchange| exchange["streaming"] == true);
            if answers == 0 || answers != number || !streamed {
                continue;
            }
            let name = format!("{}#{number}", path.file_stem().unwrap().to_string_lossy());
            let provider =
                exchanges[number]["provider"].as_str().unwrap_or_else(|| recording["provider"].as_str().unwrap());
            let mut dialect = Dialect::clone(&Dialect::named(provider).unwrap_or_default());
            let tools = theirs["tools"].as_array().into_iter().flatten();
            let other = |tool: &&Value| tool["type"] != "function" || tool.get("defer_loading").is_some();
            dialect.hosted_tools = tools.filter(other).cloned().collect();
            let dialect = Arc::new(dialect);
            let bodies: Vec<&str> =
                before.iter().map(|exchange| exchange["response"]["body"].as_str().unwrap()).collect();
            let ours = lower(&request(&dialect, theirs, &bodies), &dialect).unwrap();
            let mut differ = Vec::new();
            differences(&same(&ours), &same(theirs), "", &mut differ);
            found.insert(name, differ);
        }
    }
    let listed: BTreeMap<String, Vec<String>> =
        listed.into_iter().map(|(name, places)| (name, places.into_keys().collect())).collect();
    assert_eq!(found, listed);
    eprintln!("{} requests compared, {} differences", found.len(), found.values().map(Vec::len).sum::<usize>());
}

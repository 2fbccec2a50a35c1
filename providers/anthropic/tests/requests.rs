//! The requests that we send for a session of several steps, beside those that the recording clients sent in the same situation.
//!
//! What the model said is taken from our decoding of the recorded answer, so that what must go back makes the whole way round.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, and says what it counted")]

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use settled_provider_anthropic::{Dialect, MessagesDecoder, lower};
use settled_provider_api::{
    AssistantPart, CallKey, CallPart, Content, HostedResultPart, Message, MessageId, ModelRef, Options, ProviderEvent,
    Purpose, Request, SessionId, TextPart, ToolChoice, ToolDefinition, ToolResult,
};
use settled_provider_wire::Decoder as _;

/// Where our requests differ from the clients', by exchange and place, and why.
const DIFFERENCES: &str = include_str!("data/requests.json");

/// What an answer becomes in a history.
fn parts(body: &str) -> Vec<AssistantPart> {
    let mut decoder = MessagesDecoder::new(Dialect::named("anthropic").unwrap());
    let mut events = VecDeque::new();
    decoder.push(body.as_bytes(), &mut events).unwrap();
    decoder.finish(&mut events).unwrap();
    let key = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
    let (mut parts, mut said, mut names) = (Vec::new(), BTreeMap::<u32, String>::new(), BTreeMap::new());
    for event in events {
        match event {
            ProviderEvent::TextDelta(delta) | ProviderEvent::ReasoningDelta(delta) => {
                said.entry(delta.index).or_default().push_str(&delta.text);
            }
            ProviderEvent::TextEnd(end) => {
                let text = said.remove(&end.index).unwrap_or_default();
                parts.push(AssistantPart::Text(TextPart::new(text).state(end.state)));
            }
            ProviderEvent::ReasoningEnd(end) => {
                let text = said.remove(&end.index).unwrap_or_default();
                parts.push(AssistantPart::Reasoning(TextPart::new(text).state(end.state)));
            }
            ProviderEvent::ToolCall(call) => {
                names.insert(call.id.clone(), call.name.clone());
                let part = CallPart::new(key, call.id, call.name, call.input).state(call.state);
                parts.push(AssistantPart::Call(if call.hosted { part.hosted() } else { part }));
            }
            ProviderEvent::HostedResult(result) => {
                let name = names[&result.id].clone();
                let mut part = HostedResultPart::new(key, result.id, name, result.content);
                part.state = result.state;
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

/// The request that we would have made where the client made this one, after this answer.
fn request(theirs: &Value, answer: &str) -> Request {
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(2));
    let mut request = Request::new(ModelRef::new("anthropic", theirs["model"].as_str().unwrap()), purpose);
    let system = theirs["system"].as_array().into_iter().flatten();
    request.system = system.map(|part| Arc::from(part["text"].as_str().unwrap())).collect();
    for message in theirs["messages"].as_array().unwrap() {
        if message["role"] == "assistant" {
            request.messages.push(Arc::new(Message::Assistant(parts(answer))));
            continue;
        }
        let text = json!([{"type": "text", "text": message["content"]}]);
        let blocks = if message["content"].is_string() { &text } else { &message["content"] };
        for block in blocks.as_array().unwrap() {
            request.messages.push(Arc::new(match block["type"].as_str().unwrap() {
                "tool_result" => {
                    let content = vec![Content::text(text_of(&block["content"]))];
                    let key = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
                    let id = block["tool_use_id"].as_str().unwrap();
                    Message::Tool(ToolResult::new(key, id, "f", block["is_error"] == true, content))
                }
                _ => Message::user(block["text"].as_str().unwrap()),
            }));
        }
    }
    let tools = theirs["tools"].as_array().into_iter().flatten().filter(|tool| tool.get("input_schema").is_some());
    let tools = tools.map(|tool| {
        let description = tool["description"].as_str().unwrap_or_default();
        ToolDefinition::new(tool["name"].as_str().unwrap(), description, tool["input_schema"].clone())
    });
    request.tools = tools.collect();
    if theirs["tool_choice"]["type"] == "any" {
        request.tool_choice = ToolChoice::Required;
    }
    request.max_output = theirs["max_tokens"].as_u64();
    let mut options = Options::default();
    options.temperature = theirs["temperature"].as_f64();
    options.raw =
        theirs.get("thinking").map(|thinking| ("thinking".to_owned(), thinking.clone())).into_iter().collect();
    request.options = Arc::new(options);
    request
}

/// A body in which what means the same is the same: a lone text as such, an error that is none, a mark that is none.
fn same(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Map<String, Value> =
                fields.iter().map(|(name, value)| (name.clone(), same(value))).collect();
            let lone =
                fields.get("content").and_then(Value::as_str).map(|text| json!([{"type": "text", "text": text}]));
            fields.extend(lone.map(|list| ("content".to_owned(), list)));
            fields.retain(|name, value| {
                !(name == "is_error" && *value == false || name == "cache_control" && value.is_null())
            });
            Value::Object(fields)
        }
        Value::Array(list) => list.iter().map(same).collect(),
        other => other.clone(),
    }
}

/// A body with its tools by their names: their order means nothing.
fn by_name(mut body: Value) -> Value {
    if let Some(Value::Array(tools)) = body.get_mut("tools").map(Value::take) {
        body["tools"] = tools.into_iter().map(|tool| (tool["name"].as_str().unwrap().to_owned(), tool)).collect();
    }
    body
}

/// Every place where two bodies differ.
fn differences(ours: &Value, theirs: &Value, place: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let fields: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
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
    let folder = std::env::var_os("SETTLED_RECORDINGS").map_or(default, PathBuf::from).join("anthropic-messages");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: there are no recordings at {}", folder.display());
        return;
    };
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        let recording: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let exchanges = recording["exchanges"].as_array().unwrap();
        for (number, pair) in exchanges.windows(2).enumerate() {
            let (before, theirs) = (&pair[0], &pair[1]["request"]["body"]);
            let messages = theirs["messages"].as_array().map_or(0, Vec::len);
            // The second request of a session: its one answer is the recorded one.
            if messages != 3 || before["streaming"] != true || theirs["messages"][1]["role"] != "assistant" {
                continue;
            }
            let name = format!("{}#{}", path.file_stem().unwrap().to_string_lossy(), number + 1);
            let request = request(theirs, before["response"]["body"].as_str().unwrap());
            let mut dialect = Dialect::clone(&Dialect::named("anthropic").unwrap());
            let tools = theirs["tools"].as_array().into_iter().flatten();
            dialect.hosted_tools = tools.filter(|tool| tool.get("input_schema").is_none()).cloned().collect();
            let mut differ = Vec::new();
            let ours = by_name(same(&lower(&request, &dialect).unwrap()));
            differences(&ours, &by_name(same(theirs)), "", &mut differ);
            found.insert(name, differ);
        }
    }
    let listed: BTreeMap<String, Vec<String>> =
        listed.into_iter().map(|(name, places)| (name, places.into_keys().collect())).collect();
    assert_eq!(found, listed);
    eprintln!("{} requests compared, {} differences", found.len(), found.values().map(Vec::len).sum::<usize>());
}

//! The requests of Chat Completions that we send for a session of several steps, beside those that the recording clients sent in the same situation.
//!
//! What the model said is taken from our decoding of the recorded answers, so that what must go back makes the whole way round.
//! Both bodies are compared field by field; a difference that no row below justifies fails, and so does a row without a difference.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, and says what it counted")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use settled_provider_api::{
    AssistantPart, CallKey, CallPart, Content, Message, MessageId, ModelRef, Options, ProviderEvent, Purpose, Request,
    SessionId, TextPart, ToolChoice, ToolDefinition, ToolResult,
};
use settled_provider_openai::chat::{ChatDecoder, Dialect, lower};
use settled_provider_wire::Decoder as _;

/// Differences that are meant: in which recordings (part of the name), a pattern of the place (`*` is any index or name), who has it, and why.
const JUSTIFIED: [(&str, &str, &str, &str); 13] = [
    ("openai", "prompt_cache_key", "ours", "one key for all requests of a session keeps its prefix in one cache"),
    ("groq", "stream_options", "ours", "usage comes only where it is asked for"),
    ("openrouter", "stream_options", "ours", "as above"),
    ("resume_stream__tool", "messages.*.content", "theirs", "the client turns the call that it forced into a text"),
    ("resume_stream__tool", "messages.*.tool_calls", "ours", "as above: ours stays the call that it was"),
    ("resume_stream__tool", "tools.*.function.strict", "theirs", "a tool of ours says nothing of strictness"),
    ("tool_use_failed", "messages.*.content", "both", "the client writes reasoning into the text, between tags"),
    ("tool_use_failed", "messages.*.reasoning", "ours", "as above: the server has a field of its own for it"),
    (
        "parallel_tool_calls_single_turn",
        "messages.*.tool_calls.*.function.arguments",
        "ours",
        "the client sends back the `null` that the model wrote; ours is the empty object that it stands for",
    ),
    (
        "signed_agent_roundtrip",
        "messages.*.reasoning_details.*.format",
        "ours",
        "the client leaves it out; ours goes back as it came",
    ),
    (
        "doubleword",
        "messages.*.reasoning_content",
        "theirs",
        "an unknown server is sent no reasoning: many refuse the field",
    ),
    ("ollama", "messages.*.reasoning_content", "theirs", "as above"),
    ("ruby_llm", "messages.*.content", "theirs", "an empty text beside calls; ours is null"),
];

#[test]
fn requests_differ_from_those_of_the_recording_clients_as_justified() {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/recordings");
    let folder = std::env::var_os("SETTLED_RECORDINGS").map_or(default, PathBuf::from).join("openai-chat");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: there are no recordings at {}", folder.display());
        return;
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let (mut count, mut unknown) = (0, Vec::new());
    let mut met: BTreeMap<_, usize> = BTreeMap::new();
    for path in paths {
        let recording: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let exchanges = recording["exchanges"].as_array().unwrap();
        for (number, exchange) in exchanges.iter().enumerate().skip(1) {
            let theirs = &exchange["request"]["body"];
            let messages = theirs["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
            let said = messages.iter().filter(|message| message["role"] == "assistant").count();
            // The answers that the client has in its history are those of the exchanges before.
            if said != number || !exchanges[..number].iter().all(|exchange| exchange["streaming"] == true) {
                continue;
            }
            count += 1;
            let name = format!("{}#{number}", path.file_stem().unwrap().to_string_lossy());
            let provider = exchange["provider"].as_str().or_else(|| recording["provider"].as_str()).unwrap();
            let dialect = Dialect::named(provider).unwrap_or_default();
            let answers: Vec<&str> =
                exchanges[..number].iter().map(|exchange| exchange["response"]["body"].as_str().unwrap()).collect();
            let ours = tidy(&lower(&request(&dialect, theirs, &answers), &dialect).unwrap());
            for (place, side) in differences("", &ours, &tidy(theirs)) {
                match JUSTIFIED.iter().find(|row| name.contains(row.0) && fits(row.1, &place) && row.2 == side) {
                    Some(row) => *met.entry(row).or_default() += 1,
                    None => unknown.push(format!("{name}: {place} ({side})")),
                }
            }
        }
    }
    assert_eq!(unknown, Vec::<String>::new(), "differences that nothing justifies");
    let idle: Vec<_> = JUSTIFIED.iter().filter(|row| !met.contains_key(*row)).collect();
    assert!(idle.is_empty(), "justified, and nowhere to be seen: {idle:#?}");
    eprintln!("{count} requests; differences:");
    for ((_, place, side, why), times) in met {
        eprintln!("{times:>4} {place} ({side}): {why}");
    }
}

/// The request that we would have made where the client made this one, after these answers.
fn request(dialect: &Arc<Dialect>, theirs: &Value, answers: &[&str]) -> Request {
    let key = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(2));
    let mut request = Request::new(ModelRef::new("provider", theirs["model"].as_str().unwrap()), purpose);
    let (mut system, mut answers) = (Vec::new(), answers.iter());
    for message in theirs["messages"].as_array().unwrap() {
        let said = text_of(&message["content"]);
        match message["role"].as_str().unwrap() {
            "system" => system.push(Arc::from(said)),
            "assistant" => {
                request.messages.push(Arc::new(Message::Assistant(parts(dialect, answers.next().unwrap()))));
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap();
                let result = ToolResult::new(key, id, "f", false, vec![Content::text(said)]);
                request.messages.push(Arc::new(Message::Tool(result)));
            }
            _ => request.messages.push(Arc::new(Message::user(said))),
        }
    }
    request.system = system.into();
    let tools = theirs["tools"].as_array().into_iter().flatten().map(|tool| {
        let function = &tool["function"];
        let description = function["description"].as_str().unwrap_or_default();
        ToolDefinition::new(function["name"].as_str().unwrap(), description, function["parameters"].clone())
    });
    request.tools = tools.collect();
    request.tool_choice = match &theirs["tool_choice"] {
        Value::String(word) if word == "required" => ToolChoice::Required,
        Value::Object(choice) => ToolChoice::Tool(choice["function"]["name"].as_str().unwrap().to_owned()),
        _ => ToolChoice::Auto,
    };
    request.max_output = ["max_tokens", "max_completion_tokens"].iter().find_map(|field| theirs[*field].as_u64());
    let mut options = Options::default();
    options.temperature = theirs["temperature"].as_f64();
    options.parallel_tool_calls = theirs["parallel_tool_calls"].as_bool();
    // What has no setting of its own goes as it is.
    let raw = ["enable_thinking", "reasoning", "response_format", "n", "provider"].into_iter();
    options.raw = raw.filter_map(|field| Some((field.to_owned(), theirs.get(field)?.clone()))).collect();
    request.options = Arc::new(options);
    request
}

/// What an answer becomes in a history.
fn parts(dialect: &Arc<Dialect>, body: &str) -> Vec<AssistantPart> {
    let key = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
    let mut decoder = ChatDecoder::new(Arc::clone(dialect));
    let mut events = VecDeque::new();
    decoder.push(body.as_bytes(), &mut events).unwrap();
    decoder.finish(&mut events).unwrap();
    let (mut parts, mut said) = (Vec::new(), BTreeMap::<u32, String>::new());
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
                let part = CallPart::new(key, call.id, call.name, call.input).state(call.state);
                parts.push(AssistantPart::Call(part));
            }
            _ => {}
        }
    }
    parts
}

/// The text of a content that is a text or a list of one text.
fn text_of(content: &Value) -> &str {
    content.as_str().or_else(|| content[0]["text"].as_str()).unwrap_or_default()
}

/// A body in which what means the same is the same: a lone text as such, arguments as the JSON that they are, nothing that is null or said by leaving it out.
fn tidy(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let tidied = fields.iter().map(|(name, value)| {
                let value = match (name.as_str(), value) {
                    ("content", Value::Array(list)) if list.len() == 1 && list[0]["type"] == "text" => {
                        list[0]["text"].clone()
                    }
                    ("arguments", Value::String(text)) => {
                        serde_json::from_str::<Value>(text).unwrap_or_else(|_| value.clone())
                    }
                    (_, value) => tidy(value),
                };
                (name.clone(), value)
            });
            let usual = |name: &str| match name {
                "tool_choice" => json!("auto"),
                "strict" => json!(false),
                "n" => json!(1),
                _ => Value::Null,
            };
            Value::Object(
                tidied.filter(|(name, value)| !value.is_null() && *value != usual(name)).collect::<Map<_, _>>(),
            )
        }
        Value::Array(list) => list.iter().map(tidy).collect(),
        leaf => leaf.clone(),
    }
}

/// The places where two bodies differ, and who has what is there.
fn differences(place: &str, ours: &Value, theirs: &Value) -> Vec<(String, &'static str)> {
    let under = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
    let each = |name: &str, ours: Option<&Value>, theirs: Option<&Value>| match (ours, theirs) {
        (Some(ours), Some(theirs)) => differences(&under(name), ours, theirs),
        (Some(_), None) => vec![(under(name), "ours")],
        _ => vec![(under(name), "theirs")],
    };
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let names: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
            names.into_iter().flat_map(|name| each(name, ours.get(name), theirs.get(name))).collect()
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            let most = ours.len().max(theirs.len());
            (0..most).flat_map(|at| each(&at.to_string(), ours.get(at), theirs.get(at))).collect()
        }
        (ours, theirs) if ours == theirs => Vec::new(),
        _ => vec![(place.to_owned(), "both")],
    }
}

fn fits(pattern: &str, place: &str) -> bool {
    let (pattern, place): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), place.split('.').collect());
    pattern.len() == place.len() && pattern.iter().zip(place).all(|(wanted, is)| *wanted == "*" || *wanted == is)
}

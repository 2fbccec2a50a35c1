//! Recorded traffic of Chat Completions: what each recorded stream and failure must come out as.
//!
//! The recordings are read from `SETTLED_RECORDINGS` (default `../shared/recordings` beside the workspace); without them the tests say so and pass.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, and says what it counted")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::{Value, json};
use settled_provider_api::{ErrorClass, ProviderError, ProviderEvent, Usage};
use settled_provider_openai::chat::{ChatDecoder, Dialect, IGNORED_FIELDS, response_error};
use settled_provider_wire::{Decoder, Tally};

/// The exchanges that differ from what the recordings expect, and why.
const EXCEPTIONS: &str = include_str!("data/exceptions.json");

#[derive(Deserialize)]
struct Recording {
    provider: String,
    exchanges: Vec<Exchange>,
}

#[derive(Deserialize)]
struct Exchange {
    provider: Option<String>,
    response: Response,
    streaming: bool,
    expected: Option<Value>,
    #[serde(default)]
    ambiguities: Vec<Value>,
}

#[derive(Deserialize)]
struct Response {
    status: u16,
    headers: BTreeMap<String, Value>,
    body: Value,
}

/// Calls a function for each exchange: its name, its dialect and itself.
fn each(mut run: impl FnMut(&str, &Arc<Dialect>, &Exchange)) -> bool {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/recordings");
    let folder = std::env::var_os("SETTLED_RECORDINGS").map_or(default, PathBuf::from).join("openai-chat");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: there are no recordings at {}", folder.display());
        return false;
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let recording: Recording = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let file = path.file_stem().unwrap().to_string_lossy();
        for (number, exchange) in recording.exchanges.iter().enumerate() {
            let provider = exchange.provider.as_ref().unwrap_or(&recording.provider);
            let dialect = Dialect::named(provider).unwrap_or_default();
            run(&format!("{file}#{number}"), &dialect, exchange);
        }
    }
    true
}

/// What a body decodes to at these sizes of chunks, taken in turn.
fn decode(
    dialect: &Arc<Dialect>,
    body: &[u8],
    mut size: impl FnMut() -> usize,
) -> (Vec<ProviderEvent>, Option<ProviderError>, Tally) {
    let mut decoder = ChatDecoder::new(Arc::clone(dialect));
    let (mut events, mut rest) = (VecDeque::new(), body);
    let mut end = Ok(());
    while !rest.is_empty() && end.is_ok() {
        let (chunk, tail) = rest.split_at(size().clamp(1, rest.len()));
        rest = tail;
        end = decoder.push(chunk, &mut events);
    }
    let end = end.and_then(|()| decoder.finish(&mut events));
    (events.into(), end.err(), decoder.tally().clone())
}

/// A generator of pseudo-random numbers: the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

/// What the events of one answer add up to, in the words of the recordings.
#[derive(Default)]
struct Sum {
    text: String,
    refusal: String,
    reasoning: String,
    signatures: Vec<Value>,
    redacted: Vec<Value>,
    calls: Vec<Call>,
    citations: Vec<Value>,
    raw_finish: Option<String>,
    finish: Option<&'static str>,
    usage: Option<Usage>,
    error: Option<ProviderError>,
    finishes: usize,
}

#[derive(Default)]
struct Call {
    id: String,
    name: String,
    raw: String,
    /// The arguments of a complete call; `None` while they are open or malformed.
    input: Option<Value>,
}

/// Adds up events, and holds them to the order that a stream must have.
fn sum(name: &str, events: &[ProviderEvent]) -> Sum {
    let mut sum = Sum::default();
    let mut open: BTreeMap<u32, (&str, String)> = BTreeMap::new();
    let (mut calls, mut next): (BTreeMap<u32, Call>, u32) = (BTreeMap::new(), 0);
    let mut start = |index: u32, kind: &'static str, open: &mut BTreeMap<u32, (&'static str, String)>| {
        assert!(index >= next, "{name}: block {index} again");
        next = index + 1;
        open.insert(index, (kind, String::new()));
    };
    for event in events {
        assert_eq!(sum.finishes, 0, "{name}: {event:?} behind the finish");
        match event {
            ProviderEvent::TextStart(block) => start(block.index, "text", &mut open),
            ProviderEvent::ReasoningStart(block) => start(block.index, "reasoning", &mut open),
            ProviderEvent::TextDelta(delta) | ProviderEvent::ReasoningDelta(delta) => {
                let wanted = if matches!(event, ProviderEvent::TextDelta(_)) { "text" } else { "reasoning" };
                let (kind, text) =
                    open.get_mut(&delta.index).unwrap_or_else(|| panic!("{name}: {event:?} without a start"));
                assert_eq!(*kind, wanted, "{name}");
                text.push_str(&delta.text);
            }
            ProviderEvent::TextEnd(end) | ProviderEvent::ReasoningEnd(end) => {
                let (kind, text) =
                    open.remove(&end.index).unwrap_or_else(|| panic!("{name}: {event:?} without a start"));
                match (kind, &end.state) {
                    ("text", None) => sum.text.push_str(&text),
                    ("text", Some(_)) => sum.refusal.push_str(&text),
                    _ => sum.reasoning.push_str(&text),
                }
                let details = end.state.as_ref().and_then(|state| state.get("reasoning_details")?.as_array());
                for detail in details.into_iter().flatten() {
                    sum.signatures.extend(detail.get("signature").filter(|value| !value.is_null()).cloned());
                    sum.redacted.extend(detail.get("data").cloned());
                }
            }
            ProviderEvent::ToolInputStart(input) => {
                start(input.index, "call", &mut open);
                let call = Call { id: input.id.clone(), name: input.name.clone(), ..Call::default() };
                calls.insert(input.index, call);
            }
            ProviderEvent::ToolInputDelta(delta) => {
                assert_eq!(open.get(&delta.index).map(|(kind, _)| *kind), Some("call"), "{name}");
                calls.get_mut(&delta.index).unwrap().raw.push_str(&delta.text);
            }
            ProviderEvent::ToolInputEnd(end) => assert!(open.remove(&end.index).is_some(), "{name}"),
            ProviderEvent::ToolInputMalformed(call) => {
                assert!(open.remove(&call.index).is_some(), "{name}");
                assert_eq!(call.raw, calls[&call.index].raw, "{name}");
            }
            ProviderEvent::ToolCall(call) => {
                assert!(!open.contains_key(&call.index), "{name}: called while open");
                let known = calls.get_mut(&call.index).unwrap();
                assert_eq!((&known.name, known.input.is_none()), (&call.name, true), "{name}");
                known.id.clone_from(&call.id);
                known.input = Some(call.input.clone());
            }
            ProviderEvent::Annotation(note) if note.kind == "citation" => sum.citations.push(note.data.clone()),
            ProviderEvent::Finish(finish) => {
                sum.finishes += 1;
                sum.raw_finish.clone_from(&finish.raw);
                sum.finish = Some(finish.reason.name());
                sum.usage = finish.usage;
            }
            ProviderEvent::Error(error) => {
                sum.error.get_or_insert_with(|| error.clone());
            }
            ProviderEvent::Alive | ProviderEvent::ResponseInfo(_) | ProviderEvent::Annotation(_) => {}
            other => panic!("{name}: {other:?} is not of this wire"),
        }
    }
    assert!(open.values().all(|(kind, _)| *kind == "call"), "{name}: {open:?} left open");
    sum.calls = calls.into_values().collect();
    sum
}

/// A second statement of how usage is mapped (behaviours 242).
fn usage_of(provider: &str, raw: &Value) -> Usage {
    let number = |paths: &[&str]| paths.iter().find_map(|path| raw.pointer(path).and_then(Value::as_u64));
    let read = number(&[
        "/prompt_tokens_details/cached_tokens",
        "/prompt_cache_hit_tokens",
        "/cached_tokens",
        "/cache_read_input_tokens",
    ]);
    let write = number(&["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"]);
    let reasoning = number(&["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]);
    let left = |all: Option<u64>, part: u64| all.map(|all| all.saturating_sub(part));
    let input = left(number(&["/prompt_tokens"]), read.unwrap_or(0) + write.unwrap_or(0));
    // Of the servers in the recordings only xAI's count completion tokens without reasoning.
    let xai = matches!(provider, "xai" | "openai-compatible");
    let output = left(number(&["/completion_tokens"]), if xai { 0 } else { reasoning.unwrap_or(0) });
    Usage::new(input, output).reasoning(reasoning).cache_read(read).cache_write(write)
}

/// In which respects a sum differs from what is expected.
fn differences(provider: &str, sum: &Sum, expected: &Value) -> Vec<String> {
    let mut differ = Vec::new();
    let mut check = |what: &str, ours: Value, theirs: Value| {
        if ours != theirs {
            differ.push(format!("{what}: {ours} is not {theirs}"));
        }
    };
    let text = |field: &str| expected.get(field).filter(|value| !value.is_null()).cloned().unwrap_or_else(|| json!(""));
    let list = |field: &str| expected.get(field).filter(|value| !value.is_null()).cloned().unwrap_or_else(|| json!([]));
    let count = |field: &str| expected.get(field).filter(|value| !value.is_null()).cloned().unwrap_or_else(|| json!(0));
    check("text", json!(sum.text), text("text"));
    check("reasoning", json!(sum.reasoning), text("reasoning"));
    check("refusal", json!(sum.refusal), text("refusal"));
    check("finish", json!(sum.raw_finish), expected["finish_reason"].clone());
    check("error", json!(sum.error.is_some()), json!(!expected["error"].is_null()));
    if provider == "openrouter" {
        check("signatures", json!(sum.signatures.len()), count("signatures"));
        check("redacted", json!(sum.redacted.len()), count("redacted_reasoning"));
    }
    check("citations", json!(sum.citations.len()), count("citations"));
    let usage = expected.get("usage").filter(|usage| !usage.is_null()).map(|usage| usage_of(provider, usage));
    check("usage", json!(sum.usage), json!(usage));
    let calls = list("tool_calls");
    let complete = matches!(sum.finish, Some("stop" | "tool_calls"));
    let expected_calls = calls.as_array().unwrap().iter().map(|call| {
        // Our rules: nothing and `null` are `{}` at a complete end; what is cut off has no arguments.
        let raw = call["arguments_raw"].as_str().unwrap_or_default();
        let input = match raw.trim() {
            _ if !complete => Value::Null,
            "" | "null" => json!({}),
            _ => call["arguments"].clone(),
        };
        json!([call["id"], call["name"], raw, input])
    });
    let ours = sum.calls.iter().map(|call| {
        let input = if complete { json!(call.input) } else { Value::Null };
        json!([call.id, call.name, call.raw, input])
    });
    check("calls", ours.collect(), expected_calls.collect());
    differ
}

#[test]
fn streams_come_out_as_expected_at_every_split() {
    let exceptions: BTreeMap<String, String> = serde_json::from_str(EXCEPTIONS).unwrap();
    let mut met = BTreeSet::new();
    let (mut streams, mut ambiguous, mut equal, mut events_in_all, mut unknown) = (0, 0, 0, 0, 0);
    let mut ignored: BTreeMap<&str, u64> = BTreeMap::new();
    let mut finishes: BTreeMap<(String, Option<&str>), u64> = BTreeMap::new();
    let mut failures = Vec::new();
    let found = each(|name, dialect, exchange| {
        if !exchange.streaming || exchange.response.status != 200 {
            return;
        }
        streams += 1;
        let body = exchange.response.body.as_str().unwrap().as_bytes();
        let (events, error, tally) = decode(dialect, body, || body.len());
        assert_eq!(error, None, "{name}");
        unknown += tally.unknown;
        for (reason, count) in &tally.ignored {
            *ignored.entry(reason).or_default() += count;
        }
        events_in_all += events.len();
        let mut dice = Dice(body.len() as u64);
        assert!(decode(dialect, body, || 1).0 == events, "{name}: byte by byte");
        for split in 0..20 {
            let most = [3, 40, 700, 5_000][split % 4];
            let (again, error, again_tally) = decode(dialect, body, || 1 + dice.below(most));
            assert!(again == events && error.is_none() && again_tally == tally, "{name}: split {split}");
        }
        let sum = sum(name, &events);
        *finishes.entry((sum.raw_finish.clone().unwrap_or_default(), sum.finish)).or_default() += 1;
        if !exchange.ambiguities.is_empty() {
            ambiguous += 1;
            return;
        }
        // The provider's own name: `Dialect` has a profile for fewer.
        let provider = exchange.provider.as_deref().unwrap_or(&dialect.name);
        let provider = if name.contains("xai") { "xai" } else { provider };
        let differ = differences(provider, &sum, exchange.expected.as_ref().unwrap());
        // A server that nobody knows is read just as well: only what goes back as state depends on the dialect.
        let mut common = ChatDecoder::new(Arc::new(Dialect::default()));
        let mut events = VecDeque::new();
        assert_eq!(common.push(body, &mut events).and_then(|()| common.finish(&mut events)), Ok(()), "{name}");
        let again = self::sum(name, Vec::from(events).as_slice());
        let marked = dialect.marker_finishes;
        let called = |sum: &Sum| -> Vec<Value> {
            sum.calls.iter().map(|call| json!([call.id, call.name, call.raw, call.input])).collect()
        };
        assert_eq!(
            (&again.text, &again.reasoning, &again.refusal),
            (&sum.text, &sum.reasoning, &sum.refusal),
            "{name}"
        );
        assert_eq!((&again.raw_finish, called(&again)), (&sum.raw_finish, called(&sum)), "{name}");
        assert_eq!((common.usage(), again.usage.is_none()), (sum.usage, sum.usage.is_none() || marked), "{name}");
        match (differ.is_empty(), exceptions.get(name)) {
            (true, None) => equal += 1,
            (true, Some(_)) => failures.push(format!("{name} is an exception, and does not differ")),
            (false, Some(_)) => {
                met.insert(name.to_owned());
            }
            (false, None) => failures.push(format!("{name}: {}", differ.join("; "))),
        }
    });
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
    if found {
        let unmet: Vec<&String> = exceptions.keys().filter(|name| !met.contains(*name)).collect();
        assert!(unmet.is_empty(), "exceptions that are not there: {unmet:?}");
        assert_eq!(unknown, 0);
        eprintln!(
            "{streams} streams: {equal} equal, {} exceptions, {ambiguous} ambiguous; {events_in_all} events; ignored {ignored:?}; unknown lines {unknown}; finishes {finishes:?}",
            met.len()
        );
    }
}

#[test]
fn failures_have_the_right_class() {
    let mut table: BTreeMap<(String, u16, String), Vec<String>> = BTreeMap::new();
    let found = each(|name, dialect, exchange| {
        let status = exchange.response.status;
        if status < 400 {
            return;
        }
        let header = |wanted: &str| {
            let found = exchange.response.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.and_then(|(_, value)| value.as_str())
        };
        let body = match &exchange.response.body {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let error = response_error(dialect, status, header, body.as_bytes(), SystemTime::UNIX_EPOCH);
        let expected = &exchange.expected.as_ref().unwrap()["error"];
        let message = ["message", "detail"].into_iter().find_map(|field| expected[field].as_str()).unwrap_or_default();
        let said: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(error.message.starts_with(&said), "{name}: {} is not {said}", error.message);
        assert_eq!(error.status, Some(status), "{name}");
        assert_eq!(error.retry.after_ms, None, "{name}");
        table.entry((dialect.name.clone(), status, error.message)).or_default().push(error.class.name().to_owned());
    });
    if !found {
        return;
    }
    // What each must be, from reading them one by one.
    let right: [(&str, u16, &str, ErrorClass); 26] = [
        ("azure", 401, "Access denied due to invalid subscription key", ErrorClass::Auth),
        ("azure", 404, "The API deployment for this resource does not exist", ErrorClass::InvalidRequest),
        ("deepseek", 400, "Failed to deserialize the JSON body", ErrorClass::InvalidRequest),
        ("deepseek", 401, "Authentication Fails", ErrorClass::Auth),
        ("doubleword", 400, "Validation: Temperature", ErrorClass::InvalidRequest),
        ("doubleword", 403, "Forbidden", ErrorClass::Auth),
        ("doubleword", 404, "The model", ErrorClass::InvalidRequest),
        ("groq", 400, "Tool choice is required", ErrorClass::InvalidOutput),
        ("groq", 401, "Invalid API Key", ErrorClass::Auth),
        ("groq", 404, "The model", ErrorClass::InvalidRequest),
        ("llamacpp", 400, "Field 'temperature'", ErrorClass::InvalidRequest),
        ("llamacpp", 401, "Invalid API Key", ErrorClass::Auth),
        ("llamacpp", 500, "error: cannot make GET request", ErrorClass::InvalidRequest),
        ("llamacpp", 500, "image input is not supported", ErrorClass::Unsupported),
        ("mistral", 400, "Invalid model", ErrorClass::InvalidRequest),
        ("mistral", 400, "Logprobs are not enabled", ErrorClass::InvalidRequest),
        ("mistral", 401, "Invalid API Key", ErrorClass::Auth),
        ("openai", 400, "Invalid 'temperature'", ErrorClass::InvalidRequest),
        ("openai", 401, "Incorrect API key provided", ErrorClass::Auth),
        ("openai", 404, "The model", ErrorClass::InvalidRequest),
        ("openrouter", 400, "This endpoint's maximum context length", ErrorClass::ContextOverflow),
        ("openrouter", 401, "", ErrorClass::Auth),
        ("openrouter", 429, "Provider returned error: google/gemini", ErrorClass::RateLimit),
        ("perplexity", 400, "The total length of all messages is too long", ErrorClass::ContextOverflow),
        ("perplexity", 401, "Invalid API key provided", ErrorClass::Auth),
        ("venice", 404, "Specified model not found", ErrorClass::InvalidRequest),
    ];
    let mut count = 0;
    for ((provider, status, message), classes) in &table {
        let class = right.iter().find(|row| row.0 == provider && row.1 == *status && message.starts_with(row.2));
        let class = match provider.as_str() {
            // Together's, whose profile has no failures of its own.
            "together" => ErrorClass::Auth,
            _ => class.unwrap_or_else(|| panic!("no row for {provider} {status} {message}")).3,
        };
        assert!(classes.iter().all(|found| found == class.name()), "{provider} {status} {message}: {classes:?}");
        count += classes.len();
    }
    eprintln!("{count} failures, {} different ones", table.len());
}

/// Fields that the decoder reads, by the last part of their place.
const DECODED: [&str; 20] = [
    "id",
    "model",
    "object",
    "choices",
    "usage",
    "x_groq",
    "error",
    "citations",
    "search_results",
    "index",
    "delta",
    "message",
    "finish_reason",
    "content",
    "refusal",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "tool_calls",
    "function_call",
];

#[test]
fn every_field_of_the_recordings_is_decoded_or_named_as_ignored() {
    let mut unknown = BTreeSet::new();
    each(|name, _, exchange| {
        let body = exchange.response.body.as_str().unwrap_or_default();
        let lines = body.lines().filter_map(|line| line.strip_prefix("data:")).filter(|_| exchange.streaming);
        for chunk in lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let mut look = |place: &str, value: &Value| {
                for field in value.as_object().into_iter().flatten().map(|(field, _)| field.as_str()) {
                    let known = DECODED.contains(&field) || IGNORED_FIELDS.contains(&field);
                    if !known {
                        unknown.insert(format!("{place}.{field} in {name}"));
                    }
                }
            };
            look("", &chunk);
            for choice in chunk["choices"].as_array().into_iter().flatten() {
                look("choices", choice);
                look("delta", &choice["delta"]);
            }
        }
    });
    assert_eq!(unknown, BTreeSet::new());
}

//! Recorded traffic of the Messages API: what each recorded stream and failure must come out as.
//!
//! The recordings are read from `SETTLED_RECORDINGS` (default `../shared/recordings` beside the workspace); without them the tests say so and pass.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, and says what it counted")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::{Value, json};
use settled_provider_anthropic::{Dialect, IGNORED_FIELDS, MessagesDecoder, response_error};
use settled_provider_api::{ErrorClass, ProviderError, ProviderEvent, Usage};
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
    let folder = std::env::var_os("SETTLED_RECORDINGS").map_or(default, PathBuf::from).join("anthropic-messages");
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
    let mut decoder = MessagesDecoder::new(Arc::clone(dialect));
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
    texts: Vec<String>,
    reasonings: Vec<String>,
    signatures: usize,
    redacted: usize,
    calls: Vec<Call>,
    hosted: Vec<Value>,
    citations: usize,
    stop_sequence: Value,
    stop_details: Value,
    raw_finish: Option<String>,
    finish: Option<&'static str>,
    usage: Option<Usage>,
    error: Option<ProviderError>,
}

#[derive(Default)]
struct Call {
    id: String,
    name: String,
    hosted: bool,
    raw: String,
    /// The arguments of a complete call; `None` while they are open or malformed.
    input: Option<Value>,
    state: Option<Value>,
}

/// Adds up events, and holds them to the order that a stream must have.
fn sum(name: &str, events: &[ProviderEvent]) -> Sum {
    let mut sum = Sum::default();
    let mut open: BTreeMap<u32, (&str, String)> = BTreeMap::new();
    let (mut calls, mut next): (BTreeMap<u32, Call>, u32) = (BTreeMap::new(), 0);
    let mut start = |index: u32, kind: &'static str, open: &mut BTreeMap<u32, (&'static str, String)>| {
        assert_eq!(index, next, "{name}: a block is left out, or there twice");
        next = index + 1;
        open.insert(index, (kind, String::new()));
    };
    for event in events {
        assert_eq!(sum.finish, None, "{name}: {event:?} behind the finish");
        match event {
            ProviderEvent::TextStart(block) => start(block.index, "text", &mut open),
            ProviderEvent::ReasoningStart(block) => start(block.index, "reasoning", &mut open),
            ProviderEvent::TextDelta(delta) | ProviderEvent::ReasoningDelta(delta) => {
                let wanted = if matches!(event, ProviderEvent::TextDelta(_)) { "text" } else { "reasoning" };
                let (kind, text) =
                    open.get_mut(&delta.index).unwrap_or_else(|| panic!("{name}: {event:?} without a start"));
                assert_eq!(*kind, wanted, "{name}");
                assert!(!delta.text.is_empty(), "{name}: a piece without text");
                text.push_str(&delta.text);
            }
            ProviderEvent::TextEnd(end) | ProviderEvent::ReasoningEnd(end) => {
                let (kind, text) =
                    open.remove(&end.index).unwrap_or_else(|| panic!("{name}: {event:?} without a start"));
                let state = end.state.clone().unwrap_or_default();
                match kind {
                    "text" => sum.texts.push(text),
                    _ if state["block"]["type"] == "redacted_thinking" => {
                        assert!(state["block"]["data"].is_string() && text.is_empty(), "{name}");
                        sum.redacted += 1;
                    }
                    _ if state.get("block").is_some() => assert_eq!(text, "", "{name}"),
                    _ => {
                        sum.signatures += usize::from(state.get("signature").is_some());
                        sum.reasonings.push(text);
                    }
                }
            }
            ProviderEvent::ToolInputStart(input) => {
                start(input.index, "call", &mut open);
                let (id, name) = (input.id.clone(), input.name.clone());
                calls.insert(input.index, Call { id, name, hosted: input.hosted, ..Call::default() });
            }
            ProviderEvent::ToolInputDelta(delta) => {
                assert_eq!(open.get(&delta.index).map(|(kind, _)| *kind), Some("call"), "{name}");
                calls.get_mut(&delta.index).unwrap().raw.push_str(&delta.text);
            }
            ProviderEvent::ToolInputEnd(end) => assert!(open.remove(&end.index).is_some(), "{name}"),
            ProviderEvent::ToolCall(call) => {
                assert!(!open.contains_key(&call.index), "{name}: called while open");
                let known = calls.get_mut(&call.index).unwrap();
                assert_eq!(
                    (&known.id, &known.name, known.hosted, known.input.is_none()),
                    (&call.id, &call.name, call.hosted, true),
                    "{name}"
                );
                known.input = Some(call.input.clone());
                known.state.clone_from(&call.state);
            }
            ProviderEvent::HostedResult(result) => {
                assert!(!result.content[0].as_text().unwrap().is_empty(), "{name}");
                sum.hosted.push(json!(result.id));
            }
            ProviderEvent::Annotation(note) => match note.kind.as_str() {
                "stop_sequence" => sum.stop_sequence = note.data.clone(),
                "stop_details" => sum.stop_details = note.data.clone(),
                "context_management" => {}
                _ => {
                    assert_eq!(open.get(&note.index.unwrap()).map(|(kind, _)| *kind), Some("text"), "{name}");
                    sum.citations += 1;
                }
            },
            ProviderEvent::Finish(finish) => {
                sum.raw_finish.clone_from(&finish.raw);
                sum.finish = Some(finish.reason.name());
                sum.usage = finish.usage;
            }
            ProviderEvent::Error(error) => {
                sum.error.get_or_insert_with(|| error.clone());
            }
            ProviderEvent::Alive | ProviderEvent::ResponseInfo(_) => {}
            other => panic!("{name}: {other:?} is not in these recordings"),
        }
    }
    assert!(open.values().all(|(kind, _)| *kind == "call"), "{name}: {open:?} left open");
    sum.calls = calls.into_values().collect();
    sum
}

/// A second statement of how usage is mapped (behaviours 242).
fn usage_of(raw: &Value) -> Usage {
    let number = |path: &str| raw.pointer(path).and_then(Value::as_u64);
    let reasoning = number("/output_tokens_details/thinking_tokens");
    let output = number("/output_tokens").map(|all| all.saturating_sub(reasoning.unwrap_or(0)));
    Usage::new(number("/input_tokens"), output)
        .reasoning(reasoning)
        .cache_read(number("/cache_read_input_tokens"))
        .cache_write(number("/cache_creation_input_tokens"))
}

/// In which respects a sum differs from what is expected.
fn differences(sum: &Sum, expected: &Value) -> Vec<String> {
    let mut differ = Vec::new();
    let mut check = |what: &str, ours: Value, theirs: Value| {
        if ours != theirs {
            differ.push(format!("{what}: {ours} is not {theirs}"));
        }
    };
    let parts = |field: &str| -> Value {
        let parts = expected[field].as_array().unwrap().iter().filter(|part| **part != "");
        parts.cloned().collect()
    };
    // Reasoning that was signed and said nothing is a part of ours.
    let reasonings: Vec<&String> = sum.reasonings.iter().filter(|text| !text.is_empty()).collect();
    check("text", json!(sum.texts.concat()), expected["text"].clone());
    check("text parts", json!(sum.texts), parts("text_parts"));
    check("reasoning", json!(sum.reasonings.concat()), expected["reasoning"].clone());
    check("reasoning parts", json!(reasonings), parts("reasoning_parts"));
    check("finish", json!(sum.raw_finish), expected["finish_reason"].clone());
    check("error", json!(sum.error.is_some()), json!(!expected["error"].is_null()));
    check("signatures", json!(sum.signatures), expected["signatures"].clone());
    check("redacted", json!(sum.redacted), expected["redacted_reasoning"].clone());
    check("citations", json!(sum.citations), expected["citations"].clone());
    check("stop sequence", sum.stop_sequence.clone(), expected["stop_sequence"].clone());
    check("stop details", sum.stop_details.clone(), expected["stop_details"].clone());
    check("usage", json!(sum.usage), json!(usage_of(&expected["usage"])));
    let calls = expected["tool_calls"].as_array().unwrap().iter().map(|call| {
        let cut = sum.finish == Some("length") && call["arguments_raw"] == "";
        let input = if cut { Value::Null } else { call["arguments"].clone() };
        json!([call["id"], call["name"], call["arguments_raw"], input])
    });
    let ours = sum.calls.iter().filter(|call| !call.hosted);
    let ours = ours.map(|call| json!([call.id, call.name, call.raw, call.input]));
    check("calls", ours.collect(), calls.collect());
    let hosted = expected["hosted_tools"].as_array().unwrap().iter();
    let hosted = hosted.map(|call| json!([call["id"], call["type"], call["arguments"]]));
    let ours = sum.calls.iter().filter(|call| call.hosted).map(|call| {
        let block = call.state.clone().unwrap_or_default()["block"]["type"].clone();
        // The recordings name a tool of another server by its block, and a tool of the provider's by its name.
        let kind = if block == "server_tool_use" { json!(call.name) } else { block };
        json!([call.id, kind, call.input])
    });
    check("hosted", ours.collect(), hosted.collect());
    differ
}

#[test]
fn streams_come_out_as_expected_at_every_split() {
    let exceptions: BTreeMap<String, String> = serde_json::from_str(EXCEPTIONS).unwrap();
    let mut met = BTreeSet::new();
    let (mut streams, mut ambiguous, mut equal, mut events_in_all, mut unknown, mut results) = (0, 0, 0, 0, 0, 0);
    let mut ignored: BTreeMap<&str, u64> = BTreeMap::new();
    let mut finishes: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let mut failures = Vec::new();
    let found = each(|name, dialect, exchange| {
        if !exchange.streaming || exchange.response.status != 200 {
            return;
        }
        streams += 1;
        let body = exchange.response.body.as_str().unwrap().as_bytes();
        let (events, error, tally) = decode(dialect, body, || body.len());
        let mut dice = Dice(body.len() as u64);
        assert!(decode(dialect, body, || 1) == (events.clone(), error.clone(), tally.clone()), "{name}: byte by byte");
        for split in 0..20 {
            let most = [3, 40, 700, 5_000][split % 4];
            let again = decode(dialect, body, || 1 + dice.below(most));
            assert!(again == (events.clone(), error.clone(), tally.clone()), "{name}: split {split}");
        }
        if !exchange.ambiguities.is_empty() {
            ambiguous += 1;
            // Of the two, one repeats the first line, and one begins another answer inside the first.
            let spliced = error.is_some_and(|error| error.to_string().contains("begins inside the answer"));
            assert_eq!(spliced, name.contains("spliced"), "{name}");
            return;
        }
        assert_eq!(error, None, "{name}");
        unknown += tally.unknown;
        for (reason, count) in &tally.ignored {
            *ignored.entry(reason).or_default() += count;
        }
        events_in_all += events.len();
        let sum = sum(name, &events);
        results += sum.hosted.len();
        *finishes.entry((sum.raw_finish.clone().unwrap(), sum.finish.unwrap())).or_default() += 1;
        let differ = differences(&sum, exchange.expected.as_ref().unwrap());
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
        let table = [
            ("end_turn", "stop"),
            ("max_tokens", "length"),
            ("refusal", "refusal"),
            ("stop_sequence", "stop"),
            ("tool_use", "tool_calls"),
        ];
        let said: Vec<(&str, &str)> = finishes.keys().map(|(raw, reason)| (raw.as_str(), *reason)).collect();
        assert_eq!(said, table, "finishes");
        assert_eq!(results, 18, "results of hosted calls");
        eprintln!(
            "{streams} streams: {equal} equal, {} exceptions, {ambiguous} ambiguous; {events_in_all} events; ignored {ignored:?}; unknown lines {unknown}; finishes {finishes:?}",
            met.len()
        );
    }
}

#[test]
fn failures_have_the_right_class() {
    let mut table: BTreeMap<(u16, String), Vec<_>> = BTreeMap::new();
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
        assert_eq!(json!(error.message), expected["message"], "{name}");
        assert_eq!(json!(error.code), expected["type"], "{name}");
        assert_eq!((error.status, error.retry.after_ms), (Some(status), None), "{name}");
        // Inside a stream the same words are the same class.
        let events = decode(dialect, format!("event: error\ndata: {body}\n\n").as_bytes(), || 64).0;
        let [ProviderEvent::Error(inside)] = events.as_slice() else { panic!("{name}: {events:?}") };
        assert_eq!((inside.class, &inside.message), (error.class, &error.message), "{name}");
        let row = table.entry((status, error.message)).or_default();
        row.push((error.class.name(), error.retry.should_retry));
    });
    if !found {
        return;
    }
    // What each must be, from reading them one by one.
    let right: [(u16, &str, ErrorClass, Option<bool>); 7] = [
        (400, "messages.0: Input does not match", ErrorClass::InvalidRequest, Some(false)),
        (400, "messages.0: all messages must have", ErrorClass::InvalidRequest, Some(false)),
        (400, "messages.1: `tool_use` ids were found", ErrorClass::InvalidRequest, None),
        (401, "invalid x-api-key", ErrorClass::Auth, Some(false)),
        (404, "model: claude-nonexistent-rig-test", ErrorClass::InvalidRequest, None),
        (404, "model: claude-sonet-4-5", ErrorClass::InvalidRequest, None),
        (404, "model: invalid-model-that-does-not-exist", ErrorClass::InvalidRequest, Some(false)),
    ];
    let mut count = 0;
    assert_eq!(table.len(), right.len());
    for (((status, message), rows), row) in table.iter().zip(right) {
        assert!(*status == row.0 && message.starts_with(row.1), "no row for {status} {message}");
        assert!(rows.iter().all(|found| *found == (row.2.name(), row.3)), "{status} {message}: {rows:?}");
        count += rows.len();
    }
    eprintln!("{count} failures, {} different ones", table.len());
}

/// Fields that the decoder reads, by the kind of line or object they are in; `*` is kept as a whole.
const DECODED: [&str; 31] = [
    "type",
    "index",
    "delta",
    "content_block",
    "message",
    "usage",
    "context_management",
    "delta.type",
    "delta.text",
    "delta.thinking",
    "delta.partial_json",
    "delta.signature",
    "delta.content",
    "delta.citation",
    "delta.stop_reason",
    "delta.stop_sequence",
    "delta.stop_details",
    "delta.container",
    "message.id",
    "message.model",
    "message.usage",
    "message.container",
    "message.content",
    "message.stop_reason",
    "message.stop_sequence",
    "message.stop_details",
    "usage.input_tokens",
    "usage.output_tokens",
    "usage.cache_read_input_tokens",
    "usage.cache_creation_input_tokens",
    "usage.output_tokens_details",
];

#[test]
fn every_field_of_the_recordings_is_decoded_or_named_as_ignored() {
    let mut unknown = BTreeSet::new();
    each(|name, _, exchange| {
        let body = exchange.response.body.as_str().unwrap_or_default();
        let lines = body.lines().filter_map(|line| line.strip_prefix("data:")).filter(|_| exchange.streaming);
        for line in lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let mut look = |place: &str, value: &Value| {
                for field in value.as_object().into_iter().flatten().map(|(field, _)| format!("{place}{field}")) {
                    if !DECODED.contains(&&*field) && !IGNORED_FIELDS.contains(&&*field) {
                        unknown.insert(format!("{field} in {name}"));
                    }
                }
            };
            look("", &line);
            look("delta.", &line["delta"]);
            look("message.", &line["message"]);
            look("usage.", &line["usage"]);
            look("usage.", &line["message"]["usage"]);
        }
    });
    assert_eq!(unknown, BTreeSet::new());
}

//! Recorded traffic of Gemini: what each recorded stream and failure must come out as.
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
use settled_provider_gemini::{Dialect, GeminiDecoder, IGNORED_FIELDS, never_fits, response_error};
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
    let folder = std::env::var_os("SETTLED_RECORDINGS").map_or(default, PathBuf::from).join("gemini");
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
    let mut decoder = GeminiDecoder::new(Arc::clone(dialect));
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
    reasoning: String,
    signatures: usize,
    calls: Vec<Call>,
    /// Hosted calls by kind, with what grounding says of searches.
    hosted: Vec<String>,
    answered: usize,
    sources: usize,
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
    hosted: bool,
    /// The arguments of a complete call; `None` while they are open.
    input: Option<Value>,
}

/// Adds up events, and holds them to the order that a stream must have.
fn sum(name: &str, events: &[ProviderEvent]) -> Sum {
    let mut sum = Sum::default();
    let mut open: BTreeMap<u32, (&str, String)> = BTreeMap::new();
    let (mut calls, mut next): (BTreeMap<u32, Call>, u32) = (BTreeMap::new(), 0);
    let mut grounded = BTreeSet::new();
    let mut start = |index: u32, kind: &'static str, open: &mut BTreeMap<u32, (&'static str, String)>| {
        assert!(index >= next, "{name}: block {index} again");
        next = index + 1;
        open.insert(index, (kind, String::new()));
    };
    let signatures = |state: &Option<Value>| {
        let places = ["/thoughtSignature", "/part/thoughtSignature"];
        places.iter().filter(|place| state.as_ref().is_some_and(|state| state.pointer(place).is_some())).count()
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
                assert!(!text.is_empty() || end.state.is_some(), "{name}: a block of nothing");
                match kind {
                    "text" => sum.text.push_str(&text),
                    _ => sum.reasoning.push_str(&text),
                }
                sum.signatures += signatures(&end.state);
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
                assert_eq!((&known.name, &known.id, known.hosted), (&call.name, &call.id, call.hosted), "{name}");
                assert!(known.input.is_none(), "{name}: called twice");
                assert_eq!(serde_json::from_str::<Value>(&known.raw).unwrap(), call.input, "{name}");
                known.input = Some(call.input.clone());
                sum.signatures += signatures(&call.state);
                if call.hosted {
                    sum.hosted.push(match call.name.as_str() {
                        "code_execution" => call.name.clone(),
                        kind => format!("toolCall:{}", kind.to_uppercase()),
                    });
                }
            }
            ProviderEvent::HostedResult(result) => {
                assert!(calls.values().any(|call| call.hosted && call.id == result.id), "{name}: {result:?}");
                sum.answered += 1;
                sum.signatures += signatures(&result.state);
            }
            ProviderEvent::Annotation(note) => {
                sum.sources += usize::from(note.kind == "source");
                grounded.insert(match note.kind.as_str() {
                    "source" | "citation" | "search" => "google_search",
                    "url_context" => "url_context",
                    kind => panic!("{name}: {kind}"),
                });
            }
            ProviderEvent::Finish(finish) => {
                sum.finishes += 1;
                sum.raw_finish.clone_from(&finish.raw);
                sum.finish = Some(finish.reason.name());
                sum.usage = finish.usage;
            }
            ProviderEvent::Error(error) => {
                sum.error.get_or_insert_with(|| error.clone());
            }
            ProviderEvent::Alive | ProviderEvent::ResponseInfo(_) => {}
            other => panic!("{name}: {other:?} is in no recording"),
        }
    }
    assert!(open.values().all(|(kind, _)| *kind == "call"), "{name}: {open:?} left open");
    sum.hosted.extend(grounded.into_iter().map(str::to_owned));
    sum.hosted.sort();
    sum.calls = calls.into_values().filter(|call| !call.hosted).collect();
    sum
}

/// A second statement of how usage is mapped (behaviours 242); what is left out on the wire was not reported.
fn usage_of(raw: &Value) -> Usage {
    let number = |field: &str| raw.get(field).and_then(Value::as_u64);
    let read = number("cachedContentTokenCount");
    let parts = [number("promptTokenCount"), number("toolUsePromptTokenCount")];
    let input = parts.iter().flatten().sum::<u64>() - read.unwrap_or(0);
    let input = parts.iter().any(Option::is_some).then_some(input);
    let (output, reasoning) = (number("candidatesTokenCount"), number("thoughtsTokenCount"));
    let usage = Usage::new(input, output).reasoning(reasoning).cache_read(read);
    if let Some(total) = number("totalTokenCount") {
        assert_eq!(usage.prompt() + usage.generated(), total, "the parts of {raw} do not add up");
    }
    usage
}

/// In which respects a sum differs from what is expected.
fn differences(sum: &Sum, expected: &Value) -> Vec<String> {
    let mut differ = Vec::new();
    let mut check = |what: &str, ours: Value, theirs: Value| {
        if ours != theirs {
            differ.push(format!("{what}: {ours} is not {theirs}"));
        }
    };
    check("text", json!(sum.text), expected["text"].clone());
    check("reasoning", json!(sum.reasoning), expected["reasoning"].clone());
    check("raw finish", json!(sum.raw_finish), expected["finish_reason"].clone());
    check("error", json!(sum.error.is_some()), json!(!expected["error"].is_null()));
    check("signatures", json!(sum.signatures), expected["signatures"].clone());
    check("citations", json!(sum.sources), expected["citations"].clone());
    let usage = expected.get("usage").filter(|usage| !usage.is_null()).map(usage_of);
    check("usage", json!(sum.usage), json!(usage));
    let hosted = expected["hosted_tools"].as_array().unwrap();
    let mut hosted: Vec<&str> = hosted.iter().map(|tool| tool["type"].as_str().unwrap()).collect();
    hosted.sort_unstable();
    check("hosted", json!(sum.hosted), json!(hosted));
    let calls = expected["tool_calls"].as_array().unwrap();
    // The wire leaves ids out; a label that is not there is blank.
    let theirs = calls.iter().map(|call| json!([call["id"].as_str().unwrap_or(""), call["name"], call["arguments"]]));
    check("calls", sum.calls.iter().map(|call| json!([call.id, call.name, call.input])).collect(), theirs.collect());
    // The table of finishes, stated a second time for what the recordings have.
    let reason = match (expected["finish_reason"].as_str(), calls.is_empty()) {
        (Some("STOP"), true) => Some("stop"),
        (Some("STOP"), false) => Some("tool_calls"),
        (Some("MAX_TOKENS"), _) => Some("length"),
        (None, _) => None,
        (Some(other), _) => panic!("{other} is in no recording"),
    };
    check("finish", json!(sum.finish), json!(reason));
    differ
}

#[test]
fn streams_come_out_as_expected_at_every_split() {
    let exceptions: BTreeMap<String, String> = serde_json::from_str(EXCEPTIONS).unwrap();
    let mut met = BTreeSet::new();
    let (mut count, mut equal, mut ambiguous, mut ignored) = (0, 0, 0, BTreeMap::<&str, u64>::new());
    let found = each(|name, dialect, exchange| {
        if !exchange.streaming {
            return;
        }
        count += 1;
        let body = exchange.response.body.as_str().unwrap().as_bytes();
        let (events, error, tally) = decode(dialect, body, || usize::MAX);
        assert_eq!((error, tally.unknown), (None, 0), "{name}");
        for (reason, lines) in tally.ignored {
            *ignored.entry(reason).or_default() += lines;
        }
        assert_eq!(decode(dialect, body, || 1).0, events, "{name}, byte by byte");
        for seed in 0..20 {
            let mut dice = Dice(seed);
            assert_eq!(decode(dialect, body, || 1 + dice.below(700)).0, events, "{name}, at split {seed}");
        }
        let sum = sum(name, &events);
        if !exchange.ambiguities.is_empty() {
            ambiguous += 1;
            return;
        }
        let differ = differences(&sum, exchange.expected.as_ref().unwrap());
        match (differ.is_empty(), exceptions.get(name)) {
            (true, None) => equal += 1,
            (false, Some(_)) => {
                met.insert(name.to_owned());
                eprintln!("{name} differs: {differ:#?}");
            }
            (true, Some(reason)) => panic!("{name} is an exception that is none: {reason}"),
            (false, None) => panic!("{name}: {differ:#?}"),
        }
    });
    if found {
        assert_eq!(met, exceptions.keys().cloned().collect(), "exceptions that no exchange has");
        assert_eq!(count, equal + met.len() + ambiguous);
        eprintln!("{count} streams: {equal} as expected, {} exceptions, {ambiguous} ambiguous; {ignored:?}", met.len());
    }
}

#[test]
fn answers_that_do_not_stream_are_read_as_well() {
    let mut count = 0;
    each(|name, dialect, exchange| {
        if exchange.streaming || exchange.response.status != 200 {
            return;
        }
        count += 1;
        let body = match &exchange.response.body {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let (events, error, tally) = decode(dialect, body.as_bytes(), || usize::MAX);
        assert_eq!((error, tally.unknown), (None, 0), "{name}");
        assert_eq!(decode(dialect, body.as_bytes(), || 1).0, events, "{name}, byte by byte");
        assert_eq!(sum(name, &events).finishes, 1, "{name}");
    });
    eprintln!("{count} answers");
}

#[test]
fn calls_in_pieces_are_put_together() {
    let mut found = BTreeMap::new();
    let any = each(|name, dialect, exchange| {
        if exchange.ambiguities.is_empty() {
            return;
        }
        let body = exchange.response.body.as_str().unwrap();
        let sum = sum(name, &decode(dialect, body.as_bytes(), || usize::MAX).0);
        assert_eq!((sum.finish, sum.signatures), (Some("tool_calls"), 1), "{name}");
        // A second statement: each text at its place, in the order of the pieces.
        let (mut texts, mut numbers, mut goes_on) = (Vec::<(String, String)>::new(), 0, false);
        for piece in exchange.expected.as_ref().unwrap()["partial_function_calls"].as_array().unwrap() {
            for piece in piece["partialArgs"].as_array().into_iter().flatten() {
                let path = piece["jsonPath"].as_str().unwrap().to_owned();
                match (piece["stringValue"].as_str(), texts.last_mut()) {
                    (Some(text), Some((_, whole))) if goes_on => whole.push_str(text),
                    (Some(text), _) => texts.push((path, text.to_owned())),
                    (None, _) => numbers += usize::from(piece["numberValue"].is_number()),
                }
                goes_on = piece["willContinue"] == json!(true);
            }
        }
        let mut leaves = Vec::new();
        for call in &sum.calls {
            leaves_of(call.input.as_ref().unwrap(), "$".to_owned(), &mut leaves);
        }
        let (ours, rest): (Vec<_>, Vec<_>) = leaves.into_iter().partition(|(_, leaf)| leaf.is_string());
        let sorted = |mut list: Vec<(String, String)>| {
            list.sort();
            list
        };
        let ours = ours.into_iter().map(|(path, leaf)| (path, leaf.as_str().unwrap().to_owned())).collect();
        assert_eq!(sorted(ours), sorted(texts), "{name}");
        assert_eq!(rest.len(), numbers, "{name}");
        let called: Vec<String> = sum.calls.iter().map(|call| call.name.clone()).collect();
        found.insert(name.to_owned(), called.join(" "));
    });
    if any {
        let called: Vec<&str> = found.values().map(String::as_str).collect();
        assert_eq!(called, ["getWeather getWeather", "writeItems", "cookRecipe"]);
    }
}

/// The leaves of a value, each with its place.
fn leaves_of(value: &Value, path: String, leaves: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| leaves_of(value, format!("{path}.{name}"), leaves));
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(at, value)| leaves_of(value, format!("{path}[{at}]"), leaves));
        }
        leaf => leaves.push((path, leaf.clone())),
    }
}

#[test]
fn failures_are_classified() {
    // What each must be, from reading them one by one.
    let right: [(&str, u16, &str, ErrorClass, Option<u64>); 7] = [
        ("gemini", 400, "API key not valid", ErrorClass::Auth, None),
        ("gemini", 404, "models/invalid-model", ErrorClass::InvalidRequest, None),
        ("gemini", 404, "models/gemini-nonexistent", ErrorClass::InvalidRequest, None),
        ("gemini", 429, "Resource exhausted.", ErrorClass::RateLimit, None),
        ("gemini", 429, "You exceeded your current quota", ErrorClass::RateLimit, Some(48_000)),
        ("vertex", 400, "Cannot fetch content from the provided URL", ErrorClass::InvalidRequest, None),
        ("vertex", 404, "Publisher Model", ErrorClass::InvalidRequest, None),
    ];
    let mut hit = BTreeSet::new();
    let mut count = 0;
    let found = each(|name, dialect, exchange| {
        let status = exchange.response.status;
        if status < 400 {
            return;
        }
        count += 1;
        let body = match &exchange.response.body {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        let header = |name: &str| exchange.response.headers.get(name).and_then(Value::as_str);
        let error = response_error(dialect, status, header, body.as_bytes(), SystemTime::UNIX_EPOCH);
        let expected = &exchange.expected.as_ref().unwrap()["error"];
        assert_eq!(error.status, Some(status), "{name}");
        let words = expected["message"].as_str().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(error.message, words, "{name}");
        let at =
            right.iter().position(|row| row.0 == dialect.name && row.1 == status && error.message.starts_with(row.2));
        let at = at.unwrap_or_else(|| panic!("no row for {name}: {error}"));
        assert_eq!((error.class, error.retry.after_ms), (right[at].3, right[at].4), "{name}: {error}");
        hit.insert(at);
        // The same failure where a stream was asked for, and opened.
        let (events, end, tally) = decode(dialect, body.as_bytes(), || usize::MAX);
        let [ProviderEvent::Error(inside)] = events.as_slice() else { panic!("{name}: {events:?}") };
        assert_eq!((inside.class, inside.retry, end, tally.unknown), (error.class, error.retry, None, 0), "{name}");
        // A quota that the request alone is above can never be met.
        if error.retry.after_ms.is_some() {
            let request = |length: usize| json!({"contents": [{"parts": [{"text": "a".repeat(length)}]}]});
            let fits = never_fits(error.clone(), &request(4_000_000));
            assert_eq!(fits, error, "{name}");
            let never = never_fits(error, &request(4_000_004));
            assert_eq!((never.class, never.retry.after_ms), (ErrorClass::ContextOverflow, None), "{name}");
        }
    });
    if found {
        assert_eq!(hit.len(), right.len(), "rows that no failure has");
        eprintln!("{count} failures, {} different ones", hit.len());
    }
}

/// Fields that the decoder reads, by the last part of their place.
const DECODED: [&str; 33] = [
    "candidates",
    "usageMetadata",
    "promptFeedback",
    "modelVersion",
    "responseId",
    "error",
    "index",
    "content",
    "parts",
    "role",
    "finishReason",
    "finishMessage",
    "groundingMetadata",
    "urlContextMetadata",
    "citationMetadata",
    "promptTokenCount",
    "candidatesTokenCount",
    "thoughtsTokenCount",
    "cachedContentTokenCount",
    "toolUsePromptTokenCount",
    "totalTokenCount",
    "text",
    "thought",
    "thoughtSignature",
    "functionCall",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
    "inlineData",
    "fileData",
    "blockReason",
    "blockReasonMessage",
];

#[test]
fn every_field_of_the_recordings_is_decoded_or_named_as_ignored() {
    let mut unknown = BTreeSet::new();
    each(|name, _, exchange| {
        let body = exchange.response.body.as_str().unwrap_or_default();
        let chunks: Vec<Value> = match serde_json::from_str(body) {
            Ok(Value::Array(chunks)) => chunks,
            _ => body.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data:")?).ok()).collect(),
        };
        for chunk in chunks {
            let mut look = |place: &str, value: &Value| {
                for field in value.as_object().into_iter().flatten().map(|(field, _)| field.as_str()) {
                    if !DECODED.contains(&field) && !IGNORED_FIELDS.contains(&field) {
                        unknown.insert(format!("{place}.{field} in {name}"));
                    }
                }
            };
            look("", &chunk);
            look("usageMetadata", &chunk["usageMetadata"]);
            for candidate in chunk["candidates"].as_array().into_iter().flatten() {
                look("candidates", candidate);
                look("content", &candidate["content"]);
                for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
                    look("parts", part);
                }
            }
        }
    });
    assert_eq!(unknown, BTreeSet::new());
}

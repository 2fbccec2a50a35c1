//! Recorded traffic of the Responses API: what each recorded stream and failure must come out as.
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
use settled_provider_openai::responses::{Dialect, IGNORED_FIELDS, ResponsesDecoder, response_error};
use settled_provider_wire::{Decoder, Tally};

/// The exchanges that differ from what the recordings expect, and why.
const EXCEPTIONS: &str = include_str!("data/responses_exceptions.json");

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
    let folder = std::env::var_os("SETTLED_RECORDINGS").map_or(default, PathBuf::from).join("openai-responses");
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
            // The names of the recordings for Copilot and LM Studio are others.
            let named = match &*file {
                file if file.contains("github-copilot") => "copilot",
                file if file.contains("lmstudio") => "lmstudio",
                _ => provider,
            };
            run(&format!("{file}#{number}"), &Dialect::named(named).unwrap_or_default(), exchange);
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
    let mut decoder = ResponsesDecoder::new(Arc::clone(dialect));
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
    /// The ids of the reasoning that goes back.
    reasoning_items: Vec<Value>,
    encrypted: usize,
    calls: Vec<Call>,
    hosted: Vec<Value>,
    outcomes: usize,
    notes: usize,
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
    hosted: bool,
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
        assert_eq!(index, next, "{name}: a number is used again, or left out");
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
                let text = end.text.as_ref().unwrap_or(&text);
                let state = end.state.clone().unwrap_or_default();
                match (kind, state.get("refusal")) {
                    ("text", None) => sum.text.push_str(text),
                    ("text", Some(_)) => sum.refusal.push_str(text),
                    _ => {
                        sum.reasoning.push_str(text);
                        if let Some(item) = state.get("item") {
                            sum.reasoning_items.push(item["id"].clone());
                            sum.encrypted += usize::from(item["encrypted_content"].is_string());
                        }
                    }
                }
            }
            ProviderEvent::ToolInputStart(input) => {
                start(input.index, "call", &mut open);
                let call =
                    Call { id: input.id.clone(), name: input.name.clone(), hosted: input.hosted, ..Call::default() };
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
                assert_eq!(
                    (&known.name, known.hosted, known.input.is_none()),
                    (&call.name, call.hosted, true),
                    "{name}"
                );
                assert!(call.input.is_object(), "{name}");
                known.id.clone_from(&call.id);
                known.input = Some(call.input.clone());
                if call.hosted {
                    let item = &call.state.as_ref().unwrap()["item"];
                    sum.hosted.push(json!([item["type"], item["id"]]));
                }
            }
            ProviderEvent::HostedResult(result) => {
                assert!(calls.values().any(|call| call.hosted && call.id == result.id), "{name}: {result:?}");
                assert!(!result.content.is_empty() && result.state.is_some(), "{name}");
                sum.outcomes += 1;
                let item = &result.state.as_ref().unwrap()["item"];
                if item.is_object() {
                    sum.hosted.push(json!([item["type"], item["id"]]));
                }
            }
            ProviderEvent::HostedError(error) => {
                assert!(calls.values().any(|call| call.hosted && call.id == error.id), "{name}: {error:?}");
                sum.outcomes += 1;
            }
            ProviderEvent::Annotation(note) => {
                assert!(note.kind.ends_with("citation"), "{name}: {}", note.kind);
                sum.notes += 1;
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
            other => panic!("{name}: {other:?} is not of this wire"),
        }
    }
    assert!(open.values().all(|(kind, _)| *kind == "call"), "{name}: {open:?} left open");
    sum.calls = calls.into_values().collect();
    sum
}

/// A second statement of how usage is mapped (behaviours 242).
fn usage_of(raw: &Value) -> Usage {
    let number = |path: &str| raw.pointer(path).and_then(Value::as_u64);
    let read = number("/input_tokens_details/cached_tokens");
    let write = number("/input_tokens_details/cache_write_tokens");
    let reasoning = number("/output_tokens_details/reasoning_tokens");
    let left = |all: Option<u64>, part: u64| all.map(|all| all.saturating_sub(part));
    let input = left(number("/input_tokens"), read.unwrap_or(0) + write.unwrap_or(0));
    let output = left(number("/output_tokens"), reasoning.unwrap_or(0));
    Usage::new(input, output).reasoning(reasoning).cache_read(read).cache_write(write)
}

/// In which respects a sum differs from what is expected.
fn differences(sum: &Sum, expected: &Value) -> Vec<String> {
    let mut differ = Vec::new();
    let mut check = |what: &str, ours: Value, theirs: Value| {
        if ours != theirs {
            differ.push(format!("{what}: {ours} is not {theirs}"));
        }
    };
    let or = |field: &str, other: Value| expected.get(field).filter(|value| !value.is_null()).cloned().unwrap_or(other);
    check("text", json!(sum.text), or("text", json!("")));
    check("reasoning", json!(sum.reasoning), or("reasoning", json!("")));
    check("refusal", json!(sum.refusal), or("refusal", json!("")));
    check("finish", json!(sum.raw_finish), expected["finish_reason"].clone());
    check("error", json!(sum.error.is_some()), json!(!expected["error"].is_null()));
    check("citations", json!(sum.notes), or("citations", json!(0)));
    let usage = expected.get("usage").filter(|usage| !usage.is_null()).map(usage_of);
    check("usage", json!(sum.usage), json!(usage));
    let hosted = or("hosted_tools", json!([]));
    let hosted = hosted.as_array().unwrap().iter().map(|tool| json!([tool["type"], tool["id"]]));
    check("hosted tools", json!(sum.hosted), hosted.collect());
    let calls = or("tool_calls", json!([]));
    let complete = sum.raw_finish.as_deref() == Some("completed");
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
    let ours = sum.calls.iter().filter(|call| !call.hosted);
    let ours = ours.map(|call| json!([call.id, call.name, call.raw, call.input]));
    check("calls", ours.collect(), expected_calls.collect());
    differ
}

/// The reasoning items of a body that have ended: what must go back.
fn reasoning_of(body: &str) -> (usize, usize) {
    let lines = body.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data:")?).ok());
    let done = lines.filter(|line| line["type"] == "response.output_item.done" && line["item"]["type"] == "reasoning");
    let items: Vec<Value> = done.collect();
    let encrypted = items.iter().filter(|line| line["item"]["encrypted_content"].is_string()).count();
    (items.len(), encrypted)
}

#[test]
fn streams_come_out_as_expected_at_every_split() {
    let exceptions: BTreeMap<String, String> = serde_json::from_str(EXCEPTIONS).unwrap();
    let mut met = BTreeSet::new();
    let (mut streams, mut ambiguous, mut equal, mut events_in_all, mut unknown) = (0, 0, 0, 0, 0);
    let (mut hosted, mut outcomes) = (0, 0);
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
        let mut dice = Dice(body.len() as u64);
        assert!(decode(dialect, body, || 1) == (events.clone(), error.clone(), tally.clone()), "{name}: byte by byte");
        for split in 0..20 {
            let most = [3, 40, 700, 5_000][split % 4];
            let again = decode(dialect, body, || 1 + dice.below(most));
            assert!(again == (events.clone(), error.clone(), tally.clone()), "{name}: split {split}");
        }
        if let Some(error) = error {
            match exceptions.contains_key(name) {
                true => met.insert(name.to_owned()),
                false => panic!("{name}: {error}"),
            };
            return;
        }
        unknown += tally.unknown;
        for (reason, count) in &tally.ignored {
            *ignored.entry(reason).or_default() += count;
        }
        events_in_all += events.len();
        let sum = sum(name, &events);
        *finishes.entry((sum.raw_finish.clone().unwrap_or_default(), sum.finish)).or_default() += 1;
        hosted += sum.calls.iter().filter(|call| call.hosted).count();
        outcomes += sum.outcomes;
        if !exchange.ambiguities.is_empty() {
            ambiguous += 1;
            return;
        }
        let mut differ = differences(&sum, exchange.expected.as_ref().unwrap());
        let ours = (sum.reasoning_items.len(), sum.encrypted);
        let theirs = reasoning_of(exchange.response.body.as_str().unwrap());
        if ours != theirs {
            differ.push(format!("reasoning that goes back: {ours:?} is not {theirs:?}"));
        }
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
        assert_eq!(outcomes, hosted, "every hosted call of these has an outcome");
        // The normalised finish of each raw one.
        let table = [
            ("completed", "stop"),
            ("completed", "tool_calls"),
            ("completed", "refusal"),
            ("incomplete:max_output_tokens", "length"),
        ];
        for (raw, finish) in finishes.keys() {
            assert!(table.contains(&(raw.as_str(), finish.unwrap())), "{raw} came out as {finish:?}");
        }
        eprintln!(
            "{streams} streams: {equal} equal, {} exceptions, {ambiguous} ambiguous; {events_in_all} events; {hosted} hosted calls; ignored {ignored:?}; unknown lines {unknown}; finishes {finishes:?}",
            met.len()
        );
    }
}

/// The final object alone, as a server that does not stream would send it, gives the same answer where it is complete.
#[test]
fn whole_responses_come_out_like_their_streams() {
    let (mut same, mut short) = (0, 0);
    let found = each(|name, dialect, exchange| {
        if !exchange.streaming || exchange.response.status != 200 || EXCEPTIONS.contains(name) {
            return;
        }
        let body = exchange.response.body.as_str().unwrap();
        let mut lines = body.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data:")?).ok());
        let end = lines.rfind(|line| line["response"]["status"] == "completed");
        let Some(response) = end.map(|line| line["response"].clone()) else { return };
        if response["output"] == json!([]) {
            short += 1;
            return;
        }
        let streamed = sum(name, &decode(dialect, body.as_bytes(), || body.len()).0);
        let document = response.to_string();
        let (events, error, tally) = decode(dialect, document.as_bytes(), || 1_000);
        assert_eq!((error, tally.unknown), (None, 0), "{name}");
        let whole = sum(name, &events);
        let calls = |sum: &Sum| -> Vec<Value> {
            sum.calls.iter().map(|call| json!([call.name, call.hosted, call.input])).collect()
        };
        assert_eq!(
            (&whole.text, &whole.reasoning, &whole.refusal, calls(&whole), whole.notes, whole.finish, whole.usage),
            (
                &streamed.text,
                &streamed.reasoning,
                &streamed.refusal,
                calls(&streamed),
                streamed.notes,
                streamed.finish,
                streamed.usage
            ),
            "{name}"
        );
        same += 1;
    });
    if found {
        eprintln!("{same} whole responses like their streams; {short} without output");
    }
}

/// Lines that are lost, doubled or out of order: whatever comes, events keep their order, and are the same at every split.
///
/// Of a stream that lost one line, and was neither refused nor left without its end, nothing of the answer is missing.
#[test]
fn disordered_streams() {
    let said = |name: &str, events: &[ProviderEvent]| {
        let sum = sum(name, events);
        let calls = sum.calls.into_iter().filter(|call| !call.hosted);
        let calls: Vec<Value> = calls.map(|call| json!([call.id, call.name, call.input])).collect();
        (sum.finishes, sum.text, sum.refusal, sum.reasoning, calls)
    };
    let (mut bodies, mut refused, mut without_end) = (0, 0, 0);
    let found = each(|name, dialect, exchange| {
        if !exchange.streaming || exchange.response.status != 200 || EXCEPTIONS.contains(name) {
            return;
        }
        let body = exchange.response.body.as_str().unwrap().replace("\r\n", "\n");
        let whole = said(name, &decode(dialect, body.as_bytes(), || usize::MAX).0);
        let lines: Vec<&str> = body.split_inclusive("\n\n").collect();
        // Pieces of text are many, and say little about order.
        let telling: Vec<usize> = (0..lines.len()).filter(|at| !lines[*at].contains(".delta")).collect();
        let mut dice = Dice(body.len() as u64);
        for kind in 0..60 {
            let mut lines = lines.clone();
            let (at, other) = (telling[dice.below(telling.len())], dice.below(lines.len()));
            match kind % 3 {
                0 => {
                    lines.remove(at);
                }
                1 => lines.insert(other, lines[at]),
                _ => lines.swap(at, other),
            }
            let body = lines.concat();
            let (events, error, tally) = decode(dialect, body.as_bytes(), || usize::MAX);
            let again = decode(dialect, body.as_bytes(), || 1 + dice.below(90));
            assert!(again == (events.clone(), error.clone(), tally), "{name}: {kind}");
            bodies += 1;
            if error.is_some() {
                refused += 1;
                continue;
            }
            let ours = said(name, &events);
            match ours.0 {
                0 => without_end += 1,
                _ if kind % 3 == 0 => assert_eq!(ours, whole, "{name}: {kind}: the line {at} is lost"),
                _ => {}
            }
        }
    });
    if found {
        eprintln!("{bodies} disordered streams: {refused} refused, {without_end} without their end");
    }
}

#[test]
fn failures_have_the_right_class() {
    let mut table: BTreeMap<(String, u16, String), Vec<ErrorClass>> = BTreeMap::new();
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
        assert_eq!(error.message, message, "{name}");
        assert_eq!(error.status, Some(status), "{name}");
        assert!(error.retry.is_empty(), "{name}");
        table.entry((dialect.name.clone(), status, error.message)).or_default().push(error.class);
    });
    if !found {
        return;
    }
    // What each must be, from reading them one by one.
    let right: [(&str, u16, &str, ErrorClass); 7] = [
        ("chatgpt", 401, "Could not parse your authentication token", ErrorClass::Auth),
        ("openai", 400, "Invalid file data: ", ErrorClass::InvalidRequest),
        ("openai", 400, "The file type you uploaded is not supported", ErrorClass::Unsupported),
        ("openai", 400, "The requested model 'gpt-4o-mini-nonexistent", ErrorClass::InvalidRequest),
        ("openai", 400, "Your input exceeds the context window", ErrorClass::ContextOverflow),
        ("openai", 401, "Incorrect API key provided", ErrorClass::Auth),
        ("xai", 400, "Incorrect API key provided", ErrorClass::Auth),
    ];
    let mut count = 0;
    for ((provider, status, message), classes) in &table {
        let class = right.iter().find(|row| row.0 == provider && row.1 == *status && message.starts_with(row.2));
        let class = class.unwrap_or_else(|| panic!("no row for {provider} {status} {message}")).3;
        assert!(classes.iter().all(|found| *found == class), "{provider} {status} {message}: {classes:?}");
        count += classes.len();
    }
    eprintln!("{count} failures, {} different ones", table.len());
}

/// Fields of lines that the decoder reads.
const DECODED: [&str; 15] = [
    "type",
    "output_index",
    "content_index",
    "summary_index",
    "item_id",
    "delta",
    "text",
    "refusal",
    "arguments",
    "part",
    "annotation",
    "item",
    "response",
    "error",
    "detail",
];

#[test]
fn every_field_of_the_recordings_is_decoded_or_named_as_ignored() {
    let mut unknown = BTreeSet::new();
    each(|name, _, exchange| {
        let body = exchange.response.body.as_str().unwrap_or_default();
        let lines = body.lines().filter_map(|line| line.strip_prefix("data:")).filter(|_| exchange.streaming);
        for line in lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            for (field, _) in line.as_object().into_iter().flatten() {
                let known = DECODED.contains(&field.as_str()) || IGNORED_FIELDS.contains(&field.as_str());
                if !known {
                    unknown.insert(format!("{field} of {} in {name}", line["type"]));
                }
            }
        }
    });
    assert_eq!(unknown, BTreeSet::new());
}

//! What is fuzzed: each decoder, and what must hold whatever it is given.
//!
//! The fuzzer and an ordinary test run the same functions over the same first inputs.
//!
//! # What must hold
//!
//! - Nothing panics.
//! - The same bytes give the same events and the same error, whole and cut as the input says.
//! - Memory is bounded by the input: at most [`LARGEST_FACTOR`] times its length and [`LARGEST_BASE`] at a time.
//! - Events are well-formed: blocks are opened once, in order, before anything is said in them; arguments are closed before a call, a call comes once; one finish and one error at most, and nothing of the answer behind a finish.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::json;
use settled_provider_anthropic::{Dialect as MessagesDialect, MessagesDecoder};
use settled_provider_api::{
    Annotation, ErrorClass, Finish, FinishReason, ProviderError, ProviderEvent, ResponseInfo, Usage,
};
use settled_provider_gemini::{Dialect as GeminiDialect, GeminiDecoder};
use settled_provider_openai::{chat, responses};
use settled_provider_wire::{
    Classifier, Decoder, ErrorBody, FrameError, JsonArray, JsonLines, SseDecoder, SseItem, advice, failed_response,
    wait_in_text,
};
use settled_testkit::server::Wire;
use settled_testkit::{Script, script};

/// The most memory at a time, in lengths of the input.
pub(crate) const LARGEST_FACTOR: u64 = 400;

/// The most memory at a time beside that, in bytes: buffers, and what is made once.
pub(crate) const LARGEST_BASE: u64 = 1 << 20;

/// The limit of the framings, small enough to be reached.
const LIMIT: usize = 512;

/// What is fuzzed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The framing of server-sent events.
    Sse,
    /// Newline-delimited JSON.
    Lines,
    /// JSON arrays that come piece by piece.
    Array,
    /// Chat Completions.
    Chat,
    /// The Responses API.
    Responses,
    /// The Messages API.
    Messages,
    /// Gemini, in both its framings.
    Gemini,
    /// Reading and classifying failures, and when to try again.
    Errors,
}

impl Target {
    /// Every target.
    pub(crate) const ALL: [Self; 8] =
        [Self::Sse, Self::Lines, Self::Array, Self::Chat, Self::Responses, Self::Messages, Self::Gemini, Self::Errors];

    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sse => "sse",
            Self::Lines => "lines",
            Self::Array => "array",
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Gemini => "gemini",
            Self::Errors => "errors",
        }
    }

    /// Runs one input.
    ///
    /// # Panics
    ///
    /// Something does not hold; that is how the fuzzer learns of it.
    pub(crate) fn run(self, data: &[u8]) {
        let measured = allocation_counter::measure(|| self.decode(data));
        let most = LARGEST_BASE + LARGEST_FACTOR * data.len() as u64;
        assert!(measured.bytes_max <= most, "{} bytes for an input of {}", measured.bytes_max, data.len());
    }

    fn decode(self, data: &[u8]) {
        let Input { choice, cuts, body } = Input::read(data);
        match self {
            Self::Sse => same(body, cuts, sse),
            Self::Lines => same(body, cuts, lines),
            Self::Array => same(body, cuts, array),
            Self::Chat => {
                let dialect = pick(chat::Dialect::all(), choice);
                events(body, cuts, &|| Box::new(chat::ChatDecoder::new(Arc::clone(dialect))));
            }
            Self::Responses => {
                let dialect = pick(responses::Dialect::all(), choice);
                events(body, cuts, &|| Box::new(responses::ResponsesDecoder::new(Arc::clone(dialect))));
            }
            Self::Messages => {
                let dialect = pick(MessagesDialect::all(), choice);
                events(body, cuts, &|| Box::new(MessagesDecoder::new(Arc::clone(dialect))));
            }
            Self::Gemini => {
                let dialect = pick(GeminiDialect::all(), choice);
                events(body, cuts, &|| Box::new(GeminiDecoder::new(Arc::clone(dialect))));
            }
            Self::Errors => errors(choice, body),
        }
    }
}

/// An input: a byte that chooses, a byte with the number of cuts, the sizes of the pieces less one, and the body.
struct Input<'d> {
    choice: u8,
    cuts: &'d [u8],
    body: &'d [u8],
}

impl<'d> Input<'d> {
    fn read(data: &'d [u8]) -> Self {
        let [choice, count, rest @ ..] = data else {
            return Self { choice: 0, cuts: &[], body: data };
        };
        let (cuts, body) = rest.split_at(usize::from(count % 8).min(rest.len()));
        Self { choice: *choice, cuts, body }
    }

    fn write(choice: u8, cuts: &[u8], body: &[u8]) -> Vec<u8> {
        [&[choice, u8::try_from(cuts.len()).unwrap_or(0)], cuts, body].concat()
    }
}

/// One of several, by a number.
fn pick<T>(list: &[T], choice: u8) -> &T {
    &list[usize::from(choice) % list.len()]
}

/// The pieces of a body, of the sizes given, over and over; the whole where there are none.
fn pieces<'b>(mut body: &'b [u8], cuts: &'b [u8]) -> impl Iterator<Item = &'b [u8]> {
    let mut sizes = cuts.iter().cycle();
    std::iter::from_fn(move || {
        let size = sizes.next().map_or(usize::MAX, |size| usize::from(*size) + 1);
        let (piece, rest) = body.split_at(size.min(body.len()));
        body = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The same frames, whole, as cut, and byte by byte.
fn same<T: PartialEq + std::fmt::Debug>(body: &[u8], cuts: &[u8], read: fn(&[u8], &[u8]) -> T) {
    let whole = read(body, &[]);
    assert_eq!(read(body, cuts), whole, "cut at {cuts:?}");
    assert_eq!(read(body, &[0]), whole, "cut at every byte");
}

/// What a framing gave: its texts with their places, and the error at the end.
type Frames = (Vec<(String, u64)>, Option<FrameError>);

fn sse(body: &[u8], cuts: &[u8]) -> Frames {
    let mut decoder = SseDecoder::with_limit(LIMIT);
    let mut frames = Vec::new();
    for piece in pieces(body, cuts) {
        decoder.push(piece);
        while let Some(item) = decoder.pull() {
            match item {
                Ok(SseItem::Event(event)) => {
                    assert!(!event.cut, "an event before the end is cut");
                    let text = format!("{:?} {:?} {:?} {:?}", event.event, event.data, event.id, event.retry);
                    frames.push((text, event.offset));
                }
                Ok(SseItem::Comment(text)) => frames.push((format!(": {text}"), 0)),
                Err(error) => {
                    assert!(decoder.pull().is_none() && decoder.finish().is_none(), "it goes on behind an error");
                    return (frames, Some(error));
                }
            }
        }
    }
    match decoder.finish() {
        None => (frames, None),
        Some(Ok(event)) => {
            assert!(event.cut, "the last event is not cut");
            frames.push((format!("{:?} {:?} {:?} {:?}", event.event, event.data, event.id, event.retry), event.offset));
            (frames, None)
        }
        Some(Err(error)) => (frames, Some(error)),
    }
}

macro_rules! framing {
    ($name:ident, $decoder:ty) => {
        fn $name(body: &[u8], cuts: &[u8]) -> Frames {
            let mut decoder = <$decoder>::with_limit(LIMIT);
            let mut frames = Vec::new();
            for piece in pieces(body, cuts) {
                decoder.push(piece);
                while let Some(frame) = decoder.pull() {
                    match frame {
                        Ok(frame) => {
                            assert!(frame.text.len() <= LIMIT, "a frame above the limit");
                            frames.push((frame.text.to_owned(), frame.offset));
                        }
                        Err(error) => return (frames, Some(error)),
                    }
                }
            }
            match decoder.finish() {
                None => (frames, None),
                Some(Ok(frame)) => {
                    frames.push((frame.text.to_owned(), frame.offset));
                    (frames, None)
                }
                Some(Err(error)) => (frames, Some(error)),
            }
        }
    };
}

framing!(lines, JsonLines);
framing!(array, JsonArray);

/// What a decoder makes of a body.
type Decoded = (Vec<ProviderEvent>, Option<ProviderError>);

fn events(body: &[u8], cuts: &[u8], make: &dyn Fn() -> Box<dyn Decoder>) {
    let whole = decoded(body, &[], make());
    check(&whole.0);
    assert_eq!(decoded(body, cuts, make()), whole, "cut at {cuts:?}");
    assert_eq!(decoded(body, &[0], make()), whole, "cut at every byte");
}

fn decoded(body: &[u8], cuts: &[u8], mut decoder: Box<dyn Decoder>) -> Decoded {
    let mut events = VecDeque::new();
    let pushed = pieces(body, cuts).try_for_each(|piece| decoder.push(piece, &mut events));
    let ended = pushed.and_then(|()| decoder.finish(&mut events));
    (events.into(), ended.err())
}

/// Where a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    Text,
    Reasoning,
    Input,
    /// The arguments of a call are closed.
    Closed,
    Over,
}

/// Events are as the contract of a provider's stream has them.
fn check(events: &[ProviderEvent]) {
    let mut blocks: Vec<Stands> = Vec::new();
    let (mut finished, mut failed) = (false, false);
    for (at, event) in events.iter().enumerate() {
        let mut step = |index: u32, from: Option<Stands>, to: Stands| {
            let index = usize::try_from(index).expect("a block's number is small");
            let is = blocks.get(index).copied();
            assert!(is == from && index <= blocks.len(), "event {at} of {events:?}: the block is {is:?}");
            match blocks.get_mut(index) {
                Some(block) => *block = to,
                None => blocks.push(to),
            }
        };
        match event {
            ProviderEvent::Alive | ProviderEvent::StepStart | ProviderEvent::ResponseInfo(_) => continue,
            ProviderEvent::TextStart(start) => step(start.index, None, Stands::Text),
            ProviderEvent::TextDelta(delta) => step(delta.index, Some(Stands::Text), Stands::Text),
            ProviderEvent::TextEnd(end) => step(end.index, Some(Stands::Text), Stands::Over),
            ProviderEvent::ReasoningStart(start) => step(start.index, None, Stands::Reasoning),
            ProviderEvent::ReasoningDelta(delta) => step(delta.index, Some(Stands::Reasoning), Stands::Reasoning),
            ProviderEvent::ReasoningEnd(end) => step(end.index, Some(Stands::Reasoning), Stands::Over),
            ProviderEvent::ToolInputStart(start) => step(start.index, None, Stands::Input),
            ProviderEvent::ToolInputDelta(delta) => step(delta.index, Some(Stands::Input), Stands::Input),
            ProviderEvent::ToolInputEnd(end) => step(end.index, Some(Stands::Input), Stands::Closed),
            ProviderEvent::ToolInputMalformed(call) => step(call.index, Some(Stands::Input), Stands::Over),
            ProviderEvent::ToolCall(call) => {
                step(call.index, Some(Stands::Closed), Stands::Over);
                assert!(call.input.is_object(), "the input of a call is {}", call.input);
                assert!(!call.name.is_empty(), "a call has no name");
            }
            ProviderEvent::Media(media) => step(media.index, None, Stands::Over),
            ProviderEvent::HostedResult(_) | ProviderEvent::HostedError(_) | ProviderEvent::Annotation(_) => {}
            ProviderEvent::Finish(_) => {
                assert!(!finished, "two finishes: {events:?}");
                finished = true;
                continue;
            }
            // It may come behind a finish: then the finish was not true.
            ProviderEvent::Error(error) => {
                assert!(!failed, "two errors: {events:?}");
                assert!(!error.message.is_empty(), "an error says nothing");
                failed = true;
                continue;
            }
        }
        assert!(!finished, "event {at} is behind the finish: {events:?}");
    }
}

/// A failure: the first line is headers, `name: value` apart by `|`; the rest is the body.
fn errors(choice: u8, data: &[u8]) {
    let (headers, body) = match data.iter().position(|byte| *byte == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (&[][..], data),
    };
    let headers = String::from_utf8_lossy(headers).into_owned();
    let pairs: Vec<(&str, &str)> = headers.split('|').filter_map(|pair| pair.split_once(':')).collect();
    let header = |name: &str| pairs.iter().find(|(known, _)| known.trim() == name).map(|(_, value)| value.trim());
    let status = 400 + u16::from(choice % 200);
    let now = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    let read = ErrorBody::read(body);
    assert!(read.message.chars().count() <= 1_000, "a long message");
    assert!(!read.message.chars().any(char::is_control), "a control character: {:?}", read.message);
    for provider in ["openai", "anthropic", "gemini", "compatible"] {
        let found = Classifier::standard().classify(provider, Some(status), &read);
        assert_eq!(found.rule.is_none(), found.class == ErrorClass::Unknown, "{found:?}");
        let error = failed_response(provider, status, header, body, now);
        assert!(!error.message.trim().is_empty(), "an error says nothing");
        assert_eq!(error.status, Some(status));
        let longest = std::time::Duration::from_secs(366 * 24 * 3_600);
        assert!(error.retry.after().is_none_or(|after| after <= longest), "{:?}", error.retry);
    }
    let hint = advice(status, header, now);
    assert!(hint.after_ms.is_none_or(|ms| ms <= 366 * 24 * 3_600_000), "{hint:?}");
    let _ = wait_in_text(&String::from_utf8_lossy(body));
    if let Ok(value) = serde_json::from_slice(body) {
        let inside = ErrorBody::of(&value);
        let _ = Classifier::standard().error("openai", None, &inside);
    }
}

/// The first inputs of a target: what the scripted server says, and what no server should.
pub(crate) fn seeds(target: Target) -> Vec<Vec<u8>> {
    let on = |wires: &[Wire]| {
        let mut bodies = Vec::new();
        for wire in wires {
            for script in scripts() {
                bodies.extend(wire.body(&script, 1).and_then(Result::ok));
            }
        }
        bodies
    };
    let bodies: Vec<Vec<u8>> = match target {
        Target::Sse => {
            let odd = [
                "\u{feff}data: a\r\ndata:b\rid: 1\nretry: 20\n\n: comment\nevent\n\nevent: x\ndata\n\n",
                "id: \0\ndata: \u{e9}\n\r\ndata: cut",
            ];
            [on(&[Wire::Chat, Wire::Messages]), odd.map(|text| text.as_bytes().to_vec()).to_vec()].concat()
        }
        Target::Lines => {
            let lines = "{\"a\":1}\r\n\n  [1]\n\"\u{e9}\"\n{\"cut\":";
            vec![lines.as_bytes().to_vec(), lines.repeat(9).into_bytes()]
        }
        Target::Array => {
            let odd = "\u{feff}[ {\"a\":[\"}\\\"\"]} ,\r\n12,true ,\"x\",[[]]]".as_bytes().to_vec();
            [on(&[Wire::GeminiArray]), vec![odd, b"{\"error\":{\"code\":400}}".to_vec(), b"-1.5e3 ".to_vec()]].concat()
        }
        Target::Chat => [on(&[Wire::Chat]), documents(&[
            r#"{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"h"}]},{"type":"text","text":"x"}],"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}"#,
            "data: {\"choices\":[{\"delta\":{\"reasoning_details\":[{\"type\":\"reasoning.text\",\"index\":0,\"text\":\"h\",\"signature\":\"s\"}],\"function_call\":{\"name\":\"f\",\"arguments\":\"null\"}},\"finish_reason\":\"stop\"}],\"x_groq\":{\"usage\":{\"prompt_tokens\":1.5}},\"citations\":[\"u\"]}\n\ndata: [DONE]\n\n",
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"id\":\"b\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}},{\"function\":{\"arguments\":\"\"}}],\"images\":[{\"image_url\":{\"url\":\"data:image/png;base64,AA\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
        ])].concat(),
        Target::Responses => [on(&[Wire::Responses]), documents(&[
            r#"{"id":"r","model":"m","status":"completed","output":[{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"x"},{"type":"message","id":"m","content":[{"type":"output_text","text":"h","annotations":[{"type":"url_citation"}]},{"type":"refusal","refusal":"no"}]},{"type":"function_call","id":"f","call_id":"a","name":"f","arguments":"{}"},{"type":"web_search_call","id":"w","status":"completed","action":{"type":"search","query":"q"}},{"type":"shell_call","id":"s","call_id":"sc"},{"type":"shell_call_output","call_id":"sc","output":[]}],"usage":{"input_tokens":1,"output_tokens":2}}"#,
            "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"image_generation_call\",\"id\":\"i\",\"result\":\"AA\",\"output_format\":\"png\"}}\n\ndata: {\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\",\"incomplete_details\":{\"reason\":\"content_filter\"},\"output\":[]}}\n\n",
        ])].concat(),
        Target::Messages => [on(&[Wire::Messages]), documents(&[
            r#"{"id":"m","type":"message","model":"c","content":[{"type":"thinking","thinking":"h","signature":"s"},{"type":"text","text":"x","citations":[{"type":"char_location"}]},{"type":"tool_use","id":"a","name":"f","input":{"x":1}},{"type":"server_tool_use","id":"s","name":"web_search","input":{}},{"type":"web_search_tool_result","tool_use_id":"s","content":[{"type":"web_search_result","title":"t","url":"u"}]}],"stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2}}"#,
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"c\"}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"redacted_thinking\",\"data\":\"x\"}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"compaction\",\"content\":\"\"}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"compaction_delta\",\"content\":\"x\"}}\n\nevent: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"x\",\"container\":{\"id\":\"c\"}},\"context_management\":{}}\n\n",
        ])].concat(),
        Target::Gemini => [on(&[Wire::Gemini, Wire::GeminiArray]), documents(&[
            "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"partialArgs\":[{\"jsonPath\":\"$.a.b[0]\",\"stringValue\":\"x\",\"willContinue\":true}],\"willContinue\":true}}]}}]}\n\ndata: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"partialArgs\":[{\"jsonPath\":\"$.a.b[0]\",\"stringValue\":\"y\"},{\"jsonPath\":\"$['c']\",\"numberValue\":1},{\"jsonPath\":\"$.d\",\"boolValue\":true}]}}]},\"finishReason\":\"STOP\",\"groundingMetadata\":{\"groundingChunks\":[{\"web\":{}}],\"searchEntryPoint\":{}}}]}\n\n",
            "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"},\"usageMetadata\":{\"promptTokenCount\":1}}\n\n{\"error\":{\"code\":500,\"status\":\"INTERNAL\"}}",
            r#"[{"candidates":[{"content":{"parts":[{"executableCode":{"language":"PYTHON","code":"1"}},{"codeExecutionResult":{"outcome":"OUTCOME_FAILED","output":"e"}},{"inlineData":{"mimeType":"image/png","data":"AA"}},{"text":"h","thought":true,"thoughtSignature":"s"}]},"finishReason":"MAX_TOKENS","finishMessage":"m","citationMetadata":{"citationSources":[{}]},"urlContextMetadata":{"urlMetadata":[{}]}}]}]"#,
        ])].concat(),
        Target::Errors => documents(&[
            "retry-after: 20\n{\"error\":{\"message\":\"This model's maximum context length is 8192 tokens.\",\"code\":\"context_length_exceeded\"}}",
            "date: Sun, 06 Nov 1994 08:49:37 GMT|retry-after: Sunday, 06-Nov-94 08:49:57 GMT\n{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}",
            "x-ratelimit-remaining-tokens: 0|x-ratelimit-reset-tokens: 6m0.5s|x-should-retry: false\n[{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"message\":\"Please retry in 48.3s.\",\"details\":[{\"retryDelay\":\"48s\"}]}}]",
            "retry-after-ms: 1500\n<html><head><title>502 &amp; more</title></head></html>",
            "anthropic-ratelimit-requests-reset: 2024-02-29T23:59:60+01:30\ndata: {\"error\":{\"metadata\":{\"raw\":\"{\\\"detail\\\":\\\"limit 10,000, requested 12,000\\\"}\"}}}\n\n",
            "\nplain text, please wait 12 seconds",
        ]),
    };
    let cut: [(u8, &[u8]); 3] = [(0, &[]), (1, &[0, 6, 40]), (4, &[200, 2])];
    bodies.iter().zip(cut.into_iter().cycle()).map(|(body, (choice, cuts))| Input::write(choice, cuts, body)).collect()
}

fn documents(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Answers of all kinds; a wire that has no place for one leaves it out.
fn scripts() -> Vec<Script> {
    let usage = Usage::new(100, 20).reasoning(5).cache_read(40);
    let info = || ProviderEvent::ResponseInfo(ResponseInfo::new(Some("id".into()), Some("model".into())));
    let note = || ProviderEvent::Annotation(Annotation::new(Some(0), "citation", json!({"url": "u"})));
    let overloaded = || ProviderError::new(ErrorClass::Overloaded, "");
    vec![
        script().step(|s| s.event(info()).text("h\u{e9}\n\"llo\"").alive().usage(usage).finish()),
        script().step(|s| s.reasoning("Hm.", json!("sealed")).text("Yes.").usage(usage).finish()),
        script().step(|s| {
            s.text("Both.")
                .call_as("a", "charge", json!({"cents": 500, "why": ["x", null]}))
                .call_as("b", "ship", json!({}))
                .finish()
        }),
        script().step(|s| s.input_start("a", "charge").input_delta("a", "{\"cents\":").finish_with(length())),
        script().step(|s| s.malformed("a", "charge", "{cents}").finish_with(Finish::new(FinishReason::ToolCalls))),
        script().step(|s| {
            s.hosted("h", "search", json!({"query": "x"})).hosted_result("h", ["found"]).text("Found.").finish()
        }),
        script().step(|s| {
            s.hosted("h", "code_execution", json!({"code": "1"})).hosted_error("h", "no").text("Sorry.").finish()
        }),
        script().step(|s| s.text_start("t").text_delta("t", "So").event(note()).text_end("t", None).finish()),
        script().step(|s| s.text("No.").finish_with(Finish::new(FinishReason::Refusal))),
        script().step(|s| s.text("So").error(overloaded())),
        script().step(|s| s.text("So")),
        script().step(|s| s.finish_with(Finish::new(FinishReason::ContentFilter))),
    ]
}

fn length() -> Finish {
    Finish::new(FinishReason::Length)
}

//! What a stream's events become: blocks, calls, and what is not heard.
//!
//! The numbers in the tests' docs are those of the behaviour catalogue.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use settled_ledger::{Admission, DeltaKind, StreamExit, ToolOutcome, ToolUse};
use settled_provider_api::{
    Annotation, BlockDelta, BlockEnd, BlockStart, ErrorClass, FinishReason, HostedError, HostedResult, MediaBlock,
    ProviderError, ProviderEvent, ResponseInfo, ToolCallEvent, ToolInputMalformed, Usage,
};
use settled_tools_api::{Content, Media, ToolOutput};

use crate::kit::{Bench, call, lines, success};

const OVER: &str = r#"step.streamed {"exit":"completed","finish":"stop"}"#;

fn stop() -> ProviderEvent {
    ProviderEvent::finish(FinishReason::Stop, None)
}

/// A step that gets these events and then ends by itself has exactly these lines behind its start, up to `step.streamed`.
#[track_caller]
fn check(events: &[ProviderEvent], expected: &[&str]) {
    let mut bench = Bench::new();
    bench.stream(events);
    assert_eq!(lines(&bench.log[2..]), expected);
    bench.settle();
    assert_eq!(bench.breaches(), []);
}

/// 1, 2: blocks one after another.
#[test]
fn text_in_blocks() {
    let text = |index: u32, text: &str| {
        [ProviderEvent::text_start(index), ProviderEvent::text_delta(index, text), ProviderEvent::text_end(index)]
    };
    check(
        &[&[ProviderEvent::StepStart], &text(0, "First")[..], &text(1, "Second"), &[stop()]].concat(),
        &[
            r#"text.started {"ordinal":0}"#,
            r#"text.ended {"ordinal":0,"text":"First"}"#,
            r#"text.started {"ordinal":1}"#,
            r#"text.ended {"ordinal":1,"text":"Second"}"#,
            OVER,
        ],
    );
}

/// 3, 10: several open blocks at once, of one kind and of two.
#[test]
fn interleaved_blocks() {
    let events = [
        ProviderEvent::text_start(0),
        ProviderEvent::reasoning_start(1),
        ProviderEvent::text_start(2),
        ProviderEvent::text_delta(2, "b"),
        ProviderEvent::text_delta(0, "a"),
        ProviderEvent::reasoning_delta(1, "r"),
        ProviderEvent::text_end(2),
        ProviderEvent::text_end(0),
        ProviderEvent::reasoning_end(1, None),
        stop(),
    ];
    check(
        &events,
        &[
            r#"text.started {"ordinal":0}"#,
            r#"reasoning.started {"ordinal":0}"#,
            r#"text.started {"ordinal":1}"#,
            r#"text.ended {"ordinal":1,"text":"b"}"#,
            r#"text.ended {"ordinal":0,"text":"a"}"#,
            r#"reasoning.ended {"ordinal":0,"text":"r"}"#,
            OVER,
        ],
    );
}

/// 7, 8, 21, 23: a text at the end wins; state that comes in pieces is merged, the later member wins.
#[test]
fn authoritative_text_and_merged_state() {
    let state = |state: Value| Some(state);
    let events = [
        ProviderEvent::TextStart(BlockStart::new(0, state(json!({"a": 1, "x": 1})))),
        ProviderEvent::TextDelta(BlockDelta::new(0, "Hel", state(json!({"b": 2})))),
        ProviderEvent::TextDelta(BlockDelta::new(0, "", None)),
        ProviderEvent::TextEnd(BlockEnd::new(0, Some("Hello!".into()), state(json!({"c": 3, "x": 4})))),
        ProviderEvent::ReasoningStart(BlockStart::new(1, None)),
        ProviderEvent::ReasoningEnd(BlockEnd::new(1, None, state(json!("signed")))),
        stop(),
    ];
    check(
        &events,
        &[
            r#"text.started {"ordinal":0}"#,
            r#"text.ended {"ordinal":0,"state":{"a":1,"b":2,"c":3,"x":4},"text":"Hello!"}"#,
            r#"reasoning.started {"ordinal":0}"#,
            r#"reasoning.ended {"ordinal":0,"state":"signed","text":""}"#,
            OVER,
        ],
    );
}

/// 8: state of reasoning that comes at the start, with an empty piece and at the end is merged; the later member wins.
#[test]
fn state_of_reasoning_is_merged() {
    let state = |state: Value| Some(state);
    let events = [
        ProviderEvent::ReasoningStart(BlockStart::new(0, state(json!({"a": 1, "x": 1})))),
        ProviderEvent::ReasoningDelta(BlockDelta::new(0, "Hm", None)),
        ProviderEvent::ReasoningDelta(BlockDelta::new(0, "", state(json!({"b": 2, "x": 2})))),
        ProviderEvent::ReasoningEnd(BlockEnd::new(0, None, state(json!({"c": 3, "x": 3})))),
        stop(),
    ];
    check(
        &events,
        &[
            r#"reasoning.started {"ordinal":0}"#,
            r#"reasoning.ended {"ordinal":0,"state":{"a":1,"b":2,"c":3,"x":3},"text":"Hm"}"#,
            OVER,
        ],
    );
}

/// 55: a hosted call whose adapter says that its arguments are no JSON stays the provider's own; its result is missing.
#[test]
fn a_malformed_hosted_call_stays_hosted() {
    let malformed = ToolInputMalformed::new(0, "h", "search", true, "{x");
    let mut bench = Bench::new();
    assert_eq!(bench.say(&ProviderEvent::ToolInputMalformed(malformed)), None);
    bench.stream(&[stop()]);
    bench.settle();
    let said: Vec<_> = lines(&bench.log[2..]).into_iter().filter(|line| !line.starts_with("step.")).collect();
    let missing = r#""The provider did not return a result for this call.""#;
    assert_eq!(
        said,
        [
            r#"tool.input.started {"call":0,"hosted":true,"id":"h","name":"search"}"#.to_owned(),
            r#"tool.input.ended {"call":0,"text":"{x"}"#.to_owned(),
            format!(r#"tool.failed {{"call":0,"cause":"result_missing","content":[{{"text":{missing}}}]}}"#),
        ]
    );
    assert_eq!(bench.breaches(), []);
}

/// 146, 147: what counts as output, for every kind of event: the first sign of a block or a call, and nothing less.
#[test]
fn what_counts_as_output() {
    let error = ProviderError::new(ErrorClass::Overloaded, "no");
    let hosted = || ProviderEvent::ToolCall(ToolCallEvent::new(0, "h", "search", json!({})).hosted());
    let cases: Vec<(ProviderEvent, bool)> = vec![
        (ProviderEvent::StepStart, false),
        (ProviderEvent::ResponseInfo(ResponseInfo::new(Some("r".into()), None)), false),
        (ProviderEvent::text_start(0), true),
        (ProviderEvent::text_delta(0, "x"), false),
        (ProviderEvent::text_end(0), false),
        (ProviderEvent::reasoning_start(0), true),
        (ProviderEvent::reasoning_delta(0, "x"), false),
        (ProviderEvent::reasoning_end(0, None), false),
        (ProviderEvent::tool_input_start(0, "a", "act"), true),
        (ProviderEvent::tool_input_delta(0, "{"), false),
        (ProviderEvent::tool_input_end(0), false),
        (ProviderEvent::ToolInputMalformed(ToolInputMalformed::new(0, "a", "act", false, "{x")), true),
        (ProviderEvent::tool_call(0, "a", "act", json!({})), true),
        (hosted(), true),
        (ProviderEvent::HostedResult(HostedResult::new("h", vec![Content::text("found")], None)), false),
        (ProviderEvent::HostedError(HostedError::new("h", "no", None)), false),
        (ProviderEvent::Media(MediaBlock::new(0, Media::url("image/png", "https://a.test/b.png"), None)), true),
        (ProviderEvent::Annotation(Annotation::new(None, "source", json!("u"))), false),
        (ProviderEvent::Alive, false),
        (stop(), false),
        (ProviderEvent::Error(error), false),
    ];
    // A kind that is new must find its place here.
    let kind = |event: &ProviderEvent| match event {
        ProviderEvent::StepStart => 0,
        ProviderEvent::ResponseInfo(_) => 1,
        ProviderEvent::TextStart(_) => 2,
        ProviderEvent::TextDelta(_) => 3,
        ProviderEvent::TextEnd(_) => 4,
        ProviderEvent::ReasoningStart(_) => 5,
        ProviderEvent::ReasoningDelta(_) => 6,
        ProviderEvent::ReasoningEnd(_) => 7,
        ProviderEvent::ToolInputStart(_) => 8,
        ProviderEvent::ToolInputDelta(_) => 9,
        ProviderEvent::ToolInputEnd(_) => 10,
        ProviderEvent::ToolInputMalformed(_) => 11,
        ProviderEvent::ToolCall(_) => 12,
        ProviderEvent::HostedResult(_) => 13,
        ProviderEvent::HostedError(_) => 14,
        ProviderEvent::Media(_) => 15,
        ProviderEvent::Annotation(_) => 16,
        ProviderEvent::Alive => 17,
        ProviderEvent::Finish(_) => 18,
        ProviderEvent::Error(_) => 19,
    };
    let kinds: BTreeSet<u8> = cases.iter().map(|(event, _)| kind(event)).collect();
    assert_eq!(kinds.len(), 20, "every kind has a case");
    for (event, output) in cases {
        let mut bench = Bench::new();
        bench.say(&event);
        assert_eq!(bench.ledger.output_started(), output, "{event:?}");
        bench.exit(StreamExit::Failed(ProviderError::new(ErrorClass::Transport, "reset")));
        let may_retry = bench.ledger.may_retry().is_some();
        assert_eq!(may_retry, !output, "what is visible is not tried again: {event:?}");
    }
    // The result of a call that a paused step left open is visible too.
    let mut paused = Bench::new();
    paused.stream(&[hosted(), ProviderEvent::finish(FinishReason::Pause, None)]);
    paused.settle();
    let carried = paused.ledger.left_open();
    let mut next = Bench::behind(paused.log, crate::kit::started(2, 1), carried);
    assert!(!next.ledger.output_started());
    next.say(&ProviderEvent::HostedResult(HostedResult::new("h", vec![Content::text("found")], None)));
    assert!(next.ledger.output_started());
}

/// 15: what is open is closed by kind, text first, arguments last.
#[test]
fn flush_order() {
    let events = [
        ProviderEvent::tool_input_start(0, "a", "act"),
        ProviderEvent::tool_input_delta(0, "{\"x"),
        ProviderEvent::reasoning_start(1),
        ProviderEvent::text_start(3),
        ProviderEvent::text_start(2),
        ProviderEvent::text_delta(2, "two"),
        stop(),
    ];
    check(
        &events,
        &[
            r#"tool.input.started {"call":0,"id":"a","name":"act"}"#,
            r#"reasoning.started {"ordinal":0}"#,
            r#"text.started {"ordinal":0}"#,
            r#"text.started {"ordinal":1}"#,
            r#"text.ended {"ordinal":0,"text":""}"#,
            r#"text.ended {"ordinal":1,"text":"two"}"#,
            r#"reasoning.ended {"ordinal":0,"text":""}"#,
            r#"tool.input.ended {"call":0,"text":"{\"x"}"#,
            OVER,
        ],
    );
}

/// 26, 28, 37: a streamed call and one without streamed arguments; what is no record is wrapped.
#[test]
fn calls() {
    let events = [
        ProviderEvent::tool_input_start(0, "a", ""),
        ProviderEvent::tool_input_delta(0, "{\"x\":1}"),
        ProviderEvent::tool_input_end(0),
        ProviderEvent::ToolCall(ToolCallEvent::new(0, "a", "act", json!({"x": 1})).state(Some(json!("s")))),
        ProviderEvent::tool_call(1, "", "look", json!([1])),
        stop(),
    ];
    check(
        &events,
        &[
            r#"tool.input.started {"call":0,"id":"a","name":""}"#,
            r#"tool.input.ended {"call":0,"text":"{\"x\":1}"}"#,
            r#"tool.called {"call":0,"input":{"x":1},"name":"act","replay":"at_most_once","state":"s"}"#,
            r#"tool.input.started {"call":1,"id":"","name":"look"}"#,
            r#"tool.input.ended {"call":1,"text":""}"#,
            r#"tool.called {"call":1,"input":{"value":[1]},"name":"look","replay":"pure"}"#,
            OVER,
        ],
    );
}

/// 32, 48, 49, 53, 55: calls that cannot run fail by themselves.
#[test]
fn calls_that_cannot_run() {
    let cause = |bench: &Bench| -> Vec<_> {
        let wanted = |line: &String| line.starts_with("tool.failed");
        let short = |line: String| {
            let fields: Value = serde_json::from_str(line.split_once(' ').unwrap().1).unwrap();
            format!("{} {} {}", fields["call"], fields["cause"], fields["detail"]).replace('"', "")
        };
        lines(&bench.log).into_iter().filter(wanted).map(short).collect()
    };
    let check = |tool_use: ToolUse, events: &[ProviderEvent], expected: &[&str]| {
        let mut bench = Bench::with(tool_use);
        bench.stream(events);
        bench.settle();
        assert_eq!(cause(&bench), expected);
        assert_eq!(bench.breaches(), []);
    };
    let malformed = |hosted| ProviderEvent::ToolInputMalformed(ToolInputMalformed::new(0, "a", "act", hosted, "{x"));
    check(ToolUse::On, &[ProviderEvent::tool_call(0, "a", "sing", json!({})), stop()], &["0 unknown_tool null"]);
    check(ToolUse::On, &[malformed(false), stop()], &["0 invalid_arguments not_json"]);
    check(ToolUse::On, &[ProviderEvent::tool_input_start(0, "a", "act"), stop()], &["0 invalid_arguments cut_off"]);
    check(ToolUse::Off, &[ProviderEvent::tool_call(0, "a", "act", json!({})), stop()], &["0 tools_disabled null"]);
    check(ToolUse::Off, &[malformed(false), stop()], &["0 invalid_arguments not_json"]);
}

/// 59, 61, 62, 69: hosted calls, their results and errors, and what comes late.
#[test]
fn hosted_calls() {
    let called = |index, id: &str| ProviderEvent::ToolCall(ToolCallEvent::new(index, id, "search", json!({})).hosted());
    let result = |id: &str| ProviderEvent::HostedResult(HostedResult::new(id, vec![Content::text("found")], None));
    let error = |id: &str| ProviderEvent::HostedError(HostedError::new(id, "no index", Some(json!(1))));
    let mut bench = Bench::new();
    let media = Media::url("image/png", "https://a.test/b.png");
    bench.stream(&[
        called(0, "a"),
        error("a"),
        error("a"),
        called(1, "b"),
        result("b"),
        called(2, "c"),
        ProviderEvent::Media(MediaBlock::new(3, media, None)),
        ProviderEvent::Annotation(Annotation::new(None, "source", json!("u"))),
        stop(),
    ]);
    bench.settle();
    let expected = [
        r#"tool.failed {"call":0,"cause":"execution","content":[{"text":"no index"}],"state":1}"#,
        r#"tool.success {"call":1,"content":[{"text":"found"}]}"#,
        r#"media.added {"media":{"data":{"url":"https://a.test/b.png"},"mime":"image/png"}}"#,
        r#"annotation.added {"data":"u","kind":"source"}"#,
        OVER,
        r#"tool.failed {"call":2,"cause":"result_missing","content":[{"text":"The provider did not return a result for this call."}]}"#,
        r#"step.ended {"finish":"stop"}"#,
    ];
    let outcomes: Vec<_> = lines(&bench.log[2..])
        .into_iter()
        .filter(|line| !line.starts_with("tool.input") && !line.starts_with("tool.called"))
        .collect();
    assert_eq!(outcomes, expected);
    assert_eq!(bench.breaches(), []);
}

/// 47, 141: what comes behind an error in the stream, a held overflow or an interrupt is not heard.
#[test]
fn nothing_is_heard_behind_an_error() {
    let error = |class| ProviderEvent::Error(ProviderError::new(class, "no"));
    for class in [ErrorClass::Overloaded, ErrorClass::ContextOverflow, ErrorClass::PayloadTooLarge] {
        let mut bench = Bench::new();
        bench.say(&error(class));
        assert_eq!(bench.ledger.held_overflow().is_some(), class != ErrorClass::Overloaded);
        for event in [ProviderEvent::text_start(0), ProviderEvent::text_delta(7, "?"), stop()] {
            assert_eq!(bench.ledger.admit(&event), Admission::Nothing);
        }
        assert!(!bench.ledger.output_started());
        bench.exit(StreamExit::Completed);
        assert_eq!(bench.ledger.may_retry().unwrap().to_error().class.name(), class.name());
        bench.settle();
        assert_eq!(bench.breaches(), []);
    }
    // Behind visible output an overflow is an error like any other.
    let mut bench = Bench::new();
    bench.say(&ProviderEvent::text_start(0));
    bench.say(&error(ErrorClass::ContextOverflow));
    assert_eq!((bench.ledger.held_overflow(), bench.ledger.may_retry()), (None, None));
    bench.exit(StreamExit::Completed);
    assert_eq!(bench.ledger.cut_by().unwrap().to_error().class.name(), "context_overflow");
}

/// 4: pieces say where they belong, and put together they are the text.
#[test]
fn deltas_say_where_they_belong() {
    let mut bench = Bench::new();
    let events: [ProviderEvent; 3] = [
        ProviderEvent::text_start(0),
        ProviderEvent::reasoning_start(4),
        ProviderEvent::tool_input_start(2, "a", "act"),
    ];
    for event in &events {
        bench.say(event);
    }
    let mut delta = |event: ProviderEvent| match bench.ledger.admit(&event) {
        Admission::Delta(delta) => Some((delta.kind, delta.ordinal, delta.offset, delta.text.to_owned())),
        Admission::Nothing => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(delta(ProviderEvent::text_delta(0, "né")), Some((DeltaKind::Text, 0, 0, "né".into())));
    assert_eq!(delta(ProviderEvent::text_delta(0, "")), None);
    assert_eq!(delta(ProviderEvent::text_delta(0, "e")), Some((DeltaKind::Text, 0, 3, "e".into())));
    assert_eq!(delta(ProviderEvent::reasoning_delta(4, "r")), Some((DeltaKind::Reasoning, 0, 0, "r".into())));
    assert_eq!(delta(ProviderEvent::tool_input_delta(2, "{")), Some((DeltaKind::ToolInput, 0, 0, "{".into())));
    assert_eq!(delta(ProviderEvent::tool_input_delta(2, "}")), Some((DeltaKind::ToolInput, 0, 1, "}".into())));
}

/// 25: what was used and the provider's own words stand in the step's last events.
#[test]
fn usage_stands_at_the_end() {
    let mut bench = Bench::new();
    let mut usage = Usage::default();
    (usage.input, usage.output, usage.cache_read) = (Some(8), Some(3), Some(2));
    bench.stream(&[ProviderEvent::finish(FinishReason::Stop, usage)]);
    bench.settle();
    assert_eq!(
        lines(&bench.log[2..]),
        [
            r#"step.streamed {"exit":"completed","finish":"stop","usage":{"cache_read":2,"input":8,"output":3}}"#,
            r#"step.ended {"finish":"stop","usage":{"cache_read":2,"input":8,"output":3}}"#,
        ]
    );
}

/// 46 and the table of outcomes: what each outcome of a run is recorded as, for a tool that may act and for one that cannot.
#[test]
fn every_outcome_of_a_run() {
    let output = || ToolOutput::text("so").with_metadata(json!(7));
    let cases: [(ToolOutcome, &str, bool); 12] = [
        (success("done"), r#"tool.success {"call":0,"content":[{"text":"done"}]}"#, false),
        (
            ToolOutcome::Success(ToolOutput::text(" "), None),
            r#"tool.success {"call":0,"content":[{"text":"(no output)"}]}"#,
            false,
        ),
        (ToolOutcome::Success(ToolOutput::default(), None), "tool.failed execution", false),
        (ToolOutcome::Failed(output(), None), "tool.failed execution", false),
        (ToolOutcome::Unknown(output()), r#"tool.unknown {"call":0,"content":[{"text":"so"}]}"#, false),
        (ToolOutcome::Declined { feedback: Some("later".into()) }, "tool.failed declined", false),
        (ToolOutcome::Declined { feedback: None }, "tool.failed declined", false),
        (ToolOutcome::Infra("disk full".into()), "tool.failed infra", true),
        (ToolOutcome::Panicked("oh".into()), "tool.failed panic", true),
        (ToolOutcome::TimedOut("5 s".into()), "tool.failed timeout", true),
        (ToolOutcome::Stopped(Some(json!("half"))), "tool.failed interrupted", true),
        (ToolOutcome::NotRun, "tool.failed not_run", false),
    ];
    for (outcome, expected, acts) in cases {
        for tool in ["act", "look"] {
            let mut bench = Bench::new();
            let key = bench.say(&ProviderEvent::tool_call(0, "a", tool, json!({}))).unwrap();
            bench.run(key);
            bench.stream(&[stop()]);
            bench.owe(|ledger| ledger.admit_outcome(key, outcome.clone()));
            let last = lines(&bench.log).pop().unwrap();
            match expected.strip_prefix("tool.failed ").filter(|cause| !cause.starts_with('{')) {
                None => assert_eq!(last, expected),
                Some(cause) => {
                    let fields: Value = serde_json::from_str(last.strip_prefix("tool.failed ").unwrap()).unwrap();
                    assert_eq!(fields["cause"], cause, "{outcome:?}");
                    let said = fields["may_have_acted"] == json!(true);
                    assert_eq!(said, acts && tool == "act", "{outcome:?} of {tool}");
                    let text = fields["content"][0]["text"].as_str().unwrap();
                    assert_eq!(text.contains("may have acted"), said, "the model is told: {text}");
                }
            }
            // An outcome that comes late changes nothing.
            assert_eq!(bench.ledger.admit_outcome(key, success("late")), []);
            assert_eq!(bench.ledger.admit_outcome(call(7), success("of no call")), []);
            bench.settle();
            assert_eq!(bench.breaches(), [], "{outcome:?}");
        }
    }
}

//! Breaches of the stream protocol: every rule has its cases, and the table in the module's docs is what the code does.

use std::collections::BTreeMap;

use serde_json::json;
use settled_ledger::violation::{Policy, Rule};
use settled_ledger::{Admission, FailureClass, Settlement, StreamExit};
use settled_provider_api::{
    BlockEnd, ErrorClass, Finish, FinishReason, HostedError, HostedResult, ProviderEvent, ToolCallEvent, ToolInputEnd,
    ToolInputMalformed, ToolInputStart,
};
use settled_tools_api::Content;

use crate::kit::Bench;

type Events = Vec<ProviderEvent>;

/// Every rule with streams whose last event breaks it.
fn cases() -> Vec<(Rule, Vec<Events>)> {
    let text_start = ProviderEvent::text_start;
    let text_delta = |index| ProviderEvent::text_delta(index, "x");
    let text_end = ProviderEvent::text_end;
    let reasoning_start = ProviderEvent::reasoning_start;
    let input = |index| ProviderEvent::tool_input_start(index, "a", "act");
    let input_delta = |index| ProviderEvent::tool_input_delta(index, "{");
    let input_end = |index| ProviderEvent::ToolInputEnd(ToolInputEnd::new(index));
    let call = |index, name: &str| ProviderEvent::tool_call(index, "a", name, json!({}));
    let malformed =
        |index, name: &str| ProviderEvent::ToolInputMalformed(ToolInputMalformed::new(index, "a", name, false, "{"));
    let hosted = |index| ProviderEvent::ToolCall(ToolCallEvent::new(index, "h", "search", json!({})).hosted());
    let result = || ProviderEvent::HostedResult(HostedResult::new("h", vec![Content::text("found")], None));
    let error = || ProviderEvent::HostedError(HostedError::new("h", "no", None));
    let finish = |reason| ProviderEvent::Finish(Finish::new(reason));
    vec![
        (
            Rule::BlockReopened,
            vec![
                vec![text_start(0), text_start(0)],
                vec![text_start(0), text_end(0), text_start(0)],
                vec![text_start(0), reasoning_start(0)],
                vec![input(0), input(0)],
                vec![call(0, "act"), input(0)],
                vec![text_start(0), input(0)],
            ],
        ),
        (
            Rule::DeltaWithoutBlock,
            vec![
                vec![text_delta(0)],
                vec![text_start(0), text_end(0), text_delta(0)],
                vec![reasoning_start(0), text_delta(0)],
                vec![text_start(0), ProviderEvent::reasoning_delta(0, "x")],
                vec![input_delta(0)],
                vec![text_start(0), input_delta(0)],
                vec![input(0), input_end(0), input_delta(0)],
                vec![call(0, "act"), input_delta(0)],
                vec![input(0), text_delta(0)],
                vec![text_delta(u32::MAX)],
            ],
        ),
        (
            Rule::EndWithoutBlock,
            vec![
                vec![text_end(0)],
                vec![reasoning_start(0), text_end(0)],
                vec![ProviderEvent::reasoning_end(0, None)],
                vec![text_start(0), ProviderEvent::reasoning_end(0, None)],
                vec![input_end(0)],
                vec![text_start(0), input_end(0)],
                vec![ProviderEvent::TextEnd(BlockEnd::new(u32::MAX, None, None))],
            ],
        ),
        (
            Rule::EndTwice,
            vec![
                vec![text_start(0), text_end(0), text_end(0)],
                vec![reasoning_start(0), ProviderEvent::reasoning_end(0, None), ProviderEvent::reasoning_end(0, None)],
                vec![input(0), input_end(0), input_end(0)],
                vec![call(0, "act"), input_end(0)],
            ],
        ),
        (Rule::NameChanged, vec![vec![input(0), call(0, "look")], vec![input(0), malformed(0, "look")]]),
        (
            Rule::CallTwice,
            vec![
                vec![call(0, "act"), call(0, "act")],
                vec![text_start(0), call(0, "act")],
                vec![malformed(0, "act"), call(0, "act")],
            ],
        ),
        (
            Rule::MalformedAfterCall,
            vec![
                vec![call(0, "act"), malformed(0, "act")],
                vec![malformed(0, "act"), malformed(0, "act")],
                vec![text_start(0), malformed(0, "act")],
            ],
        ),
        (
            Rule::ResultWithoutCall,
            vec![
                vec![result()],
                vec![error()],
                vec![ProviderEvent::tool_call(0, "h", "act", json!({})), result()],
                vec![ProviderEvent::tool_input_start(0, "h", "search"), result()],
            ],
        ),
        (Rule::ResultTwice, vec![vec![hosted(0), result(), result()], vec![hosted(0), error(), result()]]),
        (Rule::ErrorAfterResult, vec![vec![hosted(0), result(), error()], vec![hosted(0), error(), error()]]),
        (Rule::FinishChanged, vec![vec![finish(FinishReason::Stop), finish(FinishReason::Length)]]),
        (Rule::FinishRepeated, vec![vec![finish(FinishReason::Stop), finish(FinishReason::Stop)]]),
        (Rule::TooManyBlocks, vec![vec![text_start(65_536)], vec![call(u32::MAX, "act")]]),
    ]
}

#[test]
fn every_rule_is_enforced_as_its_policy_says() {
    let cases = cases();
    assert_eq!(cases.iter().map(|(rule, _)| *rule).collect::<Vec<_>>(), Rule::ALL, "every rule has its cases");
    for (rule, streams) in cases {
        for stream in streams {
            let (breaking, before) = stream.split_last().unwrap();
            let mut bench = Bench::new();
            for event in before {
                assert!(!matches!(bench.ledger.clone().admit(event), Admission::Broken(_)), "{rule:?}: {event:?}");
                bench.say(event);
            }
            let written = bench.log.len();
            let broken = match bench.ledger.clone().admit(breaking) {
                Admission::Broken(violation) => Some(violation.rule),
                Admission::Nothing => None,
                other => panic!("{rule:?}: {stream:?} gave {other:?}"),
            };
            bench.say(breaking);
            assert_eq!(bench.log.len(), written, "a breach owes no event");
            match rule.policy() {
                Policy::Tolerated => {
                    assert_eq!(broken, None, "{rule:?}: {stream:?}");
                    bench.say(&ProviderEvent::Finish(Finish::new(FinishReason::Stop)));
                    bench.exit(StreamExit::Completed);
                    assert_eq!(bench.ledger.settlement(), Settlement::Clean, "{rule:?}: {stream:?}");
                }
                Policy::Breaks => {
                    assert_eq!(broken, Some(rule), "{stream:?}");
                    assert_eq!(bench.ledger.admit(&ProviderEvent::text_start(77)), Admission::Nothing, "it is over");
                    bench.exit(StreamExit::BrokenOff);
                    assert_eq!(bench.ledger.settlement(), Settlement::ProviderFailed, "{rule:?}: {stream:?}");
                    let error = bench.ledger.failure().unwrap().to_error();
                    assert_eq!(error.class, FailureClass::Provider(ErrorClass::InvalidOutput));
                    assert!(error.message.contains(rule.name()), "`{error}` names the rule {}", rule.name());
                }
            }
            bench.settle();
            assert_eq!(bench.breaches(), [], "{rule:?}: {stream:?}");
        }
    }
}

/// V8, V9, V14: the rules of calls hold for those that the provider runs itself as for our own.
#[test]
fn the_rules_of_calls_do_not_ask_who_runs_them() {
    let start = |hosted| ProviderEvent::ToolInputStart(ToolInputStart::new(0, "a", "act", hosted));
    let delta = || ProviderEvent::tool_input_delta(0, "{");
    let end = || ProviderEvent::ToolInputEnd(ToolInputEnd::new(0));
    let call = |hosted| {
        let call = ToolCallEvent::new(0, "a", "act", json!({}));
        ProviderEvent::ToolCall(if hosted { call.hosted() } else { call })
    };
    let malformed = |hosted| ProviderEvent::ToolInputMalformed(ToolInputMalformed::new(0, "a", "act", hosted, "{x"));
    for hosted in [false, true] {
        let cases: Vec<(Rule, Events)> = vec![
            (Rule::BlockReopened, vec![start(hosted), start(hosted)]),
            (Rule::BlockReopened, vec![call(hosted), start(hosted)]),
            (Rule::DeltaWithoutBlock, vec![start(hosted), end(), delta()]),
            (Rule::DeltaWithoutBlock, vec![call(hosted), delta()]),
            (Rule::CallTwice, vec![call(hosted), call(hosted)]),
            (Rule::CallTwice, vec![malformed(hosted), call(hosted)]),
            (Rule::MalformedAfterCall, vec![call(hosted), malformed(hosted)]),
            (Rule::MalformedAfterCall, vec![malformed(hosted), malformed(hosted)]),
        ];
        for (rule, stream) in cases {
            let mut bench = Bench::new();
            let (breaking, before) = stream.split_last().unwrap();
            for event in before {
                bench.say(event);
            }
            let found = match bench.ledger.clone().admit(breaking) {
                Admission::Broken(violation) => Some(violation.rule),
                _ => None,
            };
            assert_eq!(found, Some(rule), "hosted: {hosted}, {stream:?}");
        }
    }
}

/// V14, V17: a call that has its outcome takes neither arguments nor another call, in the block that it had.
#[test]
fn a_settled_call_takes_nothing_more() {
    let call = || ProviderEvent::tool_call(0, "a", "act", json!({}));
    let malformed = |name: &str| ToolInputMalformed::new(0, "a", name, false, "{x");
    let cases = [
        (ProviderEvent::ToolInputMalformed(malformed("act")), Rule::MalformedAfterCall),
        (call(), Rule::CallTwice),
        (ProviderEvent::tool_input_delta(0, "{"), Rule::DeltaWithoutBlock),
        (ProviderEvent::tool_input_start(0, "a", "act"), Rule::BlockReopened),
    ];
    for (event, rule) in cases {
        let mut bench = Bench::new();
        let key = bench.say(&call()).unwrap();
        bench.run(key);
        bench.owe(|ledger| ledger.admit_outcome(key, crate::kit::success("done")));
        match bench.ledger.clone().admit(&event) {
            Admission::Broken(violation) => assert_eq!(violation.rule, rule, "{event:?}"),
            other => panic!("{event:?} gave {other:?}"),
        }
        bench.say(&event);
        bench.exit(StreamExit::BrokenOff);
        bench.settle();
        let outcomes = bench.log.iter().filter(|event| event.kind() == "tool.success").count();
        assert_eq!((outcomes, bench.breaches()), (1, vec![]), "{event:?}");
    }
}

#[test]
fn the_table_in_the_docs_is_what_the_code_does() {
    let docs = include_str!("../src/violation.rs");
    let row = |line: &str| -> Option<(String, String)> {
        let cells: Vec<_> = line.strip_prefix("//! | `")?.split(" | ").collect();
        let policy = cells.last()?.trim_end_matches(" |").split(';').next()?;
        Some((cells.first()?.trim_end_matches('`').to_owned(), policy.to_owned()))
    };
    let table: BTreeMap<_, _> = docs.lines().filter_map(row).collect();
    let policy = |rule: Rule| match rule.policy() {
        Policy::Tolerated => "tolerated".to_owned(),
        Policy::Breaks => "breaks".to_owned(),
    };
    let code: BTreeMap<_, _> = Rule::ALL.iter().map(|rule| (rule.name().to_owned(), policy(*rule))).collect();
    assert_eq!(table, code);
}

#[test]
fn a_repeated_finish_fills_in_what_the_first_left_out() {
    let mut usage = settled_provider_api::Usage::default();
    usage.output = Some(3);
    let mut bench = Bench::new();
    bench.say(&ProviderEvent::Finish(Finish::new(FinishReason::Stop).raw("end_turn")));
    bench.say(&ProviderEvent::Finish(Finish::new(FinishReason::Stop).raw("stop").usage(usage).state(Some(json!(1)))));
    let expected = Finish::new(FinishReason::Stop).raw("end_turn").usage(usage).state(Some(json!(1)));
    assert_eq!(bench.ledger.finish(), Some(&expected));
}

#[test]
fn what_looks_odd_and_is_legal() {
    let legal: [Events; 5] = [
        vec![ProviderEvent::StepStart, ProviderEvent::StepStart, ProviderEvent::Alive],
        vec![ProviderEvent::tool_input_start(0, "a", "act"), ProviderEvent::tool_call(0, "a", "act", json!({}))],
        vec![ProviderEvent::tool_input_start(0, "a", ""), ProviderEvent::tool_call(0, "a", "act", json!({}))],
        vec![ProviderEvent::Finish(Finish::new(FinishReason::Stop)), ProviderEvent::text_start(0)],
        vec![ProviderEvent::tool_call(0, "a", "act", json!({})), ProviderEvent::tool_call(9, "a", "act", json!({}))],
    ];
    for stream in legal {
        let mut bench = Bench::new();
        for event in &stream {
            assert!(!matches!(bench.ledger.clone().admit(event), Admission::Broken(_)), "{stream:?}");
            bench.say(event);
        }
    }
}

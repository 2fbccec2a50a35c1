//! A ledger that is rebuilt from the log answers as the one that wrote it.

use serde_json::json;
use settled_ledger::{
    AnswerKind, CarriedCall, Event, InterruptedBy, Settlement, Stage, StepLedger, StreamExit, ToolOutcome, ToolUse,
    ToolsExit, Unsettled,
};
use settled_provider_api::{
    ErrorClass, Finish, FinishReason, HostedResult, ProviderError, ProviderEvent, ToolCallEvent,
};
use settled_tools_api::{CallKey, Content, ToolOutput};

use crate::kit::{Bench, call, session, started, step, success};

/// All that a ledger can be asked, in words.
pub(crate) fn answers(ledger: &StepLedger) -> String {
    let call = |ordinal| CallKey { step: ledger.message(), ordinal };
    let stages: Vec<_> = (0..6).map(|ordinal| ledger.stage(call(ordinal))).collect();
    let called: Vec<_> = (0..6).map(|ordinal| ledger.called(call(ordinal))).collect();
    let approved: Vec<_> = (0..6).map(|ordinal| ledger.is_approved(call(ordinal))).collect();
    format!(
        "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {stages:?} {called:?} {approved:?}",
        ledger.message(),
        ledger.output_started(),
        ledger.has_local_tool_calls(),
        ledger.failure().map(|failure| failure.to_error()),
        ledger.may_retry().map(|failure| failure.to_error()),
        ledger.cut_by().map(|failure| failure.to_error()),
        ledger.finish(),
        ledger.interrupted_by(),
        ledger.may_start_calls(),
        ledger.unsettled(),
        ledger.waiting_for_a_person(),
        (ledger.needs_continuation(), ledger.settlement(), ledger.left_open()),
    )
}

/// Where the live ledger stands differently without the log's knowing it: a run that was released is, to the log, one that has started.
pub(crate) fn as_logged(answers: &str) -> String {
    answers.replace("Some(Running)", "Some(Starting)")
}

fn restored(log: &[Event], carried: Vec<CarriedCall>) -> StepLedger {
    StepLedger::restore(session(), step(1), carried, log)
}

/// Takes a step through, and at each point from `step.streamed` on rebuilds it and compares.
struct Twin {
    bench: Bench,
    carried: Vec<CarriedCall>,
}

impl Twin {
    #[track_caller]
    fn same(&self) {
        let rebuilt = restored(&self.bench.log, self.carried.clone());
        assert_eq!(as_logged(&answers(&rebuilt)), as_logged(&answers(&self.bench.ledger)), "{:#?}", self.bench.log);
    }

    /// Both settle, and owe the same.
    #[track_caller]
    fn settles(mut self) -> Settlement {
        self.bench.ledger.admit_tools_exit(ToolsExit::Settled);
        let mut rebuilt = restored(&self.bench.log, self.carried.clone());
        rebuilt.admit_tools_exit(ToolsExit::Settled);
        let written = self.bench.log.len();
        let settlement = self.bench.settle();
        let mut twin = Bench { ledger: rebuilt, log: self.bench.log[..written].to_vec() };
        assert_eq!(twin.settle(), settlement);
        assert_eq!(twin.log, self.bench.log);
        self.same();
        settlement
    }
}

/// A step of two calls that has got as far as `step.streamed`.
fn streamed(exit: StreamExit, events: &[ProviderEvent]) -> Twin {
    let mut bench = Bench::new();
    bench.say(&ProviderEvent::text_start(0));
    let calls: Vec<_> = ["act", "look"]
        .iter()
        .zip(1..)
        .map(|(tool, index)| bench.say(&ProviderEvent::tool_call(index, *tool, *tool, json!({"x": index}))).unwrap())
        .collect();
    bench.run(calls[0]);
    bench.say(&ProviderEvent::tool_input_start(7, "open", "act"));
    bench.say(&ProviderEvent::tool_input_delta(7, "{\"cut"));
    bench.say(&ProviderEvent::ToolCall(ToolCallEvent::new(8, "h", "search", json!({})).hosted()));
    for event in events {
        bench.say(event);
    }
    bench.exit(exit);
    let twin = Twin { bench, carried: Vec::new() };
    twin.same();
    twin
}

fn finish(reason: FinishReason) -> [ProviderEvent; 1] {
    [ProviderEvent::Finish(Finish::new(reason).raw("raw").state(Some(json!(1))))]
}

fn stopped() -> Twin {
    streamed(StreamExit::Completed, &finish(FinishReason::Stop))
}

#[test]
fn a_rebuilt_ledger_settles_as_the_live_one() {
    let error = |class| ProviderError::new(class, "no").status(529).code("c".to_owned());
    let in_band = [ProviderEvent::Error(error(ErrorClass::Overloaded))];
    let violation = [ProviderEvent::text_delta(40, "?")];
    let streams: [(StreamExit, &[ProviderEvent], Settlement); 8] = [
        (StreamExit::Completed, &finish(FinishReason::Stop), Settlement::Interrupted { question_dismissed: false }),
        (StreamExit::Completed, &finish(FinishReason::Unknown), Settlement::ProviderFailed),
        (StreamExit::Completed, &[], Settlement::ProviderFailed),
        (StreamExit::Completed, &in_band, Settlement::ProviderFailed),
        (StreamExit::BrokenOff, &violation, Settlement::ProviderFailed),
        (StreamExit::Failed(error(ErrorClass::ContextOverflow)), &[], Settlement::ProviderFailed),
        (StreamExit::Panicked("oh".into()), &[], Settlement::ProviderFailed),
        (StreamExit::Interrupted, &[], Settlement::Interrupted { question_dismissed: false }),
    ];
    for (exit, events, settlement) in streams {
        assert_eq!(streamed(exit, events).settles(), settlement);
    }
}

#[test]
fn a_rebuilt_ledger_knows_every_outcome() {
    let outcomes = [
        (success("done"), Settlement::Clean),
        (ToolOutcome::Failed(ToolOutput::text("no"), None), Settlement::Clean),
        (ToolOutcome::Unknown(ToolOutput::text("?")), Settlement::Clean),
        (ToolOutcome::Panicked("oh".into()), Settlement::Clean),
        (ToolOutcome::TimedOut("5 s".into()), Settlement::Clean),
        (ToolOutcome::Lost, Settlement::Clean),
        (ToolOutcome::Declined { feedback: Some("later".into()) }, Settlement::Clean),
        (ToolOutcome::Declined { feedback: None }, Settlement::Interrupted { question_dismissed: false }),
        (ToolOutcome::Dismissed, Settlement::Interrupted { question_dismissed: true }),
        (ToolOutcome::Stopped(None), Settlement::Interrupted { question_dismissed: false }),
        (
            ToolOutcome::Infra("disk full".into()),
            Settlement::ToolInfraFailed { cause: settled_ledger::InfraCause::new("disk full") },
        ),
    ];
    for (outcome, settlement) in outcomes {
        let mut twin = stopped();
        twin.bench.owe(|ledger| ledger.admit_outcome(call(0), outcome.clone()));
        twin.same();
        for outcome in [ToolOutcome::Denied { rule: "r".into() }, ToolOutcome::SchemaViolated("x".into())] {
            let mut twin = Twin { bench: twin.bench.clone(), carried: Vec::new() };
            twin.bench.owe(|ledger| ledger.admit_outcome(call(1), outcome));
            twin.same();
            assert_eq!(twin.settles(), settlement);
        }
    }
}

#[test]
fn a_parked_step_goes_on_from_the_log() {
    let mut twin = stopped();
    twin.bench.owe(|ledger| {
        ledger.admit_outcome(call(0), ToolOutcome::Ask { question: "which?".into(), state: json!({"at": 2}) })
    });
    twin.same();
    twin.bench.owe(|ledger| ledger.admit_approval_needed(call(1), "may it?".into()));
    twin.same();
    assert_eq!(twin.bench.ledger.waiting_for_a_person(), [call(0), call(1)]);

    for (answer, text) in [
        (AnswerKind::Text, Some("that one".to_owned())),
        (AnswerKind::Declined, None),
        (AnswerKind::Declined, Some("not now".to_owned())),
        (AnswerKind::Dismissed, None),
    ] {
        let mut twin = Twin { bench: twin.bench.clone(), carried: Vec::new() };
        twin.bench.owe(|ledger| ledger.admit_answer(call(0), answer, text.clone()));
        twin.same();
        if twin.bench.ledger.stage(call(1)) == Some(Stage::ParkedForApproval) {
            twin.bench.owe(|ledger| ledger.admit_answer(call(1), AnswerKind::Approved, None));
            twin.same();
        }
        // What is handed to the run that goes on is the same, too.
        let mut rebuilt = restored(&twin.bench.log, Vec::new());
        assert_eq!(rebuilt.take_up_again(call(0)), twin.bench.ledger.take_up_again(call(0)));
        assert_eq!(rebuilt.may_start_calls(), twin.bench.ledger.may_start_calls());
        if !rebuilt.may_start_calls() {
            twin.settles();
            continue;
        }
        let owed = (rebuilt.start(call(1)), twin.bench.ledger.start(call(1)));
        assert_eq!(owed.0, owed.1);
        assert_eq!(rebuilt.release(call(1)), twin.bench.ledger.release(call(1)));
        twin.bench.log.extend(owed.0);
        twin.same();
        twin.settles();
    }
}

#[test]
fn an_interrupt_is_known_whenever_it_came() {
    let mut twin = stopped();
    twin.bench.owe(|ledger| ledger.admit_interrupt(InterruptedBy::Shutdown));
    twin.same();
    assert_eq!(twin.settles(), Settlement::Interrupted { question_dismissed: false });
}

#[test]
fn the_last_attempt_counts_and_the_last_step_has_no_tools() {
    let mut bench = Bench::with(ToolUse::Off);
    bench.say(&ProviderEvent::tool_call(0, "a", "act", json!({})));
    bench.exit(StreamExit::Completed);
    let twin = Twin { bench, carried: Vec::new() };
    twin.same();
    assert!(!twin.bench.ledger.needs_continuation());

    // No sound log has anything of an attempt before the last; were it there, it would not count.
    let mut earlier = Bench::new();
    earlier.say(&ProviderEvent::text_start(0));
    earlier.log.push(started(1, 2).into());
    assert!(!restored(&earlier.log, Vec::new()).output_started());

    let mut again = Bench::new();
    let first = again.log.clone();
    again.log = [first, again.log].concat();
    again.stream(&finish(FinishReason::Stop));
    Twin { bench: again, carried: Vec::new() }.settles();
}

#[test]
fn carried_calls_are_settled_once() {
    let carried = |label: &str, ordinal| CarriedCall::new(CallKey { step: step(7), ordinal }, label);
    let calls = vec![carried("a", 0), carried("b", 1)];
    let mut bench = Bench::behind(Vec::new(), started(1, 1), calls.clone());
    bench.say(&ProviderEvent::HostedResult(HostedResult::new("b", vec![Content::text("found")], None)));
    assert!(bench.ledger.output_started(), "a result is part of the answer: the attempt may not be made again");
    bench.exit(StreamExit::Failed(ProviderError::new(ErrorClass::Transport, "no")));
    assert_eq!(bench.ledger.may_retry(), None);
    let twin = Twin { bench, carried: calls };
    twin.same();
    assert_eq!(twin.bench.ledger.left_open(), [carried("a", 0)]);
    assert_eq!(twin.settles(), Settlement::ProviderFailed);
}

#[test]
fn a_step_that_was_left_by_its_process_is_settled_from_what_the_log_has() {
    // Cut off at every point, also before `step.streamed`: the sweep settles it, and the log is sound.
    let mut twin = stopped();
    twin.bench.owe(|ledger| ledger.admit_outcome(call(0), success("done")));
    for end in 2..=twin.bench.log.len() {
        let log = twin.bench.log[..end].to_vec();
        let mut ledger = restored(&log, Vec::new());
        let mut owed = ledger.fail_unsettled_tools(Unsettled::AtSweep);
        let streamed = log.iter().any(|event| matches!(event, Event::StepStreamed(_)));
        owed.extend(match ledger.settlement() {
            Settlement::Clean => ledger.end_step(Default::default()),
            _ => ledger.fail_assistant(Default::default()),
        });
        assert_eq!(matches!(owed.last(), Some(Event::StepEnded(_))), streamed);
        let started = log.iter().any(|event| matches!(event, Event::ToolStarted(_)));
        let answered = log.iter().any(|event| matches!(event, Event::ToolSuccess(_)));
        let unknown = owed.iter().any(|event| matches!(event, Event::ToolUnknown(_)));
        assert_eq!(unknown, started && !answered, "a started call whose result is lost is unknown");
        let swept = Bench { ledger, log: [log, owed].concat() };
        assert_eq!(swept.breaches(), [], "{:#?}", swept.log);
    }
}

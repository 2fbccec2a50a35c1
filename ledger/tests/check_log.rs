//! The checker of logs: a sound log has no breach, and each thing that must not be is found.

use serde_json::{Value, json};
use settled_ledger::check::Invariant::{self, *};
use settled_ledger::check::{Limits, LogChecker, check_events, check_log};
use settled_ledger::*;
use settled_provider_api::{ErrorClass, FinishReason};
use settled_tools_api::{CallKey, Content, ReplayClass};

use crate::kit::{call, placed, promoted, session, started, step};

pub(crate) fn execution(number: u128, resume: u32) -> Event {
    ExecutionStarted { execution: ExecutionId::from_u128(number), resume }.into()
}

pub(crate) fn settled(number: u128, outcome: Outcome) -> Event {
    ExecutionSettled { execution: ExecutionId::from_u128(number), outcome, error: None }.into()
}

pub(crate) fn begun(number: u128, attempt: u32) -> Event {
    started(number, attempt).into()
}

fn text_started(number: u128, ordinal: u32) -> Event {
    TextStarted { message: step(number), ordinal }.into()
}

fn text_ended(number: u128, ordinal: u32) -> Event {
    TextEnded { message: step(number), ordinal, text: "so".into(), state: None }.into()
}

fn media(number: u128) -> Event {
    let media = settled_tools_api::Media::url("image/png", "https://a.test/b.png");
    MediaAdded { message: step(number), media, state: None }.into()
}

fn input_started(key: CallKey) -> Event {
    let (id, name) = (format!("c{}", key.ordinal), "act".to_owned());
    ToolInputStarted { message: key.step, call: key.ordinal, id, name, hosted: false }.into()
}

fn input_ended(key: CallKey) -> Event {
    ToolInputEnded { message: key.step, call: key.ordinal, text: "{}".into() }.into()
}

fn called(key: CallKey, replay: Option<ReplayClass>) -> Event {
    let (message, call) = (key.step, key.ordinal);
    ToolCalled { message, call, name: "act".into(), input: json!({}), hosted: false, replay, state: None }.into()
}

fn hosted_call(key: CallKey) -> [Event; 3] {
    let (message, call, name) = (key.step, key.ordinal, "search".to_owned());
    [
        ToolInputStarted { message, call, id: "h".into(), name: name.clone(), hosted: true }.into(),
        input_ended(key),
        ToolCalled { message, call, name, input: json!({}), hosted: true, replay: None, state: None }.into(),
    ]
}

fn tool_started(key: CallKey) -> Event {
    ToolStarted { message: key.step, call: key.ordinal }.into()
}

fn noted(key: CallKey) -> Event {
    ToolNoted { message: key.step, call: key.ordinal, note: json!(1) }.into()
}

fn succeeded(key: CallKey) -> Event {
    let (message, call, content) = (key.step, key.ordinal, vec![Content::text("done")]);
    ToolSuccess { message, call, content, metadata: None, bounded: None, state: None }.into()
}

fn unknown(key: CallKey) -> Event {
    ToolUnknown { message: key.step, call: key.ordinal, content: vec![Content::text("lost")] }.into()
}

fn failure(key: CallKey, cause: FailureCause) -> ToolFailed {
    ToolFailed {
        message: key.step,
        call: key.ordinal,
        cause,
        detail: None,
        may_have_acted: false,
        content: vec![Content::text("no")],
        metadata: None,
        bounded: None,
        state: None,
    }
}

fn failed_call(key: CallKey, cause: FailureCause) -> Event {
    failure(key, cause).into()
}

fn asked(key: CallKey, kind: InteractionKind) -> Event {
    InteractionRequested {
        message: key.step,
        call: key.ordinal,
        kind,
        text: "may it?".into(),
        state: None,
        effect_key: effect_key(&session(), key),
        arguments_hash: arguments_hash(&json!({})),
    }
    .into()
}

fn answered(key: CallKey, answer: AnswerKind) -> Event {
    InteractionAnswered { message: key.step, call: key.ordinal, answer, text: None }.into()
}

fn streamed(number: u128, finish: FinishReason) -> StepStreamed {
    StepStreamed {
        message: step(number),
        exit: ExitKind::Completed,
        failure: None,
        broken: false,
        finish: Some(finish),
        raw_finish: None,
        usage: None,
        state: None,
    }
}

pub(crate) fn over(number: u128) -> Event {
    streamed(number, FinishReason::Stop).into()
}

pub(crate) fn cut(number: u128) -> Event {
    StepStreamed {
        exit: ExitKind::Failed,
        failure: Some(transport()),
        finish: None,
        ..streamed(number, FinishReason::Stop)
    }
    .into()
}

fn ended_with(number: u128, finish: FinishReason) -> Event {
    StepEnded {
        message: step(number),
        finish: Some(finish),
        raw_finish: None,
        usage: None,
        cost_nanos: None,
        files: None,
        state: None,
    }
    .into()
}

pub(crate) fn ended(number: u128) -> Event {
    ended_with(number, FinishReason::Stop)
}

fn transport() -> StepError {
    StepError::new(FailureClass::Provider(ErrorClass::Transport), "the connection failed")
}

fn failed_as(number: u128, error: StepError, settlement: Settlement) -> Event {
    StepFailed {
        message: step(number),
        error,
        settlement,
        finish: None,
        raw_finish: None,
        usage: None,
        cost_nanos: None,
        files: None,
    }
    .into()
}

pub(crate) fn failed(number: u128) -> Event {
    failed_as(number, transport(), Settlement::ProviderFailed)
}

fn aborted(number: u128) -> Event {
    let error = StepError::new(FailureClass::Aborted, "the step was interrupted");
    failed_as(number, error, Settlement::Interrupted { question_dismissed: false })
}

pub(crate) fn retry(number: u128, attempt: u32) -> Event {
    let at = Timestamp::from_millis(0);
    RetryScheduled { message: step(number), attempt, delay_ms: 2_000, at, error: transport() }.into()
}

fn interrupt(number: u128) -> Event {
    InterruptRecorded { message: Some(step(number)), by: InterruptedBy::User }.into()
}

pub(crate) fn compacting(reason: CompactionReason) -> Event {
    CompactionStarted { reason }.into()
}

pub(crate) fn compacted(reason: CompactionReason) -> Event {
    let (text, model) = ("all of it".to_owned(), crate::kit::model());
    CompactionEnded { reason, text, recent: String::new(), model, usage: None, cost_nanos: None }.into()
}

fn not_compacted(reason: CompactionReason) -> Event {
    CompactionFailed { reason, error: transport(), usage: None, cost_nanos: None }.into()
}

pub(crate) fn continues(number: u128, cut: u128) -> Event {
    StepStarted { continues: Some(step(cut)), ..started(number, 1) }.into()
}

fn other_kind() -> Event {
    let row = Recorded::new(session(), Seq::new(1), Timestamp::default(), "moon.rose".into(), 7, "{}".into());
    row.event().unwrap()
}

/// A whole call that succeeds.
fn done(key: CallKey) -> Vec<Event> {
    let once = Some(ReplayClass::AtMostOnce);
    vec![input_started(key), input_ended(key), called(key, once), tool_started(key), succeeded(key)]
}

/// A log that has everything that may be, of three executions.
pub(crate) fn sound() -> Vec<Event> {
    let key = |number, ordinal| CallKey { step: step(number), ordinal };
    let pure = Some(ReplayClass::Pure);
    let once = Some(ReplayClass::AtMostOnce);
    let mut log = vec![
        SessionCreated { agent: "a".into(), model: crate::kit::model(), tags: Default::default() }.into(),
        execution(1, 0),
        promoted(1, "hello"),
        // Tried again, recovered from an overflow, answered with a call.
        begun(1, 1),
        retry(1, 2),
        begun(1, 2),
        compacting(CompactionReason::Overflow),
        compacted(CompactionReason::Overflow),
        begun(1, 3),
        text_started(1, 0),
        text_started(1, 1),
        text_ended(1, 0),
        text_ended(1, 1),
    ];
    log.extend(done(key(1, 0)));
    log.extend([over(1), ended(1), other_kind()]);
    // Cut, and continued.
    log.extend([begun(2, 1), media(2), cut(2), failed(2), retry(2, 2)]);
    log.push(Synthetic { reason: SyntheticReason::Continue, text: "go on".into() }.into());
    log.extend([continues(3, 2), text_started(3, 0), text_ended(3, 0), over(3), ended(3)]);
    // Paused in the middle of a hosted call, twice.
    log.push(begun(4, 1));
    log.extend(hosted_call(key(4, 0)));
    log.extend([streamed(4, FinishReason::Pause).into(), ended_with(4, FinishReason::Pause)]);
    log.extend([begun(5, 1), streamed(5, FinishReason::Pause).into(), ended_with(5, FinishReason::Pause)]);
    log.extend([begun(6, 1), succeeded(key(4, 0)), over(6), ended(6), settled(1, Outcome::Completed)]);
    // Approved, asked and answered, across a restart; a pure tool is started twice.
    log.extend([not_compacted(CompactionReason::Manual), execution(2, 0), promoted(2, "pay"), begun(7, 1)]);
    for ordinal in 0..3 {
        log.extend([input_started(key(7, ordinal)), input_ended(key(7, ordinal))]);
    }
    log.extend([
        called(key(7, 0), once),
        asked(key(7, 0), InteractionKind::Approval),
        called(key(7, 1), once),
        tool_started(key(7, 1)),
        asked(key(7, 1), InteractionKind::Question),
        called(key(7, 2), pure),
        tool_started(key(7, 2)),
        noted(key(7, 2)),
        over(7),
        execution(2, 1),
        tool_started(key(7, 2)),
        succeeded(key(7, 2)),
        answered(key(7, 0), AnswerKind::Approved),
        tool_started(key(7, 0)),
        succeeded(key(7, 0)),
        answered(key(7, 1), AnswerKind::Text),
        succeeded(key(7, 1)),
        ended(7),
        settled(2, Outcome::Completed),
    ]);
    // Interrupted under way: by a shutdown, then by a person.
    log.extend([execution(3, 0), promoted(3, "more"), begun(8, 1)]);
    log.push(InterruptRecorded { message: Some(step(8)), by: InterruptedBy::Shutdown }.into());
    log.extend([aborted(8), execution(3, 1), begun(9, 1), text_started(9, 0), interrupt(9), text_ended(9, 0)]);
    log.push(StepStreamed { exit: ExitKind::Interrupted, finish: None, ..streamed(9, FinishReason::Stop) }.into());
    log.extend([aborted(9), settled(3, Outcome::Interrupted)]);
    log
}

/// Each of these logs has exactly these breaches, in order.
#[track_caller]
fn check(what: &str, log: Vec<Event>, expected: &[(Invariant, u64, &str)]) {
    let found = check_events(placed(&log));
    let places: Vec<_> = found.iter().map(|breach| (breach.invariant, breach.seq.unwrap().get())).collect();
    let wanted: Vec<_> = expected.iter().map(|(invariant, seq, _)| (*invariant, *seq)).collect();
    assert_eq!(places, wanted, "{what}: {found:#?}");
    for (breach, (.., words)) in found.iter().zip(expected) {
        assert!(breach.what.contains(words), "{what}: `{}` does not say `{words}`", breach.what);
    }
}

#[test]
fn a_sound_log_and_each_of_its_prefixes_have_no_breach() {
    let log = sound();
    for end in 0..=log.len() {
        check("sound", log[..end].to_vec(), &[]);
    }
}

#[test]
fn a_breach_reads_as_a_sentence() {
    let found = check_events(placed(&[ended(1)]));
    assert_eq!(
        found[0].to_string(),
        "I6 (only recorded facts count, and answers are never spliced) is broken at event 1: \
         a step.ended of step msg_00000000000000000000000000000001 comes before its start"
    );
}

/// A step's beginning, then these.
fn step_with(rest: impl IntoIterator<Item = Event>) -> Vec<Event> {
    [promoted(1, "hello"), begun(1, 1)].into_iter().chain(rest).collect()
}

/// A step's beginning and a called call, then these: the first of them is event 6.
fn called_with(replay: Option<ReplayClass>, rest: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let begun = [input_started(call(0)), input_ended(call(0)), called(call(0), replay)];
    step_with(begun.into_iter().chain(rest))
}

const ONCE: Option<ReplayClass> = Some(ReplayClass::AtMostOnce);

#[test]
fn rows_that_are_missing_doubled_or_unreadable_are_found() {
    let rows = |seqs: &[u64], body: &str| -> Vec<Recorded> {
        let row = |seq: &u64| {
            let (kind, version) = ("compaction.started".to_owned(), 1);
            Recorded::new(session(), Seq::new(*seq), Timestamp::default(), kind, version, body.to_owned())
        };
        seqs.iter().map(row).collect()
    };
    let places = |log: &[Recorded]| -> Vec<_> {
        check_log(log).into_iter().filter(|breach| breach.invariant == I6).map(|breach| breach.what).collect()
    };
    let good = r#"{"reason":"manual"}"#;
    assert_eq!(places(&rows(&[1], good)), [""; 0]);
    assert_eq!(places(&rows(&[2], good)), ["event 1 was to come next, and 2 came"]);
    assert_eq!(places(&rows(&[1, 1], good)), ["event 2 was to come next, and 1 came"]);
    assert_eq!(places(&rows(&[1, 4, 5], good)), ["event 2 was to come next, and 4 came"]);
    let corrupt = places(&rows(&[1], r#"{"reason":"#));
    assert!(corrupt[0].contains("event 1 of session `s` is corrupt"), "{corrupt:?}");
}

#[test]
fn input_is_promoted_once() {
    check("twice", vec![promoted(1, "a"), promoted(2, "b"), promoted(1, "a")], &[(I5, 3, "promoted twice")]);
}

#[test]
fn the_events_of_a_call_come_in_order() {
    let key = call(0);
    let end = |log: Vec<Event>| [log, vec![over(1), ended(1)]].concat();
    check("no arguments", step_with([called(key, ONCE)]), &[(I1, 3, "before its arguments have begun")]);
    check("wrong ordinal", step_with([input_started(call(1))]), &[(I1, 3, "0 came before")]);
    let open = [input_started(key), called(key, ONCE)];
    check("called while open", step_with(open), &[(I1, 4, "before its arguments have ended")]);
    check("called twice", called_with(ONCE, [called(key, ONCE)]), &[(I1, 6, "called twice")]);
    check("input twice", called_with(ONCE, [input_ended(key)]), &[(I1, 6, "end twice")]);
    check(
        "started, not called",
        step_with([input_started(key), input_ended(key), tool_started(key)]),
        &[(I1, 5, "never called")],
    );
    check("success, not started", called_with(ONCE, [succeeded(key)]), &[(I1, 6, "succeeds and was never started")]);
    check("unknown, not started", called_with(ONCE, [unknown(key)]), &[(I1, 6, "never started")]);
    check(
        "failed by itself, not started",
        called_with(ONCE, [failed_call(key, FailureCause::Execution)]),
        &[(I1, 6, "never started")],
    );
    check(
        "interrupted, not started",
        called_with(ONCE, [failed_call(key, FailureCause::Interrupted)]),
        &[(I1, 6, "never started")],
    );
    check("not run", called_with(ONCE, [failed_call(key, FailureCause::NotRun)]), &[]);
    check("a note, not started", called_with(ONCE, [noted(key)]), &[(I1, 6, "leaves a note")]);
    check("no outcome", end(called_with(ONCE, [])), &[(I1, 7, "has no outcome")]);
    check(
        "open arguments",
        end(step_with([input_started(key)])),
        &[(I1, 4, "open when the stream is over"), (I1, 5, "has no outcome")],
    );
    let twice = called_with(ONCE, [tool_started(key), succeeded(key), failed_call(key, FailureCause::Panic)]);
    check("two outcomes", twice, &[(I1, 8, "after its outcome")]);
    let late = called_with(ONCE, [tool_started(key), succeeded(key), tool_started(key)]);
    check("started after its outcome", late, &[(I1, 8, "after its outcome")]);
    let acted = ToolFailed { may_have_acted: true, ..failure(key, FailureCause::Panic) };
    check("acted, not started", called_with(ONCE, [acted.clone().into()]), &[(I1, 6, "may have acted")]);
    let pure = Some(ReplayClass::Pure);
    check(
        "a pure one acted",
        called_with(pure, [tool_started(key), acted.clone().into()]),
        &[(I1, 7, "may have acted")],
    );
    check("acted", called_with(ONCE, [tool_started(key), acted.into()]), &[]);
    let empty = ToolFailed { content: Vec::new(), ..failure(key, FailureCause::Denied) };
    check("no content", called_with(ONCE, [empty.into()]), &[(I3, 6, "no content")]);
    let [opened, closed, _] = hosted_call(key);
    check("hosted, not called", step_with([opened, closed, succeeded(key)]), &[(I1, 5, "never called")]);
}

#[test]
fn a_call_that_a_pause_leaves_open_is_settled_by_the_step_that_continues() {
    let paused = || {
        let mut log = step_with(hosted_call(call(0)));
        log.extend([streamed(1, FinishReason::Pause).into(), ended_with(1, FinishReason::Pause), begun(2, 1)]);
        log
    };
    check("open", paused(), &[]);
    check("settled", [paused(), vec![succeeded(call(0)), over(2), ended(2)]].concat(), &[]);
    check("never settled", [paused(), vec![over(2), ended(2)]].concat(), &[(I1, 10, "left open by a pause")]);
    check(
        "twice",
        [paused(), vec![succeeded(call(0)), succeeded(call(0))]].concat(),
        &[(I4, 10, "after its terminal")],
    );
    check(
        "tried again behind it",
        [paused(), vec![succeeded(call(0)), retry(2, 2)]].concat(),
        &[(I6, 10, "has produced something")],
    );
    let stop = [step_with(hosted_call(call(0))), vec![over(1), ended(1)]].concat();
    check("no pause", stop, &[(I1, 7, "has no outcome at its step's terminal")]);
}

#[test]
fn a_call_starts_at_most_once_and_only_where_it_may() {
    let key = call(0);
    let start = || tool_started(key);
    check("twice", called_with(ONCE, [start(), start()]), &[(I2, 7, "a second time")]);
    for replay in [ReplayClass::Pure, ReplayClass::Idempotent { valid_for_ms: 1 }, ReplayClass::Reconcile] {
        check("twice, and may", called_with(Some(replay), [start(), start()]), &[]);
    }
    check("of no tool", called_with(None, [start()]), &[(I2, 6, "no tool of its name")]);
    check("after the stream was cut", called_with(ONCE, [cut(1), start()]), &[(I2, 7, "stream failed")]);
    let broken = StepStreamed { broken: true, ..streamed(1, FinishReason::Stop) };
    check("after the stream broke", called_with(ONCE, [broken.into(), start()]), &[(I2, 7, "stream failed")]);
    check("after the stream", called_with(ONCE, [over(1), start()]), &[]);
    check("after an interrupt", called_with(ONCE, [interrupt(1), start()]), &[(I8, 7, "interrupted")]);
    let mut last = called_with(ONCE, [start()]);
    last[1] = StepStarted { last: true, ..started(1, 1) }.into();
    check("in the last step", last, &[(I2, 6, "without tools")]);
    let hosted = step_with(hosted_call(key).into_iter().chain([start()]));
    check("hosted", hosted, &[(I2, 6, "run by the provider")]);
    let approval = || asked(key, InteractionKind::Approval);
    check("while it waits", called_with(ONCE, [approval(), start()]), &[(I2, 7, "waits for a person")]);
    check(
        "refused",
        called_with(ONCE, [approval(), answered(key, AnswerKind::Declined), start()]),
        &[(I2, 8, "refused it")],
    );
}

#[test]
fn a_person_is_asked_and_answers_in_pairs() {
    let key = call(0);
    let ask = |kind| asked(key, kind);
    let answer = |kind| answered(key, kind);
    use AnswerKind::{Approved, Declined, Dismissed, Text};
    use InteractionKind::{Approval, Question};
    let wrong_time = "at the wrong time";
    check("approval of a started call", called_with(ONCE, [tool_started(key), ask(Approval)]), &[(I1, 7, wrong_time)]);
    check("a question before the start", called_with(ONCE, [ask(Question)]), &[(I1, 6, wrong_time)]);
    check("two at once", called_with(ONCE, [ask(Approval), ask(Approval)]), &[(I1, 7, "while it waits for one")]);
    check("not asked", called_with(ONCE, [answer(Approved)]), &[(I1, 6, "did not ask")]);
    check(
        "answered twice",
        called_with(ONCE, [ask(Approval), answer(Approved), answer(Approved)]),
        &[(I1, 8, "did not ask")],
    );
    check("text for an approval", called_with(ONCE, [ask(Approval), answer(Text)]), &[(I1, 7, "did not ask")]);
    let question = [tool_started(key), ask(Question)];
    for (kind, breaches) in [(Text, 0), (Declined, 0), (Dismissed, 0), (Approved, 1)] {
        let log = called_with(ONCE, question.clone().into_iter().chain([answer(kind)]));
        check("a question", log, &[(I1, 8, "did not ask")][..breaches]);
    }
}

#[test]
fn a_step_has_one_terminal_and_it_is_its_last_event() {
    let log = |rest: &[Event]| [step_with([cut(1), failed(1)]), rest.to_vec()].concat();
    check("two", log(&[failed(1)]), &[(I4, 5, "after its terminal")]);
    check("text behind it", log(&[text_started(1, 0)]), &[(I4, 5, "after its terminal")]);
    check("a note behind it", log(&[noted(call(0))]), &[(I4, 5, "after its terminal")]);
    check("an interrupt behind it", log(&[interrupt(1)]), &[(I4, 5, "after its terminal")]);
    check("its retry", log(&[retry(1, 2)]), &[]);
    check("two retries", log(&[retry(1, 2), retry(1, 3)]), &[(I4, 6, "after its terminal")]);
    check("a retry too late", log(&[begun(2, 1), retry(1, 2)]), &[(I4, 6, "after its terminal")]);
    check("a retry of a clean step", step_with([over(1), ended(1), retry(1, 2)]), &[(I4, 5, "after its terminal")]);
    check("started again", log(&[begun(1, 2)]), &[(I4, 5, "starts again after its terminal")]);
    check("another begins", step_with([begun(2, 1)]), &[(I4, 3, "has no terminal")]);
    check("never started", vec![text_started(1, 0)], &[(I6, 1, "before its start")]);
    check("a retry of none", vec![retry(1, 2)], &[(I6, 1, "before its start")]);
}

#[test]
fn a_step_ends_only_where_the_log_says_that_it_is_clean() {
    let key = call(0);
    let why = |what: &str, streamed: StepStreamed, words: &str| {
        check(what, step_with([streamed.into(), ended(1)]), &[(I4, 4, words)]);
    };
    let whole = || streamed(1, FinishReason::Stop);
    check("no stream", step_with([ended(1)]), &[(I4, 3, "never over")]);
    why("cut", StepStreamed { exit: ExitKind::Failed, ..whole() }, "exited as failed");
    why("interrupted", StepStreamed { exit: ExitKind::Interrupted, ..whole() }, "exited as interrupted");
    why("broken", StepStreamed { broken: true, ..whole() }, "was broken");
    why("failed", StepStreamed { failure: Some(transport()), ..whole() }, "it failed");
    why("no finish", StepStreamed { finish: None, ..whole() }, "never finished");
    for reason in [FinishReason::Unknown, FinishReason::ContentFilter, FinishReason::Refusal] {
        why("finish", streamed(1, reason), reason.name());
    }
    check("interrupted after the stream", step_with([over(1), interrupt(1), ended(1)]), &[(I4, 5, "interrupted")]);
    for (cause, words) in [
        (FailureCause::Declined, "declined"),
        (FailureCause::Dismissed, "dismissed"),
        (FailureCause::Infra, "machinery"),
        (FailureCause::Interrupted, "was interrupted"),
    ] {
        let log = called_with(ONCE, [tool_started(key), failed_call(key, cause), over(1), ended(1)]);
        check("a call that stops the step", log, &[(I4, 9, words)]);
    }
    let feedback = ToolFailed { metadata: Some(Value::from("later")), ..failure(key, FailureCause::Declined) };
    check("feedback", called_with(ONCE, [feedback.into(), over(1), ended(1)]), &[]);

    check(
        "failed, and clean",
        step_with([over(1), failed_as(1, transport(), Settlement::Clean)]),
        &[(I4, 4, "says that it is clean")],
    );
    check("interrupted, and says otherwise", step_with([interrupt(1), failed(1)]), &[(I4, 4, "provider_failed")]);
    let other = StepError::new(FailureClass::Aborted, "no");
    let log = step_with([cut(1), failed_as(1, other, Settlement::ProviderFailed)]);
    check("another error than the first", log, &[(I4, 4, "failed first with")]);
}

#[test]
fn two_answers_are_never_spliced() {
    let again = [retry(1, 2), begun(1, 2)];
    check("nothing before", step_with(again.clone()), &[]);
    for produced in [text_started(1, 0), ReasoningStarted { message: step(1), ordinal: 0 }.into(), media(1)] {
        check(
            "something before",
            step_with([produced].into_iter().chain(again.clone())),
            &[(I6, 4, "has produced something"), (I6, 5, "produced something")],
        );
    }
    check("not scheduled", step_with([begun(1, 2)]), &[(I7, 3, "was not scheduled")]);
    check("the same attempt", step_with([retry(1, 2), begun(1, 1)]), &[(I6, 4, "follows attempt 1")]);
    check("ordinal", step_with([text_started(1, 1)]), &[(I6, 3, "has ordinal 1")]);
    check("started twice", step_with([text_started(1, 0), text_started(1, 0)]), &[(I6, 4, "has ordinal 0")]);
    check("ended twice", step_with([text_started(1, 0), text_ended(1, 0), text_ended(1, 0)]), &[(I6, 5, "not open")]);
    check("left open", step_with([text_started(1, 0), over(1)]), &[(I6, 4, "text 0")]);
    check("after the stream", step_with([over(1), text_started(1, 0)]), &[(I6, 4, "after its stream")]);
    check("a call after the stream", step_with([over(1), input_started(call(0))]), &[(I6, 4, "after its stream")]);
    check("two streams", step_with([over(1), over(1)]), &[(I6, 4, "over twice")]);
}

#[test]
fn compactions_come_in_pairs_and_not_while_a_step_is_open() {
    use CompactionReason::{Auto, Manual, Overflow};
    check("a pair", vec![compacting(Auto), compacted(Auto), compacting(Manual), not_compacted(Manual)], &[]);
    check("ended only", vec![compacted(Auto)], &[(I7, 1, "never started")]);
    check("two at once", vec![compacting(Auto), compacting(Manual)], &[(I7, 2, "while another runs")]);
    check("another ends", vec![compacting(Auto), compacted(Manual)], &[(I7, 2, "another (manual)")]);
    check("in a step", step_with([compacting(Auto), compacted(Auto)]), &[(I6, 4, "while step")]);
    let visible = [text_started(1, 0), compacting(Overflow), compacted(Overflow)];
    check("behind output", step_with(visible), &[(I6, 5, "while step")]);
    let recover = |attempt| [compacting(Overflow), compacted(Overflow), begun(1, attempt)];
    check("recovered", step_with(recover(2)), &[]);
    check("twice", step_with(recover(2).into_iter().chain(recover(3))), &[(I7, 7, "2 times")]);
    let log = vec![execution(1, 0), compacting(Auto), settled(1, Outcome::Failed)];
    check("never over", log, &[(I7, 3, "while a compaction runs")]);
}

#[test]
fn executions_are_nested_and_nothing_begins_after_an_interrupt() {
    check("two", vec![execution(1, 0), execution(2, 0)], &[(I7, 2, "has not settled")]);
    check("same number", vec![execution(1, 0), execution(1, 0)], &[(I7, 2, "number 0 after number 0")]);
    check("not started", vec![settled(1, Outcome::Completed)], &[(I7, 1, "has not started")]);
    check("another", vec![execution(1, 0), settled(2, Outcome::Completed)], &[(I7, 2, "while exe_")]);
    let open = || [vec![execution(1, 0)], step_with([])].concat();
    check("an open step", [open(), vec![settled(1, Outcome::Failed)]].concat(), &[(I4, 4, "has no terminal")]);
    let failed_step = [open(), vec![failed(1), settled(1, Outcome::Completed)]].concat();
    check("completed and failed", failed_step, &[(I4, 5, "its last step failed")]);
    let goes_on = [open(), vec![interrupt(1), aborted(1), begun(2, 1)]].concat();
    check("a request after an interrupt", goes_on, &[(I8, 6, "was interrupted")]);
    let resumed = [open(), vec![interrupt(1), aborted(1), execution(1, 1), begun(2, 1)]].concat();
    check("also after a restart", resumed, &[(I8, 7, "was interrupted")]);
    let shutdown = InterruptRecorded { message: Some(step(1)), by: InterruptedBy::Shutdown };
    check("handed over", [open(), vec![shutdown.into(), aborted(1), begun(2, 1)]].concat(), &[]);
    check("two interrupts", step_with([interrupt(1), interrupt(1)]), &[(I8, 4, "interrupted twice")]);
}

#[test]
fn what_does_not_end_is_found() {
    let mut limits = Limits::default();
    (limits.retries, limits.pauses, limits.resumes) = (2, 2, 2);
    let count = |log: &[Event]| {
        let mut checker = LogChecker::new(limits);
        placed(log).for_each(|(seq, event)| checker.see(seq, event));
        checker.into_breaches().len()
    };
    let retries = |times: u32| step_with((2..2 + times).flat_map(|attempt| [retry(1, attempt), begun(1, attempt)]));
    let pauses = |times: u128| {
        let pause = |number| {
            [begun(number, 1), streamed(number, FinishReason::Pause).into(), ended_with(number, FinishReason::Pause)]
        };
        [vec![execution(1, 0)], (1..=times).flat_map(pause).collect()].concat()
    };
    let resumes = |times: u32| -> Vec<Event> { (0..=times).map(|resume| execution(1, resume)).collect() };
    assert_eq!([count(&retries(2)), count(&pauses(2)), count(&resumes(2))], [0, 0, 0]);
    assert_eq!([count(&retries(3)), count(&pauses(3)), count(&resumes(3))], [1, 1, 1]);
}

#[test]
fn a_long_log_is_checked_in_one_pass() {
    // A million events: were anything searched from the beginning, this would not end.
    const STEPS: u128 = 125_000;
    let mut checker = LogChecker::default();
    let mut seq = 0;
    for number in 1..=STEPS {
        let key = CallKey { step: step(number), ordinal: 0 };
        let mut events = done(key);
        events.insert(0, begun(number, 1));
        events.extend([over(number), ended(number)]);
        for event in &events {
            seq += 1;
            checker.see(Seq::new(seq), event);
        }
    }
    assert_eq!((seq, checker.breaches()), (1_000_000, &[][..]));
    // And a step of many calls.
    let mut checker = LogChecker::default();
    let mut log = step_with([]);
    (0..50_000).for_each(|ordinal| log.extend(done(call(ordinal))));
    placed(&log).for_each(|(seq, event)| checker.see(seq, event));
    assert_eq!(checker.breaches(), []);
}

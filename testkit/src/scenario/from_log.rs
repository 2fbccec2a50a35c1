//! A scenario made from a session's log: what the provider said, what the tools did, what people did and when.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value, json};
use settled_ledger::{
    AnswerKind, ArgumentsFault, CompactionReason, DecodeError, Delivery, Event, ExitKind, FailureCause, FailureClass,
    InteractionKind, Recorded, SessionFold, StepError, SyntheticReason, Timestamp,
};
use settled_provider_api::{ErrorClass, Usage};
use settled_tools_api::{CallKey, Content, MessageId, ReplayClass};

use super::parse::ParseError;
use super::show;
use crate::names::Names;

/// A log of which no scenario can be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FromLogError {
    /// There is nothing in it.
    Empty,
    /// A row does not read.
    Row(DecodeError),
    /// What was made of the log is no scenario: the log has something that a scenario cannot say.
    Unplayable(ParseError),
}

impl fmt::Display for FromLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the log is empty: there is nothing to play again"),
            Self::Row(error) => error.fmt(f),
            Self::Unplayable(error) => write!(f, "the log cannot be played again: {error}"),
        }
    }
}

impl std::error::Error for FromLogError {}

/// A scenario file in the order in which it is read.
#[derive(Serialize)]
struct File {
    name: String,
    why: String,
    model: Value,
    settings: Map<String, Value>,
    tools: BTreeMap<String, Value>,
    provider: Vec<Value>,
    script: Vec<Value>,
    expect: Value,
}

/// The scenario file of a log.
pub(super) fn file(log: &[Recorded]) -> Result<String, FromLogError> {
    let Some(first) = log.first() else { return Err(FromLogError::Empty) };
    let events: Vec<(Timestamp, Event)> = log
        .iter()
        .map(|row| row.event().map(|event| (row.at, event)).map_err(FromLogError::Row))
        .collect::<Result<_, _>>()?;
    let mut names = Names::default();
    events.iter().for_each(|(_, event)| names.see(event));

    let mut left_out = BTreeSet::new();
    let provider = Answers::of(&events, &mut left_out);
    let (tools, deadline) = tools(&events, &mut left_out);
    let script = Acts::of(&events, &names, &mut left_out);

    let mut settings = settings(&events);
    if let Some(deadline) = deadline {
        settings.insert("tool_deadline".to_owned(), json!(deadline));
    }
    let model = events.iter().find_map(|(_, event)| match event {
        Event::SessionCreated(created) => Some(created.model.model.to_string()),
        _ => None,
    });
    let mut why = format!("Made from the log of the session `{}`.", first.session);
    if !left_out.is_empty() {
        let left_out: Vec<String> = left_out.iter().cloned().collect();
        why = format!("{why} It leaves out: {}.", left_out.join("; "));
    }
    let file = File {
        name: format!("session {}", first.session),
        why,
        model: json!({"id": model.unwrap_or_else(|| "model".to_owned())}),
        settings,
        tools,
        provider,
        script,
        expect: expected(&events, &names, &left_out),
    };
    serde_json::to_string_pretty(&file).map_err(|_| FromLogError::Empty)
}

/// What must come out again: everything where nothing was left out, else how it ended.
fn expected(events: &[(Timestamp, Event)], names: &Names, left_out: &BTreeSet<String>) -> Value {
    let mut fold = SessionFold::new();
    let mut outcome = Value::Null;
    for (number, (_, event)) in events.iter().enumerate() {
        fold.apply(settled_ledger::Seq::new(number as u64 + 1), event);
        if let Event::ExecutionSettled(settled) = event {
            outcome = json!(settled.outcome.name());
        }
    }
    let mut expect = json!({"answer": fold.history.last_answer()});
    if let Some(fields) = expect.as_object_mut() {
        if !outcome.is_null() {
            fields.insert("outcome".to_owned(), outcome);
        }
        if left_out.is_empty() {
            let shown = events.iter().filter_map(|(_, event)| show::event(names, event)).collect();
            fields.insert("events".to_owned(), shown);
        }
    }
    expect
}

/// The settings that the log shows to be others than usual.
fn settings(events: &[(Timestamp, Event)]) -> Map<String, Value> {
    let mut settings = Map::new();
    if let Some(steps) = max_steps(events) {
        settings.insert("max_steps".to_owned(), json!(steps));
    }
    if let Some(limit) = parallel_tools(events) {
        settings.insert("parallel_tools".to_owned(), json!(limit));
    }
    let retries: Vec<(u32, u64)> = events
        .iter()
        .filter_map(|(_, event)| match event {
            Event::RetryScheduled(retry) => Some((retry.attempt.saturating_sub(1), retry.delay_ms)),
            _ => None,
        })
        .collect();
    let mut retry = Map::new();
    // A step that failed for good was not tried more often than any other was.
    if events.iter().any(|(_, event)| matches!(event, Event::StepFailed(_) | Event::CompactionFailed(_))) {
        retry.insert("max".to_owned(), json!(retries.iter().map(|(number, _)| *number).max().unwrap_or(0)));
    }
    // What is waited for doubles from the base; the provider may ask for more, never for less.
    let base = retries.iter().map(|(number, delay)| delay >> number.saturating_sub(1).min(16)).min();
    if let Some(base) = base.filter(|base| *base < 2_000) {
        retry.insert("base".to_owned(), json!(base));
    }
    if !retry.is_empty() {
        settings.insert("retry".to_owned(), Value::Object(retry));
    }
    let overflowed = events.iter().any(|(_, event)| {
        matches!(event, Event::StepFailed(failed) if failed.error.class == FailureClass::Provider(ErrorClass::ContextOverflow))
    });
    let recovered = events.iter().any(|(_, event)| {
        matches!(event, Event::CompactionStarted(started) if started.reason == CompactionReason::Overflow)
            || matches!(event, Event::CompactionFailed(failed) if failed.reason == CompactionReason::Overflow)
    });
    if overflowed && !recovered {
        settings.insert("compaction".to_owned(), json!({"on_overflow": false}));
    }
    settings
}

/// How many calls may run at once, where one had to wait for another.
fn parallel_tools(events: &[(Timestamp, Event)]) -> Option<usize> {
    let asked: BTreeSet<CallKey> = events
        .iter()
        .filter(|(_, event)| matches!(event, Event::InteractionRequested(_)))
        .filter_map(|(_, event)| event.call())
        .collect();
    let mut running: BTreeSet<CallKey> = BTreeSet::new();
    let (mut most, mut waited) = (0, false);
    let mut last: Option<&Event> = None;
    for (_, event) in events {
        match event {
            Event::ToolStarted(_) => {
                let at_once =
                    matches!(last, Some(Event::ToolCalled(_))) && last.and_then(|last| last.call()) == event.call();
                waited |= !at_once && event.call().is_some_and(|call| !asked.contains(&call));
                running.extend(event.call());
                most = most.max(running.len());
            }
            Event::ToolSuccess(_) | Event::ToolFailed(_) | Event::ToolUnknown(_) => {
                running.retain(|call| Some(*call) != event.call());
            }
            _ => {}
        }
        last = Some(event);
    }
    waited.then_some(most)
}

/// The most steps that may follow one another, where the log shows that it was reached.
fn max_steps(events: &[(Timestamp, Event)]) -> Option<u64> {
    let mut steps = 0;
    for (_, event) in events {
        match event {
            Event::InputPromoted(_) | Event::ExecutionStarted(_) => steps = 0,
            Event::StepStarted(started) if started.attempt == 1 && started.continues.is_none() => steps += 1,
            _ => {}
        }
        if matches!(event, Event::StepStarted(started) if started.last) {
            return Some(steps);
        }
    }
    None
}

/// Whether somebody has interrupted when nothing else happened.
fn is_timed(events: &[(Timestamp, Event)], number: usize) -> bool {
    let (at, event) = &events[number];
    let before = cause(events, number).map(|before| events[before].0.as_millis());
    matches!(event, Event::InterruptRecorded(_)) && before.is_some_and(|before| at.as_millis() > before)
}

/// The event that had happened last when somebody did something; what an interruption has stopped is recorded before it.
fn cause(events: &[(Timestamp, Event)], number: usize) -> Option<usize> {
    let mut before = number.checked_sub(1)?;
    if matches!(&events[before].1, Event::CompactionFailed(failed) if failed.error.class == FailureClass::Aborted) {
        before = before.checked_sub(1)?;
    }
    Some(before)
}

/// What the provider answered, one entry for each request.
#[derive(Default)]
struct Answers {
    entries: Vec<Value>,
    /// The stream that is under way.
    open: Option<Vec<Value>>,
    /// When the last item was taken, and whether a tool has ended since.
    taken: Option<Timestamp>,
    overtaken: bool,
    /// Whether waits matter everywhere: somebody has interrupted in the middle of one.
    timed: bool,
    /// A summary was asked for, and is not there yet.
    summarising: bool,
    /// How long the runner waited after a step had failed.
    delays: BTreeMap<MessageId, u64>,
    /// The steps whose interruption was recorded by now.
    stopped: BTreeSet<MessageId>,
}

impl Answers {
    fn of(events: &[(Timestamp, Event)], left_out: &mut BTreeSet<String>) -> Vec<Value> {
        let mut answers = Self::default();
        let mut calls: BTreeMap<CallKey, Made> = BTreeMap::new();
        for (_, event) in events {
            match event {
                Event::ToolFailed(failed) => {
                    let key = CallKey { step: failed.message, ordinal: failed.call };
                    calls.entry(key).or_default().detail = failed.detail;
                }
                Event::RetryScheduled(retry) => drop(answers.delays.insert(retry.message, retry.delay_ms)),
                _ => {}
            }
        }
        answers.timed = (1..events.len()).any(|number| is_timed(events, number));
        for (at, event) in events {
            answers.wait(*at, event, &calls);
            answers.take(event, &mut calls, left_out);
        }
        answers.died();
        answers.entries
    }

    fn item(&mut self, item: Value) {
        if let Some(stream) = &mut self.open {
            stream.push(item);
        }
    }

    /// How long nothing came, where that matters: something else has happened meanwhile.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other events are not the provider's")]
    fn wait(&mut self, at: Timestamp, event: &Event, calls: &BTreeMap<CallKey, Made>) {
        let hosted = event.call().and_then(|call| calls.get(&call)).is_some_and(|call| call.hosted);
        match event {
            Event::StepStarted(_) => {
                self.taken = Some(at);
                self.overtaken = false;
                return;
            }
            Event::ToolSuccess(_) | Event::ToolFailed(_) | Event::ToolUnknown(_) if !hosted => {
                self.overtaken = true;
                return;
            }
            Event::TextStarted(_)
            | Event::TextEnded(_)
            | Event::ReasoningStarted(_)
            | Event::ReasoningEnded(_)
            | Event::ToolInputStarted(_)
            | Event::ToolInputEnded(_)
            | Event::ToolCalled(_)
            | Event::ToolSuccess(_)
            | Event::ToolFailed(_) => {}
            // What ends a stream that hangs is not the provider.
            Event::StepStreamed(streamed) if streamed.exit == ExitKind::Completed => {}
            _ => return,
        }
        let Some(taken) = self.taken.replace(at) else { return };
        let passed = at.as_millis().saturating_sub(taken.as_millis());
        let stopped = event.message().is_some_and(|message| self.stopped.contains(&message));
        if passed > 0 && !stopped && (self.timed || std::mem::take(&mut self.overtaken)) {
            self.item(json!({"wait": passed}));
        }
    }

    /// The process has died: what it had asked for goes on for ever, and where nothing has come, it may not have asked.
    fn died(&mut self) {
        if self.open.as_ref().is_some_and(Vec::is_empty) {
            self.open = None;
        }
        self.close(json!({"hang": {}}));
    }

    /// A block of text or of reasoning that is closed; while it was open, other things may have come.
    fn block(&mut self, kind: &str, message: MessageId, ordinal: u32, text: &str, state: Option<&Value>) {
        let name = format!("{kind}{ordinal}");
        let start = json!({format!("{kind}_start"): name});
        let stopped = self.stopped.contains(&message);
        if let Some(stream) = &mut self.open
            && stream.last() == Some(&start)
            && !stopped
        {
            stream.pop();
            let whole = match (kind, state) {
                ("text", _) => json!(text),
                (_, None) => json!({"text": text}),
                (_, Some(state)) => json!({"text": text, "state": state}),
            };
            return self.item(json!({kind: whole}));
        }
        if !text.is_empty() {
            self.item(json!({format!("{kind}_delta"): [name, text]}));
        }
        // What an interruption has found open was never closed.
        if !stopped {
            self.item(json!({format!("{kind}_end"): name}));
        }
    }

    /// The stream that is under way is over, after a last item.
    fn close(&mut self, last: Value) {
        if let Some(mut stream) = self.open.take() {
            stream.push(last);
            self.entries.push(json!({"stream": stream}));
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other events are not the provider's")]
    fn take(&mut self, event: &Event, calls: &mut BTreeMap<CallKey, Made>, left_out: &mut BTreeSet<String>) {
        let mut made = event.call().map(|key| calls.entry(key).or_default().clone()).unwrap_or_default();
        match event {
            Event::StepStarted(_) => {
                self.died();
                self.open = Some(Vec::new());
            }
            Event::TextEnded(text) => {
                if text.state.is_some() {
                    left_out.insert("the provider's state of texts".to_owned());
                }
                self.block("text", text.message, text.ordinal, &text.text, None);
            }
            Event::ReasoningEnded(text) => {
                self.block("reasoning", text.message, text.ordinal, &text.text, text.state.as_ref());
            }
            Event::TextStarted(text) => self.item(json!({"text_start": format!("text{}", text.ordinal)})),
            Event::ReasoningStarted(text) => {
                self.item(json!({"reasoning_start": format!("reasoning{}", text.ordinal)}));
            }
            Event::InterruptRecorded(interrupt) => self.stopped.extend(interrupt.message),
            Event::MediaAdded(_) => drop(left_out.insert("media that the model made".to_owned())),
            Event::AnnotationAdded(_) => drop(left_out.insert("citations".to_owned())),
            Event::ToolInputStarted(started) => {
                made.id.clone_from(&started.id);
                made.name.clone_from(&started.name);
                made.hosted = started.hosted;
                let mut item = json!({"id": started.id, "name": started.name});
                if let (true, Some(fields)) = (started.hosted, item.as_object_mut()) {
                    fields.insert("hosted".to_owned(), json!(true));
                }
                self.item(json!({"input_start": item}));
            }
            Event::ToolInputEnded(ended) => {
                made.raw.clone_from(&ended.text);
                if !ended.text.is_empty() {
                    self.item(json!({"input_delta": [made.id, ended.text]}));
                }
                let cut = made.detail == Some(ArgumentsFault::CutOff) || self.stopped.contains(&ended.message);
                if !cut {
                    self.item(json!({"input_end": made.id}));
                }
            }
            Event::ToolCalled(called) => self.called(&made, &called.name, &called.input),
            Event::ToolFailed(failed) if failed.detail == Some(ArgumentsFault::NotJson) => {
                self.item(json!({"malformed": {"id": made.id, "name": made.name, "raw": made.raw}}));
            }
            Event::ToolSuccess(done) if made.hosted => {
                self.item(json!({"hosted_result": {"id": made.id, "content": content(&done.content)}}));
            }
            Event::ToolFailed(failed) if made.hosted && failed.cause == FailureCause::Execution => {
                self.item(json!({"hosted_error": {"id": made.id, "message": show::text(&failed.content)}}));
            }
            Event::StepStreamed(streamed) => {
                match &streamed.failure {
                    Some(failure) if streamed.exit == ExitKind::Completed && streamed.broken => {
                        if let FailureClass::Provider(class) = failure.class {
                            self.item(json!({"error": {"class": class.name(), "message": failure.message}}));
                        }
                    }
                    _ => {}
                }
                if let Some(finish) = streamed.finish {
                    let mut item = json!({"reason": finish.name()});
                    if let Some(fields) = item.as_object_mut() {
                        if let Some(raw) = &streamed.raw_finish {
                            fields.insert("raw".to_owned(), json!(raw));
                        }
                        if let Some(usage) = &streamed.usage {
                            fields.insert("usage".to_owned(), self::usage(usage));
                        }
                    }
                    self.item(json!({"finish": item}));
                }
                match (&streamed.exit, &streamed.failure) {
                    // Where nothing had come and no time had passed, nothing was asked for.
                    (ExitKind::Interrupted, _) if !self.timed => self.died(),
                    (ExitKind::Interrupted, _) => self.close(json!({"hang": {}})),
                    (ExitKind::Failed, Some(failure)) => {
                        let delay = self.delays.get(&streamed.message).copied();
                        self.close(ends_with(failure, delay));
                    }
                    _ => {
                        if let Some(stream) = self.open.take() {
                            self.entries.push(json!({"stream": stream}));
                        }
                    }
                }
            }
            Event::RetryScheduled(retry) => self.close(ends_with(&retry.error, Some(retry.delay_ms))),
            Event::CompactionStarted(_) => {
                self.close(json!({"throw": {"class": "context_overflow"}}));
                self.summarising = true;
            }
            Event::ExecutionStarted(started) if started.resume > 0 => self.died(),
            Event::CompactionEnded(ended) => {
                self.summarising = false;
                let mut finish = json!({"reason": "stop"});
                if let (Some(usage), Some(fields)) = (&ended.usage, finish.as_object_mut()) {
                    fields.insert("usage".to_owned(), self::usage(usage));
                }
                let stream = [json!({"text": ended.text}), json!({"finish": finish})];
                self.entries.push(json!({"for": "summary", "stream": stream}));
            }
            Event::CompactionFailed(failed) => {
                let stream = match failed.error.class {
                    // There was nothing to summarise.
                    _ if !std::mem::take(&mut self.summarising) => return,
                    FailureClass::Aborted if !self.timed => return,
                    FailureClass::Aborted => json!({"hang": {}}),
                    // What came was no summary.
                    FailureClass::Compaction => {
                        let cut = failed.error.message.contains("`length`");
                        json!({"finish": {"reason": if cut { "length" } else { "stop" }}})
                    }
                    _ => ends_with(&failed.error, None),
                };
                self.entries.push(json!({"for": "summary", "stream": [stream]}));
            }
            _ => {}
        }
        if let Some(key) = event.call() {
            calls.insert(key, made);
        }
    }

    /// A complete call; what came of its arguments before is part of it.
    fn called(&mut self, made: &Made, name: &str, input: &Value) {
        let whole = [json!({"input_delta": [made.id, input.to_string()]}), json!({"input_end": made.id})];
        let mut call = json!({"id": made.id, "name": name, "input": input});
        if let Some(stream) = &mut self.open
            && stream.len() >= 3
            && stream[stream.len() - 2..] == whole
        {
            let start = stream.len() - 3;
            if stream[start].get("input_start").is_some_and(|start| start["id"] == json!(made.id)) {
                stream.truncate(start);
                return self.item(json!({if made.hosted { "hosted" } else { "call" }: call}));
            }
        }
        if let (true, Some(fields)) = (made.hosted, call.as_object_mut()) {
            fields.insert("hosted".to_owned(), json!(true));
        }
        self.item(json!({"called": call}));
    }
}

/// What is known of a call while its stream is read.
#[derive(Clone, Default)]
struct Made {
    id: String,
    name: String,
    hosted: bool,
    raw: String,
    detail: Option<ArgumentsFault>,
}

/// The end of a stream that fails.
fn ends_with(failure: &StepError, retry_after: Option<u64>) -> Value {
    match failure.class {
        // The provider did nothing: the runner has lost its patience.
        FailureClass::Provider(ErrorClass::Timeout) => json!({"hang": {}}),
        FailureClass::Provider(ErrorClass::InvalidOutput) if failure.message.contains("broke the stream protocol") => {
            json!({"text_delta": ["never opened", "lost"]})
        }
        FailureClass::Provider(class) => {
            let mut error = json!({"class": class.name(), "message": failure.message});
            if let (Some(after), Some(fields)) = (retry_after, error.as_object_mut()) {
                fields.insert("retry_after".to_owned(), json!(after));
            }
            json!({"throw": error})
        }
        FailureClass::Internal => json!({"panic": failure.message}),
        _ => json!({"throw": {"class": "unknown", "message": failure.message}}),
    }
}

fn usage(usage: &Usage) -> Value {
    let mut shown = show::usage(Some(usage));
    if let Some(fields) = shown.as_object_mut() {
        fields.retain(|_, count| !count.is_null());
    }
    shown
}

/// Content as a scenario writes it: a text, or its parts.
fn content(content: &[Content]) -> Value {
    match content {
        [Content::Text(text)] => json!(text),
        parts => parts
            .iter()
            .map(|part| match part {
                Content::Text(text) => json!({"text": text}),
                Content::Media(media) => json!({"media": media.mime}),
            })
            .collect(),
    }
}

/// What the reconciler of a scripted tool gives for a call that has happened.
const HAPPENED: &str = "It had happened.";

/// One tool, as far as its calls show it.
#[derive(Default)]
struct Tool {
    replay: Option<ReplayClass>,
    asks: bool,
    denied: bool,
    /// What its reconciler has found.
    reconciled: Option<&'static str>,
    runs: Vec<Vec<Value>>,
}

/// A run of a tool that is under way.
struct Run {
    tool: String,
    place: usize,
    began: Timestamp,
    /// Its process has died, and its reconciler was asked.
    reconciled: bool,
}

/// What the tools did, and the deadline that one of them has missed, in milliseconds.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other events are not about tools")]
fn tools(events: &[(Timestamp, Event)], left_out: &mut BTreeSet<String>) -> (BTreeMap<String, Value>, Option<u64>) {
    let mut tools: BTreeMap<String, Tool> = BTreeMap::new();
    let mut called: BTreeMap<CallKey, (String, Option<ReplayClass>)> = BTreeMap::new();
    let mut running: BTreeMap<CallKey, Run> = BTreeMap::new();
    let mut deadline = None;
    // A call that is never polled takes no run.
    let not_run: BTreeSet<CallKey> = events
        .iter()
        .filter(|(_, event)| matches!(event, Event::ToolFailed(failed) if failed.cause == FailureCause::NotRun))
        .filter_map(|(_, event)| event.call())
        .collect();
    for (at, event) in events {
        if let Event::ExecutionStarted(started) = event
            && started.resume > 0
        {
            // What ran is gone with its process; what may run again does so.
            for (key, run) in &mut running {
                let again = called.get(key).and_then(|(_, replay)| *replay);
                if let Some(tool) = tools.get_mut(&run.tool) {
                    tool.runs[run.place].push(json!({"hang": {}}));
                    if again == Some(ReplayClass::Reconcile) {
                        run.reconciled = true;
                    }
                    if matches!(again, Some(ReplayClass::Pure | ReplayClass::Idempotent { .. })) {
                        run.place = tool.runs.len();
                        run.began = *at;
                        tool.runs.push(Vec::new());
                    }
                }
            }
        }
        let Some(key) = event.call() else { continue };
        match event {
            Event::ToolCalled(call) if !call.hosted => {
                called.insert(key, (call.name.clone(), call.replay));
                if call.replay.is_some() {
                    tools.entry(call.name.clone()).or_default().replay = call.replay;
                }
            }
            Event::InteractionRequested(asked) => {
                let Some((name, _)) = called.get(&key) else { continue };
                match asked.kind {
                    InteractionKind::Approval => tools.entry(name.clone()).or_default().asks = true,
                    _ => {
                        if let Some(run) = running.get(&key)
                            && let Some(tool) = tools.get_mut(&run.tool)
                        {
                            tool.runs[run.place].push(json!({"ask": asked.text}));
                        }
                    }
                }
            }
            Event::InteractionAnswered(_) => {
                if let Some(run) = running.get_mut(&key) {
                    run.began = *at;
                }
            }
            Event::ToolStarted(_) if !not_run.contains(&key) => {
                let Some((name, _)) = called.get(&key) else { continue };
                let tool = tools.entry(name.clone()).or_default();
                running.insert(key, Run { tool: name.clone(), place: tool.runs.len(), began: *at, reconciled: false });
                tool.runs.push(Vec::new());
            }
            Event::ToolNoted(noted) => {
                if let Some(run) = running.get(&key)
                    && let Some(tool) = tools.get_mut(&run.tool)
                {
                    tool.runs[run.place].push(json!({"note": noted.note}));
                }
            }
            Event::ToolSuccess(_) | Event::ToolFailed(_) | Event::ToolUnknown(_) => {
                if let (Event::ToolFailed(failed), Some((name, _))) = (event, called.get(&key))
                    && failed.cause == FailureCause::Denied
                {
                    tools.entry(name.clone()).or_default().denied = true;
                }
                if let Event::ToolFailed(failed) = event {
                    if failed.detail == Some(ArgumentsFault::Schema) {
                        left_out.insert("the schemas of tools, which a call did not fit".to_owned());
                    }
                    if failed.cause == FailureCause::UnknownTool {
                        left_out.insert("the tools that were never called".to_owned());
                    }
                }
                let Some(run) = running.remove(&key) else { continue };
                let took = u64::try_from(at.as_millis().saturating_sub(run.began.as_millis())).unwrap_or(0);
                if matches!(event, Event::ToolFailed(failed) if failed.cause == FailureCause::Timeout) {
                    deadline = Some(deadline.unwrap_or(took).min(took));
                }
                let Some(tool) = tools.get_mut(&run.tool) else { continue };
                match event {
                    // The reconciler of a scripted tool says always the same.
                    Event::ToolSuccess(done) if run.reconciled && show::text(&done.content) == HAPPENED => {
                        tool.reconciled = Some("happened");
                    }
                    Event::ToolUnknown(_) if run.reconciled => {}
                    _ if run.reconciled => {
                        tool.reconciled = Some("did_not");
                        tool.runs.push(Vec::new());
                        ends_run(tool.runs.last_mut().unwrap_or(&mut Vec::new()), 0, event);
                    }
                    _ => ends_run(&mut tool.runs[run.place], took, event),
                }
            }
            _ => {}
        }
    }
    let shown = tools.into_iter().map(|(name, tool)| (name, shown_tool(tool))).collect();
    (shown, deadline)
}

/// The end of a run, after so many milliseconds.
#[expect(clippy::wildcard_enum_match_arm, reason = "whoever ends otherwise was stopped")]
fn ends_run(run: &mut Vec<Value>, took: u64, event: &Event) {
    if run.last().is_some_and(|last| last.get("hang").is_some()) {
        return;
    }
    let end = match event {
        Event::ToolSuccess(done) => json!({"ok": content(&done.content)}),
        Event::ToolUnknown(unknown) => json!({"unknown": show::text(&unknown.content)}),
        Event::ToolFailed(failed) => {
            let text = show::text(&failed.content);
            match failed.cause {
                FailureCause::Execution => json!({"fail": text}),
                FailureCause::Panic => json!({"panic": why(&text)}),
                FailureCause::Infra => json!({"infra": why(&text)}),
                FailureCause::Declined => json!({"decline": why(&text)}),
                FailureCause::Dismissed if run.iter().all(|action| action.get("ask").is_none()) => {
                    json!({"dismiss": {}})
                }
                _ => json!({"hang": {}}),
            }
        }
        _ => return,
    };
    if took > 0 && end.get("hang").is_none() {
        run.push(json!({"sleep": took}));
    }
    run.push(end);
}

/// What a tool said of itself, in the words with which the model is told: `The tool crashed: <this>. It may have acted: ….`
fn why(text: &str) -> &str {
    let text = text.strip_suffix(". It may have acted: check before you call it again.").unwrap_or(text);
    let text = text.strip_suffix('.').unwrap_or(text);
    let known =
        ["The tool crashed", "The tool could not be run: the machine it runs on failed", "The user declined this call"];
    match known.iter().find_map(|known| text.strip_prefix(known)) {
        Some(rest) => rest.strip_prefix(": ").unwrap_or(rest),
        None => text,
    }
}

fn shown_tool(tool: Tool) -> Value {
    let mut runs = tool.runs;
    for run in &mut runs {
        if run.is_empty() {
            run.push(json!({"hang": {}}));
        }
    }
    if runs.is_empty() {
        runs.push(vec![json!({"ok": "done"})]);
    }
    let mut shown = json!({"runs": runs});
    if let Some(fields) = shown.as_object_mut() {
        if let Some(replay) = tool.replay {
            fields.insert("replay".to_owned(), json!(replay.name()));
        }
        if let Some(found) = tool.reconciled {
            fields.insert("reconciled".to_owned(), json!(found));
        }
        if tool.denied {
            fields.insert("policy".to_owned(), json!("deny"));
        } else if tool.asks {
            fields.insert("policy".to_owned(), json!("ask"));
        }
    }
    shown
}

/// What people did, and when.
#[derive(Default)]
struct Acts {
    script: Vec<Value>,
    /// What has happened before the present run began.
    before: Vec<Value>,
    /// What happens in it.
    armed: Vec<Value>,
    /// How many events of each kind, and of each kind and call, have landed in it.
    landed: BTreeMap<(String, Option<String>), u64>,
    /// Whether the log is inside an execution, and whether somebody has to run the session for it to go on.
    running: Running,
    /// The calls that wait for a person.
    waiting: BTreeSet<CallKey>,
    /// The calls whose tools are at work.
    working: BTreeSet<CallKey>,
    /// The calls that were never polled, although they were started.
    not_run: BTreeSet<CallKey>,
    /// Whether the stream of the last step is over.
    streamed: bool,
    /// A summary was asked for, and is not there yet.
    summarising: bool,
    /// When the present run began.
    began: Option<Timestamp>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Running {
    #[default]
    No,
    Yes,
    /// It goes on by itself.
    ByItself,
}

impl Acts {
    #[expect(clippy::wildcard_enum_match_arm, reason = "nobody has to do anything for the other events")]
    fn of(events: &[(Timestamp, Event)], names: &Names, left_out: &mut BTreeSet<String>) -> Vec<Value> {
        let not_run = events
            .iter()
            .filter(|(_, event)| matches!(event, Event::ToolFailed(failed) if failed.cause == FailureCause::NotRun))
            .filter_map(|(_, event)| event.call())
            .collect();
        let mut acts = Self { not_run, ..Self::default() };
        let mut last: Option<&Event> = None;
        for (number, (at, event)) in events.iter().enumerate() {
            if acts.landed.is_empty() {
                acts.began = Some(*at);
            }
            match event {
                Event::ExecutionStarted(started) => {
                    if acts.running != Running::No && started.resume > 0 {
                        acts.after(last, names, json!({"crash": {}}));
                        acts.run();
                    }
                    acts.running = Running::Yes;
                }
                Event::ExecutionSettled(_) => {
                    if acts.running == Running::ByItself {
                        acts.stand();
                    } else {
                        acts.run();
                    }
                    acts.running = Running::No;
                }
                Event::InputPromoted(input) => {
                    if input.content.iter().any(|part| matches!(part, Content::Media(_))) {
                        left_out.insert("media that people sent".to_owned());
                    }
                    let mut act = json!({"prompt": show::text(&input.content)});
                    if let (Delivery::Queue, Some(fields)) = (input.delivery, act.as_object_mut()) {
                        fields.insert("delivery".to_owned(), json!("queue"));
                    }
                    acts.meanwhile(act);
                }
                Event::ModelSelected(selected)
                    if last.is_some_and(|last| !matches!(last, Event::SessionCreated(_))) =>
                {
                    acts.meanwhile(json!({"model": {"id": selected.model.model}}));
                }
                Event::CompactionStarted(started) => match started.reason {
                    CompactionReason::Manual => acts.meanwhile(json!({"compact": {}})),
                    CompactionReason::Auto => {
                        left_out.insert("that a summary was made by itself (somebody asks for it)".to_owned());
                        acts.meanwhile(json!({"compact": {}}));
                    }
                    _ => {}
                },
                Event::CompactionFailed(failed) if failed.reason == CompactionReason::Manual && !acts.summarising => {
                    // There was nothing to summarise.
                    acts.meanwhile(json!({"compact": {}}));
                }
                Event::InterruptRecorded(_) => {
                    let act = json!({"interrupt": {}});
                    if acts.parked() {
                        acts.park();
                        acts.before.push(act);
                        // It settles the step at once.
                        acts.running = Running::ByItself;
                    } else if is_timed(events, number) {
                        let began = acts.began.map_or(0, Timestamp::as_millis);
                        acts.armed.push(json!({"start": {}}));
                        acts.armed.push(json!({"advance": at.as_millis().saturating_sub(began)}));
                        acts.armed.push(act);
                        acts.running = Running::ByItself;
                    } else {
                        match acts.live(&events[number..]) {
                            Some((kind, nth)) => acts.when(json!({"live": kind}), nth, act),
                            None => acts.after(cause(events, number).map(|before| &events[before].1), names, act),
                        }
                    }
                }
                Event::InteractionAnswered(answered) => {
                    let label = event.call().map(|call| names.label(call)).unwrap_or_default();
                    let act = match answered.answer {
                        AnswerKind::Approved => json!({"approve": label}),
                        AnswerKind::Declined => match &answered.text {
                            Some(feedback) => json!({"decline": label, "feedback": feedback}),
                            None => json!({"decline": label}),
                        },
                        AnswerKind::Dismissed => json!({"dismiss": label}),
                        _ => json!({"answer": [label, answered.text.clone().unwrap_or_default()]}),
                    };
                    if acts.parked() {
                        acts.park();
                        acts.before.push(act);
                    } else {
                        acts.after(last, names, act);
                    }
                }
                Event::AgentSelected(_) if last.is_some_and(|last| !matches!(last, Event::SessionCreated(_))) => {
                    left_out.insert("a switch to another agent".to_owned());
                }
                Event::InstructionsUpdated(_) => drop(left_out.insert("instructions that changed".to_owned())),
                Event::Synthetic(said) if said.reason == SyntheticReason::Application => {
                    left_out.insert("what the application said in a person's place".to_owned());
                }
                _ => {}
            }
            acts.count(event, names);
            last = Some(event);
        }
        match acts.running {
            Running::Yes if acts.parked() => acts.run(),
            Running::Yes => {
                // The log ends in the middle: so did the process, as far as anybody knows.
                acts.after(last, names, json!({"crash": {}}));
                acts.run();
            }
            Running::No | Running::ByItself => {}
        }
        acts.stand();
        acts.script
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other events are only counted")]
    fn count(&mut self, event: &Event, names: &Names) {
        match event {
            Event::StepStarted(_) => self.streamed = false,
            Event::StepStreamed(_) => self.streamed = true,
            Event::CompactionStarted(_) => self.summarising = true,
            Event::CompactionEnded(_) | Event::CompactionFailed(_) => self.summarising = false,
            Event::InteractionRequested(_) => self.waiting.extend(event.call()),
            Event::InteractionAnswered(_) => self.waiting.retain(|call| Some(*call) != event.call()),
            Event::ToolStarted(_) => self.working.extend(event.call()),
            Event::ToolSuccess(_) | Event::ToolFailed(_) | Event::ToolUnknown(_) => {
                self.working.retain(|call| Some(*call) != event.call());
                self.waiting.retain(|call| Some(*call) != event.call());
            }
            _ => {}
        }
        let label = event.call().map(|call| names.label(call));
        *self.landed.entry((event.kind().to_owned(), None)).or_default() += 1;
        if label.is_some() {
            *self.landed.entry((event.kind().to_owned(), label)).or_default() += 1;
        }
    }

    /// Whether the session does nothing until somebody answers.
    fn parked(&self) -> bool {
        self.streamed && !self.waiting.is_empty() && self.working.is_subset(&self.waiting)
    }

    /// The run that led to where the session waits is over, unless nothing has happened since somebody answered.
    fn park(&mut self) {
        if !self.landed.is_empty() {
            self.run();
        }
    }

    /// The present run is over.
    fn run(&mut self) {
        self.script.append(&mut self.before);
        self.script.append(&mut self.armed);
        self.script.push(json!({"run": {}}));
        self.landed.clear();
    }

    /// What was done needs nobody to run the session.
    fn stand(&mut self) {
        self.script.append(&mut self.before);
        self.script.append(&mut self.armed);
        self.landed.clear();
    }

    /// The delta that an interruption came after, where it found blocks open: of which kind, and its number in the run.
    fn live(&self, rest: &[(Timestamp, Event)]) -> Option<(&'static str, u64)> {
        let closed = |kind: &str| self.landed.get(&(kind.to_owned(), None)).copied().unwrap_or_default();
        let mut found = None;
        for (_, event) in rest {
            let (kind, live) = match event {
                Event::TextEnded(text) if !text.text.is_empty() => ("text.ended", "text.delta"),
                Event::ReasoningEnded(text) if !text.text.is_empty() => ("reasoning.ended", "reasoning.delta"),
                Event::ToolInputEnded(input) if !input.text.is_empty() => ("tool.input.ended", "tool.input.delta"),
                Event::StepStreamed(_) | Event::StepFailed(_) | Event::StepEnded(_) | Event::StepStarted(_) => break,
                _ => continue,
            };
            let open = match found {
                Some((same, number)) if same == live => number,
                _ => closed(kind),
            };
            found = Some((live, open + 1));
        }
        found
    }

    /// Somebody does something before the run, or, if a step has begun in it, while the last of its steps runs.
    fn meanwhile(&mut self, act: Value) {
        match self.landed.get(&("step.started".to_owned(), None)).copied() {
            None => self.before.push(act),
            Some(nth) => self.when(json!({"event": "step.started"}), nth, act),
        }
    }

    /// Something is done right after an event; after the start of a tool, when it has had its first poll.
    fn after(&mut self, last: Option<&Event>, names: &Names, act: Value) {
        let Some(last) = last else { return self.before.push(act) };
        let label = last.call().map(|call| names.label(call));
        if let (Event::ToolStarted(_), Some(label), Some(call)) = (last, &label, last.call())
            && !self.not_run.contains(&call)
        {
            return self.armed.push(json!({"when": {"running": label}, "do": act}));
        }
        let Some(nth) = self.landed.get(&(last.kind().to_owned(), label.clone())).copied() else {
            return self.before.push(act);
        };
        let trigger = match label {
            Some(label) => json!({"event": last.kind(), "call": label}),
            None => json!({"event": last.kind()}),
        };
        self.when(trigger, nth, act);
    }

    fn when(&mut self, mut trigger: Value, nth: u64, act: Value) {
        if let (true, Some(fields)) = (nth > 1, trigger.as_object_mut()) {
            fields.insert("nth".to_owned(), json!(nth));
        }
        self.armed.push(json!({"when": trigger, "do": act}));
    }
}

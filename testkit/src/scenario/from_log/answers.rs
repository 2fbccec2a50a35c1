//! What the provider of a log answered.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use settled_ledger::{ArgumentsFault, Event, ExitKind, FailureCause, FailureClass, StepError, Timestamp};
use settled_provider_api::{ErrorClass, Usage};
use settled_tools_api::{CallKey, MessageId};

use super::{content, is_timed, show};

/// What the provider answered, one entry for each request.
#[derive(Default)]
pub(super) struct Answers {
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
    pub(super) fn of(events: &[(Timestamp, Event)], left_out: &mut BTreeSet<String>) -> Vec<Value> {
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

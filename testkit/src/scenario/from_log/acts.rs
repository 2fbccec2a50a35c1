//! What people did in the session of a log, and when.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use settled_ledger::{AnswerKind, CompactionReason, Delivery, Event, FailureCause, SyntheticReason, Timestamp};
use settled_tools_api::{CallKey, Content};

use super::{cause, is_timed, show};
use crate::names::Names;

/// What people did, and when.
#[derive(Default)]
pub(super) struct Acts {
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
    pub(super) fn of(events: &[(Timestamp, Event)], names: &Names, left_out: &mut BTreeSet<String>) -> Vec<Value> {
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

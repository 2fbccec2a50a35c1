//! Checking a log (all but I3).

use std::collections::{BTreeMap, BTreeSet};

use settled_provider_api::FinishReason;
use settled_tools_api::{CallKey, MessageId, ReplayClass};

use super::{Breach, Invariant};
use crate::event::*;
use crate::{ExecutionId, InputId, Recorded, Seq, Settlement};

/// Checks a session's log, or any prefix of it, with the usual limits.
///
/// Events of unknown kinds are passed over.
pub fn check_log(log: &[Recorded]) -> Vec<Breach> {
    let mut checker = LogChecker::default();
    for row in log {
        checker.see_row(row);
    }
    checker.into_breaches()
}

/// Checks events at their places, as [`check_log`] does.
pub fn check_events<'a>(events: impl IntoIterator<Item = (Seq, &'a Event)>) -> Vec<Breach> {
    let mut checker = LogChecker::default();
    for (seq, event) in events {
        checker.see(seq, event);
    }
    checker.into_breaches()
}

/// How often something may happen before the checker says that it does not end.
///
/// They are generous: a runner's own limits are lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Retries and continuations of a logical step.
    pub retries: u32,
    /// Recoveries from an overflow in a logical step.
    pub recoveries: u32,
    /// Steps of an execution that the provider has paused.
    pub pauses: u32,
    /// How often an execution is taken up again.
    pub resumes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { retries: 100, recoveries: 1, pauses: 100, resumes: 100 }
    }
}

/// Checks a log event by event, so that a long one need not be held whole.
#[derive(Clone, Debug, Default)]
pub struct LogChecker {
    limits: Limits,
    created: bool,
    inputs: BTreeSet<InputId>,
    execution: Option<OpenExecution>,
    step: Option<OpenStep>,
    /// Every step that has its terminal.
    closed: BTreeSet<MessageId>,
    /// The last step, if it failed and nothing has started since: it may have its retry.
    failed: Option<MessageId>,
    /// Hosted calls that a paused step has left open.
    carried: BTreeSet<CallKey>,
    budget: Budget,
    compaction: Option<CompactionReason>,
    found: Found,
}

/// What was found, and where the checker is.
#[derive(Clone, Debug, Default)]
struct Found {
    seq: Seq,
    breaches: Vec<Breach>,
}

impl Found {
    fn breach(&mut self, invariant: Invariant, what: String) {
        self.breaches.push(Breach { invariant, seq: Some(self.seq), what });
    }
}

/// What a logical step has used.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    retries: u32,
    recoveries: u32,
}

#[derive(Clone, Debug)]
struct OpenExecution {
    id: ExecutionId,
    resume: u32,
    pauses: u32,
    /// Whether somebody wants it to stop.
    interrupted: bool,
    /// Whether its last step failed.
    failed: bool,
}

#[derive(Clone, Debug)]
struct OpenStep {
    facts: StepFacts,
    texts: Fragments,
    reasonings: Fragments,
    /// By ordinal.
    calls: BTreeMap<u32, CallFacts>,
}

/// What the log says about a step.
#[derive(Clone, Debug)]
struct StepFacts {
    message: MessageId,
    attempt: u32,
    last: bool,
    /// Whether anything of the answer is recorded.
    produced: bool,
    /// Whether a retry is scheduled, or an overflow recovered from, since the last attempt.
    due: bool,
    interrupted: bool,
    streamed: Option<StepStreamed>,
}

/// The blocks of one kind.
#[derive(Clone, Debug, Default)]
struct Fragments {
    started: u32,
    open: BTreeSet<u32>,
}

/// What the log says about a call.
#[derive(Clone, Debug)]
struct CallFacts {
    key: CallKey,
    hosted: bool,
    input_ended: bool,
    called: bool,
    replay: Option<ReplayClass>,
    started: bool,
    asked: Option<InteractionKind>,
    refused: bool,
    outcome: bool,
    /// Why its step cannot be clean, if it cannot.
    disrupts: Option<&'static str>,
}

impl LogChecker {
    /// A checker at the beginning of a log, with limits of its own.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes in the next row; one that does not read is a breach.
    pub fn see_row(&mut self, row: &Recorded) {
        match row.event() {
            Ok(event) => self.see(row.seq, &event),
            Err(error) => {
                self.place(row.seq);
                self.found.breach(Invariant::I6, error.to_string());
            }
        }
    }

    /// Takes in the next event.
    pub fn see(&mut self, seq: Seq, event: &Event) {
        self.place(seq);
        match event {
            Event::SessionCreated(_) => {
                if std::mem::replace(&mut self.created, true) {
                    self.found.breach(Invariant::I6, "the session is created twice".to_owned());
                }
            }
            Event::ExecutionStarted(started) => self.execution_started(started),
            Event::ExecutionSettled(settled) => self.execution_settled(settled),
            Event::InputPromoted(promoted) => {
                if !self.inputs.insert(promoted.input) {
                    self.found.breach(Invariant::I5, format!("input {} is promoted twice", promoted.input));
                }
            }
            Event::StepStarted(started) => self.step_started(started),
            Event::StepEnded(_) | Event::StepFailed(_) => self.terminal(event),
            Event::RetryScheduled(scheduled) => self.retry_scheduled(scheduled),
            Event::InterruptRecorded(recorded) => self.interrupted(recorded),
            Event::CompactionStarted(started) => self.compaction_started(started),
            Event::CompactionEnded(ended) => self.compaction_ended(ended),
            Event::CompactionFailed(failed) => self.compaction_over(failed.reason),
            Event::TextStarted(_)
            | Event::TextEnded(_)
            | Event::ReasoningStarted(_)
            | Event::ReasoningEnded(_)
            | Event::MediaAdded(_)
            | Event::AnnotationAdded(_)
            | Event::StepStreamed(_)
            | Event::ToolInputStarted(_)
            | Event::ToolInputEnded(_)
            | Event::ToolCalled(_)
            | Event::ToolStarted(_)
            | Event::ToolNoted(_)
            | Event::ToolSuccess(_)
            | Event::ToolFailed(_)
            | Event::ToolUnknown(_)
            | Event::InteractionRequested(_)
            | Event::InteractionAnswered(_) => self.in_step(event),
            Event::AgentSelected(_)
            | Event::ModelSelected(_)
            | Event::Synthetic(_)
            | Event::InstructionsUpdated(_)
            | Event::Unknown(_) => {}
        }
    }

    /// The breaches so far, in the order of the log.
    pub fn breaches(&self) -> &[Breach] {
        &self.found.breaches
    }

    /// The breaches that were found, in the order of the log.
    pub fn into_breaches(self) -> Vec<Breach> {
        self.found.breaches
    }

    fn place(&mut self, seq: Seq) {
        let expected = self.found.seq.plus(1);
        self.found.seq = seq;
        if seq != expected {
            self.found.breach(Invariant::I6, format!("event {expected} was to come next, and {seq} came"));
        }
    }
}

/// Executions and compactions.
impl LogChecker {
    fn execution_started(&mut self, started: &ExecutionStarted) {
        let ExecutionStarted { execution, resume } = *started;
        let (mut pauses, mut interrupted, mut failed) = (0, false, false);
        match &self.execution {
            Some(open) if open.id != execution => {
                let what = format!("{execution} starts while {} has not settled", open.id);
                self.found.breach(Invariant::I7, what);
            }
            Some(open) => {
                if resume <= open.resume {
                    let what = format!("{execution} is taken up as number {resume} after number {}", open.resume);
                    self.found.breach(Invariant::I7, what);
                }
                (pauses, interrupted, failed) = (open.pauses, open.interrupted, open.failed);
            }
            None => {}
        }
        if resume > self.limits.resumes {
            self.found.breach(Invariant::I7, format!("{execution} is taken up {resume} times"));
        }
        self.execution = Some(OpenExecution { id: execution, resume, pauses, interrupted, failed });
    }

    fn execution_settled(&mut self, settled: &ExecutionSettled) {
        let id = settled.execution;
        match self.execution.take() {
            Some(open) if open.id == id => {
                if settled.outcome == Outcome::Completed && open.failed {
                    self.found.breach(Invariant::I4, format!("{id} is completed and its last step failed"));
                }
            }
            Some(open) => self.found.breach(Invariant::I7, format!("{id} settles while {} runs", open.id)),
            None => self.found.breach(Invariant::I7, format!("{id} settles and has not started")),
        }
        if let Some(step) = self.step.as_ref().filter(|_| settled.outcome != Outcome::Parked) {
            let what = format!("{id} settles while step {} has no terminal", step.facts.message);
            self.found.breach(Invariant::I4, what);
            self.close_step();
        }
        if self.compaction.take().is_some() {
            self.found.breach(Invariant::I7, format!("{id} settles while a compaction runs"));
        }
        self.budget = Budget::default();
    }

    fn interrupted(&mut self, recorded: &InterruptRecorded) {
        if let Some(execution) = &mut self.execution {
            // A process that shuts down stops the step, and hands the execution over.
            execution.interrupted |= recorded.by != InterruptedBy::Shutdown;
        }
        let Some(message) = recorded.message else { return };
        match &mut self.step {
            Some(step) if step.facts.message == message => {
                if std::mem::replace(&mut step.facts.interrupted, true) {
                    self.found.breach(Invariant::I8, format!("step {message} is interrupted twice"));
                }
            }
            Some(_) | None => self.not_open(message, "interrupt.recorded"),
        }
    }

    fn compaction_started(&mut self, started: &CompactionStarted) {
        if self.compaction.replace(started.reason).is_some() {
            self.found.breach(Invariant::I7, "a compaction starts while another runs".to_owned());
        }
    }

    fn compaction_ended(&mut self, ended: &CompactionEnded) {
        let (reason, word) = (ended.reason, ended.reason.name());
        if self.compaction.is_none() {
            self.found.breach(Invariant::I7, format!("a compaction ({word}) ended and never started"));
        }
        self.compaction_over(reason);
        let Some(step) = &mut self.step else { return };
        step.facts.due = true;
        if step.facts.produced || step.facts.streamed.is_some() || reason != CompactionReason::Overflow {
            let what = format!("a compaction ({word}) ends while step {} is open", step.facts.message);
            self.found.breach(Invariant::I6, what);
        }
        self.budget.recoveries += 1;
        if self.budget.recoveries > self.limits.recoveries {
            let (message, times) = (step.facts.message, self.budget.recoveries);
            self.found.breach(Invariant::I7, format!("step {message} recovers from an overflow {times} times"));
        }
    }

    /// Where nothing can be summarised a failure stands alone: no summary was asked for.
    fn compaction_over(&mut self, reason: CompactionReason) {
        if let Some(started) = self.compaction.take().filter(|started| *started != reason) {
            let (started, over) = (started.name(), reason.name());
            let what = format!("a compaction ({started}) was started, and another ({over}) is over");
            self.found.breach(Invariant::I7, what);
        }
    }
}

/// Steps.
impl LogChecker {
    fn step_started(&mut self, started: &StepStarted) {
        let StepStarted { message, attempt, continues, last, .. } = *started;
        self.failed = None;
        if let Some(execution) = self.execution.as_ref().filter(|execution| execution.interrupted) {
            let what = format!("step {message} starts after {} was interrupted", execution.id);
            self.found.breach(Invariant::I8, what);
        }
        if self.closed.contains(&message) {
            self.found.breach(Invariant::I4, format!("step {message} starts again after its terminal"));
        }
        let before = self.step.take();
        match &before {
            Some(open) if open.facts.message == message => {
                let StepFacts { attempt: earlier, produced, due, ref streamed, .. } = open.facts;
                if produced || streamed.is_some() {
                    let what = format!("attempt {attempt} at step {message} follows one that had produced something");
                    self.found.breach(Invariant::I6, what);
                }
                if attempt <= earlier {
                    let what = format!("attempt {attempt} at step {message} follows attempt {earlier}");
                    self.found.breach(Invariant::I6, what);
                }
                if !due {
                    let what = format!("attempt {attempt} at step {message} was not scheduled");
                    self.found.breach(Invariant::I7, what);
                }
            }
            Some(open) => {
                let what = format!("step {message} starts while step {} has no terminal", open.facts.message);
                self.found.breach(Invariant::I4, what);
                self.closed.insert(open.facts.message);
            }
            None => {}
        }
        let again = before.is_some_and(|open| open.facts.message == message);
        if !again && continues.is_none() {
            self.budget = Budget::default();
        }
        let facts =
            StepFacts { message, attempt, last, produced: false, due: false, interrupted: false, streamed: None };
        self.step = Some(OpenStep {
            facts,
            texts: Fragments::default(),
            reasonings: Fragments::default(),
            calls: BTreeMap::new(),
        });
    }

    fn retry_scheduled(&mut self, scheduled: &RetryScheduled) {
        let message = scheduled.message;
        self.budget.retries += 1;
        if self.budget.retries > self.limits.retries {
            self.found.breach(Invariant::I7, format!("step {message} is tried {} times again", self.budget.retries));
        }
        match &mut self.step {
            Some(step) if step.facts.message == message => {
                if step.facts.produced || step.facts.streamed.is_some() {
                    let what = format!("step {message} is to be tried again and has produced something");
                    self.found.breach(Invariant::I6, what);
                }
                if std::mem::replace(&mut step.facts.due, true) {
                    self.found.breach(Invariant::I7, format!("two retries of step {message} are due at once"));
                }
            }
            Some(_) | None => {
                if self.failed.take() != Some(message) {
                    self.not_open(message, "retry.scheduled");
                }
            }
        }
    }

    fn terminal(&mut self, event: &Event) {
        let Some(message) = event.message() else { return };
        let Some(step) = self.step.take_if(|step| step.facts.message == message) else {
            return self.not_open(message, event.kind());
        };
        let failed = matches!(event, Event::StepFailed(_));
        let paused = matches!(event, Event::StepEnded(ended) if ended.finish == Some(FinishReason::Pause));
        if let Event::StepFailed(failed) = event {
            step.check_failed(failed, &mut self.found);
        } else {
            step.check_ended(&mut self.found);
        }
        for call in step.calls.values().filter(|call| !call.outcome) {
            if call.hosted && paused {
                self.carried.insert(call.key);
            } else {
                self.found.breach(Invariant::I1, format!("call {} has no outcome at its step's terminal", call.key));
            }
        }
        if !paused {
            for key in std::mem::take(&mut self.carried) {
                let what =
                    format!("call {key} was left open by a pause and has no outcome when step {message} settles");
                self.found.breach(Invariant::I1, what);
            }
        }
        if let Some(execution) = &mut self.execution {
            execution.failed = failed;
            execution.pauses += u32::from(paused);
            if execution.pauses > self.limits.pauses {
                let what = format!("{} steps of {} were paused", execution.pauses, execution.id);
                self.found.breach(Invariant::I7, what);
            }
        }
        self.failed = failed.then_some(message);
        self.closed.insert(message);
    }

    fn close_step(&mut self) {
        if let Some(step) = self.step.take() {
            self.closed.insert(step.facts.message);
        }
    }

    fn in_step(&mut self, event: &Event) {
        let Some(message) = event.message() else { return };
        let is_outcome = matches!(event, Event::ToolSuccess(_) | Event::ToolFailed(_) | Event::ToolUnknown(_));
        if is_outcome
            && let Some(key) = event.call()
            && self.carried.remove(&key)
        {
            // It came in the stream of the step that continues, and is a part of that answer.
            if let Some(step) = &mut self.step {
                step.facts.produced = true;
            }
            return;
        }
        match self.step.as_mut().filter(|step| step.facts.message == message) {
            Some(step) => match event.call() {
                Some(key) => step.see_call(key, event, &mut self.found),
                None => step.see_block(event, &mut self.found),
            },
            None => self.not_open(message, event.kind()),
        }
    }

    fn not_open(&mut self, message: MessageId, kind: &str) {
        if self.closed.contains(&message) {
            self.found.breach(Invariant::I4, format!("a {kind} of step {message} comes after its terminal"));
        } else {
            self.found.breach(Invariant::I6, format!("a {kind} of step {message} comes before its start"));
        }
    }
}

impl OpenStep {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other blocks have one event each")]
    fn see_block(&mut self, event: &Event, found: &mut Found) {
        let message = self.facts.message;
        match event {
            Event::StepStreamed(streamed) => self.streamed(streamed, found),
            _ if self.facts.streamed.is_some() => {
                let what = format!("a {} of step {message} comes after its stream was over", event.kind());
                found.breach(Invariant::I6, what);
            }
            Event::TextStarted(started) => {
                self.facts.produced = true;
                self.texts.start(started.ordinal, event, found);
            }
            Event::TextEnded(ended) => self.texts.end(ended.ordinal, event, found),
            Event::ReasoningStarted(started) => {
                self.facts.produced = true;
                self.reasonings.start(started.ordinal, event, found);
            }
            Event::ReasoningEnded(ended) => self.reasonings.end(ended.ordinal, event, found),
            Event::MediaAdded(_) => self.facts.produced = true,
            _ => {}
        }
    }

    fn streamed(&mut self, streamed: &StepStreamed, found: &mut Found) {
        let message = self.facts.message;
        for (word, fragments) in [("text", &self.texts), ("reasoning", &self.reasonings)] {
            for ordinal in &fragments.open {
                found.breach(
                    Invariant::I6,
                    format!("{word} {ordinal} of step {message} is open when its stream is over"),
                );
            }
        }
        for call in self.calls.values().filter(|call| !call.input_ended) {
            found.breach(Invariant::I1, format!("the arguments of call {} are open when the stream is over", call.key));
        }
        if self.facts.streamed.replace(streamed.clone()).is_some() {
            found.breach(Invariant::I6, format!("the stream of step {message} is over twice"));
        }
    }

    /// Only a clean step ends.
    fn check_ended(&self, found: &mut Found) {
        let disrupted = self.calls.values().find_map(|call| call.disrupts.map(|why| (call.key, why)));
        let why = match (&self.facts.streamed, disrupted) {
            (None, _) => "its stream was never over".to_owned(),
            (Some(_), _) if self.facts.interrupted => "it was interrupted".to_owned(),
            (Some(streamed), _) if streamed.exit != ExitKind::Completed => {
                format!("its stream exited as {}", streamed.exit.name())
            }
            (Some(streamed), _) if streamed.broken => "its stream was broken".to_owned(),
            (Some(StepStreamed { failure: Some(failure), .. }), _) => format!("it failed: {failure}"),
            (Some(streamed), disrupted) => match (streamed.finish, disrupted) {
                (None, _) => "the provider never finished".to_owned(),
                (Some(reason @ (FinishReason::Unknown | FinishReason::ContentFilter | FinishReason::Refusal)), _) => {
                    format!("the provider finished with {}", reason.name())
                }
                (Some(_), Some((key, why))) => format!("call {key} {why}"),
                (Some(_), None) => return,
            },
        };
        found.breach(Invariant::I4, format!("step {} ended, and {why}", self.facts.message));
    }

    fn check_failed(&self, failed: &StepFailed, found: &mut Found) {
        let message = self.facts.message;
        let interrupted = matches!(failed.settlement, Settlement::Interrupted { .. });
        if failed.settlement == Settlement::Clean {
            found.breach(Invariant::I4, format!("step {message} failed, and says that it is clean"));
        } else if self.facts.interrupted && !interrupted {
            let what = format!("step {message} was interrupted, and says that it is {}", failed.settlement.name());
            found.breach(Invariant::I4, what);
        }
        let first = self.facts.streamed.as_ref().and_then(|streamed| streamed.failure.as_ref());
        if let Some(first) = first.filter(|first| **first != failed.error) {
            let what = format!("step {message} failed first with `{first}`, and says `{}`", failed.error);
            found.breach(Invariant::I4, what);
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other events are about no call")]
    fn see_call(&mut self, key: CallKey, event: &Event, found: &mut Found) {
        if let Event::ToolInputStarted(started) = event {
            if key.ordinal as usize != self.calls.len() {
                found.breach(Invariant::I1, format!("call {key} begins, and {} came before it", self.calls.len()));
            }
            self.facts.content(event, found);
            self.facts.produced = true;
            self.calls.insert(key.ordinal, CallFacts::new(key, started.hosted));
            return;
        }
        let Some(call) = self.calls.get_mut(&key.ordinal) else {
            let what = format!("a {} of call {key} comes before its arguments have begun", event.kind());
            return found.breach(Invariant::I1, what);
        };
        if call.outcome {
            let what = format!("a {} of call {key} comes after its outcome", event.kind());
            return found.breach(Invariant::I1, what);
        }
        match event {
            Event::ToolInputEnded(_) => {
                self.facts.content(event, found);
                if std::mem::replace(&mut call.input_ended, true) {
                    found.breach(Invariant::I1, format!("the arguments of call {key} end twice"));
                }
            }
            Event::ToolCalled(called) => {
                self.facts.content(event, found);
                call.called(called, found);
            }
            Event::ToolStarted(_) => call.start(&self.facts, found),
            Event::ToolNoted(_) if !call.started => {
                found.breach(Invariant::I1, format!("call {key} leaves a note and was never started"));
            }
            Event::ToolSuccess(success) => call.succeeded(success.content.is_empty(), found),
            Event::ToolFailed(failed) => call.failed(failed, found),
            Event::ToolUnknown(unknown) => {
                call.outcome = true;
                call.must_have_started("is not known", found);
                call.must_have_content(unknown.content.is_empty(), found);
            }
            Event::InteractionRequested(requested) => call.asked(requested.kind, found),
            Event::InteractionAnswered(answered) => call.answered(answered.answer, found),
            _ => {}
        }
    }
}

impl StepFacts {
    /// Content comes while the stream runs.
    fn content(&self, event: &Event, found: &mut Found) {
        if self.streamed.is_some() {
            let what = format!("a {} of step {} comes after its stream was over", event.kind(), self.message);
            found.breach(Invariant::I6, what);
        }
    }
}

impl Fragments {
    fn start(&mut self, ordinal: u32, event: &Event, found: &mut Found) {
        if ordinal != self.started {
            let what = format!("a {} has ordinal {ordinal}, and {} came before it", event.kind(), self.started);
            found.breach(Invariant::I6, what);
        }
        self.started = self.started.max(ordinal.saturating_add(1));
        self.open.insert(ordinal);
    }

    fn end(&mut self, ordinal: u32, event: &Event, found: &mut Found) {
        if !self.open.remove(&ordinal) {
            found.breach(Invariant::I6, format!("a {} has ordinal {ordinal}, which is not open", event.kind()));
        }
    }
}

impl CallFacts {
    fn new(key: CallKey, hosted: bool) -> Self {
        Self {
            key,
            hosted,
            input_ended: false,
            called: false,
            replay: None,
            started: false,
            asked: None,
            refused: false,
            outcome: false,
            disrupts: None,
        }
    }

    fn called(&mut self, called: &ToolCalled, found: &mut Found) {
        let key = self.key;
        if !self.input_ended {
            found.breach(Invariant::I1, format!("call {key} is called before its arguments have ended"));
        }
        if std::mem::replace(&mut self.called, true) {
            found.breach(Invariant::I1, format!("call {key} is called twice"));
        }
        self.hosted = called.hosted;
        self.replay = called.replay;
    }

    fn start(&mut self, step: &StepFacts, found: &mut Found) {
        let key = self.key;
        let stream_failed = step.streamed.as_ref().is_some_and(|s| s.broken || s.exit != ExitKind::Completed);
        let again = std::mem::replace(&mut self.started, true);
        let wrong = if !self.called {
            Some((Invariant::I1, "and was never called"))
        } else if step.interrupted {
            Some((Invariant::I8, "after its step was interrupted"))
        } else if self.hosted {
            Some((Invariant::I2, "and is run by the provider"))
        } else if stream_failed {
            Some((Invariant::I2, "after its step's stream failed"))
        } else if step.last {
            Some((Invariant::I2, "in a step without tools"))
        } else if self.asked.is_some() {
            Some((Invariant::I2, "while it waits for a person"))
        } else if self.refused {
            Some((Invariant::I2, "after a person refused it"))
        } else {
            match self.replay {
                None => Some((Invariant::I2, "and no tool of its name was on offer")),
                Some(ReplayClass::AtMostOnce) if again => {
                    Some((Invariant::I2, "a second time, and its tool does not allow that"))
                }
                Some(_) => None,
            }
        };
        if let Some((invariant, why)) = wrong {
            found.breach(invariant, format!("call {key} starts {why}"));
        }
    }

    fn succeeded(&mut self, empty: bool, found: &mut Found) {
        self.outcome = true;
        if !self.hosted {
            self.must_have_started("succeeds", found);
        } else if !self.called {
            found.breach(Invariant::I1, format!("call {} succeeds and was never called", self.key));
        }
        self.must_have_content(empty, found);
    }

    fn failed(&mut self, failed: &ToolFailed, found: &mut Found) {
        let key = self.key;
        self.outcome = true;
        self.disrupts = match failed.cause {
            FailureCause::Declined if failed.metadata.is_none() => Some("was declined without feedback"),
            FailureCause::Dismissed => Some("was dismissed"),
            FailureCause::Infra => Some("broke the host's machinery"),
            FailureCause::Interrupted if !self.hosted => Some("was interrupted"),
            FailureCause::Execution
            | FailureCause::Panic
            | FailureCause::Timeout
            | FailureCause::UnknownTool
            | FailureCause::InvalidArguments
            | FailureCause::Declined
            | FailureCause::Denied
            | FailureCause::Interrupted
            | FailureCause::NotRun
            | FailureCause::ResultMissing
            | FailureCause::ToolsDisabled => None,
        };
        if !self.hosted && matches!(failed.cause, FailureCause::Execution | FailureCause::Interrupted) {
            self.must_have_started("fails by itself", found);
        }
        if failed.may_have_acted && (!self.started || self.replay == Some(ReplayClass::Pure)) {
            found.breach(Invariant::I1, format!("call {key} may have acted, and was never started or cannot act"));
        }
        self.must_have_content(failed.content.is_empty(), found);
    }

    fn must_have_started(&self, what: &str, found: &mut Found) {
        if !self.started {
            found.breach(Invariant::I1, format!("call {} {what} and was never started", self.key));
        }
    }

    /// Some providers refuse an empty result; a hosted one goes back as state.
    fn must_have_content(&self, empty: bool, found: &mut Found) {
        if empty && !self.hosted {
            found.breach(Invariant::I3, format!("the outcome of call {} has no content", self.key));
        }
    }

    fn asked(&mut self, kind: InteractionKind, found: &mut Found) {
        let fits = match kind {
            InteractionKind::Approval => !self.started,
            InteractionKind::Question => self.started,
        };
        if !self.called || self.hosted || !fits {
            found.breach(Invariant::I1, format!("call {} asks for an {} at the wrong time", self.key, kind.name()));
        }
        if self.asked.replace(kind).is_some() {
            found.breach(Invariant::I1, format!("call {} asks a person while it waits for one", self.key));
        }
    }

    fn answered(&mut self, answer: AnswerKind, found: &mut Found) {
        let fits = match (self.asked.take(), answer) {
            (None, _)
            | (Some(InteractionKind::Approval), AnswerKind::Text)
            | (Some(InteractionKind::Question), AnswerKind::Approved) => false,
            (Some(_), _) => true,
        };
        self.refused |= matches!(answer, AnswerKind::Declined | AnswerKind::Dismissed);
        if !fits {
            let what = format!("call {} is answered with {}, and did not ask for that", self.key, answer.name());
            found.breach(Invariant::I1, what);
        }
    }
}

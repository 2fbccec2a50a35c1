//! A session's log as a person reads it: steps, calls, times, the settlement of each.

use std::collections::BTreeMap;
use std::io::{self, Write};

use settled_ledger::{Event, Recorded, Settlement, StepError, Timestamp};
use settled_provider_api::Usage;
use settled_tools_api::{CallKey, Content, MessageId};

use crate::exit::Failure;
use crate::{data, text};

/// How much of a text is shown.
const SHOWN: usize = 72;

/// Writes the timeline of a log.
pub(crate) fn write(log: &[Recorded], out: &mut impl Write) -> Result<(), Failure> {
    let Some(first) = log.first() else {
        writeln!(out, "(no events)")?;
        return Ok(());
    };
    let mut timeline = Timeline { began: first.at, steps: BTreeMap::new(), calls: BTreeMap::new(), out };
    for recorded in log {
        let event = recorded.event().map_err(data::corrupt)?;
        timeline.event(recorded, &event)?;
    }
    timeline.open()?;
    Ok(())
}

struct Timeline<'a, W> {
    began: Timestamp,
    /// By message: the step's number, and when its last attempt began.
    steps: BTreeMap<MessageId, (usize, Timestamp)>,
    /// Those without an outcome.
    calls: BTreeMap<CallKey, Call>,
    out: &'a mut W,
}

struct Call {
    name: String,
    called: Timestamp,
    started: Option<Timestamp>,
}

impl<W: Write> Timeline<'_, W> {
    fn event(&mut self, recorded: &Recorded, event: &Event) -> io::Result<()> {
        let at = recorded.at;
        match event {
            Event::SessionCreated(created) => {
                writeln!(self.out, "session {}, made {} for {}", recorded.session, text::utc(at), created.model)
            }
            Event::AgentSelected(selected) => self.line(at, 0, &format!("agent {}", selected.agent)),
            Event::ModelSelected(selected) => self.line(at, 0, &format!("model {}", selected.model)),
            Event::ExecutionStarted(started) if started.resume > 0 => {
                self.line(at, 0, &format!("execution taken up again ({})", started.resume))
            }
            Event::ExecutionStarted(_) => self.line(at, 0, "execution started"),
            Event::ExecutionSettled(settled) => {
                let error = settled.error.as_ref().map(|error| format!(": {}", error_line(error))).unwrap_or_default();
                self.line(at, 0, &format!("execution {}{error}", settled.outcome.name()))
            }
            Event::InputPromoted(promoted) => {
                self.line(at, 1, &format!("input: {}", text::content(&promoted.content, SHOWN)))
            }
            Event::Synthetic(synthetic) => {
                self.line(at, 1, &format!("notice: {}", text::one_line(&synthetic.text, SHOWN)))
            }
            Event::InstructionsUpdated(updated) => {
                let keys: Vec<_> = updated.changed.iter().map(|change| change.key.as_str()).collect();
                self.line(at, 1, &format!("instructions: {}", keys.join(", ")))
            }
            Event::StepStarted(started) => {
                let next = self.steps.len() + 1;
                let (number, began) = self.steps.entry(started.message).or_insert((next, at));
                *began = at;
                let mut line = format!("step {number}");
                if started.attempt > 1 {
                    line.push_str(&format!(", attempt {}", started.attempt));
                }
                if let Some((cut, _)) = started.continues.and_then(|cut| self.steps.get(&cut)) {
                    line.push_str(&format!(", goes on from step {cut}"));
                }
                if started.last {
                    line.push_str(", text only");
                }
                self.line(at, 1, &line)
            }
            Event::TextEnded(ended) => self.line(at, 2, &format!("text: {}", text::one_line(&ended.text, SHOWN))),
            Event::ReasoningEnded(ended) => {
                self.line(at, 2, &format!("reasoning: {} characters", ended.text.chars().count()))
            }
            Event::MediaAdded(added) => self.line(at, 2, &format!("media: {}", added.media.mime)),
            Event::InterruptRecorded(interrupt) => self.line(at, 2, &format!("interrupted by {}", interrupt.by.name())),
            Event::RetryScheduled(retry) => {
                let delay = text::seconds(std::time::Duration::from_millis(retry.delay_ms));
                self.line(at, 2, &format!("tried again in {delay}: {}", error_line(&retry.error)))
            }
            Event::StepEnded(ended) => self.settled(at, ended.message, &Settlement::Clean, None, ended.usage),
            Event::StepFailed(failed) => {
                self.settled(at, failed.message, &failed.settlement, Some(&failed.error), failed.usage)
            }
            Event::CompactionStarted(started) => {
                self.line(at, 1, &format!("summary ({}) asked for", started.reason.name()))
            }
            Event::CompactionEnded(ended) => {
                self.line(at, 1, &format!("summary: {}", text::one_line(&ended.text, SHOWN)))
            }
            Event::CompactionFailed(failed) => self.line(at, 1, &format!("no summary: {}", error_line(&failed.error))),
            Event::Unknown(unknown) => self.line(at, 1, &format!("{} (not known to this version)", unknown.kind)),
            event => match event.call() {
                Some(key) => self.call(at, key, event),
                None => Ok(()),
            },
        }
    }

    fn call(&mut self, at: Timestamp, key: CallKey, event: &Event) -> io::Result<()> {
        let said = |content: &[Content]| match text::content(content, SHOWN) {
            said if said.is_empty() => said,
            said => format!(": {said}"),
        };
        match event {
            Event::ToolInputStarted(started) => {
                let call = Call { name: started.name.clone(), called: at, started: None };
                self.calls.insert(key, call);
                Ok(())
            }
            Event::ToolCalled(called) => {
                let hosted = if called.hosted { ", run by the provider" } else { "" };
                let line = format!("call {}: {}{hosted}", key.ordinal, text::call(&called.name, &called.input));
                let call = Call { name: called.name.clone(), called: at, started: None };
                self.calls.insert(key, call);
                self.line(at, 2, &line)
            }
            Event::ToolStarted(_) => {
                if let Some(call) = self.calls.get_mut(&key) {
                    call.started = Some(at);
                }
                Ok(())
            }
            Event::InteractionRequested(asked) => {
                let line = format!(
                    "call {}: waits for {}: {}",
                    key.ordinal,
                    asked.kind.name(),
                    text::one_line(&asked.text, SHOWN)
                );
                self.line(at, 2, &line)
            }
            Event::InteractionAnswered(answered) => {
                let more = answered.text.as_deref().map(|text| format!(": {}", text::one_line(text, SHOWN)));
                self.line(
                    at,
                    2,
                    &format!("call {}: {}{}", key.ordinal, answered.answer.name(), more.unwrap_or_default()),
                )
            }
            Event::ToolSuccess(done) => self.outcome(at, key, "success", &said(&done.content)),
            Event::ToolFailed(failed) => {
                let acted = if failed.may_have_acted { ", may have acted" } else { "" };
                let detail = failed.detail.map(|detail| format!(": {}", detail.name())).unwrap_or_default();
                self.outcome(
                    at,
                    key,
                    &format!("failed ({}{detail}{acted})", failed.cause.name()),
                    &said(&failed.content),
                )
            }
            Event::ToolUnknown(unknown) => self.outcome(at, key, "unknown (may have acted)", &said(&unknown.content)),
            _ => Ok(()),
        }
    }

    fn outcome(&mut self, at: Timestamp, key: CallKey, outcome: &str, said: &str) -> io::Result<()> {
        let call = self.calls.remove(&key);
        let name = call.as_ref().map_or("", |call| &call.name);
        let ran = match call.as_ref().and_then(|call| call.started.map(|started| (call.called, started))) {
            Some((called, started)) => {
                let waited = started.since(called);
                let waited = if waited.as_millis() < 20 {
                    String::new()
                } else {
                    format!(", had waited {}", text::seconds(waited))
                };
                format!(" after {}{waited}", text::seconds(at.since(started)))
            }
            None => String::new(),
        };
        self.line(at, 2, &format!("call {}: {name} {outcome}{ran}{said}", key.ordinal))
    }

    fn settled(
        &mut self,
        at: Timestamp,
        message: MessageId,
        settlement: &Settlement,
        error: Option<&StepError>,
        usage: Option<Usage>,
    ) -> io::Result<()> {
        let (number, began) = self.steps.get(&message).copied().unwrap_or((0, at));
        let mut line = format!("step {number} settled {} after {}", settlement.name(), text::seconds(at.since(began)));
        if let Some(usage) = usage.as_ref().and_then(text::usage) {
            line.push_str(&format!(", {usage}"));
        }
        if let Some(error) = error {
            line.push_str(&format!(": {}", error_line(error)));
        }
        self.line(at, 1, &line)
    }

    /// Says what has no end yet.
    fn open(&mut self) -> io::Result<()> {
        for (key, call) in &self.calls {
            let state = if call.started.is_some() { "has no result yet" } else { "has not started" };
            writeln!(self.out, "             call {}: {} {state}", key.ordinal, call.name)?;
        }
        Ok(())
    }

    fn line(&mut self, at: Timestamp, depth: usize, line: &str) -> io::Result<()> {
        let since = at.since(self.began);
        let (seconds, millis) = (since.as_secs(), since.subsec_millis());
        writeln!(self.out, "{:>6}.{millis:03}  {:indent$}{line}", seconds, "", indent = depth * 2)
    }
}

fn error_line(error: &StepError) -> String {
    text::one_line(&error.to_string(), 160)
}

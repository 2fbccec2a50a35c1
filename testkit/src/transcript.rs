//! A session's log as plain text, for people and for whole-value assertions.

use std::fmt::{self, Write as _};

use settled_ledger::{Event, Recorded};
use settled_provider_api::FinishReason;
use settled_tools_api::Content;

use crate::names::Names;

/// A log as text: one line for each event, ids left out or normalised.
///
/// Messages are numbered, calls go by their labels; nothing in it changes from run to run, so that it can be compared as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transcript {
    lines: Vec<String>,
}

impl Transcript {
    /// The transcript of a log; a row that does not read is a line that says so.
    pub fn of(log: &[Recorded]) -> Self {
        let mut names = Names::default();
        let mut lines = Vec::new();
        for recorded in log {
            match recorded.event() {
                Ok(event) => {
                    names.see(&event);
                    lines.extend(line(&names, &event));
                }
                Err(error) => lines.push(error.to_string()),
            }
        }
        Self { lines }
    }

    /// Its lines.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}

impl fmt::Display for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// One event as a line; `None` for those that say nothing to a reader: starts of blocks, and the arguments of a call, which its call repeats.
fn line(names: &Names, event: &Event) -> Option<String> {
    let message = event.message().and_then(|message| names.message(message)).unwrap_or_default();
    let call = event.call().map(|call| names.label(call)).unwrap_or_default();
    Some(match event {
        Event::TextStarted(_)
        | Event::ReasoningStarted(_)
        | Event::ToolInputStarted(_)
        | Event::ToolInputEnded(_)
        | Event::ExecutionStarted(settled_ledger::ExecutionStarted { resume: 0, .. }) => return None,
        Event::SessionCreated(event) => format!("session: agent {}, model {}", event.agent, event.model),
        Event::AgentSelected(event) => format!("agent: {}", event.agent),
        Event::ModelSelected(event) => format!("model: {}", event.model),
        Event::ExecutionStarted(event) => format!("taken up again: {}", event.resume),
        Event::ExecutionSettled(event) => {
            let error = event.error.as_ref().map(|error| format!(", {error}")).unwrap_or_default();
            format!("{}{error}", event.outcome.name())
        }
        Event::InputPromoted(event) => format!("user: {}", content(&event.content)),
        Event::Synthetic(event) => format!("system: {}", event.text),
        Event::InstructionsUpdated(event) => {
            let one = |change: &settled_ledger::Instruction| {
                format!("{}: {}", change.key, change.text.as_deref().unwrap_or("nothing any more"))
            };
            format!("instructions: {}", event.changed.iter().map(one).collect::<Vec<_>>().join("; "))
        }
        Event::StepStarted(event) => {
            let attempt = if event.attempt > 1 { format!(", attempt {}", event.attempt) } else { String::new() };
            let cut = event.continues.and_then(|cut| names.message(cut));
            let cut = cut.map(|cut| format!(", goes on from {cut}")).unwrap_or_default();
            format!("step {message}{attempt}{cut}")
        }
        Event::TextEnded(event) => format!("  text: {}", event.text),
        Event::ReasoningEnded(event) => format!("  reasoning: {}", event.text),
        Event::MediaAdded(event) => format!("  media: {}", event.media.mime),
        Event::AnnotationAdded(event) => format!("  note: {} {}", event.kind, event.data),
        Event::ToolCalled(event) => {
            let hosted = if event.hosted { " (hosted)" } else { "" };
            format!("  {call}: call of {} {}{hosted}", event.name, event.input)
        }
        Event::ToolStarted(_) => format!("  {call}: started"),
        Event::ToolNoted(event) => format!("  {call}: noted {}", event.note),
        Event::ToolSuccess(event) => format!("  {call}: {}", content(&event.content)),
        Event::ToolFailed(event) => {
            let detail = event.detail.map(|detail| format!(", {}", detail.name())).unwrap_or_default();
            let acted = if event.may_have_acted { ", may have acted" } else { "" };
            format!("  {call}: failed ({}{detail}{acted}): {}", event.cause.name(), content(&event.content))
        }
        Event::ToolUnknown(event) => format!("  {call}: unknown: {}", content(&event.content)),
        Event::InteractionRequested(event) => format!("  {call}: asks for {}: {}", event.kind.name(), event.text),
        Event::InteractionAnswered(event) => {
            let text = event.text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            format!("  {call}: {}{text}", event.answer.name())
        }
        Event::InterruptRecorded(event) => format!("interrupted by {}", event.by.name()),
        Event::StepStreamed(event) => {
            let mut line = format!("  streamed: {}", event.exit.name());
            if let Some(finish) = event.finish {
                // Writing into a string cannot fail.
                let _ = write!(line, ", {}", FinishReason::name(finish));
            }
            line
        }
        Event::StepEnded(_) => format!("step {message} ended"),
        Event::StepFailed(event) => {
            format!("step {message} failed ({}): {}", event.settlement.name(), event.error.class.name())
        }
        Event::RetryScheduled(event) => {
            format!("attempt {} in {} ms: {}", event.attempt, event.delay_ms, event.error.class.name())
        }
        Event::CompactionStarted(event) => format!("compaction ({})", event.reason.name()),
        Event::CompactionEnded(event) => format!("compaction ended: {}", event.text),
        Event::CompactionFailed(event) => format!("compaction failed: {}", event.error.class.name()),
        other => other.kind().to_owned(),
    })
}

fn content(content: &[Content]) -> String {
    let pieces = content.iter().map(|piece| match piece {
        Content::Text(text) => text.clone(),
        Content::Media(media) => format!("[{}]", media.mime),
    });
    pieces.collect::<Vec<_>>().join(" ")
}

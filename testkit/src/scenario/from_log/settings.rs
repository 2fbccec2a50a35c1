//! What a log says about the settings that its session ran with.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use settled_ledger::{CompactionReason, Event, FailureClass, Timestamp};
use settled_provider_api::ErrorClass;
use settled_tools_api::CallKey;

/// The settings that the log shows to be others than usual.
pub(super) fn of(events: &[(Timestamp, Event)]) -> Map<String, Value> {
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

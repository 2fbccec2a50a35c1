//! A scenario made from a session's log: what the provider said, what the tools did, what people did and when.

mod acts;

mod answers;

mod settings;

mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value, json};
use settled_ledger::{DecodeError, Event, FailureClass, Recorded, SessionFold, Timestamp};
use settled_tools_api::Content;

use self::acts::Acts;
use self::answers::Answers;
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
    let (tools, deadline) = tools::of(&events, &mut left_out);
    let script = Acts::of(&events, &names, &mut left_out);

    let mut settings = settings::of(&events);
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

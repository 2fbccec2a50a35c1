//! Events as JSON, one a line.

use std::io::{self, Write};

use serde_json::{Value, json};
use settled_ledger::LiveEvent;
use settled_runner::{SessionEvent, Settled, Waiting};
use settled_tools_api::SessionId;

use crate::data;
use crate::exit::Failure;

/// Writes an event, if it is one of the session's: its log's, or a live one.
pub(crate) fn event(session: &SessionId, event: &SessionEvent) -> Result<(), Failure> {
    match event {
        SessionEvent::Recorded(recorded) => line(&recorded.to_json().map_err(data::corrupt)?),
        SessionEvent::Live(event) => line(&live(session, event).to_string()),
        _ => Ok(()),
    }
}

/// Writes how the run ended.
pub(crate) fn ended(session: &SessionId, settled: &Settled, waiting: &[Waiting]) -> Result<(), Failure> {
    let waiting: Vec<Value> = waiting
        .iter()
        .map(|waiting| json!({"call": waiting.call.to_string(), "kind": waiting.kind.name(), "text": waiting.text}))
        .collect();
    let ended = json!({
        "session": session,
        "type": "run.ended",
        "outcome": settled.outcome.name(),
        "error": settled.error,
        "answer": settled.answer,
        "usage": settled.usage,
        "waiting": waiting,
    });
    line(&ended.to_string())
}

fn live(session: &SessionId, event: &LiveEvent) -> Value {
    let kind = event.kind();
    match event {
        LiveEvent::Delta(delta) => json!({
            "session": session, "type": kind, "message": delta.message, "ordinal": delta.ordinal,
            "offset": delta.offset, "text": &*delta.text,
        }),
        LiveEvent::ToolProgress { call, progress } => json!({
            "session": session, "type": kind, "message": call.step, "call": call.ordinal, "progress": progress,
        }),
        LiveEvent::CompactionDelta { text } => json!({"session": session, "type": kind, "text": &**text}),
        _ => json!({"session": session, "type": kind}),
    }
}

fn line(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

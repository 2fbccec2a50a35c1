//! What the tools of a log did.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use settled_ledger::{ArgumentsFault, Event, FailureCause, InteractionKind, Timestamp};
use settled_tools_api::{CallKey, ReplayClass};

use super::super::parse::HAPPENED;
use super::{content, show};

/// What the tools did, and the deadline that one of them has missed, in milliseconds.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other events are not about tools")]
pub(super) fn of(
    events: &[(Timestamp, Event)],
    left_out: &mut BTreeSet<String>,
) -> (BTreeMap<String, Value>, Option<u64>) {
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

//! The sweep: settling what a dead process left open, before any input.

use std::sync::Arc;
use std::time::Duration;

use settled_ledger::store::{Next, SessionState};
use settled_ledger::{
    CarriedCall, CompactionFailed, Event, ExecutionStarted, FailureClass, PersonsAnswer, Stage, StepEnd, StepError,
    StepLedger, StreamExit, ToolOutcome, Unsettled, effect_key,
};
use settled_tools_api::{
    CallKey, MessageId, Reconciled, Replay, ReplayClass, RunInfo, ToolCall, ToolContext, ToolDefinition,
};

use crate::drain::Drain;
use crate::step::Attempt;
use crate::writer::Lost;

/// What the sweep found and did.
pub(crate) struct Sweep {
    /// Whether a process died in the middle of the execution; waiting for a person does not count.
    pub(crate) restarted: bool,
    /// Whether that has happened too often.
    pub(crate) too_often: bool,
    /// Whether a step was given up, so that the model is to be asked again.
    pub(crate) aborted: bool,
    /// Where the execution goes on.
    pub(crate) then: Swept,
}

/// Where a swept execution goes on.
pub(crate) enum Swept {
    /// Nowhere: it was interrupted.
    Interrupted,
    /// At a border between steps.
    Border,
    /// At the end of a step's stream.
    Rebuilt(Box<Attempt>),
    /// In the backoff before a further attempt at a step, after this many attempts.
    Retry(MessageId, u32),
    /// In the backoff before a step that continues a cut answer.
    Continue(MessageId),
}

/// How often a reconciler is asked about a call that is still running, and how long to wait in between.
const RECONCILE_TRIES: u32 = 10;
const RECONCILE_PAUSE: Duration = Duration::from_secs(1);

/// Settles what is open of an execution that another process, or an earlier drain, has left.
pub(crate) async fn sweep(drain: &mut Drain) -> Result<Sweep, Lost> {
    let step = drain.fold.step.clone();
    let backoff = drain.fold.budget.backoff.clone();
    let (then, parked, aborted) = match (step, backoff) {
        (Some(step), Some(backoff)) if backoff.message == step.message && !backoff.continues => {
            resume(drain);
            (Swept::Retry(step.message, step.attempt), false, false)
        }
        (None, Some(backoff)) if backoff.continues => {
            resume(drain);
            (Swept::Continue(backoff.message), false, false)
        }
        (Some(step), _) => {
            let events = drain.step_events(step.from).await?;
            let carried = step.carried.iter().map(|(key, label)| CarriedCall::new(*key, label.as_str())).collect();
            let ledger = StepLedger::restore(drain.session.clone(), step.message, carried, &events);
            let parked = step.streamed && is_parked(&ledger);
            if !parked {
                resume(drain);
            }
            let (tools, offered) = drain.tools_now().await?;
            let info = drain.shop.model(&step.model).map(|model| Arc::clone(&model.info)).unwrap_or_default();
            let mut attempt =
                Box::new(Attempt::rebuilt(drain, ledger, step.attempt, info, tools, Arc::clone(&offered)));
            let open = lost_calls(drain, &mut attempt, &offered, &events).await;
            if let Err(lost) = open {
                attempt.abandon(drain).await;
                return Err(lost);
            }
            if step.streamed {
                (Swept::Rebuilt(attempt), parked, false)
            } else {
                let finished = attempt.finish_runs(drain).await;
                if let Err(lost) = finished {
                    attempt.abandon(drain).await;
                    return Err(lost);
                }
                attempt.disarm();
                drain.owe(attempt.ledger.admit_stream_exit(StreamExit::Interrupted));
                drain.owe(attempt.ledger.fail_unsettled_tools(Unsettled::AtSweep));
                drain.owe_urgently(attempt.ledger.fail_assistant(StepEnd::default()));
                // An interrupt that came while a call ran again is for the execution, and it is over.
                let interrupted = attempt.ledger.interrupted_by().is_some();
                (if interrupted { Swept::Interrupted } else { Swept::Border }, false, true)
            }
        }
        (None, _) => {
            resume(drain);
            (Swept::Border, false, false)
        }
    };
    let resumes = drain.fold.execution.as_ref().map_or(0, |execution| execution.resumes);
    Ok(Sweep {
        restarted: !parked && !drain.handed_over,
        too_often: resumes > drain.shop.settings.restarts,
        aborted,
        then,
    })
}

/// Records that the execution is taken up again, and closes a compaction that was running.
fn resume(drain: &mut Drain) {
    let mut owed = Vec::new();
    if let Some(reason) = drain.fold.compaction {
        let error = StepError::new(FailureClass::Aborted, "the process was restarted");
        owed.push(CompactionFailed { reason, error, usage: None, cost_nanos: None }.into());
    }
    let Some(execution) = drain.fold.execution.as_ref() else { return };
    let (id, resume) = (execution.id, execution.resumes + 1);
    if !drain.handed_over {
        owed.insert(0, ExecutionStarted { execution: id, resume }.into());
    }
    drain.owe_in_state(owed, SessionState::new(Next::Runnable, Some(id)));
}

/// Whether a streamed step waits for people alone; an answer that has come but had no effect yet counts as waiting.
///
/// A call that the provider runs, and one whose arguments were cut off, do not run here: they settle with the step.
fn is_parked(ledger: &StepLedger) -> bool {
    let runs = |call: &CallKey| matches!(ledger.stage(*call), Some(Stage::Called | Stage::Starting | Stage::Running));
    !ledger.waiting_for_a_person().is_empty() && !ledger.unsettled().iter().any(runs)
}

/// Settles, asks about, or runs again every call whose result was lost, and every call that had not been started.
async fn lost_calls(
    drain: &mut Drain,
    attempt: &mut Attempt,
    offered: &[ToolDefinition],
    events: &[Event],
) -> Result<(), Lost> {
    for call in attempt.ledger.local_calls_at(Stage::Starting) {
        let Some((name, input, recorded)) = attempt.ledger.called(call) else { continue };
        let (name, input) = (name.to_owned(), input.clone());
        let today = offered.iter().find(|definition| definition.name == name);
        let class = today.map_or(ReplayClass::AtMostOnce, |definition| definition.replay.class()).stricter(recorded);
        match (class, today.map(|definition| &definition.replay)) {
            (ReplayClass::Pure, _) => attempt.take_up(drain, call),
            (ReplayClass::Idempotent { valid_for_ms }, _) if drain.is_remembered(call, valid_for_ms) => {
                attempt.take_up(drain, call);
            }
            (ReplayClass::Reconcile, Some(Replay::Reconcile(reconciler))) => {
                let reconciler = Arc::clone(reconciler);
                let asked = asked(name, input, events, call);
                let mut info = RunInfo::new(effect_key(&drain.session, call), drain.session.clone(), call);
                info.tags = Arc::clone(&drain.fold.tags);
                info.notes = drain.notes(call);
                let context = ToolContext::detached(info);
                let mut found = Reconciled::StillRunning;
                for attempt in 0..=RECONCILE_TRIES {
                    if attempt > 0 && drain.sleep(RECONCILE_PAUSE).await?.is_some() {
                        break;
                    }
                    let Ok(answer) = drain.interruptible(reconciler.reconcile(&asked, &context)).await? else { break };
                    found = answer;
                    if found != Reconciled::StillRunning {
                        break;
                    }
                }
                match found {
                    Reconciled::Happened(mut output) => {
                        drain.shop.redaction.output(&mut output);
                        let (output, bounded) = crate::bound::bound(output, &drain.shop.settings.output);
                        let bounded = bounded.map(|(bounded, _)| bounded);
                        drain.owe_urgently(attempt.ledger.admit_outcome(call, ToolOutcome::Success(output, bounded)));
                    }
                    Reconciled::DidNot => attempt.take_up(drain, call),
                    Reconciled::StillRunning | Reconciled::CannotTell => {
                        drain.owe_urgently(attempt.ledger.admit_outcome(call, ToolOutcome::Lost));
                    }
                }
            }
            _ => drop(drain.owe_urgently(attempt.ledger.admit_outcome(call, ToolOutcome::Lost))),
        }
    }
    for call in attempt.ledger.local_calls_at(Stage::Called) {
        if attempt.ledger.is_approved(call) && attempt.ledger.may_start_calls() {
            attempt.take_up(drain, call);
        } else {
            drain.owe_urgently(attempt.ledger.admit_outcome(call, ToolOutcome::NotRun));
        }
    }
    Ok(())
}

/// The call as its last run was given it.
fn asked(name: String, input: serde_json::Value, events: &[Event], call: CallKey) -> ToolCall {
    let state = events.iter().rev().find_map(|event| match event {
        Event::InteractionRequested(request) if event.call() == Some(call) => request.state.clone(),
        _ => None,
    });
    let answer = events.iter().rev().find_map(|event| match event {
        Event::InteractionAnswered(answered) if event.call() == Some(call) => answered.text.clone(),
        _ => None,
    });
    let asked = ToolCall::new(name, input);
    match state.zip(answer).map(|(state, text)| PersonsAnswer::Text { state, text }) {
        Some(PersonsAnswer::Text { state, text }) => asked.answered(state, text),
        _ => asked,
    }
}

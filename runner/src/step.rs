//! One step: its attempts, and the one function that orders the effects of an attempt.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::Value;
use settled_ledger::{
    Admission, Answer, CompactionReason, Events, Failure, InputId, InterruptedBy, LiveDelta, LiveEvent, PersonsAnswer,
    Release, Settlement, Stage, StepEnd, StepError, StepLedger, StreamExit, ToolNoted, ToolOutcome, ToolsExit,
    Unsettled, arguments_hash, effect_key,
};
use settled_provider_api::ModelInfo;
use settled_tools_api::{
    CallKey, Concurrency, Decision, MessageId, NoteError, PolicyCall, RunInfo, ToolCall, ToolDefinition, ToolExecutor,
};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};

use crate::compaction::{Compacted, compact};
use crate::drain::Drain;
use crate::live::Snapshot;
use crate::retry;
use crate::schema;
use crate::stream::{Heard, Reading};
use crate::tools::{Run, RunEnd, ToolMessage, ToolRuns};
use crate::writer::{Lost, Mark};

/// One attempt at a step, or a step that was rebuilt from the log.
///
/// Its owner keeps it over every way out of [`attempt_step`], so that its tools can be stopped.
pub(crate) struct Attempt {
    pub(crate) ledger: StepLedger,
    reading: Reading,
    info: Arc<ModelInfo>,
    number: u32,
    offered: Arc<[ToolDefinition]>,
    tools: Arc<dyn ToolExecutor>,
    before: Option<Value>,
    /// Calls that a policy decides about.
    deciding: Vec<(CallKey, Deciding)>,
    /// Calls that may run, waiting for their turn, first come first served.
    wanted: VecDeque<CallKey>,
    /// Calls whose start is recorded and not yet durable.
    starting: VecDeque<(Mark, CallKey)>,
    runs: ToolRuns,
    /// Notes of tools that are not yet durable.
    notes: Vec<(Mark, oneshot::Sender<Result<(), NoteError>>)>,
    grace: Option<Pin<Box<Sleep>>>,
    /// Which arm of the select is looked at first next time.
    turn: usize,
    /// How many things have happened since what is wanted was last sent.
    patience: u32,
    guard: crate::guard::Unsettled,
}

type Deciding = Pin<Box<dyn Future<Output = Decision> + Send>>;

/// What became of an attempt.
pub(crate) enum Attempted {
    /// The step settled cleanly.
    Completed,
    /// Nothing visible was produced; the same step is tried again after this time.
    Retry(StepError, Duration),
    /// The overflow was recovered from; the same step is tried again at once.
    Restart,
    /// The step failed after something was visible; a new step goes on from it after this time.
    Continue(StepError, Duration),
    /// A call waits for a person; the step is open.
    Parked,
    /// The step failed.
    Failed(StepError),
    /// The step was stopped: from outside, or by a person's refusal.
    Interrupted,
}

impl Attempt {
    /// An attempt whose request is about to be sent.
    pub(crate) fn fresh(
        drain: &Drain,
        ledger: StepLedger,
        number: u32,
        reading: Reading,
        info: Arc<ModelInfo>,
        tools: Arc<dyn ToolExecutor>,
        offered: Arc<[ToolDefinition]>,
    ) -> Self {
        Self {
            ledger,
            reading,
            info,
            number,
            offered,
            tools,
            before: None,
            deciding: Vec::new(),
            wanted: VecDeque::new(),
            starting: VecDeque::new(),
            runs: ToolRuns::new(),
            notes: Vec::new(),
            grace: None,
            turn: 0,
            patience: 0,
            guard: drain.slot.guard(),
        }
    }

    /// A step that was rebuilt from the log, to be settled from the end of its stream on.
    pub(crate) fn rebuilt(
        drain: &Drain,
        ledger: StepLedger,
        number: u32,
        info: Arc<ModelInfo>,
        tools: Arc<dyn ToolExecutor>,
        offered: Arc<[ToolDefinition]>,
    ) -> Self {
        Self::fresh(drain, ledger, number, Reading::closed(), info, tools, offered)
    }

    fn is_fresh(&self) -> bool {
        !self.reading.is_closed()
    }

    /// Stops everything without a trace: the log is lost to this drain, and the next owner settles the step.
    pub(crate) async fn abandon(&mut self, drain: &mut Drain) {
        self.reading.close();
        self.runs.cancel();
        let grace = sleep(drain.shop.settings.cancel_grace);
        tokio::pin!(grace);
        while !self.runs.is_empty() {
            let told = poll_fn(|context| match self.runs.poll(context) {
                Poll::Ready(told) => Poll::Ready(Some(told)),
                Poll::Pending => grace.as_mut().poll(context).map(|()| None),
            });
            match told.await {
                Some(ToolMessage::Done(call, _)) => drop(self.runs.ended(call)),
                Some(ToolMessage::Progress(..)) => {}
                // Whoever waits for the note learns that it is not durable when its answer is dropped.
                Some(ToolMessage::Note(..)) => {}
                None => {
                    let aborted = self.runs.abort().await;
                    aborted.iter().filter(|run| run.leaked).for_each(|run| drain.leaked(run.call));
                }
            }
        }
        self.guard.disarm();
    }
}

/// Runs one attempt at a step and settles it.
///
/// This is the only code that orders effects; its order is load-bearing.
pub(crate) async fn attempt_step(drain: &mut Drain, step: &mut Attempt) -> Result<Attempted, Lost> {
    if step.is_fresh() {
        let message = step.ledger.message();
        step.before = snapshot_before(drain, message).await;

        // 1. The stream. Cancel is looked at first; a stream that never pauses must not hide an interrupt.
        let exit = loop {
            match next(drain, step).await? {
                Next::Cancel(input, by) => {
                    drain.owe_taking(step.ledger.admit_interrupt(by), vec![input]);
                    break StreamExit::Interrupted;
                }
                Next::Heard(Heard::Event(event)) => match step.ledger.admit(&event) {
                    Admission::Nothing => {}
                    Admission::Delta(delta) => drain.slot.live.delta(step.ledger.message(), delta),
                    Admission::Owed(events) => drop(drain.owe(events)),
                    Admission::Call(events, call) => {
                        drain.owe(events);
                        want(drain, step, call);
                    }
                    Admission::Broken(violation) => {
                        tracing::warn!(%violation, "reading stops");
                        break StreamExit::BrokenOff;
                    }
                },
                Next::Heard(Heard::End) => break StreamExit::Completed,
                Next::Heard(Heard::Failed(error)) => break StreamExit::Failed(error),
                Next::Heard(Heard::Panicked(text)) => break StreamExit::Panicked(text),
                Next::Tended => {}
                Next::GraceOver => {}
            }
        };
        step.reading.close();

        // 2. The stream's exit. Fragments are closed here, before anything else is written: their text is in the ledger alone.
        drain.owe(step.ledger.admit_stream_exit(exit));

        // 3. Overflow recovery. Before the overflow is given up: once it is recorded as the step's failure, nothing recovers it.
        if may_recover(drain, step) {
            match compact(drain, CompactionReason::Overflow, Vec::new()).await? {
                Compacted::Done => {
                    step.guard.disarm();
                    return Ok(Attempted::Restart);
                }
                Compacted::Failed(_) | Compacted::NothingToSummarise => {}
                Compacted::Interrupted(by) => drop(drain.owe(step.ledger.admit_interrupt(by))),
            }
        }

        // 4. The held overflow. Before the settlement, which depends on it.
        step.ledger.release_held_overflow();

        // 5. Retry. Before `step.streamed`: a step that is tried again has not streamed, and keeps its message.
        if let Some(failure) = step.ledger.may_retry()
            && let Some(delay) = retry_delay(drain, failure)
        {
            step.guard.disarm();
            return Ok(Attempted::Retry(failure.to_error(), delay));
        }

        // 6. The mark from which the step can be rebuilt. Before the tools are awaited: a crash while they run must not lose the answer.
        drain.owe_urgently(step.ledger.streamed());
    }

    // 7. The tools. On an interrupt they are cancelled first and then awaited, or the interrupt would wait for them to end by themselves.
    loop {
        if step.ledger.interrupted_by().is_some() && step.grace.is_none() {
            step.runs.cancel();
            step.grace = Some(Box::pin(sleep(drain.shop.settings.cancel_grace)));
        }
        if step.is_quiet() {
            if !step.waits_for_a_person() {
                break;
            }
            if !tend_inbox(drain, step).await? {
                step.guard.disarm();
                return Ok(Attempted::Parked);
            }
            continue;
        }
        match next(drain, step).await? {
            Next::Cancel(input, by) => drop(drain.owe_taking(step.ledger.admit_interrupt(by), vec![input])),
            Next::GraceOver => stop_runs(drain, step).await,
            Next::Heard(_) | Next::Tended => {}
        }
    }
    step.ledger.admit_tools_exit(ToolsExit::Settled);

    // 8. The settlement, classified once. All evidence is in hand; every effect below is keyed on it.
    let settlement = step.ledger.settlement();

    // 9. Every call without an outcome fails. Before the step fails: whoever sees the terminal may take nothing of the step for open.
    drain.owe(step.ledger.fail_unsettled_tools(Unsettled::AtSettlement));

    // 10. What the step changed and cost. Before the terminal, which carries it; a failure here never fails the step.
    let end = StepEnd::new(cost(step), files_after(drain, step).await);

    // 11. The terminal, exactly one, after everything else of the step.
    let attempted = match &settlement {
        Settlement::Clean => {
            drain.owe(step.ledger.end_step(end));
            Attempted::Completed
        }
        Settlement::Interrupted { .. } | Settlement::ProviderFailed | Settlement::ToolInfraFailed { .. } => {
            // Asked before the terminal is written: the budget must still be that of this step.
            let go_on = step
                .ledger
                .cut_by()
                .and_then(|failure| retry_delay(drain, failure).map(|delay| (failure.to_error(), delay)));
            let failure = step.ledger.failure().map(Failure::to_error);
            drain.owe(step.ledger.fail_assistant(end));
            match (go_on, failure) {
                (Some((error, delay)), _) => Attempted::Continue(error, delay),
                (None, _) if step.ledger.interrupted_by().is_some() => Attempted::Interrupted,
                (None, Some(error)) => Attempted::Failed(error),
                (None, None) => Attempted::Interrupted,
            }
        }
    };
    record_settlement(step, &settlement);

    // 12. Return. Nothing of the step is written behind its terminal.
    step.guard.disarm();
    Ok(attempted)
}

/// Aborts what has not stopped by itself within its grace; what cannot be aborted is reported.
async fn stop_runs(drain: &mut Drain, step: &mut Attempt) {
    for run in step.runs.abort().await {
        if run.leaked {
            drain.leaked(run.call);
        }
        drain.owe(step.ledger.admit_outcome(run.call, ToolOutcome::Stopped(run.progress)));
    }
}

/// What [`next`] gives.
enum Next {
    Cancel(InputId, InterruptedBy),
    Heard(Heard),
    /// Something of the tools or of a person was dealt with.
    Tended,
    GraceOver,
}

/// Waits for the next thing that happens to an attempt: cancel first, the others take turns.
async fn next(drain: &mut Drain, step: &mut Attempt) -> Result<Next, Lost> {
    tokio::task::coop::consume_budget().await;
    poll_fn(|context| poll_next(drain, step, context)).await
}

fn poll_next(drain: &mut Drain, step: &mut Attempt, context: &mut Context<'_>) -> Poll<Result<Next, Lost>> {
    drain.slot.live.answer(|| step.snapshot());
    drain.inbox.poll_news(context);
    if step.ledger.interrupted_by().is_none()
        && let Some((input, by)) = drain.interrupt()
    {
        return Poll::Ready(Ok(Next::Cancel(input, by)));
    }
    step.turn = step.turn.wrapping_add(1);
    // A stream that never pauses must not hide that the log is lost.
    if step.turn.is_multiple_of(RARELY)
        && let Poll::Ready(lost) = drain.poll_lost(context)
    {
        return Poll::Ready(Err(lost));
    }
    for arm in 0..ARMS {
        let happened = match (step.turn + arm) % ARMS {
            0 => poll_written(drain, step, context, Writing::Sent).map(|()| Next::Tended),
            1 => poll_tools(drain, step, context).map(|()| Next::Tended),
            2 => poll_decisions(drain, step, context).map(|()| Next::Tended),
            3 => poll_answers(drain, step).map(|()| Next::Tended),
            _ => poll_stream(drain, step, context).map(Next::Heard),
        };
        if happened.is_ready() {
            return happened.map(Ok);
        }
    }
    // Nothing else happens now: what is wanted is sent, all in one batch, and what is urgent with it.
    drain.flush_if_urgent();
    if poll_written(drain, step, context, Writing::Wanted).is_ready() {
        return Poll::Ready(Ok(Next::Tended));
    }
    if let Poll::Ready(lost) = drain.poll_lost(context) {
        return Poll::Ready(Err(lost));
    }
    if drain.inbox.poll_idle(context).is_ready() {
        return Poll::Ready(Ok(Next::Tended));
    }
    if let Some(grace) = &mut step.grace
        && grace.as_mut().poll(context).is_ready()
    {
        return Poll::Ready(Ok(Next::GraceOver));
    }
    match step.reading.poll_silence(context) {
        Poll::Ready(error) => Poll::Ready(Ok(Next::Heard(Heard::Failed(error)))),
        Poll::Pending => Poll::Pending,
    }
}

const ARMS: usize = 5;

/// How many things may happen between two looks at the lease.
const RARELY: usize = 64;

/// What the writer is asked to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// To go on with what is on its way.
    Sent,
    /// To send what is wanted as well.
    Wanted,
}

/// How many other things may happen before what is wanted is sent all the same: a stream that never pauses must not hold a call back.
const PATIENCE: u32 = 64;

/// The writer has made something durable: calls whose start it was may run, if nothing has come in the meantime.
fn poll_written(drain: &mut Drain, step: &mut Attempt, context: &mut Context<'_>, writing: Writing) -> Poll<()> {
    step.patience = if writing == Writing::Wanted { 0 } else { step.patience + 1 };
    let moved = if writing == Writing::Wanted || step.patience > PATIENCE {
        drain.writer.poll(context).is_ready()
    } else {
        drain.writer.poll_sent(context).is_ready()
    };
    let mut tended = moved;
    if !step.starting.is_empty() {
        // On the acknowledgement it is looked again at what has come in the meantime: an interrupt forbids the start.
        drain.inbox.poll_news(context);
        let interrupted = step.ledger.interrupted_by().is_none() && drain.interrupt().is_some();
        if interrupted || !drain.inbox.is_current() {
            return if tended { Poll::Ready(()) } else { Poll::Pending };
        }
    }
    while let Some((mark, call)) = step.starting.front().copied() {
        if !drain.writer.is_durable(mark) {
            break;
        }
        step.starting.pop_front();
        tended = true;
        if !drain.holds_lease() {
            // Another worker may own the session by now: the call is its to settle, and nothing may act here.
            continue;
        }
        match step.ledger.release(call) {
            Release::Run { name, input, answered } => spawn(drain, step, call, name, input, answered),
            Release::Forbidden => drop(drain.owe(step.ledger.admit_outcome(call, ToolOutcome::NotRun))),
        }
    }
    for (mark, answer) in std::mem::take(&mut step.notes) {
        if drain.writer.is_durable(mark) {
            // The tool may have stopped waiting.
            let _ = answer.send(Ok(()));
        } else {
            step.notes.push((mark, answer));
        }
    }
    if tended { Poll::Ready(()) } else { Poll::Pending }
}

/// A tool tells something.
fn poll_tools(drain: &mut Drain, step: &mut Attempt, context: &mut Context<'_>) -> Poll<()> {
    step.runs.poll(context).map(|told| match told {
        ToolMessage::Progress(call, progress) => {
            drain.slot.live.publish(|| LiveEvent::ToolProgress { call, progress: progress.clone() });
            step.runs.progressed(call, progress);
        }
        ToolMessage::Note(call, note, durable) => {
            let noted = ToolNoted { message: call.step, call: call.ordinal, note };
            let mark = drain.owe(vec![noted.into()]);
            drain.writer.flush();
            step.notes.push((mark, durable));
        }
        ToolMessage::Done(call, end) => {
            let Some(progress) = step.runs.ended(call) else { return };
            let outcome = match end {
                RunEnd::Outcome(outcome) => unanswered(outcome, progress),
                RunEnd::Vanished => {
                    step.ledger.admit_tools_exit(ToolsExit::Interrupted);
                    ToolOutcome::Stopped(progress)
                }
            };
            if step.ledger.stage(call) == Some(Stage::Settled) {
                tracing::warn!(%call, "an outcome came too late and is dropped");
            }
            drain.owe_urgently(step.ledger.admit_outcome(call, outcome));
            fill_slots(drain, step);
        }
    })
}

/// An outcome without an answer of the tool's own takes its last progress with it.
fn unanswered(outcome: ToolOutcome, progress: Option<Value>) -> ToolOutcome {
    match (outcome, progress) {
        (ToolOutcome::Stopped(_), progress) => ToolOutcome::Stopped(progress),
        (ToolOutcome::Panicked(why), Some(progress)) => {
            ToolOutcome::Panicked(format!("{why}; its last progress was {}", shown(&progress)))
        }
        (ToolOutcome::TimedOut(why), Some(progress)) => {
            ToolOutcome::TimedOut(format!("{why}; its last progress was {}", shown(&progress)))
        }
        (outcome, _) => outcome,
    }
}

/// A value as a person reads it: a text without its quotes.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A policy has decided.
fn poll_decisions(drain: &mut Drain, step: &mut Attempt, context: &mut Context<'_>) -> Poll<()> {
    let decided =
        step.deciding.iter_mut().enumerate().find_map(|(place, (_, deciding))| match deciding.as_mut().poll(context) {
            Poll::Ready(decision) => Some((place, decision)),
            Poll::Pending => None,
        });
    let Some((place, decision)) = decided else { return Poll::Pending };
    let (call, _) = step.deciding.remove(place);
    decide(drain, step, call, decision);
    Poll::Ready(())
}

/// A person has answered.
fn poll_answers(drain: &mut Drain, step: &mut Attempt) -> Poll<()> {
    match drain.inbox.answer() {
        Some((input, answer)) => {
            take_answer(drain, step, input, answer);
            Poll::Ready(())
        }
        None => Poll::Pending,
    }
}

/// The provider says something, unless the writer has too much to do, or an interrupt may be on its way here.
fn poll_stream(drain: &mut Drain, step: &mut Attempt, context: &mut Context<'_>) -> Poll<Heard> {
    if !drain.inbox.is_current() {
        return Poll::Pending;
    }
    if drain.writer.backlog() > drain.shop.settings.write_ahead {
        drain.writer.flush();
        return Poll::Pending;
    }
    step.reading.poll(context)
}

/// A complete local call has come: its arguments are checked, then the policy is asked, then it waits for its turn.
fn want(drain: &mut Drain, step: &mut Attempt, call: CallKey) {
    let Some((name, input, _)) = step.ledger.called(call) else { return };
    let Some(definition) = step.offered.iter().find(|definition| definition.name == name) else { return };
    if let Err(why) = schema::check(&definition.input_schema, input) {
        drain.owe_urgently(step.ledger.admit_outcome(call, ToolOutcome::SchemaViolated(why)));
        return;
    }
    let key = effect_key(&drain.session, call);
    let asked = PolicyCall::new(drain.session.clone(), call, key, name.to_owned(), input.clone());
    let policy = Arc::clone(&drain.shop.policy);
    let mut deciding: Deciding = Box::pin(async move { policy.decide(&asked).await });
    // Most policies decide at once; then the start shares the call's batch.
    match deciding.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(decision) => decide(drain, step, call, decision),
        Poll::Pending => step.deciding.push((call, deciding)),
    }
}

fn decide(drain: &mut Drain, step: &mut Attempt, call: CallKey, decision: Decision) {
    match decision {
        Decision::Allow => {
            step.wanted.push_back(call);
            fill_slots(drain, step);
        }
        Decision::Ask(question) => {
            // A person may be shown the question once it is durable.
            drain.owe_urgently(step.ledger.admit_approval_needed(call, question));
        }
        Decision::Deny { rule } => {
            drain.owe_urgently(step.ledger.admit_outcome(call, ToolOutcome::Denied { rule }));
        }
    }
}

/// Records the start of every call whose turn has come.
fn fill_slots(drain: &mut Drain, step: &mut Attempt) {
    while let Some(call) = step.wanted.front().copied() {
        let busy = step.runs.len() + step.starting.len();
        let exclusive = step.definition(call).is_some_and(|tool| tool.concurrency == Concurrency::Exclusive);
        let alone_runs = step.runs.has_exclusive()
            || step.starting.iter().any(|(_, starting)| {
                step.definition(*starting).is_some_and(|tool| tool.concurrency == Concurrency::Exclusive)
            });
        let full = busy >= drain.shop.settings.parallel_tools.max(1);
        if !step.ledger.may_start_calls() || alone_runs || (exclusive && busy > 0) || full {
            return;
        }
        step.wanted.pop_front();
        let mark = drain.owe(step.ledger.start(call));
        drain.writer.flush();
        step.starting.push_back((mark, call));
    }
}

/// Runs a call whose start is durable.
fn spawn(
    drain: &mut Drain,
    step: &mut Attempt,
    call: CallKey,
    name: String,
    input: Value,
    answered: Option<PersonsAnswer>,
) {
    let Some(definition) = step.offered.iter().find(|definition| definition.name == name).cloned() else {
        // It was on offer when it was called, before a restart, and is not any more.
        let gone = settled_tools_api::ToolOutput::text(format!("the tool `{name}` is not available any more"));
        drain.owe_urgently(step.ledger.admit_outcome(call, ToolOutcome::Failed(gone, None)));
        return;
    };
    let mut info = RunInfo::new(effect_key(&drain.session, call), drain.session.clone(), call);
    info.attempt = step.number;
    info.tags = Arc::clone(&drain.fold.tags);
    info.notes = drain.notes(call);
    let span = tracing::info_span!(
        "execute_tool",
        "gen_ai.operation.name" = "execute_tool",
        "gen_ai.tool.name" = %name,
        "gen_ai.tool.call.id" = %call,
    );
    let mut run = ToolCall::new(name, input);
    if let Some(PersonsAnswer::Text { state, text }) = answered {
        run = run.answered(state, text);
    }
    step.runs.start(
        Run {
            key: call,
            call: run,
            info,
            definition,
            tools: Arc::clone(&step.tools),
            outputs: Arc::clone(&drain.shop.outputs),
            redaction: drain.shop.redaction.clone(),
            span,
        },
        &drain.shop.settings,
    );
}

/// Acts on a person's answer, if it is for a call of this step that waits, and for the very arguments the person saw.
fn take_answer(drain: &mut Drain, step: &mut Attempt, input: InputId, answer: Answer) {
    let call = answer.call;
    let bound = effect_key(&drain.session, call) == answer.effect_key
        && step.ledger.called(call).is_some_and(|(_, input, _)| arguments_hash(input) == answer.arguments_hash);
    let owed = if bound { step.ledger.admit_answer(call, answer.answer, answer.text) } else { Events::new() };
    if owed.is_empty() {
        tracing::warn!(%call, "an answer fits no call that waits and is dropped");
    }
    let mark = drain.owe_taking(owed, vec![input]);
    match step.ledger.stage(call) {
        Some(Stage::Called) if step.ledger.is_approved(call) => {
            step.wanted.push_back(call);
            fill_slots(drain, step);
        }
        Some(Stage::Starting) if !step.starting.iter().any(|(_, starting)| *starting == call) => {
            drain.writer.flush();
            step.starting.push_back((mark, call));
        }
        _ => drain.writer.flush(),
    }
}

/// Reads the inbox for whoever waits for a person; `false` if nothing has come.
async fn tend_inbox(drain: &mut Drain, step: &mut Attempt) -> Result<bool, Lost> {
    drain.inbox.refresh().await.map_err(Lost::Store)?;
    if let Some((input, by)) = drain.interrupt() {
        drain.owe_taking(step.ledger.admit_interrupt(by), vec![input]);
        return Ok(true);
    }
    match drain.inbox.answer() {
        Some((input, answer)) => {
            take_answer(drain, step, input, answer);
            Ok(true)
        }
        None => Ok(false),
    }
}

impl Attempt {
    fn definition(&self, call: CallKey) -> Option<&ToolDefinition> {
        let (name, ..) = self.ledger.called(call)?;
        self.offered.iter().find(|definition| definition.name == name)
    }

    /// What is open, for a reader that has caught up with the log.
    fn snapshot(&self) -> Snapshot {
        let message = self.ledger.message();
        let block = |(kind, ordinal, text)| LiveDelta::so_far(message, kind, ordinal, text);
        let blocks = self.ledger.open_blocks().into_iter().map(block).collect();
        Snapshot { blocks, running: self.runs.progress(), retry: None }
    }

    /// Whether no tool runs or will run before a person answers.
    fn is_quiet(&self) -> bool {
        let may_start = self.ledger.may_start_calls();
        let coming = !self.wanted.is_empty() || !self.deciding.is_empty() || !self.starting.is_empty();
        self.runs.is_empty() && !(may_start && coming)
    }

    fn waits_for_a_person(&self) -> bool {
        self.ledger.may_start_calls() && !self.ledger.waiting_for_a_person().is_empty()
    }

    /// Lets a call of a rebuilt step run that a person has allowed, or whose class allows another run.
    pub(crate) fn take_up(&mut self, drain: &mut Drain, call: CallKey) {
        match self.ledger.stage(call) {
            Some(Stage::Called) => {
                self.wanted.push_back(call);
                fill_slots(drain, self);
            }
            Some(Stage::Starting) => {
                if let Release::Run { name, input, answered } = self.ledger.take_up_again(call) {
                    spawn(drain, self, call, name, input, answered);
                }
            }
            _ => {}
        }
    }

    /// Waits until every run has ended, whatever becomes of the step; used where the step itself is not run.
    pub(crate) async fn finish_runs(&mut self, drain: &mut Drain) -> Result<(), Lost> {
        while !self.runs.is_empty() || !self.starting.is_empty() {
            match next(drain, self).await? {
                Next::Cancel(input, by) => {
                    drain.owe_taking(self.ledger.admit_interrupt(by), vec![input]);
                    self.runs.cancel();
                    self.grace = Some(Box::pin(sleep(drain.shop.settings.cancel_grace)));
                }
                Next::GraceOver => stop_runs(drain, self).await,
                Next::Heard(_) | Next::Tended => {}
            }
        }
        Ok(())
    }

    /// Says that the attempt has come to its end.
    pub(crate) fn disarm(&mut self) {
        self.guard.disarm();
    }

    /// Says that the attempt goes on after all.
    pub(crate) fn rearm(&mut self, drain: &Drain) {
        self.guard = drain.slot.guard();
    }
}

fn may_recover(drain: &Drain, step: &Attempt) -> bool {
    step.ledger.held_overflow().is_some()
        && step.ledger.interrupted_by().is_none()
        && !step.ledger.output_started()
        && !drain.fold.budget.recovered
        && drain.shop.settings.compaction.on_overflow
}

fn retry_delay(drain: &Drain, failure: &Failure) -> Option<Duration> {
    retry::delay(failure, &drain.fold.budget, &drain.shop.settings.retry, drain.shop.draw())
}

fn cost(step: &Attempt) -> Option<u64> {
    step.ledger.finish().and_then(|finish| finish.usage).and_then(|usage| step.info.cost(&usage))
}

async fn snapshot_before(drain: &mut Drain, message: MessageId) -> Option<Value> {
    let snapshots = drain.shop.snapshots.clone()?;
    let before = snapshots.before(&drain.session, message).await;
    before.inspect_err(|error| tracing::warn!(%error, "no files snapshot before the step")).ok()
}

async fn files_after(drain: &mut Drain, step: &mut Attempt) -> Option<Value> {
    let (snapshots, before) = drain.shop.snapshots.clone().zip(step.before.take())?;
    let after = snapshots.after(&drain.session, step.ledger.message(), before).await;
    after.inspect_err(|error| tracing::warn!(%error, "no files snapshot after the step")).ok()
}

fn record_settlement(step: &Attempt, settlement: &Settlement) {
    let span = tracing::Span::current();
    span.record("settled.settlement", settlement.name());
    if let Some(finish) = step.ledger.finish() {
        span.record("gen_ai.response.finish_reasons", finish.reason.name());
        if let Some(usage) = finish.usage {
            span.record("gen_ai.usage.input_tokens", usage.prompt());
            span.record("gen_ai.usage.output_tokens", usage.generated());
        }
    }
}

//! A drain: from the claim of a session until nothing is left to do, or it must stop.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::Value;
use settled_ledger::check::check_request;
use settled_ledger::store::{Claimed, Next, SessionState};
use settled_ledger::{
    AgentSelected, CarriedCall, CompactionReason, Event, Events, ExecutionId, ExecutionSettled, ExecutionStarted,
    InboxItem, InputId, InputPromoted, InterruptRecorded, InterruptedBy, Lowering, ModelSelected, NewInputKind,
    Outcome, RetryScheduled, Seq, SessionFold, StepError, StepLedger, StepStarted, StreamExit, Synthetic,
    SyntheticReason, Timestamp, ToolUse,
};
use settled_provider_api::{Content, ErrorClass, ProviderError, Request};
use settled_tools_api::{
    CallKey, MessageId, OfferTo, SessionId, ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolReturn,
};
use tokio::time::sleep;
use tracing::Instrument;

use crate::compaction::{self, Compacted, compact};
use crate::inbox::InboxWatch;
use crate::instructions::Observed;
use crate::live::Snapshot;
use crate::opening::{self, PAGE, corrupt};
use crate::request;
use crate::shop::Shop;
use crate::step::{Attempt, Attempted, attempt_step};
use crate::stream::Reading;
use crate::sweep::{Swept, sweep};
use crate::worker::{LeaseWatch, Slot};
use crate::writer::{Lost, Mark, Writer, Written};

/// What the model is told when a cut answer goes on.
const CONTINUE: &str = "Your answer was cut off. Go on exactly where it stopped; repeat nothing.";

/// What the model is told when the process was restarted.
const RESTARTED: &str =
    "The process was restarted while you were at work. Results of tools may be missing; check before you act again.";

pub(crate) struct Drain {
    pub(crate) shop: Arc<Shop>,
    pub(crate) session: SessionId,
    pub(crate) slot: Arc<Slot>,
    pub(crate) fold: SessionFold,
    pub(crate) lowering: Lowering,
    /// Up to where the history cache has the fold.
    pub(crate) cached: Seq,
    pub(crate) writer: Writer,
    pub(crate) inbox: InboxWatch,
    lease: LeaseWatch,
    /// Whether the session's last owner has left the open execution in order.
    pub(crate) handed_over: bool,
    /// Something was written that should be durable before the drain waits for anything else.
    urgent: bool,
    notes: BTreeMap<CallKey, Vec<Value>>,
    /// When the calls of the step that was read from the log were first started.
    started: BTreeMap<CallKey, Timestamp>,
}

/// What is kept from one drain of a session to the next.
pub(crate) struct Kept {
    pub(crate) fold: SessionFold,
    pub(crate) lowering: Lowering,
    /// Up to where the history cache has the fold.
    pub(crate) cached: Seq,
}

/// How a drain ended.
#[derive(Debug)]
pub(crate) enum DrainEnd {
    /// The execution is over, or waits for a person.
    Ended(Outcome, Option<StepError>),
    /// It left at a border because the runner shuts down; another worker goes on.
    Left,
    /// There was nothing to do.
    Nothing,
}

/// Whether a drain sends a request although nothing asks for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    Yes,
    No,
}

/// What became of a step, its retries and continuations.
enum StepRun {
    Completed,
    Failed(StepError),
    Interrupted,
    Parked,
    Left,
}

/// What became of the control items at a border.
enum Controlled {
    /// There were none that needed a run.
    Nothing,
    Served,
    Ended(DrainEnd),
}

/// How a wait ended.
pub(crate) enum Waited {
    Over,
    Interrupted(InputId, InterruptedBy),
    /// The runner shuts down.
    Leaving,
}

impl Drain {
    /// Opens a claimed session: its fold is brought up to the head of its log.
    pub(crate) async fn open(
        shop: Arc<Shop>,
        slot: Arc<Slot>,
        claimed: Claimed,
        lease: LeaseWatch,
        kept: Option<Kept>,
    ) -> Result<Box<Self>, Lost> {
        let session = slot.session.clone();
        let kept = match kept.filter(|kept| kept.fold.head <= claimed.head) {
            Some(kept) => kept,
            None => {
                let fold = opening::cached(&shop, &session).await;
                let fold = Some(fold).filter(|fold| fold.head <= claimed.head).unwrap_or_default();
                Kept { cached: fold.head, fold, lowering: Lowering::new() }
            }
        };
        let Kept { mut fold, lowering, cached } = kept;
        opening::bring_up(&shop, &session, &mut fold, claimed.head).await.map_err(Lost::Store)?;
        if fold.head < claimed.head {
            return Err(Lost::Diverged(fold.head));
        }
        let Claimed { fence, head, state, .. } = claimed;
        Ok(Box::new(Self {
            writer: Writer::new(Arc::clone(&shop.store), Arc::clone(&shop.clock), Arc::clone(&shop.ids), fence, head),
            inbox: InboxWatch::new(
                Arc::clone(&shop.store),
                session.clone(),
                Arc::clone(&slot.doorbell),
                shop.settings.poll,
            ),
            shop,
            session,
            slot,
            fold,
            lowering,
            cached,
            lease,
            handed_over: state.handed_over,
            urgent: false,
            notes: BTreeMap::new(),
            started: BTreeMap::new(),
        }))
    }

    /// Promotes input and runs steps until nothing is left to do.
    pub(crate) async fn run(&mut self, force: Force) -> Result<DrainEnd, Lost> {
        self.inbox.refresh().await.map_err(Lost::Store)?;
        let mut go_on = false;
        let mut forced = force == Force::Yes;
        let mut restarted = false;
        if self.fold.execution.is_some() {
            let swept = sweep(self).await?;
            restarted = swept.restarted && self.fold.execution.as_ref().is_some_and(|execution| execution.visible);
            let run = match swept.then {
                // What was unfinished goes on by itself, and a forced run is content with that.
                _ if swept.too_often => {
                    let error = StepError::new(
                        settled_ledger::FailureClass::Aborted,
                        "the execution was taken up again too often without settling",
                    );
                    self.fail_open_step().await?;
                    return self.settle(Outcome::Failed, Some(error)).await;
                }
                Swept::Interrupted => return self.settle(Outcome::Interrupted, None).await,
                Swept::Border => {
                    let failed = self.fold.execution.as_ref().and_then(|execution| execution.failed.clone());
                    if let Some((error, settlement)) = failed.filter(|_| !swept.aborted) {
                        let interrupted = matches!(settlement, settled_ledger::Settlement::Interrupted { .. });
                        let outcome = if interrupted { Outcome::Interrupted } else { Outcome::Failed };
                        return self.settle(outcome, Some(error).filter(|_| !interrupted)).await;
                    }
                    go_on = swept.aborted || self.fold.is_unanswered();
                    forced = false;
                    None
                }
                Swept::Rebuilt(attempt) => Some(self.run_step(Start::Rebuilt(attempt)).await?),
                Swept::Retry(message, attempt) => Some(self.run_step(Start::Retry { message, attempt }).await?),
                Swept::Continue(message) => {
                    restarted = false;
                    Some(self.run_step(Start::Continue { message }).await?)
                }
            };
            if let Some(run) = run {
                forced = false;
                if let Some(end) = self.after(run).await? {
                    return Ok(end);
                }
            }
        }
        loop {
            if self.slot.is_leaving() {
                return self.leave(Next::Runnable).await;
            }
            self.keep_fold().await?;
            self.inbox.refresh().await.map_err(Lost::Store)?;
            if let Some((input, by)) = self.interrupt() {
                self.owe_taking(vec![InterruptRecorded { message: None, by }.into()], vec![input]);
                return self.settle(Outcome::Interrupted, None).await;
            }
            self.drop_stale();
            match self.control().await? {
                Controlled::Nothing => {}
                // A forced run that served something is content with it.
                Controlled::Served => forced = false,
                Controlled::Ended(end) => return Ok(end),
            }
            let continues = self.fold.execution.as_ref().is_some_and(|execution| execution.continues);
            let allowed = self.fold.steps < self.max_steps()? && self.may_pause();
            let due = (continues && allowed) || go_on;
            let promoted = self.to_promote(due);
            if promoted.is_empty() && !due && !forced {
                if self.fold.execution.is_none() && force == Force::No {
                    return Ok(DrainEnd::Nothing);
                }
                let end = self.settle(Outcome::Completed, None).await?;
                // Input that came with the settlement's acknowledgement is not left to the next wake.
                self.inbox.refresh().await.map_err(Lost::Store)?;
                let more = self.inbox.items().iter().any(|item| item.input.asks_for_a_run());
                match end {
                    DrainEnd::Ended(..) if !more => return Ok(end),
                    _ => continue,
                }
            }
            // Looked up before input is promoted: input stays pending where it cannot be answered.
            let configured = self.model_ref().and_then(|model| self.shop.model(&model).map(drop));
            if let Err(error) = configured.and_then(|()| self.shop.agent(&self.fold.agent).map(drop)) {
                self.begin();
                return self.settle(Outcome::Failed, Some(error)).await;
            }
            self.begin();
            let changed = match self.observe().await? {
                Observed::Same => None,
                Observed::Changed(changed) => Some(changed),
                Observed::Blocked(error) => return self.settle(Outcome::Failed, Some(error)).await,
                // It is recorded at the border, as one that came a moment earlier.
                Observed::Interrupted => continue,
            };
            // Looking took time: what is promoted is what is pending now, and what came before it goes first.
            let promoted = self.to_promote(due);
            if self.has_control() || (promoted.is_empty() && !due && !forced) {
                continue;
            }
            go_on = false;
            forced = false;
            if let Some(changed) = changed {
                self.owe(vec![changed.into()]);
            }
            if std::mem::take(&mut restarted) {
                let text = RESTARTED.to_owned();
                self.owe(vec![Synthetic { reason: SyntheticReason::Restart, text }.into()]);
            }
            for item in promoted {
                self.promote(item);
            }
            if let Some(end) = self.compact_if_due().await? {
                return Ok(end);
            }
            let run = self.run_step(Start::New).await?;
            if let Some(end) = self.after(run).await? {
                return Ok(end);
            }
        }
    }

    /// What a step's end means for the drain; `None` if it goes on.
    async fn after(&mut self, run: StepRun) -> Result<Option<DrainEnd>, Lost> {
        Ok(match run {
            StepRun::Completed => None,
            StepRun::Failed(error) => Some(self.settle(Outcome::Failed, Some(error)).await?),
            StepRun::Interrupted => Some(self.settle(Outcome::Interrupted, None).await?),
            StepRun::Parked => Some(DrainEnd::Ended(Outcome::Parked, None)),
            StepRun::Left => Some(DrainEnd::Left),
        })
    }

    /// Serves what is neither a message nor about a running step: compactions, switches.
    async fn control(&mut self) -> Result<Controlled, Lost> {
        let switches = self.inbox.items_that(|input| matches!(input, NewInputKind::Switch(_)));
        let compactions = self.inbox.items_that(|input| matches!(input, NewInputKind::Compact));
        for item in switches {
            let NewInputKind::Switch(switch) = item.input else { continue };
            self.begin();
            let agent = switch.agent.map(|agent| AgentSelected { agent }.into());
            let model = switch.model.map(|model| ModelSelected { model }.into());
            self.owe_taking(agent.into_iter().chain(model).collect(), vec![item.id]);
        }
        // A call that a pause left open must not be summarised away: the compaction waits for the next border.
        if compactions.is_empty() || !self.fold.left_open.is_empty() {
            return Ok(Controlled::Nothing);
        }
        self.begin();
        let inputs = compactions.iter().map(|item| item.id).collect();
        Ok(match compact(self, CompactionReason::Manual, inputs).await? {
            Compacted::Done | Compacted::Failed(_) | Compacted::NothingToSummarise => Controlled::Served,
            Compacted::Interrupted(_) => Controlled::Ended(self.settle(Outcome::Interrupted, None).await?),
        })
    }

    /// Whether something is pending that [`control`](Self::control) would serve now.
    fn has_control(&self) -> bool {
        self.inbox.items().iter().any(|item| match &item.input {
            NewInputKind::Switch(_) => true,
            NewInputKind::Compact => self.fold.left_open.is_empty(),
            NewInputKind::Prompt(_)
            | NewInputKind::Notice(_)
            | NewInputKind::Interrupt(_)
            | NewInputKind::Answer(_) => false,
        })
    }

    async fn compact_if_due(&mut self) -> Result<Option<DrainEnd>, Lost> {
        if !self.fold.left_open.is_empty() {
            return Ok(None);
        }
        match compaction::is_due(self) {
            Ok(false) => return Ok(None),
            Ok(true) => {}
            Err(error) => return self.settle(Outcome::Failed, Some(error)).await.map(Some),
        }
        Ok(match compact(self, CompactionReason::Auto, Vec::new()).await? {
            Compacted::Done | Compacted::NothingToSummarise => None,
            // Sending what is known to be too long costs money and fails.
            Compacted::Failed(error) => Some(self.settle(Outcome::Failed, Some(error)).await?),
            Compacted::Interrupted(_) => Some(self.settle(Outcome::Interrupted, None).await?),
        })
    }

    /// What is promoted at this border: every steer, or one queued input where nothing else is due.
    fn to_promote(&self, due: bool) -> Vec<InboxItem> {
        let of =
            |delivery| self.inbox.items().iter().filter(move |item| item.input.delivery() == Some(delivery)).cloned();
        let steers: Vec<_> = of(settled_ledger::Delivery::Steer).collect();
        if steers.is_empty() && !due { of(settled_ledger::Delivery::Queue).take(1).collect() } else { steers }
    }

    fn promote(&mut self, item: InboxItem) {
        let event: Event = match item.input {
            NewInputKind::Prompt(prompt) => {
                InputPromoted { input: item.id, delivery: prompt.delivery, content: prompt.content }.into()
            }
            NewInputKind::Notice(notice) => {
                InputPromoted { input: item.id, delivery: notice.delivery, content: vec![Content::Text(notice.text)] }
                    .into()
            }
            NewInputKind::Compact | NewInputKind::Switch(_) | NewInputKind::Interrupt(_) | NewInputKind::Answer(_) => {
                return;
            }
        };
        self.owe_taking(vec![event], vec![item.id]);
    }

    /// Takes what can have no effect any more: interrupts of other executions, answers to calls that do not wait.
    fn drop_stale(&mut self) {
        let stale: Vec<_> = self
            .inbox
            .items()
            .iter()
            .filter(|item| matches!(item.input, NewInputKind::Interrupt(_) | NewInputKind::Answer(_)))
            .map(|item| item.id)
            .collect();
        if !stale.is_empty() {
            self.owe_taking(Events::new(), stale);
        }
    }

    /// Begins the execution, if none is open.
    fn begin(&mut self) {
        if self.fold.execution.is_none() {
            let execution = ExecutionId::from_u128(self.shop.ids.next());
            let started: Event = ExecutionStarted { execution, resume: 0 }.into();
            self.owe_with(vec![started], Vec::new(), Some(SessionState::new(Next::Runnable, Some(execution))));
        }
    }

    /// Ends the execution; [`DrainEnd::Nothing`] if input is pending that must be seen first.
    async fn settle(&mut self, outcome: Outcome, error: Option<StepError>) -> Result<DrainEnd, Lost> {
        let Some(execution) = self.fold.execution.as_ref().map(|execution| execution.id) else {
            return Ok(DrainEnd::Ended(outcome, error));
        };
        let error = error.map(|error| self.shop.redaction.error(error));
        let settled: Event = ExecutionSettled { execution, outcome, error: error.clone() }.into();
        let next = if outcome == Outcome::Completed { Next::Idle } else { Next::Held };
        // An interrupt that came too late for this execution goes with it.
        let late: Vec<_> = std::iter::from_fn(|| {
            let late = self.inbox.interrupt(execution).map(|(input, _)| input);
            late.inspect(|input| self.inbox.take(*input))
        })
        .collect();
        let events = vec![settled];
        self.writer.push(&events, late, Some(SessionState::new(next, None)));
        match self.writer.settle().await? {
            // The fold follows only now: a settlement that was refused has not happened.
            Written::Landed => {
                self.follow(&events);
                Ok(DrainEnd::Ended(outcome, error))
            }
            Written::Refused => Ok(DrainEnd::Nothing),
        }
    }

    /// Leaves at a border: the execution stays open, and another worker goes on with it.
    async fn leave(&mut self, next: Next) -> Result<DrainEnd, Lost> {
        if let Some(execution) = self.fold.execution.as_ref().map(|execution| execution.id) {
            self.owe_in_state(Events::new(), SessionState::new(next, Some(execution)).handed_over());
        }
        self.writer.settle().await?;
        Ok(DrainEnd::Left)
    }

    /// Writes the terminal of a step that is open and will not be gone on with.
    async fn fail_open_step(&mut self) -> Result<(), Lost> {
        let Some(step) = self.fold.step.clone() else { return Ok(()) };
        let events = self.step_events(step.from).await?;
        let carried = step.carried.iter().map(|(key, label)| CarriedCall::new(*key, label.as_str())).collect();
        let mut ledger = StepLedger::restore(self.session.clone(), step.message, carried, &events);
        self.owe(ledger.admit_stream_exit(StreamExit::Interrupted));
        self.owe(ledger.fail_unsettled_tools(settled_ledger::Unsettled::AtSweep));
        self.owe(ledger.fail_assistant(settled_ledger::StepEnd::default()));
        Ok(())
    }
}

/// Where a step begins.
pub(crate) enum Start {
    /// With a new message.
    New,
    /// With the end of its stream, rebuilt from the log.
    Rebuilt(Box<Attempt>),
    /// With the backoff before a further attempt.
    Retry {
        /// The step.
        message: MessageId,
        /// The number of its last attempt.
        attempt: u32,
    },
    /// With the backoff before a new step that continues a cut answer.
    Continue {
        /// The cut step.
        message: MessageId,
    },
}

/// One step, with its retries and the steps that continue it.
impl Drain {
    async fn run_step(&mut self, start: Start) -> Result<StepRun, Lost> {
        let span = tracing::info_span!(
            "step",
            "gen_ai.conversation.id" = %self.session,
            "gen_ai.request.model" = tracing::field::Empty,
        );
        if let Some(model) = &self.fold.model {
            span.record("gen_ai.request.model", tracing::field::display(model));
        }
        Box::pin(self.run_attempts(start)).instrument(span).await
    }

    async fn run_attempts(&mut self, start: Start) -> Result<StepRun, Lost> {
        let last = self.fold.steps.saturating_add(1) >= self.max_steps()?;
        let mut message = MessageId::from_u128(self.shop.ids.next());
        let mut number = 1;
        let mut continues = None;
        let mut rebuilt = None;
        let mut wait = None;
        match start {
            Start::New => {}
            Start::Rebuilt(attempt) => {
                message = attempt.ledger.message();
                rebuilt = Some(attempt);
            }
            Start::Retry { message: again, attempt } => {
                message = again;
                number = attempt + 1;
                wait = Some(After::Retry);
            }
            Start::Continue { message: cut } => {
                continues = Some(cut);
                wait = Some(After::Continue);
            }
        }
        let last = match (&wait, &self.fold.step) {
            (Some(After::Retry), Some(step)) => step.last,
            (Some(After::Continue), _) => self.fold.steps >= self.max_steps()?,
            _ => last,
        };
        loop {
            if let Some(after) = wait.take() {
                match self.back_off().await? {
                    Waited::Over => {}
                    Waited::Interrupted(input, by) => {
                        self.interrupt_between(input, by);
                        return Ok(StepRun::Interrupted);
                    }
                    Waited::Leaving => {
                        let due =
                            self.fold.budget.backoff.as_ref().map_or(Next::Runnable, |backoff| Next::At(backoff.at));
                        self.leave(due).await?;
                        return Ok(StepRun::Left);
                    }
                }
                if after == After::Continue {
                    let text = CONTINUE.to_owned();
                    self.owe(vec![Synthetic { reason: SyntheticReason::Continue, text }.into()]);
                }
            }
            let attempted = match rebuilt.take() {
                Some(mut attempt) => self.attempted(&mut attempt).await,
                None => match self.prepare(message, number, continues, last).await? {
                    Ok(mut attempt) => self.attempted(&mut attempt).await,
                    Err((input, by)) => {
                        self.interrupt_between(input, by);
                        return Ok(StepRun::Interrupted);
                    }
                },
            }?;
            match attempted {
                Attempted::Completed => return Ok(StepRun::Completed),
                Attempted::Failed(error) => return Ok(StepRun::Failed(error)),
                Attempted::Interrupted => return Ok(StepRun::Interrupted),
                Attempted::Parked => return Ok(StepRun::Parked),
                Attempted::Restart => number += 1,
                Attempted::Retry(error, delay) => {
                    self.schedule(message, error, delay);
                    number += 1;
                    wait = Some(After::Retry);
                }
                Attempted::Continue(error, delay) => {
                    self.schedule(message, error, delay);
                    continues = Some(message);
                    message = MessageId::from_u128(self.shop.ids.next());
                    number = 1;
                    wait = Some(After::Continue);
                }
            }
        }
    }

    /// Runs an attempt, and where it waits for a person, parks it.
    async fn attempted(&mut self, attempt: &mut Box<Attempt>) -> Result<Attempted, Lost> {
        loop {
            let span = tracing::info_span!(
                "chat",
                "gen_ai.operation.name" = "chat",
                "gen_ai.response.finish_reasons" = tracing::field::Empty,
                "gen_ai.usage.input_tokens" = tracing::field::Empty,
                "gen_ai.usage.output_tokens" = tracing::field::Empty,
                "settled.settlement" = tracing::field::Empty,
            );
            let attempted = attempt_step(self, attempt).instrument(span).await;
            let attempted = match attempted {
                Ok(attempted) => attempted,
                Err(lost) => {
                    attempt.abandon(self).await;
                    return Err(lost);
                }
            };
            let Attempted::Parked = attempted else { return Ok(attempted) };
            let execution = self.fold.execution.as_ref().map(|execution| execution.id);
            let waiting = Next::Waiting(attempt.ledger.waiting_for_a_person());
            self.writer.push(&[], Vec::new(), Some(SessionState::new(waiting, execution)));
            match self.writer.settle().await? {
                Written::Landed => return Ok(Attempted::Parked),
                // An answer or an interrupt has come in the meantime: it is looked at again.
                Written::Refused => attempt.rearm(self),
            }
        }
    }

    /// Writes `step.started`, durably, and makes the request ready to be sent, unless an interrupt comes first.
    async fn prepare(
        &mut self,
        message: MessageId,
        number: u32,
        continues: Option<MessageId>,
        last: bool,
    ) -> Result<Result<Box<Attempt>, (InputId, InterruptedBy)>, Lost> {
        let offered = match self.offer().await? {
            Ok(offered) => offered,
            Err(interrupt) => return Ok(Err(interrupt)),
        };
        let agent = self.shop.agent(&self.fold.agent).cloned();
        let model = self.model_ref();
        let (agent, model, known) = match (agent, model) {
            (Ok(agent), Ok(model)) => match self.shop.model(&model).cloned() {
                Ok(known) => (agent, model, known),
                Err(error) => return Err(Lost::Misconfigured(error)),
            },
            (Err(error), _) | (_, Err(error)) => return Err(Lost::Misconfigured(error)),
        };
        let started = StepStarted { message, attempt: number, agent: agent.name.clone(), model, continues, last };
        self.owe(vec![started.into()]);
        let (tools, definitions, refused) = match offered {
            Ok(tools) => {
                let definitions: Arc<[ToolDefinition]> = tools.definitions().into();
                (tools, definitions, None)
            }
            Err(why) => (Arc::new(NoTools) as Arc<dyn ToolExecutor>, Arc::default(), Some(why)),
        };
        let request = match request::for_step(self, message, number, &agent, Arc::clone(&definitions), last) {
            Ok(request) => Arc::new(request),
            Err(error) => return Err(Lost::Misconfigured(error)),
        };
        self.watch_request(&request);
        // Durable before the request is sent: whoever looks at the log knows of every request that was made.
        self.writer.settle().await?;
        let carried = self.fold.step.as_ref().map(|step| step.carried.clone()).unwrap_or_default();
        let carried = carried.into_iter().map(|(key, label)| CarriedCall::new(key, label)).collect();
        let tool_use = if last { ToolUse::Off } else { ToolUse::On };
        let ledger =
            StepLedger::new(self.session.clone(), message, Arc::clone(&definitions), tool_use).carrying(carried);
        let reading = match refused {
            None => {
                Reading::open(known.provider, request, &known.info, &self.shop.settings, self.shop.redaction.clone())
            }
            Some(why) => {
                let error =
                    ProviderError::new(ErrorClass::InvalidRequest, format!("the tools could not be offered: {why}"));
                Reading::failing(error)
            }
        };
        Ok(Ok(Box::new(Attempt::fresh(self, ledger, number, reading, known.info, tools, definitions))))
    }

    /// Records that another attempt is due.
    fn schedule(&mut self, message: MessageId, error: StepError, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let at = self.shop.clock.now().plus(delay);
        let attempt = self.fold.budget.attempts + 1;
        let error = self.shop.redaction.error(error);
        tracing::info!(attempt, delay_ms, %error, "another attempt is due");
        self.owe(vec![RetryScheduled { message, attempt, delay_ms, at, error }.into()]);
    }

    /// Waits until the scheduled attempt is due.
    async fn back_off(&mut self) -> Result<Waited, Lost> {
        self.writer.settle().await?;
        let at = self.fold.budget.backoff.as_ref().map(|backoff| backoff.at);
        let left = at.map(|at| at.since(self.shop.clock.now())).unwrap_or_default();
        self.wait(left).await
    }

    /// Ends what an interrupt has met between two attempts.
    fn interrupt_between(&mut self, input: InputId, by: InterruptedBy) {
        match &self.fold.step {
            // The step is open: it settles as interrupted, and with it the calls that a pause has left to it.
            Some(step) => {
                let carried = step.carried.iter().map(|(key, label)| CarriedCall::new(*key, label.as_str())).collect();
                let mut ledger =
                    StepLedger::new(self.session.clone(), step.message, Arc::default(), ToolUse::On).carrying(carried);
                let mut owed = ledger.admit_interrupt(by);
                owed.extend(ledger.admit_stream_exit(StreamExit::Interrupted));
                owed.extend(ledger.fail_unsettled_tools(settled_ledger::Unsettled::AtSettlement));
                owed.extend(ledger.fail_assistant(settled_ledger::StepEnd::default()));
                self.owe_taking(owed, vec![input]);
            }
            None => drop(self.owe_taking(vec![InterruptRecorded { message: None, by }.into()], vec![input])),
        }
    }

    fn max_steps(&self) -> Result<u32, Lost> {
        Ok(self.shop.agent(&self.fold.agent).map_or(u32::MAX, |agent| agent.max_steps))
    }

    fn may_pause(&self) -> bool {
        self.fold.execution.as_ref().is_none_or(|execution| execution.pauses <= self.shop.settings.pauses)
    }

    /// The tools on offer now, or why there are none.
    async fn offer(&mut self) -> Result<Result<Offered, (InputId, InterruptedBy)>, Lost> {
        let to = OfferTo::new(self.session.clone(), Arc::clone(&self.fold.tags));
        let source = Arc::clone(&self.shop.tools);
        let offered = self.interruptible(source.offer(&to)).await?;
        Ok(offered.map(|offered| offered.map_err(|error| error.to_string())))
    }

    /// The tools on offer now, for a request that does not run them.
    pub(crate) async fn definitions(
        &mut self,
    ) -> Result<Result<Arc<[ToolDefinition]>, (InputId, InterruptedBy)>, Lost> {
        let offered = self.offer().await?;
        Ok(offered.map(|offered| offered.map(|tools| tools.definitions().into()).unwrap_or_default()))
    }

    /// The tools on offer now, for a step that was rebuilt; none where an interrupt is pending.
    pub(crate) async fn tools_now(&mut self) -> Result<(Arc<dyn ToolExecutor>, Arc<[ToolDefinition]>), Lost> {
        Ok(match self.offer().await? {
            Ok(Ok(tools)) => {
                let definitions = tools.definitions().into();
                (tools, definitions)
            }
            Ok(Err(_)) | Err(_) => (Arc::new(NoTools), Arc::default()),
        })
    }
}

/// The tools on offer, or why there are none.
type Offered = Result<Arc<dyn ToolExecutor>, String>;

/// What comes after a backoff.
#[derive(Clone, Copy, PartialEq, Eq)]
enum After {
    Retry,
    Continue,
}

/// Leaves: writing, waiting, reading.
impl Drain {
    /// Owes events: they are written in this order, and the fold follows them.
    pub(crate) fn owe(&mut self, events: Events) -> Mark {
        self.owe_with(events, Vec::new(), None)
    }

    /// Owes events that should be durable before the drain waits for anything else.
    pub(crate) fn owe_urgently(&mut self, events: Events) -> Mark {
        self.urgent = true;
        self.owe(events)
    }

    /// Owes events, and takes the inputs that caused them.
    pub(crate) fn owe_taking(&mut self, events: Events, taken: Vec<InputId>) -> Mark {
        self.urgent = true;
        taken.iter().for_each(|input| self.inbox.take(*input));
        self.owe_with(events, taken, None)
    }

    /// Owes events that come with a state of the session.
    pub(crate) fn owe_in_state(&mut self, events: Events, state: SessionState) -> Mark {
        self.owe_with(events, Vec::new(), Some(state))
    }

    fn owe_with(&mut self, mut events: Events, taken: Vec<InputId>, state: Option<SessionState>) -> Mark {
        if events.is_empty() && taken.is_empty() && state.is_none() {
            return self.writer.mark();
        }
        self.shop.redaction.events(&mut events);
        self.urgent |= events.iter().any(is_urgent);
        self.follow(&events);
        self.writer.push(&events, taken, state)
    }

    fn follow(&mut self, events: &[Event]) {
        for event in events {
            self.fold.apply(self.fold.head.plus(1), event);
        }
    }

    /// Asks for what is urgent to be written; `false` if nothing is.
    pub(crate) fn flush_if_urgent(&mut self) -> bool {
        let urgent = std::mem::take(&mut self.urgent) && self.writer.is_lazy();
        if urgent {
            self.writer.flush();
        }
        urgent
    }

    /// Whether the worker may still act, by its own clock.
    pub(crate) fn holds_lease(&self) -> bool {
        self.lease.holds() && !self.slot.is_abandoned()
    }

    /// Whether the drain must be left without a trace.
    pub(crate) fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<Lost> {
        if let Some(lost) = self.writer.lost() {
            return Poll::Ready(lost.clone());
        }
        if self.slot.is_abandoned() {
            return Poll::Ready(Lost::Stopped);
        }
        self.lease.poll_lost(context).map(|()| Lost::Lease)
    }

    /// The interrupt of this execution that is pending, if there is one.
    pub(crate) fn interrupt(&self) -> Option<(InputId, InterruptedBy)> {
        self.inbox.interrupt(self.fold.execution.as_ref()?.id)
    }

    /// Waits for a future, unless an interrupt comes first.
    pub(crate) async fn interruptible<T>(
        &mut self,
        future: impl Future<Output = T>,
    ) -> Result<Result<T, (InputId, InterruptedBy)>, Lost> {
        let mut future = pin!(future);
        poll_fn(|context| {
            if let Poll::Ready(lost) = self.poll_lost(context) {
                return Poll::Ready(Err(lost));
            }
            let retry = || self.fold.budget.backoff.clone();
            self.slot.live.answer(|| Snapshot { retry: retry(), ..Snapshot::default() });
            loop {
                self.inbox.poll_news(context);
                if let Some(interrupt) = self.interrupt() {
                    return Poll::Ready(Ok(Err(interrupt)));
                }
                if let Poll::Ready(value) = future.as_mut().poll(context) {
                    return Poll::Ready(Ok(Ok(value)));
                }
                self.flush_if_urgent();
                while self.writer.poll(context).is_ready() {}
                if self.inbox.poll_idle(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Waits, unless an interrupt or the runner's shutdown comes first.
    pub(crate) async fn wait(&mut self, span: Duration) -> Result<Waited, Lost> {
        let slot = Arc::clone(&self.slot);
        let leaving = async move {
            tokio::select! {
                biased;
                () = slot.leaving() => Waited::Leaving,
                () = sleep(span) => Waited::Over,
            }
        };
        Ok(self.interruptible(leaving).await?.unwrap_or_else(|(input, by)| Waited::Interrupted(input, by)))
    }

    /// Waits, unless an interrupt comes first.
    pub(crate) async fn sleep(&mut self, span: Duration) -> Result<Option<(InputId, InterruptedBy)>, Lost> {
        Ok(self.interruptible(sleep(span)).await?.err())
    }

    /// The events of the step that is open.
    pub(crate) async fn step_events(&mut self, from: Seq) -> Result<Vec<Event>, Lost> {
        self.writer.settle().await?;
        let mut after = Seq::new(from.get().saturating_sub(1));
        let mut events = Vec::new();
        loop {
            let page = self.shop.store.read(&self.session, after, PAGE).await.map_err(Lost::Store)?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for recorded in &page {
                let event = recorded.event().map_err(corrupt).map_err(Lost::Store)?;
                match (&event, event.call()) {
                    (Event::ToolNoted(noted), Some(call)) => {
                        self.notes.entry(call).or_default().push(noted.note.clone());
                    }
                    (Event::ToolStarted(_), Some(call)) => drop(self.started.entry(call).or_insert(recorded.at)),
                    _ => {}
                }
                events.push(event);
            }
        }
        Ok(events)
    }

    /// The notes that earlier runs of a call have left.
    pub(crate) fn notes(&self, call: CallKey) -> Vec<Value> {
        self.notes.get(&call).cloned().unwrap_or_default()
    }

    /// Whether the other side still remembers a call's effect key.
    pub(crate) fn is_remembered(&self, call: CallKey, valid_for_ms: u64) -> bool {
        let age = self.started.get(&call).map(|started| self.shop.clock.now().since(*started));
        age.is_some_and(|age| age <= Duration::from_millis(valid_for_ms))
    }

    /// Says that a call's tool could not be stopped.
    pub(crate) fn leaked(&self, call: CallKey) {
        tracing::error!(%call, "a tool could not be stopped and runs on");
        self.slot.leaked(call);
    }

    /// Checks an outgoing request against the invariants, in debug builds: what breaks them is our own fault.
    pub(crate) fn watch_request(&self, request: &Request) {
        if cfg!(debug_assertions)
            && let Ok(model) = self.shop.model(&request.model)
        {
            let breaches = check_request(request, &model.info.capabilities);
            assert!(breaches.is_empty(), "a request is not well-formed: {breaches:?}");
        }
    }

    /// What may be kept for the next drain.
    pub(crate) fn into_kept(self) -> Kept {
        Kept { fold: self.fold, lowering: self.lowering, cached: self.cached }
    }
}

/// Whether an event should be durable before the drain waits for anything else.
///
/// The start of a block says little without its end, and a terminal shares a batch with what comes next.
fn is_urgent(event: &Event) -> bool {
    !matches!(event, Event::TextStarted(_) | Event::ReasoningStarted(_) | Event::StepEnded(_) | Event::StepFailed(_))
}

/// No tools: what a step has whose tools could not be offered.
struct NoTools;

#[async_trait::async_trait]
impl ToolExecutor for NoTools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        Vec::new()
    }

    async fn execute(&self, call: ToolCall, _: ToolContext) -> Result<ToolReturn, ToolError> {
        Err(ToolError::failed(format!("the tool `{}` is not available", call.name)))
    }
}

//! A session as the application holds it.

use std::sync::Arc;

use settled_ledger::store::{Admitted, Next};
use settled_ledger::{
    Answer, AnswerKind, Delivery, Event, InboxItem, InputId, InteractionKind, Interrupt, InterruptedBy, NewInput,
    NewInputKind, Notice, Outcome, Prompt, Seq, SessionFold, StepError, Switch,
};
use settled_provider_api::{ModelRef, Usage};
use settled_tools_api::{CallKey, Content, EffectKey, SessionId};

use crate::drain::Force;
use crate::error::Error;
use crate::follow::Follow;
use crate::opening;
use crate::worker::{RunResult, Serving, Slot, Worker};

/// A session of a runner; cheap to clone.
///
/// Dropping it stops nothing.
/// A session at rest that nobody holds is in the store alone, but for the histories that [`Settings::kept_sessions`](crate::Settings::kept_sessions) keeps.
pub struct Session {
    worker: Arc<Worker>,
    slot: Arc<Slot>,
}

/// How a session's last execution went.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settled {
    /// How it went.
    pub outcome: Outcome,
    /// What went wrong, if something did.
    pub error: Option<StepError>,
    /// The text of the last step that produced any.
    pub answer: Option<String>,
    /// What the whole session has used.
    pub usage: Usage,
    /// What that cost, in nano-units of money.
    pub cost_nanos: u64,
}

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Waiting {
    /// The call.
    pub call: CallKey,
    /// What is asked for.
    pub kind: InteractionKind,
    /// The question.
    pub text: String,
    /// The call's effect key.
    pub effect_key: EffectKey,
    /// The hash of the call's canonical arguments.
    pub arguments_hash: String,
}

/// What became of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interrupted {
    /// It is durable, and what runs will stop.
    Requested,
    /// Nothing was running: it changes nothing and is not remembered.
    NothingRuns,
}

/// An input that is put together before it is sent.
#[must_use = "an input does nothing until it is sent"]
pub struct Input<'a> {
    session: &'a Session,
    content: Vec<Content>,
    delivery: Delivery,
    key: Option<String>,
    wake: bool,
}

impl Input<'_> {
    /// Another piece of content.
    pub fn with(mut self, content: impl Into<Content>) -> Self {
        self.content.push(content.into());
        self
    }

    /// Delivered when the session would go idle, instead of at the next step boundary.
    pub fn queue(mut self) -> Self {
        self.delivery = Delivery::Queue;
        self
    }

    /// Sent under a key: sending it again is recognised, for good.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Recorded without waking the session.
    pub fn without_waking(mut self) -> Self {
        self.wake = false;
        self
    }

    /// Sends it; durable when it returns.
    ///
    /// *Fails* with [`Error::KeyConflict`] if its key was used for other content.
    pub async fn send(self) -> Result<InputId, Error> {
        let Self { session, content, delivery, key, wake } = self;
        session.admit(NewInputKind::Prompt(Prompt::new(content, delivery)), key, wake).await
    }
}

impl Session {
    pub(crate) fn new(worker: Arc<Worker>, id: &SessionId) -> Self {
        let slot = worker.hold(id);
        Self { worker, slot }
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// Its name.
    pub fn id(&self) -> &SessionId {
        &self.slot.session
    }

    /// Says something: delivered at the next step boundary; durable when it returns; wakes the session.
    pub async fn prompt(&self, text: impl Into<String>) -> Result<InputId, Error> {
        self.input(text).send().await
    }

    /// Says something, with more to choose.
    pub fn input(&self, text: impl Into<String>) -> Input<'_> {
        Input {
            session: self,
            content: vec![Content::Text(text.into())],
            delivery: Delivery::Steer,
            key: None,
            wake: true,
        }
    }

    /// Says something in the system's name.
    pub async fn notice(&self, text: impl Into<String>, delivery: Delivery) -> Result<InputId, Error> {
        self.admit(NewInputKind::Notice(Notice::new(text, delivery)), None, true).await
    }

    /// Asks for the history to be summarised at the next border; asking again while it is pending changes nothing.
    pub async fn compact(&self) -> Result<InputId, Error> {
        let pending = self.pending().await?;
        match pending.iter().find(|item| matches!(item.input, NewInputKind::Compact)) {
            Some(item) => Ok(item.id),
            None => self.admit(NewInputKind::Compact, None, true).await,
        }
    }

    /// Goes on with another model from the next border on.
    pub async fn switch_model(&self, model: ModelRef) -> Result<InputId, Error> {
        self.worker.shop.model(&model).map_err(|error| Error::Configuration(error.message))?;
        self.admit(NewInputKind::Switch(Switch::model(model)), None, true).await
    }

    /// Goes on with another agent from the next border on.
    pub async fn switch_agent(&self, agent: impl Into<String>) -> Result<InputId, Error> {
        let agent = agent.into();
        self.worker.shop.agent(&agent).map_err(|error| Error::Configuration(error.message))?;
        self.admit(NewInputKind::Switch(Switch::agent(agent)), None, true).await
    }

    /// Interrupts what runs; returns when the interrupt is durable, not when everything has stopped: see [`settled`](Self::settled).
    ///
    /// It counts for the execution that runs now, and for no later one.
    pub async fn interrupt(&self) -> Result<Interrupted, Error> {
        let info = self.worker.shop.store.info(self.id()).await?;
        let Some(execution) = info.state.execution else { return Ok(Interrupted::NothingRuns) };
        self.slot.stopping();
        let interrupt = NewInputKind::Interrupt(Interrupt::new(execution, InterruptedBy::User));
        let input = NewInput::new(self.new_id(), self.worker.shop.clock.now(), interrupt);
        let admitted = self.worker.shop.store.admit(self.id(), input).await;
        let admitted = admitted.map_err(|error| Error::of_admission(error, ""))?;
        self.woken(true);
        Ok(match admitted {
            Admitted::Dropped => Interrupted::NothingRuns,
            Admitted::New(..) | Admitted::Again(_) => Interrupted::Requested,
        })
    }

    /// The calls that wait for a person.
    pub async fn waiting(&self) -> Result<Vec<Waiting>, Error> {
        let fold = self.fold().await?;
        let Some(step) = fold.step else { return Ok(Vec::new()) };
        let mut waiting: Vec<Waiting> = Vec::new();
        let mut after = Seq::new(step.from.get().saturating_sub(1));
        loop {
            let page = self.worker.shop.store.read(self.id(), after, 1_024).await?;
            let Some(last) = page.last() else { return Ok(waiting) };
            after = last.seq;
            for recorded in page {
                let Ok(event) = recorded.event() else { continue };
                let Some(call) = event.call() else { continue };
                match event {
                    Event::InteractionRequested(request) => waiting.push(Waiting {
                        call,
                        kind: request.kind,
                        text: request.text,
                        effect_key: request.effect_key,
                        arguments_hash: request.arguments_hash,
                    }),
                    Event::InteractionAnswered(_)
                    | Event::ToolSuccess(_)
                    | Event::ToolFailed(_)
                    | Event::ToolUnknown(_) => {
                        waiting.retain(|request| request.call != call);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Allows a call that waits for approval.
    pub async fn approve(&self, call: CallKey) -> Result<InputId, Error> {
        self.answer_with(call, AnswerKind::Approved, None).await
    }

    /// Refuses a call that waits; with feedback the model goes on, without it the step stops.
    pub async fn decline(&self, call: CallKey, feedback: Option<String>) -> Result<InputId, Error> {
        self.answer_with(call, AnswerKind::Declined, feedback).await
    }

    /// Answers a tool's question.
    pub async fn answer(&self, call: CallKey, text: impl Into<String>) -> Result<InputId, Error> {
        self.answer_with(call, AnswerKind::Text, Some(text.into())).await
    }

    /// Closes a tool's question unanswered; the step stops.
    pub async fn dismiss(&self, call: CallKey) -> Result<InputId, Error> {
        self.answer_with(call, AnswerKind::Dismissed, None).await
    }

    async fn answer_with(&self, call: CallKey, kind: AnswerKind, text: Option<String>) -> Result<InputId, Error> {
        let waiting = self.waiting().await?;
        let request = waiting.into_iter().find(|waiting| waiting.call == call).ok_or(Error::NotWaiting(call))?;
        let answer = Answer::new(call, request.effect_key, request.arguments_hash, kind).text(text);
        self.admit(NewInputKind::Answer(answer), None, true).await
    }

    /// What was admitted and not yet promoted, in order of arrival.
    pub async fn pending(&self) -> Result<Vec<InboxItem>, Error> {
        Ok(self.worker.shop.store.pending(self.id()).await?)
    }

    /// Takes an input back; `false` if it is not pending any more.
    pub async fn cancel_input(&self, input: InputId) -> Result<bool, Error> {
        Ok(self.worker.shop.store.cancel(self.id(), input).await?)
    }

    /// Changes when an input is delivered; `false` if it is not pending any more.
    pub async fn change_delivery(&self, input: InputId, delivery: Delivery) -> Result<bool, Error> {
        let changed = self.worker.shop.store.change(self.id(), input, delivery).await?;
        self.slot.doorbell.ring();
        Ok(changed)
    }

    /// Runs until nothing is left to do; joins what runs already.
    ///
    /// With nothing pending, one request is sent on the history as it is.
    /// Dropping the future stops nothing.
    pub async fn run(&self) -> Result<Settled, Error> {
        if self.worker.is_shutting_down() {
            return Err(Error::ShuttingDown);
        }
        let number = self.worker.start(&self.slot, Force::Yes);
        self.ended(number).await
    }

    /// Wakes the session: it runs if something is pending.
    pub fn wake(&self) {
        self.worker.start(&self.slot, Force::No);
    }

    /// Waits until the session does nothing more by itself, and says how it went.
    ///
    /// Where sessions run only when they are told to ([`Serving::Asked`]), what is pending and owned by nobody does nothing by itself.
    pub async fn settled(&self) -> Result<Settled, Error> {
        let mut runs = self.slot.runs();
        loop {
            let now = runs.borrow_and_update().clone();
            if now.begun == now.ended {
                let info = self.worker.shop.store.info(self.id()).await?;
                let quiet = matches!(info.state.next, Next::Idle | Next::Held | Next::Waiting(_));
                if let Some(RunResult::Lost(error)) = &now.last {
                    // Whoever has settled what this worker has lost has left nothing to be answered, and the log says how.
                    let pending = self.pending().await?;
                    if !quiet || pending.iter().any(|item| item.input.asks_for_a_run()) {
                        return self.settled_as(Outcome::Failed, Some(error.clone())).await;
                    }
                }
                if quiet || self.worker.is_shutting_down() {
                    return self.last_outcome().await;
                }
                if self.worker.serving == Serving::Asked && info.owner.is_none() {
                    return self.last_outcome().await;
                }
                // Another process runs it, or it is due later.
                let _ = tokio::time::timeout(self.worker.shop.settings.poll, runs.changed()).await;
            } else if runs.changed().await.is_err() {
                return Err(Error::ShuttingDown);
            }
        }
    }

    /// Follows the session from a place: what is in the log behind it, then what happens, live events among it.
    pub fn follow(&self, after: Seq) -> Follow {
        Follow::new(self.worker.shop.store.follow(self.id(), after), self.clone())
    }

    /// Everything that the log says about the session.
    pub async fn fold(&self) -> Result<SessionFold, Error> {
        let mut fold = opening::cached(&self.worker.shop, self.id()).await;
        let head = self.worker.shop.store.info(self.id()).await?.head;
        opening::bring_up(&self.worker.shop, self.id(), &mut fold, head).await?;
        Ok(fold)
    }

    /// The calls of tools that could not be stopped since this was last asked.
    pub fn leaked(&self) -> Vec<CallKey> {
        self.slot.take_leaked()
    }

    /// Takes up what an earlier process has left, if this runner runs opened sessions by itself.
    pub(crate) fn take_up(&self) {
        if self.worker.serving != Serving::Asked {
            self.wake();
        }
    }

    async fn admit(&self, mut kind: NewInputKind, key: Option<String>, wake: bool) -> Result<InputId, Error> {
        self.worker.shop.redaction.input(&mut kind);
        let id = self.new_id();
        let mut input = NewInput::new(id, self.worker.shop.clock.now(), kind).key(key.clone());
        if !wake {
            input = input.without_waking();
        }
        let admitted = self.worker.shop.store.admit(self.id(), input).await;
        let admitted = admitted.map_err(|error| Error::of_admission(error, &key.unwrap_or_default()))?;
        self.woken(wake);
        Ok(match admitted {
            Admitted::New(id, _) | Admitted::Again(id) => id,
            Admitted::Dropped => id,
        })
    }

    fn woken(&self, wake: bool) {
        self.slot.doorbell.ring();
        if wake && self.worker.serving != Serving::Asked && !self.slot.is_running() {
            self.wake();
        }
    }

    fn new_id(&self) -> InputId {
        InputId::from_u128(self.worker.shop.ids.next())
    }

    async fn ended(&self, number: u64) -> Result<Settled, Error> {
        let mut runs = self.slot.runs();
        let ended = runs.wait_for(|runs| runs.ended >= number).await.map_err(|_| Error::ShuttingDown)?.last.clone();
        match ended {
            Some(RunResult::Ended(outcome, error)) => self.settled_as(outcome, error).await,
            Some(RunResult::Lost(error)) => self.settled_as(Outcome::Failed, Some(error)).await,
            Some(RunResult::Left) => Err(Error::ShuttingDown),
            Some(RunResult::Nothing) | None => self.last_outcome().await,
        }
    }

    /// How the last execution went, by the log.
    async fn last_outcome(&self) -> Result<Settled, Error> {
        let info = self.worker.shop.store.info(self.id()).await?;
        if matches!(info.state.next, Next::Waiting(_)) {
            return self.settled_as(Outcome::Parked, None).await;
        }
        let fold = self.fold().await?;
        let (outcome, error) = fold.last_settled.clone().unwrap_or((Outcome::Completed, None));
        Ok(Settled::from_fold(&fold, outcome, error))
    }

    async fn settled_as(&self, outcome: Outcome, error: Option<StepError>) -> Result<Settled, Error> {
        let fold = match self.slot.kept() {
            Some(fold) => fold,
            None => self.fold().await.unwrap_or_default(),
        };
        Ok(Settled::from_fold(&fold, outcome, error))
    }
}

impl Settled {
    fn from_fold(fold: &SessionFold, outcome: Outcome, error: Option<StepError>) -> Self {
        Self {
            outcome,
            error,
            answer: fold.history.last_answer(),
            usage: fold.totals.usage,
            cost_nanos: fold.totals.cost_nanos,
        }
    }
}

impl Clone for Session {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.worker), self.id())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.worker.give_back(&self.slot);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", self.id()).finish_non_exhaustive()
    }
}

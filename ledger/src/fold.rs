//! Everything about a session that its log says, folded event by event.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use settled_provider_api::{ErrorClass, FinishReason, ModelRef, Usage};
use settled_tools_api::{CallKey, MessageId};

use crate::event::*;
use crate::history::{Entry, History};
use crate::{Event, ExecutionId, Seq, Settlement};

/// The state of a session as its log tells it.
///
/// It is the same whether it was folded live or from the log; a drain starts from it and keeps it up to date.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SessionFold {
    /// The last event that is folded.
    pub head: Seq,
    /// The agent that runs.
    pub agent: String,
    /// The model that is asked; `None` before the session's first event.
    pub model: Option<ModelRef>,
    /// What the session can be found by.
    pub tags: Arc<BTreeMap<String, String>>,
    /// What was said.
    pub history: History,
    /// What the session has used.
    pub totals: Totals,
    /// The execution that has started and not settled.
    pub execution: Option<ExecutionFold>,
    /// The step that has started and not settled.
    pub step: Option<StepFold>,
    /// Budgets of the logical step: a step with its retries and the steps that continue its cut answers.
    pub budget: BudgetFold,
    /// How many steps count against the allowance since input was last promoted.
    pub steps: u32,
    /// The compaction that has started and not ended.
    pub compaction: Option<CompactionReason>,
    /// The size of the context as the provider last measured it.
    pub measured: Option<Measured>,
    /// Hosted calls that the last step left open by a pause.
    pub left_open: Vec<(CallKey, String)>,
    /// How the last execution went.
    pub last_settled: Option<(Outcome, Option<StepError>)>,
}

/// What a session has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Totals {
    /// The sum over its steps and summaries.
    pub usage: Usage,
    /// What they cost, in nano-units of money.
    pub cost_nanos: u64,
    /// How many of them reported no usage, or have no known price: the sums are at least what they say.
    pub unreported: u32,
}

/// An execution that has started and not settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExecutionFold {
    /// The execution.
    pub id: ExecutionId,
    /// How often it was taken up again.
    pub resumes: u32,
    /// How many of its steps the provider has paused.
    pub pauses: u32,
    /// Whether anything of it has been visible.
    pub visible: bool,
    /// Whether its last step asks to be continued.
    pub continues: bool,
    /// How its last step failed, if it did and nothing has come since.
    pub failed: Option<(StepError, Settlement)>,
}

/// A step that has started and not settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepFold {
    /// The step.
    pub message: MessageId,
    /// The place of its first event; the step can be read from behind the one before.
    pub from: Seq,
    /// The number of its last attempt.
    pub attempt: u32,
    /// The model that was asked.
    pub model: ModelRef,
    /// The step whose cut answer it goes on from.
    pub continues: Option<MessageId>,
    /// Whether it is a final, text-only step.
    pub last: bool,
    /// Whether its stream is over, so that it can be rebuilt.
    pub streamed: bool,
    /// Hosted calls that the step before had left open when this one started.
    pub carried: Vec<(CallKey, String)>,
    /// Whether a local call has an outcome, so that the model is to be asked again.
    pub answered: bool,
    /// The hosted calls of this step and before that have no outcome, with their labels.
    pub open_hosted: Vec<(CallKey, String)>,
}

/// Budgets of a logical step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BudgetFold {
    /// How many attempts it has had.
    pub attempts: u32,
    /// How many retries and continuations it has used.
    pub retries: u32,
    /// How many of them were for silence.
    pub timeouts: u32,
    /// How many of them were for a failure of unknown kind.
    pub unknowns: u32,
    /// Whether an overflow was recovered from.
    pub recovered: bool,
    /// The attempt that is due, if one is.
    pub backoff: Option<Backoff>,
}

/// An attempt that is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Backoff {
    /// The step that failed.
    pub message: MessageId,
    /// The number of the attempt that is due, over retries and continuations.
    pub attempt: u32,
    /// When it is due.
    pub at: crate::Timestamp,
    /// Why another attempt is made.
    pub error: StepError,
    /// Whether a new step continues a cut answer; otherwise the same step is tried again.
    pub continues: bool,
}

/// The size of the context as a provider measured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Measured {
    /// Prompt and answer together, in tokens.
    pub tokens: u64,
    /// How many entries of the history it takes in.
    pub entries: usize,
}

impl SessionFold {
    /// A session without events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the event at a place of the log, the next one.
    pub fn apply(&mut self, seq: Seq, event: &Event) {
        self.head = seq;
        self.before_history(seq, event);
        self.history.apply(event);
        if let Event::StepEnded(ended) = event {
            let tokens = ended.usage.map_or(0, |usage| usage.prompt().saturating_add(usage.generated()));
            if tokens > 0 {
                self.measured = Some(Measured { tokens, entries: self.history.entries().len() });
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other events change nothing that a drain needs")]
    fn before_history(&mut self, seq: Seq, event: &Event) {
        match event {
            Event::SessionCreated(created) => {
                self.agent.clone_from(&created.agent);
                self.model = Some(created.model.clone());
                self.tags = Arc::new(created.tags.clone());
            }
            Event::AgentSelected(selected) => self.agent.clone_from(&selected.agent),
            Event::ModelSelected(selected) => self.model = Some(selected.model.clone()),
            Event::ExecutionStarted(started) => {
                let same = self.execution.take().filter(|execution| execution.id == started.execution);
                let fresh = ExecutionFold {
                    id: started.execution,
                    resumes: 0,
                    pauses: 0,
                    visible: false,
                    continues: false,
                    failed: None,
                };
                self.execution = Some(ExecutionFold { resumes: started.resume, ..same.unwrap_or(fresh) });
            }
            Event::ExecutionSettled(settled) => {
                self.execution = None;
                self.last_settled = Some((settled.outcome, settled.error.clone()));
                self.budget = BudgetFold::default();
            }
            Event::InputPromoted(_) => {
                self.steps = 0;
                self.continues(false);
            }
            Event::StepStarted(started) => self.step_started(seq, started),
            Event::StepStreamed(_) => {
                if let Some(step) = &mut self.step {
                    step.streamed = true;
                }
            }
            Event::StepEnded(ended) => {
                self.totals.add(ended.usage, ended.cost_nanos);
                let paused = ended.finish == Some(FinishReason::Pause);
                if let Some(step) = self.step.take() {
                    self.continues((step.answered && !step.last) || paused);
                    self.left_open = if paused { step.open_hosted } else { Vec::new() };
                }
                if let Some(execution) = self.execution.as_mut().filter(|_| paused) {
                    execution.pauses += 1;
                }
            }
            Event::StepFailed(failed) => {
                if failed.usage.is_some() {
                    self.totals.add(failed.usage, failed.cost_nanos);
                }
                self.step = None;
                // It will not be tried again; the attempt at what continues it is scheduled behind this.
                self.budget.backoff = None;
                self.left_open.clear();
                self.continues(false);
                if let Some(execution) = &mut self.execution {
                    execution.failed = Some((failed.error.clone(), failed.settlement.clone()));
                }
            }
            Event::RetryScheduled(scheduled) => self.retry_scheduled(scheduled),
            Event::CompactionStarted(started) => self.compaction = Some(started.reason),
            Event::CompactionEnded(ended) => {
                self.compaction = None;
                self.measured = None;
                self.budget.recovered |= ended.reason == CompactionReason::Overflow;
                self.totals.add(ended.usage, ended.cost_nanos);
            }
            Event::CompactionFailed(failed) => {
                self.compaction = None;
                if failed.usage.is_some() {
                    self.totals.add(failed.usage, failed.cost_nanos);
                }
            }
            Event::ToolInputStarted(started) => {
                self.visible();
                let key = CallKey { step: started.message, ordinal: started.call };
                if let Some(step) = self.step.as_mut().filter(|_| started.hosted) {
                    step.open_hosted.push((key, started.id.clone()));
                }
            }
            Event::ToolCalled(called) if called.hosted => {
                let key = CallKey { step: called.message, ordinal: called.call };
                // That the provider runs it itself may be known only now.
                let label = self.history.open().and_then(|open| open.calls().find(|call| call.key == key));
                let label = label.map_or_else(String::new, |call| call.label.clone());
                if let Some(step) = self.step.as_mut()
                    && step.open_hosted.iter().all(|(open, _)| *open != key)
                {
                    step.open_hosted.push((key, label));
                }
            }
            Event::ToolSuccess(_) | Event::ToolFailed(_) | Event::ToolUnknown(_) => {
                if let (Some(step), Some(key)) = (self.step.as_mut(), event.call()) {
                    let hosted = step.open_hosted.len();
                    step.open_hosted.retain(|(open, _)| *open != key);
                    step.answered |= step.open_hosted.len() == hosted && key.step == step.message;
                }
            }
            Event::TextStarted(_) | Event::ReasoningStarted(_) | Event::MediaAdded(_) => self.visible(),
            _ => {}
        }
    }

    fn step_started(&mut self, seq: Seq, started: &StepStarted) {
        self.continues(false);
        self.budget.backoff = None;
        let again = self.step.take().filter(|step| step.message == started.message);
        if again.is_none() && started.continues.is_none() {
            self.budget = BudgetFold::default();
            self.steps += 1;
        }
        self.budget.attempts += 1;
        let carried = match &again {
            Some(step) => step.carried.clone(),
            None => std::mem::take(&mut self.left_open),
        };
        self.step = Some(StepFold {
            message: started.message,
            from: again.map_or(seq, |step| step.from),
            attempt: started.attempt,
            model: started.model.clone(),
            continues: started.continues,
            last: started.last,
            streamed: false,
            open_hosted: carried.clone(),
            carried,
            answered: false,
        });
    }

    fn retry_scheduled(&mut self, scheduled: &RetryScheduled) {
        self.budget.retries += 1;
        if let FailureClass::Provider(class) = scheduled.error.class {
            self.budget.timeouts += u32::from(class == ErrorClass::Timeout);
            self.budget.unknowns += u32::from(class == ErrorClass::Unknown);
        }
        let continues = self.step.as_ref().is_none_or(|step| step.message != scheduled.message);
        self.budget.backoff = Some(Backoff {
            message: scheduled.message,
            attempt: scheduled.attempt,
            at: scheduled.at,
            error: scheduled.error.clone(),
            continues,
        });
    }

    fn continues(&mut self, continues: bool) {
        if let Some(execution) = &mut self.execution {
            execution.failed = None;
            execution.continues = continues;
        }
    }

    fn visible(&mut self) {
        if let Some(execution) = &mut self.execution {
            execution.visible = true;
        }
    }

    /// Whether the last entry of the history is a person's, or speaks in a person's place: nothing has answered it yet.
    pub fn is_unanswered(&self) -> bool {
        let told = |entry: &&Arc<Entry>| matches!(entry.as_ref(), Entry::Instructions(_));
        matches!(
            self.history.entries().iter().rev().find(|entry| !told(entry)).map(Arc::as_ref),
            Some(Entry::User(_) | Entry::Synthetic(_) | Entry::Summary(_))
        )
    }
}

impl Totals {
    fn add(&mut self, usage: Option<Usage>, cost_nanos: Option<u64>) {
        self.usage = self.usage.plus(&usage.unwrap_or_default());
        self.cost_nanos = self.cost_nanos.saturating_add(cost_nanos.unwrap_or(0));
        self.unreported += u32::from(usage.is_none() || cost_nanos.is_none());
    }
}

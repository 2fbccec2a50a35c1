//! Settling: transitions at the end of a step.

use serde_json::Value;
use settled_tools_api::ReplayClass;

use super::evidence::CallEnd;
use super::failed::{bad_arguments, failed_with, unanswered};
use super::{Events, Failure, Stage, StepEnd, StepLedger, Unsettled};
use crate::event::*;
use crate::{Settlement, words};

/// Transitions at the end of a step.
impl StepLedger {
    /// Gives up the overflow that was held: it is the step's failure now.
    ///
    /// It comes before the settlement, which depends on it.
    pub fn release_held_overflow(&mut self) {
        if let Some(error) = self.held.take() {
            self.failure.get_or_insert(Failure::Provider(error));
            self.broken = true;
        }
    }

    /// Records that the stream is over: from this event on the step can be rebuilt.
    #[must_use]
    pub fn streamed(&self) -> Events {
        let finish = self.finish.as_ref();
        vec![
            StepStreamed {
                message: self.message,
                exit: self.stream.unwrap_or(ExitKind::Completed),
                failure: self.failure.as_ref().map(Failure::to_error),
                broken: self.broken,
                finish: finish.map(|finish| finish.reason),
                raw_finish: finish.and_then(|finish| finish.raw.clone()),
                usage: finish.and_then(|finish| finish.usage),
                state: finish.and_then(|finish| finish.state.clone()),
            }
            .into(),
        ]
    }

    /// Fails every call without an outcome, each with its own cause.
    ///
    /// Hosted calls stay open where a clean step was paused.
    #[must_use]
    pub fn fail_unsettled_tools(&mut self, scope: Unsettled) -> Events {
        let clean_pause = self.paused() && self.settlement() == Settlement::Clean;
        let stopped = self.interrupt.is_some() || self.stream == Some(ExitKind::Interrupted);
        let hosted_cause = match scope {
            Unsettled::AtSettlement if !stopped => FailureCause::ResultMissing,
            Unsettled::AtSettlement | Unsettled::AtSweep => FailureCause::Interrupted,
        };
        let mut owed = Events::new();
        if !clean_pause {
            for carried in self.carried.iter_mut().filter(|carried| !carried.settled) {
                carried.settled = true;
                owed.push(failed_with(carried.key, hosted_cause, "").into());
            }
        }
        for key in self.unsettled() {
            let Some(call) = self.calls.get(key.ordinal as usize) else {
                continue;
            };
            if call.hosted {
                if !clean_pause {
                    owed.extend(self.settle(key, CallEnd::Answered, failed_with(key, hosted_cause, "")));
                }
                continue;
            }
            let (ran, bytes) = (call.ran, call.raw.len());
            let acted = ran && call.replay != Some(ReplayClass::Pure);
            let stage = call.stage;
            let (end, outcome): (CallEnd, Event) = match stage {
                Stage::InputOpen | Stage::InputClosed if stopped => {
                    (CallEnd::Answered, failed_with(key, FailureCause::NotRun, "").into())
                }
                Stage::InputOpen | Stage::InputClosed => {
                    let failed = bad_arguments(key, ArgumentsFault::CutOff, &words::cut_off(bytes));
                    (CallEnd::Answered, failed.into())
                }
                Stage::Running | Stage::Starting if ran && scope == Unsettled::AtSweep => {
                    let unknown = ToolUnknown { message: key.step, call: key.ordinal, content: words::lost() };
                    (CallEnd::Answered, unknown.into())
                }
                Stage::ParkedForQuestion | Stage::Running => {
                    (CallEnd::Cancelled, unanswered(key, FailureCause::Interrupted, "", acted).into())
                }
                Stage::Starting if ran => {
                    (CallEnd::Cancelled, unanswered(key, FailureCause::Interrupted, "", acted).into())
                }
                Stage::Called | Stage::ParkedForApproval | Stage::Starting | Stage::Settled => {
                    (CallEnd::Answered, failed_with(key, FailureCause::NotRun, "").into())
                }
            };
            owed.extend(self.settle(key, end, outcome));
        }
        owed
    }

    /// The one terminal of a step that is not clean: the failure recorded first, else `aborted`.
    #[must_use]
    pub fn fail_assistant(&mut self, end: StepEnd) -> Events {
        debug_assert!(!self.terminal, "a step has one terminal");
        debug_assert!(self.unsettled().is_empty(), "every call has its outcome before the step's terminal");
        let settlement = self.settlement();
        let aborted = || StepError::new(FailureClass::Aborted, "the step was interrupted");
        let error = self.failure.as_ref().map_or_else(aborted, Failure::to_error);
        let finish = self.finish.as_ref();
        self.terminal = true;
        vec![
            StepFailed {
                message: self.message,
                error,
                settlement,
                finish: finish.map(|finish| finish.reason),
                raw_finish: finish.and_then(|finish| finish.raw.clone()),
                usage: finish.and_then(|finish| finish.usage),
                cost_nanos: end.cost_nanos,
                files: end.files,
            }
            .into(),
        ]
    }

    /// The one terminal of a clean step.
    #[must_use]
    pub fn end_step(&mut self, end: StepEnd) -> Events {
        debug_assert!(!self.terminal, "a step has one terminal");
        debug_assert_eq!(self.settlement(), Settlement::Clean, "only a clean step ends");
        let finish = self.finish.as_ref();
        self.terminal = true;
        vec![
            StepEnded {
                message: self.message,
                finish: finish.map(|finish| finish.reason),
                raw_finish: finish.and_then(|finish| finish.raw.clone()),
                usage: finish.and_then(|finish| finish.usage),
                cost_nanos: end.cost_nanos,
                files: end.files,
                state: finish.and_then(|finish| finish.state.clone()),
            }
            .into(),
        ]
    }
}

/// Merges provider state that came in pieces: records by member, the later one wins.
pub(super) fn merge(into: &mut Option<Value>, more: Option<&Value>) {
    match (into.as_mut(), more) {
        (_, None) => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            old.extend(new.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        (_, Some(new)) => *into = Some(new.clone()),
    }
}

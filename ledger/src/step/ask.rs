//! Asking: what follows from the evidence.

use serde_json::Value;
use settled_provider_api::{ErrorClass, Finish, FinishReason, ProviderError};
use settled_tools_api::{CallKey, MessageId, ReplayClass};

use super::evidence::{Block, Call, CallEnd};
use super::{CarriedCall, DeltaKind, Failure, PersonsAnswer, Stage, StepLedger, ToolUse, ToolsExit};
use crate::Settlement;
use crate::event::{ExitKind, FailureClass, InterruptedBy, StepError};

/// What follows from the evidence.
impl StepLedger {
    /// The step.
    pub fn message(&self) -> MessageId {
        self.message
    }

    /// Whether anything visible was produced: text, reasoning, media, any sign of a call, the result of a carried one.
    ///
    /// From then on there is no transparent retry and no overflow recovery.
    pub fn output_started(&self) -> bool {
        self.blocks.iter().any(|block| !matches!(block, Block::Vacant))
            || !self.calls.is_empty()
            || self.carried.iter().any(|carried| carried.settled)
    }

    /// Whether a complete local call was admitted.
    pub fn has_local_tool_calls(&self) -> bool {
        self.calls.iter().any(|call| !call.hosted && call.stage >= Stage::Called)
    }

    /// The overflow that is held back until recovery was tried.
    pub fn held_overflow(&self) -> Option<&ProviderError> {
        self.held.as_ref()
    }

    /// The failure that was recorded first.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// The failure that another attempt might mend, if nothing visible was produced and nobody interrupted.
    pub fn may_retry(&self) -> Option<&Failure> {
        self.failure.as_ref().filter(|_| !self.output_started() && self.interrupt.is_none())
    }

    /// The provider's failure that cut an answer of which something is visible, if nobody interrupted, no person refused and no tool was interrupted from inside.
    ///
    /// A new step may continue the answer; where what came does not decode, or broke the protocol, nobody knows what there is to continue.
    pub fn cut_by(&self) -> Option<&Failure> {
        let cut = self.output_started() && self.settlement() == Settlement::ProviderFailed && !self.tools_cancelled();
        let readable =
            |failure: &Failure| matches!(failure, Failure::Provider(error) if error.class != ErrorClass::InvalidOutput);
        self.failure.as_ref().filter(|failure| cut && readable(failure))
    }

    /// Why the provider stopped, and what it used.
    pub fn finish(&self) -> Option<&Finish> {
        self.finish.as_ref()
    }

    /// Who interrupted, if somebody did.
    pub fn interrupted_by(&self) -> Option<InterruptedBy> {
        self.interrupt
    }

    /// Whether a call may start: not after an interrupt, a provider's error, a held overflow or a violation.
    pub fn may_start_calls(&self) -> bool {
        let stream_failed = matches!(self.stream, Some(ExitKind::Failed | ExitKind::Interrupted));
        let refused = self.calls.iter().any(|call| matches!(call.end, Some(CallEnd::Stopped | CallEnd::Dismissed)));
        self.interrupt.is_none() && !self.broken && self.held.is_none() && !stream_failed && !refused
    }

    /// What has come so far of the blocks that are open: text, then reasoning, then arguments.
    pub fn open_blocks(&self) -> Vec<(DeltaKind, u32, &str)> {
        let mut open: Vec<_> = self
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::Text(fragment) => Some((DeltaKind::Text, fragment)),
                Block::Reasoning(fragment) => Some((DeltaKind::Reasoning, fragment)),
                Block::Vacant | Block::Call(_) | Block::Media => None,
            })
            .filter_map(|(kind, fragment)| Some((kind, fragment.ordinal, fragment.open.as_ref()?.text.as_str())))
            .collect();
        open.sort_by_key(|(kind, ordinal, _)| (*kind != DeltaKind::Text, *ordinal));
        let calls = self.calls.iter().zip(0..).filter(|(call, _)| call.stage == Stage::InputOpen);
        open.extend(calls.map(|(call, ordinal)| (DeltaKind::ToolInput, ordinal, call.raw.as_str())));
        open
    }

    /// Where a call of this step stands; `None` for a call of another step.
    pub fn stage(&self, key: CallKey) -> Option<Stage> {
        self.local_call(key).map(|call| call.stage)
    }

    /// A complete local call's name, arguments and replay class.
    pub fn called(&self, key: CallKey) -> Option<(&str, &Value, ReplayClass)> {
        let call = self.local_call(key).filter(|call| call.stage >= Stage::Called)?;
        Some((&call.name, &call.input, call.replay.unwrap_or_default()))
    }

    /// Whether a person has already allowed a call.
    pub fn is_approved(&self, key: CallKey) -> bool {
        self.local_call(key).is_some_and(|call| call.answer == Some(PersonsAnswer::Approved))
    }

    /// The local calls at a stage, in order.
    pub fn local_calls_at(&self, stage: Stage) -> Vec<CallKey> {
        self.keys(|call| !call.hosted && call.stage == stage)
    }

    /// The local calls that wait for a person, in order.
    pub fn waiting_for_a_person(&self) -> Vec<CallKey> {
        self.keys(|call| matches!(call.stage, Stage::ParkedForApproval | Stage::ParkedForQuestion))
    }

    /// The calls without an outcome, local and hosted, in order.
    pub fn unsettled(&self) -> Vec<CallKey> {
        self.keys(|call| call.stage != Stage::Settled)
    }

    /// The hosted calls that a pause leaves open, for the ledger of the step that continues.
    pub fn left_open(&self) -> Vec<CarriedCall> {
        let carried = self.carried.iter().filter(|carried| !carried.settled).cloned();
        let own = self.calls.iter().zip(0..).filter(|(call, _)| call.hosted && call.stage != Stage::Settled);
        carried
            .chain(own.map(|(call, ordinal)| CarriedCall::new(CallKey { step: self.message, ordinal }, &call.label)))
            .collect()
    }

    /// Whether the model is to be asked again without new input.
    ///
    /// The finish reason decides only where it is a pause.
    pub fn needs_continuation(&self) -> bool {
        let answered =
            self.tool_use == ToolUse::On && self.calls.iter().any(|call| !call.hosted && call.stage == Stage::Settled);
        self.settlement() == Settlement::Clean && (answered || self.paused())
    }

    /// The classification of the step: a total function of the evidence, most disruptive first.
    pub fn settlement(&self) -> Settlement {
        let question_dismissed = self.calls.iter().any(|call| call.end == Some(CallEnd::Dismissed));
        let refused = self.calls.iter().any(|call| call.end == Some(CallEnd::Stopped));
        let infra = self.calls.iter().find_map(|call| match &call.end {
            Some(CallEnd::Infra(cause)) => Some(cause.clone()),
            _ => None,
        });
        let stopped = self.interrupt.is_some() || self.stream == Some(ExitKind::Interrupted);
        let incomplete = match self.finish.as_ref().map(|finish| finish.reason) {
            None | Some(FinishReason::Unknown | FinishReason::ContentFilter | FinishReason::Refusal) => true,
            Some(FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Length | FinishReason::Pause) => false,
        };
        if stopped || question_dismissed || refused {
            Settlement::Interrupted { question_dismissed }
        } else if self.stream != Some(ExitKind::Completed) || self.broken || incomplete {
            Settlement::ProviderFailed
        } else if self.tools_cancelled() {
            Settlement::Interrupted { question_dismissed: false }
        } else if let Some(cause) = infra {
            Settlement::ToolInfraFailed { cause }
        } else {
            Settlement::Clean
        }
    }

    /// Whether a tool was interrupted from inside: a call that was running when the tools as a whole had ended is as good as cancelled.
    fn tools_cancelled(&self) -> bool {
        self.tools_exit == Some(ToolsExit::Interrupted)
            || self.calls.iter().any(|call| match call.stage {
                Stage::Settled => call.end == Some(CallEnd::Cancelled),
                Stage::Running | Stage::ParkedForQuestion => self.tools_exit.is_some(),
                Stage::Starting => call.ran && self.tools_exit.is_some(),
                Stage::InputOpen | Stage::InputClosed | Stage::Called | Stage::ParkedForApproval => false,
            })
    }

    /// The failure of a step that ended without a recorded one.
    pub(super) fn incomplete(&self) -> Option<Failure> {
        let hosted_open = self.calls.iter().any(|call| call.hosted && call.stage != Stage::Settled);
        let provider = |class, message: &str| Some(Failure::Provider(ProviderError::new(class, message)));
        match self.finish.as_ref().map(|finish| finish.reason) {
            None if hosted_open => Some(Failure::Other(StepError::new(
                FailureClass::ResultMissing,
                "the stream ended without a finish and without the result of a call that the provider ran",
            ))),
            None => provider(ErrorClass::IncompleteStream, "the stream ended without a finish"),
            Some(FinishReason::Unknown) => {
                let raw = self.finish.as_ref().and_then(|finish| finish.raw.as_deref()).unwrap_or("none given");
                provider(
                    ErrorClass::IncompleteStream,
                    &format!("the stream ended with an unknown finish reason: {raw}"),
                )
            }
            Some(FinishReason::ContentFilter) => {
                provider(ErrorClass::ContentPolicy, "a content filter of the provider cut the answer")
            }
            Some(FinishReason::Refusal) => provider(ErrorClass::ContentPolicy, "the model refused to answer"),
            Some(FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Length | FinishReason::Pause) => None,
        }
    }

    pub(super) fn paused(&self) -> bool {
        self.finish.as_ref().is_some_and(|finish| finish.reason == FinishReason::Pause)
    }

    fn keys(&self, mut wanted: impl FnMut(&Call) -> bool) -> Vec<CallKey> {
        let calls = self.calls.iter().zip(0..);
        calls.filter(|(call, _)| wanted(call)).map(|(_, ordinal)| CallKey { step: self.message, ordinal }).collect()
    }
}

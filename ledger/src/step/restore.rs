//! Rebuilding a ledger from the log.

use std::sync::Arc;

use serde_json::Value;
use settled_provider_api::{Finish, ProviderError};
use settled_tools_api::{MessageId, SessionId};

use super::evidence::{Block, Call, CallEnd, Fragment};
use super::failed::infra_failure;
use super::{CarriedCall, Failure, PersonsAnswer, Stage, StepLedger, ToolUse};
use crate::InfraCause;
use crate::event::*;

/// Rebuilding a ledger from the log.
impl StepLedger {
    /// The ledger of the last attempt at a step, from the step's events in the log.
    ///
    /// From `step.streamed` on its answers equal those of the ledger that wrote them.
    /// Events of other steps are passed over, except outcomes of the carried calls.
    pub fn restore<'a>(
        session: SessionId,
        message: MessageId,
        carried: Vec<CarriedCall>,
        events: impl IntoIterator<Item = &'a Event>,
    ) -> Self {
        let fresh = Self::new(session, message, Arc::default(), ToolUse::On).carrying(carried);
        let mut ledger = fresh.clone();
        for event in events {
            if let Event::StepStarted(started) = event
                && started.message == message
            {
                ledger = fresh.clone();
                ledger.tool_use = if started.last { ToolUse::Off } else { ToolUse::On };
            } else {
                ledger.restore_one(event);
            }
        }
        ledger
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other events are about a call, or change no evidence")]
    fn restore_one(&mut self, event: &Event) {
        if let Some(key) = event.call()
            && let Some(carried) = self.carried.iter_mut().find(|carried| carried.key == key)
        {
            carried.settled |= matches!(event, Event::ToolSuccess(_) | Event::ToolFailed(_) | Event::ToolUnknown(_));
            return;
        }
        if event.message() != Some(self.message) {
            return;
        }
        match event {
            Event::TextStarted(TextStarted { ordinal, .. }) => {
                self.blocks.push(Block::Text(Fragment { ordinal: *ordinal, open: None }));
            }
            Event::ReasoningStarted(ReasoningStarted { ordinal, .. }) => {
                self.blocks.push(Block::Reasoning(Fragment { ordinal: *ordinal, open: None }));
            }
            Event::MediaAdded(_) => self.blocks.push(Block::Media),
            Event::ToolInputStarted(started) => {
                self.blocks.push(Block::Call(started.call));
                self.calls.push(Call::new(&started.id, &started.name, started.hosted));
            }
            Event::InterruptRecorded(recorded) => self.interrupt = Some(recorded.by),
            Event::StepStreamed(streamed) => {
                self.stream = Some(streamed.exit);
                self.failure = streamed.failure.clone().map(|error| {
                    if let FailureClass::Provider(class) = error.class {
                        Failure::Provider(ProviderError::new(class, error.message))
                    } else {
                        Failure::Other(error)
                    }
                });
                self.broken = streamed.broken;
                self.finish = streamed.finish.map(|reason| {
                    let mut finish = Finish::new(reason).usage(streamed.usage).state(streamed.state.clone());
                    finish.raw.clone_from(&streamed.raw_finish);
                    finish
                });
            }
            Event::StepEnded(_) | Event::StepFailed(_) => self.terminal = true,
            _ => {
                let Some(call) = event.call().and_then(|key| self.calls.get_mut(key.ordinal as usize)) else {
                    return;
                };
                if call.restore_one(event) {
                    let CallEnd::Infra(cause) = call.end.clone().unwrap_or(CallEnd::Answered) else {
                        return;
                    };
                    self.failure.get_or_insert_with(|| infra_failure(&cause));
                }
            }
        }
    }
}

impl Call {
    /// Takes in one of its events from the log; `true` if the host's machinery broke.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other events change nothing about a call")]
    fn restore_one(&mut self, event: &Event) -> bool {
        match event {
            Event::ToolInputEnded(ended) => {
                self.stage = Stage::InputClosed;
                self.raw.clone_from(&ended.text);
            }
            Event::ToolCalled(called) => {
                self.stage = Stage::Called;
                self.name.clone_from(&called.name);
                self.input = called.input.clone();
                self.hosted = called.hosted;
                self.replay = called.replay;
            }
            Event::ToolStarted(_) => {
                self.stage = Stage::Starting;
                self.ran = true;
            }
            Event::InteractionRequested(request) => match request.kind {
                InteractionKind::Approval => self.stage = Stage::ParkedForApproval,
                InteractionKind::Question => {
                    self.stage = Stage::ParkedForQuestion;
                    let state = request.state.clone().unwrap_or_default();
                    self.answer = Some(PersonsAnswer::Text { state, text: String::new() });
                }
            },
            Event::InteractionAnswered(answered) => match answered.answer {
                AnswerKind::Approved => {
                    self.stage = Stage::Called;
                    self.answer = Some(PersonsAnswer::Approved);
                }
                AnswerKind::Text => {
                    self.stage = Stage::Starting;
                    if let Some(PersonsAnswer::Text { text, .. }) = &mut self.answer {
                        text.clone_from(answered.text.as_ref().unwrap_or(&String::new()));
                    }
                }
                // The call's failure stands right behind them.
                AnswerKind::Declined | AnswerKind::Dismissed => {}
            },
            Event::ToolSuccess(_) | Event::ToolUnknown(_) => self.restore_end(CallEnd::Answered),
            Event::ToolFailed(failed) => {
                self.restore_end(match failed.cause {
                    // A decline with feedback keeps the feedback as metadata.
                    FailureCause::Declined if failed.metadata.is_none() => CallEnd::Stopped,
                    FailureCause::Dismissed => CallEnd::Dismissed,
                    FailureCause::Interrupted if !self.hosted => CallEnd::Cancelled,
                    FailureCause::Infra => {
                        let message = failed.metadata.as_ref().and_then(Value::as_str);
                        CallEnd::Infra(InfraCause::new(message.unwrap_or_default()))
                    }
                    FailureCause::Execution
                    | FailureCause::Panic
                    | FailureCause::Timeout
                    | FailureCause::UnknownTool
                    | FailureCause::InvalidArguments
                    | FailureCause::Declined
                    | FailureCause::Denied
                    | FailureCause::Interrupted
                    | FailureCause::NotRun
                    | FailureCause::ResultMissing
                    | FailureCause::ToolsDisabled => CallEnd::Answered,
                });
                return failed.cause == FailureCause::Infra;
            }
            _ => {}
        }
        false
    }

    fn restore_end(&mut self, end: CallEnd) {
        self.stage = Stage::Settled;
        self.end = Some(end);
        self.answer = None;
    }
}

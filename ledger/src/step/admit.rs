//! Admitting: what arrived.

use std::sync::Arc;

use serde_json::{Map, Value};
use settled_provider_api::{BlockDelta, Finish, ProviderEvent, ToolCallEvent, ToolInputMalformed};
use settled_tools_api::{CallKey, Content, ReplayClass, ToolOutput, never_empty};

use super::evidence::{Block, Call, CallEnd, Fragment, OpenFragment};
use super::failed::{bad_arguments, failed, failed_with, infra_failure, unanswered};
use super::settle::merge;
use super::{
    Admission, Delta, DeltaKind, Events, Failure, PersonsAnswer, Release, Stage, StepLedger, StreamExit, ToolOutcome,
    ToolUse, ToolsExit,
};
use crate::event::*;
use crate::violation::{Policy, Rule, Violation};
use crate::{InfraCause, words};

/// The most blocks that one stream may have; an index beyond is a violation.
const MAX_BLOCKS: u32 = 65_536;

/// What arrived.
impl StepLedger {
    /// Admits one event of the provider's stream.
    ///
    /// After an error in the stream, a held overflow, a violation, an interrupt or the stream's exit, events change nothing.
    // Inlined, a piece costs its caller no copy of the answer.
    #[inline]
    #[expect(clippy::wildcard_enum_match_arm, reason = "`admit_rare` names every kind")]
    pub fn admit<'e>(&mut self, event: &'e ProviderEvent) -> Admission<'e> {
        if self.broken || self.held.is_some() || self.interrupt.is_some() || self.stream.is_some() {
            return Admission::Nothing;
        }
        let (kind, delta) = match event {
            ProviderEvent::TextDelta(delta) => (DeltaKind::Text, delta),
            ProviderEvent::ReasoningDelta(delta) => (DeltaKind::Reasoning, delta),
            ProviderEvent::ToolInputDelta(delta) => (DeltaKind::ToolInput, delta),
            other => {
                let admitted = self.admit_rare(other);
                return admitted.unwrap_or_else(|violation| self.admit_violation(violation));
            }
        };
        let text = delta.text.as_str();
        match self.piece(kind, delta) {
            // A piece may carry state alone; then there is nothing to show.
            Some(_) if text.is_empty() => Admission::Nothing,
            Some((ordinal, offset)) => Admission::Delta(Delta { kind, ordinal, offset, text }),
            None => {
                let what = format!("{kind:?} in block {}", delta.index);
                self.admit_violation(Violation::new(Rule::DeltaWithoutBlock, what))
            }
        }
    }

    /// The hot path: appends a piece to its open block, and gives the block's ordinal and how much came before.
    ///
    /// It allocates nothing beyond the buffer's growth.
    fn piece(&mut self, kind: DeltaKind, delta: &BlockDelta) -> Option<(u32, u64)> {
        let (ordinal, buffer) = match (kind, self.blocks.get_mut(delta.index as usize)?) {
            (DeltaKind::Text, Block::Text(Fragment { ordinal, open: Some(open) }))
            | (DeltaKind::Reasoning, Block::Reasoning(Fragment { ordinal, open: Some(open) })) => {
                if delta.state.is_some() {
                    merge(&mut open.state, delta.state.as_ref());
                }
                (*ordinal, &mut open.text)
            }
            (DeltaKind::ToolInput, Block::Call(ordinal)) => {
                let call = self.calls.get_mut(*ordinal as usize).filter(|call| call.stage == Stage::InputOpen)?;
                (*ordinal, &mut call.raw)
            }
            _ => return None,
        };
        let offset = buffer.len() as u64;
        buffer.push_str(&delta.text);
        Some((ordinal, offset))
    }

    fn admit_violation<'e>(&mut self, violation: Violation) -> Admission<'e> {
        match violation.rule.policy() {
            Policy::Tolerated => Admission::Nothing,
            Policy::Breaks => {
                self.failure.get_or_insert_with(|| Failure::Violation(violation.clone()));
                self.broken = true;
                Admission::Broken(violation)
            }
        }
    }

    fn admit_rare(&mut self, event: &ProviderEvent) -> Result<Admission<'static>, Violation> {
        let message = self.message;
        let owed = match event {
            ProviderEvent::TextDelta(_) | ProviderEvent::ReasoningDelta(_) | ProviderEvent::ToolInputDelta(_) => {
                return Ok(Admission::Nothing);
            }
            ProviderEvent::StepStart | ProviderEvent::ResponseInfo(_) | ProviderEvent::Alive => {
                return Ok(Admission::Nothing);
            }
            ProviderEvent::TextStart(start) => {
                let ordinal = count(&self.blocks, |block| matches!(block, Block::Text(_)));
                let open = OpenFragment { text: String::new(), state: start.state.clone() };
                *self.vacant(start.index)? = Block::Text(Fragment { ordinal, open: Some(open) });
                vec![TextStarted { message, ordinal }.into()]
            }
            ProviderEvent::ReasoningStart(start) => {
                let ordinal = count(&self.blocks, |block| matches!(block, Block::Reasoning(_)));
                let open = OpenFragment { text: String::new(), state: start.state.clone() };
                *self.vacant(start.index)? = Block::Reasoning(Fragment { ordinal, open: Some(open) });
                vec![ReasoningStarted { message, ordinal }.into()]
            }
            ProviderEvent::TextEnd(end) => match self.blocks.get_mut(end.index as usize) {
                Some(Block::Text(fragment)) => {
                    vec![fragment.close(message, DeltaKind::Text, end.text.as_deref(), end.state.as_ref())?]
                }
                _ => {
                    return Err(Violation::new(Rule::EndWithoutBlock, format!("text in block {}", end.index)));
                }
            },
            ProviderEvent::ReasoningEnd(end) => match self.blocks.get_mut(end.index as usize) {
                Some(Block::Reasoning(fragment)) => {
                    vec![fragment.close(message, DeltaKind::Reasoning, end.text.as_deref(), end.state.as_ref())?]
                }
                _ => {
                    return Err(Violation::new(Rule::EndWithoutBlock, format!("reasoning in block {}", end.index)));
                }
            },
            ProviderEvent::ToolInputStart(start) => {
                let (_, opened) = self.open_call(start.index, &start.id, &start.name, start.hosted)?;
                vec![opened]
            }
            ProviderEvent::ToolInputEnd(end) => {
                let (ordinal, call) = self.call_in(end.index).ok_or_else(|| {
                    Violation::new(Rule::EndWithoutBlock, format!("arguments in block {}", end.index))
                })?;
                let ended = call.close_input(message, ordinal);
                vec![ended.ok_or_else(|| Violation::new(Rule::EndTwice, format!("arguments of call {ordinal}")))?]
            }
            ProviderEvent::ToolInputMalformed(malformed) => self.admit_malformed(malformed)?,
            ProviderEvent::ToolCall(called) => return self.admit_call(called),
            ProviderEvent::HostedResult(result) => {
                let key = self.hosted_awaiting(&result.id, Rule::ResultTwice)?;
                self.settle_hosted(key);
                vec![
                    ToolSuccess {
                        message: key.step,
                        call: key.ordinal,
                        content: result.content.clone(),
                        metadata: None,
                        bounded: None,
                        state: result.state.clone(),
                    }
                    .into(),
                ]
            }
            ProviderEvent::HostedError(error) => {
                let key = self.hosted_awaiting(&error.id, Rule::ErrorAfterResult)?;
                self.settle_hosted(key);
                let content = never_empty(vec![Content::text(error.message.as_str())]);
                vec![ToolFailed { state: error.state.clone(), ..failed(key, FailureCause::Execution, content) }.into()]
            }
            ProviderEvent::Media(block) => {
                *self.vacant(block.index)? = Block::Media;
                vec![MediaAdded { message, media: block.media.clone(), state: block.state.clone() }.into()]
            }
            ProviderEvent::Annotation(note) => {
                vec![AnnotationAdded { message, kind: note.kind.clone(), data: note.data.clone() }.into()]
            }
            ProviderEvent::Finish(finish) => {
                self.admit_finish(finish)?;
                return Ok(Admission::Nothing);
            }
            ProviderEvent::Error(error) => {
                if error.is_overflow() && !self.output_started() {
                    self.held = Some(error.clone());
                } else {
                    self.failure.get_or_insert_with(|| Failure::Provider(error.clone()));
                    self.broken = true;
                }
                return Ok(Admission::Nothing);
            }
        };
        Ok(Admission::Owed(owed))
    }

    fn admit_call(&mut self, called: &ToolCallEvent) -> Result<Admission<'static>, Violation> {
        let message = self.message;
        let mut owed = Events::new();
        if matches!(self.block(called.index), None | Some(Block::Vacant)) {
            owed.push(self.open_call(called.index, &called.id, &called.name, called.hosted)?.1);
        }
        let tools = Arc::clone(&self.tools);
        let Some((ordinal, call)) = self.call_in(called.index) else {
            return Err(Violation::new(Rule::CallTwice, format!("a call in block {}", called.index)));
        };
        if call.stage > Stage::InputClosed {
            return Err(Violation::new(Rule::CallTwice, format!("call {ordinal} of tool `{}`", call.name)));
        }
        call.rename(ordinal, &called.name)?;
        call.hosted |= called.hosted;
        // By the name that the call has by now: a provider may give it only once.
        let known = tools.iter().find(|tool| tool.name == call.name).map(|tool| tool.replay.class());
        owed.extend(call.close_input(message, ordinal));
        call.stage = Stage::Called;
        call.input = record(called.input.clone());
        call.replay = if call.hosted { None } else { known };
        owed.push(
            ToolCalled {
                message,
                call: ordinal,
                name: call.name.clone(),
                input: call.input.clone(),
                hosted: call.hosted,
                replay: call.replay,
                state: called.state.clone(),
            }
            .into(),
        );
        if call.hosted {
            return Ok(Admission::Owed(owed));
        }
        let name = call.name.clone();
        let key = CallKey { step: message, ordinal };
        let refused = match (self.tool_use, known) {
            (ToolUse::Off, _) => (FailureCause::ToolsDisabled, String::new()),
            (ToolUse::On, None) => {
                let offered = tools.iter().map(|tool| tool.name.as_str());
                (FailureCause::UnknownTool, words::unknown_tool(&name, offered))
            }
            (ToolUse::On, Some(_)) => return Ok(Admission::Call(owed, key)),
        };
        owed.extend(self.settle(key, CallEnd::Answered, failed_with(key, refused.0, &refused.1)));
        Ok(Admission::Owed(owed))
    }

    fn admit_malformed(&mut self, malformed: &ToolInputMalformed) -> Result<Events, Violation> {
        let message = self.message;
        let mut owed = Events::new();
        if matches!(self.block(malformed.index), None | Some(Block::Vacant)) {
            owed.push(self.open_call(malformed.index, &malformed.id, &malformed.name, malformed.hosted)?.1);
        }
        let Some((ordinal, call)) = self.call_in(malformed.index) else {
            return Err(Violation::new(Rule::MalformedAfterCall, format!("block {}", malformed.index)));
        };
        if call.stage > Stage::InputClosed {
            return Err(Violation::new(Rule::MalformedAfterCall, format!("call {ordinal} of tool `{}`", call.name)));
        }
        call.rename(ordinal, &malformed.name)?;
        if !malformed.raw.is_empty() {
            call.raw.clone_from(&malformed.raw);
        }
        owed.extend(call.close_input(message, ordinal));
        let key = CallKey { step: message, ordinal };
        let failed = if call.hosted {
            // The arguments were the provider's own business; what is missing here is its result.
            failed_with(key, FailureCause::ResultMissing, "")
        } else {
            bad_arguments(key, ArgumentsFault::NotJson, &words::not_json(&call.raw))
        };
        owed.extend(self.settle(key, CallEnd::Answered, failed));
        Ok(owed)
    }

    fn admit_finish(&mut self, finish: &Finish) -> Result<(), Violation> {
        match &mut self.finish {
            None => self.finish = Some(finish.clone()),
            Some(first) if first.reason == finish.reason => {
                first.raw = first.raw.take().or_else(|| finish.raw.clone());
                first.usage = finish.usage.or(first.usage);
                first.state = first.state.take().or_else(|| finish.state.clone());
                return Err(Violation::new(Rule::FinishRepeated, format!("`{}`", finish.reason.name())));
            }
            Some(first) => {
                let what = format!("`{}` after `{}`", finish.reason.name(), first.reason.name());
                return Err(Violation::new(Rule::FinishChanged, what));
            }
        }
        Ok(())
    }

    /// Admits the outcome of a run of a local call, or of a call that will not run.
    ///
    /// An outcome for a call that is settled comes too late: it changes nothing and nothing is owed.
    #[must_use]
    pub fn admit_outcome(&mut self, key: CallKey, outcome: ToolOutcome) -> Events {
        let Some(call) = self.local_call(key) else {
            return Events::new();
        };
        if call.stage == Stage::Settled {
            return Events::new();
        }
        let acted = call.ran && call.replay != Some(ReplayClass::Pure);
        let (message, ordinal) = (key.step, key.ordinal);
        let (end, event): (CallEnd, Event) = match outcome {
            ToolOutcome::Ask { question, state } => {
                let request =
                    call.request(key, InteractionKind::Question, question, Some(state.clone()), &self.session);
                if let Some(call) = self.local_call_mut(key) {
                    call.stage = Stage::ParkedForQuestion;
                    call.answer = Some(PersonsAnswer::Text { state, text: String::new() });
                }
                return vec![request];
            }
            ToolOutcome::Success(output, _) if output.content.is_empty() => {
                let failed = failed_with(key, FailureCause::Execution, "it returned no content");
                (CallEnd::Answered, failed.with_metadata(output.metadata).into())
            }
            ToolOutcome::Success(output, bounded) => {
                let ToolOutput { content, metadata, .. } = output;
                let content = never_empty(content);
                let success = ToolSuccess { message, call: ordinal, content, metadata, bounded, state: None };
                (CallEnd::Answered, success.into())
            }
            ToolOutcome::Failed(output, bounded) => {
                let failed = failed(key, FailureCause::Execution, never_empty(output.content));
                (CallEnd::Answered, ToolFailed { bounded, ..failed.with_metadata(output.metadata) }.into())
            }
            ToolOutcome::Unknown(output) => {
                let content = never_empty(output.content);
                (CallEnd::Answered, ToolUnknown { message, call: ordinal, content }.into())
            }
            ToolOutcome::Lost => {
                (CallEnd::Answered, ToolUnknown { message, call: ordinal, content: words::lost() }.into())
            }
            ToolOutcome::Declined { feedback } => {
                let end = if feedback.is_some() { CallEnd::Answered } else { CallEnd::Stopped };
                let failed = failed_with(key, FailureCause::Declined, feedback.as_deref().unwrap_or_default());
                (end, failed.with_metadata(feedback.map(Value::from)).into())
            }
            ToolOutcome::Dismissed => (CallEnd::Dismissed, failed_with(key, FailureCause::Dismissed, "").into()),
            ToolOutcome::Infra(message) => {
                let cause = InfraCause::new(message);
                self.failure.get_or_insert_with(|| infra_failure(&cause));
                let failed = unanswered(key, FailureCause::Infra, &cause.message, acted);
                let failed = failed.with_metadata(Some(Value::from(cause.message.as_str())));
                (CallEnd::Infra(cause), failed.into())
            }
            ToolOutcome::Panicked(text) => {
                (CallEnd::Answered, unanswered(key, FailureCause::Panic, &text, acted).into())
            }
            ToolOutcome::TimedOut(why) => {
                (CallEnd::Answered, unanswered(key, FailureCause::Timeout, &why, acted).into())
            }
            ToolOutcome::Stopped(progress) => {
                let progress = progress.map(|progress| match progress.as_str() {
                    Some(text) => text.to_owned(),
                    None => progress.to_string(),
                });
                let why = progress.map(|progress| format!("its last progress was {progress}")).unwrap_or_default();
                let (end, cause) = if call.ran {
                    (CallEnd::Cancelled, FailureCause::Interrupted)
                } else {
                    (CallEnd::Answered, FailureCause::NotRun)
                };
                (end, unanswered(key, cause, &why, acted).into())
            }
            ToolOutcome::SchemaViolated(why) => {
                (CallEnd::Answered, bad_arguments(key, ArgumentsFault::Schema, &why).into())
            }
            ToolOutcome::Denied { rule } => (CallEnd::Answered, failed_with(key, FailureCause::Denied, &rule).into()),
            ToolOutcome::NotRun => (CallEnd::Answered, failed_with(key, FailureCause::NotRun, "").into()),
        };
        self.settle(key, end, event).into_iter().collect()
    }

    /// Admits that a call may not start before a person has said so.
    #[must_use]
    pub fn admit_approval_needed(&mut self, key: CallKey, question: String) -> Events {
        let Some(call) = self.local_call(key).filter(|call| call.stage == Stage::Called) else {
            return Events::new();
        };
        let request = call.request(key, InteractionKind::Approval, question, None, &self.session);
        if let Some(call) = self.local_call_mut(key) {
            call.stage = Stage::ParkedForApproval;
        }
        vec![request]
    }

    /// Admits a person's answer to a call that waits.
    ///
    /// A refusal without feedback also refuses the step's other calls that wait: the person wants it to stop.
    /// An answer that does not fit what the call waits for changes nothing and nothing is owed.
    #[must_use]
    pub fn admit_answer(&mut self, key: CallKey, answer: AnswerKind, text: Option<String>) -> Events {
        let Some(call) = self.local_call_mut(key) else {
            return Events::new();
        };
        let answered: Event =
            InteractionAnswered { message: key.step, call: key.ordinal, answer, text: text.clone() }.into();
        match (call.stage, answer) {
            (Stage::ParkedForApproval, AnswerKind::Approved) => {
                call.stage = Stage::Called;
                call.answer = Some(PersonsAnswer::Approved);
                vec![answered]
            }
            (Stage::ParkedForQuestion, AnswerKind::Text) => {
                // The answer is also the mark of the second run: from here on the tool may act again.
                call.stage = Stage::Starting;
                if let Some(PersonsAnswer::Text { text: kept, .. }) = &mut call.answer {
                    *kept = text.unwrap_or_default();
                }
                vec![answered]
            }
            (Stage::ParkedForApproval | Stage::ParkedForQuestion, AnswerKind::Declined) => {
                let feedback = text.filter(|text| !text.trim().is_empty());
                let stops = feedback.is_none();
                let mut owed = vec![answered];
                owed.extend(self.admit_outcome(key, ToolOutcome::Declined { feedback }));
                if stops {
                    for other in self.waiting_for_a_person() {
                        owed.extend(self.admit_outcome(other, ToolOutcome::Declined { feedback: None }));
                    }
                }
                owed
            }
            (Stage::ParkedForApproval | Stage::ParkedForQuestion, AnswerKind::Dismissed) => {
                let mut owed = vec![answered];
                owed.extend(self.admit_outcome(key, ToolOutcome::Dismissed));
                owed
            }
            _ => Events::new(),
        }
    }

    /// Admits an interrupt from outside; legal until the step has settled, and only the first one counts.
    #[must_use]
    pub fn admit_interrupt(&mut self, by: InterruptedBy) -> Events {
        if self.interrupt.is_some() || self.terminal {
            return Events::new();
        }
        self.interrupt = Some(by);
        vec![InterruptRecorded { message: Some(self.message), by }.into()]
    }

    /// Admits how the stream ended, and closes every fragment that is open: text first, then reasoning, then arguments.
    #[must_use]
    pub fn admit_stream_exit(&mut self, exit: StreamExit) -> Events {
        if self.stream.is_some() {
            return Events::new();
        }
        let owed = self.flush();
        let silent = !self.output_started();
        self.stream = Some(match exit {
            StreamExit::Completed => {
                if !self.broken && self.held.is_none() && self.interrupt.is_none() {
                    self.failure = self.failure.take().or_else(|| self.incomplete());
                }
                ExitKind::Completed
            }
            StreamExit::Failed(error) if error.is_overflow() && silent && !self.broken => {
                self.held.get_or_insert(error);
                ExitKind::Failed
            }
            StreamExit::Failed(error) => {
                self.failure.get_or_insert(Failure::Provider(error));
                ExitKind::Failed
            }
            StreamExit::BrokenOff => ExitKind::Failed,
            StreamExit::Panicked(text) => {
                self.failure.get_or_insert(Failure::Panic(text));
                ExitKind::Failed
            }
            StreamExit::Interrupted => ExitKind::Interrupted,
        });
        owed
    }

    /// Admits how the tools as a whole ended.
    pub fn admit_tools_exit(&mut self, exit: ToolsExit) {
        self.tools_exit.get_or_insert(exit);
    }

    /// Records the start of a call: the tool may run once what is owed is durable.
    ///
    /// Nothing is owed, and the call does not start, if it is not [`Stage::Called`].
    #[must_use]
    pub fn start(&mut self, key: CallKey) -> Events {
        let Some(call) = self.local_call_mut(key).filter(|call| call.stage == Stage::Called) else {
            return Events::new();
        };
        call.stage = Stage::Starting;
        vec![ToolStarted { message: key.step, call: key.ordinal }.into()]
    }

    /// Releases a call whose start is durable, if nothing has come in the meantime that forbids it.
    ///
    /// What a person answered, if a person was asked, goes with it.
    pub fn release(&mut self, key: CallKey) -> Release {
        let forbidden = !self.may_start_calls();
        let Some(call) = self.local_call_mut(key).filter(|call| call.stage == Stage::Starting) else {
            return Release::Forbidden;
        };
        if forbidden {
            return Release::Forbidden;
        }
        call.stage = Stage::Running;
        call.ran = true;
        Release::Run { name: call.name.clone(), input: call.input.clone(), answered: call.answer.clone() }
    }

    /// Takes up again a call that was started, and whose result was lost, because it may run again.
    pub fn take_up_again(&mut self, key: CallKey) -> Release {
        match self.local_call_mut(key).filter(|call| call.stage == Stage::Starting) {
            Some(call) => {
                call.stage = Stage::Running;
                call.ran = true;
                Release::Run { name: call.name.clone(), input: call.input.clone(), answered: call.answer.clone() }
            }
            None => Release::Forbidden,
        }
    }
}

/// Leaves.
impl StepLedger {
    fn block(&self, index: u32) -> Option<&Block> {
        self.blocks.get(index as usize)
    }

    /// The place of a new block.
    fn vacant(&mut self, index: u32) -> Result<&mut Block, Violation> {
        if index >= MAX_BLOCKS {
            return Err(Violation::new(Rule::TooManyBlocks, format!("block {index}")));
        }
        let place = index as usize;
        if place >= self.blocks.len() {
            self.blocks.resize(place + 1, Block::Vacant);
        }
        match self.blocks.get_mut(place) {
            Some(block @ Block::Vacant) => Ok(block),
            _ => Err(Violation::new(Rule::BlockReopened, format!("block {index}"))),
        }
    }

    fn open_call(&mut self, index: u32, id: &str, name: &str, hosted: bool) -> Result<(u32, Event), Violation> {
        #[expect(clippy::cast_possible_truncation, reason = "there are at most as many calls as blocks")]
        let ordinal = self.calls.len() as u32;
        *self.vacant(index)? = Block::Call(ordinal);
        self.calls.push(Call::new(id, name, hosted));
        let started =
            ToolInputStarted { message: self.message, call: ordinal, id: id.to_owned(), name: name.to_owned(), hosted };
        Ok((ordinal, started.into()))
    }

    fn call_in(&mut self, index: u32) -> Option<(u32, &mut Call)> {
        match self.blocks.get(index as usize) {
            Some(Block::Call(ordinal)) => {
                let ordinal = *ordinal;
                self.calls.get_mut(ordinal as usize).map(|call| (ordinal, call))
            }
            _ => None,
        }
    }

    pub(super) fn local_call(&self, key: CallKey) -> Option<&Call> {
        self.calls.get(key.ordinal as usize).filter(|call| key.step == self.message && !call.hosted)
    }

    fn local_call_mut(&mut self, key: CallKey) -> Option<&mut Call> {
        let own = key.step == self.message;
        self.calls.get_mut(key.ordinal as usize).filter(|call| own && !call.hosted)
    }

    /// The hosted call that a result answers; `late` is the rule that a result for a settled call breaks.
    fn hosted_awaiting(&self, id: &str, late: Rule) -> Result<CallKey, Violation> {
        let what = || format!("call `{}`", id.escape_debug());
        let own: Vec<_> = self.calls.iter().zip(0..).filter(|(call, _)| call.hosted && call.label == id).collect();
        if let Some((_, ordinal)) = own.iter().find(|(call, _)| call.stage == Stage::Called) {
            return Ok(CallKey { step: self.message, ordinal: *ordinal });
        }
        if let Some(carried) = self.carried.iter().find(|carried| !carried.settled && carried.label == id) {
            return Ok(carried.key);
        }
        let settled = own.iter().any(|(call, _)| call.stage == Stage::Settled)
            || self.carried.iter().any(|carried| carried.label == id);
        Err(Violation::new(if settled { late } else { Rule::ResultWithoutCall }, what()))
    }

    fn settle_hosted(&mut self, key: CallKey) {
        if let Some(carried) = self.carried.iter_mut().find(|carried| carried.key == key) {
            carried.settled = true;
        } else if let Some(call) = self.calls.get_mut(key.ordinal as usize) {
            call.stage = Stage::Settled;
        }
    }

    /// Settles a call of this step and gives the event that says so.
    pub(super) fn settle(&mut self, key: CallKey, end: CallEnd, event: impl Into<Event>) -> Option<Event> {
        let call = self.calls.get_mut(key.ordinal as usize)?;
        call.stage = Stage::Settled;
        call.end = Some(end);
        call.answer = None;
        Some(event.into())
    }

    /// Closes what is open: text, then reasoning, then arguments, each in the order of opening.
    fn flush(&mut self) -> Events {
        let message = self.message;
        let mut texts = Vec::new();
        let mut reasonings = Vec::new();
        for block in &mut self.blocks {
            let closed = match block {
                Block::Text(fragment) => {
                    (fragment.ordinal, DeltaKind::Text, fragment.close(message, DeltaKind::Text, None, None))
                }
                Block::Reasoning(fragment) => {
                    (fragment.ordinal, DeltaKind::Reasoning, fragment.close(message, DeltaKind::Reasoning, None, None))
                }
                Block::Vacant | Block::Call(_) | Block::Media => continue,
            };
            if let (ordinal, kind, Ok(event)) = closed {
                let into = if kind == DeltaKind::Text { &mut texts } else { &mut reasonings };
                into.push((ordinal, event));
            }
        }
        texts.sort_by_key(|(ordinal, _)| *ordinal);
        reasonings.sort_by_key(|(ordinal, _)| *ordinal);
        let inputs = self.calls.iter_mut().zip(0..).filter_map(|(call, ordinal)| call.close_input(message, ordinal));
        let fragments = texts.into_iter().chain(reasonings).map(|(_, event)| event);
        fragments.chain(inputs).collect()
    }
}

/// A call's input is a record: anything else is wrapped under `value`.
fn record(input: Value) -> Value {
    if input.is_object() { input } else { Value::Object(Map::from_iter([("value".to_owned(), input)])) }
}

fn count(blocks: &[Block], wanted: impl Fn(&Block) -> bool) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "there are at most 65,536 blocks")]
    let number = blocks.iter().filter(|block| wanted(block)).count() as u32;
    number
}

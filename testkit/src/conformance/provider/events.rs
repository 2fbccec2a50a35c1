//! The protocol of a stream's events, as a function over them.

use std::collections::BTreeMap;
use std::fmt;

use settled_provider_api::{FinishReason, ProviderEvent};

/// A rule of [`check_events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EventRule {
    /// A block's start comes before its pieces, and they before its end; a call comes once, behind its arguments.
    Order,
    /// Blocks have the indexes 0, 1, 2, … in order of appearance, and none is used twice.
    Index,
    /// A finish comes once and last, when every block is closed, but for arguments that it cut short; behind an error there is no content.
    End,
}

/// A place where events do not follow the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventFault {
    /// The rule.
    pub rule: EventRule,
    /// Which event it is, counted from 0.
    pub at: usize,
    /// What is wrong with it.
    pub details: String,
}

impl fmt::Display for EventFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.at, self.details)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Reasoning,
    Input,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open(Kind),
    /// Arguments that are closed, and are not called yet.
    InputClosed,
    Closed,
}

/// Finds where the events of one stream do not follow the protocol of [`ProviderEvent`].
///
/// A stream that was cut may leave blocks open; one that finished may not.
pub fn check_events(events: &[ProviderEvent]) -> Vec<EventFault> {
    let mut checker = Checker::default();
    for (at, event) in events.iter().enumerate() {
        checker.at = at;
        checker.event(event);
    }
    checker.faults
}

#[derive(Default)]
struct Checker {
    at: usize,
    blocks: BTreeMap<u32, Stage>,
    finished: bool,
    failed: bool,
    faults: Vec<EventFault>,
}

impl Checker {
    fn event(&mut self, event: &ProviderEvent) {
        if self.finished && !matches!(event, ProviderEvent::Alive) {
            self.fault(EventRule::End, "it comes behind the finish");
        }
        let content = !matches!(event, ProviderEvent::Alive | ProviderEvent::ResponseInfo(_) | ProviderEvent::Error(_));
        if self.failed && content {
            self.fault(EventRule::End, "it comes behind an error");
        }
        match event {
            ProviderEvent::TextStart(block) => self.start(block.index, Stage::Open(Kind::Text)),
            ProviderEvent::ReasoningStart(block) => self.start(block.index, Stage::Open(Kind::Reasoning)),
            ProviderEvent::ToolInputStart(block) => self.start(block.index, Stage::Open(Kind::Input)),
            ProviderEvent::Media(block) => self.start(block.index, Stage::Closed),
            ProviderEvent::TextDelta(block) => self.within(block.index, Kind::Text),
            ProviderEvent::ReasoningDelta(block) => self.within(block.index, Kind::Reasoning),
            ProviderEvent::ToolInputDelta(block) => self.within(block.index, Kind::Input),
            ProviderEvent::TextEnd(block) => self.end(block.index, Kind::Text, Stage::Closed),
            ProviderEvent::ReasoningEnd(block) => self.end(block.index, Kind::Reasoning, Stage::Closed),
            ProviderEvent::ToolInputEnd(block) => self.end(block.index, Kind::Input, Stage::InputClosed),
            ProviderEvent::ToolCall(call) => self.call(call.index),
            // It says itself that the arguments are closed.
            ProviderEvent::ToolInputMalformed(call) if self.is_open(call.index, Kind::Input) => {
                self.end(call.index, Kind::Input, Stage::Closed);
            }
            ProviderEvent::ToolInputMalformed(call) => self.call(call.index),
            ProviderEvent::Finish(finish) => {
                // Arguments that a limit or a filter has cut short stay open: nobody closed them.
                let short = !matches!(finish.reason, FinishReason::Stop | FinishReason::ToolCalls);
                let open = self.blocks.iter().find(|(_, stage)| match stage {
                    Stage::Closed => false,
                    Stage::Open(Kind::Input) => !short,
                    Stage::Open(_) | Stage::InputClosed => true,
                });
                if let Some((index, _)) = open {
                    let details = format!("it finishes, and block {index} is not closed");
                    self.fault(EventRule::End, details);
                }
                self.finished = true;
            }
            ProviderEvent::Error(_) => self.failed = true,
            ProviderEvent::StepStart
            | ProviderEvent::ResponseInfo(_)
            | ProviderEvent::HostedResult(_)
            | ProviderEvent::HostedError(_)
            | ProviderEvent::Annotation(_)
            | ProviderEvent::Alive => {}
        }
    }

    fn start(&mut self, index: u32, stage: Stage) {
        let next = u32::try_from(self.blocks.len()).unwrap_or(u32::MAX);
        if self.blocks.contains_key(&index) {
            self.fault(EventRule::Index, format!("block {index} begins a second time"));
        } else if index != next {
            self.fault(EventRule::Index, format!("block {index} begins, and {next} is the next one"));
        }
        self.blocks.insert(index, stage);
    }

    fn within(&mut self, index: u32, kind: Kind) {
        if !self.is_open(index, kind) {
            self.fault(EventRule::Order, format!("a piece of block {index}, which is not open as {kind:?}"));
        }
    }

    fn is_open(&self, index: u32, kind: Kind) -> bool {
        self.blocks.get(&index) == Some(&Stage::Open(kind))
    }

    fn end(&mut self, index: u32, kind: Kind, stage: Stage) {
        if self.blocks.insert(index, stage) != Some(Stage::Open(kind)) {
            self.fault(EventRule::Order, format!("the end of block {index}, which is not open as {kind:?}"));
        }
    }

    /// A call, behind its closed arguments or without any.
    fn call(&mut self, index: u32) {
        match self.blocks.get(&index) {
            None => self.start(index, Stage::Closed),
            Some(Stage::InputClosed) => drop(self.blocks.insert(index, Stage::Closed)),
            Some(stage) => {
                let details = format!("a call of block {index}, which is {stage:?}");
                self.fault(EventRule::Order, details);
            }
        }
    }

    fn fault(&mut self, rule: EventRule, details: impl Into<String>) {
        self.faults.push(EventFault { rule, at: self.at, details: details.into() });
    }
}

//! History: a session's events folded into what was said, kept incrementally.
//!
//! Following a log live and rebuilding it from its first event give the same history.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use settled_provider_api::ModelRef;
use settled_tools_api::{CallKey, Content, Media, MessageId};

use crate::Event;
use crate::instructions::{Instructions, Update, told};

/// What was said in a session, oldest first, as far as it still counts: a compaction puts its summary in place of what came before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    entries: Vec<Arc<Entry>>,
    /// The step that has started and not settled.
    open: Option<AssistantEntry>,
    /// Grows whenever earlier entries are replaced.
    generation: u64,
    instructions: Instructions,
}

/// One entry of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_enums, reason = "whoever lowers a history must see every kind")]
pub enum Entry {
    /// A person said something.
    User(Vec<Content>),
    /// The system said something in a person's place.
    Synthetic(String),
    /// Instructions have changed; this is what the model is told.
    Instructions(String),
    /// A step has settled.
    Assistant(AssistantEntry),
    /// A summary of everything before.
    Summary(Summary),
}

/// A summary of everything before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// The summary.
    pub text: String,
    /// The end of the old history, word for word.
    pub recent: String,
}

/// What a step produced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AssistantEntry {
    /// The step.
    pub message: MessageId,
    /// The model that was asked.
    pub model: ModelRef,
    /// What it produced, in order.
    pub parts: Vec<Part>,
    /// Whether the step settled otherwise than cleanly.
    pub failed: bool,
}

/// A part of what a step produced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_enums, reason = "whoever lowers a history must see every kind")]
pub enum Part {
    /// Text.
    Text(TextEntry),
    /// Reasoning.
    Reasoning(TextEntry),
    /// A call, local or hosted.
    Call(CallEntry),
    /// The outcome of a hosted call, where it came.
    HostedResult(HostedEntry),
    /// Media that the model made, with provider state.
    Media(Media, Option<Value>),
}

/// A block of text or reasoning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TextEntry {
    /// Its place among the step's blocks of its kind.
    pub ordinal: u32,
    /// The text; empty while the block is open.
    pub text: String,
    /// Provider state.
    pub state: Option<Value>,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallEntry {
    /// The call.
    pub key: CallKey,
    /// Its label on the wire, as the provider gave it.
    pub label: String,
    /// The tool's name.
    pub name: String,
    /// The arguments; an empty record until the call is complete.
    pub input: Value,
    /// Whether the provider runs it itself.
    pub hosted: bool,
    /// Provider state.
    pub state: Option<Value>,
    /// The outcome of a local call.
    pub outcome: Option<OutcomeEntry>,
}

/// The outcome of a call as the model is shown it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutcomeEntry {
    /// Whether it failed, or is not known.
    pub error: bool,
    /// What the model is shown.
    pub content: Vec<Content>,
}

/// The outcome of a hosted call, where it came: in the step that called, or in the one that continues it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HostedEntry {
    /// The call.
    pub key: CallKey,
    /// The outcome.
    pub outcome: OutcomeEntry,
    /// The result as the provider wants it back.
    pub state: Option<Value>,
}

impl History {
    /// The settled entries, oldest first.
    pub fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// What the step that is running has produced so far; blocks appear when they close.
    pub fn open(&self) -> Option<&AssistantEntry> {
        self.open.as_ref()
    }

    /// Grows whenever earlier entries are replaced; while it stays, entries are only added.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What the sources of instructions have said.
    pub fn instructions(&self) -> &Instructions {
        &self.instructions
    }

    /// The text of the last step that produced any.
    pub fn last_answer(&self) -> Option<String> {
        let settled = self.entries.iter().rev().filter_map(|entry| match entry.as_ref() {
            Entry::Assistant(assistant) => Some(assistant),
            Entry::User(_) | Entry::Synthetic(_) | Entry::Instructions(_) | Entry::Summary(_) => None,
        });
        self.open.iter().chain(settled).map(AssistantEntry::text).find(|text| !text.is_empty())
    }

    /// Takes in one event, the next of the session's log.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other events are about the open step")]
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::InputPromoted(promoted) => self.push(Entry::User(promoted.content.clone())),
            Event::Synthetic(synthetic) => self.push(Entry::Synthetic(synthetic.text.clone())),
            Event::InstructionsUpdated(updated) => {
                if self.instructions.update(&updated.changed) == Update::Told {
                    self.push(Entry::Instructions(told(&updated.changed)));
                }
            }
            Event::CompactionEnded(ended) => {
                self.entries.clear();
                self.instructions.compacted();
                self.generation += 1;
                self.push(Entry::Summary(Summary { text: ended.text.clone(), recent: ended.recent.clone() }));
            }
            Event::StepStarted(started) => {
                // A further attempt replaces one that had produced nothing.
                self.open = Some(AssistantEntry {
                    message: started.message,
                    model: started.model.clone(),
                    parts: Vec::new(),
                    failed: false,
                });
            }
            Event::StepEnded(_) => self.settle(Terminal::Ended),
            Event::StepFailed(_) => self.settle(Terminal::Failed),
            other => {
                if let Some(open) = &mut self.open {
                    open.apply(other);
                }
            }
        }
    }

    /// Adds a settled entry that another history has too.
    pub fn push_shared(&mut self, entry: Arc<Entry>) {
        self.entries.push(entry);
    }

    fn push(&mut self, entry: Entry) {
        self.entries.push(Arc::new(entry));
    }

    fn settle(&mut self, terminal: Terminal) {
        if let Some(mut open) = self.open.take() {
            open.failed = matches!(terminal, Terminal::Failed);
            // It stays as long as the history does, and grows no more.
            open.parts.shrink_to_fit();
            self.push(Entry::Assistant(open));
        }
    }
}

enum Terminal {
    Ended,
    Failed,
}

impl AssistantEntry {
    /// Its text, blocks joined without a separator.
    pub fn text(&self) -> String {
        self.parts
            .iter()
            .filter_map(|part| match part {
                Part::Text(text) => Some(text.text.as_str()),
                Part::Reasoning(_) | Part::Call(_) | Part::HostedResult(_) | Part::Media(..) => None,
            })
            .collect()
    }

    /// Its calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &CallEntry> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            Part::Text(_) | Part::Reasoning(_) | Part::HostedResult(_) | Part::Media(..) => None,
        })
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "all other events show nothing")]
    fn apply(&mut self, event: &Event) {
        match event {
            Event::TextStarted(started) => self.parts.push(Part::Text(TextEntry::opened(started.ordinal))),
            Event::ReasoningStarted(started) => self.parts.push(Part::Reasoning(TextEntry::opened(started.ordinal))),
            Event::TextEnded(ended) => {
                let block = self.parts.iter_mut().rev().find_map(|part| match part {
                    Part::Text(block) if block.ordinal == ended.ordinal => Some(block),
                    Part::Text(_) | Part::Reasoning(_) | Part::Call(_) | Part::HostedResult(_) | Part::Media(..) => {
                        None
                    }
                });
                if let Some(block) = block {
                    block.text.clone_from(&ended.text);
                    block.state.clone_from(&ended.state);
                }
            }
            Event::ReasoningEnded(ended) => {
                let block = self.parts.iter_mut().rev().find_map(|part| match part {
                    Part::Reasoning(block) if block.ordinal == ended.ordinal => Some(block),
                    Part::Text(_) | Part::Reasoning(_) | Part::Call(_) | Part::HostedResult(_) | Part::Media(..) => {
                        None
                    }
                });
                if let Some(block) = block {
                    block.text.clone_from(&ended.text);
                    block.state.clone_from(&ended.state);
                }
            }
            Event::MediaAdded(added) => self.parts.push(Part::Media(added.media.clone(), added.state.clone())),
            Event::ToolInputStarted(started) => self.parts.push(Part::Call(CallEntry {
                key: CallKey { step: started.message, ordinal: started.call },
                label: started.id.clone(),
                name: started.name.clone(),
                input: Value::Object(Map::new()),
                hosted: started.hosted,
                state: None,
                outcome: None,
            })),
            Event::ToolCalled(called) => {
                let key = CallKey { step: called.message, ordinal: called.call };
                if let Some(call) = self.call_mut(key) {
                    call.name.clone_from(&called.name);
                    call.input = called.input.clone();
                    call.hosted = called.hosted;
                    call.state.clone_from(&called.state);
                }
            }
            Event::ToolSuccess(success) => {
                let key = CallKey { step: success.message, ordinal: success.call };
                self.outcome(key, OutcomeEntry { error: false, content: success.content.clone() }, &success.state);
            }
            Event::ToolFailed(failed) => {
                let key = CallKey { step: failed.message, ordinal: failed.call };
                self.outcome(key, OutcomeEntry { error: true, content: failed.content.clone() }, &failed.state);
            }
            Event::ToolUnknown(unknown) => {
                let key = CallKey { step: unknown.message, ordinal: unknown.call };
                self.outcome(key, OutcomeEntry { error: true, content: unknown.content.clone() }, &None);
            }
            _ => {}
        }
    }

    fn call_mut(&mut self, key: CallKey) -> Option<&mut CallEntry> {
        self.parts.iter_mut().rev().find_map(|part| match part {
            Part::Call(call) if call.key == key => Some(call),
            Part::Text(_) | Part::Reasoning(_) | Part::Call(_) | Part::HostedResult(_) | Part::Media(..) => None,
        })
    }

    fn outcome(&mut self, key: CallKey, outcome: OutcomeEntry, state: &Option<Value>) {
        match self.call_mut(key) {
            Some(call) if !call.hosted => call.outcome = Some(outcome),
            // Of this step, or of the paused one that this step continues: the result stands where it came.
            _ => self.parts.push(Part::HostedResult(HostedEntry { key, outcome, state: state.clone() })),
        }
    }
}

impl TextEntry {
    fn opened(ordinal: u32) -> Self {
        Self { ordinal, ..Self::default() }
    }
}

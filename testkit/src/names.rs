//! Names that a person can read: messages by number, calls by label.

use std::collections::BTreeMap;

use settled_ledger::{Event, ToolInputStarted};
use settled_tools_api::{CallKey, MessageId};

/// The names of what a log speaks of.
///
/// Messages are numbered by first appearance, from 1.
/// A call's label is the id that the provider gave it; where one id is used more than once, `id#2`, `id#3` in order of appearance.
#[derive(Clone, Debug, Default)]
pub struct Names {
    messages: Vec<MessageId>,
    labels: BTreeMap<CallKey, String>,
    keys: BTreeMap<String, CallKey>,
    used: BTreeMap<String, u32>,
}

impl Names {
    /// Takes in the next event of the log.
    pub fn see(&mut self, event: &Event) {
        if let Some(message) = event.message()
            && !self.messages.contains(&message)
        {
            self.messages.push(message);
        }
        if let Event::ToolInputStarted(ToolInputStarted { message, call, id, .. }) = event {
            let key = CallKey { step: *message, ordinal: *call };
            let used = self.used.entry(id.clone()).or_default();
            *used += 1;
            let label = if *used == 1 { id.clone() } else { format!("{id}#{used}") };
            self.keys.insert(label.clone(), key);
            self.labels.insert(key, label);
        }
    }

    /// The number of a message.
    pub fn message(&self, message: MessageId) -> Option<u64> {
        self.messages.iter().position(|known| *known == message).map(|place| place as u64 + 1)
    }

    /// The label of a call; its key in words where it never appeared.
    pub fn label(&self, call: CallKey) -> String {
        self.labels.get(&call).cloned().unwrap_or_else(|| call.to_string())
    }

    /// The call of a label.
    pub fn call(&self, label: &str) -> Option<CallKey> {
        self.keys.get(label).copied()
    }

    /// Every call, by its label.
    pub fn calls(&self) -> impl Iterator<Item = (&str, CallKey)> {
        self.keys.iter().map(|(label, key)| (label.as_str(), *key))
    }
}

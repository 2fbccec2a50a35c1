//! Instructions that may change while a session runs: what stands in the prefix of every request, and what holds now.

use serde::{Deserialize, Serialize};

use crate::event::Instruction;

/// What the sources of instructions have said so far.
///
/// The first observation stands in the prefix of every request, unchanged, so that the prefix stays what it was.
/// What changes later is told as a message; only a compaction, which puts the history anew, puts the prefix anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instructions {
    /// `None` until the sources were first observed.
    standing: Option<Vec<Instruction>>,
    holding: Vec<Instruction>,
}

/// What an update of instructions is for the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Update {
    /// It stands in the prefix.
    Standing,
    /// The model must be told.
    Told,
}

impl Instructions {
    /// Whether the sources were ever observed.
    pub fn are_observed(&self) -> bool {
        self.standing.is_some()
    }

    /// The texts in the prefix of every request, in the order in which they came to hold: at first, that of their sources.
    pub fn standing(&self) -> impl Iterator<Item = &str> {
        self.standing.iter().flatten().filter_map(|instruction| instruction.text.as_deref())
    }

    /// What holds now of a source, as the model was told; `None` where nothing holds.
    pub fn holding(&self, key: &str) -> Option<&str> {
        self.holding.iter().find(|instruction| instruction.key == key)?.text.as_deref()
    }

    /// The keys of the sources of which something holds.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.holding.iter().map(|instruction| instruction.key.as_str())
    }

    pub(crate) fn update(&mut self, changed: &[Instruction]) -> Update {
        for change in changed {
            match self.holding.iter_mut().find(|instruction| instruction.key == change.key) {
                Some(instruction) => instruction.text.clone_from(&change.text),
                None => self.holding.push(change.clone()),
            }
        }
        self.holding.retain(|instruction| instruction.text.is_some());
        if self.are_observed() {
            return Update::Told;
        }
        self.standing = Some(self.holding.clone());
        Update::Standing
    }

    /// The history is put anew: what holds now stands in the prefix.
    pub(crate) fn compacted(&mut self) {
        if self.are_observed() {
            self.standing = Some(self.holding.clone());
        }
    }
}

/// What the model is told about changed instructions.
pub(crate) fn told(changed: &[Instruction]) -> String {
    let one = |change: &Instruction| match &change.text {
        Some(text) => format!(
            "From now on these instructions hold for `{}`, instead of any that were given for it before:\n\n{text}",
            change.key
        ),
        None => format!("The instructions that were given for `{}` no longer hold.", change.key),
    };
    changed.iter().map(one).collect::<Vec<_>>().join("\n\n")
}

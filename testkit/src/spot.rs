//! The place of an append: which events it holds, and the how-manieth of their kind they are.

use std::collections::{BTreeMap, BTreeSet};

use settled_ledger::store::Batch;
use settled_ledger::{BatchId, Event, Seq};
use settled_tools_api::SessionId;

use crate::faults::At;
use crate::names::Names;

/// What has landed in a session's log.
#[derive(Debug, Default)]
pub(crate) struct Landed {
    pub(crate) names: Names,
    /// How many events of each kind have landed, and of each kind and call.
    counts: BTreeMap<(String, Option<String>), u64>,
    batches: BTreeSet<BatchId>,
}

/// A durable event of a batch that is looked at.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) event: Option<Event>,
    pub(crate) kind: String,
    pub(crate) label: Option<String>,
    /// Its number among the events of its kind, and among those of its kind and call.
    number: u64,
    number_of_call: u64,
}

impl Landed {
    /// The events of a batch, with the names that they would have if it landed; none of one that has landed before.
    pub(crate) fn look_at(&self, session: &SessionId, batch: &Batch) -> Vec<Seen> {
        if self.batches.contains(&batch.id) {
            return Vec::new();
        }
        let mut names = self.names.clone();
        let mut landed = BTreeMap::new();
        let mut seen = Vec::new();
        for row in &batch.rows {
            let recorded = row.clone().placed(session.clone(), Seq::START);
            let event = recorded.event().ok();
            if let Some(event) = &event {
                names.see(event);
            }
            let label = event.as_ref().and_then(Event::call).map(|call| names.label(call));
            let mut count = |label: Option<String>| {
                let key = (row.kind.clone(), label);
                let before = self.counts.get(&key).copied().unwrap_or_default();
                let here: &mut u64 = landed.entry(key).or_default();
                *here += 1;
                before + *here
            };
            let number = count(None);
            let number_of_call = label.clone().map_or(number, |label| count(Some(label)));
            seen.push(Seen { event, kind: row.kind.clone(), label, number, number_of_call });
        }
        seen
    }

    /// Takes in a batch that has landed; `false` if it had landed before.
    pub(crate) fn land(&mut self, batch: BatchId, seen: &[Seen]) -> bool {
        if !self.batches.insert(batch) {
            return false;
        }
        for Seen { event, kind, label, .. } in seen {
            if let Some(event) = event {
                self.names.see(event);
            }
            *self.counts.entry((kind.clone(), None)).or_default() += 1;
            if label.is_some() {
                *self.counts.entry((kind.clone(), label.clone())).or_default() += 1;
            }
        }
        true
    }
}

impl Seen {
    pub(crate) fn is_at(&self, at: &At) -> bool {
        let number = if at.call.is_some() { self.number_of_call } else { self.number };
        at.is_of(&self.kind, self.label.as_deref()) && number == at.nth
    }
}

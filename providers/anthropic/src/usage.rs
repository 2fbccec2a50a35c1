//! Usage of the Messages API, as disjoint numbers.

use serde_json::{Map, Value};
use settled_provider_api::Usage;

/// Usage as the wire has it, from all the lines that report it: a later number replaces an earlier one, field by field; `null` says nothing.
#[derive(Debug, Default)]
pub(crate) struct Counts(Map<String, Value>);

impl Counts {
    /// Takes what one line reports.
    pub(crate) fn take(&mut self, reported: Map<String, Value>) {
        self.0.extend(reported.into_iter().filter(|(_, value)| !value.is_null()));
    }

    /// Maps what the wire says:
    ///
    /// | ours | the wire's |
    /// |---|---|
    /// | `input` | `input_tokens`, which are without those of the cache |
    /// | `cache_read` | `cache_read_input_tokens` |
    /// | `cache_write` | `cache_creation_input_tokens` |
    /// | `reasoning` | `output_tokens_details.thinking_tokens` |
    /// | `output` | `output_tokens` less `reasoning`, at least 0 |
    ///
    /// What the wire does not report stays `None`; without any number there is no usage.
    /// The numbers are those of the answer itself: what `iterations` names beside it (a compaction, an adviser) is not added, since it was never part of this context.
    pub(crate) fn usage(&self) -> Option<Usage> {
        let count = |value: Option<&Value>| {
            let number = value.filter(|value| value.is_number())?;
            // What is negative counts as 0.
            Some(number.as_u64().unwrap_or(0))
        };
        let field = |name: &str| count(self.0.get(name));
        let reasoning = count(self.0.get("output_tokens_details").and_then(|details| details.get("thinking_tokens")));
        let output = field("output_tokens").map(|output| output.saturating_sub(reasoning.unwrap_or(0)));
        let usage = Usage::new(field("input_tokens"), output)
            .reasoning(reasoning)
            .cache_read(field("cache_read_input_tokens"))
            .cache_write(field("cache_creation_input_tokens"));
        (usage != Usage::default()).then_some(usage)
    }
}

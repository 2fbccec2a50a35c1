//! Usage of the Responses API, as disjoint numbers.

use serde::Deserialize;
use settled_provider_api::Usage;

use crate::lenient::Count;

/// Usage as the wire has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Counts {
    input_tokens: Count,
    input_tokens_details: Option<InputDetails>,
    output_tokens: Count,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Count,
    cache_write_tokens: Count,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Count,
}

impl Counts {
    /// Maps what the wire says:
    ///
    /// | ours | the wire's |
    /// |---|---|
    /// | `cache_read` | `input_tokens_details.cached_tokens` |
    /// | `cache_write` | `input_tokens_details.cache_write_tokens` |
    /// | `input` | `input_tokens` less both, at least 0 |
    /// | `reasoning` | `output_tokens_details.reasoning_tokens` |
    /// | `output` | `output_tokens` less `reasoning`, at least 0 |
    ///
    /// What the wire does not report stays `None`; without any number there is no usage.
    pub(super) fn usage(&self) -> Option<Usage> {
        let (input, output) =
            (self.input_tokens_details.unwrap_or_default(), self.output_tokens_details.unwrap_or_default());
        let (read, write, reasoning) = (input.cached_tokens.0, input.cache_write_tokens.0, output.reasoning_tokens.0);
        let less = |all: Option<u64>, part: Option<u64>| all.map(|all| all.saturating_sub(part.unwrap_or(0)));
        let usage = Usage::new(less(less(self.input_tokens.0, read), write), less(self.output_tokens.0, reasoning))
            .reasoning(reasoning)
            .cache_read(read)
            .cache_write(write);
        (usage != Usage::default()).then_some(usage)
    }
}

//! Usage of Gemini, as disjoint numbers.

use settled_provider_api::Usage;

use crate::chunk::Counts;

/// Maps what the wire says:
///
/// | ours | the wire's |
/// |---|---|
/// | `cache_read` | `cachedContentTokenCount` |
/// | `input` | `promptTokenCount`, which includes what was cached, less `cache_read`, at least 0; and `toolUsePromptTokenCount`, what the server's own tools fed to the model, which `promptTokenCount` leaves out |
/// | `output` | `candidatesTokenCount`, which leaves out the thoughts |
/// | `reasoning` | `thoughtsTokenCount` |
/// | `cache_write` | not reported |
///
/// The four add up to `totalTokenCount`.
/// What the wire does not report stays `None`; it leaves out what is 0.
pub(crate) fn usage(counts: &Counts) -> Usage {
    let read = counts.cached_content_token_count.0;
    let prompt = counts.prompt_token_count.0.map(|prompt| prompt.saturating_sub(read.unwrap_or(0)));
    let input = match (prompt, counts.tool_use_prompt_token_count.0) {
        (None, tools) => tools,
        (Some(prompt), tools) => Some(prompt.saturating_add(tools.unwrap_or(0))),
    };
    Usage::new(input, counts.candidates_token_count.0).reasoning(counts.thoughts_token_count.0).cache_read(read)
}

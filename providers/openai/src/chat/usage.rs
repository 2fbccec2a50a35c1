//! Usage of Chat Completions, as disjoint numbers.

use settled_provider_api::Usage;

use super::chunk::Counts;
use super::options::{Dialect, ReasoningTokens};

/// Maps what the wire says:
///
/// | ours | the wire's |
/// |---|---|
/// | `cache_read` | `prompt_tokens_details.cached_tokens`, else `prompt_cache_hit_tokens`, `cached_tokens`, `cache_read_input_tokens` |
/// | `cache_write` | `prompt_tokens_details.cache_write_tokens`, else `cache_creation_input_tokens` |
/// | `input` | `prompt_tokens` less both, at least 0 |
/// | `reasoning` | `completion_tokens_details.reasoning_tokens`, else `reasoning_tokens` |
/// | `output` | `completion_tokens`, less `reasoning` where the dialect counts it in, at least 0 |
///
/// What the wire does not report stays `None`.
pub(super) fn usage(dialect: &Dialect, counts: &Counts) -> Usage {
    let prompt = counts.prompt_tokens_details.unwrap_or_default();
    let completion = counts.completion_tokens_details.unwrap_or_default();
    let read =
        [prompt.cached_tokens, counts.prompt_cache_hit_tokens, counts.cached_tokens, counts.cache_read_input_tokens];
    let cache_read = read.into_iter().find_map(|count| count.0);
    let cache_write = prompt.cache_write_tokens.0.or(counts.cache_creation_input_tokens.0);
    let reasoning = completion.reasoning_tokens.0.or(counts.reasoning_tokens.0);
    let (read, write, reasoned) = (cache_read.unwrap_or(0), cache_write.unwrap_or(0), reasoning.unwrap_or(0));
    let counted_in = match dialect.reasoning_tokens {
        ReasoningTokens::Included => true,
        ReasoningTokens::Excluded => false,
        ReasoningTokens::ByTotal => {
            let (prompt, completion) = (counts.prompt_tokens.0.unwrap_or(0), counts.completion_tokens.0.unwrap_or(0));
            let sum = prompt.saturating_add(completion).saturating_add(reasoned);
            reasoned == 0 || counts.total_tokens.0 != Some(sum)
        }
    };
    let input = counts.prompt_tokens.0.map(|prompt| prompt.saturating_sub(read).saturating_sub(write));
    let output = counts.completion_tokens.0.map(|completion| match counted_in {
        true => completion.saturating_sub(reasoned),
        false => completion,
    });
    Usage::new(input, output).reasoning(reasoning).cache_read(cache_read).cache_write(cache_write)
}

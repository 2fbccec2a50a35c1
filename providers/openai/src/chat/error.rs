//! Failures of Chat Completions: of a status, and inside a stream.
//!
//! What the failures in recorded traffic come out as (none of them says when to try again):
//!
//! | server | status | what it says | class |
//! |---|---|---|---|
//! | openai, groq, together, mistral, deepseek, llama.cpp, perplexity, openrouter, azure | 401 | the key is missing or wrong, in eight shapes | `auth` |
//! | doubleword | 403 | `forbidden` | `auth` |
//! | openai, groq, doubleword, venice, azure | 404 | there is no such model or deployment | `invalid_request` |
//! | mistral | 400 | `invalid_model` | `invalid_request` |
//! | openai, doubleword, llama.cpp, mistral, deepseek | 400 | a field is wrong | `invalid_request` |
//! | groq | 400, and inside a stream | `tool_use_failed`: the model wrote no call where it had to | `invalid_output` |
//! | openrouter | 400 | the maximum context length | `context_overflow` |
//! | perplexity | 400 | `too_many_prompt_tokens` | `context_overflow` |
//! | openrouter | 429 | the upstream's limit, in `metadata.raw` | `rate_limit` |
//! | llama.cpp | 500 | no image input | `unsupported` |
//! | llama.cpp | 500 | an image cannot be fetched | `invalid_request` |
//! | azure | 200, one document | `content_filter` | `content_policy` |

use std::time::SystemTime;

use serde_json::Value;
use settled_provider_api::ProviderError;
use settled_provider_wire::{Classifier, ErrorBody, failed_response};

use super::options::Dialect;

/// The failure that a response of a failing status is.
///
/// `header` gives a header by its name in small letters; `now` is what a date in a header is counted from where the response has no date of its own.
pub fn response_error<'h>(
    dialect: &Dialect,
    status: u16,
    header: impl Fn(&str) -> Option<&'h str>,
    body: &[u8],
    now: SystemTime,
) -> ProviderError {
    failed_response(&dialect.name, status, header, body, now)
}

/// The failure that an error inside a stream is; the same rules as for a status.
pub(super) fn stream_error(dialect: &Dialect, error: &Value) -> ProviderError {
    Classifier::standard().error(&dialect.name, None, &ErrorBody::of(error))
}

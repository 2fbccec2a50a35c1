//! Failures of Gemini: of a status, and inside a stream.
//!
//! What the failures in recorded traffic come out as:
//!
//! | server | status | what it says | class | retry after |
//! |---|---|---|---|---|
//! | gemini | 400, labelled as a stream | `INVALID_ARGUMENT`, with the reason `API_KEY_INVALID` | `auth` | - |
//! | gemini | 404, also labelled as a stream | `NOT_FOUND`: there is no such model | `invalid_request` | - |
//! | vertex | 404 | `NOT_FOUND`: there is no such model | `invalid_request` | - |
//! | vertex | 400 | `INVALID_ARGUMENT`: the content of a URL cannot be fetched | `invalid_request` | - |
//! | gemini | 429 | `RESOURCE_EXHAUSTED`, and nothing else | `rate_limit` | - |
//! | gemini | 429 | `RESOURCE_EXHAUSTED`: the input tokens of a minute, with a `retryDelay` | `rate_limit`; `context_overflow` where the request alone has more tokens than the limit, see [`never_fits`] | 48 s; - |
//!
//! Beyond them: a quota of 0 and a quota by the day are `quota`, since a retry cannot help; a call without its thought signature is `invalid_request`.

use std::time::SystemTime;

use serde_json::Value;
use settled_provider_api::{ErrorClass, ProviderError, RetryHint};
use settled_provider_wire::{Classifier, ErrorBody, failed_response};

use crate::options::Dialect;

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

/// The same failure, or an overflow where the failure is a limit of input tokens that the request alone is above.
///
/// The wire answers a prompt that is too long for the quota of a minute like one that comes too soon: with status 429, the limit, and a delay after which it will be refused again.
/// Only who knows the request can tell the two apart.
/// Tokens are estimated from the text of the body, at four characters each; media are not counted.
pub fn never_fits(mut error: ProviderError, body: &Value) -> ProviderError {
    if error.class == ErrorClass::RateLimit
        && let Some(limit) = input_token_limit(&error.message)
        && characters(body) / 4 > limit
    {
        error.class = ErrorClass::ContextOverflow;
        error.retry = RetryHint::default();
    }
    error
}

/// The failure that an error inside a stream is; the same rules as for a status.
pub(crate) fn stream_error(dialect: &Dialect, error: &Value) -> ProviderError {
    Classifier::standard().error(&dialect.name, None, &ErrorBody::of(error))
}

/// What does not decode, with the beginning of it.
pub(crate) fn undecoded(what: &str, offset: u64, text: &str) -> ProviderError {
    const SHOWN: usize = 160;
    let shown: String = text.chars().take(SHOWN).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    ProviderError::new(ErrorClass::InvalidOutput, format!("{what} at byte {offset} of the body: {shown}{more}"))
}

/// The limit of input tokens that a message names.
fn input_token_limit(message: &str) -> Option<u64> {
    let (_, behind) = message.split_once("input_token_count, limit: ")?;
    let digits = behind.find(|c: char| !c.is_ascii_digit()).unwrap_or(behind.len());
    behind.get(..digits)?.parse().ok()
}

/// How many characters of text a body has, media left out.
fn characters(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.chars().count() as u64,
        Value::Array(values) => values.iter().map(characters).sum(),
        Value::Object(fields) => {
            let texts = fields.iter().filter(|(name, _)| !matches!(name.as_str(), "inlineData" | "thoughtSignature"));
            texts.map(|(_, value)| characters(value)).sum()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

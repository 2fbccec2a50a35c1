//! Failures of the Responses API: of a status, and inside a stream.
//!
//! What the failures in recorded traffic come out as (none of them says when to try again):
//!
//! | server | status | what it says | class |
//! |---|---|---|---|
//! | openai | 401 | `invalid_api_key` | `auth` |
//! | chatgpt | 401 | `detail`: the token could not be parsed | `auth` |
//! | xai | 400 | `invalid-argument`: incorrect API key | `auth` |
//! | openai | 400 | `model_not_found` | `invalid_request` |
//! | openai | 400 | `context_length_exceeded` | `context_overflow` |
//! | openai | 400 | `unsupported_file`: only PDF files are taken | `unsupported` |
//! | openai | 400 | `invalid_value`: a file whose data is no media type that it takes | `invalid_request` |
//!
//! Inside a stream an `error` event, and a `response.failed` with its `error`, are read by the same rules.

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

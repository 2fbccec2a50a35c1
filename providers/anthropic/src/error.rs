//! Failures of the Messages API: of a status, and inside a stream.
//!
//! What the failures in recorded traffic come out as; none of them says when to try again, those that say whether to say no:
//!
//! | server | status | what it says | class | to be tried again |
//! |---|---|---|---|---|
//! | anthropic | 401 | `authentication_error`: invalid x-api-key | `auth` | no |
//! | anthropic | 404 | `not_found_error`: there is no such model | `invalid_request` | no, or not said |
//! | anthropic | 400 | `invalid_request_error`: input of another shape | `invalid_request` | no |
//! | anthropic | 400 | `invalid_request_error`: a message without content | `invalid_request` | no |
//! | anthropic | 400 | `invalid_request_error`: a call without a result right behind it | `invalid_request` | not said |
//!
//! What the documents name, under a status or as an `error` event inside a stream of status 200:
//!
//! | status | type | class |
//! |---|---|---|
//! | 400 | `invalid_request_error` | `invalid_request`; `context_overflow`, `payload_too_large` or `quota` by its text |
//! | 401 | `authentication_error` | `auth` |
//! | 402 | `billing_error` | `quota` |
//! | 403 | `permission_error` | `auth` |
//! | 404 | `not_found_error` | `invalid_request` |
//! | 413 | `request_too_large` | `payload_too_large` |
//! | 429 | `rate_limit_error` | `rate_limit` |
//! | 500 | `api_error` | `overloaded` |
//! | 504 | `timeout_error` | `timeout` |
//! | 529 | `overloaded_error` | `overloaded` |

use std::time::SystemTime;

use serde_json::Value;
use settled_provider_api::{ErrorClass, ProviderError};
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

//! How a provider fails.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A provider's failure: before the stream, in it, or instead of its next event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProviderError {
    /// What kind of failure it is; everything the runner does follows from it.
    pub class: ErrorClass,
    /// What a person may read; no markup, no key, never empty.
    pub message: String,
    /// The HTTP status, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's own code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What the provider itself says about trying again.
    #[serde(default, skip_serializing_if = "RetryHint::is_empty")]
    pub retry: RetryHint,
}

impl ProviderError {
    /// A failure of a class; an empty message becomes the class's own words.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.trim().is_empty() {
            message = class.describe().to_owned();
        }
        Self { class, message, status: None, code: None, retry: RetryHint::default() }
    }

    /// The same failure with an HTTP status.
    #[must_use]
    pub fn status(mut self, status: impl Into<Option<u16>>) -> Self {
        self.status = status.into();
        self
    }

    /// The same failure with the provider's own code.
    #[must_use]
    pub fn code(mut self, code: impl Into<Option<String>>) -> Self {
        self.code = code.into();
        self
    }

    /// The same failure with the time the provider asks to wait.
    #[must_use]
    pub fn retry_after(mut self, after: impl Into<Option<Duration>>) -> Self {
        self.retry.after_ms = after.into().map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// The same failure with the provider's word on whether to try again.
    #[must_use]
    pub fn should_retry(mut self, retry: impl Into<Option<bool>>) -> Self {
        self.retry.should_retry = retry.into();
        self
    }

    /// Whether the context did not fit: an overflow of tokens, or a body that is too large.
    pub fn is_overflow(&self) -> bool {
        matches!(self.class, ErrorClass::ContextOverflow | ErrorClass::PayloadTooLarge)
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)?;
        match (self.status, &self.code) {
            (Some(status), Some(code)) => write!(f, " (status {status}, code {code})"),
            (Some(status), None) => write!(f, " (status {status})"),
            (None, Some(code)) => write!(f, " (code {code})"),
            (None, None) => Ok(()),
        }
    }
}

impl std::error::Error for ProviderError {}

/// What a provider says about trying again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetryHint {
    /// The least time to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// The provider's word on whether to try again at all; it wins over the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub should_retry: Option<bool>,
}

impl RetryHint {
    /// The least time to wait.
    pub fn after(&self) -> Option<Duration> {
        self.after_ms.map(Duration::from_millis)
    }

    /// Whether the provider said nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorClass {
    /// Too many requests for now.
    RateLimit,
    /// The provider is overloaded.
    Overloaded,
    /// The connection failed or broke.
    Transport,
    /// The stream ended without a finish.
    IncompleteStream,
    /// What came does not decode.
    InvalidOutput,
    /// The key is missing or refused.
    Auth,
    /// The account has nothing left, or may not.
    Quota,
    /// The content was refused.
    ContentPolicy,
    /// The context has too many tokens.
    ContextOverflow,
    /// The body has too many bytes, images or parts.
    PayloadTooLarge,
    /// The request is wrong.
    InvalidRequest,
    /// The model or the adapter cannot do what was asked.
    Unsupported,
    /// Nothing came for too long.
    Timeout,
    /// None of these.
    Unknown,
}

impl ErrorClass {
    /// Every class.
    pub const ALL: [Self; 14] = [
        Self::RateLimit,
        Self::Overloaded,
        Self::Transport,
        Self::IncompleteStream,
        Self::InvalidOutput,
        Self::Auth,
        Self::Quota,
        Self::ContentPolicy,
        Self::ContextOverflow,
        Self::PayloadTooLarge,
        Self::InvalidRequest,
        Self::Unsupported,
        Self::Timeout,
        Self::Unknown,
    ];

    /// The class as it is recorded: `rate_limit`, ….
    pub fn name(self) -> &'static str {
        match self {
            Self::RateLimit => "rate_limit",
            Self::Overloaded => "overloaded",
            Self::Transport => "transport",
            Self::IncompleteStream => "incomplete_stream",
            Self::InvalidOutput => "invalid_output",
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::ContentPolicy => "content_policy",
            Self::ContextOverflow => "context_overflow",
            Self::PayloadTooLarge => "payload_too_large",
            Self::InvalidRequest => "invalid_request",
            Self::Unsupported => "unsupported",
            Self::Timeout => "timeout",
            Self::Unknown => "unknown",
        }
    }

    /// The class in words, for an error that came without any.
    pub fn describe(self) -> &'static str {
        match self {
            Self::RateLimit => "too many requests",
            Self::Overloaded => "the provider is overloaded",
            Self::Transport => "the connection failed",
            Self::IncompleteStream => "the stream ended without a finish",
            Self::InvalidOutput => "the provider sent something that does not decode",
            Self::Auth => "the key is missing or was refused",
            Self::Quota => "the account's quota is used up",
            Self::ContentPolicy => "the content was refused",
            Self::ContextOverflow => "the context is too long for the model",
            Self::PayloadTooLarge => "the request is too large",
            Self::InvalidRequest => "the provider refused the request",
            Self::Unsupported => "the provider cannot do this",
            Self::Timeout => "the provider was silent for too long",
            Self::Unknown => "the provider failed without saying why",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

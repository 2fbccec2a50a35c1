//! Failures, as each wire says them: a status with headers and a body, or an error inside a stream.

use serde_json::{Value, json};
use settled_provider_api::{ErrorClass, ProviderError};

use super::Wire;

/// A failure as it is answered.
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Value,
}

/// The answer that a failure is on a wire; `None` where it is none, since the connection broke.
pub(super) fn refusal(wire: Wire, error: &ProviderError) -> Option<Refusal> {
    if error.class == ErrorClass::Transport {
        return None;
    }
    let mut headers = Vec::new();
    if let Some(millis) = error.retry.after_ms {
        headers.push(("retry-after-ms".to_owned(), millis.to_string()));
        headers.push(("retry-after".to_owned(), millis.div_ceil(1_000).to_string()));
    }
    if let Some(retry) = error.retry.should_retry {
        headers.push(("x-should-retry".to_owned(), retry.to_string()));
    }
    let (status, body) = match wire {
        Wire::Chat | Wire::Responses => (status(error), json!({"error": openai_error(error)})),
        Wire::Messages => {
            let body = json!({"type": "error", "error": anthropic_error(error), "request_id": "req_scripted"});
            (if error.class == ErrorClass::Overloaded { error.status.unwrap_or(529) } else { status(error) }, body)
        }
        Wire::Gemini => (status(error), json!({"error": google_error(error)})),
        Wire::GeminiArray => (status(error), json!([{"error": google_error(error)}])),
    };
    Some(Refusal { status, headers, body })
}

/// An error as OpenAI writes it.
pub(super) fn openai_error(error: &ProviderError) -> Value {
    let (kind, code) = match error.class {
        ErrorClass::RateLimit => ("rate_limit_error", "rate_limit_exceeded"),
        ErrorClass::Overloaded | ErrorClass::IncompleteStream => ("server_error", "server_is_overloaded"),
        ErrorClass::Auth => ("invalid_request_error", "invalid_api_key"),
        ErrorClass::Quota => ("insufficient_quota", "insufficient_quota"),
        ErrorClass::ContentPolicy => ("invalid_request_error", "content_policy_violation"),
        ErrorClass::ContextOverflow => ("invalid_request_error", "context_length_exceeded"),
        ErrorClass::PayloadTooLarge => ("invalid_request_error", "request_too_large"),
        ErrorClass::Unsupported => ("invalid_request_error", "unsupported_value"),
        ErrorClass::Timeout => ("server_error", "timeout"),
        ErrorClass::InvalidOutput => ("invalid_request_error", "tool_use_failed"),
        _ => ("invalid_request_error", "invalid_value"),
    };
    json!({"message": error.message, "type": kind, "param": null, "code": error.code.as_deref().unwrap_or(code)})
}

/// An error as Anthropic writes it.
pub(super) fn anthropic_error(error: &ProviderError) -> Value {
    let own = |words: &str| match error.message == error.class.describe() {
        true => words.to_owned(),
        false => format!("{words}: {}", error.message),
    };
    let (kind, message) = match error.class {
        ErrorClass::RateLimit => ("rate_limit_error", error.message.clone()),
        ErrorClass::Overloaded | ErrorClass::IncompleteStream => ("overloaded_error", error.message.clone()),
        ErrorClass::Auth => ("authentication_error", error.message.clone()),
        ErrorClass::Quota => ("billing_error", error.message.clone()),
        ErrorClass::ContentPolicy => ("invalid_request_error", own("Output blocked by content filtering policy")),
        ErrorClass::ContextOverflow => {
            ("invalid_request_error", own("prompt is too long: 200001 tokens > 200000 maximum"))
        }
        ErrorClass::PayloadTooLarge => ("request_too_large", error.message.clone()),
        ErrorClass::Timeout => ("timeout_error", error.message.clone()),
        _ => ("invalid_request_error", error.message.clone()),
    };
    json!({"type": error.code.as_deref().unwrap_or(kind), "message": message})
}

/// An error as Google writes it.
pub(super) fn google_error(error: &ProviderError) -> Value {
    let own = |words: &str| match error.message == error.class.describe() {
        true => words.to_owned(),
        false => format!("{words}: {}", error.message),
    };
    let (word, message) = match error.class {
        ErrorClass::RateLimit => ("RESOURCE_EXHAUSTED", error.message.clone()),
        ErrorClass::Overloaded | ErrorClass::IncompleteStream => ("UNAVAILABLE", error.message.clone()),
        ErrorClass::Auth => ("UNAUTHENTICATED", error.message.clone()),
        ErrorClass::Quota => {
            ("RESOURCE_EXHAUSTED", own("Quota exceeded for metric: GenerateRequestsPerDayPerProject, limit: 0,"))
        }
        ErrorClass::ContextOverflow => (
            "INVALID_ARGUMENT",
            own("The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)"),
        ),
        ErrorClass::Timeout => ("DEADLINE_EXCEEDED", error.message.clone()),
        ErrorClass::Unsupported => ("UNIMPLEMENTED", error.message.clone()),
        _ => ("INVALID_ARGUMENT", error.message.clone()),
    };
    let code = status(error);
    json!({"code": code, "message": message, "status": error.code.as_deref().unwrap_or(word)})
}

/// The status of a failure.
fn status(error: &ProviderError) -> u16 {
    error.status.unwrap_or(match error.class {
        ErrorClass::RateLimit | ErrorClass::Quota => 429,
        ErrorClass::Overloaded | ErrorClass::IncompleteStream => 503,
        ErrorClass::Auth => 401,
        ErrorClass::PayloadTooLarge => 413,
        ErrorClass::Timeout => 504,
        ErrorClass::Unsupported => 501,
        _ => 400,
    })
}

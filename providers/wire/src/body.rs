//! Reading the body of a failure: JSON of any shape, markup, text, nothing.

use serde_json::Value;
use settled_provider_api::RetryHint;

use crate::decode::{BodyKind, sniff};
use crate::retry::{duration, millis, wait_in_text};

/// The longest message that is kept, in characters.
const LONGEST_MESSAGE: usize = 1_000;

/// How deep shapes are followed, texts that are themselves JSON included.
const DEEPEST: usize = 6;

/// Fields whose text says what went wrong, the most telling first.
const MESSAGES: [&str; 12] = [
    "message",
    "Message",
    "errorMessage",
    "error_description",
    "msg",
    "faultstring",
    "detail",
    "description",
    "title",
    "error_msg",
    "raw",
    "quotaId",
];

/// Fields that name the failure, the most telling first.
const CODES: [&str; 9] = ["code", "error_code", "errorCode", "type", "status", "reason", "__type", "err_code", "Code"];

/// Fields that repeat an HTTP status.
const STATUSES: [&str; 6] =
    ["status_code", "statusCode", "raw_status_code", "http_code", "httpStatus", "upstream_status"];

/// Fields under which the failure itself, or its cause, lies.
const INNER: [&str; 13] = [
    "error",
    "errors",
    "fault",
    "response",
    "detail",
    "details",
    "innererror",
    "inner_error",
    "metadata",
    "previous_errors",
    "cause",
    "failure",
    "violations",
];

/// Messages that say nothing: what lies deeper is added to them.
const EMPTY_WORDS: [&str; 5] = ["provider returned error", "upstream error", "internal error", "error", "bad request"];

/// What a provider says of a failure, read from a body of any shape.
///
/// The same reading serves the body of an HTTP failure and an error inside a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorBody {
    /// What a person may read: no markup, no control characters, at most 1,000 characters; empty where the body says nothing.
    pub message: String,
    /// The provider's own code: the most telling of [`codes`](Self::codes).
    pub code: Option<String>,
    /// Every code, type and reason that the body names.
    pub codes: Vec<String>,
    /// Every text of the body that may say what went wrong; what the classifier's patterns look at.
    pub texts: Vec<String>,
    /// The HTTP status that the body names.
    pub status: Option<u16>,
    /// What the body says about trying again.
    pub retry: RetryHint,
}

impl ErrorBody {
    /// Reads the body of an HTTP failure, whatever its content type says.
    pub fn read(body: &[u8]) -> Self {
        let mut found = Self::default();
        match sniff(body) {
            Some(BodyKind::Json) => match serde_json::from_slice::<Value>(trim(body)) {
                Ok(value) => found.collect(&value, 0),
                Err(_) => found.texts.extend(plain(&String::from_utf8_lossy(body))),
            },
            Some(BodyKind::Markup) => found.texts.extend(title(&String::from_utf8_lossy(body))),
            Some(BodyKind::Lines) => {
                // Some servers answer a failure with one event of the stream that was asked for.
                let text = String::from_utf8_lossy(body);
                let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
                let joined = data.collect::<Vec<_>>().join("\n");
                match serde_json::from_str::<Value>(joined.trim()) {
                    Ok(value) => found.collect(&value, 0),
                    Err(_) => found.texts.extend(plain(&text)),
                }
            }
            None => {}
        }
        found.conclude()
    }

    /// Reads an error inside a stream.
    pub fn of(value: &Value) -> Self {
        let mut found = Self::default();
        found.collect(value, 0);
        found.conclude()
    }

    /// All texts as one, in small letters.
    pub(crate) fn haystack(&self) -> String {
        self.texts.join("\n").to_lowercase()
    }

    fn collect(&mut self, value: &Value, depth: usize) {
        if depth > DEEPEST {
            return;
        }
        match value {
            Value::String(text) => match sniff(text.as_bytes()) {
                Some(BodyKind::Json) => match serde_json::from_str::<Value>(text.trim()) {
                    Ok(inner) => self.collect(&inner, depth + 1),
                    Err(_) => self.texts.extend(plain(text)),
                },
                Some(BodyKind::Markup) => self.texts.extend(title(text)),
                Some(BodyKind::Lines) => self.texts.extend(plain(text)),
                None => {}
            },
            Value::Array(values) => {
                for value in values.iter().take(8) {
                    self.collect(value, depth + 1);
                }
            }
            Value::Object(fields) => {
                for name in CODES {
                    match fields.get(name) {
                        Some(Value::String(code)) => self.name(code),
                        Some(Value::Number(code)) => self.name(&code.to_string()),
                        _ => {}
                    }
                }
                for name in STATUSES {
                    let status = fields.get(name).and_then(Value::as_u64);
                    self.status = self.status.or_else(|| status.and_then(failing));
                }
                for name in MESSAGES {
                    if let Some(text @ Value::String(_)) = fields.get(name) {
                        self.collect(text, depth + 1);
                    }
                }
                self.retry.after_ms = self.retry.after_ms.or_else(|| wait(fields));
                for name in INNER {
                    match fields.get(name) {
                        Some(Value::String(_)) if MESSAGES.contains(&name) => {}
                        Some(inner) => self.collect(inner, depth + 1),
                        None => {}
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Takes a code; a number that is an HTTP status is that status and no code.
    fn name(&mut self, code: &str) {
        let code = code.trim();
        if let Some(status) = code.parse().ok().and_then(failing) {
            self.status = self.status.or(Some(status));
        } else if !code.is_empty() && code != "error" && !self.codes.iter().any(|known| known == code) {
            self.codes.push(code.chars().take(200).collect());
        }
    }

    fn conclude(mut self) -> Self {
        self.texts.dedup();
        self.code = self.codes.first().cloned();
        self.message = match self.texts.as_slice() {
            [] => String::new(),
            [first, second, ..] if EMPTY_WORDS.contains(&first.to_lowercase().as_str()) => format!("{first}: {second}"),
            [first, ..] => first.clone(),
        };
        if self.message.chars().count() > LONGEST_MESSAGE {
            self.message = self.message.chars().take(LONGEST_MESSAGE - 1).chain(['…']).collect();
        }
        let texts = &self.texts;
        self.retry.after_ms =
            self.retry.after_ms.or_else(|| texts.iter().find_map(|text| wait_in_text(text)).map(millis));
        self
    }
}

/// A failing HTTP status.
fn failing(status: u64) -> Option<u16> {
    u16::try_from(status).ok().filter(|status| (400..=599).contains(status))
}

/// The time to wait that an object names in a field, in milliseconds.
fn wait(fields: &serde_json::Map<String, Value>) -> Option<u64> {
    let text = |name: &str| match fields.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    if let Some(ms) = text("retry_after_ms").and_then(|ms| ms.parse::<f64>().ok()) {
        return (ms.is_finite() && ms >= 0.0)
            .then(|| millis(std::time::Duration::from_secs_f64(ms.min(1e12) / 1_000.0)));
    }
    ["retryDelay", "retry_after", "retryAfter", "retry_after_seconds"]
        .into_iter()
        .find_map(|name| text(name).and_then(|text| duration(&text)))
        .map(millis)
}

/// A text in one line, without control characters; `None` where nothing is left.
fn plain(text: &str) -> Option<String> {
    let words: Vec<&str> =
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()).collect();
    let text: String = words.join(" ").chars().take(8 * LONGEST_MESSAGE).collect();
    (!text.is_empty()).then_some(text)
}

/// The title, or else the first heading, of a page of markup.
fn title(page: &str) -> Option<String> {
    let lower = page.to_ascii_lowercase();
    ["title", "h1", "h2"].into_iter().find_map(|tag| {
        let open = lower.find(&format!("<{tag}"))?;
        let from = open + lower.get(open..)?.find('>')? + 1;
        let to = from + lower.get(from..)?.find(&format!("</{tag}"))?;
        let mut text = String::new();
        let mut inside = true;
        for character in page.get(from..to)?.chars() {
            match character {
                '<' => inside = false,
                '>' => inside = true,
                other if inside => text.push(other),
                _ => {}
            }
        }
        let text = text.replace("&amp;", "&").replace("&quot;", "\"").replace("&#39;", "'");
        plain(&text.replace(['<', '>'], " "))
    })
}

/// A body without a byte order mark and without white space around it.
fn trim(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii()
}

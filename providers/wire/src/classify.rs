//! The classifier of failures: rules that are data, and the few lines that apply them.

use std::sync::OnceLock;
use std::time::SystemTime;

use reqwest::StatusCode;
use serde::Deserialize;
use settled_provider_api::{ErrorClass, ProviderError};

use crate::body::ErrorBody;
use crate::decode::{BodyKind, sniff};
use crate::retry::advice;

/// Classifies failures by an ordered set of [`Rules`].
///
/// The sections are asked in this order, and the first rule that holds decides: overflow above all, then the provider's code, the HTTP status, the text, and what is left.
/// The same classifier serves HTTP failures and errors inside a stream of status 200: there the status is the one that the body names.
#[derive(Debug)]
pub struct Classifier {
    rules: Rules,
}

/// What a classifier found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Classified<'c> {
    /// The class.
    pub class: ErrorClass,
    /// The name of the rule that decided; `None` when no rule held, and the class is `unknown`.
    pub rule: Option<&'c str>,
}

/// The rules of a classifier, as they are kept in `errors.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Rules {
    /// The version of this form; 1.
    pub version: u32,
    /// Rules by which a request was too large; they look at code and text, whatever the status is.
    pub overflow: Vec<Rule>,
    /// Rules that look at the provider's code.
    pub code: Vec<Rule>,
    /// Rules that look at the status.
    pub status: Vec<Rule>,
    /// Rules that look at the text.
    pub text: Vec<Rule>,
    /// Rules for what no other has decided.
    pub rest: Vec<Rule>,
}

impl Rules {
    /// Every rule, in the order in which they are asked.
    pub fn in_order(&self) -> impl Iterator<Item = &Rule> {
        [&self.overflow, &self.code, &self.status, &self.text, &self.rest].into_iter().flatten()
    }
}

/// One rule: it holds when each of its conditions that is given holds.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Rule {
    /// Its name, unique.
    pub name: String,
    /// The dialects for which it is asked; every one where it is empty.
    pub provider: Vec<String>,
    /// The statuses, as `429` or `5xx`; `none` holds where there is no failing status.
    pub status: Vec<String>,
    /// The codes, types and reasons, in small letters.
    pub code: Vec<String>,
    /// Patterns, one of which must stand in a text, in small letters: `*` is any text, `#` is a number.
    pub text: Vec<String>,
    /// Patterns none of which may stand in a text.
    pub not: Vec<String>,
    /// Whether the text must name a request of more than its limit: `limit 10,000, requested 12,000`.
    pub requested_above_limit: bool,
    /// The class.
    pub class: Option<ErrorClass>,
}

impl Classifier {
    /// The rules that come with this crate.
    pub fn standard() -> &'static Self {
        static STANDARD: OnceLock<Classifier> = OnceLock::new();
        STANDARD.get_or_init(|| {
            let rules = serde_json::from_str(include_str!("errors.json"));
            #[expect(clippy::expect_used, reason = "the file is part of the crate, and a test reads it")]
            Self::new(rules.expect("errors.json is a set of rules"))
        })
    }

    /// A classifier with rules of one's own.
    pub fn new(rules: Rules) -> Self {
        Self { rules }
    }

    /// Its rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The error that a failure of a dialect is: its class, what the provider says, its code, and its retry advice.
    pub fn error(&self, provider: &str, status: Option<u16>, body: &ErrorBody) -> ProviderError {
        let mut error = ProviderError::new(self.classify(provider, status, body).class, body.message.as_str())
            .status(status.filter(|status| *status != 200).or(body.status))
            .code(body.code.clone());
        error.retry = body.retry;
        error
    }

    /// Classifies a failure of a dialect: with the HTTP status if it was one, and with what the body says.
    pub fn classify(&self, provider: &str, status: Option<u16>, body: &ErrorBody) -> Classified<'_> {
        // A status that says "fine" was only the stream's: the body's own counts.
        let status = status.filter(|status| !(200..300).contains(status)).or(body.status);
        let text = body.haystack();
        let codes: Vec<String> = body.codes.iter().map(|code| code.to_lowercase()).collect();
        let decided = self.rules.in_order().find(|rule| rule.holds(provider, status, &codes, &text));
        Classified {
            class: decided.and_then(|rule| rule.class).unwrap_or(ErrorClass::Unknown),
            rule: decided.map(|rule| rule.name.as_str()),
        }
    }
}

impl Rule {
    fn holds(&self, provider: &str, status: Option<u16>, codes: &[String], text: &str) -> bool {
        let among =
            |wanted: &[String], is: &dyn Fn(&str) -> bool| wanted.is_empty() || wanted.iter().any(|one| is(one));
        among(&self.provider, &|name| name == provider)
            && among(&self.status, &|pattern| status_is(pattern, status))
            && among(&self.code, &|code| codes.iter().any(|given| given == code))
            && among(&self.text, &|pattern| contains(text, pattern))
            && !self.not.iter().any(|pattern| contains(text, pattern))
            && (!self.requested_above_limit || requested_above_limit(text))
    }
}

/// The error that a response of a failing status is, by the [standard](Classifier::standard) rules.
///
/// What the headers say about trying again goes before what the body says; `now` is what dates are counted from where the response has no date of its own.
/// A page of markup is not shown, but for its title.
pub fn failed_response<'h>(
    provider: &str,
    status: u16,
    header: impl Fn(&str) -> Option<&'h str>,
    body: &[u8],
    now: SystemTime,
) -> ProviderError {
    let read = ErrorBody::read(body);
    let mut error = Classifier::standard().error(provider, Some(status), &read);
    let name = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let name = name.map_or_else(|| format!("HTTP {status}"), |name| format!("HTTP {status} {name}"));
    error.message = match (sniff(body), read.message.as_str()) {
        (Some(BodyKind::Markup), "") => format!("{name} (the body is a page of markup)"),
        (Some(BodyKind::Markup), title) => format!("{name} (the body is a page with the title {title:?})"),
        (_, "") => format!("{name} (the body says nothing)"),
        (_, message) => message.to_owned(),
    };
    let said = advice(status, header, now);
    error.retry.after_ms = said.after_ms.or(error.retry.after_ms);
    error.retry.should_retry = said.should_retry;
    error
}

/// Whether a status is one of a pattern: `429`, `5xx`, `none`.
fn status_is(pattern: &str, status: Option<u16>) -> bool {
    match (pattern, status) {
        ("none", status) => status.is_none(),
        (_, None) => false,
        (pattern, Some(status)) => match pattern.strip_suffix("xx") {
            Some(hundreds) => hundreds.parse() == Ok(status / 100),
            None => pattern.parse() == Ok(status),
        },
    }
}

/// Whether a pattern stands anywhere in a text: its pieces between `*`, one behind the other.
fn contains(text: &str, pattern: &str) -> bool {
    let mut rest = text;
    pattern.split('*').all(|piece| {
        let found = rest.char_indices().find_map(|(at, _)| Some((at, piece_at(rest.get(at..)?, piece)?)));
        match found {
            Some((at, length)) => {
                rest = rest.get(at + length..).unwrap_or_default();
                true
            }
            None => piece.is_empty(),
        }
    })
}

/// How long the piece of a pattern is that stands at the front of a text; in it `#` is a number with or without separators.
fn piece_at(text: &str, piece: &str) -> Option<usize> {
    let mut rest = text;
    for (count, literal) in piece.split('#').enumerate() {
        if count > 0 {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != ',' && c != '_').unwrap_or(rest.len());
            if !rest.starts_with(|c: char| c.is_ascii_digit()) {
                return None;
            }
            rest = rest.get(digits..)?;
        }
        rest = rest.strip_prefix(literal)?;
    }
    Some(text.len() - rest.len())
}

/// Whether a text names a request that is larger than the limit it names.
fn requested_above_limit(text: &str) -> bool {
    let number_behind = |word: &str| {
        let at = text.find(word)? + word.len();
        let rest = text.get(at..)?.trim_start_matches([' ', ':', '=']);
        let digits: String = rest
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == ',' || *c == '_')
            .filter(char::is_ascii_digit)
            .collect();
        digits.parse::<u64>().ok()
    };
    let limit = ["limit ", "limit: ", "limit="].into_iter().find_map(number_behind);
    let requested = ["requested ", "requested: ", "requested="].into_iter().find_map(number_behind);
    matches!((limit, requested), (Some(limit), Some(requested)) if requested > limit)
}

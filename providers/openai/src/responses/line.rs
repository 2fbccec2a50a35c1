//! The shape of one line on the wire: borrowed from its text.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::usage::Counts;
use crate::lenient::Text;

/// The data of any event: what is rare stays raw.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(default)]
    pub(super) output_index: Option<u64>,
    #[serde(default)]
    pub(super) content_index: Option<u64>,
    #[serde(default)]
    pub(super) summary_index: Option<u64>,
    #[serde(borrow, default)]
    pub(super) item_id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) refusal: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) part: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) annotation: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) detail: Option<&'a RawValue>,
}

/// The data of an event that brings a piece of text, which most events do: read at one go.
#[derive(Deserialize)]
pub(super) struct PieceLine<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    pub(super) output_index: u64,
    #[serde(default, alias = "summary_index")]
    pub(super) content_index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Text<'a>,
}

/// A response, as far as it says something by itself.
#[derive(Default, Deserialize)]
pub(super) struct Response<'a> {
    #[serde(borrow, default)]
    pub(super) id: Text<'a>,
    #[serde(borrow, default)]
    pub(super) model: Text<'a>,
    #[serde(borrow, default)]
    pub(super) status: Text<'a>,
    #[serde(borrow, default)]
    pub(super) incomplete_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) output: Option<&'a RawValue>,
    #[serde(default)]
    pub(super) usage: Option<Counts>,
}

/// A field as a value; nothing where it is not there or `null`.
pub(super) fn value(raw: Option<&RawValue>) -> Option<Value> {
    serde_json::from_str(raw?.get()).ok().filter(|value: &Value| !value.is_null())
}

/// A field as text: a text as such, `null` and nothing as none, anything else as the JSON that it is.
pub(super) fn text<'a>(raw: Option<&'a RawValue>) -> Cow<'a, str> {
    match raw.map(RawValue::get) {
        None | Some("null") => Cow::Borrowed(""),
        Some(raw) if raw.starts_with('"') => serde_json::from_str::<Text<'a>>(raw).unwrap_or_default().0,
        Some(raw) => Cow::Borrowed(raw),
    }
}

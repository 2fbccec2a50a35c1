//! The shape of one line on the wire: borrowed from its text.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The data of any event: what is rare stays raw.
#[derive(Deserialize)]
pub(crate) struct Line<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(crate) kind: Option<Text<'a>>,
    #[serde(default)]
    pub(crate) index: Option<u64>,
    #[serde(borrow, default)]
    pub(crate) delta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) content_block: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) context_management: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) error: Option<&'a RawValue>,
}

/// The data of a `content_block_delta`, which most events are: read at one go.
#[derive(Deserialize)]
pub(crate) struct PieceLine<'a> {
    #[serde(borrow, rename = "type")]
    pub(crate) kind: Text<'a>,
    pub(crate) index: u64,
    #[serde(borrow)]
    pub(crate) delta: Piece<'a>,
}

/// A piece of a block.
#[derive(Deserialize)]
pub(crate) struct Piece<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(crate) kind: Text<'a>,
    /// Its text, whatever the type calls it.
    #[serde(borrow, default, alias = "thinking", alias = "signature")]
    pub(crate) text: Option<Text<'a>>,
    /// A text of JSON; an object from some gateways.
    #[serde(borrow, default)]
    pub(crate) partial_json: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) encrypted_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) citation: Option<&'a RawValue>,
}

/// What a `message_delta` says.
#[derive(Default, Deserialize)]
pub(crate) struct MessageDelta<'a> {
    #[serde(borrow, default)]
    pub(crate) stop_reason: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) stop_sequence: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) stop_details: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) container: Option<&'a RawValue>,
}

/// A text that is borrowed where it has no escapes.
///
/// (Inside an `Option`, serde would not borrow a plain `Cow`.)
#[derive(Default, Deserialize)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// A text that may be given as the JSON that it stands for: a string is its text, anything else the JSON itself.
pub(crate) fn json_text(raw: &RawValue) -> Result<Cow<'_, str>, serde_json::Error> {
    match raw.get() {
        text if text.starts_with('"') => serde_json::from_str::<Text<'_>>(text).map(|text| text.0),
        other => Ok(Cow::Borrowed(other)),
    }
}

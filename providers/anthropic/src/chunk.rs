//! The shape of one line on the wire: borrowed from its text, flat, since a tagged enum would cost twice as much.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The data of one event: the fields of every type together; what is rare stays raw.
#[derive(Deserialize)]
pub(crate) struct Line<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(crate) kind: Option<Text<'a>>,
    #[serde(default)]
    pub(crate) index: Option<u64>,
    #[serde(borrow, default)]
    pub(crate) delta: Option<Delta<'a>>,
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

/// A piece of a block, or what `message_delta` says.
#[derive(Deserialize)]
pub(crate) struct Delta<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(crate) kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) text: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) thinking: Option<Text<'a>>,
    /// A text of JSON; an object from some gateways.
    #[serde(borrow, default)]
    pub(crate) partial_json: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) signature: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(crate) content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) encrypted_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) citation: Option<&'a RawValue>,
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

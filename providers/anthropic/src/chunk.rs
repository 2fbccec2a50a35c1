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

impl<'a> PieceLine<'a> {
    /// Reads a line; `None` where it is no piece.
    pub(crate) fn read(line: &'a str) -> Option<Self> {
        let read = Self::plain(line).or_else(|| serde_json::from_str(line).ok())?;
        (read.kind.0 == Self::KIND).then_some(read)
    }

    /// The type of these lines.
    pub(crate) const KIND: &'static str = "content_block_delta";

    /// Reads a line in the very form that the wire writes, with a text without escapes: that takes a tenth of what any parser of JSON takes.
    fn plain(line: &'a str) -> Option<Self> {
        let rest = line.strip_prefix(r#"{"type":"content_block_delta","index":"#)?;
        let (index, rest) = rest.split_at(rest.bytes().position(|byte| !byte.is_ascii_digit())?);
        if index.len() > 1 && index.starts_with('0') {
            return None;
        }
        let rest = rest.strip_prefix(r#","delta":{"type":""#)?;
        let (kind, rest) = match rest.strip_prefix(r#"text_delta","text":""#) {
            Some(rest) => ("text_delta", rest),
            None => ("thinking_delta", rest.strip_prefix(r#"thinking_delta","thinking":""#)?),
        };
        let (text, rest) = rest.split_at(rest.bytes().position(|byte| matches!(byte, b'"' | b'\\' | ..b' '))?);
        // The wire pads lines with spaces.
        let rest = rest.strip_prefix("\"}")?.trim_start_matches(' ').strip_prefix('}')?;
        rest.is_empty().then_some(Self {
            kind: Text(Cow::Borrowed(Self::KIND)),
            index: index.parse().ok()?,
            delta: Piece {
                kind: Text(Cow::Borrowed(kind)),
                text: Some(Text(Cow::Borrowed(text))),
                partial_json: None,
                content: None,
                encrypted_content: None,
                citation: None,
            },
        })
    }
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

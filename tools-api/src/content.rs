//! What a tool, a person or a model may hand over: text and media.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One piece of content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::exhaustive_enums,
    reason = "whoever lowers content must see every kind; a new kind is a new major version"
)]
pub enum Content {
    /// Plain text.
    Text(String),
    /// An image, a document, a sound.
    Media(Media),
}

impl Content {
    /// A piece of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// The text, if this is text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Media(_) => None,
        }
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A piece of media with its kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Media {
    /// The media type, for instance `image/png`.
    pub mime: String,
    /// Where the bytes are.
    pub data: MediaData,
    /// A file name, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Media {
    /// Media whose bytes are given in base64 (RFC 4648, with padding).
    pub fn base64(mime: impl Into<String>, data: impl Into<Arc<str>>) -> Self {
        Self { mime: mime.into(), data: MediaData::Base64(data.into()), name: None }
    }

    /// Media that the provider fetches from a URL.
    pub fn url(mime: impl Into<String>, url: impl Into<String>) -> Self {
        Self { mime: mime.into(), data: MediaData::Url(url.into()), name: None }
    }
}

/// Where the bytes of a piece of media are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MediaData {
    /// Here, in base64.
    Base64(Arc<str>),
    /// Behind a URL.
    Url(String),
}

/// What a tool gave back: content for the model, and metadata that only the application sees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolOutput {
    /// What the model is shown, in order.
    pub content: Vec<Content>,
    /// Structured data for the application; never sent to a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

impl ToolOutput {
    /// Output of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::Text(text.into())], metadata: None }
    }

    /// Output of several pieces.
    pub fn new(content: impl IntoIterator<Item = Content>) -> Self {
        Self { content: content.into_iter().collect(), metadata: None }
    }

    /// The same output with metadata for the application.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Value) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// All its text, joined by line feeds.
    pub fn joined_text(&self) -> String {
        let texts: Vec<&str> = self.content.iter().filter_map(Content::as_text).collect();
        texts.join("\n")
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

//! OpenAI's wires, at OpenAI and at all who speak them too: the Responses API in [`responses`], Chat Completions in [`chat`].
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use settled_provider_api::FixedKey;
//! use settled_provider_openai::chat::OpenAiChat;
//! use settled_provider_openai::responses::OpenAiResponses;
//!
//! # fn main() -> Result<(), settled_provider_api::ProviderError> {
//! let openai = OpenAiResponses::new("https://api.openai.com/v1", Arc::new(FixedKey::new("a key")))?;
//! let local = OpenAiChat::new("http://127.0.0.1:8080/v1", Arc::new(FixedKey::none()))?;
//! # drop((openai, local));
//! # Ok(())
//! # }
//! ```

use settled_provider_api::{ErrorClass, ProviderError};

pub mod responses;

pub mod chat;

mod lenient;

mod template;

/// The host of a URL, in small letters.
fn host(url: &str) -> String {
    let behind_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = behind_scheme.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.split(':').next().unwrap_or_default().to_ascii_lowercase()
}

/// What does not decode, with the beginning of it.
fn undecoded(what: &str, offset: u64, text: &str) -> ProviderError {
    const SHOWN: usize = 160;
    let shown: String = text.chars().take(SHOWN).collect();
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    ProviderError::new(ErrorClass::InvalidOutput, format!("{what} at byte {offset} of the body: {shown}{more}"))
}

//! OpenAI's wires: Chat Completions, in the dialects of all who speak it.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use settled_provider_api::FixedKey;
//! use settled_provider_openai::chat::OpenAiChat;
//!
//! # fn main() -> Result<(), settled_provider_api::ProviderError> {
//! let local = OpenAiChat::new("http://127.0.0.1:8080/v1", Arc::new(FixedKey::none()))?;
//! # drop(local);
//! # Ok(())
//! # }
//! ```

pub mod chat;

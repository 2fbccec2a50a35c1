//! The contracts: a provider, and where its keys come from.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_core::Stream;

use crate::{ProviderError, ProviderEvent, Request};

/// The events of one answer.
///
/// It ends after its last event; an `Err` is its last item.
pub type ProviderStream = Pin<Box<dyn Stream<Item = Result<ProviderEvent, ProviderError>> + Send>>;

/// A model provider.
///
/// # Contract
///
/// - One call of [`stream`](Self::stream) is one request on the wire.
///   The adapter never tries again by itself: there is one retry layer, and it is the runner's.
/// - Events come in the order in which the model produced them.
///   What does not decode is an error of class `invalid_output`, never skipped.
/// - A finish, a usage or the end of a call's arguments that the provider did not send is never invented.
///   Arguments default to `{}` only after an explicit end.
/// - An error that the provider sent inside the stream is [`ProviderEvent::Error`]; a broken transport is an `Err`.
/// - Reading goes on after the finish, to the end of the body.
///
/// # Cancelling
///
/// Dropping the future of [`stream`](Self::stream), or the stream, cancels the request and closes its connection.
/// The runner does so at any await.
///
/// # Time
///
/// The adapter limits only how long connecting may take.
/// How long the first event, or the next one, may take is the runner's to limit.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Sends one request and opens its stream.
    ///
    /// *May fail* before the first event: then nothing of the answer was produced.
    async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError>;
}

/// Where keys come from: asked anew for each attempt, so that a rotated key is used at once.
#[async_trait]
pub trait Credentials: Send + Sync {
    /// The key for a provider; `None` where none is needed.
    ///
    /// *May fail* with class `auth` when a key is needed and missing; the message says what to set.
    async fn key(&self, provider: &str) -> Result<Option<Secret>, ProviderError>;
}

/// A text that is never shown: its debug form is `Secret(…)`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Takes a secret.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Shows it, to be put on the wire and nowhere else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// One key for every provider, or none.
#[derive(Clone, Debug)]
pub struct FixedKey(Option<Secret>);

impl FixedKey {
    /// This key, whoever asks.
    pub fn new(key: impl Into<Arc<str>>) -> Self {
        Self(Some(Secret::new(key)))
    }

    /// No key: for servers that need none.
    pub fn none() -> Self {
        Self(None)
    }
}

#[async_trait]
impl Credentials for FixedKey {
    async fn key(&self, _: &str) -> Result<Option<Secret>, ProviderError> {
        Ok(self.0.clone())
    }
}

//! What a model provider of an LLM agent implements, and the events of its stream.
//!
//! An adapter author implements [`Provider`]: one function that sends one [`Request`] and opens one stream of [`ProviderEvent`]s.
//! This crate depends on no runtime and on no HTTP client.
//!
//! # Write one from scratch
//!
//! ```
//! use std::collections::VecDeque;
//! use std::pin::Pin;
//! use std::sync::Arc;
//! use std::task::{Context, Poll};
//!
//! use async_trait::async_trait;
//! use futures_core::Stream;
//! use settled_provider_api::{
//!     Content, FinishReason, Message, Provider, ProviderError, ProviderEvent, ProviderStream, Request,
//! };
//!
//! /// A model that says what the person said last, word by word.
//! struct Echo;
//!
//! #[async_trait]
//! impl Provider for Echo {
//!     async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
//!         let said = request.messages.iter().rev().find_map(|message| match message.as_ref() {
//!             Message::User(content) => content.iter().find_map(Content::as_text),
//!             _ => None,
//!         });
//!         let mut events = VecDeque::from([ProviderEvent::text_start(0)]);
//!         events.extend(said.unwrap_or("…").split_inclusive(' ').map(|word| ProviderEvent::text_delta(0, word)));
//!         events.push_back(ProviderEvent::text_end(0));
//!         events.push_back(ProviderEvent::finish(FinishReason::Stop, None));
//!         Ok(Box::pin(Events(events)))
//!     }
//! }
//!
//! /// A real adapter decodes bytes here; dropping the stream closes its connection.
//! struct Events(VecDeque<ProviderEvent>);
//!
//! impl Stream for Events {
//!     type Item = Result<ProviderEvent, ProviderError>;
//!
//!     fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
//!         Poll::Ready(self.0.pop_front().map(Ok))
//!     }
//! }
//!
//! # use settled_provider_api::{MessageId, ModelRef, Purpose, SessionId};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let purpose = Purpose::step(SessionId::new("s").unwrap(), MessageId::from_u128(1));
//! let mut request = Request::new(ModelRef::new("echo", "echo-1"), purpose);
//! request.messages.push(Arc::new(Message::user("hello there")));
//! let mut stream = Echo.stream(Arc::new(request)).await.unwrap();
//! let first = std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await;
//! assert_eq!(first, Some(Ok(ProviderEvent::text_start(0))));
//! # }
//! ```

mod provider;

mod request;

mod event;

mod error;

mod model;

pub use error::{ErrorClass, ProviderError, RetryHint};
pub use event::{
    Annotation, BlockDelta, BlockEnd, BlockStart, Finish, FinishReason, HostedError, HostedResult, MediaBlock,
    ProviderEvent, ResponseInfo, ToolCallEvent, ToolInputEnd, ToolInputMalformed, ToolInputStart,
};
pub use model::{Capabilities, ModelInfo, ModelRef, Price, Rates, Tier, Usage};
pub use provider::{Credentials, FixedKey, Provider, ProviderStream, Secret};
pub use request::{
    AssistantPart, CallPart, HostedResultPart, Message, Options, Purpose, Request, RequestKind, ResponseFormat,
    TextPart, ToolChoice, ToolResult,
};
pub use settled_tools_api::{CallKey, Content, InvalidId, Media, MediaData, MessageId, SessionId, ToolDefinition};

/// Every trait of this crate can be a trait object: this compiles only while that is so.
#[expect(dead_code, reason = "it is checked by being compiled")]
fn object_safe(_: &dyn Provider, _: &dyn Credentials) {}

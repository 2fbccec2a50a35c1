//! Runs the steps of an LLM agent so that every step settles.
//!
//! A [`Runner`] is put together once from models, tools, an agent and a store.
//! A [`Session`] is then prompted, followed, interrupted, and asked how it settled.
//! Whatever happens on the way (a cut stream, a tool that panics, an interrupt, a killed process), every step ends with one terminal event and every tool call with one recorded outcome.
//!
//! ```
//! # use std::pin::Pin;
//! # use std::sync::Arc;
//! # use std::task::{Context, Poll};
//! # use settled_provider_api::{FinishReason, Provider, ProviderError, ProviderEvent, ProviderStream, Request};
//! # struct Greeter;
//! # #[async_trait::async_trait]
//! # impl Provider for Greeter {
//! #     async fn stream(&self, _: Arc<Request>) -> Result<ProviderStream, ProviderError> {
//! #         let finish = ProviderEvent::finish(FinishReason::Stop, None);
//! #         Ok(Box::pin(Events(vec![finish, ProviderEvent::text_delta(0, "Hello!"), ProviderEvent::text_start(0)])))
//! #     }
//! # }
//! # struct Events(Vec<ProviderEvent>);
//! # impl futures_core::Stream for Events {
//! #     type Item = Result<ProviderEvent, ProviderError>;
//! #     fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
//! #         Poll::Ready(self.0.pop().map(Ok))
//! #     }
//! # }
//! use settled_ledger::{Outcome, Seq};
//! use settled_provider_api::{ModelInfo, ModelRef};
//! use settled_runner::{Agent, Runner, SessionEvent, SystemClock};
//! use settled_store_memory::MemoryStore;
//! use settled_tools_api::Toolbox;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runner = Runner::builder()
//!     .model(ModelRef::new("greeter", "g-1"), Greeter, ModelInfo::new())
//!     .tools(Toolbox::new())
//!     .agent(Agent::new("host").system("Be polite."))
//!     .store(MemoryStore::new(Arc::new(SystemClock::default())))
//!     .build()?;
//! let session = runner.session("visitor-1").await?;
//! session.prompt("Good morning").await?; // durable before it returns; wakes the session
//! let settled = session.settled().await?;
//! assert_eq!(settled.outcome, Outcome::Completed);
//! assert_eq!(settled.answer.as_deref(), Some("Hello!"));
//!
//! let mut events = session.follow(Seq::START); // replay, then live
//! let first = events.next().await.unwrap()?;
//! assert!(matches!(first, SessionEvent::Recorded(row) if row.kind == "session.created"));
//! # Ok(())
//! # }
//! ```
//!
//! # Cancelling and stopping
//!
//! Dropping a [`Session`] or one of its futures stops nothing: what was started goes on and is written down.
//! [`Session::interrupt`] stops what runs now, and [`Runner::shutdown`] hands over what runs to the next owner.
//! `panic = "abort"` is not supported: a tool's panic must be caught to be recorded.

mod runner;

mod session;

mod settings;

mod follow;

mod worker;

mod drain;

mod opening;

mod sweep;

mod step;

mod stream;

mod tools;

mod schema;

mod bound;

mod retry;

mod compaction;

mod request;

mod writer;

mod inbox;

mod live;

mod guard;

mod shop;

mod outputs;

mod instructions;

mod redaction;

mod clock;

mod error;

pub use clock::{RandomIds, SystemClock};
pub use error::Error;
pub use follow::{Follow, SessionEvent};
pub use instructions::InstructionSource;
pub use live::Snapshot;
pub use outputs::{NoOutputs, Outputs, Snapshots};
pub use redaction::{KnownSecrets, Redactor};
pub use runner::{Builder, Runner};
pub use session::{Input, Interrupted, Session, Settled, Waiting};
pub use settings::{Agent, CompactionSettings, OutputSettings, RetrySettings, Settings};
pub use worker::Serving;

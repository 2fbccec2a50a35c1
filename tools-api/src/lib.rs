//! What a tool of an LLM agent implements: definitions, calls, outcomes.
//!
//! A tool author implements [`ToolExecutor`]: a set of tools, and one function that runs a call.
//! This crate depends on no runtime.
//!
//! # Write one from scratch
//!
//! ```
//! use async_trait::async_trait;
//! use serde_json::json;
//! use settled_tools_api::{ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolReturn};
//!
//! /// Sends money. Twice would be bad.
//! struct Payments;
//!
//! #[async_trait]
//! impl ToolExecutor for Payments {
//!     fn definitions(&self) -> Vec<ToolDefinition> {
//!         vec![ToolDefinition::new(
//!             "pay",
//!             "Pays an amount in cents to an account.",
//!             json!({
//!                 "type": "object",
//!                 "properties": { "to": {"type": "string"}, "cents": {"type": "integer", "minimum": 1} },
//!                 "required": ["to", "cents"],
//!             }),
//!         )
//!         .exclusive()]
//!     }
//!
//!     async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError> {
//!         let (Some(to), Some(cents)) = (call.input["to"].as_str(), call.input["cents"].as_u64()) else {
//!             return Err(ToolError::failed("`to` and `cents` are needed"));
//!         };
//!         if cents > 10_000 && call.answered.is_none() {
//!             // A person is asked; the call runs again with the answer, even after a restart.
//!             return Ok(ToolReturn::ask(format!("Pay {cents} cents to {to}?"), json!({})));
//!         }
//!         // The bank remembers the effect key and pays at most once for it.
//!         match pay(to, cents, context.effect_key().as_str()).await {
//!             Ok(receipt) => Ok(ToolReturn::text(receipt)),
//!             Err(Refused) => Err(ToolError::failed("the bank refused")),
//!         }
//!     }
//! }
//!
//! # struct Refused;
//! # async fn pay(to: &str, cents: u64, key: &str) -> Result<String, Refused> {
//! #     Ok(format!("paid {cents} to {to} ({})", key.len()))
//! # }
//! # use settled_tools_api::{CallKey, EffectKey, MessageId, RunInfo, SessionId};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let key = EffectKey::new("a-key").unwrap();
//! let call = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
//! let context = ToolContext::detached(RunInfo::new(key, SessionId::new("s").unwrap(), call));
//! let paid = Payments.execute(ToolCall::new("pay", json!({"to": "ann", "cents": 5})), context).await;
//! assert_eq!(paid, Ok(ToolReturn::text("paid 5 to ann (5)")));
//! # }
//! ```

mod id;

mod content;

mod definition;

mod executor;

mod context;

mod cancel;

mod policy;

mod toolbox;

pub use cancel::{CancelSignal, CancelSource, Cancelled};
pub use content::{Content, Media, MediaData, ToolOutput};
pub use context::{NoteError, RunInfo, ToolContext, ToolHost};
pub use definition::{Concurrency, Replay, ReplayClass, ToolDefinition};
pub use executor::{
    Answered, Ask, InfraError, OfferTo, Reconciled, Reconciler, ToolCall, ToolError, ToolExecutor, ToolReturn,
    ToolSource, never_empty,
};
pub use id::{CallKey, EffectKey, InvalidId, MessageId, SessionId};
pub use policy::{AllowAll, Decision, Policy, PolicyCall};
pub use toolbox::Toolbox;

/// Every trait of this crate can be a trait object: this compiles only while that is so.
#[expect(dead_code, reason = "it is checked by being compiled")]
fn object_safe(_: &dyn ToolExecutor, _: &dyn ToolSource, _: &dyn Reconciler, _: &dyn Policy, _: &dyn ToolHost) {}

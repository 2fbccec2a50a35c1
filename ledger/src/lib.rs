//! All evidence of an agent's step, pure; durable events, history, and the contracts of a store.
//!
//! A *step* is one model answer with the tools it called.
//! The [`StepLedger`] owns everything that arrives while it runs, says which events must be recorded, and at the end classifies the step once: its [`Settlement`].
//! Whatever arrives, in whatever order, a step gets exactly one terminal event and each of its calls exactly one outcome.
//!
//! This crate does no IO and cannot wait: it reads no clock, makes no id, calls no provider and no tool.
//! Whoever runs steps (`settled-runner`) does all of that, and orders the effects.
//!
//! # The step ledger
//!
//! Its methods are of three kinds.
//!
//! - **Admit**: what arrived.
//!   [`admit`](StepLedger::admit) takes an event of the provider's stream; [`admit_outcome`](StepLedger::admit_outcome), [`admit_answer`](StepLedger::admit_answer), [`admit_interrupt`](StepLedger::admit_interrupt) and their like take the rest.
//!   [`start`](StepLedger::start) and [`release`](StepLedger::release) frame the start of a call.
//! - **Ask**: what follows from the evidence, on `&self`: [`may_start_calls`](StepLedger::may_start_calls), [`unsettled`](StepLedger::unsettled), [`settlement`](StepLedger::settlement), [`needs_continuation`](StepLedger::needs_continuation).
//! - **Settle**: the transitions at the end of a step.
//!
//! A method that changes what a later question would answer returns the durable [`Events`] that it owes.
//! They go to the session's writer, in order, before the ledger is touched again.
//!
//! These orders are real dependencies; any other order of calls is legal:
//!
//! 1. [`start`](StepLedger::start), then its event is durable, then [`release`](StepLedger::release), then the tool is run.
//! 2. [`admit_stream_exit`](StepLedger::admit_stream_exit), then [`release_held_overflow`](StepLedger::release_held_overflow), then [`streamed`](StepLedger::streamed): from there on the step can be [rebuilt](StepLedger::restore) from the log.
//! 3. Every tool has ended, then [`admit_tools_exit`](StepLedger::admit_tools_exit), then [`settlement`](StepLedger::settlement).
//! 4. [`fail_unsettled_tools`](StepLedger::fail_unsettled_tools), then the one terminal: [`end_step`](StepLedger::end_step) where the settlement is clean, else [`fail_assistant`](StepLedger::fail_assistant).
//!
//! ```
//! use serde_json::json;
//! use settled_ledger::check::check_events;
//! use settled_ledger::*;
//! use settled_provider_api::{FinishReason, ModelRef, ProviderEvent, ToolDefinition};
//! use settled_tools_api::{MessageId, SessionId, ToolOutput};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let message = MessageId::from_u128(1);
//! let tools = [ToolDefinition::new("add", "Adds two numbers.", json!({"type": "object"}))];
//! let mut ledger = StepLedger::new(SessionId::new("s")?, message, tools.into(), ToolUse::On);
//! let mut log: Vec<Event> = vec![
//!     StepStarted { message, attempt: 1, agent: "a".into(), model: ModelRef::new("lab", "m"), continues: None, last: false }
//!         .into(),
//! ];
//!
//! // The stream: a text, a call, a finish.
//! for event in [
//!     ProviderEvent::text_start(0),
//!     ProviderEvent::text_delta(0, "Let me add."),
//!     ProviderEvent::text_end(0),
//!     ProviderEvent::tool_call(1, "call_1", "add", json!({"a": 1, "b": 2})),
//!     ProviderEvent::finish(FinishReason::ToolCalls, None),
//! ] {
//!     match ledger.admit(&event) {
//!         Admission::Nothing => {}
//!         Admission::Delta(delta) => assert_eq!(delta.text, "Let me add."), // shown, never stored
//!         Admission::Owed(owed) => log.extend(owed),
//!         Admission::Call(owed, call) => {
//!             log.extend(owed);
//!             log.extend(ledger.start(call)); // once this is durable the tool may run
//!             if let Release::Run { name, input, .. } = ledger.release(call) {
//!                 assert_eq!((name.as_str(), &input["a"]), ("add", &json!(1)));
//!                 log.extend(ledger.admit_outcome(call, ToolOutcome::Success(ToolOutput::text("3"), None)));
//!             }
//!         }
//!         Admission::Broken(violation) => return Err(violation.into()),
//!     }
//! }
//! log.extend(ledger.admit_stream_exit(StreamExit::Completed));
//! ledger.release_held_overflow();
//! log.extend(ledger.streamed());
//! ledger.admit_tools_exit(ToolsExit::Settled);
//!
//! // Classified once; then what is open is failed, and the terminal comes last.
//! assert_eq!(ledger.settlement(), Settlement::Clean);
//! assert!(ledger.needs_continuation()); // the model is to see the result
//! log.extend(ledger.fail_unsettled_tools(Unsettled::AtSettlement));
//! log.extend(ledger.end_step(StepEnd::default()));
//!
//! let placed = (1..).map(Seq::new).zip(&log);
//! assert_eq!(check_events(placed), []);
//! # Ok(())
//! # }
//! ```
//!
//! # The rest
//!
//! - [`Event`] and its kin: the durable facts of a session. A row of a log is a [`Recorded`].
//! - [`History`] folds events into what was said, [`Lowering`] makes a request's messages of it, [`SessionFold`] knows what else a drain needs.
//! - [`store`]: the four contracts that a store implements, with [`InboxItem`] and its kin for what comes from outside.
//! - [`check`]: what every log and every request must satisfy, as pure functions.
//! - [`violation`]: the rules of the stream protocol, and what the breach of each leads to.

#![warn(clippy::wildcard_enum_match_arm, clippy::indexing_slicing)]

mod ports;

mod event;

mod record;

mod texts;

mod inbox;

mod settlement;

mod key;

mod step;

pub mod violation;

mod words;

pub mod history;

mod instructions;

mod fold;

mod cache;

mod lower;

mod live;

mod piece;

pub mod store;

pub mod check;

pub use cache::CachedFold;
pub use event::*;
pub use fold::*;
pub use history::History;
pub use inbox::*;
pub use instructions::Instructions;
pub use key::{arguments_hash, effect_key};
pub use live::{LiveDelta, LiveEvent};
pub use lower::{Lowering, estimate_tokens, media_in_words};
pub use piece::Piece;
pub use ports::{BatchId, Clock, ExecutionId, Ids, InputId, Seq, Timestamp, WorkerId};
pub use record::{DecodeError, EncodeError, NewRow, Recorded};
pub use settlement::{InfraCause, Settlement};
pub use step::*;
pub use texts::value_texts_mut;

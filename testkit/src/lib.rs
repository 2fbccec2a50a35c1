//! Scripted providers and tools, faults, crash points, scenarios and conformance suites for agents.
//!
//! A test of an agent is a script for its model, its tools, a store, and what a person does:
//!
//! ```
//! # use serde_json::json;
//! use settled_store_memory::MemoryStore;
//! use settled_testkit::{agent, script, tools};
//!
//! let tools = tools().tool("charge", |run| run.effect().ok("charged"));
//! let script = script()
//!     .step(|s| s.call("charge", json!({"cents": 500})).finish())
//!     .step(|s| s.text("Done.").finish());
//! let run = agent(MemoryStore::new, script).tools(tools.clone()).run("Charge me.");
//! assert_eq!((run.outcome(), run.answer()), ("completed", Some("Done.")));
//! assert_eq!(tools.effects("charge"), 1);
//! ```
//!
//! It runs on the real runner, in virtual time, and is strict: a script that is not used up or is overrun, a request that is not well-formed, or a log that breaks an invariant fail the test and say where.
//!
//! # Write one from scratch
//!
//! What a person does, what goes wrong and when, and all that must come of it:
//!
//! ```
//! # use serde_json::json;
//! use settled_provider_api::{ErrorClass, ModelInfo, Price, ProviderError, Rates, Usage};
//! use settled_store_memory::MemoryStore;
//! use settled_testkit::{agent, script, tools};
//!
//! // The tool acts, then waits; the model's second answer comes after one refusal.
//! let tools = tools().tool("ship", |run| run.effect().sleep(3_000).ok("shipped"));
//! let script = script()
//!     .step(|s| s.text("I ship it.").call("ship", json!({"to": "Ann"})).usage(Usage::new(100, 10)).finish())
//!     .fail(ProviderError::new(ErrorClass::Overloaded, ""))
//!     .step(|s| s.text("It is on its way.").usage(Usage::new(150, 20)).finish());
//!
//! let run = agent(MemoryStore::new, script)
//!     .tools(tools.clone())
//!     .system("You ship parcels.")
//!     .model(ModelInfo::new().price(Price::new(Rates::new(3, 15))))
//!     .prompt("Ship the parcel.")
//!     .when_running("ship")
//!     .prompt("To Ann, please.") // a steer while the tool runs
//!     .runs()
//!     .play();
//!
//! assert_eq!(
//!     run.transcript(),
//!     "\
//! session: agent scenario, model script/model
//! user: Ship the parcel.
//! step 1
//!   text: I ship it.
//!   ship: call of ship {\"to\":\"Ann\"}
//!   ship: started
//!   streamed: completed, tool_calls
//!   ship: shipped
//! step 1 ended
//! user: To Ann, please.
//! step 2
//! attempt 2 in 2000 ms: overloaded
//! step 2, attempt 2
//!   text: It is on its way.
//!   streamed: completed, stop
//! step 2 ended
//! completed
//! "
//! );
//! assert_eq!(run.elapsed(), 5_000);
//! assert_eq!(run.cost_nanos(), Some(250 * 3 + 30 * 15));
//! assert_eq!(run.requests()[1].messages.len(), 4);
//! assert_eq!(tools.effects("ship"), 1);
//! ```
//!
//! # What is here
//!
//! - [`script`], [`tools`]: a provider and tools that follow a script; they can be used with any runner.
//! - [`agent`]: a whole agent in virtual time (feature `runner`, on by default).
//! - [`scenario`]: the same as files, for every language (feature `runner`).
//! - [`sim`]: random sessions from a seed, as scenarios.
//! - [`server`]: the same scripts over HTTP, on the wires of four providers, with faults (feature `server`, on by default).
//! - [`crash_at_every_write`], [`cut_at_every_event`]: what becomes of an agent whose process dies, or whose provider's stream is cut, wherever that can happen.
//! - [`Effects`]: the world that tools act on, counted by effect key.
//! - [`faults`]: a store that fails where it is told to, before any other.
//! - [`check_log`], [`check_request`]: whether a log, or a request, keeps to the invariants; every run of the kit asks them by itself.
//! - [`Transcript`]: a log as plain text.
//! - [`conformance`]: what every store has to keep to.
//! - [`guide`]: how to test an agent, and how to write what an agent is made of.
//! - `mocks`: `mockall` mocks of every public trait (feature `mocks`).

#[cfg(feature = "runner")]
mod conductor;

mod pace;

mod arguments;

mod script;

mod effects;

mod spot;

pub mod faults;

mod tools;

mod names;

mod transcript;

#[cfg(feature = "runner")]
mod agent;

#[cfg(feature = "runner")]
pub mod scenario;

#[cfg(feature = "runner")]
pub mod ordeal;

pub mod sim;

#[cfg(feature = "server")]
pub mod server;

pub mod conformance;

pub mod guide;

#[cfg(feature = "mocks")]
pub mod mocks;

#[cfg(feature = "runner")]
pub use agent::{AgentRun, AgentTest, agent, agent_on};
pub use arguments::arguments;
pub use effects::Effects;
pub use names::Names;
#[cfg(feature = "runner")]
pub use ordeal::{crash_at_every_write, cut_at_every_event};
pub use script::{Script, ScriptedProvider, Stream, script, zero_script};
pub use settled_ledger::check::{Breach, check_events, check_log, check_request};
pub use tools::{CallCounts, Permission, ScriptedTools, ToolRun, reconciled, tools};
pub use transcript::Transcript;

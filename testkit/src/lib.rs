//! Scripted providers and tools, faults, crash points, scenarios and conformance suites for agents.

mod conductor;

mod script;

mod tools;

mod names;

mod transcript;

#[cfg(feature = "runner")]
pub mod scenario;

pub mod conformance;

pub use names::Names;
pub use script::{Script, ScriptedProvider, Stream, script};
pub use tools::{CallCounts, Permission, ScriptedTools, ToolRun, reconciled, tools};
pub use transcript::Transcript;

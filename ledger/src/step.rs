//! The step ledger: the owner of all evidence of one attempt at a step.
//!
//! It records what cannot be recomputed and derives the rest.
//! Its methods are of three kinds:
//!
//! - **admit**: what arrived. Each returns the durable events that it owes; they go to the session's writer, in order, before the ledger is touched again.
//! - **ask**: what follows from the evidence, on `&self`.
//! - **settle**: transitions at the end of a step that return the events they owe.
//!
//! The ledger never waits, reads no clock, makes no id.

mod evidence;

mod exchange;

mod admit;

mod ask;

mod settle;

mod restore;

mod failed;

use std::sync::Arc;

use settled_provider_api::{Finish, ProviderError, ToolDefinition};
use settled_tools_api::{MessageId, SessionId};

use self::evidence::{Block, Call};
pub use self::evidence::{CarriedCall, Failure, PersonsAnswer, Stage};
pub use self::exchange::{
    Admission, Delta, DeltaKind, Events, Release, StepEnd, StreamExit, ToolOutcome, ToolUse, ToolsExit, Unsettled,
};
use crate::{ExitKind, InterruptedBy};

/// All evidence of one attempt at a step.
#[derive(Clone, Debug)]
pub struct StepLedger {
    session: SessionId,
    message: MessageId,
    tools: Arc<[ToolDefinition]>,
    tool_use: ToolUse,
    /// The stream's blocks, by the provider's index.
    blocks: Vec<Block>,
    /// The step's calls, by ordinal.
    calls: Vec<Call>,
    /// Hosted calls that an earlier, paused step left open.
    carried: Vec<CarriedCall>,
    held: Option<ProviderError>,
    /// The failure that was recorded first.
    failure: Option<Failure>,
    /// Whether an error in the stream, a violation or a released overflow broke the answer.
    broken: bool,
    finish: Option<Finish>,
    interrupt: Option<InterruptedBy>,
    stream: Option<ExitKind>,
    tools_exit: Option<ToolsExit>,
    terminal: bool,
}

/// Making a ledger.
impl StepLedger {
    /// A ledger without evidence.
    pub fn new(session: SessionId, message: MessageId, tools: Arc<[ToolDefinition]>, tool_use: ToolUse) -> Self {
        Self {
            session,
            message,
            tools,
            tool_use,
            blocks: Vec::new(),
            calls: Vec::new(),
            carried: Vec::new(),
            held: None,
            failure: None,
            broken: false,
            finish: None,
            interrupt: None,
            stream: None,
            tools_exit: None,
            terminal: false,
        }
    }

    /// The same ledger, with hosted calls that an earlier, paused step left open.
    #[must_use]
    pub fn carrying(mut self, carried: Vec<CarriedCall>) -> Self {
        self.carried = carried;
        self
    }
}

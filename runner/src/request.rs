//! Putting a request together from the session's history.

use std::sync::Arc;

use settled_ledger::{FailureClass, Instructions, StepError};
use settled_provider_api::{Message, ModelInfo, ModelRef, Purpose, Request, ToolChoice};
use settled_tools_api::{MessageId, ToolDefinition};

use crate::compaction::context_size;
use crate::drain::Drain;
use crate::settings::Agent;

/// What the model is told in the final step of an allowance.
const LAST_STEP: &str = "This is the last step before the limit on steps: tools are off. Say what was done, what is left to do, and what you suggest next.";

/// What the model is told when it is asked to go on from its own complete answer.
const GO_ON: &str = "Go on.";

/// The request for an attempt at a step.
pub(crate) fn for_step(
    drain: &mut Drain,
    message: MessageId,
    attempt: u32,
    agent: &Agent,
    tools: Arc<[ToolDefinition]>,
    last: bool,
) -> Result<Request, StepError> {
    let model = drain.model_ref()?;
    let info = Arc::clone(&drain.shop.model(&model)?.info);
    let mut messages = drain.lowering.update(&drain.fold.history, &model, &info.capabilities).to_vec();
    if last && !drain.lowering.has_open_hosted() {
        // In a role that the model allows, and behind everything else, so that the prefix stays what it was.
        let notice = if info.capabilities.assistant_last {
            Message::assistant(LAST_STEP)
        } else if info.capabilities.system_in_middle {
            Message::System(LAST_STEP.to_owned())
        } else {
            Message::user(LAST_STEP)
        };
        messages.push(Arc::new(notice));
    } else if !last && drain.lowering.wants_a_user() && (messages.is_empty() || !info.capabilities.assistant_last) {
        messages.push(Arc::new(Message::user(GO_ON)));
    }
    let purpose = Purpose::step(drain.session.clone(), message).attempt(attempt);
    let mut request = base(model, purpose, agent, drain.fold.history.instructions(), tools);
    request.messages = messages;
    request.tool_choice = if last { ToolChoice::None } else { ToolChoice::Auto };
    request.max_output = room(drain, &info);
    Ok(request)
}

/// The most tokens that an answer may have: the model's limit, fitted to the room that the context leaves.
///
/// The size of the context is partly an estimate, so some room is always asked for: whether it is there, the provider knows.
fn room(drain: &Drain, info: &ModelInfo) -> Option<u64> {
    const LEAST: u64 = 1_024;
    let left = info.context.map(|context| context.saturating_sub(context_size(drain)).max(LEAST));
    info.output.map(|output| output.min(left.unwrap_or(output)))
}

/// A request without messages: the prefix that every request of a session shares.
pub(crate) fn base(
    model: ModelRef,
    purpose: Purpose,
    agent: &Agent,
    instructions: &Instructions,
    tools: Arc<[ToolDefinition]>,
) -> Request {
    let mut request = Request::new(model, purpose);
    let parts = agent.system.iter().map(String::as_str).chain(instructions.standing());
    request.system = parts.filter(|part| !part.trim().is_empty()).map(Arc::from).collect();
    request.tools = tools;
    request.options = Arc::new(agent.options.clone());
    request
}

impl Drain {
    /// The model that the session asks.
    pub(crate) fn model_ref(&self) -> Result<ModelRef, StepError> {
        self.fold.model.clone().ok_or_else(|| StepError::new(FailureClass::Configuration, "the session has no model"))
    }
}

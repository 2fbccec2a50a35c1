//! The agent that is killed: a model that streams and calls, and tools that act.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use serde_json::{Value, json};
use settled_provider_api::{ErrorClass, Message, Provider, ProviderError, ProviderStream, Request, RequestKind};
use settled_testkit::{Stream, script};
use settled_tools_api::{
    Reconciled, Reconciler, Replay, ReplayClass, ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor,
    ToolOutput, ToolReturn,
};

use crate::effects::Effects;
use crate::witness::Witness;

/// How fast the model and its tools are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// They pause for a millisecond or a few.
    Brisk,
    /// They never pause.
    Flat,
}

/// A model whose answers follow from the session's name and the length of its history alone.
pub(crate) struct Model {
    pub(crate) pace: Pace,
    pub(crate) witness: Witness,
}

/// After how many answers of an execution the model is content.
const STEPS: usize = 4;

#[async_trait]
impl Provider for Model {
    async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        let mut rng = Rng::with_seed(crate::witness::hash(&(request.purpose.session.as_str(), request.messages.len())));
        let asked = |message: &Arc<Message>| matches!(message.as_ref(), Message::User(_));
        let since = request.messages.iter().rev().take_while(|message| !asked(message));
        let answers = since.filter(|message| matches!(message.as_ref(), Message::Assistant(_))).count();
        let cuts = request.purpose.attempt == 1 && self.pace == Pace::Brisk && rng.u8(..20) == 0;
        let write = |mut stream: Stream| {
            stream = self.speaks(stream.start(), &mut rng);
            let content = request.purpose.kind == RequestKind::Summary || answers >= rng.usize(1..STEPS);
            if !content {
                for number in 0..rng.usize(1..=4) {
                    let name = rng.choice(request.tools.iter()).map_or("charge", |tool| tool.name.as_str());
                    let most = if self.pace == Pace::Brisk { 5 } else { 0 };
                    let input = json!({"before": rng.u64(0..=most), "after": rng.u64(0..=most)});
                    stream = self.pauses(stream.call_as(format!("{name}-{number}"), name, input), &mut rng);
                }
            }
            match cuts {
                true => stream.throw(ProviderError::new(ErrorClass::Transport, "the line broke")),
                false => stream.finish(),
            }
        };
        let provider = script().step(write).provider();
        let stream = provider.stream(Arc::clone(&request)).await;
        provider.faults().iter().for_each(|fault| self.witness.says(&format!("fault {fault}")));
        stream
    }
}

impl Model {
    fn speaks(&self, mut stream: Stream, rng: &mut Rng) -> Stream {
        stream = self.pauses(stream.reasoning_start("r").reasoning_delta("r", "Let me see. "), rng);
        stream = self.pauses(stream.reasoning_end("r", None).text_start("t"), rng);
        for word in ["I ", "look ", "at ", "it, ", "and ", "act."] {
            stream = self.pauses(stream.text_delta("t", word), rng);
        }
        stream.text_end("t", None)
    }

    fn pauses(&self, stream: Stream, rng: &mut Rng) -> Stream {
        match self.pace {
            Pace::Flat => stream,
            Pace::Brisk => stream.wait(rng.u64(0..=2)),
        }
    }
}

/// The tools, and what each says about running again.
pub(crate) const TOOLS: [(&str, Class); 5] = [
    ("charge", Class::AtMostOnce),
    ("pay_alone", Class::AtMostOnce),
    ("look", Class::Pure),
    ("put", Class::Idempotent),
    ("transfer", Class::Reconcile),
];

/// A tool's replay class, as this suite needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    AtMostOnce,
    Pure,
    Idempotent,
    Reconcile,
}

impl Class {
    /// The class as a log records it.
    pub(crate) fn of(recorded: ReplayClass) -> Self {
        match recorded {
            ReplayClass::Pure => Self::Pure,
            ReplayClass::Idempotent { .. } => Self::Idempotent,
            ReplayClass::Reconcile => Self::Reconcile,
            _ => Self::AtMostOnce,
        }
    }

    /// Whether a call may act more than once.
    pub(crate) fn may_repeat(self) -> bool {
        matches!(self, Self::Pure | Self::Idempotent)
    }
}

/// Tools that wait, act on the world, wait again, and say that they have acted.
pub(crate) struct Tools {
    /// How many of [`TOOLS`] there are, from the first.
    pub(crate) number: usize,
    pub(crate) effects: Effects,
    pub(crate) witness: Witness,
}

#[async_trait]
impl ToolExecutor for Tools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let schema =
            json!({"type": "object", "properties": {"before": {"type": "integer"}, "after": {"type": "integer"}}});
        let define = |(name, class): (&str, Class)| {
            let definition = ToolDefinition::new(name, "Acts once on the world.", schema.clone());
            let definition = match class {
                Class::AtMostOnce => definition,
                Class::Pure => definition.replay(Replay::Pure),
                Class::Idempotent => definition.replay(Replay::Idempotent { valid_for: Duration::from_secs(86_400) }),
                Class::Reconcile => definition.replay(Replay::Reconcile(Arc::new(LookUp(self.effects.clone())))),
            };
            if name == "pay_alone" { definition.exclusive() } else { definition }
        };
        TOOLS.into_iter().take(self.number).map(define).collect()
    }

    async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError> {
        let key = context.effect_key();
        self.witness.says(&format!("run {key}"));
        pause(&call.input["before"]).await;
        if context.cancel().is_cancelled() {
            return Err(ToolError::failed("stopped before it acted"));
        }
        self.effects.act(key).map_err(|error| ToolError::infra(error.to_string()))?;
        pause(&call.input["after"]).await;
        Ok(ToolReturn::text("acted"))
    }
}

async fn pause(millis: &Value) {
    match millis.as_u64() {
        None | Some(0) => {}
        Some(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
    }
}

/// Looks up in the world whether a call has acted.
///
/// It is only right while whoever started the call is dead for certain.
struct LookUp(Effects);

#[async_trait]
impl Reconciler for LookUp {
    async fn reconcile(&self, _: &ToolCall, context: &ToolContext) -> Reconciled {
        match self.0.counts() {
            Ok(counts) if counts.contains_key(context.effect_key().as_str()) => {
                Reconciled::Happened(ToolOutput::text("it had acted"))
            }
            Ok(_) => Reconciled::DidNot,
            Err(_) => Reconciled::CannotTell,
        }
    }
}

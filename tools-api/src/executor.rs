//! The contracts: a set of tools, a changing set, and a reconciler.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::{Content, SessionId, ToolContext, ToolDefinition, ToolOutput};

/// A fixed set of tools.
///
/// # Contract
///
/// - The set does not change while the value lives; a set that changes is a [`ToolSource`].
/// - The runner calls [`execute`](Self::execute) only with a name from [`definitions`](Self::definitions), only with input that fits the definition's schema, and only after the start of the call is durable.
/// - Several runs may be under way at once, in one session and in many.
/// - A call is started at most once, unless the definition's replay class says that it may run again.
///
/// # Wrappers
///
/// Forward every method; there are none with defaults.
#[async_trait]
pub trait ToolExecutor: Send + Sync {
    /// The tools of this set.
    ///
    /// Called at least once for each request; cheap, and always the same answer.
    fn definitions(&self) -> Vec<ToolDefinition>;

    /// Runs one call.
    ///
    /// - *May fail* with a [`ToolError`]; which one decides what becomes of the step.
    ///   A panic fails this call alone.
    /// - *Cancelling*: when [`ToolContext::cancel`] fires, stop and return soon; what is returned then is dropped unless it is an answer.
    ///   After the runner's grace the future is dropped at its next await.
    ///   A thread that the tool blocks cannot be stopped: it is reported as leaked.
    async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError>;
}

/// A set of tools that may change between requests: a registry, a server that is asked.
///
/// # Contract
///
/// - [`offer`](Self::offer) is called once for each request; what it returns is what the model is shown and what runs, also when the source has changed by then.
/// - It may wait; the wait races the session's interrupt and may be dropped at any await.
#[async_trait]
pub trait ToolSource: Send + Sync {
    /// The tools of one request.
    ///
    /// *May fail* when the source cannot be reached: the step then fails before its request is sent.
    async fn offer(&self, to: &OfferTo) -> Result<Arc<dyn ToolExecutor>, Box<dyn Error + Send + Sync>>;
}

/// For whom a [`ToolSource`] makes its offer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OfferTo {
    /// The session.
    pub session: SessionId,
    /// The session's tags.
    pub tags: Arc<BTreeMap<String, String>>,
}

impl OfferTo {
    /// An offer to a session.
    pub fn new(session: SessionId, tags: Arc<BTreeMap<String, String>>) -> Self {
        Self { session, tags }
    }
}

/// One call as it is run.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolCall {
    /// The tool's name, one of the set's.
    pub name: String,
    /// The input: it fits the tool's schema.
    pub input: Value,
    /// The person's answer, when this run goes on from a [`ToolReturn::Ask`].
    pub answered: Option<Answered>,
}

impl ToolCall {
    /// A first run of a tool.
    pub fn new(name: impl Into<String>, input: Value) -> Self {
        Self { name: name.into(), input, answered: None }
    }

    /// The run that goes on from a question.
    #[must_use]
    pub fn answered(mut self, state: Value, answer: impl Into<String>) -> Self {
        self.answered = Some(Answered { state, answer: answer.into() });
        self
    }
}

/// A question's state and what the person said.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answered {
    /// The state that the tool gave with its question.
    pub state: Value,
    /// The person's answer.
    pub answer: String,
}

/// What a run ends with when it did not fail.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "tools construct it and the runner must see every kind")]
pub enum ToolReturn {
    /// The result.
    Output(ToolOutput),
    /// A question to a person: the call waits, across restarts, and is run again with the answer, under the same effect key.
    Ask(Ask),
}

impl ToolReturn {
    /// A result of one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Output(ToolOutput::text(text))
    }

    /// A result of one JSON value, as compact text.
    pub fn json(value: &Value) -> Self {
        Self::text(value.to_string())
    }

    /// A question to a person, with state for the run that goes on.
    pub fn ask(question: impl Into<String>, state: Value) -> Self {
        Self::Ask(Ask { question: question.into(), state })
    }
}

impl From<ToolOutput> for ToolReturn {
    fn from(output: ToolOutput) -> Self {
        Self::Output(output)
    }
}

/// A question that a tool asks a person.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ask {
    /// The question, for the person.
    pub question: String,
    /// What the tool needs to go on; it is stored with the question.
    pub state: Value,
}

/// How a run failed.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "tools construct it and the runner must decide on every kind")]
pub enum ToolError {
    /// The tool's own answer is a failure; the model sees it and the step goes on.
    Failed(ToolOutput),
    /// The tool does not know whether it has acted: a reply was lost after the request went out.
    Unknown(ToolOutput),
    /// A person refused the call while it ran; with feedback the model sees it and goes on, without it the step stops.
    Declined {
        /// What the person said about it.
        feedback: Option<String>,
    },
    /// A person closed the tool's question unanswered; the step stops.
    Dismissed,
    /// The *host's* machinery broke: its disk, its process table.
    /// A service that the tool talks to is not the host's machinery: that is [`Failed`](Self::Failed).
    Infra(InfraError),
}

impl ToolError {
    /// A failure with a text for the model.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(ToolOutput::text(text))
    }

    /// An outcome that the tool does not know, with a text for the model.
    pub fn unknown(text: impl Into<String>) -> Self {
        Self::Unknown(ToolOutput::text(text))
    }

    /// A breakdown of the host's machinery.
    pub fn infra(message: impl Into<String>) -> Self {
        Self::Infra(InfraError { message: message.into() })
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(output) => write!(f, "the tool failed: {}", output.joined_text()),
            Self::Unknown(output) => write!(f, "the tool does not know whether it acted: {}", output.joined_text()),
            Self::Declined { feedback: Some(feedback) } => write!(f, "declined: {feedback}"),
            Self::Declined { feedback: None } => f.write_str("declined"),
            Self::Dismissed => f.write_str("the question was closed unanswered"),
            Self::Infra(cause) => write!(f, "the host's machinery broke: {cause}"),
        }
    }
}

impl Error for ToolError {}

/// A breakdown of the host's machinery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InfraError {
    /// What broke.
    pub message: String,
}

impl fmt::Display for InfraError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for InfraError {}

/// Says what became of a call whose result was lost.
///
/// # Contract
///
/// It is asked at the start of a drain, before any input, for a call that was started and has no result.
/// It must not act itself.
/// Answering [`Reconciled::StillRunning`] makes the runner ask again, a bounded number of times.
/// Its wait races the session's interrupt and may be dropped at any await.
#[async_trait]
pub trait Reconciler: Send + Sync {
    /// Looks up a call by its effect key; the context carries the notes that the run left.
    async fn reconcile(&self, call: &ToolCall, context: &ToolContext) -> Reconciled;
}

/// What a [`Reconciler`] found.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::exhaustive_enums, reason = "reconcilers construct it and the runner must decide on every kind")]
pub enum Reconciled {
    /// It happened; this is its result.
    Happened(ToolOutput),
    /// It did not happen: it is run again under the same effect key.
    DidNot,
    /// It is still under way.
    StillRunning,
    /// There is no telling.
    CannotTell,
}

/// What is left of a call's content when the tool gave none.
///
/// Some providers refuse an empty result.
pub(crate) const NO_OUTPUT: &str = "(no output)";

/// Content that is never empty: blank content becomes the text `(no output)`.
pub fn never_empty(content: Vec<Content>) -> Vec<Content> {
    let blank = content.iter().all(|piece| piece.as_text().is_some_and(|text| text.trim().is_empty()));
    if blank { vec![Content::text(NO_OUTPUT)] } else { content }
}

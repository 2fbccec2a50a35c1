//! Optional ports of a runner: where large outputs and files snapshots go.

use std::error::Error;

use async_trait::async_trait;
use serde_json::Value;
use settled_tools_api::{CallKey, MessageId, SessionId};

/// Keeps what was left out of a tool's output.
///
/// Deleting what it keeps changes nothing but what a person can look up.
#[async_trait]
pub trait Outputs: Send + Sync {
    /// Keeps a call's whole output and says where; `None` if it keeps none.
    ///
    /// *May fail*: the bounded output is delivered all the same, marked lossy.
    async fn keep(&self, call: CallKey, text: String) -> Result<Option<String>, Box<dyn Error + Send + Sync>>;
}

/// Keeps nothing.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct NoOutputs;

#[async_trait]
impl Outputs for NoOutputs {
    async fn keep(&self, _: CallKey, _: String) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        Ok(None)
    }
}

/// Watches the files that steps change.
///
/// A failure here never fails a step.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// What the files are like before a step.
    async fn before(&self, session: &SessionId, step: MessageId) -> Result<Value, Box<dyn Error + Send + Sync>>;

    /// What a step has changed, given what was there before it.
    async fn after(
        &self,
        session: &SessionId,
        step: MessageId,
        before: Value,
    ) -> Result<Value, Box<dyn Error + Send + Sync>>;
}

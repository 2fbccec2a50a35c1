//! Who decides whether a call may run.

use async_trait::async_trait;
use serde_json::Value;

use crate::{CallKey, EffectKey, SessionId};

/// Decides about each local call before it starts.
///
/// # Contract
///
/// - It is asked once a call, after the input was found to fit the schema, and before the call starts; once more when a call is found that had been called but not started.
/// - It may wait; the wait races the session's interrupt and may be dropped at any await.
/// - It must not act: its answer is what counts.
#[async_trait]
pub trait Policy: Send + Sync {
    /// Decides about one call.
    async fn decide(&self, call: &PolicyCall) -> Decision;
}

/// The call that a [`Policy`] decides about.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PolicyCall {
    /// The session.
    pub session: SessionId,
    /// The call.
    pub call: CallKey,
    /// The stable name of its side effect.
    pub effect_key: EffectKey,
    /// The tool's name.
    pub name: String,
    /// The input; it fits the tool's schema.
    pub input: Value,
}

impl PolicyCall {
    /// A call to decide about.
    pub fn new(session: SessionId, call: CallKey, effect_key: EffectKey, name: String, input: Value) -> Self {
        Self { session, call, effect_key, name, input }
    }
}

/// What a [`Policy`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "policies construct it and the runner must act on every kind")]
pub enum Decision {
    /// Run it.
    Allow,
    /// Ask a person first, with this question.
    Ask(String),
    /// Refuse it; the model is told the rule's name.
    Deny {
        /// The rule that refuses.
        rule: String,
    },
}

/// The policy that allows every call.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct AllowAll;

#[async_trait]
impl Policy for AllowAll {
    async fn decide(&self, _: &PolicyCall) -> Decision {
        Decision::Allow
    }
}

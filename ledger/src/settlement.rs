//! The one classification of a step.

use serde::{Deserialize, Serialize};

/// How a step settled: classified once, most disruptive first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "class")]
#[expect(
    clippy::exhaustive_enums,
    reason = "the classification is total: a fifth class would change what every runner must do"
)]
pub enum Settlement {
    /// It was stopped: from outside, by a person who refused a call, or from inside a tool.
    Interrupted {
        /// Whether a person closed a question unanswered.
        question_dismissed: bool,
    },
    /// The provider did not give a complete, acceptable answer.
    ProviderFailed,
    /// The host's machinery broke under a tool.
    ToolInfraFailed {
        /// What broke.
        cause: InfraCause,
    },
    /// Nothing of these.
    Clean,
}

impl Settlement {
    /// The class as scenarios and timelines name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Interrupted { .. } => "interrupted",
            Self::ProviderFailed => "provider_failed",
            Self::ToolInfraFailed { .. } => "tool_infra_failed",
            Self::Clean => "clean",
        }
    }

    /// Whether a person closed a question unanswered.
    pub fn question_dismissed(&self) -> bool {
        matches!(self, Self::Interrupted { question_dismissed: true })
    }
}

/// What broke under a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct InfraCause {
    /// What the tool's host said.
    pub message: String,
}

impl InfraCause {
    /// A breakdown in words.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

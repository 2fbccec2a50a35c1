//! The failures of calls, as events.

use serde_json::Value;
use settled_tools_api::{CallKey, Content};

use super::Failure;
use crate::event::*;
use crate::{InfraCause, words};

pub(super) fn infra_failure(cause: &InfraCause) -> Failure {
    Failure::Other(StepError::new(FailureClass::Infra, cause.message.clone()))
}

/// A call's failure in our words.
pub(super) fn failed_with(key: CallKey, cause: FailureCause, why: &str) -> ToolFailed {
    failed(key, cause, words::failure(cause, why, false))
}

/// The failure of a call that gave no answer of its own.
pub(super) fn unanswered(key: CallKey, cause: FailureCause, why: &str, may_have_acted: bool) -> ToolFailed {
    ToolFailed { may_have_acted, ..failed(key, cause, words::failure(cause, why, may_have_acted)) }
}

pub(super) fn bad_arguments(key: CallKey, detail: ArgumentsFault, why: &str) -> ToolFailed {
    ToolFailed { detail: Some(detail), ..failed_with(key, FailureCause::InvalidArguments, why) }
}

pub(super) fn failed(key: CallKey, cause: FailureCause, content: Vec<Content>) -> ToolFailed {
    ToolFailed {
        message: key.step,
        call: key.ordinal,
        cause,
        detail: None,
        may_have_acted: false,
        content,
        metadata: None,
        bounded: None,
        state: None,
    }
}

impl ToolFailed {
    pub(super) fn with_metadata(mut self, metadata: Option<Value>) -> Self {
        self.metadata = metadata;
        self
    }
}

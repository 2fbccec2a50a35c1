//! Live events: what is shown while it happens and never stored.

use serde_json::Value;
use settled_tools_api::{CallKey, MessageId};

use crate::{Delta, DeltaKind, Piece};

/// Something that is shown while it happens; a reader may miss it, and the log has the whole later.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum LiveEvent {
    /// A piece of an open block.
    Delta(LiveDelta),
    /// A running tool shows progress.
    ToolProgress {
        /// The call.
        call: CallKey,
        /// What it shows.
        progress: Value,
    },
    /// A piece of a summary.
    CompactionDelta {
        /// The piece.
        text: Piece,
    },
}

/// A piece of an open block of a step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LiveDelta {
    /// The step.
    pub message: MessageId,
    /// What kind of block.
    pub kind: DeltaKind,
    /// The block's ordinal of its kind; for arguments, the call's.
    pub ordinal: u32,
    /// How many bytes of the block came before.
    pub offset: u64,
    /// The piece.
    pub text: Piece,
}

impl LiveDelta {
    /// A piece of a step.
    pub fn new(message: MessageId, delta: Delta<'_>) -> Self {
        Self { message, kind: delta.kind, ordinal: delta.ordinal, offset: delta.offset, text: delta.text.into() }
    }
}

impl LiveDelta {
    /// All that has come of a block so far.
    pub fn so_far(message: MessageId, kind: DeltaKind, ordinal: u32, text: &str) -> Self {
        Self { message, kind, ordinal, offset: 0, text: text.into() }
    }
}

impl LiveEvent {
    /// The kind of event: `text.delta`, `tool.progress`, ….
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Delta(delta) => match delta.kind {
                DeltaKind::Text => "text.delta",
                DeltaKind::Reasoning => "reasoning.delta",
                DeltaKind::ToolInput => "tool.input.delta",
            },
            Self::ToolProgress { .. } => "tool.progress",
            Self::CompactionDelta { .. } => "compaction.delta",
        }
    }
}

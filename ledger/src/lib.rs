//! All evidence of an agent's step, pure; durable events, history, and the contracts of a store.

mod ports;

mod event;

mod record;

mod inbox;

mod settlement;

mod key;

mod step;

pub mod violation;

mod words;

pub mod history;

mod fold;

mod lower;

mod live;

pub mod store;

pub mod check;

pub use event::*;
pub use fold::*;
pub use history::History;
pub use inbox::*;
pub use key::{arguments_hash, effect_key};
pub use live::{LiveDelta, LiveEvent};
pub use lower::{Lowering, estimate_tokens};
pub use ports::{BatchId, Clock, ExecutionId, Ids, InputId, Seq, Timestamp, WorkerId};
pub use record::{DecodeError, EncodeError, NewRow, Recorded};
pub use settlement::{InfraCause, Settlement};
pub use step::*;

//! Runs the steps of an LLM agent so that every step settles.

mod runner;

mod session;

mod settings;

mod follow;

mod worker;

mod drain;

mod sweep;

mod step;

mod stream;

mod tools;

mod schema;

mod bound;

mod retry;

mod compaction;

mod request;

mod writer;

mod inbox;

mod live;

mod guard;

mod shop;

mod outputs;

mod clock;

mod error;

pub use clock::{RandomIds, SystemClock};
pub use error::Error;
pub use follow::{Follow, SessionEvent};
pub use live::Snapshot;
pub use outputs::{NoOutputs, Outputs, Snapshots};
pub use runner::{Builder, Runner};
pub use session::{Input, Interrupted, Session, Settled, Waiting};
pub use settings::{Agent, CompactionSettings, OutputSettings, RetrySettings, Settings};
pub use worker::Serving;

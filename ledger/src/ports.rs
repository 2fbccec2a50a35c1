//! Time and ids as ports: whoever runs the ledger hands them in.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use settled_tools_api::id_type;

/// A moment on the wall clock, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// A moment, in milliseconds since 1970.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// The milliseconds since 1970.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The moment this long after; it never wraps.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The time from an earlier moment to this one; zero if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Where wall-clock stamps come from.
///
/// It is asked for stamps alone; nothing waits on it.
pub trait Clock: Send + Sync {
    /// The time now; it may repeat, and it should not go back.
    fn now(&self) -> Timestamp;
}

/// Where new ids come from.
///
/// Each call gives bits that no other call gives, in this process or another; growing with time is good for stores.
pub trait Ids: Send + Sync {
    /// The next 128 bits.
    fn next(&self) -> u128;
}

id_type! {
    /// The id of one input that was admitted.
    InputId, "in"
}

id_type! {
    /// The id of one execution: a session's busy period.
    ExecutionId, "exe"
}

id_type! {
    /// The id of one batch: appending it again under the same id lands once.
    BatchId, "bat"
}

id_type! {
    /// The id of one worker: a process that owns sessions.
    WorkerId, "wrk"
}

/// A place in a session's log: the first event has 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(u64);

impl Seq {
    /// The place before the first event: the head of an empty log.
    pub const START: Self = Self(0);

    /// A place by its number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of this place.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The place this many events later.
    #[must_use]
    pub const fn plus(self, events: u64) -> Self {
        Self(self.0.saturating_add(events))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

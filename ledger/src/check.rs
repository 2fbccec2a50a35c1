//! The checker: what every log and every request must satisfy, as pure functions.
//!
//! [`check_log`] takes a session's whole log, or any prefix of it: what is still open is no breach.
//! [`check_request`] takes a request as it goes to a provider.
//! Both give every breach that they find, in order, and none for a log or a request that is sound.
//!
//! A log alone cannot show everything: that input was not lost needs the inbox, and that provider state goes back only to its model needs the history.

mod log;

mod request;

use std::fmt;

pub use self::log::{Limits, LogChecker, check_events, check_log};
pub use self::request::check_request;
use crate::Seq;

macro_rules! invariants {
    ($($(#[$doc:meta])* $invariant:ident: $says:literal,)*) => {
        /// One of the promises that every session keeps.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Invariant {
            $($(#[$doc])* $invariant,)*
        }

        impl Invariant {
            /// Every invariant.
            pub const ALL: &'static [Self] = &[$(Self::$invariant,)*];

            /// Its name: `I1`, ….
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$invariant => stringify!($invariant),)*
                }
            }

            /// What it promises, in a few words.
            pub fn says(self) -> &'static str {
                match self {
                    $(Self::$invariant => $says,)*
                }
            }
        }
    };
}

invariants! {
    /// Every call has one outcome once its step has settled, and its events come in their order.
    I1: "every call has one outcome, and its events are in order",
    /// A call is started at most once unless its tool allows more, and none starts that must not.
    I2: "a call starts at most once, and only where it may",
    /// Every request is well-formed.
    I3: "every request is well-formed",
    /// A step has one terminal, its last event, and ends only where it is clean.
    I4: "a step has one terminal, last, and ends only where it is clean",
    /// Input is promoted once.
    I5: "input is promoted once",
    /// Only what is recorded counts, and two answers are never spliced.
    I6: "only recorded facts count, and answers are never spliced",
    /// Everything ends.
    I7: "everything ends",
    /// After an interrupt nothing new begins.
    I8: "after an interrupt nothing new begins",
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An invariant that does not hold, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Breach {
    /// The invariant.
    pub invariant: Invariant,
    /// The event at which it shows; `None` for a request.
    pub seq: Option<Seq>,
    /// What is wrong, with the step, call or message that it is about.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { invariant, seq, what } = self;
        write!(f, "{invariant} ({}) is broken", invariant.says())?;
        if let Some(seq) = seq {
            write!(f, " at event {seq}")?;
        }
        write!(f, ": {what}")
    }
}

impl std::error::Error for Breach {}

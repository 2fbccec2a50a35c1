//! Breaches of the stream protocol by a provider or its adapter, and what each one leads to.
//!
//! A violation is evidence like any other: it never panics.
//! Where the policy is [`Policy::Breaks`], reading stops, the step settles as `ProviderFailed` with `invalid_output`, and the error names the rule.
//! Where it is [`Policy::Tolerated`], the event changes nothing.
//!
//! | rule | what came | policy |
//! |---|---|---|
//! | `block_reopened` | a start for a block that was started before | breaks |
//! | `delta_without_block` | a piece for a block that is not open, or is of another kind | breaks |
//! | `end_without_block` | an end for a block that was never open, or is of another kind | breaks |
//! | `end_twice` | a second end for a block or for a call's arguments | tolerated |
//! | `name_changed` | a call whose name differs from the name it began with | breaks |
//! | `call_twice` | a second call in one block | breaks |
//! | `malformed_after_call` | malformed arguments for a call that was complete | breaks |
//! | `result_without_call` | a hosted result for a call that was not made, or not yet | breaks |
//! | `result_twice` | a second success for a hosted call | breaks |
//! | `error_after_result` | an error for a hosted call that has its outcome | tolerated |
//! | `finish_changed` | a second finish with another reason | breaks |
//! | `finish_repeated` | a second finish with the same reason | tolerated; what the first left out is filled in, and a later usage counts |
//! | `too_many_blocks` | a block index of 65,536 or more | breaks |
//!
//! Several open blocks at once, a call without streamed arguments, a call while its arguments are open, a missing or repeated step start, content after a finish, and a finish while blocks are open are all legal.

use std::fmt;

/// What a rule's breach leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a breach is tolerated or it is not")]
pub enum Policy {
    /// The event changes nothing.
    Tolerated,
    /// Reading stops and the step fails.
    Breaks,
}

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident = $name:literal, $policy:ident;)*) => {
        /// A rule of the stream protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Rule {
            $($(#[$doc])* $rule,)*
        }

        impl Rule {
            /// Every rule.
            pub const ALL: &'static [Self] = &[$(Self::$rule,)*];

            /// The rule's name in errors.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$rule => $name,)*
                }
            }

            /// What its breach leads to.
            pub fn policy(self) -> Policy {
                match self {
                    $(Self::$rule => Policy::$policy,)*
                }
            }
        }
    };
}

rules! {
    /// A start for a block that was started before.
    BlockReopened = "block_reopened", Breaks;
    /// A piece for a block that is not open.
    DeltaWithoutBlock = "delta_without_block", Breaks;
    /// An end for a block that was never open.
    EndWithoutBlock = "end_without_block", Breaks;
    /// A second end.
    EndTwice = "end_twice", Tolerated;
    /// A call whose name differs from the name it began with.
    NameChanged = "name_changed", Breaks;
    /// A second call in one block.
    CallTwice = "call_twice", Breaks;
    /// Malformed arguments for a call that was complete.
    MalformedAfterCall = "malformed_after_call", Breaks;
    /// A hosted result for a call that was not made.
    ResultWithoutCall = "result_without_call", Breaks;
    /// A second success for a hosted call.
    ResultTwice = "result_twice", Breaks;
    /// An error for a hosted call that has its outcome.
    ErrorAfterResult = "error_after_result", Tolerated;
    /// A second finish with another reason.
    FinishChanged = "finish_changed", Breaks;
    /// A second finish with the same reason.
    FinishRepeated = "finish_repeated", Tolerated;
    /// A block index that is out of bounds.
    TooManyBlocks = "too_many_blocks", Breaks;
}

/// A breach of the stream protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// Which block or call it was about.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(rule: Rule, what: impl Into<String>) -> Self {
        Self { rule, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the provider broke the stream protocol, rule {}: {}", self.rule.name(), self.what)
    }
}

impl std::error::Error for Violation {}

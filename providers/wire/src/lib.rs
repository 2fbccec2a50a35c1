//! What adapters of model providers share: framing, error classification, retry advice, one HTTP shell.
//!
//! An adapter writes a [`Decoder`] (bytes in, events out, no I/O) and a lowering of requests to bodies; [`Http`] drives both.
//! The framings lend what they read: [`SseDecoder`], [`JsonLines`], [`JsonArray`].
//! A provider's failure, before or inside a stream, is read by [`ErrorBody`] and classified by rules that are data: [`Classifier`].
//!
//! ```
//! use settled_provider_api::ErrorClass;
//! use settled_provider_wire::{Classifier, ErrorBody};
//!
//! let body = ErrorBody::read(br#"{"error":{"message":"Slow down, please.","code":"rate_limit_exceeded"}}"#);
//! let found = Classifier::standard().classify("openai", Some(429), &body);
//! assert_eq!(found.class, ErrorClass::RateLimit);
//! ```

mod sse;

mod json;

mod decode;

mod http;

mod classify;

mod body;

mod retry;

mod frame;

pub use body::ErrorBody;
pub use classify::{Classified, Classifier, Rule, Rules, failed_response};
pub use decode::{BodyKind, Decoder, Tally, sniff};
pub use frame::{DEFAULT_LIMIT, Frame, FrameError, FrameErrorKind};
pub use http::{Authorization, Http, HttpBuilder, HttpRequest};
pub use json::{JsonArray, JsonLines};
pub use retry::{advice, wait_in_text};
pub use sse::{SseDecoder, SseEvent, SseItem};

/// Every trait of this crate can be a trait object: this compiles only while that is so.
#[expect(dead_code, reason = "it is checked by being compiled")]
fn object_safe(_: &dyn Decoder) {}

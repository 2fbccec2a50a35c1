//! What a wire's decoder is: bytes in, events out, no I/O.

use std::collections::{BTreeMap, VecDeque};

use settled_provider_api::{ProviderError, ProviderEvent};

/// Turns the bytes of one response body into events, without I/O: a recording replays at every split.
///
/// # Contract
///
/// - The events that a body gives do not depend on where its chunks are cut.
/// - What does not decode is an error of class `invalid_output`, never skipped; the events before it are delivered first.
/// - An error that the provider sent inside the body is an event, not an `Err`.
/// - A finish, a usage or the end of a call's arguments that the provider did not send is never invented.
/// - After an `Err`, or after [`finish`](Self::finish), it is not called again.
pub trait Decoder: Send {
    /// Takes the next bytes of the body and adds the events that they complete.
    ///
    /// # Errors
    ///
    /// What came does not decode.
    fn push(&mut self, bytes: &[u8], events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError>;

    /// Tells that the body has ended in order, and adds what was held back for its end.
    ///
    /// It is not called for a body that broke off in transport.
    ///
    /// # Errors
    ///
    /// What came does not decode.
    fn finish(&mut self, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError>;

    /// What was read without becoming an event.
    fn tally(&self) -> &Tally;
}

/// How many lines of a body became no event, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Lines that carry nothing for us, by the name of the reason.
    pub ignored: BTreeMap<&'static str, u64>,
    /// Lines that the decoder does not know: it fails at the first, but for those that a wire promises to add and asks to live with.
    pub unknown: u64,
}

impl Tally {
    /// Counts a line that is ignored for a reason.
    pub fn ignore(&mut self, reason: &'static str) {
        *self.ignored.entry(reason).or_default() += 1;
    }
}

/// What a body is by its first bytes, whatever its content type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyKind {
    /// A JSON object or array.
    Json,
    /// A page of markup.
    Markup,
    /// Anything else: lines of a stream, or plain text.
    Lines,
}

/// What a body is, by its first byte that is neither white space nor of a byte order mark; `None` while there is none.
pub fn sniff(bytes: &[u8]) -> Option<BodyKind> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    if MARK.starts_with(bytes) {
        return None;
    }
    let bytes = bytes.strip_prefix(MARK).unwrap_or(bytes);
    match bytes.trim_ascii_start().first()? {
        b'{' | b'[' => Some(BodyKind::Json),
        b'<' => Some(BodyKind::Markup),
        _ => Some(BodyKind::Lines),
    }
}

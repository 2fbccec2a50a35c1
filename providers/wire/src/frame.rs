//! What the framings share: the error, and the buffer that carries bytes from one chunk to the next.

use std::fmt;
use std::str::from_utf8;

use settled_provider_api::{ErrorClass, ProviderError};

/// The most bytes that one event, line or element may have where nothing else is said: 16 MiB.
pub const DEFAULT_LIMIT: usize = 16 * 1024 * 1024;

/// A body that does not follow its framing.
///
/// After it, the decoder gives nothing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameError {
    /// What is wrong.
    pub kind: FrameErrorKind,
    /// Where: the number of the byte in the body, from 0.
    pub offset: u64,
}

/// The ways in which a body does not follow its framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameErrorKind {
    /// The byte at the offset does not belong to UTF-8 text.
    NotUtf8,
    /// The event, line or element that begins at the offset is longer than the limit.
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The byte at the offset may not stand between two elements of an array.
    Misplaced {
        /// The byte.
        byte: u8,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, offset } = self;
        match kind {
            FrameErrorKind::NotUtf8 => write!(f, "byte {offset} of the body is not UTF-8"),
            FrameErrorKind::TooLarge { limit } => {
                write!(f, "what begins at byte {offset} of the body is longer than {limit} bytes")
            }
            FrameErrorKind::Misplaced { byte } => write!(
                f,
                "byte {offset} of the body is {:?}, which may not stand between two elements",
                char::from(*byte)
            ),
        }
    }
}

impl std::error::Error for FrameError {}

impl From<FrameError> for ProviderError {
    fn from(error: FrameError) -> Self {
        Self::new(ErrorClass::InvalidOutput, error.to_string())
    }
}

/// One line or element of JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame<'a> {
    /// The text.
    pub text: &'a str,
    /// The number of its first byte in the body.
    pub offset: u64,
    /// Whether the body ended inside it, or before what closes it.
    pub cut: bool,
}

/// A span of bytes, counted from the first byte that is still kept.
pub(crate) type Span = (usize, usize);

/// Bytes that are still needed.
///
/// They lie behind `start`; all spans count from there, so that moving them to the front changes no span.
#[derive(Debug, Default)]
pub(crate) struct Carry {
    buffer: Vec<u8>,
    start: usize,
    /// How many bytes at the front are given back before the next one is looked at.
    taken: usize,
    /// The offset in the body of the buffer's first byte.
    base: u64,
}

impl Carry {
    /// Adds a chunk; moves what is kept to the front only where the buffer would otherwise grow.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.release();
        if self.start == self.buffer.len() {
            self.base += self.start as u64;
            self.buffer.clear();
            self.start = 0;
        } else if self.start > 0 && self.buffer.len() + bytes.len() > self.buffer.capacity() {
            self.buffer.copy_within(self.start.., 0);
            self.buffer.truncate(self.buffer.len() - self.start);
            self.base += self.start as u64;
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Gives back what was taken.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.start += self.taken;
        self.taken = 0;
    }

    /// Takes bytes at the front; they stay readable until the next release.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) {
        self.taken = bytes;
    }

    /// The bytes that are kept.
    #[inline]
    pub(crate) fn kept(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// The offset in the body of a kept byte.
    pub(crate) fn offset(&self, at: usize) -> u64 {
        self.base + (self.start + at) as u64
    }

    /// A span as text.
    #[inline]
    pub(crate) fn text(&self, (from, to): Span) -> Result<&str, FrameError> {
        let bytes = self.kept().get(from..to).unwrap_or_default();
        from_utf8(bytes).map_err(|error| FrameError {
            kind: FrameErrorKind::NotUtf8,
            offset: self.offset(from + error.valid_up_to()),
        })
    }

    /// Everything kept from here on, without the first bytes of a character that the end of the body cut off.
    pub(crate) fn whole_characters(&self, from: usize) -> Span {
        let kept = self.kept();
        match from_utf8(kept.get(from..).unwrap_or_default()) {
            Err(error) if error.error_len().is_none() => (from, from + error.valid_up_to()),
            _ => (from, kept.len()),
        }
    }

    /// The error of a frame that is too large.
    pub(crate) fn too_large(&self, limit: usize) -> FrameError {
        FrameError { kind: FrameErrorKind::TooLarge { limit }, offset: self.offset(0) }
    }
}

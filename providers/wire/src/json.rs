//! Newline-delimited JSON and JSON arrays: the same shape of API as the decoder of server-sent events.

use memchr::memchr;

use crate::frame::{Carry, DEFAULT_LIMIT, Frame, FrameError, FrameErrorKind, Span};

/// A decoder of newline-delimited JSON: each line that is not blank is one text.
///
/// Lines are lent out of one buffer; none allocates, and no byte is looked at twice.
///
/// ```
/// use settled_provider_wire::JsonLines;
///
/// let mut decoder = JsonLines::new();
/// decoder.push(b"{\"a\":1}\r\n\n{\"b\":");
/// assert_eq!(decoder.pull().unwrap().unwrap().text, r#"{"a":1}"#);
/// assert!(decoder.pull().is_none());
/// decoder.push(b"2}");
/// assert!(decoder.pull().is_none());
/// assert_eq!(decoder.finish().unwrap().unwrap().text, r#"{"b":2}"#);
/// ```
#[derive(Debug)]
pub struct JsonLines {
    carry: Carry,
    limit: usize,
    scanned: usize,
    over: bool,
}

impl Default for JsonLines {
    fn default() -> Self {
        Self::new()
    }
}

impl JsonLines {
    /// A decoder with the [default limit](DEFAULT_LIMIT).
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }

    /// A decoder that takes no line of more bytes than this.
    pub fn with_limit(limit: usize) -> Self {
        Self { carry: Carry::default(), limit, scanned: 0, over: false }
    }

    /// Takes the next bytes of the body; after an error it takes none.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.over {
            self.carry.push(bytes);
        }
    }

    /// The next line that is whole and not blank; `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// Text that is not UTF-8, and a line above the limit; after an error it gives `None` for ever.
    pub fn pull(&mut self) -> Option<Result<Frame<'_>, FrameError>> {
        let span = loop {
            self.carry.release();
            if self.over {
                return None;
            }
            let kept = self.carry.kept();
            let Some(length) = memchr(b'\n', kept.get(self.scanned..).unwrap_or_default()) else {
                self.scanned = kept.len();
                if kept.len() > self.limit {
                    self.over = true;
                    return Some(Err(self.carry.too_large(self.limit)));
                }
                return None;
            };
            let end = self.scanned + length;
            if end > self.limit {
                self.over = true;
                return Some(Err(self.carry.too_large(self.limit)));
            }
            let span = trim(kept, (0, end));
            self.scanned = 0;
            self.carry.take(end + 1);
            if span.0 < span.1 {
                break span;
            }
        };
        let text = self.carry.text(span);
        self.over = text.is_err();
        let offset = self.carry.offset(span.0);
        Some(text.map(|text| Frame { text, offset, cut: false }))
    }

    /// Tells that the body has ended, and gives the last line if it has no line feed: it may be whole, or cut.
    ///
    /// It is to be called when [`pull`](Self::pull) has given `None`; after it the decoder is over.
    ///
    /// # Errors
    ///
    /// Text that is not UTF-8; the first bytes of a character that the end cut off are left out.
    pub fn finish(&mut self) -> Option<Result<Frame<'_>, FrameError>> {
        self.carry.release();
        if std::mem::replace(&mut self.over, true) {
            return None;
        }
        let span = trim(self.carry.kept(), self.carry.whole_characters(0));
        (span.0 < span.1).then(|| cut(&self.carry, span))
    }
}

/// A decoder of JSON arrays that come piece by piece: each element is one text.
///
/// It gives the values of `[{…},{…}]` as they close, and as well a value that stands alone, which is how an error arrives where an array was expected.
/// Elements are lent out of one buffer; none allocates, and no byte is looked at twice.
///
/// ```
/// use settled_provider_wire::JsonArray;
///
/// let mut decoder = JsonArray::new();
/// decoder.push(b"[{\"a\":[1]}\n,\r\n{\"b\":\"}\"");
/// assert_eq!(decoder.pull().unwrap().unwrap().text, r#"{"a":[1]}"#);
/// assert!(decoder.pull().is_none());
/// decoder.push(b"}]");
/// assert_eq!(decoder.pull().unwrap().unwrap().text, r#"{"b":"}"}"#);
/// assert!(decoder.finish().is_none());
/// ```
#[derive(Debug)]
pub struct JsonArray {
    carry: Carry,
    limit: usize,
    scanned: usize,
    place: Place,
    /// Where the next byte stands when the element has closed.
    home: Place,
    over: bool,
}

/// Where in the array the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before everything.
    Before,
    /// In the array, between two elements.
    Between,
    /// Behind everything.
    Behind,
    /// In an object or array, this deep.
    Nested { depth: usize },
    /// In a text, this deep; a text that is itself the element has depth 0.
    Text { depth: usize },
    /// Behind a backslash in a text.
    Escape { depth: usize },
    /// In a number or a word.
    Bare,
}

impl Place {
    fn is_outside(self) -> bool {
        matches!(self, Self::Before | Self::Between | Self::Behind)
    }
}

impl Default for JsonArray {
    fn default() -> Self {
        Self::new()
    }
}

impl JsonArray {
    /// A decoder with the [default limit](DEFAULT_LIMIT).
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }

    /// A decoder that takes no element of more bytes than this.
    pub fn with_limit(limit: usize) -> Self {
        Self { carry: Carry::default(), limit, scanned: 0, place: Place::Before, home: Place::Behind, over: false }
    }

    /// Takes the next bytes of the body; after an error it takes none.
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.over {
            self.carry.push(bytes);
        }
    }

    /// The next element that is whole; `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// Text that is not UTF-8, an element above the limit, and a byte between two elements that may not stand there; after an error it gives `None` for ever.
    pub fn pull(&mut self) -> Option<Result<Frame<'_>, FrameError>> {
        self.carry.release();
        if self.over {
            return None;
        }
        let span = match self.element()? {
            Ok(span) => span,
            Err(error) => {
                self.over = true;
                return Some(Err(error));
            }
        };
        let text = self.carry.text(span);
        self.over = text.is_err();
        let offset = self.carry.offset(span.0);
        Some(text.map(|text| Frame { text, offset, cut: false }))
    }

    /// Tells that the body has ended, and gives the element that the end cut, if there is one.
    ///
    /// It is to be called when [`pull`](Self::pull) has given `None`; after it the decoder is over.
    ///
    /// # Errors
    ///
    /// Text that is not UTF-8; the first bytes of a character that the end cut off are left out.
    pub fn finish(&mut self) -> Option<Result<Frame<'_>, FrameError>> {
        self.carry.release();
        if std::mem::replace(&mut self.over, true) || self.place.is_outside() {
            return None;
        }
        Some(cut(&self.carry, self.carry.whole_characters(0)))
    }

    /// Reads on to the end of an element; between elements nothing is kept.
    fn element(&mut self) -> Option<Result<Span, FrameError>> {
        let kept = self.carry.kept();
        let mut from = 0;
        for (at, &byte) in kept.iter().enumerate().skip(self.scanned) {
            let mut end = None;
            self.place = match (self.place, byte) {
                (place, b' ' | b'\t' | b'\r' | b'\n') if place.is_outside() => place,
                (Place::Before, b'[') => {
                    self.home = Place::Between;
                    Place::Between
                }
                // A byte order mark.
                (Place::Before, 0xef | 0xbb | 0xbf) if self.carry.offset(at) < 3 => Place::Before,
                (Place::Between, b',') => Place::Between,
                (Place::Between, b']') => {
                    self.home = Place::Behind;
                    Place::Behind
                }
                (Place::Before | Place::Between, b'{' | b'[') => {
                    from = at;
                    Place::Nested { depth: 1 }
                }
                (Place::Before | Place::Between, b'"') => {
                    from = at;
                    Place::Text { depth: 0 }
                }
                (Place::Before | Place::Between, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                    from = at;
                    Place::Bare
                }
                (place, byte) if place.is_outside() => {
                    return Some(Err(FrameError {
                        kind: FrameErrorKind::Misplaced { byte },
                        offset: self.carry.offset(at),
                    }));
                }
                (Place::Nested { depth }, b'{' | b'[') => Place::Nested { depth: depth + 1 },
                (Place::Nested { depth: 1 }, b'}' | b']') | (Place::Text { depth: 0 }, b'"') => {
                    end = Some(at + 1);
                    self.home
                }
                (Place::Nested { depth }, b'}' | b']') => Place::Nested { depth: depth - 1 },
                (Place::Nested { depth }, b'"') => Place::Text { depth },
                (Place::Text { depth }, b'\\') => Place::Escape { depth },
                (Place::Text { depth }, b'"') => Place::Nested { depth },
                (Place::Escape { depth }, _) => Place::Text { depth },
                (Place::Bare, b',' | b']' | b' ' | b'\t' | b'\r' | b'\n') => {
                    // What ends a bare element is read again, as what stands behind it.
                    end = Some(at);
                    self.home
                }
                (place, _) => place,
            };
            let inside = !self.place.is_outside() || end.is_some();
            if inside && end.unwrap_or(at + 1) - from > self.limit {
                self.carry.take(from);
                self.carry.release();
                return Some(Err(self.carry.too_large(self.limit)));
            }
            if let Some(end) = end {
                self.scanned = 0;
                self.carry.take(end);
                return Some(Ok((from, end)));
            }
        }
        // What lies between elements is given back, so that an element always begins at the front.
        let passed = if self.place.is_outside() { kept.len() } else { from };
        self.scanned = kept.len() - passed;
        self.carry.take(passed);
        self.carry.release();
        None
    }
}

/// A span without white space around it.
fn trim(bytes: &[u8], (from, to): Span) -> Span {
    let line = bytes.get(from..to).unwrap_or_default();
    let front = line.len() - line.trim_ascii_start().len();
    (from + front, from + front + line.trim_ascii().len())
}

/// A span that the end of the body may have cut.
fn cut(carry: &Carry, span: Span) -> Result<Frame<'_>, FrameError> {
    Ok(Frame { text: carry.text(span)?, offset: carry.offset(span.0), cut: true })
}

//! Server-sent events: bytes in at any split, events out, nothing allocated per event.

use memchr::memchr2;

use crate::frame::{Carry, DEFAULT_LIMIT, FrameError, Span};

/// A decoder of server-sent events, after the [HTML standard](https://html.spec.whatwg.org/multipage/server-sent-events.html).
///
/// Each chunk is [pushed](Self::push), then [pulled](Self::pull) until there is no more, then the end of the body is told with [`finish`](Self::finish).
/// What is pulled is lent out of one buffer, which keeps the bytes of the event that is not whole yet: no event allocates, and no byte is looked at twice, however small the chunks.
///
/// As the standard has it: a byte order mark at the very beginning is skipped; lines end with CR, LF or CRLF, wherever the chunks are cut; several `data` lines are joined by line feeds; one space behind the colon is dropped; an event without a `data` line is not given; an `id` with a NUL and a `retry` that is no number are ignored; so is an unknown field.
///
/// Unlike the standard: text that is not UTF-8 is an error, not a replacement character; comments are given, since they are signs of life; an `id` belongs to its own event alone; and the event that the end of the body cuts is given, marked as cut.
///
/// ```
/// use settled_provider_wire::{SseDecoder, SseItem};
///
/// let mut decoder = SseDecoder::new();
/// decoder.push(b": keepalive\n\ndata: {\"a\"");
/// assert!(matches!(decoder.pull(), Some(Ok(SseItem::Comment("keepalive")))));
/// assert!(decoder.pull().is_none());
/// decoder.push(b":1}\n\n");
/// let Some(Ok(SseItem::Event(event))) = decoder.pull() else { panic!("an event") };
/// assert_eq!(event.data, r#"{"a":1}"#);
/// ```
#[derive(Debug)]
pub struct SseDecoder {
    carry: Carry,
    limit: usize,
    phase: Phase,
    /// Where the line begins that is being read.
    line: usize,
    /// Up to where there is no end of line.
    scanned: usize,
    /// The last line ended with a CR at the end of a chunk: a LF that follows belongs to it.
    after_cr: bool,
    fields: Fields,
    /// The data of the event that is being read, where it has several lines.
    joined: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A byte order mark may come.
    Beginning,
    Reading,
    /// After an error, or after the end.
    Over,
}

/// The fields of the event that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct Fields {
    event: Option<Span>,
    /// The first line of data.
    data: Option<Span>,
    /// How many lines of data there are.
    lines: usize,
    id: Option<Span>,
    retry: Option<u64>,
}

impl Fields {
    fn is_empty(&self) -> bool {
        self.event.is_none() && self.data.is_none() && self.id.is_none() && self.retry.is_none()
    }
}

/// What the next lines turned out to be.
enum Found {
    Event(Fields),
    Comment(Span),
}

/// An event or a comment, lent by the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the standard knows no third kind")]
pub enum SseItem<'a> {
    /// An event.
    Event(SseEvent<'a>),
    /// A comment, without its colon and one space behind it.
    Comment(&'a str),
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SseEvent<'a> {
    /// Its name; empty where it has none (the standard then calls it `message`).
    pub event: &'a str,
    /// Its data, several lines joined by line feeds.
    pub data: &'a str,
    /// Its id.
    pub id: Option<&'a str>,
    /// The time to wait before connecting again, in milliseconds.
    pub retry: Option<u64>,
    /// The number of its data's first byte in the body.
    pub offset: u64,
    /// Whether the body ended before the blank line that ends an event.
    pub cut: bool,
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl SseDecoder {
    /// A decoder with the [default limit](DEFAULT_LIMIT).
    pub fn new() -> Self {
        Self::with_limit(DEFAULT_LIMIT)
    }

    /// A decoder that takes no event of more bytes than this, its line ends and field names included.
    pub fn with_limit(limit: usize) -> Self {
        Self {
            carry: Carry::default(),
            limit,
            phase: Phase::Beginning,
            line: 0,
            scanned: 0,
            after_cr: false,
            fields: Fields::default(),
            joined: String::new(),
        }
    }

    /// Takes the next bytes of the body; after an error it takes none.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        if self.phase != Phase::Over {
            self.carry.push(bytes);
        }
    }

    /// The next event or comment that is whole; `None` when more bytes are needed.
    ///
    /// # Errors
    ///
    /// Text that is not UTF-8, and an event above the limit; after an error it gives `None` for ever.
    #[inline]
    pub fn pull(&mut self) -> Option<Result<SseItem<'_>, FrameError>> {
        self.carry.release();
        let found = match self.find()? {
            Ok(found) => found,
            Err(error) => {
                self.phase = Phase::Over;
                return Some(Err(error));
            }
        };
        let item = match found {
            Found::Event(fields) => lend(&self.carry, &self.joined, fields).map(SseItem::Event),
            Found::Comment(span) => self.carry.text(span).map(SseItem::Comment),
        };
        if item.is_err() {
            self.phase = Phase::Over;
        }
        Some(item)
    }

    /// Tells that the body has ended, and gives the event that the end cut, if there is one with data.
    ///
    /// It is to be called when [`pull`](Self::pull) has given `None`; after it the decoder is over.
    /// A server that forgets the last blank line gives its last event here; so does a connection that broke.
    ///
    /// # Errors
    ///
    /// Text that is not UTF-8; the first bytes of a character that the end cut off are left out.
    pub fn finish(&mut self) -> Option<Result<SseEvent<'_>, FrameError>> {
        self.carry.release();
        if self.phase == Phase::Over {
            return None;
        }
        self.phase = Phase::Over;
        let line = self.carry.whole_characters(self.line);
        if line.0 < line.1
            && let Err(error) = self.read_line(line)
        {
            return Some(Err(error));
        }
        self.fields.data?;
        Some(lend(&self.carry, &self.joined, self.fields).map(|event| SseEvent { cut: true, ..event }))
    }

    /// Reads lines up to the end of an event or a comment.
    #[inline]
    fn find(&mut self) -> Option<Result<Found, FrameError>> {
        if self.phase != Phase::Reading && !self.begin() {
            return None;
        }
        loop {
            let kept = self.carry.kept();
            if self.after_cr {
                let first = *kept.get(self.line)?;
                self.after_cr = false;
                if first == b'\n' && self.line == 0 {
                    // What it ends has been given: nothing of it counts for what comes next.
                    self.pass(1);
                    self.carry.release();
                    continue;
                }
                if first == b'\n' {
                    self.line += 1;
                    self.scanned = self.line;
                }
            }
            let unseen = kept.get(self.scanned..).unwrap_or_default();
            let Some(length) = memchr2(b'\n', b'\r', unseen) else {
                self.scanned = kept.len();
                return (kept.len() > self.limit).then(|| Err(self.carry.too_large(self.limit)));
            };
            let (line, end) = (self.line, self.scanned + length);
            let mut next = end + 1;
            if unseen.get(length) == Some(&b'\r') {
                match kept.get(next) {
                    Some(b'\n') => next += 1,
                    Some(_) => {}
                    None => self.after_cr = true,
                }
            }
            // Without the LF of a CRLF, which may come too late to be counted.
            if end + 1 > self.limit {
                return Some(Err(self.carry.too_large(self.limit)));
            }
            self.line = next;
            self.scanned = next;
            if line == end {
                let fields = std::mem::take(&mut self.fields);
                self.pass(next);
                if fields.data.is_some() {
                    return Some(Ok(Found::Event(fields)));
                }
                self.carry.release();
                continue;
            }
            match self.read_line((line, end)) {
                Ok(None) if self.fields.is_empty() => {
                    self.pass(next);
                    self.carry.release();
                }
                Ok(None) => {}
                Ok(Some(comment)) => {
                    if self.fields.is_empty() {
                        self.pass(next);
                    }
                    return Some(Ok(Found::Comment(comment)));
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Gives back everything up to here at the next release.
    #[inline]
    fn pass(&mut self, to: usize) {
        self.carry.take(to);
        self.line = 0;
        self.scanned = 0;
    }

    /// Skips a byte order mark; whether reading may begin.
    fn begin(&mut self) -> bool {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        let kept = self.carry.kept();
        if self.phase == Phase::Over || (kept.len() < MARK.len() && MARK.starts_with(kept)) {
            return false;
        }
        if kept.starts_with(MARK) {
            self.carry.take(MARK.len());
            self.carry.release();
        }
        self.phase = Phase::Reading;
        true
    }

    /// Takes the field of a line, or gives the comment that it is.
    #[inline]
    fn read_line(&mut self, (from, to): Span) -> Result<Option<Span>, FrameError> {
        let line = self.carry.kept().get(from..to).unwrap_or_default();
        let (name, mut value) = match line {
            [b'd', b'a', b't', b'a', b':', ..] => (4, from + 5),
            [b'e', b'v', b'e', b'n', b't', b':', ..] => (5, from + 6),
            _ => match memchr::memchr(b':', line) {
                Some(colon) => (colon, from + colon + 1),
                None => (line.len(), to),
            },
        };
        if value < to && line.get(value - from) == Some(&b' ') {
            value += 1;
        }
        match line.get(..name).unwrap_or_default() {
            b"data" => match self.fields.data {
                None => (self.fields.data, self.fields.lines) = (Some((value, to)), 1),
                Some(first) => {
                    // Looked at line by line: in the joined text an error could not say where it is.
                    if self.fields.lines == 1 {
                        self.joined.clear();
                        self.joined.push_str(self.carry.text(first)?);
                    }
                    self.joined.push('\n');
                    self.joined.push_str(self.carry.text((value, to))?);
                    self.fields.lines += 1;
                }
            },
            b"event" => self.fields.event = Some((value, to)),
            b"id" => {
                let id = line.get(value - from..).unwrap_or_default();
                if memchr::memchr(0, id).is_none() {
                    self.fields.id = Some((value, to));
                }
            }
            b"retry" => {
                let retry = self.carry.text((value, to))?;
                if !retry.is_empty() && retry.bytes().all(|byte| byte.is_ascii_digit()) {
                    self.fields.retry = retry.parse().ok();
                }
            }
            b"" if name == 0 => return Ok(Some((value, to))),
            _ => {
                self.carry.text((from, to))?;
            }
        }
        Ok(None)
    }
}

/// The event that these fields make, lent.
#[inline]
fn lend<'a>(carry: &'a Carry, joined: &'a str, fields: Fields) -> Result<SseEvent<'a>, FrameError> {
    let data = fields.data.unwrap_or_default();
    Ok(SseEvent {
        event: fields.event.map_or(Ok(""), |span| carry.text(span))?,
        data: if fields.lines > 1 { joined } else { carry.text(data)? },
        id: fields.id.map(|span| carry.text(span)).transpose()?,
        retry: fields.retry,
        offset: carry.offset(data.0),
        cut: false,
    })
}

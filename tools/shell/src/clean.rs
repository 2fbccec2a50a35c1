//! From the raw bytes of a terminal program to plain lines.

/// The longest line that is held back to see whether a carriage return overwrites it.
const MAX_LINE: usize = 16 * 1024;

/// Strips escape sequences and control characters from a stream, whatever its cuts, and hands on lines.
#[derive(Default)]
pub(crate) struct Cleaner {
    state: State,
    /// The line that has not ended yet; it has no escape sequences, but possibly broken UTF-8.
    line: Vec<u8>,
    /// A carriage return has come: a line feed right behind it ends the line, anything else begins it anew.
    returned: bool,
}

/// Where in an escape sequence the stream is.
#[derive(Clone, Copy, Default)]
enum State {
    #[default]
    Text,
    /// Behind ESC, and the intermediate bytes of a short sequence.
    Escape,
    /// In a control sequence, `ESC [`: until a final byte.
    Control,
    /// In a string such as a window title: until BEL or `ESC \`, and never beyond the line, lest a stray start swallow all output.
    String,
}

impl Cleaner {
    /// Takes bytes in and hands every piece of text that is final to `emit`: a line with its end, or a part of a very long line.
    pub(crate) fn push(&mut self, bytes: &[u8], emit: &mut impl FnMut(&str)) {
        for &byte in bytes {
            self.state = match (self.state, byte) {
                (_, 0x1b) => State::Escape,
                // Cancel, substitute, and the line's end break a sequence off wherever it is.
                (_, 0x18 | 0x1a) => State::Text,
                (_, b'\n') => {
                    self.returned = false;
                    self.line.push(b'\n');
                    self.flush(emit);
                    State::Text
                }
                (State::Text, b'\r') => {
                    self.returned = true;
                    State::Text
                }
                (State::Text, 0..0x20 | 0x7f) if byte != b'\t' => State::Text,
                (State::Text, _) => {
                    if std::mem::take(&mut self.returned) {
                        self.line.clear();
                    }
                    // A long line is cut before a byte that begins a character, if one comes.
                    let long = self.line.len() >= MAX_LINE;
                    if long && (byte & 0xc0 != 0x80 || self.line.len() > MAX_LINE + 4) {
                        self.flush(emit);
                    }
                    self.line.push(byte);
                    State::Text
                }
                (State::Escape, b'[') => State::Control,
                (State::Escape, b']' | b'P' | b'X' | b'^' | b'_') => State::String,
                (State::Escape, 0x20..=0x2f) => State::Escape,
                (State::Escape, _) => State::Text,
                (State::Control, 0x40..=0x7e) => State::Text,
                (State::Control, _) => State::Control,
                (State::String, 0x07) => State::Text,
                (State::String, _) => State::String,
            };
        }
    }

    /// The line that has not ended yet.
    pub(crate) fn unfinished(&self) -> String {
        plain(&self.line)
    }

    /// Hands on what is left when the stream has ended.
    pub(crate) fn finish(&mut self, emit: &mut impl FnMut(&str)) {
        self.flush(emit);
    }

    fn flush(&mut self, emit: &mut impl FnMut(&str)) {
        if !self.line.is_empty() {
            emit(&plain(&self.line));
            self.line.clear();
        }
    }
}

/// Text without broken UTF-8, and without the control characters that UTF-8 can spell beyond ASCII.
fn plain(line: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(line).into_owned();
    text.retain(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cleans `raw` cut at every place, and at all places at once.
    fn check(raw: &[u8], clean: &str) {
        let cuts = (0..=raw.len()).map(|at| vec![&raw[..at], &raw[at..]]);
        for parts in cuts.chain([raw.chunks(1).collect()]) {
            let mut cleaner = Cleaner::default();
            let mut text = String::new();
            for part in &parts {
                cleaner.push(part, &mut |piece| text.push_str(piece));
            }
            cleaner.finish(&mut |piece| text.push_str(piece));
            assert_eq!(text, clean, "{parts:?}");
        }
    }

    #[test]
    fn every_cut_gives_the_same_clean_text() {
        for (raw, clean) in [
            (&b"plain\ttext\n"[..], "plain\ttext\n"),
            (b"\x1b[31mred\x1b[0m \x1b[1;38;5;200mbold\x1b[m\n", "red bold\n"),
            (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\n", "alink\n"),
            (b"\x1bPq#0;2;0;0;0\x1b\\a\x1b_x\x1b\\b\x1b^y\x1b\\c\n", "abc\n"),
            (b"\x1b(B\x1b=\x1b>a\x1bM\x1b7\n", "a\n"),
            (b"a\x1b[3\x18b\x1b]0;t\x1ac\n", "abc\n"),
            (b"\x1b]never ended\nnext\n\x1b[12\nlast", "\nnext\n\nlast"),
            (b"a\0b\x07c\x08d\x7fe\n", "abcde\n"),
            (b"one\r\ntwo\r\n", "one\ntwo\n"),
            (b" 10%\r 50%\r\x1b[K100%\r\ndone\r", "100%\ndone"),
            (b"a\r\r\nb", "a\nb"),
            ("gr\u{fc}n \u{1f980}\n".as_bytes(), "gr\u{fc}n \u{1f980}\n"),
            (b"\xff\xc3\n\xe2\x82", "\u{fffd}\u{fffd}\n\u{fffd}"),
            ("\u{9b}31m\u{85}\u{200b}\n".as_bytes(), "31m\u{200b}\n"),
        ] {
            check(raw, clean);
        }
    }
}

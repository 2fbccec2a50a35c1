//! Lines that differ from one before them in nothing but a text and a few fields that nobody reads: recognised without parsing.

/// The fields in which a piece of text may stand.
const TEXTS: [&str; 4] = ["\"content\"", "\"reasoning_content\"", "\"reasoning\"", "\"delta\""];

/// The fields that differ from line to line and that nobody reads.
const VARYING: [&str; 2] = ["\"obfuscation\"", "\"sequence_number\""];

/// How many templates one body may make: a server whose lines always differ is parsed line by line.
const MOST: u8 = 8;

/// A line of which the decoder has seen that it says one piece of text and nothing else, with holes for what may differ.
///
/// A line that fits is the same JSON with other texts and numbers in its holes: it says its own text and nothing else.
/// That this is so needs no trust in the server: the field of the text stands in the line once, the line has no escapes (so that a quote is a quote), and what fills a hole has none either.
#[derive(Debug)]
pub(crate) struct Template<T> {
    /// What stands in front of each hole.
    holes: Vec<(String, Hole)>,
    /// What stands behind the last one.
    end: String,
    /// What the line means, its text left out.
    pub(crate) meaning: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hole {
    /// The piece of text.
    Piece,
    /// A text that nobody reads.
    Text,
    /// A whole number that nobody reads.
    Number,
}

/// The templates of one body: the last one, and how many there were.
#[derive(Debug)]
pub(crate) struct Templates<T> {
    last: Option<Template<T>>,
    made: u8,
}

impl<T> Default for Templates<T> {
    fn default() -> Self {
        Self { last: None, made: 0 }
    }
}

impl<T: Copy> Templates<T> {
    /// The meaning and the text of a line that fits the last template.
    pub(crate) fn read<'l>(&self, line: &'l str) -> Option<(T, &'l str)> {
        let template = self.last.as_ref()?;
        Some((template.meaning, template.read(line)?))
    }

    /// Makes a template of a line that says this text and nothing else.
    pub(crate) fn learn(&mut self, line: &str, text: &str, meaning: T) {
        if self.made < MOST
            && let Some(template) = Template::of(line, text, meaning)
        {
            self.last = Some(template);
            self.made += 1;
        }
    }
}

impl<T> Template<T> {
    fn of(line: &str, text: &str, meaning: T) -> Option<Self> {
        if text.is_empty() || line.contains('\\') {
            return None;
        }
        let mut spots = Vec::new();
        for field in TEXTS {
            if let Some((from, to, Hole::Text)) =
                value(line, field).filter(|(from, to, _)| line.get(*from..*to) == Some(text))
            {
                spots.push((from, to, Hole::Piece));
            }
        }
        // The same text in two fields: which of them was said is not known here.
        if spots.len() != 1 {
            return None;
        }
        spots.extend(VARYING.into_iter().filter_map(|field| value(line, field)));
        spots.sort_by_key(|(from, ..)| *from);
        let (mut holes, mut behind) = (Vec::new(), 0);
        for (from, to, hole) in spots {
            holes.push((line.get(behind..from)?.to_owned(), hole));
            behind = to;
        }
        Some(Self { holes, end: line.get(behind..)?.to_owned(), meaning })
    }

    fn read<'l>(&self, line: &'l str) -> Option<&'l str> {
        let (mut rest, mut piece) = (line, "");
        for (literal, hole) in &self.holes {
            rest = rest.strip_prefix(literal.as_str())?;
            let filled;
            (filled, rest) = rest.split_at(rest.bytes().position(|byte| ends(*hole, byte))?);
            match hole {
                Hole::Piece => piece = filled,
                Hole::Text => {}
                Hole::Number if filled.is_empty() || (filled.len() > 1 && filled.starts_with('0')) => return None,
                Hole::Number => {}
            }
        }
        (rest == self.end && !piece.is_empty()).then_some(piece)
    }
}

/// Whether a byte cannot be part of what fills a hole.
fn ends(hole: Hole, byte: u8) -> bool {
    match hole {
        Hole::Piece | Hole::Text => matches!(byte, b'"' | b'\\' | ..b' '),
        Hole::Number => !byte.is_ascii_digit(),
    }
}

/// Where the value of a field stands that the line has once: a text without its quotes, or a whole number.
fn value(line: &str, field: &str) -> Option<(usize, usize, Hole)> {
    let (at, _) = line.match_indices(field).next()?;
    let mut from = at + field.len();
    if line.get(from..)?.contains(field) || line.as_bytes().get(from) != Some(&b':') {
        return None;
    }
    from += 1;
    from += usize::from(line.as_bytes().get(from) == Some(&b' '));
    let hole = if line.as_bytes().get(from) == Some(&b'"') { Hole::Text } else { Hole::Number };
    from += usize::from(hole == Hole::Text);
    let length = line.get(from..)?.bytes().position(|byte| ends(hole, byte))?;
    (hole == Hole::Text || length > 0).then_some((from, from + length, hole))
}

#[cfg(test)]
mod tests {
    use super::Templates;

    #[test]
    fn what_fits_a_template() {
        let seen = r#"{"type":"d","sequence_number":7,"delta":"one","obfuscation":"xyz"}"#;
        let mut templates = Templates::default();
        templates.learn(seen, "one", 'm');
        for (line, expected) in [
            (seen, Some(('m', "one"))),
            (r#"{"type":"d","sequence_number":12,"delta":" two é","obfuscation":""}"#, Some(('m', " two é"))),
            (r#"{"type":"d","sequence_number":12,"delta":"","obfuscation":""}"#, None),
            (r#"{"type":"d","sequence_number":012,"delta":"two","obfuscation":""}"#, None),
            (r#"{"type":"d","sequence_number":-1,"delta":"two","obfuscation":""}"#, None),
            (r#"{"type":"d","sequence_number":,"delta":"two","obfuscation":""}"#, None),
            (r#"{"type":"d","sequence_number":1,"delta":"t\nwo","obfuscation":""}"#, None),
            ("{\"type\":\"d\",\"sequence_number\":1,\"delta\":\"t\two\",\"obfuscation\":\"\"}", None),
            (r#"{"type":"d","sequence_number":1,"delta":"two","obfuscation":""}}"#, None),
            (r#"{"type":"e","sequence_number":1,"delta":"two","obfuscation":""}"#, None),
            (r#"{"type":"d","sequence_number":1,"delta":"two","x":"","obfuscation":""}"#, None),
        ] {
            assert_eq!(templates.read(line), expected, "{line}");
        }
        // What could mean two things makes none.
        for line in [
            r#"{"content":"one","message":{"content":"one"}}"#,
            r#"{"content":"one","reasoning":"one"}"#,
            r#"{"content":"one","x":"\""}"#,
            r#"{"content":["one"]}"#,
            r#"{"text":"one"}"#,
        ] {
            let mut templates = Templates::default();
            templates.learn(line, "one", 'm');
            assert_eq!(templates.read(line), None, "{line}");
        }
    }
}

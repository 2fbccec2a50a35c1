//! Bounding and cleaning what a tool gave, in one place, before it is recorded.

use settled_ledger::Bounded;
use settled_tools_api::{Content, ToolOutput};

use crate::settings::OutputSettings;

/// Cleans every text and bounds their sum; gives what was left out, if anything was, with the whole text.
///
/// Media is kept and not counted.
pub(crate) fn bound(output: ToolOutput, limits: &OutputSettings) -> (ToolOutput, Option<(Bounded, String)>) {
    let mut output = output;
    for piece in &mut output.content {
        if let Content::Text(text) = piece
            && text.chars().any(is_noise)
        {
            *text = clean(text);
        }
    }
    let whole = output.joined_text();
    if whole.len() <= limits.bytes && whole.lines().count() <= limits.lines {
        return (output, None);
    }
    let (head, tail) = cut(&whole, limits);
    let left_out = &whole[head.len()..whole.len() - tail.len()];
    let bounded = Bounded::new(left_out.lines().count() as u64, left_out.len() as u64, None);
    let mark =
        format!("[{} lines, {} bytes left out here of {} bytes in all]", bounded.lines, bounded.bytes, whole.len());
    let shown = Content::Text(format!("{}\n{mark}\n{}", head.trim_end_matches('\n'), tail.trim_start_matches('\n')));
    let mut content = vec![shown];
    content.extend(output.content.into_iter().filter(|piece| piece.as_text().is_none()));
    output.content = content;
    (output, Some((bounded, whole)))
}

/// The head and the tail that are shown: half of the limits each, cut at line borders where there are any.
fn cut<'a>(whole: &'a str, limits: &OutputSettings) -> (&'a str, &'a str) {
    let (lines, bytes) = (limits.lines / 2, limits.bytes / 2);
    let head = floor(whole, bytes.min(nth_line_end(whole, lines.max(1))));
    let head = if head < whole.len() && !whole[..head].ends_with('\n') {
        whole[..head].rfind('\n').map_or(head, |line| line + 1)
    } else {
        head
    };
    let rest = &whole[head..];
    let from = rest.len().saturating_sub(bytes).max(nth_last_line_start(rest, lines.max(1)));
    let from = ceil(rest, from);
    let from = match rest[from..].find('\n') {
        Some(line) if from > 0 && !rest[..from].ends_with('\n') && from + line + 1 < rest.len() => from + line + 1,
        _ => from,
    };
    (&whole[..head], &rest[from..])
}

fn nth_line_end(text: &str, lines: usize) -> usize {
    text.match_indices('\n').nth(lines - 1).map_or(text.len(), |(at, _)| at + 1)
}

fn nth_last_line_start(text: &str, lines: usize) -> usize {
    text.trim_end_matches('\n').rmatch_indices('\n').nth(lines - 1).map_or(0, |(at, _)| at + 1)
}

fn floor(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, mut at: usize) -> usize {
    while at < text.len() && !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

fn is_noise(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
}

/// Takes out terminal sequences and control characters; a carriage return before a line feed goes with them.
fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => match chars.peek() {
                // A control sequence ends with a character from @ to ~.
                Some('[') => {
                    chars.next();
                    while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
                }
                // An operating system command ends with a bell, or with escape and backslash.
                Some(']') => {
                    while let Some(c) = chars.next() {
                        if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                            break;
                        }
                    }
                }
                _ => {}
            },
            '\r' if chars.peek() != Some(&'\n') => cleaned.push('\n'),
            c if is_noise(c) => {}
            c => cleaned.push(c),
        }
    }
    cleaned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, lines: usize, bytes: usize, shown: &str, left_out: Option<(u64, u64)>) {
        let limits = OutputSettings { lines, bytes };
        let (output, bounded) = bound(ToolOutput::text(text), &limits);
        assert_eq!(output.joined_text(), shown);
        assert_eq!(bounded.map(|(bounded, _)| (bounded.lines, bounded.bytes)), left_out);
    }

    #[test]
    fn head_and_tail_are_shown_and_text_is_clean() {
        check("a\nb\nc", 10, 100, "a\nb\nc", None);
        check(
            "1\n2\n3\n4\n5\n6",
            4,
            100,
            "1\n2\n[2 lines, 4 bytes left out here of 11 bytes in all]\n5\n6",
            Some((2, 4)),
        );
        check("ääääää", 10, 8, "ää\n[1 lines, 4 bytes left out here of 12 bytes in all]\nää", Some((1, 4)));
        check("\u{1b}[31mred\u{1b}[0m\u{0}\r\nx\ry\u{1b}]0;title\u{7}!", 10, 100, "red\nx\ny!", None);
    }
}

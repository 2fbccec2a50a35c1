//! Words for a person: times, calls, texts on one line.

use std::time::Duration;

use serde_json::Value;
use settled_ledger::Timestamp;
use settled_provider_api::Usage;
use settled_tools_api::Content;

/// A text on one line, cut after so many characters, without anything that a terminal would obey.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut words = text.split_whitespace().peekable();
    while let Some(word) = words.next() {
        line.extend(word.chars().filter(|c| !c.is_control()));
        if words.peek().is_some() {
            line.push(' ');
        }
        if line.chars().count() > most {
            line = line.chars().take(most.saturating_sub(1)).collect();
            line.push('…');
            break;
        }
    }
    line
}

/// A text as a terminal may be given it: escape sequences lose their escape.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// A call on one line: the name, and what of its input says most.
pub(crate) fn call(name: &str, input: &Value) -> String {
    let telling = ["command", "path", "pattern"].into_iter().find_map(|key| input.get(key).and_then(Value::as_str));
    let rest = match (telling, input.as_object()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(fields)) if fields.is_empty() => String::new(),
        (None, _) => input.to_string(),
    };
    one_line(&format!("{name} {rest}"), 100).trim_end().to_owned()
}

/// The text of some content, on one line.
pub(crate) fn content(content: &[Content], most: usize) -> String {
    let texts: Vec<&str> =
        content.iter().map(|piece| piece.as_text().unwrap_or("(media)")).filter(|text| !text.is_empty()).collect();
    one_line(&texts.join(" "), most)
}

/// So many of something.
pub(crate) fn count(number: usize, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// What a session's file holds.
pub(crate) fn held(events: usize, inputs: usize) -> String {
    let inputs = (inputs > 0).then(|| format!(" and {}", count(inputs, "pending input")));
    format!("{}{}", count(events, "event"), inputs.unwrap_or_default())
}

/// A span, in seconds.
pub(crate) fn seconds(span: Duration) -> String {
    format!("{}.{:03} s", span.as_secs(), span.subsec_millis())
}

/// Tokens in and out; what was not reported is not shown.
pub(crate) fn usage(usage: &Usage) -> Option<String> {
    (*usage != Usage::default()).then(|| format!("{} tokens in, {} out", usage.prompt(), usage.generated()))
}

/// A moment, in UTC.
pub(crate) fn utc(at: Timestamp) -> String {
    let seconds = at.as_millis().div_euclid(1_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 1 March of the year 0, so that a leap day is a year's last.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn moments_read_as_dates() {
        let check = |millis: i64, reads: &str| assert_eq!(utc(Timestamp::from_millis(millis)), reads);
        check(0, "1970-01-01 00:00:00 UTC");
        check(-1, "1969-12-31 23:59:59 UTC");
        check(951_782_400_000, "2000-02-29 00:00:00 UTC");
        check(951_868_800_000, "2000-03-01 00:00:00 UTC");
        check(1_735_689_599_999, "2024-12-31 23:59:59 UTC");
        check(4_107_542_400_000, "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn a_line_is_one_line_and_harmless() {
        let check = |text: &str, most: usize, reads: &str| assert_eq!(one_line(text, most), reads);
        check("a\n  b\tc", 10, "a b c");
        check("\u{1b}[2Jgone", 10, "[2Jgone");
        check("abcdefgh", 8, "abcdefgh");
        check("abcdefghi", 8, "abcdefg…");
        check("äöü äöü", 4, "äöü…");
        check("", 4, "");
        assert_eq!(harmless("a\u{1b}[31m\r\n\tb"), "a[31m\n\tb");
    }

    #[test]
    fn a_call_shows_what_says_most() {
        let check = |name: &str, input: Value, reads: &str| assert_eq!(call(name, &input), reads);
        check("shell", json!({"timeout_ms": 5, "command": "cargo\ntest"}), "shell cargo test");
        check("read_file", json!({"path": "a.txt"}), "read_file a.txt");
        check("add", json!({"x": 1}), r#"add {"x":1}"#);
        check("now", json!({}), "now");
    }
}

//! When a provider says to try again: headers and texts, in all the forms in use.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use settled_provider_api::RetryHint;

/// The longest time that is believed; what is longer, or no number, says nothing.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3_600);

/// Pairs of headers: what is left of a limit, and when it is filled again.
const LIMITS: [(&str, &str); 9] = [
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"),
];

/// What the headers of a failure say about trying again.
///
/// In this order: `retry-after-ms`; `retry-after` in seconds, with a fraction or without, or as a date; and for status 429 the resets of the limits that are used up, the latest of them.
/// A reset is a time span (`6m0s`, `20ms`, `7.66s`, `12`), a number of seconds or milliseconds since 1970, or a date.
/// `x-should-retry` is the provider's word on whether to try again at all.
/// Dates are counted from the response's own `date` if it has one, so that a wrong clock here does no harm, else from `now`.
pub fn advice<'h>(status: u16, header: impl Fn(&str) -> Option<&'h str>, now: SystemTime) -> RetryHint {
    let now = header("date").and_then(date).unwrap_or(now);
    let after = header("retry-after-ms")
        .and_then(|text| seconds(text.trim()))
        .map(|ms| ms / 1_000)
        .or_else(|| header("retry-after").and_then(|text| moment(text, now)))
        .or_else(|| {
            let used_up = LIMITS.into_iter().filter(|(left, _)| {
                header(left).is_none_or(|left| left.trim().parse::<f64>().is_ok_and(|left| left <= 0.0))
            });
            let resets = used_up.filter_map(|(_, reset)| header(reset).and_then(|text| moment(text, now)));
            resets.max().filter(|_| status == 429)
        });
    let mut hint = RetryHint::default();
    hint.after_ms = after.map(millis);
    hint.should_retry = match header("x-should-retry").map(str::trim) {
        Some(word) if word.eq_ignore_ascii_case("true") => Some(true),
        Some(word) if word.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    };
    hint
}

/// The time to wait that a sentence names: `try again in 20s`, `retry after 1m30.5s`, `wait 12 seconds`.
pub fn wait_in_text(text: &str) -> Option<Duration> {
    const LEADS: [&str; 8] = [
        "try again in ",
        "try again after ",
        "retry in ",
        "retry after ",
        "retrying in ",
        "retry your request after ",
        "please wait ",
        "available in ",
    ];
    let text = text.to_ascii_lowercase();
    LEADS.into_iter().find_map(|lead| {
        let from = text.find(lead)? + lead.len();
        let rest = text.get(from..)?.trim_start_matches("about ").trim_start_matches("approximately ");
        let span: String = rest
            .split_whitespace()
            .take(2)
            .collect::<Vec<_>>()
            .join("")
            .trim_end_matches(['.', ',', ';', ')', '!'])
            .to_owned();
        let first = rest.split_whitespace().next()?.trim_end_matches(['.', ',', ';', ')', '!']);
        // "20 seconds" is two words, "20s" is one; a bare number without a unit is no time span.
        duration(first)
            .filter(|_| first.ends_with(|c: char| c.is_ascii_alphabetic()))
            .or_else(|| duration(&span).filter(|_| span.ends_with(|c: char| c.is_ascii_alphabetic())))
    })
}

/// A duration in milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    // A started millisecond counts: waiting less than was asked would be refused again.
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A time span: `20`, `1.5`, `6m0s`, `20ms`, `2m59.56s`, `1h`, `20seconds`.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if let Some(plain) = seconds(rest) {
        return Some(plain);
    }
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|digits| *digits > 0)?;
        let (number, behind) = rest.split_at(digits);
        let unit = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        let scale = match unit.to_ascii_lowercase().as_str() {
            "ms" | "millis" | "milliseconds" | "millisecond" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3_600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => return None,
        };
        let part = seconds(number)?.mul_f64(scale);
        sum = sum.checked_add(part)?;
        rest = behind;
    }
    (!text.trim().is_empty() && sum <= LONGEST).then_some(sum)
}

/// A number of seconds, with a fraction or without.
fn seconds(text: &str) -> Option<Duration> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = text.parse::<f64>().ok().filter(|_| plain)?;
    // Rounded to microseconds, so that `2.7` is not a hair more than 2,700 ms.
    let micros = (number * 1e6).round();
    (micros <= 1e19).then(|| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the text has no sign, and the bound above is below that of u64"
        )]
        Duration::from_micros(micros as u64)
    })
}

/// How long it is until a moment, given as a span, as seconds or milliseconds since 1970, or as a date.
fn moment(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let since_epoch = match seconds(text) {
        Some(number) if number.as_secs() >= 100_000_000_000 => number / 1_000,
        Some(number) if number.as_secs() >= 1_000_000_000 => number,
        Some(number) => return (number <= LONGEST).then_some(number),
        None => match duration(text) {
            Some(span) => return Some(span),
            None => date(text)?.duration_since(UNIX_EPOCH).ok()?,
        },
    };
    let moment = UNIX_EPOCH.checked_add(since_epoch)?;
    // A moment that has passed asks for no wait.
    let wait = moment.duration_since(now).unwrap_or(Duration::ZERO);
    (wait <= LONGEST).then_some(wait)
}

/// A date in one of the three forms of HTTP, or as RFC 3339 writes it.
fn date(text: &str) -> Option<SystemTime> {
    let text = text.trim();
    let words: Vec<&str> = text.split([' ', ',', '-']).filter(|word| !word.is_empty()).collect();
    match words.as_slice() {
        // Sun, 06 Nov 1994 08:49:37 GMT; Sunday, 06-Nov-94 08:49:37 GMT
        [_, day, month, year, time, "GMT" | "UTC"] => moment_of(year, month, day, time),
        // Sun Nov  6 08:49:37 1994
        [_, month, day, time, year] if year.len() == 4 => moment_of(year, month, day, time),
        _ => {
            let (day, time) = text.split_once(['T', 't', ' '])?;
            let [year, month, day]: [&str; 3] = day.split('-').collect::<Vec<_>>().try_into().ok()?;
            let zone = time.find(['Z', 'z', '+', '-'])?;
            let (time, zone) = time.split_at(zone);
            let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
            let fraction = match fraction {
                "" => Duration::ZERO,
                digits => seconds(&format!("0.{digits}"))?,
            };
            let utc = moment_of(year, month, day, time)?.checked_add(fraction)?;
            let Some((hours, minutes)) = zone.get(1..).and_then(|zone| zone.split_once(':')) else {
                return zone.eq_ignore_ascii_case("z").then_some(utc);
            };
            let ahead = Duration::from_secs(number(hours, 0, 23)? * 3_600 + number(minutes, 0, 59)? * 60);
            if zone.starts_with('+') { utc.checked_sub(ahead) } else { utc.checked_add(ahead) }
        }
    }
}

/// The moment of a day and a time of day, in UTC.
fn moment_of(year: &str, month: &str, day: &str, time: &str) -> Option<SystemTime> {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let year = match (year.len(), number(year, 0, 9_999)?) {
        (2, year) => year + if year < 70 { 2_000 } else { 1_900 },
        (_, year) => year,
    };
    let named = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month));
    let month = named.map_or_else(|| number(month, 1, 12), |month| Some(month as u64 + 1))?;
    let day = number(day, 1, 31)?;
    let [hour, minute, second]: [&str; 3] = time.split(':').collect::<Vec<_>>().try_into().ok()?;
    let of_day = number(hour, 0, 23)? * 3_600 + number(minute, 0, 59)? * 60 + number(second, 0, 60)?;
    // Days since 1970, counted in years that begin in March, so that a leap day is a year's last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days =
        (365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1).checked_sub(719_468)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(days * 86_400 + of_day))
}

/// A number in decimal digits within bounds.
fn number(text: &str, least: u64, most: u64) -> Option<u64> {
    let plain = !text.is_empty() && text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| plain)?;
    (least..=most).contains(&number).then_some(number)
}

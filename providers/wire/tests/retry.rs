//! Retry advice in every form.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use settled_provider_wire::{ErrorBody, advice, wait_in_text};

/// 2026-01-02 03:04:05 UTC.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_767_323_045)
}

#[test]
fn headers() {
    let check = |status: u16, headers: &[(&str, &str)], after_ms: Option<u64>| {
        let header = |name: &str| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        assert_eq!(advice(status, header, now()).after_ms, after_ms, "{headers:?}");
    };
    check(429, &[], None);
    for status in [429, 503, 529, 500] {
        check(status, &[("retry-after", "20")], Some(20_000));
    }
    check(429, &[("retry-after", " 0.25 ")], Some(250));
    check(429, &[("retry-after", "0")], Some(0));
    check(429, &[("retry-after-ms", "1500"), ("retry-after", "20")], Some(1_500));
    check(429, &[("retry-after-ms", "nonsense"), ("retry-after", "20")], Some(20_000));
    check(429, &[("retry-after", "Fri, 02 Jan 2026 03:04:35 GMT")], Some(30_000));
    check(429, &[("retry-after", "Friday, 02-Jan-26 03:05:05 GMT")], Some(60_000));
    check(429, &[("retry-after", "Fri Jan  2 03:04:06 2026")], Some(1_000));
    check(429, &[("retry-after", "Fri, 02 Jan 2026 03:04:00 GMT")], Some(0));
    // The response's own date counts more than the clock here.
    check(
        429,
        &[("retry-after", "Tue, 29 Feb 2028 00:00:10 GMT"), ("date", "Tue, 29 Feb 2028 00:00:00 GMT")],
        Some(10_000),
    );
    for nonsense in
        ["", "soon", "-5", "NaN", "inf", "1e400", "99999999999999999999999", "Fri, 32 Jan 2026 03:04:35 GMT"]
    {
        check(429, &[("retry-after", nonsense)], None);
    }
    check(429, &[("x-ratelimit-reset-requests", "6m0s")], Some(360_000));
    check(429, &[("x-ratelimit-reset-tokens", "20ms")], Some(20));
    check(429, &[("x-ratelimit-reset-tokens", "2m59.56s")], Some(179_560));
    check(429, &[("x-ratelimit-reset", "1767323055")], Some(10_000));
    check(429, &[("x-ratelimit-reset", "1767323055500")], Some(10_500));
    check(429, &[("x-ratelimit-reset", "7.66")], Some(7_660));
    check(429, &[("anthropic-ratelimit-requests-reset", "2026-01-02T03:04:15Z")], Some(10_000));
    check(429, &[("anthropic-ratelimit-requests-reset", "2026-01-02T04:04:15.500+01:00")], Some(10_500));
    // Only a limit that is used up asks for a wait, the latest of them, and only when the status says so.
    check(500, &[("x-ratelimit-reset-requests", "6m0s")], None);
    check(
        429,
        &[
            ("x-ratelimit-remaining-requests", "12"),
            ("x-ratelimit-reset-requests", "6m0s"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "1s"),
        ],
        Some(1_000),
    );
    check(429, &[("x-ratelimit-reset-requests", "2s"), ("x-ratelimit-reset-tokens", "1s")], Some(2_000));
}

#[test]
fn whether_to_try_again_at_all() {
    let said =
        |value: &'static str| advice(500, |name| (name == "x-should-retry").then_some(value), now()).should_retry;
    assert_eq!([said("true"), said("False"), said("maybe")], [Some(true), Some(false), None]);
}

#[test]
fn texts() {
    let check = |text: &str, ms: Option<u64>| {
        assert_eq!(wait_in_text(text), ms.map(Duration::from_millis), "{text}");
    };
    check("Rate limit reached. Please try again in 20s. Thanks.", Some(20_000));
    check("Please try again in 1m30.5s.", Some(90_500));
    check("try again in 6ms", Some(6));
    check("Please retry in 48.94s.", Some(48_940));
    check("Please retry after 12 seconds.", Some(12_000));
    check("Please wait 2 minutes, then go on", Some(120_000));
    check("Try again in about 5 minutes", Some(300_000));
    check("Retry after 7", None);
    check("try again in a moment", None);
    check("try again in 5 parsecs", None);
    check("try again later", None);
    check("try again in ", None);
    check("try again in é", None);
}

#[test]
fn bodies() {
    let check = |body: serde_json::Value, ms: Option<u64>| {
        assert_eq!(ErrorBody::of(&body).retry.after_ms, ms, "{body}");
    };
    check(json!({"error": {"details": [{"@type": "RetryInfo", "retryDelay": "48s"}]}}), Some(48_000));
    check(json!({"error": {"message": "Please try again in 2.5s", "code": "x"}}), Some(2_500));
    check(json!({"error": {"metadata": {"retry_after_seconds": 3}}}), Some(3_000));
    check(json!({"error": {"retry_after": 1.5}}), Some(1_500));
    check(json!({"retry_after_ms": 250}), Some(250));
    check(json!({"error": {"retry_after": -1}}), None);
    check(json!({"error": {"retry_after": null, "message": "no"}}), None);
}

//! The classifier: every rule is hit, near misses are no overflow, and bodies of every shape are read.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::Value;
use settled_provider_api::{ErrorClass, ProviderError};
use settled_provider_wire::{Classifier, ErrorBody, failed_response};

#[derive(Deserialize)]
struct Fixtures {
    failures: Vec<Failure>,
    near_misses: Vec<NearMiss>,
}

#[derive(Deserialize)]
struct Failure {
    rule: String,
    provider: String,
    status: u16,
    body: Value,
}

#[derive(Deserialize)]
struct NearMiss {
    class: ErrorClass,
    provider: String,
    status: u16,
    body: Value,
}

fn fixtures() -> Fixtures {
    serde_json::from_str(include_str!("data/failures.json")).unwrap()
}

/// A body as it stands on the wire: a text as it is, anything else as JSON.
fn bytes(body: &Value) -> Vec<u8> {
    body.as_str().map_or_else(|| body.to_string(), str::to_owned).into_bytes()
}

#[test]
fn every_rule_is_hit_by_a_fixture_and_every_fixture_hits_its_rule() {
    let classifier = Classifier::standard();
    assert_eq!(classifier.rules().version, 1);
    let mut unhit: BTreeMap<&str, &ErrorClass> = BTreeMap::new();
    for rule in classifier.rules().in_order() {
        let class = rule.class.as_ref().unwrap_or_else(|| panic!("{} has no class", rule.name));
        assert!(unhit.insert(&rule.name, class).is_none(), "{} is there twice", rule.name);
    }
    let all = unhit.clone();
    for fixture in fixtures().failures {
        let body = ErrorBody::read(&bytes(&fixture.body));
        let found = classifier.classify(&fixture.provider, Some(fixture.status), &body);
        assert_eq!(found.rule, Some(fixture.rule.as_str()), "{}", fixture.body);
        assert_eq!(Some(&&found.class), all.get(fixture.rule.as_str()), "{}", fixture.body);
        unhit.remove(fixture.rule.as_str());
    }
    assert_eq!(unhit.keys().collect::<Vec<_>>(), Vec::<&&str>::new(), "rules that no fixture hits");
}

#[test]
fn a_failure_inside_a_stream_is_classified_like_the_same_failure_of_a_status() {
    let classifier = Classifier::standard();
    for fixture in fixtures().failures.into_iter().filter(|fixture| fixture.rule.starts_with("overflow/")) {
        if fixture.rule.contains("413") {
            continue;
        }
        let body = ErrorBody::of(&fixture.body);
        let inside = classifier.classify(&fixture.provider, Some(200), &body);
        assert_eq!(inside.rule, Some(fixture.rule.as_str()), "{}", fixture.body);
    }
}

#[test]
fn every_pattern_is_in_small_letters_and_every_section_looks_at_what_it_says() {
    let rules = Classifier::standard().rules();
    for rule in rules.in_order() {
        for pattern in rule.text.iter().chain(&rule.not).chain(&rule.code) {
            assert_eq!(*pattern, pattern.to_lowercase(), "{}", rule.name);
            assert!(!pattern.trim().is_empty(), "{}", rule.name);
        }
    }
    let overflow = BTreeSet::from([ErrorClass::ContextOverflow, ErrorClass::PayloadTooLarge]);
    assert!(rules.overflow.iter().all(|rule| overflow.contains(&rule.class.unwrap())));
    assert!(rules.code.iter().all(|rule| !rule.code.is_empty()));
    assert!(rules.status.iter().all(|rule| !rule.status.is_empty()));
    assert!(rules.text.iter().all(|rule| !rule.text.is_empty()));
}

#[test]
fn near_misses_are_no_overflow() {
    for near in fixtures().near_misses {
        for status in [near.status, 200] {
            let body = ErrorBody::read(&bytes(&near.body));
            let error = Classifier::standard().error(&near.provider, Some(status), &body);
            assert!(!error.is_overflow(), "{}: {error}", near.body);
            if status == near.status {
                assert_eq!(error.class, near.class, "{}", near.body);
            }
        }
    }
}

#[test]
fn bodies_of_every_shape() {
    let check = |status: u16, body: &str, class: ErrorClass, message: &str, code: Option<&str>| {
        let error = failed_response("any", status, |_| None, body.as_bytes(), SystemTime::UNIX_EPOCH);
        let expected = ProviderError::new(class, message).status(status).code(code.map(str::to_owned));
        assert_eq!(error, expected, "{body}");
    };
    use ErrorClass::{Auth, InvalidRequest, Overloaded, RateLimit, Unknown};
    check(400, r#"{"error":{"message":"No.","type":"t","code":"c"}}"#, InvalidRequest, "No.", Some("c"));
    check(400, r#"{"error":{"message":"No.","type":"t","code":null}}"#, InvalidRequest, "No.", Some("t"));
    check(400, r#"{"object":"error","message":"No.","type":"t","code":"3051"}"#, InvalidRequest, "No.", Some("3051"));
    check(404, r#"{"error":"No such model."}"#, InvalidRequest, "No such model.", None);
    check(400, r#"{"code":"invalid-argument","error":"No."}"#, InvalidRequest, "No.", Some("invalid-argument"));
    check(400, r#"{"code":400,"message":"No.","type":"Bad Request"}"#, InvalidRequest, "No.", Some("Bad Request"));
    check(401, r#"{"detail":"No."}"#, Auth, "No.", None);
    check(422, r#"{"detail":[{"msg":"No."}]}"#, InvalidRequest, "No.", None);
    check(401, r#"{"error":{"code":"401","message":"No."}}"#, Auth, "No.", None);
    check(403, r#"{"errors":[{"code":1000,"message":"No."}],"success":false}"#, Auth, "No.", Some("1000"));
    check(
        400,
        r#"[{"error":{"code":400,"message":"No.","status":"INVALID_ARGUMENT"}}]"#,
        InvalidRequest,
        "No.",
        Some("INVALID_ARGUMENT"),
    );
    check(
        529,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Busy."}}"#,
        Overloaded,
        "Busy.",
        Some("overloaded_error"),
    );
    check(
        429,
        r#"{"error":{"message":"Provider returned error","code":429,"metadata":{"raw":"{\"error\":{\"message\":\"Slow.\",\"code\":\"x\"}}"}}}"#,
        RateLimit,
        "Provider returned error: Slow.",
        Some("x"),
    );
    check(400, "event: error\ndata: {\"error\":{\"message\":\"No.\"}}\n\n", InvalidRequest, "No.", None);
    check(500, "plain\n  text\u{0}", Overloaded, "plain text", None);
    check(500, "{\"error\":", Overloaded, "{\"error\":", None);
    check(503, "", Overloaded, "HTTP 503 Service Unavailable (the body says nothing)", None);
    check(400, "{}", InvalidRequest, "HTTP 400 Bad Request (the body says nothing)", None);
    check(299, "", Unknown, "HTTP 299 (the body says nothing)", None);
    check(599, "null", Overloaded, "null", None);
    let page =
        "<html><head><TITLE>502 <b>Bad</b>\n gateway &amp; more</TITLE></head><body><script>x</script></body></html>";
    check(
        502,
        page,
        Overloaded,
        "HTTP 502 Bad Gateway (the body is a page with the title \"502 Bad gateway & more\")",
        None,
    );
    check(401, "\n<div>Log in</div>", Auth, "HTTP 401 Unauthorized (the body is a page of markup)", None);
    check(
        400,
        r#"{"error":{"message":"<p>No.</p>"}}"#,
        InvalidRequest,
        "HTTP 400 Bad Request (the body says nothing)",
        None,
    );
    let long = format!(r#"{{"error":"{}"}}"#, "x".repeat(5_000));
    check(400, &long, InvalidRequest, &format!("{}…", "x".repeat(999)), None);
    let deep = format!("{}1{}", r#"{"error":"#.repeat(100), "}".repeat(100));
    check(400, &deep, InvalidRequest, "HTTP 400 Bad Request (the body says nothing)", None);
    let error = failed_response("any", 400, |_| None, b"{\"error\":\"\xff\"}", SystemTime::UNIX_EPOCH);
    assert_eq!(error.class, InvalidRequest);
}

#[test]
fn what_the_headers_say_goes_before_what_the_body_says() {
    let body = br#"{"error":{"code":429,"message":"No.","details":[{"retryDelay":"48s"}]}}"#;
    let wait = |header: Option<&'static str>| {
        let header = |name: &str| (name == "retry-after").then_some(header).flatten();
        failed_response("gemini", 429, header, body, SystemTime::UNIX_EPOCH).retry.after()
    };
    assert_eq!(wait(None), Some(Duration::from_secs(48)));
    assert_eq!(wait(Some("5")), Some(Duration::from_secs(5)));
}

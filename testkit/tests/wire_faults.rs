//! Whatever goes wrong on the way, on each wire: a typed result, nothing that hangs, no call that was not closed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use settled_ledger::{FailureClass, Outcome};
use settled_provider_api::{
    ErrorClass, Finish, FinishReason, ModelInfo, ModelRef, ProviderError, ProviderEvent, ResponseInfo, Usage,
};
use settled_runner::{Agent, Runner, Settings, SystemClock};
use settled_store_memory::MemoryStore;
use settled_testkit::server::{Fault, Server, Wire};
use settled_testkit::{Script, script, tools};

mod adapters;

use adapters::{WIRES, adapter, hear};

/// Text and two calls; the last word of each call's arguments stands nowhere else.
fn two_calls() -> Script {
    script().step(|s| {
        s.event(info())
            .text("I charge, and ship.")
            .call_as("a", "charge", json!({"note": "end-of-a"}))
            .call_as("b", "ship", json!({"note": "end-of-b"}))
            .usage(Usage::new(12, 7))
            .finish()
    })
}

/// The id and the model of every answer: its body is the same for each request.
fn info() -> ProviderEvent {
    ProviderEvent::ResponseInfo(ResponseInfo::new(Some("the-id".into()), Some("the-model".into())))
}

/// The script that is served once for each of these faults.
fn served(script: &Script, faults: impl IntoIterator<Item = Vec<Fault>>) -> settled_testkit::server::ServerBuilder {
    let entry = || script.clone();
    let (mut whole, mut list) = (Script::default(), Vec::new());
    for (number, faults) in faults.into_iter().enumerate() {
        whole = whole.then(entry());
        list.extend(faults.into_iter().map(|fault| (number + 1, fault)));
    }
    list.into_iter().fold(Server::builder(whole), |builder, (number, fault)| builder.fault(number, fault))
}

/// Events without what differs from answer to answer: ids in state.
fn without_ids(mut events: Vec<ProviderEvent>) -> Vec<ProviderEvent> {
    for event in &mut events {
        match event {
            ProviderEvent::TextEnd(end) | ProviderEvent::ReasoningEnd(end) => end.state = None,
            ProviderEvent::ToolCall(call) => call.state = None,
            _ => {}
        }
    }
    events
}

/// How many calls and finishes events have.
fn calls_and_finishes(events: &[ProviderEvent]) -> (usize, usize) {
    let count = |wanted: fn(&ProviderEvent) -> bool| events.iter().filter(|event| wanted(event)).count();
    (
        count(|event| matches!(event, ProviderEvent::ToolCall(_))),
        count(|event| matches!(event, ProviderEvent::Finish(_))),
    )
}

/// How many calls may be known from a piece of a body: those whose last word has come.
fn closed(body: &[u8]) -> usize {
    let text = String::from_utf8_lossy(body);
    ["end-of-a", "end-of-b"].into_iter().filter(|word| text.contains(word)).count()
}

/// Cuts the connection at every byte of one short stream.
async fn cut_at_every_byte(wire: Wire) {
    let script =
        script().step(|s| s.event(info()).text("I").call_as("a", "charge", json!({"note": "end-of-a"})).finish());
    let body = wire.body(&script, 1).unwrap().unwrap();
    let faults = (0..=body.len()).map(|at| vec![Fault::CutAt(at)]);
    let server = served(&script, faults.chain([vec![]])).start().await.unwrap();
    let mut cut = Vec::new();
    for _ in 0..=body.len() {
        cut.push(hear(wire, &server).await);
    }
    let (whole, error) = hear(wire, &server).await;
    let whole = without_ids(whole);
    assert_eq!((calls_and_finishes(&whole), error), ((1, 1), None));
    let mut before = 0;
    for (at, (events, error)) in cut.into_iter().enumerate() {
        assert_eq!(error.map(|error| error.class), Some(ErrorClass::Transport), "cut at {at}");
        let events = without_ids(events);
        assert!(whole.starts_with(&events), "cut at {at}: {events:?}");
        assert!(events.len() >= before, "cut at {at} loses events");
        let (calls, finishes) = calls_and_finishes(&events);
        assert!(calls <= closed(&body[..at]), "cut at {at}: {events:?}");
        assert!(finishes <= calls, "cut at {at}: {events:?}");
        before = events.len();
    }
    server.assert_exhausted();
}

#[tokio::test]
async fn chat_cut_at_every_byte() {
    cut_at_every_byte(Wire::Chat).await;
}

#[tokio::test]
async fn responses_cut_at_every_byte() {
    cut_at_every_byte(Wire::Responses).await;
}

#[tokio::test]
async fn messages_cut_at_every_byte() {
    cut_at_every_byte(Wire::Messages).await;
}

#[tokio::test]
async fn gemini_cut_at_every_byte() {
    cut_at_every_byte(Wire::Gemini).await;
}

#[tokio::test]
async fn a_body_that_ends_early_in_order() {
    for wire in WIRES {
        let body = wire.body(&two_calls(), 1).unwrap().unwrap();
        let places: Vec<usize> = (0..body.len()).step_by(11).collect();
        let faults = places.iter().map(|at| vec![Fault::EndAt(*at)]);
        let server = served(&two_calls(), faults).start().await.unwrap();
        for at in places {
            let (events, error) = hear(wire, &server).await;
            assert_eq!(error, None, "{wire:?} ends at {at}");
            let (calls, finishes) = calls_and_finishes(&events);
            assert!(calls <= closed(&body[..at]), "{wire:?} ends at {at}: {events:?}");
            // Only a whole finish is one; the end of the body is none.
            assert!(finishes == 0 || calls == 2, "{wire:?} ends at {at}: {events:?}");
        }
    }
}

/// What comes of an answer.
#[derive(Debug, PartialEq)]
enum Comes {
    /// What would have come without the fault.
    Whole,
    /// An error of a class instead of a stream.
    Refused(ErrorClass, Option<u16>, Option<u64>),
    /// Events, then an error of a class.
    Broken(ErrorClass),
    /// Events, an in-band error of a class the last of them.
    Error(ErrorClass),
}

#[tokio::test]
async fn each_fault_has_a_typed_result() {
    let garbage = |before: usize| Fault::Insert { before, bytes: b"data: {garbage\n\n".to_vec() };
    let instead = |status: u16, content_type: &str, body: &str| Fault::Instead {
        status,
        content_type: content_type.to_owned(),
        body: body.as_bytes().to_vec(),
    };
    let header = |name: &str, value: &str| Fault::Header(name.to_owned(), value.to_owned());
    let json = "application/json";
    let limited = || instead(429, json, r#"{"error":{"message":"Slow down."}}"#);
    let busy = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let page = "<html><head><title>503 Service Unavailable</title></head><body>sorry</body></html>";
    let late =
        r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Slow.","details":[{"retryDelay":"48s"}]}}"#;
    let refused = |status, class, after| Comes::Refused(class, Some(status), after);
    let slow = |after| refused(429, ErrorClass::RateLimit, after);
    let table: Vec<(&str, Vec<Fault>, Comes)> = vec![
        ("nothing", vec![], Comes::Whole),
        ("pieces of 3 bytes", vec![Fault::Pieces(3)], Comes::Whole),
        ("gzip", vec![Fault::Gzip], Comes::Whole),
        ("gzip in pieces", vec![Fault::Gzip, Fault::Pieces(7)], Comes::Whole),
        ("gzip that is cut", vec![Fault::Gzip, Fault::CutAt(60)], Comes::Broken(ErrorClass::Transport)),
        ("slow headers", vec![Fault::SlowHeaders(Duration::from_millis(30))], Comes::Whole),
        ("labelled as JSON", vec![Fault::ContentType(json.to_owned())], Comes::Whole),
        ("labelled as a page", vec![Fault::ContentType("text/html".to_owned())], Comes::Whole),
        ("labelled as nothing", vec![Fault::ContentType(String::new())], Comes::Whole),
        ("a page under 200", vec![instead(200, "text/html", page)], Comes::Broken(ErrorClass::InvalidOutput)),
        ("garbage first", vec![garbage(0)], Comes::Broken(ErrorClass::InvalidOutput)),
        ("garbage in the middle", vec![garbage(1)], Comes::Broken(ErrorClass::InvalidOutput)),
        (
            "bytes that are no text",
            vec![Fault::Insert { before: 1, bytes: b"data: \xff\n\n".to_vec() }],
            Comes::Broken(ErrorClass::InvalidOutput),
        ),
        (
            "comments between events",
            vec![Fault::Insert { before: 1, bytes: b": keepalive\n\n".to_vec() }],
            Comes::Whole,
        ),
        ("429, and nothing else", vec![limited()], slow(None)),
        ("429, seconds", vec![limited(), header("retry-after", "20")], slow(Some(20_000))),
        ("429, a fraction", vec![limited(), header("retry-after", "1.5")], slow(Some(1_500))),
        (
            "429, a date",
            vec![
                limited(),
                header("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                header("retry-after", "Sun, 06 Nov 1994 08:49:57 GMT"),
            ],
            slow(Some(20_000)),
        ),
        (
            "429, milliseconds",
            vec![limited(), header("retry-after-ms", "250"), header("retry-after", "9")],
            slow(Some(250)),
        ),
        (
            "429, OpenAI's resets",
            vec![limited(), header("x-ratelimit-remaining-tokens", "0"), header("x-ratelimit-reset-tokens", "1m0.5s")],
            slow(Some(60_500)),
        ),
        (
            "429, Anthropic's resets",
            vec![
                limited(),
                header("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
                header("anthropic-ratelimit-requests-remaining", "0"),
                header("anthropic-ratelimit-requests-reset", "1994-11-06T08:49:57Z"),
            ],
            slow(Some(20_000)),
        ),
        ("429, Google's body", vec![instead(429, json, late)], slow(Some(48_000))),
        (
            "429, a sentence",
            vec![instead(429, json, r#"{"error":{"message":"Please try again in 7.66s."}}"#)],
            slow(Some(7_660)),
        ),
        ("529", vec![instead(529, json, busy)], refused(529, ErrorClass::Overloaded, None)),
        ("503 with a page", vec![instead(503, "text/html", page)], refused(503, ErrorClass::Overloaded, None)),
        ("500 with nothing", vec![instead(500, "", "")], refused(500, ErrorClass::Overloaded, None)),
        ("502 in gzip", vec![instead(502, json, busy), Fault::Gzip], refused(502, ErrorClass::Overloaded, None)),
        ("an error under 200", vec![instead(200, json, busy)], Comes::Error(ErrorClass::Overloaded)),
        (
            "a redirect",
            vec![instead(307, json, "{}"), header("location", "http://127.0.0.1:9/")],
            refused(307, ErrorClass::InvalidRequest, None),
        ),
    ];
    for wire in WIRES {
        let server = served(&two_calls(), table.iter().map(|(_, faults, _)| faults.clone())).start().await.unwrap();
        let mut whole = None;
        for (name, _, expected) in &table {
            let (events, error) = hear(wire, &server).await;
            let (said, last) = (without_ids(events.clone()), events.last());
            let comes = match (&error, last) {
                (None, Some(ProviderEvent::Error(error))) => Comes::Error(error.class),
                (None, _) => {
                    // Signs of life aside, it is what came without a fault.
                    let heard: Vec<_> = said.into_iter().filter(|event| *event != ProviderEvent::Alive).collect();
                    assert_eq!(*whole.get_or_insert_with(|| heard.clone()), heard, "{name} on {wire:?}");
                    Comes::Whole
                }
                (Some(error), _) if error.status.is_some() => {
                    Comes::Refused(error.class, error.status, error.retry.after_ms)
                }
                (Some(error), _) => Comes::Broken(error.class),
            };
            assert_eq!(comes, *expected, "{name} on {wire:?}: {error:?} behind {events:?}");
            if *expected != Comes::Whole {
                assert_eq!(calls_and_finishes(&events), (0, 0), "{name} on {wire:?}: {events:?}");
            }
        }
        server.assert_exhausted();
    }
}

#[tokio::test]
async fn an_error_event_behind_text_is_the_last_that_is_heard() {
    for wire in WIRES {
        let error = ProviderError::new(ErrorClass::Overloaded, "Busy.");
        let script =
            script().step(|s| s.text("So").input_start("a", "charge").input_delta("a", "{\"note\":").error(error));
        let server = Server::start(script).await.unwrap();
        let (events, failed) = hear(wire, &server).await;
        let Some(ProviderEvent::Error(error)) = events.last() else { panic!("{wire:?}: {events:?}") };
        assert_eq!((error.class, &*error.message, failed), (ErrorClass::Overloaded, "Busy.", None), "{wire:?}");
        assert!(events.contains(&ProviderEvent::text_delta(0, "So")), "{wire:?}: {events:?}");
        assert_eq!(calls_and_finishes(&events), (0, 0), "{wire:?}: {events:?}");
    }
}

/// Runs one answer in the real runner with limits of a fraction of a second, and no retry.
async fn settle(wire: Wire, server: &Server) -> (Outcome, Option<FailureClass>, [u64; 2]) {
    let mut settings = Settings::default();
    settings.first_event = Duration::from_millis(80);
    settings.stream_idle = Duration::from_millis(80);
    settings.retry.max = 0;
    let tools = tools().tool("charge", |run| run.effect().ok("charged")).tool("ship", |run| run.effect().ok("shipped"));
    let runner = Runner::builder()
        .shared_model(ModelRef::new("scripted", "m"), Arc::from(adapter(wire, server)), ModelInfo::new())
        .tools(tools.clone())
        .agent(Agent::new("test"))
        .store(MemoryStore::new(Arc::new(SystemClock::default())))
        .settings(settings)
        .build()
        .unwrap();
    let session = runner.session("faults").await.unwrap();
    session.prompt("Go.").await.unwrap();
    let settled = session.settled().await.unwrap();
    (settled.outcome, settled.error.map(|error| error.class), ["charge", "ship"].map(|tool| tools.effects(tool)))
}

#[tokio::test]
async fn silence_ends_at_the_limit_and_starts_no_call() {
    for wire in WIRES {
        let body = wire.body(&two_calls(), 1).unwrap().unwrap();
        let text = String::from_utf8(body).unwrap();
        // In the arguments of the first call.
        let inside = text.find("end-of-a").unwrap() + 4;
        let timeout = (Outcome::Failed, Some(FailureClass::Provider(ErrorClass::Timeout)), [0, 0]);
        let cut = (Outcome::Failed, Some(FailureClass::Provider(ErrorClass::Transport)), [0, 0]);
        for (name, fault, expected) in [
            ("stall at once", Fault::StallAt(0), &timeout),
            ("stall in arguments", Fault::StallAt(inside), &timeout),
            ("stall in headers", Fault::StallInHeaders, &timeout),
            ("headers that come too late", Fault::SlowHeaders(Duration::from_secs(600)), &timeout),
            ("cut in arguments", Fault::CutAt(inside), &cut),
        ] {
            let server = Server::builder(two_calls()).fault(1, fault).start().await.unwrap();
            let settled = tokio::time::timeout(Duration::from_secs(20), settle(wire, &server)).await;
            assert_eq!(settled.as_ref(), Ok(expected), "{name} on {wire:?}");
        }
        // A call that the output limit has cut is not run, though the answer ends in order.
        let script = script().step(|s| {
            s.input_start("a", "charge").input_delta("a", "{\"note\":").finish_with(Finish::new(FinishReason::Length))
        });
        let server = Server::start(script.then(script_of_text())).await.unwrap();
        let (_, _, effects) = settle(wire, &server).await;
        assert_eq!(effects, [0, 0], "{wire:?}");
    }
}

/// An answer that ends a session.
fn script_of_text() -> Script {
    script().step(|s| s.text("Done.").finish())
}

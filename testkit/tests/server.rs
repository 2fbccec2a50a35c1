//! The scripted server, read by the real adapters: what a script says is what they hear, on every wire.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::future::poll_fn;
use std::sync::Arc;

use serde_json::json;
use settled_provider_api::{
    Annotation, ErrorClass, Finish, FinishReason, Message, MessageId, ModelRef, Provider as _, ProviderError,
    ProviderEvent, Purpose, Request, ResponseInfo, SessionId, Usage,
};
use settled_testkit::server::{Server, Wire};
use settled_testkit::{Script, Stream, script};

mod adapters;

use adapters::{WIRES, hear};

/// What a step of a script says.
type Step = fn(Stream) -> Stream;

/// Events without signs of life, pieces of one block joined, and without the state that each wire adds.
fn plain(events: Vec<ProviderEvent>) -> Vec<ProviderEvent> {
    let mut plain: Vec<ProviderEvent> = Vec::new();
    for event in events {
        match (plain.last_mut(), event) {
            (_, ProviderEvent::Alive | ProviderEvent::ResponseInfo(_)) => {}
            (Some(ProviderEvent::TextDelta(last)), ProviderEvent::TextDelta(more)) if last.index == more.index => {
                last.text.push_str(&more.text);
            }
            (Some(ProviderEvent::ToolInputDelta(last)), ProviderEvent::ToolInputDelta(more))
                if last.index == more.index =>
            {
                last.text.push_str(&more.text);
            }
            (_, ProviderEvent::TextEnd(end)) => plain.push(ProviderEvent::text_end(end.index)),
            (_, ProviderEvent::ReasoningEnd(end)) => plain.push(ProviderEvent::reasoning_end(end.index, None)),
            (_, ProviderEvent::ToolCall(mut call)) => {
                call.state = None;
                plain.push(ProviderEvent::ToolCall(call));
            }
            (_, ProviderEvent::HostedResult(mut result)) => {
                result.state = None;
                plain.push(ProviderEvent::HostedResult(result));
            }
            (_, ProviderEvent::Finish(mut finish)) => {
                finish.raw = None;
                plain.push(ProviderEvent::Finish(finish));
            }
            (_, event) => plain.push(event),
        }
    }
    plain
}

/// The events that a script says, as they would come without a wire.
async fn said(write: Step) -> Vec<ProviderEvent> {
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(1));
    let mut request = Request::new(ModelRef::new("scripted", "the-model"), purpose);
    request.messages.push(Arc::new(Message::user("hello")));
    let mut stream = script().step(write).provider().stream(Arc::new(request)).await.unwrap();
    let mut events = Vec::new();
    while let Some(event) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        events.push(event.unwrap());
    }
    events
}

#[tokio::test]
async fn every_wire_says_what_the_script_says() {
    let everywhere: [(&str, Step); 7] = [
        ("text", |s| {
            s.text_start("t").text_delta("t", "h\u{e9}\n").text_delta("t", "\"llo\"").text_end("t", None).finish()
        }),
        ("reasoning and text", |s| s.reasoning("Let me see.", None).text("Yes.").finish()),
        ("calls", |s| {
            s.text("Both.")
                .call_as("a", "charge", json!({"cents": 500}))
                .call_as("b", "ship", json!({"to": "Ann"}))
                .finish()
        }),
        ("length", |s| s.text("So").finish_with(Finish::new(FinishReason::Length))),
        ("no finish", |s| s.text("So")),
        ("nothing but a finish", Stream::finish),
        ("usage", |s| s.text("So").usage(Usage::new(100, 20).reasoning(5).cache_read(40)).finish()),
    ];
    for (name, write) in everywhere {
        for wire in WIRES {
            let server = Server::start(script().step(write)).await.unwrap();
            let (heard, error) = hear(wire, &server).await;
            server.assert_exhausted();
            assert_eq!((plain(heard), error), (plain(said(write).await), None), "{name} on {wire:?}");
        }
    }
    // What only some wires can say.
    let hosted: Step =
        |s| s.hosted("h", "search", json!({"query": "x"})).hosted_result("h", ["found"]).text("Found.").finish();
    let refusal: Step = |s| s.text("No.").finish_with(Finish::new(FinishReason::Refusal));
    let write_counts: Step = |s| s.text("So").usage(Usage::new(1, 2).cache_write(3)).finish();
    let pause: Step = |s| s.text("So").finish_with(Finish::new(FinishReason::Pause));
    let two: Step = |s| {
        s.input_start("a", "f")
            .input_start("b", "g")
            .input_delta("a", "{}")
            .input_delta("b", "{\"x\":1}")
            .input_end("a")
            .called("a", "f", json!({}))
            .input_end("b")
            .called("b", "g", json!({"x": 1}))
            .finish()
    };
    for (name, write, wires) in [
        ("hosted", hosted, &[Wire::Messages, Wire::Responses][..]),
        ("refusal", refusal, &[Wire::Chat, Wire::Responses, Wire::Messages]),
        ("cache writes", write_counts, &[Wire::Chat, Wire::Responses, Wire::Messages]),
        ("pause", pause, &[Wire::Messages]),
        ("two open calls", two, &[Wire::Responses, Wire::Messages]),
    ] {
        for wire in wires {
            let server = Server::start(script().step(write)).await.unwrap();
            let (heard, error) = hear(*wire, &server).await;
            server.assert_exhausted();
            assert_eq!((plain(heard), error), (plain(said(write).await), None), "{name} on {wire:?}");
        }
    }
}

#[tokio::test]
async fn state_notes_ids_and_calls_that_stay_open() {
    for wire in WIRES {
        let script: Script = script().step(|s| {
            s.event(ProviderEvent::ResponseInfo(ResponseInfo::new(Some("the-id".into()), Some("the-model-2".into()))))
                .reasoning("Hm.", json!("sealed"))
                .input_start("a", "charge")
                .input_delta("a", "{\"cents\":")
                .finish_with(Finish::new(FinishReason::Length))
        });
        let server = Server::start(script).await.unwrap();
        let (heard, error) = hear(wire, &server).await;
        assert_eq!(error, None, "{wire:?}");
        let info = ResponseInfo::new(Some("the-id".into()), Some("the-model-2".into()));
        assert!(heard.contains(&ProviderEvent::ResponseInfo(info)), "{wire:?}: {heard:?}");
        let sealed = heard.iter().any(|event| match event {
            ProviderEvent::ReasoningEnd(end) => {
                end.state.as_ref().is_some_and(|state| state.to_string().contains("sealed"))
            }
            _ => false,
        });
        // Chat Completions has no place for it.
        assert_eq!(sealed, wire != Wire::Chat, "{wire:?}: {heard:?}");
        let count = |wanted: fn(&ProviderEvent) -> bool| heard.iter().filter(|event| wanted(event)).count();
        assert_eq!(count(|event| matches!(event, ProviderEvent::ToolInputStart(_))), 1, "{wire:?}: {heard:?}");
        assert_eq!(count(|event| matches!(event, ProviderEvent::ToolCall(_))), 0, "{wire:?}: {heard:?}");
        assert_eq!(
            heard
                .last()
                .map(|event| matches!(event, ProviderEvent::Finish(finish) if finish.reason == FinishReason::Length)),
            Some(true)
        );
    }
    // A citation of a block, where the wire has them.
    for wire in [Wire::Responses, Wire::Messages] {
        let note = json!({"type": "char_location", "cited_text": "So"});
        let noted = note.clone();
        let script = script().step(move |s| {
            s.text_start("t")
                .text_delta("t", "So")
                .event(ProviderEvent::Annotation(Annotation::new(Some(0), "char_location", noted)))
                .text_end("t", None)
                .finish()
        });
        let server = Server::start(script).await.unwrap();
        let (heard, _) = hear(wire, &server).await;
        let annotation = ProviderEvent::Annotation(Annotation::new(Some(0), "char_location", note));
        assert!(heard.contains(&annotation), "{wire:?}: {heard:?}");
    }
}

#[tokio::test]
async fn failures_keep_their_class_before_the_stream_and_in_it() {
    let classes = [
        ErrorClass::RateLimit,
        ErrorClass::Overloaded,
        ErrorClass::Auth,
        ErrorClass::Quota,
        ErrorClass::ContentPolicy,
        ErrorClass::ContextOverflow,
        ErrorClass::PayloadTooLarge,
        ErrorClass::InvalidRequest,
        ErrorClass::Timeout,
    ];
    for wire in WIRES {
        for class in classes {
            // Google has no word for it: such an answer has a finish instead.
            if wire == Wire::Gemini && class == ErrorClass::ContentPolicy {
                continue;
            }
            let mut error = ProviderError::new(class, "");
            error.retry.after_ms = Some(1_500);
            error.retry.should_retry = Some(false);
            let script = script().fail(error.clone()).step(|s| s.text("So").error(ProviderError::new(class, "")));
            let server = Server::start(script).await.unwrap();
            let (_, heard) = hear(wire, &server).await;
            let heard = heard.unwrap();
            assert_eq!((heard.class, heard.retry), (class, error.retry), "{wire:?}: {heard}");
            // Inside a stream there is no status to tell by.
            if class == ErrorClass::PayloadTooLarge && wire == Wire::Gemini {
                continue;
            }
            let (events, end) = hear(wire, &server).await;
            let Some(ProviderEvent::Error(heard)) = events.last() else {
                panic!("{wire:?}, {class}: {events:?}, {end:?}")
            };
            assert_eq!((heard.class, end), (class, None), "{wire:?}: {heard}");
        }
        // A connection that closes without an answer, and one that is cut in the middle.
        let broken = ProviderError::new(ErrorClass::Transport, "");
        let script = script().fail(broken.clone()).step(|s| s.text("So").throw(broken));
        let server = Server::start(script).await.unwrap();
        for _ in 0..2 {
            assert_eq!(hear(wire, &server).await.1.map(|error| error.class), Some(ErrorClass::Transport), "{wire:?}");
        }
    }
}

#[tokio::test]
async fn it_is_strict() {
    let hosted = script().step(|s| s.hosted("h", "search", json!({})).finish());
    let server = Server::start(hosted).await.unwrap();
    let (_, error) = hear(Wire::Chat, &server).await;
    assert_eq!(error.unwrap().status, Some(400));
    let (_, error) = hear(Wire::Messages, &server).await;
    assert_eq!(error.unwrap().message, "the script has only 1 entries");
    assert_eq!(
        server.faults(),
        [
            "request 1: Chat Completions has no place for calls that the provider runs",
            "request 2: the script has only 1 entries"
        ]
    );
    let requests = server.requests();
    assert_eq!(requests[0].header("authorization"), Some("Bearer key-of-the-test"));
    assert_eq!((requests[0].wire, requests[1].wire), (Some(Wire::Chat), Some(Wire::Messages)));
    assert_eq!(requests[0].body["messages"], json!([{"role": "user", "content": "hello"}]));
}

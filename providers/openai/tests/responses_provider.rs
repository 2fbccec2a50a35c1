//! The provider against a small server on this machine, and everything that can go wrong between the two.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use settled_provider_api::{
    ErrorClass, FixedKey, Message, MessageId, ModelRef, Provider, ProviderError, ProviderEvent, ProviderStream,
    Purpose, Request, SessionId,
};
use settled_provider_openai::responses::{Dialect, OpenAiResponses};
use settled_provider_wire::Http;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What the server does when it has answered.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Closes,
    WaitsForTheOtherSide,
}

/// Answers one request with these bytes; gives the address, and the request when it has been read.
async fn serve(answer: impl Into<Vec<u8>>, then: Then) -> (String, JoinHandle<String>) {
    let answer = answer.into();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let read = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        let mut buffer = [0; 4_096];
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
                if body.len() >= length.parse().unwrap() {
                    connection.write_all(&answer).await.unwrap();
                    if then == Then::WaitsForTheOtherSide {
                        // It ends when the client closes, and hangs the test if it does not.
                        assert_eq!(connection.read(&mut buffer).await.unwrap_or(0), 0);
                    }
                    return text;
                }
            }
            let count = connection.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the request is cut: {text}");
            bytes.extend_from_slice(&buffer[..count]);
        }
    });
    (address, read)
}

fn client() -> Http {
    Http::builder().without_proxy().build().unwrap()
}

async fn open(http: &Http, base_url: String, dialect: &str) -> Result<ProviderStream, ProviderError> {
    let provider = OpenAiResponses::builder(base_url, Arc::new(FixedKey::new("key-of-the-test")))
        .dialect(Dialect::named(dialect).unwrap())
        .header("x-more", "of it")
        .http(http.clone())
        .build()?;
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(1));
    let mut request = Request::new(ModelRef::new("openai", "m"), purpose);
    request.messages.push(Arc::new(Message::user("hello")));
    provider.stream(Arc::new(request)).await
}

/// Everything that an answer comes out as: its events, and how it ended.
async fn run(http: &Http, answer: impl Into<Vec<u8>>) -> (Vec<ProviderEvent>, Option<ProviderError>) {
    let (address, served) = serve(answer, Then::Closes).await;
    let mut events = Vec::new();
    let mut stream = match open(http, format!("http://{address}"), "openai").await {
        Ok(stream) => stream,
        Err(error) => return (events, Some(error)),
    };
    while let Some(event) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => return (events, Some(error)),
        }
    }
    served.await.unwrap();
    (events, None)
}

fn ok(content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

const BODY: &str = concat!(
    "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r1\",\"model\":\"m\",\"status\":\"in_progress\"}}\n\n",
    "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"message\",\"id\":\"m1\"}}\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"output_index\":0,\"content_index\":0,\"delta\":\"h\u{e9}\"}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"message\",\"id\":\"m1\",\"content\":[{\"type\":\"output_text\",\"text\":\"h\u{e9}\"}]}}\n\n",
    "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":1,\"item\":{\"type\":\"function_call\",\"id\":\"f1\",\"call_id\":\"a\",\"name\":\"f\",\"arguments\":\"\"}}\n\n",
    "event: response.function_call_arguments.delta\ndata: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":1,\"delta\":\"{\\\"x\\\":1}\"}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{\"type\":\"function_call\",\"id\":\"f1\",\"call_id\":\"a\",\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\",\"status\":\"completed\"}}\n\n",
    "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":2,\"item\":{\"type\":\"function_call\",\"id\":\"f2\",\"call_id\":\"b\",\"name\":\"f\",\"arguments\":\"\"}}\n\n",
    "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":2,\"item\":{\"type\":\"function_call\",\"id\":\"f2\",\"call_id\":\"b\",\"name\":\"f\",\"arguments\":\"\",\"status\":\"completed\"}}\n\n",
    "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r1\",\"status\":\"completed\",\"output\":[],\"usage\":{\"input_tokens\":3,\"output_tokens\":5}}}\n\n",
    ": bye\n\n",
);

/// How many calls an answer has, and how often it finished.
fn calls_and_finishes(events: &[ProviderEvent]) -> (usize, usize) {
    let count = |wanted: fn(&ProviderEvent) -> bool| events.iter().filter(|event| wanted(event)).count();
    (
        count(|event| matches!(event, ProviderEvent::ToolCall(_))),
        count(|event| matches!(event, ProviderEvent::Finish(_))),
    )
}

#[tokio::test]
async fn a_stream_under_any_label() {
    let http = client();
    let (whole, error) = run(&http, ok("text/event-stream", BODY)).await;
    assert_eq!((error, calls_and_finishes(&whole)), (None, (2, 1)));
    for label in ["application/json", "text/html; charset=utf-8", "nonsense"] {
        assert_eq!(run(&http, ok(label, BODY)).await, (whole.clone(), None), "{label}");
    }
}

#[tokio::test]
async fn what_is_sent() {
    let http = client();
    for (dialect, base, target, auth) in [
        ("openai", "/v1", "/v1/responses", "authorization: Bearer key-of-the-test"),
        ("chatgpt", "/backend-api/codex/", "/backend-api/codex/responses", "authorization: Bearer key-of-the-test"),
        ("azure", "/openai/v1?api-version=2", "/openai/v1/responses?api-version=2", "api-key: key-of-the-test"),
        ("compatible", "/v1/responses", "/v1/responses", "authorization: Bearer key-of-the-test"),
    ] {
        let (address, sent) = serve(ok("text/event-stream", BODY), Then::Closes).await;
        drop(open(&http, format!("http://{address}{base}"), dialect).await.unwrap());
        let sent = sent.await.unwrap();
        let (head, body) = sent.split_once("\r\n\r\n").unwrap();
        let lines: Vec<&str> = head.lines().collect();
        assert_eq!(lines[0], format!("POST {target} HTTP/1.1"));
        for line in [auth, "x-more: of it", "content-type: application/json"] {
            assert!(lines.contains(&line), "{line} is not in {head}");
        }
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!((&body["model"], &body["stream"], &body["store"]), (&json!("m"), &json!(true), &json!(false)));
    }
}

#[tokio::test]
async fn cut_at_every_byte() {
    let http = client();
    let (whole, _) = run(&http, ok("text/event-stream", BODY)).await;
    // The first call is whole when its item ends; the second, without arguments, when the response has completed.
    let called = BODY.match_indices("\n\n").nth(6).unwrap().0;
    let finished = BODY.find("\n\n: bye").unwrap();
    for cut in 0..BODY.len() {
        // Broken off: the length says that there is more.
        let mut answer = ok("text/event-stream", BODY).into_bytes();
        answer.truncate(answer.len() - BODY.len() + cut);
        let (events, error) = run(&http, answer).await;
        assert_eq!(events, whole[..events.len()], "cut at {cut}");
        assert_eq!(error.map(|error| error.class), Some(ErrorClass::Transport), "cut at {cut}");
        let expected = if cut >= finished + 2 { (2, 1) } else { (usize::from(cut >= called + 2), 0) };
        assert_eq!(calls_and_finishes(&events), expected, "cut at {cut}");
        // The same bytes as a body that ends in order there.
        let mut answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_vec();
        answer.extend_from_slice(&BODY.as_bytes()[..cut]);
        let (events, error) = run(&http, answer).await;
        let expected = if cut >= finished { (2, 1) } else { (usize::from(cut >= called), 0) };
        assert_eq!((error, calls_and_finishes(&events)), (None, expected), "cut at {cut}");
    }
}

#[tokio::test]
async fn a_stall_is_ended_by_dropping_the_stream() {
    let http = client();
    let lines = BODY.find("event: response.output_item.done").unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n";
    let (address, served) = serve(format!("{head}{}", &BODY[..lines]), Then::WaitsForTheOtherSide).await;
    let mut stream = open(&http, format!("http://{address}"), "openai").await.unwrap();
    let mut events = Vec::new();
    while !matches!(events.last(), Some(ProviderEvent::TextDelta(_))) {
        events.push(poll_fn(|context| stream.as_mut().poll_next(context)).await.unwrap().unwrap());
    }
    let stalled = poll_fn(|context| Poll::Ready(stream.as_mut().poll_next(context).is_pending())).await;
    assert!(stalled && !served.is_finished());
    drop(stream);
    served.await.unwrap();
}

#[tokio::test]
async fn errors_inside_the_stream() {
    let http = client();
    let text_end = BODY.find("event: response.output_item.done").unwrap();
    let error =
        "event: error\ndata: {\"type\":\"error\",\"code\":\"server_is_overloaded\",\"message\":\"Overloaded\"}\n\n";
    let (events, failed) = run(&http, ok("text/event-stream", &format!("{}{error}", &BODY[..text_end]))).await;
    let busy = ProviderError::new(ErrorClass::Overloaded, "Overloaded").code("server_is_overloaded".to_owned());
    assert_eq!(
        events[events.len() - 3..],
        [ProviderEvent::text_delta(0, "h\u{e9}"), ProviderEvent::text_end(0), ProviderEvent::Error(busy)]
    );
    assert_eq!(failed, None);
    // A line that is no JSON ends the stream, with what came before it delivered.
    let (events, failed) =
        run(&http, ok("text/event-stream", &format!("{}data: {{garbage\n\n", &BODY[..text_end]))).await;
    assert_eq!(events.last(), Some(&ProviderEvent::text_delta(0, "h\u{e9}")));
    assert_eq!(failed.unwrap().class, ErrorClass::InvalidOutput);
    let (events, failed) = run(&http, ok("text/event-stream", "<html><title>Log in</title></html>")).await;
    assert_eq!((events, failed.unwrap().class), (vec![], ErrorClass::InvalidOutput));
}

#[tokio::test]
async fn failing_statuses() {
    let http = client();
    let answer = |status: u16, headers: &str, body: &str| {
        format!("HTTP/1.1 {status} No\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
    };
    let limit = r#"{"error":{"type":"tokens","code":"rate_limit_exceeded","message":"Slow down."}}"#;
    let limited =
        ProviderError::new(ErrorClass::RateLimit, "Slow down.").status(429).code("rate_limit_exceeded".to_owned());
    for (headers, seconds) in [
        ("", None),
        ("retry-after: 20\r\n", Some(20)),
        ("retry-after-ms: 20000\r\nretry-after: 99\r\n", Some(20)),
        ("date: Sun, 06 Nov 1994 08:49:37 GMT\r\nretry-after: Sun, 06 Nov 1994 08:49:57 GMT\r\n", Some(20)),
        ("x-ratelimit-remaining-tokens: 0\r\nx-ratelimit-reset-tokens: 20s\r\n", Some(20)),
    ] {
        let expected = limited.clone().retry_after(seconds.map(Duration::from_secs));
        assert_eq!(run(&http, answer(429, headers, limit)).await, (vec![], Some(expected)), "{headers}");
    }
    let said = async |status: u16, headers: &str, body: &str| {
        run(&http, answer(status, headers, body)).await.1.unwrap().to_string()
    };
    let busy = r#"{"error":{"type":"server_error","code":"server_is_overloaded","message":"Overloaded"}}"#;
    assert_eq!(said(529, "", busy).await, "overloaded: Overloaded (status 529, code server_is_overloaded)");
    assert_eq!(
        said(503, "content-type: text/html\r\n", "<html><title>Oh no</title></html>").await,
        "overloaded: HTTP 503 Service Unavailable (the body is a page with the title \"Oh no\") (status 503)"
    );
    assert_eq!(said(529, "", "").await, "overloaded: HTTP 529 (the body says nothing) (status 529)");
    let refused = run(&http, answer(500, "x-should-retry: false\r\n", "{}")).await.1.unwrap();
    assert_eq!((refused.class, refused.retry.should_retry), (ErrorClass::Overloaded, Some(false)));
}

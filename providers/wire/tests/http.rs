//! The HTTP shell against a small server on this machine: what streams, fails, breaks, and closes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use settled_provider_api::{Credentials, ErrorClass, FixedKey, ProviderError, ProviderEvent, ProviderStream, Secret};
use settled_provider_wire::{Authorization, Decoder, Http, HttpRequest, SseDecoder, SseItem, Tally};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A decoder whose events are the data of the stream's events: `!` fails, `?` is an error inside the stream.
#[derive(Default)]
struct Plain {
    sse: SseDecoder,
    tally: Tally,
}

impl Decoder for Plain {
    fn push(&mut self, bytes: &[u8], events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        self.sse.push(bytes);
        while let Some(item) = self.sse.pull() {
            match item? {
                SseItem::Event(event) if event.data == "!" => {
                    return Err(ProviderError::new(ErrorClass::InvalidOutput, "!"));
                }
                SseItem::Event(event) if event.data.starts_with('?') => {
                    events.push_back(ProviderEvent::Error(ProviderError::new(ErrorClass::Unknown, event.data)));
                }
                SseItem::Event(event) => events.push_back(ProviderEvent::text_delta(0, event.data)),
                SseItem::Comment(_) => self.tally.ignore("comment"),
            }
        }
        Ok(())
    }

    fn finish(&mut self, events: &mut VecDeque<ProviderEvent>) -> Result<(), ProviderError> {
        events.push_back(ProviderEvent::text_end(0));
        Ok(())
    }

    fn tally(&self) -> &Tally {
        &self.tally
    }
}

/// A server that answers one connection with these bytes; what it read comes out at the end.
struct Server {
    url: String,
    requests: tokio::task::JoinHandle<String>,
}

/// What a server does behind its answer.
enum Then {
    /// Closes in order.
    Close,
    /// Waits until the other side has closed, and notes it.
    AwaitClose(Arc<Mutex<bool>>),
}

async fn serve(answer: impl Into<Vec<u8>>, then: Then) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let answer = answer.into();
    let requests = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let request = read_request(&mut connection).await;
        connection.write_all(&answer).await.unwrap();
        if let Then::AwaitClose(closed) = then {
            let mut rest = Vec::new();
            // An orderly end and a reset both mean that the other side has gone.
            let _ = connection.read_to_end(&mut rest).await;
            *closed.lock().unwrap() = true;
        }
        request
    });
    Server { url, requests }
}

async fn read_request(connection: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if body.len() >= length.parse().unwrap() {
                return text;
            }
        }
        let count = connection.read(&mut buffer).await.unwrap();
        assert!(count > 0, "the request is cut: {text}");
        read.extend_from_slice(&buffer[..count]);
    }
}

fn http() -> Http {
    Http::builder().without_proxy().connect_limit(Duration::from_secs(5)).build().unwrap()
}

async fn open(request: HttpRequest) -> Result<ProviderStream, ProviderError> {
    http().stream(request, &FixedKey::new("key-of-the-test"), Box::new(Plain::default())).await
}

async fn next(stream: &mut ProviderStream) -> Option<Result<ProviderEvent, ProviderError>> {
    poll_fn(|context| stream.as_mut().poll_next(context)).await
}

/// Everything a request gives, one line each.
async fn gather(request: HttpRequest) -> Vec<String> {
    let mut stream = match open(request).await {
        Ok(stream) => stream,
        Err(error) => return vec![format!("failed {error}")],
    };
    let mut out = Vec::new();
    while let Some(item) = next(&mut stream).await {
        out.push(match item {
            Ok(ProviderEvent::TextDelta(delta)) => delta.text,
            Ok(ProviderEvent::TextEnd(_)) => "end".to_owned(),
            Ok(ProviderEvent::Error(error)) => format!("inside {error}"),
            Ok(other) => format!("{other:?}"),
            Err(error) => format!("broke {error}"),
        });
    }
    out
}

fn chunked(content_type: &str, chunks: &[&str]) -> String {
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n");
    for chunk in chunks {
        answer += &format!("{:x}\r\n{chunk}\r\n", chunk.len());
    }
    answer
}

#[tokio::test]
async fn a_stream_under_any_content_type() {
    for content_type in ["text/event-stream", "application/json", "text/html", "nonsense"] {
        let answer = chunked(content_type, &["data: on", "e\n\ndata: two\n\n", ": hm\n"]) + "0\r\n\r\n";
        let server = serve(answer, Then::Close).await;
        let mut request = HttpRequest::new("test", format!("{}/chat?x=1", server.url), b"{\"a\":1}".to_vec());
        request.headers.push(("x-more".to_owned(), "of it".to_owned()));
        assert_eq!(gather(request).await, ["one", "two", "end"], "{content_type}");
        let sent = server.requests.await.unwrap();
        let (head, body) = sent.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "{\"a\":1}");
        let mut lines: Vec<&str> = head.lines().filter(|line| !line.starts_with("host: ")).collect();
        lines[1..].sort_unstable();
        assert_eq!(
            lines,
            [
                "POST /v1/chat?x=1 HTTP/1.1",
                "accept-encoding: gzip",
                "accept: */*",
                "authorization: Bearer key-of-the-test",
                "content-length: 7",
                "content-type: application/json",
                concat!("user-agent: settled/", env!("CARGO_PKG_VERSION")),
                "x-more: of it",
            ]
        );
    }
}

#[tokio::test]
async fn gzip() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(b"data: small\n\n").unwrap();
    let body = encoder.finish().unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: ";
    let mut answer = format!("{head}{}\r\n\r\n", body.len()).into_bytes();
    answer.extend(body);
    let server = serve(answer, Then::Close).await;
    assert_eq!(gather(HttpRequest::new("test", server.url, Vec::new())).await, ["small", "end"]);
}

#[tokio::test]
async fn failing_statuses() {
    let check = async |answer: &str, expected: ProviderError| {
        let server = serve(answer, Then::Close).await;
        let error = open(HttpRequest::new("test", server.url, Vec::new())).await.err().expect("a failure");
        assert_eq!(error, expected, "{answer}");
    };
    check(
        "HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\nx-should-retry: true\r\ncontent-length: 71\r\n\r\n{\"error\":{\"message\":\"Slow down, key-of-the-test.\",\"code\":\"rate_limit\"}}",
        ProviderError::new(ErrorClass::RateLimit, "Slow down, [redacted].")
            .status(429)
            .code("rate_limit".to_owned())
            .retry_after(Duration::from_secs(7))
            .should_retry(true),
    )
    .await;
    check(
        "HTTP/1.1 500 Oh\r\ncontent-type: text/event-stream\r\ncontent-length: 49\r\n\r\n<html><title>Oh no</title><body>x</body></html>\r\n",
        ProviderError::new(
            ErrorClass::Overloaded,
            "HTTP 500 Internal Server Error (the body is a page with the title \"Oh no\")",
        )
        .status(500),
    )
    .await;
    // A body that breaks off has said what it said.
    check(
        "HTTP/1.1 503 Busy\r\ncontent-length: 400\r\n\r\nbusy",
        ProviderError::new(ErrorClass::Overloaded, "busy").status(503),
    )
    .await;
    // A redirect is not followed: the key would travel.
    check(
        "HTTP/1.1 307 There\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        ProviderError::new(ErrorClass::InvalidRequest, "HTTP 307 Temporary Redirect (the body says nothing)")
            .status(307),
    )
    .await;
}

#[tokio::test]
async fn a_body_that_breaks_is_a_transport_error_behind_its_events() {
    let answer = chunked("text/event-stream", &["data: one\n\n", "data: tw"]);
    let server = serve(answer, Then::Close).await;
    let url = server.url.clone();
    let out = gather(HttpRequest::new("test", server.url, Vec::new())).await;
    assert_eq!(out[0], "one");
    let place = url.strip_suffix("/v1").unwrap();
    let start = format!("broke transport: the connection to {place} broke while the answer was arriving: ");
    assert!(out[1].starts_with(&start), "{out:?}");
    assert_eq!(out.len(), 2);
}

#[tokio::test]
async fn an_error_inside_the_stream_shows_no_key() {
    let answer = chunked("text/event-stream", &["data: ?bad key-of-the-test\n\n"]) + "0\r\n\r\n";
    let server = serve(answer, Then::Close).await;
    let out = gather(HttpRequest::new("test", server.url, Vec::new())).await;
    assert_eq!(out, ["inside unknown: ?bad [redacted]", "end"]);
}

#[tokio::test]
async fn what_does_not_decode_closes_the_connection_behind_its_events() {
    let closed = Arc::new(Mutex::new(false));
    let answer = chunked("text/event-stream", &["data: one\n\ndata: !\n\ndata: three\n\n"]);
    let server = serve(answer, Then::AwaitClose(Arc::clone(&closed))).await;
    let mut stream = open(HttpRequest::new("test", server.url, Vec::new())).await.unwrap();
    assert_eq!(next(&mut stream).await, Some(Ok(ProviderEvent::text_delta(0, "one"))));
    assert_eq!(next(&mut stream).await, Some(Err(ProviderError::new(ErrorClass::InvalidOutput, "!"))));
    assert_eq!(next(&mut stream).await, None);
    server.requests.await.unwrap();
    assert!(*closed.lock().unwrap());
}

#[tokio::test]
async fn dropping_the_stream_closes_the_connection() {
    let closed = Arc::new(Mutex::new(false));
    let answer = chunked("text/event-stream", &["data: one\n\n"]);
    let server = serve(answer, Then::AwaitClose(Arc::clone(&closed))).await;
    let mut stream = open(HttpRequest::new("test", server.url, Vec::new())).await.unwrap();
    assert_eq!(next(&mut stream).await, Some(Ok(ProviderEvent::text_delta(0, "one"))));
    assert!(!*closed.lock().unwrap());
    drop(stream);
    server.requests.await.unwrap();
    assert!(*closed.lock().unwrap());
}

#[tokio::test]
async fn dropping_the_future_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let mut future = Box::pin(open(HttpRequest::new("test", url, Vec::new())));
    let mut connection = tokio::select! {
        _ = &mut future => panic!("there is no answer yet"),
        accepted = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            read_request(&mut connection).await;
            connection
        } => accepted,
    };
    drop(future);
    let mut rest = Vec::new();
    // An orderly end and a reset both mean that the other side has gone.
    let _ = connection.read_to_end(&mut rest).await;
}

#[tokio::test]
async fn no_connection() {
    // A port that was free a moment ago: nothing listens there now.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let url = format!("http://name:password@127.0.0.1:{port}/v1?key=secret");
    let out = gather(HttpRequest::new("test", url, Vec::new())).await;
    let expected = format!(
        "failed transport: http://127.0.0.1:{port} refuses connections: is the server running? start it, or check --base-url"
    );
    assert_eq!(out, [expected]);
    // A server that hangs up at once.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = format!("http://{}", listener.local_addr().unwrap());
    let hang_up = tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        read_request(&mut connection).await;
    });
    let out = gather(HttpRequest::new("test", place.clone(), Vec::new())).await;
    assert!(
        out[0].starts_with(&format!("failed transport: the connection to {place} broke before the response: ")),
        "{out:?}"
    );
    hang_up.await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_before_anything_is_sent() {
    let check = async |request: HttpRequest, key: &str, expected: &str| {
        let result = http().stream(request, &FixedKey::new(key), Box::new(Plain::default())).await;
        assert_eq!(result.err().expect("a failure").to_string(), expected);
    };
    let to = |url: &str| HttpRequest::new("test", url, Vec::new());
    check(
        to("localhost"),
        "key-of-the-test",
        "invalid_request: the base URL does not make a URL (relative URL without a base): check --base-url",
    )
    .await;
    check(
        to("http://127.0.0.1:1"),
        "key-of\n-the-test",
        "invalid_request: the value of the header \"authorization\" has characters that no header may have; a key must have no line break",
    )
    .await;
    let mut request = to("http://127.0.0.1:1");
    request.authorization = Authorization::Header("no name".to_owned());
    check(request, "key-of-the-test", "invalid_request: \"no name\" is not the name of a header").await;
}

/// Credentials that count and turn: each request gets another key.
#[derive(Default)]
struct Turning(Mutex<Vec<String>>);

#[async_trait]
impl Credentials for Turning {
    async fn key(&self, provider: &str) -> Result<Option<Secret>, ProviderError> {
        let mut asked = self.0.lock().unwrap();
        asked.push(provider.to_owned());
        match asked.len() {
            1 => Ok(Some(Secret::new("first-key"))),
            2 => Ok(None),
            _ => Err(ProviderError::new(ErrorClass::Auth, "set TEST_KEY")),
        }
    }
}

#[tokio::test]
async fn keys_are_asked_for_each_request() {
    let (http, credentials) = (http(), Turning::default());
    let mut seen = Vec::new();
    for _ in 0..2 {
        let server = serve("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Then::Close).await;
        let mut request = HttpRequest::new("test", server.url, Vec::new());
        request.authorization = Authorization::Header("api-key".to_owned());
        drop(http.stream(request, &credentials, Box::new(Plain::default())).await.unwrap());
        let sent = server.requests.await.unwrap();
        seen.push(sent.lines().find(|line| line.starts_with("api-key")).map(str::to_owned));
    }
    assert_eq!(seen, [Some("api-key: first-key".to_owned()), None]);
    let request = HttpRequest::new("test", "http://127.0.0.1:1", Vec::new());
    let error = http.stream(request, &credentials, Box::new(Plain::default())).await.err().unwrap();
    assert_eq!(error, ProviderError::new(ErrorClass::Auth, "set TEST_KEY"));
    assert_eq!(*credentials.0.lock().unwrap(), ["test"; 3]);
}

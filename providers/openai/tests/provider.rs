//! The provider against a small server on this machine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use settled_provider_api::{
    ErrorClass, FinishReason, FixedKey, Message, MessageId, ModelRef, Provider, ProviderError, ProviderEvent, Purpose,
    Request, SessionId, Usage,
};
use settled_provider_openai::chat::{Dialect, OpenAiChat};
use settled_provider_wire::Http;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Answers one request with these bytes; gives the address, and the request when it has been read.
async fn serve(answer: String) -> (String, tokio::task::JoinHandle<String>) {
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
                    connection.write_all(answer.as_bytes()).await.unwrap();
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

fn request() -> Arc<Request> {
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(1));
    let mut request = Request::new(ModelRef::new("azure", "m"), purpose);
    request.messages.push(Arc::new(Message::user("hello")));
    Arc::new(request)
}

async fn run(base_url: String, dialect: &str) -> Result<Vec<ProviderEvent>, ProviderError> {
    let provider = OpenAiChat::builder(base_url, Arc::new(FixedKey::new("key-of-the-test")))
        .dialect(Dialect::named(dialect).unwrap())
        .header("x-more", "of it")
        .http(Http::builder().without_proxy().build()?)
        .build()?;
    let mut stream = provider.stream(request()).await?;
    let mut events = Vec::new();
    while let Some(event) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        events.push(event?);
    }
    Ok(events)
}

fn ok(content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

const BODY: &str = concat!(
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n",
    "data: [DONE]\n\n",
);

fn events() -> Vec<ProviderEvent> {
    let mut finish = settled_provider_api::Finish::new(FinishReason::Stop).raw("stop");
    finish.usage = Some(Usage::new(3, 1));
    vec![
        ProviderEvent::text_start(0),
        ProviderEvent::text_delta(0, "hi"),
        ProviderEvent::Alive,
        ProviderEvent::text_end(0),
        ProviderEvent::Finish(finish),
    ]
}

#[tokio::test]
async fn a_stream_under_any_label() {
    for (dialect, base, target, auth) in [
        ("compatible", "/v1/", "/v1/chat/completions", "authorization: Bearer key-of-the-test"),
        (
            "azure",
            "/openai/deployments/m?api-version=2",
            "/openai/deployments/m/chat/completions?api-version=2",
            "api-key: key-of-the-test",
        ),
        ("compatible", "/v1/chat/completions", "/v1/chat/completions", "authorization: Bearer key-of-the-test"),
    ] {
        let (address, sent) = serve(ok("application/json", BODY)).await;
        assert_eq!(run(format!("http://{address}{base}"), dialect).await, Ok(events()));
        let sent = sent.await.unwrap();
        let (head, body) = sent.split_once("\r\n\r\n").unwrap();
        let lines: Vec<&str> = head.lines().collect();
        assert_eq!(lines[0], format!("POST {target} HTTP/1.1"));
        assert!(lines.contains(&auth) && lines.contains(&"x-more: of it"), "{head}");
        let body: Value = serde_json::from_str(body).unwrap();
        assert_eq!((&body["model"], &body["stream"]), (&json!("m"), &json!(true)));
    }
}

#[tokio::test]
async fn failures() {
    let body = r#"{"error":{"message":"Slow down.","code":"rate_limit_exceeded"}}"#;
    let (address, _sent) =
        serve(format!("HTTP/1.1 429 No\r\nretry-after: 20\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await;
    let expected = ProviderError::new(ErrorClass::RateLimit, "Slow down.")
        .status(429)
        .code("rate_limit_exceeded".to_owned())
        .retry_after(Duration::from_secs(20));
    assert_eq!(run(format!("http://{address}/v1"), "compatible").await, Err(expected));
    let page = "<html><title>Oh no</title></html>";
    let (address, _sent) = serve(format!("HTTP/1.1 500 No\r\ncontent-length: {}\r\n\r\n{page}", page.len())).await;
    let error = run(format!("http://{address}/v1"), "compatible").await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "overloaded: HTTP 500 Internal Server Error (the body is a page with the title \"Oh no\") (status 500)"
    );
    let (address, _sent) = serve(ok("text/event-stream", page)).await;
    let error = run(format!("http://{address}/v1"), "compatible").await.unwrap_err();
    assert_eq!(error.class, ErrorClass::InvalidOutput);
    // Cut in the middle of the body.
    let (address, _sent) = serve(format!("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\n{BODY}")).await;
    let error = run(format!("http://{address}/v1"), "compatible").await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Transport);
}

//! The provider against a small server on this machine.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use settled_provider_api::{
    ErrorClass, Finish, FinishReason, FixedKey, Message, MessageId, ModelRef, Options, Provider, ProviderError,
    ProviderEvent, Purpose, Request, ResponseInfo, SessionId, Usage,
};
use settled_provider_gemini::{Dialect, Gemini};
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

fn request(model: &str) -> Arc<Request> {
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(1));
    let mut request = Request::new(ModelRef::new("google", model), purpose);
    request.messages.push(Arc::new(Message::user("hello there")));
    let mut options = Options::default();
    options.service_tier = Some("flex".to_owned());
    request.options = Arc::new(options);
    Arc::new(request)
}

async fn run(base_url: String, dialect: &str, model: &str) -> Result<Vec<ProviderEvent>, ProviderError> {
    let provider = Gemini::builder(base_url, Arc::new(FixedKey::new("key-of-the-test")))
        .dialect(Dialect::named(dialect).unwrap())
        .header("x-more", "of it")
        .http(Http::builder().without_proxy().build()?)
        .build()?;
    let mut stream = provider.stream(request(model)).await?;
    let mut events = Vec::new();
    while let Some(event) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        events.push(event?);
    }
    Ok(events)
}

fn ok(content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn failing(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} No\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

const CHUNK: &str = "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hi\"}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":3,\"candidatesTokenCount\":1},\"modelVersion\":\"m-1\"}";

fn events() -> Vec<ProviderEvent> {
    vec![
        ProviderEvent::ResponseInfo(ResponseInfo::new(None, Some("m-1".to_owned()))),
        ProviderEvent::text_start(0),
        ProviderEvent::text_delta(0, "hi"),
        ProviderEvent::text_end(0),
        ProviderEvent::Finish(Finish::new(FinishReason::Stop).raw("STOP").usage(Usage::new(3, 1))),
    ]
}

#[tokio::test]
async fn a_stream_under_any_label_and_in_any_framing() {
    let developer = "/v1beta/models/m:streamGenerateContent?alt=sse";
    let vertex = "/v1/projects/p/locations/l/publishers/google/models/m:streamGenerateContent?alt=sse";
    let key = "x-goog-api-key: key-of-the-test";
    let token = "authorization: Bearer key-of-the-test";
    for (dialect, base, model, target, auth) in [
        ("gemini", "/v1beta", "m", developer, key),
        ("gemini", "/v1beta/models/", "m", developer, key),
        ("gemini", "/v1beta", "tunedModels/m", "/v1beta/tunedModels/m:streamGenerateContent?alt=sse", key),
        ("gemini", "/v1beta?a=b", "m", "/v1beta/models/m:streamGenerateContent?a=b&alt=sse", key),
        ("vertex", "/v1/projects/p/locations/l", "m", vertex, token),
        ("vertex", "/v1/projects/p/locations/l/publishers/google", "m", vertex, token),
        ("vertex", "/v1/projects/p/locations/l/publishers/google/models", "m", vertex, token),
        ("vertex", "/v1", "projects/p/endpoints/1", "/v1/projects/p/endpoints/1:streamGenerateContent?alt=sse", token),
    ] {
        for answer in [
            ok("text/event-stream", &format!("data: {CHUNK}\r\n\r\n")),
            ok("application/json", &format!("[{CHUNK}\n]")),
            ok("text/html", CHUNK),
        ] {
            let (address, sent) = serve(answer).await;
            assert_eq!(run(format!("http://{address}{base}"), dialect, model).await, Ok(events()));
            let sent = sent.await.unwrap();
            let (head, body) = sent.split_once("\r\n\r\n").unwrap();
            let lines: Vec<&str> = head.lines().collect();
            assert_eq!(lines[0], format!("POST {target} HTTP/1.1"));
            assert!(lines.contains(&auth) && lines.contains(&"x-more: of it"), "{head}");
            let tier = lines.contains(&"x-vertex-ai-llm-shared-request-type: flex");
            let mut expected = json!({"contents": [{"role": "user", "parts": [{"text": "hello there"}]}]});
            if dialect == "gemini" {
                expected["serviceTier"] = json!("flex");
            }
            assert_eq!((serde_json::from_str::<Value>(body).unwrap(), tier), (expected, dialect == "vertex"));
        }
    }
}

#[tokio::test]
async fn failures() {
    let check = async |answer: String, expected: ProviderError| {
        let (address, _sent) = serve(answer).await;
        assert_eq!(run(format!("http://{address}/v1beta"), "gemini", "m").await, Err(expected));
    };
    let quota = |limit: u64| {
        json!({"error": {"code": 429, "message": format!("Quota exceeded for metric: x_input_token_count, limit: {limit}, model: m"),
            "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "48s"}]}})
    };
    let limited = |class: ErrorClass, limit: u64| {
        ProviderError::new(class, format!("Quota exceeded for metric: x_input_token_count, limit: {limit}, model: m"))
            .status(429)
            .code("RESOURCE_EXHAUSTED".to_owned())
    };
    let forty_eight = Duration::from_secs(48);
    check(
        failing(429, "", &quota(1_000_000).to_string()),
        limited(ErrorClass::RateLimit, 1_000_000).retry_after(forty_eight),
    )
    .await;
    // The header goes before the body.
    check(
        failing(429, "retry-after: 5\r\n", &quota(1_000_000).to_string()),
        limited(ErrorClass::RateLimit, 1_000_000).retry_after(Duration::from_secs(5)),
    )
    .await;
    // "hello there", its role and its tier are more than a token: this can never be met.
    check(failing(429, "", &quota(1).to_string()), limited(ErrorClass::ContextOverflow, 1)).await;
    // The status goes before the label, and the list of one error is that error.
    let list = json!([{"error": {"code": 404, "message": "No such model.", "status": "NOT_FOUND"}}]);
    check(
        failing(404, "content-type: text/event-stream\r\n", &format!("{list:#}")),
        ProviderError::new(ErrorClass::InvalidRequest, "No such model.").status(404).code("NOT_FOUND".to_owned()),
    )
    .await;
    check(
        failing(503, "retry-after: 1\r\n", "<html><title>Oh no</title></html>"),
        ProviderError::new(
            ErrorClass::Overloaded,
            "HTTP 503 Service Unavailable (the body is a page with the title \"Oh no\")",
        )
        .status(503)
        .retry_after(Duration::from_secs(1)),
    )
    .await;
    let error = json!({"error": {"code": 429, "message": "Slow.", "status": "RESOURCE_EXHAUSTED"}});
    // Inside a stream of status 200, also without its framing.
    for body in [format!("data: {CHUNK}\n\ndata: {error}\n\n"), format!("data: {CHUNK}\n\n{error:#}\n")] {
        let (address, _sent) = serve(ok("text/event-stream", &body)).await;
        let events = run(format!("http://{address}/v1beta"), "gemini", "m").await.unwrap();
        let slow = ProviderError::new(ErrorClass::RateLimit, "Slow.").status(429).code("RESOURCE_EXHAUSTED".to_owned());
        assert_eq!(events.last(), Some(&ProviderEvent::Error(slow)));
    }
    // A page where a stream should be, a line of garbage, a body that is cut: typed, and no finish.
    for (answer, class) in [
        (ok("text/event-stream", "<html></html>"), ErrorClass::InvalidOutput),
        (ok("text/event-stream", &format!("data: {CHUNK}\n\ndata: garbage\n\n")), ErrorClass::InvalidOutput),
        (format!("HTTP/1.1 200 OK\r\ncontent-length: 9999\r\n\r\ndata: {CHUNK}\n\n"), ErrorClass::Transport),
    ] {
        let (address, _sent) = serve(answer).await;
        let error = run(format!("http://{address}/v1beta"), "gemini", "m").await.unwrap_err();
        assert_eq!(error.class, class, "{error}");
    }
}

#[test]
fn profiles() {
    assert_eq!(Dialect::all().len(), 2);
    for (url, name) in [
        (Gemini::DEVELOPER_API, "gemini"),
        ("https://us-central1-aiplatform.googleapis.com/v1/projects/p", "vertex"),
        ("https://aiplatform.googleapis.com/v1", "vertex"),
        ("https://user@AIPLATFORM.googleapis.com:443?x", "vertex"),
        ("https://evilaiplatform.googleapis.com", "gemini"),
        ("http://localhost:8080/v1", "gemini"),
        ("", "gemini"),
    ] {
        assert_eq!(Dialect::of_url(url).name, name, "{url}");
    }
    assert_eq!(Dialect::named("bedrock"), None);
    let provider = Gemini::new(Gemini::DEVELOPER_API, Arc::new(FixedKey::new("secret-key"))).unwrap();
    assert_eq!(format!("{provider:?}"), "Gemini { dialect: \"gemini\", .. }");
}

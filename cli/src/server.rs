//! A scripted server on this machine that speaks the wire format of Chat Completions, and says recorded bodies of any wire: for the demo, and for tests of the command.
//!
//! Each request gets the script's next reply, in the order of arrival, on a connection of its own.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The most that is taken of a request's head or body.
const LARGEST: u64 = 16 * 1024 * 1024;

/// A scripted server; it stops when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    script: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<Received>>,
}

/// A request that came.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// The path, and the query behind it.
    pub target: String,
    /// The headers, their names in small letters.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Value,
}

impl Received {
    /// The value of a header, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What a request is answered with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reply {
    /// A stream of events.
    Stream(Vec<Part>),
    /// A status and a JSON body.
    Status(u16, Value),
    /// A body as it was recorded, with its status and content type.
    Recorded {
        /// The status.
        status: u16,
        /// The content type.
        content_type: String,
        /// The body.
        body: Vec<u8>,
    },
}

/// One part of a stream.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Part {
    /// A piece of text.
    Text(String),
    /// A whole call: id, name, arguments.
    Call(String, String, Value),
    /// The finish, in the wire's words, then a chunk of usage: tokens in and out.
    Finish(&'static str, u64, u64),
    /// An error inside the stream.
    Error(Value),
    /// A pause.
    Wait(Duration),
    /// The connection is cut here.
    Cut,
    /// Nothing more comes, and the connection stays open.
    Hang,
}

impl Part {
    /// A piece of text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// A whole call.
    pub fn call(id: &str, name: &str, arguments: Value) -> Self {
        Self::Call(id.to_owned(), name.to_owned(), arguments)
    }
}

impl Reply {
    /// An answer of text alone.
    pub fn text(text: &str) -> Self {
        let pieces = text.split_inclusive(' ').map(Part::text);
        Self::Stream(pieces.chain([Part::Finish("stop", 12, 5)]).collect())
    }

    /// An answer of calls alone.
    pub fn calls(calls: impl IntoIterator<Item = Part>) -> Self {
        Self::Stream(calls.into_iter().chain([Part::Finish("tool_calls", 20, 10)]).collect())
    }
}

impl Server {
    /// Starts a server on a free port of this machine; must be called in a tokio runtime.
    pub async fn start(script: impl IntoIterator<Item = Reply>) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let script = script.into_iter().collect();
        let shared = Arc::new(Shared { script: Mutex::new(script), requests: Mutex::default() });
        let serving = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                // A client that goes away ends its own connection and nothing else.
                tokio::spawn(async move { serve(connection, &shared).await });
            }
        });
        Ok(Self { address, shared, accepting })
    }

    /// The base URL to give to a client.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<Received> {
        lock(&self.shared.requests).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(connection: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut connection = BufReader::new(connection);
    let Some(request) = read(&mut connection).await? else { return Ok(()) };
    let number = {
        let mut requests = lock(&shared.requests);
        requests.push(request);
        requests.len()
    };
    let next = lock(&shared.script).pop_front();
    let connection = connection.get_mut();
    match next {
        Some(Reply::Stream(parts)) => stream(connection, number, parts).await,
        Some(Reply::Status(status, body)) => {
            whole(connection, status, "application/json", body.to_string().as_bytes()).await
        }
        Some(Reply::Recorded { status, content_type, body }) => whole(connection, status, &content_type, &body).await,
        None => {
            let message = format!("the script has no reply to request {number}");
            let body = json!({"error": {"message": message, "type": "invalid_request_error"}});
            whole(connection, 400, "application/json", body.to_string().as_bytes()).await
        }
    }
}

/// Reads a request; `None` if the client went away, or what came is no request.
async fn read(connection: &mut BufReader<TcpStream>) -> io::Result<Option<Received>> {
    let (mut target, mut headers) = (None, Vec::new());
    let mut head = connection.take(LARGEST);
    loop {
        let mut line = String::new();
        if head.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        match (line.trim_end(), &target) {
            ("", _) => break,
            (first, None) => target = first.split(' ').nth(1).map(str::to_owned),
            (header, Some(_)) => {
                let (name, value) = header.split_once(':').unwrap_or((header, ""));
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
        }
    }
    let mut received = Received { target: target.unwrap_or_default(), headers, body: Value::Null };
    let length = received.header("content-length").and_then(|length| length.parse().ok()).unwrap_or_default();
    if length > LARGEST {
        return Ok(None);
    }
    let mut body = Vec::new();
    connection.take(length).read_to_end(&mut body).await?;
    let Ok(body) = serde_json::from_slice(&body) else { return Ok(None) };
    received.body = body;
    Ok(Some(received))
}

async fn whole(connection: &mut TcpStream, status: u16, content_type: &str, body: &[u8]) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} scripted\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await?;
    connection.write_all(body).await?;
    connection.shutdown().await
}

async fn stream(connection: &mut TcpStream, number: usize, parts: Vec<Part>) -> io::Result<()> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";
    connection.write_all(head.as_bytes()).await?;
    let chunk = |choices: Value, usage: Value| {
        json!({
            "id": format!("chatcmpl-{number}"), "object": "chat.completion.chunk", "created": 1, "model": "scripted",
            "choices": choices, "usage": usage,
        })
    };
    let delta = |delta: Value, finish: Value| {
        chunk(json!([{"index": 0, "delta": delta, "finish_reason": finish}]), Value::Null)
    };
    let mut calls = 0;
    event(connection, &delta(json!({"role": "assistant", "content": ""}), Value::Null).to_string()).await?;
    for part in parts {
        match part {
            Part::Text(text) => {
                event(connection, &delta(json!({"content": text}), Value::Null).to_string()).await?;
            }
            Part::Call(id, name, arguments) => {
                let arguments = arguments.to_string();
                let function = json!({"name": name, "arguments": ""});
                let begun =
                    json!({"tool_calls": [{"index": calls, "id": id, "type": "function", "function": function}]});
                event(connection, &delta(begun, Value::Null).to_string()).await?;
                let more = json!({"tool_calls": [{"index": calls, "function": {"arguments": arguments}}]});
                event(connection, &delta(more, Value::Null).to_string()).await?;
                calls += 1;
            }
            Part::Finish(reason, input, output) => {
                event(connection, &delta(json!({}), reason.into()).to_string()).await?;
                let usage = json!({
                    "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
                });
                event(connection, &chunk(json!([]), usage).to_string()).await?;
            }
            Part::Error(error) => event(connection, &json!({"error": error}).to_string()).await?,
            Part::Wait(span) => sleep(span).await,
            Part::Cut => return Ok(()),
            Part::Hang => {
                // Until the client goes away.
                let mut nothing = [0; 1];
                while connection.read(&mut nothing).await? > 0 {}
                return Ok(());
            }
        }
    }
    event(connection, "[DONE]").await?;
    connection.write_all(b"0\r\n\r\n").await?;
    connection.shutdown().await
}

/// Writes one event, as a chunk of the body.
async fn event(connection: &mut TcpStream, data: &str) -> io::Result<()> {
    let event = format!("data: {data}\n\n");
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    connection.write_all(chunk.as_bytes()).await
}

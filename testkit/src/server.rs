//! A scripted server on this machine that speaks the wires of model providers.
//!
//! One [`Script`] serves every wire: the path of a request says which one it is answered in.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! use serde_json::json;
//! use settled_testkit::script;
//! use settled_testkit::server::{Fault, Server, Wire};
//! # use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
//!
//! let script = script()
//!     .step(|s| s.call("charge", json!({"cents": 500})).finish())
//!     .step(|s| s.text("Done.").finish());
//! // The second answer breaks off after 100 bytes.
//! let server = Server::builder(script).fault(2, Fault::CutAt(100)).start().await?;
//!
//! // Give this to an adapter; here a bare request stands for it.
//! assert!(server.base_url(Wire::Chat).starts_with("http://127.0.0.1:"));
//! # let address = server.address();
//! # let mut connection = tokio::net::TcpStream::connect(address).await?;
//! # connection.write_all(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 13\r\n\r\n{\"model\":\"m\"}").await?;
//! # let mut answer = String::new();
//! # connection.read_to_string(&mut answer).await?;
//! assert!(answer.contains(r#""finish_reason":"tool_calls""#) && answer.contains("data: [DONE]"));
//! assert_eq!(server.requests()[0].body, json!({"model": "m"}));
//! # Ok(())
//! # }
//! ```
//!
//! # What a script comes out as
//!
//! | in the script | on the wire |
//! |---|---|
//! | text, reasoning, calls, hosted calls, notes | the wire's own events, in order, each sent by itself |
//! | `response_info` | the id and the model of the answer |
//! | the state of reasoning | the wire's opaque field for it: a text as it is, anything else as JSON |
//! | a finish, with usage | the wire's own words and counts, and its end marker |
//! | an error inside the stream | the wire's error event |
//! | `wait`, `gate`, `hang` | nothing comes meanwhile; the connection stays open |
//! | `throw`, `panic` | the connection is cut |
//! | no finish | the body ends in order, without a finish |
//! | `fail` | a status, headers and an error body from which the same class can be told; `transport` closes the connection without an answer |
//!
//! What a wire has no place for is left out where it is only a note or state, and else is a [fault of the script](Server::faults): the request is answered with status 400, and says why.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::script::{Answer, Entry, Gates, Script};

mod http;

mod wire;

mod chat;

mod responses;

mod messages;

mod gemini;

mod refusal;

/// The wires that a [`Server`] speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// Chat Completions of OpenAI: `…/chat/completions`.
    Chat,
    /// The Responses API of OpenAI: `…/responses`.
    Responses,
    /// The Messages API of Anthropic: `…/messages`.
    Messages,
    /// `streamGenerateContent` of Gemini with `alt=sse`.
    Gemini,
    /// `streamGenerateContent` of Gemini without it: one JSON array that grows.
    GeminiArray,
}

impl Wire {
    /// Every wire.
    pub const ALL: [Self; 5] = [Self::Chat, Self::Responses, Self::Messages, Self::Gemini, Self::GeminiArray];

    /// The whole body of the answer that an entry of a script gives, without its waits; `None` where there is no such entry, or it is a failure.
    ///
    /// Requests are counted from 1.
    ///
    /// # Errors
    ///
    /// What the wire has no place for.
    pub fn body(self, script: &Script, request: usize) -> Option<Result<Vec<u8>, String>> {
        let entry = script.entries.get(request.checked_sub(1)?)?;
        let Answer::Stream(items) = &entry.answer else { return None };
        Some(wire::render(self, items, request, "scripted-model").map(|pieces| wire::bytes(&pieces)))
    }

    /// The content type of its streams.
    fn content_type(self) -> &'static str {
        match self {
            Self::GeminiArray => "application/json; charset=UTF-8",
            _ => "text/event-stream; charset=utf-8",
        }
    }

    /// The wire of a request's target.
    fn of(target: &str) -> Option<Self> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let sse = query.split('&').any(|pair| pair == "alt=sse");
        match path {
            _ if path.ends_with("/chat/completions") => Some(Self::Chat),
            _ if path.ends_with("/responses") => Some(Self::Responses),
            _ if path.ends_with("/messages") => Some(Self::Messages),
            _ if path.ends_with(":streamGenerateContent") && sse => Some(Self::Gemini),
            _ if path.ends_with(":streamGenerateContent") => Some(Self::GeminiArray),
            _ => None,
        }
    }
}

/// What goes wrong between an answer and whoever reads it.
///
/// Several may go wrong with one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The connection is closed after so many bytes of the body, in the middle of what was announced.
    CutAt(usize),
    /// The body ends after so many bytes, in order.
    EndAt(usize),
    /// Nothing more comes after so many bytes of the body, and the connection stays open until the client leaves.
    StallAt(usize),
    /// These bytes stand in front of an event of the body, counted from 0, or behind all.
    Insert {
        /// The event.
        before: usize,
        /// The bytes, with their own line ends.
        bytes: Vec<u8>,
    },
    /// The content type says this.
    ContentType(String),
    /// A further header.
    Header(String, String),
    /// Another answer comes instead: a status with a body, and no headers but a content type and those of [`Header`](Self::Header).
    Instead {
        /// The status.
        status: u16,
        /// The content type.
        content_type: String,
        /// The body.
        body: Vec<u8>,
    },
    /// The headers come so much later.
    SlowHeaders(Duration),
    /// Half of the headers come, and nothing more until the client leaves.
    StallInHeaders,
    /// The body is sent with `content-encoding: gzip`.
    Gzip,
    /// The body comes in pieces of so many bytes instead of whole events.
    Pieces(usize),
}

/// A request as it came.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Received {
    /// The wire that its path belongs to.
    pub wire: Option<Wire>,
    /// Path and query.
    pub target: String,
    /// Its headers, names in small letters, in order.
    pub headers: Vec<(String, String)>,
    /// Its body; null where it is no JSON.
    pub body: Value,
}

impl Received {
    /// The value of a header, by its name in small letters.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// How a [`Server`] is made.
#[derive(Clone, Debug)]
#[must_use = "a server does nothing before it is started"]
pub struct ServerBuilder {
    script: Script,
    faults: BTreeMap<usize, Vec<Fault>>,
}

/// A scripted server on a free port of this machine; it stops when it is dropped.
///
/// Each request gets the script's next entry, in the order of arrival, on a connection of its own.
/// It is strict like [`ScriptedProvider`](crate::ScriptedProvider): a request beyond the script is refused and kept as a fault.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    entries: Vec<Entry>,
    faults: BTreeMap<usize, Vec<Fault>>,
    gates: Gates,
    seen: Mutex<Seen>,
    connections: AtomicUsize,
}

/// A connection, for as long as it is served.
struct Connection<'a>(&'a Shared);

impl<'a> Connection<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.connections.fetch_add(1, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug, Default)]
struct Seen {
    requests: Vec<Received>,
    faults: Vec<String>,
}

impl Server {
    /// A server that follows a script without faults.
    ///
    /// # Errors
    ///
    /// There is no free port.
    pub async fn start(script: Script) -> io::Result<Self> {
        Self::builder(script).start().await
    }

    /// A server of one's own making.
    pub fn builder(script: Script) -> ServerBuilder {
        ServerBuilder { script, faults: BTreeMap::new() }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL to give to an adapter of a wire.
    pub fn base_url(&self, wire: Wire) -> String {
        let path = match wire {
            Wire::Chat | Wire::Responses | Wire::Messages => "v1",
            Wire::Gemini | Wire::GeminiArray => "v1beta",
        };
        format!("http://{}/{path}", self.address)
    }

    /// Every request so far, in order.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.seen().requests.clone()
    }

    /// How many connections are open at this moment: a client that goes away closes its own.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Opens a gate of the script, for good.
    pub fn open(&self, gate: &str) {
        self.shared.gates.open(gate);
    }

    /// What was wrong: a request beyond the script or to an unknown path, an entry that its wire has no place for.
    pub fn faults(&self) -> Vec<String> {
        self.shared.seen().faults.clone()
    }

    /// Fails the test if the script was not used up, was overrun, or did not fit a wire; the message says where.
    ///
    /// # Panics
    ///
    /// That is how it fails the test.
    #[track_caller]
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn assert_exhausted(&self) {
        let mut wrong = self.faults();
        let (used, entries) = (self.shared.seen().requests.len(), self.shared.entries.len());
        if used < entries {
            wrong.push(format!("only {used} of {entries} entries were used"));
        }
        if !wrong.is_empty() {
            panic!("the script was not followed: {}", wrong.join("; "));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl ServerBuilder {
    /// Something goes wrong with the answer to a request; requests are counted from 1.
    pub fn fault(mut self, request: usize, fault: Fault) -> Self {
        self.faults.entry(request).or_default().push(fault);
        self
    }

    /// Starts the server; it must be called in a tokio runtime with I/O and time.
    ///
    /// # Errors
    ///
    /// There is no free port.
    pub async fn start(self) -> io::Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (entries, faults) = (self.script.entries, self.faults);
        let (gates, seen) = (Gates::default(), Mutex::default());
        let shared = Arc::new(Shared { entries, faults, gates, seen, connections: AtomicUsize::new(0) });
        let serving = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            // Connections end with the server: whoever waits at one sees it close.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                let shared = Arc::clone(&serving);
                connections.spawn(async move {
                    let _open = Connection::new(&shared);
                    // A client that goes away ends its own connection and nothing else.
                    let _ = http::serve(connection, &shared).await;
                });
            }
        });
        Ok(Server { address, shared, accepting })
    }
}

impl Shared {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a request; gives its number, from 1.
    fn take(&self, request: Received) -> usize {
        let mut seen = self.seen();
        seen.requests.push(request);
        seen.requests.len()
    }

    fn fault(&self, request: usize, what: &str) {
        self.seen().faults.push(format!("request {request}: {what}"));
    }
}

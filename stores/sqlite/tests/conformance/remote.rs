//! A store in another process: this very test program, started again, has the file open and carries out what it is told.
//!
//! Each line of its input is a call: a number, the clock, the method, its arguments; each line of its output an answer, or an item of a stream, with the call's number.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_channel::mpsc;
use futures_core::Stream;
use serde_json::{Value, json};
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, Followed, HintStream,
    Inbox, NewSession, Ownership, Page, Query, RecordedStream, SessionInfo, StoreError,
};
use settled_ledger::{Clock, Delivery, InboxItem, InputId, NewInput, Recorded, Seq, Timestamp, WorkerId};
use settled_store_sqlite::SqliteStore;
use settled_tools_api::SessionId;
use tokio::task::AbortHandle;

use crate::wire::Wire;

/// The environment by which the other process knows the file.
const FILE: &str = "SETTLED_SQLITE_REMOTE";

/// How often either process looks for what the other has written.
pub(crate) const POLL: Duration = Duration::from_millis(2);

/// The handle on a store in another process, which ends with it.
pub(crate) struct Remote {
    line: Arc<Line>,
    clock: Arc<dyn Clock>,
    process: Mutex<Child>,
}

/// The line to the other process.
struct Line {
    input: Mutex<ChildStdin>,
    waiting: Mutex<HashMap<u64, mpsc::UnboundedSender<Value>>>,
    calls: AtomicU64,
}

impl Remote {
    /// Starts the process.
    pub(crate) fn start(file: &Path, clock: Arc<dyn Clock>) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["other_process", "--exact", "--nocapture"])
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let line =
            Arc::new(Line { input: Mutex::new(input), waiting: Mutex::new(HashMap::new()), calls: AtomicU64::new(1) });
        let (output, to) = (BufReader::new(process.stdout.take().unwrap()), line.clone());
        std::thread::spawn(move || {
            // The test program's own lines are passed over.
            for line in output.lines().map_while(Result::ok) {
                let Some((_, answer)) = line.split_once("> ") else { continue };
                let (call, answer): (u64, Value) = serde_json::from_str(answer).unwrap();
                if let Some(waiting) = to.waiting.lock().unwrap().get(&call) {
                    // Whoever asked may have gone away.
                    let _ = waiting.unbounded_send(answer);
                }
            }
            to.waiting.lock().unwrap().clear();
        });
        Self { line, clock, process: Mutex::new(process) }
    }

    /// Tells the other process to do something.
    fn tell(&self, method: &str, arguments: Value) -> Answers {
        let call = self.line.calls.fetch_add(1, Ordering::SeqCst);
        let (tell, hear) = mpsc::unbounded();
        self.line.waiting.lock().unwrap().insert(call, tell);
        self.line.say(&json!([call, self.clock.now(), method, arguments]));
        Answers { call, hear, line: self.line.clone() }
    }

    async fn ask<T: Wire>(&self, method: &str, arguments: Value) -> T {
        let mut answers = self.tell(method, arguments);
        let answer = std::future::poll_fn(|cx| Pin::new(&mut answers.hear).poll_next(cx)).await;
        T::from_wire(answer.expect("the other process has ended"))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

impl Line {
    fn say(&self, line: &Value) {
        writeln!(self.input.lock().unwrap(), "{line}").unwrap();
    }
}

/// The answers to a call that are still to come.
struct Answers {
    call: u64,
    hear: mpsc::UnboundedReceiver<Value>,
    line: Arc<Line>,
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.line.waiting.lock().unwrap().remove(&self.call);
    }
}

/// A stream in the other process; it ends there when it is dropped here.
struct Items<T>(Answers, std::marker::PhantomData<fn() -> T>);

impl<T: Wire> Stream for Items<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        // The end of a stream is a null: no item is one.
        Pin::new(&mut self.0.hear).poll_next(cx).map(|item| item.filter(|item| !item.is_null()).map(T::from_wire))
    }
}

impl<T> Drop for Items<T> {
    fn drop(&mut self) {
        // The process may have ended before the stream.
        let _ = writeln!(self.0.line.input.lock().unwrap(), "{}", json!([self.0.call, 0, "leave", null]));
    }
}

#[async_trait]
impl EventLog for Remote {
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
        self.ask("append", json!([fence.to_wire(), expected, batch.to_wire()])).await
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.ask("read", json!([session, after, limit])).await
    }

    fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream {
        let items = self.tell("follow", json!([session, after]));
        Box::pin(Items::<Result<Followed, StoreError>>(items, std::marker::PhantomData))
    }
}

#[async_trait]
impl Inbox for Remote {
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
        self.ask("admit", json!([session, input.to_wire()])).await
    }

    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError> {
        self.ask("cancel", json!([session, input])).await
    }

    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError> {
        self.ask("change", json!([session, input, delivery])).await
    }

    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError> {
        self.ask("pending", json!([session])).await
    }

    fn hints(&self) -> HintStream {
        Box::pin(Items::<SessionId>(self.tell("hints", Value::Null), std::marker::PhantomData))
    }
}

#[async_trait]
impl Ownership for Remote {
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
        self.ask("create", json!([session, new.to_wire()])).await
    }

    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
        self.ask("claim", json!([worker, lease, session])).await
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        self.ask("renew", json!([worker, lease])).await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.ask("release", fence.to_wire()).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.ask("due", json!([limit])).await
    }
}

#[async_trait]
impl Catalog for Remote {
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError> {
        self.ask("info", json!([session])).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.ask("list", query.to_wire()).await
    }

    async fn erase(&self, session: &SessionId) -> Result<(), StoreError> {
        self.ask("erase", json!([session])).await
    }
}

/// The clock of the other process: it is told the time with each call.
struct Told(AtomicI64);

impl Clock for Told {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// The part of the other process; nothing where the environment does not ask for it.
pub(crate) async fn serve() {
    let Some(file) = std::env::var_os(FILE) else { return };
    let clock = Arc::new(Told(AtomicI64::new(0)));
    let store = SqliteStore::builder(file).clock(clock.clone()).poll(POLL).open().unwrap();
    let (tell, mut calls) = mpsc::unbounded();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            // The runtime may have ended.
            let _ = tell.unbounded_send(line);
        }
    });
    let mut streams = HashMap::<u64, AbortHandle>::new();
    while let Some(line) = std::future::poll_fn(|cx| Pin::new(&mut calls).poll_next(cx)).await {
        let (call, now, method, arguments): (u64, i64, String, Value) = serde_json::from_str(&line).unwrap();
        clock.0.fetch_max(now, Ordering::SeqCst);
        match method.as_str() {
            "leave" => streams.remove(&call).unwrap().abort(),
            "follow" => {
                let (session, after): (SessionId, Seq) = serde_json::from_value(arguments).unwrap();
                streams.insert(call, tokio::spawn(pass(call, store.follow(&session, after))).abort_handle());
            }
            "hints" => drop(streams.insert(call, tokio::spawn(pass(call, store.hints())).abort_handle())),
            _ => drop(tokio::spawn(carry_out(store.clone(), call, method, arguments))),
        }
    }
}

/// Passes a stream's items on.
async fn pass<T: Wire>(call: u64, mut items: Pin<Box<dyn Stream<Item = T> + Send>>) {
    while let Some(item) = std::future::poll_fn(|cx| items.as_mut().poll_next(cx)).await {
        answer(call, &item.to_wire());
    }
    answer(call, &Value::Null);
}

/// Carries one call out, and answers.
async fn carry_out(store: SqliteStore, call: u64, method: String, arguments: Value) {
    macro_rules! given {
        ($($name:ident: $kind:ty),*) => {
            let ($($name),*,): ($($kind),*,) = serde_json::from_value(arguments).unwrap();
        };
    }
    let done = match method.as_str() {
        "append" => {
            given!(fence: Value, expected: Seq, batch: Value);
            store.append(&Fence::from_wire(fence), expected, Batch::from_wire(batch)).await.to_wire()
        }
        "read" => {
            given!(session: SessionId, after: Seq, limit: usize);
            store.read(&session, after, limit).await.to_wire()
        }
        "admit" => {
            given!(session: SessionId, input: Value);
            store.admit(&session, NewInput::from_wire(input)).await.to_wire()
        }
        "cancel" => {
            given!(session: SessionId, input: InputId);
            store.cancel(&session, input).await.to_wire()
        }
        "change" => {
            given!(session: SessionId, input: InputId, delivery: Delivery);
            store.change(&session, input, delivery).await.to_wire()
        }
        "pending" => {
            given!(session: SessionId);
            store.pending(&session).await.to_wire()
        }
        "create" => {
            given!(session: SessionId, new: Value);
            store.create(&session, NewSession::from_wire(new)).await.to_wire()
        }
        "claim" => {
            given!(worker: WorkerId, lease: Duration, session: SessionId);
            store.claim(worker, lease, &session).await.to_wire()
        }
        "renew" => {
            given!(worker: WorkerId, lease: Duration);
            store.renew(worker, lease).await.to_wire()
        }
        "release" => store.release(&Fence::from_wire(arguments)).await.to_wire(),
        "due" => {
            given!(limit: usize);
            store.due(limit).await.to_wire()
        }
        "info" => {
            given!(session: SessionId);
            store.info(&session).await.to_wire()
        }
        "list" => store.list(&Query::from_wire(arguments)).await.to_wire(),
        "erase" => {
            given!(session: SessionId);
            store.erase(&session).await.to_wire()
        }
        other => panic!("`{other}` is no method"),
    };
    answer(call, &done);
}

#[expect(clippy::print_stdout, reason = "it answers on its output")]
fn answer(call: u64, answer: &Value) {
    println!("> {}", json!([call, answer]));
}

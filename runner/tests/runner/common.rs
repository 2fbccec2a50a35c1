//! What the runner's own tests share: a provider that plays a list, tools that watch themselves, a store that holds appends back.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_core::Stream;
use serde_json::json;
use settled_ledger::store::*;
use settled_ledger::{Clock, Delivery, Ids, InboxItem, InputId, NewInput, Recorded, Seq, Timestamp, WorkerId};
use settled_provider_api::{ModelInfo, ModelRef, Provider, ProviderError, ProviderEvent, ProviderStream, Request};
use settled_runner::{Agent, Builder, Runner, Serving, Settings};
use settled_store_memory::MemoryStore;
use settled_tools_api::{
    SessionId, ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolReturn, Toolbox,
};
use tokio::sync::Notify;

/// One thing that a scripted stream does.
pub enum Item {
    Event(ProviderEvent),
    Throw(ProviderError),
    /// Goes on when it is notified.
    Until(Arc<Notify>),
    Hang,
    Panic,
}

impl From<ProviderEvent> for Item {
    fn from(event: ProviderEvent) -> Self {
        Self::Event(event)
    }
}

/// Plays one list for each request; a request beyond is refused.
#[derive(Clone, Default)]
pub struct Script {
    streams: Arc<Mutex<VecDeque<VecDeque<Item>>>>,
    pub requests: Arc<Mutex<Vec<Arc<Request>>>>,
}

impl Script {
    pub fn then<I: Into<Item>>(self, items: impl IntoIterator<Item = I>) -> Self {
        self.streams.lock().unwrap().push_back(items.into_iter().map(Into::into).collect());
        self
    }
}

#[async_trait]
impl Provider for Script {
    async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        self.requests.lock().unwrap().push(request);
        let items = self.streams.lock().unwrap().pop_front().expect("the script has an entry for every request");
        Ok(Box::pin(Playing { items, waiting: None }))
    }
}

struct Playing {
    items: VecDeque<Item>,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Stream for Playing {
    type Item = Result<ProviderEvent, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(waiting) = &mut self.waiting {
                if waiting.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                self.waiting = None;
            }
            return match self.items.pop_front() {
                Some(Item::Event(event)) => Poll::Ready(Some(Ok(event))),
                Some(Item::Throw(error)) => Poll::Ready(Some(Err(error))),
                Some(Item::Until(go)) => {
                    self.waiting = Some(Box::pin(async move { go.notified().await }));
                    continue;
                }
                Some(Item::Hang) => {
                    self.items.push_front(Item::Hang);
                    Poll::Pending
                }
                // Without the panic hook's output: this panic is meant.
                Some(Item::Panic) => std::panic::resume_unwind(Box::new("the adapter broke")),
                None => Poll::Ready(None),
            };
        }
    }
}

/// `echo` answers at once; `wait` waits until it is cancelled; `stubborn` does not even notice that.
#[derive(Clone, Default)]
pub struct Watched {
    pub polls: Arc<AtomicU64>,
    pub begun: Arc<Notify>,
}

#[async_trait]
impl ToolExecutor for Watched {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let tool = |name: &str| ToolDefinition::new(name, "For a test.", json!({"type": "object"}));
        vec![tool("echo"), tool("wait"), tool("stubborn"), tool("alone").exclusive()]
    }

    async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        self.begun.notify_one();
        match call.name.as_str() {
            "wait" => {
                context.cancel().cancelled().await;
                Err(ToolError::failed("stopped"))
            }
            "stubborn" => std::future::pending().await,
            _ => Ok(ToolReturn::json(&call.input)),
        }
    }
}

/// A clock that follows tokio's, so that virtual time moves it.
pub struct VirtualClock(tokio::time::Instant);

impl Default for VirtualClock {
    fn default() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000).plus(self.0.elapsed())
    }
}

/// Ids in order, the same in every run.
#[derive(Default)]
pub struct Counted(AtomicU64);

impl From<u64> for Counted {
    /// Ids behind a number, for a second process.
    fn from(number: u64) -> Self {
        Self(AtomicU64::new(number))
    }
}

impl Ids for Counted {
    fn next(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::SeqCst)) + 1
    }
}

/// A memory store whose appends can be held back, and that knows what was appended together.
#[derive(Clone)]
pub struct Held {
    pub inner: MemoryStore,
    /// Appends that hold an event of this kind wait until they are let go.
    pub hold: Arc<Mutex<Option<&'static str>>>,
    pub held: Arc<Notify>,
    pub go: Arc<Notify>,
    pub batches: Arc<Mutex<Vec<Vec<String>>>>,
    /// Asked before some operations, by their names; may refuse them.
    pub before: Arc<Mutex<Option<Before>>>,
    /// From where each read of a log began.
    pub reads: Arc<Mutex<Vec<Seq>>>,
    /// How many events a read gives at most, whatever it is asked for.
    pub most: Arc<Mutex<Option<usize>>>,
}

pub type Before = Arc<dyn Fn(&str) -> Result<(), StoreError> + Send + Sync>;

impl Held {
    pub fn new() -> Self {
        Self {
            inner: MemoryStore::new(Arc::new(VirtualClock::default())),
            hold: Arc::default(),
            held: Arc::default(),
            go: Arc::default(),
            batches: Arc::default(),
            reads: Arc::default(),
            most: Arc::default(),
            before: Arc::default(),
        }
    }

    /// Has something asked before operations on this handle, and those cloned from it from now on.
    pub fn before(&self, before: impl Fn(&str) -> Result<(), StoreError> + Send + Sync + 'static) -> Self {
        Self { before: Arc::new(Mutex::new(Some(Arc::new(before)))), ..self.clone() }
    }

    fn ask(&self, operation: &str) -> Result<(), StoreError> {
        let before = self.before.lock().unwrap().clone();
        before.map_or(Ok(()), |before| before(operation))
    }
}

#[async_trait]
impl EventLog for Held {
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
        let kinds: Vec<String> = batch.rows.iter().map(|row| row.kind.clone()).collect();
        let hold = *self.hold.lock().unwrap();
        if hold.is_some_and(|kind| kinds.iter().any(|one| one == kind)) {
            self.held.notify_one();
            self.go.notified().await;
        }
        self.ask("append").map_err(AppendError::Unavailable)?;
        self.batches.lock().unwrap().push(kinds);
        self.inner.append(fence, expected, batch).await
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.reads.lock().unwrap().push(after);
        let limit = self.most.lock().unwrap().map_or(limit, |most| limit.min(most));
        self.inner.read(session, after, limit).await
    }

    fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream {
        self.inner.follow(session, after)
    }
}

#[async_trait]
impl Inbox for Held {
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
        self.inner.admit(session, input).await
    }

    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError> {
        self.inner.cancel(session, input).await
    }

    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError> {
        self.inner.change(session, input, delivery).await
    }

    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError> {
        self.ask("pending")?;
        self.inner.pending(session).await
    }

    fn hints(&self) -> HintStream {
        self.inner.hints()
    }
}

#[async_trait]
impl Ownership for Held {
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
        self.inner.create(session, new).await
    }

    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
        self.inner.claim(worker, lease, session).await
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        self.ask("renew")?;
        self.inner.renew(worker, lease).await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.inner.release(fence).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.inner.due(limit).await
    }
}

#[async_trait]
impl Catalog for Held {
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError> {
        self.inner.info(session).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.inner.list(query).await
    }

    async fn erase(&self, session: &SessionId) -> Result<(), StoreError> {
        self.inner.erase(session).await
    }
}

/// A runner over a script, watched tools and a store that can be held back; nothing runs unless it is told to.
pub fn runner(script: &Script, tools: &Watched, store: &Held, settings: Settings) -> Runner {
    builder(script, tools, store, settings).build().unwrap()
}

pub fn builder(script: &Script, tools: &Watched, store: &Held, settings: Settings) -> Builder {
    Runner::builder()
        .model(ModelRef::new("script", "m"), script.clone(), ModelInfo::new())
        .tools(Toolbox::new().with(tools.clone()))
        .agent(Agent::new("tester"))
        .store(store.clone())
        .clock(VirtualClock::default())
        .ids(Counted::default())
        .serving(Serving::Asked)
        .settings(settings)
}

/// The kinds of a session's events, and the checker's word on them.
pub async fn kinds(store: &Held, session: &SessionId) -> Vec<String> {
    let log = store.read(session, Seq::START, 10_000).await.unwrap();
    assert_eq!(settled_ledger::check::check_log(&log), []);
    log.into_iter().map(|row| row.kind).collect()
}

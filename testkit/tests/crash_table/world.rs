//! What outlives a crash: the store, the clock, what the tools have done; and one life of a process in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use settled_ledger::store::{EventLog, Store};
use settled_ledger::{Clock, Ids, NewInputKind, Outcome, Recorded, Seq, Timestamp, WorkerId};
use settled_provider_api::{
    AssistantPart, Message, ModelInfo, ModelRef, Provider, ProviderError, ProviderStream, Request, RequestKind,
};
use settled_runner::{Agent, Runner, Session, Settings};
use settled_store_memory::MemoryStore;
use settled_testkit::script;
use settled_tools_api::{
    Decision, EffectKey, Policy, PolicyCall, Reconciled, Reconciler, Replay, SessionId, ToolCall, ToolContext,
    ToolDefinition, ToolError, ToolExecutor, ToolOutput, ToolReturn, Toolbox,
};

use crate::dying::Dying;

/// Everything but the processes.
#[derive(Clone)]
pub(crate) struct World {
    store: MemoryStore,
    clock: Wall,
    ids: Counting,
    book: Book,
    lives: Arc<AtomicU64>,
    writes: Arc<Mutex<(u64, u64)>>,
}

impl Default for World {
    fn default() -> Self {
        let clock = Wall::default();
        Self {
            store: MemoryStore::new(Arc::new(clock.clone())),
            clock,
            ids: Counting::default(),
            book: Book::default(),
            lives: Arc::default(),
            writes: Arc::default(),
        }
    }
}

impl World {
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    /// A process lives, until the person has got everything, or until it dies: then what it was writing.
    pub(crate) fn live(&self, store: Arc<Dying>) -> Result<(), &'static str> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        // The lease of whoever died before has run out.
        self.clock.0.fetch_add(60_000, Ordering::SeqCst);
        let ended = runtime.block_on(async {
            let runner = self.runner(Arc::clone(&store));
            tokio::select! {
                biased;
                what = store.died() => Err(what),
                () = self.person(&runner) => {
                    assert_eq!(runner.dropped_unsettled(), 0);
                    Ok(())
                }
            }
        });
        *self.writes.lock().unwrap() = store.writes();
        ended
    }

    /// How many writes the last life has made, and how many of them were appends.
    pub(crate) fn writes(&self) -> (u64, u64) {
        *self.writes.lock().unwrap()
    }

    pub(crate) fn log(&self) -> Vec<Recorded> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.store.read(&session(), Seq::START, 10_000)).unwrap_or_default()
    }

    /// How often each tool was polled.
    pub(crate) fn runs(&self) -> BTreeMap<&'static str, u64> {
        let runs = &self.book.lock().runs;
        ["a", "b", "c"].map(|tool| (tool, runs.get(tool).copied().unwrap_or_default())).into()
    }

    /// What was wrong with the requests.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.book.lock().faults.clone()
    }

    fn runner(&self, store: Arc<Dying>) -> Runner {
        let worker = self.lives.fetch_add(1, Ordering::SeqCst) + 1;
        let mut settings = Settings::default();
        settings.retry.jitter = 0.0;
        Runner::builder()
            .model(ModelRef::new("script", "model"), Model(self.book.clone()), ModelInfo::new())
            .tools(Toolbox::new().with(Tools(self.book.clone())))
            .policy(AskForC)
            .agent(Agent::new("worker"))
            .clock(self.clock.clone())
            .ids(self.ids.clone())
            .worker(WorkerId::from_u128(u128::from(worker)))
            .settings(settings)
            .shared_store(store)
            .build()
            .unwrap()
    }

    /// What a person does, and does again after a crash as far as it was not done.
    async fn person(&self, runner: &Runner) {
        let session = runner.session("s").await.unwrap();
        session.input("Hello").key("hello").send().await.unwrap();
        self.settle(&session).await;
        let asked = session.pending().await.unwrap().iter().any(|item| item.input == NewInputKind::Compact);
        let log = self.store.read(session.id(), Seq::START, 10_000).await.unwrap();
        if !asked && log.iter().all(|row| row.kind != "compaction.started") {
            session.compact().await.unwrap();
        }
        self.settle(&session).await;
        session.input("Thanks").key("thanks").send().await.unwrap();
        self.settle(&session).await;
    }

    /// Waits until nothing is left to do, and approves what waits.
    async fn settle(&self, session: &Session) {
        loop {
            let settled = session.settled().await.unwrap();
            let waiting = session.waiting().await.unwrap();
            match settled.outcome {
                Outcome::Parked => {}
                Outcome::Completed => return,
                other => panic!("the execution is {other:?}: {:?}", settled.error),
            }
            for call in waiting {
                session.approve(call.call).await.unwrap();
            }
        }
    }
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

/// What the tools have done and what was asked of the model, over all lives.
#[derive(Clone, Default)]
struct Book(Arc<Mutex<Notes>>);

#[derive(Default)]
struct Notes {
    runs: BTreeMap<String, u64>,
    effects: BTreeSet<EffectKey>,
    faults: Vec<String>,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap()
    }
}

/// The model: it looks at the history and does what is missing.
struct Model(Book);

#[async_trait]
impl Provider for Model {
    async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        let called: BTreeSet<&str> = request
            .messages
            .iter()
            .filter_map(|message| match message.as_ref() {
                Message::Assistant(parts) => Some(parts),
                _ => None,
            })
            .flatten()
            .filter_map(|part| match part {
                AssistantPart::Call(call) => Some(call.name.as_str()),
                _ => None,
            })
            .collect();
        let summarised = request.messages.iter().any(|message| match message.as_ref() {
            Message::User(parts) => parts.iter().any(|part| part.as_text().is_some_and(|text| text.contains(SUMMARY))),
            _ => false,
        });
        let script = match request.purpose.kind {
            RequestKind::Summary => script().step(|s| s.wait(20).text(SUMMARY).finish()),
            _ if !called.contains("a") && !summarised => script().step(|s| {
                s.start()
                    .reasoning("I think.", None)
                    .text("I look, and act.")
                    .hosted("h", "h", json!({}))
                    .hosted_result("h", ["found"])
                    .call("a", json!({}))
                    .wait(50)
                    .call("b", json!({}))
                    .wait(20)
                    .finish()
            }),
            _ if !called.contains("c") && !summarised => {
                script().step(|s| s.start().text("One more.").call("c", json!({})).wait(70).finish())
            }
            _ => script().step(|s| s.start().text("Done.").finish()),
        };
        let provider = script.provider();
        let stream = provider.stream(request).await;
        self.0.lock().faults.extend(provider.faults());
        stream
    }
}

const SUMMARY: &str = "It was all done.";

/// Tools that act at their first poll, and take 100 ms.
struct Tools(Book);

#[async_trait]
impl ToolExecutor for Tools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let classes = [
            ("a", Replay::AtMostOnce),
            ("b", Replay::Pure),
            ("c", Replay::Reconcile(Arc::new(LookUp(self.0.clone())))),
        ];
        let schema = json!({"type": "object"});
        classes.map(|(name, class)| ToolDefinition::new(name, "A tool.", schema.clone()).replay(class)).into()
    }

    async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError> {
        {
            let mut notes = self.0.lock();
            *notes.runs.entry(call.name.clone()).or_default() += 1;
            notes.effects.insert(context.effect_key().clone());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok(ToolReturn::text("done"))
    }
}

/// Looks up whether a call has acted.
struct LookUp(Book);

#[async_trait]
impl Reconciler for LookUp {
    async fn reconcile(&self, _: &ToolCall, context: &ToolContext) -> Reconciled {
        if self.0.lock().effects.contains(context.effect_key()) {
            Reconciled::Happened(ToolOutput::text("it was done"))
        } else {
            Reconciled::DidNot
        }
    }
}

struct AskForC;

#[async_trait]
impl Policy for AskForC {
    async fn decide(&self, call: &PolicyCall) -> Decision {
        if call.name == "c" { Decision::Ask("May c run?".to_owned()) } else { Decision::Allow }
    }
}

/// A wall clock that moves between two lives only.
#[derive(Clone, Default)]
struct Wall(Arc<AtomicI64>);

impl Clock for Wall {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Ids that count.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicU64>);

impl Ids for Counting {
    fn next(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

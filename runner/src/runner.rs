//! The runner and its builder.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use settled_ledger::store::{FoldCache, NewSession, Store, StoreErrorKind};
use settled_ledger::{Clock, Ids, NewRow, SessionCreated, WorkerId};
use settled_provider_api::{ModelInfo, ModelRef, Provider};
use settled_tools_api::{AllowAll, CallKey, Policy, SessionId, ToolSource, Toolbox};

use crate::clock::{RandomIds, SystemClock};
use crate::compaction;
use crate::error::Error;
use crate::instructions::InstructionSource;
use crate::outputs::{NoOutputs, Outputs, Snapshots};
use crate::redaction::{Redaction, Redactor};
use crate::session::Session;
use crate::settings::{Agent, Settings};
use crate::shop::{Model, Shop};
use crate::worker::{Serving, Worker};

/// Runs sessions: one per application process, shared by cloning.
///
/// Dropping the last clone stops nothing that runs; [`shutdown`](Self::shutdown) does.
#[derive(Clone)]
pub struct Runner {
    worker: Arc<Worker>,
}

impl Runner {
    /// A runner to be put together.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Opens a session, and makes it if there is none of that name.
    ///
    /// An execution that an earlier process has left unfinished goes on by itself; at once where this runner is the same [`worker`](Builder::worker), else when that one's lease has run out.
    pub async fn session<T>(&self, id: T) -> Result<Session, Error>
    where
        T: TryInto<SessionId>,
        Error: From<T::Error>,
    {
        self.session_with(id, BTreeMap::new()).await
    }

    /// Opens a session as [`session`](Self::session) does; a new one can be found by these tags.
    pub async fn session_with<T>(&self, id: T, tags: BTreeMap<String, String>) -> Result<Session, Error>
    where
        T: TryInto<SessionId>,
        Error: From<T::Error>,
    {
        let id = id.try_into()?;
        let shop = &self.worker.shop;
        if self.worker.is_shutting_down() {
            return Err(Error::ShuttingDown);
        }
        match shop.store.info(&id).await {
            Ok(_) => {}
            Err(error) if error.kind == StoreErrorKind::NotFound => {
                let created = SessionCreated {
                    agent: shop.first_agent.clone(),
                    model: shop.first_model.clone(),
                    tags: tags.clone(),
                };
                let row = NewRow::encode(&created.into(), shop.clock.now());
                let row = row.map_err(|error| Error::Configuration(error.to_string()))?;
                match shop.store.create(&id, NewSession::new(vec![row], tags)).await {
                    // Somebody else was faster: it is there, and that is what was asked for.
                    Err(error) if error.kind != StoreErrorKind::Exists => return Err(error.into()),
                    _ => {}
                }
            }
            Err(error) => return Err(error.into()),
        }
        let session = Session::new(Arc::clone(&self.worker), &id);
        session.take_up();
        Ok(session)
    }

    /// Stops: claims nothing more, lets running tools finish and sessions leave at their next border, and after the grace leaves the rest for the next owner.
    ///
    /// Nothing is interrupted by it: another worker, or this application started again, goes on.
    /// Gives the calls of tools that could not be stopped.
    pub async fn shutdown(&self, grace: Duration) -> Vec<CallKey> {
        self.worker.shut_down(grace).await
    }

    /// The sessions that run here now, in no order; those that wait for a person do not.
    pub fn active(&self) -> Vec<SessionId> {
        self.worker.active()
    }

    /// How many attempts at a step were dropped before they settled.
    ///
    /// It is 0 unless a runtime was dropped under the runner; a test harness asserts that.
    pub fn dropped_unsettled(&self) -> u64 {
        self.worker.dropped()
    }
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runner").field("worker", &self.worker.id).finish_non_exhaustive()
    }
}

/// Puts a [`Runner`] together.
#[derive(Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    models: Vec<(ModelRef, Model)>,
    agents: Vec<Agent>,
    tools: Option<Arc<dyn ToolSource>>,
    store: Option<Arc<dyn Store>>,
    folds: Option<Arc<dyn FoldCache>>,
    policy: Option<Arc<dyn Policy>>,
    outputs: Option<Arc<dyn Outputs>>,
    instructions: Vec<(String, Arc<dyn InstructionSource>)>,
    redaction: Redaction,
    snapshots: Option<Arc<dyn Snapshots>>,
    clock: Option<Arc<dyn Clock>>,
    ids: Option<Arc<dyn Ids>>,
    worker: Option<WorkerId>,
    serving: Serving,
    settings: Settings,
}

impl Builder {
    /// A model, who provides it, and what is known about it; a new session asks the first one.
    pub fn model(self, model: ModelRef, provider: impl Provider + 'static, info: ModelInfo) -> Self {
        self.shared_model(model, Arc::new(provider), info)
    }

    /// A model whose provider is used elsewhere too.
    pub fn shared_model(mut self, model: ModelRef, provider: Arc<dyn Provider>, info: ModelInfo) -> Self {
        self.models.push((model, Model { provider, info: Arc::new(info) }));
        self
    }

    /// The tools; none without.
    pub fn tools(mut self, tools: impl ToolSource + 'static) -> Self {
        self.tools = Some(Arc::new(tools));
        self
    }

    /// The store.
    pub fn store(self, store: impl Store + 'static) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// A store that is used elsewhere too.
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// A history cache, often the store itself: sessions open from their last kept fold and what came since.
    ///
    /// Without one they open from their first event.
    pub fn fold_cache(mut self, folds: impl FoldCache + 'static) -> Self {
        self.folds = Some(Arc::new(folds));
        self
    }

    /// An agent; a new session starts with the first one. Without any, one without a prompt is there.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Who decides about calls; without, every call is allowed.
    pub fn policy(mut self, policy: impl Policy + 'static) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// Where large outputs are kept; without, what is left out of them is lost.
    pub fn outputs(mut self, outputs: impl Outputs + 'static) -> Self {
        self.outputs = Some(Arc::new(outputs));
        self
    }

    /// A source of instructions that may change while a session runs, under a key that the model is shown.
    ///
    /// Sources stand behind the agent's prompt in the order in which they are given.
    pub fn instructions(mut self, key: impl Into<String>, source: impl InstructionSource + 'static) -> Self {
        self.instructions.push((key.into(), Arc::new(source)));
        self
    }

    /// What must not be kept; without a rule, everything is stored as it is said.
    pub fn redactor(mut self, redactor: impl Redactor + 'static) -> Self {
        self.redaction = Redaction(Some(Arc::new(redactor)));
        self
    }

    /// Who watches the files that steps change.
    pub fn snapshots(mut self, snapshots: impl Snapshots + 'static) -> Self {
        self.snapshots = Some(Arc::new(snapshots));
        self
    }

    /// Where wall-clock stamps come from.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Where ids come from.
    pub fn ids(mut self, ids: impl Ids + 'static) -> Self {
        self.ids = Some(Arc::new(ids));
        self
    }

    /// The worker that owns what runs here; without, a new one.
    ///
    /// No two processes may use the same at once.
    /// A process that is started again under the id it had takes up its own sessions at once; under a new id it waits until the lease of the one that died has run out ([`Settings::lease`], 15 seconds).
    pub fn worker(mut self, worker: WorkerId) -> Self {
        self.worker = Some(worker);
        self
    }

    /// Which sessions run by themselves when they are due.
    pub fn serving(mut self, serving: Serving) -> Self {
        self.serving = serving;
        self
    }

    /// Limits and habits.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The runner; must be called in a tokio runtime with time.
    ///
    /// *Fails* with [`Error::Configuration`] where something is missing, named twice, or leaves no room for a prompt.
    pub fn build(self) -> Result<Runner, Error> {
        let missing = |what: &str| Error::Configuration(format!("a runner needs {what}"));
        let store = self.store.ok_or_else(|| missing("a store: call `store`"))?;
        let first_model = self.models.first().map(|(model, _)| model.clone());
        let first_model = first_model.ok_or_else(|| missing("a model: call `model`"))?;
        let mut models = BTreeMap::new();
        for (model, known) in self.models {
            let threshold = compaction::threshold(&known.info, &self.settings.compaction);
            if self.settings.compaction.auto && threshold == Some(0) {
                return Err(Error::Configuration(format!(
                    "the limits of `{model}` leave no room for a prompt: context {:?}, output {:?}, buffer {}; \
                     lower the buffer or the output limit, or switch automatic compaction off",
                    known.info.context, known.info.output, self.settings.compaction.buffer
                )));
            }
            if models.insert(model.clone(), known).is_some() {
                return Err(Error::Configuration(format!("the model `{model}` is given twice")));
            }
        }
        let mut agents = BTreeMap::new();
        let given = if self.agents.is_empty() { vec![Agent::new("default")] } else { self.agents };
        let first_agent = given.first().map(|agent| agent.name.clone()).unwrap_or_default();
        for agent in given {
            if let Some(twice) = agents.insert(agent.name.clone(), Arc::new(agent)) {
                return Err(Error::Configuration(format!("the agent `{}` is given twice", twice.name)));
            }
        }
        let mut keys = BTreeSet::new();
        if let Some((twice, _)) = self.instructions.iter().find(|(key, _)| !keys.insert(key)) {
            return Err(Error::Configuration(format!("the instructions `{twice}` are given twice")));
        }
        let ids = self.ids.unwrap_or_else(|| Arc::new(RandomIds));
        let id = self.worker.unwrap_or_else(|| WorkerId::from_u128(ids.next()));
        let shop = Shop {
            store,
            folds: self.folds,
            models,
            agents,
            first_model,
            first_agent,
            tools: self.tools.unwrap_or_else(|| Arc::new(Toolbox::new())),
            policy: self.policy.unwrap_or_else(|| Arc::new(AllowAll::default())),
            outputs: self.outputs.unwrap_or_else(|| Arc::new(NoOutputs)),
            instructions: self.instructions,
            redaction: self.redaction,
            snapshots: self.snapshots,
            clock: self.clock.unwrap_or_else(|| Arc::new(SystemClock)),
            ids,
            settings: self.settings,
        };
        let worker = Worker::new(Arc::new(shop), id, self.serving);
        worker.listen();
        Ok(Runner { worker })
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

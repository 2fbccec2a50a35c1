//! Testing an agent in a few lines: a script for its model, its tools, a store, and what a person does.

use std::fmt;
use std::sync::Arc;

use settled_ledger::store::{Store, StoreError, StoreErrorKind};
use settled_ledger::{Clock, Delivery};
use settled_provider_api::{ModelInfo, Request};
use settled_runner::{Builder, Settings};
use settled_tools_api::{Policy, ToolSource};

use crate::effects::Effects;
use crate::faults::{At, Fault};
use crate::scenario::parse::quiet_settings;
use crate::scenario::plan::{Adjust, Cast, Item, Model, Ordeal, Placed, Plan, StoreFault, Trigger};
use crate::scenario::{Failed, Opening, RunError, ScenarioResult};
use crate::script::{Misfit, Script, ScriptedProvider};
use crate::tools::ScriptedTools;

/// An agent whose model follows a script, on a store.
///
/// The store is made with the clock of the test's virtual time: `MemoryStore::new` fits.
pub fn agent<S: Store + 'static>(store: impl FnOnce(Arc<dyn Clock>) -> S + 'static, script: Script) -> AgentTest {
    let (mut make, mut made) = (Some(store), None);
    agent_on(
        move |opening| {
            if let Some(make) = make.take() {
                let store: Arc<dyn Store> = Arc::new(make(opening.clock()));
                made = Some(store);
            }
            made.clone().ok_or_else(|| StoreError::new(StoreErrorKind::Unavailable, "the store was not made"))
        },
        script,
    )
}

/// An agent whose model follows a script, on a store that is opened, and opened again after each crash.
///
/// For stores that work on threads of their own there is [`Opening::hold`].
pub fn agent_on(
    open: impl FnMut(&Opening) -> Result<Arc<dyn Store>, StoreError> + 'static,
    script: Script,
) -> AgentTest {
    AgentTest {
        plan: Plan {
            name: "a test of an agent".to_owned(),
            why: None,
            system: Vec::new(),
            models: vec![Model::default()],
            settings: quiet_settings(),
            max_steps: None,
            items: Vec::new(),
            faults: Vec::new(),
            expect: None,
            ordeal: None,
        },
        script,
        tools: ScriptedTools::default(),
        others: None,
        policy: None,
        adjust: None,
        effects: Effects::new(),
        open: Box::new(open),
        trigger: None,
    }
}

/// A test of an agent as it is put together: what it is made of, then what happens, in order.
///
/// It runs on a runtime of its own, in virtual time: nothing in it waits for real.
/// It is strict: a script that is not used up or is overrun, a request that is not well-formed, a log that breaks an invariant fail the test and say where.
#[must_use = "a test does nothing until it is played"]
pub struct AgentTest {
    plan: Plan,
    script: Script,
    tools: ScriptedTools,
    others: Option<Arc<dyn ToolSource>>,
    policy: Option<Arc<dyn Policy>>,
    adjust: Option<Adjust>,
    effects: Effects,
    open: OpenStore,
    trigger: Option<Trigger>,
}

type OpenStore = Box<dyn FnMut(&Opening) -> Result<Arc<dyn Store>, StoreError>>;

/// What the agent is made of.
impl AgentTest {
    /// Scripted tools; keep a clone to see what they did.
    pub fn tools(mut self, tools: ScriptedTools) -> Self {
        self.tools = tools;
        self
    }

    /// The agent's own tools.
    pub fn own_tools(mut self, tools: impl ToolSource + 'static) -> Self {
        self.others = Some(Arc::new(tools));
        self
    }

    /// The world that the agent's own tools act on, where a test wants to see whether they act twice.
    pub fn effects(mut self, effects: Effects) -> Self {
        self.effects = effects;
        self
    }

    /// What else the agent's runner is made of: where outputs are kept, instructions, further agents.
    ///
    /// It is called again for each runner, after each crash.
    pub fn runner(mut self, adjust: impl Fn(Builder) -> Builder + Send + Sync + 'static) -> Self {
        self.adjust = Some(Arc::new(adjust));
        self
    }

    /// The agent's own policy; without, the scripted tools decide.
    pub fn policy(mut self, policy: impl Policy + 'static) -> Self {
        self.policy = Some(Arc::new(policy));
        self
    }

    /// One more part of the system prompt.
    pub fn system(mut self, part: impl Into<String>) -> Self {
        self.plan.system.push(part.into());
        self
    }

    /// What is known about the model: its limits, its price.
    pub fn model(mut self, info: ModelInfo) -> Self {
        self.plan.models = vec![Model { info, ..Model::default() }];
        self
    }

    /// The runner's settings; without, the product's, without jitter.
    pub fn settings(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(&mut self.plan.settings);
        self
    }

    /// How many steps may follow one another without new input.
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.plan.max_steps = Some(steps);
        self
    }
}

/// What happens.
impl AgentTest {
    /// A person says something.
    pub fn prompt(self, text: impl Into<String>) -> Self {
        self.item(Item::Prompt { text: text.into(), delivery: Delivery::Steer, key: None })
    }

    /// A person says something that is delivered when the session would go idle.
    pub fn queue(self, text: impl Into<String>) -> Self {
        self.item(Item::Prompt { text: text.into(), delivery: Delivery::Queue, key: None })
    }

    /// The session runs until it is idle, has failed, was interrupted or waits for a person.
    pub fn runs(self) -> Self {
        self.item(Item::Run)
    }

    /// The session begins to run; what follows happens meanwhile.
    pub fn starts(self) -> Self {
        self.item(Item::Start)
    }

    /// So many milliseconds pass.
    pub fn passes(self, millis: u64) -> Self {
        self.item(Item::Advance(millis))
    }

    /// Somebody interrupts.
    pub fn interrupt(self) -> Self {
        self.item(Item::Interrupt)
    }

    /// A person allows a call; it is named by its label: the script's id, and `id#2` for the second one of that id.
    pub fn approve(self, call: impl Into<String>) -> Self {
        self.item(Item::Approve(call.into()))
    }

    /// A person refuses a call, perhaps with feedback.
    pub fn decline(self, call: impl Into<String>, feedback: impl Into<Option<String>>) -> Self {
        self.item(Item::Decline { call: call.into(), feedback: feedback.into() })
    }

    /// A person answers a tool's question.
    pub fn answer(self, call: impl Into<String>, text: impl Into<String>) -> Self {
        self.item(Item::Answer { call: call.into(), text: text.into() })
    }

    /// A person closes a tool's question unanswered.
    pub fn dismiss(self, call: impl Into<String>) -> Self {
        self.item(Item::Dismiss(call.into()))
    }

    /// Somebody asks for the history to be summarised.
    pub fn compact(self) -> Self {
        self.item(Item::Compact)
    }

    /// A gate of the script opens.
    pub fn open(self, gate: impl Into<String>) -> Self {
        self.item(Item::Open(gate.into()))
    }

    /// The process dies, and the store is opened again.
    pub fn crash(self) -> Self {
        self.item(Item::Crash)
    }

    /// What follows next happens when this call's tool has had its first poll.
    pub fn when_running(mut self, call: impl Into<String>) -> Self {
        self.trigger = Some(Trigger::Running(call.into()));
        self
    }

    /// What follows next happens when this durable event has landed, before the runner knows it.
    pub fn when(mut self, event: impl Into<String>) -> Self {
        self.trigger = Some(Trigger::Event(At::event(event)));
        self
    }

    /// What goes wrong at an append; a fault that never happens fails the test.
    ///
    /// A crash ends the run that it happens in, as [`crash`](Self::crash) does.
    pub fn fault(mut self, at: At, fault: Fault) -> Self {
        let place = format!("fault {}", self.plan.faults.len() + 1);
        let fault = match fault {
            Fault::Slow(span) => {
                StoreFault::Delay { millis: u64::try_from(span.as_millis()).unwrap_or(u64::MAX), at: Some(at) }
            }
            then => StoreFault::Fail { at, then },
        };
        self.plan.faults.push((place, fault));
        self
    }

    fn item(mut self, item: Item) -> Self {
        let item = match self.trigger.take() {
            None => item,
            Some(on) => Item::When { on, act: Box::new(item) },
        };
        let place = format!("item {}", self.plan.items.len() + 1);
        self.plan.items.push(Placed { place, item });
        self
    }

    /// A person says this, and the session runs to its end.
    ///
    /// # Panics
    ///
    /// As [`play`](Self::play).
    #[track_caller]
    pub fn run(self, prompt: impl Into<String>) -> AgentRun {
        self.prompt(prompt).runs().play()
    }

    /// Plays everything.
    ///
    /// # Panics
    ///
    /// Where something went wrong that must not: this is how the test fails.
    #[track_caller]
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn play(self) -> AgentRun {
        match self.try_play() {
            Ok(run) => run,
            Err(failed) => panic!("{failed}"),
        }
    }

    /// Plays everything, and gives what went wrong as a value.
    pub fn try_play(self) -> Result<AgentRun, Failed> {
        self.try_run().map(|Played { result, provider, .. }| AgentRun { result, provider })
    }

    /// Plays everything, strictly.
    pub(crate) fn try_run(self) -> Result<Played, Failed> {
        let name = self.plan.name.clone();
        let failed = |lines| Failed { name: name.clone(), lines };
        let played = self.perform().map_err(|error| failed(vec![error.to_string()]))?;
        let mut lines = played.result.violations.clone();
        lines.extend(played.provider.left());
        if lines.is_empty() {
            Ok(played)
        } else {
            lines.push(format!("this is what happened:\n{}", played.result.transcript));
            Err(failed(lines))
        }
    }

    /// The same test, in which the session is put through an ordeal.
    ///
    /// What is asked beyond the script is answered, and a prompt that is left out at the end is no matter: only what must never happen counts.
    pub(crate) fn through(mut self, ordeal: Ordeal) -> Self {
        self.plan.ordeal = Some(ordeal);
        self.script.misfit = Misfit::Skip;
        if self.script.always.is_none() {
            self.script = self.script.always(|s| s.text("Done.").finish());
        }
        self
    }

    pub(crate) fn script(&self) -> &Script {
        &self.script
    }

    pub(crate) fn follow(mut self, script: Script) -> Self {
        self.script = script;
        self
    }

    /// Plays everything, whatever comes of it.
    pub(crate) fn perform(mut self) -> Result<Played, RunError> {
        let (provider, tools, effects) = (self.script.provider(), self.tools, self.effects);
        let cast = Cast {
            provider: provider.clone(),
            tools: tools.clone(),
            others: self.others,
            policy: self.policy,
            adjust: self.adjust,
        };
        let result = crate::scenario::run(self.plan, cast, &mut self.open)?;
        Ok(Played { result, provider, tools, effects })
    }
}

/// A test that was played.
pub(crate) struct Played {
    pub(crate) result: ScenarioResult,
    pub(crate) provider: ScriptedProvider,
    pub(crate) tools: ScriptedTools,
    pub(crate) effects: Effects,
}

impl fmt::Debug for AgentTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentTest").field("items", &self.plan.items).finish_non_exhaustive()
    }
}

/// What came of a test of an agent.
#[derive(Clone, Debug)]
pub struct AgentRun {
    result: ScenarioResult,
    provider: ScriptedProvider,
}

impl AgentRun {
    /// How the last run went: `completed`, `interrupted`, `failed` or `parked`.
    pub fn outcome(&self) -> &str {
        self.result.value()["outcome"].as_str().unwrap_or_default()
    }

    /// The text of the last step that produced any.
    pub fn answer(&self) -> Option<&str> {
        self.result.value()["answer"].as_str()
    }

    /// The class of the failure that the last run ended with, if it did.
    pub fn error(&self) -> Option<&str> {
        self.result.value()["error"]["class"].as_str()
    }

    /// What everything has cost, in nano-units of money; `None` where no price is known.
    pub fn cost_nanos(&self) -> Option<u64> {
        self.result.value()["usage"]["cost_nanos"].as_u64()
    }

    /// How long it took, in virtual milliseconds.
    pub fn elapsed(&self) -> u64 {
        self.result.value()["elapsed"].as_u64().unwrap_or_default()
    }

    /// Every request, in order.
    pub fn requests(&self) -> Vec<Arc<Request>> {
        self.provider.requests()
    }

    /// The session's log as plain text, to be compared as a whole.
    pub fn transcript(&self) -> String {
        self.result.transcript.to_string()
    }

    /// Everything else, in the form of a scenario's result.
    pub fn result(&self) -> &ScenarioResult {
        &self.result
    }
}

//! Scenario files: a scripted provider, tools, a person and faults, run on the real runner in virtual time.
//!
//! A scenario says what happens and what must come out; the same file can be run by the `settled` command and by a test, on any store.
//!
//! ```
//! # use std::sync::Arc;
//! use settled_store_memory::MemoryStore;
//! use settled_testkit::scenario::Scenario;
//!
//! let scenario = Scenario::parse(
//!     r#"{
//!         "name": "a greeting",
//!         "provider": [{"stream": [{"text": "Hi"}, {"finish": {"reason": "stop"}}]}],
//!         "expect": {"outcome": "completed", "answer": "Hi", "unused": 0}
//!     }"#,
//! )?;
//! let mut memory = None;
//! let result = scenario.run(|opening| {
//!     let store = memory.get_or_insert_with(|| MemoryStore::new(opening.clock()));
//!     Ok(Arc::new(store.clone()))
//! })?;
//! result.verdict()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What the format leaves open, and what was chosen
//!
//! - The parts of `ok` and of a hosted result are `{"text": "..."}` and `{"media": "image/png", "data"?: "base64"}`.
//! - A run that goes on behind its question is the same run: `runs` counts it once.
//! - A cancel is noticed by `ignore_cancel` so many milliseconds after it came.
//! - A slow store waits before it appends; what it acknowledges at one moment precedes the tools' ends of that moment.
//! - `nth` of a fault counts the events that have landed, from the beginning; `nth` of a trigger counts from where it is armed.
//! - With `lose_hints`, input comes as if from another process: the runner has to find it by itself.
//! - A step that waits for a person has a row in `steps` without a settlement and a terminal; one that was left open otherwise has none.
//! - A prompt wakes the session only while something runs: a `run` takes in what comes before its end is seen.
//! - A tool's first poll, which `running` waits for, includes whatever the tool does before it first waits.
//! - The prompts and the notices that are pending are listed in `pending`, other input is not.
//! - A crash during `advance` shortens nothing: the rest of the time passes after the store was opened again.
//! - A run that goes on for more than a virtual day is a violation.
//! - A run of a tool before its start is durable, and one that is still under way at the end, are violations.

mod expect;

mod from_log;

pub(crate) mod parse;

pub(crate) mod plan;

mod show;

mod store;

mod world;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;
use serde_json::{Value, json};
use settled_ledger::check::check_log;
use settled_ledger::store::{Next, Store, StoreError};
use settled_ledger::{Clock, Delivery, Event, InboxItem, NewInputKind, Recorded, SessionFold, WorkerId};
use settled_provider_api::Request;
use settled_runner::{Agent, Runner, Serving, Session, SessionEvent, Settled};
use settled_tools_api::{CallKey, SessionId};

pub use self::expect::Mismatch;
pub use self::from_log::FromLogError;
pub use self::parse::ParseError;
use self::plan::{Cast, Item, Plan, Roles};
use self::store::Staged;
use self::world::{Closed, Life, SharedPolicy, World};
use crate::conductor::{Conductor, VirtualClock};
use crate::ordeal::Write;
use crate::pace::Class;
use crate::script::Script;
use crate::transcript::Transcript;

/// How long a run may take, in virtual milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1_000;

/// How long what still runs at the end of the script may go on.
const HOUR: u64 = 60 * 60 * 1_000;

/// One scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    plan: Plan,
    roles: Roles,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// *Fails* where the text is no JSON, where a key is not known, is missing or has a wrong value; the error says which and where.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        parse::plan(text).map(|(plan, roles)| Self { plan, roles })
    }

    /// The scenario of a session that has happened: the provider says again what it said, the tools do what they did, people say and do what they did at the same point, and the process dies where it died.
    ///
    /// It expects what the log has, event by event; where something of the log cannot be played again, `why` says what is left out, and it expects the same answer and outcome.
    /// *Fails* where the log is empty or a row of it does not read.
    pub fn from_log(log: &[Recorded]) -> Result<Self, FromLogError> {
        let text = from_log::file(log)?;
        Self::parse(&text).map_err(FromLogError::Unplayable)
    }

    /// The same as the text of a scenario file.
    ///
    /// *Fails* where [`from_log`](Self::from_log) does.
    pub fn file_from_log(log: &[Recorded]) -> Result<String, FromLogError> {
        from_log::file(log)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.plan.name
    }

    /// What it is for, if it says so.
    pub fn why(&self) -> Option<&str> {
        self.plan.why.as_deref()
    }

    /// Runs it on a store of its own, on a runtime of its own, in virtual time.
    ///
    /// `open` opens the store, and opens the *same* store again after each crash of the scenario.
    /// It must not be called in an asynchronous context.
    /// *Fails* where the store cannot be opened or read; whatever else goes wrong is in the result.
    pub fn run(
        &self,
        mut open: impl FnMut(&Opening) -> Result<Arc<dyn Store>, StoreError>,
    ) -> Result<ScenarioResult, RunError> {
        run(self.plan.clone(), self.roles.cast(), &mut open)
    }
}

impl Script {
    /// What the provider answered in a session that has happened, one entry for each request.
    ///
    /// *Fails* where [`Scenario::from_log`] does.
    pub fn from_log(log: &[Recorded]) -> Result<Self, FromLogError> {
        Scenario::from_log(log).map(|scenario| scenario.roles.provider)
    }
}

/// Opens the store, and opens it again.
type Open<'a> = dyn FnMut(&Opening) -> Result<Arc<dyn Store>, StoreError> + 'a;

/// Runs a plan with its cast.
pub(crate) fn run(plan: Plan, cast: Cast, open: &mut Open<'_>) -> Result<ScenarioResult, RunError> {
    let session = SessionId::new("scenario").map_err(|error| RunError(error.to_string()))?;
    let world = World::new(plan, cast, session);
    let ended = play(&world, open)?;
    Ok(ScenarioResult::new(&world, ended))
}

/// What whoever opens a store for a scenario is given.
#[derive(Clone)]
pub struct Opening {
    conductor: Arc<Conductor>,
    crashes: u32,
}

impl Opening {
    /// The clock of virtual time; the store's leases must go by it.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(VirtualClock(Arc::clone(&self.conductor)))
    }

    /// How often the process has died before.
    pub fn crashes(&self) -> u32 {
        self.crashes
    }

    /// For a store that works on threads of its own: takes hold of virtual time at the beginning of each call, until what it gives is dropped.
    ///
    /// A store that answers at its first poll does not need it.
    pub fn hold(&self) -> impl Fn() -> Box<dyn Any + Send> + Send + Sync + use<> {
        let conductor = Arc::clone(&self.conductor);
        move || Box::new(conductor.hold())
    }
}

impl fmt::Debug for Opening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").field("crashes", &self.crashes).finish_non_exhaustive()
    }
}

/// A scenario could not be run: its store, or the machine, did not let it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError(String);

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RunError {}

/// What is there when a scenario is over.
struct Ended {
    log: Vec<Recorded>,
    pending: Vec<InboxItem>,
    elapsed: u64,
    /// The calls whose tools still run.
    running: Vec<CallKey>,
}

/// Plays a scenario, from crash to crash, to its end.
fn play(world: &Arc<World>, open: &mut Open<'_>) -> Result<Ended, RunError> {
    let mut opening = Opening { conductor: Arc::clone(&world.conductor), crashes: 0 };
    loop {
        let runtime = world.conductor.runtime().map_err(|error| RunError(format!("no runtime: {error}")))?;
        let opened = {
            let _context = runtime.enter();
            open(&opening)
        };
        let inner = opened.map_err(|error| RunError(format!("the store cannot be opened: {error}")))?;
        // In a task of its own: the conductor can see when nothing but the root could go on.
        let mut living = runtime.spawn(live(Arc::clone(world), inner));
        let ended = runtime.block_on(async {
            let mut crashed = pin!(world.crashed.notified());
            poll_fn(|context| {
                if crashed.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                std::pin::Pin::new(&mut living).poll(context).map(Some)
            })
            .await
        });
        world.conductor.die();
        world.live_in(None);
        drop(runtime);
        world.stop();
        world.rewind();
        match ended {
            Some(Ok(ended)) => return ended,
            Some(Err(error)) => return Err(RunError(format!("the scenario's driver broke: {error}"))),
            None => opening.crashes += 1,
        }
    }
}

/// The driver, between two crashes.
async fn live(world: Arc<World>, inner: Arc<dyn Store>) -> Result<Ended, RunError> {
    let failed = |error: &dyn fmt::Display| RunError(error.to_string());
    let store: Arc<dyn Store> = Arc::new(Staged { world: Arc::clone(&world), inner: Arc::clone(&inner) });
    // After a crash the same worker comes back: it need not wait for its own lease to run out.
    let runner = runner(&world, &store, 1).map_err(|error| failed(&error))?;
    let inside = runner.session(world.session.as_str()).await.map_err(|error| failed(&error))?;
    let outside = if world.loses_hints() {
        let other = self::runner(&world, &store, 2).map_err(|error| failed(&error))?;
        other.session(world.session.as_str()).await.map_err(|error| failed(&error))?
    } else {
        inside.clone()
    };
    let life = Life { store, inside, outside };
    world.live_in(Some(life.clone()));
    let head = inner.info(&world.session).await.map_err(|error| failed(&error))?.head;
    let watching = tokio::spawn(watch(Arc::clone(&world), life.inside.follow(head)));

    if let Some(until) = world.advancing() {
        advance(&world, until).await;
    } else {
        world.conductor.quiet().await;
    }
    let mut stopped = world.stopped_item();
    while let Some((placed, turn)) = match stopped.take() {
        Some(item) => Some((item, Turn::Again)),
        None => world.next_item().map(|item| (item, Turn::First)),
    } {
        let place = placed.place;
        match placed.item {
            Item::Run => {
                world.begun();
                match patience(&world, DAY, drain(&life.inside, turn)).await {
                    Some(ended) => world.ended(&place, ended),
                    None => world.violation(format!("{place}: the run does not end")),
                }
            }
            Item::Start => {
                world.begun();
                let (started, session, place) = (Arc::clone(&world), life.inside.clone(), place.clone());
                world.track(tokio::spawn(async move { started.ended(&place, drain(&session, turn).await) }));
            }
            Item::Advance(millis) => {
                // What follows precedes everything that is due then, so nothing is waited for.
                world.item_done();
                advance(&world, world.conductor.now().saturating_add(millis)).await;
                continue;
            }
            Item::When { on, act } => world.arm(place, on, *act),
            act => world.act(&place, &act).await,
        }
        world.item_done();
        world.conductor.quiet().await;
    }
    let rest = world.tracked();
    let all = async {
        for task in rest {
            // A task that panicked has said so.
            let _ = task.await;
        }
    };
    if patience(&world, HOUR, all).await.is_none() {
        world.violation("something still runs a virtual hour after the end of the script");
    }
    world.conductor.quiet().await;
    if world.plan.ordeal.is_some() && !matches!(world.next().await, Ok(Next::Waiting(_))) {
        go_on(&world, &life).await;
    }
    let elapsed = world.conductor.now();
    let running = world.tools.running();
    watching.abort();
    world.leaked(life.inside.leaked());
    let dropped = runner.dropped_unsettled();
    if dropped > 0 {
        world.violation(format!("{dropped} attempts at a step were dropped before they settled"));
    }
    let log = world::whole_log(inner.as_ref(), &world.session).await.map_err(|error| failed(&error))?;
    let pending = inner.pending(&world.session).await.map_err(|error| failed(&error))?;
    Ok(Ended { log, pending, elapsed, running })
}

/// Whether a script item is done for the first time, or is taken up after a crash.
#[derive(Clone, Copy)]
enum Turn {
    First,
    Again,
}

/// Runs a session; taken up again, it does what is left to do, and asks for nothing more.
async fn drain(session: &Session, turn: Turn) -> Result<Settled, settled_runner::Error> {
    match turn {
        Turn::First => session.run().await,
        Turn::Again => {
            session.wake();
            session.settled().await
        }
    }
}

/// Whatever a session has been through: a person says something more, and is answered.
async fn go_on(world: &Arc<World>, life: &Life) {
    let place = "going on";
    world.act(place, &Item::Prompt { text: "Go on.".to_owned(), delivery: Delivery::Steer, key: None }).await;
    world.begun();
    match patience(world, DAY, life.inside.run()).await {
        Some(ended) => world.ended(place, ended),
        None => world.violation(format!("{place}: the run does not end")),
    }
    world.conductor.quiet().await;
}

fn runner(world: &Arc<World>, store: &Arc<dyn Store>, worker: u128) -> Result<Runner, settled_runner::Error> {
    let mut agent = world.plan.system.iter().fold(Agent::new("scenario"), |agent, part| agent.system(part));
    if let Some(steps) = world.plan.max_steps {
        agent = agent.max_steps(steps);
    }
    let mut builder = Runner::builder()
        .shared_store(Arc::clone(store))
        .tools(world.toolbox.clone())
        .policy(SharedPolicy(Arc::clone(&world.policy)))
        .agent(agent)
        .clock(VirtualClock(Arc::clone(&world.conductor)))
        .ids(world.ids.clone())
        .worker(WorkerId::from_u128(worker))
        .serving(Serving::Asked)
        .settings(world.plan.settings.clone());
    for model in &world.plan.models {
        builder = builder.model(model.reference(), world.provider.clone(), model.info.clone());
    }
    world.adjust.iter().fold(builder, |builder, adjust| adjust(builder)).build()
}

/// Lets time move to a moment.
async fn advance(world: &World, until: u64) {
    world.advance_to(Some(until));
    let left = until.saturating_sub(world.conductor.now());
    world.conductor.turn(Class::Driver, (0, 0), left).await;
    world.advance_to(None);
}

/// Waits for something, for so many virtual milliseconds at most.
async fn patience<T>(world: &World, millis: u64, what: impl Future<Output = T>) -> Option<T> {
    let mut end = pin!(world.conductor.turn(Class::Deadline, (0, 0), millis));
    let mut what = pin!(what);
    poll_fn(|context| {
        if let Poll::Ready(done) = what.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        end.as_mut().poll(context).map(|()| None)
    })
    .await
}

/// Watches the live events, and does what triggers want.
async fn watch(world: Arc<World>, mut follow: settled_runner::Follow) {
    while let Some(Ok(event)) = follow.next().await {
        match event {
            SessionEvent::Live(event) => {
                // The next event of the stream is granted only when this is done.
                for (place, act) in world.live(&event) {
                    world.act(&place, &act).await;
                }
            }
            SessionEvent::Lagged(missed) => world.violation(format!("{missed} live events were missed")),
            _ => {}
        }
    }
}

/// What came of a scenario.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ScenarioResult {
    json: Value,
    text: String,
    /// What must never happen and has happened.
    pub violations: Vec<String>,
    /// Where the result is not what the scenario expects.
    pub mismatches: Vec<Mismatch>,
    /// The session's log, for people.
    pub transcript: Transcript,
    /// The session's log.
    pub log: Vec<Recorded>,
    /// The requests that the provider was sent, in order.
    pub requests: Vec<Arc<Request>>,
    /// Everything that was written, and whether it has landed.
    pub(crate) writes: Vec<(Write, bool)>,
}

/// A result in the order in which it is printed.
#[derive(Serialize)]
struct Shown {
    name: String,
    outcome: Value,
    error: Value,
    answer: Option<String>,
    steps: Vec<Value>,
    events: Vec<Value>,
    live: BTreeMap<&'static str, u64>,
    requests: Vec<Value>,
    runs: BTreeMap<String, u64>,
    effects: BTreeMap<String, u64>,
    effect_keys: BTreeMap<String, u64>,
    pending: Vec<Value>,
    waiting_for: Vec<Value>,
    leaked: Vec<String>,
    unused: usize,
    appends: u64,
    elapsed: u64,
    usage: Value,
    violations: Vec<String>,
}

impl ScenarioResult {
    fn new(world: &World, ended: Ended) -> Self {
        let Ended { log, pending, elapsed, running } = ended;
        let mut closed = world.close();
        let mut violations = std::mem::take(&mut closed.violations);
        violations.extend(check_log(&log).iter().map(ToString::to_string));
        let mut events = Vec::new();
        let mut fold = SessionFold::new();
        for recorded in &log {
            match recorded.event() {
                Ok(event) => {
                    fold.apply(recorded.seq, &event);
                    events.push(event);
                }
                Err(error) => violations.push(error.to_string()),
            }
        }
        violations.extend(world::lost_input(&closed, &events, &pending));
        violations.extend(still_running(&running, &closed));
        let names = &closed.names;
        let (outcome, error) = closed.last.clone().unzip();
        let priced = events.iter().any(|event| match event {
            Event::StepEnded(event) => event.cost_nanos.is_some(),
            Event::StepFailed(event) => event.cost_nanos.is_some(),
            Event::CompactionEnded(event) => event.cost_nanos.is_some(),
            Event::CompactionFailed(event) => event.cost_nanos.is_some(),
            _ => false,
        });
        let mut usage = show::usage(Some(&fold.totals.usage));
        if let Some(fields) = usage.as_object_mut() {
            fields.insert("cost_nanos".to_owned(), json!(priced.then_some(fold.totals.cost_nanos)));
        }
        let requests = world.provider.requests();
        let ran = world.tools.calls();
        let count = |of: &dyn Fn(&crate::tools::CallCounts) -> u64| {
            names.calls().map(|(label, call)| (label.to_owned(), ran.get(&call).map_or(0, of))).collect()
        };
        let shown = Shown {
            name: world.plan.name.clone(),
            outcome: json!(outcome.map(settled_ledger::Outcome::name)),
            error: json!(error.flatten().map(|error| json!({"class": error.class.name(), "message": error.message}))),
            answer: fold.history.last_answer(),
            steps: show::steps(names, &events),
            events: events.iter().filter_map(|event| show::event(names, event)).collect(),
            live: closed.live.clone(),
            requests: requests.iter().map(|request| show::request(names, request)).collect(),
            runs: count(&|call| call.runs),
            effects: count(&|call| call.effects),
            effect_keys: count(&|call| call.keys.len() as u64),
            pending: pending.iter().filter_map(shown_input).collect(),
            waiting_for: show::waiting(names, &events),
            leaked: closed.leaked.iter().map(|call| names.label(*call)).collect(),
            unused: world.provider.unused(),
            appends: closed.appends,
            elapsed,
            usage,
            violations: violations.clone(),
        };
        let json = json!(shown);
        let mismatches = world.plan.expect.as_ref().map(|expect| expect::compare(expect, &json)).unwrap_or_default();
        let text = serde_json::to_string(&shown).unwrap_or_else(|_| json.to_string());
        Self {
            json,
            text,
            violations,
            mismatches,
            transcript: Transcript::of(&log),
            log,
            requests,
            writes: closed.writes,
        }
    }

    /// The result as one line of JSON.
    pub fn to_json(&self) -> &str {
        &self.text
    }

    /// The result as a JSON value.
    pub fn value(&self) -> &Value {
        &self.json
    }

    /// Whether the result is what the scenario expects, and nothing happened that must never happen.
    pub fn verdict(&self) -> Result<(), Failed> {
        if self.violations.is_empty() && self.mismatches.is_empty() {
            return Ok(());
        }
        let lines = self.violations.iter().map(|violation| format!("violation: {violation}"));
        let lines: Vec<String> = lines.chain(self.mismatches.iter().map(ToString::to_string)).collect();
        Err(Failed { name: self.json["name"].as_str().unwrap_or_default().to_owned(), lines })
    }
}

/// A scenario that did not come out as expected; it prints what was wrong, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failed {
    /// The scenario's name.
    pub name: String,
    /// What was wrong.
    pub lines: Vec<String>,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the scenario `{}` did not come out as expected:", self.name)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

impl std::error::Error for Failed {}

/// An input that is pending, if it is said by somebody.
fn shown_input(item: &InboxItem) -> Option<Value> {
    let delivery = item.input.delivery()?.name();
    match &item.input {
        NewInputKind::Prompt(prompt) => Some(json!({"input": show::text(&prompt.content), "delivery": delivery})),
        NewInputKind::Notice(notice) => Some(json!({"input": notice.text, "delivery": delivery})),
        _ => None,
    }
}

/// The tools that run at the end, and are not reported as leaked (I8).
fn still_running(running: &[CallKey], closed: &Closed) -> Vec<String> {
    let running = running.iter().filter(|call| !closed.leaked.contains(call));
    running.map(|call| format!("I8 is broken: the tool of call `{}` still runs", closed.names.label(*call))).collect()
}

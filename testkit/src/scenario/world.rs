//! Everything of a running scenario that outlives a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use settled_ledger::store::{Batch, Next};
use settled_ledger::{
    BatchId, Delivery, Event, Ids, InputId, LiveEvent, NewInputKind, Outcome, Recorded, Seq, StepError,
};
use settled_provider_api::RequestKind;
use settled_runner::{Error, Interrupted, Session};
use settled_tools_api::{
    CallKey, Decision, MessageId, OfferTo, Policy, PolicyCall, SessionId, ToolExecutor, ToolSource, Toolbox,
};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::plan::{Adjust, Cast, Item, Ordeal, Placed, Plan, StoreFault, Trigger};
use crate::conductor::Conductor;
use crate::faults::{At, Fault};
use crate::names::Names;
use crate::ordeal::{Fact, Side, Write};
use crate::pace::Pace;
use crate::script::ScriptedProvider;
use crate::spot::{Landed, Seen};
use crate::tools::ScriptedTools;

/// What a running scenario consists of, but for the runner, which a crash takes with it.
pub(crate) struct World {
    pub(crate) conductor: Arc<Conductor>,
    pub(crate) plan: Plan,
    pub(crate) session: SessionId,
    pub(crate) provider: ScriptedProvider,
    pub(crate) tools: ScriptedTools,
    /// All tools, scripted and others.
    pub(crate) toolbox: Toolbox,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) adjust: Option<Adjust>,
    pub(crate) ids: CountingIds,
    pub(crate) crashed: Notify,
    book: Mutex<Book>,
    life: Mutex<Option<Life>>,
}

/// A runner's sessions, between two crashes.
#[derive(Clone)]
pub(crate) struct Life {
    pub(crate) store: Arc<dyn settled_ledger::store::Store>,
    /// The session where it is run.
    pub(crate) inside: Session,
    /// The session as whoever admits input sees it: the same, or that of another process.
    pub(crate) outside: Session,
}

#[derive(Default)]
struct Book {
    landed: Landed,
    started: BTreeSet<CallKey>,
    appends: u64,
    faults: Vec<(String, StoreFault, Used)>,
    triggers: Vec<Armed>,
    live: BTreeMap<&'static str, u64>,
    violations: Vec<String>,
    admitted: Vec<InputId>,
    cancelled: BTreeSet<InputId>,
    last: Option<(Outcome, Option<StepError>)>,
    leaked: Vec<CallKey>,
    running: Vec<JoinHandle<()>>,
    /// How many runs are waited for.
    runs: u32,
    /// The next script item.
    next: usize,
    /// The script item that is under way.
    present: Option<Placed>,
    /// Everything that was written, and whether it has landed.
    writes: Vec<(Write, bool)>,
    /// The crash of the ordeal has happened.
    crashed: bool,
    /// The steps whose answers go on from where they were, whatever happens.
    kept: BTreeSet<MessageId>,
    /// The attempt that will be the next one at a step that has failed.
    retries: BTreeMap<MessageId, u32>,
    /// How many summaries were made, or given up.
    summaries: usize,
    /// Until when the present `advance` lasts.
    advancing: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Used {
    Yes,
    No,
}

struct Armed {
    place: String,
    on: Trigger,
    act: Item,
    /// How often what it waits for must still happen.
    left: u64,
}

/// Ids that count: the same in every run.
#[derive(Clone, Default)]
pub(crate) struct CountingIds(Arc<AtomicU64>);

impl Ids for CountingIds {
    fn next(&self) -> u128 {
        u128::from(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl World {
    pub(crate) fn new(plan: Plan, cast: Cast, session: SessionId) -> Arc<Self> {
        let conductor = Arc::<Conductor>::default();
        let pace = Pace::Conducted(Arc::clone(&conductor));
        let Cast { provider, tools, others, policy, adjust } = cast;
        let provider = plan.models.iter().fold(provider.paced(pace.clone()), |provider, model| {
            provider.capabilities(model.reference(), model.info.capabilities.clone())
        });
        let tools = tools.paced(pace);
        let scripted = Toolbox::new().with_source(tools.clone());
        let toolbox = others.into_iter().fold(scripted, |toolbox, others| toolbox.with_source(SharedSource(others)));
        let policy = policy.unwrap_or_else(|| Arc::new(tools.clone()));
        let faults = plan.faults.iter().map(|(place, fault)| (place.clone(), fault.clone(), Used::No)).collect();
        let world = Arc::new(Self {
            conductor,
            plan,
            session,
            provider,
            tools,
            toolbox,
            policy,
            adjust,
            ids: CountingIds::default(),
            crashed: Notify::new(),
            book: Mutex::new(Book { faults, ..Book::default() }),
            life: Mutex::default(),
        });
        let weak = Arc::downgrade(&world);
        world.tools.observed(Arc::new(move |call| {
            if let Some(world) = weak.upgrade() {
                world.running(call);
            }
        }));
        world
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn live_in(&self, life: Option<Life>) {
        *self.life.lock().unwrap_or_else(PoisonError::into_inner) = life;
    }

    pub(crate) fn life(&self) -> Option<Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The process dies: whatever is not durable is gone.
    pub(crate) fn crash(&self) {
        self.conductor.die();
        self.crashed.notify_one();
    }

    pub(crate) fn violation(&self, what: impl Into<String>) {
        self.book().violations.push(what.into());
    }

    /// The next script item and its number; it counts as done from now on.
    pub(crate) fn next_item(&self) -> Option<Placed> {
        let mut book = self.book();
        let item = self.plan.items.get(book.next).cloned();
        book.next += 1;
        book.present.clone_from(&item);
        item
    }

    /// The script item that is under way is done.
    pub(crate) fn item_done(&self) {
        self.book().present = None;
    }

    /// The script item that a crash has stopped, where an ordeal takes it up again.
    pub(crate) fn stopped_item(&self) -> Option<Placed> {
        self.plan.ordeal.and_then(|_| self.book().present.clone())
    }

    /// Something is about to be written; gives its number.
    pub(crate) fn begin_write(&self, write: Write) -> usize {
        let mut book = self.book();
        book.writes.push((write, false));
        book.writes.len() - 1
    }

    pub(crate) fn end_write(&self, number: usize) {
        if let Some((_, landed)) = self.book().writes.get_mut(number) {
            *landed = true;
        }
    }

    pub(crate) fn crashes_at(&self, write: usize, side: Side) -> bool {
        let crashes = self.plan.ordeal == Some(Ordeal::Crash(write, side));
        self.book().crashed |= crashes;
        crashes
    }

    /// After a crash: an answer of which nothing was kept is given once more.
    pub(crate) fn rewind(&self) {
        if self.plan.ordeal.is_none() {
            return;
        }
        let requests = self.provider.requests();
        let Some(last) = requests.last() else { return };
        let book = self.book();
        let kept = match last.purpose.kind {
            RequestKind::Summary => {
                let asked = requests.iter().filter(|request| request.purpose.kind == RequestKind::Summary).count();
                book.summaries >= asked
            }
            _ => {
                let next = book.retries.get(&last.purpose.step).copied().unwrap_or_default();
                book.kept.contains(&last.purpose.step) || next > last.purpose.attempt
            }
        };
        drop(book);
        if !kept {
            self.provider.rewind();
        }
    }

    pub(crate) fn advancing(&self) -> Option<u64> {
        self.book().advancing
    }

    pub(crate) fn advance_to(&self, until: Option<u64>) {
        self.book().advancing = until;
    }

    pub(crate) fn arm(&self, place: String, on: Trigger, act: Item) {
        let left = match &on {
            Trigger::Event(At { nth, .. }) | Trigger::Live { nth, .. } => *nth,
            Trigger::Running(_) => 1,
        };
        self.book().triggers.push(Armed { place, on, act, left });
    }

    pub(crate) fn track(&self, task: JoinHandle<()>) {
        self.book().running.push(task);
    }

    /// What was running is gone with its process.
    pub(crate) fn stop(&self) {
        let mut book = self.book();
        book.runs = 0;
        book.running.clear();
    }

    pub(crate) fn tracked(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut self.book().running)
    }

    /// A run begins.
    pub(crate) fn begun(&self) {
        self.book().runs += 1;
    }

    /// How a run has ended.
    pub(crate) fn ended(&self, place: &str, ended: Result<settled_runner::Settled, Error>) {
        self.book().runs -= 1;
        match ended {
            Ok(settled) => self.book().last = Some((settled.outcome, settled.error)),
            Err(error) => self.violation(format!("{place}: the run failed: {error}")),
        }
    }

    pub(crate) fn leaked(&self, calls: Vec<CallKey>) {
        self.book().leaked.extend(calls);
    }

    pub(crate) fn loses_hints(&self) -> bool {
        self.plan.faults.iter().any(|(_, fault)| matches!(fault, StoreFault::LoseHints))
    }

    /// The events of a batch, with the names that they would have if it landed.
    pub(crate) fn look_at(&self, batch: &Batch) -> Vec<Seen> {
        self.book().landed.look_at(&self.session, batch)
    }

    /// How long the append of these events takes.
    pub(crate) fn delay(&self, seen: &[Seen]) -> u64 {
        let mut sum: u64 = 0;
        for (_, fault, used) in &mut self.book().faults {
            let StoreFault::Delay { millis, at } = fault else { continue };
            let applies = match at {
                None => true,
                Some(at) => *used == Used::No && seen.iter().any(|seen| seen.is_at(at)),
            };
            if applies {
                *used = Used::Yes;
                sum = sum.saturating_add(*millis);
            }
        }
        sum
    }

    /// What goes wrong at the append of these events.
    pub(crate) fn fault(&self, seen: &[Seen]) -> Option<Fault> {
        self.book().faults.iter_mut().find_map(|(_, fault, used)| match fault {
            StoreFault::Fail { at, then } if *used == Used::No && seen.iter().any(|seen| seen.is_at(at)) => {
                *used = Used::Yes;
                Some(*then)
            }
            _ => None,
        })
    }

    /// Takes in events that have landed; gives what triggers do about them.
    pub(crate) fn landed(&self, batch: BatchId, seen: Vec<Seen>) -> Vec<(String, Item)> {
        let mut book = self.book();
        if !book.landed.land(batch, &seen) {
            return Vec::new();
        }
        book.appends += 1;
        let mut acts = Vec::new();
        for Seen { event, kind, label, .. } in seen {
            if let Some(event) = event {
                book.take_in(&event);
            }
            acts.extend(book.fire(|on| matches!(on, Trigger::Event(at) if at.is_of(&kind, label.as_deref()))));
        }
        acts
    }

    /// A call's tool has had its first poll.
    fn running(self: Arc<Self>, call: CallKey) {
        let mut book = self.book();
        let label = book.landed.names.label(call);
        if !book.started.contains(&call) {
            book.violations
                .push(format!("the tool of call `{label}` was polled before its `tool.started` was durable"));
        }
        let acts = book.fire(|on| matches!(on, Trigger::Running(call) if *call == label));
        drop(book);
        for (place, act) in acts {
            if matches!(act, Item::Crash) {
                self.crash();
                return;
            }
            let world = Arc::clone(&self);
            // The tool's next wait is granted only when this is done.
            drop(tokio::spawn(async move { world.act(&place, &act).await }));
        }
    }

    /// A live event was seen; gives what triggers do about it.
    pub(crate) fn live(&self, event: &LiveEvent) -> Vec<(String, Item)> {
        let seen = event.kind();
        let mut book = self.book();
        *book.live.entry(seen).or_default() += 1;
        book.fire(|on| matches!(on, Trigger::Live { kind, .. } if kind == seen))
    }

    /// Does what does not wait; what goes wrong with it is a violation.
    pub(crate) async fn act(self: &Arc<Self>, place: &str, item: &Item) {
        let Some(life) = self.life() else { return };
        // In an ordeal, what a person does may come too late.
        if let Err(error) = self.try_act(&life, place, item).await
            && self.plan.ordeal.is_none()
        {
            self.violation(format!("{place}: {error}"));
        }
    }

    async fn try_act(self: &Arc<Self>, life: &Life, place: &str, item: &Item) -> Result<(), String> {
        let Life { inside, outside, .. } = life;
        let call = |label: &str| {
            let call = self.book().landed.names.call(label);
            call.ok_or_else(|| format!("no call `{label}` has appeared"))
        };
        let said = |error: Error| error.to_string();
        match item {
            Item::Prompt { text, delivery, key } => {
                let mut input = outside.input(text);
                if self.book().runs == 0 {
                    input = input.without_waking();
                }
                if *delivery == Delivery::Queue {
                    input = input.queue();
                }
                if let Some(key) = key {
                    input = input.key(key);
                } else if self.plan.ordeal.is_some() {
                    // A person who was not answered says it again, and it counts once.
                    input = input.key(place);
                }
                let id = input.send().await.map_err(said)?;
                self.book().admitted.push(id);
            }
            Item::Interrupt => {
                let parked = matches!(self.next().await?, Next::Waiting(_));
                if outside.interrupt().await.map_err(said)? == Interrupted::Requested && parked {
                    // It settles the step at once.
                    let (world, place, session) = (Arc::clone(self), place.to_owned(), inside.clone());
                    self.begun();
                    self.track(tokio::spawn(async move {
                        session.wake();
                        world.ended(&place, session.settled().await);
                    }));
                }
            }
            Item::Approve(label) => drop(outside.approve(call(label)?).await.map_err(said)?),
            Item::Decline { call: label, feedback } => {
                outside.decline(call(label)?, feedback.clone()).await.map_err(said)?;
            }
            Item::Answer { call: label, text } => drop(outside.answer(call(label)?, text).await.map_err(said)?),
            Item::Dismiss(label) => drop(outside.dismiss(call(label)?).await.map_err(said)?),
            Item::Compact => drop(outside.compact().await.map_err(said)?),
            Item::Model(model) => drop(outside.switch_model(model.reference()).await.map_err(said)?),
            Item::Open(gate) => self.provider.open(gate),
            Item::CancelInput(key) => {
                let pending = outside.pending().await.map_err(said)?;
                if let Some(item) = pending.into_iter().find(|item| item.key.as_ref() == Some(key))
                    && outside.cancel_input(item.id).await.map_err(said)?
                {
                    self.book().cancelled.insert(item.id);
                }
            }
            Item::Crash => self.crash(),
            Item::Run | Item::Start | Item::Advance(_) | Item::When { .. } => {
                return Err("this may not be done here".to_owned());
            }
        }
        Ok(())
    }

    /// What the session waits for.
    pub(crate) async fn next(&self) -> Result<Next, String> {
        match self.life() {
            Some(life) => {
                let info = life.store.info(&self.session).await.map_err(|error| error.to_string())?;
                Ok(info.state.next)
            }
            None => Ok(Next::Idle),
        }
    }

    /// Everything that was counted, when the scenario is over.
    pub(crate) fn close(&self) -> Closed {
        let mut book = self.book();
        let mut violations = std::mem::take(&mut book.violations);
        violations.extend(self.provider.faults());
        for (place, fault, used) in &book.faults {
            if *used == Used::No && !matches!(fault, StoreFault::LoseHints | StoreFault::Delay { at: None, .. }) {
                violations.push(format!("{place}: the fault never happened"));
            }
        }
        violations.extend(book.triggers.iter().map(|armed| format!("{}: the trigger never fired", armed.place)));
        if self.plan.ordeal.is_some() {
            // An ordeal may keep what was meant to happen from happening.
            violations
                .retain(|violation| !violation.ends_with("never fired") && !violation.ends_with("never happened"));
        }
        if matches!(self.plan.ordeal, Some(Ordeal::Crash(..))) && !book.crashed {
            violations.push("the crash did not happen: the test does not play the same twice".to_owned());
        }
        Closed {
            names: book.landed.names.clone(),
            live: book.live.clone(),
            appends: book.appends,
            last: book.last.clone(),
            leaked: book.leaked.clone(),
            admitted: book.admitted.clone(),
            cancelled: book.cancelled.clone(),
            violations,
            writes: book.writes.clone(),
        }
    }
}

/// A source of tools that is used elsewhere too.
struct SharedSource(Arc<dyn ToolSource>);

#[async_trait]
impl ToolSource for SharedSource {
    async fn offer(&self, to: &OfferTo) -> Result<Arc<dyn ToolExecutor>, Box<dyn std::error::Error + Send + Sync>> {
        self.0.offer(to).await
    }
}

/// A policy that is used elsewhere too.
pub(crate) struct SharedPolicy(pub(crate) Arc<dyn Policy>);

#[async_trait]
impl Policy for SharedPolicy {
    async fn decide(&self, call: &PolicyCall) -> Decision {
        self.0.decide(call).await
    }
}

/// What was counted.
pub(crate) struct Closed {
    pub(crate) names: Names,
    pub(crate) live: BTreeMap<&'static str, u64>,
    pub(crate) appends: u64,
    pub(crate) last: Option<(Outcome, Option<StepError>)>,
    pub(crate) leaked: Vec<CallKey>,
    pub(crate) admitted: Vec<InputId>,
    pub(crate) cancelled: BTreeSet<InputId>,
    pub(crate) violations: Vec<String>,
    pub(crate) writes: Vec<(Write, bool)>,
}

impl Book {
    /// Takes in an event that has landed.
    #[expect(clippy::wildcard_enum_match_arm, reason = "of most events only the names are kept")]
    fn take_in(&mut self, event: &Event) {
        match event {
            Event::ToolStarted(_) => self.started.extend(event.call()),
            Event::ToolCalled(_) | Event::StepStreamed(_) => self.kept.extend(event.message()),
            Event::RetryScheduled(retry) => drop(self.retries.insert(retry.message, retry.attempt)),
            Event::CompactionEnded(_) | Event::CompactionFailed(_) => self.summaries += 1,
            _ => {}
        }
    }

    /// The actions of the triggers that fire now; they are disarmed.
    fn fire(&mut self, happened: impl Fn(&Trigger) -> bool) -> Vec<(String, Item)> {
        for armed in &mut self.triggers {
            if happened(&armed.on) {
                armed.left -= 1;
            }
        }
        let (fired, armed) = std::mem::take(&mut self.triggers).into_iter().partition(|armed| armed.left == 0);
        self.triggers = armed;
        let fired: Vec<Armed> = fired;
        fired.into_iter().map(|fired| (fired.place, fired.act)).collect()
    }
}

/// An event as a report names it.
pub(crate) fn fact(seen: &Seen) -> Fact {
    Fact { kind: seen.kind.clone(), call: seen.label.clone() }
}

/// The prompts that were admitted and are nowhere: neither promoted, nor pending, nor cancelled (I5).
pub(crate) fn lost_input(closed: &Closed, log: &[Event], pending: &[settled_ledger::InboxItem]) -> Vec<String> {
    let promoted: BTreeSet<InputId> = log
        .iter()
        .filter_map(|event| match event {
            Event::InputPromoted(promoted) => Some(promoted.input),
            _ => None,
        })
        .collect();
    let lost = closed.admitted.iter().filter(|input| {
        !promoted.contains(input)
            && !closed.cancelled.contains(input)
            && !pending.iter().any(|item| item.id == **input && matches!(item.input, NewInputKind::Prompt(_)))
    });
    lost.map(|input| format!("I5 is broken: the input {input} was admitted and is lost")).collect()
}

/// Reads a whole log.
pub(crate) async fn whole_log(
    store: &dyn settled_ledger::store::Store,
    session: &SessionId,
) -> Result<Vec<Recorded>, settled_ledger::store::StoreError> {
    let mut log: Vec<Recorded> = Vec::new();
    loop {
        let after = log.last().map_or(Seq::START, |last| last.seq);
        let page = store.read(session, after, 1_024).await?;
        if page.is_empty() {
            return Ok(log);
        }
        log.extend(page);
    }
}

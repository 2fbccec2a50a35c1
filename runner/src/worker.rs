//! A runner's worker: which sessions run here, their ownership, and who waits for them.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use settled_ledger::store::{ClaimError, Next, StoreErrorKind};
use settled_ledger::{FailureClass, Outcome, SessionFold, StepError, WorkerId};
use settled_tools_api::{CallKey, CancelSource, SessionId};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tracing::Instrument;

use crate::drain::{Drain, DrainEnd, Force, Kept};
use crate::guard::{Dropped, Unsettled};
use crate::inbox::Doorbell;
use crate::live::{Live, Snapshot};
use crate::shop::Shop;
use crate::writer::Lost;

/// By how much a worker stops before its lease ends.
const LEASE_MARGIN: u32 = 5;

pub(crate) struct Worker {
    pub(crate) shop: Arc<Shop>,
    pub(crate) id: WorkerId,
    pub(crate) serving: Serving,
    /// The sessions that were opened; without a slot those that are at rest and that nobody holds.
    slots: Mutex<HashMap<SessionId, Option<Arc<Slot>>>>,
    /// The sessions of which something is kept, the one that ran last at the end.
    remembered: Mutex<VecDeque<Arc<Slot>>>,
    lease: Arc<Lease>,
    renewing: AtomicBool,
    shutting_down: AtomicBool,
    dropped: Dropped,
}

/// Which sessions a runner runs by itself, when they are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Serving {
    /// Those that were opened with it.
    #[default]
    Opened,
    /// Every session of the store: it is one worker of a fleet.
    All,
    /// None: a session runs only when it is told to.
    Asked,
}

/// A session as this worker knows it.
pub(crate) struct Slot {
    pub(crate) session: SessionId,
    pub(crate) doorbell: Arc<Doorbell>,
    pub(crate) live: Live,
    state: Mutex<SlotState>,
    runs: watch::Sender<Runs>,
    leaving: CancelSource,
    abandoned: CancelSource,
    leaked: Mutex<Vec<CallKey>>,
    dropped: Dropped,
}

#[derive(Default)]
struct SlotState {
    running: bool,
    /// Whether an interrupt of the run was asked for: it takes no more joiners.
    stopping: bool,
    again: Option<Force>,
    /// How many handles the application holds.
    handles: usize,
    kept: Option<Kept>,
}

/// How many runs of a session have begun and ended here, and how the last one ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) last: Option<RunResult>,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub(crate) enum RunResult {
    Ended(Outcome, Option<StepError>),
    Left,
    Nothing,
    /// The log is lost to this worker; the next owner settles.
    Lost(StepError),
}

impl Worker {
    pub(crate) fn new(shop: Arc<Shop>, id: WorkerId, serving: Serving) -> Arc<Self> {
        Arc::new(Self {
            shop,
            id,
            serving,
            slots: Mutex::default(),
            remembered: Mutex::default(),
            lease: Arc::default(),
            renewing: AtomicBool::new(false),
            shutting_down: AtomicBool::new(false),
            dropped: Dropped::default(),
        })
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.count()
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::Acquire)
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<SessionId, Option<Arc<Slot>>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot of a session, with one more handle on it, to be given back by [`give_back`](Self::give_back).
    pub(crate) fn hold(&self, session: &SessionId) -> Arc<Slot> {
        let mut slots = self.slots();
        let slot = slots.entry(session.clone()).or_default();
        let slot = slot.get_or_insert_with(|| Arc::new(Slot::new(session, &self.dropped)));
        slot.state().handles += 1;
        Arc::clone(slot)
    }

    /// Gives a handle back.
    pub(crate) fn give_back(&self, slot: &Slot) {
        slot.state().handles -= 1;
        self.let_go(slot);
    }

    /// Forgets a session that is at rest, that nobody holds and of which nothing is kept: all that is known of it is in the store.
    fn let_go(&self, slot: &Slot) {
        let mut slots = self.slots();
        // It may have been forgotten already, and opened again since.
        if !matches!(slots.get(&slot.session), Some(Some(known)) if std::ptr::eq(Arc::as_ptr(known), slot)) {
            return;
        }
        let state = slot.state();
        let leaked = !slot.leaked.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if state.handles > 0 || state.running || state.kept.is_some() || leaked {
            return;
        }
        drop(state);
        let forgotten = match self.serving {
            // It is still one of those that run by themselves when they are due.
            Serving::Opened => slots.get_mut(&slot.session).and_then(Option::take),
            Serving::All | Serving::Asked => slots.remove(&slot.session).flatten(),
        };
        drop(slots);
        drop(forgotten);
    }

    /// Starts a run, or joins the one that runs; gives the number of the run whose end to wait for.
    pub(crate) fn start(self: &Arc<Self>, slot: &Arc<Slot>, force: Force) -> u64 {
        let mut state = slot.state();
        let begun = slot.runs.borrow().begun;
        if state.running {
            // A forced run joins what runs, unless that is being stopped; a wake asks for one more look.
            if state.stopping || force == Force::No {
                state.again = Some(if force == Force::Yes { Force::Yes } else { state.again.unwrap_or(Force::No) });
                return if state.stopping { begun + 1 } else { begun };
            }
            return begun;
        }
        if self.is_shutting_down() {
            return begun;
        }
        state.running = true;
        // Whoever sees that it runs sees which run it is.
        slot.runs.send_modify(|runs| runs.begun += 1);
        drop(state);
        self.spawn(slot, force);
        begun + 1
    }

    fn spawn(self: &Arc<Self>, slot: &Arc<Slot>, force: Force) {
        self.keep_lease();
        let span = tracing::info_span!("drain", "gen_ai.conversation.id" = %slot.session);
        let (worker, slot) = (Arc::clone(self), Arc::clone(slot));
        tokio::spawn(async move { worker.run(slot, force).await }.instrument(span));
    }

    /// Runs drains of a session until no more is asked for.
    async fn run(self: Arc<Self>, slot: Arc<Slot>, force: Force) {
        let mut force = force;
        loop {
            // In a task of its own, so that a panic of ours ends this run and not the session.
            let run = {
                let (worker, slot) = (Arc::clone(&self), Arc::clone(&slot));
                tokio::spawn(async move { worker.run_once(&slot, force).await }.in_current_span())
            };
            let result = run.await.unwrap_or_else(|panicked| {
                tracing::error!(%panicked, "the drain panicked; the next one settles what it left");
                RunResult::Lost(StepError::new(FailureClass::Internal, format!("the runner panicked: {panicked}")))
            });
            tracing::debug!(?result, "the drain is over");
            let mut state = slot.state();
            state.stopping = false;
            let asked = state.again.take();
            let again = asked.filter(|_| !self.is_shutting_down());
            state.running = again.is_some();
            // Whoever waits is told before the next run begins, and after the state says so.
            slot.runs.send_modify(|runs| {
                runs.ended = runs.begun;
                runs.last = Some(result);
                runs.begun += u64::from(asked.is_some());
                if asked.is_some() && again.is_none() {
                    // Whoever waits for the run that will not be is told so.
                    runs.ended = runs.begun;
                    runs.last = Some(RunResult::Left);
                }
            });
            drop(state);
            slot.live.answer(Snapshot::default);
            match again {
                Some(next) => force = next,
                None => return self.let_go(&slot),
            }
        }
    }

    async fn run_once(self: &Arc<Self>, slot: &Arc<Slot>, force: Force) -> RunResult {
        let store = &self.shop.store;
        if force == Force::No {
            // A look is cheaper than a claim.
            match (store.info(&slot.session).await, store.pending(&slot.session).await) {
                (Ok(info), Ok(pending)) => {
                    let waiting = matches!(info.state.next, Next::Waiting(_));
                    let asks = pending.iter().any(|item| item.input.asks_for_a_run());
                    let runnable =
                        matches!(info.state.next, Next::Runnable | Next::At(_)) || info.state.execution.is_some();
                    if waiting || !(asks || runnable) {
                        return RunResult::Nothing;
                    }
                }
                (Err(error), _) | (_, Err(error)) => {
                    return RunResult::Lost(StepError::new(FailureClass::Store, error.to_string()));
                }
            }
        }
        let mut joined = false;
        let claimed = loop {
            let claim_began = Instant::now();
            match store.claim(self.id, self.shop.settings.lease, &slot.session).await {
                Ok(claimed) => {
                    self.lease.renewed(claim_began, self.shop.settings.lease);
                    break claimed;
                }
                Err(ClaimError::Owned { until, .. }) => {
                    if self.is_shutting_down() {
                        return RunResult::Left;
                    }
                    // Whoever owns it runs it: this run joins, and takes over where the owner's lease runs out.
                    joined = true;
                    let left = until.since(self.shop.clock.now()).min(self.shop.settings.poll).max(A_MOMENT);
                    tracing::info!(%until, "another worker owns the session; waiting for it");
                    // Who follows meanwhile hears what the log says; what is open is known to the owner alone.
                    let asked = async {
                        loop {
                            slot.live.answer(Snapshot::default);
                            sleep(A_MOMENT).await;
                        }
                    };
                    tokio::select! {
                        () = sleep(left) => {}
                        () = asked => {}
                    }
                }
                Err(error) => return RunResult::Lost(StepError::new(FailureClass::Store, error.to_string())),
            }
        };
        // The execution that was joined is over, and another is not asked for.
        let force = if joined && claimed.state.execution.is_none() { Force::No } else { force };
        let fence = claimed.fence.clone();
        let kept = slot.state().kept.take();
        // Boxed, as is what follows: a task keeps the room of its largest moment for as long as it lives.
        let opening = Drain::open(Arc::clone(&self.shop), Arc::clone(slot), claimed, self.lease.watch(), kept);
        let opened = Box::pin(opening).await;
        let result = match opened {
            Err(lost) => lost_result(&lost),
            Ok(mut drain) => {
                let end = Box::pin(drain.run(force)).await;
                let result = match end {
                    Ok(DrainEnd::Ended(outcome, error)) => RunResult::Ended(outcome, error),
                    Ok(DrainEnd::Left) => RunResult::Left,
                    Ok(DrainEnd::Nothing) => RunResult::Nothing,
                    Err(lost) => lost_result(&lost),
                };
                if !matches!(result, RunResult::Lost(_)) {
                    slot.state().kept = Some(drain.into_kept());
                    self.remember(slot);
                }
                result
            }
        };
        // Given up at once, so that any worker can go on; if that fails, the lease runs out.
        if let Err(error) = self.shop.store.release(&fence).await {
            tracing::debug!(%error, "the session was not released");
        }
        result
    }

    /// Keeps what the last drains have left of so many sessions, and lets the one go that ran longest ago.
    fn remember(&self, slot: &Arc<Slot>) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.retain(|known| !Arc::ptr_eq(known, slot) && known.state().kept.is_some());
        remembered.push_back(Arc::clone(slot));
        let more = remembered.len().saturating_sub(self.shop.settings.kept_sessions);
        let oldest: Vec<_> = remembered.drain(..more).collect();
        drop(remembered);
        for slot in oldest {
            slot.state().kept = None;
            self.let_go(&slot);
        }
    }

    /// Renews the worker's lease for as long as anything runs.
    fn keep_lease(self: &Arc<Self>) {
        if self.renewing.swap(true, Ordering::AcqRel) {
            return;
        }
        let worker = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                let Some(lease) = worker.upgrade().map(|worker| worker.shop.settings.lease) else { return };
                sleep(lease / 3).await;
                let Some(worker) = worker.upgrade() else { return };
                if !worker.is_busy() {
                    worker.renewing.store(false, Ordering::Release);
                    // A run that began between the look and the store above is served by a renewal of its own.
                    if worker.is_busy() {
                        worker.keep_lease();
                    }
                    return;
                }
                let began = Instant::now();
                match worker.shop.store.renew(worker.id, lease).await {
                    Ok(()) => worker.lease.renewed(began, lease),
                    Err(error) => tracing::warn!(%error, "the lease was not renewed"),
                }
            }
        });
    }

    /// The sessions that run here now.
    pub(crate) fn active(&self) -> Vec<SessionId> {
        self.slots().values().flatten().filter(|slot| slot.is_running()).map(|slot| slot.session.clone()).collect()
    }

    fn is_busy(&self) -> bool {
        self.slots().values().flatten().any(|slot| slot.state().running)
    }

    /// Listens for hints, and asks the store now and then: hints may be lost.
    pub(crate) fn listen(self: &Arc<Self>) {
        if self.serving == Serving::Asked {
            return;
        }
        let worker = Arc::downgrade(self);
        let mut hints = self.shop.store.hints();
        let poll = self.shop.settings.poll;
        tokio::spawn(async move {
            let mut again = Box::pin(sleep(poll));
            loop {
                let hint = std::future::poll_fn(|context| {
                    if let Poll::Ready(hint) = hints.as_mut().poll_next(context) {
                        return Poll::Ready(hint);
                    }
                    again.as_mut().poll(context).map(|()| None)
                })
                .await;
                let Some(worker) = worker.upgrade() else { return };
                if worker.is_shutting_down() {
                    return;
                }
                match hint {
                    Some(session) => worker.hinted(&session),
                    None => {
                        worker.look_around().await;
                        again.as_mut().reset(Instant::now() + poll);
                    }
                }
            }
        });
    }

    fn hinted(self: &Arc<Self>, session: &SessionId) {
        if self.serving != Serving::All && !self.slots().contains_key(session) {
            return;
        }
        let slot = self.hold(session);
        slot.doorbell.ring();
        if !slot.is_running() {
            self.start(&slot, Force::No);
        }
        self.give_back(&slot);
    }

    async fn look_around(self: &Arc<Self>) {
        let due = self.shop.store.due(DUE).await;
        match due {
            Ok(due) => due.iter().for_each(|session| self.hinted(session)),
            Err(error) => tracing::warn!(%error, "the store did not say which sessions are due"),
        }
    }

    /// Stops claiming, lets what runs leave at a border, and after the grace leaves it without a trace.
    pub(crate) async fn shut_down(self: &Arc<Self>, grace: Duration) -> Vec<CallKey> {
        self.shutting_down.store(true, Ordering::Release);
        let slots: Vec<_> = self.slots().values().flatten().cloned().collect();
        for slot in &slots {
            slot.leaving.cancel();
            slot.doorbell.ring();
        }
        let until = Instant::now() + grace;
        for slot in &slots {
            let mut runs = slot.runs.subscribe();
            let ended = async { runs.wait_for(|runs| runs.ended == runs.begun).await.is_ok() };
            tokio::select! {
                biased;
                _ = ended => {}
                () = sleep_until(until) => {
                    slot.abandoned.cancel();
                    slot.doorbell.ring();
                }
            }
        }
        let mut leaked = Vec::new();
        for slot in &slots {
            let mut runs = slot.runs.subscribe();
            let _ = runs.wait_for(|runs| runs.ended == runs.begun).await;
            leaked.extend(slot.take_leaked());
        }
        leaked
    }
}

/// How many due sessions are asked for at once.
const DUE: usize = 64;

/// The least time between two tries to claim a session that another worker owns.
const A_MOMENT: Duration = Duration::from_millis(10);

fn lost_result(lost: &Lost) -> RunResult {
    match lost {
        Lost::Stopped => RunResult::Left,
        Lost::Misconfigured(error) => RunResult::Lost(error.clone()),
        Lost::Store(error) if error.kind == StoreErrorKind::NotFound => {
            RunResult::Lost(StepError::new(FailureClass::Store, error.to_string()))
        }
        lost => RunResult::Lost(StepError::new(FailureClass::Store, lost.to_string())),
    }
}

impl Slot {
    fn new(session: &SessionId, dropped: &Dropped) -> Self {
        Self {
            session: session.clone(),
            doorbell: Arc::default(),
            live: Live::default(),
            state: Mutex::default(),
            runs: watch::Sender::default(),
            leaving: CancelSource::new(),
            abandoned: CancelSource::new(),
            leaked: Mutex::default(),
            dropped: dropped.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state().running
    }

    /// Says that an interrupt of what runs was asked for: it takes no more joiners.
    pub(crate) fn stopping(&self) {
        let mut state = self.state();
        state.stopping = state.running;
        // A wake goes with what is stopped; a run that somebody waits for does not.
        state.again = state.again.filter(|again| *again == Force::Yes);
    }

    /// The fold that the last drain left, if none runs.
    pub(crate) fn kept(&self) -> Option<SessionFold> {
        self.state().kept.as_ref().map(|kept| kept.fold.clone())
    }

    pub(crate) fn runs(&self) -> watch::Receiver<Runs> {
        self.runs.subscribe()
    }

    pub(crate) fn guard(&self) -> Unsettled {
        self.dropped.guard()
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_cancelled()
    }

    pub(crate) async fn leaving(&self) {
        self.leaving.signal().cancelled().await;
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.is_cancelled()
    }

    pub(crate) fn leaked(&self, call: CallKey) {
        self.leaked.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    /// The calls that could not be stopped, so far; each is given once.
    pub(crate) fn take_leaked(&self) -> Vec<CallKey> {
        std::mem::take(&mut *self.leaked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Until when a worker may act, by its own monotonic clock.
#[derive(Default)]
struct Lease(Mutex<Option<Instant>>);

impl Lease {
    /// The store has renewed the lease in answer to a call that began then.
    fn renewed(&self, began: Instant, lease: Duration) {
        let until = began + lease - lease / LEASE_MARGIN;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    fn watch(self: &Arc<Self>) -> LeaseWatch {
        LeaseWatch { lease: Arc::clone(self), timer: Box::pin(sleep(Duration::ZERO)) }
    }
}

/// Notices when the lease may have run out.
pub(crate) struct LeaseWatch {
    lease: Arc<Lease>,
    timer: Pin<Box<Sleep>>,
}

impl LeaseWatch {
    pub(crate) fn holds(&self) -> bool {
        let until = *self.lease.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| until > Instant::now())
    }

    pub(crate) fn poll_lost(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // The timer is set anew only when it fires.
        while self.timer.as_mut().poll(context).is_ready() {
            let until = *self.lease.0.lock().unwrap_or_else(PoisonError::into_inner);
            match until {
                Some(until) if until > Instant::now() => self.timer.as_mut().reset(until),
                _ => return Poll::Ready(()),
            }
        }
        Poll::Pending
    }
}

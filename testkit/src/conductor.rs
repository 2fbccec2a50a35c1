//! Virtual time: every scripted wait in one order, granted one by one when nothing else can run.
//!
//! A paused tokio clock by itself jumps to the next timer whenever nothing can run, and what is due at one moment comes in any order.
//! The conductor is asked at exactly that point (by the runtime's `on_thread_park` hook), and decides: it grants the first scripted wait that is due, or lets the runner's timers of this moment fire, or lets the script's driver go on, or lets time move to the next moment, in this order.
//! So one script gives one interleaving.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use settled_ledger::{Clock, Timestamp};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, advance, sleep_until};

use crate::pace::Class;

/// The wall-clock time at virtual time 0: 2026-01-01T00:00:00Z.
const EPOCH: i64 = 1_767_225_600_000;

const NANOS: u128 = 1_000_000;

/// The virtual time that comes next where nothing is scripted: further than any timer of a runner.
const FAR: u64 = 1 << 32;

/// The place of a wait in the order of grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    due: u64,
    class: Class,
    order: (u128, u64),
    number: u64,
}

/// Who moves virtual time, and who grants scripted waits.
#[derive(Default)]
pub(crate) struct Conductor {
    state: Mutex<State>,
    /// The virtual time in milliseconds, for threads that have no runtime.
    now: AtomicU64,
    dead: AtomicBool,
    in_flight: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// When the present runtime began, by its clock, and which virtual time it was then.
    began: Option<(Instant, u64)>,
    /// Nothing has run since the conductor has decided to let time move.
    pass: bool,
    /// Nothing can run.
    idle: bool,
    conductor: Option<Waker>,
    waits: BTreeMap<Place, Waker>,
    /// Who waits until nothing is due.
    quiet: Option<(u64, Waker)>,
    numbers: u64,
}

enum Decision {
    Granted,
    Advance(Duration),
    SleepUntil(Instant),
}

impl Conductor {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A runtime whose time this conductor moves; virtual time goes on from where it was.
    pub(crate) fn runtime(self: &Arc<Self>) -> std::io::Result<Runtime> {
        let conductor = Arc::clone(self);
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .on_thread_park(move || conductor.on_park())
            .build()?;
        let now = self.now.load(Ordering::SeqCst);
        let numbers = self.state().numbers;
        let began = {
            let _context = runtime.enter();
            Instant::now()
        };
        *self.state() = State { began: Some((began, now)), numbers, ..State::default() };
        self.dead.store(false, Ordering::SeqCst);
        let conductor = Arc::clone(self);
        runtime.spawn(async move { conductor.conduct().await });
        Ok(runtime)
    }

    /// The virtual time in milliseconds.
    pub(crate) fn now(&self) -> u64 {
        if Handle::try_current().is_ok()
            && let Some((began, base)) = self.state().began
        {
            let elapsed = began.elapsed().as_nanos().div_ceil(NANOS);
            let now = base + u64::try_from(elapsed).unwrap_or(u64::MAX);
            self.now.store(now, Ordering::SeqCst);
            return now;
        }
        self.now.load(Ordering::SeqCst)
    }

    /// Grants nothing any more: the process has died.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// A wait of so many milliseconds.
    pub(crate) fn turn(self: &Arc<Self>, class: Class, order: (u128, u64), delay: u64) -> Turn {
        Turn { conductor: Arc::clone(self), class, order, due: self.now().saturating_add(delay), place: None }
    }

    /// A wait until nothing can run and nothing is due.
    pub(crate) async fn quiet(&self) {
        let mut own = None;
        poll_fn(|context| {
            let mut state = self.state();
            match own {
                None => {
                    state.numbers += 1;
                    own = Some(state.numbers);
                }
                Some(own) if state.quiet.as_ref().is_none_or(|(number, _)| *number != own) => return Poll::Ready(()),
                Some(_) => {}
            }
            state.quiet = own.map(|own| (own, context.waker().clone()));
            Poll::Pending
        })
        .await;
    }

    /// Something to hold while a call is under way on a thread that the runtime does not see: time does not move, and nothing is granted.
    pub(crate) fn hold(self: &Arc<Self>) -> Hold {
        // Threads of a store read the time without a runtime; it is brought up to date here, in one.
        self.now();
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let (held, wait) = std::sync::mpsc::channel::<()>();
        if let Ok(runtime) = Handle::try_current() {
            // Tokio's paused clock stands while a blocking task runs, and the runtime looks again when it ends.
            drop(runtime.spawn_blocking(move || wait.recv()));
        }
        Hold { conductor: Arc::clone(self), _held: held }
    }

    /// The runtime is about to wait.
    fn on_park(&self) {
        if self.in_flight.load(Ordering::SeqCst) > 0 {
            return;
        }
        let mut state = self.state();
        if std::mem::take(&mut state.pass) {
            return;
        }
        state.idle = true;
        let conductor = state.conductor.take();
        drop(state);
        if let Some(conductor) = conductor {
            conductor.wake();
        }
    }

    async fn conduct(&self) {
        loop {
            poll_fn(|context| {
                let mut state = self.state();
                if std::mem::take(&mut state.idle) {
                    return Poll::Ready(());
                }
                state.conductor = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
            match self.decide() {
                Decision::Granted => {}
                Decision::Advance(span) => advance(span).await,
                Decision::SleepUntil(until) => {
                    let mut sleep = pin!(sleep_until(until));
                    poll_fn(|context| {
                        if sleep.as_mut().poll(context).is_ready() {
                            return Poll::Ready(());
                        }
                        let mut state = self.state();
                        state.conductor = Some(context.waker().clone());
                        if state.idle { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                    self.state().pass = false;
                }
            }
        }
    }

    fn decide(&self) -> Decision {
        let now = self.now();
        let mut state = self.state();
        let Some((began, base)) = state.began else { return Decision::Granted };
        if self.is_dead() {
            // Whoever waits for the crash is awake; nothing else goes on.
            return Decision::Granted;
        }
        let first = state.waits.first_key_value().map(|(place, _)| *place);
        if let Some(place) = first.filter(|place| place.due <= now) {
            let waker = state.waits.remove(&place);
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
            return Decision::Granted;
        }
        // The scripted moments of this millisecond were granted one nanosecond before it: now come the timers.
        if began.elapsed().as_nanos() % NANOS != 0 {
            return Decision::Advance(Duration::from_nanos(1));
        }
        if let Some((_, waker)) = state.quiet.take() {
            drop(state);
            waker.wake();
            return Decision::Granted;
        }
        let due = first.map_or(FAR, |place| place.due);
        if due == now + 1 {
            return Decision::Advance(Duration::from_nanos(999_999));
        }
        state.pass = true;
        Decision::SleepUntil(began + Duration::from_millis(due.saturating_sub(base + 1)))
    }
}

/// A scripted wait; it is in the order of grants from its first poll on.
pub(crate) struct Turn {
    conductor: Arc<Conductor>,
    class: Class,
    order: (u128, u64),
    due: u64,
    place: Option<Place>,
}

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let conductor = Arc::clone(&self.conductor);
        let mut state = conductor.state();
        let place = match self.place {
            Some(place) if !state.waits.contains_key(&place) => return Poll::Ready(()),
            Some(place) => place,
            None => {
                state.numbers += 1;
                let place = Place { due: self.due, class: self.class, order: self.order, number: state.numbers };
                self.place = Some(place);
                place
            }
        };
        state.waits.insert(place, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.conductor.state().waits.remove(&place);
        }
    }
}

/// A call under way on a thread that the runtime does not see.
pub(crate) struct Hold {
    conductor: Arc<Conductor>,
    _held: std::sync::mpsc::Sender<()>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Before the blocking task ends, which happens when the fields are dropped: the runtime looks again then.
        self.conductor.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The wall clock of virtual time.
#[derive(Clone)]
pub(crate) struct VirtualClock(pub(crate) Arc<Conductor>);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(EPOCH.saturating_add_unsigned(self.0.now()))
    }
}

//! The suite for stores: every sentence of [`settled_ledger::store`] that says what a method answers.
//!
//! The subject is a pair of handles on one fresh store, as two processes have them: *here* is the owner's, *there* is everybody else's.
//! A store that one process uses alone gives clones of one handle.
//!
//! ```
//! use std::sync::Arc;
//! use async_trait::async_trait;
//! use settled_ledger::Clock;
//! use settled_store_memory::MemoryStore;
//! use settled_testkit::conformance::store::{Handles, StoreFixture, StoreSuite};
//!
//! struct Memory;
//!
//! #[async_trait]
//! impl StoreFixture for Memory {
//!     async fn open(&self, clock: Arc<dyn Clock>) -> Result<Handles, String> {
//!         let store = Arc::new(MemoryStore::new(clock));
//!         Ok(Handles::new(store.clone(), store))
//!     }
//!     async fn patience(&self) {
//!         tokio::time::sleep(std::time::Duration::from_secs(10)).await;
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let report = StoreSuite::new().run(&Memory).await;
//! report.into_result().unwrap();
//! # }
//! ```

mod bench;

mod catalog;

mod inbox;

mod log;

mod ownership;

mod through;

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::store::Store;
use settled_ledger::{Clock, Timestamp};

use self::bench::Bench;
pub use self::through::Through;
use super::Report;
use super::suite::{Checked, Details, Selection, broken};

/// What makes the subjects of [`StoreSuite`].
#[async_trait]
pub trait StoreFixture: Send + Sync {
    /// Opens a fresh store that goes by this clock: nothing of an earlier one is in it.
    ///
    /// *Fails* with words for the report.
    async fn open(&self, clock: Arc<dyn Clock>) -> Result<Handles, String>;

    /// Returns when a case has had long enough: what has not come by then does not come.
    ///
    /// It is started with each case; a case that is still waiting when it returns is a breach.
    async fn patience(&self);
}

/// Two handles on one store, and what must live as long as they do.
#[non_exhaustive]
pub struct Handles {
    /// The owner's handle.
    pub here: Arc<dyn Store>,
    /// The handle of everybody else; it may be the same.
    pub there: Arc<dyn Store>,
    guard: Option<Box<dyn Any + Send + Sync>>,
}

impl Handles {
    /// Two handles on one store.
    pub fn new(here: Arc<dyn Store>, there: Arc<dyn Store>) -> Self {
        Self { here, there, guard: None }
    }

    /// The same handles, with something to keep until they are dropped: a temporary folder, a server.
    #[must_use]
    pub fn keeping(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }
}

impl fmt::Debug for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handles").finish_non_exhaustive()
    }
}

/// A clock that goes only when it is told to; a clone is the same clock.
#[derive(Clone, Debug)]
pub struct ManualClock {
    millis: Arc<AtomicI64>,
}

impl ManualClock {
    /// A clock that stands at a moment.
    pub fn at(moment: Timestamp) -> Self {
        Self { millis: Arc::new(AtomicI64::new(moment.as_millis())) }
    }

    /// Lets this much time pass.
    pub fn pass(&self, span: Duration) {
        self.millis.store(self.now().plus(span).as_millis(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis.load(Ordering::SeqCst))
    }
}

/// One case: it holds a store to one promise.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Case {
    /// Its name, `method.what`: stable, to be skipped by.
    pub name: &'static str,
    /// What it holds the store to.
    pub promise: &'static str,
    run: for<'a> fn(&'a Bench) -> Pin<Box<dyn Future<Output = Checked> + Send + 'a>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("promise", &self.promise).finish_non_exhaustive()
    }
}

/// Names the cases of a part of the suite.
macro_rules! named_cases {
    ($($name:literal, $promise:literal => $run:ident;)*) => {
        pub(super) const CASES: &[$crate::conformance::store::Case] = &[$(
            $crate::conformance::store::Case {
                name: $name,
                promise: $promise,
                run: |bench| Box::pin($run(bench)),
            },
        )*];
    };
}
use named_cases;

/// Every case, in the order in which they run.
pub fn cases() -> impl Iterator<Item = Case> {
    [log::CASES, inbox::CASES, ownership::CASES, catalog::CASES].into_iter().flatten().copied()
}

/// A run of the suite: which cases, and which are left out and why.
#[derive(Clone, Debug, Default)]
pub struct StoreSuite(Selection);

impl StoreSuite {
    /// All cases.
    pub fn new() -> Self {
        Self::default()
    }

    /// The case of this name alone.
    #[must_use]
    pub fn only(mut self, name: impl Into<String>) -> Self {
        self.0.only = Some(name.into());
        self
    }

    /// Leaves a case out, for a reason that the report gives.
    #[must_use]
    pub fn skip(mut self, name: impl Into<String>, reason: impl Into<String>) -> Self {
        self.0.skipped.push((name.into(), reason.into()));
        self
    }

    /// Runs the cases one after another, each on a fresh store.
    ///
    /// A name that was given and that no case has is a breach: a suite must not pass because of a slip of the pen.
    /// *Cancelling*: dropping the future ends the run; the stores are dropped with it.
    pub async fn run(&self, fixture: &dyn StoreFixture) -> Report {
        let cases: Vec<_> = cases().collect();
        let named: Vec<_> = cases.iter().map(|case| (case.name, case.promise)).collect();
        self.0.run("store", &named, |place| check(cases[place], fixture)).await
    }
}

/// Runs one case, for as long as the fixture's patience lasts.
async fn check(case: Case, fixture: &dyn StoreFixture) -> Checked {
    let run = async {
        let bench = Bench::open(fixture).await.map_err(Details::Broken)?;
        (case.run)(&bench).await
    };
    let (mut run, mut patience) = (pin!(run), pin!(fixture.patience()));
    poll_fn(|cx| match run.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(done),
        Poll::Pending => patience.as_mut().poll(cx).map(|()| broken("it waited for something that never came")),
    })
    .await
}

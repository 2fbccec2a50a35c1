//! The suite for providers: every sentence of [`settled_provider_api`] that says what a [`Provider`] keeps to.
//!
//! The subject is a provider whose far end answers with a [`Plan`]: a [`Script`], over whatever wire the provider speaks.
//! For the wires that the testkit's server knows `WireFixture` brings the far end (feature `server`, on by default); for another wire the fixture brings its own.
//! What a wire has no place for is said in [`Abilities`]; the cases that need it are skipped, and the report says so.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use async_trait::async_trait;
//! use serde_json::{Value, json};
//! use settled_provider_api::{ModelRef, Provider, ProviderError, ProviderStream, Request};
//! use settled_testkit::conformance::provider::{Abilities, FarEnd, Plan, ProviderFixture, ProviderSubject, ProviderSuite, Sent};
//! use settled_testkit::ScriptedProvider;
//!
//! /// A provider without a wire: what it would send is kept as text.
//! struct Direct(ScriptedProvider, Arc<Mutex<Vec<Sent>>>);
//!
//! #[async_trait]
//! impl Provider for Direct {
//!     async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
//!         self.1.lock().unwrap().push(Sent::new(json!(format!("{request:?}"))));
//!         self.0.stream(request).await
//!     }
//! }
//!
//! struct Log(Arc<Mutex<Vec<Sent>>>);
//!
//! impl FarEnd for Log {
//!     fn sent(&self) -> Vec<Sent> {
//!         self.0.lock().unwrap().clone()
//!     }
//! }
//!
//! struct Fixture;
//!
//! #[async_trait]
//! impl ProviderFixture for Fixture {
//!     async fn open(&self, plan: Plan) -> Result<ProviderSubject, String> {
//!         let sent = Arc::new(Mutex::new(Vec::new()));
//!         let provider = Direct(plan.script.provider(), sent.clone());
//!         Ok(ProviderSubject::new(Arc::new(provider), ModelRef::new("direct", "some-model"), Arc::new(Log(sent))))
//!     }
//!
//!     fn abilities(&self) -> Abilities {
//!         Abilities::default()
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let report = ProviderSuite::new().only("finish.one").run(&Fixture).await;
//! report.into_result().unwrap();
//! # }
//! ```

mod bench;

mod events;

mod answer;

mod call;

mod failure;

mod request;

#[cfg(feature = "server")]
mod wire;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use settled_provider_api::{ErrorClass, FinishReason, ModelRef, Provider, Usage};

use self::bench::Bench;
pub use self::events::{EventFault, EventRule, check_events};
#[cfg(feature = "server")]
pub use self::wire::WireFixture;
use super::Report;
use super::suite::{Checked, Selection, broken};
use crate::Script;

/// How long a provider has to bear silence.
const HOUR: Duration = Duration::from_secs(3_600);

/// What makes the subjects of [`ProviderSuite`].
#[async_trait]
pub trait ProviderFixture: Send + Sync {
    /// Opens a provider whose far end answers by this plan.
    ///
    /// *Fails* with words for the report.
    async fn open(&self, plan: Plan) -> Result<ProviderSubject, String>;

    /// What the wire has a place for.
    fn abilities(&self) -> Abilities {
        Abilities::default()
    }

    /// Lets an hour pass by tokio's clock; where the far end is behind a real socket, pause the clock for it.
    async fn hour(&self) {
        tokio::time::sleep(HOUR).await;
    }

    /// How long a case may take, the hour of silence not counted: a minute, unless told otherwise.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// How a far end answers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// Its answers, one for each request.
    ///
    /// A failure is refused before the stream; a stream that throws breaks the connection; one that is not finished ends in order, without a finish; one that hangs says nothing any more and stays open.
    pub script: Script,
    /// What comes in the middle of the first answer and does not decode.
    pub noise: Option<Noise>,
}

/// What comes over a wire and does not decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Noise {
    /// Something that is of no form which the wire knows, behind the first event.
    Garbage,
}

/// A provider and what its far end has seen.
#[non_exhaustive]
pub struct ProviderSubject {
    /// The provider.
    pub provider: Arc<dyn Provider>,
    /// The model that requests ask for.
    pub model: ModelRef,
    far: Arc<dyn FarEnd>,
    guard: Option<Box<dyn Any + Send + Sync>>,
}

impl ProviderSubject {
    /// A provider, the model to ask for, and its far end.
    pub fn new(provider: Arc<dyn Provider>, model: ModelRef, far: Arc<dyn FarEnd>) -> Self {
        Self { provider, model, far, guard: None }
    }

    /// The same subject, with something to keep for as long as it lives: a server, a task.
    #[must_use]
    pub fn keeping(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }
}

impl fmt::Debug for ProviderSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderSubject").field("model", &self.model).finish_non_exhaustive()
    }
}

/// The other side of a provider's wire.
pub trait FarEnd: Send + Sync {
    /// Every request so far, in order.
    fn sent(&self) -> Vec<Sent>;

    /// How many connections are open at this moment; `None` where that cannot be seen.
    fn connections(&self) -> Option<usize> {
        None
    }
}

/// A request as it came over the wire.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sent {
    /// Its body.
    pub body: Value,
    /// Where it went: path and query.
    pub target: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
}

impl Sent {
    /// A request of which nothing but the body is seen.
    pub fn new(body: Value) -> Self {
        Self { body, target: String::new(), headers: Vec::new() }
    }

    /// The same request, with where it went.
    #[must_use]
    pub fn target(mut self, target: impl Into<String>) -> Self {
        self.target = target.into();
        self
    }

    /// The same request, with its headers.
    #[must_use]
    pub fn headers(mut self, headers: Vec<(String, String)>) -> Self {
        self.headers = headers;
        self
    }
}

/// What a wire has a place for.
///
/// The default is what every wire has: text, calls, the four common finishes, plain usage, and failures of the common classes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Abilities {
    /// Whether and how there is reasoning.
    pub reasoning: Reasoning,
    /// The reasons to finish that it can say.
    pub finishes: Vec<FinishReason>,
    /// A usage in which every number that it can say is there; the suite sends it and wants it back.
    pub usage: Usage,
    /// Classes of failures that can be told before the stream.
    pub refusals: Vec<ErrorClass>,
    /// A class of failure that can be told inside the stream, if one can.
    pub error_in_stream: Option<ErrorClass>,
    /// An answer's id and model, where the wire says them.
    pub response_info: Option<(String, String)>,
    /// The key that the provider was given, if it was given one.
    pub secret: Option<String>,
    /// Cases that say nothing of this wire, and why.
    pub without: Vec<(&'static str, &'static str)>,
}

/// Whether and how a wire has reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is reasoning or not, with state or without")]
pub enum Reasoning {
    /// It has none.
    #[default]
    None,
    /// It has reasoning, and no state with it.
    Plain,
    /// It has reasoning with state that must go back.
    WithState,
}

impl Default for Abilities {
    fn default() -> Self {
        Self {
            reasoning: Reasoning::None,
            finishes: vec![
                FinishReason::Stop,
                FinishReason::ToolCalls,
                FinishReason::Length,
                FinishReason::ContentFilter,
            ],
            usage: Usage::new(70, 20),
            refusals: vec![
                ErrorClass::RateLimit,
                ErrorClass::Overloaded,
                ErrorClass::Auth,
                ErrorClass::Quota,
                ErrorClass::ContextOverflow,
                ErrorClass::InvalidRequest,
            ],
            error_in_stream: None,
            response_info: None,
            secret: None,
            without: Vec::new(),
        }
    }
}

/// Ways to say what a wire has beyond the common ground, or lacks.
impl Abilities {
    /// The same abilities, with reasoning.
    #[must_use]
    pub fn reasoning(mut self, reasoning: Reasoning) -> Self {
        self.reasoning = reasoning;
        self
    }

    /// The same abilities, with these reasons to finish.
    #[must_use]
    pub fn finishes(mut self, finishes: impl IntoIterator<Item = FinishReason>) -> Self {
        self.finishes = finishes.into_iter().collect();
        self
    }

    /// The same abilities, with a usage in which every number that the wire can say is there.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// The same abilities, with these classes of failures before the stream.
    #[must_use]
    pub fn refusals(mut self, classes: impl IntoIterator<Item = ErrorClass>) -> Self {
        self.refusals = classes.into_iter().collect();
        self
    }

    /// The same abilities, with failures of a class inside the stream.
    #[must_use]
    pub fn error_in_stream(mut self, class: ErrorClass) -> Self {
        self.error_in_stream = Some(class);
        self
    }

    /// The same abilities, with the id and the model that the wire says of every answer.
    #[must_use]
    pub fn response_info(mut self, id: impl Into<String>, model: impl Into<String>) -> Self {
        self.response_info = Some((id.into(), model.into()));
        self
    }

    /// The same abilities, with the key that the provider was given.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// The same abilities, without what a case needs, for a reason that the report gives.
    #[must_use]
    pub fn without(mut self, case: &'static str, reason: &'static str) -> Self {
        self.without.push((case, reason));
        self
    }
}

/// One case: it holds a provider to one promise.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Case {
    /// Its name, `subject.what`: stable, to be skipped by.
    pub name: &'static str,
    /// What it holds the provider to.
    pub promise: &'static str,
    run: for<'a> fn(&'a Bench<'a>) -> Pin<Box<dyn Future<Output = Checked> + Send + 'a>>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("promise", &self.promise).finish_non_exhaustive()
    }
}

/// Names the cases of a part of the suite.
macro_rules! named_cases {
    ($($name:literal, $promise:literal => $run:ident;)*) => {
        pub(super) const CASES: &[$crate::conformance::provider::Case] = &[$(
            $crate::conformance::provider::Case {
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
    [answer::CASES, call::CASES, failure::CASES, request::CASES].into_iter().flatten().copied()
}

/// A run of the suite: which cases, and which are left out and why.
#[derive(Clone, Debug, Default)]
pub struct ProviderSuite(Selection);

impl ProviderSuite {
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

    /// Runs the cases one after another, each on fresh subjects.
    ///
    /// A name that was given and that no case has is a breach: a suite must not pass because of a slip of the pen.
    /// It needs a tokio runtime with time.
    /// *Cancelling*: dropping the future ends the run; the subjects are dropped with it.
    pub async fn run(&self, fixture: &dyn ProviderFixture) -> Report {
        let cases: Vec<_> = cases().collect();
        let named: Vec<_> = cases.iter().map(|case| (case.name, case.promise)).collect();
        let mut selection = self.0.clone();
        let without = fixture.abilities().without.into_iter();
        selection.skipped.extend(without.map(|(case, reason)| (case.to_owned(), reason.to_owned())));
        selection.run("provider", &named, |place| check(cases[place], fixture)).await
    }
}

/// Runs one case, for as long as the fixture's patience lasts.
async fn check(case: Case, fixture: &dyn ProviderFixture) -> Checked {
    let bench = Bench::new(fixture);
    // The hour of silence may go by the clock that the patience goes by.
    let patience = if case.name == failure::SILENCE { fixture.patience() + 2 * HOUR } else { fixture.patience() };
    match tokio::time::timeout(patience, (case.run)(&bench)).await {
        Ok(checked) => checked,
        Err(_) => broken("it waited for something that never came"),
    }
}

//! The suite for tools: every sentence of [`settled_tools_api`] that says what a [`ToolExecutor`] keeps to.
//!
//! The subject is a set of tools in a world of its own, and for each tool a [`Sample`]: inputs that it takes, inputs that it refuses, and inputs that show what it can do.
//! What a sample does not have is skipped, and the report says so.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use async_trait::async_trait;
//! use serde_json::json;
//! use settled_testkit::conformance::tool::{Sample, ToolFixture, ToolSubject, ToolSuite};
//! use settled_tools_api::{ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolReturn};
//!
//! /// A counter that a model may push.
//! struct Counter(Arc<AtomicU64>);
//!
//! #[async_trait]
//! impl ToolExecutor for Counter {
//!     fn definitions(&self) -> Vec<ToolDefinition> {
//!         let schema = json!({"type": "object", "properties": {"by": {"type": "integer", "minimum": 1}}, "required": ["by"]});
//!         vec![ToolDefinition::new("count", "Adds to the counter.", schema)]
//!     }
//!
//!     async fn execute(&self, call: ToolCall, _: ToolContext) -> Result<ToolReturn, ToolError> {
//!         match (call.name.as_str(), call.input["by"].as_u64().filter(|by| *by > 0)) {
//!             ("count", Some(by)) => {
//!                 self.0.fetch_add(by, Ordering::SeqCst);
//!                 Ok(ToolReturn::text(format!("added {by}")))
//!             }
//!             ("count", None) => Err(ToolError::failed("`by` must be a positive integer")),
//!             (other, _) => Err(ToolError::failed(format!("no tool is named `{other}`"))),
//!         }
//!     }
//! }
//!
//! struct Counters;
//!
//! #[async_trait]
//! impl ToolFixture for Counters {
//!     async fn open(&self) -> Result<ToolSubject, String> {
//!         let count = Arc::new(AtomicU64::new(0));
//!         let sample = Sample::new("count")
//!             .takes(json!({"by": 2}))
//!             .apart(json!({"by": 3}), json!({"by": 4}))
//!             .refuses(json!({"by": "two"}));
//!         Ok(ToolSubject::new(Arc::new(Counter(count.clone())))
//!             .sample(sample)
//!             .world(move || json!(count.load(Ordering::SeqCst))))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let report = ToolSuite::new().run(&Counters).await;
//! println!("{report}");
//! report.into_result().unwrap();
//! # }
//! ```

mod bench;

mod definition;

mod input;

mod stop;

mod beside;

mod replay;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use settled_tools_api::ToolExecutor;

use self::bench::Bench;
use super::Report;
use super::suite::{Checked, Selection, broken};

/// What makes the subjects of [`ToolSuite`].
///
/// Its limits go by tokio's clock: pause it where the tools wait for nothing outside of the process.
#[async_trait]
pub trait ToolFixture: Send + Sync {
    /// Makes the tools anew, in a world of their own: nothing that an earlier subject did is in it.
    ///
    /// *Fails* with words for the report.
    async fn open(&self) -> Result<ToolSubject, String>;

    /// How long a run may take to stop after its cancel, or after it was dropped: the runner's own grace, unless told otherwise.
    fn grace(&self) -> Duration {
        Duration::from_secs(5)
    }

    /// How long a case may take: a minute, unless told otherwise.
    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// What there is to see of a world, as one value.
type Look = Box<dyn Fn() -> Value + Send + Sync>;

/// How many runs are at work.
type Count = Box<dyn Fn() -> usize + Send + Sync>;

/// A set of tools, samples of what they do, and how to see it.
#[non_exhaustive]
pub struct ToolSubject {
    /// The tools.
    pub tools: Arc<dyn ToolExecutor>,
    samples: Vec<Sample>,
    world: Option<Look>,
    working: Option<Count>,
    guard: Option<Box<dyn Any + Send + Sync>>,
}

impl ToolSubject {
    /// A set of tools of which nothing is known yet.
    pub fn new(tools: Arc<dyn ToolExecutor>) -> Self {
        Self { tools, samples: Vec::new(), world: None, working: None, guard: None }
    }

    /// The same subject, with a sample of one of its tools.
    #[must_use]
    pub fn sample(mut self, sample: Sample) -> Self {
        self.samples.push(sample);
        self
    }

    /// The same subject, with a way to see all that its tools can do to the world: files, rows, a balance.
    ///
    /// Two looks at an unchanged world give the same value.
    #[must_use]
    pub fn world(mut self, look: impl Fn() -> Value + Send + Sync + 'static) -> Self {
        self.world = Some(Box::new(look));
        self
    }

    /// The same subject, with a count of the runs that are at work this moment: threads, processes, requests.
    #[must_use]
    pub fn working(mut self, count: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        self.working = Some(Box::new(count));
        self
    }

    /// The same subject, with something to keep for as long as it lives: a temporary folder, a server.
    #[must_use]
    pub fn keeping(mut self, guard: impl Any + Send + Sync) -> Self {
        self.guard = Some(Box::new(guard));
        self
    }
}

impl fmt::Debug for ToolSubject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolSubject").field("samples", &self.samples).finish_non_exhaustive()
    }
}

/// Inputs of one tool that show what it does.
///
/// Each is run on a fresh subject.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Sample {
    tool: String,
    takes: Vec<Value>,
    refuses: Vec<Value>,
    fails: Vec<Value>,
    long: Option<Value>,
    large: Option<(Value, usize)>,
    asks: Option<(Value, String)>,
    apart: Option<(Value, Value)>,
    shows: Option<Value>,
}

impl Sample {
    /// A sample of the tool of this name.
    pub fn new(tool: impl Into<String>) -> Self {
        Self {
            tool: tool.into(),
            takes: Vec::new(),
            refuses: Vec::new(),
            fails: Vec::new(),
            long: None,
            large: None,
            asks: None,
            apart: None,
            shows: None,
        }
    }

    /// The same sample, with an input that succeeds: one that the tool's documentation shows.
    #[must_use]
    pub fn takes(mut self, input: Value) -> Self {
        self.takes.push(input);
        self
    }

    /// The same sample, with an input that does not fit the tool's schema.
    #[must_use]
    pub fn refuses(mut self, input: Value) -> Self {
        self.refuses.push(input);
        self
    }

    /// The same sample, with an input that fits the schema and that the tool answers with a failure: a file that is not there.
    #[must_use]
    pub fn fails(mut self, input: Value) -> Self {
        self.fails.push(input);
        self
    }

    /// The same sample, with an input whose run does not end before it is stopped.
    #[must_use]
    pub fn long(mut self, input: Value) -> Self {
        self.long = Some(input);
        self
    }

    /// The same sample, with an input that has far more to say than this many bytes, which are the most that the tool gives.
    #[must_use]
    pub fn large(mut self, input: Value, bytes: usize) -> Self {
        self.large = Some((input, bytes));
        self
    }

    /// The same sample, with an input on which the tool asks a person, and what the person says.
    #[must_use]
    pub fn asks(mut self, input: Value, answer: impl Into<String>) -> Self {
        self.asks = Some((input, answer.into()));
        self
    }

    /// The same sample, with two inputs whose runs have nothing to do with each other, and do not answer the same.
    #[must_use]
    pub fn apart(mut self, one: Value, other: Value) -> Self {
        self.apart = Some((one, other));
        self
    }

    /// The same sample, with an input whose run shows progress before it ends.
    #[must_use]
    pub fn shows(mut self, input: Value) -> Self {
        self.shows = Some(input);
        self
    }

    /// Every input that fits the schema.
    fn fitting(&self) -> impl Iterator<Item = &Value> {
        let pair = self.apart.iter().flat_map(|(one, other)| [one, other]);
        let large = self.large.iter().map(|(input, _)| input);
        let asks = self.asks.iter().map(|(input, _)| input);
        self.takes.iter().chain(&self.fails).chain(&self.long).chain(large).chain(asks).chain(pair).chain(&self.shows)
    }

    /// An input that succeeds, if there is one.
    fn working_input(&self) -> Option<&Value> {
        self.takes.first().or_else(|| self.apart.as_ref().map(|(one, _)| one))
    }
}

/// One case: it holds a set of tools to one promise.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Case {
    /// Its name, `subject.what`: stable, to be skipped by.
    pub name: &'static str,
    /// What it holds the tools to.
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
        pub(super) const CASES: &[$crate::conformance::tool::Case] = &[$(
            $crate::conformance::tool::Case {
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
    [definition::CASES, input::CASES, stop::CASES, beside::CASES, replay::CASES].into_iter().flatten().copied()
}

/// A run of the suite: which cases, and which are left out and why.
#[derive(Clone, Debug, Default)]
pub struct ToolSuite(Selection);

impl ToolSuite {
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
    pub async fn run(&self, fixture: &dyn ToolFixture) -> Report {
        let cases: Vec<_> = cases().collect();
        let named: Vec<_> = cases.iter().map(|case| (case.name, case.promise)).collect();
        self.0.run("tool", &named, |place| check(cases[place], fixture)).await
    }
}

/// Runs one case, for as long as the fixture's patience lasts.
async fn check(case: Case, fixture: &dyn ToolFixture) -> Checked {
    let bench = Bench::new(fixture);
    match tokio::time::timeout(fixture.patience(), (case.run)(&bench)).await {
        Ok(checked) => checked,
        Err(_) => broken("it waited for something that never came"),
    }
}

//! Ordeals: an agent's process dies at every write, and its provider's stream is cut at every event.
//!
//! ```
//! use std::time::Duration;
//! use serde_json::json;
//! use settled_store_memory::MemoryStore;
//! use settled_testkit::{Permission, ToolRun, agent, crash_at_every_write, script, tools};
//! use settled_tools_api::{Replay, ToolDefinition};
//!
//! // The tool says that it may run again under the same effect key, and does not look at the key.
//! let replay = Replay::Idempotent { valid_for: Duration::from_secs(3_600) };
//! let charge = ToolDefinition::new("charge", "Charges.", json!({"type": "object"})).replay(replay);
//! let report = crash_at_every_write(|| {
//!     let runs = [ToolRun::default().effect().ok("charged")];
//!     let script = script().step(|s| s.call("charge", json!({})).finish()).step(|s| s.text("Done.").finish());
//!     agent(MemoryStore::new, script)
//!         .tools(tools().define(charge.clone(), Permission::Allow, runs))
//!         .prompt("Charge me.")
//!         .runs()
//! });
//! assert_eq!(
//!     report.lines()[0],
//!     "crash after `tool.started` of `charge`, before its result: on resume `charge` ran again, because its replay class says idempotent, but it ignored the effect key: it acted 2 times",
//! );
//! ```
//!
//! The same test with `effect_once`, a tool that honours its key, passes [`Report::assert_ok`].
//!
//! # What is tried, and what is looked at
//!
//! The test is first played unharmed; then once for each place where something can go wrong, each time on a store, a runtime and a runner of its own.
//! At a crash the runtime is dropped with everything in it, the session is opened again on the same store, and what the script was at is taken up again.
//! An answer of which nothing was recorded is given once more; what is asked beyond the script is answered with `Done.`.
//! At the end a person says something more, unless the session waits for one.
//!
//! Then the log has to hold every invariant, no input may be lost, the session has to go on, no call may have acted more often than it does unharmed, and where a call has acted the record must not say that it did not.

use std::collections::BTreeMap;
use std::fmt;

use settled_ledger::{Event, FailureCause, Recorded, effect_key};
use settled_provider_api::{ErrorClass, ProviderError, ProviderEvent};
use settled_tools_api::{CallKey, ReplayClass};

use crate::agent::{AgentTest, Played};
use crate::names::Names;
use crate::scenario::Failed;
use crate::scenario::plan::Ordeal;
use crate::script::{Answer, Entry, Item, Script};

/// Plays a test once for each of its writes and side: the process dies right before the write, or right after it.
///
/// `test` makes the same test every time, with a store, tools and effects of its own.
/// Each is played on a runtime of its own, which the crash drops, and goes on on the same store.
/// It must not be called in an asynchronous context.
pub fn crash_at_every_write(mut test: impl FnMut() -> AgentTest) -> Report {
    let unharmed = match Unharmed::of(test()) {
        Ok(unharmed) => unharmed,
        Err(failed) => return Report { unharmed: Some(failed), trials: Vec::new() },
    };
    let mut trials = Vec::new();
    for (number, (write, landed)) in unharmed.writes.iter().enumerate() {
        let before =
            unharmed.writes[..number].iter().rev().find_map(|(write, landed)| write.last().filter(|_| *landed));
        for side in [Side::Before, Side::After] {
            if side == Side::After && !landed {
                continue;
            }
            let point = Point::Crash { side, write: write.clone(), last: before.cloned() };
            trials.push(unharmed.tries(test().through(Ordeal::Crash(number, side)), point));
        }
    }
    Report { unharmed: None, trials }
}

/// Plays a test once for each event of each scripted stream and way to be cut: the stream just ends there, or breaks.
///
/// `test` makes the same test every time, with a store, tools and effects of its own.
/// Each is played on a runtime of its own.
/// It must not be called in an asynchronous context.
pub fn cut_at_every_event(mut test: impl FnMut() -> AgentTest) -> Report {
    let first = test();
    let script = first.script().clone();
    let unharmed = match Unharmed::of(first) {
        Ok(unharmed) => unharmed,
        Err(failed) => return Report { unharmed: Some(failed), trials: Vec::new() },
    };
    let mut trials = Vec::new();
    for (place, entry) in script.entries.iter().enumerate() {
        let Answer::Stream(items) = &entry.answer else { continue };
        for after in 0..=items.len() {
            let last = match after.checked_sub(1).and_then(|last| items.get(last)) {
                None => None,
                Some(Item::Event(event)) => Some(event_name(event)),
                // Nothing has come since the event before.
                Some(_) => continue,
            };
            for cut in [Cut::Ends, Cut::Breaks] {
                if after == items.len() && cut == Cut::Ends {
                    continue;
                }
                let point = Point::Cut { entry: place + 1, after, last: last.map(str::to_owned), cut };
                let cut = self::cut(&script, place, &items[..after], cut);
                trials.push(unharmed.tries(test().follow(cut).through(Ordeal::Cut), point));
            }
        }
    }
    Report { unharmed: None, trials }
}

/// What came of an agent that was put through every ordeal of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Why the test fails where nothing goes wrong; then nothing else was tried.
    pub unharmed: Option<Failed>,
    /// Everything that was tried, in order.
    pub trials: Vec<Trial>,
}

/// One ordeal, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trial {
    /// Where it went wrong.
    pub point: Point,
    /// How the last run went: `completed`, `parked`, `interrupted` or `failed`.
    pub outcome: String,
    /// What must not be.
    pub findings: Vec<Finding>,
    /// The session's log as plain text.
    pub transcript: String,
}

/// Where something goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Point {
    /// The process dies.
    Crash {
        /// Before the write, or after it.
        side: Side,
        /// The write.
        write: Write,
        /// The last event that was durable before this write.
        last: Option<Fact>,
    },
    /// A provider's stream is cut.
    Cut {
        /// The entry of the script, from 1.
        entry: usize,
        /// After how many of its items.
        after: usize,
        /// The event that came last: `text_delta`, `tool_call`.
        last: Option<String>,
        /// How.
        cut: Cut,
    },
}

/// On which side of a write a process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is no third side")]
pub enum Side {
    /// What is written does not land.
    Before,
    /// What is written lands, and nobody learns of it.
    After,
}

/// How a stream is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cut {
    /// It ends as if it were over.
    Ends,
    /// It fails: the connection is lost.
    Breaks,
}

/// Something that is written to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Write {
    /// The session is created.
    Create,
    /// A worker takes the session.
    Claim,
    /// Input is admitted.
    Admit,
    /// Events are appended, as one batch.
    Append(Vec<Fact>),
    /// A worker gives the session back.
    Release,
}

/// A durable event: its kind, and the label of the call that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fact {
    /// Its kind: `tool.started`.
    pub kind: String,
    /// The call, if it is about one.
    pub call: Option<String>,
}

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A call has acted more often than it does where nothing goes wrong.
    ActedTwice {
        /// The call.
        call: String,
        /// What its tool says about running again.
        replay: Option<ReplayClass>,
        /// How often the session was taken up again while it ran.
        resumes: u64,
        /// How often it has acted.
        times: u64,
    },
    /// A call has acted, and the record says that it did not.
    Hidden {
        /// The call.
        call: String,
        /// What the record says: `not_run`.
        recorded: String,
    },
    /// The session does not go on.
    Stuck {
        /// How its last run went.
        outcome: String,
    },
    /// Something is broken that must hold always.
    Broken {
        /// What, in words.
        what: String,
    },
}

impl Report {
    /// Everything that must not be, and where.
    pub fn findings(&self) -> impl Iterator<Item = (&Point, &Finding)> {
        self.trials.iter().flat_map(|trial| trial.findings.iter().map(|finding| (&trial.point, finding)))
    }

    /// Whether the test passes unharmed, and nothing was found.
    pub fn is_ok(&self) -> bool {
        self.unharmed.is_none() && self.findings().next().is_none()
    }

    /// Everything that must not be, each in a line of its own: where, and what.
    pub fn lines(&self) -> Vec<String> {
        let unharmed = self.unharmed.iter().map(ToString::to_string);
        unharmed.chain(self.findings().map(|(point, finding)| format!("{point}: {finding}"))).collect()
    }

    /// Fails the test if anything was found, and says what and where.
    ///
    /// # Panics
    ///
    /// That is how it fails the test.
    #[track_caller]
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn assert_ok(&self) {
        if !self.is_ok() {
            panic!("{self}");
        }
    }
}

impl fmt::Display for Report {
    /// One paragraph for each thing that is wrong: where it shows first, where else, and what happened there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(failed) = &self.unharmed {
            return write!(f, "nothing was tried: unharmed, {failed}");
        }
        let harmed = self.trials.iter().filter(|trial| !trial.findings.is_empty()).count();
        write!(f, "{} ordeals, {harmed} of them with findings", self.trials.len())?;
        let mut told: Vec<&Finding> = Vec::new();
        for trial in &self.trials {
            for finding in &trial.findings {
                if told.contains(&finding) {
                    continue;
                }
                told.push(finding);
                write!(f, "\n\n{}: {finding}", trial.point)?;
                let others = self.findings().filter(|(point, other)| *other == finding && **point != trial.point);
                for (point, _) in others {
                    write!(f, "\n  also: {point}")?;
                }
                write!(f, "\n  this is what happened:")?;
                trial.transcript.lines().try_for_each(|line| write!(f, "\n    {line}"))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash { side: Side::Before, write, last: Some(last) } => match write.first() {
                Some(fact) if fact.is_outcome() && fact.call == last.call => {
                    write!(f, "crash after {last}, before its result")
                }
                _ => write!(f, "crash after {last}, before {write}"),
            },
            Self::Crash { side: Side::Before, write, last: None } => write!(f, "crash before {write}"),
            Self::Crash { side: Side::After, write, .. } => write!(f, "crash right after {write}"),
            Self::Cut { entry, after, last, cut } => {
                let how = match cut {
                    Cut::Ends => "ends",
                    Cut::Breaks => "breaks",
                };
                match last {
                    Some(last) => write!(f, "answer {entry} {how} after its item {after}, `{last}`"),
                    None => write!(f, "answer {entry} {how} before anything has come"),
                }
            }
        }
    }
}

impl Write {
    fn facts(&self) -> &[Fact] {
        match self {
            Self::Append(facts) => facts,
            Self::Create | Self::Claim | Self::Admit | Self::Release => &[],
        }
    }

    fn first(&self) -> Option<&Fact> {
        self.facts().first()
    }

    fn last(&self) -> Option<&Fact> {
        self.facts().last()
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create => f.write_str("the session is created"),
            Self::Claim => f.write_str("the session is claimed"),
            Self::Admit => f.write_str("the input is admitted"),
            Self::Release => f.write_str("the session is released"),
            Self::Append(facts) if facts.is_empty() => f.write_str("an append without events"),
            Self::Append(facts) => {
                let facts: Vec<String> = facts.iter().map(ToString::to_string).collect();
                f.write_str(&facts.join(", "))
            }
        }
    }
}

impl Fact {
    fn is_outcome(&self) -> bool {
        matches!(self.kind.as_str(), "tool.success" | "tool.failed" | "tool.unknown")
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.call {
            Some(call) => write!(f, "`{}` of `{call}`", self.kind),
            None => write!(f, "`{}`", self.kind),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ActedTwice { call, resumes: 0, times, .. } => write!(f, "`{call}` acted {times} times in one run"),
            Self::ActedTwice { call, replay, times, .. } => {
                let why = match replay {
                    Some(ReplayClass::Idempotent { .. }) => {
                        "because its replay class says idempotent, but it ignored the effect key"
                    }
                    Some(ReplayClass::Pure) => "because its replay class says pure, but it acts",
                    Some(ReplayClass::Reconcile) => {
                        "because its reconciler did not find what it had done, and it ignored the effect key"
                    }
                    _ => "although nothing says that it may",
                };
                write!(f, "on resume `{call}` ran again, {why}: it acted {times} times")
            }
            Self::Hidden { call, recorded } => {
                write!(f, "`{call}` has acted, and the record says `{recorded}` without a doubt")
            }
            Self::Stuck { outcome } => write!(f, "the session does not go on: its last run is `{outcome}`"),
            Self::Broken { what } => f.write_str(what),
        }
    }
}

/// The test as it is where nothing goes wrong.
struct Unharmed {
    writes: Vec<(Write, bool)>,
    /// How often a call of each tool acts, at most.
    acts: BTreeMap<String, u64>,
}

impl Unharmed {
    /// Plays a test unharmed; it has to pass.
    fn of(test: AgentTest) -> Result<Self, Failed> {
        let run = test.try_run()?;
        let mut acts: BTreeMap<String, u64> = BTreeMap::new();
        for call in calls(&run) {
            let most = acts.entry(call.tool).or_default();
            *most = (*most).max(call.acted);
        }
        Ok(Self { writes: run.result.writes, acts })
    }

    /// Plays a test that is put through an ordeal, and looks at what has come of it.
    fn tries(&self, test: AgentTest, point: Point) -> Trial {
        let run = match test.perform() {
            Ok(run) => run,
            Err(error) => {
                let findings = vec![Finding::Broken { what: error.to_string() }];
                return Trial { point, outcome: "failed".to_owned(), findings, transcript: String::new() };
            }
        };
        let outcome = run.result.value()["outcome"].as_str().unwrap_or("none").to_owned();
        let mut findings = Vec::new();
        for call in calls(&run) {
            let usual = self.acts.get(&call.tool).copied().unwrap_or_default().max(1);
            if call.acted > usual {
                let Call { label, replay, resumes, acted, .. } = call;
                findings.push(Finding::ActedTwice { call: label, replay, resumes, times: acted });
            } else if call.acted > 0
                && let Some(recorded) = call.says_it_did_not
            {
                findings.push(Finding::Hidden { call: call.label, recorded: recorded.to_owned() });
            }
        }
        findings.extend(run.result.violations.iter().map(|what| Finding::Broken { what: what.clone() }));
        if !matches!(outcome.as_str(), "completed" | "parked") {
            findings.push(Finding::Stuck { outcome: outcome.clone() });
        }
        Trial { point, outcome, findings, transcript: run.result.transcript.to_string() }
    }
}

/// One call, as the record and the world know it.
struct Call {
    label: String,
    tool: String,
    replay: Option<ReplayClass>,
    running: bool,
    resumes: u64,
    acted: u64,
    /// The outcome, where it says that the call has not acted.
    says_it_did_not: Option<&'static str>,
}

/// The calls of a test that was played, by their labels.
#[expect(clippy::wildcard_enum_match_arm, reason = "most events are about no call")]
fn calls(run: &Played) -> Vec<Call> {
    let mut names = Names::default();
    let mut found: BTreeMap<CallKey, Call> = BTreeMap::new();
    for event in run.result.log.iter().map(Recorded::event).filter_map(Result::ok) {
        names.see(&event);
        if matches!(event, Event::ExecutionStarted(_)) {
            found.values_mut().filter(|call| call.running).for_each(|call| call.resumes += 1);
        }
        let Some(key) = event.call() else { continue };
        let call = found.entry(key).or_insert_with(|| Call {
            label: names.label(key),
            tool: String::new(),
            replay: None,
            running: false,
            resumes: 0,
            acted: 0,
            says_it_did_not: None,
        });
        match event {
            Event::ToolInputStarted(started) => call.tool = started.name,
            Event::ToolCalled(called) => call.replay = called.replay,
            Event::ToolStarted(_) => call.running = true,
            Event::ToolSuccess(_) | Event::ToolUnknown(_) => call.running = false,
            Event::ToolFailed(failed) => {
                call.running = false;
                // A failure of the tool's own may well come after it has acted: it says so itself.
                if failed.cause != FailureCause::Execution && !failed.may_have_acted {
                    call.says_it_did_not = Some(failed.cause.name());
                }
            }
            _ => {}
        }
    }
    let session = run.result.log.first().map(|first| first.session.clone());
    let scripted = run.tools.calls();
    let counted = found.into_iter().map(|(key, mut call)| {
        let own = session.as_ref().map_or(0, |session| run.effects.of(&effect_key(session, key)));
        call.acted = own + scripted.get(&key).map_or(0, |call| call.effects);
        call
    });
    counted.collect()
}

/// A script whose answer is cut; what comes then is the same answer, unless a call of it has been made.
fn cut(script: &Script, place: usize, items: &[Item], cut: Cut) -> Script {
    let mut cut_short = items.to_vec();
    if cut == Cut::Breaks {
        cut_short.push(Item::Throw(ProviderError::new(ErrorClass::Transport, "the connection was lost")));
    }
    let called = items.iter().any(|item| matches!(item, Item::Event(ProviderEvent::ToolCall(_))));
    let finished = items.iter().any(|item| matches!(item, Item::Event(ProviderEvent::Finish(_))));
    let goes_on_at = if called || finished { place + 1 } else { place };
    let Entry { serves, place: written, .. } = script.entries[place];
    let mut entries = script.entries[..place].to_vec();
    entries.push(Entry { serves, answer: Answer::Stream(cut_short), place: written });
    entries.extend_from_slice(&script.entries[goes_on_at..]);
    Script { entries, ..script.clone() }
}

fn event_name(event: &ProviderEvent) -> &'static str {
    match event {
        ProviderEvent::StepStart => "step_start",
        ProviderEvent::TextStart(_) => "text_start",
        ProviderEvent::TextDelta(_) => "text_delta",
        ProviderEvent::TextEnd(_) => "text_end",
        ProviderEvent::ReasoningStart(_) => "reasoning_start",
        ProviderEvent::ReasoningDelta(_) => "reasoning_delta",
        ProviderEvent::ReasoningEnd(_) => "reasoning_end",
        ProviderEvent::ToolInputStart(_) => "tool_input_start",
        ProviderEvent::ToolInputDelta(_) => "tool_input_delta",
        ProviderEvent::ToolInputEnd(_) => "tool_input_end",
        ProviderEvent::ToolInputMalformed(_) => "tool_input_malformed",
        ProviderEvent::ToolCall(_) => "tool_call",
        ProviderEvent::HostedResult(_) => "hosted_result",
        ProviderEvent::HostedError(_) => "hosted_error",
        ProviderEvent::Media(_) => "media",
        ProviderEvent::Annotation(_) => "annotation",
        ProviderEvent::Alive => "alive",
        ProviderEvent::Finish(_) => "finish",
        ProviderEvent::Error(_) => "error",
        _ => "another event",
    }
}

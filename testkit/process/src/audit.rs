//! What must be true of a file, its effects, and what processes have said while they lived.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use settled_ledger::check::check_log;
use settled_ledger::store::{Catalog, EventLog, Inbox, Query, SessionInfo};
use settled_ledger::{Event, FailureCause, Recorded, Seq, effect_key};
use settled_store_sqlite::SqliteStore;
use settled_testkit::Transcript;
use settled_tools_api::CallKey;

use crate::Outcome;
use crate::agent::Class;
use crate::effects::Effects;
use crate::witness::told;

/// How many breaches are told.
const TOLD: usize = 20;

/// What processes have said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    /// The rows that were acknowledged, by session and place.
    rows: BTreeMap<(String, u64), String>,
    inputs: BTreeSet<(String, String)>,
    /// The effect keys of the tools that were polled.
    runs: BTreeSet<String>,
    /// How often a process has lost a session while it lived, by why.
    lost: BTreeMap<String, u64>,
    /// What must never be said.
    wrong: Vec<String>,
}

impl Said {
    /// Takes in one line.
    pub(crate) fn hear(&mut self, line: String) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["row", session, seq, ..] => {
                let place = ((*session).to_owned(), seq.parse().unwrap_or(0));
                if let Some(before) = self.rows.get(&place).filter(|before| **before != line) {
                    self.wrong.push(format!("two rows were acknowledged at one place: `{before}` and `{line}`"));
                }
                self.rows.insert(place, line);
            }
            ["input", session, input] => {
                self.inputs.insert(((*session).to_owned(), (*input).to_owned()));
            }
            ["run", key] => {
                self.runs.insert((*key).to_owned());
            }
            ["lost", _, why @ ..] => *self.lost.entry(why.join(" ")).or_default() += 1,
            ["fault", ..] => self.wrong.push(line),
            ["done", dropped] if *dropped != "0" => {
                self.wrong.push(format!("{dropped} attempts were dropped unsettled"))
            }
            _ => {}
        }
    }
}

/// What was counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    counts: BTreeMap<String, u64>,
}

impl Counts {
    pub(crate) fn add(&mut self, what: impl Into<String>, count: u64) {
        if count > 0 {
            *self.counts.entry(what.into()).or_default() += count;
        }
    }

    pub(crate) fn of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    pub(crate) fn join(&mut self, other: Self) {
        other.counts.into_iter().for_each(|(what, count)| self.add(what, count));
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts.iter().try_for_each(|(what, count)| writeln!(f, "  {count:>9}  {what}"))
    }
}

/// Checks everything once all sessions are at rest; gives the counts, or what was broken.
pub(crate) fn audit(file: &Path, effects: &Path, said: &Said) -> Outcome<Counts> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let store = SqliteStore::open(file).map_err(|error| error.to_string())?;
        let effects = Effects::open(effects)?.counts()?;
        let mut audit = Audit { said, effects: &effects, counts: Counts::default(), broken: said.wrong.clone() };
        let mut keys = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for info in sessions(&store).await? {
            let log = log(&store, &info).await?;
            let pending = store.pending(&info.session).await.map_err(|error| error.to_string())?;
            let pending = pending.iter().map(|item| item.id.to_string()).collect();
            let before = audit.broken.len();
            keys.extend(audit.session(&info, &log, &pending));
            if audit.broken.len() > before {
                audit.broken.push(format!("the log of {}:\n{}", info.session, Transcript::of(&log)));
            }
            seen.insert(info.session.to_string());
        }
        audit.everything(&keys, &seen);
        store.close().await;
        match audit.broken.is_empty() {
            true => Ok(audit.counts),
            false => {
                let more = audit.broken.len().saturating_sub(TOLD);
                audit.broken.truncate(TOLD);
                Err(format!("{}\nand {more} more", audit.broken.join("\n")))
            }
        }
    })
}

/// The effect key of every start that a file has recorded, by session and place.
pub(crate) fn started_keys(file: &Path) -> Outcome<BTreeMap<(String, u64), String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let store = SqliteStore::open(file).map_err(|error| error.to_string())?;
        let mut keys = BTreeMap::new();
        for info in sessions(&store).await? {
            for row in log(&store, &info).await? {
                if let Some(call) = row
                    .event()
                    .ok()
                    .filter(|event| matches!(event, Event::ToolStarted(_)))
                    .and_then(|event| event.call())
                {
                    keys.insert((info.session.to_string(), row.seq.get()), effect_key(&info.session, call).to_string());
                }
            }
        }
        store.close().await;
        Ok(keys)
    })
}

async fn sessions(store: &SqliteStore) -> Outcome<Vec<SessionInfo>> {
    let mut query = Query::all(1_000);
    let mut found = Vec::new();
    loop {
        let page = store.list(&query).await.map_err(|error| error.to_string())?;
        found.extend(page.sessions);
        match page.after {
            None => return Ok(found),
            after => query.after = after,
        }
    }
}

async fn log(store: &SqliteStore, info: &SessionInfo) -> Outcome<Vec<Recorded>> {
    let mut log: Vec<Recorded> = Vec::new();
    loop {
        let after = log.last().map_or(Seq::START, |last| last.seq);
        let page = store.read(&info.session, after, 1_024).await.map_err(|error| error.to_string())?;
        if page.is_empty() {
            return Ok(log);
        }
        log.extend(page);
    }
}

struct Audit<'a> {
    said: &'a Said,
    effects: &'a BTreeMap<String, u64>,
    counts: Counts,
    broken: Vec<String>,
}

/// One call, as its log tells of it.
struct Told {
    class: Option<Class>,
    started: u64,
    outcomes: Vec<Event>,
}

impl Audit<'_> {
    /// Checks one session; gives the effect keys of the calls that were started.
    fn session(&mut self, info: &SessionInfo, log: &[Recorded], pending: &BTreeSet<String>) -> Vec<String> {
        let name = info.session.to_string();
        let broken = &mut self.broken;
        if info.state.execution.is_some() {
            broken.push(format!("{name}: its execution has not settled"));
        }
        for (row, seq) in log.iter().zip(1..) {
            if row.seq.get() != seq {
                broken.push(format!("{name}: event {} stands where {seq} should", row.seq));
            }
            // What was acknowledged is there, word for word.
            let is = told(&row.session, seq, &row.kind, &row.body);
            match self.said.rows.get(&(name.clone(), seq)) {
                Some(said) if *said != is => broken.push(format!("{name}: acknowledged was `{said}`, there is `{is}`")),
                Some(_) => self.counts.add("events acknowledged, all there", 1),
                None => {}
            }
        }
        broken.extend(check_log(log).iter().map(|breach| format!("{name}: {breach}")));
        self.counts.add("sessions", 1);
        self.counts.add("events", log.len() as u64);

        let mut calls: BTreeMap<CallKey, Told> = BTreeMap::new();
        let mut promoted = BTreeSet::new();
        for row in log {
            let event = match row.event() {
                Ok(event) => event,
                Err(error) => {
                    self.broken.push(error.to_string());
                    continue;
                }
            };
            match &event {
                Event::StepStarted(started) => {
                    self.counts.add(if started.attempt == 1 { "steps" } else { "retries" }, 1)
                }
                Event::ExecutionStarted(started) if started.resume > 0 => {
                    self.counts.add("executions taken up again", 1)
                }
                Event::ExecutionStarted(_) => self.counts.add("executions", 1),
                Event::InputPromoted(input) => drop(promoted.insert(input.input.to_string())),
                _ => {}
            }
            let Some(key) = event.call() else { continue };
            let call = calls.entry(key).or_insert(Told { class: None, started: 0, outcomes: Vec::new() });
            match &event {
                Event::ToolCalled(called) => call.class = called.replay.map(Class::of),
                Event::ToolStarted(_) => call.started += 1,
                Event::ToolSuccess(_) | Event::ToolFailed(_) | Event::ToolUnknown(_) => call.outcomes.push(event),
                _ => {}
            }
        }
        for (session, input) in self.said.inputs.iter().filter(|(session, _)| *session == name) {
            if !promoted.contains(input) && !pending.contains(input) {
                self.broken.push(format!("{session}: the input {input} was acknowledged and is lost"));
            }
        }
        let mut started = Vec::new();
        for (key, call) in calls {
            let effect_key = effect_key(&info.session, key).to_string();
            self.call(&format!("{name}: call {key}"), &effect_key, &call);
            if call.started > 0 {
                started.push(effect_key);
            }
        }
        started
    }

    fn call(&mut self, place: &str, effect_key: &str, call: &Told) {
        let acted = self.effects.get(effect_key).copied().unwrap_or_default();
        let started = call.started > 0;
        self.counts.add("calls", 1);
        let [outcome] = call.outcomes.as_slice() else {
            self.broken.push(format!("{place} has {} outcomes: {:?}", call.outcomes.len(), call.outcomes));
            return;
        };
        let (named, sound) = match outcome {
            Event::ToolSuccess(_) => ("success".to_owned(), started && acted > 0),
            Event::ToolUnknown(_) => ("unknown".to_owned(), started),
            Event::ToolFailed(failed) => {
                let may = if failed.may_have_acted { ", may have acted" } else { "" };
                // What a pure tool does is no act.
                let innocent = acted == 0 || (call.class == Some(Class::Pure) && failed.cause != FailureCause::NotRun);
                let sound = if failed.may_have_acted { failed.cause != FailureCause::NotRun } else { innocent };
                (format!("failed, {}{may}", failed.cause.name()), sound)
            }
            other => (other.kind().to_owned(), false),
        };
        self.counts.add(format!("outcome: {named}"), 1);
        if named == "unknown" && acted > 0 {
            self.counts.add("outcome: unknown, and it had acted", 1);
        }
        let may_repeat = call.class.is_some_and(Class::may_repeat);
        if !sound || (acted > 1 && !may_repeat) || (acted > 0 && !started) {
            let started = call.started;
            self.broken.push(format!(
                "{place} ({:?}, key {effect_key}): started {started} times, acted {acted} times, outcome {named}",
                call.class
            ));
        }
        self.counts.add("effects", acted);
        if acted > 1 {
            self.counts.add("effects that were repeated, of tools that allow it", acted - 1);
        }
    }

    /// Checks what belongs to no single session.
    fn everything(&mut self, started: &BTreeSet<String>, sessions: &BTreeSet<String>) {
        for key in self.said.runs.iter().chain(self.effects.keys()) {
            if !started.contains(key) {
                self.broken
                    .push(format!("a tool ran or acted under the key {key}, and no log says that it was started"));
            }
        }
        let rows = self.said.rows.iter().filter(|((session, _), _)| !sessions.contains(session));
        self.broken.extend(rows.map(|(_, row)| format!("acknowledged was `{row}`, and there is no such session")));
        let there = self.counts.of("events acknowledged, all there");
        if there != self.said.rows.len() as u64 {
            let rows = self.said.rows.len();
            self.broken.push(format!("{rows} events were acknowledged, and {there} of them are there"));
        }
        self.counts.add("inputs acknowledged, none lost", self.said.inputs.len() as u64);
        self.said
            .lost
            .iter()
            .for_each(|(why, times)| self.counts.add(format!("lost by a living process: {why}"), *times));
        self.counts.add("tools polled", self.said.runs.len() as u64);
    }
}

//! A session that dies at every write and is opened again: what may come of it is written down in `table.json`.
//!
//! The store is crashed before and after each of its writes, each time on a runtime of its own that is dropped at the crash.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail, and says how much it has tried")]

mod dying;

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use settled_ledger::check::check_log;
use settled_ledger::{Event, Recorded, SyntheticReason};

use crate::dying::{Death, Dying};
use crate::world::World;

/// A place in the log: its last event, by its kind and call, or its number among those of its kind.
fn last(log: &[Recorded]) -> String {
    let Some(last) = log.last() else { return "nothing".to_owned() };
    let event = last.event().unwrap();
    match (event.call(), last.kind.as_str()) {
        (_, "session.created") => "session.created".to_owned(),
        (Some(call), kind) => format!("{kind} {}", names(log)[&call]),
        (None, kind) => format!("{kind} {}", log.iter().filter(|row| row.kind == kind).count()),
    }
}

/// The names of all calls: a tool is called once, or once more after its first call has come to nothing.
fn names(log: &[Recorded]) -> BTreeMap<settled_tools_api::CallKey, String> {
    let named = log.iter().filter_map(|row| match row.event().unwrap() {
        Event::ToolInputStarted(started) => {
            let step = started.message;
            Some((settled_tools_api::CallKey { step, ordinal: started.call }, started.name))
        }
        _ => None,
    });
    named.collect()
}

/// What has come of the session, in the words of the table.
fn found(world: &World) -> Value {
    let log = world.log();
    assert_eq!(check_log(&log), [], "{}", settled_testkit::Transcript::of(&log));
    assert_eq!(world.faults(), Vec::<String>::new());
    let names = names(&log);
    let mut steps: Vec<String> = Vec::new();
    let mut calls: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let (mut summary, mut resumed, mut notice) = ("none", false, false);
    for row in &log {
        let event = row.event().unwrap();
        let outcome = match &event {
            Event::ToolSuccess(_) => Some("success"),
            Event::ToolUnknown(_) => Some("unknown"),
            Event::ToolFailed(failed) => Some(failed.cause.name()),
            _ => None,
        };
        if let (Some(outcome), Some(call)) = (outcome, event.call()) {
            calls.entry(names[&call].clone()).or_default().push(outcome);
        }
        match event {
            Event::StepEnded(_) => steps.push("ended".to_owned()),
            Event::StepFailed(failed) => steps.push(format!("failed {}", failed.error.class.name())),
            Event::CompactionEnded(_) => summary = "ended",
            Event::CompactionFailed(_) => summary = "failed",
            Event::ExecutionStarted(started) => resumed |= started.resume > 0,
            Event::Synthetic(said) => notice |= said.reason == SyntheticReason::Restart,
            _ => {}
        }
    }
    json!({
        "steps": steps, "calls": calls, "runs": world.runs(),
        "summary": summary, "resumed": resumed, "notice": notice,
    })
}

/// A row of the table, for a process that dies at once or only before its next write.
fn expected(row: &Value, when: &str) -> Value {
    let mut expected = row.clone();
    let fields = expected.as_object_mut().unwrap();
    fields.remove("last");
    fields.remove("why");
    for runs in fields["runs"].as_object_mut().unwrap().values_mut() {
        *runs = runs.get(when).unwrap_or(runs).clone();
    }
    expected
}

#[test]
fn a_session_that_dies_at_a_write_settles_as_the_table_says() {
    let table: Value = serde_json::from_str(include_str!("table.json")).unwrap();
    let rows = table["rows"].as_array().unwrap();
    let whole = World::default();
    assert_eq!(whole.live(Arc::new(Dying::never(whole.store()))), Ok(()));
    let (writes, appends) = whole.writes();
    assert!(appends >= 15, "the scenario has only {appends} appends");

    let mut used = vec![0; rows.len()];
    let mut wrong = Vec::new();
    for write in 1..=writes {
        for death in [Death::Before, Death::After] {
            let world = World::default();
            let died = world.live(Arc::new(Dying::at(world.store(), write, death)));
            let at = died.unwrap_err();
            let last = last(&world.log());
            assert_eq!(world.live(Arc::new(Dying::never(world.store()))), Ok(()), "after a death {death:?} {at}");

            let place = format!("dead {death:?} {at} (write {write}), the log ends with `{last}`");
            let found = found(&world);
            let row = rows.iter().position(|row| row["last"].as_array().unwrap().contains(&json!(last)));
            let Some(row) = row else {
                wrong.push(format!("{place}: the table has no row for it; what came of it: {found}"));
                continue;
            };
            used[row] += 1;
            let when = if death == Death::After { "at_once" } else { "later" };
            let expected = expected(&rows[row], when);
            if found != expected {
                wrong.push(format!("{place}:\n  expected {expected}\n  found    {found}"));
            }
        }
    }
    println!("{writes} writes, of them {appends} appends; each crashed before and after; rows used: {used:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The recovery dies as well, at every one of its own writes: whatever comes of it, the promises hold.
#[test]
fn a_recovery_that_dies_at_a_write_keeps_the_promises() {
    let whole = World::default();
    assert_eq!(whole.live(Arc::new(Dying::never(whole.store()))), Ok(()));
    let mut recoveries = 0;
    for write in 1..=whole.writes().0 {
        for again in 1.. {
            let world = World::default();
            world.live(Arc::new(Dying::at(world.store(), write, Death::Before))).unwrap_err();
            let died = world.live(Arc::new(Dying::at(world.store(), again, Death::After)));
            if died.is_ok() {
                break;
            }
            assert_eq!(world.live(Arc::new(Dying::never(world.store()))), Ok(()));
            recoveries += 1;
            let found = found(&world);
            let place = format!("dead before write {write}, and again after write {again}: {found}");
            let ended = found["steps"].as_array().unwrap().iter().filter(|step| **step == "ended").count();
            assert!(ended >= 2, "{place}");
            // What may not run twice has not, and what has acted is not said to have not run.
            for (call, outcomes) in [
                ("a", ["success", "unknown", "not_run"]),
                ("b", ["success", "absent", "not_run"]),
                ("c", ["success", "success", "not_run"]),
            ] {
                let outcome = found["calls"][call][0].as_str().unwrap_or("absent");
                let runs = world.runs()[call];
                assert!(outcomes.contains(&outcome), "{call}: {place}");
                assert!(call == "b" || runs <= 1, "{call}: {place}");
                assert!(outcome != "not_run" || runs == 0, "{call}: {place}");
            }
        }
    }
    println!("{recoveries} recoveries died");
    assert!(recoveries > 200, "only {recoveries} recoveries died");
}

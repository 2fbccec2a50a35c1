//! Golden logs: written once by each version of the schema, read for ever.
//!
//! They are the logs of real sessions; `events.jsonl` has every field of every kind.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use settled_ledger::{Event, NewRow, Recorded, SessionFold, check::check_log};

/// The golden logs of every version, session by session.
fn logs() -> Vec<Vec<Recorded>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut logs: Vec<Vec<Recorded>> = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        for line in std::fs::read_to_string(file.unwrap().path()).unwrap().lines() {
            let row = Recorded::from_json(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            match logs.last_mut().filter(|log| log[0].session == row.session) {
                Some(log) => log.push(row),
                None => logs.push(vec![row]),
            }
        }
    }
    logs
}

#[test]
fn they_are_whole_and_keep_every_invariant() {
    let logs = logs();
    assert!(logs.len() >= 20, "only {} logs", logs.len());
    for log in &logs {
        assert_eq!(check_log(log), [], "{}", log[0].session);
        let places: Vec<_> = log.iter().map(|row| row.seq.get()).collect();
        assert_eq!(places, (1..=log.len() as u64).collect::<Vec<_>>(), "{}", log[0].session);
    }
}

#[test]
fn every_event_is_known_and_is_written_again_as_it_was() {
    let mut seen = BTreeSet::new();
    for row in logs().iter().flatten() {
        let event = row.event().unwrap_or_else(|error| panic!("{error}"));
        assert!(!matches!(event, Event::Unknown(_)), "{row:?}");
        let again = NewRow::encode(&event, row.at).unwrap();
        if again.version == row.version {
            let fields = |body: &str| serde_json::from_str::<Value>(body).unwrap();
            assert_eq!((&again.kind, fields(&again.body)), (&row.kind, fields(&row.body)));
        }
        seen.insert(row.kind.clone());
    }
    // Kinds that came later are in the logs of a later version.
    assert!(seen.len() >= 25, "only {} kinds: {seen:?}", seen.len());
}

#[test]
fn they_fold_and_say_what_was_said() {
    for log in logs() {
        let mut fold = SessionFold::new();
        for row in &log {
            fold.apply(row.seq, &row.event().unwrap());
        }
        assert_eq!(fold.head, log.last().unwrap().seq);
        let promoted = log.iter().filter(|row| row.kind == "input.promoted").count();
        let history = serde_json::to_value(&fold).unwrap()["history"].to_string();
        assert!(promoted == 0 || history.len() > 20, "{}: {history}", log[0].session);
    }
}

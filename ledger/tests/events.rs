//! Durable events as they stand in a log: their names and fields are frozen.
//!
//! `events.jsonl` has every kind with all its fields, then with as few as may be; lines are added to it, never changed.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use settled_ledger::{Event, NewRow, Recorded, Seq, StepError, Timestamp};

use crate::kit::session;

const FROZEN: &str = include_str!("events.jsonl");

fn row(kind: &str, version: u16, body: &str) -> Recorded {
    Recorded::new(session(), Seq::new(1), Timestamp::from_millis(5), kind.into(), version, body.into())
}

#[test]
fn every_kind_reads_and_is_written_as_it_was() {
    let mut seen = BTreeSet::new();
    for line in FROZEN.lines() {
        let row = Recorded::from_json(line).unwrap();
        let event = row.event().unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(!matches!(event, Event::Unknown(_)), "{line}");
        let again = NewRow::encode(&event, row.at).unwrap().placed(row.session.clone(), row.seq);
        let fields = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        assert_eq!(fields(&again.to_json().unwrap()), fields(line));
        seen.insert((row.kind.clone(), row.version));
    }
    let kinds: BTreeSet<_> = Event::KINDS.iter().map(|(kind, version)| ((*kind).to_owned(), *version)).collect();
    assert_eq!(seen, kinds, "every kind has its line in events.jsonl");
}

#[test]
fn every_line_is_needed_field_by_field() {
    // A field that could be left out or renamed unseen would not be frozen.
    // What may be left out is what some line of the kind leaves out, and the number of an execution's first run.
    let lines: Vec<_> = FROZEN.lines().map(|line| Recorded::from_json(line).unwrap()).collect();
    let optional = |kind: &str, name: &str| {
        let has = |row: &Recorded| serde_json::from_str::<Value>(&row.body).unwrap().get(name).is_some();
        (kind, name) == ("execution.started", "resume") || lines.iter().any(|row| row.kind == kind && !has(row))
    };
    for line in FROZEN.lines() {
        let whole = Recorded::from_json(line).unwrap();
        let event = whole.event().unwrap();
        let fields: serde_json::Map<String, Value> = serde_json::from_str(&whole.body).unwrap();
        for name in fields.keys() {
            let mut less = fields.clone();
            less.remove(name);
            match row(&whole.kind, whole.version, &Value::Object(less).to_string()).event() {
                Ok(other) => {
                    assert!(optional(&whole.kind, name), "{}: `{name}` may be left out", whole.kind);
                    let explicit = [json!(false), json!({}), json!(0), json!(""), Value::Null];
                    assert!(other != event || explicit.contains(&fields[name]), "{}: `{name}` is not read", whole.kind);
                }
                Err(error) => assert!(error.why.contains(name), "{error}"),
            }
        }
    }
}

#[test]
fn what_is_not_known_survives_a_copy() {
    let lines = [
        r#"{"session":"s","seq":7,"time":5,"version":1,"type":"compaction.started","reason":"auto","moon":[1,{"x":null}]}"#,
        r#"{"session":"s","seq":7,"time":-5,"version":3,"type":"moon.rose","phase":"full"}"#,
        r#"{"session":"s","seq":7,"time":5,"version":9,"type":"compaction.started","why":"newer"}"#,
        r#"{"session":"s","seq":7,"time":5,"version":1,"type":"moon.rose"}"#,
    ];
    for line in lines {
        let row = Recorded::from_json(line).unwrap();
        let copy = Recorded::from_json(&row.to_json().unwrap()).unwrap();
        assert_eq!(copy, row);
        assert_eq!(
            serde_json::from_str::<Value>(&copy.to_json().unwrap()).unwrap(),
            serde_json::from_str::<Value>(line).unwrap()
        );
        let known = line.contains("\"reason\"");
        let event = row.event().unwrap();
        assert_eq!(matches!(event, Event::Unknown(_)), !known, "{line}");
        if !known {
            assert_eq!(NewRow::encode(&event, row.at).unwrap().placed(session(), row.seq), row, "it is kept as it is");
        }
    }
}

#[test]
fn words_that_a_newer_version_wrote_are_not_lost_where_it_matters() {
    // A class of failure that is not known reads as unknown; any other word of a known kind is an error that says so.
    let error: StepError = serde_json::from_str(r#"{"class":"of the future","message":"no"}"#).unwrap();
    assert_eq!(error.class.name(), "unknown");
    let error = row("compaction.started", 1, r#"{"reason":"boredom"}"#).event().unwrap_err();
    let said = error.to_string();
    for words in ["event 1", "session `s`", "compaction.started", "boredom"] {
        assert!(said.contains(words), "`{said}` says `{words}`");
    }
}

#[test]
fn an_old_version_without_a_way_up_is_corrupt_and_not_unknown() {
    let error = row("compaction.started", 0, r#"{"reason":"auto"}"#).event().unwrap_err();
    assert_eq!(error.why, "there is no way up from version 0");
}

#[test]
fn a_line_that_does_not_read_says_why() {
    let whole = json!({"session": "s", "seq": 1, "time": 5, "version": 1, "type": "text.started"});
    for field in ["session", "seq", "time", "version", "type"] {
        let mut less = whole.clone();
        less.as_object_mut().unwrap().remove(field);
        assert_eq!(Recorded::from_json(&less.to_string()), Err(format!("the field `{field}` is missing")));
        let mut wrong = whole.clone();
        wrong[field] = json!([]);
        assert_eq!(Recorded::from_json(&wrong.to_string()), Err(format!("the field `{field}` is not what it must be")));
    }
    assert!(Recorded::from_json("[]").unwrap_err().starts_with("not a JSON object"));
    assert!(row("text.started", 1, "[]").to_json().unwrap_err().to_string().contains("no JSON object"));
    assert_eq!(
        row("moon.rose", 1, " { } ").to_json().unwrap(),
        r#"{"session":"s","seq":1,"time":5,"version":1,"type":"moon.rose"}"#
    );
}

/// Arguments are the same when they are read again, to the last digit: a person's answer is bound to their hash.
#[test]
fn numbers_are_read_as_they_were_written() {
    let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let Some(number) = serde_json::Number::from_f64(f64::from_bits(bits)) else { continue };
        let input = json!({"x": number});
        let read: Value = serde_json::from_str(&input.to_string()).unwrap();
        assert_eq!(read, input);
    }
}

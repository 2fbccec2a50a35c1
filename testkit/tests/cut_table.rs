//! A stream that is cut after every single event, by a clean end, a thrown error, and a hang with an interrupt.
//!
//! What must become of each is written down in `scenarios/cut-table.json`.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use settled_provider_api::{ErrorClass, ProviderError};
use settled_store_memory::MemoryStore;
use settled_testkit::{Stream, agent, script, tools};

/// An event by its name in the table.
type Named = (&'static str, fn(Stream) -> Stream);

/// The events of the whole stream, one at a time.
fn events() -> Vec<Named> {
    vec![
        ("start", |s| s.start()),
        ("text_start", |s| s.text_start("t")),
        ("text_delta", |s| s.text_delta("t", "some words")),
        ("text_end", |s| s.text_end("t", None)),
        ("reasoning_start", |s| s.reasoning_start("r")),
        ("reasoning_delta", |s| s.reasoning_delta("r", "a thought")),
        ("reasoning_end", |s| s.reasoning_end("r", None)),
        ("input_start a", |s| s.input_start("a", "work")),
        ("input_delta a", |s| s.input_delta("a", "{}")),
        ("input_end a", |s| s.input_end("a")),
        ("called a", |s| s.called("a", "work", json!({}))),
        ("input_start b", |s| s.input_start("b", "work")),
        ("input_delta b", |s| s.input_delta("b", "{}")),
        ("input_end b", |s| s.input_end("b")),
        ("called b", |s| s.called("b", "work", json!({}))),
        ("input_start h", |s| s.hosted_input_start("h", "search")),
        ("input_delta h", |s| s.input_delta("h", "{}")),
        ("input_end h", |s| s.input_end("h")),
        ("called h", |s| s.hosted_called("h", "search", json!({}))),
        ("hosted_result h", |s| s.hosted_result("h", ["found"])),
        ("finish", |s| s.finish()),
    ]
}

/// One row of the table, as it really is.
fn row(cut_after: usize, end: &str) -> Value {
    let events = events();
    let whole = cut_after == events.len();
    let cut = |stream: Stream| {
        let stream = events.iter().take(cut_after).fold(stream, |stream, (_, event)| event(stream));
        match end {
            "clean" => stream,
            "throw" => stream.throw(ProviderError::new(ErrorClass::Transport, "the line broke")),
            _ => stream.hang(),
        }
    };
    let mut script = script().step(cut);
    if whole && end == "clean" {
        script = script.step(|s| s.text("Done.").finish());
    }
    let mut test = agent(MemoryStore::new, script)
        .tools(tools().tool("work", |run| run.sleep(100).ok("worked")))
        .settings(|settings| settings.retry.max = 0)
        .prompt("Hello");
    test = match end {
        "interrupt" => test.starts().passes(50).interrupt(),
        _ => test.runs(),
    };
    let run = test.play();
    let found = run.result().value();
    let mut calls: BTreeMap<&str, String> = BTreeMap::new();
    for event in found["events"].as_array().unwrap() {
        let (Some(kind), Some(call)) = (event["type"].as_str(), event["call"].as_str()) else { continue };
        let outcome = match kind {
            "tool.success" => "success".to_owned(),
            "tool.unknown" => "unknown".to_owned(),
            "tool.failed" => {
                let cause = event["cause"].as_str().unwrap();
                let detail = event["detail"].as_str().map(|detail| format!("/{detail}")).unwrap_or_default();
                let acted = if event["may_have_acted"] == json!(true) { ", may have acted" } else { "" };
                format!("{cause}{detail}{acted}")
            }
            _ => continue,
        };
        let twice = calls.insert(call, outcome);
        assert_eq!(twice, None, "call {call} has two outcomes");
    }
    let failed = found["events"].as_array().unwrap().iter().find(|event| event["type"] == "step.failed");
    json!({
        "cut_after": cut_after,
        "event": cut_after.checked_sub(1).map_or("nothing", |last| events[last].0),
        "end": end,
        "outcome": run.outcome(),
        "error": failed.map_or(Value::Null, |failed| failed["error"].clone()),
        "calls": calls,
    })
}

#[test]
fn a_cut_stream_settles_as_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/cut-table.json");
    let table: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let expected = table["rows"].as_array().unwrap();
    let ends = ["clean", "throw", "interrupt"];
    let found: Vec<Value> = (0..=events().len()).flat_map(|cut_after| ends.map(|end| row(cut_after, end))).collect();
    assert_eq!(expected.len(), found.len(), "the table has a row for each cut and each end");
    for (expected, found) in expected.iter().zip(&found) {
        assert_eq!(expected, found);
    }
}

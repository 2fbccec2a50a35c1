//! Sessions that have happened, played again from their logs.
//!
//! Every scenario of the catalogue is run, a scenario is made of its log, and that is run: it must come out as it expects.
//! `tests/from_log/differ.txt` lists the scenarios whose logs do not come out again, with the reason; it may only shrink.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail, and shows why")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use settled_ledger::Recorded;
use settled_provider_api::{ErrorClass, ProviderError, Usage};
use settled_store_memory::MemoryStore;
use settled_testkit::scenario::{FromLogError, Scenario, ScenarioResult};
use settled_testkit::{Permission, ToolRun, agent, script, tools};
use settled_tools_api::ToolDefinition;

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            into.push(path);
        }
    }
}

fn run(scenario: &Scenario) -> ScenarioResult {
    let mut memory = None;
    let result = scenario.run(|opening| {
        let store = memory.get_or_insert_with(|| MemoryStore::new(opening.clock()));
        Ok(Arc::new(store.clone()))
    });
    result.unwrap()
}

/// What differs when a session is played again from its log.
fn again(text: &str) -> Result<(), String> {
    let first = run(&Scenario::parse(text).unwrap());
    let file = Scenario::file_from_log(&first.log).map_err(|error| error.to_string())?;
    let second = run(&Scenario::parse(&file).map_err(|error| format!("{error}\n{file}"))?);
    let show = || format!("{file}\n{}\n{}", first.transcript, second.transcript);
    second.verdict().map_err(|failed| format!("{failed}\n{}", show()))
}

#[test]
fn what_the_catalogue_has_logged_comes_out_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let mut paths = Vec::new();
    files(&folder, &mut paths);
    paths.retain(|path| path.parent() != Some(folder.as_path()));
    paths.sort();
    let filter = std::env::var("SCENARIO").unwrap_or_default();
    let differ = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/from_log/differ.txt"));
    let differ = differ.unwrap_or_default();
    let listed: BTreeMap<&str, &str> = differ.lines().filter_map(|line| line.split_once(": ")).collect();
    let mut wrong = Vec::new();
    for path in paths {
        let name = path.strip_prefix(&folder).unwrap().with_extension("").to_string_lossy().into_owned();
        if !name.contains(&filter) {
            continue;
        }
        let came = again(&fs::read_to_string(&path).unwrap());
        match (came, listed.get(name.as_str())) {
            (Ok(()), None) | (Err(_), Some(_)) => {}
            (Ok(()), Some(_)) => wrong.push(format!("{name}: comes out, and is listed as differing")),
            (Err(failed), None) if filter.is_empty() => {
                wrong.push(format!("{name}: {}", failed.lines().take(3).collect::<Vec<_>>().join(" | ")));
            }
            (Err(failed), None) => wrong.push(format!("{name}: {failed}")),
        }
    }
    println!("{} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A log of everything that a small session has: an approval, a failure that is tried again, a crash, an interruption.
fn session() -> Vec<Recorded> {
    let definition = ToolDefinition::new("rm", "Removes.", json!({"type": "object"}));
    let tools = tools()
        .define(definition, Permission::Ask, [ToolRun::default().sleep(200).ok("gone")])
        .tool("look", |run| run.hang());
    let script = script()
        .fail(ProviderError::new(ErrorClass::Overloaded, "busy"))
        .step(|s| s.text("May I?").call("rm", json!({"path": "x"})).usage(Usage::new(10, 2)).finish())
        .step(|s| s.call("look", json!({})).finish())
        .step(|s| s.text("Stopped.").finish());
    let test = agent(MemoryStore::new, script).tools(tools).prompt("Remove x.").runs();
    let test = test.approve("rm").when_running("look").crash().runs().runs();
    test.play().result().log.clone()
}

#[test]
fn what_is_made_of_a_log() {
    let file: Value = serde_json::from_str(&Scenario::file_from_log(&session()).unwrap()).unwrap();
    let provider = json!([
        {"stream": [{"throw": {"class": "overloaded", "message": "busy", "retry_after": 2_000}}]},
        {"stream": [
            {"text": "May I?"}, {"call": {"id": "rm", "name": "rm", "input": {"path": "x"}}},
            {"finish": {"reason": "tool_calls", "usage": {"input": 10, "output": 2}}},
        ]},
        {"stream": [{"call": {"id": "look", "name": "look", "input": {}}}, {"hang": {}}]},
        {"stream": [{"text": "Stopped."}, {"finish": {"reason": "stop"}}]},
    ]);
    assert_eq!(file["provider"], provider);
    let tools = json!({
        "look": {"replay": "at_most_once", "runs": [[{"hang": {}}]]},
        "rm": {"policy": "ask", "replay": "at_most_once", "runs": [[{"sleep": 200}, {"ok": "gone"}]]},
    });
    assert_eq!(file["tools"], tools);
    let script = json!([
        {"prompt": "Remove x."}, {"run": {}},
        {"approve": "rm"}, {"when": {"running": "look"}, "do": {"crash": {}}}, {"run": {}}, {"run": {}},
    ]);
    assert_eq!(file["script"], script);
    assert_eq!(file["settings"], json!({"retry": {"max": 1}}));
    assert_eq!(file["why"], json!("Made from the log of the session `scenario`."));
}

#[test]
fn what_cannot_be_played_again_is_named() {
    assert_eq!(Scenario::file_from_log(&[]).unwrap_err(), FromLogError::Empty);
    let mut log = session();
    log[3].body = "{".to_owned();
    let error = Scenario::from_log(&log).unwrap_err();
    assert!(matches!(&error, FromLogError::Row(row) if row.seq == log[3].seq), "{error}");
    let script = script().step(|s| s.call("missing", json!({})).finish()).step(|s| s.text("Oh.").finish());
    let log = agent(MemoryStore::new, script).run("Go.").result().log.clone();
    let file: Value = serde_json::from_str(&Scenario::file_from_log(&log).unwrap()).unwrap();
    let why = "Made from the log of the session `scenario`. It leaves out: the tools that were never called.";
    assert_eq!(file["why"], json!(why));
    assert_eq!(file["expect"], json!({"answer": "Oh.", "outcome": "completed"}));
}

//! Deterministic simulation: one seed is one interleaving of streams, tools, people, delays and crashes; the invariants hold in each.
//!
//! `SIM_SEED=n` runs one seed and shows it; `SIM_SEEDS=n` runs so many (10,000 without).
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail, and shows why")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};
use settled_store_memory::MemoryStore;
use settled_testkit::scenario::Scenario;
use settled_testkit::sim::{self, Rng};

/// How often a person is asked at most before a session is left parked.
const MOST_ANSWERS: usize = 12;

/// Runs a seed, and lets a person answer whatever waits; gives the last scenario and its result, or what is wrong.
fn play(seed: u64) -> Result<(Value, Value), String> {
    let mut scenario = sim::scenario(seed);
    let mut rng = Rng::new(!seed);
    for _ in 0..MOST_ANSWERS {
        let result = run(&scenario)?;
        let wrong = wrong(&scenario, &result);
        if !wrong.is_empty() {
            return Err(format!("{}\n{scenario:#}\n{}", wrong.join("\n"), result["transcript"].as_str().unwrap_or("")));
        }
        let waiting = result["waiting_for"].as_array().cloned().unwrap_or_default();
        if waiting.is_empty() {
            return Ok((scenario, result));
        }
        let script = scenario["script"].as_array_mut().unwrap();
        // One answer at a time: a refusal, an interrupt or a crash may settle what else waits.
        let call = &waiting[0]["call"];
        script.push(match rng.below(5) {
            0 => json!({"decline": call}),
            1 => json!({"decline": call, "feedback": "not like that"}),
            2 => json!({"crash": {}}),
            3 => json!({"interrupt": {}}),
            _ => json!({"approve": call}),
        });
        script.push(json!({"run": {}}));
    }
    Ok((scenario, json!({})))
}

fn run(scenario: &Value) -> Result<Value, String> {
    let text = scenario.to_string();
    let parsed = Scenario::parse(&text).map_err(|error| format!("{error}\n{text}"))?;
    let mut memory = None;
    let result = parsed.run(|opening| {
        let store = memory.get_or_insert_with(|| MemoryStore::new(opening.clock()));
        Ok(Arc::new(store.clone()))
    });
    let result = result.map_err(|error| format!("{error}\n{text}"))?;
    let mut json: Value = serde_json::from_str(result.to_json()).unwrap();
    json["transcript"] = result.transcript.to_string().into();
    Ok(json)
}

/// What must hold in every session, besides what the checker says of its log and its requests.
fn wrong(scenario: &Value, result: &Value) -> Vec<String> {
    let strings = |value: &Value| value.as_array().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut wrong = strings(&result["violations"]);
    let of_kind = |kind: &str| {
        result["events"].as_array().unwrap().iter().filter(|event| event["type"] == kind).cloned().collect::<Vec<_>>()
    };
    // Input is promoted once or pending, and nothing else.
    let mut prompts: BTreeMap<String, i64> = BTreeMap::new();
    for item in scenario["script"].as_array().unwrap() {
        if let Some(text) = item["prompt"].as_str() {
            *prompts.entry(text.to_owned()).or_default() += 1;
        }
    }
    for promoted in of_kind("input.promoted") {
        *prompts.entry(promoted["text"].as_str().unwrap_or("").to_owned()).or_default() -= 1;
    }
    for pending in result["pending"].as_array().unwrap() {
        *prompts.entry(pending["input"].as_str().unwrap_or("").to_owned()).or_default() -= 1;
    }
    wrong.extend(
        prompts.iter().filter(|(_, left)| **left != 0).map(|(text, left)| format!("prompt `{text}` is off by {left}")),
    );
    // A tool that may run once runs once, over crashes too.
    for called in of_kind("tool.called").iter().filter(|called| called["replay"] == "at_most_once") {
        let call = called["call"].as_str().unwrap();
        let runs = result["runs"][call].as_u64().unwrap_or(0);
        if runs > 1 {
            wrong.push(format!("`{call}` may run once and ran {runs} times"));
        }
    }
    wrong
}

#[test]
fn the_invariants_hold_in_every_interleaving() {
    if let Ok(seed) = std::env::var("SIM_SEED") {
        match play(seed.parse().unwrap()) {
            Ok((scenario, result)) => println!("{scenario:#}\n{}", result["transcript"].as_str().unwrap_or("")),
            Err(wrong) => panic!("{wrong}"),
        }
        return;
    }
    let seeds: u64 = std::env::var("SIM_SEEDS").map_or(10_000, |seeds| seeds.parse().unwrap());
    let next = AtomicU64::new(0);
    let failed: Mutex<BTreeMap<u64, String>> = Mutex::default();
    let counts: Mutex<BTreeMap<String, u64>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        return;
                    }
                    match play(seed) {
                        Ok((_, result)) => {
                            let outcome = result["outcome"].as_str().unwrap_or("parked").to_owned();
                            *counts.lock().unwrap().entry(outcome).or_default() += 1;
                        }
                        Err(wrong) => {
                            failed.lock().unwrap().insert(seed, wrong);
                        }
                    }
                }
            });
        }
    });
    println!("{seeds} seeds: {:?}", counts.into_inner().unwrap());
    let failed = failed.into_inner().unwrap();
    if let Some((seed, wrong)) = failed.first_key_value() {
        panic!(
            "{} of {seeds} seeds fail: {:?} …; the first is SIM_SEED={seed}:\n{wrong}",
            failed.len(),
            failed.keys().take(20).collect::<Vec<_>>()
        );
    }
}

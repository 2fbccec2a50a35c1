//! The format of scenario files: what is refused, with which words, and what is a violation.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;

use serde_json::{Value, json};
use settled_store_memory::MemoryStore;
use settled_testkit::scenario::{Scenario, ScenarioResult};

fn refused(file: Value) -> String {
    Scenario::parse(&file.to_string()).unwrap_err().to_string()
}

#[test]
fn what_is_no_scenario_is_refused_by_place() {
    let with = |key: &str, value: Value| {
        let mut file = json!({"name": "n", "provider": []});
        file[key] = value;
        refused(file)
    };
    let stream = |items: Value| with("provider", json!([{"stream": items}]));
    let found = [
        refused(json!({"provider": []})),
        refused(json!({"name": "n", "provider": [], "scrip": []})),
        with("model", json!({"contxt": 5})),
        with("settings", json!({"retry": {"maximum": 1}})),
        with("settings", json!({"max_steps": "many"})),
        with("tools", json!({"t": {"runs": []}})),
        with("tools", json!({"t": {"runs": [[{"nap": 5}]]}})),
        with("tools", json!({"t": {"replay": "maybe", "runs": [[]]}})),
        with("provider", json!([{"stream": [], "fail": {"class": "auth"}}])),
        stream(json!([{"txt": "a"}])),
        stream(json!([{"start": {}}, {"text": "a", "wait": 5}])),
        stream(json!([{"finish": {"reason": "bored"}}])),
        stream(json!([{"throw": {"class": "auth", "retry": 5}}])),
        stream(json!([{"text_delta": ["t"]}])),
        with("script", json!([{"run": {}}, {"prompt": "a", "run": {}}])),
        with("script", json!([{"when": {"event": "step.begun"}, "do": {"crash": {}}}])),
        with("script", json!([{"when": {"live": "text.delta", "nth": 0}, "do": {"crash": {}}}])),
        with("script", json!([{"when": {"running": "a"}, "do": {"run": {}}}])),
        with("script", json!([{"model": {"id": "model", "context": 9}}])),
        with("store", json!([{"then": "crash_before"}])),
        with("store", json!([{"at": {"event": "step.ended"}, "then": "explode"}])),
        with("expect", json!({"outcom": "completed"})),
        Scenario::parse("{").unwrap_err().to_string(),
    ];
    assert_eq!(
        found.join("\n"),
        "\
the key `name` is missing
unknown key `scrip`
at `model`: unknown key `contxt`
at `settings.retry`: unknown key `maximum`
at `settings.max_steps`: it must be a whole number, not \"many\"
at `tools.t.runs`: it needs at least one list of actions
at `tools.t.runs[0][0].nap`: there is no action `nap`
at `tools.t.replay`: `maybe` is none of the words that may stand here
at `provider[0]`: an entry has either `stream` or `fail`
at `provider[0].stream[0].txt`: there is no stream item `txt`
at `provider[0].stream[1]`: it must have exactly one key, and has: text, wait
at `provider[0].stream[0].finish.reason`: `bored` is none of the words that may stand here
at `provider[0].stream[0].throw`: unknown key `retry`
at `provider[0].stream[0].text_delta`: it must be a list of two texts
at `script[1]`: it must be one script item, and has the keys: prompt, run
at `script[0].when.event`: there is no durable event `step.begun`
at `script[0].when.nth`: it counts from 1
at `script[0].do`: `run` may not be what a trigger does
at `script[0]`: the model `model` is given twice, with different limits
at `store[0]`: `then` needs an `at`
at `store[0].then`: `explode` is none of the words that may stand here
at `expect`: unknown key `outcom`: a result has none of that name
not JSON: EOF while parsing an object at line 1 column 1"
    );
}

fn run(file: Value) -> ScenarioResult {
    let scenario = Scenario::parse(&file.to_string()).unwrap();
    let mut memory = None;
    let result = scenario.run(|opening| {
        let store = memory.get_or_insert_with(|| MemoryStore::new(opening.clock()));
        Ok(Arc::new(store.clone()))
    });
    result.unwrap()
}

#[test]
fn what_must_not_happen_is_a_violation() {
    let answer = json!({"stream": [{"text": "Hi"}, {"finish": {"reason": "stop"}}]});
    let summary = json!({"for": "summary", "stream": [{"text": "Hi"}, {"finish": {"reason": "stop"}}]});
    let prompt = json!({"prompt": "Hello"});
    let forever = json!({"settings": {"tool_deadline": "off"}, "tools": {"t": {"runs": [[{"hang": {}}]]}}});
    let check = |mut file: Value, expected: &[&str]| {
        file["name"] = json!("n");
        let result = run(file);
        assert_eq!(result.violations, expected, "{}", result.transcript);
        assert_eq!(result.value()["violations"], json!(expected));
        assert_eq!(result.verdict().is_ok(), expected.is_empty());
    };
    check(json!({"provider": [answer]}), &[]);
    check(json!({"provider": []}), &["request 1: the script has 0 entries only"]);
    check(json!({"provider": [summary]}), &["request 1: entry 0 is for a Summary, and a Step was asked for"]);
    check(
        json!({"provider": [answer], "script": [{"when": {"running": "a"}, "do": {"crash": {}}}, prompt, {"run": {}}]}),
        &["script[0]: the trigger never fired"],
    );
    check(
        json!({"provider": [answer], "store": [{"at": {"event": "tool.called"}, "then": "fenced"}]}),
        &["store[0]: the fault never happened"],
    );
    check(
        json!({"provider": [answer], "script": [prompt, {"run": {}}, {"approve": "a"}]}),
        &["script[2]: no call `a` has appeared"],
    );
    let mut stuck = forever;
    stuck["provider"] =
        json!([{"stream": [{"call": {"id": "a", "name": "t", "input": {}}}, {"finish": {"reason": "tool_calls"}}]}]);
    stuck["script"] = json!([prompt, {"start": {}}]);
    check(
        stuck,
        &[
            "something still runs a virtual hour after the end of the script",
            "I8 is broken: the tool of call `a` still runs",
        ],
    );
}

#[test]
fn a_mismatch_names_its_place() {
    let mut file = json!({
        "name": "n",
        "provider": [{"stream": [{"text": "Hi"}, {"finish": {"reason": "stop"}}]}],
    });
    file["expect"] = json!({
        "outcome": "failed",
        "steps": [],
        "events": {"in_order": [{"type": "step.ended"}, {"type": "step.started"}]},
        "requests": [{"messages": [{"role": "user", "parts": [{"text": "Bye"}]}]}],
        "pending": [],
    });
    let places: Vec<String> = run(file).mismatches.into_iter().map(|mismatch| mismatch.place).collect();
    assert_eq!(
        places,
        ["events.in_order[1], behind events[5]", "outcome", "requests[0].messages[0].parts[0].text", "steps[0]"]
    );
}

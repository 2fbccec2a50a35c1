//! Random scenarios: one seed is one session, with its streams, tools, people, delays, faults and crashes.
//!
//! A seed becomes a scenario file, so whatever it finds can be read, shared and replayed without the seed.
//! Everything random is in the file; running it is deterministic.
//!
//! # What a seed may do
//!
//! - The provider gives one to four random answers and then plain ones: every kind of block, every kind of end, and calls of tools of each class.
//! - Tools act, wait, show progress, ask, hang, ignore a cancel for a while, and end in every way.
//! - People say something, interrupt, ask for a compaction, and start a run, at any moment of the script and at the very moment when an event lands.
//! - The store is slow, loses its hints, does not answer, loses an answer, or is taken by another owner; the process dies before or after any write, or when a tool has just begun.
//! - Most scripts run until nothing is left; some only wait, so that input which nobody looks at is seen.
//!
//! Not every trigger fires and not every fault happens: the event that it waits for may never come.
//!
//! # How we know that it would see a fault
//!
//! `testkit/planted` holds known faults as patches, and `.ci/planted` plants each of them in a copy of the tree and wants the simulation to fail there.
//! `docs/planted.md` has the list, and how each was caught.
//! A statement that no planted fault needs, and a fault that no statement sees, are both worth a look.

use serde_json::{Value, json};

/// A small generator of pseudo-random numbers (SplitMix64): the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is at least 1.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound.max(1)
    }

    /// Whether a thing happens that happens `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap_or(0)]
    }

    /// A time in virtual milliseconds: often none, sometimes long.
    fn time(&mut self) -> u64 {
        match self.below(4) {
            0 => 0,
            1 => 1 + self.below(3),
            2 => self.below(50),
            _ => self.below(500),
        }
    }
}

/// The tools of every random scenario: one of each kind that matters for running again.
const TOOLS: [&str; 5] = ["once", "pure", "safe", "alone", "asks"];

/// The events at whose landing something may happen.
const MOMENTS: [&str; 17] = [
    "execution.started",
    "execution.settled",
    "input.promoted",
    "step.started",
    "text.started",
    "tool.called",
    "tool.started",
    "tool.success",
    "tool.failed",
    "interaction.requested",
    "interrupt.recorded",
    "step.streamed",
    "step.ended",
    "step.failed",
    "retry.scheduled",
    "compaction.started",
    "compaction.ended",
];

/// How many plain answers stand behind the random ones, so that no request is one too many.
const SPARE_ANSWERS: usize = 60;

/// The scenario of a seed, as the JSON of a scenario file.
pub fn scenario(seed: u64) -> Value {
    let mut rng = Rng::new(seed);
    let mut calls = 0;
    let answers = 1 + rng.below(4);
    let mut provider: Vec<Value> = (0..answers).map(|_| answer(&mut rng, &mut calls)).collect();
    provider.extend((0..SPARE_ANSWERS).map(|_| json!({"stream": [{"text": "Done."}, {"finish": {"reason": "stop"}}]})));
    let stays = rng.chance(15);
    let mut scenario = json!({
        "name": format!("seed {seed}"),
        "settings": {
            "parallel_tools": 1 + rng.below(3),
            "max_steps": 2 + rng.below(5),
            "first_event": 5_000,
            "stream_idle": 3_000,
            "tool_deadline": 4_000,
            "cancel_grace": 500,
            "retry": {"max": 1 + rng.below(3), "base": 100},
        },
        "tools": tools(&mut rng),
        "provider": provider,
        "script": if stays { waiting_script(&mut rng) } else { script(&mut rng) },
    });
    let mut store = Vec::new();
    if rng.chance(30) {
        store.push(json!({"delay": 1 + rng.below(40)}));
    }
    if !stays && rng.chance(10) {
        store.push(json!({"lose_hints": true}));
    }
    if !stays && rng.chance(25) {
        let then =
            ["crash_before", "crash_after", "crash_after", "unavailable", "unknown_landed", "unknown_lost", "fenced"];
        let at = json!({"event": rng.pick(&MOMENTS), "nth": 1 + rng.below(3)});
        store.push(json!({"at": at, "then": rng.pick(&then)}));
    }
    if !store.is_empty() {
        scenario["store"] = Value::Array(store);
    }
    scenario
}

fn tools(rng: &mut Rng) -> Value {
    let mut tool = |replay: &str, exclusive: bool, policy: &str| {
        let runs: Vec<Value> = (0..1 + rng.below(3)).map(|_| run(rng)).collect();
        json!({"replay": replay, "exclusive": exclusive, "policy": policy, "runs": runs})
    };
    json!({
        "once": tool("at_most_once", false, "allow"),
        "pure": tool("pure", false, "allow"),
        "safe": tool("idempotent", false, "allow"),
        "alone": tool("at_most_once", true, "allow"),
        "asks": tool("at_most_once", false, "ask"),
    })
}

fn run(rng: &mut Rng) -> Value {
    let mut actions = Vec::new();
    if rng.chance(60) {
        actions.push(json!({"sleep": rng.time()}));
    }
    actions.push(json!({"effect": {}}));
    if rng.chance(20) {
        actions.push(json!({"progress": "half"}));
    }
    if rng.chance(10) {
        actions.push(json!({"ignore_cancel": rng.time()}));
    }
    if rng.chance(50) {
        actions.push(json!({"sleep": rng.time()}));
    }
    if rng.chance(5) {
        actions.push(json!({"ask": "Which one?"}));
    }
    actions.push(match rng.below(20) {
        0 => json!({"fail": "no"}),
        1 => json!({"unknown": "maybe"}),
        2 => json!({"panic": "oh"}),
        3 => json!({"infra": "disk"}),
        4 => json!({"decline": ""}),
        5 => json!({"decline": "not that one"}),
        6 => json!({"hang": {}}),
        _ => json!({"ok": "yes"}),
    });
    Value::Array(actions)
}

/// One answer of the provider: blocks, calls, pauses, and one of many ends.
fn answer(rng: &mut Rng, calls: &mut u32) -> Value {
    if rng.chance(8) {
        return json!({"fail": failure(rng)});
    }
    let mut items = Vec::new();
    if rng.chance(50) {
        items.push(json!({"start": {}}));
    }
    let quiet = rng.chance(15);
    for _ in 0..if quiet { 0 } else { rng.below(5) } {
        if rng.chance(40) {
            items.push(json!({"wait": rng.time()}));
        }
        match rng.below(10) {
            0 | 1 => items.push(json!({"text": "some words"})),
            2 => items.push(json!({"reasoning": {"text": "a thought", "state": {"s": 1}}})),
            3 => {
                items.push(json!({"hosted": {"id": format!("h{calls}"), "name": "search", "input": {"q": 1}}}));
                if rng.chance(80) {
                    items.push(json!({"hosted_result": {"id": format!("h{calls}"), "content": "found"}}));
                }
                *calls += 1;
            }
            4 => {
                // Arguments that come in pieces, perhaps never to be closed.
                let id = format!("c{calls}");
                *calls += 1;
                items.push(json!({"input_start": {"id": id, "name": rng.pick(&TOOLS)}}));
                items.push(json!({"input_delta": [id, "{\"x\":"]}));
                items.push(json!({"wait": rng.time()}));
                if rng.chance(70) {
                    items.push(json!({"input_delta": [id, "1}"]}));
                    items.push(json!({"input_end": id}));
                    items.push(json!({"called": {"id": id, "name": "once", "input": {"x": 1}}}));
                    // The name may differ from the first one: then it is a breach of the protocol.
                }
            }
            5 if rng.chance(30) => {
                items.push(json!({"malformed": {"id": format!("c{calls}"), "name": "once", "raw": "{\"x\":"}}));
                *calls += 1;
            }
            6 if rng.chance(30) => {
                items.push(json!({"call": {"id": format!("c{calls}"), "name": "nobody", "input": {}}}));
                *calls += 1;
            }
            _ => {
                // Providers repeat their ids, and leave them blank.
                let id = if rng.chance(10) { "c".to_owned() } else { format!("c{calls}") };
                *calls += 1;
                items.push(json!({"call": {"id": id, "name": rng.pick(&TOOLS), "input": {"x": 1}}}));
            }
        }
    }
    if rng.chance(30) {
        items.push(json!({"wait": rng.time()}));
    }
    let finish = |reason: &str| json!({"finish": {"reason": reason, "usage": {"input": 10, "output": 2}}});
    match rng.below(24) {
        0 => items.push(json!({"throw": failure(rng)})),
        1 => items.push(json!({"error": failure(rng)})),
        2 => items.push(json!({"error": {"class": "context_overflow", "message": "too long"}})),
        3 => items.push(json!({"hang": {}})),
        4 => items.push(json!({"panic": "adapter"})),
        // The end of the list without a finish.
        5 => {}
        6 => items.push(finish("length")),
        7 => items.push(finish("content_filter")),
        8 => items.push(finish("pause")),
        9 => items.push(finish("unknown")),
        10 => items.extend([finish("stop"), json!({"text": "a late word"})]),
        11..=15 => items.push(finish("tool_calls")),
        _ => items.push(finish("stop")),
    }
    json!({"stream": items})
}

fn failure(rng: &mut Rng) -> Value {
    let classes =
        ["rate_limit", "overloaded", "transport", "auth", "invalid_request", "timeout", "unknown", "context_overflow"];
    let mut failure = json!({"class": rng.pick(&classes), "message": "broken"});
    if rng.chance(20) {
        failure["retry_after"] = json!(rng.below(2_000));
    }
    failure
}

/// What the driver does: prompts, interrupts, compactions and crashes at any moment, and runs until nothing is left.
fn script(rng: &mut Rng) -> Value {
    let mut items = vec![json!({"prompt": "Hello"}), json!({"start": {}})];
    let mut prompts = 0;
    for _ in 0..rng.below(6) {
        items.push(json!({"advance": rng.time()}));
        match rng.below(12) {
            0..=2 => items.push(prompt(rng, &mut prompts)),
            3 | 4 => items.push(json!({"interrupt": {}})),
            5 => items.push(json!({"compact": {}})),
            6 => {
                items.push(json!({"crash": {}}));
                items.push(json!({"start": {}}));
            }
            7 => items.push(json!({"start": {}})),
            8 | 9 => {
                let act = match rng.below(5) {
                    0 => json!({"crash": {}}),
                    1 => json!({"interrupt": {}}),
                    2 => json!({"compact": {}}),
                    _ => late_prompt(rng),
                };
                items.push(json!({"when": moment(rng), "do": act}));
            }
            _ => {}
        }
    }
    items.extend([json!({"advance": 20_000}), json!({"run": {}}), json!({"run": {}})]);
    Value::Array(items)
}

/// A driver that starts runs and only waits from then on: whatever comes must be seen without a further run.
fn waiting_script(rng: &mut Rng) -> Value {
    let mut items = vec![json!({"prompt": "Hello"}), json!({"start": {}})];
    let mut prompts = 0;
    for _ in 0..1 + rng.below(4) {
        match rng.below(8) {
            0..=2 => items.push(prompt(rng, &mut prompts)),
            3 => items.push(json!({"interrupt": {}})),
            4 => items.push(json!({"start": {}})),
            _ => {
                let act = if rng.chance(80) { late_prompt(rng) } else { json!({"interrupt": {}}) };
                items.push(json!({"when": moment(rng), "do": act}));
            }
        }
        items.push(json!({"advance": rng.time()}));
    }
    items.push(json!({"advance": 60_000}));
    Value::Array(items)
}

/// A prompt with a text of its own; the numbers are in the order in which they are said.
fn prompt(rng: &mut Rng, prompts: &mut u32) -> Value {
    *prompts += 1;
    json!({"prompt": format!("prompt {prompts}"), "delivery": delivery(rng)})
}

/// A prompt that comes when something happens: nobody knows beforehand which is said first.
fn late_prompt(rng: &mut Rng) -> Value {
    json!({"prompt": format!("late {}", rng.next_u64()), "delivery": delivery(rng)})
}

fn delivery(rng: &mut Rng) -> &'static str {
    if rng.chance(60) { "steer" } else { "queue" }
}

/// When a trigger fires: an event lands, or a call's tool has begun.
fn moment(rng: &mut Rng) -> Value {
    if rng.chance(20) {
        return json!({"running": format!("c{}", rng.below(4))});
    }
    // The moment at which a session falls asleep is where input gets lost.
    let event = if rng.chance(15) { "execution.settled" } else { *rng.pick(&MOMENTS) };
    json!({"event": event, "nth": 1 + rng.below(3)})
}

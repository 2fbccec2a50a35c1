//! A store that fails where it is told to: by itself, and as part of a test of an agent.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use serde_json::json;
use settled_ledger::Clock;
use settled_ledger::store::Inbox;
use settled_provider_api::{ModelInfo, ModelRef};
use settled_runner::{Agent, Runner, Serving, SystemClock};
use settled_store_memory::MemoryStore;
use settled_testkit::faults::{At, Fault, FaultyStore};
use settled_testkit::{AgentTest, Script, ScriptedTools, agent, script, tools};

fn one_call() -> Script {
    script().step(|s| s.call("charge", json!({})).finish()).step(|s| s.text("Done.").finish())
}

fn charge() -> ScriptedTools {
    tools().tool("charge", |run| run.effect().ok("charged"))
}

/// What came of a fault: the outcome, the error, how often the tool has acted, how long it took.
fn came(test: AgentTest) -> (String, Option<String>, u64, u64) {
    let charge = charge();
    let run = test.tools(charge.clone()).prompt("Charge.").runs().play();
    (run.outcome().to_owned(), run.error().map(str::to_owned), charge.effects("charge"), run.elapsed())
}

#[test]
fn each_fault_does_what_it_says_in_front_of_any_store() {
    let rows = [
        ("tool.success", Fault::Unavailable, "failed", Some("store")),
        ("tool.success", Fault::UnknownLanded, "completed", None),
        ("tool.success", Fault::UnknownLost, "completed", None),
        ("execution.settled", Fault::Busy, "completed", None),
        ("tool.success", Fault::Fenced, "failed", Some("store")),
        ("tool.success", Fault::Slow(Duration::from_secs(3)), "completed", None),
    ];
    for (event, fault, outcome, error) in rows {
        let at = move || At::event(event);
        let store = move |clock: Arc<dyn Clock>| FaultyStore::new(MemoryStore::new(clock)).fault(at(), fault);
        // A session that is lost in the middle leaves the rest of the script unused.
        let script = if error.is_some() { script().step(|s| s.call("charge", json!({})).finish()) } else { one_call() };
        let outside = came(agent(store, script.clone()));
        let inside = came(agent(MemoryStore::new, script).fault(at(), fault));
        let wanted = (outcome.to_owned(), error.map(str::to_owned), 1);
        assert_eq!((outside.0.clone(), outside.1.clone(), outside.2), wanted, "{fault:?}");
        assert_eq!(inside, outside, "{fault:?}");
    }
}

#[test]
fn a_place_is_an_event_of_a_call_and_its_number() {
    let script = script()
        .step(|s| s.call("charge", json!({})).finish())
        .step(|s| s.call("charge", json!({})).finish())
        .step(|s| s.text("Done.").finish());
    let rows = [
        (At::event("tool.success"), 3_000),
        (At::event("tool.success").nth(2), 3_000),
        (At::event("tool.success").nth(3), 0),
        (At::event("tool.success").of("charge#2"), 3_000),
        (At::event("tool.success").of("charge").nth(2), 0),
    ];
    for (at, elapsed) in rows {
        let (place, slow) = (at.clone(), Fault::Slow(Duration::from_secs(3)));
        let store = move |clock: Arc<dyn Clock>| FaultyStore::new(MemoryStore::new(clock)).fault(place, slow);
        assert_eq!(came(agent(store, script.clone())).3, elapsed, "{at:?}");
    }
}

#[test]
fn a_fault_that_never_happens_fails_the_test() {
    let test = agent(MemoryStore::new, one_call()).tools(charge()).prompt("Charge.").runs();
    let failed = test.fault(At::event("tool.unknown"), Fault::Busy).try_play().unwrap_err();
    assert_eq!(failed.lines[0], "fault 1: the fault never happened");
}

#[test]
fn every_append_is_slow() {
    let quick = came(agent(MemoryStore::new, one_call())).3;
    let slow = |clock| FaultyStore::new(MemoryStore::new(clock)).slow(Duration::from_secs(1));
    let appends = came(agent(slow, one_call())).3;
    assert!(quick == 0 && appends >= 5_000, "{appends}");
}

#[test]
fn a_process_that_dies_at_an_append_goes_on_from_what_was_durable() {
    for (fault, text) in [(Fault::CrashBefore, "unknown"), (Fault::CrashAfter, "success")] {
        let memory = MemoryStore::new(Arc::new(SystemClock::default()));
        let (tools, provider) = (charge(), one_call().provider());
        let runner = |store: FaultyStore| {
            let builder = Runner::builder().model(ModelRef::new("script", "model"), provider.clone(), ModelInfo::new());
            let builder = builder.store(store).tools(tools.clone()).agent(Agent::new("test")).serving(Serving::Asked);
            builder.worker(settled_ledger::WorkerId::from_u128(1)).build().unwrap()
        };
        let first = FaultyStore::new(memory.clone()).fault(At::event("tool.success"), fault);
        let alone = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let dying = first.clone();
        let runtime = alone();
        let dead = runner(dying.clone());
        runtime.block_on(async {
            let session = dead.session("s").await.unwrap();
            session.input("Charge.").without_waking().send().await.unwrap();
            tokio::select! {
                ended = session.run() => assert!(ended.is_err(), "it ended: {ended:?}"),
                () = dying.crashed() => {}
            }
        });
        drop(runtime);
        assert!(first.is_crashed() && first.unused().is_empty());

        let second = FaultyStore::new(memory);
        let alive = runner(second);
        let log = alone().block_on(async {
            let session = alive.session("s").await.unwrap();
            session.run().await.unwrap();
            let mut follow = session.follow(settled_ledger::Seq::START);
            let mut kinds = Vec::new();
            while let Some(Ok(settled_runner::SessionEvent::Recorded(recorded))) = follow.next().await {
                kinds.push(recorded.kind);
            }
            kinds
        });
        assert!(log.contains(&format!("tool.{text}")), "{fault:?}: {log:?}");
        assert_eq!(tools.effects("charge"), 1, "{fault:?}");
    }
}

/// Whether anybody is told when input comes.
fn tells(store: &FaultyStore) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let provider = script().provider();
    runtime.block_on(async {
        let mut hints = store.hints();
        let builder = Runner::builder().model(ModelRef::new("script", "model"), provider, ModelInfo::new());
        let runner = builder.store(store.clone()).agent(Agent::new("test")).serving(Serving::Asked).build().unwrap();
        let session = runner.session("s").await.unwrap();
        session.input("Hello").without_waking().send().await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        hints.as_mut().poll_next(&mut context).is_ready()
    })
}

#[test]
fn hints_are_lost_where_that_is_wanted() {
    let store = || FaultyStore::new(MemoryStore::new(Arc::new(SystemClock::default())));
    assert_eq!((tells(&store()), tells(&store().loses_hints())), (true, false));
}

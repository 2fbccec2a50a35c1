//! Agents whose process dies at every write, and whose provider's stream is cut at every event.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use settled_ledger::store::{Store, StoreError};
use settled_provider_api::{ErrorClass, ProviderError};
use settled_store_memory::MemoryStore;
use settled_store_sqlite::SqliteStore;
use settled_testkit::ordeal::Report;
use settled_testkit::scenario::Opening;
use settled_testkit::{
    AgentTest, Effects, Permission, Script, ScriptedTools, ToolRun, agent, agent_on, crash_at_every_write,
    cut_at_every_event, reconciled, script, tools,
};
use settled_tools_api::{
    Decision, Policy, PolicyCall, Reconciled, Replay, ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor,
    ToolReturn, Toolbox,
};

/// A tool of a class.
fn charge(replay: Replay, write: fn(ToolRun) -> ToolRun) -> ScriptedTools {
    let definition = ToolDefinition::new("charge", "Charges.", json!({"type": "object"})).replay(replay);
    tools().define(definition, Permission::Allow, [write(ToolRun::default())])
}

fn idempotent() -> Replay {
    Replay::Idempotent { valid_for: Duration::from_secs(3_600) }
}

/// One call, and an answer that has seen its result.
fn one_call() -> Script {
    script().step(|s| s.text("I charge.").call("charge", json!({})).finish()).step(|s| s.text("Done.").finish())
}

/// A session in which most things happen: two calls at once, a retry, an overflow with its summary, a steer while a tool runs.
fn busy() -> AgentTest {
    let definition = ToolDefinition::new("save", "Saves.", json!({"type": "object"})).replay(idempotent());
    let tools = tools().tool("charge", |run| run.effect().sleep(1_000).ok("charged")).define(
        definition,
        Permission::Allow,
        [ToolRun::default().sleep(10).effect_once().ok("saved")],
    );
    let script = script()
        .step(|s| {
            s.reasoning("I think.", None).text("Both.").call("charge", json!({})).call("save", json!({})).finish()
        })
        .fail(ProviderError::new(ErrorClass::Overloaded, ""))
        .step(|s| s.text("Half done.").finish())
        .overflow()
        .summary("They did both.")
        .step(|s| s.text("All done.").finish());
    agent(MemoryStore::new, script)
        .tools(tools)
        .settings(|settings| settings.compaction.keep = 1)
        .prompt("Do both.")
        .when_running("charge")
        .prompt("Quickly.")
        .runs()
        .prompt("And now?")
        .runs()
}

/// A session that waits for a person twice.
fn asking() -> AgentTest {
    let definition = ToolDefinition::new("charge", "Charges.", json!({"type": "object"}));
    let tools = tools()
        .define(definition, Permission::Ask, [ToolRun::default().effect().ok("charged")])
        .tool("pick", |run| run.ask("Which one?").effect().echo());
    let script = script()
        .step(|s| s.call("charge", json!({})).finish())
        .step(|s| s.call("pick", json!({})).finish())
        .step(|s| s.text("The red one.").finish());
    let test = agent(MemoryStore::new, script).tools(tools).prompt("Charge, then choose.").runs();
    test.approve("charge").runs().answer("pick", "red").runs()
}

/// A session that is interrupted while a tool acts, and goes on.
fn interrupted() -> AgentTest {
    let tools = tools().tool("charge", |run| run.effect().hang());
    let script = one_call();
    agent(MemoryStore::new, script)
        .tools(tools)
        .prompt("Charge.")
        .when_running("charge")
        .interrupt()
        .runs()
        .prompt("Go on.")
        .runs()
}

fn of_class(replay: Replay, write: fn(ToolRun) -> ToolRun) -> impl Fn() -> AgentTest {
    move || agent(MemoryStore::new, one_call()).tools(charge(replay.clone(), write)).prompt("Charge.").runs()
}

/// The findings of a report, each once.
fn found(report: &Report) -> Vec<String> {
    let mut found: Vec<String> = report.findings().map(|(_, finding)| finding.to_string()).collect();
    found.dedup();
    found
}

#[test]
fn a_double_charge_is_found_and_named() {
    let report = crash_at_every_write(of_class(idempotent(), |run| run.effect().ok("charged")));
    let because = "on resume `charge` ran again, because its replay class says idempotent, but it ignored the effect key: it acted 2 times";
    assert_eq!(report.lines(), [format!("crash after `tool.started` of `charge`, before its result: {because}")]);
    let shown = report.to_string();
    assert!(shown.contains("1 of them with findings") && shown.contains("    step 1"), "{shown}");
}

#[test]
fn which_tools_pass() {
    let act: fn(ToolRun) -> ToolRun = |run| run.effect().ok("charged");
    let once: fn(ToolRun) -> ToolRun = |run| run.effect_once().ok("charged");
    let again = "on resume `charge` ran again, ";
    let ignored = "and it ignored the effect key: it acted 2 times";
    let rows = [
        (Replay::AtMostOnce, act, vec![]),
        (idempotent(), once, vec![]),
        (Replay::Pure, act, vec![format!("{again}because its replay class says pure, but it acts: it acted 2 times")]),
        (Replay::Pure, |run| run.ok("read"), vec![]),
        (
            reconciled(Reconciled::DidNot),
            act,
            vec![format!("{again}because its reconciler did not find what it had done, {ignored}")],
        ),
        (reconciled(Reconciled::CannotTell), act, vec![]),
        (reconciled(Reconciled::StillRunning), act, vec![]),
    ];
    for (replay, write, wanted) in rows {
        let class = replay.class();
        let report = crash_at_every_write(of_class(replay, write));
        assert_eq!((found(&report), report.unharmed.clone()), (wanted, None), "{class:?}\n{report}");
    }
}

#[test]
fn every_write_is_crashed_on_both_sides() {
    let report = crash_at_every_write(of_class(Replay::AtMostOnce, |run| run.effect().ok("charged")));
    let points: Vec<String> = report.trials.iter().map(|trial| trial.point.to_string()).collect();
    let wanted = [
        "crash before the session is created",
        "crash right after the session is created",
        "crash before the input is admitted",
        "crash right after the input is admitted",
        "crash before the session is claimed",
        "crash right after the session is claimed",
        "crash before `execution.started`, `input.promoted`, `step.started`",
        "crash right after `execution.started`, `input.promoted`, `step.started`",
        "crash after `step.started`, before `text.started`, `text.ended`",
        "crash right after `text.started`, `text.ended`",
        "crash after `text.ended`, before `tool.input.started` of `charge`",
        "crash right after `tool.input.started` of `charge`",
        "crash after `tool.input.started` of `charge`, before `tool.input.ended` of `charge`",
        "crash right after `tool.input.ended` of `charge`",
        "crash after `tool.input.ended` of `charge`, before `tool.called` of `charge`, `tool.started` of `charge`",
        "crash right after `tool.called` of `charge`, `tool.started` of `charge`",
        "crash after `tool.started` of `charge`, before its result",
        "crash right after `tool.success` of `charge`",
        "crash after `tool.success` of `charge`, before `step.streamed`, `step.ended`, `step.started`",
        "crash right after `step.streamed`, `step.ended`, `step.started`",
        "crash after `step.started`, before `text.started`, `text.ended`",
        "crash right after `text.started`, `text.ended`",
        "crash after `text.ended`, before `step.streamed`, `step.ended`, `execution.settled`",
        "crash right after `step.streamed`, `step.ended`, `execution.settled`",
        "crash after `execution.settled`, before the session is released",
        "crash right after the session is released",
    ];
    assert_eq!(points, wanted);
    assert!(report.trials.iter().all(|trial| trial.outcome == "completed"), "{report}");
    // An answer of which nothing was kept is given once more: the call is made, wherever the process has died.
    let made = report.trials.iter().filter(|trial| trial.transcript.contains(": call of charge")).count();
    assert_eq!(made, report.trials.len());
}

#[test]
fn sessions_in_which_much_happens_survive_every_crash_and_every_cut() {
    for (name, test) in [("busy", busy as fn() -> AgentTest), ("asking", asking), ("interrupted", interrupted)] {
        let crashed = crash_at_every_write(test);
        assert!(crashed.is_ok(), "{name}: {crashed}");
        let cut = cut_at_every_event(test);
        assert!(cut.is_ok(), "{name}: {cut}");
        assert!(crashed.trials.len() > 30 && cut.trials.len() > 25, "{name}: {crashed}; {cut}");
    }
}

#[test]
fn every_stream_is_cut_at_every_event_in_two_ways() {
    let report = cut_at_every_event(of_class(Replay::AtMostOnce, |run| run.effect().ok("charged")));
    let points: Vec<String> = report.trials.iter().map(|trial| trial.point.to_string()).collect();
    assert_eq!(points[0], "answer 1 ends before anything has come");
    assert_eq!(points[3], "answer 1 breaks after its item 1, `text_start`");
    assert_eq!(points.last().unwrap(), "answer 2 breaks after its item 4, `finish`");
    // Eight events in the first answer and four in the second: two ways to end before each, and one after the last.
    assert_eq!(points.len(), 2 * 8 + 1 + 2 * 4 + 1);
    report.assert_ok();
}

/// A policy that acts, and then says no.
struct Rash(Effects);

#[async_trait]
impl Policy for Rash {
    async fn decide(&self, call: &PolicyCall) -> Decision {
        self.0.act(&call.effect_key);
        Decision::Deny { rule: "no".to_owned() }
    }
}

#[test]
fn what_has_acted_and_is_not_recorded_is_found() {
    let report = cut_at_every_event(|| {
        let world = Effects::new();
        let tools = tools().tool("charge", |run| run.ok("charged"));
        agent(MemoryStore::new, one_call()).tools(tools).policy(Rash(world.clone())).effects(world).prompt("Go.").runs()
    });
    assert!(
        report.lines()[0].ends_with("`charge` has acted, and the record says `denied` without a doubt"),
        "{report}"
    );
}

#[test]
fn a_session_that_does_not_go_on_is_found() {
    let refused = ProviderError::new(ErrorClass::Auth, "no");
    let report = crash_at_every_write(|| {
        let script = script().step(|s| s.text("Hi.").finish()).always(|s| s.throw(refused.clone()));
        agent(MemoryStore::new, script).prompt("Hello").runs()
    });
    let line = "crash before the session is created: the session does not go on: its last run is `failed`";
    assert_eq!(report.lines()[0], line);
}

/// A tool of somebody's own, which pays with or without an idempotency key.
struct Payments(Effects, fn(&Effects, &ToolContext));

#[async_trait]
impl ToolExecutor for Payments {
    fn definitions(&self) -> Vec<ToolDefinition> {
        vec![ToolDefinition::new("charge", "Charges.", json!({"type": "object"})).replay(idempotent())]
    }

    async fn execute(&self, _: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        (self.1)(&self.0, &context);
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(ToolReturn::text("charged"))
    }
}

#[test]
fn tools_of_ones_own_are_tried_too() {
    let test = |pay: fn(&Effects, &ToolContext)| {
        move || {
            let world = Effects::new();
            let own = Toolbox::new().with(Payments(world.clone(), pay));
            agent(MemoryStore::new, one_call()).own_tools(own).effects(world).prompt("Charge.").runs()
        }
    };
    crash_at_every_write(test(|world, context| {
        world.act_once(context.effect_key());
    }))
    .assert_ok();
    let careless = crash_at_every_write(test(|world, context| world.act(context.effect_key())));
    assert_eq!(careless.lines().len(), 1, "{careless}");
}

#[test]
fn a_test_that_fails_unharmed_is_not_tried() {
    let report = crash_at_every_write(|| agent(MemoryStore::new, script()).prompt("Hello").runs());
    assert_eq!(report.unharmed.as_ref().unwrap().lines[0], "request 1: the script has 0 entries only");
    assert_eq!((report.trials.len(), report.is_ok()), (0, false));
    let cut = cut_at_every_event(|| agent(MemoryStore::new, one_call()).prompt("Hello"));
    let left = &cut.unharmed.as_ref().unwrap().lines[0];
    assert!(left.starts_with("only 0 of 2 entries of the script were used; entry 1 is left"), "{left}");
}

#[test]
fn a_store_that_is_opened_again_after_each_crash() {
    let report = crash_at_every_write(|| {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let tools = charge(Replay::AtMostOnce, |run| run.effect().ok("charged"));
        let open = move |opening: &Opening| -> Result<Arc<dyn Store>, StoreError> {
            let store = SqliteStore::builder(folder.path().join("sessions.db"));
            Ok(Arc::new(store.clock(opening.clock()).hold(opening.hold()).open()?))
        };
        agent_on(open, one_call()).tools(tools).prompt("Charge.").runs()
    });
    report.assert_ok();
    let memory = crash_at_every_write(of_class(Replay::AtMostOnce, |run| run.effect().ok("charged")));
    assert_eq!(report, memory);
}

#[test]
fn what_else_the_runner_is_made_of_is_made_again_after_each_crash() {
    let made = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let report = crash_at_every_write(move || {
        let counted = Arc::clone(&counted);
        agent(MemoryStore::new, script().step(|s| s.finish())).prompt("Hello").runs().runner(move |builder| {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            builder
        })
    });
    report.assert_ok();
    assert_eq!(made.load(std::sync::atomic::Ordering::Relaxed), 1 + 2 * report.trials.len());
}

//! The order of effects is load-bearing: one test for each line of `attempt_step` that must not move.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{Held, Item, Script, Watched, kinds, runner};
use serde_json::json;
use settled_ledger::{Outcome, Seq, store::EventLog};
use settled_provider_api::{ErrorClass, FinishReason, ProviderError, ProviderEvent};
use settled_runner::Settings;
use tokio::sync::Notify;
use tokio::time::Instant;

pub fn call(index: u32, tool: &str) -> ProviderEvent {
    ProviderEvent::tool_call(index, format!("call_{index}"), tool, json!({}))
}

pub fn text(text: &str) -> [ProviderEvent; 3] {
    [ProviderEvent::text_start(0), ProviderEvent::text_delta(0, text), ProviderEvent::text_end(0)]
}

pub fn stop() -> ProviderEvent {
    ProviderEvent::finish(FinishReason::Stop, None)
}

/// Order 1: `tool.started` is durable before the tool's first poll.
#[tokio::test(start_paused = true)]
async fn a_tool_is_not_polled_before_its_start_is_durable() {
    let script = Script::default().then([call(0, "echo"), stop()]).then([stop()]);
    let (tools, store) = (Watched::default(), Held::new());
    *store.hold.lock().unwrap() = Some("tool.started");
    let runner = runner(&script, &tools, &store, Settings::default());
    let session = runner.session("s").await.unwrap();
    session.input("Go").without_waking().send().await.unwrap();
    let running = tokio::spawn({
        let session = session.clone();
        async move { session.run().await }
    });
    store.held.notified().await;
    // Everything that could run has run: the stream is over, and only the append is waited for.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(tools.polls.load(Ordering::SeqCst), 0, "the tool ran although its start was not durable");
    *store.hold.lock().unwrap() = None;
    store.go.notify_one();
    assert_eq!(running.await.unwrap().unwrap().outcome, Outcome::Completed);
    assert_eq!(tools.polls.load(Ordering::SeqCst), 1);
    kinds(&store, session.id()).await;
}

/// Order 2: on an interrupt the tools are cancelled first and awaited then.
#[tokio::test(start_paused = true)]
async fn an_interrupt_cancels_the_tools_before_it_awaits_them() {
    let script = Script::default().then([call(0, "wait"), ProviderEvent::finish(FinishReason::ToolCalls, None)]);
    let (tools, store) = (Watched::default(), Held::new());
    let runner = runner(&script, &tools, &store, Settings::default());
    let session = runner.session("s").await.unwrap();
    session.input("Go").without_waking().send().await.unwrap();
    let running = tokio::spawn({
        let session = session.clone();
        async move { session.run().await }
    });
    tools.begun.notified().await;
    let began = Instant::now();
    session.interrupt().await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().outcome, Outcome::Interrupted);
    assert_eq!(began.elapsed(), Duration::ZERO, "the tool was waited for before it was cancelled");
    let kinds = kinds(&store, session.id()).await;
    assert_eq!(kinds[kinds.len() - 4..], ["interrupt.recorded", "tool.failed", "step.failed", "execution.settled"]);
}

/// Order 3: the held overflow is given up before the step is classified.
#[tokio::test(start_paused = true)]
async fn a_held_overflow_counts_for_the_settlement() {
    let overflow = ProviderError::new(ErrorClass::ContextOverflow, "too long");
    // With a finish in hand the step would be clean without the overflow.
    let script = Script::default().then([stop(), ProviderEvent::Error(overflow)]);
    let (tools, store) = (Watched::default(), Held::new());
    let mut settings = Settings::default();
    settings.compaction.on_overflow = false;
    let runner = runner(&script, &tools, &store, settings);
    let session = runner.session("s").await.unwrap();
    session.input("Go").without_waking().send().await.unwrap();
    let settled = session.run().await.unwrap();
    assert_eq!(settled.outcome, Outcome::Failed);
    assert_eq!(settled.error.unwrap().class.name(), "context_overflow");
    let log = store.read(session.id(), Seq::START, 100).await.unwrap();
    let terminal = log.iter().rev().find(|row| row.kind.starts_with("step.")).unwrap();
    assert_eq!(terminal.kind, "step.failed");
    assert!(terminal.body.contains(r#""settlement":{"class":"provider_failed"}"#), "{}", terminal.body);
    kinds(&store, session.id()).await;
}

/// Order 4: every call without an outcome fails before its step does.
#[tokio::test(start_paused = true)]
async fn open_calls_fail_before_the_step_fails() {
    let cut = ProviderError::new(ErrorClass::InvalidRequest, "no");
    let script = Script::default().then([
        Item::from(ProviderEvent::tool_input_start(0, "a", "echo")),
        Item::from(ProviderEvent::tool_input_delta(0, "{\"x\":")),
        Item::from(ProviderEvent::ToolCall(
            settled_provider_api::ToolCallEvent::new(1, "h", "search", json!({})).hosted(),
        )),
        Item::Throw(cut),
    ]);
    let (tools, store) = (Watched::default(), Held::new());
    let runner = runner(&script, &tools, &store, Settings::default());
    let session = runner.session("s").await.unwrap();
    session.input("Go").without_waking().send().await.unwrap();
    assert_eq!(session.run().await.unwrap().outcome, Outcome::Failed);
    let kinds = kinds(&store, session.id()).await;
    assert_eq!(
        kinds[kinds.len() - 5..],
        ["step.streamed", "tool.failed", "tool.failed", "step.failed", "execution.settled"]
    );
}

/// Order 5: the terminal is the last event of its step, and a clean one only on a clean settlement.
#[tokio::test(start_paused = true)]
async fn the_terminal_comes_last() {
    let events = text("Done").into_iter().chain([call(1, "stubborn"), call(2, "echo"), stop()]);
    let script = Script::default().then(events);
    let (tools, store) = (Watched::default(), Held::new());
    let runner = runner(&script, &tools, &store, Settings::default());
    let session = runner.session("s").await.unwrap();
    session.input("Go").without_waking().send().await.unwrap();
    let running = tokio::spawn({
        let session = session.clone();
        async move { session.run().await }
    });
    tools.begun.notified().await;
    let began = Instant::now();
    session.interrupt().await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().outcome, Outcome::Interrupted);
    assert_eq!(began.elapsed(), Settings::default().cancel_grace, "a tool that does not stop gets its grace");
    let kinds = kinds(&store, session.id()).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "step.failed").count(), 1);
    assert!(!kinds.iter().any(|kind| kind == "step.ended"), "an interrupted step is not clean");
    let terminal = kinds.iter().position(|kind| kind == "step.failed").unwrap();
    assert_eq!(kinds[terminal + 1..], ["execution.settled"]);
    assert_eq!(runner.dropped_unsettled(), 0);
}

/// Calls that arrive together cost two waited commits a step: one with their starts, one with the terminal and what comes next.
#[tokio::test(start_paused = true)]
async fn a_step_costs_two_commits() {
    let first = text("Let me see").into_iter().chain([call(1, "echo"), call(2, "echo"), call(3, "echo"), stop()]);
    let script = Script::default().then(first).then(text("Done").into_iter().chain([stop()]));
    let (tools, store) = (Watched::default(), Held::new());
    let runner = runner(&script, &tools, &store, Settings::default());
    let session = runner.session("s").await.unwrap();
    session.input("Go").without_waking().send().await.unwrap();
    assert_eq!(session.run().await.unwrap().outcome, Outcome::Completed);
    let batches = store.batches.lock().unwrap().clone();
    let called = ["tool.input.started", "tool.input.ended", "tool.called", "tool.started"];
    let expected: Vec<Vec<&str>> = vec![
        vec!["execution.started", "input.promoted", "step.started"],
        ["text.started", "text.ended"]
            .into_iter()
            .chain(called)
            .chain(called)
            .chain(called)
            .chain(["step.streamed"])
            .collect(),
        vec!["tool.success", "tool.success", "tool.success", "step.ended", "step.started"],
        vec!["text.started", "text.ended", "step.streamed", "step.ended", "execution.settled"],
    ];
    assert_eq!(batches, expected);
    kinds(&store, session.id()).await;
}

/// Calls that start at moments of their own cost one commit for each moment, and the step one more.
#[tokio::test(start_paused = true)]
async fn a_step_costs_one_commit_and_one_for_each_moment_at_which_calls_start() {
    let moments = [Arc::new(Notify::new()), Arc::new(Notify::new())];
    let mut first: Vec<Item> = text("Let me see").into_iter().map(Item::from).collect();
    first.push(call(1, "echo").into());
    first.push(Item::Until(Arc::clone(&moments[0])));
    first.extend([Item::from(call(2, "echo")), Item::from(call(3, "echo"))]);
    first.push(Item::Until(Arc::clone(&moments[1])));
    first.extend([Item::from(call(4, "echo")), Item::from(stop())]);
    let script = Script::default().then(first).then(text("Done").into_iter().chain([stop()]));
    let (tools, store) = (Watched::default(), Held::new());
    let runner = runner(&script, &tools, &store, Settings::default());
    let session = runner.session("s").await.unwrap();
    session.input("Go").without_waking().send().await.unwrap();
    let running = tokio::spawn({
        let session = session.clone();
        async move { session.run().await }
    });
    for moment in &moments {
        // Everything that could run has run: the calls so far have started, and ended.
        tokio::time::sleep(Duration::from_secs(1)).await;
        moment.notify_one();
    }
    assert_eq!(running.await.unwrap().unwrap().outcome, Outcome::Completed);
    let batches = store.batches.lock().unwrap().clone();
    let ends = batches.iter().position(|batch| batch.iter().any(|kind| kind == "step.ended")).unwrap();
    let of_step = &batches[1..=ends];
    let starts: Vec<_> = of_step
        .iter()
        .map(|batch| batch.iter().filter(|kind| *kind == "tool.started").count())
        .filter(|starts| *starts > 0)
        .collect();
    assert_eq!(starts, [1, 2, 1], "{of_step:?}");
    // What ended in between is recorded by itself, and no call's start is held up for it.
    let waited = of_step.iter().filter(|batch| batch.iter().any(|kind| kind != "tool.success")).count();
    assert_eq!(waited, 1 + starts.len(), "{of_step:?}");
    kinds(&store, session.id()).await;
}

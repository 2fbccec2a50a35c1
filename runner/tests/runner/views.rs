//! What a reader of a session sees: retries that are waited for, sums, live pieces.

use std::sync::Arc;
use std::time::Duration;

use settled_ledger::SessionFold;
use settled_ledger::{Backoff, DeltaKind, LiveEvent, Outcome, Seq};
use settled_provider_api::{ErrorClass, FinishReason, ProviderError, ProviderEvent, Usage};
use settled_runner::{Follow, SessionEvent, Snapshot};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::common::{Item, Script};
use crate::world::{Tools, World, answer, completed, stop, text};

fn busy() -> Item {
    Item::Throw(ProviderError::new(ErrorClass::Overloaded, "busy"))
}

/// What a reader who comes now is told to be open.
async fn open(world: &World) -> Snapshot {
    let mut events = world.session.follow(Seq::START);
    loop {
        if let SessionEvent::Synced(_, open) = events.next().await.unwrap().unwrap() {
            return open;
        }
    }
}

/// 136, 260: a retry that is waited for shows its attempt, its time and why; it is gone with the next attempt.
#[tokio::test(start_paused = true)]
async fn a_pending_retry_is_shown_until_its_attempt_starts() {
    let script = Script::default().then([busy()]).then([Item::Hang]);
    let world = World::new(script, Tools::default()).await;
    let running = world.begin().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let shown = open(&world).await.retry.unwrap();
    let recorded = world.the("retry.scheduled").await;
    let Backoff { message, attempt, at, error, continues, .. } = shown.clone();
    assert_eq!((attempt, error.class.name(), error.message.as_str(), continues), (2, "overloaded", "busy", false));
    assert_eq!(recorded["at"], serde_json::to_value(at).unwrap());
    assert_eq!(recorded["message"], serde_json::to_value(message).unwrap());
    assert_eq!(world.session.fold().await.unwrap().budget.backoff, Some(shown), "the log says the same");
    // The next attempt has started.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(world.requests(), 2);
    assert_eq!((open(&world).await.retry, world.session.fold().await.unwrap().budget.backoff), (None, None));
    world.session.interrupt().await.unwrap();
    running.await.unwrap().unwrap();
}

/// 136: it is gone when the step fails while it is waited for, and when the execution has settled.
#[tokio::test(start_paused = true)]
async fn a_pending_retry_is_gone_when_the_step_fails() {
    let world = World::new(Script::default().then([busy()]), Tools::default()).await;
    let running = world.begin().await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(open(&world).await.retry.is_some());
    world.session.interrupt().await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().outcome, Outcome::Interrupted);
    assert_eq!((open(&world).await, world.session.fold().await.unwrap().budget.backoff), (Snapshot::default(), None));
    // At the very event that ends the step, and not only with the execution.
    let mut fold = SessionFold::new();
    for (place, event) in (1..).zip(world.events().await) {
        fold.apply(Seq::new(place), &event);
        if event.kind() == "step.failed" {
            assert_eq!(fold.budget.backoff, None);
        }
    }
}

/// 245: the running total is a fold over the log, and holds a step as soon as its terminal is seen; failed steps count.
#[tokio::test(start_paused = true)]
async fn the_running_total_holds_a_step_when_its_terminal_is_seen() {
    let used = |input: u64| ProviderEvent::finish(FinishReason::Stop, Usage::new(input, 1));
    let refused = || ProviderEvent::Error(ProviderError::new(ErrorClass::InvalidRequest, "no"));
    let script = Script::default()
        .then(text("One").into_iter().chain([used(10)]))
        .then(text("Two").into_iter().chain([used(100), refused()]));
    let world = World::new(script, Tools::default()).await;
    let first = world.go().await;
    assert_eq!((first.usage, first.outcome), (Usage::new(10, 1), Outcome::Completed));
    let second = world.go().await;
    assert_eq!((second.usage, second.outcome), (Usage::new(110, 2), Outcome::Failed));
    // Whoever reads along has the sum with the terminal itself.
    let mut events = world.session.follow(Seq::START);
    let mut fold = SessionFold::new();
    let mut sums = Vec::new();
    while sums.len() < 2 {
        if let SessionEvent::Recorded(row) = events.next().await.unwrap().unwrap() {
            fold.apply(row.seq, &row.event().unwrap());
            if matches!(row.kind.as_str(), "step.ended" | "step.failed") {
                sums.push(fold.totals.usage.input.unwrap());
            }
        }
    }
    assert_eq!(sums, [10, 110]);
}

/// 1 to 4: what comes live, put together at its offsets, is the text that is recorded; nothing live is ever stored.
#[tokio::test(start_paused = true)]
async fn live_pieces_make_the_recorded_text() {
    let script = Script::default().then([
        ProviderEvent::reasoning_start(0),
        ProviderEvent::text_start(1),
        ProviderEvent::reasoning_delta(0, "Hm, "),
        ProviderEvent::text_delta(1, "Schön"),
        ProviderEvent::text_delta(1, " und "),
        ProviderEvent::reasoning_delta(0, "so."),
        ProviderEvent::text_delta(1, "gut"),
        ProviderEvent::reasoning_end(0, None),
        ProviderEvent::text_end(1),
        stop(),
    ]);
    let world = World::new(script, Tools::default()).await;
    let reading = tokio::spawn(live(world.session.follow(Seq::START)));
    completed(&world.go().await, "Schön und gut");
    let pieces = reading.await.unwrap();
    for (kind, recorded) in [(DeltaKind::Text, "text.ended"), (DeltaKind::Reasoning, "reasoning.ended")] {
        let mut text = String::new();
        for event in &pieces {
            if let LiveEvent::Delta(delta) = event
                && delta.kind == kind
            {
                assert_eq!(delta.offset, text.len() as u64, "each piece says where it belongs");
                text.push_str(&delta.text);
            }
        }
        assert_eq!(world.the(recorded).await["text"], text);
    }
    assert_eq!(pieces.len(), 5);
    assert!(!world.kinds().await.iter().any(|kind| kind.ends_with(".delta")), "nothing live is stored");
}

/// The live events that a reader sees, until nothing comes any more; the log goes before them.
async fn live(mut events: Follow) -> Vec<LiveEvent> {
    let mut live = Vec::new();
    while let Ok(event) = timeout(Duration::from_secs(60), events.next()).await {
        if let SessionEvent::Live(event) = event.unwrap().unwrap() {
            live.push(event);
        }
    }
    live
}

/// 262: the pieces of a summary come live, and are never stored.
#[tokio::test(start_paused = true)]
async fn the_pieces_of_a_summary_are_live_only() {
    let world = World::new(Script::default().then(answer("Hello")).then(answer("We met")), Tools::default()).await;
    world.go().await;
    let head = world.session.fold().await.unwrap().head;
    let reading = tokio::spawn(live(world.session.follow(head)));
    world.session.compact().await.unwrap();
    world.session.run().await.unwrap();
    let pieces = reading.await.unwrap();
    let summary = |event: &LiveEvent| match event {
        LiveEvent::CompactionDelta { text } => text.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(pieces.iter().map(summary).collect::<String>(), "We met");
    assert_eq!(world.the("compaction.ended").await["text"], "We met");
    assert!(!world.kinds().await.iter().any(|kind| kind.ends_with(".delta")));
}

/// B016: a reader who goes right behind the last piece takes nothing with them: the log gets its terminal.
#[tokio::test(start_paused = true)]
async fn a_reader_who_goes_takes_nothing_along() {
    let go = Arc::new(Notify::new());
    let items: Vec<Item> = vec![
        ProviderEvent::text_start(0).into(),
        ProviderEvent::text_delta(0, "All of it").into(),
        Item::Until(Arc::clone(&go)),
        ProviderEvent::text_end(0).into(),
        stop().into(),
    ];
    let world = World::new(Script::default().then(items), Tools::default()).await;
    let mut events = world.session.follow(Seq::START);
    let running = world.begin().await;
    loop {
        if let SessionEvent::Live(event) = events.next().await.unwrap().unwrap() {
            assert!(matches!(event, LiveEvent::Delta(delta) if &*delta.text == "All of it"));
            break;
        }
    }
    drop(events);
    go.notify_one();
    completed(&running.await.unwrap().unwrap(), "All of it");
    let kinds = world.kinds().await;
    assert_eq!(kinds[kinds.len() - 3..], ["step.streamed", "step.ended", "execution.settled"]);
}

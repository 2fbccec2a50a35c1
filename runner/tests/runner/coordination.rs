//! Who runs a session, who waits for it, and how it is woken, stopped and handed over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::json;
use settled_ledger::store::{Catalog, Fence, Ownership, StoreError, StoreErrorKind};
use settled_ledger::{Outcome, Seq, WorkerId};
use settled_provider_api::{
    ErrorClass, FinishReason, ModelInfo, ModelRef, ProviderError, ProviderEvent, ToolCallEvent,
};
use settled_runner::{Error, Interrupted, Serving, Session, SessionEvent, Settings};
use settled_tools_api::{Decision, Policy, PolicyCall, SessionId, ToolReturn};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::common::{Held, Item, Script, Watched, runner};
use crate::world::{Tools, World, answer, calls, completed, text};

/// An answer that waits for a gate behind its first words.
fn gated(go: &Arc<Notify>) -> Vec<Item> {
    let mut items: Vec<Item> = text("Wait").into_iter().map(Item::from).collect();
    items.push(Item::Until(Arc::clone(go)));
    items.extend(answer("").into_iter().skip(3).map(Item::from));
    items
}

/// 206: a prompt alone is answered: it wakes its session.
#[tokio::test(start_paused = true)]
async fn a_prompt_alone_is_answered() {
    let script = Script::default().then(answer("Here"));
    let world = World::with(script, Tools::default(), |builder| builder.serving(Serving::Opened)).await;
    world.session.prompt("Go").await.unwrap();
    completed(&world.settled().await, "Here");
    assert_eq!(world.said(0), ["user: Go"]);
}

/// 209: the interrupt returns when it is durable; waiting for the end is a choice.
#[tokio::test(start_paused = true)]
async fn an_interrupt_returns_before_the_settlement() {
    let begun = Arc::new(Notify::new());
    let tools = Tools::default().tool("stubborn", {
        let begun = Arc::clone(&begun);
        move |_, _| {
            begun.notify_one();
            std::future::pending()
        }
    });
    let world = World::new(Script::default().then(calls(&["stubborn"])), tools).await;
    let running = world.begin().await;
    begun.notified().await;
    let at = Instant::now();
    assert_eq!(world.session.interrupt().await.unwrap(), Interrupted::Requested);
    assert_eq!(at.elapsed(), Duration::ZERO, "the call waited for the tool");
    assert!(!world.kinds().await.contains(&"step.failed".to_owned()), "the step is not settled yet");
    assert_eq!(world.settled().await.outcome, Outcome::Interrupted);
    assert_eq!(at.elapsed(), Settings::default().cancel_grace, "whoever waits sees the end");
    assert_eq!(running.await.unwrap().unwrap().outcome, Outcome::Interrupted);
    assert_eq!(world.session.interrupt().await.unwrap(), Interrupted::NothingRuns);
}

/// 213: one waiter who goes changes neither the execution nor the other waiters.
#[tokio::test(start_paused = true)]
async fn a_waiter_who_goes_changes_nothing() {
    let go = Arc::new(Notify::new());
    let world = World::new(Script::default().then(gated(&go)), Tools::default()).await;
    let first = world.begin().await;
    let mut events = world.session.follow(Seq::START);
    while !matches!(events.next().await.unwrap().unwrap(), SessionEvent::Recorded(row) if row.kind == "step.started") {}
    let second = world.run();
    let third = world.session.run();
    // One is aborted, and one is dropped before it was ever polled.
    tokio::time::sleep(Duration::from_millis(1)).await;
    second.abort();
    drop(third);
    assert!(second.await.unwrap_err().is_cancelled());
    go.notify_one();
    completed(&first.await.unwrap().unwrap(), "Wait");
    assert_eq!(world.requests(), 1);
    assert_eq!(world.kinds().await.last().unwrap(), "execution.settled");
}

/// 213: when everybody has gone, what was asked for still runs to its end.
#[tokio::test(start_paused = true)]
async fn a_run_needs_nobody_to_wait_for_it() {
    let go = Arc::new(Notify::new());
    let world = World::new(Script::default().then(gated(&go)), Tools::default()).await;
    let only = world.begin().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    only.abort();
    go.notify_one();
    completed(&world.settled().await, "Wait");
    assert_eq!(world.runner.dropped_unsettled(), 0);
}

/// 137, 215: one busy period has one start and one settlement, and it is durable before whoever waits is told.
#[tokio::test(start_paused = true)]
async fn a_busy_period_starts_once_and_settles_once() {
    let go = Arc::new(Notify::new());
    let script = Script::default().then(gated(&go)).then(answer("Second"));
    let world = World::with(script, Tools::default(), |builder| builder.serving(Serving::Opened)).await;
    world.session.prompt("Go").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let waiters: Vec<_> = (0..3).map(|_| world.run()).collect();
    for _ in 0..5 {
        world.session.wake();
    }
    world.session.prompt("And then").await.unwrap();
    go.notify_one();
    for waiter in waiters {
        let settled = waiter.await.unwrap().unwrap();
        // Looked at as soon as the waiter is told: nothing runs in between.
        let last = world.all("execution.settled").await;
        assert_eq!((settled.outcome, last[0]["outcome"].as_str()), (Outcome::Completed, Some("completed")));
    }
    completed(&world.settled().await, "Second");
    let kinds = world.kinds().await;
    let count = |kind: &str| kinds.iter().filter(|one| *one == kind).count();
    assert_eq!((count("execution.started"), count("execution.settled"), count("step.started")), (1, 1, 2));
}

/// 137: the recorded outcome is the one that the waiter is told, whichever it is.
#[tokio::test(start_paused = true)]
async fn the_recorded_outcome_is_what_waiters_are_told() {
    let refused = || [Item::Throw(ProviderError::new(ErrorClass::Auth, "no key"))];
    let script = Script::default().then(answer("Yes")).then(refused());
    let world = World::new(script, Tools::default()).await;
    for expected in [Outcome::Completed, Outcome::Failed] {
        let told = world.go().await;
        let recorded = world.all("execution.settled").await.pop().unwrap();
        assert_eq!(told.outcome, expected);
        assert_eq!(recorded["outcome"], told.outcome.name());
        assert_eq!(recorded["error"]["message"].as_str(), told.error.as_ref().map(|error| error.message.as_str()));
        assert_eq!(world.settled().await, told);
    }
}

/// 216: different sessions run at the same time, and each has a name of its own in its requests.
#[tokio::test(start_paused = true)]
async fn sessions_run_at_the_same_time() {
    let go = Arc::new(Notify::new());
    let script = Script::default().then(gated(&go)).then(gated(&go));
    let world = World::new(script, Tools::default()).await;
    let other = world.runner.session("t").await.unwrap();
    let first = world.begin().await;
    other.input("Go").without_waking().send().await.unwrap();
    let second = tokio::spawn({
        let other = other.clone();
        async move { other.run().await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(world.requests(), 2, "the second does not wait for the first");
    let mut active = world.runner.active();
    active.sort();
    assert_eq!(active, [SessionId::new("s").unwrap(), SessionId::new("t").unwrap()]);
    let named: Vec<_> = [0, 1].map(|number| world.request(number).purpose.session.clone()).into();
    assert_eq!(named, active);
    go.notify_one();
    go.notify_one();
    completed(&first.await.unwrap().unwrap(), "Wait");
    completed(&second.await.unwrap().unwrap(), "Wait");
    assert_eq!(world.runner.active(), []);
}

/// A policy that panics.
struct Broken;

#[async_trait]
impl Policy for Broken {
    async fn decide(&self, _: &PolicyCall) -> Decision {
        std::panic::resume_unwind(Box::new("the policy broke"))
    }
}

/// 217: what runs is listed while it runs, and no longer, however it ends.
#[tokio::test(start_paused = true)]
async fn what_runs_is_listed_while_it_runs() {
    let tools = || Tools::default().ends("echo", Ok(ToolReturn::text("so")));
    let cases: [(&str, Vec<Item>); 4] = [
        ("success", answer("Yes").into_iter().map(Item::from).collect()),
        ("failure", vec![Item::Throw(ProviderError::new(ErrorClass::Auth, "no key"))]),
        ("a panic of the adapter", vec![Item::Panic]),
        ("a panic of the drain", calls(&["echo"]).into_iter().map(Item::from).collect()),
    ];
    for (what, mut items) in cases {
        let go = Arc::new(Notify::new());
        items.insert(0, Item::Until(Arc::clone(&go)));
        let world = World::with(Script::default().then(items), tools(), |builder| builder.policy(Broken)).await;
        assert_eq!(world.runner.active(), []);
        let running = world.begin().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(world.runner.active(), [world.session.id().clone()], "{what}");
        go.notify_one();
        let settled = running.await.unwrap().unwrap();
        assert_eq!(settled.outcome == Outcome::Completed, what == "success", "{what}: {settled:?}");
        assert_eq!(world.runner.active(), [], "{what}");
    }
    let world = World::new(Script::default().then([Item::Hang]), tools()).await;
    let running = world.begin().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    world.runner.shutdown(Duration::from_secs(1)).await;
    assert!(matches!(running.await.unwrap(), Err(Error::ShuttingDown)));
    assert_eq!(world.runner.active(), []);
}

/// 218: who waits for the end waits for the successors too, and starts nothing.
#[tokio::test(start_paused = true)]
async fn waiting_follows_successors_and_starts_nothing() {
    let go = Arc::new(Notify::new());
    let script = Script::default().then(gated(&go)).then(answer("Second"));
    let world = World::new(script, Tools::default()).await;
    world.say("Go").await;
    completed_nothing(&world).await;
    let first = world.run();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let waiting = tokio::spawn({
        let session = world.session.clone();
        async move { session.settled().await }
    });
    // The first run is being stopped, so the second does not join it: it comes after it.
    world.session.interrupt().await.unwrap();
    world.say("Again").await;
    let second = world.run();
    assert_eq!(first.await.unwrap().unwrap().outcome, Outcome::Interrupted);
    completed(&second.await.unwrap().unwrap(), "Second");
    completed(&waiting.await.unwrap().unwrap(), "Second");
    assert_eq!(world.requests(), 2);
}

/// Nothing has been asked to run: waiting says so at once.
async fn completed_nothing(world: &World) {
    world.settled().await;
    assert_eq!((world.requests(), world.kinds().await.len()), (0, 1), "waiting starts nothing");
}

/// 200: a wake with nothing to do sends nothing, writes nothing, and claims nothing.
#[tokio::test(start_paused = true)]
async fn a_wake_with_nothing_to_do_does_nothing() {
    let script = Script::default().then(answer("Yes"));
    let world = World::with(script, Tools::default(), |builder| builder.serving(Serving::Opened)).await;
    let epoch = || async {
        let claimed = world.store.claim(WorkerId::from_u128(7), Duration::from_secs(1), world.session.id()).await;
        let fence = claimed.unwrap().fence;
        world.store.release(&fence).await.unwrap();
        fence.epoch
    };
    let before = epoch().await;
    for _ in 0..3 {
        world.session.wake();
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert_eq!((world.requests(), world.kinds().await.len()), (0, 1));
    assert_eq!(epoch().await, before + 1, "nobody else has claimed the session");
    world.session.prompt("Go").await.unwrap();
    completed(&world.settled().await, "Yes");
}

/// 219: a drain that wakes itself 20,000 times neither overflows the stack nor stops.
#[tokio::test(start_paused = true)]
async fn a_drain_that_wakes_itself_20_000_times_comes_to_an_end() {
    let script = Script::default().then(answer("Yes"));
    let left = Arc::new(AtomicU64::new(20_000));
    let waking: Arc<Mutex<Option<Session>>> = Arc::default();
    // Whenever a drain looks at the inbox, the session is woken.
    let store = Held::new().before({
        let (left, waking) = (Arc::clone(&left), Arc::clone(&waking));
        move |operation| {
            let session = waking.lock().unwrap().clone().filter(|_| operation == "pending");
            let again = |session: Session| {
                let counted = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                counted.iter().for_each(|_| session.wake());
            };
            session.into_iter().for_each(again);
            Ok(())
        }
    });
    let world = World::on(store, script, Tools::default(), |builder| builder).await;
    *waking.lock().unwrap() = Some(world.session.clone());
    world.session.wake();
    world.settled().await;
    assert_eq!(left.load(Ordering::SeqCst), 0, "every wake was taken up");
    assert_eq!(world.runner.active(), []);
    completed(&world.go().await, "Yes");
    waking.lock().unwrap().take();
}

/// 220: a session that is not there is an error, and nothing panics.
#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_there_is_an_error() {
    let world = World::new(Script::default(), Tools::default()).await;
    world.store.erase(world.session.id()).await.unwrap();
    let not_found = |error: Error| matches!(error, Error::Store(error) if error.kind == StoreErrorKind::NotFound);
    let settled = world.session.run().await.unwrap();
    assert_eq!((settled.outcome, settled.error.unwrap().class.name()), (Outcome::Failed, "store"));
    assert!(not_found(world.session.prompt("Go").await.unwrap_err()));
    assert!(not_found(world.session.pending().await.unwrap_err()));
    assert!(not_found(world.session.interrupt().await.unwrap_err()));
    assert!(matches!(world.runner.session("").await, Err(Error::InvalidId(_))));
    assert_eq!((world.requests(), world.runner.active()), (0, vec![]));
}

/// 198: somebody who listens panics when an input was promoted; the input is answered, once.
#[tokio::test(start_paused = true)]
async fn a_listener_that_panics_changes_nothing() {
    let go = Arc::new(Notify::new());
    let world = World::new(Script::default().then(gated(&go)), Tools::default()).await;
    let mut events = world.session.follow(Seq::START);
    let listening = tokio::spawn(async move {
        loop {
            if let SessionEvent::Recorded(row) = events.next().await.unwrap().unwrap()
                && row.kind == "input.promoted"
            {
                std::panic::resume_unwind(Box::new("the listener broke"));
            }
        }
    });
    let running = world.begin().await;
    assert!(listening.await.unwrap_err().is_panic());
    go.notify_one();
    completed(&running.await.unwrap().unwrap(), "Wait");
    assert_eq!((world.requests(), world.all("input.promoted").await.len()), (1, 1));
    assert_eq!(world.said(0), ["user: Go"]);
}

/// A session that nobody holds is forgotten, and is still one of those that run by themselves when something comes from elsewhere.
#[tokio::test(start_paused = true)]
async fn a_session_that_nobody_holds_runs_when_it_is_due() {
    let script = Script::default().then(answer("One")).then(answer("Two"));
    let mut settings = Settings::default();
    settings.kept_sessions = 0;
    let first =
        World::with(script, Tools::default(), |builder| builder.serving(Serving::Opened).settings(settings)).await;
    completed(&first.go().await, "One");
    let World { runner, session, script, store } = first;
    drop(session);
    let second =
        World::on(store, Script::default(), Tools::default(), |builder| builder.worker(WorkerId::from_u128(77))).await;
    let mut events = second.session.follow(Seq::new(second.kinds().await.len() as u64));
    second.session.prompt("Go on").await.unwrap();
    let settles = async {
        while !matches!(events.next().await, Some(Ok(SessionEvent::Recorded(row))) if row.kind == "execution.settled") {
        }
    };
    tokio::time::timeout(Duration::from_secs(60), settles).await.expect("it runs where it was opened");
    completed(&second.session.settled().await.unwrap(), "Two");
    assert_eq!((script.requests.lock().unwrap().len(), second.requests()), (2, 0));
    assert_eq!((runner.active(), runner.dropped_unsettled()), (vec![], 0));
}

/// B188, B189: of two runners on one store one runs a session; a run of the other joins.
#[tokio::test(start_paused = true)]
async fn of_two_runners_one_runs_a_session() {
    let go = Arc::new(Notify::new());
    let first = World::new(Script::default().then(gated(&go)), Tools::default()).await;
    let second = World::on(first.store.clone(), Script::default(), Tools::default(), |builder| {
        builder.worker(WorkerId::from_u128(77))
    })
    .await;
    let one = first.begin().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let other = second.run();
    // Longer than a lease: it is renewed while the stream is open.
    tokio::time::sleep(Settings::default().lease * 3).await;
    assert_eq!((second.requests(), second.runner.active().len()), (0, 1));
    go.notify_one();
    completed(&one.await.unwrap().unwrap(), "Wait");
    completed(&other.await.unwrap().unwrap(), "Wait");
    assert_eq!((first.requests(), second.requests()), (1, 0));
    assert_eq!(first.kinds().await.iter().filter(|kind| *kind == "execution.settled").count(), 1);
}

/// B188: a worker that cannot renew its lease stops by its own clock before another may go on; nothing of it acts or appends afterwards.
#[tokio::test(start_paused = true)]
async fn a_worker_without_a_lease_stops_before_the_next_one_goes_on() {
    let stopped = Arc::new(AtomicU64::new(0));
    let tools = Tools::default().tool("work", {
        let stopped = Arc::clone(&stopped);
        move |_, context| {
            let stopped = Arc::clone(&stopped);
            async move {
                context.cancel().cancelled().await;
                stopped.fetch_add(1, Ordering::SeqCst);
                Ok(ToolReturn::text("too late"))
            }
        }
    });
    let held = Held::new();
    let unrenewed = held.before(|operation| match operation {
        "renew" => Err(StoreError::new(StoreErrorKind::Unavailable, "not now")),
        _ => Ok(()),
    });
    let first = World::on(unrenewed, Script::default().then(calls(&["work"])), tools, |builder| builder).await;
    let lease = Settings::default().lease;
    let began = Instant::now();
    let lost = first.begin().await.await.unwrap().unwrap();
    assert_eq!((lost.outcome, lost.error.unwrap().class.name()), (Outcome::Failed, "store"));
    assert!(began.elapsed() < lease, "it stopped {:?} after its claim", began.elapsed());
    assert_eq!(stopped.load(Ordering::SeqCst), 1, "its tool was told to stop");
    assert!(!first.kinds().await.iter().any(|kind| kind.starts_with("tool.failed")), "it appended nothing more");
    let second = World::on(held, Script::default().then(answer("Done")), Tools::default(), |builder| {
        builder.worker(WorkerId::from_u128(77))
    })
    .await;
    completed(&second.session.run().await.unwrap(), "Done");
    assert_eq!(second.the("tool.unknown").await["call"], 0);
    assert_eq!(second.kinds().await.last().unwrap(), "execution.settled");
    assert_eq!(first.runner.dropped_unsettled(), 0);
}

/// B188: a writer that was replaced is refused by the store, and settles nothing.
#[tokio::test(start_paused = true)]
async fn a_writer_that_was_replaced_is_refused() {
    let go = Arc::new(Notify::new());
    let held = Held::new();
    let first = World::on(held.clone(), Script::default().then(gated(&go)), Tools::default(), |builder| builder).await;
    let running = first.begin().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    // Somebody else takes the session over, as after a lease that ran out on a clock that stood still here.
    let info = held.info(first.session.id()).await.unwrap();
    held.release(&Fence::new(first.session.id().clone(), info.owner.unwrap(), 1)).await.unwrap();
    let second = World::on(held, Script::default().then(answer("Done")), Tools::default(), |builder| {
        builder.worker(WorkerId::from_u128(77))
    })
    .await;
    completed(&second.session.run().await.unwrap(), "Done");
    let head = second.kinds().await.len();
    go.notify_one();
    let lost = running.await.unwrap().unwrap();
    assert_eq!((lost.outcome, lost.error.unwrap().class.name()), (Outcome::Failed, "store"));
    assert_eq!(second.kinds().await.len(), head, "nothing was appended");
    // What it has lost, the other has settled: that is how the session settled, here too.
    completed(&first.settled().await, "Done");
    assert_eq!(first.runner.dropped_unsettled(), 0);
}

/// 180: a shutdown lets the tool that runs finish, leaves at the border, and the next process goes on by itself as if nothing had been.
#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_at_a_border_and_the_next_process_goes_on() {
    let tools = Tools::default().tool("work", |_, _| async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        Ok(ToolReturn::text("worked"))
    });
    let first = World::new(Script::default().then(calls(&["work"])), tools.clone()).await;
    let running = first.begin().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    assert_eq!(first.runner.shutdown(Duration::from_secs(60)).await, []);
    assert_eq!(began.elapsed(), Duration::from_secs(19), "it waited for the tool, and no longer");
    assert!(matches!(running.await.unwrap(), Err(Error::ShuttingDown)));
    assert!(matches!(first.runner.session("t").await, Err(Error::ShuttingDown)));
    let kinds = first.kinds().await;
    assert_eq!(kinds[kinds.len() - 2..], ["tool.success", "step.ended"], "the execution stays open");
    let second = World::on(first.store.clone(), Script::default().then(answer("Done")), tools, |builder| {
        builder.worker(WorkerId::from_u128(77)).serving(Serving::Opened)
    })
    .await;
    completed(&second.settled().await, "Done");
    assert_eq!(second.said(0), ["user: Go", "model: work{}", "tool: worked"], "no word of a restart");
    let kinds = second.kinds().await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "execution.started").count(), 1, "it counts as no restart");
}

/// 180: what is not done within the grace is left without a trace, and the next owner settles it.
#[tokio::test(start_paused = true)]
async fn what_outlives_the_grace_is_left_to_the_next_owner() {
    let tools = Tools::default().tool("work", |_, _| std::future::pending());
    let first = World::new(Script::default().then(calls(&["work"])), tools).await;
    let running = first.begin().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let head = first.kinds().await.len();
    let grace = Duration::from_secs(3);
    let began = Instant::now();
    assert_eq!(first.runner.shutdown(grace).await, [], "it yields, so it can be stopped");
    assert_eq!(began.elapsed(), grace + Settings::default().cancel_grace);
    assert!(matches!(running.await.unwrap(), Err(Error::ShuttingDown)));
    assert_eq!(first.kinds().await.len(), head);
    let second = World::on(first.store.clone(), Script::default().then(answer("Done")), Tools::default(), |builder| {
        builder.worker(WorkerId::from_u128(77))
    })
    .await;
    completed(&second.session.run().await.unwrap(), "Done");
    let kinds = second.kinds().await;
    assert_eq!(kinds[head..head + 4], ["execution.started", "tool.unknown", "step.ended", "synthetic"]);
    assert_eq!(first.runner.dropped_unsettled(), 0);
}

/// Where nothing runs unless it is told to, input that comes just as a failure settles waits for the next run, and nobody waits for it.
#[tokio::test(start_paused = true)]
async fn what_nobody_runs_is_not_waited_for() {
    let refused = Item::Throw(ProviderError::new(ErrorClass::Auth, "no key"));
    let script = Script::default().then([refused]);
    let store = Held::new();
    let runner = runner(&script, &Watched::default(), &store, Settings::default());
    let session = runner.session("s").await.unwrap();
    session.input("One").without_waking().send().await.unwrap();
    assert_eq!(session.run().await.unwrap().outcome, Outcome::Failed);
    session.prompt("Two").await.unwrap();
    let settled = session.settled().await.unwrap();
    assert_eq!((settled.outcome, session.pending().await.unwrap().len()), (Outcome::Failed, 1));
}

#[tokio::test(start_paused = true)]
async fn a_reader_is_not_kept_waiting_while_another_worker_runs_the_session() {
    let go = Arc::new(Notify::new());
    let first = World::new(Script::default().then(gated(&go)), Tools::default()).await;
    let second = World::on(first.store.clone(), Script::default(), Tools::default(), |builder| {
        builder.worker(WorkerId::from_u128(77))
    })
    .await;
    let _one = first.begin().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let _other = second.run();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut events = second.session.follow(Seq::START);
    let synced = async { while !matches!(events.next().await, Some(Ok(SessionEvent::Synced(..)))) {} };
    tokio::time::timeout(Duration::from_secs(60), synced).await.expect("it syncs");
}

#[tokio::test(start_paused = true)]
async fn a_second_interrupt_does_not_take_the_run_that_somebody_waits_for() {
    let begun = Arc::new(Notify::new());
    let tools = Tools::default().tool("stubborn", {
        let begun = Arc::clone(&begun);
        move |_, _| {
            begun.notify_one();
            std::future::pending()
        }
    });
    let world = World::new(Script::default().then(calls(&["stubborn"])).then(answer("Two")), tools).await;
    let running = world.begin().await;
    begun.notified().await;
    world.session.interrupt().await.unwrap();
    let next = world.run();
    tokio::time::sleep(Duration::from_millis(1)).await;
    world.session.interrupt().await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().outcome, Outcome::Interrupted);
    tokio::time::timeout(Duration::from_secs(3600), next).await.expect("a run ends").unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_backoff_closes_what_a_pause_has_left_open() {
    let paused = [
        Item::from(ProviderEvent::ToolCall(ToolCallEvent::new(0, "h", "search", json!({})).hosted())),
        Item::from(ProviderEvent::finish(FinishReason::Pause, None)),
    ];
    let script = Script::default().then(paused).then([Item::Throw(ProviderError::new(ErrorClass::RateLimit, "slow"))]);
    let world = World::new(script, Tools::default()).await;
    let running = world.begin().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    world.session.interrupt().await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().outcome, Outcome::Interrupted);
    let kinds = world.kinds().await;
    assert_eq!(kinds[kinds.len() - 3..], ["tool.failed", "step.failed", "execution.settled"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_execution_is_not_said_to_be_completed() {
    let store = Held::new().before(|what| {
        if what == "append" { Err(StoreError::new(StoreErrorKind::Unavailable, "away")) } else { Ok(()) }
    });
    let world = World::on(store, Script::default().then(answer("Two")), Tools::default(), |builder| builder).await;
    world.say("Go").await;
    let run = world.session.run().await.unwrap();
    assert_eq!(run.outcome, Outcome::Failed);
    assert_eq!(world.session.settled().await.unwrap().outcome, Outcome::Failed);
}

#[tokio::test(start_paused = true)]
async fn a_switch_is_not_overtaken_by_what_came_after_it() {
    struct Slow;
    #[async_trait]
    impl settled_runner::InstructionSource for Slow {
        async fn observe(
            &self,
            _: &settled_tools_api::OfferTo,
        ) -> Result<Option<String>, Box<dyn std::error::Error + Send + Sync>> {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(None)
        }
    }
    let script = Script::default().then(answer("One")).then(answer("Two"));
    let other = script.clone();
    let world = World::with(script, Tools::default(), |builder| {
        builder.instructions("slow", Slow).model(ModelRef::new("script", "n"), other, ModelInfo::new())
    })
    .await;
    let running = world.begin().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.session.switch_model(ModelRef::new("script", "n")).await.unwrap();
    world.say("for n").await;
    running.await.unwrap().unwrap();
    assert_eq!(world.request(0).model, ModelRef::new("script", "n"));
    world.kinds().await;
}

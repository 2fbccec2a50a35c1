//! What belongs to a step as a whole: its attempts, its files, its times, and what is written.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use settled_ledger::store::EventLog;
use settled_ledger::{Outcome, Seq};
use settled_provider_api::{ErrorClass, ProviderError, ProviderEvent};
use settled_runner::{Settings, Snapshots};
use settled_tools_api::{MessageId, SessionId};
use tokio::sync::Notify;

use crate::common::{Item, Script};
use crate::world::{Tools, World, answer, completed, stop};

/// 114: the provider's own word on trying again wins over the kind of the failure, either way, within the budget that all attempts share.
#[tokio::test(start_paused = true)]
async fn the_providers_word_on_retrying_wins() {
    let says = |class, retry: Option<bool>| ProviderError::new(class, "no").should_retry(retry);
    // A failure, and how many requests are made of at most three.
    let cases = [
        (says(ErrorClass::Overloaded, None), 3),
        (says(ErrorClass::Overloaded, Some(true)), 3),
        (says(ErrorClass::Overloaded, Some(false)), 1),
        (says(ErrorClass::InvalidRequest, None), 1),
        (says(ErrorClass::InvalidRequest, Some(true)), 3),
        (says(ErrorClass::InvalidRequest, Some(false)), 1),
    ];
    let mut settings = Settings::default();
    settings.retry.max = 2;
    for (error, requests) in cases {
        let script = (0..3).fold(Script::default(), |script, _| script.then([Item::Throw(error.clone())]));
        let world = World::with(script, Tools::default(), |builder| builder.settings(settings.clone())).await;
        let settled = world.go().await;
        assert_eq!((settled.outcome, world.requests()), (Outcome::Failed, requests), "{error:?}");
        world.kinds().await;
    }
}

/// Watches files: what is there before is a number, what has changed is what a test says.
#[derive(Clone)]
struct Files {
    before: Result<u64, &'static str>,
    after: Result<Value, &'static str>,
    asked: Arc<Mutex<Vec<Value>>>,
}

#[async_trait]
impl Snapshots for Files {
    async fn before(&self, _: &SessionId, _: MessageId) -> Result<Value, Box<dyn Error + Send + Sync>> {
        Ok(json!(self.before?))
    }

    async fn after(&self, _: &SessionId, _: MessageId, before: Value) -> Result<Value, Box<dyn Error + Send + Sync>> {
        self.asked.lock().unwrap().push(before);
        Ok(self.after.clone()?)
    }
}

/// 276: the terminal says what the step has changed, also of a step that failed; no change is an empty list; where the port fails there is none, and the step is as it would have been.
#[tokio::test(start_paused = true)]
async fn the_terminal_says_which_files_the_step_has_changed() {
    let changed = || Ok(json!(["a.txt"]));
    let cases = [
        ("changed", Ok(7), changed(), Some(json!(["a.txt"]))),
        ("nothing changed", Ok(7), Ok(json!([])), Some(json!([]))),
        ("no snapshot at the end", Ok(7), Err("gone"), None),
        ("no snapshot at the start", Err("gone"), changed(), None),
    ];
    let refused = || [Item::Throw(ProviderError::new(ErrorClass::InvalidRequest, "no"))];
    for (what, before, after, expected) in cases {
        let files = Files { before, after, asked: Arc::default() };
        let script = Script::default().then(answer("Yes")).then(refused());
        let world = World::with(script, Tools::default(), |builder| builder.snapshots(files.clone())).await;
        completed(&world.go().await, "Yes");
        assert_eq!(world.go().await.outcome, Outcome::Failed, "{what}");
        for terminal in ["step.ended", "step.failed"] {
            assert_eq!(world.the(terminal).await.get("files"), expected.as_ref(), "{what}: {terminal}");
        }
        let asked = files.asked.lock().unwrap().clone();
        assert!(asked.iter().all(|before| *before == json!(7)), "the end is compared with the start: {what}");
        world.kinds().await;
    }
}

/// 277: a step's time is that of its request, and not of the answer's first sign.
#[tokio::test(start_paused = true)]
async fn the_time_of_a_step_is_that_of_its_request() {
    let go = Arc::new(Notify::new());
    let items: Vec<Item> =
        [Item::Until(Arc::clone(&go))].into_iter().chain(answer("Yes").into_iter().map(Item::from)).collect();
    let world = World::new(Script::default().then(items), Tools::default()).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let running = world.begin().await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(world.requests(), 1);
    go.notify_one();
    completed(&running.await.unwrap().unwrap(), "Yes");
    let log = world.store.read(world.session.id(), Seq::START, 100).await.unwrap();
    let at = |kind: &str| log.iter().find(|row| row.kind == kind).unwrap().at;
    assert_eq!(at("step.started").since(at("session.created")), Duration::from_secs(3));
    assert_eq!(at("text.started").since(at("step.started")), Duration::from_secs(40));
}

/// 25, 26: the history that was followed live is the history that the log tells, whatever is in it.
#[tokio::test(start_paused = true)]
async fn the_history_followed_live_is_the_one_in_the_log() {
    let busy = Item::Throw(ProviderError::new(ErrorClass::Overloaded, "busy"));
    let cut = [
        ProviderEvent::reasoning_start(0).into(),
        ProviderEvent::reasoning_delta(0, "Hm").into(),
        ProviderEvent::text_start(1).into(),
        ProviderEvent::text_delta(1, "Half").into(),
        Item::Throw(ProviderError::new(ErrorClass::Transport, "reset")),
    ];
    let call = [ProviderEvent::tool_call(0, "a", "echo", json!({"x": "ü\u{1}"})), stop()];
    let script = Script::default().then([busy]).then(cut).then(call).then(answer("Done")).then(answer("We met"));
    let tools = Tools::default().ends("echo", Ok(settled_tools_api::ToolReturn::text("so")));
    let world = World::new(script, tools).await;
    let told = world.go().await;
    completed(&told, "Done");
    let (first, second) = (world.session.fold().await.unwrap(), world.session.fold().await.unwrap());
    assert_eq!(first, second);
    assert_eq!(told.usage, first.totals.usage);
    // The next run starts from what this one has kept; another process starts from the log: both say the same.
    world.say("More").await;
    let kept = world.said(3);
    let other = World::on(world.store.clone(), Script::default().then(answer("Same")), Tools::default(), |builder| {
        builder.worker(settled_ledger::WorkerId::from_u128(77)).ids(crate::common::Counted::from(10_000))
    })
    .await;
    completed(&other.session.run().await.unwrap(), "Same");
    assert_eq!(other.said(0)[..kept.len()], kept);
    world.kinds().await;
}

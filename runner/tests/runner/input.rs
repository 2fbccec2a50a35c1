//! What comes from outside: keys, changes of mind, places in the queue, switches.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::{Delivery, NewInputKind, Outcome, WorkerId};
use settled_runner::{Agent, Error, Session};
use settled_tools_api::{OfferTo, ToolExecutor, ToolSource};
use tokio::sync::Notify;

use crate::common::{Counted, Held, Item, Script};
use crate::world::{Tools, World, answer, completed, stop, text};

/// An answer that waits for a gate behind its first words.
fn gated(said: &str, go: &Arc<Notify>) -> Vec<Item> {
    let mut items: Vec<Item> = text(said).into_iter().map(Item::from).collect();
    items.push(Item::Until(Arc::clone(go)));
    items.push(stop().into());
    items
}

/// 203: an input that is sent again under its key is one input; the same key with other content is a conflict, before its promotion and after it, and changes nothing.
#[tokio::test(start_paused = true)]
async fn a_key_stands_for_one_input() {
    let world = World::new(Script::default().then(answer("Yes")), Tools::default()).await;
    let send = |text: &'static str, queue: Delivery| {
        let session = world.session.clone();
        async move {
            let input = session.input(text).without_waking().key("k");
            if queue == Delivery::Queue { input.queue().send().await } else { input.send().await }
        }
    };
    let conflicts = |sent: Result<_, Error>| matches!(sent, Err(Error::KeyConflict(key)) if key == "k");
    let first = send("Go", Delivery::Steer).await.unwrap();
    for promoted in [false, true] {
        if promoted {
            completed(&world.session.run().await.unwrap(), "Yes");
        }
        assert_eq!(send("Go", Delivery::Steer).await.unwrap(), first, "the same again");
        assert!(conflicts(send("Stop", Delivery::Steer).await), "other text, promoted: {promoted}");
        assert!(conflicts(send("Go", Delivery::Queue).await), "other delivery, promoted: {promoted}");
        assert_eq!(world.session.pending().await.unwrap().len(), usize::from(!promoted));
    }
    assert_eq!((world.requests(), world.all("input.promoted").await.len()), (1, 1));
    // A key is a session's own: another session may use it for something else.
    let other = world.runner.session("t").await.unwrap();
    assert_ne!(other.input("Stop").without_waking().key("k").send().await.unwrap(), first);
}

/// 203: how a pending input is delivered may be changed, and it may be taken back; neither once it is promoted.
#[tokio::test(start_paused = true)]
async fn a_pending_input_may_be_changed_and_taken_back() {
    let go = Arc::new(Notify::new());
    let script = Script::default().then(gated("One", &go)).then(answer("Two")).then(answer("Three"));
    let world = World::new(script, Tools::default()).await;
    let queued = world.session.input("First in the queue").queue().without_waking().send().await.unwrap();
    let steer = world.say("A steer").await;
    let back = world.say("Never mind").await;
    let running = world.begin().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    // All steers went into the first step: too late for them.
    assert!(!world.session.change_delivery(steer, Delivery::Queue).await.unwrap());
    assert!(!world.session.cancel_input(back).await.unwrap());
    let late = world.say("Late").await;
    let gone = world.say("Gone").await;
    assert!(world.session.change_delivery(queued, Delivery::Steer).await.unwrap());
    assert!(world.session.change_delivery(late, Delivery::Queue).await.unwrap());
    assert!(world.session.cancel_input(gone).await.unwrap());
    assert!(!world.session.cancel_input(gone).await.unwrap(), "it is gone already");
    go.notify_one();
    completed(&running.await.unwrap().unwrap(), "Three");
    assert_eq!(world.said(0), ["user: A steer", "user: Never mind", "user: Go"]);
    assert_eq!(world.said(1)[4..], ["user: First in the queue"], "it is a steer now");
    assert_eq!(world.said(2)[6..], ["user: Late"], "and this one had to wait its turn");
    world.kinds().await;
}

/// 173: a compaction that is taken back while it is pending leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn a_compaction_that_is_taken_back_leaves_nothing() {
    let world = World::new(Script::default().then(answer("Yes")).then(answer("Well")), Tools::default()).await;
    world.go().await;
    let compaction = world.session.compact().await.unwrap();
    assert_eq!(world.session.compact().await.unwrap(), compaction, "asking twice is asking once");
    assert!(world.session.cancel_input(compaction).await.unwrap());
    completed(&world.go().await, "Well");
    assert!(!world.kinds().await.iter().any(|kind| kind.starts_with("compaction.")));
    assert_eq!((world.requests(), world.session.pending().await.unwrap()), (2, vec![]));
}

/// 166: the inbox item of a compaction leaves with `compaction.started`, in one batch: it is never there twice, and never lost.
#[tokio::test(start_paused = true)]
async fn a_compaction_leaves_the_inbox_with_its_start() {
    let world = World::new(Script::default().then(answer("Yes")).then(answer("We met")), Tools::default()).await;
    world.go().await;
    let compaction = world.session.compact().await.unwrap();
    *world.store.hold.lock().unwrap() = Some("compaction.started");
    let running = world.run();
    world.store.held.notified().await;
    let pending = |world: &World| {
        let session = world.session.clone();
        async move { session.pending().await.unwrap().iter().map(|item| item.id).collect::<Vec<_>>() }
    };
    assert_eq!(pending(&world).await, [compaction], "it is there until its start is durable");
    assert_eq!(world.requests(), 1, "and the summary is not asked for before");
    *world.store.hold.lock().unwrap() = None;
    world.store.go.notify_one();
    running.await.unwrap().unwrap();
    assert_eq!(pending(&world).await, []);
    let batches = world.store.batches.lock().unwrap().clone();
    let with_start: Vec<_> =
        batches.iter().filter(|batch| batch.iter().any(|kind| kind == "compaction.started")).collect();
    assert_eq!(with_start, [&["compaction.started"]]);
    assert!(batches.iter().all(|batch| !batch.is_empty()), "nothing leaves the inbox by itself");
}

/// 165, 173: a compaction that comes while a step runs is made at the next border, before what waits there is promoted.
#[tokio::test(start_paused = true)]
async fn a_compaction_is_made_before_what_waits_is_promoted() {
    let go = Arc::new(Notify::new());
    let script = Script::default().then(gated("One", &go)).then(answer("We met")).then(answer("Two"));
    let script = script.then(answer("Three"));
    let world = World::new(script, Tools::default()).await;
    let running = world.begin().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    world.session.input("Queued").queue().without_waking().send().await.unwrap();
    world.say("Steered").await;
    world.session.compact().await.unwrap();
    go.notify_one();
    completed(&running.await.unwrap().unwrap(), "Three");
    let marks = ["step.ended", "compaction.started", "compaction.ended", "input.promoted"];
    let kinds = world.kinds().await;
    let order: Vec<_> = kinds.iter().filter(|kind| marks.contains(&kind.as_str())).skip(1).collect();
    assert_eq!(
        order,
        [
            "step.ended",
            "compaction.started",
            "compaction.ended",
            "input.promoted",
            "step.ended",
            "input.promoted",
            "step.ended"
        ]
    );
    assert_eq!(world.said(2).last().unwrap(), "user: Steered");
    assert_eq!(world.said(3).last().unwrap(), "user: Queued");
}

/// A source of tools that does something while it is asked.
#[derive(Clone, Default)]
struct Meanwhile {
    session: Arc<OnceLock<Session>>,
    what: Arc<Mutex<Option<What>>>,
}

#[derive(Clone, Copy)]
enum What {
    Compact,
    SwitchAgent,
}

#[async_trait]
impl ToolSource for Meanwhile {
    async fn offer(&self, _: &OfferTo) -> Result<Arc<dyn ToolExecutor>, Box<dyn std::error::Error + Send + Sync>> {
        let what = self.what.lock().unwrap().take();
        if let Some((what, session)) = what.zip(self.session.get()) {
            match what {
                What::Compact => session.compact().await?,
                What::SwitchAgent => session.switch_agent("second").await?,
            };
        }
        Ok(Arc::new(Tools::default()))
    }
}

async fn meanwhile(script: Script, what: What) -> World {
    let source = Meanwhile::default();
    let world = World::with(script, Tools::default(), |builder| {
        builder.tools(source.clone()).agent(Agent::new("second").system("The second."))
    })
    .await;
    source.session.set(world.session.clone()).unwrap_or_else(|_| panic!("it is set once"));
    *source.what.lock().unwrap() = Some(what);
    world
}

/// 251: an agent that is chosen while a request is prepared counts from the next step on.
#[tokio::test(start_paused = true)]
async fn an_agent_that_is_chosen_during_preparation_counts_from_the_next_step() {
    let world = meanwhile(Script::default().then(answer("One")).then(answer("Two")), What::SwitchAgent).await;
    world.go().await;
    completed(&world.go().await, "Two");
    let agents: Vec<_> = world.all("step.started").await.iter().map(|started| started["agent"].clone()).collect();
    assert_eq!(agents, ["tester", "second"]);
    let system = |number: usize| world.request(number).system.iter().map(|part| part.to_string()).collect::<Vec<_>>();
    assert_eq!((system(0), system(1)), (vec![], vec!["The second.".to_owned()]));
    world.kinds().await;
}

/// 173: a compaction that comes while a request is prepared is made at the next border: what was promoted is answered first.
#[tokio::test(start_paused = true)]
async fn a_compaction_that_comes_during_preparation_waits_for_the_border() {
    let world = meanwhile(Script::default().then(answer("One")).then(answer("We met")), What::Compact).await;
    let settled = world.go().await;
    assert_eq!((settled.outcome, world.requests()), (Outcome::Completed, 2));
    let kinds = world.kinds().await;
    let at = |kind: &str| kinds.iter().position(|one| one == kind).unwrap();
    assert!(at("step.ended") < at("compaction.started"), "{kinds:?}");
    assert_eq!(world.session.pending().await.unwrap(), []);
}

/// 138: a session whose agent this runner does not have sends nothing and promotes nothing; the input stays, and a runner that has the agent answers it.
#[tokio::test(start_paused = true)]
async fn without_its_agent_a_session_promotes_nothing() {
    let store = Held::new();
    let gone =
        World::on(store.clone(), Script::default(), Tools::default(), |builder| builder.agent(Agent::new("second")))
            .await;
    gone.session.switch_agent("second").await.unwrap();
    gone.session.run().await.unwrap();
    let without = World::on(store.clone(), Script::default(), Tools::default(), |builder| {
        builder.worker(WorkerId::from_u128(77)).ids(Counted::from(10_000))
    })
    .await;
    let failed = without.go().await;
    let error = failed.error.unwrap();
    assert_eq!((failed.outcome, error.class.name()), (Outcome::Failed, "configuration"));
    assert!(error.message.contains("second"), "it names the agent: {error}");
    assert_eq!((without.requests(), without.all("input.promoted").await.len()), (0, 0));
    let pending = without.session.pending().await.unwrap();
    assert!(matches!(&pending[0].input, NewInputKind::Prompt(prompt) if prompt.content[0].as_text() == Some("Go")));
    without.kinds().await;
    let with = World::on(store, Script::default().then(answer("Here")), Tools::default(), |builder| {
        builder.agent(Agent::new("second")).ids(Counted::from(20_000))
    })
    .await;
    completed(&with.session.run().await.unwrap(), "Here");
    assert_eq!(with.said(0), ["user: Go"]);
}

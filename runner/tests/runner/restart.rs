//! What a process that died has left: which calls run again, how often an execution is taken up, broken logs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use settled_ledger::store::{Next, SessionState};
use settled_ledger::{
    Delivery, Event, InputId, InputPromoted, Outcome, StepEnded, StepStarted, ToolInputEnded, ToolInputStarted,
    ToolNoted, ToolSuccess, effect_key,
};
use settled_provider_api::{Content, ModelRef};
use settled_tools_api::{
    MessageId, Reconciled, Reconciler, Replay, ReplayClass, ToolCall, ToolContext, ToolOutput, ToolReturn,
};
use tokio::time::Instant;

use crate::common::{Counted, Held, Script};
use crate::world::{Tools, World, answer, any, completed, left, left_after, lost_call, lost_step, seed, started_call};

/// 180: an execution that was taken up too often is not taken up again: it fails as aborted, and says why.
#[tokio::test(start_paused = true)]
async fn an_execution_is_taken_up_so_many_times() {
    for (before, goes_on) in [(9, true), (10, false)] {
        let store = Held::new();
        left_after(&store, before, started_call(0, "act", ReplayClass::AtMostOnce)).await;
        let tools = Tools::default().ends("act", Ok(ToolReturn::text("ran again")));
        let world = World::on(store, Script::default().then(answer("Done")), tools, |builder| builder).await;
        let settled = world.session.run().await.unwrap();
        if goes_on {
            completed(&settled, "Done");
        } else {
            assert_eq!(settled.outcome, Outcome::Failed);
            let error = settled.error.unwrap();
            assert_eq!(error.class.name(), "aborted");
            assert!(error.message.contains("too often"), "{error}");
        }
        assert_eq!(world.requests(), usize::from(goes_on), "after {before}");
        let resumes: Vec<_> =
            world.all("execution.started").await.iter().map(|started| started["resume"].clone()).collect();
        assert_eq!(resumes.last(), Some(&json!(before + 1)), "the count is in the log");
        assert_eq!(world.all("tool.unknown").await.len(), 1, "and the call that was lost is settled");
        world.kinds().await;
        // The next input begins anew.
        let next = World::on(world.store.clone(), Script::default().then(answer("New")), Tools::default(), |builder| {
            builder.ids(Counted::from(10_000))
        })
        .await;
        completed(&next.go().await, "New");
    }
}

/// What a reconciler was asked, and what it answers.
#[derive(Clone, Default)]
struct Asked {
    answers: Arc<Mutex<Vec<Reconciled>>>,
    seen: Arc<Mutex<Vec<Value>>>,
}

#[async_trait]
impl Reconciler for Asked {
    async fn reconcile(&self, call: &ToolCall, context: &ToolContext) -> Reconciled {
        let key = context.effect_key().as_str().to_owned();
        self.seen.lock().unwrap().push(json!({"tool": call.name, "key": key, "notes": context.info().notes}));
        let mut answers = self.answers.lock().unwrap();
        if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
    }
}

/// A tool of a class that says under which keys it was run.
fn act(replay: Replay) -> (Tools, Arc<Mutex<Vec<Value>>>) {
    let ran: Arc<Mutex<Vec<Value>>> = Arc::default();
    let tools = Tools::default().define(any("act").replay(replay), {
        let ran = Arc::clone(&ran);
        move |_, context| {
            let info = context.info();
            ran.lock().unwrap().push(json!({"key": context.effect_key().as_str(), "notes": info.notes}));
            std::future::ready(Ok(ToolReturn::text("ran again")))
        }
    });
    (tools, ran)
}

/// 174: a started call whose result was lost runs again, is asked about, or stays unknown: as its class says, the stricter of then and today.
#[tokio::test(start_paused = true)]
async fn a_lost_call_is_dealt_with_as_its_class_says() {
    const HOUR: u64 = 3_600_000;
    let idempotent = || Replay::Idempotent { valid_for: Duration::from_millis(HOUR) };
    let was_idempotent = |valid_for_ms| ReplayClass::Idempotent { valid_for_ms };
    let asked = |answers: Vec<Reconciled>| Asked { answers: Arc::new(Mutex::new(answers)), ..Asked::default() };
    let reconciled = |answers: Vec<Reconciled>| Replay::Reconcile(Arc::new(asked(answers)));
    let happened = || Reconciled::Happened(ToolOutput::text("it happened"));
    let still = || Reconciled::StillRunning;
    // What it was, what it is today, how long ago it was started; whether it runs again, and what the model is told.
    let again = (1, "tool: ran again");
    let unknown = (0, "tool!: The result of this call was lost. It may have acted: check before you call it again.");
    type Case = (&'static str, ReplayClass, Replay, u64, (usize, &'static str));
    let cases: Vec<Case> = vec![
        ("at most once", ReplayClass::AtMostOnce, Replay::AtMostOnce, 1, unknown),
        ("pure", ReplayClass::Pure, Replay::Pure, 1, again),
        ("pure then, not today", ReplayClass::Pure, Replay::AtMostOnce, 1, unknown),
        ("pure today, not then", ReplayClass::AtMostOnce, Replay::Pure, 1, unknown),
        ("idempotent, and remembered", was_idempotent(HOUR), idempotent(), HOUR - 1, again),
        ("idempotent, and forgotten", was_idempotent(HOUR), idempotent(), HOUR + 1, unknown),
        ("idempotent for a shorter time then", was_idempotent(10), idempotent(), 11, unknown),
        ("it happened", ReplayClass::Reconcile, reconciled(vec![happened()]), 1, (0, "tool: it happened")),
        ("it did not", ReplayClass::Reconcile, reconciled(vec![Reconciled::DidNot]), 1, again),
        ("it cannot tell", ReplayClass::Reconcile, reconciled(vec![Reconciled::CannotTell]), 1, unknown),
        (
            "it runs, and then it happened",
            ReplayClass::Reconcile,
            reconciled(vec![still(), still(), happened()]),
            1,
            (0, "tool: it happened"),
        ),
        ("it runs for good", ReplayClass::Reconcile, reconciled(vec![still()]), 1, unknown),
        ("a reconciler today, and none then", ReplayClass::AtMostOnce, reconciled(vec![happened()]), 1, unknown),
    ];
    for (what, was, today, ago, (runs, told)) in cases {
        let store = Held::new();
        left(&store, started_call(0, "act", was)).await;
        let (tools, ran) = act(today);
        let world = World::on(store, Script::default().then(answer("Done")), tools, |builder| builder).await;
        tokio::time::sleep(Duration::from_millis(ago)).await;
        completed(&world.session.run().await.unwrap(), "Done");
        let key = effect_key(world.session.id(), lost_call(0));
        assert_eq!(*ran.lock().unwrap(), vec![json!({"key": key.as_str(), "notes": []}); runs], "{what}");
        assert_eq!(world.said(0)[2], told, "{what}");
        world.kinds().await;
    }
}

/// Whoever is asked about a call that goes on for good is asked a bounded number of times.
#[tokio::test(start_paused = true)]
async fn a_reconciler_is_asked_so_many_times() {
    let store = Held::new();
    left(&store, started_call(0, "act", ReplayClass::Reconcile)).await;
    let asked = Asked { answers: Arc::new(Mutex::new(vec![Reconciled::StillRunning])), ..Asked::default() };
    let (tools, _) = act(Replay::Reconcile(Arc::new(asked.clone())));
    let world = World::on(store, Script::default().then(answer("Done")), tools, |builder| builder).await;
    let began = Instant::now();
    completed(&world.session.run().await.unwrap(), "Done");
    assert_eq!((asked.seen.lock().unwrap().len(), began.elapsed()), (11, Duration::from_secs(10)));
}

/// B103: whoever is asked, or run again, finds the notes that the lost run has left: the handle of what goes on elsewhere.
#[tokio::test(start_paused = true)]
async fn a_remote_handle_is_found_in_the_durable_notes() {
    let noted = || -> Event { ToolNoted { message: lost_step(), call: 0, note: json!({"handle": "h-17"}) }.into() };
    let asked = Asked { answers: Arc::new(Mutex::new(vec![Reconciled::DidNot])), ..Asked::default() };
    let store = Held::new();
    left(&store, started_call(0, "act", ReplayClass::Reconcile).into_iter().chain([noted()]).collect()).await;
    let (tools, ran) = act(Replay::Reconcile(Arc::new(asked.clone())));
    let world = World::on(store, Script::default().then(answer("Done")), tools, |builder| builder).await;
    completed(&world.session.run().await.unwrap(), "Done");
    let key = effect_key(world.session.id(), lost_call(0));
    let notes = json!([{"handle": "h-17"}]);
    assert_eq!(*asked.seen.lock().unwrap(), [json!({"tool": "act", "key": key.as_str(), "notes": notes})]);
    assert_eq!(
        *ran.lock().unwrap(),
        [json!({"key": key.as_str(), "notes": notes})],
        "and so does the run that follows"
    );
    world.kinds().await;
}

/// B007, B063: a log that came from elsewhere lacks an outcome and has one too many; the step and the summary are well-formed all the same.
#[tokio::test(start_paused = true)]
async fn a_broken_log_from_elsewhere_is_usable() {
    let message = MessageId::from_u128(920);
    let said = |number: u128, text: &str| -> Event {
        let content = vec![Content::text(text)];
        InputPromoted { input: InputId::from_u128(number), delivery: Delivery::Steer, content }.into()
    };
    let orphans = || -> Vec<Event> {
        vec![
            said(930, "Go"),
            StepStarted {
                message,
                attempt: 1,
                agent: "tester".to_owned(),
                model: ModelRef::new("script", "m"),
                continues: None,
                last: false,
            }
            .into(),
            ToolInputStarted { message, call: 0, id: "c0".to_owned(), name: "act".to_owned(), hosted: false }.into(),
            ToolInputEnded { message, call: 0, text: "{}".to_owned() }.into(),
            // The result of a call that is nowhere.
            ToolSuccess {
                message,
                call: 7,
                content: vec![Content::text("of nothing")],
                metadata: None,
                bounded: None,
                state: None,
            }
            .into(),
            StepEnded {
                message,
                finish: None,
                raw_finish: None,
                usage: None,
                cost_nanos: None,
                files: None,
                state: None,
            }
            .into(),
        ]
    };
    let expected = ["user: Go", "model: act{}", "tool!: The call has no recorded outcome."];
    let store = Held::new();
    seed(&store, orphans(), SessionState::new(Next::Idle, None)).await;
    let script = Script::default().then(answer("Well")).then(answer("We met")).then(answer("On we go"));
    // In debug builds the runner checks each request as it goes out; a breach panics.
    let world = World::on(store, script, Tools::default(), |builder| builder).await;
    completed(&world.go().await, "Well");
    assert_eq!(world.said(0)[..3], expected);
    world.session.compact().await.unwrap();
    assert_eq!(world.session.run().await.unwrap().outcome, Outcome::Completed);
    assert_eq!(world.said(1)[..3], expected, "the request for the summary");
    assert_eq!(world.the("compaction.ended").await["text"], "We met");
    completed(&world.go().await, "On we go");
}

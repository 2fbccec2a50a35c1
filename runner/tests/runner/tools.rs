//! Running tools: which one runs, what it is told, how it ends, and what becomes of what it gives.

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use settled_ledger::store::EventLog;
use settled_ledger::{LiveEvent, Outcome, Seq, effect_key};
use settled_provider_api::{Content, ErrorClass, Message, ProviderError, ProviderEvent};
use settled_runner::{Follow, OutputSettings, Outputs, Runner, SessionEvent, Settings};
use settled_tools_api::{
    CallKey, Media, OfferTo, SessionId, ToolError, ToolExecutor, ToolOutput, ToolReturn, ToolSource,
};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::common::{Item, Script};
use crate::world::{Tools, World, answer, any, call, calls, completed, stop};

/// The text that the model is shown of the first result.
fn told(world: &World) -> String {
    let request = world.request(1);
    let result = request.messages.iter().find_map(|message| match message.as_ref() {
        Message::Tool(result) => Some(result),
        _ => None,
    });
    result.unwrap().content.iter().filter_map(Content::as_text).collect()
}

/// A source whose offer a test exchanges.
#[derive(Clone)]
struct Exchanged(Arc<Mutex<Arc<dyn ToolExecutor>>>);

#[async_trait]
impl ToolSource for Exchanged {
    async fn offer(&self, _: &OfferTo) -> Result<Arc<dyn ToolExecutor>, Box<dyn Error + Send + Sync>> {
        Ok(Arc::clone(&self.0.lock().unwrap()))
    }
}

/// 31: what was advertised is what runs, once, although its source offers another tool of that name by then.
#[tokio::test(start_paused = true)]
async fn what_was_advertised_is_what_runs() {
    let go = Arc::new(Notify::new());
    let items = [Item::Until(Arc::clone(&go)), call(0, "look").into(), stop().into()];
    let script = Script::default().then(items).then(answer("Seen"));
    let ran = Arc::new(AtomicU64::new(0));
    let old = Tools::default().tool("look", {
        let ran = Arc::clone(&ran);
        move |_, _| {
            ran.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(ToolReturn::text("old")))
        }
    });
    let new = Tools::default().ends("look", Ok(ToolReturn::text("new"))).ends("more", Ok(ToolReturn::text("more")));
    let source = Exchanged(Arc::new(Mutex::new(Arc::new(old))));
    let world = World::with(script, Tools::default(), |builder| builder.tools(source.clone())).await;
    let running = world.begin().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    *source.0.lock().unwrap() = Arc::new(new);
    go.notify_one();
    completed(&running.await.unwrap().unwrap(), "Seen");
    assert_eq!((told(&world).as_str(), ran.load(Ordering::SeqCst)), ("old", 1));
    let offered = |number: usize| world.request(number).tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
    assert_eq!((offered(0), offered(1)), (vec!["look".to_owned()], vec!["look".to_owned(), "more".to_owned()]));
}

/// 38, 232: media are recorded once and sent once, from the content; metadata is never sent.
#[tokio::test(start_paused = true)]
async fn media_are_kept_once_and_sent_once() {
    const IMAGE: &str = "aW1hZ2U=";
    let output = ToolOutput::new([Content::text("a picture"), Content::Media(Media::base64("image/png", IMAGE))]);
    let output = output.with_metadata(json!({"secret": "metadata"}));
    let tools = Tools::default().ends("draw", Ok(output.into()));
    let world = World::new(Script::default().then(calls(&["draw"])).then(answer("Nice")), tools).await;
    completed(&world.go().await, "Nice");
    let log = world.store.read(world.session.id(), Seq::START, 100).await.unwrap();
    let recorded: String = log.iter().map(|row| row.body.as_str()).collect();
    assert_eq!(recorded.matches(IMAGE).count(), 1, "the image is in the log once");
    assert_eq!(world.said(1)[2], "tool: a picture | [image/png]");
    let sent = format!("{:?}", world.request(1).messages);
    assert_eq!(sent.matches(IMAGE).count(), 1, "and in the request once");
    assert!(!sent.contains("secret"), "metadata is for people: {sent}");
}

/// 40: a run that gives no answer of its own leaves its last progress in the text of its outcome.
#[tokio::test(start_paused = true)]
async fn the_last_progress_of_an_unanswered_call_is_kept() {
    let tools = Tools::default()
        .tool("interrupted", |_, context| async move {
            context.progress(json!("half"));
            context.progress(json!("two thirds"));
            context.cancel().cancelled().await;
            Err(ToolError::failed("stopped"))
        })
        .tool("panicked", |_, context| async move {
            context.progress(json!({"done": 2}));
            tokio::task::yield_now().await;
            std::panic::resume_unwind(Box::new("oh"))
        })
        .define(any("late").deadline(Duration::from_secs(9)), |_, context| async move {
            context.progress(json!("two thirds"));
            std::future::pending().await
        });
    let cases = [
        ("interrupted", "The call was interrupted: its last progress was two thirds. It may have acted"),
        ("panicked", "The tool crashed: oh; its last progress was {\"done\":2}. It may have acted"),
        ("late", "and was stopped: it ran longer than 9s; its last progress was two thirds. It may have acted"),
    ];
    for (tool, expected) in cases {
        let world = World::new(Script::default().then(calls(&[tool])).then(answer("Well")), tools.clone()).await;
        let running = world.begin().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        if tool == "interrupted" {
            world.session.interrupt().await.unwrap();
        }
        running.await.unwrap().unwrap();
        let text = world.the("tool.failed").await["content"][0]["text"].as_str().unwrap().to_owned();
        assert!(text.contains(expected), "{tool}: {text}");
    }
}

/// 43: a run is told its effect key, session, step, attempt and tags.
#[tokio::test(start_paused = true)]
async fn a_run_is_told_where_it_belongs() {
    let tools = Tools::default().tool("look", |call, context| async move {
        let info = context.info();
        let seen = json!({
            "session": info.session.as_str(), "step": info.call.step, "ordinal": info.call.ordinal,
            "attempt": info.attempt, "tags": *info.tags, "key": context.effect_key().as_str(), "notes": info.notes,
            "input": call.input, "remaining": context.remaining().map(|left| left.as_secs()),
        });
        Ok(ToolReturn::json(&seen))
    });
    // The first attempt fails before any output, so the call is one of the second.
    let script = Script::default()
        .then([Item::Throw(ProviderError::new(ErrorClass::Overloaded, "busy"))])
        .then(vec![ProviderEvent::tool_call(0, "a", "look", json!({"x": 1})), stop()])
        .then(answer("Seen"));
    let world = World::new(script, tools).await;
    let tags = [("team".to_owned(), "blue".to_owned())];
    let session = world.runner.session_with("tagged", tags.into()).await.unwrap();
    session.input("Go").without_waking().send().await.unwrap();
    completed(&session.run().await.unwrap(), "Seen");
    let log = world.store.read(session.id(), Seq::START, 100).await.unwrap();
    let called = log.iter().find_map(|row| row.event().unwrap().call()).unwrap();
    let result: Value = serde_json::from_str(world.said(2)[2].strip_prefix("tool: ").unwrap()).unwrap();
    let expected = json!({
        "session": "tagged", "step": called.step, "ordinal": 0, "attempt": 2, "tags": {"team": "blue"},
        "key": effect_key(session.id(), called).as_str(), "notes": [], "input": {"x": 1}, "remaining": 600,
    });
    assert_eq!(result, expected);
}

/// A panic whose text panics when it is thrown away: the tool takes its own task down.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("again"));
        }
    }
}

/// 84: a tool whose own task goes down ends the step as interrupted; its siblings finish, and nothing goes on by itself.
#[tokio::test(start_paused = true)]
async fn a_tool_that_is_interrupted_from_inside_ends_the_step() {
    let tools = Tools::default().tool("falls", |_, _| async { std::panic::resume_unwind(Box::new(Bomb)) }).tool(
        "stays",
        |_, _| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(ToolReturn::text("done"))
        },
    );
    let world = World::new(Script::default().then(calls(&["falls", "stays"])), tools).await;
    let settled = world.go().await;
    assert_eq!((settled.outcome, settled.error), (Outcome::Interrupted, None));
    assert_eq!(world.the("tool.failed").await["cause"], "interrupted");
    assert_eq!(world.the("tool.success").await["call"], 1, "the sibling was awaited");
    let failed = world.the("step.failed").await;
    assert_eq!((&failed["settlement"]["class"], &failed["error"]["class"]), (&json!("interrupted"), &json!("aborted")));
    assert_eq!(world.requests(), 1);
    world.kinds().await;
}

/// 132: a cut answer is not gone on with where a tool was interrupted from inside.
#[tokio::test(start_paused = true)]
async fn a_cut_answer_is_not_continued_behind_a_tool_that_was_interrupted_from_inside() {
    for (tool, continued) in [("falls", false), ("stays", true)] {
        let begun = Arc::new(Notify::new());
        let tell = |begun: &Arc<Notify>| {
            let begun = Arc::clone(begun);
            move || begun.notify_one()
        };
        let (falls, stays) = (tell(&begun), tell(&begun));
        let tools = Tools::default()
            .tool("falls", move |_, _| {
                falls();
                async { std::panic::resume_unwind(Box::new(Bomb)) }
            })
            .tool("stays", move |_, _| {
                stays();
                std::future::ready(Ok(ToolReturn::text("done")))
            });
        let cut = Item::Throw(ProviderError::new(ErrorClass::Transport, "reset"));
        let script = Script::default().then([call(0, tool).into(), Item::Until(begun), cut]).then(answer("Well"));
        let world = World::new(script, tools).await;
        world.go().await;
        assert_eq!(world.all("retry.scheduled").await.len(), usize::from(continued), "{tool}");
        assert_eq!(world.requests(), 1 + usize::from(continued), "{tool}");
        world.kinds().await;
    }
}

/// B097: a tool that runs a session of its own settles it before it gives way to a cancel.
#[tokio::test(start_paused = true)]
async fn a_session_inside_a_tool_settles_before_the_one_around_it() {
    let runner: Arc<OnceLock<Runner>> = Arc::default();
    let inner = Arc::clone(&runner);
    let tools = Tools::default().tool("delegate", move |_, context| {
        let runner = Arc::clone(&inner);
        async move {
            let child = runner.get().unwrap().session("child").await.unwrap();
            child.input("Do").without_waking().send().await.unwrap();
            tokio::select! {
                settled = child.run() => Ok(ToolReturn::text(settled.unwrap().answer.unwrap_or_default())),
                () = async { context.cancel().cancelled().await } => {
                    child.interrupt().await.unwrap();
                    child.settled().await.unwrap();
                    Err(ToolError::failed("interrupted"))
                }
            }
        }
    });
    let script = Script::default().then(calls(&["delegate"])).then([Item::Hang]);
    let world = World::new(script, tools).await;
    runner.set(world.runner.clone()).unwrap();
    let running = world.begin().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.runner.active().len(), 2);
    world.session.interrupt().await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().outcome, Outcome::Interrupted);
    let ended = |session: &str| {
        let (store, session) = (world.store.clone(), SessionId::new(session).unwrap());
        async move {
            let log = store.read(&session, Seq::START, 100).await.unwrap();
            log.into_iter().find(|row| row.kind == "step.failed").unwrap()
        }
    };
    let (child, parent) = (ended("child").await, ended("s").await);
    assert!(child.body.contains(r#""class":"interrupted""#), "{}", child.body);
    assert!(child.at <= parent.at);
    assert_eq!(world.runner.active(), []);
    assert_eq!(world.runner.dropped_unsettled(), 0);
}

/// V19: progress that comes behind the outcome is dropped, and so is a note.
#[tokio::test(start_paused = true)]
async fn progress_behind_the_outcome_is_dropped() {
    let kept = Arc::new(Mutex::new(None));
    let tools = Tools::default().tool("chatty", {
        let kept = Arc::clone(&kept);
        move |_, context| {
            context.progress(json!("early"));
            *kept.lock().unwrap() = Some(context);
            std::future::ready(Ok(ToolReturn::text("done")))
        }
    });
    let go = Arc::new(Notify::new());
    let second: Vec<Item> =
        [Item::Until(Arc::clone(&go))].into_iter().chain(answer("Well").into_iter().map(Item::from)).collect();
    let world = World::new(Script::default().then(calls(&["chatty"])).then(second), tools).await;
    let shown = tokio::spawn(progress(world.session.follow(Seq::START)));
    let running = world.begin().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let context = kept.lock().unwrap().clone().unwrap();
    context.progress(json!("late"));
    assert!(context.note(json!("late")).await.is_err(), "it is told that its note is not kept");
    go.notify_one();
    completed(&running.await.unwrap().unwrap(), "Well");
    context.progress(json!("later"));
    assert_eq!(shown.await.unwrap(), [json!("early")]);
    world.kinds().await;
}

/// The progress that a reader sees, until the execution has settled.
async fn progress(mut events: Follow) -> Vec<Value> {
    let mut shown = Vec::new();
    loop {
        match events.next().await.unwrap().unwrap() {
            SessionEvent::Recorded(row) if row.kind == "execution.settled" => return shown,
            SessionEvent::Live(LiveEvent::ToolProgress { progress, .. }) => shown.push(progress.clone()),
            _ => {}
        }
    }
}

/// What cannot be stopped, because it blocks its thread, is reported; the session goes on without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_blocks_its_thread_is_reported_as_leaked() {
    let (unblock, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let begun = Arc::new(Notify::new());
    let tools = Tools::default().tool("block", {
        let begun = Arc::clone(&begun);
        move |_, _| {
            begun.notify_one();
            let _ = blocked.lock().unwrap().recv();
            std::future::ready(Ok(ToolReturn::text("too late")))
        }
    });
    let mut settings = Settings::default();
    settings.cancel_grace = Duration::from_millis(1);
    let script = Script::default().then(calls(&["block"])).then(answer("Well"));
    let world = World::with(script, tools, |builder| builder.settings(settings)).await;
    let running = world.begin().await;
    begun.notified().await;
    world.session.interrupt().await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().outcome, Outcome::Interrupted);
    let leaked: Vec<CallKey> = world.session.leaked();
    assert_eq!(leaked.iter().map(|call| call.ordinal).collect::<Vec<_>>(), [0]);
    assert_eq!(world.session.leaked(), [], "it is said once");
    completed(&world.go().await, "Well");
    unblock.send(()).unwrap();
    assert_eq!(world.the("tool.failed").await["cause"], "interrupted");
    world.kinds().await;
}

/// Keeps outputs, or fails to.
#[derive(Clone, Default)]
struct Shelf {
    kept: Arc<Mutex<Vec<String>>>,
    full: Arc<AtomicBool>,
}

#[async_trait]
impl Outputs for Shelf {
    async fn keep(&self, call: CallKey, text: String) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        if self.full.load(Ordering::SeqCst) {
            return Err("the disk is full".into());
        }
        self.kept.lock().unwrap().push(text);
        Ok(Some(format!("shelf/{}", call.ordinal)))
    }
}

fn small() -> Settings {
    let mut settings = Settings::default();
    settings.output = OutputSettings::default();
    settings.output.lines = 4;
    settings.output.bytes = 40;
    settings
}

/// 74, 240: the port that keeps large outputs fails: what was bounded is delivered, marked lossy, and the step is clean.
#[tokio::test(start_paused = true)]
async fn an_output_that_cannot_be_kept_is_delivered_bounded() {
    let tools = Tools::default().ends("list", Ok(ToolReturn::text("1\n2\n3\n4\n5\n6")));
    for full in [false, true] {
        let shelf = Shelf::default();
        shelf.full.store(full, Ordering::SeqCst);
        let script = Script::default().then(calls(&["list"])).then(answer("Read"));
        let world =
            World::with(script, tools.clone(), |builder| builder.outputs(shelf.clone()).settings(small())).await;
        completed(&world.go().await, "Read");
        let success = world.the("tool.success").await;
        let place = (!full).then(|| json!("shelf/0"));
        assert_eq!(success["bounded"]["kept"], place.clone().unwrap_or(Value::Null));
        assert_eq!((&success["bounded"]["lines"], &success["bounded"]["bytes"]), (&json!(2), &json!(4)));
        let shown = "1\n2\n[2 lines, 4 bytes left out here of 11 bytes in all]\n5\n6";
        assert_eq!(told(&world).replace("[the whole output is kept in shelf/0]", ""), shown);
        assert_eq!(told(&world).contains("shelf/0"), !full, "the model is told where the rest is");
        assert_eq!(*shelf.kept.lock().unwrap(), if full { vec![] } else { vec!["1\n2\n3\n4\n5\n6".to_owned()] });
        assert_eq!(world.kinds().await.iter().filter(|kind| *kind == "step.ended").count(), 2);
    }
}

/// 236, 237, 240, B160, B161, B163, B164: whatever executor gave it, a text is cleaned and bounded in one place.
///
/// Head and tail are shown around a mark, cut between characters; media are kept and not counted; what is within the limits is left alone; the request has what the log has.
#[tokio::test(start_paused = true)]
async fn an_output_is_cleaned_and_bounded_in_one_place() {
    let image = || Content::Media(Media::base64("image/png", "A".repeat(100)));
    let bytes: String = (0..=255_u8).map(char::from).collect();
    let cleaned: String = bytes.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
    let long = format!("{}{}", "ä".repeat(30), "ß".repeat(30));
    let within = "one\ntwo\nthree\nfour";
    let mut wide = small();
    wide.output.bytes = 1_000;
    let cases: [(&str, Settings, Vec<Content>, Vec<Content>); 5] = [
        ("within the limits", small(), vec![Content::text(within), image()], vec![Content::text(within), image()]),
        (
            "too many bytes",
            small(),
            vec![Content::text(long.as_str())],
            vec![Content::text(format!(
                "{}\n[1 lines, 80 bytes left out here of 120 bytes in all]\n{}",
                "ä".repeat(10),
                "ß".repeat(10)
            ))],
        ),
        (
            "too many lines, and media between them",
            small(),
            vec![Content::text("1\n2\n3"), image(), Content::text("4\n5\n6")],
            vec![Content::text("1\n2\n[2 lines, 4 bytes left out here of 11 bytes in all]\n5\n6"), image()],
        ),
        (
            "terminal sequences",
            small(),
            vec![Content::text("\u{1b}[31mred\u{1b}[0m\r\nplain")],
            vec![Content::text("red\nplain")],
        ),
        ("every byte", wide, vec![Content::text(bytes)], vec![Content::text(cleaned.replace('\u{1b}', ""))]),
    ];
    for (what, settings, given, expected) in cases {
        let end = Ok(ToolReturn::Output(ToolOutput::new(given)));
        let script = Script::default().then(calls(&["show"])).then(answer("Seen"));
        let world = World::with(script, Tools::default().ends("show", end), |builder| builder.settings(settings)).await;
        completed(&world.go().await, "Seen");
        let request = world.request(1);
        let Message::Tool(sent) = request.messages[2].as_ref() else { panic!("{what}: no result") };
        let text = |content: &[Content]| content.iter().filter_map(Content::as_text).collect::<String>();
        let controls = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        assert!(!text(&sent.content).contains(controls), "{what}: it is clean");
        if what != "every byte" {
            assert_eq!(sent.content, expected, "{what}");
        }
        let recorded = world.the("tool.success").await["content"].clone();
        assert_eq!(recorded, serde_json::to_value(&sent.content).unwrap(), "{what}: the log has what was sent");
    }
}

/// B044: a schema failure names the place and what was expected there, and the tool is not run.
#[tokio::test(start_paused = true)]
async fn a_schema_failure_names_the_missing_key() {
    let mut definition = any("copy");
    definition.input_schema =
        json!({"type": "object", "required": ["x", "y"], "properties": {"x": {"type": "string"}}});
    let ran = Arc::new(AtomicU64::new(0));
    let tools = Tools::default().define(definition, {
        let ran = Arc::clone(&ran);
        move |_, _| {
            ran.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(ToolReturn::text("ran")))
        }
    });
    let call = ProviderEvent::tool_call(0, "a", "copy", json!({"x": 1}));
    let world = World::new(Script::default().then([call, stop()]).then(answer("Oh")), tools).await;
    completed(&world.go().await, "Oh");
    let failed = world.the("tool.failed").await;
    assert_eq!((&failed["cause"], &failed["detail"]), (&json!("invalid_arguments"), &json!("schema")));
    let text = told(&world);
    for part in ["\"y\"", "`/x`", "string"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert_eq!(ran.load(Ordering::SeqCst), 0);
}

/// B112, B129: the text of a result is never empty; where there was no output, it says so.
#[tokio::test(start_paused = true)]
async fn a_result_is_never_an_empty_text() {
    let cases: [(&str, Result<ToolReturn, ToolError>, &str); 4] = [
        ("an empty failure", Err(ToolError::failed("")), "(no output)"),
        ("an empty success", Ok(ToolReturn::text("")), "(no output)"),
        ("blanks", Ok(ToolReturn::text(" \n")), "(no output)"),
        ("it does not know", Err(ToolError::unknown("")), "(no output)"),
    ];
    for (what, end, expected) in cases {
        let tools = Tools::default().ends("quiet", end);
        let world = World::new(Script::default().then(calls(&["quiet"])).then(answer("Ok")), tools).await;
        completed(&world.go().await, "Ok");
        assert_eq!(told(&world), expected, "{what}");
    }
}

/// 231: notes that a run leaves are never sent.
#[tokio::test(start_paused = true)]
async fn notes_are_never_sent() {
    let tools = Tools::default().tool("order", |_, context| async move {
        context.note(json!({"secret": "order-17"})).await.unwrap();
        Err(ToolError::failed("no answer"))
    });
    let world = World::new(Script::default().then(calls(&["order"])).then(answer("Ok")), tools).await;
    let began = Instant::now();
    completed(&world.go().await, "Ok");
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(world.the("tool.noted").await["note"], json!({"secret": "order-17"}));
    assert_eq!(world.said(1)[2], "tool!: no answer");
    assert!(!format!("{:?}", world.request(1)).contains("order-17"));
}

//! Instructions that change while a session runs: catalogue 246-249, 116, 139, 250.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::Outcome;
use settled_provider_api::{Message, ModelInfo, ModelRef, Request};
use settled_runner::{Agent, Builder, InstructionSource, Runner, Serving, Session, Settings};
use settled_tools_api::{OfferTo, ToolExecutor, ToolSource, Toolbox};

use crate::common::{Counted, Held, Script, VirtualClock, Watched, builder, kinds};
use crate::order::{call, stop, text};

/// What a source says, until it is told otherwise.
#[derive(Clone)]
enum Says {
    Text(&'static str),
    Nothing,
    Unavailable,
    Hangs,
}

/// Sources by key, whose words a test may change.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<BTreeMap<&'static str, Says>>>);

impl Board {
    fn say(&self, key: &'static str, says: Says) {
        self.0.lock().unwrap().insert(key, says);
    }
}

struct Source(Board, &'static str);

#[async_trait]
impl InstructionSource for Source {
    async fn observe(&self, _: &OfferTo) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let says = self.0.0.lock().unwrap().get(self.1).cloned();
        match says {
            Some(Says::Text(text)) => Ok(Some(text.to_owned())),
            Some(Says::Nothing) | None => Ok(None),
            Some(Says::Unavailable) => Err("it is away".into()),
            Some(Says::Hangs) => std::future::pending().await,
        }
    }
}

struct Case {
    script: Script,
    store: Held,
    board: Board,
    session: Session,
}

impl Case {
    /// A session with an agent of two parts and the sources `style` and `date`.
    async fn new(script: Script, info: ModelInfo) -> Self {
        Self::with(script, info, |builder| builder).await
    }

    async fn with(script: Script, info: ModelInfo, more: impl FnOnce(Builder) -> Builder) -> Self {
        let (board, store) = (Board::default(), Held::new());
        let builder = Runner::builder()
            .model(ModelRef::new("script", "m"), script.clone(), info)
            .agent(Agent::new("tester").system("You test.").system("  "))
            .tools(Toolbox::new().with(Watched::default()))
            .instructions("style", Source(board.clone(), "style"))
            .instructions("date", Source(board.clone(), "date"))
            .store(store.clone())
            .clock(VirtualClock::default())
            .ids(Counted::default())
            .serving(Serving::Asked);
        let runner = more(builder).build().unwrap();
        let session = runner.session("s").await.unwrap();
        Self { script, store, board, session }
    }

    async fn say(&self, text: &str) -> settled_runner::Settled {
        self.session.input(text).without_waking().send().await.unwrap();
        self.session.run().await.unwrap()
    }

    /// What the requests hold, one line each.
    fn requests(&self) -> Vec<String> {
        self.script.requests.lock().unwrap().iter().map(|request| shown(request)).collect()
    }
}

fn shown(request: &Request) -> String {
    let messages = request.messages.iter().map(|message| match message.as_ref() {
        Message::System(text) => format!("system: {text}"),
        Message::User(content) => {
            format!("user: {}", content.iter().filter_map(|one| one.as_text()).collect::<String>())
        }
        Message::Assistant(_) => "model".to_owned(),
        Message::Tool(_) => "tool".to_owned(),
    });
    let system = request.system.join(" + ");
    format!("[{system}] {}", messages.collect::<Vec<_>>().join(" | "))
}

fn answers(count: usize) -> Script {
    (0..count).fold(Script::default(), |script, _| script.then(text("Yes").into_iter().chain([stop()])))
}

const NOW: &str = "From now on these instructions hold for `style`, instead of any that were given for it before:\n\n";

/// 246: the agent's parts, then what the sources said first, without what is empty; 248: a change is one message in front of the next input, and the prefix stays.
#[tokio::test(start_paused = true)]
async fn a_change_is_told_once_in_front_of_the_next_input() {
    for (info, role) in [(ModelInfo::new(), "user"), (with_system(), "system")] {
        let case = Case::new(answers(4), info).await;
        case.board.say("style", Says::Text("Use tabs."));
        case.say("One").await;
        case.say("Two").await;
        case.board.say("style", Says::Text("Use spaces."));
        case.board.say("date", Says::Text("It is Monday."));
        case.say("Three").await;
        case.say("Four").await;
        let prefix = "[You test. + Use tabs.]";
        let date = NOW.replace("style", "date");
        let told = format!("{role}: {NOW}Use spaces.\n\n{date}It is Monday.");
        assert_eq!(
            case.requests(),
            [
                format!("{prefix} user: One"),
                format!("{prefix} user: One | model | user: Two"),
                format!("{prefix} user: One | model | user: Two | model | {told} | user: Three"),
                format!("{prefix} user: One | model | user: Two | model | {told} | user: Three | model | user: Four"),
            ]
        );
        let kinds = kinds(&case.store, case.session.id()).await;
        assert_eq!(kinds.iter().filter(|kind| *kind == "instructions.updated").count(), 2);
        let change = kinds.iter().rposition(|kind| kind == "instructions.updated").unwrap();
        assert_eq!(kinds[change + 1], "input.promoted");
    }
}

fn with_system() -> ModelInfo {
    let mut info = ModelInfo::new();
    info.capabilities = info.capabilities.system_in_middle();
    info
}

/// 249: a source that has nothing to say any more is announced; one that cannot be asked, or takes too long, says nothing and keeps its value.
#[tokio::test(start_paused = true)]
async fn gone_is_told_and_unavailable_is_not() {
    let case = Case::new(answers(5), ModelInfo::new()).await;
    case.board.say("style", Says::Text("Use tabs."));
    case.say("One").await;
    case.board.say("style", Says::Unavailable);
    case.say("Two").await;
    case.board.say("style", Says::Hangs);
    case.say("Three").await;
    case.board.say("style", Says::Text("Use tabs."));
    case.say("Four").await;
    case.board.say("style", Says::Nothing);
    case.say("Five").await;
    let before = "[You test. + Use tabs.] user: One | model | user: Two | model | user: Three | model | user: Four";
    let requests = case.requests();
    assert_eq!(requests[3], before);
    let gone = "user: The instructions that were given for `style` no longer hold.";
    assert_eq!(requests[4], format!("{before} | model | {gone} | user: Five"));
}

/// 139: a source that cannot be asked at first: no request, the input stays pending, and a later run answers it.
#[tokio::test(start_paused = true)]
async fn without_a_first_observation_nothing_is_sent() {
    let case = Case::new(answers(1), ModelInfo::new()).await;
    case.board.say("date", Says::Unavailable);
    let settled = case.say("One").await;
    assert_eq!(settled.outcome, Outcome::Failed);
    let error = settled.error.unwrap().to_string();
    assert_eq!(error, "configuration: the instructions `date` are not available: it is away");
    assert_eq!(case.requests(), [""; 0]);
    case.board.say("date", Says::Text("It is Monday."));
    assert_eq!(case.session.run().await.unwrap().outcome, Outcome::Completed);
    assert_eq!(case.requests(), ["[You test. + It is Monday.] user: One"]);
    let kinds = kinds(&case.store, case.session.id()).await;
    assert_eq!(kinds[1..4], ["execution.started", "execution.settled", "execution.started"]);
    assert_eq!(kinds[4..6], ["instructions.updated", "input.promoted"]);
}

/// 41: what changes while tools run is told with their results, in the step that continues.
#[tokio::test(start_paused = true)]
async fn a_change_while_tools_run_is_told_behind_their_results() {
    let script = Script::default().then([call(1, "wait"), stop()]).then(text("Yes").into_iter().chain([stop()]));
    let watched = Watched::default();
    let tools = Toolbox::new().with(watched.clone());
    let mut impatient = Settings::default();
    impatient.tool_deadline = Some(Duration::from_secs(1));
    let case = Case::with(script, ModelInfo::new(), |builder| builder.tools(tools).settings(impatient)).await;
    case.session.input("One").without_waking().send().await.unwrap();
    let running = tokio::spawn({
        let session = case.session.clone();
        async move { session.run().await.unwrap().outcome }
    });
    watched.begun.notified().await;
    case.board.say("style", Says::Text("Use tabs."));
    assert_eq!(running.await.unwrap(), Outcome::Completed);
    let told = format!("user: {NOW}Use tabs.");
    assert_eq!(
        case.requests(),
        ["[You test.] user: One".to_owned(), format!("[You test.] user: One | model | tool | {told}")]
    );
}

/// 250: a compaction puts the prefix anew, so that what held before it is not lost with the messages that told it.
#[tokio::test(start_paused = true)]
async fn a_compaction_puts_what_holds_into_the_prefix() {
    let case = Case::new(answers(4), ModelInfo::new()).await;
    case.board.say("style", Says::Text("Use tabs."));
    case.say("One").await;
    case.board.say("style", Says::Text("Use spaces."));
    case.say("Two").await;
    case.session.compact().await.unwrap();
    case.session.run().await.unwrap();
    case.say("Three").await;
    let requests = case.requests();
    assert!(requests[2].starts_with("[You test. + Use tabs.] "), "{}", requests[2]);
    assert!(requests[3].starts_with("[You test. + Use spaces.] "), "{}", requests[3]);
    assert!(!requests[3].contains("From now on"), "{}", requests[3]);
}

/// A look at the tools on offer ends at an interrupt, as its contract says.
#[tokio::test(start_paused = true)]
async fn an_interrupt_ends_the_look_at_the_tools() {
    let case = Case::with(answers(1), ModelInfo::new(), |builder| builder.tools(Silent)).await;
    case.session.input("One").without_waking().send().await.unwrap();
    let running = tokio::spawn({
        let session = case.session.clone();
        async move { session.run().await.unwrap().outcome }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    case.session.interrupt().await.unwrap();
    assert_eq!(running.await.unwrap(), Outcome::Interrupted);
    assert_eq!(case.requests(), [""; 0]);
    let kinds = kinds(&case.store, case.session.id()).await;
    assert_eq!(kinds[kinds.len() - 3..], ["input.promoted", "interrupt.recorded", "execution.settled"]);
}

/// A source of tools that never answers.
struct Silent;

#[async_trait]
impl ToolSource for Silent {
    async fn offer(&self, _: &OfferTo) -> Result<Arc<dyn ToolExecutor>, Box<dyn Error + Send + Sync>> {
        std::future::pending().await
    }
}

/// A look at the sources ends at an interrupt; the input stays pending.
#[tokio::test(start_paused = true)]
async fn an_interrupt_ends_the_look_at_a_source() {
    let mut patient = Settings::default();
    patient.instructions = Duration::MAX;
    let case = Case::with(answers(1), ModelInfo::new(), |builder| builder.settings(patient)).await;
    case.say("One").await;
    case.board.say("date", Says::Hangs);
    case.session.input("Two").without_waking().send().await.unwrap();
    let running = tokio::spawn({
        let session = case.session.clone();
        async move { session.run().await.unwrap().outcome }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!running.is_finished());
    case.session.interrupt().await.unwrap();
    assert_eq!(running.await.unwrap(), Outcome::Interrupted);
    assert_eq!(case.session.pending().await.unwrap().len(), 1);
    assert_eq!(case.requests().len(), 1);
}

/// The same key twice is an error that names it.
#[tokio::test]
async fn a_key_is_given_once() {
    let (script, board) = (Script::default(), Board::default());
    let built = builder(&script, &Watched::default(), &Held::new(), Settings::default())
        .instructions("style", Source(board.clone(), "style"))
        .instructions("style", Source(board, "style"))
        .build();
    assert_eq!(built.unwrap_err().to_string(), "the instructions `style` are given twice");
}

//! A runner with one session, as a test puts it together: tools as closures, a script, a store.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use settled_ledger::store::{Batch, EventLog, Inbox, NewSession, Next, Ownership, SessionState};
use settled_ledger::{
    BatchId, Delivery, Event, ExecutionId, ExecutionStarted, InputId, InputPromoted, NewRow, Outcome, Seq,
    SessionCreated, StepStarted, Timestamp, ToolCalled, ToolInputEnded, ToolInputStarted, ToolStarted, WorkerId,
};
use settled_provider_api::{
    AssistantPart, Content, FinishReason, Message, ModelInfo, ModelRef, ProviderEvent, Request,
};
use settled_runner::{Agent, Builder, Error, Runner, Serving, Session, Settings, Settled};
use settled_tools_api::{
    CallKey, MessageId, ReplayClass, SessionId, ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor,
    ToolReturn, Toolbox,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::common::{Counted, Held, Script, VirtualClock, kinds};

type Ran = Result<ToolReturn, ToolError>;
type Running = Pin<Box<dyn Future<Output = Ran> + Send>>;
type Execute = Arc<dyn Fn(ToolCall, ToolContext) -> Running + Send + Sync>;

/// Tools as closures.
#[derive(Clone, Default)]
pub struct Tools(Vec<(ToolDefinition, Execute)>);

impl Tools {
    /// One more tool, which takes any object.
    pub fn tool<F, R>(self, name: &str, run: F) -> Self
    where
        F: Fn(ToolCall, ToolContext) -> R + Send + Sync + 'static,
        R: Future<Output = Ran> + Send + 'static,
    {
        self.define(any(name), run)
    }

    /// One more tool, as it is defined.
    pub fn define<F, R>(mut self, definition: ToolDefinition, run: F) -> Self
    where
        F: Fn(ToolCall, ToolContext) -> R + Send + Sync + 'static,
        R: Future<Output = Ran> + Send + 'static,
    {
        self.0.push((definition, Arc::new(move |call, context| Box::pin(run(call, context)))));
        self
    }

    /// One more tool, which always ends the same.
    pub fn ends(self, name: &str, end: Ran) -> Self {
        self.tool(name, move |_, _| std::future::ready(end.clone()))
    }
}

/// A tool that takes any object.
pub fn any(name: &str) -> ToolDefinition {
    ToolDefinition::new(name, "For a test.", json!({"type": "object"}))
}

#[async_trait]
impl ToolExecutor for Tools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        self.0.iter().map(|(definition, _)| definition.clone()).collect()
    }

    async fn execute(&self, call: ToolCall, context: ToolContext) -> Ran {
        let (_, run) = self.0.iter().find(|(definition, _)| definition.name == call.name).unwrap();
        run(call, context).await
    }
}

/// A runner, the session `s`, and what they run on.
pub struct World {
    pub runner: Runner,
    pub session: Session,
    pub script: Script,
    pub store: Held,
}

impl World {
    /// A world in which nothing runs unless it is told to.
    pub async fn new(script: Script, tools: Tools) -> Self {
        Self::with(script, tools, |builder| builder).await
    }

    /// A world of a builder's choice.
    pub async fn with(script: Script, tools: Tools, choose: impl FnOnce(Builder) -> Builder) -> Self {
        Self::on(Held::new(), script, tools, choose).await
    }

    /// A world whose model is known so well.
    pub async fn knowing(info: ModelInfo, settings: Settings, script: Script, tools: Tools) -> Self {
        let store = Held::new();
        let runner = builder(&store, &script, tools, info).settings(settings).build().unwrap();
        let session = runner.session("s").await.unwrap();
        Self { runner, session, script, store }
    }

    /// A world on a store that is there already.
    pub async fn on(store: Held, script: Script, tools: Tools, choose: impl FnOnce(Builder) -> Builder) -> Self {
        let runner = choose(builder(&store, &script, tools, ModelInfo::new())).build().unwrap();
        let session = runner.session("s").await.unwrap();
        Self { runner, session, script, store }
    }

    /// Says something and runs; gives how it went.
    pub async fn go(&self) -> Settled {
        self.say("Go").await;
        self.session.run().await.unwrap()
    }

    /// Waits until the session does nothing more; an hour is too long.
    pub async fn settled(&self) -> Settled {
        timeout(Duration::from_secs(3_600), self.session.settled()).await.expect("it settles").unwrap()
    }

    /// Says something without waking the session.
    pub async fn say(&self, text: &str) -> InputId {
        self.session.input(text).without_waking().send().await.unwrap()
    }

    /// Says something and runs in the background.
    pub async fn begin(&self) -> JoinHandle<Result<Settled, Error>> {
        self.say("Go").await;
        self.run()
    }

    /// Runs in the background.
    pub fn run(&self) -> JoinHandle<Result<Settled, Error>> {
        let session = self.session.clone();
        tokio::spawn(async move { session.run().await })
    }

    /// The kinds of all events, with the checker's word on them.
    pub async fn kinds(&self) -> Vec<String> {
        kinds(&self.store, self.session.id()).await
    }

    /// All events.
    pub async fn events(&self) -> Vec<Event> {
        let log = self.store.read(self.session.id(), Seq::START, 10_000).await.unwrap();
        log.iter().map(|row| row.event().unwrap()).collect()
    }

    /// The fields of every event of a kind.
    pub async fn all(&self, kind: &str) -> Vec<Value> {
        let log = self.store.read(self.session.id(), Seq::START, 10_000).await.unwrap();
        log.iter().filter(|row| row.kind == kind).map(|row| serde_json::from_str(&row.body).unwrap()).collect()
    }

    /// The fields of the one event of a kind.
    pub async fn the(&self, kind: &str) -> Value {
        let mut all = self.all(kind).await;
        assert_eq!(all.len(), 1, "there is one {kind}");
        all.remove(0)
    }

    /// How many requests were made.
    pub fn requests(&self) -> usize {
        self.script.requests.lock().unwrap().len()
    }

    /// A request, counted from 0.
    pub fn request(&self, number: usize) -> Arc<Request> {
        Arc::clone(&self.script.requests.lock().unwrap()[number])
    }

    /// The messages of a request, counted from 0, each as a line.
    pub fn said(&self, number: usize) -> Vec<String> {
        self.request(number).messages.iter().map(|message| show(message)).collect()
    }
}

/// A runner over a store; nothing runs unless it is told to.
fn builder(store: &Held, script: &Script, tools: Tools, info: ModelInfo) -> Builder {
    Runner::builder()
        .model(ModelRef::new("script", "m"), script.clone(), info)
        .tools(Toolbox::new().with(tools))
        .agent(Agent::new("tester"))
        .store(store.clone())
        .clock(VirtualClock::default())
        .ids(Counted::default())
        .serving(Serving::Asked)
}

fn show(message: &Message) -> String {
    let content = |content: &[Content]| {
        let piece = |piece: &Content| match piece {
            Content::Text(text) => text.clone(),
            Content::Media(media) => format!("[{}]", media.mime),
        };
        content.iter().map(piece).collect::<Vec<_>>().join(" | ")
    };
    let part = |part: &AssistantPart| match part {
        AssistantPart::Text(text) => text.text.clone(),
        AssistantPart::Reasoning(text) => format!("({})", text.text),
        AssistantPart::Call(call) => format!("{}{}", call.name, call.input),
        AssistantPart::HostedResult(result) => format!("={}", content(&result.content)),
        AssistantPart::Media(media) => format!("[{}]", media.mime),
    };
    match message {
        Message::System(text) => format!("system: {text}"),
        Message::User(said) => format!("user: {}", content(said)),
        Message::Assistant(parts) => format!("model: {}", parts.iter().map(part).collect::<Vec<_>>().join(" | ")),
        Message::Tool(result) => format!("tool{}: {}", if result.error { "!" } else { "" }, content(&result.content)),
    }
}

/// A call of a tool without arguments.
pub fn call(index: u32, tool: &str) -> ProviderEvent {
    ProviderEvent::tool_call(index, format!("call_{index}"), tool, json!({}))
}

/// A whole block of text.
pub fn text(text: &str) -> [ProviderEvent; 3] {
    [ProviderEvent::text_start(0), ProviderEvent::text_delta(0, text), ProviderEvent::text_end(0)]
}

/// An end that is complete.
pub fn stop() -> ProviderEvent {
    ProviderEvent::finish(FinishReason::Stop, None)
}

/// A whole answer of one text.
pub fn answer(said: &str) -> Vec<ProviderEvent> {
    text(said).into_iter().chain([stop()]).collect()
}

/// A whole answer that calls tools.
pub fn calls(tools: &[&str]) -> Vec<ProviderEvent> {
    (0..).zip(tools).map(|(index, tool)| call(index, tool)).chain([stop()]).collect()
}

/// A log that a process has left in the middle of the session `s`: a prompt, a step, and what was said of it.
pub async fn left(store: &Held, said: Vec<Event>) {
    left_after(store, 0, said).await;
}

/// The same, where the execution was taken up again so many times.
pub async fn left_after(store: &Held, resumes: u32, said: Vec<Event>) {
    let execution = ExecutionId::from_u128(900);
    let promoted =
        InputPromoted { input: InputId::from_u128(901), delivery: Delivery::Steer, content: vec![Content::text("Go")] };
    let begun = StepStarted {
        message: lost_step(),
        attempt: 1,
        agent: "tester".to_owned(),
        model: ModelRef::new("script", "m"),
        continues: None,
        last: false,
    };
    let mut events: Vec<Event> = vec![ExecutionStarted { execution, resume: 0 }.into(), promoted.into(), begun.into()];
    events.extend(said);
    events.extend((1..=resumes).map(|resume| ExecutionStarted { execution, resume }.into()));
    seed(store, events, SessionState::new(Next::Runnable, Some(execution))).await;
}

/// The session `s` with a log that somebody else has written.
pub async fn seed(store: &Held, events: Vec<Event>, state: SessionState) {
    let session = SessionId::new("s").unwrap();
    let created =
        SessionCreated { agent: "tester".to_owned(), model: ModelRef::new("script", "m"), tags: Default::default() };
    let rows = |events: Vec<Event>| -> Vec<_> {
        events.iter().map(|event| NewRow::encode(event, Timestamp::from_millis(1_800_000_000_000)).unwrap()).collect()
    };
    store.create(&session, NewSession::new(rows(vec![created.into()]), Default::default())).await.unwrap();
    let lease = Duration::from_secs(1);
    let claimed = store.claim(WorkerId::from_u128(902), lease, &session).await.unwrap();
    let mut batch = Batch::new(BatchId::from_u128(903), rows(events));
    batch.state = Some(state);
    store.append(&claimed.fence, claimed.head, batch).await.unwrap();
    store.release(&claimed.fence).await.unwrap();
    assert_eq!(store.pending(&session).await.unwrap(), []);
    store.batches.lock().unwrap().clear();
}

/// The step that a process has left.
pub fn lost_step() -> MessageId {
    MessageId::from_u128(910)
}

/// A call of that step, up to its start.
pub fn started_call(ordinal: u32, tool: &str, replay: ReplayClass) -> Vec<Event> {
    let message = lost_step();
    vec![
        ToolInputStarted { message, call: ordinal, id: format!("c{ordinal}"), name: tool.to_owned(), hosted: false }
            .into(),
        ToolInputEnded { message, call: ordinal, text: "{}".to_owned() }.into(),
        ToolCalled {
            message,
            call: ordinal,
            name: tool.to_owned(),
            input: json!({}),
            hosted: false,
            replay: Some(replay),
            state: None,
        }
        .into(),
        ToolStarted { message, call: ordinal }.into(),
    ]
}

/// The key of a call of that step.
pub fn lost_call(ordinal: u32) -> CallKey {
    CallKey { step: lost_step(), ordinal }
}

/// It went well.
#[track_caller]
pub fn completed(settled: &Settled, answer: &str) {
    assert_eq!((settled.outcome, settled.answer.as_deref()), (Outcome::Completed, Some(answer)), "{settled:?}");
}

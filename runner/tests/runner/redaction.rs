//! What must not be kept: nothing of it is stored, traced, or sent to a model.

use std::error::Error;
use std::fmt::Write;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::json;
use settled_ledger::store::{Catalog, EventLog, FoldCache, Inbox};
use settled_ledger::{Delivery, Outcome, Seq};
use settled_provider_api::{ErrorClass, ProviderError, ProviderEvent};
use settled_runner::{InstructionSource, KnownSecrets, Outputs, Settings};
use settled_tools_api::{
    CallKey, Decision, OfferTo, Policy, PolicyCall, ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor,
    ToolOutput, ToolReturn, Toolbox,
};

use crate::common::{Counted, Held, Item, Script, Watched, builder, kinds};
use crate::order::{stop, text};

const SECRET: &str = "hunter2-hunter2";

/// Says the secret wherever a tool may say something.
#[derive(Clone, Default)]
struct Talkative(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl ToolExecutor for Talkative {
    fn definitions(&self) -> Vec<ToolDefinition> {
        ["tell", "fail", "ask", "panic", "careful"]
            .map(|name| ToolDefinition::new(name, "For a test.", json!({"type": "object"})))
            .into()
    }

    async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError> {
        self.0.lock().unwrap().push(format!("{} {}", call.name, call.input));
        context.progress(json!({"at": SECRET}));
        context.note(json!({"noted": SECRET})).await.unwrap();
        match call.name.as_str() {
            // Too long, with the secret where it is cut.
            "tell" => {
                // A terminal's colour stands within it, too.
                let long = format!(
                    "hunter2-\u{1b}[1mhunter2\u{1b}[0m {}{SECRET}{}",
                    "x".repeat(25 * 1_024 - 7),
                    "y".repeat(50 * 1_024)
                );
                let mut output = ToolOutput::text(long);
                output.metadata = Some(json!({"deep": [{"er": SECRET}]}));
                Ok(ToolReturn::Output(output))
            }
            "fail" => Err(ToolError::failed(format!("the password {SECRET} is wrong"))),
            "panic" => panic!("{SECRET}"),
            "ask" if call.answered.is_none() => Ok(ToolReturn::ask(format!("is it {SECRET}?"), json!({"is": SECRET}))),
            _ => Ok(ToolReturn::text(SECRET)),
        }
    }
}

struct AskAboutCareful;

#[async_trait]
impl Policy for AskAboutCareful {
    async fn decide(&self, call: &PolicyCall) -> Decision {
        if call.name == "careful" { Decision::Ask(format!("with {SECRET}?")) } else { Decision::Allow }
    }
}

struct Whispering;

#[async_trait]
impl InstructionSource for Whispering {
    async fn observe(&self, _: &OfferTo) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        Ok(Some(format!("Never say {SECRET}.")))
    }
}

#[derive(Clone, Default)]
struct Shelf(Arc<Mutex<Vec<String>>>);

#[async_trait]
impl Outputs for Shelf {
    async fn keep(&self, _: CallKey, text: String) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        self.0.lock().unwrap().push(text);
        Ok(Some("shelf".to_owned()))
    }
}

fn tool(index: u32, name: &str) -> ProviderEvent {
    ProviderEvent::tool_call(index, format!("call_{index}"), name, json!({"with": SECRET, "and": [SECRET, 7]}))
}

fn error(class: ErrorClass) -> ProviderError {
    ProviderError::new(class, format!("the key {SECRET} is not known"))
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_nowhere() {
    let said = [
        ProviderEvent::reasoning_start(0),
        ProviderEvent::reasoning_delta(0, "I know hunter2-"),
        ProviderEvent::reasoning_delta(0, "hunter2"),
        ProviderEvent::reasoning_end(0, None),
        ProviderEvent::text_start(1),
        ProviderEvent::text_delta(1, "It is hunter2-hun"),
        ProviderEvent::text_delta(1, "ter2."),
        ProviderEvent::text_end(1),
    ];
    let raw = [
        ProviderEvent::tool_input_start(6, "call_6", "tell"),
        ProviderEvent::tool_input_delta(6, r#"{"with": "hunter2-"#),
        ProviderEvent::tool_input_delta(6, r#"\u0068unter2"}"#),
        ProviderEvent::tool_input_end(6),
        ProviderEvent::tool_call(6, "call_6", "tell", json!({"with": SECRET})),
    ];
    let calls = [tool(2, "tell"), tool(3, "fail"), tool(4, "panic"), tool(5, "nobody")];
    let calls = calls.into_iter().chain(raw).chain([stop()]);
    let parked = text("Wait").into_iter().chain([tool(1, "ask"), tool(2, "careful"), stop()]);
    let script = Script::default()
        .then([Item::Throw(error(ErrorClass::RateLimit))])
        .then(said.into_iter().chain(calls))
        .then(parked);
    let (tools, store, shelf) = (Talkative::default(), Held::new(), Shelf::default());
    let open = |script: &Script, ids: u64| {
        let mut settings = Settings::default();
        settings.cache_every = 1;
        let built = builder(script, &Watched::default(), &store, settings)
            .tools(Toolbox::new().with(tools.clone()))
            .policy(AskAboutCareful)
            .instructions("rules", Whispering)
            .outputs(shelf.clone())
            .fold_cache(store.inner.clone())
            .redactor(KnownSecrets::new([SECRET]))
            .ids(Counted::from(ids));
        built.build().unwrap()
    };
    let session = open(&script, 0).session("s").await.unwrap();
    session.input(format!("My password is {SECRET}.")).without_waking().send().await.unwrap();
    session.notice(format!("{SECRET} was set"), Delivery::Steer).await.unwrap();
    assert_eq!(session.run().await.unwrap().outcome, Outcome::Parked);

    // Another process: the person's answers, a summary, and a failure.
    let summary = text("They said hunter2-hunter2").into_iter().chain([stop()]);
    let later = Script::default()
        .then(text("Done").into_iter().chain([stop()]))
        .then(summary)
        .then([Item::Event(ProviderEvent::Error(error(ErrorClass::Auth)))]);
    let session = open(&later, 1_000).session("s").await.unwrap();
    for waiting in session.waiting().await.unwrap() {
        assert!(!format!("{waiting:?}").contains(SECRET), "{waiting:?}");
        match waiting.kind {
            settled_ledger::InteractionKind::Approval => session.approve(waiting.call).await.unwrap(),
            _ => session.answer(waiting.call, SECRET).await.unwrap(),
        };
    }
    assert_eq!(session.run().await.unwrap().outcome, Outcome::Completed);
    session.compact().await.unwrap();
    session.run().await.unwrap();
    session.input(SECRET).without_waking().send().await.unwrap();
    let settled = session.run().await.unwrap();
    assert_eq!(settled.outcome, Outcome::Failed);
    session.input(format!("queued {SECRET}")).queue().without_waking().send().await.unwrap();

    let mut kept = String::new();
    for row in store.read(session.id(), Seq::START, 10_000).await.unwrap() {
        writeln!(kept, "{}", row.to_json().unwrap()).unwrap();
    }
    writeln!(kept, "{:?}", store.pending(session.id()).await.unwrap()).unwrap();
    writeln!(kept, "{:?}", store.info(session.id()).await.unwrap()).unwrap();
    writeln!(kept, "{:?}", store.inner.kept(session.id()).await.unwrap()).unwrap();
    writeln!(kept, "{:?}", shelf.0.lock().unwrap()).unwrap();
    for requests in [&script.requests, &later.requests] {
        writeln!(kept, "{:?}", requests.lock().unwrap()).unwrap();
    }
    writeln!(kept, "{settled:?} {:?}", tools.0.lock().unwrap()).unwrap();
    let lines: Vec<_> = kept.lines().filter(|line| line.contains("hunter2") || line.contains("u0068unter2")).collect();
    assert_eq!(lines, [""; 0]);
    // The test sees what it looks for, and every place has said something.
    let kinds = kinds(&store, session.id()).await;
    for kind in [
        "retry.scheduled",
        "reasoning.ended",
        "text.ended",
        "tool.input.ended",
        "tool.called",
        "tool.noted",
        "tool.success",
        "tool.failed",
        "interaction.requested",
        "interaction.answered",
        "instructions.updated",
        "input.promoted",
        "compaction.ended",
        "step.failed",
        "execution.settled",
    ] {
        assert!(kinds.iter().any(|one| one == kind), "no {kind}");
        let hidden =
            kept.lines().any(|line| line.contains(&format!("\"type\":\"{kind}\"")) && line.contains("[redacted]"));
        assert!(hidden, "nothing was hidden in {kind}");
    }
    // What was approved is what ran, also in another process: the arguments without the secret.
    let ran = tools.0.lock().unwrap().join("\n");
    assert!(ran.contains(r#"careful {"and":["[redacted]",7],"with":"[redacted]"}"#), "{ran}");
}

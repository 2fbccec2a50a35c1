//! Scripted providers and tools by themselves, without a runner, on tokio's paused clock.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::future::poll_fn;
use std::sync::Arc;

use serde_json::json;
use settled_provider_api::{
    ErrorClass, Message, ModelRef, Provider, ProviderError, ProviderEvent, ProviderStream, Purpose, Request,
};
use settled_testkit::{ScriptedTools, reconciled, script, tools};
use settled_tools_api::{
    CallKey, CancelSource, EffectKey, MessageId, NoteError, Reconciled, ReplayClass, RunInfo, SessionId, ToolCall,
    ToolContext, ToolError, ToolExecutor, ToolHost, ToolReturn,
};
use tokio::time::Instant;

fn request(text: &str) -> Arc<Request> {
    let purpose = Purpose::step(SessionId::new("s").unwrap(), MessageId::from_u128(1));
    let mut request = Request::new(ModelRef::new("script", "model"), purpose);
    request.messages.push(Arc::new(Message::user(text)));
    Arc::new(request)
}

async fn next(stream: &mut ProviderStream) -> Option<Result<ProviderEvent, ProviderError>> {
    poll_fn(|context| stream.as_mut().poll_next(context)).await
}

#[tokio::test(start_paused = true)]
async fn a_stream_waits_for_its_time_and_its_gate() {
    let broken = ProviderError::new(ErrorClass::Transport, "broken");
    let provider = script().step(|s| s.text_start("t").wait(500).gate("go").throw(broken.clone())).provider();
    let began = Instant::now();
    let mut stream = provider.stream(request("Hello")).await.unwrap();
    assert_eq!(next(&mut stream).await, Some(Ok(ProviderEvent::text_start(0))));
    let opener = provider.clone();
    tokio::spawn(async move {
        tokio::time::sleep(std::time::Duration::from_millis(800)).await;
        opener.open("go");
    });
    assert_eq!(next(&mut stream).await, Some(Err(broken)));
    assert_eq!(next(&mut stream).await, None);
    assert_eq!(began.elapsed().as_millis(), 800);
    provider.assert_exhausted();
    assert_eq!(provider.requests(), [request("Hello")]);
}

#[tokio::test(start_paused = true)]
async fn blocks_of_one_name_are_one_block_while_it_is_open() {
    let provider = script()
        .step(|s| {
            s.text_start("t").text_delta("t", "a").text_end("t", None).text_start("t").call("x", json!({})).finish()
        })
        .provider();
    let mut stream = provider.stream(request("Hello")).await.unwrap();
    let mut events = Vec::new();
    while let Some(Ok(event)) = next(&mut stream).await {
        events.push(event);
    }
    assert_eq!(
        events,
        [
            ProviderEvent::text_start(0),
            ProviderEvent::text_delta(0, "a"),
            ProviderEvent::text_end(0),
            ProviderEvent::text_start(1),
            ProviderEvent::tool_input_start(2, "x", "x"),
            ProviderEvent::tool_input_delta(2, "{}"),
            ProviderEvent::tool_input_end(2),
            ProviderEvent::tool_call(2, "x", "x", json!({})),
            ProviderEvent::finish(settled_provider_api::FinishReason::ToolCalls, None),
        ]
    );
}

#[tokio::test]
async fn what_is_wrong_with_requests_is_said() {
    let provider = script().summary("Short.").provider();
    let _stream = provider.stream(request("")).await.unwrap();
    let beyond = provider.stream(request("More")).await.map(drop).unwrap_err();
    assert_eq!(beyond.class, ErrorClass::InvalidRequest);
    let faults = provider.faults();
    assert!(
        faults[0].starts_with("request 1: I3 (every request is well-formed) is broken: message 0 (user)"),
        "{faults:?}"
    );
    assert_eq!(
        faults[faults.len() - 2..],
        [
            "request 1: entry 0 is for a Summary, and a Step was asked for".to_owned(),
            "request 2: the script has 1 entries only".to_owned(),
        ]
    );
}

#[test]
#[should_panic(
    expected = "the script was not followed: only 0 of 1 entries of the script were used; entry 1 is left, written at"
)]
fn a_script_that_is_left_over_fails_the_test() {
    script().step(|s| s.finish()).provider().assert_exhausted();
}

struct Host;

#[async_trait::async_trait]
impl ToolHost for Host {
    fn progress(&self, _: serde_json::Value) {}

    async fn note(&self, _: serde_json::Value) -> Result<(), NoteError> {
        Ok(())
    }

    fn remaining(&self) -> Option<std::time::Duration> {
        None
    }
}

fn context(cancel: &CancelSource) -> ToolContext {
    let call = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
    let info = RunInfo::new(EffectKey::new("key").unwrap(), SessionId::new("s").unwrap(), call);
    ToolContext::new(info, cancel.signal(), Arc::new(Host))
}

async fn execute(tools: &ScriptedTools, call: ToolCall) -> Result<ToolReturn, ToolError> {
    tools.execute(call, context(&CancelSource::new())).await
}

#[tokio::test(start_paused = true)]
async fn a_run_goes_on_behind_its_question_and_counts_once() {
    let tools = tools().tool("pick", |run| run.effect().ask("Which?").effect().echo());
    let asked = execute(&tools, ToolCall::new("pick", json!({"a": 1}))).await.unwrap();
    let ToolReturn::Ask(ask) = asked else { panic!("it must ask, and gave {asked:?}") };
    let again = ToolCall::new("pick", json!({"a": 1})).answered(ask.state, "this one");
    assert_eq!(execute(&tools, again).await, Ok(ToolReturn::text("this one")));
    assert_eq!((tools.runs("pick"), tools.effects("pick")), (1, 2));
    assert_eq!(tools.calls().values().next().unwrap().keys.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cancel_is_noticed_at_once_or_as_late_as_the_script_says() {
    let check = async |tools: ScriptedTools, expected: u128| {
        let cancel = CancelSource::new();
        let began = Instant::now();
        let run = tokio::spawn({
            let context = context(&cancel);
            async move { tools.execute(ToolCall::new("t", json!({})), context).await }
        });
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        cancel.cancel();
        assert!(run.await.unwrap().is_err());
        assert_eq!(began.elapsed().as_millis(), expected);
    };
    check(tools().tool("t", |run| run.hang()), 100).await;
    check(tools().tool("t", |run| run.sleep(5_000).ok("late")), 100).await;
    check(tools().tool("t", |run| run.ignore_cancel(300).sleep(5_000)), 400).await;
}

#[test]
fn a_reconciler_makes_its_class() {
    assert_eq!(reconciled(Reconciled::DidNot).class(), ReplayClass::Reconcile);
}

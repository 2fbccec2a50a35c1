//! A first look at a whole session; the scenario files say the rest.
#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures_core::Stream;
use serde_json::json;
use settled_ledger::store::EventLog;
use settled_ledger::{Outcome, Seq};
use settled_provider_api::{
    FinishReason, ModelInfo, ModelRef, Provider, ProviderError, ProviderEvent, ProviderStream, Request,
};
use settled_runner::{Runner, SystemClock};
use settled_store_memory::MemoryStore;
use settled_tools_api::{ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolReturn, Toolbox};

struct Scripted(Mutex<VecDeque<Vec<ProviderEvent>>>);

#[async_trait]
impl Provider for Scripted {
    async fn stream(&self, _: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        Ok(Box::pin(Events(self.0.lock().unwrap().pop_front().unwrap().into())))
    }
}

struct Events(VecDeque<ProviderEvent>);

impl Stream for Events {
    type Item = Result<ProviderEvent, ProviderError>;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

struct Echo;

#[async_trait]
impl ToolExecutor for Echo {
    fn definitions(&self) -> Vec<ToolDefinition> {
        vec![ToolDefinition::new("echo", "Says it again.", json!({"type": "object"}))]
    }
    async fn execute(&self, call: ToolCall, _: ToolContext) -> Result<ToolReturn, ToolError> {
        Ok(ToolReturn::json(&call.input))
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_loop_settles() {
    let script = [
        vec![
            ProviderEvent::text_start(0),
            ProviderEvent::text_delta(0, "Let me see."),
            ProviderEvent::text_end(0),
            ProviderEvent::tool_call(1, "a", "echo", json!({"x": 1})),
            ProviderEvent::tool_call(2, "b", "echo", json!({"x": 2})),
            ProviderEvent::finish(FinishReason::ToolCalls, None),
        ],
        vec![
            ProviderEvent::text_start(0),
            ProviderEvent::text_delta(0, "Done"),
            ProviderEvent::finish(FinishReason::Stop, None),
        ],
    ];
    let store = MemoryStore::new(Arc::new(SystemClock::default()));
    let runner = Runner::builder()
        .model(ModelRef::new("p", "m"), Scripted(Mutex::new(script.into())), ModelInfo::new())
        .tools(Toolbox::new().with(Echo))
        .store(store.clone())
        .build()
        .unwrap();
    let session = runner.session("s").await.unwrap();
    session.prompt("Hello").await.unwrap();
    let settled = session.settled().await.unwrap();
    let log = store.read(session.id(), Seq::START, 1000).await.unwrap();
    for row in &log {
        println!("{}", row.to_json().unwrap());
    }
    assert_eq!((settled.outcome, settled.answer.as_deref()), (Outcome::Completed, Some("Done")));
    assert_eq!(settled_ledger::check::check_log(&log), []);
    assert_eq!(runner.dropped_unsettled(), 0);
}

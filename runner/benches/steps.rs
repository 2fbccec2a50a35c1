//! What a step costs: K steps of T pieces of text and four parallel calls, on the memory store, without a network.
//!
//! It prints the processor-free wall time of a step for a short and a long history, and their ratio (goal: at most 3).
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark prints, and may stop at what it did not expect"
)]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_core::Stream;
use serde_json::json;
use settled_provider_api::{
    FinishReason, ModelInfo, ModelRef, Provider, ProviderError, ProviderEvent, ProviderStream, Request, Usage,
};
use settled_runner::{Agent, Runner, Serving, SystemClock};
use settled_store_memory::MemoryStore;
use settled_tools_api::{ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolReturn, Toolbox};

const PIECES: usize = 200;
const CALLS: u32 = 4;
const ROUNDS: usize = 7;

/// Calls tools for so many steps, then stops.
struct Model(AtomicUsize);

#[async_trait]
impl Provider for Model {
    async fn stream(&self, _: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        let left = self.0.fetch_sub(1, Ordering::Relaxed);
        Ok(Box::pin(Answer { at: 0, calls: if left > 1 { CALLS } else { 0 } }))
    }
}

struct Answer {
    at: usize,
    calls: u32,
}

impl Stream for Answer {
    type Item = Result<ProviderEvent, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let at = self.at;
        self.at += 1;
        let call = at.checked_sub(PIECES + 2).and_then(|call| u32::try_from(call).ok());
        Poll::Ready(Some(Ok(match at {
            0 => ProviderEvent::text_start(0),
            _ if at <= PIECES => ProviderEvent::text_delta(0, "eighteen bytes are "),
            _ if at == PIECES + 1 => ProviderEvent::text_end(0),
            _ => match call {
                Some(call) if call < self.calls => {
                    ProviderEvent::tool_call(call + 1, format!("call_{call}"), "echo", json!({"text": "hello"}))
                }
                Some(call) if call == self.calls => {
                    let reason = if self.calls > 0 { FinishReason::ToolCalls } else { FinishReason::Stop };
                    ProviderEvent::finish(reason, Usage::new(1_000, 200))
                }
                _ => return Poll::Ready(None),
            },
        })))
    }
}

struct Echo;

#[async_trait]
impl ToolExecutor for Echo {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        vec![ToolDefinition::new("echo", "Says it again.", schema)]
    }

    async fn execute(&self, call: ToolCall, _: ToolContext) -> Result<ToolReturn, ToolError> {
        Ok(ToolReturn::json(&call.input))
    }
}

/// Runs so many steps and gives the time of one.
fn run(steps: usize) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let runner = Runner::builder()
            .model(ModelRef::new("bench", "m"), Model(AtomicUsize::new(steps)), ModelInfo::new())
            .tools(Toolbox::new().with(Echo))
            .agent(Agent::new("bench").max_steps(u32::MAX))
            .store(MemoryStore::new(Arc::new(SystemClock::default())))
            .serving(Serving::Asked)
            .build()
            .unwrap();
        let session = runner.session("bench").await.unwrap();
        session.prompt("Go").await.unwrap();
        let began = Instant::now();
        let settled = session.run().await.unwrap();
        let took = began.elapsed();
        assert_eq!(settled.error, None);
        took / u32::try_from(steps).unwrap()
    })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn main() {
    let (mut short, mut middle, mut long) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        short.push(run(10));
        middle.push(run(50));
        long.push(run(1_000));
    }
    let (short, middle, long) = (median(short), median(middle), median(long));
    println!("a step with {PIECES} pieces and {CALLS} calls, median of {ROUNDS} rounds:");
    println!("  K=10    {short:?}\n  K=50    {middle:?}\n  K=1000  {long:?}");
    println!("  K=1000 / K=10: {:.2} (goal: at most 3)", long.as_secs_f64() / short.as_secs_f64());
}

//! The wall time of a step of one session: its two waited commits are all that it should cost.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use async_trait::async_trait;
use futures_core::Stream;
use serde_json::json;
use settled_ledger::store::EventLog;
use settled_ledger::{Recorded, Seq};
use settled_provider_api::{
    FinishReason, ModelInfo, ModelRef, Provider, ProviderError, ProviderEvent, ProviderStream, Request, Usage,
};
use settled_runner::{Agent, Builder, Runner, Serving};
use settled_store_sqlite::SqliteStore;
use settled_tools_api::{ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolReturn, Toolbox};

use crate::bare::{commit, tables};
use crate::{Goal, Line, millis};

/// Measures steps of some text and one call.
pub(crate) fn measure(rounds: usize, steps: usize) {
    let mut line = Line::new(
        "step: one session, some text and a call, against two bare commits of its rows",
        "ms",
        Goal::AtMost(1.3),
    );
    for _ in 0..rounds {
        let (figure, log) = run(steps);
        line.round(bare(&log) / steps as f64, figure);
    }
    line.print();
}

/// Runs so many steps; the time of one in ms, and the log.
pub(crate) fn run(steps: usize) -> (f64, Vec<Recorded>) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("sessions.db")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let runner = builder(steps).store(store.clone()).build().unwrap();
        let session = runner.session("bench").await.unwrap();
        session.prompt("Go").await.unwrap();
        let began = Instant::now();
        let settled = session.run().await.unwrap();
        let took = millis(began) / steps as f64;
        assert_eq!(settled.error, None);
        let log = store.read(session.id(), Seq::START, usize::MAX).await.unwrap();
        (took, log)
    })
}

/// A runner that runs when it is told to, with a model that makes so many steps.
pub(crate) fn builder(steps: usize) -> Builder {
    Runner::builder()
        .model(ModelRef::new("bench", "m"), Model(AtomicUsize::new(steps)), ModelInfo::new())
        .tools(Toolbox::new().with(Echo))
        .agent(Agent::new("bench").max_steps(u32::MAX))
        .serving(Serving::Asked)
}

/// The same rows in the same commits, and nothing else; the time of all in ms.
fn bare(log: &[Recorded]) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let db = tables(&folder.path().join("sessions.db"), 1);
    // A step is recorded with its stream's end and its calls' start, and with its terminal and the next step's start.
    let batches = log.split_inclusive(|row| row.kind == "step.streamed" || row.kind == "step.started");
    let batches = batches.map(|batch| {
        commit(&db, |bare| {
            let (mut seq, mut event) = (0, 0);
            for row in batch {
                seq = row.seq.get() as i64;
                event = bare.put(1, seq, &row.kind, &row.body);
            }
            bare.end(1, seq, event, seq as u128);
        })
    });
    batches.sum()
}

/// Says something and calls a tool for so many steps, then stops.
struct Model(AtomicUsize);

#[async_trait]
impl Provider for Model {
    async fn stream(&self, _: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        let last = self.0.fetch_sub(1, Ordering::Relaxed) <= 1;
        let mut events = vec![ProviderEvent::text_start(0)];
        events.extend((0..20).map(|_| ProviderEvent::text_delta(0, "eighteen bytes are ")));
        events.push(ProviderEvent::text_end(0));
        if !last {
            events.push(ProviderEvent::tool_call(1, "call_1", "echo", json!({"text": "hello"})));
        }
        let reason = if last { FinishReason::Stop } else { FinishReason::ToolCalls };
        events.push(ProviderEvent::finish(reason, Usage::new(1_000, 200)));
        Ok(Box::pin(Answer(events.into_iter())))
    }
}

struct Answer(std::vec::IntoIter<ProviderEvent>);

impl Stream for Answer {
    type Item = Result<ProviderEvent, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next().map(Ok))
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

//! Running tools: one task each, with its limits, its host, and its end reported for certain.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use settled_ledger::ToolOutcome;
use settled_tools_api::{
    CallKey, CancelSignal, CancelSource, Concurrency, NoteError, RunInfo, ToolCall, ToolContext, ToolDefinition,
    ToolError, ToolExecutor, ToolHost, ToolOutput, ToolReturn,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::Instrument;

use crate::bound::bound;
use crate::outputs::Outputs;
use crate::redaction::Redaction;
use crate::settings::{OutputSettings, Settings};

/// What a running tool tells the step.
pub(crate) enum ToolMessage {
    Progress(CallKey, Value),
    Note(CallKey, Value, oneshot::Sender<Result<(), NoteError>>),
    Done(CallKey, RunEnd),
}

/// How a run ended.
pub(crate) enum RunEnd {
    Outcome(ToolOutcome),
    /// Its task was stopped, and not by us.
    Vanished,
}

/// The runs of one step.
pub(crate) struct ToolRuns {
    /// Made with the first run: most steps have none, and a channel is large.
    channel: Option<(mpsc::UnboundedSender<ToolMessage>, mpsc::UnboundedReceiver<ToolMessage>)>,
    running: BTreeMap<CallKey, Running>,
}

struct Running {
    cancel: CancelSource,
    task: JoinHandle<()>,
    exclusive: bool,
    last_progress: Option<Value>,
}

/// One run as it is to be started.
pub(crate) struct Run {
    pub(crate) key: CallKey,
    pub(crate) call: ToolCall,
    pub(crate) info: RunInfo,
    pub(crate) definition: ToolDefinition,
    pub(crate) tools: Arc<dyn ToolExecutor>,
    pub(crate) outputs: Arc<dyn Outputs>,
    pub(crate) redaction: Redaction,
    pub(crate) span: tracing::Span,
}

impl ToolRuns {
    pub(crate) fn new() -> Self {
        Self { channel: None, running: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// Whether a tool that must run alone runs.
    pub(crate) fn has_exclusive(&self) -> bool {
        self.running.values().any(|run| run.exclusive)
    }

    /// Starts a run; its end will be heard, whatever happens to it.
    pub(crate) fn start(&mut self, run: Run, settings: &Settings) {
        let cancel = CancelSource::new();
        let exclusive = run.definition.concurrency == Concurrency::Exclusive;
        let (key, span) = (run.key, run.span.clone());
        let limits = Limits {
            deadline: run.definition.deadline.or(settings.tool_deadline),
            idle: run.definition.idle.or(settings.tool_idle),
            grace: settings.cancel_grace,
            output: settings.output.clone(),
        };
        let (tell, _) = self.channel.get_or_insert_with(mpsc::unbounded_channel);
        let report = Report { key, tell: Some(tell.clone()) };
        let task = tokio::spawn(execute(run, limits, cancel.clone(), report).instrument(span));
        self.running.insert(key, Running { cancel, task, exclusive, last_progress: None });
    }

    /// The next thing that a tool tells.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<ToolMessage> {
        // Without a channel nothing has run yet, and nothing begins while this waits.
        let Some((_, hear)) = &mut self.channel else { return Poll::Pending };
        // A sender is kept here, so the channel never closes.
        hear.poll_recv(context).map(|told| match told {
            Some(told) => told,
            None => unreachable_message(),
        })
    }

    /// Keeps the last progress of a run, for an outcome without an answer.
    pub(crate) fn progressed(&mut self, key: CallKey, progress: Value) {
        if let Some(run) = self.running.get_mut(&key) {
            run.last_progress = Some(progress);
        }
    }

    /// Forgets a run that has ended; gives its last progress. `None` if it had ended before.
    pub(crate) fn ended(&mut self, key: CallKey) -> Option<Option<Value>> {
        self.running.remove(&key).map(|run| run.last_progress)
    }

    /// The calls that run, each with its last progress.
    pub(crate) fn progress(&self) -> Vec<(CallKey, Option<Value>)> {
        self.running.iter().map(|(call, run)| (*call, run.last_progress.clone())).collect()
    }

    /// Asks every run to stop.
    pub(crate) fn cancel(&self) {
        self.running.values().for_each(|run| run.cancel.cancel());
    }

    /// Aborts every run and waits a little for those that yield; gives what is left of each.
    pub(crate) async fn abort(&mut self) -> Vec<Aborted> {
        self.running.values().for_each(|run| run.task.abort());
        let mut aborted = Vec::new();
        for (call, run) in std::mem::take(&mut self.running) {
            let leaked = timeout(ABORT_MARGIN, run.task).await.is_err();
            aborted.push(Aborted { call, progress: run.last_progress, leaked });
        }
        aborted
    }
}

/// What is left of a run that was aborted.
pub(crate) struct Aborted {
    pub(crate) call: CallKey,
    pub(crate) progress: Option<Value>,
    /// Whether it could not be stopped and runs on.
    pub(crate) leaked: bool,
}

/// How long an aborted task may take to notice.
const ABORT_MARGIN: Duration = Duration::from_millis(100);

#[expect(clippy::unreachable, reason = "the receiver's owner keeps a sender")]
fn unreachable_message() -> ToolMessage {
    unreachable!("the channel cannot close while its owner keeps a sender")
}

struct Limits {
    deadline: Option<Duration>,
    idle: Option<Duration>,
    grace: Duration,
    output: OutputSettings,
}

/// Reports the end of a run, also when its task is dropped.
struct Report {
    key: CallKey,
    tell: Option<mpsc::UnboundedSender<ToolMessage>>,
}

impl Report {
    fn done(mut self, outcome: ToolOutcome) {
        if let Some(tell) = self.tell.take() {
            // The step may have stopped listening: the outcome then comes too late.
            let _ = tell.send(ToolMessage::Done(self.key, RunEnd::Outcome(outcome)));
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        if let Some(tell) = self.tell.take() {
            let _ = tell.send(ToolMessage::Done(self.key, RunEnd::Vanished));
        }
    }
}

async fn execute(run: Run, limits: Limits, cancel: CancelSource, report: Report) {
    let Some(tell) = report.tell.clone() else { return };
    let until = limits.deadline.map(|limit| Instant::now() + limit);
    let host = Arc::new(Host { key: run.key, tell, until, last: Mutex::new(Instant::now()) });
    let context = ToolContext::new(run.info, cancel.signal(), Arc::clone(&host) as Arc<dyn ToolHost>);
    let tools = Arc::clone(&run.tools);
    let call = run.call;
    let mut working: Pin<Box<dyn Future<Output = Result<ToolReturn, ToolError>> + Send>> =
        Box::pin(async move { tools.execute(call, context).await });
    let mut running = std::future::poll_fn(move |context| poll_caught(&mut working, context));
    let ended = tokio::select! {
        biased;
        ended = &mut running => Ok(ended),
        () = deadline(until) => Err(format!("it ran longer than {:?}", limits.deadline.unwrap_or_default())),
        () = idle(&host, limits.idle) => Err(format!("it showed no progress for {:?}", limits.idle.unwrap_or_default())),
    };
    let outcome = match ended {
        Ok(mut ended) => {
            // Before it is bounded: half of what must be hidden would not be found.
            run.redaction.returned(&mut ended);
            finish(ended, &cancel.signal(), &limits.output, &run.outputs, &run.redaction, run.key).await
        }
        Err(why) => {
            // It may tidy up; what it says then comes too late.
            cancel.cancel();
            let _ = timeout(limits.grace, running).await;
            ToolOutcome::TimedOut(why)
        }
    };
    report.done(outcome);
}

/// What a tool came back with; the text of its panic otherwise.
pub(crate) type Ended = Result<Result<ToolReturn, ToolError>, String>;

/// Polls a tool's future; a panic is its end.
fn poll_caught(
    working: &mut Pin<Box<dyn Future<Output = Result<ToolReturn, ToolError>> + Send>>,
    context: &mut Context<'_>,
) -> Poll<Ended> {
    match std::panic::catch_unwind(AssertUnwindSafe(|| working.as_mut().poll(context))) {
        Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(panic) => Poll::Ready(Err(panic_text(panic.as_ref()))),
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it gave no reason".to_owned())
}

async fn finish(
    ended: Ended,
    cancel: &CancelSignal,
    limits: &OutputSettings,
    outputs: &Arc<dyn Outputs>,
    redaction: &Redaction,
    key: CallKey,
) -> ToolOutcome {
    match ended {
        Err(panic) => ToolOutcome::Panicked(panic),
        Ok(Ok(ToolReturn::Output(output))) => {
            let (output, bounded) = keep(output, limits, outputs, redaction, key).await;
            ToolOutcome::Success(output, bounded)
        }
        Ok(Ok(ToolReturn::Ask(ask))) => ToolOutcome::Ask { question: ask.question, state: ask.state },
        // A tool that was cancelled and gave up has not failed: it was stopped.
        Ok(Err(ToolError::Failed(_))) if cancel.is_cancelled() => ToolOutcome::Stopped(None),
        Ok(Err(ToolError::Failed(output))) => {
            let (output, bounded) = keep(output, limits, outputs, redaction, key).await;
            ToolOutcome::Failed(output, bounded)
        }
        Ok(Err(ToolError::Unknown(output))) => ToolOutcome::Unknown(bound(output, limits).0),
        Ok(Err(ToolError::Declined { feedback })) => ToolOutcome::Declined { feedback },
        Ok(Err(ToolError::Dismissed)) => ToolOutcome::Dismissed,
        Ok(Err(ToolError::Infra(cause))) => ToolOutcome::Infra(cause.message),
    }
}

/// Bounds an output and has its whole text kept; if keeping it fails, the bounded output is delivered, marked lossy.
async fn keep(
    output: ToolOutput,
    limits: &OutputSettings,
    outputs: &Arc<dyn Outputs>,
    redaction: &Redaction,
    key: CallKey,
) -> (ToolOutput, Option<settled_ledger::Bounded>) {
    let (mut output, bounded) = bound(output, limits);
    let Some((mut bounded, mut whole)) = bounded else { return (output, None) };
    // It was cleaned since it was looked at: what stood apart may stand together now.
    redaction.text(&mut whole);
    match outputs.keep(key, whole).await {
        Ok(Some(place)) => {
            output.content.push(format!("[the whole output is kept in {place}]").into());
            bounded.kept = Some(place);
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(call = %key, %error, "a tool's whole output could not be kept"),
    }
    (output, Some(bounded))
}

async fn deadline(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// Ends when the tool has shown no progress for the limit; the timer is set anew only when it fires.
async fn idle(host: &Host, limit: Option<Duration>) {
    let Some(limit) = limit else { return std::future::pending().await };
    loop {
        let silent = host.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        match limit.checked_sub(silent) {
            Some(left) if !left.is_zero() => sleep(left).await,
            _ => return,
        }
    }
}

/// The runner's side of a run.
struct Host {
    key: CallKey,
    tell: mpsc::UnboundedSender<ToolMessage>,
    until: Option<Instant>,
    last: Mutex<Instant>,
}

#[async_trait]
impl ToolHost for Host {
    fn progress(&self, progress: Value) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let _ = self.tell.send(ToolMessage::Progress(self.key, progress));
    }

    async fn note(&self, note: Value) -> Result<(), NoteError> {
        let (answer, durable) = oneshot::channel();
        self.tell.send(ToolMessage::Note(self.key, note, answer)).map_err(|_| NoteError::default())?;
        durable.await.map_err(|_| NoteError::default())?
    }

    fn remaining(&self) -> Option<Duration> {
        self.until.map(|until| until.saturating_duration_since(Instant::now()))
    }
}

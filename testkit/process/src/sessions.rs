//! Many sessions open at once: what each of them holds, idle and while it streams.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures_core::Stream;
use settled_provider_api::{
    FinishReason, ModelInfo, ModelRef, Provider, ProviderError, ProviderEvent, ProviderStream, Request,
};
use settled_runner::{Runner, Session};
use settled_store_sqlite::SqliteStore;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::args::Args;
use crate::process::resident;
use crate::{HEAP, Outcome};

/// What an idle session may hold, in bytes.
const IDLE: u64 = 4 * 1_024;

/// What a session that streams may hold, its text aside.
const STREAMING: u64 = 16 * 1_024;

/// The text that each session has been streamed so far when it is measured.
const TEXT: usize = 1_024;

pub(crate) fn run(mut args: Args) -> Outcome<()> {
    let count: usize = args.take("count", 10_000)?;
    args.finish()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.map_err(|error| error.to_string())?.block_on(measure(count))
}

async fn measure(count: usize) -> Outcome<()> {
    println!("sessions: {count}, on one SQLite file");
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let store = SqliteStore::open(folder.path().join("sessions.db")).map_err(|error| error.to_string())?;
    let (go, gate) = watch::channel(Gate::Open);
    let waiting = Arc::new(AtomicUsize::new(0));
    let model = Gated { gate, waiting: Arc::clone(&waiting) };
    let built = Runner::builder().model(ModelRef::new("suite", "model"), model, ModelInfo::new()).store(store).build();
    let runner = built.map_err(|error| error.to_string())?;

    // The first session brings up what all share: threads, connections, caches.
    let warm = runner.session("warm").await.map_err(said)?;
    warm.prompt("Hello").await.map_err(said)?;
    warm.settled().await.map_err(said)?;
    let empty = Held::now()?;
    println!("  the empty process: {empty}");

    let sessions: Arc<[Session]> = all((0..count).map(|number| {
        let runner = runner.clone();
        async move { runner.session(format!("s{number}")).await.map_err(said) }
    }))
    .await?
    .into();
    settle().await;
    let opened = Held::now()?.over(&empty, count);
    println!("  opened, never run:       {opened}");

    prompts(&sessions).await?;
    ends(&sessions).await?;
    settle().await;
    let idle = Held::now()?.over(&empty, count);
    println!("  idle after one answer:   {idle}, its text of {TEXT} bytes and the prompt included");

    // Every stream stops at the gate, with all of its text on the way.
    go.send_replace(Gate::Closed);
    prompts(&sessions).await?;
    while waiting.load(Ordering::SeqCst) < count {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    settle().await;
    let streaming = Held::now()?.over(&empty, count);
    println!("  streaming:               {streaming}, the text of this answer and of the one before included");

    go.send_replace(Gate::Open);
    ends(&sessions).await?;
    settle().await;
    let after = Held::now()?.over(&empty, count);
    println!("  idle after two answers:  {after}, both texts included");
    runner.shutdown(Duration::from_secs(5)).await;

    let text = TEXT as u64;
    let mut broken = Vec::new();
    for (what, found, most) in [
        ("opened", &opened, IDLE),
        ("idle after one answer", &idle, IDLE + text),
        ("streaming", &streaming, STREAMING + 2 * text),
        ("idle after two answers", &after, IDLE + 2 * text),
    ] {
        if found.heap > most {
            broken.push(format!("{what}: a session holds {} bytes, and may hold {most}", found.heap));
        }
    }
    match broken.is_empty() {
        true => {
            println!("sessions: every promise was kept");
            Ok(())
        }
        false => Err(broken.join("\n")),
    }
}

fn said(error: settled_runner::Error) -> String {
    error.to_string()
}

/// Says something in every session.
async fn prompts(sessions: &Arc<[Session]>) -> Outcome<()> {
    let prompts = sessions.iter().cloned().map(|session| async move { session.prompt("Hello").await.map_err(said) });
    all(prompts).await.map(drop)
}

/// Waits until every session has settled.
async fn ends(sessions: &Arc<[Session]>) -> Outcome<()> {
    let ends = sessions.iter().cloned().map(|session| async move { session.settled().await.map_err(said) });
    all(ends).await.map(drop)
}

/// Does many things at once, each in a task.
async fn all<T: Send + 'static>(
    things: impl Iterator<Item = impl Future<Output = Outcome<T>> + Send + 'static>,
) -> Outcome<Vec<T>> {
    let mut tasks: JoinSet<_> = things.collect();
    let mut done = Vec::with_capacity(tasks.len());
    while let Some(ended) = tasks.join_next().await {
        done.push(ended.map_err(|error| error.to_string())??);
    }
    Ok(done)
}

/// Lets go of what is on its way to be freed.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(300)).await;
}

/// What a process holds.
struct Held {
    heap: u64,
    resident: u64,
}

impl Held {
    fn now() -> Outcome<Self> {
        Ok(Self { heap: HEAP.allocated() as u64, resident: resident()? })
    }

    /// What each of so many sessions holds, beyond what was held before them.
    fn over(&self, empty: &Self, count: usize) -> Self {
        let each = |now: u64, before: u64| now.saturating_sub(before) / (count as u64).max(1);
        Self { heap: each(self.heap, empty.heap), resident: each(self.resident, empty.resident) }
    }
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>9} bytes of heap, {:>9} resident", self.heap, self.resident)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
}

/// A model that speaks, and goes on only through an open gate.
struct Gated {
    gate: watch::Receiver<Gate>,
    /// How many streams stand before the gate.
    waiting: Arc<AtomicUsize>,
}

#[async_trait]
impl Provider for Gated {
    async fn stream(&self, _: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        let (mut gate, waiting) = (self.gate.clone(), Arc::clone(&self.waiting));
        let passes = Box::pin(async move {
            waiting.fetch_add(1, Ordering::SeqCst);
            // A gate that is gone is open.
            let _ = gate.wait_for(|gate| *gate == Gate::Open).await;
            waiting.fetch_sub(1, Ordering::SeqCst);
        });
        Ok(Box::pin(Speaking { said: 0, passes }))
    }
}

/// A stream of one text; it stands before the gate when all of the text was said.
struct Speaking {
    said: usize,
    passes: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// One piece of the text.
const PIECE: &str = "0123456789abcdef0123456789abcdef";

impl Stream for Speaking {
    type Item = Result<ProviderEvent, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let last = TEXT / PIECE.len() + 1;
        if self.said == last && self.passes.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.said += 1;
        Poll::Ready(match self.said {
            1 => Some(Ok(ProviderEvent::text_start(0))),
            said if said <= last => Some(Ok(ProviderEvent::text_delta(0, PIECE))),
            said if said == last + 1 => Some(Ok(ProviderEvent::finish(FinishReason::Stop, None))),
            _ => None,
        })
    }
}

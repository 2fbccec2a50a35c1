//! The process that is killed and stopped: it takes up what another one has left, and begins new sessions.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use fastrand::Rng;
use settled_ledger::store::{Catalog, Next, Query, Store};
use settled_ledger::{FailureClass, WorkerId};
use settled_provider_api::{ModelInfo, ModelRef};
use settled_runner::{Agent, Runner, Serving, Session, Settings};
use settled_store_sqlite::SqliteStore;
use settled_tools_api::Toolbox;

use crate::agent::{Model, Pace, TOOLS, Tools};
use crate::args::Args;
use crate::effects::Effects;
use crate::witness::{Witness, Witnessed};
use crate::{Outcome, witness};

/// The command by which a parent starts it.
pub(crate) const COMMAND: &str = "child";

/// How many sessions run at once.
pub(crate) const LANES: usize = 8;

/// How often a store is asked for what has become due.
const POLL: Duration = Duration::from_millis(20);

/// What a child is to do.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) file: PathBuf,
    pub(crate) effects: PathBuf,
    pub(crate) seed: u64,
    pub(crate) worker: u64,
    pub(crate) lease: Duration,
    /// How many new sessions it begins, when it has taken up what was left.
    pub(crate) sessions: usize,
    pub(crate) prompts: u32,
    /// How many of the tools it has, from the first.
    pub(crate) tools: usize,
    /// Whether it waits for a line on its standard input in the end, and then tries its old fences.
    pub(crate) probe: Probe,
}

/// Whether a child tries its old fences in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    Yes,
    No,
}

impl Task {
    /// The task as a command's arguments.
    pub(crate) fn words(&self) -> Vec<String> {
        let words = [
            ("--file", self.file.display().to_string()),
            ("--effects", self.effects.display().to_string()),
            ("--seed", self.seed.to_string()),
            ("--worker", self.worker.to_string()),
            ("--lease", self.lease.as_millis().to_string()),
            ("--sessions", self.sessions.to_string()),
            ("--prompts", self.prompts.to_string()),
            ("--tools", self.tools.to_string()),
            ("--probe", u8::from(self.probe == Probe::Yes).to_string()),
        ];
        let words = words.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        std::iter::once(COMMAND.to_owned()).chain(words).collect()
    }

    fn read(mut args: Args) -> Outcome<Self> {
        let task = Self {
            file: args.take("file", PathBuf::new())?,
            effects: args.take("effects", PathBuf::new())?,
            seed: args.take("seed", 0)?,
            worker: args.take("worker", 0)?,
            lease: Duration::from_millis(args.take("lease", 0)?),
            sessions: args.take("sessions", 0)?,
            prompts: args.take("prompts", 1)?,
            tools: args.take("tools", TOOLS.len())?,
            probe: if args.take("probe", 0)? == 1 { Probe::Yes } else { Probe::No },
        };
        args.finish()?;
        Ok(task)
    }
}

pub(crate) fn run(args: Args) -> Outcome<()> {
    let task = Task::read(args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.map_err(|error| error.to_string())?.block_on(work(task))
}

async fn work(task: Task) -> Outcome<()> {
    let witness = Witness::Stdout;
    let store = SqliteStore::builder(&task.file).open().map_err(|error| error.to_string())?;
    let store = Witnessed::new(Arc::new(store), witness.clone());
    let runner = runner(&task, store.clone(), &witness)?;
    let left = unsettled(&store).await?;
    witness.says(&format!("ready {}", left.len()));

    let new = (0..task.sessions).map(|number| format!("s-{:x}-{number}", task.seed));
    let names: Arc<[String]> = left.iter().cloned().chain(new).collect();
    let next = Arc::new(AtomicUsize::new(0));
    let lanes: Vec<_> = (0..LANES)
        .map(|_| {
            let (runner, names, next, task, left) =
                (runner.clone(), Arc::clone(&names), Arc::clone(&next), task.clone(), left.len());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(name) = names.get(number) else { return Outcome::Ok(()) };
                    let prompts = if number < left { 0 } else { task.prompts };
                    live(&runner, &Witness::Stdout, name, prompts).await?;
                }
            })
        })
        .collect();
    for lane in lanes {
        lane.await.map_err(|error| error.to_string())??;
    }
    if task.probe == Probe::Yes {
        witness.says("waiting");
        let read = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
        read.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        store.probe().await;
    }
    runner.shutdown(Duration::from_secs(1)).await;
    witness.says(&format!("done {}", runner.dropped_unsettled()));
    Ok(())
}

/// One session: it is taken up as it is, or prompted, and sometimes interrupted.
async fn live(runner: &Runner, witness: &Witness, name: &str, prompts: u32) -> Outcome<()> {
    let said = |error: settled_runner::Error| format!("{name}: {error}");
    let mut rng = Rng::with_seed(witness::hash(&name));
    let session = runner.session(name).await.map_err(said)?;
    for number in 0..prompts {
        session.input("Act, please.").key(format!("p{number}")).send().await.map_err(said)?;
        if rng.u8(..8) == 0 {
            tokio::time::sleep(Duration::from_millis(rng.u64(0..40))).await;
            session.interrupt().await.map_err(said)?;
        }
        settle(&session, witness).await.map_err(said)?;
    }
    if prompts == 0 {
        settle(&session, witness).await.map_err(said)?;
    }
    Ok(())
}

/// Waits until a session is at rest; where its log was lost to this process, until it was taken up again and is.
async fn settle(session: &Session, witness: &Witness) -> Result<(), settled_runner::Error> {
    loop {
        let settled = session.settled().await?;
        match settled.error {
            Some(error) if error.class == FailureClass::Store => {
                witness.says(&format!("lost {} {error}", session.id()));
                tokio::time::sleep(POLL).await;
            }
            _ => return Ok(()),
        }
    }
}

/// The sessions that are not at rest.
async fn unsettled(store: &dyn Store) -> Outcome<Vec<String>> {
    let mut query = Query::all(1_000);
    let mut found = Vec::new();
    loop {
        let page = Catalog::list(store, &query).await.map_err(|error| error.to_string())?;
        let open = page
            .sessions
            .iter()
            .filter(|info| info.state.execution.is_some() || !matches!(info.state.next, Next::Idle | Next::Held));
        found.extend(open.map(|info| info.session.to_string()));
        match page.after {
            None => return Ok(found),
            after => query.after = after,
        }
    }
}

fn runner(task: &Task, store: Witnessed, witness: &Witness) -> Outcome<Runner> {
    let mut settings = Settings::default();
    settings.parallel_tools = 2;
    settings.lease = task.lease;
    settings.cancel_grace = task.lease / 3;
    settings.poll = POLL;
    settings.retry.base = Duration::from_millis(3);
    settings.restarts = 50;
    let tools = Tools { number: task.tools, effects: Effects::open(&task.effects)?, witness: witness.clone() };
    let built = Runner::builder()
        .model(ModelRef::new("suite", "model"), Model { pace: Pace::Brisk, witness: witness.clone() }, ModelInfo::new())
        .tools(Toolbox::new().with(tools))
        .agent(Agent::new("worker"))
        .store(store)
        .worker(WorkerId::from_u128(u128::from(task.worker)))
        .serving(Serving::Opened)
        .settings(settings)
        .build();
    built.map_err(|error| error.to_string())
}

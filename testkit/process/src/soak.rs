//! Many sessions at full speed for long: nothing grows, and everything can be read afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use settled_provider_api::{ModelInfo, ModelRef};
use settled_runner::{Agent, Runner, Settings};
use settled_store_sqlite::SqliteStore;
use settled_tools_api::Toolbox;
use tokio::task::JoinSet;

use crate::agent::{Model, Pace, TOOLS, Tools};
use crate::args::Args;
use crate::audit::{Said, audit};
use crate::effects::Effects;
use crate::process::resident;
use crate::witness::Witness;
use crate::{HEAP, Outcome};

/// By how much something may grow from the third quarter to the fourth: by this share, and so many bytes.
const SHARE: f64 = 0.05;
const SLACK: f64 = 4.0 * 1_024.0 * 1_024.0;

/// How many more file handles there may be.
const HANDLES: f64 = 2.0;

pub(crate) fn run(mut args: Args) -> Outcome<()> {
    let seconds: u64 = args.take("seconds", 600)?;
    let load =
        Load { lanes: args.take("lanes", 64)?, prompts: args.take("prompts", 20)?, kept: args.take("kept", 256)? };
    args.finish()?;
    println!("soak: {seconds} s, {load:?}");
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let place = Place { file: folder.path().join("sessions.db"), effects: folder.path().join("effects") };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let figures = runtime.block_on(work(&place, Duration::from_secs(seconds), load))?;
    drop(runtime);

    let counts = audit(&place.file, &place.effects, &Said::default())?;
    print!("{counts}");
    by_command(&place.file)?;
    verdict(&figures)?;
    println!("soak: every promise was kept");
    Ok(())
}

/// How much is done at once.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// How many sessions run.
    lanes: usize,
    /// How many prompts a session gets before its lane begins another one.
    prompts: usize,
    /// Of how many sessions at rest the history is kept in memory: until there are so many, memory grows.
    kept: usize,
}

struct Place {
    file: PathBuf,
    effects: PathBuf,
}

/// What is watched, at one moment.
#[derive(Clone, Copy, Debug)]
struct Figures {
    resident: f64,
    heap: f64,
    log: f64,
    handles: f64,
}

async fn work(place: &Place, span: Duration, load: Load) -> Outcome<Vec<Figures>> {
    let store = SqliteStore::open(&place.file).map_err(|error| error.to_string())?;
    let witness = Witness::Silent;
    let tools = Tools { number: TOOLS.len(), effects: Effects::open(&place.effects)?, witness: witness.clone() };
    let mut settings = Settings::default();
    settings.kept_sessions = load.kept;
    let built = Runner::builder()
        .model(ModelRef::new("suite", "model"), Model { pace: Pace::Flat, witness }, ModelInfo::new())
        .tools(Toolbox::new().with(tools))
        .agent(Agent::new("worker"))
        .store(store.clone())
        .settings(settings)
        .build();
    let runner = built.map_err(|error| error.to_string())?;
    let over = Arc::new(AtomicBool::new(false));
    let prompts = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    for lane in 0..load.lanes {
        let (runner, over, prompts) = (runner.clone(), Arc::clone(&over), Arc::clone(&prompts));
        running.spawn(async move { live(&runner, lane, load.prompts, &over, &prompts).await });
    }

    let began = Instant::now();
    let every = (span / 20).clamp(Duration::from_millis(500), Duration::from_secs(10));
    let mut figures = Vec::new();
    let mut before = (began, 0, 0);
    println!("   second  resident KiB  heap KiB  log KiB  handles  file MiB  prompts/s  events/s");
    while began.elapsed() < span && running.len() == load.lanes {
        tokio::time::sleep(every).await;
        let now = look(&place.file)?;
        let (prompts, rows) = (prompts.load(Ordering::Relaxed), store.stats().rows);
        let per = |now: u64, then: u64| (now - then) as f64 / before.0.elapsed().as_secs_f64();
        println!(
            "  {:>7.1}  {:>12.0}  {:>8.0}  {:>7.0}  {:>7}  {:>8}  {:>9.0}  {:>8.0}",
            began.elapsed().as_secs_f64(),
            now.resident / 1_024.0,
            now.heap / 1_024.0,
            now.log / 1_024.0,
            now.handles,
            size(&place.file) / (1 << 20),
            per(prompts, before.1),
            per(rows, before.2),
        );
        before = (Instant::now(), prompts, rows);
        figures.push(now);
        // A lane that is over before its time has failed.
        if let Some(ended) = running.try_join_next() {
            ended.map_err(|error| error.to_string())??;
        }
    }
    over.store(true, Ordering::Relaxed);
    while let Some(ended) = running.join_next().await {
        ended.map_err(|error| error.to_string())??;
    }
    runner.shutdown(Duration::from_secs(10)).await;
    if runner.dropped_unsettled() > 0 {
        return Err(format!("{} attempts were dropped unsettled", runner.dropped_unsettled()));
    }
    drop(runner);
    store.close().await;
    Ok(figures)
}

/// One lane: a session after the other, each prompted as fast as it settles.
async fn live(runner: &Runner, lane: usize, each: usize, over: &AtomicBool, prompts: &AtomicU64) -> Outcome<()> {
    for number in 0.. {
        let name = format!("lane{lane}-{number}");
        let said = |error: settled_runner::Error| format!("{name}: {error}");
        let session = runner.session(name.as_str()).await.map_err(said)?;
        for _ in 0..each {
            session.prompt("Act, please.").await.map_err(said)?;
            let settled = session.settled().await.map_err(said)?;
            if let Some(error) = settled.error {
                return Err(format!("{name}: {error}"));
            }
            prompts.fetch_add(1, Ordering::Relaxed);
            if over.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn look(file: &Path) -> Outcome<Figures> {
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    let handles = std::fs::read_dir("/proc/self/fd").map_err(|error| error.to_string())?.count();
    Ok(Figures {
        resident: resident()? as f64,
        heap: HEAP.allocated() as f64,
        log: size(Path::new(&log)) as f64,
        handles: handles as f64,
    })
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |found| found.len())
}

/// Reads the file as a person would, where the command is there.
fn by_command(file: &Path) -> Outcome<()> {
    let ask = "PRAGMA integrity_check; SELECT count(*) || ' events of ' || count(DISTINCT session) || ' sessions' FROM timeline;";
    match Command::new("sqlite3").arg(file).arg(ask).output() {
        Ok(said) if said.status.success() && said.stdout.starts_with(b"ok\n") => {
            println!("  by the sqlite3 command: {}", String::from_utf8_lossy(&said.stdout).trim().replace('\n', ", "));
            Ok(())
        }
        Ok(said) => Err(format!("the sqlite3 command cannot read the file: {said:?}")),
        Err(error) => {
            println!("  by the sqlite3 command: skipped, {error}");
            Ok(())
        }
    }
}

/// Compares the fourth quarter of the time with the third.
fn verdict(figures: &[Figures]) -> Outcome<()> {
    let quarter = figures.len() / 4;
    if quarter == 0 {
        return Err("there are too few figures to compare".to_owned());
    }
    let (third, fourth) = figures[figures.len() - 2 * quarter..].split_at(quarter);
    let mean =
        |of: &dyn Fn(&Figures) -> f64, quarter: &[Figures]| quarter.iter().map(of).sum::<f64>() / quarter.len() as f64;
    let most = |of: &dyn Fn(&Figures) -> f64, quarter: &[Figures]| quarter.iter().map(of).fold(0.0, f64::max);
    let bytes = |third: f64| third * (1.0 + SHARE) + SLACK;
    let mut broken = Vec::new();
    for (what, before, after, allowed) in [
        ("resident memory", mean(&|f| f.resident, third), mean(&|f| f.resident, fourth), &bytes as &dyn Fn(f64) -> f64),
        ("heap", mean(&|f| f.heap, third), mean(&|f| f.heap, fourth), &bytes),
        ("write-ahead log at its largest", most(&|f| f.log, third), most(&|f| f.log, fourth), &bytes),
        ("file handles at their most", most(&|f| f.handles, third), most(&|f| f.handles, fourth), &|third| {
            third + HANDLES
        }),
    ] {
        let line = format!(
            "{what}: {before:.0} in the third quarter, {after:.0} in the fourth, allowed {:.0}",
            allowed(before)
        );
        println!("  {line}");
        if after > allowed(before) {
            broken.push(line);
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n")) }
}

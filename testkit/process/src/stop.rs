//! A process is stopped beyond its lease, another one takes over, and the first goes on.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::Signal;
use settled_ledger::WorkerId;
use settled_ledger::store::Ownership;
use settled_store_sqlite::SqliteStore;

use crate::Outcome;
use crate::agent::TOOLS;
use crate::args::Args;
use crate::audit::{Counts, Said, audit, started_keys};
use crate::child::{LANES, Probe, Task};
use crate::process::{End, Heard, Process};

/// The lease of both processes.
const LEASE: Duration = Duration::from_millis(300);

/// How long a round may take at most.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn run(mut args: Args) -> Outcome<()> {
    let rounds: u64 = args.take("rounds", 50)?;
    let seed: u64 = args.take("seed", 1)?;
    args.finish()?;
    println!("stop: {rounds} rounds, seed {seed}");
    let began = Instant::now();
    let mut rng = Rng::with_seed(seed);
    let mut counts = Counts::default();
    for number in 1..=rounds {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        match round(folder.path(), &mut rng) {
            Ok(found) => counts.join(found),
            Err(why) => {
                let kept = folder.keep();
                return Err(format!("round {number} (seed {seed}), kept in {}:\n{why}", kept.display()));
            }
        }
        if number % 10 == 0 || number == rounds {
            println!("  {number} rounds, {:.0} s", began.elapsed().as_secs_f64());
        }
    }
    print!("{counts}");
    if rounds >= 5 && counts.of("sessions taken over while their owner was stopped") == 0 {
        return Err("no session was ever taken over: the rounds have shown nothing".to_owned());
    }
    println!("stop: every promise was kept");
    Ok(())
}

/// One stop.
fn round(folder: &Path, rng: &mut Rng) -> Outcome<Counts> {
    let first = Task {
        file: folder.join("sessions.db"),
        effects: folder.join("effects"),
        seed: rng.u64(..1 << 48),
        worker: 1,
        lease: LEASE,
        sessions: LANES,
        prompts: 3,
        // Looking up what a call has done is no use while whoever started it is only asleep.
        tools: TOOLS.len() - 1,
        probe: Probe::Yes,
    };
    let second = Task { worker: 2, sessions: 0, probe: Probe::No, ..first.clone() };
    let mut moment = Duration::from_micros(rng.u64(1_000..100_000));
    let stopped = Duration::from_millis(rng.u64(400..700));
    let mut counts = Counts::default();
    let mut said = Said::default();

    let mut victim = Process::start(&first)?;
    victim.kill_in(PATIENCE);
    let mut lines = Vec::new();
    while let Some(line) = victim.line() {
        lines.push(line);
        // It is at work from here on.
        if lines.last().is_some_and(|line| line.starts_with("ready")) {
            break;
        }
    }
    // In one round of five it does not matter whether it is stopped in the middle of a commit: then nobody else can write.
    let anyhow = rng.u8(..5) == 0;
    loop {
        std::thread::sleep(moment);
        victim.signal(Signal::STOP)?;
        let locked = is_locked(&first.file)?;
        if anyhow || !locked {
            counts.add("stops in the middle of a commit", u64::from(locked));
            break;
        }
        victim.signal(Signal::CONT)?;
        moment = Duration::from_millis(3);
    }
    let stop = Instant::now();
    let mut heir = Process::start(&second)?;
    heir.kill_in(PATIENCE);
    let mut goes_on = false;
    loop {
        // The heir is heard until it is done, and the victim goes on when its time has come.
        let left = if goes_on { PATIENCE } else { stopped.saturating_sub(stop.elapsed()) };
        match heir.line_within(left) {
            Heard::Line(line) => {
                if line.starts_with("claim ") && !goes_on {
                    counts.add("sessions taken over while their owner was stopped", 1);
                }
                said.hear(line);
            }
            Heard::Nothing if goes_on => {}
            Heard::Nothing => {
                victim.signal(Signal::CONT)?;
                goes_on = true;
            }
            Heard::End => break,
        }
    }
    if !goes_on {
        // The heir was quick.
        std::thread::sleep(stopped.saturating_sub(stop.elapsed()));
        victim.signal(Signal::CONT)?;
    }
    expect(heir.end()?, "the process that took over")?;
    while let Some(line) = victim.line() {
        if line == "waiting" {
            victim.tell("probe")?;
        }
        lines.push(line);
    }
    expect(victim.end()?, "the process that was stopped")?;

    // What it held before the stop is refused afterwards, whatever it tries.
    for line in &lines {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["probe", _, _, "fenced"] => counts.add("old fences tried in the end, all refused by the store", 1),
            ["probe", ..] => return Err(format!("a stale fence was not refused: `{line}`")),
            ["fenced", ..] => counts.add("appends that the store refused as fenced, on the way", 1),
            _ => {}
        }
    }
    // No tool ran whose start was not acknowledged to the same process before, or found by it in the log that it claimed.
    let mut started = BTreeSet::new();
    let keys = started_keys(&first.file)?;
    for line in &lines {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["row", session, seq, "tool.started", ..] => {
                started.extend(keys.get(&((*session).to_owned(), seq.parse().unwrap_or(0))).cloned());
            }
            ["claim", session, _, head] => {
                let session = (*session).to_owned();
                let found = keys.range((session.clone(), 0)..=(session, head.parse().unwrap_or(0)));
                started.extend(found.map(|(_, key)| key.clone()));
            }
            ["run", key] => {
                counts.add("tools polled by the process that was stopped", 1);
                if !started.contains(*key) {
                    return Err(format!("the tool of {key} ran, and its start was not acknowledged to this process"));
                }
            }
            _ => {}
        }
    }
    lines.into_iter().for_each(|line| said.hear(line));
    counts.add("stops", 1);
    counts.join(audit(&first.file, &first.effects, &said)?);
    Ok(counts)
}

/// Whether somebody holds the file's lock, and keeps it.
fn is_locked(file: &Path) -> Outcome<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let store = SqliteStore::builder(file).busy_timeout(Duration::from_millis(15)).open();
        let Ok(store) = store else { return Ok(true) };
        let locked = store.renew(WorkerId::from_u128(u128::MAX), Duration::ZERO).await.is_err();
        store.close().await;
        Ok(locked)
    })
}

fn expect(end: End, who: &str) -> Outcome<()> {
    match end {
        End::Well => Ok(()),
        end => Err(format!("{who} has ended: {end:?}")),
    }
}

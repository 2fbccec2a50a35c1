//! A process is killed at random instants, and started again on the same file.

use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::Signal;

use crate::Outcome;
use crate::agent::TOOLS;
use crate::args::Args;
use crate::audit::{Counts, Said, audit};
use crate::child::{Probe, Task};
use crate::process::{End, Process};

/// After how many kills a file is brought to rest and checked, and another one begun.
const ROUNDS_PER_FILE: u64 = 50;

/// The leases of the processes that are killed.
const LEASE: Duration = Duration::from_millis(100);

/// How long bringing a file to rest may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(mut args: Args) -> Outcome<()> {
    let rounds: u64 = args.take("rounds", 1_000)?;
    let seed: u64 = args.take("seed", 1)?;
    args.finish()?;
    println!("kill: {rounds} rounds, seed {seed}");
    let began = Instant::now();
    let mut rng = Rng::with_seed(seed);
    let mut counts = Counts::default();
    let mut done = 0;
    while done < rounds {
        let here = ROUNDS_PER_FILE.min(rounds - done);
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        match file(folder.path(), here, &mut rng) {
            Ok(found) => counts.join(found),
            Err(why) => {
                let kept = folder.keep();
                return Err(format!(
                    "after {done} to {} kills (seed {seed}), kept in {}:\n{why}",
                    done + here,
                    kept.display()
                ));
            }
        }
        done += here;
        println!("  {done} kills, {:.0} s", began.elapsed().as_secs_f64());
    }
    print!("{counts}");
    println!("kill: every promise was kept");
    Ok(())
}

/// Some kills on one file, and what has come of them.
fn file(folder: &Path, rounds: u64, rng: &mut Rng) -> Outcome<Counts> {
    let mut task = Task {
        file: folder.join("sessions.db"),
        effects: folder.join("effects"),
        seed: 0,
        worker: 1,
        lease: LEASE,
        sessions: 10_000,
        prompts: 2,
        tools: TOOLS.len(),
        probe: Probe::No,
    };
    let mut said = Said::default();
    let mut counts = Counts::default();
    for _ in 0..rounds {
        task.seed = rng.u64(..1 << 48);
        if rng.bool() {
            // Somebody else takes over: only when the lease of the dead has run out.
            task.worker += 1;
        }
        let mut child = Process::start(&task)?;
        // Killed at a moment, or as soon as it has said so much.
        let lines = rng.bool().then(|| rng.u32(1..600));
        let moment = Duration::from_micros(rng.u64(5_000..250_000));
        child.kill_in(if lines.is_some() { Duration::from_secs(3) } else { moment });
        let mut heard = 0;
        while let Some(line) = child.line() {
            heard += 1;
            if Some(heard) == lines {
                child.signal(Signal::KILL)?;
            }
            if let Some(left) = line.strip_prefix("ready ") {
                counts.add("sessions left open by a kill", left.parse().unwrap_or(0));
                counts.add("kills after the file was opened", 1);
            }
            said.hear(line);
        }
        match child.end()? {
            End::Killed => counts.add("kills", 1),
            end => return Err(format!("a child was to be killed and has ended: {end:?}")),
        }
    }
    rest(&task, &mut said)?;
    counts.join(audit(&task.file, &task.effects, &said)?);
    Ok(counts)
}

/// Starts a process that settles everything and ends by itself.
fn rest(task: &Task, said: &mut Said) -> Outcome<()> {
    let mut child = Process::start(&Task { sessions: 0, worker: task.worker + 1, ..task.clone() })?;
    child.kill_in(PATIENCE);
    while let Some(line) = child.line() {
        said.hear(line);
    }
    match child.end()? {
        End::Well => Ok(()),
        end => Err(format!("the process that was to settle everything has ended: {end:?}")),
    }
}

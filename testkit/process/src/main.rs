//! What only real processes show: a kill at any instant, a stop beyond the lease, many sessions, long work.
//!
//! `settled-process-suite kill|stop|sessions|soak` runs one part and prints its figures; it exits with 1 where a promise was broken.
//! `docs/process-suite.md` says what each part proves.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is what it is for")]

mod args;

mod kill;

mod stop;

mod sessions;

mod soak;

mod child;

mod process;

mod agent;

mod witness;

mod effects;

mod audit;

use std::alloc::System;
use std::process::ExitCode;

use cap::Cap;

use crate::args::Args;

/// Every failure is a text that says what was found, and where.
type Outcome<T> = Result<T, String>;

/// Counts every byte that Rust code holds.
#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

const USAGE: &str = "\
settled-process-suite PART [--NAME VALUE]...

  kill      --rounds 1000 --seed 1    kills a process at random instants
  stop      --rounds 50 --seed 1      stops a process beyond its lease
  sessions  --count 10000             measures open sessions
  soak      --seconds 600 --lanes 64  works at full speed and watches what grows
            --prompts 20 --kept 256   prompts of a session, and sessions kept in memory";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let part = words.next().unwrap_or_default();
    let done = Args::read(words).and_then(|args| match part.as_str() {
        "kill" => kill::run(args),
        "stop" => stop::run(args),
        "sessions" => sessions::run(args),
        "soak" => soak::run(args),
        child::COMMAND => child::run(args),
        _ => Err(USAGE.to_owned()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

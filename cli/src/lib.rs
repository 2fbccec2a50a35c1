//! The `settled` command: runs agent sessions that settle, shows them, checks them.
//!
//! ```text
//! settled run "Fix the failing test" --tools files,shell     streams the answer, shows each tool
//! settled run --session ID "And the other one?"              goes on with a session
//! settled log ID                                             steps, calls, times, settlements
//! settled check ID                                           what every log must satisfy
//! settled sessions                                           what there is
//! settled export ID FILE, settled import FILE                a session as a file, and back
//! settled scenario FILE...                                   scenario files, on the real runner
//! settled decode PROTOCOL FILE                               what a provider's raw response body says
//! settled lower PROTOCOL SCENARIO                            the body that a scenario's request becomes on a wire
//! settled demo                                               a whole session, without key or network
//! ```
//!
//! # Who is asked
//!
//! | `--provider` | the wire | key | base URL | model |
//! |---|---|---|---|---|
//! | `openai-chat` | Chat Completions, of OpenAI or any compatible server | `OPENAI_API_KEY` | `OPENAI_BASE_URL` | `gpt-4.1-mini` |
//! | `openai` | Responses, of OpenAI | `OPENAI_API_KEY` | `OPENAI_BASE_URL` | `gpt-4.1-mini` |
//! | `anthropic` | Messages | `ANTHROPIC_API_KEY` | `ANTHROPIC_BASE_URL` | `claude-haiku-4-5` |
//! | `gemini` | Gemini | `GEMINI_API_KEY`, else `GOOGLE_API_KEY` | `GOOGLE_GEMINI_BASE_URL` | `gemini-2.5-flash` |
//!
//! Without the flag a session goes on with the provider that it had last; a new one begins with `openai-chat`.
//! A session may go on with another provider at any time: what only the first one understands (signatures, encrypted reasoning) is not sent to the second, and what was said is.
//! `SETTLED_MODEL` names the model where neither the flag nor the session does.
//! A server on this machine needs no key.
//!
//! # Where things go
//!
//! Sessions are kept in `sessions.db` in the data folder: `--data`, else `SETTLED_DATA`, else `settled` in the user's data folder (`XDG_DATA_HOME`, `~/.local/share`); only the user may read them.
//! A session remembers the provider, base URL, tools and folder that it was made with.
//! A flag changes base URL, tools and folder for one run, provider and model from then on; the base URL that is remembered is used for the provider that the session was made with.
//!
//! The answer goes to standard output, everything else to standard error: so `settled run … > answer.txt` keeps the answer alone.
//! With `--json` standard output has one JSON object for each event, live ones among them, and at last one of type `run.ended`.
//!
//! # Exit codes
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done; the run completed |
//! | 1 | the run failed, or `check` found a breach |
//! | 2 | bad usage: a wrong flag, folder, session or file; no key |
//! | 3 | the run waits for a person: `settled approve`, `decline`, `answer` or `dismiss`, then `settled run --session ID` |
//! | 4 | the store cannot be used: locked, damaged, newer, no room |
//! | 130 | interrupted |
//! | 143 | told to stop (`SIGTERM`): `settled run --session ID` goes on |
//!
//! # When it is interrupted or killed
//!
//! Ctrl-C interrupts the run: tools are stopped, the step settles, and what was kept is said.
//! A second Ctrl-C leaves at once.
//! After that, as after `kill -9`, `settled run --session ID` goes on: a tool that had been started is not run again unless it says that it may, and the record says which results were lost.
//! The lock of a process that died is free at once; only a session that was run from another program is waited for, until its lease has run out.
//!
//! The crate is a command; its library is there for the binary and the tests, and may change at any time.

mod args;

mod exit;

mod data;

mod wiring;

mod run;

mod screen;

mod jsonl;

mod ask;

mod answer;

mod log;

mod timeline;

mod check;

mod sessions;

mod scenario;

mod decode;

mod lower;

pub mod archive;

mod export;

mod import;

mod demo;

mod text;

mod signals;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{Args, Command};
use crate::data::DataFolder;
use crate::exit::{Exit, Failure};

/// Runs the command with the arguments of the process.
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are asked for; the rest is a mistake.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Completed };
            return error.print().map_or(Exit::Failed, |()| exit).into();
        }
    };
    let ended = obey(args);
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                // There is nobody to tell if this fails.
                let _ = writeln!(io::stderr(), "settled: {failure}");
            }
            failure.exit.into()
        }
    }
}

fn obey(args: Args) -> Result<Exit, Failure> {
    trace(args.verbose)?;
    let data = || DataFolder::choose(args.data.clone());
    match args.command {
        Command::Run(args) => on_threads(run::run(args, &data()?)),
        Command::Log(args) => on_threads(log::log(args, &data()?)),
        Command::Check(args) => on_threads(check::check(args, &data()?)),
        Command::Sessions(args) => on_threads(sessions::sessions(args, &data()?)),
        Command::Approve(args) => on_threads(answer::approve(args, &data()?)),
        Command::Decline(args) => on_threads(answer::decline(args, &data()?)),
        Command::Answer(args) => on_threads(answer::answer(args, &data()?)),
        Command::Dismiss(args) => on_threads(answer::dismiss(args, &data()?)),
        Command::Interrupt(args) => on_threads(answer::interrupt(args, &data()?)),
        Command::Export(args) => on_threads(export::export(args, &data()?)),
        Command::Import(args) => on_threads(import::import(args, &data()?)),
        Command::Demo(args) => on_threads(demo::demo(args)),
        // Each scenario has a runtime of its own, with a clock of its own.
        Command::Scenario(args) => scenario::scenario(&args),
        Command::Lower(args) => lower::lower(&args),
        Command::Decode(args) => decode::decode(&args),
    }
}

/// Does a command's work on a runtime with threads.
fn on_threads(work: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("no threads can be started: {error}")))?;
    let ended = runtime.block_on(Box::pin(work));
    // A thread that waits for somebody at the keyboard would be waited for otherwise.
    runtime.shutdown_background();
    ended
}

/// Sends traces to standard error: none but with `--verbose`, or as `RUST_LOG` says (`settled_runner=debug,info`).
fn trace(verbose: u8) -> Result<(), Failure> {
    let level = match verbose {
        0 => None,
        1 => Some(
            "settled_runner=debug,settled_provider_wire=debug,settled_provider_openai=debug,settled_provider_anthropic=debug,settled_provider_gemini=debug,info",
        ),
        _ => Some("trace"),
    };
    let asked = std::env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty());
    let Some(filter) = level.map(str::to_owned).or(asked) else { return Ok(()) };
    let targets: Targets = filter
        .parse()
        .map_err(|error| Failure::usage(format!("RUST_LOG is `{filter}`, which does not read: {error}")))?;
    let written = fmt::layer().with_writer(io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(targets).with(written).init();
    Ok(())
}

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

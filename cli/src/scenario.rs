//! `settled scenario`: runs scenario files on the real runner, in virtual time.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use settled_store_memory::MemoryStore;
use settled_store_sqlite::SqliteStore;
use settled_testkit::scenario::{RunError, Scenario, ScenarioResult};

use crate::args::{self, On};
use crate::exit::{Exit, Failure};
use crate::{check, data};

/// Runs each file and prints its result, a line each; or prints the scenario of a log.
///
/// It must not be called in an asynchronous context: a scenario has a runtime of its own.
pub(crate) fn scenario(args: &args::Scenario) -> Result<Exit, Failure> {
    if let Some(log) = &args.from {
        let log = check::read(&data::read(log)?, &format!("`{}`", log.display()))?;
        let file = Scenario::file_from_log(&log).map_err(|error| Failure::failed(error.to_string()))?;
        writeln!(io::stdout().lock(), "{file}")?;
        return Ok(Exit::Completed);
    }
    let mut exit = Exit::Completed;
    for file in &args.files {
        let result = run(file, args.store)?;
        writeln!(io::stdout().lock(), "{}", result.to_json())?;
        if let Err(failed) = result.verdict() {
            writeln!(io::stderr().lock(), "`{}`: {failed}", file.display())?;
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// Reads a scenario and runs it.
pub(crate) fn run(file: &Path, store: On) -> Result<ScenarioResult, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| Failure::usage(format!("`{name}` cannot be read: {error}")))?;
    let scenario = Scenario::parse(&text).map_err(|error| Failure::usage(format!("`{name}`: {error}")))?;
    let result = match store {
        On::Memory => on_memory(&scenario),
        On::Sqlite => {
            let folder = tempfile::tempdir()?;
            on_sqlite(&scenario, &folder.path().join("sessions.db"))
        }
    };
    result.map_err(|error| Failure::usage(format!("`{name}`: {error}")))
}

fn on_memory(scenario: &Scenario) -> Result<ScenarioResult, RunError> {
    let mut memory = None;
    scenario.run(|opening| {
        let store = memory.get_or_insert_with(|| MemoryStore::new(opening.clock()));
        Ok(Arc::new(store.clone()))
    })
}

fn on_sqlite(scenario: &Scenario, file: &Path) -> Result<ScenarioResult, RunError> {
    scenario.run(|opening| {
        let store = SqliteStore::builder(file).clock(opening.clock()).hold(opening.hold());
        Ok(Arc::new(store.open()?))
    })
}

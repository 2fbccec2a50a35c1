//! Every scenario file of the catalogue, on the memory store and on SQLite.
//!
//! `scenarios/expected_failures.txt` lists the files that are known to fail, one a line; it may only shrink.
//! `SCENARIO=text` runs the files whose path contains the text, and shows what came of them.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail, and shows why")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use settled_store_memory::MemoryStore;
use settled_store_sqlite::SqliteStore;
use settled_testkit::scenario::{RunError, Scenario, ScenarioResult};

/// What is wrong with a file, and how it looks in full; `None` where it came out as expected.
type Outcome = Result<(), (String, String)>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios")
}

/// Scenario files; a file that lies in no folder of a group is a table of another test.
fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            into.push(path);
        }
    }
}

fn on_memory(scenario: &Scenario) -> Result<ScenarioResult, RunError> {
    let mut memory = None;
    scenario.run(|opening| {
        let store = memory.get_or_insert_with(|| MemoryStore::new(opening.clock()));
        Ok(Arc::new(store.clone()))
    })
}

fn on_sqlite(scenario: &Scenario) -> Result<ScenarioResult, RunError> {
    // In memory where the machine allows it: what is tested here is order, not the disk.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let file = folder.path().join("sessions.db");
    scenario.run(|opening| {
        let store = SqliteStore::builder(&file).clock(opening.clock()).hold(opening.hold());
        Ok(Arc::new(store.open()?))
    })
}

type Runs = fn(&Scenario) -> Result<ScenarioResult, RunError>;

/// Runs a file in each way: it must come out the same, to the letter, and as expected.
fn run(path: &Path, ways: [Runs; 2]) -> Outcome {
    let text = fs::read_to_string(path).unwrap();
    let scenario = Scenario::parse(&text).map_err(|error| (error.to_string(), String::new()))?;
    let run = |way: Runs| way(&scenario).map_err(|error| (error.to_string(), String::new()));
    let [result, again] = [run(ways[0])?, run(ways[1])?];
    if result.to_json() != again.to_json() {
        let both = format!("{}\n{}", result.to_json(), again.to_json());
        return Err(("it comes out differently when it is run again".to_owned(), both));
    }
    result.verdict().map_err(|failed| (failed.to_string(), format!("{}\n{}", result.transcript, result.to_json())))
}

#[test]
fn the_catalogue_holds_on_the_memory_store() {
    check([on_memory, on_memory]);
}

#[test]
fn the_catalogue_holds_on_sqlite_and_comes_out_as_in_memory() {
    check([on_sqlite, on_memory]);
}

/// Runs every file and compares what fails with the list.
fn check(ways: [Runs; 2]) {
    let folder = folder();
    let mut paths = Vec::new();
    files(&folder, &mut paths);
    paths.retain(|path| path.parent() != Some(folder.as_path()));
    paths.sort();
    let filter = std::env::var("SCENARIO").unwrap_or_default();
    paths.retain(|path| path.to_string_lossy().contains(&filter));
    assert!(!paths.is_empty(), "there are no scenario files under {}", folder.display());

    let outcomes: Mutex<BTreeMap<String, Outcome>> = Mutex::default();
    let next = AtomicUsize::new(0);
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let name = path.strip_prefix(&folder).unwrap().with_extension("").to_string_lossy().into_owned();
                    let outcome = run(path, ways);
                    outcomes.lock().unwrap().insert(name, outcome);
                }
            });
        }
    });

    let outcomes = outcomes.into_inner().unwrap();
    let listed = fs::read_to_string(folder.join("expected_failures.txt")).unwrap_or_default();
    let listed: BTreeSet<&str> = listed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut wrong = Vec::new();
    for (name, outcome) in &outcomes {
        match outcome {
            Ok(()) if listed.contains(name.as_str()) => wrong.push(format!("{name}: passes, and is listed as failing")),
            Ok(()) => {}
            Err((_, details)) if !filter.is_empty() => {
                wrong.push(format!("{name}: {}\n{details}", outcome.as_ref().unwrap_err().0))
            }
            Err(_) if listed.contains(name.as_str()) => {}
            Err((failed, _)) => wrong.push(format!("{name}: {failed}")),
        }
    }
    if filter.is_empty() {
        let unknown = listed.iter().filter(|name| !outcomes.contains_key(**name));
        wrong.extend(unknown.map(|name| format!("{name}: is listed as failing, and there is no such file")));
    }
    let failing = outcomes.values().filter(|outcome| outcome.is_err()).count();
    println!("{} scenario files, {failing} of them fail", outcomes.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

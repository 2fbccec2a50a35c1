//! Writes the golden logs of a version of the schema, once: `cargo run -p settled-testkit --example golden -- v1`.
//!
//! It plays the catalogue of scenarios and keeps the logs that show something that none before them has shown: a kind of event, or a set of fields.
//! They are written to `ledger/tests/golden/<version>.jsonl`, one row a line, and as a database to `stores/sqlite/tests/golden/<version>.db`.
//! What is there is never written over: tests open these files for ever.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for those who release")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use settled_ledger::store::{Batch, EventLog, Inbox, NewSession, Next, Ownership, SessionState};
use settled_ledger::{
    BatchId, Clock, Delivery, InputId, NewInput, NewInputKind, NewRow, Notice, Recorded, Timestamp, WorkerId,
};
use settled_store_memory::MemoryStore;
use settled_store_sqlite::SqliteStore;
use settled_testkit::scenario::Scenario;
use settled_tools_api::SessionId;

fn main() {
    let version = std::env::args().nth(1).unwrap_or_else(|| panic!("give the version: `v1`"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let lines = root.join(format!("ledger/tests/golden/{version}.jsonl"));
    let file = root.join(format!("stores/sqlite/tests/golden/{version}.db"));
    for there in [&lines, &file] {
        assert!(!there.exists(), "{} is there: golden logs are written once", there.display());
    }
    let mut paths = Vec::new();
    scenarios(&root.join("scenarios"), &mut paths);
    paths.sort();
    let (mut shown, mut logs) = (BTreeSet::new(), Vec::new());
    for path in paths {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let log = play(&path, &SessionId::new(&name).unwrap());
        let before = shown.len();
        shown.extend(log.iter().map(|row| (row.kind.clone(), fields(row))));
        if shown.len() > before {
            logs.push(log);
        }
    }
    let text: Vec<_> = logs.iter().flatten().map(|row| row.to_json().unwrap() + "\n").collect();
    fs::write(lines, text.concat()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(database(&file, &logs));
    println!("{} logs, {} events, {} kinds with their fields", logs.len(), text.len(), shown.len());
}

/// The scenario files under a folder; a file that lies in no folder of a group is a table.
fn scenarios(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            for file in fs::read_dir(path).unwrap() {
                let file = file.unwrap().path();
                into.extend(file.extension().is_some_and(|extension| extension == "json").then_some(file));
            }
        }
    }
}

/// The log of a scenario, under a session of its name.
fn play(path: &Path, session: &SessionId) -> Vec<Recorded> {
    let scenario = Scenario::parse(&fs::read_to_string(path).unwrap()).unwrap();
    let mut memory = None;
    let played = scenario.run(|opening| {
        let store = memory.get_or_insert_with(|| MemoryStore::new(opening.clock()));
        Ok(Arc::new(store.clone()))
    });
    let rows = played.unwrap().log.into_iter();
    rows.map(|row| NewRow::from_parts(row.at, row.kind, row.version, row.body).placed(session.clone(), row.seq))
        .collect()
}

/// The names of an event's fields.
fn fields(row: &Recorded) -> Vec<String> {
    let fields: BTreeMap<String, Value> = serde_json::from_str(&row.body).unwrap();
    fields.into_keys().collect()
}

/// A clock that stands: leases in the file are over for whoever opens it.
struct Stands;

impl Clock for Stands {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000)
    }
}

/// Writes the logs as sessions of a store, the last event of each behind a claim; and one session with all that is not a log.
async fn database(file: &Path, logs: &[Vec<Recorded>]) {
    let store = SqliteStore::builder(file).clock(Arc::new(Stands)).open().unwrap();
    let worker = WorkerId::from_u128(1);
    for (log, number) in logs.iter().zip(1..) {
        let session = &log[0].session;
        let mut rows: Vec<_> =
            log.iter().map(|row| NewRow::from_parts(row.at, row.kind.clone(), row.version, row.body.clone())).collect();
        let last = rows.pop().unwrap();
        store.create(session, NewSession::new(rows, [("golden".to_owned(), "yes".to_owned())].into())).await.unwrap();
        let claimed = store.claim(worker, Duration::from_secs(15), session).await.unwrap();
        let batch = Batch::new(BatchId::from_u128(number), vec![last]);
        store.append(&claimed.fence, claimed.head, batch).await.unwrap();
    }
    let session = SessionId::new("everything-else").unwrap();
    let unknown =
        NewRow::from_parts(Stands.now(), "moon.rose".to_owned(), 3, r#"{"phase":"full","z":1.50}"#.to_owned());
    store.create(&session, NewSession::new(vec![unknown], [].into())).await.unwrap();
    let claimed = store.claim(worker, Duration::from_secs(15), &session).await.unwrap();
    let notice = |number, text| {
        let kind = NewInputKind::Notice(Notice::new(text, Delivery::Queue));
        NewInput::new(InputId::from_u128(number), Stands.now(), kind)
    };
    store.admit(&session, notice(1, "taken").key("first".to_owned())).await.unwrap();
    store.admit(&session, notice(2, "pending").key("second".to_owned())).await.unwrap();
    let mut batch = Batch::new(BatchId::from_u128(1_000), Vec::new());
    batch.taken = vec![InputId::from_u128(1)];
    batch.state = Some(SessionState::new(Next::At(Timestamp::from_millis(1_800_000_000_000)), None));
    store.append(&claimed.fence, claimed.head, batch).await.unwrap();
    store.close().await;
}

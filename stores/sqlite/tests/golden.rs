//! Golden files: written once by each version of the schema, opened for ever.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use settled_ledger::store::{Admitted, Batch, Catalog, EventLog, Fence, Inbox, Next, Ownership, Query, SessionState};
use settled_ledger::{
    BatchId, Delivery, InputId, NewInput, NewInputKind, NewRow, Notice, Recorded, Seq, Timestamp, WorkerId,
};
use settled_store_sqlite::SqliteStore;
use tempfile::TempDir;

use common::{LEASE, WORKER, append, id, log, owned, place, read, row};

/// A copy of the file of a version, opened.
fn opened(version: &str) -> (TempDir, SqliteStore) {
    let (folder, path) = place();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{version}.db"));
    fs::write(&path, fs::read(golden).unwrap()).unwrap();
    let store = SqliteStore::open(path).unwrap();
    (folder, store)
}

/// The logs that are in the file, as the ledger keeps them.
fn logs(version: &str) -> BTreeMap<String, Vec<Recorded>> {
    let lines = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../ledger/tests/golden/{version}.jsonl"));
    let mut logs = BTreeMap::<_, Vec<_>>::new();
    for line in fs::read_to_string(lines).unwrap().lines() {
        let row = Recorded::from_json(line).unwrap();
        logs.entry(row.session.as_str().to_owned()).or_default().push(row);
    }
    logs
}

#[tokio::test]
async fn every_log_reads_as_it_was_written() {
    let (_folder, store) = opened("v1");
    let logs = logs("v1");
    assert!(logs.len() >= 20);
    for (name, log) in &logs {
        // As JSON: the text of a row may have its fields in another order.
        let json = |row: &Recorded| serde_json::from_str::<serde_json::Value>(&row.to_json().unwrap()).unwrap();
        let seen = read(&store, name).await;
        assert_eq!(seen.iter().map(json).collect::<Vec<_>>(), log.iter().map(json).collect::<Vec<_>>());
    }
    let mut all = Query::all(1_000);
    all.tag = Some(("golden".to_owned(), "yes".to_owned()));
    let listed = store.list(&all).await.unwrap().sessions;
    let heads: Vec<_> = listed.iter().map(|info| (info.session.as_str(), info.head.get())).collect();
    assert_eq!(heads, logs.iter().map(|(name, log)| (name.as_str(), log.len() as u64)).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_is_not_known_survives_reading_and_writing_again() {
    let (_folder, store) = opened("v1");
    let unknown = read(&store, "everything-else").await;
    let at = Timestamp::from_millis(1_700_000_000_000);
    let body = r#"{"phase":"full","z":1.50}"#;
    assert_eq!(unknown, [Recorded::new(id("everything-else"), Seq::new(1), at, "moon.rose".into(), 3, body.into())]);
    // Into another store, by the text of an export.
    let (_other, path) = place();
    let copy = SqliteStore::open(path).unwrap();
    let claimed = owned(&copy, "everything-else").await;
    let lines = unknown.iter().map(|row| row.to_json().unwrap());
    let rows = lines.map(|line| Recorded::from_json(&line).unwrap());
    let rows = rows.map(|row| NewRow::from_parts(row.at, row.kind, row.version, row.body)).collect();
    copy.append(&claimed.fence, claimed.head, Batch::new(BatchId::from_u128(1), rows)).await.unwrap();
    let again = read(&copy, "everything-else").await;
    let fields = |row: &Recorded| serde_json::from_str::<serde_json::Value>(&row.body).unwrap();
    assert_eq!((fields(&again[0]), &again[0].kind, again[0].version), (fields(&unknown[0]), &unknown[0].kind, 3));
}

#[tokio::test]
async fn inboxes_keys_claims_and_states_are_there() {
    let (_folder, store) = opened("v1");
    let session = id("everything-else");
    let notice = |number, text: &str| {
        let kind = NewInputKind::Notice(Notice::new(text, Delivery::Queue));
        NewInput::new(InputId::from_u128(number), Timestamp::from_millis(1_700_000_000_000), kind)
    };
    let pending = store.pending(&session).await.unwrap();
    assert_eq!(pending.len(), 1);
    assert_eq!((pending[0].id, &pending[0].input), (InputId::from_u128(2), &notice(2, "pending").kind));
    for (number, key, text) in [(1, "first", "taken"), (2, "second", "pending")] {
        let again = store.admit(&session, notice(77, text).key(key.to_owned())).await;
        assert_eq!(again, Ok(Admitted::Again(InputId::from_u128(number))));
    }
    let state = SessionState::new(Next::At(Timestamp::from_millis(1_800_000_000_000)), None);
    assert_eq!(store.info(&session).await.unwrap().state, state);
    // The last batch is known, and the fence counts until another claim comes.
    let fence = Fence::new(session.clone(), WorkerId::from_u128(1), 1);
    let last = Batch::new(BatchId::from_u128(1_000), vec![row("not looked at")]);
    assert_eq!(store.append(&fence, Seq::new(1), last).await, Ok(Seq::new(1)));
    assert_eq!(append(&store, &fence, Seq::new(1), 1_001, "on").await, Ok(Seq::new(2)));
    let claimed = store.claim(WORKER, LEASE, &session).await.unwrap();
    assert_eq!((claimed.head, claimed.fence.epoch), (Seq::new(2), 2));
    assert_eq!(read(&store, "everything-else").await[1..], log("everything-else", ["-", "on"].map(str::to_owned))[1..]);
}

//! What the tests share.

use std::path::PathBuf;
use std::time::Duration;

use settled_ledger::store::{AppendError, Batch, Claimed, EventLog, Fence, NewSession, Ownership};
use settled_ledger::{BatchId, NewRow, Recorded, Seq, Timestamp, WorkerId};
use settled_store_sqlite::SqliteStore;
use settled_tools_api::SessionId;
use tempfile::TempDir;

pub(crate) const WORKER: WorkerId = WorkerId::from_u128(0xa);
pub(crate) const LEASE: Duration = Duration::from_secs(3_600);

/// A folder of its own, and the path of a store in it.
pub(crate) fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    (folder, path)
}

pub(crate) fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

pub(crate) fn row(text: &str) -> NewRow {
    NewRow::from_parts(
        Timestamp::from_millis(1_700_000_000_123),
        "text.ended".to_owned(),
        1,
        format!(r#"{{"text":"{text}"}}"#),
    )
}

/// A session's log as this many rows make it, from the first.
pub(crate) fn log(session: &str, texts: impl IntoIterator<Item = String>) -> Vec<Recorded> {
    let rows = texts.into_iter().zip(1..);
    rows.map(|(text, seq)| row(&text).placed(id(session), Seq::new(seq))).collect()
}

/// Makes a session and claims it.
pub(crate) async fn owned(store: &SqliteStore, name: &str) -> Claimed {
    store.create(&id(name), NewSession::default()).await.unwrap();
    store.claim(WORKER, LEASE, &id(name)).await.unwrap()
}

/// Appends one row under a batch id.
pub(crate) async fn append(
    store: &SqliteStore,
    fence: &Fence,
    head: Seq,
    batch: u128,
    text: &str,
) -> Result<Seq, AppendError> {
    store.append(fence, head, Batch::new(BatchId::from_u128(batch), vec![row(text)])).await
}

/// Everything that is in a session's log.
pub(crate) async fn read(store: &SqliteStore, name: &str) -> Vec<Recorded> {
    store.read(&id(name), Seq::START, usize::MAX).await.unwrap()
}

//! The SQLite store on the suite: as it is, boxed, in an `Arc`, wrapped, and as two processes have it.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::Clock;
use settled_ledger::store::Store;
use settled_store_sqlite::SqliteStore;
use settled_testkit::conformance::store::{Handles, StoreFixture, StoreSuite, Through, cases};

/// How the store is handed to the suite.
struct Sqlite {
    shape: fn(SqliteStore) -> Arc<dyn Store>,
    processes: Processes,
}

enum Processes {
    /// Both handles are one store's.
    One,
    /// Each handle is a store of its own on the same file.
    Two,
}

#[async_trait]
impl StoreFixture for Sqlite {
    async fn open(&self, clock: Arc<dyn Clock>) -> Result<Handles, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        let open = |path: &Path| {
            let builder = SqliteStore::builder(path).clock(clock.clone()).poll(Duration::from_millis(2));
            builder.open().map_err(|error| error.to_string())
        };
        let here = open(&path)?;
        let there = match self.processes {
            Processes::One => here.clone(),
            Processes::Two => open(&path)?,
        };
        Ok(Handles::new((self.shape)(here), (self.shape)(there)).keeping(folder))
    }

    /// The store's threads work in real time: so does the suite.
    async fn patience(&self) {
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
}

async fn check(shape: fn(SqliteStore) -> Arc<dyn Store>, processes: Processes) {
    let fixture = Sqlite { shape, processes };
    let report = StoreSuite::new().run(&fixture).await.into_result().unwrap();
    assert_eq!(report.kept(), cases().count());
}

#[tokio::test]
async fn plain() {
    check(|store| Arc::new(store), Processes::One).await;
}

#[tokio::test]
async fn boxed() {
    check(|store| Arc::new(Box::new(store) as Box<dyn Store>), Processes::One).await;
}

#[tokio::test]
async fn in_an_arc() {
    check(|store| Arc::new(Arc::new(store)), Processes::One).await;
}

#[tokio::test]
async fn wrapped() {
    check(|store| Arc::new(Through(Arc::new(Through(store)))), Processes::One).await;
}

#[tokio::test]
async fn two_processes() {
    check(|store| Arc::new(store), Processes::Two).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_on_many_threads() {
    check(|store| Arc::new(store), Processes::Two).await;
}

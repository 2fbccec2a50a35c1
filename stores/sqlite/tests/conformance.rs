//! The SQLite store on the suite: as it is, boxed, in an `Arc`, wrapped, opened twice, and in two processes, one of which is another.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

#[path = "conformance/remote.rs"]
mod remote;

#[path = "conformance/wire.rs"]
mod wire;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::Clock;
use settled_ledger::store::Store;
use settled_store_sqlite::SqliteStore;
use settled_testkit::conformance::store::{Handles, StoreFixture, StoreSuite, Through, cases};

use remote::Remote;

/// How the store is handed to the suite.
struct Sqlite {
    shape: fn(SqliteStore) -> Arc<dyn Store>,
    processes: Processes,
}

enum Processes {
    /// Both handles are one store's.
    One,
    /// Each handle is a store of its own on the same file.
    OneTwice,
    /// The handle of everybody else is in another process.
    TheyAreElsewhere,
    /// The owner's handle is in another process.
    OwnerIsElsewhere,
}

#[async_trait]
impl StoreFixture for Sqlite {
    async fn open(&self, clock: Arc<dyn Clock>) -> Result<Handles, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sessions.db");
        let open = |path: &Path| {
            let builder = SqliteStore::builder(path).clock(clock.clone()).poll(remote::POLL);
            builder.open().map_err(|error| error.to_string())
        };
        let here = open(&path)?;
        let there = match self.processes {
            Processes::One => here.clone(),
            Processes::OneTwice => open(&path)?,
            Processes::TheyAreElsewhere => {
                let there = Remote::start(&path, clock);
                return Ok(Handles::new((self.shape)(here), Arc::new(there)).keeping(folder));
            }
            Processes::OwnerIsElsewhere => {
                let there = Remote::start(&path, clock);
                return Ok(Handles::new(Arc::new(there), (self.shape)(here)).keeping(folder));
            }
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
async fn opened_twice() {
    check(|store| Arc::new(store), Processes::OneTwice).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opened_twice_on_many_threads() {
    check(|store| Arc::new(store), Processes::OneTwice).await;
}

#[tokio::test]
async fn two_processes() {
    check(|store| Arc::new(store), Processes::TheyAreElsewhere).await;
}

#[tokio::test]
async fn two_processes_the_other_way_round() {
    check(|store| Arc::new(store), Processes::OwnerIsElsewhere).await;
}

/// The part of the other process.
#[tokio::test]
async fn other_process() {
    remote::serve().await;
}

//! The memory store on the suite: as it is, boxed, in an `Arc`, behind a reference, and wrapped.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::Clock;
use settled_ledger::store::Store;
use settled_store_memory::MemoryStore;
use settled_testkit::conformance::store::{Handles, StoreFixture, StoreSuite, Through, cases};

/// How the store is handed to the suite.
struct Memory(fn(MemoryStore) -> Arc<dyn Store>);

#[async_trait]
impl StoreFixture for Memory {
    async fn open(&self, clock: Arc<dyn Clock>) -> Result<Handles, String> {
        let store = MemoryStore::new(clock);
        Ok(Handles::new((self.0)(store.clone()), (self.0)(store)))
    }

    async fn patience(&self) {
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

async fn check(shape: fn(MemoryStore) -> Arc<dyn Store>) {
    let report = StoreSuite::new().run(&Memory(shape)).await.into_result().unwrap();
    assert_eq!(report.kept(), cases().count());
}

#[tokio::test(start_paused = true)]
async fn plain() {
    check(|store| Arc::new(store)).await;
}

#[tokio::test(start_paused = true)]
async fn boxed() {
    check(|store| Arc::new(Box::new(store) as Box<dyn Store>)).await;
}

#[tokio::test(start_paused = true)]
async fn in_an_arc() {
    check(|store| Arc::new(Arc::new(store))).await;
}

#[tokio::test(start_paused = true)]
async fn wrapped() {
    check(|store| Arc::new(Through(Arc::new(Through(store))))).await;
}

#[tokio::test(start_paused = true)]
async fn behind_a_reference() {
    check(|store| Arc::new(&*Box::leak(Box::new(store)))).await;
}

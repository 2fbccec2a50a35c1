//! History caches in the file: kept, replaced, gone with their session; never in the way of the log.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use rusqlite::Connection;
use settled_ledger::store::{Catalog, FoldCache, Ownership, StoreErrorKind};
use settled_ledger::{CachedFold, Seq};
use settled_store_sqlite::SqliteStore;

use common::{append, id, log, owned, place, read};

#[tokio::test]
async fn a_fold_is_kept_replaced_and_erased() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    append(&store, &claimed.fence, Seq::START, 1, "one").await.unwrap();
    assert_eq!(store.kept(&id("s")).await.unwrap(), None);
    assert_eq!(store.kept(&id("nobody")).await.unwrap(), None);
    let fold = |head, body: &str| CachedFold::new(Seq::new(head), "mark", "0.1.0/1", body);
    store.keep(&id("s"), fold(1, "{\"text\":\"Grüße 👋🏽 '--\"}")).await.unwrap();
    let long = "x".repeat(3 << 20);
    store.keep(&id("s"), fold(u64::MAX, &long)).await.unwrap();
    let gone = store.keep(&id("nobody"), fold(1, "")).await.unwrap_err();
    assert_eq!(gone.kind, StoreErrorKind::NotFound);
    store.close().await;

    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.kept(&id("s")).await.unwrap(), Some(fold(u64::MAX, &long)));
    store.release(&claimed.fence).await.unwrap();
    store.erase(&id("s")).await.unwrap();
    assert_eq!(store.kept(&id("s")).await.unwrap(), None);
    store.close().await;
    let left: u32 =
        Connection::open(&path).unwrap().query_row("SELECT count(*) FROM folds", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn deleting_every_cache_changes_nothing() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    append(&store, &claimed.fence, Seq::START, 1, "one").await.unwrap();
    store.keep(&id("s"), CachedFold::new(Seq::new(1), "mark", "0.1.0/1", "{}")).await.unwrap();
    let info = store.info(&id("s")).await.unwrap();
    // As a person would, with the file in use.
    assert_eq!(Connection::open(&path).unwrap().execute("DELETE FROM folds", []).unwrap(), 1);
    assert_eq!(store.kept(&id("s")).await.unwrap(), None);
    assert_eq!(store.info(&id("s")).await.unwrap(), info);
    assert_eq!(read(&store, "s").await, log("s", ["one".to_owned()]));
}

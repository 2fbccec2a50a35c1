//! A file that the disk has changed: what is damaged is told, with the file's name; what is given out is right.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use settled_ledger::store::{Batch, Catalog, EventLog, FoldCache, Inbox, Ownership, StoreError, StoreErrorKind};
use settled_ledger::{
    BatchId, CachedFold, Delivery, InboxItem, InputId, NewInput, NewInputKind, Notice, Recorded, Seq, Timestamp,
};
use settled_store_sqlite::SqliteStore;

use common::{append, id, log, owned, place, read, row};

const PAGE: usize = 4_096;
const SESSIONS: [&str; 3] = ["first", "second", "third"];

/// A closed file with three sessions, one behind another, and what is in it.
struct Sound {
    bytes: Vec<u8>,
    /// The pages by which sessions are found: a session whose entry is hurt may be found no more.
    catalog: Vec<usize>,
    logs: BTreeMap<&'static str, Vec<Recorded>>,
    inboxes: BTreeMap<&'static str, Vec<InboxItem>>,
}

impl Sound {
    async fn file() -> Self {
        let (_folder, path) = place();
        let store = SqliteStore::open(&path).unwrap();
        let (mut logs, mut inboxes) = (BTreeMap::new(), BTreeMap::new());
        for name in SESSIONS {
            let claimed = owned(&store, name).await;
            let rows = (0..150).map(|place| row(&format!("{name} {place} {}", "x".repeat(100)))).collect();
            let batch = Batch::new(BatchId::from_u128(1), rows);
            store.append(&claimed.fence, claimed.head, batch).await.unwrap();
            let notice = NewInputKind::Notice(Notice::new(name, Delivery::Queue));
            store.admit(&id(name), NewInput::new(InputId::from_u128(1), Timestamp::default(), notice)).await.unwrap();
            logs.insert(name, read(&store, name).await);
            inboxes.insert(name, store.pending(&id(name)).await.unwrap());
        }
        store.close().await;
        let db = rusqlite::Connection::open(&path).unwrap();
        let pages =
            "SELECT rootpage - 1 FROM sqlite_schema WHERE tbl_name = 'sessions' AND rootpage > 0 UNION SELECT 0";
        let catalog = db
            .prepare(pages)
            .unwrap()
            .query_map([], |row| row.get::<_, u32>(0))
            .unwrap()
            .map(|page| page.unwrap() as usize)
            .collect();
        Self { bytes: fs::read(&path).unwrap(), catalog, logs, inboxes }
    }
}

/// What came of the sessions of a damaged file: which are whole.
async fn whole(sound: &Sound, path: &Path, page: usize, what: &str) -> Vec<&'static str> {
    let told = |error: StoreError| {
        if error.kind == StoreErrorKind::NotFound && sound.catalog.contains(&page) {
            return;
        }
        assert_eq!(error.kind, StoreErrorKind::Corrupt, "{what}: {error}");
        assert!(error.message.contains(path.to_str().unwrap()), "{what}: {error}");
    };
    let store = match SqliteStore::open(path) {
        Ok(store) => store,
        Err(error) => {
            told(error);
            return Vec::new();
        }
    };
    let mut whole = Vec::new();
    for name in SESSIONS {
        let log = store.read(&id(name), Seq::START, usize::MAX).await;
        let inbox = store.pending(&id(name)).await;
        let ends = [
            log.map(|log| assert_eq!(log, sound.logs[name], "{what}, {name}")),
            inbox.map(|inbox| assert_eq!(inbox, sound.inboxes[name], "{what}, {name}")),
        ];
        if ends.iter().all(Result::is_ok) {
            whole.push(name);
        }
        ends.into_iter().filter_map(Result::err).for_each(told);
    }
    store.close().await;
    whole
}

#[tokio::test]
async fn a_page_that_is_damaged_hurts_no_session_but_its_own() {
    let sound = Sound::file().await;
    let (_folder, path) = place();
    let mut hurt = BTreeMap::<_, u32>::new();
    for page in 0..sound.bytes.len() / PAGE {
        // The whole page, its kind, its table of cells, and single bits of what it holds.
        let damages: [(usize, usize, u8); 9] = [
            (0, PAGE, 0xff),
            (0, 1, 0x08),
            (3, 2, 0x01),
            (9, 1, 0x04),
            (600, 1, 0x01),
            (1_500, 1, 0x20),
            (2_500, 1, 0x80),
            (3_500, 1, 0x02),
            (4_090, 1, 0x01),
        ];
        for (offset, length, bits) in damages {
            let mut bytes = sound.bytes.clone();
            bytes[page * PAGE + offset..][..length].iter_mut().for_each(|byte| *byte ^= bits);
            fs::write(&path, bytes).unwrap();
            let whole = whole(&sound, &path, page, &format!("page {page}, {length} bytes from {offset}")).await;
            *hurt.entry(whole).or_default() += 1;
        }
    }
    for name in SESSIONS {
        let others: Vec<_> = SESSIONS.into_iter().filter(|other| *other != name).collect();
        assert!(hurt.get(&others).is_some_and(|times| *times > 10), "{name} alone is hurt by its own pages: {hurt:?}");
    }
}

#[tokio::test]
async fn the_other_sessions_go_on() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let (hurt, well) = (owned(&store, "hurt").await, owned(&store, "well").await);
    for (claimed, text) in [(&hurt, "a"), (&well, "b")] {
        append(&store, &claimed.fence, claimed.head, 1, text).await.unwrap();
    }
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute("UPDATE events SET body = '{\"text\":\"A\"}' WHERE id = 1", [])
        .unwrap();
    let error = store.read(&id("hurt"), Seq::START, 10).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Corrupt);
    assert!(error.message.contains("event 1 of session `hurt` is not as it was written"), "{error}");
    assert!(error.message.contains(path.to_str().unwrap()) && error.message.contains(".recover"), "{error}");
    assert_eq!(append(&store, &well.fence, Seq::new(1), 2, "c").await, Ok(Seq::new(2)));
    assert_eq!(read(&store, "well").await, log("well", ["b", "c"].map(str::to_owned)));
}

#[tokio::test]
async fn a_value_of_another_type_is_damage() {
    for (change, says) in [
        ("UPDATE events SET body = CAST(x'ff22' AS TEXT)", "damaged"),
        ("UPDATE events SET at = 'noon'", "damaged"),
        ("UPDATE events SET version = 70000", "damaged"),
        ("UPDATE events SET sum = sum + 1", "event 1 of session `s` is not as it was written"),
        ("UPDATE heads SET head = 2", "event 2 of session `s`, its last one, is missing"),
        ("UPDATE heads SET head = 7", "event 7 of session `s`, its last one, is missing"),
        ("UPDATE heads SET event = 0", "event 3 of session `s`, its last one, is missing"),
        ("DELETE FROM heads", "the head of session `s` is missing"),
        ("DROP TABLE marks", "no such table: marks"),
    ] {
        let (_folder, path) = place();
        let store = SqliteStore::open(&path).unwrap();
        let claimed = owned(&store, "s").await;
        let batch = Batch::new(BatchId::from_u128(1), ["a", "b", "c"].map(row).to_vec());
        store.append(&claimed.fence, claimed.head, batch).await.unwrap();
        rusqlite::Connection::open(&path).unwrap().execute(change, []).unwrap();
        let error = match store.read(&id("s"), Seq::START, 10).await {
            Err(error) => error,
            Ok(log) => panic!("{change}: {log:?}"),
        };
        assert_eq!(error.kind, StoreErrorKind::Corrupt, "{change}: {error}");
        assert!(error.message.contains(says), "{change}: {error}");
    }
}

#[tokio::test]
async fn input_that_was_damaged_is_not_given_out() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    owned(&store, "s").await;
    let input = NewInput::new(InputId::from_u128(1), Timestamp::default(), NewInputKind::Compact);
    store.admit(&id("s"), input).await.unwrap();
    for change in ["at = 5", "key = 'k'", "arrival = 2", "input = '{\"type\": \"compact\"}'"] {
        let change = format!("UPDATE inbox SET {change}");
        rusqlite::Connection::open(&path).unwrap().execute(&change, []).unwrap();
        let error = store.pending(&id("s")).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Corrupt, "{change}: {error}");
        assert!(error.message.contains("of session `s` is not as it was written"), "{change}: {error}");
        let undo = "UPDATE inbox SET at = 0, key = NULL, arrival = 1, input = '{\"type\":\"compact\"}'";
        rusqlite::Connection::open(&path).unwrap().execute(undo, []).unwrap();
        assert_eq!(store.pending(&id("s")).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn an_erasure_never_reaches_into_another_session() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let (hurt, well) = (owned(&store, "hurt").await, owned(&store, "well").await);
    append(&store, &well.fence, Seq::START, 1, "b").await.unwrap();
    append(&store, &hurt.fence, Seq::START, 1, "a").await.unwrap();
    store.release(&hurt.fence).await.unwrap();
    rusqlite::Connection::open(&path).unwrap().execute("UPDATE events SET prev = 1 WHERE id = 2", []).unwrap();
    let error = store.erase(&id("hurt")).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}");
    assert_eq!(read(&store, "well").await.len(), 1);
    assert_eq!(read(&store, "hurt").await.len(), 1, "nothing of it is gone");
}

#[tokio::test]
async fn a_history_cache_that_was_damaged_is_none() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    owned(&store, "s").await;
    let fold = CachedFold::new(Seq::new(1), "mark", "0.1.0/1", r#"{"text":"a"}"#);
    for change in ["head = 2", "mark = 'mork'", "format = '0'", r#"body = '{"text":"b"}'"#, "sum = 1"] {
        store.keep(&id("s"), fold.clone()).await.unwrap();
        assert_eq!(store.kept(&id("s")).await, Ok(Some(fold.clone())));
        rusqlite::Connection::open(&path).unwrap().execute(&format!("UPDATE folds SET {change}"), []).unwrap();
        assert_eq!(store.kept(&id("s")).await, Ok(None), "{change}");
    }
}

//! What a process that was killed leaves, cut and damaged at every place: the log goes up to there, and never has half a batch.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::fs;
use std::path::Path;

use settled_ledger::store::{Batch, Catalog, EventLog, Inbox, StoreErrorKind};
use settled_ledger::{BatchId, InputId, NewInput, NewInputKind, Recorded, Seq, Timestamp};
use settled_store_sqlite::SqliteStore;

use common::{append, id, log, owned, place, read, row};

/// The length of the write-ahead log's header, of a frame's header, and of a page.
const HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;
const PAGE: u64 = 4_096;
const FRAME: u64 = FRAME_HEADER + PAGE;

/// The files as a killed process leaves them, and what was acknowledged with how much of the write-ahead log.
struct Left {
    file: Vec<u8>,
    log: Vec<u8>,
    /// After each acknowledged batch: the length of the write-ahead log, and how many events there were.
    acknowledged: Vec<(u64, usize)>,
    events: Vec<Recorded>,
}

impl Left {
    /// The files of a store that was written to and not closed: nothing comes to them any more in memory.
    async fn behind() -> Self {
        let (_folder, path) = place();
        let store = SqliteStore::open(&path).unwrap();
        let claimed = owned(&store, "s").await;
        let length = || fs::metadata(path.with_extension("db-wal")).unwrap().len();
        let (mut head, mut acknowledged) = (claimed.head, vec![(length(), 0)]);
        // Batches of one page and of several; one takes input with it.
        for (size, batch) in [1, 3, 20, 1, 40, 2].into_iter().zip(1..) {
            let mut batch = Batch::new(BatchId::from_u128(batch), vec![row(&"x".repeat(500)); size]);
            if size == 40 {
                let input = NewInput::new(InputId::from_u128(1), Timestamp::default(), NewInputKind::Compact);
                store.admit(&id("s"), input).await.unwrap();
                batch.taken.push(InputId::from_u128(1));
            }
            head = store.append(&claimed.fence, head, batch).await.unwrap();
            acknowledged.push((length(), usize::try_from(head.get()).unwrap()));
        }
        let events = read(&store, "s").await;
        assert_eq!(events.len(), 67);
        let (file, log) = (fs::read(&path).unwrap(), fs::read(path.with_extension("db-wal")).unwrap());
        assert_eq!(log.len() as u64, acknowledged.last().unwrap().0);
        Self { file, log, acknowledged, events }
    }

    /// Where frames begin, and where the log ends.
    fn borders(&self) -> impl Iterator<Item = u64> {
        let frames = (self.log.len() as u64 - HEADER) / FRAME;
        (0..=frames).map(|frame| HEADER + frame * FRAME)
    }

    /// How many events were acknowledged with this much of the log.
    fn acknowledged_by(&self, length: u64) -> Option<usize> {
        self.acknowledged.iter().rev().find(|(needs, _)| *needs <= length).map(|(_, events)| *events)
    }

    /// Opens the file with a log, and holds what is there against what was acknowledged with the first `good` bytes of it.
    ///
    /// Before the session was made there may be no such session, or not even tables.
    async fn opens(&self, path: &Path, log: &[u8], good: u64) {
        fs::write(path, &self.file).unwrap();
        fs::write(path.with_extension("db-wal"), log).unwrap();
        let store = SqliteStore::open(path).unwrap();
        let seen = store.read(&id("s"), Seq::START, usize::MAX).await;
        match self.acknowledged_by(good) {
            Some(events) => {
                assert_eq!(seen.unwrap(), self.events[..events], "with {good} good bytes of {}", log.len());
                // The session goes on.
                let head = Seq::new(events as u64);
                assert_eq!(store.info(&id("s")).await.unwrap().head, head);
                let fence = settled_ledger::store::Fence::new(id("s"), common::WORKER, 1);
                assert_eq!(append(&store, &fence, head, 99, "on").await, Ok(head.plus(1)));
            }
            None => match seen {
                Ok(seen) => assert_eq!(seen, []),
                Err(error) => assert_eq!(error.kind, StoreErrorKind::NotFound),
            },
        }
        store.close().await;
        let db = rusqlite::Connection::open(path).unwrap();
        let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(sound, "ok");
    }
}

#[tokio::test]
async fn a_log_that_was_cut_anywhere_goes_up_to_there() {
    let left = Left::behind().await;
    let (_folder, path) = place();
    let mut cuts = 0;
    for border in left.borders() {
        for cut in [border.saturating_sub(1), border, border + 1, border + FRAME_HEADER, border + FRAME_HEADER + 2_000]
        {
            let cut = cut.min(left.log.len() as u64);
            left.opens(&path, &left.log[..usize::try_from(cut).unwrap()], cut).await;
            cuts += 1;
        }
    }
    assert!(cuts > 100, "only {cuts} cuts");
}

#[tokio::test]
async fn a_log_that_was_damaged_anywhere_goes_up_to_there() {
    let left = Left::behind().await;
    let (_folder, path) = place();
    for frame in left.borders().filter(|border| *border < left.log.len() as u64) {
        // The page's number, the checksum, the page itself at its beginning and its end.
        for place in [0, 16, FRAME_HEADER, FRAME - 1] {
            let mut log = left.log.clone();
            log[usize::try_from(frame + place).unwrap()] ^= 0x10;
            left.opens(&path, &log, frame).await;
        }
    }
}

#[tokio::test]
async fn a_log_that_is_gone_leaves_what_was_in_the_file() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    let head = append(&store, &claimed.fence, claimed.head, 1, "kept").await.unwrap();
    store.close().await;
    let store = SqliteStore::open(&path).unwrap();
    append(&store, &claimed.fence, head, 2, "lost").await.unwrap();
    let file = fs::read(&path).unwrap();
    store.close().await;
    fs::write(&path, file).unwrap();
    assert_eq!(read(&SqliteStore::open(&path).unwrap(), "s").await, log("s", ["kept".to_owned()]));
}

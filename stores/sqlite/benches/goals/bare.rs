//! The floor: the store's own tables and pragmas on a bare connection, with prepared statements and no more.
//!
//! No fence, no head, no batch id, no inbox, no checksum, no other process.

use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, params};
use settled_ledger::store::{NewSession, Ownership};
use settled_store_sqlite::SqliteStore;
use settled_tools_api::SessionId;

use crate::millis;

/// A bare connection with the store's pragmas.
pub(crate) fn connect(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;").unwrap();
    db
}

/// The store's own tables with sessions in them, on a bare connection; nobody else has the file.
pub(crate) fn tables(path: &Path, sessions: usize) -> Connection {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(path).unwrap();
        for place in 0..sessions {
            let session = SessionId::new(format!("session-{place}")).unwrap();
            store.create(&session, NewSession::default()).await.unwrap();
        }
        store.close().await;
    });
    connect(path)
}

/// The statements that one row takes.
pub(crate) struct Bare<'a> {
    add: rusqlite::CachedStatement<'a>,
    mark: rusqlite::CachedStatement<'a>,
    head: rusqlite::CachedStatement<'a>,
}

impl<'a> Bare<'a> {
    pub(crate) fn new(db: &'a Connection) -> Self {
        Self {
            add: db
                .prepare_cached(
                    "INSERT INTO events (session, seq, prev, at, version, kind, body, sum)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )
                .unwrap(),
            mark: db.prepare_cached("INSERT INTO marks VALUES (?1, ?2, ?3)").unwrap(),
            head: db
                .prepare_cached("UPDATE heads SET head = ?2, event = ?3, batch = ?4, updated = ?5 WHERE session = ?1")
                .unwrap(),
        }
    }

    /// Writes one row behind a head.
    pub(crate) fn put(&mut self, session: i64, seq: i64, kind: &str, body: &str) -> i64 {
        let at = 1_700_000_000_000_i64 + seq;
        let event = self.add.insert(params![session, seq, seq, at, 1, kind, body, u32::MAX]).unwrap();
        if seq % 64 == 0 {
            self.mark.execute([session, seq, event]).unwrap();
        }
        event
    }

    /// Moves the head behind what was put.
    pub(crate) fn end(&mut self, session: i64, seq: i64, event: i64, batch: u128) {
        let at = 1_700_000_000_000_i64 + seq;
        self.head.execute(params![session, seq, event, batch.to_be_bytes(), at]).unwrap();
    }
}

/// Does something in one transaction; how long it took, in ms.
pub(crate) fn commit(db: &Connection, work: impl FnOnce(&mut Bare<'_>)) -> f64 {
    let start = Instant::now();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    work(&mut Bare::new(db));
    db.execute_batch("COMMIT").unwrap();
    millis(start)
}

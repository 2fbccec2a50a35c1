//! Checkpoints: what is in the write-ahead log is brought into the file, off the writer's thread.
//!
//! A checkpoint syncs the file; in the writer's thread that would be a pause that every session feels.
//! The first pass is passive: it brings nearly all of it over, and stops nobody.
//! The second stops the writer for the little that has come meanwhile, so that the log begins anew even where the writer never rests.
//! A log that begins anew every few MiB is written over in place, and syncing it is cheaper than syncing one that grows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;

use crate::schema::Identity;

/// A checkpoint is made each time when the log has grown by so many pages, 4 MiB.
pub(crate) const EVERY_PAGES: i32 = 1_000;

/// A file of the log larger than this is cut: a reader that was long at it had kept it growing.
const TRUNCATE_BYTES: u64 = 16 << 20;

/// Where the writer waits while a checkpoint stops it.
///
/// Without it a writer that begins its next transaction right after the last would leave the checkpoint no moment to get in.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    closed: AtomicBool,
    passing: Mutex<()>,
}

impl Gate {
    /// Returns when no checkpoint wants to pass.
    pub(crate) fn let_pass(&self) {
        if self.closed.load(Ordering::SeqCst) {
            drop(self.passing.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Does something while the writer waits, or is about to.
    fn pass(&self, work: impl FnOnce()) {
        let _passing = self.passing.lock().unwrap_or_else(PoisonError::into_inner);
        self.closed.store(true, Ordering::SeqCst);
        work();
        self.closed.store(false, Ordering::SeqCst);
    }
}

/// The checkpoints' thread; it is told when the log has grown.
pub(crate) fn run(db: &Connection, identity: &Identity, grown: &Receiver<()>, gate: &Gate) {
    while grown.recv().is_ok() {
        let bytes = identity.log().metadata().map_or(0, |log| log.len());
        let last = if bytes > TRUNCATE_BYTES { "TRUNCATE" } else { "RESTART" };
        // Whatever fails, because a reader is in the way or the disk is full, is tried again when the log has grown further.
        let checkpoint = |mode: &str| {
            let _ = db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()));
        };
        checkpoint("PASSIVE");
        gate.pass(|| checkpoint(last));
    }
}

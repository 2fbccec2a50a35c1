//! Checkpoints: what is in the write-ahead log is brought into the file, off the writer's thread.
//!
//! A checkpoint syncs the file; in the writer's thread that would be a pause that every session feels.
//! Usually it is passive and stops nobody; the log begins anew when the writer finds all of it brought over.
//! A writer that never rests gives no such moment: when the log has grown to a few times its usual size, the checkpoint stops the writer for the little that is left.

use std::path::Path;
use std::sync::mpsc::Receiver;

use rusqlite::Connection;

/// The log is brought over each time when it has grown by so many pages.
pub(crate) const PASSIVE_PAGES: i32 = 1_000;

/// The log begins anew, whoever writes, when it has so many pages.
const RESTART_PAGES: i32 = 4 * PASSIVE_PAGES;

/// A file of the log larger than this is cut: a reader that was long at it had kept it growing.
const TRUNCATE_BYTES: u64 = 64 << 20;

/// The checkpoints' thread; it is told when the log has grown.
pub(crate) fn run(db: &Connection, log: &Path, grown: &Receiver<()>) {
    while grown.recv().is_ok() {
        // Whatever fails is tried again when the log has grown further.
        let pages = checkpoint(db, "PASSIVE").unwrap_or(0);
        let bytes = log.metadata().map_or(0, |log| log.len());
        if bytes > TRUNCATE_BYTES {
            let _ = checkpoint(db, "TRUNCATE");
        } else if pages > RESTART_PAGES {
            let _ = checkpoint(db, "RESTART");
        }
    }
}

/// Makes a checkpoint and answers how many pages the log has.
fn checkpoint(db: &Connection, mode: &str) -> rusqlite::Result<i32> {
    db.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get(1))
}

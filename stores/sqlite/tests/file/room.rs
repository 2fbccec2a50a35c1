//! A disk that is full: what was acknowledged is there, the rest is told, nothing is half there, and with room again the store goes on.
//!
//! The disks are real: a small file system of the test's own where the machine lets it mount one, and a limit on the size of files everywhere on Unix.
//! Both want another process, which is this very test program, started again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rusqlite::Connection;
use settled_ledger::store::{AppendError, Batch, EventLog, Fence, NewSession, Ownership, StoreError, StoreErrorKind};
use settled_ledger::{BatchId, NewRow, Seq};
use settled_store_sqlite::SqliteStore;

use crate::common::{LEASE, WORKER, id, owned, place, row};

/// Where the second process finds its folder.
const FOLDER: &str = "SETTLED_SQLITE_ROOM";

/// How many rows a batch has.
const ROWS: u64 = 3;

/// Starts a test of this program again, by a line of shell that does something before.
fn again(test: &str, before: &str, folder: &Path) -> Output {
    let program = std::env::current_exe().unwrap();
    let line = format!("{before} && exec \"$0\" room::{test} --exact --nocapture");
    Command::new("sh").arg("-c").arg(line).arg(program).env(FOLDER, folder).output().unwrap()
}

/// What the second process is to have said.
fn said(output: &Output, what: &str) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.split_once(what));
    let line =
        line.unwrap_or_else(|| panic!("`{what}` is not in:\n{text}\n{}", String::from_utf8_lossy(&output.stderr)));
    line.1.to_owned()
}

/// The failure of a full disk names the file and says what to do.
fn tells(error: &StoreError, path: &Path) {
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(error.message.contains(path.to_str().unwrap()), "{error}");
    assert!(error.message.contains("room"), "{error}");
}

/// The rows of one batch, of which no two are the same.
fn rows(batch: u64) -> Vec<NewRow> {
    (0..ROWS).map(|place| row(&format!("{batch} {place} {}", "x".repeat(3_000)))).collect()
}

/// Appends batch after batch until the disk is full; the first batch that was not acknowledged.
async fn fill(store: &SqliteStore, fence: &Fence, path: &Path) -> u64 {
    for batch in 0.. {
        let expected = Seq::new(batch * ROWS);
        match store.append(fence, expected, Batch::new(BatchId::from_u128(batch.into()), rows(batch))).await {
            Ok(head) => assert_eq!(head, expected.plus(ROWS)),
            Err(AppendError::Unavailable(error) | AppendError::Unknown(error)) => {
                tells(&error, path);
                return batch;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("every disk is full in the end")
}

/// How many whole batches are there; half a one, or another one, is a failure.
async fn batches(store: &SqliteStore) -> u64 {
    let log = store.read(&id("s"), Seq::START, usize::MAX).await.unwrap();
    let should: Vec<_> = (0..).flat_map(rows).take(log.len()).collect();
    let seen: Vec<_> = log.into_iter().map(|row| NewRow::from_parts(row.at, row.kind, row.version, row.body)).collect();
    assert!(seen == should, "the log is not what was appended");
    assert_eq!(seen.len() as u64 % ROWS, 0, "half a batch");
    seen.len() as u64 / ROWS
}

fn sound(path: &Path) {
    let check: String =
        Connection::open(path).unwrap().query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

#[test]
fn a_disk_that_is_full_and_has_room_again() {
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=4m tmpfs \"$SETTLED_SQLITE_ROOM\"";
    let program = ["unshare", "-Urm", "sh", "-c", mount];
    let may = Command::new(program[0]).args(&program[1..]).env(FOLDER, folder.path()).output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("skipped: this machine lets nobody mount a file system of their own");
        return;
    }
    let output = Command::new("unshare")
        .args(["-Urm", "sh", "-c", &format!("{mount} && exec \"$0\" room::on_a_small_disk --exact --nocapture")])
        .arg(std::env::current_exe().unwrap())
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let places: u32 = said(&output, "> places ").parse().unwrap();
    assert!(output.status.success() && places >= 20, "{output:?}");
}

/// The second process of the test above: a small disk is filled at many places, and each time there is room again.
#[tokio::test]
async fn on_a_small_disk() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let (path, ballast) = (folder.join("sessions.db"), folder.join("ballast"));
    let mut full_after = BTreeSet::new();
    // From too little to make the tables to enough for a few hundred rows: it is full at another write each time.
    for left in std::iter::once(40).chain((300..1_900_usize).step_by(61)) {
        fs::write(&ballast, vec![0; (4 << 20) - (left << 10)]).unwrap();
        match SqliteStore::open(&path) {
            Ok(store) => {
                store.create(&id("s"), NewSession::default()).await.unwrap();
                let claimed = store.claim(WORKER, LEASE, &id("s")).await.unwrap();
                let failed = fill(&store, &claimed.fence, &path).await;
                // It stays full, and what is there can be read.
                assert_eq!(fill_again(&store, &claimed.fence, failed, &path).await, None);
                assert_eq!(batches(&store).await, failed);
                fs::remove_file(&ballast).unwrap();
                let landed = fill_again(&store, &claimed.fence, failed, &path).await;
                assert_eq!(landed, Some(Seq::new((failed + 1) * ROWS)));
                assert_eq!(batches(&store).await, failed + 1);
                full_after.insert(Some(failed));
                store.close().await;
            }
            Err(error) => {
                tells(&error, &path);
                fs::remove_file(&ballast).unwrap();
                SqliteStore::open(&path).unwrap().close().await;
                full_after.insert(None);
            }
        }
        sound(&path);
        for file in fs::read_dir(&folder).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
    println!("> full after {full_after:?}");
    println!("> places {}", full_after.len());
}

/// Appends the batch that failed once more; the head, if it lands now.
async fn fill_again(store: &SqliteStore, fence: &Fence, batch: u64, path: &Path) -> Option<Seq> {
    let again = Batch::new(BatchId::from_u128(batch.into()), rows(batch));
    match store.append(fence, Seq::new(batch * ROWS), again).await {
        Ok(head) => Some(head),
        Err(AppendError::Unavailable(error) | AppendError::Unknown(error)) => {
            tells(&error, path);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_file_that_may_grow_no_more() {
    // In units of 512 bytes; each is too little at another place.
    for limit in [400, 555, 812, 1_201] {
        let (folder, path) = place();
        // Without its signal, a write beyond the limit is a failure.
        let output = again("until_the_limit", &format!("trap '' XFSZ && ulimit -f {limit}"), folder.path());
        let failed: u64 = said(&output, "> failed at ").parse().unwrap();
        assert!(output.status.success() && failed > 0, "{output:?}");
        let store = SqliteStore::open(&path).unwrap();
        let there = batches(&store).await;
        // Whether the last one landed was not known: it is there as a whole, or not at all.
        assert!((failed..=failed + 1).contains(&there), "{failed} were acknowledged, {there} are there");
        let fence = Fence::new(id("s"), WORKER, 1);
        let landed = fill_again(&store, &fence, failed, &path).await;
        assert_eq!((landed, batches(&store).await), (Some(Seq::new((failed + 1) * ROWS)), failed + 1));
        store.close().await;
        sound(&path);
    }
}

/// The second process of the test above.
#[tokio::test]
async fn until_the_limit() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let path = folder.join("sessions.db");
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    let failed = fill(&store, &claimed.fence, &path).await;
    assert_eq!(batches(&store).await, failed, "what is there can be read");
    println!("> failed at {failed}");
}

//! The file: what is kept in it, who may read it, what it may not be, and what happens to it while it is open.
#![expect(clippy::unwrap_used, reason = "a test may fail")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so, and a second process answers on its output")]

mod common;

#[cfg(unix)]
#[path = "file/room.rs"]
mod room;

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use settled_ledger::store::{
    AppendError, Batch, Catalog, EventLog, Inbox, NewSession, Ownership, StoreError, StoreErrorKind,
};
use settled_ledger::{BatchId, Clock, InputId, NewInput, NewInputKind, Seq, Timestamp};
use settled_store_sqlite::SqliteStore;

use common::{LEASE, WORKER, append, id, log, owned, place, read, row};

#[tokio::test]
async fn all_is_there_when_it_is_opened_again() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    let batch = Batch::new(BatchId::from_u128(1), (0..200).map(|place| row(&place.to_string())).collect());
    store.append(&claimed.fence, claimed.head, batch.clone()).await.unwrap();
    let input = NewInput::new(InputId::from_u128(1), Timestamp::default(), NewInputKind::Compact);
    store.admit(&id("s"), input.key("k".to_owned())).await.unwrap();
    let (info, pending) = (store.info(&id("s")).await.unwrap(), store.pending(&id("s")).await.unwrap());
    store.close().await;
    assert!(!path.with_extension("db-wal").exists(), "whoever closes last leaves one file");

    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(read(&store, "s").await, log("s", (0..200).map(|place| place.to_string())));
    assert_eq!(store.info(&id("s")).await.unwrap(), info);
    assert_eq!(store.pending(&id("s")).await.unwrap(), pending);
    // The lease still runs, so the fence still counts; and so does the last batch.
    assert_eq!(store.append(&claimed.fence, claimed.head, batch).await, Ok(Seq::new(200)));
    assert_eq!(append(&store, &claimed.fence, Seq::new(200), 2, "x").await, Ok(Seq::new(201)));
}

#[tokio::test]
async fn what_was_under_way_when_the_last_handle_went_is_done() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let call = tokio::spawn({
        let store = store.clone();
        async move { append(&store, &claimed.fence, claimed.head, 1, "x").await }
    });
    while store.in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    call.abort();
    call.await.unwrap_err();
    other.execute_batch("COMMIT").unwrap();
    drop(other);
    store.close().await;
    assert_eq!(read(&SqliteStore::open(&path).unwrap(), "s").await, log("s", ["x".to_owned()]));
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_may_read_a_new_file() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    owned(&store, "s").await;
    let mut modes: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|file| file.unwrap())
        .map(|file| (file.file_name().into_string().unwrap(), file.metadata().unwrap().permissions().mode() & 0o777))
        .collect();
    modes.sort();
    let should = ["sessions.db", "sessions.db-shm", "sessions.db-wal"].map(|name| (name.to_owned(), 0o600));
    assert_eq!(modes, should);
}

/// Opening fails in this way, and the words name the path and say these things.
fn refuses(path: &Path, kind: StoreErrorKind, says: &[&str]) {
    let error = SqliteStore::open(path).unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    for what in says.iter().copied().chain([path.to_str().unwrap()]) {
        assert!(error.message.contains(what), "`{what}` is not in: {error}");
    }
}

#[test]
fn a_folder_that_is_not_there() {
    let (folder, _) = place();
    let path = folder.path().join("none").join("sessions.db");
    refuses(&path, StoreErrorKind::Unavailable, &["the folder", "is not there: make it first"]);
}

#[test]
fn a_folder_in_the_file_s_place() {
    let (folder, _) = place();
    refuses(folder.path(), StoreErrorKind::Unavailable, &["is a folder: give the path of a file"]);
}

#[test]
fn a_file_that_is_no_database() {
    let (_folder, path) = place();
    fs::write(&path, "Dear diary, today I did not write a database. ".repeat(100)).unwrap();
    refuses(&path, StoreErrorKind::Corrupt, &["is not a SQLite database: give another path"]);
    assert!(fs::read_to_string(&path).unwrap().starts_with("Dear diary"), "it is left as it was");
}

#[test]
fn a_database_of_another_application() {
    let (_folder, path) = place();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    refuses(&path, StoreErrorKind::Corrupt, &["another application: give another path"]);
    let tables = Connection::open(&path).unwrap().query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0));
    assert_eq!(tables, Ok(1), "it is left as it was");
}

#[tokio::test]
async fn a_file_of_a_newer_version() {
    let (_folder, path) = place();
    SqliteStore::open(&path).unwrap().close().await;
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    refuses(&path, StoreErrorKind::Newer, &["newer version", "99", "update the program"]);
}

#[tokio::test]
async fn a_file_that_is_locked_for_longer_than_is_bearable() {
    let (_folder, path) = place();
    SqliteStore::open(&path).unwrap().close().await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let error = SqliteStore::builder(&path).busy_timeout(Duration::from_millis(20)).open().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(error.message.contains("sessions.db` is locked by another process: try again, or stop"), "{error}");
    drop(other);
    SqliteStore::open(&path).unwrap();
}

#[tokio::test]
async fn files_that_are_not_whole() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    owned(&store, "s").await;
    store.close().await;
    let whole = fs::read(&path).unwrap();
    let is_not = "is not a SQLite database: give another path";
    for (bytes, says) in [
        (vec![0; 4_096], is_not),
        (whole[..64].to_vec(), "damaged"),
        (whole[..512].to_vec(), "damaged"),
        (whole[..4_096].to_vec(), "damaged"),
        (whole[..whole.len() / 2].to_vec(), "damaged"),
    ] {
        fs::write(&path, &bytes).unwrap();
        let error = match SqliteStore::open(&path) {
            Err(error) => error,
            Ok(store) => store.read(&id("s"), Seq::START, 10).await.unwrap_err(),
        };
        assert_eq!(error.kind, StoreErrorKind::Corrupt, "{} bytes: {error}", bytes.len());
        assert!(
            error.message.contains(says) && error.message.contains(path.to_str().unwrap()),
            "{} bytes: {error}",
            bytes.len()
        );
        assert_eq!(fs::read(&path).unwrap(), bytes, "it is left as it was");
    }
    // One without a byte is as good as none.
    fs::write(&path, "").unwrap();
    owned(&SqliteStore::open(&path).unwrap(), "s").await;
}

/// The environment by which a process of little rights knows the folder.
#[cfg(unix)]
const FOLDER: &str = "SETTLED_SQLITE_FOLDER";

/// Files and folders that may not be written to.
///
/// Whoever may write to everything is not held up by permissions: the test is then run again as a user who owns nothing.
#[cfg(unix)]
#[tokio::test]
async fn what_may_not_be_written_to() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let (folder, path) = match std::env::var_os(FOLDER) {
        Some(folder) => (None, Path::new(&folder).join("sessions.db")),
        None => {
            let (folder, path) = place();
            (Some(folder), path)
        }
    };
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let parent = path.parent().unwrap().to_owned();
    let probe = parent.join("probe");
    if folder.is_some() {
        fs::write(&probe, "").unwrap();
        mode(&probe, 0o400);
        if OpenOptions::new().write(true).open(&probe).is_ok() {
            std::os::unix::fs::chown(&parent, Some(65_534), Some(65_534)).unwrap();
            let mut again = Command::new(std::env::current_exe().unwrap());
            let again = again.args(["what_may_not_be_written_to", "--exact", "--nocapture"]).env(FOLDER, &parent);
            match again.uid(65_534).gid(65_534).output() {
                Ok(output) => assert!(output.status.success(), "{output:?}"),
                Err(error) => println!("skipped: no other user may run the tests here: {error}"),
            }
            return;
        }
    }

    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    append(&store, &claimed.fence, claimed.head, 1, "x").await.unwrap();
    store.close().await;
    let before = fs::read(&path).unwrap();
    mode(&path, 0o400);
    refuses(&path, StoreErrorKind::ReadOnly, &["may not be written to: look at its permissions"]);
    mode(&path, 0o000);
    refuses(
        &path,
        StoreErrorKind::Unavailable,
        &["cannot be opened: look whether its folder is there and who may use it"],
    );
    mode(&path, 0o600);
    // The write-ahead log cannot be made beside it.
    mode(&parent, 0o500);
    refuses(
        &path,
        StoreErrorKind::ReadOnly,
        &["may not be written to: look at the permissions of the file and of its folder"],
    );
    mode(&parent, 0o700);
    assert_eq!(fs::read(&path).unwrap(), before, "it is left as it was");
    fs::remove_file(&path).unwrap();
    mode(&parent, 0o500);
    refuses(&path, StoreErrorKind::ReadOnly, &["cannot be made", "look at the permissions of its folder"]);
    mode(&parent, 0o700);
}

/// Damages every page of the file but the first.
fn damage(path: &Path) {
    let length = fs::metadata(path).unwrap().len();
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    for page in (4_096..length).step_by(4_096) {
        file.seek(SeekFrom::Start(page)).unwrap();
        file.write_all(&[0xff; 512]).unwrap();
    }
}

#[tokio::test]
async fn a_damaged_file_is_a_failure_with_its_name() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    let rows = (0..200).map(|place| row(&place.to_string())).collect();
    store.append(&claimed.fence, claimed.head, Batch::new(BatchId::from_u128(1), rows)).await.unwrap();
    store.close().await;
    damage(&path);
    let error = match SqliteStore::open(&path) {
        Err(error) => error,
        Ok(store) => store.read(&id("s"), Seq::START, 10).await.unwrap_err(),
    };
    assert_eq!(error.kind, StoreErrorKind::Corrupt, "{error}");
    assert!(error.message.contains(path.to_str().unwrap()) && error.message.contains(".recover"), "{error}");
}

#[tokio::test]
async fn a_row_that_is_missing_is_not_skipped() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    for (seq, text) in (0..5).zip(["a", "b", "c", "d", "e"]) {
        append(&store, &claimed.fence, Seq::new(seq), seq.into(), text).await.unwrap();
    }
    Connection::open(&path).unwrap().execute("DELETE FROM events WHERE seq = 3", []).unwrap();
    for (after, limit) in [(0, 10), (2, 1), (1, 2)] {
        let error = store.read(&id("s"), Seq::new(after), limit).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Corrupt);
        assert!(error.message.contains("event 3 of session `s` is missing"), "{error}");
    }
    assert_eq!(store.read(&id("s"), Seq::new(3), 10).await.unwrap().len(), 2);
}

/// A store whose file goes away while it is open refuses to write, and says so.
async fn refuses_to_write(store: &SqliteStore, fence: &settled_ledger::store::Fence, path: &Path) {
    let refused = |error: StoreError| {
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert!(error.message.contains(path.to_str().unwrap()), "{error}");
        assert!(error.message.contains("deleted or replaced while it was open"), "{error}");
    };
    match append(store, fence, Seq::START, 1, "x").await {
        Err(AppendError::Unavailable(error)) => refused(error),
        answer => panic!("it was {answer:?}"),
    }
    refused(store.create(&id("new"), NewSession::default()).await.unwrap_err());
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_deleted_while_it_is_open() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    let away = path.with_extension("away");
    fs::rename(&path, &away).unwrap();
    refuses_to_write(&store, &claimed.fence, &path).await;
    fs::write(&path, "").unwrap();
    refuses_to_write(&store, &claimed.fence, &path).await;
    // The very file again, and the store goes on.
    fs::rename(&away, &path).unwrap();
    assert_eq!(append(&store, &claimed.fence, Seq::START, 1, "x").await, Ok(Seq::new(1)));
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_is_replaced_is_not_read_in_the_other_s_place() {
    let (_folder, path) = place();
    let (_elsewhere, other) = place();
    let theirs = SqliteStore::open(&other).unwrap();
    owned(&theirs, "theirs").await;
    theirs.close().await;
    // Nobody has read yet: the connections of the readers are not there.
    let store = SqliteStore::open(&path).unwrap();
    fs::rename(&other, &path).unwrap();
    let error = store.info(&id("theirs")).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.message.contains("deleted or replaced while it was open"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_write_ahead_log_that_is_deleted_takes_nothing_with_it() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    append(&store, &claimed.fence, claimed.head, 1, "x").await.unwrap();
    fs::remove_file(path.with_extension("db-wal")).unwrap();
    let told = |error: StoreError| {
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert!(error.message.contains("sessions.db-wal` was deleted or replaced"), "{error}");
        assert!(error.message.contains("close the store"), "{error}");
    };
    match append(&store, &claimed.fence, Seq::new(1), 2, "y").await {
        Err(AppendError::Unavailable(error)) => told(error),
        answer => panic!("it was {answer:?}"),
    }
    // No reader has read yet, and none makes another log.
    told(store.info(&id("s")).await.unwrap_err());
    store.close().await;
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(read(&store, "s").await, log("s", ["x".to_owned()]));
    assert_eq!(append(&store, &claimed.fence, Seq::new(1), 2, "y").await, Ok(Seq::new(2)));
}

#[cfg(unix)]
#[tokio::test]
async fn a_folder_that_is_deleted_while_it_is_open() {
    let (folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    fs::remove_dir_all(folder.path()).unwrap();
    refuses_to_write(&store, &claimed.fence, &path).await;
}

#[tokio::test]
async fn a_person_can_read_the_timeline() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    append(&store, &claimed.fence, Seq::START, 1, "hello").await.unwrap();
    append(&store, &claimed.fence, Seq::new(1), 2, "world").await.unwrap();
    // Erased sessions leave no trace in it.
    store.create(&id("gone"), NewSession::new(vec![row("x")], [].into())).await.unwrap();
    store.erase(&id("gone")).await.unwrap();
    let query = "SELECT session, seq, time, event, version, fields FROM timeline";
    let should = [
        r#"s|1|2023-11-14 22:13:20.123|text.ended|1|{"text":"hello"}"#,
        r#"s|2|2023-11-14 22:13:20.123|text.ended|1|{"text":"world"}"#,
    ];
    let db = Connection::open(&path).unwrap();
    let mut lines =
        db.prepare("SELECT concat_ws('|', session, seq, time, event, version, fields) FROM timeline").unwrap();
    let lines: Vec<String> = lines.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(lines, should);
    match Command::new("sqlite3").arg(&path).arg(query).output() {
        Ok(shown) => assert_eq!(String::from_utf8(shown.stdout).unwrap().lines().collect::<Vec<_>>(), should),
        Err(_) => println!("skipped: there is no command `sqlite3` here"),
    }
}

#[tokio::test]
async fn a_log_reads_the_same_however_its_rows_lie() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let mut sessions = Vec::new();
    for place in 0..20 {
        let claimed = owned(&store, &format!("s{place}")).await;
        sessions.push((claimed.fence, Seq::START));
    }
    // The first has stretches of its own between stretches that all share.
    let mut texts = Vec::new();
    for round in 0..330_u128 {
        for (place, (fence, head)) in sessions.iter_mut().enumerate() {
            let alone = (100..200).contains(&round);
            if alone && place > 0 {
                continue;
            }
            let text = format!("{round}");
            *head = append(&store, fence, *head, round + 1, &text).await.unwrap();
            if place == 0 {
                texts.push(text);
            }
        }
    }
    let should = log("s0", texts);
    assert_eq!(read(&store, "s0").await, should);
    for after in (0..=330).step_by(13) {
        for limit in [1, 2, 63, 64, 65, 130, 400] {
            let seen = store.read(&id("s0"), Seq::new(after as u64), limit).await.unwrap();
            let part: Vec<_> = should.iter().skip(after).take(limit).cloned().collect();
            assert_eq!(seen, part, "{limit} after {after}");
        }
    }
    let (fence, _) = &sessions[0];
    store.release(fence).await.unwrap();
    store.erase(&id("s0")).await.unwrap();
    let left = log("s1", (0..330).filter(|round| !(100..200).contains(round)).map(|round: i32| round.to_string()));
    assert_eq!(read(&store, "s1").await, left);
}

#[tokio::test]
async fn the_write_ahead_log_stays_bounded() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    let (mut head, body) = (claimed.head, "x".repeat(1_000));
    for place in 1..=400 {
        let rows = vec![row(&body); 200];
        head = store.append(&claimed.fence, head, Batch::new(BatchId::from_u128(place), rows)).await.unwrap();
    }
    let (file, log) = (fs::metadata(&path).unwrap().len(), fs::metadata(path.with_extension("db-wal")).unwrap().len());
    assert!(file > 64 << 20, "most of what was written is in the file: {file} bytes");
    assert!(log < 24 << 20, "the log has begun anew: {log} bytes");
}

/// The length of the write-ahead log, in pages.
fn pages(path: &Path) -> u64 {
    let length = fs::metadata(path.with_extension("db-wal")).unwrap().len();
    assert_eq!((length - 32) % 4_120, 0, "a header, and whole frames");
    (length - 32) / 4_120
}

#[tokio::test]
async fn a_reader_that_is_long_makes_the_log_grow_by_what_is_written_and_no_longer_than_it_lasts() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    let (mut head, body, mut batch) = (claimed.head, "x".repeat(4_000), 0);
    let before = pages(&path);
    let long = Connection::open(&path).unwrap();
    long.execute_batch("BEGIN").unwrap();
    let seen =
        |long: &Connection| long.query_row("SELECT count(*) FROM events", [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(seen(&long), 0);
    // 8,000 rows of nearly a page: no commit waits for the reader, and none of the log can be used again.
    for _ in 0..40 {
        batch += 1;
        head = store
            .append(&claimed.fence, head, Batch::new(BatchId::from_u128(batch), vec![row(&body); 200]))
            .await
            .unwrap();
    }
    let grown = pages(&path) - before;
    assert_eq!(seen(&long), 0, "it goes on seeing what it saw");
    // A commit of 200 rows writes their pages, and a few that lead to them or keep the head.
    assert!((8_000..8_000 + 40 * 40).contains(&grown), "{grown} pages");
    long.execute_batch("COMMIT").unwrap();
    assert_eq!(seen(&long), 8_000);

    // Each 1,000 pages more a checkpoint is due; without a reader it has the log begin anew, and cuts it.
    while pages(&path) >= 4_000 {
        batch += 1;
        let rows = vec![row(&body); 200];
        head = store.append(&claimed.fence, head, Batch::new(BatchId::from_u128(batch), rows)).await.unwrap();
        assert!(batch < 500, "the log is not cut");
    }
    assert_eq!(seen(&long), i64::try_from(head.get()).unwrap());
}

/// A clock that stands two days after the machine's.
struct InTwoDays;

impl Clock for InTwoDays {
    fn now(&self) -> Timestamp {
        Timestamp::default().plus(std::time::UNIX_EPOCH.elapsed().unwrap() + Duration::from_secs(2 * 24 * 3_600))
    }
}

#[tokio::test]
async fn a_lease_that_ran_out_long_ago_is_forgotten() {
    let (_folder, path) = place();
    let leases = || Connection::open(&path).unwrap().query_row("SELECT count(*) FROM workers", [], |row| row.get(0));
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    store.close().await;
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(leases(), Ok(1));
    store.close().await;
    let store = SqliteStore::builder(&path).clock(Arc::new(InTwoDays)).open().unwrap();
    assert_eq!(leases(), Ok(0));
    // Nobody else has claimed it: the fence counts, and a renewal gives the session back to its owner.
    assert_eq!(append(&store, &claimed.fence, claimed.head, 1, "x").await, Ok(Seq::new(1)));
    store.renew(WORKER, LEASE).await.unwrap();
    assert_eq!(store.info(&id("s")).await.unwrap().owner, Some(WORKER));
}

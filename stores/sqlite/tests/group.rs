//! The writer: what shares a commit, what fails alone, what waits for another process, and what a virtual clock sees of it.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::time::Duration;

use rusqlite::Connection;
use settled_ledger::store::{AppendError, Batch, EventLog, Inbox, Ownership, StoreErrorKind};
use settled_ledger::{BatchId, Delivery, InputId, NewInput, NewInputKind, Notice, Seq, Timestamp, WorkerId};
use settled_store_sqlite::{SqliteStore, Stats};
use tokio::task::{JoinSet, yield_now};
use tokio::time::Instant;

use common::{LEASE, append, id, log, owned, place, read, row};

/// Another connection that has the file locked.
fn locked(path: &std::path::Path) -> Connection {
    let other = Connection::open(path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    other
}

/// What was committed since.
fn since(store: &SqliteStore, before: Stats) -> (u64, u64, u64) {
    let now = store.stats();
    (now.commits - before.commits, now.calls - before.calls, now.rows - before.rows)
}

/// Waits until so many calls are under way; while they are, nothing else moves.
async fn under_way(store: &SqliteStore, calls: usize) {
    while store.in_flight() < calls {
        yield_now().await;
    }
}

#[tokio::test]
async fn one_call_is_one_commit() {
    let (_folder, path) = place();
    let store = SqliteStore::open(path).unwrap();
    let claimed = owned(&store, "s").await;
    let before = store.stats();
    let mut head = claimed.head;
    for place in 0..5 {
        let rows = vec![row("a"), row("b"), row("c")];
        head = store.append(&claimed.fence, head, Batch::new(BatchId::from_u128(place), rows)).await.unwrap();
    }
    assert_eq!(since(&store, before), (5, 5, 15));
}

#[tokio::test]
async fn calls_that_wait_share_one_commit() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let mut claims = Vec::new();
    for place in 0..10 {
        claims.push(owned(&store, &format!("s{place}")).await);
    }
    let before = store.stats();
    let other = locked(&path);
    let mut calls = JoinSet::new();
    for (claimed, place) in claims.into_iter().zip(1..) {
        let store = store.clone();
        calls.spawn(async move { append(&store, &claimed.fence, claimed.head, place, "x").await });
    }
    let input = NewInput::new(InputId::from_u128(1), Timestamp::default(), NewInputKind::Compact);
    let admit = store.clone();
    calls.spawn(async move { admit.admit(&id("s0"), input).await.map(|_| Seq::new(1)).map_err(|_| AppendError::Busy) });
    under_way(&store, 11).await;
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(calls.join_all().await, vec![Ok(Seq::new(1)); 11]);
    assert_eq!(since(&store, before), (1, 11, 10));
    for place in 0..10 {
        assert_eq!(read(&store, &format!("s{place}")).await, log(&format!("s{place}"), ["x".to_owned()]));
    }
}

#[tokio::test]
async fn a_group_has_a_limit() {
    let (_folder, path) = place();
    let store = SqliteStore::builder(&path).group_limit(4).open().unwrap();
    let mut claims = Vec::new();
    for place in 0..10 {
        claims.push(owned(&store, &format!("s{place}")).await);
    }
    let before = store.stats();
    let other = locked(&path);
    let mut calls = JoinSet::new();
    for (claimed, place) in claims.into_iter().zip(1..) {
        let store = store.clone();
        calls.spawn(async move { append(&store, &claimed.fence, claimed.head, place, "x").await });
    }
    under_way(&store, 10).await;
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(calls.join_all().await, vec![Ok(Seq::new(1)); 10]);
    assert_eq!(since(&store, before), (3, 10, 10));
}

#[tokio::test]
async fn what_is_refused_writes_nothing() {
    let (_folder, path) = place();
    let store = SqliteStore::open(path).unwrap();
    let claimed = owned(&store, "s").await;
    let before = store.stats();
    append(&store, &claimed.fence, Seq::new(7), 1, "x").await.unwrap_err();
    let notice = NewInputKind::Notice(Notice::new("x", Delivery::Queue));
    let input = NewInput::new(InputId::from_u128(1), Timestamp::default(), notice);
    store.admit(&id("nobody"), input).await.unwrap_err();
    assert_eq!(since(&store, before), (0, 2, 0));
}

#[tokio::test]
async fn a_call_that_fails_takes_none_with_it() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let good = owned(&store, "good").await;
    let other_good = owned(&store, "other").await;
    let stale = owned(&store, "stale").await;
    let broken = owned(&store, "broken").await;
    store.claim(WorkerId::from_u128(0xa), LEASE, &id("stale")).await.unwrap();

    let other = locked(&path);
    other.execute("UPDATE sessions SET state = '{' WHERE id = 'broken'", []).unwrap();
    let mut calls = JoinSet::new();
    for (claimed, place) in [good, broken, stale, other_good].into_iter().zip(1..) {
        let store = store.clone();
        calls.spawn(async move {
            let session = claimed.fence.session.as_str().to_owned();
            (session, append(&store, &claimed.fence, claimed.head, place, "x").await)
        });
    }
    under_way(&store, 4).await;
    other.execute_batch("COMMIT").unwrap();
    let mut ends = calls.join_all().await;
    ends.sort_by(|(one, _), (two, _)| one.cmp(two));
    let (name, error) = ends.remove(0);
    assert_eq!(name, "broken");
    let Err(AppendError::Unavailable(error)) = error else { panic!("it was {error:?}") };
    assert_eq!(error.kind, StoreErrorKind::Corrupt);
    assert!(error.message.contains("sessions.db") && error.message.contains("session `broken`"), "{error}");
    let landed = Ok(Seq::new(1));
    let should = [
        ("good".to_owned(), landed.clone()),
        ("other".to_owned(), landed),
        ("stale".to_owned(), Err(AppendError::Fenced)),
    ];
    assert_eq!(ends, should);
    for name in ["good", "other"] {
        assert_eq!(read(&store, name).await, log(name, ["x".to_owned()]));
    }
    assert_eq!(read(&store, "broken").await, []);
}

#[tokio::test]
async fn a_call_that_fails_half_way_leaves_nothing() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let (good, half) = (owned(&store, "good").await, owned(&store, "half").await);
    let other = locked(&path);
    let second = "CREATE TRIGGER second BEFORE INSERT ON events WHEN new.seq = 2 BEGIN SELECT RAISE(ABORT, 'no'); END";
    other.execute_batch(second).unwrap();
    let mut calls = JoinSet::new();
    for (claimed, rows) in [(good, 1), (half, 3)] {
        let store = store.clone();
        calls.spawn(async move {
            let batch = Batch::new(BatchId::from_u128(1), vec![row("x"); rows]);
            store.append(&claimed.fence, claimed.head, batch).await.map_err(|error| error.to_string())
        });
    }
    under_way(&store, 2).await;
    other.execute_batch("COMMIT").unwrap();
    let mut ends = calls.join_all().await;
    ends.sort();
    assert_eq!(ends[0], Ok(Seq::new(1)));
    assert!(ends[1].as_ref().unwrap_err().contains("was not taken"), "{ends:?}");
    assert_eq!(read(&store, "good").await, log("good", ["x".to_owned()]));
    assert_eq!(read(&store, "half").await, []);
}

#[tokio::test]
async fn a_commit_that_fails_is_unknown_and_the_same_batch_resolves_it() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    let before = store.stats();
    let other = Connection::open(&path).unwrap();
    // What is checked at the commit alone, and does not hold.
    let deferred = "CREATE TABLE parents (id INTEGER PRIMARY KEY);
        CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
        CREATE TRIGGER orphan AFTER INSERT ON events BEGIN INSERT INTO children VALUES (1); END;";
    other.execute_batch(deferred).unwrap();
    for _ in 0..2 {
        let answer = append(&store, &claimed.fence, claimed.head, 1, "x").await;
        assert!(matches!(answer, Err(AppendError::Unknown(_))), "it was {answer:?}");
    }
    assert_eq!(since(&store, before), (0, 0, 0));
    assert_eq!(read(&store, "s").await, []);
    other.execute_batch("DROP TRIGGER orphan").unwrap();
    assert_eq!(append(&store, &claimed.fence, claimed.head, 1, "x").await, Ok(Seq::new(1)));
    assert_eq!(append(&store, &claimed.fence, claimed.head, 1, "x").await, Ok(Seq::new(1)));
    assert_eq!(read(&store, "s").await, log("s", ["x".to_owned()]));
}

#[tokio::test]
async fn a_lock_that_lasts_is_an_answer_and_the_store_goes_on_after() {
    let (_folder, path) = place();
    let store = SqliteStore::builder(&path).busy_timeout(Duration::from_millis(20)).open().unwrap();
    let claimed = owned(&store, "s").await;
    let other = locked(&path);
    let answer = append(&store, &claimed.fence, claimed.head, 1, "x").await;
    let Err(AppendError::Unavailable(error)) = answer else { panic!("it was {answer:?}") };
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.message.contains("sessions.db` is locked by another process"), "{error}");
    // Reading waits for no writer.
    assert_eq!(read(&store, "s").await, []);
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(append(&store, &claimed.fence, claimed.head, 1, "x").await, Ok(Seq::new(1)));
}

#[tokio::test]
async fn a_call_that_is_dropped_counts_until_its_effect_is_there() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let claimed = owned(&store, "s").await;
    let other = locked(&path);
    let call = tokio::spawn({
        let (store, claimed) = (store.clone(), claimed.clone());
        async move { append(&store, &claimed.fence, claimed.head, 1, "x").await }
    });
    under_way(&store, 1).await;
    call.abort();
    call.await.unwrap_err();
    assert_eq!(store.in_flight(), 1);
    other.execute_batch("COMMIT").unwrap();
    while store.in_flight() > 0 {
        yield_now().await;
    }
    assert_eq!(read(&store, "s").await, log("s", ["x".to_owned()]));
}

/// Appends while the file is locked and a paused clock could jump an hour; whether the append was answered first, and the time that passed.
async fn append_or_an_hour(store: &SqliteStore, path: &std::path::Path) -> (bool, Duration) {
    let claimed = owned(store, "s").await;
    let start = Instant::now();
    let other = locked(path);
    let unlock = std::thread::spawn({
        let store = store.clone();
        move || {
            while store.in_flight() == 0 {
                std::thread::yield_now();
            }
            // Long enough for a runtime to find that it has nothing to do.
            std::thread::sleep(Duration::from_millis(30));
            other.execute_batch("COMMIT").unwrap();
        }
    });
    let first = tokio::select! {
        landed = append(store, &claimed.fence, claimed.head, 1, "x") => landed.is_ok(),
        () = tokio::time::sleep(Duration::from_secs(3_600)) => false,
    };
    unlock.join().unwrap();
    (first, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_stands_while_a_call_holds_it() {
    let (_folder, path) = place();
    let builder = SqliteStore::builder(&path).hold(|| {
        let (held, wait) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || wait.recv());
        Box::new(held)
    });
    let store = builder.open().unwrap();
    assert_eq!(append_or_an_hour(&store, &path).await, (true, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_jumps_where_nothing_holds_it() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(append_or_an_hour(&store, &path).await, (false, Duration::from_secs(3_600)));
}

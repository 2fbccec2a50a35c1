//! Durable rows a second against a bare group commit of the same schema, and what opening costs.
//!
//! Both write the same rows into the same tables with the same pragmas, and each session waits for its own row before it hands in the next.
//! The bare one has a thread, a channel and prepared statements, and no more: no fence, no head, no batch id, no inbox, no other process.
//! Rounds alternate; the figures are medians, and what counts are the ratios.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and may fail")]

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use rusqlite::{Connection, params};
use settled_ledger::store::{Batch, EventLog, NewSession, Ownership};
use settled_ledger::{BatchId, NewRow, Timestamp, WorkerId};
use settled_store_sqlite::SqliteStore;
use settled_tools_api::SessionId;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// How many rows a round writes, and how many rounds there are of each.
const ROWS: usize = 60_000;
const ROUNDS: usize = 7;

fn main() {
    // Cargo passes `--bench`; as a test it is only built and begun.
    let rounds = if std::env::args().any(|arg| arg == "--bench") { ROUNDS } else { 1 };
    let body = format!(r#"{{"message":"msg_{:032x}","ordinal":0,"text":"{}"}}"#, 7, "x".repeat(110));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    println!("rows of {} bytes, durable; medians of {rounds} alternating rounds", body.len());
    for (sessions, goal) in [(1, None), (64, Some(0.7)), (256, Some(0.75))] {
        let rows = if sessions == 1 { ROWS / 20 } else { ROWS };
        let each = (if rounds == 1 { rows / 20 } else { rows }).div_ceil(sessions);
        let (mut bare, mut ours, mut one_by_one, mut shared) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(bare_group_commit(&runtime, sessions, each, &body));
            let (rate, commits) = store(&runtime, sessions, each, &body);
            ours.push(rate);
            shared.push((sessions * each) as f64 / commits as f64);
            one_by_one.push(bare_commits(sessions, each, &body));
        }
        let (bare, ours, best) = (median(bare), median(ours), median(one_by_one));
        let goal = goal.map_or_else(String::new, |goal| {
            format!(" (goal {goal}: {})", if ours / bare >= goal { "met" } else { "missed" })
        });
        println!(
            "{sessions:>4} sessions: store {ours:>8.0} rows/s, {:.1} rows a commit; bare group commit {bare:>8.0}: ratio {:.2}{goal}; \
             bare commits of {sessions} rows, nobody waits, {best:>8.0}: ratio {:.2}",
            median(shared),
            ours / bare,
            ours / best,
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let open = || {
        let start = Instant::now();
        let store = SqliteStore::open(&path).unwrap();
        let took = start.elapsed();
        runtime.block_on(store.close());
        took.as_secs_f64() * 1_000.0
    };
    let new = open();
    let again = median((0..rounds * 3).map(|_| open()).collect());
    println!("opening: {new:.1} ms for a new file, {again:.1} ms for one that is there (goal: under 50)");
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Sessions, each of which appends one row after another; rows a second, and commits.
fn store(runtime: &Runtime, sessions: usize, each: usize, body: &str) -> (f64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("sessions.db")).unwrap();
    runtime.block_on(async {
        let worker = WorkerId::from_u128(1);
        let mut claims = Vec::new();
        for place in 0..sessions {
            let session = SessionId::new(format!("session-{place}")).unwrap();
            store.create(&session, NewSession::default()).await.unwrap();
            claims.push(store.claim(worker, Duration::from_secs(60), &session).await.unwrap());
        }
        let before = store.stats().commits;
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for (place, claimed) in claims.into_iter().enumerate() {
            let (store, body) = (store.clone(), body.to_owned());
            tasks.spawn(async move {
                let mut head = claimed.head;
                for round in 0..each {
                    let at = Timestamp::from_millis(1_700_000_000_000 + round as i64);
                    let row = NewRow::from_parts(at, "text.ended".to_owned(), 1, body.clone());
                    let id = BatchId::from_u128((place * each + round) as u128);
                    head = store.append(&claimed.fence, head, Batch::new(id, vec![row])).await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        let rate = (sessions * each) as f64 / start.elapsed().as_secs_f64();
        (rate, store.stats().commits - before)
    })
}

/// One row that is to be committed, and who waits for it.
struct Row {
    session: i64,
    seq: i64,
    batch: [u8; 16],
    kind: String,
    body: String,
    done: oneshot::Sender<()>,
}

/// The same with a thread that does nothing but group and commit.
fn bare_group_commit(runtime: &Runtime, sessions: usize, each: usize, body: &str) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let db = tables(&folder.path().join("sessions.db"), sessions);
    let (tell, rows) = mpsc::channel::<Row>();
    let writer = thread::spawn(move || {
        while let Ok(first) = rows.recv() {
            let mut done = Vec::new();
            db.execute_batch("BEGIN IMMEDIATE").unwrap();
            {
                let mut writing = Bare::new(&db);
                let mut next = Some(first);
                while let Some(row) = next {
                    writing.put(row.session, row.seq, &row.batch, &row.kind, &row.body);
                    done.push(row.done);
                    next = rows.try_recv().ok();
                }
            }
            db.execute_batch("COMMIT").unwrap();
            for done in done {
                done.send(()).unwrap();
            }
        }
    });
    let rate = runtime.block_on(async {
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for session in 0..sessions {
            let (tell, body) = (tell.clone(), body.to_owned());
            tasks.spawn(async move {
                for round in 0..each {
                    let (done, wait) = oneshot::channel();
                    let batch = ((session * each + round) as u128).to_be_bytes();
                    let (session, seq) = (session as i64 + 1, round as i64 + 1);
                    let (kind, body) = ("text.ended".to_owned(), body.clone());
                    tell.send(Row { session, seq, batch, kind, body, done }).unwrap();
                    wait.await.unwrap();
                }
            });
        }
        tasks.join_all().await;
        (sessions * each) as f64 / start.elapsed().as_secs_f64()
    });
    drop(tell);
    writer.join().unwrap();
    rate
}

/// Commits of one row for each session, one after another, by one thread that waits for nobody.
fn bare_commits(sessions: usize, each: usize, body: &str) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let db = tables(&folder.path().join("sessions.db"), sessions);
    let start = Instant::now();
    for round in 0..each {
        db.execute_batch("BEGIN IMMEDIATE").unwrap();
        {
            let mut writing = Bare::new(&db);
            for session in 0..sessions {
                let batch = ((session * each + round) as u128).to_be_bytes();
                writing.put(session as i64 + 1, round as i64 + 1, &batch, "text.ended", body);
            }
        }
        db.execute_batch("COMMIT").unwrap();
    }
    (sessions * each) as f64 / start.elapsed().as_secs_f64()
}

/// The store's own tables with sessions in them, on a bare connection; nobody else has the file.
fn tables(path: &Path, sessions: usize) -> Connection {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(path).unwrap();
        for place in 0..sessions {
            let session = SessionId::new(format!("session-{place}")).unwrap();
            store.create(&session, NewSession::default()).await.unwrap();
        }
        store.close().await;
    });
    let db = Connection::open(path).unwrap();
    db.execute_batch("PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY;").unwrap();
    db
}

/// The statements that one row takes.
struct Bare<'a> {
    add: rusqlite::CachedStatement<'a>,
    mark: rusqlite::CachedStatement<'a>,
    head: rusqlite::CachedStatement<'a>,
}

impl<'a> Bare<'a> {
    fn new(db: &'a Connection) -> Self {
        let add = "INSERT INTO events (session, seq, prev, at, version, kind, body, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
        Self {
            add: db.prepare_cached(add).unwrap(),
            mark: db.prepare_cached("INSERT INTO marks VALUES (?1, ?2, ?3)").unwrap(),
            head: db
                .prepare_cached("UPDATE heads SET head = ?2, event = ?3, batch = ?4, updated = ?5 WHERE session = ?1")
                .unwrap(),
        }
    }

    fn put(&mut self, session: i64, seq: i64, batch: &[u8; 16], kind: &str, body: &str) {
        let at = 1_700_000_000_000_i64 + seq;
        let event = self.add.insert(params![session, seq, seq, at, 1, kind, body, u32::MAX]).unwrap();
        if seq % 64 == 0 {
            self.mark.execute([session, seq, event]).unwrap();
        }
        self.head.execute(params![session, seq, event, batch, at]).unwrap();
    }
}

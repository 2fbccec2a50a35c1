//! Durable rows a second, and how long an answer takes: sessions that each wait for their own row before they hand in the next.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use settled_ledger::store::{Batch, EventLog, NewSession, Ownership};
use settled_ledger::{BatchId, NewRow, Timestamp, WorkerId};
use settled_store_sqlite::SqliteStore;
use settled_tools_api::SessionId;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::bare::{Bare, commit, tables};
use crate::{Goal, Line, median, millis, part};

/// Measures with one session, with 64 and with 256.
pub(crate) fn measure(rounds: usize, rows: usize) {
    let body = format!(r#"{{"message":"msg_{:032x}","ordinal":0,"text":"{}"}}"#, 7, "x".repeat(110));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (sessions, goal) in [(1, Goal::None), (64, Goal::AtLeast(0.7)), (256, Goal::AtLeast(0.75))] {
        let each = (if sessions == 1 { rows / 20 } else { rows }).div_ceil(sessions);
        let mut rate = Line::new(
            format!("append: {sessions} sessions, rows of {} B, against a bare group commit", body.len()),
            "rows/s",
            goal,
        );
        let mut waits = Line::new(
            format!(
                "append: p99 of an answer with {sessions} sessions, against the median bare commit of {sessions} rows"
            ),
            "ms",
            if sessions == 256 { Goal::AtMost(3.0) } else { Goal::None },
        );
        let mut late = Line::new(
            format!("append: p99 of an answer with {sessions} sessions, against that of the bare group commit"),
            "ms",
            Goal::None,
        );
        for _ in 0..rounds {
            let (floor, theirs) = group_commit(&runtime, sessions, each, &body);
            let (figure, ours) = store(&runtime, sessions, each, &body);
            rate.round(floor, figure);
            waits.round(median(&commits(sessions, each.min(50), &body)), part(&ours, 0.99));
            late.round(part(&theirs, 0.99), part(&ours, 0.99));
        }
        rate.print();
        waits.print();
        late.print();
    }
}

/// Sessions, each of which appends one row after another; rows a second, and how long each answer took, in ms.
fn store(runtime: &Runtime, sessions: usize, each: usize, body: &str) -> (f64, Vec<f64>) {
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
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for (place, claimed) in claims.into_iter().enumerate() {
            let (store, body) = (store.clone(), body.to_owned());
            tasks.spawn(async move {
                let (mut head, mut waited) = (claimed.head, Vec::with_capacity(each));
                for round in 0..each {
                    let at = Timestamp::from_millis(1_700_000_000_000 + round as i64);
                    let row = NewRow::from_parts(at, "text.ended".to_owned(), 1, body.clone());
                    let id = BatchId::from_u128((place * each + round) as u128);
                    let asked = Instant::now();
                    head = store.append(&claimed.fence, head, Batch::new(id, vec![row])).await.unwrap();
                    waited.push(millis(asked));
                }
                waited
            });
        }
        let answers = tasks.join_all().await.concat();
        let rate = (sessions * each) as f64 / start.elapsed().as_secs_f64();
        store.close().await;
        (rate, answers)
    })
}

/// One row that is to be committed, and who waits for it.
struct Row {
    session: i64,
    seq: i64,
    batch: u128,
    kind: String,
    body: String,
    done: oneshot::Sender<()>,
}

/// The same with a thread that does nothing but group and commit; rows a second, and how long each answer took, in ms.
fn group_commit(runtime: &Runtime, sessions: usize, each: usize, body: &str) -> (f64, Vec<f64>) {
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
                    let event = writing.put(row.session, row.seq, &row.kind, &row.body);
                    writing.end(row.session, row.seq, event, row.batch);
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
    let measured = runtime.block_on(async {
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for session in 0..sessions {
            let (tell, body) = (tell.clone(), body.to_owned());
            tasks.spawn(async move {
                let mut waited = Vec::with_capacity(each);
                for round in 0..each {
                    let (done, wait) = oneshot::channel();
                    let batch = (session * each + round) as u128;
                    let (session, seq) = (session as i64 + 1, round as i64 + 1);
                    let (kind, body) = ("text.ended".to_owned(), body.clone());
                    let asked = Instant::now();
                    tell.send(Row { session, seq, batch, kind, body, done }).unwrap();
                    wait.await.unwrap();
                    waited.push(millis(asked));
                }
                waited
            });
        }
        let answers = tasks.join_all().await.concat();
        ((sessions * each) as f64 / start.elapsed().as_secs_f64(), answers)
    });
    drop(tell);
    writer.join().unwrap();
    measured
}

/// Commits of one row for each session, one after another; how long each took, in ms.
fn commits(sessions: usize, each: usize, body: &str) -> Vec<f64> {
    let folder = tempfile::tempdir().unwrap();
    let db = tables(&folder.path().join("sessions.db"), sessions);
    let commit = |round: usize| {
        commit(&db, |bare| {
            for session in 1..=sessions as i64 {
                let seq = round as i64 + 1;
                let event = bare.put(session, seq, "text.ended", body);
                bare.end(session, seq, event, (session * 1_000_000 + seq) as u128);
            }
        })
    };
    (0..each.max(20)).map(commit).collect()
}

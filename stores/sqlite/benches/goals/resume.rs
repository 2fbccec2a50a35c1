//! Opening a long session: reading its log and folding it, against a bare `SELECT` of the same rows.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use settled_ledger::store::{Batch, EventLog, NewSession, Ownership};
use settled_ledger::{BatchId, NewRow, Recorded, Seq, SessionFold, WorkerId};
use settled_store_sqlite::SqliteStore;
use settled_tools_api::{MessageId, SessionId};
use tokio::runtime::Runtime;

use crate::{Goal, Line, bare, millis, step};

/// How many events are read at once, as the runner does.
const PAGE: usize = 1_024;

/// Measures reading alone, and reading and folding.
pub(crate) fn measure(rounds: usize, events: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let session = SessionId::new("long").unwrap();
    let (_, log) = step::run(3);
    runtime.block_on(write(&path, &session, &log, events));
    let mut reads = Line::new(format!("resume: {events} events read, against a bare SELECT"), "ms", Goal::None);
    let mut folds =
        Line::new(format!("resume: {events} events read and folded, against a bare SELECT"), "ms", Goal::AtMost(2.0));
    for _ in 0..rounds {
        let floor = select(&path, events);
        let (read, folded) = (open(&runtime, &path, &session, |_| {}, events), {
            let mut fold = SessionFold::new();
            open(&runtime, &path, &session, |row| fold.apply(row.seq, &row.event().unwrap()), events)
        });
        reads.round(floor, read);
        folds.round(floor, folded);
    }
    reads.print();
    folds.print();
}

/// Writes one session of so many events: the steps of a real one, again and again, each a message of its own.
async fn write(path: &Path, session: &SessionId, log: &[Recorded], events: usize) {
    let begins = |row: &Recorded| row.kind == "step.started";
    let first = log.iter().position(begins).unwrap();
    let length = log[first + 1..].iter().position(begins).unwrap() + 1;
    let (head, step) = (&log[..first], &log[first..first + length]);
    let message = |number: usize| MessageId::from_u128(number as u128).to_string();
    let theirs = step[0].body.split('"').find(|word| word.starts_with("msg_")).unwrap();
    let store = SqliteStore::open(path).unwrap();
    store.create(session, NewSession::default()).await.unwrap();
    let claimed = store.claim(WorkerId::from_u128(1), Duration::from_secs(3_600), session).await.unwrap();
    let row = |row: &Recorded, body: String| NewRow::from_parts(row.at, row.kind.clone(), row.version, body);
    let mut rows = head.iter().map(|one| row(one, one.body.clone())).collect::<Vec<_>>();
    let (mut end, mut batch) = (claimed.head, 0);
    let mut left = events;
    for number in 1.. {
        rows.extend(step.iter().map(|one| row(one, one.body.replace(theirs, &message(number)))));
        if rows.len() >= PAGE || rows.len() >= left {
            rows.truncate(left);
            left -= rows.len();
            batch += 1;
            let full = Batch::new(BatchId::from_u128(batch), std::mem::take(&mut rows));
            end = store.append(&claimed.fence, end, full).await.unwrap();
            if left == 0 {
                break;
            }
        }
    }
    store.close().await;
}

/// The rows and no more, none of them copied; in ms.
fn select(path: &Path, events: usize) -> f64 {
    let start = Instant::now();
    let db = bare::connect(path);
    let mut select = db.prepare("SELECT seq, at, version, kind, body FROM events ORDER BY id").unwrap();
    let mut rows = select.query([]).unwrap();
    let (mut count, mut bytes) = (0, 0);
    while let Some(row) = rows.next().unwrap() {
        let numbers = (row.get::<_, i64>(0).unwrap(), row.get::<_, i64>(1).unwrap(), row.get::<_, i64>(2).unwrap());
        std::hint::black_box(numbers);
        let (ValueRef::Text(kind), ValueRef::Text(body)) = (row.get_ref(3).unwrap(), row.get_ref(4).unwrap()) else {
            unreachable!("both are text");
        };
        count += 1;
        bytes += kind.len() + body.len();
    }
    assert_eq!((count, bytes > count), (events, true));
    millis(start)
}

/// Opens the file, reads the whole log page by page, and does something with each event; in ms.
fn open(runtime: &Runtime, path: &Path, session: &SessionId, mut with: impl FnMut(&Recorded), events: usize) -> f64 {
    let start = Instant::now();
    let store = SqliteStore::open(path).unwrap();
    runtime.block_on(async {
        let (mut head, mut count) = (Seq::START, 0);
        loop {
            let page = store.read(session, head, PAGE).await.unwrap();
            let Some(last) = page.last() else { break };
            (head, count) = (last.seq, count + page.len());
            page.iter().for_each(&mut with);
        }
        assert_eq!(count, events);
    });
    let took = millis(start);
    runtime.block_on(store.close());
    took
}

//! Opening a long session: reading its log and folding it, with and without a history cache, against a bare `SELECT` of the same rows.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use settled_ledger::store::{Batch, EventLog, FoldCache, NewSession, Ownership};
use settled_ledger::{
    BatchId, CachedFold, CompactionEnded, CompactionReason, CompactionStarted, Event, NewRow, Recorded, Seq,
    SessionFold, WorkerId,
};
use settled_runner::Builder;
use settled_store_sqlite::SqliteStore;
use settled_tools_api::{MessageId, SessionId};
use tokio::runtime::Runtime;

use crate::{Goal, Line, bare, millis, step};

/// How many events are written and read at once.
const PAGE: usize = 4_096;

/// How many steps there are from one compaction to the next: what a context has room for.
const COMPACTED: usize = 500;

/// Measures reading alone, and reading and folding.
pub(crate) fn measure(rounds: usize, events: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sessions.db");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let session = SessionId::new("long").unwrap();
    let (_, log) = step::run(3);
    runtime.block_on(write(&path, &session, &log, events));
    let mut reads = Line::new(format!("resume: {events} events read, against a bare SELECT"), "ms", Goal::None);
    let mut folds =
        Line::new(format!("resume: {events} events read and folded, against a bare SELECT"), "ms", Goal::AtMost(2.0));
    let mut cached = Line::new(
        format!("resume: {events} events with a history cache, against a bare SELECT"),
        "ms",
        Goal::AtMost(0.05),
    );
    runtime.block_on(keep(&path, &session));
    for _ in 0..rounds {
        let floor = select(&path, events);
        reads.round(floor, read(&runtime, &path, &session, events));
        folds.round(floor, opened(&runtime, &path, &session, events, |builder, _| builder));
        let with_cache = |builder: Builder, store: &SqliteStore| builder.fold_cache(store.clone());
        cached.round(floor, opened(&runtime, &path, &session, events, with_cache));
    }
    reads.print();
    folds.print();
    cached.print();
}

/// Keeps the session's fold, as a runner does.
async fn keep(path: &Path, session: &SessionId) {
    let store = SqliteStore::open(path).unwrap();
    let mut fold = SessionFold::new();
    let mut last = None;
    loop {
        let page = store.read(session, fold.head, PAGE).await.unwrap();
        let Some(row) = page.last() else { break };
        page.iter().for_each(|row| fold.apply(row.seq, &row.event().unwrap()));
        last = Some(row.clone());
    }
    store.keep(session, CachedFold::of(&fold, &last.unwrap()).unwrap()).await.unwrap();
    store.close().await;
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
        if number % COMPACTED == 0 {
            rows.extend(compaction(&log[0]));
        }
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

/// The rows of a compaction, at the time and by the model of a session.
fn compaction(created: &Recorded) -> [NewRow; 2] {
    let Event::SessionCreated(session) = created.event().unwrap() else {
        unreachable!("a log begins with its session")
    };
    let started = CompactionStarted { reason: CompactionReason::Auto };
    let ended = CompactionEnded {
        reason: CompactionReason::Auto,
        text: "What was said. ".repeat(500),
        recent: String::new(),
        model: session.model,
        usage: None,
        cost_nanos: None,
    };
    [started.into(), ended.into()].map(|event| NewRow::encode(&event, created.at).unwrap())
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

/// Opens the file and reads the whole log page by page; in ms.
fn read(runtime: &Runtime, path: &Path, session: &SessionId, events: usize) -> f64 {
    let start = Instant::now();
    let store = SqliteStore::open(path).unwrap();
    runtime.block_on(async {
        let (mut head, mut count) = (Seq::START, 0);
        loop {
            let page = store.read(session, head, PAGE).await.unwrap();
            let Some(last) = page.last() else { break };
            (head, count) = (last.seq, count + page.len());
        }
        assert_eq!(count, events);
    });
    let took = millis(start);
    runtime.block_on(store.close());
    took
}

/// Opens the file and the session, as a runner does; in ms.
fn opened(
    runtime: &Runtime,
    path: &Path,
    session: &SessionId,
    events: usize,
    more: impl FnOnce(Builder, &SqliteStore) -> Builder,
) -> f64 {
    let start = Instant::now();
    let store = SqliteStore::open(path).unwrap();
    runtime.block_on(async {
        let builder = more(step::builder(0).store(store.clone()), &store);
        let session = builder.build().unwrap().session(session.clone()).await.unwrap();
        assert_eq!(session.fold().await.unwrap().head.get(), events as u64);
    });
    let took = millis(start);
    runtime.block_on(store.close());
    took
}

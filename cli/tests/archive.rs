//! Sessions as files: to the byte and back, broken in every way, and put into a store that fails at every call.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop at what it did not expect")]

#[path = "archive/dying.rs"]
mod dying;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::json;
use settled_cli::archive::{Archive, Broken};
use settled_ledger::store::{Catalog, Inbox, NewSession, Next, Ownership, SessionState, Store, StoreErrorKind};
use settled_ledger::{
    Arrival, Clock, Delivery, Event, ExecutionId, InboxItem, InputId, Interrupt, InterruptedBy, NewInput, NewInputKind,
    NewRow, Prompt, Recorded, Seq, Timestamp, WorkerId,
};
use settled_store_memory::MemoryStore;
use settled_store_sqlite::SqliteStore;
use settled_testkit::scenario::Scenario;
use settled_tools_api::{Content, SessionId};

use crate::dying::{Blow, Dying};

const WORKER: WorkerId = WorkerId::from_u128(77);

/// A clock that stands until it is set.
#[derive(Default)]
struct Hands(AtomicI64);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}

fn memory() -> MemoryStore {
    MemoryStore::new(Arc::new(Hands::default()))
}

fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

/// A log of these kinds and bodies.
fn log<B: Into<String>>(session: &SessionId, rows: impl IntoIterator<Item = (&'static str, B)>) -> Vec<Recorded> {
    let row = |(seq, (kind, body)): (u64, (&str, B))| {
        let at = Timestamp::from_millis(1_700_000_000_000 + seq.cast_signed());
        Recorded::new(session.clone(), Seq::new(seq), at, kind.to_owned(), 1, body.into())
    };
    (1..).zip(rows).map(row).collect()
}

const CREATED: &str = r#"{"agent":"build","model":{"provider":"lab","model":"m"}}"#;

fn prompt(number: u128, text: &str) -> InboxItem {
    let content = vec![Content::text(text)];
    let kind = NewInputKind::Prompt(Prompt::new(content, Delivery::Queue));
    let new = NewInput::new(InputId::from_u128(number), Timestamp::from_millis(5), kind).key(format!("key {number}"));
    InboxItem::new(new, Arrival::new(number.try_into().unwrap()))
}

/// A session with an open execution, one input taken, and more pending.
fn busy() -> Archive {
    let session = id("busy");
    let execution = ExecutionId::from_u128(9);
    let promoted = json!({"input": InputId::from_u128(8), "delivery": "steer", "content": [{"text": "Hello"}]});
    let rows = [
        ("session.created", CREATED.to_owned()),
        ("execution.started", json!({"execution": execution, "resume": 0}).to_string()),
        ("input.promoted", promoted.to_string()),
    ];
    let mut archive = Archive::new(session.clone(), BTreeMap::from([("team".into(), "a".into())]), log(&session, rows));
    archive.state = SessionState::new(Next::Runnable, Some(execution)).handed_over();
    let interrupt = NewInputKind::Interrupt(Interrupt::new(execution, InterruptedBy::User));
    let interrupt = NewInput::new(InputId::from_u128(3), Timestamp::from_millis(6), interrupt);
    archive.inputs = vec![prompt(1, "And?"), prompt(2, "And then?"), InboxItem::new(interrupt, Arrival::new(3))];
    archive
}

fn bytes(archive: &Archive) -> Vec<u8> {
    let mut file = Vec::new();
    archive.write(&mut file).unwrap();
    file
}

/// Writes, reads, puts into a store and takes out again; everything must be as it was.
async fn check(archive: &Archive, store: &dyn Store) {
    let name = &archive.session;
    let file = bytes(archive);
    let read = Archive::read(&file).unwrap_or_else(|broken| panic!("{name}: {broken}"));
    assert_eq!(&read, archive, "{name}");
    read.put(store, WORKER).await.unwrap();
    let again = Archive::take(store, name).await.unwrap();
    assert_eq!(&again, archive, "{name}");
    assert!(bytes(&again) == file, "{name}: the second file is another");
    let info = store.info(name).await.unwrap();
    assert_eq!((info.owner, info.created), (None, archive.log[0].at), "{name}");
}

fn scenarios() -> Vec<PathBuf> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "json") && !path.ends_with("cut-table.json")
            {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

#[test]
fn every_kind_of_session_comes_back_to_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(folder.path().join("sessions.db")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut sessions, mut events, mut inputs) = (0, 0, 0);
    let (mut kinds, mut waits) = (BTreeSet::new(), BTreeSet::new());
    for (place, path) in scenarios().iter().enumerate() {
        let scenario = Scenario::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut opened = None;
        let ran = scenario.run(|opening| {
            let store = opened.get_or_insert_with(|| MemoryStore::new(opening.clock()));
            Ok(Arc::new(store.clone()))
        });
        let (Some(store), Ok(result)) = (opened, ran) else { panic!("{}", path.display()) };
        // A scenario that ends by a breach on purpose has a log that no import takes.
        if result.log.is_empty() || !settled_ledger::check::check_log(&result.log).is_empty() {
            continue;
        }
        let archive = runtime.block_on(Archive::take(&store, &result.log[0].session)).unwrap();
        runtime.block_on(check(&archive, &memory()));
        if place % 8 == 0 || !archive.inputs.is_empty() || archive.state != SessionState::default() {
            runtime.block_on(check(&archive, &sqlite));
            runtime.block_on(sqlite.erase(&archive.session)).unwrap();
        }
        sessions += 1;
        events += archive.log.len();
        inputs += archive.inputs.len();
        kinds.extend(archive.log.iter().map(|row| row.kind.clone()));
        waits.insert(match archive.state.next {
            Next::Runnable => "runnable",
            Next::At(_) => "at",
            Next::Waiting(_) => "waiting",
            Next::Held => "held",
            Next::Idle => "idle",
        });
    }
    println!("{sessions} sessions, {events} events of {} kinds, {inputs} pending inputs, {waits:?}", kinds.len());
    assert!(sessions > 400 && kinds.len() > 25, "{sessions} sessions, {kinds:?}");
    assert!(waits.is_superset(&BTreeSet::from(["held", "idle", "waiting"])), "{waits:?}");
    runtime.block_on(check(&busy(), &sqlite));
}

/// Bodies that a careless copy would change.
const ODD: [&str; 7] = [
    r#"{ "b" : 1,  "a":2 }"#,
    r#"{"a":1,"a":2,"seq":9,"type":"x","body":{}}"#,
    r#"{"big":123456789012345678901234567890,"exact":0.10,"huge":1e400}"#,
    "{\n  \"over\": \"lines\"\r\n}",
    r#"{"escaped":"\u00e9\/\u2028","plain":"é"}"#,
    "{}",
    " {\"in\":\"spaces\"} ",
];

#[tokio::test]
async fn unknown_kinds_and_fields_survive_verbatim() {
    let session = id("odd");
    let created =
        r#"{ "agent":"build", "future": [1, {"x": 1.50}], "model":{"provider":"lab","model":"m","colour":"red"}}"#;
    let rows = [("session.created", created)].into_iter().chain(ODD.map(|body| ("future.thing", body)));
    let mut log = log(&session, rows);
    // A kind that is known, of a version that is not.
    let future = NewRow::from_parts(Timestamp::from_millis(-1), "step.ended".into(), 9, r#"{"what":"ever"}"#.into());
    log.push(future.placed(session.clone(), Seq::new(log.len() as u64 + 1)));
    let archive = Archive::new(session, BTreeMap::new(), log);
    check(&archive, &memory()).await;
    let folder = tempfile::tempdir().unwrap();
    check(&archive, &SqliteStore::open(folder.path().join("sessions.db")).unwrap()).await;
}

#[tokio::test]
async fn a_hundred_thousand_events_come_back() {
    let session = id("long");
    let text = "Back. ".repeat(10);
    let more =
        (1..100_000).map(|number| ("synthetic", json!({"reason": "restart", "text": text, "n": number}).to_string()));
    let rows = [("session.created", CREATED.to_owned())].into_iter().chain(more);
    let archive = Archive::new(session.clone(), BTreeMap::new(), log(&session, rows));
    let folder = tempfile::tempdir().unwrap();
    check(&archive, &SqliteStore::open(folder.path().join("sessions.db")).unwrap()).await;
}

fn broken(file: &[u8]) -> Broken {
    match Archive::read(file) {
        Ok(_) => panic!("taken: {}", String::from_utf8_lossy(file)),
        Err(broken) => broken,
    }
}

#[test]
fn a_file_that_was_cut_or_changed_is_not_taken() {
    let file = bytes(&busy());
    let lines = file.split_inclusive(|byte| *byte == b'\n').collect::<Vec<_>>();
    assert_eq!(lines.len(), 1 + 3 + 3 + 1);

    // Only the last line feed may be missing.
    for length in 0..file.len() - 1 {
        let cut = &file[..length];
        // A line that lacks only its line feed is whole.
        let whole = file[..=length].iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(broken(cut).line, whole + 1, "cut after {length} bytes");
    }
    assert_eq!(Archive::read(&file[..file.len() - 1]), Ok(busy()));

    for place in 0..file.len() {
        for bit in [1, 0x20, 0x80] {
            let mut changed = file.clone();
            changed[place] ^= bit;
            let broken = broken(&changed);
            let line = file[..place].iter().filter(|byte| **byte == b'\n').count() + 1;
            // What still reads shows at the checksum, or where it breaks with another line.
            assert!(broken.line >= line || broken.line == 1, "byte {place}, bit {bit}: {broken}");
        }
    }

    for (place, pair) in lines.windows(2).enumerate() {
        let mut swapped = lines.clone();
        swapped.swap(place, place + 1);
        assert_eq!(broken(&swapped.concat()).line, place + 1, "{pair:?}");
        let mut left_out = lines.clone();
        left_out.remove(place);
        assert_eq!(broken(&left_out.concat()).line, place + 1, "{pair:?}");
        let mut twice = lines.clone();
        twice.insert(place, lines[place]);
        assert_eq!(broken(&twice.concat()).line, place + 2, "{pair:?}");
    }
}

#[test]
fn a_broken_file_says_where_and_why() {
    let check = |file: &str, line: usize, why: &str| {
        let broken = broken(file.as_bytes());
        assert!(broken.line == line && broken.why.contains(why), "{broken}; not line {line}: {why}");
    };
    let sound = String::from_utf8(bytes(&busy())).unwrap();
    check("", 1, "the file is empty");
    check("\n", 1, "this is not what `settled export` writes");
    check("{\"session\":\"s\",\"seq\":1}\n", 1, "this is not what `settled export` writes");
    check(&sound.replacen("settled-session", "settled-other", 1), 1, "the format is `settled-other`");
    check(
        &sound.replacen("\"version\":1", "\"version\":2", 1),
        1,
        "the format has version 2, and this version reads 1",
    );
    check(&sound.replacen("\"events\":3", "\"events\":0", 1), 1, "the session has no events");
    check(&sound.replacen("\"events\":3", "\"events\":3,\"colour\":1", 1), 1, "unknown field `colour`");
    check(&sound.replacen("\"session\":\"busy\"", "\"session\":\"a b\"", 1), 1, "white space");
    check(&sound.replacen("\"seq\":2", "\"seq\":3", 1), 3, "event 3 stands where event 2 must be");
    check(&sound.replacen("\"execution\":", "\"executor\":", 2), 3, "does not read: missing field `execution`");
    check(&sound.replacen("\"arrival\":2", "\"arrival\":4", 1), 6, "input 4 stands where input 2 must be");
    check(&sound.replacen("Hello", "Howdy", 1), 8, "a byte was changed");
    check(&format!("{sound}\n"), 9, "there is more behind the checksum");

    // With a checksum that is right.
    let check_archive = |archive: &Archive, line: usize, why: &str| {
        check(&String::from_utf8(bytes(archive)).unwrap(), line, why);
    };
    let session = id("s");
    let of = |rows: &[(&'static str, &str)]| {
        let archive = Archive::new(session.clone(), BTreeMap::new(), log(&session, rows.iter().copied()));
        (archive.log.len(), archive)
    };
    let (_, twice) = of(&[("session.created", CREATED), ("session.created", CREATED)]);
    check_archive(&twice, 3, "I6 (only recorded facts count, and answers are never spliced) is broken at event 2");
    let (_, no_object) = of(&[("session.created", CREATED), ("future.thing", "[1]")]);
    check_archive(&no_object, 3, "the body is no JSON object");
    let (_, no_json) = of(&[("session.created", CREATED), ("future.thing", "{\"a\":")]);
    check_archive(&no_json, 3, "the body is no JSON object");
    let mut again = busy();
    again.inputs[1] = prompt(8, "Hello");
    again.inputs[1].arrival = Arrival::new(2);
    check_archive(&again, 6, "is pending, and there already");
    let mut keyed = busy();
    keyed.inputs[1].key = keyed.inputs[0].key.clone();
    check_archive(&keyed, 6, "another pending input has the same key");
    let mut asleep = busy();
    asleep.state.next = Next::Waiting(Vec::new());
    check_archive(&asleep, 1, "the session waits for input that it has");
}

/// Putting a session into a store that fails at its nth call, until one is put without a blow.
async fn at_every_call(blow: &Blow, archive: &Archive) -> usize {
    for nth in 0.. {
        let clock = Arc::new(Hands::default());
        let store = MemoryStore::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let dying = Dying::new(store.clone(), nth, blow.clone());
        let put = archive.put(&dying, WORKER).await;
        if !dying.was_struck() {
            assert_eq!(put, Ok(()), "{blow:?}");
            return nth;
        }
        let there = Archive::take(&store, &archive.session).await.ok();
        let is_whole = there.as_ref() == Some(archive);
        match blow {
            // It is done or tidied up; where the answer to the last thing that was missing is lost, it is there all the same.
            Blow::FailsBefore | Blow::FailsAfter => match put {
                Ok(()) => assert!(is_whole, "call {nth}, {blow:?}"),
                Err(_) => assert!(there.is_none() || is_whole, "call {nth}, {blow:?}: {there:?}"),
            },
            Blow::DiesBefore | Blow::DiesAfter | Blow::Meanwhile(_) => {
                let half = there.is_some() && !is_whole;
                // Long after its worker's lease has run out.
                clock.0.store(1_000_000_000_000_000, Ordering::Relaxed);
                assert!(
                    !half || store.due(10).await.unwrap().is_empty(),
                    "call {nth}, {blow:?}: somebody would run it"
                );
                let again = archive.put(&store, WORKER).await;
                match again {
                    Ok(()) => assert!(!is_whole, "call {nth}, {blow:?}: it was put twice"),
                    Err(error) => assert!(is_whole && error.kind == StoreErrorKind::Exists, "call {nth}: {error}"),
                }
                assert_eq!(Archive::take(&store, &archive.session).await.as_ref(), Ok(archive), "call {nth}, {blow:?}");
            }
        }
    }
    0
}

#[tokio::test]
async fn nothing_is_half_put() {
    let mut bare = busy();
    (bare.state, bare.inputs) = (SessionState::default(), Vec::new());
    bare.log.truncate(1);
    let mut quiet = busy();
    (quiet.state, quiet.inputs) = (SessionState::new(Next::Held, None), Vec::new());
    let mut parked = busy();
    parked.state.next = Next::At(Timestamp::from_millis(50));
    parked.inputs.truncate(2);
    let mut unwoken = busy();
    unwoken.state = SessionState::default();
    unwoken.inputs.truncate(2);
    unwoken.log.truncate(1);
    for archive in [bare, quiet, parked, unwoken, busy()] {
        for blow in [Blow::FailsBefore, Blow::FailsAfter, Blow::DiesBefore, Blow::DiesAfter] {
            let calls = at_every_call(&blow, &archive).await;
            assert!(calls >= 5, "{blow:?}: only {calls} calls");
        }
    }
}

#[tokio::test]
async fn a_session_that_is_there_is_left_alone() {
    let archive = busy();
    let store = memory();
    archive.put(&store, WORKER).await.unwrap();
    let mut other = busy();
    other.log.truncate(2);
    for again in [&archive, &other] {
        assert_eq!(again.put(&store, WORKER).await.unwrap_err().kind, StoreErrorKind::Exists);
        assert_eq!(Archive::take(&store, &archive.session).await.unwrap(), archive);
    }

    // What looks like the beginning of it, and is not what a put that broke off has left.
    let rows = |archive: &Archive, events: usize| -> Vec<NewRow> {
        let row = |row: &Recorded| NewRow::from_parts(row.at, row.kind.clone(), row.version, row.body.clone());
        archive.log.iter().take(events).map(row).collect()
    };
    let handed_in = |input: &InboxItem| NewInput::new(input.id, input.at, input.input.clone()).key(input.key.clone());
    let (woken, unwoken) = (handed_in(&archive.inputs[0]), handed_in(&prompt(4, "Hello?")).without_waking());
    let mut another = archive.clone();
    another.log[0].at = Timestamp::from_millis(7);
    let beginnings = [
        (rows(&another, 1), None),
        (rows(&archive, 2), None),
        (rows(&archive, 3), None),
        (rows(&archive, 1), Some(woken)),
        (rows(&archive, 1), Some(unwoken)),
    ];
    for (rows, input) in beginnings {
        let store = memory();
        store.create(&archive.session, NewSession::new(rows, BTreeMap::new())).await.unwrap();
        if let Some(input) = input {
            store.admit(&archive.session, input).await.unwrap();
        }
        let before = Archive::take(&store, &archive.session).await.unwrap();
        assert_eq!(archive.put(&store, WORKER).await.unwrap_err().kind, StoreErrorKind::Exists, "{before:?}");
        assert_eq!(Archive::take(&store, &archive.session).await.unwrap(), before);
    }

    // One that somebody runs.
    let run = memory();
    run.create(&archive.session, NewSession::default()).await.unwrap();
    run.claim(WorkerId::from_u128(1), std::time::Duration::from_secs(9), &archive.session).await.unwrap();
    assert_eq!(archive.put(&run, WORKER).await.unwrap_err().kind, StoreErrorKind::Exists);
    assert_eq!(Archive::take(&run, &archive.session).await.unwrap_err().kind, StoreErrorKind::NotFound);
}

/// Each kind of event as the ledger keeps it for ever, and as it stands in the file.
#[test]
fn every_kind_of_event_is_a_line() {
    let rows: Vec<Recorded> = include_str!("../../ledger/tests/events.jsonl")
        .lines()
        .map(|line| Recorded::from_json(line).unwrap())
        .collect();
    let kinds: BTreeSet<&str> = rows.iter().map(|row| &*row.kind).collect();
    let unseen: Vec<&str> = Event::KINDS.iter().map(|(kind, _)| *kind).filter(|kind| !kinds.contains(kind)).collect();
    assert_eq!(unseen, [""; 0]);
    let file = String::from_utf8(bytes(&Archive::new(id("s"), BTreeMap::new(), rows.clone()))).unwrap();
    for (row, line) in rows.iter().zip(file.lines().skip(1)) {
        let (seq, time, version, kind, body) = (row.seq, row.at.as_millis(), row.version, &row.kind, &row.body);
        let expected = format!(r#"{{"seq":{seq},"time":{time},"version":{version},"type":"{kind}","body":{body}}}"#);
        assert_eq!(line, expected);
    }
}

#[tokio::test]
async fn an_interrupt_comes_behind_all_other_input() {
    let mut archive = busy();
    let interrupt = archive.inputs.pop().unwrap();
    let store = memory();
    archive.inputs.truncate(1);
    archive.put(&store, WORKER).await.unwrap();
    for input in [interrupt, prompt(2, "And then?")] {
        let new = NewInput::new(input.id, input.at, input.input).key(input.key);
        store.admit(&archive.session, new).await.unwrap();
    }
    assert_eq!(Archive::take(&store, &archive.session).await.unwrap(), busy());
}

/// A session is taken as it is at one moment, whatever comes in while it is read.
#[tokio::test]
async fn what_comes_in_meanwhile_is_in_it_whole_or_not_at_all() {
    let mut held = busy();
    (held.state, held.inputs) = (SessionState::new(Next::Held, None), Vec::new());
    let input = prompt(1, "And?");
    let mut after = held.clone();
    (after.state.next, after.inputs) = (Next::Runnable, vec![input.clone()]);
    let (mut calls, mut early, mut late) = (0, 0, 0);
    loop {
        let store = memory();
        held.put(&store, WORKER).await.unwrap();
        let new = NewInput::new(input.id, input.at, input.input.clone()).key(input.key.clone());
        let watched = Dying::new(store, calls, Blow::Meanwhile(Box::new((held.session.clone(), new))));
        let taken = Archive::take(&watched, &held.session).await.unwrap();
        assert!(taken == held || taken == after, "call {calls}: {taken:?}");
        if !watched.was_struck() {
            break;
        }
        (early, late) = (early + usize::from(taken == after), late + usize::from(taken == held));
        calls += 1;
    }
    assert!(early > 0 && calls >= 5, "{calls} calls, {early} with what came in, {late} without");
}

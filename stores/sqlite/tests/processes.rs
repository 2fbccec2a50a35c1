//! Real processes on one file.
//!
//! The second process is this very test program: it is started again with an environment that makes `child` play its part, line by line over its input and output.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::future::poll_fn;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use settled_ledger::store::{
    AppendError, Catalog, ClaimError, EventLog, Followed, Inbox, NewSession, Ownership, Query,
};
use settled_ledger::{Clock, InputId, NewInput, NewInputKind, Seq, Timestamp, WorkerId};
use settled_store_sqlite::SqliteStore;

use common::{LEASE, append, id, log, owned, place, read};

/// The environment by which a child knows the file.
const FILE: &str = "SETTLED_SQLITE_CHILD";
const CHILD: WorkerId = WorkerId::from_u128(0xc);

/// Another process on the same file.
struct Other {
    process: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Other {
    fn start(path: &Path) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(FILE, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, input, output }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The next line that it answers; the test program's own lines are passed over.
    fn hear(&mut self) -> String {
        loop {
            let line = self.output.next().unwrap().unwrap();
            if let Some((_, answer)) = line.split_once("> ") {
                return answer.to_owned();
            }
        }
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have been killed by the test already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The part of the second process; nothing where the environment does not ask for it.
#[tokio::test]
#[expect(clippy::print_stdout, reason = "it answers on its output")]
async fn child() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let store = SqliteStore::open(path).unwrap();
    let (mut claimed, mut head) = (None, Seq::START);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (command, name) = line.split_once(' ').unwrap_or((&line, ""));
        match command {
            "create" => drop(owned(&store, name).await),
            "claim" => {
                let claim = store.claim(CHILD, LEASE, &id(name)).await.unwrap();
                head = claim.head;
                claimed = Some(claim.fence);
            }
            "append" => {
                let batch = u128::from(head.get()) + 1;
                match append(&store, claimed.as_ref().unwrap(), head, batch, name).await {
                    Ok(landed) => head = landed,
                    Err(AppendError::Fenced) => {
                        println!("> fenced");
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            // Appends for as long as it lives, and says what is acknowledged.
            "pour" => loop {
                let batch = u128::from(head.get()) + 1;
                head = append(&store, claimed.as_ref().unwrap(), head, batch, &head.to_string()).await.unwrap();
                println!("> {head}");
            },
            "admit" => {
                let input = NewInput::new(InputId::from_u128(7), Timestamp::default(), NewInputKind::Compact);
                store.admit(&id(name), input).await.unwrap();
            }
            other => panic!("`{other}` is not a command"),
        }
        println!("> {}", head.get());
    }
}

/// The machine's clock, some time ahead.
struct Ahead(Duration);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap();
        Timestamp::default().plus(now + self.0)
    }
}

#[tokio::test]
async fn two_processes_append_at_once_and_neither_fails() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let mut other = Other::start(&path);
    let mine = owned(&store, "mine").await;
    store.create(&id("theirs"), NewSession::default()).await.unwrap();
    other.ask("claim theirs");
    for place in 0..200 {
        other.tell(&format!("append {place}"));
    }
    let mut head = mine.head;
    for place in 0..200_u128 {
        head = append(&store, &mine.fence, head, place, &place.to_string()).await.unwrap();
    }
    let heads: Vec<_> = (0..200).map(|_| other.hear()).collect();
    assert_eq!(heads, (1..=200).map(|head| head.to_string()).collect::<Vec<_>>());
    for name in ["mine", "theirs"] {
        assert_eq!(read(&store, name).await, log(name, (0..200).map(|place| place.to_string())));
    }
}

#[tokio::test]
async fn a_process_whose_lease_has_run_out_is_refused_by_the_file() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    store.create(&id("s"), NewSession::default()).await.unwrap();
    let mut other = Other::start(&path);
    other.ask("claim s");
    assert_eq!(other.ask("append one"), "1");
    match store.claim(common::WORKER, LEASE, &id("s")).await {
        Err(ClaimError::Owned { worker, .. }) => assert_eq!(worker, CHILD),
        answer => panic!("it was {answer:?}"),
    }

    // Whoever's clock is beyond the lease may have the session.
    let later = SqliteStore::builder(&path).clock(Arc::new(Ahead(LEASE * 2))).open().unwrap();
    let claimed = later.claim(common::WORKER, LEASE, &id("s")).await.unwrap();
    assert_eq!((claimed.head, claimed.fence.epoch), (Seq::new(1), 2));
    assert_eq!(other.ask("append two"), "fenced");
    append(&later, &claimed.fence, claimed.head, 9, "mine").await.unwrap();
    assert_eq!(other.ask("append three"), "fenced");
    assert_eq!(read(&store, "s").await, log("s", ["one".to_owned(), "mine".to_owned()]));
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> S::Item {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await.unwrap()
}

#[tokio::test]
async fn what_another_process_writes_is_followed_and_hinted_at() {
    let (_folder, path) = place();
    let store = SqliteStore::builder(&path).poll(Duration::from_millis(2)).open().unwrap();
    store.create(&id("s"), NewSession::default()).await.unwrap();
    let (mut events, mut hints) = (store.follow(&id("s"), Seq::START), store.hints());
    assert_eq!(next(&mut events).await, Ok(Followed::Synced(Seq::START)));
    let mut other = Other::start(&path);
    other.ask("claim s");
    let texts = ["one", "two", "three"].map(str::to_owned);
    for (text, event) in texts.iter().zip(log("s", texts.clone())) {
        other.ask(&format!("append {text}"));
        assert_eq!(next(&mut events).await, Ok(Followed::Event(event)));
    }
    other.ask("admit s");
    assert_eq!(next(&mut hints).await, id("s"));
}

#[tokio::test]
async fn rows_of_another_process_are_noticed_after_it_has_erased_newer_ones() {
    let (_folder, path) = place();
    let here = SqliteStore::builder(&path).poll(Duration::from_millis(2)).open().unwrap();
    let there = SqliteStore::open(&path).unwrap();
    let claimed = owned(&there, "s").await;
    let (mut events, mut hints) = (here.follow(&id("s"), Seq::START), here.hints());
    assert_eq!(next(&mut events).await, Ok(Followed::Synced(Seq::START)));
    there.create(&id("newer"), NewSession::new(vec![common::row("x"); 10], [].into())).await.unwrap();
    let input = NewInput::new(InputId::from_u128(7), Timestamp::default(), NewInputKind::Compact);
    there.admit(&id("newer"), input).await.unwrap();
    // Having heard of it, this process knows the newer rows.
    assert_eq!(next(&mut hints).await, id("newer"));
    there.erase(&id("newer")).await.unwrap();
    append(&there, &claimed.fence, claimed.head, 1, "one").await.unwrap();
    let event = tokio::time::timeout(Duration::from_secs(30), next(&mut events)).await;
    assert_eq!(event, Ok(Ok(Followed::Event(common::row("one").placed(id("s"), Seq::new(1))))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_between_two_commits_of_another_process() {
    let (_folder, path) = place();
    let here = SqliteStore::builder(&path).poll(Duration::from_micros(50)).open().unwrap();
    let there = SqliteStore::open(&path).unwrap();
    let (mut one, mut two) = (owned(&there, "one").await, owned(&there, "two").await);
    let mut events = [here.follow(&id("one"), Seq::START), here.follow(&id("two"), Seq::START)];
    for events in &mut events {
        assert_eq!(next(events).await, Ok(Followed::Synced(Seq::START)));
    }
    for round in 0..500 {
        // The second commit comes while this process looks at the first.
        for claimed in [&mut one, &mut two] {
            claimed.head = append(&there, &claimed.fence, claimed.head, round, "x").await.unwrap();
        }
        for (events, name) in events.iter_mut().zip(["one", "two"]) {
            let seen = tokio::time::timeout(Duration::from_secs(30), next(events)).await;
            let should = common::row("x").placed(id(name), one.head);
            assert_eq!(seen, Ok(Ok(Followed::Event(should))), "round {round}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_while_a_reader_reads() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    let mut claimed = owned(&store, "s").await;
    let mut events = store.follow(&id("s"), Seq::START);
    assert_eq!(next(&mut events).await, Ok(Followed::Synced(Seq::START)));
    for round in 0..300 {
        // The last of them lands while the reader reads what the first has woken it for.
        let (appending, mut head) = (store.clone(), claimed.head);
        let fence = claimed.fence.clone();
        let appends = tokio::spawn(async move {
            for place in 0..3 {
                head = append(&appending, &fence, head, round * 3 + place + 1, "x").await.unwrap();
            }
            head
        });
        for place in 1..=3 {
            let seen = tokio::time::timeout(Duration::from_secs(30), next(&mut events)).await;
            let should = common::row("x").placed(id("s"), claimed.head.plus(place));
            assert_eq!(seen, Ok(Ok(Followed::Event(should))), "round {round}");
        }
        claimed.head = appends.await.unwrap();
    }
}

#[tokio::test]
async fn what_was_acknowledged_before_a_kill_is_there() {
    let (_folder, path) = place();
    let store = SqliteStore::open(&path).unwrap();
    store.create(&id("s"), NewSession::default()).await.unwrap();
    let mut seen = 0;
    for acknowledged in [1_usize, 7, 40, 100] {
        // Each has another process's batch ids before it: a claim tells the head, and they go on from there.
        let mut other = Other::start(&path);
        other.ask("claim s");
        other.tell("pour");
        let mut last = String::new();
        for _ in 0..acknowledged {
            last = other.hear();
        }
        other.process.kill().unwrap();
        other.process.wait().unwrap();
        let events = read(&store, "s").await;
        assert_eq!(events, log("s", (0..events.len()).map(|place| place.to_string())), "nothing is missing or doubled");
        let last: usize = last.parse().unwrap();
        assert!(events.len() >= last, "{last} were acknowledged, {} are there", events.len());
        assert_eq!(last, seen + acknowledged);
        seen = events.len();
    }
}

#[tokio::test]
async fn many_processes_open_a_new_file_at_once() {
    let (_folder, path) = place();
    let mut others: Vec<_> = (0..4).map(|_| Other::start(&path)).collect();
    for (place, other) in others.iter_mut().enumerate() {
        other.tell(&format!("create s{place}"));
    }
    for other in &mut others {
        assert_eq!(other.hear(), "0");
    }
    let store = SqliteStore::open(&path).unwrap();
    let page = store.list(&Query::all(10)).await.unwrap();
    assert_eq!(page.sessions.len(), 4);
}

//! History caches: a session opens from its last kept fold and what came since, and nothing but time depends on it.

use async_trait::async_trait;
use settled_ledger::store::{Catalog, EventLog, FoldCache, StoreError, StoreErrorKind};
use settled_ledger::{CachedFold, Outcome, Seq, SessionFold};
use settled_provider_api::Message;
use settled_runner::{Builder, Settings};
use settled_store_memory::MemoryStore;
use settled_tools_api::SessionId;

use crate::common::{Counted, Held, Script, Watched, builder, kinds};
use crate::order::{call, stop, text};

/// Says one thing in a session of its own runner, as a process that was started anew; gives the request's texts.
async fn say(store: &Held, number: u64, said: &str, more: impl FnOnce(Builder) -> Builder) -> String {
    let script = Script::default()
        .then(text("Let me see").into_iter().chain([call(1, "echo"), stop()]))
        .then(text("Done").into_iter().chain([stop()]));
    let mut settings = Settings::default();
    settings.cache_every = 5;
    let ids = Counted::from(number * 1_000);
    let runner = more(builder(&script, &Watched::default(), store, settings).ids(ids)).build().unwrap();
    let session = runner.session("s").await.unwrap();
    session.input(said).without_waking().send().await.unwrap();
    assert_eq!(session.run().await.unwrap().outcome, Outcome::Completed);
    let requests = script.requests.lock().unwrap();
    let texts = requests[0].messages.iter().filter_map(|message| match message.as_ref() {
        Message::User(content) => Some(content.iter().filter_map(|one| one.as_text()).collect::<String>()),
        Message::Assistant(_) | Message::Tool(_) | Message::System(_) => None,
    });
    texts.collect::<Vec<_>>().join(" | ")
}

/// What the log says, folded from its beginning.
async fn whole(store: &MemoryStore) -> SessionFold {
    let mut fold = SessionFold::new();
    for row in store.read(&session(), Seq::START, 10_000).await.unwrap() {
        fold.apply(row.seq, &row.event().unwrap());
    }
    fold
}

fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_session_opens_from_its_kept_fold() {
    let store = Held::new();
    say(&store, 1, "One", |builder| builder.fold_cache(store.inner.clone())).await;
    let kept = store.inner.kept(&session()).await.unwrap().unwrap();
    let head = store.inner.info(&session()).await.unwrap().head;
    assert!(kept.head > Seq::START && kept.head < head, "{} of {head}", kept.head);
    // A word is changed in what is kept: whoever opens from it hears it.
    let doctored = CachedFold::new(kept.head, &*kept.mark, &*kept.format, kept.body.replace("\"One\"", "\"Uno\""));
    store.inner.keep(&session(), doctored).await.unwrap();
    let said = say(&store, 2, "Two", |builder| builder.fold_cache(store.inner.clone())).await;
    assert_eq!(said, "Uno | Two");
    // The log is what it was.
    store.inner.keep(&session(), CachedFold::new(Seq::new(1), "", "", "")).await.unwrap();
    let said = say(&store, 3, "Three", |builder| builder.fold_cache(store.inner.clone())).await;
    assert_eq!(said, "One | Two | Three");
    kinds(&store, &session()).await;
}

/// Whatever a cache has or does, the session is the same.
#[tokio::test(start_paused = true)]
async fn a_cache_that_is_of_no_use_changes_nothing() {
    let store = Held::new();
    let first = |builder: Builder| builder.fold_cache(store.inner.clone());
    say(&store, 1, "One", first).await;
    let kept = store.inner.kept(&session()).await.unwrap().unwrap();
    let CachedFold { head, mark, format, body, .. } = kept.clone();
    let uno = body.replace("\"One\"", "\"Uno\"");
    let cases = [
        ("of another place", CachedFold::new(Seq::new(head.get() - 1), &*mark, &*format, &*uno)),
        ("beyond the head", CachedFold::new(Seq::new(head.get() + 1_000), &*mark, &*format, &*uno)),
        ("of no place", CachedFold::new(Seq::START, &*mark, &*format, &*uno)),
        ("of another log", CachedFold::new(head, "another", &*format, &*uno)),
        ("of another version", CachedFold::new(head, &*mark, "0.0.1/1", &*uno)),
        ("cut", CachedFold::new(head, &*mark, &*format, &uno[..uno.len() / 2])),
        ("empty", CachedFold::new(head, &*mark, &*format, "")),
        (
            "of another fold",
            CachedFold::new(head, &*mark, &*format, uno.replace(&format!("\"head\":{head}"), "\"head\":1")),
        ),
    ];
    let mut expected = "One".to_owned();
    for (number, (what, broken)) in (2..).zip(cases) {
        store.inner.keep(&session(), broken).await.unwrap();
        expected.push_str(" | Again");
        let said = say(&store, number, "Again", |builder| builder.fold_cache(store.inner.clone())).await;
        assert_eq!(said, expected, "{what}");
    }
    expected.push_str(" | Away");
    assert_eq!(say(&store, 100, "Away", |builder| builder.fold_cache(Away)).await, expected, "away");
    expected.push_str(" | Last");
    assert_eq!(say(&store, 101, "Last", |builder| builder).await, expected, "no cache");
    // What was kept last is what the log says, event by event.
    let kept = store.inner.kept(&session()).await.unwrap().unwrap();
    let before = Seq::new(kept.head.get() - 1);
    let row = store.inner.read(&session(), before, 1).await.unwrap().remove(0);
    let mut opened = kept.open(&row).unwrap();
    for row in store.inner.read(&session(), kept.head, 10_000).await.unwrap() {
        opened.apply(row.seq, &row.event().unwrap());
    }
    assert_eq!(opened, whole(&store.inner).await);
}

/// What is kept of an erased session goes with it.
#[tokio::test(start_paused = true)]
async fn an_erased_session_leaves_nothing_in_the_cache() {
    let store = Held::new();
    say(&store, 1, "One", |builder| builder.fold_cache(store.inner.clone())).await;
    assert!(store.inner.kept(&session()).await.unwrap().is_some());
    store.inner.erase(&session()).await.unwrap();
    assert_eq!(store.inner.kept(&session()).await.unwrap(), None);
    let gone = store.inner.keep(&session(), CachedFold::new(Seq::new(1), "", "", "")).await;
    assert_eq!(gone.unwrap_err().kind, StoreErrorKind::NotFound);
}

/// A cache that cannot be reached.
struct Away;

#[async_trait]
impl FoldCache for Away {
    async fn kept(&self, _: &SessionId) -> Result<Option<CachedFold>, StoreError> {
        Err(StoreError::new(StoreErrorKind::Unavailable, "it is away"))
    }

    async fn keep(&self, _: &SessionId, _: CachedFold) -> Result<(), StoreError> {
        Err(StoreError::new(StoreErrorKind::Unavailable, "it is away"))
    }
}

/// The histories of so many idle sessions are in memory, and no more: the one that ran longest ago goes first, and is read again.
#[tokio::test(start_paused = true)]
async fn idle_histories_are_bounded() {
    let store = Held::new();
    let script = (0..6).fold(Script::default(), |script, _| script.then(text("Yes").into_iter().chain([stop()])));
    let mut settings = Settings::default();
    settings.kept_sessions = 2;
    let runner = builder(&script, &Watched::default(), &store, settings).build().unwrap();
    let reads = || store.reads.lock().unwrap().len();
    let run = async |name: &str| {
        let session = runner.session(name).await.unwrap();
        session.input("Go").without_waking().send().await.unwrap();
        let before = reads();
        assert_eq!(session.run().await.unwrap().outcome, Outcome::Completed);
        reads() - before
    };
    assert_eq!((run("a").await, run("b").await), (1, 1), "each is read from its first event");
    assert_eq!(run("a").await, 0, "it is still there");
    assert_eq!(run("c").await, 1);
    assert_eq!((run("a").await, run("b").await), (0, 1), "`b` had run longest ago");
}

/// A store that gives less than it is asked for is asked again from where it stopped.
#[tokio::test(start_paused = true)]
async fn short_pages_lose_nothing() {
    let store = Held::new();
    say(&store, 1, "One", |builder| builder).await;
    say(&store, 2, "Two", |builder| builder).await;
    let whole = whole(&store.inner).await;
    for most in [1, 2, 7] {
        *store.most.lock().unwrap() = Some(most);
        let runner = builder(&Script::default(), &Watched::default(), &store, Settings::default()).build().unwrap();
        assert_eq!(runner.session("s").await.unwrap().fold().await.unwrap(), whole, "{most} at once");
    }
}

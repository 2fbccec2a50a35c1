//! Following a session: the log, what is open, and what happens live.

use crate::common::{Held, Item, Script, Watched, runner};
use serde_json::json;
use settled_ledger::{DeltaKind, LiveEvent, Seq};
use settled_provider_api::ProviderEvent;
use settled_runner::{Follow, SessionEvent, Settings};

/// A reader that comes late is told what is open, and then follows to the end.
#[tokio::test(start_paused = true)]
async fn a_late_reader_sees_what_is_open() {
    let script = Script::default().then([
        Item::from(ProviderEvent::text_start(0)),
        Item::from(ProviderEvent::text_delta(0, "Half a ")),
        Item::from(ProviderEvent::tool_call(1, "a", "wait", json!({}))),
        Item::from(ProviderEvent::tool_input_start(2, "b", "echo")),
        Item::from(ProviderEvent::tool_input_delta(2, "{\"x\"")),
        Item::Hang,
    ]);
    let (tools, store) = (Watched::default(), Held::new());
    let runner = runner(&script, &tools, &store, Settings::default());
    let session = runner.session("s").await.unwrap();
    session.input("Go").without_waking().send().await.unwrap();
    let early = tokio::spawn(pieces(session.follow(Seq::START)));
    let running = tokio::spawn({
        let session = session.clone();
        async move { session.run().await }
    });
    tools.begun.notified().await;
    let mut late = session.follow(Seq::START);
    let open = loop {
        if let SessionEvent::Synced(head, open) = late.next().await.unwrap().unwrap() {
            assert!(head > Seq::START);
            break open;
        }
    };
    let blocks: Vec<_> = open.blocks.iter().map(|block| (block.kind, block.offset, block.text.to_string())).collect();
    let expected = [(DeltaKind::Text, 0, "Half a ".to_owned()), (DeltaKind::ToolInput, 0, "{\"x\"".to_owned())];
    assert_eq!(blocks, expected);
    assert_eq!(open.running.len(), 1, "the tool that waits runs");
    session.interrupt().await.unwrap();
    running.await.unwrap().unwrap();
    assert_eq!(early.await.unwrap(), expected);
}

/// The pieces that a reader sees live, until the execution has settled.
async fn pieces(mut follow: Follow) -> Vec<(DeltaKind, u64, String)> {
    let mut pieces = Vec::new();
    loop {
        match follow.next().await.unwrap().unwrap() {
            SessionEvent::Recorded(row) if row.kind == "execution.settled" => return pieces,
            SessionEvent::Live(LiveEvent::Delta(delta)) => {
                pieces.push((delta.kind, delta.offset, delta.text.to_string()));
            }
            _ => {}
        }
    }
}

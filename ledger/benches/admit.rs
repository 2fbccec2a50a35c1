//! What admitting a piece of text costs, against parsing the chunk that brought it.
//!
//! Both run in one process, in alternating rounds, in CPU time of this thread; the medians and their ratio are printed.
//! The goal is a ratio of at most 0.10.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark stops at what must not be, and prints")]

use std::borrow::Cow;
use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use settled_ledger::{Admission, LiveDelta, StepLedger, ToolUse};
use settled_provider_api::ProviderEvent;
use settled_tools_api::{MessageId, SessionId};

const ROUNDS: usize = 301;
const PIECES: usize = 2_000;
/// A chunk as the Anthropic wire has it, 94 bytes.
const CHUNK: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" and then anot"}}"#;
const GOAL: f64 = 0.10;

/// The chunk, borrowed as far as it goes.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    index: u32,
    #[serde(borrow)]
    delta: ChunkDelta<'a>,
}

#[derive(Deserialize)]
struct ChunkDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
}

/// `borrow` reaches through a newtype, and not through an `Option`.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The CPU time that this thread has had, in nanoseconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds for each of the pieces of one round.
fn timed(round: impl FnOnce()) -> f64 {
    let before = cpu();
    round();
    (cpu() - before) / PIECES as f64
}

fn parse() {
    for _ in 0..PIECES {
        let chunk: Chunk<'_> = serde_json::from_str(black_box(CHUNK)).unwrap();
        let Chunk { kind, index, delta } = &chunk;
        black_box((&kind.0, index, &delta.kind.0, &delta.text.0));
    }
}

/// Admits the piece over and over, and hands over what is owed.
///
/// The event is as fresh in the cache as it is when it has just been decoded, and so is the chunk that is parsed.
fn admit(piece: &ProviderEvent, mut hand_over: impl FnMut(&StepLedger, Admission<'_>)) {
    let session = SessionId::new("s").unwrap();
    let mut ledger = StepLedger::new(session, MessageId::from_u128(1), [].into(), ToolUse::On);
    drop(black_box(ledger.admit(&ProviderEvent::text_start(0))));
    for _ in 0..PIECES {
        let admission = ledger.admit(black_box(piece));
        // The ledger is free again: what is handed over borrows the event alone.
        hand_over(&ledger, admission);
    }
    black_box(ledger);
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let chunk: Chunk<'_> = serde_json::from_str(CHUNK).unwrap();
    assert!(matches!(chunk.delta.text.0, Cow::Borrowed(_)), "the parse borrows");
    let piece = ProviderEvent::text_delta(0, chunk.delta.text.0.as_ref());
    let (mut parsed, mut admitted, mut owned) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        parsed.push(timed(parse));
        admitted.push(timed(|| admit(&piece, |_, admission| drop(black_box(admission)))));
        owned.push(timed(|| {
            admit(&piece, |ledger, admission| match admission {
                Admission::Delta(delta) => drop(black_box(LiveDelta::new(ledger.message(), delta))),
                other => panic!("{other:?}"),
            });
        }));
    }
    let (parsed, admitted, owned) = (median(parsed), median(admitted), median(owned));
    let ratio = admitted / parsed;
    println!("parse of a {}-byte chunk, borrowed   {parsed:8.1} ns", CHUNK.len());
    println!("admit, events handed over            {admitted:8.1} ns   ratio {ratio:.3}   goal <= {GOAL:.2}");
    println!("admit, and an owned live event       {owned:8.1} ns   ratio {:.3}", owned / parsed);
    println!("{}", if ratio <= GOAL { "goal met" } else { "goal missed" });
}

//! The decoder of the Messages API beside the bare, borrowed parse of the same text deltas, in one run.
//!
//! Prints nanoseconds per delta and the ratio: medians of alternating rounds.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and fails by panicking")]

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use settled_provider_anthropic::{Dialect, MessagesDecoder};
use settled_provider_wire::Decoder as _;

const DELTAS: usize = 4_000;
const ROUNDS: usize = 15;
const START: &str =
    "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n";
const DELTA: &str =
    "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello there\"}}";

/// The least that a decoder must read of a delta.
#[derive(Deserialize)]
struct Bare<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    index: u64,
    #[serde(borrow)]
    delta: BareDelta<'a>,
}

#[derive(Deserialize)]
struct BareDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Cow<'a, str>,
}

fn main() {
    let body = format!("event: content_block_delta\ndata: {DELTA}\n\n").repeat(DELTAS);
    for cut in [64, 1_460, 4_096, 8_192, 16_384, 65_536] {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for round in 0..2 * ROUNDS {
            if round % 2 == 0 {
                let mut decoder = MessagesDecoder::new(Arc::new(Dialect::default()));
                let mut events = VecDeque::new();
                decoder.push(START.as_bytes(), &mut events).unwrap();
                let start = Instant::now();
                for chunk in body.as_bytes().chunks(cut) {
                    decoder.push(chunk, &mut events).unwrap();
                    black_box(&mut events).clear();
                }
                ours.push(start.elapsed());
            } else {
                let start = Instant::now();
                for _ in 0..DELTAS {
                    let line: Bare<'_> = serde_json::from_str(black_box(DELTA)).unwrap();
                    black_box((line.kind.len(), line.index, line.delta.kind.len(), line.delta.text.len()));
                }
                bare.push(start.elapsed());
            }
        }
        let per_delta = |mut times: Vec<Duration>| {
            times.sort();
            times[times.len() / 2].as_secs_f64() * 1e9 / DELTAS as f64
        };
        let (ours, bare) = (per_delta(ours), per_delta(bare));
        println!("cut {cut:>6}: decoder {ours:>5.0} ns, bare parse {bare:>5.0} ns a delta, ratio {:.2}", ours / bare);
    }
}

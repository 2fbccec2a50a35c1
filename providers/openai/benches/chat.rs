//! The decoder of Chat Completions beside the bare, borrowed parse of the same chunks, in one run.
//!
//! Prints nanoseconds per chunk and the ratio: medians of alternating rounds.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and fails by panicking")]

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use settled_provider_openai::chat::{ChatDecoder, Dialect};
use settled_provider_wire::Decoder as _;

const CHUNKS: usize = 4_000;
const ROUNDS: usize = 15;
const CHUNK: &str = "{\"id\":\"chatcmpl-AAAAAAAAAAAAAAAAAAAAAAAAAAAAA\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"gpt-4o-mini-2024-07-18\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_bbbbbbbbbbbb\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello\"},\"logprobs\":null,\"finish_reason\":null}],\"obfuscation\":\"ccccccccccccccccc\"}";

/// The least that a borrowed parse can read.
#[derive(Deserialize)]
struct Bare<'a> {
    #[serde(borrow)]
    choices: Vec<BareChoice<'a>>,
}

#[derive(Deserialize)]
struct BareChoice<'a> {
    #[serde(borrow)]
    delta: BareDelta<'a>,
}

#[derive(Deserialize)]
struct BareDelta<'a> {
    #[serde(borrow)]
    content: Cow<'a, str>,
}

fn main() {
    let body = format!("data: {CHUNK}\n\n").repeat(CHUNKS);
    for cut in [64, 1_460, 16_384] {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for round in 0..2 * ROUNDS {
            let start = Instant::now();
            if round % 2 == 0 {
                let mut decoder = ChatDecoder::new(Arc::new(Dialect::default()));
                let mut events = VecDeque::new();
                for chunk in body.as_bytes().chunks(cut) {
                    decoder.push(chunk, &mut events).unwrap();
                    black_box(&mut events).clear();
                }
                ours.push(start.elapsed());
            } else {
                for _ in 0..CHUNKS {
                    let chunk: Bare<'_> = serde_json::from_str(black_box(CHUNK)).unwrap();
                    black_box(chunk.choices[0].delta.content.len());
                }
                bare.push(start.elapsed());
            }
        }
        let per_chunk = |mut times: Vec<Duration>| {
            times.sort();
            times[times.len() / 2].as_secs_f64() * 1e9 / CHUNKS as f64
        };
        let (ours, bare) = (per_chunk(ours), per_chunk(bare));
        println!("cut {cut:>6}: decoder {ours:>5.0} ns, bare parse {bare:>5.0} ns a chunk, ratio {:.2}", ours / bare);
    }
}

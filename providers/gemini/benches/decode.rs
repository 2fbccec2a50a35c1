//! The decoder of Gemini beside the bare, borrowed parse of the same chunks, in one run.
//!
//! Prints nanoseconds per chunk and the ratio: medians of alternating rounds.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and fails by panicking")]

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use settled_provider_gemini::{Dialect, GeminiDecoder};
use settled_provider_wire::Decoder as _;

const CHUNKS: usize = 4_000;
const ROUNDS: usize = 15;
const CHUNK: &str = "{\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Hello there, hello\"}],\"role\": \"model\"},\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 32,\"candidatesTokenCount\": 38,\"totalTokenCount\": 410,\"promptTokensDetails\": [{\"modality\": \"TEXT\",\"tokenCount\": 32}],\"thoughtsTokenCount\": 190},\"modelVersion\": \"gemini-2.5-flash\",\"responseId\": \"aaaaaaaaaaaaaaaaaaaaaaa\"}";

/// The least that a borrowed parse can read.
#[derive(Deserialize)]
struct Bare<'a> {
    #[serde(borrow)]
    candidates: [BareCandidate<'a>; 1],
}

#[derive(Deserialize)]
struct BareCandidate<'a> {
    #[serde(borrow)]
    content: BareContent<'a>,
}

#[derive(Deserialize)]
struct BareContent<'a> {
    #[serde(borrow)]
    parts: [BarePart<'a>; 1],
}

#[derive(Deserialize)]
struct BarePart<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

fn main() {
    let bodies = [
        ("events", format!("data: {CHUNK}\r\n\r\n").repeat(CHUNKS)),
        ("array", format!("[{CHUNK}{}]", format!("\n,\r\n{CHUNK}").repeat(CHUNKS - 1))),
    ];
    for ((framing, body), cut) in bodies.iter().flat_map(|body| [64, 1_460, 16_384].map(|cut| (body, cut))) {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for round in 0..2 * ROUNDS {
            let start = Instant::now();
            if round % 2 == 0 {
                let mut decoder = GeminiDecoder::new(Arc::new(Dialect::default()));
                let mut events = VecDeque::new();
                for chunk in body.as_bytes().chunks(cut) {
                    decoder.push(chunk, &mut events).unwrap();
                    black_box(&mut events).clear();
                }
                ours.push(start.elapsed());
            } else {
                for _ in 0..CHUNKS {
                    let chunk: Bare<'_> = serde_json::from_str(black_box(CHUNK)).unwrap();
                    black_box(chunk.candidates[0].content.parts[0].text.len());
                }
                bare.push(start.elapsed());
            }
        }
        let per_chunk = |mut times: Vec<Duration>| {
            times.sort();
            times[times.len() / 2].as_secs_f64() * 1e9 / CHUNKS as f64
        };
        let (ours, bare) = (per_chunk(ours), per_chunk(bare));
        println!(
            "{framing}, cut {cut:>6}: decoder {ours:>5.0} ns, bare parse {bare:>5.0} ns a chunk, ratio {:.2}",
            ours / bare
        );
    }
}

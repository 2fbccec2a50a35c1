//! The decoder of the Responses API beside the bare, borrowed parse of the same events, in one run.
//!
//! Prints nanoseconds per event and the ratio: medians of alternating rounds.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and fails by panicking")]

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use settled_provider_openai::responses::{Dialect, ResponsesDecoder};
use settled_provider_wire::Decoder as _;

const EVENTS: usize = 4_000;
const ROUNDS: usize = 15;
const EVENT: &str = "{\"type\":\"response.output_text.delta\",\"content_index\":0,\"delta\":\"Hello\",\"item_id\":\"msg_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\",\"logprobs\":[],\"obfuscation\":\"ccccccccccc\",\"output_index\":0,\"sequence_number\":4}";

/// The least that a borrowed parse can read.
#[derive(Deserialize)]
struct Bare<'a> {
    #[serde(borrow)]
    delta: Cow<'a, str>,
}

fn main() {
    let body = format!("event: response.output_text.delta\ndata: {EVENT}\n\n").repeat(EVENTS);
    for cut in [64, 1_460, 16_384] {
        let (mut ours, mut bare) = (Vec::new(), Vec::new());
        for round in 0..2 * ROUNDS {
            let start = Instant::now();
            if round % 2 == 0 {
                let mut decoder = ResponsesDecoder::new(Arc::new(Dialect::default()));
                let mut events = VecDeque::new();
                for chunk in body.as_bytes().chunks(cut) {
                    decoder.push(chunk, &mut events).unwrap();
                    black_box(&mut events).clear();
                }
                ours.push(start.elapsed());
            } else {
                for _ in 0..EVENTS {
                    let event: Bare<'_> = serde_json::from_str(black_box(EVENT)).unwrap();
                    black_box(event.delta.len());
                }
                bare.push(start.elapsed());
            }
        }
        let per_event = |mut times: Vec<Duration>| {
            times.sort();
            times[times.len() / 2].as_secs_f64() * 1e9 / EVENTS as f64
        };
        let (ours, bare) = (per_event(ours), per_event(bare));
        println!("cut {cut:>6}: decoder {ours:>5.0} ns, bare parse {bare:>5.0} ns an event, ratio {:.2}", ours / bare);
    }
}

//! What a piece of text costs from the bytes of a wire to one subscriber, beside the bare, borrowed parse of the same chunk.
//!
//! Both run in one process, in alternating rounds, in CPU time of this thread; medians and their ratios are printed, with the decoder alone beside them.
//! The goal is a ratio of at most 2.0 on the Anthropic chunk.
#![expect(clippy::expect_used, clippy::print_stdout, reason = "a benchmark stops at what must not be, and prints")]

use std::borrow::Cow;
use std::collections::VecDeque;
use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use settled_testkit::server::Wire;

#[path = "../tests/pipeline/mod.rs"]
mod pipeline;

use pipeline::{PIECES, Piece, Pipeline};

const ROUNDS: usize = 101;
const COUNT: usize = 2_000;
/// As much as a packet brings.
const CUT: usize = 1_460;
const GOAL: f64 = 2.0;

/// `borrow` reaches through a newtype, and not through an `Option`.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Messages<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    index: u32,
    #[serde(borrow)]
    delta: MessagesDelta<'a>,
}

#[derive(Deserialize)]
struct MessagesDelta<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
}

#[derive(Deserialize)]
struct Chat<'a> {
    #[serde(borrow)]
    id: Text<'a>,
    #[serde(borrow)]
    model: Text<'a>,
    #[serde(borrow)]
    choices: Vec<Choice<'a>>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: u32,
    #[serde(borrow)]
    delta: ChatDelta<'a>,
    #[serde(borrow)]
    finish_reason: Option<&'a str>,
}

#[derive(Deserialize)]
struct ChatDelta<'a> {
    #[serde(borrow)]
    content: Text<'a>,
}

#[derive(Deserialize)]
struct Responses<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    output_index: u32,
    content_index: u32,
    #[serde(borrow)]
    delta: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Gemini<'a> {
    #[serde(borrow)]
    candidates: Vec<Candidate<'a>>,
    usage_metadata: Counts,
}

#[derive(Deserialize)]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Content<'a>,
    index: u32,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Vec<Part<'a>>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    prompt_token_count: u64,
    candidates_token_count: u64,
}

/// Parses the chunk once, borrowed: the least that anybody must do.
fn parse(wire: Wire, data: &str) {
    match wire {
        Wire::Messages => {
            let chunk: Messages<'_> = serde_json::from_str(black_box(data)).expect("it parses");
            black_box((&chunk.kind.0, chunk.index, &chunk.delta.kind.0, &chunk.delta.text.0));
        }
        Wire::Chat => {
            let chunk: Chat<'_> = serde_json::from_str(black_box(data)).expect("it parses");
            let choice = chunk.choices.first().expect("there is one");
            black_box((&chunk.id.0, &chunk.model.0, choice.index, &choice.delta.content.0, choice.finish_reason));
        }
        Wire::Responses => {
            let chunk: Responses<'_> = serde_json::from_str(black_box(data)).expect("it parses");
            black_box((&chunk.kind.0, chunk.output_index, chunk.content_index, &chunk.delta.0));
        }
        _ => {
            let chunk: Gemini<'_> = serde_json::from_str(black_box(data)).expect("it parses");
            let candidate = chunk.candidates.first().expect("there is one");
            let part = candidate.content.parts.first().expect("there is one");
            let counts = (chunk.usage_metadata.prompt_token_count, chunk.usage_metadata.candidates_token_count);
            black_box((candidate.index, &part.text.0, counts));
        }
    }
}

/// The CPU time that this thread has had, in nanoseconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds for each piece of one round.
fn timed(round: impl FnOnce()) -> f64 {
    let before = cpu();
    round();
    (cpu() - before) / COUNT as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure(piece: &Piece) -> f64 {
    let body = piece.body(COUNT);
    let (mut parsed, mut decoded, mut published) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        parsed.push(timed(|| (0..COUNT).for_each(|_| parse(piece.wire, piece.data))));
        let mut decoder = piece.decoder();
        let mut events = VecDeque::new();
        decoded.push(timed(|| {
            for bytes in body.as_bytes().chunks(CUT) {
                decoder.push(bytes, &mut events).expect("the pieces decode");
                black_box(&mut events).clear();
            }
        }));
        let mut pipeline = Pipeline::new(piece);
        published.push(timed(|| {
            let received: usize = body.as_bytes().chunks(CUT).map(|bytes| pipeline.take(bytes)).sum();
            assert_eq!(received, COUNT, "the subscriber has received every piece");
        }));
    }
    let (parsed, decoded, published) = (median(parsed), median(decoded), median(published));
    println!(
        "{:<10} parse {parsed:6.0} ns   decode {decoded:6.0} ns ({:.2})   decode, admit, publish, receive {published:6.0} ns ({:.2})",
        format!("{:?}", piece.wire),
        decoded / parsed,
        published / parsed
    );
    published / parsed
}

fn main() {
    for piece in &PIECES {
        let ratio = measure(piece);
        if piece.wire == Wire::Messages {
            println!("{} (goal: at most {GOAL:.1})", if ratio <= GOAL { "goal met" } else { "goal missed" });
        }
    }
}

//! Our decoder of server-sent events beside the crate `sse-stream`, in one run.
//!
//! Prints, for two shapes of events and several cuts, the throughput of both and the ratio: medians of alternating rounds.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark prints, and fails by panicking")]

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_core::Stream;
use settled_provider_wire::{SseDecoder, SseItem};

const EVENTS: usize = 4_000;
const ROUNDS: usize = 15;

fn main() {
    let shapes = [
        (
            "anthropic, 94 B",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello wor\"}}\n\n".to_owned(),
        ),
        (
            "openai, 319 B",
            format!(
                "data: {{\"id\":\"chatcmpl-{}\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"gpt-4o-mini-2024-07-18\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_{}\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"Hello\"}},\"logprobs\":null,\"finish_reason\":null}}],\"obfuscation\":\"{}\"}}\n\n",
                "A".repeat(29),
                "b".repeat(12),
                "c".repeat(17)
            ),
        ),
        (
            "not ASCII",
            "data: {\"choices\":[{\"delta\":{\"content\":\"日本語のテキスト 😀\"}}]}\n\n".to_owned(),
        ),
    ];
    let cuts: [(&str, usize, usize); 11] = [
        ("1", 1, 1),
        ("2", 2, 2),
        ("3", 3, 3),
        ("7", 7, 7),
        ("16", 16, 16),
        ("64", 64, 64),
        ("256", 256, 256),
        ("1,460", 1_460, 1_460),
        ("16,384", 16_384, 16_384),
        ("1..64", 1, 64),
        ("1..2,920", 1, 2_920),
    ];
    println!("{:<16} {:>9} {:>12} {:>12} {:>7}", "shape", "cut", "ours MB/s", "theirs MB/s", "ratio");
    for (shape, event) in &shapes {
        let body = Bytes::from(event.repeat(EVENTS));
        for (cut, least, most) in cuts {
            let chunks = split(&body, least, most);
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for round in 0..ROUNDS {
                // Who goes first changes, so that neither has the warmer cache.
                if round % 2 == 0 {
                    ours.push(time(|| run_ours(&chunks)));
                    theirs.push(time(|| run_theirs(&chunks)));
                } else {
                    theirs.push(time(|| run_theirs(&chunks)));
                    ours.push(time(|| run_ours(&chunks)));
                }
            }
            let (ours, theirs) = (median(ours), median(theirs));
            let speed = |time: Duration| body.len() as f64 / time.as_secs_f64() / 1e6;
            println!(
                "{shape:<16} {cut:>9} {:>12.0} {:>12.0} {:>7.2}",
                speed(ours),
                speed(theirs),
                theirs.as_secs_f64() / ours.as_secs_f64()
            );
        }
    }
}

fn run_ours(chunks: &[Bytes]) -> usize {
    let mut decoder = SseDecoder::new();
    let mut events = 0;
    for chunk in chunks {
        let chunk = chunk.clone();
        decoder.push(&chunk);
        while let Some(item) = decoder.pull() {
            let SseItem::Event(event) = black_box(item.unwrap()) else { panic!("no comments here") };
            black_box(event.data.len());
            events += 1;
        }
    }
    events
}

fn run_theirs(chunks: &[Bytes]) -> usize {
    let mut stream = pin!(sse_stream::SseByteStream::new(Chunks(chunks.iter())));
    let mut context = Context::from_waker(Waker::noop());
    let mut events = 0;
    while let Poll::Ready(Some(event)) = stream.as_mut().poll_next(&mut context) {
        let event = black_box(event.unwrap());
        black_box(event.data.map(|data| data.len()));
        events += 1;
    }
    events
}

struct Chunks<'a>(std::slice::Iter<'a, Bytes>);

impl Stream for Chunks<'_> {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next().map(|chunk| Ok(chunk.clone())))
    }
}

fn split(body: &Bytes, least: usize, most: usize) -> Vec<Bytes> {
    let (mut chunks, mut at, mut state) = (Vec::new(), 0, 1_u64);
    while at < body.len() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let size = least + (state >> 33) as usize % (most - least + 1);
        let end = body.len().min(at + size);
        chunks.push(body.slice(at..end));
        at = end;
    }
    chunks
}

fn time(run: impl FnOnce() -> usize) -> Duration {
    let start = Instant::now();
    assert_eq!(black_box(run()), EVENTS);
    start.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

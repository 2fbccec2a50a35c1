//! No framing allocates per event, once its buffers have grown.

use settled_provider_wire::{JsonArray, JsonLines, SseDecoder, SseItem};

/// Runs a body twice in chunks of several sizes: the second time nothing may be allocated.
fn check(name: &str, body: &str, mut run: impl FnMut(&[u8]) -> usize) {
    for size in [1, 7, 64, 1_000, body.len()] {
        let mut pass = || body.as_bytes().chunks(size).map(&mut run).sum::<usize>();
        let warm = pass();
        let mut events = 0;
        let allocated = allocation_counter::measure(|| events = pass()).count_total;
        assert_eq!((events, allocated), (warm, 0), "{name} in chunks of {size}");
        assert!(events >= 200, "{name}: {events} events");
    }
}

#[test]
fn nothing_is_allocated_per_event() {
    let mut sse = SseDecoder::new();
    let body = "event: delta\nid: 7\ndata: {\"a\":\"é\"}\n\n: alive\n\ndata: one\ndata: two\n\n".repeat(100);
    check("server-sent events", &body, |chunk| {
        sse.push(chunk);
        let mut events = 0;
        while let Some(Ok(item)) = sse.pull() {
            events += usize::from(matches!(item, SseItem::Event(_)));
        }
        events
    });
    let mut lines = JsonLines::new();
    check("lines", &"{\"a\":1}\n".repeat(200), |chunk| {
        lines.push(chunk);
        let mut events = 0;
        while let Some(Ok(_)) = lines.pull() {
            events += 1;
        }
        events
    });
    let mut array = JsonArray::new();
    array.push(b"[");
    check("array", &"{\"a\":[\"}\"]}\n,".repeat(200), |chunk| {
        array.push(chunk);
        let mut events = 0;
        while let Some(Ok(_)) = array.pull() {
            events += 1;
        }
        events
    });
}

//! A text delta costs at most three allocations, from the bytes to the event.

use std::collections::VecDeque;

use settled_provider_api::ProviderEvent;
use settled_provider_gemini::{Dialect, GeminiDecoder};
use settled_provider_wire::Decoder as _;

#[test]
fn a_text_delta_costs_at_most_three_allocations() {
    for (text, most) in [("Hello", 2), ("say \\\"hi\\\"\\n", 3)] {
        let chunk = format!(
            "{{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}],\"role\":\"model\"}},\"index\":0}}],\"usageMetadata\":{{\"promptTokenCount\":32,\"candidatesTokenCount\":38,\"totalTokenCount\":410,\"promptTokensDetails\":[{{\"modality\":\"TEXT\",\"tokenCount\":32}}],\"thoughtsTokenCount\":190}},\"modelVersion\":\"gemini-2.5-flash\",\"responseId\":\"aaaaaaaaaaaaaaaaaaaaaaa\"}}"
        );
        for (framing, line) in [("events", format!("data: {chunk}\r\n\r\n")), ("array", format!("{chunk}\n,"))] {
            for size in [1, 64, 1_460] {
                let body = line.repeat(1_000);
                let mut decoder = GeminiDecoder::new(Dialect::named("gemini").unwrap());
                let mut events: VecDeque<ProviderEvent> = VecDeque::with_capacity(2_048);
                let mut feed = |body: &str, events: &mut VecDeque<ProviderEvent>| {
                    for chunk in body.as_bytes().chunks(size) {
                        assert_eq!(decoder.push(chunk, events), Ok(()));
                    }
                };
                if framing == "array" {
                    feed("[", &mut events);
                }
                // The first opens the block, and lets the buffers grow.
                feed(&body, &mut events);
                events.clear();
                let allocated = allocation_counter::measure(|| feed(&body, &mut events)).count_total;
                assert_eq!(events.len(), 1_000);
                assert!(allocated <= most * 1_000, "{text} in {framing} of {size}: {allocated} for 1,000");
            }
        }
    }
}

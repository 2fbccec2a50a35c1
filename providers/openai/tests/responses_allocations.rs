//! A text delta costs at most three allocations, from the bytes to the event.

use std::collections::VecDeque;
use std::sync::Arc;

use settled_provider_api::ProviderEvent;
use settled_provider_openai::responses::{Dialect, ResponsesDecoder};
use settled_provider_wire::Decoder as _;

#[test]
fn a_text_delta_costs_at_most_three_allocations() {
    for (text, most) in [("Hello", 1), ("say \\\"hi\\\"\\n", 3)] {
        let line = format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"{text}\",\"logprobs\":[],\"obfuscation\":\"abc\",\"sequence_number\":4}}\n\n"
        );
        for size in [1, 64, 1_460] {
            let body = line.repeat(1_000);
            let mut decoder = ResponsesDecoder::new(Arc::new(Dialect::default()));
            let mut events: VecDeque<ProviderEvent> = VecDeque::with_capacity(2_048);
            let mut feed = |body: &str, events: &mut VecDeque<ProviderEvent>| {
                for chunk in body.as_bytes().chunks(size) {
                    assert_eq!(decoder.push(chunk, events), Ok(()));
                }
            };
            // The first opens the block, and lets the buffers grow.
            feed(&body, &mut events);
            events.clear();
            let allocated = allocation_counter::measure(|| feed(&body, &mut events)).count_total;
            assert_eq!(events.len(), 1_000);
            assert!(allocated <= most * 1_000, "{text} in chunks of {size}: {allocated} for 1,000");
        }
    }
}

//! A piece of text costs at most three allocations from the bytes of a wire to one subscriber.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod pipeline;

use pipeline::{PIECES, Pipeline};

#[test]
fn a_piece_of_text_costs_at_most_three_allocations() {
    const COUNT: usize = 1_000;
    for piece in &PIECES {
        for cut in [64, 1_460, 16_384] {
            let body = piece.body(COUNT);
            let mut pipeline = Pipeline::new(piece);
            let mut run = || body.as_bytes().chunks(cut).map(|bytes| pipeline.take(bytes)).sum::<usize>();
            // The first opens the block, and lets buffers grow.
            assert_eq!(run(), COUNT, "{:?}", piece.wire);
            let mut received = 0;
            let counted = allocation_counter::measure(|| received = run()).count_total;
            assert_eq!(received, COUNT, "{:?}", piece.wire);
            // The ledger's text doubles now and then: a few for all pieces together.
            let most = 3 * u64::try_from(COUNT).expect("it is small") + 8;
            assert!(counted <= most, "{:?} cut at {cut}: {counted} for {COUNT}", piece.wire);
        }
    }
}

//! Admitting a piece allocates nothing beyond the growth of its block's buffer.

#![expect(clippy::unwrap_used, reason = "a test may stop at what must not be")]

use settled_ledger::{Admission, StepLedger, ToolUse};
use settled_provider_api::ProviderEvent;
use settled_tools_api::{MessageId, SessionId};

fn ledger() -> StepLedger {
    let session = SessionId::new("s").unwrap();
    let mut ledger = StepLedger::new(session, MessageId::from_u128(1), [].into(), ToolUse::On);
    for start in [
        ProviderEvent::text_start(0),
        ProviderEvent::reasoning_start(1),
        ProviderEvent::tool_input_start(2, "a", "act"),
    ] {
        assert!(matches!(ledger.admit(&start), Admission::Owed(_)));
    }
    ledger
}

/// How often a buffer grows while this many bytes are pushed in pieces of this size, as `String` does it.
fn growths(pieces: usize, size: usize) -> u64 {
    let piece = "x".repeat(size);
    let counted = allocation_counter::measure(|| {
        let mut buffer = String::new();
        (0..pieces).for_each(|_| buffer.push_str(&piece));
    });
    counted.count_total
}

#[test]
fn a_piece_allocates_nothing_beyond_the_growth_of_the_buffer() {
    const PIECES: usize = 10_000;
    const SIZE: usize = 18;
    let text = "x".repeat(SIZE);
    let allowed = growths(PIECES, SIZE);
    assert!((1..20).contains(&allowed), "a buffer grows by doubling: {allowed} times");
    for piece in [
        ProviderEvent::text_delta(0, text.as_str()),
        ProviderEvent::reasoning_delta(1, text.as_str()),
        ProviderEvent::tool_input_delta(2, text.as_str()),
    ] {
        let mut ledger = ledger();
        let counted = allocation_counter::measure(|| {
            for _ in 0..PIECES {
                assert!(matches!(ledger.admit(&piece), Admission::Delta(delta) if delta.text == text));
            }
        });
        assert_eq!(counted.count_total, allowed, "{piece:?}");
        // And what was counted is the text.
        assert!(counted.bytes_current >= (PIECES * SIZE) as i64, "{counted:?}");
    }
}

#[test]
fn a_piece_for_which_there_is_room_allocates_nothing() {
    let mut ledger = ledger();
    let first = ProviderEvent::text_delta(0, "x".repeat(100));
    let (small, empty) = (ProviderEvent::text_delta(0, "x"), ProviderEvent::text_delta(0, ""));
    // The buffer doubles: after two pieces of a hundred bytes there is room for more.
    for _ in 0..3 {
        assert!(matches!(ledger.admit(&first), Admission::Delta(_)));
    }
    let counted = allocation_counter::measure(|| {
        for event in [&small, &empty, &small, &ProviderEvent::Alive, &ProviderEvent::StepStart] {
            assert!(matches!(ledger.admit(event), Admission::Delta(_) | Admission::Nothing));
        }
    });
    assert_eq!((counted.count_total, counted.bytes_total), (0, 0));
}

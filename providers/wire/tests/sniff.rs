//! What a body is, by its first bytes.

use settled_provider_wire::{BodyKind, sniff};

#[test]
fn the_first_byte_that_counts_decides() {
    let check = |bytes: &[u8], kind: Option<BodyKind>| assert_eq!(sniff(bytes), kind, "{bytes:?}");
    for nothing in [&b""[..], b" \r\n\t", b"\xef", b"\xef\xbb", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"] {
        check(nothing, None);
    }
    check(b"\xef\xbb\xbf {", Some(BodyKind::Json));
    check(b"[", Some(BodyKind::Json));
    check(b"\n<!doctype html>", Some(BodyKind::Markup));
    check(b"data: {", Some(BodyKind::Lines));
    check(b": hm", Some(BodyKind::Lines));
    check(b"\xef\xbbx", Some(BodyKind::Lines));
}

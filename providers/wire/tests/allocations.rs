//! Allocations per event.
fn main() {}

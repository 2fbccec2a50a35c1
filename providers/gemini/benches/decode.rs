//! The decoder beside the bare parse.
fn main() {}

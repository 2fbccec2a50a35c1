//! Conformance suites: cases with a name, a promise, and a run.

pub mod store;

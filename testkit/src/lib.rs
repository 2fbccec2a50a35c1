//! Scripted providers and tools, faults, crash points, scenarios and conformance suites for agents.

pub mod conformance;

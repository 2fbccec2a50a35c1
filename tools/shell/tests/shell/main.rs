//! The shell tool on real processes.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod support;

mod answers;

mod processes;

mod output;

mod host;

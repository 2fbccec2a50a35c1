//! The file tools on real folders.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

mod support;

mod tools;

mod confinement;

mod bad_input;

mod replay;

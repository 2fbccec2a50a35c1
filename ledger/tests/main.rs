//! The ledger's tests, in one binary.

#![expect(clippy::unwrap_used, reason = "a test may stop at what must not be")]

mod kit;

mod check_log;

mod check_request;

mod events;

mod evidence;

mod fold;

mod golden;

mod keys;

mod lowering;

mod properties;

mod restore;

mod settlement;

mod violations;

//! The runner's own tests: what a scenario file cannot show.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may stop at what it did not expect")]
#![expect(unreachable_pub, reason = "a module that tests share")]

#[path = "runner/common.rs"]
mod common;

#[path = "runner/order.rs"]
mod order;

#[path = "runner/follow.rs"]
mod follow;

#[path = "runner/instructions.rs"]
mod instructions;

#[path = "runner/world.rs"]
mod world;

#[path = "runner/coordination.rs"]
mod coordination;

#[path = "runner/tools.rs"]
mod tools;

#[path = "runner/cache.rs"]
mod cache;

#[path = "runner/views.rs"]
mod views;

#[path = "runner/restart.rs"]
mod restart;

#[path = "runner/redaction.rs"]
mod redaction;

#[path = "runner/requests.rs"]
mod requests;

#[path = "runner/input.rs"]
mod input;

#[path = "runner/steps.rs"]
mod steps;

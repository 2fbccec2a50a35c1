//! The command as another process, against a scripted server on this machine.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

#[path = "command/common.rs"]
mod common;

#[path = "command/usage.rs"]
mod usage;

#[path = "command/killed.rs"]
mod killed;

#[path = "command/providers.rs"]
mod providers;

#[path = "command/files.rs"]
mod files;

#[path = "command/secrets.rs"]
mod secrets;

#[path = "command/again.rs"]
mod again;

//! Guides: each is a page whose code is compiled and run.

#[cfg(feature = "runner")]
#[doc = include_str!("guide/ten_lines.md")]
pub mod test_your_agent_in_ten_lines {}

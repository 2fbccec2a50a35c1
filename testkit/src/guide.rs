//! Guides: each is a page whose code is compiled and run.

#[cfg(feature = "runner")]
#[doc = include_str!("guide/ten_lines.md")]
pub mod test_your_agent_in_ten_lines {}

#[cfg(feature = "runner")]
#[doc = include_str!("guide/surviving_tool.md")]
pub mod write_a_tool_that_survives_a_crash {}

#[cfg(feature = "runner")]
#[doc = include_str!("guide/customer_log.md")]
pub mod turn_a_customers_log_into_a_test {}

#[cfg(feature = "server")]
#[doc = include_str!("guide/provider_adapter.md")]
pub mod write_a_provider_adapter {}

#[doc = include_str!("guide/store.md")]
pub mod write_a_store {}

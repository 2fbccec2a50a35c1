//! Tests of the Gemini adapter.

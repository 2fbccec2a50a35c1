//! Our own adapters on the suite for providers, over the scripted server.
#![cfg(feature = "server")]
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::sync::Arc;

use settled_provider_anthropic::Anthropic;
use settled_provider_api::{FixedKey, Provider, ProviderError};
use settled_provider_gemini::Gemini;
use settled_provider_openai::chat::OpenAiChat;
use settled_provider_openai::responses::OpenAiResponses;
use settled_provider_wire::Http;
use settled_testkit::conformance::Verdict;
use settled_testkit::conformance::provider::{ProviderSuite, WireFixture};
use settled_testkit::server::Wire;

fn adapter(wire: Wire, http: Http, url: String, key: &str) -> Result<Arc<dyn Provider>, ProviderError> {
    let key = Arc::new(FixedKey::new(key));
    Ok(match wire {
        Wire::Chat => Arc::new(OpenAiChat::builder(url, key).http(http).build()?),
        Wire::Responses => Arc::new(OpenAiResponses::builder(url, key).http(http).build()?),
        Wire::Messages => Arc::new(Anthropic::builder(url, key).http(http).build()?),
        _ => Arc::new(Gemini::builder(url, key).http(http).build()?),
    })
}

/// Every promise is kept, but for those that say nothing of the wire.
async fn check(wire: Wire, skipped: &[(&str, &str)]) {
    let http = Http::builder().without_proxy().build().unwrap();
    let fixture = WireFixture::new(wire, move |url, key| {
        adapter(wire, http.clone(), url, key).map_err(|error| error.to_string())
    });
    let report = ProviderSuite::new().run(&fixture).await.into_result().unwrap();
    let seen: BTreeMap<_, _> = report
        .lines
        .iter()
        .filter_map(|line| match &line.verdict {
            Verdict::Skipped(reason) => Some((line.case.as_str(), reason.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(seen, skipped.iter().copied().collect());
}

#[tokio::test]
async fn chat_completions() {
    let stateless = "the wire has no state with its reasoning";
    check(Wire::Chat, &[("reasoning.state", stateless), ("request.state", stateless)]).await;
}

#[tokio::test]
async fn responses() {
    check(Wire::Responses, &[]).await;
}

#[tokio::test]
async fn messages() {
    check(Wire::Messages, &[]).await;
}

#[tokio::test]
async fn gemini() {
    let json = "the wire sends the arguments of a call as JSON, not as text";
    let skipped = [
        ("call.pieces", json),
        ("call.unclosed", json),
        ("call.cut", json),
        ("call.malformed", json),
        ("finish.reads_on", "the wire has no end marker: that an answer is finished is told when its body ends"),
    ];
    check(Wire::Gemini, &skipped).await;
}

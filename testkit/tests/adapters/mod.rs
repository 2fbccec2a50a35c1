//! The real adapters against the scripted server.

use std::future::poll_fn;
use std::sync::{Arc, OnceLock};

use settled_provider_anthropic::Anthropic;
use settled_provider_api::{
    FixedKey, Message, MessageId, ModelRef, Provider, ProviderError, ProviderEvent, Purpose, Request, SessionId,
};
use settled_provider_gemini::Gemini;
use settled_provider_openai::chat::OpenAiChat;
use settled_provider_openai::responses::OpenAiResponses;
use settled_provider_wire::Http;
use settled_testkit::server::{Server, Wire};

/// The wires that an adapter asks for.
pub(crate) const WIRES: [Wire; 4] = [Wire::Chat, Wire::Responses, Wire::Messages, Wire::Gemini];

/// The adapter of a wire, against a server.
pub(crate) fn adapter(wire: Wire, server: &Server) -> Box<dyn Provider> {
    let (url, key) = (server.base_url(wire), Arc::new(FixedKey::new("key-of-the-test")));
    // One for all: each connection is closed behind its answer, so that nothing of it outlives a test.
    static HTTP: OnceLock<Http> = OnceLock::new();
    let http = HTTP.get_or_init(|| Http::builder().without_proxy().build().unwrap()).clone();
    match wire {
        Wire::Chat => Box::new(OpenAiChat::builder(url, key).http(http).build().unwrap()),
        Wire::Responses => Box::new(OpenAiResponses::builder(url, key).http(http).build().unwrap()),
        Wire::Messages => Box::new(Anthropic::builder(url, key).http(http).build().unwrap()),
        Wire::Gemini => Box::new(Gemini::builder(url, key).http(http).build().unwrap()),
        other => panic!("no adapter speaks {other:?}"),
    }
}

/// What the adapter of a wire hears of the next answer: events, and the error at the end.
pub(crate) async fn hear(wire: Wire, server: &Server) -> (Vec<ProviderEvent>, Option<ProviderError>) {
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(1));
    let mut request = Request::new(ModelRef::new("scripted", "the-model"), purpose);
    request.messages.push(Arc::new(Message::user("hello")));
    let mut events = Vec::new();
    let mut stream = match adapter(wire, server).stream(Arc::new(request)).await {
        Ok(stream) => stream,
        Err(error) => return (events, Some(error)),
    };
    while let Some(event) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => return (events, Some(error)),
        }
    }
    (events, None)
}

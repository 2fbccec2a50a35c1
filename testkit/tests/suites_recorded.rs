//! The protocol of a stream's events, over recorded traffic of four wires: whole, byte by byte, and cut anywhere.
//!
//! The recordings are read from `SETTLED_RECORDINGS` (default `../shared/recordings` beside the workspace); without them the tests say so and pass.
#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking, and says what it counted")]

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use settled_provider_anthropic::MessagesDecoder;
use settled_provider_api::ProviderEvent;
use settled_provider_gemini::GeminiDecoder;
use settled_provider_openai::chat::ChatDecoder;
use settled_provider_openai::responses::ResponsesDecoder;
use settled_provider_wire::Decoder;
use settled_testkit::conformance::provider::check_events;

/// Every recorded stream of a wire: its name, the server's, and the body.
fn streams(wire: &str) -> Vec<(String, String, String)> {
    let default = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings");
    let folder = std::env::var_os("SETTLED_RECORDINGS").map_or(default, PathBuf::from).join(wire);
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: there are no recordings at {}", folder.display());
        return Vec::new();
    };
    let mut streams = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        let recording: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for (number, exchange) in recording["exchanges"].as_array().unwrap().iter().enumerate() {
            let Some(body) = exchange["response"]["body"].as_str() else { continue };
            if exchange["streaming"] == true && exchange["response"]["status"] == 200 {
                let server =
                    exchange["provider"].as_str().or_else(|| recording["provider"].as_str()).unwrap_or_default();
                let name = format!("{}#{number}", path.file_stem().unwrap().to_string_lossy());
                streams.push((name, server.to_owned(), body.to_owned()));
            }
        }
    }
    streams
}

/// What comes of a body, as far as it decodes; a body that is cut does not end in order.
fn decode(mut decoder: Box<dyn Decoder>, chunks: &[&[u8]], end: End) -> Vec<ProviderEvent> {
    let mut events = VecDeque::new();
    let mut fed = Ok(());
    for chunk in chunks {
        fed = fed.and_then(|()| decoder.push(chunk, &mut events));
    }
    if end == End::InOrder && fed.is_ok() {
        // What is undecodable at the end fails the stream, and the events before it stand.
        let _failed_or_not = decoder.finish(&mut events);
    }
    events.into()
}

#[derive(Clone, Copy, PartialEq)]
enum End {
    InOrder,
    Cut,
}

/// Holds every recorded stream of a wire to the protocol.
fn check(wire: &str, least: usize, decoder: impl Fn(&str) -> Box<dyn Decoder>) {
    let streams = streams(wire);
    for (name, server, body) in &streams {
        let follows = |chunks: &[&[u8]], end: End, how: &str| {
            let events = decode(decoder(server), chunks, end);
            let faults = check_events(&events);
            assert!(faults.is_empty(), "{name}, {how}: {faults:?} in {events:?}");
            events
        };
        let body = body.as_bytes();
        let whole = follows(&[body], End::InOrder, "whole");
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(follows(&bytes, End::InOrder, "byte by byte"), whole, "{name}");
        for part in 1..8 {
            let (head, _) = body.split_at(body.len() * part / 8);
            let cut = follows(&[head], End::Cut, "cut");
            assert!(whole.starts_with(&cut), "{name}: what was cut is not the beginning of the whole");
        }
    }
    eprintln!("{wire}: {} recorded streams", streams.len());
    assert!(streams.is_empty() || streams.len() >= least, "only {} streams of {wire}", streams.len());
}

#[test]
fn chat_completions() {
    check("openai-chat", 40, |server| {
        let dialect = settled_provider_openai::chat::Dialect::named(server).unwrap_or_default();
        Box::new(ChatDecoder::new(Arc::clone(&dialect)))
    });
}

#[test]
fn responses() {
    check("openai-responses", 20, |server| {
        let dialect = settled_provider_openai::responses::Dialect::named(server).unwrap_or_default();
        Box::new(ResponsesDecoder::new(Arc::clone(&dialect)))
    });
}

#[test]
fn messages() {
    check("anthropic-messages", 20, |server| {
        let dialect = settled_provider_anthropic::Dialect::named(server).unwrap_or_default();
        Box::new(MessagesDecoder::new(Arc::clone(&dialect)))
    });
}

#[test]
fn gemini() {
    check("gemini", 10, |server| {
        let dialect = settled_provider_gemini::Dialect::named(server).unwrap_or_default();
        Box::new(GeminiDecoder::new(Arc::clone(&dialect)))
    });
}

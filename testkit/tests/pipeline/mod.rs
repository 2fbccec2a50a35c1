//! The way of a piece of text from the bytes of a wire to one subscriber: decoded, admitted, published, received.
//!
//! Publishing is what the runner does: an `Arc` sent into a broadcast ring behind a mutex.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use settled_ledger::{Admission, LiveDelta, LiveEvent, StepLedger, ToolUse};
use settled_provider_anthropic::MessagesDecoder;
use settled_provider_api::ProviderEvent;
use settled_provider_gemini::GeminiDecoder;
use settled_provider_openai::chat::ChatDecoder;
use settled_provider_openai::responses::ResponsesDecoder;
use settled_provider_wire::Decoder;
use settled_testkit::server::Wire;
use settled_tools_api::{MessageId, SessionId};
use tokio::sync::broadcast;

/// What a piece of text is on a wire: its data, and the name of its event where it has one.
pub(crate) struct Piece {
    pub(crate) wire: Wire,
    /// What must come before the first piece.
    begins: &'static str,
    name: Option<&'static str>,
    pub(crate) data: &'static str,
}

/// A piece of text on each wire, of the size that the vendor sends.
pub(crate) const PIECES: [Piece; 4] = [
    Piece {
        wire: Wire::Messages,
        begins: "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        name: Some("content_block_delta"),
        data: r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":" and then anot"}}"#,
    },
    Piece {
        wire: Wire::Chat,
        begins: "",
        name: None,
        data: r#"{"id":"chatcmpl-AAAAAAAAAAAAAAAAAAAAAAAAAAAAA","object":"chat.completion.chunk","created":1700000000,"model":"gpt-4o-mini-2024-07-18","service_tier":"default","system_fingerprint":"fp_bbbbbbbbbbbb","choices":[{"index":0,"delta":{"content":" and then anot"},"logprobs":null,"finish_reason":null}],"obfuscation":"ccccccccccccccccc"}"#,
    },
    Piece {
        wire: Wire::Responses,
        begins: "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"output_index\":0,\"item\":{\"type\":\"message\",\"id\":\"msg_1\"}}\n\n",
        name: Some("response.output_text.delta"),
        data: r#"{"type":"response.output_text.delta","sequence_number":7,"item_id":"msg_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","output_index":0,"content_index":0,"delta":" and then anot","logprobs":[],"obfuscation":"ccccccccccccccccc"}"#,
    },
    Piece {
        wire: Wire::Gemini,
        begins: "",
        name: None,
        data: r#"{"candidates": [{"content": {"parts": [{"text": " and then anot"}],"role": "model"},"index": 0}],"usageMetadata": {"promptTokenCount": 10,"candidatesTokenCount": 5,"totalTokenCount": 15},"modelVersion": "gemini-2.5-flash","responseId": "AAAAAAAAAAAAAAAAAAAAAAA"}"#,
    },
];

impl Piece {
    /// So many pieces, one behind the other.
    pub(crate) fn body(&self, pieces: usize) -> String {
        let data = self.data;
        match self.name {
            Some(name) => format!("event: {name}\ndata: {data}\n\n").repeat(pieces),
            None => format!("data: {data}\n\n").repeat(pieces),
        }
    }

    /// A decoder that has seen what comes before the first piece.
    pub(crate) fn decoder(&self) -> Box<dyn Decoder> {
        let mut decoder: Box<dyn Decoder> = match self.wire {
            Wire::Chat => Box::new(ChatDecoder::new(Arc::default())),
            Wire::Responses => Box::new(ResponsesDecoder::new(Arc::default())),
            Wire::Messages => Box::new(MessagesDecoder::new(Arc::default())),
            _ => Box::new(GeminiDecoder::new(Arc::default())),
        };
        decoder.push(self.begins.as_bytes(), &mut VecDeque::new()).expect("the beginning decodes");
        decoder
    }
}

/// One step with one subscriber.
pub(crate) struct Pipeline {
    decoder: Box<dyn Decoder>,
    events: VecDeque<ProviderEvent>,
    ledger: StepLedger,
    ring: Mutex<Option<broadcast::Sender<LiveEvent>>>,
    subscriber: broadcast::Receiver<LiveEvent>,
}

impl Pipeline {
    pub(crate) fn new(piece: &Piece) -> Self {
        let session = SessionId::new("s").expect("it is one");
        let (sender, subscriber) = broadcast::channel(256);
        Self {
            decoder: piece.decoder(),
            events: VecDeque::with_capacity(256),
            ledger: StepLedger::new(session, MessageId::from_u128(1), [].into(), ToolUse::On),
            ring: Mutex::new(Some(sender)),
            subscriber,
        }
    }

    /// Takes bytes as they come from the network; gives how many pieces the subscriber has received.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        self.decoder.push(bytes, &mut self.events).expect("the pieces decode");
        let mut received = 0;
        while let Some(event) = self.events.pop_front() {
            if let Admission::Delta(delta) = self.ledger.admit(&event) {
                let delta = LiveDelta::new(self.ledger.message(), delta);
                let ring = self.ring.lock().expect("nothing panics");
                if let Some(readers) = ring.as_ref() {
                    readers.send(LiveEvent::Delta(delta)).expect("there is a subscriber");
                }
                drop(ring);
                received += usize::from(self.subscriber.try_recv().is_ok());
            }
        }
        received
    }
}

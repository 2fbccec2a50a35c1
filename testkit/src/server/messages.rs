//! The Messages API of Anthropic.

use serde_json::{Map, Value, json};
use settled_provider_api::{Content, Finish, FinishReason, ProviderEvent, Usage};

use super::wire::{Blocks, Head, Piece, Speak, named, no_place, opaque, quoted, sum};

/// An answer of the Messages API.
pub(super) struct Messages {
    head: Head,
    begun: bool,
    blocks: Blocks,
    /// The blocks that have not ended.
    open: Vec<u32>,
}

impl Messages {
    pub(super) fn new(head: Head) -> Self {
        Self { head, begun: false, blocks: Blocks::default(), open: Vec::new() }
    }

    fn begin(&self) -> Piece {
        let Head { number, id, model, usage, .. } = &self.head;
        let id = id.clone().unwrap_or_else(|| format!("msg_{number:024}"));
        let mut counts = usage.as_ref().map(input_counts).unwrap_or_default();
        if usage.is_some() {
            counts.insert("output_tokens".to_owned(), json!(1));
        }
        let (id, model) = (quoted(&id), quoted(model));
        named(
            "message_start",
            format_args!(
                r#"{{"type":"message_start","message":{{"id":{id},"type":"message","role":"assistant","model":{model},"content":[],"stop_reason":null,"stop_sequence":null,"usage":{}}}}}"#,
                Value::Object(counts)
            ),
        )
    }

    /// The beginning of a block, if it has not begun.
    fn start(&mut self, index: u32, block: impl FnOnce() -> Value, out: &mut Vec<Piece>) -> usize {
        let (known, new) = self.blocks.get(index);
        let order = known.order;
        if new {
            self.open.push(index);
            out.push(start_line(order, &block()));
        }
        order
    }

    fn delta(&mut self, index: u32, kind: &str, field: &str, text: &str, out: &mut Vec<Piece>) {
        let (block, _) = self.blocks.get(index);
        block.text.push_str(text);
        let order = block.order;
        let text = quoted(text);
        out.push(named(
            "content_block_delta",
            format_args!(
                r#"{{"type":"content_block_delta","index":{order},"delta":{{"type":"{kind}","{field}":{text}}}}}"#
            ),
        ));
    }

    fn stop(&mut self, index: u32, out: &mut Vec<Piece>) {
        let before = self.open.len();
        self.open.retain(|open| *open != index);
        if self.open.len() < before {
            out.push(stop_line(self.blocks.get(index).0.order));
        }
    }

    /// A call by its first sign.
    fn call(&mut self, index: u32, id: &str, name: &str, hosted: bool, out: &mut Vec<Piece>) {
        let block = || match hosted {
            false => json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
            true => {
                json!({"type": "mcp_tool_use", "id": id, "name": name, "server_name": "scripted", "input": {}})
            }
        };
        self.start(index, block, out);
    }

    /// The rest of a call: its arguments, where none came, and its end.
    fn close(&mut self, index: u32, arguments: &str, out: &mut Vec<Piece>) {
        if self.open.contains(&index) && self.blocks.get(index).0.text.is_empty() {
            self.delta(index, "input_json_delta", "partial_json", arguments, out);
        }
        self.stop(index, out);
    }

    /// A block that its beginning says all of.
    fn said(&mut self, block: &Value, out: &mut Vec<Piece>) {
        let order = self.blocks.number();
        out.extend([start_line(order, block), stop_line(order)]);
    }
}

impl Speak for Messages {
    fn event(&mut self, event: &ProviderEvent, out: &mut Vec<Piece>) -> Result<(), String> {
        if !self.begun && !matches!(event, ProviderEvent::Error(_) | ProviderEvent::Alive) {
            self.begun = true;
            out.push(self.begin());
        }
        let text = || json!({"type": "text", "text": ""});
        let thinking = || json!({"type": "thinking", "thinking": "", "signature": ""});
        match event {
            ProviderEvent::StepStart | ProviderEvent::ResponseInfo(_) => {}
            ProviderEvent::TextStart(start) => {
                self.start(start.index, text, out);
            }
            ProviderEvent::TextDelta(delta) => {
                self.start(delta.index, text, out);
                self.delta(delta.index, "text_delta", "text", &delta.text, out);
            }
            ProviderEvent::TextEnd(end) => {
                self.start(end.index, text, out);
                if let Some(whole) = end.text.as_ref().filter(|whole| !whole.is_empty())
                    && self.blocks.get(end.index).0.text.is_empty()
                {
                    self.delta(end.index, "text_delta", "text", whole, out);
                }
                self.stop(end.index, out);
            }
            ProviderEvent::ReasoningStart(start) => {
                self.start(start.index, thinking, out);
            }
            ProviderEvent::ReasoningDelta(delta) => {
                self.start(delta.index, thinking, out);
                self.delta(delta.index, "thinking_delta", "thinking", &delta.text, out);
            }
            ProviderEvent::ReasoningEnd(end) => {
                self.start(end.index, thinking, out);
                if let Some(whole) = end.text.as_ref().filter(|whole| !whole.is_empty())
                    && self.blocks.get(end.index).0.text.is_empty()
                {
                    self.delta(end.index, "thinking_delta", "thinking", whole, out);
                }
                if let Some(state) = &end.state {
                    self.delta(end.index, "signature_delta", "signature", &opaque(state), out);
                }
                self.stop(end.index, out);
            }
            ProviderEvent::ToolInputStart(start) => {
                self.call(start.index, &start.id, &start.name, start.hosted, out);
            }
            ProviderEvent::ToolInputDelta(delta) => {
                self.delta(delta.index, "input_json_delta", "partial_json", &delta.text, out);
            }
            ProviderEvent::ToolInputEnd(end) => self.stop(end.index, out),
            ProviderEvent::ToolInputMalformed(call) => {
                self.call(call.index, &call.id, &call.name, call.hosted, out);
                self.close(call.index, &call.raw, out);
            }
            ProviderEvent::ToolCall(call) => {
                self.call(call.index, &call.id, &call.name, call.hosted, out);
                self.close(call.index, &call.input.to_string(), out);
            }
            ProviderEvent::HostedResult(result) => {
                let texts = result.content.iter().filter_map(Content::as_text);
                let texts: Vec<Value> = texts.map(|text| json!({"type": "text", "text": text})).collect();
                let block =
                    json!({"type": "mcp_tool_result", "tool_use_id": result.id, "is_error": false, "content": texts});
                self.said(&block, out);
            }
            ProviderEvent::HostedError(error) => {
                let texts = [json!({"type": "text", "text": error.message})];
                let block =
                    json!({"type": "mcp_tool_result", "tool_use_id": error.id, "is_error": true, "content": texts});
                self.said(&block, out);
            }
            ProviderEvent::Media(_) => return Err(no_place("the Messages API", "media that the model makes")),
            ProviderEvent::Annotation(note) => {
                let Some(index) = note.index else { return Ok(()) };
                let order = self.start(index, text, out);
                let delta = json!({"type": "citations_delta", "citation": note.data});
                let line = json!({"type": "content_block_delta", "index": order, "delta": delta});
                out.push(named("content_block_delta", line));
            }
            ProviderEvent::Alive => out.push(named("ping", r#"{"type": "ping"}"#)),
            ProviderEvent::Finish(finish) => {
                for index in std::mem::take(&mut self.open) {
                    out.push(stop_line(self.blocks.get(index).0.order));
                }
                let mut counts = finish.usage.as_ref().map(input_counts).unwrap_or_default();
                if let Some(usage) = &finish.usage {
                    counts.insert("output_tokens".to_owned(), json!(sum([usage.output, usage.reasoning]).unwrap_or(1)));
                    let reasoning = usage.reasoning.map(|reasoning| json!({"thinking_tokens": reasoning}));
                    counts.extend(reasoning.map(|details| ("output_tokens_details".to_owned(), details)));
                }
                let delta = json!({"stop_reason": reason(finish)?, "stop_sequence": null});
                out.push(named("message_delta", json!({"type": "message_delta", "delta": delta, "usage": counts})));
                out.push(named("message_stop", r#"{"type":"message_stop"}"#));
            }
            ProviderEvent::Error(error) => {
                let error = super::refusal::anthropic_error(error);
                out.push(named("error", json!({"type": "error", "error": error})));
            }
        }
        Ok(())
    }
}

fn start_line(order: usize, block: &Value) -> Piece {
    named(
        "content_block_start",
        format_args!(r#"{{"type":"content_block_start","index":{order},"content_block":{block}}}"#),
    )
}

fn stop_line(order: usize) -> Piece {
    named("content_block_stop", format_args!(r#"{{"type":"content_block_stop","index":{order}}}"#))
}

fn reason(finish: &Finish) -> Result<String, String> {
    if let Some(raw) = &finish.raw {
        return Ok(raw.clone());
    }
    match finish.reason {
        FinishReason::Stop => Ok("end_turn".to_owned()),
        FinishReason::ToolCalls => Ok("tool_use".to_owned()),
        FinishReason::Length => Ok("max_tokens".to_owned()),
        FinishReason::Refusal => Ok("refusal".to_owned()),
        FinishReason::Pause => Ok("pause_turn".to_owned()),
        other => Err(no_place("the Messages API", &format!("the finish {other:?}"))),
    }
}

/// The counts of input as the wire has them: apart from those of the cache.
fn input_counts(usage: &Usage) -> Map<String, Value> {
    let counts = [
        ("input_tokens", usage.input),
        ("cache_creation_input_tokens", usage.cache_write),
        ("cache_read_input_tokens", usage.cache_read),
    ];
    counts.into_iter().filter_map(|(field, count)| Some((field.to_owned(), json!(count?)))).collect()
}

//! The Responses API of OpenAI.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use settled_provider_api::{Content, Finish, FinishReason, ProviderEvent, Usage};

use super::wire::{Blocks, Head, Piece, Speak, comment, named, no_place, opaque, quoted, sum};

/// An answer of the Responses API.
pub(super) struct Responses {
    head: Head,
    begun: bool,
    /// The number of the next line.
    sequence: u64,
    blocks: Blocks,
    /// What each block is; those of the wire are items.
    kinds: BTreeMap<u32, Kind>,
    /// Hosted calls without a result, by their id.
    waiting: BTreeMap<String, Waiting>,
    /// Every item that has ended, by its number.
    output: BTreeMap<usize, Value>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning,
    Call,
    Hosted,
}

/// A hosted call that waits for its result: its number, and its item.
struct Waiting {
    order: usize,
    item: Value,
}

impl Responses {
    pub(super) fn new(head: Head) -> Self {
        Self {
            head,
            begun: false,
            sequence: 0,
            blocks: Blocks::default(),
            kinds: BTreeMap::new(),
            waiting: BTreeMap::new(),
            output: BTreeMap::new(),
        }
    }

    /// A line: its type, its number, and its own fields.
    fn line(&mut self, kind: &str, fields: &Value, out: &mut Vec<Piece>) {
        let sequence = self.sequence;
        self.sequence += 1;
        let fields = fields.to_string();
        let fields = fields.trim_start_matches('{');
        let comma = if fields == "}" { "" } else { "," };
        out.push(named(kind, format_args!(r#"{{"type":"{kind}","sequence_number":{sequence}{comma}{fields}"#)));
    }

    fn response(&self, status: &str, details: Value, usage: Option<&Usage>) -> Value {
        let Head { number, id, model, .. } = &self.head;
        let id = id.clone().unwrap_or_else(|| format!("resp_{number:024}"));
        let output: Vec<&Value> = self.output.values().collect();
        json!({"response": {
            "id": id, "object": "response", "created_at": 1_700_000_000, "status": status, "error": null,
            "incomplete_details": details, "model": model, "output": output, "usage": usage.map(counts),
        }})
    }

    fn id(&self, kind: Kind, order: usize) -> String {
        let prefix = match kind {
            Kind::Message => "msg",
            Kind::Reasoning => "rs",
            Kind::Call => "fc",
            Kind::Hosted => "mcp",
        };
        format!("{prefix}_{:016}{order:08}", self.head.number)
    }

    fn part_of_message(&self, text: &str) -> Value {
        match self.head.refusal {
            true => json!({"type": "refusal", "refusal": text}),
            false => json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text}),
        }
    }

    /// The beginning of an item, if it has not begun.
    fn start(&mut self, index: u32, kind: Kind, label: (&str, &str), out: &mut Vec<Piece>) {
        let (block, new) = self.blocks.get(index);
        if !new {
            return;
        }
        let order = block.order;
        (block.id, block.name) = (label.0.to_owned(), label.1.to_owned());
        self.kinds.insert(index, kind);
        let id = self.id(kind, order);
        let item = match kind {
            Kind::Message => {
                json!({"id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": []})
            }
            Kind::Reasoning => json!({"id": id, "type": "reasoning", "summary": []}),
            Kind::Call => self.call_item(&id, label, "", "in_progress"),
            Kind::Hosted => hosted_item(label, ""),
        };
        self.line("response.output_item.added", &json!({"output_index": order, "item": item}), out);
        if kind == Kind::Message {
            let part = self.part_of_message("");
            let fields = json!({"item_id": id, "output_index": order, "content_index": 0, "part": part});
            self.line("response.content_part.added", &fields, out);
        }
    }

    fn call_item(&self, id: &str, (label, name): (&str, &str), arguments: &str, status: &str) -> Value {
        json!({
            "id": id, "type": "function_call", "status": status, "arguments": arguments, "call_id": label, "name": name,
        })
    }

    /// A piece of a block, in the order in which the wire writes its fields.
    fn delta(&mut self, index: u32, kind: &str, place: &str, text: &str, out: &mut Vec<Piece>) {
        let (block, _) = self.blocks.get(index);
        block.text.push_str(text);
        let order = block.order;
        let item = self.id(self.kinds.get(&index).copied().unwrap_or(Kind::Message), order);
        let sequence = self.sequence;
        self.sequence += 1;
        let text = quoted(text);
        out.push(named(
            kind,
            format_args!(
                r#"{{"type":"{kind}","sequence_number":{sequence},"item_id":"{item}","output_index":{order}{place},"delta":{text}}}"#
            ),
        ));
    }

    fn say(&mut self, index: u32, text: &str, out: &mut Vec<Piece>) {
        self.start(index, Kind::Message, ("", ""), out);
        let kind = if self.head.refusal { "response.refusal.delta" } else { "response.output_text.delta" };
        self.delta(index, kind, r#","content_index":0"#, text, out);
    }

    fn think(&mut self, index: u32, text: &str, out: &mut Vec<Piece>) {
        self.start(index, Kind::Reasoning, ("", ""), out);
        let (block, _) = self.blocks.get(index);
        if block.text.is_empty() {
            let order = block.order;
            let part = json!({"type": "summary_text", "text": ""});
            let id = self.id(Kind::Reasoning, order);
            let fields = json!({"item_id": id, "output_index": order, "summary_index": 0, "part": part});
            self.line("response.reasoning_summary_part.added", &fields, out);
        }
        self.delta(index, "response.reasoning_summary_text.delta", r#","summary_index":0"#, text, out);
    }

    /// The end of an item, once.
    fn end_item(&mut self, index: u32, state: Option<&Value>, status: &str, out: &mut Vec<Piece>) {
        let Some(kind) = self.kinds.get(&index).copied() else { return };
        let (block, _) = self.blocks.get(index);
        if std::mem::replace(&mut block.ended, true) {
            return;
        }
        let (order, text) = (block.order, block.text.clone());
        let label = (block.id.clone(), block.name.clone());
        let id = self.id(kind, order);
        let item = match kind {
            Kind::Message => {
                let part = self.part_of_message(&text);
                let done = if self.head.refusal {
                    ("response.refusal.done", "refusal")
                } else {
                    ("response.output_text.done", "text")
                };
                let place = json!({"item_id": id, "output_index": order, "content_index": 0, done.1: text});
                self.line(done.0, &place, out);
                let place = json!({"item_id": id, "output_index": order, "content_index": 0, "part": part});
                self.line("response.content_part.done", &place, out);
                json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": [part]})
            }
            Kind::Reasoning => {
                let part = json!({"type": "summary_text", "text": text});
                if !text.is_empty() {
                    let place = json!({"item_id": id, "output_index": order, "summary_index": 0, "text": text});
                    self.line("response.reasoning_summary_text.done", &place, out);
                    let place = json!({"item_id": id, "output_index": order, "summary_index": 0, "part": part});
                    self.line("response.reasoning_summary_part.done", &place, out);
                }
                let summary = if text.is_empty() { Vec::new() } else { vec![part] };
                let mut item = json!({"id": id, "type": "reasoning", "summary": summary});
                if let Some(state) = state {
                    item["encrypted_content"] = json!(opaque(state));
                }
                item
            }
            Kind::Call => {
                if status == "completed" {
                    let place = json!({"item_id": id, "output_index": order, "arguments": text});
                    self.line("response.function_call_arguments.done", &place, out);
                }
                self.call_item(&id, (&label.0, &label.1), &text, status)
            }
            Kind::Hosted => {
                let place = json!({"item_id": label.0, "output_index": order, "arguments": text});
                self.line("response.mcp_call_arguments.done", &place, out);
                let item = hosted_item((&label.0, &label.1), &text);
                self.waiting.insert(label.0, Waiting { order, item });
                return;
            }
        };
        self.finish_item(order, item, out);
    }

    fn finish_item(&mut self, order: usize, item: Value, out: &mut Vec<Piece>) {
        self.line("response.output_item.done", &json!({"output_index": order, "item": item}), out);
        self.output.insert(order, item);
    }

    /// The whole text of a block, where no piece of it came.
    fn is_unsaid(&mut self, index: u32, text: &str) -> bool {
        !text.is_empty() && self.blocks.get(index).0.text.is_empty()
    }

    fn call(&mut self, index: u32, hosted: bool, label: (&str, &str), arguments: &str, out: &mut Vec<Piece>) {
        self.start(index, if hosted { Kind::Hosted } else { Kind::Call }, label, out);
        if self.is_unsaid(index, arguments) {
            self.arguments(index, arguments, out);
        }
        self.end_item(index, None, "completed", out);
    }

    fn arguments(&mut self, index: u32, text: &str, out: &mut Vec<Piece>) {
        let hosted = self.kinds.get(&index) == Some(&Kind::Hosted);
        let kind = if hosted { "response.mcp_call_arguments.delta" } else { "response.function_call_arguments.delta" };
        self.delta(index, kind, "", text, out);
    }

    fn result(
        &mut self,
        id: &str,
        field: &str,
        value: Value,
        status: &str,
        out: &mut Vec<Piece>,
    ) -> Result<(), String> {
        let Some(Waiting { order, mut item }) = self.waiting.remove(id) else {
            return Err(no_place(
                "the Responses API",
                &format!("the result of {id:?}, which is no hosted call of this answer"),
            ));
        };
        item[field] = value;
        item["status"] = json!(status);
        self.finish_item(order, item, out);
        Ok(())
    }
}

impl Speak for Responses {
    fn event(&mut self, event: &ProviderEvent, out: &mut Vec<Piece>) -> Result<(), String> {
        if !self.begun && !matches!(event, ProviderEvent::Error(_) | ProviderEvent::Alive) {
            self.begun = true;
            let response = self.response("in_progress", Value::Null, None);
            self.line("response.created", &response, out);
            self.line("response.in_progress", &response, out);
        }
        match event {
            ProviderEvent::StepStart | ProviderEvent::ResponseInfo(_) => {}
            ProviderEvent::TextStart(start) => self.start(start.index, Kind::Message, ("", ""), out),
            ProviderEvent::TextDelta(delta) => self.say(delta.index, &delta.text, out),
            ProviderEvent::TextEnd(end) => {
                let whole = end.text.as_deref().unwrap_or_default();
                if self.is_unsaid(end.index, whole) {
                    self.say(end.index, whole, out);
                }
                self.end_item(end.index, None, "completed", out);
            }
            ProviderEvent::ReasoningStart(start) => self.start(start.index, Kind::Reasoning, ("", ""), out),
            ProviderEvent::ReasoningDelta(delta) => self.think(delta.index, &delta.text, out),
            ProviderEvent::ReasoningEnd(end) => {
                let whole = end.text.as_deref().unwrap_or_default();
                if self.is_unsaid(end.index, whole) {
                    self.think(end.index, whole, out);
                }
                self.end_item(end.index, end.state.as_ref(), "completed", out);
            }
            ProviderEvent::ToolInputStart(start) => {
                let kind = if start.hosted { Kind::Hosted } else { Kind::Call };
                self.start(start.index, kind, (&start.id, &start.name), out);
            }
            ProviderEvent::ToolInputDelta(delta) => self.arguments(delta.index, &delta.text, out),
            ProviderEvent::ToolInputEnd(end) => self.end_item(end.index, None, "completed", out),
            ProviderEvent::ToolInputMalformed(call) => {
                self.call(call.index, call.hosted, (&call.id, &call.name), &call.raw, out);
            }
            ProviderEvent::ToolCall(call) => {
                self.call(call.index, call.hosted, (&call.id, &call.name), &call.input.to_string(), out);
            }
            ProviderEvent::HostedResult(result) => {
                let texts: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
                self.result(&result.id, "output", json!(texts.join("\n")), "completed", out)?;
            }
            ProviderEvent::HostedError(error) => {
                let value = json!({"type": "mcp_tool_execution_error", "content": [], "message": error.message});
                self.result(&error.id, "error", value, "failed", out)?;
            }
            ProviderEvent::Media(_) => return Err(no_place("the Responses API", "media that the model makes")),
            ProviderEvent::Annotation(note) => {
                if let Some(index) = note.index.filter(|index| self.kinds.get(index) == Some(&Kind::Message)) {
                    let order = self.blocks.get(index).0.order;
                    let id = self.id(Kind::Message, order);
                    let fields = json!({
                        "item_id": id, "output_index": order, "content_index": 0, "annotation_index": 0,
                        "annotation": note.data,
                    });
                    self.line("response.output_text.annotation.added", &fields, out);
                }
            }
            ProviderEvent::Alive => out.push(comment()),
            ProviderEvent::Finish(finish) => {
                let why = incomplete(finish)?;
                let open: Vec<u32> = self.kinds.keys().copied().collect();
                let status = if why.is_some() { "incomplete" } else { "completed" };
                for index in open {
                    self.end_item(index, None, status, out);
                }
                let details = why.map_or(Value::Null, |reason| json!({"reason": reason}));
                let response = self.response(status, details, finish.usage.as_ref());
                self.line(&format!("response.{status}"), &response, out);
            }
            ProviderEvent::Error(error) => {
                let mut fields = super::refusal::openai_error(error);
                fields["param"] = Value::Null;
                self.line("error", &json!({"error": fields}), out);
            }
        }
        Ok(())
    }
}

fn hosted_item((id, name): (&str, &str), arguments: &str) -> Value {
    json!({
        "id": id, "type": "mcp_call", "status": "in_progress", "arguments": arguments, "name": name,
        "server_label": "scripted", "error": null, "output": null,
    })
}

/// Why the response is incomplete; nothing where it is complete.
fn incomplete(finish: &Finish) -> Result<Option<String>, String> {
    if let Some(raw) = &finish.raw {
        return Ok(raw.strip_prefix("incomplete:").map(str::to_owned));
    }
    match finish.reason {
        FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Refusal => Ok(None),
        FinishReason::Length => Ok(Some("max_output_tokens".to_owned())),
        FinishReason::ContentFilter => Ok(Some("content_filter".to_owned())),
        other => Err(no_place("the Responses API", &format!("the finish {other:?}"))),
    }
}

/// Usage as the wire has it: what is read from a cache and reasoning are counted in.
fn counts(usage: &Usage) -> Value {
    let input = sum([usage.input, usage.cache_read, usage.cache_write]);
    let output = sum([usage.output, usage.reasoning]);
    let mut counts = json!({"input_tokens": input, "output_tokens": output, "total_tokens": sum([input, output])});
    if let Some(read) = usage.cache_read {
        counts["input_tokens_details"]["cached_tokens"] = json!(read);
    }
    if let Some(write) = usage.cache_write {
        counts["input_tokens_details"]["cache_write_tokens"] = json!(write);
    }
    if let Some(reasoning) = usage.reasoning {
        counts["output_tokens_details"]["reasoning_tokens"] = json!(reasoning);
    }
    counts
}

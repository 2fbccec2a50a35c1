//! Chat Completions.

use serde_json::{Map, Value, json};
use settled_provider_api::{Finish, FinishReason, ProviderEvent, Usage};

use super::wire::{Blocks, Head, Piece, Speak, comment, no_place, quoted, sum, unnamed};

/// An answer of Chat Completions.
pub(super) struct Chat {
    head: Head,
    begun: bool,
    blocks: Blocks,
    /// How many calls have begun: they are counted by themselves.
    calls: usize,
}

impl Chat {
    pub(super) fn new(head: Head) -> Self {
        Self { head, begun: false, blocks: Blocks::default(), calls: 0 }
    }

    /// The chunk of a delta, in the order in which the wire writes its fields.
    fn chunk(&self, choices: &str, usage: &str) -> Piece {
        let Head { number, id, model, .. } = &self.head;
        let id = id.clone().unwrap_or_else(|| format!("chatcmpl-{number:024}"));
        let (id, model) = (quoted(&id), quoted(model));
        unnamed(format_args!(
            r#"{{"id":{id},"object":"chat.completion.chunk","created":1700000000,"model":{model},"service_tier":"default","system_fingerprint":"fp_scripted","choices":{choices}{usage}}}"#
        ))
    }

    fn delta(&self, delta: impl std::fmt::Display, finish: Option<&str>) -> Piece {
        let finish = json!(finish);
        let choice = format!(r#"[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]"#);
        self.chunk(&choice, r#","usage":null"#)
    }

    /// A text that belongs to a block; the whole of it counts only where no piece came.
    fn say(&mut self, field: &str, index: u32, text: &str, out: &mut Vec<Piece>) {
        self.blocks.get(index).0.text.push_str(text);
        out.push(self.delta(format_args!("{{\"{field}\":{}}}", quoted(text)), None));
    }

    /// The whole text of a block, where no piece of it came.
    fn tell(&mut self, field: &str, index: u32, text: Option<&String>, out: &mut Vec<Piece>) {
        if let Some(text) = text.filter(|text| !text.is_empty())
            && self.blocks.get(index).0.text.is_empty()
        {
            self.say(field, index, text, out);
        }
    }

    /// The beginning of a call, if it has not begun.
    fn begin(&mut self, index: u32, id: &str, name: &str, out: &mut Vec<Piece>) {
        let (block, new) = self.blocks.get(index);
        if new {
            let order = self.calls;
            block.order = order;
            self.calls += 1;
            let calls =
                json!([{"index": order, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}]);
            out.push(self.delta(json!({"tool_calls": calls}), None));
        }
    }

    fn arguments(&mut self, index: u32, text: &str, out: &mut Vec<Piece>) {
        let (block, _) = self.blocks.get(index);
        block.text.push_str(text);
        let order = block.order;
        let text = quoted(text);
        let delta = format!(r#"{{"tool_calls":[{{"index":{order},"function":{{"arguments":{text}}}}}]}}"#);
        out.push(self.delta(delta, None));
    }

    /// The arguments of a call that has none yet.
    fn whole(&mut self, index: u32, text: &str, out: &mut Vec<Piece>) {
        if self.blocks.get(index).0.text.is_empty() {
            self.arguments(index, text, out);
        }
    }
}

impl Speak for Chat {
    fn event(&mut self, event: &ProviderEvent, out: &mut Vec<Piece>) -> Result<(), String> {
        let none = |what: &str| Err(no_place("Chat Completions", what));
        if !self.begun && !matches!(event, ProviderEvent::Error(_) | ProviderEvent::Alive) {
            self.begun = true;
            out.push(self.delta(r#"{"role":"assistant","content":"","refusal":null}"#, None));
        }
        let said = if self.head.refusal { "refusal" } else { "content" };
        match event {
            ProviderEvent::StepStart
            | ProviderEvent::ResponseInfo(_)
            | ProviderEvent::TextStart(_)
            | ProviderEvent::ReasoningStart(_)
            | ProviderEvent::ToolInputEnd(_) => {}
            ProviderEvent::TextDelta(delta) => self.say(said, delta.index, &delta.text, out),
            ProviderEvent::TextEnd(end) => self.tell(said, end.index, end.text.as_ref(), out),
            ProviderEvent::ReasoningDelta(delta) => self.say("reasoning_content", delta.index, &delta.text, out),
            ProviderEvent::ReasoningEnd(end) => self.tell("reasoning_content", end.index, end.text.as_ref(), out),
            ProviderEvent::ToolInputStart(start) if start.hosted => return none("calls that the provider runs"),
            ProviderEvent::ToolInputStart(start) => self.begin(start.index, &start.id, &start.name, out),
            ProviderEvent::ToolInputDelta(delta) => self.arguments(delta.index, &delta.text, out),
            ProviderEvent::ToolInputMalformed(call) => {
                self.begin(call.index, &call.id, &call.name, out);
                self.whole(call.index, &call.raw, out);
            }
            ProviderEvent::ToolCall(call) if call.hosted => return none("calls that the provider runs"),
            ProviderEvent::ToolCall(call) => {
                self.begin(call.index, &call.id, &call.name, out);
                self.whole(call.index, &call.input.to_string(), out);
            }
            ProviderEvent::HostedResult(_) | ProviderEvent::HostedError(_) => {
                return none("results of calls that the provider runs");
            }
            ProviderEvent::Media(_) => return none("media that the model makes"),
            ProviderEvent::Annotation(note) => {
                out.push(self.delta(json!({"annotations": [note.data]}), None));
            }
            ProviderEvent::Alive => out.push(comment()),
            ProviderEvent::Finish(finish) => {
                out.push(self.delta("{}", Some(&reason(finish)?)));
                if let Some(usage) = &finish.usage {
                    out.push(self.chunk("[]", &format!(",\"usage\":{}", counts(usage))));
                }
                out.push(unnamed("[DONE]"));
            }
            ProviderEvent::Error(error) => {
                out.push(unnamed(json!({"error": super::refusal::openai_error(error)})));
            }
        }
        Ok(())
    }
}

fn reason(finish: &Finish) -> Result<String, String> {
    if let Some(raw) = &finish.raw {
        return Ok(raw.clone());
    }
    match finish.reason {
        FinishReason::Stop | FinishReason::Refusal => Ok("stop".to_owned()),
        FinishReason::ToolCalls => Ok("tool_calls".to_owned()),
        FinishReason::Length => Ok("length".to_owned()),
        FinishReason::ContentFilter => Ok("content_filter".to_owned()),
        other => Err(no_place("Chat Completions", &format!("the finish {other:?}"))),
    }
}

/// Usage as the wire has it: what is read from a cache and reasoning are counted in.
fn counts(usage: &Usage) -> Value {
    let prompt = sum([usage.input, usage.cache_read, usage.cache_write]);
    let completion = sum([usage.output, usage.reasoning]);
    let mut counts = Map::new();
    counts.insert("prompt_tokens".to_owned(), json!(prompt));
    counts.insert("completion_tokens".to_owned(), json!(completion));
    counts.insert("total_tokens".to_owned(), json!(sum([prompt, completion])));
    let mut details = Map::new();
    for (field, count) in [("cached_tokens", usage.cache_read), ("cache_write_tokens", usage.cache_write)] {
        details.extend(count.map(|count| (field.to_owned(), json!(count))));
    }
    if !details.is_empty() {
        counts.insert("prompt_tokens_details".to_owned(), Value::Object(details));
    }
    if let Some(reasoning) = usage.reasoning {
        counts.insert("completion_tokens_details".to_owned(), json!({"reasoning_tokens": reasoning}));
    }
    Value::Object(counts)
}

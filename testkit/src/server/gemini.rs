//! `streamGenerateContent` of Gemini: as events, or as one array that grows.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use settled_provider_api::{Content, Finish, FinishReason, MediaData, ProviderEvent, Usage};

use super::Wire;
use super::wire::{Blocks, Head, Piece, Speak, comment, no_place, opaque, quoted, sum, unnamed};

/// The hosted tool that has parts of its own.
const CODE: &str = "code_execution";

/// An answer of Gemini.
pub(super) struct Gemini {
    head: Head,
    wire: Wire,
    /// Calls that come whole: before they do, the wire says nothing of them.
    whole: BTreeSet<u32>,
    blocks: Blocks,
    /// The names of hosted calls, by their id.
    hosted: BTreeMap<String, String>,
    /// The array has its first element.
    begun: bool,
}

impl Gemini {
    pub(super) fn new(head: Head, wire: Wire, whole: BTreeSet<u32>) -> Self {
        Self { head, wire, whole, blocks: Blocks::default(), hosted: BTreeMap::new(), begun: false }
    }

    /// A chunk, in the frame of the wire.
    fn frame(&mut self, chunk: &str, out: &mut Vec<Piece>) {
        let first = !std::mem::replace(&mut self.begun, true);
        out.push(match (self.wire, first) {
            (Wire::GeminiArray, true) => Piece::Bytes(format!("[{chunk}").into_bytes()),
            (Wire::GeminiArray, false) => Piece::Bytes(format!("\n,\r\n{chunk}").into_bytes()),
            _ => unnamed(chunk),
        });
    }

    /// A chunk with a candidate, in the order in which the wire writes its fields.
    fn chunk(&mut self, parts: &str, finish: Option<&str>, usage: Option<&Usage>, out: &mut Vec<Piece>) {
        let Head { number, id, model, .. } = &self.head;
        let id = quoted(&id.clone().unwrap_or_else(|| format!("response-{number:08}")));
        let model = quoted(model);
        let finish = finish.map_or_else(String::new, |finish| format!(",\"finishReason\":{}", quoted(finish)));
        let usage = usage.map_or_else(String::new, |usage| format!(",\"usageMetadata\":{}", counts(usage)));
        let chunk = format!(
            r#"{{"candidates":[{{"content":{{"parts":{parts},"role":"model"}}{finish},"index":0}}]{usage},"modelVersion":{model},"responseId":{id}}}"#
        );
        self.frame(&chunk, out);
    }

    fn part(&mut self, part: &Value, out: &mut Vec<Piece>) {
        self.chunk(&format!("[{part}]"), None, None, out);
    }

    fn say(&mut self, index: u32, thought: bool, text: &str, out: &mut Vec<Piece>) {
        self.blocks.get(index).0.text.push_str(text);
        let thought = if thought { r#","thought":true"# } else { "" };
        let text = quoted(text);
        self.chunk(&format!("[{{\"text\":{text}{thought}}}]"), None, None, out);
    }

    /// The whole text of a block where no piece of it came, and its state, in a part without text.
    fn end_block(
        &mut self,
        index: u32,
        thought: bool,
        text: Option<&String>,
        state: Option<&Value>,
        out: &mut Vec<Piece>,
    ) {
        if let Some(text) = text.filter(|text| !text.is_empty())
            && self.blocks.get(index).0.text.is_empty()
        {
            self.say(index, thought, text, out);
        }
        if let Some(state) = state {
            let mut part = json!({"text": "", "thoughtSignature": opaque(state)});
            if thought {
                part["thought"] = json!(true);
            }
            self.part(&part, out);
        }
    }

    /// The part of a call; without an id where it is blank.
    fn call(&mut self, id: &str, name: &str, fields: &[(&str, Value)], out: &mut Vec<Piece>) {
        let mut call = Map::new();
        if !id.is_empty() {
            call.insert("id".to_owned(), json!(id));
        }
        call.insert("name".to_owned(), json!(name));
        call.extend(fields.iter().map(|(field, value)| ((*field).to_owned(), value.clone())));
        self.part(&json!({"functionCall": call}), out);
    }

    fn result(&mut self, id: &str, text: &str, outcome: &str, out: &mut Vec<Piece>) -> Result<(), String> {
        let part = match self.hosted.get(id).map(String::as_str) {
            None => {
                return Err(no_place(
                    "Gemini",
                    &format!("the result of {id:?}, which is no hosted call of this answer"),
                ));
            }
            Some(CODE) => json!({"codeExecutionResult": {"outcome": outcome, "output": text}}),
            Some(_) if outcome != "OUTCOME_OK" => {
                return Err(no_place("Gemini", &format!("a failure of the hosted call {id:?}")));
            }
            Some(name) => {
                json!({"toolResponse": {"toolType": name.to_uppercase(), "id": id, "response": {"output": text}}})
            }
        };
        self.part(&part, out);
        Ok(())
    }
}

impl Speak for Gemini {
    fn event(&mut self, event: &ProviderEvent, out: &mut Vec<Piece>) -> Result<(), String> {
        match event {
            ProviderEvent::StepStart
            | ProviderEvent::ResponseInfo(_)
            | ProviderEvent::TextStart(_)
            | ProviderEvent::ReasoningStart(_)
            | ProviderEvent::ToolInputDelta(_)
            | ProviderEvent::ToolInputEnd(_) => {}
            ProviderEvent::TextDelta(delta) => self.say(delta.index, false, &delta.text, out),
            ProviderEvent::TextEnd(end) => {
                self.end_block(end.index, false, end.text.as_ref(), end.state.as_ref(), out);
            }
            ProviderEvent::ReasoningDelta(delta) => self.say(delta.index, true, &delta.text, out),
            ProviderEvent::ReasoningEnd(end) => {
                self.end_block(end.index, true, end.text.as_ref(), end.state.as_ref(), out);
            }
            ProviderEvent::ToolInputStart(start) => {
                if !start.hosted && !self.whole.contains(&start.index) {
                    self.call(&start.id, &start.name, &[("willContinue", json!(true))], out);
                }
            }
            ProviderEvent::ToolInputMalformed(call) => {
                self.call(&call.id, &call.name, &[("args", json!(call.raw))], out);
            }
            ProviderEvent::ToolCall(call) if !call.hosted => {
                self.call(&call.id, &call.name, &[("args", call.input.clone())], out);
            }
            ProviderEvent::ToolCall(call) => {
                self.hosted.insert(call.id.clone(), call.name.clone());
                let part = match call.name.as_str() {
                    CODE => {
                        let field = |name: &str, otherwise: &str| {
                            call.input.get(name).cloned().unwrap_or_else(|| json!(otherwise))
                        };
                        json!({"executableCode": {"language": field("language", "PYTHON"), "code": field("code", "")}})
                    }
                    name => {
                        json!({"toolCall": {"toolType": name.to_uppercase(), "id": call.id, "args": call.input}})
                    }
                };
                self.part(&part, out);
            }
            ProviderEvent::HostedResult(result) => {
                let texts: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
                self.result(&result.id, &texts.join("\n"), "OUTCOME_OK", out)?;
            }
            ProviderEvent::HostedError(error) => self.result(&error.id, &error.message, "OUTCOME_FAILED", out)?,
            ProviderEvent::Media(block) => {
                let (mime, data) = (&block.media.mime, &block.media.data);
                self.part(
                    &match data {
                        MediaData::Base64(data) => json!({"inlineData": {"mimeType": mime, "data": data}}),
                        MediaData::Url(uri) => json!({"fileData": {"mimeType": mime, "fileUri": uri}}),
                        other => return Err(no_place("Gemini", &format!("media as {other:?}"))),
                    },
                    out,
                );
            }
            ProviderEvent::Annotation(note) => {
                let field = match note.kind.as_str() {
                    "source" => "groundingChunks",
                    "citation" => "groundingSupports",
                    _ => return Ok(()),
                };
                let chunk = json!({"candidates": [{"index": 0, "groundingMetadata": {field: [note.data]}}]});
                self.frame(&chunk.to_string(), out);
            }
            ProviderEvent::Alive if self.wire == Wire::GeminiArray => out.push(Piece::Bytes(b"\n".to_vec())),
            ProviderEvent::Alive => out.push(comment()),
            ProviderEvent::Finish(finish) => {
                self.chunk(r#"[{"text":""}]"#, Some(&reason(finish)?), finish.usage.as_ref(), out);
                if self.wire == Wire::GeminiArray {
                    out.push(Piece::Bytes(b"\n]\n".to_vec()));
                }
            }
            ProviderEvent::Error(error) => {
                let chunk = json!({"error": super::refusal::google_error(error)}).to_string();
                self.frame(&chunk, out);
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
        FinishReason::Stop | FinishReason::ToolCalls => Ok("STOP".to_owned()),
        FinishReason::Length => Ok("MAX_TOKENS".to_owned()),
        FinishReason::ContentFilter => Ok("SAFETY".to_owned()),
        FinishReason::Unknown => Ok("OTHER".to_owned()),
        other => Err(no_place("Gemini", &format!("the finish {other:?}"))),
    }
}

/// Usage as the wire has it: what is read from a cache is counted in, and reasoning is not.
fn counts(usage: &Usage) -> Value {
    let prompt = sum([usage.input, usage.cache_read]);
    let counts = [
        ("promptTokenCount", prompt),
        ("cachedContentTokenCount", usage.cache_read),
        ("candidatesTokenCount", usage.output),
        ("thoughtsTokenCount", usage.reasoning),
        ("totalTokenCount", sum([prompt, usage.output, usage.reasoning])),
    ];
    counts
        .into_iter()
        .filter_map(|(field, count)| Some((field.to_owned(), json!(count?))))
        .collect::<Map<_, _>>()
        .into()
}

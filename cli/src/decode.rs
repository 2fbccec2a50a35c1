//! `settled decode`: what a provider's raw response body says.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufWriter, Write};
use std::time::SystemTime;

use clap::ValueEnum;
use serde_json::{Value, json};
use settled_provider_api::{BlockEnd, Finish, ProviderError, ProviderEvent, Usage};
use settled_provider_wire::{Decoder, Tally};

use crate::args::{Decode, Protocol, Split};
use crate::data;
use crate::exit::{Exit, Failure};

/// The largest chunk of a random split: about what one packet has.
const LARGEST: u64 = 2_920;

/// Decodes a body and prints what it says; a failure that the body tells is printed, and is no failure of the command.
pub(crate) fn decode(args: &Decode) -> Result<Exit, Failure> {
    use {
        settled_provider_anthropic as anthropic, settled_provider_gemini as gemini, settled_provider_openai as openai,
    };

    let mut decoded = match args.protocol {
        Protocol::OpenaiChat => {
            let decoder = openai::chat::ChatDecoder::new(Default::default());
            body(args, decoder, openai::chat::ChatDecoder::usage, &|status, header, body| {
                openai::chat::response_error(&Default::default(), status, header, body, SystemTime::now())
            })
        }
        Protocol::OpenaiResponses => {
            let decoder = openai::responses::ResponsesDecoder::new(Default::default());
            body(args, decoder, openai::responses::ResponsesDecoder::usage, &|status, header, body| {
                openai::responses::response_error(&Default::default(), status, header, body, SystemTime::now())
            })
        }
        Protocol::AnthropicMessages => {
            let decoder = anthropic::MessagesDecoder::new(Default::default());
            body(args, decoder, anthropic::MessagesDecoder::usage, &|status, header, body| {
                anthropic::response_error(&Default::default(), status, header, body, SystemTime::now())
            })
        }
        Protocol::Gemini => {
            let decoder = gemini::GeminiDecoder::new(Default::default());
            body(args, decoder, gemini::GeminiDecoder::usage, &|status, header, body| {
                gemini::response_error(&Default::default(), status, header, body, SystemTime::now())
            })
        }
        other => Err(not_supported(other)),
    }?;
    let mut out = BufWriter::new(io::stdout().lock());
    if args.events {
        let failed = decoded.failed.take().map(ProviderEvent::Error);
        for event in decoded.events.iter().chain(&failed) {
            writeln!(out, "{}", event_json(event))?;
        }
    } else {
        writeln!(out, "{}", digest(&decoded))?;
    }
    out.flush()?;
    Ok(Exit::Completed)
}

/// The failure of a wire that has no decoder.
pub(crate) fn not_supported(protocol: Protocol) -> Failure {
    let name = protocol.to_possible_value();
    let name = name.as_ref().map_or("it", clap::builder::PossibleValue::get_name);
    Failure::usage(format!("{name} is not supported yet"))
}

/// What a body was decoded to.
struct Decoded {
    events: Vec<ProviderEvent>,
    /// The error instead of a further event.
    failed: Option<ProviderError>,
    usage: Option<Usage>,
    tally: Tally,
}

/// Reads the failure of a status from a body.
type Failing<'a> = &'a dyn Fn(u16, &dyn Fn(&str) -> Option<&'a str>, &[u8]) -> ProviderError;

fn body<'a, D: Decoder>(
    args: &'a Decode,
    mut decoder: D,
    usage: fn(&D) -> Option<Usage>,
    failing: Failing<'a>,
) -> Result<Decoded, Failure> {
    let bytes = data::read(&args.file)?;
    if !(200..300).contains(&args.status) {
        let header = |name: &str| args.content_type.as_deref().filter(|_| name == "content-type");
        let failed = Some(failing(args.status, &header, &bytes));
        return Ok(Decoded { events: Vec::new(), failed, usage: None, tally: Tally::default() });
    }
    let mut events = VecDeque::new();
    let mut rest = &bytes[..];
    let mut split = args.split;
    let mut pushed = Ok(());
    while !rest.is_empty() && pushed.is_ok() {
        let length = match &mut split {
            Split::Whole => rest.len(),
            Split::Bytes => 1,
            Split::Random(state) => next_length(state).min(rest.len()),
        };
        let (chunk, behind) = rest.split_at(length);
        pushed = decoder.push(chunk, &mut events);
        rest = behind;
    }
    let finished = pushed.and_then(|()| decoder.finish(&mut events));
    let (usage, tally) = (usage(&decoder), decoder.tally().clone());
    Ok(Decoded { events: events.into(), failed: finished.err(), usage, tally })
}

/// The length of the next chunk, from 1: the same for the same seed, on every machine (SplitMix64).
fn next_length(state: &mut u64) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((mixed ^ (mixed >> 31)) % LARGEST).unwrap_or_default() + 1
}

/// A call as its events tell it.
#[derive(Default)]
struct Call {
    id: String,
    name: String,
    input: Option<Value>,
    raw: String,
    hosted: bool,
    /// Whether its arguments were closed.
    complete: bool,
}

impl Call {
    fn named(&mut self, id: &str, name: &str, hosted: bool) -> &mut Self {
        (self.id, self.name, self.hosted) = (id.to_owned(), name.to_owned(), hosted);
        self
    }
}

/// What the events say in all; what has no value is null.
fn digest(decoded: &Decoded) -> Value {
    let (mut texts, mut reasonings) = (BTreeMap::<u32, String>::new(), BTreeMap::<u32, String>::new());
    let mut calls = BTreeMap::<u32, Call>::new();
    let mut finish: Option<&Finish> = None;
    let mut error = None;
    for event in &decoded.events {
        match event {
            ProviderEvent::TextDelta(delta) => texts.entry(delta.index).or_default().push_str(&delta.text),
            ProviderEvent::ReasoningDelta(delta) => reasonings.entry(delta.index).or_default().push_str(&delta.text),
            ProviderEvent::TextEnd(BlockEnd { index, text: Some(text), .. }) => {
                texts.insert(*index, text.clone());
            }
            ProviderEvent::ReasoningEnd(BlockEnd { index, text: Some(text), .. }) => {
                reasonings.insert(*index, text.clone());
            }
            ProviderEvent::ToolInputStart(start) => {
                calls.entry(start.index).or_default().named(&start.id, &start.name, start.hosted);
            }
            ProviderEvent::ToolInputDelta(delta) => calls.entry(delta.index).or_default().raw.push_str(&delta.text),
            ProviderEvent::ToolInputEnd(end) => calls.entry(end.index).or_default().complete = true,
            ProviderEvent::ToolInputMalformed(call) => {
                let known = calls.entry(call.index).or_default().named(&call.id, &call.name, call.hosted);
                (known.raw, known.complete) = (call.raw.clone(), true);
            }
            ProviderEvent::ToolCall(call) => {
                let known = calls.entry(call.index).or_default().named(&call.id, &call.name, call.hosted);
                (known.input, known.complete) = (Some(call.input.clone()), true);
            }
            ProviderEvent::Finish(finished) => finish = Some(finished),
            ProviderEvent::Error(failed) => error = error.or(Some(failed)),
            ProviderEvent::StepStart
            | ProviderEvent::ResponseInfo(_)
            | ProviderEvent::TextStart(_)
            | ProviderEvent::TextEnd(_)
            | ProviderEvent::ReasoningStart(_)
            | ProviderEvent::ReasoningEnd(_)
            | ProviderEvent::HostedResult(_)
            | ProviderEvent::HostedError(_)
            | ProviderEvent::Media(_)
            | ProviderEvent::Annotation(_)
            | ProviderEvent::Alive => {}
        }
    }
    let said = |text: String| Some(text).filter(|text| !text.is_empty());
    let joined = |texts: BTreeMap<u32, String>| said(texts.into_values().collect());
    let calls = calls.into_values().map(|call| {
        json!({
            "id": said(call.id), "name": call.name, "input": call.input, "raw": said(call.raw), "hosted": call.hosted,
            "complete": call.complete,
        })
    });
    let usage = finish.and_then(|finish| finish.usage).or(decoded.usage);
    json!({
        "text": joined(texts),
        "reasoning": joined(reasonings),
        "calls": calls.collect::<Vec<_>>(),
        "finish": finish.map(|finish| json!({"reason": finish.reason, "raw": finish.raw})),
        "usage": usage.as_ref().map(usage_json),
        "error": error.or(decoded.failed.as_ref()).map(error_json),
        "events": decoded.events.len(),
        "ignored_lines": decoded.tally.ignored,
        "unknown_lines": decoded.tally.unknown,
    })
}

fn usage_json(usage: &Usage) -> Value {
    json!({
        "input": usage.input, "output": usage.output, "reasoning": usage.reasoning, "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
    })
}

/// `retry_after` is in milliseconds, as in scenarios.
fn error_json(error: &ProviderError) -> Value {
    json!({
        "class": error.class, "status": error.status, "code": error.code, "message": error.message,
        "retry_after": error.retry.after_ms,
    })
}

fn event_json(event: &ProviderEvent) -> Value {
    match event {
        ProviderEvent::StepStart => json!({"type": "step.start"}),
        ProviderEvent::ResponseInfo(info) => {
            json!({"type": "response.info", "response_id": info.response_id, "served_model": info.served_model})
        }
        ProviderEvent::TextStart(start) => json!({"type": "text.start", "index": start.index, "state": start.state}),
        ProviderEvent::TextDelta(delta) => {
            json!({"type": "text.delta", "index": delta.index, "text": delta.text, "state": delta.state})
        }
        ProviderEvent::TextEnd(end) => {
            json!({"type": "text.end", "index": end.index, "text": end.text, "state": end.state})
        }
        ProviderEvent::ReasoningStart(start) => {
            json!({"type": "reasoning.start", "index": start.index, "state": start.state})
        }
        ProviderEvent::ReasoningDelta(delta) => {
            json!({"type": "reasoning.delta", "index": delta.index, "text": delta.text, "state": delta.state})
        }
        ProviderEvent::ReasoningEnd(end) => {
            json!({"type": "reasoning.end", "index": end.index, "text": end.text, "state": end.state})
        }
        ProviderEvent::ToolInputStart(start) => json!({
            "type": "tool.input.start", "index": start.index, "id": start.id, "name": start.name, "hosted": start.hosted,
        }),
        ProviderEvent::ToolInputDelta(delta) => {
            json!({"type": "tool.input.delta", "index": delta.index, "text": delta.text, "state": delta.state})
        }
        ProviderEvent::ToolInputEnd(end) => json!({"type": "tool.input.end", "index": end.index}),
        ProviderEvent::ToolInputMalformed(call) => json!({
            "type": "tool.input.malformed", "index": call.index, "id": call.id, "name": call.name, "hosted": call.hosted,
            "raw": call.raw,
        }),
        ProviderEvent::ToolCall(call) => json!({
            "type": "tool.call", "index": call.index, "id": call.id, "name": call.name, "input": call.input,
            "hosted": call.hosted, "state": call.state,
        }),
        ProviderEvent::HostedResult(result) => {
            json!({"type": "hosted.result", "id": result.id, "content": result.content, "state": result.state})
        }
        ProviderEvent::HostedError(error) => {
            json!({"type": "hosted.error", "id": error.id, "message": error.message, "state": error.state})
        }
        ProviderEvent::Media(block) => {
            json!({"type": "media", "index": block.index, "media": block.media, "state": block.state})
        }
        ProviderEvent::Annotation(note) => {
            json!({"type": "annotation", "index": note.index, "kind": note.kind, "data": note.data})
        }
        ProviderEvent::Alive => json!({"type": "alive"}),
        ProviderEvent::Finish(finish) => json!({
            "type": "finish", "reason": finish.reason, "raw": finish.raw, "usage": finish.usage.as_ref().map(usage_json),
            "state": finish.state,
        }),
        ProviderEvent::Error(error) => json!({"type": "error", "error": error_json(error)}),
    }
}

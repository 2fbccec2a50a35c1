//! Logs and requests as a scenario's result shows them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use settled_ledger::Event;
use settled_provider_api::{AssistantPart, Content, FinishReason, Message, Request, RequestKind, ToolChoice, Usage};
use settled_tools_api::{CallKey, MessageId};

use crate::names::Names;

/// All text of some content.
pub(crate) fn text(content: &[Content]) -> String {
    content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
}

pub(super) fn usage(usage: Option<&Usage>) -> Value {
    usage.map_or(Value::Null, |usage| {
        json!({
            "input": usage.input, "output": usage.output, "reasoning": usage.reasoning,
            "cache_read": usage.cache_read, "cache_write": usage.cache_write,
        })
    })
}

/// A durable event; `None` for those that a result leaves out.
pub(super) fn event(names: &Names, event: &Event) -> Option<Value> {
    let message = event.message().and_then(|message| names.message(message));
    let call = event.call().map(|call| names.label(call));
    let mut shown = match event {
        Event::SessionCreated(_)
        | Event::AgentSelected(_)
        | Event::ModelSelected(_)
        | Event::ExecutionStarted(_)
        | Event::ExecutionSettled(_) => return None,
        Event::InputPromoted(event) => json!({"text": text(&event.content), "delivery": event.delivery.name()}),
        Event::Synthetic(event) => json!({"text": event.text}),
        Event::InstructionsUpdated(event) => json!({"changed": event.changed}),
        Event::StepStarted(event) => json!({
            "message": message,
            "attempt": event.attempt,
            "continued_from": event.continues.and_then(|message| names.message(message)),
        }),
        Event::TextStarted(event) => json!({"message": message, "ordinal": event.ordinal}),
        Event::ReasoningStarted(event) => json!({"message": message, "ordinal": event.ordinal}),
        Event::TextEnded(event) => json!({
            "message": message, "ordinal": event.ordinal, "text": event.text, "state": event.state.is_some(),
        }),
        Event::ReasoningEnded(event) => json!({
            "message": message, "ordinal": event.ordinal, "text": event.text, "state": event.state.is_some(),
        }),
        Event::MediaAdded(event) => json!({"message": message, "media": event.media.mime}),
        Event::AnnotationAdded(event) => json!({"message": message, "kind": event.kind, "data": event.data}),
        Event::ToolInputStarted(event) => {
            json!({"message": message, "call": call, "name": event.name, "hosted": event.hosted})
        }
        Event::ToolInputEnded(event) => json!({"message": message, "call": call, "text": event.text}),
        Event::ToolCalled(event) => json!({
            "message": message, "call": call, "name": event.name, "input": event.input, "hosted": event.hosted,
            "replay": event.replay.map(settled_tools_api::ReplayClass::name),
        }),
        Event::ToolStarted(_) => json!({"call": call}),
        Event::ToolNoted(event) => json!({"call": call, "note": event.note}),
        Event::ToolSuccess(event) => {
            json!({"call": call, "text": text(&event.content), "media": media(&event.content)})
        }
        Event::ToolFailed(event) => json!({
            "call": call, "cause": event.cause.name(), "detail": event.detail.map(settled_ledger::ArgumentsFault::name),
            "may_have_acted": event.may_have_acted, "text": text(&event.content),
        }),
        Event::ToolUnknown(event) => json!({"call": call, "text": text(&event.content)}),
        Event::InteractionRequested(event) => json!({"call": call, "kind": event.kind.name(), "text": event.text}),
        Event::InteractionAnswered(event) => json!({"call": call, "answer": event.answer.name(), "text": event.text}),
        Event::InterruptRecorded(event) => json!({"message": message, "by": event.by.name()}),
        Event::StepStreamed(event) => json!({
            "message": message, "exit": event.exit.name(), "finish": event.finish.map(FinishReason::name),
            "raw_finish": event.raw_finish, "usage": usage(event.usage.as_ref()),
        }),
        Event::StepEnded(event) => json!({
            "message": message, "finish": event.finish.map(FinishReason::name), "raw_finish": event.raw_finish,
            "usage": usage(event.usage.as_ref()),
        }),
        Event::StepFailed(event) => json!({
            "message": message, "error": event.error.class.name(), "settlement": event.settlement.name(),
            "usage": usage(event.usage.as_ref()),
        }),
        Event::RetryScheduled(event) => json!({
            "message": message, "attempt": event.attempt, "delay": event.delay_ms, "error": event.error.class.name(),
        }),
        Event::CompactionStarted(event) => json!({"reason": event.reason.name()}),
        Event::CompactionEnded(event) => json!({"reason": event.reason.name(), "text": event.text}),
        Event::CompactionFailed(event) => {
            json!({"reason": event.reason.name(), "error": event.error.class.name()})
        }
        _ => json!({}),
    };
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("type".to_owned(), Value::from(event.kind()));
    }
    Some(shown)
}

/// The media types of some content; null where there are none.
fn media(content: &[Content]) -> Value {
    let types: Vec<&str> = content
        .iter()
        .filter_map(|piece| match piece {
            Content::Media(media) => Some(media.mime.as_str()),
            Content::Text(_) => None,
        })
        .collect();
    if types.is_empty() { Value::Null } else { json!(types) }
}

/// The steps of a log that have settled or wait for a person, in their order.
pub(super) fn steps(names: &Names, events: &[Event]) -> Vec<Value> {
    #[derive(Default)]
    struct Step {
        attempts: u64,
        continued_from: Option<u64>,
        last: bool,
        answered: bool,
        hosted: BTreeSet<CallKey>,
        waiting: BTreeSet<CallKey>,
        end: Option<Value>,
    }
    let mut order: Vec<MessageId> = Vec::new();
    let mut steps: BTreeMap<MessageId, Step> = BTreeMap::new();
    for event in events {
        let Some(message) = event.message() else { continue };
        let step = steps.entry(message).or_default();
        match event {
            Event::StepStarted(started) => {
                if !order.contains(&message) {
                    order.push(message);
                }
                step.attempts += 1;
                step.last = started.last;
                step.continued_from = started.continues.and_then(|message| names.message(message));
            }
            Event::ToolInputStarted(started) if started.hosted => {
                step.hosted.extend(event.call());
            }
            Event::ToolSuccess(_) | Event::ToolFailed(_) | Event::ToolUnknown(_) => {
                step.answered |= event.call().is_some_and(|call| !step.hosted.contains(&call));
                step.waiting.retain(|call| Some(*call) != event.call());
            }
            Event::InteractionRequested(_) => step.waiting.extend(event.call()),
            Event::InteractionAnswered(_) => step.waiting.retain(|call| Some(*call) != event.call()),
            Event::StepEnded(ended) => {
                let continues = (step.answered && !step.last) || ended.finish == Some(FinishReason::Pause);
                step.end = Some(json!({
                    "settlement": "clean", "question_dismissed": false, "terminal": event.kind(), "continues": continues,
                }));
            }
            Event::StepFailed(failed) => {
                step.end = Some(json!({
                    "settlement": failed.settlement.name(), "question_dismissed": failed.settlement.question_dismissed(),
                    "terminal": event.kind(), "continues": false,
                }));
            }
            _ => {}
        }
    }
    let row = |message: &MessageId| {
        let step = steps.get(message)?;
        let parked = json!({"settlement": null, "question_dismissed": false, "terminal": null, "continues": null});
        let mut row = step.end.clone().or_else(|| (!step.waiting.is_empty()).then_some(parked))?;
        let fields = row.as_object_mut()?;
        fields.insert("message".to_owned(), json!(names.message(*message)));
        fields.insert("attempts".to_owned(), json!(step.attempts));
        fields.insert("continued_from".to_owned(), json!(step.continued_from));
        Some(row)
    };
    order.iter().filter_map(row).collect()
}

/// The calls of a log that wait for a person.
pub(super) fn waiting(names: &Names, events: &[Event]) -> Vec<Value> {
    let mut waiting: Vec<(CallKey, Value)> = Vec::new();
    for event in events {
        let Some(call) = event.call() else { continue };
        match event {
            Event::InteractionRequested(request) => {
                waiting.push((call, json!({"call": names.label(call), "kind": request.kind.name()})));
            }
            Event::InteractionAnswered(_) | Event::ToolSuccess(_) | Event::ToolFailed(_) | Event::ToolUnknown(_) => {
                waiting.retain(|(open, _)| *open != call);
            }
            _ => {}
        }
    }
    waiting.into_iter().map(|(_, shown)| shown).collect()
}

pub(super) fn request(names: &Names, request: &Request) -> Value {
    let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    let system: Vec<&str> = request.system.iter().map(AsRef::as_ref).collect();
    let messages: Vec<Value> = request.messages.iter().map(|message| self::message(names, message)).collect();
    json!({
        "kind": match request.purpose.kind {
            RequestKind::Summary => "summary",
            _ => "step",
        },
        "model": request.model.model,
        "system": system,
        "tools": tools,
        "tool_choice": match &request.tool_choice {
            ToolChoice::Auto => json!("auto"),
            ToolChoice::None => json!("none"),
            ToolChoice::Required => json!("required"),
            ToolChoice::Tool(name) => json!({"tool": name}),
        },
        "messages": messages,
    })
}

fn message(names: &Names, message: &Message) -> Value {
    let (role, parts) = match message {
        Message::System(text) => ("system", vec![json!({"text": text})]),
        Message::User(content) => ("user", content.iter().map(piece).collect()),
        Message::Assistant(parts) => ("assistant", parts.iter().map(|part| self::part(names, part)).collect()),
        Message::Tool(result) => {
            let mut shown =
                json!({"result": names.label(result.key), "error": result.error, "text": text(&result.content)});
            if let (Some(fields), media @ Value::Array(_)) = (shown.as_object_mut(), media(&result.content)) {
                fields.insert("media".to_owned(), media);
            }
            ("tool", vec![shown])
        }
    };
    json!({"role": role, "parts": parts})
}

fn piece(content: &Content) -> Value {
    match content {
        Content::Text(text) => json!({"text": text}),
        Content::Media(media) => json!({"media": media.mime}),
    }
}

fn part(names: &Names, part: &AssistantPart) -> Value {
    match part {
        AssistantPart::Text(text) => json!({"text": text.text}),
        AssistantPart::Reasoning(text) => json!({"reasoning": text.text, "state": text.state.is_some()}),
        AssistantPart::Call(call) => {
            let kind = if call.hosted { "hosted" } else { "call" };
            json!({kind: names.label(call.key), "name": call.name, "input": call.input})
        }
        AssistantPart::HostedResult(result) => {
            json!({"hosted_result": names.label(result.key), "error": result.error, "text": text(&result.content)})
        }
        AssistantPart::Media(media) => json!({"media": media.mime}),
    }
}

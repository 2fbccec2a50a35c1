//! Calls that the provider runs itself: what of their items is name, input and result.

use serde_json::{Map, Value, json};
use settled_provider_api::{Content, HostedError, HostedResult, Media, ProviderEvent};

/// What stands for a result that cannot be shown.
const UNSHOWN: &str = "(the result went to the model alone)";

/// Fields of an item in which its result lies.
const RESULTS: [&str; 7] = ["output", "outputs", "results", "result", "action", "tools", "error"];

/// Fields of a result that may be read, in this order.
const READABLE: [&str; 13] = [
    "filename",
    "title",
    "name",
    "server_label",
    "url",
    "text",
    "logs",
    "stdout",
    "stderr",
    "output",
    "message",
    "content",
    "sources",
];

/// Whether an item of a type is a call that the provider runs.
pub(super) fn is_call(kind: &str) -> bool {
    kind.ends_with("_call") || matches!(kind, "mcp_list_tools" | "mcp_approval_request" | "program")
}

/// The name of a tool by the type of its call; the one that the call itself names where the type says nothing.
pub(super) fn name(kind: &str, item: &Map<String, Value>) -> String {
    let own = item.get("name").and_then(Value::as_str).filter(|name| !name.trim().is_empty());
    match kind {
        "mcp_call" | "custom_tool_call" | "mcp_approval_request" => own.unwrap_or(kind).to_owned(),
        _ => kind.strip_suffix("_call").unwrap_or(kind).to_owned(),
    }
}

/// What the model asked for, as an object.
pub(super) fn input(item: &Map<String, Value>) -> Value {
    let object = |field: &str| match item.get(field) {
        Some(Value::String(text)) => serde_json::from_str::<Value>(text).ok().filter(Value::is_object),
        Some(value @ Value::Object(_)) => Some(value.clone()),
        _ => None,
    };
    if let Some(input) = ["arguments", "action", "operation"].into_iter().find_map(object) {
        return input;
    }
    let fields = ["arguments", "code", "input", "queries", "revised_prompt", "server_label"];
    let given = fields.into_iter().filter_map(|field| Some((field.to_owned(), item.get(field)?.clone())));
    Value::Object(given.filter(|(_, value)| !value.is_null()).collect())
}

/// The result of a call, from the item that has it in it: what can be shown of it, and its state.
pub(super) fn result(id: &str, item: &Map<String, Value>, state: Value) -> ProviderEvent {
    let status = item.get("status").and_then(Value::as_str).unwrap_or_default();
    let error = item.get("error").is_some_and(|error| !error.is_null());
    if error || matches!(status, "failed" | "incomplete" | "cancelled") {
        let mut message = String::new();
        read(item.get("error").unwrap_or(&Value::Null), &mut message);
        let message = if message.is_empty() { format!("the call ended as {status:?}") } else { message };
        return ProviderEvent::HostedError(HostedError::new(id, message, Some(state)));
    }
    ProviderEvent::HostedResult(HostedResult::new(id, vec![shown(item)], Some(state)))
}

/// An item as it goes back, without what its parts in the history have: the picture, which is the result's content.
pub(super) fn kept(mut item: Map<String, Value>) -> Map<String, Value> {
    if item.get("type").and_then(Value::as_str) == Some("image_generation_call") {
        item.remove("result");
    }
    item
}

/// What a person, or another model, may read or see of a result.
fn shown(item: &Map<String, Value>) -> Content {
    if let (Some("image_generation_call"), Some(Value::String(data))) =
        (item.get("type").and_then(Value::as_str), item.get("result"))
    {
        let format = item.get("output_format").and_then(Value::as_str).unwrap_or("png");
        return Content::Media(Media::base64(format!("image/{format}"), data.as_str()));
    }
    let mut text = String::new();
    for field in RESULTS {
        match item.get(field) {
            // What was asked for is no result; where it was found is.
            Some(Value::Object(action)) if field == "action" => {
                read(action.get("sources").unwrap_or(&Value::Null), &mut text);
            }
            Some(value) => read(value, &mut text),
            None => {}
        }
    }
    Content::text(if text.is_empty() { UNSHOWN } else { text.as_str() })
}

/// Adds what can be read of a value, a line for each piece.
fn read(value: &Value, text: &mut String) {
    match value {
        Value::String(line) if !line.trim().is_empty() => {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(line.trim_end());
        }
        Value::Array(list) => list.iter().for_each(|value| read(value, text)),
        Value::Object(fields) => {
            READABLE.iter().filter_map(|field| fields.get(*field)).for_each(|value| read(value, text))
        }
        _ => {}
    }
}

/// The failure of a call that nobody has run.
pub(super) fn not_run(id: &str, kind: &str) -> ProviderEvent {
    let message = format!("a call of type {kind} is for the client to run, and this client does not run such calls");
    ProviderEvent::HostedError(HostedError::new(id, message, None))
}

/// The state of a result that lies in the item of its call.
pub(super) fn within() -> Value {
    json!({"within": true})
}

//! Lowering: requests as bodies, whole values.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use serde_json::{Map, Value, json};
use settled_provider_api::{
    AssistantPart, CallKey, CallPart, Content, HostedResultPart, Media, Message, MessageId, ModelRef, Options, Purpose,
    Request, ResponseFormat, SessionId, TextPart, ToolChoice, ToolDefinition, ToolResult,
};
use settled_provider_openai::chat::{Dialect, lower};

fn request(messages: Vec<Message>) -> Request {
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(1));
    let mut request = Request::new(ModelRef::new("p", "m"), purpose);
    request.messages = messages.into_iter().map(Arc::new).collect();
    request
}

fn key(ordinal: u32) -> CallKey {
    CallKey { step: MessageId::from_u128(1), ordinal }
}

fn call(ordinal: u32, id: &str, input: Value) -> CallPart {
    CallPart::new(key(ordinal), id, "f", input)
}

fn result(ordinal: u32, id: &str, content: Vec<Content>) -> Message {
    Message::Tool(ToolResult::new(key(ordinal), id, "f", false, content))
}

fn text(text: &str) -> AssistantPart {
    AssistantPart::Text(TextPart::new(text))
}

fn body(request: &Request, dialect: &str) -> Value {
    let dialect = Dialect::named(dialect).unwrap();
    let body = lower(request, &dialect).unwrap();
    assert_eq!(lower(request, &dialect).unwrap().to_string(), body.to_string(), "the same text each time");
    body
}

/// The messages that these become in a dialect.
fn check_in(dialect: &str, messages: Vec<Message>, expected: Value) {
    assert_eq!(body(&request(messages), dialect)["messages"], expected);
}

fn check(messages: Vec<Message>, expected: Value) {
    check_in("compatible", messages, expected);
}

#[test]
fn a_plain_request() {
    let mut request = request(vec![Message::user("hello")]);
    request.system = Arc::from([Arc::from("one"), Arc::from("two")]);
    assert_eq!(
        body(&request, "compatible"),
        json!({"model": "m", "stream": true, "stream_options": {"include_usage": true},
            "messages": [{"role": "system", "content": "one\n\ntwo"}, {"role": "user", "content": "hello"}]})
    );
    assert_eq!(
        body(&request, "mistral"),
        json!({"model": "m", "stream": true,
            "messages": [{"role": "system", "content": "one\n\ntwo"}, {"role": "user", "content": "hello"}]})
    );
}

#[test]
fn settings() {
    let mut request = request(vec![]);
    let schema = json!({"type": "object"});
    request.tools = Arc::from([ToolDefinition::new("f", "does f", schema.clone())]);
    request.max_output = Some(100);
    let mut options = Options::default();
    options.temperature = Some(0.5);
    options.top_p = Some(0.9);
    options.stop = vec!["x".to_owned()];
    options.seed = Some(7);
    options.response_format =
        Some(ResponseFormat::JsonSchema { name: "n".to_owned(), schema: schema.clone(), strict: true });
    options.parallel_tool_calls = Some(false);
    options.reasoning_effort = Some("low".to_owned());
    options.service_tier = Some("flex".to_owned());
    options.raw = Map::from_iter([("top_p".to_owned(), json!(0.1)), ("logit_bias".to_owned(), json!({}))]);
    request.options = Arc::new(options.clone());
    let common = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true}, "messages": [],
        "tools": [{"type": "function", "function": {"name": "f", "description": "does f", "parameters": schema}}],
        "parallel_tool_calls": false, "temperature": 0.5, "top_p": 0.1, "stop": ["x"], "logit_bias": {}, "service_tier": "flex",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": true}},
    });
    let with = |more: Value| {
        let mut body = common.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    assert_eq!(body(&request, "compatible"), with(json!({"max_tokens": 100, "seed": 7, "reasoning_effort": "low"})));
    assert_eq!(
        body(&request, "openai"),
        with(json!({"max_completion_tokens": 100, "seed": 7, "reasoning_effort": "low", "prompt_cache_key": "ses_1"}))
    );
    assert_eq!(
        body(&request, "openrouter"),
        with(json!({"max_tokens": 100, "seed": 7, "reasoning": {"effort": "low"}}))
    );
    options.response_format = Some(ResponseFormat::JsonObject);
    request.options = Arc::new(options);
    assert_eq!(body(&request, "mistral")["response_format"], json!({"type": "json_object"}));
    assert_eq!(body(&request, "mistral")["random_seed"], json!(7));
}

#[test]
fn choices_of_tools() {
    let mut request = request(vec![]);
    let choice = |request: &Request, dialect: &str| body(request, dialect).get("tool_choice").cloned();
    request.tool_choice = ToolChoice::None;
    assert_eq!(choice(&request, "compatible"), None);
    for required in [ToolChoice::Required, ToolChoice::Tool("f".to_owned())] {
        request.tool_choice = required;
        let error = lower(&request, &Dialect::default()).unwrap_err();
        assert_eq!(error.to_string(), "unsupported: a call is required, and there is no tool");
    }
    request.tools = Arc::from([ToolDefinition::new("f", "does f", json!({}))]);
    let mut check = |wanted: ToolChoice, dialect: &str, expected: Option<Value>| {
        request.tool_choice = wanted;
        assert_eq!(choice(&request, dialect), expected);
    };
    check(ToolChoice::Auto, "compatible", None);
    check(ToolChoice::None, "compatible", Some(json!("none")));
    check(ToolChoice::Required, "compatible", Some(json!("required")));
    check(ToolChoice::Required, "mistral", Some(json!("any")));
    let named = json!({"type": "function", "function": {"name": "f"}});
    check(ToolChoice::Tool("f".to_owned()), "compatible", Some(named));
}

#[test]
fn a_tool_loop() {
    check(
        vec![
            Message::user("do"),
            Message::Assistant(vec![
                text("on it"),
                AssistantPart::Call(call(0, "a", json!({"y": 1, "x": "é\""}))),
                AssistantPart::Call(call(1, "b", json!({}))),
            ]),
            result(0, "a", vec!["one".into(), "two".into()]),
            result(1, "b", vec!["three".into()]),
            Message::System("mind".to_owned()),
            Message::Assistant(vec![text("done"), text(".")]),
        ],
        json!([
            {"role": "user", "content": "do"},
            {"role": "assistant", "content": "on it", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\":\"é\\\"\",\"y\":1}"}},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "one\n\ntwo"},
            {"role": "tool", "tool_call_id": "b", "content": "three"},
            {"role": "system", "content": "mind"},
            {"role": "assistant", "content": "done."},
        ]),
    );
    check(
        vec![Message::Assistant(vec![AssistantPart::Call(call(0, "a", json!({})))])],
        json!([{"role": "assistant", "content": null, "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]),
    );
}

#[test]
fn media() {
    let mut pdf = Media::base64("application/pdf", "UERG");
    pdf.name = Some("a.pdf".to_owned());
    check(
        vec![Message::User(vec![
            "look".into(),
            Content::Media(Media::base64("image/png", "AAAA")),
            Content::Media(Media::url("image/jpeg", "http://x/y.jpg")),
            Content::Media(pdf),
            Content::Media(Media::base64("audio/mpeg", "BBBB")),
        ])],
        json!([{"role": "user", "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "image_url", "image_url": {"url": "http://x/y.jpg"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,UERG"}},
            {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "mp3"}}]}]),
    );
    // A result has text alone: what a tool shows follows behind the last result.
    check(
        vec![
            Message::Assistant(vec![
                AssistantPart::Call(call(0, "a", json!({}))),
                AssistantPart::Call(call(1, "b", json!({}))),
            ]),
            result(0, "a", vec![Content::Media(Media::base64("image/png", "AAAA"))]),
            result(1, "b", vec!["two".into()]),
            Message::user("and?"),
        ],
        json!([
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "(media: see below)"},
            {"role": "tool", "tool_call_id": "b", "content": "two"},
            {"role": "user", "content": [
                {"type": "text", "text": "Media from the result of f (a):"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
            {"role": "user", "content": "and?"},
        ]),
    );
    for media in [
        Media::url("application/pdf", "http://x"),
        Media::base64("video/mp4", "A"),
        Media::base64("audio/flac", "A"),
        Media::base64("nonsense", "A"),
    ] {
        let error =
            lower(&request(vec![Message::User(vec![Content::Media(media.clone())])]), &Dialect::default()).unwrap_err();
        let expected =
            format!("unsupported: media of type {} by URL or kind has no place in Chat Completions", media.mime);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn reasoning_goes_back_as_the_dialect_wants_it() {
    let details = json!([{"type": "reasoning.text", "text": "hm", "signature": "s"}]);
    let reasoning = |state: Option<Value>| AssistantPart::Reasoning(TextPart::new("hm").state(state));
    let state = Some(json!({"reasoning_details": details}));
    let said = |state: &Option<Value>| vec![Message::Assistant(vec![reasoning(state.clone()), text("a")])];
    let called = vec![Message::Assistant(vec![reasoning(None), AssistantPart::Call(call(0, "a", json!({})))])];
    let calls = json!([{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
    check_in("compatible", said(&state), json!([{"role": "assistant", "content": "a"}]));
    check_in("groq", said(&None), json!([{"role": "assistant", "content": "a", "reasoning": "hm"}]));
    check_in("deepseek", said(&None), json!([{"role": "assistant", "content": "a"}]));
    check_in(
        "deepseek",
        called,
        json!([{"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": calls}]),
    );
    check_in("openrouter", said(&state), json!([{"role": "assistant", "content": "a", "reasoning_details": details}]));
    check_in("openrouter", said(&None), json!([{"role": "assistant", "content": "a", "reasoning": "hm"}]));
    let thinking = json!({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]});
    check_in(
        "mistral",
        said(&None),
        json!([{"role": "assistant", "content": [thinking, {"type": "text", "text": "a"}]}]),
    );
    // Alone it makes no message where it has no place.
    check(vec![Message::Assistant(vec![reasoning(None)])], json!([]));
}

#[test]
fn what_other_wires_left_behind() {
    let refusal = AssistantPart::Text(TextPart::new("No.").state(Some(json!({"refusal": true}))));
    check(vec![Message::Assistant(vec![refusal])], json!([{"role": "assistant", "content": null, "refusal": "No."}]));
    let picture = AssistantPart::Media(Media::base64("image/png", "AAAA"));
    check(
        vec![Message::Assistant(vec![picture])],
        json!([{"role": "assistant", "content": "[image/png made by the model]"}]),
    );
    check(
        vec![
            Message::Assistant(vec![
                text("before"),
                AssistantPart::Call(call(0, "h", json!({"q": 1})).hosted()),
                AssistantPart::HostedResult(HostedResultPart::new(key(0), "h", "f", vec!["found".into()])),
                text("behind"),
                AssistantPart::Call(call(1, "l", json!({})).hosted()),
                AssistantPart::Call(call(2, "a", json!({}))),
            ]),
            result(2, "a", vec!["x".into()]),
        ],
        json!([
            {"role": "assistant", "content": "before", "tool_calls": [
                {"id": "h", "type": "function", "function": {"name": "f", "arguments": "{\"q\":1}"}}]},
            {"role": "tool", "tool_call_id": "h", "content": "found"},
            {"role": "assistant", "content": "behind", "tool_calls": [
                {"id": "l", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "l", "content": "(the result is not known)"},
            {"role": "tool", "tool_call_id": "a", "content": "x"},
        ]),
    );
}

//! Lowering: requests as bodies, whole values.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use serde_json::{Map, Value, json};
use settled_provider_api::{
    AssistantPart, CallKey, CallPart, Content, HostedResultPart, Media, Message, MessageId, ModelRef, Options, Purpose,
    Request, ResponseFormat, SessionId, TextPart, ToolChoice, ToolDefinition, ToolResult,
};
use settled_provider_gemini::{Dialect, lower};

const OLD: &str = "gemini-2.5-flash";
const NEW: &str = "gemini-3-pro-preview";

fn request(model: &str, messages: Vec<Message>) -> Request {
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(1));
    let mut request = Request::new(ModelRef::new("p", model), purpose);
    request.messages = messages.into_iter().map(Arc::new).collect();
    request
}

fn body(request: &Request, dialect: &str) -> Value {
    let dialect = Dialect::named(dialect).unwrap();
    let body = lower(request, &dialect).unwrap();
    assert_eq!(lower(request, &dialect).unwrap().to_string(), body.to_string(), "the same text each time");
    body
}

/// The contents that these messages become for a model.
fn check_for(model: &str, messages: Vec<Message>, expected: Value) {
    assert_eq!(body(&request(model, messages), "gemini")["contents"], expected);
}

fn check(messages: Vec<Message>, expected: Value) {
    check_for(OLD, messages.clone(), expected.clone());
    check_for(NEW, messages, expected);
}

fn key(ordinal: u32) -> CallKey {
    CallKey { step: MessageId::from_u128(1), ordinal }
}

fn call(ordinal: u32, state: Value) -> AssistantPart {
    let call = CallPart::new(key(ordinal), format!("call_{ordinal}"), "f", json!({"n": ordinal}));
    AssistantPart::Call(call.state(Some(state).filter(|state| !state.is_null())))
}

fn result(ordinal: u32, content: Vec<Content>) -> Message {
    Message::Tool(ToolResult::new(key(ordinal), format!("call_{ordinal}"), "f", false, content))
}

fn text(text: &str) -> AssistantPart {
    AssistantPart::Text(TextPart::new(text))
}

fn signed(text: &str, signature: &str) -> TextPart {
    TextPart::new(text).state(Some(json!({"thoughtSignature": signature})))
}

#[test]
fn a_plain_request() {
    let mut request = request(OLD, vec![Message::user("hello")]);
    let contents = json!([{"role": "user", "parts": [{"text": "hello"}]}]);
    assert_eq!(body(&request, "vertex"), json!({"contents": contents}));
    request.system = Arc::from([Arc::from("one"), Arc::from("two")]);
    assert_eq!(
        body(&request, "gemini"),
        json!({"systemInstruction": {"parts": [{"text": "one"}, {"text": "two"}]}, "contents": contents})
    );
}

#[test]
fn settings() {
    let mut request = request(OLD, vec![]);
    request.max_output = Some(100);
    let mut options = Options::default();
    options.temperature = Some(0.5);
    options.top_p = Some(0.9);
    options.stop = vec!["x".to_owned()];
    options.seed = Some(7);
    options.service_tier = Some("flex".to_owned());
    options.parallel_tool_calls = Some(true);
    options.reasoning_effort = Some("low".to_owned());
    options.response_format = Some(ResponseFormat::JsonObject);
    options.raw = Map::from_iter([
        ("generationConfig".to_owned(), json!({"topP": 0.1, "topK": 3, "thinkingConfig": {"includeThoughts": false}})),
        ("tools".to_owned(), json!([{"codeExecution": {}}])),
        ("safetySettings".to_owned(), json!([])),
        ("cachedContent".to_owned(), json!("cachedContents/1")),
    ]);
    request.options = Arc::new(options.clone());
    let mut expected = json!({
        "contents": [], "serviceTier": "flex", "safetySettings": [], "cachedContent": "cachedContents/1",
        "tools": [{"codeExecution": {}}],
        "generationConfig": {"temperature": 0.5, "topP": 0.1, "topK": 3, "stopSequences": ["x"], "seed": 7,
            "maxOutputTokens": 100, "responseMimeType": "application/json",
            "thinkingConfig": {"includeThoughts": false, "thinkingLevel": "low"}},
    });
    assert_eq!(body(&request, "gemini"), expected);
    // On Vertex the tier is a header.
    expected.as_object_mut().unwrap().remove("serviceTier");
    assert_eq!(body(&request, "vertex"), expected);
    // Tools of the server's stand beside ours.
    request.tools = Arc::from([ToolDefinition::new("f", "does f", json!({"type": "object"}))]);
    assert_eq!(
        body(&request, "gemini")["tools"],
        json!([{"functionDeclarations": [{"name": "f", "description": "does f"}]}, {"codeExecution": {}}])
    );
    let mut thinking = |effort: &str| {
        options.raw = Map::new();
        options.reasoning_effort = Some(effort.to_owned());
        request.options = Arc::new(options.clone());
        body(&request, "gemini")["generationConfig"]["thinkingConfig"].clone()
    };
    assert_eq!(thinking("high"), json!({"includeThoughts": true, "thinkingLevel": "high"}));
    assert_eq!(thinking("1024"), json!({"includeThoughts": true, "thinkingBudget": 1024}));
    assert_eq!(thinking("-1"), json!({"includeThoughts": true, "thinkingBudget": -1}));
    assert_eq!(thinking("0"), json!({"thinkingBudget": 0}));
    options.parallel_tool_calls = Some(false);
    request.options = Arc::new(options);
    assert_eq!(
        lower(&request, &Dialect::default()).unwrap_err().to_string(),
        "unsupported: Gemini cannot be told to call one tool at a time: leave parallel_tool_calls out"
    );
}

#[test]
fn choices_of_tools() {
    let mut request = request(OLD, vec![]);
    let choice = |request: &Request| body(request, "gemini").get("toolConfig").cloned();
    request.tool_choice = ToolChoice::None;
    assert_eq!(choice(&request), None);
    for required in [ToolChoice::Required, ToolChoice::Tool("f".to_owned())] {
        request.tool_choice = required;
        let error = lower(&request, &Dialect::default()).unwrap_err();
        assert_eq!(error.to_string(), "unsupported: a call is required, and there is no tool");
    }
    request.tools = Arc::from([ToolDefinition::new("f", "does f", json!({}))]);
    let mut check = |wanted: ToolChoice, expected: Option<Value>| {
        request.tool_choice = wanted;
        assert_eq!(choice(&request), expected.map(|config| json!({"functionCallingConfig": config})));
    };
    check(ToolChoice::Auto, None);
    check(ToolChoice::None, Some(json!({"mode": "NONE"})));
    check(ToolChoice::Required, Some(json!({"mode": "ANY"})));
    check(ToolChoice::Tool("f".to_owned()), Some(json!({"mode": "ANY", "allowedFunctionNames": ["f"]})));
}

#[test]
fn a_tool_loop() {
    let signature = |ordinal: u32| json!({"thoughtSignature": format!("s{ordinal}")});
    check(
        vec![
            Message::user("do"),
            Message::user("it"),
            Message::Assistant(vec![
                AssistantPart::Reasoning(TextPart::new("hm")),
                AssistantPart::Reasoning(signed("aha", "t")),
                text("on it"),
                AssistantPart::Text(signed("", "u")),
                call(0, signature(0)),
                call(1, Value::Null),
            ]),
            result(0, vec!["one".into(), "two".into()]),
            Message::Tool(ToolResult::new(key(1), "call_1", "f", true, vec!["no".into()])),
            Message::user("mind"),
            Message::Assistant(vec![call(2, signature(2))]),
            result(2, vec!["three".into()]),
            Message::Assistant(vec![text("done")]),
            Message::Assistant(vec![text("."), text("")]),
        ],
        json!([
            {"role": "user", "parts": [{"text": "do"}, {"text": "it"}]},
            {"role": "model", "parts": [
                {"text": "aha", "thought": true, "thoughtSignature": "t"},
                {"text": "on it"},
                {"text": "", "thoughtSignature": "u"},
                {"functionCall": {"name": "f", "args": {"n": 0}}, "thoughtSignature": "s0"},
                {"functionCall": {"name": "f", "args": {"n": 1}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "f", "response": {"output": "one\n\ntwo"}}},
                {"functionResponse": {"name": "f", "response": {"error": "no"}}}]},
            {"role": "user", "parts": [{"text": "mind"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {"n": 2}}, "thoughtSignature": "s2"}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": "three"}}}]},
            {"role": "model", "parts": [{"text": "done"}, {"text": "."}]},
        ]),
    );
}

#[test]
fn ids_go_back_where_the_server_gave_them() {
    check(
        vec![
            Message::Assistant(vec![
                call(0, json!({"id": "c0", "thoughtSignature": "s"})),
                call(1, json!({"id": "c1"})),
                call(2, Value::Null),
            ]),
            result(0, vec!["a".into()]),
            result(1, vec!["b".into()]),
            result(2, vec!["c".into()]),
        ],
        json!([
            {"role": "model", "parts": [
                {"functionCall": {"id": "c0", "name": "f", "args": {"n": 0}}, "thoughtSignature": "s"},
                {"functionCall": {"id": "c1", "name": "f", "args": {"n": 1}}},
                {"functionCall": {"name": "f", "args": {"n": 2}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c0", "name": "f", "response": {"output": "a"}}},
                {"functionResponse": {"id": "c1", "name": "f", "response": {"output": "b"}}},
                {"functionResponse": {"name": "f", "response": {"output": "c"}}}]},
        ]),
    );
}

#[test]
fn a_missing_signature_has_a_placeholder_where_the_model_has_one() {
    let messages = || {
        vec![
            Message::Assistant(vec![call(0, Value::Null), call(1, Value::Null)]),
            result(0, vec!["a".into()]),
            result(1, vec!["b".into()]),
            Message::Assistant(vec![call(2, Value::Null)]),
            result(2, vec!["c".into()]),
        ]
    };
    let contents = |placeholder: Option<&str>| {
        let first = |ordinal: u32| {
            let mut part = json!({"functionCall": {"name": "f", "args": {"n": ordinal}}});
            if let Some(placeholder) = placeholder {
                part["thoughtSignature"] = json!(placeholder);
            }
            part
        };
        let answer = |text: &str| json!({"functionResponse": {"name": "f", "response": {"output": text}}});
        json!([
            {"role": "model", "parts": [first(0), {"functionCall": {"name": "f", "args": {"n": 1}}}]},
            {"role": "user", "parts": [answer("a"), answer("b")]},
            {"role": "model", "parts": [first(2)]},
            {"role": "user", "parts": [answer("c")]},
        ])
    };
    check_for(OLD, messages(), contents(None));
    for model in [NEW, "models/gemini-3-flash", "gemini-4-x"] {
        check_for(model, messages(), contents(Some("skip_thought_signature_validator")));
    }
}

#[test]
fn media() {
    let picture = || Content::Media(Media::base64("image/png", "AAAA"));
    let inline = json!({"inlineData": {"mimeType": "image/png", "data": "AAAA"}});
    let behind = Content::Media(Media::url("video/mp4", "https://x/y.mp4"));
    check(
        vec![Message::User(vec!["look".into(), picture(), behind])],
        json!([{"role": "user", "parts": [{"text": "look"}, inline,
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://x/y.mp4"}}]}]),
    );
    let loop_ = || {
        vec![
            Message::Assistant(vec![call(0, json!({"thoughtSignature": "s"})), call(1, Value::Null)]),
            result(0, vec!["a".into(), picture()]),
            result(1, vec!["b".into()]),
            Message::user("and?"),
        ]
    };
    let calls = json!({"role": "model", "parts": [
        {"functionCall": {"name": "f", "args": {"n": 0}}, "thoughtSignature": "s"},
        {"functionCall": {"name": "f", "args": {"n": 1}}}]});
    let second = json!({"functionResponse": {"name": "f", "response": {"output": "b"}}});
    check_for(
        NEW,
        loop_(),
        json!([calls,
            {"role": "user", "parts": [
                {"functionResponse": {"name": "f", "response": {"output": "a"}, "parts": [inline]}}, second]},
            {"role": "user", "parts": [{"text": "and?"}]}]),
    );
    check_for(
        OLD,
        loop_(),
        json!([calls,
            {"role": "user", "parts": [
                {"functionResponse": {"name": "f", "response": {"output": "a\n\n(media: see below)"}}}, second]},
            {"role": "user", "parts": [{"text": "Media from the result of f (call_0):"}, inline, {"text": "and?"}]}]),
    );
    let made = || vec![Message::Assistant(vec![AssistantPart::Media(Media::base64("image/png", "AAAA"))])];
    check_for(OLD, made(), json!([{"role": "model", "parts": [inline]}]));
    let mut signed = inline;
    signed["thoughtSignature"] = json!("skip_thought_signature_validator");
    check_for(NEW, made(), json!([{"role": "model", "parts": [signed]}]));
}

#[test]
fn hosted_calls_go_back_as_they_came() {
    let hosted = |ordinal: u32, name: &str, state: Option<Value>| {
        let call = CallPart::new(key(ordinal), format!("h{ordinal}"), name, json!({"q": ordinal}));
        AssistantPart::Call(call.hosted().state(state))
    };
    let answer = |ordinal: u32, error: bool, state: Option<Value>| {
        let mut part = HostedResultPart::new(key(ordinal), format!("h{ordinal}"), "g", vec!["found".into()]);
        (part.error, part.state) = (error, state);
        AssistantPart::HostedResult(part)
    };
    let code = json!({"executableCode": {"id": "k", "code": "1", "language": "PYTHON"}, "thoughtSignature": "s"});
    let output = json!({"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}});
    let tool = json!({"toolCall": {"toolType": "FILE_SEARCH", "id": "t"}});
    let part = |part: &Value| Some(json!({"part": part}));
    check(
        vec![Message::Assistant(vec![
            hosted(0, "code_execution", part(&code)),
            answer(0, false, part(&output)),
            // Results that the server never gave.
            hosted(1, "code_execution", part(&code)),
            answer(1, true, None),
            hosted(2, "file_search", part(&tool)),
            answer(2, true, None),
            text("so"),
        ])],
        json!([{"role": "model", "parts": [
            code, output,
            code, {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "found", "id": "k"}},
            tool, {"toolResponse": {"toolType": "FILE_SEARCH", "id": "t", "response": {"error": "found"}}},
            {"text": "so"}]}]),
    );
    // Those of another provider are calls and results like any other.
    let foreign = || {
        vec![
            Message::Assistant(vec![
                text("before"),
                hosted(0, "g", None),
                answer(0, false, None),
                text("behind"),
                hosted(1, "g", None),
                call(2, Value::Null),
            ]),
            result(2, vec!["x".into()]),
        ]
    };
    let called = |name: &str, number: u32| json!({"functionCall": {"name": name, "args": {if name == "g" { "q" } else { "n" }: number}}});
    let response = |name: &str, key: &str, text: &str| json!({"role": "user", "parts": [{"functionResponse": {"name": name, "response": {key: text}}}]});
    check_for(
        OLD,
        foreign(),
        json!([
            {"role": "model", "parts": [{"text": "before"}, called("g", 0)]},
            response("g", "output", "found"),
            {"role": "model", "parts": [{"text": "behind"}, called("g", 1)]},
            response("g", "error", "(the result is not known)"),
            {"role": "model", "parts": [called("f", 2)]},
            response("f", "output", "x"),
        ]),
    );
    let new = body(&request(NEW, foreign()), "gemini");
    let signatures =
        |content: usize, part: usize| new["contents"][content]["parts"][part].get("thoughtSignature").is_some();
    assert!(signatures(0, 1) && signatures(2, 1) && signatures(4, 0), "{new:#}");
}

#[test]
fn what_has_no_place() {
    let error = lower(&request(OLD, vec![Message::System("mind".to_owned())]), &Dialect::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "unsupported: Gemini has no system message in the middle: leave `system_in_middle` off in the model's capabilities"
    );
    // A model that said nothing makes no content.
    check(vec![Message::Assistant(vec![AssistantPart::Reasoning(TextPart::new("hm"))])], json!([]));
}

#[test]
fn schemas() {
    let declared = |schema: Value| {
        let mut request = request(OLD, vec![]);
        request.tools = Arc::from([ToolDefinition::new("f", "", schema)]);
        let mut body = body(&request, "gemini");
        let mut declaration = body["tools"][0]["functionDeclarations"][0].take();
        let fields = declaration.as_object_mut().unwrap();
        assert_eq!((fields.remove("name"), fields.remove("description")), (Some(json!("f")), Some(json!(""))));
        declaration
    };
    // In Gemini's own words.
    let own = |schema: Value, expected: Value| assert_eq!(declared(schema), json!({"parameters": expected}));
    let object = |x: Value| json!({"type": "object", "properties": {"x": x}});
    let in_object =
        |x: Value, expected: Value| own(object(x), json!({"type": "OBJECT", "properties": {"x": expected}}));
    own(
        json!({"$schema": "s", "type": "object", "title": "T", "additionalProperties": false, "required": ["a"], "properties": {
            "a": {"type": "string", "description": "d", "minLength": 1, "pattern": "p", "format": "uri", "examples": [1]},
            "b": {"type": ["integer", "null"], "minimum": 0, "format": "int32"},
            "c": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
            "d": {"type": "string", "format": "date-time", "default": "x"},
            "e": {"type": "number"}}}),
        json!({"type": "OBJECT", "title": "T", "required": ["a"], "properties": {
            "a": {"type": "STRING", "description": "d", "minLength": 1, "pattern": "p"},
            "b": {"type": "INTEGER", "nullable": true, "minimum": 0, "format": "int32"},
            "c": {"type": "ARRAY", "items": {"type": "BOOLEAN"}, "maxItems": 3},
            "d": {"type": "STRING", "format": "date-time", "default": "x"},
            "e": {"type": "NUMBER"}}}),
    );
    in_object(json!({"enum": ["a", "b"]}), json!({"type": "STRING", "enum": ["a", "b"]}));
    in_object(
        json!({"type": ["string", "null"], "enum": ["a", null]}),
        json!({"type": "STRING", "nullable": true, "enum": ["a"]}),
    );
    in_object(json!({"const": "a"}), json!({"type": "STRING", "enum": ["a"]}));
    in_object(
        json!({"oneOf": [{"type": "string"}, {"type": "integer"}]}),
        json!({"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}),
    );
    in_object(
        json!({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "d"}),
        json!({"type": "STRING", "nullable": true, "description": "d"}),
    );
    own(
        json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/X", "description": "mine"}}, "$defs": {"X": {"type": "string", "description": "theirs"}}}),
        json!({"type": "OBJECT", "properties": {"x": {"type": "STRING", "description": "mine"}}}),
    );
    // Nothing to say.
    for schema in [
        json!({"type": "object"}),
        json!({"type": "object", "properties": {}, "required": []}),
        json!({"$schema": "s", "type": "object", "properties": {}, "additionalProperties": false}),
    ] {
        assert_eq!(declared(schema), json!({}));
    }
    // What the subset cannot say goes whole.
    for schema in [
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"type": "object", "additionalProperties": true}),
        object(json!({})),
        object(json!(true)),
        object(json!({"type": "object"})),
        object(json!({"type": "array"})),
        object(json!({"type": ["string", "integer"]})),
        object(json!({"type": "integer", "enum": [1, 2]})),
        object(json!({"const": 1})),
        object(json!({"type": "integer", "exclusiveMinimum": 0})),
        object(json!({"type": "string", "not": {"const": "a"}})),
        object(json!({"allOf": [{"type": "string"}]})),
        object(json!({"$ref": "other.json"})),
        json!({"type": "object", "properties": {"x": {"$ref": "#"}}}),
        json!({"type": "object", "properties": {"x": {"type": "array", "items": [{"type": "string"}]}}}),
    ] {
        assert_eq!(declared(schema.clone()), json!({"parametersJsonSchema": schema}));
    }
    // Of responses.
    let answer = |schema: Value| {
        let mut request = request(OLD, vec![]);
        let mut options = Options::default();
        options.response_format = Some(ResponseFormat::JsonSchema { name: "n".to_owned(), schema, strict: true });
        request.options = Arc::new(options);
        body(&request, "gemini")["generationConfig"].clone()
    };
    assert_eq!(
        answer(object(json!({"type": "string"}))),
        json!({"responseMimeType": "application/json", "responseSchema":
            {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}}})
    );
    let whole = object(json!({"type": "object"}));
    assert_eq!(answer(whole.clone()), json!({"responseMimeType": "application/json", "responseJsonSchema": whole}));
}

//! Requests as bodies of the Responses API.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use serde_json::{Value, json};
use settled_provider_api::{
    AssistantPart, CallKey, CallPart, Content, ErrorClass, HostedResultPart, Media, Message, MessageId, ModelRef,
    Options, Purpose, Request, ResponseFormat, SessionId, TextPart, ToolChoice, ToolDefinition, ToolResult,
};
use settled_provider_openai::responses::{Dialect, lower};

const KEY: CallKey = CallKey { step: MessageId::from_u128(1), ordinal: 0 };

fn request(model: &str, messages: Vec<Message>) -> Request {
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(2));
    let mut request = Request::new(ModelRef::new("openai", model), purpose);
    request.messages = messages.into_iter().map(Arc::new).collect();
    request
}

fn dialect(name: &str) -> Arc<Dialect> {
    Dialect::named(name).unwrap()
}

/// The input that messages become.
fn check_in(dialect: &Dialect, messages: Vec<Message>, expected: Value) {
    let body = lower(&request("gpt-5", messages), dialect).unwrap();
    assert_eq!(body["input"], expected);
}

fn check(messages: Vec<Message>, expected: Value) {
    check_in(&dialect("openai"), messages, expected);
}

fn reasoning(item: Value) -> AssistantPart {
    AssistantPart::Reasoning(TextPart::new("hm").state(Some(json!({"item": item}))))
}

fn encrypted(id: &str) -> Value {
    json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": "e"})
}

fn text(text: &str, state: Value) -> AssistantPart {
    AssistantPart::Text(TextPart::new(text).state(Some(state)))
}

fn call(id: &str, state: Option<Value>) -> AssistantPart {
    AssistantPart::Call(CallPart::new(KEY, id, "f", json!({"x": 1})).state(state))
}

fn hosted(id: &str, state: Option<Value>) -> AssistantPart {
    AssistantPart::Call(CallPart::new(KEY, id, "web_search", json!({"query": "q"})).hosted().state(state))
}

fn hosted_result(id: &str, content: Content, state: Option<Value>) -> AssistantPart {
    let mut part = HostedResultPart::new(KEY, id, "web_search", vec![content]);
    part.state = state;
    AssistantPart::HostedResult(part)
}

fn result(id: &str, content: Vec<Content>) -> Message {
    Message::Tool(ToolResult::new(KEY, id, "f", false, content))
}

fn function_call(id: &str) -> Value {
    json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{\"x\":1}"})
}

fn output(id: &str, output: Value) -> Value {
    json!({"type": "function_call_output", "call_id": id, "output": output})
}

#[test]
fn every_field() {
    let mut request = request("gpt-5", vec![Message::user("hello")]);
    request.system = ["Be brief.", "Be kind."].map(Arc::from).into();
    request.tools = [ToolDefinition::new("f", "does f", json!({"type": "object"}))].into();
    request.tool_choice = ToolChoice::Tool("f".to_owned());
    request.max_output = Some(100);
    let mut options = Options::default();
    options.temperature = Some(0.5);
    options.top_p = Some(0.9);
    options.parallel_tool_calls = Some(false);
    options.reasoning_effort = Some("low".to_owned());
    options.service_tier = Some("flex".to_owned());
    options.response_format =
        Some(ResponseFormat::JsonSchema { name: "n".to_owned(), schema: json!({"type": "object"}), strict: true });
    options.raw.insert("truncation".to_owned(), json!("auto"));
    request.options = Arc::new(options);
    let mut dialect = Dialect::clone(&dialect("openai"));
    dialect.hosted_tools = vec![json!({"type": "web_search"})];
    dialect.reasoning_summary = Some("auto".to_owned());
    let expected = json!({
        "model": "gpt-5",
        "instructions": "Be brief.\n\nBe kind.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
        "stream": true,
        "store": false,
        "include": ["reasoning.encrypted_content"],
        "tools": [
            {"type": "web_search"},
            {"type": "function", "name": "f", "description": "does f", "parameters": {"type": "object"}, "strict": false},
        ],
        "tool_choice": {"type": "function", "name": "f"},
        "parallel_tool_calls": false,
        "max_output_tokens": 100,
        "temperature": 0.5,
        "top_p": 0.9,
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}},
        "reasoning": {"effort": "low", "summary": "auto"},
        "service_tier": "flex",
        "prompt_cache_key": "ses_1",
        "truncation": "auto",
    });
    assert_eq!(lower(&request, &dialect).unwrap(), expected);
    assert_eq!(lower(&request, &dialect).unwrap().to_string(), lower(&request, &dialect).unwrap().to_string());
}

#[test]
fn dialects() {
    for (name, model, expected) in [
        (
            "openai",
            "gpt-4o",
            json!({"stream": true, "store": false, "prompt_cache_key": "ses_1", "max_output_tokens": 9}),
        ),
        (
            "chatgpt",
            "gpt-5.4",
            json!({"stream": true, "store": false, "prompt_cache_key": "ses_1", "include": ["reasoning.encrypted_content"]}),
        ),
        (
            "xai",
            "grok-4",
            json!({"stream": true, "store": false, "include": ["reasoning.encrypted_content"], "max_output_tokens": 9}),
        ),
        ("deepseek", "deepseek-v4", json!({"stream": true, "max_output_tokens": 9})),
        ("bedrock", "openai.gpt-oss-20b", json!({"stream": true, "store": false, "max_output_tokens": 9})),
    ] {
        let mut request = request(model, vec![]);
        request.max_output = Some(9);
        let mut expected = expected;
        expected["model"] = json!(model);
        expected["input"] = json!([]);
        assert_eq!(lower(&request, &dialect(name)).unwrap(), expected, "{name}");
    }
    for (model, reasons) in [
        ("gpt-5", true),
        ("o3-mini", true),
        ("codex-mini-latest", true),
        ("gpt-4o", false),
        ("openai/gpt-4.1", false),
        ("gpt-5-chat-latest", false),
    ] {
        assert_eq!(dialect("openai").reasons(model), reasons, "{model}");
    }
    for (url, name) in [
        ("https://api.openai.com/v1", "openai"),
        ("https://x.openai.azure.com/openai/v1", "azure"),
        ("https://chatgpt.com/backend-api/codex", "chatgpt"),
        ("https://api.githubcopilot.com", "copilot"),
        ("https://bedrock-mantle.us-east-1.api.aws/v1", "bedrock"),
        ("https://notchatgpt.com", "compatible"),
    ] {
        assert_eq!(Dialect::of_url(url).name, name, "{url}");
    }
    let names: Vec<&str> = Dialect::all().iter().map(|dialect| dialect.name.as_str()).collect();
    let known = [
        "compatible",
        "openai",
        "azure",
        "chatgpt",
        "copilot",
        "xai",
        "deepseek",
        "bedrock",
        "lmstudio",
        "opencode-zen",
    ];
    assert_eq!(names, known);
}

#[test]
fn what_is_refused() {
    let mut cases: Vec<(Request, &str, &str)> = Vec::new();
    let with = |change: &dyn Fn(&mut Options)| {
        let mut request = request("gpt-5", vec![Message::user("hello")]);
        let mut options = Options::default();
        change(&mut options);
        request.options = Arc::new(options);
        request
    };
    cases.push((with(&|options| options.seed = Some(1)), "openai", "the Responses API has no seed"));
    cases.push((
        with(&|options| options.stop = vec!["x".to_owned()]),
        "openai",
        "the Responses API has no stop sequences",
    ));
    cases.push((with(&|options| options.temperature = Some(1.0)), "chatgpt", "chatgpt takes no temperature"));
    let mut required = request("gpt-5", vec![]);
    required.tool_choice = ToolChoice::Required;
    cases.push((required, "openai", "a call is required, and there is no tool"));
    for (media, expected) in [
        (Media::base64("audio/mpeg", "AAAA"), "media of type audio/mpeg has no place in the Responses API"),
        (Media::url("video/mp4", "https://a.example"), "media of type video/mp4 has no place in the Responses API"),
    ] {
        cases.push((request("gpt-5", vec![Message::User(vec![Content::Media(media)])]), "openai", expected));
    }
    for (request, name, expected) in cases {
        let error = lower(&request, &dialect(name)).unwrap_err();
        assert_eq!((error.class, error.message.as_str()), (ErrorClass::Unsupported, expected));
    }
}

#[test]
fn people_media_and_results() {
    let mut named = Media::base64("application/pdf", "AAAA");
    named.name = Some("a.pdf".into());
    check(
        vec![
            Message::User(vec![
                Content::text("look"),
                Content::text(" "),
                Content::Media(Media::base64("image/png", "AAAA")),
                Content::Media(Media::url("image/png", "https://a.example/i.png")),
                Content::Media(named),
                Content::Media(Media::url("application/pdf", "https://a.example/a.pdf")),
                Content::Media(Media::base64("text/plain", "aGk=")),
            ]),
            Message::System("Mind the gap.".to_owned()),
            Message::Assistant(vec![call("a", None), call("b", None), call("c", None)]),
            result("a", vec![Content::text("fine")]),
            result("b", vec![Content::text("see"), Content::Media(Media::base64("image/png", "AAAA"))]),
            result("c", vec![Content::text(" ")]),
            Message::User(vec![Content::text("")]),
        ],
        json!([
            {"role": "user", "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
                {"type": "input_image", "image_url": "https://a.example/i.png"},
                {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"},
                {"type": "input_file", "file_url": "https://a.example/a.pdf"},
                {"type": "input_file", "filename": "document", "file_data": "data:text/plain;base64,aGk="},
            ]},
            {"role": "developer", "content": "Mind the gap."},
            function_call("a"),
            function_call("b"),
            function_call("c"),
            output("a", json!("fine")),
            output("b", json!([
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
            ])),
            output("c", json!("(no output)")),
        ]),
    );
}

/// What came goes back as it came, ids and all: reasoning, a message of two parts with its phase, calls.
#[test]
fn a_whole_answer_goes_back() {
    check(
        vec![
            Message::Assistant(vec![
                reasoning(encrypted("rs_1")),
                text("Let me ", json!({"item": {"id": "msg_1", "phase": "commentary"}, "after": ["rs_1"]})),
                text(
                    "see.",
                    json!({"item": {"id": "msg_1", "phase": "commentary"}, "after": ["rs_1"], "annotations": [{"type": "url_citation"}]}),
                ),
                reasoning(encrypted("rs_2")),
                call("a", Some(json!({"item": {"id": "fc_1", "namespace": "n"}, "after": ["rs_1", "rs_2"]}))),
            ]),
            result("a", vec![Content::text("fine")]),
            Message::Assistant(vec![text("No.", json!({"item": {"id": "msg_2"}, "refusal": true}))]),
        ],
        json!([
            encrypted("rs_1"),
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary", "content": [
                {"type": "output_text", "text": "Let me ", "annotations": []},
                {"type": "output_text", "text": "see.", "annotations": [{"type": "url_citation"}]},
            ]},
            encrypted("rs_2"),
            {"type": "function_call", "id": "fc_1", "namespace": "n", "call_id": "a", "name": "f", "arguments": "{\"x\":1}"},
            output("a", json!("fine")),
            {"type": "message", "id": "msg_2", "role": "assistant", "status": "completed", "content": [{"type": "refusal", "refusal": "No."}]},
        ]),
    );
}

/// B125: ids go back only with everything that they are linked with; the pair holds without.
#[test]
fn ids_without_their_reasoning_stay_behind() {
    let linked = |id: &str| json!({"item": {"id": id, "phase": "commentary"}, "after": ["rs_1"]});
    let bare = json!([
        {"role": "assistant", "content": "Let me see.", "phase": "commentary"},
        function_call("a"),
        output("a", json!("fine")),
    ]);
    let rest = || {
        vec![text("Let me see.", linked("msg_1")), call("a", Some(json!({"item": {"id": "fc_1"}, "after": ["rs_1"]})))]
    };
    let fine = || result("a", vec![Content::text("fine")]);
    // The reasoning is gone.
    check(vec![Message::Assistant(rest()), fine()], bare.clone());
    // The server has not kept it, and cannot read it.
    let unreadable = json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]});
    check(vec![Message::Assistant([vec![reasoning(unreadable.clone())], rest()].concat()), fine()], bare);
    // Where the server keeps responses, it can, and even reasoning that says nothing goes back.
    let mut stored = Dialect::clone(&dialect("openai"));
    stored.store = Some(true);
    for item in [unreadable, json!({"type": "reasoning", "id": "rs_1", "summary": []})] {
        check_in(
            &stored,
            vec![Message::Assistant(vec![reasoning(item.clone()), rest().remove(1)]), fine()],
            json!([item, {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{\"x\":1}"}, output("a", json!("fine"))]),
        );
    }
    // A dialect whose ids are of no use.
    check_in(
        &dialect("copilot"),
        vec![Message::Assistant([vec![reasoning(encrypted("rs_1"))], rest()].concat()), fine()],
        json!([
            {"type": "reasoning", "summary": [], "encrypted_content": "e"},
            {"role": "assistant", "content": "Let me see.", "phase": "commentary"},
            function_call("a"),
            output("a", json!("fine")),
        ]),
    );
    // Reasoning in the open can be read by any server.
    let open = json!({"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]});
    check_in(
        &dialect("deepseek"),
        vec![Message::Assistant(vec![reasoning(open.clone()), call("a", None)]), fine()],
        json!([open, function_call("a"), output("a", json!("fine"))]),
    );
}

#[test]
fn reasoning_that_nothing_follows_stays_behind() {
    check(
        vec![
            Message::Assistant(vec![
                text("Well.", json!({"item": {"id": "msg_1"}})),
                reasoning(encrypted("rs_1")),
                text("\n", json!({"item": {"id": "msg_2"}, "after": ["rs_1"]})),
            ]),
            Message::user("go on"),
            // Reasoning of another wire, without an item of this one.
            Message::Assistant(vec![AssistantPart::Reasoning(TextPart::new("hm")), text("So.", json!({}))]),
        ],
        json!([
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": "Well.", "annotations": []}]},
            {"role": "user", "content": [{"type": "input_text", "text": "go on"}]},
            {"role": "assistant", "content": "So."},
        ]),
    );
}

/// Behaviours 60: a hosted pair goes back inline; without its state it is a pair like any other.
#[test]
fn hosted_pairs() {
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "q"}});
    let state = |item: &Value| Some(json!({"item": item, "after": ["rs_1"]}));
    let within = Some(json!({"within": true}));
    let found = || Content::text("found");
    let pair = |content: &str| {
        json!([
            {"type": "function_call", "call_id": "ws_1", "name": "web_search", "arguments": "{\"query\":\"q\"}"},
            output("ws_1", json!(content)),
            {"role": "assistant", "content": "So."},
        ])
    };
    let said = || AssistantPart::Text(TextPart::new("So."));
    check(
        vec![Message::Assistant(vec![
            reasoning(encrypted("rs_1")),
            hosted("ws_1", state(&search)),
            hosted_result("ws_1", found(), within.clone()),
            said(),
        ])],
        json!([encrypted("rs_1"), search, {"role": "assistant", "content": "So."}]),
    );
    // Its reasoning is gone; its result's state; both; its result.
    let parts = |call: Option<Value>, result: Option<Value>| {
        vec![Message::Assistant(vec![hosted("ws_1", call), hosted_result("ws_1", found(), result), said()])]
    };
    check(parts(state(&search), within.clone()), pair("found"));
    check(parts(Some(json!({"item": search})), None), pair("found"));
    check(parts(None, None), pair("found"));
    check(vec![Message::Assistant(vec![hosted("ws_1", None), said()])], pair("(the result is not known)"));
    // An output that is an item of its own.
    let shell = json!({"type": "shell_call", "id": "sh_1", "call_id": "c", "action": {"commands": ["ls"]}});
    let shown = json!({"type": "shell_call_output", "id": "sho_1", "call_id": "c", "output": []});
    check(
        vec![Message::Assistant(vec![
            hosted("c", Some(json!({"item": shell}))),
            hosted_result("c", found(), Some(json!({"item": shown}))),
        ])],
        json!([shell, shown]),
    );
    // A picture is the result's content, and its call's item wants it back.
    let image = json!({"type": "image_generation_call", "id": "ig_1", "status": "completed"});
    let mut whole = image.clone();
    whole["result"] = json!("AAAA");
    let picture = Content::Media(Media::base64("image/webp", "AAAA"));
    check(
        vec![Message::Assistant(vec![
            hosted("ig_1", Some(json!({"item": image}))),
            hosted_result("ig_1", picture, within.clone()),
        ])],
        json!([whole]),
    );
    check(
        vec![Message::Assistant(vec![
            hosted("ig_1", Some(json!({"item": image}))),
            hosted_result("ig_1", Content::text("[left out]"), within),
        ])],
        json!([
            {"type": "function_call", "call_id": "ig_1", "name": "web_search", "arguments": "{\"query\":\"q\"}"},
            output("ig_1", json!("[left out]")),
        ]),
    );
    // Other items go back as they came, even at the end.
    let kept = json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "e"});
    check(vec![Message::Assistant(vec![reasoning(kept.clone())])], json!([kept]));
    check(
        vec![Message::Assistant(vec![AssistantPart::Media(Media::base64("image/png", "AAAA"))])],
        json!([{"role": "assistant", "content": "[image/png made by the model]"}]),
    );
}

#[test]
fn arguments_go_back_in_the_text_that_came() {
    for (text, expected) in [("{\"x\": 1}", "{\"x\": 1}"), ("{\"x\": 2}", "{\"x\":1}"), ("{", "{\"x\":1}")] {
        check(
            vec![Message::Assistant(vec![call("a", Some(json!({"item": {"arguments": text}})))])],
            json!([{"type": "function_call", "call_id": "a", "name": "f", "arguments": expected}]),
        );
    }
}

#[test]
fn labels_that_are_too_long() {
    let long = "x".repeat(80);
    let (first, second) = (format!("{}_1", "x".repeat(62)), format!("{}_2", "x".repeat(62)));
    let other = format!("{long}y");
    check(
        vec![
            Message::Assistant(vec![call(&long, None), call(&other, None)]),
            result(&long, vec![Content::text("one")]),
            result(&other, vec![Content::text("two")]),
        ],
        json!([
            function_call(&first),
            function_call(&second),
            output(&first, json!("one")),
            output(&second, json!("two"))
        ]),
    );
}

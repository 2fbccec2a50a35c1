//! Lowering: requests as bodies, whole values.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use serde_json::{Map, Value, json};
use settled_provider_anthropic::{Cache, Dialect, MaxOutput, lower};
use settled_provider_api::{
    AssistantPart, CallKey, CallPart, Content, HostedResultPart, Media, Message, MessageId, ModelRef, Options, Purpose,
    Request, ResponseFormat, SessionId, TextPart, ToolChoice, ToolDefinition, ToolResult,
};

fn request(messages: Vec<Message>) -> Request {
    let purpose = Purpose::step(SessionId::new("ses_1").unwrap(), MessageId::from_u128(1));
    let mut request = Request::new(ModelRef::new("anthropic", "claude-sonnet-4-5"), purpose);
    request.messages = messages.into_iter().map(Arc::new).collect();
    request
}

fn key(ordinal: u32) -> CallKey {
    CallKey { step: MessageId::from_u128(1), ordinal }
}

fn call(id: &str, input: Value) -> CallPart {
    CallPart::new(key(0), id, "f", input)
}

fn result(id: &str, content: Vec<Content>) -> Message {
    Message::Tool(ToolResult::new(key(0), id, "f", false, content))
}

fn text(text: &str) -> AssistantPart {
    AssistantPart::Text(TextPart::new(text))
}

fn stated(text: &str, state: Value) -> TextPart {
    TextPart::new(text).state(Some(state))
}

fn hosted(id: &str, kind: &str) -> AssistantPart {
    let state = (!kind.is_empty()).then(|| json!({"block": {"type": kind}}));
    AssistantPart::Call(CallPart::new(key(0), id, "web_search", json!({"query": "q"})).hosted().state(state))
}

fn hosted_result(id: &str, state: Option<Value>) -> AssistantPart {
    let mut result = HostedResultPart::new(key(0), id, "web_search", vec!["found".into()]);
    result.state = state;
    AssistantPart::HostedResult(result)
}

fn found() -> Option<Value> {
    Some(json!({"block": {"type": "web_search_tool_result", "content": [{"encrypted_content": "zz"}]}}))
}

/// A dialect of Anthropic's without breakpoints, to see everything else.
fn plain() -> Dialect {
    let mut dialect = Dialect::clone(&Dialect::named("anthropic").unwrap());
    dialect.cache = Cache::Off;
    dialect
}

fn body(request: &Request, dialect: &Dialect) -> Value {
    let body = lower(request, dialect).unwrap();
    assert_eq!(lower(request, dialect).unwrap().to_string(), body.to_string(), "the same text each time");
    body
}

/// The messages that these become.
fn check(messages: Vec<Message>, expected: Value) {
    assert_eq!(body(&request(messages), &plain())["messages"], expected);
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}

fn said(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[test]
fn a_plain_request() {
    let mut request = request(vec![Message::user("hello")]);
    request.system = Arc::from([Arc::from("one"), Arc::from("two")]);
    assert_eq!(
        body(&request, &plain()),
        json!({"model": "claude-sonnet-4-5", "max_tokens": 64_000, "stream": true,
            "system": [said("one"), said("two")], "messages": [user("hello")]})
    );
}

#[test]
fn limits_of_answers() {
    let mut dialect = Dialect::default();
    for (model, most) in [
        ("claude-3-opus-20240229", 4_096),
        ("claude-3-5-haiku-latest", 8_192),
        ("claude-3-7-sonnet-latest", 64_000),
        ("claude-opus-4-1", 32_000),
        ("claude-opus-4-5", 64_000),
        ("claude-opus-4-7", 128_000),
        ("anthropic/claude-opus-4.7", 128_000),
        ("claude-sonnet-4-0", 64_000),
        ("claude-haiku-4-5-20251001", 64_000),
        ("claude-next-9", 32_000),
        ("kimi-k2", 8_192),
    ] {
        assert_eq!(dialect.max_output(model), most, "{model}");
    }
    dialect.max_output = vec![MaxOutput::new("kimi", 9)];
    assert_eq!((dialect.max_output("Kimi-K2"), dialect.max_output("claude-opus-4-1")), (9, 32_000));
    let mut request = request(vec![]);
    request.max_output = Some(100);
    assert_eq!(body(&request, &plain())["max_tokens"], json!(100));
}

#[test]
fn settings() {
    let mut request = request(vec![]);
    let schema = json!({"type": "object"});
    request.tools =
        Arc::from([ToolDefinition::new("f", "does f", schema.clone()), ToolDefinition::new("g", "", schema.clone())]);
    let mut options = Options::default();
    options.temperature = Some(0.5);
    options.top_p = Some(0.9);
    options.stop = vec!["x".to_owned()];
    options.response_format =
        Some(ResponseFormat::JsonSchema { name: "n".to_owned(), schema: schema.clone(), strict: true });
    options.parallel_tool_calls = Some(false);
    options.reasoning_effort = Some("low".to_owned());
    options.service_tier = Some("standard_only".to_owned());
    options.raw =
        Map::from_iter([("top_p".to_owned(), json!(0.1)), ("thinking".to_owned(), json!({"type": "adaptive"}))]);
    request.options = Arc::new(options.clone());
    let mut dialect = plain();
    dialect.hosted_tools = vec![json!({"type": "web_search_20250305", "name": "web_search"})];
    assert_eq!(
        body(&request, &dialect),
        json!({
            "model": "claude-sonnet-4-5", "max_tokens": 64_000, "stream": true, "messages": [],
            "tools": [{"type": "web_search_20250305", "name": "web_search"},
                {"name": "f", "description": "does f", "input_schema": schema}, {"name": "g", "input_schema": schema}],
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
            "temperature": 0.5, "top_p": 0.1, "stop_sequences": ["x"], "service_tier": "standard_only",
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}},
            "thinking": {"type": "adaptive"},
        })
    );
    options.seed = Some(7);
    request.options = Arc::new(options.clone());
    assert_eq!(lower(&request, &dialect).unwrap_err().to_string(), "unsupported: the Messages API has no seed");
    options.seed = None;
    options.response_format = Some(ResponseFormat::JsonObject);
    request.options = Arc::new(options);
    assert_eq!(
        lower(&request, &dialect).unwrap_err().to_string(),
        "unsupported: the response format JsonObject has no place in the Messages API"
    );
}

#[test]
fn choices_of_tools() {
    let mut request = request(vec![]);
    let choice = |request: &Request| body(request, &plain()).get("tool_choice").cloned();
    request.tool_choice = ToolChoice::None;
    assert_eq!(choice(&request), None);
    for required in [ToolChoice::Required, ToolChoice::Tool("f".to_owned())] {
        request.tool_choice = required;
        let error = lower(&request, &plain()).unwrap_err();
        assert_eq!(error.to_string(), "unsupported: a call is required, and there is no tool");
    }
    request.tools = Arc::from([ToolDefinition::new("f", "does f", json!({}))]);
    for parallel in [None, Some(true), Some(false)] {
        let mut options = Options::default();
        options.parallel_tool_calls = parallel;
        request.options = Arc::new(options);
        let mut check = |wanted: ToolChoice, expected: Option<Value>, alone: Option<Value>| {
            request.tool_choice = wanted;
            assert_eq!(choice(&request), if parallel == Some(false) { alone } else { expected });
        };
        let none = Some(json!({"type": "none"}));
        check(ToolChoice::Auto, None, Some(json!({"type": "auto", "disable_parallel_tool_use": true})));
        check(ToolChoice::None, none.clone(), none);
        check(
            ToolChoice::Required,
            Some(json!({"type": "any"})),
            Some(json!({"type": "any", "disable_parallel_tool_use": true})),
        );
        check(
            ToolChoice::Tool("f".to_owned()),
            Some(json!({"type": "tool", "name": "f"})),
            Some(json!({"type": "tool", "name": "f", "disable_parallel_tool_use": true})),
        );
    }
}

#[test]
fn a_history_with_calls_names_the_tools_where_there_are_none() {
    let history = vec![Message::user("do"), Message::Assistant(vec![AssistantPart::Call(call("a", json!({})))])];
    let body = body(&request(history), &plain());
    assert_eq!(body["tools"], json!([{"name": "f", "input_schema": {"type": "object"}}]));
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
}

#[test]
fn a_tool_loop() {
    let picture = Content::Media(Media::base64("image/png", "AAAA"));
    let failed = ToolResult::new(key(1), "b", "f", true, vec!["one".into(), picture]);
    check(
        vec![
            Message::user("do"),
            Message::Assistant(vec![
                AssistantPart::Reasoning(stated("hm", json!({"signature": "s"}))),
                text("on it"),
                AssistantPart::Call(call("a", json!({"y": 1, "x": "é\""}))),
                AssistantPart::Call(
                    call("b", json!({}))
                        .state(Some(json!({"block": {"type": "tool_use", "caller": {"type": "direct"}}}))),
                ),
            ]),
            result("a", vec!["three".into()]),
            Message::Tool(failed),
            Message::user("and"),
            Message::User(vec!["more".into(), " ".into()]),
            Message::System("mind".to_owned()),
            Message::Assistant(vec![text("done"), text(" \n")]),
            Message::Assistant(vec![text("really. \n")]),
        ],
        json!([
            user("do"),
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                said("on it"),
                {"type": "tool_use", "id": "a", "name": "f", "input": {"x": "é\"", "y": 1}},
                {"type": "tool_use", "id": "b", "name": "f", "input": {}, "caller": {"type": "direct"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "three"},
                {"type": "tool_result", "tool_use_id": "b", "is_error": true, "content": [said("one"),
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
                said("and"),
                said("more"),
                said("<system>\nmind\n</system>")]},
            {"role": "assistant", "content": [said("done"), said("really.")]},
        ]),
    );
}

#[test]
fn reasoning_goes_back_with_its_signature() {
    let history = vec![Message::Assistant(vec![
        AssistantPart::Reasoning(stated("", json!({"signature": "s"}))),
        AssistantPart::Reasoning(stated("", json!({"block": {"type": "redacted_thinking", "data": "zz"}}))),
        AssistantPart::Reasoning(TextPart::new("unsigned")),
        AssistantPart::Reasoning(stated("other", json!({"reasoning_details": []}))),
        AssistantPart::Reasoning(TextPart::new(" ")),
        text("a"),
    ])];
    let signed = json!({"type": "thinking", "thinking": "", "signature": "s"});
    let redacted = json!({"type": "redacted_thinking", "data": "zz"});
    check(history.clone(), json!([{"role": "assistant", "content": [signed, redacted, said("a")]}]));
    // A server that signs nothing gets back what it sent.
    let mut common = Dialect::default();
    common.cache = Cache::Off;
    let thinking = |text: &str| json!({"type": "thinking", "thinking": text, "signature": ""});
    assert_eq!(
        body(&request(history), &common)["messages"],
        json!([{"role": "assistant", "content": [signed, redacted, thinking("unsigned"), thinking("other"), said("a")]}])
    );
}

#[test]
fn what_is_said_stands_in_front_of_calls() {
    check(
        vec![
            Message::Assistant(vec![text("zero"), AssistantPart::Call(call("a", json!({}))), text("one"), text("two")]),
            result("a", vec![" ".into()]),
            Message::Assistant(vec![AssistantPart::Call(call("lost", json!({})))]),
            Message::user("go on"),
            Message::Assistant(vec![]),
            Message::user("go"),
        ],
        json!([
            {"role": "assistant", "content": [said("zero"), said("one"), said("two"), {"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "(no output)"}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "lost", "name": "f", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "lost", "content": "(the result is not known)", "is_error": true},
                said("go on"), said("go")]},
        ]),
    );
}

#[test]
fn ids_that_the_wire_refuses_are_rewritten_in_both_places() {
    let history = |calls: usize| {
        let ids = &["call:1", "call.1", "call_1", "é|", ""][..calls];
        let parts = ids.iter().map(|id| AssistantPart::Call(call(id, json!({}))));
        let results = ids.iter().map(|id| result(id, vec!["x".into()]));
        [Message::Assistant(parts.collect())].into_iter().chain(results).collect()
    };
    let ids = |calls: usize| {
        let body = body(&request(history(calls)), &plain());
        let of = |message: usize, field: &str| -> Vec<String> {
            let blocks = body["messages"][message]["content"].as_array().unwrap();
            blocks.iter().map(|block| block[field].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(of(0, "id"), of(1, "tool_use_id"));
        of(0, "id")
    };
    let all = ids(5);
    assert_eq!(all, ["call_1", "call_1_2", "call_1_3", "__", "call"]);
    // What comes later changes nothing before it.
    for calls in 1..5 {
        assert_eq!(ids(calls), all[..calls]);
    }
}

#[test]
fn hosted_pairs_go_back_as_they_came() {
    let call = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}});
    let result =
        json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "zz"}]});
    let citations = json!([{"type": "web_search_result_location"}]);
    let cited = AssistantPart::Text(stated("so", json!({"citations": citations})));
    check(
        vec![Message::Assistant(vec![
            text("I look."),
            hosted("s", "server_tool_use"),
            hosted_result("s", found()),
            cited,
        ])],
        json!([{"role": "assistant", "content": [said("I look."), call, result, {"type": "text", "text": "so", "citations": citations}]}]),
    );
    // Paused: the answer that goes on is part of the same message.
    check(
        vec![Message::user("q"), Message::Assistant(vec![hosted("s", "server_tool_use")])],
        json!([user("q"), {"role": "assistant", "content": [call]}]),
    );
    check(
        vec![
            Message::user("q"),
            Message::Assistant(vec![hosted("s", "server_tool_use")]),
            Message::Assistant(vec![hosted_result("s", found()), text("so")]),
        ],
        json!([user("q"), {"role": "assistant", "content": [call, result, said("so")]}]),
    );
}

#[test]
fn hosted_pairs_that_may_not_go_back_are_like_local_ones() {
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "web_search", "input": {"query": "q"}});
    let local = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
    let answer = |id: &str, text: &str| json!({"type": "tool_result", "tool_use_id": id, "content": text});
    let mut lost = answer("lost", "(the result is not known)");
    lost["is_error"] = json!(true);
    // Of another model: neither has state. Of a failed step: the call has, the made-up result has not.
    for kind in ["", "server_tool_use"] {
        check(
            vec![
                Message::Assistant(vec![
                    text("before"),
                    hosted("h", kind),
                    hosted_result("h", None),
                    text("behind"),
                    hosted("lost", ""),
                    AssistantPart::Call(self::call("a", json!({}))),
                ]),
                result("a", vec!["x".into()]),
                Message::user("next"),
            ],
            json!([
                {"role": "assistant", "content": [said("before"), call("h")]},
                {"role": "user", "content": [answer("h", "found")]},
                {"role": "assistant", "content": [said("behind"), call("lost"), local]},
                {"role": "user", "content": [lost, answer("a", "x"), said("next")]},
            ]),
        );
    }
    // A result has no place without its call's state.
    check(
        vec![Message::Assistant(vec![hosted("h", ""), hosted_result("h", found()), text("behind")])],
        json!([
            {"role": "assistant", "content": [call("h")]},
            {"role": "user", "content": [answer("h", "found")]},
            {"role": "assistant", "content": [said("behind")]},
        ]),
    );
    // One of each.
    let native = json!({"type": "server_tool_use", "id": "n", "name": "web_search", "input": {"query": "q"}});
    check(
        vec![Message::Assistant(vec![
            hosted("h", ""),
            hosted_result("h", None),
            hosted("n", "server_tool_use"),
            hosted_result("n", found()),
        ])],
        json!([
            {"role": "assistant", "content": [call("h")]},
            {"role": "user", "content": [answer("h", "found")]},
            {"role": "assistant", "content": [native,
                {"type": "web_search_tool_result", "tool_use_id": "n", "content": [{"encrypted_content": "zz"}]}]},
        ]),
    );
}

#[test]
fn media() {
    let mut file = Media::base64("application/pdf", "JVBE");
    file.name = Some("a.pdf".to_owned());
    let mut notes = Media::base64("text/markdown", "w6kh");
    notes.name = Some("n.md".to_owned());
    let content: Vec<Content> = [
        Media::base64("image/png", "AAAA"),
        Media::url("image/png", "https://example.com/a.png"),
        Media::url("image/png", "data:image/png;base64,BBBB"),
        file,
        Media::url("application/pdf", "https://example.com/a.pdf"),
        notes,
    ]
    .into_iter()
    .map(Content::Media)
    .collect();
    let inline = |mime: &str, data: &str| json!({"type": "base64", "media_type": mime, "data": data});
    let blocks = json!([
        {"type": "image", "source": inline("image/png", "AAAA")},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image", "source": inline("image/png", "BBBB")},
        {"type": "document", "title": "a.pdf", "source": inline("application/pdf", "JVBE")},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
        {"type": "document", "title": "n.md", "source": {"type": "text", "media_type": "text/plain", "data": "é!"}},
    ]);
    check(vec![Message::User(content)], json!([{"role": "user", "content": blocks}]));
    let refused = |media: Media, what: &str| {
        let error = lower(&request(vec![Message::User(vec![Content::Media(media)])]), &plain()).unwrap_err();
        assert_eq!(error.to_string(), format!("unsupported: media of type {what}"));
    };
    refused(Media::base64("audio/wav", "AAAA"), "audio/wav has no place in the Messages API");
    refused(Media::url("text/plain", "https://example.com"), "text/plain by URL has no place in the Messages API");
    refused(Media::base64("text/plain", "/w=="), "text/plain is no UTF-8 text in base64");
    check(
        vec![Message::Assistant(vec![AssistantPart::Media(Media::base64("image/png", "AAAA"))])],
        json!([{"role": "assistant", "content": [said("[image/png made by the model]")]}]),
    );
}

/// A body without its breakpoints, and how many there were.
fn without_breakpoints(value: &Value) -> (Value, usize) {
    match value {
        Value::Object(fields) => {
            let mut count = usize::from(fields.contains_key("cache_control"));
            let fields = fields.iter().filter(|(name, _)| *name != "cache_control").map(|(name, value)| {
                let (value, more) = without_breakpoints(value);
                count += more;
                (name.clone(), value)
            });
            (Value::Object(fields.collect()), count)
        }
        Value::Array(list) => {
            let parts: Vec<(Value, usize)> = list.iter().map(without_breakpoints).collect();
            (parts.iter().map(|part| part.0.clone()).collect(), parts.iter().map(|part| part.1).sum())
        }
        other => (other.clone(), 0),
    }
}

fn growing(steps: usize) -> Request {
    let mut history = vec![Message::user("do")];
    for step in 0..steps {
        let id = format!("toolu_{step}");
        history.push(Message::Assistant(vec![text("on it"), AssistantPart::Call(call(&id, json!({})))]));
        history.push(result(&id, vec!["x".into()]));
    }
    let mut request = request(history);
    request.system = Arc::from([Arc::from("one"), Arc::from("two")]);
    request.tools = Arc::from([ToolDefinition::new("f", "", json!({})), ToolDefinition::new("g", "", json!({}))]);
    request
}

#[test]
fn breakpoints_stand_where_the_prefix_stays_the_same() {
    let dialect = Dialect::named("anthropic").unwrap();
    let mark = json!({"type": "ephemeral"});
    let mut before: Option<Value> = None;
    for steps in 0..5 {
        let body = body(&growing(steps), &dialect);
        let (bare, count) = without_breakpoints(&body);
        assert_eq!(count, if steps == 0 { 3 } else { 4 });
        assert_eq!(body["tools"][1]["cache_control"], mark);
        assert_eq!(body["system"][1]["cache_control"], mark);
        let messages = body["messages"].as_array().unwrap();
        let last = |message: &Value| message["content"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last(&messages[2 * steps])["cache_control"], mark);
        if let Some(before) = before {
            // The end of the request before is in front of a breakpoint, and all in front of it is the same.
            let end = before["messages"].as_array().unwrap().len();
            assert_eq!(last(&messages[end - 1])["cache_control"], mark);
            assert_eq!(bare["messages"].as_array().unwrap()[..end], before["messages"].as_array().unwrap()[..]);
            assert_eq!((&bare["tools"], &bare["system"]), (&before["tools"], &before["system"]));
        }
        before = Some(bare);
    }
    let mut hour = Dialect::clone(&dialect);
    hour.cache = Cache::OneHour;
    let body = body(&growing(1), &hour);
    assert_eq!(body["system"][1]["cache_control"], json!({"type": "ephemeral", "ttl": "1h"}));
}

#[test]
fn there_are_at_most_four_breakpoints() {
    let marked = json!([{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}]);
    let count = |raw: &[(&str, Value)], hosted: Value| {
        let mut request = growing(2);
        let mut options = Options::default();
        options.raw = raw.iter().map(|(field, value)| ((*field).to_owned(), value.clone())).collect();
        request.options = Arc::new(options);
        let mut dialect = Dialect::clone(&Dialect::named("anthropic").unwrap());
        dialect.hosted_tools = vec![hosted];
        without_breakpoints(&body(&request, &dialect)).1
    };
    assert_eq!(count(&[], json!({"name": "w"})), 4);
    assert_eq!(count(&[], json!({"name": "w", "cache_control": {"type": "ephemeral"}})), 4);
    // The raw system replaces ours, with its own breakpoint.
    assert_eq!(count(&[("system", marked)], json!({"name": "w"})), 3);
    assert_eq!(count(&[("cache_control", json!({"type": "ephemeral"}))], json!({"name": "w"})), 1);
}

#[test]
fn dialects() {
    let all = Dialect::all();
    assert!(all.iter().all(|dialect| Dialect::named(&dialect.name).as_ref() == Some(dialect)));
    assert_eq!(*Dialect::named("compatible").unwrap(), Dialect::default());
    for (url, name) in [
        ("https://api.anthropic.com/v1", "anthropic"),
        ("https://user:pw@API.Anthropic.com:443", "anthropic"),
        ("https://notanthropic.com", "compatible"),
        ("https://openrouter.ai/api", "openrouter"),
        ("https://api.deepseek.com/anthropic", "deepseek"),
        ("localhost", "compatible"),
    ] {
        assert_eq!(Dialect::of_url(url).name, name, "{url}");
    }
    let own: Dialect = serde_json::from_str(r#"{"name": "mine", "key_header": null, "cache": "one_hour"}"#).unwrap();
    assert_eq!((own.key_header, own.cache), (None, Cache::OneHour));
    assert!(serde_json::from_str::<Dialect>(r#"{"name": "mine", "chache": "off"}"#).is_err());
}

//! The decoder's rules, one by one, on bodies of our own: each whole, byte by byte and at every split.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use settled_provider_api::ProviderEvent;
use settled_provider_openai::chat::{ChatDecoder, Dialect};
use settled_provider_wire::Decoder;

/// What a body decodes to when it is cut at these places: one line per event, signs of life left out.
fn decode(dialect: &Arc<Dialect>, body: &[u8], cuts: &[usize]) -> Vec<String> {
    let mut decoder = ChatDecoder::new(Arc::clone(dialect));
    let mut events = VecDeque::new();
    let mut from = 0;
    let mut end = Ok(());
    for &to in cuts.iter().chain([&body.len()]) {
        end = end.and_then(|()| decoder.push(&body[from..to], &mut events));
        from = to;
    }
    let end = end.and_then(|()| decoder.finish(&mut events));
    let mut out: Vec<String> = events.iter().filter_map(show).collect();
    out.extend(end.err().map(|error| format!("failed {error}")));
    out
}

fn show(event: &ProviderEvent) -> Option<String> {
    let state = |state: &Option<Value>| state.as_ref().map_or_else(String::new, |state| format!(" {state}"));
    Some(match event {
        ProviderEvent::Alive => return None,
        ProviderEvent::ResponseInfo(info) => format!("info {:?} {:?}", info.response_id, info.served_model),
        ProviderEvent::TextStart(block) => format!("{} text", block.index),
        ProviderEvent::ReasoningStart(block) => format!("{} reasoning", block.index),
        ProviderEvent::TextDelta(delta)
        | ProviderEvent::ReasoningDelta(delta)
        | ProviderEvent::ToolInputDelta(delta) => {
            format!("{} + {}", delta.index, delta.text)
        }
        ProviderEvent::TextEnd(end) | ProviderEvent::ReasoningEnd(end) => {
            format!("{} end{}", end.index, state(&end.state))
        }
        ProviderEvent::ToolInputStart(input) => format!("{} input {:?} {}", input.index, input.id, input.name),
        ProviderEvent::ToolInputEnd(end) => format!("{} input end", end.index),
        ProviderEvent::ToolInputMalformed(call) => {
            format!("{} malformed {:?} {} {}", call.index, call.id, call.name, call.raw)
        }
        ProviderEvent::ToolCall(call) => format!("{} call {:?} {} {}", call.index, call.id, call.name, call.input),
        ProviderEvent::Annotation(note) => format!("note {} {}", note.kind, note.data),
        ProviderEvent::Media(media) => format!("{} media {}", media.index, media.media.mime),
        ProviderEvent::Finish(finish) => {
            let usage = finish.usage.map_or_else(String::new, |usage| format!(" {}", json!(usage)));
            format!("finish {} {:?}{usage}", finish.reason.name(), finish.raw)
        }
        ProviderEvent::Error(error) => format!("error {error}"),
        other => format!("{other:?}"),
    })
}

fn check_in(dialect: &str, body: &str, expected: &[&str]) {
    let dialect = Dialect::named(dialect).unwrap();
    let body = body.as_bytes();
    assert_eq!(decode(&dialect, body, &[]), expected, "{}", String::from_utf8_lossy(body));
    let bytes: Vec<usize> = (1..body.len()).collect();
    assert_eq!(decode(&dialect, body, &bytes), expected, "byte by byte: {}", String::from_utf8_lossy(body));
    for cut in 0..body.len() {
        assert_eq!(decode(&dialect, body, &[cut]), expected, "split at {cut}");
    }
}

/// Decodes lines of data as a stream in the common dialect.
fn check(lines: &[Value], expected: &[&str]) {
    check_in("compatible", &stream(lines), expected);
}

fn stream(lines: &[Value]) -> String {
    let lines = lines.iter().map(|line| match line {
        Value::String(raw) => format!("data: {raw}\n\n"),
        json => format!("data: {json}\n\n"),
    });
    lines.collect()
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn done() -> Value {
    json!("[DONE]")
}

#[test]
fn text_reasoning_and_usage() {
    check(
        &[
            json!({"id": "", "model": "", "choices": [], "prompt_filter_results": []}),
            json!({"id": "r1", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}),
            delta(json!({"reasoning_content": "hm"})),
            delta(json!({"reasoning_content": null, "content": "a\"\n"})),
            delta(json!({"content": "é", "tool_calls": null, "refusal": ""})),
            finish("stop"),
            json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
                "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}}),
            done(),
        ],
        &[
            "info Some(\"r1\") Some(\"m\")",
            "0 reasoning",
            "0 + hm",
            "0 end",
            "1 text",
            "1 + a\"\n",
            "1 + é",
            "1 end",
            "finish stop Some(\"stop\") {\"cache_read\":4,\"input\":6,\"output\":3,\"reasoning\":2}",
        ],
    );
}

#[test]
fn reasoning_that_is_there_twice_counts_once() {
    let twice = json!({"reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]});
    let expected = ["0 reasoning", "0 + a", "0 end", "finish stop Some(\"stop\")"];
    check(&[delta(twice.clone()), finish("stop")], &expected);
    check(&[delta(json!({"reasoning": "a", "reasoning_content": "a"})), finish("stop")], &expected);
    check(&[delta(json!({"reasoning_details": [{"type": "reasoning.text", "text": "a"}]})), finish("stop")], &expected);
    check_in(
        "openrouter",
        &stream(&[
            delta(twice),
            delta(
                json!({"reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0, "signature": null}]}),
            ),
            delta(json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "s"}]})),
            delta(json!({"content": "x", "reasoning_details": []})),
            delta(json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "zz", "index": 1}]})),
            finish("stop"),
        ]),
        &[
            "0 reasoning",
            "0 + a",
            "0 + b",
            "0 end {\"reasoning_details\":[{\"index\":0,\"signature\":\"s\",\"text\":\"ab\",\"type\":\"reasoning.text\"}]}",
            "1 text",
            "1 + x",
            "1 end",
            "2 reasoning",
            "2 end {\"reasoning_details\":[{\"data\":\"zz\",\"index\":1,\"type\":\"reasoning.encrypted\"}]}",
            "finish stop Some(\"stop\")",
        ],
    );
    check_in(
        "mistral",
        &stream(&[
            delta(json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]})),
            delta(json!({"content": [{"type": "text", "text": "b"}, {"type": "reference", "reference_ids": [1]}]})),
            json!({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "model_length"}]}),
        ]),
        &["0 reasoning", "0 + a", "0 end", "1 text", "1 + b", "1 end", "finish length Some(\"model_length\")"],
    );
}

#[test]
fn a_refusal() {
    check(
        &[delta(json!({"refusal": "I will"})), delta(json!({"refusal": " not."})), finish("stop"), done()],
        &["0 text", "0 + I will", "0 +  not.", "0 end {\"refusal\":true}", "finish refusal Some(\"stop\")"],
    );
}

#[test]
fn a_finish_is_given_once_at_the_end_and_never_made_up() {
    check(&[delta(json!({"content": "a"})), done()], &["0 text", "0 + a", "0 end"]);
    check(&[delta(json!({"content": "a"}))], &["0 text", "0 + a", "0 end"]);
    check(&[], &[]);
    // Text goes on behind an early finish; usage that comes twice counts once.
    check(
        &[
            delta(json!({"content": "a"})),
            finish("stop"),
            json!({"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}),
            json!({"choices": [{"delta": {}, "finish_reason": ""}], "usage": {"prompt_tokens": 2, "completion_tokens": -1}}),
            done(),
            json!({"choices": [], "cost": 1}),
            done(),
        ],
        &["0 text", "0 + a", "0 + b", "0 end", "finish stop Some(\"stop\") {\"input\":2,\"output\":0}"],
    );
    check(&[finish("nonsense"), done()], &["finish unknown Some(\"nonsense\")"]);
    // One dialect never sends a reason: there the mark is the finish.
    let body = stream(&[delta(json!({"content": "a"})), json!({"choices": [], "usage": {"prompt_tokens": 3}}), done()]);
    check_in("snowflake", &body, &["0 text", "0 + a", "0 end", "finish stop None {\"input\":3}"]);
    let body = stream(&[delta(json!({"content": "a"}))]);
    check_in("snowflake", &body, &["0 text", "0 + a", "0 end"]);
}

fn fragment(index: Option<i64>, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
    let mut function = json!({"arguments": arguments});
    if let Some(name) = name {
        function["name"] = json!(name);
    }
    let mut fragment = json!({"type": "function", "function": function});
    if let Some(index) = index {
        fragment["index"] = json!(index);
    }
    if let Some(id) = id {
        fragment["id"] = json!(id);
    }
    delta(json!({"tool_calls": [fragment]}))
}

/// Calls from pieces, and what they must be at the end: (id, name, input).
fn check_calls(pieces: &[Value], expected: &[(&str, &str, Value)]) {
    let mut lines = pieces.to_vec();
    lines.extend([finish("tool_calls"), done()]);
    let dialect = Arc::new(Dialect::default());
    let body = stream(&lines);
    let out = decode(&dialect, body.as_bytes(), &[]);
    let bytes: Vec<usize> = (1..body.len()).collect();
    assert_eq!(decode(&dialect, body.as_bytes(), &bytes), out);
    let mut calls: Vec<String> = out.iter().filter_map(|line| Some(line.split_once(" call ")?.1.to_owned())).collect();
    let mut expected: Vec<String> = expected.iter().map(|(id, name, input)| format!("{id:?} {name} {input}")).collect();
    calls.sort();
    expected.sort();
    assert_eq!(calls, expected, "{out:#?}");
    assert!(out.last().unwrap().starts_with("finish tool_calls"), "{out:#?}");
}

#[test]
fn calls_whose_labels_cannot_be_trusted() {
    let f = fragment;
    let (a, b) = (json!({"x": 1}), json!({"y": "}\""}));
    let two = [("a", "f", a.clone()), ("b", "g", b.clone())];
    // As OpenAI sends them.
    check_calls(
        &[
            f(Some(0), Some("a"), Some("f"), ""),
            f(Some(0), None, None, "{\"x\":"),
            f(Some(0), None, None, "1}"),
            f(Some(1), Some("b"), Some("g"), ""),
            f(Some(1), None, None, "{\"y\":\"}\\\"\"}"),
        ],
        &two,
    );
    // Interleaved, by index; starting at 7.
    check_calls(
        &[
            f(Some(7), Some("a"), Some("f"), ""),
            f(Some(8), Some("b"), Some("g"), ""),
            f(Some(7), None, None, "{\"x\":"),
            f(Some(8), None, None, "{\"y\":"),
            f(Some(7), None, None, "1}"),
            f(Some(8), None, None, "\"}\\\"\"}"),
        ],
        &two,
    );
    // Interleaved, by id alone.
    check_calls(
        &[
            f(None, Some("a"), Some("f"), "{\"x\""),
            f(None, Some("b"), Some("g"), "{\"y\":"),
            f(None, Some("a"), None, ":1}"),
            f(None, Some("b"), None, "\"}\\\"\"}"),
        ],
        &two,
    );
    // No index at all, whole calls.
    check_calls(&[f(None, Some("a"), Some("f"), "{\"x\":1}"), f(None, Some("b"), Some("g"), &b.to_string())], &two);
    // No index on what goes on.
    check_calls(
        &[
            f(Some(0), Some("a"), Some("f"), "{"),
            f(None, None, None, "\"x\":1}"),
            f(Some(1), Some("b"), Some("g"), "{\"y\""),
            f(None, None, None, ":\"}\\\"\"}"),
        ],
        &two,
    );
    // Index 0 for every call.
    check_calls(
        &[
            f(Some(0), Some("a"), Some("f"), "{\"x\":1}"),
            f(Some(0), Some("b"), Some("g"), "{\"y\":"),
            f(Some(0), None, None, "\"}\\\"\"}"),
        ],
        &two,
    );
    // Index 0 for every call, and no ids: a name behind a whole call opens another.
    check_calls(
        &[
            f(Some(0), None, Some("f"), "{\"x\":1}"),
            f(Some(0), None, Some("f"), ""),
            f(Some(0), None, None, &b.to_string()),
        ],
        &[("", "f", a.clone()), ("", "f", b.clone())],
    );
    // No label but names.
    check_calls(
        &[f(None, None, Some("f"), "{\"x\":1}"), f(None, None, Some("f"), &b.to_string())],
        &[("", "f", a.clone()), ("", "f", b.clone())],
    );
    // Blank ids and names later.
    check_calls(
        &[
            f(Some(0), Some("a"), Some("f"), "{\"x\""),
            f(Some(0), Some(""), Some(""), ":1}"),
            f(Some(1), Some("b"), Some("g"), &b.to_string()),
        ],
        &two,
    );
    // The id comes late.
    check_calls(&[f(Some(0), None, Some("f"), "{\"x\""), f(Some(0), Some("a"), None, ":1}")], &[("a", "f", a)]);
    // The name comes late.
    check_calls(
        &[
            f(Some(0), Some("a"), None, ""),
            f(Some(0), None, Some("f"), "{\"x\":1}"),
            f(Some(1), Some("b"), None, "{\"y\":"),
            f(Some(1), None, Some("g"), "\"}\\\"\"}"),
        ],
        &two,
    );
}

#[test]
fn calls_whose_labels_come_twice() {
    let f = fragment;
    let (a, b) = (json!({"x": 1}), json!({"y": "}\""}));
    // The same id twice: under two indexes, and whole.
    check_calls(
        &[
            f(Some(0), Some("a"), Some("f"), "{\"x\":1}"),
            f(Some(1), Some("a"), Some("f"), "{}"),
            f(Some(1), Some("a"), None, ""),
        ],
        &[("a", "f", a.clone()), ("a", "f", json!({}))],
    );
    check_calls(
        &[f(None, Some("a"), Some("f"), "{\"x\":1}"), f(None, Some("a"), Some("f"), &b.to_string())],
        &[("a", "f", a.clone()), ("a", "f", b.clone())],
    );
    // The same id twice, interleaved: without the id on what goes on, and with it.
    for id in [None, Some("a")] {
        check_calls(
            &[
                f(Some(0), Some("a"), Some("f"), ""),
                f(Some(1), Some("a"), Some("f"), ""),
                f(Some(0), id, None, "{\"x\":1}"),
                f(Some(1), id, None, &b.to_string()),
            ],
            &[("a", "f", a.clone()), ("a", "f", b.clone())],
        );
    }
    // All labels with every piece.
    check_calls(
        &[
            f(Some(0), Some("a"), Some("f"), "{\"x\""),
            f(Some(0), Some("a"), Some("f"), ":1}"),
            f(Some(0), Some("a"), Some("f"), ""),
        ],
        &[("a", "f", a.clone())],
    );
    // Another id with every piece.
    check_calls(
        &[f(Some(0), Some("a"), Some("f"), "{\"x\""), f(Some(0), Some("c"), None, ":1}")],
        &[("a", "f", a.clone())],
    );
    // A number for an id; arguments as an object, and as nothing.
    check_calls(
        &[
            delta(json!({"tool_calls": [{"id": 5, "function": {"name": "f", "arguments": {"x": 1}}}]})),
            delta(json!({"tool_calls": [{"id": 6, "function": {"name": "g", "arguments": null}}]})),
            delta(json!({"tool_calls": [{"id": 7, "function": {"name": "h"}}]})),
        ],
        &[("5", "f", a.clone()), ("6", "g", json!({})), ("7", "h", json!({}))],
    );
    // As they were before there were several.
    check_calls(
        &[
            delta(json!({"function_call": {"name": "f", "arguments": "{\"x\""}})),
            delta(json!({"function_call": {"arguments": ":1}"}})),
        ],
        &[("", "f", a)],
    );
}

#[test]
fn every_interleaving_of_two_calls_by_index() {
    let pieces = |index: i64, id: &str, name: &str| {
        [
            fragment(Some(index), Some(id), Some(name), ""),
            fragment(Some(index), None, None, "{\"n\":"),
            fragment(Some(index), None, None, &format!("{index}}}")),
        ]
    };
    let (a, b) = (pieces(0, "a", "f"), pieces(1, "b", "g"));
    for pattern in 0..64_u32 {
        if pattern.count_ones() != 3 {
            continue;
        }
        let (mut from_a, mut from_b) = (a.iter(), b.iter());
        let order = (0..6).map(|bit| if pattern & (1 << bit) == 0 { from_a.next() } else { from_b.next() });
        let lines: Vec<Value> = order.map(|piece| piece.unwrap().clone()).collect();
        check_calls(&lines, &[("a", "f", json!({"n": 0})), ("b", "g", json!({"n": 1}))]);
    }
}

#[test]
fn when_arguments_are_closed() {
    let call = |arguments: &str| fragment(Some(0), Some("a"), Some("f"), arguments);
    let open = ["0 input \"a\" f", "0 + {\"x\":1}"];
    // At the end, behind a finish, in the order of the calls; not at the finish itself.
    check(
        &[call("{\"x\":1}"), finish("tool_calls"), delta(json!({"content": "t"})), done()],
        &[
            open[0],
            open[1],
            "1 text",
            "1 + t",
            "1 end",
            "0 input end",
            "0 call \"a\" f {\"x\":1}",
            "finish tool_calls Some(\"tool_calls\")",
        ],
    );
    for (arguments, reason) in [("", "stop"), ("null", "tool_calls"), (" ", "function_call")] {
        let body = stream(&[call(arguments), finish(reason)]);
        let out = decode(&Arc::new(Dialect::default()), body.as_bytes(), &[]);
        assert!(out.contains(&"0 call \"a\" f {}".to_owned()), "{out:?}");
    }
    // Another call opens behind a whole one; an empty one waits for its end.
    check(
        &[
            call("{\"x\":1}"),
            fragment(Some(1), Some("b"), Some("g"), "{}"),
            fragment(Some(2), Some("c"), Some("h"), ""),
            finish("length"),
            done(),
        ],
        &[
            open[0],
            open[1],
            "0 input end",
            "0 call \"a\" f {\"x\":1}",
            "1 input \"b\" g",
            "1 + {}",
            "2 input \"c\" h",
            "finish length Some(\"length\")",
        ],
    );
    // Cut off, filtered, unknown, without a finish, behind an error: what is open stays open.
    for reason in ["length", "content_filter", "nonsense"] {
        for arguments in ["", "{\"x\":1}", "{\"x\":"] {
            let out = decode(
                &Arc::new(Dialect::default()),
                stream(&[call(arguments), finish(reason), done()]).as_bytes(),
                &[],
            );
            assert!(!out.iter().any(|line| line.contains("call") || line.contains("malformed")), "{reason}: {out:?}");
        }
    }
    check(&[call("{\"x\":1}"), done()], &open);
    check(
        &[call("{\"x\":1}"), finish("tool_calls"), json!({"error": {"message": "no"}}), done()],
        &[open[0], open[1], "error unknown: no"],
    );
    // What is no object is malformed, not mended.
    for raw in ["{\"x\":", "[1]", "7", "{}{\"x\":1}", "\"{}\""] {
        let malformed = format!("0 malformed \"a\" f {raw}");
        let out = decode(&Arc::new(Dialect::default()), stream(&[call(raw), finish("stop")]).as_bytes(), &[]);
        assert_eq!(out, ["0 input \"a\" f", &format!("0 + {raw}"), &malformed, "finish stop Some(\"stop\")"]);
    }
    // Arguments behind their end, and a call without a name, are errors.
    check(
        &[call("{\"x\":1}"), fragment(Some(1), Some("b"), Some("g"), ""), fragment(Some(0), None, None, "{}"), done()],
        &[
            open[0],
            open[1],
            "0 input end",
            "0 call \"a\" f {\"x\":1}",
            "1 input \"b\" g",
            "failed invalid_output: the arguments of the call \"a\" (\"f\") go on behind their end: {}",
        ],
    );
    check(
        &[fragment(Some(0), Some("a"), None, "{}"), finish("stop"), done()],
        &["failed invalid_output: the call \"a\" has no name; its arguments are: {}"],
    );
}

#[test]
fn errors_inside_a_stream() {
    let text = delta(json!({"content": "a"}));
    let before = ["0 text", "0 + a", "0 end"];
    let check = |body: String, expected: &str| {
        check_in("compatible", &body, &[before[0], before[1], before[2], expected]);
    };
    let with = |line: Value| stream(&[text.clone(), line, finish("stop"), done()]);
    check(
        with(json!({"error": {"message": "Busy.", "code": "server_is_overloaded"}})),
        "error overloaded: Busy. (code server_is_overloaded)",
    );
    check(
        with(json!({"error": {"message": "It is full.", "code": "context_length_exceeded"}})),
        "error context_overflow: It is full. (code context_length_exceeded)",
    );
    check(
        with(json!({"error": "input has 31430 tokens, context 30000"})),
        "error context_overflow: input has 31430 tokens, context 30000",
    );
    check(
        with(json!({"object": "error", "message": "No.", "type": "BadRequestError", "code": 400})),
        "error invalid_request: No. (status 400, code BadRequestError)",
    );
    check(with(json!({"detail": "No."})), "error unknown: No.");
    check(with(json!({"message": "No.", "type": "t"})), "error unknown: No. (code t)");
    check(
        with(
            json!({"choices": [{"delta": {"content": ""}, "finish_reason": "error"}], "error": {"code": 502, "message": "Upstream."}}),
        ),
        "error overloaded: Upstream. (status 502)",
    );
    let named = format!(
        "{}event: error\ndata: {{\"error\":{{\"message\":\"No.\",\"status_code\":400}}}}\n\n",
        stream(std::slice::from_ref(&text))
    );
    check(named, "error invalid_request: No. (status 400)");
}

#[test]
fn lines_that_are_known_and_unknown() {
    let text = delta(json!({"content": "a"}));
    let rest = ["0 text", "0 + a", "0 end"];
    let body = format!(
        ": OPENROUTER PROCESSING\n\nevent: ping\ndata: {{}}\n\ndata: {{\"type\":\"ping\",\"cost\":\"0\"}}\n\n{}",
        stream(std::slice::from_ref(&text))
    );
    check_in("compatible", &body, &rest);
    let failing = |line: &str, expected: &str| {
        let body = stream(&[text.clone(), json!(line), done()]);
        let offset = body.find(line).unwrap();
        let expected = expected.replace("{offset}", &offset.to_string());
        let out = decode(&Arc::new(Dialect::default()), body.as_bytes(), &[]);
        assert_eq!(out[..2], rest[..2]);
        assert!(out[2].starts_with(&expected) && out.len() == 3, "{out:?} is not {expected}");
    };
    failing(
        "garbage",
        "failed invalid_output: a line is no chunk (expected value at line 1 column 1) at byte {offset} of the body: garbage",
    );
    failing("{\"choices\":[{\"delta\":{\"content\":", "failed invalid_output: a line is no chunk (EOF while");
    failing(
        "{\"choices\":\"x\"}",
        "failed invalid_output: a line is no chunk (invalid type: string \"x\", expected a list of choices or null",
    );
    failing(
        "{\"choices\":[{\"delta\":{\"content\":7}}]}",
        "failed invalid_output: a line is no chunk (invalid type: integer `7`",
    );
    failing(
        "{\"choices\":[{\"delta\":{\"content\":[{\"type\":\"hologram\"}]}}]}",
        "failed invalid_output: a part of the content has an unknown type",
    );
    failing(
        "{\"hello\":1}",
        "failed invalid_output: a line is neither chunk, error nor ping at byte {offset} of the body: {\"hello\":1}",
    );
    failing("[1]", "failed invalid_output: a line is neither chunk, error nor ping");
    let body = [stream(std::slice::from_ref(&text)).as_bytes(), b"data: \xff\n\n"].concat();
    let out = decode(&Arc::new(Dialect::default()), &body, &[]);
    assert_eq!(out[2], format!("failed invalid_output: byte {} of the body is not UTF-8", body.len() - 3));
}

#[test]
fn a_call_that_never_gets_a_name_has_no_block() {
    let image = json!({"images": [{"image_url": {"url": "https://a.example/x"}}]});
    check(
        &[fragment(Some(0), Some("a"), None, "{}"), delta(image), finish("stop")],
        &["0 media image/*", "failed invalid_output: the call \"a\" has no name; its arguments are: {}"],
    );
}

#[test]
fn a_stream_that_is_cut_at_every_byte_runs_no_call_and_has_no_finish() {
    let body = stream(&[
        delta(json!({"content": "aé"})),
        fragment(Some(0), Some("a"), Some("f"), ""),
        fragment(Some(0), None, None, "{\"x\":\"é\"}"),
        finish("tool_calls"),
        json!({"choices": [], "usage": {"prompt_tokens": 1}}),
        done(),
    ]);
    let behind_finish = body.find("\"usage\"").unwrap() - "data: {\"choices\":[],".len();
    for end in 0..body.len() {
        let out = decode(&Arc::new(Dialect::default()), &body.as_bytes()[..end], &[]);
        let called = out.iter().any(|line| line.contains("call ") || line.contains("finish"));
        // The whole line of the finish has come, its line ends perhaps not.
        assert_eq!(called, end + 2 >= behind_finish, "cut at {end}: {out:?}");
        assert!(!out.iter().any(|line| line.contains("failed") || line.contains("malformed")), "cut at {end}: {out:?}");
    }
}

#[test]
fn bodies_that_are_no_stream() {
    check_in(
        "azure",
        "\u{feff}\n {\"error\":{\"message\":\"We do not.\",\"type\":null,\"code\":\"content_filter\",\"status\":400}}",
        &["error content_policy: We do not. (status 400, code content_filter)"],
    );
    check_in(
        "compatible",
        "[{\"error\":{\"code\":429,\"message\":\"Slow.\"}}]",
        &["error rate_limit: Slow. (status 429)"],
    );
    let answer = json!({"id": "r", "object": "chat.completion", "model": "m", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": "a", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2}});
    check_in(
        "compatible",
        &answer.to_string(),
        &[
            "info Some(\"r\") Some(\"m\")",
            "0 text",
            "0 + a",
            "0 end",
            "1 input \"c\" f",
            "1 + {\"x\":1}",
            "1 input end",
            "1 call \"c\" f {\"x\":1}",
            "finish tool_calls Some(\"tool_calls\") {\"input\":1,\"output\":2}",
        ],
    );
    let markup = "failed invalid_output: the server answered with a page of markup instead of a stream: check --base-url, and whether a proxy or a login page is in the way";
    check_in("compatible", "\r\n<!doctype html><html></html>", &[markup]);
    let out = decode(&Arc::new(Dialect::default()), b"{\"hello\":", &[]);
    assert_eq!(
        out,
        [
            "failed invalid_output: the body is a document that is neither answer nor error at byte 0 of the body: {\"hello\":"
        ]
    );
}

#[test]
fn what_stands_beside_the_answer() {
    check(
        &[
            json!({"choices": [{"delta": {"content": "a"}, "message": {"content": "a"}}], "citations": ["u1"]}),
            json!({"choices": [{"delta": {"content": "b"}, "message": {"content": "ab"}, "finish_reason": "stop"}],
                "citations": ["u1", "u2"], "search_results": [{"url": "u1"}]}),
        ],
        &[
            "0 text",
            "0 + a",
            "0 + b",
            "0 end",
            "note citation \"u1\"",
            "note citation \"u2\"",
            "note source {\"url\":\"u1\"}",
            "finish stop Some(\"stop\")",
        ],
    );
    check(
        &[
            delta(json!({"annotations": [{"type": "url_citation", "url_citation": {"url": "u"}}]})),
            delta(json!({"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]})),
            json!({"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "length"}]}),
            finish("stop"),
        ],
        &[
            "note url_citation {\"type\":\"url_citation\",\"url_citation\":{\"url\":\"u\"}}",
            "0 media image/png",
            "finish stop Some(\"stop\")",
        ],
    );
}

#[test]
fn usage_of_who_leaves_reasoning_out() {
    let body = |total: u64| {
        stream(&[
            finish("stop"),
            json!({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 1, "total_tokens": total,
            "completion_tokens_details": {"reasoning_tokens": 290}}}),
        ])
    };
    let apart = "finish stop Some(\"stop\") {\"input\":12,\"output\":1,\"reasoning\":290}";
    check_in("xai", &body(303), &[apart]);
    check_in("compatible", &body(303), &[apart]);
    check_in("compatible", &body(13), &["finish stop Some(\"stop\") {\"input\":12,\"output\":0,\"reasoning\":290}"]);
}

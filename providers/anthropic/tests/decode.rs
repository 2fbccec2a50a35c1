//! The decoder's rules, one by one, on bodies of our own: each whole, byte by byte and at every split.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use settled_provider_anthropic::{Dialect, MessagesDecoder};
use settled_provider_api::{Content, ProviderEvent};
use settled_provider_wire::Decoder;

/// What a body decodes to when it is cut at these places: one line per event, signs of life left out.
fn decode(body: &[u8], cuts: &[usize]) -> Vec<String> {
    let mut decoder = MessagesDecoder::new(Dialect::named("anthropic").unwrap());
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
    let hosted = |hosted: bool| if hosted { " hosted" } else { "" };
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
        ProviderEvent::ToolInputStart(input) => {
            format!("{} input {:?} {}{}", input.index, input.id, input.name, hosted(input.hosted))
        }
        ProviderEvent::ToolInputEnd(end) => format!("{} input end", end.index),
        ProviderEvent::ToolInputMalformed(call) => {
            format!("{} malformed {:?} {} {}{}", call.index, call.id, call.name, call.raw, hosted(call.hosted))
        }
        ProviderEvent::ToolCall(call) => format!(
            "{} call {:?} {} {}{}{}",
            call.index,
            call.id,
            call.name,
            call.input,
            hosted(call.hosted),
            state(&call.state)
        ),
        ProviderEvent::HostedResult(result) => {
            let texts: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
            format!("result {:?} {texts:?}{}", result.id, state(&result.state))
        }
        ProviderEvent::HostedError(error) => {
            format!("hosted error {:?} {:?}{}", error.id, error.message, state(&error.state))
        }
        ProviderEvent::Annotation(note) => format!("note {:?} {} {}", note.index, note.kind, note.data),
        ProviderEvent::Finish(finish) => {
            let usage = finish.usage.map_or_else(String::new, |usage| format!(" {}", json!(usage)));
            let raw = finish.raw.as_deref().unwrap_or_default();
            format!("finish {} {raw}{usage}{}", finish.reason.name(), state(&finish.state))
        }
        ProviderEvent::Error(error) => format!("error {error}"),
        other => format!("{other:?}"),
    })
}

/// Checks a body at every split.
fn check_body(body: &str, expected: &[&str]) {
    let body = body.as_bytes();
    assert_eq!(decode(body, &[]), expected, "{}", String::from_utf8_lossy(body));
    let bytes: Vec<usize> = (1..body.len()).collect();
    assert_eq!(decode(body, &bytes), expected, "byte by byte: {}", String::from_utf8_lossy(body));
    for cut in 0..body.len() {
        assert_eq!(decode(body, &[cut]), expected, "split at {cut}");
    }
}

/// Checks lines of data as a stream.
fn check(lines: &[Value], expected: &[&str]) {
    check_body(&stream(lines), expected);
}

fn stream(lines: &[Value]) -> String {
    let lines = lines.iter().map(|line| match line {
        Value::String(raw) => format!("data: {raw}\n\n"),
        json => format!("event: {}\ndata: {json}\n\n", json["type"].as_str().unwrap_or("message")),
    });
    lines.collect()
}

fn begin(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn piece(index: u64, kind: &str, field: &str, piece: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": kind, field: piece}})
}

fn text(index: u64, text: &str) -> Value {
    piece(index, "text_delta", "text", text)
}

fn input(index: u64, text: &str) -> Value {
    piece(index, "input_json_delta", "partial_json", text)
}

fn end(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn call(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "f", "input": {}})
}

fn finish(reason: &str) -> Value {
    json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}})
}

fn stop() -> Value {
    json!({"type": "message_stop"})
}

fn empty_text() -> Value {
    json!({"type": "text", "text": ""})
}

#[test]
fn text_reasoning_and_usage() {
    check(
        &[
            json!({"type": "message_start", "message": {"id": "m1", "model": "m", "content": [],
                "usage": {"input_tokens": 10, "cache_read_input_tokens": 4, "output_tokens": 1, "service_tier": "standard"}}}),
            begin(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            json!({"type": "ping"}),
            piece(0, "thinking_delta", "thinking", "hm"),
            piece(0, "thinking_delta", "thinking", ""),
            piece(0, "signature_delta", "signature", "si"),
            piece(0, "signature_delta", "signature", "g"),
            end(0),
            begin(1, json!({"type": "redacted_thinking", "data": "zz"})),
            end(1),
            begin(2, json!({"type": "thinking", "thinking": ""})),
            piece(2, "signature_delta", "signature", "s2"),
            end(2),
            begin(3, json!({"type": "thinking", "thinking": ""})),
            end(3),
            begin(4, json!({"type": "text", "text": "a\"\n"})),
            text(4, "é"),
            text(4, ""),
            end(4),
            begin(5, empty_text()),
            end(5),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"input_tokens": 12, "cache_read_input_tokens": null,
                "cache_creation_input_tokens": -1, "output_tokens": 7, "output_tokens_details": {"thinking_tokens": 2}}}),
            stop(),
        ],
        &[
            "info Some(\"m1\") Some(\"m\")",
            "0 reasoning",
            "0 + hm",
            "0 end {\"signature\":\"sig\"}",
            "1 reasoning",
            "1 end {\"block\":{\"data\":\"zz\",\"type\":\"redacted_thinking\"}}",
            "2 reasoning",
            "2 end {\"signature\":\"s2\"}",
            "3 text",
            "3 + a\"\n",
            "3 + é",
            "3 end",
            "finish stop end_turn {\"cache_read\":4,\"cache_write\":0,\"input\":12,\"output\":5,\"reasoning\":2}",
        ],
    );
}

#[test]
fn finishes() {
    for (raw, ours) in [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("compaction", "pause"),
        ("anything", "unknown"),
    ] {
        check(&[finish(raw), stop()], &[&format!("finish {ours} {raw}")]);
    }
    check(
        &[
            json!({"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": {"category": "x"},
                "container": {"id": "c"}}, "context_management": {"applied_edits": []}}),
            json!({"type": "message_delta", "delta": {"stop_reason": null, "stop_sequence": "END"}, "usage": {"output_tokens": 3}}),
            json!({"type": "message_delta", "usage": {"output_tokens": 4}}),
        ],
        &[
            "note None stop_details {\"category\":\"x\"}",
            "note None context_management {\"applied_edits\":[]}",
            "note None stop_sequence \"END\"",
            "finish refusal refusal {\"output\":4} {\"container\":{\"id\":\"c\"}}",
        ],
    );
}

#[test]
fn a_finish_is_given_once_at_the_end_and_never_made_up() {
    check(&[begin(0, empty_text()), text(0, "a"), stop()], &["0 text", "0 + a", "0 end"]);
    check(&[begin(0, empty_text()), text(0, "a")], &["0 text", "0 + a", "0 end"]);
    check(&[], &[]);
    check(&[json!("")], &[]);
    // An end without `message_stop`, and lines behind it.
    check(&[finish("end_turn")], &["finish stop end_turn"]);
    check(
        &[finish("end_turn"), stop(), json!("[DONE]"), json!({"type": "ping"}), begin(0, empty_text()), stop()],
        &["finish stop end_turn"],
    );
}

#[test]
fn calls() {
    check(
        &[
            begin(0, call("a")),
            input(0, ""),
            input(0, "{\"x\":"),
            input(0, "1}"),
            end(0),
            begin(1, json!({"type": "tool_use", "id": "b", "name": "f", "input": {}, "caller": {"type": "direct"}})),
            input(1, ""),
            end(1),
            begin(2, json!({"type": "tool_use", "id": "c", "name": "f", "input": {"given": 1}})),
            end(2),
            begin(3, call("d")),
            input(3, "[1]"),
            end(3),
            begin(4, call("e")),
            input(4, "null"),
            end(4),
            finish("tool_use"),
            stop(),
        ],
        &[
            "0 input \"a\" f",
            "0 + {\"x\":",
            "0 + 1}",
            "0 input end",
            "0 call \"a\" f {\"x\":1}",
            "1 input \"b\" f",
            "1 input end",
            "1 call \"b\" f {} {\"block\":{\"caller\":{\"type\":\"direct\"},\"type\":\"tool_use\"}}",
            "2 input \"c\" f",
            "2 + {\"given\":1}",
            "2 input end",
            "2 call \"c\" f {\"given\":1}",
            "3 input \"d\" f",
            "3 + [1]",
            "3 malformed \"d\" f [1]",
            "4 input \"e\" f",
            "4 + null",
            "4 input end",
            "4 call \"e\" f {}",
            "finish tool_calls tool_use",
        ],
    );
    // Interleaved, and without ends, which some servers leave out.
    check(
        &[begin(0, call("a")), begin(1, call("b")), input(0, "{\"a\":1}"), input(1, "{\"b\":2}"), finish("tool_use")],
        &[
            "0 input \"a\" f",
            "1 input \"b\" f",
            "0 + {\"a\":1}",
            "1 + {\"b\":2}",
            "0 input end",
            "0 call \"a\" f {\"a\":1}",
            "1 input end",
            "1 call \"b\" f {\"b\":2}",
            "finish tool_calls tool_use",
        ],
    );
    check(
        &[begin(0, call("a")), input(0, "{\"a\":1}"), begin(0, call("b")), finish("tool_use")],
        &[
            "0 input \"a\" f",
            "0 + {\"a\":1}",
            "0 input end",
            "0 call \"a\" f {\"a\":1}",
            "1 input \"b\" f",
            "1 input end",
            "1 call \"b\" f {}",
            "finish tool_calls tool_use",
        ],
    );
    // Arguments as an object, from a gateway.
    let object = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": {"a": 1}}});
    check(
        &[begin(0, call("")), object, end(0)],
        &["0 input \"\" f", "0 + {\"a\":1}", "0 input end", "0 call \"\" f {\"a\":1}"],
    );
}

#[test]
fn arguments_that_are_not_closed_make_no_call() {
    // The wire ends the block of a call that was cut off, too.
    for reason in ["max_tokens", "model_context_window_exceeded", "refusal", "stop_sequence", "anything"] {
        let ours = Dialect::default().finish_reason(reason).name();
        let finished = format!("finish {ours} {reason}");
        for arguments in ["", "null", "{\"x\":", "{\"x\":1", "[1]"] {
            let delta = format!("0 + {arguments}");
            let mut expected = vec!["0 input \"a\" f", &delta, &finished];
            expected.retain(|line| *line != "0 + ");
            check(&[begin(0, call("a")), input(0, arguments), end(0), finish(reason), stop()], &expected);
            check(&[begin(0, call("a")), input(0, arguments), finish(reason)], &expected);
        }
        // A whole object was closed by the model.
        check(
            &[begin(0, call("a")), input(0, "{}"), end(0), finish(reason)],
            &["0 input \"a\" f", "0 + {}", "0 input end", "0 call \"a\" f {}", &finished],
        );
        // So was whatever has a block behind it.
        check(
            &[begin(0, call("a")), end(0), begin(1, call("b")), input(1, "{"), end(1), finish(reason)],
            &["0 input \"a\" f", "0 input end", "0 call \"a\" f {}", "1 input \"b\" f", "1 + {", &finished],
        );
    }
    check(
        &[begin(0, call("a")), input(0, "{\"x\":"), end(0), finish("tool_use")],
        &["0 input \"a\" f", "0 + {\"x\":", "0 malformed \"a\" f {\"x\":", "finish tool_calls tool_use"],
    );
    // No finish at all, and an error.
    check(&[begin(0, call("a")), end(0)], &["0 input \"a\" f"]);
    check(&[begin(0, call("a")), end(0), stop()], &["0 input \"a\" f"]);
    check(
        &[
            begin(0, call("a")),
            end(0),
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "Busy."}}),
        ],
        &["0 input \"a\" f", "error overloaded: Busy. (code overloaded_error)"],
    );
}

#[test]
fn hosted_tools() {
    let search = json!({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}});
    let found = json!([{"type": "web_search_result", "title": "T", "url": "u", "encrypted_content": "zz"}]);
    check(
        &[
            begin(0, search.clone()),
            input(0, "{\"query\":\"q\"}"),
            end(0),
            begin(1, json!({"type": "web_search_tool_result", "tool_use_id": "s1", "content": found})),
            end(1),
            begin(2, json!({"type": "mcp_tool_use", "id": "s2", "name": "ask", "server_name": "wiki", "input": {}})),
            end(2),
            begin(
                3,
                json!({"type": "mcp_tool_result", "tool_use_id": "s2", "is_error": true, "content": [{"type": "text", "text": "No."}]}),
            ),
            end(3),
            begin(
                4,
                json!({"type": "web_fetch_tool_result", "tool_use_id": "s0", "content": {"type": "web_fetch_tool_result_error", "error_code": "url_not_allowed"}}),
            ),
            end(4),
            begin(5, search),
            end(5),
            finish("pause_turn"),
            stop(),
        ],
        &[
            "0 input \"s1\" web_search hosted",
            "0 + {\"query\":\"q\"}",
            "0 input end",
            "0 call \"s1\" web_search {\"query\":\"q\"} hosted {\"block\":{\"type\":\"server_tool_use\"}}",
            "result \"s1\" [\"T\\nu\"] {\"block\":{\"content\":[{\"encrypted_content\":\"zz\",\"title\":\"T\",\"type\":\"web_search_result\",\"url\":\"u\"}],\"type\":\"web_search_tool_result\"}}",
            "1 input \"s2\" ask hosted",
            "1 input end",
            "1 call \"s2\" ask {} hosted {\"block\":{\"server_name\":\"wiki\",\"type\":\"mcp_tool_use\"}}",
            "hosted error \"s2\" \"No.\" {\"block\":{\"content\":[{\"text\":\"No.\",\"type\":\"text\"}],\"is_error\":true,\"type\":\"mcp_tool_result\"}}",
            "hosted error \"s0\" \"url_not_allowed\" {\"block\":{\"content\":{\"error_code\":\"url_not_allowed\",\"type\":\"web_fetch_tool_result_error\"},\"type\":\"web_fetch_tool_result\"}}",
            "2 input \"s1\" web_search hosted",
            "2 input end",
            "2 call \"s1\" web_search {} hosted {\"block\":{\"type\":\"server_tool_use\"}}",
            "finish pause pause_turn",
        ],
    );
    // Malformed, and hosted all the same.
    check(
        &[
            begin(0, json!({"type": "server_tool_use", "id": "s", "name": "n"})),
            input(0, "{"),
            end(0),
            finish("end_turn"),
        ],
        &["0 input \"s\" n hosted", "0 + {", "0 malformed \"s\" n { hosted", "finish stop end_turn"],
    );
}

#[test]
fn what_hosted_results_show() {
    let show = |kind: &str, content: Value| {
        let block = json!({"type": kind, "tool_use_id": "s", "content": content});
        let lines = decode(stream(&[begin(0, block)]).as_bytes(), &[]);
        lines[0].split(" {\"block\"").next().unwrap().to_owned()
    };
    let check = |kind: &str, content: Value, expected: &str| assert_eq!(show(kind, content), expected);
    check(
        "bash_code_execution_tool_result",
        json!({"type": "bash_code_execution_result", "stdout": "4\n", "stderr": "warned", "return_code": 0, "content": []}),
        "result \"s\" [\"4\\nwarned\"]",
    );
    check(
        "web_fetch_tool_result",
        json!({"type": "web_fetch_result", "url": "u", "content": {"type": "document", "title": "T",
            "source": {"type": "text", "data": "page"}}}),
        "result \"s\" [\"T\\nu\\npage\"]",
    );
    check("advisor_tool_result", json!({"type": "advisor_result", "text": "go"}), "result \"s\" [\"go\"]");
    check(
        "tool_search_tool_result",
        json!({"type": "tool_search_tool_search_result", "tool_references": []}),
        "result \"s\" [\"{\\\"tool_references\\\":[],\\\"type\\\":\\\"tool_search_tool_search_result\\\"}\"]",
    );
    check(
        "code_execution_tool_result",
        json!({"type": "encrypted_code_execution_result", "encrypted_stdout": "zz", "return_code": 1}),
        "result \"s\" [\"{\\\"return_code\\\":1,\\\"type\\\":\\\"encrypted_code_execution_result\\\"}\"]",
    );
}

#[test]
fn citations_and_blocks_that_go_back_as_they_came() {
    let cited = |citation: Value| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": citation}});
    check(
        &[
            begin(0, json!({"type": "text", "text": "", "citations": []})),
            cited(json!({"type": "page_location", "cited_text": "c"})),
            text(0, "a"),
            end(0),
            begin(1, json!({"type": "compaction", "content": null})),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "compaction_delta", "content": "sum"}}),
            json!({"type": "content_block_delta", "index": 1, "delta": {"type": "compaction_delta", "content": "mary", "encrypted_content": "zz"}}),
            end(1),
            begin(2, json!({"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}})),
            end(2),
            finish("end_turn"),
        ],
        &[
            "0 text",
            "note Some(0) page_location {\"cited_text\":\"c\",\"type\":\"page_location\"}",
            "0 + a",
            "0 end {\"citations\":[{\"cited_text\":\"c\",\"type\":\"page_location\"}]}",
            "1 reasoning",
            "1 end {\"block\":{\"content\":\"summary\",\"encrypted_content\":\"zz\",\"type\":\"compaction\"}}",
            "2 reasoning",
            "2 end {\"block\":{\"from\":{\"model\":\"a\"},\"to\":{\"model\":\"b\"},\"type\":\"fallback\"}}",
            "finish stop end_turn",
        ],
    );
}

#[test]
fn errors_inside_a_stream() {
    let busy = json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    check(std::slice::from_ref(&busy), &["error overloaded: Overloaded (code overloaded_error)"]);
    check(
        &[begin(0, empty_text()), text(0, "a"), busy.clone(), text(0, "b"), finish("end_turn"), busy, stop()],
        &["0 text", "0 + a", "0 end", "error overloaded: Overloaded (code overloaded_error)"],
    );
    for (kind, message, class) in [
        ("api_error", "Internal server error", "overloaded"),
        ("api_error", "It broke.", "overloaded"),
        ("rate_limit_error", "Too fast.", "rate_limit"),
        ("authentication_error", "No.", "auth"),
        ("permission_error", "No.", "auth"),
        ("billing_error", "No.", "quota"),
        ("not_found_error", "No.", "invalid_request"),
        ("timeout_error", "Too slow.", "timeout"),
        ("request_too_large", "Too large.", "payload_too_large"),
        ("invalid_request_error", "No field 'x'.", "invalid_request"),
        ("invalid_request_error", "prompt is too long: 208310 tokens > 200000 maximum", "context_overflow"),
        (
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            "context_overflow",
        ),
        ("invalid_request_error", "Your credit balance is too low to access the API.", "quota"),
        (
            "invalid_request_error",
            "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
            "invalid_request",
        ),
        ("invalid_request_error", "Too much media: 0 document pages + 101 images > 100", "payload_too_large"),
    ] {
        let error = json!({"type": "error", "error": {"type": kind, "message": message}});
        check(std::slice::from_ref(&error), &[&format!("error {class}: {message} (code {kind})")]);
        // The same as a document under status 200.
        check_body(&error.to_string(), &[&format!("error {class}: {message} (code {kind})")]);
    }
    check_body("event: error\ndata: upstream timed out\n\n", &["error timeout: upstream timed out"]);
    check_body("data: {\"error\":{\"message\":\"Busy, overloaded\"}}\n\n", &["error overloaded: Busy, overloaded"]);
}

#[test]
fn pieces_in_every_spelling() {
    let start = stream(&[begin(0, empty_text())]);
    for (data, said) in [
        (r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a é"}}"#, "a é"),
        (r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}   }  "#, "a"),
        (r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\n\"\u00e9"}}"#, "a\n\"é"),
        (r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"},"p":"xx"}"#, "a"),
        (r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a","p":"xx"}}"#, "a"),
        (r#"{"index":0,"delta":{"text":"a","type":"text_delta"},"type":"content_block_delta"}"#, "a"),
        (r#"{ "type" : "content_block_delta", "index" : 0, "delta" : {"type" : "text_delta", "text" : "a"}}"#, "a"),
    ] {
        for name in ["event: content_block_delta\n", "event: message\n", ""] {
            check_body(&format!("{start}{name}data: {data}\n\n"), &["0 text", &format!("0 + {said}"), "0 end"]);
        }
    }
    for data in [
        "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\tb\"}}",
        r#"{"type":"content_block_delta","index":00,"delta":{"type":"text_delta","text":"a"}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}"#,
        r#"{"type":"content_block_delta","index":99999999999999999999,"delta":{"type":"text_delta","text":"a"}}"#,
    ] {
        let lines = decode(format!("{start}event: content_block_delta\ndata: {data}\n\n").as_bytes(), &[]);
        assert!(lines.len() == 1 && lines[0].starts_with("failed invalid_output: a line is no event"), "{lines:?}");
    }
}

#[test]
fn what_is_refused() {
    check(
        &[json!("{\"type\":")],
        &[
            "failed invalid_output: a line is no event (EOF while parsing a value at line 1 column 8) at byte 6 of the body: {\"type\":",
        ],
    );
    check(
        &[text(3, "a")],
        &[
            "failed invalid_output: a piece is of block 3, which is not open at byte 33 of the body: {\"delta\":{\"text\":\"a\",\"type\":\"text_delta\"},\"index\":3,\"type\":\"content_block_delta\"}",
        ],
    );
    check(
        &[begin(0, empty_text()), text(0, "a"), input(0, "{}")],
        &[
            "0 text",
            "0 + a",
            "failed invalid_output: a piece of type \"input_json_delta\" does not belong to block 0 at byte 266 of the body: {\"delta\":{\"partial_json\":\"{}\",\"type\":\"input_json_delta\"},\"index\":0,\"type\":\"content_block_delta\"}",
        ],
    );
    let failed = |lines: &[Value], what: &str| {
        let lines = decode(stream(lines).as_bytes(), &[]);
        let said = lines.last().unwrap();
        assert!(said.starts_with(&format!("failed invalid_output: {what} at byte ")), "{said}");
    };
    failed(&[begin(0, json!({"type": "tool_use", "id": "a", "name": " "}))], "a call has no name");
    failed(&[begin(0, json!({"text": "a"}))], "a block has no type");
    failed(&[json!({"type": "content_block_start", "index": 0})], "a block has no description");
    failed(&[json!({"type": "content_block_delta", "index": 0})], "a line has no delta");
    failed(&[json!({"type": "message_start"})], "a message has no description");
    failed(
        &[json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}})],
        "a line of type \"content_block_delta\" has content and is without an index",
    );
    failed(
        &[json!({"type": "new_delta", "index": 0, "delta": {}})],
        "a line of type \"new_delta\" has content and is of an unknown type",
    );
    let start = |id: &str| json!({"type": "message_start", "message": {"id": id}});
    failed(&[start("m1"), start("m2")], "another answer (\"m2\") begins inside the answer \"m1\"");
    failed(
        &[start("m1"), begin(0, empty_text()), start("m1")],
        "another answer (\"m1\") begins inside the answer \"m1\"",
    );
    check(&[start("m1"), start("m1"), finish("end_turn")], &["info Some(\"m1\") None", "finish stop end_turn"]);
    check_body(
        "<html><title>Log in</title></html>",
        &[
            "failed invalid_output: the server answered with a page of markup instead of a stream: check --base-url, and whether a proxy or a login page is in the way",
        ],
    );
    check_body(
        "{\"a\":1}",
        &[
            "failed invalid_output: the body is a document that is neither answer nor error at byte 0 of the body: {\"a\":1}",
        ],
    );
    check_body(
        "{\"a\":",
        &[
            "failed invalid_output: the body is one document and no JSON (EOF while parsing a value at line 1 column 5) at byte 0 of the body: {\"a\":",
        ],
    );
}

#[test]
fn what_is_lived_with() {
    let mut decoder = MessagesDecoder::new(Arc::new(Dialect::default()));
    let mut events = VecDeque::new();
    let lines = [json!({"type": "new_kind_of_ping", "load": 3}), json!({"type": "ping"}), end(7), json!("[DONE]")];
    decoder.push(stream(&lines).as_bytes(), &mut events).unwrap();
    decoder.push(b": hello\n\ndata: {\"type\":\"pi", &mut events).unwrap();
    decoder.finish(&mut events).unwrap();
    assert_eq!(events, vec![ProviderEvent::Alive; 5]);
    let tally = decoder.tally();
    let ignored: Vec<(&str, u64)> = tally.ignored.iter().map(|(name, count)| (*name, *count)).collect();
    assert_eq!(ignored, [("[DONE]", 1), ("comment", 1), ("content_block_stop", 1), ("cut", 1), ("ping", 1)]);
    assert_eq!(tally.unknown, 1);
    // Without names, with a byte order mark, with CR LF.
    let body = format!("\u{feff}data: {}\r\n\r\ndata: {}\r\n\r\n", finish("end_turn"), stop());
    check_body(&body, &["finish stop end_turn"]);
    // The type may stand in the name of the event alone.
    check_body("event: message_stop\ndata: {}\n\n", &[]);
}

#[test]
fn an_answer_in_one_document() {
    let answer = json!({"type": "message", "id": "m1", "model": "m", "role": "assistant", "stop_reason": "tool_use", "stop_sequence": null,
        "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}, {"type": "tool_use", "id": "b", "name": "f", "input": {}}],
        "usage": {"input_tokens": 3, "output_tokens": 2}});
    check_body(
        &answer.to_string(),
        &[
            "info Some(\"m1\") Some(\"m\")",
            "0 reasoning",
            "0 + hm",
            "0 end {\"signature\":\"s\"}",
            "1 text",
            "1 + a",
            "1 end",
            "2 input \"a\" f",
            "2 + {\"x\":1}",
            "2 input end",
            "2 call \"a\" f {\"x\":1}",
            "3 input \"b\" f",
            "3 input end",
            "3 call \"b\" f {}",
            "finish tool_calls tool_use {\"input\":3,\"output\":2}",
        ],
    );
}

#[test]
fn usage_can_be_asked_for_without_a_finish() {
    let mut decoder = MessagesDecoder::new(Arc::new(Dialect::default()));
    assert_eq!(decoder.usage(), None);
    let start = json!({"type": "message_start", "message": {"usage": {"input_tokens": 9}}});
    decoder.push(stream(&[start]).as_bytes(), &mut VecDeque::new()).unwrap();
    assert_eq!(decoder.usage().unwrap().input, Some(9));
}

#[test]
fn damaged_bodies_decode_to_the_same_at_every_split() {
    let body = stream(&[
        json!({"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 3}}}),
        begin(0, json!({"type": "thinking", "thinking": "hm", "signature": "s"})),
        end(0),
        begin(1, empty_text()),
        text(1, "a é"),
        begin(2, call("a")),
        input(2, "{\"x\":1}"),
        end(2),
        begin(3, json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": []})),
        finish("tool_use"),
        stop(),
    ]);
    let mut seed: u64 = 1;
    let mut below = |bound: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) as usize) % bound
    };
    for _ in 0..3_000 {
        let mut damaged = body.clone().into_bytes();
        for _ in 0..1 + below(4) {
            let at = below(damaged.len());
            match below(4) {
                0 => damaged[at] = b"{}[]\",:\\\n 0a\xff"[below(13)],
                1 if damaged.len() > 1 => drop(damaged.remove(at)),
                2 => damaged.truncate(at + 1),
                _ => {
                    // A piece of it is there twice.
                    let from = below(at + 1);
                    let piece = damaged[from..=at].to_vec();
                    damaged.splice(from..from, piece);
                }
            }
        }
        let whole = decode(&damaged, &[]);
        let cuts = [below(damaged.len()), below(damaged.len())];
        let cuts = [cuts[0].min(cuts[1]), cuts[0].max(cuts[1])];
        assert_eq!(decode(&damaged, &cuts), whole, "{cuts:?} of {}", String::from_utf8_lossy(&damaged));
    }
}

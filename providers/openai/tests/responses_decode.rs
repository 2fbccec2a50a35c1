//! The decoder's rules, one by one, on bodies of our own: each whole, byte by byte and at every split.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};
use settled_provider_api::ProviderEvent;
use settled_provider_openai::responses::{Dialect, ResponsesDecoder};
use settled_provider_wire::Decoder;

/// What a body decodes to when it is cut at these places: one line per event, signs of life left out.
fn decode(dialect: &Arc<Dialect>, body: &[u8], cuts: &[usize]) -> Vec<String> {
    let mut decoder = ResponsesDecoder::new(Arc::clone(dialect));
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
    let hosted = |hosted: bool| if hosted { "hosted " } else { "" };
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
            let text = end.text.as_ref().map_or_else(String::new, |text| format!(" = {text}"));
            format!("{} end{text}{}", end.index, state(&end.state))
        }
        ProviderEvent::ToolInputStart(input) => {
            format!("{} {}input {:?} {}", input.index, hosted(input.hosted), input.id, input.name)
        }
        ProviderEvent::ToolInputEnd(end) => format!("{} input end", end.index),
        ProviderEvent::ToolInputMalformed(call) => {
            format!("{} malformed {:?} {} {}", call.index, call.id, call.name, call.raw)
        }
        ProviderEvent::ToolCall(call) => {
            let (hosted, state) = (hosted(call.hosted), state(&call.state));
            format!("{} {hosted}call {:?} {} {}{state}", call.index, call.id, call.name, call.input)
        }
        ProviderEvent::HostedResult(result) => {
            let shown = result.content.iter().map(|piece| piece.as_text().unwrap_or("(media)"));
            format!("result {:?} {:?}{}", result.id, shown.collect::<Vec<_>>().join("|"), state(&result.state))
        }
        ProviderEvent::HostedError(error) => {
            format!("hosted error {:?} {:?}{}", error.id, error.message, state(&error.state))
        }
        ProviderEvent::Annotation(note) => format!("note {:?} {} {}", note.index, note.kind, note.data),
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
    for cut in (0..body.len()).step_by(7) {
        assert_eq!(decode(&dialect, body, &[cut]), expected, "split at {cut}");
    }
}

/// Decodes lines of data as a stream in the common dialect: with the names of the events, and without.
fn check(lines: &[Value], expected: &[&str]) {
    check_in("compatible", &stream(lines, ""), expected);
    let named: String =
        lines.iter().map(|line| stream(std::slice::from_ref(line), line["type"].as_str().unwrap_or(""))).collect();
    check_in("compatible", &named, expected);
}

fn stream(lines: &[Value], name: &str) -> String {
    let event = if name.is_empty() { String::new() } else { format!("event: {name}\n") };
    let lines = lines.iter().map(|line| match line {
        Value::String(raw) => format!("{event}data: {raw}\n\n"),
        json => format!("{event}data: {json}\n\n"),
    });
    lines.collect()
}

fn added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn said(index: u64, text: &str) -> Value {
    json!({"type": "response.output_text.delta", "output_index": index, "content_index": 0, "delta": text})
}

fn arguments(index: u64, text: &str) -> Value {
    json!({"type": "response.function_call_arguments.delta", "output_index": index, "delta": text})
}

fn message(id: &str, text: &str) -> Value {
    json!({"type": "message", "id": id, "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": text, "annotations": []}]})
}

fn call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": name, "arguments": arguments, "status": "completed"})
}

/// The end of a response whose own list is empty, as at ChatGPT.
fn end() -> Value {
    json!({"type": "response.completed", "response": {"status": "completed", "output": []}})
}

fn end_with(output: Value) -> Value {
    json!({"type": "response.completed", "response": {"status": "completed", "output": output}})
}

const STOP: &str = "finish stop Some(\"completed\")";
const CALLS: &str = "finish tool_calls Some(\"completed\")";

#[test]
fn text_reasoning_and_usage() {
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "status": "completed", "encrypted_content": "e", "content": null,
        "summary": [{"type": "summary_text", "text": "hm"}, {"type": "summary_text", "text": "so"}]});
    let summary = |number: u64, text: &str| json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": number, "delta": text});
    check(
        &[
            json!({"type": "response.created", "response": {"id": "resp_1", "model": "m-2", "status": "queued", "output": []}}),
            json!({"type": "response.queued", "response": {"id": "resp_1", "model": "m-2"}}),
            json!({"type": "response.in_progress", "response": {"id": "resp_1", "model": "m-2"}}),
            added(0, json!({"type": "reasoning", "id": "rs_1", "summary": []})),
            json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
            summary(0, "h"),
            summary(0, "m"),
            json!({"type": "response.reasoning_summary_part.done", "output_index": 0, "summary_index": 0, "part": {"type": "summary_text", "text": "hm"}}),
            summary(1, "so"),
            done(0, reasoning),
            added(1, json!({"type": "message", "id": "msg_1", "content": [], "phase": "final_answer"})),
            said(1, "a\"\n"),
            said(1, "é"),
            json!({"type": "response.output_text.done", "output_index": 1, "content_index": 0, "text": "a\"\né"}),
            done(
                1,
                json!({"type": "message", "id": "msg_1", "phase": "final_answer", "content": [{"type": "output_text", "text": "a\"\né", "annotations": []}]}),
            ),
            json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [],
                "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
                    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}, "output_tokens_details": {"reasoning_tokens": 2}}}}),
        ],
        &[
            "info Some(\"resp_1\") Some(\"m-2\")",
            "0 reasoning",
            "0 + h",
            "0 + m",
            "0 end",
            "1 reasoning",
            "1 + so",
            r#"1 end {"item":{"encrypted_content":"e","id":"rs_1","summary":[{"text":"hm","type":"summary_text"},{"text":"so","type":"summary_text"}],"type":"reasoning"}}"#,
            "2 text",
            "2 + a\"\n",
            "2 + é",
            r#"2 end {"after":["rs_1"],"item":{"id":"msg_1","phase":"final_answer"}}"#,
            r#"finish stop Some("completed") {"cache_read":4,"cache_write":3,"input":3,"output":3,"reasoning":2}"#,
        ],
    );
}

/// Behaviours 21: reasoning that says nothing goes back all the same.
#[test]
fn empty_reasoning_is_kept() {
    check(
        &[
            added(0, json!({"type": "reasoning", "id": "rs_1", "summary": []})),
            done(0, json!({"type": "reasoning", "id": "rs_1", "summary": []})),
            added(1, json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": ""})),
            arguments(1, "{\"x\":"),
            arguments(1, "1}"),
            json!({"type": "response.function_call_arguments.done", "output_index": 1, "arguments": "{\"x\":1}"}),
            done(
                1,
                json!({"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "namespace": "n", "arguments": "{\"x\":1}", "status": "completed"}),
            ),
            end(),
        ],
        &[
            "0 reasoning",
            r#"0 end {"item":{"id":"rs_1","summary":[],"type":"reasoning"}}"#,
            "1 input \"a\" f",
            "1 + {\"x\":",
            "1 + 1}",
            "1 input end",
            r#"1 call "a" f {"x":1} {"after":["rs_1"],"item":{"id":"fc_1","namespace":"n"}}"#,
            CALLS,
        ],
    );
}

#[test]
fn only_the_output_index_is_an_identity() {
    // Ids that change with every event, two items at once, and numbers with a gap.
    let moved = |mut line: Value, id: &str| {
        line["item_id"] = json!(id);
        line
    };
    check_in(
        "copilot",
        &stream(
            &[
                added(0, json!({"type": "message", "id": "A", "content": []})),
                added(2, json!({"type": "function_call", "id": "B", "call_id": "a", "name": "f", "arguments": ""})),
                moved(said(0, "x"), "C"),
                moved(arguments(2, "{}"), "D"),
                moved(said(0, "y"), "E"),
                done(2, json!({"type": "function_call", "id": "F", "call_id": "a", "name": "f", "arguments": "{}"})),
                done(0, message("G", "xy")),
                end_with(json!([message("H", "xy"), call("a", "f", "{}")])),
            ],
            "",
        ),
        &["0 input \"a\" f", "1 text", "1 + x", "0 + {}", "1 + y", "0 input end", r#"0 call "a" f {}"#, "1 end", CALLS],
    );
    // No number at all: the id counts, and without it the last item.
    let bare = |mut line: Value| {
        line.as_object_mut().unwrap().remove("output_index");
        line
    };
    check(
        &[
            bare(added(
                0,
                json!({"type": "function_call", "id": "fc_a", "call_id": "a", "name": "f", "arguments": ""}),
            )),
            bare(added(
                0,
                json!({"type": "function_call", "id": "fc_b", "call_id": "b", "name": "g", "arguments": ""}),
            )),
            bare(arguments(0, "{\"y\":2}")),
            bare(moved(arguments(0, "{\"x\":1}"), "fc_a")),
            bare(done(0, call("a", "f", "{\"x\":1}"))),
            bare(done(0, call("b", "g", "{\"y\":2}"))),
            end(),
        ],
        &[
            "0 input \"a\" f",
            "1 input \"b\" g",
            "1 + {\"y\":2}",
            "0 + {\"x\":1}",
            "0 input end",
            r#"0 call "a" f {"x":1} {"item":{"id":"fc_a"}}"#,
            "1 input end",
            r#"1 call "b" g {"y":2} {"item":{"id":"fc_b"}}"#,
            CALLS,
        ],
    );
    // Each item under the same number.
    check(
        &[
            added(0, json!({"type": "message", "id": "m1"})),
            said(0, "one"),
            done(0, message("m1", "one")),
            done(0, message("m2", "two")),
            added(0, json!({"type": "message", "id": "m3"})),
            said(0, "three"),
            added(0, json!({"type": "function_call", "id": "fc_a", "call_id": "a", "name": "f", "arguments": ""})),
            done(0, call("a", "f", "{}")),
            end(),
        ],
        &[
            "0 text",
            "0 + one",
            r#"0 end {"item":{"id":"m1"}}"#,
            "1 text",
            "1 + two",
            r#"1 end {"item":{"id":"m2"}}"#,
            "2 text",
            "2 + three",
            "2 end",
            "3 input \"a\" f",
            "3 + {}",
            "3 input end",
            r#"3 call "a" f {} {"item":{"id":"fc_a"}}"#,
            CALLS,
        ],
    );
}

#[test]
fn what_never_streamed_is_said_at_the_end() {
    // The part's end, the item's end, and the response's.
    for lines in [
        vec![
            added(0, json!({"type": "message", "id": "m"})),
            json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "hello"}),
            done(0, message("m", "hello")),
            end(),
        ],
        vec![
            json!({"type": "response.content_part.done", "output_index": 0, "content_index": 0, "part": {"type": "output_text", "text": "hello"}}),
            done(0, message("m", "hello")),
            end(),
        ],
        vec![added(0, json!({"type": "message", "id": "m"})), done(0, message("m", "hello")), end()],
        vec![done(0, message("m", "hello")), end()],
        vec![added(0, json!({"type": "message", "id": "m"})), end_with(json!([message("m", "hello")]))],
        vec![end_with(json!([message("m", "hello")]))],
    ] {
        check(&lines, &["0 text", "0 + hello", r#"0 end {"item":{"id":"m"}}"#, STOP]);
    }
    // The whole text wins over pieces that lack some.
    check(
        &[said(0, "Hel"), done(0, message("m", "Hello!")), end()],
        &["0 text", "0 + Hel", r#"0 end = Hello! {"item":{"id":"m"}}"#, STOP],
    );
    // Only what lies behind the last that streamed is new, whatever its id and number.
    check(
        &[
            added(1, json!({"type": "message", "id": "other"})),
            said(1, "one"),
            done(1, message("other", "one")),
            end_with(json!([message("m1", "one"), message("m2", "two"), call("a", "f", "{}")])),
        ],
        &[
            "0 text",
            "0 + one",
            r#"0 end {"item":{"id":"other"}}"#,
            "1 text",
            "1 + two",
            r#"1 end {"item":{"id":"m2"}}"#,
            "2 input \"a\" f",
            "2 + {}",
            "2 input end",
            r#"2 call "a" f {} {"item":{"id":"fc_a"}}"#,
            CALLS,
        ],
    );
    // Arguments in their end alone, as at LM Studio; and a part of them.
    for first in ["", "{\"x\""] {
        let mut expected = vec!["0 input \"a\" f", "0 + {\"x\"", "0 + :1}"];
        if first.is_empty() {
            expected = vec!["0 input \"a\" f", "0 + {\"x\":1}"];
        }
        expected.extend(["0 input end", r#"0 call "a" f {"x":1} {"item":{"id":"fc_a"}}"#, CALLS]);
        check(
            &[
                added(0, call("a", "f", "")),
                arguments(0, first),
                json!({"type": "response.function_call_arguments.done", "output_index": 0, "arguments": "{\"x\":1}"}),
                done(0, call("a", "f", "{\"x\":1}")),
                end(),
            ],
            &expected,
        );
    }
}

#[test]
fn when_arguments_are_closed() {
    // Nothing and `null` are `{}`, and what is no object is malformed: once the response has completed.
    for (text, closed) in [
        ("", vec!["0 input end", r#"0 call "a" f {} {"item":{"id":"fc_a"}}"#]),
        ("null", vec!["0 + null", "0 input end", r#"0 call "a" f {} {"item":{"id":"fc_a"}}"#]),
        ("[1]", vec!["0 + [1]", "0 malformed \"a\" f [1]"]),
        ("{\"x\":", vec!["0 + {\"x\":", "0 malformed \"a\" f {\"x\":"]),
    ] {
        let begin = [added(0, call("a", "f", "")), done(0, call("a", "f", text))];
        let expected = [vec!["0 input \"a\" f"], closed.clone(), vec![CALLS]].concat();
        check(&[&begin[..], &[end()]].concat(), &expected);
        // Cut by the limit, or by the end of the body: open.
        let cut = json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": []}});
        let open: Vec<&str> = expected
            .iter()
            .copied()
            .filter(|line| {
                !line.contains("call \"") && !line.contains("malformed") && !line.contains("end") && *line != CALLS
            })
            .collect();
        check(
            &[&begin[..], &[cut]].concat(),
            &[&open[..], &["finish length Some(\"incomplete:max_output_tokens\")"]].concat(),
        );
        check(&begin, &open);
    }
    // The item itself says that it is cut off, though what came is an object.
    let mut cut = call("a", "f", "{}");
    cut["status"] = json!("incomplete");
    check(
        &[added(0, call("a", "f", "")), arguments(0, "{}"), done(0, cut), end()],
        &["0 input \"a\" f", "0 + {}", CALLS],
    );
    // The end of the response is an end, too; the end of the body is none.
    let begin = [added(0, call("a", "f", "")), arguments(0, "{}")];
    check(&[&begin[..], &[end()]].concat(), &["0 input \"a\" f", "0 + {}", "0 input end", "0 call \"a\" f {}", CALLS]);
    check(&begin, &["0 input \"a\" f", "0 + {}"]);
    // The text that came is kept where it is not the one that we would write.
    check(
        &[added(0, call("a", "f", "")), done(0, call("a", "f", "{\"y\": 1, \"x\": 2}")), end()],
        &[
            "0 input \"a\" f",
            "0 + {\"y\": 1, \"x\": 2}",
            "0 input end",
            r#"0 call "a" f {"x":2,"y":1} {"item":{"arguments":"{\"y\": 1, \"x\": 2}","id":"fc_a"}}"#,
            CALLS,
        ],
    );
    // Arguments as an object, of a gateway; a label that is blank.
    let mut object = call("", "f", "");
    object["arguments"] = json!({"x": 1});
    object["id"] = json!("fc_1");
    check(
        &[done(0, object), end()],
        &[
            "0 input \"fc_1\" f",
            "0 + {\"x\":1}",
            "0 input end",
            r#"0 call "fc_1" f {"x":1} {"item":{"id":"fc_1"}}"#,
            CALLS,
        ],
    );
}

/// B176: the reason is read before anything else, and a refusal outranks all.
#[test]
fn finishes() {
    let ended = |status: &str, reason: Value| json!({"type": format!("response.{status}"), "response": {"status": status, "incomplete_details": reason, "output": []}});
    for (line, expected) in [
        (end(), STOP),
        (json!({"type": "response.done", "response": {"status": "completed"}}), STOP),
        (json!({"type": "response.completed", "response": {}}), STOP),
        (
            ended("incomplete", json!({"reason": "max_output_tokens"})),
            "finish length Some(\"incomplete:max_output_tokens\")",
        ),
        (
            ended("incomplete", json!({"reason": "content_filter"})),
            "finish content_filter Some(\"incomplete:content_filter\")",
        ),
        (ended("incomplete", json!({"reason": "patience"})), "finish unknown Some(\"incomplete:patience\")"),
        (ended("incomplete", Value::Null), "finish unknown Some(\"incomplete\")"),
    ] {
        check(&[line], &[expected]);
    }
    let no = json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "No."});
    for (line, expected) in [
        (end(), "finish refusal Some(\"completed\")"),
        (
            ended("incomplete", json!({"reason": "content_filter"})),
            "finish refusal Some(\"incomplete:content_filter\")",
        ),
    ] {
        check(&[no.clone(), line], &["0 text", "0 + No.", r#"0 end {"refusal":true}"#, expected]);
    }
    let whole = json!({"type": "message", "id": "m", "content": [{"type": "refusal", "refusal": "No."}]});
    check(
        &[done(0, whole), end()],
        &["0 text", "0 + No.", r#"0 end {"item":{"id":"m"},"refusal":true}"#, "finish refusal Some(\"completed\")"],
    );
    // Without an end there is no finish.
    check(&[said(0, "hel")], &["0 text", "0 + hel", "0 end"]);
    check_in("compatible", "", &[]);
}

#[test]
fn lines_without_content_and_behind_the_end() {
    let body = [
        ": keepalive\n\n".to_owned(),
        stream(
            &[
                json!({"type": "keepalive", "sequence_number": 3}),
                json!({"type": "codex.rate_limits", "rate_limits": {}}),
            ],
            "",
        ),
        stream(&[end()], "response.completed"),
        stream(&[json!({"type": "ping", "cost": "0"})], "ping"),
        ": bye\n\n".to_owned(),
        stream(&[json!("[DONE]")], ""),
    ]
    .concat();
    check_in("compatible", &body, &[STOP]);
    let mut decoder = ResponsesDecoder::new(Dialect::named("compatible").unwrap());
    let mut events = VecDeque::new();
    decoder.push(body.as_bytes(), &mut events).unwrap();
    decoder.finish(&mut events).unwrap();
    // Signs of life in front of the finish, and none behind it.
    let alive = events.iter().take_while(|event| matches!(event, ProviderEvent::Alive)).count();
    assert_eq!((alive, events.len()), (3, 4));
    let counted: Vec<(&str, u64)> = decoder.tally().ignored.iter().map(|(name, count)| (*name, *count)).collect();
    assert_eq!(counted, [("[DONE]", 1), ("behind the end", 1), ("comment", 2), ("ping", 1), ("rate limits", 1)]);
    assert_eq!(decoder.tally().unknown, 0);
}

#[test]
fn errors_inside_a_stream() {
    let overloaded = "error overloaded: Busy. (code server_is_overloaded)";
    for line in [
        json!({"type": "error", "code": "server_is_overloaded", "message": "Busy.", "param": null, "sequence_number": 2}),
        json!({"type": "error", "error": {"type": "server_error", "code": "server_is_overloaded", "message": "Busy."}}),
        json!({"error": {"code": "server_is_overloaded", "message": "Busy."}}),
        json!({"type": "response.failed", "response": {"id": "r", "status": "failed", "error": {"code": "server_is_overloaded", "message": "Busy."}, "output": []}}),
    ] {
        let info = line["response"].is_object().then_some("info Some(\"r\") None");
        let mut expected = vec!["0 text", "0 + a"];
        expected.extend(info);
        expected.extend(["0 end", overloaded]);
        // What follows is ignored, and no call is closed.
        let lines = [said(0, "a"), line, said(0, "b"), end()];
        let shown: Vec<String> = decode(&Dialect::named("openai").unwrap(), stream(&lines, "").as_bytes(), &[]);
        let shown: Vec<&str> = shown
            .iter()
            .map(|line| if line.starts_with("error overloaded: Busy.") { overloaded } else { line })
            .collect();
        assert_eq!(shown, expected);
    }
    for (line, expected) in [
        (
            json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "Please try again in 1.5s."}}}),
            "error rate_limit: Please try again in 1.5s. (code rate_limit_exceeded)",
        ),
        (
            json!({"type": "error", "code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}),
            "error context_overflow: Your input exceeds the context window of this model. (code context_length_exceeded)",
        ),
        (
            json!({"type": "response.failed", "response": {"status": "failed", "error": null}}),
            "error unknown: the response ended as \"failed\" (code failed)",
        ),
        (
            json!({"type": "response.cancelled", "response": {"status": "cancelled"}}),
            "error unknown: the response ended as \"cancelled\" (code cancelled)",
        ),
    ] {
        check(&[added(0, call("a", "f", "")), arguments(0, "{}"), line], &["0 input \"a\" f", "0 + {}", expected]);
    }
    check_in("openai", "event: error\ndata: all is lost\n\n", &["error unknown: all is lost"]);
    // One document under status 200.
    check_in(
        "chatgpt",
        "{\"detail\":\"Unsupported parameter: max_output_tokens\"}",
        &["error unsupported: Unsupported parameter: max_output_tokens"],
    );
}

#[test]
fn what_does_not_decode() {
    for (lines, expected) in [
        (
            vec![json!("{\"type\":")],
            "failed invalid_output: a line is no event (EOF while parsing a value at line 1 column 8) at byte 6 of the body: {\"type\":",
        ),
        (
            vec![arguments(3, "{}")],
            "failed invalid_output: arguments are of item Some(3), which is not open at byte 6 of the body: {\"delta\":\"{}\",\"output_index\":3,\"type\":\"response.function_call_arguments.delta\"}",
        ),
        (
            vec![json!({"type": "response.sung.delta", "delta": "la"})],
            "failed invalid_output: a line of the unknown type \"sung.delta\" has content at byte 6 of the body: {\"delta\":\"la\",\"type\":\"response.sung.delta\"}",
        ),
        (
            vec![added(0, json!({"type": "function_call", "call_id": "a", "name": " "}))],
            "failed invalid_output: a call has no name at byte 6 of the body: {\"item\":{\"call_id\":\"a\",\"name\":\" \",\"type\":\"function_call\"},\"output_index\":0,\"type\":\"response.output_item.added\"}",
        ),
        (
            vec![added(0, json!({"id": "a"}))],
            "failed invalid_output: an item has no type at byte 6 of the body: {\"item\":{\"id\":\"a\"},\"output_index\":0,\"type\":\"response.output_item.added\"}",
        ),
    ] {
        check_in("compatible", &stream(&lines, ""), &[expected]);
    }
    let shown = decode(&Dialect::named("compatible").unwrap(), b"<html>login</html>", &[]);
    assert!(shown[0].starts_with("failed invalid_output: the server answered with a page of markup"), "{shown:?}");
    check_in(
        "compatible",
        "{\"hello\":1}",
        &[
            "failed invalid_output: the body is a document that is neither response nor error at byte 0 of the body: {\"hello\":1}",
        ],
    );
    // The wire adds types of events; one without content can be lived with, and is counted.
    let mut decoder = ResponsesDecoder::new(Dialect::named("compatible").unwrap());
    let mut events = VecDeque::new();
    decoder.push(stream(&[json!({"type": "response.weather.changed"}), end()], "").as_bytes(), &mut events).unwrap();
    assert_eq!((decoder.tally().unknown, events.len()), (1, 2));
}

#[test]
fn hosted_calls() {
    let item = json!({"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q", "sources": [{"type": "url", "url": "https://a.example"}]}});
    check(
        &[
            done(0, json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e"})),
            added(1, json!({"type": "web_search_call", "id": "ws_1", "status": "in_progress"})),
            json!({"type": "response.web_search_call.searching", "output_index": 1, "item_id": "ws_1"}),
            done(1, item),
            end(),
        ],
        &[
            "0 reasoning",
            r#"0 end {"item":{"encrypted_content":"e","id":"rs_1","summary":[],"type":"reasoning"}}"#,
            "1 hosted input \"ws_1\" web_search",
            "1 input end",
            r#"1 hosted call "ws_1" web_search {"query":"q","sources":[{"type":"url","url":"https://a.example"}],"type":"search"} {"after":["rs_1"],"item":{"action":{"query":"q","sources":[{"type":"url","url":"https://a.example"}],"type":"search"},"id":"ws_1","status":"completed","type":"web_search_call"}}"#,
            r#"result "ws_1" "https://a.example" {"within":true}"#,
            STOP,
        ],
    );
    for (item, expected) in [
        (
            json!({"type": "code_interpreter_call", "id": "ci", "status": "completed", "code": "1+1", "container_id": "c", "outputs": [{"type": "logs", "logs": "2\n"}]}),
            [
                "0 hosted input \"ci\" code_interpreter",
                r#"0 hosted call "ci" code_interpreter {"code":"1+1"}"#,
                "result \"ci\" \"2\"",
            ],
        ),
        (
            json!({"type": "file_search_call", "id": "fs", "status": "completed", "queries": ["q"], "results": [{"file_id": "f", "filename": "a.txt", "text": "it"}]}),
            [
                "0 hosted input \"fs\" file_search",
                r#"0 hosted call "fs" file_search {"queries":["q"]}"#,
                "result \"fs\" \"a.txt\\nit\"",
            ],
        ),
        (
            json!({"type": "file_search_call", "id": "fs", "status": "completed", "queries": ["q"], "results": null}),
            [
                "0 hosted input \"fs\" file_search",
                r#"0 hosted call "fs" file_search {"queries":["q"]}"#,
                "result \"fs\" \"(the result went to the model alone)\"",
            ],
        ),
        (
            json!({"type": "mcp_call", "id": "mcp", "status": "completed", "name": "add", "server_label": "s", "arguments": "{\"a\":1}", "output": "3", "error": null}),
            ["0 hosted input \"mcp\" add", r#"0 hosted call "mcp" add {"a":1}"#, "result \"mcp\" \"3\""],
        ),
        (
            json!({"type": "mcp_call", "id": "mcp", "status": "failed", "name": "add", "server_label": "s", "arguments": "{\"a\":1}", "output": null, "error": {"type": "http_error", "code": 500, "message": "down"}}),
            ["0 hosted input \"mcp\" add", r#"0 hosted call "mcp" add {"a":1}"#, "hosted error \"mcp\" \"down\""],
        ),
        (
            json!({"type": "web_search_call", "id": "ws", "status": "failed", "action": {"type": "search", "query": "q"}}),
            [
                "0 hosted input \"ws\" web_search",
                r#"0 hosted call "ws" web_search {"query":"q","type":"search"}"#,
                "hosted error \"ws\" \"the call ended as \\\"failed\\\"\"",
            ],
        ),
        (
            json!({"type": "mcp_list_tools", "id": "l", "server_label": "s", "tools": [{"name": "add"}, {"name": "sub"}]}),
            [
                "0 hosted input \"l\" mcp_list_tools",
                r#"0 hosted call "l" mcp_list_tools {"server_label":"s"}"#,
                "result \"l\" \"add\\nsub\"",
            ],
        ),
        (
            json!({"type": "image_generation_call", "id": "ig", "status": "completed", "revised_prompt": "a cat", "output_format": "webp", "result": "AAAA"}),
            [
                "0 hosted input \"ig\" image_generation",
                r#"0 hosted call "ig" image_generation {"revised_prompt":"a cat"}"#,
                "result \"ig\" \"(media)\"",
            ],
        ),
        // For the client to run.
        (
            json!({"type": "computer_call", "id": "cu", "call_id": "c1", "status": "completed", "action": {"type": "screenshot"}}),
            [
                "0 hosted input \"c1\" computer",
                r#"0 hosted call "c1" computer {"type":"screenshot"}"#,
                "hosted error \"c1\" \"a call of type computer_call is for the client to run, and this client does not run such calls\"",
            ],
        ),
        (
            json!({"type": "apply_patch_call", "id": "ap", "call_id": "c1", "status": "completed", "operation": {"type": "delete_file", "path": "x"}}),
            [
                "0 hosted input \"c1\" apply_patch",
                r#"0 hosted call "c1" apply_patch {"path":"x","type":"delete_file"}"#,
                "hosted error \"c1\" \"a call of type apply_patch_call is for the client to run, and this client does not run such calls\"",
            ],
        ),
        (
            json!({"type": "mcp_approval_request", "id": "mcpr", "name": "add", "server_label": "s", "arguments": "{\"a\":1}"}),
            [
                "0 hosted input \"mcpr\" add",
                r#"0 hosted call "mcpr" add {"a":1}"#,
                "hosted error \"mcpr\" \"a call of type mcp_approval_request is for the client to run, and this client does not run such calls\"",
            ],
        ),
    ] {
        let mut state = item.clone();
        if item["type"] == "image_generation_call" {
            state.as_object_mut().unwrap().remove("result");
        }
        let state = json!({"item": state});
        let with_state = format!("{} {state}", expected[1]);
        let client = expected[2].contains("for the client");
        let outcome = if client { expected[2].to_owned() } else { format!("{} {{\"within\":true}}", expected[2]) };
        check(&[done(0, item), end()], &[expected[0], "0 input end", &with_state, &outcome, STOP]);
    }
}

#[test]
fn arguments_of_a_hosted_call_that_has_ended_are_progress() {
    let item =
        json!({"type": "mcp_call", "id": "mcp", "name": "f", "status": "completed", "arguments": "{}", "output": "x"});
    check(
        &[
            added(0, json!({"type": "mcp_call", "id": "mcp", "name": "f", "arguments": ""})),
            done(0, item),
            json!({"type": "response.mcp_call_arguments.delta", "output_index": 0, "delta": "{}"}),
        ],
        &[
            "0 hosted input \"mcp\" f",
            "0 input end",
            r#"0 hosted call "mcp" f {} {"item":{"arguments":"{}","id":"mcp","name":"f","output":"x","status":"completed","type":"mcp_call"}}"#,
            r#"result "mcp" "x" {"within":true}"#,
        ],
    );
    // The largest number that an item can have, and one beyond it.
    check(
        &[added(u64::MAX, message("m", "")), end_with(json!([message("m", ""), call("a", "f", "{}")]))],
        &[
            "0 input \"a\" f",
            "0 + {}",
            "0 input end",
            r#"0 call "a" f {} {"item":{"id":"fc_a"}}"#,
            r#"finish tool_calls Some("completed")"#,
        ],
    );
}

#[test]
fn hosted_outputs_that_are_items_of_their_own() {
    let calls = |id: &str| json!({"type": "shell_call", "id": format!("sh_{id}"), "call_id": id, "status": "completed", "action": {"commands": [id]}});
    let output = |id: &str| json!({"type": "shell_call_output", "id": format!("sho_{id}"), "call_id": id, "output": [{"outcome": {"type": "exit", "exit_code": 0}, "stdout": id, "stderr": ""}]});
    let shown = decode(
        &Dialect::named("openai").unwrap(),
        stream(
            &[
                done(0, calls("a")),
                done(1, calls("b")),
                done(2, output("b")),
                done(3, json!({"type": "tool_search_call", "id": "ts", "call_id": null, "execution": "server", "arguments": {"paths": ["p"]}})),
                done(4, json!({"type": "tool_search_output", "id": "tso", "call_id": null, "tools": [{"type": "function", "name": "found"}]})),
                // A state of the conversation that is nothing of ours.
                done(5, json!({"type": "compaction", "id": "cmp", "encrypted_content": "e"})),
                end(),
            ],
            "",
        )
        .as_bytes(),
        &[],
    );
    let outcomes: Vec<&str> =
        shown.iter().map(String::as_str).filter(|line| !line.contains("input") && !line.contains("call \"")).collect();
    assert_eq!(
        outcomes,
        [
            r#"result "b" "b" {"item":{"call_id":"b","id":"sho_b","output":[{"outcome":{"exit_code":0,"type":"exit"},"stderr":"","stdout":"b"}],"type":"shell_call_output"}}"#,
            r#"result "ts" "found" {"item":{"call_id":null,"id":"tso","tools":[{"name":"found","type":"function"}],"type":"tool_search_output"}}"#,
            "3 reasoning",
            r#"3 end {"item":{"encrypted_content":"e","id":"cmp","type":"compaction"}}"#,
            "hosted error \"a\" \"a call of type shell_call is for the client to run, and this client does not run such calls\"",
            STOP,
        ]
    );
}

#[test]
fn annotations_come_with_the_text_or_at_its_end() {
    let note = json!({"type": "url_citation", "url": "https://a.example"});
    let state = r#"0 end {"annotations":[{"type":"url_citation","url":"https://a.example"}],"item":{"id":"m"}}"#;
    let noted = r#"note Some(0) url_citation {"type":"url_citation","url":"https://a.example"}"#;
    let whole =
        json!({"type": "message", "id": "m", "content": [{"type": "output_text", "text": "a", "annotations": [note]}]});
    let added = json!({"type": "response.output_text.annotation.added", "output_index": 0, "content_index": 0, "annotation_index": 0, "annotation": note});
    check(&[said(0, "a"), added, done(0, whole.clone()), end()], &["0 text", "0 + a", noted, state, STOP]);
    check(&[said(0, "a"), done(0, whole), end()], &["0 text", "0 + a", noted, state, STOP]);
}

/// No call with unclosed arguments, no finish that was not sent: wherever the body ends.
#[test]
fn a_body_that_ends_anywhere() {
    let lines = [
        added(0, json!({"type": "message", "id": "m"})),
        said(0, "hello"),
        done(0, message("m", "hello")),
        added(1, call("a", "f", "")),
        arguments(1, "{\"x\":1}"),
        done(1, call("a", "f", "{\"x\":1}")),
        end(),
    ];
    let body = stream(&lines, "");
    let place = |number: usize| stream(&lines[..number], "").len() - 2;
    for to in 0..=body.len() {
        let shown = decode(&Dialect::named("openai").unwrap(), &body.as_bytes()[..to], &[]);
        assert!(shown.iter().all(|line| !line.starts_with("failed")), "{to}: {shown:?}");
        // A line whose data is whole counts, though its blank line is missing.
        assert_eq!(shown.iter().any(|line| line.contains("call \"a\"")), to >= place(6), "{to}: {shown:?}");
        assert_eq!(shown.iter().any(|line| line == CALLS), to >= place(7), "{to}: {shown:?}");
        let opened = shown.iter().filter(|line| line.ends_with(" text")).count();
        let closed = shown.iter().filter(|line| line.starts_with("0 end")).count();
        assert_eq!(opened, closed, "{to}: {shown:?}");
    }
}

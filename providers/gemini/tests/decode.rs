//! The decoder's rules, one by one, on bodies of our own: each in three framings, whole, byte by byte and at every split.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;

use serde_json::{Value, json};
use settled_provider_api::{Content, ProviderEvent};
use settled_provider_gemini::{Dialect, GeminiDecoder};
use settled_provider_wire::Decoder as _;

/// What a body decodes to when it is cut at these places: one line per event, signs of life left out.
fn decode(body: &[u8], cuts: &[usize]) -> Vec<String> {
    let mut decoder = GeminiDecoder::new(Dialect::named("gemini").unwrap());
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
        ProviderEvent::TextDelta(delta) | ProviderEvent::ReasoningDelta(delta) => {
            format!("{} + {}", delta.index, delta.text)
        }
        // Arguments come as they are written, over several lines where the chunk is.
        ProviderEvent::ToolInputDelta(delta) => {
            format!("{} + {}", delta.index, serde_json::from_str::<Value>(&delta.text).unwrap())
        }
        ProviderEvent::ToolInputMalformed(call) => {
            format!("{} malformed {:?} {} {}", call.index, call.id, call.name, call.raw)
        }
        ProviderEvent::TextEnd(end) | ProviderEvent::ReasoningEnd(end) => {
            format!("{} end{}", end.index, state(&end.state))
        }
        ProviderEvent::ToolInputStart(input) => {
            format!("{} {} {:?} {}", input.index, if input.hosted { "hosted" } else { "input" }, input.id, input.name)
        }
        ProviderEvent::ToolInputEnd(end) => format!("{} input end", end.index),
        ProviderEvent::ToolCall(call) => {
            format!("{} call {:?} {} {}{}", call.index, call.id, call.name, call.input, state(&call.state))
        }
        ProviderEvent::HostedResult(result) => {
            let texts: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
            format!("result {:?} {texts:?}{}", result.id, state(&result.state))
        }
        ProviderEvent::HostedError(error) => format!("error {:?} {}{}", error.id, error.message, state(&error.state)),
        ProviderEvent::Media(block) => {
            format!("{} media {} {:?}{}", block.index, block.media.mime, block.media.data, state(&block.state))
        }
        ProviderEvent::Annotation(note) => format!("note {} {}", note.kind, note.data),
        ProviderEvent::Finish(finish) => {
            let usage = finish.usage.map(|usage| format!(" {}", serde_json::to_string(&usage).unwrap()));
            let raw = finish.raw.as_deref().unwrap_or("-");
            format!("finish {} {raw}{}", finish.reason.name(), usage.unwrap_or_default())
        }
        ProviderEvent::Error(error) => format!("error {error}"),
        other => format!("{other:?}"),
    })
}

/// Holds a body to its events, whole, byte by byte and at every single split.
fn check_body(body: &[u8], expected: &[&str]) {
    let text = String::from_utf8_lossy(body);
    assert_eq!(decode(body, &[]), expected, "{text}");
    assert_eq!(decode(body, &(1..body.len()).collect::<Vec<_>>()), expected, "byte by byte: {text}");
    for cut in 1..body.len() {
        assert_eq!(decode(body, &[cut]), expected, "cut at {cut}: {text}");
    }
}

fn events(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\r\n\r\n")).collect()
}

fn array(chunks: &[Value]) -> String {
    let chunks: Vec<String> = chunks.iter().map(|chunk| format!("{chunk:#}")).collect();
    format!("[{}\n]\n", chunks.join("\n,\r\n"))
}

/// Holds chunks to their events, as server-sent events and as an array.
fn check(chunks: &[Value], expected: &[&str]) {
    check_body(events(chunks).as_bytes(), expected);
    check_body(events(chunks).replace('\r', "").trim_end().as_bytes(), expected);
    check_body(array(chunks).as_bytes(), expected);
}

fn parts(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]})
}

fn last(parts: Value, finish: &str) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish}]})
}

fn stop() -> Value {
    json!({"candidates": [{"finishReason": "STOP"}]})
}

#[test]
fn text_and_thoughts() {
    check(
        &[
            json!({"responseId": "r", "modelVersion": "m", "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}}),
            parts(json!([{"text": "hm ", "thought": true}])),
            parts(json!([{"text": "é", "thought": true}, {"text": "a"}])),
            parts(json!([{"text": "b"}, {}, {"text": ""}, {"text": null}])),
            json!({"candidates": [{"content": {"role": "model"}}]}),
            json!({"candidates": [{"content": {"parts": null}}, {"index": 1, "content": {"parts": [{"text": "other"}]}}]}),
            json!({"candidates": [{"index": 1, "finishReason": "MAX_TOKENS"}]}),
            json!({"candidates": [{"finishReason": "STOP", "safetyRatings": []}], "usageMetadata":
                {"promptTokenCount": 10, "cachedContentTokenCount": 4, "toolUsePromptTokenCount": 5, "candidatesTokenCount": 2, "thoughtsTokenCount": 1}}),
            json!({"usageMetadata": {"trafficType": "ON_DEMAND"}}),
        ],
        &[
            "info Some(\"r\") Some(\"m\")",
            "0 reasoning",
            "0 + hm ",
            "0 + é",
            "0 end",
            "1 text",
            "1 + a",
            "1 + b",
            "1 end",
            "finish stop STOP {\"input\":11,\"output\":2,\"reasoning\":1,\"cache_read\":4}",
        ],
    );
}

#[test]
fn signatures_stay_on_their_parts() {
    check(
        &[
            parts(json!([{"text": "hm", "thought": true, "thoughtSignature": "s0"}])),
            parts(json!([{"text": "a"}])),
            parts(json!([{"text": "b", "thoughtSignature": "s1"}, {"text": "c"}])),
            parts(
                json!([{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s2"}, {"functionCall": {"name": "f", "args": {}}}]),
            ),
            parts(json!([{"thoughtSignature": "s3"}])),
            last(json!([{"text": "", "thoughtSignature": "s4"}]), "STOP"),
        ],
        &[
            "0 reasoning",
            "0 + hm",
            "0 end {\"thoughtSignature\":\"s0\"}",
            "1 text",
            "1 + a",
            "1 end",
            "2 text",
            "2 + b",
            "2 end {\"thoughtSignature\":\"s1\"}",
            "3 text",
            "3 + c",
            "3 end",
            "4 input \"\" f",
            "4 + {}",
            "4 input end",
            "4 call \"\" f {} {\"thoughtSignature\":\"s2\"}",
            "5 input \"\" f",
            "5 + {}",
            "5 input end",
            "5 call \"\" f {}",
            "6 text",
            "6 end {\"thoughtSignature\":\"s3\"}",
            "7 text",
            "7 end {\"thoughtSignature\":\"s4\"}",
            "finish tool_calls STOP",
        ],
    );
}

#[test]
fn calls_that_come_whole() {
    check(
        &[
            parts(json!([{"functionCall": {"id": "c1", "name": "f", "args": {"y": 1.5, "x": "é"}}}])),
            parts(json!([{"functionCall": {"name": "g"}}, {"functionCall": {"name": "g", "args": null}}])),
            last(json!([]), "STOP"),
        ],
        &[
            "0 input \"c1\" f",
            "0 + {\"x\":\"é\",\"y\":1.5}",
            "0 input end",
            "0 call \"c1\" f {\"x\":\"é\",\"y\":1.5} {\"id\":\"c1\"}",
            "1 input \"\" g",
            "1 + {}",
            "1 input end",
            "1 call \"\" g {}",
            "2 input \"\" g",
            "2 + {}",
            "2 input end",
            "2 call \"\" g {}",
            "finish tool_calls STOP",
        ],
    );
}

#[test]
fn arguments_that_are_no_object_are_malformed() {
    for args in [json!(7), json!([]), json!("{}"), json!(true)] {
        check(
            &[parts(json!([{"functionCall": {"name": "f", "args": args}}])), stop()],
            &[
                "0 input \"\" f",
                &format!("0 + {args}"),
                &format!("0 malformed \"\" f {args}"),
                "finish tool_calls STOP",
            ],
        );
    }
}

#[test]
fn a_call_that_the_finish_cuts_stays_open() {
    for finish in ["MAX_TOKENS", "MALFORMED_FUNCTION_CALL", "SAFETY", "OTHER", "NEW_WORD"] {
        let reason = Dialect::default().finish_reason(finish, 1).name();
        check(
            &[last(json!([{"functionCall": {"name": "f", "args": {}}}]), finish)],
            &["0 input \"\" f", "0 + {}", &format!("finish {reason} {finish}")],
        );
    }
}

#[test]
fn calls_in_pieces() {
    let piece = |call: Value| parts(json!([{"functionCall": call}]));
    let at = |path: &str, value: Value| {
        let mut arg = json!({"jsonPath": path});
        arg.as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        piece(json!({"partialArgs": [arg], "willContinue": true}))
    };
    let begin = piece(json!({"id": "c", "name": "f", "willContinue": true}));
    let open = "0 input \"c\" f";
    let ended = |input: &str| {
        vec![
            open.to_owned(),
            format!("0 + {input}"),
            "0 input end".to_owned(),
            format!("0 call \"c\" f {input} {{\"id\":\"c\"}}"),
        ]
    };
    let check_pieces = |pieces: &[Value], expected: &[String]| {
        let chunks: Vec<Value> = [std::slice::from_ref(&begin), pieces, &[stop()]].concat();
        let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        expected.push("finish tool_calls STOP");
        check(&chunks, &expected);
    };
    let end = piece(json!({}));
    check_pieces(std::slice::from_ref(&end), &ended("{}"));
    check_pieces(
        &[
            at("$.a[0].b", json!({"stringValue": "x", "willContinue": true})),
            at("$.a[0].b", json!({"stringValue": "y"})),
            at("$.a[1]", json!({"numberValue": 3})),
            at("$.c", json!({"numberValue": 0.5})),
            at("$['d e']", json!({"boolValue": false})),
            at("$[\"f\"]", json!({"nullValue": null})),
            at("$.c", json!({"stringValue": "again"})),
            end.clone(),
        ],
        &ended("{\"a\":[{\"b\":\"xy\"},3],\"c\":\"again\",\"d e\":false,\"f\":null}"),
    );
    // The last piece ends the call by itself.
    check_pieces(&[piece(json!({"partialArgs": [{"jsonPath": "$.x", "numberValue": 1}]}))], &ended("{\"x\":1}"));
    // What is not closed stays open, also behind a finish and behind another call.
    check_pieces(&[at("$.x", json!({"stringValue": "a", "willContinue": true}))], &[open.to_owned()]);
    check(
        &[begin.clone(), piece(json!({"name": "g", "args": {}})), stop()],
        &[open, "1 input \"\" g", "1 + {}", "1 input end", "1 call \"\" g {}", "finish tool_calls STOP"],
    );
    let failing = |pieces: &[Value], why: &str| {
        let chunks = [std::slice::from_ref(&begin), pieces].concat();
        let out = decode(events(&chunks).as_bytes(), &[]);
        assert_eq!(out[0], open);
        assert!(out[1].starts_with(&format!("failed invalid_output: {why} at byte ")), "{out:?}");
    };
    failing(&[at("x", json!({}))], "\"x\" is no place in the arguments");
    failing(&[at("$", json!({}))], "\"$\" does not fit what came before");
    failing(&[at("$.a[9999999999]", json!({"boolValue": true}))], "\"$.a[9999999999]\" does not fit what came before");
    failing(&[at("$.a", json!({"numberValue": 1})), at("$.a.b", json!({}))], "\"$.a.b\" does not fit what came before");
    let deep = format!("${}", ".a".repeat(101));
    failing(&[at(&deep, json!({}))], &format!("{deep:?} is no place in the arguments"));
    let out = decode(events(&[end]).as_bytes(), &[]);
    assert!(out[0].starts_with("failed invalid_output: a call has no name at byte 6 of the body: {}"), "{out:?}");
}

#[test]
fn what_the_server_runs_itself() {
    let code = json!({"language": "PYTHON", "code": "1"});
    let state = |field: &str, data: &Value| json!({"part": {field: data}}).to_string();
    let result = |text: &str| json!({"outcome": "OUTCOME_OK", "output": text});
    let named = json!({"id": "k", "code": "2"});
    let failed = json!({"id": "k", "outcome": "OUTCOME_FAILED", "output": "no"});
    let called = |block: u32, id: &str, input: &str, state: &str| {
        vec![
            format!("{block} hosted {id:?} code_execution"),
            format!("{block} + {input}"),
            format!("{block} input end"),
            format!("{block} call {id:?} code_execution {input} {state}"),
        ]
    };
    let one = "{\"code\":\"1\",\"language\":\"PYTHON\"}";
    let expected = [
        vec!["0 text".to_owned(), "0 + a".to_owned(), "0 end".to_owned()],
        called(1, "code_execution_1", one, &state("executableCode", &code)),
        called(2, "code_execution_2", one, &state("executableCode", &code)),
        vec![
            format!("result \"code_execution_1\" [\"x\"] {}", state("codeExecutionResult", &result("x"))),
            format!("result \"code_execution_2\" [] {}", state("codeExecutionResult", &result(""))),
        ],
        called(3, "k", "{\"code\":\"2\",\"language\":null}", &state("executableCode", &named)),
        vec![
            format!("error \"k\" OUTCOME_FAILED: no {}", state("codeExecutionResult", &failed)),
            "4 text".to_owned(),
            "4 + b".to_owned(),
            "4 end".to_owned(),
            "finish stop STOP {\"output\":2}".to_owned(),
        ],
    ]
    .concat();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let mut early = last(json!([{"executableCode": named}]), "STOP");
    early["usageMetadata"] = json!({"candidatesTokenCount": 1});
    let mut late = last(json!([{"text": "b"}]), "STOP");
    late["usageMetadata"] = json!({"candidatesTokenCount": 2});
    check(
        &[
            parts(json!([{"text": "a"}, {"executableCode": code}, {"executableCode": code}])),
            parts(json!([{"codeExecutionResult": result("x")}, {"codeExecutionResult": result("")}])),
            early,
            parts(json!([{"codeExecutionResult": failed}])),
            late,
        ],
        &expected,
    );
    let call = json!({"toolType": "FILE_SEARCH", "id": "t"});
    check(
        &[
            parts(json!([{"toolCall": call, "thoughtSignature": "s"}])),
            parts(json!([{"toolResponse": {"toolType": "FILE_SEARCH", "id": "t", "response": {"x": 1}}}])),
        ],
        &[
            "0 hosted \"t\" file_search",
            "0 + {}",
            "0 input end",
            "0 call \"t\" file_search {} {\"part\":{\"thoughtSignature\":\"s\",\"toolCall\":{\"id\":\"t\",\"toolType\":\"FILE_SEARCH\"}}}",
            "result \"t\" [\"{\\\"x\\\":1}\"] {\"part\":{\"toolResponse\":{\"id\":\"t\",\"response\":{\"x\":1},\"toolType\":\"FILE_SEARCH\"}}}",
        ],
    );
    let out = decode(events(&[parts(json!([{"codeExecutionResult": {}}]))]).as_bytes(), &[]);
    assert_eq!(out, ["failed invalid_output: a hosted result answers no call at byte 6 of the body: {}"]);
}

#[test]
fn what_stands_beside_the_answer() {
    let with = |name: &str, data: Value| json!({"candidates": [{"content": {"parts": [{"text": "a"}]}, name: data}]});
    check(
        &[
            with("groundingMetadata", json!({"groundingChunks": [{"web": {"uri": "u"}}], "webSearchQueries": ["q"]})),
            with(
                "groundingMetadata",
                json!({"groundingSupports": [{"segment": {"endIndex": 1}}], "groundingChunks": []}),
            ),
            with("urlContextMetadata", json!({"urlMetadata": [{"retrievedUrl": "v"}]})),
            with("urlContextMetadata", json!({"urlMetadata": [{"retrievedUrl": "v"}]})),
            with("citationMetadata", json!({"citationSources": [{"uri": "w"}]})),
            with("citationMetadata", json!({"citations": [{"uri": "x"}]})),
            json!({"candidates": [{"finishReason": "RECITATION", "finishMessage": "why", "groundingMetadata": {}}]}),
        ],
        &[
            "0 text",
            "0 + a",
            "0 + a",
            "0 + a",
            "0 + a",
            "0 + a",
            "0 + a",
            "0 end",
            "note source {\"web\":{\"uri\":\"u\"}}",
            "note citation {\"segment\":{\"endIndex\":1}}",
            "note search {\"webSearchQueries\":[\"q\"]}",
            "note finish_message \"why\"",
            "note url_context {\"retrievedUrl\":\"v\"}",
            "note citation {\"uri\":\"w\"}",
            "note citation {\"uri\":\"x\"}",
            "finish content_filter RECITATION",
        ],
    );
    check(
        &[
            parts(json!([{"inlineData": {"mimeType": "image/png", "data": "AAAA"}, "thoughtSignature": "s"}])),
            parts(json!([{"inlineData": {"mimeType": "image/png", "data": "BBBB"}, "thought": true}])),
            parts(json!([{"fileData": {"mimeType": "image/png", "fileUri": "u"}}])),
        ],
        &[
            "0 media image/png Base64(\"AAAA\") {\"thoughtSignature\":\"s\"}",
            "note thought_media {\"data\":\"BBBB\",\"mimeType\":\"image/png\"}",
            "1 media image/png Url(\"u\")",
        ],
    );
}

#[test]
fn finishes() {
    let table = [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("LANGUAGE", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("SPII", "content_filter"),
        ("MODEL_ARMOR", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("IMAGE_PROHIBITED_CONTENT", "content_filter"),
        ("IMAGE_RECITATION", "content_filter"),
        ("MALFORMED_FUNCTION_CALL", "unknown"),
        ("UNEXPECTED_TOOL_CALL", "unknown"),
        ("TOO_MANY_TOOL_CALLS", "unknown"),
        ("MISSING_THOUGHT_SIGNATURE", "unknown"),
        ("MALFORMED_RESPONSE", "unknown"),
        ("NO_IMAGE", "unknown"),
        ("IMAGE_OTHER", "unknown"),
        ("OTHER", "unknown"),
        ("FINISH_REASON_UNSPECIFIED", "unknown"),
        ("SOMETHING_NEW", "unknown"),
    ];
    for (raw, reason) in table {
        check(&[last(json!([]), raw)], &[&format!("finish {reason} {raw}")]);
        // Of two the later one counts.
        check(&[last(json!([]), "STOP"), last(json!([]), raw)], &[&format!("finish {reason} {raw}")]);
        let with_call = if raw == "STOP" { "tool_calls" } else { reason };
        assert_eq!(Dialect::default().finish_reason(raw, 1).name(), with_call);
    }
    for block in ["SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "SOMETHING_NEW"] {
        let feedback = json!({"blockReason": block, "blockReasonMessage": "no", "safetyRatings": []});
        check(
            &[json!({"promptFeedback": feedback, "usageMetadata": {"promptTokenCount": 7}})],
            &["note finish_message \"no\"", &format!("finish content_filter {block} {{\"input\":7}}")],
        );
    }
    // Feedback that blocks nothing; and no finish at all.
    check(&[json!({"promptFeedback": {"safetyRatings": []}})], &[]);
    check(&[parts(json!([{"text": "a"}]))], &["0 text", "0 + a", "0 end"]);
}

#[test]
fn errors_inside_a_stream() {
    let text = parts(json!([{"text": "a"}]));
    let error = json!({"error": {"code": 503, "message": "Busy.", "status": "UNAVAILABLE"}});
    let expected = ["0 text", "0 + a", "0 end", "error overloaded: Busy. (status 503, code UNAVAILABLE)"];
    check(&[text.clone(), error.clone()], &expected);
    check(&[text.clone(), error.clone(), stop()], &expected);
    // A document in the middle of a stream of events, as an object, and in a list.
    for document in [format!("{error:#}\n"), format!("[{error:#}\n]"), error.to_string()] {
        for before in
            [events(std::slice::from_ref(&text)), events(std::slice::from_ref(&text)).trim_end().to_owned() + "\n"]
        {
            check_body(format!("{before}{document}").as_bytes(), &expected);
        }
    }
    check_body(array(std::slice::from_ref(&error)).as_bytes(), &expected[3..]);
    check_body(format!("\u{feff}\n {error:#}").as_bytes(), &expected[3..]);
    for (error, expected) in [
        (
            json!({"code": 429, "message": "Slow.", "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s"}]}),
            "error rate_limit: Slow. (status 429, code RESOURCE_EXHAUSTED)",
        ),
        (
            json!({"code": 400, "message": "The input token count (5) exceeds the maximum number of tokens allowed (4).", "status": "INVALID_ARGUMENT"}),
            "error context_overflow: The input token count (5) exceeds the maximum number of tokens allowed (4). (status 400, code INVALID_ARGUMENT)",
        ),
        (
            json!({"code": 500, "message": "It broke.", "status": "INTERNAL"}),
            "error overloaded: It broke. (status 500, code INTERNAL)",
        ),
        (
            json!({"code": 429, "message": "No.", "status": "RESOURCE_EXHAUSTED", "details": [{"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}),
            "error quota: No. (status 429, code RESOURCE_EXHAUSTED)",
        ),
    ] {
        check(&[json!({"error": error})], &[expected]);
    }
}

#[test]
fn what_does_not_decode() {
    let text = parts(json!([{"text": "a"}]));
    let failing = |line: &str, why: &str| {
        let body = format!("{}data: {line}\n\n{}", events(std::slice::from_ref(&text)), events(&[stop()]));
        let at = body.find(line).unwrap();
        let out = decode(body.as_bytes(), &[]);
        assert_eq!(out[..2], ["0 text", "0 + a"]);
        let expected = format!("failed invalid_output: {why}");
        let last = out.last().unwrap();
        assert!(last.starts_with(&expected.replace("{at}", &at.to_string())), "{out:?} is not {expected}");
        assert_eq!(decode(body.as_bytes(), &(1..body.len()).collect::<Vec<_>>()), out);
    };
    failing("garbage", "what came is no chunk (expected value at line 1 column 1) at byte {at} of the body: garbage");
    failing("{\"candidates\":[{\"content\":", "what came is no chunk (EOF while");
    failing("{\"candidates\":7}", "what came is no chunk (invalid type: integer `7`, expected a list of candidates");
    failing("{\"hello\":1}", "what came is neither chunk nor error at byte {at} of the body: {\"hello\":1}");
    failing(
        "{\"candidates\":[{\"content\":{\"parts\":[{\"hologram\":{}}]}}]}",
        "a part has data of an unknown kind at byte {at} of the body: hologram",
    );
    failing(
        "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\",\"inlineData\":{}}]}}]}",
        "what came is no chunk (a part with two kinds",
    );
    failing(
        "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":7.5}]}}]}",
        "what came is no chunk (invalid type: floating point",
    );
    failing(&parts(json!([{"functionCall": 7}])).to_string(), "a call does not decode");
    failing(&parts(json!([{"inlineData": {"data": "A"}}])).to_string(), "media have no type or no data");
    let page = "failed invalid_output: the server answered with a page of markup instead of a stream: check --base-url, and whether a proxy or a login page is in the way";
    check_body(b"\r\n<!doctype html><html></html>", &[page]);
    check_body(
        b"[{\"usageMetadata\":{}} x",
        &["failed invalid_output: byte 22 of the body is 'x', which may not stand between two elements"],
    );
    check_body(b"", &[]);
    check_body(b": ping\n\ndata: \n\ndata: [DONE]\n\n", &[]);
    // Unknown fields, and metadata of parts, are let be.
    check(
        &[
            json!({"candidates": [{"content": {"parts": [{"text": "a", "partMetadata": {}, "new": 1}]}, "new": 1}], "new": 1}),
        ],
        &["0 text", "0 + a", "0 end"],
    );
}

#[test]
fn a_stream_that_is_cut_at_every_byte_runs_no_call_that_is_not_whole() {
    let chunks = [
        parts(json!([{"text": "aé"}])),
        parts(json!([{"functionCall": {"name": "f", "args": {"x": "é"}}, "thoughtSignature": "s"}])),
        json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 1}}),
    ];
    for (body, ends) in [(events(&chunks), "\r\n\r\n".len()), (array(&chunks), "\n]\n".len())] {
        let call_ends = body.find("thoughtSignature").unwrap();
        for end in 0..body.len() {
            let out = decode(&body.as_bytes()[..end], &[]);
            let called = out.iter().any(|line| line.contains("call "));
            let finished = out.iter().any(|line| line.contains("finish"));
            assert!(!called || end > call_ends, "cut at {end}: {out:?}");
            assert_eq!(finished, end + ends >= body.len(), "cut at {end}: {out:?}");
            assert!(!out.iter().any(|line| line.contains("failed")), "cut at {end}: {out:?}");
        }
    }
}

//! `settled decode` and `settled lower`: recorded bodies come out as expected at every split, odd ones as clear errors.
//!
//! Recordings are looked for in `SETTLED_RECORDINGS`, else in `../shared/recordings` from the workspace's root; without any, the tests that need them say so and pass.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop at what it did not expect")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const PROTOCOLS: [&str; 4] = ["openai-chat", "openai-responses", "anthropic-messages", "gemini"];

/// What a command said, and its exit code.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs the command with these bytes on its standard input.
fn settled(arguments: &[&str], input: &[u8]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_settled"));
    command.args(arguments).env_remove("RUST_LOG");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read has said why.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Decodes a body; it must be answered with one line of JSON.
fn decode(protocol: &str, body: &[u8], flags: &[&str]) -> Value {
    let ended = settled(&[&["decode", protocol], flags].concat(), body);
    assert_eq!(
        (ended.code, &*ended.err, ended.out.lines().count()),
        (Some(0), "", 1),
        "{protocol} {flags:?}: {ended:?}"
    );
    serde_json::from_str(&ended.out).unwrap()
}

/// One recorded exchange.
struct Exchange {
    name: String,
    provider: String,
    exchange: Value,
}

impl Exchange {
    fn status(&self) -> u64 {
        self.exchange["response"]["status"].as_u64().unwrap()
    }

    fn body(&self) -> String {
        let body = &self.exchange["response"]["body"];
        body.as_str().map_or_else(|| body.to_string(), str::to_owned)
    }

    fn expected(&self, field: &str) -> &Value {
        &self.exchange["expected"][field]
    }
}

/// The recorded exchanges of a protocol; none where there are no recordings.
fn recordings(protocol: &str) -> Vec<Exchange> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings");
    let folder = std::env::var_os("SETTLED_RECORDINGS").map_or_else(default, PathBuf::from).join(protocol);
    let Ok(entries) = std::fs::read_dir(&folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        for (number, exchange) in file["exchanges"].as_array().unwrap().iter().enumerate() {
            let provider = exchange["provider"].as_str().or_else(|| file["provider"].as_str()).unwrap().to_owned();
            found.push(Exchange { name: format!("{stem}#{number}"), provider, exchange: exchange.clone() });
        }
    }
    found
}

/// The exchanges that an adapter decodes otherwise than expected, and why: the adapters' own lists.
fn exceptions(protocol: &str) -> BTreeMap<String, String> {
    serde_json::from_str(match protocol {
        "openai-chat" => include_str!("../../providers/openai/tests/data/exceptions.json"),
        "openai-responses" => include_str!("../../providers/openai/tests/data/responses_exceptions.json"),
        "anthropic-messages" => include_str!("../../providers/anthropic/tests/data/exceptions.json"),
        _ => include_str!("../../providers/gemini/tests/data/exceptions.json"),
    })
    .unwrap()
}

/// The usage of the wire in our words: what each adapter's page says, stated a second time.
fn usage(protocol: &str, exchange: &Exchange) -> Value {
    let raw = exchange.expected("usage");
    if raw.is_null() {
        return Value::Null;
    }
    let number = |paths: &[&str]| paths.iter().find_map(|path| raw.pointer(path).and_then(Value::as_u64));
    let (input, output, reasoning, read, write) = match protocol {
        "openai-chat" => (
            number(&["/prompt_tokens"]),
            number(&["/completion_tokens"]),
            number(&["/completion_tokens_details/reasoning_tokens", "/reasoning_tokens"]),
            number(&[
                "/prompt_tokens_details/cached_tokens",
                "/prompt_cache_hit_tokens",
                "/cached_tokens",
                "/cache_read_input_tokens",
            ]),
            number(&["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"]),
        ),
        "openai-responses" => (
            number(&["/input_tokens"]),
            number(&["/output_tokens"]),
            number(&["/output_tokens_details/reasoning_tokens"]),
            number(&["/input_tokens_details/cached_tokens"]),
            number(&["/input_tokens_details/cache_write_tokens"]),
        ),
        "anthropic-messages" => (
            number(&["/input_tokens"]),
            number(&["/output_tokens"]),
            number(&["/output_tokens_details/thinking_tokens"]),
            number(&["/cache_read_input_tokens"]),
            number(&["/cache_creation_input_tokens"]),
        ),
        _ => {
            let tools = number(&["/toolUsePromptTokenCount"]);
            let prompt = number(&["/promptTokenCount"]);
            let input = prompt.or(tools).map(|_| prompt.unwrap_or(0) + tools.unwrap_or(0));
            let (output, reasoning) = (number(&["/candidatesTokenCount"]), number(&["/thoughtsTokenCount"]));
            (input, output, reasoning, number(&["/cachedContentTokenCount"]), None)
        }
    };
    let left = |all: Option<u64>, part: Option<u64>| all.map(|all| all.saturating_sub(part.unwrap_or(0)));
    let cached_apart = protocol == "anthropic-messages";
    let input = if cached_apart { input } else { left(left(input, read), write) };
    // Gemini counts reasoning apart, as xAI does in Chat Completions.
    let xai = protocol == "openai-chat" && exchange.name.contains("xai");
    let reasoned_apart = protocol == "gemini" || xai;
    let output = if reasoned_apart { output } else { left(output, reasoning) };
    json!({"input": input, "output": output, "reasoning": reasoning, "cache_read": read, "cache_write": write})
}

/// In which respects a result differs from what is expected.
fn differences(protocol: &str, exchange: &Exchange, result: &Value) -> String {
    let mut differ = String::new();
    let mut check = |what: &str, ours: Value, theirs: Value| {
        if ours != theirs {
            write!(differ, "{what}: {ours} is not {theirs}; ").unwrap();
        }
    };
    let said = |text: &Value| text.as_str().unwrap_or_default().to_owned();
    // A refusal is what the model says.
    let text = said(exchange.expected("text")) + &said(exchange.expected("refusal"));
    check("text", json!(said(&result["text"])), json!(text));
    check("reasoning", json!(said(&result["reasoning"])), exchange.expected("reasoning").clone());
    check("finish", result["finish"]["raw"].clone(), exchange.expected("finish_reason").clone());
    check("error", json!(!result["error"].is_null()), json!(!exchange.expected("error").is_null()));
    check("usage", result["usage"].clone(), usage(protocol, exchange));
    check("unknown lines", result["unknown_lines"].clone(), json!(0));
    let complete = matches!(result["finish"]["reason"].as_str(), Some("stop" | "tool_calls"));
    // Where the wire has objects, the recordings' raw arguments are in Python's spelling.
    let raw = |raw: &Value| match protocol {
        "gemini" => serde_json::from_str(raw.as_str().unwrap()).unwrap(),
        _ => json!(said(raw)),
    };
    let theirs = exchange.expected("tool_calls").as_array().unwrap().iter().map(|call| {
        // At a complete end nothing and `null` are `{}`; what is cut off has no arguments.
        let input = match call["arguments_raw"].as_str().unwrap_or_default() {
            _ if !complete => Value::Null,
            "" | "null" => json!({}),
            _ => call["arguments"].clone(),
        };
        json!([call["id"], call["name"], raw(&call["arguments_raw"]), input])
    });
    let calls = result["calls"].as_array().unwrap().iter().filter(|call| call["hosted"] == false);
    let ours = calls.map(|call| {
        let input = if complete { call["input"].clone() } else { Value::Null };
        json!([call["id"], call["name"], raw(&call["raw"]), input])
    });
    check("calls", ours.collect(), theirs.collect());
    differ
}

#[test]
fn recorded_streams_come_out_as_expected_at_every_split() {
    for protocol in PROTOCOLS {
        let exceptions = exceptions(protocol);
        let (mut equal, mut met, mut ambiguous, mut split) = (0, BTreeSet::new(), 0, 0);
        let mut failures = Vec::new();
        let streams: Vec<Exchange> = recordings(protocol)
            .into_iter()
            .filter(|exchange| exchange.exchange["streaming"] == true && exchange.status() == 200)
            .collect();
        for (place, exchange) in streams.iter().enumerate() {
            let (name, body) = (&exchange.name, exchange.body());
            let result = decode(protocol, body.as_bytes(), &[]);
            if place % 6 == 0 {
                split += 1;
                for cut in ["bytes", "1", "18446744073709551615"] {
                    let again = decode(protocol, body.as_bytes(), &["--split", cut]);
                    assert_eq!(again, result, "{name}: cut by {cut}");
                }
            }
            if exchange.exchange["ambiguities"].as_array().is_some_and(|ambiguities| !ambiguities.is_empty()) {
                ambiguous += 1;
                continue;
            }
            match (differences(protocol, exchange, &result), exceptions.contains_key(name)) {
                (differ, false) if differ.is_empty() => equal += 1,
                (differ, true) if !differ.is_empty() => {
                    met.insert(name);
                }
                (differ, _) => failures.push(format!("{} {name}: {differ}", exchange.provider)),
            }
        }
        assert!(failures.is_empty(), "{protocol}: {} differ:\n{}", failures.len(), failures.join("\n"));
        if streams.is_empty() {
            println!("skipped: there are no recordings of {protocol}");
        } else {
            assert_eq!(met.len(), exceptions.len(), "{protocol}: an exception does not differ");
            println!(
                "{protocol}: {} streams: {equal} as expected, {} exceptions, {ambiguous} ambiguous; {split} also byte by byte and at two random splits",
                streams.len(),
                met.len()
            );
        }
    }
}

#[test]
fn recorded_failures_come_out_as_expected() {
    for protocol in PROTOCOLS {
        let mut classes = BTreeMap::<String, usize>::new();
        for exchange in recordings(protocol).iter().filter(|exchange| exchange.status() >= 400) {
            let status = exchange.status().to_string();
            let result = decode(protocol, exchange.body().as_bytes(), &["--status", &status]);
            let (ours, theirs) = (&result["error"], exchange.expected("error"));
            assert_eq!(ours["status"], theirs["status"], "{}", exchange.name);
            let said = ["message", "detail"].into_iter().find_map(|field| theirs[field].as_str()).unwrap_or_default();
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let message = ours["message"].as_str().unwrap();
            assert!(message.starts_with(&said) && !message.is_empty(), "{}: {message} is not {said}", exchange.name);
            let nothing =
                json!({"text": null, "reasoning": null, "calls": [], "finish": null, "usage": null, "events": 0});
            for (field, value) in nothing.as_object().unwrap() {
                assert_eq!(&result[field], value, "{}: {field}", exchange.name);
            }
            *classes.entry(format!("{status} {}", ours["class"].as_str().unwrap())).or_default() += 1;
        }
        if classes.is_empty() {
            println!("skipped: there are no recordings of {protocol}");
        } else {
            // A key that is refused, and a model that is not there: what every provider's recordings have.
            assert!(classes.contains_key("401 auth") || protocol == "gemini", "{protocol}: {classes:?}");
            println!("{protocol}: failures {classes:?}");
        }
    }
}

/// A body, its flags, and the fields of the result that it is about.
fn check(protocol: &str, body: &[u8], flags: &[&str], fields: Value) {
    let result = decode(protocol, body, flags);
    for (field, value) in fields.as_object().unwrap() {
        let found = result.pointer(&format!("/{field}")).unwrap_or_else(|| panic!("{field} is not in {result}"));
        assert_eq!(found, value, "{protocol} {flags:?}: {field} in {result}");
    }
}

#[test]
fn odd_bodies_are_results() {
    for protocol in PROTOCOLS {
        let nothing = json!({
            "text": null, "reasoning": null, "calls": [], "finish": null, "usage": null, "error": null, "events": 0,
            "ignored_lines": {}, "unknown_lines": 0,
        });
        assert_eq!(decode(protocol, b"", &[]), nothing);
        assert_eq!(decode(protocol, b"\r\n\n", &["--split", "bytes"]), nothing);
        check(
            protocol,
            b"<!DOCTYPE html><html><body>Sign in to go on</body></html>",
            &["--content-type", "text/html; charset=utf-8"],
            json!({"error/class": "invalid_output", "error/status": null, "text": null, "finish": null}),
        );
        check(protocol, b"data: \xff\xfe\n\n", &[], json!({"error/class": "invalid_output", "text": null}));
        check(protocol, b"\xff\xfe", &["--status", "503"], json!({"error/class": "overloaded", "error/status": 503}));
        check(protocol, b"data: {\"a\": nonsense}\n\n", &[], json!({"error/class": "invalid_output", "events": 0}));
        check(
            protocol,
            br#"{"error": {"message": "Too many requests", "code": "rate_limit_exceeded", "type": "rate_limit_error"}}"#,
            &["--status", "429", "--content-type", "application/json"],
            json!({"error/class": "rate_limit", "error/status": 429, "error/message": "Too many requests", "events": 0}),
        );
        check(
            protocol,
            b"<html><head><title>502 Bad Gateway</title></head></html>",
            &["--status", "502"],
            json!({"error/class": "overloaded", "error/status": 502}),
        );
        check(
            protocol,
            b"",
            &["--status", "302"],
            json!({"error/status": 302, "error/retry_after": null, "events": 0}),
        );
    }
    check(
        "gemini",
        br#"{"error": {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]}}"#,
        &["--status", "429"],
        json!({"error/class": "rate_limit", "error/code": "RESOURCE_EXHAUSTED", "error/retry_after": 7000}),
    );
}

/// A stream of Chat Completions: text, a call that is whole and one that is cut off, and an error behind them.
const CHAT: &[u8] = br#"data: {"id":"r","choices":[{"index":0,"delta":{"reasoning_content":"Hm."}}]}

data: {"id":"r","choices":[{"index":0,"delta":{"content":"Two "}}]}

data: {"id":"r","choices":[{"index":0,"delta":{"content":"calls."}}]}

data: {"id":"r","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"add","arguments":"{\"x\":1}"}}]}}]}

data: {"id":"r","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"add","arguments":"{\"x\":"}}]}}]}

data: {"error":{"message":"The server is overloaded","type":"server_error","code":"overloaded"}}

"#;

#[test]
fn a_stream_that_breaks_keeps_what_came() {
    for split in ["whole", "bytes", "7"] {
        let mut result = decode("openai-chat", CHAT, &["--split", split]);
        for varying in ["events", "ignored_lines"] {
            result.as_object_mut().unwrap().remove(varying).unwrap();
        }
        let expected = json!({
            "text": "Two calls.",
            "reasoning": "Hm.",
            "calls": [
                {"id": "a", "name": "add", "input": {"x": 1}, "raw": "{\"x\":1}", "hosted": false, "complete": true},
                {"id": "b", "name": "add", "input": null, "raw": "{\"x\":", "hosted": false, "complete": false},
            ],
            "finish": null,
            "usage": null,
            "error": {
                "class": "overloaded", "status": null, "code": "overloaded", "message": "The server is overloaded",
                "retry_after": null,
            },
            "unknown_lines": 0,
        });
        assert_eq!(result, expected, "{split}");
    }
    let events = settled(&["decode", "openai-chat", "--events"], CHAT);
    let lines: Vec<Value> = events.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert!(kinds.starts_with(&["response.info", "reasoning.start", "reasoning.delta"]), "{kinds:?}");
    assert_eq!((events.code, kinds.last()), (Some(0), Some(&"error")), "{kinds:?}");
    assert_eq!(lines.len() as u64, decode("openai-chat", CHAT, &[])["events"].as_u64().unwrap());
}

#[test]
fn mistakes_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let broken = file("broken.json", r#"{"name": "x", "provider": [{"stream": "#);
    let unknown = file("unknown.json", r#"{"name": "x", "provider": [], "colour": "red"}"#);
    let sound = file(
        "sound.json",
        r#"{"name": "x", "provider": [{"stream": [{"text": "Hi"}, {"finish": {"reason": "stop"}}]}]}"#,
    );
    let cases: &[(&[&str], &str)] = &[
        (&["decode", "bedrock-converse"], "bedrock-converse is not supported yet"),
        (&["decode", "bedrock-invoke-anthropic"], "bedrock-invoke-anthropic is not supported yet"),
        (&["decode", "ollama", "/nowhere"], "ollama is not supported yet"),
        (&["decode", "telegraph"], "possible values: openai-chat"),
        (&["decode"], "<PROTOCOL>"),
        (&["decode", "gemini", "/nowhere"], "`/nowhere` cannot be read"),
        (&["decode", "gemini", "/"], "`/` cannot be read"),
        (&["decode", "gemini", "--split", "some"], "it must be `whole`, `bytes` or a number"),
        (&["decode", "gemini", "--split", "-1"], "it must be `whole`, `bytes` or a number"),
        (&["decode", "gemini", "--status", "99"], "100..=599"),
        (&["lower", "ollama", &sound], "ollama is not supported yet"),
        (&["lower", "gemini", "/nowhere"], "`/nowhere` cannot be read"),
        (&["lower", "gemini", &broken], "broken.json`"),
        (&["lower", "gemini", &unknown], "colour"),
        (&["lower", "gemini", &sound, "--request", "2"], "sound.json` has no request 2: it sends 1 request"),
        (&["lower", "gemini", &sound, "--request", "0"], "--request"),
    ];
    for (arguments, says) in cases {
        let ended = settled(arguments, b"");
        assert_eq!((ended.code, &*ended.out), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(says), "{arguments:?}: {ended:?}");
    }
}

/// A step that calls a tool, and the step behind it.
const TWO_STEPS: &str = r#"{
    "name": "two steps",
    "tools": {"add": {"input": {"type": "object", "properties": {"x": {"type": "integer"}}}, "runs": [[{"ok": "3"}]]}},
    "provider": [
        {"stream": [{"text": "I add."}, {"call": {"id": "a", "name": "add", "input": {"x": 1}}}, {"finish": {"reason": "tool_calls"}}]},
        {"stream": [{"text": "Three."}, {"finish": {"reason": "stop"}}]}
    ]
}"#;

/// The bodies that the second request of a scenario becomes.
#[test]
fn a_request_of_a_scenario_is_lowered_to_each_wire() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("two-steps.json");
    std::fs::write(&path, TWO_STEPS).unwrap();
    let check = |protocol: &str, body: Value| {
        let ended = settled(&["lower", protocol, path.to_str().unwrap(), "--request", "2"], b"");
        assert_eq!((ended.code, &*ended.err, ended.out.lines().count()), (Some(0), "", 1), "{protocol}: {ended:?}");
        assert_eq!(serde_json::from_str::<Value>(&ended.out).unwrap(), body, "{protocol}");
    };
    let schema = json!({"type": "object", "properties": {"x": {"type": "integer"}}});
    let (description, cached) = ("The scripted tool add.", json!({"type": "ephemeral"}));
    check(
        "openai-chat",
        json!({
            "model": "model",
            "stream": true,
            "stream_options": {"include_usage": true},
            "messages": [
                {"role": "user", "content": "Hello"},
                {
                    "role": "assistant",
                    "content": "I add.",
                    "tool_calls": [
                        {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{\"x\":1}"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "a", "content": "3"},
            ],
            "tools": [
                {"type": "function", "function": {"name": "add", "description": description, "parameters": schema}},
            ],
        }),
    );
    check(
        "openai-responses",
        json!({
            "model": "model",
            "stream": true,
            "store": false,
            "include": ["reasoning.encrypted_content"],
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
                {"role": "assistant", "content": "I add."},
                {"type": "function_call", "call_id": "a", "name": "add", "arguments": "{\"x\":1}"},
                {"type": "function_call_output", "call_id": "a", "output": "3"},
            ],
            "tools": [
                {"type": "function", "name": "add", "description": description, "parameters": schema, "strict": false},
            ],
        }),
    );
    check(
        "anthropic-messages",
        json!({
            "model": "model",
            "stream": true,
            "max_tokens": 8192,
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Hello", "cache_control": cached}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "I add."},
                        {"type": "tool_use", "id": "a", "name": "add", "input": {"x": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "a", "content": "3", "cache_control": cached},
                    ],
                },
            ],
            "tools": [
                {"name": "add", "description": description, "input_schema": schema, "cache_control": cached},
            ],
        }),
    );
    check(
        "gemini",
        json!({
            "contents": [
                {"role": "user", "parts": [{"text": "Hello"}]},
                {"role": "model", "parts": [{"text": "I add."}, {"functionCall": {"name": "add", "args": {"x": 1}}}]},
                {"role": "user", "parts": [{"functionResponse": {"name": "add", "response": {"output": "3"}}}]},
            ],
            "tools": [
                {
                    "functionDeclarations": [
                        {
                            "name": "add",
                            "description": description,
                            "parameters": {"type": "OBJECT", "properties": {"x": {"type": "INTEGER"}}},
                        },
                    ],
                },
            ],
        }),
    );
}

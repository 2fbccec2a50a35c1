//! Runs over each wire: where requests go and with which key, what goes back, and how a session goes on with another provider.

use serde_json::{Value, json};
use settled_cli::server::{Received, Reply};

use crate::common::{Ended, World};

/// A wire as the command knows it.
#[derive(Clone, Copy, Debug)]
struct Wire {
    provider: &'static str,
    /// Behind the server's address.
    base: &'static str,
    /// Where requests go.
    target: &'static str,
    /// The model where none is named.
    model: &'static str,
    base_url_from: &'static str,
    key_from: &'static str,
    /// The header that has the key, and what stands before it.
    header: (&'static str, &'static str),
}

const WIRES: [Wire; 4] = [
    Wire {
        provider: "openai-chat",
        base: "/v1",
        target: "/v1/chat/completions",
        model: "gpt-4.1-mini",
        base_url_from: "OPENAI_BASE_URL",
        key_from: "OPENAI_API_KEY",
        header: ("authorization", "Bearer "),
    },
    Wire {
        provider: "openai",
        base: "/v1",
        target: "/v1/responses",
        model: "gpt-4.1-mini",
        base_url_from: "OPENAI_BASE_URL",
        key_from: "OPENAI_API_KEY",
        header: ("authorization", "Bearer "),
    },
    Wire {
        provider: "anthropic",
        base: "",
        target: "/v1/messages",
        model: "claude-haiku-4-5",
        base_url_from: "ANTHROPIC_BASE_URL",
        key_from: "ANTHROPIC_API_KEY",
        header: ("x-api-key", ""),
    },
    Wire {
        provider: "gemini",
        base: "/v1beta",
        target: "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
        model: "gemini-2.5-flash",
        base_url_from: "GOOGLE_GEMINI_BASE_URL",
        key_from: "GEMINI_API_KEY",
        header: ("x-goog-api-key", ""),
    },
];

/// What only its own provider may be given back.
const STATE: &str = "b3BhcXVl";

/// A body of server-sent events.
fn events(events: impl IntoIterator<Item = Value>) -> Reply {
    let event = |event: Value| {
        let name = event["type"].as_str().map(|name| format!("event: {name}\n")).unwrap_or_default();
        format!("{name}data: {event}\n\n")
    };
    let body: String = events.into_iter().map(event).collect();
    Reply::Recorded { status: 200, content_type: "text/event-stream".to_owned(), body: body.into_bytes() }
}

impl Wire {
    fn url(&self, world: &World) -> String {
        world.server.base_url().replace("/v1", self.base)
    }

    /// An answer: text, and at its end.
    fn text(&self, text: &str) -> Reply {
        match self.provider {
            "openai-chat" => events([
                json!({"id": "r", "choices": [{"index": 0, "delta": {"content": text}}]}),
                json!({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
            ]),
            "openai" => {
                let item = json!({
                    "type": "message", "id": "m", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": text, "annotations": []}],
                });
                events([
                    json!({"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}}),
                    json!({"type": "response.output_item.added", "output_index": 0, "item": {
                        "type": "message", "id": "m", "role": "assistant", "status": "in_progress", "content": [],
                    }}),
                    json!({"type": "response.content_part.added", "output_index": 0, "content_index": 0, "item_id": "m",
                        "part": {"type": "output_text", "text": "", "annotations": []}}),
                    json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "m",
                        "delta": text}),
                    json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "item_id": "m",
                        "text": text}),
                    json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
                    json!({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [item]}}),
                ])
            }
            "anthropic" => events([
                json!({"type": "message_start", "message": {"id": "r", "model": "m", "role": "assistant", "content": [],
                    "usage": {"input_tokens": 3, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
                json!({"type": "message_stop"}),
            ]),
            _ => events([json!({"candidates": [
                {"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP", "index": 0},
            ]})]),
        }
    }

    /// An answer: reasoning with state, where the wire has any, and a call of the shell.
    fn call(&self, command: &str) -> Reply {
        let arguments = json!({"command": command});
        match self.provider {
            "openai-chat" => events([
                json!({"id": "r", "choices": [{"index": 0, "delta": {"tool_calls": [
                    {"index": 0, "id": "call_1", "function": {"name": "shell", "arguments": arguments.to_string()}},
                ]}}]}),
                json!({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            ]),
            "openai" => {
                let reasoning = json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": STATE});
                let call = |arguments: &str| {
                    json!({"type": "function_call", "id": "fc", "call_id": "call_1", "name": "shell",
                        "arguments": arguments})
                };
                let (begun, done) = (call(""), call(&arguments.to_string()));
                events([
                    json!({"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}}),
                    json!({"type": "response.output_item.added", "output_index": 0,
                        "item": {"type": "reasoning", "id": "rs", "summary": []}}),
                    json!({"type": "response.output_item.done", "output_index": 0, "item": reasoning}),
                    json!({"type": "response.output_item.added", "output_index": 1, "item": begun}),
                    json!({"type": "response.function_call_arguments.done", "output_index": 1, "item_id": "fc",
                        "arguments": arguments.to_string()}),
                    json!({"type": "response.output_item.done", "output_index": 1, "item": done}),
                    json!({"type": "response.completed", "response": {"id": "r", "status": "completed",
                        "output": [reasoning, done]}}),
                ])
            }
            "anthropic" => events([
                json!({"type": "message_start", "message": {"id": "r", "model": "m", "role": "assistant", "content": []}}),
                json!({"type": "content_block_start", "index": 0, "content_block":
                    {"type": "thinking", "thinking": "", "signature": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta":
                    {"type": "thinking_delta", "thinking": "I look."}}),
                json!({"type": "content_block_delta", "index": 0, "delta":
                    {"type": "signature_delta", "signature": STATE}}),
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "content_block_start", "index": 1, "content_block":
                    {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {}}}),
                json!({"type": "content_block_delta", "index": 1, "delta":
                    {"type": "input_json_delta", "partial_json": arguments.to_string()}}),
                json!({"type": "content_block_stop", "index": 1}),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}}),
                json!({"type": "message_stop"}),
            ]),
            _ => events([json!({"candidates": [{
                "content": {"role": "model", "parts": [
                    {"functionCall": {"name": "shell", "args": arguments}, "thoughtSignature": STATE},
                ]},
                "finishReason": "STOP",
                "index": 0,
            }]})]),
        }
    }

    fn has_state(&self) -> bool {
        self.provider != "openai-chat"
    }

    /// Holds a request to have come on this wire, for its model, with this key.
    fn asked(&self, request: &Received, key: Option<&str>) {
        assert_eq!(request.target, self.target, "{self:?}");
        let (name, before) = self.header;
        assert_eq!(request.header(name), key.map(|key| format!("{before}{key}")).as_deref(), "{self:?}");
        // Gemini's model is in the path.
        let model = request.body.get("model").map_or(self.model, |model| model.as_str().unwrap());
        assert_eq!(model, self.model, "{self:?}");
    }
}

fn completed(ended: &Ended, out: &str) {
    assert_eq!((ended.code, &*ended.out), (Some(0), out), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_wire_is_spoken_and_remembered() {
    for wire in WIRES {
        let world = World::new([wire.call("echo seen"), wire.text("One."), wire.text("Two.")]).await;
        let flags = ["--provider", wire.provider, "--base-url", &wire.url(&world), "--tools", "shell"];
        let run = |arguments: &[&str]| -> Ended {
            world.settled(arguments).env(wire.key_from, " k-123 ").output().unwrap().into()
        };
        completed(&run(&[&["run", "Look", "--session", "s"], &flags[..]].concat()), "One.\n");
        completed(&run(&["run", "Again", "--session", "s"]), "Two.\n");

        let requests = world.server.requests();
        assert_eq!(requests.len(), 3, "{wire:?}");
        for (place, request) in requests.iter().enumerate() {
            wire.asked(request, Some("k-123"));
            let body = request.body.to_string();
            assert_eq!(body.contains("seen"), place > 0, "{wire:?}: the call and its result: {body}");
            assert_eq!(body.contains(STATE), wire.has_state() && place > 0, "{wire:?}: {body}");
            assert_eq!(body.contains("One."), place == 2, "{wire:?}: {body}");
        }
        let log = world.timeline("s");
        assert!(log.contains(&format!("for {}/{}", wire.provider, wire.model)), "{wire:?}: {log}");
        let known = crate::common::lines(&world.end(&["sessions", "--json"]).out);
        assert_eq!(known[0]["tags"]["provider"], wire.provider);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_with_any_other_provider() {
    for from in WIRES {
        for to in WIRES.into_iter().filter(|to| to.provider != from.provider) {
            let world =
                World::new([from.call("echo seen"), from.text("One."), to.text("Two."), to.text("Three.")]).await;
            let run = |arguments: &[&str]| -> Ended {
                world.settled(arguments).env(to.base_url_from, to.url(&world)).output().unwrap().into()
            };
            let (before, after) = (from.url(&world), to.url(&world));
            let first = ["run", "Look", "-s", "s", "--tools", "shell", "--provider", from.provider];
            completed(&run(&[&first[..], &["--base-url", &before]].concat()), "One.\n");
            completed(&run(&["run", "And?", "-s", "s", "--provider", to.provider, "--base-url", &after]), "Two.\n");
            completed(&run(&["run", "And now?", "-s", "s"]), "Three.\n");

            let requests = world.server.requests();
            assert_eq!(requests.len(), 4, "{from:?} {to:?}");
            for request in &requests[2..] {
                to.asked(request, None);
                let body = request.body.to_string();
                assert!(body.contains("seen") && body.contains("One."), "{from:?} {to:?}: {body}");
                assert!(!body.contains(STATE), "{from:?} {to:?}: another provider's state is in {body}");
            }
            world.timeline("s");
        }
    }
}

/// A switch that was handed in while the session waited for a person is still made by a later run.
#[tokio::test(flavor = "multi_thread")]
async fn a_switch_that_is_still_to_be_made_is_known_to_the_next_run() {
    let [chat, _, anthropic, _] = WIRES;
    let script = [chat.call("touch acted"), chat.text("One."), anthropic.text("Two."), anthropic.text("Three.")];
    let world = World::new(script).await;
    let run = |arguments: &[&str]| -> Ended {
        let mut command = world.settled(arguments);
        command.env(anthropic.base_url_from, anthropic.url(&world));
        command.env(chat.base_url_from, chat.url(&world)).output().unwrap().into()
    };
    let parked = run(&["run", "Go", "-s", "s", "--tools", "shell", "--ask", "all"]);
    assert_eq!(parked.code, Some(3), "{parked:?}");
    let still_parked = run(&["run", "And?", "-s", "s", "--provider", "anthropic"]);
    assert_eq!(still_parked.code, Some(3), "{still_parked:?}");
    assert_eq!(run(&["approve", "s"]).code, Some(0));
    let ended = run(&["run", "-s", "s"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let targets: Vec<String> = world.server.requests().into_iter().map(|request| request.target).collect();
    assert_eq!((&*targets[0], &**targets.last().unwrap()), (chat.target, anthropic.target), "{targets:?}");
    assert!(world.timeline("s").contains("model anthropic/claude-haiku-4-5"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_or_refused_key_is_named() {
    for wire in WIRES {
        let refusal =
            Reply::Status(401, json!({"error": {"type": "authentication_error", "message": "invalid x-api-key"}}));
        let world = World::new([refusal]).await;
        let missing = world.end(&["run", "Hi", "--provider", wire.provider]);
        assert_eq!(missing.code, Some(2), "{missing:?}");
        assert!(missing.err.contains(&format!("set {}", wire.key_from)), "{wire:?}: {missing:?}");
        let refused =
            world.end(&["run", "Hi", "--provider", wire.provider, "--base-url", &wire.url(&world), "--retries", "0"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.err.contains(&format!("check {}", wire.key_from)), "{wire:?}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_not_in_the_environment_of_the_shell() {
    let wire = WIRES[3];
    let world = World::new([wire.call("env > seen"), wire.text("Done.")]).await;
    let mut command = world.settled(&["run", "Go", "--provider", "gemini", "--tools", "shell", "--folder"]);
    command.arg(world.file("")).args(["--base-url", &wire.url(&world)]).env("GOOGLE_API_KEY", "k-google");
    for other in ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"] {
        command.env(other, "k-other");
    }
    completed(&command.output().unwrap().into(), "Done.\n");
    wire.asked(&world.server.requests()[0], Some("k-google"));
    let seen = std::fs::read_to_string(world.file("seen")).unwrap();
    assert!(seen.contains("PATH=") && !seen.contains("k-google") && !seen.contains("k-other"), "{seen}");
}

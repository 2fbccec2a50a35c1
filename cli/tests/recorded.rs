//! Recorded tool loops of four vendors, served over HTTP, run to their end on SQLite; and the command on a recorded text.
//!
//! Recordings are looked for in `SETTLED_RECORDINGS`, else in `../shared/recordings` from the workspace's root; without any, nothing is tested.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may stop at what it did not expect")]

use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::Value;
use settled_ledger::check::check_log;
use settled_ledger::store::EventLog;
use settled_ledger::{Outcome, Seq};
use settled_provider_api::{FixedKey, ModelInfo, ModelRef};
use settled_provider_openai::chat::{Dialect, OpenAiChat};
use settled_runner::{Runner, Serving};
use settled_store_sqlite::SqliteStore;
use settled_tools_api::{ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolReturn, Toolbox};

/// One tool loop of each vendor.
const LOOPS: [(&str, &str); 4] = [
    ("openai", "rig__openai__max_completion_tokens_matrix__reasoning_gpt5_nano_tool_turn_streaming_cap"),
    ("groq", "rig__groq__agent_tool_sessions__parallel_tool_calls_single_turn_streaming"),
    ("llamacpp", "rig__llamacpp__streaming_tools__raw_followup_uses_tool_result_without_new_tool_calls"),
    (
        "mistral",
        "ruby_llm__chat_function_calling_mistral_mistral-small-latest_can_use_tools_with_multi-turn_streaming_conversations",
    ),
];

fn recordings() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings");
    std::env::var_os("SETTLED_RECORDINGS").map_or_else(default, PathBuf::from).join("openai-chat")
}

fn recording(name: &str) -> Option<Value> {
    let text = std::fs::read_to_string(recordings().join(format!("{name}.json")));
    text.ok().map(|text| serde_json::from_str(&text).unwrap())
}

/// Serves the bodies of a recording, one for each request, in order; gives the base URL.
fn serve(recording: &Value) -> (String, Arc<Mutex<usize>>) {
    let bodies: VecDeque<String> = recording["exchanges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|exchange| exchange["response"]["body"].as_str().unwrap().to_owned())
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let served = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&served);
    std::thread::spawn(move || {
        for body in bodies {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            reader.take(length).read_to_end(&mut Vec::new()).unwrap();
            *counted.lock().unwrap() += 1;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body.as_bytes()).unwrap();
        }
    });
    (base, served)
}

/// Tools that answer what the recording's next request says they answered.
struct Recorded {
    definitions: Vec<ToolDefinition>,
    answers: Mutex<HashMap<String, VecDeque<String>>>,
}

impl Recorded {
    fn new(recording: &Value) -> Self {
        let exchanges = recording["exchanges"].as_array().unwrap();
        let tools = exchanges[0]["request"]["body"]["tools"].as_array().unwrap();
        let definitions = tools.iter().map(|tool| {
            let function = &tool["function"];
            let text = |name: &str| function[name].as_str().unwrap_or("").to_owned();
            ToolDefinition::new(text("name"), text("description"), function["parameters"].clone())
        });
        let messages = exchanges.last().unwrap()["request"]["body"]["messages"].as_array().unwrap();
        let called = messages.iter().filter_map(|message| message["tool_calls"].as_array()).flatten();
        let names: HashMap<&str, &str> = called
            .map(|call| (call["id"].as_str().unwrap_or(""), call["function"]["name"].as_str().unwrap_or("")))
            .collect();
        let mut answers: HashMap<String, VecDeque<String>> = HashMap::new();
        for message in messages.iter().filter(|message| message["role"] == "tool") {
            let name = names.get(message["tool_call_id"].as_str().unwrap_or("")).copied().unwrap_or("");
            let content = message["content"].as_str().map_or_else(|| message["content"].to_string(), str::to_owned);
            answers.entry(name.to_owned()).or_default().push_back(content);
        }
        Self { definitions: definitions.collect(), answers: Mutex::new(answers) }
    }
}

#[async_trait]
impl ToolExecutor for Recorded {
    fn definitions(&self) -> Vec<ToolDefinition> {
        self.definitions.clone()
    }

    async fn execute(&self, call: ToolCall, _: ToolContext) -> Result<ToolReturn, ToolError> {
        let answer = self.answers.lock().unwrap().get_mut(&call.name).and_then(VecDeque::pop_front);
        answer.map(ToolReturn::text).ok_or_else(|| ToolError::failed("the recording has no answer"))
    }
}

/// What a person said in a message, as text.
fn said(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        parts => parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str()).collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_tool_loops_run_to_their_end() {
    let mut ran = 0;
    for (vendor, name) in LOOPS {
        let Some(recording) = recording(name) else { continue };
        let exchanges = recording["exchanges"].as_array().unwrap();
        let (base, served) = serve(&recording);
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("sessions.db")).unwrap();
        let provider = OpenAiChat::builder(base, Arc::new(FixedKey::none())).dialect(Dialect::named(vendor).unwrap());
        let runner = Runner::builder()
            .model(ModelRef::new(vendor, "recorded"), provider.build().unwrap(), ModelInfo::new())
            .tools(Toolbox::new().with(Recorded::new(&recording)))
            .store(store.clone())
            .serving(Serving::Asked)
            .build()
            .unwrap();
        let session = runner.session(vendor).await.unwrap();
        let mut last = None;
        for (place, exchange) in exchanges.iter().enumerate() {
            let asked = exchange["request"]["body"]["messages"].as_array().unwrap().last().unwrap();
            // A client that added a note of its own behind the results asked for what our loop has asked for already.
            if asked["role"] == "user" && *served.lock().unwrap() == place {
                session.prompt(said(asked)).await.unwrap();
                let settled = session.run().await.unwrap();
                assert_eq!(settled.outcome, Outcome::Completed, "{vendor}: {:?}", settled.error);
                last = settled.answer;
            }
        }
        let expected = exchanges.last().unwrap()["expected"]["text"].as_str().unwrap();
        assert_eq!(last.as_deref(), Some(expected), "{vendor}");
        assert_eq!(*served.lock().unwrap(), exchanges.len(), "{vendor}");
        let log = store.read(session.id(), Seq::START, 10_000).await.unwrap();
        assert_eq!(check_log(&log), [], "{vendor}");
        let calls = log.iter().filter(|row| row.kind == "tool.success").count();
        println!("{vendor}: {} exchanges, {calls} calls, {} events, every invariant holds", exchanges.len(), log.len());
        assert!(calls > 0, "{vendor}");
        ran += 1;
    }
    if ran == 0 {
        println!("skipped: there are no recordings");
    }
}

#[test]
fn the_command_answers_a_recorded_text() {
    let Some(recording) = recording("dd-trace-py__contrib__openai__cassettes__v1__chat_completion_streamed_tokens")
    else {
        println!("skipped: there are no recordings");
        return;
    };
    let (base, _) = serve(&recording);
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_settled"))
        .args(["run", "Hello", "--retries", "0", "--base-url", &base, "--data"])
        .arg(folder.path())
        .output()
        .unwrap();
    let expected = recording["exchanges"][0]["expected"]["text"].as_str().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        expected.trim(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(0));
}

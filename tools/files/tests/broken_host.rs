//! A host without file handles is the host's failure, not the model's.
//!
//! Alone in its file: the limit is the whole process's.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use settled_tool_files::Files;
use settled_tools_api::{
    CallKey, EffectKey, MessageId, RunInfo, SessionId, ToolCall, ToolContext, ToolError, ToolExecutor as _,
};

#[tokio::test]
async fn no_file_handles_left() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), "x").unwrap();
    let call = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
    let info = RunInfo::new(EffectKey::new("key").unwrap(), SessionId::new("s").unwrap(), call);
    let tools = Files::new(folder.path()).unwrap();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: before.maximum }).unwrap();
    let mut said = Vec::new();
    for (name, input) in [
        ("read_file", json!({"path": "f"})),
        ("list_files", json!({})),
        ("write_file", json!({"path": "g", "content": "x"})),
    ] {
        said.push(tools.execute(ToolCall::new(name, input), ToolContext::detached(info.clone())).await);
    }
    setrlimit(Resource::Nofile, before).unwrap();
    let infra = |what: &str| Err(ToolError::infra(format!("cannot {what}: Too many open files (os error 24)")));
    assert_eq!(said, [infra("read `f`"), infra("list `.`"), infra("write `g`")]);
}

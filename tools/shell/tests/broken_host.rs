//! A host without file handles is the host's failure, not the model's.
//!
//! Alone in its file: the limit is the whole process's.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use settled_tool_shell::Shell;
use settled_tools_api::{
    CallKey, EffectKey, MessageId, RunInfo, SessionId, ToolCall, ToolContext, ToolError, ToolExecutor as _,
};

#[tokio::test]
async fn no_file_handles_left() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    let call = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
    let info = RunInfo::new(EffectKey::new("key").unwrap(), SessionId::new("s").unwrap(), call);
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: before.maximum }).unwrap();
    let said = shell.execute(ToolCall::new("shell", json!({"command": "true"})), ToolContext::detached(info)).await;
    setrlimit(Resource::Nofile, before).unwrap();
    let infra = ToolError::infra("cannot start a process: Too many open files (os error 24)");
    assert_eq!(said, Err(infra));
}

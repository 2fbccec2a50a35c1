//! A call leaves no child to reap and no open handle.
//!
//! Alone in its file: it counts what the whole process has.

use rustix::io::Errno;
use rustix::process::{WaitOptions, wait};
use serde_json::json;
use settled_tool_shell::Shell;
use settled_tools_api::{CallKey, EffectKey, MessageId, RunInfo, SessionId, ToolCall, ToolContext, ToolExecutor as _};

#[tokio::test]
async fn nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    let call = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
    let info = RunInfo::new(EffectKey::new("key").unwrap(), SessionId::new("s").unwrap(), call);
    let handles = || std::fs::read_dir("/dev/fd").unwrap().count();
    let mut first = None;
    for command in ["true", "exit 3", "sleep 1000 & echo x", "kill -KILL 0", "sleep 1000 >/dev/null & true"] {
        for timeout in [json!(null), json!(1)] {
            let input = json!({"command": command, "timeout_ms": timeout});
            let _success_or_not =
                shell.execute(ToolCall::new("shell", input), ToolContext::detached(info.clone())).await;
            assert_eq!(wait(WaitOptions::NOHANG).unwrap_err(), Errno::CHILD, "{command}");
            assert_eq!(handles(), *first.get_or_insert_with(handles), "{command}");
        }
    }
}

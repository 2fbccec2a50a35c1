//! B091: a host that is killed takes its commands along.

use std::process::{Command, Stdio};

use serde_json::json;
use settled_tool_shell::Shell;

use crate::support::{Alive, Host, run_in, within};

/// Where the host that is to be killed finds its folder.
const FOLDER: &str = "SETTLED_SHELL_TEST_FOLDER";

#[tokio::test]
async fn a_killed_host_takes_its_commands_along() {
    let folder = tempfile::tempdir().unwrap();
    Alive::make(folder.path());
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "host::to_be_killed", "--ignored"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let alive = within(Alive::ready(folder.path())).await;
    // `kill` is `SIGKILL`: the host can do nothing any more.
    host.kill().unwrap();
    host.wait().unwrap();
    within(alive.dead()).await;
}

#[tokio::test]
#[ignore = "the host that the other test starts and kills"]
async fn to_be_killed() {
    let folder = std::env::var_os(FOLDER).unwrap();
    let shell = Shell::new(folder).unwrap();
    let command = "trap '' TERM HUP; exec 9>alive; (sleep 1000 >/dev/null 2>&1 &); echo ready >&9; sleep 1000";
    let (host, _) = Host::new(None);
    let said = run_in(&shell, json!({ "command": command }), host.context()).await;
    panic!("it should have been killed: {said:?}");
}

//! B091: a host that is killed takes its commands along.

use std::process::{Command, Stdio};

use serde_json::json;
use settled_tool_shell::Shell;

use crate::support::{Alive, Host, run_in, within};

/// Where the host that is to be killed finds its folder, and its command.
const FOLDER: &str = "SETTLED_SHELL_TEST_FOLDER";
const COMMAND: &str = "SETTLED_SHELL_TEST_COMMAND";

#[tokio::test]
async fn a_killed_host_takes_its_commands_along() {
    for command in [
        "trap '' TERM HUP; exec 9>alive; (sleep 1000 >/dev/null 2>&1 &); echo ready >&9; sleep 1000",
        // The host has cancelled the call, and is killed before its grace is over.
        // A `wait` is interrupted by the signal; a child in the foreground could miss it, and delay the trap.
        "trap 'echo ready >&9' TERM; exec 9>alive; echo cancel; while :; do sleep 1000 & wait; done",
    ] {
        let folder = tempfile::tempdir().unwrap();
        Alive::make(folder.path());
        let mut host = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "host::to_be_killed", "--ignored"])
            .env(FOLDER, folder.path())
            .env(COMMAND, command)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let alive = within(Alive::ready(folder.path())).await;
        // `kill` is `SIGKILL`: the host can do nothing any more.
        host.kill().unwrap();
        host.wait().unwrap();
        within(alive.dead()).await;
    }
}

#[tokio::test]
#[ignore = "the host that the other test starts and kills"]
async fn to_be_killed() {
    let shell = Shell::new(std::env::var_os(FOLDER).unwrap()).unwrap();
    let (host, mut shown) = Host::new(None);
    let input = json!({ "command": std::env::var(COMMAND).unwrap() });
    let call = run_in(&shell, input, host.context());
    let cancel = async {
        if let Some(_first) = shown.recv().await {
            host.cancel.cancel();
        }
        std::future::pending().await
    };
    tokio::select! {
        said = call => panic!("it should have been killed: {said:?}"),
        () = cancel => {}
    }
}

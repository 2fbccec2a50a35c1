//! Every process of a call ends with it, however it ends.
//!
//! Where time limits matter the clock is paused: it stands while a test waits for the named pipe, and jumps when nothing else is left to wait for.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use settled_tool_shell::Shell;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::support::{Alive, Host, Said, run, run_in, stopped, success, within};

const CANCELLED: &str = "[the command was stopped: the call was cancelled]\n";

/// Starts a call in a folder with the named pipe.
fn start(input: Value, remaining: Option<Duration>) -> (TempDir, Arc<Host>, JoinHandle<Said>) {
    let folder = tempfile::tempdir().unwrap();
    Alive::make(folder.path());
    let shell = Shell::new(folder.path()).unwrap();
    let (host, _) = Host::new(remaining);
    let context = host.context();
    let call = tokio::spawn(async move { run_in(&shell, input, context).await });
    (folder, host, call)
}

#[tokio::test]
async fn a_cancel_ends_all_processes_of_the_group() {
    for command in [
        "exec 9>alive; sleep 1000 & sleep 1000 & echo ready >&9; wait",
        // A grandchild that outlasts `SIGTERM` and holds the output.
        "exec 9>alive; (trap '' TERM; echo ready >&9; exec sleep 1000) & wait",
        "exec 9>alive; (sleep 1000 >/dev/null 2>&1 &); echo ready >&9; sleep 1000",
    ] {
        let (folder, host, call) = start(json!({ "command": command }), None);
        let alive = within(Alive::ready(folder.path())).await;
        host.cancel.cancel();
        assert_eq!(within(call).await.unwrap(), stopped(CANCELLED, "cancelled"), "{command}");
        within(alive.dead()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_command_may_clean_up() {
    // The sleeper does not hold the pipe: a signal that comes before it is a sleeper may be lost on it.
    let command = "trap 'echo bye; exit 0' TERM; exec 9>alive; sleep 1000 9>&- & echo ready >&9; wait";
    let (folder, host, call) = start(json!({ "command": command }), None);
    let alive = Alive::ready(folder.path()).await;
    // The clock stands until the command has ended by itself.
    let dead = tokio::spawn(alive.dead());
    host.cancel.cancel();
    assert_eq!(call.await.unwrap(), stopped(&format!("bye\n{CANCELLED}"), "cancelled"));
    dead.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_command_that_does_not_listen_is_killed() {
    let command = "trap '' TERM; exec 9>alive; echo x; echo ready >&9; while :; do sleep 1000; done";
    let (folder, host, call) = start(json!({ "command": command }), None);
    let alive = Alive::ready(folder.path()).await;
    host.cancel.cancel();
    assert_eq!(call.await.unwrap(), stopped(&format!("x\n{CANCELLED}"), "cancelled"));
    alive.dead().await;
}

#[tokio::test]
async fn a_cancelled_call_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let (host, _) = Host::new(None);
    host.cancel.cancel();
    let shell = Shell::new(folder.path()).unwrap();
    let said = run_in(&shell, json!({"command": "touch started"}), host.context()).await;
    assert_eq!(said, Err(("the call was cancelled before the command was started".to_owned(), Value::Null)));
    assert!(!folder.path().join("started").exists());
}

/// B092: a limit ends the grandchildren too.
#[tokio::test(start_paused = true)]
async fn a_time_limit_ends_the_command() {
    let command = "exec 9>alive; (sleep 1000 &); echo x; echo ready >&9; sleep 99";
    let ms = |ms| Some(Duration::from_millis(ms));
    for (timeout_ms, remaining, limit) in [
        (json!(1000), None, 1000),
        (json!(1000), ms(60_000), 1000),
        // The runner's deadline leaves time for stopping and answering.
        (json!(null), ms(60_000), 58_500),
        (json!(60_000), ms(60_000), 58_500),
        (json!(null), ms(4_000), 3_000),
    ] {
        let (folder, _host, call) = start(json!({"command": command, "timeout_ms": timeout_ms}), remaining);
        let alive = Alive::ready(folder.path()).await;
        let says = format!("x\n[the command was stopped after its time limit of {limit} ms]\n");
        assert_eq!(call.await.unwrap(), stopped(&says, "timeout"));
        alive.dead().await;
    }
}

/// B093: what is left in the background does not keep the call waiting, nor does it outlive it.
#[tokio::test]
async fn a_call_ends_with_its_shell() {
    for command in [
        "exec 9>alive; sleep 1000 & echo ready >&9; echo done",
        "exec 9>alive; sleep 1000 >/dev/null 2>&1 & echo ready >&9; echo done",
        "exec 9>alive; nohup sleep 1000 >/dev/null 2>&1 & echo ready >&9; echo done",
        "exec 9>alive; (trap '' TERM HUP; exec sleep 1000) & echo ready >&9; echo done",
    ] {
        let (folder, _host, call) = start(json!({ "command": command }), None);
        let alive = within(Alive::ready(folder.path())).await;
        assert_eq!(within(call).await.unwrap(), success("done\n"), "{command}");
        within(alive.dead()).await;
    }
}

#[tokio::test]
async fn the_output_of_a_child_that_ends_in_time_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    // The child gets its line only from the shell's last act, and writes it when the shell may be gone.
    let command = "mkfifo f; exec 9<>f; (read line <&9; echo \"$line\") & echo late >&9; echo done";
    let (text, _) = run(&shell, command).await.unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["done", "late"]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_process_that_left_the_group_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    let (text, _) = run(&shell, "setsid sleep 1000 & echo $!").await.unwrap();
    assert_eq!(run(&shell, &format!("kill -KILL {} || true", text.trim())).await.map(|_| ()), Ok(()));
}

#[tokio::test]
async fn a_dropped_call_ends_its_processes() {
    let (folder, _host, call) = start(json!({"command": "exec 9>alive; sleep 1000 & echo ready >&9; wait"}), None);
    let alive = within(Alive::ready(folder.path())).await;
    call.abort();
    assert!(within(call).await.unwrap_err().is_cancelled());
    within(alive.dead()).await;
}

/// A command that kills its own group, the watch included, ends like any other.
#[tokio::test]
async fn a_command_may_kill_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    let killed = |signal: i32| Err((format!("x\n[killed by signal {signal}]\n"), json!({ "signal": signal })));
    assert_eq!(run(&shell, "echo x; kill -KILL 0; sleep 1000").await, killed(9));
    assert_eq!(run(&shell, "echo x; kill -TERM 0; sleep 1000").await, killed(15));
}

#[tokio::test]
async fn two_commands_run_beside_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let shell = Shell::new(folder.path()).unwrap();
    assert_eq!(run(&shell, "mkfifo a b").await, success(""));
    let (one, other) = tokio::join!(run(&shell, "echo 1 >a; cat b"), run(&shell, "cat a; echo 2 >b"));
    assert_eq!((one, other), (success("2\n"), success("1\n")));
}

//! A command that is killed while a tool runs, and goes on: no tool runs twice, and every call has its outcome.
#![expect(clippy::unwrap_used, reason = "a test may stop at what it did not expect")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use settled_cli::server::{Part, Reply, Server};

/// How long to wait for another process before giving up; nothing is asserted about it.
const PATIENCE: Duration = Duration::from_secs(60);

fn settled(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_settled"));
    command.arg("--data").arg(folder.join("data")).stdin(Stdio::null());
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    settled(folder).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Waits until a file is there: the tool has acted.
fn wait_for(file: &Path, child: &mut Child) {
    let began = Instant::now();
    while !file.exists() {
        assert!(child.try_wait().unwrap().is_none(), "the command ended by itself");
        assert!(began.elapsed() < PATIENCE, "the tool did not act");
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_run_goes_on_and_runs_no_tool_twice() {
    let folder = tempfile::tempdir().unwrap();
    let acted = folder.path().join("acted");
    let shell = |id: &str, command: String| Part::call(id, "shell", json!({"command": command}));
    let server = Server::start([
        // The shell runs one command at a time: the second call waits for its turn when the process is killed.
        Reply::calls([
            shell("a", format!("echo first >> {}; sleep 600", acted.display())),
            shell("b", format!("echo second >> {}", acted.display())),
        ]),
        // What was unfinished goes on by itself; what is said meanwhile joins it, or comes behind it.
        Reply::text("I go on."),
        Reply::text("I go on."),
    ])
    .await
    .unwrap();
    let mut child = settled(folder.path())
        .args(["run", "Go", "--session", "killed", "--tools", "shell", "--base-url", &server.base_url(), "--folder"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for(&acted, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();

    let again = run(folder.path(), &["run", "And now?", "--session", "killed"]);
    assert!(String::from_utf8_lossy(&again.stdout).starts_with("I go on.\n"), "{}", text(&again));
    assert_eq!(again.status.code(), Some(0), "{}", text(&again));
    assert_eq!(
        std::fs::read_to_string(&acted).unwrap(),
        "first\n",
        "a tool ran twice, or one that was not started ran"
    );

    let log = run(folder.path(), &["log", "killed"]);
    let log = text(&log);
    let line = |call: &str| log.lines().find(|line| line.contains(call)).unwrap_or_default().to_owned();
    assert!(line("call 0: shell unknown (may have acted)").contains("shell unknown"), "{log}");
    assert!(line("call 1: shell failed (not_run)").contains("not_run"), "{log}");
    let check = run(folder.path(), &["check", "killed"]);
    assert_eq!(check.status.code(), Some(0), "{}", text(&check));
}

#[test]
fn the_demo_runs_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let demo = run(folder.path(), &["demo"]);
    assert_eq!(demo.status.code(), Some(0), "{}", text(&demo));
    assert!(text(&demo).contains("every invariant holds"), "{}", text(&demo));
}

#[test]
fn mistakes_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], i32, &str); 5] = [
        (&["run", "Hi", "--base-url", "http://127.0.0.1:9/v1", "--retries", "0"], 1, "is the server running?"),
        (
            &["run", "Hi", "--folder", "/nowhere", "--tools", "files", "--base-url", "http://127.0.0.1:9/v1"],
            2,
            "/nowhere",
        ),
        (&["log", "nobody"], 2, "settled sessions"),
        (&["check", "nobody"], 2, "nobody"),
        (&["run", "Hi"], 2, "OPENAI_API_KEY"),
    ];
    for (arguments, code, says) in cases {
        let output =
            settled(folder.path()).args(arguments).env_remove("OPENAI_API_KEY").env_remove("OPENAI_BASE_URL").output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(says), "{arguments:?}: {}", text(&output));
    }
}

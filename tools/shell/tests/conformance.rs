//! The shell on the suite for tools.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use settled_testkit::conformance::Verdict;
use settled_testkit::conformance::tool::{Sample, ToolFixture, ToolSubject, ToolSuite};
use settled_tool_shell::Shell;

/// Makes an empty folder to run commands in.
struct Folders;

#[async_trait]
impl ToolFixture for Folders {
    async fn open(&self) -> Result<ToolSubject, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let shell = Shell::new(folder.path()).map_err(|error| error.to_string())?;
        let long = "echo $$ >> pids; sh -c 'trap \"\" TERM; echo $$ >> pids; exec sleep 1000' & echo ready; wait";
        let sample = Sample::new("shell")
            .takes(json!({"command": "echo hello > hello; cat hello"}))
            .takes(json!({"command": "pwd > /dev/null; echo oops >&2", "timeout_ms": 60_000}))
            .apart(json!({"command": "echo a > a; cat a"}), json!({"command": "echo b > b; cat b"}))
            .large(json!({"command": "yes | head -c 3000000"}), 600 * 1024)
            .long(json!({ "command": long }))
            .shows(json!({"command": "echo one; sleep 0.3; echo two"}))
            .refuses(json!({"command": ["echo"]}))
            .refuses(json!({"command": "echo hello > hello", "timeout_ms": 0}))
            .refuses(json!({"command": "echo hello > hello", "more": 1}))
            .refuses(json!({}))
            .fails(json!({"command": "exit 3"}))
            .fails(json!({"command": " "}))
            .fails(json!({"command": "no-command-has-this-name"}));
        let (seen, pids) = (folder.path().to_owned(), folder.path().join("pids"));
        Ok(ToolSubject::new(Arc::new(shell))
            .sample(sample)
            .world(move || json!(contents(&seen)))
            .working(move || alive(&pids))
            .keeping(folder))
    }
}

/// The files of a folder.
fn contents(folder: &Path) -> BTreeMap<String, Value> {
    let file = |entry: fs::DirEntry| {
        let content = fs::read_to_string(entry.path()).unwrap();
        (entry.file_name().into_string().unwrap(), json!(content))
    };
    fs::read_dir(folder).unwrap().map(|entry| file(entry.unwrap())).collect()
}

/// How many of the processes whose ids are in a file are there.
fn alive(pids: &Path) -> usize {
    let pids = fs::read_to_string(pids).unwrap_or_default();
    let ids = pids.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?));
    ids.filter(|pid| test_kill_process(*pid).is_ok() && !is_zombie(*pid)).count()
}

/// Whether a process is dead and only waits for its parent, which may be slow to look.
fn is_zombie(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with(['Z', 'X']))
}

/// In real time, as processes live in it; the limits are there for what hangs.
#[tokio::test]
async fn conformance() {
    let report = ToolSuite::new().run(&Folders).await.into_result().unwrap();
    let skipped: BTreeMap<_, _> = report
        .lines
        .iter()
        .filter_map(|line| match &line.verdict {
            Verdict::Skipped(reason) => Some((line.case.as_str(), reason.as_str())),
            _ => None,
        })
        .collect();
    let (reconciler, idempotent) = ("no tool has a reconciler", "no tool is idempotent");
    assert_eq!(
        skipped,
        BTreeMap::from([
            ("schema.examples", "no schema has examples or defaults"),
            ("output.media", "no output has media"),
            ("ask.asks", "no sample asks"),
            ("ask.acts_not", "no sample asks"),
            ("ask.answered", "no sample asks"),
            ("ask.foreign_state", "no sample asks"),
            // What a command does twice nobody knows: the tool is run at most once.
            ("effect.seen", "no tool says that it acts and may run again"),
            ("pure.acts_not", "no tool is pure"),
            ("idempotent.twice", idempotent),
            ("idempotent.at_once", idempotent),
            ("idempotent.cut", idempotent),
            ("reconcile.before", reconciler),
            ("reconcile.happened", reconciler),
            ("reconcile.answer", reconciler),
            ("reconcile.acts_not", reconciler),
            ("reconcile.other_call", reconciler),
            ("reconcile.cut", reconciler),
            ("reconcile.again", reconciler),
            ("notes.lost", "no run leaves a note"),
        ])
    );
}

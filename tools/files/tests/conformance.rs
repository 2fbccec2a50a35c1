//! The file tools on the suite for tools.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Value, json};
use settled_testkit::conformance::Verdict;
use settled_testkit::conformance::tool::{Sample, ToolFixture, ToolSubject, ToolSuite};
use settled_tool_files::Files;

/// Makes a folder with some files.
struct Folders;

/// The most bytes that an answer has.
const BOUND: usize = 48 * 1024;

#[async_trait]
impl ToolFixture for Folders {
    async fn open(&self) -> Result<ToolSubject, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        fs::create_dir(folder.path().join("src")).map_err(|error| error.to_string())?;
        for (path, content) in [
            ("a.txt", "one\ntwo\n".to_owned()),
            ("src/b.rs", "fn two() {}\n".to_owned()),
            ("large.txt", "a line of the large file\n".repeat(2 * BOUND / 25)),
            ("long.txt", "x".repeat(2 * BOUND)),
        ] {
            fs::write(folder.path().join(path), content).map_err(|error| error.to_string())?;
        }
        let files = Files::new(folder.path()).map_err(|error| error.to_string())?;
        let root = folder.path().to_owned();
        let samples = [
            Sample::new("read_file")
                .takes(json!({"path": "a.txt"}))
                .takes(json!({"path": "src/b.rs", "offset": 1, "limit": 1}))
                .apart(json!({"path": "a.txt"}), json!({"path": "src/b.rs"}))
                .large(json!({"path": "large.txt"}), BOUND)
                .refuses(json!({"path": 1}))
                .refuses(json!({"path": "a.txt", "offset": 0}))
                .refuses(json!({"path": "a.txt", "more": true}))
                .fails(json!({"path": "nothing.txt"}))
                .fails(json!({"path": "../outside.txt"}))
                .fails(json!({"path": "src"})),
            Sample::new("list_files")
                .takes(json!({}))
                .takes(json!({"path": "src", "glob": "*.rs"}))
                .apart(json!({"path": "."}), json!({"path": "src"}))
                .refuses(json!({"path": ["src"]}))
                .fails(json!({"path": "nothing"})),
            Sample::new("search_files")
                .takes(json!({"pattern": "two"}))
                .takes(json!({"pattern": "fn \\w+", "syntax": "regex", "glob": "**/*.rs"}))
                .apart(json!({"pattern": "one"}), json!({"pattern": "two"}))
                .large(json!({"pattern": "large"}), BOUND)
                .refuses(json!({"pattern": "x", "syntax": "glob"}))
                .refuses(json!({"pattern": ""}))
                .refuses(json!({"pattern": "x".repeat(1_001)}))
                .fails(json!({"pattern": "(", "syntax": "regex"})),
            Sample::new("edit_file")
                .takes(json!({"path": "a.txt", "old_text": "two", "new_text": "2"}))
                .apart(
                    json!({"path": "a.txt", "old_text": "one", "new_text": "1"}),
                    json!({"path": "a.txt", "old_text": "two\n", "new_text": "2\n3\n"}),
                )
                .refuses(json!({"path": "a.txt", "old_text": "two"}))
                .fails(json!({"path": "a.txt", "old_text": "three", "new_text": "3"})),
            Sample::new("write_file")
                .takes(json!({"path": "new/c.txt", "content": "new\n"}))
                .takes(json!({"path": "a.txt", "content": ""}))
                .apart(json!({"path": "c.txt", "content": "c"}), json!({"path": "d.txt", "content": "d"}))
                .refuses(json!({"path": "c.txt", "content": null}))
                .fails(json!({"path": "../c.txt", "content": "c"}))
                .fails(json!({"path": "src", "content": "c"})),
        ];
        let subject = ToolSubject::new(Arc::new(files)).world(move || json!(contents(&root))).keeping(folder);
        Ok(samples.into_iter().fold(subject, ToolSubject::sample))
    }
}

/// All files below a folder, by their paths.
fn contents(folder: &Path) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            // What is staged may be gone by now.
            match fs::read(&path) {
                Ok(content) => {
                    let name = path.strip_prefix(folder).unwrap().display().to_string();
                    all.insert(name, json!(String::from_utf8_lossy(&content)));
                }
                Err(_) if path.is_dir() => folders.push(path),
                Err(_) => {}
            }
        }
    }
    all
}

/// The clock is paused: it stands while a thread works on a file, and jumps when nothing is left to wait for.
#[tokio::test(start_paused = true)]
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
    // A file is read, or a folder searched, in one go that a cancel stops: no run goes on until it is cancelled.
    let long = "no sample runs long";
    assert_eq!(
        skipped,
        BTreeMap::from([
            ("schema.examples", "no schema has examples or defaults"),
            ("output.media", "no output has media"),
            ("ask.asks", "no sample asks"),
            ("ask.acts_not", "no sample asks"),
            ("ask.answered", "no sample asks"),
            ("ask.foreign_state", "no sample asks"),
            ("cancel.stops", long),
            ("cancel.before", long),
            ("cancel.leaves_nothing", long),
            ("cancel.quiet", long),
            ("cancel.goes_on", long),
            ("drop.leaves_nothing", long),
            ("beside.cancel", long),
            ("beside.drop", long),
            ("progress.shown", "no sample shows progress"),
            ("progress.not_after", "no sample shows progress or runs long"),
            ("idempotent.twice", "no tool is idempotent"),
            ("idempotent.at_once", "no tool is idempotent"),
            ("idempotent.cut", "no tool is idempotent"),
        ])
    );
}

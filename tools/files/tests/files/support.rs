//! A folder with files, and a runner's side that keeps notes and may act in the middle of one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use settled_tool_files::Files;
use settled_tools_api::{
    CallKey, CancelSource, EffectKey, MessageId, NoteError, RunInfo, SessionId, ToolCall, ToolContext, ToolError,
    ToolExecutor, ToolHost, ToolReturn,
};
use tempfile::TempDir;

/// A folder that has these files.
pub(crate) fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    folder
}

/// All files below a folder, links as where they lead.
pub(crate) fn contents(folder: &Path) -> BTreeMap<String, String> {
    fn add(root: &Path, folder: &Path, all: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if path.is_symlink() {
                all.insert(name, format!("-> {}", fs::read_link(&path).unwrap().display()));
            } else if path.is_dir() {
                add(root, &path, all);
            } else if path.is_file() {
                all.insert(name, String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned());
            }
        }
    }
    let mut all = BTreeMap::new();
    add(folder, folder, &mut all);
    all
}

/// The same as a map.
pub(crate) fn files(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(path, content)| ((*path).to_owned(), (*content).to_owned())).collect()
}

/// What happens while a note is being written.
type OnNote = Box<dyn Fn() + Send + Sync>;

/// The runner's side of a call.
#[derive(Default)]
pub(crate) struct Host {
    pub(crate) notes: Mutex<Vec<Value>>,
    pub(crate) cancel: CancelSource,
    pub(crate) on_note: Option<OnNote>,
    pub(crate) refuse_notes: bool,
}

impl Host {
    pub(crate) fn context(self: &Arc<Self>, call: u32) -> ToolContext {
        ToolContext::new(info(call), self.cancel.signal(), Arc::<Self>::clone(self))
    }
}

#[async_trait]
impl ToolHost for Host {
    fn progress(&self, _: Value) {}

    async fn note(&self, note: Value) -> Result<(), NoteError> {
        if self.refuse_notes {
            return Err(NoteError::default());
        }
        self.notes.lock().unwrap().push(note);
        if let Some(act) = &self.on_note {
            act();
        }
        Ok(())
    }

    fn remaining(&self) -> Option<Duration> {
        None
    }
}

/// The facts about the call with this number.
pub(crate) fn info(call: u32) -> RunInfo {
    let key = CallKey { step: MessageId::from_u128(1), ordinal: call };
    RunInfo::new(EffectKey::new(format!("key-{call}")).unwrap(), SessionId::new("s").unwrap(), key)
}

/// Runs a call; `Ok` and `Err` are what the model reads.
pub(crate) async fn run(files: &Files, name: &str, input: Value) -> Result<String, String> {
    run_in(files, name, input, ToolContext::detached(info(0))).await
}

/// Runs a call in a context.
pub(crate) async fn run_in(files: &Files, name: &str, input: Value, context: ToolContext) -> Result<String, String> {
    match files.execute(ToolCall::new(name, input), context).await {
        Ok(ToolReturn::Output(output)) => Ok(output.joined_text()),
        Err(ToolError::Failed(output)) => Err(output.joined_text()),
        other => panic!("{other:?}"),
    }
}

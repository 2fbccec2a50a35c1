//! Tools that read, search and change the files of one folder, and never leave it.
//!
//! [`Files`] offers five tools: `read_file`, `list_files`, `search_files`, `edit_file` and `write_file`.
//!
//! ```
//! use serde_json::json;
//! use settled_tool_files::Files;
//! # use settled_tools_api::{CallKey, EffectKey, MessageId, RunInfo, SessionId};
//! use settled_tools_api::{ToolCall, ToolContext, ToolExecutor, ToolReturn, Toolbox};
//!
//! # fn context() -> ToolContext {
//! #     let call = CallKey { step: MessageId::from_u128(1), ordinal: 0 };
//! #     let key = EffectKey::new("a-key").unwrap();
//! #     ToolContext::detached(RunInfo::new(key, SessionId::new("s").unwrap(), call))
//! # }
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let files = Files::new(folder.path())?;
//!
//! let write = ToolCall::new("write_file", json!({"path": "notes/a.txt", "content": "one\n"}));
//! files.execute(write, context()).await?;
//!
//! let edit = ToolCall::new("edit_file", json!({"path": "notes/a.txt", "old_text": "one", "new_text": "two"}));
//! files.execute(edit, context()).await?;
//!
//! let search = ToolCall::new("search_files", json!({"pattern": "two", "glob": "**/*.txt"}));
//! let ToolReturn::Output(found) = files.execute(search, context()).await? else { panic!() };
//! assert_eq!(found.joined_text(), "notes/a.txt:1:two\n");
//!
//! let tools = Toolbox::new().with(files);
//! # drop(tools);
//! # Ok(())
//! # }
//! ```
//!
//! # The root
//!
//! Every path is resolved beneath the root by the operating system, step by step from the root's open handle:
//! a `..`, a symbolic link or a rename that races the call cannot lead out of it.
//! An absolute path is taken only if it begins with the root.
//! A relative symbolic link that stays inside is followed; one that leads out is refused, and so is an absolute one.
//! Listing and searching do not follow links between folders.
//!
//! # Changes
//!
//! A file is changed whole or not at all: its new content is written beside it, synced, and renamed over it.
//! Its permissions are kept; a file that nobody may write is refused; a hard link to it is cut.
//! The folders on the way to a new file are made, and stay when the call is cancelled.
//! The changes of one [`Files`] and its clones happen one after another, so that two edits of one file in one step both land.
//! A file that another program changes while a call is changing it is left as that program wrote it, and the call fails.
//!
//! # When a result is lost
//!
//! The reading tools are [`Pure`](Replay::Pure).
//! The changing ones are [`Reconcile`](Replay::Reconcile): running them again blindly could overwrite a later change, and what a file looks like shows whether the lost run came to its rename.
//! A run notes what it is about to do before it renames, and its temporary file is named by its effect key:
//!
//! | note | temporary file | the file | so it |
//! |---|---|---|---|
//! | none | - | - | did not happen |
//! | there | there | as before | did not happen |
//! | there | gone | has the new content | happened |
//! | there | anything else | | cannot be told |
//!
//! After the last row a temporary file named `.settled-<effect key>.tmp` may be left.
//!
//! # Failures
//!
//! What the model can mend is [`ToolError::Failed`] with a text that says how.
//! [`ToolError::Infra`] is a disk that is full or broken, or a process that is out of memory or of file handles.
//!
//! # Bounds
//!
//! An answer has at most 48 KiB of what is in files, and 2,000 lines, and says what it left out and how to get at it.
//! A listing or a search looks at 200,000 entries at most, and searches files of up to 10 MiB; an edit takes files of up to 16 MiB.
//!
//! The crate is for Unix; elsewhere it is empty.
#![cfg(unix)]

mod root;

mod read;

mod list;

mod search;

mod change;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::json;
use settled_tools_api::{Replay, ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolReturn};

use crate::change::{Changes, Edit, Reconcile, Write};
use crate::list::List;
use crate::read::Read;
use crate::root::{Root, blocking};
use crate::search::Search;

/// The most bytes of text in one answer, notices included: a little less than what a runner delivers uncut.
pub(crate) const MAX_BYTES: usize = 48 * 1024;

/// The most lines in one answer.
pub(crate) const MAX_LINES: usize = 2_000;

/// The file tools of one folder, its root.
///
/// A clone offers the same tools and takes turns with the original when it changes files.
#[derive(Clone)]
pub struct Files {
    root: Arc<Root>,
    changes: Changes,
    skipped: Arc<BTreeSet<String>>,
}

impl Files {
    /// The tools of the folder `root`, which is held open from now on.
    ///
    /// # Errors
    ///
    /// When `root` is missing, is not a folder, or cannot be opened.
    pub fn new(root: impl AsRef<Path>) -> Result<Self, Error> {
        let root = root.as_ref();
        let open = Root::open(root).map_err(|source| Error { root: root.to_owned(), source })?;
        Ok(Self {
            root: Arc::new(open),
            changes: Changes::default(),
            skipped: Arc::new(BTreeSet::from([".git".to_owned()])),
        })
    }

    /// The same tools, whose searches and recursive listings pass over folders of this name too, as they do over `.git`.
    ///
    /// Such a folder can still be listed and read by its own path.
    #[must_use]
    pub fn skip_folder(mut self, name: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.skipped).insert(name.into());
        self
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("root", &self.root.path()).field("skipped", &self.skipped).finish_non_exhaustive()
    }
}

#[async_trait]
impl ToolExecutor for Files {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let reconcile = || Replay::Reconcile(Arc::new(Reconcile::new(&self.root)));
        vec![
            ToolDefinition::new(
                "read_file",
                "Reads a text file. A long file comes in parts: the answer ends with the offset of the next one.",
                json!({
                    "type": "object",
                    "properties": {
                        "path": {"type": "string", "description": "The file, relative to the root folder."},
                        "offset": {"type": "integer", "minimum": 1, "description": "The first line to read, from 1."},
                        "limit": {"type": "integer", "minimum": 1, "description": "How many lines to read; 2000 at most."},
                    },
                    "required": ["path"],
                    "additionalProperties": false,
                }),
            )
            .replay(Replay::Pure),
            ToolDefinition::new(
                "list_files",
                "Lists a folder, or with `glob` all files below it that match. Folders end with `/`.",
                json!({
                    "type": "object",
                    "properties": {
                        "path": {"type": "string", "description": "The folder, relative to the root folder, which is the default."},
                        "glob": {"type": "string", "description": "A pattern of paths below the folder: `*.rs`, `src/**/*.{js,ts}`."},
                    },
                    "additionalProperties": false,
                }),
            )
            .replay(Replay::Pure),
            ToolDefinition::new(
                "search_files",
                "Finds the lines of text files that contain a text or match a regular expression, as `path:line:text`.",
                json!({
                    "type": "object",
                    "properties": {
                        "pattern": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "The text to find, within one line."},
                        "syntax": {"enum": ["text", "regex"], "description": "How to read the pattern; the default is `text`."},
                        "case": {"enum": ["exact", "ignore"], "description": "Whether upper and lower case differ; the default is `exact`."},
                        "path": {"type": "string", "description": "The folder or file to search, relative to the root folder, which is the default."},
                        "glob": {"type": "string", "description": "Search only files whose path below the folder matches: `**/*.rs`."},
                    },
                    "required": ["pattern"],
                    "additionalProperties": false,
                }),
            )
            .replay(Replay::Pure),
            ToolDefinition::new(
                "edit_file",
                "Replaces a text that occurs exactly once in a file. Give enough lines around it to make it unique.",
                json!({
                    "type": "object",
                    "properties": {
                        "path": {"type": "string", "description": "The file, relative to the root folder."},
                        "old_text": {"type": "string", "minLength": 1, "description": "The text to replace, exactly as it is in the file."},
                        "new_text": {"type": "string", "description": "What to put in its place."},
                    },
                    "required": ["path", "old_text", "new_text"],
                    "additionalProperties": false,
                }),
            )
            .replay(reconcile()),
            ToolDefinition::new(
                "write_file",
                "Writes a whole text file: makes it, with the folders on its way, or replaces all that it had.",
                json!({
                    "type": "object",
                    "properties": {
                        "path": {"type": "string", "description": "The file, relative to the root folder."},
                        "content": {"type": "string", "description": "All that the file is to have."},
                    },
                    "required": ["path", "content"],
                    "additionalProperties": false,
                }),
            )
            .replay(reconcile()),
        ]
    }

    async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError> {
        let root = Arc::clone(&self.root);
        let skipped = Arc::clone(&self.skipped);
        let output = match call.name.as_str() {
            "read_file" => {
                let input: Read = input(call)?;
                blocking(&context, move |stop| input.run(&root, stop)).await?
            }
            "list_files" => {
                let input: List = input(call)?;
                blocking(&context, move |stop| input.run(&root, &skipped, stop)).await?
            }
            "search_files" => {
                let input: Search = input(call)?;
                blocking(&context, move |stop| input.run(&root, &skipped, stop)).await?
            }
            "edit_file" => {
                let input: Edit = input(call)?;
                self.changes.make(root, &context, move |root, stop| input.plan(root, stop)).await?
            }
            "write_file" => {
                let input: Write = input(call)?;
                self.changes.make(root, &context, move |root, _| input.plan(root)).await?
            }
            other => return Err(ToolError::failed(format!("no tool is named `{other}`"))),
        };
        Ok(ToolReturn::Output(output))
    }
}

/// A folder that cannot be the root of file tools.
#[derive(Debug)]
pub struct Error {
    root: PathBuf,
    source: io::Error,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` cannot be the root of the file tools: ", self.root.display())?;
        match self.source.kind() {
            io::ErrorKind::NotFound => f.write_str("it does not exist"),
            io::ErrorKind::NotADirectory => f.write_str("it is not a folder"),
            _ => self.source.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

fn input<T: DeserializeOwned>(call: ToolCall) -> Result<T, ToolError> {
    serde_json::from_value(call.input)
        .map_err(|error| ToolError::failed(format!("bad input for `{}`: {error}", call.name)))
}

//! `edit_file` and `write_file`: a file is changed whole or not at all, and a lost change can be looked up.

use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use async_trait::async_trait;
use cap_std::fs::{Metadata, OpenOptions, OpenOptionsExt, PermissionsExt};
use memchr::memmem;
use serde::{Deserialize, Serialize};
use serde_json::json;
use settled_tools_api::{EffectKey, Reconciled, Reconciler, ToolCall, ToolContext, ToolError, ToolOutput};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::read::only_text;
use crate::root::{Root, Stop, blocking, only_regular};

/// The largest file that is edited.
const MAX_EDITED: u64 = 16 * 1024 * 1024;

/// The input of `edit_file`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    path: String,
    old_text: String,
    new_text: String,
}

/// The input of `write_file`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Write {
    path: String,
    content: String,
}

/// What a call wants a file to become.
pub(crate) struct Plan {
    /// The path as the model wrote it.
    shown: String,
    /// The file itself, behind all links.
    target: PathBuf,
    /// The file that is there now.
    before: Option<Metadata>,
    content: Vec<u8>,
    /// What to tell the model when it is done.
    answer: String,
}

impl Edit {
    /// Finds the text and puts the other in its place.
    pub(crate) fn plan(&self, root: &Root, stop: &Stop) -> Result<Plan, ToolError> {
        let shown = &self.path;
        if self.old_text.is_empty() {
            return Err(ToolError::failed("`old_text` is empty: use write_file to make a file"));
        }
        if self.old_text == self.new_text {
            return Err(ToolError::failed("`old_text` and `new_text` are the same: there is nothing to change"));
        }
        let path = root.relative(shown)?;
        let (file, before) = root.open_file(&path, shown)?;
        let mut bytes = Vec::new();
        file.take(MAX_EDITED + 1).read_to_end(&mut bytes).map_err(|error| root.explain("read", shown, error))?;
        if bytes.len() as u64 > MAX_EDITED {
            return Err(ToolError::failed(format!(
                "`{shown}` is too large to edit: it has more than {MAX_EDITED} bytes"
            )));
        }
        only_text(shown, &bytes, before.len())?;
        stop.check()?;

        let mut old = self.old_text.as_bytes().to_vec();
        let mut new = self.new_text.as_bytes().to_vec();
        // Models write plain line feeds also for a file whose lines end with CRLF.
        if memmem::find(&bytes, &old).is_none()
            && !self.old_text.contains('\r')
            && memmem::find(&bytes, b"\r\n").is_some()
        {
            old = self.old_text.replace('\n', "\r\n").into_bytes();
            new = self.new_text.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes();
        }
        let Some(at) = memmem::find(&bytes, &old) else {
            return Err(ToolError::failed(format!(
                "`old_text` is not in `{shown}`: read the file and copy the text exactly, with its white space"
            )));
        };
        if memmem::find(&bytes[at + 1..], &old).is_some() {
            // Matches that overlap make two of what is counted as one.
            let times = memmem::find_iter(&bytes, &old).count().max(2);
            return Err(ToolError::failed(format!(
                "`old_text` is in `{shown}` {times} times: give more of the lines around the one you mean"
            )));
        }
        let line = 1 + memchr::memchr_iter(b'\n', &bytes[..at]).count();
        bytes.splice(at..at + old.len(), new);
        Ok(Plan {
            target: resolve(root, &path, shown)?,
            answer: format!("edited `{shown}` at line {line}"),
            shown: shown.clone(),
            before: Some(before),
            content: bytes,
        })
    }
}

impl Write {
    /// Finds the place of the file and makes the folders on its way.
    pub(crate) fn plan(self, root: &Root) -> Result<Plan, ToolError> {
        let shown = self.path;
        let path = root.relative(&shown)?;
        let (target, before) = match root.dir.symlink_metadata(&path) {
            Ok(_) => {
                let target = resolve(root, &path, &shown)?;
                let before = root.dir.metadata(&target).map_err(|error| root.explain("write", &shown, error))?;
                (target, Some(before))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (Some(name), false) = (path.file_name(), shown.ends_with('/')) else {
                    return Err(ToolError::failed(format!("`{shown}` is not the path of a file")));
                };
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = parent.unwrap_or_else(|| Path::new("."));
                if let Err(error) = root.dir.metadata(parent)
                    && error.kind() == ErrorKind::NotFound
                {
                    let made = root.dir.create_dir_all(parent);
                    made.map_err(|error| root.explain("make the folder of", &shown, error))?;
                }
                (resolve(root, parent, &shown)?.join(name), None)
            }
            Err(error) => return Err(root.explain("write", &shown, error)),
        };
        let done = if before.is_some() { "replaced" } else { "created" };
        Ok(Plan {
            answer: format!("{done} `{shown}`: {} bytes", self.content.len()),
            shown,
            target,
            before,
            content: self.content.into_bytes(),
        })
    }
}

/// Makes changes, one at a time.
#[derive(Clone, Default)]
pub(crate) struct Changes {
    turn: Arc<Mutex<()>>,
}

impl Changes {
    /// Carries out a plan: stage the content, note what is to come, rename.
    ///
    /// The order is load-bearing: a rename before the note is durable could not be told from none.
    pub(crate) async fn make(
        &self,
        root: Arc<Root>,
        context: &ToolContext,
        plan: impl FnOnce(&Root, &Stop) -> Result<Plan, ToolError> + Send + 'static,
    ) -> Result<ToolOutput, ToolError> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let key = context.effect_key().clone();
        let staged = blocking(context, move |stop| Staged::new(turn, &root, plan(&root, stop)?, &key)).await?;
        context.note(json!(staged.note)).await.map_err(|error| ToolError::infra(error.to_string()))?;
        blocking(context, move |_| staged.commit()).await
    }
}

/// Tells from a file what became of a change whose result was lost.
pub(crate) struct Reconcile(Arc<Root>);

impl Reconcile {
    /// For changes below a root.
    pub(crate) fn new(root: &Arc<Root>) -> Self {
        Self(Arc::clone(root))
    }
}

#[async_trait]
impl Reconciler for Reconcile {
    async fn reconcile(&self, _: &ToolCall, context: &ToolContext) -> Reconciled {
        let Some(note) = context.info().notes.last() else {
            return Reconciled::DidNot;
        };
        let Ok(note) = Note::deserialize(note) else {
            return Reconciled::CannotTell;
        };
        let root = Arc::clone(&self.0);
        let key = context.effect_key().clone();
        let found = blocking(context, move |_| Ok(note.compare(&root, &key))).await;
        found.unwrap_or(Reconciled::CannotTell)
    }
}

/// What is about to happen to a file.
#[derive(Clone, Serialize, Deserialize)]
struct Note {
    path: String,
    before: Option<Stamp>,
    /// The length of the new content.
    len: u64,
    /// The SHA-256 of the new content, in hexadecimal.
    sha256: String,
    answer: String,
}

impl Note {
    fn compare(self, root: &Root, key: &EffectKey) -> Reconciled {
        let path = Path::new(&self.path);
        let now = root.dir.metadata(path).ok();
        if root.dir.symlink_metadata(temporary(path, key)).is_ok() {
            return if now.as_ref().map(Stamp::of) == self.before {
                Reconciled::DidNot
            } else {
                Reconciled::CannotTell
            };
        }
        let written = now.is_some_and(|now| now.is_file() && now.len() == self.len)
            && root.dir.read(path).is_ok_and(|content| hash(&content) == self.sha256);
        if written { Reconciled::Happened(ToolOutput::text(self.answer)) } else { Reconciled::CannotTell }
    }
}

/// By what a file is known to be untouched.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    len: u64,
    /// When it was last changed, in nanoseconds since 1970; 0 where the file system does not say.
    changed_ns: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let changed = metadata.modified().ok();
        let since = changed.and_then(|changed| changed.into_std().duration_since(UNIX_EPOCH).ok());
        Self {
            len: metadata.len(),
            changed_ns: since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)),
        }
    }
}

/// New content that lies, synced, beside the file it will replace; dropping it removes it.
struct Staged {
    root: Arc<Root>,
    shown: String,
    note: Note,
    temporary: PathBuf,
    renamed: bool,
    /// Held to the end, also when the call is dropped in the middle.
    _turn: OwnedMutexGuard<()>,
}

impl Staged {
    fn new(turn: OwnedMutexGuard<()>, root: &Arc<Root>, plan: Plan, key: &EffectKey) -> Result<Self, ToolError> {
        let shown = plan.shown;
        if let Some(before) = &plan.before {
            only_regular(&shown, before)?;
            if before.permissions().readonly() {
                return Err(ToolError::failed(format!("`{shown}` is read-only: it was not changed")));
            }
        }
        let Some(path) = plan.target.to_str() else {
            return Err(ToolError::failed(format!("`{shown}` lies in a folder whose name is not Unicode")));
        };
        let staged = Self {
            root: Arc::clone(root),
            note: Note {
                path: path.to_owned(),
                before: plan.before.as_ref().map(Stamp::of),
                len: plan.content.len() as u64,
                sha256: hash(&plan.content),
                answer: plan.answer,
            },
            temporary: temporary(&plan.target, key),
            shown,
            renamed: false,
            _turn: turn,
        };
        // An earlier run of this call may have died and left its own.
        let _none_is_fine = root.dir.remove_file(&staged.temporary);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        if let Some(before) = &plan.before {
            // Never more open than the file will be, not even for a moment.
            options.mode(before.permissions().mode() & 0o777);
        }
        let write = || {
            let mut file = root.dir.open_with(&staged.temporary, &options)?;
            file.write_all(&plan.content)?;
            if let Some(before) = &plan.before {
                file.set_permissions(before.permissions())?;
            }
            file.sync_all()
        };
        match write() {
            Ok(()) => Ok(staged),
            Err(error) => Err(root.explain("write", &staged.shown, error)),
        }
    }

    fn commit(mut self) -> Result<ToolOutput, ToolError> {
        let dir = &self.root.dir;
        let target = Path::new(&self.note.path);
        if dir.metadata(target).ok().as_ref().map(Stamp::of) != self.note.before {
            return Err(ToolError::failed(format!(
                "`{}` was changed by another program meanwhile: read it again; this call changed nothing",
                self.shown
            )));
        }
        dir.rename(&self.temporary, dir, target).map_err(|error| self.root.explain("write", &self.shown, error))?;
        self.renamed = true;
        Ok(ToolOutput::text(self.note.answer.clone()))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.renamed {
            let _gone_is_fine = self.root.dir.remove_file(&self.temporary);
        }
    }
}

/// Where the new content of a file is staged: in the same folder, named by the call.
fn temporary(target: &Path, key: &EffectKey) -> PathBuf {
    target.with_file_name(format!(".settled-{key}.tmp"))
}

/// The path behind all links.
fn resolve(root: &Root, path: &Path, shown: &str) -> Result<PathBuf, ToolError> {
    root.dir.canonicalize(path).map_err(|error| root.explain("write", shown, error))
}

fn hash(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

//! `list_files`, and the walk over folders that it shares with the search.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;
use settled_tools_api::{ToolError, ToolOutput};

use crate::root::{Root, Stop};
use crate::{MAX_BYTES, MAX_LINES};

/// The most entries that one call looks at.
const MAX_ENTRIES: usize = 200_000;

/// What is kept free in an answer for its notices.
const NOTICES: usize = 512;

/// The input of `list_files`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    path: Option<String>,
    glob: Option<String>,
}

impl List {
    /// Lists a folder, or the files below it that match.
    pub(crate) fn run(&self, root: &Root, skipped: &BTreeSet<String>, stop: &Stop) -> Result<ToolOutput, ToolError> {
        let shown = self.path.as_deref().unwrap_or(".");
        let folder = root.relative(shown)?;
        let glob = self.glob.as_deref().map(matcher).transpose()?;
        let mut lines = Lines::default();
        match &glob {
            None => {
                let mut walk = Walk::new(root, stop);
                for entry in walk.entries(&folder, shown)? {
                    let slash = if entry.kind == Kind::Folder { "/" } else { "" };
                    if lines.push(&format!("{}{slash}", entry.name)).is_break() {
                        break;
                    }
                }
                lines.note_unseen(&walk);
            }
            Some(glob) => {
                let mut walk = Walk::new(root, stop);
                walk.files(&folder, shown, skipped, &mut |file| {
                    Ok(if glob.is_match(file.below) { lines.push(&file.shown) } else { ControlFlow::Continue(()) })
                })?;
                lines.note_unseen(&walk);
            }
        }
        Ok(ToolOutput::text(lines.finish(|| match &self.glob {
            Some(glob) => format!("no file below `{shown}` matches `{glob}`"),
            None => format!("`{shown}` is an empty folder"),
        })))
    }
}

/// A pattern of paths; `*` does not cross folders, `**` does.
pub(crate) fn matcher(glob: &str) -> Result<GlobMatcher, ToolError> {
    GlobBuilder::new(glob)
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| ToolError::failed(format!("bad `glob`: {error}")))
}

/// The lines of an answer, as many as fit.
#[derive(Default)]
pub(crate) struct Lines {
    text: String,
    count: usize,
    notices: Vec<String>,
}

impl Lines {
    /// Adds a line; breaks when it does not fit.
    pub(crate) fn push(&mut self, line: &str) -> ControlFlow<()> {
        if self.count == MAX_LINES || self.text.len() + line.len() + 1 > MAX_BYTES - NOTICES {
            self.note("there is more than fits here: narrow it with `path` or `glob`".to_owned());
            return ControlFlow::Break(());
        }
        self.count += 1;
        self.text.push_str(line);
        self.text.push('\n');
        ControlFlow::Continue(())
    }

    /// Adds something to say below the lines.
    pub(crate) fn note(&mut self, notice: String) {
        self.notices.push(notice);
    }

    /// Says so if the walk left something out.
    pub(crate) fn note_unseen(&mut self, walk: &Walk<'_>) {
        if walk.left == 0 {
            self.note(format!("only the first {MAX_ENTRIES} entries were looked at: narrow it with `path`"));
        }
        if walk.closed > 0 {
            self.note(format!("{} folders could not be opened", walk.closed));
        }
    }

    /// The answer; where there is no line, `none` says what that means.
    pub(crate) fn finish(self, none: impl FnOnce() -> String) -> String {
        let mut text = self.text;
        if self.count == 0 {
            text = none();
            text.push('\n');
        }
        for notice in self.notices {
            text.push_str(&format!("[{notice}]\n"));
        }
        text
    }
}

/// What an entry of a folder is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, a device, a pipe, a socket.
    Other,
}

/// An entry of a folder.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    name: String,
    kind: Kind,
}

/// A file that a walk came by.
pub(crate) struct Found<'a> {
    /// Its path from the root.
    pub(crate) path: &'a Path,
    /// Its path from the folder where the walk began.
    pub(crate) below: &'a Path,
    /// Its path as a model is to write it.
    pub(crate) shown: String,
}

/// A bounded walk over folders, in the order of names; it follows no links.
pub(crate) struct Walk<'a> {
    root: &'a Root,
    stop: &'a Stop,
    /// How many more entries may be looked at.
    left: usize,
    /// How many folders could not be opened.
    closed: usize,
}

impl<'a> Walk<'a> {
    /// A walk that has seen nothing yet.
    pub(crate) fn new(root: &'a Root, stop: &'a Stop) -> Self {
        Self { root, stop, left: MAX_ENTRIES, closed: 0 }
    }

    /// The entries of one folder, sorted.
    fn entries(&mut self, folder: &Path, shown: &str) -> Result<Vec<Entry>, ToolError> {
        let explain = |error| self.root.explain("list", shown, error);
        let mut entries = Vec::new();
        for entry in self.root.dir.read_dir(folder).map_err(explain)? {
            self.stop.check()?;
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            let entry = entry.map_err(explain)?;
            let kind = match entry.file_type() {
                Ok(kind) if kind.is_dir() => Kind::Folder,
                Ok(kind) if kind.is_file() => Kind::File,
                Ok(_) => Kind::Other,
                // It has gone since the folder was read.
                Err(_) => continue,
            };
            entries.push(Entry { name: entry.file_name().to_string_lossy().into_owned(), kind });
        }
        entries.sort_unstable();
        Ok(entries)
    }

    /// Shows `visit` every file below a folder until it breaks.
    pub(crate) fn files(
        &mut self,
        folder: &Path,
        shown: &str,
        skipped: &BTreeSet<String>,
        visit: &mut dyn FnMut(Found<'_>) -> Result<ControlFlow<()>, ToolError>,
    ) -> Result<(), ToolError> {
        let mut due = vec![(PathBuf::new(), self.entries(folder, shown)?.into_iter())];
        while let Some((below, entries)) = due.last_mut() {
            let Some(entry) = entries.next() else {
                due.pop();
                continue;
            };
            let below = below.join(&entry.name);
            let path = folder.join(&below);
            match entry.kind {
                Kind::Other => {}
                Kind::File => {
                    let shown = path.strip_prefix(".").unwrap_or(&path).display().to_string();
                    let found = Found { path: &path, below: &below, shown };
                    if visit(found)?.is_break() {
                        return Ok(());
                    }
                }
                Kind::Folder if skipped.contains(&entry.name) => {}
                Kind::Folder => match self.entries(&path, &path.to_string_lossy()) {
                    Ok(entries) => due.push((below, entries.into_iter())),
                    // One closed folder does not spoil the rest.
                    Err(ToolError::Failed(_)) => {
                        self.stop.check()?;
                        self.closed += 1;
                    }
                    Err(error) => return Err(error),
                },
            }
        }
        Ok(())
    }
}

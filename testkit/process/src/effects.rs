//! The world that tools act on: a file that is only ever appended to, one line for each act.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use settled_tools_api::EffectKey;

use crate::Outcome;

/// The file, as a tool acts on it; what is written survives the process that wrote it.
#[derive(Clone)]
pub(crate) struct Effects {
    path: PathBuf,
    file: Arc<File>,
}

impl Effects {
    pub(crate) fn open(path: &Path) -> Outcome<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.map_err(|error| format!("`{}` cannot be opened: {error}", path.display()))?;
        Ok(Self { path: path.to_owned(), file: Arc::new(file) })
    }

    /// Acts: one write of one line.
    pub(crate) fn act(&self, key: &EffectKey) -> std::io::Result<()> {
        (&*self.file).write_all(format!("{key}\n").as_bytes())
    }

    /// How often each key has acted so far.
    pub(crate) fn counts(&self) -> Outcome<BTreeMap<String, u64>> {
        let text = std::fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        Ok(counts)
    }
}

//! `search_files`: lines that have a text or match a regular expression.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::Path;

use memchr::memchr;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use settled_tools_api::{ToolError, ToolOutput};

use crate::list::{Found, Lines, Walk, matcher};
use crate::root::{Root, Stop};

/// The largest file that is searched.
const MAX_FILE: u64 = 10 * 1024 * 1024;

/// The most characters of a pattern: a search of one long line for a long text can take its product in time, and nothing stops it in between.
const MAX_PATTERN: usize = 1_000;

/// The most characters of a matching line that are shown.
const MAX_SHOWN: usize = 300;

/// The input of `search_files`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    pattern: String,
    #[serde(default)]
    syntax: Syntax,
    #[serde(default)]
    case: Case,
    path: Option<String>,
    glob: Option<String>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Syntax {
    #[default]
    Text,
    Regex,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Case {
    #[default]
    Exact,
    Ignore,
}

/// What a search did not look into.
#[derive(Default)]
struct Unsearched {
    binary: usize,
    large: usize,
    closed: usize,
}

impl Search {
    /// Searches a file, or the files below a folder.
    pub(crate) fn run(&self, root: &Root, skipped: &BTreeSet<String>, stop: &Stop) -> Result<ToolOutput, ToolError> {
        let shown = self.path.as_deref().unwrap_or(".");
        let start = root.relative(shown)?;
        let pattern = self.regex()?;
        let glob = self.glob.as_deref().map(matcher).transpose()?;
        let mut lines = Lines::default();
        let mut unsearched = Unsearched::default();
        let metadata = root.dir.metadata(&start).map_err(|error| root.explain("search", shown, error))?;
        if metadata.is_dir() {
            let mut walk = Walk::new(root, stop);
            walk.files(&start, shown, skipped, &mut |file: Found<'_>| {
                if glob.as_ref().is_some_and(|glob| !glob.is_match(file.below)) {
                    return Ok(ControlFlow::Continue(()));
                }
                match contents(root, file.path, &file.shown, &mut unsearched) {
                    Ok(Some(text)) => matches(&pattern, &file.shown, &text, &mut lines, stop),
                    Ok(None) => Ok(ControlFlow::Continue(())),
                    // One file that cannot be read does not spoil the rest.
                    Err(ToolError::Failed(_)) => {
                        unsearched.closed += 1;
                        Ok(ControlFlow::Continue(()))
                    }
                    Err(error) => Err(error),
                }
            })?;
            lines.note_unseen(&walk);
        } else if let Some(text) = contents(root, &start, shown, &mut unsearched)? {
            let _all_or_not = matches(&pattern, shown, &text, &mut lines, stop)?;
        }
        for (count, what) in [
            (unsearched.binary, "binary files were not searched"),
            (unsearched.large, "files above 10 MiB were not searched"),
            (unsearched.closed, "files could not be opened"),
        ] {
            if count > 0 {
                lines.note(format!("{count} {what}"));
            }
        }
        Ok(ToolOutput::text(lines.finish(|| format!("no match for `{}` in `{shown}`", self.pattern))))
    }

    fn regex(&self) -> Result<Regex, ToolError> {
        if self.pattern.is_empty() {
            return Err(ToolError::failed("`pattern` is empty"));
        }
        if self.pattern.chars().nth(MAX_PATTERN).is_some() {
            return Err(ToolError::failed(format!("`pattern` is too long: it may have {MAX_PATTERN} characters")));
        }
        let pattern = match self.syntax {
            Syntax::Text if self.pattern.contains('\n') => {
                return Err(ToolError::failed("`pattern` has a line break: a match is within one line"));
            }
            Syntax::Text => regex::escape(&self.pattern),
            Syntax::Regex => self.pattern.clone(),
        };
        RegexBuilder::new(&pattern)
            .case_insensitive(matches!(self.case, Case::Ignore))
            .build()
            .map_err(|error| ToolError::failed(format!("bad `pattern`: {error}")))
    }
}

/// The text of a file; `None`, counted, where it cannot be searched.
fn contents(root: &Root, path: &Path, shown: &str, unsearched: &mut Unsearched) -> Result<Option<String>, ToolError> {
    let (file, _) = root.open_file(path, shown)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| root.explain("read", shown, error))?;
    if memchr(0, &bytes).is_some() {
        unsearched.binary += 1;
        return Ok(None);
    }
    if bytes.len() as u64 > MAX_FILE {
        unsearched.large += 1;
        return Ok(None);
    }
    Ok(Some(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    }))
}

/// Adds the lines of a file that match.
fn matches(
    pattern: &Regex,
    shown: &str,
    text: &str,
    lines: &mut Lines,
    stop: &Stop,
) -> Result<ControlFlow<()>, ToolError> {
    stop.check()?;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(found) = pattern.find(line) else {
            continue;
        };
        // A long line is shown from a little before its match.
        let start = if line.chars().nth(MAX_SHOWN).is_none() {
            0
        } else {
            let before = line[..found.start()].char_indices().rev().take(MAX_SHOWN / 4);
            before.last().map_or(0, |(at, _)| at)
        };
        let rest = &line[start..];
        let (end, more) = match rest.char_indices().nth(MAX_SHOWN) {
            Some((end, _)) => (end, "…"),
            None => (rest.len(), ""),
        };
        let before = if start > 0 { "…" } else { "" };
        let flow = lines.push(&format!("{shown}:{number}:{before}{}{more}", &rest[..end]));
        if flow.is_break() {
            return Ok(flow);
        }
    }
    Ok(ControlFlow::Continue(()))
}

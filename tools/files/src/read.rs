//! `read_file`: lines of a text file, in parts.

use std::io::{BufRead, BufReader};
use std::num::NonZeroU64;

use memchr::memchr;
use serde::Deserialize;
use serde_json::json;
use settled_tools_api::{ToolError, ToolOutput};

use crate::root::{Root, Stop};
use crate::{MAX_BYTES, MAX_LINES};

/// What is kept free in an answer for its notices.
const NOTICES: usize = 512;

/// The input of `read_file`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Read {
    path: String,
    offset: Option<NonZeroU64>,
    limit: Option<NonZeroU64>,
}

/// Why an answer does not have the rest of the file.
enum Cut {
    /// There are more lines.
    Lines,
    /// The one line of the answer is too long for it.
    Line,
}

impl Read {
    /// Reads the lines asked for, as many as fit.
    pub(crate) fn run(&self, root: &Root, stop: &Stop) -> Result<ToolOutput, ToolError> {
        let shown = &self.path;
        let (file, metadata) = root.open_file(&root.relative(shown)?, shown)?;
        let first = self.offset.map_or(1, NonZeroU64::get);
        let limit = self.limit.map_or(MAX_LINES as u64, |limit| limit.get().min(MAX_LINES as u64));

        let mut reader = BufReader::with_capacity(64 * 1024, file);
        let mut text = Vec::new();
        // The line that the next byte belongs to, and where in `text` it begins.
        let (mut line, mut line_start) = (1, 0);
        let mut in_line = false;
        let mut cut = None;
        let mut at_start = true;
        loop {
            stop.check()?;
            let chunk = reader.fill_buf().map_err(|error| root.explain("read", shown, error))?;
            if chunk.is_empty() {
                break;
            }
            if at_start {
                only_text(shown, chunk, metadata.len())?;
                at_start = false;
            }
            if line - first.min(line) == limit {
                cut = Some(Cut::Lines);
                break;
            }
            let end = memchr(b'\n', chunk).map_or(chunk.len(), |at| at + 1);
            let piece = &chunk[..end];
            if line >= first {
                if text.len() + piece.len() > MAX_BYTES - NOTICES {
                    if line_start > 0 {
                        text.truncate(line_start);
                        cut = Some(Cut::Lines);
                    } else {
                        let room = MAX_BYTES - NOTICES - text.len();
                        text.extend_from_slice(&piece[..room]);
                        drop_broken_end(&mut text);
                        cut = Some(Cut::Line);
                    }
                    break;
                }
                text.extend_from_slice(piece);
            }
            in_line = !piece.ends_with(b"\n");
            if !in_line {
                line += 1;
                line_start = text.len();
            }
            reader.consume(end);
        }
        only_text(shown, &text, metadata.len())?;
        if text.is_empty() && cut.is_none() && first > 1 {
            let lines = if in_line { line } else { line - 1 };
            return Err(ToolError::failed(format!("`{shown}` has no line {first}: it ends with line {lines}")));
        }

        let mut notices = Vec::new();
        let decoded = String::from_utf8_lossy(&text);
        if matches!(decoded, std::borrow::Cow::Owned(_)) {
            notices.push("the file is not UTF-8: each byte that is not is shown as \u{fffd}".to_owned());
        }
        match cut {
            None if text.is_empty() => notices.push("the file is empty".to_owned()),
            None => {}
            Some(Cut::Lines) => {
                notices.push(format!("lines {first} to {} are shown; the file goes on at offset {line}", line - 1))
            }
            Some(Cut::Line) => notices.push(format!(
                "line {line} is too long: its first {} bytes are shown; the next line, if any, is at offset {}",
                text.len(),
                line + 1
            )),
        }
        let mut answer = decoded.into_owned();
        for notice in &notices {
            if !answer.is_empty() && !answer.ends_with('\n') {
                answer.push('\n');
            }
            answer.push_str(&format!("[{notice}]\n"));
        }
        Ok(ToolOutput::text(answer).with_metadata(json!({ "path": shown, "size": metadata.len() })))
    }
}

/// Refuses bytes that are not text of any encoding we can show.
pub(crate) fn only_text(shown: &str, bytes: &[u8], size: u64) -> Result<(), ToolError> {
    if memchr(0, bytes).is_some() {
        return Err(ToolError::failed(format!(
            "`{shown}` is a binary file of {size} bytes: only text can be read and edited"
        )));
    }
    Ok(())
}

/// Drops the last character where it may have been cut in two.
fn drop_broken_end(text: &mut Vec<u8>) {
    let tail = text.iter().rev().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count();
    let start = text.len() - tail;
    if start > 0 && text[start - 1] >= 0xc0 {
        text.truncate(start - 1);
    }
}

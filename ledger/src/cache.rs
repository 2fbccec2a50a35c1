//! History caches: a session's fold kept beside its log, so that opening it costs what came since.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::key::hex;
use crate::{Recorded, Seq, SessionFold};

/// A session's fold as a cache keeps it.
///
/// It is never the truth: whatever does not fit the log it is opened beside is left aside, and the log is folded from its beginning.
/// So a cache may lose, truncate or delete what it likes; that changes nothing but time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CachedFold {
    /// The last event that is folded.
    pub head: Seq,
    /// A hash of that event's row: another log has another.
    pub mark: String,
    /// The version that wrote it; another version folds anew.
    pub format: String,
    /// The fold, as text.
    pub body: String,
}

/// Changes with whatever a fold is made of, or says of the same log.
const FORMAT: &str = concat!(env!("CARGO_PKG_VERSION"), "/1");

impl CachedFold {
    /// Puts a fold into words, beside the row of its last event; `None` where the row is another, or the fold has no such form.
    pub fn of(fold: &SessionFold, last: &Recorded) -> Option<Self> {
        if fold.head != last.seq {
            return None;
        }
        let body = serde_json::to_string(fold).ok()?;
        Some(Self { head: fold.head, mark: mark(last), format: FORMAT.to_owned(), body })
    }

    /// A fold as a cache has kept it.
    pub fn new(head: Seq, mark: impl Into<String>, format: impl Into<String>, body: impl Into<String>) -> Self {
        Self { head, mark: mark.into(), format: format.into(), body: body.into() }
    }

    /// The fold; `None` where it is not that of the log in which this row is the last that it takes in, was written by another version, or does not read.
    pub fn open(&self, last: &Recorded) -> Option<SessionFold> {
        if self.format != FORMAT || self.head != last.seq || self.mark != mark(last) {
            return None;
        }
        serde_json::from_str(&self.body).ok().filter(|fold: &SessionFold| fold.head == self.head)
    }
}

fn mark(row: &Recorded) -> String {
    let mut hash = Sha256::new();
    for part in [row.session.as_str(), &row.seq.to_string(), &row.at.to_string(), &row.kind, &row.body] {
        hash.update(part);
        hash.update([0]);
    }
    hex(&hash.finalize())
}

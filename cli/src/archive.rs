//! A session as a file that any machine can read: what `settled export` writes and `settled import` takes.
//!
//! The file is JSON lines, each ended by a line feed:
//!
//! | line | fields |
//! |---|---|
//! | the first | `format` (`settled-session`), `version` (1), `session`, `events` and `inputs` (how many lines of each follow), `state`, `tags` |
//! | one for each event | `seq`, `time` (milliseconds since 1970), `version` (of the event's fields), `type`, `body` (its fields, to the byte as the store has them) |
//! | one for each pending input | as the inbox has it, in order of arrival with interrupts last, `arrival` counted from 1 |
//! | the last | `sha256`: of every byte before this line |
//!
//! What belongs to one store alone is not in it: who owns the session, its epoch, the ids of batches, the keys of input that is not pending any more.

mod transfer;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Write};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use settled_ledger::check::LogChecker;
use settled_ledger::store::SessionState;
use settled_ledger::{Event, InboxItem, Recorded, Seq, Timestamp};
use settled_tools_api::SessionId;
use sha2::{Digest, Sha256};

/// What the first line says the file is.
const FORMAT: &str = "settled-session";

/// The version of the format that this version writes, and the last that it reads.
const VERSION: u32 = 1;

/// A session, whole: all that another store needs to go on with it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Archive {
    /// The session.
    pub session: SessionId,
    /// What it can be found by.
    pub tags: BTreeMap<String, String>,
    /// What it waits for.
    pub state: SessionState,
    /// Its log; never empty.
    pub log: Vec<Recorded>,
    /// Its pending input, in order of arrival, interrupts last.
    pub inputs: Vec<InboxItem>,
}

/// Why a file is not taken, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broken {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.why)
    }
}

impl std::error::Error for Broken {}

/// What tells whether a first line can be read at all.
#[derive(Deserialize)]
struct Format {
    format: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head<'a> {
    format: Cow<'a, str>,
    version: u32,
    session: SessionId,
    events: usize,
    inputs: usize,
    state: SessionState,
    tags: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row<'a> {
    seq: Seq,
    time: i64,
    version: u16,
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    /// The fields as they are; in a JSON string where they would not keep to the line.
    body: Box<RawValue>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sum {
    sha256: String,
}

impl Archive {
    /// A session that waits for nothing, from its log, which must not be empty.
    pub fn new(session: SessionId, tags: BTreeMap<String, String>, log: Vec<Recorded>) -> Self {
        Self { session, tags, state: SessionState::default(), log, inputs: Vec::new() }
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// Of the writer.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        let mut lines = Lines { out, sum: Sha256::new() };
        lines.put(&Head {
            format: FORMAT.into(),
            version: VERSION,
            session: self.session.clone(),
            events: self.log.len(),
            inputs: self.inputs.len(),
            state: self.state.clone(),
            tags: self.tags.clone(),
        })?;
        for row in &self.log {
            lines.put(&Row {
                seq: row.seq,
                time: row.at.as_millis(),
                version: row.version,
                kind: (&*row.kind).into(),
                body: to_raw(&row.body)?,
            })?;
        }
        for input in &self.inputs {
            lines.put(input)?;
        }
        let sha256 = hex(lines.sum.clone());
        lines.put(&Sum { sha256 })?;
        lines.out.flush()
    }

    /// Whether a file says that it is one, however broken it may be.
    pub fn looks_like(file: &[u8]) -> bool {
        let first = file.split(|byte| *byte == b'\n').next().unwrap_or_default();
        serde_json::from_slice::<Format>(first).is_ok_and(|first| first.format == FORMAT)
    }

    /// Reads a file, and holds it to all that a session must be.
    ///
    /// # Errors
    ///
    /// The file is not what was written, or the session breaks an invariant; the first line at which it shows.
    pub fn read(file: &[u8]) -> Result<Self, Broken> {
        let mut lines = Numbered { file, read: 0, number: 0 };
        let head = head(&mut lines)?;
        let session = head.session;

        let mut log = Vec::new();
        let mut checker = LogChecker::default();
        let mut promoted = BTreeSet::new();
        for expected in 1..=head.events {
            let row: Row<'_> = lines.next("event")?;
            let broken = |why: String| Broken { line: lines.number, why };
            if row.seq.get() != expected as u64 {
                return Err(broken(format!("event {} stands where event {expected} must be", row.seq)));
            }
            let body = from_raw(&row.body).map_err(broken)?;
            let at = Timestamp::from_millis(row.time);
            let row = Recorded::new(session.clone(), row.seq, at, row.kind.into_owned(), row.version, body);
            let event = row.event().map_err(|error| broken(error.to_string()))?;
            checker.see(row.seq, &event);
            if let Event::InputPromoted(input) = event {
                promoted.insert(input.input);
            }
            log.push(row);
        }
        if let Some(breach) = checker.into_breaches().first() {
            let event = breach.seq.map_or(0, |seq| usize::try_from(seq.get()).unwrap_or(usize::MAX));
            return Err(Broken { line: event.saturating_add(1), why: breach.to_string() });
        }

        let mut inputs: Vec<InboxItem> = Vec::new();
        for place in 1..=head.inputs {
            let input: InboxItem = lines.next("pending input")?;
            let why = if input.arrival.get() != place as u64 {
                format!("input {} stands where input {place} must be", input.arrival.get())
            } else if promoted.contains(&input.id) || inputs.iter().any(|other| other.id == input.id) {
                format!("input {} is pending, and there already", input.id)
            } else if input.key.is_some() && inputs.iter().any(|other| other.key == input.key) {
                "another pending input has the same key".to_owned()
            } else {
                inputs.push(input);
                continue;
            };
            return Err(Broken { line: lines.number, why });
        }
        if head.state != SessionState::default() && !head.state.admissible(&inputs) {
            return Err(Broken { line: 1, why: "the session waits for input that it has".to_owned() });
        }

        let sum = hex(Sha256::new().chain_update(&file[..lines.read]));
        let said: Sum = lines.next("checksum")?;
        let line = lines.number;
        if said.sha256 != sum {
            let why = "the checksum is that of another file: a byte was changed on the way".to_owned();
            return Err(Broken { line, why });
        }
        if lines.read < file.len() {
            return Err(Broken { line: line + 1, why: "there is more behind the checksum".to_owned() });
        }
        Ok(Self { session, tags: head.tags, state: head.state, log, inputs })
    }
}

/// The first line, once it is known for one that this version reads.
fn head<'a>(lines: &mut Numbered<'a>) -> Result<Head<'a>, Broken> {
    let broken = |why: String| Broken { line: 1, why };
    if lines.file.is_empty() {
        return Err(broken("the file is empty".to_owned()));
    }
    let mut again = lines.clone();
    let Ok(Format { format, version }) = again.next("first line") else {
        return Err(broken("this is not what `settled export` writes".to_owned()));
    };
    if format != FORMAT {
        return Err(broken(format!("the format is `{format}`, not `{FORMAT}`")));
    }
    if version != VERSION {
        return Err(broken(format!(
            "the format has version {version}, and this version reads {VERSION}: use a newer one"
        )));
    }
    let head: Head<'a> = lines.next("first line")?;
    if head.events == 0 {
        return Err(broken("the session has no events".to_owned()));
    }
    Ok(head)
}

/// Lines on their way out, and the sum of all before.
struct Lines<W> {
    out: W,
    sum: Sha256,
}

impl<W: Write> Lines<W> {
    fn put(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.sum.update(&line);
        self.out.write_all(&line)
    }
}

/// The lines of a file, and how far they are read.
#[derive(Clone)]
struct Numbered<'a> {
    file: &'a [u8],
    /// How many bytes are read.
    read: usize,
    /// The line that was read last, from 1.
    number: usize,
}

impl<'a> Numbered<'a> {
    /// Reads the next line as what must stand there.
    fn next<T: Deserialize<'a>>(&mut self, what: &str) -> Result<T, Broken> {
        self.number += 1;
        let broken = |why: String| Broken { line: self.number, why };
        let rest = &self.file[self.read..];
        if rest.is_empty() {
            return Err(broken(format!("the file ends where its {what} must be: it was cut off")));
        }
        let length = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
        self.read += length;
        let text = std::str::from_utf8(&rest[..length]).map_err(|error| broken(format!("not UTF-8: {error}")))?;
        serde_json::from_str(text).map_err(|error| {
            // The line that the parser counts is the only one it is given.
            let why = error.to_string();
            let why = why.split(" at line 1 column ").next().unwrap_or_default();
            broken(format!("here must be the {what}: {why} (column {})", error.column()))
        })
    }
}

/// A row's fields as they go into the file.
fn to_raw(body: &str) -> io::Result<Box<RawValue>> {
    let stays = |raw: &RawValue| raw.get() == body && body.starts_with('{') && !body.contains(['\n', '\r']);
    match RawValue::from_string(body.to_owned()) {
        Ok(raw) if stays(&raw) => Ok(raw),
        _ => Ok(serde_json::value::to_raw_value(body)?),
    }
}

/// A row's fields as they were.
fn from_raw(raw: &RawValue) -> Result<String, String> {
    let body = match serde_json::from_str::<String>(raw.get()) {
        Ok(text) => text,
        Err(_) => raw.get().to_owned(),
    };
    match serde_json::from_str::<BTreeMap<String, IgnoredAny>>(&body) {
        Ok(_) => Ok(body),
        Err(error) => Err(format!("the body is no JSON object: {error}")),
    }
}

fn hex(sum: Sha256) -> String {
    use fmt::Write as _;
    sum.finalize().iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

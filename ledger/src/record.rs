//! Events as rows: what a store keeps and a reader gets.

use std::fmt;

use serde_json::Value;
use settled_tools_api::SessionId;

use crate::event::UnknownEvent;
use crate::{Event, Seq, Timestamp};

/// An event that is to be appended: encoded, not yet placed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewRow {
    /// When it happened.
    pub at: Timestamp,
    /// The kind of event.
    pub kind: String,
    /// The schema version of its fields.
    pub version: u16,
    /// Its fields, a JSON object.
    pub body: String,
}

impl NewRow {
    /// Encodes an event.
    pub fn encode(event: &Event, at: Timestamp) -> Result<Self, EncodeError> {
        let body =
            event.encode().map_err(|error| EncodeError { kind: event.kind().to_owned(), error: error.to_string() })?;
        Ok(Self { at, kind: event.kind().to_owned(), version: event.version(), body })
    }

    /// A row as it was kept elsewhere; `body` must be a JSON object.
    pub fn from_parts(at: Timestamp, kind: String, version: u16, body: String) -> Self {
        Self { at, kind, version, body }
    }

    /// The row at its place in a session's log.
    pub fn placed(self, session: SessionId, seq: Seq) -> Recorded {
        Recorded { session, seq, at: self.at, kind: self.kind, version: self.version, body: self.body }
    }
}

/// One event in a session's log.
///
/// The row is the truth: fields and kinds that this version does not know stay in it, and survive a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// The session.
    pub session: SessionId,
    /// The place in the session's log.
    pub seq: Seq,
    /// When it happened.
    pub at: Timestamp,
    /// The kind of event.
    pub kind: String,
    /// The schema version of its fields.
    pub version: u16,
    /// Its fields, a JSON object.
    pub body: String,
}

impl Recorded {
    /// A row as a store has kept it.
    pub fn new(session: SessionId, seq: Seq, at: Timestamp, kind: String, version: u16, body: String) -> Self {
        Self { session, seq, at, kind, version, body }
    }

    /// The event, brought up to this version's schema.
    ///
    /// A kind or a version that is not known gives [`Event::Unknown`].
    /// *Fails* where the fields of a known kind do not read: the log is corrupt there.
    pub fn event(&self) -> Result<Event, DecodeError> {
        let corrupt =
            |why: String| DecodeError { session: self.session.clone(), seq: self.seq, kind: self.kind.clone(), why };
        let known = Event::KINDS.iter().find(|(kind, _)| *kind == self.kind).map(|(_, version)| *version);
        let decoded = match known {
            Some(version) if version == self.version => Event::decode(&self.kind, &self.body),
            Some(version) if version > self.version => {
                let body = upcast(UPCASTS, &self.kind, self.version, version, &self.body).map_err(corrupt)?;
                Event::decode(&self.kind, &body)
            }
            _ => None,
        };
        match decoded {
            Some(event) => event.map_err(|error| corrupt(error.to_string())),
            None => Ok(Event::Unknown(UnknownEvent {
                kind: self.kind.clone(),
                version: self.version,
                body: self.body.clone(),
            })),
        }
    }

    /// The whole row as one line of JSON: `session`, `seq`, `time`, `version`, `type`, and the event's fields.
    ///
    /// *Fails* where the fields are no JSON object.
    pub fn to_json(&self) -> Result<String, DecodeError> {
        let corrupt = |why: &str| DecodeError {
            session: self.session.clone(),
            seq: self.seq,
            kind: self.kind.clone(),
            why: why.to_owned(),
        };
        let fields = self.body.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let fields = fields.ok_or_else(|| corrupt("its fields are no JSON object"))?.trim();
        let comma = if fields.is_empty() { "" } else { "," };
        Ok(format!(
            r#"{{"session":{},"seq":{},"time":{},"version":{},"type":{}{comma}{fields}}}"#,
            Value::from(self.session.as_str()),
            self.seq,
            self.at.as_millis(),
            self.version,
            Value::from(self.kind.as_str()),
        ))
    }

    /// Reads a row that [`to_json`](Self::to_json) wrote.
    ///
    /// *Fails* with words that say which field is missing or wrong.
    pub fn from_json(line: &str) -> Result<Self, String> {
        let mut fields: serde_json::Map<String, Value> =
            serde_json::from_str(line).map_err(|error| format!("not a JSON object: {error}"))?;
        let mut take = |name: &str| fields.remove(name).ok_or_else(|| format!("the field `{name}` is missing"));
        let (session, seq, time, version, kind) =
            (take("session")?, take("seq")?, take("time")?, take("version")?, take("type")?);
        let wrong = |name: &str| format!("the field `{name}` is not what it must be");
        Ok(Self {
            session: session.as_str().and_then(|id| SessionId::new(id).ok()).ok_or_else(|| wrong("session"))?,
            seq: Seq::new(seq.as_u64().ok_or_else(|| wrong("seq"))?),
            at: Timestamp::from_millis(time.as_i64().ok_or_else(|| wrong("time"))?),
            version: version.as_u64().and_then(|v| u16::try_from(v).ok()).ok_or_else(|| wrong("version"))?,
            kind: kind.as_str().ok_or_else(|| wrong("type"))?.to_owned(),
            body: Value::Object(fields).to_string(),
        })
    }
}

/// One step up in the schema of one kind of event.
struct Upcast {
    kind: &'static str,
    from: u16,
    up: fn(&mut serde_json::Map<String, Value>),
}

/// Every step up, in any order.
///
/// When the fields of a kind change, its version in `event.rs` grows by one and a step is added here; old rows are never rewritten.
const UPCASTS: &[Upcast] = &[];

fn upcast(steps: &[Upcast], kind: &str, from: u16, to: u16, body: &str) -> Result<String, String> {
    let mut fields: serde_json::Map<String, Value> = serde_json::from_str(body).map_err(|error| error.to_string())?;
    for version in from..to {
        let step = steps.iter().find(|step| step.kind == kind && step.from == version);
        let step = step.ok_or_else(|| format!("there is no way up from version {version}"))?;
        (step.up)(&mut fields);
    }
    Ok(Value::Object(fields).to_string())
}

/// An event that cannot be encoded: a value in it has no JSON form.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncodeError {
    /// The kind of event.
    pub kind: String,
    /// What is wrong.
    pub error: String,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a `{}` event cannot be encoded: {}", self.kind, self.error)
    }
}

impl std::error::Error for EncodeError {}

/// A row that does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecodeError {
    /// The session.
    pub session: SessionId,
    /// The place in its log.
    pub seq: Seq,
    /// The kind of event it says it is.
    pub kind: String,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, seq, kind, why } = self;
        write!(f, "event {seq} of session `{session}` is corrupt: as a `{kind}` it does not read: {why}")
    }
}

impl std::error::Error for DecodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_versions_are_brought_up_step_by_step() {
        let steps = [
            Upcast { kind: "a", from: 1, up: |fields| drop(fields.insert("two".into(), 2.into())) },
            Upcast { kind: "a", from: 2, up: |fields| drop(fields.remove("one")) },
        ];
        assert_eq!(upcast(&steps, "a", 1, 3, r#"{"one":1}"#), Ok(r#"{"two":2}"#.to_owned()));
        assert_eq!(upcast(&steps, "a", 2, 3, r#"{"one":1,"x":0}"#), Ok(r#"{"x":0}"#.to_owned()));
        let missing = upcast(&steps, "b", 1, 2, "{}");
        assert_eq!(missing, Err("there is no way up from version 1".to_owned()));
    }
}

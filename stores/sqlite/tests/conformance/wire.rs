//! What two processes say to each other: the values of the contracts as JSON.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, ClaimError, Claimed, Fence, Followed, NewSession, Page, Query,
    SessionInfo, SessionState, StateFilter, StoreError, StoreErrorKind,
};
use settled_ledger::{
    Arrival, BatchId, InputId, NewInput, NewInputKind, NewRow, Recorded, Seq, Timestamp, Wake, WorkerId,
};
use settled_tools_api::SessionId;

/// A value that goes from one process to another and comes out the same.
pub(crate) trait Wire: Sized {
    fn to_wire(&self) -> Value;
    fn from_wire(value: Value) -> Self;
}

/// A value that has a form in JSON of its own.
fn plain<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap()
}

fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

macro_rules! as_it_is {
    ($($plain:ty),* $(,)?) => {$(
        impl Wire for $plain {
            fn to_wire(&self) -> Value {
                plain(self)
            }
            fn from_wire(value: Value) -> Self {
                parse(value)
            }
        }
    )*};
}

as_it_is!((), bool, Seq, SessionId, Vec<SessionId>, Vec<settled_ledger::InboxItem>);

type Row = (Timestamp, String, u16, String);

fn row(row: &NewRow) -> Row {
    (row.at, row.kind.clone(), row.version, row.body.clone())
}

fn new_row((at, kind, version, body): Row) -> NewRow {
    NewRow::from_parts(at, kind, version, body)
}

impl Wire for Fence {
    fn to_wire(&self) -> Value {
        json!([self.session, self.worker, self.epoch])
    }
    fn from_wire(value: Value) -> Self {
        let (session, worker, epoch) = parse(value);
        Self::new(session, worker, epoch)
    }
}

impl Wire for Batch {
    fn to_wire(&self) -> Value {
        json!([self.id, self.rows.iter().map(row).collect::<Vec<_>>(), self.taken, self.state])
    }
    fn from_wire(value: Value) -> Self {
        let (id, rows, taken, state): (BatchId, Vec<Row>, Vec<InputId>, Option<SessionState>) = parse(value);
        let mut batch = Self::new(id, rows.into_iter().map(new_row).collect());
        (batch.taken, batch.state) = (taken, state);
        batch
    }
}

impl Wire for NewSession {
    fn to_wire(&self) -> Value {
        json!([self.rows.iter().map(row).collect::<Vec<_>>(), self.tags])
    }
    fn from_wire(value: Value) -> Self {
        let (rows, tags): (Vec<Row>, BTreeMap<String, String>) = parse(value);
        Self::new(rows.into_iter().map(new_row).collect(), tags)
    }
}

impl Wire for NewInput {
    fn to_wire(&self) -> Value {
        json!([self.id, self.key, self.at, self.wake == Wake::Now, self.kind])
    }
    fn from_wire(value: Value) -> Self {
        let (id, key, at, wakes, kind): (InputId, Option<String>, Timestamp, bool, NewInputKind) = parse(value);
        let input = Self::new(id, at, kind).key(key);
        if wakes { input } else { input.without_waking() }
    }
}

impl Wire for Recorded {
    fn to_wire(&self) -> Value {
        json!([self.session, self.seq, self.at, self.kind, self.version, self.body])
    }
    fn from_wire(value: Value) -> Self {
        let (session, seq, at, kind, version, body) = parse(value);
        Self::new(session, seq, at, kind, version, body)
    }
}

impl Wire for Vec<Recorded> {
    fn to_wire(&self) -> Value {
        self.iter().map(Wire::to_wire).collect()
    }
    fn from_wire(value: Value) -> Self {
        parse::<Vec<Value>>(value).into_iter().map(Recorded::from_wire).collect()
    }
}

impl Wire for Followed {
    fn to_wire(&self) -> Value {
        match self {
            Self::Event(event) => json!([event.to_wire(), null]),
            Self::Synced(head) => json!([null, head]),
        }
    }
    fn from_wire(value: Value) -> Self {
        match parse(value) {
            (Value::Null, Some(head)) => Self::Synced(head),
            (event, _) => Self::Event(Recorded::from_wire(event)),
        }
    }
}

impl Wire for Admitted {
    fn to_wire(&self) -> Value {
        match self {
            Self::New(input, arrival) => json!([input, arrival]),
            Self::Again(input) => json!([input, null]),
            Self::Dropped => json!([null, null]),
        }
    }
    fn from_wire(value: Value) -> Self {
        match parse::<(Option<InputId>, Option<Arrival>)>(value) {
            (Some(input), Some(arrival)) => Self::New(input, arrival),
            (Some(input), None) => Self::Again(input),
            (None, _) => Self::Dropped,
        }
    }
}

impl Wire for Claimed {
    fn to_wire(&self) -> Value {
        json!([self.fence.to_wire(), self.head, self.state])
    }
    fn from_wire(value: Value) -> Self {
        let (fence, head, state) = parse(value);
        Self::new(Fence::from_wire(fence), head, state)
    }
}

impl Wire for SessionInfo {
    fn to_wire(&self) -> Value {
        json!([self.session, self.head, self.state, self.owner, self.tags, self.created, self.updated])
    }
    fn from_wire(value: Value) -> Self {
        let (session, head, state, owner, tags, created, updated) = parse(value);
        let mut info = Self::new(session, head, state);
        (info.owner, info.tags, info.created, info.updated) = (owner, tags, created, updated);
        info
    }
}

impl Wire for Query {
    fn to_wire(&self) -> Value {
        json!([self.tag, self.state.map(|state| format!("{state:?}")), self.after, self.limit])
    }
    fn from_wire(value: Value) -> Self {
        let (tag, state, after, limit): (_, Option<String>, _, _) = parse(value);
        let mut query = Self::all(limit);
        let states = [StateFilter::Busy, StateFilter::Waiting, StateFilter::Quiet];
        query.state = state.map(|state| states.into_iter().find(|one| format!("{one:?}") == state).unwrap());
        (query.tag, query.after) = (tag, after);
        query
    }
}

impl Wire for Page {
    fn to_wire(&self) -> Value {
        json!([self.sessions.iter().map(Wire::to_wire).collect::<Vec<_>>(), self.after])
    }
    fn from_wire(value: Value) -> Self {
        let (sessions, after): (Vec<Value>, _) = parse(value);
        Self::new(sessions.into_iter().map(SessionInfo::from_wire).collect(), after)
    }
}

impl Wire for StoreError {
    fn to_wire(&self) -> Value {
        json!([format!("{:?}", self.kind), self.message])
    }
    fn from_wire(value: Value) -> Self {
        let (kind, message): (String, String) = parse(value);
        let kinds = [
            StoreErrorKind::NotFound,
            StoreErrorKind::Exists,
            StoreErrorKind::InUse,
            StoreErrorKind::Unavailable,
            StoreErrorKind::Corrupt,
            StoreErrorKind::Newer,
            StoreErrorKind::ReadOnly,
        ];
        Self::new(kinds.into_iter().find(|one| format!("{one:?}") == kind).unwrap(), message)
    }
}

impl Wire for AppendError {
    fn to_wire(&self) -> Value {
        match self {
            Self::Fenced => json!({"fenced": null}),
            Self::Conflict { head, batch } => json!({"conflict": [head, batch]}),
            Self::Busy => json!({"busy": null}),
            Self::Unknown(error) => json!({"unknown": error.to_wire()}),
            Self::Unavailable(error) => json!({"unavailable": error.to_wire()}),
            other => panic!("{other:?} has no form yet"),
        }
    }
    fn from_wire(value: Value) -> Self {
        match tagged(value) {
            ("fenced", _) => Self::Fenced,
            ("conflict", value) => {
                let (head, batch) = parse(value);
                Self::Conflict { head, batch }
            }
            ("busy", _) => Self::Busy,
            ("unknown", error) => Self::Unknown(StoreError::from_wire(error)),
            (_, error) => Self::Unavailable(StoreError::from_wire(error)),
        }
    }
}

impl Wire for AdmitError {
    fn to_wire(&self) -> Value {
        match self {
            Self::KeyConflict { input } => json!({"conflict": input}),
            Self::Store(error) => json!({"store": error.to_wire()}),
            other => panic!("{other:?} has no form yet"),
        }
    }
    fn from_wire(value: Value) -> Self {
        match tagged(value) {
            ("conflict", input) => Self::KeyConflict { input: parse(input) },
            (_, error) => Self::Store(StoreError::from_wire(error)),
        }
    }
}

impl Wire for ClaimError {
    fn to_wire(&self) -> Value {
        match self {
            Self::Owned { worker, until } => json!({"owned": [worker, until]}),
            Self::Store(error) => json!({"store": error.to_wire()}),
            other => panic!("{other:?} has no form yet"),
        }
    }
    fn from_wire(value: Value) -> Self {
        match tagged(value) {
            ("owned", owned) => {
                let (worker, until): (WorkerId, Timestamp) = parse(owned);
                Self::Owned { worker, until }
            }
            (_, error) => Self::Store(StoreError::from_wire(error)),
        }
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn to_wire(&self) -> Value {
        match self {
            Ok(value) => json!({"ok": value.to_wire()}),
            Err(error) => json!({"err": error.to_wire()}),
        }
    }
    fn from_wire(value: Value) -> Self {
        match tagged(value) {
            ("ok", value) => Ok(T::from_wire(value)),
            (_, error) => Err(E::from_wire(error)),
        }
    }
}

/// The only member of an object.
fn tagged(value: Value) -> (&'static str, Value) {
    const TAGS: [&str; 9] = ["ok", "err", "fenced", "conflict", "busy", "unknown", "unavailable", "store", "owned"];
    let members: BTreeMap<String, Value> = parse(value);
    let (name, value) = members.into_iter().next().unwrap();
    (TAGS.into_iter().find(|tag| **tag == name).unwrap(), value)
}

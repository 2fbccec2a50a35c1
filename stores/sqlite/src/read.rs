//! What is read: ranges of a log, inboxes, rows of sessions; on any connection.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, Row, params};
use settled_ledger::store::{Next, Page, Query, SessionInfo, SessionState};
use settled_ledger::{Arrival, BatchId, CachedFold, InboxItem, InputId, NewInput, Recorded, Seq, Timestamp, WorkerId};
use settled_tools_api::SessionId;

use crate::error::Fault;
use crate::schema::MARK_EVERY;
use crate::sum;

/// How many sessions a page has when the query leaves it to the store.
const PAGE: usize = 100;

/// What a session's rows say that writing to it needs.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) number: i64,
    pub(crate) head: Seq,
    /// The row of the last event; 0 where there is none.
    pub(crate) event: i64,
    pub(crate) batch: Option<BatchId>,
    pub(crate) state: SessionState,
    pub(crate) due: Option<Timestamp>,
    pub(crate) epoch: u64,
    pub(crate) worker: Option<WorkerId>,
}

/// The end of a session's log: what is read goes up to here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) number: i64,
    pub(crate) head: Seq,
    pub(crate) event: i64,
}

/// A place in a session's log whose row is known.
#[derive(Clone, Copy)]
struct Place {
    seq: i64,
    event: i64,
}

/// Finds a session.
pub(crate) fn find(db: &Connection, session: &SessionId) -> Result<Option<Found>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT number, head, event, batch, state, due, epoch, worker
         FROM sessions LEFT JOIN heads ON heads.session = sessions.number WHERE id = ?1",
    )?;
    let mut rows = query.query([session.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let End { number, head, event } = checked(db, session, row)?;
    Ok(Some(Found {
        number,
        head,
        event,
        batch: row.get::<_, Option<[u8; 16]>>(3)?.map(|id| BatchId::from_u128(bits(id))),
        state: state(session, row.get_ref(4)?.as_str().map_err(rusqlite::Error::from)?)?,
        due: row.get::<_, Option<i64>>(5)?.map(Timestamp::from_millis),
        epoch: unsigned(row.get(6)?),
        worker: row.get::<_, Option<[u8; 16]>>(7)?.map(|id| WorkerId::from_u128(bits(id))),
    }))
}

/// Finds where a session's log ends.
pub(crate) fn end(db: &Connection, session: &SessionId) -> Result<Option<End>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT number, head, event FROM sessions LEFT JOIN heads ON heads.session = sessions.number WHERE id = ?1",
    )?;
    let mut rows = query.query([session.as_str()])?;
    rows.next()?.map(|row| checked(db, session, row)).transpose()
}

/// The end of a log out of a row, if the event there is the last one: a head that the disk has changed would make the log shorter, and nobody would know.
fn checked(db: &Connection, session: &SessionId, row: &Row<'_>) -> Result<End, Fault> {
    let (Some(head), Some(event)) = (row.get(1)?, row.get(2)?) else {
        return Err(Fault::Corrupt(format!("the head of session `{session}` is missing")));
    };
    let end = End { number: row.get(0)?, head: Seq::new(unsigned(head)), event };
    let mut query = db.prepare_cached("SELECT 1 FROM events WHERE id = ?1 AND session = ?2 AND seq = ?3")?;
    if end.event != 0 && !query.exists([end.event, end.number, signed(end.head.get())])?
        || end.event == 0 && end.head != Seq::START
    {
        return Err(Fault::Corrupt(format!("event {} of session `{session}`, its last one, is missing", end.head)));
    }
    Ok(end)
}

/// Up to `limit` events after a place.
///
/// Rows that lie close together are read in one sweep over the table; where other sessions' rows lie between them, each row leads to the one before it.
pub(crate) fn range(
    db: &Connection,
    session: &SessionId,
    end: End,
    after: Seq,
    limit: usize,
) -> Result<Vec<Recorded>, Fault> {
    let head = signed(end.head.get());
    let mut at = signed(after.get());
    let to = at.saturating_add(i64::try_from(limit).unwrap_or(i64::MAX)).min(head);
    let mut found = Vec::with_capacity(usize::try_from((to - at).clamp(0, 4096)).unwrap_or(0));
    let last = Place { seq: head, event: end.event };
    while at < to {
        let below = mark_below(db, end.number, at)?;
        let mut above = mark_from(db, end.number, to)?.unwrap_or(last);
        if !is_dense(below, above) {
            above = mark_from(db, end.number, at + 1)?.unwrap_or(last);
        }
        let upto = above.seq.min(to);
        if above.event - below.event <= 4 * (upto - at) {
            sweep(db, session, end.number, below, above, at..upto, &mut found)?;
        } else {
            walk(db, session, end.number, above, at..upto, &mut found)?;
        }
        at = upto;
    }
    Ok(found)
}

fn is_dense(below: Place, above: Place) -> bool {
    above.event - below.event <= 4 * (above.seq - below.seq)
}

/// The last marked place at or before a sequence number; the beginning where there is none.
fn mark_below(db: &Connection, number: i64, seq: i64) -> Result<Place, Fault> {
    let mark = "SELECT seq, event FROM marks WHERE session = ?1 AND seq <= ?2 ORDER BY seq DESC LIMIT 1";
    Ok(mark_at(db, mark, number, seq)?.unwrap_or(Place { seq: 0, event: 0 }))
}

/// The first marked place at or after a sequence number.
fn mark_from(db: &Connection, number: i64, seq: i64) -> Result<Option<Place>, Fault> {
    let mark = "SELECT seq, event FROM marks WHERE session = ?1 AND seq >= ?2 ORDER BY seq LIMIT 1";
    mark_at(db, mark, number, seq)
}

fn mark_at(db: &Connection, mark: &str, number: i64, seq: i64) -> Result<Option<Place>, Fault> {
    let mut query = db.prepare_cached(mark)?;
    let place = query.query_row([number, seq], |row| Ok(Place { seq: row.get(0)?, event: row.get(1)? }));
    Ok(place.optional()?)
}

/// Reads a stretch of a log in one sweep over the rows between two places.
fn sweep(
    db: &Connection,
    session: &SessionId,
    number: i64,
    below: Place,
    above: Place,
    stretch: std::ops::Range<i64>,
    found: &mut Vec<Recorded>,
) -> Result<(), Fault> {
    let mut query = db.prepare_cached(
        "SELECT seq, at, version, kind, body, sum FROM events
         WHERE id > ?1 AND id <= ?2 AND session = ?3 AND seq > ?4 AND seq <= ?5 ORDER BY id",
    )?;
    let mut rows = query.query([below.event, above.event, number, stretch.start, stretch.end])?;
    let mut due = stretch.start + 1;
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(0)? != due {
            break;
        }
        found.push(recorded(session, number, row)?);
        due += 1;
    }
    if due <= stretch.end {
        return Err(Fault::Corrupt(format!("event {due} of session `{session}` is missing")));
    }
    Ok(())
}

/// Reads a stretch of a log from a place backwards, row by row.
fn walk(
    db: &Connection,
    session: &SessionId,
    number: i64,
    from: Place,
    stretch: std::ops::Range<i64>,
    found: &mut Vec<Recorded>,
) -> Result<(), Fault> {
    let mut query =
        db.prepare_cached("SELECT seq, at, version, kind, body, sum, prev, session FROM events WHERE id = ?1")?;
    let begin = found.len();
    let Place { mut seq, mut event } = from;
    while seq > stretch.start {
        let mut rows = query.query([event])?;
        let row = rows.next()?;
        let row = row.filter(|row| row.get(0) == Ok(seq) && row.get(7) == Ok(number));
        let missing = || Fault::Corrupt(format!("event {seq} of session `{session}` is missing"));
        let row = row.ok_or_else(missing)?;
        if seq <= stretch.end {
            found.push(recorded(session, number, row)?);
        }
        event = row.get(6)?;
        seq -= 1;
    }
    found[begin..].reverse();
    Ok(())
}

/// An event out of its row, as it was written.
fn recorded(session: &SessionId, number: i64, row: &Row<'_>) -> Result<Recorded, Fault> {
    let (seq, at, version): (i64, i64, u16) = (row.get(0)?, row.get(1)?, row.get(2)?);
    let (kind, body): (String, String) = (row.get(3)?, row.get(4)?);
    if sum::of_event(number, seq, at, version, &kind, &body) != row.get::<_, u32>(5)? {
        return Err(Fault::Corrupt(format!("event {seq} of session `{session}` is not as it was written")));
    }
    Ok(Recorded::new(session.clone(), Seq::new(unsigned(seq)), Timestamp::from_millis(at), kind, version, body))
}

/// A session's pending input in order of arrival.
pub(crate) fn pending(db: &Connection, session: &SessionId, number: i64) -> Result<Vec<InboxItem>, Fault> {
    let mut query =
        db.prepare_cached("SELECT id, arrival, key, at, input, sum FROM inbox WHERE session = ?1 ORDER BY arrival")?;
    let mut rows = query.query([number])?;
    let mut items = Vec::new();
    while let Some(row) = rows.next()? {
        let (bytes, arrival, at): (_, i64, _) = (row.get(0)?, row.get(1)?, row.get(3)?);
        let (id, key): (_, Option<String>) = (InputId::from_u128(bits(bytes)), row.get(2)?);
        let kind = row.get_ref(4)?.as_str().map_err(rusqlite::Error::from)?;
        if sum::of_input(number, arrival, &bytes, key.as_deref(), at, kind) != row.get::<_, u32>(5)? {
            return Err(Fault::Corrupt(format!("input {id} of session `{session}` is not as it was written")));
        }
        let kind = serde_json::from_str(kind)
            .map_err(|error| Fault::Corrupt(format!("input {id} of session `{session}` does not read: {error}")))?;
        let input = NewInput::new(id, Timestamp::from_millis(at), kind).key(key);
        items.push(InboxItem::new(input, Arrival::new(unsigned(arrival))));
    }
    let mut count = db.prepare_cached("SELECT pending FROM sessions WHERE number = ?1")?;
    let count: i64 = count.query_row([number], |row| row.get(0))?;
    if i64::try_from(items.len()) != Ok(count) {
        let message = format!("of {count} inputs of session `{session}` there are {}", items.len());
        return Err(Fault::Corrupt(message));
    }
    Ok(items)
}

/// The history cache of a session; one that is not as it was written is none.
pub(crate) fn fold(db: &Connection, session: &SessionId) -> Result<Option<CachedFold>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT number, head, mark, format, body, sum
         FROM folds JOIN sessions ON sessions.number = folds.session WHERE id = ?1",
    )?;
    let mut rows = query.query([session.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (number, head): (_, i64) = (row.get(0)?, row.get(1)?);
    let (mark, format, body): (String, String, String) = (row.get(2)?, row.get(3)?, row.get(4)?);
    let same = sum::of_fold(number, head, &mark, &format, &body) == row.get::<_, u32>(5)?;
    Ok(same.then(|| CachedFold::new(Seq::new(head.cast_unsigned()), mark, format, body)))
}

/// The worker whose lease on a session has not run out, and when it will.
pub(crate) fn live_owner(
    db: &Connection,
    worker: Option<WorkerId>,
    now: Timestamp,
) -> Result<Option<(WorkerId, Timestamp)>, Fault> {
    let Some(worker) = worker else { return Ok(None) };
    let mut query = db.prepare_cached("SELECT until FROM workers WHERE id = ?1 AND until > ?2")?;
    let until = query.query_row(params![worker.as_u128().to_be_bytes(), now.as_millis()], |row| row.get(0));
    Ok(until.optional()?.map(|until| (worker, Timestamp::from_millis(until))))
}

/// Sessions that are due and free, longest due first.
pub(crate) fn due(db: &Connection, now: Timestamp, limit: usize) -> Result<Vec<SessionId>, Fault> {
    let mut query = db.prepare_cached(
        "SELECT sessions.id FROM sessions LEFT JOIN workers ON workers.id = sessions.worker
         WHERE sessions.due <= ?1 AND (workers.until IS NULL OR workers.until <= ?1)
         ORDER BY sessions.due, sessions.id LIMIT ?2",
    )?;
    let mut rows = query.query([now.as_millis(), i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        due.push(session_id(row, 0)?);
    }
    Ok(due)
}

/// What the rows of [`info`] and [`list`] are made of.
const ROW: &str = "sessions.id, heads.head, sessions.state, sessions.tags, sessions.created, heads.updated, workers.id
    FROM sessions JOIN heads ON heads.session = sessions.number
    LEFT JOIN workers ON workers.id = sessions.worker AND workers.until > ?1";

/// One session's row.
pub(crate) fn info(db: &Connection, session: &SessionId, now: Timestamp) -> Result<Option<SessionInfo>, Fault> {
    let mut query = db.prepare_cached(&format!("SELECT {ROW} WHERE sessions.id = ?2"))?;
    let mut rows = query.query(params![now.as_millis(), session.as_str()])?;
    rows.next()?.map(session_info).transpose()
}

/// One page of sessions.
pub(crate) fn list(db: &Connection, query: &Query, now: Timestamp) -> Result<Page, Fault> {
    let limit = if query.limit == 0 { PAGE } else { query.limit };
    let after = query.after.as_ref().map_or("", |after| after.as_str());
    // One more than asked for says whether there is a next page.
    let ask = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
    let waits = match query.state {
        None => "0, 1, 2",
        Some(state) => [(Next::Idle, "0"), (Next::Waiting(Vec::new()), "1"), (Next::Runnable, "2")]
            .into_iter()
            .find_map(|(next, waits)| state.matches(&next).then_some(waits))
            .unwrap_or("0, 1, 2"),
    };
    let (tags, tagged) = match &query.tag {
        None => ("", "sessions.id > ?2"),
        Some(_) => ("JOIN tags ON tags.id = sessions.id", "tags.id > ?2 AND tags.name = ?4 AND tags.value = ?5"),
    };
    let order = if query.tag.is_some() { "tags.id" } else { "sessions.id" };
    let sql = format!("SELECT {ROW} {tags} WHERE {tagged} AND sessions.waits IN ({waits}) ORDER BY {order} LIMIT ?3");
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = match &query.tag {
        None => statement.query(params![now.as_millis(), after, ask])?,
        Some((name, value)) => statement.query(params![now.as_millis(), after, ask, name, value])?,
    };
    let mut sessions = Vec::new();
    while let Some(row) = rows.next()? {
        sessions.push(session_info(row)?);
    }
    let more = sessions.len() > limit;
    sessions.truncate(limit);
    let after = sessions.last().map(|last| last.session.clone()).filter(|_| more);
    Ok(Page::new(sessions, after))
}

fn session_info(row: &Row<'_>) -> Result<SessionInfo, Fault> {
    let session = session_id(row, 0)?;
    let state = state(&session, row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?)?;
    let tags = tags(&session, row.get_ref(3)?.as_str().map_err(rusqlite::Error::from)?)?;
    let mut info = SessionInfo::new(session, Seq::new(unsigned(row.get(1)?)), state);
    info.owner = row.get::<_, Option<[u8; 16]>>(6)?.map(|id| WorkerId::from_u128(bits(id)));
    info.tags = tags;
    info.created = Timestamp::from_millis(row.get(4)?);
    info.updated = Timestamp::from_millis(row.get(5)?);
    Ok(info)
}

/// A session's id out of a column.
pub(crate) fn session_id(row: &Row<'_>, column: usize) -> Result<SessionId, Fault> {
    let id: String = row.get(column)?;
    SessionId::new(&id).map_err(|error| Fault::Corrupt(format!("the session id `{id}` does not read: {error}")))
}

/// A session's state out of its JSON.
pub(crate) fn state(session: &SessionId, json: &str) -> Result<SessionState, Fault> {
    serde_json::from_str(json)
        .map_err(|error| Fault::Corrupt(format!("the state of session `{session}` does not read: {error}")))
}

/// A session's tags out of their JSON.
pub(crate) fn tags(session: &SessionId, json: &str) -> Result<BTreeMap<String, String>, Fault> {
    serde_json::from_str(json)
        .map_err(|error| Fault::Corrupt(format!("the tags of session `{session}` do not read: {error}")))
}

/// Whether an event of this sequence number has a mark.
pub(crate) fn is_marked(seq: Seq) -> bool {
    seq.get().is_multiple_of(MARK_EVERY)
}

/// A number for a column; the few that do not fit are beyond every row.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// An id out of a column.
pub(crate) fn bits(id: [u8; 16]) -> u128 {
    u128::from_be_bytes(id)
}

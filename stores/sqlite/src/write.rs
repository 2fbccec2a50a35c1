//! What is written: one function for each change, in the transaction of a group.
//!
//! Each function looks first and writes after its last refusal, so that a refusal writes nothing.
//! A [`Fault`] may leave some of it written: the group is then rolled back, and its work done again one by one.

use std::collections::HashMap;
use std::time::Duration;

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, ClaimError, Claimed, Fence, NewSession, Next, SessionState, StoreError,
    StoreErrorKind,
};
use settled_ledger::{
    Arrival, CachedFold, Clock, Delivery, InboxItem, InputId, NewInput, NewInputKind, NewRow, Seq, Timestamp, WorkerId,
    arguments_hash,
};
use settled_tools_api::SessionId;

use crate::error::Fault;
use crate::read::{self, Found, bits, is_marked, live_owner, signed};
use crate::sum;

/// How many sessions the writer keeps in mind.
const REMEMBERED: usize = 16 * 1024;

/// What a change tells those who listen, once it is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A session's log has grown, or is gone.
    Log(SessionId),
    /// A session may have new input, or may have become due.
    Hint(SessionId),
    /// Another process has erased a session.
    Erased,
}

/// What a transaction's changes come to.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) news: Vec<News>,
    /// How many events were appended.
    pub(crate) rows: u64,
    /// The newest row of `events`, if there are new ones.
    pub(crate) last_event: Option<i64>,
    /// The newest row of `inbox`, if there are new ones.
    pub(crate) last_input: Option<i64>,
}

/// What the writer keeps in mind of sessions, as long as nobody else writes and nothing is rolled back.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    sessions: HashMap<SessionId, Found>,
}

impl Memory {
    pub(crate) fn forget(&mut self) {
        self.sessions.clear();
    }
}

/// The transaction of a group.
pub(crate) struct Tx<'a> {
    db: &'a Connection,
    clock: &'a dyn Clock,
    memory: &'a mut Memory,
    done: Done,
    add_event: CachedStatement<'a>,
    set_head: CachedStatement<'a>,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(db: &'a Connection, clock: &'a dyn Clock, memory: &'a mut Memory) -> Result<Self, Fault> {
        if memory.sessions.len() >= REMEMBERED {
            memory.forget();
        }
        Ok(Self {
            db,
            clock,
            memory,
            done: Done::default(),
            add_event: db.prepare_cached(
                "INSERT INTO events (session, seq, prev, at, version, kind, body, sum)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?,
            set_head: db.prepare_cached(
                "UPDATE heads SET head = ?2, event = ?3, batch = ?4, updated = ifnull(?5, updated) WHERE session = ?1",
            )?,
        })
    }

    /// What the changes come to.
    pub(crate) fn done(self) -> Done {
        self.done
    }

    /// A session as it stands.
    fn find(&mut self, session: &SessionId) -> Result<Option<Found>, Fault> {
        if let Some(found) = self.memory.sessions.get(session) {
            return Ok(Some(found.clone()));
        }
        let found = read::find(self.db, session)?;
        if let Some(found) = &found {
            self.memory.sessions.insert(session.clone(), found.clone());
        }
        Ok(found)
    }

    fn remember(&mut self, session: &SessionId, found: Found) {
        match self.memory.sessions.get_mut(session) {
            Some(known) => *known = found,
            None => drop(self.memory.sessions.insert(session.clone(), found)),
        }
    }

    /// Puts rows behind a session's head.
    fn put(&mut self, found: &mut Found, rows: &[NewRow]) -> Result<(), Fault> {
        for row in rows {
            let seq = found.head.plus(1);
            let at = row.at.as_millis();
            let sum = sum::of_event(found.number, signed(seq.get()), at, row.version, &row.kind, &row.body);
            let event = self.add_event.insert(params![
                found.number,
                signed(seq.get()),
                found.event,
                at,
                row.version,
                row.kind,
                row.body,
                sum
            ])?;
            if is_marked(seq) {
                let mut mark = self.db.prepare_cached("INSERT INTO marks (session, seq, event) VALUES (?1, ?2, ?3)")?;
                mark.execute([found.number, signed(seq.get()), event])?;
            }
            found.head = seq;
            found.event = event;
            self.done.last_event = Some(event);
        }
        self.done.rows += rows.len() as u64;
        Ok(())
    }

    /// Lets a session take a state; what was due already is due since then.
    fn take(&mut self, found: &mut Found, state: SessionState) -> Result<(), Fault> {
        found.due = match &state.next {
            Next::Runnable if found.state.next == Next::Runnable => found.due,
            Next::Runnable => Some(self.clock.now()),
            Next::At(time) => Some(*time),
            Next::Waiting(_) | Next::Held | Next::Idle => None,
        };
        let mut set =
            self.db.prepare_cached("UPDATE sessions SET state = ?2, waits = ?3, due = ?4 WHERE number = ?1")?;
        set.execute(params![found.number, json(&state)?, waits(&state.next), found.due.map(Timestamp::as_millis)])?;
        found.state = state;
        Ok(())
    }

    pub(crate) fn append(
        &mut self,
        fence: &Fence,
        expected: Seq,
        batch: &Batch,
    ) -> Result<Result<Seq, AppendError>, Fault> {
        let Some(mut found) = self.find(&fence.session)? else {
            return Ok(Err(AppendError::Unavailable(StoreError::not_found(&fence.session))));
        };
        if found.epoch != fence.epoch || found.worker != Some(fence.worker) {
            return Ok(Err(AppendError::Fenced));
        }
        if found.batch == Some(batch.id) {
            return Ok(Ok(found.head));
        }
        let conflict = AppendError::Conflict { head: found.head, batch: found.batch };
        if expected != found.head {
            return Ok(Err(conflict));
        }
        let mut taken = Vec::new();
        if !batch.taken.is_empty() || batch.state.is_some() {
            let mut left = read::pending(self.db, &fence.session, found.number)?;
            for input in &batch.taken {
                let Some(place) = left.iter().position(|item| item.id == *input) else {
                    return Ok(Err(conflict));
                };
                taken.push(left.remove(place).arrival);
            }
            if batch.state.as_ref().is_some_and(|state| !state.admissible(&left)) {
                return Ok(Err(AppendError::Busy));
            }
        }

        self.put(&mut found, &batch.rows)?;
        found.batch = Some(batch.id);
        self.set_head.execute(params![
            found.number,
            signed(found.head.get()),
            found.event,
            batch.id.as_u128().to_be_bytes(),
            batch.rows.last().map(|row| row.at.as_millis())
        ])?;
        for arrival in taken {
            self.leave(found.number, arrival)?;
        }
        if let Some(state) = &batch.state {
            self.take(&mut found, state.clone())?;
        }
        let head = found.head;
        self.remember(&fence.session, found);
        if !batch.rows.is_empty() {
            self.done.news.push(News::Log(fence.session.clone()));
        }
        Ok(Ok(head))
    }

    pub(crate) fn admit(
        &mut self,
        session: &SessionId,
        input: &NewInput,
    ) -> Result<Result<Admitted, AdmitError>, Fault> {
        let Some(mut found) = self.find(session)? else {
            return Ok(Err(StoreError::not_found(session).into()));
        };
        let content = match &input.key {
            None => None,
            Some(key) => {
                let content = content(&input.kind)?;
                let mut known =
                    self.db.prepare_cached("SELECT input, content FROM keys WHERE session = ?1 AND key = ?2")?;
                let known = known.query_row(params![found.number, key], |row| Ok((row.get(0)?, row.get(1)?)));
                if let Some((id, before)) = known.optional()? {
                    let before: String = before;
                    let id = InputId::from_u128(bits(id));
                    return Ok(if before == content {
                        Ok(Admitted::Again(id))
                    } else {
                        Err(AdmitError::KeyConflict { input: id })
                    });
                }
                Some((key, content))
            }
        };
        let Some(next) = found.state.after_admit(input) else {
            return Ok(Ok(Admitted::Dropped));
        };

        let mut place = self.db.prepare_cached(
            "UPDATE sessions SET arrivals = arrivals + 1, pending = pending + 1 WHERE number = ?1 RETURNING arrivals",
        )?;
        let arrival: i64 = place.query_row([found.number], |row| row.get(0))?;
        let id = input.id.as_u128().to_be_bytes();
        let mut add = self.db.prepare_cached(
            "INSERT INTO inbox (session, arrival, id, key, at, input, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let (at, kind) = (input.at.as_millis(), json(&input.kind)?);
        let sum = sum::of_input(found.number, arrival, &id, input.key.as_deref(), at, &kind);
        let row = add.insert(params![found.number, arrival, id, input.key, at, kind, sum])?;
        self.done.last_input = Some(row);
        if let Some((key, content)) = content {
            let mut add =
                self.db.prepare_cached("INSERT INTO keys (session, key, input, content) VALUES (?1, ?2, ?3, ?4)")?;
            add.execute(params![found.number, key, id, content])?;
        }
        if next != found.state.next {
            let mut state = found.state.clone();
            state.next = next;
            self.take(&mut found, state)?;
        }
        self.remember(session, found);
        self.done.news.push(News::Hint(session.clone()));
        Ok(Ok(Admitted::New(input.id, Arrival::new(arrival.unsigned_abs()))))
    }

    /// The pending input of an id.
    fn item(
        &mut self,
        session: &SessionId,
        input: InputId,
    ) -> Result<Result<Option<(i64, InboxItem)>, StoreError>, Fault> {
        let Some(found) = self.find(session)? else {
            return Ok(Err(StoreError::not_found(session)));
        };
        let pending = read::pending(self.db, session, found.number)?;
        let item = pending.into_iter().find(|item| item.id == input);
        Ok(Ok(item.map(|item| (found.number, item))))
    }

    /// Takes an item out of the inbox.
    fn leave(&mut self, number: i64, arrival: Arrival) -> Result<(), Fault> {
        let mut leave = self.db.prepare_cached("DELETE FROM inbox WHERE session = ?1 AND arrival = ?2")?;
        leave.execute([number, signed(arrival.get())])?;
        let mut count = self.db.prepare_cached("UPDATE sessions SET pending = pending - 1 WHERE number = ?1")?;
        count.execute([number])?;
        Ok(())
    }

    pub(crate) fn cancel(&mut self, session: &SessionId, input: InputId) -> Result<Result<bool, StoreError>, Fault> {
        let item = match self.item(session, input)? {
            Ok(item) => item,
            Err(error) => return Ok(Err(error)),
        };
        if let Some((number, item)) = &item {
            self.leave(*number, item.arrival)?;
        }
        Ok(Ok(item.is_some()))
    }

    pub(crate) fn change(
        &mut self,
        session: &SessionId,
        input: InputId,
        delivery: Delivery,
    ) -> Result<Result<bool, StoreError>, Fault> {
        let (number, mut item) = match self.item(session, input)? {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Ok(false)),
            Err(error) => return Ok(Err(error)),
        };
        match &mut item.input {
            NewInputKind::Prompt(prompt) => prompt.delivery = delivery,
            NewInputKind::Notice(notice) => notice.delivery = delivery,
            NewInputKind::Compact | NewInputKind::Switch(_) | NewInputKind::Interrupt(_) | NewInputKind::Answer(_) => {
                return Ok(Ok(false));
            }
        }
        let (arrival, kind) = (signed(item.arrival.get()), json(&item.input)?);
        let id = item.id.as_u128().to_be_bytes();
        let sum = sum::of_input(number, arrival, &id, item.key.as_deref(), item.at.as_millis(), &kind);
        let mut set =
            self.db.prepare_cached("UPDATE inbox SET input = ?3, sum = ?4 WHERE session = ?1 AND arrival = ?2")?;
        set.execute(params![number, arrival, kind, sum])?;
        // What was to wait may now be due at the next border of a step.
        self.done.news.push(News::Hint(session.clone()));
        Ok(Ok(true))
    }

    pub(crate) fn create(&mut self, session: &SessionId, new: &NewSession) -> Result<Result<Seq, StoreError>, Fault> {
        if self.find(session)?.is_some() {
            let message = format!("there is a session `{session}` already");
            return Ok(Err(StoreError::new(StoreErrorKind::Exists, message)));
        }
        let state = SessionState::default();
        let created = new.rows.first().map_or_else(|| self.clock.now(), |row| row.at);
        let updated = new.rows.last().map_or(created, |row| row.at);
        let mut add = self.db.prepare_cached(
            "INSERT INTO sessions (id, state, waits, epoch, arrivals, pending, tags, created)
             VALUES (?1, ?2, ?3, 0, 0, 0, ?4, ?5)",
        )?;
        let number = add.insert(params![
            session.as_str(),
            json(&state)?,
            waits(&state.next),
            json(&new.tags)?,
            created.as_millis()
        ])?;
        for (name, value) in &new.tags {
            let mut add = self.db.prepare_cached("INSERT INTO tags (name, value, id) VALUES (?1, ?2, ?3)")?;
            add.execute(params![name, value, session.as_str()])?;
        }
        let mut found =
            Found { number, head: Seq::START, event: 0, batch: None, state, due: None, epoch: 0, worker: None };
        self.put(&mut found, &new.rows)?;
        let mut add =
            self.db.prepare_cached("INSERT INTO heads (session, head, event, updated) VALUES (?1, ?2, ?3, ?4)")?;
        add.execute([number, signed(found.head.get()), found.event, updated.as_millis()])?;
        let head = found.head;
        self.remember(session, found);
        Ok(Ok(head))
    }

    pub(crate) fn claim(
        &mut self,
        worker: WorkerId,
        lease: Duration,
        session: &SessionId,
    ) -> Result<Result<Claimed, ClaimError>, Fault> {
        let Some(mut found) = self.find(session)? else {
            return Ok(Err(StoreError::not_found(session).into()));
        };
        if let Some((owner, until)) = live_owner(self.db, found.worker, self.clock.now())?
            && owner != worker
        {
            return Ok(Err(ClaimError::Owned { worker: owner, until }));
        }
        self.renew(worker, lease)?;
        self.own(&mut found, Some(worker))?;
        let fence = Fence::new(session.clone(), worker, found.epoch);
        let claimed = Claimed::new(fence, found.head, found.state.clone());
        self.remember(session, found);
        Ok(Ok(claimed))
    }

    /// Gives a session to a worker, under the next epoch, or to nobody.
    fn own(&mut self, found: &mut Found, worker: Option<WorkerId>) -> Result<(), Fault> {
        found.worker = worker;
        found.epoch += u64::from(worker.is_some());
        let mut set = self.db.prepare_cached("UPDATE sessions SET worker = ?2, epoch = ?3 WHERE number = ?1")?;
        let worker = worker.map(|worker| worker.as_u128().to_be_bytes());
        set.execute(params![found.number, worker, signed(found.epoch)])?;
        Ok(())
    }

    pub(crate) fn renew(&mut self, worker: WorkerId, lease: Duration) -> Result<(), Fault> {
        let until = self.clock.now().plus(lease);
        let mut set = self.db.prepare_cached("INSERT OR REPLACE INTO workers (id, until) VALUES (?1, ?2)")?;
        set.execute(params![worker.as_u128().to_be_bytes(), until.as_millis()])?;
        Ok(())
    }

    pub(crate) fn release(&mut self, fence: &Fence) -> Result<(), Fault> {
        let Some(mut found) = self.find(&fence.session)? else {
            return Ok(());
        };
        if found.epoch != fence.epoch || found.worker != Some(fence.worker) {
            return Ok(());
        }
        self.own(&mut found, None)?;
        if found.due.is_some_and(|due| due <= self.clock.now()) {
            self.done.news.push(News::Hint(fence.session.clone()));
        }
        self.remember(&fence.session, found);
        Ok(())
    }

    pub(crate) fn keep(&mut self, session: &SessionId, fold: &CachedFold) -> Result<Result<(), StoreError>, Fault> {
        let Some(Found { number, .. }) = self.find(session)? else {
            return Ok(Err(StoreError::not_found(session)));
        };
        let CachedFold { head, mark, format, body, .. } = fold;
        let head = head.get().cast_signed();
        let sum = sum::of_fold(number, head, mark, format, body);
        let mut set = self.db.prepare_cached(
            "INSERT OR REPLACE INTO folds (session, head, mark, format, body, sum) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        set.execute(params![number, head, mark, format, body, sum])?;
        Ok(Ok(()))
    }

    pub(crate) fn erase(&mut self, session: &SessionId) -> Result<Result<(), StoreError>, Fault> {
        let Some(found) = self.find(session)? else {
            return Ok(Err(StoreError::not_found(session)));
        };
        if let Some((owner, until)) = live_owner(self.db, found.worker, self.clock.now())? {
            let message = format!("worker {owner} works on session `{session}` until {until}: stop it first, or wait");
            return Ok(Err(StoreError::new(StoreErrorKind::InUse, message)));
        }
        self.memory.sessions.remove(session);
        // The row that says so comes first: it keeps the numbers of rows growing, and tells other processes that a log is gone.
        let mut tell = self.db.prepare_cached(
            "INSERT INTO events (session, seq, prev, at, version, kind, body, sum)
             VALUES (0, 0, 0, ?1, 1, 'erased', '{}', 0)",
        )?;
        self.done.last_event = Some(tell.insert([self.clock.now().as_millis()])?);
        let mut remove = self.db.prepare_cached("DELETE FROM events WHERE id = ?1 AND session = ?2 RETURNING prev")?;
        let mut event = found.event;
        while event != 0 {
            let before = remove.query_row([event, found.number], |row| row.get(0)).optional()?;
            event = before.ok_or_else(|| {
                Fault::Corrupt(format!("event {event} (by its row) of session `{session}` is missing"))
            })?;
        }
        for table in ["marks", "heads", "inbox", "keys", "folds"] {
            let mut remove = self.db.prepare_cached(&format!("DELETE FROM {table} WHERE session = ?1"))?;
            remove.execute([found.number])?;
        }
        let mut remove = self.db.prepare_cached("DELETE FROM sessions WHERE number = ?1 RETURNING tags")?;
        let tags: String = remove.query_row([found.number], |row| row.get(0))?;
        for (name, value) in read::tags(session, &tags)? {
            let mut remove = self.db.prepare_cached("DELETE FROM tags WHERE name = ?1 AND value = ?2 AND id = ?3")?;
            remove.execute(params![name, value, session.as_str()])?;
        }
        self.done.news.push(News::Log(session.clone()));
        Ok(Ok(()))
    }
}

/// The kinds of state that sessions are listed by.
fn waits(next: &Next) -> i64 {
    match next {
        Next::Held | Next::Idle => 0,
        Next::Waiting(_) => 1,
        Next::Runnable | Next::At(_) => 2,
    }
}

fn json<T: serde::Serialize>(value: &T) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(unwritable)
}

/// A hash of what an input says, by which it is known again.
fn content(kind: &NewInputKind) -> Result<String, Fault> {
    let value = serde_json::to_value(kind).map_err(unwritable)?;
    Ok(arguments_hash(&value))
}

fn unwritable(error: serde_json::Error) -> Fault {
    Fault::Sqlite(rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

//! What the store keeps, and the changes that several contracts share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::task::Waker;

use settled_ledger::store::{NewSession, Next, SessionInfo, SessionState, StoreError, StoreErrorKind};
use settled_ledger::{
    BatchId, CachedFold, InboxItem, InputId, NewInputKind, NewRow, Recorded, Seq, Timestamp, WorkerId,
};
use settled_tools_api::SessionId;

/// How many hints a listener may leave unheard; what comes then is lost, as hints may be.
const UNHEARD: usize = 1024;

/// Everything.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// When each worker's lease runs out.
    pub(crate) leases: BTreeMap<WorkerId, Timestamp>,
    pub(crate) listeners: BTreeMap<u64, Listener>,
    /// The last number that was given to a session, a reader or a listener.
    last_number: u64,
}

/// One session.
pub(crate) struct Session {
    /// Which session of this id it is: one that was erased and made again is another.
    pub(crate) number: u64,
    log: Vec<Recorded>,
    pub(crate) state: SessionState,
    /// Since when it has been due, or from when on it will be.
    pub(crate) due: Option<Timestamp>,
    pub(crate) epoch: u64,
    pub(crate) owner: Option<WorkerId>,
    pub(crate) last_batch: Option<BatchId>,
    pub(crate) inbox: Vec<InboxItem>,
    /// Every key that was ever used, with the input's content as it was admitted.
    pub(crate) keys: BTreeMap<String, (InputId, NewInputKind)>,
    pub(crate) arrivals: u64,
    pub(crate) tags: BTreeMap<String, String>,
    created: Timestamp,
    updated: Timestamp,
    pub(crate) fold: Option<CachedFold>,
    /// Who waits for more events, by the reader's number.
    pub(crate) readers: BTreeMap<u64, Waker>,
}

/// One who listens to hints.
#[derive(Default)]
pub(crate) struct Listener {
    pub(crate) unheard: VecDeque<SessionId>,
    queued: BTreeSet<SessionId>,
    pub(crate) waker: Option<Waker>,
}

impl World {
    pub(crate) fn session(&self, id: &SessionId) -> Result<&Session, StoreError> {
        self.sessions.get(id).ok_or_else(|| StoreError::not_found(id))
    }

    pub(crate) fn session_mut(&mut self, id: &SessionId) -> Result<&mut Session, StoreError> {
        self.sessions.get_mut(id).ok_or_else(|| StoreError::not_found(id))
    }

    /// A number that was not given before.
    pub(crate) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(crate) fn create(&mut self, id: &SessionId, new: NewSession, now: Timestamp) -> Result<Seq, StoreError> {
        if self.sessions.contains_key(id) {
            let message = format!("there is a session `{id}` already");
            return Err(StoreError::new(StoreErrorKind::Exists, message));
        }
        let created = new.rows.first().map_or(now, |row| row.at);
        let mut session = Session {
            number: self.number(),
            log: Vec::new(),
            state: SessionState::default(),
            due: None,
            epoch: 0,
            owner: None,
            last_batch: None,
            inbox: Vec::new(),
            keys: BTreeMap::new(),
            arrivals: 0,
            tags: new.tags,
            created,
            updated: created,
            fold: None,
            readers: BTreeMap::new(),
        };
        session.push(id, new.rows);
        let head = session.head();
        self.sessions.insert(id.clone(), session);
        Ok(head)
    }

    /// The worker whose lease on a session has not run out, and when it will.
    pub(crate) fn live_owner(&self, session: &Session, now: Timestamp) -> Option<(WorkerId, Timestamp)> {
        let owner = session.owner?;
        let until = *self.leases.get(&owner)?;
        (now < until).then_some((owner, until))
    }

    pub(crate) fn info(&self, id: &SessionId, session: &Session, now: Timestamp) -> SessionInfo {
        let mut info = SessionInfo::new(id.clone(), session.head(), session.state.clone());
        info.owner = self.live_owner(session, now).map(|(owner, _)| owner);
        info.tags = session.tags.clone();
        info.created = session.created;
        info.updated = session.updated;
        info
    }

    /// Leaves a hint for every listener; whoever gets them back wakes them, outside the lock.
    #[must_use]
    pub(crate) fn hint(&mut self, session: &SessionId) -> Vec<Waker> {
        let mut wakers = Vec::new();
        for listener in self.listeners.values_mut() {
            if listener.unheard.len() < UNHEARD && listener.queued.insert(session.clone()) {
                listener.unheard.push_back(session.clone());
                wakers.extend(listener.waker.take());
            }
        }
        wakers
    }
}

impl Session {
    pub(crate) fn head(&self) -> Seq {
        Seq::START.plus(self.log.len() as u64)
    }

    pub(crate) fn push(&mut self, id: &SessionId, rows: Vec<NewRow>) {
        for row in rows {
            self.updated = row.at;
            let seq = self.head().plus(1);
            self.log.push(row.placed(id.clone(), seq));
        }
    }

    pub(crate) fn read(&self, after: Seq, limit: usize) -> Vec<Recorded> {
        let from = usize::try_from(after.get()).unwrap_or(usize::MAX);
        self.log.iter().skip(from).take(limit).cloned().collect()
    }

    /// Takes a state; what was due already is due since then.
    pub(crate) fn take(&mut self, state: SessionState, now: Timestamp) {
        self.due = match &state.next {
            Next::Runnable if self.state.next == Next::Runnable => self.due,
            Next::Runnable => Some(now),
            Next::At(time) => Some(*time),
            Next::Waiting(_) | Next::Held | Next::Idle => None,
        };
        self.state = state;
    }

    /// Whoever waits for more events, to be woken outside the lock.
    #[must_use]
    pub(crate) fn waiting_readers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.readers).into_values().collect()
    }
}

impl Listener {
    pub(crate) fn hear(&mut self) -> Option<SessionId> {
        let session = self.unheard.pop_front()?;
        self.queued.remove(&session);
        Some(session)
    }
}

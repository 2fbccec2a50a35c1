//! Taking a session out of a store, and putting it into one.

use std::time::Duration;

use settled_ledger::store::{
    AdmitError, AppendError, Batch, ClaimError, Claimed, Fence, NewSession, Next, SessionState, Store, StoreError,
    StoreErrorKind,
};
use settled_ledger::{
    Arrival, BatchId, Ids, InboxItem, NewInput, NewInputKind, NewRow, Recorded, Seq, Timestamp, WorkerId,
};
use settled_runner::RandomIds;
use settled_tools_api::SessionId;

use super::Archive;

/// How many events are read at once.
const PAGE: usize = 1_024;

/// How often a session is looked at again that was written to meanwhile.
const LOOKS: usize = 100;

/// How often a batch is appended again whose answer was lost.
const TRIES: usize = 3;

/// For how long the session is taken while it is put into a store.
const LEASE: Duration = Duration::from_secs(60);

/// When a session that is not there whole is due: never, so that nobody runs it.
const NEVER: Timestamp = Timestamp::from_millis(i64::MAX);

impl Archive {
    /// A session as it is at one moment, whoever runs it meanwhile.
    ///
    /// # Errors
    ///
    /// `NotFound` where it is not there or has no events; `InUse` where it is written to without a pause; of the store.
    pub async fn take(store: &dyn Store, session: &SessionId) -> Result<Self, StoreError> {
        let mut log: Vec<Recorded> = Vec::new();
        for _ in 0..LOOKS {
            let before = store.info(session).await?;
            let mut inputs = store.pending(session).await?;
            loop {
                let after = log.last().map_or(Seq::START, |row| row.seq);
                let page = store.read(session, after, PAGE).await?;
                if page.is_empty() {
                    break;
                }
                log.extend(page);
            }
            let after = store.info(session).await?;
            let head = log.last().map_or(Seq::START, |row| row.seq);
            if (before.head, &before.state) != (after.head, &after.state) || head != after.head {
                continue;
            }
            if log.is_empty() {
                let message = format!("session `{session}` has no events yet");
                return Err(StoreError::new(StoreErrorKind::NotFound, message));
            }
            // An interrupt counts wherever it stands; behind all others it comes to a session that is whole.
            inputs.sort_by_key(|input| matches!(input.input, NewInputKind::Interrupt(_)));
            for (place, input) in (1..).zip(&mut inputs) {
                input.arrival = Arrival::new(place);
            }
            return Ok(Self { session: session.clone(), tags: after.tags, state: after.state, log, inputs });
        }
        let message = format!("session `{session}` is written to without a pause");
        Err(StoreError::new(StoreErrorKind::InUse, message))
    }

    /// Puts the session into a store, whole or not at all.
    ///
    /// It is made, taken for a worker, filled and released, as any writer would; its log comes in one append behind its first event.
    /// If the process dies meanwhile, what is left is never due; putting the session again begins by removing it.
    ///
    /// # Errors
    ///
    /// `Exists` where there is a session of that id; of the store.
    pub async fn put(&self, store: &dyn Store, worker: WorkerId) -> Result<(), StoreError> {
        self.clear(store, worker).await?;
        let put = self.fill(store, worker).await;
        if put.is_err() {
            // What it failed with says more than what this may fail with; the next one clears what is left.
            let _ = self.clear(store, worker).await;
        }
        put
    }

    /// Removes what a put that broke off has left: nothing that is not in this session, and nobody has run it.
    async fn clear(&self, store: &dyn Store, worker: WorkerId) -> Result<(), StoreError> {
        let left = match Self::take(store, &self.session).await {
            Ok(left) => left,
            Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let is_ours = |input: &InboxItem| self.inputs.iter().any(|ours| ours.id == input.id);
        let is_part = self.log.starts_with(&left.log) && left.inputs.iter().all(is_ours);
        let only_made = left.log.len() == 1 && left.state == SessionState::default();
        let hidden = left.state.next == Next::At(NEVER);
        if left == *self || !is_part || !(only_made || hidden) {
            return Ok(());
        }
        let claimed = store.claim(worker, LEASE, &self.session).await.map_err(unclaimed)?;
        store.release(&claimed.fence).await?;
        store.erase(&self.session).await
    }

    async fn fill(&self, store: &dyn Store, worker: WorkerId) -> Result<(), StoreError> {
        let mut rows: Vec<NewRow> = self.log.iter().map(new_row).collect();
        let rest = rows.split_off(1);
        let head = store.create(&self.session, NewSession::new(rows, self.tags.clone())).await?;
        let Claimed { fence, .. } = store.claim(worker, LEASE, &self.session).await.map_err(unclaimed)?;
        if self.state == SessionState::default() {
            // What was handed in to an idle session has woken nobody: it comes to an idle one again.
            self.hand_in(store).await?;
            append(store, &fence, head, rest, None).await?;
        } else {
            // The execution must be known before its interrupt.
            let mut hidden = self.state.clone();
            hidden.next = Next::At(NEVER);
            let head = append(store, &fence, head, rest, Some(hidden)).await?;
            self.hand_in(store).await?;
            append(store, &fence, head, Vec::new(), Some(self.state.clone())).await?;
        }
        // The session is there: if it cannot be given up, its lease runs out.
        let _ = store.release(&fence).await;
        Ok(())
    }

    async fn hand_in(&self, store: &dyn Store) -> Result<(), StoreError> {
        for input in &self.inputs {
            let new = NewInput::new(input.id, input.at, input.input.clone()).key(input.key.clone()).without_waking();
            store.admit(&self.session, new).await.map_err(|error| match error {
                AdmitError::Store(error) => error,
                error => StoreError::new(StoreErrorKind::Corrupt, error.to_string()),
            })?;
        }
        Ok(())
    }
}

fn new_row(row: &Recorded) -> NewRow {
    NewRow::from_parts(row.at, row.kind.clone(), row.version, row.body.clone())
}

/// Appends rows and, if there is one, a state; a lost answer is asked for again.
async fn append(
    store: &dyn Store,
    fence: &Fence,
    expected: Seq,
    rows: Vec<NewRow>,
    state: Option<SessionState>,
) -> Result<Seq, StoreError> {
    let mut batch = Batch::new(BatchId::from_u128(RandomIds::default().next()), rows);
    batch.state = state;
    let mut tries = 0;
    loop {
        tries += 1;
        return match store.append(fence, expected, batch.clone()).await {
            Ok(head) => Ok(head),
            Err(AppendError::Unknown(_)) if tries < TRIES => continue,
            Err(AppendError::Unknown(error) | AppendError::Unavailable(error)) => Err(error),
            Err(error) => Err(StoreError::new(StoreErrorKind::InUse, error.to_string())),
        };
    }
}

fn unclaimed(error: ClaimError) -> StoreError {
    match error {
        ClaimError::Store(error) => error,
        error => StoreError::new(StoreErrorKind::InUse, error.to_string()),
    }
}

//! What a process says while it lives: each acknowledged event, before anything acts on the acknowledgement.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, HintStream, Inbox,
    NewSession, Ownership, Page, Query, RecordedStream, SessionInfo, Store, StoreError,
};
use settled_ledger::{BatchId, Delivery, InboxItem, InputId, NewInput, NewInputKind, Recorded, Seq, WorkerId};
use settled_tools_api::SessionId;

/// Where a process says what it has seen; each line is one write, so that a kill leaves no half of one.
#[derive(Clone, Debug)]
pub(crate) enum Witness {
    /// On its standard output.
    Stdout,
    /// Nobody asks.
    Silent,
}

impl Witness {
    pub(crate) fn says(&self, line: &str) {
        match self {
            // A parent that is gone needs no witness.
            Self::Stdout => drop(std::io::stdout().lock().write_all(format!("{line}\n").as_bytes())),
            Self::Silent => {}
        }
    }
}

/// A hash that is the same in every process of this program.
pub(crate) fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// A row as a witness tells of it.
pub(crate) fn told(session: &SessionId, seq: u64, kind: &str, body: &str) -> String {
    format!("row {session} {seq} {kind} {:016x}", hash(&body))
}

/// A store that tells of everything it acknowledges.
#[derive(Clone)]
pub(crate) struct Witnessed {
    inner: Arc<dyn Store>,
    witness: Witness,
    /// Every fence that was ever held, and the last head behind it.
    fences: Arc<Mutex<Fences>>,
}

/// By session and epoch.
type Fences = BTreeMap<(SessionId, u64), (Fence, Seq)>;

impl Witnessed {
    pub(crate) fn new(inner: Arc<dyn Store>, witness: Witness) -> Self {
        Self { inner, witness, fences: Arc::default() }
    }

    /// Tries to append under every fence that was ever held, and says what the store answers.
    pub(crate) async fn probe(&self) {
        let fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for ((session, epoch), (fence, head)) in fences {
            let batch = Batch::new(BatchId::from_u128(u128::from(hash(&("probe", session.as_str())))), Vec::new());
            let answer = match self.inner.append(&fence, head, batch).await {
                Ok(_) => "landed".to_owned(),
                Err(AppendError::Fenced) => "fenced".to_owned(),
                Err(other) => format!("{other:?}").replace(' ', "_"),
            };
            self.witness.says(&format!("probe {session} {epoch} {answer}"));
        }
    }

    fn holds(&self, fence: &Fence, head: Seq) {
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        fences.insert((fence.session.clone(), fence.epoch), (fence.clone(), head));
    }
}

#[async_trait]
impl EventLog for Witnessed {
    async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
        let session = &fence.session;
        let rows = batch.rows.iter().zip(expected.get() + 1..);
        let lines = rows.map(|(row, seq)| told(session, seq, &row.kind, &row.body)).collect::<Vec<_>>().join("\n");
        let answer = self.inner.append(fence, expected, batch).await;
        match &answer {
            Ok(head) => {
                self.holds(fence, *head);
                if !lines.is_empty() {
                    self.witness.says(&lines);
                }
            }
            Err(AppendError::Fenced) => self.witness.says(&format!("fenced {session} {}", fence.epoch)),
            Err(_) => {}
        }
        answer
    }

    async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.inner.read(session, after, limit).await
    }

    fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream {
        self.inner.follow(session, after)
    }
}

#[async_trait]
impl Inbox for Witnessed {
    async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
        let promotes = matches!(input.kind, NewInputKind::Prompt(_));
        let answer = self.inner.admit(session, input).await;
        if promotes && let Ok(Admitted::New(id, _) | Admitted::Again(id)) = &answer {
            self.witness.says(&format!("input {session} {id}"));
        }
        answer
    }

    async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError> {
        self.inner.cancel(session, input).await
    }

    async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError> {
        self.inner.change(session, input, delivery).await
    }

    async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError> {
        self.inner.pending(session).await
    }

    fn hints(&self) -> HintStream {
        self.inner.hints()
    }
}

#[async_trait]
impl Ownership for Witnessed {
    async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
        let rows = new.rows.iter().zip(1..);
        let lines = rows.map(|(row, seq)| told(session, seq, &row.kind, &row.body)).collect::<Vec<_>>().join("\n");
        let answer = self.inner.create(session, new).await;
        if answer.is_ok() {
            self.witness.says(&lines);
        }
        answer
    }

    async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
        let claimed = self.inner.claim(worker, lease, session).await;
        if let Ok(claimed) = &claimed {
            self.holds(&claimed.fence, claimed.head);
            self.witness.says(&format!("claim {session} {} {}", claimed.fence.epoch, claimed.head));
        }
        claimed
    }

    async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
        self.inner.renew(worker, lease).await
    }

    async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
        self.inner.release(fence).await
    }

    async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
        self.inner.due(limit).await
    }
}

#[async_trait]
impl Catalog for Witnessed {
    async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError> {
        self.inner.info(session).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.inner.list(query).await
    }

    async fn erase(&self, session: &SessionId) -> Result<(), StoreError> {
        self.inner.erase(session).await
    }
}

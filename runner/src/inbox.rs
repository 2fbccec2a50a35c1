//! What comes to a running session from outside, as its drain sees it.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use settled_ledger::store::{Store, StoreError};
use settled_ledger::{Answer, ExecutionId, InboxItem, InputId, InterruptedBy, NewInputKind};
use settled_tools_api::SessionId;
use tokio::time::{Instant, Sleep, sleep};

/// Rung when a session may have new input; one drain listens.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    times: AtomicU64,
    listener: Mutex<Option<Waker>>,
}

impl Doorbell {
    pub(crate) fn ring(&self) {
        self.times.fetch_add(1, Ordering::AcqRel);
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    fn times(&self) -> u64 {
        self.times.load(Ordering::Acquire)
    }

    /// Has a task woken at the next ring; whoever listens looks at [`times`](Self::times) again afterwards.
    fn listen(&self, context: &Context<'_>) {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.as_ref().is_none_or(|listener| !listener.will_wake(context.waker())) {
            *listener = Some(context.waker().clone());
        }
    }
}

type Asking = Pin<Box<dyn Future<Output = Result<Vec<InboxItem>, StoreError>> + Send>>;

/// The inbox of a session while a drain runs: read again whenever the doorbell rings, and now and then without.
pub(crate) struct InboxWatch {
    store: Arc<dyn Store>,
    session: SessionId,
    doorbell: Arc<Doorbell>,
    poll: Duration,
    /// How often the doorbell had rung when the inbox was last asked for.
    heard: Option<u64>,
    reading: Option<Asking>,
    items: Vec<InboxItem>,
    /// What this drain has taken; it is in the inbox until the batch that takes it has landed.
    taken: BTreeSet<InputId>,
    again: Pin<Box<Sleep>>,
}

impl Drop for InboxWatch {
    fn drop(&mut self) {
        // A waker holds the memory of its task: nobody listens any more.
        self.doorbell.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl InboxWatch {
    pub(crate) fn new(store: Arc<dyn Store>, session: SessionId, doorbell: Arc<Doorbell>, poll: Duration) -> Self {
        Self {
            store,
            session,
            doorbell,
            poll,
            heard: None,
            reading: None,
            items: Vec::new(),
            taken: BTreeSet::new(),
            again: Box::pin(sleep(poll)),
        }
    }

    /// Reads the inbox now.
    pub(crate) async fn refresh(&mut self) -> Result<&[InboxItem], StoreError> {
        self.reading = None;
        self.heard = Some(self.doorbell.times());
        let items = self.store.pending(&self.session).await?;
        self.keep(items);
        Ok(&self.items)
    }

    /// Takes in what has come since the doorbell rang; cheap where it has not.
    pub(crate) fn poll_news(&mut self, context: &mut Context<'_>) {
        if self.reading.is_none() && self.heard != Some(self.doorbell.times()) {
            self.ask();
        }
        if let Some(reading) = &mut self.reading
            && let Poll::Ready(answer) = reading.as_mut().poll(context)
        {
            self.reading = None;
            // A reading that fails is tried again at the next ring, or a little later without one.
            if let Ok(items) = answer {
                self.keep(items);
            }
        }
    }

    /// Whether everything is taken in that came before now.
    pub(crate) fn is_current(&self) -> bool {
        self.reading.is_none() && self.heard == Some(self.doorbell.times())
    }

    /// Has the task woken when something comes; ready if something has come just now.
    pub(crate) fn poll_idle(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.doorbell.listen(context);
        while self.again.as_mut().poll(context).is_ready() {
            self.again.as_mut().reset(Instant::now() + self.poll);
            self.heard = None;
        }
        let before = self.items.len();
        self.poll_news(context);
        if self.items.len() == before { Poll::Pending } else { Poll::Ready(()) }
    }

    fn ask(&mut self) {
        self.heard = Some(self.doorbell.times());
        let (store, session) = (Arc::clone(&self.store), self.session.clone());
        self.reading = Some(Box::pin(async move { store.pending(&session).await }));
    }

    /// The first answer that is pending.
    pub(crate) fn answer(&self) -> Option<(InputId, Answer)> {
        self.items.iter().find_map(|item| match &item.input {
            NewInputKind::Answer(answer) => Some((item.id, answer.clone())),
            _ => None,
        })
    }

    /// The first interrupt of an execution that is pending.
    pub(crate) fn interrupt(&self, execution: ExecutionId) -> Option<(InputId, InterruptedBy)> {
        self.items.iter().find_map(|item| match &item.input {
            NewInputKind::Interrupt(interrupt) if interrupt.execution == execution => Some((item.id, interrupt.by)),
            _ => None,
        })
    }

    /// What was pending when the inbox was last read, without what was taken since.
    pub(crate) fn items(&self) -> &[InboxItem] {
        &self.items
    }

    /// Those of them that say a certain kind of thing.
    pub(crate) fn items_that(&self, wanted: impl Fn(&NewInputKind) -> bool) -> Vec<InboxItem> {
        self.items.iter().filter(|item| wanted(&item.input)).cloned().collect()
    }

    /// Says that an input is on its way out of the inbox.
    pub(crate) fn take(&mut self, input: InputId) {
        self.taken.insert(input);
        self.items.retain(|item| item.id != input);
    }

    fn keep(&mut self, mut items: Vec<InboxItem>) {
        self.taken.retain(|taken| items.iter().any(|item| item.id == *taken));
        items.retain(|item| !self.taken.contains(&item.id));
        self.items = items;
    }
}

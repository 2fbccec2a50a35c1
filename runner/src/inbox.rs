//! What comes to a running session from outside, as its drain sees it.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use settled_ledger::store::{Store, StoreError};
use settled_ledger::{Answer, ExecutionId, InboxItem, InputId, InterruptedBy, NewInputKind};
use settled_tools_api::SessionId;
use tokio::time::{Sleep, sleep};

/// Rung when a session may have new input; one drain listens.
#[derive(Debug, Default)]
pub(crate) struct Doorbell(Mutex<Rung>);

#[derive(Debug, Default)]
struct Rung {
    times: u64,
    listener: Option<Waker>,
}

impl Doorbell {
    pub(crate) fn ring(&self) {
        let mut rung = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rung.times += 1;
        let listener = rung.listener.take();
        drop(rung);
        if let Some(listener) = listener {
            listener.wake();
        }
    }

    fn times(&self, context: &Context<'_>) -> u64 {
        let mut rung = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rung.listener.as_ref().is_none_or(|listener| !listener.will_wake(context.waker())) {
            rung.listener = Some(context.waker().clone());
        }
        rung.times
    }
}

/// The inbox of a session while a drain runs: read again whenever the doorbell rings, and now and then without.
pub(crate) struct InboxWatch {
    store: Arc<dyn Store>,
    session: SessionId,
    doorbell: Arc<Doorbell>,
    poll: Duration,
    /// How often the doorbell had rung when the inbox was last asked for.
    heard: Option<u64>,
    reading: Option<Pin<Box<dyn Future<Output = Result<Vec<InboxItem>, StoreError>> + Send>>>,
    items: Vec<InboxItem>,
    /// What this drain has taken; it is in the inbox until the batch that takes it has landed.
    taken: BTreeSet<InputId>,
    again: Pin<Box<Sleep>>,
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
        self.heard = Some(std::future::poll_fn(|context| Poll::Ready(self.doorbell.times(context))).await);
        let items = self.store.pending(&self.session).await?;
        self.keep(items);
        Ok(&self.items)
    }

    /// Looks for an interrupt of an execution.
    pub(crate) fn poll_interrupt(
        &mut self,
        context: &mut Context<'_>,
        execution: ExecutionId,
    ) -> Poll<(InputId, InterruptedBy)> {
        self.watch(context);
        self.interrupt(execution).map_or(Poll::Pending, Poll::Ready)
    }

    /// Looks for an answer to a call.
    pub(crate) fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<(InputId, Answer)> {
        self.watch(context);
        self.answer().map_or(Poll::Pending, Poll::Ready)
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

    /// Reads the inbox when the doorbell has rung; a reading that fails is tried again at the next ring or poll.
    fn watch(&mut self, context: &mut Context<'_>) {
        loop {
            if let Some(reading) = &mut self.reading {
                match reading.as_mut().poll(context) {
                    Poll::Pending => {
                        self.doorbell.times(context);
                        return;
                    }
                    Poll::Ready(answer) => {
                        self.reading = None;
                        if let Ok(items) = answer {
                            self.keep(items);
                        }
                    }
                }
            }
            let times = self.doorbell.times(context);
            let due = self.again.as_mut().poll(context).is_ready();
            if due {
                self.again.as_mut().reset(tokio::time::Instant::now() + self.poll);
            }
            if self.heard == Some(times) && !due {
                // The timer was polled above, so it wakes this task; a timer that was just reset is polled once more.
                return;
            }
            self.heard = Some(times);
            let (store, session) = (Arc::clone(&self.store), self.session.clone());
            self.reading = Some(Box::pin(async move { store.pending(&session).await }));
        }
    }
}

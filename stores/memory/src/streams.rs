//! Following a log, and listening to hints.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use settled_ledger::store::{Followed, StoreError};
use settled_ledger::{Recorded, Seq};
use settled_tools_api::SessionId;

use crate::Shared;

/// How many events a reader takes out of the log at once.
const PAGE: usize = 64;

/// The stream of [`settled_ledger::store::EventLog::follow`].
pub(crate) struct Follow {
    shared: Arc<Shared>,
    session: SessionId,
    reader: u64,
    /// The number of the session that is followed, once it was found.
    number: Option<u64>,
    /// The last event that was taken out of the log, and those that were not given yet.
    after: Seq,
    page: VecDeque<Recorded>,
    synced: Synced,
}

enum Synced {
    /// All up to this head comes before the marker.
    Owed(Seq),
    Given,
    /// An error was given: the stream is over.
    Over,
}

impl Follow {
    pub(crate) fn new(shared: Arc<Shared>, session: SessionId, after: Seq) -> Self {
        let mut world = shared.lock();
        let reader = world.number();
        let found = world.sessions.get(&session);
        let number = found.map(|found| found.number);
        let head = found.map_or(Seq::START, |found| found.head());
        drop(world);
        Self { shared, session, reader, number, after, page: VecDeque::new(), synced: Synced::Owed(head) }
    }
}

impl Stream for Follow {
    type Item = Result<Followed, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if matches!(this.synced, Synced::Over) {
            return Poll::Ready(None);
        }
        if this.page.is_empty() {
            let mut world = this.shared.lock();
            let found = world.sessions.get_mut(&this.session);
            let Some(session) = found.filter(|found| Some(found.number) == this.number) else {
                this.synced = Synced::Over;
                return Poll::Ready(Some(Err(StoreError::not_found(&this.session))));
            };
            this.page = session.read(this.after, PAGE).into();
            if this.page.is_empty() && matches!(this.synced, Synced::Given) {
                let former = session.readers.insert(this.reader, cx.waker().clone());
                // Dropping a waker may run others' code: not under the lock.
                drop(world);
                drop(former);
                return Poll::Pending;
            }
        }
        if let Synced::Owed(head) = this.synced
            && this.page.front().is_none_or(|next| next.seq > head)
        {
            this.synced = Synced::Given;
            return Poll::Ready(Some(Ok(Followed::Synced(head))));
        }
        let next = this.page.pop_front();
        this.after = next.as_ref().map_or(this.after, |next| next.seq);
        Poll::Ready(next.map(|next| Ok(Followed::Event(next))))
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let mut world = self.shared.lock();
        let waker = world.sessions.get_mut(&self.session).and_then(|session| session.readers.remove(&self.reader));
        drop(world);
        drop(waker);
    }
}

/// The stream of [`settled_ledger::store::Inbox::hints`].
pub(crate) struct Hints {
    shared: Arc<Shared>,
    listener: u64,
}

impl Hints {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let mut world = shared.lock();
        let listener = world.number();
        world.listeners.entry(listener).or_default();
        drop(world);
        Self { shared, listener }
    }
}

impl Stream for Hints {
    type Item = SessionId;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<SessionId>> {
        let mut world = self.shared.lock();
        let listener = world.listeners.entry(self.listener).or_default();
        match listener.hear() {
            Some(session) => Poll::Ready(Some(session)),
            None => {
                let former = listener.waker.replace(cx.waker().clone());
                drop(world);
                drop(former);
                Poll::Pending
            }
        }
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        let listener = self.shared.lock().listeners.remove(&self.listener);
        drop(listener);
    }
}

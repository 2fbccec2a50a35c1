//! Following a session: its log, merged with what happens live in this process.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use settled_ledger::store::{Followed, RecordedStream, StoreError};
use settled_ledger::{LiveEvent, Recorded, Seq};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::oneshot;

use crate::live::Snapshot;
use crate::session::Session;

/// What happens in a session, from a place on.
///
/// A reader that is slow misses live events, and is told so; it never misses a durable one and never slows the writer.
pub struct Follow {
    log: RecordedStream,
    live: Option<Hearing>,
    session: Session,
    /// The log is read up to here, and what is open was asked for.
    syncing: Option<(Seq, oneshot::Receiver<Snapshot>)>,
    over: bool,
}

type Hearing = Pin<Box<dyn Future<Output = (Result<LiveEvent, RecvError>, Receiver<LiveEvent>)> + Send>>;

/// One thing that happens in a session.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// A durable event.
    Recorded(Recorded),
    /// A live event.
    Live(LiveEvent),
    /// All that was in the log when following began has been given: the head then, and what is open.
    Synced(Seq, Snapshot),
    /// So many live events were missed.
    Lagged(u64),
}

impl Follow {
    pub(crate) fn new(log: RecordedStream, session: Session) -> Self {
        let live = session.slot().live.subscribe();
        Self { log, live: Some(hear(live)), session, syncing: None, over: false }
    }

    /// Asks whoever runs the session what is open.
    fn ask(&self) -> oneshot::Receiver<Snapshot> {
        let slot = self.session.slot();
        let open = slot.live.ask();
        if slot.is_running() {
            slot.doorbell.ring();
        } else {
            slot.live.answer(Snapshot::default);
        }
        open
    }

    /// The next thing that happens; `None` after an error.
    ///
    /// The future may be dropped at any time; nothing is missed by that.
    pub async fn next(&mut self) -> Option<Result<SessionEvent, StoreError>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

fn hear(mut live: Receiver<LiveEvent>) -> Hearing {
    Box::pin(async move {
        let heard = live.recv().await;
        (heard, live)
    })
}

impl Stream for Follow {
    type Item = Result<SessionEvent, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.over {
            return Poll::Ready(None);
        }
        if let Some((head, open)) = &mut self.syncing {
            let head = *head;
            let Poll::Ready(open) = Pin::new(open).poll(context) else { return Poll::Pending };
            self.syncing = None;
            return Poll::Ready(Some(Ok(SessionEvent::Synced(head, open.unwrap_or_default()))));
        }
        // The log first: what is durable is not older than what was live.
        match self.log.as_mut().poll_next(context) {
            Poll::Ready(Some(Ok(Followed::Event(recorded)))) => {
                return Poll::Ready(Some(Ok(SessionEvent::Recorded(recorded))));
            }
            Poll::Ready(Some(Ok(Followed::Synced(head)))) => {
                self.syncing = Some((head, self.ask()));
                return self.poll_next(context);
            }
            Poll::Ready(Some(Err(error))) => {
                self.over = true;
                return Poll::Ready(Some(Err(error)));
            }
            Poll::Ready(None) => {
                self.over = true;
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        let Some(hearing) = &mut self.live else { return Poll::Pending };
        let Poll::Ready((heard, live)) = hearing.as_mut().poll(context) else { return Poll::Pending };
        match heard {
            Ok(event) => {
                self.live = Some(hear(live));
                Poll::Ready(Some(Ok(SessionEvent::Live(event))))
            }
            Err(RecvError::Lagged(missed)) => {
                self.live = Some(hear(live));
                Poll::Ready(Some(Ok(SessionEvent::Lagged(missed))))
            }
            Err(RecvError::Closed) => {
                self.live = None;
                Poll::Pending
            }
        }
    }
}

impl std::fmt::Debug for Follow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follow").finish_non_exhaustive()
    }
}

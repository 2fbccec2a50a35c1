//! Following a log.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use settled_ledger::store::{Followed, StoreError};
use settled_ledger::{Recorded, Seq};
use settled_tools_api::SessionId;

use crate::Shared;
use crate::answer::Answer;
use crate::read;
use crate::watch::Bell;

/// How many events are read at once.
const PAGE: usize = 256;

/// The stream of [`settled_ledger::store::EventLog::follow`].
///
/// It reads a page, gives it out, and reads the next; when there is nothing more it waits for its bell.
/// So it holds one page at most, however far behind it is, and nothing waits for it.
pub(crate) struct Follow {
    shared: Arc<Shared>,
    session: SessionId,
    bell: Arc<Bell>,
    /// The number of the session that is followed, once it was found: one of the same id that is made later is another.
    number: Option<i64>,
    after: Seq,
    page: VecDeque<Recorded>,
    stage: Stage,
    synced: Synced,
}

/// The end of a log and some of its events.
struct PageRead {
    number: i64,
    head: Seq,
    events: Vec<Recorded>,
}

enum Stage {
    /// There may be more to read.
    Stale,
    Reading(Answer<Result<PageRead, StoreError>>),
    /// All that was there has been read.
    Fresh,
    Over,
}

enum Synced {
    /// It is not known yet how much was there.
    Unknown,
    /// All up to this head comes before the marker.
    Owed(Seq),
    Given,
}

impl Follow {
    pub(crate) fn new(shared: Arc<Shared>, session: SessionId, after: Seq) -> Self {
        let bell = shared.watch.follow(&session);
        shared.writer.watched();
        Self {
            shared,
            session,
            bell,
            number: None,
            after,
            page: VecDeque::new(),
            stage: Stage::Stale,
            synced: Synced::Unknown,
        }
    }

    fn read(&self) -> Answer<Result<PageRead, StoreError>> {
        let (session, number, after) = (self.session.clone(), self.number, self.after);
        self.shared.readers.call(self.shared.flights.begin(), move |db| {
            let end = read::end(db, &session)?.filter(|end| number.is_none_or(|number| number == end.number));
            let Some(end) = end else {
                return Ok(Err(StoreError::not_found(&session)));
            };
            let events = read::range(db, &session, end, after, PAGE)?;
            Ok(Ok(PageRead { number: end.number, head: end.head, events }))
        })
    }
}

impl Stream for Follow {
    type Item = Result<Followed, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Synced::Owed(head) = this.synced
                && this.page.front().map_or(this.after >= head, |next| next.seq > head)
            {
                this.synced = Synced::Given;
                return Poll::Ready(Some(Ok(Followed::Synced(head))));
            }
            if let Some(next) = this.page.pop_front() {
                this.after = next.seq;
                return Poll::Ready(Some(Ok(Followed::Event(next))));
            }
            match &mut this.stage {
                Stage::Over => return Poll::Ready(None),
                Stage::Fresh if !this.bell.has_rung(cx) => return Poll::Pending,
                // The bell is asked before the read begins: what is appended from then on rings it again.
                Stage::Fresh => this.stage = Stage::Stale,
                Stage::Stale => {
                    let _ = this.bell.has_rung(cx);
                    this.stage = Stage::Reading(this.read());
                }
                Stage::Reading(answer) => {
                    let Poll::Ready(answered) = Pin::new(answer).poll(cx) else {
                        return Poll::Pending;
                    };
                    match answered {
                        Ok(read) => {
                            if matches!(this.synced, Synced::Unknown) {
                                this.synced = Synced::Owed(read.head);
                            }
                            this.number = Some(read.number);
                            this.stage = match read.events.len() {
                                PAGE.. => Stage::Stale,
                                _ => Stage::Fresh,
                            };
                            this.page = read.events.into();
                        }
                        Err(error) => {
                            this.stage = Stage::Over;
                            return Poll::Ready(Some(Err(error)));
                        }
                    }
                }
            }
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.shared.watch.leave(&self.session, &self.bell);
    }
}

//! Streams that are wrong in one thing.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use settled_ledger::Seq;
use settled_ledger::store::{EventLog, Followed, RecordedStream, StoreError};
use settled_tools_api::SessionId;

use super::{Mutant, now};

type Item = Result<Followed, StoreError>;

/// What becomes of one item: what is given in its place, or the end.
type Spoil = Box<dyn FnMut(Item) -> Option<Vec<Item>> + Send>;

/// A followed log, item by item spoilt.
struct Spoilt {
    inner: RecordedStream,
    given: VecDeque<Item>,
    spoil: Spoil,
    over: bool,
}

impl Stream for Spoilt {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let this = &mut *self;
        loop {
            if let Some(item) = this.given.pop_front() {
                return Poll::Ready(Some(item));
            }
            if this.over {
                return Poll::Ready(None);
            }
            match this.inner.as_mut().poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => this.over = true,
                Poll::Ready(Some(item)) => match (this.spoil)(item) {
                    Some(items) => this.given.extend(items),
                    None => this.over = true,
                },
            }
        }
    }
}

/// A stream that gives nothing and does not end.
pub(super) fn never<T: Send + 'static>() -> Pin<Box<dyn Stream<Item = T> + Send>> {
    struct Never<T>(std::marker::PhantomData<fn() -> T>);
    impl<T> Stream for Never<T> {
        type Item = T;
        fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<T>> {
            Poll::Pending
        }
    }
    Box::pin(Never(std::marker::PhantomData))
}

/// Follows the memory store's log, as wrongly as the mutant's case needs it.
pub(super) fn follow(mutant: &Mutant, session: &SessionId, after: Seq) -> RecordedStream {
    let head = mutant.head(session);
    let after = match mutant.fault {
        "follow.replays" => after.plus(1),
        "follow.beyond_the_head" => after.min(head),
        _ => after,
    };
    let reader = {
        let mut notes = mutant.notes();
        notes.readers += 1;
        notes.readers
    };
    let mutant = mutant.other_handle();
    let epoch = mutant.notes().fence(session).map(|fence| fence.epoch);
    let inner = mutant.inner.follow(session, after);
    let session = session.clone();
    let (mut synced, mut lost) = (false, Seq::START);
    let spoil: Spoil = Box::new(move |item| {
        let behind_the_marker = synced;
        synced |= matches!(item, Ok(Followed::Synced(_)));
        match (mutant.fault, item) {
            ("follow.empty", Ok(Followed::Synced(Seq::START))) => Some(Vec::new()),
            ("follow.tail", item) if behind_the_marker => Some(vec![item.clone(), item]),
            // What came between the end of the replay and the marker is lost.
            ("follow.during_replay", Ok(Followed::Synced(head))) => {
                lost = mutant.head(&session);
                Some(vec![Ok(Followed::Synced(head))])
            }
            ("follow.during_replay", Ok(Followed::Event(event))) if behind_the_marker && event.seq <= lost => {
                Some(Vec::new())
            }
            ("follow.one_marker", Ok(Followed::Event(event))) if behind_the_marker => {
                let marker = Followed::Synced(event.seq);
                Some(vec![Ok(Followed::Event(event)), Ok(marker)])
            }
            ("follow.slow_reader", Ok(Followed::Event(event)))
                if mutant.head(&session).get() - event.seq.get() > 1_000 =>
            {
                Some(Vec::new())
            }
            ("follow.many_readers", _) if behind_the_marker && reader > 8 => Some(Vec::new()),
            ("follow.over_claims", _) if mutant.notes().fence(&session).map(|fence| fence.epoch) != epoch => None,
            ("follow.sessions_apart", Ok(Followed::Event(event))) => {
                let other = SessionId::new("other").unwrap();
                let others = now(mutant.inner.read(&other, Seq::START, 1)).unwrap_or_default();
                let others = others.into_iter().map(|other| Ok(Followed::Event(other)));
                Some([Ok(Followed::Event(event))].into_iter().chain(others).collect())
            }
            ("follow.no_session", Err(_)) => None,
            ("follow.erased", Err(_)) => {
                let anew = now(mutant.inner.read(&session, Seq::START, 10)).unwrap_or_default();
                Some(anew.into_iter().map(|event| Ok(Followed::Event(event))).collect())
            }
            (_, item) => Some(vec![item]),
        }
    });
    Box::pin(Spoilt { inner, given: VecDeque::new(), spoil, over: false })
}

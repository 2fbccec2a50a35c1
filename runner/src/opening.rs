//! Opening a session: its fold, from a history cache where there is one, and the events behind it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use settled_ledger::store::{StoreError, StoreErrorKind};
use settled_ledger::{CachedFold, DecodeError, Recorded, Seq, SessionFold};
use settled_tools_api::SessionId;
use tokio::time::timeout;

use crate::drain::Drain;
use crate::shop::Shop;
use crate::writer::Lost;

/// How many events are read from the log at once.
pub(crate) const PAGE: usize = 1_024;

/// How long a history cache may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many pages are asked for at once.
const AHEAD: usize = 4;

/// The fold that is kept of a session, if it is one of its log; the empty one otherwise.
pub(crate) async fn cached(shop: &Shop, session: &SessionId) -> SessionFold {
    let Some(folds) = &shop.folds else { return SessionFold::new() };
    let found = async {
        let Some(kept) = folds.kept(session).await? else { return Ok(None) };
        let Some(before) = kept.head.get().checked_sub(1) else { return Ok(None) };
        let last = shop.store.read(session, Seq::new(before), 1).await?;
        Ok::<_, StoreError>(last.first().and_then(|last| kept.open(last)))
    };
    let too_long = StoreError::new(StoreErrorKind::Unavailable, "it took too long");
    timeout(PATIENCE, found)
        .await
        .unwrap_or(Err(too_long))
        .unwrap_or_else(|error| {
            tracing::warn!(%session, %error, "the history cache does not answer; the log is folded from its beginning");
            None
        })
        .unwrap_or_default()
}

/// Takes in what a session's log has behind a fold, up to its head.
///
/// Pages are asked for before those in front of them are folded: a store with threads of its own reads meanwhile.
pub(crate) async fn bring_up(
    shop: &Shop,
    session: &SessionId,
    fold: &mut SessionFold,
    head: Seq,
) -> Result<(), StoreError> {
    let mut asked = fold.head;
    let mut pages = VecDeque::new();
    loop {
        while pages.len() < AHEAD && asked < head {
            pages.push_back(Page { read: shop.store.read(session, asked, PAGE), rows: None });
            asked = asked.plus(PAGE as u64);
        }
        let Some(rows) = first(&mut pages).await.transpose()? else { return Ok(()) };
        let due = fold.head.plus(PAGE as u64).min(head);
        for row in &rows {
            fold.apply(row.seq, &row.event().map_err(corrupt)?);
        }
        if rows.is_empty() {
            return Ok(());
        }
        if fold.head < due {
            // The store gave less than it was asked for: the pages behind begin too late.
            pages.clear();
            asked = fold.head;
        }
    }
}

/// A page that is asked for.
struct Page<'a> {
    read: Pin<Box<dyn Future<Output = Rows> + Send + 'a>>,
    rows: Option<Rows>,
}

type Rows = Result<Vec<Recorded>, StoreError>;

/// The first page, when it is there; all of them are under way until then.
async fn first(pages: &mut VecDeque<Page<'_>>) -> Option<Rows> {
    poll_fn(|context| {
        for page in pages.iter_mut().filter(|page| page.rows.is_none()) {
            if let Poll::Ready(rows) = page.read.as_mut().poll(context) {
                page.rows = Some(rows);
            }
        }
        match pages.front_mut() {
            Some(first) => first.rows.take().map_or(Poll::Pending, |rows| Poll::Ready(Some(rows))),
            None => Poll::Ready(None),
        }
    })
    .await
    .inspect(|_| drop(pages.pop_front()))
}

/// A row that does not read, as the store's failure.
pub(crate) fn corrupt(error: DecodeError) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, error.to_string())
}

impl Drain {
    /// Keeps the fold in the history cache, if there is one and enough has happened since it was last kept.
    pub(crate) async fn keep_fold(&mut self) -> Result<(), Lost> {
        let Some(folds) = self.shop.folds.clone() else { return Ok(()) };
        if self.fold.head.get().saturating_sub(self.cached.get()) < self.shop.settings.cache_every.max(1) {
            return Ok(());
        }
        // What is kept must be in the log.
        self.writer.settle().await?;
        let before = Seq::new(self.fold.head.get().saturating_sub(1));
        let shop = Arc::clone(&self.shop);
        let keeping = async {
            let last = shop.store.read(&self.session, before, 1).await?;
            match last.first().and_then(|last| CachedFold::of(&self.fold, last)) {
                Some(fold) => folds.keep(&self.session, fold).await,
                None => Ok(()),
            }
        };
        // A cache costs time and nothing else, and of that not much.
        match timeout(PATIENCE, keeping).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(session = %self.session, %error, "the history cache does not keep the fold");
            }
            Err(_) => tracing::warn!(session = %self.session, "the history cache takes too long to keep the fold"),
        }
        // Also where it was not kept: another look at the next event would be no better.
        self.cached = self.fold.head;
        Ok(())
    }
}

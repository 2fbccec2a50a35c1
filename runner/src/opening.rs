//! Opening a session: its fold, from a history cache where there is one, and the events behind it.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use settled_ledger::store::{StoreError, StoreErrorKind};
use settled_ledger::{CachedFold, DecodeError, Seq, SessionFold};
use settled_tools_api::SessionId;

use crate::drain::Drain;
use crate::shop::Shop;
use crate::writer::Lost;

/// How many events are read from the log at once.
pub(crate) const PAGE: usize = 4_096;

/// The fold that is kept of a session, if it is one of its log; the empty one otherwise.
pub(crate) async fn cached(shop: &Shop, session: &SessionId) -> SessionFold {
    let Some(folds) = &shop.folds else { return SessionFold::new() };
    let found = async {
        let Some(kept) = folds.kept(session).await? else { return Ok(None) };
        let Some(before) = kept.head.get().checked_sub(1) else { return Ok(None) };
        let last = shop.store.read(session, Seq::new(before), 1).await?;
        Ok::<_, StoreError>(last.first().and_then(|last| kept.open(last)))
    };
    found
        .await
        .unwrap_or_else(|error| {
            tracing::warn!(%session, %error, "the history cache does not answer; the log is folded from its beginning");
            None
        })
        .unwrap_or_default()
}

/// Takes in what a session's log has behind a fold, up to a place or to its end.
///
/// A page is asked for before the one in front of it is folded: a store with threads of its own reads meanwhile.
pub(crate) async fn bring_up(
    shop: &Shop,
    session: &SessionId,
    fold: &mut SessionFold,
    until: Option<Seq>,
) -> Result<(), StoreError> {
    let more = |head: Seq| until.is_none_or(|until| head < until);
    if !more(fold.head) {
        return Ok(());
    }
    let mut page = shop.store.read(session, fold.head, PAGE).await?;
    while let Some(last) = page.last() {
        let mut next = more(last.seq).then(|| shop.store.read(session, last.seq, PAGE));
        let mut early = None;
        if let Some(next) = &mut next {
            poll_fn(|context| {
                if let Poll::Ready(read) = next.as_mut().poll(context) {
                    early = Some(read);
                }
                Poll::Ready(())
            })
            .await;
        }
        for recorded in &page {
            let event = recorded.event().map_err(corrupt)?;
            fold.apply(recorded.seq, &event);
        }
        page = match (early, next) {
            (Some(read), _) => read?,
            (None, Some(next)) => next.await?,
            (None, None) => break,
        };
    }
    Ok(())
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
        let last = shop.store.read(&self.session, before, 1).await.map_err(Lost::Store)?;
        if let Some(fold) = last.first().and_then(|last| CachedFold::of(&self.fold, last))
            && let Err(error) = folds.keep(&self.session, fold).await
        {
            tracing::warn!(session = %self.session, %error, "the history cache does not keep the fold");
        }
        // Also where it was not kept: another look at the next event would be no better.
        self.cached = self.fold.head;
        Ok(())
    }
}

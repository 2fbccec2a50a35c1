//! Whatever points to a store is one: a reference, a `Box`, an `Arc`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use settled_tools_api::SessionId;

use super::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, FoldCache, HintStream,
    Inbox, NewSession, Ownership, Page, Query, RecordedStream, SessionInfo, StoreError,
};
use crate::{CachedFold, Delivery, InboxItem, InputId, NewInput, Recorded, Seq, WorkerId};

/// Passes every call of the contracts on to what is pointed to.
///
/// A method that was left out would silently take the trait's default: the lint keeps that from happening.
macro_rules! pass_on {
    ($($pointer:ty),* $(,)?) => {$(
        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<T: EventLog + ?Sized> EventLog for $pointer {
            async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError> {
                T::append(self, fence, expected, batch).await
            }

            async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError> {
                T::read(self, session, after, limit).await
            }

            fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream {
                T::follow(self, session, after)
            }
        }

        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<T: Inbox + ?Sized> Inbox for $pointer {
            async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError> {
                T::admit(self, session, input).await
            }

            async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError> {
                T::cancel(self, session, input).await
            }

            async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError> {
                T::change(self, session, input, delivery).await
            }

            async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError> {
                T::pending(self, session).await
            }

            fn hints(&self) -> HintStream {
                T::hints(self)
            }
        }

        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<T: Ownership + ?Sized> Ownership for $pointer {
            async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError> {
                T::create(self, session, new).await
            }

            async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError> {
                T::claim(self, worker, lease, session).await
            }

            async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError> {
                T::renew(self, worker, lease).await
            }

            async fn release(&self, fence: &Fence) -> Result<(), StoreError> {
                T::release(self, fence).await
            }

            async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError> {
                T::due(self, limit).await
            }
        }

        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<T: Catalog + ?Sized> Catalog for $pointer {
            async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError> {
                T::info(self, session).await
            }

            async fn list(&self, query: &Query) -> Result<Page, StoreError> {
                T::list(self, query).await
            }

            async fn erase(&self, session: &SessionId) -> Result<(), StoreError> {
                T::erase(self, session).await
            }
        }

        #[async_trait]
        #[deny(clippy::missing_trait_methods)]
        impl<T: FoldCache + ?Sized> FoldCache for $pointer {
            async fn kept(&self, session: &SessionId) -> Result<Option<CachedFold>, StoreError> {
                T::kept(self, session).await
            }

            async fn keep(&self, session: &SessionId, fold: CachedFold) -> Result<(), StoreError> {
                T::keep(self, session, fold).await
            }
        }
    )*};
}

pass_on!(&T, Box<T>, Arc<T>);

//! `mockall` mocks of every public trait, for those who prefer expectations to scripts.
//!
//! ```
//! use settled_ledger::{Clock, Timestamp};
//! use settled_testkit::mocks::MockClock;
//!
//! let mut clock = MockClock::new();
//! clock.expect_now().times(1).return_const(Timestamp::from_millis(7));
//! assert_eq!(clock.now(), Timestamp::from_millis(7));
//! ```

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mockall::mock;
use serde_json::Value;
use settled_ledger::store::{
    AdmitError, Admitted, AppendError, Batch, Catalog, ClaimError, Claimed, EventLog, Fence, FoldCache, HintStream,
    Inbox, NewSession, Ownership, Page, Query, RecordedStream, SessionInfo, StoreError,
};
use settled_ledger::{
    CachedFold, Clock, Delivery, Ids, InboxItem, InputId, NewInput, Recorded, Seq, Timestamp, WorkerId,
};
use settled_provider_api::{Credentials, Provider, ProviderError, ProviderStream, Request, Secret};
use settled_tools_api::{
    Decision, NoteError, OfferTo, Policy, PolicyCall, Reconciled, Reconciler, SessionId, ToolCall, ToolContext,
    ToolDefinition, ToolError, ToolExecutor, ToolHost, ToolReturn, ToolSource,
};

mock! {
    /// A mock of a set of tools.
    #[derive(Debug)]
    pub ToolExecutor {}

    #[async_trait]
    impl ToolExecutor for ToolExecutor {
        fn definitions(&self) -> Vec<ToolDefinition>;
        async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError>;
    }
}

mock! {
    /// A mock of a changing set of tools.
    #[derive(Debug)]
    pub ToolSource {}

    #[async_trait]
    impl ToolSource for ToolSource {
        async fn offer(&self, to: &OfferTo) -> Result<Arc<dyn ToolExecutor>, Box<dyn Error + Send + Sync>>;
    }
}

mock! {
    /// A mock of a reconciler.
    #[derive(Debug)]
    pub Reconciler {}

    #[async_trait]
    impl Reconciler for Reconciler {
        async fn reconcile(&self, call: &ToolCall, context: &ToolContext) -> Reconciled;
    }
}

mock! {
    /// A mock of a policy.
    #[derive(Debug)]
    pub Policy {}

    #[async_trait]
    impl Policy for Policy {
        async fn decide(&self, call: &PolicyCall) -> Decision;
    }
}

mock! {
    /// A mock of the runner's side of a run.
    #[derive(Debug)]
    pub ToolHost {}

    #[async_trait]
    impl ToolHost for ToolHost {
        fn progress(&self, progress: Value);
        async fn note(&self, note: Value) -> Result<(), NoteError>;
        fn remaining(&self) -> Option<Duration>;
    }
}

mock! {
    /// A mock of a provider.
    #[derive(Debug)]
    pub Provider {}

    #[async_trait]
    impl Provider for Provider {
        async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError>;
    }
}

mock! {
    /// A mock of where keys come from.
    #[derive(Debug)]
    pub Credentials {}

    #[async_trait]
    impl Credentials for Credentials {
        async fn key(&self, provider: &str) -> Result<Option<Secret>, ProviderError>;
    }
}

mock! {
    /// A mock of a clock.
    #[derive(Debug)]
    pub Clock {}

    impl Clock for Clock {
        fn now(&self) -> Timestamp;
    }
}

mock! {
    /// A mock of where ids come from.
    #[derive(Debug)]
    pub Ids {}

    impl Ids for Ids {
        fn next(&self) -> u128;
    }
}

mock! {
    /// A mock of a store: of its four contracts in one value.
    #[derive(Debug)]
    pub Store {}

    #[async_trait]
    impl EventLog for Store {
        async fn append(&self, fence: &Fence, expected: Seq, batch: Batch) -> Result<Seq, AppendError>;
        async fn read(&self, session: &SessionId, after: Seq, limit: usize) -> Result<Vec<Recorded>, StoreError>;
        fn follow(&self, session: &SessionId, after: Seq) -> RecordedStream;
    }

    #[async_trait]
    impl Inbox for Store {
        async fn admit(&self, session: &SessionId, input: NewInput) -> Result<Admitted, AdmitError>;
        async fn cancel(&self, session: &SessionId, input: InputId) -> Result<bool, StoreError>;
        async fn change(&self, session: &SessionId, input: InputId, delivery: Delivery) -> Result<bool, StoreError>;
        async fn pending(&self, session: &SessionId) -> Result<Vec<InboxItem>, StoreError>;
        fn hints(&self) -> HintStream;
    }

    #[async_trait]
    impl Ownership for Store {
        async fn create(&self, session: &SessionId, new: NewSession) -> Result<Seq, StoreError>;
        async fn claim(&self, worker: WorkerId, lease: Duration, session: &SessionId) -> Result<Claimed, ClaimError>;
        async fn renew(&self, worker: WorkerId, lease: Duration) -> Result<(), StoreError>;
        async fn release(&self, fence: &Fence) -> Result<(), StoreError>;
        async fn due(&self, limit: usize) -> Result<Vec<SessionId>, StoreError>;
    }

    #[async_trait]
    impl Catalog for Store {
        async fn info(&self, session: &SessionId) -> Result<SessionInfo, StoreError>;
        async fn list(&self, query: &Query) -> Result<Page, StoreError>;
        async fn erase(&self, session: &SessionId) -> Result<(), StoreError>;
    }
}

mock! {
    /// A mock of where folds of sessions are kept.
    #[derive(Debug)]
    pub FoldCache {}

    #[async_trait]
    impl FoldCache for FoldCache {
        async fn kept(&self, session: &SessionId) -> Result<Option<CachedFold>, StoreError>;
        async fn keep(&self, session: &SessionId, fold: CachedFold) -> Result<(), StoreError>;
    }
}

#[cfg(feature = "runner")]
mod runner {
    //! Mocks of the runner's ports.

    use settled_runner::{InstructionSource, Outputs, Redactor, Snapshots};
    use settled_tools_api::{CallKey, MessageId};

    use super::*;

    mock! {
        /// A mock of where large outputs are kept.
        #[derive(Debug)]
        pub Outputs {}

        #[async_trait]
        impl Outputs for Outputs {
            async fn keep(&self, call: CallKey, text: String) -> Result<Option<String>, Box<dyn Error + Send + Sync>>;
        }
    }

    mock! {
        /// A mock of a source of instructions.
        #[derive(Debug)]
        pub InstructionSource {}

        #[async_trait]
        impl InstructionSource for InstructionSource {
            async fn observe(&self, to: &OfferTo) -> Result<Option<String>, Box<dyn Error + Send + Sync>>;
        }
    }

    mock! {
        /// A mock of who hides what must not be kept.
        #[derive(Debug)]
        pub Redactor {}

        impl Redactor for Redactor {
            fn redact(&self, text: &str) -> Option<String>;
        }
    }

    mock! {
        /// A mock of who watches the files.
        #[derive(Debug)]
        pub Snapshots {}

        #[async_trait]
        impl Snapshots for Snapshots {
            async fn before(&self, session: &SessionId, step: MessageId) -> Result<Value, Box<dyn Error + Send + Sync>>;
            async fn after(
                &self,
                session: &SessionId,
                step: MessageId,
                before: Value,
            ) -> Result<Value, Box<dyn Error + Send + Sync>>;
        }
    }
}

#[cfg(feature = "runner")]
pub use runner::{MockInstructionSource, MockOutputs, MockRedactor, MockSnapshots};

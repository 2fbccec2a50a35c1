//! For each case of the store suite a store that is wrong in one thing, and that the case must find.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod mutant;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use settled_ledger::Clock;
use settled_store_memory::MemoryStore;
use settled_testkit::conformance::Verdict;
use settled_testkit::conformance::store::{Handles, StoreFixture, StoreSuite, cases};

use mutant::Mutant;

/// Makes stores that are wrong in what the case of this name looks at; the empty name makes right ones.
struct Wrong(&'static str);

#[async_trait]
impl StoreFixture for Wrong {
    async fn open(&self, clock: Arc<dyn Clock>) -> Result<Handles, String> {
        let store = MemoryStore::new(clock.clone());
        let here = Mutant::new(self.0, store, clock);
        let there = here.other_handle();
        Ok(Handles::new(Arc::new(here), Arc::new(there)))
    }

    /// The memory store answers at once: what has not come after so many turns does not come.
    async fn patience(&self) {
        let mut turns = 0;
        poll_fn(|cx| {
            turns += 1;
            cx.waker().wake_by_ref();
            if turns < 1_000 { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

#[tokio::test]
async fn without_a_mutation_every_promise_is_kept() {
    let report = StoreSuite::new().run(&Wrong("")).await.into_result().unwrap();
    assert_eq!(report.kept(), cases().count());
}

#[tokio::test]
async fn every_case_finds_its_mutant() {
    let mut blind = Vec::new();
    for case in cases() {
        let report = StoreSuite::new().only(case.name).run(&Wrong(case.name)).await;
        if report.breaches().count() != 1 {
            blind.push(case.name);
        }
    }
    assert_eq!(blind, Vec::<&str>::new(), "these cases do not find their mutants");
    assert!(cases().count() >= 40);
}

#[tokio::test]
async fn a_suite_that_runs_nothing_is_no_success() {
    let suite = StoreSuite::new().only("append.lands").skip("append.lands", "for this test");
    let report = suite.run(&Wrong("")).await;
    assert_eq!(report.lines[0].verdict, Verdict::Skipped("for this test".to_owned()));
    assert_eq!(
        format!("{:?}", report.into_result().unwrap_err()),
        "store suite 0.1.0, 1 cases: 0 kept, 0 broken, 1 skipped\n  skipped append.lands: for this test"
    );
}

#[tokio::test]
async fn a_name_that_no_case_has_is_a_breach() {
    let suite = StoreSuite::new().only("append.lands").skip("append.land", "a slip of the pen");
    let report = suite.run(&Wrong("")).await;
    let json = concat!(
        r#"{"suite":"store","version":"0.1.0","cases":[{"case":"append.land","details":"there is no such case","#,
        r#""promise":"The suite has a case of this name.","verdict":"broken"},"#,
        r#"{"case":"append.lands","promise":"It answers the new head, and the rows are read back as they were handed in.","verdict":"kept"}]}"#,
    );
    let same: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&report.to_json()).unwrap(), same);
}

//! For each case of the tool suite a set of tools that is wrong in one thing, and that the case must find.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod office;

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::json;
use settled_testkit::conformance::Verdict;
use settled_testkit::conformance::tool::{Sample, ToolFixture, ToolSubject, ToolSuite, cases};

use office::Office;

/// Makes tools that are wrong in what the case of this name looks at; the empty name makes right ones.
struct Wrong(&'static str);

#[async_trait]
impl ToolFixture for Wrong {
    async fn open(&self) -> Result<ToolSubject, String> {
        let office = Arc::new(Office::new(self.0));
        let (seen, working) = (office.clone(), office.clone());
        let balance = Sample::new("balance")
            .takes(json!({"account": "ann"}))
            .takes(json!({"account": "ben", "currency": "USD"}))
            .apart(json!({"account": "ann"}), json!({"account": "ben"}))
            .refuses(json!({"account": 7}))
            .refuses(json!({}))
            .fails(json!({"account": "nobody"}));
        let charge = Sample::new("charge")
            .takes(json!({"account": "ann", "cents": 5}))
            .apart(json!({"account": "ann", "cents": 1}), json!({"account": "ann", "cents": 2}))
            .refuses(json!({"account": "ann", "cents": "five"}));
        let ship = Sample::new("ship").takes(json!({"to": "ann"})).refuses(json!({"to": null}));
        let watch = Sample::new("watch").long(json!({"topic": "news"})).refuses(json!({"topic": 1}));
        let print = Sample::new("print")
            .takes(json!({"lines": 3}))
            .large(json!({"lines": 9_999}), 4_096)
            .shows(json!({"lines": 3}));
        let approve = Sample::new("approve").asks(json!({"cents": 7}), "yes");
        let mut subject = ToolSubject::new(office)
            .sample(balance)
            .sample(charge)
            .sample(ship)
            .sample(watch)
            .sample(print)
            .sample(approve)
            .working(move || working.working());
        if self.0 == "name.well_formed" {
            subject = subject.sample(Sample::new("a name"));
        }
        Ok(subject.world(move || seen.look()))
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_mutation_every_promise_is_kept() {
    let report = ToolSuite::new().run(&Wrong("")).await.into_result().unwrap();
    assert_eq!(report.kept(), cases().count(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn every_case_finds_its_mutant() {
    let mut blind = Vec::new();
    for case in cases() {
        let report = ToolSuite::new().only(case.name).run(&Wrong(case.name)).await;
        if report.breaches().count() != 1 {
            blind.push(case.name);
        }
    }
    assert_eq!(blind, Vec::<&str>::new(), "these cases do not find their mutants");
    assert!(cases().count() >= 40);
}

/// A tool without a sample is not passed over in silence, and neither is a sample without a tool.
#[tokio::test(start_paused = true)]
async fn samples_and_tools_go_together() {
    struct Partly(&'static str);
    #[async_trait]
    impl ToolFixture for Partly {
        async fn open(&self) -> Result<ToolSubject, String> {
            Ok(ToolSubject::new(Arc::new(Office::new(""))).sample(Sample::new(self.0)))
        }
    }
    for (name, why) in
        [("balance", "the tool `charge` has no sample"), ("x", "there is a sample of `x`, and no such tool")]
    {
        let report = ToolSuite::new().only("name.unique").run(&Partly(name)).await;
        let said = report.breaches().next().unwrap().details.clone();
        assert_eq!(said, why);
    }
}

/// What a sample does not have is skipped, and the report says so.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_looked_at_is_skipped() {
    struct Bare;
    #[async_trait]
    impl ToolFixture for Bare {
        async fn open(&self) -> Result<ToolSubject, String> {
            let names = ["balance", "charge", "ship", "watch", "print", "approve"];
            let subject = ToolSubject::new(Arc::new(Office::new("")));
            Ok(names.into_iter().fold(subject, |subject, name| subject.sample(Sample::new(name))))
        }
    }
    let report = ToolSuite::new().run(&Bare).await.into_result().unwrap();
    let skipped = |name: &str| report.lines.iter().find(|line| line.case == name).unwrap().verdict.clone();
    for (case, reason) in [
        ("cancel.stops", "no sample runs long"),
        ("ask.asks", "no sample asks"),
        ("output.bounded", "no sample has a large output"),
        ("pure.acts_not", "no tool is pure"),
    ] {
        assert_eq!(skipped(case), Verdict::Skipped(reason.to_owned()));
    }
}

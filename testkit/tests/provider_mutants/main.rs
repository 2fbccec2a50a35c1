//! For each case of the provider suite a provider that is wrong in one thing, and that the case must find.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod model;

use std::sync::Arc;

use async_trait::async_trait;
use settled_provider_api::{ErrorClass, FinishReason, ModelRef, ProviderEvent, Usage};
use settled_testkit::conformance::provider::{
    Abilities, EventRule, Plan, ProviderFixture, ProviderSubject, ProviderSuite, Reasoning, cases, check_events,
};

use model::{KEY, Model};

/// Makes providers that are wrong in what the case of this name looks at; the empty name makes right ones.
struct Wrong(&'static str);

#[async_trait]
impl ProviderFixture for Wrong {
    async fn open(&self, plan: Plan) -> Result<ProviderSubject, String> {
        let model = Model::new(self.0, plan);
        let far = Arc::new(model.far());
        Ok(ProviderSubject::new(Arc::new(model), ModelRef::new("direct", "some-model"), far))
    }

    fn abilities(&self) -> Abilities {
        Abilities::default()
            .reasoning(Reasoning::WithState)
            .finishes([
                FinishReason::Stop,
                FinishReason::ToolCalls,
                FinishReason::Length,
                FinishReason::ContentFilter,
                FinishReason::Refusal,
                FinishReason::Pause,
            ])
            .usage(Usage::new(70, 20).reasoning(10).cache_read(30).cache_write(5))
            .refusals(ErrorClass::ALL)
            .error_in_stream(ErrorClass::Overloaded)
            .response_info("resp_1", "some-model-1")
            .secret(KEY)
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_mutation_every_promise_is_kept() {
    let report = ProviderSuite::new().run(&Wrong("")).await.into_result().unwrap();
    assert_eq!(report.kept(), cases().count(), "{report}");
}

#[tokio::test(start_paused = true)]
async fn every_case_finds_its_mutant() {
    let mut blind = Vec::new();
    for case in cases() {
        let report = ProviderSuite::new().only(case.name).run(&Wrong(case.name)).await;
        if report.breaches().count() != 1 {
            blind.push(case.name);
        }
    }
    assert_eq!(blind, Vec::<&str>::new(), "these cases do not find their mutants");
    assert!(cases().count() >= 50);
}

/// What a wire has no place for is skipped, and the report says so.
#[tokio::test(start_paused = true)]
async fn what_a_wire_lacks_is_skipped() {
    struct Bare;
    #[async_trait]
    impl ProviderFixture for Bare {
        async fn open(&self, plan: Plan) -> Result<ProviderSubject, String> {
            Wrong("").open(plan).await
        }
        fn abilities(&self) -> Abilities {
            Abilities::default().without("call.malformed", "the wire has JSON for arguments, not text")
        }
    }
    let report = ProviderSuite::new().run(&Bare).await.into_result().unwrap();
    let text = report.to_string();
    for line in [
        "skipped reasoning.apart: the wire has no reasoning",
        "skipped call.malformed: the wire has JSON for arguments, not text",
        "skipped error.in_stream: the wire has no errors inside the stream",
        "skipped secret.hidden: the provider was given no key",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

/// A rule that is broken, and the event that breaks it.
type Fault = (EventRule, usize);

#[test]
fn the_protocol_of_events() {
    use ProviderEvent as E;
    let finish = || E::finish(FinishReason::Stop, None);
    let (order, index, end) = (EventRule::Order, EventRule::Index, EventRule::End);
    let short = || E::finish(FinishReason::Length, None);
    let cases: [(&[E], &[Fault]); 17] = [
        (&[E::text_start(0), E::text_delta(0, "a"), E::text_end(0), finish()], &[]),
        (&[E::text_start(0), E::reasoning_start(1), E::text_end(0), E::reasoning_end(1, None), finish()], &[]),
        (&[E::tool_input_start(0, "c", "t"), E::tool_input_end(0), E::tool_call(0, "c", "t", Default::default())], &[]),
        (&[E::tool_call(0, "c", "t", Default::default()), finish()], &[]),
        (&[E::text_delta(0, "a")], &[(order, 0)]),
        (&[E::text_start(0), E::reasoning_delta(0, "a")], &[(order, 1)]),
        (&[E::text_start(0), E::text_end(0), E::text_delta(0, "a")], &[(order, 2)]),
        (&[E::tool_input_start(0, "c", "t"), E::tool_call(0, "c", "t", Default::default())], &[(order, 1)]),
        (&[E::text_start(1)], &[(index, 0)]),
        (&[E::text_start(0), E::text_end(0), E::text_start(0)], &[(index, 2)]),
        (&[E::text_start(0), finish()], &[(end, 1)]),
        (&[finish(), finish()], &[(end, 1)]),
        (&[E::tool_input_start(0, "c", "t"), finish()], &[(end, 1)]),
        (&[E::tool_input_start(0, "c", "t"), short()], &[]),
        (&[E::tool_input_start(0, "c", "t"), E::tool_input_end(0), short()], &[(end, 2)]),
        (&[E::text_start(0), short()], &[(end, 1)]),
        (&[E::tool_input_start(0, "c", "t"), E::tool_input_malformed(0, "c", "t", "{"), finish()], &[]),
    ];
    for (events, should) in cases {
        let seen: Vec<_> = check_events(events).into_iter().map(|fault| (fault.rule, fault.at)).collect();
        assert_eq!(seen, should, "{events:?}");
    }
}

//! The fold of a session: live and from the log it is the same, and it knows what a drain needs.

use settled_ledger::{
    Backoff, BudgetFold, CachedFold, CompactionReason, Event, NewRow, Recorded, Seq, SessionFold, StepEnd, Timestamp,
};
use settled_provider_api::{Finish, FinishReason, HostedResult, ProviderEvent, ToolCallEvent, Usage};
use settled_tools_api::Content;

use crate::check_log::{
    begun, compacted, compacting, continues, cut, ended, execution, failed, over, retry, settled, sound,
};
use crate::kit::{Bench, call, placed, promoted, session, started, step, success};

pub(crate) fn folded(log: &[Event]) -> SessionFold {
    let mut fold = SessionFold::new();
    placed(log).for_each(|(seq, event)| fold.apply(seq, event));
    fold
}

/// What a cache keeps is the fold, at every place of a log; another row, or another log, does not open it.
#[test]
fn a_kept_fold_is_the_fold() {
    let log = sound();
    let rows: Vec<_> = placed(&log)
        .map(|(seq, event)| {
            let row = match event {
                Event::Unknown(unknown) => NewRow::from_parts(
                    Timestamp::default(),
                    unknown.kind.clone(),
                    unknown.version,
                    unknown.body.clone(),
                ),
                event => NewRow::encode(event, Timestamp::from_millis(7)).unwrap(),
            };
            row.placed(session(), seq)
        })
        .collect();
    let mut fold = SessionFold::new();
    for (place, row) in rows.iter().enumerate() {
        assert_eq!(CachedFold::of(&fold, row), None, "the row behind the fold");
        fold.apply(row.seq, &row.event().unwrap());
        let kept = CachedFold::of(&fold, row).unwrap();
        assert_eq!(kept.open(row).as_ref(), Some(&fold), "at {}", row.seq);
        let mut other = row.clone();
        other.at = Timestamp::from_millis(8);
        assert_eq!(kept.open(&other), None);
        if let Some(before) = place.checked_sub(1).and_then(|before| rows.get(before)) {
            assert_eq!(kept.open(before), None);
        }
    }
}

/// A kept fold of this version is read by this version alone: when a fold comes to be made of other things, or says something else of the same log, `FORMAT` in `cache.rs` must change with it.
#[test]
fn the_form_of_a_kept_fold_is_pinned() {
    let frozen = include_str!("events.jsonl");
    let mut fold = SessionFold::new();
    let mut bodies = String::new();
    let mut format = String::new();
    for line in frozen.lines() {
        let row = Recorded::from_json(line).unwrap();
        fold.apply(row.seq, &row.event().unwrap());
        let kept = CachedFold::of(&fold, &row).unwrap();
        bodies.push_str(&kept.body);
        format = kept.format;
    }
    let hash = settled_ledger::arguments_hash(&serde_json::Value::from(bodies));
    assert_eq!(
        (format.as_str(), hash.as_str()),
        ("0.1.0/1", "04db446923df7ab9349ac7dcb75d0f6d9ed199eae31ffa0280cee8cba8caa856")
    );
}

#[test]
fn live_and_from_the_log_it_is_the_same() {
    let log = sound();
    let mut live = SessionFold::new();
    let mut read = SessionFold::new();
    for (seq, event) in placed(&log) {
        live.apply(seq, event);
        let row = match event {
            Event::Unknown(unknown) => {
                NewRow::from_parts(Timestamp::default(), unknown.kind.clone(), unknown.version, unknown.body.clone())
            }
            event => NewRow::encode(event, Timestamp::from_millis(7)).unwrap(),
        };
        let row = row.placed(session(), seq);
        let copied = Recorded::from_json(&row.to_json().unwrap()).unwrap();
        read.apply(copied.seq, &copied.event().unwrap());
        assert_eq!(read, live, "at {seq}");
    }
    assert_eq!(live.head, Seq::new(log.len() as u64));
    assert_eq!((&live.execution, &live.step, &live.compaction), (&None, &None, &None));
}

#[test]
fn budgets_are_those_of_the_logical_step() {
    let log = [
        execution(1, 0),
        promoted(1, "hello"),
        begun(1, 1),
        retry(1, 2),
        begun(1, 2),
        compacting(CompactionReason::Overflow),
        compacted(CompactionReason::Overflow),
        begun(1, 3),
        cut(1),
        failed(1),
        retry(1, 4),
        continues(2, 1),
        over(2),
        ended(2),
        begun(3, 1),
    ];
    let budget = |events: usize| {
        let BudgetFold { retries, recovered, backoff, .. } = folded(&log[..events]).budget;
        (retries, recovered, backoff.map(|Backoff { message, continues, .. }| (message, continues)))
    };
    assert_eq!(budget(3), (0, false, None));
    assert_eq!(budget(4), (1, false, Some((step(1), false))), "the same step is tried again");
    assert_eq!(budget(5), (1, false, None));
    assert_eq!(budget(7), (1, true, None));
    assert_eq!(budget(11), (2, true, Some((step(1), true))), "a new step goes on from the cut one");
    assert_eq!(budget(12), (2, true, None), "a continuation shares the budget");
    assert_eq!(budget(15), (0, false, None), "and the next step has its own");
    assert_eq!([3, 5, 8, 12, 15].map(|events| folded(&log[..events]).steps), [1, 1, 1, 1, 2]);
}

#[test]
fn what_the_last_step_leaves_is_known() {
    let mut usage = Usage::default();
    (usage.input, usage.output, usage.cache_read) = (Some(8), Some(3), Some(2));
    let hosted = ProviderEvent::ToolCall(ToolCallEvent::new(0, "h", "search", serde_json::json!({})).hosted());
    let mut bench = Bench::behind(vec![execution(1, 0), promoted(1, "hello")], started(1, 1), Vec::new());
    bench.stream(&[hosted, ProviderEvent::Finish(Finish::new(FinishReason::Pause).usage(usage))]);
    bench.owe(|ledger| ledger.end_step(StepEnd::new(Some(5), None)));
    let paused = folded(&bench.log);
    assert_eq!(paused.left_open, [(call(0), "h".to_owned())]);
    assert_eq!(
        paused.execution.as_ref().map(|open| (open.pauses, open.continues, open.visible)),
        Some((1, true, true))
    );
    assert_eq!((paused.totals.usage, paused.totals.cost_nanos, paused.totals.unreported), (usage, 5, 0));
    assert_eq!(paused.measured.map(|measured| (measured.tokens, measured.entries)), Some((13, 2)));
    assert!(!paused.is_unanswered());

    let mut next = Bench::behind(bench.log, started(2, 1), bench.ledger.left_open());
    assert_eq!(folded(&next.log).step.unwrap().carried, [(call(0), "h".to_owned())]);
    assert_eq!(folded(&next.log).left_open, []);
    next.say(&ProviderEvent::HostedResult(HostedResult::new("h", vec![Content::text("found")], None)));
    let open = folded(&next.log).step.unwrap();
    assert_eq!((open.open_hosted, open.answered), (vec![], false), "a hosted result asks for no further step");
    let key = next.say(&ProviderEvent::tool_call(0, "a", "act", serde_json::json!({}))).unwrap();
    next.run(key);
    next.owe(|ledger| ledger.admit_outcome(key, success("done")));
    assert!(folded(&next.log).step.unwrap().answered);
    next.stream(&[ProviderEvent::Finish(Finish::new(FinishReason::Stop))]);
    let asks = next.ledger.needs_continuation();
    next.settle();
    let settled_step = folded(&next.log);
    assert_eq!((asks, settled_step.execution.as_ref().unwrap().continues), (true, true));
    assert_eq!((settled_step.left_open.len(), settled_step.totals.unreported), (0, 1));

    let log = [next.log, vec![settled(1, settled_ledger::Outcome::Completed), promoted(2, "more")]].concat();
    assert_eq!((folded(&log).execution, folded(&log).steps), (None, 0));
    assert!(folded(&log).is_unanswered());
}

#[test]
fn the_open_step_shows_what_it_has_so_far() {
    let mut bench = Bench::new();
    bench.say(&ProviderEvent::text_start(0));
    bench.say(&ProviderEvent::text_delta(0, "Hello"));
    bench.say(&ProviderEvent::text_end(0));
    let history = folded(&bench.log).history;
    assert_eq!((history.entries().len(), history.open().unwrap().text()), (1, "Hello".to_owned()));
    assert_eq!(history.last_answer().as_deref(), Some("Hello"));
    let generation = history.generation();
    let log = [bench.log, vec![compacted(CompactionReason::Auto)]].concat();
    assert!(folded(&log).history.generation() > generation, "earlier entries were replaced");
}

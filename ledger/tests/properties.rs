//! Random evidence, valid and invalid: nothing panics, every step settles once, and the log is what a naive model says.
//!
//! The random numbers are our own and seeded; a failure names its seed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use settled_ledger::check::check_request;
use settled_ledger::history::{Entry, Part};
use settled_ledger::{
    Admission, AnswerKind, CompactionEnded, CompactionReason, DeltaKind, Event, History, InterruptedBy, Lowering,
    Release, Settlement, Stage, StepLedger, StepStarted, StreamExit, ToolOutcome, ToolsExit,
};
use settled_provider_api::{
    BlockDelta, BlockEnd, BlockStart, Capabilities, ErrorClass, Finish, FinishReason, HostedError, HostedResult,
    Message, ProviderError, ProviderEvent, Purpose, Request, ToolCallEvent, ToolInputEnd, ToolInputMalformed,
    ToolInputStart,
};
use settled_tools_api::{CallKey, Content, ToolOutput};

use crate::check_log::execution;
use crate::fold::folded;
use crate::kit::{Bench, model, placed, promoted, session, started, step, success};
use crate::restore::{answers, as_logged};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True once in so many times.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }
}

/// How wild a stream is.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// Any event at any time.
    Wild,
    /// Only what a well-behaved provider sends, but for a slip now and then.
    Tame,
}

/// Any event, of any block.
fn wild_event(random: &mut Random) -> ProviderEvent {
    let index = random.below(6) as u32;
    let text = random.one_of(&TEXTS).to_owned();
    let id = random.one_of(&["a", "b", ""]).to_owned();
    let name = random.one_of(&["act", "act", "look", "sing", ""]).to_owned();
    let hosted = random.once_in(3);
    let state = random.once_in(5).then(|| json!({"s": random.below(3)}));
    let whole = random.once_in(4).then(|| "whole".to_owned());
    match random.below(17) {
        0 => ProviderEvent::TextStart(BlockStart::new(index, state)),
        1 | 2 => ProviderEvent::TextDelta(BlockDelta::new(index, text, state)),
        3 => ProviderEvent::TextEnd(BlockEnd::new(index, whole, state)),
        4 => ProviderEvent::ReasoningStart(BlockStart::new(index, state)),
        5 => ProviderEvent::ReasoningDelta(BlockDelta::new(index, text, state)),
        6 => ProviderEvent::ReasoningEnd(BlockEnd::new(index, whole, state)),
        7 => ProviderEvent::ToolInputStart(ToolInputStart::new(index, id, name, hosted)),
        8 => ProviderEvent::ToolInputDelta(BlockDelta::new(index, text, None)),
        9 => ProviderEvent::ToolInputEnd(ToolInputEnd::new(index)),
        10 | 11 => {
            let input = random.one_of(&[json!({"x": 1}), json!([1]), Value::Null]);
            let call = ToolCallEvent::new(index, id, name, input);
            ProviderEvent::ToolCall(if hosted { call.hosted() } else { call })
        }
        12 => ProviderEvent::HostedResult(HostedResult::new(id, vec![Content::text("found")], state)),
        13 => {
            let reason = random.one_of(&[FinishReason::Stop, FinishReason::Pause, FinishReason::Length]);
            ProviderEvent::Finish(Finish::new(reason))
        }
        14 => ProviderEvent::ToolInputMalformed(ToolInputMalformed::new(index, id, name, hosted, text)),
        15 => ProviderEvent::HostedError(HostedError::new(id, "no", None)),
        _ => {
            let class = random.one_of(&[ErrorClass::Overloaded, ErrorClass::ContextOverflow]);
            ProviderEvent::Error(ProviderError::new(class, "no"))
        }
    }
}

const TEXTS: [&str; 5] = ["", "a", "né", " {\"x\":1}", "\n"];

/// A well-behaved provider: what it may send next.
#[derive(Default)]
struct Provider {
    blocks: u32,
    open: Vec<ProviderEvent>,
    /// Hosted calls without a result.
    hosted: Vec<String>,
}

impl Provider {
    fn next(&mut self, random: &mut Random) -> ProviderEvent {
        let index = self.blocks;
        let text = random.one_of(&TEXTS);
        let id = format!("c{index}");
        if !self.open.is_empty() && !random.once_in(4) {
            let place = random.below(self.open.len() as u64) as usize;
            let ends = random.once_in(3);
            let opened = if ends { self.open.remove(place) } else { self.open[place].clone() };
            return match opened {
                ProviderEvent::TextStart(block) if ends => ProviderEvent::text_end(block.index),
                ProviderEvent::TextStart(block) => ProviderEvent::text_delta(block.index, text),
                ProviderEvent::ReasoningStart(block) if ends => ProviderEvent::reasoning_end(block.index, None),
                ProviderEvent::ReasoningStart(block) => ProviderEvent::reasoning_delta(block.index, text),
                ProviderEvent::ToolInputStart(block) if ends => self.call(random, block),
                ProviderEvent::ToolInputStart(block) => ProviderEvent::tool_input_delta(block.index, text),
                other => other,
            };
        }
        if !self.hosted.is_empty() && random.once_in(3) {
            let id = self.hosted.remove(0);
            return ProviderEvent::HostedResult(HostedResult::new(id, vec![Content::text("found")], None));
        }
        self.blocks += 1;
        let hosted = random.once_in(3);
        let name = random.one_of(&["act", "look", "sing", ""]);
        let opened = match random.below(5) {
            0 => ProviderEvent::text_start(index),
            1 => ProviderEvent::reasoning_start(index),
            2 | 3 => ProviderEvent::ToolInputStart(ToolInputStart::new(index, id, name, hosted)),
            _ => return self.call(random, ToolInputStart::new(index, id, "act", hosted)),
        };
        self.open.push(opened.clone());
        opened
    }

    /// A call that was begun is made; its name may come only now, or only then.
    fn call(&mut self, random: &mut Random, begun: ToolInputStart) -> ProviderEvent {
        let name = if begun.name.is_empty() || random.once_in(2) { "act".to_owned() } else { String::new() };
        let name = if begun.name.is_empty() || name.is_empty() { name } else { begun.name.clone() };
        let call = ToolCallEvent::new(begun.index, begun.id.clone(), name, json!({"x": 1}));
        if !begun.hosted {
            return ProviderEvent::ToolCall(call);
        }
        self.hosted.push(begun.id);
        ProviderEvent::ToolCall(call.hosted())
    }
}

/// The naive model of an answer: blocks by index, in order of appearance.
#[derive(Default)]
struct Model {
    blocks: BTreeMap<u32, Block>,
    order: Vec<u32>,
    finish: Option<FinishReason>,
    /// Open hosted calls of the step before.
    carried: Vec<String>,
    carried_settled: Vec<String>,
    deaf: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Block {
    Text(DeltaKind, String, Door),
    Call { label: String, name: String, hosted: bool, at: At, input: Value },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Door {
    Open,
    Closed,
}

/// How far a call has come in the stream.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum At {
    Input,
    InputEnded,
    Called,
    Settled,
}

#[derive(Debug, PartialEq)]
struct Broke;

impl Model {
    fn open(&mut self, index: u32, block: Block) -> Result<(), Broke> {
        if self.blocks.contains_key(&index) {
            return Err(Broke);
        }
        self.blocks.insert(index, block);
        self.order.push(index);
        Ok(())
    }

    fn call(&mut self, index: u32, id: &str, name: &str, hosted: bool) -> Result<&mut Block, Broke> {
        if !self.blocks.contains_key(&index) {
            let (label, name) = (id.to_owned(), name.to_owned());
            self.open(index, Block::Call { label, name, hosted, at: At::Input, input: json!({}) })?;
        }
        let block = self.blocks.get_mut(&index).unwrap();
        match block {
            Block::Call { name: known, at, .. } if *at <= At::InputEnded => {
                if known.is_empty() {
                    name.clone_into(known);
                }
                if name.is_empty() || name == known { Ok(block) } else { Err(Broke) }
            }
            _ => Err(Broke),
        }
    }

    fn result(&mut self, id: &str) -> Result<(), Option<Broke>> {
        for index in &self.order {
            if let Some(Block::Call { label, hosted: true, at: at @ At::Called, .. }) = self.blocks.get_mut(index)
                && label == id
            {
                *at = At::Settled;
                return Ok(());
            }
        }
        if let Some(place) = self.carried.iter().position(|label| label == id) {
            self.carried_settled.push(self.carried.remove(place));
            return Ok(());
        }
        let settled =
            |block: &Block| matches!(block, Block::Call { label, hosted: true, at: At::Settled, .. } if label == id);
        let late = self.blocks.values().any(settled) || self.carried_settled.iter().any(|label| label == id);
        // A late error is passed over; anything else breaks.
        Err(if late { None } else { Some(Broke) })
    }

    fn hear(&mut self, event: &ProviderEvent) -> Result<(), Broke> {
        if self.deaf {
            return Ok(());
        }
        let heard = self.listen(event);
        self.deaf |= heard.is_err();
        heard
    }

    fn listen(&mut self, event: &ProviderEvent) -> Result<(), Broke> {
        let empty = String::new;
        match event {
            ProviderEvent::TextStart(start) => {
                self.open(start.index, Block::Text(DeltaKind::Text, empty(), Door::Open))
            }
            ProviderEvent::ReasoningStart(start) => {
                self.open(start.index, Block::Text(DeltaKind::Reasoning, empty(), Door::Open))
            }
            ProviderEvent::TextDelta(delta) => self.piece(DeltaKind::Text, delta),
            ProviderEvent::ReasoningDelta(delta) => self.piece(DeltaKind::Reasoning, delta),
            ProviderEvent::TextEnd(end) => self.end(DeltaKind::Text, end),
            ProviderEvent::ReasoningEnd(end) => self.end(DeltaKind::Reasoning, end),
            ProviderEvent::ToolInputStart(start) => {
                let (label, name, hosted) = (start.id.clone(), start.name.clone(), start.hosted);
                self.open(start.index, Block::Call { label, name, hosted, at: At::Input, input: json!({}) })
            }
            ProviderEvent::ToolInputDelta(delta) => match self.blocks.get(&delta.index) {
                Some(Block::Call { at: At::Input, .. }) => Ok(()),
                _ => Err(Broke),
            },
            ProviderEvent::ToolInputEnd(end) => match self.blocks.get_mut(&end.index) {
                Some(Block::Call { at, .. }) => {
                    *at = if *at == At::Input { At::InputEnded } else { *at };
                    Ok(())
                }
                _ => Err(Broke),
            },
            ProviderEvent::ToolInputMalformed(bad) => {
                let as_begun = self.blocks.get(&bad.index).cloned();
                let block = self.call(bad.index, &bad.id, &bad.name, bad.hosted)?;
                // A name that comes only with arguments that are no JSON is in no event.
                *block = as_begun.unwrap_or_else(|| block.clone());
                let Block::Call { at, .. } = block else {
                    return Err(Broke);
                };
                *at = At::Settled;
                Ok(())
            }
            ProviderEvent::ToolCall(called) => {
                let Block::Call { name, hosted, at, input, .. } =
                    self.call(called.index, &called.id, &called.name, called.hosted)?
                else {
                    return Err(Broke);
                };
                *hosted |= called.hosted;
                *input = if called.input.is_object() { called.input.clone() } else { json!({"value": called.input}) };
                let runs = *hosted || ["act", "look"].contains(&name.as_str());
                *at = if runs { At::Called } else { At::Settled };
                Ok(())
            }
            ProviderEvent::HostedResult(result) => self.result(&result.id).map_err(|_| Broke),
            ProviderEvent::HostedError(error) => match self.result(&error.id) {
                Ok(()) | Err(None) => Ok(()),
                Err(Some(broke)) => Err(broke),
            },
            ProviderEvent::Finish(finish) => {
                let first = *self.finish.get_or_insert(finish.reason);
                if first == finish.reason { Ok(()) } else { Err(Broke) }
            }
            ProviderEvent::Error(_) => {
                self.deaf = true;
                Ok(())
            }
            other => panic!("the model does not know {other:?}"),
        }
    }

    /// Whether the event that was just heard is a call that may start.
    fn starts(&self, event: &ProviderEvent) -> bool {
        let ProviderEvent::ToolCall(called) = event else { return false };
        let block = self.blocks.get(&called.index).filter(|_| !self.deaf);
        matches!(block, Some(Block::Call { hosted: false, at: At::Called, .. }))
    }

    fn piece(&mut self, wanted: DeltaKind, delta: &BlockDelta) -> Result<(), Broke> {
        match self.blocks.get_mut(&delta.index) {
            Some(Block::Text(kind, text, Door::Open)) if *kind == wanted => {
                text.push_str(&delta.text);
                Ok(())
            }
            _ => Err(Broke),
        }
    }

    fn end(&mut self, wanted: DeltaKind, end: &BlockEnd) -> Result<(), Broke> {
        match self.blocks.get_mut(&end.index) {
            Some(Block::Text(kind, text, door)) if *kind == wanted => {
                if std::mem::replace(door, Door::Closed) == Door::Open
                    && let Some(whole) = &end.text
                {
                    text.clone_from(whole);
                }
                Ok(())
            }
            _ => Err(Broke),
        }
    }

    /// What the history must show of the step.
    fn parts(&self) -> Vec<String> {
        let part = |index: &u32| match &self.blocks[index] {
            Block::Text(kind, text, _) => format!("{kind:?} `{text}`"),
            Block::Call { label, name, hosted, at, input } => {
                // Arguments count once the call is complete.
                let input = if *at >= At::Called && *input != json!({}) { input.clone() } else { json!({}) };
                format!("call `{label}` {name} hosted={hosted} {input}")
            }
        };
        self.order.iter().map(part).collect()
    }
}

/// What the history shows of a step, results of hosted calls left out.
fn shown(log: &[Event]) -> Vec<String> {
    let mut history = History::default();
    log.iter().for_each(|event| history.apply(event));
    let Some(Entry::Assistant(entry)) = history.entries().last().map(AsRef::as_ref) else {
        panic!("the step is settled");
    };
    let part = |part: &Part| match part {
        Part::Text(text) => Some(format!("Text `{}`", text.text)),
        Part::Reasoning(text) => Some(format!("Reasoning `{}`", text.text)),
        Part::Call(call) => Some(format!("call `{}` {} hosted={} {}", call.label, call.name, call.hosted, call.input)),
        Part::HostedResult(_) => None,
        Part::Media(..) => Some("media".to_owned()),
    };
    entry.parts.iter().filter_map(part).collect()
}

fn outcome(random: &mut Random) -> ToolOutcome {
    random.one_of(&[
        success("done"),
        success("done"),
        success("done"),
        ToolOutcome::Success(ToolOutput::default(), None),
        ToolOutcome::Failed(ToolOutput::text("no"), None),
        ToolOutcome::Unknown(ToolOutput::text("?")),
        ToolOutcome::Panicked("oh".into()),
        ToolOutcome::TimedOut("5 s".into()),
        ToolOutcome::Stopped(None),
        ToolOutcome::Infra("disk full".into()),
        ToolOutcome::Declined { feedback: None },
        ToolOutcome::Declined { feedback: Some("later".into()) },
        ToolOutcome::Ask { question: "which?".into(), state: json!(1) },
    ])
}

/// One thing that happens beside the stream: a call moves, a person answers, somebody interrupts.
fn beside(bench: &mut Bench, random: &mut Random, manner: Manner) {
    let at = |ledger: &StepLedger, stage| ledger.local_calls_at(stage);
    let running = at(&bench.ledger, Stage::Running);
    let called = at(&bench.ledger, Stage::Called);
    let waiting = bench.ledger.waiting_for_a_person();
    if !called.is_empty() && random.once_in(2) {
        let key = random.one_of(&called);
        if !bench.ledger.may_start_calls() {
            bench.owe(|ledger| ledger.admit_outcome(key, ToolOutcome::NotRun));
        } else if random.once_in(4) && !bench.ledger.is_approved(key) {
            bench.owe(|ledger| ledger.admit_approval_needed(key, "may it?".into()));
        } else {
            bench.owe(|ledger| ledger.start(key));
            assert!(matches!(bench.ledger.release(key), Release::Run { .. }));
        }
    } else if !running.is_empty() && random.once_in(2) {
        let outcome = if manner == Manner::Tame && !random.once_in(9) { success("done") } else { outcome(random) };
        bench.owe(|ledger| ledger.admit_outcome(random.one_of(&running), outcome));
    } else if !waiting.is_empty() && random.once_in(2) {
        use AnswerKind::{Approved, Declined, Dismissed, Text};
        let answer = random.one_of(&[Approved, Approved, Text, Text, Declined, Dismissed]);
        let text = random.once_in(2).then(|| "that one".to_owned());
        let key = random.one_of(&waiting);
        bench.owe(|ledger| ledger.admit_answer(key, answer, text));
        // A question that is answered runs on.
        if bench.ledger.stage(key) == Some(Stage::Starting) {
            match bench.ledger.release(key) {
                Release::Run { .. } => {}
                Release::Forbidden => bench.owe(|ledger| ledger.admit_outcome(key, ToolOutcome::Stopped(None))),
            }
        }
    } else if random.once_in(if manner == Manner::Tame { 600 } else { 60 }) {
        bench.owe(|ledger| ledger.admit_interrupt(InterruptedBy::User));
    }
}

/// Takes one step through random evidence, up to `step.streamed`.
fn take_through(bench: &mut Bench, model: &mut Model, random: &mut Random) {
    let manner = random.one_of(&[Manner::Wild, Manner::Tame, Manner::Tame]);
    let mut provider = Provider { hosted: model.carried.clone(), ..Provider::default() };
    let mut events = random.below(40);
    loop {
        let over = events == 0;
        let event = match manner {
            _ if over => {
                let reason = random.one_of(&[FinishReason::Stop, FinishReason::Pause, FinishReason::ToolCalls]);
                ProviderEvent::Finish(Finish::new(reason))
            }
            Manner::Tame if !random.once_in(200) => provider.next(random),
            Manner::Tame | Manner::Wild => wild_event(random),
        };
        model.deaf |= bench.ledger.interrupted_by().is_some();
        let expected = model.hear(&event);
        match bench.ledger.clone().admit(&event) {
            Admission::Broken(violation) => assert_eq!(expected, Err(Broke), "{violation}"),
            Admission::Call(..) => assert_eq!((expected, model.starts(&event)), (Ok(()), true), "{event:?}"),
            Admission::Nothing | Admission::Delta(_) | Admission::Owed(_) => {
                assert_eq!((expected, model.starts(&event)), (Ok(()), false), "{event:?}");
            }
        }
        bench.say(&event);
        beside(bench, random, manner);
        if over {
            break;
        }
        events -= 1;
    }
    let error = |class| ProviderError::new(class, "no");
    bench.exit(match random.below(20) {
        0 => StreamExit::Failed(error(ErrorClass::Transport)),
        1 => StreamExit::Failed(error(ErrorClass::ContextOverflow)),
        2 => StreamExit::BrokenOff,
        3 => StreamExit::Panicked("oh".into()),
        4 => StreamExit::Interrupted,
        _ => StreamExit::Completed,
    });
}

#[test]
fn random_evidence_settles_once_and_is_what_the_model_says() {
    let (mut clean, mut broken, mut carried_over) = (0, 0, 0);
    for seed in 0..4_000 {
        let mut random = Random(seed);
        let mut log = vec![execution(1, 0), promoted(1, "hello")];
        let mut carried = Vec::new();
        for number in 1..=1 + u128::from(random.below(3)) {
            let mut model = Model { carried: carried.iter().map(label).collect(), ..Model::default() };
            carried_over += carried.len();
            let begun = StepStarted { ..started(number, 1) };
            let mut bench = Bench::behind(log, begun, carried.clone());
            take_through(&mut bench, &mut model, &mut random);

            let rebuilt =
                |bench: &Bench| StepLedger::restore(session(), bench.ledger.message(), carried.clone(), &bench.log);
            for _ in 0..random.below(20) {
                beside(&mut bench, &mut random, Manner::Tame);
                assert_eq!(as_logged(&answers(&rebuilt(&bench))), as_logged(&answers(&bench.ledger)), "seed {seed}");
            }
            bench.ledger.admit_tools_exit(ToolsExit::Settled);
            let mut twin = Bench { ledger: rebuilt(&bench), log: bench.log.clone() };
            twin.ledger.admit_tools_exit(ToolsExit::Settled);

            let settlement = bench.settle();
            assert_eq!((twin.settle(), &twin.log), (settlement.clone(), &bench.log), "seed {seed}");
            assert_eq!(bench.breaches(), [], "seed {seed}: {:#?}", bench.log);
            let is_terminal = |event: &&Event| {
                matches!(event, Event::StepEnded(_) | Event::StepFailed(_))
                    && event.message() == Some(bench.ledger.message())
            };
            assert_eq!(bench.log.iter().filter(is_terminal).count(), 1, "seed {seed}");
            assert_eq!(shown(&bench.log), model.parts(), "seed {seed}: {:#?}", bench.log);
            // Settled is settled: nothing more is owed, whatever comes.
            assert_eq!(bench.ledger.admit_interrupt(InterruptedBy::User), [], "seed {seed}");
            let key = CallKey { step: bench.ledger.message(), ordinal: 0 };
            assert_eq!(bench.ledger.admit_outcome(key, success("late")), [], "seed {seed}");

            clean += u32::from(settlement == Settlement::Clean);
            broken += u32::from(bench.ledger.failure().is_some());
            carried = bench.ledger.left_open();
            let fold = folded(&bench.log);
            let left_open: Vec<_> = carried.iter().map(|call| (call.key, label(call))).collect();
            let said = (fold.execution.unwrap().continues, fold.left_open);
            assert_eq!(said, (bench.ledger.needs_continuation(), left_open), "seed {seed}: {:#?}", bench.log);
            log = bench.log;
            if bench.ledger.interrupted_by().is_some() {
                break;
            }
        }
        assert_eq!(placed(&log).count(), log.len());
    }
    // The seeds reach what they are meant to reach.
    assert!(
        clean > 500 && broken > 500 && carried_over > 100,
        "{clean} clean, {broken} failed, {carried_over} carried"
    );
}

/// B007, B063, B064, B065: any stretch of any history, also of one with holes, makes a well-formed request for a summary, and what follows the summary is well-formed too.
#[test]
fn any_cut_of_any_history_is_well_formed() {
    let (mut cuts, mut calls) = (0, 0);
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut log = vec![execution(1, 0), promoted(1, "hello")];
        let mut carried = Vec::new();
        for number in 1..=4 {
            let mut model = Model { carried: carried.iter().map(label).collect(), ..Model::default() };
            let mut bench = Bench::behind(log, started(number, 1), carried);
            take_through(&mut bench, &mut model, &mut random);
            bench.ledger.admit_tools_exit(ToolsExit::Settled);
            bench.settle();
            carried = bench.ledger.left_open();
            log = bench.log;
            if random.once_in(2) {
                log.push(promoted(100 + number, "and then"));
            }
        }
        let holes = random.once_in(2);
        let mut history = History::default();
        for event in &log {
            if !(holes && event.message().is_some() && random.once_in(12)) {
                history.apply(event);
            }
        }
        let entries = history.entries();
        for from in 0..entries.len() {
            for to in from..=entries.len() {
                let mut part = History::default();
                entries[from..to].iter().for_each(|entry| part.push_shared(Arc::clone(entry)));
                part.push_shared(Arc::new(Entry::User(vec![Content::text("Write a summary.")])));
                let mut request = Request::new(model(), Purpose::summary(session(), step(99)));
                request.messages = Lowering::new().update(&part, &model(), &Capabilities::default()).to_vec();
                calls += request.messages.iter().filter(|one| matches!(one.as_ref(), Message::Tool(_))).count();
                let breaches = check_request(&request, &Capabilities::default());
                assert_eq!(breaches, [], "seed {seed}, {from} to {to}: {:#?}", request.messages);
                cuts += 1;
            }
        }
        // What is said behind a summary, the result of a call that was summarised away among it.
        let compacted = CompactionEnded {
            reason: CompactionReason::Auto,
            text: "we met".into(),
            recent: String::new(),
            model: model(),
            usage: None,
            cost_nanos: None,
        };
        history.apply(&compacted.into());
        let mut request = Request::new(model(), Purpose::step(session(), step(99)));
        let mut model_of = Model { carried: carried.iter().map(label).collect(), ..Model::default() };
        let mut bench = Bench::behind(Vec::new(), started(9, 1), carried);
        take_through(&mut bench, &mut model_of, &mut random);
        bench.ledger.admit_tools_exit(ToolsExit::Settled);
        bench.settle();
        bench.log.iter().for_each(|event| history.apply(event));
        history.apply(&promoted(200, "more"));
        request.messages = Lowering::new().update(&history, &model(), &Capabilities::default()).to_vec();
        assert_eq!(check_request(&request, &Capabilities::default()), [], "seed {seed}");
    }
    assert!(cuts > 3_000 && calls > 3_000, "{cuts} cuts, {calls} results");
}

fn label(call: &settled_ledger::CarriedCall) -> String {
    call.label.clone()
}

//! The settlement as a table: every combination of evidence, made by admitting it, against a simpler statement of the rules.
//!
//! The statement: each piece of evidence by itself asks for a class, and the most disruptive of them is the step's.

use serde_json::json;
use settled_ledger::{
    AnswerKind, Event, InfraCause, InterruptedBy, Settlement, StepFailed, StreamExit, ToolOutcome, ToolsExit,
};
use settled_provider_api::{
    ErrorClass, Finish, FinishReason, ProviderError, ProviderEvent, ToolCallEvent, ToolInputStart,
};

use crate::kit::{Bench, success};

macro_rules! evidence {
    ($($name:ident { $($value:ident),* })*) => {
        $(
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            enum $name { $($value),* }

            impl $name {
                const ALL: &'static [Self] = &[$(Self::$value),*];
            }
        )*
    };
}

evidence! {
    Stream { Completed, Threw, ThrewOverflow, Panicked, BrokenOff, Interrupted }
    Tools { Settled, Interrupted }
    Interruption { None, InTheStream, AfterIt }
    Assistant { NotStarted, Active, Finished }
    InBand { None, Error }
    Overflow { None, Held, Released }
    Protocol { Kept, Broken }
    Local { None, InputOpen, Called, Running }
    Hosted { None, Open }
    Person { NoCall, Answered, Declined, Dismissed, Infra }
}

const FINISHES: [Option<FinishReason>; 8] = [
    None,
    Some(FinishReason::Stop),
    Some(FinishReason::ToolCalls),
    Some(FinishReason::Length),
    Some(FinishReason::ContentFilter),
    Some(FinishReason::Refusal),
    Some(FinishReason::Pause),
    Some(FinishReason::Unknown),
];

/// One combination of evidence.
#[derive(Clone, Copy, Debug)]
struct Row {
    stream: Stream,
    tools: Tools,
    interruption: Interruption,
    assistant: Assistant,
    in_band: InBand,
    overflow: Overflow,
    protocol: Protocol,
    finish: Option<FinishReason>,
    local: Local,
    hosted: Hosted,
    person: Person,
}

fn every_row(mut check: impl FnMut(Row)) {
    for &stream in Stream::ALL {
        for &tools in Tools::ALL {
            for &interruption in Interruption::ALL {
                for &assistant in Assistant::ALL {
                    for &in_band in InBand::ALL {
                        for &overflow in Overflow::ALL {
                            for &protocol in Protocol::ALL {
                                let evidence = (stream, tools, interruption, assistant, in_band, overflow, protocol);
                                every_call(evidence, &mut check);
                            }
                        }
                    }
                }
            }
        }
    }
}

fn every_call(
    evidence: (Stream, Tools, Interruption, Assistant, InBand, Overflow, Protocol),
    check: &mut impl FnMut(Row),
) {
    let (stream, tools, interruption, assistant, in_band, overflow, protocol) = evidence;
    for finish in FINISHES {
        for &local in Local::ALL {
            for &hosted in Hosted::ALL {
                for &person in Person::ALL {
                    check(Row {
                        stream,
                        tools,
                        interruption,
                        assistant,
                        in_band,
                        overflow,
                        protocol,
                        finish,
                        local,
                        hosted,
                        person,
                    });
                }
            }
        }
    }
}

/// What a piece of evidence asks for, the least disruptive first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AsksFor {
    Nothing,
    Infra,
    StopFromInside,
    ProviderFailure,
    StopByAPerson,
    StopFromOutside,
}

/// The statement of the rules.
impl Row {
    /// An overflow is held only while nothing is visible; what comes after it in the stream is not heard.
    fn holds(self) -> bool {
        let silent = self.assistant == Assistant::NotStarted
            && self.local == Local::None
            && self.hosted == Hosted::None
            && self.person == Person::NoCall;
        silent && self.overflow != Overflow::None
    }

    fn asks_for(self) -> AsksFor {
        use AsksFor::*;
        let heard = !self.holds();
        [
            match self.stream {
                Stream::Completed => Nothing,
                Stream::Interrupted => StopFromOutside,
                Stream::Threw | Stream::ThrewOverflow | Stream::Panicked | Stream::BrokenOff => ProviderFailure,
            },
            if self.tools == Tools::Interrupted { StopFromInside } else { Nothing },
            // The tools as a whole have ended, so a call that had been running was stopped.
            if self.local == Local::Running { StopFromInside } else { Nothing },
            if self.interruption == Interruption::None { Nothing } else { StopFromOutside },
            if heard && self.in_band == InBand::Error { ProviderFailure } else { Nothing },
            if heard && self.protocol == Protocol::Broken { ProviderFailure } else { Nothing },
            match self.overflow {
                Overflow::Released => ProviderFailure,
                Overflow::Held if heard => ProviderFailure,
                Overflow::None | Overflow::Held => Nothing,
            },
            match self.finish {
                Some(FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Length | FinishReason::Pause) => {
                    Nothing
                }
                None | Some(FinishReason::ContentFilter | FinishReason::Refusal | FinishReason::Unknown) => {
                    ProviderFailure
                }
            },
            match self.person {
                Person::NoCall | Person::Answered => Nothing,
                Person::Declined | Person::Dismissed => StopByAPerson,
                Person::Infra => Infra,
            },
        ]
        .into_iter()
        .max()
        .unwrap()
    }

    fn settlement(self) -> Settlement {
        match self.asks_for() {
            AsksFor::Nothing => Settlement::Clean,
            AsksFor::Infra => Settlement::ToolInfraFailed { cause: InfraCause::new("disk full") },
            AsksFor::ProviderFailure => Settlement::ProviderFailed,
            AsksFor::StopFromInside | AsksFor::StopByAPerson | AsksFor::StopFromOutside => {
                Settlement::Interrupted { question_dismissed: self.person == Person::Dismissed }
            }
        }
    }

    /// The class of the step's error: of the failure that was recorded first.
    fn error(self) -> &'static str {
        let heard = !self.holds();
        let cut_short = self.interruption == Interruption::InTheStream || !heard;
        let broke = heard
            && (self.overflow != Overflow::None || self.in_band == InBand::Error || self.protocol == Protocol::Broken);
        let finished = match self.finish {
            None if self.hosted == Hosted::Open => Some("result_missing"),
            None | Some(FinishReason::Unknown) => Some("incomplete_stream"),
            Some(FinishReason::ContentFilter | FinishReason::Refusal) => Some("content_policy"),
            Some(FinishReason::Stop | FinishReason::ToolCalls | FinishReason::Length | FinishReason::Pause) => None,
        };
        let first = [
            (heard && self.overflow != Overflow::None, Some("context_overflow")),
            (heard && self.in_band == InBand::Error, Some("overloaded")),
            (heard && self.protocol == Protocol::Broken, Some("invalid_output")),
            (self.stream == Stream::Threw, Some("transport")),
            (self.stream == Stream::Panicked, Some("internal")),
            // A thrown overflow is held as well while nothing is visible, and is then given up like one in the stream.
            (self.stream == Stream::ThrewOverflow && self.overflow != Overflow::Held, Some("context_overflow")),
            (self.stream == Stream::ThrewOverflow && heard, Some("context_overflow")),
            (self.holds() && self.overflow == Overflow::Released, Some("context_overflow")),
            (self.stream == Stream::Completed && !cut_short && !broke, finished),
            (self.person == Person::Infra, Some("infra")),
        ];
        first.into_iter().find_map(|(applies, class)| class.filter(|_| applies)).unwrap_or("aborted")
    }
}

/// Admits the evidence of a row, in the order in which it would come, up to the point of classification.
fn bench(row: Row) -> Bench {
    let mut bench = Bench::new();
    if row.assistant != Assistant::NotStarted {
        bench.say(&ProviderEvent::text_start(0));
        bench.say(&ProviderEvent::text_delta(0, "so"));
    }
    if row.assistant == Assistant::Finished {
        bench.say(&ProviderEvent::text_end(0));
    }
    let person = match row.person {
        Person::NoCall => None,
        Person::Answered | Person::Declined | Person::Dismissed | Person::Infra => {
            bench.say(&ProviderEvent::tool_call(1, "p", "act", json!({})))
        }
    };
    match (row.person, person) {
        (Person::Declined, Some(key)) => bench.owe(|ledger| ledger.admit_approval_needed(key, "may it?".into())),
        (_, Some(key)) => bench.run(key),
        (_, None) => {}
    }
    match row.local {
        Local::None => {}
        Local::InputOpen => drop(bench.say(&ProviderEvent::tool_input_start(2, "l", "act"))),
        Local::Called => drop(bench.say(&ProviderEvent::tool_call(2, "l", "act", json!({})))),
        Local::Running => {
            let key = bench.say(&ProviderEvent::tool_call(2, "l", "act", json!({}))).unwrap();
            bench.run(key);
        }
    }
    if row.hosted == Hosted::Open {
        bench.say(&ProviderEvent::ToolInputStart(ToolInputStart::new(3, "h", "search", true)));
        bench.say(&ProviderEvent::ToolCall(ToolCallEvent::new(3, "h", "search", json!({})).hosted()));
    }
    if let Some(reason) = row.finish {
        bench.say(&ProviderEvent::Finish(Finish::new(reason)));
    }
    let error = |class| ProviderError::new(class, "no");
    if row.overflow != Overflow::None {
        bench.say(&ProviderEvent::Error(error(ErrorClass::ContextOverflow)));
    }
    if row.in_band == InBand::Error {
        bench.say(&ProviderEvent::Error(error(ErrorClass::Overloaded)));
    }
    if row.protocol == Protocol::Broken {
        bench.say(&ProviderEvent::text_delta(9, "of no block"));
    }
    if row.interruption == Interruption::InTheStream {
        bench.owe(|ledger| ledger.admit_interrupt(InterruptedBy::User));
    }
    let exit = match row.stream {
        Stream::Completed => StreamExit::Completed,
        Stream::Threw => StreamExit::Failed(error(ErrorClass::Transport)),
        Stream::ThrewOverflow => StreamExit::Failed(error(ErrorClass::ContextOverflow)),
        Stream::Panicked => StreamExit::Panicked("index out of bounds".into()),
        Stream::BrokenOff => StreamExit::BrokenOff,
        Stream::Interrupted => StreamExit::Interrupted,
    };
    bench.owe(|ledger| ledger.admit_stream_exit(exit));
    if row.overflow != Overflow::Held {
        bench.ledger.release_held_overflow();
    }
    bench.owe(|ledger| ledger.streamed());
    if row.interruption == Interruption::AfterIt {
        bench.owe(|ledger| ledger.admit_interrupt(InterruptedBy::User));
    }
    if let Some(key) = person {
        bench.owe(|ledger| match row.person {
            Person::NoCall => Vec::new(),
            Person::Answered => ledger.admit_outcome(key, success("done")),
            Person::Declined => ledger.admit_answer(key, AnswerKind::Declined, None),
            Person::Dismissed => {
                let ask = ToolOutcome::Ask { question: "which?".into(), state: json!(1) };
                let mut owed = ledger.admit_outcome(key, ask);
                owed.extend(ledger.admit_answer(key, AnswerKind::Dismissed, None));
                owed
            }
            Person::Infra => ledger.admit_outcome(key, ToolOutcome::Infra("disk full".into())),
        });
    }
    bench.ledger.admit_tools_exit(match row.tools {
        Tools::Settled => ToolsExit::Settled,
        Tools::Interrupted => ToolsExit::Interrupted,
    });
    bench
}

#[test]
#[expect(clippy::print_stdout, reason = "the size of the table is shown")]
fn every_combination_of_evidence_settles_as_the_rules_say() {
    let mut rows = 0_u32;
    every_row(|row| {
        rows += 1;
        let mut bench = bench(row);
        let settlement = row.settlement();
        assert_eq!(bench.ledger.settlement(), settlement, "{row:?}");

        let clean = settlement == Settlement::Clean;
        let paused = row.finish == Some(FinishReason::Pause);
        let answered = row.person == Person::Answered;
        assert_eq!(bench.ledger.needs_continuation(), clean && (answered || paused), "{row:?}");

        assert_eq!(bench.settle(), settlement, "failing the open calls changes no settlement: {row:?}");
        let answered = answered || row.local != Local::None;
        assert_eq!(bench.ledger.needs_continuation(), clean && (answered || paused), "{row:?}");
        let stays_open = usize::from(clean && paused && row.hosted == Hosted::Open);
        assert_eq!(bench.ledger.unsettled().len(), stays_open, "{row:?}");
        match bench.log.last() {
            Some(Event::StepEnded(ended)) => assert!(clean && ended.finish == row.finish, "{row:?}"),
            Some(Event::StepFailed(StepFailed { error, settlement: said, .. })) => {
                assert_eq!((error.class.name(), said), (row.error(), &settlement), "{row:?}");
            }
            other => panic!("{other:?} is no terminal: {row:?}"),
        }
        // The checker knows no `ToolsExit`, which leaves nothing in the log; all else it must find sound.
        assert_eq!(bench.breaches(), [], "{row:?}: {:#?}", bench.log);
    });
    println!("settlement table: {rows} rows");
    assert_eq!(rows, 6 * 2 * 3 * 3 * 2 * 3 * 2 * 8 * 4 * 2 * 5);
}

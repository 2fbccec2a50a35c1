//! A step on the bench: a ledger, and the log that its events make.

use std::sync::Arc;

use serde_json::json;
use settled_ledger::check::{Breach, check_events};
use settled_ledger::{
    Admission, CarriedCall, Delivery, Event, Events, InputId, InputPromoted, NewRow, Release, Seq, Settlement, StepEnd,
    StepLedger, StepStarted, StreamExit, Timestamp, ToolOutcome, ToolUse, Unsettled,
};
use settled_provider_api::{ModelRef, ProviderEvent, ToolDefinition};
use settled_tools_api::{CallKey, Content, MessageId, Replay, SessionId, ToolOutput};

/// The session of all tests.
pub(crate) fn session() -> SessionId {
    SessionId::new("s").unwrap()
}

/// The step of that number.
pub(crate) fn step(number: u128) -> MessageId {
    MessageId::from_u128(number)
}

/// A call of step 1.
pub(crate) fn call(ordinal: u32) -> CallKey {
    CallKey { step: step(1), ordinal }
}

/// The model of all tests.
pub(crate) fn model() -> ModelRef {
    ModelRef::new("lab", "m")
}

/// What is on offer: `act`, which must not be run twice, and `look`, which may.
pub(crate) fn tools() -> Arc<[ToolDefinition]> {
    let tool = |name: &str| ToolDefinition::new(name, "", json!({"type": "object"}));
    [tool("act"), tool("look").replay(Replay::Pure)].into()
}

/// Input that was promoted.
pub(crate) fn promoted(number: u128, text: &str) -> Event {
    InputPromoted { input: InputId::from_u128(number), delivery: Delivery::Steer, content: vec![Content::text(text)] }
        .into()
}

/// The start of an attempt at a step.
pub(crate) fn started(number: u128, attempt: u32) -> StepStarted {
    StepStarted { message: step(number), attempt, agent: "a".into(), model: model(), continues: None, last: false }
}

/// Events at their places in a log.
pub(crate) fn placed(log: &[Event]) -> impl Iterator<Item = (Seq, &Event)> {
    (1..).map(Seq::new).zip(log)
}

/// A tool's answer.
pub(crate) fn success(text: &str) -> ToolOutcome {
    ToolOutcome::Success(ToolOutput::text(text), None)
}

/// A step on the bench.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) ledger: StepLedger,
    /// Everything that was owed so far, behind the promotion of an input and the start of the step.
    pub(crate) log: Vec<Event>,
}

impl Bench {
    /// Step 1, with its tools on.
    pub(crate) fn new() -> Self {
        Self::with(ToolUse::On)
    }

    pub(crate) fn with(tool_use: ToolUse) -> Self {
        let begun = StepStarted { last: tool_use == ToolUse::Off, ..started(1, 1) };
        Self::behind(vec![promoted(1, "hello")], begun, Vec::new())
    }

    /// A step behind a log, with the hosted calls that an earlier step left open.
    pub(crate) fn behind(mut log: Vec<Event>, begun: StepStarted, carried: Vec<CarriedCall>) -> Self {
        let tool_use = if begun.last { ToolUse::Off } else { ToolUse::On };
        let ledger = StepLedger::new(session(), begun.message, tools(), tool_use).carrying(carried);
        log.push(begun.into());
        Self { ledger, log }
    }

    /// Admits events of the provider, and a stream that ends by itself behind them.
    pub(crate) fn stream(&mut self, events: &[ProviderEvent]) {
        for event in events {
            self.say(event);
        }
        self.exit(StreamExit::Completed);
    }

    /// Admits the stream's exit, and records it.
    pub(crate) fn exit(&mut self, exit: StreamExit) {
        self.owe(|ledger| ledger.admit_stream_exit(exit));
        self.ledger.release_held_overflow();
        self.owe(|ledger| ledger.streamed());
    }

    /// Admits an event of the provider; gives the call that may start, if one may.
    pub(crate) fn say(&mut self, event: &ProviderEvent) -> Option<CallKey> {
        match self.ledger.admit(event) {
            Admission::Nothing | Admission::Delta(_) | Admission::Broken(_) => None,
            Admission::Owed(owed) => {
                self.log.extend(owed);
                None
            }
            Admission::Call(owed, key) => {
                self.log.extend(owed);
                Some(key)
            }
        }
    }

    /// Writes what is owed.
    pub(crate) fn owe(&mut self, owed: impl FnOnce(&mut StepLedger) -> Events) {
        let owed = owed(&mut self.ledger);
        self.log.extend(owed);
    }

    /// Starts a call and lets it run.
    pub(crate) fn run(&mut self, key: CallKey) {
        self.owe(|ledger| ledger.start(key));
        assert!(matches!(self.ledger.release(key), Release::Run { .. }), "{key} may run");
    }

    /// Settles the step: fails what has no outcome, and writes the terminal that the settlement calls for.
    pub(crate) fn settle(&mut self) -> Settlement {
        self.owe(|ledger| ledger.fail_unsettled_tools(Unsettled::AtSettlement));
        let settlement = self.ledger.settlement();
        self.owe(|ledger| match settlement {
            Settlement::Clean => ledger.end_step(StepEnd::default()),
            Settlement::Interrupted { .. } | Settlement::ProviderFailed | Settlement::ToolInfraFailed { .. } => {
                ledger.fail_assistant(StepEnd::default())
            }
        });
        settlement
    }

    /// What the checker says about the log.
    pub(crate) fn breaches(&self) -> Vec<Breach> {
        check_events(placed(&self.log))
    }
}

/// An event in a line: its kind, and its fields but for the step.
pub(crate) fn line(event: &Event) -> String {
    let row = NewRow::encode(event, Timestamp::default()).unwrap();
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&row.body).unwrap();
    if fields.get("message") == Some(&json!(step(1))) {
        fields.remove("message");
    }
    match fields.is_empty() {
        true => row.kind,
        false => format!("{} {}", row.kind, serde_json::Value::Object(fields)),
    }
}

/// Events as lines.
pub(crate) fn lines(events: &[Event]) -> Vec<String> {
    events.iter().map(line).collect()
}

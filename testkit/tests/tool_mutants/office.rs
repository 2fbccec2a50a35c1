//! Tools of an office: one for each thing that the suite looks at, and each wrong in one thing if it is told so.
//!
//! A mutation is named after the case that must find it, and stands where it spoils something.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use settled_tools_api::{
    Content, Media, Reconciled, Reconciler, Replay, ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor,
    ToolOutput, ToolReturn,
};

/// The most bytes that `print` gives.
const BOUND: usize = 4_096;

/// All that the tools can change.
#[derive(Default)]
pub(crate) struct World {
    balance: u64,
    charged: BTreeSet<String>,
    /// What was shipped to whom, by effect key.
    shipped: BTreeMap<String, String>,
    approved: u64,
    /// Traces that nobody should leave.
    traces: u64,
    /// What the mutants remember.
    finished: BTreeSet<String>,
    current: String,
    questions: BTreeMap<String, u64>,
}

/// The tools, wrong in one thing.
#[derive(Clone)]
pub(crate) struct Office {
    fault: &'static str,
    world: Arc<Mutex<World>>,
    working: Arc<AtomicUsize>,
    /// Set by mutants that let one run stop another.
    stopped: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

/// A run at work.
struct Working(Arc<AtomicUsize>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Stops the runs beside it when it is dropped.
struct StopsOthers(Arc<AtomicBool>);

impl Drop for StopsOthers {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What reaches over the network takes this long.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

impl Office {
    pub(crate) fn new(fault: &'static str) -> Self {
        Self { fault, world: Arc::default(), working: Arc::default(), stopped: Arc::default(), asked: Arc::default() }
    }

    pub(crate) fn working(&self) -> usize {
        self.working.load(Ordering::SeqCst)
    }

    /// All that there is to see of the world.
    pub(crate) fn look(&self) -> Value {
        let world = self.world();
        match self.is("effect.seen") {
            true => json!(null),
            false => {
                json!({"balance": world.balance, "shipped": world.shipped, "approved": world.approved, "traces": world.traces})
            }
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn is(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn at_work(&self) -> Working {
        self.working.fetch_add(1, Ordering::SeqCst);
        Working(self.working.clone())
    }

    /// A text of the input.
    fn text(&self, input: &Value, name: &str) -> Result<String, ToolError> {
        if self.is("input.odd") && input[name].as_str().is_some_and(str::is_empty) {
            panic!("`{name}` is empty");
        }
        match input[name].as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(self.refused(name)),
        }
    }

    fn number(&self, input: &Value, name: &str) -> Result<u64, ToolError> {
        input[name].as_u64().filter(|number| (1..10_000).contains(number)).ok_or_else(|| self.refused(name))
    }

    fn refused(&self, name: &str) -> ToolError {
        if self.is("input.refused_acts_not") {
            self.world().traces += 1;
        }
        match self.fault {
            "input.refused" => ToolError::infra("bad input"),
            "input.says_why" => ToolError::failed(" "),
            _ => ToolError::failed(format!("`{name}` is missing, or not what it should be")),
        }
    }

    async fn balance(&self, input: &Value) -> Result<ToolReturn, ToolError> {
        let account = self.text(input, "account")?;
        let currency = input.get("currency").map_or_else(|| Ok("EUR".to_owned()), |_| self.text(input, "currency"))?;
        if self.is("input.taken") && currency != "EUR" {
            return Err(ToolError::failed("only EUR"));
        }
        if !["ann", "ben"].contains(&account.as_str()) {
            return Err(match self.is("input.failed") {
                true => ToolError::infra("no such account"),
                false => ToolError::failed(format!("no account is named `{account}`")),
            });
        }
        if self.is("pure.acts_not") {
            self.world().traces += 1;
        }
        self.world().current.clone_from(&account);
        pause().await;
        let account = if self.is("beside.answers") { self.world().current.clone() } else { account };
        let picture = if self.is("output.media") { "no base64!" } else { "aGVsbG8=" };
        let text = format!("the balance of {account} is 0 {currency}");
        let content = [Content::Text(text), Content::Media(Media::base64("image/png", picture))];
        Ok(ToolReturn::Output(ToolOutput::new(content)))
    }

    async fn charge(&self, input: &Value, key: &str) -> Result<ToolReturn, ToolError> {
        self.text(input, "account")?;
        let cents = self.number(input, "cents")?;
        let known = self.world().charged.contains(key);
        if self.is("beside.effects") {
            let balance = self.world().balance;
            pause().await;
            self.world().balance = balance + cents;
            return Ok(ToolReturn::text(format!("charged {cents}")));
        }
        pause().await;
        match self.fault {
            "idempotent.twice" => self.world().balance += cents,
            "idempotent.at_once" if !known => {
                self.world().balance += cents;
                self.world().charged.insert(key.to_owned());
            }
            "idempotent.at_once" => {}
            "idempotent.cut" if !known => {
                self.world().balance += cents;
                pause().await;
                self.world().charged.insert(key.to_owned());
            }
            "idempotent.cut" => {}
            "drop.quiet" => {
                let office = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    office.world().balance += cents;
                });
                pause().await;
            }
            _ => {
                let mut world = self.world();
                if world.charged.insert(key.to_owned()) {
                    world.balance += cents;
                }
            }
        }
        pause().await;
        Ok(ToolReturn::text(format!("charged {cents}")))
    }

    async fn ship(&self, input: &Value, context: &ToolContext) -> Result<ToolReturn, ToolError> {
        let to = self.text(input, "to")?;
        let key = context.effect_key().as_str();
        if self.is("reconcile.again") && !context.info().notes.is_empty() {
            self.world().traces += 1;
        }
        if self.is("drop.goes_on") {
            self.stopped.store(true, Ordering::SeqCst);
        }
        let noted = context.note(json!({"to": to})).await;
        if !self.is("notes.lost") {
            noted.map_err(|lost| ToolError::infra(lost.to_string()))?;
        }
        pause().await;
        self.world().shipped.insert(key.to_owned(), to.clone());
        pause().await;
        self.world().finished.insert(key.to_owned());
        self.stopped.store(false, Ordering::SeqCst);
        Ok(ToolReturn::text(format!("shipped to {to}")))
    }

    async fn watch(&self, input: &Value, context: &ToolContext) -> Result<ToolReturn, ToolError> {
        self.text(input, "topic")?;
        let working = self.at_work();
        let _stops_others = self.is("beside.drop").then(|| StopsOthers(self.stopped.clone()));
        let blind = self.is("cancel.before") && context.cancel().is_cancelled();
        if self.is("drop.leaves_nothing") {
            tokio::spawn(async move {
                let _working = working;
                std::future::pending::<()>().await;
            });
            return self.until_cancelled(context, blind).await;
        }
        if self.is("progress.not_after") {
            let context = context.clone();
            tokio::spawn(async move {
                loop {
                    context.progress(json!("…"));
                    tokio::time::sleep(Duration::from_millis(7)).await;
                }
            });
        }
        let end = self.until_cancelled(context, blind).await;
        let office = self.clone();
        match self.fault {
            "cancel.leaves_nothing" => std::mem::forget(working),
            "cancel.quiet" => drop(tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(50)).await;
                office.world().traces += 1;
            })),
            "cancel.goes_on" | "beside.cancel" => self.stopped.store(true, Ordering::SeqCst),
            _ => {}
        }
        end
    }

    async fn until_cancelled(&self, context: &ToolContext, blind: bool) -> Result<ToolReturn, ToolError> {
        context.progress(json!("watching"));
        if blind || self.is("cancel.stops") {
            std::future::pending::<()>().await;
        }
        context.cancel().cancelled().await;
        Err(ToolError::failed("stopped"))
    }

    async fn print(&self, input: &Value, context: &ToolContext) -> Result<ToolReturn, ToolError> {
        let lines = self.number(input, "lines")?;
        if !self.is("progress.shown") {
            context.progress(json!({ "lines": lines }));
        }
        pause().await;
        let mut text: String = (0..lines).map(|line| format!("line {line}\n")).collect();
        if text.len() > BOUND && !self.is("output.bounded") {
            text.truncate(BOUND - 30);
            text.push_str("… the rest is left out");
        }
        Ok(ToolReturn::text(text))
    }

    async fn approve(&self, call: &ToolCall) -> Result<ToolReturn, ToolError> {
        let cents = self.number(&call.input, "cents")?;
        if self.is("ask.acts_not") {
            self.world().approved += 1;
        }
        let Some(answered) = &call.answered else {
            let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            let id = format!("question-{number}");
            self.world().questions.insert(id.clone(), cents);
            let question = if self.is("ask.asks") { String::new() } else { format!("Approve {cents} cents?") };
            return Ok(ToolReturn::ask(question, json!({"cents": cents, "id": id})));
        };
        let asked = match self.fault {
            "ask.answered" => self.world().questions.get(answered.state["id"].as_str().unwrap()).copied(),
            "ask.foreign_state" => Some(answered.state["cents"].as_u64().unwrap()),
            _ => answered.state["cents"].as_u64(),
        };
        if asked != Some(cents) {
            return Err(ToolError::failed("that is the answer to another question"));
        }
        self.world().approved += 1;
        Ok(ToolReturn::text(format!("{}: {cents} cents", answered.answer)))
    }
}

fn tool(name: &str, description: &str, properties: Value, required: &[&str]) -> ToolDefinition {
    let schema =
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    ToolDefinition::new(name, description, schema)
}

#[async_trait]
impl ToolExecutor for Office {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let day = Duration::from_secs(86_400);
        let account = json!({"type": "string", "description": "Whose account.", "examples": ["ann"]});
        let currency = json!({"type": "string", "default": "EUR"});
        let cents = json!({"type": "integer", "minimum": 1, "maximum": 9_999});
        let mut all = vec![
            tool("balance", "Shows a balance.", json!({"account": account, "currency": currency}), &["account"])
                .replay(Replay::Pure),
            tool("charge", "Charges an account.", json!({"account": account, "cents": cents}), &["account", "cents"])
                .replay(Replay::Idempotent { valid_for: day }),
            tool("ship", "Ships a parcel.", json!({"to": {"type": "string"}}), &["to"])
                .replay(Replay::Reconcile(Arc::new(Asks(self.clone())))),
            tool("watch", "Watches a topic.", json!({"topic": {"type": "string"}}), &["topic"]),
            tool("print", "Prints lines.", json!({"lines": {"type": "integer"}}), &["lines"]),
            tool("approve", "Asks for an approval.", json!({"cents": cents}), &["cents"]),
        ];
        match self.fault {
            "name.well_formed" => all.push(tool("a name", "Has a name with a blank.", json!({}), &[])),
            "name.unique" => all.push(all[0].clone()),
            "definitions.same" => {
                all[0].description.push_str(&"!".repeat(self.asked.fetch_add(1, Ordering::SeqCst)));
            }
            "description.words" => all[3].description = " ".to_owned(),
            "schema.object" => all[3].input_schema["anyOf"] = json!([{}]),
            "schema.valid" => all[3].input_schema["properties"]["topic"]["type"] = json!("text"),
            "schema.required" => all[3].input_schema["required"] = json!(["topics"]),
            "schema.takes" => all[1].input_schema["properties"]["cents"]["minimum"] = json!(3),
            "schema.examples" => all[0].input_schema["properties"]["currency"]["default"] = json!(7),
            "schema.refuses" => all[1].input_schema["properties"]["cents"] = json!({}),
            "limits.some_time" => all[1].replay = Replay::Idempotent { valid_for: Duration::ZERO },
            _ => {}
        }
        all
    }

    async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError> {
        if self.is("deadline.passed") {
            let remaining = context.remaining();
            let _margin = remaining.map(|remaining| remaining - Duration::from_secs(1));
        }
        let beside = call.name != "watch";
        if beside && self.is("cancel.goes_on") && self.stopped.load(Ordering::SeqCst) {
            return Err(ToolError::failed("busy"));
        }
        if call.name != "ship" && self.is("drop.goes_on") && self.stopped.load(Ordering::SeqCst) {
            return Err(ToolError::failed("busy"));
        }
        let end = match call.name.as_str() {
            "balance" => self.balance(&call.input).await,
            "charge" => self.charge(&call.input, context.effect_key().as_str()).await,
            "ship" => self.ship(&call.input, &context).await,
            "watch" => self.watch(&call.input, &context).await,
            "print" => self.print(&call.input, &context).await,
            "approve" => self.approve(&call).await,
            other if self.is("input.unknown_tool") => unreachable!("no tool is named `{other}`"),
            other => Err(ToolError::failed(format!("no tool is named `{}`", other.escape_debug()))),
        };
        let others_stop = self.is("beside.cancel") || self.is("beside.drop");
        if beside && others_stop && self.stopped.load(Ordering::SeqCst) {
            return Err(ToolError::failed("stopped"));
        }
        end
    }
}

/// Asks the office whether a parcel went out.
struct Asks(Office);

#[async_trait]
impl Reconciler for Asks {
    async fn reconcile(&self, call: &ToolCall, context: &ToolContext) -> Reconciled {
        let Self(office) = self;
        let key = context.effect_key().as_str();
        let to = call.input["to"].as_str().unwrap_or_default();
        let mut world = office.world();
        let found = world.shipped.get(key).cloned();
        let shipped = |to: &str| Reconciled::Happened(ToolOutput::text(format!("shipped to {to}")));
        match (office.fault, found) {
            ("reconcile.before", _) => shipped(to),
            ("reconcile.happened", _) => Reconciled::CannotTell,
            ("reconcile.answer", Some(_)) => Reconciled::Happened(ToolOutput::text("it happened")),
            ("reconcile.acts_not", None) => {
                world.shipped.insert(key.to_owned(), to.to_owned());
                Reconciled::DidNot
            }
            ("reconcile.other_call", None) if world.shipped.values().any(|known| known == to) => shipped(to),
            ("reconcile.cut", _) if !world.finished.contains(key) => Reconciled::DidNot,
            (_, Some(to)) => shipped(&to),
            (_, None) => Reconciled::DidNot,
        }
    }
}

//! Reading a scenario, strictly: a key that is not known is an error that names it and its place.

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value, json};
use settled_ledger::{Delivery, Event};
use settled_provider_api::{
    Content, ErrorClass, Finish, FinishReason, ModelInfo, Price, ProviderError, Rates, RequestKind, Usage,
};
use settled_runner::Settings;
use settled_tools_api::{Media, Reconciled, Replay, ToolDefinition, ToolOutput};

use super::plan::{Item, Model, Placed, Plan, Roles, StoreFault, Tool, Trigger};
use crate::faults::{At, Fault};
use crate::script::{Answer, Script, Stream};
use crate::tools::{Action, Permission, ToolRun, reconciled};

/// A file that is no scenario: where, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParseError {
    /// The place in the file, as `script[2].when`; empty for the file as a whole.
    pub place: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.what),
            place => write!(f, "at `{place}`: {}", self.what),
        }
    }
}

impl std::error::Error for ParseError {}

type Parsed<T> = Result<T, ParseError>;

fn wrong<T>(place: &str, what: impl Into<String>) -> Parsed<T> {
    Err(ParseError { place: place.to_owned(), what: what.into() })
}

pub(super) fn plan(text: &str) -> Parsed<(Plan, Roles)> {
    let value: Value = serde_json::from_str(text).or_else(|error| wrong("", format!("not JSON: {error}")))?;
    let mut file = Fields::of(value, "")?;
    let name = file.required("name")?.text()?;
    let why = file.optional("why").map(Node::text).transpose()?;
    let mut models = vec![file.optional("model").map_or_else(|| Ok(Model::default()), model)?];
    let (settings, max_steps) = file.optional("settings").map_or_else(|| Ok((quiet_settings(), None)), settings)?;
    let tools = file.optional("tools").map_or_else(|| Ok(Vec::new()), tools)?;
    let provider = file.required("provider")?.list()?.into_iter().try_fold(Script::default(), entry)?;
    let items = match file.optional("script") {
        Some(items) => items.list()?.into_iter().map(|item| script_item(item, Inner::No)).collect::<Parsed<_>>()?,
        None => vec![
            Placed {
                place: "script".to_owned(),
                item: Item::Prompt { text: "Hello".to_owned(), delivery: Delivery::Steer, key: None },
            },
            Placed { place: "script".to_owned(), item: Item::Run },
        ],
    };
    let faults = match file.optional("store") {
        Some(faults) => faults.list()?.into_iter().map(store_fault).collect::<Parsed<_>>()?,
        None => Vec::new(),
    };
    let expect = file.optional("expect").map(|expect| expect.value);
    file.finish()?;
    if let Some(expect) = &expect {
        check_expect(expect)?;
    }
    for item in &items {
        let switched = match &item.item {
            Item::Model(model) => Some(model),
            Item::When { act, .. } => match act.as_ref() {
                Item::Model(model) => Some(model),
                _ => None,
            },
            _ => None,
        };
        if let Some(model) = switched {
            match models.iter().find(|known| known.id == model.id) {
                Some(known) if known != model => {
                    return wrong(
                        &item.place,
                        format!("the model `{}` is given twice, with different limits", model.id),
                    );
                }
                Some(_) => {}
                None => models.push(model.clone()),
            }
        }
    }
    let plan = Plan { name, why, system: Vec::new(), models, settings, max_steps, items, faults, expect, ordeal: None };
    Ok((plan, Roles { tools, provider }))
}

/// What the reconciler of a scripted tool gives for a call that has happened.
pub(super) const HAPPENED: &str = "It had happened.";

/// The product's defaults, without jitter.
pub(crate) fn quiet_settings() -> Settings {
    let mut settings = Settings::default();
    settings.retry.jitter = 0.0;
    settings
}

fn model(node: Node) -> Parsed<Model> {
    let mut fields = node.fields()?;
    let id = fields.optional("id").map(Node::text).transpose()?;
    let context = fields.number_or_none("context")?;
    let output = fields.number_or_none("output")?;
    let price = fields.optional("price").map(price).transpose()?;
    fields.finish()?;
    let info = ModelInfo::new().limits(context, output).price(price);
    Ok(Model { id: id.unwrap_or_else(|| Model::default().id), info })
}

fn price(node: Node) -> Parsed<Price> {
    let mut fields = node.fields()?;
    let rates = Rates::new(fields.required("input")?.number()?, fields.required("output")?.number()?)
        .cache(fields.number_or_none("cache_read")?, fields.number_or_none("cache_write")?);
    fields.finish()?;
    Ok(Price::new(rates))
}

fn settings(node: Node) -> Parsed<(Settings, Option<u32>)> {
    let mut settings = quiet_settings();
    let mut fields = node.fields()?;
    let max_steps = fields.optional("max_steps").map(Node::small).transpose()?;
    if let Some(limit) = fields.optional("parallel_tools") {
        settings.parallel_tools = limit.size()?;
    }
    for (name, limit) in [
        ("first_event", &mut settings.first_event),
        ("stream_idle", &mut settings.stream_idle),
        ("cancel_grace", &mut settings.cancel_grace),
    ] {
        if let Some(span) = fields.optional(name) {
            *limit = span.span()?;
        }
    }
    for (name, limit) in [("tool_idle", &mut settings.tool_idle), ("tool_deadline", &mut settings.tool_deadline)] {
        if let Some(span) = fields.optional(name) {
            *limit = if span.value == json!("off") { None } else { Some(span.span()?) };
        }
    }
    if let Some(retry) = fields.optional("retry") {
        let mut retry = retry.fields()?;
        if let Some(max) = retry.optional("max") {
            settings.retry.max = max.small()?;
        }
        if let Some(base) = retry.optional("base") {
            settings.retry.base = base.span()?;
            settings.retry.cap = settings.retry.cap.max(settings.retry.base);
        }
        retry.finish()?;
    }
    if let Some(compaction) = fields.optional("compaction") {
        let mut compaction = compaction.fields()?;
        if let Some(auto) = compaction.optional("auto") {
            settings.compaction.auto = auto.truth()?;
        }
        if let Some(on_overflow) = compaction.optional("on_overflow") {
            settings.compaction.on_overflow = on_overflow.truth()?;
        }
        if let Some(buffer) = compaction.optional("buffer") {
            settings.compaction.buffer = buffer.number()?;
        }
        if let Some(keep) = compaction.optional("keep") {
            settings.compaction.keep = keep.number()?;
        }
        compaction.finish()?;
    }
    if let Some(output) = fields.optional("output") {
        let mut output = output.fields()?;
        if let Some(lines) = output.optional("lines") {
            settings.output.lines = lines.size()?;
        }
        if let Some(bytes) = output.optional("bytes") {
            settings.output.bytes = bytes.size()?;
        }
        output.finish()?;
    }
    if let Some(restarts) = fields.optional("restarts") {
        settings.restarts = restarts.small()?;
    }
    fields.finish()?;
    Ok((settings, max_steps))
}

fn tools(node: Node) -> Parsed<Vec<Tool>> {
    let fields = node.fields()?;
    let named = fields.map.into_iter().map(|(name, value)| {
        let place = join(&fields.place, &name);
        (name, Node { value, place })
    });
    named.map(|(name, node)| tool(name, node)).collect()
}

fn tool(name: String, node: Node) -> Parsed<Tool> {
    let mut fields = node.fields()?;
    let schema = fields.optional("input").map_or_else(|| json!({"type": "object"}), |schema| schema.value);
    let found = match fields.optional("reconciled") {
        None => Reconciled::CannotTell,
        Some(found) => match found.text()?.as_str() {
            "happened" => Reconciled::Happened(ToolOutput::text(HAPPENED)),
            "did_not" => Reconciled::DidNot,
            "still_running" => Reconciled::StillRunning,
            "cannot_tell" => Reconciled::CannotTell,
            other => return wrong(&join(&fields.place, "reconciled"), not_a_word(other)),
        },
    };
    let replay = match fields.optional("replay") {
        None => Replay::AtMostOnce,
        Some(class) => match class.text()?.as_str() {
            "at_most_once" => Replay::AtMostOnce,
            "pure" => Replay::Pure,
            "idempotent" => Replay::Idempotent { valid_for: Duration::from_secs(24 * 60 * 60) },
            "reconcile" => reconciled(found),
            other => return wrong(&join(&fields.place, "replay"), not_a_word(other)),
        },
    };
    let mut definition = ToolDefinition::new(&name, format!("The scripted tool {name}."), schema).replay(replay);
    if let Some(exclusive) = fields.optional("exclusive")
        && exclusive.truth()?
    {
        definition = definition.exclusive();
    }
    let permission = match fields.optional("policy") {
        None => Permission::Allow,
        Some(policy) => match policy.text()?.as_str() {
            "allow" => Permission::Allow,
            "ask" => Permission::Ask,
            "deny" => Permission::Deny,
            other => return wrong(&join(&fields.place, "policy"), not_a_word(other)),
        },
    };
    let runs: Vec<ToolRun> = fields.required("runs")?.list()?.into_iter().map(tool_run).collect::<Parsed<_>>()?;
    if runs.is_empty() {
        return wrong(&join(&fields.place, "runs"), "it needs at least one list of actions");
    }
    fields.finish()?;
    Ok(Tool { definition, permission, runs })
}

fn tool_run(node: Node) -> Parsed<ToolRun> {
    node.list()?.into_iter().try_fold(ToolRun::default(), |run, node| {
        let (kind, node) = node.single()?;
        let action = match kind.as_str() {
            "sleep" => Action::Sleep(node.number()?),
            "progress" => Action::Progress(node.value),
            "note" => Action::Note(node.value),
            "effect" => node.nothing(Action::Effect)?,
            "ignore_cancel" => Action::IgnoreCancel(node.number()?),
            "ask" => Action::Ask(node.text()?),
            "ok" => Action::Ok(content(node)?),
            "fail" => Action::Fail(node.text()?),
            "unknown" => Action::Unknown(node.text()?),
            "panic" => Action::Panic(node.text()?),
            "infra" => Action::Infra(node.text()?),
            "decline" => Action::Decline(Some(node.text()?).filter(|feedback| !feedback.is_empty())),
            "dismiss" => node.nothing(Action::Dismiss)?,
            "hang" => node.nothing(Action::Hang)?,
            "echo" => node.nothing(Action::Echo)?,
            other => return wrong(&node.place, format!("there is no action `{other}`")),
        };
        Ok(run.action(action))
    })
}

/// A text, or a list of parts: `{"text": "..."}`, `{"media": "image/png", "data"?: "base64"}`.
fn content(node: Node) -> Parsed<Vec<Content>> {
    if node.value.is_string() {
        return Ok(vec![Content::Text(node.text()?)]);
    }
    node.list()?
        .into_iter()
        .map(|part| {
            let mut fields = part.fields()?;
            let part = match (fields.optional("text"), fields.optional("media")) {
                (Some(text), None) => Content::Text(text.text()?),
                (None, Some(mime)) => {
                    let data = fields.optional("data").map(Node::text).transpose()?;
                    Content::Media(Media::base64(mime.text()?, data.unwrap_or_default()))
                }
                _ => return wrong(&fields.place, "a part has either `text` or `media`"),
            };
            fields.finish()?;
            Ok(part)
        })
        .collect()
}

fn entry(script: Script, node: Node) -> Parsed<Script> {
    let mut fields = node.fields()?;
    let serves = match fields.optional("for") {
        None => None,
        Some(kind) => match kind.text()?.as_str() {
            "step" => Some(RequestKind::Step),
            "summary" => Some(RequestKind::Summary),
            other => return wrong(&join(&fields.place, "for"), not_a_word(other)),
        },
    };
    let answer = match (fields.optional("stream"), fields.optional("fail")) {
        (Some(items), None) => {
            Answer::Stream(items.list()?.into_iter().try_fold(Stream::default(), stream_item)?.items)
        }
        (None, Some(error)) => Answer::Fail(failure(error)?),
        _ => return wrong(&fields.place, "an entry has either `stream` or `fail`"),
    };
    fields.finish()?;
    Ok(script.entry(serves, answer))
}

fn stream_item(stream: Stream, node: Node) -> Parsed<Stream> {
    let (kind, node) = node.single()?;
    Ok(match kind.as_str() {
        "start" => node.nothing(stream.start())?,
        "text" => stream.text(node.text()?),
        "reasoning" => {
            let mut fields = node.fields()?;
            let text = fields.required("text")?.text()?;
            let state = fields.optional("state").map(|state| state.value);
            fields.finish()?;
            stream.reasoning(text, state)
        }
        "call" | "hosted" => {
            let (id, name, input) = call(node.fields()?, |fields| fields.required("input").map(|input| input.value))?;
            if kind == "hosted" { stream.hosted(id, name, input) } else { stream.call_as(id, name, input) }
        }
        "hosted_result" => {
            let mut fields = node.fields()?;
            let id = fields.required("id")?.text()?;
            let content = content(fields.required("content")?)?;
            fields.finish()?;
            stream.hosted_result(id, content)
        }
        "hosted_error" => {
            let mut fields = node.fields()?;
            let (id, message) = (fields.required("id")?.text()?, fields.required("message")?.text()?);
            fields.finish()?;
            stream.hosted_error(id, message)
        }
        "text_start" => stream.text_start(node.text()?),
        "text_delta" => {
            let (name, text) = node.pair()?;
            stream.text_delta(name, text)
        }
        "text_end" => {
            let (name, text) = node.one_or_pair()?;
            stream.text_end(name, text)
        }
        "reasoning_start" => stream.reasoning_start(node.text()?),
        "reasoning_delta" => {
            let (name, text) = node.pair()?;
            stream.reasoning_delta(name, text)
        }
        "reasoning_end" => {
            let (name, text) = node.one_or_pair()?;
            stream.reasoning_end(name, text)
        }
        "input_start" => {
            let (id, name, hosted) = call(node.fields()?, Fields::hosted)?;
            stream.opens(id, name, hosted)
        }
        "input_delta" => {
            let (id, text) = node.pair()?;
            stream.input_delta(id, text)
        }
        "input_end" => stream.input_end(node.text()?),
        "called" => {
            let (id, name, (input, hosted)) =
                call(node.fields()?, |fields| Ok((fields.required("input")?.value, fields.hosted()?)))?;
            stream.completes(id, name, input, hosted)
        }
        "malformed" => {
            let (id, name, raw) = call(node.fields()?, |fields| fields.required("raw")?.text())?;
            stream.malformed(id, name, raw)
        }
        "alive" => node.nothing(stream.alive())?,
        "finish" => stream.finish_with(finish(node)?),
        "error" => stream.error(failure(node)?),
        "throw" => stream.throw(failure(node)?),
        "wait" => stream.wait(node.number()?),
        "gate" => stream.gate(node.text()?),
        "hang" => node.nothing(stream.hang())?,
        "panic" => stream.panic(node.text()?),
        other => return wrong(&node.place, format!("there is no stream item `{other}`")),
    })
}

/// The id and the name of a call, and what else it has.
fn call<T>(mut fields: Fields, rest: impl FnOnce(&mut Fields) -> Parsed<T>) -> Parsed<(String, String, T)> {
    let id = fields.required("id")?.text()?;
    let name = fields.required("name")?.text()?;
    let rest = rest(&mut fields)?;
    fields.finish()?;
    Ok((id, name, rest))
}

fn finish(node: Node) -> Parsed<Finish> {
    const REASONS: [FinishReason; 7] = [
        FinishReason::Stop,
        FinishReason::ToolCalls,
        FinishReason::Length,
        FinishReason::ContentFilter,
        FinishReason::Refusal,
        FinishReason::Pause,
        FinishReason::Unknown,
    ];
    let mut fields = node.fields()?;
    let reason = fields.required("reason")?;
    let place = reason.place.clone();
    let word = reason.text()?;
    let Some(reason) = REASONS.into_iter().find(|reason| reason.name() == word) else {
        return wrong(&place, not_a_word(&word));
    };
    let mut finish = Finish::new(reason);
    if let Some(raw) = fields.optional("raw") {
        finish = finish.raw(raw.text()?);
    }
    if let Some(usage) = fields.optional("usage") {
        let mut usage = usage.fields()?;
        let counts = Usage::new(usage.number_or_none("input")?, usage.number_or_none("output")?)
            .reasoning(usage.number_or_none("reasoning")?)
            .cache_read(usage.number_or_none("cache_read")?)
            .cache_write(usage.number_or_none("cache_write")?);
        usage.finish()?;
        finish = finish.usage(counts);
    }
    fields.finish()?;
    Ok(finish)
}

fn failure(node: Node) -> Parsed<ProviderError> {
    let mut fields = node.fields()?;
    let class = fields.required("class")?;
    let place = class.place.clone();
    let word = class.text()?;
    let Some(class) = ErrorClass::ALL.into_iter().find(|class| class.name() == word) else {
        return wrong(&place, not_a_word(&word));
    };
    let message = fields.optional("message").map(Node::text).transpose()?;
    let mut error = ProviderError::new(class, message.unwrap_or_default());
    if let Some(status) = fields.optional("status") {
        let place = status.place.clone();
        let status = u16::try_from(status.number()?);
        error = error.status(status.or_else(|_| wrong(&place, "it is no HTTP status"))?);
    }
    error = error.code(fields.optional("code").map(Node::text).transpose()?);
    error = error.retry_after(fields.optional("retry_after").map(Node::span).transpose()?);
    fields.finish()?;
    Ok(error)
}

/// Whether an item stands in the `do` of another.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inner {
    Yes,
    No,
}

const SCRIPT_ITEMS: [&str; 15] = [
    "prompt",
    "run",
    "start",
    "interrupt",
    "approve",
    "decline",
    "answer",
    "dismiss",
    "compact",
    "open",
    "cancel_input",
    "advance",
    "model",
    "crash",
    "when",
];

fn script_item(node: Node, inner: Inner) -> Parsed<Placed> {
    let place = node.place.clone();
    let mut fields = node.fields()?;
    let kinds: Vec<&str> = SCRIPT_ITEMS.into_iter().filter(|kind| fields.map.contains_key(*kind)).collect();
    let [kind] = kinds[..] else {
        let keys: Vec<&str> = fields.map.keys().map(String::as_str).collect();
        return wrong(&place, format!("it must be one script item, and has the keys: {}", keys.join(", ")));
    };
    if inner == Inner::Yes && matches!(kind, "run" | "start" | "advance" | "when") {
        return wrong(&place, format!("`{kind}` may not be what a trigger does"));
    }
    let node = fields.required(kind)?;
    let item = match kind {
        "prompt" => {
            let delivery = match fields.optional("delivery") {
                None => Delivery::Steer,
                Some(delivery) => match delivery.text()?.as_str() {
                    "steer" => Delivery::Steer,
                    "queue" => Delivery::Queue,
                    other => return wrong(&join(&place, "delivery"), not_a_word(other)),
                },
            };
            let key = fields.optional("key").map(Node::text).transpose()?;
            Item::Prompt { text: node.text()?, delivery, key }
        }
        "run" => node.nothing(Item::Run)?,
        "start" => node.nothing(Item::Start)?,
        "interrupt" => node.nothing(Item::Interrupt)?,
        "approve" => Item::Approve(node.text()?),
        "decline" => {
            let feedback = fields.optional("feedback").map(Node::text).transpose()?;
            Item::Decline { call: node.text()?, feedback: feedback.filter(|feedback| !feedback.is_empty()) }
        }
        "answer" => {
            let (call, text) = node.pair()?;
            Item::Answer { call, text }
        }
        "dismiss" => Item::Dismiss(node.text()?),
        "compact" => node.nothing(Item::Compact)?,
        "open" => Item::Open(node.text()?),
        "cancel_input" => Item::CancelInput(node.text()?),
        "advance" => Item::Advance(node.number()?),
        "model" => Item::Model(model(node)?),
        "crash" => node.nothing(Item::Crash)?,
        _ => {
            let on = trigger(node)?;
            let act = script_item(fields.required("do")?, Inner::Yes)?;
            Item::When { on, act: Box::new(act.item) }
        }
    };
    fields.finish()?;
    Ok(Placed { place, item })
}

fn trigger(node: Node) -> Parsed<Trigger> {
    let mut fields = node.fields()?;
    let trigger = match (fields.optional("event"), fields.optional("running"), fields.optional("live")) {
        (Some(event), None, None) => Trigger::Event(at(event, &mut fields)?),
        (None, Some(call), None) => Trigger::Running(call.text()?),
        (None, None, Some(live)) => {
            let place = live.place.clone();
            let kind = live.text()?;
            if !LIVE.contains(&kind.as_str()) {
                return wrong(&place, format!("there is no live event `{kind}`; there are: {}", LIVE.join(", ")));
            }
            Trigger::Live { kind, nth: fields.nth()? }
        }
        _ => return wrong(&fields.place, "a trigger has one of `event`, `running`, `live`"),
    };
    fields.finish()?;
    Ok(trigger)
}

const LIVE: [&str; 5] = ["text.delta", "reasoning.delta", "tool.input.delta", "tool.progress", "compaction.delta"];

/// The place of a durable event, whose kind was taken out of its fields already.
fn at(event: Node, fields: &mut Fields) -> Parsed<At> {
    let place = event.place.clone();
    let event = event.text()?;
    if !Event::KINDS.iter().any(|(kind, _)| *kind == event) {
        return wrong(&place, format!("there is no durable event `{event}`"));
    }
    let call = fields.optional("call").map(Node::text).transpose()?;
    Ok(At { event, call, nth: fields.nth()? })
}

fn store_fault(node: Node) -> Parsed<(String, StoreFault)> {
    let place = node.place.clone();
    let mut fields = node.fields()?;
    let spot = match fields.optional("at") {
        None => None,
        Some(spot) => {
            let mut spot = spot.fields()?;
            let event = spot.required("event")?;
            let found = at(event, &mut spot)?;
            spot.finish()?;
            Some(found)
        }
    };
    let fault = match (fields.optional("then"), fields.optional("delay"), fields.optional("lose_hints")) {
        (Some(then), None, None) => {
            let then_place = then.place.clone();
            let then = match then.text()?.as_str() {
                "crash_before" => Fault::CrashBefore,
                "crash_after" => Fault::CrashAfter,
                "unavailable" => Fault::Unavailable,
                "unknown_landed" => Fault::UnknownLanded,
                "unknown_lost" => Fault::UnknownLost,
                "fenced" => Fault::Fenced,
                other => return wrong(&then_place, not_a_word(other)),
            };
            match spot {
                Some(at) => StoreFault::Fail { at, then },
                None => return wrong(&place, "`then` needs an `at`"),
            }
        }
        (None, Some(delay), None) => StoreFault::Delay { millis: delay.number()?, at: spot },
        (None, None, Some(lose)) if spot.is_none() => {
            if !lose.truth()? {
                return wrong(&place, "`lose_hints` is true or left out");
            }
            StoreFault::LoseHints
        }
        _ => return wrong(&place, "a fault is `{at, then}`, `{delay, at?}` or `{lose_hints}`"),
    };
    fields.finish()?;
    Ok((place, fault))
}

/// The keys of a result: what may be expected of it.
const RESULT: [&str; 19] = [
    "name",
    "outcome",
    "error",
    "answer",
    "steps",
    "events",
    "live",
    "requests",
    "runs",
    "effects",
    "effect_keys",
    "pending",
    "waiting_for",
    "leaked",
    "unused",
    "appends",
    "elapsed",
    "usage",
    "violations",
];

fn check_expect(expect: &Value) -> Parsed<()> {
    let Some(fields) = expect.as_object() else { return wrong("expect", "it must be an object") };
    match fields.keys().find(|key| !RESULT.contains(&key.as_str())) {
        Some(key) => wrong("expect", format!("unknown key `{key}`: a result has none of that name")),
        None => Ok(()),
    }
}

fn not_a_word(word: &str) -> String {
    format!("`{word}` is none of the words that may stand here")
}

fn join(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

/// A value and where it stands.
struct Node {
    value: Value,
    place: String,
}

impl Node {
    fn fields(self) -> Parsed<Fields> {
        Fields::of(self.value, &self.place)
    }

    fn list(self) -> Parsed<Vec<Self>> {
        let Value::Array(items) = self.value else { return wrong(&self.place, "it must be a list") };
        let place = self.place;
        let node = |(number, value)| Self { value, place: format!("{place}[{number}]") };
        Ok(items.into_iter().enumerate().map(node).collect())
    }

    fn text(self) -> Parsed<String> {
        match self.value {
            Value::String(text) => Ok(text),
            other => wrong(&self.place, format!("it must be a text, and is {other}")),
        }
    }

    fn number(self) -> Parsed<u64> {
        let number = self.value.as_u64();
        number.map_or_else(|| wrong(&self.place, format!("it must be a whole number, not {}", self.value)), Ok)
    }

    fn small(self) -> Parsed<u32> {
        let place = self.place.clone();
        u32::try_from(self.number()?).or_else(|_| wrong(&place, "it is too large"))
    }

    fn size(self) -> Parsed<usize> {
        let place = self.place.clone();
        usize::try_from(self.number()?).or_else(|_| wrong(&place, "it is too large"))
    }

    fn span(self) -> Parsed<Duration> {
        self.number().map(Duration::from_millis)
    }

    fn truth(self) -> Parsed<bool> {
        let truth = self.value.as_bool();
        truth.map_or_else(|| wrong(&self.place, format!("it must be true or false, not {}", self.value)), Ok)
    }

    /// An item that has nothing to say: `{}`.
    fn nothing<T>(self, item: T) -> Parsed<T> {
        self.fields()?.finish()?;
        Ok(item)
    }

    /// Two texts.
    fn pair(self) -> Parsed<(String, String)> {
        let place = self.place.clone();
        let mut items = self.list()?.into_iter();
        match (items.next(), items.next(), items.next()) {
            (Some(first), Some(second), None) => Ok((first.text()?, second.text()?)),
            _ => wrong(&place, "it must be a list of two texts"),
        }
    }

    /// One text, or two.
    fn one_or_pair(self) -> Parsed<(String, Option<String>)> {
        if self.value.is_string() {
            return Ok((self.text()?, None));
        }
        self.pair().map(|(first, second)| (first, Some(second)))
    }

    /// The one key of an object, and its value.
    fn single(self) -> Parsed<(String, Self)> {
        let fields = self.fields()?;
        let keys: Vec<&str> = fields.map.keys().map(String::as_str).collect();
        if keys.len() != 1 {
            return wrong(&fields.place, format!("it must have exactly one key, and has: {}", keys.join(", ")));
        }
        match fields.map.into_iter().next() {
            Some((key, value)) => {
                let place = join(&fields.place, &key);
                Ok((key, Self { value, place }))
            }
            None => wrong(&fields.place, "it is empty"),
        }
    }
}

/// The fields of an object that were not looked at yet.
struct Fields {
    map: Map<String, Value>,
    place: String,
}

impl Fields {
    fn of(value: Value, place: &str) -> Parsed<Self> {
        match value {
            Value::Object(map) => Ok(Self { map, place: place.to_owned() }),
            other => wrong(place, format!("it must be an object, and is {other}")),
        }
    }

    fn optional(&mut self, name: &str) -> Option<Node> {
        self.map.remove(name).map(|value| Node { value, place: join(&self.place, name) })
    }

    fn required(&mut self, name: &str) -> Parsed<Node> {
        let place = self.place.clone();
        self.optional(name).map_or_else(|| wrong(&place, format!("the key `{name}` is missing")), Ok)
    }

    fn number_or_none(&mut self, name: &str) -> Parsed<Option<u64>> {
        self.optional(name).filter(|node| !node.value.is_null()).map(Node::number).transpose()
    }

    fn hosted(&mut self) -> Parsed<bool> {
        self.optional("hosted").map_or(Ok(false), Node::truth)
    }

    fn nth(&mut self) -> Parsed<u64> {
        let Some(node) = self.optional("nth") else { return Ok(1) };
        let place = node.place.clone();
        match node.number()? {
            0 => wrong(&place, "it counts from 1"),
            nth => Ok(nth),
        }
    }

    fn finish(self) -> Parsed<()> {
        match self.map.keys().next() {
            Some(key) => wrong(&self.place, format!("unknown key `{key}`")),
            None => Ok(()),
        }
    }
}

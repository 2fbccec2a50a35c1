//! Tools that follow a script, and count what they do.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use serde_json::{Value, json};
use settled_tools_api::{
    CallKey, Cancelled, Content, Decision, EffectKey, OfferTo, Policy, PolicyCall, Reconciled, Reconciler, Replay,
    ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolOutput, ToolReturn, ToolSource,
};

use crate::pace::{Class, Pace};

/// Tools without a tool.
pub fn tools() -> ScriptedTools {
    ScriptedTools::default()
}

/// A set of tools that follow scripts; a clone is another handle on the same ones.
///
/// They count what they do by effect key, over crashes too: whoever charges twice is seen.
#[derive(Clone, Default)]
#[must_use = "tools do nothing unless a runner offers them"]
pub struct ScriptedTools(Arc<Shared>);

#[derive(Default)]
struct Shared {
    tools: Mutex<BTreeMap<String, Tool>>,
    pace: Mutex<Pace>,
    observer: Mutex<Option<Observer>>,
    done: Mutex<Done>,
}

/// Who is told that a call's tool has had its first poll.
pub(crate) type Observer = Arc<dyn Fn(CallKey) + Send + Sync>;

#[derive(Clone)]
struct Tool {
    definition: ToolDefinition,
    policy: Permission,
    runs: Arc<[Vec<Action>]>,
}

/// What a person or a rule says about a scripted tool before it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "these are all that a policy can say")]
pub enum Permission {
    /// It may run.
    #[default]
    Allow,
    /// A person is asked.
    Ask,
    /// A rule refuses it.
    Deny,
}

#[derive(Default)]
struct Done {
    /// How often each tool has been run.
    runs: BTreeMap<String, usize>,
    calls: BTreeMap<CallKey, CallCounts>,
    running: BTreeMap<CallKey, usize>,
}

/// What one call has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallCounts {
    /// The tool's name.
    pub tool: String,
    /// How often it was run; a run that goes on from its question is the same run.
    pub runs: u64,
    /// How often it has acted.
    pub effects: u64,
    /// The effect keys that its runs saw.
    pub keys: BTreeSet<EffectKey>,
}

/// One thing that a scripted tool does.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Sleep(u64),
    Progress(Value),
    Note(Value),
    Effect,
    EffectOnce,
    IgnoreCancel(u64),
    Ask(String),
    Ok(Vec<Content>),
    Fail(String),
    Unknown(String),
    Panic(String),
    Infra(String),
    Decline(Option<String>),
    Dismiss,
    Hang,
    Echo,
}

/// One run of a scripted tool: what it does, in order.
///
/// A run without an end ends with the text `done`.
#[derive(Clone, Debug, Default)]
#[must_use = "a run does nothing unless it is part of a tool"]
pub struct ToolRun {
    pub(crate) actions: Vec<Action>,
}

impl ToolRun {
    /// Works for so many milliseconds.
    pub fn sleep(self, millis: u64) -> Self {
        self.action(Action::Sleep(millis))
    }

    /// Shows progress.
    pub fn progress(self, progress: Value) -> Self {
        self.action(Action::Progress(progress))
    }

    /// Leaves a durable note.
    pub fn note(self, note: Value) -> Self {
        self.action(Action::Note(note))
    }

    /// Acts on the world: adds one to the call's effects.
    pub fn effect(self) -> Self {
        self.action(Action::Effect)
    }

    /// Acts on a world that knows the effect key: adds one to the call's effects unless it has acted before.
    pub fn effect_once(self) -> Self {
        self.action(Action::EffectOnce)
    }

    /// From here on it notices a cancel only so many milliseconds after it came.
    pub fn ignore_cancel(self, millis: u64) -> Self {
        self.action(Action::IgnoreCancel(millis))
    }

    /// Asks a person; when answered, the run goes on behind this.
    pub fn ask(self, question: impl Into<String>) -> Self {
        self.action(Action::Ask(question.into()))
    }

    /// Ends with a text.
    pub fn ok(self, text: impl Into<String>) -> Self {
        self.action(Action::Ok(vec![Content::Text(text.into())]))
    }

    /// Ends with content.
    pub fn content(self, content: Vec<Content>) -> Self {
        self.action(Action::Ok(content))
    }

    /// Ends with the person's answer if there was one, else with the input as JSON.
    pub fn echo(self) -> Self {
        self.action(Action::Echo)
    }

    /// Ends with a failure of its own.
    pub fn fail(self, text: impl Into<String>) -> Self {
        self.action(Action::Fail(text.into()))
    }

    /// Ends without knowing whether it has acted.
    pub fn unknown(self, text: impl Into<String>) -> Self {
        self.action(Action::Unknown(text.into()))
    }

    /// Panics.
    pub fn panic(self, text: impl Into<String>) -> Self {
        self.action(Action::Panic(text.into()))
    }

    /// Ends because the host's machinery broke.
    pub fn infra(self, text: impl Into<String>) -> Self {
        self.action(Action::Infra(text.into()))
    }

    /// Ends because a person refused it, perhaps with feedback.
    pub fn decline(self, feedback: impl Into<Option<String>>) -> Self {
        self.action(Action::Decline(feedback.into()))
    }

    /// Ends because a person closed its question unanswered.
    pub fn dismiss(self) -> Self {
        self.action(Action::Dismiss)
    }

    /// Does nothing more until it is cancelled.
    pub fn hang(self) -> Self {
        self.action(Action::Hang)
    }

    pub(crate) fn action(mut self, action: Action) -> Self {
        self.actions.push(action);
        self
    }
}

impl ScriptedTools {
    /// One more tool, which takes any object and does the same in every run.
    pub fn tool(self, name: &str, write: impl FnOnce(ToolRun) -> ToolRun) -> Self {
        let definition = ToolDefinition::new(name, format!("The scripted tool {name}."), json!({"type": "object"}));
        self.define(definition, Permission::Allow, [write(ToolRun::default())])
    }

    /// One more tool; its n-th run follows the n-th script, and the last repeats.
    pub fn define(
        self,
        definition: ToolDefinition,
        permission: Permission,
        runs: impl IntoIterator<Item = ToolRun>,
    ) -> Self {
        let runs = runs.into_iter().map(|run| run.actions).collect();
        let tool = Tool { policy: permission, runs, definition };
        self.0.tools.lock().unwrap_or_else(PoisonError::into_inner).insert(tool.definition.name.clone(), tool);
        self
    }

    /// The same tools, whose waits the conductor grants.
    #[cfg(feature = "runner")]
    pub(crate) fn paced(self, pace: Pace) -> Self {
        *self.0.pace.lock().unwrap_or_else(PoisonError::into_inner) = pace;
        self
    }

    /// Says who is told of first polls.
    #[cfg(feature = "runner")]
    pub(crate) fn observed(&self, observer: Observer) {
        *self.0.observer.lock().unwrap_or_else(PoisonError::into_inner) = Some(observer);
    }

    /// What every call has done so far.
    pub fn calls(&self) -> BTreeMap<CallKey, CallCounts> {
        self.done().calls.clone()
    }

    /// How often a tool has acted, over all its calls.
    pub fn effects(&self, tool: &str) -> u64 {
        self.done().calls.values().filter(|call| call.tool == tool).map(|call| call.effects).sum()
    }

    /// How often a tool was run, over all its calls.
    pub fn runs(&self, tool: &str) -> u64 {
        self.done().calls.values().filter(|call| call.tool == tool).map(|call| call.runs).sum()
    }

    /// The calls that run now.
    pub fn running(&self) -> Vec<CallKey> {
        self.done().running.keys().copied().collect()
    }

    fn done(&self) -> MutexGuard<'_, Done> {
        self.0.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> Pace {
        self.0.pace.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn get(&self, name: &str) -> Option<Tool> {
        self.0.tools.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Counts a run and says which script it follows.
    fn begin(&self, tool: &Tool, call: &ToolCall, context: &ToolContext) -> (usize, usize) {
        let key = context.info().call;
        let mut done = self.done();
        let counts = done.calls.entry(key).or_default();
        counts.tool.clone_from(&call.name);
        counts.keys.insert(context.effect_key().clone());
        if let Some(answered) = &call.answered {
            let place =
                |name: &str| answered.state.get(name).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
            if let (Some(run), Some(at)) = (place("run"), place("at")) {
                return (run, at);
            }
        }
        counts.runs += 1;
        let runs = done.runs.entry(call.name.clone()).or_default();
        let run = (*runs).min(tool.runs.len().saturating_sub(1));
        *runs += 1;
        (run, 0)
    }
}

/// A run under way, for as long as its future lives.
struct Running(ScriptedTools, CallKey);

impl Drop for Running {
    fn drop(&mut self) {
        let mut done = self.0.done();
        if let Some(running) = done.running.get_mut(&self.1) {
            *running -= 1;
            if *running == 0 {
                done.running.remove(&self.1);
            }
        }
    }
}

#[async_trait]
impl ToolExecutor for ScriptedTools {
    fn definitions(&self) -> Vec<ToolDefinition> {
        let tools = self.0.tools.lock().unwrap_or_else(PoisonError::into_inner);
        tools.values().map(|tool| tool.definition.clone()).collect()
    }

    async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError> {
        let Some(tool) = self.get(&call.name) else {
            return Err(ToolError::failed(format!("no scripted tool is named `{}`", call.name)));
        };
        let pace = self.pace();
        if pace.is_dead() {
            std::future::pending::<()>().await;
        }
        let key = context.info().call;
        *self.done().running.entry(key).or_default() += 1;
        let _running = Running(self.clone(), key);
        let (run, from) = self.begin(&tool, &call, &context);
        let playing = Playing { tools: self, pace, key, cancel: Watch::new(&context), call: &call, context: &context };
        let actions = tool.runs.get(run).map(Vec::as_slice).unwrap_or_default();
        let mut playing = pin!(playing.play(actions, run, from));
        let mut observer = self.0.observer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        poll_fn(|cx| {
            let polled = playing.as_mut().poll(cx);
            // After the first poll: what the tool did in it has happened.
            if let Some(observer) = observer.take() {
                observer(key);
            }
            polled
        })
        .await
    }
}

#[async_trait]
impl ToolSource for ScriptedTools {
    async fn offer(&self, _: &OfferTo) -> Result<Arc<dyn ToolExecutor>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl Policy for ScriptedTools {
    async fn decide(&self, call: &PolicyCall) -> Decision {
        match self.get(&call.name).map(|tool| tool.policy).unwrap_or_default() {
            Permission::Allow => Decision::Allow,
            Permission::Ask => Decision::Ask(format!("May `{}` run?", call.name)),
            Permission::Deny => Decision::Deny { rule: "scripted".to_owned() },
        }
    }
}

impl std::fmt::Debug for ScriptedTools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedTools").field("calls", &self.done().calls).finish_non_exhaustive()
    }
}

/// A reconciler that always finds the same.
struct Found(Reconciled);

#[async_trait]
impl Reconciler for Found {
    async fn reconcile(&self, _: &ToolCall, _: &ToolContext) -> Reconciled {
        self.0.clone()
    }
}

/// The replay class of a tool whose reconciler always finds the same.
pub fn reconciled(found: Reconciled) -> Replay {
    Replay::Reconcile(Arc::new(Found(found)))
}

type End = Result<ToolReturn, ToolError>;

/// One run as it is played.
struct Playing<'a> {
    tools: &'a ScriptedTools,
    pace: Pace,
    key: CallKey,
    cancel: Watch,
    call: &'a ToolCall,
    context: &'a ToolContext,
}

impl Playing<'_> {
    async fn play(mut self, actions: &[Action], run: usize, from: usize) -> End {
        for (at, action) in actions.iter().enumerate().skip(from) {
            if let Some(end) = self.act(action, run, at).await {
                return end;
            }
        }
        self.end(Ok(ToolReturn::text("done"))).await
    }

    /// Does one thing; gives the run's end if it was that.
    async fn act(&mut self, action: &Action, run: usize, at: usize) -> Option<End> {
        let end = match action {
            Action::Sleep(millis) => return self.wait(*millis).await.err().map(Err),
            Action::Progress(progress) => {
                self.context.progress(progress.clone());
                return None;
            }
            Action::Note(note) => {
                return self
                    .context
                    .note(note.clone())
                    .await
                    .err()
                    .map(|error| Err(ToolError::failed(error.to_string())));
            }
            Action::Effect => {
                if !self.pace.is_dead() {
                    self.tools.done().calls.entry(self.key).or_default().effects += 1;
                }
                return None;
            }
            Action::EffectOnce => {
                if !self.pace.is_dead() {
                    let mut done = self.tools.done();
                    let effects = &mut done.calls.entry(self.key).or_default().effects;
                    *effects = (*effects).max(1);
                }
                return None;
            }
            Action::IgnoreCancel(millis) => {
                self.cancel.ignore = *millis;
                return None;
            }
            Action::Hang => {
                self.cancel.noticed(&self.pace, self.key).await;
                return Some(Err(stopped()));
            }
            Action::Ask(question) => Ok(ToolReturn::ask(question.clone(), json!({"run": run, "at": at + 1}))),
            Action::Ok(content) => Ok(ToolReturn::Output(ToolOutput::new(content.clone()))),
            Action::Echo => Ok(match &self.call.answered {
                Some(answered) => ToolReturn::text(answered.answer.clone()),
                None => ToolReturn::json(&self.call.input),
            }),
            Action::Fail(text) => Err(ToolError::failed(text.clone())),
            Action::Unknown(text) => Err(ToolError::unknown(text.clone())),
            Action::Infra(text) => Err(ToolError::infra(text.clone())),
            Action::Decline(feedback) => Err(ToolError::Declined { feedback: feedback.clone() }),
            Action::Dismiss => Err(ToolError::Dismissed),
            Action::Panic(text) => {
                if let Err(stopped) = self.wait(0).await {
                    return Some(Err(stopped));
                }
                // Without the panic hook's output: this panic is meant.
                std::panic::resume_unwind(Box::new(text.clone()));
            }
        };
        Some(self.end(end).await)
    }

    /// Ends in its turn, unless it is cancelled before.
    async fn end(&mut self, end: End) -> End {
        self.wait(0).await?;
        end
    }

    /// Waits for so long and for its turn; fails where a cancel is noticed before.
    async fn wait(&mut self, millis: u64) -> Result<(), ToolError> {
        let (pace, key) = (self.pace.clone(), self.key);
        let mut turn = pin!(pace.wait(Class::Tool, order(key), millis));
        let noticed = self.cancel.noticed(&pace, key);
        let mut noticed = pin!(noticed);
        poll_fn(|context| {
            if noticed.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(stopped()));
            }
            turn.as_mut().poll(context).map(Ok)
        })
        .await
    }
}

fn order(key: CallKey) -> (u128, u64) {
    (key.step.as_u128(), u64::from(key.ordinal))
}

fn stopped() -> ToolError {
    ToolError::failed("stopped")
}

/// Notices a cancel, perhaps late.
struct Watch {
    cancelled: Cancelled,
    fired: Option<u64>,
    ignore: u64,
}

impl Watch {
    fn new(context: &ToolContext) -> Self {
        Self { cancelled: context.cancel().cancelled(), fired: None, ignore: 0 }
    }

    async fn noticed(&mut self, pace: &Pace, key: CallKey) {
        poll_fn(|context: &mut Context<'_>| Pin::new(&mut self.cancelled).poll(context)).await;
        let fired = *self.fired.get_or_insert_with(|| pace.now());
        let left = fired.saturating_add(self.ignore).saturating_sub(pace.now());
        if left > 0 {
            pace.wait(Class::Tool, order(key), left).await;
        }
    }
}

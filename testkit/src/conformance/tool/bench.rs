//! What a case works with: fresh subjects, runs of a call, and a host that keeps what a run shows.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use settled_tools_api::{
    Ask, CallKey, CancelSource, EffectKey, MessageId, NoteError, Reconciled, Reconciler, Replay, RunInfo, SessionId,
    ToolCall, ToolContext, ToolDefinition, ToolError, ToolHost, ToolOutput, ToolReturn,
};

pub(super) use super::super::suite::{Checked, Details, all, broken, same, shown, skipped};
use super::{Sample, ToolFixture, ToolSubject};

/// How long a case waits before it looks again, and before it says that nothing more came.
pub(super) const MOMENT: Duration = Duration::from_millis(20);

/// How often a case looks for the sign that a run is under way.
const LOOKS: usize = 200;

/// Where a case gets its subjects.
pub(super) struct Bench<'a> {
    fixture: &'a dyn ToolFixture,
}

impl<'a> Bench<'a> {
    pub(super) fn new(fixture: &'a dyn ToolFixture) -> Self {
        Self { fixture }
    }

    pub(super) fn grace(&self) -> Duration {
        self.fixture.grace()
    }

    /// A fresh subject; each tool must have a sample, and each sample its tool.
    pub(super) async fn open(&self) -> Result<Subject, Details> {
        let inner = self.fixture.open().await.map_err(Details::Broken)?;
        let definitions = inner.tools.definitions();
        let sampled = |name: &str| inner.samples.iter().any(|sample| sample.tool == name);
        if let Some(unknown) = inner.samples.iter().find(|s| definitions.iter().all(|d| d.name != s.tool)) {
            return broken(format!("there is a sample of `{}`, and no such tool", unknown.tool));
        }
        match definitions.iter().find(|definition| !sampled(&definition.name)) {
            Some(bare) => broken(format!("the tool `{}` has no sample", bare.name)),
            None => Ok(Subject(inner)),
        }
    }

    /// What the samples give for a case, and the tool of each; a case without any is skipped.
    pub(super) async fn samples<T>(
        &self,
        lacking: &str,
        pick: impl Fn(&Sample, &ToolDefinition) -> Option<T>,
    ) -> Result<Vec<(String, T)>, Details> {
        let subject = self.open().await?;
        let definitions = subject.0.tools.definitions();
        let of = |name: &str| definitions.iter().find(|definition| definition.name == name);
        let picked = subject.0.samples.iter().filter_map(|sample| {
            let picked = pick(sample, of(&sample.tool)?)?;
            Some((sample.tool.clone(), picked))
        });
        match picked.collect::<Vec<_>>() {
            none if none.is_empty() => skipped(lacking),
            some => Ok(some),
        }
    }

    /// Waits until nothing of a subject is at work, for as long as the grace lasts.
    pub(super) async fn calm(&self, subject: &Subject) -> Checked {
        let Some(working) = &subject.0.working else {
            tokio::time::sleep(MOMENT).await;
            return Ok(());
        };
        let stopped = async {
            while working() > 0 {
                tokio::time::sleep(MOMENT).await;
            }
        };
        match tokio::time::timeout(self.grace(), stopped).await {
            Ok(()) => Ok(()),
            Err(_) => broken(format!("{} runs are still at work after the grace", working())),
        }
    }
}

/// A subject and what is done with it.
pub(super) struct Subject(pub(super) ToolSubject);

impl Subject {
    /// What there is to see of the world; a case that needs it is skipped without it.
    pub(super) fn look(&self) -> Result<Value, Details> {
        match &self.0.world {
            Some(look) => Ok(look()),
            None => skipped("the subject does not show its world"),
        }
    }

    pub(super) fn definition(&self, tool: &str) -> Result<ToolDefinition, Details> {
        let found = self.0.tools.definitions().into_iter().find(|definition| definition.name == tool);
        found.ok_or_else(|| Details::Broken(format!("the tool `{tool}` is gone from the definitions")))
    }

    pub(super) fn reconciler(&self, tool: &str) -> Result<Arc<dyn Reconciler>, Details> {
        match self.definition(tool)?.replay {
            Replay::Reconcile(reconciler) => Ok(reconciler),
            other => broken(format!("the replay class of `{tool}` has changed to {:?}", other.class())),
        }
    }

    /// Runs a call to its end.
    pub(super) async fn run(&self, tool: &str, input: &Value, host: &Arc<Host>) -> End {
        self.run_call(ToolCall::new(tool, input.clone()), host).await
    }

    pub(super) async fn run_call(&self, call: ToolCall, host: &Arc<Host>) -> End {
        self.cut_call(call, host, usize::MAX).await
    }

    /// Runs a call, and drops it if it is not ready at this poll, counted from 1.
    pub(super) async fn cut(&self, tool: &str, input: &Value, host: &Arc<Host>, poll: usize) -> End {
        self.cut_call(ToolCall::new(tool, input.clone()), host, poll).await
    }

    async fn cut_call(&self, call: ToolCall, host: &Arc<Host>, poll: usize) -> End {
        let tools = Arc::clone(&self.0.tools);
        let making = catch_unwind(AssertUnwindSafe(|| tools.execute(call, host.context())));
        let mut run = match making {
            Ok(run) => run,
            Err(panic) => return End::Panicked(words(panic)),
        };
        let mut polls = 0;
        let end = poll_fn(move |cx| {
            polls += 1;
            match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(cx))) {
                Ok(Poll::Ready(Ok(returned))) => Poll::Ready(End::Returned(returned)),
                Ok(Poll::Ready(Err(error))) => Poll::Ready(End::Failed(error)),
                Ok(Poll::Pending) if polls >= poll => Poll::Ready(End::Dropped),
                Ok(Poll::Pending) => Poll::Pending,
                Err(panic) => Poll::Ready(End::Panicked(words(panic))),
            }
        })
        .await;
        host.ended();
        end
    }

    /// Runs a call until there is a sign that it is under way: work, progress, or a moment without an end.
    ///
    /// Gives the run, to be polled on; it must not have ended.
    pub(super) async fn started<R: Future<Output = End> + Unpin>(&self, run: &mut R, host: &Host) -> Checked {
        let begun = async {
            for look in 0..LOOKS {
                let at_work = self.0.working.as_ref().is_some_and(|working| working() > 0);
                let unseen = self.0.working.is_none() && look > 2;
                if at_work || unseen || !host.progress_shown().is_empty() {
                    return true;
                }
                tokio::time::sleep(MOMENT).await;
            }
            false
        };
        let mut begun = pin!(begun);
        poll_fn(|cx| {
            if let Poll::Ready(end) = pin!(&mut *run).poll(cx) {
                return Poll::Ready(broken(format!("the long run has ended by itself: {}", shown(&end))));
            }
            begun.as_mut().poll(cx).map(|begun| match begun {
                true => Ok(()),
                false => broken("there was no sign that the long run had begun"),
            })
        })
        .await
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum End {
    Returned(ToolReturn),
    Failed(ToolError),
    Panicked(String),
    Dropped,
}

impl End {
    /// The output of a run that must have succeeded.
    pub(super) fn output(self, what: &str) -> Result<ToolOutput, Details> {
        match self {
            Self::Returned(ToolReturn::Output(output)) => Ok(output),
            other => broken(format!("{what}: it should have succeeded, and ended with {}", shown(&other))),
        }
    }

    /// The question of a run that must have asked.
    pub(super) fn question(self, what: &str) -> Result<Ask, Details> {
        match self {
            Self::Returned(ToolReturn::Ask(ask)) => Ok(ask),
            other => broken(format!("{what}: it should have asked, and ended with {}", shown(&other))),
        }
    }

    /// The output of a failure of the tool's own.
    pub(super) fn failure(self, what: &str) -> Result<ToolOutput, Details> {
        match self {
            Self::Failed(ToolError::Failed(output)) => Ok(output),
            other => broken(format!("{what}: it should have failed with an answer, and ended with {}", shown(&other))),
        }
    }

    /// A run that may end in any way but a panic.
    pub(super) fn no_panic(self, what: &str) -> Checked {
        match self {
            Self::Panicked(words) => broken(format!("{what}: it panicked: {words}")),
            _ => Ok(()),
        }
    }
}

/// The runner's side of a run: it keeps what it is told.
pub(super) struct Host {
    key: u32,
    effect_key: String,
    notes_before: Vec<Value>,
    notes: Notes,
    remaining: Option<Duration>,
    pub(super) cancel: CancelSource,
    seen: Mutex<Seen>,
}

/// What becomes of a run's notes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Notes {
    Kept,
    Lost,
}

#[derive(Default)]
struct Seen {
    progress: Vec<Value>,
    notes: Vec<Value>,
    /// How many signs of progress had come when the run ended.
    ended_after: Option<usize>,
}

impl Host {
    /// The host of the run of call number `key`; its effect key follows from the number.
    pub(super) fn new(key: u32) -> Arc<Self> {
        Arc::new(Self::of(key))
    }

    pub(super) fn of(key: u32) -> Self {
        Self {
            key,
            effect_key: format!("effect-{key}"),
            notes_before: Vec::new(),
            notes: Notes::Kept,
            remaining: None,
            cancel: CancelSource::new(),
            seen: Mutex::default(),
        }
    }

    /// The host of the same call's next run: it hands over the notes that this run left.
    pub(super) fn again(&self) -> Arc<Self> {
        let mut next = Self::of(self.key);
        next.notes_before = self.notes_left();
        Arc::new(next)
    }

    pub(super) fn notes(mut self, notes: Notes) -> Self {
        self.notes = notes;
        self
    }

    pub(super) fn remaining(mut self, remaining: Duration) -> Self {
        self.remaining = Some(remaining);
        self
    }

    /// Every note of this call so far.
    pub(super) fn notes_left(&self) -> Vec<Value> {
        let mut notes = self.notes_before.clone();
        notes.extend(self.seen().notes.iter().cloned());
        notes
    }

    pub(super) fn progress_shown(&self) -> Vec<Value> {
        self.seen().progress.clone()
    }

    /// The progress that came after the run had ended.
    pub(super) fn progress_too_late(&self) -> usize {
        let seen = self.seen();
        seen.ended_after.map_or(0, |before| seen.progress.len() - before)
    }

    fn ended(&self) {
        let mut seen = self.seen();
        seen.ended_after = Some(seen.progress.len());
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn context(self: &Arc<Self>) -> ToolContext {
        let (Ok(effect_key), Ok(session)) = (EffectKey::new(&self.effect_key), SessionId::new("suite")) else {
            unreachable!("the suite's own names are well-formed")
        };
        let call = CallKey { step: MessageId::from_u128(7), ordinal: self.key };
        let mut info = RunInfo::new(effect_key, session, call);
        info.notes = self.notes_left();
        ToolContext::new(info, self.cancel.signal(), Arc::<Self>::clone(self))
    }
}

#[async_trait]
impl ToolHost for Host {
    fn progress(&self, progress: Value) {
        self.seen().progress.push(progress);
    }

    /// Writing a note takes a turn, as a store does.
    async fn note(&self, note: Value) -> Result<(), NoteError> {
        let mut turned = false;
        poll_fn(|cx| match std::mem::replace(&mut turned, true) {
            true => Poll::Ready(()),
            false => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
        .await;
        match self.notes {
            Notes::Lost => Err(NoteError::default()),
            Notes::Kept => {
                self.seen().notes.push(note);
                Ok(())
            }
        }
    }

    fn remaining(&self) -> Option<Duration> {
        self.remaining
    }
}

/// What a reconciler says about a call, once it no longer says that it runs.
pub(super) async fn reconciled(
    reconciler: &dyn Reconciler,
    tool: &str,
    input: &Value,
    host: &Arc<Host>,
) -> Result<Reconciled, Details> {
    let call = ToolCall::new(tool, input.clone());
    for _ in 0..LOOKS {
        match reconciler.reconcile(&call, &host.context()).await {
            Reconciled::StillRunning => tokio::time::sleep(MOMENT).await,
            found => return Ok(found),
        }
    }
    broken(format!("`{tool}`: the reconciler says for ever that a run which is gone is still running"))
}

fn words(panic: Box<dyn Any + Send>) -> String {
    let words = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".to_owned())
}

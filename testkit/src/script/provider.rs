//! The provider that follows a script, and keeps what it was asked.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use async_trait::async_trait;
use settled_ledger::check::check_request;
use settled_provider_api::{
    Capabilities, ErrorClass, ModelRef, Provider, ProviderError, ProviderEvent, ProviderStream, Request, ToolChoice,
};

use super::{Answer, Entry, Gates, Item, Misfit, Script, Stream};
use crate::pace::{Class, Pace};

/// A provider that follows a [`Script`]; a clone is another handle on the same one.
#[derive(Clone)]
pub struct ScriptedProvider(Arc<Shared>);

struct Shared {
    entries: Vec<Entry>,
    always: Option<Answer>,
    misfit: Misfit,
    gates: Gates,
    pace: Mutex<Pace>,
    capabilities: Mutex<BTreeMap<ModelRef, Capabilities>>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: Vec<Arc<Request>>,
    /// The entry that comes next.
    next: usize,
    faults: Vec<String>,
}

impl ScriptedProvider {
    pub(crate) fn new(script: Script) -> Self {
        Self(Arc::new(Shared {
            entries: script.entries,
            always: script.always,
            misfit: script.misfit,
            gates: Gates::default(),
            pace: Mutex::default(),
            capabilities: Mutex::default(),
            seen: Mutex::default(),
        }))
    }

    /// The same provider, whose waits the conductor grants.
    #[cfg(feature = "runner")]
    pub(crate) fn paced(self, pace: Pace) -> Self {
        *self.0.pace.lock().unwrap_or_else(PoisonError::into_inner) = pace;
        self
    }

    /// The same provider; requests to this model are held to these capabilities instead of the usual ones.
    #[must_use]
    pub fn capabilities(self, model: ModelRef, capabilities: Capabilities) -> Self {
        self.0.capabilities.lock().unwrap_or_else(PoisonError::into_inner).insert(model, capabilities);
        self
    }

    /// Every request so far, in order.
    pub fn requests(&self) -> Vec<Arc<Request>> {
        self.seen().requests.clone()
    }

    /// Opens a gate of the script, for good.
    pub fn open(&self, gate: &str) {
        self.0.gates.open(gate);
    }

    /// What was wrong with the requests: one beyond the script, one of the wrong kind, one that is not well-formed.
    pub fn faults(&self) -> Vec<String> {
        self.seen().faults.clone()
    }

    /// How many entries of the script were not used.
    pub fn unused(&self) -> usize {
        self.0.entries.len().saturating_sub(self.seen().next)
    }

    /// Says which entries were not used, and where the first of them stands.
    pub(crate) fn left(&self) -> Option<String> {
        let (used, entries) = (self.seen().next, self.0.entries.len());
        let first = self.0.entries.get(used)?;
        let place = first.place.map(|place| format!(", written at {place}")).unwrap_or_default();
        Some(format!("only {used} of {entries} entries of the script were used; entry {} is left{place}", used + 1))
    }

    /// Fails the test if the script was not used up, was overrun, or a request was not well-formed; the message says where.
    ///
    /// # Panics
    ///
    /// That is how it fails the test.
    #[track_caller]
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn assert_exhausted(&self) {
        let mut wrong = self.faults();
        wrong.extend(self.left());
        if !wrong.is_empty() {
            panic!("the script was not followed: {}", wrong.join("; "));
        }
    }

    /// The entry that was taken last comes once more: whoever asked did not live to keep its answer.
    #[cfg(feature = "runner")]
    pub(crate) fn rewind(&self) {
        let mut seen = self.seen();
        seen.next = seen.next.saturating_sub(1);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self) -> Pace {
        self.0.pace.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a request and finds what is wrong with it; gives its number, from 0, and its answer.
    fn take(&self, request: &Arc<Request>) -> (usize, Option<Answer>) {
        let known = self.0.capabilities.lock().unwrap_or_else(PoisonError::into_inner);
        let capabilities = known.get(&request.model).cloned().unwrap_or_default();
        drop(known);
        let breaches = check_request(request, &capabilities);
        let mut seen = self.seen();
        let number = seen.requests.len();
        seen.requests.push(Arc::clone(request));
        seen.faults.extend(breaches.into_iter().map(|breach| format!("request {}: {breach}", number + 1)));
        let kind = request.purpose.kind;
        let nothing_to_call = request.tools.is_empty() || request.tool_choice == ToolChoice::None;
        let left_out = |entry: &Entry| {
            let misfit = self.0.misfit == Misfit::Skip && entry.serves.is_some_and(|serves| serves != kind);
            misfit || nothing_to_call && matches!(entry.answer, Answer::EveryTool)
        };
        while self.0.entries.get(seen.next).is_some_and(left_out) {
            seen.next += 1;
        }
        let place = seen.next;
        let Some(entry) = self.0.entries.get(place) else {
            if self.0.always.is_none() {
                let entries = self.0.entries.len();
                seen.faults.push(format!("request {}: the script has {entries} entries only", number + 1));
            }
            return (number, self.0.always.clone());
        };
        seen.next += 1;
        if let Some(serves) = entry.serves.filter(|serves| *serves != kind) {
            let fault =
                format!("request {}: entry {place} is for a {serves:?}, and a {kind:?} was asked for", number + 1);
            seen.faults.push(fault);
        }
        (number, Some(entry.answer.clone()))
    }
}

#[async_trait]
impl Provider for ScriptedProvider {
    async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        let (number, answer) = self.take(&request);
        let pace = self.pace();
        let items = match answer {
            Some(Answer::Stream(items)) => items,
            Some(Answer::EveryTool) => Stream::every(&request.tools).items,
            Some(Answer::Fail(error)) => {
                pace.wait(Class::Stream, (0, number as u64), 0).await;
                return Err(error);
            }
            None => {
                let message = format!("the script has no entry for request {}", number + 1);
                return Err(ProviderError::new(ErrorClass::InvalidRequest, message));
            }
        };
        Ok(Box::pin(Playing {
            shared: Arc::clone(&self.0),
            taken: pace.now(),
            pace,
            number,
            items: items.into(),
            turn: None,
            over: false,
        }))
    }
}

impl std::fmt::Debug for ScriptedProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedProvider").field("requests", &self.seen().requests.len()).finish_non_exhaustive()
    }
}

/// A stream that is being played.
struct Playing {
    shared: Arc<Shared>,
    pace: Pace,
    number: usize,
    items: VecDeque<Item>,
    /// When the item before was taken.
    taken: u64,
    /// The wait before the first item of those that are left.
    turn: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    over: bool,
}

impl futures_core::Stream for Playing {
    type Item = Result<ProviderEvent, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if this.over {
                return Poll::Ready(None);
            }
            if matches!(this.items.front(), Some(Item::Hang)) {
                return Poll::Pending;
            }
            let (shared, pace, order) = (&this.shared, &this.pace, (0, this.number as u64));
            let turn = this.turn.get_or_insert_with(|| {
                let (shared, pace) = (Arc::clone(shared), pace.clone());
                match this.items.front() {
                    Some(Item::Wait(span)) => {
                        let left = this.taken.saturating_add(*span).saturating_sub(pace.now());
                        Box::pin(async move { pace.wait(Class::Stream, order, left).await })
                    }
                    Some(Item::Gate(name)) => {
                        let name = name.clone();
                        Box::pin(async move {
                            shared.gates.passed(&name).await;
                            pace.wait(Class::Stream, order, 0).await;
                        })
                    }
                    _ => Box::pin(async move { pace.wait(Class::Stream, order, 0).await }),
                }
            });
            if turn.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.turn = None;
            let now = this.pace.now();
            match this.items.pop_front() {
                Some(Item::Event(event)) => {
                    this.taken = now;
                    return Poll::Ready(Some(Ok(event)));
                }
                Some(Item::Throw(error)) => {
                    this.over = true;
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Item::Wait(span)) => this.taken = this.taken.saturating_add(span),
                Some(Item::Gate(_)) => this.taken = now,
                // Without the panic hook's output: this panic is meant.
                Some(Item::Panic(text)) => std::panic::resume_unwind(Box::new(text)),
                Some(Item::Hang) => return Poll::Pending,
                None => {
                    this.over = true;
                    return Poll::Ready(None);
                }
            }
        }
    }
}

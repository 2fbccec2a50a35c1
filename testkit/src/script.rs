//! A provider that follows a script, written in plain Rust.

mod provider;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

use serde_json::Value;
use settled_provider_api::{
    BlockDelta, BlockEnd, BlockStart, Content, ErrorClass, Finish, FinishReason, HostedError, HostedResult,
    ProviderError, ProviderEvent, RequestKind, ToolCallEvent, ToolDefinition, ToolInputEnd, ToolInputMalformed,
    ToolInputStart, Usage,
};

pub use self::provider::ScriptedProvider;
use crate::arguments;

/// An empty script: its provider answers nothing.
pub fn script() -> Script {
    Script::default()
}

/// No script at all: every tool that is offered is called once, with arguments made from its schema, and then the model answers `Done.`
///
/// ```
/// use serde_json::json;
/// use settled_store_memory::MemoryStore;
/// use settled_testkit::{agent, tools, zero_script};
///
/// let tools = tools().tool("weather", |run| run.ok("rain")).tool("clock", |run| run.ok("noon"));
/// let run = agent(MemoryStore::new, zero_script()).tools(tools.clone()).run("Try everything.");
/// assert_eq!((run.answer(), tools.runs("weather"), tools.runs("clock")), (Some("Done."), 1, 1));
/// ```
pub fn zero_script() -> Script {
    script().every_tool().step(|s| s.text("Done.").finish())
}

/// What a provider answers, one entry for each request, in order.
///
/// It is strict: a request beyond the last entry fails, and so does [`ScriptedProvider::assert_exhausted`] while entries are left.
#[derive(Clone, Debug, Default)]
#[must_use = "a script does nothing until a provider follows it"]
pub struct Script {
    pub(crate) entries: Vec<Entry>,
    /// The answer to every request beyond the last entry.
    pub(crate) always: Option<Answer>,
    /// What becomes of an entry that is for another kind of request than what is asked.
    pub(crate) misfit: Misfit,
}

/// What becomes of an entry that is for another kind of request than what is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Misfit {
    /// It is given, and the test fails.
    #[default]
    Fault,
    /// It is left out.
    Skip,
}

/// One answer.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The kind of request that it is for; any where `None`.
    pub(crate) serves: Option<RequestKind>,
    pub(crate) answer: Answer,
    /// Where it was written, in Rust.
    pub(crate) place: Option<&'static Location<'static>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Stream(Vec<Item>),
    Fail(ProviderError),
    /// A call of every tool that the request offers.
    EveryTool,
}

/// One thing that a scripted stream does.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Event(ProviderEvent),
    Throw(ProviderError),
    Wait(u64),
    Gate(String),
    Hang,
    Panic(String),
}

impl Script {
    /// One more answer, for a step or a summary, whichever is asked for.
    #[track_caller]
    pub fn step(self, write: impl FnOnce(Stream) -> Stream) -> Self {
        self.here(None, Answer::Stream(write(Stream::default()).items))
    }

    /// One more answer, for a summary; asking for a step with it is a fault.
    #[track_caller]
    pub fn summary(self, text: impl Into<String>) -> Self {
        let stream = Stream::default().text(text).finish();
        self.here(Some(RequestKind::Summary), Answer::Stream(stream.items))
    }

    /// One more request that fails before its stream.
    #[track_caller]
    pub fn fail(self, error: ProviderError) -> Self {
        self.here(None, Answer::Fail(error))
    }

    /// One more request that is refused because the context is too long.
    #[track_caller]
    pub fn overflow(self) -> Self {
        self.fail(ProviderError::new(ErrorClass::ContextOverflow, ""))
    }

    /// One more answer: a call of every tool that is offered (where none is, there is no such answer), with [`arguments`](crate::arguments) made from its schema.
    #[track_caller]
    pub fn every_tool(self) -> Self {
        self.here(None, Answer::EveryTool)
    }

    /// The answer to every request beyond the last entry; then no request is one too many.
    pub fn always(mut self, write: impl FnOnce(Stream) -> Stream) -> Self {
        self.always = Some(Answer::Stream(write(Stream::default()).items));
        self
    }

    /// The entries of another script behind those of this one.
    pub fn then(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self
    }

    /// A provider that follows the script.
    ///
    /// Its waits go by tokio's clock: pause it, and they take no time.
    pub fn provider(self) -> ScriptedProvider {
        ScriptedProvider::new(self)
    }

    /// An entry that is written in Rust, by the caller of whoever calls this.
    #[track_caller]
    fn here(mut self, serves: Option<RequestKind>, answer: Answer) -> Self {
        self.entries.push(Entry { serves, answer, place: Some(Location::caller()) });
        self
    }

    /// An entry that stands in no source.
    #[cfg(feature = "runner")]
    pub(crate) fn entry(mut self, serves: Option<RequestKind>, answer: Answer) -> Self {
        self.entries.push(Entry { serves, answer, place: None });
        self
    }
}

/// One scripted stream.
///
/// Blocks are named: the same name is the same block while it is open, and a new block afterwards.
/// What is not finished ends without a finish: a stream that was cut.
#[derive(Clone, Debug, Default)]
#[must_use = "a stream does nothing unless it is part of a script"]
pub struct Stream {
    pub(crate) items: Vec<Item>,
    blocks: BTreeMap<(Kind, String), Block>,
    next: u32,
    called: bool,
    usage: Option<Usage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Text,
    Reasoning,
    Input,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    index: u32,
    open: bool,
}

impl Stream {
    /// A call of each of these tools.
    pub(crate) fn every(tools: &[ToolDefinition]) -> Self {
        let call = |stream: Self, tool: &ToolDefinition| stream.call(&tool.name, arguments(&tool.input_schema));
        tools.iter().fold(Self::default(), call).finish()
    }

    /// The provider has begun to answer.
    pub fn start(self) -> Self {
        self.event(ProviderEvent::StepStart)
    }

    /// A whole block of text.
    pub fn text(mut self, text: impl Into<String>) -> Self {
        let index = self.fresh();
        self.event(ProviderEvent::text_start(index))
            .event(ProviderEvent::text_delta(index, text))
            .event(ProviderEvent::text_end(index))
    }

    /// A block of text opens.
    pub fn text_start(mut self, name: impl Into<String>) -> Self {
        let index = self.open(Kind::Text, name);
        self.event(ProviderEvent::text_start(index))
    }

    /// A piece of a block of text.
    pub fn text_delta(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        let index = self.known(Kind::Text, name);
        self.event(ProviderEvent::text_delta(index, text))
    }

    /// A block of text closes, perhaps with a text that wins over its pieces.
    pub fn text_end(mut self, name: impl Into<String>, text: impl Into<Option<String>>) -> Self {
        let index = self.close(Kind::Text, name);
        self.event(ProviderEvent::TextEnd(BlockEnd::new(index, text.into(), None)))
    }

    /// A whole block of reasoning, perhaps with state that goes back with it.
    pub fn reasoning(mut self, text: impl Into<String>, state: impl Into<Option<Value>>) -> Self {
        let index = self.fresh();
        let text = text.into();
        let mut stream = self.event(ProviderEvent::ReasoningStart(BlockStart::new(index, None)));
        if !text.is_empty() {
            stream = stream.event(ProviderEvent::ReasoningDelta(BlockDelta::new(index, text, None)));
        }
        stream.event(ProviderEvent::reasoning_end(index, state.into()))
    }

    /// A block of reasoning opens.
    pub fn reasoning_start(mut self, name: impl Into<String>) -> Self {
        let index = self.open(Kind::Reasoning, name);
        self.event(ProviderEvent::reasoning_start(index))
    }

    /// A piece of a block of reasoning.
    pub fn reasoning_delta(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        let index = self.known(Kind::Reasoning, name);
        self.event(ProviderEvent::reasoning_delta(index, text))
    }

    /// A block of reasoning closes, perhaps with a text that wins over its pieces.
    pub fn reasoning_end(mut self, name: impl Into<String>, text: impl Into<Option<String>>) -> Self {
        let index = self.close(Kind::Reasoning, name);
        self.event(ProviderEvent::ReasoningEnd(BlockEnd::new(index, text.into(), None)))
    }

    /// A whole call, whose id is the tool's name.
    pub fn call(self, name: impl Into<String>, input: Value) -> Self {
        let name = name.into();
        self.call_as(name.clone(), name, input)
    }

    /// A whole call under an id.
    pub fn call_as(self, id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        self.whole(id.into(), name.into(), input, false)
    }

    /// A whole call that the provider runs itself.
    pub fn hosted(self, id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        self.whole(id.into(), name.into(), input, true)
    }

    /// The result of a hosted call.
    pub fn hosted_result(self, id: impl Into<String>, content: impl IntoIterator<Item = impl Into<Content>>) -> Self {
        let content = content.into_iter().map(Into::into).collect();
        self.event(ProviderEvent::HostedResult(HostedResult::new(id, content, None)))
    }

    /// The failure of a hosted call.
    pub fn hosted_error(self, id: impl Into<String>, message: impl Into<String>) -> Self {
        self.event(ProviderEvent::HostedError(HostedError::new(id, message, None)))
    }

    /// The first sign of a call.
    pub fn input_start(self, id: impl Into<String>, name: impl Into<String>) -> Self {
        self.opens(id.into(), name.into(), false)
    }

    /// The first sign of a call that the provider runs itself.
    pub fn hosted_input_start(self, id: impl Into<String>, name: impl Into<String>) -> Self {
        self.opens(id.into(), name.into(), true)
    }

    pub(crate) fn opens(mut self, id: String, name: String, hosted: bool) -> Self {
        let index = self.open(Kind::Input, id.clone());
        self.event(ProviderEvent::ToolInputStart(ToolInputStart::new(index, id, name, hosted)))
    }

    /// A piece of a call's arguments.
    pub fn input_delta(mut self, id: impl Into<String>, text: impl Into<String>) -> Self {
        let index = self.known(Kind::Input, id);
        self.event(ProviderEvent::tool_input_delta(index, text))
    }

    /// A call's arguments are closed.
    pub fn input_end(mut self, id: impl Into<String>) -> Self {
        let index = self.known(Kind::Input, id);
        self.event(ProviderEvent::ToolInputEnd(ToolInputEnd::new(index)))
    }

    /// A complete call, after its arguments or without them.
    pub fn called(self, id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        self.completes(id.into(), name.into(), input, false)
    }

    /// A complete call that the provider runs itself.
    pub fn hosted_called(self, id: impl Into<String>, name: impl Into<String>, input: Value) -> Self {
        self.completes(id.into(), name.into(), input, true)
    }

    pub(crate) fn completes(mut self, id: String, name: String, input: Value, hosted: bool) -> Self {
        self.called |= !hosted;
        let index = self.last(Kind::Input, &id);
        let call = ToolCallEvent::new(index, id, name, input);
        self.event(ProviderEvent::ToolCall(if hosted { call.hosted() } else { call }))
    }

    /// A call whose arguments are closed and are no JSON.
    pub fn malformed(mut self, id: impl Into<String>, name: impl Into<String>, raw: impl Into<String>) -> Self {
        let id = id.into();
        let index = self.last(Kind::Input, &id);
        self.event(ProviderEvent::ToolInputMalformed(ToolInputMalformed::new(index, id, name, false, raw)))
    }

    /// A sign of life without content.
    pub fn alive(self) -> Self {
        self.event(ProviderEvent::Alive)
    }

    /// What the answer used; it comes with the finish.
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// The finish that fits: `tool_calls` after a local call, else `stop`.
    pub fn finish(self) -> Self {
        let reason = if self.called { FinishReason::ToolCalls } else { FinishReason::Stop };
        self.finish_with(Finish::new(reason))
    }

    /// A finish.
    pub fn finish_with(self, finish: Finish) -> Self {
        let usage = finish.usage.or(self.usage);
        self.event(ProviderEvent::Finish(finish.usage(usage)))
    }

    /// An error inside the stream.
    pub fn error(self, error: ProviderError) -> Self {
        self.event(ProviderEvent::Error(error))
    }

    /// The stream ends with an error.
    pub fn throw(self, error: ProviderError) -> Self {
        self.item(Item::Throw(error))
    }

    /// Nothing comes for so many milliseconds, from the moment the item before was taken.
    pub fn wait(self, millis: u64) -> Self {
        self.item(Item::Wait(millis))
    }

    /// Nothing comes until [`ScriptedProvider::open`] opens this gate.
    pub fn gate(self, name: impl Into<String>) -> Self {
        self.item(Item::Gate(name.into()))
    }

    /// Nothing comes any more, and the stream does not end.
    pub fn hang(self) -> Self {
        self.item(Item::Hang)
    }

    /// The stream panics.
    pub fn panic(self, text: impl Into<String>) -> Self {
        self.item(Item::Panic(text.into()))
    }

    /// Any event, as an adapter would give it; its index is the caller's to choose.
    pub fn event(self, event: ProviderEvent) -> Self {
        self.item(Item::Event(event))
    }

    fn item(mut self, item: Item) -> Self {
        self.items.push(item);
        self
    }

    fn whole(self, id: String, name: String, input: Value, hosted: bool) -> Self {
        let text = input.to_string();
        self.opens(id.clone(), name.clone(), hosted)
            .input_delta(id.clone(), text)
            .input_end(id.clone())
            .completes(id, name, input, hosted)
    }

    fn fresh(&mut self) -> u32 {
        let index = self.next;
        self.next += 1;
        index
    }

    /// The open block of this name, or a new one.
    fn open(&mut self, kind: Kind, name: impl Into<String>) -> u32 {
        let key = (kind, name.into());
        if let Some(block) = self.blocks.get(&key).filter(|block| block.open) {
            return block.index;
        }
        let index = self.fresh();
        self.blocks.insert(key, Block { index, open: true });
        index
    }

    /// The last block of this name, open or not, or a new one that was never opened.
    fn known(&mut self, kind: Kind, name: impl Into<String>) -> u32 {
        let key = (kind, name.into());
        if let Some(block) = self.blocks.get(&key) {
            return block.index;
        }
        let index = self.fresh();
        self.blocks.insert(key, Block { index, open: false });
        index
    }

    fn close(&mut self, kind: Kind, name: impl Into<String>) -> u32 {
        let name = name.into();
        let index = self.known(kind, name.clone());
        self.blocks.insert((kind, name), Block { index, open: false });
        index
    }

    /// The open block of this name, or a new one, which is then closed.
    fn last(&mut self, kind: Kind, name: &str) -> u32 {
        let index = self.open(kind, name);
        self.blocks.insert((kind, name.to_owned()), Block { index, open: false });
        index
    }
}

/// Gates of a script: closed until they are opened, and open from then on.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    opened: std::sync::Mutex<BTreeSet<String>>,
    changed: tokio::sync::Notify,
}

impl Gates {
    pub(crate) fn open(&self, name: &str) {
        self.opened.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(name.to_owned());
        self.changed.notify_waiters();
    }

    fn is_open(&self, name: &str) -> bool {
        self.opened.lock().unwrap_or_else(std::sync::PoisonError::into_inner).contains(name)
    }

    pub(crate) async fn passed(&self, name: &str) {
        loop {
            let changed = self.changed.notified();
            if self.is_open(name) {
                return;
            }
            changed.await;
        }
    }
}

//! What a runner's user may set, with the product's defaults.

use std::time::Duration;

/// Limits and habits of a runner.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// How many calls of one step may run at once.
    pub parallel_tools: usize,
    /// The longest time until a stream's first event.
    pub first_event: Duration,
    /// The longest time between two events of a stream.
    pub stream_idle: Duration,
    /// How many signs of life in a row may reset the idle limit without any other event.
    pub max_alive: u32,
    /// The longest time between two signs of a tool's progress; `None` switches the limit off.
    pub tool_idle: Option<Duration>,
    /// The longest time a tool's run may take; `None` switches the limit off.
    pub tool_deadline: Option<Duration>,
    /// How long a cancelled tool may go on before its task is aborted.
    pub cancel_grace: Duration,
    /// The longest time that a source of instructions may take to say what holds; then it counts as unavailable.
    pub instructions: Duration,
    /// When and how often a step is tried again.
    pub retry: RetrySettings,
    /// When history is summarised.
    pub compaction: CompactionSettings,
    /// How much of a tool's output the model is shown.
    pub output: OutputSettings,
    /// How often an unfinished execution is taken up again after its process died.
    pub restarts: u32,
    /// How many pauses of the provider one execution may have.
    pub pauses: u32,
    /// How long a worker's ownership lasts without renewal.
    pub lease: Duration,
    /// How often the store is asked when it gives no hints.
    pub poll: Duration,
    /// After how many events a session's fold is put into the history cache anew, where there is one.
    pub cache_every: u64,
    /// Of how many sessions the history is kept in memory while they are idle: those that ran last.
    pub kept_sessions: usize,
    /// How many events may wait for the store before the provider is not read any further.
    pub write_ahead: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            parallel_tools: 8,
            first_event: Duration::from_secs(300),
            stream_idle: Duration::from_secs(120),
            max_alive: 1_000,
            tool_idle: None,
            tool_deadline: Some(Duration::from_secs(600)),
            cancel_grace: Duration::from_secs(5),
            instructions: Duration::from_secs(10),
            retry: RetrySettings::default(),
            compaction: CompactionSettings::default(),
            output: OutputSettings::default(),
            restarts: 10,
            pauses: 20,
            lease: Duration::from_secs(15),
            poll: Duration::from_secs(1),
            cache_every: 4_096,
            kept_sessions: 256,
            write_ahead: 1_024,
        }
    }
}

/// When and how often a step is tried again.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RetrySettings {
    /// How many retries and continuations one logical step may have.
    pub max: u32,
    /// How many of them may be for silence.
    pub max_timeouts: u32,
    /// How many of them may be for a failure of unknown kind.
    pub max_unknown: u32,
    /// The first delay; it doubles.
    pub base: Duration,
    /// The longest delay of our own.
    pub cap: Duration,
    /// The longest delay that a provider may ask for.
    pub hint_cap: Duration,
    /// By how much a delay may differ, as a share of it: 0.2 is 20 % either way.
    pub jitter: f64,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            max: 10,
            max_timeouts: 3,
            max_unknown: 1,
            base: Duration::from_secs(2),
            cap: Duration::from_secs(10),
            hint_cap: Duration::from_secs(15 * 60),
            jitter: 0.2,
        }
    }
}

/// When history is summarised.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactionSettings {
    /// Before a step, when the context is about to become too long.
    pub auto: bool,
    /// When a provider refuses the context as too long.
    pub on_overflow: bool,
    /// How many tokens of the context are kept free for the answer.
    pub buffer: u64,
    /// How many tokens of the end of the history are kept word for word.
    pub keep: u64,
}

impl Default for CompactionSettings {
    fn default() -> Self {
        Self { auto: true, on_overflow: true, buffer: 20_000, keep: 15_000 }
    }
}

/// How much of a tool's output the model is shown: the head and the tail.
///
/// The mark that stands for what is left out comes on top.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputSettings {
    /// The most lines.
    pub lines: usize,
    /// The most bytes.
    pub bytes: usize,
}

impl Default for OutputSettings {
    fn default() -> Self {
        Self { lines: 2_000, bytes: 50 * 1_024 }
    }
}

/// What runs in a session: its prompt, its allowance.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Agent {
    /// The name that sessions choose it by.
    pub name: String,
    /// The system prompt, in parts; empty parts are left out.
    pub system: Vec<String>,
    /// How many steps may follow one another without new input; the last of them is text only.
    pub max_steps: u32,
    /// Settings of every request.
    pub options: settled_provider_api::Options,
}

impl Agent {
    /// An agent without a prompt and with an allowance of 50 steps.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), system: Vec::new(), max_steps: 50, options: Default::default() }
    }

    /// The same agent with one more part of the system prompt.
    #[must_use]
    pub fn system(mut self, part: impl Into<String>) -> Self {
        self.system.push(part.into());
        self
    }

    /// The same agent with another allowance; at least 1.
    #[must_use]
    pub fn max_steps(mut self, steps: u32) -> Self {
        self.max_steps = steps.max(1);
        self
    }

    /// The same agent with settings for every request.
    #[must_use]
    pub fn options(mut self, options: settled_provider_api::Options) -> Self {
        self.options = options;
        self
    }
}

//! What a person sees of a run: the answer on standard output, everything else on standard error.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use settled_ledger::{DeltaKind, Event, FailureClass, LiveEvent, Outcome, Recorded, StepError, Timestamp};
use settled_provider_api::ErrorClass;
use settled_runner::{SessionEvent, Settled};
use settled_tools_api::{CallKey, Content, MessageId};

use crate::exit::Failure;
use crate::{data, text};

/// How often the status line moves.
pub(crate) const TICK: Duration = Duration::from_millis(100);

const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// How much of a tool's answer is shown.
const SHOWN: usize = 100;

/// The screen of a run.
#[derive(Debug)]
pub(crate) struct Screen {
    key_from: &'static str,
    manner: Manner,
    /// Whether the last line of the answer has no end yet.
    line_open: bool,
    /// Whether the status line is drawn.
    status: bool,
    frame: usize,
    /// How many bytes of each block of text are shown.
    texts: HashMap<(MessageId, u32), usize>,
    /// The calls without an outcome.
    calls: BTreeMap<CallKey, Call>,
    /// Since when the model has been silent.
    waiting: Option<Instant>,
    kept: Kept,
}

/// How things are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Plain lines.
    Plain,
    /// With a status line that moves.
    Moving,
}

#[derive(Debug)]
struct Call {
    line: String,
    started: Option<(Timestamp, Instant)>,
}

/// What the run has put into the session.
#[derive(Clone, Copy, Debug, Default)]
struct Kept {
    steps: usize,
    characters: usize,
    calls: usize,
}

impl Screen {
    /// A screen for a run whose key is in this variable.
    pub(crate) fn new(key_from: &'static str) -> Self {
        let moving = io::stdout().is_terminal() && io::stderr().is_terminal();
        Self {
            key_from,
            manner: if moving { Manner::Moving } else { Manner::Plain },
            line_open: false,
            status: false,
            frame: 0,
            texts: HashMap::new(),
            calls: BTreeMap::new(),
            waiting: None,
            kept: Kept::default(),
        }
    }

    /// Takes in what happened before: a call that is under way has its name.
    pub(crate) fn knows(&mut self, recorded: &Recorded) {
        if let Ok(Event::ToolCalled(called)) = recorded.event() {
            let key = CallKey { step: called.message, ordinal: called.call };
            self.calls.insert(key, Call { line: text::call(&called.name, &called.input), started: None });
        }
    }

    /// Shows an event.
    pub(crate) fn event(&mut self, event: &SessionEvent) -> Result<(), Failure> {
        match event {
            SessionEvent::Recorded(recorded) => self.recorded(recorded),
            SessionEvent::Live(event) => match event {
                LiveEvent::Delta(delta) if delta.kind == DeltaKind::Text => {
                    let shown = *self.texts.entry((delta.message, delta.ordinal)).or_default();
                    let offset = usize::try_from(delta.offset).unwrap_or(usize::MAX);
                    // What was missed, or is shown already, the whole text brings, or has brought.
                    match shown.checked_sub(offset).and_then(|behind| delta.text.get(behind..)) {
                        Some(fresh) if !fresh.is_empty() => {
                            self.texts.insert((delta.message, delta.ordinal), shown + fresh.len());
                            Ok(self.answer(fresh)?)
                        }
                        _ => Ok(()),
                    }
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Says something about the run.
    pub(crate) fn say(&mut self, line: &str) -> io::Result<()> {
        self.clear()?;
        self.end_line()?;
        writeln!(io::stderr(), "{line}")
    }

    /// Makes room for what is not written through this.
    pub(crate) fn pause(&mut self) -> io::Result<()> {
        self.clear()?;
        self.end_line()
    }

    /// Moves the status line, where there is one; to be called every [`TICK`].
    pub(crate) fn tick(&mut self) -> io::Result<()> {
        if self.manner == Manner::Plain || self.line_open {
            return Ok(());
        }
        let mut running = self.calls.values().filter_map(|call| call.started.map(|(_, since)| (&call.line, since)));
        let (what, since) = match (running.next(), running.count()) {
            (Some((line, since)), 0) => (text::one_line(line, 60), since),
            (Some((line, since)), more) => (format!("{} (and {more} more)", text::one_line(line, 50)), since),
            (None, _) => match self.waiting {
                Some(since) => ("waiting for the model".to_owned(), since),
                None => return self.clear(),
            },
        };
        self.frame = (self.frame + 1) % FRAMES.len();
        let tenths = since.elapsed().as_millis() / 100;
        let mut err = io::stderr().lock();
        write!(err, "\r\u{1b}[K{} {what}  {}.{} s", FRAMES[self.frame], tenths / 10, tenths % 10)?;
        self.status = true;
        err.flush()
    }

    /// Says how the run ended.
    pub(crate) fn ended(&mut self, session: &str, settled: &Settled) -> io::Result<()> {
        self.waiting = None;
        let usage = text::usage(&settled.usage).map(|usage| format!("; {usage}")).unwrap_or_default();
        match settled.outcome {
            Outcome::Interrupted => {
                let Kept { steps, characters, calls } = self.kept;
                let kept =
                    [(steps, "step"), (characters, "character"), (calls, "call")].map(|(n, what)| text::count(n, what));
                self.say(&format!("interrupted; kept: {} with {} of text and {}", kept[0], kept[1], kept[2]))?;
            }
            Outcome::Failed => {
                let error = settled.error.as_ref().map_or_else(|| "failed".to_owned(), |error| self.failed(error));
                self.say(&error)?;
            }
            _ => {}
        }
        self.say(&format!("session {session} {}{usage}", settled.outcome.name()))
    }

    fn recorded(&mut self, recorded: &Recorded) -> Result<(), Failure> {
        let at = recorded.at;
        match recorded.event().map_err(data::corrupt)? {
            Event::ExecutionStarted(started) if started.resume > 0 => {
                self.say("going on with what an earlier process left unfinished")?;
            }
            Event::ExecutionSettled(_) => self.waiting = None,
            Event::StepStarted(_) => self.waiting = Some(Instant::now()),
            Event::TextStarted(started) => {
                self.waiting = None;
                // Its first pieces may have come live, before this was durable: then they are shown already.
                if let Entry::Vacant(block) = self.texts.entry((started.message, started.ordinal)) {
                    block.insert(0);
                    self.pause()?;
                }
            }
            Event::TextEnded(ended) => {
                self.kept.characters += ended.text.chars().count();
                let shown = self.texts.insert((ended.message, ended.ordinal), usize::MAX).unwrap_or_default();
                match ended.text.get(shown.min(ended.text.len())..) {
                    Some("") => {}
                    Some(rest) => self.answer(rest)?,
                    // The provider gave another text at the end than it had streamed.
                    None => {
                        self.pause()?;
                        self.answer(&ended.text)?;
                    }
                }
                self.end_line()?;
            }
            Event::ToolCalled(called) => {
                let key = CallKey { step: called.message, ordinal: called.call };
                let hosted = if called.hosted { " (run by the provider)" } else { "" };
                let line = format!("{}{hosted}", text::call(&called.name, &called.input));
                self.kept.calls += 1;
                self.calls.insert(key, Call { line, started: None });
            }
            Event::ToolStarted(started) => {
                let key = CallKey { step: started.message, ordinal: started.call };
                let Some(call) = self.calls.get_mut(&key) else { return Ok(()) };
                call.started = Some((at, Instant::now()));
                if self.manner == Manner::Plain {
                    let line = format!("> {}", call.line);
                    self.say(&line)?;
                }
            }
            Event::ToolSuccess(done) => {
                let key = CallKey { step: done.message, ordinal: done.call };
                self.outcome(at, key, '✓', "", &[])?;
            }
            Event::ToolFailed(failed) => {
                let key = CallKey { step: failed.message, ordinal: failed.call };
                let acted = if failed.may_have_acted { ", may have acted" } else { "" };
                self.outcome(at, key, '✗', &format!("{}{acted}", failed.cause.name()), &failed.content)?;
            }
            Event::ToolUnknown(unknown) => {
                let key = CallKey { step: unknown.message, ordinal: unknown.call };
                self.outcome(at, key, '?', "unknown, may have acted", &unknown.content)?;
            }
            Event::InteractionRequested(_) => self.waiting = None,
            Event::RetryScheduled(retry) => {
                let delay = text::seconds(Duration::from_millis(retry.delay_ms));
                self.say(&format!("{}; trying again in {delay}", self.failed(&retry.error)))?;
            }
            Event::StepEnded(_) | Event::StepFailed(_) => {
                self.waiting = None;
                self.kept.steps += 1;
            }
            Event::CompactionStarted(_) => self.say("the history is long: it is summarised")?,
            Event::CompactionFailed(compaction) => {
                self.say(&format!("there is no summary: {}", self.failed(&compaction.error)))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn outcome(&mut self, at: Timestamp, key: CallKey, mark: char, what: &str, content: &[Content]) -> io::Result<()> {
        let call = self.calls.remove(&key);
        let line = call.as_ref().map_or_else(|| format!("call {}", key.ordinal), |call| call.line.clone());
        let mut shown = format!("{mark} {line}");
        if let Some((started, _)) = call.and_then(|call| call.started) {
            shown.push_str(&format!("  {}", text::seconds(at.since(started))));
        }
        if !what.is_empty() {
            shown.push_str(&format!("  {what}: {}", text::content(content, SHOWN)));
        }
        self.say(&shown)
    }

    /// Writes a piece of the answer.
    fn answer(&mut self, piece: &str) -> io::Result<()> {
        self.clear()?;
        let mut out = io::stdout().lock();
        // A file gets what the model said; a terminal nothing that it would obey.
        match self.manner {
            Manner::Plain => out.write_all(piece.as_bytes())?,
            Manner::Moving => out.write_all(text::harmless(piece).as_bytes())?,
        }
        self.line_open = !piece.ends_with('\n');
        out.flush()
    }

    fn end_line(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.line_open) {
            let mut out = io::stdout().lock();
            writeln!(out)?;
            out.flush()?;
        }
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.status) {
            let mut err = io::stderr().lock();
            write!(err, "\r\u{1b}[K")?;
            err.flush()?;
        }
        Ok(())
    }

    /// A failure, and what to do about it where that can be said.
    fn failed(&self, error: &StepError) -> String {
        let advice = match error.class {
            FailureClass::Provider(ErrorClass::Auth) => {
                format!("; check {}, and that it is for this --base-url", self.key_from)
            }
            FailureClass::Provider(ErrorClass::Quota) => "; look at the account of this key".to_owned(),
            FailureClass::Provider(ErrorClass::InvalidRequest) if error.message.to_lowercase().contains("model") => {
                "; check --model: the server must have it".to_owned()
            }
            _ => String::new(),
        };
        format!("{}{advice}", text::one_line(&error.to_string(), 400))
    }
}

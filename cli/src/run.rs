//! `settled run`: one run of a session, shown while it happens.

use std::io::{self, Read};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use settled_ledger::store::{Catalog, Inbox, Next, SessionInfo, StoreErrorKind};
use settled_ledger::{Event, Ids, NewInputKind, Outcome, Recorded, Seq, SessionFold};
use settled_provider_api::ModelRef;
use settled_runner::{Follow, Interrupted, RandomIds, Runner, Serving, Session, SessionEvent, Settled};
use settled_store_sqlite::SqliteStore;
use settled_tools_api::SessionId;

use crate::args::Run;
use crate::data::{self, DataFolder};
use crate::exit::{Exit, Failure};
use crate::screen::{self, Screen};
use crate::signals::{Signals, Told};
use crate::wiring::{LEASE, Wiring};
use crate::{answer, ask, jsonl};

/// How long what runs may take to reach a border when the process is told to stop.
const SHUTDOWN: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: Run, data: &DataFolder) -> Result<Exit, Failure> {
    let prompt = prompt(args.prompt.as_deref())?;
    let id = args.session.clone().map_or_else(new_id, Ok)?;
    if args.session.is_none() && prompt.is_none() {
        return Err(Failure::usage("there is nothing to say: give a prompt, or --session ID to go on with one"));
    }
    let store = data.open()?;
    let before = before(&store, &id).await?;
    let wiring = Wiring::new(&args, &before.fold, &before.switches)?;
    let builder = wiring.runner()?;
    if prompt.is_none() && before.info.is_none() {
        return Err(Failure::usage(format!("there is no session {id} to go on with: give a prompt to make it")));
    }

    let forced = prompt.is_none() && before.needs_a_push()?;
    let hold = data.hold(&id)?;
    if hold.is_elsewhere() && wiring.switches {
        let message =
            format!("another process runs session {id}: to go on with another model, wait until it has ended");
        return Err(Failure::usage(message));
    }
    // It runs when it is told to: once everything that this run says has been handed in.
    let runner = builder
        .worker(hold.worker)
        .serving(Serving::Asked)
        .shared_store(Arc::new(store.clone()))
        .fold_cache(store.clone())
        .build()?;
    let mut shown = Shown::new(&args, &id, wiring.key_from());
    if let Shown::Screen(screen) = &mut shown {
        before.unfinished.iter().for_each(|recorded| screen.knows(recorded));
    }
    let owner = before.info.as_ref().and_then(|info| info.owner).filter(|owner| *owner != hold.worker);
    if hold.is_elsewhere() {
        shown.say(&format!(
            "another process runs session {id}: what you say goes to it, and what it answers is shown"
        ))?;
    } else if owner.is_some() {
        let most = LEASE.as_secs();
        shown.say(&format!("another program holds session {id}, or died less than {most} s ago; waiting for it"))?;
    }
    let mut signals = Signals::listen()?;
    let session = runner.session_with(id.clone(), wiring.tags.clone()).await?;
    let mut follow = session.follow(before.fold.head);
    if wiring.switches {
        session.switch_model(wiring.model.clone()).await?;
    }
    if let Some(prompt) = &prompt {
        session.prompt(prompt).await?;
        if hold.is_elsewhere() {
            shown.say("handed in")?;
        }
    }

    let mut running = Running { store: &store, session: &session, follow: &mut follow, shown: &mut shown };
    let mut ended = running.until_settled(forced, &mut signals).await?;
    while let Ended::Settled(settled) = &ended {
        if settled.outcome != Outcome::Parked || args.json || !ask::somebody_is_there() {
            break;
        }
        ended = match running.ask(&mut signals).await? {
            Asked::Answered => running.until_settled(false, &mut signals).await?,
            Asked::Nobody => break,
            Asked::Terminated => Ended::Terminated,
        };
    }
    finish(ended, &session, &runner, &mut shown).await
}

/// Says how it ended; what still runs is left in order, but for a second Ctrl-C.
async fn finish(ended: Ended, session: &Session, runner: &Runner, shown: &mut Shown) -> Result<Exit, Failure> {
    let id = session.id();
    match ended {
        Ended::Settled(settled) => {
            let waiting = session.waiting().await?;
            if settled.outcome == Outcome::Parked {
                for waiting in &waiting {
                    shown.say(&format!("waits: {}", answer::how_to_answer(id, waiting)))?;
                }
            }
            match shown {
                Shown::Screen(screen) => screen.ended(id.as_str(), &settled)?,
                Shown::Json(id) => jsonl::ended(id, &settled, &waiting)?,
            }
            for call in session.leaked() {
                shown.say(&format!("the tool of call {call} did not stop: it may still be running"))?;
            }
            // Nothing runs any more: this only gives the session up.
            runner.shutdown(SHUTDOWN).await;
            Ok(Exit::of(settled.outcome))
        }
        Ended::Left => {
            shown
                .say(&format!("left at once: `settled run --session {id}` settles what was under way, and goes on"))?;
            Ok(Exit::Interrupted)
        }
        Ended::Terminated => {
            runner.shutdown(SHUTDOWN).await;
            shown.say(&format!("told to stop: `settled run --session {id}` goes on"))?;
            Ok(Exit::Terminated)
        }
    }
}

/// What is said, if anything.
fn prompt(given: Option<&str>) -> Result<Option<String>, Failure> {
    let text = match given {
        None => return Ok(None),
        Some("-") => {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.map_err(|error| Failure::usage(format!("the prompt cannot be read from standard input: {error}")))?;
            text
        }
        Some(text) => text.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(Failure::usage("the prompt is empty: say something"));
    }
    Ok(Some(text))
}

/// A name for a new session; names grow with time.
fn new_id() -> Result<SessionId, Failure> {
    let bits = RandomIds::default().next() >> 56;
    Ok(SessionId::new(format!("s-{bits:018x}"))?)
}

/// A session as it was before the run.
struct Before {
    info: Option<SessionInfo>,
    fold: SessionFold,
    /// The models that it is still to go on with, in order.
    switches: Vec<ModelRef>,
    /// The events of the step that has no terminal.
    unfinished: Vec<Recorded>,
}

async fn before(store: &SqliteStore, id: &SessionId) -> Result<Before, Failure> {
    let info = match store.info(id).await {
        Ok(info) => info,
        Err(error) if error.kind == StoreErrorKind::NotFound => {
            return Ok(Before { info: None, fold: SessionFold::new(), switches: Vec::new(), unfinished: Vec::new() });
        }
        Err(error) => return Err(error.into()),
    };
    let mut fold = SessionFold::new();
    let mut log = data::whole_log(store, id).await?;
    for recorded in &log {
        fold.apply(recorded.seq, &recorded.event().map_err(data::corrupt)?);
    }
    let from = fold.step.as_ref().map_or(log.len(), |step| log.partition_point(|recorded| recorded.seq < step.from));
    let models = store.pending(id).await?.into_iter().map(|item| match item.input {
        NewInputKind::Switch(switch) => switch.model,
        _ => None,
    });
    Ok(Before { info: Some(info), fold, switches: models.flatten().collect(), unfinished: log.split_off(from) })
}

impl Before {
    /// Whether the model is to be asked although nothing asks for it: to go on after a failure or an interrupt.
    fn needs_a_push(&self) -> Result<bool, Failure> {
        match self.info.as_ref().map(|info| &info.state.next) {
            Some(Next::Held) => Ok(true),
            Some(Next::Idle) | None => {
                Err(Failure::usage("the session has nothing left to do: give a prompt, to say something"))
            }
            Some(Next::Runnable | Next::At(_) | Next::Waiting(_)) => Ok(false),
        }
    }
}

/// Where events go.
enum Shown {
    Screen(Screen),
    Json(SessionId),
}

impl Shown {
    fn new(args: &Run, id: &SessionId, key_from: &'static str) -> Self {
        if args.json { Self::Json(id.clone()) } else { Self::Screen(Screen::new(key_from)) }
    }

    fn event(&mut self, event: &SessionEvent) -> Result<(), Failure> {
        match self {
            Self::Screen(screen) => screen.event(event),
            Self::Json(session) => jsonl::event(session, event),
        }
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        match self {
            Self::Screen(screen) => screen.say(line),
            Self::Json(_) => io::Write::write_fmt(&mut io::stderr(), format_args!("{line}\n")),
        }
    }

    fn tick(&mut self) -> io::Result<()> {
        match self {
            Self::Screen(screen) => screen.tick(),
            Self::Json(_) => Ok(()),
        }
    }
}

/// How a run was ended.
enum Ended {
    Settled(Box<Settled>),
    /// By a second Ctrl-C.
    Left,
    Terminated,
}

struct Running<'a> {
    store: &'a SqliteStore,
    session: &'a Session,
    follow: &'a mut Follow,
    shown: &'a mut Shown,
}

impl Running<'_> {
    /// Shows what happens until the session does nothing more by itself.
    async fn until_settled(&mut self, forced: bool, signals: &mut Signals) -> Result<Ended, Failure> {
        let session = self.session.clone();
        let mut settling = pin!(async move {
            if forced {
                return session.run().await;
            }
            session.wake();
            session.settled().await
        });
        let mut settled = None;
        let mut head = Seq::START;
        let mut reached = Seq::START;
        let mut interrupting = Interrupting::No;
        let mut tick = tokio::time::interval(screen::TICK);
        loop {
            tokio::select! {
                next = self.follow.next() => match next {
                    Some(Ok(event)) => {
                        self.shown.event(&event)?;
                        match &event {
                            SessionEvent::Recorded(recorded) => {
                                reached = recorded.seq;
                                let began = matches!(recorded.event(), Ok(Event::ExecutionStarted(_)));
                                if began && interrupting == Interrupting::Owed {
                                    interrupting = self.interrupt().await?;
                                }
                            }
                            SessionEvent::Synced(head, _) => reached = reached.max(*head),
                            _ => {}
                        }
                    }
                    Some(Err(error)) => return Err(error.into()),
                    None => return Err(Failure::failed("the session can not be followed any more: try again")),
                },
                ended = &mut settling, if settled.is_none() => {
                    settled = Some(Box::new(ended?));
                    head = self.store.info(self.session.id()).await?.head;
                }
                told = signals.next() => match (told, interrupting) {
                    (Told::Interrupt, Interrupting::No) => {
                        self.shown.say("interrupting; Ctrl-C again leaves at once")?;
                        interrupting = self.interrupt().await?;
                    }
                    (Told::Interrupt, _) => return Ok(Ended::Left),
                    (Told::Terminate, _) => return Ok(Ended::Terminated),
                },
                _ = tick.tick() => self.shown.tick()?,
            }
            // All that led to the end is shown before it is said.
            if reached >= head
                && let Some(settled) = settled.take()
            {
                return Ok(Ended::Settled(settled));
            }
        }
    }

    async fn interrupt(&mut self) -> Result<Interrupting, Failure> {
        Ok(match self.session.interrupt().await? {
            Interrupted::NothingRuns => Interrupting::Owed,
            _ => Interrupting::Requested,
        })
    }

    /// Asks about everything that waits.
    async fn ask(&mut self, signals: &mut Signals) -> Result<Asked, Failure> {
        for waiting in self.session.waiting().await? {
            if let Shown::Screen(screen) = self.shown {
                screen.pause()?;
            }
            let answered = tokio::select! {
                answered = ask::ask(self.session, &waiting) => answered?,
                told = signals.next() => match told {
                    Told::Interrupt => {
                        self.session.interrupt().await?;
                        return Ok(Asked::Answered);
                    }
                    Told::Terminate => return Ok(Asked::Terminated),
                },
            };
            if !answered {
                return Ok(Asked::Nobody);
            }
        }
        Ok(Asked::Answered)
    }
}

/// What became of asking.
enum Asked {
    /// Everything has its answer, or was interrupted: the session goes on.
    Answered,
    /// The terminal's input was closed.
    Nobody,
    /// The process was told to stop.
    Terminated,
}

/// How far an interrupt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interrupting {
    No,
    /// Asked for before anything ran: it is made when something does.
    Owed,
    Requested,
}

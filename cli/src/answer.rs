//! `settled approve`, `decline`, `answer`, `dismiss`, `interrupt`: what a person hands to a session from outside.
//!
//! They hand it in and run nothing: a `settled run` of the session goes on with it.

use std::io::{self, Write};
use std::sync::Arc;

use async_trait::async_trait;
use settled_ledger::store::Catalog;
use settled_provider_api::{ErrorClass, ModelInfo, ModelRef, Provider, ProviderError, ProviderStream, Request};
use settled_runner::{Interrupted, Runner, Serving, Session, Waiting};
use settled_tools_api::{CallKey, SessionId};

use crate::args::{ACall, Answer, Decline, Interrupt};
use crate::data::DataFolder;
use crate::exit::{Exit, Failure};
use crate::text;

pub(crate) async fn approve(args: ACall, data: &DataFolder) -> Result<Exit, Failure> {
    let session = open(&args.session, data).await?;
    let call = the_call(&session, args.call).await?;
    session.approve(call).await?;
    handed_in(&args.session, "approved")
}

pub(crate) async fn decline(args: Decline, data: &DataFolder) -> Result<Exit, Failure> {
    let session = open(&args.call.session, data).await?;
    let call = the_call(&session, args.call.call).await?;
    session.decline(call, args.feedback).await?;
    handed_in(&args.call.session, "declined")
}

pub(crate) async fn answer(args: Answer, data: &DataFolder) -> Result<Exit, Failure> {
    let session = open(&args.session, data).await?;
    let call = the_call(&session, args.call).await?;
    session.answer(call, args.text).await?;
    handed_in(&args.session, "answered")
}

pub(crate) async fn dismiss(args: ACall, data: &DataFolder) -> Result<Exit, Failure> {
    let session = open(&args.session, data).await?;
    let call = the_call(&session, args.call).await?;
    session.dismiss(call).await?;
    handed_in(&args.session, "dismissed")
}

pub(crate) async fn interrupt(args: Interrupt, data: &DataFolder) -> Result<Exit, Failure> {
    let session = open(&args.session, data).await?;
    match session.interrupt().await? {
        Interrupted::NothingRuns => writeln!(io::stdout(), "nothing runs in session {}", args.session)?,
        _ => writeln!(io::stdout(), "interrupted: what runs session {} will stop", args.session)?,
    }
    Ok(Exit::Completed)
}

/// One line about a call that waits, with the commands that answer it.
pub(crate) fn how_to_answer(session: &SessionId, waiting: &Waiting) -> String {
    let call = waiting.call;
    let answers = match waiting.kind {
        settled_ledger::InteractionKind::Approval => {
            format!("`settled approve {session} {call}` or `settled decline {session} {call} [--feedback TEXT]`")
        }
        _ => format!("`settled answer {session} TEXT --call {call}` or `settled dismiss {session} {call}`"),
    };
    format!("{}: {answers}", text::one_line(&waiting.text, 160))
}

/// A session that is there, in a runner that runs nothing.
async fn open(session: &SessionId, data: &DataFolder) -> Result<Session, Failure> {
    let store = data.open_for(session)?;
    store.info(session).await?;
    let nobody = ModelRef::new("nobody", "nobody");
    let runner = Runner::builder().model(nobody, Nobody, ModelInfo::new()).shared_store(Arc::new(store));
    let runner = runner.serving(Serving::Asked).build()?;
    Ok(runner.session(session.clone()).await?)
}

/// The call that is meant: the one that is named, or the only one that waits.
async fn the_call(session: &Session, named: Option<CallKey>) -> Result<CallKey, Failure> {
    if let Some(call) = named {
        return Ok(call);
    }
    let id = session.id();
    match &session.waiting().await?[..] {
        [] => Err(Failure::usage(format!("no call of session {id} waits for an answer"))),
        [only] => Ok(only.call),
        several => {
            let lines: Vec<_> = several.iter().map(|waiting| format!("\n  {}", how_to_answer(id, waiting))).collect();
            Err(Failure::usage(format!("{} calls wait: say which one{}", several.len(), lines.concat())))
        }
    }
}

fn handed_in(session: &SessionId, what: &str) -> Result<Exit, Failure> {
    writeln!(io::stdout(), "{what}; `settled run --session {session}` goes on, if no run does so already")?;
    Ok(Exit::Completed)
}

/// The provider of a runner that runs nothing.
struct Nobody;

#[async_trait]
impl Provider for Nobody {
    async fn stream(&self, _: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        Err(ProviderError::new(ErrorClass::Unsupported, "this runner runs nothing"))
    }
}

//! Asking the person at the terminal about calls that wait.

use std::io::{self, BufRead, IsTerminal, Write};

use settled_ledger::InteractionKind;
use settled_runner::{Session, Waiting};

use crate::exit::Failure;
use crate::text;

/// Whether there is somebody to ask.
pub(crate) fn somebody_is_there() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks about one call and hands the answer in; `false` if the person closed the terminal's input instead of answering.
pub(crate) async fn ask(session: &Session, waiting: &Waiting) -> Result<bool, Failure> {
    let question = text::harmless(&waiting.text);
    let approval = waiting.kind == InteractionKind::Approval;
    let how = if approval { "[y]es, [n]o, or what to do instead" } else { "answer, or nothing to close the question" };
    write!(io::stderr(), "{question}\n{how}: ")?;
    // On a thread of its own: the run goes on listening to signals.
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).map(|bytes| (bytes > 0).then_some(line))
    });
    let line = match read.await {
        Ok(line) => line?,
        Err(_) => None,
    };
    let Some(line) = line else { return Ok(false) };
    let answer = line.trim();
    match (approval, answer.to_lowercase().as_str()) {
        (true, "y" | "yes") => session.approve(waiting.call).await?,
        (true, "" | "n" | "no") => session.decline(waiting.call, None).await?,
        (true, _) => session.decline(waiting.call, Some(answer.to_owned())).await?,
        (false, "") => session.dismiss(waiting.call).await?,
        (false, _) => session.answer(waiting.call, answer).await?,
    };
    Ok(true)
}

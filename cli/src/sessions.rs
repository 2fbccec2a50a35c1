//! `settled sessions`: what sessions there are.

use std::io::{self, BufWriter, Write};

use serde_json::json;
use settled_ledger::store::{Catalog, Next, Query, SessionInfo};

use crate::args::Sessions;
use crate::data::DataFolder;
use crate::exit::{Exit, Failure};
use crate::text;

pub(crate) async fn sessions(args: Sessions, data: &DataFolder) -> Result<Exit, Failure> {
    let mut sessions = Vec::new();
    if let Some(store) = data.existing()? {
        let mut query = Query::default();
        loop {
            let page = store.list(&query).await?;
            sessions.extend(page.sessions);
            match page.after {
                Some(after) => query.after = Some(after),
                None => break,
            }
        }
    }
    // The last that was used is the last that is shown: right above the prompt.
    sessions.sort_by_key(|info| info.updated);
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        for info in &sessions {
            let line = json!({
                "session": info.session,
                "state": state(info),
                "running": info.owner.is_some(),
                "events": info.head.get(),
                "created": info.created.as_millis(),
                "updated": info.updated.as_millis(),
                "tags": info.tags,
            });
            writeln!(out, "{line}")?;
        }
    } else if sessions.is_empty() {
        writeln!(io::stderr(), "there are no sessions in {}: `settled run \"…\"` makes one", data.path().display())?;
    } else {
        let widest = sessions.iter().map(|info| info.session.as_str().chars().count()).max().unwrap_or_default();
        for info in &sessions {
            let running = if info.owner.is_some() { ", running" } else { "" };
            let folder = info.tags.get("folder").map(|folder| format!("  {folder}")).unwrap_or_default();
            writeln!(
                out,
                "{:widest$}  {}  {:>6} events  {}{running}{folder}",
                info.session.as_str(),
                text::utc(info.updated),
                info.head,
                state(info),
            )?;
        }
    }
    out.flush()?;
    Ok(Exit::Completed)
}

fn state(info: &SessionInfo) -> &'static str {
    match info.state.next {
        Next::Runnable if info.state.execution.is_some() => "unfinished",
        Next::Runnable => "has input",
        Next::At(_) => "to be tried again",
        Next::Waiting(_) => "waits for a person",
        Next::Held => "stopped",
        Next::Idle => "idle",
    }
}

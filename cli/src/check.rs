//! `settled check`: what every log must satisfy.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;

use settled_ledger::Recorded;
use settled_ledger::check::{Breach, check_log};
use settled_tools_api::SessionId;

use crate::args::Check;
use crate::data::{self, DataFolder};
use crate::exit::{Exit, Failure};
use crate::text;

pub(crate) async fn check(args: Check, data: &DataFolder) -> Result<Exit, Failure> {
    let what = args.what;
    let log = if what == "-" {
        read(io::stdin().lock(), "standard input")?
    } else if Path::new(&what).is_file() {
        let file = std::fs::File::open(&what);
        let file = file.map_err(|error| Failure::usage(format!("`{what}` cannot be read: {error}")))?;
        read(BufReader::new(file), &format!("`{what}`"))?
    } else {
        let session = SessionId::new(&what)?;
        let store = data.open_for(&session).map_err(|failure| neither(failure, &what))?;
        data::whole_log(&store, &session).await.map_err(|failure| neither(failure, &what))?
    };
    let breaches = check_log(&log);
    write(&log, &breaches, &mut io::stdout().lock())?;
    Ok(if breaches.is_empty() { Exit::Completed } else { Exit::Failed })
}

/// Writes the checker's verdict.
pub(crate) fn write(log: &[Recorded], breaches: &[Breach], out: &mut impl Write) -> io::Result<()> {
    if breaches.is_empty() {
        return writeln!(out, "{}: every invariant holds", text::count(log.len(), "event"));
    }
    for breach in breaches {
        writeln!(out, "{breach}")?;
    }
    writeln!(out, "{}: broken {}", text::count(log.len(), "event"), text::count(breaches.len(), "time"))
}

/// What was given names neither a file nor a session.
fn neither(failure: Failure, what: &str) -> Failure {
    match failure.exit {
        Exit::Usage => {
            Failure::usage(format!("there is no session and no file `{what}`: `settled sessions` lists the sessions"))
        }
        _ => failure,
    }
}

fn read(lines: impl BufRead, whence: &str) -> Result<Vec<Recorded>, Failure> {
    let mut log = Vec::new();
    for (number, line) in lines.lines().enumerate() {
        let line = line.map_err(|error| Failure::usage(format!("{whence} cannot be read: {error}")))?;
        if line.trim().is_empty() {
            continue;
        }
        let recorded = Recorded::from_json(&line);
        log.push(recorded.map_err(|why| Failure::usage(format!("{whence}, line {}: {why}", number + 1)))?);
    }
    if log.is_empty() {
        return Err(Failure::usage(format!("{whence} has no events")));
    }
    Ok(log)
}

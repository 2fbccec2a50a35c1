//! `settled check`: what every log must satisfy.

use std::io::{self, Write};
use std::path::Path;

use settled_ledger::Recorded;
use settled_ledger::check::{Breach, check_log};
use settled_tools_api::SessionId;

use crate::archive::Archive;
use crate::args::Check;
use crate::data::{self, DataFolder};
use crate::exit::{Exit, Failure};
use crate::text;

pub(crate) async fn check(args: Check, folder: &DataFolder) -> Result<Exit, Failure> {
    let what = args.what;
    let path = Path::new(&what);
    let log = if what == "-" {
        read(&data::read(path)?, "standard input")?
    } else if path.is_file() {
        read(&data::read(path)?, &format!("`{what}`"))?
    } else {
        let session = SessionId::new(&what)?;
        let store = folder.open_for(&session).map_err(|failure| neither(failure, &what))?;
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

/// The events of a file: of `log --json`, or an export, which is held to all that an import holds it to.
pub(crate) fn read(file: &[u8], whence: &str) -> Result<Vec<Recorded>, Failure> {
    if Archive::looks_like(file) {
        return match Archive::read(file) {
            Ok(archive) => Ok(archive.log),
            Err(broken) => Err(Failure::failed(format!("{whence}, {broken}"))),
        };
    }
    let text = std::str::from_utf8(file).map_err(|error| Failure::usage(format!("{whence} is no text: {error}")))?;
    let mut log = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let recorded = Recorded::from_json(line);
        log.push(recorded.map_err(|why| Failure::usage(format!("{whence}, line {}: {why}", number + 1)))?);
    }
    if log.is_empty() {
        return Err(Failure::usage(format!("{whence} has no events")));
    }
    Ok(log)
}

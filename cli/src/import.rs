//! `settled import`: a session from a file that `settled export` has written.

use std::io::{self, Write};

use crate::archive::Archive;
use crate::args::Import;
use crate::data::{self, DataFolder};
use crate::exit::{Exit, Failure};
use crate::text;

pub(crate) async fn import(args: Import, folder: &DataFolder) -> Result<Exit, Failure> {
    let name = args.file.display();
    let file = data::read(&args.file)?;
    let archive = Archive::read(&file).map_err(|broken| Failure::usage(format!("`{name}`, {broken}")))?;
    let store = folder.open()?;
    let session = &archive.session;
    let hold = folder.hold(session)?;
    if hold.is_elsewhere() {
        return Err(Failure::usage(format!("there is a session `{session}` already, and another process runs it")));
    }
    archive.put(&store, hold.worker).await?;
    let what = text::held(archive.log.len(), archive.inputs.len());
    writeln!(io::stderr(), "session {session}: {what} imported")?;
    Ok(Exit::Completed)
}

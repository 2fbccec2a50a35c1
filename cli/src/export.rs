//! `settled export`: a session as a file.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use settled_ledger::store::StoreErrorKind;

use crate::archive::Archive;
use crate::args::Export;
use crate::data::DataFolder;
use crate::exit::{Exit, Failure};
use crate::text;

pub(crate) async fn export(args: Export, data: &DataFolder) -> Result<Exit, Failure> {
    let store = data.open_for(&args.session)?;
    let archive = Archive::take(&store, &args.session).await.map_err(|error| match error.kind {
        StoreErrorKind::InUse => Failure::failed(format!("{error}: interrupt it, or try again when it rests")),
        _ => error.into(),
    })?;
    if args.file == Path::new("-") {
        archive.write(BufWriter::new(io::stdout().lock()))?;
        return Ok(Exit::Completed);
    }
    let name = args.file.display();
    let unwritten = |error: io::Error| Failure::usage(format!("`{name}` cannot be written: {error}"));
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    // What was said in a session is its user's alone.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&args.file).map_err(unwritten)?;
    archive.write(BufWriter::new(file)).map_err(unwritten)?;
    let (events, inputs) = (archive.log.len(), archive.inputs.len());
    let what = text::held(events, inputs);
    writeln!(io::stderr(), "session {}: {what} exported to {name}", args.session)?;
    Ok(Exit::Completed)
}

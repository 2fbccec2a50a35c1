//! `settled log`: a session's timeline.

use std::io::{self, BufWriter, Write};

use crate::args::Log;
use crate::data::{self, DataFolder};
use crate::exit::{Exit, Failure};
use crate::timeline;

pub(crate) async fn log(args: Log, data: &DataFolder) -> Result<Exit, Failure> {
    let store = data.open_for(&args.session)?;
    let log = data::whole_log(&store, &args.session).await?;
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        for recorded in &log {
            writeln!(out, "{}", recorded.to_json().map_err(data::corrupt)?)?;
        }
    } else {
        timeline::write(&log, &mut out)?;
    }
    out.flush()?;
    Ok(Exit::Completed)
}

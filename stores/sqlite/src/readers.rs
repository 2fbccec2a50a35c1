//! The readers: a few threads with a connection each, so that no read waits for the writer.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use settled_ledger::store::StoreError;

use crate::answer::Answer;
use crate::error::{Fault, closed};
use crate::flight::Flight;
use crate::schema::{Identity, join};

/// Something to read, and somebody to answer.
pub(crate) type Read = Box<dyn FnOnce(Result<&Connection, StoreError>) + Send>;

/// The handles' end of the readers' channel.
#[derive(Debug)]
pub(crate) struct ToReaders {
    reads: Sender<Read>,
    file: Arc<Path>,
}

impl ToReaders {
    pub(crate) fn new(reads: Sender<Read>, file: Arc<Path>) -> Self {
        Self { reads, file }
    }

    /// Has something read.
    pub(crate) fn call<T, F>(&self, flight: Flight, read: F) -> Answer<Result<T, StoreError>>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<Result<T, StoreError>, Fault> + Send + 'static,
    {
        let (reply, answer) = Answer::new(&self.file, flight.clone(), |file| Err(closed(file)));
        let file = self.file.clone();
        let work: Read = Box::new(move |db| {
            let read = db.and_then(|db| transaction(db, read).unwrap_or_else(|fault| Err(fault.named(&file))));
            drop(flight);
            // Whoever asked may have gone away.
            let _ = reply.send(read);
        });
        // Readers that are gone drop what is sent, and with it the answer's other end.
        let _ = self.reads.send(work);
        answer
    }
}

/// Reads in one transaction: a session that is erased meanwhile is there as a whole, or not at all.
fn transaction<T>(
    db: &Connection,
    read: impl FnOnce(&Connection) -> Result<Result<T, StoreError>, Fault>,
) -> Result<Result<T, StoreError>, Fault> {
    let tx = db.unchecked_transaction()?;
    let read = read(&tx)?;
    tx.commit()?;
    Ok(read)
}

/// A reader's thread.
pub(crate) fn run(reads: &Arc<Mutex<Receiver<Read>>>, identity: &Identity, busy: Duration) {
    let mut db = None;
    loop {
        let next = reads.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(read) = next else { return };
        if db.is_none() {
            match opened(identity, busy) {
                Ok(opened) => db = Some(opened),
                Err(fault) => {
                    read(Err(fault.named(identity.file())));
                    continue;
                }
            }
        }
        if let Some(db) = &db {
            read(Ok(db));
        }
    }
}

/// A connection that only reads.
fn opened(identity: &Identity, busy: Duration) -> Result<Connection, Fault> {
    let db = join(identity, busy)?;
    db.execute_batch("PRAGMA query_only = ON;")?;
    Ok(db)
}

//! The readers: a few threads with a connection each, so that no read waits for the writer.

use std::path::Path;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_channel::oneshot;
use rusqlite::{Connection, OpenFlags};
use settled_ledger::store::StoreError;

use crate::error::{Fault, closed};
use crate::flight::Flight;
use crate::schema::connect;

/// Something to read, and somebody to answer.
pub(crate) type Read = Box<dyn FnOnce(Result<&Connection, StoreError>) + Send>;

/// An answer that is on its way; dropping it leaves the read to its own end.
pub(crate) struct Answer<T> {
    answer: oneshot::Receiver<Result<T, StoreError>>,
    file: Arc<Path>,
    // The call is under way until the answer is seen.
    _flight: Flight,
}

impl<T> Future for Answer<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        Poll::Ready(answer.unwrap_or_else(|_| Err(closed(&self.file))))
    }
}

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
    pub(crate) fn call<T, F>(&self, flight: Flight, read: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<Result<T, StoreError>, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let (file, working) = (self.file.clone(), flight.clone());
        let work: Read = Box::new(move |db| {
            let read = db.and_then(|db| transaction(db, read).unwrap_or_else(|fault| Err(fault.named(&file))));
            drop(working);
            // Whoever asked may have gone away.
            let _ = reply.send(read);
        });
        // Readers that are gone drop what is sent, and with it the answer's other end.
        let _ = self.reads.send(work);
        Answer { answer, file: self.file.clone(), _flight: flight }
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
pub(crate) fn run(reads: &Arc<Mutex<Receiver<Read>>>, file: &Path, busy: Duration) {
    let mut db = None;
    loop {
        let next = reads.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(read) = next else { return };
        if db.is_none() {
            match opened(file, busy) {
                Ok(opened) => db = Some(opened),
                Err(fault) => {
                    read(Err(fault.named(file)));
                    continue;
                }
            }
        }
        if let Some(db) = &db {
            read(Ok(db));
        }
    }
}

/// A connection that only reads; it may write all the same, so that the last one that closes can bring the write-ahead log into the file.
fn opened(file: &Path, busy: Duration) -> Result<Connection, Fault> {
    let db = connect(file, OpenFlags::SQLITE_OPEN_READ_WRITE, busy)?;
    db.execute_batch("PRAGMA query_only = ON;")?;
    Ok(db)
}

//! Signals: Ctrl-C, and being told to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// The signals that a run listens to.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Ctrl-C.
    Interrupt,
    /// `SIGTERM`.
    Terminate,
}

impl Signals {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|error| Failure::failed(format!("signals cannot be heard: {error}")));
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// The next one; the future may be dropped at any time.
    pub(crate) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.interrupt.recv() => Told::Interrupt,
            _ = self.terminate.recv() => Told::Terminate,
        }
    }
}

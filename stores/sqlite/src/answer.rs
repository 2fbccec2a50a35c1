//! Answers that are on their way from a thread.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_channel::oneshot;

use crate::flight::Flight;

/// An answer that is on its way; dropping it leaves the work to its own end.
pub(crate) struct Answer<R> {
    answer: oneshot::Receiver<R>,
    file: Arc<Path>,
    /// What it comes to when the thread is gone.
    gone: fn(&Path) -> R,
    // The call is under way until the answer is seen.
    _flight: Flight,
}

impl<R> Answer<R> {
    /// An answer, and where it is to be sent.
    pub(crate) fn new(file: &Arc<Path>, flight: Flight, gone: fn(&Path) -> R) -> (oneshot::Sender<R>, Self) {
        let (reply, answer) = oneshot::channel();
        (reply, Self { answer, file: file.clone(), gone, _flight: flight })
    }
}

impl<R> Future for Answer<R> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let answer = ready!(Pin::new(&mut self.answer).poll(cx));
        Poll::Ready(answer.unwrap_or_else(|_| (self.gone)(&self.file)))
    }
}

//! Reading a provider's stream: opening it, its limits in time, its panics.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use settled_provider_api::{ErrorClass, ModelInfo, Provider, ProviderError, ProviderEvent, ProviderStream, Request};
use tokio::time::{Instant, Sleep, sleep};

use crate::redaction::Redaction;
use crate::settings::Settings;
use crate::tools::panic_text;

/// A stream as the runner reads it. Dropping it cancels the request.
pub(crate) struct Reading {
    stage: Stage,
    first_event: Duration,
    idle: Duration,
    max_alive: u32,
    redaction: Redaction,
    /// How many signs of life have come in a row.
    alive: u32,
    heard: bool,
    last: Instant,
    timer: Pin<Box<Sleep>>,
}

enum Stage {
    Opening(Pin<Box<dyn Future<Output = Result<ProviderStream, ProviderError>> + Send>>),
    Open(ProviderStream),
    Closed,
}

/// What was heard from a stream.
pub(crate) enum Heard {
    Event(ProviderEvent),
    End,
    Failed(ProviderError),
    Panicked(String),
}

impl Reading {
    /// Sends a request; nothing happens until it is polled.
    pub(crate) fn open(
        provider: Arc<dyn Provider>,
        request: Arc<Request>,
        info: &ModelInfo,
        settings: &Settings,
        redaction: Redaction,
    ) -> Self {
        let first_event = info.first_event.unwrap_or(settings.first_event);
        Self {
            stage: Stage::Opening(Box::pin(async move { provider.stream(request).await })),
            first_event,
            idle: info.stream_idle.unwrap_or(settings.stream_idle),
            max_alive: settings.max_alive,
            redaction,
            alive: 0,
            heard: false,
            last: Instant::now(),
            timer: Box::pin(sleep(first_event)),
        }
    }

    /// A request that could not be made: its failure is all that is heard.
    pub(crate) fn failing(error: ProviderError) -> Self {
        let opening = Box::pin(async move { Err(error) });
        Self { stage: Stage::Opening(opening), ..Self::closed() }
    }

    /// A stream that is over.
    pub(crate) fn closed() -> Self {
        let never = Duration::from_secs(u64::from(u32::MAX));
        Self {
            stage: Stage::Closed,
            first_event: never,
            idle: never,
            max_alive: 0,
            redaction: Redaction::default(),
            alive: 0,
            heard: false,
            last: Instant::now(),
            timer: Box::pin(sleep(never)),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closed)
    }

    /// Waits for the next thing that is heard.
    pub(crate) async fn next(&mut self) -> Heard {
        std::future::poll_fn(|context| match self.poll(context) {
            Poll::Pending => self.poll_silence(context).map(Heard::Failed),
            heard => heard,
        })
        .await
    }

    /// The next thing that is heard, silence left out.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Heard> {
        let stage = &mut self.stage;
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| {
            if let Stage::Opening(opening) = stage {
                match opening.as_mut().poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                    Poll::Ready(Ok(stream)) => *stage = Stage::Open(stream),
                }
            }
            match stage {
                Stage::Open(stream) => stream.as_mut().poll_next(context),
                Stage::Opening(_) | Stage::Closed => Poll::Pending,
            }
        }));
        let heard = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(Some(Ok(mut event)))) => {
                self.redaction.heard(&mut event);
                if !self.heard {
                    self.heard = true;
                    self.timer.as_mut().reset(Instant::now() + self.idle);
                }
                self.alive = if event == ProviderEvent::Alive { self.alive + 1 } else { 0 };
                if self.alive <= self.max_alive {
                    self.last = Instant::now();
                }
                return Poll::Ready(Heard::Event(event));
            }
            Ok(Poll::Ready(None)) => Heard::End,
            Ok(Poll::Ready(Some(Err(error)))) => Heard::Failed(error),
            Err(panic) => Heard::Panicked(panic_text(panic.as_ref())),
        };
        // Whoever panicked is not touched again, not even to be dropped where a drop could panic too.
        let over = std::mem::replace(&mut self.stage, Stage::Closed);
        let _ = std::panic::catch_unwind(AssertUnwindSafe(move || drop(over)));
        Poll::Ready(heard)
    }

    /// Whether nothing was heard for too long; the timer is set anew only when it fires.
    pub(crate) fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<ProviderError> {
        if self.is_closed() {
            return Poll::Pending;
        }
        loop {
            if self.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            let limit = if self.heard { self.idle } else { self.first_event };
            let due = self.last + limit;
            if due <= Instant::now() {
                let what = if self.heard { "the next event" } else { "the first event" };
                self.stage = Stage::Closed;
                let message = format!("{what} did not come within {limit:?}");
                return Poll::Ready(ProviderError::new(ErrorClass::Timeout, message));
            }
            self.timer.as_mut().reset(due);
        }
    }

    /// Closes it, and with it the request.
    pub(crate) fn close(&mut self) {
        let over = std::mem::replace(&mut self.stage, Stage::Closed);
        let _ = std::panic::catch_unwind(AssertUnwindSafe(move || drop(over)));
    }
}

//! How whatever is scripted waits.

#[cfg(feature = "runner")]
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

#[cfg(feature = "runner")]
use crate::conductor::Conductor;

/// What a wait is of: at one moment, the first class goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// The script's driver: what follows an `advance` precedes everything that is due then.
    #[cfg(feature = "runner")]
    Driver,
    /// A store that is slow.
    #[cfg(feature = "runner")]
    Store,
    /// A tool.
    Tool,
    /// A provider's stream.
    Stream,
    /// The end of somebody's patience.
    #[cfg(feature = "runner")]
    Deadline,
}

/// How whatever is scripted waits: by the runtime's own clock, or as the conductor grants it.
#[derive(Clone, Default)]
pub(crate) enum Pace {
    #[default]
    Clock,
    #[cfg(feature = "runner")]
    Conducted(Arc<Conductor>),
}

impl Pace {
    /// A moment in milliseconds, to compare with others of the same pace.
    pub(crate) fn now(&self) -> u64 {
        match self {
            Self::Clock => u64::try_from(ORIGIN.with(|origin| origin.elapsed()).as_millis()).unwrap_or(u64::MAX),
            #[cfg(feature = "runner")]
            Self::Conducted(conductor) => conductor.now(),
        }
    }

    /// Waits for so many milliseconds and for its turn: at one moment, by class and order.
    pub(crate) async fn wait(&self, class: Class, order: (u128, u64), delay: u64) {
        #[cfg(not(feature = "runner"))]
        let _ = (class, order);
        match self {
            Self::Clock if delay == 0 => {}
            Self::Clock => tokio::time::sleep(Duration::from_millis(delay)).await,
            #[cfg(feature = "runner")]
            Self::Conducted(conductor) => conductor.turn(class, order, delay).await,
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        match self {
            Self::Clock => false,
            #[cfg(feature = "runner")]
            Self::Conducted(conductor) => conductor.is_dead(),
        }
    }
}

thread_local! {
    static ORIGIN: Instant = Instant::now();
}

//! Who listens: readers that follow a log, and listeners to hints.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use futures_channel::mpsc;
use settled_tools_api::SessionId;

use crate::write::News;

/// How many hints a listener may leave unheard; what comes then is lost, as hints may be.
const UNHEARD: usize = 1024;

/// Everybody who listens.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    people: Mutex<People>,
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct People {
    followers: HashMap<SessionId, Vec<Arc<Bell>>>,
    listeners: Vec<mpsc::Sender<SessionId>>,
}

/// What a follower is woken by.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Watch {
    /// Whether anybody listens.
    pub(crate) fn is_watched(&self) -> bool {
        self.count.load(Ordering::SeqCst) > 0
    }

    fn people(&self) -> MutexGuard<'_, People> {
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A bell that rings when a session's log grows or goes away.
    pub(crate) fn follow(&self, session: &SessionId) -> Arc<Bell> {
        let bell = Arc::new(Bell::default());
        let mut people = self.people();
        people.followers.entry(session.clone()).or_default().push(bell.clone());
        self.count.fetch_add(1, Ordering::SeqCst);
        bell
    }

    pub(crate) fn leave(&self, session: &SessionId, bell: &Arc<Bell>) {
        let mut people = self.people();
        if let Some(bells) = people.followers.get_mut(session) {
            bells.retain(|other| !Arc::ptr_eq(other, bell));
            if bells.is_empty() {
                people.followers.remove(session);
            }
        }
        self.count.fetch_sub(1, Ordering::SeqCst);
    }

    /// Hints from now on.
    pub(crate) fn listen(&self) -> mpsc::Receiver<SessionId> {
        let (tell, hear) = mpsc::channel(UNHEARD);
        self.people().listeners.push(tell);
        self.count.fetch_add(1, Ordering::SeqCst);
        hear
    }

    /// Tells whom it concerns.
    pub(crate) fn tell(&self, news: &[News]) {
        if news.is_empty() || !self.is_watched() {
            return;
        }
        let mut ring = Vec::new();
        let mut people = self.people();
        for news in news {
            match news {
                News::Log(session) => ring.extend(people.followers.get(session).into_iter().flatten().cloned()),
                News::Erased => ring.extend(people.followers.values().flatten().cloned()),
                News::Hint(session) => {
                    let before = people.listeners.len();
                    people.listeners.retain_mut(|listener| match listener.try_send(session.clone()) {
                        Ok(()) => true,
                        // One that does not listen loses hints; one that has gone away is forgotten.
                        Err(error) => !error.is_disconnected(),
                    });
                    self.count.fetch_sub(before - people.listeners.len(), Ordering::SeqCst);
                }
            }
        }
        drop(people);
        // Waking runs others' code: not under the lock.
        for bell in ring {
            bell.ring();
        }
    }
}

impl Bell {
    fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether it has rung since it was last asked; if not, the task is woken when it does.
    pub(crate) fn has_rung(&self, cx: &Context<'_>) -> bool {
        let former = self.waker.lock().unwrap_or_else(PoisonError::into_inner).replace(cx.waker().clone());
        drop(former);
        self.rung.swap(false, Ordering::SeqCst)
    }
}

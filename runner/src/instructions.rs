//! Sources of instructions that may change while a session runs, and looking at them at a border.

use std::error::Error;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;

use async_trait::async_trait;
use settled_ledger::{FailureClass, Instruction, InstructionsUpdated, StepError};
use settled_tools_api::OfferTo;
use tokio::time::timeout;

use crate::drain::Drain;
use crate::tools::panic_text;
use crate::writer::Lost;

/// One source of instructions: a file of the project, the date, what a server says.
///
/// It is asked at each border of a session's steps.
/// What it says first stands behind the agent's prompt and stays there, so that the prefix of requests stays what it was; when it says something else, the model is told so in one message, in front of the next input.
///
/// # Contract
///
/// - The same state of the world gives the same text: each difference costs a message.
/// - `None`, or blank text, says that there is nothing to say; what held before no longer holds, and the model is told.
/// - *May fail* when it cannot be reached, or take longer than [`Settings::instructions`](crate::Settings::instructions): then what it said last still holds, and nothing is said.
///   Where a session's sources were never asked before, the execution fails before a request is sent, and input stays pending.
/// - The wait races the session's interrupt and may be dropped at any await.
#[async_trait]
pub trait InstructionSource: Send + Sync {
    /// What it says now.
    async fn observe(&self, to: &OfferTo) -> Result<Option<String>, Box<dyn Error + Send + Sync>>;
}

/// What a look at the sources has shown.
pub(crate) enum Observed {
    Same,
    Changed(InstructionsUpdated),
    /// One cannot be asked, and there was no observation yet.
    Blocked(StepError),
    /// The interrupt is still pending.
    Interrupted,
}

impl Drain {
    /// Asks every source what holds now.
    pub(crate) async fn observe(&mut self) -> Result<Observed, Lost> {
        let shop = Arc::clone(&self.shop);
        // Nobody may speak between a pause and what continues it.
        let nothing = shop.instructions.is_empty() && self.fold.history.instructions().keys().next().is_none();
        if nothing || !self.fold.left_open.is_empty() {
            return Ok(Observed::Same);
        }
        let to = OfferTo::new(self.session.clone(), Arc::clone(&self.fold.tags));
        let mut changed = Vec::new();
        for (key, source) in &shop.instructions {
            let mut asking = source.observe(&to);
            // What panics says nothing, as what fails does.
            let caught = poll_fn(|context| {
                std::panic::catch_unwind(AssertUnwindSafe(|| asking.as_mut().poll(context)))
                    .unwrap_or_else(|panic| Poll::Ready(Err(panic_text(panic.as_ref()).into())))
            });
            let asked = timeout(shop.settings.instructions, caught);
            let answer = match self.interruptible(asked).await? {
                Ok(Ok(Ok(mut text))) => {
                    // Compared as it is kept.
                    text.iter_mut().for_each(|text| shop.redaction.text(text));
                    Ok(text.filter(|text| !text.trim().is_empty()))
                }
                Ok(Ok(Err(error))) => {
                    let mut why = error.to_string();
                    shop.redaction.text(&mut why);
                    Err(why)
                }
                Ok(Err(_)) => Err(format!("it took longer than {:?}", shop.settings.instructions)),
                Err(_) => return Ok(Observed::Interrupted),
            };
            let known = self.fold.history.instructions();
            match answer {
                Ok(text) if text.as_deref() != known.holding(key) => {
                    changed.push(Instruction { key: key.clone(), text });
                }
                Ok(_) => {}
                Err(why) if known.are_observed() => {
                    tracing::warn!(session = %self.session, source = %key, why, "a source of instructions is not available");
                }
                Err(why) => {
                    let message = format!("the instructions `{key}` are not available: {why}");
                    return Ok(Observed::Blocked(StepError::new(FailureClass::Configuration, message)));
                }
            }
        }
        // A source that is no longer there says nothing any more.
        let known = self.fold.history.instructions();
        let gone = known.keys().filter(|key| shop.instructions.iter().all(|(given, _)| given != key));
        changed.extend(gone.map(|key| Instruction { key: key.to_owned(), text: None }));
        Ok(if changed.is_empty() && known.are_observed() {
            Observed::Same
        } else {
            Observed::Changed(InstructionsUpdated { changed })
        })
    }
}

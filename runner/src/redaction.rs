//! What must not be kept: a rule that hides it before anything is stored, traced or sent to a model.

use std::sync::Arc;

use settled_ledger::{Event, NewInputKind, StepError, value_texts_mut};
use settled_provider_api::ProviderEvent;
use settled_tools_api::{Content, ToolError, ToolOutput, ToolReturn};

use crate::tools::Ended;

/// A rule that hides what must not be kept: keys, passwords, what the law says.
///
/// It is applied to every text that a person, a model, a tool or a provider says, before it is stored or traced.
/// The model is asked with what is stored, so it never sees what was hidden either; and since a call's arguments are hidden before the call is known, neither does a tool.
/// Live events are shown as they come; provider state, ids, names, tags and media are left alone.
///
/// # Contract
///
/// - The same text gives the same, and what it gives has nothing more to hide: a text may be looked at twice.
/// - It must not block: it is asked on the way of every event.
pub trait Redactor: Send + Sync {
    /// The text without what must not be kept; `None` if there is nothing to hide.
    fn redact(&self, text: &str) -> Option<String>;
}

impl<F: Fn(&str) -> Option<String> + Send + Sync> Redactor for F {
    fn redact(&self, text: &str) -> Option<String> {
        self(text)
    }
}

/// Hides the values that it knows, for instance the keys that the application was given.
///
/// ```
/// use settled_runner::{KnownSecrets, Redactor};
///
/// let secrets = KnownSecrets::new(["sk-123456", ""]);
/// assert_eq!(secrets.redact("KEY=sk-123456").as_deref(), Some("KEY=[redacted]"));
/// assert_eq!(secrets.redact("nothing"), None);
/// ```
#[derive(Clone, Default)]
pub struct KnownSecrets(Vec<String>);

impl KnownSecrets {
    /// Hides these values; those of fewer than six bytes are found by chance too often, and are left out.
    pub fn new<T: Into<String>>(values: impl IntoIterator<Item = T>) -> Self {
        let mut values: Vec<String> = values.into_iter().map(Into::into).filter(|value| value.len() >= 6).collect();
        // One that holds another is hidden whole.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self(values)
    }
}

impl Redactor for KnownSecrets {
    fn redact(&self, text: &str) -> Option<String> {
        let mut hidden = None;
        for secret in &self.0 {
            let now = hidden.as_deref().unwrap_or(text);
            if now.contains(secret) {
                hidden = Some(now.replace(secret, "[redacted]"));
            }
        }
        hidden
    }
}

impl std::fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownSecrets").field("values", &self.0.len()).finish()
    }
}

/// The rule of a runner, if it has one.
#[derive(Clone, Default)]
pub(crate) struct Redaction(pub(crate) Option<Arc<dyn Redactor>>);

impl Redaction {
    pub(crate) fn text(&self, text: &mut String) {
        if let Some(redacted) = self.0.as_ref().and_then(|redactor| redactor.redact(text)) {
            *text = redacted;
        }
    }

    /// Hides in a call what its tool is not to see either.
    pub(crate) fn heard(&self, event: &mut ProviderEvent) {
        if self.0.is_some()
            && let ProviderEvent::ToolCall(call) = event
        {
            value_texts_mut(&mut call.input, &mut |text| self.text(text));
        }
    }

    /// Hides in what a tool came back with.
    pub(crate) fn returned(&self, ended: &mut Ended) {
        if self.0.is_none() {
            return;
        }
        let visit = &mut |text: &mut String| self.text(text);
        match ended {
            Ok(Ok(ToolReturn::Output(output)) | Err(ToolError::Failed(output) | ToolError::Unknown(output))) => {
                self.output(output);
            }
            Ok(Ok(ToolReturn::Ask(ask))) => {
                visit(&mut ask.question);
                value_texts_mut(&mut ask.state, visit);
            }
            Ok(Err(ToolError::Infra(cause))) => visit(&mut cause.message),
            Ok(Err(ToolError::Declined { feedback })) => feedback.iter_mut().for_each(visit),
            Ok(Err(ToolError::Dismissed)) => {}
            Err(panic) => visit(panic),
        }
    }

    /// Hides in a tool's output, before it is bounded: half of what must be hidden would not be found.
    pub(crate) fn output(&self, output: &mut ToolOutput) {
        if self.0.is_none() {
            return;
        }
        for piece in &mut output.content {
            if let Content::Text(text) = piece {
                self.text(text);
            }
        }
        output.metadata.iter_mut().for_each(|data| value_texts_mut(data, &mut |text| self.text(text)));
    }

    pub(crate) fn events(&self, events: &mut [Event]) {
        if self.0.is_some() {
            events.iter_mut().for_each(|event| event.texts_mut(&mut |text| self.text(text)));
        }
    }

    pub(crate) fn input(&self, input: &mut NewInputKind) {
        if self.0.is_some() {
            input.texts_mut(&mut |text| self.text(text));
        }
    }

    pub(crate) fn error(&self, mut error: StepError) -> StepError {
        self.text(&mut error.message);
        error
    }
}

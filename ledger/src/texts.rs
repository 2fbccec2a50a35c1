//! The texts of events and inputs: what a person, a model or a tool said, for a rule that hides what must not be kept.

use serde_json::Value;
use settled_tools_api::Content;

use crate::inbox::{Answer, NewInputKind, Notice, Prompt};
use crate::{Event, StepError};

impl Event {
    /// Visits every text that a person, a model, a tool or a provider may have put into the event.
    ///
    /// Ids, names, hashes, labels, tags, media and provider state are none; nor are a call's arguments, which the ledger has hashed by then.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all other events have no text")]
    pub fn texts_mut(&mut self, visit: &mut dyn FnMut(&mut String)) {
        match self {
            Self::InputPromoted(event) => contents(&mut event.content, visit),
            Self::Synthetic(event) => visit(&mut event.text),
            Self::InstructionsUpdated(event) => {
                event.changed.iter_mut().filter_map(|change| change.text.as_mut()).for_each(visit);
            }
            Self::TextEnded(event) => visit(&mut event.text),
            Self::ReasoningEnded(event) => visit(&mut event.text),
            Self::AnnotationAdded(event) => value_texts_mut(&mut event.data, visit),
            Self::ToolInputEnded(event) => raw_texts_mut(&mut event.text, visit),
            Self::ToolNoted(event) => value_texts_mut(&mut event.note, visit),
            Self::ToolSuccess(event) => {
                contents(&mut event.content, visit);
                event.metadata.iter_mut().for_each(|data| value_texts_mut(data, visit));
            }
            Self::ToolFailed(event) => {
                contents(&mut event.content, visit);
                event.metadata.iter_mut().for_each(|data| value_texts_mut(data, visit));
            }
            Self::ToolUnknown(event) => contents(&mut event.content, visit),
            Self::InteractionRequested(event) => {
                visit(&mut event.text);
                event.state.iter_mut().for_each(|state| value_texts_mut(state, visit));
            }
            Self::InteractionAnswered(event) => event.text.iter_mut().for_each(visit),
            Self::StepStreamed(event) => event.failure.iter_mut().for_each(|error| error_text(error, visit)),
            Self::StepEnded(event) => event.files.iter_mut().for_each(|files| value_texts_mut(files, visit)),
            Self::StepFailed(event) => {
                error_text(&mut event.error, visit);
                event.files.iter_mut().for_each(|files| value_texts_mut(files, visit));
            }
            Self::RetryScheduled(event) => error_text(&mut event.error, visit),
            Self::CompactionEnded(event) => {
                visit(&mut event.text);
                visit(&mut event.recent);
            }
            Self::CompactionFailed(event) => error_text(&mut event.error, visit),
            Self::ExecutionSettled(event) => event.error.iter_mut().for_each(|error| error_text(error, visit)),
            _ => {}
        }
    }
}

impl NewInputKind {
    /// Visits every text that a person or the application has put into the input.
    pub fn texts_mut(&mut self, visit: &mut dyn FnMut(&mut String)) {
        match self {
            Self::Prompt(Prompt { content, .. }) => contents(content, visit),
            Self::Notice(Notice { text, .. }) => visit(text),
            Self::Answer(Answer { text, .. }) => text.iter_mut().for_each(visit),
            Self::Compact | Self::Switch(_) | Self::Interrupt(_) => {}
        }
    }
}

/// Visits every string in a JSON value; the names of members stay.
pub fn value_texts_mut(value: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter_mut().for_each(|item| value_texts_mut(item, visit)),
        Value::Object(members) => members.values_mut().for_each(|member| value_texts_mut(member, visit)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Visits the strings in a text that is JSON, as they are and not as JSON writes them; a text that is none, as a whole.
fn raw_texts_mut(raw: &mut String, visit: &mut dyn FnMut(&mut String)) {
    match serde_json::from_str::<Value>(raw) {
        Ok(mut value) => {
            let before = value.clone();
            value_texts_mut(&mut value, visit);
            if value != before {
                *raw = value.to_string();
            }
        }
        Err(_) => visit(raw),
    }
}

fn contents(content: &mut [Content], visit: &mut dyn FnMut(&mut String)) {
    for piece in content {
        if let Content::Text(text) = piece {
            visit(text);
        }
    }
}

fn error_text(error: &mut StepError, visit: &mut dyn FnMut(&mut String)) {
    visit(&mut error.message);
}

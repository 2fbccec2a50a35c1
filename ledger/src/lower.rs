//! Lowering: turning a history into the messages of a request.
//!
//! - Provider state goes back only to the provider and model that it came from, and only from a step that settled cleanly; a hosted call's pair keeps it also from a failed step.
//! - Reasoning for another model, or of a failed step, becomes text.
//! - Every call has one result right behind its message, in the order of the calls; hosted results stand inline.
//! - A hosted call that a pause left open is answered with an error once somebody speaks; a result that comes later is left out.
//! - Labels are unique in a request: a blank or repeated one is replaced, in the call and in its result.
//! - Blank text is left out unless it carries state, and an empty message with it.
//! - Changed instructions are a system message where the model allows one in the middle, otherwise a user message.
//! - Media that the model does not accept becomes a text that says so.
//! - Media may have 25 MiB in all; where there is more, the oldest becomes a text until 15 MiB are left, so that the prefix changes rarely.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use settled_provider_api::{
    AssistantPart, CallPart, Capabilities, Content, HostedResultPart, Media, MediaData, Message, ModelRef, TextPart,
    ToolResult,
};
use settled_tools_api::{CallKey, never_empty};

use crate::history::{AssistantEntry, CallEntry, Entry, History, Part, Summary, TextEntry};

/// The messages of a history for one model, kept incrementally: only what is new is lowered.
#[derive(Clone, Debug, Default)]
pub struct Lowering {
    made_for: Option<(ModelRef, Capabilities)>,
    generation: u64,
    /// How many entries are lowered.
    lowered: usize,
    messages: Vec<Arc<Message>>,
    /// The messages with media, oldest first, each with the bytes of it.
    media: VecDeque<(usize, usize)>,
    labels: Labels,
    /// Whether the last settled step left hosted calls open, so that the model goes on from its own message.
    open_ended: bool,
}

/// The labels of a request.
#[derive(Clone, Debug, Default)]
struct Labels {
    used: BTreeSet<String>,
    /// Hosted calls whose result may come in a later message.
    hosted: BTreeMap<CallKey, (String, String)>,
}

impl Lowering {
    /// A lowering of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Brings the messages up to date with a history and gives them.
    ///
    /// The step that is open is not part of them.
    pub fn update(&mut self, history: &History, model: &ModelRef, capabilities: &Capabilities) -> &[Arc<Message>] {
        let same = self.made_for.as_ref().is_some_and(|(was, could)| was == model && could == capabilities);
        if !same || self.generation != history.generation() {
            *self = Self {
                made_for: Some((model.clone(), capabilities.clone())),
                generation: history.generation(),
                ..Self::default()
            };
        }
        for entry in history.entries().iter().skip(self.lowered) {
            let from = self.messages.len();
            self.entry(entry, model, capabilities);
            self.bound_media(from);
        }
        self.lowered = history.entries().len();
        &self.messages
    }

    /// Whether the model must be given something to answer to: the last message is its own, and complete.
    pub fn wants_a_user(&self) -> bool {
        !self.open_ended && matches!(self.messages.last().map(Arc::as_ref), Some(Message::Assistant(_)) | None)
    }

    /// Whether a hosted call waits for its result: nobody may speak before the model has gone on.
    pub fn has_open_hosted(&self) -> bool {
        !self.labels.hosted.is_empty()
    }

    fn entry(&mut self, entry: &Entry, model: &ModelRef, capabilities: &Capabilities) {
        match entry {
            Entry::User(content) => self.user(accepted(content, capabilities)),
            Entry::Synthetic(text) => self.user(accepted(&[Content::text(text.as_str())], capabilities)),
            Entry::Instructions(text) if capabilities.system_in_middle => {
                self.somebody_speaks(Message::System(text.clone()));
            }
            Entry::Instructions(text) => self.user(vec![Content::Text(text.clone())]),
            Entry::Summary(summary) => self.user(vec![Content::Text(checkpoint(summary))]),
            Entry::Assistant(assistant) => self.assistant(assistant, model, capabilities),
        }
    }

    /// Puts the oldest media into words where there is too much of it, never that of the last message; the messages from a place on are new.
    fn bound_media(&mut self, from: usize) {
        let new = (from..).zip(self.messages.iter().skip(from));
        self.media.extend(new.map(|(place, message)| (place, media_bytes(message))).filter(|(_, bytes)| *bytes > 0));
        let mut bytes: usize = self.media.iter().map(|(_, bytes)| bytes).sum();
        if bytes <= MEDIA_MOST {
            return;
        }
        while bytes > MEDIA_LEFT
            && self.media.len() > 1
            && let Some((place, dropped)) = self.media.pop_front()
        {
            bytes -= dropped;
            if let Some(message) = self.messages.get_mut(place) {
                media_in_words(Arc::make_mut(message), |media| left_out(media, "there was too much of it"));
            }
        }
    }

    fn user(&mut self, content: Vec<Content>) {
        if !content.is_empty() {
            self.somebody_speaks(Message::User(content));
        }
    }

    fn somebody_speaks(&mut self, message: Message) {
        self.close_hosted();
        self.open_ended = false;
        self.messages.push(Arc::new(message));
    }

    /// Answers hosted calls that a pause has left open, because the model does not go on from its own message: somebody has spoken.
    fn close_hosted(&mut self) {
        let is_assistant = |message: &Arc<Message>| matches!(message.as_ref(), Message::Assistant(_));
        let open = std::mem::take(&mut self.labels.hosted);
        if !open.is_empty()
            && let Some(place) = self.messages.iter().rposition(is_assistant)
            && let Some(message) = self.messages.get_mut(place)
            && let Message::Assistant(parts) = Arc::make_mut(message)
        {
            for (key, (label, name)) in open {
                let mut result = HostedResultPart::new(key, label, name, vec![Content::text(NO_OUTCOME)]);
                result.error = true;
                parts.push(AssistantPart::HostedResult(result));
            }
        }
    }

    fn assistant(&mut self, step: &AssistantEntry, model: &ModelRef, capabilities: &Capabilities) {
        let origin = if step.model != *model {
            Origin::Other
        } else if step.failed {
            Origin::Failed
        } else {
            Origin::Same
        };
        let mut parts = Vec::with_capacity(step.parts.len());
        let mut results = Vec::new();
        for part in &step.parts {
            match part {
                Part::Text(text) => parts.extend(text_part(text, origin).map(AssistantPart::Text)),
                Part::Reasoning(reasoning) => match origin {
                    Origin::Same => parts.extend(text_part(reasoning, origin).map(AssistantPart::Reasoning)),
                    Origin::Failed | Origin::Other => {
                        parts.extend(text_part(reasoning, origin).map(AssistantPart::Text))
                    }
                },
                Part::Media(media, _) => parts.push(AssistantPart::Media(media.clone())),
                Part::Call(call) => {
                    let label = self.labels.unique(call);
                    let settled = step
                        .parts
                        .iter()
                        .any(|part| matches!(part, Part::HostedResult(result) if result.key == call.key));
                    let keeps_state = match origin {
                        Origin::Same => true,
                        Origin::Failed => call.hosted && settled,
                        Origin::Other => false,
                    };
                    let lowered = CallPart::new(call.key, label.as_str(), call.name.as_str(), call.input.clone())
                        .state(call.state.clone().filter(|_| keeps_state));
                    if call.hosted {
                        self.labels.hosted.insert(call.key, (label, call.name.clone()));
                        parts.push(AssistantPart::Call(lowered.hosted()));
                    } else {
                        parts.push(AssistantPart::Call(lowered));
                        results.push(tool_result(call, label, capabilities));
                    }
                }
                Part::HostedResult(result) => {
                    // A result whose call was summarised away, or that came too late, has nothing to answer to.
                    let Some((label, name)) = self.labels.hosted.remove(&result.key) else { continue };
                    let mut lowered =
                        HostedResultPart::new(result.key, label, name, accepted(&result.outcome.content, capabilities));
                    lowered.error = result.outcome.error;
                    lowered.state = result.state.clone().filter(|_| origin != Origin::Other);
                    parts.push(AssistantPart::HostedResult(lowered));
                }
            }
        }
        if parts.is_empty() {
            return;
        }
        self.open_ended = !self.labels.hosted.is_empty() && results.is_empty();
        self.messages.push(Arc::new(Message::Assistant(parts)));
        self.messages.extend(results.into_iter().map(|result| Arc::new(Message::Tool(result))));
    }
}

impl Labels {
    /// A label for a call that no other call of the request has.
    fn unique(&mut self, call: &CallEntry) -> String {
        let mut label = call.label.clone();
        let mut number = self.used.len();
        while blank(&label) || self.used.contains(&label) {
            label = format!("call_{number}");
            number += 1;
        }
        self.used.insert(label.clone());
        label
    }
}

/// Where a step's provider state may go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Back: the same model, and the step was clean.
    Same,
    /// Nowhere but with a hosted pair: the same model, and the step failed.
    Failed,
    /// Nowhere: another model.
    Other,
}

fn text_part(block: &TextEntry, origin: Origin) -> Option<TextPart> {
    let state = block.state.clone().filter(|_| origin == Origin::Same);
    (!blank(&block.text) || state.is_some()).then(|| TextPart::new(block.text.as_str()).state(state))
}

fn tool_result(call: &CallEntry, label: String, capabilities: &Capabilities) -> ToolResult {
    let (error, content) = match &call.outcome {
        Some(outcome) => (outcome.error, never_empty(accepted(&outcome.content, capabilities))),
        // A settled step has an outcome for every call; a log that lacks one is still lowered to a well-formed request.
        None => (true, vec![Content::text(NO_OUTCOME)]),
    };
    ToolResult::new(call.key, label, call.name.as_str(), error, content)
}

/// What stands for an outcome that is not there.
const NO_OUTCOME: &str = "The call has no recorded outcome.";

/// How many bytes of media a request may carry.
const MEDIA_MOST: usize = 25 << 20;

/// How many bytes of media are left where there were more.
const MEDIA_LEFT: usize = 15 << 20;

/// The bytes of a message's media, as far as the message carries them itself.
fn media_bytes(message: &Message) -> usize {
    let of_media = |media: &Media| match &media.data {
        MediaData::Base64(data) => data.len() / 4 * 3,
        MediaData::Url(_) | _ => 0,
    };
    let of = |content: &[Content]| -> usize {
        let of_piece = |piece: &Content| match piece {
            Content::Media(media) => of_media(media),
            Content::Text(_) => 0,
        };
        content.iter().map(of_piece).sum()
    };
    match message {
        Message::System(_) => 0,
        Message::User(content) => of(content),
        Message::Tool(result) => of(&result.content),
        Message::Assistant(parts) => parts
            .iter()
            .map(|part| match part {
                AssistantPart::Media(media) => of_media(media),
                AssistantPart::HostedResult(result) => of(&result.content),
                AssistantPart::Text(_) | AssistantPart::Reasoning(_) | AssistantPart::Call(_) => 0,
            })
            .sum(),
    }
}

/// Puts a message's media into words.
pub fn media_in_words(message: &mut Message, say: impl Fn(&Media) -> String) {
    let in_content = |content: &mut Vec<Content>| {
        for piece in content {
            if let Content::Media(media) = piece {
                *piece = Content::Text(say(media));
            }
        }
    };
    match message {
        Message::System(_) => {}
        Message::User(content) => in_content(content),
        Message::Tool(result) => in_content(&mut result.content),
        Message::Assistant(parts) => {
            for part in parts {
                match part {
                    AssistantPart::Media(media) => *part = AssistantPart::Text(TextPart::new(say(media))),
                    AssistantPart::HostedResult(result) => in_content(&mut result.content),
                    AssistantPart::Text(_) | AssistantPart::Reasoning(_) | AssistantPart::Call(_) => {}
                }
            }
        }
    }
}

fn left_out(media: &Media, why: &str) -> String {
    let name = media.name.as_deref().map(|name| format!(" `{name}`")).unwrap_or_default();
    format!("[a file{name} of type {} was left out: {why}]", media.mime)
}

/// Content without blank text, and with media that the model does not accept put into words.
fn accepted(content: &[Content], capabilities: &Capabilities) -> Vec<Content> {
    let accept = |piece: &Content| match piece {
        Content::Media(media) if !capabilities.accepts(&media.mime) => {
            Content::Text(left_out(media, "the model does not accept it"))
        }
        Content::Media(_) | Content::Text(_) => piece.clone(),
    };
    let mut accepted = Vec::with_capacity(content.len());
    accepted.extend(content.iter().filter(|piece| piece.as_text().is_none_or(|text| !blank(text))).map(accept));
    accepted
}

/// The message that stands for everything that was summarised.
fn checkpoint(summary: &Summary) -> String {
    let Summary { text, recent } = summary;
    let mut message = format!("This is a summary of the conversation so far:\n\n{text}");
    if !blank(recent) {
        message.push_str("\n\nThe most recent part of the conversation, word for word:\n\n");
        message.push_str(recent);
    }
    message
}

fn blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// A rough number of tokens for a message: a quarter of its bytes, and a flat sum for each piece of media.
pub fn estimate_tokens(message: &Message) -> u64 {
    const MEDIA: usize = 1_600 * 4;
    let of_content =
        |content: &[Content]| -> usize { content.iter().map(|piece| piece.as_text().map_or(MEDIA, str::len)).sum() };
    let of_value = |value: &Value| value.to_string().len();
    let bytes = match message {
        Message::System(text) => text.len(),
        Message::User(content) => of_content(content),
        Message::Tool(result) => of_content(&result.content),
        Message::Assistant(parts) => parts
            .iter()
            .map(|part| match part {
                AssistantPart::Text(text) | AssistantPart::Reasoning(text) => text.text.len(),
                AssistantPart::Call(call) => call.name.len() + of_value(&call.input),
                AssistantPart::HostedResult(result) => of_content(&result.content),
                AssistantPart::Media(_) => MEDIA,
            })
            .sum(),
    };
    (bytes as u64).div_ceil(4)
}

//! Checking a request (I3).

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;
use settled_provider_api::{
    AssistantPart, CallPart, Capabilities, Content, HostedResultPart, Message, Request, ToolChoice, ToolResult,
};
use settled_tools_api::CallKey;

use super::{Breach, Invariant};

/// Checks a request as it goes to a provider, for a model with these capabilities.
///
/// - Each local call has one result, right behind its message, in the order of the calls; there is no result without a call.
/// - A hosted call has its result inline, in its message or a later one; only a call that a pause left open may lack it, and then nobody else may speak behind it.
/// - Labels are never blank and never used twice; arguments are objects.
/// - No text is blank unless it carries state; no message and no system part is empty.
/// - Media is of a kind that the model accepts.
/// - The last message is a person's or a tool's, unless the model may go on from its own.
/// - Tools have different names, and the choice among them can be met.
pub fn check_request(request: &Request, capabilities: &Capabilities) -> Vec<Breach> {
    let mut check = RequestCheck::new(capabilities);
    for (number, part) in request.system.iter().enumerate() {
        if blank(part) {
            check.breach(format!("system part {number} is blank"));
        }
    }
    check.tools(request);
    for (number, message) in request.messages.iter().enumerate() {
        check.place = format!("message {number} ({})", role(message));
        check.message(message);
    }
    check.end(request.messages.last().map(AsRef::as_ref));
    check.breaches
}

struct RequestCheck<'a> {
    capabilities: &'a Capabilities,
    /// The message that is looked at, in words.
    place: String,
    labels: BTreeSet<&'a str>,
    keys: BTreeSet<CallKey>,
    /// Local calls of the last assistant message that have no result yet, in order.
    local: VecDeque<&'a CallPart>,
    /// Hosted calls that have no result yet, in order.
    hosted: Vec<&'a CallPart>,
    breaches: Vec<Breach>,
}

impl<'a> RequestCheck<'a> {
    fn new(capabilities: &'a Capabilities) -> Self {
        Self {
            capabilities,
            place: String::new(),
            labels: BTreeSet::new(),
            keys: BTreeSet::new(),
            local: VecDeque::new(),
            hosted: Vec::new(),
            breaches: Vec::new(),
        }
    }

    fn breach(&mut self, what: String) {
        self.breaches.push(Breach { invariant: Invariant::I3, seq: None, what });
    }

    fn breach_here(&mut self, what: &str) {
        self.breach(format!("{}: {what}", self.place));
    }

    fn tools(&mut self, request: &Request) {
        let mut names = BTreeSet::new();
        for tool in request.tools.iter() {
            if blank(&tool.name) {
                self.breach("a tool has a blank name".to_owned());
            } else if !names.insert(tool.name.as_str()) {
                self.breach(format!("two tools are named `{}`", tool.name));
            }
        }
        match &request.tool_choice {
            ToolChoice::Tool(name) if !names.contains(name.as_str()) => {
                self.breach(format!("the tool `{name}` must be called and is not on offer"));
            }
            ToolChoice::Required if names.is_empty() => {
                self.breach("a tool must be called and none is on offer".to_owned());
            }
            ToolChoice::Auto | ToolChoice::None | ToolChoice::Required | ToolChoice::Tool(_) => {}
        }
    }

    fn message(&mut self, message: &'a Message) {
        if !matches!(message, Message::Tool(_)) {
            self.no_local_call_open();
        }
        if matches!(message, Message::System(_) | Message::User(_)) {
            for call in std::mem::take(&mut self.hosted) {
                self.breach_here(&format!("it follows a hosted call without its result, `{}`", call.id));
            }
        }
        match message {
            Message::System(text) => {
                if !self.capabilities.system_in_middle {
                    self.breach_here("the model takes no system message in the middle of the history");
                }
                if blank(text) {
                    self.breach_here("its text is blank");
                }
            }
            Message::User(content) => self.content(content),
            Message::Assistant(parts) => {
                if parts.is_empty() {
                    self.breach_here("it has no parts");
                }
                parts.iter().for_each(|part| self.part(part));
            }
            Message::Tool(result) => self.result(result),
        }
    }

    fn part(&mut self, part: &'a AssistantPart) {
        match part {
            AssistantPart::Text(text) | AssistantPart::Reasoning(text) => {
                if blank(&text.text) && text.state.is_none() {
                    self.breach_here("a text is blank and carries no state");
                }
            }
            AssistantPart::Call(call) => self.call(call),
            AssistantPart::HostedResult(result) => self.hosted_result(result),
            AssistantPart::Media(_) => {}
        }
    }

    fn call(&mut self, call: &'a CallPart) {
        if blank(&call.id) {
            self.breach_here(&format!("the call of `{}` has a blank id", call.name));
        } else if !self.labels.insert(&call.id) {
            self.breach_here(&format!("the id `{}` is used by an earlier call", call.id));
        }
        if !self.keys.insert(call.key) {
            self.breach_here(&format!("the call {} stands there twice", call.key));
        }
        if !matches!(call.input, Value::Object(_)) {
            self.breach_here(&format!("the arguments of call `{}` are no object", call.id));
        }
        if call.hosted {
            self.hosted.push(call);
        } else {
            self.local.push_back(call);
        }
    }

    fn hosted_result(&mut self, result: &HostedResultPart) {
        match self.hosted.iter().position(|call| call.key == result.key && call.id == result.id) {
            Some(place) => drop(self.hosted.remove(place)),
            None => self.breach_here(&format!("the hosted result `{}` answers no open hosted call", result.id)),
        }
        if result.state.is_none() && result.content.iter().any(is_blank) {
            self.breach_here(&format!("the hosted result `{}` has a blank text and carries no state", result.id));
        }
    }

    fn result(&mut self, result: &ToolResult) {
        let is_meant = |call: &&CallPart| call.key == result.key && call.id == result.id;
        match self.local.iter().position(is_meant) {
            Some(place) => {
                if place > 0 {
                    self.breach_here(&format!("the result `{}` comes before that of an earlier call", result.id));
                }
                self.local.remove(place);
            }
            None => self.breach_here(&format!("the result `{}` answers no open call right before it", result.id)),
        }
        self.content(&result.content);
    }

    fn content(&mut self, content: &[Content]) {
        if content.is_empty() {
            self.breach_here("it has no content");
        }
        if content.iter().any(is_blank) {
            self.breach_here("a text is blank");
        }
        for piece in content {
            match piece {
                Content::Media(media) if !self.capabilities.accepts(&media.mime) => {
                    self.breach_here(&format!("the model does not accept media of type {}", media.mime));
                }
                Content::Media(_) | Content::Text(_) => {}
            }
        }
    }

    fn no_local_call_open(&mut self) {
        for call in std::mem::take(&mut self.local) {
            self.breach(format!("call `{}` has no result right behind its message", call.id));
        }
    }

    fn end(&mut self, last: Option<&Message>) {
        self.no_local_call_open();
        match last {
            None => self.breach("it has no messages".to_owned()),
            Some(Message::Assistant(_)) if !self.capabilities.assistant_last && self.hosted.is_empty() => {
                self.breach("the last message is the model's own, and the model does not go on from one".to_owned());
            }
            Some(Message::Assistant(_) | Message::System(_) | Message::User(_) | Message::Tool(_)) => {}
        }
    }
}

fn role(message: &Message) -> &'static str {
    match message {
        Message::System(_) => "system",
        Message::User(_) => "user",
        Message::Assistant(_) => "assistant",
        Message::Tool(_) => "tool",
    }
}

fn is_blank(piece: &Content) -> bool {
    piece.as_text().is_some_and(blank)
}

fn blank(text: &str) -> bool {
    text.trim().is_empty()
}

//! What a case works with: subjects by plan, requests, and whole answers.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use settled_provider_api::{
    CallPart, Finish, Message, MessageId, ModelRef, ProviderError, ProviderEvent, ProviderStream, Purpose, Request,
    SessionId, ToolCallEvent, ToolDefinition,
};
use settled_tools_api::CallKey;

pub(super) use super::super::suite::{Checked, Details, all, broken, same, shown, skipped};
use super::{Abilities, Noise, Plan, ProviderFixture, ProviderSubject, Sent};
use crate::script::Stream;
use crate::{Script, script};

/// How long a case waits before it looks again.
pub(super) const MOMENT: Duration = Duration::from_millis(10);

/// Where a case gets its subjects.
pub(super) struct Bench<'a> {
    pub(super) fixture: &'a dyn ProviderFixture,
}

impl<'a> Bench<'a> {
    pub(super) fn new(fixture: &'a dyn ProviderFixture) -> Self {
        Self { fixture }
    }

    pub(super) fn abilities(&self) -> Abilities {
        self.fixture.abilities()
    }

    /// A subject that answers by a script.
    pub(super) async fn open(&self, script: Script) -> Result<ProviderSubject, Details> {
        self.fixture.open(Plan { script, noise: None }).await.map_err(Details::Broken)
    }

    /// A subject with something that does not decode in its first answer.
    pub(super) async fn open_noisy(&self, script: Script) -> Result<ProviderSubject, Details> {
        self.fixture.open(Plan { script, noise: Some(Noise::Garbage) }).await.map_err(Details::Broken)
    }

    /// The one answer of a subject that answers once.
    pub(super) async fn answer(&self, write: impl FnOnce(Stream) -> Stream) -> Result<Answer, Details> {
        let subject = self.open(script().step(write)).await?;
        Ok(ask(&subject, request(&subject.model)).await)
    }

    /// What goes over the wire for a request, or the refusal to send it.
    pub(super) async fn lowered(
        &self,
        write: impl FnOnce(&mut Request) + Send,
    ) -> Result<Result<Sent, ProviderError>, Details> {
        let subject = self.open(script().step(|s| s.text("Hi.").finish())).await?;
        let mut request = request(&subject.model);
        write(&mut request);
        let answer = ask(&subject, request).await;
        match (subject.far.sent().pop(), answer.error) {
            (Some(sent), None) => Ok(Ok(sent)),
            (None, Some(refused)) => Ok(Err(refused)),
            (Some(_), Some(error)) => broken(format!("a request that was sent has failed: {error}")),
            (None, None) => broken("there was an answer, and the far end has seen no request"),
        }
    }

    /// What goes over the wire for a request that must be sent.
    pub(super) async fn sent(&self, write: impl FnOnce(&mut Request) + Send) -> Result<Sent, Details> {
        match self.lowered(write).await? {
            Ok(sent) => Ok(sent),
            Err(refused) => broken(format!("the request was refused: {refused}")),
        }
    }
}

/// A whole answer.
pub(super) struct Answer {
    pub(super) events: Vec<ProviderEvent>,
    /// How it failed, before the stream or at its end.
    pub(super) error: Option<ProviderError>,
}

impl Answer {
    /// The events of an answer that must not have failed.
    pub(super) fn whole(self) -> Result<Self, Details> {
        match &self.error {
            None => Ok(self),
            Some(error) => broken(format!("the answer failed: {error}, after {}", shown(&self.events))),
        }
    }

    /// The text, of all its blocks.
    pub(super) fn text(&self) -> String {
        self.joined(|event| match event {
            ProviderEvent::TextDelta(piece) => Some(piece.text.as_str()),
            _ => None,
        })
    }

    pub(super) fn reasoning(&self) -> String {
        self.joined(|event| match event {
            ProviderEvent::ReasoningDelta(piece) => Some(piece.text.as_str()),
            _ => None,
        })
    }

    fn joined<'a>(&'a self, pick: impl Fn(&'a ProviderEvent) -> Option<&'a str>) -> String {
        self.events.iter().filter_map(pick).collect()
    }

    pub(super) fn calls(&self) -> Vec<&ToolCallEvent> {
        let calls = self.events.iter().filter_map(|event| match event {
            ProviderEvent::ToolCall(call) => Some(call),
            _ => None,
        });
        calls.collect()
    }

    pub(super) fn finishes(&self) -> Vec<&Finish> {
        let finishes = self.events.iter().filter_map(|event| match event {
            ProviderEvent::Finish(finish) => Some(finish),
            _ => None,
        });
        finishes.collect()
    }

    /// The one finish that must be there.
    pub(super) fn finish(&self) -> Result<&Finish, Details> {
        match self.finishes()[..] {
            [finish] => Ok(finish),
            _ => broken(format!("there should be one finish in {}", shown(&self.events))),
        }
    }

    /// Every state in the answer.
    pub(super) fn states(&self) -> Vec<&Value> {
        let states = self.events.iter().filter_map(|event| match event {
            ProviderEvent::TextStart(block) | ProviderEvent::ReasoningStart(block) => block.state.as_ref(),
            ProviderEvent::TextDelta(block) | ProviderEvent::ReasoningDelta(block) => block.state.as_ref(),
            ProviderEvent::TextEnd(block) | ProviderEvent::ReasoningEnd(block) => block.state.as_ref(),
            ProviderEvent::ToolCall(call) => call.state.as_ref(),
            ProviderEvent::Finish(finish) => finish.state.as_ref(),
            _ => None,
        });
        states.collect()
    }
}

/// The next item of a stream.
pub(super) async fn next(stream: &mut ProviderStream) -> Option<Result<ProviderEvent, ProviderError>> {
    poll_fn(|cx| stream.as_mut().poll_next(cx)).await
}

/// The item that a stream has ready at this moment, if it has one.
pub(super) async fn ready(stream: &mut ProviderStream) -> Option<Option<Result<ProviderEvent, ProviderError>>> {
    poll_fn(|cx| match stream.as_mut().poll_next(cx) {
        Poll::Ready(item) => Poll::Ready(Some(item)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Asks for an answer and reads it to its end.
pub(super) async fn ask(subject: &ProviderSubject, request: Request) -> Answer {
    let mut answer = Answer { events: Vec::new(), error: None };
    let mut stream = match subject.provider.stream(Arc::new(request)).await {
        Ok(stream) => stream,
        Err(error) => return Answer { error: Some(error), ..answer },
    };
    while let Some(item) = next(&mut stream).await {
        match item {
            Ok(event) => answer.events.push(event),
            Err(error) => return Answer { error: Some(error), ..answer },
        }
    }
    answer
}

/// Reads a stream until it has given this many characters of text.
pub(super) async fn until_text(stream: &mut ProviderStream, text: &str) -> Checked {
    let mut seen = String::new();
    while !seen.contains(text) {
        match next(stream).await {
            Some(Ok(ProviderEvent::TextDelta(piece))) => seen.push_str(&piece.text),
            Some(Ok(_)) => {}
            other => {
                return broken(format!("after `{seen}` there should be more text, and there was {}", shown(&other)));
            }
        }
    }
    Ok(())
}

/// Opens the stream of a plain request.
pub(super) async fn stream(subject: &ProviderSubject) -> Result<ProviderStream, Details> {
    Ok(subject.provider.stream(Arc::new(request(&subject.model))).await?)
}

/// Waits until the far end has no connection open.
pub(super) async fn closed(subject: &ProviderSubject) -> Checked {
    if subject.far.connections().is_none() {
        return skipped("the far end does not see its connections");
    }
    for _ in 0..500 {
        if subject.far.connections() == Some(0) {
            return Ok(());
        }
        tokio::time::sleep(MOMENT).await;
    }
    broken("the connection stays open")
}

/// A request of one message.
pub(super) fn request(model: &ModelRef) -> Request {
    let Ok(session) = SessionId::new("suite") else { unreachable!("the suite's own name is well-formed") };
    let mut request = Request::new(model.clone(), Purpose::step(session, MessageId::from_u128(9)));
    request.messages.push(Arc::new(Message::user("Hello there.")));
    request
}

pub(super) fn tool(name: &str, property: &str) -> ToolDefinition {
    let schema = json!({"type": "object", "properties": {property: {"type": "string"}}});
    ToolDefinition::new(name, format!("What {name} does."), schema)
}

/// A call of the history.
pub(super) fn called(ordinal: u32, id: &str, name: &str, input: Value) -> CallPart {
    CallPart::new(CallKey { step: MessageId::from_u128(3), ordinal }, id, name, input)
}

/// Every text of a JSON value, names of members included, in order.
pub(super) fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(members) => {
            members.iter().flat_map(|(name, value)| std::iter::once(name.clone()).chain(texts(value))).collect()
        }
        other => vec![other.to_string()],
    }
}

/// How many texts of a body contain a text.
pub(super) fn mentions(sent: &Sent, text: &str) -> usize {
    texts(&sent.body).iter().filter(|known| known.contains(text)).count()
}

/// Holds a body to having these texts once each, in this order.
pub(super) fn in_order(sent: &Sent, wanted: &[&str]) -> Checked {
    let texts = texts(&sent.body);
    let mut before = None;
    for text in wanted {
        let places: Vec<_> =
            texts.iter().enumerate().filter(|(_, known)| known.contains(text)).map(|(at, _)| at).collect();
        match places[..] {
            [at] if before.is_none_or(|before| at > before) => before = Some(at),
            [_] => return broken(format!("`{text}` is out of order in {}", sent.body)),
            _ => return broken(format!("`{text}` is {} times in {}", places.len(), sent.body)),
        }
    }
    Ok(())
}

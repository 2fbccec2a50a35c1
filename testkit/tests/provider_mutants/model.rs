//! A provider over the scripted one, with a wire in memory, and wrong in one thing if it is told so.
//!
//! A mutation is named after the case that must find it, and stands where it spoils something.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use async_trait::async_trait;
use futures_core::Stream;
use serde_json::{Value, json};
use settled_provider_api::{
    AssistantPart, BlockDelta, Content, ErrorClass, Finish, FinishReason, Message, Provider, ProviderError,
    ProviderEvent, ProviderStream, Request, ToolChoice, Usage,
};
use settled_testkit::ScriptedProvider;
use settled_testkit::conformance::provider::{FarEnd, Noise, Plan, Sent};

/// The key that the provider was given.
pub(crate) const KEY: &str = "sk-suite-4711";

/// What a mutant puts into every request, and never twice the same.
static NONCE: AtomicU64 = AtomicU64::new(0);

type Item = Result<ProviderEvent, ProviderError>;

/// The provider, wrong in one thing.
pub(crate) struct Model {
    fault: &'static str,
    inner: ScriptedProvider,
    noise: Option<Noise>,
    far: Arc<Far>,
    asked: AtomicU64,
    last: Arc<Mutex<String>>,
}

/// What the far end sees.
#[derive(Default)]
struct Far {
    sent: Mutex<Vec<Sent>>,
    connections: AtomicUsize,
}

/// The far end of a model.
pub(crate) struct FarOf(Arc<Far>);

impl FarEnd for FarOf {
    fn sent(&self) -> Vec<Sent> {
        self.0.sent.lock().unwrap().clone()
    }

    fn connections(&self) -> Option<usize> {
        Some(self.0.connections.load(Ordering::SeqCst))
    }
}

/// A connection, for as long as it is held.
struct Connection(Arc<Far>);

impl Connection {
    fn new(far: &Arc<Far>) -> Self {
        far.connections.fetch_add(1, Ordering::SeqCst);
        Self(far.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Model {
    pub(crate) fn new(fault: &'static str, plan: Plan) -> Self {
        let model = Self {
            fault,
            inner: plan.script.provider(),
            noise: plan.noise,
            far: Arc::default(),
            asked: AtomicU64::new(0),
            last: Arc::default(),
        };
        if model.is("attempt.lazy") {
            model.far.sent.lock().unwrap().push(Sent::new(json!({"warm": "up"})));
        }
        model
    }

    pub(crate) fn far(&self) -> FarOf {
        FarOf(self.far.clone())
    }

    fn is(&self, fault: &str) -> bool {
        self.fault == fault
    }

    fn send(&self, request: &Request) -> Result<(), ProviderError> {
        if self.is("request.empty") && request.messages.is_empty() {
            return Err(ProviderError::new(ErrorClass::Unknown, "no messages"));
        }
        if self.is("options.each") && request.options.seed.is_some() {
            return Err(ProviderError::new(ErrorClass::InvalidRequest, "no seed"));
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        let mut body = self.lower(request);
        let mut headers = vec![("authorization".to_owned(), format!("Bearer {KEY}"))];
        match self.fault {
            "request.same" => body["nonce"] = json!(NONCE.fetch_add(1, Ordering::SeqCst)),
            "secret.placed" => headers.clear(),
            _ => {}
        }
        self.far.sent.lock().unwrap().push(Sent::new(body).target("/answers").headers(headers));
        Ok(())
    }

    /// A request as the wire has it.
    fn lower(&self, request: &Request) -> Value {
        let mut messages: Vec<Value> = request.messages.iter().map(|message| self.message(message)).collect();
        let mut system: Vec<&str> = request.system.iter().map(AsRef::as_ref).collect();
        let mut tools: Vec<Value> = request
            .tools
            .iter()
            .map(|tool| json!({"name": tool.name, "description": tool.description, "schema": tool.input_schema}))
            .collect();
        match self.fault {
            "request.history" if messages.len() > 1 => messages.swap(0, 1),
            "request.system" => system.reverse(),
            "request.pairs" => {
                if let Some(place) = messages.iter().position(|message| message.get("result").is_some()) {
                    let result = messages.remove(place);
                    messages.push(result);
                }
            }
            "tools.sent" => tools.iter_mut().for_each(|tool| tool["schema"] = json!({"type": "object"})),
            "tools.choice" if request.tool_choice == ToolChoice::None => tools.clear(),
            _ => {}
        }
        let options = &request.options;
        let mut body = json!({
            "model": &*request.model.model,
            "system": system,
            "messages": messages,
            "tools": tools,
            "tool_choice": request.tool_choice,
            "max_output": request.max_output,
            "options": options,
        });
        match self.fault {
            "request.model" => body["model"] = json!("another"),
            "options.max_output" => body["max_output"] = json!(null),
            "options.format" => body["options"]["response_format"] = json!(null),
            "options.raw" => {}
            _ => {
                for (name, value) in &options.raw {
                    body[name] = value.clone();
                }
            }
        }
        body
    }

    fn message(&self, message: &Message) -> Value {
        match message {
            Message::System(text) => json!({ "system": text }),
            Message::User(content) => json!({ "user": self.content(content) }),
            Message::Assistant(parts) => {
                let part = |part: &AssistantPart| match part {
                    AssistantPart::Text(text) => json!({ "text": text.text }),
                    AssistantPart::Reasoning(text) if self.is("request.state") => json!({ "reasoning": text.text }),
                    AssistantPart::Reasoning(text) => json!({"reasoning": text.text, "state": text.state}),
                    AssistantPart::Call(call) => json!({"id": call.id, "name": call.name, "input": call.input}),
                    AssistantPart::HostedResult(_) | AssistantPart::Media(_) => json!({}),
                };
                json!({ "assistant": parts.iter().map(part).collect::<Vec<_>>() })
            }
            Message::Tool(result) if result.error && self.is("request.error_result") => {
                json!({"result": result.id, "content": ["error"]})
            }
            Message::Tool(result) => json!({"result": result.id, "content": self.content(&result.content)}),
        }
    }

    fn content(&self, content: &[Content]) -> Vec<Value> {
        let piece = |piece: &Content| match piece {
            Content::Text(text) if self.is("request.unicode") => {
                json!(text.to_ascii_lowercase().replace('\u{301}', ""))
            }
            Content::Text(text) => json!(text),
            Content::Media(_) if self.is("request.media") => json!("[image]"),
            Content::Media(media) => json!(media),
        };
        content.iter().map(piece).collect()
    }

    /// A failure as it is told.
    fn told(&self, mut error: ProviderError) -> ProviderError {
        match self.fault {
            "error.class" => error.class = ErrorClass::Unknown,
            "error.message" => "it failed".clone_into(&mut error.message),
            "error.retry_after" => error.retry.after_ms = error.retry.after_ms.map(|ms| ms / 1_000),
            "error.transport" if error.class == ErrorClass::Transport => error.class = ErrorClass::Unknown,
            "secret.hidden" => {}
            _ => error.message = error.message.replace(KEY, "…"),
        }
        error
    }
}

#[async_trait]
impl Provider for Model {
    async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        if self.is("again.same") && self.asked.load(Ordering::SeqCst) > 0 {
            return Err(ProviderError::new(ErrorClass::Unknown, "used up"));
        }
        self.send(&request)?;
        if self.is("attempt.one") {
            self.send(&request)?;
        }
        let connection = Connection::new(&self.far);
        if self.is("drop.opening") {
            std::mem::forget(Connection::new(&self.far));
        }
        turn().await;
        let mut stream = match self.inner.stream(request.clone()).await {
            Ok(stream) => stream,
            Err(_) if self.is("attempt.no_retry") => {
                self.send(&request)?;
                self.inner.stream(request).await.map_err(|error| self.told(error))?
            }
            Err(error) => return Err(self.told(error)),
        };
        if self.is("text.live") {
            stream = Box::pin(Whole { stream, items: Vec::new(), given: VecDeque::new(), over: false });
        }
        match self.fault {
            "drop.stream" => std::mem::forget(Connection::new(&self.far)),
            "drop.goes_on" if self.asked.load(Ordering::SeqCst) > 1 => stream = Box::pin(Silent),
            _ => {}
        }
        Ok(Box::pin(Spoiled {
            fault: self.fault,
            stream,
            noise: self.noise,
            ready: VecDeque::new(),
            events: 0,
            text: String::new(),
            shared: self.last.clone(),
            called: 0,
            patience: None,
            over: false,
            _connection: connection,
        }))
    }
}

/// Lets the others go first, once: as connecting does.
async fn turn() {
    let mut turned = false;
    poll_fn(|cx| match std::mem::replace(&mut turned, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// A stream that never says anything.
struct Silent;

impl Stream for Silent {
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Item>> {
        Poll::Pending
    }
}

/// A stream that gives its items when it has them all.
struct Whole {
    stream: ProviderStream,
    items: Vec<Item>,
    given: VecDeque<Item>,
    over: bool,
}

impl Stream for Whole {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let this = &mut *self;
        while !this.over {
            match this.stream.as_mut().poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(item)) => this.items.push(item),
                Poll::Ready(None) => {
                    this.over = true;
                    this.given = std::mem::take(&mut this.items).into();
                }
            }
        }
        Poll::Ready(this.given.pop_front())
    }
}

/// A stream of the scripted provider, spoiled.
struct Spoiled {
    fault: &'static str,
    stream: ProviderStream,
    noise: Option<Noise>,
    ready: VecDeque<Item>,
    events: usize,
    /// What is left of a call's arguments, or of a text, for mutants that look at it.
    text: String,
    /// What the streams of a mutant share.
    shared: Arc<Mutex<String>>,
    called: usize,
    patience: Option<Pin<Box<tokio::time::Sleep>>>,
    over: bool,
    _connection: Connection,
}

impl Spoiled {
    fn is(&self, fault: &str) -> bool {
        self.fault == fault
    }

    /// What comes of an event.
    fn event(&mut self, event: ProviderEvent) {
        use ProviderEvent as E;
        self.events += 1;
        let events = match (self.fault, event) {
            ("events.order", E::ToolInputEnd(_)) => vec![],
            ("events.index", E::TextStart(_)) => vec![E::text_start(7)],
            ("events.index", E::TextDelta(piece)) => vec![E::text_delta(7, piece.text)],
            ("events.index", E::TextEnd(_)) => vec![E::text_end(7)],
            ("events.end", E::TextEnd(_)) => vec![],
            ("finish.one", E::Finish(finish)) => vec![E::Finish(finish.clone()), E::Finish(finish)],
            ("finish.reason", E::Finish(finish)) => {
                vec![E::Finish(Finish::new(FinishReason::Stop).usage(finish.usage))]
            }
            ("text.whole", E::TextDelta(piece)) if piece.text.trim().is_empty() => vec![],
            ("text.unicode", E::TextDelta(piece)) => {
                let bytes = piece.text.as_bytes().chunks(1);
                let text: String = bytes.map(|byte| String::from_utf8_lossy(byte).into_owned()).collect();
                vec![E::text_delta(piece.index, text)]
            }
            ("text.framing", E::TextDelta(piece)) if piece.text.contains("[DONE]") => vec![],
            ("text.large", E::TextDelta(mut piece)) => {
                piece.text.truncate(65_536);
                vec![E::TextDelta(piece)]
            }
            ("text.nothing", E::Finish(_)) if self.events == 1 => vec![],
            ("reasoning.apart", E::ReasoningDelta(piece)) => {
                self.text = piece.text;
                vec![]
            }
            ("reasoning.apart", E::TextDelta(piece)) => {
                vec![E::text_delta(piece.index, format!("{}{}", self.text, piece.text))]
            }
            ("reasoning.state", E::ReasoningEnd(end)) => vec![E::reasoning_end(end.index, None)],
            ("usage.whole", E::Finish(mut finish)) => {
                // Input with what was read from the cache: not disjoint.
                if let Some(usage) = &mut finish.usage {
                    usage.input = usage.input.map(|input| input + usage.cache_read.unwrap_or(0));
                }
                vec![E::Finish(finish)]
            }
            ("usage.not_invented", E::Finish(mut finish)) => {
                finish.usage = finish.usage.or_else(|| Some(Usage::new(0, 0)));
                vec![E::Finish(finish)]
            }
            ("response.info", E::ResponseInfo(mut info)) => {
                info.served_model = None;
                vec![E::ResponseInfo(info)]
            }
            ("beside.apart", E::TextDelta(piece)) => {
                // One buffer for all streams.
                let mut shared = self.shared.lock().unwrap();
                let text = if shared.is_empty() { piece.text.clone() } else { shared.clone() };
                *shared = piece.text;
                vec![E::text_delta(piece.index, text)]
            }
            ("call.whole", E::ToolCall(mut call)) => {
                call.id.clear();
                vec![E::ToolCall(call)]
            }
            ("call.pieces", E::ToolInputDelta(piece)) if piece.text.contains("\\u") => vec![],
            ("call.many", E::ToolCall(_)) if self.called > 0 => vec![],
            ("call.without_arguments", E::ToolCall(mut call)) => {
                call.input = json!(null);
                vec![E::ToolCall(call)]
            }
            ("call.malformed", E::ToolInputMalformed(call)) => {
                vec![E::tool_call(call.index, call.id, call.name, json!({}))]
            }
            ("call.unicode", E::ToolCall(mut call)) => {
                let text = call.input.to_string().replace("\\u0000", "");
                call.input = serde_json::from_str(&text).unwrap();
                vec![E::ToolCall(call)]
            }
            ("call.large", E::ToolCall(mut call)) => {
                if let Some(Value::String(text)) = call.input.get_mut("content") {
                    text.truncate(65_536);
                }
                vec![E::ToolCall(call)]
            }
            ("call.unclosed" | "call.cut", E::ToolInputDelta(BlockDelta { index, text, .. })) => {
                self.text.clone_from(&text);
                vec![E::tool_input_delta(index, text)]
            }
            ("error.in_stream", E::Error(_)) => vec![E::finish(FinishReason::Stop, None)],
            ("secret.hidden", E::Error(error)) => vec![E::Error(error)],
            (_, event) => vec![event],
        };
        self.called += events.iter().filter(|event| matches!(event, E::ToolCall(_))).count();
        self.ready.extend(events.into_iter().map(Ok));
    }

    /// What comes of the end of the inner stream.
    fn end(&mut self) {
        // Arguments that happen to be JSON, taken for whole.
        let whole = serde_json::from_str(&self.text).ok().filter(|_| self.called == 0);
        match (self.fault, whole) {
            ("finish.not_invented", _) => self.ready.push_back(Ok(ProviderEvent::finish(FinishReason::Stop, None))),
            ("call.unclosed", Some(input)) => {
                self.ready.push_back(Ok(ProviderEvent::tool_call(0, "c", "charge", input)))
            }
            _ => {}
        }
        self.over = true;
    }

    /// What comes of the inner stream's failure.
    fn failed(&mut self, error: ProviderError) {
        let whole = serde_json::from_str(&self.text).ok();
        match (self.fault, whole) {
            ("call.cut", Some(input)) => self.ready.push_back(Ok(ProviderEvent::tool_call(0, "c", "charge", input))),
            ("cut.told", _) => {
                self.over = true;
                return;
            }
            _ => {}
        }
        self.ready.push_back(Err(error.clone()));
        if self.is("error.last") {
            self.ready.push_back(Err(error));
        }
        self.over = true;
    }
}

impl Stream for Spoiled {
    type Item = Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let this = &mut *self;
        loop {
            if let Some(item) = this.ready.pop_front() {
                if this.is("finish.reads_on") && matches!(item, Ok(ProviderEvent::Finish(_))) {
                    this.over = true;
                }
                return Poll::Ready(Some(item));
            }
            if this.over {
                return Poll::Ready(None);
            }
            if this.noise.is_some() && this.events > 0 {
                this.noise = None;
                if !this.is("noise.told") {
                    this.over = true;
                    let garbage = ProviderError::new(ErrorClass::InvalidOutput, "it does not decode");
                    return Poll::Ready(Some(Err(garbage)));
                }
            }
            match this.stream.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(event))) => this.event(event),
                Poll::Ready(Some(Err(error))) => this.failed(error),
                Poll::Ready(None) => this.end(),
                Poll::Pending if this.is("silence.patient") => {
                    let limit = std::time::Duration::from_secs(300);
                    let patience = this.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
                    if patience.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                    this.over = true;
                    return Poll::Ready(Some(Err(ProviderError::new(ErrorClass::Timeout, ""))));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

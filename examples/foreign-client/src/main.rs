//! A published client of an OpenAI-compatible API, `async-openai`, as a provider, on the suite for providers.
//!
//! `cargo run --manifest-path examples/foreign-client/Cargo.toml` prints the report; `docs/conformance.md` says what it found.
//!
//! The wrapper does what a careful reader of the client's documentation would do, and mends nothing: what the client does not tell cannot be told.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::error::{OpenAIError, StreamError};
use async_openai::types::chat::{
    ChatCompletionMessageToolCallChunk, ChatCompletionResponseStream, CreateChatCompletionRequest,
    CreateChatCompletionStreamResponse, FinishReason as TheirReason,
};
use async_trait::async_trait;
use futures_core::Stream;
use serde_json::{Value, json};
use settled_provider_api::{
    AssistantPart, BlockEnd, Content, ErrorClass, Finish, FinishReason, Media, MediaData, Message, Provider,
    ProviderError, ProviderEvent, ProviderStream, Request, ResponseFormat, ResponseInfo, ToolChoice, Usage,
};
use settled_testkit::conformance::provider::{ProviderSuite, Reasoning, WireFixture};
use settled_testkit::server::Wire;

/// The client as a provider.
struct Foreign(Client<OpenAIConfig>);

#[async_trait]
impl Provider for Foreign {
    async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        let body: CreateChatCompletionRequest = serde_json::from_value(lower(&request)?).map_err(|error| {
            ProviderError::new(ErrorClass::Unsupported, format!("the client has no words for it: {error}"))
        })?;
        let stream = self.0.chat().create_stream(body).await.map_err(failure)?;
        Ok(Box::pin(Events { stream, decoder: Decoder::default(), ready: VecDeque::new(), over: false }))
    }
}

/// A request in the words of the client.
fn lower(request: &Request) -> Result<Value, ProviderError> {
    let unsupported = |what: &str| Err(ProviderError::new(ErrorClass::Unsupported, what));
    if !request.options.raw.is_empty() {
        return unsupported("the client has no place for raw fields");
    }
    let mut messages: Vec<Value> =
        request.system.iter().map(|part| json!({"role": "system", "content": &**part})).collect();
    for message in &request.messages {
        messages.push(match &**message {
            Message::System(text) => json!({"role": "system", "content": text}),
            Message::User(content) => json!({"role": "user", "content": pieces(content)?}),
            Message::Tool(result) => {
                let text: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
                json!({"role": "tool", "tool_call_id": result.id, "content": text.join("\n")})
            }
            Message::Assistant(parts) => {
                let mut text = String::new();
                let mut calls = Vec::new();
                for part in parts {
                    match part {
                        AssistantPart::Text(part) => text.push_str(&part.text),
                        AssistantPart::Call(call) => calls.push(json!({
                            "id": call.id, "type": "function",
                            "function": {"name": call.name, "arguments": call.input.to_string()},
                        })),
                        AssistantPart::Reasoning(_) | AssistantPart::HostedResult(_) | AssistantPart::Media(_) => {}
                    }
                }
                let mut message = json!({"role": "assistant", "content": text});
                if !calls.is_empty() {
                    message["tool_calls"] = json!(calls);
                }
                message
            }
        });
    }
    let options = &request.options;
    let mut body = json!({
        "model": &*request.model.model,
        "messages": messages,
        "stream_options": {"include_usage": true},
    });
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            body[name] = value;
        }
    };
    set("max_completion_tokens", json!(request.max_output));
    set("temperature", json!(options.temperature));
    set("top_p", json!(options.top_p));
    set("seed", json!(options.seed));
    set("parallel_tool_calls", json!(options.parallel_tool_calls));
    set("reasoning_effort", json!(options.reasoning_effort));
    set("service_tier", json!(options.service_tier));
    if !options.stop.is_empty() {
        set("stop", json!(options.stop));
    }
    match &options.response_format {
        None => {}
        Some(ResponseFormat::JsonObject) => set("response_format", json!({"type": "json_object"})),
        Some(ResponseFormat::JsonSchema { name, schema, strict }) => set(
            "response_format",
            json!({"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": strict}}),
        ),
        Some(_) => return unsupported("a form of answer that the client does not know"),
    }
    if !request.tools.is_empty() {
        let tool = |tool: &settled_provider_api::ToolDefinition| {
            let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.input_schema});
            json!({"type": "function", "function": function})
        };
        set("tools", request.tools.iter().map(tool).collect());
        set(
            "tool_choice",
            match &request.tool_choice {
                ToolChoice::Auto => json!("auto"),
                ToolChoice::None => json!("none"),
                ToolChoice::Required => json!("required"),
                ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
            },
        );
    }
    Ok(body)
}

fn pieces(content: &[Content]) -> Result<Value, ProviderError> {
    let piece = |piece: &Content| match piece {
        Content::Text(text) => Ok(json!({"type": "text", "text": text})),
        Content::Media(Media { mime, data: MediaData::Base64(data), .. }) => {
            Ok(json!({"type": "image_url", "image_url": {"url": format!("data:{mime};base64,{data}")}}))
        }
        Content::Media(_) => Err(ProviderError::new(ErrorClass::Unsupported, "media behind a URL")),
    };
    content.iter().map(piece).collect()
}

/// A failure, as much as the client tells of it.
fn failure(error: OpenAIError) -> ProviderError {
    let words = error.to_string();
    let class = match &error {
        OpenAIError::ApiError(answer) => {
            let code = answer.api_error.code.as_deref().unwrap_or_default();
            match (answer.status_code.as_u16(), code) {
                (_, "insufficient_quota") => ErrorClass::Quota,
                (_, "context_length_exceeded") => ErrorClass::ContextOverflow,
                (429, _) => ErrorClass::RateLimit,
                (401 | 403, _) => ErrorClass::Auth,
                (500.., _) => ErrorClass::Overloaded,
                _ => ErrorClass::InvalidRequest,
            }
        }
        OpenAIError::Reqwest(_) => ErrorClass::Transport,
        OpenAIError::JSONDeserialize(..) => ErrorClass::InvalidOutput,
        OpenAIError::StreamError(error) => match &**error {
            StreamError::EventStream(_) => ErrorClass::Transport,
            _ => ErrorClass::InvalidOutput,
        },
        OpenAIError::InvalidArgument(_) => ErrorClass::InvalidRequest,
        _ => ErrorClass::Unknown,
    };
    ProviderError::new(class, words)
}

/// What the client gives, as events.
struct Events {
    stream: ChatCompletionResponseStream,
    decoder: Decoder,
    ready: VecDeque<ProviderEvent>,
    over: bool,
}

impl Stream for Events {
    type Item = Result<ProviderEvent, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if this.over {
                return Poll::Ready(None);
            }
            match this.stream.as_mut().poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(chunk))) => this.decoder.chunk(chunk, &mut this.ready),
                Poll::Ready(Some(Err(error))) => {
                    this.over = true;
                    return Poll::Ready(Some(Err(failure(error))));
                }
                Poll::Ready(None) => {
                    this.over = true;
                    this.decoder.end(&mut this.ready);
                }
            }
        }
    }
}

#[derive(Default)]
struct Decoder {
    informed: bool,
    next: u32,
    text: Option<u32>,
    calls: BTreeMap<u32, Call>,
    reason: Option<FinishReason>,
    usage: Option<Usage>,
}

struct Call {
    block: u32,
    id: String,
    name: String,
    arguments: String,
}

impl Decoder {
    fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    fn chunk(&mut self, chunk: CreateChatCompletionStreamResponse, ready: &mut VecDeque<ProviderEvent>) {
        if !std::mem::replace(&mut self.informed, true) {
            ready.push_back(ProviderEvent::ResponseInfo(ResponseInfo::new(Some(chunk.id), Some(chunk.model))));
        }
        if let Some(usage) = chunk.usage {
            let cached = usage.prompt_tokens_details.and_then(|details| details.cached_tokens);
            let reasoning = usage.completion_tokens_details.and_then(|details| details.reasoning_tokens);
            let less = |all: u32, part: Option<u32>| u64::from(all.saturating_sub(part.unwrap_or(0)));
            self.usage = Some(
                Usage::new(less(usage.prompt_tokens, cached), less(usage.completion_tokens, reasoning))
                    .cache_read(cached.map(u64::from))
                    .reasoning(reasoning.map(u64::from)),
            );
        }
        for choice in chunk.choices {
            if let Some(text) = choice.delta.content.filter(|text| !text.is_empty()) {
                let block = match self.text {
                    Some(block) => block,
                    None => {
                        let block = self.fresh();
                        self.text = Some(block);
                        ready.push_back(ProviderEvent::text_start(block));
                        block
                    }
                };
                ready.push_back(ProviderEvent::text_delta(block, text));
            }
            for piece in choice.delta.tool_calls.into_iter().flatten() {
                self.call(piece, ready);
            }
            if let Some(reason) = choice.finish_reason {
                self.reason = Some(match reason {
                    TheirReason::Stop => FinishReason::Stop,
                    TheirReason::Length => FinishReason::Length,
                    TheirReason::ToolCalls | TheirReason::FunctionCall => FinishReason::ToolCalls,
                    TheirReason::ContentFilter => FinishReason::ContentFilter,
                });
            }
        }
    }

    fn call(&mut self, piece: ChatCompletionMessageToolCallChunk, ready: &mut VecDeque<ProviderEvent>) {
        let function = piece.function.unwrap_or_default();
        if !self.calls.contains_key(&piece.index) {
            let block = self.fresh();
            let (id, name) = (piece.id.unwrap_or_default(), function.name.unwrap_or_default());
            ready.push_back(ProviderEvent::tool_input_start(block, id.clone(), name.clone()));
            self.calls.insert(piece.index, Call { block, id, name, arguments: String::new() });
        }
        if let (Some(call), Some(text)) = (self.calls.get_mut(&piece.index), function.arguments)
            && !text.is_empty()
        {
            call.arguments.push_str(&text);
            ready.push_back(ProviderEvent::tool_input_delta(call.block, text));
        }
    }

    /// The stream has ended: the client does not say whether by its end marker or not.
    fn end(&mut self, ready: &mut VecDeque<ProviderEvent>) {
        let Some(reason) = self.reason else { return };
        if let Some(block) = self.text {
            ready.push_back(ProviderEvent::TextEnd(BlockEnd::new(block, None, None)));
        }
        for Call { block, id, name, arguments } in std::mem::take(&mut self.calls).into_values() {
            ready.push_back(ProviderEvent::tool_input_end(block));
            let text = if arguments.is_empty() { "{}" } else { &arguments };
            ready.push_back(match serde_json::from_str(text) {
                Ok(input) => ProviderEvent::tool_call(block, id, name, input),
                Err(_) => ProviderEvent::tool_input_malformed(block, id, name, arguments),
            });
        }
        ready.push_back(ProviderEvent::Finish(Finish::new(reason).usage(self.usage)));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let fixture = WireFixture::new(Wire::Chat, |base_url, key| {
        let http = reqwest::Client::builder().no_proxy().build().map_err(|error| error.to_string())?;
        let config = OpenAIConfig::new().with_api_base(base_url).with_api_key(key);
        Ok(Arc::new(Foreign(Client::build(http, config))))
    })
    .patience(Duration::from_secs(10))
    // The client's types have no field for the reasoning that compatible servers send.
    .abilities(|wire| wire.reasoning(Reasoning::None));
    let report = ProviderSuite::new().run(&fixture).await;
    match std::env::args().nth(1).as_deref() {
        Some("--json") => println!("{}", report.to_json()),
        _ => println!("{report}"),
    }
}

//! Chat Completions, against OpenAI and any compatible server.
//!
//! [`OpenAiChat`] is the provider; [`lower`] and [`ChatDecoder`] are its two halves without I/O; [`Dialect`] says what differs between servers.
//!
//! # Beside what other clients send
//!
//! In recorded sessions with tools and reasoning our requests differ from those of the recording clients in this alone; a test holds them to it.
//!
//! | where | who has it | why |
//! |---|---|---|
//! | `prompt_cache_key` | we, at OpenAI | one key for all requests of a session keeps its prefix in one cache |
//! | `stream_options` | we | usage comes only where it is asked for |
//! | an assistant's `content` beside calls | they: an empty text | ours is null |
//! | arguments that the model wrote as `null` | both | they send it back; ours is the empty object that it stands for |
//! | `reasoning_details.format` | we | they leave it out; ours goes back as it came |
//! | `reasoning_content` at a server without a dialect, and at Ollama | they | many servers refuse the field |
//! | reasoning at Groq | both | they write it into the text, between tags; the server has a field of its own for it |
//! | a call that was forced | both | they turn it into a text; ours stays the call that it was |
//! | `function.strict` | they | a tool of ours says nothing of strictness |

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use settled_provider_api::{Credentials, ErrorClass, Provider, ProviderError, ProviderStream, Request};
use settled_provider_wire::{Authorization, Http, HttpRequest};

mod request;

mod decode;

mod error;

mod options;

mod calls;

mod chunk;

mod usage;

pub use decode::{ChatDecoder, IGNORED_FIELDS};
pub use error::response_error;
pub use options::{Dialect, Effort, MaxOutput, ReasoningBack, ReasoningField, ReasoningTokens, StreamUsage};
pub use request::lower;

/// A provider that speaks Chat Completions.
///
/// It sends one request per stream, tries nothing again, and asks [`Credentials`] for the key of the request's provider each time.
/// Dropping the stream closes its connection.
#[derive(Clone)]
pub struct OpenAiChat {
    http: Http,
    url: Arc<str>,
    credentials: Arc<dyn Credentials>,
    headers: Vec<(String, String)>,
    dialect: Arc<Dialect>,
}

impl fmt::Debug for OpenAiChat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiChat").field("dialect", &self.dialect.name).finish_non_exhaustive()
    }
}

/// How an [`OpenAiChat`] is made.
#[derive(Clone)]
pub struct OpenAiChatBuilder {
    base_url: String,
    credentials: Arc<dyn Credentials>,
    headers: Vec<(String, String)>,
    dialect: Option<Arc<Dialect>>,
    http: Option<Http>,
}

impl fmt::Debug for OpenAiChatBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiChatBuilder").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}

impl OpenAiChat {
    /// A provider at a base URL, such as `https://api.openai.com/v1`, in the dialect of its host.
    ///
    /// # Errors
    ///
    /// Class `transport`: the machine's TLS or proxy settings cannot be used.
    pub fn new(base_url: impl Into<String>, credentials: Arc<dyn Credentials>) -> Result<Self, ProviderError> {
        Self::builder(base_url, credentials).build()
    }

    /// A provider of one's own making.
    pub fn builder(base_url: impl Into<String>, credentials: Arc<dyn Credentials>) -> OpenAiChatBuilder {
        OpenAiChatBuilder { base_url: base_url.into(), credentials, headers: Vec::new(), dialect: None, http: None }
    }
}

impl OpenAiChatBuilder {
    /// Speaks this dialect, whatever the host is.
    #[must_use]
    pub fn dialect(mut self, dialect: Arc<Dialect>) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Sends a further header with each request.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Uses a client that others use as well.
    #[must_use]
    pub fn http(mut self, http: Http) -> Self {
        self.http = Some(http);
        self
    }

    /// Makes the provider.
    ///
    /// # Errors
    ///
    /// Class `transport`: the machine's TLS or proxy settings cannot be used.
    pub fn build(self) -> Result<OpenAiChat, ProviderError> {
        let http = match self.http {
            Some(http) => http,
            None => Http::new()?,
        };
        Ok(OpenAiChat {
            http,
            dialect: self.dialect.unwrap_or_else(|| Dialect::of_url(&self.base_url)),
            url: endpoint(&self.base_url).into(),
            credentials: self.credentials,
            headers: self.headers,
        })
    }
}

#[async_trait]
impl Provider for OpenAiChat {
    async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        let body = lower(&request, &self.dialect)?;
        let body = serde_json::to_vec(&body).map_err(|error| {
            ProviderError::new(ErrorClass::InvalidRequest, format!("the body cannot be written: {error}"))
        })?;
        let mut sent = HttpRequest::new(Arc::clone(&request.model.provider), &*self.url, body);
        sent.dialect = Arc::from(self.dialect.name.as_str());
        sent.headers = self.headers.clone();
        if let Some(name) = &self.dialect.key_header {
            sent.authorization = Authorization::Header(name.clone());
        }
        let decoder = ChatDecoder::new(Arc::clone(&self.dialect));
        self.http.stream(sent, &*self.credentials, Box::new(decoder)).await
    }
}

/// The endpoint at a base URL; a query stays behind it, and a base URL that is the endpoint stays as it is.
fn endpoint(base_url: &str) -> String {
    let (path, query) = match base_url.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (base_url, String::new()),
    };
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix("/chat/completions").unwrap_or(path);
    format!("{path}/chat/completions{query}")
}

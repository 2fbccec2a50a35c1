//! The Responses API, against OpenAI and those who speak it too.
//!
//! [`OpenAiResponses`] is the provider; [`lower`] and [`ResponsesDecoder`] are its two halves without I/O; [`Dialect`] says what differs between servers.
//!
//! Nothing is stored at the provider unless raw options say so: each request has the whole history in it, and what the provider needs back (encrypted reasoning, ids of items, hosted calls) travels as state of its parts.
//!
//! # Beside what other clients send
//!
//! In recorded sessions with tools and reasoning our requests differ from those of the recording clients in this alone; a test compares them field by field.
//!
//! | where | who has it | why |
//! |---|---|---|
//! | `store: false` | we | they leave it to the provider, which then keeps the response |
//! | `include` | both | we ask for encrypted reasoning of every model that may reason, since nothing is stored; one client asks for the sources of searches as well |
//! | `prompt_cache_key` | we, or another value | the key is the id of the session |
//! | ids of items, the `sources` of a search, the output of a hosted call | we | what came goes back as it came; they drop these |
//! | a function's `strict` | they | a definition of ours has no word on strictness |
//! | a search of tools | both | their client ran it; ours does not, and tells the model so in a pair of call and result |
//! | arguments of a call | both | one client sent others than the model gave |
//! | `stream` | both | one client did not stream its second request |
//! | reasoning that only the provider has stored | they | where nothing is kept, a summary alone is nothing to go on from |

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use settled_provider_api::{Credentials, ErrorClass, Provider, ProviderError, ProviderStream, Request};
use settled_provider_wire::{Authorization, Http, HttpRequest};

mod request;

mod decode;

mod error;

mod options;

mod items;

mod hosted;

mod line;

mod usage;

pub use decode::{IGNORED_FIELDS, ResponsesDecoder};
pub use error::response_error;
pub use options::{Dialect, ItemIds};
pub use request::lower;

/// A provider that speaks the Responses API.
///
/// It sends one request per stream, tries nothing again, and asks [`Credentials`] for the key of the request's provider each time.
/// Dropping the stream closes its connection.
#[derive(Clone)]
pub struct OpenAiResponses {
    http: Http,
    url: Arc<str>,
    credentials: Arc<dyn Credentials>,
    headers: Vec<(String, String)>,
    dialect: Arc<Dialect>,
}

impl fmt::Debug for OpenAiResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiResponses").field("dialect", &self.dialect.name).finish_non_exhaustive()
    }
}

/// How an [`OpenAiResponses`] is made.
#[derive(Clone)]
pub struct OpenAiResponsesBuilder {
    base_url: String,
    credentials: Arc<dyn Credentials>,
    headers: Vec<(String, String)>,
    dialect: Option<Arc<Dialect>>,
    http: Option<Http>,
}

impl fmt::Debug for OpenAiResponsesBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiResponsesBuilder").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}

impl OpenAiResponses {
    /// A provider at a base URL, such as `https://api.openai.com/v1`, in the dialect of its host.
    ///
    /// # Errors
    ///
    /// Class `transport`: the machine's TLS or proxy settings cannot be used.
    pub fn new(base_url: impl Into<String>, credentials: Arc<dyn Credentials>) -> Result<Self, ProviderError> {
        Self::builder(base_url, credentials).build()
    }

    /// A provider of one's own making.
    pub fn builder(base_url: impl Into<String>, credentials: Arc<dyn Credentials>) -> OpenAiResponsesBuilder {
        OpenAiResponsesBuilder {
            base_url: base_url.into(),
            credentials,
            headers: Vec::new(),
            dialect: None,
            http: None,
        }
    }
}

impl OpenAiResponsesBuilder {
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
    pub fn build(self) -> Result<OpenAiResponses, ProviderError> {
        let http = match self.http {
            Some(http) => http,
            None => Http::new()?,
        };
        Ok(OpenAiResponses {
            http,
            dialect: self.dialect.unwrap_or_else(|| Dialect::of_url(&self.base_url)),
            url: endpoint(&self.base_url).into(),
            credentials: self.credentials,
            headers: self.headers,
        })
    }
}

#[async_trait]
impl Provider for OpenAiResponses {
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
        let decoder = ResponsesDecoder::new(Arc::clone(&self.dialect));
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
    let path = path.strip_suffix("/responses").unwrap_or(path);
    format!("{path}/responses{query}")
}

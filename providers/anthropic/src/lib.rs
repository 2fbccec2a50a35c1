//! Anthropic's wire: the Messages API, at Anthropic and at those who speak it too.
//!
//! [`Anthropic`] is the provider; [`lower`] and [`MessagesDecoder`] are its two halves without I/O; [`Dialect`] says what differs between servers.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use settled_provider_anthropic::Anthropic;
//! use settled_provider_api::FixedKey;
//!
//! # fn main() -> Result<(), settled_provider_api::ProviderError> {
//! let claude = Anthropic::new("https://api.anthropic.com", Arc::new(FixedKey::new("a key")))?;
//! # drop(claude);
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use settled_provider_api::{Credentials, ErrorClass, Provider, ProviderError, ProviderStream, Request};
use settled_provider_wire::{Authorization, Http, HttpRequest};

mod request;

mod decode;

mod error;

mod options;

mod blocks;

mod chunk;

mod usage;

pub use decode::{IGNORED_FIELDS, MessagesDecoder};
pub use error::response_error;
pub use options::{Cache, Dialect, MaxOutput, UnsignedThinking};
pub use request::lower;

/// The version of the wire that is asked for.
const VERSION: &str = "2023-06-01";

/// A provider that speaks the Messages API.
///
/// It sends one request per stream, tries nothing again, and asks [`Credentials`] for the key of the request's provider each time.
/// Dropping the stream closes its connection.
#[derive(Clone)]
pub struct Anthropic {
    http: Http,
    url: Arc<str>,
    credentials: Arc<dyn Credentials>,
    headers: Vec<(String, String)>,
    dialect: Arc<Dialect>,
}

impl fmt::Debug for Anthropic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anthropic").field("dialect", &self.dialect.name).finish_non_exhaustive()
    }
}

/// How an [`Anthropic`] is made.
#[derive(Clone)]
pub struct AnthropicBuilder {
    base_url: String,
    credentials: Arc<dyn Credentials>,
    headers: Vec<(String, String)>,
    dialect: Arc<Dialect>,
    http: Option<Http>,
}

impl fmt::Debug for AnthropicBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnthropicBuilder").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}

impl Anthropic {
    /// A provider at a base URL, such as `https://api.anthropic.com`, in the dialect of its host.
    ///
    /// # Errors
    ///
    /// Class `transport`: the machine's TLS or proxy settings cannot be used.
    pub fn new(base_url: impl Into<String>, credentials: Arc<dyn Credentials>) -> Result<Self, ProviderError> {
        Self::builder(base_url, credentials).build()
    }

    /// A provider of one's own making.
    pub fn builder(base_url: impl Into<String>, credentials: Arc<dyn Credentials>) -> AnthropicBuilder {
        let base_url = base_url.into();
        let dialect = Dialect::of_url(&base_url);
        AnthropicBuilder { base_url, credentials, headers: Vec::new(), dialect, http: None }
    }
}

impl AnthropicBuilder {
    /// Speaks this dialect, whatever the host is.
    #[must_use]
    pub fn dialect(mut self, dialect: Arc<Dialect>) -> Self {
        self.dialect = dialect;
        self
    }

    /// Offers a tool that the provider runs itself with each request: its definition, as the wire has it.
    #[must_use]
    pub fn hosted_tool(mut self, definition: Value) -> Self {
        Arc::make_mut(&mut self.dialect).hosted_tools.push(definition);
        self
    }

    /// Sends a further header with each request, for instance `anthropic-beta`.
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
    pub fn build(self) -> Result<Anthropic, ProviderError> {
        let http = match self.http {
            Some(http) => http,
            None => Http::new()?,
        };
        Ok(Anthropic {
            http,
            url: endpoint(&self.base_url).into(),
            credentials: self.credentials,
            headers: self.headers,
            dialect: self.dialect,
        })
    }
}

#[async_trait]
impl Provider for Anthropic {
    async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        let body = lower(&request, &self.dialect)?;
        let body = serde_json::to_vec(&body).map_err(|error| {
            ProviderError::new(ErrorClass::InvalidRequest, format!("the body cannot be written: {error}"))
        })?;
        let mut sent = HttpRequest::new(Arc::clone(&request.model.provider), &*self.url, body);
        sent.dialect = Arc::from(self.dialect.name.as_str());
        sent.headers.push(("anthropic-version".to_owned(), VERSION.to_owned()));
        sent.headers.extend(self.headers.iter().cloned());
        if let Some(name) = &self.dialect.key_header {
            sent.authorization = Authorization::Header(name.clone());
        }
        let decoder = MessagesDecoder::new(Arc::clone(&self.dialect));
        self.http.stream(sent, &*self.credentials, Box::new(decoder)).await
    }
}

/// The endpoint at a base URL, with or without `/v1` behind it; a query stays behind it, and a base URL that is the endpoint stays as it is.
fn endpoint(base_url: &str) -> String {
    let (path, query) = match base_url.split_once('?') {
        Some((path, query)) => (path, format!("?{query}")),
        None => (base_url, String::new()),
    };
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix("/messages").unwrap_or(path);
    let path = path.strip_suffix("/v1").unwrap_or(path);
    format!("{path}/v1/messages{query}")
}

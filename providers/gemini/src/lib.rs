//! Google's wire: Gemini, on the Developer API and on Vertex.
//!
//! [`Gemini`] is the provider; [`lower`] and [`GeminiDecoder`] are its two halves without I/O; [`Dialect`] says what differs between the two servers.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use settled_provider_api::FixedKey;
//! use settled_provider_gemini::Gemini;
//!
//! # fn main() -> Result<(), settled_provider_api::ProviderError> {
//! let gemini = Gemini::new(Gemini::DEVELOPER_API, Arc::new(FixedKey::new("a key")))?;
//! let vertex = Gemini::new(
//!     "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/us-central1",
//!     Arc::new(FixedKey::new("a token")),
//! )?;
//! # drop((gemini, vertex));
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use settled_provider_api::{Credentials, ErrorClass, Provider, ProviderError, ProviderStream, Request};
use settled_provider_wire::{Authorization, Http, HttpRequest};

mod request;

mod decode;

mod error;

mod options;

mod schema;

mod partial;

mod chunk;

mod usage;

pub use decode::{GeminiDecoder, IGNORED_FIELDS};
pub use error::{never_fits, response_error};
pub use options::{Dialect, MediaInResults, ModelRule, Tier};
pub use request::lower;

/// A provider that speaks `streamGenerateContent`.
///
/// It sends one request per stream, tries nothing again, and asks [`Credentials`] for the key of the request's provider each time.
/// Dropping the stream closes its connection.
#[derive(Clone)]
pub struct Gemini {
    http: Http,
    base_url: Arc<str>,
    credentials: Arc<dyn Credentials>,
    headers: Vec<(String, String)>,
    dialect: Arc<Dialect>,
}

impl fmt::Debug for Gemini {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gemini").field("dialect", &self.dialect.name).finish_non_exhaustive()
    }
}

/// How a [`Gemini`] is made.
#[derive(Clone)]
pub struct GeminiBuilder {
    base_url: String,
    credentials: Arc<dyn Credentials>,
    headers: Vec<(String, String)>,
    dialect: Option<Arc<Dialect>>,
    http: Option<Http>,
}

impl fmt::Debug for GeminiBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GeminiBuilder").field("dialect", &self.dialect).finish_non_exhaustive()
    }
}

impl Gemini {
    /// The base URL of the Developer API.
    pub const DEVELOPER_API: &str = "https://generativelanguage.googleapis.com/v1beta";

    /// A provider at a base URL, in the dialect of its host.
    ///
    /// On Vertex the base URL ends with the location, and the key is an access token.
    ///
    /// # Errors
    ///
    /// Class `transport`: the machine's TLS or proxy settings cannot be used.
    pub fn new(base_url: impl Into<String>, credentials: Arc<dyn Credentials>) -> Result<Self, ProviderError> {
        Self::builder(base_url, credentials).build()
    }

    /// A provider of one's own making.
    pub fn builder(base_url: impl Into<String>, credentials: Arc<dyn Credentials>) -> GeminiBuilder {
        GeminiBuilder { base_url: base_url.into(), credentials, headers: Vec::new(), dialect: None, http: None }
    }
}

impl GeminiBuilder {
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
    pub fn build(self) -> Result<Gemini, ProviderError> {
        let http = match self.http {
            Some(http) => http,
            None => Http::new()?,
        };
        Ok(Gemini {
            http,
            dialect: self.dialect.unwrap_or_else(|| Dialect::of_url(&self.base_url)),
            base_url: self.base_url.into(),
            credentials: self.credentials,
            headers: self.headers,
        })
    }
}

#[async_trait]
impl Provider for Gemini {
    async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        let body = lower(&request, &self.dialect)?;
        let bytes = serde_json::to_vec(&body).map_err(|error| {
            ProviderError::new(ErrorClass::InvalidRequest, format!("the body cannot be written: {error}"))
        })?;
        let url = endpoint(&self.base_url, &request.model.model, &self.dialect);
        let mut sent = HttpRequest::new(Arc::clone(&request.model.provider), url, bytes);
        sent.dialect = Arc::from(self.dialect.name.as_str());
        if let (Tier::Header(name), Some(tier)) = (&self.dialect.tier, &request.options.service_tier) {
            sent.headers.push((name.clone(), tier.clone()));
        }
        sent.headers.extend(self.headers.iter().cloned());
        if let Some(name) = &self.dialect.key_header {
            sent.authorization = Authorization::Header(name.clone());
        }
        let decoder = GeminiDecoder::new(Arc::clone(&self.dialect));
        let opened = self.http.stream(sent, &*self.credentials, Box::new(decoder)).await;
        opened.map_err(|error| never_fits(error, &body))
    }
}

/// The endpoint of a model at a base URL, in the framing of server-sent events; a query stays behind it.
///
/// A model that is named by a path (`tunedModels/…`, `projects/…/endpoints/…`) lies directly under the base URL.
fn endpoint(base_url: &str, model: &str, dialect: &Dialect) -> String {
    let (path, query) = match base_url.split_once('?') {
        Some((path, query)) => (path, format!("{query}&")),
        None => (base_url, String::new()),
    };
    let path = path.trim_end_matches('/');
    let collection = &dialect.collection;
    let place = match model.contains('/') {
        true => format!("{path}/{model}"),
        false => {
            // Who gives a base URL with the collection, or with the publisher alone, means the same place.
            let publisher = collection.rsplit_once('/').map_or("", |(publisher, _)| publisher);
            let path = path.strip_suffix(collection.as_str()).unwrap_or(path).trim_end_matches('/');
            let path = path.strip_suffix(publisher).unwrap_or(path).trim_end_matches('/');
            format!("{path}/{collection}/{model}")
        }
    };
    format!("{place}:streamGenerateContent?{query}alt=sse")
}

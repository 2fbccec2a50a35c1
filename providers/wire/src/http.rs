//! The HTTP shell: one request, one response, its body driven through a decoder.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use futures_core::Stream;
use http_body::Body as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use settled_provider_api::{Credentials, ErrorClass, ProviderError, ProviderEvent, ProviderStream, Secret};

use crate::classify::failed_response;
use crate::decode::Decoder;

/// How long connecting may take where nothing else is said.
const CONNECT: Duration = Duration::from_secs(10);

/// How much of the body of a failure is read.
const LONGEST_FAILURE: usize = 256 * 1024;

/// The HTTP client that adapters share: cheap to clone, its connections shared by all clones.
///
/// # Contract
///
/// - One [`HttpRequest`] is one request on the wire: it follows no redirect (a key must not travel to another host) and never tries again.
/// - It limits how long connecting may take, and nothing else.
/// - The proxy comes from the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`).
/// - Keys are asked from [`Credentials`] for each request; no key is ever part of an error or a trace.
///
/// # Cancelling
///
/// Dropping the future of [`stream`](Self::stream), or the stream it gave, closes the connection (with HTTP/2, its stream).
#[derive(Clone)]
pub struct Http {
    client: Client,
    connect: Duration,
    /// Why certificates cannot be checked, if they cannot.
    untrusting: Option<Arc<str>>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("connect", &self.connect).finish_non_exhaustive()
    }
}

/// How an [`Http`] is made.
#[derive(Clone, Debug)]
pub struct HttpBuilder {
    connect: Duration,
    direct: bool,
}

/// One request, without its key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HttpRequest {
    /// The provider, as [`Credentials`] know it.
    pub provider: Arc<str>,
    /// The dialect, as the [`Classifier`](crate::Classifier)'s rules know it.
    pub dialect: Arc<str>,
    /// Where it goes.
    pub url: String,
    /// Where the key goes.
    pub authorization: Authorization,
    /// Further headers; the values of those that are named like a key are taken for secrets, too.
    pub headers: Vec<(String, String)>,
    /// The body, JSON.
    pub body: Vec<u8>,
}

/// Where a key goes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Authorization {
    /// `Authorization: Bearer …`.
    Bearer,
    /// A header of this name that has the key alone.
    Header(String),
}

impl HttpRequest {
    /// A request with a bearer key and no further headers.
    pub fn new(provider: impl Into<Arc<str>>, url: impl Into<String>, body: Vec<u8>) -> Self {
        let provider = provider.into();
        Self {
            dialect: Arc::clone(&provider),
            provider,
            url: url.into(),
            authorization: Authorization::Bearer,
            headers: Vec::new(),
            body,
        }
    }
}

impl Http {
    /// A client with the limits above and the proxy of the environment.
    ///
    /// # Errors
    ///
    /// Class `transport`: the machine's TLS or proxy settings cannot be used.
    pub fn new() -> Result<Self, ProviderError> {
        Self::builder().build()
    }

    /// A client of one's own making.
    pub fn builder() -> HttpBuilder {
        HttpBuilder { connect: CONNECT, direct: false }
    }

    /// Sends one request and opens the stream of events that its body decodes to.
    ///
    /// The status is looked at before the content type, and the content type not at all: many servers label a stream as something else.
    ///
    /// # Errors
    ///
    /// Of the [`Credentials`], as they are; `transport` when there is no connection; `invalid_request` when the URL or a header is none; of a failing status, as the [`Classifier`](crate::Classifier) has it, with what the provider says about trying again.
    /// In the stream: `transport` when the connection breaks, and what the decoder does not take.
    pub async fn stream(
        &self,
        request: HttpRequest,
        credentials: &dyn Credentials,
        decoder: Box<dyn Decoder>,
    ) -> Result<ProviderStream, ProviderError> {
        let key = credentials.key(&request.provider).await?;
        let secrets = Secrets::new(key.as_ref(), &request.headers);
        let HttpRequest { dialect, url, authorization, headers, body, .. } = request;
        let invalid = |what: &str| ProviderError::new(ErrorClass::InvalidRequest, what);
        let url = Url::parse(&url)
            .map_err(|error| invalid(&format!("the base URL does not make a URL ({error}): check --base-url")))?;
        let place = Place::of(&url);
        let mut header_map = HeaderMap::new();
        header_map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let keyed = key.map(|key| match authorization {
            Authorization::Bearer => ("authorization".to_owned(), format!("Bearer {}", key.reveal())),
            Authorization::Header(name) => (name, key.reveal().to_owned()),
        });
        // Further headers come last: who sets `authorization` by hand means it.
        for (name, value) in keyed.into_iter().chain(headers) {
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|_| invalid(&format!("{name:?} is not the name of a header")))?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| {
                invalid(&format!("the value of the header {name:?} has characters that no header may have; a key must have no line break"))
            })?;
            value.set_sensitive(true);
            header_map.insert(header, value);
        }
        let sent = self.client.post(url).headers(header_map).body(body).send().await;
        let response = sent.map_err(|error| secrets.redact(self.unsent(&place, error)))?;
        let status = response.status();
        tracing::debug!(host = %place, status = status.as_u16(), "response");
        if !status.is_success() {
            let error = failure(&dialect, response).await;
            return Err(secrets.redact(error));
        }
        let body = reqwest::Body::from(response);
        Ok(Box::pin(Events { body: Some(body), decoder, ready: VecDeque::new(), failed: None, secrets, place }))
    }

    /// The failure of a request that got no response.
    fn unsent(&self, place: &Place, error: reqwest::Error) -> ProviderError {
        let error = error.without_url();
        let causes = causes(&error);
        let refused = causes.contains("refused");
        let message = if error.is_builder() {
            return ProviderError::new(ErrorClass::InvalidRequest, format!("the request cannot be sent: {causes}"));
        } else if error.is_connect() && error.is_timeout() {
            let limit = self.connect;
            format!(
                "no connection to {place} within {limit:?}: is the server reachable? check --base-url and the proxy settings"
            )
        } else if error.is_dns() {
            format!("{place} has no address: check --base-url and the network ({causes})")
        } else if error.is_connect() && refused {
            format!("{place} refuses connections: is the server running? start it, or check --base-url")
        } else if let (true, Some(why)) = (error.is_connect() && causes.contains("certificate"), &self.untrusting) {
            format!(
                "the certificate of {place} cannot be checked, since this machine has no root certificates ({why}): install them"
            )
        } else if error.is_connect() {
            format!("no connection to {place}: check --base-url and the network ({causes})")
        } else {
            format!("the connection to {place} broke before the response: {causes}")
        };
        ProviderError::new(ErrorClass::Transport, message)
    }
}

impl HttpBuilder {
    /// Lets connecting take this long.
    #[must_use]
    pub fn connect_limit(mut self, limit: Duration) -> Self {
        self.connect = limit;
        self
    }

    /// Connects without the proxy of the environment.
    #[must_use]
    pub fn without_proxy(mut self) -> Self {
        self.direct = true;
        self
    }

    /// Makes the client.
    ///
    /// # Errors
    ///
    /// Class `transport`: the machine's TLS or proxy settings cannot be used.
    pub fn build(self) -> Result<Http, ProviderError> {
        let unusable = |error: &dyn Error| {
            ProviderError::new(ErrorClass::Transport, format!("TLS cannot be set up: {}", causes(error)))
        };
        let provider = Arc::new(ring::default_provider());
        let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(&error))?;
        let (mut tls, untrusting) = match Verifier::new(provider) {
            Ok(verifier) => {
                let config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
                (config.with_no_client_auth(), None)
            }
            // A machine without root certificates can still talk to a server on itself, without TLS.
            Err(error) => {
                let config = config.with_root_certificates(RootCertStore::empty());
                (config.with_no_client_auth(), Some(Arc::from(error.to_string())))
            }
        };
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let mut client = Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(self.connect)
            .redirect(Policy::none())
            .retry(reqwest::retry::never())
            .user_agent(concat!("settled/", env!("CARGO_PKG_VERSION")));
        if self.direct {
            client = client.no_proxy();
        }
        Ok(Http { client: client.build().map_err(|error| unusable(&error))?, connect: self.connect, untrusting })
    }
}

/// The events of one response.
struct Events {
    /// `None` when it has ended, broken or been given up: the connection is closed.
    body: Option<reqwest::Body>,
    decoder: Box<dyn Decoder>,
    ready: VecDeque<ProviderEvent>,
    /// Delivered when no event is left before it.
    failed: Option<ProviderError>,
    secrets: Secrets,
    place: Place,
}

impl Stream for Events {
    type Item = Result<ProviderEvent, ProviderError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            match this.ready.pop_front() {
                Some(ProviderEvent::Error(error)) => {
                    return Poll::Ready(Some(Ok(ProviderEvent::Error(this.secrets.redact(error)))));
                }
                Some(event) => return Poll::Ready(Some(Ok(event))),
                None => {}
            }
            if let Some(error) = this.failed.take() {
                return Poll::Ready(Some(Err(this.secrets.redact(error))));
            }
            let Some(body) = &mut this.body else {
                return Poll::Ready(None);
            };
            let decoded = match ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.decoder.push(&data, &mut this.ready),
                    // Trailers say nothing to us.
                    Err(_) => Ok(()),
                },
                Some(Err(error)) => Err(ProviderError::new(
                    ErrorClass::Transport,
                    format!(
                        "the connection to {} broke while the answer was arriving: {}",
                        this.place,
                        causes(&error.without_url())
                    ),
                )),
                None => {
                    this.body = None;
                    this.decoder.finish(&mut this.ready)
                }
            };
            if let Err(error) = decoded {
                this.body = None;
                this.failed = Some(error);
            }
        }
    }
}

/// The failure that a response of a failing status is.
async fn failure(dialect: &str, response: Response) -> ProviderError {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut body = reqwest::Body::from(response);
    let mut bytes: Vec<u8> = Vec::new();
    // A body that breaks off has said what it said: the status is known.
    while bytes.len() < LONGEST_FAILURE
        && let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    failed_response(dialect, status, header, &bytes, SystemTime::now())
}

/// What must not be shown.
struct Secrets(Vec<Arc<str>>);

impl Secrets {
    fn new(key: Option<&Secret>, headers: &[(String, String)]) -> Self {
        const TELLING: [&str; 5] = ["auth", "key", "token", "secret", "cookie"];
        let telling = headers.iter().filter(|(name, _)| {
            let name = name.to_ascii_lowercase();
            TELLING.into_iter().any(|word| name.contains(word))
        });
        let values = telling.map(|(_, value)| value.strip_prefix("Bearer ").unwrap_or(value));
        let secrets = key.map(Secret::reveal).into_iter().chain(values);
        // A text that short would be found by chance, and is no secret.
        Self(secrets.filter(|secret| secret.len() >= 4).map(Arc::from).collect())
    }

    /// The same error without secrets in what it says.
    fn redact(&self, mut error: ProviderError) -> ProviderError {
        for secret in &self.0 {
            for text in [Some(&mut error.message), error.code.as_mut()].into_iter().flatten() {
                if text.contains(&**secret) {
                    *text = text.replace(&**secret, "[redacted]");
                }
            }
        }
        error
    }
}

/// Where a request goes, as it may be shown: no path, no query, no name or password.
struct Place(String);

impl Place {
    fn of(url: &Url) -> Self {
        let host = url.host_str().unwrap_or("?");
        match url.port() {
            Some(port) => Self(format!("{}://{host}:{port}", url.scheme())),
            None => Self(format!("{}://{host}", url.scheme())),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An error and what caused it, in one line.
fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

//! A fixture over the testkit's server, for the wires that it speaks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use settled_provider_api::{ErrorClass, FinishReason, ModelRef, Provider, Usage};

use super::{Abilities, FarEnd, HOUR, Noise, Plan, ProviderFixture, ProviderSubject, Reasoning, Sent};
use crate::server::{Fault, Server, Wire};

/// The key that providers are given.
const KEY: &str = "sk-key-of-the-suite-4711";

/// Makes a provider that sends its requests to a base URL, with a key.
type Make = Box<dyn Fn(String, &str) -> Result<Arc<dyn Provider>, String> + Send + Sync>;

/// A fixture for a provider of a wire that the testkit's [`Server`] speaks.
///
/// Run it on a current-thread runtime whose clock goes: the hour of silence pauses it.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use settled_testkit::conformance::provider::{ProviderSuite, WireFixture};
/// use settled_testkit::server::Wire;
/// # use settled_testkit::script;
/// # fn my_adapter(base_url: String, key: &str) -> Result<Arc<dyn settled_provider_api::Provider>, String> {
/// #     Ok(Arc::new(script().provider()))
/// # }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let fixture = WireFixture::new(Wire::Chat, |base_url, key| my_adapter(base_url, key));
/// println!("{}", ProviderSuite::new().run(&fixture).await);
/// # }
/// ```
pub struct WireFixture {
    wire: Wire,
    make: Make,
    model: ModelRef,
    abilities: Abilities,
    patience: Duration,
}

impl WireFixture {
    /// A fixture for providers of a wire, with the abilities of the wire.
    ///
    /// The provider is made for each case anew, from the server's base URL and a key; it must use no proxy.
    pub fn new(
        wire: Wire,
        make: impl Fn(String, &str) -> Result<Arc<dyn Provider>, String> + Send + Sync + 'static,
    ) -> Self {
        let model = ModelRef::new("suite", "model-of-the-suite");
        Self { wire, make: Box::new(make), model, abilities: of(wire), patience: Duration::from_secs(60) }
    }

    /// The same fixture, with another model to ask for.
    #[must_use]
    pub fn model(mut self, model: ModelRef) -> Self {
        self.model = model;
        self
    }

    /// The same fixture, whose cases may take as long as this.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The same fixture, with other abilities, from those that the wire has.
    #[must_use]
    pub fn abilities(mut self, change: impl FnOnce(Abilities) -> Abilities) -> Self {
        self.abilities = change(self.abilities);
        self
    }
}

impl fmt::Debug for WireFixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WireFixture").field("wire", &self.wire).finish_non_exhaustive()
    }
}

/// What a wire has a place for.
fn of(wire: Wire) -> Abilities {
    let base = Abilities::default()
        .error_in_stream(ErrorClass::Overloaded)
        .response_info("resp_of_the_suite", "model-1")
        .secret(KEY);
    let text = "the wire sends the arguments of a call as JSON, not as text";
    match wire {
        Wire::Chat => base.reasoning(Reasoning::Plain).usage(Usage::new(70, 20).reasoning(10).cache_read(30)),
        Wire::Responses => base.reasoning(Reasoning::WithState).usage(Usage::new(70, 20).reasoning(10).cache_read(30)),
        Wire::Messages => {
            base.reasoning(Reasoning::WithState).usage(Usage::new(70, 20).cache_read(30).cache_write(5)).finishes([
                FinishReason::Stop,
                FinishReason::ToolCalls,
                FinishReason::Length,
                FinishReason::Refusal,
                FinishReason::Pause,
            ])
        }
        Wire::Gemini | Wire::GeminiArray => base
            .reasoning(Reasoning::WithState)
            .usage(Usage::new(70, 20).reasoning(10).cache_read(30))
            .without("call.malformed", text)
            .without("call.unclosed", text)
            .without("call.cut", text)
            .without("call.pieces", text)
            .without(
                "finish.reads_on",
                "the wire has no end marker: that an answer is finished is told when its body ends",
            ),
    }
}

#[async_trait]
impl ProviderFixture for WireFixture {
    async fn open(&self, plan: Plan) -> Result<ProviderSubject, String> {
        let mut builder = Server::builder(plan.script);
        if plan.noise == Some(Noise::Garbage) {
            let bytes: &[u8] = if self.wire == Wire::GeminiArray { b"{garbage,\n" } else { b"data: {garbage\n\n" };
            builder = builder.fault(1, Fault::Insert { before: 1, bytes: bytes.to_vec() });
        }
        let server = builder.start().await.map_err(|error| error.to_string())?;
        let provider = (self.make)(server.base_url(self.wire), KEY)?;
        Ok(ProviderSubject::new(provider, self.model.clone(), Arc::new(Far(server))))
    }

    fn abilities(&self) -> Abilities {
        self.abilities.clone()
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    async fn hour(&self) {
        tokio::time::pause();
        tokio::time::sleep(HOUR).await;
        tokio::time::resume();
    }
}

/// The server as a far end.
struct Far(Server);

impl FarEnd for Far {
    fn sent(&self) -> Vec<Sent> {
        let sent =
            |request: crate::server::Received| Sent::new(request.body).target(request.target).headers(request.headers);
        self.0.requests().into_iter().map(sent).collect()
    }

    fn connections(&self) -> Option<usize> {
        Some(self.0.connections())
    }
}

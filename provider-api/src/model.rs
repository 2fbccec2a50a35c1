//! Models: how they are named, what they can do, what they cost.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use settled_tools_api::InvalidId;

/// A model of a provider: `provider/model`.
///
/// Provider state is bound to it: it goes back only to the same provider and model.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelRef {
    /// The provider, as the application names it.
    pub provider: Arc<str>,
    /// The model, as the provider names it.
    pub model: Arc<str>,
}

impl ModelRef {
    /// A model of a provider.
    pub fn new(provider: impl Into<Arc<str>>, model: impl Into<Arc<str>>) -> Self {
        Self { provider: provider.into(), model: model.into() }
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

impl fmt::Debug for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModelRef({self})")
    }
}

impl FromStr for ModelRef {
    type Err = InvalidId;

    /// Reads `provider/model`; the model's own name may have further slashes.
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        match text.split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => Ok(Self::new(provider, model)),
            _ => Err(InvalidId::new("model", text, "it must be `provider/model`")),
        }
    }
}

/// What a model can do and what it costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ModelInfo {
    /// The context window in tokens, input and output together.
    pub context: Option<u64>,
    /// The most input tokens, where it is less than the context.
    pub input: Option<u64>,
    /// The most output tokens.
    pub output: Option<u64>,
    /// What a token costs.
    pub price: Option<Price>,
    /// What the model accepts.
    pub capabilities: Capabilities,
    /// The longest time until the first event; the runner's own limit where `None`.
    pub first_event: Option<Duration>,
    /// The longest time between two events; the runner's own limit where `None`.
    pub stream_idle: Option<Duration>,
}

impl ModelInfo {
    /// A model of which nothing is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same model with its limits in tokens: the context window, and the longest answer.
    #[must_use]
    pub fn limits(mut self, context: impl Into<Option<u64>>, output: impl Into<Option<u64>>) -> Self {
        self.context = context.into();
        self.output = output.into();
        self
    }

    /// The same model with its price.
    #[must_use]
    pub fn price(mut self, price: impl Into<Option<Price>>) -> Self {
        self.price = price.into();
        self
    }

    /// The same model with its capabilities.
    #[must_use]
    pub fn capabilities(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities;
        self
    }

    /// What an answer costs, in nano-units of money; `None` where the price is not known.
    pub fn cost(&self, usage: &Usage) -> Option<u64> {
        self.price.as_ref().map(|price| price.cost(usage))
    }
}

/// What a model accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Capabilities {
    /// The media types it accepts from a person or a tool; `image/*` takes in every image.
    pub media: Vec<String>,
    /// Whether a system message may stand in the middle of the history.
    pub system_in_middle: bool,
    /// Whether the last message may be the assistant's.
    pub assistant_last: bool,
}

impl Default for Capabilities {
    /// The common ground: png, jpeg, gif and webp images; system parts only in front; the last message is a user's or a tool's.
    fn default() -> Self {
        Self {
            media: ["image/png", "image/jpeg", "image/gif", "image/webp"].map(str::to_owned).to_vec(),
            system_in_middle: false,
            assistant_last: false,
        }
    }
}

impl Capabilities {
    /// Whether a media type is accepted.
    pub fn accepts(&self, mime: &str) -> bool {
        self.media.iter().any(|accepted| match accepted.strip_suffix('*') {
            Some(prefix) => mime.starts_with(prefix),
            None => accepted == mime,
        })
    }

    /// The same capabilities with these media types.
    #[must_use]
    pub fn media(mut self, media: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.media = media.into_iter().map(Into::into).collect();
        self
    }

    /// The same capabilities, system messages in the middle allowed.
    #[must_use]
    pub fn system_in_middle(mut self) -> Self {
        self.system_in_middle = true;
        self
    }

    /// The same capabilities, the assistant's message allowed to be last.
    #[must_use]
    pub fn assistant_last(mut self) -> Self {
        self.assistant_last = true;
        self
    }
}

/// What one answer used, in tokens: disjoint numbers; `None` is "not reported", never 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// Input that was neither read from nor written to a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Output without reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Input read from a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Input written to a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
}

impl Usage {
    /// Usage of input and output, nothing else reported.
    pub fn new(input: impl Into<Option<u64>>, output: impl Into<Option<u64>>) -> Self {
        Self { input: input.into(), output: output.into(), ..Self::default() }
    }

    /// The same usage with reasoning tokens.
    #[must_use]
    pub fn reasoning(mut self, tokens: impl Into<Option<u64>>) -> Self {
        self.reasoning = tokens.into();
        self
    }

    /// The same usage with tokens read from a cache.
    #[must_use]
    pub fn cache_read(mut self, tokens: impl Into<Option<u64>>) -> Self {
        self.cache_read = tokens.into();
        self
    }

    /// The same usage with tokens written to a cache.
    #[must_use]
    pub fn cache_write(mut self, tokens: impl Into<Option<u64>>) -> Self {
        self.cache_write = tokens.into();
        self
    }

    /// All input: fresh, read from and written to a cache.
    pub fn prompt(&self) -> u64 {
        [self.input, self.cache_read, self.cache_write].into_iter().flatten().fold(0, u64::saturating_add)
    }

    /// All output: answer and reasoning.
    pub fn generated(&self) -> u64 {
        [self.output, self.reasoning].into_iter().flatten().fold(0, u64::saturating_add)
    }

    /// The sum of two usages; a number is reported if either reports it.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let add = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        Self {
            input: add(self.input, other.input),
            output: add(self.output, other.output),
            reasoning: add(self.reasoning, other.reasoning),
            cache_read: add(self.cache_read, other.cache_read),
            cache_write: add(self.cache_write, other.cache_write),
        }
    }
}

/// What a token costs, in nano-units of money (a billionth of the currency's unit).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Price {
    /// The price of small prompts.
    pub base: Rates,
    /// Dearer prices for larger prompts.
    pub tiers: Vec<Tier>,
}

impl Price {
    /// One price for every prompt.
    pub fn new(base: Rates) -> Self {
        Self { base, tiers: Vec::new() }
    }

    /// The same price with another one for prompts of more than `above` tokens.
    #[must_use]
    pub fn tier(mut self, above: u64, rates: Rates) -> Self {
        self.tiers.push(Tier { above, rates });
        self
    }

    /// What an answer costs, in nano-units: the rates of the highest tier below the prompt's size, for everything.
    pub fn cost(&self, usage: &Usage) -> u64 {
        let prompt = usage.prompt();
        let tier = self.tiers.iter().filter(|tier| tier.above < prompt).max_by_key(|tier| tier.above);
        let rates = tier.map_or(&self.base, |tier| &tier.rates);
        let of = |tokens: Option<u64>, rate: u64| tokens.unwrap_or(0).saturating_mul(rate);
        [
            of(usage.input, rates.input),
            usage.generated().saturating_mul(rates.output),
            of(usage.cache_read, rates.cache_read.unwrap_or(rates.input)),
            of(usage.cache_write, rates.cache_write.unwrap_or(rates.input)),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// A price for larger prompts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Tier {
    /// It holds for prompts of more tokens than this.
    pub above: u64,
    /// What a token costs then.
    pub rates: Rates,
}

/// Prices per token, in nano-units of money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Rates {
    /// A token of fresh input.
    pub input: u64,
    /// A token of output or reasoning.
    pub output: u64,
    /// A token read from a cache; as fresh input where `None`.
    pub cache_read: Option<u64>,
    /// A token written to a cache; as fresh input where `None`.
    pub cache_write: Option<u64>,
}

impl Rates {
    /// Prices of input and output.
    pub fn new(input: u64, output: u64) -> Self {
        Self { input, output, cache_read: None, cache_write: None }
    }

    /// The same prices with those of a cache.
    #[must_use]
    pub fn cache(mut self, read: impl Into<Option<u64>>, write: impl Into<Option<u64>>) -> Self {
        self.cache_read = read.into();
        self.cache_write = write.into();
        self
    }
}

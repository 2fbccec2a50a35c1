//! What differs between those who speak the Messages API: dialects, as data.

use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::Value;
use settled_provider_api::FinishReason;

/// How one server speaks the Messages API.
///
/// The decoder reads every dialect; what a profile says is what cannot be seen from the bytes, and how requests are written.
/// [`Dialect::named`] gives the profiles that come with this crate, [`Dialect::of_url`] the one of a host; one of your own is read from JSON in which every field but `name` may be left out.
///
/// ```
/// use settled_provider_anthropic::Dialect;
///
/// assert_eq!(Dialect::of_url("https://api.anthropic.com").name, "anthropic");
/// assert_eq!(Dialect::of_url("http://127.0.0.1:8080").name, "compatible");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Dialect {
    /// Its name; the classifier of errors has rules for some.
    pub name: String,
    /// The hosts that speak it; a host matches with all names before its own.
    pub hosts: Vec<String>,
    /// The header that has the key alone; `Authorization: Bearer` where `None`.
    pub key_header: Option<String>,
    /// What becomes of reasoning that came without a signature, when it would go back to its model.
    pub unsigned_thinking: UnsignedThinking,
    /// Whether and for how long prefixes are cached.
    pub cache: Cache,
    /// The limits of answers of models where the request sets none, asked before those that come with this crate.
    pub max_output: Vec<MaxOutput>,
    /// Tools that the provider runs itself: their definitions, as the wire has them; offered with each request, in front of the request's own.
    pub hosted_tools: Vec<Value>,
}

/// What becomes of reasoning without a signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum UnsignedThinking {
    /// It goes back with an empty signature: for servers that sign nothing.
    #[default]
    Sent,
    /// It does not go back: for servers that refuse what they have not signed.
    LeftOut,
}

/// Whether and for how long prefixes are cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cache {
    /// For five minutes from the last use.
    #[default]
    FiveMinutes,
    /// For an hour from the last use.
    OneHour,
    /// No breakpoint is set: for servers that cache by themselves, or not at all.
    Off,
}

/// The most tokens that an answer of some models may have.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct MaxOutput {
    /// What stands in the names of these models, with `-` for `.`.
    pub model: String,
    /// The most tokens.
    pub tokens: u64,
}

impl MaxOutput {
    /// The limit of the models whose names have this in them.
    pub fn new(model: impl Into<String>, tokens: u64) -> Self {
        Self { model: model.into(), tokens }
    }
}

/// What comes with this crate.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "version")]
    _version: u32,
    max_output: Vec<MaxOutput>,
    dialects: Vec<Arc<Dialect>>,
}

fn file() -> &'static File {
    static FILE: OnceLock<File> = OnceLock::new();
    FILE.get_or_init(|| {
        let file = serde_json::from_str::<File>(include_str!("dialects.json"));
        #[expect(clippy::expect_used, reason = "the file is part of the crate, and a test reads it")]
        file.expect("dialects.json is a list of limits and of dialects")
    })
}

impl Default for Dialect {
    /// The common ground, for any compatible server.
    fn default() -> Self {
        Self {
            name: "compatible".to_owned(),
            hosts: Vec::new(),
            key_header: Some("x-api-key".to_owned()),
            unsigned_thinking: UnsignedThinking::Sent,
            cache: Cache::FiveMinutes,
            max_output: Vec::new(),
            hosted_tools: Vec::new(),
        }
    }
}

impl Dialect {
    /// The dialects that come with this crate.
    pub fn all() -> &'static [Arc<Self>] {
        &file().dialects
    }

    /// The dialect of a name.
    pub fn named(name: &str) -> Option<Arc<Self>> {
        Self::all().iter().find(|dialect| dialect.name == name).cloned()
    }

    /// The dialect of a base URL's host; `compatible` for a host that is not known.
    pub fn of_url(url: &str) -> Arc<Self> {
        let behind_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = behind_scheme.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let host = host.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let speaks = |known: &String| {
            host.strip_suffix(known.as_str()).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        let found = Self::all().iter().find(|dialect| dialect.hosts.iter().any(speaks));
        found.cloned().unwrap_or_default()
    }

    /// The most tokens that an answer of a model may have: the wire wants the number, whether or not the request has one.
    ///
    /// Of a model that is not known it is 8,192, which all take; of a Claude that is not known, 32,000.
    pub fn max_output(&self, model: &str) -> u64 {
        let model = model.to_ascii_lowercase().replace('.', "-");
        let limits = self.max_output.iter().chain(&file().max_output);
        limits.into_iter().find(|limit| model.contains(&limit.model)).map_or(8_192, |limit| limit.tokens)
    }

    /// What a stop reason of the wire means.
    ///
    /// | wire | ours |
    /// |---|---|
    /// | `end_turn`, `stop_sequence` | stop |
    /// | `tool_use` | tool calls |
    /// | `max_tokens`, `model_context_window_exceeded` | length |
    /// | `refusal` | refusal |
    /// | `pause_turn`, `compaction` | pause |
    /// | anything else | unknown |
    ///
    /// `model_context_window_exceeded` is no overflow: the request did fit, and the answer was cut where the window ended.
    /// `compaction` comes where the provider was asked to pause behind its own summary.
    pub fn finish_reason(&self, raw: &str) -> FinishReason {
        match raw {
            "end_turn" | "stop_sequence" => FinishReason::Stop,
            "tool_use" => FinishReason::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
            "refusal" => FinishReason::Refusal,
            "pause_turn" | "compaction" => FinishReason::Pause,
            _ => FinishReason::Unknown,
        }
    }
}

//! What differs between those who speak Chat Completions: dialects, as data.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use settled_provider_api::FinishReason;

/// How one server speaks Chat Completions.
///
/// The decoder reads every dialect by default; what a profile says is what cannot be seen from the bytes, and how requests are written.
/// [`Dialect::named`] gives the profiles that come with this crate, [`Dialect::of_url`] the one of a host; one of your own is read from JSON in which every field but `name` may be left out.
///
/// ```
/// use settled_provider_openai::chat::Dialect;
///
/// assert_eq!(Dialect::of_url("https://api.groq.com/openai/v1").name, "groq");
/// assert_eq!(Dialect::of_url("http://127.0.0.1:8080/v1").name, "compatible");
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
    /// Which fields of a delta carry reasoning; the first that has some counts, since some servers repeat it in another.
    pub reasoning: Vec<ReasoningField>,
    /// How reasoning goes back.
    pub reasoning_back: ReasoningBack,
    /// Whether the count of completion tokens has those of reasoning in it.
    pub reasoning_tokens: ReasoningTokens,
    /// The field that limits the answer.
    pub max_output: MaxOutput,
    /// Whether usage must be asked for.
    pub stream_usage: StreamUsage,
    /// The field that seeds sampling.
    pub seed: String,
    /// The word that requires a call.
    pub required: String,
    /// How the effort of reasoning is asked for.
    pub effort: Effort,
    /// The field for a cache key, which is the session's id; none where `None`.
    pub cache_key: Option<String>,
    /// Whether `[DONE]` is the finish of a server that never sends a reason.
    pub marker_finishes: bool,
    /// Finish reasons beyond the common ones.
    pub finish: BTreeMap<String, FinishReason>,
}

/// A field of a delta that carries reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasoningField {
    /// `reasoning_content`, a text.
    ReasoningContent,
    /// `reasoning`, a text.
    Reasoning,
    /// The texts in `reasoning_details`.
    ReasoningDetails,
}

/// How reasoning goes back to the model it came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasoningBack {
    /// Not at all: the wire has no place for it.
    #[default]
    None,
    /// In the field `reasoning`.
    Reasoning,
    /// In the field `reasoning_content`, of messages with calls only: others refuse or ignore it.
    ReasoningContentWithCalls,
    /// In `reasoning_details`, as they came, signatures and encrypted ones included.
    ReasoningDetails,
    /// As parts of type `thinking` in front of the content.
    ThinkingParts,
}

/// Whether the count of completion tokens has those of reasoning in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReasoningTokens {
    /// It has, unless the total is the sum of prompt, completion and reasoning tokens.
    #[default]
    ByTotal,
    /// It has.
    Included,
    /// It has not.
    Excluded,
}

/// The field that limits the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MaxOutput {
    /// `max_tokens`, which all but the newest models of OpenAI know.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

/// Whether usage must be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StreamUsage {
    /// With `stream_options.include_usage`.
    #[default]
    Asked,
    /// It comes unasked, and asking may be refused.
    Unasked,
}

/// How the effort of reasoning is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Effort {
    /// `reasoning_effort`.
    #[default]
    ReasoningEffort,
    /// `reasoning.effort`.
    ReasoningObject,
}

impl Default for Dialect {
    /// The common ground, for any compatible server.
    fn default() -> Self {
        Self {
            name: "compatible".to_owned(),
            hosts: Vec::new(),
            key_header: None,
            reasoning: vec![
                ReasoningField::ReasoningContent,
                ReasoningField::Reasoning,
                ReasoningField::ReasoningDetails,
            ],
            reasoning_back: ReasoningBack::None,
            reasoning_tokens: ReasoningTokens::ByTotal,
            max_output: MaxOutput::MaxTokens,
            stream_usage: StreamUsage::Asked,
            seed: "seed".to_owned(),
            required: "required".to_owned(),
            effort: Effort::ReasoningEffort,
            cache_key: None,
            marker_finishes: false,
            finish: BTreeMap::new(),
        }
    }
}

impl Dialect {
    /// The dialects that come with this crate.
    pub fn all() -> &'static [Arc<Self>] {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            #[serde(rename = "version")]
            _version: u32,
            dialects: Vec<Arc<Dialect>>,
        }
        static ALL: OnceLock<Vec<Arc<Dialect>>> = OnceLock::new();
        ALL.get_or_init(|| {
            let file = serde_json::from_str::<File>(include_str!("dialects.json"));
            #[expect(clippy::expect_used, reason = "the file is part of the crate, and a test reads it")]
            file.expect("dialects.json is a list of dialects").dialects
        })
    }

    /// The dialect of a name.
    pub fn named(name: &str) -> Option<Arc<Self>> {
        Self::all().iter().find(|dialect| dialect.name == name).cloned()
    }

    /// The dialect of a base URL's host; `compatible` for a host that is not known.
    pub fn of_url(url: &str) -> Arc<Self> {
        let host = crate::host(url);
        let speaks = |known: &String| {
            host.strip_suffix(known.as_str()).is_some_and(|before| before.is_empty() || before.ends_with('.'))
        };
        let found = Self::all().iter().find(|dialect| dialect.hosts.iter().any(speaks));
        found.cloned().unwrap_or_default()
    }

    /// What a finish reason of the wire means.
    ///
    /// | wire | ours |
    /// |---|---|
    /// | `stop`, `end_turn`, `stop_sequence`, `eos`, `eos_token` | stop (a refusal where the answer is one) |
    /// | `tool_calls`, `function_call`, `tool_use` | tool calls |
    /// | `length`, `max_tokens`, `max_output_tokens` | length |
    /// | `content_filter`, `safety` | content filter |
    /// | `refusal` | refusal |
    /// | anything else but the dialect's own words | unknown |
    pub fn finish_reason(&self, raw: &str) -> FinishReason {
        if let Some(reason) = self.finish.get(raw) {
            return *reason;
        }
        match raw {
            "stop" | "end_turn" | "stop_sequence" | "eos" | "eos_token" => FinishReason::Stop,
            "tool_calls" | "function_call" | "tool_use" => FinishReason::ToolCalls,
            "length" | "max_tokens" | "max_output_tokens" => FinishReason::Length,
            "content_filter" | "safety" => FinishReason::ContentFilter,
            "refusal" => FinishReason::Refusal,
            _ => FinishReason::Unknown,
        }
    }
}

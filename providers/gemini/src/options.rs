//! What differs between the servers, and between models: data.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use settled_provider_api::FinishReason;

/// How one server speaks Gemini.
///
/// The decoder reads both servers' bodies; what a profile says is how requests are written and where they go.
/// [`Dialect::named`] gives the profiles that come with this crate (`gemini`, the Developer API, and `vertex`), [`Dialect::of_url`] the one of a host; one of your own is read from JSON in which every field may be left out.
///
/// ```
/// use settled_provider_gemini::Dialect;
///
/// assert_eq!(Dialect::of_url("https://europe-west1-aiplatform.googleapis.com/v1").name, "vertex");
/// assert_eq!(Dialect::of_url("http://127.0.0.1:8080").name, "gemini");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Dialect {
    /// Its name; the classifier of errors has rules for it.
    pub name: String,
    /// The hosts that speak it; a host matches with all names before its own, and with a region in front of it.
    pub hosts: Vec<String>,
    /// The header that has the key alone; `Authorization: Bearer` where `None`.
    pub key_header: Option<String>,
    /// The path of the models under the base URL.
    pub collection: String,
    /// Where the tier of service is asked for.
    pub tier: Tier,
    /// What is known of models; the first rule that fits a model's name holds.
    pub models: Vec<ModelRule>,
    /// Finish reasons beyond the common ones.
    pub finish: BTreeMap<String, FinishReason>,
}

/// Where the tier of service is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Tier {
    /// In the body's field `serviceTier`.
    #[default]
    Body,
    /// In a header.
    Header(String),
}

/// What is known of the models of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ModelRule {
    /// How the names begin; every name does with an empty text.
    pub prefix: String,
    /// What stands for a thought signature that is not there: such models refuse a call without one.
    ///
    /// It is Google's own word for a call that the model did not make: one that another model made, or one of an answer that failed.
    pub missing_signature: Option<String>,
    /// Whether a function's response may carry media.
    pub media_in_results: MediaInResults,
}

/// Whether a function's response may carry media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MediaInResults {
    /// It may not: media follow in a content of the user's.
    #[default]
    Behind,
    /// It may.
    Inside,
}

impl Default for Dialect {
    /// The Developer API's.
    fn default() -> Self {
        Self {
            name: "gemini".to_owned(),
            hosts: Vec::new(),
            key_header: Some("x-goog-api-key".to_owned()),
            collection: "models".to_owned(),
            tier: Tier::Body,
            models: Profiles::read().models.clone(),
            finish: BTreeMap::new(),
        }
    }
}

/// The file of profiles.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Profiles {
    #[serde(rename = "version")]
    _version: u32,
    models: Vec<ModelRule>,
    dialects: Vec<serde_json::Value>,
}

impl Profiles {
    fn read() -> &'static Self {
        static READ: OnceLock<Profiles> = OnceLock::new();
        READ.get_or_init(|| {
            let file = serde_json::from_str(include_str!("dialects.json"));
            #[expect(clippy::expect_used, reason = "the file is part of the crate, and a test reads it")]
            file.expect("dialects.json is a file of profiles")
        })
    }
}

impl Dialect {
    /// The dialects that come with this crate.
    pub fn all() -> &'static [Arc<Self>] {
        static ALL: OnceLock<Vec<Arc<Dialect>>> = OnceLock::new();
        ALL.get_or_init(|| {
            let dialects = Profiles::read().dialects.iter().map(Arc::<Self>::deserialize);
            #[expect(clippy::expect_used, reason = "the file is part of the crate, and a test reads it")]
            dialects.collect::<Result<_, _>>().expect("dialects.json has dialects")
        })
    }

    /// The dialect of a name.
    pub fn named(name: &str) -> Option<Arc<Self>> {
        Self::all().iter().find(|dialect| dialect.name == name).cloned()
    }

    /// The dialect of a base URL's host; `gemini` for a host that is not known.
    pub fn of_url(url: &str) -> Arc<Self> {
        let behind_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
        let authority = behind_scheme.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let host = host.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let speaks = |known: &String| {
            host.strip_suffix(known.as_str()).is_some_and(|before| before.is_empty() || before.ends_with(['.', '-']))
        };
        let found = Self::all().iter().find(|dialect| dialect.hosts.iter().any(speaks));
        found.cloned().unwrap_or_default()
    }

    /// What a finish reason of the wire means, in an answer that has a call of ours, or none.
    ///
    /// | wire | ours |
    /// |---|---|
    /// | `STOP` | tool calls where the answer has a call of ours: the wire has no reason of its own for it; else stop |
    /// | `MAX_TOKENS` | length |
    /// | `SAFETY`, `RECITATION`, `BLOCKLIST`, `PROHIBITED_CONTENT`, `SPII`, `LANGUAGE`, `MODEL_ARMOR`, `IMAGE_SAFETY`, `IMAGE_PROHIBITED_CONTENT`, `IMAGE_RECITATION` | content filter |
    /// | `MALFORMED_FUNCTION_CALL`, `UNEXPECTED_TOOL_CALL`, `TOO_MANY_TOOL_CALLS`, `MISSING_THOUGHT_SIGNATURE`, `MALFORMED_RESPONSE`, `NO_IMAGE`, `IMAGE_OTHER`, `OTHER`, `FINISH_REASON_UNSPECIFIED`, anything else but the dialect's own words | unknown: the answer is not complete, and nothing says that it was refused |
    ///
    /// A prompt that is blocked has no finish reason: any `promptFeedback.blockReason` is a content filter.
    pub fn finish_reason(&self, raw: &str, calls: usize) -> FinishReason {
        if let Some(reason) = self.finish.get(raw) {
            return *reason;
        }
        match raw {
            "STOP" if calls > 0 => FinishReason::ToolCalls,
            "STOP" => FinishReason::Stop,
            "MAX_TOKENS" => FinishReason::Length,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "LANGUAGE"
            | "MODEL_ARMOR"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION" => FinishReason::ContentFilter,
            _ => FinishReason::Unknown,
        }
    }

    /// What is known of a model.
    pub(crate) fn model(&self, name: &str) -> ModelRule {
        let name = name.rsplit('/').next().unwrap_or(name);
        self.models.iter().find(|rule| name.starts_with(&rule.prefix)).cloned().unwrap_or_default()
    }
}

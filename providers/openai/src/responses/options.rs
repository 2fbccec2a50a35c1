//! What differs between those who speak the Responses API: dialects, as data.

use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::Value;
use settled_provider_api::FinishReason;

/// How one server speaks the Responses API.
///
/// The decoder reads every dialect; what a profile says is what cannot be seen from the bytes, and how requests are written.
/// [`Dialect::named`] gives the profiles that come with this crate, [`Dialect::of_url`] the one of a host; one of your own is read from JSON in which every field but `name` may be left out.
///
/// ```
/// use settled_provider_openai::responses::Dialect;
///
/// assert_eq!(Dialect::of_url("https://api.openai.com/v1").name, "openai");
/// assert_eq!(Dialect::of_url("https://chatgpt.com/backend-api/codex").name, "chatgpt");
/// assert_eq!(Dialect::of_url("http://127.0.0.1:1234/v1").name, "compatible");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Dialect {
    /// Its name; the classifier of errors may have rules for it.
    pub name: String,
    /// The hosts that speak it; a host matches with all names before its own.
    pub hosts: Vec<String>,
    /// The header that has the key alone; `Authorization: Bearer` where `None`.
    pub key_header: Option<String>,
    /// Whether the provider is to keep responses; nothing is said where `None`.
    pub store: Option<bool>,
    /// What a response is to have in it beside the usual.
    pub include: Vec<String>,
    /// How the names of models begin that do not reason: for them, encrypted reasoning and summaries are not asked for, since they refuse that.
    pub plain_models: Vec<String>,
    /// The form of the summary of reasoning that is asked for; none where `None`.
    pub reasoning_summary: Option<String>,
    /// Whether the ids of items go back.
    pub item_ids: ItemIds,
    /// The role of a system message in the middle of the history.
    pub system_role: String,
    /// The field for a cache key, which is the session's id; none where `None`.
    pub cache_key: Option<String>,
    /// Fields that the server refuses: an option that needs one is `unsupported`, and the limit of the answer is left out.
    pub refused: Vec<String>,
    /// The types of calls that are for the client to run unless an item with their output follows.
    pub client_run: Vec<String>,
    /// Tools that the provider runs itself: their definitions, as the wire has them; offered with each request, in front of the request's own.
    pub hosted_tools: Vec<Value>,
}

/// Whether the ids of items go back to where they came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ItemIds {
    /// They do, where everything goes back that they are linked with.
    #[default]
    Sent,
    /// They do not: for servers whose ids are of no use, or change with every event.
    LeftOut,
}

impl Default for Dialect {
    /// The common ground, for any compatible server.
    fn default() -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            name: "compatible".to_owned(),
            hosts: Vec::new(),
            key_header: None,
            store: Some(false),
            include: owned(&["reasoning.encrypted_content"]),
            plain_models: owned(&["gpt-3.5", "gpt-4", "chatgpt-4o", "gpt-5-chat"]),
            reasoning_summary: None,
            item_ids: ItemIds::Sent,
            system_role: "system".to_owned(),
            cache_key: None,
            refused: Vec::new(),
            client_run: owned(&[
                "apply_patch_call",
                "computer_call",
                "custom_tool_call",
                "local_shell_call",
                "mcp_approval_request",
                "shell_call",
                "tool_search_call",
            ]),
            hosted_tools: Vec::new(),
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

    /// Whether a model may reason, as far as its name says; what stands in front of a slash is not part of it.
    pub fn reasons(&self, model: &str) -> bool {
        let name = model.rsplit('/').next().unwrap_or_default();
        !self.plain_models.iter().any(|plain| name.starts_with(plain.as_str()))
    }

    /// What the end of a response means: its raw word is the status, and `incomplete:` with the reason.
    ///
    /// | wire | ours |
    /// |---|---|
    /// | `completed` | tool calls where there are any of ours, else stop |
    /// | `incomplete:max_output_tokens`, `incomplete:max_tokens`, `incomplete:length` | length |
    /// | `incomplete:content_filter` | content filter |
    /// | any of these, where the answer has a refusal in it | refusal |
    /// | any other | unknown |
    ///
    /// `failed` and `cancelled` are errors; a response that is still `queued` or `in_progress` has no finish.
    pub fn finish_reason(&self, raw: &str) -> FinishReason {
        match raw {
            "completed" => FinishReason::Stop,
            "incomplete:max_output_tokens" | "incomplete:max_tokens" | "incomplete:length" => FinishReason::Length,
            "incomplete:content_filter" => FinishReason::ContentFilter,
            _ => FinishReason::Unknown,
        }
    }
}

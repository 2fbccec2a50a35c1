//! What a run is made of: the model and its provider, the tools, the policy, the runner.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use clap::ValueEnum;
use settled_ledger::SessionFold;
use settled_provider_api::{
    Credentials, ErrorClass, ModelInfo, ModelRef, Provider, ProviderError, ProviderStream, Request, Secret,
};
use settled_provider_openai::chat::OpenAiChat;
use settled_runner::{Agent, Builder, Runner, Settings};
use settled_tool_files::Files;
use settled_tool_shell::Shell;
use settled_tools_api::{Decision, Policy, PolicyCall, Toolbox};

use crate::args::{Run, ToolSet, Wire};
use crate::exit::Failure;

/// Where OpenAI is.
const OPENAI: &str = "https://api.openai.com/v1";

/// The model that is asked where nobody names one.
const MODEL: &str = "gpt-4.1-mini";

/// The variable that has the key.
const KEY: &str = "OPENAI_API_KEY";

/// The agent of sessions that are made here.
const AGENT: &str = "cli";

/// What a session is made with and remembers, as tags.
const TAGS: [&str; 4] = ["base_url", "tools", "folder", "ask"];

/// How long another process waits for the sessions of one that died, where it cannot know that it did.
///
/// Short: a person waits.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// How long a tool may go on after it was cancelled.
const GRACE: Duration = Duration::from_secs(2);

/// Everything that is known about a run before it begins.
#[derive(Debug)]
pub(crate) struct Wiring {
    /// The model to ask.
    pub(crate) model: ModelRef,
    /// The model that the session asks at present, if it is another.
    pub(crate) model_before: Option<ModelRef>,
    /// What the session is made with.
    pub(crate) tags: BTreeMap<String, String>,
    agent: String,
    system: Option<String>,
    base_url: String,
    tools: BTreeSet<ToolSet>,
    folder: PathBuf,
    ask: BTreeSet<String>,
    retries: u32,
}

impl Wiring {
    /// What the flags say, else what the session remembers, else what the environment says.
    ///
    /// `fold` is that of the session, or of no events.
    pub(crate) fn new(args: &Run, fold: &SessionFold) -> Result<Self, Failure> {
        let remembered = |tag: &str| fold.tags.get(tag).filter(|text| !text.is_empty()).cloned();
        let from_env = |name: &str| env::var(name).ok().filter(|text| !text.trim().is_empty());
        let Wire::OpenaiChat = args.provider;
        let provider = "openai-chat";

        let base_url = args.base_url.clone().or_else(|| remembered("base_url")).or_else(|| from_env("OPENAI_BASE_URL"));
        let base_url = base_url.unwrap_or_else(|| OPENAI.to_owned());
        let local = is_loopback(&base_url)?;
        if !local && from_env(KEY).is_none() {
            return Err(Failure::usage(format!(
                "there is no key: set {KEY}, or give the --base-url of a server on this machine, which needs none"
            )));
        }

        let chosen = args.model.as_deref().map(|model| ModelRef::new(provider, model));
        let fresh = || ModelRef::new(provider, from_env("SETTLED_MODEL").unwrap_or_else(|| MODEL.to_owned()));
        let model = chosen.or_else(|| fold.model.clone()).unwrap_or_else(fresh);
        let model_before = fold.model.clone().filter(|before| *before != model);

        let tools = match (&args.tools, remembered("tools")) {
            (Some(tools), _) => tools.iter().copied().collect(),
            (None, Some(names)) => names.split(',').filter_map(|name| ToolSet::from_str(name, false).ok()).collect(),
            (None, None) => BTreeSet::new(),
        };
        let mut tools: BTreeSet<ToolSet> = tools;
        tools.remove(&ToolSet::None);
        let folder = args.folder.clone().or_else(|| remembered("folder").map(PathBuf::from));
        let folder = folder.unwrap_or_else(|| PathBuf::from("."));
        let folder = folder.canonicalize().map_err(|error| {
            let why = match error.kind() {
                std::io::ErrorKind::NotFound => "it does not exist".to_owned(),
                _ => error.to_string(),
            };
            Failure::usage(format!("`{}` cannot be worked in: {why}; give another with --folder", folder.display()))
        })?;
        let ask = match (&args.ask, remembered("ask")) {
            (Some(names), _) => names.iter().cloned().collect(),
            (None, Some(names)) => names.split(',').map(str::to_owned).collect(),
            (None, None) => BTreeSet::new(),
        };
        let ask: BTreeSet<String> = ask.into_iter().filter(|name| name != "none").collect();

        let names: Vec<_> = tools.iter().filter_map(ToolSet::to_possible_value).collect();
        let names: Vec<&str> = names.iter().map(clap::builder::PossibleValue::get_name).collect();
        let asked: Vec<&str> = ask.iter().map(String::as_str).collect();
        // A URL may carry a secret, before an `@` or behind a `?`: such a one is not kept.
        let kept_url = if base_url.contains(['@', '?']) { "" } else { &*base_url };
        let values = [kept_url, &names.join(","), &folder.to_string_lossy(), &asked.join(",")].map(str::to_owned);
        let tags = TAGS.map(str::to_owned).into_iter().zip(values).filter(|(_, value)| !value.is_empty()).collect();
        let agent = if fold.agent.is_empty() { AGENT.to_owned() } else { fold.agent.clone() };
        let (system, retries) = (args.system.clone(), args.retries);
        Ok(Self { model, model_before, tags, agent, system, base_url, tools, folder, ask, retries })
    }

    /// A runner of these parts, but for its store and worker.
    pub(crate) fn runner(&self) -> Result<Builder, Failure> {
        let chat = OpenAiChat::new(&*self.base_url, Arc::new(EnvKey));
        let chat = chat.map_err(|error| Failure::failed(error.to_string()))?;
        let provider: Arc<dyn Provider> = Arc::new(FirstContact { provider: chat, reached: AtomicBool::new(false) });
        let mut toolbox = Toolbox::new();
        let mut agent = Agent::new(&*self.agent);
        if let Some(system) = &self.system {
            agent = agent.system(system);
        }
        if !self.tools.is_empty() {
            agent = agent.system(format!("Your tools work in the folder {}.", self.folder.display()));
        }
        let unusable = |error: &dyn std::error::Error| Failure::usage(format!("{error}; give another with --folder"));
        for tools in &self.tools {
            toolbox = match tools {
                ToolSet::Files => toolbox.with(Files::new(&self.folder).map_err(|error| unusable(&error))?),
                // One command at a time, and none beside a change of files: each sees what the one before has done.
                ToolSet::Shell => {
                    let shell = Shell::new(&self.folder).map_err(|error| unusable(&error))?;
                    toolbox.with(shell.exclusive().without_env(KEY))
                }
                ToolSet::None => toolbox,
            };
        }
        let mut settings = Settings::default();
        settings.retry.max = self.retries;
        settings.lease = LEASE;
        settings.cancel_grace = GRACE;
        let mut builder = Runner::builder().shared_model(self.model.clone(), Arc::clone(&provider), ModelInfo::new());
        if let Some(before) = &self.model_before {
            builder = builder.shared_model(before.clone(), provider, ModelInfo::new());
        }
        Ok(builder.tools(toolbox).agent(agent).policy(AskFor(self.ask.clone())).settings(settings))
    }
}

/// Whether a base URL is that of a server on this machine.
fn is_loopback(base_url: &str) -> Result<bool, Failure> {
    let rest = base_url.strip_prefix("http://").or_else(|| base_url.strip_prefix("https://"));
    let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
        return Err(Failure::usage(format!("`{base_url}` is no base URL: it must begin with http:// or https://")));
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let host = match host.strip_prefix('[').and_then(|host| host.split(']').next()) {
        Some(address) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    Ok(address || host == "localhost" || host.ends_with(".localhost"))
}

/// The key of the environment, asked anew for each request.
#[derive(Debug)]
struct EnvKey;

#[async_trait]
impl Credentials for EnvKey {
    async fn key(&self, _: &str) -> Result<Option<Secret>, ProviderError> {
        Ok(env::var(KEY).ok().filter(|key| !key.trim().is_empty()).map(|key| Secret::new(key.trim())))
    }
}

/// A provider that does not try again to reach a server that was never reached: an address that is wrong stays wrong.
struct FirstContact {
    provider: OpenAiChat,
    reached: AtomicBool,
}

#[async_trait]
impl Provider for FirstContact {
    async fn stream(&self, request: Arc<Request>) -> Result<ProviderStream, ProviderError> {
        let opened = self.provider.stream(request).await;
        let missed = |error: &ProviderError| {
            let missed = ["refuses connections", "has no address", "no connection to"];
            error.class == ErrorClass::Transport && missed.iter().any(|words| error.message.contains(words))
        };
        match opened {
            Err(error) if missed(&error) && !self.reached.load(Ordering::Relaxed) => Err(error.should_retry(false)),
            opened => {
                self.reached.store(true, Ordering::Relaxed);
                opened
            }
        }
    }
}

/// Asks a person before calls of some tools, or of `all`.
#[derive(Debug)]
struct AskFor(BTreeSet<String>);

#[async_trait]
impl Policy for AskFor {
    async fn decide(&self, call: &PolicyCall) -> Decision {
        if self.0.contains(&call.name) || self.0.contains("all") {
            Decision::Ask(format!("Run {} with {}?", call.name, call.input))
        } else {
            Decision::Allow
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_this_machine_needs_no_key() {
        let check = |url: &str, local: Option<bool>| assert_eq!(is_loopback(url).ok(), local, "{url}");
        check("http://127.0.0.1:8080/v1", Some(true));
        check("http://127.9.9.9", Some(true));
        check("http://[::1]:8080/v1", Some(true));
        check("http://localhost/v1", Some(true));
        check("https://api.openai.com/v1", Some(false));
        check("http://127.0.0.1.example.com/v1", Some(false));
        check("http://user:127.0.0.1@example.com", Some(false));
        check("http://10.0.0.1:8080", Some(false));
        check("127.0.0.1:8080", None);
        check("http://", None);
    }
}

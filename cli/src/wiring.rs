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
use settled_provider_anthropic::Anthropic;
use settled_provider_api::{
    Credentials, ErrorClass, ModelInfo, ModelRef, Provider, ProviderError, ProviderStream, Request, Secret,
};
use settled_provider_gemini::Gemini;
use settled_provider_openai::chat::OpenAiChat;
use settled_provider_openai::responses::OpenAiResponses;
use settled_runner::{Agent, Builder, KnownSecrets, Runner, Settings};
use settled_tool_files::Files;
use settled_tool_shell::Shell;
use settled_tools_api::{Decision, Policy, PolicyCall, ToolExecutor, Toolbox};

use crate::args::{Run, ToolSet, Wire};
use crate::exit::Failure;

/// What is known about who speaks a wire.
#[derive(Debug)]
struct Vendor {
    wire: Wire,
    /// The provider in the name of a model: `openai-chat/gpt-4.1-mini`.
    name: &'static str,
    base_url: &'static str,
    /// The variable that has another base URL.
    base_url_from: &'static str,
    /// The variables that may have the key; the first that does counts.
    keys_from: &'static [&'static str],
    /// The model that is asked where nobody names one.
    model: &'static str,
}

/// Who can be asked; the first where nobody says.
const VENDORS: [Vendor; 4] = [
    Vendor {
        wire: Wire::OpenaiChat,
        name: "openai-chat",
        base_url: "https://api.openai.com/v1",
        base_url_from: "OPENAI_BASE_URL",
        keys_from: &["OPENAI_API_KEY"],
        model: "gpt-4.1-mini",
    },
    Vendor {
        wire: Wire::Openai,
        name: "openai",
        base_url: "https://api.openai.com/v1",
        base_url_from: "OPENAI_BASE_URL",
        keys_from: &["OPENAI_API_KEY"],
        model: "gpt-4.1-mini",
    },
    Vendor {
        wire: Wire::Anthropic,
        name: "anthropic",
        base_url: "https://api.anthropic.com",
        base_url_from: "ANTHROPIC_BASE_URL",
        keys_from: &["ANTHROPIC_API_KEY"],
        model: "claude-haiku-4-5",
    },
    Vendor {
        wire: Wire::Gemini,
        name: "gemini",
        base_url: Gemini::DEVELOPER_API,
        base_url_from: "GOOGLE_GEMINI_BASE_URL",
        keys_from: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        model: "gemini-2.5-flash",
    },
];

impl Vendor {
    /// The vendor that asks models of a provider; a model of another program's is asked for as most servers take it.
    fn of(model: &ModelRef) -> &'static Self {
        VENDORS.iter().find(|vendor| *vendor.name == *model.provider).unwrap_or(&VENDORS[0])
    }

    fn key(&self) -> Option<String> {
        self.keys_from.iter().find_map(|name| from_env(name))
    }
}

/// The agent of sessions that are made here.
const AGENT: &str = "cli";

/// What a session is made with and remembers, as tags.
const TAGS: [&str; 6] = ["provider", "base_url", "tools", "folder", "ask", "system"];

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
    /// The models that the session may ask before it comes to that one, and where.
    others: Vec<(ModelRef, Endpoint)>,
    /// Whether the session is to go on with another model than it has.
    pub(crate) switches: bool,
    /// What the session is made with.
    pub(crate) tags: BTreeMap<String, String>,
    agent: String,
    system: Option<String>,
    asked: Endpoint,
    tools: BTreeSet<ToolSet>,
    folder: PathBuf,
    ask: BTreeSet<String>,
    retries: u32,
}

impl Wiring {
    /// What the flags say, else what the session remembers, else what the environment says.
    ///
    /// `fold` is that of the session, or of no events; `switches` are the models that it is still to go on with, in order.
    pub(crate) fn new(args: &Run, fold: &SessionFold, switches: &[ModelRef]) -> Result<Self, Failure> {
        let remembered = |tag: &str| fold.tags.get(tag).filter(|text| !text.is_empty()).cloned();
        let known: Vec<&ModelRef> = fold.model.iter().chain(switches).collect();
        let present = known.last().copied();
        let chosen = args.provider.and_then(|wire| VENDORS.iter().find(|vendor| vendor.wire == wire));
        let vendor = chosen.or_else(|| present.map(Vendor::of)).unwrap_or(&VENDORS[0]);

        // The URL that a session remembers is that of the provider it was made with.
        let made_with = remembered("provider").unwrap_or_else(|| VENDORS[0].name.to_owned());
        let endpoint = |of: &'static Vendor| {
            let given = args.base_url.clone().filter(|_| of.wire == vendor.wire);
            let remembered = remembered("base_url").filter(|_| made_with == of.name);
            let base_url = given.or(remembered).or_else(|| from_env(of.base_url_from));
            Endpoint { vendor: of, base_url: base_url.unwrap_or_else(|| of.base_url.to_owned()) }
        };
        let asked = endpoint(vendor);
        if !is_loopback(&asked.base_url)? && vendor.key().is_none() {
            return Err(Failure::usage(format!(
                "there is no key: set {}, or give the --base-url of a server on this machine, which needs none",
                vendor.keys_from[0]
            )));
        }

        let fresh = || from_env("SETTLED_MODEL").unwrap_or_else(|| vendor.model.to_owned());
        let model = match (&args.model, present) {
            (Some(model), _) if model.trim().is_empty() => {
                return Err(Failure::usage("the name of the --model is empty".to_owned()));
            }
            (Some(model), _) => ModelRef::new(vendor.name, &**model),
            (None, Some(model)) if Vendor::of(model).wire == vendor.wire => model.clone(),
            (None, _) => ModelRef::new(vendor.name, fresh()),
        };
        let switches = present.is_some_and(|present| *present != model);
        let others: BTreeSet<&ModelRef> = known.into_iter().filter(|known| **known != model).collect();
        let others = others.into_iter().map(|other| (other.clone(), endpoint(Vendor::of(other)))).collect();

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
        let unusable = |error: &dyn std::error::Error| Failure::usage(format!("{error}; give another with --folder"));
        let mut tools_there = Files::new(&folder).map_err(|error| unusable(&error))?.definitions();
        tools_there.extend(Shell::new(&folder).map_err(|error| unusable(&error))?.definitions());
        let is_there = |name: &String| name == "all" || tools_there.iter().any(|tool| tool.name == **name);
        if let Some(unknown) = ask.iter().find(|name| !is_there(name)) {
            let there: Vec<&str> = tools_there.iter().map(|tool| &*tool.name).collect();
            let there = there.join(", ");
            return Err(Failure::usage(format!(
                "there is no tool `{unknown}` to --ask for: there are {there}; or all, or none"
            )));
        }

        let names: Vec<_> = tools.iter().filter_map(ToolSet::to_possible_value).collect();
        let names: Vec<&str> = names.iter().map(clap::builder::PossibleValue::get_name).collect();
        let to_ask: Vec<&str> = ask.iter().map(String::as_str).collect();
        // A URL may carry a secret, before an `@` or behind a `?`: such a one is not kept.
        let kept_url = if asked.base_url.contains(['@', '?']) { "" } else { &*asked.base_url };
        let system = args.system.clone().or_else(|| remembered("system"));
        let values = [
            vendor.name,
            kept_url,
            &names.join(","),
            &folder.to_string_lossy(),
            &to_ask.join(","),
            system.as_deref().unwrap_or_default(),
        ];
        let values = values.map(str::to_owned);
        let tags = TAGS.map(str::to_owned).into_iter().zip(values).filter(|(_, value)| !value.is_empty()).collect();
        let agent = if fold.agent.is_empty() { AGENT.to_owned() } else { fold.agent.clone() };
        let retries = args.retries;
        Ok(Self { model, others, switches, tags, agent, system, asked, tools, folder, ask, retries })
    }

    /// The variable that should have the key.
    pub(crate) fn key_from(&self) -> &'static str {
        self.asked.vendor.keys_from[0]
    }

    /// A runner of these parts, but for its store and worker.
    pub(crate) fn runner(&self) -> Result<Builder, Failure> {
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
                    let shell = Shell::new(&self.folder).map_err(|error| unusable(&error))?.exclusive();
                    let keys = VENDORS.iter().flat_map(|vendor| vendor.keys_from);
                    toolbox.with(keys.fold(shell, |shell, key| shell.without_env(*key)))
                }
                ToolSet::None => toolbox,
            };
        }
        let mut settings = Settings::default();
        settings.retry.max = self.retries;
        settings.lease = LEASE;
        settings.cancel_grace = GRACE;
        let mut builder = Runner::builder().model(self.model.clone(), self.asked.open()?, ModelInfo::new());
        for (model, endpoint) in &self.others {
            builder = builder.model(model.clone(), endpoint.open()?, ModelInfo::new());
        }
        // A key that somebody pastes, or that a tool prints, is not kept.
        let keys = VENDORS.iter().flat_map(|vendor| vendor.keys_from).filter_map(|name| from_env(name));
        let keys = KnownSecrets::new(keys.map(|key| key.trim().to_owned()));
        Ok(builder.tools(toolbox).agent(agent).policy(AskFor(self.ask.clone())).redactor(keys).settings(settings))
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

/// Who is asked, and where.
#[derive(Debug)]
struct Endpoint {
    vendor: &'static Vendor,
    base_url: String,
}

impl Endpoint {
    fn open(&self) -> Result<FirstContact, Failure> {
        let (url, keys) = (&*self.base_url, Arc::new(EnvKey(self.vendor)));
        let open = || -> Result<Box<dyn Provider>, ProviderError> {
            Ok(match self.vendor.wire {
                Wire::OpenaiChat => Box::new(OpenAiChat::new(url, keys)?),
                Wire::Openai => Box::new(OpenAiResponses::new(url, keys)?),
                Wire::Anthropic => Box::new(Anthropic::new(url, keys)?),
                Wire::Gemini => Box::new(Gemini::new(url, keys)?),
            })
        };
        let provider = open().map_err(|error| Failure::failed(error.to_string()))?;
        Ok(FirstContact { provider, reached: AtomicBool::new(false) })
    }
}

fn from_env(name: &str) -> Option<String> {
    env::var(name).ok().filter(|text| !text.trim().is_empty())
}

/// A vendor's key of the environment, asked anew for each request.
#[derive(Debug)]
struct EnvKey(&'static Vendor);

#[async_trait]
impl Credentials for EnvKey {
    async fn key(&self, _: &str) -> Result<Option<Secret>, ProviderError> {
        Ok(self.0.key().map(|key| Secret::new(key.trim())))
    }
}

/// A provider that does not try again to reach a server that was never reached: an address that is wrong stays wrong.
struct FirstContact {
    provider: Box<dyn Provider>,
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

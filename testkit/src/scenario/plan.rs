//! A scenario as it is run.

use std::sync::Arc;

use serde_json::Value;
use settled_ledger::Delivery;
use settled_provider_api::{ModelInfo, ModelRef};
use settled_runner::{Builder, Settings};
use settled_tools_api::{Policy, ToolDefinition, ToolSource};

use crate::faults::{At, Fault};
use crate::ordeal::Side;
use crate::script::{Script, ScriptedProvider};
use crate::tools::{Permission, ScriptedTools, ToolRun};

/// Everything that a scenario says, but for who plays in it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) why: Option<String>,
    pub(crate) system: Vec<String>,
    /// The models that may be asked; a session starts with the first.
    pub(crate) models: Vec<Model>,
    pub(crate) settings: Settings,
    pub(crate) max_steps: Option<u32>,
    pub(crate) items: Vec<Placed>,
    pub(crate) faults: Vec<(String, StoreFault)>,
    pub(crate) expect: Option<Value>,
    /// What the session is put through besides.
    pub(crate) ordeal: Option<Ordeal>,
}

/// What a session is put through besides what its script says; then only what must never happen is a violation, and at the end the session must be able to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ordeal {
    /// Its process dies once, at the write of this number (from 0), and whatever was under way is taken up again.
    Crash(usize, Side),
    /// Its provider's stream is cut: the script says where.
    Cut,
}

/// Who plays in a scenario, before anybody has begun.
#[derive(Clone, Debug)]
pub(crate) struct Roles {
    pub(crate) tools: Vec<Tool>,
    pub(crate) provider: Script,
}

/// Who plays in a scenario.
pub(crate) struct Cast {
    pub(crate) provider: ScriptedProvider,
    pub(crate) tools: ScriptedTools,
    /// Tools that follow no script.
    pub(crate) others: Option<Arc<dyn ToolSource>>,
    pub(crate) policy: Option<Arc<dyn Policy>>,
    /// What else the runner is made of.
    pub(crate) adjust: Option<Adjust>,
}

/// Adds to a runner what a test wants of it.
pub(crate) type Adjust = Arc<dyn Fn(Builder) -> Builder + Send + Sync>;

impl Roles {
    pub(crate) fn cast(&self) -> Cast {
        let tools = self.tools.iter().fold(ScriptedTools::default(), |tools, tool| {
            tools.define(tool.definition.clone(), tool.permission, tool.runs.clone())
        });
        Cast { provider: self.provider.clone().provider(), tools, others: None, policy: None, adjust: None }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Model {
    pub(crate) id: String,
    pub(crate) info: ModelInfo,
}

impl Default for Model {
    fn default() -> Self {
        Self { id: "model".to_owned(), info: ModelInfo::new() }
    }
}

impl Model {
    pub(crate) fn reference(&self) -> ModelRef {
        ModelRef::new("script", self.id.as_str())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) definition: ToolDefinition,
    pub(crate) permission: Permission,
    pub(crate) runs: Vec<ToolRun>,
}

/// A script item and where it stands in the file.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) place: String,
    pub(crate) item: Item,
}

/// One thing that the driver does.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Prompt { text: String, delivery: Delivery, key: Option<String> },
    Run,
    Start,
    Interrupt,
    Approve(String),
    Decline { call: String, feedback: Option<String> },
    Answer { call: String, text: String },
    Dismiss(String),
    Compact,
    Open(String),
    CancelInput(String),
    Advance(u64),
    Model(Model),
    Crash,
    When { on: Trigger, act: Box<Self> },
}

/// What a `when` waits for.
#[derive(Clone, Debug)]
pub(crate) enum Trigger {
    Event(At),
    Running(String),
    Live { kind: String, nth: u64 },
}

/// What a store does wrong.
#[derive(Clone, Debug)]
pub(crate) enum StoreFault {
    Fail { at: At, then: Fault },
    Delay { millis: u64, at: Option<At> },
    LoseHints,
}

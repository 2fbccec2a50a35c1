//! What every session of a runner shares: models, tools, agents, ports, settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use settled_ledger::store::{FoldCache, Store};
use settled_ledger::{Clock, FailureClass, Ids, StepError};
use settled_provider_api::{ModelInfo, ModelRef, Provider};
use settled_tools_api::{Policy, ToolSource};

use crate::instructions::InstructionSource;
use crate::outputs::{Outputs, Snapshots};
use crate::redaction::Redaction;
use crate::settings::{Agent, Settings};

pub(crate) struct Shop {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) folds: Option<Arc<dyn FoldCache>>,
    pub(crate) models: BTreeMap<ModelRef, Model>,
    pub(crate) agents: BTreeMap<String, Arc<Agent>>,
    pub(crate) first_model: ModelRef,
    pub(crate) first_agent: String,
    pub(crate) tools: Arc<dyn ToolSource>,
    pub(crate) policy: Arc<dyn Policy>,
    pub(crate) outputs: Arc<dyn Outputs>,
    /// By key, in the order in which they stand in a request.
    pub(crate) instructions: Vec<(String, Arc<dyn InstructionSource>)>,
    pub(crate) redaction: Redaction,
    pub(crate) snapshots: Option<Arc<dyn Snapshots>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn Ids>,
    pub(crate) settings: Settings,
}

/// A model, who provides it, and what is known about it.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) info: Arc<ModelInfo>,
}

impl Shop {
    pub(crate) fn model(&self, model: &ModelRef) -> Result<&Model, StepError> {
        self.models.get(model).ok_or_else(|| {
            let known: Vec<String> = self.models.keys().map(ToString::to_string).collect();
            let message = format!("the model `{model}` is not known here; known are: {}", known.join(", "));
            StepError::new(FailureClass::Configuration, message)
        })
    }

    pub(crate) fn agent(&self, agent: &str) -> Result<&Arc<Agent>, StepError> {
        self.agents.get(agent).ok_or_else(|| {
            let known: Vec<&str> = self.agents.keys().map(String::as_str).collect();
            let message = format!("the agent `{agent}` is not known here; known are: {}", known.join(", "));
            StepError::new(FailureClass::Configuration, message)
        })
    }

    /// A number from 0 to 1, for jitter.
    pub(crate) fn draw(&self) -> f64 {
        f64::from((self.ids.next() & 0xffff_ffff) as u32) / f64::from(u32::MAX)
    }
}

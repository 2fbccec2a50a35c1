//! Several sets of tools as one.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{OfferTo, ToolCall, ToolContext, ToolDefinition, ToolError, ToolExecutor, ToolReturn, ToolSource};

/// Several sets of tools, offered to the model as one.
///
/// Where two tools have the same name, the offer fails and names both: which one should run is not ours to guess.
#[derive(Clone, Default)]
pub struct Toolbox {
    sources: Vec<Arc<dyn ToolSource>>,
}

impl Toolbox {
    /// A toolbox without tools.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same toolbox and a fixed set of tools.
    #[must_use]
    pub fn with(self, tools: impl ToolExecutor + 'static) -> Self {
        self.with_shared(Arc::new(tools))
    }

    /// The same toolbox and a fixed set of tools that is used elsewhere too.
    #[must_use]
    pub fn with_shared(mut self, tools: Arc<dyn ToolExecutor>) -> Self {
        self.sources.push(Arc::new(Fixed(tools)));
        self
    }

    /// The same toolbox and a changing set of tools.
    #[must_use]
    pub fn with_source(mut self, source: impl ToolSource + 'static) -> Self {
        self.sources.push(Arc::new(source));
        self
    }
}

impl fmt::Debug for Toolbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toolbox").field("sources", &self.sources.len()).finish()
    }
}

#[async_trait]
impl ToolSource for Toolbox {
    async fn offer(&self, to: &OfferTo) -> Result<Arc<dyn ToolExecutor>, Box<dyn Error + Send + Sync>> {
        let mut offer = Offer { definitions: Vec::new(), by_name: HashMap::new() };
        for source in &self.sources {
            let tools = source.offer(to).await?;
            for definition in tools.definitions() {
                if offer.by_name.insert(definition.name.clone(), Arc::clone(&tools)).is_some() {
                    return Err(
                        format!("two tools are named `{}`: rename one, or leave one out", definition.name).into()
                    );
                }
                offer.definitions.push(definition);
            }
        }
        Ok(Arc::new(offer))
    }
}

/// A fixed set as a source: every offer is the same.
struct Fixed(Arc<dyn ToolExecutor>);

#[async_trait]
impl ToolSource for Fixed {
    async fn offer(&self, _: &OfferTo) -> Result<Arc<dyn ToolExecutor>, Box<dyn Error + Send + Sync>> {
        Ok(Arc::clone(&self.0))
    }
}

/// What the sources offered for one request.
struct Offer {
    definitions: Vec<ToolDefinition>,
    by_name: HashMap<String, Arc<dyn ToolExecutor>>,
}

#[async_trait]
impl ToolExecutor for Offer {
    fn definitions(&self) -> Vec<ToolDefinition> {
        self.definitions.clone()
    }

    async fn execute(&self, call: ToolCall, context: ToolContext) -> Result<ToolReturn, ToolError> {
        match self.by_name.get(&call.name) {
            Some(tools) => tools.execute(call, context).await,
            None => Err(ToolError::failed(format!("no tool is named `{}`", call.name))),
        }
    }
}

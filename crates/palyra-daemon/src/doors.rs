//! What the doors for agents have in common: the engine, how they end, and by which names tools are called.

use crate::ending::Ending;
use palyra_engine::Engine;
use palyra_protocol::{ToolAlias, ToolName};
use std::collections::HashMap;
use std::sync::Arc;

/// What every door works with.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) engine: Engine,
    pub(crate) ending: Ending,
    names: Arc<HashMap<String, ToolName>>,
}

impl Doors {
    pub(crate) fn new(engine: Engine) -> Self {
        let names = engine.catalog().iter().map(|tool| &tool.name);
        let names = names.map(|name| (ToolAlias::of(name).as_str().to_owned(), name.clone())).collect();
        Self { engine, ending: Ending::default(), names: Arc::new(names) }
    }

    /// What a caller calls a tool, as everything behind the doors does. What is no alias stays as it is, also when there is no
    /// such tool: the refusal is recorded like any other.
    pub(crate) fn canonical(&self, text: String) -> String {
        self.names.get(&text).map_or(text, ToString::to_string)
    }
}

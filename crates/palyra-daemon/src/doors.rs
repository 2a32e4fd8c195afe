//! What the doors for agents have in common: the engine, how they end, and by which names tools are called.

use crate::ending::Ending;
use palyra_engine::Engine;

/// What every door works with.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    pub(crate) engine: Engine,
    pub(crate) ending: Ending,
}

impl Doors {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, ending: Ending::default() }
    }

    /// What a caller calls a tool, as everything behind the doors does. What is no alias stays as it is, also when there is no
    /// such tool: the refusal is recorded like any other.
    pub(crate) fn canonical(&self, text: String) -> String {
        self.engine.catalog().by_alias(&text).map_or(text, ToString::to_string)
    }
}

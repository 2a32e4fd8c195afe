//! What a component is, found by validating it and reading its outer imports and exports. Nothing of it runs.

use super::world::{self, WorldFault};
use serde::Serialize;
use std::collections::BTreeSet;
use wasmparser::{Encoding, FuncValidatorAllocations, Parser, Payload, ValidPayload, Validator, WasmFeatures};

const PAGE: u64 = 64 << 10;

/// What a component is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ComponentFacts {
    /// The names of its imports, with their versions.
    pub imports: BTreeSet<String>,
    /// The names of its exports, with their versions.
    pub exports: BTreeSet<String>,
    /// How many core modules it consists of.
    pub core_modules: usize,
    /// The memory that its core modules want at the start, together.
    pub initial_memory_bytes: u64,
    /// Why it does not implement the world of skills; nothing if it does.
    pub world: Option<WorldFault>,
}

/// Why a file is no usable component.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComponentFault {
    /// A core module.
    #[error("it is a core module, not a component")]
    CoreModule,
    /// Not valid WebAssembly.
    #[error("it is not a valid component: {reason} (at byte {at})")]
    Invalid {
        /// Why.
        reason: String,
        /// Where.
        at: usize,
    },
}

impl ComponentFault {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::CoreModule => "component_core_module",
            Self::Invalid { .. } => "component_invalid",
        }
    }
}

/// The proposals that a component may use: what the host's line of wasmtime supports, without threads. A guest with
/// threads could outlive its deadline.
#[must_use]
pub fn features() -> WasmFeatures {
    WasmFeatures::default().difference(WasmFeatures::THREADS)
}

impl ComponentFacts {
    /// Validates a component and reads what it imports and exports.
    ///
    /// # Errors
    /// It is no valid component.
    pub fn read(bytes: &[u8]) -> Result<Self, ComponentFault> {
        let mut walk = Walk::default();
        let mut validator = Validator::new_with_features(features());
        for payload in Parser::new(0).parse_all(bytes) {
            let payload = payload.map_err(|e| invalid(&e))?;
            walk.look(&payload)?;
            match validator.payload(&payload).map_err(|e| invalid(&e))? {
                ValidPayload::Func(function, body) => {
                    let mut function = function.into_validator(std::mem::take(&mut walk.allocations));
                    function.validate(&body).map_err(|e| invalid(&e))?;
                    walk.allocations = function.into_allocations();
                }
                ValidPayload::End(types) if walk.ended => {
                    walk.world = world::check(types.as_ref(), &walk.exports);
                }
                ValidPayload::Ok | ValidPayload::Parser(_) | ValidPayload::End(_) => {}
            }
        }
        Ok(Self {
            imports: walk.imports,
            exports: walk.exports,
            core_modules: walk.core_modules,
            initial_memory_bytes: walk.memory,
            world: walk.world,
        })
    }
}

#[derive(Default)]
struct Walk {
    /// How many modules and components we are inside of.
    depth: usize,
    /// The outermost one has ended.
    ended: bool,
    imports: BTreeSet<String>,
    exports: BTreeSet<String>,
    core_modules: usize,
    memory: u64,
    world: Option<WorldFault>,
    allocations: FuncValidatorAllocations,
}

impl Walk {
    fn look(&mut self, payload: &Payload<'_>) -> Result<(), ComponentFault> {
        match payload {
            Payload::Version { encoding: Encoding::Module, .. } if self.depth == 0 => {
                return Err(ComponentFault::CoreModule);
            }
            Payload::ModuleSection { .. } => {
                self.depth += 1;
                self.core_modules += 1;
            }
            Payload::ComponentSection { .. } => self.depth += 1,
            Payload::End(_) => match self.depth.checked_sub(1) {
                Some(depth) => self.depth = depth,
                None => self.ended = true,
            },
            Payload::MemorySection(memories) => {
                for memory in memories.clone() {
                    let memory = memory.map_err(|e| invalid(&e))?;
                    self.memory = self.memory.saturating_add(memory.initial.saturating_mul(PAGE));
                }
            }
            Payload::ComponentImportSection(imports) if self.depth == 0 => {
                for import in imports.clone() {
                    self.imports.insert(import.map_err(|e| invalid(&e))?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(exports) if self.depth == 0 => {
                for export in exports.clone() {
                    self.exports.insert(export.map_err(|e| invalid(&e))?.name.name.to_owned());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn invalid(error: &wasmparser::BinaryReaderError) -> ComponentFault {
    ComponentFault::Invalid { reason: crate::text::excerpt(error.message()), at: error.offset() }
}

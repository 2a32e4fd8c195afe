//! A component that is loaded: compiled, mapped, its exports found, linked for the grants that use it.

use crate::error::PluginError;
use crate::grant::Interfaces;
use crate::guest::Guest;
use crate::link;
use palyra_protocol::Digest;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use wasmtime::Engine;
use wasmtime::component::{Component, ComponentExportIndex, ComponentType, InstancePre, Lift};

/// What `describe` returns and `invoke` takes and returns.
pub(crate) type DescribeResult = (Vec<RawTool>,);
pub(crate) type InvokeParams<'a> = (&'a str, &'a str);
pub(crate) type InvokeResult = (Result<String, RawToolError>,);

/// A tool, as the component describes it.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lift)]
#[component(record)]
pub(crate) struct RawTool {
    pub(crate) name: String,
    pub(crate) description: String,
    #[component(name = "input-schema")]
    pub(crate) input_schema: String,
    #[component(name = "output-schema")]
    pub(crate) output_schema: Option<String>,
}

/// An error of the tool's own.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lift)]
#[component(record)]
pub(crate) struct RawToolError {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// A loaded component. Cloning the `Arc` around it is all it takes to share it.
pub struct Plugin {
    digest: Digest,
    component: Component,
    describe: ComponentExportIndex,
    invoke: ComponentExportIndex,
    linked: Mutex<HashMap<Interfaces, InstancePre<Guest>>>,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("digest", &self.digest).finish_non_exhaustive()
    }
}

const TOOLS: &str = "palyra:skill/tools@1.";

impl Plugin {
    pub(crate) fn new(digest: Digest, component: Component) -> Result<Self, PluginError> {
        let missing = |export| PluginError::MissingExport { export };
        let engine = component.engine().clone();
        let exports = component.component_type();
        let name = exports.exports(&engine).map(|(name, _)| name).find(|name| name.starts_with(TOOLS));
        let tools = name.and_then(|name| component.get_export_index(None, name));
        let tools = tools.ok_or_else(|| missing("palyra:skill/tools@1.0.0"))?;
        let find = |name| component.get_export_index(Some(&tools), name).ok_or_else(|| missing(name));
        let (describe, invoke) = (find("describe")?, find("invoke")?);
        Ok(Self { digest, component, describe, invoke, linked: Mutex::default() })
    }

    /// The digest of the component's bytes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Every import and export, for whoever wants to show them.
    #[must_use]
    pub fn interface(&self) -> ComponentInterface {
        let (ty, engine) = (self.component.component_type(), self.component.engine());
        ComponentInterface {
            imports: ty.imports(engine).map(|(name, _)| name.to_owned()).collect(),
            exports: ty.exports(engine).map(|(name, _)| name.to_owned()).collect(),
        }
    }

    /// How many bytes of machine code are mapped.
    #[must_use]
    pub fn code_bytes(&self) -> usize {
        self.component.text().len()
    }

    pub(crate) fn describe_export(&self) -> &ComponentExportIndex {
        &self.describe
    }

    pub(crate) fn invoke_export(&self) -> &ComponentExportIndex {
        &self.invoke
    }

    /// The component, linked with these interfaces; done once for each set of them.
    pub(crate) fn linked(&self, engine: &Engine, granted: Interfaces) -> Result<InstancePre<Guest>, PluginError> {
        let mut linked = self.linked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = linked.get(&granted) {
            return Ok(ready.clone());
        }
        link::check_imports(&self.component, engine, granted)?;
        let malformed = |error: wasmtime::Error| PluginError::Malformed { detail: format!("{error:#}") };
        let linker = link::linker(engine, &self.component, granted).map_err(malformed)?;
        let ready = linker.instantiate_pre(&self.component).map_err(malformed)?;
        linked.insert(granted, ready.clone());
        Ok(ready)
    }
}

/// What a component imports and exports.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ComponentInterface {
    /// Its imports, with versions.
    pub imports: Vec<String>,
    /// Its exports, with versions.
    pub exports: Vec<String>,
}

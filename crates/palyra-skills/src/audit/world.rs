//! The world that a component must implement: it exports `palyra:skill/tools` with `describe` and `invoke`.

use crate::constants::{PROTOCOL_MAJOR, WORLD_PACKAGE};
use serde::Serialize;
use std::collections::BTreeSet;
use wasmparser::PrimitiveValType;
use wasmparser::component_types::{
    ComponentDefinedType, ComponentEntityType, ComponentFuncType, ComponentInstanceType, ComponentValType,
};
use wasmparser::types::TypesRef;

const TOOLS: &str = "tools";

/// Whether a function has the type that the world wants.
type Fits = fn(TypesRef<'_>, &ComponentFuncType) -> bool;

/// Why a component does not implement the world of skills.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum WorldFault {
    /// It exports no tools.
    #[error("it does not export `{WORLD_PACKAGE}/{TOOLS}`")]
    NoTools,
    /// It exports the tools of another major version.
    #[error("it exports `{found}`; this version runs `{WORLD_PACKAGE}/{TOOLS}@{PROTOCOL_MAJOR}`")]
    OtherVersion {
        /// What it exports.
        found: String,
    },
    /// A function is missing or has another type.
    #[error("its `{function}` is missing or is not `{expected}`")]
    Function {
        /// The function.
        function: &'static str,
        /// Its type in the world.
        expected: &'static str,
    },
}

/// The interface that an import or export names, without its version.
pub(super) fn interface(name: &str) -> &str {
    name.split('@').next().unwrap_or(name)
}

/// The version that an import or export names.
pub(super) fn version(name: &str) -> Option<semver::Version> {
    name.split_once('@').and_then(|(_, version)| semver::Version::parse(version).ok())
}

/// Holds the exports of a component to the world; nothing if they fit.
pub(super) fn check(types: TypesRef<'_>, exports: &BTreeSet<String>) -> Option<WorldFault> {
    let wanted = format!("{WORLD_PACKAGE}/{TOOLS}");
    let Some(name) = exports.iter().find(|name| interface(name) == wanted) else {
        return Some(WorldFault::NoTools);
    };
    if version(name).is_none_or(|version| version.major != u64::from(PROTOCOL_MAJOR)) {
        return Some(WorldFault::OtherVersion { found: crate::text::excerpt(name) });
    }
    let item = types.component_item_for_export(name).map(|item| item.ty);
    let Some(ComponentEntityType::Instance(instance)) = item else {
        return Some(WorldFault::NoTools);
    };
    let instance = &types[instance];
    let functions: [(&str, &str, Fits); 2] = [
        ("describe", "func() -> list<tool>", is_describe),
        ("invoke", "func(tool: string, input-json: string) -> result<string, tool-error>", is_invoke),
    ];
    functions.into_iter().find_map(|(function, expected, fits)| {
        let found = function_of(types, instance, function);
        (!found.is_some_and(|found| fits(types, found))).then_some(WorldFault::Function { function, expected })
    })
}

fn function_of<'a>(types: TypesRef<'a>, instance: &ComponentInstanceType, name: &str) -> Option<&'a ComponentFuncType> {
    match instance.exports.get(name)?.ty {
        ComponentEntityType::Func(function) => types.get(function),
        _ => None,
    }
}

fn is_describe(types: TypesRef<'_>, function: &ComponentFuncType) -> bool {
    function.params.is_empty()
        && !function.async_
        && matches!(defined(types, function.result), Some(ComponentDefinedType::List { .. }))
}

fn is_invoke(types: TypesRef<'_>, function: &ComponentFuncType) -> bool {
    let result = defined(types, function.result);
    let returns = match result {
        Some(ComponentDefinedType::Result { ok: Some(ok), err: Some(err), .. }) => {
            is_string(types, *ok) && matches!(defined(types, Some(*err)), Some(ComponentDefinedType::Record(_)))
        }
        _ => false,
    };
    function.params.len() == 2
        && function.params.iter().all(|(_, ty)| is_string(types, *ty))
        && returns
        && !function.async_
}

fn defined(types: TypesRef<'_>, value: Option<ComponentValType>) -> Option<&ComponentDefinedType> {
    match value? {
        ComponentValType::Type(id) => types.get(id),
        ComponentValType::Primitive(_) => None,
    }
}

fn is_string(types: TypesRef<'_>, value: ComponentValType) -> bool {
    match value {
        ComponentValType::Primitive(primitive) => primitive == PrimitiveValType::String,
        ComponentValType::Type(id) => {
            matches!(types.get(id), Some(ComponentDefinedType::Primitive(PrimitiveValType::String)))
        }
    }
}

//! A core module becomes a component.
//!
//! Which interfaces the component imports is read from the module: what its code does not use is not there, so a
//! manifest never has to ask for more than the code does. Modules of toolchains that speak WASI's first preview get the
//! adapter that wasmtime publishes.

use crate::error::BuildError;
use crate::world::{Wit, interfaces_of};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};

/// Makes a component for the world of skills out of a core module.
///
/// # Errors
/// When the module does not export what a skill exports, or imports what does not exist.
pub fn component_of(module: &[u8]) -> Result<Vec<u8>, BuildError> {
    let failed = |error: &dyn std::fmt::Display| BuildError::Component(format!("{error:#}"));
    let mut module = module.to_vec();
    let facts = Facts::of(&module)?;
    if !facts.describes_itself {
        let wit = Wit::with_interfaces(&interfaces_of(facts.imports.iter().map(String::as_str)))?;
        embed_component_metadata(&mut module, &wit.resolve, wit.world, StringEncoding::UTF8)
            .map_err(|error| failed(&error))?;
    }
    let mut encoder = ComponentEncoder::default().module(&module).map_err(|error| failed(&error))?.validate(true);
    if facts.imports.iter().any(|import| import == WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME) {
        encoder = encoder
            .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)
            .map_err(|error| failed(&error))?;
    }
    encoder.encode().map_err(|error| failed(&error))
}

/// Makes a component out of WebAssembly text.
///
/// # Errors
/// As for [`component_of`], and when the text is none.
pub fn component_of_text(text: &str) -> Result<Vec<u8>, BuildError> {
    component_of(&parse_text(text)?)
}

/// Reads WebAssembly text, of a module or a component, and changes nothing about it.
///
/// # Errors
/// When the text is none.
pub fn parse_text(text: &str) -> Result<Vec<u8>, BuildError> {
    wat::parse_str(text).map_err(|error| BuildError::Compiler { tool: "wat", output: error.to_string() })
}

/// What a module says about itself.
struct Facts {
    /// The names that it imports from.
    imports: Vec<String>,
    /// Whether its toolchain has written the types of a component into it.
    describes_itself: bool,
}

impl Facts {
    fn of(module: &[u8]) -> Result<Self, BuildError> {
        let failed = |error: wasmparser::BinaryReaderError| BuildError::Component(error.to_string());
        let mut facts = Self { imports: Vec::new(), describes_itself: false };
        for payload in Parser::new(0).parse_all(module) {
            match payload.map_err(failed)? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import.map_err(failed)?;
                        if !facts.imports.iter().any(|known| known == import.module) {
                            facts.imports.push(import.module.to_owned());
                        }
                    }
                }
                Payload::CustomSection(section) if section.name().starts_with("component-type") => {
                    facts.describes_itself = true;
                }
                _ => {}
            }
        }
        Ok(facts)
    }
}

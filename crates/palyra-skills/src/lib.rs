//! Skills.

pub mod archive;
pub mod artifact;
pub mod audit;
pub mod constants;
pub mod diff;
mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod ids;
pub mod instructions;
pub mod manifest;
pub mod package;
pub mod provenance;
mod purl;
pub mod registry;
pub mod sbom;
pub mod signature;
#[cfg(test)]
mod testing;
mod text;
pub mod trust;
pub mod unpack;

pub use purl::{PackageKey, PackageUrl, PackageUrlError};
pub use text::Position;

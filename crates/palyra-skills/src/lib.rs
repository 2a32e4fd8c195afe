//! Skills.

pub mod archive;
pub mod artifact;
pub mod constants;
mod files;
pub mod ids;
pub mod manifest;
pub mod provenance;
mod purl;
pub mod sbom;
pub mod signature;
mod text;
pub mod trust;

pub use purl::{PackageKey, PackageUrl, PackageUrlError};
pub use text::Position;

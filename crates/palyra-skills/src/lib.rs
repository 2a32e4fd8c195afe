//! Skills.

pub mod archive;
pub mod artifact;
pub mod constants;
pub mod ids;
pub mod manifest;
pub mod provenance;
mod purl;
pub mod sbom;
pub mod signature;
mod text;

pub use purl::{PackageKey, PackageUrl, PackageUrlError};
pub use text::Position;

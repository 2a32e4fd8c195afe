//! Skills.

pub mod archive;
pub mod artifact;
pub mod constants;
pub mod ids;
pub mod manifest;
pub mod signature;
mod text;

pub use text::Position;

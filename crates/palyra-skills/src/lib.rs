//! Skills.

pub mod archive;
pub mod constants;
pub mod ids;
mod text;

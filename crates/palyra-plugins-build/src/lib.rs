//! Turns the sources of a skill into a component.

mod component;
mod error;
mod world;

pub use component::{component_of, component_of_text, parse_text};
pub use error::BuildError;
pub use world::{INTERFACES, SKILL_WIT, world_text};

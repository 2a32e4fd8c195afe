//! Turns the sources of a skill into a component: Rust, C, Python, JavaScript, WebAssembly text.
//!
//! [`build`] looks at a directory, sees which language it is, and runs that language's own compiler. Compilers of core
//! modules need nothing of the component model: this crate makes the component, with exactly the imports that the code
//! uses. [`Project::create`] writes a new skill that builds at the first try.
//!
//! It runs compilers and knows no guest: it must never load what it has built.

mod c;
mod command;
mod component;
mod error;
mod js;
mod project;
mod python;
mod rust;
mod templates;
mod world;

pub use component::{component_of, component_of_text, parse_text};
pub use error::BuildError;
pub use project::{Language, NewSkill, Project, Toolchains, build, is_skill_name};
pub use world::{INTERFACES, SKILL_WIT, world_text};

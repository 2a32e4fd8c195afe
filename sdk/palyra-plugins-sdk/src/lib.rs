//! Write skills for Palyra in Rust.
//!
//! A skill is a list of tools. A tool is a function from one type that serde can read to another that it can write:
//!
//! ```
//! use palyra_plugins_sdk::{Tool, ToolError, skill};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize)]
//! struct Input {
//!     text: String,
//! }
//!
//! #[derive(Serialize)]
//! struct Output {
//!     shouted: String,
//! }
//!
//! fn shout(input: Input) -> Result<Output, ToolError> {
//!     Ok(Output { shouted: input.text.to_uppercase() })
//! }
//!
//! fn tools() -> Vec<Tool> {
//!     vec![
//!         Tool::new("shout", "Writes a text in capital letters.", shout)
//!             .input(r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#),
//!     ]
//! }
//!
//! skill!(tools);
//! # fn main() {}
//! ```
//!
//! Everything outside is reached through [`log`], [`http`], [`secrets`] and [`storage`], and only as far as the skill's
//! grant goes: what its manifest asks for and the operator allows. Each call has an instance of its own, so nothing in
//! memory outlives it.

#[doc(hidden)]
#[allow(warnings, reason = "generated")]
pub mod bindings;
pub mod http;
pub mod log;
pub mod secrets;
pub mod storage;
mod tool;

pub use tool::{Tool, ToolError, describe, invoke};

/// Makes a skill of a function that returns its tools.
#[macro_export]
macro_rules! skill {
    ($tools:path) => {
        struct PalyraSkill;

        impl $crate::bindings::exports::palyra::skill::tools::Guest for PalyraSkill {
            fn describe() -> ::std::vec::Vec<$crate::bindings::exports::palyra::skill::tools::Tool> {
                $crate::describe(&$tools())
            }

            fn invoke(
                tool: ::std::string::String,
                input_json: ::std::string::String,
            ) -> ::std::result::Result<
                ::std::string::String,
                $crate::bindings::exports::palyra::skill::tools::ToolError,
            > {
                $crate::invoke(&$tools(), &tool, &input_json)
            }
        }

        $crate::bindings::export_skill!(PalyraSkill with_types_in $crate::bindings);
    };
}

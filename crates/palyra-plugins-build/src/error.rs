//! Why a skill could not be built.

use std::io;
use std::path::PathBuf;

/// Why there is no component.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    // The author's fault.
    /// There is nothing here that could be built.
    #[error("`{}` holds no skill: no Cargo.toml, skill.c, app.py, skill.js or skill.wat", .0.display())]
    NoSkill(PathBuf),
    /// A compiler refused the sources.
    #[error("{tool} failed:\n{output}")]
    Compiler {
        /// Which compiler.
        tool: &'static str,
        /// What it said.
        output: String,
    },
    /// The compiler made something that is not a skill.
    #[error("the module cannot become a component: {0}")]
    Component(String),
    /// Not a name for a skill.
    #[error("`{0}` cannot name a skill: use lower-case letters, digits and hyphens, beginning with a letter")]
    Name(String),
    /// Something is there already.
    #[error("`{}` is there already", .0.display())]
    Exists(PathBuf),

    // The machine's fault.
    /// A toolchain is missing.
    #[error("{tool} is not installed")]
    MissingTool {
        /// Which.
        tool: &'static str,
        /// How to install it.
        fix: &'static str,
    },
    /// A file could not be read or written.
    #[error("could not {action} `{}`", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl BuildError {
    /// The stable code by which programs know this error.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSkill(_) => "build_no_skill",
            Self::Compiler { .. } => "build_compiler",
            Self::Component(_) => "build_component",
            Self::Name(_) => "build_name",
            Self::Exists(_) => "build_exists",
            Self::MissingTool { .. } => "build_missing_tool",
            Self::Io { .. } => "build_io",
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::MissingTool { fix, .. } => Some(fix),
            Self::NoSkill(_) => Some("begin with `palyra skills new`"),
            _ => None,
        }
    }
}

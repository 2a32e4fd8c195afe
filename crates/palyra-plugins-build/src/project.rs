//! A directory with the sources of one skill.

use crate::error::BuildError;
use crate::{c, component, js, python, rust, templates};
use std::fs;
use std::path::{Path, PathBuf};

/// The language of a skill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Language {
    /// A `Cargo.toml`.
    Rust,
    /// A `skill.c`.
    C,
    /// An `app.py`.
    Python,
    /// A `skill.js`.
    JavaScript,
    /// A `skill.wat`.
    Text,
}

impl Language {
    /// Every language, in the order in which a directory is looked at.
    pub const ALL: [Self; 5] = [Self::Rust, Self::C, Self::Python, Self::JavaScript, Self::Text];

    /// The file by which it is known.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::Rust => "Cargo.toml",
            Self::C => "skill.c",
            Self::Python => "app.py",
            Self::JavaScript => "skill.js",
            Self::Text => "skill.wat",
        }
    }

    /// The word by which people ask for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::C => "c",
            Self::Python => "python",
            Self::JavaScript => "js",
            Self::Text => "wat",
        }
    }
}

/// Where compilers are that no package of the system brings.
#[derive(Debug, Clone, Default)]
pub struct Toolchains {
    /// A Python environment with `componentize-py`, besides `.venv` in the project and the path.
    pub python_environment: Option<PathBuf>,
    /// A directory with `node_modules/@bytecodealliance/componentize-js`, besides the project itself.
    pub node_directory: Option<PathBuf>,
}

/// What a new skill is called, and who will sign it.
#[derive(Debug, Clone, Copy)]
pub struct NewSkill<'a> {
    /// Its name: lower-case letters, digits and hyphens.
    pub name: &'a str,
    /// The publisher that its id begins with.
    pub publisher: &'a str,
    /// The oldest Palyra that it is to run on.
    pub palyra_version: &'a str,
}

/// Whether a skill may be called this.
#[must_use]
pub fn is_skill_name(name: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    name.len() <= 64 && name.bytes().all(good) && name.starts_with(|c: char| c.is_ascii_lowercase())
}

/// The sources of one skill.
#[derive(Debug, Clone)]
pub struct Project {
    /// Its directory.
    pub directory: PathBuf,
    /// Its language.
    pub language: Language,
}

impl Project {
    /// Looks at a directory.
    ///
    /// # Errors
    /// When there is no skill in it.
    pub fn find(directory: &Path) -> Result<Self, BuildError> {
        let language = Language::ALL.into_iter().find(|language| directory.join(language.file()).is_file());
        match language {
            Some(language) => Ok(Self { directory: directory.to_owned(), language }),
            None => Err(BuildError::NoSkill(directory.to_owned())),
        }
    }

    /// Writes a new skill that builds at the first try.
    ///
    /// # Errors
    /// When something is there already, or the name cannot be one.
    pub fn create(directory: &Path, skill: &NewSkill<'_>, language: Language) -> Result<Self, BuildError> {
        let name = skill.name;
        if !is_skill_name(name) {
            return Err(BuildError::Name(name.chars().take(80).collect()));
        }
        let io = |action, path: &Path| {
            let path = path.to_owned();
            move |source| BuildError::Io { action, path, source }
        };
        if directory.exists() && fs::read_dir(directory).map_err(io("read", directory))?.next().is_some() {
            return Err(BuildError::Exists(directory.to_owned()));
        }
        for (path, text) in templates::files(language, skill) {
            let path = directory.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(io("create", parent))?;
            }
            fs::write(&path, text).map_err(io("write", &path))?;
        }
        Ok(Self { directory: directory.to_owned(), language })
    }
}

/// Builds a skill; what compilers leave behind goes into `work`.
///
/// # Errors
/// What the compiler says, or which one is missing.
pub fn build(project: &Project, work: &Path, toolchains: &Toolchains) -> Result<Vec<u8>, BuildError> {
    let failed = |source| BuildError::Io { action: "create", path: work.to_owned(), source };
    fs::create_dir_all(work).map_err(failed)?;
    // Compilers run in the project's directory, from which a relative path leads elsewhere.
    let work = &fs::canonicalize(work).map_err(failed)?;
    match project.language {
        Language::Rust => component::component_of(&rust::build(&project.directory, work)?),
        Language::C => component::component_of(&c::build(&project.directory, work)?),
        Language::Python => python::build(&project.directory, work, toolchains),
        Language::JavaScript => js::build(&project.directory, work, toolchains),
        Language::Text => {
            let path = project.directory.join(Language::Text.file());
            component::component_of_text(&read_text(&path)?)
        }
    }
}

pub(crate) fn read_text(path: &Path) -> Result<String, BuildError> {
    fs::read_to_string(path).map_err(|source| BuildError::Io { action: "read", path: path.to_owned(), source })
}

pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(|source| BuildError::Io { action: "read", path: path.to_owned(), source })
}

pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), BuildError> {
    fs::write(path, text).map_err(|source| BuildError::Io { action: "write", path: path.to_owned(), source })
}

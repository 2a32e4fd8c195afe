//! The home directory that a run sees: the toolchains of the person, their caches, and who commits.
//!
//! A run's home has the path of the person's own, so that programs find their toolchains where they always do. It is
//! empty but for what is listed here: parts of known toolchains, which hold no credentials ([`crate::toolchains`]).
//! Nothing in it is a root that an operator named, so a run that has one is still contained.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// What a Tier C run finds in its home directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunHome {
    /// Where it is; `None`: the run's private `/tmp`.
    pub path: Option<PathBuf>,
    /// Parts of toolchains, free of links: read and execute.
    pub shown: Vec<PathBuf>,
    /// Caches of toolchains, free of links. A run reads the host's and writes to a layer that the host does not see.
    pub caches: Vec<PathBuf>,
    /// Where those layers are kept for the next run; `None`: caches are only read.
    pub cache_store: Option<PathBuf>,
    /// Directories that are searched for programs before the system's own.
    pub search: Vec<PathBuf>,
    /// Variables that say where a toolchain is.
    pub variables: BTreeMap<String, String>,
    /// Who commits.
    pub git: Option<GitIdentity>,
}

/// Who commits, unless the repository says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitIdentity {
    /// `user.name`.
    pub name: String,
    /// `user.email`.
    pub email: String,
}

impl RunHome {
    /// Everything of the host that it shows.
    pub fn roots(&self) -> impl Iterator<Item = &PathBuf> {
        self.shown.iter().chain(&self.caches)
    }
}

#[cfg(target_os = "linux")]
impl GitIdentity {
    /// The settings that git reads from the home directory.
    pub(crate) fn settings(&self) -> String {
        let Self { name, email } = self;
        format!("[user]\n\tname = {}\n\temail = {}\n", quoted(name), quoted(email))
    }
}

/// A value of git's settings. What would end the line is left out.
#[cfg(target_os = "linux")]
fn quoted(value: &str) -> String {
    let mut text = String::from("\"");
    for c in value.chars().filter(|c| !c.is_control()) {
        if matches!(c, '"' | '\\') {
            text.push('\\');
        }
        text.push(c);
    }
    text.push('"');
    text
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_add_settings() {
        let identity = GitIdentity { name: "Ada \"x\"\n[core]\\".into(), email: "ada@a.test".into() };
        let settings = identity.settings();
        assert_eq!(settings, "[user]\n\tname = \"Ada \\\"x\\\"[core]\\\\\"\n\temail = \"ada@a.test\"\n");
    }
}

//! Facets: the parts of a call that a policy can speak about.
//!
//! A tool says how its input becomes facets; everything a rule, an approval card or a grant can match on is
//! here, already resolved. Paths are relative to the workspace and free of symlinks, so that a rule about `infra/` also
//! sees a write through a link that points there.

use crate::action::PolicyAction;
use crate::carrier::ByClient;
use crate::containment::Containment;
use crate::digest::{Digest, DigestBuilder};
use crate::display::deceives;
use crate::memory::MemoryUse;
use crate::skill_event::SkillUse;
use crate::vault::SecretRef;
use crate::vault_event::SecretDelivery;
use serde::{Deserialize, Serialize};

/// What a call would touch, as far as its input tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facets {
    /// The program that the command names: its resolved absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// Every file that would run, where that is more than one: a wrapper and what it starts, a script and its
    /// interpreter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executables: Vec<String>,
    /// What those of them hold that a process in the workspace could rewrite, by a digest: a rewritten program is
    /// another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs_sha256: Option<Digest>,
    /// The program's arguments, the name it was called by first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// The directory the program would run in, relative to the workspace (`.` is its root).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// What the caller sets in the program's environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<Environment>,
    /// What the caller writes to the program's standard input, by its digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_sha256: Option<Digest>,
    /// Paths that would be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths_read: Vec<String>,
    /// Those of them that are read with everything below them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trees_read: Vec<String>,
    /// Paths that would be written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths_written: Vec<String>,
    /// Files and directories outside the workspace that would be read: absolute, free of links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
    /// Notes of the agent's own client that would be read or written: absolute, outside the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Those of both that would be written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside_written: Vec<String>,
    /// Files of the workspace that hold secrets, and that it would be given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_files: Vec<String>,
    /// Hosts that would be contacted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The HTTP method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What would hold the process, where the call runs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<Containment>,
    /// Secrets of the vault that it would use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretUse>,
    /// How long it may run, where the call asks for more than the configuration gives by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// The client carries it out by itself: nothing of Palyra's holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_client: Option<ByClient>,
    /// What it would do with the memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
    /// What it would do with routines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routine: Option<RoutineUse>,
    /// The skill that would run, where the tool is a skill's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<SkillUse>,
}

/// A routine that a call would add, run or end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutineUse {
    /// What would be done.
    pub action: PolicyAction,
    /// The routine's id; its name where it would be added.
    pub routine: String,
}

/// A secret that a call would use, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretUse {
    /// Which secret.
    pub secret: SecretRef,
    /// How it reaches what uses it.
    #[serde(rename = "as")]
    pub via: SecretDelivery,
    /// The file or variable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The endpoints that the proxy attaches it to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<String>,
}

impl SecretUse {
    /// One line for people: which secret goes where.
    fn describe(&self, program: Option<&str>) -> String {
        let program = program.unwrap_or("the request");
        let (secret, name) = (&self.secret, self.name.as_deref().unwrap_or(""));
        match self.via {
            SecretDelivery::Proxy => {
                format!("{secret} to {} for {program}, attached by the proxy", self.endpoints.join(", "))
            }
            SecretDelivery::File => format!("{secret} to {program}, in the file /run/secrets/{name}"),
            SecretDelivery::Env => format!(
                "{secret} to {program}, in the variable {name}: the least preferred way, everything that it starts can read it"
            ),
            SecretDelivery::Guest => format!("{secret} to the code of the skill"),
            SecretDelivery::Reply | SecretDelivery::Daemon => format!("{secret} to the daemon"),
        }
    }
}

/// Variables that a caller sets for a program. Rules see the names; a grant that covers more than one call holds for
/// the same names with the same values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Their names, sorted.
    pub names: Vec<String>,
    /// The digest of names and values.
    pub digest: Digest,
}

impl Environment {
    /// The variables as facets hold them; none where nothing is set.
    pub fn new<'v>(variables: impl IntoIterator<Item = (&'v str, &'v str)>) -> Option<Self> {
        let mut variables: Vec<_> = variables.into_iter().collect();
        variables.sort_unstable();
        let digest = DigestBuilder::new("palyra.environment.v1").number(variables.len() as u64);
        let digest = variables.iter().fold(digest, |d, (name, value)| d.field(name.as_bytes()).field(value.as_bytes()));
        (!variables.is_empty()).then(|| Self {
            names: variables.iter().map(|(name, _)| (*name).to_owned()).collect(),
            digest: digest.finish(),
        })
    }
}

/// The most words of an argv prefix that policies and grants can match on.
pub const MAX_PREFIX_WORDS: usize = 8;

impl Facets {
    /// Every file that would run, also where it is only one.
    pub fn all_executables(&self) -> impl Iterator<Item = &str> {
        let only = self.executable.as_deref().filter(|_| self.executables.is_empty());
        self.executables.iter().map(String::as_str).chain(only)
    }

    /// The command's leading words, `["git"]`, `["git", "status"]`, …: what prefix rules and prefix grants match.
    ///
    /// Matching whole words of the parsed argv is what keeps `git status` from admitting `git status && git push`.
    pub fn argv_prefixes(&self) -> impl Iterator<Item = &[String]> {
        (1..=self.argv.len().min(MAX_PREFIX_WORDS)).map(|n| &self.argv[..n])
    }

    /// The names of the environment variables that the caller sets.
    #[must_use]
    pub fn env_names(&self) -> &[String] {
        self.environment.as_ref().map_or(&[], |environment| &environment.names)
    }

    /// Whether the call runs a process that could reach other hosts.
    #[must_use]
    pub fn process_reaches_hosts(&self) -> bool {
        self.containment.as_ref().is_some_and(Containment::reaches_hosts)
    }

    /// Which secrets go to which program and endpoint, a line for each.
    #[must_use]
    pub fn secret_lines(&self) -> Vec<String> {
        let files = self.secret_files.iter().map(|path| format!("the file {path}, which is withheld otherwise"));
        self.secrets.iter().map(|found| found.describe(self.executable.as_deref())).chain(files).collect()
    }

    /// Whether it is given secrets, of the vault or of the workspace: a yes to it covers no other call.
    #[must_use]
    pub fn uses_secrets(&self) -> bool {
        !self.secrets.is_empty() || !self.secret_files.is_empty()
    }

    /// The whole command on one line, each word quoted where it needs to be: for people, never for execution.
    #[must_use]
    pub fn command_line(&self) -> Option<String> {
        (!self.argv.is_empty()).then(|| quote_words(&self.argv))
    }
}

/// Joins words so that a shell would read exactly these words again.
#[must_use]
pub fn quote_words<S: AsRef<str>>(words: &[S]) -> String {
    let mut line = String::new();
    for (n, word) in words.iter().enumerate() {
        if n > 0 {
            line.push(' ');
        }
        quote_into(word.as_ref(), &mut line);
    }
    line
}

fn quote_into(word: &str, line: &mut String) {
    let plain = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./=:,@%+".contains(&b));
    if plain {
        line.push_str(word);
        return;
    }
    // A person reads this line before saying yes: nothing in it may move the cursor, hide, or pass for a space. Words
    // with such characters take the `$'…'` form, in which the escapes, and only they, begin with a backslash: two words
    // never look alike.
    if word.chars().any(hides) {
        line.push_str("$'");
        for c in word.chars() {
            match c {
                '\'' | '\\' => line.extend(['\\', c]),
                c if hides(c) => line.extend(c.escape_default()),
                c => line.push(c),
            }
        }
    } else {
        line.push('\'');
        line.push_str(&word.replace('\'', "'\\''"));
    }
    line.push('\'');
}

/// Whether a character is not seen for what it is.
fn hides(c: char) -> bool {
    deceives(c) || (c.is_whitespace() && c != ' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_keeps_words_apart_and_shows_control_characters() {
        let words = ["git", "commit", "-m", "it's done", "&&", "", "a\u{1b}[2Kb\n"];
        assert_eq!(quote_words(&words), r"git commit -m 'it'\''s done' '&&' '' $'a\u{1b}[2Kb\n'");
        assert_ne!(quote_words(&["a\nb"]), quote_words(&["a\\nb"]));
        assert_ne!(quote_words(&["a\nb\\n"]), quote_words(&["a\nb\n"]));
        assert_eq!(quote_words(&["\u{202e}a\\", "b\u{a0}c"]), r"$'\u{202e}a\\' $'b\u{a0}c'");
        assert_ne!(quote_words(&["\u{202e}abc"]), quote_words(&["\\u{202e}abc"]));
    }

    #[test]
    fn one_file_that_runs_is_told_as_before() {
        let mut facets = Facets { executable: Some("/usr/bin/nice".to_owned()), ..Facets::default() };
        assert_eq!(serde_json::to_string(&facets).unwrap(), r#"{"executable":"/usr/bin/nice"}"#);
        assert_eq!(facets.all_executables().collect::<Vec<_>>(), ["/usr/bin/nice"]);
        facets.executables = ["/usr/bin/nice", "/usr/bin/git"].map(str::to_owned).to_vec();
        assert_eq!(facets.all_executables().collect::<Vec<_>>(), ["/usr/bin/nice", "/usr/bin/git"]);
    }

    #[test]
    fn an_environment_is_its_names_and_values_in_any_order() {
        let one = Environment::new([("B", "2"), ("A", "1")]).unwrap();
        assert_eq!(Some(&one), Environment::new([("A", "1"), ("B", "2")]).as_ref());
        assert_eq!(one.names, ["A", "B"]);
        assert_ne!(one.digest, Environment::new([("A", "1"), ("B", "3")]).unwrap().digest);
        assert_ne!(one.digest, Environment::new([("A", "1B"), ("", "2")]).unwrap().digest);
        assert_eq!(Environment::new([]), None);
    }

    #[test]
    fn prefixes_are_whole_words() {
        let facets = Facets { argv: ["git", "status"].map(str::to_owned).to_vec(), ..Facets::default() };
        let prefixes: Vec<_> = facets.argv_prefixes().map(quote_words).collect();
        assert_eq!(prefixes, ["git", "git status"]);
    }
}

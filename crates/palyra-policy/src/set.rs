//! A set of rules that may run: parsed, valid, and true to its own cases; or the whole list of why not.
//!
//! This is the one way from an operator's files to an engine, for the daemon's start, for a reload and for every tool
//! that only looks. A running set is replaced by what comes out of here, so a set that fails its own
//! cases never runs.

use crate::cases::{CaseError, CaseFile, CaseResults};
use crate::directory::PolicyFiles;
use crate::engine::PolicyEngine;
use crate::error::{Flaw, FlawKind, PolicyError};
use crate::membership::Membership;
use crate::mixed_scripts::mixed_words;
use crate::rule::Rule;
use crate::source::{Indexed, PolicySource};
use crate::toolbox::Toolbox;
use cedar_policy::EntityUid;
use palyra_protocol::{Custody, Digest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The most cases of one set.
const MAX_CASES: usize = 50_000;

/// Where the daemon's rules come from, read anew each time.
#[derive(Debug, Clone)]
pub struct PolicyLoader {
    /// The operator's directory, if there is one.
    pub directory: Option<PathBuf>,
    /// Who belongs to what, as far as the configuration says.
    pub membership: Membership,
    /// The tools that rules and cases can name, where they are known.
    pub tools: Option<Arc<dyn Toolbox>>,
    /// Vouches for every file before it is read. None for those who only look: nothing that is read so may decide.
    pub custody: Option<Arc<dyn Custody>>,
}

/// A set that may run.
#[derive(Debug, Clone)]
pub struct CheckedSet {
    /// The rules, ready to be asked.
    pub engine: PolicyEngine,
    /// The files it was made of.
    pub files: Digest,
    /// How many cases it answered as they expect.
    pub cases: usize,
    /// What is allowed, and worth a second look.
    pub notes: Vec<Note>,
}

/// Something that is no flaw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// The rule.
    pub rule: String,
    /// Where it stands.
    pub at: String,
    /// What about it.
    pub message: String,
}

/// A set that may not run.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct RefusedSet {
    /// The files, where they could be read at all.
    pub files: Option<Digest>,
    /// Why.
    #[source]
    pub error: PolicyError,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupsFile {
    #[serde(default)]
    groups: BTreeMap<String, Vec<String>>,
}

impl PolicyLoader {
    /// Reads, checks and tries the set.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(&self) -> Result<CheckedSet, RefusedSet> {
        let files = match &self.directory {
            Some(directory) => PolicyFiles::read(directory, self.custody.as_deref())
                .map_err(|error| RefusedSet { files: None, error })?,
            None => PolicyFiles::none(),
        };
        self.check(&files)
    }

    /// Reads and checks the rules of the set, without their cases: to see how it would decide while they fail.
    ///
    /// # Errors
    /// Everything that is wrong with the rules.
    pub fn load_untried(&self) -> Result<PolicyEngine, RefusedSet> {
        let files = match &self.directory {
            Some(directory) => PolicyFiles::read(directory, self.custody.as_deref())
                .map_err(|error| RefusedSet { files: None, error })?,
            None => PolicyFiles::none(),
        };
        self.untried(&files)
    }

    /// Checks the rules of files, without their cases.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn untried(&self, files: &PolicyFiles) -> Result<PolicyEngine, RefusedSet> {
        files
            .engine(&self.membership, self.tools.as_deref())
            .map_err(|error| RefusedSet { files: Some(files.digest()), error })
    }

    /// Checks and tries files that are not the running ones.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn check(&self, files: &PolicyFiles) -> Result<CheckedSet, RefusedSet> {
        files
            .check(&self.membership, self.tools.as_deref())
            .map_err(|error| RefusedSet { files: Some(files.digest()), error })
    }
}

impl PolicyFiles {
    /// Makes an engine of the shipped rules and these, and runs their cases.
    ///
    /// # Errors
    /// Every flaw of every file; if there is none, every case that comes out otherwise.
    pub fn check(&self, base: &Membership, tools: Option<&dyn Toolbox>) -> Result<CheckedSet, PolicyError> {
        let engine = self.engine(base, tools)?;
        let mut results = CaseResults::default();
        let mut flaws = Vec::new();
        for source in &self.cases {
            match try_cases(source, &engine, tools) {
                Ok(of_file) => {
                    results.run += of_file.run;
                    results.deciding.extend(of_file.deciding);
                    let place = Indexed::new(source);
                    flaws.extend(of_file.refused.into_iter().map(|refused| {
                        let message = format!("`{}` asks nothing: {}", refused.name, refused.message);
                        place.flaw(refused.offset, FlawKind::BadCase, message)
                    }));
                    flaws.extend(of_file.failures.into_iter().map(|failure| Flaw {
                        help: Some("`palyra policy explain` shows how a call is decided".to_owned()),
                        ..place.flaw(failure.offset, FlawKind::CaseFailed, failure.to_string())
                    }));
                }
                Err(found) => flaws.extend(found),
            }
        }
        if !flaws.is_empty() {
            return Err(PolicyError::Flawed(flaws));
        }
        let notes = notes(&engine, &results.deciding, tools);
        Ok(CheckedSet { engine, files: self.digest(), cases: results.run, notes })
    }

    /// The rules alone, without their cases.
    fn engine(&self, base: &Membership, tools: Option<&dyn Toolbox>) -> Result<PolicyEngine, PolicyError> {
        let mut membership = base.clone();
        if let Some(source) = &self.groups {
            membership = with_groups(membership, source)?;
        }
        let mut sources = vec![PolicySource::defaults()];
        sources.extend(self.rules.iter().cloned());
        PolicyEngine::load_for(&sources, &membership, tools)
    }
}

fn with_groups(membership: Membership, source: &PolicySource) -> Result<Membership, PolicyError> {
    let place = Indexed::new(source);
    let refused = |offset, message| PolicyError::Flawed(vec![place.flaw(offset, FlawKind::Groups, message)]);
    let file: GroupsFile = toml::from_str(&source.text)
        .map_err(|error| refused(error.span().map_or(0, |span| span.start), error.message().trim().to_owned()))?;
    membership.with_groups(&file.groups).map_err(|error| {
        let offset = error.names().find_map(|name| place_of(name, &source.text)).unwrap_or(0);
        refused(offset, error.to_string())
    })
}

/// Where a file of groups speaks of a name: where it says who belongs to it, else where it stands first.
fn place_of(name: &str, text: &str) -> Option<usize> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let key = line.split_once('=').map(|(key, _)| key.trim().trim_matches('"'));
        if key == Some(name) {
            return Some(start);
        }
        start += line.len();
    }
    text.find(&format!("{name}\"")).or_else(|| text.find(name))
}

fn try_cases(
    source: &PolicySource,
    engine: &PolicyEngine,
    tools: Option<&dyn Toolbox>,
) -> Result<CaseResults, Vec<Flaw>> {
    let place = Indexed::new(source);
    let bad = |offset, message| vec![place.flaw(offset, FlawKind::BadCase, message)];
    let file = CaseFile::parse(&source.text).map_err(|error| match error {
        CaseError::Syntax(error) => bad(error.span().map_or(0, |span| span.start), error.message().trim().to_owned()),
        CaseError::Membership(error) => bad(0, error.to_string()),
    })?;
    if file.cases.len() > MAX_CASES {
        return Err(bad(0, format!("a file has at most {MAX_CASES} cases")));
    }
    match file.membership(engine.membership()).map_err(|error| bad(0, error.to_string()))? {
        None => Ok(file.run(engine, tools)),
        Some(membership) => {
            let engine = engine.with_membership(&membership).map_err(|error| match error {
                PolicyError::Flawed(flaws) => flaws,
                other => bad(0, other.to_string()),
            })?;
            Ok(file.run(&engine, tools))
        }
    }
}

/// An operator's rule that no case tries may say something else than its author meant; one that asks a person may
/// find that another rule stands in for that person; and one that names a door or a tool that is not there may wait for
/// it in vain.
fn notes(engine: &PolicyEngine, deciding: &BTreeSet<String>, tools: Option<&dyn Toolbox>) -> Vec<Note> {
    let note = |rule: &Rule, message: &str| Note {
        rule: rule.id().to_owned(),
        at: rule.position().to_string(),
        message: message.to_owned(),
    };
    let untried = engine.operator_rules().filter(|rule| !deciding.contains(rule.id()));
    let untried = untried.map(|rule| note(rule, "no case shows what this rule decides"));
    let waivable = engine.operator_rules().filter(|rule| engine.0.waives() && rule.asks_but_can_be_waived());
    let waivable = waivable.map(|rule| {
        note(
            rule,
            "a rule that permits `approval.waive` can stand in for the person this one asks for; if a person must be asked about every call, let it say `unless { context.approval_count >= 1 }`",
        )
    });
    let known = tools.map(Toolbox::names);
    let strangers = engine.operator_rules().flat_map(|rule| {
        let literals = rule.policy.entity_literals().into_iter();
        literals
            .filter_map(|uid| unknown(&uid, engine.membership().known_channels(), known.as_deref()))
            .map(|message| note(rule, &message))
            .collect::<Vec<_>>()
    });
    let mixed = engine.operator_rules().flat_map(|rule| {
        let words: BTreeSet<&str> = mixed_words(rule.text()).collect();
        let told = words.into_iter().map(|word| note(rule, &format!("`{word}` mixes alphabets: is it what you mean?")));
        told.collect::<Vec<_>>()
    });
    untried.chain(waivable).chain(strangers).chain(mixed).collect()
}

/// What is odd about an entity that could be there one day.
fn unknown(uid: &EntityUid, channels: &BTreeSet<String>, tools: Option<&[String]>) -> Option<String> {
    let name = uid.id().unescaped();
    match uid.type_name().basename() {
        "Tool" if tools.is_some_and(|tools| !tools.iter().any(|tool| tool == name)) => {
            Some(format!("there is no tool `{name}` now"))
        }
        "Channel" if !channels.is_empty() && !channels.contains(name) => {
            let known: Vec<_> = channels.iter().map(String::as_str).collect();
            Some(format!("there is no door `{name}` now; there are {}", known.join(", ")))
        }
        _ => None,
    }
}

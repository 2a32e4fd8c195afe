//! What `init` writes, and how: whole files, the configuration last, each known before it is there.
//!
//! A configuration that names a policy is written after that policy, and takes its place in one step. So an `init` that
//! is interrupted leaves either the old state or the new one, and files that nothing reads. `init.json` says which
//! files are `init`'s, with the digest of what it wrote: a file that somebody edited since is theirs, and is neither
//! replaced nor removed.

use super::Plan;
use crate::commands::connect::{unfinished, write_private};
use crate::commands::up::daemon_binary;
use crate::context::Context;
use crate::exit::{FAILED, Failure, REFUSED};
use palyra_protocol::Digest;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

const RULES: &str = include_str!("../../../../../policies/examples/coding/rules.cedar");
const CASES: &str = include_str!("../../../../../policies/examples/coding/rules.cases.toml");

/// Where configuration and policy lie.
#[derive(Debug)]
pub struct Place {
    directory: PathBuf,
}

impl Place {
    /// The user's own.
    pub fn of_user() -> Result<Self, Failure> {
        let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".config")));
        let none = || Failure::new(FAILED, "no_home", "there is no home directory", Some("set HOME"));
        Ok(Self { directory: base.ok_or_else(none)?.join("palyra") })
    }

    pub fn config(&self) -> PathBuf {
        self.directory.join("palyra.toml")
    }

    fn policies(&self) -> PathBuf {
        self.directory.join("policies")
    }

    fn record(&self) -> PathBuf {
        self.directory.join("init.json")
    }

    /// Refuses a workspace in which an agent could write what decides about it.
    pub fn out_of_reach(&self, workspace: &Path) -> Result<(), Failure> {
        let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
        let nearest = self.directory.ancestors().find_map(|path| path.canonicalize().ok());
        let holds = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| path.starts_with(workspace));
        if holds(&nearest) || holds(&home) || workspace.parent().is_none() {
            let message = format!(
                "`{}` holds your configuration, which agents could then write; they work in a project",
                workspace.display()
            );
            return Err(Failure::new(
                REFUSED,
                "workspace_holds_configuration",
                message,
                Some("go to a project, or say `--workspace DIR`"),
            ));
        }
        Ok(())
    }
}

/// Held while files are written; a second `init` is told.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the lock ends when the file is closed")] File);

impl Lock {
    pub fn take(place: &Place) -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::io(&format!("`{}` cannot be written", place.directory.display()), &e);
        fs::create_dir_all(&place.directory).map_err(failed)?;
        let path = place.directory.join(".init.lock");
        let file = File::options().create(true).truncate(false).write(true).open(path).map_err(failed)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Failure::new(
                REFUSED,
                "init_under_way",
                "another `palyra init` is at work",
                Some("wait for its end, then try again"),
            )),
            Err(error) => Err(failed(error.into())),
        }
    }
}

/// A file to be written.
#[derive(Debug)]
pub struct Planned {
    pub path: PathBuf,
    pub content: String,
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Wrote,
    Unchanged,
    /// Somebody edited it since, so it is theirs.
    Kept,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wrote => "wrote",
            Self::Unchanged => "as it was",
            Self::Kept => "yours",
        }
    }
}

#[derive(Debug)]
pub struct Written {
    pub path: PathBuf,
    pub state: State,
}

/// What `init` did, to take it back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Each file and the digest of what was written.
    pub files: Vec<(PathBuf, String)>,
    /// The connections that were made, by name.
    #[serde(default)]
    pub connections: Vec<String>,
}

impl Record {
    pub fn read(place: &Place) -> Result<Option<Self>, Failure> {
        let path = place.record();
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|_| {
                let message = format!("`{}` is not what `palyra init` wrote", path.display());
                Failure::new(FAILED, "record_malformed", message, Some("remove it, and what it names, by hand"))
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::io(&format!("`{}` cannot be read", path.display()), &error)),
        }
    }

    fn write(&self, place: &Place) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| Failure::bug(&e))?;
        write_private(&place.record(), &text)
    }

    fn wrote(&self, path: &Path) -> Option<&str> {
        self.files.iter().find(|(file, _)| file == path).map(|(_, digest)| digest.as_str())
    }
}

/// The files, the configuration last.
pub fn planned(place: &Place, plan: &Plan) -> Vec<Planned> {
    let policies = place.policies();
    vec![
        Planned { path: policies.join("coding.cedar"), content: RULES.to_owned() },
        Planned { path: policies.join("coding.cases.toml"), content: CASES.to_owned() },
        Planned { path: place.config(), content: configuration(&policies, plan) },
    ]
}

fn configuration(policies: &Path, plan: &Plan) -> String {
    let text = |value: &str| toml_edit::Value::from(value).to_string().trim().to_owned();
    let path = |path: &Path| text(&path.to_string_lossy());
    let list: toml_edit::Array = plan.toolchains.iter().map(String::as_str).collect();
    let git = plan.git.as_ref().map_or_else(String::new, |(name, email)| {
        format!(
            "\n# Who commits, unless the repository says otherwise.\n[git]\nname = {}\nemail = {}\n",
            text(name),
            text(email)
        )
    });
    format!(
        "# Written by `palyra init`. Edit it freely: what you change stays yours.\n\
         workspace_root = {workspace}\n\
         # The coding policy: what can be undone goes unasked, what leaves the sandbox asks.\n\
         policy_dir = {policies}\n\
         \n\
         [process_runner]\n\
         # Shells and interpreters may start: the sandbox holds what they do.\n\
         allow_interpreters = [\"*\"]\n\
         # Seen read-only, without credentials; their caches are filled beside yours.\n\
         toolchains = {list}\n\
         # Builds and tests take their time.\n\
         cpu_time_limit_ms = 1800000\n\
         wall_clock_limit_ms = 600000\n\
         memory_limit_bytes = 4294967296\n\
         max_processes = 1024\n\
         max_open_files = 4096\n\
         \n\
         [tool_call]\n\
         execution_timeout_ms = 600000\n\
         approval_timeout_ms = 1800000\n\
         max_calls_per_run = 10000\n\
         # A file outside the workspace that a call wants to read is put before you.\n\
         outside_paths = \"ask\"\n\
         \n\
         [egress]\n\
         # A host that a call asks for is put before you.\n\
         unlisted_hosts = \"ask\"\n\
         {git}",
        workspace = path(&plan.workspace),
        policies = path(policies),
    )
}

fn digest(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, Failure> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::io(&format!("`{}` cannot be read", path.display()), &error)),
    }
}

/// What is to become of each file.
#[derive(Debug)]
pub struct Intent {
    before: Option<Record>,
    states: Vec<State>,
}

impl Intent {
    /// Compares what is planned with what is there.
    pub fn of(place: &Place, planned: &[Planned]) -> Result<Self, Failure> {
        let before = Record::read(place)?;
        let mut states = Vec::new();
        for file in planned {
            let now = read(&file.path)?;
            let known = before.as_ref().and_then(|record| record.wrote(&file.path));
            let ours = now.as_deref().is_none_or(|bytes| known == Some(digest(bytes).as_str()));
            let same = now.as_deref() == Some(file.content.as_bytes());
            states.push(match (same, ours) {
                (true, _) => State::Unchanged,
                (false, true) => State::Wrote,
                (false, false) if known.is_none() => return Err(theirs(&file.path)),
                (false, false) => State::Kept,
            });
        }
        Ok(Self { before, states })
    }

    /// Whether writing would change anything.
    pub fn changes(&self) -> bool {
        self.states.contains(&State::Wrote)
    }
}

/// Writes what is not there yet. The daemon checks the configuration before it takes its place.
pub fn write(
    (context, place): (&Context, &Place),
    plan: &Plan,
    planned: &[Planned],
    intent: Intent,
) -> Result<Vec<Written>, Failure> {
    let Intent { before, states } = intent;
    let mut record = before.clone().unwrap_or_default();
    let to_write = || planned.iter().zip(&states).filter(|(_, state)| **state == State::Wrote).map(|(file, _)| file);
    for file in to_write() {
        record.files.retain(|(path, _)| *path != file.path);
        record.files.push((file.path.clone(), digest(file.content.as_bytes())));
    }
    // Known before anything is written, so that it can be taken back whatever happens.
    record.write(place)?;
    for file in to_write() {
        let written = match file.path == place.config() {
            true => checked(context, place, plan, &file.content),
            false => write_private(&file.path, file.content.as_bytes()),
        };
        if let Err(failure) = written {
            if before.is_none() {
                remove(place, &record)?;
            }
            return Err(failure);
        }
    }
    Ok(planned.iter().zip(states).map(|(file, state)| Written { path: file.path.clone(), state }).collect())
}

fn theirs(path: &Path) -> Failure {
    Failure::new(
        REFUSED,
        "configured_already",
        format!("`{}` is there already, and `palyra init` did not write it", path.display()),
        Some("move it away, or add to it what `palyra init --print` shows"),
    )
}

/// Puts the configuration in place if the daemon would start on it.
fn checked(context: &Context, place: &Place, plan: &Plan, content: &str) -> Result<(), Failure> {
    let (config, trial) = (place.config(), place.directory.join("palyra.toml.checked"));
    write_private(&trial, content.as_bytes())?;
    let mut command = Command::new(daemon_binary()?);
    command.arg("--state-dir").arg(&context.state_dir).arg("--config").arg(&trial);
    command.arg("--workspace").arg(&plan.workspace).arg("check");
    let result = command.output().map_err(|e| Failure::io("the configuration cannot be checked", &e));
    let accepted = match result {
        Ok(output) if output.status.success() => fs::rename(&trial, &config)
            .map_err(|e| Failure::io(&format!("`{}` cannot be written", config.display()), &e)),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.rfind("error: ").map_or(said.trim(), |at| said[at + 7..].trim()).to_owned();
            let hint = "nothing that the daemon reads was changed; `palyra init --print` shows what was planned";
            Err(Failure::new(FAILED, "config_refused", said, Some(hint)))
        }
        Err(failure) => Err(failure),
    };
    if accepted.is_err() {
        // It is of use to nobody.
        drop(fs::remove_file(&trial));
    }
    accepted
}

/// A connection that `init` made.
pub fn remember_connection(place: &Place, name: &str) -> Result<(), Failure> {
    let mut record = Record::read(place)?.unwrap_or_default();
    if !record.connections.iter().any(|known| known == name) {
        record.connections.push(name.to_owned());
        record.write(place)?;
    }
    Ok(())
}

/// Removes the files that are as they were written; tells which somebody edited.
pub fn remove(place: &Place, record: &Record) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Failure> {
    let (mut removed, mut left) = (Vec::new(), Vec::new());
    let mut files: Vec<&(PathBuf, String)> = record.files.iter().collect();
    // The configuration first: where it stays, so do the rules that it names.
    files.sort_by_key(|(path, _)| *path != place.config());
    for (path, written) in files {
        let named = left.contains(&place.config());
        match read(path)? {
            None => {}
            Some(bytes) if digest(&bytes) == *written && !named => {
                fs::remove_file(path).map_err(|e| Failure::io(&format!("`{}` stays", path.display()), &e))?;
                removed.push(path.clone());
            }
            Some(_) => left.push(path.clone()),
        }
    }
    let trial = place.directory.join("palyra.toml.checked");
    let written = record.files.iter().map(|(path, _)| path.clone()).chain([trial.clone(), place.record()]);
    // What an `init` that was killed had begun to write.
    let begun: Vec<PathBuf> = written.map(|path| unfinished(&path)).collect();
    let files = [trial, place.record(), place.directory.join(".init.lock")];
    for path in files.iter().chain(&begun).filter(|path| path.exists()) {
        fs::remove_file(path).map_err(|e| Failure::io(&format!("`{}` stays", path.display()), &e))?;
    }
    for directory in [place.policies(), place.directory.clone()] {
        // What somebody put there keeps it.
        drop(fs::remove_dir(directory));
    }
    Ok((removed, left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            workspace: "/srv/a \"b\"".into(),
            toolchains: vec!["node".into(), "rust".into()],
            clients: Vec::new(),
            way: crate::commands::init::Way::Beside,
            git: Some(("Ada \"L\"".into(), "ada@a.test".into())),
        }
    }

    #[test]
    fn the_configuration_says_what_was_planned_whatever_it_holds() {
        let text = configuration(Path::new("/srv/ada/.config/palyra/policies"), &plan());
        let document: toml_edit::DocumentMut = text.parse().unwrap();
        assert_eq!(document["workspace_root"].as_str(), Some("/srv/a \"b\""));
        assert_eq!(document["git"]["name"].as_str(), Some("Ada \"L\""));
        assert_eq!(document["process_runner"]["toolchains"].as_array().unwrap().len(), 2);
        let nobody = configuration(Path::new("/p"), &Plan { git: None, ..plan() });
        assert!(!nobody.contains("[git]"));
    }

    #[test]
    fn what_somebody_edited_is_theirs() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { directory: dir.path().join("palyra") };
        let mut record = Record::default();
        for (name, edited) in
            [("policies/coding.cases.toml", false), ("policies/coding.cedar", true), ("palyra.toml", false)]
        {
            let path = place.directory.join(name);
            write_private(&path, b"as written").unwrap();
            record.files.push((path.clone(), digest(b"as written")));
            if edited {
                fs::write(&path, "edited").unwrap();
            }
        }
        record.write(&place).unwrap();
        assert_eq!(Record::read(&place).unwrap().unwrap().files, record.files);
        let (removed, left) = remove(&place, &record).unwrap();
        assert_eq!((removed.len(), left.len()), (2, 1));
        assert!(place.policies().join("coding.cedar").exists() && !place.record().exists());
    }

    #[test]
    fn rules_that_an_edited_configuration_names_stay() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { directory: dir.path().join("palyra") };
        let rules = place.policies().join("coding.cedar");
        for path in [&rules, &place.config()] {
            write_private(path, b"as written").unwrap();
        }
        let files = [&rules, &place.config()].map(|path| (path.clone(), digest(b"as written")));
        fs::write(place.config(), "edited").unwrap();
        let (removed, left) = remove(&place, &Record { files: files.to_vec(), connections: Vec::new() }).unwrap();
        assert!(removed.is_empty() && left.len() == 2 && rules.exists());
    }

    #[test]
    fn a_file_that_init_did_not_write_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { directory: dir.path().join("palyra") };
        write_private(&place.config(), b"theirs").unwrap();
        let refused = Intent::of(&place, &planned(&place, &plan())).unwrap_err();
        assert_eq!(refused.code, "configured_already");
    }

    #[test]
    fn one_init_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place { directory: dir.path().join("palyra") };
        let first = Lock::take(&place).unwrap();
        assert_eq!(Lock::take(&place).unwrap_err().code, "init_under_way");
        drop(first);
        Lock::take(&place).unwrap();
    }
}

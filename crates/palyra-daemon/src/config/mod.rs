//! `palyra.toml`: what was typed, and what was made of it.
//!
//! [`RawConfig`] is what serde reads: every key known, every unknown one refused with the nearest that exists.
//! [`Config`] is what the daemon runs on; it has one constructor, which checks everything once. Each section has a file
//! of its own here, which holds both.

mod checks;
pub(crate) mod effects;
mod egress;
mod error;
mod http;
mod models;
mod policy;
mod process_runner;
mod remote;
mod skills;
mod text;
mod tool_call;
mod toolchains;
mod vault;
mod wasm_runtime;
mod workspace;

pub use error::ConfigError;
pub(crate) use remote::RemoteConfig;
pub(crate) use skills::SkillsConfig;

use crate::custody::AgentReach;
use crate::http::Port;
use effects::RawEffects;
use egress::RawEgress;
use http::RawHttp;
use models::RawModels;
use palyra_engine::ToolCallConfig;
use palyra_engine::vault::VaultSettings;
use palyra_policy::{Membership, PolicyLoader};
use palyra_protocol::{Custody, Digest};
use palyra_sandbox::{SandboxProcessRunnerPolicy, SandboxTier};
use process_runner::{RawProcessRunner, usable_roots};
use remote::RawRemote;
use serde::Deserialize;
use skills::RawSkills;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use text::{text_of, with_nearest};
use tool_call::{RawToolCall, ToolCalls};
use toolchains::RawGit;
use vault::RawVault;
use wasm_runtime::RawWasmRuntime;

/// The file as it is typed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RawConfig {
    workspace_root: Option<PathBuf>,
    policy_dir: Option<PathBuf>,
    tool_call: RawToolCall,
    process_runner: RawProcessRunner,
    egress: RawEgress,
    wasm_runtime: RawWasmRuntime,
    skills: RawSkills,
    effects: RawEffects,
    http: RawHttp,
    vault: RawVault,
    remote: RawRemote,
    git: RawGit,
    models: RawModels,
}

/// A configuration that the daemon can run on.
#[derive(Debug)]
pub struct Config {
    /// Where tools work.
    pub workspace_root: PathBuf,
    /// The engine's limits and permissions.
    pub tool_call: ToolCallConfig,
    /// Who belongs to which group.
    pub membership: Membership,
    /// The directory of the operator's policies, as it is named.
    pub policy_dir: Option<PathBuf>,
    /// Where the HTTP door is, if it is to be open.
    pub http: Option<Port>,
    /// Where secrets are, and what opens them.
    pub vault: VaultSettings,
    /// Where paired devices come in, if they may.
    pub(crate) remote: Option<RemoteConfig>,
    /// The models and agents.
    pub models: palyra_agent::ModelsConfig,
    /// How skills are audited.
    pub(crate) skills: SkillsConfig,
    /// Says of files that decide whether an agent could write them.
    pub custody: Arc<AgentReach>,
    /// Directories that runs of every workspace are given beside it.
    pub(crate) beside: Vec<PathBuf>,
}

impl Config {
    /// Where the rules come from.
    #[must_use]
    pub fn policy_loader(&self) -> PolicyLoader {
        let custody = Arc::clone(&self.custody) as Arc<dyn Custody>;
        policy::loader(self.policy_dir.clone(), self.membership.clone(), Some(custody))
    }
}

impl RawConfig {
    /// Reads the file; without one, everything is at its default.
    ///
    /// # Errors
    /// It cannot be read or understood.
    pub fn read(path: &Path, required: bool) -> Result<Self, ConfigError> {
        Self::of_text(path, Self::text(path, required)?.as_deref())
    }

    /// The file's text; none where there is no file and none is needed.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn text(path: &Path, required: bool) -> Result<Option<String>, ConfigError> {
        match text_of(path) {
            Ok(text) => Ok(Some(text)),
            Err(ConfigError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound && !required => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// What a text says that was read before.
    ///
    /// # Errors
    /// It cannot be understood.
    pub fn of_text(path: &Path, text: Option<&str>) -> Result<Self, ConfigError> {
        text.map_or_else(|| Ok(Self::default()), |text| Self::parse(path, text))
    }

    /// What rules depend on, and nothing else: their directory, and who belongs to which group.
    ///
    /// # Errors
    /// A name is malformed, or there is no such directory.
    pub fn rules(&self) -> Result<PolicyLoader, ConfigError> {
        let directory = self.policy_dir.as_deref().map(policy::named).transpose()?;
        Ok(policy::loader(directory, self.tool_call.membership()?, None))
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
            ConfigError::Malformed { path: path.to_owned(), line, message: with_nearest(error.message()) }
        })
    }

    /// Checks what processes depend on, and nothing else.
    ///
    /// # Errors
    /// The first value that makes no sense.
    pub fn process_runner(
        self,
        workspace: Option<PathBuf>,
        state_dir: &Path,
    ) -> Result<SandboxProcessRunnerPolicy, ConfigError> {
        let workspace_root = workspace::validate(workspace.or(self.workspace_root), state_dir)?;
        let mut policy = self.process_runner.validate(&workspace_root, state_dir, self.egress.validate())?;
        policy.home.git = self.git.validate()?;
        Ok(policy)
    }

    /// The tier that processes run in.
    pub fn tier(&self) -> SandboxTier {
        self.process_runner.tier()
    }

    /// Checks everything, once.
    ///
    /// # Errors
    /// The first value that makes no sense.
    pub fn validate(self, workspace: Option<PathBuf>, state_dir: &Path) -> Result<Config, ConfigError> {
        let workspace_root = workspace::validate(workspace.or(self.workspace_root), state_dir)?;
        let membership = self.tool_call.membership()?;
        let ToolCalls {
            allowed_tools,
            max_calls_per_run,
            limits,
            execution_timeout,
            longest_timeout,
            approval_timeout,
            outside_paths,
        } = self.tool_call.validate()?;
        let wasm_runtime = self.wasm_runtime.validate(execution_timeout)?;
        let egress_rules = self.egress.validate();
        let effects = self.effects.validate(&workspace_root, state_dir)?;
        let mut process_runner = self.process_runner.validate(&workspace_root, state_dir, Arc::clone(&egress_rules))?;
        // What calls replaced is the daemon's own, wherever it lies.
        let caches = effects.store.as_ref().map(|store| beside(&effects::base_of(store), "caches"));
        let own = effects.store.iter().chain(&caches).filter(|store| !store.starts_with(state_dir)).cloned();
        process_runner.protected_paths.extend(own);
        // Each workspace has its own: what one fills is nothing to another.
        let digest = Digest::of(workspace_root.as_os_str().as_encoded_bytes()).to_string();
        process_runner.home.cache_store = caches.map(|caches| caches.join(digest));
        process_runner.home.git = self.git.validate()?;
        usable_roots(&process_runner)?;
        let custody = AgentReach::of(&process_runner);
        let beside: Vec<PathBuf> =
            process_runner.read_roots.iter().chain(&process_runner.write_roots).cloned().collect();
        let policy_dir = self.policy_dir.map(|dir| policy::validate(&dir, &workspace_root, &custody)).transpose()?;
        Ok(Config {
            tool_call: ToolCallConfig {
                allowed_tools,
                max_calls_per_run,
                limits,
                execution_timeout,
                longest_timeout,
                approval_timeout,
                process_runner,
                egress_rules,
                wasm_runtime,
                effects,
                outside_paths,
            },
            membership,
            http: self.http.validate(),
            vault: self.vault.validate(state_dir, &custody)?,
            remote: self.remote.validate()?,
            models: self.models.validate()?,
            skills: self.skills.validate(&custody)?,
            policy_dir,
            custody: Arc::new(custody),
            beside,
            workspace_root,
        })
    }
}

/// A directory of the daemon's on the same file system as another, beside it.
fn beside(store: &Path, what: &str) -> PathBuf {
    let mut name = store.file_name().unwrap_or_default().to_owned();
    name.push(format!("-{what}"));
    store.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let state = tempfile::tempdir().unwrap();
        let workspace = tempfile::tempdir().unwrap();
        let raw = RawConfig::parse(Path::new("palyra.toml"), text);
        match raw.and_then(|raw| raw.validate(Some(workspace.path().to_owned()), state.path())) {
            Ok(_) => panic!("accepted: {text}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn unknown_keys_get_the_nearest() {
        let message = refused("\n[tool_call]\nmax_call_per_run = 3\n");
        assert_eq!(
            message,
            "`palyra.toml`, line 3: there is no key `max_call_per_run`; did you mean `max_calls_per_run`?"
        );
        assert!(refused("worksapce_root = \"x\"").contains("did you mean `workspace_root`?"));
        assert!(refused("[process_runner]\ntier = \"d\"").contains("there is no value `d`; did you mean `b`?"));
        assert!(refused("tool_call = 3").contains("line 1"));
        let far = refused("zzz = 1");
        assert!(!far.contains("did you mean") && far.contains("`workspace_root`"), "{far}");
    }

    #[test]
    fn senseless_values_are_refused() {
        assert!(refused("[process_runner]\ntier = \"b\"").contains("tier c only"));
        assert!(refused("[process_runner]\nmemory_limit_bytes = 0").contains("more than 0"));
        assert!(refused("[process_runner]\nmax_output_bytes = 20000000").contains("at most 4194304"));
        assert!(refused("[tool_call]\nmax_calls_under_way = 0").contains("more than 0"));
        assert!(refused("[process_runner]\nrequired_layers = [\"moat\"]").contains("no layer `moat`"));
        assert!(refused("[wasm_runtime]\nallowed_hosts = [\"*\"]").contains("not a host pattern"));
        assert!(refused("[wasm_runtime]\nmax_memory_bytes = 1").contains("64 KiB to 4 GiB"));
        assert!(refused("[skills]\naudit_interval_ms = 0").contains("more than 0"));
        assert!(refused("[tool_call]\nexecution_timeout_ms = 0").contains("more than 0"));
        assert!(refused("[tool_call]\nallowed_tools = [\"Bad Name\"]").contains("not a tool name"));
        assert!(refused("[tool_call]\nallowed_principals = [\"root\"]").contains("allowed_principals"));
        assert!(refused("\n[egress]\nallowed_hosts = [\"*\"]").contains("line 3: the egress rule `*` cannot be used"));
        assert!(refused("[egress]\nallowed_hosts = [\"https://example.org/x\"]").contains("write `example.org`"));
        assert!(refused("policy_dir = \"nowhere\"").contains("cannot be read"));
        let unknown = refused("[tool_call]\nallowed_tools = [\"palyra.fs.raed\"]");
        assert!(unknown.contains("did you mean `palyra.fs.read`?"), "{unknown}");
        assert!(refused("[tool_call]\napproval_timeout_ms = 9223372036854775807").contains("at most 2592000000"));
        assert!(refused("[tool_call]\nmax_calls_per_run = 9223372036854775807").contains("at most"));
        assert!(refused("[process_runner]\nwall_clock_limit_ms = 9223372036854775807").contains("at most"));
        assert!(refused("[process_runner]\nread_roots = [\"nowhere\"]").contains("`nowhere` cannot be used"));
    }

    #[test]
    fn roots_that_no_run_could_be_given_are_refused() {
        let (state, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let workspace = workspace.path().canonicalize().unwrap();
        let inner = workspace.join("a/sub");
        std::fs::create_dir_all(&inner).unwrap();
        for (roots, access, said) in [
            (format!("write_roots = [{inner:?}]"), "read_write", "where a run could put something else in its place"),
            (format!("read_roots = [{inner:?}]"), "read_write", "leave the inner root out"),
            (format!("write_roots = [{inner:?}]"), "read_only", ""),
            ("read_roots = [\"/proc\"]".to_owned(), "read_write", "lies in `/proc`"),
        ] {
            let text = format!("[process_runner]\nworkspace_access = \"{access}\"\n{roots}\n");
            let raw = RawConfig::parse(Path::new("palyra.toml"), &text).unwrap();
            let refused = raw.validate(Some(workspace.clone()), state.path()).err();
            let refused = refused.map(|error| error.to_string()).unwrap_or_default();
            assert!(refused.contains(said) && refused.is_empty() == said.is_empty(), "{text}: {refused}");
        }
    }

    #[test]
    fn rules_are_not_workspace() {
        let (state, workspace) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (outside, write_root) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for top in [&workspace, &write_root] {
            std::fs::create_dir(top.path().join("rules")).unwrap();
        }
        let link = |name: &str, target: PathBuf| {
            let link = outside.path().join(name);
            std::os::unix::fs::symlink(target, &link).unwrap();
            link
        };
        std::fs::create_dir(outside.path().join("good")).unwrap();
        link("good/alias.cedar", outside.path().join("team.cedar"));
        let validated = |dir: PathBuf| {
            let text = format!("policy_dir = {dir:?}\n[process_runner]\nwrite_roots = [{:?}]\n", write_root.path());
            let raw = RawConfig::parse(Path::new("palyra.toml"), &text).unwrap();
            raw.validate(Some(workspace.path().to_owned()), state.path())
        };
        for dir in [
            workspace.path().join("rules"),
            write_root.path().join("rules"),
            link("link", workspace.path().join("rules")),
            link("link-to-root", write_root.path().join("rules")),
        ] {
            let refused = validated(dir).unwrap_err().to_string();
            assert!(refused.contains("agents could change") && refused.contains("outside the workspace"), "{refused}");
        }
        let refused = validated(PathBuf::from("/")).unwrap_err();
        assert!(refused.to_string().contains("holds the workspace"), "{refused}");
        let config = validated(outside.path().join("good")).unwrap();
        assert_eq!(config.policy_dir.as_deref(), Some(outside.path().join("good").as_path()), "as it is named");
        assert!(config.policy_loader().load().is_err(), "a link that leads nowhere is no rule");
    }

    #[test]
    fn the_state_is_never_inside_the_workspace() {
        let outer = tempfile::tempdir().unwrap();
        let outer = outer.path().canonicalize().unwrap();
        let state = outer.join("state");
        std::fs::create_dir(&state).unwrap();
        for workspace in [outer, state.clone()] {
            let refused = RawConfig::default().validate(Some(workspace), &state).unwrap_err();
            assert!(refused.to_string().contains("overlap"), "{refused}");
        }
    }
}

//! Rehearsal: what a call would be decided by, for the cases beside a set of rules.
//!
//! A case that is a call goes through the same resolving as a call that is made, so that it cannot name facts that no
//! call has. It is resolved in a directory of its own, which is empty: a set of rules must answer its cases the same
//! whatever an agent has put into the workspace, and whatever programs and hosts the configuration allows today.
//! Programs that this host lacks are taken to be in `/usr/bin`. Nothing is carried out.

use crate::catalog::ToolCatalog;
use crate::config::{CallLimits, EffectsConfig, OutsidePaths, ToolCallConfig, WasmRuntime};
use crate::tools::{Input, Place};
use palyra_egress::{Fetcher, Roots, SystemResolver};
use palyra_policy::{RehearsedCall, Toolbox};
use palyra_protocol::{CanonicalJson, SessionId};
use palyra_sandbox::{SandboxProcessRunnerPolicy, SandboxTier, WorkspaceAccess};
use palyra_workspace::Workspace;
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The tools that rules and cases may name: the built-in ones, or those of a catalog.
#[derive(Debug, Default)]
pub struct Rehearsal(OnceLock<Result<Arc<ToolCatalog>, String>>);

impl Rehearsal {
    /// The tools of a catalog.
    pub(crate) fn of(catalog: Arc<ToolCatalog>) -> Self {
        Self(OnceLock::from(Ok(catalog)))
    }

    fn catalog(&self) -> Result<&ToolCatalog, String> {
        let builtin = || ToolCatalog::builtin().map(Arc::new).map_err(|error| error.to_string());
        self.0.get_or_init(builtin).as_deref().map_err(Clone::clone)
    }
}

impl Toolbox for Rehearsal {
    fn names(&self) -> Vec<String> {
        let Ok(catalog) = self.catalog() else { return Vec::new() };
        catalog.iter().map(|tool| tool.name().to_string()).collect()
    }

    fn rehearse(&self, tool: &str, input: &Value) -> Result<RehearsedCall, String> {
        let tool = self.catalog()?.find(tool).map_err(|problem| problem.message)?;
        let input = CanonicalJson::parse(input.to_string().as_bytes()).map_err(|error| error.to_string())?;
        tool.validate(input.value()).map_err(|problem| problem.message)?;
        let scratch = Scratch::new().map_err(|error| format!("there is no directory to try it in: {error}"))?;
        let workspace = Workspace::open(&scratch.0).map_err(|error| error.to_string())?;
        let config = open_handed(workspace.root());
        let fetcher = Fetcher::new(Arc::default(), Arc::new(SystemResolver), Roots::System);
        let (workspace, config, fetcher) = (&workspace, &config, &fetcher);
        let place = Place { workspace, config, fetcher, effects: None, vault: None, memory: None };
        let facets = tool.tool().rehearse(Input::new(input.value()), &place).map_err(|refusal| {
            format!("refused before any rule is asked, in an empty workspace: {}", refusal.problem.message)
        })?;
        Ok(RehearsedCall { tool: tool.name().to_string(), metadata: tool.metadata().clone(), facets })
    }
}

/// An empty directory that is gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("palyra-rehearsal-{}", SessionId::mint()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir(&self.0) {
            tracing::warn!(%error, "an empty directory stays behind");
        }
    }
}

/// A configuration that refuses nothing which an operator could allow.
fn open_handed(root: &Path) -> ToolCallConfig {
    ToolCallConfig {
        allowed_tools: BTreeSet::new(),
        max_calls_per_run: 1,
        limits: CallLimits::default(),
        execution_timeout: Duration::from_secs(1),
        longest_timeout: Duration::from_secs(3600),
        approval_timeout: Duration::from_secs(1),
        process_runner: SandboxProcessRunnerPolicy {
            workspace_access: WorkspaceAccess::ReadOnly,
            ..SandboxProcessRunnerPolicy::over(root, SandboxTier::B)
        },
        egress_rules: Arc::default(),
        wasm_runtime: WasmRuntime::Disabled,
        effects: EffectsConfig::default(),
        outside_paths: OutsidePaths::Ask,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_policy::{Membership, PolicyFile, PolicyFiles, PolicyLoader};
    use serde_json::json;

    #[test]
    fn a_rehearsed_call_has_the_facts_of_a_call() {
        let tools = Rehearsal::default();
        let facets = |tool: &str, input: Value| tools.rehearse(tool, &input).unwrap().facets;
        let run = facets(
            "palyra.process.run",
            json!({ "argv": ["no-such-program", "-x"], "env": { "B": "1", "A": "2" }, "stdin": "y" }),
        );
        assert_eq!(run.executable.as_deref(), Some("/usr/bin/no-such-program"));
        assert_eq!((run.env_names(), run.stdin_sha256.is_some()), (&["A".to_owned(), "B".to_owned()][..], true));
        let plain = facets("palyra.process.run", json!({ "argv": ["no-such-program"], "stdin": "" }));
        assert_eq!((plain.environment, plain.stdin_sha256), (None, None));
        let fetch = facets("palyra.http.fetch", json!({ "url": "https://a.example/x" }));
        assert_eq!((fetch.hosts, fetch.method.as_deref()), (vec!["a.example:443".to_owned()], Some("GET")));
        let through = |tool: &str, input: Value| facets(tool, input).trees_read;
        assert_eq!(through("palyra.fs.search", json!({ "pattern": "x" })), ["."]);
        assert_eq!(through("palyra.fs.list", json!({ "path": "src", "depth": 2 })), ["src"]);
        assert_eq!(facets("palyra.fs.list", json!({ "path": "src" })).trees_read, Vec::<String>::new());
    }

    #[test]
    fn what_is_no_call_is_said() {
        let tools = Rehearsal::default();
        for (tool, input, words) in [
            ("palyra.nope", json!({}), "no tool"),
            ("palyra.echo", json!({ "texts": 1 }), "schema"),
            ("palyra.fs.read", json!({ "path": "../x" }), "empty workspace"),
            ("palyra.process.run", json!({ "argv": ["./build.sh"] }), "empty workspace"),
        ] {
            let refused = tools.rehearse(tool, &input).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn rules_name_tools_that_there_are() {
        let check = |tool: &str| {
            let rule = format!(
                "@id(\"x\") @reason(\"r\")\nforbid (principal, action == Action::\"tool.execute\",\n  resource == Tool::\"{tool}\");\n"
            );
            let file = PolicyFile { name: "a.cedar".to_owned(), bytes: rule.into_bytes() };
            PolicyFiles::new(vec![file]).unwrap().check(&Membership::single_user(), Some(&Rehearsal::default()))
        };
        let about =
            |tool: &str| check(tool).unwrap().notes.iter().filter(|note| note.message.contains("no tool")).count();
        assert_eq!((about("palyra.process.run"), about("acme.deploy")), (0, 1));
        let refused = check("palyra.proces.run").unwrap_err();
        let flaw = &refused.flaws()[0];
        assert_eq!(flaw.at.to_string(), "a.cedar:3:15");
        assert!(flaw.help.as_deref().unwrap().contains("`palyra.process.run`"), "{flaw:?}");
    }

    /// The ready sets in `policies/examples`: each passes every check, and each rule of theirs decides some case.
    #[test]
    fn every_example_passes_its_own_cases() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/examples");
        let membership = Membership::from_lists(&["user:*", "agent:*"], &["cli"], &["user:local"]).unwrap();
        let mut names = Vec::new();
        for entry in std::fs::read_dir(examples).unwrap() {
            let directory = entry.unwrap().path();
            let name = directory.file_name().unwrap().to_string_lossy().into_owned();
            let written = std::fs::read_to_string(directory.join("rules.cases.toml")).unwrap();
            assert!(!written.contains("tool.execute"), "{name}: a case that is no call could say anything");
            let tools: Option<Arc<dyn Toolbox>> = Some(Arc::new(Rehearsal::default()));
            let loader =
                PolicyLoader { directory: Some(directory), membership: membership.clone(), tools, custody: None };
            let set = loader.load().unwrap_or_else(|refused| {
                let flaws: Vec<_> = refused.error.flaws().iter().map(palyra_policy::Flaw::render).collect();
                panic!("{name}: {refused}\n{}", flaws.join("\n\n"))
            });
            assert!(set.cases >= 5, "{name} has {} cases", set.cases);
            assert!(set.notes.is_empty(), "{name}: {:?}", set.notes);
            names.push(name);
        }
        names.sort();
        assert_eq!(
            names,
            ["ci-agent", "coding", "personal-coding-agent", "production-two-approvers", "read-only-reviewer"]
        );
    }
}

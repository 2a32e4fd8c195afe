//! What would really run.
//!
//! A decision about `git` means nothing when `git` is a symlink to `bash`. [`resolve_executable`] follows a command to the
//! file that the kernel would execute: through the search path, symlinks, the shebang, and wrappers such as `env`
//! and `timeout`; it recognises shells and interpreters on the way and refuses those that no operator allowed. The
//! result carries the file's identity, and the runner refuses when that identity has changed since.
//!
//! It only looks; it must never execute anything. It cannot judge what a compiled program in the workspace does: an
//! operator who wants that decided names `allowed_executables`.

mod content;
mod file;
mod names;
mod options;
mod wrappers;

use crate::error::SandboxError;
use crate::explain::ProgramStep;
use crate::policy::SandboxProcessRunnerPolicy;
use content::Content;
pub use file::FileIdentity;
use names::Kind;
use std::fs;
use std::path::{Path, PathBuf};
pub(crate) use wrappers::commands;

/// How many programs may start each other (script → interpreter, wrapper → program) before it is called a knot.
const MAX_CHAIN: usize = 8;

/// A program that was looked at and may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedExecutable {
    path: PathBuf,
    called: PathBuf,
    identity: FileIdentity,
    script: bool,
    programs: Vec<PathBuf>,
}

impl ResolvedExecutable {
    /// The file itself: absolute, free of symlinks.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path by which it was found, symlinks and all: programs such as `cargo` look at the name they are called by.
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    pub(crate) fn called(&self) -> &Path {
        &self.called
    }

    /// Which file it was when it was looked at.
    #[must_use]
    pub fn identity(&self) -> FileIdentity {
        self.identity
    }

    /// Every file that would run, in order: the program, its interpreter or the program that it wraps.
    #[must_use]
    pub fn programs(&self) -> &[PathBuf] {
        &self.programs
    }

    /// The same files, each with what it is.
    #[must_use]
    pub fn chain(&self) -> Vec<ProgramStep> {
        let role = |(at, path): (usize, &PathBuf)| match names::kind_of(base_name(path)) {
            _ if at == 0 && self.script => "script".to_owned(),
            Some(Kind::Interpreter(family)) => format!("interpreter {family}"),
            Some(Kind::Wrapper) if crate::layout::is_system_path(path) => "wrapper".to_owned(),
            Some(Kind::Launcher) if crate::layout::is_system_path(path) => "launcher".to_owned(),
            _ => "program".to_owned(),
        };
        let steps = self.programs.iter().enumerate();
        steps.map(|(at, path)| ProgramStep { path: path.clone(), role: role((at, path)) }).collect()
    }

    /// Whether the kernel would hand it to an interpreter.
    #[must_use]
    pub fn is_script(&self) -> bool {
        self.script
    }
}

/// Finds the program that `argv` would run from `working_directory`, and refuses what the policy does not allow.
///
/// # Errors
/// When there is no such program, or the policy does not allow it.
pub fn resolve_executable(
    policy: &SandboxProcessRunnerPolicy,
    argv: &[String],
    working_directory: &Path,
) -> Result<ResolvedExecutable, SandboxError> {
    let resolver = Resolver { policy, working_directory, search_path: crate::environment::search_path(policy) };
    let mut programs = Vec::new();
    crate::arguments::check_arguments(policy, argv, working_directory)?;
    let Admitted { path, called, identity, script } = resolver.admit(argv, &mut programs)?;
    Ok(ResolvedExecutable { path, called, identity, script, programs })
}

/// One program that passed.
struct Admitted {
    path: PathBuf,
    called: PathBuf,
    identity: FileIdentity,
    script: bool,
}

/// One program on the way.
#[derive(Debug, Clone, Copy)]
struct LookedAt<'a> {
    path: &'a Path,
    identity: FileIdentity,
    /// Whether nobody but the system's owner can change it.
    of_system: bool,
}

struct Resolver<'a> {
    policy: &'a SandboxProcessRunnerPolicy,
    working_directory: &'a Path,
    search_path: String,
}

impl Resolver<'_> {
    /// Checks the program of `argv` and, behind it, every program that it would start.
    fn admit(&self, argv: &[String], programs: &mut Vec<PathBuf>) -> Result<Admitted, SandboxError> {
        let name = argv.first().filter(|name| !name.is_empty()).ok_or(SandboxError::EmptyCommand)?;
        if programs.len() >= MAX_CHAIN {
            return Err(SandboxError::WrapperRefused {
                name: name.clone(),
                reason: "too many programs start each other".into(),
            });
        }
        let called = self.find(name)?;
        let hops = symlink_hops(&called);
        let path = fs::canonicalize(&called).map_err(|_| SandboxError::ExecutableNotFound { name: name.clone() })?;
        let metadata = fs::metadata(&path).map_err(|_| SandboxError::ExecutableNotFound { name: name.clone() })?;
        if !file::may_execute(&metadata) {
            return Err(SandboxError::NotExecutable { path });
        }
        if self.policy.protected_paths.iter().any(|protected| path.starts_with(protected)) {
            return Err(SandboxError::ExecutableNotFound { name: name.clone() });
        }
        let identity = FileIdentity::at(&path).map_err(SandboxError::io("look at the program"))?;
        let content = content::inspect(&path)?;
        programs.push(path.clone());

        let looked_at = LookedAt { path: &path, identity, of_system: file::belongs_to_system(&metadata) };
        self.check_kind(name, &hops, looked_at, argv, programs)?;
        if let Content::Script { interpreter } = &content {
            // The interpreter gets the script as its argument; what the script says is the workspace's business.
            self.admit(interpreter, programs)?;
        }
        self.check_allowed(name, &path, &hops)?;
        self.check_visible(&path)?;
        Ok(Admitted { path, called, identity, script: matches!(content, Content::Script { .. }) })
    }

    /// Where a name leads: a path as it stands, a bare name through the search path of the sandbox.
    fn find(&self, name: &str) -> Result<PathBuf, SandboxError> {
        let not_found = || SandboxError::ExecutableNotFound { name: name.to_owned() };
        if name.contains('\0') {
            return Err(SandboxError::NulByte { what: "argv[0]".into() });
        }
        if name.contains(std::path::is_separator) || Path::new(name).is_absolute() {
            let path = self.working_directory.join(name);
            return if path.exists() { Ok(path) } else { Err(not_found()) };
        }
        self.search(name).ok_or_else(not_found)
    }

    fn search(&self, name: &str) -> Option<PathBuf> {
        let name = file::with_suffix(name);
        std::env::split_paths(&self.search_path)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join(&*name))
            .find(|path| fs::metadata(path).is_ok_and(|metadata| file::may_execute(&metadata)))
    }

    fn check_kind(
        &self,
        name: &str,
        hops: &[PathBuf],
        looked_at: LookedAt<'_>,
        argv: &[String],
        programs: &mut Vec<PathBuf>,
    ) -> Result<(), SandboxError> {
        let path = looked_at.path;
        let mut found: Vec<(Kind, String, String)> = Vec::new();
        for hop in hops {
            let base = base_name(hop);
            match names::kind_of(base) {
                Some(kind @ Kind::Interpreter(_)) => found.push((kind, base.into(), format!("`{name}` is `{base}`"))),
                // A file of the workspace that is merely called `watch` or `script` is not that program.
                Some(kind) if crate::layout::is_system_path(path) => {
                    found.push((kind, base.into(), format!("`{base}` starts other programs")));
                }
                _ => {}
            }
        }
        if let Some(original) = content::original_of(looked_at, &self.search_path) {
            let reason = format!("`{}` is a copy of `{}`", path.display(), original.name);
            found.push((original.kind, original.name, reason));
        }
        if crate::layout::is_system_path(path) && !self.allows_a_shell() {
            for hop in hops {
                options::check(base_name(hop), argv)?;
            }
        }
        for (kind, base, reason) in found {
            match kind {
                Kind::Interpreter(family) => self.check_interpreter(family, hops, path, &reason)?,
                Kind::Launcher => self.check_interpreter(&base, hops, path, &reason)?,
                Kind::Wrapper => {
                    for inner in wrappers::see_through(&base, argv)? {
                        self.admit(&inner, programs)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a shell may be run anyway: then an option that starts one opens nothing.
    fn allows_a_shell(&self) -> bool {
        self.policy.allow_interpreters.iter().any(|entry| matches!(entry.as_str(), "sh" | "bash" | "dash"))
    }

    /// Lets an interpreter pass when the operator named it: by family, by the name it is called by, or by what that leads to.
    fn check_interpreter(&self, family: &str, hops: &[PathBuf], path: &Path, reason: &str) -> Result<(), SandboxError> {
        let allowed = self.policy.allow_interpreters.iter().any(|entry| {
            entry == family || hops.iter().any(|hop| base_name(hop) == entry) || self.leads_to(entry, path)
        });
        if allowed {
            return Ok(());
        }
        let name = hops.first().map_or(family, |hop| base_name(hop)).to_owned();
        Err(SandboxError::InterpreterDenied { name, reason: reason.to_owned() })
    }

    fn check_allowed(&self, name: &str, path: &Path, hops: &[PathBuf]) -> Result<(), SandboxError> {
        let entries = &self.policy.allowed_executables;
        let by_interpreter_rule =
            hops.iter().any(|hop| names::kind_of(base_name(hop)).is_some_and(|k| k != Kind::Wrapper));
        // An interpreter has already been allowed by name when we come here.
        if entries.is_empty() || by_interpreter_rule || entries.iter().any(|entry| self.leads_to(entry, path)) {
            return Ok(());
        }
        Err(SandboxError::ExecutableNotAllowed { name: name.to_owned() })
    }

    /// A program that the sandbox will not show cannot run in it, nor could it find its libraries.
    fn check_visible(&self, path: &Path) -> Result<(), SandboxError> {
        let policy = self.policy;
        let roots = std::iter::once(&policy.workspace_root).chain(&policy.read_roots).chain(&policy.write_roots);
        let in_root = |root: &PathBuf| fs::canonicalize(root).is_ok_and(|root| path.starts_with(root));
        if crate::layout::is_system_path(path) || roots.into_iter().any(in_root) {
            return Ok(());
        }
        Err(SandboxError::ExecutableNotVisible { path: path.to_owned() })
    }

    /// Whether an operator's entry means this very file. A bare name means the system's program of that name, so that a file
    /// of the same name in the workspace is not meant.
    fn leads_to(&self, entry: &str, path: &Path) -> bool {
        let found = if Path::new(entry).is_absolute() { Some(PathBuf::from(entry)) } else { self.search(entry) };
        found.and_then(|found| fs::canonicalize(found).ok()).is_some_and(|found| found == path)
    }
}

/// Every name under which a file is reached: the path itself and each symlink's target.
fn symlink_hops(path: &Path) -> Vec<PathBuf> {
    let mut hops = vec![path.to_owned()];
    let mut current = path.to_owned();
    for _ in 0..40 {
        let Ok(target) = fs::read_link(&current) else { break };
        current = current.parent().unwrap_or(Path::new("/")).join(target);
        hops.push(current.clone());
    }
    hops
}

fn base_name(path: &Path) -> &str {
    file::known_as(path)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;

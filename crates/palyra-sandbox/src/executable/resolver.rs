//! From the words of a command to every file that would run.
//!
//! Each program is found, opened once and judged: by the names under which it is reached and by its content. Then come
//! the programs behind it: a script's interpreter, which gets the script and all its arguments, and whatever a wrapper
//! starts, as far as that can be told. The command is rewritten on the way, so that in the end each word that names a
//! program is known.

use super::content::{self, Content};
use super::copies::{self, Original};
use super::names;
use super::opened::Opened;
use super::walk::{Walk, walk};
use super::wrappers::{self, Inner};
use super::{ProgramFile, ResolvedExecutable, base_name, file};
use crate::error::SandboxError;
use crate::policy::{SandboxProcessRunnerPolicy, WorkspaceAccess};
use palyra_protocol::Digest;
use std::fs;
use std::path::{Path, PathBuf};

/// How many programs may start each other (script → interpreter, wrapper → program) before it is called a knot.
const MAX_CHAIN: usize = 8;

pub(super) struct Resolver<'a> {
    policy: &'a SandboxProcessRunnerPolicy,
    working_directory: &'a Path,
    search_path: String,
    /// The policy's roots, free of symlinks.
    roots: Vec<PathBuf>,
    /// Those that may be written.
    writable: Vec<PathBuf>,
}

/// What has been found so far.
struct Found {
    command: Vec<String>,
    files: Vec<ProgramFile>,
}

/// A program's place in the command: from its own word to the end of its arguments.
#[derive(Debug)]
struct Place<'a> {
    at: usize,
    end: usize,
    /// What whoever starts it replaces in the words.
    replaced: &'a [String],
    /// The script that it is to read.
    script: Option<&'a str>,
}

/// One program on the way.
struct LookedAt<'a> {
    name: &'a str,
    walk: &'a Walk,
    original: Option<&'a Original>,
    argv: &'a [String],
    script: Option<&'a str>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(policy: &'a SandboxProcessRunnerPolicy, working_directory: &'a Path) -> Self {
        let real = |root: &PathBuf| fs::canonicalize(root).ok();
        let workspace = std::iter::once(&policy.workspace_root);
        let writes = policy.workspace_access == WorkspaceAccess::ReadWrite;
        Self {
            policy,
            working_directory,
            search_path: crate::environment::search_path(policy),
            roots: workspace.clone().chain(policy.read_only()).chain(&policy.write_roots).filter_map(real).collect(),
            writable: workspace.filter(|_| writes).chain(&policy.write_roots).filter_map(real).collect(),
        }
    }

    pub(super) fn resolve(&self, argv: &[String]) -> Result<ResolvedExecutable, SandboxError> {
        let mut found = Found { command: argv.to_vec(), files: Vec::new() };
        self.admit(&mut found, Place { at: 0, end: argv.len(), replaced: &[], script: None })?;
        let Found { command, mut files } = found;
        if files.is_empty() {
            return Err(SandboxError::EmptyCommand);
        }
        let first = files.remove(0);
        Ok(ResolvedExecutable { command, first, further: files })
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.writable.iter().any(|root| path.starts_with(root))
    }

    /// What a file holds that could be rewritten.
    fn content(&self, opened: &Opened, path: &Path) -> Result<Option<Digest>, SandboxError> {
        let sha256 = opened.sha256().map_err(SandboxError::io("read the program"))?;
        if opened.is_unchanged() { Ok(sha256) } else { Err(SandboxError::ExecutableChanged { path: path.to_owned() }) }
    }

    /// Checks the program at a place and, behind it, every program that it would start. Tells where its arguments end
    /// now.
    fn admit(&self, found: &mut Found, place: Place<'_>) -> Result<usize, SandboxError> {
        let Place { at, mut end, replaced, script } = place;
        let name = found.command.get(at).filter(|name| !name.is_empty() && at < end);
        let name = name.ok_or(SandboxError::EmptyCommand)?.clone();
        if found.files.len() >= MAX_CHAIN {
            return Err(refused(&name, "too many programs start each other"));
        }
        let (called, searched) = self.find(&name)?;
        let not_found = || SandboxError::ExecutableNotFound { name: name.clone() };
        let walk = walk(&called, |directory| self.is_writable(directory)).ok_or_else(not_found)?;
        let path = walk.path.clone();
        if self.policy.protected_paths.iter().any(|protected| path.starts_with(protected)) {
            return Err(not_found());
        }
        let opened = self.open(&path, &name)?;
        let content = content::inspect(&opened, &path)?;
        // A script is known by its interpreter, whatever it speaks of.
        let original = (content == Content::Program).then(|| self.original(&opened, &path)).flatten();
        let writable = self.is_writable(&path);
        let sha256 = if writable { self.content(&opened, &path)? } else { None };
        found.files.push(ProgramFile {
            called,
            identity: opened.identity(),
            word: at,
            script: matches!(content, Content::Script { .. }),
            replaceable: walk.replaceable || searched,
            writable,
            sha256,
            recognised: original.as_ref().map(|original| original.name.clone()),
            role: role(&content, &walk, original.as_ref()),
            replaced: replaced.to_vec(),
            path,
        });
        let mut own = at;
        if let Content::Script { interpreter } = content {
            own = found.hand_over(at, interpreter, &name);
            end += own - at;
            if found.command[at..=own].iter().any(|word| contains_any(word, replaced)) {
                return Err(refused(&name, "its interpreter's words would be changed by what starts it"));
            }
        }
        let argv = found.command[own..end].to_vec();
        let looked_at = LookedAt { name: &name, walk: &walk, original: original.as_ref(), argv: &argv, script };
        // What an outer wrapper replaces is no program's name either.
        let is_fixed = |inner: &Inner| argv.get(inner.at).is_some_and(|word| !contains_any(word, replaced));
        let inner = self.judge(&looked_at)?.filter(|inner| inner.iter().all(is_fixed));
        if inner.is_none() {
            found.cannot_be_told();
        }
        for Inner { at, end: inner_end, replaced: inner_replaced } in inner.unwrap_or_default() {
            let shift = end - own - argv.len();
            let (at, before) = (own + at + shift, own + inner_end + shift);
            let replaced = &[replaced, &inner_replaced].concat();
            end += self.admit(found, Place { at, end: before, replaced, script })? - before;
        }
        if own > at {
            end = self.admit(found, Place { at, end, replaced, script: Some(&name) })?;
        }
        // At the end: whatever was learnt was learnt of this very file.
        if opened.is_unchanged() { Ok(end) } else { Err(SandboxError::ExecutableChanged { path: walk.path }) }
    }

    fn open(&self, path: &Path, name: &str) -> Result<Opened, SandboxError> {
        let opened = Opened::at(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => SandboxError::ExecutableNotFound { name: name.to_owned() },
            std::io::ErrorKind::PermissionDenied => SandboxError::NotExecutable { path: path.to_owned() },
            // A name on the way has become a symlink since.
            _ => SandboxError::ExecutableChanged { path: path.to_owned() },
        })?;
        if !opened.may_execute() {
            return Err(SandboxError::NotExecutable { path: path.to_owned() });
        }
        Ok(opened)
    }

    /// What a file is a copy of. Files in the system's directories are known by name and not compared.
    fn original(&self, opened: &Opened, path: &Path) -> Option<Original> {
        let known_by_name = crate::layout::is_system_path(path) && opened.of_system();
        if known_by_name { None } else { copies::original_of(opened, &self.search_path) }
    }

    /// Where a name leads: a path as it stands, a bare name through the search path of the sandbox. And whether a
    /// process in the workspace could make the same search end elsewhere.
    fn find(&self, name: &str) -> Result<(PathBuf, bool), SandboxError> {
        let not_found = || SandboxError::ExecutableNotFound { name: name.to_owned() };
        if name.contains('\0') {
            return Err(SandboxError::NulByte { what: "argv[0]".into() });
        }
        if name.contains(std::path::is_separator) || Path::new(name).is_absolute() {
            let path = self.working_directory.join(name);
            return if path.exists() { Ok((path, false)) } else { Err(not_found()) };
        }
        self.search(name).ok_or_else(not_found)
    }

    fn search(&self, name: &str) -> Option<(PathBuf, bool)> {
        let name = file::with_suffix(name);
        let mut replaceable = false;
        for directory in std::env::split_paths(&self.search_path).filter(|dir| dir.is_absolute()) {
            replaceable |= self.is_writable(&directory);
            let path = directory.join(&*name);
            if fs::metadata(&path).is_ok_and(|metadata| file::may_execute(&metadata)) {
                return Some((path, replaceable));
            }
        }
        None
    }

    /// Judges one program; tells the commands that it would start, `None` where that cannot be told.
    fn judge(&self, looked_at: &LookedAt<'_>) -> Result<Option<Vec<Inner>>, SandboxError> {
        let LookedAt { walk, argv, .. } = looked_at;
        for (family, hop) in families(looked_at) {
            self.check_interpreter(family, hop, looked_at)?;
        }
        self.check_allowed(looked_at)?;
        self.check_visible(&walk.path)?;
        // A file of the workspace that is merely called `timeout` is not that program.
        let system = crate::layout::is_system_path(&walk.path);
        let wrapper = walk.hops.iter().map(|hop| base_name(hop)).find(|name| system && wrappers::is_wrapper(name));
        let Some(name) = wrapper else { return Ok(Some(Vec::new())) };
        match wrappers::see_through(name, argv) {
            None if !self.policy.allowed_executables.is_empty() => {
                Err(refused(name, "what it starts cannot be told, and has to be among `allowed_executables`"))
            }
            inner => Ok(inner),
        }
    }

    /// Lets an interpreter pass when the operator named it: by family, by the file that the entry leads to, or by the
    /// name it has where nobody in the workspace gives names. `hop` is the name it was recognised by; `None`: by its
    /// content.
    fn check_interpreter(
        &self,
        family: &str,
        hop: Option<&Path>,
        looked_at: &LookedAt<'_>,
    ) -> Result<(), SandboxError> {
        let path = &looked_at.walk.path;
        let copied_from = looked_at.original.filter(|_| hop.is_none()).and_then(|original| original.path.as_deref());
        let allowed = self.policy.allow_interpreters.iter().any(|entry| {
            names::means_family(entry, family)
                || self.leads_to(entry, path)
                || copied_from.is_some_and(|original| self.leads_to_same(entry, original))
                || hop.is_some_and(|hop| base_name(hop) == entry && !self.is_given_inside(hop))
        });
        if allowed {
            return Ok(());
        }
        let reason = match (hop, looked_at.original, looked_at.script) {
            (None, Some(original), _) => format!("`{}` is a copy of `{}`", path.display(), original.name),
            (_, _, Some(script)) => format!("`{script}` is a script for it"),
            (Some(hop), ..) if base_name(hop) != looked_at.name => {
                format!("`{}` is `{}`, which runs arbitrary code", looked_at.name, base_name(hop))
            }
            _ => "it runs arbitrary code".to_owned(),
        };
        let name = looked_at.walk.hops.first().map_or(family, |hop| base_name(hop)).to_owned();
        Err(SandboxError::InterpreterDenied { name, reason })
    }

    /// Whether a process in the workspace could have given this name.
    fn is_given_inside(&self, hop: &Path) -> bool {
        let real = hop.parent().and_then(|parent| fs::canonicalize(parent).ok());
        real.is_none_or(|parent| self.is_writable(&parent))
    }

    fn check_allowed(&self, looked_at: &LookedAt<'_>) -> Result<(), SandboxError> {
        let path = &looked_at.walk.path;
        let entries = &self.policy.allowed_executables;
        // An interpreter has already been allowed by name when we come here; a file of the workspace has no name to go
        // by.
        let by_interpreter_rule = || !self.is_writable(path) && !families(looked_at).is_empty();
        if entries.is_empty() || entries.iter().any(|entry| self.leads_to(entry, path)) || by_interpreter_rule() {
            return Ok(());
        }
        Err(SandboxError::ExecutableNotAllowed { name: looked_at.name.to_owned() })
    }

    /// A program that the sandbox will not show cannot run in it, nor could it find its libraries.
    fn check_visible(&self, path: &Path) -> Result<(), SandboxError> {
        if crate::layout::is_system_path(path) || self.roots.iter().any(|root| path.starts_with(root)) {
            return Ok(());
        }
        Err(SandboxError::ExecutableNotVisible { path: path.to_owned() })
    }

    /// Whether an operator's entry means this very file.
    fn leads_to(&self, entry: &str, path: &Path) -> bool {
        self.meant(entry).is_some_and(|found| found == path)
    }

    /// The file that an operator's entry means. A bare name means the system's program of that name, so that a file of
    /// the same name in the workspace is not meant.
    fn meant(&self, entry: &str) -> Option<PathBuf> {
        let by_name = || self.search(entry).filter(|(_, replaceable)| !replaceable).map(|(path, _)| path);
        let found = if Path::new(entry).is_absolute() { Some(PathBuf::from(entry)) } else { by_name() };
        fs::canonicalize(found?).ok()
    }

    /// The operator's entries for interpreters, each with the file that it means.
    #[cfg(not(windows))]
    pub(super) fn allowed_files(&self) -> impl Iterator<Item = (&'a str, Option<PathBuf>)> {
        let entries = self.policy.allow_interpreters.iter();
        entries.map(|entry| (entry.as_str(), self.meant(entry)))
    }

    /// The same for a path that may be a symlink.
    fn leads_to_same(&self, entry: &str, path: &Path) -> bool {
        fs::canonicalize(path).is_ok_and(|path| self.leads_to(entry, &path))
    }
}

impl Found {
    /// Puts a script's interpreter before it, as the kernel does; tells where the script's own word is now.
    fn hand_over(&mut self, at: usize, interpreter: Vec<String>, name: &str) -> usize {
        let (own, grown) = (at + interpreter.len(), interpreter.len());
        let Some((script, before)) = self.files.split_last_mut() else { return at };
        before.iter_mut().filter(|file| file.word > at).for_each(|file| file.word += grown);
        // The interpreter opens the script by this word. It is the one that the kernel would give it, unless a symlink
        // could lead it elsewhere, or the interpreter could take it for an option.
        let linked = script.replaceable && is_linked(&script.called, &script.path);
        let word = match () {
            () if linked => script.path.to_string_lossy().into_owned(),
            () if name.contains('/') && !name.starts_with('-') => name.to_owned(),
            () => script.called.to_string_lossy().into_owned(),
        };
        script.word = own;
        self.command.splice(at..=at, interpreter.into_iter().chain([word]));
        own
    }

    /// Says of the last file that what it starts is not known.
    fn cannot_be_told(&mut self) {
        if let Some(file) = self.files.last_mut() {
            file.role = "wrapper of something that cannot be told".to_owned();
        }
    }
}

/// The families that a program belongs to: by each name under which it is reached, and by its content.
fn families<'a>(looked_at: &'a LookedAt<'_>) -> Vec<(&'static str, Option<&'a Path>)> {
    let by_name =
        looked_at.walk.hops.iter().filter_map(|hop| Some((names::family_of(base_name(hop))?, Some(hop.as_path()))));
    by_name.chain(looked_at.original.map(|original| (original.family, None))).collect()
}

fn contains_any(word: &str, texts: &[String]) -> bool {
    texts.iter().any(|text| word.contains(text.as_str()))
}

/// Whether a path is another one than its own real path, beyond `.` and `..`.
fn is_linked(called: &Path, path: &Path) -> bool {
    called.file_name() != path.file_name()
        || called.parent().and_then(|parent| fs::canonicalize(parent).ok()).as_deref() != path.parent()
}

/// What a file is to the command, for people.
fn role(content: &Content, walk: &Walk, original: Option<&Original>) -> String {
    let system = crate::layout::is_system_path(&walk.path);
    let name = base_name(&walk.path);
    match (content, original.map(|original| original.family).or_else(|| names::family_of(name))) {
        (Content::Script { .. }, _) => "script".to_owned(),
        (_, Some(family)) => format!("interpreter {family}"),
        _ if system && wrappers::is_wrapper(name) => "wrapper".to_owned(),
        _ => "program".to_owned(),
    }
}

fn refused(name: &str, reason: &str) -> SandboxError {
    SandboxError::WrapperRefused { name: name.to_owned(), reason: reason.to_owned() }
}

//! From the words of a command to every file that would run.
//!
//! Each program is found, opened once and judged: by the names under which it is reached, by its content, by its options.
//! Then come the programs behind it: a script's interpreter, which gets the script and all its arguments, and whatever a
//! wrapper starts. The command is rewritten on the way, so that in the end each word that names a program is known.

use super::content::{self, Content};
use super::copies::{self, Original};
use super::names::{self, Kind};
use super::opened::Opened;
use super::walk::{Walk, walk};
use super::wrappers::{Inner, Under};
use super::{ProgramFile, ResolvedExecutable, base_name, file, options, wrappers};
use crate::error::SandboxError;
use crate::policy::{SandboxProcessRunnerPolicy, WorkspaceAccess};
use palyra_protocol::Digest;
use std::fs;
use std::ops::RangeInclusive;
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
#[derive(Debug, Clone, Copy)]
struct Place {
    at: usize,
    end: usize,
    under: Under,
}

/// One program on the way.
struct LookedAt<'a> {
    name: &'a str,
    walk: &'a Walk,
    original: Option<&'a Original>,
    argv: &'a [String],
    under: Under,
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
            roots: workspace.clone().chain(&policy.read_roots).chain(&policy.write_roots).filter_map(real).collect(),
            writable: workspace.filter(|_| writes).chain(&policy.write_roots).filter_map(real).collect(),
        }
    }

    pub(super) fn resolve(&self, argv: &[String]) -> Result<ResolvedExecutable, SandboxError> {
        let mut found = Found { command: argv.to_vec(), files: Vec::new() };
        self.admit(&mut found, Place { at: 0, end: argv.len(), under: Under::NOBODY })?;
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

    /// Checks the program at a place and, behind it, every program that it would start. Tells where its arguments end now.
    fn admit(&self, found: &mut Found, place: Place) -> Result<usize, SandboxError> {
        let Place { at, mut end, under } = place;
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
            mixed: under.mixed,
            path,
        });
        let mut own = at;
        if let Content::Script { interpreter } = content {
            own = found.hand_over(at, interpreter, &name);
            end += own - at;
        }
        found.check_mixture(under, at..=own)?;
        let argv = found.command[own..end].to_vec();
        let looked_at = LookedAt { name: &name, walk: &walk, original: original.as_ref(), argv: &argv, under };
        for inner in self.judge(&looked_at)? {
            let shift = end - own - argv.len();
            let place = Place { at: own + inner.at + shift, end: own + inner.end + shift, under: inner.under };
            let before = place.end;
            end += self.admit(found, place)? - before;
        }
        if own > at {
            // What the interpreter starts was chosen by the script, not by whoever starts the script.
            end = self.admit(found, Place { at, end, under: Under { mixed: false, ..under } })?;
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

    /// Where a name leads: a path as it stands, a bare name through the search path of the sandbox. And whether a process in
    /// the workspace could make the same search end elsewhere.
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

    /// Judges one program; tells the commands that it would start.
    fn judge(&self, looked_at: &LookedAt<'_>) -> Result<Vec<Inner>, SandboxError> {
        let LookedAt { walk, original, argv, .. } = looked_at;
        let system = crate::layout::is_system_path(&walk.path);
        let names = walk.hops.iter().map(|hop| base_name(hop)).filter(|_| system);
        let known_as: Vec<&str> = names.chain(original.iter().map(|original| original.name.as_str())).collect();
        if !self.allows_a_shell() {
            for name in &known_as {
                self.check_options(name, looked_at)?;
            }
        }
        let mut inner = Vec::new();
        let mut seen_through: Vec<&str> = Vec::new();
        for (kind, base, hop) in self.kinds(looked_at) {
            match kind {
                Kind::Interpreter(family) => self.check_interpreter(family, hop, looked_at)?,
                Kind::Launcher => self.check_interpreter(base, hop, looked_at)?,
                Kind::Wrapper if looked_at.under.mixed => {
                    return Err(refused(base, "what starts it may put another program behind it"));
                }
                Kind::Wrapper if !seen_through.contains(&base) => {
                    seen_through.push(base);
                    inner.extend(wrappers::see_through(base, argv)?);
                }
                Kind::Wrapper | Kind::Tool => {}
            }
        }
        self.check_allowed(looked_at)?;
        self.check_visible(&walk.path)?;
        Ok(inner)
    }

    /// What a program is: by each name under which it is reached, and by its content.
    fn kinds<'b>(&self, looked_at: &'b LookedAt<'_>) -> Vec<(Kind, &'b str, Option<&'b Path>)> {
        let walk = looked_at.walk;
        let system = crate::layout::is_system_path(&walk.path);
        let by_name = walk.hops.iter().filter_map(|hop| {
            let base = base_name(hop);
            let kind = names::kind_of(base)?;
            // A file of the workspace that is merely called `watch` or `script` is not that program.
            (system || matches!(kind, Kind::Interpreter(_))).then_some((kind, base, Some(hop.as_path())))
        });
        let by_content = looked_at.original.map(|original| (original.kind, original.name.as_str(), None));
        by_name.chain(by_content).collect()
    }

    fn check_options(&self, known_as: &str, looked_at: &LookedAt<'_>) -> Result<(), SandboxError> {
        if looked_at.under.fed && options::are_sensitive(known_as) {
            return Err(refused(known_as, "what is read would become its options, and some of them start programs"));
        }
        options::check(known_as, looked_at.argv)
    }

    /// Whether a shell may be run anyway: then an option that starts one opens nothing.
    fn allows_a_shell(&self) -> bool {
        self.policy.allow_interpreters.iter().any(|entry| matches!(entry.as_str(), "sh" | "bash" | "dash"))
    }

    /// Lets an interpreter pass when the operator named it: by family, by the file that the entry leads to, or by the name it has
    /// where nobody in the workspace gives names. `hop` is the name it was recognised by; `None`: by its content.
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
        let name = looked_at.name;
        let reason = match (hop, looked_at.original) {
            (None, Some(original)) => format!("`{}` is a copy of `{}`", path.display(), original.name),
            (hop, _) => format!("`{name}` is `{}`", hop.map_or(family, base_name)),
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
        // An interpreter has already been allowed by name when we come here; a file of the workspace has no name to go by.
        let is_interpreter = || {
            let mut kinds = self.kinds(looked_at).into_iter();
            kinds.any(|(kind, ..)| matches!(kind, Kind::Interpreter(_) | Kind::Launcher))
        };
        let by_interpreter_rule = || !self.is_writable(path) && is_interpreter();
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

    /// Whether an operator's entry means this very file. A bare name means the system's program of that name, so that a file
    /// of the same name in the workspace is not meant.
    fn leads_to(&self, entry: &str, path: &Path) -> bool {
        let by_name = || self.search(entry).filter(|(_, replaceable)| !replaceable).map(|(path, _)| path);
        let found = if Path::new(entry).is_absolute() { Some(PathBuf::from(entry)) } else { by_name() };
        found.and_then(|found| fs::canonicalize(found).ok()).is_some_and(|found| found == path)
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
        // The interpreter opens the script by this word. It is the one that the kernel would give it, unless a symlink could lead it
        // elsewhere, or the interpreter could take it for an option.
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

    /// Refuses words that were put into a command which its starter changes once more.
    fn check_mixture(&self, under: Under, words: RangeInclusive<usize>) -> Result<(), SandboxError> {
        let Some(file) = self.files.last() else { return Ok(()) };
        if under.pasted && (file.script || file.replaceable) {
            return Err(refused("xargs", "what it reads would be put into the name of what it executes"));
        }
        if under.mixed && self.command[words].iter().any(|word| word.contains("{}")) {
            return Err(refused("find", "what it finds would be put into the name of what it executes"));
        }
        Ok(())
    }
}

/// Whether a path is another one than its own real path, beyond `.` and `..`.
fn is_linked(called: &Path, path: &Path) -> bool {
    called.file_name() != path.file_name()
        || called.parent().and_then(|parent| fs::canonicalize(parent).ok()).as_deref() != path.parent()
}

/// What a file is to the command, for people.
fn role(content: &Content, walk: &Walk, original: Option<&Original>) -> String {
    let system = crate::layout::is_system_path(&walk.path);
    let named = names::kind_of(base_name(&walk.path));
    match (content, original.map(|original| original.kind).or(named)) {
        (Content::Script { .. }, _) => "script".to_owned(),
        (_, Some(Kind::Interpreter(family))) => format!("interpreter {family}"),
        (_, Some(Kind::Wrapper)) if system || original.is_some() => "wrapper".to_owned(),
        (_, Some(Kind::Launcher)) if system || original.is_some() => "launcher".to_owned(),
        _ => "program".to_owned(),
    }
}

fn refused(name: &str, reason: &str) -> SandboxError {
    SandboxError::WrapperRefused { name: name.to_owned(), reason: reason.to_owned() }
}

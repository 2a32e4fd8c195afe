//! The tools: one file each, one trait for all.
//!
//! To add a built-in tool, write `tools/<name>.rs` beside the others and enter it in [`BUILTIN`]. The file holds
//! everything that is particular to the tool:
//!
//! 1. its **definition**: name, description, schemas, capabilities, risk. Validation, policy context, listings, help
//!    and the schemas that doors publish all follow from it;
//! 2. how its input becomes **facts** ([`Tool::prepare`]): the facets that rules, people and grants judge the call by,
//!    and a [`Job`] in which every path and program is resolved already;
//! 3. how the job is **executed** ([`Job::execute`]), after the call was decided, approved and recorded.
//!
//! Skills and other sources of tools implement the same trait and enter the catalog as sources of their own
//! ([`crate::Engine::replace_tools`]).
//!
//! A tool must name in its facets everything that it will touch: nothing else is decided, shown or covered by the
//! call's digest. A job must look up nothing anew, because what it finds then is not what was shown.

mod containment;
mod echo;
mod final_directory;
mod fs_apply_patch;
mod fs_list;
mod fs_read;
mod fs_search;
mod fs_write;
pub(crate) mod http_fetch;
mod input;
pub(crate) mod memory_retain;
mod memory_search;
mod outside;
pub(crate) mod packaged;
mod process_read;
pub(crate) mod process_run;
mod process_start;
mod routine_add;
mod routine_list;
mod routine_remove;
mod routine_run;
mod schema;
mod secrets;
mod sleep;
#[cfg(test)]
mod tests;
mod time_limit;

pub use input::Input;
pub use memory_retain::NAME as MEMORY_RETAIN;
pub(crate) use outside::Elsewhere;
pub use process_start::NAME as PROCESS_START;

use crate::config::ToolCallConfig;
use crate::effects::Effects;
use crate::flow::execute::{Executed, Running};
use crate::flow::resolve::Refusal;
use crate::memory::Memory;
use crate::vault::VaultStore;
use palyra_egress::Fetcher;
use palyra_protocol::review::ReviewedChange;
use palyra_protocol::tool::ToolNameError;
use palyra_protocol::{CanonicalJson, EffectPath, Facets, ToolDefinition};
use palyra_workspace::{FileError, ResolvedPath, Workspace};
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

/// Something that a caller can propose to do.
pub trait Tool: fmt::Debug + Send + Sync {
    /// What everybody may know about it. It stays the same for as long as the tool lives.
    fn definition(&self) -> &ToolDefinition;

    /// Turns an input that fits the schema into facts. Changes nothing.
    ///
    /// # Errors
    /// The input names something that cannot be, or that no rule can allow.
    fn prepare(&self, input: Input<'_>, place: &Place<'_>) -> Result<Prepared, Refusal>;

    /// What a call would be decided by if this host had every program and the operator allowed every host: for cases
    /// beside a policy, which are resolved in an empty workspace. Tools that ask for neither need no answer of their
    /// own.
    ///
    /// # Errors
    /// As for [`Tool::prepare`].
    fn rehearse(&self, input: Input<'_>, place: &Place<'_>) -> Result<Facets, Refusal> {
        Ok(self.prepare(input, place)?.facets)
    }

    /// What a call would change in files, as people are shown it before they answer. Only those see it who may answer;
    /// it may hold what the files hold now. `facets` are those that [`Tool::prepare`] found.
    fn changes(&self, _input: Input<'_>, _facets: &Facets, _place: &Place<'_>) -> Vec<ReviewedChange> {
        Vec::new()
    }

    /// Where [`Tool::prepare`] may run.
    fn preparing(&self) -> Preparing {
        Preparing::OnThread
    }
}

/// Where a tool's input becomes facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preparing {
    /// Wherever the caller is: it takes no time and looks at nothing.
    AtOnce,
    /// On a thread that may wait, because it looks at files or programs.
    OnThread,
}

/// A call's facts: what it would touch, and what is to be done.
#[derive(Debug)]
pub struct Prepared {
    /// What rules, people and grants judge the call by.
    pub facets: Facets,
    /// What is to be done once the call is permitted.
    pub job: Box<dyn Job>,
    /// The input as it is recorded and shown, where that is another than the one that was sent.
    pub(crate) recorded: Option<CanonicalJson>,
}

impl Prepared {
    /// A call with these facets, and what is to be done.
    pub fn new(facets: Facets, job: impl Job + 'static) -> Self {
        Self { facets, job: Box::new(job), recorded: None }
    }
}

/// What a tool has prepared. It is executed at most once, for a recorded permit of its call.
pub trait Job: fmt::Debug + Send + Sync {
    /// Does it, and tells what happened. It ends soon after [`Running::cancel`] is cancelled, and keeps nothing of
    /// `run`.
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r>;
}

/// A job under way.
pub type Executing<'r> = Pin<Box<dyn Future<Output = Executed> + Send + 'r>>;

/// What a tool may look at while it prepares a call.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) config: &'a ToolCallConfig,
    pub(crate) fetcher: &'a Fetcher,
    /// None where nothing is carried out.
    pub(crate) effects: Option<&'a Effects>,
    /// The vault; none where calls are only tried out.
    pub(crate) vault: Option<&'a VaultStore>,
    /// The memory; none where calls are only tried out.
    pub(crate) memory: Option<&'a Memory>,
}

impl Place<'_> {
    /// The workspace.
    #[must_use]
    pub fn workspace(&self) -> &Workspace {
        self.workspace
    }

    /// The path in the workspace that part of an input names: the root where the input says nothing. `name` enters it
    /// in the facets; where the path leads nowhere, a refusal names what it leads through.
    fn path(&self, input: Input<'_>, pointer: &str, name: fn(&mut Facets, String)) -> Result<ResolvedPath, Refusal> {
        let text = input.optional(pointer).unwrap_or(".");
        self.workspace.resolve(text).map_err(|error| {
            let mut facets = Facets::default();
            // A path that is too long tells nothing of the disk, and rules cannot be asked about it.
            if !matches!(error, FileError::PathTooLong { .. }) {
                self.workspace.whereabouts(text).into_iter().for_each(|path| name(&mut facets, path));
            }
            Refusal::from(error).reaching(facets)
        })
    }

    /// Whether what a call replaces is kept, so that guarded files can wait and everything can be undone.
    fn keeps(&self) -> bool {
        self.effects.is_none_or(|effects| effects.store().is_ok())
    }

    /// Refuses guarded paths where nothing can wait for consent. Without its new content a file that is judged by it is
    /// refused.
    fn refuse_guarded(&self, facets: &Facets, content: Option<&[u8]>) -> Result<(), Refusal> {
        let Some(effects) = self.effects else { return Ok(()) };
        let guards = |path: &&String| {
            let Ok(path) = path.parse::<EffectPath>() else { return false };
            effects.guard().guards_file(&path, None, content.unwrap_or_default())
        };
        let Some(path) = facets.paths_written.iter().find(guards) else { return Ok(()) };
        let what = "a file that runs as code later, or says what may run";
        let instead = "keep the state directory on the workspace's file system, so that a person can be asked";
        let error = FileError::Protected { path: path.clone(), what, instead };
        Err(Refusal::from(error).reaching(facets.clone()))
    }

    /// Where a workspace path is on this host.
    fn absolute(&self, path: &ResolvedPath) -> PathBuf {
        if path.is_root() { self.workspace.root().to_owned() } else { self.workspace.root().join(path.as_str()) }
    }
}

type Made = Result<Arc<dyn Tool>, ToolNameError>;
/// Makes a tool.
type Make = fn() -> Made;

/// Every built-in tool: its name, and how it is made.
const BUILTIN: [(&str, Make); 18] = [
    (echo::NAME, echo::tool),
    (sleep::NAME, sleep::tool),
    (fs_read::NAME, fs_read::tool),
    (fs_list::NAME, fs_list::tool),
    (fs_search::NAME, fs_search::tool),
    (fs_write::NAME, fs_write::tool),
    (fs_apply_patch::NAME, fs_apply_patch::tool),
    (process_run::NAME, process_run::tool),
    (process_start::NAME, process_start::tool),
    (process_read::READ, process_read::read),
    (process_read::STOP, process_read::stop),
    (http_fetch::NAME, http_fetch::tool),
    (memory_search::NAME, memory_search::tool),
    (memory_retain::NAME, memory_retain::tool),
    (routine_add::NAME, routine_add::tool),
    (routine_list::NAME, routine_list::tool),
    (routine_run::NAME, routine_run::tool),
    (routine_remove::NAME, routine_remove::tool),
];

/// The names of the built-in tools.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    BUILTIN.iter().map(|(name, _)| *name)
}

/// The built-in tools.
///
/// # Errors
/// A name is malformed, which the tests rule out.
pub fn builtin() -> Result<Vec<Arc<dyn Tool>>, ToolNameError> {
    BUILTIN.iter().map(|(_, tool)| tool()).collect()
}

//! The workspace as the code of a skill finds it: a view, so that what it writes is decided, recorded and undone like
//! the changes of every other call.
//!
//! Where the host keeps no views, files are written at once, guarded ones never; where the grant lets nothing be
//! written, they are only read. What a call changed counts if it succeeded.

use crate::effects::{Ending, Settled, effect_problem};
use crate::flow::resolve::file_problem;
use crate::workspaces::WorkspaceEngine;
use palyra_plugins::{
    DirectoryFiles, FileFault, FileKind, FileStatus, FilesDoor, Grant, OpenHow, Opened, WorkspacePath,
};
use palyra_protocol::{CallRecord, EffectPath, Problem};
use palyra_workspace::effects::{OpenFlags, View, ViewEntryKind, ViewFiles, ViewStatus};
use std::fs::File;
use std::sync::Arc;

/// The files of one call.
#[derive(Debug)]
pub(super) struct CallFiles {
    pub(super) door: Arc<dyn FilesDoor>,
    engine: WorkspaceEngine,
    view: Option<View>,
}

/// A call that did not come to its end leaves nothing behind.
impl Drop for CallFiles {
    fn drop(&mut self) {
        if let (Some(view), Ok(store)) = (self.view.take(), self.engine.effects().store())
            && let Err(error) = store.discard(view.id())
        {
            tracing::warn!(%error, "a view that does not count stays until the next start");
        }
    }
}

impl CallFiles {
    /// Opens what the grant names; none where it names nothing. Blocks.
    pub(super) fn open(engine: &WorkspaceEngine, call: &CallRecord, grant: &Grant) -> Result<Option<Self>, Problem> {
        if grant.roots().is_empty() {
            return Ok(None);
        }
        let workspace = engine.workspace();
        workspace.in_place().map_err(|error| file_problem(&error))?;
        let reads_only = grant.write_roots().is_empty();
        if reads_only || engine.effects().store().is_err() {
            let base = File::open(workspace.root()).map_err(|error| Problem::plain("io", error.to_string()))?;
            let files = DirectoryFiles::new(base.into());
            let door: Arc<dyn FilesDoor> = match reads_only {
                true => Arc::new(files),
                false => Arc::new(GuardedFiles { engine: engine.clone(), files }),
            };
            return Ok(Some(Self { door, engine: engine.clone(), view: None }));
        }
        let most = engine.effects().config().limits.max_bytes;
        let begun = engine.effects().begin(&call.call_id, workspace);
        let view = begun.map_err(|error| effect_problem(&error))?;
        let files = view.files(workspace, most).map_err(|error| effect_problem(&error))?;
        Ok(Some(Self { door: Arc::new(ViewDoor(files)), engine: engine.clone(), view: Some(view) }))
    }

    /// Takes what the call changed to its end. Blocks.
    pub(super) fn settle(mut self, call: &Arc<CallRecord>, succeeded: bool) -> Settled {
        let Some(view) = self.view.take() else { return Settled::default() };
        let ending = match succeeded {
            true => Ending::AsDecided,
            false => Ending::Discard("the call failed: nothing of what it changed counts"),
        };
        self.engine.settle_run(call, &view, ending)
    }
}

fn text(path: &WorkspacePath) -> String {
    path.names().collect::<Vec<_>>().join("/")
}

/// The files of a view.
#[derive(Debug)]
struct ViewDoor(ViewFiles);

fn kind(kind: ViewEntryKind) -> FileKind {
    match kind {
        ViewEntryKind::File => FileKind::File,
        ViewEntryKind::Directory => FileKind::Directory,
        ViewEntryKind::Link => FileKind::Link,
        ViewEntryKind::Other => FileKind::Other,
    }
}

impl FilesDoor for ViewDoor {
    fn open(&self, path: &WorkspacePath, how: OpenHow) -> Result<Opened, FileFault> {
        let (path, OpenHow { write, create, exclusive, truncate, directory, .. }) = (text(path), how);
        let there = self.0.status(&path).map(|status| status.kind);
        match there {
            Ok(ViewEntryKind::Directory) if write => return Err(FileFault::IsDirectory),
            Ok(ViewEntryKind::Directory) if !exclusive => return Ok(Opened::Directory),
            Ok(ViewEntryKind::File) if directory => return Err(FileFault::NotDirectory),
            Ok(ViewEntryKind::Other) => return Err(FileFault::NotPermitted),
            _ => {}
        }
        Ok(Opened::File(self.0.open(&path, OpenFlags { write, create, exclusive, truncate })?))
    }

    fn status(&self, path: &WorkspacePath) -> Result<FileStatus, FileFault> {
        let ViewStatus { kind: found, size, modified_ms } = self.0.status(&text(path))?;
        Ok(FileStatus { kind: kind(found), size, modified_ms })
    }

    fn entries(&self, path: &WorkspacePath) -> Result<Vec<(String, FileKind)>, FileFault> {
        let entries = self.0.entries(&text(path))?;
        Ok(entries.into_iter().map(|(name, found)| (name, kind(found))).collect())
    }

    fn create_directory(&self, path: &WorkspacePath) -> Result<(), FileFault> {
        Ok(self.0.create_directory(&text(path))?)
    }

    fn remove(&self, path: &WorkspacePath, what: FileKind) -> Result<(), FileFault> {
        let path = text(path);
        Ok(if what == FileKind::Directory { self.0.remove_directory(&path) } else { self.0.remove_file(&path) }?)
    }

    fn rename(&self, from: &WorkspacePath, to: &WorkspacePath) -> Result<(), FileFault> {
        Ok(self.0.rename(&text(from), &text(to))?)
    }
}

/// The workspace itself, without the files that run as code later or say what may run: nothing of it could wait for a
/// person.
#[derive(Debug)]
struct GuardedFiles {
    engine: WorkspaceEngine,
    files: DirectoryFiles,
}

impl GuardedFiles {
    fn refuse_guarded(&self, path: &WorkspacePath) -> Result<(), FileFault> {
        let guard = self.engine.effects().guard();
        match path.to_string().parse::<EffectPath>() {
            Ok(path) if !guard.lists(&path) && !guard.guards_file(&path, None, &[]) => Ok(()),
            _ => Err(FileFault::NotPermitted),
        }
    }
}

impl FilesDoor for GuardedFiles {
    fn open(&self, path: &WorkspacePath, how: OpenHow) -> Result<Opened, FileFault> {
        if how.write {
            self.refuse_guarded(path)?;
        }
        self.files.open(path, how)
    }

    fn status(&self, path: &WorkspacePath) -> Result<FileStatus, FileFault> {
        self.files.status(path)
    }

    fn entries(&self, path: &WorkspacePath) -> Result<Vec<(String, FileKind)>, FileFault> {
        self.files.entries(path)
    }

    fn create_directory(&self, path: &WorkspacePath) -> Result<(), FileFault> {
        self.refuse_guarded(path)?;
        self.files.create_directory(path)
    }

    fn remove(&self, path: &WorkspacePath, what: FileKind) -> Result<(), FileFault> {
        self.refuse_guarded(path)?;
        self.files.remove(path, what)
    }

    fn rename(&self, from: &WorkspacePath, to: &WorkspacePath) -> Result<(), FileFault> {
        self.refuse_guarded(from)?;
        self.refuse_guarded(to)?;
        self.files.rename(from, to)
    }
}

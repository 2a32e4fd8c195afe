//! The store of views: private directories on the workspace's file system, one for each call that works on a view.
//!
//! ```text
//! ID/start         made when the view began; its change time is the view's start
//! ID/upper, work   the overlay's layers
//! ID/kept/N        before step N its new entry, after it the old one
//! ID/plan.json     durable before the first step; without it the view is thrown away
//! ID/result.json   durable after the last step
//! ```
//!
//! The store is private to the daemon (0700) and lies outside of every workspace: an upper layer inside its own lower
//! layer is refused by the kernel.

use super::apply::{Applied, Run};
use super::collect::directory_times;
use super::error::{EffectError, at};
use super::plan::{Action, PLAN_VERSION, Plan, Result as Ended, Step, StepEnd};
use super::sys::{changed_at, kind_of, look, mark_time, names, open_dir};
use crate::Workspace;
use palyra_protocol::{Digest, EffectPath};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, fchmod, fstat, fsync, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The largest plan that is read: 200,000 steps with long paths.
const MAX_PLAN_BYTES: u64 = 1 << 30;

/// How long replaced entries are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// The longest time.
    pub max_age: Duration,
    /// The most bytes; the oldest go first.
    pub max_bytes: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { max_age: Duration::from_secs(7 * 24 * 60 * 60), max_bytes: 2 << 30 }
    }
}

/// An effect that can be undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The view's id.
    pub id: String,
    /// Bytes that are kept.
    pub bytes: u64,
    /// When it was applied, in milliseconds since 1970.
    pub applied_at_ms: u64,
    /// The view that undid it.
    pub undone_by: Option<String>,
}

/// How far a view has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewStage {
    /// A run may still work on it.
    Open,
    /// Its plan is durable, and not carried out.
    Planned,
    /// Its plan is carried out.
    Done {
        /// Bytes that are kept for an undo.
        kept_bytes: u64,
        /// The view that undid it.
        undone_by: Option<String>,
    },
}

/// The store.
#[derive(Debug)]
pub struct ViewStore {
    base: OwnedFd,
    path: PathBuf,
}

/// How long the name of a store is that lies beside others.
const NAME: usize = 12;

/// A view: what a run writes instead of the workspace.
#[derive(Debug)]
pub struct View {
    id: String,
    directory: OwnedFd,
    path: PathBuf,
    started: (i64, i64),
}

impl ViewStore {
    /// Opens the store for a workspace, making it if it is not there.
    ///
    /// # Errors
    /// It is not on the workspace's file system, so that nothing could be renamed between them, or the host failed.
    pub fn open(path: &Path, workspace: &Workspace) -> Result<Self, EffectError> {
        let io = |source| EffectError::Io { what: path.display().to_string(), source };
        std::fs::create_dir_all(path).map_err(io)?;
        let base = openat(rustix::fs::CWD, path, DIRECTORY, Mode::empty()).map_err(at(b"the store"))?;
        fchmod(&base, Mode::RWXU).map_err(at(b"the store"))?;
        let path = std::fs::canonicalize(path).map_err(io)?;
        if !on_one_mount(base.as_fd(), workspace.root_fd()).map_err(at(b"the store"))? {
            return Err(EffectError::OtherFileSystem { store: path.display().to_string() });
        }
        Ok(Self { base, path })
    }

    /// Begins a view. `id` is a plain name: a call's, a session's.
    ///
    /// # Errors
    /// There is one of that name, or the host failed.
    pub fn begin(&self, id: &str, workspace: &Workspace) -> Result<View, EffectError> {
        match mkdirat(&self.base, id, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(EffectError::ViewExists { id: id.to_owned() }),
            Err(errno) => return Err(EffectError::at(id.as_bytes(), errno)),
        }
        let directory = open_dir(self.base.as_fd(), id.as_bytes()).map_err(at(id.as_bytes()))?;
        for layer in ["upper", "work"] {
            mkdirat(&directory, layer, Mode::RWXU).map_err(at(layer.as_bytes()))?;
        }
        // The view's root shows the upper layer's permissions.
        let root = fstat(workspace.root_fd()).map_err(at(b"."))?;
        let upper = open_dir(directory.as_fd(), b"upper").map_err(at(b"upper"))?;
        fchmod(&upper, Mode::from_raw_mode(super::sys::plain_mode(&root))).map_err(at(b"upper"))?;
        self.give_to_owner(&directory, &root)?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let marker = openat(&directory, "start", flags, Mode::RUSR | Mode::WUSR).map_err(at(b"start"))?;
        let started = mark_time(&marker).map_err(at(b"start"))?;
        Ok(View { id: id.to_owned(), directory, path: self.path.join(id), started })
    }

    /// Root's view belongs to the workspace's owner, who may be the user that the run has.
    fn give_to_owner(&self, directory: &OwnedFd, root: &rustix::fs::Stat) -> Result<(), EffectError> {
        let own = fstat(&self.base).map_err(at(b"the store"))?;
        if (own.st_uid, own.st_gid) == (root.st_uid, root.st_gid) || own.st_uid != 0 {
            return Ok(());
        }
        let (uid, gid) = (rustix::fs::Uid::from_raw(root.st_uid), rustix::fs::Gid::from_raw(root.st_gid));
        for layer in ["upper", "work"] {
            let layer_fd = open_dir(directory.as_fd(), layer.as_bytes()).map_err(at(layer.as_bytes()))?;
            rustix::fs::fchown(&layer_fd, Some(uid), Some(gid)).map_err(at(layer.as_bytes()))?;
        }
        Ok(())
    }

    /// Where the store of a workspace belongs: in the state directory if that is on the workspace's file system, and in
    /// a private directory beside the workspace otherwise.
    #[must_use]
    pub fn place(state_dir: &Path, workspace: &Path) -> PathBuf {
        let existing = state_dir.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
        let open = |path: &Path| openat(rustix::fs::CWD, path, DIRECTORY, Mode::empty());
        let together = match (open(existing), open(workspace)) {
            (Ok(state), Ok(workspace)) => on_one_mount(state.as_fd(), workspace.as_fd()).unwrap_or(false),
            _ => false,
        };
        match workspace.parent() {
            Some(parent) if !together => parent.join(format!(".palyra-effects-{}", Self::name_of(workspace))),
            _ => Self::within(&state_dir.join("effects"), workspace),
        }
    }

    /// The store of a workspace in a directory that holds those of several: each has one of its own, because a plan
    /// speaks of the entries of one workspace.
    #[must_use]
    pub fn within(base: &Path, workspace: &Path) -> PathBuf {
        base.join(Self::name_of(workspace))
    }

    fn name_of(workspace: &Path) -> String {
        let digest = Digest::of(workspace.as_os_str().as_encoded_bytes()).to_string();
        digest.chars().filter(char::is_ascii_hexdigit).take(NAME).collect()
    }

    /// Hands the views that lie in such a directory itself over to one workspace: versions that knew of one workspace
    /// put them there. Cut off in between, it goes on the next time.
    ///
    /// # Errors
    /// The host failed.
    pub fn adopt(base: &Path, workspace: &Path) -> std::io::Result<usize> {
        let entries = match std::fs::read_dir(base) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let own = Self::within(base, workspace);
        let mut moved = 0;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let is_store =
                name.to_str().is_some_and(|name| name.len() == NAME && name.bytes().all(|b| b.is_ascii_hexdigit()));
            if is_store || !entry.file_type()?.is_dir() {
                continue;
            }
            std::fs::create_dir_all(&own)?;
            std::fs::rename(entry.path(), own.join(&name))?;
            moved += 1;
        }
        Ok(moved)
    }

    /// Finds a view that was begun before.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, id: &str) -> Result<View, EffectError> {
        let directory = self.view_directory(id)?;
        let stat = look(directory.as_fd(), b"start")?.ok_or_else(|| EffectError::NotKept { id: id.to_owned() })?;
        Ok(View { id: id.to_owned(), directory, path: self.path.join(id), started: changed_at(&stat) })
    }

    fn view_directory(&self, id: &str) -> Result<OwnedFd, EffectError> {
        let plain = !id.is_empty() && !id.contains('/') && id != "." && id != "..";
        let found = if plain { open_dir(self.base.as_fd(), id.as_bytes()) } else { Err(Errno::NOENT) };
        found.map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => EffectError::NotKept { id: id.to_owned() },
            other => EffectError::at(id.as_bytes(), other),
        })
    }

    /// Carries out a view's plan. Calling it again finishes what a crash cut off, and repeats nothing.
    ///
    /// # Errors
    /// There is no plan, or the host failed; then it can be called again.
    pub fn apply(&self, id: &str, workspace: &Workspace) -> Result<Applied, EffectError> {
        let directory = self.view_directory(id)?;
        let plan = read_plan(&directory, id)?;
        let kept = open_dir(directory.as_fd(), b"kept").map_err(at(b"kept"))?;
        let ends = match read_document::<Ended>(&directory, "result.json")? {
            Some(ended) => ended.ends,
            None => {
                self.keep_versions(&directory, &kept, &plan)?;
                Run { workspace, kept: &kept, base: self.base.as_fd() }.all(&plan)?
            }
        };
        let kept_bytes = bytes_below(&kept)?;
        let ended = Ended { ends, kept_bytes, done_at_ms: now_ms(), undone_by: None };
        let result = write_document(&directory, "result.json", &ended)?;
        mark_time(&result).map_err(at(b"result.json"))?;
        if let Some(undone) = &plan.undoes {
            self.mark_undone(undone, id)?;
        }
        for layer in ["upper", "work"] {
            remove_tree(&directory, layer.as_bytes())?;
        }
        Ok(summary(&plan, &ended))
    }

    /// Stages what a view withheld as the view `held_id`, now that a person consented. Returns the digest under which
    /// the intent is recorded; [`ViewStore::apply`] carries it out.
    ///
    /// # Errors
    /// Nothing is withheld there, there is such a view, or the host failed.
    pub fn stage_withheld(&self, id: &str, held_id: &str, workspace: &Workspace) -> Result<Digest, EffectError> {
        let plan = self.staged_plan(id)?;
        if plan.withheld.is_empty() {
            return Err(EffectError::NotKept { id: id.to_owned() });
        }
        let takes = |step: &Step| matches!(step.action, Action::Add | Action::Exchange);
        let steps = (0..).zip(plan.withheld).map(|(number, step)| Step {
            from: takes(&step).then(|| (id.to_owned(), step.number)),
            number,
            ..step
        });
        let steps: Vec<Step> = steps.collect();
        let parents = steps.iter().map(|step| step.path.parent().to_vec()).collect();
        let times = directory_times(workspace, &parents)?;
        let (withheld, conflicts) = (Vec::new(), Vec::new());
        let (version, restore_times, undoes) = (PLAN_VERSION, false, None);
        let plan = Plan { version, steps, withheld, conflicts, times, restore_times, undoes };
        self.remove_unfinished(held_id)?;
        let view = self.begin(held_id, workspace)?;
        let kept = view.make_kept()?;
        view.write_plan(&plan, &kept)
    }

    /// Removes a view of which nothing counts: one that was cut off before its intent was recorded.
    fn remove_unfinished(&self, id: &str) -> Result<(), EffectError> {
        match self.view_directory(id) {
            Ok(directory) if look(directory.as_fd(), b"result.json")?.is_none() => {
                remove_tree(&self.base, id.as_bytes())
            }
            Ok(_) | Err(EffectError::NotKept { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Throws away what a view withheld. What counts of it stays, and can still be undone.
    ///
    /// # Errors
    /// The host failed; then it can be called again.
    pub fn drop_withheld(&self, id: &str) -> Result<(), EffectError> {
        let plan = self.staged_plan(id)?;
        let kept = open_dir(self.view_directory(id)?.as_fd(), b"kept").map_err(at(b"kept"))?;
        plan.withheld.iter().try_for_each(|step| remove_tree(&kept, step.number.to_string().as_bytes()))
    }

    /// Keeps a document beside a view, durably: a crash leaves the old one or the new one.
    ///
    /// # Errors
    /// There is no such view, or the host failed.
    pub fn put(&self, id: &str, name: &str, document: &impl serde::Serialize) -> Result<(), EffectError> {
        write_document(&self.view_directory(id)?, name, document).map(drop)
    }

    /// A document that was kept beside a view.
    ///
    /// # Errors
    /// There is no such view, or it cannot be read.
    pub fn get<T: serde::de::DeserializeOwned>(&self, id: &str, name: &str) -> Result<Option<T>, EffectError> {
        read_document(&self.view_directory(id)?, name)
    }

    /// Every view, whatever became of it.
    ///
    /// # Errors
    /// The host failed.
    pub fn all(&self) -> Result<Vec<String>, EffectError> {
        self.ids()
    }

    /// How far a view has come.
    ///
    /// # Errors
    /// There is no such view, or the host failed.
    pub fn stage_of(&self, id: &str) -> Result<ViewStage, EffectError> {
        let directory = self.view_directory(id)?;
        Ok(match read_document::<Ended>(&directory, "result.json")? {
            Some(ended) => ViewStage::Done { kept_bytes: ended.kept_bytes, undone_by: ended.undone_by },
            None if look(directory.as_fd(), b"plan.json")?.is_some() => ViewStage::Planned,
            None => ViewStage::Open,
        })
    }

    fn mark_undone(&self, id: &str, by: &str) -> Result<(), EffectError> {
        let directory = self.view_directory(id)?;
        if let Some(mut ended) = read_document::<Ended>(&directory, "result.json")? {
            ended.undone_by = Some(by.to_owned());
            ended.kept_bytes = 0;
            write_document(&directory, "result.json", &ended)?;
        }
        Ok(())
    }

    /// Throws a view away. What it would have changed never happened.
    ///
    /// # Errors
    /// The host failed; then it can be called again.
    pub fn discard(&self, id: &str) -> Result<(), EffectError> {
        self.view_directory(id)?;
        remove_tree(&self.base, id.as_bytes())
    }

    /// Views whose plan is durable and not carried out: a crash cut them off. Others without a result are in `.1`.
    ///
    /// # Errors
    /// The host failed.
    pub fn unfinished(&self) -> Result<(Vec<String>, Vec<String>), EffectError> {
        let (mut planned, mut abandoned) = (Vec::new(), Vec::new());
        for id in self.ids()? {
            let directory = self.view_directory(&id)?;
            if look(directory.as_fd(), b"result.json")?.is_some() {
                continue;
            }
            let has_plan = look(directory.as_fd(), b"plan.json")?.is_some();
            if has_plan { planned.push(id) } else { abandoned.push(id) }
        }
        Ok((planned, abandoned))
    }

    /// The digest of a view's plan, to compare with the intent that was recorded.
    ///
    /// # Errors
    /// There is no plan, or the host failed.
    pub fn plan_digest(&self, id: &str) -> Result<Digest, EffectError> {
        let directory = self.view_directory(id)?;
        let bytes = read_file(&directory, "plan.json")?.ok_or_else(|| EffectError::NotKept { id: id.to_owned() })?;
        Ok(Plan::digest(&bytes))
    }

    /// What can be undone, oldest first.
    ///
    /// # Errors
    /// The host failed.
    pub fn kept(&self) -> Result<Vec<Kept>, EffectError> {
        let mut kept = Vec::new();
        for id in self.ids()? {
            let directory = self.view_directory(&id)?;
            if let Some(ended) = read_document::<Ended>(&directory, "result.json")? {
                let (bytes, applied_at_ms, undone_by) = (ended.kept_bytes, ended.done_at_ms, ended.undone_by);
                kept.push(Kept { id, bytes, applied_at_ms, undone_by });
            }
        }
        kept.sort_by_key(|kept| kept.applied_at_ms);
        Ok(kept)
    }

    /// Removes what was kept long enough. Returns the ids that are gone.
    ///
    /// # Errors
    /// The host failed.
    pub fn prune(&self, retention: Retention) -> Result<Vec<String>, EffectError> {
        self.prune_unless(retention, &|_| false)
    }

    /// The same, but for those that are still needed.
    ///
    /// # Errors
    /// The host failed.
    pub fn prune_unless(
        &self,
        retention: Retention,
        needed: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<String>, EffectError> {
        let kept = self.kept()?;
        let mut total: u64 = kept.iter().map(|kept| kept.bytes).sum();
        let oldest = now_ms().saturating_sub(u64::try_from(retention.max_age.as_millis()).unwrap_or(u64::MAX));
        let mut removed = Vec::new();
        for kept in kept {
            if kept.applied_at_ms >= oldest && total <= retention.max_bytes {
                break;
            }
            if needed(&kept.id) {
                continue;
            }
            total = total.saturating_sub(kept.bytes);
            remove_tree(&self.base, kept.id.as_bytes())?;
            removed.push(kept.id);
        }
        Ok(removed)
    }

    fn ids(&self) -> Result<Vec<String>, EffectError> {
        let mut ids = Vec::new();
        for name in names(&self.base, b"the store")? {
            let is_directory =
                look(self.base.as_fd(), name.to_bytes())?.is_some_and(|s| kind_of(&s) == FileType::Directory);
            if let (true, Ok(id)) = (is_directory, name.into_string()) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    pub(super) fn base(&self) -> BorrowedFd<'_> {
        self.base.as_fd()
    }

    /// The plan of a view that is staged and not carried out.
    pub(super) fn staged_plan(&self, id: &str) -> Result<Plan, EffectError> {
        read_plan(&self.view_directory(id)?, id)
    }

    pub(super) fn plan_of(&self, id: &str) -> Result<(Plan, Ended, (i64, i64)), EffectError> {
        let directory = self.view_directory(id)?;
        let not_kept = || EffectError::NotKept { id: id.to_owned() };
        let ended = read_document::<Ended>(&directory, "result.json")?.ok_or_else(not_kept)?;
        let stat = look(directory.as_fd(), b"result.json")?.ok_or_else(not_kept)?;
        Ok((read_plan(&directory, id)?, ended, changed_at(&stat)))
    }
}

impl View {
    /// The view's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The overlay's upper layer.
    #[must_use]
    pub fn upper(&self) -> PathBuf {
        self.path.join("upper")
    }

    /// The overlay's work directory.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    pub(super) fn started(&self) -> (i64, i64) {
        self.started
    }

    /// Where file tools put what they prepared.
    pub(crate) fn kept_for_files(&self) -> Result<OwnedFd, EffectError> {
        self.make_kept()
    }

    pub(super) fn make_kept(&self) -> Result<OwnedFd, EffectError> {
        match mkdirat(&self.directory, "kept", Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => open_dir(self.directory.as_fd(), b"kept").map_err(at(b"kept")),
            Err(errno) => Err(EffectError::at(b"kept", errno)),
        }
    }

    /// Makes the staged entries and the plan durable.
    pub(super) fn write_plan(&self, plan: &Plan, kept: &OwnedFd) -> Result<Digest, EffectError> {
        // The overlay is mounted `volatile`: nothing that the run wrote has been synced yet.
        rustix::fs::syncfs(kept).map_err(at(b"kept"))?;
        let bytes = serde_json::to_vec(plan).map_err(|_| EffectError::Damaged { what: "plan.json".to_owned() })?;
        write_bytes(&self.directory, "plan.json", &bytes)?;
        Ok(Plan::digest(&bytes))
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn summary(plan: &Plan, ended: &Ended) -> Applied {
    let ended_so = |number: u32, end: StepEnd| ended.ends.contains(&(number, end));
    let late = plan.steps.iter().filter(|step| ended_so(step.number, StepEnd::Conflict));
    let conflicts = plan.conflicts.iter().chain(late).map(|step| step.path.clone()).collect();
    let withheld: Vec<EffectPath> = plan.withheld.iter().map(|step| step.path.clone()).collect();
    let done = ended.ends.iter().filter(|(_, end)| *end == StepEnd::Done).count();
    Applied { done, conflicts, withheld, kept_bytes: ended.kept_bytes }
}

/// Whether entries can be renamed between two directories.
fn on_one_mount(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> Result<bool, Errno> {
    let (a, b) = (fstat(one)?, fstat(other)?);
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{StatxFlags, statx};
        let mount = |fd| statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).map(|stat| stat.stx_mnt_id);
        if mount(one)? != mount(other)? {
            return Ok(false);
        }
    }
    Ok(a.st_dev == b.st_dev)
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn read_plan(directory: &OwnedFd, id: &str) -> Result<Plan, EffectError> {
    read_document(directory, "plan.json")?.ok_or_else(|| EffectError::NotKept { id: id.to_owned() })
}

fn read_document<T: serde::de::DeserializeOwned>(directory: &OwnedFd, name: &str) -> Result<Option<T>, EffectError> {
    let Some(bytes) = read_file(directory, name)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|_| EffectError::Damaged { what: name.to_owned() })
}

fn read_file(directory: &OwnedFd, name: &str) -> Result<Option<Vec<u8>>, EffectError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(directory, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(EffectError::at(name.as_bytes(), errno)),
    };
    let mut bytes = Vec::new();
    let read = file.take(MAX_PLAN_BYTES).read_to_end(&mut bytes);
    read.map(|_| Some(bytes)).map_err(|source| EffectError::Io { what: name.to_owned(), source })
}

fn write_document(directory: &OwnedFd, name: &str, document: &impl serde::Serialize) -> Result<OwnedFd, EffectError> {
    let bytes = serde_json::to_vec(document).map_err(|_| EffectError::Damaged { what: name.to_owned() })?;
    write_bytes(directory, name, &bytes)
}

/// Replaces a file of the store, durably: a crash leaves the old one or the new one.
fn write_bytes(directory: &OwnedFd, name: &str, bytes: &[u8]) -> Result<OwnedFd, EffectError> {
    let fresh = format!("{name}.new");
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(directory, fresh.as_str(), flags, Mode::RUSR | Mode::WUSR).map_err(at(name.as_bytes()))?;
    let mut file = File::from(file);
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    written.map_err(|source| match Errno::from_io_error(&source) {
        Some(errno) => EffectError::at(name.as_bytes(), errno),
        None => EffectError::Io { what: name.to_owned(), source },
    })?;
    rustix::fs::renameat_with(directory, fresh.as_str(), directory, name, RenameFlags::empty())
        .map_err(at(name.as_bytes()))?;
    fsync(directory).map_err(at(name.as_bytes()))?;
    Ok(file.into())
}

/// How many bytes the files beneath a directory have.
fn bytes_below(directory: &OwnedFd) -> Result<u64, EffectError> {
    let mut total = 0_u64;
    for name in names(directory, b"kept")? {
        let Some(stat) = look(directory.as_fd(), name.to_bytes())? else { continue };
        total = total.saturating_add(match kind_of(&stat) {
            // What cannot be opened is not counted.
            FileType::Directory => match open_dir(directory.as_fd(), name.to_bytes()) {
                Ok(below) => bytes_below(&below)?,
                Err(_) => 0,
            },
            _ => u64::try_from(stat.st_size).unwrap_or(0),
        });
    }
    Ok(total)
}

/// Removes an entry with everything beneath it, whatever permissions it has.
pub(super) fn remove_tree(parent: &OwnedFd, name: &[u8]) -> Result<(), EffectError> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(EffectError::at(name, errno)),
    }
    let directory = match open_dir(parent.as_fd(), name) {
        Err(Errno::ACCESS) => {
            super::sys::set_mode(parent.as_fd(), name, 0o700).map_err(at(name))?;
            open_dir(parent.as_fd(), name).map_err(at(name))?
        }
        other => other.map_err(at(name))?,
    };
    fchmod(&directory, Mode::RWXU).map_err(at(name))?;
    for below in names(&directory, name)? {
        remove_tree(&directory, below.to_bytes())?;
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(at(name))
}

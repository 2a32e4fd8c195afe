//! Read-only roots of a run, closed to the host's sockets and named pipes.
//!
//! A read-only mount keeps files from being written. It does not keep a process from connecting to a socket or writing
//! into a pipe that lies there, and whoever listens is outside. In an overlay both are entries of another file system,
//! to which nobody listens. So each root that the operator named is covered by one with nothing in its upper layer, for
//! this run alone: what changes in the root meanwhile would not show in one that lasts.
//!
//! Not covered: roots inside the workspace, whose view does the same; roots that hold another that is written; and those
//! of toolchains, where nothing listens.

use super::plan::{MountStep, c_string};
use super::sys::{self, Around};
use super::walls::{covered, place};
use crate::error::SandboxError;
use crate::hidden_files::HiddenIn;
use crate::outcome::Layer;
use crate::policy::SandboxProcessRunnerPolicy;
use crate::roots::Roots;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The layer's name in the report.
const LAYER: &str = "closed_roots";

/// The roots that are closed, and those that cannot be.
#[derive(Debug, Default)]
pub(super) struct ClosedRoots {
    closed: Vec<PathBuf>,
    open: Vec<PathBuf>,
}

impl ClosedRoots {
    /// Looks at the roots that the operator named.
    pub(super) fn of(policy: &SandboxProcessRunnerPolicy, roots: &Roots) -> Self {
        let named = policy.read_roots.iter().filter_map(|root| std::fs::canonicalize(root).ok());
        let mut named: Vec<PathBuf> = named.filter(|root| roots.read.contains(root) && root.is_dir()).collect();
        named.sort_unstable();
        named.dedup();
        named.retain(|root| !root.starts_with(&roots.workspace));
        // One inside another is reached through the overlay of that one.
        let outermost = |root: &PathBuf, all: &[PathBuf]| !all.iter().any(|o| o != root && root.starts_with(o));
        let all = named.clone();
        let written = || roots.writable().chain(&roots.filled).chain([&roots.workspace]);
        let mut found = Self::default();
        for root in named.into_iter().filter(|root| outermost(root, &all)) {
            let closes = !written().any(|inner| inner.starts_with(&root)) && can_be_covered(&root);
            if closes { found.closed.push(root) } else { found.open.push(root) }
        }
        found
    }

    /// The steps that close them.
    pub(super) fn steps(&self) -> Result<Vec<MountStep>, SandboxError> {
        steps(&self.closed)
    }

    /// What the report says of them.
    pub(super) fn layers(&self, mounted: bool) -> Vec<Layer> {
        let names =
            |roots: &[PathBuf]| roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ");
        let mut layers = Vec::new();
        if mounted && !self.closed.is_empty() {
            let detail = format!("sockets and named pipes of the host lead nowhere in {}", names(&self.closed));
            layers.push(Layer::applied(LAYER, detail));
        }
        if !self.open.is_empty() {
            let detail = format!("sockets and named pipes of the host can be reached in {}", names(&self.open));
            layers.push(Layer::missing(LAYER, detail));
        }
        layers
    }
}

fn steps(roots: &[PathBuf]) -> Result<Vec<MountStep>, SandboxError> {
    if roots.is_empty() {
        return Ok(Vec::new());
    }
    let unavailable = || {
        let source = std::io::Error::other("no directory to prepare overlays in");
        SandboxError::LayerUnavailable { layer: LAYER, source }
    };
    let place = place(roots.iter().map(PathBuf::as_path)).ok_or_else(unavailable)?;
    let named = |path: &Path| c_string(path, "a read-only root");
    let table = std::fs::read("/proc/self/mountinfo").map_err(SandboxError::io("read the table of mounts"))?;
    let empty = place.join("empty");
    let mut steps = vec![
        MountStep::Tmpfs { target: named(place)?, options: c"mode=755,size=64k,nr_inodes=16".to_owned() },
        MountStep::Directory(named(&empty)?),
    ];
    for root in roots {
        let inside = HiddenIn { directory: root.clone(), programs: Vec::new() };
        steps.extend(covered(&empty, &inside, &table)?);
    }
    steps.push(MountStep::Detach(named(place)?));
    Ok(steps)
}

/// Whether an overlay can be put over a root: tried once, in a namespace of its own.
fn can_be_covered(root: &Path) -> bool {
    static KNOWN: Mutex<BTreeMap<PathBuf, bool>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(can) = known.get(root) {
        return *can;
    }
    let around = if rustix::process::geteuid().is_root() { Around::Nothing } else { Around::UserNamespace };
    let can = steps(&[root.to_owned()]).is_ok_and(|steps| sys::mount_namespace(&steps, around).is_ok());
    known.insert(root.to_owned(), can);
    can
}

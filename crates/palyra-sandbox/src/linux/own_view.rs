//! A run's own view of the workspace: an overlay over it, mounted for this run alone.
//!
//! What the run writes goes to an upper layer outside of the workspace, so that it can be looked at before it counts.
//! The overlay is mounted by the supervisor, in a mount namespace of its own above the shared view ([`super::view`]),
//! because two runs never share an upper layer. It costs the same however large the workspace is.
//!
//! A root daemon's run has another user, to whom the workspace's owner is mapped. Both layers are mapped alike, and the
//! overlay is mounted by that user, who keeps root's powers for the moment: the kernel acts on the upper layer as
//! whoever mounted it, and an owner without a mapping could not write there.

use super::identity::{Identity, owner_of};
use super::plan::{MountStep, TreeAccess, c_string};
use super::sys;
use super::view;
use super::walls::{escaped, place};
use crate::error::SandboxError;
use crate::policy::WorkspaceView;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// The steps that put the view over the workspace.
pub(super) fn steps(
    workspace: &Path,
    layers: &WorkspaceView,
    identity: &Identity,
) -> Result<Vec<MountStep>, SandboxError> {
    let target = c_string(workspace, "the workspace")?;
    let overlay = |upper: &Path, work: &Path| -> Result<MountStep, SandboxError> {
        let mut options = OsString::from("lowerdir=");
        options.push(escaped(workspace));
        options.push(",upperdir=");
        options.push(escaped(upper));
        options.push(",workdir=");
        options.push(escaped(work));
        // `volatile`: unmounting does not sync the whole file system; what counts is synced when it is taken over.
        options.push(",userxattr,volatile");
        let options = c_string(options, "the options of an overlay")?;
        Ok(MountStep::Overlay { options, target: target.clone(), access: TreeAccess::Write })
    };
    let Some(user) = identity.user else {
        return Ok(vec![overlay(&layers.upper, &layers.work)?]);
    };
    let unavailable = |source| SandboxError::LayerUnavailable { layer: LAYER, source };
    let base = layers.upper.parent().filter(|base| layers.work.parent() == Some(base));
    let base = base.ok_or_else(|| unavailable(std::io::Error::other("the layers of a view lie beside each other")))?;
    let owner = owner_of(workspace)?;
    let table = (owner.uid != user.uid).then(|| view::mapping(owner, user)).transpose().map_err(unavailable)?;
    let tree = sys::clone_mount(base, TreeAccess::Write, table.as_deref()).map_err(unavailable)?;
    // The way to the store may be closed in the view: its layers are attached elsewhere until the overlay has them.
    let place = place([workspace].into_iter())
        .ok_or_else(|| unavailable(std::io::Error::other("no directory to prepare a view in")))?;
    let named = |path: &Path| c_string(path, "a layer of a view");
    let attached = place.join("view");
    let (upper, work) = (attached.join("upper"), attached.join("work"));
    Ok(vec![
        MountStep::Tmpfs { target: named(place)?, options: c"mode=755,size=64k,nr_inodes=16".to_owned() },
        MountStep::Directory(named(&attached)?),
        MountStep::Attach { tree: Arc::new(tree), target: named(&attached)? },
        overlay(&upper, &work)?,
        MountStep::Detach(named(place)?),
    ])
}

/// The layer's name in the report.
pub(super) const LAYER: &str = "workspace_view";

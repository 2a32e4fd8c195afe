//! What a run's token really reaches: tried with its rights before anything runs.
//!
//! Windows has no view of the file tree per process. What holds is the permissions that are on the disk, so these are
//! put to the test: a root that the token cannot use is a refusal that says how to open it, and a protected path, or a
//! read-only root, that it could open too far is one as well. Nothing here changes a permission: that is the operator's
//! to do.

use super::token::RestrictedToken;
use crate::error::SandboxError;
use crate::policy::SandboxProcessRunnerPolicy;
use crate::roots::Roots;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// List a directory, or read a file.
const READ: u32 = 0x1;
/// Create a file in a directory, or write one.
const WRITE: u32 = 0x2;
/// Lets directories be opened too.
const FILE_FLAG_BACKUP_SEMANTICS: u32 = 0x0200_0000;

/// Tries everything.
pub(super) fn check(
    policy: &SandboxProcessRunnerPolicy,
    roots: &Roots,
    token: &RestrictedToken,
) -> Result<(), SandboxError> {
    let writable: Vec<&PathBuf> = roots.writable().collect();
    for root in roots.all() {
        let wanted = writable.contains(&root);
        if !may(token, root, READ)? || (wanted && !may(token, root, WRITE)?) {
            return Err(closed(root, wanted));
        }
        if !wanted && may(token, root, WRITE)? {
            return Err(SandboxError::Unsupported {
                tier: policy.tier,
                detail: format!(
                    "`{}` is to be read only, and its permissions let everybody write; take that away with icacls",
                    root.display()
                ),
            });
        }
    }
    for protected in &roots.protected {
        let inside = fs::read_dir(protected).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
        for path in std::iter::once(protected.clone()).chain(inside) {
            if may(token, &path, READ)? || may(token, &path, WRITE)? {
                return Err(SandboxError::ProtectedPathExposed { root: path, protected: protected.clone() });
            }
        }
    }
    Ok(())
}

/// Whether the token can open a path so. What is neither a yes nor a no is an error.
fn may(token: &RestrictedToken, path: &Path, access: u32) -> Result<bool, SandboxError> {
    let attempt = || OpenOptions::new().access_mode(access).custom_flags(FILE_FLAG_BACKUP_SEMANTICS).open(path);
    match token.with_its_rights(attempt).and_then(|result| result) {
        Ok(_opened) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound) => Ok(false),
        Err(source) => Err(SandboxError::LayerUnavailable { layer: "restricted_token", source }),
    }
}

/// A root that nobody opened for sandboxed processes yet.
fn closed(root: &Path, writable: bool) -> SandboxError {
    let shown = super::run::plain(root);
    let shown = shown.display();
    let fix = if writable {
        format!(
            "icacls \"{shown}\" /grant *S-1-5-12:(OI)(CI)M /T   and   icacls \"{shown}\" /setintegritylevel (OI)(CI)L /T"
        )
    } else {
        format!("icacls \"{shown}\" /grant *S-1-5-12:(OI)(CI)RX /T")
    };
    SandboxError::BackendBlocked {
        backend: "restricted token",
        detail: format!("`{shown}` is not open to sandboxed processes"),
        fix,
    }
}

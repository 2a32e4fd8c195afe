//! Following a path name by name, as the kernel does.
//!
//! It tells three things that a canonical path alone does not: every name under which the file is reached, the real
//! path, and whether anybody who may write to the workspace could lead the same path elsewhere. A path that can be led
//! elsewhere is shown to people but never handed to the kernel.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// As many symlinks as the kernel follows.
const MOST_LINKS: usize = 40;

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Absolute, free of symlinks.
    pub(crate) path: PathBuf,
    /// The path itself and the target of each symlink that stands for the file.
    pub(crate) hops: Vec<PathBuf>,
    /// Whether a name on the way is looked up in a directory that `writable` tells.
    pub(crate) replaceable: bool,
}

/// Follows an absolute path. `None` when it leads nowhere.
pub(crate) fn walk(path: &Path, writable: impl Fn(&Path) -> bool) -> Option<Walk> {
    let mut walk = Walk { path: PathBuf::new(), hops: vec![path.to_owned()], replaceable: false };
    if cfg!(not(unix)) {
        walk.path = fs::canonicalize(path).ok()?;
        return Some(walk);
    }
    let mut ahead = names(path);
    walk.path.push("/");
    let mut links = 0;
    while let Some(name) = ahead.pop() {
        if name == ".." {
            walk.path.pop();
            continue;
        }
        walk.replaceable |= writable(&walk.path);
        let next = walk.path.join(&name);
        let Ok(target) = fs::read_link(&next) else {
            walk.path = next;
            continue;
        };
        links += 1;
        if links > MOST_LINKS {
            return None;
        }
        if ahead.is_empty() {
            walk.hops.push(walk.path.join(&target));
        }
        if target.is_absolute() {
            walk.path = PathBuf::from("/");
        }
        ahead.extend(names(&target));
    }
    walk.path.symlink_metadata().ok()?;
    Some(walk)
}

/// The names of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use tempfile::TempDir;

    #[test]
    fn it_leads_where_the_kernel_goes_and_tells_who_could_change_that() {
        let dir = TempDir::new().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for name in ["fixed", "open"] {
            fs::create_dir(top.join(name)).unwrap();
        }
        fs::write(top.join("fixed/tool"), "").unwrap();
        fs::write(top.join("open/tool"), "").unwrap();
        symlink("../fixed/tool", top.join("open/link")).unwrap();
        symlink(top.join("fixed"), top.join("open/dir")).unwrap();
        symlink("tool", top.join("fixed/alias")).unwrap();
        symlink("loop", top.join("fixed/loop")).unwrap();
        let writable = top.join("open");
        for (path, leads_to, replaceable) in [
            ("fixed/tool", Some("fixed/tool"), false),
            ("fixed/alias", Some("fixed/tool"), false),
            ("fixed/../fixed/./alias", Some("fixed/tool"), false),
            ("open/tool", Some("open/tool"), true),
            ("open/link", Some("fixed/tool"), true),
            ("open/dir/alias", Some("fixed/tool"), true),
            ("open/../fixed/tool", Some("fixed/tool"), false),
            ("fixed/none", None, false),
            ("fixed/loop", None, false),
        ] {
            let found = walk(&top.join(path), |directory| directory.starts_with(&writable));
            let told = found.as_ref().map(|walk| (walk.path.clone(), walk.replaceable));
            assert_eq!(told, leads_to.map(|path| (top.join(path), replaceable)), "{path}");
            if let Some(walk) = found {
                assert_eq!(walk.path, fs::canonicalize(top.join(path)).unwrap());
            }
        }
        let hops = walk(&top.join("open/link"), |_| false).unwrap().hops;
        assert_eq!(hops, [top.join("open/link"), top.join("open/../fixed/tool")]);
    }
}

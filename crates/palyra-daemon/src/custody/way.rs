//! Following a path name by name, as the kernel does.
//!
//! A canonical path tells where a name leads. It does not tell through which directories and links it was found, and
//! those are what somebody could replace.

use std::ffi::OsString;
use std::fs::Metadata;
use std::io::{Error, ErrorKind};
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// The way to a path.
#[derive(Debug)]
pub(crate) struct Way {
    /// Each name that is looked up, in order, below directories that are free of links.
    pub(crate) names: Vec<PathBuf>,
    /// Those of them that are links.
    pub(crate) links: Vec<PathBuf>,
    /// Where it leads, free of links; none if nothing is there.
    pub(crate) end: Option<(PathBuf, Metadata)>,
}

impl Way {
    /// Follows a path.
    ///
    /// # Errors
    /// Somewhere on the way it cannot be looked on, or there are too many links: there, and why.
    pub(crate) fn to(path: &Path) -> Result<Self, (PathBuf, Error)> {
        let absolute = std::path::absolute(path).map_err(|error| (path.to_owned(), error))?;
        let (mut names, mut links, mut here) = (Vec::new(), Vec::new(), PathBuf::from("/"));
        let mut ahead = parts(&absolute);
        while let Some(name) = ahead.pop() {
            if name == ".." {
                here.pop();
                continue;
            }
            let next = here.join(&name);
            names.push(next.clone());
            let found = match next.symlink_metadata() {
                Ok(found) => found,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self { names, links, end: None }),
                Err(error) => return Err((next, error)),
            };
            if !found.is_symlink() {
                here = next;
                continue;
            }
            links.push(next.clone());
            if links.len() > MOST_LINKS {
                return Err((next, Error::other("there are too many links on the way")));
            }
            let target = std::fs::read_link(&next).map_err(|error| (next, error))?;
            if target.is_absolute() {
                here = PathBuf::from("/");
            }
            ahead.extend(parts(&target));
        }
        match here.symlink_metadata() {
            Ok(found) => Ok(Self { names, links, end: Some((here, found)) }),
            Err(error) => Err((here, error)),
        }
    }
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let part = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

//! Mounts: one directory may be found under several paths.
//!
//! The kernel says of each mount which part of which file system it shows. Two paths that come to the same part are the
//! same file, whatever they are called. A mount that cannot be written through does not count.

use std::ffi::OsString;
use std::io::{Error, ErrorKind};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// One line of the kernel's list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    /// The file system, by its number.
    device: String,
    /// The part of it that is shown.
    part: PathBuf,
    /// Where it is shown.
    point: PathBuf,
    writable: bool,
}

/// Every mount, as it stands.
#[derive(Debug, Default)]
pub(super) struct Mounts(Vec<Mount>);

impl Mounts {
    /// The kernel's list.
    pub(super) fn file() -> PathBuf {
        PathBuf::from("/proc/self/mountinfo")
    }

    /// Reads the list.
    ///
    /// # Errors
    /// There is none, or it is not understood: then nothing can be vouched for.
    pub(super) fn now() -> Result<Self, Error> {
        if !cfg!(target_os = "linux") {
            return Ok(Self::default());
        }
        Self::parse(&std::fs::read(Self::file())?).ok_or_else(|| Error::from(ErrorKind::InvalidData))
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(Mount::parse).collect::<Option<Vec<_>>>().map(Self)
    }

    /// Which file system a path is on, and where in it.
    fn place(&self, path: &Path) -> Option<(&Mount, PathBuf)> {
        // The longest path is the innermost mount, and the last of several hides the others.
        let holding = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        let mount = holding.max_by_key(|mount| mount.point.components().count())?;
        let below = path.strip_prefix(&mount.point).ok()?;
        Some((mount, if below.as_os_str().is_empty() { mount.part.clone() } else { mount.part.join(below) }))
    }

    /// The root through which a path can be written under another name, if there is one.
    pub(super) fn other_way(&self, path: &Path, roots: &[PathBuf]) -> Option<PathBuf> {
        let (mount, inner) = self.place(path)?;
        let shows =
            |other: &Mount, part: &Path| other.writable && other.device == mount.device && inner.starts_with(part);
        let by_root = |root: &Path| self.place(root).is_some_and(|(other, part)| shows(other, &part));
        let by_mount =
            |root: &Path| self.0.iter().any(|other| other.point.starts_with(root) && shows(other, &other.part));
        roots.iter().find(|root| by_root(root) || by_mount(root)).cloned()
    }
}

impl Mount {
    /// `36 35 98:0 /part /point rw,noatime master:1 - ext4 /dev/x rw`
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let device = String::from_utf8(fields.next()?.to_vec()).ok()?;
        let part = unescaped(fields.next()?)?;
        let point = unescaped(fields.next()?)?;
        let writable = !fields.next()?.split(|byte| *byte == b',').any(|option| option == b"ro");
        (device.contains(':') && point.is_absolute()).then_some(Self { device, part, point, writable })
    }
}

/// A path as the kernel writes it: blanks and backslashes are three octal digits behind a backslash.
fn unescaped(text: &[u8]) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'\\' {
            bytes.push(*first);
            rest = behind;
            continue;
        }
        let digits = std::str::from_utf8(behind.get(..3)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 8).ok()?);
        rest = behind.get(3..)?;
    }
    Some(OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
        21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
        22 21 0:20 / /proc rw - proc proc rw\n\
        30 21 8:1 /etc/palyra /ws/rules rw - ext4 /dev/sda1 rw\n\
        31 21 8:1 /etc/shown /ws/shown ro,relatime - ext4 /dev/sda1 rw\n\
        32 21 8:2 / /srv rw shared:1 - ext4 /dev/sdb1 rw\n\
        33 21 8:2 /data /out rw - ext4 /dev/sdb1 rw\n\
        34 21 8:1 /a\\040b /ws/c\\134d rw - ext4 /dev/sda1 rw\n";

    #[test]
    fn a_directory_that_is_mounted_where_agents_write_is_found() {
        let mounts = Mounts::parse(LIST.as_bytes()).unwrap();
        let roots = [PathBuf::from("/ws"), PathBuf::from("/out")];
        for (path, root) in [
            ("/etc/palyra/team.cedar", Some("/ws")),
            ("/etc/palyra", Some("/ws")),
            ("/etc/other", None),
            ("/etc/shown/team.cedar", None),
            ("/srv/data/rules/x", Some("/out")),
            ("/srv/other", None),
            ("/a b/x", Some("/ws")),
            ("/a b2/x", None),
            ("/proc/1", None),
        ] {
            assert_eq!(mounts.other_way(Path::new(path), &roots), root.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for bad in ["x", "21 1 8:1 /", "21 1 81 / / rw - a b c", "21 1 8:1 / relative rw -", "21 1 8:1 / /a\\9 rw -"] {
            assert!(Mounts::parse(bad.as_bytes()).is_none(), "{bad}");
        }
        assert!(Mounts::now().is_ok());
    }
}

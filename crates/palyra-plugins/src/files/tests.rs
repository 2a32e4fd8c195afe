//! The walk beneath a directory, against links, pipes and paths that lead out.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;

struct Place {
    top: tempfile::TempDir,
    base: OwnedFd,
}

fn place() -> Place {
    let top = tempfile::tempdir().unwrap();
    fs::create_dir_all(top.path().join("root/sub")).unwrap();
    fs::write(top.path().join("outside"), "secret").unwrap();
    fs::write(top.path().join("root/sub/file"), "text").unwrap();
    let base = OwnedFd::from(fs::File::open(top.path().join("root")).unwrap());
    Place { top, base }
}

const READ: OpenHow =
    OpenHow { read: true, write: false, create: false, exclusive: false, truncate: false, directory: false };
const WRITE: OpenHow = OpenHow { write: true, create: true, ..READ };

fn opened(place: &Place, path: &str, how: OpenHow) -> Result<FileKind, FileFault> {
    open(place.base.as_fd(), path, how).map(|opened| opened.kind())
}

#[test]
fn links_are_never_followed() {
    let place = place();
    let root = place.top.path().join("root");
    symlink("../outside", root.join("link")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink("sub/file", root.join("inner")).unwrap();
    for path in ["link", "up", "up/outside", "inner", "up/root/sub/file"] {
        assert_eq!(opened(&place, path, READ), Err(FileFault::Link), "{path}");
        assert_eq!(opened(&place, path, WRITE), Err(FileFault::Link), "{path}");
    }
    assert_eq!(status(place.base.as_fd(), "link").unwrap().kind, FileKind::Link);
    assert_eq!(fs::read_to_string(place.top.path().join("outside")).unwrap(), "secret");
    assert_eq!(create_directory(place.base.as_fd(), "up/new"), Err(FileFault::Link));
    assert_eq!(remove(place.base.as_fd(), "up/outside", FileKind::File), Err(FileFault::Link));
    let base = place.base.as_fd();
    assert_eq!(rename(base, "sub/file", "up/stolen"), Err(FileFault::Link));
    let up: WorkspacePath = "up".parse().unwrap();
    assert_eq!(open_beneath(base, &up).unwrap_err(), FileFault::Link);
}

#[test]
fn files_are_opened_as_asked() {
    let place = place();
    assert_eq!(opened(&place, "sub/file", READ), Ok(FileKind::File));
    assert_eq!(opened(&place, "", READ), Ok(FileKind::Directory));
    assert_eq!(opened(&place, "sub", READ), Ok(FileKind::Directory));
    assert_eq!(opened(&place, "sub", WRITE), Err(FileFault::IsDirectory));
    assert_eq!(opened(&place, "sub/file", OpenHow { directory: true, ..READ }), Err(FileFault::NotDirectory));
    assert_eq!(opened(&place, "sub/none", READ), Err(FileFault::NoEntry));
    assert_eq!(opened(&place, "sub/file/x", READ), Err(FileFault::NotDirectory));
    assert_eq!(opened(&place, "sub/file", OpenHow { exclusive: true, ..WRITE }), Err(FileFault::Exists));
    assert_eq!(opened(&place, "sub/new", OpenHow { exclusive: true, ..WRITE }), Ok(FileKind::File));
    assert_eq!(opened(&place, "sub/file", OpenHow { truncate: true, ..WRITE }), Ok(FileKind::File));
    assert_eq!(status(place.base.as_fd(), "sub/file").unwrap().size, 0);
    let door = DirectoryFiles::new(place.base.try_clone().unwrap());
    let names = door.entries(&"sub".parse().unwrap()).unwrap();
    assert_eq!(names, [("file".to_owned(), FileKind::File), ("new".to_owned(), FileKind::File)]);
}

#[test]
fn pipes_are_left_alone() {
    let place = place();
    rustix::fs::mknodat(&place.base, "pipe", FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    assert_eq!(opened(&place, "pipe", READ), Err(FileFault::NotPermitted));
    assert_eq!(opened(&place, "pipe", WRITE), Err(FileFault::NotPermitted));
}

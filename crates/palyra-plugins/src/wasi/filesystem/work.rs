//! What is done with files, asked and recorded: the part between WASI's words and the walk beneath a root.

use crate::doors::{FileFault, FilesDoor, OpenHow, Opened};
use crate::error::Stop;
use crate::files;
use crate::guest::{Guest, MISMATCH};
use crate::limits::Limit;
use crate::names::WorkspacePath;
use crate::record::{Blob, FileAnswer, FileKind, FileStatus, HostAnswer};
use palyra_protocol::{Digest, DigestBuilder};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A file or directory that a guest has open.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// Where it is in the workspace.
    pub(crate) path: WorkspacePath,
    pub(crate) kind: FileKind,
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// A file's descriptor; a replay has none and needs none, and directories go by their paths.
    live: Option<OwnedFd>,
    /// Counts as one of the files that a guest has open.
    _slot: Slot,
}

/// One of the few files and listings that a guest may have open: descriptors are the daemon's, and it needs them too.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slot(Arc<()>);

const MOST_OPEN: usize = 64;

/// Which path a question is about, as a guest names it: from a directory that it has open.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) path: WorkspacePath,
}

type Filed<T> = Result<Result<T, FileFault>, Stop>;

impl OpenFile {
    /// A root of the grant.
    fn root(path: WorkspacePath, slot: Slot) -> Self {
        Self { path, kind: FileKind::Directory, read: true, write: true, live: None, _slot: slot }
    }

    fn fd(&self) -> Result<BorrowedFd<'_>, FileFault> {
        self.live.as_ref().map(AsFd::as_fd).ok_or(FileFault::Unsupported)
    }

    /// A path from this directory.
    pub(crate) fn named(&self, path: &str) -> Result<Named, FileFault> {
        if self.kind != FileKind::Directory {
            return Err(FileFault::NotDirectory);
        }
        let path = self.path.join(path).map_err(|_| FileFault::NotPermitted)?;
        Ok(Named { path })
    }
}

fn question(what: &str, path: &WorkspacePath) -> DigestBuilder {
    DigestBuilder::new("palyra.plugins.file.v1").field(what.as_bytes()).field(path.to_string().as_bytes())
}

impl Guest {
    /// A question about files: asked and recorded, or read from the record.
    fn file(
        &mut self,
        asked: Digest,
        live: impl FnOnce(&mut Self) -> Result<FileAnswer, FileFault>,
    ) -> Filed<FileAnswer> {
        let answer = self.ask("file", Some(asked), |guest| {
            guest.control.check()?;
            let answer = live(guest);
            Ok(HostAnswer::File(answer))
        })?;
        match answer {
            HostAnswer::File(answer) => Ok(answer),
            _ => Err(MISMATCH),
        }
    }

    /// A slot for one more open file.
    pub(crate) fn slot(&self) -> Result<Slot, FileFault> {
        if Arc::strong_count(&self.slots.0) > MOST_OPEN { Err(FileFault::TooManyOpen) } else { Ok(self.slots.clone()) }
    }

    /// Whether the grant covers reading here; a denial is noted.
    pub(crate) fn may_read(&mut self, path: &WorkspacePath) -> Result<(), FileFault> {
        if self.grant.allows_reading(path) {
            return Ok(());
        }
        self.observed.denied("read", &path.to_string());
        Err(FileFault::NotPermitted)
    }

    /// Whether the grant covers changes here; a denial is noted.
    pub(crate) fn may_write(&mut self, path: &WorkspacePath) -> Result<(), FileFault> {
        if self.grant.allows_writing(path) {
            return Ok(());
        }
        self.observed.denied("write", &path.to_string());
        Err(FileFault::NotPermitted)
    }

    /// The door to the workspace.
    fn files(&self) -> Result<&dyn FilesDoor, FileFault> {
        self.doors.files.as_deref().ok_or(FileFault::Unsupported)
    }

    /// Opens the roots that the grant names. One that is not there is left out.
    pub(crate) fn open_roots(&mut self) -> Result<Vec<OpenFile>, Stop> {
        let mut opened = Vec::new();
        for root in self.grant.roots() {
            if self.slot().is_err() {
                break;
            }
            let asked = question("root", &root).finish();
            let answer = self.file(asked, |guest| match guest.files()?.status(&root)?.kind {
                FileKind::Directory => Ok(FileAnswer::Opened(FileKind::Directory)),
                FileKind::Link => Err(FileFault::Link),
                _ => Err(FileFault::NotDirectory),
            })?;
            if answer.is_ok() {
                opened.push(OpenFile::root(root, self.slots.clone()));
            }
        }
        Ok(opened)
    }

    /// Opens a file or directory.
    pub(crate) fn open_file(&mut self, named: Named, how: OpenHow) -> Filed<OpenFile> {
        let flags = [how.read, how.write, how.create, how.exclusive, how.truncate, how.directory];
        let flags = flags.iter().fold(0, |bits, flag| bits * 2 + u64::from(*flag));
        let slot = match self.slot() {
            Ok(slot) => slot,
            Err(fault) => return Ok(Err(fault)),
        };
        let mut live = None;
        let answer = self.file(question("open", &named.path).number(flags).finish(), |guest| {
            let opened = guest.files()?.open(&named.path, how)?;
            let kind = opened.kind();
            if let Opened::File(file) = opened {
                live = Some(file);
            }
            Ok(FileAnswer::Opened(kind))
        })?;
        match answer {
            Ok(FileAnswer::Opened(kind)) => {
                if how.write {
                    self.observed.written(&named.path);
                } else {
                    self.observed.read(&named.path);
                }
                Ok(Ok(OpenFile { path: named.path, kind, read: how.read, write: how.write, live, _slot: slot }))
            }
            Ok(_) => Err(MISMATCH),
            Err(fault) => Ok(Err(fault)),
        }
    }

    /// Reads a piece of a file; says whether the end was reached.
    pub(crate) fn read_file(&mut self, file: &OpenFile, offset: u64, length: usize) -> Filed<(Vec<u8>, bool)> {
        if !file.read || file.kind != FileKind::File {
            return Ok(Err(FileFault::NotPermitted));
        }
        let asked = question("read", &file.path).number(offset).number(length as u64).finish();
        let answer = self.file(asked, |_| {
            let mut piece = vec![0; length];
            let mut filled = 0;
            while filled < length {
                let at = offset.checked_add(filled as u64).ok_or(FileFault::Invalid)?;
                match rustix::io::pread(file.fd()?, &mut piece[filled..], at) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(files::fault(error)),
                }
            }
            piece.truncate(filled);
            Ok(FileAnswer::Read(Blob(piece), filled < length))
        })?;
        match answer {
            Ok(FileAnswer::Read(piece, end)) => Ok(Ok((piece.0, end))),
            Ok(_) => Err(MISMATCH),
            Err(fault) => Ok(Err(fault)),
        }
    }

    /// Writes a piece of a file, at its end where there is no offset.
    pub(crate) fn write_file(&mut self, file: &OpenFile, offset: Option<u64>, piece: &[u8]) -> Filed<u64> {
        if !file.write || file.kind != FileKind::File {
            return Ok(Err(FileFault::NotPermitted));
        }
        self.charge_file(piece.len() as u64)?;
        let asked =
            question("write", &file.path).optional(offset.map(u64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice));
        let answer = self.file(asked.field(piece).finish(), |_| {
            let start = match offset {
                Some(offset) => offset,
                None => files::status_of(file.fd()?)?.size,
            };
            let mut written = 0;
            while written < piece.len() {
                let at = start.checked_add(written as u64).ok_or(FileFault::Invalid)?;
                match rustix::io::pwrite(file.fd()?, &piece[written..], at) {
                    Ok(count) => written += count,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(files::fault(error)),
                }
            }
            Ok(FileAnswer::Written(written as u64))
        })?;
        match answer {
            Ok(FileAnswer::Written(count)) => Ok(Ok(count)),
            Ok(_) => Err(MISMATCH),
            Err(fault) => Ok(Err(fault)),
        }
    }

    /// Cuts a file, or makes it longer; what it grows by is counted as if it were written.
    pub(crate) fn resize_file(&mut self, file: &OpenFile, size: u64) -> Filed<()> {
        if !file.write || file.kind != FileKind::File {
            return Ok(Err(FileFault::NotPermitted));
        }
        self.charge_file(size)?;
        self.done(question("resize", &file.path).number(size).finish(), |_| {
            rustix::fs::ftruncate(file.fd()?, size).map_err(files::fault)
        })
    }

    /// Makes a file durable.
    pub(crate) fn sync_file(&mut self, file: &OpenFile) -> Filed<()> {
        self.done(question("sync", &file.path).finish(), |_| match &file.live {
            Some(live) => rustix::fs::fsync(live).map_err(files::fault),
            // What a directory lists becomes durable with the call's changes.
            None => Ok(()),
        })
    }

    /// What is at a path, or what an open file is.
    pub(crate) fn file_status(&mut self, file: &OpenFile, named: Option<&Named>) -> Filed<FileStatus> {
        let path = named.map_or(&file.path, |named| &named.path);
        let answer = self.file(question("status", path).number(u64::from(named.is_some())).finish(), |guest| {
            Ok(FileAnswer::Status(match (named, &file.live) {
                (None, Some(live)) => files::status_of(live.as_fd())?,
                _ => guest.files()?.status(path)?,
            }))
        })?;
        match answer {
            Ok(FileAnswer::Status(status)) => Ok(Ok(status)),
            Ok(_) => Err(MISMATCH),
            Err(fault) => Ok(Err(fault)),
        }
    }

    /// What is in a directory.
    pub(crate) fn file_entries(&mut self, directory: &OpenFile) -> Filed<Vec<(String, FileKind)>> {
        let answer = self.file(question("entries", &directory.path).finish(), |guest| {
            Ok(FileAnswer::Entries(guest.files()?.entries(&directory.path)?))
        })?;
        match answer {
            Ok(FileAnswer::Entries(entries)) => Ok(Ok(entries)),
            Ok(_) => Err(MISMATCH),
            Err(fault) => Ok(Err(fault)),
        }
    }

    /// Creates a directory.
    pub(crate) fn create_directory(&mut self, named: &Named) -> Filed<()> {
        self.observed.written(&named.path);
        self.done(question("create_directory", &named.path).finish(), |guest| {
            guest.files()?.create_directory(&named.path)
        })
    }

    /// Removes a file or an empty directory.
    pub(crate) fn remove_file(&mut self, named: &Named, what: FileKind) -> Filed<()> {
        self.observed.written(&named.path);
        let word = if what == FileKind::Directory { "remove_directory" } else { "remove" };
        self.done(question(word, &named.path).finish(), |guest| guest.files()?.remove(&named.path, what))
    }

    /// Renames a file or directory.
    pub(crate) fn rename_file(&mut self, from: &Named, to: &Named) -> Filed<()> {
        self.observed.written(&from.path);
        self.observed.written(&to.path);
        let asked = question("rename", &from.path).field(to.path.to_string().as_bytes()).finish();
        self.done(asked, |guest| guest.files()?.rename(&from.path, &to.path))
    }

    /// Something that is done or not.
    fn done(&mut self, asked: Digest, live: impl FnOnce(&mut Self) -> Result<(), FileFault>) -> Filed<()> {
        match self.file(asked, |guest| live(guest).map(|()| FileAnswer::Done))? {
            Ok(FileAnswer::Done) => Ok(Ok(())),
            Ok(_) => Err(MISMATCH),
            Err(fault) => Ok(Err(fault)),
        }
    }

    fn charge_file(&mut self, bytes: u64) -> Result<(), Stop> {
        let limit = self.grant.limits().file_bytes;
        self.file_bytes = self.file_bytes.saturating_add(bytes);
        if self.file_bytes > limit { Err(Stop::Limit(Limit::FileBytes, limit)) } else { Ok(()) }
    }
}

//! `wasi:filesystem/types`: descriptors.

use super::work::{Named, OpenFile, Slot};
use super::{descriptor_stat, descriptor_type, error_code};
use crate::bindings::wasi::filesystem::types::{
    self, Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, HostDescriptor,
    HostDirectoryEntryStream, MetadataHashValue, NewTimestamp, OpenFlags, PathFlags,
};
use crate::doors::{FileFault, OpenHow};
use crate::guest::{Guest, HostCallKind};
use crate::record::FileKind;
use crate::wasi::{InputStream, IoError, OutputStream};
use palyra_protocol::DigestBuilder;
use std::collections::VecDeque;
use std::sync::Arc;
use wasmtime::component::Resource;

/// The most that one read returns.
const MOST_READ: u64 = 1 << 20;

/// A file or directory that a guest holds.
#[derive(Debug)]
pub struct Descriptor(pub(crate) Arc<OpenFile>);

/// The entries of a directory that have not been told yet.
#[derive(Debug)]
pub struct Entries(VecDeque<(String, FileKind)>, #[expect(dead_code, reason = "held for as long as the listing")] Slot);

type This = Resource<Descriptor>;
type Done<T> = wasmtime::Result<Result<T, ErrorCode>>;

/// Leaves a host function with a fault that the guest is told.
macro_rules! told {
    ($answer:expr) => {
        match $answer {
            Ok(value) => value,
            Err(fault) => return Ok(Err(error_code(fault))),
        }
    };
}

impl Guest {
    fn descriptor(&mut self, this: &This) -> wasmtime::Result<Arc<OpenFile>> {
        self.count(HostCallKind::Files)?;
        Ok(Arc::clone(&self.table.get(this)?.0))
    }

    /// A path from a descriptor; one that leads out is noted as a denial.
    fn named(&mut self, base: &OpenFile, path: &str) -> Result<Named, FileFault> {
        base.named(path).inspect_err(|fault| {
            if *fault == FileFault::NotPermitted {
                self.observed.denied("path", path);
            }
        })
    }

    /// What an open asks for, after the grant has been asked.
    fn open_how(&mut self, named: &Named, open: OpenFlags, flags: DescriptorFlags) -> Result<OpenHow, FileFault> {
        let how = OpenHow {
            read: flags.contains(DescriptorFlags::READ),
            write: flags.contains(DescriptorFlags::WRITE) || open.intersects(OpenFlags::CREATE | OpenFlags::TRUNCATE),
            create: open.contains(OpenFlags::CREATE),
            exclusive: open.contains(OpenFlags::EXCLUSIVE),
            truncate: open.contains(OpenFlags::TRUNCATE),
            directory: open.contains(OpenFlags::DIRECTORY),
        };
        if how.directory && (how.create || how.truncate || how.exclusive) {
            return Err(FileFault::Invalid);
        }
        if how.write || flags.contains(DescriptorFlags::MUTATE_DIRECTORY) {
            self.may_write(&named.path)?;
        }
        // Something that is opened for nothing can still be looked at.
        if how.read || !how.write {
            let within = self.grant.allows_writing(&named.path) && how.directory;
            if !within {
                self.may_read(&named.path)?;
            }
        }
        Ok(OpenHow { read: how.read || !how.write, ..how })
    }
}

impl types::Host for Guest {
    fn filesystem_error_code(&mut self, _error: Resource<IoError>) -> wasmtime::Result<Option<ErrorCode>> {
        self.count(HostCallKind::Files)?;
        Ok(None)
    }
}

impl HostDescriptor for Guest {
    fn read_via_stream(&mut self, this: This, offset: u64) -> Done<Resource<InputStream>> {
        let file = self.descriptor(&this)?;
        if file.kind != FileKind::File || !file.read {
            return Ok(Err(ErrorCode::NotPermitted));
        }
        Ok(Ok(self.hand(InputStream::File { file, offset })?))
    }

    fn write_via_stream(&mut self, this: This, offset: u64) -> Done<Resource<OutputStream>> {
        let file = self.descriptor(&this)?;
        if file.kind != FileKind::File || !file.write {
            return Ok(Err(ErrorCode::NotPermitted));
        }
        Ok(Ok(self.hand(OutputStream::File { file, offset: Some(offset) })?))
    }

    fn append_via_stream(&mut self, this: This) -> Done<Resource<OutputStream>> {
        let file = self.descriptor(&this)?;
        if file.kind != FileKind::File || !file.write {
            return Ok(Err(ErrorCode::NotPermitted));
        }
        Ok(Ok(self.hand(OutputStream::File { file, offset: None })?))
    }

    fn advise(&mut self, this: This, _offset: u64, _length: u64, _advice: Advice) -> Done<()> {
        self.descriptor(&this)?;
        Ok(Ok(()))
    }

    fn sync_data(&mut self, this: This) -> Done<()> {
        let file = self.descriptor(&this)?;
        Ok(self.sync_file(&file)?.map_err(error_code))
    }

    fn get_flags(&mut self, this: This) -> Done<DescriptorFlags> {
        let file = self.descriptor(&this)?;
        let mut flags = DescriptorFlags::empty();
        if file.kind == FileKind::Directory {
            flags |= DescriptorFlags::READ;
            if self.grant.allows_writing(&file.path) {
                flags |= DescriptorFlags::MUTATE_DIRECTORY;
            }
        } else {
            if file.read {
                flags |= DescriptorFlags::READ;
            }
            if file.write {
                flags |= DescriptorFlags::WRITE;
            }
        }
        Ok(Ok(flags))
    }

    fn get_type(&mut self, this: This) -> Done<DescriptorType> {
        let file = self.descriptor(&this)?;
        Ok(Ok(descriptor_type(file.kind)))
    }

    fn set_size(&mut self, this: This, size: u64) -> Done<()> {
        let file = self.descriptor(&this)?;
        Ok(self.resize_file(&file, size)?.map_err(error_code))
    }

    fn set_times(&mut self, this: This, _access: NewTimestamp, _modification: NewTimestamp) -> Done<()> {
        self.descriptor(&this)?;
        Ok(Err(ErrorCode::NotPermitted))
    }

    fn read(&mut self, this: This, length: u64, offset: u64) -> Done<(Vec<u8>, bool)> {
        let file = self.descriptor(&this)?;
        let length = usize::try_from(length.min(MOST_READ)).unwrap_or(0);
        Ok(self.read_file(&file, offset, length)?.map_err(error_code))
    }

    fn write(&mut self, this: This, bytes: Vec<u8>, offset: u64) -> Done<u64> {
        let file = self.descriptor(&this)?;
        Ok(self.write_file(&file, Some(offset), &bytes)?.map_err(error_code))
    }

    fn read_directory(&mut self, this: This) -> Done<Resource<Entries>> {
        let directory = self.descriptor(&this)?;
        if directory.kind != FileKind::Directory {
            return Ok(Err(ErrorCode::NotDirectory));
        }
        told!(self.may_read(&directory.path));
        let slot = told!(self.slot());
        let entries = told!(self.file_entries(&directory)?);
        Ok(Ok(self.hand(Entries(entries.into(), slot))?))
    }

    fn sync(&mut self, this: This) -> Done<()> {
        let file = self.descriptor(&this)?;
        Ok(self.sync_file(&file)?.map_err(error_code))
    }

    fn create_directory_at(&mut self, this: This, path: String) -> Done<()> {
        let base = self.descriptor(&this)?;
        let named = told!(self.named(&base, &path));
        told!(self.may_write(&named.path));
        Ok(self.create_directory(&named)?.map_err(error_code))
    }

    fn stat(&mut self, this: This) -> Done<DescriptorStat> {
        let file = self.descriptor(&this)?;
        Ok(self.file_status(&file, None)?.map(descriptor_stat).map_err(error_code))
    }

    fn stat_at(&mut self, this: This, flags: PathFlags, path: String) -> Done<DescriptorStat> {
        let base = self.descriptor(&this)?;
        let named = told!(self.named(&base, &path));
        told!(self.may_read(&named.path));
        let status = told!(self.file_status(&base, Some(&named))?);
        if status.kind == FileKind::Link && flags.contains(PathFlags::SYMLINK_FOLLOW) {
            return Ok(Err(ErrorCode::Loop));
        }
        Ok(Ok(descriptor_stat(status)))
    }

    fn set_times_at(
        &mut self,
        this: This,
        _flags: PathFlags,
        _path: String,
        _access: NewTimestamp,
        _modification: NewTimestamp,
    ) -> Done<()> {
        self.descriptor(&this)?;
        Ok(Err(ErrorCode::NotPermitted))
    }

    fn link_at(&mut self, this: This, _flags: PathFlags, _old: String, _base: This, _new: String) -> Done<()> {
        self.descriptor(&this)?;
        Ok(Err(ErrorCode::NotPermitted))
    }

    fn open_at(
        &mut self,
        this: This,
        _path_flags: PathFlags,
        path: String,
        open_flags: OpenFlags,
        flags: DescriptorFlags,
    ) -> Done<Resource<Descriptor>> {
        let base = self.descriptor(&this)?;
        let named = told!(self.named(&base, &path));
        let how = told!(self.open_how(&named, open_flags, flags));
        let file = told!(self.open_file(named, how)?);
        Ok(Ok(self.hand(Descriptor(Arc::new(file)))?))
    }

    fn readlink_at(&mut self, this: This, _path: String) -> Done<String> {
        self.descriptor(&this)?;
        Ok(Err(ErrorCode::NotPermitted))
    }

    fn remove_directory_at(&mut self, this: This, path: String) -> Done<()> {
        let base = self.descriptor(&this)?;
        let named = told!(self.named(&base, &path));
        told!(self.may_write(&named.path));
        Ok(self.remove_file(&named, FileKind::Directory)?.map_err(error_code))
    }

    fn rename_at(&mut self, this: This, old: String, to: This, new: String) -> Done<()> {
        let (from, to) = (self.descriptor(&this)?, self.descriptor(&to)?);
        let (old, new) = (told!(self.named(&from, &old)), told!(self.named(&to, &new)));
        told!(self.may_write(&old.path));
        told!(self.may_write(&new.path));
        Ok(self.rename_file(&old, &new)?.map_err(error_code))
    }

    fn symlink_at(&mut self, this: This, _old: String, _new: String) -> Done<()> {
        self.descriptor(&this)?;
        Ok(Err(ErrorCode::NotPermitted))
    }

    fn unlink_file_at(&mut self, this: This, path: String) -> Done<()> {
        let base = self.descriptor(&this)?;
        let named = told!(self.named(&base, &path));
        told!(self.may_write(&named.path));
        Ok(self.remove_file(&named, FileKind::File)?.map_err(error_code))
    }

    fn is_same_object(&mut self, this: This, other: This) -> wasmtime::Result<bool> {
        let (one, other) = (self.descriptor(&this)?, self.descriptor(&other)?);
        Ok(one.path == other.path)
    }

    fn metadata_hash(&mut self, this: This) -> Done<MetadataHashValue> {
        let file = self.descriptor(&this)?;
        Ok(Ok(hash_of(&file.path)))
    }

    fn metadata_hash_at(&mut self, this: This, _flags: PathFlags, path: String) -> Done<MetadataHashValue> {
        let base = self.descriptor(&this)?;
        let named = told!(self.named(&base, &path));
        told!(self.may_read(&named.path));
        told!(self.file_status(&base, Some(&named))?);
        Ok(Ok(hash_of(&named.path)))
    }

    fn drop(&mut self, this: This) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

/// What tells files apart, made from the path: numbers of the host's file system are not a guest's affair.
fn hash_of(path: &crate::names::WorkspacePath) -> MetadataHashValue {
    let digest = DigestBuilder::new("palyra.plugins.file_hash.v1").field(path.to_string().as_bytes()).finish();
    let half = |from: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&digest.as_bytes()[from..from + 8]);
        u64::from_be_bytes(bytes)
    };
    MetadataHashValue { lower: half(0), upper: half(8) }
}

impl HostDirectoryEntryStream for Guest {
    fn read_directory_entry(&mut self, this: Resource<Entries>) -> Done<Option<DirectoryEntry>> {
        self.count(HostCallKind::Files)?;
        let entry = self.table.get_mut(&this)?.0.pop_front();
        Ok(Ok(entry.map(|(name, kind)| DirectoryEntry { type_: descriptor_type(kind), name })))
    }

    fn drop(&mut self, this: Resource<Entries>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

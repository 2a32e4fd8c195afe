//! `wasi:filesystem`: the parts of the workspace that a grant names, below `/workspace`.
//!
//! A guest without a file grant has no directories at all. Rights go by path: a descriptor knows its path from the
//! workspace, and each operation asks the grant about the path that it is for, so that it does not matter by which
//! descriptor a path is reached. Links are not followed, not made and not read. What is told about a file is its kind,
//! size and time of change.

mod descriptor;
mod preopens;
mod work;

pub use descriptor::{Descriptor, Entries};
pub(crate) use work::{OpenFile, Slot};

use crate::bindings::wasi::filesystem::types::{DescriptorStat, DescriptorType, ErrorCode};
use crate::doors::FileFault;
use crate::record::{FileKind, FileStatus};

/// A fault in the words of WASI.
fn error_code(fault: FileFault) -> ErrorCode {
    match fault {
        FileFault::NotPermitted => ErrorCode::NotPermitted,
        FileFault::Access => ErrorCode::Access,
        FileFault::NoEntry => ErrorCode::NoEntry,
        FileFault::Exists => ErrorCode::Exist,
        FileFault::Link => ErrorCode::Loop,
        FileFault::IsDirectory => ErrorCode::IsDirectory,
        FileFault::NotDirectory => ErrorCode::NotDirectory,
        FileFault::NotEmpty => ErrorCode::NotEmpty,
        FileFault::Invalid => ErrorCode::Invalid,
        FileFault::NameTooLong => ErrorCode::NameTooLong,
        FileFault::NoSpace => ErrorCode::InsufficientSpace,
        FileFault::TooLarge => ErrorCode::FileTooLarge,
        FileFault::TooManyOpen => ErrorCode::InsufficientMemory,
        FileFault::CrossDevice => ErrorCode::CrossDevice,
        FileFault::Unsupported => ErrorCode::Unsupported,
        FileFault::Io => ErrorCode::Io,
    }
}

fn descriptor_type(kind: FileKind) -> DescriptorType {
    match kind {
        FileKind::File => DescriptorType::RegularFile,
        FileKind::Directory => DescriptorType::Directory,
        FileKind::Link => DescriptorType::SymbolicLink,
        FileKind::Other => DescriptorType::Unknown,
    }
}

fn descriptor_stat(status: FileStatus) -> DescriptorStat {
    DescriptorStat {
        type_: descriptor_type(status.kind),
        link_count: 1,
        size: status.size,
        data_access_timestamp: None,
        data_modification_timestamp: Some(super::clocks::datetime(status.modified_ms)),
        status_change_timestamp: None,
    }
}

//! What only Windows tells of a file, and directories with permissions of their own.
#![expect(unsafe_code, reason = "calls that the standard library does not wrap")]

use crate::executable::FileIdentity;
use std::fs::File;
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::ptr::null_mut;
use windows_sys::Win32::Foundation::{FILETIME, LocalFree};
use windows_sys::Win32::Security::Authorization::{
    ConvertStringSecurityDescriptorToSecurityDescriptorW, SDDL_REVISION_1,
};
use windows_sys::Win32::Security::SECURITY_ATTRIBUTES;
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, CreateDirectoryW, GetFileInformationByHandle,
};

/// Which file it is.
pub(crate) fn identity(file: &File) -> io::Result<FileIdentity> {
    // SAFETY: plain numbers, for which zero is valid; the call fills them from a live handle.
    let information = unsafe {
        let mut information: BY_HANDLE_FILE_INFORMATION = std::mem::zeroed();
        if GetFileInformationByHandle(file.as_raw_handle(), &raw mut information) == 0 {
            return Err(io::Error::last_os_error());
        }
        information
    };
    let long = |high: u32, low: u32| (u64::from(high) << 32) | u64::from(low);
    let time = |time: FILETIME| i128::from(long(time.dwHighDateTime, time.dwLowDateTime)) * 100;
    Ok(FileIdentity {
        device: information.dwVolumeSerialNumber.into(),
        inode: long(information.nFileIndexHigh, information.nFileIndexLow),
        size: long(information.nFileSizeHigh, information.nFileSizeLow),
        modified_ns: time(information.ftLastWriteTime),
        changed_ns: time(information.ftCreationTime),
    })
}

/// A path as Windows takes it.
pub(super) fn wide(path: &Path) -> Vec<u16> {
    path.as_os_str().encode_wide().chain([0]).collect()
}

/// Makes a directory with the permissions that `description` says, in the security descriptor language.
pub(super) fn create_directory(path: &Path, description: &str) -> io::Result<()> {
    let path = wide(path);
    let description: Vec<u16> = description.encode_utf16().chain([0]).collect();
    let mut descriptor = null_mut();
    // SAFETY: the text ends in a zero; the result goes to a local.
    let parsed = unsafe {
        ConvertStringSecurityDescriptorToSecurityDescriptorW(
            description.as_ptr(),
            SDDL_REVISION_1,
            &raw mut descriptor,
            null_mut(),
        )
    };
    if parsed == 0 {
        return Err(io::Error::last_os_error());
    }
    let attributes = SECURITY_ATTRIBUTES {
        nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
        lpSecurityDescriptor: descriptor,
        bInheritHandle: 0,
    };
    // SAFETY: the path ends in a zero; the attributes and what they point to are live.
    let made = unsafe { CreateDirectoryW(path.as_ptr(), &raw const attributes) };
    let result = if made == 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: allocated for us above, freed once.
    unsafe { LocalFree(descriptor) };
    result
}

//! Starting a process with another token, held until it is in its job, with three handles of ours and no more.
#![expect(unsafe_code, reason = "starting a process with a token has no safe wrapper")]

use super::file::wide;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::Path;
use std::ptr::{null, null_mut};
use windows_sys::Win32::Foundation::{HANDLE, HANDLE_FLAG_INHERIT, SetHandleInformation, WAIT_OBJECT_0};
use windows_sys::Win32::System::Threading::{
    CREATE_NEW_PROCESS_GROUP, CREATE_NO_WINDOW, CREATE_SUSPENDED, CREATE_UNICODE_ENVIRONMENT, CreateProcessAsUserW,
    DeleteProcThreadAttributeList, EXTENDED_STARTUPINFO_PRESENT, GetExitCodeProcess, INFINITE,
    InitializeProcThreadAttributeList, LPPROC_THREAD_ATTRIBUTE_LIST, PROC_THREAD_ATTRIBUTE_HANDLE_LIST,
    PROCESS_INFORMATION, ResumeThread, STARTF_USESTDHANDLES, STARTUPINFOEXW, TerminateProcess,
    UpdateProcThreadAttribute, WaitForSingleObject,
};

/// What to start.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub(super) token: &'a OwnedHandle,
    pub(super) program: &'a Path,
    pub(super) command_line: Vec<u16>,
    pub(super) environment: &'a [u16],
    pub(super) working_directory: &'a Path,
    /// Its input, output and error.
    pub(super) streams: [OwnedHandle; 3],
}

/// A process that has not run a single instruction. Ends if it is dropped so.
#[derive(Debug)]
pub(super) struct Suspended {
    process: Option<OwnedHandle>,
    thread: OwnedHandle,
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The list of handles that a process inherits.
struct Inherited {
    /// Aligned for pointers; its address is the list.
    memory: Vec<usize>,
    /// What the list points to.
    _handles: Box<[HANDLE; 3]>,
}

impl Inherited {
    fn new(streams: &[OwnedHandle; 3]) -> io::Result<Self> {
        let handles = Box::new(streams.each_ref().map(AsRawHandle::as_raw_handle));
        let mut bytes = 0;
        // SAFETY: without memory the call fails and tells the size.
        unsafe { InitializeProcThreadAttributeList(null_mut(), 1, 0, &raw mut bytes) };
        let mut memory = vec![0usize; bytes.div_ceil(size_of::<usize>()).max(1)];
        // SAFETY: as much memory as the call asked for.
        check(unsafe { InitializeProcThreadAttributeList(memory.as_mut_ptr().cast(), 1, 0, &raw mut bytes) })?;
        let mut list = Self { memory, _handles: handles };
        let (value, length) = ((&raw const *list._handles).cast(), size_of::<[HANDLE; 3]>());
        let kind = PROC_THREAD_ATTRIBUTE_HANDLE_LIST as usize;
        // SAFETY: the list was initialised; the handles live on the heap as long as it does.
        check(unsafe { UpdateProcThreadAttribute(list.as_ptr(), 0, kind, value, length, null_mut(), null()) })?;
        Ok(list)
    }

    fn as_ptr(&mut self) -> LPPROC_THREAD_ATTRIBUTE_LIST {
        self.memory.as_mut_ptr().cast()
    }
}

impl Drop for Inherited {
    fn drop(&mut self) {
        // SAFETY: it was initialised, and is deleted once.
        unsafe { DeleteProcThreadAttributeList(self.as_ptr()) };
    }
}

/// Starts a process and holds it before its first instruction. The streams are closed on our side.
pub(super) fn start(start: Start<'_>) -> io::Result<Suspended> {
    let Start { token, program, mut command_line, environment, working_directory, streams } = start;
    for stream in &streams {
        // Only the list below makes a process of ours inherit it. SAFETY: a live handle and two flags.
        check(unsafe { SetHandleInformation(stream.as_raw_handle(), HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT) })?;
    }
    let mut inherited = Inherited::new(&streams)?;
    let (program, working_directory) = (wide(program), wide(working_directory));
    // SAFETY: plain numbers and pointers, for which zero is valid.
    let (mut startup, mut started): (STARTUPINFOEXW, PROCESS_INFORMATION) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    startup.StartupInfo.cb = size_of::<STARTUPINFOEXW>() as u32;
    startup.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
    [startup.StartupInfo.hStdInput, startup.StartupInfo.hStdOutput, startup.StartupInfo.hStdError] =
        streams.each_ref().map(AsRawHandle::as_raw_handle);
    startup.lpAttributeList = inherited.as_ptr();
    let flags = CREATE_SUSPENDED
        | CREATE_UNICODE_ENVIRONMENT
        | CREATE_NO_WINDOW
        | CREATE_NEW_PROCESS_GROUP
        | EXTENDED_STARTUPINFO_PRESENT;
    // SAFETY: every text ends in a zero and the environment in two; the command line is ours to be written to; the
    // startup information is the extended one, as the flag says, and all that it points to is live.
    check(unsafe {
        CreateProcessAsUserW(
            token.as_raw_handle(),
            program.as_ptr(),
            command_line.as_mut_ptr(),
            null(),
            null(),
            1,
            flags,
            environment.as_ptr().cast(),
            working_directory.as_ptr(),
            (&raw const startup).cast(),
            &raw mut started,
        )
    })?;
    // SAFETY: two fresh handles that nobody else has.
    let (process, thread) =
        unsafe { (OwnedHandle::from_raw_handle(started.hProcess), OwnedHandle::from_raw_handle(started.hThread)) };
    Ok(Suspended { process: Some(process), thread })
}

impl Suspended {
    /// The process.
    pub(super) fn process(&self) -> io::Result<&OwnedHandle> {
        self.process.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Lets it run.
    pub(super) fn resume(mut self) -> io::Result<OwnedHandle> {
        // SAFETY: a live handle.
        if unsafe { ResumeThread(self.thread.as_raw_handle()) } == u32::MAX {
            return Err(io::Error::last_os_error());
        }
        self.process.take().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            // SAFETY: a live handle.
            unsafe { TerminateProcess(process.as_raw_handle(), 1) };
        }
    }
}

/// Waits for the end of a process.
pub(super) fn wait(process: &OwnedHandle) -> io::Result<()> {
    // SAFETY: a live handle.
    match unsafe { WaitForSingleObject(process.as_raw_handle(), INFINITE) } {
        WAIT_OBJECT_0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a process that is over ended with.
pub(super) fn exit_code(process: &OwnedHandle) -> io::Result<i32> {
    let mut code = 0u32;
    // SAFETY: a live handle; the result goes to a local.
    check(unsafe { GetExitCodeProcess(process.as_raw_handle(), &raw mut code) })?;
    // Codes such as 0xC0000005 are what people know as negative numbers.
    Ok(code.cast_signed())
}

//! The job object of a run: its limits, its messages, its end.
#![expect(unsafe_code, reason = "job objects have no safe wrapper")]

use super::limits::JobLimits;
use std::ffi::c_void;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr::{null, null_mut};
use std::time::Duration;
use windows_sys::Win32::Foundation::INVALID_HANDLE_VALUE;
use windows_sys::Win32::System::IO::{CreateIoCompletionPort, GetQueuedCompletionStatus, PostQueuedCompletionStatus};
use windows_sys::Win32::System::JobObjects::{
    AssignProcessToJobObject, CreateJobObjectW, JOBOBJECT_ASSOCIATE_COMPLETION_PORT,
    JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, JOBOBJECT_BASIC_UI_RESTRICTIONS, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
    JOBOBJECTINFOCLASS, JobObjectAssociateCompletionPortInformation, JobObjectBasicAccountingInformation,
    JobObjectBasicUIRestrictions, JobObjectExtendedLimitInformation, QueryInformationJobObject,
    SetInformationJobObject, TerminateJobObject,
};
use windows_sys::Win32::System::Threading::INFINITE;

/// Messages with this key come from the job, with the other from us.
const FROM_JOB: usize = 1;
const STOP_LISTENING: usize = 2;
/// What processes that were ended exit with.
const ENDED: u32 = 1;

/// A job object and the port that its messages come through. Closing it ends every process in it.
#[derive(Debug)]
pub(super) struct Job {
    job: OwnedHandle,
    port: OwnedHandle,
}

/// What a job used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) cpu_time: Duration,
    pub(super) peak_memory_bytes: u64,
    pub(super) active_processes: u32,
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Job {
    /// A job with these limits.
    pub(super) fn create(limits: JobLimits) -> io::Result<Self> {
        // SAFETY: no attributes and no name.
        let job = unsafe { CreateJobObjectW(null(), null()) };
        // SAFETY: no file: a new port. For one thread.
        let port = unsafe { CreateIoCompletionPort(INVALID_HANDLE_VALUE, null_mut(), 0, 1) };
        if job.is_null() || port.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: two fresh handles that nobody else has.
        let (handle, port) = unsafe { (OwnedHandle::from_raw_handle(job), OwnedHandle::from_raw_handle(port)) };
        let job = Self { job: handle, port };
        // SAFETY: plain numbers, for which zero is valid.
        let mut extended: JOBOBJECT_EXTENDED_LIMIT_INFORMATION = unsafe { std::mem::zeroed() };
        extended.BasicLimitInformation.LimitFlags = limits.flags;
        extended.BasicLimitInformation.ActiveProcessLimit = limits.active_processes;
        extended.BasicLimitInformation.PerProcessUserTimeLimit = limits.process_time;
        extended.BasicLimitInformation.PerJobUserTimeLimit = limits.job_time;
        extended.ProcessMemoryLimit = usize::try_from(limits.process_memory_bytes).unwrap_or(usize::MAX);
        extended.JobMemoryLimit = usize::try_from(limits.job_memory_bytes).unwrap_or(usize::MAX);
        job.set(JobObjectExtendedLimitInformation, &extended)?;
        let ui = JOBOBJECT_BASIC_UI_RESTRICTIONS { UIRestrictionsClass: limits.ui };
        job.set(JobObjectBasicUIRestrictions, &ui)?;
        let association = JOBOBJECT_ASSOCIATE_COMPLETION_PORT {
            CompletionKey: FROM_JOB as *mut c_void,
            CompletionPort: job.port.as_raw_handle(),
        };
        job.set(JobObjectAssociateCompletionPortInformation, &association)?;
        Ok(job)
    }

    fn set<T>(&self, class: JOBOBJECTINFOCLASS, value: &T) -> io::Result<()> {
        let length = u32::try_from(size_of::<T>()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a live structure of the length given; each caller in this file passes the one that its class names.
        check(unsafe {
            SetInformationJobObject(self.job.as_raw_handle(), class, std::ptr::from_ref(value).cast(), length)
        })
    }

    fn ask<T>(&self, class: JOBOBJECTINFOCLASS, value: &mut T) -> io::Result<()> {
        let length = u32::try_from(size_of::<T>()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let value: *mut c_void = std::ptr::from_mut(value).cast();
        // SAFETY: a live structure of the length given; each caller in this file passes the one that its class names.
        check(unsafe { QueryInformationJobObject(self.job.as_raw_handle(), class, value, length, null_mut()) })
    }

    /// Puts a process into the job, where all its children will be too.
    pub(super) fn take_in(&self, process: &OwnedHandle) -> io::Result<()> {
        // SAFETY: two live handles.
        check(unsafe { AssignProcessToJobObject(self.job.as_raw_handle(), process.as_raw_handle()) })
    }

    /// Ends every process in it.
    pub(super) fn end(&self) -> io::Result<()> {
        // SAFETY: a live handle.
        check(unsafe { TerminateJobObject(self.job.as_raw_handle(), ENDED) })
    }

    /// What it used so far.
    pub(super) fn used(&self) -> io::Result<Used> {
        // SAFETY: plain numbers, for which zero is valid.
        let (mut counted, mut extended): (
            JOBOBJECT_BASIC_ACCOUNTING_INFORMATION,
            JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
        ) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        self.ask(JobObjectBasicAccountingInformation, &mut counted)?;
        self.ask(JobObjectExtendedLimitInformation, &mut extended)?;
        let ticks = counted.TotalUserTime.saturating_add(counted.TotalKernelTime);
        Ok(Used {
            cpu_time: Duration::from_nanos(u64::try_from(ticks).unwrap_or(0).saturating_mul(100)),
            peak_memory_bytes: extended.PeakJobMemoryUsed as u64,
            active_processes: counted.ActiveProcesses,
        })
    }

    /// The job's next message; `None` after [`Job::stop_listening`].
    pub(super) fn next_message(&self) -> io::Result<Option<u32>> {
        let (mut message, mut key, mut about) = (0u32, 0usize, null_mut());
        // SAFETY: a live handle; the results go to locals. `about` is a process's number here, and is not looked at.
        check(unsafe {
            let port = self.port.as_raw_handle();
            GetQueuedCompletionStatus(port, &raw mut message, &raw mut key, &raw mut about, INFINITE)
        })?;
        Ok((key == FROM_JOB).then_some(message))
    }

    /// Wakes whoever waits for a message.
    pub(super) fn stop_listening(&self) {
        // SAFETY: a live handle and numbers. It can fail for want of memory only, and then the thread stays.
        unsafe { PostQueuedCompletionStatus(self.port.as_raw_handle(), 0, STOP_LISTENING, null()) };
    }
}

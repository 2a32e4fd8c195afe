//! The token of a run: what is left of the daemon's own after everything was taken from it that can be.
//!
//! All privileges but the one to pass through directories are deleted, Administrators only ever deny, the integrity
//! level is low, and the token is restricted: an access must be granted twice, to the user *and* to one of a few public
//! groups. A user's own files are granted to the user alone, so the second check closes them; programs and libraries of
//! the system are granted to everybody. A workspace is opened by granting it to the group `RESTRICTED` (S-1-5-12).
#![expect(unsafe_code, reason = "tokens have no safe wrapper")]

use std::ffi::c_void;
use std::io;
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::ptr::{null, null_mut};
use windows_sys::Win32::Foundation::{HANDLE, LocalFree};
use windows_sys::Win32::Security::Authorization::{ConvertSidToStringSidW, ConvertStringSidToSidW};
use windows_sys::Win32::Security::{
    CreateRestrictedToken, DISABLE_MAX_PRIVILEGE, GetLengthSid, GetTokenInformation, ImpersonateLoggedOnUser,
    IsTokenRestricted, PSID, SID_AND_ATTRIBUTES, SetTokenInformation, TOKEN_ADJUST_DEFAULT, TOKEN_ASSIGN_PRIMARY,
    TOKEN_DUPLICATE, TOKEN_GROUPS, TOKEN_INFORMATION_CLASS, TOKEN_MANDATORY_LABEL, TOKEN_QUERY, TOKEN_USER,
    TokenGroups, TokenIntegrityLevel, TokenUser,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

/// Administrators, and local accounts among them: they may be denied something, never granted.
const DENY_ONLY: [&str; 2] = ["S-1-5-32-544", "S-1-5-114"];
/// Everyone, Users, RESTRICTED: one of these, or the session's own group, must be granted too.
const RESTRICTING: [&str; 3] = ["S-1-1-0", "S-1-5-32-545", "S-1-5-12"];
const LOW_INTEGRITY: &str = "S-1-16-4096";
const SE_GROUP_INTEGRITY: u32 = 0x20;
const SE_GROUP_LOGON_ID: u32 = 0xC000_0000;

/// A token that processes of a run get.
#[derive(Debug)]
pub(super) struct RestrictedToken {
    token: OwnedHandle,
    user: String,
}

/// A security identifier that Windows allocated.
struct Sid(PSID);

impl Sid {
    fn parse(text: &str) -> io::Result<Self> {
        let text: Vec<u16> = text.encode_utf16().chain([0]).collect();
        let mut sid: PSID = null_mut();
        // SAFETY: the text ends in a zero; the result goes to a local.
        check(unsafe { ConvertStringSidToSidW(text.as_ptr(), &raw mut sid) })?;
        Ok(Self(sid))
    }

    fn entry(&self, attributes: u32) -> SID_AND_ATTRIBUTES {
        SID_AND_ATTRIBUTES { Sid: self.0, Attributes: attributes }
    }
}

impl Drop for Sid {
    fn drop(&mut self) {
        // SAFETY: it was allocated for us and is freed once.
        unsafe { LocalFree(self.0) };
    }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What a token says of itself, in memory aligned for any of its structures.
fn information(token: &OwnedHandle, class: TOKEN_INFORMATION_CLASS) -> io::Result<Vec<u64>> {
    let mut bytes = 0;
    // SAFETY: without a buffer the call fails and tells the size.
    unsafe { GetTokenInformation(token.as_raw_handle(), class, null_mut(), 0, &raw mut bytes) };
    let mut buffer = vec![0u64; (bytes as usize).div_ceil(size_of::<u64>()).max(1)];
    let length = u32::try_from(buffer.len() * size_of::<u64>()).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the buffer has the length that is given.
    check(unsafe {
        GetTokenInformation(token.as_raw_handle(), class, buffer.as_mut_ptr().cast(), length, &raw mut bytes)
    })?;
    Ok(buffer)
}

impl RestrictedToken {
    /// Makes one from the daemon's own.
    pub(super) fn create() -> io::Result<Self> {
        let own = own_token()?;
        let user = user_of(&own)?;
        let deny_only = DENY_ONLY.into_iter().map(Sid::parse).collect::<io::Result<Vec<_>>>()?;
        let restricting = RESTRICTING.into_iter().map(Sid::parse).collect::<io::Result<Vec<_>>>()?;
        let disabled: Vec<_> = deny_only.iter().map(|sid| sid.entry(0)).collect();
        let mut restricted: Vec<_> = restricting.iter().map(|sid| sid.entry(0)).collect();
        let groups = information(&own, TokenGroups)?;
        // Without the session's group a process cannot use a desktop, and most do not even start. Low integrity keeps
        // it from what other processes of the session own.
        restricted.extend(session_group(&groups));
        let mut token: HANDLE = null_mut();
        let count = |list: &[SID_AND_ATTRIBUTES]| u32::try_from(list.len()).unwrap_or(0);
        // SAFETY: the lists have the lengths given and point to identifiers that live until the end of this function.
        check(unsafe {
            CreateRestrictedToken(
                own.as_raw_handle(),
                DISABLE_MAX_PRIVILEGE,
                count(&disabled),
                disabled.as_ptr(),
                0,
                null(),
                count(&restricted),
                restricted.as_ptr(),
                &raw mut token,
            )
        })?;
        // SAFETY: a fresh handle that nobody else has.
        let token = unsafe { OwnedHandle::from_raw_handle(token) };
        lower_integrity(&token)?;
        // SAFETY: a live handle.
        if unsafe { IsTokenRestricted(token.as_raw_handle()) } == 0 {
            return Err(io::Error::other("the token came out unrestricted"));
        }
        Ok(Self { token, user })
    }

    pub(super) fn handle(&self) -> &OwnedHandle {
        &self.token
    }

    /// The user, as text.
    pub(super) fn user(&self) -> &str {
        &self.user
    }

    /// The last part of the user's identifier.
    pub(super) fn user_number(&self) -> u32 {
        self.user.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(u32::MAX)
    }

    /// Does something with the rights that the run will have: in a thread of its own, which takes them to its end.
    pub(super) fn with_its_rights<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        let act = || {
            // SAFETY: a live handle with the rights that the call asks for.
            check(unsafe { ImpersonateLoggedOnUser(self.token.as_raw_handle()) })?;
            Ok(act())
        };
        std::thread::scope(|scope| scope.spawn(act).join())
            .unwrap_or_else(|_| Err(io::Error::other("the attempt with the run's rights failed")))
    }
}

fn own_token() -> io::Result<OwnedHandle> {
    let access = TOKEN_DUPLICATE | TOKEN_QUERY | TOKEN_ASSIGN_PRIMARY | TOKEN_ADJUST_DEFAULT;
    let mut token: HANDLE = null_mut();
    // SAFETY: the pseudo handle of this process; the result goes to a local.
    check(unsafe { OpenProcessToken(GetCurrentProcess(), access, &raw mut token) })?;
    // SAFETY: a fresh handle that nobody else has.
    Ok(unsafe { OwnedHandle::from_raw_handle(token) })
}

fn user_of(token: &OwnedHandle) -> io::Result<String> {
    let buffer = information(token, TokenUser)?;
    let mut text = null_mut();
    // SAFETY: Windows filled the buffer with this structure, which is aligned and points into the buffer.
    let sid = unsafe { (*buffer.as_ptr().cast::<TOKEN_USER>()).User.Sid };
    // SAFETY: the identifier lives in the buffer; the result goes to a local.
    check(unsafe { ConvertSidToStringSidW(sid, &raw mut text) })?;
    let mut units = Vec::new();
    // SAFETY: the text ends in a zero, is read up to there, and is freed once.
    unsafe {
        let mut at = text;
        while *at != 0 {
            units.push(*at);
            at = at.add(1);
        }
        LocalFree(text.cast());
    }
    String::from_utf16(&units).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The group of this logon session, from what the token says of its groups.
fn session_group(buffer: &[u64]) -> Option<SID_AND_ATTRIBUTES> {
    let groups = buffer.as_ptr().cast::<TOKEN_GROUPS>();
    // SAFETY: Windows filled the buffer with this structure: a count, then as many entries, all inside the buffer.
    let groups = unsafe {
        let first = (&raw const (*groups).Groups).cast::<SID_AND_ATTRIBUTES>();
        std::slice::from_raw_parts(first, (*groups).GroupCount as usize)
    };
    let is_session = |group: &&SID_AND_ATTRIBUTES| group.Attributes & SE_GROUP_LOGON_ID == SE_GROUP_LOGON_ID;
    groups.iter().find(is_session).map(|group| SID_AND_ATTRIBUTES { Sid: group.Sid, Attributes: 0 })
}

fn lower_integrity(token: &OwnedHandle) -> io::Result<()> {
    let low = Sid::parse(LOW_INTEGRITY)?;
    let label = TOKEN_MANDATORY_LABEL { Label: low.entry(SE_GROUP_INTEGRITY) };
    // SAFETY: a live identifier.
    let length = size_of::<TOKEN_MANDATORY_LABEL>() as u32 + unsafe { GetLengthSid(low.0) };
    let label: *const c_void = (&raw const label).cast();
    // SAFETY: a live structure that points to a live identifier; the length counts both, as the call wants.
    check(unsafe { SetTokenInformation(token.as_raw_handle(), TokenIntegrityLevel, label, length) })
}

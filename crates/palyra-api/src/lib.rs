//! What the client and the daemon agree on: the wire (generated types, the client that speaks them over the UNIX
//! socket, errors with stable codes), the command line that both parse, and what is remembered of the last start.
//!
//! This crate knows the shape of messages and nothing of what the daemon does with them.

pub mod client;
pub mod command_line;
pub mod error;
pub mod last_start;
pub mod remote;

/// The generated messages and services.
#[expect(
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    reason = "generated from proto/palyra/v1"
)]
pub mod v1 {
    tonic::include_proto!("palyra.v1");
}

pub use client::Connection;
pub use error::ApiError;
pub use last_start::{LastStart, LastStartError};
pub use remote::RemoteHost;

/// The metadata key by which an owner proposes in an agent's name.
pub const ACT_AS: &str = "palyra-act-as";

/// The metadata key by which a caller names its workspace: by id or path, escaped like [`escaped`].
pub const WORKSPACE: &str = "palyra-workspace";

/// The metadata key by which a caller says which directory it works in, escaped the same way.
pub const DIRECTORY: &str = "palyra-directory";

/// The metadata key by which a caller shows a token: `Bearer TOKEN`.
pub const AUTHORIZATION: &str = "authorization";

/// The socket in the state directory on which the daemon speaks MCP: a greeting, then one message a line.
pub const MCP_SOCKET: &str = "mcp.sock";

/// The same for paired devices, as TLS names it. The daemon speaks first: one line that says that the device is let in.
pub const MCP_PROTOCOL: &[u8] = b"palyra-mcp/1";

/// The whole interface as a file descriptor set, for whoever checks that nothing of it is forgotten.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// A text as metadata can hold it: everything but plain characters is percent-encoded.
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=b' ' | 0x7f.. => {
                out.push('%');
                for digit in [byte >> 4, byte & 15] {
                    out.push(char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase());
                }
            }
            _ => out.push(char::from(byte)),
        }
    }
    out
}

/// The text that was escaped; none where it is no text.
#[must_use]
pub fn unescaped(escaped: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let value = digit(rest.next())? * 16 + digit(rest.next())?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_escaped_comes_back() {
        for text in ["", "/srv/project", "/srv/иван/a b%20\n", "100%"] {
            let there = escaped(text);
            assert!(there.bytes().all(|byte| byte.is_ascii_graphic()), "{there}");
            assert_eq!(unescaped(&there).as_deref(), Some(text));
        }
        for bad in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(unescaped(bad), None, "{bad}");
        }
    }
}

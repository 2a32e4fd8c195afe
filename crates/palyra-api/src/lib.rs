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

/// The metadata key by which a caller shows a token: `Bearer TOKEN`.
pub const AUTHORIZATION: &str = "authorization";

/// The socket in the state directory on which the daemon speaks MCP: a greeting, then one message a line.
pub const MCP_SOCKET: &str = "mcp.sock";

/// The same for paired devices, as TLS names it. The daemon speaks first: one line that says that the device is let in.
pub const MCP_PROTOCOL: &[u8] = b"palyra-mcp/1";

/// The whole interface as a file descriptor set, for whoever checks that nothing of it is forgotten.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

//! The MCP door: the same tools, for the agents people already run.
//!
//! One [`McpServer`] speaks the protocol and calls the engine; two ways lead to it. [`socket`] is for clients that
//! start `palyra mcp serve`, which passes their bytes on; [`http`] is for clients that connect to `/mcp` with a token.
//! Neither has rules of its own: a call is `Engine::propose`, a listing is what policy lets the caller at least ask
//! for.

mod answer;
mod call;
mod elicit;
pub(crate) mod http;
mod lines;
mod server;
mod sessions;
pub(crate) mod socket;
mod tools;
mod whose;

pub(crate) use server::{Caller, McpServer};

/// The largest message: an input and what JSON-RPC wraps around it, written with more escapes than it needs.
pub(crate) const MAX_MESSAGE_BYTES: usize = 2 << 20;

/// How many levels JSON-RPC puts around an input: the message, its parameters.
pub(crate) const WRAPPING: usize = 2;

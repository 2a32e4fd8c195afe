//! Agent runs: a model proposes, the one path decides, and what happened goes back to the model.
//!
//! A model is a stranger: whatever it sends is hostile input. [`providers`] speaks the wire formats of model providers
//! and reads their streams with limits; [`conversation`] is the one form in which everything else sees a conversation;
//! [`client`] calls a provider through `palyra-egress`, so that the rules, the address guard and the records of any
//! other connection apply.
//!
//! This crate must never have a second path to an executor.

pub mod client;
pub mod config;
pub mod conversation;
pub mod models;
pub mod providers;
mod reply;
pub mod runs;
mod sse;

#[doc(hidden)]
pub mod fuzzing;

pub use client::{CallContext, Endpoint, ModelClient, ModelError, Usage};
pub use config::{AgentConfig, ModelsConfig, ProviderConfig};
pub use conversation::{Conversation, Message, Part, Role, ToolSpec};
pub use models::{Asked, ModelListing, Models};
pub use providers::{Dialect, ModelRequest, ModelSettings, ToolChoice};
pub use reply::{FinishReason, ModelEvent, ModelReply, ReplyFault, ToolCallRequest};
pub use runs::{RunNews, RunShown, Runs, StartRun, StartedRun, WantedTools};
pub use sse::SseEvent;

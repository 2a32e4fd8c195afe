//! The engine: the one path from a proposal to a verified record.
//!
//! Open [`tool_flow`] first: it is the path, as one function. Each step has a file of its own: [`resolve`], [`decide`],
//! [`clear`] (approve and record), [`execute`], [`attest`]. Doors call [`Engine`]; they hold no rules. The engine knows no
//! transport.

mod access;
mod advise;
mod approvals;
mod ask;
mod attest;
pub mod builtin;
mod catalog;
mod clear;
mod config;
mod decide;
mod disclose;
mod egress;
mod engine;
mod error;
mod execute;
mod fetch;
mod files;
mod live;
mod load;
mod output;
mod permit;
mod process;
mod reconsider;
mod recovery;
mod rehearse;
mod reload;
mod resolve;
mod review;
mod seen;
mod tool_flow;
mod unrecorded;
mod work;

pub use access::{
    AccessControl, RegistryError, VerifiedPeer, accept as accept_registry, peek as peek_registry,
    reset as reset_registry,
};
pub use advise::Advisor;
pub use approvals::{Answer, MAX_LISTED};
pub use ask::{EngineStatus, VerifyNews};
pub use catalog::ToolCatalog;
pub use config::{CallLimits, ToolCallConfig, WasmRuntime};
pub use engine::{Engine, EngineParts, StartError};
pub use error::{EngineError, ErrorKind};
pub use live::CallUpdate;
pub use output::{OutputPiece, OutputWatcher};
pub use palyra_journal::{ApprovalFilter, Listing};
pub use palyra_sandbox::OutputStream;
pub use permit::Permit;
pub use recovery::Recovered;
pub use rehearse::Rehearsal;
pub use reload::{PolicyStatus, RefusedPolicy, Reloaded};
pub use review::SimulationNews;
pub use tool_flow::{CallInProgress, CallWatch, Proposal};

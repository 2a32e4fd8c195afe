//! Tier A: WebAssembly components that get exactly what they were granted.
//!
//! A skill is a component of the world `palyra:skill/skill` (`wit/skill.wit`). [`PluginHost`] compiles it once, keeps
//! the code in an authenticated cache, and runs each call in a fresh instance with a [`Grant`]: what
//! [`WasmPluginRunnerPolicy`] and the skill's [`RequestedCapabilities`] have in common. A guest reaches the outside
//! through [`Doors`] that the engine hands to the call, and through nothing else; every answer from there is recorded,
//! so that the call can be replayed offline.
//!
//! What this crate must never do: give a guest anything that no grant names; execute code that it did not compile
//! itself; look at what JSON means (schemas are the engine's affair).

mod alarm;
mod bindings;
mod cache;
mod call;
mod capabilities;
mod compile;
mod control;
mod denied;
mod doors;
mod engine;
mod error;
mod execute;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod grant;
mod guest;
mod host;
mod hosts;
mod http_request;
mod limits;
mod link;
mod names;
mod plugin;
mod plugin_host;
mod policy;
mod queue;
mod record;
mod storage;
mod wasi;
mod wording;

pub use call::{Execution, PendingCall, PluginCall, ToolAnswer, ToolDescription, Usage};
pub use capabilities::RequestedCapabilities;
pub use compile::{CompileProgress, OnProgress};
pub use control::CallControl;
pub use doors::{
    Doors, FileFault, FilesDoor, HttpAllowance, HttpDoor, HttpFault, HttpReply, OpenHow, Opened, SecretFault,
    SecretsDoor, StorageDoor, StorageFault,
};
pub use error::{Fault, PluginError};
pub use files::DirectoryFiles;
pub use grant::{Grant, Interfaces, Withheld};
pub use guest::{HostCallKind, HostCalls, LogLevel, LogLine, Observed};
pub use hosts::{Host, HostPattern, HostPatternError};
pub use http_request::HttpRequest;
pub use limits::{Limit, Limits, RequestedLimits};
pub use names::{NameError, SecretPattern, SkillName, WorkspacePath};
pub use plugin::{ComponentInterface, Plugin};
pub use plugin_host::{CodeCacheSettings, ComponentSource, HostSettings, PluginHost};
pub use policy::{PolicyError, WasmPluginRunnerPolicy};
pub use record::{
    Blob, CallRecord, Divergence, Ending, FileAnswer, FileKind, FileStatus, HostAnswer, HostEvent, RecordError,
    ReplayError,
};
pub use storage::StorageDirectory;

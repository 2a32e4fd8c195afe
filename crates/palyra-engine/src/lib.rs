//! The engine: the one path from a proposal to a verified record.
//!
//! Open [`flow`] first: it is the path of a call, a file for each step. [`tools`] is what can be called, a file for
//! each tool. [`approvals`] is where people are asked and answer, [`queries`] is what can be asked without acting.
//! Doors call [`Engine`]; they hold no rules. The engine knows no transport.

mod access;
mod adopt;
mod advise;
mod approvals;
mod catalog;
mod config;
mod console;
mod devices;
mod effects;
mod egress;
mod engine;
mod error;
mod file_threads;
mod flow;
mod live;
mod load;
mod memory;
mod output;
mod queries;
mod rehearse;
mod reload;
pub mod routines;
mod runs;
mod skills;
pub mod tools;
pub mod vault;
mod work;

pub use access::{
    AccessControl, RegistryError, VerifiedPeer, accept as accept_registry, peek as peek_registry,
    reset as reset_registry,
};
pub use advise::Advisor;
pub use approvals::MAX_LISTED;
pub use approvals::answer::{Answer, AnswerSignature};
pub use approvals::request::{ApprovalRequest, RequestedApproval};
pub use catalog::{CatalogError, CatalogTool, ToolCatalog, nearest as nearest_tool};
pub use config::{CallLimits, EffectsConfig, OutsidePaths, ToolCallConfig, WasmRuntime};
pub use console::{AnswerConfirmation, ConsoleCode, ConsoleRegistration, ConsoleRequest, NewPasskey, SessionView};
pub use devices::{DeviceSetup, Exposed, OpenDevices, PairingOrder};
pub use effects::{EffectListing, EffectShown, EffectsStatus, UndoReport, UndoTarget, UndoneView};
pub use engine::{Engine, EngineParts, StartError};
pub use error::{EngineError, ErrorKind};
pub use flow::execute::{Executed, Running, Stopped};
pub use flow::handover::RedeemedCall;
pub use flow::permit::Permit;
pub use flow::propose::{CallInProgress, Proposal};
pub use flow::recover::Recovered;
pub use flow::resolve::Refusal;
pub use live::CallUpdate;
pub use memory::{MemoryAdded, MemoryHit, NewMemoryEntry};
pub use output::{OutputPiece, OutputWatcher};
pub use palyra_journal::{ApprovalFilter, CallFilter, CallSummary, Listing, OpenedRun, RunHistory};
pub use palyra_plugins::WasmPluginRunnerPolicy;
pub use palyra_sandbox::OutputStream;
pub use palyra_skills::{KeyId, PublisherId, SkillId, SkillVersion};
pub use queries::calls::CallWatch;
pub use queries::journal::VerifyNews;
pub use queries::review::SimulationNews;
pub use queries::status::EngineStatus;
pub use rehearse::Rehearsal;
pub use reload::{PolicyStatus, RefusedPolicy, Reloaded};
pub use skills::{
    ExaminedSkill, InstallNews, InstallOptions, ReplayReport, SkillInfo, SkillListing, SkillSetup, SkillToolView,
    SkillView, TrustedKey,
};

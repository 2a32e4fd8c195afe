//! The vocabulary of Palyra.
//!
//! Everything the rooms say to each other is said in these types: who acts, what a tool is, what was proposed, decided,
//! approved, executed, attested and recorded. The crate computes (digests, signatures, canonical forms) but never
//! does I/O, is never async, and knows no transport.

pub mod access;
pub mod action;
pub mod alias;
pub mod approval;
pub mod attestation;
pub mod call;
pub mod capability;
pub mod carrier;
pub mod chain;
pub mod clock;
pub mod code_words;
pub mod containment;
pub mod custody;
pub mod decision;
pub mod digest;
pub mod display;
pub mod effect;
pub mod egress;
pub mod event;
mod event_kind;
pub mod facets;
#[doc(hidden)]
pub mod fuzzing;
pub mod grant_match;
pub mod id;
pub mod json;
pub mod memory;
pub mod passkey;
pub mod principal;
pub mod problem_code;
pub mod review;
pub mod routine;
pub mod run;
pub mod secret;
pub mod signed_decision;
pub mod signing;
mod skill_event;
pub mod subject;
pub mod tool;
pub mod vault;
pub mod vault_event;

pub use access::{ApiTokenRecord, WorkspaceRole};
pub use action::{PolicyAction, UnknownAction};
pub use alias::ToolAlias;
pub use approval::{
    ApprovalDecision, ApprovalRecord, ApprovalResolution, ApprovalScope, ApprovalState, GivenApproval, GrantEffect,
    GrantRecord, ShownCall,
};
pub use attestation::{ExecutionStatement, ToolAttestation};
pub use call::{
    AskWhom, Authority, CallRecord, CallState, Denial, MissingCode, MissingCondition, Origin, Problem, ToolCall,
    ToolOutcome, ToolProposal,
};
pub use capability::{RiskLevel, SENSITIVE_CAPABILITY_POLICY_NAMES, ToolCapability};
pub use carrier::{ByClient, Carrier, Ticket, TicketError};
pub use chain::{ChainFault, ChainVerifier, Checkpoint, CheckpointFault};
pub use clock::{Clock, SteadyClock, SystemClock, Timestamp};
pub use containment::{Containment, ContainmentTier, NetworkReach, WorkspaceUse};
pub use custody::{Custody, CustodyError};
pub use decision::{DecisionBasis, DecisionKind, ToolDecision};
pub use digest::{Digest, DigestBuilder};
pub use effect::{
    ChangeKind, EffectChange, EffectCounts, EffectPath, EffectPathError, EffectRecord, EffectState, EntryKind,
};
pub use egress::{EgressEnd, EgressProtocol, EgressRecord, EgressVerdict, TlsName};
pub use event::{ChainedEvent, FinishedCall, JournalEvent};
pub use facets::{Environment, Facets, RoutineUse, SecretUse};
pub use grant_match::{GrantMatcher, MatchKey, MatcherMisfit};
pub use id::{
    ApprovalId, AttestationId, BindingId, CallId, ChannelId, ConsoleId, DecisionId, DeviceId, GrantId, IdempotencyKey,
    JournalId, MemoryId, RequestId, RoutineId, RunId, SessionId, TokenId, VaultId, WorkspaceId,
};
pub use json::CanonicalJson;
pub use memory::{MemoryRecord, MemoryScope, MemorySource, MemoryTrust, MemoryUse, MemoryVerb};
pub use passkey::{AssertionFault, Passkey, PasskeyAssertion};
pub use principal::{Principal, PrincipalKind};
pub use problem_code::ProblemCode;
pub use review::{Review, speaker};
pub use routine::{
    RoutineAction, RoutineBudget, RoutineChange, RoutinePause, RoutinePlan, RoutineRecord, RoutineSchedule, SlotKey,
    SlotKind, SlotRecord, SlotState,
};
pub use run::{RunBudget, RunEnded, RunOpened, RunResult, RunResults, RunResumed, RunState, RunTurn};
pub use secret::Secret;
pub use signed_decision::{ConsoleKey, ConsoleSignature, DecisionSignature, DecisionStatement, Signer};
pub use signing::{DaemonKey, PublicKey, Signature};
pub use skill_event::{InstalledSkill, SkillCause, SkillStatus, SkillStatusChange, SkillUse};
pub use subject::{ApprovalSubject, PairingDevice, SkillChange, WaitingEffects};
pub use tool::{ExecutorKind, ToolDefinition, ToolMetadata, ToolName, ToolSource};
pub use vault::{ScopeName, SecretCaller, SecretName, SecretRef, SecretRefError, VaultScope};
pub use vault_event::{SecretBlame, SecretDelivery, VaultAccess, VaultChange, VaultChangeKind};

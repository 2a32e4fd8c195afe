//! What an event is called, and which call it is about.

use crate::event::JournalEvent;
use crate::id::CallId;

impl JournalEvent {
    /// The event's kind, as it stands in the journal.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::DaemonStarted { .. } => "daemon.started",
            Self::CallsSettled { .. } => "calls.settled",
            Self::DaemonKeyAccepted { .. } => "daemon.key_accepted",
            Self::JournalBegunAnew { .. } => "journal.begun_anew",
            Self::DaemonStopped {} => "daemon.stopped",
            Self::ToolRejected { .. } => "tool.rejected",
            Self::ToolProposed { .. } => "tool.proposed",
            Self::ToolDecided { .. } => "tool.decided",
            Self::ApprovalRequested { .. } => "approval.requested",
            Self::ApprovalGiven { .. } => "approval.given",
            Self::ApprovalRebound { .. } => "approval.rebound",
            Self::PolicyReloaded { .. } => "policy.reloaded",
            Self::PolicyRejected { .. } => "policy.rejected",
            Self::ApprovalResolved { .. } => "approval.resolved",
            Self::ApprovalTakenBack { .. } => "approval.taken_back",
            Self::ClientReported { .. } => "client.reported",
            Self::ConsoleOpened { .. } => "console.opened",
            Self::ConsoleEnded { .. } => "console.ended",
            Self::ConsoleUsed { .. } => "console.used",
            Self::PasskeyAdded { .. } => "console.passkey_added",
            Self::PasskeyRemoved { .. } => "console.passkey_removed",
            Self::AccessRefused { .. } => "access.refused",
            Self::AccessChanged { .. } => "access.changed",
            Self::AccessRegistryRefused { .. } => "access.registry_refused",
            Self::AccessAttempts { .. } => "access.attempts",
            Self::DevicesChanged { .. } => "devices.changed",
            Self::DevicesNoted { .. } => "devices.noted",
            Self::SkillInstalled { .. } => "skill.installed",
            Self::SkillStatusChanged { .. } => "skill.status",
            Self::SkillCurrent { .. } => "skill.current",
            Self::SkillRemoved { .. } => "skill.removed",
            Self::SkillTrustChanged { .. } => "skill.trust",
            Self::GrantCreated { .. } => "grant.created",
            Self::GrantRevoked { .. } => "grant.revoked",
            Self::GrantsVoided { .. } => "grant.voided",
            Self::ToolStarted { .. } => "tool.started",
            Self::ToolFinished(_) => "tool.finished",
            Self::EffectIntended { .. } => "effect.intended",
            Self::EffectSettled { .. } => "effect.settled",
            Self::EffectUndone { .. } => "effect.undone",
            Self::EgressConnection { .. } => "egress.connection",
            Self::VaultAccessed { .. } => "vault.accessed",
            Self::VaultChanged { .. } => "vault.changed",
            Self::MemoryRetained { .. } => "memory.retained",
            Self::MemoryForgotten { .. } => "memory.forgotten",
            Self::RoutineChanged { .. } => "routine.changed",
            Self::RoutineSlot { .. } => "routine.slot",
            Self::RunOpened(_) => "run.opened",
            Self::RunTurn(_) => "run.turn",
            Self::RunResults(_) => "run.results",
            Self::RunResumed(_) => "run.resumed",
            Self::RunEnded(_) => "run.ended",
            Self::RunsSettled { .. } => "runs.settled",
            Self::ModelInvoked { .. } => "model.invoked",
            Self::ToolEnded { .. } => "tool.ended",
        }
    }

    /// The call it is about.
    #[must_use]
    pub fn call_id(&self) -> Option<&CallId> {
        match self {
            Self::DaemonStarted { .. }
            | Self::CallsSettled { .. }
            | Self::DaemonKeyAccepted { .. }
            | Self::JournalBegunAnew { .. }
            | Self::DaemonStopped {}
            | Self::ConsoleOpened { .. }
            | Self::ConsoleEnded { .. }
            | Self::ConsoleUsed { .. }
            | Self::PasskeyAdded { .. }
            | Self::PasskeyRemoved { .. }
            | Self::AccessRefused { .. }
            | Self::AccessChanged { .. }
            | Self::AccessRegistryRefused { .. }
            | Self::AccessAttempts { .. }
            | Self::DevicesChanged { .. }
            | Self::DevicesNoted { .. }
            | Self::SkillInstalled { .. }
            | Self::SkillStatusChanged { .. }
            | Self::SkillCurrent { .. }
            | Self::SkillRemoved { .. }
            | Self::SkillTrustChanged { .. }
            | Self::PolicyReloaded { .. }
            | Self::PolicyRejected { .. }
            | Self::GrantCreated { .. }
            | Self::GrantRevoked { .. }
            | Self::VaultChanged { .. }
            | Self::MemoryRetained { .. }
            | Self::MemoryForgotten { .. }
            | Self::RoutineChanged { .. }
            | Self::RoutineSlot { .. }
            | Self::RunOpened(_)
            | Self::RunTurn(_)
            | Self::RunResults(_)
            | Self::RunResumed(_)
            | Self::RunEnded(_)
            | Self::RunsSettled { .. }
            | Self::ModelInvoked { .. }
            | Self::GrantsVoided { .. } => None,
            Self::VaultAccessed { access } => access.call_id.as_ref(),
            Self::ToolProposed { call } => Some(&call.call_id),
            Self::ApprovalRequested { approval } => Some(&approval.call_id),
            Self::ToolFinished(finished) => Some(&finished.call_id),
            Self::ToolRejected { call_id, .. }
            | Self::ToolDecided { call_id, .. }
            | Self::ApprovalGiven { call_id, .. }
            | Self::ApprovalRebound { call_id, .. }
            | Self::ApprovalResolved { call_id, .. }
            | Self::ApprovalTakenBack { call_id, .. }
            | Self::ClientReported { call_id, .. }
            | Self::ToolStarted { call_id, .. }
            | Self::EffectIntended { call_id, .. }
            | Self::EffectSettled { call_id, .. }
            | Self::EffectUndone { call_id, .. }
            | Self::EgressConnection { call_id, .. }
            | Self::ToolEnded { call_id, .. } => Some(call_id),
        }
    }
}

//! The table of permissions: what each role may do.
//!
//! Every action of the policy belongs to one permission, and every role has some permissions. A caller's right is the
//! intersection of three: the token's scopes, this table, and policy. The table is data, and a test
//! holds it to the one that is documented.

use palyra_protocol::access::TokenScope;
use palyra_protocol::{PolicyAction, PrincipalKind, ProblemCode, WorkspaceRole};

macro_rules! permissions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// A set of actions that are given together.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Permission { $($(#[$doc])* $variant),+ }

        impl Permission {
            /// Every permission.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

permissions! {
    /// See what concerns oneself.
    Look = "workspace.look",
    /// Call tools, search the memory, run routines.
    Use = "workspace.use",
    /// See what concerns everybody: the journal, questions, grants, members, tokens.
    Oversee = "workspace.oversee",
    /// Answer questions and withdraw answers.
    Approve = "approvals.decide",
    /// Issue, replace and withdraw tokens.
    ManageTokens = "tokens.manage",
    /// Manage members and agents.
    ManageMembers = "members.manage",
    /// Say what the workspace trusts: devices, the journal's seal, who acts as whom.
    OperateTrust = "trust.operate",
    /// Say what the workspace is: its rules, its features, its groups, and whether it is served.
    ManageWorkspace = "workspace.manage",
}

/// The permissions of each role.
pub const ROLES: [(WorkspaceRole, &[Permission]); 3] = [
    (WorkspaceRole::Owner, Permission::ALL),
    (
        WorkspaceRole::Admin,
        &[
            Permission::Look,
            Permission::Use,
            Permission::Oversee,
            Permission::Approve,
            Permission::ManageTokens,
            Permission::ManageMembers,
        ],
    ),
    (WorkspaceRole::Operator, &[Permission::Look, Permission::Use]),
];

/// The permission that an action belongs to. A new action does not compile until it has one.
#[must_use]
pub fn permission(action: PolicyAction) -> Permission {
    use PolicyAction as A;
    match action {
        A::ToolList
        | A::DaemonStatus
        | A::CallRead
        | A::PolicyExplain
        | A::AccessRead
        | A::EffectRead
        | A::CronList
        | A::RunRead
        | A::CompatModelsList
        | A::ConsoleOpen => Permission::Look,
        A::ToolExecute
        | A::SkillExecute
        | A::CallCancel
        | A::MemorySearch
        | A::MemoryRetain
        | A::MemoryForget
        | A::CronCreate
        | A::CronRun
        | A::CronDelete
        | A::VaultGet
        | A::EffectApply
        | A::RunStart
        | A::RunCancel
        | A::ModelInvoke
        | A::CompatChatCreate => Permission::Use,
        A::JournalRead
        | A::JournalVerify
        | A::ApprovalList
        | A::GrantList
        | A::PolicyShow
        | A::PolicySimulate
        | A::TokenList
        | A::MemberList
        | A::FeatureList
        | A::VaultList
        | A::DeviceList
        | A::SkillList => Permission::Oversee,
        A::ApprovalDecide | A::ApprovalWaive | A::GrantRevoke | A::EffectUndo => Permission::Approve,
        A::TokenCreate | A::TokenRotate | A::TokenRevoke => Permission::ManageTokens,
        A::MemberManage | A::AgentManage => Permission::ManageMembers,
        A::JournalCheckpoint
        | A::ActAs
        | A::DevicePair
        | A::DeviceRevoke
        | A::ConsoleManage
        | A::VaultPut
        | A::VaultDelete
        | A::VaultManage
        | A::SkillManage => Permission::OperateTrust,
        A::PolicyReload | A::FeatureSet | A::WorkspaceManage | A::DaemonStop => Permission::ManageWorkspace,
    }
}

/// Whether a role has an action.
#[must_use]
pub fn role_has(role: WorkspaceRole, action: PolicyAction) -> bool {
    let permission = permission(action);
    ROLES.iter().any(|(known, has)| *known == role && has.contains(&permission))
}

/// Whether a principal of this kind can hold an action at all. Programs look and use; whatever a role or a file says,
/// they never manage and never approve.
#[must_use]
pub fn kind_may_hold(kind: PrincipalKind, action: PolicyAction) -> bool {
    kind == PrincipalKind::User || matches!(permission(action), Permission::Look | Permission::Use)
}

/// What a token is issued with when nothing is said: what it takes to call tools.
pub const DEFAULT_SCOPES: [PolicyAction; 7] = [
    PolicyAction::ToolList,
    PolicyAction::ToolExecute,
    PolicyAction::SkillExecute,
    PolicyAction::CallRead,
    PolicyAction::CallCancel,
    PolicyAction::DaemonStatus,
    PolicyAction::AccessRead,
];

/// What stands between a caller and an action, before policy is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortfall {
    /// The token is not for this.
    Scope,
    /// The role does not have it.
    Role,
    /// Programs never have it.
    Kind,
}

impl Shortfall {
    /// The stable machine code, in answers and in the journal.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Scope => ProblemCode::ScopeMissing.as_str(),
            Self::Role => "role_insufficient",
            Self::Kind => "forbidden",
        }
    }
}

/// Whether scopes, role and kind leave room for an action on a resource, by its name. Without a name: on any.
///
/// # Errors
/// What stands in the way.
pub fn room(
    kind: PrincipalKind,
    role: Option<WorkspaceRole>,
    scopes: Option<&[TokenScope]>,
    action: PolicyAction,
    resource: Option<&str>,
) -> Result<(), Shortfall> {
    if !kind_may_hold(kind, action) {
        return Err(Shortfall::Kind);
    }
    if !role.is_some_and(|role| role_has(role, action)) {
        return Err(Shortfall::Role);
    }
    let Some(scopes) = scopes else { return Ok(()) };
    let fits = |scope: &TokenScope| {
        let on = match (scope.only(), resource) {
            (None, _) | (Some(_), None) => true,
            (Some(only), Some(resource)) => only == resource,
        };
        scope.action() == action.as_str() && on
    };
    if scopes.iter().any(fits) { Ok(()) } else { Err(Shortfall::Scope) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WorkspaceRole::{Admin, Operator, Owner};

    /// The table as it is documented, written down a second time: a change here is a change of the promise.
    const TABLE: &str = "
        tool.execute        owner admin operator
        skill.execute       owner admin operator
        approval.decide     owner admin
        tool.list           owner admin operator
        daemon.status       owner admin operator
        vault.get           owner admin operator
        vault.put           owner
        vault.delete        owner
        vault.list          owner admin
        vault.manage        owner
        memory.search       owner admin operator
        memory.retain       owner admin operator
        memory.forget       owner admin operator
        cron.create         owner admin operator
        cron.run            owner admin operator
        cron.delete         owner admin operator
        cron.list           owner admin operator
        approval.list       owner admin
        grant.list          owner admin
        grant.revoke        owner admin
        journal.read        owner admin
        journal.verify      owner admin
        journal.checkpoint  owner
        policy.explain      owner admin operator
        policy.show         owner admin
        call.read           owner admin operator
        call.cancel         owner admin operator
        act_as              owner
        approval.waive      owner admin
        policy.reload       owner
        policy.simulate     owner admin
        access.read         owner admin operator
        token.create        owner admin
        token.list          owner admin
        token.rotate        owner admin
        token.revoke        owner admin
        member.list         owner admin
        member.manage       owner admin
        agent.manage        owner admin
        feature.list        owner admin
        feature.set         owner
        device.list         owner admin
        device.pair         owner
        device.revoke       owner
        console.open        owner admin operator
        console.manage      owner
        workspace.manage    owner
        daemon.stop         owner
        effect.apply        owner admin operator
        effect.read         owner admin operator
        effect.undo         owner admin
        run.start           owner admin operator
        run.read            owner admin operator
        run.cancel          owner admin operator
        model.invoke        owner admin operator
        compat.chat.create  owner admin operator
        compat.models.list  owner admin operator
        skill.list          owner admin
        skill.manage        owner";

    #[test]
    fn the_table_of_permissions_is_as_specified() {
        let rows: Vec<Vec<&str>> = TABLE.lines().map(|l| l.split_whitespace().collect()).collect();
        let rows: Vec<_> = rows.into_iter().filter(|r| !r.is_empty()).collect();
        let named: Vec<_> = rows.iter().map(|row| row[0]).collect();
        let known: Vec<_> = PolicyAction::ALL.iter().map(|action| action.as_str()).collect();
        assert_eq!(named, known, "every action has its line, in the order of their declaration");
        for (row, action) in rows.iter().zip(PolicyAction::ALL) {
            for role in WorkspaceRole::ALL {
                assert_eq!(role_has(role, *action), row[1..].contains(&role.as_str()), "{action} {role}");
            }
        }
    }

    #[test]
    fn a_higher_role_has_all_that_a_lower_one_has() {
        for (higher, lower) in [(Owner, Admin), (Admin, Operator)] {
            for action in PolicyAction::ALL {
                assert!(!role_has(lower, *action) || role_has(higher, *action), "{action}");
            }
        }
        let has = |role: WorkspaceRole, permission| {
            ROLES.iter().any(|(known, has)| *known == role && has.contains(&permission))
        };
        for permission in [Permission::OperateTrust, Permission::ManageWorkspace] {
            assert!(has(Owner, permission) && !has(Admin, permission) && !has(Operator, permission));
        }
        for permission in [Permission::ManageTokens, Permission::ManageMembers] {
            assert!(has(Owner, permission) && has(Admin, permission) && !has(Operator, permission));
        }
    }

    #[test]
    fn programs_never_hold_what_people_decide() {
        for kind in [PrincipalKind::Agent, PrincipalKind::Device, PrincipalKind::System] {
            for action in [
                PolicyAction::ApprovalDecide,
                PolicyAction::ApprovalWaive,
                PolicyAction::GrantRevoke,
                PolicyAction::TokenCreate,
                PolicyAction::MemberManage,
                PolicyAction::ActAs,
                PolicyAction::FeatureSet,
            ] {
                assert!(!kind_may_hold(kind, action), "{kind:?} {action}");
                let all: TokenScope = action.as_str().parse().unwrap();
                assert_eq!(room(kind, Some(Owner), Some(&[all]), action, None), Err(Shortfall::Kind));
            }
        }
    }

    #[test]
    fn the_default_scopes_fit_an_agent() {
        for action in DEFAULT_SCOPES {
            assert!(role_has(Operator, action) && kind_may_hold(PrincipalKind::Agent, action), "{action}");
        }
    }

    #[test]
    fn scopes_and_role_are_intersected() {
        let scopes: Vec<TokenScope> =
            ["tool.list", "tool.execute:palyra.fs.read", "approval.list"].map(|s| s.parse().unwrap()).to_vec();
        let ask =
            |role, action, resource: Option<&str>| room(PrincipalKind::User, role, Some(&scopes), action, resource);
        assert_eq!(ask(Some(Operator), PolicyAction::ToolList, None), Ok(()));
        assert_eq!(ask(Some(Operator), PolicyAction::ToolExecute, Some("palyra.fs.read")), Ok(()));
        assert_eq!(ask(Some(Operator), PolicyAction::ToolExecute, None), Ok(()), "on something");
        assert_eq!(ask(Some(Owner), PolicyAction::ToolExecute, Some("palyra.echo")), Err(Shortfall::Scope));
        assert_eq!(ask(Some(Operator), PolicyAction::ApprovalList, None), Err(Shortfall::Role));
        assert_eq!(ask(Some(Admin), PolicyAction::ApprovalList, None), Ok(()));
        assert_eq!(ask(None, PolicyAction::ToolList, None), Err(Shortfall::Role));
        assert_eq!(ask(Some(Owner), PolicyAction::TokenCreate, None), Err(Shortfall::Scope));
    }
}

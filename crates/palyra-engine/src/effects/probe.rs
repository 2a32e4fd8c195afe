//! Whether runs can work on a view of this workspace: tried, because no table of file systems and kernels can tell.

use super::effect_problem;
use palyra_protocol::{Problem, SessionId};
use palyra_sandbox::{
    CancelSignal, EgressEnforcementMode, ProcessRequest, SandboxError, SandboxProcessRunnerPolicy, WorkspaceView,
    resolve_executable, run_constrained_process,
};
use palyra_workspace::Workspace;
use palyra_workspace::effects::{View, ViewStore};

/// Runs `true` on a view, which is thrown away.
pub(super) fn overlay(
    store: &ViewStore,
    policy: &SandboxProcessRunnerPolicy,
    workspace: &Workspace,
) -> Result<(), Problem> {
    let id = format!("probe-{}", SessionId::mint());
    let view = store.begin(&id, workspace).map_err(|error| effect_problem(&error))?;
    let ran = run(policy, workspace, &view);
    if let Err(error) = store.discard(&id) {
        super::log(&error, "a view that was tried stays behind");
    }
    ran.map_err(|error| {
        tracing::warn!(error = &error as &dyn std::error::Error, "processes cannot work on a view of the workspace");
        Problem::new(
            "views_unavailable",
            format!("processes cannot work on a view of the workspace: {error}"),
            "keep the workspace on a file system that overlays can be mounted on, like ext4, xfs or btrfs",
        )
    })
}

fn run(policy: &SandboxProcessRunnerPolicy, workspace: &Workspace, view: &View) -> Result<(), SandboxError> {
    let policy = SandboxProcessRunnerPolicy {
        allowed_executables: Vec::new(),
        egress: EgressEnforcementMode::None,
        required_layers: Vec::new(),
        ..policy.clone()
    };
    let request = ProcessRequest {
        argv: vec!["true".to_owned()],
        working_directory: workspace.root().to_owned(),
        view: Some(WorkspaceView { upper: view.upper(), work: view.work() }),
        ..ProcessRequest::default()
    };
    let executable = resolve_executable(&policy, &request.argv, &request.working_directory)?;
    let never = CancelSignal::never().map_err(SandboxError::io("prepare a cancellation"))?;
    run_constrained_process(&policy, &executable, &request, &never, &mut ()).map(drop)
}

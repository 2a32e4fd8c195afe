//! The daemon about itself.

use super::{Door, Reply, document, refused};
use palyra_api::ApiError;
use palyra_api::v1::daemon_server::Daemon;
use palyra_api::v1::{StatusReply, StatusRequest, StopReply, StopRequest};
use palyra_sandbox::EgressEnforcementMode;
use tonic::{Code, Request, Response, Status};

#[tonic::async_trait]
impl Daemon for Door {
    async fn status(&self, request: Request<StatusRequest>) -> Reply<StatusReply> {
        let peer = self.peer(&request)?;
        let status = self.engine.status(&peer).map_err(refused)?;
        let sandbox = if request.get_ref().probe_sandbox { probe().await? } else { String::new() };
        let probe = request.get_ref().probe_sandbox;
        // Without a workspace, or in one that is closed, nothing is kept that could be told of.
        let effects_json = match self.engine.effects_status(&peer, probe).await {
            Ok(effects) => document(&effects)?,
            Err(_) => String::new(),
        };
        let runner = &self.engine.config().process_runner;
        Ok(Response::new(StatusReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            started_at_unix_ms: self.about.started_at_unix_ms,
            state_dir: self.about.state_dir.display().to_string(),
            workspace_root: status.workspace_root.map(|root| root.display().to_string()).unwrap_or_default(),
            workspaces_json: status.workspaces.iter().map(document).collect::<Result<_, _>>()?,
            workspace_problem: status.workspace_problem.map(|problem| problem.message).unwrap_or_default(),
            policy_hash: status.policy_hash.to_string(),
            policy_rules: count(status.policy_rules),
            public_key: status.public_key.to_string(),
            journal_origin: status.journal_origin.to_string(),
            journal_size: status.journal_head.size,
            journal_head: status.journal_head.hash.to_string(),
            tools: count(status.tools),
            pending_approvals: u32::try_from(status.pending_approvals).unwrap_or(u32::MAX),
            open_calls: count(status.open_calls),
            sandbox_json: sandbox,
            process_tier: runner.tier.to_string(),
            process_egress: match runner.egress {
                EgressEnforcementMode::None => "none",
                EgressEnforcementMode::Preflight => "preflight",
                EgressEnforcementMode::Strict => "strict",
            }
            .to_owned(),
            principal: peer.effective().to_string(),
            config_path: self.about.config_path.display().to_string(),
            policy_json: document(&self.engine.policy_status(&peer).map_err(refused)?)?,
            effects_json,
            http_url: self.about.http_url.clone().unwrap_or_default(),
            remote_address: self.about.remote.address().map(|at| at.to_string()).unwrap_or_default(),
        }))
    }

    async fn stop(&self, request: Request<StopRequest>) -> Reply<StopReply> {
        let peer = self.peer(&request)?;
        self.engine.may_stop(&peer).map_err(refused)?;
        let meant = request.get_ref().pid;
        if meant != std::process::id() {
            let message = format!("process {meant} is not this daemon, which is process {}", std::process::id());
            return Err(ApiError::new("other_daemon", message, None).into_status(Code::FailedPrecondition));
        }
        tracing::info!(by = %peer.effective(), "asked to end");
        self.about.stop.notify_one();
        Ok(Response::new(StopReply {}))
    }
}

/// Tries what this host can enforce: starts processes, so not on an async thread.
async fn probe() -> Result<String, Status> {
    let found = tokio::task::spawn_blocking(palyra_sandbox::detect).await;
    document(&found.map_err(|_| Status::internal("the sandbox could not be probed"))?)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

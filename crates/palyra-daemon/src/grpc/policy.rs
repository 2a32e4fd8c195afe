//! Policy: explained, shown, read anew, compared, replayed, suggested.

use super::calls::proposal;
use super::{Door, Reply, Streamed, document, refused};
use palyra_api::v1::policy_server::Policy;
use palyra_api::v1::{
    ComparePolicyReply, ComparePolicyRequest, ExplainReply, PolicyFile as WireFile, ProposeRequest, ReloadPolicyReply,
    ReloadPolicyRequest, ShowRulesReply, ShowRulesRequest, SimulatePolicyRequest, SimulatePolicyUpdate,
    SuggestRulesReply, SuggestRulesRequest,
};
use palyra_engine::SimulationNews;
use palyra_policy::PolicyFile;
use palyra_protocol::Timestamp;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// How many approvals a suggested rule must have spared, unless the caller says otherwise.
const AGAIN_AND_AGAIN: u32 = 3;

#[tonic::async_trait]
impl Policy for Door {
    type SimulateStream = Streamed<SimulatePolicyUpdate>;

    async fn explain(&self, request: Request<ProposeRequest>) -> Reply<ExplainReply> {
        let peer = self.peer(&request)?;
        let mut request = request.into_inner();
        let sent = std::mem::take(&mut request.candidate);
        let candidate = std::mem::take(&mut request.by_candidate).then(|| files(sent));
        let explained = self.engine.explain_by(&peer, proposal(request)?, candidate).await;
        let (call, decision) = explained.map_err(refused)?;
        Ok(Response::new(ExplainReply { decision_json: document(&decision)?, call_json: document(&call)? }))
    }

    async fn show(&self, request: Request<ShowRulesRequest>) -> Reply<ShowRulesReply> {
        let peer = self.peer(&request)?;
        let id = &request.get_ref().id;
        let rules = self.engine.rules(&peer, Some(id.as_str()).filter(|id| !id.is_empty())).map_err(refused)?;
        let policy_hash = self.engine.policy_hash().to_string();
        Ok(Response::new(ShowRulesReply { rules_json: document(&rules)?, policy_hash }))
    }

    async fn reload(&self, request: Request<ReloadPolicyRequest>) -> Reply<ReloadPolicyReply> {
        let peer = self.peer(&request)?;
        let outcome = self.engine.reload_policy(&peer).await.map_err(refused)?;
        let status = self.engine.policy_status(&peer).map_err(refused)?;
        Ok(Response::new(ReloadPolicyReply { outcome_json: document(&outcome)?, status_json: document(&status)? }))
    }

    async fn compare(&self, request: Request<ComparePolicyRequest>) -> Reply<ComparePolicyReply> {
        let peer = self.peer(&request)?;
        let files = files(request.into_inner().files);
        let diff = self.engine.compare_policy(&peer, files).await.map_err(refused)?;
        Ok(Response::new(ComparePolicyReply { diff_json: document(&diff)? }))
    }

    async fn simulate(&self, request: Request<SimulatePolicyRequest>) -> Reply<Self::SimulateStream> {
        let peer = self.peer(&request)?;
        let SimulatePolicyRequest { since_unix_ms, files: sent } = request.into_inner();
        let since = Timestamp::from_unix_ms(since_unix_ms);
        let news = self.engine.simulate_policy(&peer, since, files(sent)).await.map_err(refused)?;
        Ok(Response::new(Box::pin(ReceiverStream::new(news).map(simulated))))
    }

    async fn suggest(&self, request: Request<SuggestRulesRequest>) -> Reply<SuggestRulesReply> {
        let peer = self.peer(&request)?;
        let SuggestRulesRequest { since_unix_ms, least } = *request.get_ref();
        let least = if least == 0 { AGAIN_AND_AGAIN } else { least };
        let since = Timestamp::from_unix_ms(since_unix_ms);
        let suggestions = self.engine.suggest_rules(&peer, since, least as usize).await.map_err(refused)?;
        Ok(Response::new(SuggestRulesReply { suggestions_json: document(&suggestions)? }))
    }
}

fn files(sent: Vec<WireFile>) -> Vec<PolicyFile> {
    sent.into_iter().map(|file| PolicyFile { name: file.name, bytes: file.content }).collect()
}

fn simulated(news: SimulationNews) -> Result<SimulatePolicyUpdate, Status> {
    match news {
        SimulationNews::Progress(replayed) => Ok(SimulatePolicyUpdate { replayed, report_json: String::new() }),
        SimulationNews::Done(result) => {
            let report = (*result).map_err(refused)?;
            Ok(SimulatePolicyUpdate { replayed: report.replayed, report_json: document(&report)? })
        }
    }
}

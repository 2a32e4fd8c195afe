//! The promises, checked after every start.

use crate::load::{Attempt, Effect};
use crate::model::Model;
use palyra_api::v1::{CallUpdate, CheckpointRequest, ListApprovalsRequest, StatusRequest, VerifyRequest};
use palyra_e2e::{Caller, Host, api};
use palyra_protocol::{ApprovalRecord, ApprovalState};
use std::collections::HashMap;

/// Everything that was promised so far.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    model: Model,
    checkpoint: String,
    kept: Vec<Attempt>,
}

impl Promises {
    /// Checks everything about the calls of the round that a kill has ended.
    pub(crate) async fn check(&mut self, host: &Host, attempts: Vec<Attempt>) {
        let owner = host.owner().await;
        self.journal_holds(&owner).await;
        self.settle(&owner).await;
        self.none_is_left_executing(&owner).await;
        assert_eq!(half_done(host), Vec::<String>::new());
        let lines = Lines::read(host);
        for attempt in &attempts {
            told_is_recorded(&owner, attempt).await;
            effect_fits(host, &lines, attempt, attempt.outcome.as_ref());
        }
        for attempt in &attempts {
            self.never_runs_again(&owner, attempt).await;
        }
        let lines = Lines::read(host);
        for attempt in &attempts {
            assert!(lines.count(&attempt.key) <= 1, "{attempt:?} ran twice");
        }
        self.kept.extend(attempts);
        self.model.read_on(&owner).await;
        self.checkpoint =
            owner.0.journal().checkpoint(CheckpointRequest {}).await.unwrap().into_inner().checkpoint_json;
    }

    /// Checks at the very end that nothing of all rounds has changed since.
    pub(crate) async fn check_again(&mut self, host: &Host) {
        let owner = host.owner().await;
        self.journal_holds(&owner).await;
        let lines = Lines::read(host);
        for attempt in &self.kept {
            told_is_recorded(&owner, attempt).await;
            effect_fits(host, &lines, attempt, attempt.outcome.as_ref());
        }
        let told = self.kept.iter().filter(|attempt| attempt.outcome.is_some()).count();
        assert!(told > 300, "only {told} calls were acknowledged: the load was no load");
        let cut_off = self.kept.len() - told;
        assert!(cut_off > 50, "only {cut_off} calls were cut off: the kills came at idle moments");
    }

    /// The chain is whole, and holds everything that was there at the last look.
    async fn journal_holds(&self, owner: &Caller) {
        let request = VerifyRequest { checkpoint_json: self.checkpoint.clone() };
        let mut news = owner.0.journal().verify(request).await.unwrap().into_inner();
        loop {
            let update = api::patiently("a verdict", news.message()).await.unwrap().unwrap();
            if update.done {
                assert_eq!(update.fault, "");
                return;
            }
        }
    }

    /// Lets what the start resumed come to its end: says yes to what waits, and follows what is open.
    async fn settle(&mut self, owner: &Caller) {
        let pending = owner.0.approvals().list(ListApprovalsRequest::default()).await.unwrap().into_inner();
        for approval in pending.approvals {
            let question: ApprovalRecord = serde_json::from_str(&approval.approval_json).unwrap();
            owner.allow(question.approval_id.as_str()).await.unwrap();
        }
        self.model.read_on(owner).await;
        for id in self.model.open() {
            owner.follow(&id).await.unwrap();
        }
        self.model.read_on(owner).await;
    }

    /// Once everything is answered, no call is left between its start and its end.
    async fn none_is_left_executing(&self, owner: &Caller) {
        assert_eq!(self.model.open(), Vec::<String>::new());
        let status = owner.0.daemon().status(StatusRequest { probe_sandbox: false }).await.unwrap().into_inner();
        assert_eq!((status.open_calls, status.pending_approvals), (0, 0));
    }

    /// The same key again: the earlier call answers, if there is one; and whatever happens, nothing runs twice.
    async fn never_runs_again(&self, owner: &Caller, attempt: &Attempt) {
        // The chance that a call was recorded without its proposer learning its id is what the key is for.
        let known =
            attempt.call_id.as_ref().is_some_and(|id| self.model.calls.get(id).is_some_and(|c| c.proposed == 1));
        let mut call = owner.propose(attempt.proposal()).await.unwrap();
        let end = loop {
            let update = call.next().await.unwrap().unwrap();
            if !update.outcome_json.is_empty() {
                break update;
            }
            if !update.approval_json.is_empty() {
                let question: ApprovalRecord = serde_json::from_str(&update.approval_json).unwrap();
                if question.state == ApprovalState::Pending {
                    owner.allow(question.approval_id.as_str()).await.unwrap();
                }
            }
        };
        if known {
            assert!(end.replayed, "{attempt:?} became another call: {end:?}");
            assert_eq!(attempt.call_id.as_deref(), Some(end.call_id.as_str()));
        }
        if let Some(told) = &attempt.outcome {
            assert_eq!(api::outcome(&end), api::outcome(told), "{attempt:?}");
        }
        let state = end.state.as_str();
        let fine = ["succeeded", "indeterminate"].contains(&state);
        assert!(fine, "{attempt:?} ended {state}: {}", end.outcome_json);
    }
}

/// What writes that were cut off have prepared in the workspace.
pub(crate) fn half_done(host: &Host) -> Vec<String> {
    let names = std::fs::read_dir(host.work(".")).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.starts_with(".palyra-tmp-")).collect()
}

/// What a client was told is what the journal holds.
async fn told_is_recorded(owner: &Caller, attempt: &Attempt) {
    let Some(told) = &attempt.outcome else { return };
    let recorded = owner.show(&told.call_id).await.unwrap();
    assert_eq!(recorded.state, told.state, "{attempt:?}");
    assert_eq!(api::outcome(&recorded), api::outcome(told), "{attempt:?}");
    assert_eq!(told.state, "succeeded", "{attempt:?}");
}

/// An effect is there once if its success was told, and never twice.
fn effect_fits(host: &Host, lines: &Lines, attempt: &Attempt, told: Option<&CallUpdate>) {
    let found = match attempt.effect {
        Effect::Echo => return,
        Effect::File => {
            let file = host.work(&format!("files-{}", attempt.key));
            let content = std::fs::read_to_string(file);
            content.map_or(0, |text| if text == attempt.key { 1 } else { usize::MAX })
        }
        Effect::Line | Effect::ApprovedLine => lines.count(&attempt.key),
    };
    assert!(found <= 1, "{attempt:?} ran twice, or left half a file");
    if told.is_some() {
        assert_eq!(found, 1, "{attempt:?} was told to have succeeded");
    }
}

/// How often each line was appended.
struct Lines(HashMap<String, usize>);

impl Lines {
    fn read(host: &Host) -> Self {
        let mut counts = HashMap::new();
        for line in host.content("lines").lines() {
            *counts.entry(line.to_owned()).or_default() += 1;
        }
        Self(counts)
    }

    fn count(&self, line: &str) -> usize {
        self.0.get(line).copied().unwrap_or(0)
    }
}

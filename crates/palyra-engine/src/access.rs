//! Who is speaking, and what they may do.
//!
//! Every door turns its caller into a [`VerifiedPeer`] here and nowhere else, and every operation of the engine asks
//! about that peer before it does anything: the token's scopes, the role, and policy must all agree. No door decides
//! for itself.

mod client_processes;
mod control;
mod manage;
#[cfg(test)]
mod tests;
mod whoami;

pub(crate) use client_processes::ClientProcesses;
pub use control::{AccessControl, RegistryError, accept, peek, reset};

use crate::console::{ConsoleRequest, ConsoleSession, Opener, session_ended};
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use crate::queries::seen::forbidden;
use crate::routines::ROUTINE_CHANNEL;
use palyra_access::rights::{self, Shortfall};
use palyra_access::{Admitted, TokenRefusal};
use palyra_identity::ConnectedDevice;
use palyra_policy::{PolicyAction, PolicyDecision, PolicyRequest, PolicyRequestContext, PolicyResource};
use palyra_protocol::access::{Credential, ShownToken};
use palyra_protocol::{ChannelId, ConsoleId, Origin, Principal, PrincipalKind, Problem, RoutineRecord, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// How long what is only in memory may stay there.
const TENDING: Duration = Duration::from_secs(60);

/// A caller whose identity a door has established.
///
/// INVARIANT (one_notion_of_caller): private fields, no `Clone`, constructed only in this file, by a check.
#[derive(Debug)]
pub struct VerifiedPeer {
    principal: Principal,
    acting_as: Option<Principal>,
    channel: ChannelId,
    /// The token or device it came with, as it was let in; none on the daemon's own socket.
    token: Option<Admitted>,
    /// The device at the other end of the connection, where it is a paired one.
    device: Option<Arc<ConnectedDevice>>,
    /// The agent's client that its process descends from, in words.
    within_client: Option<String>,
    /// The console session that the request was signed in.
    console: Option<Arc<ConsoleSession>>,
}

impl VerifiedPeer {
    /// A peer on the daemon's own UNIX socket: the daemon's user, and nobody else.
    ///
    /// # Errors
    /// The peer runs as another user.
    pub fn on_local_socket(peer_uid: Option<u32>, daemon_uid: u32, channel: ChannelId) -> Result<Self, EngineError> {
        if peer_uid != Some(daemon_uid) {
            return Err(EngineError::new(
                ErrorKind::Forbidden,
                Problem::new(
                    "foreign_user",
                    "this socket answers only to the user that runs the daemon",
                    "run the command as that user",
                ),
            ));
        }
        Ok(Self {
            principal: Principal::local_owner(),
            acting_as: None,
            channel,
            token: None,
            device: None,
            within_client: None,
            console: None,
        })
    }

    /// A peer that shows a token. `source` says where it comes from, as exactly as the door knows: guesses are counted
    /// by it.
    ///
    /// Whoever shows no valid secret gets one answer, whatever is wrong; whoever does may know how the token stands.
    /// The journal has the reasons of all.
    ///
    /// # Errors
    /// The token does not open this workspace now, or too often.
    pub fn by_token(engine: &Engine, token: &str, source: &str, channel: ChannelId) -> Result<Self, EngineError> {
        let admitted =
            engine.access().registry().check(token).map_err(|refusal| engine.refuse_token(refusal, source))?;
        engine.tend_usage();
        let principal = admitted.principal().clone();
        Ok(Self {
            principal,
            acting_as: None,
            channel,
            token: Some(admitted),
            device: None,
            within_client: None,
            console: None,
        })
    }

    /// A paired device, by the certificate that its connection was made with. Nothing that a request says changes who
    /// it is.
    ///
    /// # Errors
    /// The device is not let in any more.
    pub fn by_device(engine: &Engine, device: &Arc<ConnectedDevice>, channel: ChannelId) -> Result<Self, EngineError> {
        let admitted = engine.admit_device(device)?;
        let (principal, device) = (admitted.principal().clone(), Some(Arc::clone(device)));
        Ok(Self {
            principal,
            acting_as: None,
            channel,
            token: Some(admitted),
            device,
            within_client: None,
            console: None,
        })
    }

    /// The same peer with the process at the other end of the socket: one of an agent's client is not the person.
    #[must_use]
    pub fn of_process(mut self, engine: &Engine, pid: Option<u32>) -> Self {
        self.within_client = pid.and_then(|pid| engine.client_processes().client_of(pid));
        self
    }

    /// The agent's client that the peer's process descends from, in words.
    pub(crate) fn within_client(&self) -> Option<&str> {
        self.within_client.as_deref()
    }

    /// The agent that a routine runs as. The routine is on record: somebody who may added it.
    pub(crate) fn of_routine(routine: &RoutineRecord) -> Self {
        let (principal, channel) = (routine.plan.principal.clone(), ChannelId::fixed(ROUTINE_CHANNEL));
        Self { principal, acting_as: None, channel, token: None, device: None, within_client: None, console: None }
    }

    /// Whether the daemon's own scheduler is at the other end.
    pub(crate) fn is_routine(&self) -> bool {
        self.channel.as_str() == ROUTINE_CHANNEL
    }

    /// A page of the console, by the signature of its request: whoever made the session's code, as far as what they
    /// made it with still reaches. A session of a paired device holds only on that device's own connections.
    ///
    /// # Errors
    /// The session is over, the signature does not fit, or the request was seen before.
    pub fn by_console(
        engine: &Engine,
        request: &ConsoleRequest,
        device: Option<&Arc<ConnectedDevice>>,
        channel: ChannelId,
    ) -> Result<Self, EngineError> {
        let session = engine.console_of(request)?;
        let opened_by = session.opener().device_id.as_ref();
        if device.map(|device| device.device_id()) != opened_by {
            return Err(session_ended());
        }
        let opened = Self::by_console_opener(session.opener());
        let device = device.cloned();
        let peer = Self { channel, device, console: Some(session), ..opened };
        let token = engine.still_admitted(&peer)?;
        Ok(Self { token, ..peer })
    }

    /// Whoever made a code, as they were known then. What they may do by now is asked of the peer that this makes.
    pub(crate) fn by_console_opener(opener: &Opener) -> Self {
        let Opener { principal, token, device, .. } = opener.clone();
        let channel = ChannelId::fixed("console");
        Self { principal, acting_as: None, channel, token, device, within_client: None, console: None }
    }

    /// The console session that the request was signed in.
    pub(crate) fn console(&self) -> Option<&Arc<ConsoleSession>> {
        self.console.as_ref()
    }

    /// The console session that the request was signed in.
    #[must_use]
    pub fn console_id(&self) -> Option<&ConsoleId> {
        self.console.as_ref().map(|session| session.id())
    }

    /// The device at the other end of the connection, where it is a paired one.
    pub(crate) fn device(&self) -> Option<&Arc<ConnectedDevice>> {
        self.device.as_ref()
    }

    pub(crate) fn token(&self) -> Option<&Admitted> {
        self.token.as_ref()
    }

    /// The token or device that the peer speaks by; none on the daemon's own socket.
    #[must_use]
    pub fn credential(&self) -> Option<&Credential> {
        self.token.as_ref().map(Admitted::credential)
    }

    /// The token or device that the peer speaks by, as records keep it; none on the daemon's own socket.
    pub(crate) fn shown_token(&self) -> Option<ShownToken> {
        self.token.as_ref().map(Admitted::shown)
    }

    /// In whose name the peer acts.
    #[must_use]
    pub fn effective(&self) -> &Principal {
        self.acting_as.as_ref().unwrap_or(&self.principal)
    }

    /// Who the peer is.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The door it came through.
    #[must_use]
    pub fn channel(&self) -> &ChannelId {
        &self.channel
    }
}

impl Engine {
    /// The peer that a run's calls are proposed as: the caller, checked anew, in an agent's name where one is meant. It
    /// outlives the request that began the run.
    ///
    /// # Errors
    /// What the caller showed opens nothing any more, or it may not act as the agent.
    pub fn peer_of_run(&self, peer: &VerifiedPeer, agent: Option<Principal>) -> Result<VerifiedPeer, EngineError> {
        let token = self.still_admitted(peer)?;
        let own = VerifiedPeer {
            principal: peer.principal.clone(),
            acting_as: peer.acting_as.clone(),
            channel: peer.channel.clone(),
            token,
            device: peer.device.clone(),
            within_client: peer.within_client.clone(),
            console: peer.console.clone(),
        };
        match agent {
            Some(agent) if agent != *own.effective() => self.act_as(own, agent),
            _ => Ok(own),
        }
    }

    /// The peer of a run that a start carries on: whoever began it, if that would still be let in. A device has to come
    /// by itself.
    ///
    /// # Errors
    /// The token opens nothing any more, or the caller may not act as the agent any more.
    pub fn peer_of_recorded_run(&self, origin: &Origin) -> Result<VerifiedPeer, EngineError> {
        let token = match origin.token.as_ref().map(|token| &token.credential) {
            None => None,
            Some(Credential::Token(id)) => {
                let now = self.access().state().admit_recorded(id, self.clock().now());
                Some(now.map_err(|refusal| self.refuse_token(refusal, "a run that is carried on"))?)
            }
            Some(Credential::Device(_)) => {
                let problem = Problem::new(
                    "device_absent",
                    "the device that began the run is not connected",
                    "resume it from the device: `palyra runs resume RUN`",
                );
                return Err(EngineError::new(ErrorKind::Unavailable, problem));
            }
        };
        let (principal, channel) = (origin.proposed_by.clone(), origin.channel.clone());
        let device = None;
        let peer =
            VerifiedPeer { principal, acting_as: None, channel, token, device, within_client: None, console: None };
        self.act_as(peer, origin.principal.clone())
    }

    /// Lets an owner act in an agent's name, if policy says so.
    ///
    /// # Errors
    /// The name is not an agent's, or policy denies.
    pub fn act_as(&self, peer: VerifiedPeer, name: Principal) -> Result<VerifiedPeer, EngineError> {
        if name == peer.principal {
            return Ok(peer);
        }
        let Some(agent) = PolicyResource::agent(&name) else {
            return Err(EngineError::new(
                ErrorKind::Forbidden,
                Problem::new(
                    "act_as_not_agent",
                    format!("nobody can act as `{name}`"),
                    "only `agent:NAME` can be acted as",
                ),
            ));
        };
        self.authorize(&peer, PolicyAction::ActAs, agent, None)?;
        Ok(VerifiedPeer { acting_as: Some(name), ..peer })
    }

    /// Remembers the process that an agent's client connects with: what descends from the client is not the person.
    pub fn remember_client(&self, peer: &VerifiedPeer, pid: Option<u32>) {
        if peer.principal.kind() == PrincipalKind::Agent
            && let Some(pid) = pid
        {
            self.client_processes().remember(pid);
        }
    }

    /// Refuses what only people do to a process that descends from an agent's client, as far as the host shows it.
    ///
    /// # Errors
    /// It does.
    pub(crate) fn not_within_client(&self, peer: &VerifiedPeer, action: PolicyAction) -> Result<(), EngineError> {
        let Some(client) = peer.within_client().filter(|_| action.is_peoples()) else { return Ok(()) };
        let message = format!(
            "`{action}` is for people, and this command comes from an agent's client ({client}) or what it started"
        );
        let hint = "do it in a terminal of your own, outside of the client, or on a paired device";
        Err(EngineError::new(ErrorKind::Forbidden, Problem::new("agents_never_approve", message, hint)))
    }

    /// Asks policy whether the peer may do this.
    ///
    /// # Errors
    /// Policy denies; the answer says which rule and what would change it.
    pub(crate) fn authorize(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        resource: PolicyResource,
        context: Option<PolicyRequestContext>,
    ) -> Result<(), EngineError> {
        self.authorize_as(peer.effective(), peer, action, resource, context).map(drop)
    }

    /// What a door asks before it looks at a request: may this peer do such a thing at all? With a thing to do it to,
    /// policy is asked as well; without, only scopes and role are, and the operation itself asks policy.
    ///
    /// # Errors
    /// It may not.
    pub fn admit(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        resource: Option<PolicyResource>,
    ) -> Result<(), EngineError> {
        // An answer to an approval is refused further in, where the attempt is recorded.
        if action != PolicyAction::ApprovalDecide
            && let Err(refusal) = self.not_within_client(peer, action)
        {
            let now = self.clock().now();
            let _wait = self.access().registry().attempts().count("an agent's client", "agents_never_approve", now);
            self.tend_attempts();
            return Err(refusal);
        }
        match resource {
            // Whoever explains an agent's call, or looks at themselves, asks in their own name.
            Some(resource) if action == PolicyAction::PolicyExplain => {
                self.authorize_as(&peer.principal, peer, action, resource, None).map(drop)
            }
            Some(resource) => self.authorize(peer, action, resource, None),
            None => self.room(peer, peer.effective(), action, None).map(drop),
        }
    }

    /// Whether the token's scopes and role leave room for an action, before policy is asked. A refusal is counted, and
    /// told to the journal in sums: a caller that goes on trying does not fill it. Returns the token as it stands.
    fn room(
        &self,
        peer: &VerifiedPeer,
        principal: &Principal,
        action: PolicyAction,
        resource: Option<&PolicyResource>,
    ) -> Result<Option<Admitted>, EngineError> {
        self.is_room(peer, principal, action, resource).map_err(|(shortfall, error)| {
            if let (Some(shortfall), Some(token)) = (shortfall, &peer.token) {
                let source = source_of(token);
                let _wait = self.access().registry().attempts().count(&source, shortfall.reason(), self.clock().now());
                self.tend_attempts();
            }
            error
        })
    }

    /// The same without counting, for those who only want to know. The token is looked at anew: what was withdrawn
    /// since the peer came in is withdrawn for whatever it does next.
    fn is_room(
        &self,
        peer: &VerifiedPeer,
        principal: &Principal,
        action: PolicyAction,
        resource: Option<&PolicyResource>,
    ) -> Result<Option<Admitted>, (Option<Shortfall>, EngineError)> {
        let Some(now) = self.still_admitted(peer).map_err(|error| (None, error))? else { return Ok(None) };
        let name = resource.map(PolicyResource::name);
        rights::room(principal.kind(), Some(now.role()), Some(now.scopes()), action, name).map_err(|shortfall| {
            let problem = shortfall_problem(shortfall, principal, &now, action, resource);
            (Some(shortfall), EngineError::new(ErrorKind::Forbidden, problem))
        })?;
        Ok(Some(now))
    }

    /// Whether the peer may call this tool at all, before policy is asked.
    /// Returns the token as it stands, where it showed one.
    pub(crate) fn room_for_call(&self, peer: &VerifiedPeer, tool: &str) -> Result<Option<Admitted>, EngineError> {
        let tool = PolicyResource::Tool(tool.to_owned());
        let room = self.is_room(peer, peer.effective(), PolicyAction::ToolExecute, Some(&tool));
        room.map_err(|(_, error)| error)
    }

    /// Whether the peer would be let in now: asked before something is handed to one that has waited for it.
    ///
    /// # Errors
    /// Its token opens nothing any more.
    pub fn still_opens(&self, peer: &VerifiedPeer) -> Result<(), EngineError> {
        self.still_admitted(peer).map(drop)
    }

    /// What the peer came with, as it stands now: what was withdrawn since is withdrawn.
    fn still_admitted(&self, peer: &VerifiedPeer) -> Result<Option<Admitted>, EngineError> {
        if peer.console.as_ref().is_some_and(|session| !session.is_open()) {
            return Err(session_ended());
        }
        if let Some(device) = &peer.device {
            return self.admit_device(device).map(Some);
        }
        let Some(token) = &peer.token else { return Ok(None) };
        let again = self.access().state().again(token, self.clock().now());
        again.map(Some).map_err(|refusal| self.refuse_token(refusal, &source_of(token)))
    }

    /// Comes when the peer's token opens nothing any more because somebody took that away; never otherwise.
    pub async fn shut_out(&self, peer: &VerifiedPeer) -> EngineError {
        let mut changes = self.watch_rights();
        loop {
            if let Err(error) = self.still_opens(peer) {
                return error;
            }
            if changes.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Why what was proposed with a token goes no further: it opens nothing any more.
    pub(crate) fn token_gone(&self, token: Option<&ShownToken>) -> Option<Problem> {
        let id = match &token?.credential {
            Credential::Token(id) => id,
            Credential::Device(id) => return self.device_gone(id),
        };
        let refusal = self.access().state().stands(id, self.clock().now()).err()?;
        let (code, how) = match refusal {
            TokenRefusal::Expired => ("token_expired", "has expired"),
            TokenRefusal::TokensClosed => ("tokens_closed", "opens nothing now, like every token"),
            TokenRefusal::OtherWorkspace => ("token_other_workspace", "opens another workspace"),
            TokenRefusal::PrincipalGone => ("token_principal_gone", "speaks for somebody who is no longer here"),
            _ => ("token_revoked", "was withdrawn"),
        };
        let message = format!("the token that the call was proposed with {how}");
        Some(Problem::new(code, message, "propose the call again, with a token that opens"))
    }

    /// Until when a token opens, if nothing happens to it. A device renews its certificate, so it has no such end.
    pub(crate) fn token_expiry(&self, token: &ShownToken) -> Option<Timestamp> {
        self.access().state().stands(token.credential.token_id()?, self.clock().now()).ok()
    }

    /// Counts a refused token, and says as much as its holder may know.
    pub(crate) fn refuse_token(&self, refusal: TokenRefusal, source: &str) -> EngineError {
        let wait = self.access().registry().attempts().count(source, refusal.reason(), self.clock().now());
        self.tend_attempts();
        let refused = |code: &str, message: &str, hint: &str| {
            EngineError::new(ErrorKind::Unauthenticated, Problem::new(code, message, hint))
        };
        let anew = "ask whoever issued it for another: `palyra access token create`";
        match refusal {
            TokenRefusal::Malformed | TokenRefusal::Unknown | TokenRefusal::WrongSecret => match wait {
                Some(wait) => EngineError::new(
                    ErrorKind::Exhausted,
                    Problem::new("too_many_attempts", "too many tokens were refused from here", "wait, then try again"),
                )
                .retry_after(wait),
                None => refused("unauthenticated", "this token opens nothing here", "check that it was copied whole"),
            },
            TokenRefusal::Rotated => refused("token_rotated", "this token was replaced by a newer one", anew),
            TokenRefusal::Revoked => refused("token_revoked", "this token was withdrawn", anew),
            TokenRefusal::Expired => refused("token_expired", "this token's time is over", anew),
            TokenRefusal::OtherWorkspace => {
                refused("token_other_workspace", "this token opens another workspace", "use a token of this workspace")
            }
            TokenRefusal::PrincipalGone => {
                refused("token_principal_gone", "whom this token speaks for is no longer here", anew)
            }
            TokenRefusal::TokensClosed => refused(
                "tokens_closed",
                "no token opens anything now",
                "an owner has turned the feature `api_tokens` off; ask them",
            ),
            TokenRefusal::RateLimited(wait) => EngineError::new(
                ErrorKind::Exhausted,
                Problem::new(
                    "rate_limited",
                    "this token was used too often in the last minute",
                    "wait, then try again",
                ),
            )
            .retry_after(wait),
        }
    }

    /// Sees to it that refusals are recorded: now, and what comes after in sums, a minute apart.
    pub(crate) fn tend_attempts(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.access().attempts_tended.claim() {
            let engine = self.clone();
            runtime.spawn(async move {
                engine.write_attempts().await;
                engine.pause().await;
                // Whoever comes from here on sends somebody of their own.
                engine.access().attempts_tended.release();
                engine.write_attempts().await;
            });
        }
    }

    /// Sees to it that the last uses of tokens are written down within a minute.
    fn tend_usage(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.access().usage_tended.claim() {
            let engine = self.clone();
            runtime.spawn(async move {
                engine.pause().await;
                engine.access().usage_tended.release();
                engine.write_usage().await;
            });
        }
    }

    /// A minute, or until the end: which writes everything down once more.
    async fn pause(&self) {
        tokio::select! {
            () = tokio::time::sleep(TENDING) => {}
            () = self.closing().cancelled() => {}
        }
    }

    async fn write_attempts(&self) {
        for event in self.access().registry().attempts().drain() {
            if let Err(error) = self.journal().note(&event).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "refused attempts could not be recorded");
            }
        }
    }

    async fn write_usage(&self) {
        let engine = self.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || engine.access().registry().save_usage()).await {
            tracing::warn!(%error, "when tokens were last used could not be written down");
        }
    }

    /// The last word before the end.
    pub(crate) async fn settle_access(&self) {
        self.write_attempts().await;
        self.write_usage().await;
    }

    /// Whether the peer may do this, for those who would only tell less: no attempt, and counted as none.
    pub(crate) fn may(&self, peer: &VerifiedPeer, action: PolicyAction, resource: PolicyResource) -> bool {
        self.would_allow(peer, action, resource, &self.at_door(peer))
    }

    /// Whether the peer could do this under these circumstances: no attempt, and counted as none.
    pub(crate) fn would_allow(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        resource: PolicyResource,
        context: &PolicyRequestContext,
    ) -> bool {
        let principal = peer.effective().clone();
        let Ok(token) = self.is_room(peer, &principal, action, Some(&resource)) else { return false };
        let context = as_shown(context.clone(), token.as_ref(), &principal);
        let request = PolicyRequest { principal, action, resource };
        matches!(self.policy().evaluate_with_context(&request, &context).decision, PolicyDecision::Allow)
    }

    /// Asks policy about the peer under one of its own names. Returns the token as it stands, where it showed one.
    pub(crate) fn authorize_as(
        &self,
        principal: &Principal,
        peer: &VerifiedPeer,
        action: PolicyAction,
        resource: PolicyResource,
        context: Option<PolicyRequestContext>,
    ) -> Result<Option<Admitted>, EngineError> {
        let token = self.room(peer, principal, action, Some(&resource))?;
        let context = self.placed(context.unwrap_or_else(|| self.at_door(peer)));
        let context = as_shown(context, token.as_ref(), principal);
        let request = PolicyRequest { principal: principal.clone(), action, resource };
        let evaluation = self.policy().evaluate_with_context(&request, &context);
        match evaluation.decision {
            PolicyDecision::Allow => Ok(token),
            PolicyDecision::DenyByDefault => Err(forbidden(&request, &evaluation.explanation)),
        }
    }
}

/// Under which name a caller's refused attempts are counted.
fn source_of(token: &Admitted) -> String {
    match token.credential() {
        Credential::Token(id) => format!("token {id}"),
        Credential::Device(id) => format!("device {id}"),
    }
}

/// What rules see of a token or device: the role that it leaves its own principal, who had a hand in it, and which
/// device it is.
fn as_shown(
    mut context: PolicyRequestContext,
    token: Option<&Admitted>,
    principal: &Principal,
) -> PolicyRequestContext {
    if let Some(token) = token {
        // Whoever acts as an agent has the agent's place, not the token's.
        context.role = (token.principal() == principal).then(|| token.role());
        context.issued_by = token.issuers().to_vec();
        context.device_id = token.device_id().cloned();
    }
    context
}

fn shortfall_problem(
    shortfall: Shortfall,
    principal: &Principal,
    token: &Admitted,
    action: PolicyAction,
    resource: Option<&PolicyResource>,
) -> Problem {
    match shortfall {
        Shortfall::Scope => {
            let on = resource.map_or_else(String::new, |resource| format!(" on `{resource}`"));
            let scopes: Vec<_> = token.scopes().iter().map(ToString::to_string).collect();
            Problem::new(
                shortfall.reason(),
                format!("this token may not do `{action}`{on}; its scopes are {}", scopes.join(", ")),
                format!(
                    "use a token with the scope `{action}`: `palyra access token create PRINCIPAL --scope {action}`"
                ),
            )
        }
        Shortfall::Role => Problem::new(
            shortfall.reason(),
            match token.device_id() {
                None => format!("this token has the role {}, which does not include `{action}`", token.role()),
                Some(_) => format!("this device has the role {}, which does not include `{action}`", token.role()),
            },
            "ask somebody with a higher role to do it",
        ),
        Shortfall::Kind => Problem::new(
            shortfall.reason(),
            format!("`{principal}` is a program, and programs never do `{action}`"),
            "let a person do it",
        ),
    }
}

#[cfg(test)]
mod peers {
    use super::*;

    #[test]
    fn only_the_daemons_own_user_is_the_owner() {
        let channel = || "cli".parse().unwrap();
        assert!(VerifiedPeer::on_local_socket(Some(1000), 1000, channel()).is_ok());
        for stranger in [None, Some(0), Some(1001)] {
            let refused = VerifiedPeer::on_local_socket(stranger, 1000, channel()).unwrap_err();
            assert_eq!(refused.problem.code, "foreign_user");
        }
    }
}

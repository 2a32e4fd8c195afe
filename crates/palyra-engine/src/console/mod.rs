//! The console's sessions: who opened one, with which browser's key, and whether a request is theirs.
//!
//! A person asks for a one-time code at a door that knows them. The page that is opened with it makes a key that never
//! leaves its browser, registers it with the code, and signs every request. A session acts as the person who made the
//! code, as far as what they made it with still reaches: a token that is withdrawn, or a device that is revoked, takes
//! its sessions along.
//!
//! The journal records when each began and ended, its key, and that it was used. From that a start takes open sessions
//! up again ([`recover`]), and the signatures of decisions are checked by it. Requests that were signed before a start
//! count no more after it. There is no cookie, because cookies are sent to every port of a host.
//!
//! [`passkeys`] confirm decisions where a rule demands a verified approver.

mod passkeys;
mod recover;
mod requests;
mod sessions;

pub use passkeys::{AnswerConfirmation, NewPasskey};
pub use requests::ConsoleRequest;
pub(crate) use requests::session_ended;
pub use sessions::SessionView;
pub(crate) use sessions::{ConsoleSession, Consoles, Opener};

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{
    ConsoleId, ConsoleKey, Digest, JournalEvent, Principal, PrincipalKind, Problem, Secret, Timestamp,
};
use sessions::Waiting;
use std::sync::Arc;
use std::time::Duration;

/// How long a code opens.
const CODE_LIFE: Duration = Duration::from_secs(120);
/// The longest name that a browser gives itself.
const MAX_LABEL: usize = 120;
/// Where wrong codes are counted.
const CODES: &str = "console codes";

/// A code that was made, and until when it opens.
#[derive(Debug)]
pub struct ConsoleCode {
    /// The code. It opens once.
    pub code: Secret,
    /// Until when.
    pub expires_at: Timestamp,
}

/// What a page registers.
#[derive(Debug)]
pub struct ConsoleRegistration {
    /// Its key.
    pub key: ConsoleKey,
    /// What the browser calls itself.
    pub label: String,
}

impl Engine {
    /// Makes a one-time code that opens the console in the caller's name.
    ///
    /// # Errors
    /// The caller is no person, or may not.
    pub fn console_code(&self, peer: &VerifiedPeer) -> Result<ConsoleCode, EngineError> {
        self.may_open_console(peer)?;
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| EngineError::internal("the machine gives no randomness"))?;
        let code: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let expires_at = self.clock().now().plus(CODE_LIFE);
        let waiting = Waiting { code: Digest::of(code.as_bytes()), expires_at, opener: Opener::of(peer) };
        self.consoles().wait(waiting, self.clock().now());
        Ok(ConsoleCode { code: Secret::new(code.into_bytes()), expires_at })
    }

    /// Opens a session with a code. The code is used up, whatever comes of it.
    ///
    /// # Errors
    /// The code does not open, or whoever made it may not open the console any more.
    pub async fn open_console(&self, code: &str, page: ConsoleRegistration) -> Result<SessionView, EngineError> {
        let found = self.consoles().redeem(Digest::of(code.as_bytes()), self.clock().now());
        let opener = found.ok_or_else(|| self.wrong_code())?;
        let peer = VerifiedPeer::by_console_opener(&opener);
        self.still_opens(&peer)?;
        self.may_open_console(&peer)?;
        self.register_console(opener, page).await
    }

    /// Opens a session for the paired device that the connection was made by: its certificate says who it is, so it
    /// needs no code.
    ///
    /// # Errors
    /// It may not.
    pub async fn open_device_console(
        &self,
        peer: &VerifiedPeer,
        page: ConsoleRegistration,
    ) -> Result<SessionView, EngineError> {
        self.may_open_console(peer)?;
        self.register_console(Opener::of(peer), page).await
    }

    fn may_open_console(&self, peer: &VerifiedPeer) -> Result<(), EngineError> {
        if peer.effective().kind() != PrincipalKind::User {
            let message = format!("`{}` is not a person; only people open the console", peer.effective());
            let problem = Problem::new("console_is_for_people", message, "open it in your own name");
            return Err(EngineError::new(ErrorKind::Forbidden, problem));
        }
        self.authorize(peer, PolicyAction::ConsoleOpen, PolicyResource::Daemon, None)
    }

    async fn register_console(&self, opener: Opener, page: ConsoleRegistration) -> Result<SessionView, EngineError> {
        let label: String = page.label.chars().filter(|c| !c.is_control()).take(MAX_LABEL).collect();
        let now = self.clock().now();
        let session = Arc::new(ConsoleSession::new(opener, page.key, label, now));
        self.end_stale_consoles().await;
        let event = JournalEvent::ConsoleOpened {
            session: session.id().clone(),
            principal: session.opener().principal.clone(),
            token: session.opener().shown(),
            key: page.key,
            label: session.label().to_owned(),
        };
        let place = self.consoles().reserve().ok_or_else(|| {
            let problem = Problem::new(
                "too_many_consoles",
                "too many console sessions are open",
                "end some: `palyra console sessions list`, then `palyra console sessions revoke ID`",
            );
            EngineError::new(ErrorKind::Exhausted, problem)
        })?;
        self.journal().note(&event).await?;
        Ok(self.consoles().enter(place, &session).view(now))
    }

    fn wrong_code(&self) -> EngineError {
        let wait = self.access().registry().attempts().count(CODES, "console_code", self.clock().now());
        self.tend_attempts();
        let problem = Problem::new(
            "console_code_wrong",
            "this code does not open the console: it was used, is older than two minutes, or never was one",
            "run `palyra console` again",
        );
        match wait {
            Some(wait) => EngineError::new(ErrorKind::Exhausted, problem).retry_after(wait),
            None => EngineError::new(ErrorKind::Unauthenticated, problem),
        }
    }

    /// The sessions that are open: the caller's own, and those of others where they may manage them.
    ///
    /// # Errors
    /// The caller may not.
    pub async fn console_sessions(&self, peer: &VerifiedPeer) -> Result<Vec<SessionView>, EngineError> {
        self.authorize(peer, PolicyAction::ConsoleOpen, PolicyResource::Daemon, None)?;
        self.end_stale_consoles().await;
        let all = self.may(peer, PolicyAction::ConsoleManage, PolicyResource::Daemon);
        let now = self.clock().now();
        let sessions = self.consoles().all().into_iter();
        let seen = sessions.filter(|session| all || session.opener().principal == *peer.effective());
        Ok(seen.map(|session| session.view(now)).collect())
    }

    /// Ends a session.
    ///
    /// # Errors
    /// There is none, or the caller may not end it.
    pub async fn end_console(&self, peer: &VerifiedPeer, id: &ConsoleId) -> Result<SessionView, EngineError> {
        self.authorize(peer, PolicyAction::ConsoleOpen, PolicyResource::Daemon, None)?;
        let all = self.may(peer, PolicyAction::ConsoleManage, PolicyResource::Daemon);
        let session = self.consoles().find(id);
        let session = session.filter(|session| all || session.opener().principal == *peer.effective());
        let session = session.ok_or_else(|| {
            let message = format!("there is no open console session `{id}`");
            let problem = Problem::new("no_such_console", message, "see `palyra console sessions list`");
            EngineError::new(ErrorKind::NotFound, problem)
        })?;
        let view = session.view(self.clock().now());
        self.end_session(&session, peer.effective().clone(), "revoked").await?;
        Ok(view)
    }

    /// Ends the sessions that nobody has used for long.
    pub(crate) async fn end_stale_consoles(&self) {
        let now = self.clock().now();
        for session in self.consoles().all() {
            let Some(reason) = session.stale(now) else { continue };
            if let Err(error) = self.end_session(&session, Principal::daemon(), reason).await {
                tracing::warn!(code = error.problem.code, "the end of a console session was not recorded");
            }
        }
    }

    /// The session opens nothing from here on, and the journal knows.
    async fn end_session(&self, session: &Arc<ConsoleSession>, by: Principal, reason: &str) -> Result<(), EngineError> {
        if !self.consoles().leave(session) {
            return Ok(());
        }
        self.announce_rights();
        let (session, reason) = (session.id().clone(), reason.to_owned());
        self.journal().note(&JournalEvent::ConsoleEnded { session, by, reason }).await?;
        Ok(())
    }
}

//! What a key means as an answer, and how an answer is sent.

use crate::commands::read;
use crate::exit::{FAILED, Failure};
use palyra_api::Connection;
use palyra_api::v1::{self, DecideRequest, TakeBackRequest};
use palyra_protocol::review::Offer;
use palyra_protocol::{ApprovalDecision, ApprovalRecord, ApprovalScope, DecisionStatement, GrantMatcher, Review};

/// An answer that a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// `y`: this, once.
    Once,
    /// `s`: exactly this again, for the session.
    Session,
    /// `p`: commands that begin alike, for the session.
    Prefix,
    /// `w`: files under this directory, for the session.
    Directory,
    /// `h`: this host and method, for the session.
    Host,
}

impl Choice {
    pub const ALL: [Self; 5] = [Self::Once, Self::Session, Self::Prefix, Self::Directory, Self::Host];

    /// The key.
    #[must_use]
    pub fn key(self) -> char {
        match self {
            Self::Once => 'y',
            Self::Session => 's',
            Self::Prefix => 'p',
            Self::Directory => 'w',
            Self::Host => 'h',
        }
    }

    /// The key's answer.
    #[must_use]
    pub fn of(key: char) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.key() == key)
    }

    /// In a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Session => "session",
            Self::Prefix => "prefix",
            Self::Directory => "directory",
            Self::Host => "host",
        }
    }

    /// The offer of a review that it takes.
    fn offer(self, review: &Review) -> Option<&Offer> {
        review.offers.iter().find(|offer| {
            matches!(
                (self, &offer.matcher),
                (Self::Session, GrantMatcher::ExactCall)
                    | (Self::Prefix, GrantMatcher::ArgvPrefix { .. })
                    | (Self::Directory, GrantMatcher::PathPrefix { .. })
                    | (Self::Host, GrantMatcher::HostMethod { .. })
            )
        })
    }

    /// Whether a review offers it.
    #[must_use]
    pub fn fits(self, review: &Review) -> bool {
        self == Self::Once || self.offer(review).is_some()
    }

    /// How long and how wide the answer to this review would be.
    ///
    /// # Errors
    /// The review does not offer it.
    pub fn answer(self, review: &Review) -> Result<(ApprovalScope, GrantMatcher), String> {
        match (self, self.offer(review)) {
            (Self::Once, _) => Ok((ApprovalScope::Once, GrantMatcher::ExactCall)),
            (_, Some(offer)) => Ok((offer.scope, offer.matcher.clone())),
            (choice, None) => Err(format!("not taken: there is no answer by {} here", choice.word())),
        }
    }
}

/// Sends an answer, with the digest that was shown.
pub async fn send(
    connection: &Connection,
    review: &Review,
    allow: bool,
    (scope, matcher): (ApprovalScope, GrantMatcher),
    reason: &str,
) -> Result<ApprovalRecord, Failure> {
    let mut request = request(scope, matcher.clone());
    request.approval_id = review.approval_id.to_string();
    request.allow = allow;
    reason.clone_into(&mut request.reason);
    request.digest = review.digest.to_string();
    let said = DecisionStatement {
        approval_id: &review.approval_id,
        shown: &review.digest,
        policy_hash: &review.policy_hash,
        decision: if allow { ApprovalDecision::Allow } else { ApprovalDecision::Deny },
        scope,
        matcher: &matcher,
        reason: said_reason(reason),
    };
    sign(connection, &mut request, &said)?;
    read(&connection.approvals().decide(request).await?.into_inner().approval_json)
}

/// A reason as it is signed: a blank one is none.
pub fn said_reason(reason: &str) -> &str {
    if reason.trim().is_empty() { "" } else { reason }
}

/// Signs an answer where this machine is a paired device; elsewhere answers have no signature.
pub fn sign(connection: &Connection, request: &mut DecideRequest, said: &DecisionStatement<'_>) -> Result<(), Failure> {
    let Some(device) = connection.device() else { return Ok(()) };
    let failed = |why: String| {
        let message = format!("the answer cannot be signed with this device's key: {why}");
        Failure::new(FAILED, "device_key_failed", message, Some("pair this machine again: `palyra pair`"))
    };
    let digest = said.digest().map_err(|error| failed(error.to_string()))?;
    let (key, signature) = device.sign(&digest).map_err(|error| failed(error.to_string()))?;
    (request.signature, request.signing_key) = (signature.to_string(), key.to_string());
    Ok(())
}

/// How long and how wide, as it travels.
#[must_use]
pub fn request(scope: ApprovalScope, matcher: GrantMatcher) -> DecideRequest {
    let mut request = DecideRequest::default();
    let (kind, ms) = match scope {
        ApprovalScope::Once => (v1::Scope::Once, 0),
        ApprovalScope::Session => (v1::Scope::Session, 0),
        ApprovalScope::Window { ms } => (v1::Scope::Window, ms),
    };
    (request.scope, request.window_ms) = (kind.into(), ms);
    let kind = match matcher {
        GrantMatcher::ExactCall => v1::Matcher::ExactCall,
        GrantMatcher::Tool => v1::Matcher::Tool,
        GrantMatcher::ArgvPrefix { words } => {
            request.argv_prefix = words;
            v1::Matcher::ArgvPrefix
        }
        GrantMatcher::PathPrefix { directory } => {
            request.directory = directory;
            v1::Matcher::PathPrefix
        }
        GrantMatcher::HostMethod { host, method } => {
            (request.host, request.method) = (host, method);
            v1::Matcher::HostMethod
        }
    };
    request.matcher = kind.into();
    request
}

/// Records that a yes was taken back before it was sent. That it was not sent does not depend on the record.
pub async fn take_back(connection: &Connection, review: &Review) -> Result<(), Failure> {
    let request = TakeBackRequest { approval_id: review.approval_id.to_string(), allow: true };
    connection.approvals().take_back(request).await?;
    Ok(())
}

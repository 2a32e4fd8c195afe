//! The registry in memory: what a check looks at. Replaced as a whole by every change.

use crate::document::RegistryDocument;
use crate::feature::Feature;
use crate::rate_bucket::Bucket;
use crate::token::{PresentedToken, same};
use palyra_protocol::access::{Credential, ShownToken, TokenScope};
use palyra_protocol::{
    ApiTokenRecord, DeviceId, Digest, PolicyAction, Principal, PrincipalKind, Timestamp, TokenId, WorkspaceId,
    WorkspaceRole,
};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// What is known of a token besides its record: never written with it.
#[derive(Debug)]
pub(crate) struct Live {
    last_used: AtomicU64,
    bucket: Mutex<Bucket>,
}

impl Live {
    pub(crate) fn last_used(&self) -> Option<Timestamp> {
        Some(self.last_used.load(Ordering::Relaxed)).filter(|ms| *ms > 0).map(Timestamp::from_unix_ms)
    }
}

#[derive(Debug)]
struct Seat {
    record: usize,
    scopes: Arc<[TokenScope]>,
    issuers: Arc<[Principal]>,
    replaced_issuers: Arc<[Principal]>,
    live: Arc<Live>,
}

/// The registry, taken apart for looking up.
#[derive(Debug)]
pub struct State {
    document: RegistryDocument,
    /// SHA-256 of the file; none until there is one.
    digest: Option<Digest>,
    seats: HashMap<TokenId, Seat>,
    /// The members of each registered workspace.
    roles: HashMap<WorkspaceId, HashMap<Principal, WorkspaceRole>>,
    agents: HashSet<Principal>,
    tokens_open: bool,
}

/// Why a token does not open. Only whoever holds the secret learns more than that it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenRefusal {
    /// It is no token.
    Malformed,
    /// There is none of this id.
    Unknown,
    /// The id is known, the secret is wrong.
    WrongSecret,
    /// The secret was replaced, and the time for both is over.
    Rotated,
    /// It was withdrawn.
    Revoked,
    /// Its time is over.
    Expired,
    /// It opens another workspace, or one that is registered no more.
    OtherWorkspace,
    /// Whom it speaks for is no longer here.
    PrincipalGone,
    /// No token opens anything now.
    TokensClosed,
    /// Too many requests with this token.
    RateLimited(Duration),
}

impl TokenRefusal {
    /// The reason, as it is counted in the journal.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
            Self::WrongSecret => "wrong_secret",
            Self::Rotated => "rotated",
            Self::Revoked => "revoked",
            Self::Expired => "expired",
            Self::OtherWorkspace => "other_workspace",
            Self::PrincipalGone => "principal_gone",
            Self::TokensClosed => "tokens_closed",
            Self::RateLimited(_) => "rate_limited",
        }
    }
}

/// A token that opens, or a paired device that is let in, and how far. Only a check of one makes this.
#[derive(Debug, Clone)]
pub struct Admitted {
    credential: Credential,
    hash: Digest,
    principal: Principal,
    role: WorkspaceRole,
    /// The workspace that it opens.
    workspace: WorkspaceId,
    scopes: Arc<[TokenScope]>,
    issuers: Arc<[Principal]>,
    rate_per_minute: u32,
    expires_at: Timestamp,
}

/// How often a token may be used, and how much of that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests a minute.
    pub per_minute: u32,
    /// Requests that are left now.
    pub left: u64,
    /// When all are there again.
    pub full_in: Duration,
}

/// A paired device whose certificate stands, as the device registry knows it.
#[derive(Debug, Clone)]
pub struct PairedDevice {
    /// The device.
    pub device_id: DeviceId,
    /// For whom it acts.
    pub principal: Principal,
    /// The role that it is limited to.
    pub role: WorkspaceRole,
    /// The workspace that it names.
    pub workspace: WorkspaceId,
    /// Everybody who had a hand in letting it in: any of them may hold it.
    pub issuers: Vec<Principal>,
    /// SHA-256 of the certificate.
    pub certificate: Digest,
    /// Until when the certificate holds. Nothing that the device issues holds longer.
    pub expires_at: Timestamp,
}

/// How many requests a minute a token may have that a device issues.
const DEVICE_RATE: u32 = 600;

/// What a device may do: all that its role includes.
static EVERY_SCOPE: LazyLock<Arc<[TokenScope]>> =
    LazyLock::new(|| PolicyAction::ALL.iter().filter_map(|action| action.as_str().parse().ok()).collect());

impl Admitted {
    /// What was shown.
    #[must_use]
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The token, where it is one.
    #[must_use]
    pub fn token_id(&self) -> Option<&TokenId> {
        self.credential.token_id()
    }

    /// The device, where it is one.
    #[must_use]
    pub fn device_id(&self) -> Option<&DeviceId> {
        self.credential.device_id()
    }

    /// SHA-256 of what was presented.
    #[must_use]
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// Whom it speaks for.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The lower of the token's role and what its principal is by now.
    #[must_use]
    pub fn role(&self) -> WorkspaceRole {
        self.role
    }

    /// The one workspace that it opens.
    #[must_use]
    pub fn workspace(&self) -> &WorkspaceId {
        &self.workspace
    }

    /// What it may do.
    #[must_use]
    pub fn scopes(&self) -> &[TokenScope] {
        &self.scopes
    }

    /// Everybody who had a hand in the secret that was shown.
    #[must_use]
    pub fn issuers(&self) -> &[Principal] {
        &self.issuers
    }

    /// How many requests a minute.
    #[must_use]
    pub fn rate_per_minute(&self) -> u32 {
        self.rate_per_minute
    }

    /// Until when it opens, if nothing happens to it.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// What records keep of it.
    #[must_use]
    pub fn shown(&self) -> ShownToken {
        ShownToken { credential: self.credential.clone(), role: self.role, issuers: self.issuers.to_vec() }
    }
}

impl State {
    /// Takes a checked document apart. What is known of tokens besides their records is carried over.
    pub(crate) fn new(
        document: RegistryDocument,
        digest: Option<Digest>,
        earlier: Option<&Self>,
        now: Timestamp,
    ) -> Self {
        let mut roles: HashMap<WorkspaceId, HashMap<_, _>> =
            document.workspaces.iter().map(|w| (w.workspace_id.clone(), HashMap::new())).collect();
        for member in &document.members {
            roles.entry(member.workspace.clone()).or_default().insert(member.principal.clone(), member.role);
        }
        let agents = document.agents.iter().map(|a| a.principal.clone()).collect();
        let mut seats = HashMap::with_capacity(document.tokens.len());
        for (record, token) in document.tokens.iter().enumerate() {
            let live = earlier.and_then(|state| state.seats.get(&token.token_id)).map(|seat| Arc::clone(&seat.live));
            let live = live.unwrap_or_else(|| {
                let bucket = Mutex::new(Bucket::full(token.rate_per_minute, now));
                Arc::new(Live { last_used: AtomicU64::new(0), bucket })
            });
            let seat = Seat {
                record,
                scopes: token.scopes.clone().into(),
                issuers: token.issuers().into(),
                replaced_issuers: token.replaced_issuers().into(),
                live,
            };
            seats.insert(token.token_id.clone(), seat);
        }
        let tokens_open = document.feature(Feature::ApiTokens);
        Self { document, digest, seats, roles, agents, tokens_open }
    }

    /// The document in force.
    #[must_use]
    pub fn document(&self) -> &RegistryDocument {
        &self.document
    }

    /// SHA-256 of the file; none until there is one.
    #[must_use]
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// What somebody is to a registered workspace. Agents are the same in each.
    #[must_use]
    pub fn role(&self, workspace: &WorkspaceId, principal: &Principal) -> Option<WorkspaceRole> {
        let members = self.roles.get(workspace)?;
        let agent = || self.agents.contains(principal).then_some(WorkspaceRole::Operator);
        members.get(principal).copied().or_else(agent)
    }

    /// Checks what a stranger presents, and counts the request.
    pub(crate) fn check(&self, text: &str, now: Timestamp) -> Result<Admitted, TokenRefusal> {
        let presented = PresentedToken::parse(text).ok_or(TokenRefusal::Malformed)?;
        let (admitted, live) = self.admit(presented.id(), presented.hash(), now)?;
        let taken = live.bucket.lock().unwrap_or_else(PoisonError::into_inner).take(admitted.rate_per_minute, now);
        taken.map_err(TokenRefusal::RateLimited)?;
        live.last_used.fetch_max(now.unix_ms(), Ordering::Relaxed);
        Ok(admitted)
    }

    /// Whether a token that was admitted before still opens, and how far.
    ///
    /// # Errors
    /// It opens nothing any more.
    pub fn again(&self, earlier: &Admitted, now: Timestamp) -> Result<Admitted, TokenRefusal> {
        // Whether a device's certificate stands is the device registry's matter: ask `admit_device` anew.
        let id = earlier.token_id().ok_or(TokenRefusal::Unknown)?;
        self.admit(id, earlier.hash, now).map(|(admitted, _)| admitted)
    }

    /// What is left of a token's rate; nothing for one that is not here.
    pub fn rate_of(&self, admitted: &Admitted, now: Timestamp) -> Option<Rate> {
        let seat = self.seats.get(admitted.token_id()?)?;
        let mut bucket = seat.live.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, full_in) = bucket.left(admitted.rate_per_minute, now);
        Some(Rate { per_minute: admitted.rate_per_minute, left, full_in })
    }

    /// How far a token still opens whose secret was shown when something began that goes on now.
    ///
    /// # Errors
    /// It opens nothing any more.
    pub fn admit_recorded(&self, id: &TokenId, now: Timestamp) -> Result<Admitted, TokenRefusal> {
        let seat = self.seats.get(id).ok_or(TokenRefusal::Unknown)?;
        let hash = self.document.tokens[seat.record].token_hash_sha256;
        self.admit(id, hash, now).map(|(admitted, _)| admitted)
    }

    /// How far a paired device is let in, whose certificate stands: as far as its role and its principal's leave it.
    ///
    /// # Errors
    /// The person that it acts for is no longer here.
    pub fn admit_device(&self, device: PairedDevice) -> Result<Admitted, TokenRefusal> {
        let PairedDevice { device_id, principal, role, workspace, issuers, certificate, expires_at } = device;
        let role = match (self.role(&workspace, &principal), principal.kind()) {
            (Some(standing), _) => role.min(standing),
            (None, PrincipalKind::Device) => role,
            (None, _) => return Err(TokenRefusal::PrincipalGone),
        };
        Ok(Admitted {
            credential: Credential::Device(device_id),
            hash: certificate,
            principal,
            role,
            workspace,
            scopes: Arc::clone(&EVERY_SCOPE),
            issuers: issuers.into(),
            rate_per_minute: DEVICE_RATE,
            expires_at,
        })
    }

    /// Whether a token, by its id and the hash of what was presented, opens as things stand.
    fn admit(&self, id: &TokenId, hash: Digest, now: Timestamp) -> Result<(Admitted, &Arc<Live>), TokenRefusal> {
        let seat = self.seats.get(id);
        let token = seat.map(|seat| &self.document.tokens[seat.record]);
        // An unknown id costs the same comparison as a known one.
        let expected = token.map_or(&Digest::ZERO, |token| &token.token_hash_sha256);
        let current = same(expected, &hash);
        let (Some(seat), Some(token)) = (seat, token) else { return Err(TokenRefusal::Unknown) };
        if !current {
            self.was_replaced(token, hash, now)?;
        }
        // From here on the caller has shown a secret of this token and may know how it stands.
        let standing = self.standing(token, now)?;
        let admitted = Admitted {
            credential: Credential::Token(id.clone()),
            hash,
            principal: token.principal.clone(),
            role: token.role.min(standing),
            workspace: token.workspace.clone(),
            scopes: Arc::clone(&seat.scopes),
            issuers: Arc::clone(if current { &seat.issuers } else { &seat.replaced_issuers }),
            rate_per_minute: token.rate_per_minute,
            expires_at: token.expires_at,
        };
        Ok((admitted, &seat.live))
    }

    /// Whether a token opens as things stand, for whoever holds its secret; and until when.
    ///
    /// # Errors
    /// It opens nothing.
    pub fn stands(&self, id: &TokenId, now: Timestamp) -> Result<Timestamp, TokenRefusal> {
        let seat = self.seats.get(id).ok_or(TokenRefusal::Unknown)?;
        let token = &self.document.tokens[seat.record];
        self.standing(token, now).map(|_| token.expires_at)
    }

    /// What a token's principal is here, if the token opens as things stand.
    fn standing(&self, token: &ApiTokenRecord, now: Timestamp) -> Result<WorkspaceRole, TokenRefusal> {
        if token.revoked_at.is_some() {
            return Err(TokenRefusal::Revoked);
        }
        if now >= token.expires_at {
            return Err(TokenRefusal::Expired);
        }
        if !self.roles.contains_key(&token.workspace) {
            return Err(TokenRefusal::OtherWorkspace);
        }
        let standing = self.role(&token.workspace, &token.principal).ok_or(TokenRefusal::PrincipalGone)?;
        if self.tokens_open { Ok(standing) } else { Err(TokenRefusal::TokensClosed) }
    }

    /// Whether it is the secret before the last rotation, within the time for both.
    fn was_replaced(&self, token: &ApiTokenRecord, hash: Digest, now: Timestamp) -> Result<(), TokenRefusal> {
        match &token.replaced {
            Some(replaced) if same(&replaced.token_hash_sha256, &hash) => {
                if now < replaced.valid_until {
                    Ok(())
                } else {
                    Err(TokenRefusal::Rotated)
                }
            }
            _ => Err(TokenRefusal::WrongSecret),
        }
    }

    /// When each token was last used.
    pub(crate) fn last_uses(&self) -> impl Iterator<Item = (&TokenId, Timestamp)> {
        self.seats.iter().filter_map(|(id, seat)| Some((id, seat.live.last_used()?)))
    }

    /// When one token was last used.
    #[must_use]
    pub fn last_use(&self, id: &TokenId) -> Option<Timestamp> {
        self.seats.get(id)?.live.last_used()
    }

    /// Takes over what an earlier process knew.
    pub(crate) fn remember_use(&self, id: &TokenId, at: Timestamp) {
        if let Some(seat) = self.seats.get(id) {
            seat.live.last_used.fetch_max(at.unix_ms(), Ordering::Relaxed);
        }
    }
}

//! The authority: what devices pin of it, how one generation follows another, and what the server shows.

use super::{Identity, check_hosts};
use crate::authority::{self, Generation, SERVER_LIFE, SERVER_RENEW_BEFORE, SUCCEED_BEFORE, Term};
use crate::error::IdentityError;
use crate::journal::IdentityEvent;
use crate::key_vault::KeyName;
use crate::names::Host;
use crate::registry::{Change, MAX_GENERATIONS, RootDocument};
use palyra_protocol::{Digest, Principal, Timestamp};
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use serde_json::json;
use std::sync::PoisonError;
use std::time::Duration;

/// The longest time for which a generation stays trusted beside its successor.
pub const MAX_OVERLAP: Duration = Duration::from_secs(90 * 24 * 3600);

/// The most generations that are trusted at once: devices are told of no more.
const MAX_TRUSTED: usize = 4;

/// A generation of the authority, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuthorityView {
    /// Counted from 1.
    pub generation: u32,
    /// SHA-256 of its certificate.
    pub fingerprint: Digest,
    /// The hosts that it was made for, besides the zone and this machine.
    pub hosts: Vec<Host>,
    /// Since when.
    pub created_at: Timestamp,
    /// Until when it is valid.
    pub not_after: Timestamp,
    /// From when on it is not trusted, where that is known.
    pub retires_at: Option<Timestamp>,
    /// Whether it is trusted now.
    pub trusted: bool,
}

impl Identity {
    /// The generations of the authority, the newest first.
    #[must_use]
    pub fn authorities(&self) -> Vec<AuthorityView> {
        let now = self.now();
        let view = |generation: &Generation| AuthorityView {
            generation: generation.record.generation,
            fingerprint: generation.sha256,
            hosts: generation.record.hosts.clone(),
            created_at: generation.record.created_at,
            not_after: generation.not_after,
            retires_at: generation.record.retires_at,
            trusted: generation.is_trusted(now),
        };
        self.registry().look().generations.iter().rev().map(view).collect()
    }

    /// The certificates that a device trusts from now on: every generation that is trusted, the one that the server
    /// shows first.
    #[must_use]
    pub fn trust_bundle(&self) -> Vec<CertificateDer<'static>> {
        let now = self.now();
        let state = self.registry().look();
        state.generations.iter().filter(|g| g.is_trusted(now)).map(|g| g.certificate.clone()).collect()
    }

    /// Lets a new generation follow. The one before stays trusted for `overlap`, so that every device that renews
    /// meanwhile knows both; devices that do not come in that time have to be paired again. With no overlap all of them
    /// have to. Blocks.
    ///
    /// `hosts` are those that the new generation is made for; none leaves them as they are.
    ///
    /// # Errors
    /// The overlap is too long, the vault is locked, or the change cannot be recorded.
    pub fn rotate_authority(
        &self,
        by: &Principal,
        overlap: Duration,
        hosts: Option<Vec<Host>>,
    ) -> Result<AuthorityView, IdentityError> {
        if overlap > MAX_OVERLAP {
            let (least, most) = (Duration::ZERO, MAX_OVERLAP);
            return Err(IdentityError::Duration { what: "the overlap of two authorities", least, most });
        }
        check_hosts(hosts.as_deref().unwrap_or_default())?;
        self.registry().change(|state| {
            let root = self.successor(&state.root, &state.generations, overlap, hosts)?;
            let generation = root.authorities.last().map_or(0, |newest| newest.generation);
            let what = json!({
                "change": "authority_rotated", "generation": generation, "overlap_seconds": overlap.as_secs(),
            });
            Ok((Change { by: by.clone(), what, edits: vec![], root: Some(root) }, ()))
        })?;
        self.renew_server_certificate()?;
        self.authorities().into_iter().next().ok_or(IdentityError::AuthorityNotValid)
    }

    /// The root with another generation, whose key is in the vault already. A crash before the root counts leaves a key
    /// that the next attempt replaces.
    fn successor(
        &self,
        root: &RootDocument,
        generations: &[Generation],
        overlap: Duration,
        hosts: Option<Vec<Host>>,
    ) -> Result<RootDocument, IdentityError> {
        let (mut root, now) = (root.clone(), self.now());
        let trusted = |g: &&Generation| g.is_trusted(now);
        if generations.iter().filter(trusted).count() >= MAX_TRUSTED {
            return Err(IdentityError::TooMany { what: "trusted generations of the authority", most: MAX_TRUSTED });
        }
        let last = root.authorities.last_mut().ok_or(IdentityError::AuthorityNotValid)?;
        let hosts = hosts.unwrap_or_else(|| last.hosts.clone());
        let generation = last.generation.saturating_add(1);
        for earlier in &mut root.authorities {
            let retires_at = now.plus(overlap);
            earlier.retires_at = Some(earlier.retires_at.map_or(retires_at, |at| at.min(retires_at)));
        }
        // Those that were retired are remembered as long as there is room, so that their certificates are called by
        // name.
        let excess = (root.authorities.len() + 1).saturating_sub(MAX_GENERATIONS);
        root.authorities.drain(..excess);
        let (record, key) = authority::make(&root.zone, &hosts, generation, now)?;
        self.vault.store(&KeyName::authority(generation), &key)?;
        root.authorities.push(record);
        Ok(root)
    }

    /// Whether the newest generation is near its end.
    pub(super) fn succession_due(&self) -> bool {
        let now = self.now();
        let state = self.registry().look();
        state.generations.last().is_some_and(|newest| now.until(newest.not_after) < SUCCEED_BEFORE)
    }

    /// Removes the keys of generations that were retired from the vault. They sign nothing any more.
    pub(super) fn forget_retired_keys(&self) -> Result<(), IdentityError> {
        let now = self.now();
        let retired: Vec<u32> = {
            let state = self.registry().look();
            let retired = |g: &&Generation| g.record.retires_at.is_some_and(|at| at <= now);
            state.generations.iter().filter(retired).map(|g| g.record.generation).collect()
        };
        let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        for generation in retired {
            if !forgotten.contains(&generation) {
                self.vault.remove(&KeyName::authority(generation))?;
                forgotten.insert(generation);
            }
        }
        Ok(())
    }

    /// Whether the server needs another certificate: the one it shows ends soon, or another generation has to sign it.
    pub(super) fn server_certificate_due(&self) -> bool {
        let now = self.now();
        let signer = self.server_signer(now).map(|generation| generation.sha256);
        self.server().current().is_none_or(|current| {
            now.until(current.not_after) < SERVER_RENEW_BEFORE || signer.ok() != Some(current.authority)
        })
    }

    /// Gives the server a new certificate. Connections that are open keep the one they were made with. Blocks.
    ///
    /// # Errors
    /// The vault is locked, or no generation is valid now.
    pub fn renew_server_certificate(&self) -> Result<(), IdentityError> {
        let now = self.now();
        let signer = self.server_signer(now)?;
        let term = || Term::new(now, SERVER_LIFE, Some(&signer));
        let (issuer, terms) = (signer.issuer(self.vault.as_ref())?, [term()?, term()?]);
        let not_after = terms[0].until;
        let made = authority::certify_server(&issuer, self.zone(), &signer.record.hosts, terms)?;
        let digests = [Digest::of(&made.named), Digest::of(&made.all)];
        self.server().put(made, &signer, not_after)?;
        for certificate in digests {
            self.note(IdentityEvent::ServerCertificate { certificate, not_after });
        }
        Ok(())
    }

    /// The generation that signs the server's certificate: the oldest that is trusted, because every device knows it.
    fn server_signer(&self, now: Timestamp) -> Result<Generation, IdentityError> {
        let state = self.registry().look();
        let signer = state.generations.iter().find(|generation| generation.is_trusted(now));
        signer.cloned().ok_or(IdentityError::AuthorityNotValid)
    }
}

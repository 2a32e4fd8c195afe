//! Passkeys of people: adding and removing them, and whether one has confirmed an answer.
//!
//! The first passkey of a person is taken from their console as it is. Another has to be confirmed by one that they have:
//! whoever got hold of an open page cannot make themselves a verified approver. Removing is for a terminal, where the
//! daemon's own user or an owner is known by other means.

use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_policy::{PolicyAction, PolicyResource};
use palyra_protocol::{
    AssertionFault, ConsoleKey, Digest, JournalEvent, Passkey, PasskeyAssertion, PrincipalKind, Problem,
};

/// The most passkeys of one person.
const MOST: usize = 20;
/// The longest name of one.
const MAX_LABEL: usize = 120;

/// What an authenticator confirmed, and the origin of the page that it did so for, as the door knows it.
#[derive(Debug, Clone)]
pub struct AnswerConfirmation {
    /// The assertion.
    pub assertion: PasskeyAssertion,
    /// The page's origin.
    pub origin: String,
}

/// A passkey that a page has made.
#[derive(Debug, Clone)]
pub struct NewPasskey {
    /// The authenticator's name for it.
    pub id: String,
    /// Its key.
    pub key: ConsoleKey,
    /// What its owner calls it.
    pub label: String,
    /// The page's host and origin, as the door knows them.
    pub host: String,
    /// The origin.
    pub origin: String,
    /// That the authenticator can sign with it, and has verified its user.
    pub proof: PasskeyAssertion,
    /// The same, confirmed by a passkey that the person has; none for the first.
    pub by: Option<PasskeyAssertion>,
}

impl Engine {
    /// The caller's own passkeys.
    ///
    /// # Errors
    /// The caller may not.
    pub fn passkeys(&self, peer: &VerifiedPeer) -> Result<Vec<Passkey>, EngineError> {
        self.authorize(peer, PolicyAction::ConsoleOpen, PolicyResource::Daemon, None)?;
        Ok(self.consoles().passkeys_of(peer.effective()))
    }

    /// Every passkey that the caller may see: their own, and those of others where they manage consoles.
    ///
    /// # Errors
    /// The caller may not.
    pub fn passkeys_seen(&self, peer: &VerifiedPeer) -> Result<Vec<Passkey>, EngineError> {
        let own = self.passkeys(peer)?;
        let all = self.may(peer, PolicyAction::ConsoleManage, PolicyResource::Daemon);
        Ok(if all { self.consoles().every_passkey() } else { own })
    }

    /// Adds a passkey of the person who is at the console.
    ///
    /// # Errors
    /// It was not confirmed, by itself or by one that the person has.
    pub async fn add_passkey(&self, peer: &VerifiedPeer, new: NewPasskey) -> Result<Passkey, EngineError> {
        self.authorize(peer, PolicyAction::ConsoleOpen, PolicyResource::Daemon, None)?;
        let principal = peer.effective().clone();
        if peer.console().is_none() || principal.kind() != PrincipalKind::User {
            let problem = Problem::plain("passkey_console", "passkeys are added by people, in the console");
            return Err(EngineError::new(ErrorKind::Forbidden, problem));
        }
        let own = self.consoles().passkeys_of(&principal);
        let everybodys = self.consoles().every_passkey();
        let taken = everybodys.iter().any(|known| known.id == new.id || known.key == new.key);
        if !Passkey::is_id(&new.id) || taken || own.len() >= MOST {
            let message = "this passkey is known already, is none, or there are too many";
            return Err(EngineError::invalid("passkey_id", message, "make another"));
        }
        let label = new.label.chars().filter(|c| !palyra_protocol::display::deceives(*c)).take(MAX_LABEL).collect();
        let passkey = Passkey {
            id: new.id,
            principal: principal.clone(),
            key: new.key,
            host: new.host,
            label,
            at: self.clock().now(),
        };
        let said = Passkey::introduction(&principal, &passkey.id, &passkey.key);
        confirmed(&new.proof, &passkey, &said, &new.origin)?;
        if !own.is_empty() {
            let Some(by) = &new.by else {
                let message = "you have a passkey already; it has to confirm another";
                return Err(EngineError::invalid("passkey_unconfirmed", message, "confirm it with the one you have"));
            };
            confirmed_by_one_of(by, &own, &said, &new.origin)?;
        }
        self.journal().note(&JournalEvent::PasskeyAdded { passkey: Box::new(passkey.clone()) }).await?;
        self.consoles().add_passkey(passkey.clone());
        Ok(passkey)
    }

    /// Removes a passkey of the caller's, or of somebody else where the caller manages consoles. Not from the console
    /// itself: an open page could then change what verifies its person.
    ///
    /// # Errors
    /// There is none, or the caller may not.
    pub async fn remove_passkey(&self, peer: &VerifiedPeer, id: &str) -> Result<Passkey, EngineError> {
        if peer.console().is_some() {
            let problem = Problem::new(
                "passkey_console",
                "passkeys are not removed in the console",
                "in a terminal: `palyra console passkeys remove ID`",
            );
            return Err(EngineError::new(ErrorKind::Forbidden, problem));
        }
        let found = self.passkeys_seen(peer)?.into_iter().find(|passkey| passkey.id == id);
        let found = found.ok_or_else(|| {
            let problem =
                Problem::new("no_such_passkey", "there is no such passkey", "see `palyra console passkeys list`");
            EngineError::new(ErrorKind::NotFound, problem)
        })?;
        let (principal, passkey, by) = (found.principal.clone(), found.id.clone(), peer.effective().clone());
        self.journal().note(&JournalEvent::PasskeyRemoved { principal: principal.clone(), passkey, by }).await?;
        self.consoles().remove_passkey(&principal, id);
        Ok(found)
    }

    /// Whether a passkey of the caller has confirmed this digest, on this very page.
    ///
    /// # Errors
    /// It has not.
    pub(crate) fn verified_approver(
        &self,
        peer: &VerifiedPeer,
        confirmation: &AnswerConfirmation,
        said: &Digest,
    ) -> Result<(), EngineError> {
        let own = self.consoles().passkeys_of(peer.effective());
        confirmed_by_one_of(&confirmation.assertion, &own, said, &confirmation.origin)
    }
}

fn confirmed_by_one_of(
    assertion: &PasskeyAssertion,
    own: &[Passkey],
    said: &Digest,
    origin: &str,
) -> Result<(), EngineError> {
    match own.iter().find(|passkey| passkey.id == assertion.passkey) {
        Some(passkey) => confirmed(assertion, passkey, said, origin),
        None => Err(unconfirmed("it is none of yours".to_owned())),
    }
}

fn confirmed(assertion: &PasskeyAssertion, passkey: &Passkey, said: &Digest, origin: &str) -> Result<(), EngineError> {
    match assertion.verify(passkey, said) {
        Ok(asked_by) if asked_by == origin => Ok(()),
        Ok(_) => Err(unconfirmed(AssertionFault::Origin.to_string())),
        Err(fault) => Err(unconfirmed(fault.to_string())),
    }
}

fn unconfirmed(why: String) -> EngineError {
    let message = format!("the passkey has not confirmed this: {why}");
    EngineError::new(ErrorKind::Forbidden, Problem::new("passkey_refused", message, "try again on this page"))
}

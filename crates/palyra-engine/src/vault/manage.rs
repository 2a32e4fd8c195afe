//! The vault for people: put, get, list, delete, bind, and tend it.
//!
//! Every operation asks scope and policy about the peer, records the access, does it, and records what was changed. The
//! order is the promise: nothing is opened or changed that is not on record.

use super::store::Absent;
use super::{SecretMetadata, SecretValue, VaultError};
use crate::access::VerifiedPeer;
use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_policy::{PolicyAction, PolicyRequestContext, PolicyResource};
use palyra_protocol::{
    BindingId, Digest, PrincipalKind, Problem, SecretCaller, SecretDelivery, SecretRef, VaultAccess, VaultChangeKind,
    VaultScope,
};
use palyra_sandbox::resolve_executable;
use palyra_vault::{Binding, BoundProgram, DamagedBlob, NewBinding, PutOptions, SlotKind, VaultStatus};
use serde::Serialize;
use std::path::PathBuf;

/// The largest program that is read to bind a secret to it.
const MAX_PROGRAM: u64 = 1 << 30;

/// A value that is put.
#[expect(missing_debug_implementations, reason = "it holds the value of a secret")]
pub struct NewSecret {
    /// Which secret.
    pub reference: SecretRef,
    /// The value.
    pub value: SecretValue,
    /// How it is put.
    pub options: PutOptions,
}

/// A binding as a person typed it: the program by its name.
#[derive(Debug, Clone)]
pub struct PlainBinding {
    /// Everything but the program.
    pub terms: NewBinding,
    /// The program, as it would be called in a command.
    pub program: Option<String>,
}

/// All secrets that a peer may see, and blobs that cannot be read.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SecretListing {
    /// In order of their references.
    pub secrets: Vec<SecretMetadata>,
    /// What is damaged.
    pub damaged: Vec<DamagedView>,
}

/// A blob that cannot be read.
#[derive(Debug, Clone, Serialize)]
pub struct DamagedView {
    /// What it says it is, where that can be read. It may be a lie.
    pub alleged: Option<SecretRef>,
    /// How it shows.
    pub reason: String,
}

impl From<DamagedBlob> for DamagedView {
    fn from(blob: DamagedBlob) -> Self {
        Self { alleged: blob.alleged, reason: blob.reason }
    }
}

/// What the vault is, for its operator.
#[derive(Debug, Clone, Serialize)]
pub struct VaultView {
    /// The vault; nothing if there is none yet.
    pub vault: Option<VaultStatus>,
    /// Where it is, or would be made.
    pub directory: Option<PathBuf>,
    /// How many secrets there are.
    pub secrets: usize,
    /// How many blobs are damaged.
    pub damaged: usize,
    /// For each kind of slot that the vault has: what it protects from, and what not.
    pub protection: Vec<Protection>,
}

/// What a kind of key slot protects from, in words.
#[derive(Debug, Clone, Serialize)]
pub struct Protection {
    /// The kind.
    pub slot: SlotKind,
    /// What it protects from.
    pub protects_from: &'static str,
    /// What it does not protect from.
    pub does_not_protect_from: &'static str,
}

/// A key slot that is to be added.
#[expect(missing_debug_implementations, reason = "it may hold a passphrase")]
pub enum SlotRequest {
    /// A key file.
    KeyFile(PathBuf),
    /// A passphrase.
    Passphrase(SecretValue),
    /// The system's keyring.
    Keyring,
    /// One of the configured commands, by its name.
    Command(String),
}

impl Engine {
    /// Asks whether a peer may do something with a secret: the scope must admit it, and policy permit it.
    pub(super) async fn authorize_secret(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        reference: &SecretRef,
    ) -> Result<(), EngineError> {
        let allowed = self.may_use_secret(peer, action, reference);
        match allowed {
            Ok(()) => Ok(()),
            Err(error) => Err(self.refuse_secret(peer, (action, format!("secret:{reference}")), error).await),
        }
    }

    fn may_use_secret(
        &self,
        peer: &VerifiedPeer,
        action: PolicyAction,
        reference: &SecretRef,
    ) -> Result<(), EngineError> {
        let caller = SecretCaller { principal: peer.effective(), channel: peer.channel(), skill: None };
        // People fill in secrets for agents, channels and skills. A value is released to the scope's own callers alone.
        let fills_in = peer.effective().kind() == PrincipalKind::User && action != PolicyAction::VaultGet;
        if !fills_in && !reference.scope().admits(caller) {
            return Err(out_of_scope(reference, peer));
        }
        // A person who asks for a value on the daemon's own socket has decided that it is shown. A token has not.
        let in_person = peer.token().is_none()
            && peer.effective() == peer.principal()
            && peer.principal().kind() == PrincipalKind::User;
        let context = PolicyRequestContext {
            allow_sensitive_tools: action == PolicyAction::VaultGet && in_person,
            ..self.at_door(peer)
        };
        self.authorize(peer, action, PolicyResource::Secret(reference.to_string()), Some(context))
    }

    /// Asks whether a peer may do something with the vault as a whole.
    async fn authorize_vault(&self, peer: &VerifiedPeer, action: PolicyAction) -> Result<(), EngineError> {
        match self.authorize(peer, action, PolicyResource::Daemon, None) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.refuse_secret(peer, (action, "daemon".to_owned()), error).await),
        }
    }

    pub(super) async fn manage_vault(&self, peer: &VerifiedPeer, purpose: &str) -> Result<(), EngineError> {
        self.authorize_vault(peer, PolicyAction::VaultManage).await?;
        self.note_access(VaultAccess::new(peer.effective().clone(), PolicyAction::VaultManage, purpose)).await
    }

    /// Puts a value: a new current version. The first one makes the vault.
    ///
    /// # Errors
    /// The peer may not, the vault cannot be opened, or the value cannot be kept; the secret is then as it was.
    pub async fn vault_put(&self, peer: &VerifiedPeer, new: NewSecret) -> Result<SecretMetadata, EngineError> {
        let (action, by) = (PolicyAction::VaultPut, peer.effective().clone());
        self.authorize_secret(peer, action, &new.reference).await?;
        self.note_access(VaultAccess::new(by.clone(), action, "a person puts a value").of(&new.reference)).await?;
        let reference = new.reference.clone();
        let (made, receipt, metadata) = self
            .in_vault(move |store| {
                let opened = store.open(Absent::Make)?.ok_or(VaultError::Internal { what: "no vault was made" })?;
                let receipt = opened.vault.put(&new.reference, &new.value, new.options)?;
                Ok((opened.made, receipt, opened.vault.metadata(&new.reference)?))
            })
            .await?;
        self.note_made(&by, made).await?;
        let what = VaultChangeKind::Put { version: receipt.version, blob: receipt.blob };
        self.note_change(by, what, Some(&reference)).await?;
        Ok(metadata)
    }

    /// The value of a secret, for a person who asks for it.
    ///
    /// # Errors
    /// The peer may not, or there is none.
    pub async fn vault_get(
        &self,
        peer: &VerifiedPeer,
        reference: &SecretRef,
        version: Option<u64>,
    ) -> Result<(u64, SecretValue), EngineError> {
        let action = PolicyAction::VaultGet;
        self.authorize_secret(peer, action, reference).await?;
        let access = VaultAccess::new(peer.effective().clone(), action, "a person reads the value").of(reference);
        self.note_access(VaultAccess { via: Some(SecretDelivery::Reply), ..access }).await?;
        let reference = reference.clone();
        self.in_vault(move |store| {
            let vault = match store.open(Absent::Leave)? {
                Some(opened) => opened.vault,
                None => return Err(VaultError::NotFound { reference }),
            };
            let opened = match version {
                None => vault.get(&reference)?,
                Some(version) => vault.get_version(&reference, version)?,
            };
            Ok((opened.version, opened.value))
        })
        .await
    }

    /// Deletes a secret with its versions and bindings.
    ///
    /// # Errors
    /// The peer may not, or there is none.
    pub async fn vault_delete(&self, peer: &VerifiedPeer, reference: &SecretRef) -> Result<(), EngineError> {
        let (action, by) = (PolicyAction::VaultDelete, peer.effective().clone());
        self.authorize_secret(peer, action, reference).await?;
        self.note_access(VaultAccess::new(by.clone(), action, "a person deletes it").of(reference)).await?;
        let secret = reference.clone();
        self.in_vault(move |store| match store.open(Absent::Leave)? {
            Some(opened) => opened.vault.delete(&secret),
            None => Err(VaultError::NotFound { reference: secret }),
        })
        .await?;
        self.note_change(by, VaultChangeKind::Deleted {}, Some(reference)).await
    }

    /// Which secrets there are, of one scope or of all: those that the peer may see.
    ///
    /// # Errors
    /// The peer may not list.
    pub async fn vault_list(
        &self,
        peer: &VerifiedPeer,
        scope: Option<VaultScope>,
    ) -> Result<SecretListing, EngineError> {
        self.authorize_vault(peer, PolicyAction::VaultList).await?;
        let access = VaultAccess::new(peer.effective().clone(), PolicyAction::VaultList, "a person lists secrets");
        self.note_access(access).await?;
        let listing = self
            .in_vault(move |store| match store.open(Absent::Leave)? {
                Some(opened) => opened.vault.list(scope.as_ref()).map(Some),
                None => Ok(None),
            })
            .await?;
        let Some(listing) = listing else { return Ok(SecretListing::default()) };
        let seen = |secret: &SecretMetadata| self.sees_secret(peer, &secret.reference);
        let secrets = listing.secrets.into_iter().filter(seen).collect();
        Ok(SecretListing { secrets, damaged: listing.damaged.into_iter().map(DamagedView::from).collect() })
    }

    fn sees_secret(&self, peer: &VerifiedPeer, reference: &SecretRef) -> bool {
        self.may(peer, PolicyAction::VaultList, PolicyResource::Secret(reference.to_string()))
    }

    /// What is known of one secret without opening it.
    ///
    /// # Errors
    /// The peer may not see it, or there is none.
    pub async fn vault_versions(
        &self,
        peer: &VerifiedPeer,
        reference: &SecretRef,
    ) -> Result<SecretMetadata, EngineError> {
        self.authorize_secret(peer, PolicyAction::VaultList, reference).await?;
        let reference = reference.clone();
        self.in_vault(move |store| match store.open(Absent::Leave)? {
            Some(opened) => opened.vault.metadata(&reference),
            None => Err(VaultError::NotFound { reference }),
        })
        .await
    }

    /// Ends the grace of an old version now.
    ///
    /// # Errors
    /// The peer may not, or there is no such version.
    pub async fn vault_end_grace(
        &self,
        peer: &VerifiedPeer,
        reference: &SecretRef,
        version: u64,
    ) -> Result<(), EngineError> {
        let (action, by) = (PolicyAction::VaultDelete, peer.effective().clone());
        self.authorize_secret(peer, action, reference).await?;
        self.note_access(VaultAccess::new(by.clone(), action, "a person ends a grace").of(reference)).await?;
        let secret = reference.clone();
        self.in_vault(move |store| store.existing()?.end_grace(&secret, version)).await?;
        self.note_change(by, VaultChangeKind::GraceEnded { version }, Some(reference)).await
    }

    /// Binds a secret to endpoints. The secret need not be there yet.
    ///
    /// # Errors
    /// The peer may not, or the binding cannot be used.
    pub async fn vault_bind(&self, peer: &VerifiedPeer, new: PlainBinding) -> Result<Binding, EngineError> {
        let (action, by) = (PolicyAction::VaultPut, peer.effective().clone());
        let PlainBinding { mut terms, program } = new;
        self.authorize_secret(peer, action, &terms.secret).await?;
        if let Some(name) = program {
            terms.program = Some(self.program_file(peer, name).await?);
        }
        self.note_access(VaultAccess::new(by.clone(), action, "a person binds it").of(&terms.secret)).await?;
        let (made, binding) = self
            .in_vault(move |store| {
                let opened = store.open(Absent::Make)?.ok_or(VaultError::Internal { what: "no vault was made" })?;
                Ok((opened.made, opened.vault.bind(terms)?))
            })
            .await?;
        self.note_made(&by, made).await?;
        let hosts = binding.hosts().iter().map(ToString::to_string).collect();
        let what = VaultChangeKind::Bound { binding: binding.id().to_string(), hosts };
        self.note_change(by, what, Some(binding.secret())).await?;
        Ok(binding)
    }

    /// The file that a program's name stands for here, by its content.
    async fn program_file(&self, peer: &VerifiedPeer, name: String) -> Result<BoundProgram, EngineError> {
        let here = self.in_workspace_of(peer)?;
        let looked = tokio::task::spawn_blocking(move || {
            let (policy, root) = (&here.config().process_runner, here.workspace().root());
            let found = resolve_executable(policy, std::slice::from_ref(&name), root)
                .map_err(|error| EngineError::new(ErrorKind::Invalid, crate::flow::resolve::sandbox_problem(&error)))?;
            let sha256 = file_digest(found.path()).map_err(|error| {
                EngineError::invalid("binding_program", format!("`{name}` cannot be read: {error}"), "name another")
            })?;
            Ok(BoundProgram { name, sha256 })
        });
        looked.await.unwrap_or_else(|panic| Err(EngineError::internal(panic.to_string())))
    }

    /// Removes a binding.
    ///
    /// # Errors
    /// The peer may not, or there is none.
    pub async fn vault_unbind(&self, peer: &VerifiedPeer, id: BindingId) -> Result<Binding, EngineError> {
        let (action, by) = (PolicyAction::VaultPut, peer.effective().clone());
        // Only those who may see bindings learn whether there is such a one.
        self.authorize_vault(peer, PolicyAction::VaultList).await?;
        let unknown = VaultError::NoSuchBinding { id: id.clone() };
        let wanted = id.clone();
        let secret = self
            .in_vault(move |store| {
                let bindings = store.existing()?.bindings();
                let found = bindings.all().iter().find(|binding| *binding.id() == wanted);
                Ok(found.map(|binding| binding.secret().clone()))
            })
            .await?;
        let secret = secret.ok_or_else(|| super::refused(&unknown))?;
        self.authorize_secret(peer, action, &secret).await?;
        self.note_access(VaultAccess::new(by.clone(), action, "a person unbinds it").of(&secret)).await?;
        let binding = self.in_vault(move |store| store.existing()?.unbind(&id)).await?;
        let what = VaultChangeKind::Unbound { binding: binding.id().to_string() };
        self.note_change(by, what, Some(&secret)).await?;
        Ok(binding)
    }

    /// The bindings of the secrets that the peer may see.
    ///
    /// # Errors
    /// The peer may not list.
    pub async fn vault_bindings(&self, peer: &VerifiedPeer) -> Result<Vec<Binding>, EngineError> {
        self.authorize_vault(peer, PolicyAction::VaultList).await?;
        let bindings =
            self.in_vault(|store| Ok(store.open(Absent::Leave)?.map(|opened| opened.vault.bindings()))).await?;
        let all = bindings.iter().flat_map(|bindings| bindings.all()).cloned();
        Ok(all.filter(|binding| self.sees_secret(peer, binding.secret())).collect())
    }

    /// What the vault is.
    ///
    /// # Errors
    /// The peer may not see it, or it cannot be opened.
    pub async fn vault_status(&self, peer: &VerifiedPeer) -> Result<VaultView, EngineError> {
        self.authorize_vault(peer, PolicyAction::VaultList).await?;
        self.in_vault(|store| {
            let directory = store.settings().directory.clone();
            let Some(opened) = store.open(Absent::Leave)? else {
                return Ok(VaultView { vault: None, directory, secrets: 0, damaged: 0, protection: Vec::new() });
            };
            let listing = opened.vault.list(None)?;
            let status = opened.vault.status();
            let mut kinds: Vec<SlotKind> = status.slots.iter().map(|slot| slot.kind).collect();
            kinds.sort();
            kinds.dedup();
            let protection = kinds.into_iter().map(|slot| Protection {
                slot,
                protects_from: slot.protects_from(),
                does_not_protect_from: slot.does_not_protect_from(),
            });
            Ok(VaultView {
                protection: protection.collect(),
                secrets: listing.secrets.len(),
                damaged: listing.damaged.len(),
                vault: Some(status),
                directory,
            })
        })
        .await
    }
}

/// SHA-256 of a program's file.
pub(crate) fn file_digest(path: &std::path::Path) -> std::io::Result<Digest> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_PROGRAM).read_to_end(&mut bytes)?;
    Ok(Digest::of(&bytes))
}

/// A secret of others.
fn out_of_scope(reference: &SecretRef, peer: &VerifiedPeer) -> EngineError {
    let message = format!(
        "`{reference}` is released to callers of its scope `{}`, and `{}` through `{}` is none",
        reference.scope(),
        peer.effective(),
        peer.channel()
    );
    let hint = format!("have it put in a scope that admits you: `palyra vault put global/{}`", reference.name());
    EngineError::new(ErrorKind::Forbidden, Problem::new("secret_out_of_scope", message, hint))
}

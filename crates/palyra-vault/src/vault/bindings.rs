//! The vault's bindings: list, add, remove. They are part of the header, so nobody without the KEK can change one.

use super::Vault;
use crate::binding::{Binding, BindingError, Bindings, MAX_BINDINGS, NewBinding};
use crate::error::VaultError;
use palyra_protocol::{BindingId, SecretRef};
use std::sync::Arc;

impl Vault {
    /// All bindings, ready to be asked about requests. They stay as they are while somebody holds them.
    #[must_use]
    pub fn bindings(&self) -> Arc<Bindings> {
        Arc::clone(&self.state().bindings)
    }

    /// Binds a secret to endpoints. The secret need not be there yet: a person may fill it in later.
    ///
    /// # Errors
    /// The binding cannot be used, there are too many, or it cannot be written.
    pub fn bind(&self, new: NewBinding) -> Result<Binding, VaultError> {
        let _writing = self.writing();
        let binding = Binding::new(BindingId::mint(), self.surroundings.clock.now(), new)?;
        self.add_bindings(vec![binding.clone()])?;
        Ok(binding)
    }

    /// Adds bindings. The caller holds the writer's lock.
    pub(crate) fn add_bindings(&self, added: Vec<Binding>) -> Result<(), VaultError> {
        if added.is_empty() {
            return Ok(());
        }
        let state = self.state();
        let mut header = state.header.clone();
        header.bindings.extend(added);
        if header.bindings.len() > MAX_BINDINGS {
            return Err(BindingError::TooMany { limit: MAX_BINDINGS }.into());
        }
        self.replace_header(header, state.keys.clone())
    }

    /// Removes a binding.
    ///
    /// # Errors
    /// There is none, or the header cannot be written.
    pub fn unbind(&self, id: &BindingId) -> Result<Binding, VaultError> {
        let _writing = self.writing();
        let state = self.state();
        let mut header = state.header.clone();
        let at = header.bindings.iter().position(|binding| binding.id() == id);
        let removed = header.bindings.remove(at.ok_or_else(|| VaultError::NoSuchBinding { id: id.clone() })?);
        self.replace_header(header, state.keys.clone())?;
        Ok(removed)
    }

    /// Removes the bindings of a secret. The caller holds the writer's lock.
    pub(super) fn remove_bindings_of(&self, reference: &SecretRef) -> Result<(), VaultError> {
        let state = self.state();
        let mut header = state.header.clone();
        header.bindings.retain(|binding| binding.secret() != reference);
        if header.bindings.len() == state.header.bindings.len() {
            return Ok(());
        }
        self.replace_header(header, state.keys.clone())
    }
}

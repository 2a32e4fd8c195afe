//! `palyra:skill/secrets`.
//!
//! The value goes to the guest and nowhere else: not into the record, not into an error. A replay reads it from the
//! vault again, and only if a vault is there.

use crate::bindings::palyra::skill::secrets::{self, Error};
use crate::doors::SecretFault;
use crate::error::Stop;
use crate::guest::{Guest, HostCallKind, MISMATCH};
use crate::record::{Divergence, HostAnswer};
use palyra_protocol::{DigestBuilder, Secret};

impl secrets::Host for Guest {
    fn read(&mut self, scope: String, key: String) -> wasmtime::Result<Result<Vec<u8>, Error>> {
        self.count(HostCallKind::Secrets)?;
        if !self.grant.allows_secret(&scope, &key) {
            self.observed.denied("secrets", &format!("{scope}/{key}"));
            return Ok(Err(Error::Denied));
        }
        self.observed.secret(&scope, &key);
        Ok(match self.read_secret(&scope, &key)? {
            Ok(secret) => Ok(secret.expose().to_vec()),
            Err(SecretFault::Denied) => Err(Error::Denied),
            Err(SecretFault::NotFound) => Err(Error::NotFound),
            Err(SecretFault::Unavailable(why)) => Err(Error::Unavailable(why)),
        })
    }
}

impl Guest {
    fn read_secret(&mut self, scope: &str, key: &str) -> Result<Result<Secret, SecretFault>, Stop> {
        let asked =
            DigestBuilder::new("palyra.plugins.secret.v1").field(scope.as_bytes()).field(key.as_bytes()).finish();
        let mut found = None;
        let answer = self.ask("secret", Some(asked), |guest| {
            let read = guest.ask_vault(scope, key);
            guest.control.check()?;
            let answer = read.as_ref().map(|_| ()).map_err(Clone::clone);
            found = Some(read);
            Ok(HostAnswer::Secret(answer))
        })?;
        match (answer, found) {
            (_, Some(read)) => Ok(read),
            (HostAnswer::Secret(Err(fault)), None) => Ok(Err(fault)),
            // A replay: the record says that it was read, and only the vault knows what it is.
            (HostAnswer::Secret(Ok(())), None) => match self.ask_vault(scope, key) {
                Ok(secret) => Ok(Ok(secret)),
                Err(_) => Err(Stop::Diverged(Divergence::Secret(format!("{scope}/{key}")))),
            },
            _ => Err(MISMATCH),
        }
    }

    fn ask_vault(&self, scope: &str, key: &str) -> Result<Secret, SecretFault> {
        match &self.doors.secrets {
            None => Err(SecretFault::Unavailable("no vault is open in this call".to_owned())),
            Some(door) => door.read(scope, key, &self.control),
        }
    }
}

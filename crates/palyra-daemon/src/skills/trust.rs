//! Whom a command without a daemon trusts: the keys that it was given, and no others.

use super::read_file;
use super::refusal::Refusal;
use palyra_api::command_line::skills::Trust;
use palyra_protocol::display::safe;
use palyra_protocol::{Clock as _, PublicKey, SystemClock};
use palyra_skills::trust::MAX_TRUST_BYTES;
use palyra_skills::{PublisherId, TrustChange, TrustDocument, VerifyPurpose, VerifyRequest};

/// The trust store, and how it is asked.
pub(super) struct Trusted {
    pub(super) document: TrustDocument,
    pub(super) request: VerifyRequest,
}

impl Trusted {
    /// Whether anybody said anything about trust.
    pub(super) fn is_given(trust: &Trust) -> bool {
        !trust.trust.is_empty() || trust.trust_store.is_some() || trust.allow_tofu
    }

    pub(super) fn read(trust: &Trust) -> Result<Self, Refusal> {
        let now = SystemClock.now();
        let mut document = TrustDocument::empty();
        if let Some(path) = &trust.trust_store {
            let flaw = |error: palyra_skills::trust::DocumentFlaw| {
                Refusal::refused(error.code(), format!("`{}`: {error}", path.display()), None)
            };
            document = TrustDocument::parse(&read_file(path, MAX_TRUST_BYTES)?).map_err(flaw)?;
        }
        for given in &trust.trust {
            let change = allowlist(given)?;
            let changed = document.changed(&[change], now);
            document = changed.map_err(|error| Refusal::refused(error.code(), error.to_string(), None))?;
        }
        let request = VerifyRequest { purpose: VerifyPurpose::Install, allow_tofu: trust.allow_tofu, now };
        Ok(Self { document, request })
    }
}

fn allowlist(given: &str) -> Result<TrustChange, Refusal> {
    let hint = "write `--trust acme=` and the 64 hexadecimal digits that `palyra skills package keygen` printed";
    let refuse = |why: &str| Refusal::usage(format!("`--trust {}`: {why}", safe(given)), hint);
    let (publisher, key) = given.split_once('=').ok_or_else(|| refuse("there is no `=`"))?;
    let publisher: PublisherId = publisher.parse().map_err(|_| refuse("this is no publisher's name"))?;
    let public_key: PublicKey = key.parse().map_err(|_| refuse("this is no public key, or a weak one"))?;
    Ok(TrustChange::Allowlist { publisher, public_key, expires_at: None })
}

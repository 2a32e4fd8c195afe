//! Whom a daemon trusts to sign skills: keys by publisher, trust on first use, rotation, revocation, versions that only
//! grow.

mod change;
mod document;
mod rotation;
mod store;
#[cfg(test)]
mod tests;
mod verify;

pub use change::{ChangeError, TrustChange};
pub use document::{
    AdmittedRecord, DocumentFlaw, KeyOrigin, KeyRecord, KeyState, MAX_TRUST_BYTES, PublisherRecord, SkillRecord,
    TrustDocument,
};
pub use rotation::{RotationFault, RotationStatement};
pub use store::{PreparedTrust, SkillTrustStore, StoreError, TrustLedger, TrustRecord};
pub use verify::{TrustDecision, TrustRefusal, Verification, VerifyPurpose, VerifyRequest, verify_skill_artifact};

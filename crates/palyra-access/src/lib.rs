//! Who may do what: the access registry, tokens, roles and rights.
//!
//! [`Registry`] holds members, agents, groups, features and tokens of a daemon, and checks what a caller presents. A
//! change is made to a copy of its document by an [`Edit`], which refuses to give more than the one who changes it
//! holds. [`RegistryFile`] replaces the file so that a crash leaves a whole one. [`rights`] is the table of roles.
//!
//! The engine records each change in the journal between the file's two steps, and asks policy besides.
//!
//! # What this crate must never do
//! - Know transports, the journal or policy.
//! - Repair or guess: a document is accepted whole or refused.
//! - Keep a token's secret. It is returned once; the registry holds its hash.

mod attempts;
mod document;
mod edit;
mod error;
mod feature;
mod file;
#[doc(hidden)]
pub mod fuzzing;
mod measure;
mod own_rights;
mod rate_bucket;
mod registry;
pub mod rights;
mod state;
pub mod token;
mod usage;

pub use attempts::Attempts;
pub use document::{RegistryDocument, RegistryFlaw};
pub use edit::{Edit, Edited, IssuedTokens, NewToken};
pub use error::{AccessError, Fault};
pub use feature::{Feature, UnknownFeature};
pub use file::{Odd, REGISTRY_FILE, RegistryFile};
pub use registry::{Draft, Registry};
pub use state::{Admitted, PairedDevice, Rate, State, TokenRefusal};

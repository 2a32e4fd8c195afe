//! Devices: who connects from elsewhere, and how somebody new is let in.
//!
//! Whatever crosses the network does so under mutual TLS from the daemon's own authority. This crate holds that
//! authority, the registry of devices, revocation, pairing, and the TLS configurations of both sides. It opens no
//! socket and runs no task: the daemon does.
//!
//! On the daemon's side:
//!
//! - [`Identity`] is the authority and the registry: [`Identity::open`], [`Identity::server_config`], and for every
//!   connection [`Identity::connected`], for every request [`Identity::check`].
//! - [`pairing::PairingDesk`] makes codes and drives pairings; [`Identity::pairing_server`] is its listener's
//!   configuration.
//! - [`IdentityJournal`] and [`KeyVault`] are what the daemon brings.
//!
//! On a device's side: [`pairing::pair`], [`DeviceStore`], [`client_config`], [`Renewal`], [`BrowserRequest`], and
//! [`ConnectionFault`] for what goes wrong.
//!
//! It must never: know tools, decide what a device may do, or let anything but a certificate say who a device is.

mod authority;
mod browser;
mod device_key;
mod device_store;
mod entropy;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod identity;
mod journal;
mod key_vault;
mod names;
mod net;
pub mod pairing;
mod private_file;
mod refusal;
mod registry;
mod signing_request;
mod standing;
mod tally;
mod tls;
mod verify;

pub use browser::{BrowserError, BrowserFile, BrowserRequest};
pub use device_key::{DeviceKey, DeviceKeyError, KeyRefusal};
pub use device_store::{DeviceStore, DeviceStoreError, Profile, ProfileName, Renewal};
pub use entropy::NoEntropy;
pub use error::IdentityError;
pub use identity::{AuthorityView, ConnectedDevice, Identity, IdentitySetup, Issued, MAX_OVERLAP};
pub use journal::{IdentityEvent, IdentityJournal, JournalFailure, RecordedRegistry, RegistryChange};
pub use key_vault::{KeyDirectory, KeyName, KeyVault, KeyVaultError};
pub use names::{DeviceName, Host, MAX_HOST_CHARACTERS, MAX_HOSTS, NameError, Zone};
pub use net::{Accepted, ClientStream, DeviceAcceptor, HandshakeFault, PairingAcceptor, ServerStream, connect_device};
pub use refusal::CertificateRefusal;
pub use registry::{
    BROWSER_LIFE, CertificateRecord, DEVICE_LIFE, DeviceKind, DeviceRecord, DeviceState, DeviceView, DeviceWarning,
    LAST_SEEN_FILE, LEAST_BETWEEN_RENEWALS, REGISTRY_FILE, RENEW_BEFORE, Revocation, SHARDS_DIRECTORY, SUPERSEDED_LIFE,
    Serial,
};
pub use signing_request::{MAX_SIGNING_REQUEST, SigningRequestRefusal};
pub use standing::Standing;
pub use tls::{
    ConnectionFault, CredentialsError, DeviceCredentials, PAIRING_ALPN, PairingServer, ServerCertificates,
    client_config, pairing_client_config,
};

//! Devices through the crate's door: pairing over real TLS, certificates of every kind, a registry that is damaged and
//! cut off.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]

mod authority_rotation;
mod certificates;
mod connections;
mod device_profiles;
mod devices;
mod openssl;
mod pairing;
mod pairing_attacks;
mod registry;
mod world;

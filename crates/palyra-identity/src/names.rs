//! The names that certificates of one daemon carry, and no others.
//!
//! Every daemon has a zone of its own below `palyra.internal`, a domain that nobody can register. A paired device
//! connects to an address and asks for the zone's name, so it works at whatever address the daemon is found. Browsers
//! and other programs ask for the host they were given; those hosts are listed when the authority is made and are part
//! of what it is constrained to.

use crate::entropy::{self, NoEntropy};
use palyra_protocol::{DeviceId, Principal, display};
use rustls::pki_types::{DnsName, ServerName};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The domain of every zone: reserved for private use, resolved by nobody.
const DOMAIN: &str = ".palyra.internal";
/// How many digits of a zone's label are random: 80 bits.
const LABEL_DIGITS: usize = 20;
/// The most hosts that an authority is made for.
pub const MAX_HOSTS: usize = 16;
/// How many characters all of them may have: they stand in the authority's certificate.
pub const MAX_HOST_CHARACTERS: usize = 1024;
/// What the name of a device begins with in a certificate.
const SCHEME: &str = "palyra://";

/// Why a text is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Not a zone.
    #[error("a zone is `d`, {LABEL_DIGITS} hexadecimal digits and `{DOMAIN}`")]
    Zone,
    /// Not a host.
    #[error("`{given}` is no host; write a DNS name without wildcard, or an address")]
    Host {
        /// What was written.
        given: String,
    },
    /// Not a device's name.
    #[error(
        "a device's name is 1 to {} visible characters, does not begin or end with a space and is no device id",
        DeviceName::MAX
    )]
    Device,
}

impl NameError {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Zone => "zone_invalid",
            Self::Host { .. } => "host_invalid",
            Self::Device => "device_name_invalid",
        }
    }
}

/// The domain of one daemon: `d0123456789abcdef0123.palyra.internal`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone(DnsName<'static>);

impl Zone {
    /// A zone that no other daemon has.
    ///
    /// # Errors
    /// The machine gives no randomness.
    pub(crate) fn mint() -> Result<Self, NoEntropy> {
        let label: [u8; LABEL_DIGITS / 2] = entropy::random()?;
        // Digits and letters are a DNS name, so only the randomness can be missing.
        DnsName::try_from(format!("d{}{DOMAIN}", hex::encode(label))).map(Self).map_err(|_| NoEntropy)
    }

    /// The zone as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_ref()
    }

    /// The name that a paired device asks a TLS server for.
    #[must_use]
    pub fn server_name(&self) -> ServerName<'static> {
        ServerName::DnsName(self.0.clone())
    }

    /// What a device's certificate calls it.
    pub(crate) fn device_uri(&self, device: &DeviceId, principal: &Principal) -> String {
        format!("{SCHEME}{self}/device/{device}/{principal}")
    }

    /// The device and principal that a URI names, if this zone named them so.
    pub(crate) fn read_device_uri(&self, uri: &str) -> Option<(DeviceId, Principal)> {
        let path = uri.strip_prefix(SCHEME)?.strip_prefix(self.as_str())?.strip_prefix("/device/")?;
        let (device, principal) = path.split_once('/')?;
        let (device, principal) = (device.parse().ok()?, principal.parse().ok()?);
        // One spelling only: what is read is what would be written.
        (self.device_uri(&device, &principal) == uri).then_some((device, principal))
    }
}

impl FromStr for Zone {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let label = text.strip_suffix(DOMAIN).and_then(|label| label.strip_prefix('d'));
        let fits = |label: &str| {
            label.len() == LABEL_DIGITS && label.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        label.filter(|label| fits(label)).ok_or(NameError::Zone)?;
        DnsName::try_from(text.to_owned()).map(Self).map_err(|_| NameError::Zone)
    }
}

impl TryFrom<String> for Zone {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.as_str().to_owned()
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A host that the daemon is reached at: a DNS name or an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Host {
    /// A DNS name, in lower case.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl Host {
    /// This machine itself; every authority is made for these.
    pub(crate) fn loopback() -> [Self; 3] {
        [
            Self::Name("localhost".to_owned()),
            Self::Address(IpAddr::from([127, 0, 0, 1])),
            Self::Address(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1_u16])),
        ]
    }
}

impl FromStr for Host {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let error = || NameError::Host { given: display::safe(&text.chars().take(80).collect::<String>()) };
        if let Ok(address) = text.parse::<IpAddr>() {
            return if address.is_unspecified() { Err(error()) } else { Ok(Self::Address(address)) };
        }
        let name = text.to_ascii_lowercase();
        // A name whose last part is a number would be read as an address by some.
        let numeric = name.rsplit('.').next().is_none_or(|last| last.bytes().all(|b| b.is_ascii_digit()));
        if numeric || name.ends_with('.') || name.ends_with(DOMAIN) || DnsName::try_from(name.as_str()).is_err() {
            return Err(error());
        }
        Ok(Self::Name(name))
    }
}

impl TryFrom<String> for Host {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<Host> for String {
    fn from(host: Host) -> Self {
        host.to_string()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// What people call a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceName(String);

impl DeviceName {
    /// The longest name, in characters.
    pub const MAX: usize = 64;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What two names must differ in to be two names.
    pub(crate) fn folded(&self) -> String {
        self.0.to_lowercase()
    }
}

impl FromStr for DeviceName {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let fits = (1..=Self::MAX).contains(&text.chars().count())
            && text.trim() == text
            && !text.chars().any(display::deceives)
            && !text.to_lowercase().starts_with("dev_");
        if fits { Ok(Self(text.to_owned())) } else { Err(NameError::Device) }
    }
}

impl TryFrom<String> for DeviceName {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<DeviceName> for String {
    fn from(name: DeviceName) -> Self {
        name.0
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_reads_the_same_again_and_is_a_server_name() {
        let zone = Zone::mint().unwrap();
        assert_eq!(zone.as_str().parse(), Ok(zone.clone()));
        assert_eq!(zone.server_name().to_str(), zone.as_str());
        for bad in ["", "palyra.internal", "d0123.palyra.internal", "D0123456789abcdef0123.palyra.internal"] {
            assert!(bad.parse::<Zone>().is_err(), "{bad}");
        }
        assert!("d0123456789abcdef0123.palyra.internal.".parse::<Zone>().is_err());
    }

    #[test]
    fn a_device_is_read_from_its_uri_and_only_so() {
        let zone: Zone = "d0123456789abcdef0123.palyra.internal".parse().unwrap();
        let (device, principal) = (DeviceId::mint(), "user:ana".parse::<Principal>().unwrap());
        let uri = zone.device_uri(&device, &principal);
        assert_eq!(zone.read_device_uri(&uri), Some((device, principal)));
        let other: Zone = "d0123456789abcdef0124.palyra.internal".parse().unwrap();
        assert_eq!(other.read_device_uri(&uri), None);
        for bad in [uri.replace("palyra:", "https:"), format!("{uri}/x"), uri.replace("/device/", "/devices/")] {
            assert_eq!(zone.read_device_uri(&bad), None, "{bad}");
        }
    }

    #[test]
    fn hosts_are_names_and_addresses() {
        for good in ["example.org", "LOCALHOST", "192.168.1.5", "fd00::1", "host-1.lan"] {
            let host: Host = good.parse().unwrap();
            assert_eq!(host.to_string().parse(), Ok(host));
        }
        for bad in ["", "*.example.org", "a b", "1.2.3", "0.0.0.0", "::", "x.palyra.internal", "example.org.", "a..b"] {
            assert!(bad.parse::<Host>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_devices_can_be_seen() {
        for good in ["Ana's phone", "иван", "laptop-2", "手机", &"x".repeat(64)] {
            assert!(good.parse::<DeviceName>().is_ok(), "{good}");
        }
        let long = "x".repeat(65);
        for bad in ["", " x", "x ", "a\nb", "a\u{202e}b", "dev_01K", "DEV_x", "\u{200b}", &long] {
            assert!(bad.parse::<DeviceName>().is_err(), "{bad:?}");
        }
    }
}

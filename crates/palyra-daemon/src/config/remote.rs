//! `[remote]`: the door for paired devices.

use super::error::ConfigError;
use palyra_identity::Host;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The port when the configuration names none.
pub(crate) const DEFAULT_PORT: u16 = 7443;

/// The section as it is typed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawRemote {
    enabled: bool,
    listen: Option<String>,
    hosts: Vec<String>,
}

impl Default for RawRemote {
    fn default() -> Self {
        Self { enabled: true, listen: None, hosts: Vec::new() }
    }
}

/// Where paired devices come in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemoteConfig {
    /// Where to listen. Pairing listens on the port after it, while a code lives.
    pub(crate) listen: SocketAddr,
    /// Whether another free port will do: nobody asked for this one.
    pub(crate) any_port_will_do: bool,
    /// The hosts that devices and browsers reach the daemon at, besides its zone and this machine.
    pub(crate) hosts: Vec<Host>,
}

impl RawRemote {
    /// Where the door is, if it is to be open. Without a word it is open to this machine alone.
    pub(super) fn validate(self) -> Result<Option<RemoteConfig>, ConfigError> {
        let Self { enabled, listen, hosts } = self;
        if !enabled {
            return Ok(None);
        }
        let any_port_will_do = listen.is_none();
        let listen = match listen {
            None => SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)),
            Some(text) => address(&text)?,
        };
        if listen.port() == u16::MAX {
            return Err(ConfigError::value("remote.listen", "pairing needs the port after it, and there is none"));
        }
        let mut hosts = hosts
            .iter()
            .map(|host| host.parse::<Host>().map_err(|error| ConfigError::value("remote.hosts", error.to_string())));
        let mut hosts = hosts.by_ref().collect::<Result<Vec<_>, _>>()?;
        let own = Host::Address(listen.ip());
        if !listen.ip().is_loopback() && !listen.ip().is_unspecified() && !hosts.contains(&own) {
            hosts.push(own);
        }
        Ok(Some(RemoteConfig { listen, any_port_will_do, hosts }))
    }
}

impl RemoteConfig {
    /// The same at the port that the command line names.
    pub(crate) fn at_port(mut self, port: Option<u16>) -> Self {
        if let Some(port) = port {
            self.listen.set_port(port);
            self.any_port_will_do = false;
        }
        self
    }
}

/// `192.168.1.5:7443`, or an address alone.
fn address(text: &str) -> Result<SocketAddr, ConfigError> {
    let alone = || text.parse::<IpAddr>().map(|address| SocketAddr::from((address, DEFAULT_PORT)));
    text.parse().or_else(|_| alone()).map_err(|_| {
        let message = format!(
            "`{text}` is no address; write `127.0.0.1:{DEFAULT_PORT}`, or `0.0.0.0:{DEFAULT_PORT}` for every network"
        );
        ConfigError::value("remote.listen", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<RemoteConfig>, String> {
        toml::from_str::<RawRemote>(text).unwrap().validate().map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_word_only_this_machine_reaches_it() {
        let config = read("").unwrap().unwrap();
        assert!(config.listen.ip().is_loopback() && config.any_port_will_do && config.hosts.is_empty());
        assert_eq!(config.listen.port(), 7443);
        assert_eq!(read("enabled = false").unwrap(), None);
    }

    #[test]
    fn an_address_that_is_named_is_a_host() {
        let config = read("listen = \"10.0.0.5\"\nhosts = [\"Home.lan\"]").unwrap().unwrap();
        assert_eq!(config.listen.to_string(), "10.0.0.5:7443");
        let hosts: Vec<_> = config.hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["home.lan", "10.0.0.5"]);
        assert!(!config.any_port_will_do);
        assert!(read("listen = \"0.0.0.0:7443\"").unwrap().unwrap().hosts.is_empty());
        for bad in ["listen = \"home.lan\"", "listen = \"\"", "hosts = [\"*.lan\"]", "listen = \"127.0.0.1:65535\""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}

//! From a name to the addresses that are really connected to.
//!
//! A name is resolved once, here and nowhere else, and the connection goes to exactly what was found and checked. An answer that
//! holds even one special address is refused whole: that is what a rebinding attack looks like. The way to allow such a host is a
//! second rule that names the address and port.

use super::address::special_range;
use super::denial::{Denial, DenialCode};
use super::host::Host;
use super::rule::is_localhost;
use super::rules::EgressRules;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};

/// No more addresses than this are tried.
const MAX_ADDRESSES: usize = 8;

/// Something that finds the addresses of a name.
pub trait Resolve: Send + Sync {
    /// The addresses of a name. May block: callers give it a thread of its own and a deadline.
    ///
    /// # Errors
    /// When there are none, or nobody could be asked.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The resolver of this machine.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }
}

/// The addresses of a host that nobody has to be asked for.
pub(super) fn known_addresses(host: &Host, port: u16) -> Option<Vec<SocketAddr>> {
    match host {
        Host::Ip(address) => Some(vec![SocketAddr::new(*address, port)]),
        // RFC 6761: never asked in the DNS.
        host if is_localhost(host) => {
            let both = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
            Some(both.map(|address| SocketAddr::new(address, port)).to_vec())
        }
        Host::Name(_) => None,
    }
}

/// Checks what a name was resolved to; the addresses that remain are the only ones to connect to.
pub(super) fn vet(rules: &EgressRules, name: &str, port: u16, found: &[SocketAddr]) -> Result<Vec<SocketAddr>, Denial> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found.iter().map(SocketAddr::ip) {
        if let Some(range) = special_range(address)
            && !rules.names_address(address, port)
        {
            let address = Host::Ip(address);
            return Err(Denial::of(
                DenialCode::AddressDenied,
                (name, port),
                format!(
                    "{name} leads to {address}, which is {range}; a name may not lead there unless a rule names the address"
                ),
                format!(
                    "if that is meant, ask the operator to add `{address}:{port}` to allowed_hosts under [egress] too"
                ),
            ));
        }
        // The port is the one that was checked, whatever the resolver says.
        let address = SocketAddr::new(address, port);
        if addresses.len() < MAX_ADDRESSES && !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rules: &[&str], found: &[&str], expect: &str) {
        let rules = EgressRules::new(rules.iter().map(|rule| rule.parse().unwrap()).collect());
        let found: Vec<SocketAddr> = found.iter().map(|a| SocketAddr::new(a.parse().unwrap(), 0)).collect();
        let answer = match vet(&rules, "a.test", 443, &found) {
            Ok(addresses) => addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            Err(denial) => denial.code.to_string(),
        };
        assert_eq!(answer, expect, "{rules:?} {found:?}");
    }

    #[test]
    fn a_name_leads_to_special_addresses_only_where_a_rule_names_them() {
        check(&["a.test"], &["1.1.1.1", "2606:4700::1", "1.1.1.1"], "1.1.1.1:443 [2606:4700::1]:443");
        for special in
            ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "64:ff9b::a9fe:a9fe", "::ffff:10.0.0.1", "0.0.0.0"]
        {
            check(&["a.test"], &[special], "address_denied");
            check(&["a.test"], &["1.1.1.1", special], "address_denied");
        }
        check(&["a.test", "10.0.0.1:443"], &["10.0.0.1"], "10.0.0.1:443");
        check(&["a.test", "10.0.0.1:80"], &["10.0.0.1"], "address_denied");
        check(&["a.test", "http://10.0.0.1:443/x"], &["10.0.0.1"], "address_denied");
        check(&["a.test"], &[], "");
    }
}

//! From a name to the addresses that are really connected to.
//!
//! A name is resolved once, here and nowhere else, and the connection goes to exactly what was found and checked. An
//! answer that holds even one special address is refused whole: that is what a rebinding attack looks like. The way to
//! allow such a host is a second rule that names the address and port.

use super::address::special_range;
use super::denial::{Denial, DenialCode};
use super::host::Host;
use super::rule::is_localhost;
use super::rules::EgressRules;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

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
///
/// A rule is about a name, so that very name has to be asked for. A resolver that is given `a.example.org` may try
/// `a.example.org.corp.example` first, where a search list is set: whoever runs that domain would learn every name and
/// choose its address. So a name with a dot is asked for as absolute, with a dot at its end. That spelling is not found
/// in the hosts file, which is therefore read here. Names of one part (`intranet`) are what search lists are for, and
/// are asked for as they are.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemResolver;

/// Where names are written down that nobody is asked for.
const HOSTS_FILE: &str = "/etc/hosts";

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        // A machine without that file has nothing written in it.
        let hosts = std::fs::read(HOSTS_FILE).unwrap_or_default();
        let written = written_down(&String::from_utf8_lossy(&hosts), host);
        if !written.is_empty() {
            return Ok(written.into_iter().map(|address| SocketAddr::new(address, port)).collect());
        }
        Ok((question(host).as_str(), port).to_socket_addrs()?.collect())
    }
}

/// What the system is asked for.
fn question(host: &str) -> String {
    if host.contains('.') { format!("{host}.") } else { host.to_owned() }
}

/// The addresses that a hosts file gives a name.
fn written_down(hosts: &str, name: &str) -> Vec<IpAddr> {
    let line = |line: &str| {
        let mut words = line.split('#').next().unwrap_or(line).split_ascii_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        words.any(|known| known.eq_ignore_ascii_case(name)).then_some(address)
    };
    hosts.lines().filter_map(line).collect()
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

/// Whether an address is one of this machine's, public though it may be. Connecting to it would go past every firewall
/// around the machine. A datagram socket that is connected to an address of its own host gets that address for itself;
/// nothing is sent.
pub(super) fn is_ours(address: IpAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).and_then(|socket| socket.connect((address, 9)).map(|()| socket));
    // Where there is no way to an address, connecting fails too.
    socket.and_then(|socket| socket.local_addr()).is_ok_and(|own| own.ip() == address)
}

/// Checks what a name was resolved to; the addresses that remain are the only ones to connect to.
pub(super) fn vet(
    rules: &EgressRules,
    (name, port): (&str, u16),
    found: &[SocketAddr],
    is_ours: impl Fn(IpAddr) -> bool,
) -> Result<Vec<SocketAddr>, Denial> {
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in found.iter().map(SocketAddr::ip) {
        let special = || special_range(address).or_else(|| is_ours(address).then_some("an address of this machine"));
        if !rules.names_address(address, port)
            && let Some(range) = special()
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
        let ours = |address: IpAddr| address == IpAddr::from([93, 184, 215, 14]);
        let answer = match vet(&rules, ("a.test", 443), &found, ours) {
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

    #[test]
    fn a_name_leads_to_a_public_address_of_this_machine_only_where_a_rule_names_it() {
        check(&["a.test"], &["93.184.215.14"], "address_denied");
        check(&["a.test"], &["93.184.215.15", "93.184.215.14"], "address_denied");
        check(&["a.test", "93.184.215.14:443"], &["93.184.215.14"], "93.184.215.14:443");
        assert!(is_ours([127, 0, 0, 1].into()));
        assert!(!is_ours([192, 0, 2, 1].into()));
    }

    #[test]
    fn a_name_is_asked_for_as_it_stands_in_its_rule() {
        assert_eq!(question("www.example.net"), "www.example.net.");
        assert_eq!(question("intranet"), "intranet");
        let hosts = "127.0.0.1 localhost\n# 1.1.1.1 www.example.net\n10.0.0.1\tdb WWW.example.net # x\n::2 www.example.net\nodd www.example.net\n";
        assert_eq!(
            written_down(hosts, "www.example.net"),
            [IpAddr::from([10, 0, 0, 1]), "::2".parse::<IpAddr>().unwrap()]
        );
        assert_eq!(written_down(hosts, "example.net"), Vec::<IpAddr>::new());
        assert_eq!(written_down(hosts, "x"), Vec::<IpAddr>::new());
    }
}

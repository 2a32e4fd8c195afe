//! SOCKS5 (RFC 1928): no authentication, CONNECT only.
//!
//! Names are preferred, since then the proxy alone resolves them; an address is allowed where a rule names it.

use super::host::Host;
use std::net::{Ipv4Addr, Ipv6Addr};

pub(super) const VERSION: u8 = 5;

/// Answers to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    Refused = 5,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

impl Reply {
    /// The answer's bytes. The address we connect from is nobody's business.
    pub(super) fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, 1, 0, 0, 0, 0, 0, 0]
    }
}

/// What was read, and how many bytes it took; nothing while there is too little.
pub(super) type Parsed<T> = Option<(T, usize)>;

/// Where a client wants to go, or why that cannot be.
pub(super) type Wanted = Result<(Host, u16), (Reply, &'static str)>;

/// Whether a greeting offers to go without authentication.
pub(super) fn greeting(bytes: &[u8]) -> Parsed<bool> {
    let count = usize::from(*bytes.get(1)?);
    let methods = bytes.get(2..2 + count)?;
    Some((methods.contains(&0), 2 + count))
}

/// Reads a request.
pub(super) fn request(bytes: &[u8]) -> Parsed<Wanted> {
    let [version, command, reserved, kind] = *bytes.first_chunk()?;
    let length = match kind {
        1 => 4,
        3 => 1 + usize::from(*bytes.get(4)?),
        4 => 16,
        _ => return Some((Err((Reply::AddressNotSupported, "an unknown kind of address")), 4)),
    };
    let address = bytes.get(4..4 + length)?;
    let port = bytes.get(4 + length..6 + length)?;
    let port = u16::from_be_bytes([port[0], port[1]]);
    let used = 6 + length;
    if version != VERSION || reserved != 0 {
        return Some((Err((Reply::GeneralFailure, "not a SOCKS5 request")), used));
    }
    if command != 1 {
        return Some((Err((Reply::CommandNotSupported, "only CONNECT is supported")), used));
    }
    let host = match kind {
        1 => <[u8; 4]>::try_from(address).ok().map(|octets| Host::Ip(Ipv4Addr::from(octets).into())),
        3 => std::str::from_utf8(&address[1..]).ok().and_then(|name| Host::parse(name).ok()),
        _ => <[u8; 16]>::try_from(address).ok().and_then(|octets| Host::from_v6(Ipv6Addr::from(octets)).ok()),
    };
    let target = match host {
        Some(host) if port != 0 => Ok((host, port)),
        _ => Err((Reply::AddressNotSupported, "the host is no name and no plain address, or the port is 0")),
    };
    Some((target, used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(bytes: &[u8], expect: &str) {
        let found = match request(bytes) {
            None => "more".to_owned(),
            Some((Ok((host, port)), used)) => format!("{host}:{port} {used}"),
            Some((Err((reply, _)), _)) => format!("{reply:?}"),
        };
        assert_eq!(found, expect, "{bytes:?}");
    }

    #[test]
    fn requests_are_read() {
        check(b"\x05\x01\x00\x03\x0bexample.org\x01\xbbmore", "example.org:443 18");
        check(b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", "127.0.0.1:80 10");
        check(&[&[5, 1, 0, 4][..], &Ipv6Addr::LOCALHOST.octets(), &[0, 80]].concat(), "[::1]:80 22");
        check(b"\x05\x01\x00\x03\x0bexample", "more");
        check(b"\x05\x01\x00", "more");
        check(b"\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50", "CommandNotSupported");
        check(b"\x05\x03\x00\x01\x7f\x00\x00\x01\x00\x50", "CommandNotSupported");
        check(b"\x05\x01\x00\x02", "AddressNotSupported");
        check(b"\x05\x01\x00\x03\x00\x00\x50", "AddressNotSupported");
        check(b"\x05\x01\x00\x03\x05127.1\x00\x50", "AddressNotSupported");
        check(b"\x05\x01\x00\x03\x05a\x00b.c\x00\x50", "AddressNotSupported");
        check(b"\x05\x01\x00\x01\x01\x01\x01\x01\x00\x00", "AddressNotSupported");
        check(b"\x04\x01\x00\x01\x01\x01\x01\x01\x00\x50", "GeneralFailure");
        let mapped = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
        check(&[&[5, 1, 0, 4][..], &mapped, &[0, 80]].concat(), "AddressNotSupported");
        assert_eq!(greeting(b"\x05\x02\x01\x00"), Some((true, 4)));
        assert_eq!(greeting(b"\x05\x01\x02"), Some((false, 3)));
        assert_eq!(greeting(b"\x05\x00"), Some((false, 2)));
        assert_eq!(greeting(b"\x05\x02\x01"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered_and_never_read_past_their_end(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Some((_, used)) = request(&bytes) {
                prop_assert!(used <= bytes.len());
            }
            if let Some((_, used)) = greeting(&bytes) {
                prop_assert!(used <= bytes.len());
            }
        }
    }
}

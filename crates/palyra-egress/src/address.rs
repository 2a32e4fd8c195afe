//! Addresses that are not simply somewhere on the internet.
//!
//! A name is allowed because of what it is called, but the connection goes to an address, and the owner of the name's
//! DNS chooses it. So each address is looked at after resolution. For IPv6 only global unicast is ordinary; within it,
//! and in IPv4, the ranges below are not. Ranges that carry an IPv4 address inside (NAT64, 6to4, Teredo, mapped) are
//! refused whole: what a gateway makes of them cannot be known here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What makes an address special; nothing for one on the public internet.
#[must_use]
pub fn special_range(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

/// Whether no rule may name this address: nobody is there to be spoken to.
#[must_use]
pub(super) fn is_unusable(address: IpAddr) -> bool {
    address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

struct V4(u32, u32, &'static str);

const fn v4(octets: [u8; 4], prefix: u32, what: &'static str) -> V4 {
    V4(u32::from_be_bytes(octets), u32::MAX << (32 - prefix), what)
}

/// From the narrow to the wide: the first match names the range.
const V4_RANGES: [V4; 20] = [
    v4([169, 254, 169, 254], 32, "cloud metadata"),
    v4([168, 63, 129, 16], 32, "cloud metadata"),
    v4([100, 100, 100, 200], 32, "cloud metadata"),
    v4([255, 255, 255, 255], 32, "broadcast"),
    v4([0, 0, 0, 0], 8, "unspecified"),
    v4([10, 0, 0, 0], 8, "private"),
    v4([100, 64, 0, 0], 10, "carrier-grade NAT"),
    v4([127, 0, 0, 0], 8, "loopback"),
    v4([169, 254, 0, 0], 16, "link-local"),
    v4([172, 16, 0, 0], 12, "private"),
    v4([192, 0, 0, 0], 24, "reserved"),
    v4([192, 0, 2, 0], 24, "documentation"),
    v4([192, 88, 99, 0], 24, "6to4 relay"),
    v4([192, 168, 0, 0], 16, "private"),
    v4([198, 18, 0, 0], 15, "benchmarking"),
    v4([198, 51, 100, 0], 24, "documentation"),
    v4([203, 0, 113, 0], 24, "documentation"),
    v4([224, 0, 0, 0], 4, "multicast"),
    v4([240, 0, 0, 0], 5, "reserved"),
    v4([248, 0, 0, 0], 5, "reserved"),
];

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    let bits = u32::from(address);
    V4_RANGES.iter().find(|V4(net, mask, _)| bits & mask == *net).map(|V4(.., what)| *what)
}

struct V6(u128, u128, &'static str);

const fn v6(segments: [u16; 8], prefix: u32, what: &'static str) -> V6 {
    let [a, b, c, d, e, f, g, h] = segments;
    V6(Ipv6Addr::new(a, b, c, d, e, f, g, h).to_bits(), u128::MAX << (128 - prefix), what)
}

const V6_RANGES: [V6; 16] = [
    v6([0, 0, 0, 0, 0, 0, 0, 0], 128, "unspecified"),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128, "loopback"),
    v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128, "cloud metadata"),
    v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96, "IPv4-mapped"),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96, "IPv4-compatible"),
    v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, "NAT64"),
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, "NAT64"),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, "private"),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, "link-local"),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, "multicast"),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, "Teredo"),
    v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, "benchmarking"),
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, "reserved"),
    v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, "documentation"),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, "6to4"),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, "documentation"),
];

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    let bits = address.to_bits();
    let global_unicast = bits >> 125 == 1;
    let known = V6_RANGES.iter().find(|V6(net, mask, _)| bits & mask == *net).map(|V6(.., what)| *what);
    known.or(if global_unicast { None } else { Some("reserved") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(address: &str, expect: Option<&str>) {
        assert_eq!(special_range(address.parse().unwrap()), expect, "{address}");
    }

    #[test]
    fn special_ranges_are_known() {
        for public in
            ["1.1.1.1", "8.8.8.8", "93.184.215.14", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"]
        {
            check(public, None);
        }
        check("127.255.255.254", Some("loopback"));
        check("10.255.0.1", Some("private"));
        check("172.31.255.255", Some("private"));
        check("192.168.0.1", Some("private"));
        check("100.64.0.1", Some("carrier-grade NAT"));
        check("169.254.169.254", Some("cloud metadata"));
        check("169.254.1.1", Some("link-local"));
        check("0.0.0.0", Some("unspecified"));
        check("0.1.2.3", Some("unspecified"));
        check("192.0.2.1", Some("documentation"));
        check("198.51.100.1", Some("documentation"));
        check("203.0.113.9", Some("documentation"));
        check("198.19.0.1", Some("benchmarking"));
        check("224.0.0.1", Some("multicast"));
        check("239.1.1.1", Some("multicast"));
        check("240.0.0.1", Some("reserved"));
        check("250.0.0.1", Some("reserved"));
        check("255.255.255.255", Some("broadcast"));
        check("::", Some("unspecified"));
        check("::1", Some("loopback"));
        check("::ffff:1.1.1.1", Some("IPv4-mapped"));
        check("::127.0.0.1", Some("IPv4-compatible"));
        check("64:ff9b::a9fe:a9fe", Some("NAT64"));
        check("64:ff9b:1:2::7f00:1", Some("NAT64"));
        check("2002:7f00:1::", Some("6to4"));
        check("2001:0:1::1", Some("Teredo"));
        check("2001:2:0:1::", Some("benchmarking"));
        check("2001:20::1", Some("reserved"));
        check("2001:db8::1", Some("documentation"));
        check("3fff:1::1", Some("documentation"));
        check("fd00:ec2::254", Some("cloud metadata"));
        check("fd12::1", Some("private"));
        check("fe80::1", Some("link-local"));
        check("fec0::1", Some("reserved"));
        check("ff02::1", Some("multicast"));
        check("100::1", Some("reserved"));
        check("5f00::1", Some("reserved"));
    }

    proptest! {
        #[test]
        fn what_the_library_calls_special_is_special(bits: u32) {
            let address = Ipv4Addr::from(bits);
            let library = address.is_private() || address.is_loopback() || address.is_link_local() || address.is_multicast()
                || address.is_broadcast() || address.is_documentation() || address.is_unspecified();
            prop_assert!(!library || special_range(address.into()).is_some());
        }

        #[test]
        fn an_ipv4_address_in_ipv6_clothes_is_never_ordinary(bits: u32, prefix in 0..4usize) {
            let [a, b, c, d] = bits.to_be_bytes().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            let address = [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ][prefix];
            prop_assert!(special_range(address.into()).is_some());
        }
    }
}

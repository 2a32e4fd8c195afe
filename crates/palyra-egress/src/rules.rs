//! The allow-list as a whole, and the question that is put to it.
//!
//! Rules are found by hashing, never by walking the list: a look-up costs as many probes as the host has labels and
//! the longest rule's path has parts. A thousand rules cost what ten cost. What no rule allows is refused.

use super::denial::{Denial, DenialCode};
use super::host::{Host, shown};
use super::path::ambiguity;
use super::rule::{EgressRule, HostPattern, PathPattern, Ports, is_localhost};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What a client wants to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// What for.
    pub purpose: Purpose,
}

/// What a connection is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Bytes that nobody looks into: CONNECT, SOCKS, TLS.
    Tunnel,
    /// One plain HTTP request.
    Http {
        /// Its method.
        method: String,
        /// Its path, without the query.
        path: String,
    },
}

/// What becomes of a host that no rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnlistedHosts {
    /// A call that asks for it is refused.
    #[default]
    Refuse,
    /// A call may ask for it; policy or a person decides about that call, and nothing but that call reaches it.
    Ask,
}

/// The allow-list: an operator's, or the part of one that a single call asked for.
#[derive(Debug, Default)]
pub struct EgressRules {
    rules: Vec<EgressRule>,
    unlisted: UnlistedHosts,
    /// The operator's list, where these are the rules of one call.
    operators: Option<Arc<EgressRules>>,
    exact: HashMap<Host, PortRules>,
    below: HashMap<String, PortRules>,
    loopback: bool,
}

/// By port; nothing is any port.
type PortRules = HashMap<Option<u16>, Scope>;

/// What is allowed at one host pattern and port: indexes into the list.
#[derive(Debug, Default)]
struct Scope {
    whole: Option<usize>,
    http: HashMap<(Option<String>, PathPattern), usize>,
    /// The most parts that a path prefix here has.
    depth: usize,
}

impl EgressRules {
    /// Builds the index.
    #[must_use]
    pub fn new(rules: Vec<EgressRule>) -> Self {
        let mut this = Self { rules, ..Self::default() };
        for (index, rule) in this.rules.iter().enumerate() {
            for host in rule.host_list() {
                this.loopback |= matches!(&host, HostPattern::Exactly(host) if is_loopback(host));
                let ports = match host {
                    HostPattern::Exactly(host) => this.exact.entry(host).or_default(),
                    HostPattern::Below(name) => this.below.entry(name).or_default(),
                };
                for port in rule.port_list() {
                    ports.entry(port).or_default().add(index, rule);
                }
            }
        }
        this
    }

    /// The same list, with another answer for hosts that it does not name.
    #[must_use]
    pub fn with_unlisted(self, unlisted: UnlistedHosts) -> Self {
        Self { unlisted, ..self }
    }

    /// The part of this list that a call asked for: those hosts, at those ports, and nothing else. Where unlisted hosts
    /// may be asked for, they are in it too: whoever allows the call allows them.
    #[must_use]
    pub fn narrowed_to(self: &Arc<Self>, asked: &[(Host, Option<u16>)]) -> Self {
        let rules = asked.iter().flat_map(|(host, port)| self.rules_for(host, *port)).collect();
        Self { operators: Some(Arc::clone(self)), ..Self::new(rules) }
    }

    fn rules_for(&self, host: &Host, port: Option<u16>) -> Vec<EgressRule> {
        let fits = |rule: &&EgressRule| {
            let host_fits = |pattern: HostPattern| pattern.fits(host);
            let port_fits = |listed: Option<u16>| port.is_none() || listed.is_none() || listed == port;
            rule.host_list().into_iter().any(host_fits) && rule.port_list().into_iter().any(port_fits)
        };
        let exactly = |rule: &EgressRule| EgressRule {
            host: HostPattern::Exactly(host.clone()),
            ports: port.map_or(rule.ports, Ports::One),
            http: rule.http.clone(),
        };
        let listed: Vec<_> = self.rules.iter().filter(fits).map(exactly).collect();
        if !listed.is_empty() || !self.may_be_asked_for(host, port) {
            return listed;
        }
        let ports = port.map_or(Ports::Web, Ports::One);
        vec![EgressRule { host: HostPattern::Exactly(host.clone()), ports, http: None }]
    }

    /// Whether a call may ask for this host: a rule speaks of it, or hosts that no rule names may be asked for.
    #[must_use]
    pub fn may_be_asked_for(&self, host: &Host, port: Option<u16>) -> bool {
        // An address and this machine are asked for one port at a time, as in rules.
        let precise = port.is_some() || matches!(host, Host::Name(_)) && !is_localhost(host);
        self.speaks_of(host, port) || self.unlisted == UnlistedHosts::Ask && precise
    }

    /// Whether a run needs a proxy: something may be reached, or its caller should learn what to ask for.
    #[must_use]
    pub fn need_a_proxy(&self) -> bool {
        let tells = |rules: &Self| !rules.is_empty() || rules.unlisted == UnlistedHosts::Ask;
        tells(self) || self.operators.as_deref().is_some_and(tells)
    }

    /// Whether nothing at all is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules, as given.
    #[must_use]
    pub fn rules(&self) -> &[EgressRule] {
        &self.rules
    }

    /// The rule that allows this.
    ///
    /// # Errors
    /// When none does; the denial says what was near and what to ask for.
    pub fn check(&self, target: &Target) -> Result<&EgressRule, Denial> {
        let mut near = Near::Nothing;
        for ports in self.candidates(&target.host) {
            near = near.max(Near::OtherPort);
            for scope in [Some(target.port), None].iter().filter_map(|port| ports.get(port)) {
                match scope.find(&target.purpose) {
                    Ok(index) => return Ok(&self.rules[index]),
                    Err(found) => near = near.max(found),
                }
            }
        }
        match &self.operators {
            Some(list) if list.unlisted == UnlistedHosts::Ask || list.check(target).is_ok() => {
                Err(not_asked_for(target))
            }
            _ => Err(near.denial(target)),
        }
    }

    /// Whether a rule names this very address and port, for any purpose. The operator's list counts for a call's rules
    /// too: what a name leads to is the operator's to say.
    #[must_use]
    pub fn names_address(&self, address: IpAddr, port: u16) -> bool {
        let ports = self.exact.get(&Host::Ip(address));
        let here = ports.and_then(|ports| ports.get(&Some(port))).is_some_and(|scope| scope.whole.is_some());
        here || self.operators.as_ref().is_some_and(|list| list.names_address(address, port))
    }

    /// Whether some rule names `localhost` or a loopback address.
    #[must_use]
    pub fn name_loopback(&self) -> bool {
        self.loopback
    }

    /// Whether some rule speaks of this host, at this port if one is given, for whatever purpose.
    #[must_use]
    pub fn speaks_of(&self, host: &Host, port: Option<u16>) -> bool {
        let at = |ports: &PortRules| port.is_none() || ports.contains_key(&port) || ports.contains_key(&None);
        self.candidates(host).any(at)
    }

    /// The patterns that this host fits, the exact one first.
    fn candidates<'a>(&'a self, host: &'a Host) -> impl Iterator<Item = &'a PortRules> {
        let name = match host {
            Host::Name(name) => name.as_str(),
            Host::Ip(_) => "",
        };
        let parents = name.match_indices('.').map(move |(dot, _)| &name[dot + 1..]);
        self.exact.get(host).into_iter().chain(parents.filter_map(|parent| self.below.get(parent)))
    }
}

/// The call did not say that it needs this host, and could have.
fn not_asked_for(target: &Target) -> Denial {
    let (host, port) = (&target.host, target.port);
    let message = format!("this call did not ask for {host}:{port}, so it has no way there");
    let hint = format!("propose the call again with `requested_egress_hosts`: [\"{host}:{port}\"]");
    Denial::of(DenialCode::EgressDenied, (host, port), message, hint)
}

fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Ip(address) => address.is_loopback(),
        name => is_localhost(name),
    }
}

/// The index follows from the rules.
impl PartialEq for EgressRules {
    fn eq(&self, other: &Self) -> bool {
        (&self.rules, self.unlisted, &self.operators) == (&other.rules, other.unlisted, &other.operators)
    }
}

impl Eq for EgressRules {}

impl Scope {
    /// The first of several equal rules counts.
    fn add(&mut self, index: usize, rule: &EgressRule) {
        match &rule.http {
            None => {
                self.whole.get_or_insert(index);
            }
            Some(http) => {
                if let PathPattern::Below(prefix) = &http.path {
                    self.depth = self.depth.max(prefix.matches('/').count());
                }
                self.http.entry((http.method.clone(), http.path.clone())).or_insert(index);
            }
        }
    }

    fn find(&self, purpose: &Purpose) -> Result<usize, Near> {
        if let Some(index) = self.whole {
            return Ok(index);
        }
        let Purpose::Http { method, path } = purpose else { return Err(Near::PlainHttpOnly) };
        let methods = [None, Some(method.clone())];
        let find = |pattern: PathPattern| {
            methods.iter().find_map(|method| self.http.get(&(method.clone(), pattern.clone())).copied())
        };
        if let Some(index) = find(PathPattern::Any) {
            return Ok(index);
        }
        if let Some(reason) = ambiguity(path) {
            return Err(Near::Ambiguous(reason));
        }
        let prefixes = path.match_indices('/').take(self.depth).map(|(slash, _)| &path[..=slash]);
        std::iter::once(PathPattern::Exactly(path.clone()))
            .chain(prefixes.map(|prefix| PathPattern::Below(prefix.to_owned())))
            .find_map(find)
            .ok_or(Near::OtherRequest)
    }
}

/// How close a refused target came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Near {
    Nothing,
    OtherPort,
    PlainHttpOnly,
    OtherRequest,
    Ambiguous(&'static str),
}

impl Near {
    fn denial(self, target: &Target) -> Denial {
        let (host, port) = (&target.host, target.port);
        let ask = format!("ask the operator to add `{host}:{port}` to allowed_hosts under [egress]");
        let (code, message, hint) = match (self, &target.purpose) {
            (Self::Ambiguous(reason), _) => (
                DenialCode::AmbiguousPath,
                format!("the rules for {host} name paths, and this path can be read in two ways: {reason}"),
                "write the path without dot segments, doubled slashes and encoded separators".to_owned(),
            ),
            (Self::OtherRequest, Purpose::Http { method, path }) => (
                DenialCode::EgressDenied,
                format!("no rule allows {} http://{host}:{port}{}", shown(method), shown(path)),
                format!(
                    "ask the operator to add `{} http://{host}:{port}{}` to allowed_hosts under [egress]",
                    shown(method),
                    shown(path)
                ),
            ),
            (Self::PlainHttpOnly, _) => (
                DenialCode::EgressDenied,
                format!("no rule allows a tunnel to {host}:{port}; the rules for it allow plain HTTP requests only"),
                format!("send plain HTTP requests through the proxy, or {ask}"),
            ),
            (Self::OtherPort, _) => (
                DenialCode::EgressDenied,
                format!("no rule allows {host}:{port}; there are rules for other ports of {host}"),
                ask,
            ),
            _ => (DenialCode::EgressDenied, format!("no rule allows {host}:{port}"), ask),
        };
        Denial::of(code, (host, port), message, hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(list: &[&str]) -> EgressRules {
        EgressRules::new(list.iter().map(|text| text.parse().unwrap()).collect())
    }

    /// `target` is `host:port`, or `METHOD host:port/path`; the answer is the rule, or the code of the denial.
    fn check(list: &[&str], target: &str, expect: &str) {
        let (purpose, authority) = match target.split_once(' ') {
            None => (Purpose::Tunnel, target),
            Some((method, url)) => {
                let slash = url.find('/').unwrap();
                (Purpose::Http { method: method.into(), path: url[slash..].into() }, &url[..slash])
            }
        };
        let (host, port) = authority.rsplit_once(':').unwrap();
        let target = Target { host: Host::parse(host).unwrap(), port: port.parse().unwrap(), purpose };
        let rules = rules(list);
        let found = rules.check(&target).map_or_else(|denial| denial.code.to_string(), ToString::to_string);
        assert_eq!(found, expect, "{list:?} {target:?}");
    }

    #[test]
    fn what_no_rule_allows_is_refused() {
        check(&[], "example.org:443", "egress_denied");
        let list = &["example.org", "*.example.net", "deep.example.net:22", "any.example:*"];
        check(list, "example.org:443", "example.org");
        check(list, "EXAMPLE.org.:80", "example.org");
        check(list, "example.org:8443", "egress_denied");
        check(list, "www.example.org:443", "egress_denied");
        check(list, "notexample.org:443", "egress_denied");
        check(list, "example.org.evil.test:443", "egress_denied");
        check(list, "example.net:443", "egress_denied");
        check(list, "a.example.net:443", "*.example.net");
        check(list, "a.b.c.example.net:80", "*.example.net");
        check(list, "evilexample.net:443", "egress_denied");
        check(list, "deep.example.net:22", "deep.example.net:22");
        check(list, "deep.example.net:443", "*.example.net");
        check(list, "any.example:1", "any.example:*");
        check(list, "93.184.215.14:443", "egress_denied");
    }

    #[test]
    fn plain_http_rules_admit_no_tunnel_and_no_other_request() {
        let list = &["GET http://example.org/api/*", "http://example.org:8080/status", "http://all.example"];
        check(list, "example.org:80", "egress_denied");
        check(list, "all.example:80", "egress_denied");
        check(list, "GET all.example:80/a//../b", "http://all.example");
        check(list, "GET example.org:80/api/x/y", "GET http://example.org/api/*");
        check(list, "GET example.org:80/api/", "GET http://example.org/api/*");
        check(list, "GET example.org:80/api", "egress_denied");
        check(list, "GET example.org:80/apix", "egress_denied");
        check(list, "POST example.org:80/api/x", "egress_denied");
        check(list, "get example.org:80/api/x", "egress_denied");
        check(list, "GET example.org:443/api/x", "egress_denied");
        check(list, "GET example.org:80/api/../x", "ambiguous_path");
        check(list, "GET example.org:80/api/%2e%2e/x", "ambiguous_path");
        check(list, "PUT example.org:8080/status", "http://example.org:8080/status");
        check(list, "PUT example.org:8080/status/x", "egress_denied");
    }

    #[test]
    fn addresses_and_localhost_are_named_one_port_at_a_time() {
        let list = &["localhost:8080", "10.0.0.1:22", "GET http://127.0.0.1:9000/x"];
        for same in ["localhost:8080", "127.0.0.1:8080", "[::1]:8080"] {
            check(list, same, "localhost:8080");
        }
        check(list, "localhost:8081", "egress_denied");
        check(list, "127.0.0.2:8080", "egress_denied");
        check(list, "10.0.0.1:22", "10.0.0.1:22");
        check(list, "10.0.0.1:23", "egress_denied");
        let rules = rules(list);
        assert!(rules.names_address([127, 0, 0, 1].into(), 8080));
        assert!(!rules.names_address([127, 0, 0, 1].into(), 9000), "a rule for requests is none for the address");
        assert!(!rules.names_address([10, 0, 0, 1].into(), 80));
    }

    #[test]
    fn a_denial_says_what_to_ask_for() {
        let target = Target { host: Host::parse("api.test").unwrap(), port: 443, purpose: Purpose::Tunnel };
        let denial = rules(&[]).check(&target).unwrap_err();
        assert_eq!(denial.message, "no rule allows api.test:443");
        assert!(denial.hint.contains("add `api.test:443` to allowed_hosts"), "{}", denial.hint);
        assert!(rules(&["api.test:22"]).check(&target).unwrap_err().message.contains("other ports"));
        assert!(rules(&["http://api.test:443/x"]).check(&target).unwrap_err().message.contains("plain HTTP"));
    }

    #[test]
    fn a_call_gets_what_it_asked_for_and_nothing_else_of_the_list() {
        let list =
            Arc::new(rules(&["*.example.org", "api.test:*", "http://plain.test/a/*", "localhost:80", "10.0.0.1:443"]));
        let narrowed = |asked: &[(&str, Option<u16>)]| {
            let asked: Vec<_> = asked.iter().map(|(host, port)| (Host::parse(host).unwrap(), *port)).collect();
            let rules = list.narrowed_to(&asked);
            rules.rules().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(narrowed(&[]), Vec::<String>::new());
        assert_eq!(narrowed(&[("a.example.org", None)]), ["a.example.org"]);
        assert_eq!(
            narrowed(&[("a.example.org", Some(443)), ("api.test", Some(22))]),
            ["a.example.org:443", "api.test:22"]
        );
        assert_eq!(narrowed(&[("a.example.org", Some(22)), ("other.test", None)]), Vec::<String>::new());
        assert_eq!(
            narrowed(&[("plain.test", Some(80)), ("127.0.0.1", Some(80))]),
            ["http://plain.test:80/a/*", "127.0.0.1:80"]
        );
        let none = list.narrowed_to(&[]);
        assert!(none.is_empty() && none.need_a_proxy() && none.names_address([10, 0, 0, 1].into(), 443));
        let target = |host: &str| Target { host: Host::parse(host).unwrap(), port: 443, purpose: Purpose::Tunnel };
        let hint = |host: &str| none.check(&target(host)).unwrap_err().hint;
        assert!(hint("a.example.org").contains("requested_egress_hosts"));
        assert!(hint("other.test").contains("allowed_hosts"));
    }

    #[test]
    fn hosts_that_no_rule_names_can_be_asked_for_where_the_operator_says_so() {
        let host = |text: &str| Host::parse(text).unwrap();
        let refusing = rules(&["a.test"]);
        assert!(
            !refusing.may_be_asked_for(&host("b.test"), None) && !Arc::new(rules(&[])).narrowed_to(&[]).need_a_proxy()
        );
        let asking = Arc::new(rules(&["a.test:22"]).with_unlisted(UnlistedHosts::Ask));
        assert!(asking.may_be_asked_for(&host("b.test"), None) && asking.may_be_asked_for(&host("a.test"), Some(443)));
        for imprecise in ["10.0.0.1", "localhost"] {
            assert!(!asking.may_be_asked_for(&host(imprecise), None), "{imprecise}");
            assert!(asking.may_be_asked_for(&host(imprecise), Some(8080)), "{imprecise}");
        }
        let call = asking.narrowed_to(&[(host("b.test"), None), (host("localhost"), Some(8080))]);
        let written: Vec<_> = call.rules().iter().map(ToString::to_string).collect();
        assert_eq!(written, ["b.test", "localhost:8080"]);
        let target = Target { host: host("c.test"), port: 443, purpose: Purpose::Tunnel };
        assert!(call.check(&target).unwrap_err().hint.contains("requested_egress_hosts"));
        assert_ne!(*asking, rules(&["a.test:22"]));
    }

    #[test]
    fn many_rules_are_found_like_few() {
        let list = (0..1000).map(|n| format!("host-{n}.example.org").parse().unwrap());
        let rules = EgressRules::new(list.chain(["*.deep.example.org".parse().unwrap()]).collect());
        let host = Host::parse("a.b.c.deep.example.org").unwrap();
        // One probe for the name itself, then one per parent; each is a hash look-up.
        assert_eq!(rules.candidates(&host).count(), 1);
        let target = Target { host, port: 443, purpose: Purpose::Tunnel };
        assert_eq!(rules.check(&target).unwrap().to_string(), "*.deep.example.org");
    }
}

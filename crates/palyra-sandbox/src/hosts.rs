//! Which hosts a command line names.
//!
//! For people and policies to see before anything runs, and for egress mode `preflight`. It finds URLs anywhere in a word,
//! `user@host:path`, and `host:port`; for programs whose plain arguments are URLs it takes those too. It cannot find a host that
//! a program computes, reads from a file or knows by itself: in strict mode the proxy sees every connection, in the other
//! modes nobody does. It must never be taken for the enforcement.

use crate::egress::Host;
use crate::error::SandboxError;
use crate::policy::{EgressEnforcementMode, SandboxProcessRunnerPolicy};
use std::collections::HashSet;
use std::fmt;
use std::path::Path;

/// A host that a command names, and the port if it says or implies one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedHost {
    /// The host in its one spelling, or as it was written where it has none.
    pub host: String,
    /// The port.
    pub port: Option<u16>,
}

impl fmt::Display for NamedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => write!(f, "{}", self.host),
        }
    }
}

impl NamedHost {
    /// Reads a host as a caller asks for it: `example.org` or `example.org:443`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        host_and_port(text, Reading::Certain).unwrap_or_else(|| Self { host: spelled(text), port: None })
    }

    /// The host, where it is one that can be spoken to.
    pub(crate) fn known(&self) -> Option<Host> {
        Host::parse(&self.host).ok()
    }
}

/// How sure it is that a text is a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// It stands where a host must stand: what cannot be read as one is kept as it is, and fits no rule.
    Certain,
    /// It looks like one.
    Guess,
}

/// More than anybody would name; the rest is not looked for.
const MOST_HOSTS: usize = 256;

/// Programs whose plain arguments are URLs, with or without a scheme.
const TAKES_URLS: &[&str] = &["curl", "wget", "wget2", "aria2c", "http", "https", "xh", "lynx", "w3m", "links"];

/// Options of those whose value is no URL.
const TAKES_OTHERS: &[&str] = &[
    "-o",
    "--output",
    "-d",
    "--data",
    "--data-raw",
    "--data-binary",
    "--data-urlencode",
    "--json",
    "-H",
    "--header",
    "-T",
    "--upload-file",
    "-F",
    "--form",
    "-K",
    "--config",
    "-u",
    "--user",
    "-A",
    "--user-agent",
    "-b",
    "--cookie",
    "-c",
    "--cookie-jar",
    "-X",
    "--request",
    "-E",
    "--cert",
    "--key",
    "--cacert",
    "-w",
    "--write-out",
    "-D",
    "--dump-header",
    "--output-document",
    "-P",
    "--directory-prefix",
    "--output-dir",
];

/// Ports of schemes.
const SCHEMES: &[(&str, u16)] = &[
    ("http", 80),
    ("https", 443),
    ("ws", 80),
    ("wss", 443),
    ("ftp", 21),
    ("ftps", 990),
    ("sftp", 22),
    ("ssh", 22),
    ("git", 9418),
    ("rsync", 873),
    ("ldap", 389),
    ("ldaps", 636),
    ("smtp", 25),
    ("imap", 143),
    ("postgres", 5432),
    ("postgresql", 5432),
    ("mysql", 3306),
    ("redis", 6379),
    ("amqp", 5672),
    ("mongodb", 27017),
];

/// The hosts that a command's arguments name, each once, in order.
#[must_use]
pub fn hosts_in_arguments(argv: &[String]) -> Vec<NamedHost> {
    let program = argv.first().and_then(|word| Path::new(word).file_name()?.to_str()).unwrap_or("");
    let takes_urls = TAKES_URLS.contains(&program);
    let mut found: Vec<NamedHost> = Vec::new();
    let mut add = |host: Option<NamedHost>| {
        if let Some(host) = host.filter(|host| !found.contains(host)) {
            found.push(host);
        }
        found.len() < MOST_HOSTS
    };
    for (before, word) in argv.iter().zip(argv.iter().skip(1)) {
        let urls = urls(word);
        let is_url = takes_urls && !TAKES_OTHERS.contains(&before.as_str());
        let more = if urls.is_empty() {
            add(address(word).or_else(|| if is_url { bare_url(word) } else { None }))
        } else {
            urls.into_iter().all(|host| add(Some(host)))
        };
        if !more {
            break;
        }
    }
    found
}

/// Compares the hosts that a call names with the allow-list, as far as its egress mode wants that, and tells all of them: those
/// it asks for, then those in its arguments.
///
/// # Errors
/// When the call asks for a host that no rule speaks of and the mode is not `none`; in preflight mode also when its arguments
/// name one.
pub fn check_hosts(
    policy: &SandboxProcessRunnerPolicy,
    argv: &[String],
    requested: &[String],
) -> Result<Vec<NamedHost>, SandboxError> {
    let mut hosts: Vec<NamedHost> = requested.iter().take(MOST_HOSTS).map(|text| NamedHost::parse(text)).collect();
    let asked = hosts.len();
    hosts.extend(hosts_in_arguments(argv));
    let judged = match policy.egress {
        EgressEnforcementMode::None => 0,
        // A word that only looks like a host must not end a run in which every connection is judged anyway.
        EgressEnforcementMode::Strict => asked,
        EgressEnforcementMode::Preflight => hosts.len(),
    };
    let fits = |named: &&NamedHost| named.known().is_some_and(|host| policy.egress_rules.speaks_of(&host, named.port));
    match hosts[..judged].iter().find(|named| !fits(named)) {
        Some(named) => Err(SandboxError::HostNotAllowed { host: named.to_string() }),
        None => {
            let mut seen = HashSet::new();
            hosts.retain(|named| seen.insert(named.clone()));
            Ok(hosts)
        }
    }
}

/// The host of every URL in a word.
fn urls(word: &str) -> Vec<NamedHost> {
    let mut found = Vec::new();
    for (at, _) in word.match_indices("://") {
        let before = &word[..at];
        let start = before.rfind(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).map_or(0, |i| i + 1);
        // `start` follows a character that may be more than one byte long.
        let scheme = before.get(start..).unwrap_or_else(|| before.rsplit(|c: char| !c.is_ascii()).next().unwrap_or(""));
        let scheme = scheme.to_ascii_lowercase();
        if scheme == "file" {
            continue;
        }
        // `git+ssh` is spoken over the second.
        let last = scheme.rsplit('+').next().unwrap_or("");
        let port = SCHEMES.iter().find(|(name, _)| *name == last).map(|(_, port)| *port);
        found.extend(
            authority(&word[at + 3..], Reading::Certain).map(|host| NamedHost { port: host.port.or(port), ..host }),
        );
    }
    found
}

/// `[user@]host[:port]` at the beginning of a text, up to whatever ends it.
fn authority(text: &str, reading: Reading) -> Option<NamedHost> {
    let end = text.find(|c: char| "/?#\\'\"`<>|;,)}".contains(c) || c.is_whitespace() || c.is_control());
    let text = &text[..end.unwrap_or(text.len())];
    host_and_port(text.rsplit_once('@').map_or(text, |(_, host)| host), reading)
}

/// `host` or `host:port`; an IPv6 address is in brackets.
fn host_and_port(text: &str, reading: Reading) -> Option<NamedHost> {
    let bracket = text.find(']').map_or(0, |at| at + 1);
    let (host, port) = match text[bracket..].find(':') {
        Some(colon) => (&text[..bracket + colon], &text[bracket + colon + 1..]),
        None => (text, ""),
    };
    let port = match port {
        "" => Some(None),
        port => port.parse::<u16>().ok().filter(|port| *port != 0).map(Some),
    };
    match (Host::parse(host), port, reading) {
        (Ok(host), Some(port), _) => Some(NamedHost { host: host.to_string(), port }),
        (_, _, Reading::Guess) => None,
        (_, _, Reading::Certain) if text.is_empty() => None,
        (_, Some(port), Reading::Certain) => Some(NamedHost { host: spelled(host), port }),
        (_, None, Reading::Certain) => Some(NamedHost { host: spelled(text), port: None }),
    }
}

/// Hostile text, cut to what a list can bear. Not a host in any spelling, whatever it was before.
fn spelled(text: &str) -> String {
    let shown: String = text.chars().take(80).flat_map(char::escape_default).collect();
    if Host::parse(&shown).is_ok() { format!("{shown}…") } else { shown }
}

/// `user@host:path` and `host:port`, after an option's name or not.
fn address(word: &str) -> Option<NamedHost> {
    let word = if word.starts_with('-') { word.split_once('=').map(|(_, value)| value)? } else { word };
    if let Some((user, rest)) = word.split_once('@')
        && let Some((host, _)) = rest.split_once(':')
        && !user.is_empty()
        && user.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    {
        return host_and_port(host, Reading::Guess).map(|named| NamedHost { port: Some(22), ..named });
    }
    host_and_port(word, Reading::Guess).filter(|named| named.port.is_some() && is_plausible(named))
}

/// A URL without its scheme, as curl takes it.
fn bare_url(word: &str) -> Option<NamedHost> {
    if word.starts_with(['-', '/', '.', '@']) {
        return None;
    }
    let named = authority(word, Reading::Guess).filter(is_plausible)?;
    Some(NamedHost { port: named.port.or(Some(80)), ..named })
}

/// `HEAD:1` and `a:2` are no hosts; names of hosts that matter have a dot.
fn is_plausible(named: &NamedHost) -> bool {
    named.host == "localhost" || named.host.contains(['.', '['])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::EgressRules;
    use std::sync::Arc;

    fn check(line: &str, expect: &[&str]) {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let found: Vec<String> = hosts_in_arguments(&argv).iter().map(ToString::to_string).collect();
        assert_eq!(found, expect, "{line}");
    }

    #[test]
    fn hosts_are_found_however_they_are_written() {
        check("curl https://Example.ORG/x", &["example.org:443"]);
        check("curl -x http://u:p@proxy.test:8080 https://a.test", &["proxy.test:8080", "a.test:443"]);
        check("curl --url=https://a.test/?next=http://b.test/", &["a.test:443", "b.test:80"]);
        check("curl example.org/path localhost:99 10.0.0.1", &["example.org:80", "localhost:99", "10.0.0.1:80"]);
        check("git clone git@git.test:org/repo.git", &["git.test:22"]);
        check("git clone ssh://git@git.test:2222/repo", &["git.test:2222"]);
        check("git clone git+ssh://git.test/repo", &["git.test:22"]);
        check("pip install --index-url=https://pypi.test/simple x", &["pypi.test:443"]);
        check("tool --connect=db.test:5432 [::1]:80 127.0.0.1:1", &["db.test:5432", "[::1]:80", "127.0.0.1:1"]);
        check("psql postgres://u@db.test/x", &["db.test:5432"]);
        check("python3 -c urlopen('http://a.test/x');urlopen('http://b.test')", &["a.test:80", "b.test:80"]);
        check("unknown odd://a.test", &["a.test"]);
        check("x ünï://a.test", &["a.test"]);
        check(
            "curl http://2130706433/ http://[::ffff:1.2.3.4]/ http://a%2e.test:80",
            &["2130706433:80", "[::ffff:1.2.3.4]:80", "a%2e.test:80"],
        );
    }

    #[test]
    fn what_is_no_host_is_left_alone() {
        for line in [
            "git show HEAD:12",
            "cat file:///etc/passwd",
            "ls a/b main.rs",
            "echo a@b",
            "cargo test a::b::c",
            "sed s/a:1/b:2/",
            "curl -o out.html --fail",
            "grep x: y:z",
            "date +%H:%M",
        ] {
            check(line, &[]);
        }
    }

    #[test]
    fn each_mode_judges_what_it_must() {
        let mut policy = crate::testing::policy("/w");
        policy.egress_rules =
            Arc::new(EgressRules::new(vec!["*.ok.test".parse().unwrap(), "db.test:5432".parse().unwrap()]));
        let argv = |url: &str| vec!["curl".to_owned(), url.to_owned()];
        let mut check = |mode, url: &str, asked: &[&str]| {
            policy.egress = mode;
            let asked: Vec<String> = asked.iter().map(|host| (*host).to_owned()).collect();
            check_hosts(&policy, &argv(url), &asked)
                .map(|hosts| hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
                .map_err(|error| error.code())
        };
        let (none, preflight, strict) =
            (EgressEnforcementMode::None, EgressEnforcementMode::Preflight, EgressEnforcementMode::Strict);
        let refused = Err("sandbox_host_not_allowed");
        assert_eq!(
            check(preflight, "https://a.ok.test/x", &["db.test:5432", "b.ok.test"]).unwrap(),
            "db.test:5432 b.ok.test a.ok.test:443"
        );
        for url in [
            "https://evil.test",
            "https://a.ok.test:8443",
            "http://2130706433/",
            "https://ok.test",
            "http://x@evil.test",
        ] {
            assert_eq!(check(preflight, url, &[]), refused, "{url}");
            assert!(check(strict, url, &[]).is_ok() && check(none, url, &[]).is_ok(), "{url}");
        }
        for asked in ["evil.test", "db.test:22", "0x7f.1", "", "a b"] {
            assert_eq!(check(strict, "x", &[asked]), refused, "{asked:?}");
            assert_eq!(check(preflight, "x", &[asked]), refused, "{asked:?}");
            assert!(check(none, "x", &[asked]).is_ok());
        }
    }

    #[test]
    fn a_flood_of_hosts_is_cut_off() {
        let argv: Vec<String> = (0..2000).map(|n| format!("http://h{n}.test")).collect();
        assert_eq!(hosts_in_arguments(&argv).len(), MOST_HOSTS);
    }
}

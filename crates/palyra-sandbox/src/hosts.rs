//! Which hosts a command line names.
//!
//! For people and policies to see before anything runs, and for egress mode `preflight`. It finds URLs anywhere in a
//! word, `user@host:path`, and `host:port`; for well-known programs it knows where they take a host ([`programs`]),
//! behind wrappers too. Where a host must stand, what cannot be read as one is kept as it is, and fits no rule. It
//! cannot find a host that a program computes, reads from a file or knows by itself: in strict mode the proxy sees
//! every connection, in the other modes nothing does. It must never be taken for the enforcement.

mod programs;

use crate::error::SandboxError;
use crate::executable::commands;
use crate::policy::{EgressEnforcementMode, SandboxProcessRunnerPolicy};
use palyra_egress::Host;
use programs::{Program, Word, Words, program};
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
    #[must_use]
    pub fn known(&self) -> Option<Host> {
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

/// More than anybody would name; a command that names more is not run where hosts are judged.
const MOST_HOSTS: usize = 256;

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

/// The hosts that a command's arguments name, each once, in order, and no more than anybody would name.
#[must_use]
pub fn hosts_in_arguments(argv: &[String]) -> Vec<NamedHost> {
    let mut found = all_hosts(argv);
    found.truncate(MOST_HOSTS);
    found
}

/// All of them; one more than [`MOST_HOSTS`] stands for any number.
fn all_hosts(argv: &[String]) -> Vec<NamedHost> {
    let mut found = Found::default();
    for command in commands(argv) {
        in_command(&command, &mut found);
    }
    // Wrappers have words of their own.
    argv.iter().skip(1).for_each(|word| found.add(anywhere(word)));
    found.hosts
}

/// Hosts, each once.
#[derive(Default)]
struct Found {
    hosts: Vec<NamedHost>,
    seen: HashSet<NamedHost>,
}

impl Found {
    fn add(&mut self, hosts: impl IntoIterator<Item = NamedHost>) {
        for host in hosts {
            if self.hosts.len() <= MOST_HOSTS && self.seen.insert(host.clone()) {
                self.hosts.push(host);
            }
        }
    }
}

/// The hosts of one command, without its wrappers.
fn in_command(argv: &[String], found: &mut Found) {
    let Some((name, arguments)) = argv.split_first() else { return };
    let name = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or("");
    let Some(program) = program(name) else {
        arguments.iter().for_each(|word| found.add(anywhere(word)));
        if name == "git" {
            found.add(git_place(arguments));
        }
        return;
    };
    let mut plain = 0;
    for (argument, word) in arguments.iter().zip(program.words(arguments)) {
        let named = match word {
            Word::Option => Vec::new(),
            Word::Host(value) if value.contains("://") => urls(value),
            Word::Host(value) => authority(value, Reading::Certain).into_iter().collect(),
            Word::Plain(text) => {
                plain += 1;
                in_place(program, plain, text)
            }
        };
        found.add(if named.is_empty() { anywhere(argument) } else { named });
    }
}

/// What a plain word of a known program names; `at` counts them from 1.
fn in_place(program: &Program, at: usize, word: &str) -> Vec<NamedHost> {
    let certain = |word: &str| {
        let word = word.trim_start_matches('@');
        host_and_port(word.rsplit_once('@').map_or(word, |(_, host)| host), Reading::Certain)
    };
    let named = match program.words {
        Words::Urls => as_url(word),
        // `GET url`, or `url`.
        Words::UrlThenItems if at == 1 && word.bytes().all(|b| b.is_ascii_uppercase()) => None,
        Words::UrlThenItems if at <= 2 && !word.contains('=') => as_url(word),
        Words::HostFirst if at == 1 && !word.contains("://") => certain(word.split(':').next().unwrap_or(word)),
        Words::Hosts if !word.starts_with('+') && !word.contains("://") => certain(word),
        Words::Places => remote_place(word),
        Words::Sockets => socket_address(word),
        Words::UrlThenItems | Words::HostFirst | Words::Hosts | Words::Others => None,
    };
    named.into_iter().collect()
}

/// What any word of any program may name.
fn anywhere(word: &str) -> Vec<NamedHost> {
    let urls = urls(word);
    if urls.is_empty() { address(word).into_iter().collect() } else { urls }
}

/// `git clone host:path`; elsewhere git's words with a colon are refspecs.
fn git_place(arguments: &[String]) -> Vec<NamedHost> {
    let takes_place = |word: &String| matches!(word.as_str(), "clone" | "ls-remote" | "add" | "set-url");
    let Some(at) = arguments.iter().position(takes_place) else { return Vec::new() };
    arguments[at + 1..]
        .iter()
        .filter(|word| !word.starts_with('-'))
        .find_map(|word| remote_place(word))
        .into_iter()
        .collect()
}

/// `[user@]host:path`, as scp, rsync and git write it.
fn remote_place(word: &str) -> Option<NamedHost> {
    let (host, _) = word.split_once(':').filter(|(host, _)| !host.is_empty() && !host.contains('/'))?;
    if word.contains("://") {
        return None;
    }
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    host_and_port(host, Reading::Certain).map(|named| NamedHost { port: Some(22), ..named })
}

/// `TCP:host:port`, as socat writes it.
fn socket_address(word: &str) -> Option<NamedHost> {
    let (kind, rest) = word.split_once(':')?;
    let reaches = ["TCP", "UDP", "SSL", "OPENSSL", "SCTP", "PROXY", "SOCKS"];
    if !reaches.iter().any(|known| kind.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known)))
        || kind.to_ascii_uppercase().contains("LISTEN")
    {
        return None;
    }
    host_and_port(rest.split(',').next().unwrap_or(rest), Reading::Certain)
}

/// Compares the hosts that a call names with the allow-list, as far as its egress mode wants that, and tells all of
/// them: those it asks for, then those in its arguments.
///
/// # Errors
/// When the call asks for a host that no rule speaks of and the mode is not `none`; in preflight mode also when its
/// arguments name one. When there are more than anybody would look through, and they were to be judged.
pub fn check_hosts(
    policy: &SandboxProcessRunnerPolicy,
    argv: &[String],
    requested: &[String],
) -> Result<Vec<NamedHost>, SandboxError> {
    let mut hosts: Vec<NamedHost> = requested.iter().take(MOST_HOSTS + 1).map(|text| NamedHost::parse(text)).collect();
    let asked = hosts.len();
    let in_arguments = all_hosts(argv);
    let (judged, too_many) = match policy.egress {
        EgressEnforcementMode::None => (0, false),
        // A word that only looks like a host must not end a run in which every connection is judged anyway.
        EgressEnforcementMode::Strict => (asked, asked > MOST_HOSTS),
        EgressEnforcementMode::Preflight => {
            (asked + in_arguments.len(), asked > MOST_HOSTS || in_arguments.len() > MOST_HOSTS)
        }
    };
    if too_many {
        return Err(SandboxError::TooManyHosts { limit: MOST_HOSTS });
    }
    hosts.extend(in_arguments);
    let rules = &policy.egress_rules;
    // What is asked for is decided about; what only stands in the arguments must be on the list already.
    let fits = |at: usize, named: &NamedHost| match named.known() {
        Some(host) if at < asked => rules.may_be_asked_for(&host, named.port),
        Some(host) => rules.speaks_of(&host, named.port),
        None => false,
    };
    match hosts[..judged].iter().enumerate().find(|(at, named)| !fits(*at, named)) {
        Some((_, named)) => Err(SandboxError::HostNotAllowed { host: named.to_string() }),
        None => {
            let mut seen = HashSet::new();
            hosts.retain(|named| seen.insert(named.clone()));
            hosts.truncate(MOST_HOSTS);
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
    // `host:port/path` is one too.
    authority(word, Reading::Guess).filter(|named| named.port.is_some() && is_plausible(named))
}

/// A URL with or without its scheme, where one must stand.
fn as_url(word: &str) -> Option<NamedHost> {
    if word.contains("://") || word.starts_with(['-', '/', '.', '@']) || word.is_empty() {
        return urls(word).into_iter().next();
    }
    let named = authority(word, Reading::Certain)?;
    Some(NamedHost { port: named.port.or(Some(80)), ..named })
}

/// `HEAD:1` and `a:2` are no hosts; names of hosts that matter have a dot.
fn is_plausible(named: &NamedHost) -> bool {
    named.host == "localhost" || named.host.contains(['.', '['])
}

#[cfg(test)]
mod tests {
    use super::*;
    use palyra_egress::EgressRules;
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
    fn programs_are_known_by_where_they_take_a_host() {
        check("curl 127.1:18080/x", &["127.1:18080"]);
        check("curl 2130706433:18080/x", &["2130706433:18080"]);
        check("curl -sSo out.html intranet/x", &["intranet:80"]);
        check("curl -m 5 --retry 3 -H Accept:x a.test", &["a.test:80"]);
        check("curl -xproxy.test:1 --proxy=other.test:2 a.test", &["proxy.test:1", "other.test:2", "a.test:80"]);
        check("nice curl 127.0.0.1:18080/x", &["127.0.0.1:18080"]);
        check("timeout 5 env A=1 nice -n 3 curl intranet", &["intranet:80"]);
        check("find . -name x -exec curl a.test/{} ;", &["a.test:80"]);
        check("env PROXY=http://p.test true", &["p.test:80"]);
        check("tool 127.0.0.1:18080/x", &["127.0.0.1:18080"]);
        check("wget -c -b host.test/file -O out", &["host.test:80"]);
        check("http GET intranet/x name=value X-A:b", &["intranet:80"]);
        check("ssh -p 22 -i key user@box ls a.b", &["box"]);
        check("scp -r file box:dir user@other.test:dir ./a:b", &["box:22", "other.test:22"]);
        check("rsync -a -e ssh src/ box::module", &["box:22"]);
        check("git clone box:path dir", &["box:22"]);
        check("git remote add origin box:path", &["box:22"]);
        check("nc -w 3 box 80", &["box"]);
        check("ping -c 1 box", &["box"]);
        check("dig +short @8.8.8.8 secret.tunnel.test", &["8.8.8.8", "secret.tunnel.test"]);
        check("psql -h db -U me", &["db"]);
        check("mysql --host=db", &["db"]);
        check("openssl s_client -connect box:443", &["box:443"]);
        check("socat - TCP:box:25,crlf", &["box:25"]);
    }

    #[test]
    fn a_flood_of_hosts_is_refused_where_hosts_are_judged() {
        let argv: Vec<String> = (0..2000).map(|n| format!("http://h{n}.ok.test")).collect();
        assert_eq!(hosts_in_arguments(&argv).len(), MOST_HOSTS);
        let mut policy = crate::testing::policy("/w");
        policy.egress_rules = Arc::new(EgressRules::new(vec!["*.ok.test".parse().unwrap()]));
        policy.egress = EgressEnforcementMode::Preflight;
        let refused = |policy: &SandboxProcessRunnerPolicy, argv: &[String], asked: &[String]| {
            check_hosts(policy, argv, asked).err().map(|error| error.code())
        };
        assert_eq!(refused(&policy, &argv, &[]), Some("sandbox_too_many_hosts"));
        assert_eq!(refused(&policy, &argv[..MOST_HOSTS + 1], &[]), None, "the first word is the program");
        assert_eq!(refused(&policy, &[], &argv), Some("sandbox_too_many_hosts"));
        policy.egress = EgressEnforcementMode::Strict;
        assert_eq!(refused(&policy, &[], &argv), Some("sandbox_too_many_hosts"));
        assert_eq!(refused(&policy, &argv, &[]), None, "the proxy judges every connection");
        policy.egress = EgressEnforcementMode::None;
        assert_eq!(refused(&policy, &argv, &argv), None);
    }
}

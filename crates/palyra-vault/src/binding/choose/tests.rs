//! Requests against bindings, case by case.

use super::super::{BoundProgram, NewBinding};
use super::*;
use palyra_protocol::{BindingId, Timestamp};

const GIT: &[u8] = b"the program git";

/// `secret host[,host] header [program] [METHODS] [path]`, with `-` for what is not said.
fn binding(line: &str) -> Binding {
    let words: Vec<&str> = line.split(' ').collect();
    let [secret, hosts, header, program, methods, path] = words[..] else { panic!("{line}") };
    let said = |word: &str| (word != "-").then(|| word.to_owned());
    let new = NewBinding {
        secret: SecretRef::from_operator(secret).unwrap(),
        hosts: hosts.split(',').map(|host| host.parse().unwrap()).collect(),
        header: format!("{header}: Bearer {{}}").parse().unwrap(),
        program: said(program).map(|name| BoundProgram { name, sha256: Digest::of(GIT) }),
        methods: said(methods).map_or_else(Vec::new, |all| all.split(',').map(|m| m.parse().unwrap()).collect()),
        path: said(path).map(|path| path.parse().unwrap()),
    };
    Binding::new(BindingId::mint(), Timestamp::from_unix_ms(1), new).unwrap()
}

fn refs(texts: &[&str]) -> Vec<SecretRef> {
    texts.iter().map(|text| SecretRef::from_operator(text).unwrap()).collect()
}

struct Case {
    bindings: Vec<Binding>,
    permitted: Vec<SecretRef>,
    presented: Vec<SecretRef>,
    program: Option<Digest>,
}

impl Case {
    fn new(bindings: &[&str]) -> Self {
        let bindings: Vec<_> = bindings.iter().map(|line| binding(line)).collect();
        let permitted = bindings.iter().map(|binding| binding.secret().clone()).collect();
        Self { bindings, permitted, presented: Vec::new(), program: None }
    }

    fn presenting(mut self, secrets: &[&str]) -> Self {
        self.presented = refs(secrets);
        self
    }

    /// What `METHOD URL` gets: the secrets that go with it, or why not.
    fn check(&self, request: &str, expect: &str) {
        let (method, url) = request.split_once(' ').unwrap();
        let (scheme, rest) = url.split_once("://").unwrap();
        let (scheme, default) = if scheme == "https" { (Scheme::Https, 443) } else { (Scheme::Http, 80) };
        let (authority, path) = rest.split_at(rest.find('/').unwrap());
        let (host, port) = authority.split_once(':').map_or((authority, default), |(h, p)| (h, p.parse().unwrap()));
        let bindings = Bindings::new(self.bindings.clone());
        let found = bindings.credentials_for(CredentialRequest {
            scheme,
            host,
            port,
            method,
            path,
            program: self.program,
            permitted: &self.permitted,
            presented: &self.presented,
        });
        let found = match found {
            Ok(chosen) => {
                let each = |b: &&Binding| format!("{} in {}", b.secret().name(), b.header().name());
                chosen.iter().map(each).collect::<Vec<_>>().join(", ")
            }
            Err(mismatch) => {
                assert_eq!(mismatch.code(), "credential_endpoint_mismatch");
                let reason = format!("{:?}", mismatch.reason);
                format!("{}: {}", mismatch.secret.name(), reason.split([' ', '{']).next().unwrap())
            }
        };
        assert_eq!(found, expect, "{request}");
    }
}

#[test]
fn a_bound_host_gets_its_credential_and_no_other_does() {
    let case = Case::new(&["global/github api.example.com Authorization - - -"]);
    case.check("GET https://api.example.com/x", "github in Authorization");
    case.check("DELETE https://api.example.com/", "github in Authorization");
    case.check("GET https://example.com/x", "");
    case.check("GET https://api.example.com.evil.test/x", "");
    case.check("GET https://evil.test/api.example.com", "");
    case.check("GET http://api.example.com/x", "github: Host");
    case.check("GET http://api.example.com:443/x", "github: Scheme");
    case.check("GET https://api.example.com:8443/x", "github: Host");
}

#[test]
fn what_a_binding_does_not_cover_is_a_mismatch() {
    let case = Case::new(&["global/github api.example.com Authorization - GET,POST /repos/*"]);
    case.check("GET https://api.example.com/repos/a", "github in Authorization");
    case.check("PUT https://api.example.com/repos/a", "github: Method");
    case.check("get https://api.example.com/repos/a", "github: Method");
    case.check("GET https://api.example.com/user", "github: Path");
    case.check("GET https://api.example.com/repos", "github: Path");
    case.check("GET https://api.example.com/repos/../user", "github: AmbiguousPath");
    case.check("GET https://api.example.com/repos/%2e%2e/user", "github: AmbiguousPath");
}

#[test]
fn a_program_is_known_by_its_content() {
    let mut case = Case::new(&["global/github api.example.com Authorization git - -"]);
    case.check("GET https://api.example.com/x", "github: Program");
    case.program = Some(Digest::of(b"another program called git"));
    case.check("GET https://api.example.com/x", "github: Program");
    case.program = Some(Digest::of(GIT));
    case.check("GET https://api.example.com/x", "github in Authorization");
}

#[test]
fn only_what_the_permit_covers_takes_part() {
    let mut case = Case::new(&["global/github api.example.com Authorization - - -"]);
    case.permitted = Vec::new();
    case.check("GET https://api.example.com/x", "");
    case.presented = refs(&["global/github"]);
    case.check("GET https://api.example.com/x", "github: NotPermitted");
}

#[test]
fn a_placeholder_goes_to_no_other_host() {
    let case =
        Case::new(&["global/github api.example.com Authorization - - /repos/*", "global/other o.test X-A - - -"])
            .presenting(&["global/github"]);
    case.check("GET https://api.example.com/repos/x", "github in Authorization");
    case.check("GET https://evil.test/x", "github: Host");
    case.check("GET https://o.test/x", "github: Host");
    case.check("GET https://api.example.com/x", "github: Path");
}

#[test]
fn the_narrowest_binding_counts_and_ties_are_refused() {
    let wide = "global/wide api.example.com Authorization - - -";
    let path = "global/path api.example.com authorization - - /repos/*";
    let deep = "global/deep api.example.com Authorization - - /repos/a/*";
    let exact = "global/exact api.example.com Authorization - - /repos/a/b";
    let case = Case::new(&[wide, path, deep, exact]);
    case.check("GET https://api.example.com/x", "wide in Authorization");
    case.check("GET https://api.example.com/repos/x", "path in authorization");
    case.check("GET https://api.example.com/repos/a/x", "deep in Authorization");
    case.check("GET https://api.example.com/repos/a/b", "exact in Authorization");

    let tied = "global/tied api.example.com Authorization - - -";
    let case = Case::new(&[wide, tied, path]);
    case.check("GET https://api.example.com/x", "wide: Ambiguous");
    case.check("GET https://api.example.com/repos/x", "path in authorization");
    Case::new(&[wide, tied])
        .presenting(&["global/tied"])
        .check("GET https://api.example.com/x", "tied in Authorization");

    let two = Case::new(&["global/id api.example.com X-Id - - -", "global/key api.example.com X-Key - - -"]);
    two.check("GET https://api.example.com/x", "id in X-Id, key in X-Key");
}

#[test]
fn one_secret_may_have_several_bindings() {
    let case = Case::new(&[
        "global/github api.example.com,git.example.com:8443 Authorization - GET -",
        "global/github api.example.com Authorization - POST /hooks",
    ]);
    case.check("GET https://api.example.com/x", "github in Authorization");
    case.check("GET https://git.example.com:8443/x", "github in Authorization");
    case.check("POST https://api.example.com/hooks", "github in Authorization");
    case.check("POST https://api.example.com/x", "github: Method");
    let bindings = Bindings::new(case.bindings);
    let hosts: Vec<_> = bindings.hosts(&refs(&["global/github"])).iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["api.example.com", "git.example.com:8443"]);
    assert!(bindings.hosts(&[]).is_empty());
}

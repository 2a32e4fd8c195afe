//! How wide a grant is, and the keys that it is found by.
//!
//! A grant says how it matches ([`GrantMatcher`]); its [`MatchKey`] is the hash under which it is stored. A call has a
//! bounded number of candidate keys, so that looking a grant up costs the same with one grant and with a million. A
//! matcher is never wider than the call that a person was shown: [`MatchKey::of`] refuses one that does not fit it.

use crate::code_words::open_words;
use crate::digest::{Digest, DigestBuilder};
use crate::facets::{Facets, MAX_PREFIX_WORDS, quote_words};
use crate::tool::ToolName;
use serde::{Deserialize, Serialize};

/// The deepest directory that a grant by path can name.
pub const MAX_PATH_DEPTH: usize = 32;

/// How wide an answer is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantMatcher {
    /// Exactly this call again.
    ExactCall,
    /// Any call of this tool, in the same directory, whose executable is the same and whose argv begins with these
    /// words; with the environment variables and the standard input of the call that was shown, which mostly are none.
    ArgvPrefix {
        /// The words, as many as the operator chose on screen.
        words: Vec<String>,
    },
    /// Any call of this tool that touches only files under a directory. Hidden files and directories below it, those
    /// whose name begins with a dot, are not covered.
    PathPrefix {
        /// The directory, relative to the workspace; `.` is its root.
        directory: String,
    },
    /// Any call of this tool to the same host with the same HTTP method.
    HostMethod {
        /// The host, as the call named it.
        host: String,
        /// The method.
        method: String,
    },
    /// Any call of this tool.
    Tool,
}

impl GrantMatcher {
    /// What is shown to people; the texts in it are a stranger's, and not made safe yet.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::ExactCall => "exactly this call".to_owned(),
            Self::ArgvPrefix { words } => format!("commands that begin with `{}`", quote_words(words)),
            Self::PathPrefix { directory } if directory == "." => {
                "files of the workspace, hidden ones excepted".to_owned()
            }
            Self::PathPrefix { directory } => format!("files under `{directory}/`, hidden ones excepted"),
            Self::HostMethod { host, method } => format!("{method} requests to `{host}`"),
            Self::Tool => "any call of this tool".to_owned(),
        }
    }
}

/// The key under which a grant is found: one look-up whatever the number of grants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MatchKey(pub Digest);

impl MatchKey {
    /// Of the workspace too: a yes that was given in one says nothing about another.
    fn builder(kind: &str, workspace: &str, tool: &ToolName) -> DigestBuilder {
        DigestBuilder::new("palyra.grant-match.v2")
            .field(workspace.as_bytes())
            .field(kind.as_bytes())
            .field(tool.as_str().as_bytes())
    }

    fn exact(workspace: &str, tool: &ToolName, digest: &Digest) -> Self {
        Self(Self::builder("exact", workspace, tool).field(digest.as_bytes()).finish())
    }

    fn any(workspace: &str, tool: &ToolName, facets: &Facets) -> Self {
        Self(held(Self::builder("tool", workspace, tool), facets).finish())
    }

    fn under(workspace: &str, tool: &ToolName, directory: &str) -> Self {
        Self(Self::builder("path", workspace, tool).field(directory.as_bytes()).finish())
    }

    fn reaching(workspace: &str, tool: &ToolName, host: &str, method: &str) -> Self {
        let builder = Self::builder("host", workspace, tool);
        Self(builder.field(host.as_bytes()).field(method.as_bytes()).finish())
    }

    fn prefix(workspace: &str, tool: &ToolName, facets: &Facets, words: &[String]) -> Self {
        // One program: its own path says which. More: a grant for `nice ./build` is one for that file and no other.
        let builder = match facets.executables.as_slice() {
            [] => Self::builder("argv", workspace, tool),
            files => Self::builder("argv-of-several", workspace, tool).field(quote_words(files).as_bytes()),
        };
        // `./build` is what it was when it was shown: rewritten, it is another program.
        let builder = match &facets.programs_sha256 {
            None => builder,
            Some(digest) => builder.field(b"holding").field(digest.as_bytes()),
        };
        // `HOME=… git status` and `git status` are two commands.
        let builder = match (&facets.environment, &facets.stdin_sha256) {
            (None, None) => builder,
            (environment, stdin) => builder
                .field(b"with surroundings")
                .optional(environment.as_ref().map(|environment| environment.digest.as_bytes().as_slice()))
                .optional(stdin.as_ref().map(|stdin| stdin.as_bytes().as_slice())),
        };
        let builder = builder
            .optional(facets.executable.as_deref().map(str::as_bytes))
            .optional(facets.working_directory.as_deref().map(str::as_bytes));
        let builder = held(builder, facets);
        Self(words.iter().fold(builder, |b, word| b.field(word.as_bytes())).finish())
    }

    /// The key of a standing no for what this key is a yes for: neither is ever found in place of the other.
    #[must_use]
    pub fn denying(&self) -> Self {
        Self(DigestBuilder::new("palyra.grant-deny.v1").field(self.0.as_bytes()).finish())
    }

    /// Every key that a grant covering this call could have: at most 11 and one for each directory of its path.
    #[must_use]
    pub fn candidates(workspace: &str, tool: &ToolName, digest: &Digest, facets: &Facets) -> Vec<Self> {
        // A yes to other calls of a tool is no yes to what a secret is used for.
        if facets.uses_secrets() {
            return vec![Self::exact(workspace, tool, digest)];
        }
        let mut keys = vec![Self::exact(workspace, tool, digest), Self::any(workspace, tool, facets)];
        // A prefix that leaves code open covers nothing, whenever it was given.
        let closed = open_words(facets).map_or(usize::MAX, |open| open + 1);
        let prefixes = facets.argv_prefixes().filter(|words| words.len() >= closed);
        keys.extend(prefixes.map(|words| Self::prefix(workspace, tool, facets, words)));
        keys.extend(directories(facets).iter().map(|directory| Self::under(workspace, tool, directory)));
        keys.extend(endpoint(facets).map(|(host, method)| Self::reaching(workspace, tool, host, method)));
        keys
    }

    /// The key of a grant made for this call.
    ///
    /// # Errors
    /// The matcher does not fit the call that was shown.
    pub fn of(
        matcher: &GrantMatcher,
        workspace: &str,
        tool: &ToolName,
        digest: &Digest,
        facets: &Facets,
    ) -> Result<Self, MatcherMisfit> {
        match matcher {
            GrantMatcher::ExactCall => Ok(Self::exact(workspace, tool, digest)),
            _ if facets.uses_secrets() => Err(MatcherMisfit::Secrets),
            GrantMatcher::Tool => Ok(Self::any(workspace, tool, facets)),
            GrantMatcher::ArgvPrefix { words } => {
                fits_command(words, facets)?;
                Ok(Self::prefix(workspace, tool, facets, words))
            }
            GrantMatcher::PathPrefix { directory } => match directories(facets) {
                dirs if dirs.is_empty() => Err(MatcherMisfit::NoPaths),
                dirs if dirs.contains(directory) => Ok(Self::under(workspace, tool, directory)),
                _ => Err(MatcherMisfit::OtherDirectory { directory: directory.clone() }),
            },
            GrantMatcher::HostMethod { host, method } => match endpoint(facets) {
                None => Err(MatcherMisfit::NoEndpoint),
                Some((asked, by)) if asked == host && by == method => Ok(Self::reaching(workspace, tool, host, method)),
                Some(_) => Err(MatcherMisfit::OtherEndpoint { endpoint: format!("{method} {host}") }),
            },
        }
    }
}

/// A process is covered behind the walls that were shown, with the hosts that were shown: a yes to one push opens no
/// host to the next run, and a yes to a contained run holds for no other.
fn held(builder: DigestBuilder, facets: &Facets) -> DigestBuilder {
    let builder = match &facets.containment {
        None => builder,
        Some(containment) => builder.field(b"held by").field(containment.key().as_bytes()),
    };
    // A yes to one tool of a client's is a yes to no other of its tools.
    let builder = match facets.by_client.as_ref().and_then(|by_client| by_client.tool.as_ref()) {
        None => builder,
        Some(tool) => builder.field(b"client's tool").field(tool.as_bytes()),
    };
    // A yes to a skill's tool is a yes to this code with this grant: another version, or a wider grant, is another
    // tool.
    match &facets.skill {
        None => builder,
        Some(skill) => {
            builder.field(b"of skill").field(skill.module_sha256.as_bytes()).field(skill.grant_sha256.as_bytes())
        }
    }
}

fn fits_command(words: &[String], facets: &Facets) -> Result<(), MatcherMisfit> {
    if facets.argv.is_empty() {
        return Err(MatcherMisfit::NoCommand);
    }
    if words.is_empty() || words.len() > MAX_PREFIX_WORDS {
        return Err(MatcherMisfit::Length);
    }
    if !facets.argv.starts_with(words) {
        return Err(MatcherMisfit::OtherCommand { words: quote_words(words) });
    }
    match open_words(facets) {
        Some(open) if words.len() > open => Ok(()),
        _ => Err(MatcherMisfit::OpenCode { words: quote_words(words) }),
    }
}

/// The directories whose grants would cover a call: those that hold every file that it touches, and of which no hidden
/// name leads to one. None for a call that does more than touch files.
#[must_use]
pub fn directories(facets: &Facets) -> Vec<String> {
    let touched: Vec<Vec<&str>> = facets
        .paths_written
        .iter()
        .chain(&facets.paths_read)
        .chain(&facets.trees_read)
        .map(|path| path.split('/').filter(|part| !matches!(*part, "" | ".")).collect())
        .collect();
    let [first, ..] = touched.as_slice() else { return Vec::new() };
    let more =
        !facets.argv.is_empty() || !facets.hosts.is_empty() || !facets.outside.is_empty() || facets.skill.is_some();
    if more || touched.iter().flatten().any(|part| *part == "..") {
        return Vec::new();
    }
    let common = touched.iter().map(|path| first.iter().zip(path).take_while(|(a, b)| a == b).count());
    let shared = common.min().unwrap_or(0);
    // What is hidden is covered only by a grant for a directory that is as deep.
    let hidden = |path: &Vec<&str>| path.iter().rposition(|part| part.starts_with('.')).map_or(0, |at| at + 1);
    let least = touched.iter().map(hidden).max().unwrap_or(0);
    let named = |depth: usize| if depth == 0 { ".".to_owned() } else { first[..depth].join("/") };
    (least..=shared.min(MAX_PATH_DEPTH)).map(named).collect()
}

/// The host and the method of a call that asks one host for something.
#[must_use]
pub fn endpoint(facets: &Facets) -> Option<(&str, &str)> {
    match (facets.hosts.as_slice(), &facets.method) {
        ([host], Some(method)) if facets.argv.is_empty() => Some((host, method)),
        _ => None,
    }
}

/// Why a matcher cannot be granted for a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatcherMisfit {
    /// The call uses secrets.
    #[error("this call is given secrets, so a yes can cover exactly this call; use `exact`")]
    Secrets,
    /// The call runs nothing.
    #[error("this call runs no command, so an argv prefix cannot match it; use `exact` or `tool`")]
    NoCommand,
    /// Too many words, or none.
    #[error("an argv prefix has 1 to {MAX_PREFIX_WORDS} words")]
    Length,
    /// Not a prefix of what was shown.
    #[error("the command that was shown does not begin with `{words}`")]
    OtherCommand {
        /// The words that were given.
        words: String,
    },
    /// The prefix ends before the code that an interpreter would run.
    #[error(
        "`{words}` would let any code run: the prefix ends before the code or the script; use `exact`, or more words"
    )]
    OpenCode {
        /// The words that were given.
        words: String,
    },
    /// The call touches no files, or does more than that.
    #[error("this call does not only touch files, so a directory cannot match it; use `exact`")]
    NoPaths,
    /// Not a directory of what was shown.
    #[error("the files that were shown are not all under `{directory}`, or one of them is hidden there")]
    OtherDirectory {
        /// The directory that was given.
        directory: String,
    },
    /// The call asks no host, or several.
    #[error("this call does not ask one host for something, so a host cannot match it; use `exact`")]
    NoEndpoint,
    /// Not the host or the method that was shown.
    #[error("the request that was shown is not `{endpoint}`")]
    OtherEndpoint {
        /// The method and the host that were given.
        endpoint: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facets::Environment;

    fn facets(words: &[&str]) -> Facets {
        Facets {
            executable: Some("/usr/bin/git".to_owned()),
            argv: words.iter().map(|w| (*w).to_owned()).collect(),
            working_directory: Some(".".to_owned()),
            ..Facets::default()
        }
    }

    fn covered(granted_for: &Facets, matcher: &GrantMatcher, call: &Facets) -> bool {
        let tool: ToolName = "palyra.process.run".parse().unwrap();
        let digest = |f: &Facets| Digest::of(crate::json::canonical_text(f).unwrap().as_bytes());
        let key = MatchKey::of(matcher, "/srv", &tool, &digest(granted_for), granted_for).unwrap();
        assert!(!MatchKey::candidates("/other", &tool, &digest(call), call).contains(&key), "in another workspace");
        MatchKey::candidates("/srv", &tool, &digest(call), call).contains(&key)
    }

    #[test]
    fn a_prefix_matches_whole_words_of_the_same_program_in_the_same_directory() {
        let shown = facets(&["git", "status", "-s"]);
        let prefix = GrantMatcher::ArgvPrefix { words: vec!["git".into(), "status".into()] };
        assert!(covered(&shown, &prefix, &facets(&["git", "status"])));
        assert!(covered(&shown, &prefix, &facets(&["git", "status", "--long"])));
        assert!(!covered(&shown, &prefix, &facets(&["git", "status && git push"])));
        assert!(!covered(&shown, &prefix, &facets(&["git", "statusx"])));
        assert!(!covered(&shown, &prefix, &facets(&["git"])));
        let other_program = Facets { executable: Some("/srv/git".to_owned()), ..facets(&["git", "status"]) };
        assert!(!covered(&shown, &prefix, &other_program));
        let wrapped = |program: &str| Facets {
            executables: vec!["/usr/bin/git".to_owned(), program.to_owned()],
            ..facets(&["git", "status"])
        };
        assert!(!covered(&shown, &prefix, &wrapped("/usr/bin/a")));
        assert!(covered(&wrapped("/usr/bin/a"), &prefix, &wrapped("/usr/bin/a")));
        assert!(!covered(&wrapped("/usr/bin/a"), &prefix, &wrapped("/srv/a")));
        let elsewhere = Facets { working_directory: Some("sub".to_owned()), ..facets(&["git", "status"]) };
        assert!(!covered(&shown, &prefix, &elsewhere));
    }

    #[test]
    fn a_prefix_covers_only_the_surroundings_that_were_shown() {
        let prefix = GrantMatcher::ArgvPrefix { words: vec!["git".into(), "status".into()] };
        let plain = facets(&["git", "status"]);
        let env = |value: &str| Facets { environment: Environment::new([("HOME", value)]), ..plain.clone() };
        let fed = |text: &str| Facets { stdin_sha256: Some(Digest::of(text.as_bytes())), ..plain.clone() };
        let holding = |text: &str| Facets { programs_sha256: Some(Digest::of(text.as_bytes())), ..plain.clone() };
        let all = [
            plain.clone(),
            holding("a"),
            holding("b"),
            Facets { programs_sha256: holding("a").programs_sha256, ..env("a") },
            env("a"),
            env("b"),
            fed("a"),
            fed("b"),
            Facets { stdin_sha256: fed("a").stdin_sha256, ..env("a") },
        ];
        for (n, shown) in all.iter().enumerate() {
            for (m, call) in all.iter().enumerate() {
                let longer = Facets { argv: [&call.argv[..], &["-s".to_owned()]].concat(), ..call.clone() };
                assert_eq!(covered(shown, &prefix, &longer), n == m, "{shown:?} {call:?}");
            }
        }
    }

    #[test]
    fn a_wide_grant_covers_only_the_walls_and_hosts_that_were_shown() {
        use crate::containment::{Containment, ContainmentTier, NetworkReach, WorkspaceUse};
        let held = |network: NetworkReach, hosts: &[&str], tier: ContainmentTier| Facets {
            containment: Some(Containment {
                tier,
                network,
                hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
                workspace: WorkspaceUse::View,
                other_roots: false,
                reversible: true,
                secrets: false,
            }),
            ..facets(&["git", "push"])
        };
        let mut live = held(NetworkReach::None, &[], ContainmentTier::C);
        live.containment.iter_mut().for_each(|held| held.workspace = WorkspaceUse::Live);
        let all = [
            held(NetworkReach::None, &[], ContainmentTier::C),
            held(NetworkReach::Filtered, &["a.test"], ContainmentTier::C),
            held(NetworkReach::Filtered, &["a.test", "b.test"], ContainmentTier::C),
            held(NetworkReach::Host, &[], ContainmentTier::C),
            held(NetworkReach::Host, &[], ContainmentTier::B),
            live,
        ];
        let prefix = GrantMatcher::ArgvPrefix { words: vec!["git".into()] };
        for matcher in [prefix, GrantMatcher::Tool] {
            for (n, shown) in all.iter().enumerate() {
                for (m, call) in all.iter().enumerate() {
                    assert_eq!(covered(shown, &matcher, call), n == m, "{shown:?} {call:?}");
                }
            }
        }
    }

    #[test]
    fn exact_matches_only_itself_and_tool_matches_all() {
        let shown = facets(&["git", "status"]);
        assert!(covered(&shown, &GrantMatcher::ExactCall, &shown));
        assert!(!covered(&shown, &GrantMatcher::ExactCall, &facets(&["git", "push"])));
        assert!(covered(&shown, &GrantMatcher::Tool, &facets(&["git", "push"])));
    }

    #[test]
    fn a_matcher_is_never_wider_than_what_was_shown() {
        let tool: ToolName = "palyra.process.run".parse().unwrap();
        let shown = facets(&["git", "status"]);
        let prefix = |words: &[&str]| GrantMatcher::ArgvPrefix { words: words.iter().map(|w| (*w).into()).collect() };
        for (matcher, misfit) in [
            (prefix(&["git", "push"]), MatcherMisfit::OtherCommand { words: "git push".into() }),
            (prefix(&[]), MatcherMisfit::Length),
            (prefix(&["git"; 9]), MatcherMisfit::Length),
        ] {
            assert_eq!(MatchKey::of(&matcher, "/srv", &tool, &Digest::ZERO, &shown), Err(misfit));
        }
        let no_command = MatchKey::of(&prefix(&["a"]), "/srv", &tool, &Digest::ZERO, &Facets::default());
        assert_eq!(no_command, Err(MatcherMisfit::NoCommand));
    }

    #[test]
    fn a_prefix_never_ends_before_an_interpreters_code() {
        let tool: ToolName = "palyra.process.run".parse().unwrap();
        let call = |program: &str, argv: &[&str]| Facets { executable: Some(program.to_owned()), ..facets(argv) };
        let granted = |facets: &Facets, words: usize| {
            let words = facets.argv[..words].to_vec();
            let key = MatchKey::of(&GrantMatcher::ArgvPrefix { words }, "/srv", &tool, &Digest::ZERO, facets);
            key.is_ok_and(|key| MatchKey::candidates("/srv", &tool, &Digest::ZERO, facets).contains(&key))
        };
        for (program, argv, least) in [
            ("/usr/bin/bash", &["bash", "-c", "echo one"][..], Some(3)),
            ("/usr/bin/bash", &["bash", "-lc", "echo one", "x"], Some(3)),
            ("/usr/bin/bash", &["bash"], None),
            ("/usr/bin/bash", &["bash", "-x"], None),
            ("/usr/bin/bash", &["bash", "build.sh", "all"], Some(2)),
            ("/usr/bin/bash", &["bash", "build.sh", "-c", "x"], Some(4)),
            ("/usr/bin/python3.12", &["python3", "-m", "pytest", "-q"], Some(3)),
            ("/usr/bin/python3.12", &["python3", "-cimport os"], Some(2)),
            ("/usr/bin/node", &["node", "-r", "mod", "-e", "code"], Some(5)),
            ("/usr/bin/node", &["node", "--eval=code"], Some(2)),
            ("/usr/bin/dash", &["./innocent", "-c", "echo"], Some(3)),
            ("/usr/bin/xargs", &["xargs", "bash", "-c", "echo"], Some(4)),
            ("/usr/bin/git", &["git", "log", "python"], Some(1)),
            ("/usr/bin/git", &["git", "status"], Some(1)),
        ] {
            let facets = call(program, argv);
            for words in 1..=argv.len() {
                let fits = least.is_some_and(|least| words >= least);
                assert_eq!(granted(&facets, words), fits, "{argv:?} by {words}");
            }
        }
        let wrapped = Facets {
            executables: vec!["/usr/bin/nice".to_owned(), "/usr/bin/bash".to_owned()],
            ..call("/usr/bin/nice", &["nice", "bash", "-c", "echo"])
        };
        assert!((1..4).all(|words| !granted(&wrapped, words)) && granted(&wrapped, 4));
    }

    #[test]
    fn a_directory_covers_what_is_under_it_and_nothing_hidden() {
        let write = |path: &str| Facets { paths_written: vec![path.to_owned()], ..Facets::default() };
        let under = |directory: &str| GrantMatcher::PathPrefix { directory: directory.to_owned() };
        let shown = write("src/ui/button.rs");
        for (directory, path, expected) in [
            ("src/ui", "src/ui/new.rs", true),
            ("src/ui", "src/ui/deep/er.rs", true),
            ("src/ui", "src/ui2/x.rs", false),
            ("src/ui", "src/uix", false),
            ("src", "src/lib.rs", true),
            ("src", "srcs/lib.rs", false),
            (".", "Cargo.toml", true),
            (".", ".claude/settings.json", false),
            (".", "src/.env", false),
            ("src", "src/.cargo/config.toml", false),
        ] {
            assert_eq!(covered(&shown, &under(directory), &write(path)), expected, "{directory} {path}");
        }
        let hidden = write(".github/workflows/ci.yml");
        assert!(covered(&hidden, &under(".github/workflows"), &write(".github/workflows/other.yml")));
        assert!(!covered(&hidden, &under(".github"), &write(".github/workflows/.x")));
        let two = Facets { paths_read: vec!["docs/a".to_owned()], ..write("src/a") };
        assert_eq!(directories(&two), ["."]);
        let tool: ToolName = "palyra.fs.write".parse().unwrap();
        let misfit = |matcher: &GrantMatcher, facets: &Facets| {
            MatchKey::of(matcher, "/srv", &tool, &Digest::ZERO, facets).unwrap_err()
        };
        assert_eq!(misfit(&under("other"), &shown), MatcherMisfit::OtherDirectory { directory: "other".to_owned() });
        assert_eq!(misfit(&under("."), &hidden), MatcherMisfit::OtherDirectory { directory: ".".to_owned() });
        assert_eq!(misfit(&under("."), &facets(&["ls"])), MatcherMisfit::NoPaths);
    }

    #[test]
    fn a_host_covers_its_method_alone() {
        let fetch = |host: &str, method: &str| Facets {
            hosts: vec![host.to_owned()],
            method: Some(method.to_owned()),
            ..Facets::default()
        };
        let matcher = GrantMatcher::HostMethod { host: "a.example".to_owned(), method: "GET".to_owned() };
        let shown = fetch("a.example", "GET");
        assert!(covered(&shown, &matcher, &shown));
        assert!(!covered(&shown, &matcher, &fetch("a.example", "POST")));
        assert!(!covered(&shown, &matcher, &fetch("b.example", "GET")));
        let tool: ToolName = "palyra.http.fetch".parse().unwrap();
        let other = MatchKey::of(&matcher, "/srv", &tool, &Digest::ZERO, &fetch("a.example", "PUT"));
        assert!(matches!(other, Err(MatcherMisfit::OtherEndpoint { .. })));
    }
}

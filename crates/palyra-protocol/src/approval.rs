//! Approvals and grants: a human's answer to one call, and the standing answer it may leave behind.
//!
//! An approval binds to the call that was shown: its digest and the policy it was asked under. Its scope says how long
//! the answer holds, its matcher how wide. The subject's name (`tool:name|skill:id`) groups approvals for people; it is
//! never a licence for other arguments.

use crate::access::ShownToken;
use crate::capability::RiskLevel;
use crate::clock::Timestamp;
use crate::digest::{Digest, DigestBuilder};
use crate::facets::{Facets, MAX_PREFIX_WORDS, quote_words};
use crate::id::{ApprovalId, CallId, DecisionId, GrantId, SessionId};
use crate::principal::Principal;
use crate::subject::ApprovalSubject;
use crate::tool::ToolName;
use serde::{Deserialize, Serialize};

/// Where an approval stands. It leaves `Pending` exactly once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// Nobody has answered.
    Pending,
    /// A human said yes.
    Allowed,
    /// A human said no.
    Denied,
    /// Nobody answered in time.
    Expired,
    /// The call was withdrawn.
    Cancelled,
}

impl ApprovalState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Allowed, Self::Denied, Self::Expired, Self::Cancelled];

    /// The name in listings and on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// What a human says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalDecision {
    /// Yes.
    Allow,
    /// No.
    Deny,
}

/// How long a yes holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalScope {
    /// For this call alone.
    Once,
    /// For the rest of the session it was asked in.
    Session,
    /// For a time, in any session of the same principal.
    Window {
        /// How long, in milliseconds.
        ms: u64,
    },
}

/// The longest time window: a day.
pub const MAX_WINDOW_MS: u64 = 24 * 60 * 60 * 1000;

/// How wide a yes is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantMatcher {
    /// Exactly this call again.
    ExactCall,
    /// Any call of this tool, in the same directory, whose executable is the same and whose argv begins with these words;
    /// with the environment variables and the standard input of the call that was shown, which mostly are none.
    ArgvPrefix {
        /// The words, as many as the operator chose on screen.
        words: Vec<String>,
    },
    /// Any call of this tool.
    Tool,
}

impl GrantMatcher {
    /// What is shown to people.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::ExactCall => "exactly this call".to_owned(),
            Self::ArgvPrefix { words } => format!("commands that begin with `{}`", quote_words(words)),
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

    fn any(workspace: &str, tool: &ToolName) -> Self {
        Self(Self::builder("tool", workspace, tool).finish())
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
        Self(words.iter().fold(builder, |b, word| b.field(word.as_bytes())).finish())
    }

    /// Every key that a grant covering this call could have.
    #[must_use]
    pub fn candidates(workspace: &str, tool: &ToolName, digest: &Digest, facets: &Facets) -> Vec<Self> {
        let mut keys = vec![Self::exact(workspace, tool, digest), Self::any(workspace, tool)];
        keys.extend(facets.argv_prefixes().map(|words| Self::prefix(workspace, tool, facets, words)));
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
            GrantMatcher::Tool => Ok(Self::any(workspace, tool)),
            GrantMatcher::ArgvPrefix { .. } if facets.argv.is_empty() => Err(MatcherMisfit::NoCommand),
            GrantMatcher::ArgvPrefix { words } if words.is_empty() || words.len() > MAX_PREFIX_WORDS => {
                Err(MatcherMisfit::Length)
            }
            GrantMatcher::ArgvPrefix { words } if facets.argv.starts_with(words) => {
                Ok(Self::prefix(workspace, tool, facets, words))
            }
            GrantMatcher::ArgvPrefix { words } => Err(MatcherMisfit::OtherCommand { words: quote_words(words) }),
        }
    }
}

/// Why a matcher cannot be granted for a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatcherMisfit {
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
}

/// A question to a human, and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalRecord {
    /// The approval's id.
    pub approval_id: ApprovalId,
    /// The call that waits; an id of its own where the subject is no call.
    pub call_id: CallId,
    /// The subject: `tool:name|skill:id`.
    pub subject_id: String,
    /// What it is about.
    #[serde(default, skip_serializing_if = "ApprovalSubject::is_call")]
    pub subject: ApprovalSubject,
    /// The tool.
    pub tool: ToolName,
    /// The digest of the call that was shown.
    pub call_digest: Digest,
    /// The decision that asks for a human.
    pub decision_id: DecisionId,
    /// The policy it was asked under.
    pub policy_hash: Digest,
    /// How bad a wrong yes can be.
    pub risk: RiskLevel,
    /// In whose name the call is made.
    pub principal: Principal,
    /// Who made the proposal.
    pub proposed_by: Principal,
    /// The token they showed. When it is withdrawn, the question ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ShownToken>,
    /// The session it was asked in.
    pub session: SessionId,
    /// What will run, exactly and unredacted: the canonical input.
    pub input: serde_json::Value,
    /// What it will touch.
    pub facets: Facets,
    /// Why a human is asked.
    pub why: String,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Timestamp,
    /// How many different people have to say yes.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub people: u32,
    /// Whether a rule counts the people who approve this very call: no grant covers it, and a yes leaves none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// Those who have said yes while others are still needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<GivenApproval>,
    /// Where it stands.
    pub state: ApprovalState,
    /// The answer, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<ApprovalResolution>,
}

fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands fields over by reference")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

/// One person's yes to a question that needs several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenApproval {
    /// Who.
    pub by: Principal,
    /// The token they showed; none on the daemon's own socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ShownToken>,
    /// When.
    pub at: Timestamp,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How an approval ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalResolution {
    /// Who ended it: a person, whoever withdrew the call, or the daemon.
    pub by: Principal,
    /// The token they showed; none on the daemon's own socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ShownToken>,
    /// When.
    pub at: Timestamp,
    /// How long a yes holds.
    pub scope: ApprovalScope,
    /// How wide a yes is.
    pub matcher: GrantMatcher,
    /// The approver's reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The grant it left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<GrantId>,
}

/// A standing answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GrantRecord {
    /// The grant's id.
    pub grant_id: GrantId,
    /// The approval it came from.
    pub approval_id: ApprovalId,
    /// The subject: `tool:name|skill:id`.
    pub subject_id: String,
    /// The tool.
    pub tool: ToolName,
    /// Whose calls it covers.
    pub principal: Principal,
    /// The session it is bound to, for session scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// How wide it is.
    pub matcher: GrantMatcher,
    /// The policy it was given under; another policy voids it.
    pub policy_hash: Digest,
    /// Who gave it.
    pub granted_by: Principal,
    /// When it was given.
    pub created_at: Timestamp,
    /// When it ends, for a time window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// How many calls it has covered.
    pub uses: u64,
    /// The workspace whose calls it covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The call that was shown when it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<ShownCall>,
    /// The key it is found by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_key: Option<Digest>,
    /// Why it no longer holds, though nobody revoked it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
}

/// What a person saw when they left a standing answer: enough to know later what it covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownCall {
    /// The command, or the paths, or the hosts, on one line that may be cut.
    pub what: String,
    /// The program that would run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executable: Option<String>,
    /// The directory it would run in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
}

/// The longest line of a shown call, in characters.
const MAX_SHOWN: usize = 200;

impl ShownCall {
    /// What is kept of a call's facets.
    #[must_use]
    pub fn of(facets: &Facets) -> Self {
        let listed = |list: &[String]| (!list.is_empty()).then(|| list.join(", "));
        let what = facets
            .command_line()
            .or_else(|| listed(&facets.paths_written))
            .or_else(|| listed(&facets.hosts))
            .or_else(|| listed(&facets.paths_read))
            .unwrap_or_default();
        let cut = |text: &str| {
            let mut kept: String = text.chars().take(MAX_SHOWN).collect();
            if kept.len() < text.len() {
                kept.push('…');
            }
            kept
        };
        Self {
            what: cut(&what),
            executable: facets.executable.as_deref().map(cut),
            working_directory: facets.working_directory.as_deref().map(cut),
        }
    }
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
}

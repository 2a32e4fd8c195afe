//! What a person is shown before they answer an approval, on every screen.
//!
//! An approval covers what its screen described, so there is one description. The engine builds a [`Review`] once for
//! each approval; it travels as JSON, and every screen renders the [`Row`]s that [`Review::rows`] makes of it: command
//! line, MCP message, HTTP, terminal screen, console. A fact that a screen would leave out cannot exist: `rows` takes
//! the review apart field by field, and each renderer has a test that holds it to every row.
//!
//! The fields hold a stranger's text as it is. Rows hold it with everything that could deceive a reader made visible.

mod example;
mod rows;
mod shell_parts;
mod text;

pub use example::every_fact;
pub use rows::{Line, LineKind, Row, diff_lines};
pub use shell_parts::{ShellPart, shell_parts};
pub use text::{plain, speaker, utc};

use crate::access::ShownToken;
use crate::approval::{ApprovalRecord, ApprovalResolution, ApprovalScope, ApprovalState, GivenApproval};
use crate::capability::RiskLevel;
use crate::clock::Timestamp;
use crate::containment::Containment;
use crate::digest::Digest;
use crate::facets::{Facets, quote_words};
use crate::grant_match::{GrantMatcher, directories, endpoint};
use crate::id::{ApprovalId, CallId, SessionId};
use crate::principal::Principal;
use crate::subject::ApprovalSubject;
use crate::tool::ToolName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything that a person needs to know about one approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Review {
    /// The approval.
    pub approval_id: ApprovalId,
    /// The call that waits; an id of its own where the subject is no call.
    pub call_id: CallId,
    /// What it is about.
    pub subject: ApprovalSubject,
    /// The tool.
    pub tool: ToolName,
    /// How bad a wrong yes can be.
    pub risk: RiskLevel,
    /// In whose name the call is made.
    pub principal: Principal,
    /// Who made the proposal.
    pub proposed_by: Principal,
    /// The token they showed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<ShownToken>,
    /// The session it was asked in.
    pub session: SessionId,
    /// What would run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<ReviewedCommand>,
    /// Paths that would be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    /// Those of them that would be read with everything below them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads_below: Vec<String>,
    /// Paths that would be written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    /// The hosts that it would ask for something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<ReviewedNetwork>,
    /// The secrets that it would use, and how.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// What would hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containment: Option<Containment>,
    /// The client carries it out by itself.
    #[serde(default)]
    pub by_client: bool,
    /// The skill whose code would run, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// What would change in files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ReviewedChange>,
    /// The canonical input, whole.
    pub input: Value,
    /// Why a person is asked.
    pub why: String,
    /// The rules that ask, with their text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<ReviewedRule>,
    /// The grants that a yes can leave, the narrowest first; none where a yes leaves none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<Offer>,
    /// How many different people have to say yes.
    pub people: u32,
    /// Whether no grant covers it and a yes leaves none.
    pub fresh: bool,
    /// Those who have said yes while others are still needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<GivenApproval>,
    /// When it was asked.
    pub requested_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Timestamp,
    /// Where it stands.
    pub state: ApprovalState,
    /// The answer, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<ApprovalResolution>,
    /// The digest of what is shown: an answer is about this and nothing else.
    pub digest: Digest,
    /// The policy it was asked under.
    pub policy_hash: Digest,
}

/// A command by its parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedCommand {
    /// The words, the name that the program was called by first.
    pub argv: Vec<String>,
    /// For a shell that is given its code: the commands in it, as far as they can be told apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<ShellPart>,
    /// Every file that would run, resolved, the one that the command names first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// The directory it would run in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The environment variables that the caller sets. Their values are in the input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<String>,
    /// Whether it is fed standard input, which is in the input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fed: bool,
}

/// Requests that leave this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedNetwork {
    /// The HTTP method, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The hosts.
    pub hosts: Vec<String>,
    /// Whether redirects to other allowed hosts are followed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub follows_redirects: bool,
}

/// A change of files, as a difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedChange {
    /// The files.
    pub paths: Vec<String>,
    /// The unified difference; none where one of the versions is no text or is too large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Whether more changes than the difference shows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// What has to be said besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The field of the input that the difference shows whole, so that it need not be shown twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shows: Option<String>,
}

/// A rule that asks for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewedRule {
    /// Its name.
    pub id: String,
    /// Its text, as it was written; cut where it is very long.
    pub text: String,
}

/// A grant that a yes can leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// How wide it would be.
    pub matcher: GrantMatcher,
    /// How long it would hold.
    pub scope: ApprovalScope,
    /// What it would have answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<OfferReplay>,
}

/// What a grant would have answered among the last approvals of the same principal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferReplay {
    /// How many approvals were looked at.
    pub of: u32,
    /// How many of them it would have answered.
    pub answered: u32,
    /// How many of those a person denied.
    pub denied: u32,
    /// Some of those, each on one line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub denied_examples: Vec<String>,
}

impl Review {
    /// The review of an approval, with what its record alone tells. The engine adds what it knows besides: changes,
    /// rules and what each offer would have answered.
    #[must_use]
    pub fn of(asked: &ApprovalRecord) -> Self {
        let facets = &asked.facets;
        Self {
            approval_id: asked.approval_id.clone(),
            call_id: asked.call_id.clone(),
            subject: asked.subject.clone(),
            tool: asked.tool.clone(),
            risk: asked.risk,
            principal: asked.principal.clone(),
            proposed_by: asked.proposed_by.clone(),
            token: asked.token.clone(),
            session: asked.session.clone(),
            command: ReviewedCommand::of(facets),
            reads: facets.paths_read.iter().chain(&facets.outside).cloned().collect(),
            reads_below: facets.trees_read.clone(),
            writes: facets.paths_written.clone(),
            network: ReviewedNetwork::of(facets, &asked.input),
            secrets: facets.secret_lines(),
            containment: facets.containment.clone(),
            by_client: facets.by_client.is_some(),
            skill: facets.skill.as_ref().map(crate::skill_event::SkillUse::describe),
            changes: changes_of(&asked.subject),
            input: asked.input.clone(),
            why: asked.why.clone(),
            rules: Vec::new(),
            offers: offers(asked),
            people: asked.people,
            fresh: asked.fresh,
            given: asked.given.clone(),
            requested_at: asked.requested_at,
            expires_at: asked.expires_at,
            state: asked.state,
            resolution: asked.resolution.clone(),
            digest: asked.call_digest,
            policy_hash: asked.policy_hash,
        }
    }

    /// What it is about, on one line.
    #[must_use]
    pub fn headline(&self) -> String {
        let command = || self.command.as_ref().map(|command| quote_words(&command.argv));
        let writes = || (!self.writes.is_empty()).then(|| self.writes.join(", "));
        let network = || self.network.as_ref().map(|network| network.hosts.join(", "));
        let reads = || (!self.reads.is_empty()).then(|| self.reads.join(", "));
        let input = || (!self.input.is_null()).then(|| self.input.to_string());
        let what = self.subject.headline().or_else(command).or_else(writes).or_else(network).or_else(reads);
        crate::display::safe(&what.or_else(input).unwrap_or_default())
    }

    /// Whether its rows show all of it. Where a difference is cut, and the input does not hold it either, they do not:
    /// nobody can have read what they would allow.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.subject.is_call() || self.changes.iter().all(|change| !change.cut)
    }

    /// What approvals are alike: those of one principal and one tool, whose commands begin alike or whose files lie in
    /// one directory.
    #[must_use]
    pub fn group(&self) -> String {
        let like = self.offers.iter().find(|offer| offer.matcher != GrantMatcher::ExactCall);
        let argv = self.command.as_ref().map(|command| command.argv.as_slice());
        let like = like.map_or_else(
            || self.headline(),
            |offer| match &offer.matcher {
                // `touch a` and `touch b`: the last word of a short command is what it is about.
                GrantMatcher::ArgvPrefix { words } if words.len() > 1 && argv == Some(words.as_slice()) => {
                    quote_words(&words[..words.len() - 1])
                }
                matcher => matcher.describe(),
            },
        );
        format!("{} {} {} {like}", self.subject.kind(), self.principal, self.tool)
    }
}

impl ReviewedCommand {
    fn of(facets: &Facets) -> Option<Self> {
        (!facets.argv.is_empty()).then(|| Self {
            argv: facets.argv.clone(),
            parts: shell_parts(facets),
            programs: facets.all_executables().map(str::to_owned).collect(),
            directory: facets.working_directory.clone(),
            sets: facets.env_names().to_vec(),
            fed: facets.stdin_sha256.is_some(),
        })
    }
}

impl ReviewedNetwork {
    fn of(facets: &Facets, input: &Value) -> Option<Self> {
        let follows = facets.method.is_some() && input.get("max_redirects").and_then(Value::as_u64) != Some(0);
        (!facets.hosts.is_empty()).then(|| Self {
            method: facets.method.clone(),
            hosts: facets.hosts.clone(),
            follows_redirects: follows,
        })
    }
}

fn changes_of(subject: &ApprovalSubject) -> Vec<ReviewedChange> {
    let ApprovalSubject::Effects(waiting) = subject else { return Vec::new() };
    vec![ReviewedChange {
        paths: waiting.paths.iter().map(|path| path.to_text()).collect(),
        diff: Some(waiting.diff.clone()),
        cut: waiting.cut,
        note: waiting.cut.then(|| "the rest is not shown; `palyra effects diff` shows all of it".to_owned()),
        shows: None,
    }]
}

/// The grants that a yes can leave, the narrowest first.
fn offers(asked: &ApprovalRecord) -> Vec<Offer> {
    if asked.people > 1 || asked.fresh || !asked.subject.is_call() {
        return Vec::new();
    }
    let facets = &asked.facets;
    let words = crate::code_words::offered_prefix(facets);
    // The directory of what would be written: the deepest that holds a file beside it.
    let directory = directories(facets)
        .into_iter()
        .rev()
        .find(|directory| !facets.paths_written.contains(directory) && !facets.paths_read.contains(directory));
    let host = endpoint(facets).map(|(host, method)| (host.to_owned(), method.to_owned()));
    let matchers = [
        Some(GrantMatcher::ExactCall),
        words.map(|words| GrantMatcher::ArgvPrefix { words }),
        directory.map(|directory| GrantMatcher::PathPrefix { directory }),
        host.map(|(host, method)| GrantMatcher::HostMethod { host, method }),
    ];
    let offer = |matcher| Offer { matcher, scope: ApprovalScope::Session, replay: None };
    matchers.into_iter().flatten().map(offer).collect()
}

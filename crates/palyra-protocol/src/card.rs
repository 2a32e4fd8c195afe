//! A question as a person is shown it, on whatever screen.
//!
//! An approval covers what its screen described, so there is one description: whole, resolved, and with everything that
//! could deceive made visible. Screens add colour and what they know besides; none leaves anything out.

use crate::access::ShownToken;
use crate::approval::ApprovalRecord;
use crate::display::{safe, safe_lines};
use crate::facets::Facets;
use crate::principal::Principal;

/// What a question is about, ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// The command line, or what else it is about, if one line says it.
    pub command: Option<String>,
    /// What it would touch, who wants it and why, each with its name.
    pub facts: Vec<(&'static str, String)>,
    /// The whole input, indented; the difference, the words or the findings where it is about no call.
    pub input: String,
}

impl Card {
    /// The card of a question.
    #[must_use]
    pub fn of(asked: &ApprovalRecord) -> Self {
        let facets = &asked.facets;
        let paths = |paths: &[String]| {
            (!paths.is_empty()).then(|| paths.iter().map(|path| safe(path)).collect::<Vec<_>>().join(", "))
        };
        let facts = [
            ("runs", facets.executable.as_ref().map(|_| runs(facets))),
            ("in", facets.working_directory.as_deref().map(safe)),
            ("sets", paths(facets.env_names())),
            ("feeds", facets.stdin_sha256.map(|_| "standard input".to_owned())),
            ("reads", paths(&facets.paths_read)),
            ("writes", paths(&facets.paths_written)),
            ("contacts", (!facets.hosts.is_empty()).then(|| contacts(asked))),
            ("for", Some(asked.principal.to_string())),
            ("proposed by", proposer(asked)),
            ("session", Some(asked.session.to_string())),
            ("why", Some(safe(&asked.why))),
        ];
        let input = serde_json::to_string_pretty(&asked.input).unwrap_or_else(|_| asked.input.to_string());
        let detail = asked.subject.detail();
        Self {
            command: asked.subject.headline().or_else(|| facets.command_line().map(|command| safe(&command))),
            facts: facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
            input: detail.unwrap_or_else(|| safe_lines(&input)),
        }
    }

    /// The card as plain text.
    #[must_use]
    pub fn plain(&self) -> String {
        let command = self.command.iter().map(|command| format!("    {command}\n"));
        let facts = self.facts.iter().map(|(name, value)| format!("{name}: {value}\n"));
        command.chain(facts).chain([format!("input:\n{}\n", self.input)]).collect()
    }
}

/// Who made the proposal, where that says more than in whose name the call is made.
fn proposer(asked: &ApprovalRecord) -> Option<String> {
    let plain = asked.proposed_by == asked.principal && asked.token.is_none();
    (!plain).then(|| speaker(&asked.proposed_by, asked.token.as_ref()))
}

/// Somebody, the token they spoke by, and who else may have.
#[must_use]
pub fn speaker(who: &Principal, token: Option<&ShownToken>) -> String {
    let Some(token) = token else { return who.to_string() };
    let issuers: Vec<_> = token.issuers.iter().map(ToString::to_string).collect();
    let issued = if issuers.is_empty() { String::new() } else { format!(", issued by {}", issuers.join(" and ")) };
    format!("{who} (by {}{issued})", token.token_id)
}

/// Every file that would run, the one that the command names first.
fn runs(facets: &Facets) -> String {
    facets.all_executables().map(safe).collect::<Vec<_>>().join(", ")
}

/// The method and the hosts of a call that leaves this machine.
fn contacts(asked: &ApprovalRecord) -> String {
    let facets = &asked.facets;
    let hosts = facets.hosts.iter().map(|host| safe(host)).collect::<Vec<_>>().join(", ");
    let Some(method) = &facets.method else { return hosts };
    let follows = asked.input.get("max_redirects").and_then(serde_json::Value::as_u64) != Some(0);
    let further = if follows { "; redirects to allowed hosts are followed" } else { "" };
    format!("{} {hosts}{further}", safe(method))
}

//! Rules that past approvals suggest: the narrowest that would have spared a person the same answer again and again.
//!
//! A suggestion waives the approval of exactly the commands, or of exactly the files, that a person approved: for one
//! principal, one tool, one workspace, one program, one directory. Commands that set environment variables or feed
//! standard input get none: rules see neither values nor content, so that no rule would be as narrow as the approval
//! was. It is tried against the running set before it is offered: it must cover what was approved and nothing that a
//! person denied. Only an operator applies it.

use crate::cases::Expectation;
use crate::directory::{PolicyFile, PolicyFiles};
use crate::engine::PolicyEngine;
use crate::request::{PolicyRequest, PolicyRequestContext};
use crate::resource::PolicyResource;
use crate::source::PolicySource;
use cedar_policy::EntityId;
use palyra_protocol::facets::quote_words;
use palyra_protocol::{
    ChannelId, DecisionKind, Digest, Environment, Facets, PolicyAction, Principal, PrincipalKind, RiskLevel,
    ToolCapability,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// More different commands or files than this are a habit of asking, not a habit of doing the same.
const MOST_ALTERNATIVES: usize = 5;

/// A question that a person answered.
#[derive(Debug, Clone)]
pub struct PastAnswer {
    /// In whose name the call was made.
    pub principal: Principal,
    /// The tool.
    pub tool: String,
    /// The workspace.
    pub workspace: Option<String>,
    /// The door.
    pub channel: ChannelId,
    /// What the tool can do.
    pub capabilities: Vec<ToolCapability>,
    /// How bad it can be.
    pub risk: Option<RiskLevel>,
    /// What the call would touch.
    pub facets: Facets,
    /// Yes or no.
    pub allowed: bool,
}

/// A rule that nobody has written yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Suggestion {
    /// The rule's id.
    pub id: String,
    /// How many approvals it would have spared.
    pub spared: usize,
    /// What it covers, for people.
    pub covers: Vec<String>,
    /// The rule.
    pub rule: String,
    /// Its cases: a file of their own.
    pub cases: String,
}

impl PastAnswer {
    fn request(&self) -> PolicyRequest {
        PolicyRequest {
            principal: self.principal.clone(),
            action: PolicyAction::ToolExecute,
            resource: PolicyResource::Tool(self.tool.clone()),
        }
    }

    fn context(&self) -> PolicyRequestContext {
        PolicyRequestContext {
            workspace: self.workspace.clone(),
            tool: Some(self.tool.clone()),
            capabilities: self.capabilities.clone(),
            risk: self.risk,
            is_sensitive_action: self.capabilities.iter().any(|c| c.is_sensitive()),
            is_allowlisted_tool: true,
            facets: self.facets.clone(),
            ..PolicyRequestContext::new(self.channel.clone())
        }
    }

    /// What it did, for people.
    fn what(&self) -> String {
        self.facets.command_line().unwrap_or_else(|| self.facets.paths_written.join(" "))
    }

    /// Whether it is the command alone: no variable set, nothing on standard input.
    fn is_plain(&self) -> bool {
        self.facets.environment.is_none() && self.facets.stdin_sha256.is_none()
    }
}

/// Suggests rules from answers, each of which would have spared at least `least` approvals.
#[must_use]
pub fn suggest(running: &PolicyEngine, answers: &[PastAnswer], least: usize) -> Vec<Suggestion> {
    type Place<'a> = (String, &'a str, Option<&'a str>, Vec<&'a str>, Option<&'a str>);
    let mut alike: BTreeMap<Place<'_>, Vec<&PastAnswer>> = BTreeMap::new();
    for answer in answers.iter().filter(|answer| answer.allowed && answer.is_plain()) {
        let facets = &answer.facets;
        let place: Place<'_> = (
            answer.principal.to_string(),
            &answer.tool,
            answer.workspace.as_deref(),
            facets.all_executables().collect(),
            facets.working_directory.as_deref(),
        );
        alike.entry(place).or_default().push(answer);
    }
    let denied: Vec<_> = answers.iter().filter(|answer| !answer.allowed).collect();
    let mut suggestions: Vec<Suggestion> = Vec::new();
    for approved in alike.into_values().filter(|approved| approved.len() >= least) {
        let taken: BTreeSet<_> = suggestions.iter().map(|s| s.id.clone()).collect();
        suggestions.extend(one(running, &approved, &denied, least, &taken));
    }
    suggestions.sort_by(|a, b| b.spared.cmp(&a.spared).then_with(|| a.id.cmp(&b.id)));
    suggestions
}

/// The narrowest rule for approvals of one principal, tool and place; none if there is no narrow one.
fn one(
    running: &PolicyEngine,
    approved: &[&PastAnswer],
    denied: &[&PastAnswer],
    least: usize,
    taken: &BTreeSet<String>,
) -> Option<Suggestion> {
    let first = approved.first()?;
    let mut times: BTreeMap<String, (usize, &PastAnswer)> = BTreeMap::new();
    for answer in approved {
        times.entry(answer.what()).or_insert((0, answer)).0 += 1;
    }
    // What was approved once or twice was perhaps meant once or twice.
    let alternatives: Vec<(&String, &(usize, &PastAnswer))> = times.iter().filter(|(_, (n, _))| *n >= least).collect();
    if alternatives.is_empty() || alternatives.len() > MOST_ALTERNATIVES {
        return None;
    }
    let condition = condition(alternatives.iter().map(|(_, (_, answer))| *answer))?;
    let id = name(running, first, taken);
    let spared = alternatives.iter().map(|(_, (times, _))| times).sum();
    let rule = rule(&id, first, spared, &condition);
    let examples: Vec<&PastAnswer> = alternatives.iter().map(|(_, (_, answer))| *answer).collect();
    let tried = running.with_rules(PolicySource::new("suggested.cedar", rule.as_str())).ok()?;
    let answer = |answer: &PastAnswer| tried.kind(&answer.request(), &answer.context());
    let useful = examples.iter().all(|example| answer(example) == DecisionKind::Allow)
        && examples.iter().any(|e| running.kind(&e.request(), &e.context()) == DecisionKind::NeedsApproval);
    let contradicted = denied.iter().any(|no| {
        answer(no) == DecisionKind::Allow && running.kind(&no.request(), &no.context()) != DecisionKind::Allow
    });
    if !useful || contradicted {
        return None;
    }
    let cases = cases(&tried, &examples)?;
    let covers = alternatives.iter().map(|(what, _)| crate::hint::printable(what)).collect();
    Some(Suggestion { id, spared, covers, rule, cases })
}

/// The condition that these calls meet and hardly any other does.
fn condition<'a>(calls: impl Iterator<Item = &'a PastAnswer>) -> Option<String> {
    let calls: Vec<_> = calls.collect();
    let literals = |texts: BTreeSet<String>| texts.iter().map(|text| literal(text)).collect::<Vec<_>>();
    if calls.iter().all(|call| !call.facets.argv.is_empty()) {
        let lines = literals(calls.iter().map(|call| quote_words(&call.facets.argv)).collect());
        let line = match lines.as_slice() {
            [one] => format!("context.command_line == {one}"),
            many => format!("[{}].contains(context.command_line)", many.join(", ")),
        };
        return Some(format!(
            "context has command_line && {line} }}\nwhen {{ context.env_names.isEmpty() && !context.has_stdin"
        ));
    }
    if calls.iter().all(|call| call.facets.argv.is_empty() && !call.facets.paths_written.is_empty()) {
        let paths = literals(calls.iter().flat_map(|call| call.facets.paths_written.iter().cloned()).collect());
        return Some(format!("[{}].containsAll(context.paths_written)", paths.join(", ")));
    }
    None
}

/// A text as a Cedar string.
fn literal(text: &str) -> String {
    format!("\"{}\"", EntityId::new(text).escaped())
}

fn rule(id: &str, call: &PastAnswer, spared: usize, condition: &str) -> String {
    let text = literal;
    let kind = match call.principal.kind() {
        PrincipalKind::User => "User",
        PrincipalKind::Agent => "Agent",
        PrincipalKind::Device => "Device",
        PrincipalKind::System => "System",
    };
    let mut rule = format!(
        "@id(\"{id}\")\n@reason(\"A person approved this {spared} times.\")\npermit (\n  principal == {kind}::{},\n  action == Action::\"approval.waive\",\n  resource == Tool::{}\n)\n",
        text(call.principal.name()),
        text(&call.tool)
    );
    if let Some(root) = &call.workspace {
        rule.push_str(&format!("when {{ context has workspace && context.workspace == Workspace::{} }}\n", text(root)));
    }
    for (attribute, value) in
        [("executable", &call.facets.executable), ("working_directory", &call.facets.working_directory)]
    {
        if let Some(value) = value {
            rule.push_str(&format!("when {{ context has {attribute} && context.{attribute} == {} }}\n", text(value)));
        }
    }
    if !call.facets.executables.is_empty() {
        let files: Vec<_> = call.facets.executables.iter().map(|file| text(file)).collect();
        rule.push_str(&format!("when {{ context.executables == [{}] }}\n", files.join(", ")));
    }
    rule.push_str(&format!("when {{ {condition} }};\n"));
    rule
}

/// An id that says who and what, and that no rule has.
fn name(running: &PolicyEngine, call: &PastAnswer, taken: &BTreeSet<String>) -> String {
    let words = call.facets.argv.iter().take(2).map(String::as_str);
    let parts = ["waive", call.principal.name()].into_iter().chain(words);
    let mut base: String = parts.collect::<Vec<_>>().join("_").to_ascii_lowercase();
    if call.facets.argv.is_empty() {
        base = format!("{base}_{}", call.tool.rsplit('.').next().unwrap_or("tool"));
    }
    let plain = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' };
    let base: String = base.chars().map(plain).take(48).collect();
    let free = |id: &String| running.rule(id).is_none() && !taken.contains(id);
    let numbered = (2..).map(|n| format!("{base}_{n}"));
    std::iter::once(base.clone()).chain(numbered).find(free).unwrap_or(base)
}

#[derive(Serialize)]
struct CasesOut {
    case: Vec<CaseOut>,
}

#[derive(Serialize)]
struct CaseOut {
    name: String,
    principal: String,
    action: &'static str,
    resource: String,
    expect: Expectation,
    context: ContextOut,
}

#[derive(Serialize)]
struct ContextOut {
    channel: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace: Option<String>,
    is_allowlisted_tool: bool,
    is_sensitive_action: bool,
    capabilities: Vec<ToolCapability>,
    #[serde(skip_serializing_if = "Option::is_none")]
    risk: Option<RiskLevel>,
    facets: Facets,
}

/// What was approved needs nobody any more; what is beside it still asks.
fn cases(tried: &PolicyEngine, examples: &[&PastAnswer]) -> Option<String> {
    let mut all = Vec::new();
    for example in examples {
        all.push(case(example, "need not be asked about", Expectation::Allow));
    }
    for (beside, what) in examples.first().map(|first| neighbours(first)).unwrap_or_default() {
        let expect = Expectation::from(&tried.decide(&beside.request(), &beside.context()));
        if expect == Expectation::Allow {
            return None;
        }
        all.push(case(&beside, what, expect));
    }
    toml::to_string(&CasesOut { case: all }).ok()
}

/// Calls that the rule must not cover: another caller, a longer command, another directory, other surroundings.
fn neighbours(call: &PastAnswer) -> Vec<(PastAnswer, &'static str)> {
    let mut beside = Vec::new();
    if let Ok(other) = Principal::new(call.principal.kind(), "somebody-else") {
        beside.push((PastAnswer { principal: other, ..call.clone() }, "is somebody else's"));
    }
    let changed = |change: &dyn Fn(&mut Facets)| {
        let mut other = call.clone();
        change(&mut other.facets);
        other
    };
    if call.facets.argv.is_empty() {
        let elsewhere = changed(&|facets| facets.paths_written.push("elsewhere/file".to_owned()));
        beside.push((elsewhere, "writes something else as well"));
    } else {
        beside.push((changed(&|facets| facets.argv.push("--more".to_owned())), "has a word more"));
        let elsewhere = changed(&|facets| facets.working_directory = Some("elsewhere".to_owned()));
        beside.push((elsewhere, "runs in another directory"));
        let set = changed(&|facets| facets.environment = Environment::new([("HOME", "elsewhere")]));
        beside.push((set, "sets a variable"));
        beside.push((changed(&|facets| facets.stdin_sha256 = Some(Digest::of(b"more"))), "feeds standard input"));
    }
    beside
}

fn case(call: &PastAnswer, what: &str, expect: Expectation) -> CaseOut {
    let context = call.context();
    CaseOut {
        name: format!("`{}` of {} {what}", crate::hint::printable(&call.what()), call.principal),
        principal: call.principal.to_string(),
        action: PolicyAction::ToolExecute.as_str(),
        resource: format!("tool:{}", call.tool),
        expect,
        context: ContextOut {
            channel: call.channel.to_string(),
            workspace: call.workspace.clone(),
            is_allowlisted_tool: true,
            is_sensitive_action: context.is_sensitive_action,
            capabilities: context.capabilities,
            risk: context.risk,
            facets: context.facets,
        },
    }
}

impl Suggestion {
    /// The suggestion as files of a policy directory.
    #[must_use]
    pub fn files(&self) -> [PolicyFile; 2] {
        [
            PolicyFile { name: format!("{}.cedar", self.id), bytes: self.rule.clone().into_bytes() },
            PolicyFile { name: format!("{}.cases.toml", self.id), bytes: self.cases.clone().into_bytes() },
        ]
    }

    /// Whether it passes every check that an operator's files pass.
    #[must_use]
    pub fn holds(&self, membership: &crate::membership::Membership) -> bool {
        PolicyFiles::new(self.files().to_vec()).and_then(|files| files.check(membership, None)).is_ok()
    }
}

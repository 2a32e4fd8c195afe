//! Skills: which there are and how they stand, what an audit found, what one version changes of another; quarantine and
//! release.

use super::rendered::{cut, document, seen};
use super::session::Nothing;
use super::signed::Signed;
use super::tables::{Act, Cell, Field, FieldKind, Form, Section, address, page, page_with};
use crate::http::{Asked, Caller, Door, Id, Refused};
use axum::extract::State;
use axum::response::Response;
use palyra_engine::{ErrorKind, SkillId, SkillInfo, SkillListing, SkillVersion, SkillView, TrustedKey};
use palyra_protocol::SkillStatus;
use palyra_protocol::display::safe_lines;
use palyra_skills::trust::KeyState;
use palyra_skills::{CheckStatus, SkillDiff};
use serde::{Deserialize, Serialize};
use serde_json::json;

fn status_tone(status: SkillStatus) -> &'static str {
    match status {
        SkillStatus::Eligible => "good",
        SkillStatus::Quarantined => "bad",
        SkillStatus::Installed => "warn",
    }
}

fn check_tone(status: CheckStatus) -> &'static str {
    match status {
        CheckStatus::Pass => "good",
        CheckStatus::Warn => "warn",
        CheckStatus::Fail => "bad",
    }
}

fn link(skill: &SkillId, version: &SkillVersion, against: &str) -> String {
    address("/console/skill", &[("id", skill.as_str()), ("version", &version.to_string()), ("against", against)])
}

pub(super) async fn list(State(door): State<Door>, caller: Caller) -> Result<Response, Refused> {
    let listing = match door.engine.skill_list(&caller.peer) {
        Ok(listing) => listing,
        Err(error) if error.kind == ErrorKind::Unavailable => {
            let about = seen(&error.problem.message);
            return page(&[Section { about, ..installed(&SkillListing { skills: Vec::new(), problem: None }) }], &[]);
        }
        Err(error) => return Err(error.into()),
    };
    let mut sections = vec![installed(&listing)];
    // A trust store that is not the recorded one is told in the first section.
    if let Ok(keys) = door.engine.trusted_keys(&caller.peer) {
        sections.push(trusted(&keys));
    }
    let audit = Form {
        title: "Audit all of them now",
        about: "Signatures, files, capabilities and advisories are read anew. What fails is quarantined.",
        path: "/console/api/skills/check".to_owned(),
        submit: "Audit",
        fields: Vec::new(),
        open: false,
    };
    page_with(&sections, &[], &[audit])
}

fn installed(listing: &SkillListing) -> Section {
    let about = match &listing.problem {
        Some(problem) => format!("No skill runs: {}", seen(&problem.message)),
        None => "Packages of tools, each in a sandbox of its own. One runs while it is eligible: signed by a trusted \
                 key, unchanged on the disk, and without a failed check."
            .to_owned(),
    };
    Section {
        title: "Installed skills",
        about,
        columns: &["skill", "version", "status", "runs", "publisher", "tools", "audit", "why"],
        rows: listing.skills.iter().map(row).collect(),
        empty: "No skill is installed. `palyra skills install FILE` installs one; `palyra skills new` begins one.",
        older: None,
    }
}

fn row(view: &SkillView) -> Vec<Cell> {
    let verdict = view
        .verdict
        .map_or_else(Cell::nothing, |verdict| Cell::Badge(verdict.as_str().to_owned(), check_tone(verdict)));
    vec![
        Cell::Link { href: link(&view.skill, &view.version, ""), text: seen(view.skill.as_str()) },
        Cell::text(&view.version),
        Cell::Badge(view.runtime_status.to_string(), status_tone(view.runtime_status)),
        Cell::text(if view.eligible { "yes" } else { "no" }),
        Cell::text(format!("{} ({})", view.publisher, view.trust.replace('_', " "))),
        Cell::text(view.tools),
        verdict,
        Cell::Text(cut(view.reason.as_deref().unwrap_or(""), 160)),
    ]
}

fn trusted(keys: &[TrustedKey]) -> Section {
    let row = |key: &TrustedKey| {
        let (word, tone) = match &key.state {
            KeyState::Active => ("trusted".to_owned(), "good"),
            other => (word_of(other), "plain"),
        };
        vec![
            Cell::text(&key.publisher),
            Cell::code(&key.key_id),
            Cell::Badge(word, tone),
            Cell::text(word_of(&key.origin)),
            Cell::time(key.added_at),
            Cell::maybe(key.expires_at),
            Cell::text(key.skills),
        ]
    };
    Section {
        title: "Trusted publishers",
        about: "Whose signatures count. `palyra skills trust` adds, replaces and revokes keys.".to_owned(),
        columns: &["publisher", "key", "state", "known by", "since", "until", "signed here"],
        rows: keys.iter().map(row).collect(),
        empty: "Nobody is trusted yet. `palyra skills trust add PUBLISHER KEY` trusts somebody.",
        older: None,
    }
}

/// The name of a unit variant as it is serialized.
fn word_of(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    let name = value.as_str().map(str::to_owned);
    let name = name.or_else(|| value.as_object().and_then(|object| object.keys().next().cloned()));
    name.unwrap_or_default().replace('_', " ")
}

/// Which version, and the one to compare it with.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Which {
    /// The skill, as the page's own address names it.
    id: String,
    version: String,
    against: String,
}

fn version(text: &str) -> Result<Option<SkillVersion>, Refused> {
    let given = Some(text).filter(|text| !text.is_empty()).map(str::parse);
    given.transpose().map_err(|_| Refused::not_found("version", text))
}

pub(super) async fn show(
    State(door): State<Door>,
    caller: Caller,
    Id(skill): Id<SkillId>,
    Asked(which): Asked<Which>,
) -> Result<Response, Refused> {
    if !which.id.is_empty() && which.id != skill.as_str() {
        return Err(Refused::malformed("the address names two skills"));
    }
    let wanted = version(&which.version)?;
    let info = door.engine.skill_info(&caller.peer, &skill, wanted.as_ref())?;
    let mut sections = vec![standing(&info), tools(&info)];
    let before = version(&which.against)?.or_else(|| before(&info));
    if let Some(before) = before {
        let names = (before.clone(), info.view.version.clone());
        sections.push(match door.engine.compare_skills(&caller.peer, skill.clone(), names).await {
            Ok(diff) => difference(&diff),
            Err(error) => Section { about: seen(&error.problem.message), ..changes(&before) },
        });
    }
    sections.push(audit(&info));
    sections.push(versions(&info));
    page_with(&sections, &[], &forms(&info))
}

/// The version before this one.
fn before(info: &SkillInfo) -> Option<SkillVersion> {
    let at = info.versions.iter().position(|version| *version == info.view.version)?;
    info.versions.get(at.checked_sub(1)?).cloned()
}

fn standing(info: &SkillInfo) -> Section {
    let view = &info.view;
    let pretty = |value: serde_json::Value| safe_lines(&serde_json::to_string_pretty(&value).unwrap_or_default());
    let changed = info.change.as_ref().map_or_else(String::new, |change| {
        format!("{} by {}: {}", change.change.cause.as_str().replace('_', " "), change.by, change.change.reason)
    });
    let overridden = info.change.as_ref().map_or_else(String::new, |change| change.change.overridden.join(", "));
    let fact = |name: &str, value: String| vec![Cell::text(name), Cell::text(value)];
    let mut rows = vec![
        vec![Cell::text("status"), Cell::Badge(view.runtime_status.to_string(), status_tone(view.runtime_status))],
        fact("because", changed),
        fact("let pass", overridden),
        fact("publisher", format!("{}, key {} ({})", view.publisher, view.key_id, view.trust.replace('_', " "))),
        vec![Cell::text("installed"), Cell::time(info.installed_at)],
        fact("by", info.installed_by.to_string()),
        fact("content", info.installed.content_sha256.to_string()),
    ];
    rows.retain(|row| !matches!(row.get(1), Some(Cell::Text(text)) if text.is_empty()));
    for (name, value) in [("asks for", json!(info.requested)), ("is granted", json!(info.grant))] {
        if !value.is_null() {
            rows.push(vec![Cell::text(name), Cell::More { summary: "capabilities".to_owned(), text: pretty(value) }]);
        }
    }
    let name = info.name.as_deref().unwrap_or_default();
    Section {
        title: "Where it stands",
        about: seen(format!("{} {} {name}", view.skill, view.version)),
        columns: &["", ""],
        rows,
        empty: "",
        older: None,
    }
}

fn tools(info: &SkillInfo) -> Section {
    let row = |tool: &palyra_engine::SkillToolView| {
        let (word, tone) = if tool.allowed { ("may be called", "good") } else { ("not in `allowed_tools`", "plain") };
        vec![
            Cell::code(&tool.name),
            Cell::Text(cut(&tool.description, 300)),
            Cell::Badge(tool.risk.to_string(), "plain"),
            Cell::Badge(word.to_owned(), tone),
        ]
    };
    Section {
        title: "Its tools",
        columns: &["tool", "what a model is told", "risk", "policy"],
        rows: info.tools_listed.iter().map(row).collect(),
        empty: "It lists no tool.",
        ..Section::default()
    }
}

fn changes(from: &SkillVersion) -> Section {
    Section {
        title: "What it changes",
        about: format!("Compared with {from}."),
        columns: &["", "what", "before", "after"],
        empty: "Nothing.",
        ..Section::default()
    }
}

fn difference(diff: &SkillDiff) -> Section {
    let row = |change: &palyra_skills::diff::SkillChange| {
        let (word, tone) = if change.widens { ("widens", "bad") } else { ("same reach", "plain") };
        let value = |value: &Option<String>| Cell::Text(cut(value.as_deref().unwrap_or("–"), 400));
        vec![
            Cell::Badge(word.to_owned(), tone),
            Cell::text(format!("{} {}", change.kind.as_str().replace('_', " "), change.subject)),
            value(&change.before),
            value(&change.after),
        ]
    };
    let about = match diff.widens {
        true => format!("Compared with {}: it may do more, or a model is told something else.", diff.from),
        false => format!("Compared with {}: it may do no more than before.", diff.from),
    };
    Section { about, rows: diff.changes.iter().map(row).collect(), ..changes(&diff.from) }
}

fn audit(info: &SkillInfo) -> Section {
    let mut checks: Vec<_> = info.audit.iter().flat_map(|report| &report.checks).collect();
    checks.sort_by_key(|check| std::cmp::Reverse(check.status));
    let row = |check: &&palyra_skills::audit::Check| {
        let found = check.evidence.join("\n");
        vec![
            Cell::Badge(check.status.to_string(), check_tone(check.status)),
            Cell::code(check.id),
            match check.evidence.len() {
                0 => Cell::nothing(),
                1 => Cell::Text(cut(&found, 400)),
                more => Cell::More { summary: format!("{more} findings"), text: safe_lines(&found) },
            },
            Cell::text(check.remedy.unwrap_or("")),
        ]
    };
    Section {
        title: "Audit",
        about:
            "What the last audit found, the worst first. Audits run at the start, when what they depend on changes, \
                and when somebody asks."
                .to_owned(),
        columns: &["", "check", "found", "what helps"],
        rows: checks.iter().map(row).collect(),
        empty: "This daemon has not audited it yet.",
        older: None,
    }
}

fn versions(info: &SkillInfo) -> Section {
    let here = info.view.version.to_string();
    let path = |what: &str| format!("/console/api/skills/{}/{what}", info.view.skill);
    let row = |version: &SkillVersion| {
        let this = *version == info.view.version;
        let compare = link(&info.view.skill, &info.view.version, &version.to_string());
        let compare = Cell::Link { href: compare, text: format!("compare with {here}") };
        let asks = format!("Make {version} the version that runs?");
        let acts = vec![Act::new("Use", path(&format!("use/{version}")), asks)];
        vec![
            Cell::Link { href: link(&info.view.skill, version, ""), text: version.to_string() },
            if this { Cell::text("this one") } else { compare },
            if this && info.view.current { Cell::text("runs") } else { Cell::Acts(acts) },
        ]
    };
    Section {
        title: "Versions",
        columns: &["version", "", ""],
        rows: info.versions.iter().map(row).collect(),
        ..Section::default()
    }
}

/// What can be done with it as it stands.
fn forms(info: &SkillInfo) -> Vec<Form> {
    let (skill, version) = (&info.view.skill, info.view.version.to_string());
    let reason = Field::new("reason", "Why", FieldKind::Line, "what the journal and the next person should know");
    let mut fields = vec![Field::fixed("version", &version), reason];
    let quarantined = info.view.runtime_status == SkillStatus::Quarantined;
    if !quarantined {
        let form = Form {
            title: "Quarantine",
            about: "Its tools are neither listed nor run from then on. Calls that wait for an answer are refused.",
            path: format!("/console/api/skills/{skill}/quarantine"),
            submit: "Quarantine it",
            fields,
            open: false,
        };
        return vec![form];
    }
    let failed = info.audit.iter().flat_map(|report| report.with_status(CheckStatus::Fail));
    fields.extend(failed.map(|check| {
        let id = check.id.to_string();
        Field::new("overrides", format!("let `{id}` pass for this version"), FieldKind::Tick(id), "")
    }));
    vec![Form {
        title: "Release",
        about: "It is audited again first. A check that still fails keeps it here, unless you let it pass by name and say why.",
        path: format!("/console/api/skills/{skill}/release"),
        submit: "Release it",
        fields,
        open: true,
    }]
}

/// A change of one version's standing, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Because {
    version: String,
    reason: String,
    #[serde(default)]
    overrides: Vec<String>,
}

pub(super) async fn quarantine(
    State(door): State<Door>,
    caller: Caller,
    Id(skill): Id<SkillId>,
    Signed(said): Signed<Because>,
) -> Result<Response, Refused> {
    let wanted = version(&said.version)?;
    document(&door.engine.quarantine_skill(&caller.peer, skill, wanted, &said.reason).await?)
}

pub(super) async fn release(
    State(door): State<Door>,
    caller: Caller,
    Id(skill): Id<SkillId>,
    Signed(said): Signed<Because>,
) -> Result<Response, Refused> {
    let wanted = version(&said.version)?;
    document(&door.engine.release_skill(&caller.peer, skill, wanted, (said.overrides, &said.reason)).await?)
}

pub(super) async fn use_version(
    State(door): State<Door>,
    caller: Caller,
    axum::extract::Path((skill, wanted)): axum::extract::Path<(String, String)>,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    let named = skill.parse::<SkillId>().map_err(|_| Refused::not_found("skill", &skill))?;
    let wanted = version(&wanted)?.ok_or_else(|| Refused::not_found("version", ""))?;
    document(&door.engine.use_skill(&caller.peer, named, wanted).await?)
}

/// Audits every skill now.
pub(super) async fn check(
    State(door): State<Door>,
    caller: Caller,
    Signed(Nothing {}): Signed<Nothing>,
) -> Result<Response, Refused> {
    document(&door.engine.check_skills(&caller.peer).await?)
}

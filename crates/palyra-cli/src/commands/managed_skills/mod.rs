//! `palyra skills`, as far as the daemon does it: install, look, quarantine, release, trust, replay.

mod install;
mod show;
mod trust;

use super::read;
use crate::args::managed_skills::{Manage, Named};
use crate::context::Context;
use crate::exit::Failure;
use crate::output::{self, GOOD, say, styled};
use crate::text::safe;
use palyra_api::v1::{
    CheckSkillsRequest, DiffSkillsRequest, ListSkillsRequest, QuarantineSkillRequest, ReleaseSkillRequest,
    ReplaySkillRequest, SkillDocument, SkillRequest,
};
use serde_json::Value;
use std::path::Path;

/// A document that the daemon sent.
fn told(reply: tonic::Response<SkillDocument>) -> Result<Value, Failure> {
    read(&reply.into_inner().document_json)
}

/// A text of a document; empty where there is none.
fn text<'a>(document: &'a Value, pointer: &str) -> &'a str {
    document.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn request(named: Named) -> SkillRequest {
    SkillRequest { skill: named.skill, version: named.version.unwrap_or_default() }
}

pub async fn run(context: &Context, command: Manage) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let mut skills = connection.skills();
    match command {
        Manage::Install(command) => install::install(context, &connection, command).await,
        Manage::Update(command) => install::update(context, &connection, command).await,
        Manage::Available { source } => show::available(context, &install::available(&connection, &source).await?),
        Manage::List => show::list(context, &told(skills.list(ListSkillsRequest {}).await?)?),
        Manage::Check => show::list(context, &told(skills.check(CheckSkillsRequest {}).await?)?),
        Manage::Info(named) => show::info(context, &told(skills.info(request(named)).await?)?),
        Manage::Audit { what, version } => {
            let audit = if is_file(&what) {
                install::examined(&connection, Path::new(&what)).await?["audit"].take()
            } else {
                told(skills.info(request(Named { skill: what, version })).await?)?["audit"].take()
            };
            show::audit(context, &audit)
        }
        Manage::Diff { what, from: Some(from), to: Some(to) } => {
            let request = DiffSkillsRequest { skill: what, from, to };
            show::diff(context, &told(skills.diff(request).await?)?)
        }
        Manage::Diff { what, .. } => {
            let changes = install::examined(&connection, Path::new(&what)).await?["changes"].take();
            show::diff(context, &changes)
        }
        Manage::Quarantine { named: Named { skill, version }, reason } => {
            let request = QuarantineSkillRequest { skill, version: version.unwrap_or_default(), reason };
            done(context, &told(skills.quarantine(request).await?)?, "is quarantined")
        }
        Manage::Release { named: Named { skill, version }, reason, overrides } => {
            let request = ReleaseSkillRequest { skill, version: version.unwrap_or_default(), reason, overrides };
            done(context, &told(skills.release(request).await?)?, "is eligible")
        }
        Manage::Use { skill, version } => {
            done(context, &told(skills.r#use(SkillRequest { skill, version }).await?)?, "runs from now on")
        }
        Manage::Remove(named) => {
            let removed = told(skills.remove(request(named)).await?)?;
            if context.json() {
                return output::json(&removed);
            }
            let versions = removed["removed"].as_array().map_or(&[][..], Vec::as_slice);
            let versions: Vec<_> = versions.iter().filter_map(Value::as_str).map(safe).collect();
            say!("{} {} {} is removed", styled(GOOD, "✔"), safe(text(&removed, "/skill")), versions.join(", "));
            Ok(())
        }
        Manage::Replay { call } => {
            let request = ReplaySkillRequest { call_id: call.to_string() };
            show::replayed(context, &told(skills.replay(request).await?)?)
        }
        Manage::Trust(command) => trust::run(context, &connection, command).await,
    }
}

/// Whether a word is meant as a file: a skill's id has neither a slash nor this ending.
fn is_file(what: &str) -> bool {
    what == "-" || what.contains('/') || what.ends_with(".palyra-skill")
}

fn done(context: &Context, info: &Value, what: &str) -> Result<(), Failure> {
    if context.json() {
        return output::json(info);
    }
    say!("{} {} {} {what}", styled(GOOD, "✔"), safe(text(info, "/skill")), safe(text(info, "/version")));
    Ok(())
}

//! Installing and updating: the artifact goes to the daemon in pieces, and progress comes back.

use super::{done, show, text, told};
use crate::answering::choice::request;
use crate::args::managed_skills::{Install, Source, Update};
use crate::commands::vault::prompt;
use crate::context::Context;
use crate::exit::{FAILED, Failure};
use crate::output::{self, DIM, WARN, note, say, styled};
use crate::text::safe;
use palyra_api::Connection;
use palyra_api::v1::{InstallSkillNews, SkillChunk, SkillSourceRequest};
use palyra_protocol::{ApprovalScope, GrantMatcher};
use serde_json::Value;
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

/// The size of a piece.
const PIECE: usize = 1 << 20;
/// The largest artifact that is read.
const MOST_BYTES: u64 = 128 << 20;

fn artifact(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| Failure::io(&format!("`{}`", path.display()), &error);
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        std::fs::File::open(path).map_err(failed)?.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    }
    if bytes.len() as u64 > MOST_BYTES {
        return Err(Failure::usage(format!("an artifact has at most {} MiB", MOST_BYTES >> 20), "name another file"));
    }
    Ok(bytes)
}

/// Where a skill is looked for; none where a file is named.
fn source(source: &Source) -> Result<Option<SkillSourceRequest>, Failure> {
    let Some(named) = source.from.as_ref().or(source.registry.as_ref()) else { return Ok(None) };
    let directory = std::path::absolute(named).map_err(|error| Failure::io("the source", &error))?;
    Ok(Some(SkillSourceRequest {
        directory: directory.to_string_lossy().into_owned(),
        registry: source.registry.is_some(),
        registry_key: source.registry_key.clone().unwrap_or_default(),
        ..SkillSourceRequest::default()
    }))
}

/// What a source offers.
pub(super) async fn available(connection: &Connection, named: &Source) -> Result<Value, Failure> {
    let Some(request) = source(named)? else {
        return Err(Failure::usage("there is no source".to_owned(), "name one: `--from DIR` or `--registry DIR`"));
    };
    told(connection.skills().available(request).await?)
}

/// The artifact that a command names: a file, or a skill of a source.
async fn wanted(connection: &Connection, what: &str, named: &Source) -> Result<Vec<u8>, Failure> {
    let Some(request) = source(named)? else { return artifact(Path::new(what)) };
    let (skill, requirement) = what.split_once('@').unwrap_or((what, ""));
    let (skill, requirement) = (skill.to_owned(), requirement.to_owned());
    let mut pieces =
        connection.skills().fetch(SkillSourceRequest { skill, requirement, ..request }).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.message().await? {
        bytes.extend_from_slice(&piece.bytes);
    }
    Ok(bytes)
}

/// The pieces of an artifact; the first carries the options.
fn pieces(bytes: &[u8], options: &SkillChunk) -> Vec<SkillChunk> {
    let mut pieces: Vec<SkillChunk> =
        bytes.chunks(PIECE).map(|piece| SkillChunk { bytes: piece.to_vec(), ..SkillChunk::default() }).collect();
    if pieces.is_empty() {
        pieces.push(SkillChunk::default());
    }
    if let Some(first) = pieces.first_mut() {
        *first = SkillChunk { bytes: std::mem::take(&mut first.bytes), ..options.clone() };
    }
    pieces
}

/// What the daemon says about a file that is not installed.
pub(super) async fn examined(connection: &Connection, path: &Path) -> Result<Value, Failure> {
    let bytes = artifact(path)?;
    told(connection.skills().examine(tokio_stream::iter(pieces(&bytes, &SkillChunk::default()))).await?)
}

pub(super) async fn install(context: &Context, connection: &Connection, command: Install) -> Result<(), Failure> {
    let Install { what, source, allow_tofu, accept_changes } = command;
    let bytes = wanted(connection, &what, &source).await?;
    let options = SkillChunk { allow_tofu, accept_changes, ..SkillChunk::default() };
    let info = sent(context, connection, pieces(&bytes, &options)).await?;
    installed(context, &info)
}

pub(super) async fn update(context: &Context, connection: &Connection, command: Update) -> Result<(), Failure> {
    let Update { what, source, accept_changes } = command;
    let bytes = wanted(connection, &what, &source).await?;
    let nothing = SkillChunk::default();
    let looked = told(connection.skills().examine(tokio_stream::iter(pieces(&bytes, &nothing))).await?)?;
    let changes = &looked["changes"];
    if changes.is_null() {
        let hint = "`palyra skills install` installs a skill, `palyra skills list` shows which run";
        let message = "no other version of this skill runs, so there is nothing to update";
        return Err(Failure::new(FAILED, "skill_nothing_to_update", message, Some(hint)));
    }
    if !context.json() {
        show::diff(context, changes)?;
    }
    let options = SkillChunk { accept_changes, ask: !accept_changes, ..SkillChunk::default() };
    let info = sent(context, connection, pieces(&bytes, &options)).await?;
    installed(context, &info)
}

/// Asks on the terminal whether a version may do more, and answers its approval. Elsewhere it waits for whoever answers
/// approvals.
async fn ask(context: &Context, connection: &Connection, approval: &str) -> Result<(), Failure> {
    if context.json() || !std::io::stdin().is_terminal() {
        note!("this version may do more: it waits for a person: palyra approvals show {}", safe(approval));
        return Ok(());
    }
    let question = "This version may do more than the one that runs. Accept that?";
    let allow = prompt::confirmed(question)?;
    let mut request = request(ApprovalScope::Once, GrantMatcher::ExactCall);
    (request.approval_id, request.allow) = (approval.to_owned(), allow);
    match connection.approvals().decide(request).await {
        Ok(_) => Ok(()),
        // Somebody else was faster: the answer that counts comes with the end.
        Err(status) if status.code() == tonic::Code::FailedPrecondition => Ok(()),
        Err(status) => Err(status.into()),
    }
}

/// Sends an artifact and shows how far its installation is; gives what is known of it at the end.
async fn sent(context: &Context, connection: &Connection, pieces: Vec<SkillChunk>) -> Result<Value, Failure> {
    let mut news = connection.skills().install(tokio_stream::iter(pieces)).await?.into_inner();
    let shows = !context.json() && std::io::stderr().is_terminal();
    let (mut step_before, mut tenth_before) = (String::new(), u64::MAX);
    while let Some(told) = news.message().await? {
        let InstallSkillNews { step, module, done, functions, document_json, approval_id } = told;
        if !approval_id.is_empty() {
            ask(context, connection, &approval_id).await?;
        }
        if !document_json.is_empty() {
            return super::read(&document_json);
        }
        let tenth = (done * 10).checked_div(functions).unwrap_or(0);
        if shows && (step != step_before || tenth != tenth_before) {
            let progress = if functions > 0 {
                format!(" {} {done} of {functions} functions", safe(&module))
            } else {
                String::new()
            };
            note!("{}", styled(DIM, format!("{}{progress}", safe(&step))));
        }
        (step_before, tenth_before) = (step, tenth);
    }
    Err(Failure::new(FAILED, "skill_install_cut_off", "the daemon did not say how the installation ended", None))
}

/// Says what was installed, and what is missing before its tools can be called.
fn installed(context: &Context, info: &Value) -> Result<(), Failure> {
    if context.json() {
        return output::json(info);
    }
    if text(info, "/runtime_status") == "quarantined" {
        let reason = safe(text(info, "/reason"));
        say!(
            "{} {} {} is installed and quarantined: {reason}",
            styled(WARN, "!"),
            safe(text(info, "/skill")),
            safe(text(info, "/version"))
        );
        return Ok(());
    }
    done(context, info, "is installed and eligible")?;
    let tools = info["tools_listed"].as_array().map_or(&[][..], Vec::as_slice);
    for tool in tools {
        let allowed = tool["allowed"].as_bool().unwrap_or(false);
        let hint = if allowed { "" } else { "  not in `allowed_tools` of palyra.toml, so policy denies it" };
        say!("  {}{}", safe(text(tool, "/name")), styled(WARN, hint));
    }
    for withheld in info.pointer("/grant/withheld").and_then(Value::as_array).into_iter().flatten() {
        say!("  {} {}", styled(WARN, "withheld"), show::withheld(withheld));
    }
    Ok(())
}

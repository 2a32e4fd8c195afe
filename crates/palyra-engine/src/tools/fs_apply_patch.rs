//! `palyra.fs.apply_patch`: applies a unified diff to the workspace, all of it or nothing.

use super::outside::Elsewhere;
use super::schema::{count, effect, list_of, notes, object, part};
use super::{Executing, Input, Job, Made, Place, Prepared, Tool};
use crate::file_threads::Lane;
use crate::flow::execute::Running;
use crate::flow::resolve::Refusal;
use palyra_protocol::review::ReviewedChange;
use palyra_protocol::{ExecutorKind, Facets, RiskLevel, ToolCapability, ToolDefinition};
use palyra_workspace::{FileError, PatchPlan, ResolvedPath};
use serde_json::json;
use std::sync::Arc;

pub(super) const NAME: &str = "palyra.fs.apply_patch";

#[derive(Debug)]
struct FsApplyPatch(ToolDefinition);

pub(super) fn tool() -> Made {
    let file = part(
        json!({
            "path": { "type": "string" }, "change": { "enum": ["created", "modified", "deleted", "renamed"] },
            "renamed_from": { "type": "string" }, "added": count("lines"), "removed": count("lines"),
            "relocated_hunks": count("hunks that stood at another line than the patch named"),
        }),
        &["renamed_from"],
    );
    Ok(Arc::new(FsApplyPatch(ToolDefinition {
        name: NAME.parse()?,
        summary: "Apply a unified diff to the workspace".to_owned(),
        description:
            "Applies a unified diff over any number of files: all of it or nothing. Context must match exactly."
                .to_owned(),
        input_schema: object(
            json!({ "patch": { "type": "string", "minLength": 1, "description": "a unified diff, as `git diff` prints it" } }),
            &["patch"],
        ),
        output_schema: object(json!({ "files": list_of(file), "effect": effect(), "notes": notes() }), &["files"]),
        capabilities: [ToolCapability::FilesystemWrite].into(),
        risk: RiskLevel::Medium,
        executor: ExecutorKind::Builtin,
        example: json!({ "patch": "--- /dev/null\n+++ b/hello.txt\n@@ -0,0 +1 @@\n+hello\n" }),
    })))
}

impl Tool for FsApplyPatch {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, place: &Place<'_>) -> Result<Prepared, Refusal> {
        let patch = input.text("/patch");
        let keeps = place.keeps();
        let planned = match keeps {
            true => place.workspace.plan_guarded_patch(patch),
            false => place.workspace.plan_patch(patch),
        };
        if let Some(prepared) = planned.as_ref().err().and_then(|error| outside(error, patch, place)) {
            return Ok(prepared);
        }
        let plan = planned.map_err(|error| {
            let paths_written = place.workspace.patch_whereabouts(patch);
            Refusal::from(error).reaching(Facets { paths_written, ..Facets::default() })
        })?;
        let texts = |paths: &[&ResolvedPath]| paths.iter().map(|path| path.as_str().to_owned()).collect();
        let facets = Facets {
            paths_read: texts(&plan.paths_read()),
            paths_written: texts(&plan.paths_written().all()),
            ..Facets::default()
        };
        if !keeps {
            // Nothing can wait for consent, so nothing guarded is written.
            place.refuse_guarded(&facets, None)?;
        }
        Ok(Prepared::new(facets, Patch { plan, keeps }))
    }

    /// The patch itself: its context has to match exactly, so that it says what changes.
    fn changes(&self, input: Input<'_>, facets: &Facets, _place: &Place<'_>) -> Vec<ReviewedChange> {
        vec![ReviewedChange {
            paths: facets.paths_written.clone(),
            diff: Some(input.text("/patch").to_owned()),
            cut: false,
            note: None,
            shows: Some("patch".to_owned()),
        }]
    }
}

/// A patch of one file outside the workspace, where calls may ask for that.
fn outside(error: &FileError, patch: &str, place: &Place<'_>) -> Option<Prepared> {
    if !matches!(error, FileError::Outside { .. }) {
        return None;
    }
    let named = patch.lines().find_map(|line| line.strip_prefix("+++ "))?;
    let file = place.outside_to_write(named.split('\t').next()?.trim_end())?;
    let (directory, path) = file.opened.clone()?;
    let plan = directory.plan_patch(patch).ok()?;
    let (read, written) = (plan.paths_read(), plan.paths_written());
    let alone = read.into_iter().chain(written.all()).all(|touched| *touched == path);
    alone.then(|| Prepared::new(file.written(), PatchOutside { file, plan }))
}

/// A patch of a file outside the workspace.
#[derive(Debug)]
struct PatchOutside {
    file: Elsewhere,
    plan: PatchPlan,
}

impl Job for PatchOutside {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        let Self { file, plan } = *self;
        Box::pin(run.with_files_outside(Lane::Short, file, move |(directory, _path), errand| {
            let mut output = json!(directory.apply_patch(plan, errand)?);
            output["notes"] = json!(["outside the workspace nothing is kept: `palyra undo` cannot put it back"]);
            Ok(output)
        }))
    }
}

/// A patch to apply.
#[derive(Debug)]
struct Patch {
    plan: PatchPlan,
    /// Whether what it replaces is kept.
    keeps: bool,
}

impl Job for Patch {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        let Self { plan, keeps } = *self;
        if keeps {
            return Box::pin(run.with_changes(move |workspace, errand, store| {
                let (changes, outcome) = workspace.stage_patch(plan, errand, store)?;
                Ok((changes, json!(outcome)))
            }));
        }
        Box::pin(run.with_files(Lane::Short, move |workspace, errand| Ok(json!(workspace.apply_patch(plan, errand)?))))
    }
}

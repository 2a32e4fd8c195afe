//! `palyra.fs.apply_patch`: applies a unified diff to the workspace, all of it or nothing.

use super::schema::{count, list_of, object, part};
use super::{Executing, Input, Job, Made, Place, Prepared, Tool};
use crate::file_threads::Lane;
use crate::flow::execute::Running;
use crate::flow::resolve::Refusal;
use palyra_protocol::{ExecutorKind, Facets, RiskLevel, ToolCapability, ToolDefinition};
use palyra_workspace::{PatchPlan, ResolvedPath};
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
        output_schema: object(json!({ "files": list_of(file) }), &["files"]),
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
        let plan = place.workspace.plan_patch(patch).map_err(|error| {
            let paths_written = place.workspace.patch_whereabouts(patch);
            Refusal::from(error).reaching(Facets { paths_written, ..Facets::default() })
        })?;
        let texts = |paths: &[&ResolvedPath]| paths.iter().map(|path| path.as_str().to_owned()).collect();
        let facets = Facets {
            paths_read: texts(&plan.paths_read()),
            paths_written: texts(&plan.paths_written().all()),
            ..Facets::default()
        };
        Ok(Prepared::new(facets, Patch(plan)))
    }
}

/// A patch to apply.
#[derive(Debug)]
struct Patch(PatchPlan);

impl Job for Patch {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(
            run.with_files(Lane::Short, move |workspace, errand| Ok(json!(workspace.apply_patch(self.0, errand)?))),
        )
    }
}

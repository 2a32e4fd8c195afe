//! `palyra.fs.list`: lists a directory of the workspace, and what is below it as far as asked.

use super::outside::{Elsewhere, Spot};
use super::schema::{count, list_of, object, part, path};
use super::{Executing, Input, Job, Made, Place, Prepared, Tool};
use crate::file_threads::Lane;
use crate::flow::execute::Running;
use crate::flow::resolve::Refusal;
use palyra_protocol::{ExecutorKind, Facets, RiskLevel, ToolDefinition};
use palyra_workspace::{ListOptions, ResolvedPath};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const NAME: &str = "palyra.fs.list";

#[derive(Debug)]
struct FsList(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(FsList(ToolDefinition {
        name: NAME.parse()?,
        summary: "List a directory of the workspace".to_owned(),
        description:
            "Lists what is in a directory, sorted by path. Symbolic links are shown, never followed. With a `depth` of more than \
             1, what `.gitignore` and `.ignore` files name is left out and counted, and `.git` is not entered."
                .to_owned(),
        input_schema: object(
            json!({
                "path": path("the directory, relative to the workspace; its root when absent"),
                "depth": { "type": "integer", "minimum": 1, "maximum": 32, "description": "how many levels; 1 when absent" },
                "max_entries": { "type": "integer", "minimum": 1, "maximum": 10_000 },
                "include_ignored": { "type": "boolean", "description": "list also what ignore files name, and what is in `.git`" },
            }),
            &[],
        ),
        output_schema: output(),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({ "path": "." }),
    })))
}

fn output() -> Value {
    let entry = part(
        json!({
            "path": { "type": "string" }, "kind": { "enum": ["file", "directory", "symlink", "other"] },
            "size": count("in bytes"),
            "modified_ms": { "type": "integer", "description": "since 1970" },
            "lossy_name": { "type": "boolean", "description": "a name on the path is not UTF-8, so that `path` does not open it" },
        }),
        &[],
    );
    object(
        json!({
            "entries": list_of(entry),
            "truncated": { "type": "boolean", "description": "there is more than was returned" },
            "unreadable": count("directories and ignore files that could not be read"),
            "skipped_ignored": count("entries that ignore files name"),
        }),
        &["entries", "truncated", "unreadable", "skipped_ignored"],
    )
}

impl Tool for FsList {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, place: &Place<'_>) -> Result<Prepared, Refusal> {
        let mut options = ListOptions { include_ignored: input.flag("/include_ignored"), ..ListOptions::default() };
        options.depth = input.count("/depth").unwrap_or(options.depth);
        options.max_entries = input.count("/max_entries").unwrap_or(options.max_entries);
        let path = match place.spot(input, "/path")? {
            Spot::Inside(path) => path,
            Spot::Outside(directory) => {
                return Ok(Prepared::new(directory.facets(), ListOutside { directory, options }));
            }
        };
        let mut facets = Facets { paths_read: vec![path.as_str().to_owned()], ..Facets::default() };
        if options.depth > 1 {
            facets.trees_read.push(path.as_str().to_owned());
        }
        Ok(Prepared::new(facets, List { path, options }))
    }
}

/// A directory to list.
#[derive(Debug)]
struct List {
    path: ResolvedPath,
    options: ListOptions,
}

impl Job for List {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        let Self { path, options } = *self;
        Box::pin(run.with_files(Lane::Short, move |workspace, errand| {
            Ok(json!(workspace.list(&path, options, errand.stop)?))
        }))
    }
}

/// A directory outside the workspace.
#[derive(Debug)]
struct ListOutside {
    directory: Elsewhere,
    options: ListOptions,
}

impl Job for ListOutside {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        let Self { directory, options } = *self;
        Box::pin(run.with_files_outside(Lane::Short, directory, move |(directory, path), errand| {
            Ok(json!(directory.list(&path, options, errand.stop)?))
        }))
    }
}

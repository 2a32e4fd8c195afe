//! `palyra.fs.search`: finds lines in the workspace's files.

use super::outside::{Elsewhere, Spot};
use super::schema::{count, list_of, object, part, path};
use super::{Executing, Input, Job, Made, Place, Prepared, Tool};
use crate::file_threads::Lane;
use crate::flow::execute::Running;
use crate::flow::resolve::Refusal;
use palyra_protocol::{ExecutorKind, Facets, RiskLevel, ToolDefinition};
use palyra_workspace::{PatternSyntax, SearchQuery};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const NAME: &str = "palyra.fs.search";

/// How many matches are returned when a caller does not say.
const DEFAULT_MATCHES: usize = 100;

#[derive(Debug)]
struct FsSearch(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(FsSearch(ToolDefinition {
        name: NAME.parse()?,
        summary: "Search the workspace's files".to_owned(),
        description:
            "Finds lines that contain a text or match a regular expression. What `.gitignore` and `.ignore` files name, binary \
             and very large files, and those that hold secrets, are skipped and counted; very long lines are searched in overlapping pieces."
                .to_owned(),
        input_schema: input(),
        output_schema: output(),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({ "pattern": "TODO", "glob": "*.rs" }),
    })))
}

fn input() -> Value {
    object(
        json!({
            "pattern": { "type": "string", "minLength": 1, "maxLength": 4096, "description": "what to look for" },
            "regex": { "type": "boolean", "description": "read the pattern as a regular expression" },
            "case_insensitive": { "type": "boolean" },
            "path": path("where to look; the whole workspace when absent"),
            "glob": { "type": "string", "maxLength": 1024, "description": "only files that match, like `*.rs`" },
            "include_ignored": {
                "type": "boolean",
                "description": "search also what ignore files name; a `path` that names such a place is searched anyway",
            },
            "max_matches": { "type": "integer", "minimum": 1, "maximum": 1000 },
            "context_lines": { "type": "integer", "minimum": 0, "maximum": 5 },
        }),
        &["pattern"],
    )
}

fn output() -> Value {
    let found = part(
        json!({
            "path": { "type": "string" }, "line_number": { "type": "integer", "minimum": 1 },
            "line": { "type": "string" },
            "line_truncated": { "type": "boolean", "description": "`line` is only the part around the match" },
            "before": list_of(json!({ "type": "string" })), "after": list_of(json!({ "type": "string" })),
        }),
        &["before", "after"],
    );
    object(
        json!({
            "matches": list_of(found),
            "truncated": { "type": "boolean", "description": "a limit ended the search: there may be more" },
            "files_searched": count("files that were opened"),
            "skipped_binary": count("of these, files that are not text"),
            "skipped_large": count("files that are too large to be searched"),
            "skipped_ignored": count("files and directories that ignore files name"),
            "skipped_secret": count("files that hold secrets; a `path` that names one is asked about"),
            "lines_in_pieces": count("lines so long that a match of many thousand bytes may be missed in them"),
            "unreadable": count("files, directories and ignore files that could not be read"),
        }),
        &[
            "matches",
            "truncated",
            "files_searched",
            "skipped_binary",
            "skipped_large",
            "skipped_ignored",
            "skipped_secret",
            "lines_in_pieces",
            "unreadable",
        ],
    )
}

impl Tool for FsSearch {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, place: &Place<'_>) -> Result<Prepared, Refusal> {
        let spot = place.spot(input, "/path")?;
        let (path, facets, tree) = match spot {
            Spot::Inside(path) => {
                let read = vec![path.as_str().to_owned()];
                (path, Facets { paths_read: read.clone(), trees_read: read, ..Facets::default() }, None)
            }
            // The tree's own path takes this place when it is searched.
            Spot::Outside(tree) => (place.workspace.resolve(".")?, tree.facets(), Some(tree)),
        };
        let query = SearchQuery {
            pattern: input.text("/pattern").to_owned(),
            syntax: if input.flag("/regex") { PatternSyntax::Regex } else { PatternSyntax::Literal },
            path,
            glob: input.optional("/glob").map(str::to_owned),
            include_ignored: input.flag("/include_ignored"),
            case_insensitive: input.flag("/case_insensitive"),
            max_matches: input.count("/max_matches").unwrap_or(DEFAULT_MATCHES),
            context_lines: input.count("/context_lines").unwrap_or(0),
        };
        Ok(match tree {
            None => Prepared::new(facets, Search(query)),
            Some(tree) => Prepared::new(facets, SearchOutside { tree, query }),
        })
    }
}

/// Something to look for.
#[derive(Debug)]
struct Search(SearchQuery);

impl Job for Search {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        Box::pin(
            run.with_files(Lane::Search, move |workspace, errand| Ok(json!(workspace.search(&self.0, errand.stop)?))),
        )
    }
}

/// Something to look for outside the workspace.
#[derive(Debug)]
struct SearchOutside {
    tree: Elsewhere,
    query: SearchQuery,
}

impl Job for SearchOutside {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        let Self { tree, query } = *self;
        Box::pin(run.with_files_outside(Lane::Search, tree, move |(directory, path), errand| {
            Ok(json!(directory.search(&SearchQuery { path, ..query }, errand.stop)?))
        }))
    }
}

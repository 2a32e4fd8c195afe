//! `palyra.fs.read`: reads a regular file of the workspace.

use super::input::printable;
use super::outside::{Elsewhere, Spot};
use super::schema::{object, path};
use super::{Executing, Input, Job, Made, Place, Prepared, Tool};
use crate::file_threads::Lane;
use crate::flow::execute::Running;
use crate::flow::resolve::Refusal;
use palyra_protocol::{ExecutorKind, Facets, RiskLevel, ToolDefinition};
use palyra_workspace::{FileContent, ReadRange, ResolvedPath};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) const NAME: &str = "palyra.fs.read";

#[derive(Debug)]
struct FsRead(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(FsRead(ToolDefinition {
        name: NAME.parse()?,
        summary: "Read a file of the workspace".to_owned(),
        description:
            "Reads a regular file beneath the workspace. Text comes as it is; other bytes come as base64. Large files are \
             read in parts with `offset` and `limit`, and `truncated` says when there is more."
                .to_owned(),
        input_schema: object(
            json!({
                "path": path("the file, relative to the workspace"),
                "offset": { "type": "integer", "minimum": 0, "description": "the first byte to read" },
                "limit": { "type": "integer", "minimum": 1, "maximum": 1_048_576, "description": "the most bytes to read" },
            }),
            &["path"],
        ),
        output_schema: object(
            json!({
                "path": { "type": "string" }, "content": { "type": "string" },
                "encoding": { "enum": ["utf-8", "base64"] },
                "total_bytes": { "type": "integer" }, "truncated": { "type": "boolean" },
                "sha256": { "type": ["string", "null"], "description": "of the whole file, also when only a part of it was read; null above 64 MiB" },
            }),
            &["path", "content", "encoding", "total_bytes", "truncated"],
        ),
        capabilities: [].into(),
        risk: RiskLevel::Low,
        executor: ExecutorKind::Builtin,
        example: json!({ "path": "README.md" }),
    })))
}

impl Tool for FsRead {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, place: &Place<'_>) -> Result<Prepared, Refusal> {
        let mut range = ReadRange::default();
        range.offset = input.number("/offset").unwrap_or(range.offset);
        range.limit = input.count("/limit").unwrap_or(range.limit);
        match place.spot(input, "/path")? {
            Spot::Inside(path) => {
                let facets = Facets { paths_read: vec![path.as_str().to_owned()], ..Facets::default() };
                Ok(Prepared::new(facets, Read { path, range }))
            }
            Spot::Outside(file) => Ok(Prepared::new(file.facets(), ReadOutside { file, range })),
        }
    }
}

/// A part of a file to read.
#[derive(Debug)]
struct Read {
    path: ResolvedPath,
    range: ReadRange,
}

impl Job for Read {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        let Self { path, range } = *self;
        Box::pin(run.with_files(Lane::Short, move |workspace, _errand| {
            let content = workspace.read(&path, range)?;
            Ok(told(path.as_str(), content))
        }))
    }
}

/// A part of a file outside the workspace.
#[derive(Debug)]
struct ReadOutside {
    file: Elsewhere,
    range: ReadRange,
}

impl Job for ReadOutside {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        let Self { file, range } = *self;
        let shown = file.shown.clone();
        Box::pin(run.with_files_outside(Lane::Short, file, move |(directory, path), _errand| {
            Ok(told(&shown, directory.read(&path, range)?))
        }))
    }
}

fn told(path: &str, content: FileContent) -> Value {
    let (text, encoding) = printable(content.bytes);
    json!({
        "path": path, "content": text, "encoding": encoding, "total_bytes": content.total_bytes,
        "truncated": content.truncated, "sha256": content.sha256_hex,
    })
}

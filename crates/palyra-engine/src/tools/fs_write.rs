//! `palyra.fs.write`: writes a whole file of the workspace, atomically.

use super::outside::Elsewhere;
use super::schema::{effect, notes, object, path};
use super::{Executing, Input, Job, Made, Place, Prepared, Tool};
use crate::file_threads::Lane;
use crate::flow::execute::Running;
use crate::flow::resolve::Refusal;
use palyra_protocol::review::ReviewedChange;
use palyra_protocol::{ExecutorKind, Facets, RiskLevel, ToolCapability, ToolDefinition};
use palyra_workspace::{ResolvedPath, WriteDifference, WriteOptions};
use serde_json::json;
use std::sync::Arc;

pub(super) const NAME: &str = "palyra.fs.write";

#[derive(Debug)]
struct FsWrite(ToolDefinition);

pub(super) fn tool() -> Made {
    Ok(Arc::new(FsWrite(ToolDefinition {
        name: NAME.parse()?,
        summary: "Write a file of the workspace".to_owned(),
        description:
            "Writes a whole file, atomically: readers see the old file or the new one. With `expected_sha256` it writes \
             only over the content you have read, with `must_not_exist` only where nothing is."
                .to_owned(),
        input_schema: object(
            json!({
                "path": path("the file, relative to the workspace"),
                "content": { "type": "string", "description": "the new content" },
                "encoding": { "enum": ["utf-8", "base64"], "description": "how `content` is written; utf-8 when absent" },
                "create_parents": { "type": "boolean", "description": "make missing directories" },
                "expected_sha256": { "type": "string", "pattern": "^[0-9a-f]{64}$" },
                "must_not_exist": { "type": "boolean" },
            }),
            &["path", "content"],
        ),
        output_schema: object(
            json!({
                "path": { "type": "string" }, "bytes": { "type": "integer" },
                "sha256": { "type": "string" }, "created": { "type": "boolean" },
                "effect": effect(), "notes": notes(),
            }),
            &["path", "bytes", "sha256", "created"],
        ),
        capabilities: [ToolCapability::FilesystemWrite].into(),
        risk: RiskLevel::Medium,
        executor: ExecutorKind::Builtin,
        example: json!({ "path": "notes.txt", "content": "remember the milk\n" }),
    })))
}

impl Tool for FsWrite {
    fn definition(&self) -> &ToolDefinition {
        &self.0
    }

    fn prepare(&self, input: Input<'_>, place: &Place<'_>) -> Result<Prepared, Refusal> {
        let path = match place.path(input, "/path", |facets, path| facets.paths_written.push(path)) {
            Ok(path) => path,
            Err(refusal) => return outside(input, place, refusal),
        };
        let facets = Facets { paths_written: vec![path.as_str().to_owned()], ..Facets::default() };
        let content = input.bytes("/content", "/encoding")?;
        let keeps = place.keeps();
        if !keeps {
            // Nothing can wait for consent, so nothing guarded is written.
            path.refuse_protected().map_err(|error| Refusal::from(error).reaching(facets.clone()))?;
            place.refuse_guarded(&facets, Some(&content))?;
        }
        Ok(Prepared::new(facets, Write { path, content, options: options(input), keeps }))
    }

    fn changes(&self, input: Input<'_>, facets: &Facets, place: &Place<'_>) -> Vec<ReviewedChange> {
        let ([path], Ok(content)) = (facets.paths_written.as_slice(), input.bytes("/content", "/encoding")) else {
            return Vec::new();
        };
        let (diff, note) = match place.workspace.write_difference(path, &content) {
            Ok(WriteDifference::Text(diff)) => (Some(diff), None),
            Ok(WriteDifference::Same) => (None, Some("the file has this content already".to_owned())),
            Ok(WriteDifference::Opaque { old: None }) => (None, Some(format!("a new file of {} bytes", content.len()))),
            Ok(WriteDifference::Opaque { old: Some(old) }) => {
                let note = format!("no difference can be shown: {old} bytes would become {} bytes", content.len());
                (None, Some(note))
            }
            Err(error) => (None, Some(format!("no difference can be shown: {error}"))),
        };
        let shows = diff.is_some().then(|| "content".to_owned());
        vec![ReviewedChange { paths: vec![path.clone()], diff, cut: false, note, shows }]
    }
}

/// A file outside the workspace, where calls may ask for that; the refusal otherwise.
fn outside(input: Input<'_>, place: &Place<'_>, refusal: Refusal) -> Result<Prepared, Refusal> {
    let is_outside = refusal.problem.code == "path_outside_workspace";
    let Some(file) = is_outside.then(|| place.outside_to_write(input.text("/path"))).flatten() else {
        return Err(refusal);
    };
    let content = input.bytes("/content", "/encoding")?;
    Ok(Prepared::new(file.written(), WriteOutside { file, content, options: options(input) }))
}

fn options(input: Input<'_>) -> WriteOptions {
    WriteOptions {
        create_parents: input.flag("/create_parents"),
        expected_sha256: input.optional("/expected_sha256").map(str::to_owned),
        must_not_exist: input.flag("/must_not_exist"),
    }
}

/// A file to write outside the workspace.
#[derive(Debug)]
struct WriteOutside {
    file: Elsewhere,
    content: Vec<u8>,
    options: WriteOptions,
}

impl Job for WriteOutside {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        let Self { file, content, options } = *self;
        let shown = file.shown.clone();
        Box::pin(run.with_files_outside(Lane::Short, file, move |(directory, path), errand| {
            let mut output = json!(directory.write(&path, &content, &options, errand)?);
            output["path"] = json!(shown);
            output["notes"] = json!(["outside the workspace nothing is kept: `palyra undo` cannot put it back"]);
            Ok(output)
        }))
    }
}

/// A file to write.
#[derive(Debug)]
struct Write {
    path: ResolvedPath,
    content: Vec<u8>,
    options: WriteOptions,
    /// Whether what it replaces is kept.
    keeps: bool,
}

impl Job for Write {
    fn execute<'r>(self: Box<Self>, run: &'r Running<'_>) -> Executing<'r> {
        let Self { path, content, options, keeps } = *self;
        if keeps {
            return Box::pin(run.with_changes(move |workspace, errand, store| {
                let (changes, written) = workspace.stage_write((&path, &content, &options), errand, store)?;
                let mut output = json!(written);
                output["path"] = json!(path.as_str());
                Ok((changes, output))
            }));
        }
        Box::pin(run.with_files(Lane::Short, move |workspace, errand| {
            let mut output = json!(workspace.write(&path, &content, &options, errand)?);
            output["path"] = json!(path.as_str());
            Ok(output)
        }))
    }
}

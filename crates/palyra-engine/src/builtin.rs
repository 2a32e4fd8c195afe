//! The built-in tools, each defined once.
//!
//! A definition here is all there is: validation, policy context, listings, help and published schemas are derived from
//! it. What a tool does with its input is in [`crate::work`].

use palyra_protocol::{ExecutorKind, FacetRule, RiskLevel, ToolCapability, ToolDefinition, ToolName};
use serde_json::{Value, json};

/// The names of the built-in tools.
pub mod names {
    /// Returns its input.
    pub const ECHO: &str = "palyra.echo";
    /// Waits.
    pub const SLEEP: &str = "palyra.sleep";
    /// Reads a file.
    pub const FS_READ: &str = "palyra.fs.read";
    /// Lists a directory.
    pub const FS_LIST: &str = "palyra.fs.list";
    /// Searches files.
    pub const FS_SEARCH: &str = "palyra.fs.search";
    /// Writes a file.
    pub const FS_WRITE: &str = "palyra.fs.write";
    /// Applies a unified diff.
    pub const FS_APPLY_PATCH: &str = "palyra.fs.apply_patch";
    /// Runs a program.
    pub const PROCESS_RUN: &str = "palyra.process.run";
    /// Fetches a URL.
    pub const HTTP_FETCH: &str = "palyra.http.fetch";

    /// All of them, in the order of their listing.
    pub const ALL: [&str; 9] =
        [ECHO, SLEEP, FS_READ, FS_LIST, FS_SEARCH, FS_WRITE, FS_APPLY_PATCH, PROCESS_RUN, HTTP_FETCH];
}

/// The longest that `palyra.sleep` waits.
pub const MAX_SLEEP_MS: u64 = 600_000;

/// The most that `palyra.http.fetch` brings back: outputs are kept in the journal.
pub const MAX_FETCH_BYTES: usize = 4 << 20;

/// Every built-in tool.
///
/// # Errors
/// A name is malformed, which the tests rule out.
pub fn definitions() -> Result<Vec<ToolDefinition>, palyra_protocol::tool::ToolNameError> {
    [echo, sleep, fs_read, fs_list, fs_search, fs_write, fs_apply_patch, process_run, http_fetch]
        .into_iter()
        .map(|define| define())
        .collect()
}

type Defined = Result<ToolDefinition, palyra_protocol::tool::ToolNameError>;

fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// What is inside an output: every field named, and all of them there but those that are `optional`.
fn part(properties: Value, optional: &[&str]) -> Value {
    let named = properties.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let required: Vec<_> = named.filter(|name| !optional.contains(name)).collect();
    json!({ "type": "object", "required": required, "properties": properties, "additionalProperties": false })
}

fn list_of(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn count(description: &str) -> Value {
    json!({ "type": "integer", "minimum": 0, "description": description })
}

fn path(description: &str) -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 4096, "description": description })
}

/// A tool that can only look: no capability, low risk.
fn read_only(name: &str, summary: &str, description: &str) -> Result<Draft, palyra_protocol::tool::ToolNameError> {
    Ok(Draft { name: name.parse()?, summary: summary.to_owned(), description: description.to_owned() })
}

struct Draft {
    name: ToolName,
    summary: String,
    description: String,
}

impl Draft {
    fn with(self, input_schema: Value, output_schema: Value, facets: Vec<FacetRule>, example: Value) -> ToolDefinition {
        ToolDefinition {
            name: self.name,
            summary: self.summary,
            description: self.description,
            input_schema,
            output_schema,
            capabilities: [].into(),
            risk: RiskLevel::Low,
            executor: ExecutorKind::Builtin,
            facets,
            example,
        }
    }
}

fn echo() -> Defined {
    Ok(read_only(names::ECHO, "Return the text that was sent", "Returns its input unchanged. Useful to try the path.")?
        .with(
            object(json!({ "text": { "type": "string", "description": "what to return" } }), &["text"]),
            object(json!({ "text": { "type": "string" } }), &["text"]),
            vec![],
            json!({ "text": "hello" }),
        ))
}

fn sleep() -> Defined {
    Ok(read_only(names::SLEEP, "Wait for a while", "Waits for the given time and returns. It can be cancelled.")?.with(
        object(
            json!({ "duration_ms": {
                "type": "integer", "minimum": 0, "maximum": MAX_SLEEP_MS, "description": "how long to wait"
            } }),
            &["duration_ms"],
        ),
        object(json!({ "slept_ms": { "type": "integer" } }), &["slept_ms"]),
        vec![],
        json!({ "duration_ms": 10 }),
    ))
}

fn fs_read() -> Defined {
    Ok(read_only(
        names::FS_READ,
        "Read a file of the workspace",
        "Reads a regular file beneath the workspace. Text comes as it is; other bytes come as base64. Large files are \
         read in parts with `offset` and `limit`, and `truncated` says when there is more.",
    )?
    .with(
        object(
            json!({
                "path": path("the file, relative to the workspace"),
                "offset": { "type": "integer", "minimum": 0, "description": "the first byte to read" },
                "limit": { "type": "integer", "minimum": 1, "maximum": 1_048_576, "description": "the most bytes to read" },
            }),
            &["path"],
        ),
        object(
            json!({
                "path": { "type": "string" }, "content": { "type": "string" },
                "encoding": { "enum": ["utf-8", "base64"] },
                "total_bytes": { "type": "integer" }, "truncated": { "type": "boolean" },
                "sha256": { "type": ["string", "null"], "description": "of the whole file, also when only a part of it was read; null above 64 MiB" },
            }),
            &["path", "content", "encoding", "total_bytes", "truncated"],
        ),
        vec![FacetRule::PathRead("/path")],
        json!({ "path": "README.md" }),
    ))
}

fn fs_list() -> Defined {
    let entry = part(
        json!({
            "path": { "type": "string" }, "kind": { "enum": ["file", "directory", "symlink", "other"] },
            "size": count("in bytes"),
            "modified_ms": { "type": "integer", "description": "since 1970" },
            "lossy_name": { "type": "boolean", "description": "a name on the path is not UTF-8, so that `path` does not open it" },
        }),
        &[],
    );
    Ok(read_only(
        names::FS_LIST,
        "List a directory of the workspace",
        "Lists what is in a directory, sorted by path. Symbolic links are shown, never followed. With a `depth` of more than \
         1, what `.gitignore` and `.ignore` files name is left out and counted, and `.git` is not entered.",
    )?
    .with(
        object(
            json!({
                "path": path("the directory, relative to the workspace; its root when absent"),
                "depth": { "type": "integer", "minimum": 1, "maximum": 32, "description": "how many levels; 1 when absent" },
                "max_entries": { "type": "integer", "minimum": 1, "maximum": 10_000 },
                "include_ignored": { "type": "boolean", "description": "list also what ignore files name, and what is in `.git`" },
            }),
            &[],
        ),
        object(
            json!({
                "entries": list_of(entry),
                "truncated": { "type": "boolean", "description": "there is more than was returned" },
                "unreadable": count("directories and ignore files that could not be read"),
                "skipped_ignored": count("entries that ignore files name"),
            }),
            &["entries", "truncated", "unreadable", "skipped_ignored"],
        ),
        vec![FacetRule::Listed { path: "/path", depth: "/depth" }],
        json!({ "path": "." }),
    ))
}

fn fs_search() -> Defined {
    let found = part(
        json!({
            "path": { "type": "string" }, "line_number": { "type": "integer", "minimum": 1 },
            "line": { "type": "string" },
            "line_truncated": { "type": "boolean", "description": "`line` is only the part around the match" },
            "before": list_of(json!({ "type": "string" })), "after": list_of(json!({ "type": "string" })),
        }),
        &["before", "after"],
    );
    Ok(read_only(
        names::FS_SEARCH,
        "Search the workspace's files",
        "Finds lines that contain a text or match a regular expression. What `.gitignore` and `.ignore` files name, binary \
         and very large files are skipped and counted; very long lines are searched in overlapping pieces.",
    )?
    .with(
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
        ),
        object(
            json!({
                "matches": list_of(found),
                "truncated": { "type": "boolean", "description": "a limit ended the search: there may be more" },
                "files_searched": count("files that were opened"),
                "skipped_binary": count("of these, files that are not text"),
                "skipped_large": count("files that are too large to be searched"),
                "skipped_ignored": count("files and directories that ignore files name"),
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
                "lines_in_pieces",
                "unreadable",
            ],
        ),
        vec![FacetRule::TreeRead("/path")],
        json!({ "pattern": "TODO", "glob": "*.rs" }),
    ))
}

fn fs_write() -> Defined {
    Ok(ToolDefinition {
        capabilities: [ToolCapability::FilesystemWrite].into(),
        risk: RiskLevel::Medium,
        ..read_only(
            names::FS_WRITE,
            "Write a file of the workspace",
            "Writes a whole file, atomically: readers see the old file or the new one. With `expected_sha256` it writes \
             only over the content you have read, with `must_not_exist` only where nothing is.",
        )?
        .with(
            object(
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
            object(
                json!({
                    "path": { "type": "string" }, "bytes": { "type": "integer" },
                    "sha256": { "type": "string" }, "created": { "type": "boolean" },
                }),
                &["path", "bytes", "sha256", "created"],
            ),
            vec![FacetRule::PathWritten("/path")],
            json!({ "path": "notes.txt", "content": "remember the milk\n" }),
        )
    })
}

fn fs_apply_patch() -> Defined {
    let file = part(
        json!({
            "path": { "type": "string" }, "change": { "enum": ["created", "modified", "deleted", "renamed"] },
            "renamed_from": { "type": "string" }, "added": count("lines"), "removed": count("lines"),
            "relocated_hunks": count("hunks that stood at another line than the patch named"),
        }),
        &["renamed_from"],
    );
    Ok(ToolDefinition {
        capabilities: [ToolCapability::FilesystemWrite].into(),
        risk: RiskLevel::Medium,
        ..read_only(
            names::FS_APPLY_PATCH,
            "Apply a unified diff to the workspace",
            "Applies a unified diff over any number of files: all of it or nothing. Context must match exactly.",
        )?
        .with(
            object(
                json!({ "patch": { "type": "string", "minLength": 1, "description": "a unified diff, as `git diff` prints it" } }),
                &["patch"],
            ),
            object(json!({ "files": list_of(file) }), &["files"]),
            vec![FacetRule::PatchTargets("/patch")],
            json!({ "patch": "--- /dev/null\n+++ b/hello.txt\n@@ -0,0 +1 @@\n+hello\n" }),
        )
    })
}

/// What is told about a program's connections.
fn connections() -> Value {
    let denial = json!({
        "type": "object",
        "properties": {
            "code": { "type": "string" }, "host": { "type": "string" }, "port": { "type": "integer" },
            "message": { "type": "string" }, "hint": { "type": "string" },
        },
        "required": ["code", "message", "hint"],
    });
    json!({
        "type": "object", "description": "connections through the filtering proxy",
        "properties": {
            "allowed": { "type": "integer" }, "denied": { "type": "integer" },
            "denials": {
                "type": "array", "items": denial, "description": "why connections were denied, and what to ask for",
            },
            "further_denials": { "type": "integer", "description": "denied connections that are not among those" },
        },
    })
}

fn process_run() -> Defined {
    let stream = json!({ "type": "string" });
    Ok(ToolDefinition {
        capabilities: [ToolCapability::ProcessExec].into(),
        risk: RiskLevel::High,
        executor: ExecutorKind::Process,
        ..read_only(
            names::PROCESS_RUN,
            "Run a program in the sandbox",
            "Runs one program with its arguments, without a shell, in the configured tier. Both output streams come back \
             whatever the exit code; a non-zero exit makes the call fail, with its output.",
        )?
        .with(
            object(
                json!({
                    "argv": {
                        "type": "array", "minItems": 1, "maxItems": 1024,
                        "items": { "type": "string", "maxLength": 131_072 },
                        "description": "the program and its arguments, one word each",
                    },
                    "cwd": path("where to run, relative to the workspace; its root when absent"),
                    "stdin": { "type": "string", "description": "what the program reads on standard input" },
                    "env": {
                        "type": "object", "maxProperties": 256, "additionalProperties": { "type": "string", "maxLength": 32_768 },
                        "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" },
                        "description": "further environment variables",
                    },
                    "timeout_ms": { "type": "integer", "minimum": 1, "description": "a shorter limit than the configured one" },
                    "requested_egress_hosts": {
                        "type": "array", "maxItems": 256, "items": { "type": "string", "minLength": 1, "maxLength": 261 },
                        "description": "hosts that the program will need, `example.org` or `example.org:443`; the operator's list must allow them",
                    },
                }),
                &["argv"],
            ),
            object(
                json!({
                    "exit_code": { "type": ["integer", "null"] }, "signal": { "type": ["integer", "null"] },
                    "ended_by": { "type": ["string", "null"], "description": "the limit that ended it" },
                    "stdout": stream, "stdout_encoding": { "enum": ["utf-8", "base64"] },
                    "stdout_total_bytes": { "type": "integer" }, "stdout_truncated": { "type": "boolean" },
                    "stderr": stream, "stderr_encoding": { "enum": ["utf-8", "base64"] },
                    "stderr_total_bytes": { "type": "integer" }, "stderr_truncated": { "type": "boolean" },
                    "duration_ms": { "type": "integer" }, "cpu_time_ms": { "type": "integer" },
                    "peak_memory_bytes": { "type": "integer" },
                    "set_aside": {
                        "type": "array", "items": { "type": "string" },
                        "description": "new files that would run as code later, under the names they were given: `.envrc.held`",
                    },
                    "not_set_aside": {
                        "type": "array", "items": { "type": "string" },
                        "description": "such files that could not be renamed and are still there",
                    },
                    "egress": connections(),
                }),
                &["exit_code", "signal", "ended_by", "stdout", "stderr"],
            ),
            vec![
                FacetRule::Argv("/argv"),
                FacetRule::WorkingDirectory("/cwd"),
                FacetRule::Environment("/env"),
                FacetRule::StandardInput("/stdin"),
                FacetRule::RequestedHosts("/requested_egress_hosts"),
            ],
            json!({ "argv": ["ls", "-l"] }),
        )
    })
}

fn http_fetch() -> Defined {
    let field = json!({
        "type": "object", "properties": { "name": { "type": "string" }, "value": { "type": "string" } },
        "required": ["name", "value"],
    });
    let hop = json!({
        "type": "object", "properties": { "status": { "type": "integer" }, "url": { "type": "string" } },
        "required": ["status", "url"],
    });
    Ok(ToolDefinition {
        capabilities: [ToolCapability::Network].into(),
        risk: RiskLevel::High,
        ..read_only(
            names::HTTP_FETCH,
            "Fetch a URL from an allowed host",
            "Sends one HTTP request to a host that the operator allows. Redirects to other allowed hosts are followed with GET and HEAD, \
             if policy allows each of them; credentials never follow to another origin. Any status is a success of the call; `status` says which. Text comes as \
             it is, other bytes as base64, and `truncated` says when there was more.",
        )?
        .with(
            object(
                json!({
                    "url": { "type": "string", "minLength": 1, "maxLength": 8192, "description": "http or https, without a user name" },
                    "method": { "enum": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"], "description": "GET when absent" },
                    "headers": {
                        "type": "object", "maxProperties": 64, "additionalProperties": { "type": "string", "maxLength": 8192 },
                        "description": "further header fields",
                    },
                    "body": { "type": "string", "description": "what to send" },
                    "body_encoding": { "enum": ["utf-8", "base64"], "description": "how `body` is written; utf-8 when absent" },
                    "max_bytes": {
                        "type": "integer", "minimum": 1, "maximum": MAX_FETCH_BYTES,
                        "description": "the most bytes of the answer's body to keep; 262144 when absent",
                    },
                    "max_redirects": { "type": "integer", "minimum": 0, "maximum": 10, "description": "5 when absent" },
                    "timeout_ms": { "type": "integer", "minimum": 1, "description": "30000 when absent; at most the configured limit" },
                }),
                &["url"],
            ),
            object(
                json!({
                    "status": { "type": "integer" },
                    "headers": { "type": "array", "items": field },
                    "body": { "type": "string" }, "body_encoding": { "enum": ["utf-8", "base64"] },
                    "truncated": { "type": "boolean" }, "final_url": { "type": "string" },
                    "redirects": { "type": "array", "items": hop },
                }),
                &["status", "headers", "body", "body_encoding", "truncated", "final_url", "redirects"],
            ),
            vec![FacetRule::Url("/url"), FacetRule::Method("/method")],
            json!({ "url": "https://example.org/" }),
        )
    })
}

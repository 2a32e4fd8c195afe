//! Work: a call's input as something that can be carried out, every path and program resolved.

use crate::builtin::{MAX_FETCH_BYTES, names};
use crate::flow::resolve::{Refusal, Resolver, Targets};
use base64::Engine as _;
use palyra_egress::{FetchLimits, FetchRequest};
use palyra_protocol::{Problem, ToolDefinition};
use palyra_sandbox::{ProcessRequest, ResolvedExecutable};
use palyra_workspace::{ListOptions, PatchPlan, PatternSyntax, ReadRange, ResolvedPath, SearchQuery, WriteOptions};
use serde_json::Value;
use std::time::Duration;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Work {
    Echo { text: String },
    Sleep { duration: Duration },
    Files(FileWork),
    Run(Box<RunWork>),
    Fetch(Box<FetchWork>),
}

/// What is to be done with files.
#[derive(Debug)]
pub(crate) enum FileWork {
    Read { path: ResolvedPath, range: ReadRange },
    List { path: ResolvedPath, options: ListOptions },
    Search(SearchQuery),
    Write { path: ResolvedPath, content: Vec<u8>, options: WriteOptions },
    Patch(PatchPlan),
}

/// A program to run.
#[derive(Debug)]
pub(crate) struct RunWork {
    pub(crate) executable: ResolvedExecutable,
    pub(crate) request: ProcessRequest,
    pub(crate) timeout: Option<Duration>,
}

/// A URL to fetch.
#[derive(Debug)]
pub(crate) struct FetchWork {
    pub(crate) request: FetchRequest,
    pub(crate) limits: FetchLimits,
}

impl Work {
    /// Reads the validated input of a tool.
    pub(crate) fn new(
        definition: &ToolDefinition,
        input: &Value,
        targets: &mut Targets,
        resolver: Resolver<'_>,
    ) -> Result<Self, Refusal> {
        let patch = targets.patch.take();
        let input = Input { value: input, targets };
        Ok(match definition.name.as_str() {
            names::ECHO => Self::Echo { text: input.text("/text").to_owned() },
            names::SLEEP => Self::Sleep { duration: Duration::from_millis(input.number("/duration_ms").unwrap_or(0)) },
            names::FS_READ => Self::Files(FileWork::Read { path: input.path("/path")?, range: input.range() }),
            names::FS_LIST => Self::Files(FileWork::List { path: input.path("/path")?, options: input.list_options() }),
            names::FS_SEARCH => Self::Files(FileWork::Search(input.search_query()?)),
            names::FS_WRITE => Self::Files(input.write()?),
            names::FS_APPLY_PATCH => Self::Files(FileWork::Patch(patch.ok_or_else(|| unbuilt("/patch"))?)),
            names::PROCESS_RUN => Self::Run(Box::new(input.run(resolver)?)),
            names::HTTP_FETCH => Self::Fetch(Box::new(input.fetch(resolver)?)),
            other => return Err(unbuilt(other).into()),
        })
    }
}

fn unbuilt(what: &str) -> Problem {
    Problem::plain("internal", format!("`{what}` is defined but nothing carries it out"))
}

/// A validated input and what its paths resolved to.
struct Input<'a> {
    value: &'a Value,
    targets: &'a Targets,
}

impl Input<'_> {
    fn text(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
    }

    fn optional(&self, pointer: &str) -> Option<String> {
        self.value.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
    }

    fn number(&self, pointer: &str) -> Option<u64> {
        // `1e3` is an integer to the schema and a float to the parser.
        let value = self.value.pointer(pointer)?;
        value.as_u64().or_else(|| value.as_f64().filter(|f| f.fract() == 0.0 && *f >= 0.0).map(|f| f as u64))
    }

    fn count(&self, pointer: &str) -> Option<usize> {
        self.number(pointer).and_then(|n| usize::try_from(n).ok())
    }

    fn flag(&self, pointer: &str) -> bool {
        self.value.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
    }

    fn path(&self, pointer: &str) -> Result<ResolvedPath, Problem> {
        self.targets.paths.get(pointer).cloned().ok_or_else(|| unbuilt(pointer))
    }

    fn range(&self) -> ReadRange {
        let mut range = ReadRange::default();
        range.offset = self.number("/offset").unwrap_or(range.offset);
        range.limit = self.count("/limit").unwrap_or(range.limit);
        range
    }

    fn list_options(&self) -> ListOptions {
        let mut options = ListOptions::default();
        options.depth = self.count("/depth").unwrap_or(options.depth);
        options.max_entries = self.count("/max_entries").unwrap_or(options.max_entries);
        options
    }

    fn search_query(&self) -> Result<SearchQuery, Problem> {
        Ok(SearchQuery {
            pattern: self.text("/pattern").to_owned(),
            syntax: if self.flag("/regex") { PatternSyntax::Regex } else { PatternSyntax::Literal },
            path: self.path("/path")?,
            glob: self.optional("/glob"),
            case_insensitive: self.flag("/case_insensitive"),
            max_matches: self.count("/max_matches").unwrap_or(100),
            context_lines: self.count("/context_lines").unwrap_or(0),
        })
    }

    /// Text as it is, or base64, as the encoding says.
    fn bytes(&self, content: &str, encoding: &str) -> Result<Vec<u8>, Problem> {
        let text = self.text(content);
        match self.text(encoding) {
            "base64" => base64::engine::general_purpose::STANDARD.decode(text).map_err(|e| {
                Problem::plain("content_malformed", format!("`{}` is not base64: {e}", content.trim_start_matches('/')))
            }),
            _ => Ok(text.as_bytes().to_vec()),
        }
    }

    fn write(&self) -> Result<FileWork, Problem> {
        let content = self.bytes("/content", "/encoding")?;
        let options = WriteOptions {
            create_parents: self.flag("/create_parents"),
            expected_sha256: self.optional("/expected_sha256"),
            must_not_exist: self.flag("/must_not_exist"),
        };
        Ok(FileWork::Write { path: self.path("/path")?, content, options })
    }

    fn fetch(&self, resolver: Resolver<'_>) -> Result<FetchWork, Refusal> {
        let headers = self.value.pointer("/headers").and_then(Value::as_object);
        let headers = headers.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())));
        let method = self.targets.facets.method.as_deref().unwrap_or("GET");
        let url = self.targets.url.clone().ok_or_else(|| unbuilt("/url"))?;
        let body = self.bytes("/body", "/body_encoding")?;
        let request = FetchRequest::new(method, url, headers, body)?;
        // Nobody is asked about a host that no answer could open.
        resolver.fetcher.check(&request)?;
        let defaults = FetchLimits::default();
        let longest = resolver.config.execution_timeout;
        let limits = FetchLimits {
            timeout: self.number("/timeout_ms").map_or(defaults.timeout, Duration::from_millis).min(longest),
            max_redirects: self.count("/max_redirects").unwrap_or(defaults.max_redirects),
            max_body_bytes: self.count("/max_bytes").unwrap_or(256 << 10).min(MAX_FETCH_BYTES),
            ..defaults
        };
        Ok(FetchWork { request, limits })
    }

    fn run(&self, resolver: Resolver<'_>) -> Result<RunWork, Problem> {
        let facets = &self.targets.facets;
        let env = self.value.pointer("/env").and_then(Value::as_object);
        let env = env.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned()))).collect();
        Ok(RunWork {
            executable: self.targets.executable.clone().ok_or_else(|| unbuilt("/argv"))?,
            request: ProcessRequest {
                argv: facets.argv.clone(),
                working_directory: resolver.absolute(facets.working_directory.as_deref().unwrap_or(".")),
                stdin: self.text("/stdin").as_bytes().to_vec(),
                env,
                requested_egress_hosts: self.targets.requested_hosts.clone(),
            },
            timeout: self.number("/timeout_ms").map(Duration::from_millis),
        })
    }
}

//! Resolve: from what a caller alleges to a call that can be decided.
//!
//! The tool is known, the input valid and canonical, every path free of links, the program the one that would really
//! run. What is resolved here is shown to policy and to people, and the very same values are executed later. What an
//! input stands for is its tool's to say (`tools/`).

use crate::catalog::{CatalogTool, ToolCatalog};
use crate::flow::handover;
use crate::tools::{Input, Place, Prepared, secret_files};
use crate::work::Work;
use palyra_egress::{Denial, FetchError};
use palyra_protocol::call::ToolCallParts;
use palyra_protocol::{
    CallId, CallState, CanonicalJson, Carrier, ExecutorKind, Facets, Problem, ToolCall, ToolProposal,
};
use palyra_sandbox::{Fault, SandboxError};
use palyra_workspace::FileError;
use std::sync::Arc;

/// Why a proposal did not become a call: it is none (`rejected`), or a rule that no policy can lift forbids it
/// (`denied`).
#[derive(Debug)]
pub struct Refusal {
    pub(crate) state: CallState,
    pub(crate) problem: Problem,
    /// Whether the same proposal under the same key is to get the same refusal.
    pub(crate) lasting: bool,
    /// What the input names, as far as it could be followed, where the refusal tells something of what is on the disk.
    pub(crate) reached: Option<Box<Facets>>,
    /// The call as far as it can be told, where the refusal tells something of what is on the disk.
    pub(crate) named: Option<Box<ToolCall>>,
}

impl Refusal {
    /// The proposal is no call.
    #[must_use]
    pub fn rejected(problem: Problem) -> Self {
        Self { state: CallState::Rejected, problem, lasting: true, reached: None, named: None }
    }

    /// A rule that no policy can lift forbids the call.
    #[must_use]
    pub fn denied(problem: Problem) -> Self {
        Self { state: CallState::Denied, problem, lasting: true, reached: None, named: None }
    }

    /// The same, with what the input names as far as it could be followed: policy is asked whether the caller may know
    /// why.
    #[must_use]
    pub fn reaching(mut self, facets: Facets) -> Self {
        self.reached = Some(Box::new(facets));
        self
    }

    /// The caller may not make such calls, or not now: later, or with another right, the same proposal may do better.
    pub(crate) fn for_now(problem: Problem) -> Self {
        Self { state: CallState::Denied, problem, lasting: false, reached: None, named: None }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::rejected(problem)
    }
}

impl From<FileError> for Refusal {
    fn from(error: FileError) -> Self {
        let state = match error {
            FileError::Outside { .. } | FileError::Protected { .. } => CallState::Denied,
            _ => CallState::Rejected,
        };
        Self { state, problem: file_problem(&error), lasting: true, reached: None, named: None }
    }
}

impl From<SandboxError> for Refusal {
    fn from(error: SandboxError) -> Self {
        let state = match (&error, error.fault()) {
            (SandboxError::ArgumentOutside { .. } | SandboxError::WorkingDirectoryOutside { .. }, _)
            | (_, Fault::Policy) => CallState::Denied,
            (_, Fault::Caller | Fault::Host) => CallState::Rejected,
        };
        Self {
            state,
            problem: sandbox_problem(&error),
            lasting: error.fault() != Fault::Host,
            reached: None,
            named: None,
        }
    }
}

impl From<FetchError> for Refusal {
    fn from(error: FetchError) -> Self {
        let state = if matches!(error, FetchError::Denied(_)) { CallState::Denied } else { CallState::Rejected };
        Self { state, problem: fetch_problem(&error), lasting: true, reached: None, named: None }
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        FetchError::Denied(denial).into()
    }
}

/// A call, and the work it stands for.
#[derive(Debug)]
pub(crate) struct ResolvedCall {
    pub(crate) call: ToolCall,
    pub(crate) work: Work,
}

/// Everything that resolving needs to know.
#[derive(Debug)]
pub(crate) struct Resolver<'a> {
    pub(crate) catalog: Arc<ToolCatalog>,
    pub(crate) place: Place<'a>,
}

impl Resolver<'_> {
    /// Resolves a proposal under a call id.
    pub(crate) fn resolve(self, id: CallId, proposal: &ToolProposal) -> Result<ResolvedCall, Refusal> {
        let tool = self.catalog.find(&proposal.tool)?;
        resolve_with(Arc::clone(tool), &self.place, id, proposal)
    }
}

/// Resolves a proposal whose tool was found.
pub(crate) fn resolve_with(
    tool: Arc<CatalogTool>,
    place: &Place<'_>,
    id: CallId,
    proposal: &ToolProposal,
) -> Result<ResolvedCall, Refusal> {
    let input = CanonicalJson::parse(&proposal.input).map_err(|e| {
        Problem::new(e.code(), e.to_string(), format!("see an example: `palyra tools show {}`", tool.name()))
    })?;
    tool.validate(input.value())?;
    let prepared = tool.tool().prepare(Input::new(input.value()), place);
    let prepared = prepared.and_then(|mut prepared| {
        let facets = &mut prepared.facets;
        if proposal.origin.carrier != Carrier::Client && tool.definition().executor == ExecutorKind::Client {
            let message = format!("`{}` is a tool of a client's, which Palyra cannot carry out", tool.name());
            let hint = "clients that are connected with hooks propose it";
            return Err(Problem::new("only_for_clients", message, hint).into());
        }
        if proposal.origin.carrier == Carrier::Client {
            let given = Input::new(input.value());
            prepared.job = handover::to_client(tool.definition(), given, place, facets)?;
        }
        if facets.secret_files.is_empty() {
            facets.secret_files = secret_files::read_by(facets, Input::new(input.value()), place)?;
        }
        Ok(prepared)
    });
    let (facets, recorded, job) = match prepared {
        Ok(Prepared { facets, job, recorded }) => (facets, recorded, Ok(job)),
        Err(mut refusal) => (refusal.reached.take().map(|facets| *facets).unwrap_or_default(), None, Err(refusal)),
    };
    let input = recorded.unwrap_or(input);
    let parts = ToolCallParts {
        id,
        tool: tool.name().clone(),
        input,
        workspace_root: place.workspace.root().to_string_lossy().into_owned(),
        facets,
        origin: proposal.origin.clone(),
        idempotency_key: proposal.idempotency_key.clone(),
    };
    let call = ToolCall::new(parts).map_err(|e| Problem::plain(e.code(), e.to_string()))?;
    match job {
        Ok(job) => Ok(ResolvedCall { call, work: Work { tool, job } }),
        Err(refusal) => Err(Refusal { named: Some(Box::new(call)), ..refusal }),
    }
}

pub(crate) fn file_problem(error: &FileError) -> Problem {
    Problem { hint: error.hint().map(str::to_owned), ..Problem::plain(error.code(), error.to_string()) }
}

pub(crate) fn sandbox_problem(error: &SandboxError) -> Problem {
    Problem { code: error.code().to_owned(), message: error.to_string(), hint: error.hint(), denial: None }
}

pub(crate) fn fetch_problem(error: &FetchError) -> Problem {
    Problem { code: error.code().to_owned(), message: error.to_string(), hint: error.hint(), denial: None }
}

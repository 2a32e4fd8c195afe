//! What is open to a guest that its author tries: files of a throw-away place, values from files, and other hosts only
//! on request.

use super::refusal::Refusal;
use super::{MAX_FILE, read_file};
use palyra_api::command_line::skills::Trial;
use palyra_egress::{
    CancelSignal, Denial, EgressRecord, EgressRules, FetchLimits, FetchRequest, FetchSink, FetchUrl, FetchWatch,
    Fetcher, Roots, SystemResolver,
};
use palyra_plugins::{
    CallControl, DirectoryFiles, Grant, HttpAllowance, HttpDoor, HttpFault, HttpReply, HttpRequest, SecretFault,
    SecretsDoor,
};
use palyra_protocol::Secret;
use palyra_protocol::display::safe;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAX_SECRET: u64 = 64 << 10;

/// `NAME=FILE`, with the file's content.
fn named_files(option: &str, given: &[String], limit: u64) -> Result<BTreeMap<String, Vec<u8>>, Refusal> {
    let one = |given: &String| {
        let pair = given.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty());
        let hint = format!("write `{option} NAME=FILE`; a value never stands on the command line");
        let (name, file) =
            pair.ok_or_else(|| Refusal::usage(format!("`{option} {}` has no name or no file", safe(given)), &hint))?;
        Ok((name.to_owned(), read_file(&PathBuf::from(file), limit)?))
    };
    given.iter().map(one).collect()
}

/// Secrets from files.
#[derive(Debug)]
pub(super) struct GivenSecrets(BTreeMap<String, Secret>);

impl GivenSecrets {
    pub(super) fn read(trial: &Trial) -> Result<Self, Refusal> {
        let files = named_files("--secret", &trial.secret, MAX_SECRET)?;
        let value = |mut bytes: Vec<u8>| {
            // A text file ends its line; a token does not.
            if bytes.last() == Some(&b'\n') {
                bytes.pop();
            }
            Secret::new(bytes)
        };
        Ok(Self(files.into_iter().map(|(name, bytes)| (name, value(bytes))).collect()))
    }
}

impl SecretsDoor for GivenSecrets {
    fn read(&self, scope: &str, key: &str, _: &CallControl) -> Result<Secret, SecretFault> {
        self.0.get(&format!("{scope}/{key}")).cloned().ok_or(SecretFault::NotFound)
    }
}

/// The files of the throw-away workspace.
pub(super) fn files(path: &Path) -> Result<DirectoryFiles, Refusal> {
    let opened = std::fs::File::open(path);
    let base = opened.map_err(|error| Refusal::io("the throw-away workspace cannot be opened", &error))?;
    Ok(DirectoryFiles::new(base.into()))
}

/// Other hosts: answered from files, reached under the grant's own rules, or not at all.
#[derive(Debug)]
pub(super) struct TrialHttp {
    replies: BTreeMap<String, Vec<u8>>,
    fetcher: Option<Fetcher>,
}

impl TrialHttp {
    pub(super) fn new(trial: &Trial, grant: &Grant) -> Result<Self, Refusal> {
        let replies = named_files("--reply", &trial.reply, MAX_FILE)?;
        let fetcher = if trial.network { Some(fetcher(grant)?) } else { None };
        Ok(Self { replies, fetcher })
    }
}

fn fetcher(grant: &Grant) -> Result<Fetcher, Refusal> {
    let rules: Result<Vec<_>, _> = grant.http().iter().map(|host| host.to_string().parse()).collect();
    let rules = rules.map_err(|error: palyra_egress::RuleError| Refusal::bug(&error))?;
    Ok(Fetcher::new(Arc::new(EgressRules::new(rules)), Arc::new(SystemResolver), Roots::System))
}

impl HttpDoor for TrialHttp {
    fn send(&self, request: &HttpRequest, allowance: HttpAllowance, _: &CallControl) -> Result<HttpReply, HttpFault> {
        let (host, port) = (request.host().to_string(), request.port());
        if let Some(body) = self.replies.get(&format!("{host}:{port}")).or_else(|| self.replies.get(&host)) {
            if body.len() as u64 > allowance.reply_bytes {
                return Err(HttpFault::TooLarge(allowance.reply_bytes));
            }
            return Ok(HttpReply { status: 200, headers: Vec::new(), body: body.clone() });
        }
        match &self.fetcher {
            Some(fetcher) => fetch(fetcher, request, allowance),
            None => Err(HttpFault::Unreachable(format!(
                "a trial has no network; add `--network`, or `--reply {host}=FILE`"
            ))),
        }
    }
}

fn fetch(fetcher: &Fetcher, request: &HttpRequest, allowance: HttpAllowance) -> Result<HttpReply, HttpFault> {
    let invalid = |error: &dyn std::fmt::Display| HttpFault::Invalid(error.to_string());
    let url = FetchUrl::parse(&request.url()).map_err(|error| invalid(&error))?;
    let headers = request.headers().to_vec();
    let wanted =
        FetchRequest::new(request.method(), url, headers, request.body().to_vec()).map_err(|error| invalid(&error))?;
    fetcher.check(&wanted).map_err(|denial| HttpFault::Denied(denial.to_string()))?;
    let most = usize::try_from(allowance.reply_bytes).unwrap_or(usize::MAX);
    let limits =
        FetchLimits { timeout: allowance.timeout, max_redirects: 0, max_body_bytes: most, ..FetchLimits::default() };
    let cancel = CancelSignal::never().map_err(|error| HttpFault::Unreachable(error.to_string()))?;
    let mut kept = Kept::default();
    let whole = fetcher.stream(&wanted, &limits, &cancel, &Unwatched, &mut kept);
    match whole {
        Ok(true) => Ok(kept.reply()),
        Ok(false) => Err(HttpFault::TooLarge(allowance.reply_bytes)),
        Err(error) => Err(HttpFault::Unreachable(error.to_string())),
    }
}

/// Nobody follows a trial's requests; the address guard holds all the same.
struct Unwatched;

impl FetchWatch for Unwatched {
    fn may_go(&self, _: &FetchRequest) -> Result<(), Denial> {
        Ok(())
    }

    fn connection(&self, _: &EgressRecord) {}
}

/// An answer as it comes.
#[derive(Default)]
struct Kept {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Kept {
    fn reply(self) -> HttpReply {
        HttpReply { status: self.status, headers: self.headers, body: self.body }
    }
}

impl FetchSink for Kept {
    fn head(&mut self, status: u16, headers: &[(String, Vec<u8>)]) {
        self.status = status;
        let text = |(name, value): &(String, Vec<u8>)| {
            String::from_utf8(value.clone()).ok().map(|value| (name.to_ascii_lowercase(), value))
        };
        self.headers = headers.iter().filter_map(text).collect();
    }

    fn piece(&mut self, bytes: &[u8]) -> bool {
        self.body.extend_from_slice(bytes);
        true
    }
}

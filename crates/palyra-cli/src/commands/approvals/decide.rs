//! `palyra approvals decide`: an answer by its words.

use super::{find, people, state};
use crate::answering::choice::{request, said_reason, sign};
use crate::args::{Decide, Decision, Matcher, Scope};
use crate::commands::read;
use crate::context::Context;
use crate::exit::{Failure, REFUSED};
use crate::output::{self, BAD, DIM, GOOD, WARN, note, say, styled};
use palyra_api::Connection;
use palyra_protocol::grant_match::{directories, endpoint};
use palyra_protocol::{
    ApprovalDecision, ApprovalId, ApprovalRecord, ApprovalScope, ApprovalState, DecisionStatement, Facets, GrantMatcher,
};

/// An option that would take no effect was meant to take one.
pub fn check(answer: &Decide) -> Result<(), Failure> {
    if answer.window.is_some() && answer.scope != Scope::Window {
        return Err(Failure::usage("`--for` says how long a window is", "add `--scope window`, or leave `--for` out"));
    }
    if answer.words.is_some() && answer.matcher != Matcher::ArgvPrefix {
        return Err(Failure::usage(
            "`--words` says how long an argv prefix is",
            "add `--match argv-prefix`, or leave `--words` out",
        ));
    }
    if answer.directory.is_some() && answer.matcher != Matcher::PathPrefix {
        return Err(Failure::usage(
            "`--directory` says which files are meant",
            "add `--match path-prefix`, or leave `--directory` out",
        ));
    }
    find::check(&answer.approval)
}

pub async fn decide(context: &Context, connection: &Connection, answer: Decide) -> Result<(), Failure> {
    let signs = connection.device().is_some();
    let (id, asked, matcher) = match (answer.approval.parse::<ApprovalId>(), answer.matcher) {
        // A whole id and a width that needs nothing of the call: there is nothing to look up, unless it is signed.
        (Ok(id), Matcher::Exact) if !signs => (id, None, GrantMatcher::ExactCall),
        (Ok(id), Matcher::Tool) if !signs => (id, None, GrantMatcher::Tool),
        _ => {
            let asked = find::approval(context, connection, &answer.approval).await?.record;
            (asked.approval_id.clone(), Some(asked.clone()), matcher(&answer, &asked)?)
        }
    };
    let scope = match answer.scope {
        Scope::Once => ApprovalScope::Once,
        Scope::Session => ApprovalScope::Session,
        Scope::Window => {
            let ms = answer.window.map_or(0, |window| u64::try_from(window.as_millis()).unwrap_or(u64::MAX));
            ApprovalScope::Window { ms }
        }
    };
    let mut request = request(scope, matcher.clone());
    request.approval_id = id.to_string();
    request.allow = answer.decision == Decision::Allow;
    request.reason = answer.reason.unwrap_or_default();
    if let Some(asked) = asked {
        request.digest = asked.call_digest.to_string();
        let reason = request.reason.clone();
        let said = DecisionStatement {
            approval_id: &id,
            shown: &asked.call_digest,
            policy_hash: &asked.policy_hash,
            decision: if request.allow { ApprovalDecision::Allow } else { ApprovalDecision::Deny },
            scope,
            matcher: &matcher,
            reason: said_reason(&reason),
        };
        sign(connection, &mut request, &said)?;
    }
    let record: ApprovalRecord = read(&connection.approvals().decide(request).await?.into_inner().approval_json)?;
    if context.json() {
        return output::json(&record);
    }
    let mark = match record.state {
        ApprovalState::Allowed => styled(GOOD, "✔"),
        ApprovalState::Pending => styled(WARN, "●"),
        ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Cancelled => styled(BAD, "✘"),
    };
    say!("{mark} {}: {}", record.approval_id, state(&record));
    if record.state == ApprovalState::Pending {
        say!("  your yes is recorded; it needs {}", people(&record));
    }
    if let Some(grant) = record.resolution.and_then(|end| end.grant) {
        note!("{}", styled(DIM, format!("this left a standing answer; withdraw it: palyra grants revoke {grant}")));
    }
    Ok(())
}

fn misfit(message: String, hint: &str) -> Failure {
    Failure::new(REFUSED, "approval_scope", message, Some(hint))
}

/// How wide the answer is, of what was shown.
fn matcher(answer: &Decide, asked: &ApprovalRecord) -> Result<GrantMatcher, Failure> {
    let facets = &asked.facets;
    match answer.matcher {
        Matcher::Exact => Ok(GrantMatcher::ExactCall),
        Matcher::Tool => Ok(GrantMatcher::Tool),
        Matcher::ArgvPrefix => Ok(GrantMatcher::ArgvPrefix { words: words(answer, asked)? }),
        Matcher::PathPrefix => match (&answer.directory, parent(facets)) {
            (Some(directory), _) => {
                let trimmed = directory.trim_end_matches('/');
                Ok(GrantMatcher::PathPrefix { directory: if trimmed.is_empty() { "." } else { trimmed }.to_owned() })
            }
            (None, Some(directory)) => Ok(GrantMatcher::PathPrefix { directory }),
            (None, None) => Err(misfit(
                format!("a call of `{}` does not only touch files, so no directory covers it", asked.tool),
                "choose `--match exact`",
            )),
        },
        Matcher::Host => match endpoint(facets) {
            Some((host, method)) => Ok(GrantMatcher::HostMethod { host: host.to_owned(), method: method.to_owned() }),
            None => Err(misfit(
                format!("a call of `{}` does not ask one host for something", asked.tool),
                "choose `--match exact`",
            )),
        },
    }
}

/// The deepest directory that holds what a call touches.
fn parent(facets: &Facets) -> Option<String> {
    let touched =
        |directory: &String| facets.paths_written.contains(directory) || facets.paths_read.contains(directory);
    directories(facets).into_iter().rev().find(|directory| !touched(directory))
}

fn words(answer: &Decide, asked: &ApprovalRecord) -> Result<Vec<String>, Failure> {
    let (argv, words) = (&asked.facets.argv, answer.words.unwrap_or(0));
    if argv.is_empty() {
        return Err(misfit(
            format!("a call of `{}` runs no command, so there are no words to compare", asked.tool),
            "choose `--match exact` or `--match tool`",
        ));
    }
    if words == 0 || words > argv.len() {
        let message = format!("the command that was shown has {} words", argv.len());
        return Err(misfit(message, "choose `--words` between 1 and that"));
    }
    Ok(argv[..words].to_vec())
}

//! What the schema's types do not see: a text that nothing is ever equal to.
//!
//! A path with a slash at its end, a host with a port, a risk of `hihg`: Cedar compares them without complaint, and the
//! rule never does what its author meant. Each attribute of the context has a form, said in the schema; a text that a
//! rule holds against it and that cannot have that form is refused where it stands.

use crate::attribute::Attribute;
use crate::error::FlawKind;
use crate::literal::{
    Compared, Counted, How, compared, counted, held_against_containment, place_of_entity, place_of_text,
};
use crate::membership::Membership;
use crate::toolbox::Toolbox;
use crate::verdict::MAX_APPROVERS;
use cedar_policy::pst::BinaryOp;
use cedar_policy::{EntityUid, Policy};
use palyra_protocol::facets::{MAX_PREFIX_WORDS, quote_words};
use palyra_protocol::{
    ContainmentTier, NetworkReach, Principal, PrincipalKind, RiskLevel, ToolCapability, WorkspaceUse,
};
use std::path::{Path, PathBuf};

/// The methods that a call can have.
const METHODS: [&str; 6] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
const RISKS: [RiskLevel; 4] = [RiskLevel::Low, RiskLevel::Medium, RiskLevel::High, RiskLevel::Critical];

/// Something that can never be so, and what to write instead.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Never {
    pub(crate) kind: FlawKind,
    /// Its place in the rule's text.
    pub(crate) offset: usize,
    pub(crate) message: String,
    pub(crate) help: String,
}

/// What a rule says that can never be so.
pub(crate) fn look(policy: &Policy, text: &str, membership: &Membership, tools: Option<&dyn Toolbox>) -> Vec<Never> {
    let mut found: Vec<Never> = Vec::new();
    for compared in compared(policy) {
        if let Some((message, help)) = misfit(&compared) {
            let offset = place_of_text(text, &compared.text, compared.how);
            found.push(Never { kind: FlawKind::Suspicious, offset, message, help });
        }
    }
    for counted in counted(policy) {
        if let Some((message, help)) = miscounted(counted) {
            let offset = text.find(counted.attribute.as_str()).unwrap_or(0);
            found.push(Never { kind: FlawKind::Suspicious, offset, message, help });
        }
    }
    for (field, value) in held_against_containment(policy) {
        if let Some((message, help)) = uncontained(&field, &value) {
            let offset = place_of_text(text, &value, How::Whole);
            found.push(Never { kind: FlawKind::Suspicious, offset, message, help });
        }
    }
    for uid in policy.entity_literals() {
        if let Some((message, help)) = stranger(&uid, membership, tools) {
            let offset = place_of_entity(text, &uid);
            found.push(Never { kind: FlawKind::Suspicious, offset, message, help });
        }
    }
    found.sort_by_key(|never| never.offset);
    found.dedup();
    found
}

/// What is wrong with a text that a field of `context.containment` never has.
fn uncontained(field: &str, value: &str) -> Option<(String, String)> {
    let known = match field {
        "tier" => ContainmentTier::NAMES,
        "network" => NetworkReach::NAMES,
        "workspace" => WorkspaceUse::NAMES,
        "hosts" => {
            let help = host(value)?;
            return Some((format!("`context.containment.hosts` never has \"{value}\""), help));
        }
        _ => return None,
    };
    (!known.contains(&value)).then(|| {
        let message = format!("`context.containment.{field}` is never \"{value}\"");
        (message, format!("it is one of {}", known.join(", ")))
    })
}

fn misfit(compared: &Compared) -> Option<(String, String)> {
    let (text, whole) = (compared.text.as_str(), compared.how == How::Whole);
    let name = compared.attribute.as_str();
    let one_of = |known: Vec<&str>| {
        (whole && !known.contains(&text)).then(|| {
            let near = known.iter().min_by_key(|known| distance(known, text)).copied().unwrap_or_default();
            let message = format!("`context.{name}` is never \"{text}\"");
            (message, format!("did you mean \"{near}\"? It is one of {}", known.join(", ")))
        })
    };
    match compared.attribute {
        Attribute::Risk => one_of(RISKS.map(RiskLevel::as_str).to_vec()),
        Attribute::Capabilities => one_of(ToolCapability::ALL.map(ToolCapability::policy_name).to_vec()),
        Attribute::Method => one_of(METHODS.to_vec()),
        Attribute::PathsRead
        | Attribute::PathsWritten
        | Attribute::TreesRead
        | Attribute::ReadUnder
        | Attribute::WrittenUnder
        | Attribute::ReadRoot
        | Attribute::WrittenRoot
        | Attribute::WorkingDirectory => {
            path(text, whole).map(|help| (format!("`context.{name}` never has \"{text}\""), help))
        }
        Attribute::Hosts | Attribute::HostDomains if whole => {
            host(text).map(|help| (format!("`context.{name}` never has \"{text}\""), help))
        }
        Attribute::Endpoints if whole => {
            endpoint(text).map(|help| (format!("`context.{name}` never has \"{text}\""), help))
        }
        Attribute::ArgvPrefixes | Attribute::CommandLine if whole => {
            let most = if compared.attribute == Attribute::ArgvPrefixes { MAX_PREFIX_WORDS } else { usize::MAX };
            words(text, most).map(|help| (format!("`context.{name}` is never \"{text}\""), help))
        }
        Attribute::EnvNames if whole => {
            let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            (text.is_empty() || !plain || text.starts_with(|c: char| c.is_ascii_digit())).then(|| {
                let message = format!("no environment variable is called \"{text}\"");
                (message, "rules see the names of variables, not their values".to_owned())
            })
        }
        Attribute::Executable if whole && !text.contains(['/', '\\']) => Some((
            format!("`context.executable` is never \"{text}\""),
            format!("it is a whole path: `context.executable like \"*/{text}\"`, or look at `argv_prefixes`"),
        )),
        Attribute::Executables if whole && !text.contains(['/', '\\']) => Some((
            format!("`context.executables` never has \"{text}\""),
            format!(
                "it has whole paths, like \"/usr/bin/{text}\"; to go by the command's words, look at `argv_prefixes`"
            ),
        )),
        _ => None,
    }
}

/// What is wrong with a number that an attribute never reaches, or never falls short of.
fn miscounted(counted: Counted) -> Option<(String, String)> {
    let Counted { attribute, op, number } = counted;
    if attribute != Attribute::ApprovalCount {
        return None;
    }
    let holds = |count: u32| match op {
        BinaryOp::Eq => i64::from(count) == number,
        BinaryOp::NotEq => i64::from(count) != number,
        BinaryOp::Less => i64::from(count) < number,
        BinaryOp::LessEq => i64::from(count) <= number,
        BinaryOp::Greater => i64::from(count) > number,
        _ => i64::from(count) >= number,
    };
    let compared = matches!(
        op,
        BinaryOp::Eq | BinaryOp::NotEq | BinaryOp::Less | BinaryOp::LessEq | BinaryOp::Greater | BinaryOp::GreaterEq
    );
    let held = (0..=MAX_APPROVERS).filter(|count| holds(*count)).count();
    let what = match held {
        _ if !compared => return None,
        0 => "never",
        held if held > MAX_APPROVERS as usize => "always",
        _ => return None,
    };
    let message = format!("what this says of `context.approval_count` and {number} is {what} so");
    Some((message, format!("at most {MAX_APPROVERS} people are asked: write a number from 1 to {MAX_APPROVERS}")))
}

/// How a path is written instead, if nothing is ever called so.
fn path(text: &str, whole: bool) -> Option<String> {
    let relative = "paths are relative to the workspace, which file tools never leave";
    if let Some(rest) = text.strip_prefix('~') {
        let rest = rest.trim_start_matches('/');
        let inside = if rest.is_empty() { ".".to_owned() } else { rest.trim_end_matches('/').to_owned() };
        return Some(format!(
            "{relative}: where the workspace is the home directory, write \"{inside}\"; what programs see of `~` is the sandbox's to limit"
        ));
    }
    if text.starts_with('/') {
        return Some(format!("{relative}; write it as it is below the workspace"));
    }
    let normal: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if normal.contains(&"..") {
        return Some("paths come resolved, without `..`".to_owned());
    }
    let normal = if normal.is_empty() { ".".to_owned() } else { normal.join("/") };
    // What stands before a `*` may end anywhere.
    let fits =
        if whole { text == normal } else { text.is_empty() || text.trim_end_matches('/') == normal || text == "." };
    (!fits).then(|| format!("paths have no `./` before and no `/` behind them; write \"{normal}\""))
}

/// How a host is written instead, if none is ever called so.
fn host(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let bare = lower.split_once("://").map_or(lower.as_str(), |(_, rest)| rest);
    let bare = bare.split('/').next().unwrap_or(bare);
    // An address of six has colons of its own.
    let bare = match bare.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => bare,
    };
    let bare = bare.trim_end_matches('.').trim_start_matches("*.");
    if !bare.is_ascii() {
        return Some("hosts are written in ASCII, as the network writes them: `xn--…`".to_owned());
    }
    (bare != text || text.is_empty())
        .then(|| format!("hosts are bare names in lower case, without scheme, port or path; write \"{bare}\""))
}

/// How a host and port is written instead, if there is never one called so.
fn endpoint(text: &str) -> Option<String> {
    let (host_name, port) = text.rsplit_once(':').unwrap_or((text, ""));
    let fits =
        host(host_name).is_none() && (port == "*" || !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()));
    (!fits).then(|| "endpoints are `host:443`, or `host:*` where a call does not say which port".to_owned())
}

/// How a command is written instead, if none is ever spelt so.
fn words(text: &str, most: usize) -> Option<String> {
    // What holds quotes was quoted by somebody who knows.
    if text.contains(['\'', '"', '\\']) {
        return None;
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() > most {
        return Some(format!("prefixes have at most {most} words; use `command_line` for the whole command"));
    }
    let spelt = quote_words(&words);
    (spelt != text)
        .then(|| format!("words are separated by one space and quoted where a shell would need it; write \"{spelt}\""))
}

/// What a name of an entity should be, if there is no such thing.
fn stranger(uid: &EntityUid, membership: &Membership, tools: Option<&dyn Toolbox>) -> Option<(String, String)> {
    let name = uid.id().unescaped();
    match uid.type_name().basename() {
        "Channel" => {
            let lower = name.to_ascii_lowercase();
            (lower != name && membership.known_channels().contains(&lower))
                .then(|| (format!("there is no door `{name}`"), format!("write `Channel::\"{lower}\"`")))
        }
        kind @ ("User" | "Agent" | "Device" | "System") => misnamed(kind, name),
        "Workspace" => workspace(name).map(|help| (format!("no workspace is called `{name}`"), help)),
        "Tool" if is_ours(name) => {
            let known = tools?.names();
            (!known.iter().any(|tool| tool == name)).then(|| {
                let near = known.iter().min_by_key(|tool| distance(tool, name)).cloned().unwrap_or_default();
                (format!("there is no tool `{name}`"), format!("did you mean `{near}`? See `palyra tools list`"))
            })
        }
        _ => None,
    }
}

/// How somebody is called instead, if nobody is ever called so.
fn misnamed(kind: &str, name: &str) -> Option<(String, String)> {
    let of = PrincipalKind::ALL.into_iter().find(|known| known.as_str().eq_ignore_ascii_case(kind))?;
    let Err(why) = Principal::new(of, name) else { return None };
    let lower = name.to_lowercase();
    let help = match Principal::new(of, &lower) {
        Ok(_) => format!("names are in lower case: write `{kind}::\"{lower}\"`"),
        Err(_) => why.to_string(),
    };
    Some((format!("no {} is called `{name}`", of.as_str()), help))
}

/// How a workspace is written instead: as its real path.
fn workspace(name: &str) -> Option<String> {
    let normal = Path::new(name).components().collect::<PathBuf>();
    let normal = normal.to_str().unwrap_or(name);
    let fits = name.starts_with('/') && normal == name && !name.split('/').any(|part| part == "..");
    (!fits)
        .then(|| "a workspace is called by its real path: absolute, without `.`, `..` and a `/` at the end".to_owned())
}

/// Whether a tool, by its name, could only be one that ships with Palyra.
pub(crate) fn is_ours(tool: &str) -> bool {
    tool.starts_with("palyra.")
}

/// How many letters two words differ by, roughly: enough to guess what was meant.
fn distance(a: &str, b: &str) -> usize {
    let same = a.chars().zip(b.chars()).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
    let end = a.chars().rev().zip(b.chars().rev()).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
    a.chars().count().max(b.chars().count()).saturating_sub(same + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(attribute: Attribute, how: How, fitting: &[&str], never: &[(&str, &str)]) {
        let misfit = |text: &str| misfit(&Compared { attribute, text: text.to_owned(), how });
        for text in fitting {
            assert_eq!(misfit(text), None, "{attribute:?} {text}");
        }
        for (text, instead) in never {
            let (_, help) = misfit(text).unwrap_or_else(|| panic!("{attribute:?} {text} passes"));
            assert!(help.contains(instead), "{attribute:?} {text}: {help}");
        }
    }

    #[test]
    fn texts_that_nothing_is_equal_to_are_found() {
        use Attribute as A;
        check(
            A::WrittenUnder,
            How::Whole,
            &["infra", ".", ".ssh", "a/b c", "…"],
            &[
                ("infra/", "\"infra\""),
                ("./infra", "\"infra\""),
                ("~/.ssh", "\".ssh\""),
                ("~", "\".\""),
                ("/etc", "relative"),
                ("a/../b", ".."),
                ("", "\".\""),
            ],
        );
        check(A::WrittenRoot, How::Beginning, &["src/", "src", "src/a", ""], &[("./src/", "\"src\""), ("~/", "home")]);
        check(
            A::Hosts,
            How::Whole,
            &["packages.example", "10.0.0.1", "[::1]", "::1"],
            &[
                ("Example.COM", "\"example.com\""),
                ("a.example:443", "\"a.example\""),
                ("https://a.example/x", "\"a.example\""),
                ("*.a.example", "\"a.example\""),
                ("a.example.", "\"a.example\""),
            ],
        );
        check(
            A::Endpoints,
            How::Whole,
            &["a.example:443", "a.example:*", "[::1]:80"],
            &[("a.example", "443"), ("A.example:1", "443")],
        );
        check(A::Risk, How::Whole, &["low", "critical"], &[("hihg", "\"high\"")]);
        check(A::Capabilities, How::Whole, &["network"], &[("proces_exec", "\"process_exec\"")]);
        check(A::Method, How::Whole, &["GET"], &[("post", "\"POST\"")]);
        check(A::Method, How::Beginning, &["P"], &[]);
        check(
            A::ArgvPrefixes,
            How::Whole,
            &["git status", "a b c d e f g h", "git 'a b'"],
            &[("a b c d e f g h i", "at most 8"), ("git  status", "\"git status\""), ("a && b", "'&&'")],
        );
        check(A::CommandLine, How::Whole, &["a b c d e f g h i"], &[(" a", "\"a\"")]);
        check(A::EnvNames, How::Whole, &["RUSTFLAGS"], &[("A=b", "names"), ("1A", "names")]);
        check(A::Executable, How::Whole, &["/usr/bin/git"], &[("git", "*/git")]);
        check(A::Session, How::Whole, &["anything ~/ at all"], &[]);
    }
}

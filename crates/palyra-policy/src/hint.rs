//! What to do about an unmet condition, where that can be said: one sentence that names the thing to change.
//!
//! Hints speak to operators. They name what the request named and nothing else.

use crate::attribute::Attribute;
use crate::condition::{Relation, Subject, Who};
use crate::membership::OWNER;
use crate::scene::SceneKey;
use palyra_protocol::MissingCode;

/// What sort of thing a condition that does not hold lacks.
pub(crate) fn code(subject: &Subject) -> MissingCode {
    match subject {
        Subject::Attribute(Attribute::IsAllowlistedTool) => MissingCode::ToolNotAllowlisted,
        Subject::Attribute(Attribute::AllowSensitiveTools) => MissingCode::PersonsApproval,
        Subject::Member(Relation { who: Who::Principal, .. }) => MissingCode::CallerNotAuthorised,
        Subject::Member(Relation { who: Who::Channel, .. }) => MissingCode::ChannelNotAuthorised,
        Subject::PrincipalType(type_name) if type_name == "User" => MissingCode::PeopleOnly,
        Subject::Member(_) | Subject::PrincipalType(_) | Subject::Attribute(_) | Subject::Other => {
            MissingCode::OtherCondition
        }
    }
}

/// How to make a condition true.
pub(crate) fn to_hold(subject: &Subject, key: &SceneKey) -> Option<String> {
    match subject {
        Subject::Attribute(Attribute::IsAllowlistedTool) => {
            Some(format!("add `{}` to `allowed_tools`", printable(key.resource.name())))
        }
        Subject::Attribute(Attribute::AllowSensitiveTools) => Some("a person must approve it".to_owned()),
        Subject::Member(relation) => join(relation, key),
        Subject::PrincipalType(type_name) if type_name == "User" => Some("only a person may do this".to_owned()),
        Subject::PrincipalType(_) | Subject::Attribute(_) | Subject::Other => None,
    }
}

/// How to make a condition false.
pub(crate) fn to_fail(subject: &Subject) -> Option<String> {
    match subject {
        Subject::Attribute(Attribute::IsSensitiveAction) => Some("use a tool that is not sensitive".to_owned()),
        _ => None,
    }
}

fn join(relation: &Relation, key: &SceneKey) -> Option<String> {
    let name = relation.ancestor.id().unescaped();
    match (relation.who, relation.ancestor.type_name().basename()) {
        (Who::Principal, "Role") if name == OWNER => {
            Some("ask an owner of this daemon (`owners` in the configuration)".to_owned())
        }
        (Who::Principal, "Role" | "Group") => Some(format!("add `{}` to `{name}`", key.principal)),
        (Who::Channel, "Group") => Some(format!("add the channel `{}` to `{name}`", key.channel)),
        _ => None,
    }
}

/// A caller's text that can be shown: short, and nothing in it moves the cursor.
pub(crate) fn printable(text: &str) -> String {
    const MOST: usize = 200;
    let mut shown = String::with_capacity(text.len().min(MOST));
    for (n, c) in text.chars().enumerate() {
        match c {
            _ if n == MOST => {
                shown.push('…');
                break;
            }
            c if c.is_control() || is_invisible(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// Characters that reorder or hide the text around them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn shown_text_is_short_and_still() {
        assert_eq!(printable("plain ünïcode"), "plain ünïcode");
        assert_eq!(printable("a\u{1b}[2Kb\u{202e}c"), "a\\u{1b}[2Kb\\u{202e}c");
        assert_eq!(printable(&"x".repeat(300)).chars().count(), 201);
    }
}

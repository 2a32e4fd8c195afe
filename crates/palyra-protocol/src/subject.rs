//! The subject of an approval: what a person says yes or no to.
//!
//! Most approvals are about a tool call that waits to run. The others are about something that is no call, or whose
//! call has run already: effects that wait to be written back, a device that wants to be paired, a skill that wants to
//! change. Their record has the same shape; `call_id` is then an id of the approval's own, and the subject names what
//! it is about.

use crate::digest::Digest;
use crate::display::{safe, safe_lines};
use crate::effect::EffectPath;
use crate::id::CallId;
use serde::{Deserialize, Serialize};

/// What an approval is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ApprovalSubject {
    /// A tool call that has not run: the record's `call_id`, `call_digest`, `input` and `facets` say which.
    #[default]
    ToolCall,
    /// Changes of a call that has run, which are not in the workspace yet.
    Effects(Box<WaitingEffects>),
    /// A device that wants to be paired.
    DevicePairing(Box<PairingDevice>),
    /// A skill's update, or an override of what its audit found.
    SkillChange(Box<SkillChange>),
}

/// Changes that wait for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingEffects {
    /// The call that made them.
    pub call_id: CallId,
    /// The paths, in order.
    pub paths: Vec<EffectPath>,
    /// The digest of every change that waits.
    pub changes_sha256: Digest,
    /// The changes as a unified difference, which may be cut.
    pub diff: String,
    /// Whether more changed than the difference shows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// A device that asks to be paired, as it introduced itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairingDevice {
    /// What its owner calls it.
    pub name: String,
    /// What it runs on.
    pub platform: String,
    /// The SHA-256 of its public key.
    pub key_sha256: Digest,
    /// The words that both sides show; they differ where somebody stands in between.
    pub words: String,
}

/// A change of a skill that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillChange {
    /// The skill.
    pub skill: String,
    /// The version that is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The version that it would be.
    pub to: String,
    /// The SHA-256 of the package.
    pub package_sha256: Digest,
    /// What would change, or what the audit found, line by line.
    pub what: String,
}

impl ApprovalSubject {
    /// Whether it is a call that waits to run.
    #[must_use]
    pub fn is_call(&self) -> bool {
        matches!(self, Self::ToolCall)
    }

    /// The name of its kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ToolCall => "tool_call",
            Self::Effects(_) => "effects",
            Self::DevicePairing(_) => "device_pairing",
            Self::SkillChange(_) => "skill_change",
        }
    }

    /// What it is about, on one line that a screen can show; none for a call, whose command or paths say it.
    #[must_use]
    pub fn headline(&self) -> Option<String> {
        match self {
            Self::ToolCall => None,
            Self::Effects(waiting) => {
                let paths: Vec<_> = waiting.paths.iter().map(|path| safe(&path.to_text())).collect();
                Some(format!("changes of {} to {}", waiting.call_id, paths.join(", ")))
            }
            Self::DevicePairing(device) => {
                Some(format!("pair the device `{}` ({})", safe(&device.name), safe(&device.platform)))
            }
            Self::SkillChange(change) => {
                let from = change.from.as_ref().map_or_else(String::new, |from| format!("{} → ", safe(from)));
                Some(format!("skill {} {from}{}", safe(&change.skill), safe(&change.to)))
            }
        }
    }

    /// What a person has to read besides the record's facts, ready to be shown.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::ToolCall => None,
            Self::Effects(waiting) => {
                let more =
                    if waiting.cut { "\n… the rest is not shown; `palyra effects diff` shows all of it" } else { "" };
                Some(format!("{}{more}", safe_lines(&waiting.diff)))
            }
            Self::DevicePairing(device) => {
                let (words, key) = (safe(&device.words), device.key_sha256);
                Some(format!("the device must show the same words: {words}\nkey {key}"))
            }
            Self::SkillChange(change) => {
                Some(format!("{}\npackage {}", safe_lines(&change.what), change.package_sha256))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_survives_json_and_hides_nothing() {
        let subjects = [
            ApprovalSubject::ToolCall,
            ApprovalSubject::Effects(Box::new(WaitingEffects {
                call_id: CallId::mint(),
                paths: vec![".git/hooks/pre-commit".parse().unwrap()],
                changes_sha256: Digest::of(b"x"),
                diff: "+#!/bin/sh\u{202e}\n".to_owned(),
                cut: false,
            })),
            ApprovalSubject::DevicePairing(Box::new(PairingDevice {
                name: "phone\u{1b}[31m".to_owned(),
                platform: "linux".to_owned(),
                key_sha256: Digest::of(b"k"),
                words: "one two".to_owned(),
            })),
            ApprovalSubject::SkillChange(Box::new(SkillChange {
                skill: "acme.weather".to_owned(),
                from: Some("1.0.0".to_owned()),
                to: "1.1.0".to_owned(),
                package_sha256: Digest::of(b"p"),
                what: "asks for network".to_owned(),
            })),
        ];
        for subject in subjects {
            let json = serde_json::to_string(&subject).unwrap();
            assert!(json.contains(subject.kind()), "{json}");
            assert_eq!(serde_json::from_str::<ApprovalSubject>(&json).unwrap(), subject);
            assert_eq!(subject.headline().is_none(), subject.is_call());
            let shown = [subject.headline(), subject.detail()].into_iter().flatten().collect::<String>();
            assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
        }
    }
}

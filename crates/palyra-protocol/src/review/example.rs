//! A review in which every field has something to show: what the tests of every renderer are held to.
//!
//! It belongs to no approval. Places that a stranger writes hold `#hostile#`, for tests to put worse there.

use super::{Offer, OfferReplay, Review, ReviewedChange, ReviewedCommand, ReviewedNetwork, ReviewedRule, ShellPart};
use crate::access::{Credential, ShownToken, WorkspaceRole};
use crate::approval::{ApprovalResolution, ApprovalScope, ApprovalState, GivenApproval};
use crate::capability::RiskLevel;
use crate::clock::Timestamp;
use crate::containment::{Containment, ContainmentTier, NetworkReach, WorkspaceUse};
use crate::digest::Digest;
use crate::grant_match::GrantMatcher;
use crate::id::{ApprovalId, CallId, ConsoleId, GrantId, SessionId, TokenId};
use crate::principal::Principal;
use crate::signed_decision::{DecisionSignature, Signer};
use crate::subject::{ApprovalSubject, SkillChange};
use crate::tool::ToolName;
use serde_json::json;

/// The review with every fact.
#[doc(hidden)]
#[must_use]
pub fn every_fact() -> Review {
    let (agent, owner) = (principal("agent:builder"), principal("user:owner"));
    let token = Some(ShownToken {
        credential: Credential::Token(TokenId::mint()),
        role: WorkspaceRole::Operator,
        issuers: vec![owner.clone()],
    });
    Review {
        approval_id: ApprovalId::mint(),
        call_id: CallId::mint(),
        subject: subject(),
        tool: tool("palyra.process.run"),
        risk: RiskLevel::High,
        principal: agent,
        proposed_by: owner.clone(),
        token: token.clone(),
        session: session("work"),
        command: Some(command()),
        reads: words(&["notes/#hostile#.txt"]),
        reads_below: words(&["tree/#hostile#"]),
        writes: words(&["out/#hostile#.txt"]),
        network: Some(ReviewedNetwork {
            method: Some("POST".to_owned()),
            hosts: words(&["api.#hostile#.example:443"]),
            follows_redirects: true,
        }),
        secrets: words(&["deploy-key-#hostile#"]),
        containment: Some(Containment {
            tier: ContainmentTier::C,
            network: NetworkReach::Filtered,
            hosts: words(&["held-#hostile#.test"]),
            workspace: WorkspaceUse::View,
            other_roots: true,
            reversible: true,
            secrets: true,
        }),
        by_client: true,
        skill: Some("acme.#hostile# 1.0.0".to_owned()),
        changes: vec![ReviewedChange {
            paths: words(&["src/#hostile#.rs"]),
            diff: Some("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old #hostile#\n+new line\n".to_owned()),
            cut: true,
            note: Some("a note about #hostile#".to_owned()),
            shows: None,
        }],
        input: json!({ "argv": ["bash", "-c", "git fetch && make #hostile#"], "stdin": "fed #hostile#" }),
        why: "a rule asks because of #hostile#".to_owned(),
        rules: vec![ReviewedRule {
            id: "ask_first".to_owned(),
            text: "permit (\n  principal // #hostile#\n);".to_owned(),
        }],
        offers: vec![offer()],
        people: 2,
        fresh: true,
        given: vec![GivenApproval {
            by: owner.clone(),
            token: token.clone(),
            at: Timestamp::from_unix_ms(1_790_000_000_000),
            reason: Some("looks fine #hostile#".to_owned()),
            signature: None,
        }],
        requested_at: Timestamp::from_unix_ms(1_790_000_000_000),
        expires_at: Timestamp::from_unix_ms(1_790_000_600_000),
        state: ApprovalState::Allowed,
        resolution: Some(resolution(owner, token)),
        digest: Digest::of(b"what is shown"),
        policy_hash: Digest::of(b"the rules"),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn command() -> ReviewedCommand {
    ReviewedCommand {
        argv: words(&["bash", "-c", "git fetch && make #hostile#"]),
        parts: vec![
            ShellPart { joined_by: String::new(), text: "git fetch".to_owned() },
            ShellPart { joined_by: "&&".to_owned(), text: "make #hostile#".to_owned() },
        ],
        programs: words(&["/usr/bin/bash", "/srv/#hostile#"]),
        directory: Some("sub/#hostile#".to_owned()),
        sets: words(&["HOME_OF_#hostile#"]),
        fed: true,
    }
}

fn offer() -> Offer {
    Offer {
        matcher: GrantMatcher::ArgvPrefix { words: words(&["git", "#hostile#"]) },
        scope: ApprovalScope::Window { ms: 1_800_000 },
        replay: Some(OfferReplay { of: 12, answered: 9, denied: 2, denied_examples: words(&["git push #hostile#"]) }),
    }
}

fn resolution(by: Principal, token: Option<ShownToken>) -> ApprovalResolution {
    ApprovalResolution {
        by,
        token,
        at: Timestamp::from_unix_ms(1_790_000_300_000),
        scope: ApprovalScope::Session,
        matcher: GrantMatcher::PathPrefix { directory: "src/#hostile#".to_owned() },
        reason: Some("because #hostile#".to_owned()),
        grant: Some(GrantId::mint()),
        signature: Some(Box::new(DecisionSignature {
            signer: Signer::Session(ConsoleId::mint()),
            key: parsed("ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"),
            signature: parsed(&"0".repeat(128)),
            assertion: None,
        })),
    }
}

fn subject() -> ApprovalSubject {
    ApprovalSubject::SkillChange(Box::new(SkillChange {
        skill: "acme.weather".to_owned(),
        from: Some("1.0.0".to_owned()),
        to: "1.1.0-#hostile#".to_owned(),
        package_sha256: Digest::of(b"package"),
        what: "asks for the network #hostile#".to_owned(),
    }))
}

/// Names that are known to parse; an example that does not is a bug that the tests find.
fn principal(text: &str) -> Principal {
    text.parse().unwrap_or_else(|_| Principal::daemon())
}

fn tool(text: &str) -> ToolName {
    parsed(text)
}

fn session(text: &str) -> SessionId {
    parsed(text)
}

#[expect(clippy::panic, reason = "an example that is none is a bug of this file, which every renderer's test meets")]
fn parsed<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no example"))
}

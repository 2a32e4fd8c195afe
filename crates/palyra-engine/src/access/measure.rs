//! A registry with many tokens, made in memory, for measuring how long a check takes.

use super::control::{AccessControl, add_workspace};
use super::document::RegistryDocument;
use super::rights::DEFAULT_SCOPES;
use super::token;
use palyra_protocol::access::TokenScope;
use palyra_protocol::{ApiTokenRecord, Clock, JournalId, Principal, TokenId, WorkspaceRole};
use std::sync::Arc;
use std::time::Duration;

/// How many tokens' texts are kept.
const KEPT: usize = 1000;

pub(super) fn with_tokens(count: usize, clock: Arc<dyn Clock>) -> Option<(AccessControl, Vec<String>)> {
    let now = clock.now();
    let mut document = RegistryDocument::empty();
    let workspace = add_workspace(&mut document, &JournalId::mint(), "/".to_owned(), now);
    let scopes: Vec<TokenScope> = DEFAULT_SCOPES.iter().filter_map(|a| a.as_str().parse().ok()).collect();
    let mut texts = Vec::new();
    for n in 0..count {
        let token_id = TokenId::mint();
        let (text, token_hash_sha256) = token::fresh(&token_id).ok()?;
        if n % count.div_ceil(KEPT) == 0 {
            texts.push(String::from_utf8(text.expose().to_vec()).ok()?);
        }
        document.tokens.push(ApiTokenRecord {
            token_id,
            label: String::new(),
            token_hash_sha256,
            replaced: None,
            principal: Principal::local_owner(),
            role: WorkspaceRole::Operator,
            workspace: workspace.workspace_id.clone(),
            scopes: scopes.clone(),
            rate_per_minute: u32::MAX,
            created_at: now,
            issued_with: None,
            issuers: vec![],
            by: Principal::local_owner(),
            expires_at: now.plus(Duration::from_secs(3600)),
            rotated_at: None,
            revoked_at: None,
        });
    }
    Some((AccessControl::of_document(document, workspace, clock), texts))
}

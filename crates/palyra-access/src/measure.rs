//! A registry with many tokens, made in memory, for measuring how long a check takes.

use crate::document::RegistryDocument;
use crate::rights::DEFAULT_SCOPES;
use crate::token;
use palyra_protocol::access::TokenScope;
use palyra_protocol::{ApiTokenRecord, JournalId, Principal, Timestamp, TokenId, WorkspaceRole};
use std::time::Duration;

/// How many tokens' texts are kept.
const KEPT: usize = 1000;

pub(crate) fn with_tokens(count: usize, now: Timestamp) -> Option<(RegistryDocument, Vec<String>)> {
    let mut document = RegistryDocument::empty();
    let workspace = document.add_workspace(&JournalId::mint(), "/".to_owned(), now);
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
    Some((document, texts))
}

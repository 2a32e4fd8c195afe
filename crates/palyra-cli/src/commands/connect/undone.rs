//! What a connection that fails half-way has done already, and how it is taken back.
//!
//! Nobody who is told that connecting failed expects a token that opens. Whatever cannot be taken back is named in the
//! failure, with the command that does it.

use super::record::{self, FileChange, Record};
use super::{gone_already, withdraw};
use crate::context::Context;
use crate::exit::Failure;
use palyra_api::Connection;
use palyra_api::v1::RemoveAgentRequest;
use palyra_protocol::{Principal, TokenId};

/// What has been done so far.
#[derive(Debug)]
pub struct Done {
    pub name: String,
    pub principal: Principal,
    /// What was known of the connection before.
    pub earlier: Option<Record>,
    /// The agent was registered.
    pub registered: bool,
    /// A token was issued.
    pub issued: Option<TokenId>,
    /// The connection was written down.
    pub recorded: bool,
    /// Files that were changed, or were about to be.
    pub files: Vec<FileChange>,
}

impl Done {
    pub fn new(name: &str, principal: &Principal, earlier: Option<Record>) -> Self {
        let (name, principal) = (name.to_owned(), principal.clone());
        Self { name, principal, earlier, registered: false, issued: None, recorded: false, files: Vec::new() }
    }

    /// Takes it all back, and tells why connecting failed; with what is left, if something is.
    pub async fn taken_back(self, context: &Context, connection: &Connection, failure: Failure) -> Failure {
        let mut left = Vec::new();
        for file in self.files.iter().rev() {
            if let Err(error) = file.undo() {
                left.push(format!("`{}` stays changed ({})", file.path.display(), error.message));
            }
        }
        if let Some(token) = &self.issued
            && let Err(error) = withdraw(connection, token).await
        {
            let way = format!("`palyra access token revoke {token}`");
            left.push(format!("{token} still opens: {way} ({})", error.message));
        }
        if self.registered
            && let Err(error) = self.remove_agent(connection).await
        {
            let way = format!("`palyra access agent remove {}`", self.principal);
            left.push(format!("{} is still registered: {way} ({})", self.principal, error.message));
        }
        // What is left can be taken back by `disconnect` only as long as it is written down.
        if left.is_empty()
            && let Err(error) = self.forget(context)
        {
            left.push(format!("what is kept of it stays in `{}` ({})", folder(context), error.message));
        }
        self.told(failure, &left)
    }

    async fn remove_agent(&self, connection: &Connection) -> Result<(), Failure> {
        let remove = RemoveAgentRequest { principal: self.principal.to_string() };
        connection.access().remove_agent(remove).await.map_or_else(gone_already, |_| Ok(()))
    }

    /// Leaves what is kept of connections as it was; the token's file goes with the token.
    fn forget(&self, context: &Context) -> Result<(), Failure> {
        if self.issued.is_some() {
            record::forget_token(&context.state_dir, &self.name)?;
        }
        match &self.earlier {
            _ if !self.recorded => Ok(()),
            Some(earlier) => earlier.write(&context.state_dir),
            None => record::forget(&context.state_dir, &self.name),
        }
    }

    fn told(&self, failure: Failure, left: &[String]) -> Failure {
        if left.is_empty() {
            let message = format!("{}; nothing is left of this attempt", failure.message);
            return Failure { message, ..failure };
        }
        let all = self.recorded.then(|| format!("`palyra disconnect {}` takes back what is left", self.name));
        let hint = all.or(failure.hint);
        Failure { message: format!("{}; what is left: {}", failure.message, left.join("; ")), hint, ..failure }
    }
}

fn folder(context: &Context) -> String {
    record::folder(&context.state_dir).display().to_string()
}

//! The console in a browser: codes, sessions and passkeys.

use super::{Door, Reply, document, parsed, refused};
use palyra_api::ApiError;
use palyra_api::v1::console_server::Console;
use palyra_api::v1::{
    ConsoleCodeReply, ConsoleSessionReply, CreateConsoleCodeRequest, EndConsoleSessionRequest,
    ListConsoleSessionsReply, ListConsoleSessionsRequest, ListPasskeysReply, ListPasskeysRequest, PasskeyReply,
    RemovePasskeyRequest,
};
use tonic::{Code, Request, Response, Status};

#[tonic::async_trait]
impl Console for Door {
    async fn create_code(&self, request: Request<CreateConsoleCodeRequest>) -> Reply<ConsoleCodeReply> {
        let peer = self.peer(&request)?;
        let door = self.about.http_url.as_deref().ok_or_else(|| {
            let hint = Some("open it: `port` in `[http]` of the configuration".to_owned());
            let closed = ApiError::new("http_closed", "the HTTP door is closed, and the console is behind it", hint);
            closed.into_status(Code::FailedPrecondition)
        })?;
        let made = self.engine.console_code(&peer).map_err(refused)?;
        // A browser gives WebAuthn and a secure context to the name, and not to the address.
        let door = door.replace("127.0.0.1", "localhost");
        let code = std::str::from_utf8(made.code.expose()).map_err(|_| Status::internal("a code that is no text"))?;
        // The one place where a code leaves the daemon.
        let url = format!("{door}/console/#code={code}");
        Ok(Response::new(ConsoleCodeReply { url, expires_at_unix_ms: made.expires_at.unix_ms() }))
    }

    async fn list_sessions(&self, request: Request<ListConsoleSessionsRequest>) -> Reply<ListConsoleSessionsReply> {
        let peer = self.peer(&request)?;
        let sessions = self.engine.console_sessions(&peer).await.map_err(refused)?;
        let sessions_json = sessions.iter().map(document).collect::<Result<_, _>>()?;
        Ok(Response::new(ListConsoleSessionsReply { sessions_json }))
    }

    async fn end_session(&self, request: Request<EndConsoleSessionRequest>) -> Reply<ConsoleSessionReply> {
        let peer = self.peer(&request)?;
        let session = self.engine.end_console(&peer, &parsed(&request.get_ref().session)?).await.map_err(refused)?;
        Ok(Response::new(ConsoleSessionReply { session_json: document(&session)? }))
    }

    async fn list_passkeys(&self, request: Request<ListPasskeysRequest>) -> Reply<ListPasskeysReply> {
        let peer = self.peer(&request)?;
        let passkeys = self.engine.passkeys_seen(&peer).map_err(refused)?;
        let passkeys_json = passkeys.iter().map(document).collect::<Result<_, _>>()?;
        Ok(Response::new(ListPasskeysReply { passkeys_json }))
    }

    async fn remove_passkey(&self, request: Request<RemovePasskeyRequest>) -> Reply<PasskeyReply> {
        let peer = self.peer(&request)?;
        let removed = self.engine.remove_passkey(&peer, &request.get_ref().passkey).await.map_err(refused)?;
        Ok(Response::new(PasskeyReply { passkey_json: document(&removed)? }))
    }
}

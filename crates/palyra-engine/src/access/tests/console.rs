//! Console sessions: how they end, whatever their browser does.

use super::{Place, code, come, issue, owner, scoped, told};
use crate::access::VerifiedPeer;
use crate::console::{ConsoleRegistration, ConsoleRequest};
use crate::engine::Engine;
use crate::error::EngineError;
use palyra_access::IssuedTokens;
use palyra_protocol::signed_decision::RequestStatement;
use palyra_protocol::{ConsoleId, ConsoleKey, DaemonKey, Digest};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// A browser with its session.
struct Browser {
    key: DaemonKey,
    session: ConsoleId,
    asked: std::cell::Cell<u32>,
}

impl Browser {
    async fn opened(engine: &Engine, by: &VerifiedPeer) -> Result<Self, EngineError> {
        let key = DaemonKey::generate().unwrap();
        let made = engine.console_code(by)?;
        let code = std::str::from_utf8(made.code.expose()).unwrap();
        let page = ConsoleRegistration { key: ConsoleKey::Ed25519(key.public()), label: "a test".to_owned() };
        let session = engine.open_console(code, page).await?.session;
        Ok(Self { key, session, asked: std::cell::Cell::new(0) })
    }

    /// Asks something.
    fn ask(&self, engine: &Engine) -> Result<VerifiedPeer, EngineError> {
        let (at_ms, body) = (engine.now().unix_ms(), Digest::of(b""));
        self.asked.set(self.asked.get() + 1);
        let nonce = format!("{}{:016}", engine.consoles().epoch(), self.asked.get());
        let said =
            RequestStatement { session: &self.session, method: "GET", path: "/x", body: &body, at_ms, nonce: &nonce };
        let signature = self.key.sign(&said.digest()).to_string().parse().unwrap();
        let (session, method, path) = (self.session.clone(), "GET".to_owned(), "/x".to_owned());
        let request = ConsoleRequest { session, method, path, body, at_ms, nonce, signature };
        VerifiedPeer::by_console(engine, &request, None, "console".parse().unwrap())
    }
}

#[tokio::test]
async fn a_session_ends_when_it_is_idle_or_old() {
    let place = Place::new();
    let engine = place.engine().await;
    let (idle, busy) =
        (Browser::opened(&engine, &owner()).await.unwrap(), Browser::opened(&engine, &owner()).await.unwrap());
    for _ in 0..13 {
        place.later(HOUR);
        busy.ask(&engine).unwrap();
    }
    assert_eq!(code(idle.ask(&engine)), "console_session_ended");
    assert_eq!(engine.console_sessions(&owner()).await.unwrap().len(), 1);
    assert!(told(&engine).await.contains("it was idle"));
    for _ in 0..7 * 24 {
        place.later(HOUR);
        if busy.ask(&engine).is_err() {
            break;
        }
    }
    assert_eq!(code(busy.ask(&engine)), "console_session_ended");
    // A code that nobody used in time opens nothing.
    let made = engine.console_code(&owner()).unwrap();
    place.later(Duration::from_secs(121));
    let page = ConsoleRegistration { key: ConsoleKey::Ed25519(busy.key.public()), label: String::new() };
    let late = engine.open_console(std::str::from_utf8(made.code.expose()).unwrap(), page).await;
    assert_eq!(code(late), "console_code_wrong");
}

#[tokio::test]
async fn a_session_ends_with_the_token_that_opened_it() {
    let place = Place::new();
    let engine = place.engine().await;
    let (view, text) = issue(&engine, scoped("user:local", "admin", &["console.open", "access.read"])).await;
    let browser = Browser::opened(&engine, &come(&engine, &text).unwrap()).await.unwrap();
    let peer = browser.ask(&engine).unwrap();
    // It may do what the token may, and no more.
    assert!(engine.whoami(&peer).is_ok());
    assert_eq!(code(engine.status(&peer)), "scope_missing");
    engine.revoke_token(&owner(), view.token_id, IssuedTokens::Withdrawn).await.unwrap();
    assert_eq!(code(browser.ask(&engine)), "token_revoked");
    assert_eq!(code(engine.whoami(&peer)), "token_revoked", "a peer that came in before is shut out as well");
    // One whose token does not say so opens no console.
    let (_, text) = issue(&engine, scoped("user:local", "admin", &["access.read"])).await;
    assert!(Browser::opened(&engine, &come(&engine, &text).unwrap()).await.is_err());
}

#[tokio::test]
async fn sessions_outlive_the_daemon_and_requests_of_before_do_not() {
    let place = Place::new();
    let engine = place.engine().await;
    let (_, text) = issue(&engine, scoped("user:local", "admin", &["console.open", "access.read"])).await;
    let own = Browser::opened(&engine, &owner()).await.unwrap();
    let (view, revoked) = issue(&engine, scoped("user:local", "admin", &["console.open"])).await;
    let gone = Browser::opened(&engine, &come(&engine, &revoked).unwrap()).await.unwrap();
    let by_token = Browser::opened(&engine, &come(&engine, &text).unwrap()).await.unwrap();
    let idle = Browser::opened(&engine, &owner()).await.unwrap();
    for _ in 0..13 {
        place.later(HOUR);
        own.ask(&engine).unwrap();
        by_token.ask(&engine).unwrap();
        // What is in use is recorded by tasks of their own.
        tokio::task::yield_now().await;
    }
    engine.revoke_token(&owner(), view.token_id, IssuedTokens::Withdrawn).await.unwrap();
    let before = engine.consoles().epoch().to_owned();
    engine.shut_down(Duration::ZERO).await;
    drop(engine);
    let engine = place.engine().await;
    engine.recover_consoles().await.unwrap();
    assert_ne!(engine.consoles().epoch(), before);
    own.ask(&engine).unwrap();
    assert_eq!(code(engine.status(&by_token.ask(&engine).unwrap())), "scope_missing", "as far as its token reaches");
    for over in [&gone, &idle] {
        assert_eq!(code(over.ask(&engine)), "console_session_ended");
    }
    // What was signed for the daemon of before is no request now.
    let (at_ms, body, nonce) = (engine.now().unix_ms(), Digest::of(b""), format!("{before}{:032}", 1));
    let said = RequestStatement { session: &own.session, method: "GET", path: "/x", body: &body, at_ms, nonce: &nonce };
    let signature = own.key.sign(&said.digest()).to_string().parse().unwrap();
    let (session, method, path) = (own.session.clone(), "GET".to_owned(), "/x".to_owned());
    let request = ConsoleRequest { session, method, path, body, at_ms, nonce, signature };
    let old = VerifiedPeer::by_console(&engine, &request, None, "console".parse().unwrap());
    assert_eq!(code(old), "console_epoch");
}

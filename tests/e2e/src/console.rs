//! A browser without a browser: registers a key at the console and signs its requests.

use crate::http::{Answer, Http};
use crate::{Host, text};
use palyra_protocol::signed_decision::RequestStatement;
use palyra_protocol::{
    ApprovalDecision, ApprovalScope, Clock as _, ConsoleId, DaemonKey, DecisionStatement, Digest, GrantMatcher,
    SystemClock,
};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// A page of the console.
#[derive(Debug)]
pub struct Page {
    http: Http,
    key: DaemonKey,
    /// Its session.
    pub session: ConsoleId,
    /// What nonces begin with, as the daemon says.
    epoch: Mutex<String>,
    nonces: AtomicU64,
}

/// The headers of a signed request.
pub type Signed = Vec<(&'static str, String)>;

impl Host {
    /// The code of a fresh address of the console.
    #[must_use]
    pub fn console_code(&self) -> String {
        let made = self.palyra(&["console"]).good();
        let (address, code) = text(&made, "/url").split_once("#code=").expect("a code in the fragment");
        assert!(address.starts_with("http://localhost:") && address.ends_with("/console/"), "{address}");
        code.to_owned()
    }

    /// A page that was let in.
    #[must_use]
    pub fn console(&self) -> Page {
        let key = DaemonKey::generate().expect("a key");
        let http = self.http();
        let opened = http.register(&self.console_code(), &key).is(200).json();
        let session = text(&opened, "/session").parse().expect("a session");
        let page = Page { http, key, session, epoch: Mutex::default(), nonces: AtomicU64::new(0) };
        page.learn_epoch();
        page
    }

    /// The same page after a start of the daemon, at the port that it has now.
    #[must_use]
    pub fn console_again(&self, page: Page) -> Page {
        let again = Page { http: self.http(), ..page };
        again.learn_epoch();
        again
    }
}

impl Http {
    /// Registers a key with a code.
    #[must_use]
    pub fn register(&self, code: &str, key: &DaemonKey) -> Answer {
        let key = format!("ed25519:{}", key.public());
        self.post("/console/session", &json!({ "code": code, "key": key, "label": "a test" }))
    }
}

impl Page {
    fn learn_epoch(&self) {
        let refused = self.get("/console/api/me").refuses(401, "console_epoch");
        let epoch = text(&refused, "/detail").rsplit(' ').next().expect("an epoch").to_owned();
        *self.epoch.lock().expect("no panic before") = epoch;
    }

    /// The headers that a request has to have now.
    #[must_use]
    pub fn signed(&self, method: &str, path: &str, body: &[u8]) -> Signed {
        self.signed_at(method, path, body, SystemClock.now().unix_ms())
    }

    /// The headers of a request that was made at some time.
    #[must_use]
    pub fn signed_at(&self, method: &str, path: &str, body: &[u8], at_ms: u64) -> Signed {
        let epoch = self.epoch.lock().expect("no panic before").clone();
        let nonce = format!("{epoch}{:032x}", self.nonces.fetch_add(1, Ordering::Relaxed));
        let body = Digest::of(body);
        let said = RequestStatement { session: &self.session, method, path, body: &body, at_ms, nonce: &nonce };
        let signature = self.key.sign(&said.digest()).to_string();
        vec![
            ("x-palyra-session", self.session.to_string()),
            ("x-palyra-time", at_ms.to_string()),
            ("x-palyra-body", body.to_string()),
            ("x-palyra-nonce", nonce),
            ("x-palyra-signature", signature),
            ("content-type", "application/json".to_owned()),
        ]
    }

    /// Sends a request with these headers.
    #[must_use]
    pub fn send(&self, method: &str, path: &str, signed: &Signed, body: &[u8]) -> Answer {
        let headers: Vec<(&str, &str)> = signed.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.http.send(method, path, &headers, Some(body).filter(|body| !body.is_empty()))
    }

    /// `GET`.
    #[must_use]
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &self.signed("GET", path, b""), b"")
    }

    /// `POST` of JSON.
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        let body = body.to_string();
        self.send("POST", path, &self.signed("POST", path, body.as_bytes()), body.as_bytes())
    }

    /// An answer to this approval, signed as it is shown.
    #[must_use]
    pub fn answer(&self, asked: &Value, decision: ApprovalDecision) -> Value {
        let said = DecisionStatement {
            approval_id: &text(asked, "/approval_id").parse().expect("an approval"),
            shown: &text(asked, "/call_digest").parse().expect("a digest"),
            policy_hash: &text(asked, "/policy_hash").parse().expect("a digest"),
            decision,
            scope: ApprovalScope::Once,
            matcher: &GrantMatcher::ExactCall,
            reason: "",
        };
        let signature = self.key.sign(&said.digest().expect("a digest")).to_string();
        json!({
            "decision": decision.as_str(), "scope": "once", "matcher": "exact_call",
            "digest": text(asked, "/call_digest"), "signature": signature,
        })
    }

    /// Answers an approval.
    #[must_use]
    pub fn decide(&self, asked: &Value, answer: &Value) -> Answer {
        self.post(&format!("/console/api/inbox/{}/decide", text(asked, "/approval_id")), answer)
    }
}

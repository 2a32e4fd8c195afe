//! How much of the door one caller may take up at a time, so that nobody keeps the others out.

use super::problem::Refused;
use axum::http::StatusCode;
use palyra_engine::VerifiedPeer;
use palyra_protocol::access::Credential;
use palyra_protocol::{ConsoleId, Problem};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How many requests of one token or device may be under way, streams included.
pub(super) const PER_TOKEN: usize = 256;

/// Whose places are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Visitor {
    /// A token or a device.
    Credential(Credential),
    /// A console session.
    Console(ConsoleId),
}

impl Visitor {
    /// Whoever a request came from; nobody on the daemon's own socket.
    pub(super) fn of(peer: &VerifiedPeer) -> Option<Self> {
        let console = peer.console_id().cloned().map(Self::Console);
        console.or_else(|| peer.credential().cloned().map(Self::Credential))
    }
}

/// Who is inside.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd(Arc<Mutex<HashMap<Visitor, usize>>>);

/// A place inside. Given back when the answer has been sent to its end, or its reader has gone.
#[derive(Debug)]
pub(super) struct Place {
    crowd: Crowd,
    by: Visitor,
}

impl Crowd {
    /// Takes a place for a request of this token or device.
    pub(super) fn enter(&self, by: Visitor) -> Result<Place, Refused> {
        let mut inside = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = inside.entry(by.clone()).or_default();
        if *count >= PER_TOKEN {
            let problem = Problem::new(
                "too_many_at_once",
                format!("{PER_TOKEN} requests of this token or device are under way"),
                "wait until some have ended",
            );
            return Err(Refused::new(StatusCode::TOO_MANY_REQUESTS, problem).retry_after(Duration::from_secs(1)));
        }
        *count += 1;
        Ok(Place { crowd: self.clone(), by })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.crowd.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = inside.get_mut(&self.by) {
            *count -= 1;
            if *count == 0 {
                inside.remove(&self.by);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse as _;
    use palyra_protocol::TokenId;

    #[test]
    fn one_token_does_not_take_the_places_of_another() {
        let crowd = Crowd::default();
        let token = || Visitor::Credential(Credential::Token(TokenId::mint()));
        let (first, second) = (token(), token());
        let mut places: Vec<_> = (0..PER_TOKEN).map(|_| crowd.enter(first.clone()).unwrap()).collect();
        assert!(crowd.enter(first.clone()).is_err());
        assert!(crowd.enter(second).is_ok());
        let answer = super::super::kept::keep("body".into_response(), places.pop().unwrap());
        assert!(crowd.enter(first.clone()).is_err(), "the body has not been sent");
        drop(answer);
        assert!(crowd.enter(first).is_ok());
        drop(places);
        assert!(crowd.0.lock().unwrap().is_empty(), "nobody is remembered who is not inside");
    }
}

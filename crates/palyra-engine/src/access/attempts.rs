//! Refused tokens and last uses: counted in memory, written down in sums, told to callers as far as they may know.

use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind};
use palyra_access::TokenRefusal;
use palyra_protocol::Problem;
use std::time::Duration;

/// How long what is only in memory may stay there.
const TENDING: Duration = Duration::from_secs(60);

impl Engine {
    /// Counts a refused token, and says as much as its holder may know.
    pub(crate) fn refuse_token(&self, refusal: TokenRefusal, source: &str) -> EngineError {
        let wait = self.access().registry().attempts().count(source, refusal.reason(), self.clock().now());
        self.tend_attempts();
        let refused = |code: &str, message: &str, hint: &str| {
            EngineError::new(ErrorKind::Unauthenticated, Problem::new(code, message, hint))
        };
        let anew = "ask whoever issued it for another: `palyra access token create`";
        match refusal {
            TokenRefusal::Malformed | TokenRefusal::Unknown | TokenRefusal::WrongSecret => match wait {
                Some(wait) => EngineError::new(
                    ErrorKind::Exhausted,
                    Problem::new("too_many_attempts", "too many tokens were refused from here", "wait, then try again"),
                )
                .retry_after(wait),
                None => refused("unauthenticated", "this token opens nothing here", "check that it was copied whole"),
            },
            TokenRefusal::Rotated => refused("token_rotated", "this token was replaced by a newer one", anew),
            TokenRefusal::Revoked => refused("token_revoked", "this token was withdrawn", anew),
            TokenRefusal::Expired => refused("token_expired", "this token's time is over", anew),
            TokenRefusal::OtherWorkspace => {
                refused("token_other_workspace", "this token opens another workspace", "use a token of this workspace")
            }
            TokenRefusal::PrincipalGone => {
                refused("token_principal_gone", "whom this token speaks for is no longer here", anew)
            }
            TokenRefusal::TokensClosed => refused(
                "tokens_closed",
                "no token opens anything now",
                "an owner has turned the feature `api_tokens` off; ask them",
            ),
            TokenRefusal::RateLimited(wait) => EngineError::new(
                ErrorKind::Exhausted,
                Problem::new(
                    "rate_limited",
                    "this token was used too often in the last minute",
                    "wait, then try again",
                ),
            )
            .retry_after(wait),
        }
    }

    /// Sees to it that refusals are recorded: now, and what comes after in sums, a minute apart.
    pub(crate) fn tend_attempts(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.access().attempts_tended.claim() {
            let engine = self.clone();
            runtime.spawn(async move {
                engine.write_attempts().await;
                engine.pause().await;
                // Whoever comes from here on sends somebody of their own.
                engine.access().attempts_tended.release();
                engine.write_attempts().await;
            });
        }
    }

    /// Sees to it that the last uses of tokens are written down within a minute.
    pub(crate) fn tend_usage(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.access().usage_tended.claim() {
            let engine = self.clone();
            runtime.spawn(async move {
                engine.pause().await;
                engine.access().usage_tended.release();
                engine.write_usage().await;
            });
        }
    }

    /// A minute, or until the end: which writes everything down once more.
    async fn pause(&self) {
        tokio::select! {
            () = tokio::time::sleep(TENDING) => {}
            () = self.closing().cancelled() => {}
        }
    }

    async fn write_attempts(&self) {
        for event in self.access().registry().attempts().drain() {
            if let Err(error) = self.journal().note(&event).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "refused attempts could not be recorded");
            }
        }
    }

    async fn write_usage(&self) {
        let engine = self.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || engine.access().registry().save_usage()).await {
            tracing::warn!(%error, "when tokens were last used could not be written down");
        }
    }

    /// The last word before the end.
    pub(crate) async fn settle_access(&self) {
        self.write_attempts().await;
        self.write_usage().await;
    }
}

//! Why a pairing fails, on either side.

use super::code::CodeError;
use super::message::{Message, Refused};
use super::pake::PakeError;
use super::wire::MessageError;
use crate::device_key::DeviceKeyError;
use crate::entropy::NoEntropy;
use crate::error::IdentityError;
use crate::signing_request::SigningRequestRefusal;
use crate::tls::ConnectionFault;
use palyra_protocol::Problem;
use std::time::Duration;

/// Why a pairing fails.
#[derive(Debug, thiserror::Error)]
pub enum PairingError {
    // The other side's fault, or that of somebody in between.
    /// A message is not one.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The other side's share is not acceptable.
    #[error(transparent)]
    Pake(#[from] PakeError),
    /// The other side does not know the code, or somebody is in between.
    #[error("the other side does not know the code, or another machine is in between")]
    WrongCode,
    /// It was the last wrong guess.
    #[error("the code was guessed wrong too often and is void")]
    CodeBurned,
    /// No code lives that it could be.
    #[error("no pairing code is open that this could be")]
    NoCode,
    /// Too many at once.
    #[error("too many devices are pairing at this moment")]
    Busy,
    /// Too many wrong guesses of late.
    #[error("after wrong guesses pairing is closed for another {} seconds", wait.as_secs())]
    BackOff {
        /// For how long.
        wait: Duration,
    },
    /// The other side took too long.
    #[error("the other side took too long")]
    TooSlow,
    /// The certificate request is refused.
    #[error(transparent)]
    SigningRequest(#[from] SigningRequestRefusal),
    /// The request is for another key than the one that was announced.
    #[error("the certificate request is for another key than the one that was announced")]
    KeyMismatch,
    /// The daemon's certificate does not fit.
    #[error("the daemon's certificate does not fit what it says about itself")]
    Daemon(#[source] ConnectionFault),
    /// The certificate that was issued does not fit.
    #[error("the certificate that was issued is not for this device's key and daemon")]
    Certificate,
    /// The daemon ended it.
    #[error("the daemon ended the pairing: {}", explain(code))]
    Refused {
        /// Its reason: the code of one of these errors.
        code: String,
        /// When another attempt makes sense.
        retry_after: Duration,
    },

    // People.
    /// A person said no.
    #[error("the pairing was denied")]
    Denied,
    /// Nobody answered in time.
    #[error("the pairing was not approved in time")]
    Unanswered,
    /// There is no such pairing any more.
    #[error("no such pairing is open")]
    NotPending,

    // The caller and the host.
    /// What was typed is no code.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// The TLS connection is not ready.
    #[error("the TLS connection is not one that a pairing can be bound to")]
    Channel,
    /// The key cannot be used.
    #[error(transparent)]
    Key(#[from] DeviceKeyError),
    /// The machine gives no randomness.
    #[error(transparent)]
    Entropy(#[from] NoEntropy),
    /// The registry or the authority refuses.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
}

impl PairingError {
    /// The stable machine code. A device is told it.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Refused { code, .. } => code,
            Self::Daemon(fault) => fault.code(),
            other => other.own_code(),
        }
    }

    fn own_code(&self) -> &'static str {
        match self {
            Self::Message(error) => error.code(),
            Self::Pake(PakeError::Share) => "pairing_share",
            Self::Pake(PakeError::Entropy(_)) | Self::Entropy(_) => "no_entropy",
            Self::WrongCode => "wrong_code",
            Self::CodeBurned => "code_burned",
            Self::NoCode => "no_code",
            Self::Busy => "pairing_busy",
            Self::BackOff { .. } => "pairing_back_off",
            Self::TooSlow => "pairing_too_slow",
            Self::SigningRequest(refusal) => refusal.code(),
            Self::KeyMismatch => "key_mismatch",
            Self::Daemon(_) => "daemon_certificate",
            Self::Certificate => "issued_certificate",
            Self::Refused { .. } => "pairing_refused",
            Self::Denied => "pairing_denied",
            Self::Unanswered => "pairing_unanswered",
            Self::NotPending => "pairing_not_pending",
            Self::Code(error) => error.code(),
            Self::Channel => "pairing_channel",
            Self::Key(error) => error.code(),
            Self::Identity(error) => error.code(),
            Self::Io(_) => "pairing_io",
        }
    }

    /// What is counted of it on the daemon's side.
    pub(crate) fn counted(&self) -> &'static str {
        self.own_code()
    }

    /// When another attempt makes sense; zero where waiting helps nothing.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::BackOff { wait } => *wait,
            Self::Busy => Duration::from_secs(5),
            Self::Refused { retry_after, .. } => *retry_after,
            _ => Duration::ZERO,
        }
    }

    /// What to do next, where that can be said.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self.code() {
            "wrong_code" => "check the code; if it is right, another machine may be between the two",
            "code_burned" | "no_code" => "make a new code on the daemon's machine: `palyra pairing code`",
            "pairing_busy" | "pairing_back_off" => "wait, then try again",
            "device_name_taken" => "choose another name with `--name`",
            "pairing_unanswered" => "approve it on the daemon's machine next time: `palyra approvals`",
            "wrong_clock" => "set the clocks of both machines",
            "pairing_version" => "bring both machines to the same version",
            _ => return None,
        })
    }

    /// Code, message and hint, as every door shows them.
    #[must_use]
    pub fn problem(&self) -> Problem {
        match self.hint() {
            Some(hint) => Problem::new(self.code(), self.to_string(), hint),
            None => Problem::plain(self.code(), self.to_string()),
        }
    }

    /// What the daemon sends to the device before it closes the connection.
    #[must_use]
    pub fn refusal(&self) -> Vec<u8> {
        let code = self.own_code().to_owned();
        Message::Refused(Refused { code, retry_after: self.retry_after() }).framed()
    }
}

/// A daemon's reason in words.
fn explain(code: &str) -> &str {
    match code {
        "wrong_code" => "the code is wrong, or another machine is in between",
        "code_burned" => "the code was guessed wrong too often and is void",
        "no_code" => "no pairing code is open that this could be",
        "pairing_busy" => "too many devices are pairing at this moment",
        "pairing_back_off" => "it is closed for a while after wrong guesses",
        "pairing_too_slow" => "this device took too long",
        "pairing_denied" => "it was denied",
        "pairing_unanswered" => "it was not approved in time",
        "device_name_taken" => "another device has this name",
        "key_repeated" => "the key was used before",
        "vault_locked" => "its vault is locked",
        other => other,
    }
}

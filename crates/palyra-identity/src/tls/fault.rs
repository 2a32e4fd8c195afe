//! Why a device does not reach its daemon, in words that tell a person what to do.

use crate::refusal::CertificateRefusal;
use palyra_protocol::{Digest, Timestamp};
use rustls::{AlertDescription, CertificateError, OtherError};
use std::error::Error;
use std::sync::Arc;

/// Why a connection of a paired device failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionFault {
    /// The daemon shows a certificate from an authority that this device does not know.
    #[error("the daemon's certificate comes from an authority that this device does not know")]
    AuthorityChanged {
        /// SHA-256 of the authorities that the device knows.
        known: Vec<Digest>,
        /// SHA-256 of what the daemon sent as its authority, if anything.
        presented: Option<Digest>,
    },
    /// It is another daemon, or none.
    #[error("the certificate is not this daemon's server certificate")]
    ForeignCertificate {
        /// What is wrong with it.
        code: &'static str,
    },
    /// The daemon's certificate is not valid by this device's clock.
    #[error("by this machine's clock ({now}) the daemon's certificate holds only from {from} to {until}")]
    WrongClock {
        /// When it is here.
        now: Timestamp,
        /// From when the certificate holds.
        from: Timestamp,
        /// Until when.
        until: Timestamp,
    },
    /// The daemon says that this device's certificate is over or has not begun.
    #[error("the daemon says that this device's certificate is not valid at this time")]
    CertificateTime,
    /// The daemon says that this device is revoked.
    #[error("this device was revoked")]
    Revoked,
    /// The daemon does not know this device's certificate: the device was removed, or a newer certificate took its
    /// place.
    #[error("the daemon does not know this device's certificate")]
    NotKnown,
    /// The daemon does not trust the authority that this device's certificate comes from.
    #[error("the daemon does not trust the authority of this device's certificate any more")]
    AuthorityRetired,
    /// The daemon wants a certificate and got none.
    #[error("the daemon wants a device's certificate")]
    CertificateRequired,
    /// The other side speaks something else.
    #[error("the other side does not speak TLS 1.3 as the daemon does")]
    NotTheDaemon,
}

impl ConnectionFault {
    /// The stable machine code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::AuthorityChanged { .. } => "authority_changed",
            Self::ForeignCertificate { .. } => "foreign_certificate",
            Self::WrongClock { .. } => "wrong_clock",
            Self::CertificateTime => "device_certificate_time",
            Self::Revoked => "device_revoked",
            Self::NotKnown => "device_not_known",
            Self::AuthorityRetired => "authority_retired",
            Self::CertificateRequired => "device_certificate_required",
            Self::NotTheDaemon => "not_the_daemon",
        }
    }

    /// What to do next.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::AuthorityChanged { .. } => {
                "if the daemon was set up anew, or its authority was rotated while this device was away, pair again; \
                 if not, somebody may be in between: do not"
            }
            Self::ForeignCertificate { .. } | Self::NotTheDaemon => "check the address and port",
            Self::WrongClock { .. } => "set the clocks of both machines",
            Self::CertificateTime => "set the clocks of both machines; if they are right, pair this device again",
            Self::Revoked => "ask the person who runs the daemon; a revoked device is paired again as a new one",
            Self::NotKnown | Self::AuthorityRetired | Self::CertificateRequired => {
                "pair this device again: `palyra pairing code` there, `palyra pair HOST` here"
            }
        }
    }

    /// What a failed connection says, however deep it says it: in the TLS library's own error, or inside that of a
    /// stream or of a client library. Nothing where it failed for another reason, like a network that is down.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(fault) = error.downcast_ref::<Self>() {
                return Some(fault.clone());
            }
            if let Some(error) = error.downcast_ref::<rustls::Error>() {
                return Self::of_tls(error);
            }
            next = match error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref) {
                Some(inner) => Some(inner as &(dyn Error + 'static)),
                None => error.source(),
            };
        }
        None
    }

    /// What the daemon said last, on a connection that could not be written to.
    ///
    /// In TLS 1.3 a device's handshake is over before the daemon has looked at its certificate. A daemon that refuses
    /// it says so and closes, and the device's first request may find the connection closed already. The reason is then
    /// still to be read, without writing: this does so.
    pub fn last_word(connection: &mut rustls::ClientConnection, socket: &mut dyn std::io::Read) -> Option<Self> {
        loop {
            if let Err(error) = connection.process_new_packets() {
                return Self::of_tls(&error);
            }
            match connection.read_tls(socket) {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    fn of_tls(error: &rustls::Error) -> Option<Self> {
        match error {
            rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) => {
                inner.downcast_ref::<Self>().cloned()
            }
            rustls::Error::AlertReceived(alert) => Self::of_alert(*alert),
            rustls::Error::InvalidCertificate(_) => Some(Self::ForeignCertificate { code: "certificate_signature" }),
            rustls::Error::InvalidMessage(_)
            | rustls::Error::PeerIncompatible(_)
            | rustls::Error::PeerMisbehaved(_)
            | rustls::Error::InappropriateMessage { .. }
            | rustls::Error::InappropriateHandshakeMessage { .. } => Some(Self::NotTheDaemon),
            _ => None,
        }
    }

    fn of_alert(alert: AlertDescription) -> Option<Self> {
        Some(match alert {
            AlertDescription::CertificateRevoked => Self::Revoked,
            AlertDescription::CertificateExpired => Self::CertificateTime,
            AlertDescription::UnknownCA => Self::AuthorityRetired,
            AlertDescription::AccessDenied | AlertDescription::UnsupportedCertificate => Self::NotKnown,
            AlertDescription::CertificateRequired => Self::CertificateRequired,
            AlertDescription::HandshakeFailure
            | AlertDescription::ProtocolVersion
            | AlertDescription::NoApplicationProtocol => Self::NotTheDaemon,
            _ => return None,
        })
    }

    /// The fault as the TLS library carries it.
    pub(crate) fn into_tls(self) -> rustls::Error {
        CertificateError::Other(OtherError(Arc::new(self))).into()
    }

    /// A refusal that tells nothing about clocks or authorities.
    pub(crate) fn foreign(refusal: &CertificateRefusal) -> Self {
        Self::ForeignCertificate { code: refusal.code() }
    }
}

//! `palyra pairing`, `pair`, `devices` and `hosts`: what can be typed.

use super::duration;
use clap::{Args, Subcommand};
use palyra_protocol::{Principal, WorkspaceRole};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub enum Pairing {
    /// Make a code that lets one device in, once, while it lives
    Code(PairingCode),
    /// Withdraw a code
    Withdraw {
        /// The code's id, as `palyra pairing code` showed it
        code: String,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra pairing code                       8 digits, for a person to type
  palyra pairing code --qr                  a picture, for a camera
  palyra pairing code --role admin --ttl 2m
  palyra pairing code --device phone        the same device again, with a new key

Three wrong guesses end a code. The device then waits for you: compare the four words that both
screens show, and answer with `palyra approvals decide`.")]
pub struct PairingCode {
    /// A QR code instead of digits
    #[arg(long)]
    pub qr: bool,
    /// The role that the device is limited to: owner, admin, operator
    #[arg(long, value_name = "ROLE", default_value = "operator")]
    pub role: WorkspaceRole,
    /// How long the code lives, like `90s`, `5m`; at most an hour
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "5m")]
    pub ttl: Duration,
    /// For whom the device acts: a member, or `device:NAME` for itself [default: you]
    #[arg(long = "for", value_name = "PRINCIPAL")]
    pub principal: Option<Principal>,
    /// A device that exists and gets a new key, because its own was lost or its certificate is over
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// With `--qr`: the host name or address that the device reaches this machine at
    #[arg(long, value_name = "HOST", requires = "qr")]
    pub reach: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  palyra pair 192.168.1.5 --code '1234 5678'
  palyra pair --code 'PALYRA:1/…'           the text of a QR code says where the daemon is
  echo '1234 5678' | palyra pair home.lan --code -

Afterwards every command works there: palyra --host 192-168-1-5 status")]
pub struct Pair {
    /// Where the daemon is: a host name or an address, with `:PORT` where it is not 7443; a QR code's text says it
    /// itself
    #[arg(value_name = "HOST")]
    pub address: Option<String>,
    /// The code: 8 digits, the text of a QR code, or `-` for standard input
    #[arg(long, value_name = "CODE", default_value = "-", hide_default_value = true)]
    pub code: String,
    /// What the daemon calls this device [default: this machine's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// What this machine calls the daemon, for `--host` [default: made from HOST]
    #[arg(long = "save-as", value_name = "PROFILE")]
    pub profile: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Devices {
    /// List every device: role, last visit, age of its certificate, warnings
    List,
    /// Show one device
    Show {
        /// Its name or id
        device: String,
    },
    /// Give a device another name
    Rename {
        /// Its name or id
        device: String,
        /// The new name
        name: String,
    },
    /// Give a device another role, from its next request on
    Role {
        /// Its name or id
        device: String,
        /// owner, admin or operator
        role: WorkspaceRole,
    },
    /// Have a device get a new key and certificate; what it has holds for another hour
    Rotate {
        /// Its name or id
        device: String,
    },
    /// Shut a device out: its next request is refused, and what it proposed does not start
    Revoke {
        /// Its name or id
        device: String,
        /// Why, for the journal
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
    },
    /// Forget a device that is revoked
    Remove {
        /// Its id
        device: String,
    },
    /// Make a client certificate for a browser on this machine, as a PKCS#12 file; its password is shown this once
    #[command(after_help = "Example:
  palyra --host home devices browser --to palyra.p12
Import the file into the browser, then delete it. The certificate holds for a week and is
revoked with this device.")]
    Browser {
        /// The file to write
        #[arg(long, value_name = "FILE", default_value = "palyra-browser.p12")]
        to: PathBuf,
        /// What people call it [default: this device's name and `browser`]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// See and rotate the authority that signs certificates
    #[command(subcommand)]
    Authority(Authority),
}

#[derive(Debug, Subcommand)]
pub enum Authority {
    /// Show its generations, the newest first
    Show,
    /// Write the trusted certificates as PEM, for curl, openssl and other programs
    Export {
        /// The file to write [default: standard output]
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Let a new generation follow; devices that come within the overlap take it up by themselves
    Rotate {
        /// How long the old one stays trusted; at most 90 days; `0s`: every device has to be paired again
        #[arg(long, value_name = "TIME", value_parser = super::access::overlap, default_value = "30d")]
        overlap: Duration,
        /// A host that the new one is made for, in place of those before; may be repeated
        #[arg(long = "reach", value_name = "HOST")]
        hosts: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub enum Hosts {
    /// List the daemons that this machine was paired with
    List,
    /// Make every command go to one of them; `local` for this machine's own daemon
    Use {
        /// The profile, from `palyra hosts list`, or `local`
        profile: String,
    },
    /// Forget a daemon, with this machine's key for it
    Remove {
        /// The profile
        profile: String,
    },
    /// Get the next certificate now; commands do so by themselves when it is due
    #[command(
        after_help = "A certificate holds for a day. A machine that is used less often keeps its own with a timer:
  palyra hosts renew --all"
    )]
    Renew {
        /// The profile
        #[arg(required_unless_present = "all")]
        profile: Option<String>,
        /// Every daemon
        #[arg(long, conflicts_with = "profile")]
        all: bool,
    },
}

//! The answers to refused and failed clients, in the protocol that each speaks.

use super::super::denial::{Denial, DenialCode};
use super::super::socks;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

/// The fatal TLS alert `unrecognized_name`.
pub(super) const TLS_ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 112];

/// The HTTP answer to a denial. `HEAD` gets no body.
pub(super) fn denied(denial: &Denial, head_only: bool) -> Vec<u8> {
    let status = match denial.code {
        DenialCode::BadRequest | DenialCode::BadTlsHello => 400,
        DenialCode::RequestTimeout => 408,
        DenialCode::RequestTooLarge => 431,
        DenialCode::TooManyConnections => 503,
        _ => 403,
    };
    let error = serde_json::json!({
        "code": denial.code.as_str(),
        "host": denial.host,
        "port": denial.port,
        "message": denial.message,
        "hint": denial.hint,
    });
    let field = format!("X-Palyra-Denied: {}\r\n", denial.code);
    http(status, &phrase(&denial.message), &field, &error, head_only)
}

/// A reason phrase: many clients show it and nothing else.
fn phrase(message: &str) -> String {
    message.chars().filter(|c| c.is_ascii_graphic() || *c == ' ').take(200).collect()
}

/// The HTTP answer when a host is allowed and cannot be reached.
pub(super) fn failed(code: &str, target: (&str, u16), message: &str, head_only: bool) -> Vec<u8> {
    let error = serde_json::json!({
        "code": code,
        "host": target.0,
        "port": target.1,
        "message": message,
        "hint": "the rules allow this host; check its name, and whether it is up",
    });
    http(502, &phrase(message), "", &error, head_only)
}

fn http(status: u16, reason: &str, field: &str, error: &serde_json::Value, head_only: bool) -> Vec<u8> {
    let body = format!("{}\n", serde_json::json!({ "error": error }));
    let length = body.len();
    let mut answer = format!(
        "HTTP/1.1 {status} {reason}\r\n{field}Content-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if !head_only {
        answer.push_str(&body);
    }
    answer.into_bytes()
}

/// Tells a client that it is not served, in its own protocol as far as its first byte tells, and without ever waiting
/// for it.
pub(super) fn busy(mut socket: &TcpStream, denial: &Denial) {
    let mut first = [0; 1];
    // Whatever fails here, the socket is closed next; a client that cannot take the answer sees that.
    if socket.set_nonblocking(true).is_err() || !matches!(socket.peek(&mut first), Ok(1)) {
        return;
    }
    let _told = match first {
        // No method is acceptable.
        [socks::VERSION] => socket.write(&[socks::VERSION, 0xff]),
        _ => socket.write(&denied(denial, false)),
    };
    let _shut = socket.shutdown(Shutdown::Write);
    // Bytes left unread would turn the close into a reset, and the answer would be lost.
    let _drained = socket.read(&mut [0; 4096]);
}

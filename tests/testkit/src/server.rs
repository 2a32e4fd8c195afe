//! Web servers on loopback.

use crate::tls::TlsIdentity;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A listener that does not serve yet, and its port.
#[must_use]
pub fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

/// Reads a request: its head, and the body that its `Content-Length` announces. Where the client ends first, what came.
/// What a client sends without waiting for the answer is lost.
///
/// # Errors
/// The connection breaks.
pub fn read_request(client: &mut impl Read) -> io::Result<String> {
    let (mut client, mut read) = (BufReader::new(client), Vec::new());
    while client.read_until(b'\n', &mut read)? > 0 && !read.ends_with(b"\r\n\r\n") {}
    let head = String::from_utf8_lossy(&read).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    client.take(length.unwrap_or(0)).read_to_end(&mut read)?;
    Ok(String::from_utf8_lossy(&read).into_owned())
}

/// A whole answer that says yes.
#[must_use]
pub fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Served: yes\r\n\r\n{body}", body.len())
}

/// Gives one of these answers to each connection, in this order, and closes it; gives back what was asked.
#[must_use]
pub fn serve(answers: Vec<String>) -> (u16, JoinHandle<Vec<String>>) {
    let (listener, port) = listen();
    (port, serve_on(listener, answers))
}

/// The same on a listener that was opened before.
#[must_use]
pub fn serve_on(listener: TcpListener, answers: Vec<String>) -> JoinHandle<Vec<String>> {
    let one = move |answer: &String| {
        let (mut client, _) = listener.accept().expect("a connection");
        let asked = read_request(&mut client).expect("a request");
        client.write_all(answer.as_bytes()).expect("the client takes the answer");
        asked
    };
    std::thread::spawn(move || answers.iter().map(one).collect())
}

/// Serves the files of a directory, until the process ends.
#[derive(Debug, Clone)]
pub struct FileServer {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FileServer {
    /// A plain server.
    #[must_use]
    pub fn start(directory: &Path) -> Self {
        Self::with(directory, None)
    }

    /// The same behind TLS.
    #[must_use]
    pub fn start_tls(directory: &Path, identity: &TlsIdentity) -> Self {
        Self::with(directory, Some(identity.server()))
    }

    fn with(directory: &Path, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let (listener, port) = listen();
        let server = Self { port, requests: Arc::default() };
        let (this, directory) = (server.clone(), directory.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (this, directory, tls) = (this.clone(), directory.clone(), tls.clone());
                // A client that does not like the certificate is gone; that is its test's business.
                std::thread::spawn(move || match tls {
                    None => while this.answer(&mut &client, &directory).unwrap_or(false) {},
                    Some(config) => {
                        let Ok(connection) = rustls::ServerConnection::new(config) else { return };
                        let mut stream = rustls::StreamOwned::new(connection, client);
                        while this.answer(&mut stream, &directory).unwrap_or(false) {}
                        stream.conn.send_close_notify();
                        drop(stream.flush());
                    }
                });
            }
        });
        server
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it was asked for so far: `GET /x`.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers one request; says whether the client may send another.
    fn answer(&self, client: &mut (impl Read + Write), directory: &Path) -> io::Result<bool> {
        let request = read_request(client)?;
        let first = request.lines().next().unwrap_or("");
        let mut words = first.split_whitespace();
        let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(false) };
        let path = target.split('?').next().unwrap_or("/").trim_start_matches('/');
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{method} /{path}"));
        let (status, body) = match std::fs::read(directory.join(path)) {
            Ok(bytes) if !path.contains("..") => ("200 OK", bytes),
            _ => ("404 Not Found", b"there is no such file\n".to_vec()),
        };
        let length = body.len();
        write!(client, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nContent-Type: text/plain\r\n\r\n")?;
        client.write_all(&body)?;
        client.flush()?;
        Ok(!first.ends_with("HTTP/1.0") && !request.to_lowercase().contains("\r\nconnection: close\r\n"))
    }
}

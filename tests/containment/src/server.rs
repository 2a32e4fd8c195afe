//! A small web server on the host: what a run may reach when a rule says so, and must not when none does.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Serves the files of a directory on a port of 127.0.0.1, until the process ends.
#[derive(Debug, Clone)]
pub struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts one.
    #[must_use]
    pub fn start(directory: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = Self { port, requests: Arc::default() };
        let (this, directory) = (server.clone(), directory.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (this, directory) = (this.clone(), directory.clone());
                std::thread::spawn(move || this.serve(&client, &directory));
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

    fn serve(&self, client: &TcpStream, directory: &Path) {
        let mut reader = BufReader::new(client);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let (mut length, mut last) = (0, line.trim_end().ends_with("HTTP/1.0"));
            loop {
                let mut header = String::new();
                if reader.read_line(&mut header).unwrap_or(0) == 0 || header.trim().is_empty() {
                    break;
                }
                let (name, value) = header.split_once(':').unwrap_or(("", ""));
                match name.to_ascii_lowercase().as_str() {
                    "content-length" => length = value.trim().parse().unwrap_or(0),
                    "connection" => last |= value.trim().eq_ignore_ascii_case("close"),
                    _ => {}
                }
            }
            let _body = (&mut reader).take(length).read_to_end(&mut Vec::new());
            let mut words = line.split_whitespace();
            let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or("/"));
            let path = target.split('?').next().unwrap_or("/").trim_start_matches('/');
            self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{method} /{path}"));
            let file: PathBuf = directory.join(path);
            let (status, body) = match std::fs::read(&file) {
                Ok(bytes) if !path.contains("..") => ("200 OK", bytes),
                _ => ("404 Not Found", b"there is no such file\n".to_vec()),
            };
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Type: text/plain\r\n\r\n", body.len());
            if (&*client).write_all(head.as_bytes()).and_then(|()| (&*client).write_all(&body)).is_err() || last {
                return;
            }
        }
    }
}

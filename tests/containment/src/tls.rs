//! A web server with TLS, and the authority that vouches for it.

use rustls::pki_types::PrivateKeyDer;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;

/// Serves the files of a directory as `localhost`, one request a connection, until the process ends.
#[derive(Debug)]
pub struct TlsServer {
    port: u16,
    authority: String,
}

impl TlsServer {
    /// Starts one.
    #[must_use]
    pub fn start(directory: &Path) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let names = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = names.self_signed(&key).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions of TLS")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .expect("a key that fits");
        let (config, directory) = (Arc::new(config), directory.to_owned());
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (config, directory) = (Arc::clone(&config), directory.clone());
                // A client that does not like the certificate is gone; that is its test's business.
                std::thread::spawn(move || drop(serve(client, config, &directory)));
            }
        });
        Self { port, authority: certificate.pem() }
    }

    /// Where it listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate that a client has to trust, as PEM.
    #[must_use]
    pub fn authority(&self) -> &str {
        &self.authority
    }
}

fn serve(client: TcpStream, config: Arc<rustls::ServerConfig>, directory: &Path) -> std::io::Result<()> {
    let connection = rustls::ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = rustls::StreamOwned::new(connection, client);
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0; 1];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or("/").trim_start_matches('/');
    let (status, body) = match std::fs::read(directory.join(path)) {
        Ok(bytes) if !path.contains("..") => ("200 OK", bytes),
        _ => ("404 Not Found", b"there is no such file\n".to_vec()),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(&body)?;
    stream.conn.send_close_notify();
    stream.flush()
}

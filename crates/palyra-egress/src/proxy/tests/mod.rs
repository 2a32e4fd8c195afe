//! The proxy over real sockets.

mod faults;
mod hostile;
mod protocols;

use super::*;
use crate::{EgressEnd, EgressRule};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::mpsc;

/// A resolver that knows what it is told.
#[derive(Default)]
struct Names(HashMap<&'static str, Vec<SocketAddr>>);

impl Resolve for Names {
    fn resolve(&self, host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
        self.0.get(host).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A proxy and what it recorded.
struct House {
    proxy: Proxy,
    records: mpsc::Receiver<EgressRecord>,
}

impl House {
    fn new(rules: &[&str]) -> Self {
        Self::with(rules, Arc::new(Names::default()), ProxyLimits::default())
    }

    fn with(rules: &[&str], resolver: Arc<dyn Resolve>, limits: ProxyLimits) -> Self {
        let rules = rules.iter().map(|rule| rule.parse::<EgressRule>().unwrap()).collect();
        let (sender, records) = mpsc::channel();
        let sender = Mutex::new(sender);
        let observer: EgressObserver = Arc::new(move |record| sender.lock().unwrap().send(record.clone()).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(listener, Arc::new(EgressRules::new(rules)), resolver, limits, observer).unwrap();
        Self { proxy, records }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address()).unwrap()
    }

    /// Sends bytes, ends, and reads all that comes back.
    fn ask(&self, bytes: &[u8]) -> String {
        let mut client = self.connect();
        client.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn record(&self) -> EgressRecord {
        self.records.recv().unwrap()
    }
}

/// A server of one connection: reads to the client's end or to the marker, answers, closes. Gives what it read.
fn server(until: &'static [u8], answer: &'static [u8]) -> (u16, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut read = Vec::new();
        let mut piece = [0; 1000];
        while until.is_empty() || !read.ends_with(until) {
            match socket.read(&mut piece).unwrap() {
                0 => break,
                count => read.extend_from_slice(&piece[..count]),
            }
        }
        socket.write_all(answer).unwrap();
        read
    });
    (port, thread)
}

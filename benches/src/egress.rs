//! The egress proxy: throughput and latency beside a direct connection, and what a thousand rules cost beside ten.

use crate::Result;
use crate::report::{Report, alternate, median, show};
use palyra_egress::{
    AnswerFilter, Attached, Credentials, Denial, EgressRule, EgressRules, Host, InspectionAuthority, OutgoingRequest,
    Proxy, ProxyLimits, ProxySetup, Purpose, Roots, SystemResolver, Target,
};
use palyra_protocol::{Secret, SecretRef};
use palyra_vault::{Mask, RedactionStream, Redactor, SecretValue, StreamEnd};
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const TRANSFER: u64 = 256 << 20;
const ROUNDS: usize = 7;
const REQUESTS: usize = 300;
const CHECKS: usize = 100_000;

pub fn run(report: &mut Report) -> Result {
    let (server, web) = (serve(answer)?, serve(web_answer)?);
    let rule = |server: SocketAddr| format!("localhost:{}", server.port()).parse();
    let rules = EgressRules::new(vec![rule(server)?, rule(web)?]);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let proxy = Proxy::start(
        listener,
        Arc::new(rules),
        Arc::new(SystemResolver),
        ProxyLimits::default(),
        Arc::new(|_: &_| {}),
    )?;

    let (mut through, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        direct.push(transfer(TcpStream::connect(server)?)?);
        through.push(transfer(tunnel(&proxy, server)?)?);
    }
    let rate = |time: Duration| TRANSFER as f64 / 1e6 / time.as_secs_f64();
    report.at_least("256 MiB through the proxy, MB over direct", rate(median(through)), rate(median(direct)), 0.5);

    let (mut through, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..REQUESTS {
        direct.push(request(|| Ok(TcpStream::connect(server)?))?);
        through.push(request(|| tunnel(&proxy, server))?);
    }
    added(report, "added latency of a new connection", through, direct);

    let (mut through, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..REQUESTS {
        direct.push(web_request(web, "", web)?);
        through.push(web_request(proxy.address(), &format!("http://localhost:{}", web.port()), web)?);
    }
    added(report, "added latency of a plain request", through, direct);
    proxy.stop();

    let (few, many) = (rules_of(10)?, rules_of(1000)?);
    let (many, few) = alternate(15, || check_all(&many), || check_all(&few));
    report.at_most("a check against 1,000 rules, over 10", many / CHECKS as u32, few / CHECKS as u32, 1.1);
    Ok(())
}

/// A request that a credential is attached to, beside the same request through a proxy that attaches none.
pub fn attached_credential(report: &mut Report) -> Result {
    let web = serve(web_answer)?;
    let rules =
        || Ok::<_, Box<dyn std::error::Error>>(EgressRules::new(vec![format!("localhost:{}", web.port()).parse()?]));
    let without = Proxy::start(
        TcpListener::bind("127.0.0.1:0")?,
        Arc::new(rules()?),
        Arc::new(SystemResolver),
        ProxyLimits::default(),
        Arc::new(|_: &_| {}),
    )?;
    let secret: SecretRef = "vault://global/token".parse()?;
    let value = SecretValue::new(b"a token of a usual length, 40 characters".to_vec())?;
    let mut builder = Redactor::builder();
    builder.add(&secret, &value);
    let token = Token { port: web.port(), secret, redactor: Arc::new(builder.build()?) };
    let with = Proxy::with(ProxySetup {
        listener: TcpListener::bind("127.0.0.1:0")?,
        rules: Arc::new(rules()?),
        resolver: Arc::new(SystemResolver),
        limits: ProxyLimits::default(),
        observer: Arc::new(|_: &_| {}),
        credentials: Some((Arc::new(token), Roots::System)),
    })?;
    let url = format!("http://localhost:{}", web.port());
    let (mut attached, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..REQUESTS {
        plain.push(web_request(without.address(), &url, web)?);
        attached.push(web_request(with.address(), &url, web)?);
    }
    report.at_most("a proxied request with a credential, over one without", median(attached), median(plain), 1.5);
    with.stop();
    without.stop();
    Ok(())
}

/// One token for one port.
#[derive(Debug)]
struct Token {
    port: u16,
    secret: SecretRef,
    redactor: Arc<Redactor>,
}

impl Credentials for Token {
    fn is_bound(&self, _: &str, port: u16) -> bool {
        port == self.port
    }

    fn attach(&self, _: &OutgoingRequest<'_>) -> std::result::Result<Attached, Denial> {
        let field =
            ("authorization".to_owned(), Secret::new(b"Bearer a token of a usual length, 40 characters".to_vec()));
        Ok(Attached { fields: vec![field], secrets: vec![self.secret.clone()] })
    }

    fn filter(&self) -> Box<dyn AnswerFilter> {
        Box::new(Filter(RedactionStream::new(Arc::clone(&self.redactor), Mask::SameLength)))
    }

    fn authority(&self) -> Option<&InspectionAuthority> {
        None
    }
}

struct Filter(RedactionStream);

impl AnswerFilter for Filter {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.0.push(bytes, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.0.finish(StreamEnd::Whole, out);
    }
}

fn added(report: &mut Report, what: &str, through: Vec<Duration>, direct: Vec<Duration>) {
    let (through, direct) = (median(through), median(direct));
    let added = format!("{} ({} against {})", show(through.saturating_sub(direct)), show(through), show(direct));
    report.figure(what, &added);
}

/// Serves every connection on a thread of its own.
fn serve(answer: fn(TcpStream) -> std::io::Result<()>) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || answer(socket));
        }
    });
    Ok(address)
}

/// Answers one HTTP request, and keeps the connection until the client closes it.
fn web_answer(mut socket: TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        match socket.read(&mut piece)? {
            0 => return Ok(()),
            count => head.extend_from_slice(&piece[..count]),
        }
    }
    socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")?;
    socket.read(&mut piece).map(drop)
}

/// One request over a connection of its own, to its answer's last byte.
fn web_request(to: SocketAddr, prefix: &str, server: SocketAddr) -> Result<Duration> {
    let start = Instant::now();
    let mut socket = TcpStream::connect(to)?;
    socket.set_nodelay(true)?;
    let head = format!("GET {prefix}/ HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", server.port());
    socket.write_all(head.as_bytes())?;
    let mut read = Vec::new();
    let mut piece = [0; 1024];
    while !read.ends_with(b"\r\n\r\nx") {
        match socket.read(&mut piece)? {
            0 => return Err("the answer broke off".into()),
            count => read.extend_from_slice(&piece[..count]),
        }
    }
    Ok(start.elapsed())
}

/// Answers a request of eight bytes, a count, with that many bytes.
fn answer(mut socket: TcpStream) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut count = [0; 8];
    socket.read_exact(&mut count)?;
    let mut left = u64::from_be_bytes(count);
    let block = vec![7u8; 256 * 1024];
    while left > 0 {
        let size = left.min(block.len() as u64) as usize;
        socket.write_all(&block[..size])?;
        left -= size as u64;
    }
    Ok(())
}

fn tunnel(proxy: &Proxy, server: SocketAddr) -> Result<TcpStream> {
    const ESTABLISHED: usize = "HTTP/1.1 200 Connection established\r\n\r\n".len();
    let mut socket = TcpStream::connect(proxy.address())?;
    socket.set_nodelay(true)?;
    socket.write_all(format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", server.port()).as_bytes())?;
    socket.read_exact(&mut [0; ESTABLISHED])?;
    Ok(socket)
}

fn transfer(mut socket: TcpStream) -> Result<Duration> {
    let start = Instant::now();
    socket.write_all(&TRANSFER.to_be_bytes())?;
    let mut block = vec![0; 256 * 1024];
    let mut read = 0;
    while read < TRANSFER {
        match socket.read(&mut block)? {
            0 => return Err("the transfer broke off".into()),
            count => read += count as u64,
        }
    }
    Ok(start.elapsed())
}

fn request(connect: impl Fn() -> Result<TcpStream>) -> Result<Duration> {
    let start = Instant::now();
    let mut socket = connect()?;
    socket.write_all(&1u64.to_be_bytes())?;
    socket.read_exact(&mut [0; 1])?;
    Ok(start.elapsed())
}

pub fn rules_of(count: usize) -> Result<EgressRules> {
    let rules = (0..count - 2).map(|n| Ok(format!("host-{n}.example.org:443").parse::<EgressRule>()?));
    let more = ["*.deep.example.net", "GET http://example.com/api/*"].map(|rule| Ok(rule.parse::<EgressRule>()?));
    Ok(EgressRules::new(rules.chain(more).collect::<Result<_>>()?))
}

fn check_all(rules: &EgressRules) {
    let name = |name: &str| Host::Name(name.to_owned());
    let tunnel = |host| Target { host, port: 443, purpose: Purpose::Tunnel };
    let targets = [
        tunnel(name("host-7.example.org")),
        tunnel(name("a.b.c.deep.example.net")),
        tunnel(name("nobody.example.test")),
        Target {
            host: name("example.com"),
            port: 80,
            purpose: Purpose::Http { method: "GET".to_owned(), path: "/api/v1/things".to_owned() },
        },
    ];
    for target in targets.iter().cycle().take(CHECKS) {
        let _verdict = black_box(rules.check(black_box(target)));
    }
}

//! Reading the head of an HTTP/1 message, strictly.
//!
//! Two readers that disagree on where a request ends let one request hide in another. So this one takes a single
//! spelling of everything: lines end in CRLF, nothing is folded, a name touches its colon, a body has one length said
//! once. Whatever else stands there is refused by name; nothing is repaired. What goes on to the server is written anew
//! from what was understood, never copied.

use super::host::{Host, parse_port, split_port};

/// How large a head may be.
pub(super) const MAX_HEAD: usize = 16 * 1024;
/// How large the head of an answer may be.
pub(super) const MAX_ANSWER_HEAD: usize = 64 * 1024;
const MAX_FIELDS: usize = 100;
/// How many fields we add to what goes on: `host`, `connection`, and the length of a body.
const OUR_FIELDS: usize = 3;

/// Why a message was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(pub(super) &'static str);

/// How far a head has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// The blank line is not there yet.
    More,
    /// The head ends here; the body begins.
    End(usize),
}

/// Looks for the end of a head, and for line ends that are none.
pub(super) fn scan(bytes: &[u8]) -> Result<Scan, Malformed> {
    let mut line_start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'\n' if at == 0 || bytes[at - 1] != b'\r' => return Err(Malformed("a line ends in a bare line feed")),
            b'\n' if at - 1 == line_start => return Ok(Scan::End(at + 1)),
            b'\n' => line_start = at + 1,
            b'\r' if bytes.get(at + 1).is_some_and(|next| *next != b'\n') => {
                return Err(Malformed("a bare carriage return"));
            }
            0 => return Err(Malformed("a NUL byte")),
            _ => {}
        }
    }
    Ok(Scan::More)
}

/// HTTP/1's two versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Http10,
    Http11,
}

impl Version {
    fn parse(text: &[u8]) -> Result<Self, Malformed> {
        match text {
            b"HTTP/1.1" => Ok(Self::Http11),
            b"HTTP/1.0" => Ok(Self::Http10),
            b"HTTP/2.0" => Err(Malformed("HTTP/2 is not spoken here; use HTTP/1.1")),
            _ => Err(Malformed("the version is neither HTTP/1.1 nor HTTP/1.0")),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
        }
    }
}

/// One header field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// Lower case.
    pub(super) name: String,
    pub(super) value: Vec<u8>,
}

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(u64),
    Chunked,
}

/// A request that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    Connect { host: Host, port: u16 },
    Forward(Forward),
}

/// A plain HTTP request to pass on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Forward {
    pub(super) method: String,
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) path: String,
    query: Option<String>,
    version: Version,
    fields: Vec<Field>,
    pub(super) body: Framing,
}

/// Reads the head of a request to a proxy; `head` ends with its blank line.
pub(super) fn parse_request(head: &[u8]) -> Result<Request, Malformed> {
    let (line, fields) = split_head(head)?;
    let words: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let [method, target, version] = words[..] else {
        return Err(Malformed("the request line is not `METHOD TARGET VERSION` with single spaces"));
    };
    let version = Version::parse(version)?;
    let method = token(method).filter(|m| m.len() <= 32).ok_or(Malformed("the method is not a word"))?;
    if target.iter().any(|b| !(0x21..=0x7e).contains(b) || matches!(b, b'#' | b'\\')) {
        return Err(Malformed("the target holds a fragment, a backslash or a character that is not printable ASCII"));
    }
    let target = std::str::from_utf8(target).map_err(|_| Malformed("the target is not ASCII"))?;
    let body = framing(&fields, version)?;
    if method == "CONNECT" {
        let (host, port) = authority(target, None)?;
        check_host(&fields, &host, port, None)?;
        if body != Framing::None {
            return Err(Malformed("CONNECT with a body"));
        }
        return Ok(Request::Connect { host, port });
    }
    forward(method, target, version, fields, body).map(Request::Forward)
}

/// Reads the head of a request inside a tunnel to this host, which ends here.
#[cfg(target_os = "linux")]
pub(super) fn parse_in_tunnel(head: &[u8], host: &Host, port: u16) -> Result<Forward, Malformed> {
    let (line, fields) = split_head(head)?;
    let words: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let [method, target, version] = words[..] else {
        return Err(Malformed("the request line is not `METHOD TARGET VERSION` with single spaces"));
    };
    let version = Version::parse(version)?;
    let method = token(method).filter(|m| m.len() <= 32).ok_or(Malformed("the method is not a word"))?;
    if !target.starts_with(b"/") || target.iter().any(|b| !(0x21..=0x7e).contains(b) || matches!(b, b'#' | b'\\')) {
        return Err(Malformed("the target is not a path of printable ASCII"));
    }
    let target = std::str::from_utf8(target).map_err(|_| Malformed("the target is not ASCII"))?;
    let body = framing(&fields, version)?;
    if !check_host(&fields, host, port, Some(443))? && version == Version::Http11 {
        return Err(Malformed("no Host field"));
    }
    if fields.iter().any(|field| field.name == "upgrade") {
        return Err(Malformed("Upgrade is not passed on, so WebSockets and HTTP/2 are not spoken to it"));
    }
    if fields.iter().any(|field| field.name == "expect" && !field.value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(Malformed("an unknown expectation"));
    }
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    let (method, path, host) = (method.to_owned(), path.to_owned(), host.clone());
    Ok(Forward { method, host, port, path, query, version, fields, body })
}

fn forward(
    method: &str,
    target: &str,
    version: Version,
    fields: Vec<Field>,
    body: Framing,
) -> Result<Forward, Malformed> {
    let (scheme, rest) = target.split_once("://").ok_or(Malformed("a proxy needs the whole URL as the target"))?;
    if scheme.eq_ignore_ascii_case("https") {
        return Err(Malformed("https goes through CONNECT"));
    }
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(Malformed("the only scheme here is http"));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, port) = authority(&rest[..end], Some(80))?;
    let (path, query) = match rest[end..].split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (&rest[end..], None),
    };
    let path = if path.is_empty() { "/" } else { path };
    let named = check_host(&fields, &host, port, Some(80))?;
    if version == Version::Http11 && !named {
        return Err(Malformed("no Host field"));
    }
    // A server may ignore an Upgrade, and so may we (RFC 9110, section 7.8). Only HTTP/2 is offered beside a request
    // that stands by itself.
    if fields.iter().any(|field| field.name == "upgrade" && !field.value.eq_ignore_ascii_case(b"h2c")) {
        return Err(Malformed("Upgrade is not passed on; open a tunnel with CONNECT"));
    }
    if fields.iter().any(|field| field.name == "expect" && !field.value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(Malformed("an unknown expectation"));
    }
    Ok(Forward { method: method.to_owned(), host, port, path: path.to_owned(), query, version, fields, body })
}

/// Reads `host:port`; without a default the port has to be there.
fn authority(text: &str, default: Option<u16>) -> Result<(Host, u16), Malformed> {
    if text.contains('@') {
        return Err(Malformed("a user name in the target"));
    }
    let (host, port) = split_port(text);
    let host = Host::parse(host).map_err(|_| Malformed("the host is no name and no plain address"))?;
    let port = match port {
        Some(port) => parse_port(port).ok_or(Malformed("the port is no number from 1 to 65535"))?,
        None => default.ok_or(Malformed("CONNECT needs `host:port`"))?,
    };
    Ok((host, port))
}

/// Whether there is a Host field; one that names another host than the target is refused.
fn check_host(fields: &[Field], host: &Host, port: u16, default: Option<u16>) -> Result<bool, Malformed> {
    let Some(value) = only(fields, "host", "two Host fields")? else { return Ok(false) };
    let value = std::str::from_utf8(value).map_err(|_| Malformed("the Host field is not ASCII"))?;
    let (named, named_port) =
        authority(value, default.or(Some(port))).map_err(|_| Malformed("the Host field is no host"))?;
    if named == *host && named_port == port {
        Ok(true)
    } else {
        Err(Malformed("the Host field differs from the target"))
    }
}

/// What the first bytes of a tunnel that is not TLS are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Plain {
    /// They may become an HTTP request.
    More,
    /// No HTTP/1 request, or one that names no other host than the tunnel's.
    Fine,
}

/// Looks for an HTTP request at the beginning of a tunnel. Where many hosts share one address, the `Host` field says
/// which of them is meant, just as the name in a TLS greeting does. A request for another host than the tunnel's is
/// refused, and so is one that could be read in two ways. What follows the first request is not looked at.
pub(super) fn read_plain(bytes: &[u8], host: &Host) -> Result<Plain, Malformed> {
    // A client that names an address by its number may call it what it likes.
    let Host::Name(_) = host else { return Ok(Plain::Fine) };
    // Servers pass over blank lines before a request.
    let bytes = bytes.trim_ascii_start();
    match first_line(bytes) {
        FirstLine::Request => {}
        FirstLine::OtherVersion => {
            return Err(Malformed("a request in a tunnel without TLS must be HTTP/1.1 or HTTP/1.0"));
        }
        FirstLine::OtherProtocol => return Ok(Plain::Fine),
        FirstLine::More => return Ok(Plain::More),
    }
    let Scan::End(end) = scan(bytes)? else { return Ok(Plain::More) };
    let (line, fields) = split_head(&bytes[..end])?;
    let text = |value| std::str::from_utf8(value).map_err(|_| Malformed("the request names a host that is not ASCII"));
    let named = only(&fields, "host", "two Host fields")?.map(text).transpose()?;
    let target = text(line)?.split_once("://").map(|(_, rest)| rest.split(['/', '?', ' ']).next().unwrap_or(rest));
    for named in named.into_iter().chain(target) {
        if authority(named, Some(80))?.0 != *host {
            return Err(Malformed("the request names another host than the tunnel's"));
        }
    }
    Ok(Plain::Fine)
}

/// What the first line of a tunnel without TLS is.
enum FirstLine {
    /// It has no end yet.
    More,
    /// `METHOD … HTTP/1.x`, however carelessly written.
    Request,
    /// A request by its method and target, of a version that servers read differently: some serve it as HTTP/1.
    OtherVersion,
    /// Something else, which is not held up.
    OtherProtocol,
}

/// Reads a first line as leniently as the most lenient server would.
fn first_line(bytes: &[u8]) -> FirstLine {
    let end = bytes.iter().position(|b| *b == b'\n');
    let line = bytes[..end.unwrap_or(bytes.len())].trim_ascii_end();
    let mut words = line.split(|b| matches!(b, b' ' | b'\t')).filter(|word| !word.is_empty());
    let method = words.next().unwrap_or_default();
    // A method is a word, and a line is text: what is neither is some other protocol.
    if !method.is_empty() && token(method).is_none() || line.iter().any(|b| *b < 0x20 && *b != b'\t' || *b == 0x7f) {
        return FirstLine::OtherProtocol;
    }
    if end.is_none() {
        return FirstLine::More;
    }
    let says = |what: &[u8]| line.windows(what.len()).any(|part| part.eq_ignore_ascii_case(what));
    let target = words.next().unwrap_or_default();
    let is_target = target.starts_with(b"/") || target == b"*" || says(b"://");
    match (says(b"HTTP/1."), line == b"PRI * HTTP/2.0", is_target || says(b"HTTP/")) {
        (true, ..) => FirstLine::Request,
        // The preface of HTTP/2 is no request, and is taken for one by no server.
        (_, true, _) | (_, _, false) => FirstLine::OtherProtocol,
        (_, _, true) => FirstLine::OtherVersion,
    }
}

/// The first line and the fields of a head that ends with its blank line.
fn split_head(head: &[u8]) -> Result<(&[u8], Vec<Field>), Malformed> {
    let text = head.strip_suffix(b"\r\n\r\n").ok_or(Malformed("the head has no end"))?;
    let mut lines = text.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let first = lines.next().filter(|line| !line.is_empty()).ok_or(Malformed("the first line is empty"))?;
    let fields = lines.map(parse_field).collect::<Result<Vec<_>, _>>()?;
    // What goes on has ours besides, and has to be readable in its turn.
    if fields.len() > MAX_FIELDS || end_to_end(&fields).count() + OUR_FIELDS > MAX_FIELDS {
        return Err(Malformed("more header fields than can be passed on"));
    }
    Ok((first, fields))
}

fn parse_field(line: &[u8]) -> Result<Field, Malformed> {
    if line.starts_with(b" ") || line.starts_with(b"\t") {
        return Err(Malformed("a folded header field"));
    }
    let colon = line.iter().position(|b| *b == b':').ok_or(Malformed("a header field without a colon"))?;
    let name = token(&line[..colon]).ok_or(Malformed("a header field's name is not a word that touches its colon"))?;
    let value = trim(&line[colon + 1..]);
    if value.iter().any(|b| (*b < 0x20 && *b != b'\t') || *b == 0x7f) {
        return Err(Malformed("a control character in a header field"));
    }
    Ok(Field { name: name.to_ascii_lowercase(), value: value.to_vec() })
}

/// Without the spaces and tabs around it.
fn trim(bytes: &[u8]) -> &[u8] {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let start = bytes.iter().position(|b| !blank(b)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|b| !blank(b)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

pub(super) fn token(bytes: &[u8]) -> Option<&str> {
    let fits = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    std::str::from_utf8(bytes).ok().filter(|_| !bytes.is_empty() && bytes.iter().all(fits))
}

/// The value of a field that may stand there once.
fn only<'a>(fields: &'a [Field], name: &str, twice: &'static str) -> Result<Option<&'a [u8]>, Malformed> {
    let mut found = fields.iter().filter(|field| field.name == name);
    let first = found.next();
    if found.next().is_some() { Err(Malformed(twice)) } else { Ok(first.map(|field| field.value.as_slice())) }
}

fn framing(fields: &[Field], version: Version) -> Result<Framing, Malformed> {
    let length = only(fields, "content-length", "two Content-Length fields")?;
    let encoding = only(fields, "transfer-encoding", "two Transfer-Encoding fields")?;
    match (length, encoding) {
        (None, None) => Ok(Framing::None),
        (Some(_), Some(_)) => Err(Malformed("Content-Length and Transfer-Encoding together")),
        (None, Some(_)) if version == Version::Http10 => Err(Malformed("Transfer-Encoding in HTTP/1.0")),
        (None, Some(value)) if value.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
        (None, Some(_)) => Err(Malformed("a Transfer-Encoding other than `chunked`")),
        (Some(value), None) => {
            let digits = (1..=18).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
            let number = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
            match number {
                Some(0) => Ok(Framing::None),
                Some(length) => Ok(Framing::Length(length)),
                None => Err(Malformed("a Content-Length that is no plain number")),
            }
        }
    }
}

/// Fields that speak of one connection, and those that we write ourselves.
pub(super) fn is_ours(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "keep-alive"
            | "te"
            | "trailer"
            | "upgrade"
            | "http2-settings"
            | "host"
            | "content-length"
            | "transfer-encoding"
    ) || name.starts_with("proxy-")
}

/// The fields that go on: neither ours nor named by `Connection`.
fn end_to_end(fields: &[Field]) -> impl Iterator<Item = &Field> {
    let named: Vec<String> = fields
        .iter()
        .filter(|field| field.name == "connection")
        .flat_map(|field| field.value.split(|b| *b == b','))
        .map(|name| String::from_utf8_lossy(trim(name)).to_ascii_lowercase())
        .collect();
    fields.iter().filter(move |field| !is_ours(&field.name) && !named.contains(&field.name))
}

fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

impl Forward {
    /// The head as the server gets it.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        let mut out = format!("{} {}{query} {}\r\n", self.method, self.path, self.version.as_str()).into_bytes();
        let host = if self.port == 80 { self.host.to_string() } else { format!("{}:{}", self.host, self.port) };
        write_field(&mut out, "host", host.as_bytes());
        for field in end_to_end(&self.fields) {
            write_field(&mut out, &field.name, &field.value);
        }
        match self.body {
            // A method that may have a body says that it has none.
            Framing::None if self.fields.iter().any(|field| field.name == "content-length") => {
                write_field(&mut out, "content-length", b"0");
            }
            Framing::None => {}
            Framing::Length(length) => write_field(&mut out, "content-length", length.to_string().as_bytes()),
            Framing::Chunked => write_field(&mut out, "transfer-encoding", b"chunked"),
        }
        out.extend_from_slice(b"connection: close\r\n\r\n");
        out
    }

    /// The path with its query.
    #[cfg(target_os = "linux")]
    pub(super) fn target(&self) -> String {
        self.query.as_ref().map_or_else(|| self.path.clone(), |query| format!("{}?{query}", self.path))
    }

    /// Whether the client waits to be told that it may send its body.
    #[cfg(target_os = "linux")]
    pub(super) fn expects_continue(&self) -> bool {
        self.fields.iter().any(|field| field.name == "expect")
    }

    /// The fields that go on, as text.
    #[cfg(target_os = "linux")]
    pub(super) fn end_to_end_text(&self) -> Result<Vec<(String, String)>, Malformed> {
        let text = |field: &Field| match std::str::from_utf8(&field.value) {
            Ok(value) => Ok((field.name.clone(), value.to_owned())),
            Err(_) => Err(Malformed("a header field that is not text")),
        };
        end_to_end(&self.fields).map(text).collect()
    }

    /// The values of all fields.
    #[cfg(target_os = "linux")]
    pub(super) fn values(&self) -> Vec<&[u8]> {
        self.fields.iter().map(|field| field.value.as_slice()).collect()
    }

    /// A field by which some servers replace the method or the path that a rule has just allowed.
    pub(super) fn overriding_field(&self) -> Option<&str> {
        self.fields.iter().map(|field| field.name.as_str()).find(|name| is_overriding(name))
    }
}

/// Whether some servers take this field for another method or path.
pub(super) fn is_overriding(name: &str) -> bool {
    const OVERRIDES: [&str; 14] = [
        "x-http-method-override",
        "x-http-method",
        "x-method-override",
        "x-method",
        "x-original-url",
        "x-original-uri",
        "x-rewrite-url",
        "x-override-url",
        "x-forwarded-uri",
        "x-forwarded-path",
        "x-forwarded-prefix",
        "x-http-path-override",
        "x-http-destinationurl",
        // Where WebDAV copies and moves to.
        "destination",
    ];
    // Some servers take an underscore for a hyphen.
    OVERRIDES.contains(&name.to_ascii_lowercase().replace('_', "-").as_str())
}

/// The head of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: u16,
    line: Vec<u8>,
    fields: Vec<Field>,
}

/// Reads the head of a server's answer.
pub(super) fn parse_answer(head: &[u8]) -> Result<Answer, Malformed> {
    let (line, fields) = split_head(head)?;
    let (version, rest) = line.split_at_checked(8).ok_or(Malformed("no status line"))?;
    Version::parse(version)?;
    let digits = rest.get(1..4).filter(|_| rest[0] == b' ').filter(|digits| digits.iter().all(u8::is_ascii_digit));
    let status = digits.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|text| text.parse().ok());
    let status: u16 = status.filter(|status| *status >= 100).ok_or(Malformed("no status"))?;
    if rest.get(4).is_some_and(|b| *b != b' ') || rest.iter().any(|b| *b < 0x20 || *b == 0x7f) {
        return Err(Malformed("a status line that cannot be read"));
    }
    framing(&fields, Version::Http11)?;
    Ok(Answer { status, line: line.to_vec(), fields })
}

/// How much follows the head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerBody {
    None,
    Length(u64),
    Chunked,
    /// All that comes until the server closes.
    UntilClose,
}

impl Answer {
    /// How much follows, if this answers a request with this method (RFC 9112, section 6.3).
    pub(super) fn body(&self, method: &str) -> AnswerBody {
        if method == "HEAD" || self.status < 200 || matches!(self.status, 204 | 304) {
            return AnswerBody::None;
        }
        // It was read once already; what cannot be read was refused then.
        match framing(&self.fields, Version::Http11) {
            Ok(Framing::Length(length)) => AnswerBody::Length(length),
            Ok(Framing::Chunked) => AnswerBody::Chunked,
            Ok(Framing::None) if self.fields.iter().any(|field| field.name == "content-length") => AnswerBody::None,
            Ok(Framing::None) | Err(_) => AnswerBody::UntilClose,
        }
    }

    /// The head as the client gets it: one answer on this connection, then its end.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.line.clone();
        out.extend_from_slice(b"\r\n");
        for field in end_to_end(&self.fields) {
            write_field(&mut out, &field.name, &field.value);
        }
        let framing = |field: &&Field| matches!(field.name.as_str(), "content-length" | "transfer-encoding");
        for field in self.fields.iter().filter(framing) {
            write_field(&mut out, &field.name, &field.value);
        }
        if self.status >= 200 {
            out.extend_from_slice(b"connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}

#[cfg(test)]
#[path = "http/tests.rs"]
mod tests;

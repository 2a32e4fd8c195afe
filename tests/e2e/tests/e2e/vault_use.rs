//! Secrets that programs use and never see: attached by the proxy, as files, and gone from everything that is put out.
//!
//! The servers are real ones on this machine's loopback device, over TLS with a certificate of a test authority that
//! only the daemon trusts; the clients are those of the system.

use crate::vault::{no_trace, spellings};
use palyra_e2e::{Host, Ran, text};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const VALUE: &str = "s3cr3t-Zk9+/uL==-github-token-value";

/// Serves files of a directory to those who show the token, tells everything it was sent on `/echo`, and sends `/away`
/// elsewhere.
const SERVER: &str = r#"
import base64, http.server, os, ssl, sys
token, root, cert, key, other = sys.argv[1:6]
basic = base64.b64encode(("me:" + token).encode()).decode()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self, status, body, fields=()):
        self.send_response(status)
        for name, value in fields:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
    def do_GET(self):
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        shown = self.headers.get("Authorization") or ""
        path = self.path.split("?")[0]
        if path == "/open":
            return self.answer(200, ("shown:" + shown).encode())
        if path == "/away":
            return self.answer(302, b"", [("Location", other)])
        if shown not in ("Bearer " + token, "Basic " + basic):
            return self.answer(401, b"who are you?", [("WWW-Authenticate", "Basic realm=x")])
        if path == "/echo":
            return self.answer(200, (str(self.headers) + base64.b64encode(token.encode()).decode()).encode() + body, [("X-Token", token)])
        file = os.path.join(root, path.lstrip("/"))
        if os.path.isfile(file):
            return self.answer(200, open(file, "rb").read())
        self.answer(404, b"none")
    do_POST = do_HEAD = do_GET
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
if cert:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"#;

/// Not every node looks for a proxy by itself: this one asks it for a tunnel, and trusts what node trusts.
const NODE: &str = r"
const http = require('http'), tls = require('tls'), proxy = new URL(process.env.HTTPS_PROXY);
const tunnel = http.request({ host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: 'ADDRESS', headers: { host: 'ADDRESS' } });
tunnel.on('connect', (_, socket) => {
  const server = tls.connect({ socket, host: '127.0.0.1' }, () => server.write('GET /repo.git/HEAD HTTP/1.1\r\nHost: ADDRESS\r\n\r\n'));
  let answer = '';
  server.on('data', piece => answer += piece).on('error', console.log);
  server.on('end', () => console.log(answer.split('\r\n\r\n')[1]));
});
tunnel.end();
";

/// A server of this machine. It dies with this value.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(dir: &Path, tls: bool, other: &str) -> Self {
        let script = dir.join("server.py");
        fs::write(&script, SERVER).unwrap();
        let (cert, key) = if tls { ("leaf.pem", "leaf.key") } else { ("", "") };
        let path = |name: &str| if name.is_empty() { PathBuf::new() } else { dir.join(name) };
        let mut child = Command::new("/usr/bin/python3")
            .arg(&script)
            .args([
                VALUE.as_ref(),
                dir.join("www").as_os_str(),
                path(cert).as_os_str(),
                path(key).as_os_str(),
                other.as_ref(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn run(dir: &Path, program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).current_dir(dir).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A test authority, and a certificate of it for the loopback device.
fn certificates(dir: &Path) {
    fs::write(dir.join("san.cnf"), "subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth\n").unwrap();
    let request = ["req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test"];
    run(dir, "openssl", &[&request[..], &["-x509", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2"]].concat());
    run(dir, "openssl", &[&request[..], &["-keyout", "leaf.key", "-out", "leaf.csr"]].concat());
    let sign =
        ["x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2"];
    run(dir, "openssl", &[&sign[..], &["-extfile", "san.cnf", "-out", "leaf.pem"]].concat());
}

/// A host whose daemon trusts a server of this machine, with the token in its vault and bound to that server.
pub(crate) struct World {
    pub(crate) host: Host,
    server: Server,
    plain: Server,
}

impl World {
    fn new() -> Self {
        Self::with("")
    }

    /// With more configuration; `PORT` in it is the server's.
    pub(crate) fn with(config: &str) -> Self {
        let mut host = Host::idle();
        let dir = host.path("servers");
        fs::create_dir_all(dir.join("www")).unwrap();
        certificates(&dir);
        run(&dir, "git", &["init", "-q", "--bare", "www/repo.git"]);
        run(&dir, "git", &["init", "-q", "seed"]);
        let seed = dir.join("seed");
        fs::write(seed.join("hello.txt"), "hello from the repository\n").unwrap();
        run(&seed, "git", &["add", "."]);
        run(&seed, "git", &["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "one"]);
        run(&seed, "git", &["push", "-q", "../www/repo.git", "HEAD:refs/heads/main"]);
        run(&dir, "git", &["--git-dir", "www/repo.git", "symbolic-ref", "HEAD", "refs/heads/main"]);
        run(&dir, "git", &["--git-dir", "www/repo.git", "update-server-info"]);
        let plain = Server::start(&dir, false, "");
        let server = Server::start(&dir, true, &format!("http://localhost:{}/open", plain.port));
        host.configure(&format!(
            "[egress]\nallowed_hosts = [\"127.0.0.1:{}\", \"127.0.0.1:{}\", \"localhost:{}\"]\n\
             [process_runner]\nallow_interpreters = [\"python3\", \"node\", \"sh\"]\n{}",
            server.port,
            plain.port,
            plain.port,
            config.replace("PORT", &server.port.to_string())
        ));
        host.set_env("SSL_CERT_FILE", dir.join("ca.pem"));
        host.start();
        host.palyra_fed(&["vault", "put", "global/github"], VALUE.as_bytes()).exits(0).done();
        Self { host, server, plain }
    }

    pub(crate) fn bind(&self, words: &[&str]) {
        let host = format!("127.0.0.1:{}", self.server.port);
        let bind = ["vault", "bind", "global/github", "--host", &host];
        self.host.palyra(&[&bind[..], words].concat()).exits(0).done();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.server.port)
    }

    /// Runs a program with the token attached by the proxy, with a person's yes.
    fn proxied(&self, argv: &[&str]) -> Value {
        self.with_secrets(argv, &json!([{ "ref": "vault://global/github", "as": "proxy", "name": "TOKEN" }]))
    }

    fn with_secrets(&self, argv: &[&str], secrets: &Value) -> Value {
        self.ended(argv, secrets).json()
    }

    fn ended(&self, argv: &[&str], secrets: &Value) -> Ran {
        self.answered(&json!({ "argv": argv, "secrets": secrets }))
    }

    /// Runs a program with a person's yes.
    fn answered(&self, input: &Value) -> Ran {
        let (call, approval) = self.host.ask("palyra.process.run", input, &[]);
        self.host.decide(&approval, "allow", &[]).exits(0).done();
        self.host.palyra(&["calls", "follow", &call])
    }

    /// Nothing that the daemon has written or said holds the value.
    pub(crate) fn nothing_left(&self, said: &[&Value]) {
        assert!(no_trace(&self.host.state(), VALUE) > 3, "there was something to look at");
        no_trace(&self.host.path("w"), VALUE);
        let log = fs::read_to_string(self.host.path("log")).unwrap();
        let journal = self.host.palyra(&["journal", "export"]).exits(0).stdout;
        for spelling in spellings(VALUE) {
            let spelling = String::from_utf8(spelling).unwrap();
            for shown in [&log, &journal].into_iter().cloned().chain(said.iter().map(|value| value.to_string())) {
                assert!(!shown.contains(&spelling), "{spelling} in {shown}");
            }
        }
        self.host.palyra(&["journal", "verify"]).exits(0).done();
    }
}

fn stdout(outcome: &Value) -> &str {
    text(outcome, "/output/stdout")
}

#[test]
fn clients_of_the_system_use_a_token_that_they_never_hold() {
    let world = World::new();
    world.bind(&["--header", "Authorization: Bearer {}"]);
    let curl = world.proxied(&["curl", "-sS", &world.url("/repo.git/HEAD")]);
    assert_eq!(stdout(&curl), "ref: refs/heads/main\n", "{curl}");
    let git = world.proxied(&["git", "clone", "-q", &world.url("/repo.git"), "copy"]);
    assert_eq!(world.host.content("copy/hello.txt"), "hello from the repository\n", "{git}");
    let script =
        format!("import urllib.request as r; print(r.urlopen('{}').read().decode())", world.url("/repo.git/HEAD"));
    let python = world.proxied(&["/usr/bin/python3", "-c", &script]);
    assert_eq!(stdout(&python).trim(), "ref: refs/heads/main", "{python}");
    let script = NODE.replace("ADDRESS", &format!("127.0.0.1:{}", world.server.port));
    let node = world.proxied(&["node", "-e", &script]);
    assert_eq!(stdout(&node).trim(), "ref: refs/heads/main", "{node}");
    let uses = world.host.palyra(&["vault", "blame", "global/github"]).good();
    let attached: Vec<_> = uses.as_array().unwrap().iter().filter(|entry| entry["what"] == "attached").collect();
    assert!(attached.len() >= 4, "{uses}");
    assert!(attached.iter().all(|entry| entry["call_id"].is_string() && entry["decision"].is_string()), "{uses}");
    assert!(text(attached[attached.len() - 1], "/program").ends_with("curl"), "{uses}");
    world.nothing_left(&[&curl, &git, &python, &node, &uses]);
}

#[test]
fn a_reply_that_echoes_the_token_is_cleaned_and_the_process_holds_a_placeholder() {
    let world = World::new();
    world.bind(&["--header", "Authorization: Bearer {}"]);
    let echoed = world.proxied(&["curl", "-sSi", "-d", "body", &world.url("/echo")]);
    assert!(stdout(&echoed).contains("Bearer *****") && stdout(&echoed).ends_with("body"), "{echoed}");
    let env = world.proxied(&["sh", "-c", "env; cat /proc/self/environ /proc/1/environ 2>/dev/null | tr '\\0' '\\n'"]);
    assert!(stdout(&env).contains("TOKEN=palyra-placeholder-"), "{env}");
    let fetched = {
        let input =
            json!({ "url": world.url("/echo"), "secrets": [{ "ref": "vault://global/github", "as": "proxy" }] });
        let (call, approval) = world.host.ask("palyra.http.fetch", &input, &[]);
        world.host.decide(&approval, "allow", &[]).exits(0).done();
        world.host.palyra(&["calls", "follow", &call]).good()
    };
    assert_eq!(fetched["output"]["status"], 200, "{fetched}");
    assert_eq!(fetched["output"]["redacted"][0]["secret"], "vault://global/github", "{fetched}");
    world.nothing_left(&[&echoed, &env, &fetched]);
}

#[test]
fn what_a_binding_does_not_cover_is_refused_with_what_to_ask_for() {
    let world = World::new();
    world.bind(&[
        "--header",
        "Authorization: Bearer {}",
        "--method",
        "GET",
        "--path",
        "/repo.git/*",
        "--program",
        "curl",
    ]);
    let mismatch = |argv: &[&str]| {
        let outcome = world.proxied(argv);
        assert!(stdout(&outcome).contains("credential_endpoint_mismatch"), "{argv:?}: {outcome}");
        assert!(stdout(&outcome).contains("palyra vault bind"), "{argv:?}: {outcome}");
    };
    let fine = world.proxied(&["curl", "-sS", &world.url("/repo.git/HEAD")]);
    assert_eq!(stdout(&fine), "ref: refs/heads/main\n", "{fine}");
    mismatch(&["curl", "-sS", &world.url("/echo")]);
    mismatch(&["curl", "-sS", "-d", "x", &world.url("/repo.git/HEAD")]);
    let dotted = world.proxied(&["curl", "-sS", "--path-as-is", &world.url("/repo.git/../echo")]);
    assert!(stdout(&dotted).contains("credential_endpoint_mismatch"), "{dotted}");
    let script = format!(
        "import urllib.request as r, urllib.error as e\ntry: r.urlopen('{}')\nexcept e.HTTPError as x: print(x.read().decode())",
        world.url("/repo.git/HEAD")
    );
    mismatch(&["/usr/bin/python3", "-c", &script]);
    // A placeholder goes nowhere else.
    let elsewhere = format!("http://127.0.0.1:{}/open", world.plain.port);
    let argv = ["sh", "-c", &format!("curl -sS -H \"X-Key: $TOKEN\" {elsewhere}")];
    let input = json!({
        "argv": argv,
        "secrets": [{ "ref": "vault://global/github", "as": "proxy", "name": "TOKEN" }],
        "requested_egress_hosts": [format!("127.0.0.1:{}", world.plain.port)],
    });
    let shown_elsewhere = world.answered(&input).json();
    assert!(stdout(&shown_elsewhere).contains("credential_endpoint_mismatch"), "{shown_elsewhere}");
    // Nor does the token follow a redirect to another origin, by whatever the client does.
    let world = World::new();
    world.bind(&["--header", "Authorization: Bearer {}"]);
    let input = json!({
        "argv": ["curl", "-sSL", &world.url("/away")],
        "secrets": [{ "ref": "vault://global/github", "as": "proxy", "name": "TOKEN" }],
        "requested_egress_hosts": [format!("localhost:{}", world.plain.port)],
    });
    let away = world.answered(&input).json();
    assert_eq!(stdout(&away), "shown:", "{away}");
    // What cannot be looked at is refused by name.
    let upgraded =
        world.proxied(&["curl", "-sS", "-H", "Connection: Upgrade", "-H", "Upgrade: websocket", &world.url("/x")]);
    assert!(stdout(&upgraded).contains("credential_protocol_refused"), "{upgraded}");
    let address = format!("127.0.0.1:{}", world.server.port);
    let opaque = world.proxied(&["curl", "-sS", "-p", "--proxytunnel", &format!("http://{address}/x")]);
    assert!(opaque.to_string().contains("credential_protocol_refused"), "{opaque}");
    let h2 = "import os, socket, ssl\np = os.environ['HTTPS_PROXY'].split(':')[-1]\ns = socket.create_connection(('127.0.0.1', int(p)))\n\
              s.sendall(b'CONNECT ADDRESS HTTP/1.1\\r\\nHost: ADDRESS\\r\\n\\r\\n'); s.recv(999)\n\
              c = ssl.create_default_context(); c.set_alpn_protocols(['h2'])\n\
              try: c.wrap_socket(s, server_hostname='127.0.0.1'); print('spoken')\nexcept ssl.SSLError as e: print('refused', e)";
    let h2 = world.proxied(&["/usr/bin/python3", "-c", &h2.replace("ADDRESS", &address)]);
    assert!(stdout(&h2).starts_with("refused") && h2.to_string().contains("HTTP/2 is not spoken"), "{h2}");
    world.nothing_left(&[&fine, &away, &upgraded, &opaque, &h2]);
}

#[test]
fn a_file_and_a_variable_reach_the_process_and_nothing_that_it_says() {
    let world = World::new();
    let secrets = json!([
        { "ref": "vault://global/github", "as": "file", "name": "token" },
        { "ref": "vault://global/github", "as": "env", "name": "GH_TOKEN" },
    ]);
    let input = json!({ "argv": ["cat", "/run/secrets/token"], "secrets": secrets });
    let (call, approval) = world.host.ask("palyra.process.run", &input, &[]);
    let card = world.host.palyra_text(&["approvals", "show", &approval]).exits(0).stdout;
    assert!(card.contains("vault://global/github") && card.contains("/run/secrets/token"), "{card}");
    assert!(card.contains("least preferred"), "{card}");
    world
        .host
        .palyra(&["approvals", "decide", &approval, "allow", "--scope", "session", "--match", "tool"])
        .exits(10)
        .done();
    world.host.decide(&approval, "allow", &[]).exits(0).done();
    let shown = world.host.palyra(&["calls", "follow", &call]).good();
    assert_eq!(stdout(&shown), "[redacted]", "{shown}");
    assert_eq!(shown["output"]["redacted"][0]["count"], 1, "{shown}");
    // It reached the process: its digest and length are those of the value.
    let sum = "wc -c < /run/secrets/token; stat -c %a /run/secrets/token; [ \"$GH_TOKEN\" = \"$(cat /run/secrets/token)\" ] && echo same";
    let used = world.with_secrets(&["sh", "-c", sum], &secrets);
    assert_eq!(stdout(&used), format!("{}\n400\nsame\n", VALUE.len()), "{used}");
    // Every usual encoding, cut into single bytes.
    let spell = "import base64, binascii, json, os, sys, urllib.parse as u\nv = open('/run/secrets/token').read()\n\
                 for t in [v, base64.b64encode(v.encode()).decode(), base64.b64encode(b'x' + v.encode()).decode(), v.encode().hex(), u.quote(v, safe=''), json.dumps(v)]:\n\
                 \x20for c in t + '\\n': sys.stdout.write(c); sys.stdout.flush()";
    let spelled = world.with_secrets(&["/usr/bin/python3", "-c", spell], &secrets);
    assert_eq!(stdout(&spelled).matches("[redacted]").count(), 6, "{spelled}");
    // What a process kept is found in later calls of the run too.
    let keep = json!({ "argv": ["cp", "/run/secrets/token", "kept"], "secrets": secrets });
    let (call, approval) = world.host.ask("palyra.process.run", &keep, &["--session", "s"]);
    world.host.decide(&approval, "allow", &[]).exits(0).done();
    world.host.palyra(&["calls", "follow", &call]).exits(0).done();
    let read = world.host.call("palyra.fs.read", &json!({ "path": "kept" }), &["--session", "s"]).good();
    assert!(read.to_string().contains("[redacted]"), "{read}");
    fs::remove_file(world.host.work("kept")).unwrap();
    world.nothing_left(&[&shown, &used, &spelled, &read]);
}

#[test]
fn a_call_that_lacks_a_secret_names_what_it_wants() {
    let host = Host::up();
    let wish = |reference: &str, via: &str| {
        let secrets = json!([{ "ref": reference, "as": via, "name": "X" }]);
        host.call("palyra.process.run", &json!({ "argv": ["true"], "secrets": secrets }), &[])
    };
    let error = wish("vault://global/missing", "env").fails(6, "secret_missing");
    assert!(text(&error, "/message").contains("vault://global/missing"), "{error}");
    assert!(text(&error, "/hint").contains("palyra vault put global/missing"), "{error}");
    for bad in ["file:///etc/passwd", "env:HOME", "global/x", "vault://global/../x", "$(cat /etc/passwd)"] {
        assert_eq!(wish(bad, "env").code, 6, "{bad}");
    }
    host.palyra_fed(&["vault", "put", "principal:agent:other/key"], b"value-of-another").exits(0).done();
    let denied = wish("vault://principal:agent:other/key", "env").fails(3, "policy_denied");
    assert!(text(&denied, "/message").contains("scope"), "{denied}");
    host.palyra_fed(&["vault", "put", "global/here"], b"value-that-is-here").exits(0).done();
    wish("vault://global/here", "proxy").fails(6, "secret_needs_proxy");
}

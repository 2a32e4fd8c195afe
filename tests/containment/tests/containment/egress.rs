//! A strict run with rules: the proxy is the only way out, and it obeys.

use palyra_containment::*;
use palyra_egress::{EgressRecord, EgressVerdict, TlsName};
use palyra_sandbox::*;
use palyra_testkit::{FileServer, TlsIdentity};
use std::fs;
use std::path::PathBuf;

/// A server with a page and a repository, and a second one that no rule names.
struct Outside {
    dir: tempfile::TempDir,
    allowed: FileServer,
    other: FileServer,
}

fn outside() -> Outside {
    let dir = tempfile::TempDir::new().unwrap();
    fs::write(dir.path().join("page"), "a page\n").unwrap();
    let git = |line: &str, at: &std::path::Path| {
        let mut command = std::process::Command::new("git");
        command.args(line.split(' ')).current_dir(at).env("GIT_AUTHOR_NAME", "a").env("GIT_AUTHOR_EMAIL", "a@b");
        let ran = command.env("GIT_COMMITTER_NAME", "a").env("GIT_COMMITTER_EMAIL", "a@b").output().unwrap();
        assert!(ran.status.success(), "{line}: {ran:?}");
    };
    git("init -q -b main work", dir.path());
    git("commit -q --allow-empty -m first", &dir.path().join("work"));
    git("clone -q --bare work repo.git", dir.path());
    git("update-server-info", &dir.path().join("repo.git"));
    let (allowed, other) = (FileServer::start(dir.path()), FileServer::start(dir.path()));
    Outside { dir, allowed, other }
}

impl Outside {
    fn world(&self) -> World {
        world_with(&[&format!("localhost:{}", self.allowed.port())])
    }
}

/// Collects records.
#[derive(Default)]
struct Records(Vec<EgressRecord>);

impl OutputSink for Records {
    fn chunk(&mut self, _stream: OutputStream, _bytes: &[u8]) {}

    fn egress(&mut self, record: &EgressRecord) {
        self.0.push(record.clone());
    }
}

#[test]
fn ordinary_clients_reach_an_allowed_host() {
    let outside = outside();
    let world = outside.world();
    let port = outside.allowed.port();
    let node = format!(
        "const http = require('http'); const r = http.request({{host: '127.0.0.1', port: 3128, method: 'CONNECT', path: 'localhost:{port}', headers: {{host: 'localhost:{port}'}}}}); \
         r.on('connect', (_, s) => {{ s.write('GET /page HTTP/1.0\\r\\nHost: localhost:{port}\\r\\n\\r\\n'); let all = ''; \
         s.on('data', d => {{ all += d; if (all.endsWith('a page\\n')) {{ console.log('a page'); s.end(); }} }}); }}); r.end();"
    );
    let python = format!(
        "import urllib.request; print(urllib.request.urlopen('http://localhost:{port}/page').read().decode().strip())"
    );
    let url = format!("http://localhost:{port}/page");
    for argv in [
        &["curl", "-sS", "--fail", &url][..],
        &["curl", "-sS", "--fail", "--proxytunnel", &url],
        &["curl", "-sS", "--fail", "-x", "socks5h://127.0.0.1:3128", &url],
        &["curl", "-sS", "--fail", &format!("http://127.0.0.1:{port}/page")],
        &["python3", "-c", &python],
        &["node", "-e", &node],
    ] {
        let mut records = Records::default();
        let outcome = world.try_run_watched(&world.request(argv), &mut records).unwrap();
        expect_output(&outcome, "a page");
        assert_eq!((outcome.egress.allowed, outcome.egress.denied), (1, 0), "{argv:?}");
        let [record] = &records.0[..] else { panic!("{argv:?} {records:?}", records = records.0) };
        assert_eq!((record.verdict, record.port), (EgressVerdict::Allowed, Some(port)));
        assert!(record.bytes_received > 6, "{record:?}");
        let enforcement = &outcome.enforcement;
        assert!(enforcement.has("network_namespace") && enforcement.has("egress_proxy"), "{enforcement:?}");
        assert_eq!(enforcement.egress, EgressEnforcementMode::Strict);
    }
    let clone = format!("git clone -q http://localhost:{port}/repo.git inner && git -C inner log --format=%s");
    expect_output(&world.shell(&clone), "first");
    assert!(outside.other.requests().is_empty());
}

#[test]
fn tls_reaches_an_allowed_host_end_to_end() {
    let outside = outside();
    let identity = TlsIdentity::of(&["localhost"]);
    let server = FileServer::start_tls(outside.dir.path(), &identity);
    let port = server.port();
    let world = world_with(&[&format!("localhost:{port}")]);
    fs::write(world.workspace.join("ca.pem"), identity.pem()).unwrap();
    let url = format!("https://localhost:{port}/page");
    let python = format!(
        "import ssl, urllib.request; trusted = ssl.create_default_context(cafile='ca.pem'); \
         print(urllib.request.urlopen('{url}', context=trusted).read().decode().strip())"
    );
    let node = format!(
        "const http = require('http'), tls = require('tls'), fs = require('fs'); \
         const r = http.request({{host: '127.0.0.1', port: 3128, method: 'CONNECT', path: 'localhost:{port}', headers: {{host: 'localhost:{port}'}}}}); \
         r.on('connect', (_, socket) => {{ const s = tls.connect({{socket, servername: 'localhost', ca: fs.readFileSync('ca.pem')}}, \
         () => s.write('GET /page HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')); let all = ''; \
         s.on('data', d => {{ all += d; if (all.endsWith('a page\\n')) {{ console.log('a page'); s.end(); }} }}); }}); r.end();"
    );
    for argv in [
        &["curl", "-sS", "--fail", "--cacert", "ca.pem", &url][..],
        &["curl", "-sS", "--fail", "--cacert", "ca.pem", "-x", "socks5h://127.0.0.1:3128", &url],
        &["python3", "-c", &python],
        &["node", "-e", &node],
    ] {
        let mut records = Records::default();
        expect_output(&world.try_run_watched(&world.request(argv), &mut records).unwrap(), "a page");
        let [record] = &records.0[..] else { panic!("{argv:?} {records:?}", records = records.0) };
        assert_eq!((record.verdict, record.tls), (EgressVerdict::Allowed, Some(TlsName::Matched)), "{argv:?}");
    }
    let clone = format!(
        "git -c http.sslCAInfo=$PWD/ca.pem clone -q https://localhost:{port}/repo.git inner && git -C inner log --format=%s"
    );
    expect_output(&world.shell(&clone), "first");
}

#[test]
fn a_tunnel_is_for_its_host_alone() {
    let outside = outside();
    let identity = TlsIdentity::of(&["localhost"]);
    let server = FileServer::start_tls(outside.dir.path(), &identity);
    let (plain, secure) = (outside.allowed.port(), server.port());
    let world = world_with(&[&format!("localhost:{plain}"), &format!("localhost:{secure}")]);
    let code = format!(
        r#"
import socket, ssl
def tunnel(port):
    s = socket.create_connection(('127.0.0.1', 3128)); s.settimeout(5)
    s.sendall(f'CONNECT localhost:{{port}} HTTP/1.1\r\nHost: localhost:{{port}}\r\n\r\n'.encode())
    assert b' 200 ' in s.recv(100)
    return s
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
try: context.wrap_socket(tunnel({secure}), server_hostname='other-tenant.example'); print('GREETED')
except OSError: pass
s = tunnel({plain}); s.sendall(b'GET /page HTTP/1.1\r\nHost: other-tenant.example\r\n\r\n')
print(s.recv(1000).split(b'\r\n')[0].decode()[:12])
context.wrap_socket(tunnel({secure}), server_hostname='localhost')
print('end')
"#
    );
    let mut records = Records::default();
    let request = world.request(&["python3", "-c", &code]);
    expect_output(&world.try_run_watched(&request, &mut records).unwrap(), "HTTP/1.1 403\nend");
    let mut codes: Vec<_> = records.0.iter().map(|record| record.code.as_deref()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [None, Some("host_mismatch"), Some("sni_mismatch")]);
    assert!(outside.allowed.requests().is_empty());
}

/// Where `rebind.test` leads to 127.0.0.1 and `own.test` to a public address, which is this machine's.
const MISLED: &str = "set -e; ip link set lo up; ip address add 93.184.215.14/32 dev lo; mount -t tmpfs tmpfs /mnt; \
                      printf '127.0.0.1 localhost rebind.test\n93.184.215.14 own.test\n' > /mnt/hosts; \
                      mount --bind /mnt/hosts /etc/hosts; exec \"$@\"";

#[test]
fn a_name_that_leads_to_this_machine_is_refused() {
    // A network of one's own takes root.
    if !is_root() {
        return;
    }
    let wrapper = ["unshare", "--mount", "--net", "sh", "-c", MISLED, "sh"];
    alone("egress::a_name_that_leads_to_this_machine_is_refused", &wrapper, || {
        let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let world = world_with(&[&format!("rebind.test:{port}"), &format!("own.test:{port}")]);
        let line = format!("for name in rebind own; do curl -s http://$name.test:{port}/; done; echo end");
        let outcome = world.shell(&line);
        let denied: Vec<_> =
            outcome.egress.denials.denials.iter().map(|d| (d.host.as_deref(), d.code.as_str())).collect();
        assert_eq!(denied, [(Some("rebind.test"), "address_denied"), (Some("own.test"), "address_denied")]);
        assert!(stdout(&outcome).contains("an address of this machine"), "{outcome:?}");
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nobody came");
    });
}

#[test]
fn without_rules_there_is_no_proxy_and_nobody_is_sent_to_one() {
    let world = world(SandboxTier::C);
    let outcome =
        world.shell("env | grep -i proxy; (exec 3<>/dev/tcp/127.0.0.1/3128) 2>/dev/null && echo OPEN; echo done");
    expect_output(&outcome, "done");
    assert!(!outcome.enforcement.has("egress_proxy") && outcome.enforcement.has("network_namespace"));
}

#[test]
fn a_denied_host_gets_an_answer_that_can_be_acted_on() {
    let outside = outside();
    let world = outside.world();
    let mut records = Records::default();
    let line = "curl -s http://denied.example/x; curl -sS -p http://denied.example/ 2>&1; \
                curl -sS -x socks5h://127.0.0.1:3128 http://denied.example/ 2>&1; curl -sS https://denied.example/ 2>&1; echo end";
    let outcome = world.try_run_watched(&world.request(&["bash", "-c", line]), &mut records).unwrap();
    let said = stdout(&outcome);
    assert!(said.contains("denied.example:80") && said.contains("allowed_hosts"), "{said}");
    assert!(said.ends_with("end\n"), "{said}");
    assert_eq!((outcome.egress.allowed, outcome.egress.denied), (0, 4));
    // Clients hide what they were told of tunnels; the outcome does not.
    let told: Vec<_> = outcome.egress.denials.denials.iter().map(|d| (d.port, d.hint.clone())).collect();
    let ask = |port: u16| {
        (Some(port), format!("ask the operator to add `denied.example:{port}` to allowed_hosts under [egress]"))
    };
    assert_eq!(told, [ask(80), ask(443)]);
    assert!(
        records
            .0
            .iter()
            .all(|record| record.verdict == EgressVerdict::Denied && record.host.as_deref() == Some("denied.example"))
    );
}

#[test]
fn there_is_no_way_around_the_proxy() {
    let outside = outside();
    let world = outside.world();
    let (allowed, other) = (outside.allowed.port(), outside.other.port());
    let line = format!(
        "for url in http://127.0.0.1:{other}/page http://localhost:{other}/page http://127.0.0.1:{allowed}/page; do \
           curl -s -m 2 --noproxy '*' $url && echo CURL $url; done; \
         for h in 127.0.0.1:{other} localhost:{other} [::1]:{other} 169.254.169.254:80 10.0.0.1:80 192.168.1.1:80 172.16.0.1:80 100.64.0.1:80 \
                  0.0.0.0:{other} [::ffff:127.0.0.1]:{other} [::ffff:7f00:1]:{other} [64:ff9b::7f00:1]:{other} 2130706433:{other} 0x7f.1:{other} 127.1:{other} \
                  metadata.google.internal:80 [fd00:ec2::254]:80 localhost.:{other} LOCALHOST:{other}; do \
           curl -s -m 2 -f http://$h/page && echo PLAIN $h; curl -s -m 2 -f -p http://$h/page && echo CONNECT $h; \
           curl -s -m 2 -f -x socks5h://127.0.0.1:3128 http://$h/page && echo SOCKS $h; \
           curl -s -m 2 -f -x socks5://127.0.0.1:3128 http://$h/page && echo SOCKS-IP $h; done; \
         git -c http.proxy= ls-remote http://127.0.0.1:{other}/repo.git 2>/dev/null && echo GIT; \
         git ls-remote http://localhost:{other}/repo.git 2>/dev/null && echo GIT-PROXY; \
         env -u HTTP_PROXY -u http_proxy -u ALL_PROXY -u all_proxy python3 -c \"import urllib.request; urllib.request.urlopen('http://127.0.0.1:{allowed}/page', timeout=2)\" 2>/dev/null && echo PYTHON; \
         node -e \"fetch('http://127.0.0.1:{other}/page').then(r => console.log('NODE'), () => 0)\"; \
         node -e \"require('net').connect({allowed}, '127.0.0.1').on('connect', () => console.log('NODE-NET')).on('error', () => 0)\"; \
         echo end"
    );
    let outcome = world.shell(&line);
    expect_output(&outcome, "end");
    assert!(outside.other.requests().is_empty(), "{:?}", outside.other.requests());
    assert!(outside.allowed.requests().is_empty(), "{:?}", outside.allowed.requests());
    assert!(outcome.egress.allowed == 0 && outcome.egress.denied > 40, "{:?}", outcome.egress);
}

#[test]
fn names_are_resolved_by_the_proxy_alone() {
    let outside = outside();
    let world = outside.world();
    let code = "import socket\nfor name in ['example.org', 'secret.tunnel.example']:\n  try: print('RESOLVED', socket.getaddrinfo(name, 80))\n  except OSError: pass\n\
                for server in ['127.0.0.1', '127.0.0.53', '8.8.8.8', '1.1.1.1']:\n  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.3)\n  \
                try:\n    s.sendto(b'x' * 20, (server, 53)); s.recv(10); print('ANSWERED', server)\n  except OSError: pass\nprint('done')";
    expect_output(&world.python(code), "done");
}

#[test]
fn a_request_cannot_be_smuggled_past_a_rule() {
    let outside = outside();
    let port = outside.allowed.port();
    let world = world_with(&[&format!("GET http://127.0.0.1:{port}/page")]);
    let code = format!(
        r#"
import socket
def send(data):
    s = socket.create_connection(('127.0.0.1', 3128)); s.settimeout(2); s.sendall(data)
    got = b''
    try:
        while True:
            part = s.recv(4096)
            if not part: break
            got += part
    except OSError: pass
    return got
host = b'127.0.0.1:{port}'
get = b'GET http://' + host + b'/page HTTP/1.1\r\nHost: ' + host + b'\r\n'
inner = b'GET /secret HTTP/1.1\r\nHost: ' + host + b'\r\n\r\n'
attempts = [
    get + b'Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' + inner,
    get + b'Content-Length: 5\r\nContent-Length: 0\r\n\r\n' + inner,
    get + b'Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n' + inner,
    get + b'Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n' + inner,
    get + b'X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n' + inner,
    get + b'X: y\n\n' + inner,
    get + b'Content-Length: +0\r\n\r\n' + inner,
    get + b'\r\n' + inner,
    b'GET http://' + host + b'/page HTTP/1.1\r\nHost: other.example\r\n\r\n',
    b'GET http://' + host + b'/secret HTTP/1.1\r\nHost: ' + host + b'\r\n\r\n',
    b'GET http://' + host + b'/page/../secret HTTP/1.1\r\nHost: ' + host + b'\r\n\r\n',
    b'GET http://' + host + b'/%73ecret HTTP/1.1\r\nHost: ' + host + b'\r\n\r\n',
    b'POST http://' + host + b'/page HTTP/1.1\r\nHost: ' + host + b'\r\nContent-Length: 0\r\n\r\n',
    b'GET http://user@' + host + b'/secret HTTP/1.1\r\nHost: ' + host + b'\r\n\r\n',
    b'GET /secret HTTP/1.1\r\nHost: ' + host + b'\r\n\r\n',
    b'CONNECT ' + host + b' HTTP/1.1\r\nHost: ' + host + b'\r\n\r\n' + inner,
]
for attempt in attempts: send(attempt)
print('fine' if b'a page' in send(get + b'\r\n') else 'BROKEN')
"#
    );
    let outcome = world.python(&code);
    expect_output(&outcome, "fine");
    let asked = outside.allowed.requests();
    assert!(asked.iter().all(|request| request == "GET /page"), "{asked:?}");
    assert!(outcome.egress.denied >= 10, "{:?}", outcome.egress);
}

#[test]
fn records_arrive_while_the_process_runs() {
    /// Tells the process that its connection was seen.
    struct Tell(PathBuf);
    impl OutputSink for Tell {
        fn chunk(&mut self, _stream: OutputStream, _bytes: &[u8]) {}
        fn egress(&mut self, _record: &EgressRecord) {
            fs::write(self.0.join("seen"), "").unwrap();
        }
    }
    let outside = outside();
    let world = outside.world();
    let line = format!(
        "curl -sS http://localhost:{}/page; for i in $(seq 200); do [ -e seen ] && echo live && exit; sleep 0.05; done",
        outside.allowed.port()
    );
    let mut tell = Tell(world.workspace.clone());
    expect_output(&world.try_run_watched(&world.request(&["bash", "-c", &line]), &mut tell).unwrap(), "a page\nlive");
}

#[test]
fn clients_that_dribble_or_hoard_connections_end_with_the_run_and_disturb_nobody() {
    alone("egress::clients_that_dribble_or_hoard_connections_end_with_the_run_and_disturb_nobody", &[], || {
        let outside = outside();
        let count = |what: &str| fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
        let mut slow = outside.world();
        slow.policy.wall_clock_limit_ms = 2500;
        let code = format!(
            "import socket, time\nheld = []\nfor n in range(60):\n  s = socket.create_connection(('127.0.0.1', 3128)); held.append(s)\n\
             for n in range(20):\n  s = socket.create_connection(('127.0.0.1', 3128)); s.sendall(b'CONNECT localhost:{} HTTP/1.1\\r\\nHost: localhost:{}\\r\\n\\r\\n'); held.append(s)\n\
             while True:\n  for s in held[:60]:\n    try: s.sendall(b'G')\n    except OSError: pass\n  time.sleep(0.1)",
            outside.allowed.port(),
            outside.allowed.port()
        );
        for round in 0..2 {
            // The first round is for what is kept on purpose.
            let before = (count("fd"), count("task"));
            let url = format!("http://localhost:{}/page", outside.allowed.port());
            std::thread::scope(|scope| {
                let dribbling = scope.spawn(|| slow.python(&code));
                for _ in 0..3 {
                    expect_output(&outside.world().run(&["curl", "-sS", &url]), "a page");
                }
                let outcome = dribbling.join().unwrap();
                assert_eq!(outcome.ended_by, Some(LimitHit::WallClock), "{outcome:?}");
            });
            // The server's own threads end when they see that their clients are gone.
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while round > 0 && count("task") > before.1 && std::time::Instant::now() < deadline {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            assert!(
                round == 0 || (count("task") <= before.1 && count("fd") <= before.0 + 3),
                "{before:?} {} {}",
                count("fd"),
                count("task")
            );
        }
    });
}

#[test]
fn the_callers_environment_cannot_point_elsewhere() {
    let world = world_with(&["example.org"]);
    let mut request = world.request(&["true"]);
    request.env.insert("HTTPS_PROXY".into(), "http://127.0.0.1:9".into());
    assert_eq!(world.try_run(&request).unwrap_err().code(), "sandbox_proxy_variable");
    let outcome =
        world.shell("echo $HTTP_PROXY $https_proxy $ALL_PROXY ${NO_PROXY-unset} ${no_proxy-unset} $NODE_USE_ENV_PROXY");
    let (door, own) = ("http://127.0.0.1:3128", "localhost,127.0.0.1,::1");
    expect_output(&outcome, &format!("{door} {door} {door} {own} {own} 1"));
}

#[test]
fn a_run_talks_to_servers_of_its_own_beside_rules() {
    let world = world_with(&["example.org"]);
    fs::write(world.workspace.join("page"), "mine\n").unwrap();
    let code = r#"
import http.server, subprocess, threading, urllib.request
quiet = type('H', (http.server.SimpleHTTPRequestHandler,), {'log_message': lambda *a: None})
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
port = server.server_address[1]
for host in ['127.0.0.1', 'localhost']:
    url = f'http://{host}:{port}/page'
    print('python', urllib.request.urlopen(url).read().decode().strip())
    print('curl', subprocess.run(['curl', '-sS', '--fail', url], capture_output=True, text=True).stdout.strip())
    node = f"fetch('{url}').then(r => r.text()).then(t => console.log(t.trim()), e => console.log(e))"
    print('node', subprocess.run(['node', '-e', node], capture_output=True, text=True).stdout.strip())
"#;
    let outcome = world.python(code);
    expect_output(&outcome, "python mine\ncurl mine\nnode mine\npython mine\ncurl mine\nnode mine");
    assert_eq!((outcome.egress.allowed, outcome.egress.denied), (0, 0));
}

#[test]
fn hosts_that_a_call_asks_for_are_judged_before_it_runs() {
    let world = world_with(&["example.org"]);
    let mut request = world.request(&["touch", "ran"]);
    request.requested_egress_hosts = vec!["example.org:443".into(), "elsewhere.example".into()];
    let refused = world.try_run(&request).unwrap_err();
    assert_eq!(refused.code(), "sandbox_host_not_allowed");
    assert!(refused.to_string().contains("elsewhere.example") && refused.hint().unwrap().contains("allowed_hosts"));
    assert!(!world.workspace.join("ran").exists());
    for tier in TIERS {
        let mut world = world_with(&["example.org"]);
        world.policy.tier = tier;
        world.policy.egress = EgressEnforcementMode::Preflight;
        let refused = world.try_run(&world.request(&["curl", "https://elsewhere.example/"])).unwrap_err();
        assert_eq!(refused.code(), "sandbox_host_not_allowed");
        for line in [
            "curl 127.1:18080/x",
            "curl 2130706433:18080/x",
            "nice curl 127.0.0.1:18080/x",
            "timeout 5 env A=1 curl intranet/x",
            "curl -sSo out 127.0.0.1:18080/file",
        ] {
            let argv: Vec<&str> = line.split(' ').collect();
            let refused = world.try_run(&world.request(&argv)).unwrap_err();
            assert_eq!(refused.code(), "sandbox_host_not_allowed", "{line}");
        }
        let many: Vec<String> = (0..300).map(|n| format!("http://h{n}.example.org/")).collect();
        let argv: Vec<&str> = std::iter::once("true").chain(many.iter().map(String::as_str)).collect();
        assert_eq!(world.try_run(&world.request(&argv)).unwrap_err().code(), "sandbox_too_many_hosts");
        let outcome = world.run(&["echo", "https://example.org/x"]);
        assert_eq!(outcome.enforcement.egress, EgressEnforcementMode::Preflight);
        let layer = outcome.enforcement.layers.iter().find(|layer| layer.name == "network_namespace").unwrap();
        assert!(!layer.applied && layer.detail.contains("not OS-enforced"), "{layer:?}");
    }
}

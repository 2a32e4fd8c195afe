//! The network without a way out, and sockets of the host.

use palyra_containment::*;
use palyra_sandbox::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

#[test]
fn tier_c_has_no_network_and_tier_b_refuses_to_promise_it() {
    let world = world(SandboxTier::C);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let code = format!(
        r"
import socket
try:
    socket.create_connection(('127.0.0.1', {}), 2); print('CONNECTED')
except OSError as e: print('refused')
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('8.8.8.8', 53)); print('SENT')
except OSError as e: print('unreachable')
",
        listener.local_addr().unwrap().port()
    );
    let outcome = world.python(&code);
    expect_output(&outcome, "refused\nunreachable");
    assert!(outcome.enforcement.has("network_namespace"));
    assert_eq!(outcome.enforcement.egress, EgressEnforcementMode::Strict);

    let mut b = self::world(SandboxTier::B);
    b.policy.egress = EgressEnforcementMode::Strict;
    let refused = b.try_run(&b.request(&["true"])).unwrap_err();
    assert_eq!(refused.code(), "sandbox_egress_needs_tier_c");
    assert!(refused.hint().unwrap().contains("tier c"));
}

#[test]
fn sockets_of_the_host_are_out_of_reach() {
    use std::os::linux::net::SocketAddrExt;
    for tier in TIERS {
        let world = world(tier);
        let path = world.state.join("daemon.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let name = format!("palyra-test-{}-{tier}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let _abstract = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
        let code = format!(
            r"
import socket
for address in [{path:?}, '\0{name}']:
    try:
        s = socket.socket(socket.AF_UNIX); s.connect(address); print('CONNECTED', address)
    except OSError: pass
print('done')
"
        );
        expect_output(&world.python(&code), "done");
    }
}

#[test]
fn abstract_sockets_stay_out_of_reach_with_a_shared_network() {
    use std::os::linux::net::SocketAddrExt;
    let mut world = world(SandboxTier::C);
    world.policy.egress = EgressEnforcementMode::None;
    let name = format!("palyra-test-shared-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let code = format!(
        "import socket\ntry:\n  socket.socket(socket.AF_UNIX).connect('\\0{name}'); print('CONNECTED')\nexcept OSError as e: print('refused')"
    );
    let outcome = world.python(&code);
    expect_output(&outcome, "refused");
    assert!(!outcome.enforcement.has("network_namespace"));
    assert_eq!(outcome.enforcement.egress, EgressEnforcementMode::None);
}

/// This machine's address towards the world, if it has one; nothing is sent.
fn own_address() -> String {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    let address = socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr());
    address.map_or_else(|_| "127.0.0.1".to_owned(), |address| address.ip().to_string())
}

#[test]
fn no_packet_leaves_a_strict_run() {
    let world = world(SandboxTier::C);
    let tcp = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let udp = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let code = format!(
        r#"
import socket, struct, fcntl, os
own, tcp, udp = {own:?}, {tcp}, {udp}
for host in ['127.0.0.1', '127.0.0.2', own, '0.0.0.0', '169.254.169.254', '169.254.170.2', '100.100.100.200', '168.63.129.16', '10.0.0.1', '192.168.0.1', '8.8.8.8', '1.1.1.1']:
    for port in (tcp, 22, 53, 80, 443):
        s = socket.socket(); s.settimeout(1)
        try: s.connect((host, port)); print('CONNECTED', host, port)
        except OSError: pass
    for port in (udp, 53, 123, 443):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try: s.sendto(b'secret.example.org', (host, port))
        except OSError: continue
        if not host.startswith('127.') and host != '0.0.0.0': print('SENT', host, port)
for host in ['::1', 'fd00:ec2::254', '64:ff9b::a9fe:a9fe', '2606:4700:4700::1111', '::ffff:127.0.0.1']:
    s = socket.socket(socket.AF_INET6); s.settimeout(1)
    try: s.connect((host, tcp)); print('CONNECTED', host)
    except OSError: pass
servers = [line.split()[1] for line in open('/etc/resolv.conf') if line.startswith('nameserver')] if os.path.exists('/etc/resolv.conf') else []
for server in servers + ['127.0.0.53', '127.0.0.11', '8.8.8.8']:
    s = socket.socket(socket.AF_INET6 if ':' in server else socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.2)
    try:
        s.sendto(b'\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x06secret\x07example\x03org\x00\x00\x10\x00\x01', (server, 53))
        s.recvfrom(512); print('ANSWERED', server)
    except OSError: pass
for name in ['example.org', 'secret.example.org', 'metadata.google.internal']:
    try: print('RESOLVED', socket.getaddrinfo(name, 80))
    except OSError: pass
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for request, name in [(0x8916, 'SIOCSIFADDR'), (0x8914, 'SIOCSIFFLAGS'), (0x890B, 'SIOCADDRT'), (0x8924, 'SIOCSIFHWADDR')]:
    try: fcntl.ioctl(s, request, struct.pack('16sH14s', b'lo', socket.AF_INET, b'\0' * 14)); print(name)
    except OSError: pass
n = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
n.send(struct.pack('=IHHII', 32, 16, 0x605, 1, 0) + struct.pack('=BxHiII', 0, 0, 0, 0, 0)); n.settimeout(2)
error = struct.unpack_from('=i', n.recv(4096), 16)[0]
if error == 0: print('LINK MADE')
print(sorted(name for _, name in socket.if_nameindex()), os.readlink('/proc/self/ns/net') != {namespace:?})
"#,
        own = own_address(),
        tcp = tcp.local_addr().unwrap().port(),
        udp = udp.local_addr().unwrap().port(),
        namespace = fs::read_link("/proc/self/ns/net").unwrap().to_str().unwrap(),
    );
    expect_output(&world.python(&code), "['lo'] True");
    assert!(udp.recv_from(&mut [0; 64]).is_err(), "a datagram came out");
    tcp.set_nonblocking(true).unwrap();
    assert!(tcp.accept().is_err(), "a connection came out");
}

#[test]
fn two_strict_runs_do_not_reach_each_other() {
    let (first, second) = (world(SandboxTier::C), world(SandboxTier::C));
    let server = "import socket, sys\ns = socket.socket(); s.bind(('127.0.0.1', 4567)); s.listen(); s.settimeout(3)\n\
                  open('ready', 'w').close()\ntry:\n  s.accept(); print('REACHED')\nexcept OSError: print('alone')";
    let client = "import socket\ntry:\n  socket.create_connection(('127.0.0.1', 4567), 1); print('REACHED')\nexcept OSError: print('alone')";
    std::thread::scope(|scope| {
        let served = scope.spawn(|| first.python(server));
        while !first.workspace.join("ready").exists() && !served.is_finished() {
            std::thread::sleep(Duration::from_millis(10));
        }
        expect_output(&second.python(client), "alone");
        expect_output(&served.join().unwrap(), "alone");
    });
}

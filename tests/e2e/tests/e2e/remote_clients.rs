//! What other people's programs see of the remote door: `openssl s_client` is refused by name, curl is served with a
//! device's certificate, over HTTP and as a gRPC client.

use crate::remote::Machines;
use palyra_e2e::network::inside;
use palyra_e2e::text;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A program on the other machine.
fn there(machines: &Machines, program: &str, args: &[&str]) -> Output {
    let mut command: Command = inside(machines.network.device().0, program.as_ref());
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

/// A certificate of the device and its key, and the daemon's authority, as PEM files: what `devices browser` makes,
/// taken apart.
fn credentials(machines: &Machines) -> (String, [String; 3]) {
    let file = |name: &str| machines.device.path(name).to_str().unwrap().to_owned();
    let [certificate, key, authority, packed] = ["cert.pem", "key.pem", "ca.pem", "browser.p12"].map(file);
    let made = machines.remotely(&["devices", "browser", "--to", &packed]).good();
    let password = format!("pass:{}", text(&made, "/password"));
    for (options, to) in [(["-clcerts", "-nokeys"], &certificate), (["-nocerts", "-nodes"], &key)] {
        let taken = Command::new("openssl")
            .args(["pkcs12", "-in", &packed, "-passin", &password, "-out", to])
            .args(options)
            .output()
            .unwrap();
        assert!(taken.status.success(), "{taken:?}");
    }
    machines.server.palyra(&["devices", "authority", "export", "--to", &authority]).exits(0).done();
    let zone = machines.server.palyra(&["devices", "authority", "show"]).good();
    (text(&zone, "/zone").to_owned(), [certificate, key, authority])
}

/// curl with the device's certificate: a path, and further arguments.
fn curl_of(machines: &Machines) -> impl Fn(&str, &[&str]) -> Output {
    let (zone, [certificate, key, authority]) = credentials(machines);
    let resolve = format!("{zone}:7443:{}", machines.network.server().1);
    move |path, extra| {
        let url = format!("https://{zone}:7443{path}");
        let own = ["-sS", "--max-time", "60", "--resolve", &resolve, "--cacert", &authority, "--cert", &certificate];
        there(machines, "curl", &[&own[..], &["--key", &key, &url], extra].concat())
    }
}

#[test]
fn openssl_is_refused_by_name_without_a_certificate_that_we_issued() {
    let machines = Machines::paired("operator");
    let (zone, [certificate, key, _]) = credentials(&machines);
    let at = format!("{}:7443", machines.network.server().1);
    let connect = |extra: &[&str]| {
        let args = [&["s_client", "-connect", &at, "-ign_eof", "-alpn", "http/1.1"], extra].concat();
        let ran = there(&machines, "openssl", &args);
        String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned()
    };
    let said = connect(&[]);
    assert!(said.contains("certificate required"), "{said}");
    let said = connect(&["-tls1_2"]);
    assert!(said.contains("protocol version") && said.contains("no peer certificate available"), "{said}");
    let foreign = machines.device.path("foreign");
    std::fs::create_dir(&foreign).unwrap();
    self_signed(&foreign);
    let pem = |name: &str| foreign.join(name).to_str().unwrap().to_owned();
    let said = connect(&["-cert", &pem("cert.pem"), "-key", &pem("key.pem")]);
    assert!(said.contains("unknown ca"), "{said}");
    // Whoever asks for a name is shown a certificate without addresses: BoringSSL takes no other from this authority.
    let names = |extra: &[&str]| {
        let shown = machines.device.path("shown.pem");
        std::fs::write(&shown, connect(extra)).unwrap();
        let read = ["x509", "-in", shown.to_str().unwrap(), "-noout", "-ext", "subjectAltName"];
        String::from_utf8_lossy(&there(&machines, "openssl", &read).stdout).into_owned()
    };
    let (named, all) = (names(&["-servername", &zone]), names(&["-noservername"]));
    assert!(named.contains(&zone) && named.contains("DNS:localhost") && !named.contains("IP Address"), "{named}");
    assert!(all.contains(&zone) && all.contains("IP Address:127.0.0.1"), "{all}");
    machines.server.palyra(&["devices", "revoke", "laptop"]).exits(0).done();
    let said = connect(&["-cert", &certificate, "-key", &key]);
    assert!(said.contains("certificate revoked"), "{said}");
    let noted = machines.server.palyra(&["journal", "tail", "-n", "40"]).exits(0).stdout;
    for code in ["certificate_missing", "tls_incompatible", "certificate_self_signed", "device_revoked"] {
        assert!(noted.contains(code), "no event says `{code}`: {noted}");
    }
}

fn self_signed(dir: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"])
        .args(["-subj", "/CN=laptop", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn curl_is_served_by_a_devices_certificate_over_http_and_as_a_grpc_client() {
    let machines = Machines::paired("operator");
    let ask = curl_of(&machines);
    let curl = |path: &str, extra: &[&str]| {
        let ran = ask(path, extra);
        (String::from_utf8_lossy(&ran.stdout).into_owned(), String::from_utf8_lossy(&ran.stderr).into_owned())
    };
    for version in ["--http1.1", "--http2"] {
        let (body, said) = curl("/v1/tools", &[version]);
        assert!(body.contains("palyra.echo"), "{version}: {body} {said}");
    }
    // Nothing in a header says who it is.
    let (body, _) = curl("/v1/tools", &["-H", "Authorization: Bearer palyra_x"]);
    assert!(body.contains("token_of_a_device"), "{body}");
    // A page of another origin gets nothing by the browser's certificate.
    let (body, _) = curl("/v1/tools", &["-H", "Origin: https://evil.example"]);
    assert!(body.contains("foreign_origin"), "{body}");
    let mcp = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let (body, said) = curl(
        "/mcp",
        &["-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream", "-d", mcp],
    );
    assert!(body.contains("jsonrpc"), "{body} {said}");
    // gRPC: an empty message is a frame of five zero bytes.
    let frame = machines.device.path("frame");
    std::fs::write(&frame, [0; 5]).unwrap();
    let body = format!("@{}", frame.to_str().unwrap());
    for method in ["/palyra.v1.Access/WhoAmI", "/grpc.health.v1.Health/Check"] {
        let grpc = ["--http2", "-H", "Content-Type: application/grpc", "-H", "TE: trailers", "--data-binary", &body];
        let headers = machines.device.path("headers").to_str().unwrap().to_owned();
        let (_, said) = curl(method, &[&grpc[..], &["-D", &headers, "-o", "/dev/null", "-v"]].concat());
        assert!(said.contains("grpc-status: 0"), "{method}: {said}");
    }
}

#[test]
fn a_device_is_served_by_the_openai_compatible_routes() {
    let machines = Machines::paired("operator");
    let ask = curl_of(&machines);
    let curl = |path: &str, extra: &[&str]| {
        let ran = ask(path, extra);
        serde_json::from_slice::<Value>(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"))
    };
    assert_eq!(curl("/v1/models", &[])["object"], "list");
    let body = r#"{"model":"nothing","messages":[{"role":"user","content":"go"}]}"#;
    let refused = curl("/v1/chat/completions", &["-H", "Content-Type: application/json", "-d", body]);
    assert_eq!((text(&refused, "/error/code"), text(&refused, "/error/type")), ("unknown_model", "not_found_error"));
}

/// What a client says that was made for no service in particular, and what it hears.
const GRPC: &str = r#"
import grpc, sys
address, zone, *files = sys.argv[1:]
read = lambda path: open(path, "rb").read()
names = [("grpc.ssl_target_name_override", zone)]

def ask(credentials, method, message=b"", stream=False):
    raw = dict(request_serializer=lambda b: b, response_deserializer=lambda b: b)
    with grpc.secure_channel(address, credentials, names) as channel:
        if stream:
            return b"".join(channel.stream_stream(method, **raw)(iter([message]), timeout=60))
        return channel.unary_unary(method, **raw)(message, timeout=60)

def refused(credentials, method, message=b""):
    try:
        print("served", ask(credentials, method, message))
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        print("refused", error.code().name, details)

certificate, key, authority = map(read, files)
device = grpc.ssl_channel_credentials(authority, key, certificate)
print("health", ask(device, "/grpc.health.v1.Health/Check"))
for version in ("v1", "v1alpha"):
    method = f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    # `list_services`, field 7: an empty text.
    print("reflection", ask(device, method, b"\x3a\x00", stream=True))
refused(device, "/palyra.v1.Access/ListMembers")
refused(device, "/palyra.v1.Nothing/AtAll")
refused(device, "/palyra.v1.Daemon/Status", b"\x0a" + b"\xff" * 9)
refused(device, "/palyra.v1.Daemon/Status", b"\x0a" * (32 << 20))
refused(grpc.ssl_channel_credentials(authority), "/grpc.health.v1.Health/Check")
"#;

#[test]
fn a_standard_grpc_client_is_served_with_health_and_reflection_and_refused_with_details() {
    let machines = Machines::paired("operator");
    let (zone, files) = credentials(&machines);
    let at = format!("{}:7443", machines.network.server().1);
    let script = machines.device.path("client.py");
    std::fs::write(&script, GRPC).unwrap();
    let [certificate, key, authority] = &files;
    let args = [script.to_str().unwrap(), &at, &zone, certificate, key, authority];
    let ran = there(&machines, "/usr/bin/python3", &args);
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[0], r"health b'\x08\x01'", "SERVING");
    for reflected in &lines[1..3] {
        for service in ["palyra.v1.Calls", "palyra.v1.Approvals", "grpc.health.v1.Health"] {
            assert!(reflected.contains(service), "{reflected}");
        }
    }
    // Each refusal carries its code besides its status.
    assert!(lines[3].starts_with("refused PERMISSION_DENIED") && lines[3].contains("role_insufficient"), "{said}");
    for (line, status) in [(4, "UNIMPLEMENTED"), (5, "INTERNAL"), (6, "OUT_OF_RANGE"), (7, "UNAVAILABLE")] {
        assert!(lines[line].starts_with(&format!("refused {status}")), "{said}");
    }
}

//! The same seen from outside: `openssl` as client, as verifier, and as importer of a browser's file.

use crate::world::{Device, World};
use palyra_identity::{BrowserRequest, DeviceKey};
use palyra_protocol::Clock as _;
use rustls::pki_types::CertificateDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

fn openssl(arguments: &[&str]) -> Output {
    let run = Command::new("openssl").args(arguments).stdin(Stdio::null()).output();
    run.unwrap_or_else(|error| panic!("these tests want the program `openssl`, version 3: {error}"))
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn pem(kind: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<_> = body.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

/// Files as `openssl` wants them.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn certificate(&self, name: &str, der: &CertificateDer<'_>) -> PathBuf {
        self.put(name, pem("CERTIFICATE", der).as_bytes())
    }

    fn key(&self, name: &str, key: &DeviceKey) -> PathBuf {
        self.put(name, pem("PRIVATE KEY", key.to_secret().expose()).as_bytes())
    }
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A daemon whose clock is the machine's, as `openssl` reads it.
fn world_now() -> World {
    World::at(palyra_protocol::SystemClock.now())
}

/// Serves one connection on a port of its own: says `hello` to whoever is let in.
fn serve(config: ServerConfig) -> (String, JoinHandle<std::io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = std::thread::spawn(move || {
        let (socket, _) = listener.accept()?;
        let mut tls = StreamOwned::new(ServerConnection::new(Arc::new(config)).unwrap(), socket);
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        tls.write_all(b"hello from the daemon\n")?;
        tls.conn.send_close_notify();
        tls.flush()?;
        drop(tls.read(&mut [0; 64]));
        Ok(())
    });
    (address, served)
}

fn s_client(world: &World, with: Option<(&Path, &Path)>, more: &[&str]) -> (String, std::io::Result<()>) {
    let files = Files::new();
    let authority = files.certificate("authority.pem", &world.identity.trust_bundle()[0]);
    let (address, served) = serve(world.identity.server_config(&[b"h2"]).unwrap());
    let zone = world.identity.zone().to_string();
    let mut arguments = vec!["s_client", "-connect", &address, "-servername", &zone, "-verify_hostname", &zone];
    arguments.extend(["-CAfile", path(&authority), "-verify_return_error", "-alpn", "h2", "-ign_eof"]);
    if let Some((certificate, key)) = with {
        arguments.extend(["-cert", path(certificate), "-key", path(key)]);
    }
    arguments.extend(more);
    let output = text(&openssl(&arguments));
    (output, served.join().unwrap())
}

#[test]
fn a_standard_client_is_served_with_a_device_s_certificate_and_refused_otherwise() {
    let world = world_now();
    let Device { paired, .. } = world.pair("phone");
    let files = Files::new();
    let certificate = files.certificate("device.pem", &paired.certificate);
    let key = files.key("device.key", &paired.key);
    let with = Some((certificate.as_path(), key.as_path()));

    let (output, served) = s_client(&world, with, &[]);
    assert!(output.contains("hello from the daemon") && output.contains("TLSv1.3"), "{output}");
    assert!(output.contains("Verify return code: 0 (ok)"), "{output}");
    served.unwrap();

    let (output, served) = s_client(&world, None, &[]);
    assert!(output.contains("alert certificate required") && served.is_err(), "{output}");

    let (output, served) = s_client(&world, with, &["-tls1_2"]);
    assert!(output.contains("alert protocol version") && served.is_err(), "{output}");

    let own_key = files.0.path().join("own.key");
    let own = files.0.path().join("own.pem");
    let made = openssl(&[
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=phone",
        "-keyout",
        path(&own_key),
        "-out",
        path(&own),
    ]);
    assert!(made.status.success(), "{}", text(&made));
    let (output, served) = s_client(&world, Some((&own, &own_key)), &[]);
    assert!(output.contains("alert unknown ca") && served.is_err(), "{output}");

    world.identity.revoke(&crate::world::owner(), "phone", "lost").unwrap();
    let (output, served) = s_client(&world, with, &[]);
    assert!(output.contains("alert certificate revoked") && served.is_err(), "{output}");
    assert!(!output.contains("hello from the daemon"));
}

#[test]
fn openssl_verifies_what_the_authority_signs_and_refuses_what_it_may_not() {
    let world = world_now();
    let Device { paired, .. } = world.pair("phone");
    let files = Files::new();
    let authority = files.certificate("authority.pem", &world.identity.trust_bundle()[0]);
    let shown = text(&openssl(&["x509", "-in", path(&authority), "-noout", "-text"]));
    for expected in [
        "CA:TRUE, pathlen:0",
        "X509v3 Name Constraints: critical",
        &format!("DNS:{}", world.identity.zone()),
        "DNS:palyra.example.org",
        "IP:192.0.2.7/255.255.255.255",
        "TLS Web Server Authentication, TLS Web Client Authentication",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let verify = |certificate: &Path, purpose: &str| {
        text(&openssl(&["verify", "-x509_strict", "-CAfile", path(&authority), "-purpose", purpose, path(certificate)]))
    };
    let device = files.certificate("device.pem", &paired.certificate);
    assert!(verify(&device, "sslclient").contains("device.pem: OK"), "{}", verify(&device, "sslclient"));
    assert!(verify(&device, "sslserver").contains("unsuitable certificate purpose"));

    // The stolen authority signs for another site: the name constraints refuse it.
    let key = rcgen::KeyPair::generate().unwrap();
    for (name, refused) in [("www.example.com", true), ("198.51.100.1", true), ("palyra.example.org", false)] {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2099, 1, 1));
        let site = params.signed_by(&key, &world.stolen_authority()).unwrap();
        let site = files.certificate("site.pem", site.der());
        let verified = verify(&site, "sslserver");
        assert_eq!(verified.contains("permitted subtree violation"), refused, "{name}: {verified}");
        assert_eq!(verified.contains("site.pem: OK"), !refused, "{name}: {verified}");
    }
}

#[test]
fn openssl_reads_a_device_s_request_and_a_device_s_request_of_openssl_is_read() {
    let key = DeviceKey::generate().unwrap();
    let files = Files::new();
    let request = files.put("request.der", &key.signing_request("phone").unwrap());
    let shown = text(&openssl(&["req", "-inform", "DER", "-in", path(&request), "-verify", "-noout", "-text"]));
    assert!(shown.contains("verify OK") && shown.contains("CN = phone"), "{shown}");

    let world = world_now();
    let Device { paired, .. } = world.pair("phone");
    let connected = world.identity.connected(Some(&[paired.certificate])).unwrap();
    world.clock.advance(crate::world::HOUR);
    for curve in ["prime256v1", "secp384r1"] {
        let (out, key) = (files.0.path().join("openssl.der"), files.0.path().join("openssl.key"));
        let curve = format!("ec_paramgen_curve:{curve}");
        let subject = format!("/CN={}", paired.device_id);
        let made = openssl(&[
            "req",
            "-new",
            "-newkey",
            "ec",
            "-pkeyopt",
            &curve,
            "-nodes",
            "-subj",
            &subject,
            "-outform",
            "DER",
            "-keyout",
            path(&key),
            "-out",
            path(&out),
            if curve.ends_with("secp384r1") { "-sha384" } else { "-sha256" },
        ]);
        assert!(made.status.success(), "{}", text(&made));
        world.identity.renew(&connected, &std::fs::read(&out).unwrap()).unwrap();
        world.clock.advance(crate::world::HOUR / 4);
    }
}

#[test]
fn a_browser_s_file_opens_with_its_password_and_no_other() {
    let world = world_now();
    let Device { paired, .. } = world.pair("laptop");
    let connected = world.identity.connected(Some(&[paired.certificate])).unwrap();
    let request = BrowserRequest::begin("firefox".parse().unwrap()).unwrap();
    let issued = world.identity.add_browser(&connected, request.name(), request.request()).unwrap();
    let file = request.pack(&issued).unwrap();
    let files = Files::new();
    let packed = files.put("browser.p12", &file.pkcs12);
    let open = |password: &str| {
        let password = format!("pass:{password}");
        openssl(&["pkcs12", "-in", path(&packed), "-passin", &password, "-nodes", "-info"])
    };
    let opened = open(file.reveal_password());
    let shown = text(&opened);
    assert!(opened.status.success(), "{shown}");
    assert!(shown.contains("PBES2, PBKDF2, AES-256-CBC") && shown.contains("hmacWithSHA256"), "{shown}");
    assert_eq!(shown.matches("BEGIN CERTIFICATE").count(), 2, "the browser's and the authority's");
    assert_eq!(shown.matches("BEGIN PRIVATE KEY").count(), 1);
    assert!(shown.contains("Palyra: firefox"), "{shown}");
    for wrong in ["", "wrong", &file.reveal_password().to_uppercase()] {
        assert!(!open(wrong).status.success(), "{wrong}");
    }
    assert_eq!(file.reveal_password().len(), 23, "four groups of five");
    assert!(!format!("{file:?}").contains(file.reveal_password()));

    // What came out of the file is let in.
    let both = files.put("both.pem", shown.as_bytes());
    let (output, served) = s_client(&world, Some((&both, &both)), &[]);
    assert!(output.contains("hello from the daemon"), "{output}");
    served.unwrap();
}

//! Paired devices: two machines in two network namespaces, from the code to the day it is revoked.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, Network, Running, text};
use serde_json::{Value, json};
use std::process::Command;

/// The machine with the daemon, and another one.
pub(crate) struct Machines {
    pub(crate) server: Host,
    pub(crate) device: Host,
    pub(crate) network: Network,
}

/// What the device calls the daemon.
pub(crate) const HOME: &str = "home";

impl Machines {
    pub(crate) fn new() -> Self {
        let network = Network::new();
        let mut server = Host::idle_in(network.server().0);
        server.configure(&format!("[remote]\nlisten = \"{}:7443\"\n", network.server().1));
        server.start();
        let device = Host::idle_in(network.device().0);
        Self { server, device, network }
    }

    /// Machines with a device called `laptop`.
    pub(crate) fn paired(role: &str) -> Self {
        let machines = Self::new();
        machines.pair("laptop", role);
        machines
    }

    pub(crate) fn code(&self, options: &[&str]) -> Value {
        self.server.palyra(&[&["pairing", "code"], options].concat()).good()
    }

    /// Starts pairing with a code, at the daemon's address.
    pub(crate) fn pairing(&self, code: &str, name: &str) -> Running {
        let at = self.network.server().1;
        self.device.palyra_started(&["pair", at, "--code", code, "--name", name, "--save-as", HOME])
    }

    /// Pairs with a PIN, as two people would.
    pub(crate) fn pair(&self, name: &str, role: &str) {
        let watching = self.server.palyra_started(&["approvals", "watch"]);
        let code = self.code(&["--role", role]);
        let pairing = self.pairing(text(&code, "/code"), name);
        let asked = self.asked(&watching);
        self.server.decide(text(&asked, "/approval_id"), "allow", &[]).exits(0).done();
        let paired = pairing.end().good();
        assert_eq!(paired["role"], role);
    }

    /// The approval of a device that waits.
    pub(crate) fn asked(&self, watching: &Running) -> Value {
        loop {
            let news = watching.json();
            if news["subject"]["kind"] == "device_pairing" {
                assert_eq!(news["state"], "pending", "nobody answered yet: {news}");
                return news;
            }
        }
    }

    /// A command on the other machine, for the daemon.
    pub(crate) fn remotely(&self, args: &[&str]) -> palyra_e2e::Ran {
        self.device.palyra(&[&["--host", HOME], args].concat())
    }

    /// The serial number of a device's newest certificate.
    pub(crate) fn serial(&self, name: &str) -> String {
        let shown = self.server.palyra(&["devices", "show", name]).good();
        let newest = shown["certificates"].as_array().and_then(|all| all.last()).cloned().unwrap();
        text(&newest, "/serial").to_owned()
    }
}

#[test]
fn two_machines_pair_by_pin_and_both_screens_show_the_same_words() {
    let machines = Machines::new();
    let watching = machines.server.palyra_started(&["approvals", "watch"]);
    let code = machines.code(&["--role", "admin"]);
    let pin = text(&code, "/code");
    assert_eq!(pin.len(), 9, "eight digits in two groups: {pin}");
    let pairing = machines.pairing(pin, "laptop");
    pairing.told("same four words");
    let words = pairing.side_line();
    let asked = machines.asked(&watching);
    assert_eq!(text(&asked, "/subject/words"), words);
    assert_eq!(text(&asked, "/subject/name"), "laptop");
    let card = machines.server.palyra_text(&["approvals", "show", text(&asked, "/approval_id")]).exits(0).stdout;
    assert!(card.contains(&words), "{card}");
    machines.server.decide(text(&asked, "/approval_id"), "allow", &[]).exits(0).done();
    let paired = pairing.end().good();
    assert_eq!((&paired["principal"], &paired["role"]), (&json!("user:local"), &json!("admin")));

    let status = machines.remotely(&["status"]).good();
    assert_eq!(status["principal"], "user:local");
    let me = machines.remotely(&["access", "whoami"]).good();
    assert_eq!(me["device"], paired["device_id"]);
    assert_eq!((&me["role"], &me["channel"]), (&json!("admin"), &json!("remote")));
    let call = machines.remotely(&["call", "palyra.echo", "--input", r#"{"text":"from afar"}"#]).good();
    assert_eq!(call["state"], "succeeded");
    // The call says which device it came from.
    let events = machines.server.palyra(&["journal", "show", text(&call, "/call_id")]).exits(0).stdout;
    assert!(events.contains(text(&paired, "/device_id")), "{events}");
    // An admin is no owner.
    machines.remotely(&["devices", "revoke", "laptop"]).fails(10, "role_insufficient");
    machines.remotely(&["access", "member", "add", "user:eve", "--role", "owner"]).fails(10, "more_than_held");

    let listed = machines.server.palyra(&["devices", "list"]).good();
    assert_eq!((&listed[0]["name"], &listed[0]["state"]), (&json!("laptop"), &json!("active")));
    assert!(listed[0]["last_seen"].is_u64() || listed[0]["last_seen"].is_string(), "{listed}");
    let doctor = machines.server.palyra_text(&["doctor"]).stdout;
    assert!(doctor.contains("beyond this machine, to paired devices (1 admin)"), "{doctor}");
    // The code was for one device.
    machines.device.palyra(&["pair", machines.network.server().1, "--code", pin, "--name", "x"]).exits(7).done();
    machines.server.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn a_machine_pairs_by_the_text_of_a_qr_code() {
    let machines = Machines::new();
    let watching = machines.server.palyra_started(&["approvals", "watch"]);
    let code = machines.code(&["--qr"]);
    let shown = machines.server.palyra_text(&["pairing", "code", "--qr"]).exits(0).stdout;
    assert!(shown.contains('█'), "a picture for cameras: {shown}");
    let pairing =
        machines.device.palyra_started(&["pair", "--code", text(&code, "/code"), "--save-as", HOME, "--name", "phone"]);
    let asked = machines.asked(&watching);
    machines.server.decide(text(&asked, "/approval_id"), "allow", &[]).exits(0).done();
    assert_eq!(pairing.end().good()["role"], "operator");
    machines.remotely(&["tools", "list"]).exits(0).done();
    // An operator uses, and does not oversee.
    machines.remotely(&["approvals", "list"]).fails(10, "role_insufficient");
}

#[test]
fn a_device_that_is_denied_or_guesses_wrong_is_not_let_in() {
    let machines = Machines::new();
    let watching = machines.server.palyra_started(&["approvals", "watch"]);
    let code = machines.code(&[]);
    let pairing = machines.pairing(text(&code, "/code"), "laptop");
    let asked = machines.asked(&watching);
    machines.server.decide(text(&asked, "/approval_id"), "deny", &["--reason", "not mine"]).exits(0).done();
    pairing.end().fails(10, "pairing_denied");
    assert_eq!(machines.server.palyra(&["devices", "list"]).good(), json!([]));

    let code = machines.code(&[]);
    let right = text(&code, "/code");
    let wrong = if right.starts_with('0') { "1111 1111" } else { "0000 0000" };
    let at = machines.network.server().1;
    let guess = |code: &str| machines.device.palyra(&["pair", at, "--code", code, "--name", "x"]);
    guess(wrong).fails(10, "wrong_code");
    // After a wrong guess nobody is served for a moment, whoever comes.
    guess(right).fails(10, "pairing_back_off");
    let noted = machines.server.palyra(&["journal", "tail", "-n", "30"]).exits(0).stdout;
    assert!(noted.contains("wrong_code") && noted.contains("pairing.code_created"), "{noted}");
}

#[test]
fn a_device_renews_and_survives_a_restart_and_a_new_authority() {
    let mut machines = Machines::paired("operator");
    let first = machines.serial("laptop");
    machines.server.palyra(&["devices", "rotate", "laptop"]).exits(0).done();
    machines.remotely(&["status"]).exits(0).done();
    let second = machines.serial("laptop");
    assert_ne!(first, second, "it got its next certificate by itself");
    machines.remotely(&["status"]).exits(0).done();
    assert_eq!(machines.serial("laptop"), second, "and not one with every command");

    for by in [Restart::Kill, Restart::Terminate] {
        machines.server.restart(by);
        machines.remotely(&["status"]).exits(0).done();
    }

    let rotated = machines.server.palyra(&["devices", "authority", "rotate"]).good();
    assert_eq!(rotated["generation"], 2);
    machines.remotely(&["status"]).exits(0).done();
    machines.server.palyra(&["devices", "rotate", "laptop"]).exits(0).done();
    machines.remotely(&["status"]).exits(0).done();
    let shown = machines.server.palyra(&["devices", "show", "laptop"]).good();
    assert_eq!(shown["certificates"].as_array().unwrap().last().unwrap()["authority"], 2);
    // A device that has met the new authority does not miss the old one.
    machines.server.palyra(&["devices", "authority", "rotate", "--overlap", "0s"]).exits(0).done();
    let error = machines.remotely(&["status"]).exits(10).error();
    assert!(["authority_changed", "authority_retired"].contains(&text(&error, "/code")), "{error}");
    assert!(text(&error, "/hint").contains("pair"), "{error}");
}

#[test]
fn a_revoked_device_is_cut_off_within_one_request() {
    let machines = Machines::paired("admin");
    let following = machines.device.palyra_started(&["--host", HOME, "journal", "tail", "--follow", "-n", "1"]);
    drop(following.json());
    // What it proposed and a person has not answered does not start any more.
    let waiting = machines.remotely(&["call", "palyra.process.run", "--input", r#"{"argv":["true"]}"#, "--detach"]);
    let waiting = waiting.good();
    assert_eq!(waiting["state"], "awaiting_approval");
    machines.server.palyra(&["devices", "revoke", "laptop", "--reason", "lost"]).exits(0).done();
    machines.remotely(&["status"]).fails(10, "device_revoked");
    assert_ne!(following.end().code, 0, "a stream that was open has ended");
    machines.server.palyra(&["calls", "show", text(&waiting, "/call_id")]).fails(5, "device_revoked");
    let listed = machines.server.palyra(&["devices", "list"]).good();
    assert_eq!(listed[0]["state"], "revoked");
    let id = text(&listed[0], "/device_id").to_owned();
    machines.server.palyra(&["devices", "remove", &id]).exits(0).done();
    machines.remotely(&["status"]).fails(10, "device_not_known");
    machines.server.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn a_restart_in_the_middle_of_a_pairing_leaves_no_device() {
    let mut machines = Machines::new();
    let watching = machines.server.palyra_started(&["approvals", "watch"]);
    let code = machines.code(&[]);
    let pairing = machines.pairing(text(&code, "/code"), "laptop");
    let asked = machines.asked(&watching);
    machines.server.restart(Restart::Kill);
    assert_eq!(pairing.end().code, 10);
    assert_eq!(machines.server.palyra(&["devices", "list"]).good(), json!([]));
    machines.server.decide(text(&asked, "/approval_id"), "allow", &[]).exits(10).done();
    machines.pair("laptop", "operator");
    machines.remotely(&["status"]).exits(0).done();
}

#[test]
fn a_registry_that_the_daemon_did_not_write_lets_no_device_in() {
    let mut machines = Machines::paired("operator");
    assert_eq!(machines.server.terminate().code, Some(0));
    let registry = machines.server.state().join("identity_registry.json");
    let good = std::fs::read_to_string(&registry).unwrap();
    std::fs::write(&registry, good.replace("\"revision\"", " \"revision\"")).unwrap();
    machines.server.start();
    machines.remotely(&["status"]).exits(7).done();
    machines.server.palyra(&["devices", "list"]).fails(10, "device_registry_refused");
    machines.server.palyra(&["call", "palyra.echo", "--input", r#"{"text":"x"}"#]).exits(0).done();
    assert_eq!(machines.server.terminate().code, Some(0));
    let mut reset = machines.server.daemon_command();
    let reset = reset.args(["devices", "reset"]).output().unwrap();
    assert!(reset.status.success(), "{reset:?}");
    machines.server.start();
    assert_eq!(machines.server.palyra(&["devices", "list"]).good(), json!([]));
    let error = machines.remotely(&["status"]).exits(10).error();
    assert_eq!(text(&error, "/code"), "authority_changed", "another authority: {error}");
    machines.pair("laptop", "operator");
    machines.remotely(&["status"]).exits(0).done();
    machines.server.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn a_rule_says_what_a_phone_may_answer() {
    let network = Network::new();
    let mut server = Host::idle_in(network.server().0);
    std::fs::create_dir(server.path("rules")).unwrap();
    std::fs::write(
        server.path("rules/phones.cedar"),
        "@id(\"phones_only_deny\")\n@reason(\"A phone may deny everything and allow what is low risk.\")\n\
         forbid (principal, action == Action::\"approval.decide\", resource)\n\
         when { context has device && context has answer && context.answer == \"allow\" }\n\
         unless { context has risk && context.risk == \"low\" };\n",
    )
    .unwrap();
    let rules = server.path("rules");
    server.configure(&format!("policy_dir = {rules:?}\n[remote]\nlisten = \"{}:7443\"\n", network.server().1));
    server.start();
    let device = Host::idle_in(network.device().0);
    let machines = Machines { server, device, network };
    machines.pair("phone", "admin");
    let ask = || machines.server.ask("palyra.process.run", &json!({ "argv": ["true"] }), &[]).1;
    let answer = |approval: &str, word: &str| machines.remotely(&["approvals", "decide", approval, word]);
    let first = ask();
    answer(&first, "allow").fails(10, "forbidden");
    answer(&first, "deny").exits(0).done();
    // The answer is signed with the device's key, and the journal can show it.
    let shown = machines.server.palyra(&["approvals", "show", &first]).good();
    assert!(text(&shown, "/resolution/signature/device").starts_with("dev_"), "{shown}");
    assert!(text(&shown, "/resolution/signature/key").starts_with("p256:"), "{shown}");
    machines.server.palyra(&["journal", "verify"]).exits(0).done();
    // The same person at the machine itself may.
    machines.server.decide(&ask(), "allow", &[]).exits(0).done();
}

#[test]
fn somebody_in_between_with_a_certificate_of_their_own_pairs_nobody() {
    let machines = Machines::new();
    let (device, here) = machines.network.device();
    let dir = machines.device.path("relay");
    std::fs::create_dir(&dir).unwrap();
    // A certificate that looks like a daemon's, from an authority of the relay's own.
    let zone = "d0123456789abcdef0123.palyra.internal";
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"])
        .args(["-subj", &format!("/CN={zone}"), "-addext", &format!("subjectAltName=DNS:{zone}")])
        .args(["-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(&dir)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let script = dir.join("relay.py");
    std::fs::write(&script, RELAY).unwrap();
    let mut relay = palyra_e2e::network::inside(device, "python3".as_ref());
    relay.arg(&script).args([here, machines.network.server().1]).current_dir(&dir);
    let relay = Running::start(relay);
    assert_eq!(relay.line(), "listening");
    for qr in [false, true] {
        let code = machines.code(if qr { &["--qr", "--reach", "10.77.200.1"] } else { &[] });
        let code = text(&code, "/code").replace("10.77.200.1", here);
        let ran = machines.device.palyra(&["pair", here, "--code", &code, "--name", "laptop"]).exits(10);
        let error = ran.error();
        let known = ["authority_changed", "foreign_certificate", "wrong_code"];
        assert!(known.contains(&text(&error, "/code")), "{error}");
    }
    assert_eq!(machines.server.palyra(&["devices", "list"]).good(), json!([]));
    assert_eq!(machines.server.palyra(&["approvals", "list"]).good(), json!([]), "nobody was asked");
    machines.pair("laptop", "operator");
}

/// Ends TLS on both sides and passes on what is said.
const RELAY: &str = r#"
import socket, ssl, sys, threading
here, daemon = sys.argv[1], sys.argv[2]
front = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
front.load_cert_chain("cert.pem", "key.pem")
front.set_alpn_protocols(["palyra-pairing/1"])
back = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
back.check_hostname, back.verify_mode = False, ssl.CERT_NONE
back.set_alpn_protocols(["palyra-pairing/1"])
listener = socket.create_server((here, 7444))
print("listening", flush=True)

def pump(source, sink):
    try:
        while data := source.recv(4096):
            sink.sendall(data)
    except OSError:
        pass
    finally:
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

while True:
    victim, _ = listener.accept()
    try:
        victim = front.wrap_socket(victim, server_side=True)
        other = back.wrap_socket(socket.create_connection((daemon, 7444)))
    except OSError:
        continue
    threading.Thread(target=pump, args=(victim, other), daemon=True).start()
    threading.Thread(target=pump, args=(other, victim), daemon=True).start()
"#;

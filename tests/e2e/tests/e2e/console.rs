//! The console: who is let in, whose requests count, what pages may do, and decisions that are signed.

use palyra_e2e::host::Restart;
use palyra_e2e::{Host, text};
use palyra_protocol::{ApprovalDecision, Clock as _, DaemonKey, SystemClock};
use serde_json::{Value, json};

fn asked(host: &Host, approval: &str) -> Value {
    host.palyra(&["approvals", "show", approval]).good()
}

#[test]
fn a_code_opens_the_console_once_and_acts_for_whoever_made_it() {
    let host = Host::up();
    let code = host.console_code();
    let (http, key) = (host.http(), DaemonKey::generate().unwrap());
    http.register("0123456789abcdef0123456789abcdef", &key).refuses(401, "console_code_wrong");
    let opened = http.register(&code, &key).is(200).json();
    assert_eq!(opened["principal"], "user:local");
    http.register(&code, &key).refuses(401, "console_code_wrong");
    let page = host.console();
    let me = page.get("/console/api/me").is(200).json();
    assert_eq!((text(&me, "/principal"), text(&me, "/session")), ("user:local", page.session.as_str()));
    let listed = host.palyra(&["console", "sessions", "list"]).good();
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    // Programs have no console, whoever asks for them.
    host.palyra(&["console", "--as", "agent:demo"]).fails(10, "forbidden");
}

#[test]
fn a_request_counts_once_as_it_was_signed_and_only_while_its_session_is_open() {
    let host = Host::up();
    let page = host.console();
    let path = "/console/api/me";
    host.http().get(path).refuses(401, "console_unsigned");
    host.http_approver().get(path).refuses(401, "console_unsigned");
    let signed = page.signed("GET", path, b"");
    page.send("GET", path, &signed, b"").is(200);
    page.send("GET", path, &signed, b"").refuses(401, "console_replayed");
    let signed = page.signed("GET", path, b"");
    page.send("GET", "/console/api/sessions", &signed, b"").refuses(401, "console_signature");
    page.send("GET", "/console/api/me?x=1", &signed, b"").refuses(401, "console_signature");
    let now = SystemClock.now().unix_ms();
    for at in [now - 120_000, now + 120_000, 0, u64::MAX] {
        page.send("GET", path, &page.signed_at("GET", path, b"", at), b"").refuses(401, "console_clock");
    }
    // The body is the one that was signed.
    let end = format!("/console/api/sessions/{}/end", page.session);
    let signed = page.signed("POST", &end, b"{}");
    page.send("POST", &end, &signed, b"{ }").refuses(401, "console_signature");
    for broken in 0..5 {
        let mut signed = page.signed("GET", path, b"");
        signed[broken].1.push('x');
        assert_eq!(page.send("GET", path, &signed, b"").status, 401, "{broken}");
        signed.remove(broken);
        page.send("GET", path, &signed, b"").refuses(401, "console_unsigned");
    }
    let other = host.console();
    host.palyra(&["console", "sessions", "revoke", page.session.as_str()]).exits(0).done();
    page.get(path).refuses(401, "console_session_ended");
    other.get(path).is(200);
    host.palyra(&["console", "sessions", "revoke", page.session.as_str()]).fails(10, "no_such_console");
}

#[test]
fn a_decision_in_the_console_is_signed_and_the_journal_keeps_and_checks_the_signature() {
    let host = Host::up();
    let page = host.console();
    let write = |name: &str| json!({ "path": name, "content": "x" });
    let (call, approval) = host.ask("palyra.fs.write", &write("a.txt"), &[]);
    let question = asked(&host, &approval);
    let yes = page.answer(&question, ApprovalDecision::Allow);
    // A signature of something else, or none, decides nothing.
    let no = page.answer(&question, ApprovalDecision::Deny);
    let mut mixed = yes.clone();
    mixed["signature"] = no["signature"].clone();
    page.decide(&question, &mixed).refuses(409, "other_decision");
    let mut wider = yes.clone();
    wider["scope"] = json!("session");
    page.decide(&question, &wider).refuses(409, "other_decision");
    let stranger = host.console().answer(&question, ApprovalDecision::Allow);
    page.decide(&question, &stranger).refuses(409, "other_decision");
    let mut bare = yes.clone();
    bare.as_object_mut().unwrap().remove("signature");
    assert_eq!(page.decide(&question, &bare).status, 422);
    assert_eq!(asked(&host, &approval)["state"], "pending");
    let answered = page.decide(&question, &yes).is(200).json();
    let signed = &answered["resolution"]["signature"];
    assert_eq!((text(signed, "/session"), &signed["signature"]), (page.session.as_str(), &yes["signature"]));
    page.decide(&question, &yes).refuses(409, "approval_already_resolved");
    host.palyra(&["calls", "follow", &call]).exits(0).done();
    assert!(host.work("a.txt").exists());
    host.palyra(&["journal", "verify"]).exits(0).done();
    let shown = host.palyra_text(&["approvals", "show", &approval]).exits(0).stdout;
    assert!(shown.contains(&format!("signed in {}", page.session)), "{shown}");
    // Also after its session has ended.
    host.palyra(&["console", "sessions", "revoke", "--all"]).exits(0).done();
    host.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn every_page_and_asset_of_the_console_has_its_policy_and_no_data() {
    let host = Host::up();
    let http = host.http();
    let pages = [
        "", "calls", "call", "runs", "run", "effects", "grants", "policy", "skills", "skill", "memory", "routines",
        "vault", "devices", "access", "journal", "health",
    ];
    let assets = [
        "console.css",
        "icon.svg",
        "digest.js",
        "session.js",
        "stream.js",
        "page.js",
        "listing.js",
        "access.js",
        "passkey.js",
        "run.js",
        "inbox.js",
        "call.js",
        "policy.js",
        "journal.js",
    ];
    let paths = pages.iter().map(|page| format!("/console/{page}"));
    let paths = paths.chain(assets.iter().map(|asset| format!("/console/assets/{asset}")));
    for path in paths {
        let answer = http.get(&path).is(200);
        let policy = answer.header("content-security-policy");
        for part in [
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types palyra",
        ] {
            assert!(policy.split("; ").any(|found| found == part), "{path}: {part} is not in {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin", "{path}");
        assert_eq!(answer.header("set-cookie"), "", "{path}");
        assert!(!answer.body.contains("user:local"), "{path} holds data");
        for inline in ["<script>", " style=", " onclick", "javascript:"] {
            assert!(!answer.body.contains(inline), "{path}: {inline}");
        }
    }
    http.get("/console/nowhere").refuses(404, "not_found");
    http.get("/console/assets/../mod.rs").is(404);
    let foreign = http.send("GET", "/console/", &[("origin", "http://localhost:3000")], None);
    foreign.refuses(403, "foreign_origin");
    http.send("GET", "/console/", &[("sec-fetch-site", "cross-site")], None).refuses(403, "foreign_origin");
}

#[test]
fn every_part_of_the_console_is_shown_to_its_owner_and_hostile_text_is_inert() {
    let host = Host::up();
    let page = host.console();
    let hostile = "<img src=x onerror=alert(1)>\u{202e}";
    let (call, approval) = host.ask("palyra.fs.write", &json!({ "path": "x.txt", "content": hostile }), &[]);
    for path in [
        "inbox",
        "calls",
        "grants",
        "policy",
        "vault",
        "devices",
        "access",
        "effects",
        "journal",
        "health",
        "runs",
        "skills",
        "memory",
        "routines",
        "passkeys",
        "sessions",
        &format!("inbox/{approval}"),
        &format!("calls/{call}"),
        &format!("calls/{call}/evidence"),
        "calls?state=awaiting_approval&tool=palyra.fs.write&hours=1",
        "journal?kind=approval.&text=x.txt",
        "journal/links?first=1&most=10",
    ] {
        let answer = page.get(&format!("/console/api/{path}")).is(200);
        // What is no page is read by the scripts, as data.
        let html = answer.header("content-type").starts_with("text/html");
        let is_markup = answer.body.contains("<img src=x") || answer.body.contains("<script");
        assert!(!html || !is_markup, "{path}: {}", answer.body);
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert!(!html || !answer.body.contains('\u{202e}'), "{path}");
    }
    assert!(page.get(&format!("/console/api/inbox/{approval}")).body.contains("onerror=alert(1)"));
    for nonsense in [
        "runs/run_x",
        "skills/x",
        "memory?scope=nonsense",
        "routines?slots=none",
        "calls?state=nonsense",
        "calls?who=x",
        "journal?before=x",
        "inbox/apr_x",
        "calls/x",
    ] {
        let status = page.get(&format!("/console/api/{nonsense}")).status;
        assert!((400..500).contains(&status), "{nonsense}: {status}");
    }
}

#[test]
fn a_session_and_its_decisions_outlive_the_daemon() {
    let mut host = Host::up();
    let page = host.console();
    let (_, approval) = host.ask("palyra.fs.write", &json!({ "path": "a.txt", "content": "x" }), &[]);
    page.decide(&asked(&host, &approval), &page.answer(&asked(&host, &approval), ApprovalDecision::Allow)).is(200);
    let ended = host.console();
    host.palyra(&["console", "sessions", "revoke", ended.session.as_str()]).exits(0).done();
    // What a browser sent before is no request after the start, however soon it is sent again.
    let kept = page.signed("GET", "/console/api/me", b"");
    host.restart(Restart::Kill);
    let page = host.console_again(page);
    page.send("GET", "/console/api/me", &kept, b"").refuses(401, "console_epoch");
    page.get("/console/api/me").is(200);
    host.http().get("/console/api/me").refuses(401, "console_unsigned");
    let listed = host.palyra(&["console", "sessions", "list"]).good();
    assert_eq!((listed.as_array().unwrap().len(), text(&listed, "/0/session")), (1, page.session.as_str()), "{listed}");
    let (_, approval) = host.ask("palyra.fs.write", &json!({ "path": "b.txt", "content": "x" }), &[]);
    page.decide(&asked(&host, &approval), &page.answer(&asked(&host, &approval), ApprovalDecision::Deny)).is(200);
    host.palyra(&["journal", "verify"]).exits(0).done();
}

#[test]
fn rules_are_adopted_after_they_were_tried_and_only_with_the_right_to() {
    let mut host = Host::idle();
    std::fs::create_dir(host.path("rules")).unwrap();
    let rules = host.path("rules");
    host.configure(&format!("policy_dir = {rules:?}\n"));
    host.start();
    let page = host.console();
    let adopt = |name: &str, text: &str| page.post("/console/api/policy/adopt", &json!({ "name": name, "text": text }));
    let rule = "@id(\"no_echo\")\n@reason(\"Nobody echoes.\")\n\
        forbid (principal, action == Action::\"tool.execute\", resource == Tool::\"palyra.echo\");\n";
    for (name, text) in [("console.cedar", "permit (nonsense"), ("../x.cedar", rule), ("x.txt", rule)] {
        let refused = adopt(name, text);
        assert!((400..500).contains(&refused.status), "{name}: {refused:?}");
    }
    assert_eq!(std::fs::read_dir(&rules).unwrap().count(), 0, "what may not run is not written");
    adopt("console.cedar", rule).is(200);
    assert_eq!(std::fs::read_to_string(rules.join("console.cedar")).unwrap(), rule);
    let denied = host.palyra(&["call", "palyra.echo", "--input", "{\"text\":\"x\"}"]).exits(3).stdout;
    assert!(denied.contains("no_echo"), "{denied}");
    let rule = "@id(\"nobody_reloads\")\n@reason(\"Rules stay.\")\nforbid (principal, action == Action::\"policy.reload\", resource);\n";
    adopt("console.cedar", rule).is(200);
    adopt("console.cedar", "").refuses(403, "forbidden");
    assert_eq!(std::fs::read_to_string(rules.join("console.cedar")).unwrap(), rule);
}

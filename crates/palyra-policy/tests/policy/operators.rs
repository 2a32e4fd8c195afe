//! Rules that operators ask for, written against the call's arguments.

use crate::{ask, listed, with_rules, words};
use palyra_policy::cases::Expectation;
use palyra_policy::{PolicyAction, PolicyEngine, PolicyRequestContext};
use palyra_protocol::{Digest, Environment, Facets, ToolCapability};

fn answer(engine: &PolicyEngine, who: &str, facets: Facets) -> Expectation {
    let context = PolicyRequestContext {
        is_sensitive_action: true,
        capabilities: vec![ToolCapability::ProcessExec],
        facets,
        ..listed()
    };
    Expectation::from(&engine.decide(&ask(who, PolicyAction::ToolExecute, "tool:palyra.process.run"), &context))
}

fn command(line: &str) -> Facets {
    Facets { argv: words(line), working_directory: Some(".".to_owned()), ..Facets::default() }
}

fn writing(paths: &[&str]) -> Facets {
    Facets { paths_written: paths.iter().map(|p| (*p).to_owned()).collect(), ..Facets::default() }
}

#[test]
fn the_coder_runs_its_tests_without_asking() {
    let engine = with_rules(
        r#"@id("deny_sensitive_but_tests") @replaces("deny_sensitive") @reason("Sensitive, and not one of the coder's tests.")
        forbid (principal, action, resource)
        when { context.is_sensitive_action }
        unless { context.allow_sensitive_tools }
        unless {
          principal == Agent::"demo" && action == Action::"tool.execute" && resource == Tool::"palyra.process.run" &&
          context.argv_prefixes.contains("cargo test") &&
          context has working_directory && context.working_directory == "."
        };"#,
    );
    assert_eq!(answer(&engine, "agent:demo", command("cargo test --workspace")), Expectation::Allow);
    assert_eq!(answer(&engine, "agent:demo", command("cargo testify")), Expectation::Ask);
    assert_eq!(answer(&engine, "agent:demo", command("cargo")), Expectation::Ask);
    assert_eq!(answer(&engine, "agent:demo", command("sh -c cargo test")), Expectation::Ask);
    assert_eq!(answer(&engine, "user:mia", command("cargo test")), Expectation::Ask);
    let one_word = Facets { argv: vec!["cargo test".to_owned()], ..command("") };
    assert_eq!(answer(&engine, "agent:demo", one_word), Expectation::Ask);
}

#[test]
fn a_program_is_seen_behind_what_starts_it() {
    let engine = with_rules(
        r#"@id("no_curl") @reason("Fetching is done with the tool for it.")
        forbid (principal, action == Action::"tool.execute", resource)
        when { context.executables.contains("/usr/bin/curl") };"#,
    );
    let run = |files: &[&str]| Facets {
        executable: files.first().map(|file| (*file).to_owned()),
        executables: if files.len() > 1 { files.iter().map(|file| (*file).to_owned()).collect() } else { vec![] },
        ..command("x")
    };
    assert_eq!(answer(&engine, "agent:demo", run(&["/usr/bin/curl"])), Expectation::Deny);
    assert_eq!(answer(&engine, "agent:demo", run(&["/usr/bin/env", "/usr/bin/curl"])), Expectation::Deny);
    assert_eq!(answer(&engine, "agent:demo", run(&["/usr/bin/env", "/usr/bin/git"])), Expectation::Ask);
    assert_eq!(answer(&engine, "agent:demo", command("x")), Expectation::Ask);
}

#[test]
fn places_can_be_closed_for_good_and_places_can_be_the_only_open_ones() {
    let engine = with_rules(
        r#"@id("never_infra") @reason("Infrastructure is changed by its pipeline.")
        forbid (principal, action == Action::"tool.execute", resource)
        when { context.written_under.contains("infra") };
        @id("agents_stay_in_src") @reason("Agents write in src.")
        forbid (principal is Agent, action == Action::"tool.execute", resource)
        when { context has written_root }
        unless { context.written_root == "src" || context.written_root like "src/*" };"#,
    );
    assert_eq!(answer(&engine, "user:mia", writing(&["docs/a.md", "infra/prod/x.tf"])), Expectation::Deny);
    assert_eq!(answer(&engine, "user:mia", writing(&["infra"])), Expectation::Deny);
    assert_eq!(answer(&engine, "user:mia", writing(&["infrastructure/x"])), Expectation::Ask);
    assert_eq!(answer(&engine, "agent:demo", writing(&["src/a.rs", "src/b/c.rs"])), Expectation::Ask);
    assert_eq!(answer(&engine, "agent:demo", writing(&["src/a.rs", "README.md"])), Expectation::Deny);
    assert_eq!(answer(&engine, "agent:demo", writing(&["src/../.ssh/config"])), Expectation::Deny);
}

#[test]
fn the_network_can_be_one_registry() {
    let engine = with_rules(
        r#"@id("registry_only") @reason("The network is for packages.")
        forbid (principal, action == Action::"tool.execute", resource)
        unless { ["static.packages.example", "index.packages.example"].containsAll(context.hosts) };
        @id("never_internal") @reason("Nothing talks to the inside.")
        forbid (principal, action == Action::"tool.execute", resource)
        when { context.host_domains.contains("corp.example") };
        @id("never_plain") @reason("Nothing goes there in the clear.")
        forbid (principal, action == Action::"tool.execute", resource)
        when { context.endpoints.contains("index.packages.example:80") };"#,
    );
    let hosts = |line: &str| Facets { hosts: words(line), ..Facets::default() };
    assert_eq!(answer(&engine, "agent:demo", hosts("static.packages.example")), Expectation::Ask);
    assert_eq!(answer(&engine, "agent:demo", hosts("static.packages.example evil.example")), Expectation::Deny);
    assert_eq!(answer(&engine, "agent:demo", hosts("db.corp.example")), Expectation::Deny);
    // As calls really name them: a rule about a host is about all of its ports.
    assert_eq!(answer(&engine, "agent:demo", hosts("static.packages.example:443")), Expectation::Ask);
    assert_eq!(answer(&engine, "agent:demo", hosts("index.packages.example:443")), Expectation::Ask);
    assert_eq!(answer(&engine, "agent:demo", hosts("index.packages.example:80")), Expectation::Deny);
    assert_eq!(answer(&engine, "agent:demo", hosts("evil.example:443")), Expectation::Deny);
    assert_eq!(answer(&engine, "agent:demo", hosts("db.corp.example:5432")), Expectation::Deny);
    assert_eq!(answer(&engine, "agent:demo", Facets::default()), Expectation::Ask);
}

#[test]
fn four_eyes() {
    let engine = with_rules(
        r#"@id("four_eyes") @reason("Somebody else has to approve this.")
        forbid (principal, action == Action::"approval.decide", resource)
        when { resource in principal || (context has proposed_by && context.proposed_by == principal) };"#,
    );
    let decide = |who: &str, owned_by: &str, proposed_by: &str| {
        let context = PolicyRequestContext {
            owned_by: Some(owned_by.parse().unwrap()),
            proposed_by: Some(proposed_by.parse().unwrap()),
            ..listed()
        };
        Expectation::from(&engine.decide(&ask(who, PolicyAction::ApprovalDecide, "approval:a"), &context))
    };
    assert_eq!(decide("user:mia", "user:local", "user:local"), Expectation::Allow);
    assert_eq!(decide("user:local", "user:local", "user:local"), Expectation::Deny);
    assert_eq!(decide("user:local", "agent:demo", "agent:demo"), Expectation::Allow);
    // Acting as an agent does not give one a second pair of eyes.
    assert_eq!(decide("user:local", "agent:demo", "user:local"), Expectation::Deny);
}

#[test]
fn relations_of_everything_a_request_names_are_known() {
    let engine = with_rules(
        r#"@id("by_tool") @reason("r") forbid (principal, action == Action::"approval.decide", resource)
        when { context has tool && context.tool in Capability::"network" };
        @id("by_proposer") @reason("r") forbid (principal, action == Action::"approval.decide", resource)
        when { context has proposed_by && context.proposed_by in Role::"owner" };
        @id("by_owner_group") @reason("r") forbid (principal, action == Action::"call.read", resource)
        when { resource in Group::"tool_callers" };
        @id("by_power") @reason("r") forbid (principal, action == Action::"tool.execute", resource in Capability::"secrets_read");"#,
    );
    let mut context = PolicyRequestContext { tool: Some("t".to_owned()), ..listed() };
    let approval = ask("user:mia", PolicyAction::ApprovalDecide, "approval:a");
    let rules = |request, context: &PolicyRequestContext| engine.decide(request, context).explanation().rule_ids();
    assert_eq!(rules(&approval, &context), ["people_approve"]);
    context.capabilities = vec![ToolCapability::Network];
    assert_eq!(rules(&approval, &context), ["by_tool"]);
    context.proposed_by = Some("user:local".parse().unwrap());
    assert_eq!(rules(&approval, &context), ["by_proposer", "by_tool"]);
    let call = ask("user:local", PolicyAction::CallRead, "call:c");
    assert_eq!(rules(&call, &listed()), ["overseers_see_calls"]);
    let owned = PolicyRequestContext { owned_by: Some("agent:demo".parse().unwrap()), ..listed() };
    assert_eq!(rules(&call, &owned), ["by_owner_group"]);
    let reading = PolicyRequestContext { capabilities: vec![ToolCapability::SecretsRead], ..listed() };
    assert_eq!(rules(&ask("agent:demo", PolicyAction::ToolExecute, "tool:t"), &reading), ["by_power"]);
}

#[test]
fn a_search_reads_every_place_below_it() {
    let engine = with_rules(
        r#"@id("no_keys") @reason("Keys are nobody's.")
        forbid (principal, action == Action::"tool.execute", resource)
        when { context.read_under.contains(".ssh") || ["secrets/prod"].containsAny(context.read_under) };
        @id("no_sweeping") @reason("Nobody goes through vendor.")
        forbid (principal, action == Action::"tool.execute", resource)
        when { context.trees_read.contains("vendor") };"#,
    );
    let reading = |path: &str| Facets { paths_read: vec![path.to_owned()], ..Facets::default() };
    let through = |path: &str| Facets { trees_read: vec![path.to_owned()], ..reading(path) };
    let decide = |facets| {
        let context = PolicyRequestContext { facets, ..listed() };
        let verdict = engine.decide(&ask("agent:demo", PolicyAction::ToolExecute, "tool:palyra.fs.search"), &context);
        (Expectation::from(&verdict), verdict.rule_ids().concat())
    };
    let allowed = (Expectation::Allow, "allowlisted_execution".to_owned());
    let keys = (Expectation::Deny, "no_keys".to_owned());
    assert_eq!(decide(reading(".")), allowed, "the directory itself is no secret");
    assert_eq!(decide(through(".")), keys);
    assert_eq!(decide(through(".ssh")), keys);
    assert_eq!(decide(through("secrets")), keys);
    assert_eq!(decide(through("secrets/prod/eu")), keys);
    assert_eq!(decide(through("secrets/test")), allowed);
    assert_eq!(decide(through("src")), allowed);
    assert_eq!(decide(through("vendor")), (Expectation::Deny, "no_sweeping".to_owned()));
}

#[test]
fn variables_and_standard_input_are_seen() {
    let engine = with_rules(
        r#"@id("git_looks") @reason("Looking needs nobody.")
        permit (principal, action == Action::"approval.waive", resource == Tool::"palyra.process.run")
        when { context.argv_prefixes.contains("git status") }
        when { context.env_names.isEmpty() && !context.has_stdin };
        @id("no_preload") @reason("Nobody preloads.")
        forbid (principal, action == Action::"tool.execute", resource)
        when { context.env_names.contains("LD_PRELOAD") };"#,
    );
    let plain = command("git status");
    let with = |name| Facets { environment: Environment::new([(name, "x")]), ..plain.clone() };
    assert_eq!(answer(&engine, "agent:demo", plain.clone()), Expectation::Allow);
    assert_eq!(answer(&engine, "agent:demo", with("HOME")), Expectation::Ask);
    assert_eq!(answer(&engine, "agent:demo", with("LD_PRELOAD")), Expectation::Deny);
    let fed = Facets { stdin_sha256: Some(Digest::of(b"x")), ..plain };
    assert_eq!(answer(&engine, "agent:demo", fed), Expectation::Ask);
}

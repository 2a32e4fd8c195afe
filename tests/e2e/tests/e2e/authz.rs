//! Every method of the interface, refused to whoever may not: by scope, by policy, and without any token that opens.
//!
//! The methods come from the interface's own descriptions: gRPC's and OpenAPI's. One that is added without a right, or
//! without a case in [`denials`] or [`http_denials`], makes these tests fail.

use palyra_api::v1::{
    AddAgentRequest, AddBrowserRequest, AddMemoryRequest, AddRoutineRequest, AddSlotRequest, AuthorityRequest,
    BindSecretRequest, CancelCallRequest, CancelRunRequest, CheckSkillsRequest, CheckpointRequest,
    ComparePolicyRequest, CreateCodeRequest, CreateConsoleCodeRequest, CreateTokenRequest, DecideRequest,
    DiffEffectsRequest, DiffSkillsRequest, EndConsoleSessionRequest, EndGraceRequest, ExportVaultRequest,
    ExposureRequest, FollowCallRequest, GetApprovalRequest, GetCallRequest, GetDeviceRequest, GetEventRequest,
    GetGrantRequest, GetRunRequest, GetSecretRequest, GetToolRequest, ImportPiece, ListAgentsRequest,
    ListApprovalsRequest, ListBindingsRequest, ListCallsRequest, ListConsoleSessionsRequest, ListDevicesRequest,
    ListEffectsRequest, ListFeaturesRequest, ListGrantsRequest, ListGroupsRequest, ListMembersRequest,
    ListModelsRequest, ListPasskeysRequest, ListRoutinesRequest, ListRunsRequest, ListSecretsRequest,
    ListSkillsRequest, ListTokensRequest, ListToolsRequest, MemoryRequest, MigrateVaultRequest, OwnDeviceRequest,
    PauseRoutineRequest, ProposeRequest, PutSecretRequest, QuarantineSkillRequest, RedeemRequest, RekeyVaultRequest,
    ReleaseSkillRequest, ReloadPolicyRequest, RemoveAgentRequest, RemoveDeviceRequest, RemoveGroupRequest,
    RemoveMemberRequest, RemovePasskeyRequest, RemoveSlotRequest, RenameDeviceRequest, RenewDeviceRequest,
    ReplaySkillRequest, ReportRequest, ResumeRunRequest, RevokeDeviceRequest, RevokeGrantRequest, RevokeTokenRequest,
    RightsRequest, RotateAuthorityRequest, RotateDeviceRequest, RotateTokenRequest, RoutineHistoryRequest,
    RoutineRequest, SecretRequest, SetDeviceRoleRequest, SetFeatureRequest, SetGroupRequest, SetMemberRequest,
    ShowEffectsRequest, ShowRulesRequest, SimulatePolicyRequest, SkillChunk, SkillRequest, StartRunRequest,
    StatusRequest, StopRequest, StreamRunRequest, SuggestRulesRequest, TailRequest, TakeBackRequest, TestModelRequest,
    TrustAddRequest, TrustKeyRequest, TrustListRequest, TrustRotateRequest, UnbindSecretRequest, UndoRequest,
    UnlockVaultRequest, VaultStatusRequest, VerifyRequest, WatchApprovalsRequest, WhoAmIRequest, WithdrawCodeRequest,
};
use palyra_api::{ApiError, Connection};
use palyra_e2e::{Host, Http, text};
use prost::Message as _;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::pin::Pin;

/// The methods that the interface describes.
fn methods() -> BTreeSet<String> {
    let described = prost_types::FileDescriptorSet::decode(palyra_api::DESCRIPTORS).unwrap();
    let mut methods = BTreeSet::new();
    for file in &described.file {
        for service in &file.service {
            let path = |method: &str| format!("{}.{}/{method}", file.package(), service.name());
            methods.extend(service.method.iter().map(|method| path(method.name())));
        }
    }
    assert!(methods.len() > 30, "{methods:?}");
    methods
}

/// Calls a method by its name with an empty message, and returns the code of its refusal.
async fn knock(connection: &Connection, method: &str, token: Option<&str>) -> Option<String> {
    let mut client = tonic::client::Grpc::new(connection.channel());
    client.ready().await.unwrap();
    let mut request = tonic::Request::new(());
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    let path = format!("/{method}").parse().unwrap();
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let answered = client.server_streaming(request, path, codec).await;
    answered.err().map(|status| ApiError::from(status).code)
}

/// The routes that the HTTP door describes, but the open ones.
fn routes(host: &Host) -> BTreeSet<String> {
    let described = host.http().get("/openapi.json").is(200).json();
    let mut routes = BTreeSet::new();
    for (path, item) in described["paths"].as_object().unwrap() {
        for (verb, operation) in item.as_object().unwrap() {
            if operation.get("security").is_none() {
                routes.insert(format!("{} {path}", verb.to_uppercase()));
            }
        }
    }
    assert!(routes.len() >= 7, "{routes:?}");
    routes
}

/// The routes for clients of OpenAI's API.
const COMPAT: [&str; 5] = [
    "POST /v1/chat/completions",
    "POST /v1/responses",
    "GET /v1/responses/{response_id}",
    "POST /v1/responses/{response_id}/cancel",
    "GET /v1/models",
];

/// Knocks at a route by its line in the table, and returns the code of its refusal.
fn knock_http(http: &Http, route: &str) -> Option<String> {
    let (verb, path) = route.split_once(' ').unwrap();
    let path = path.replace("{call_id}", "call_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    let path = path.replace("{approval_id}", "apr_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    let path = path.replace("{response_id}", "resp_01ARZ3NDEKTSV4RRFFQ69G5FAV");
    let answer = http.send(verb, &path, &[("content-type", "application/json")], None);
    // Beyond the gate, MCP answers in its own words.
    let code = |told: serde_json::Value| {
        let code = told.get("code").or_else(|| told.get("error")?.get("code"));
        code.and_then(|code| code.as_str()).map(str::to_owned)
    };
    let told = serde_json::from_str(&answer.body).ok().and_then(code);
    (answer.status >= 400).then(|| told.unwrap_or_else(|| answer.status.to_string()))
}

/// The routes of the console, whose requests are signed by a browser's key.
fn is_console(method: &str) -> bool {
    method.contains(" /console/")
}

/// Either door, by how the table names it.
async fn knock_any(host: &Host, connection: &Connection, method: &str, token: &str) -> Option<String> {
    if method.contains(' ') {
        knock_http(&host.http().with(token), method)
    } else {
        knock(connection, method, Some(token)).await
    }
}

/// The right of every method, as the daemon tells it: method and action.
fn rights(host: &Host) -> BTreeMap<String, String> {
    let told = host.palyra(&["access", "rights"]).good();
    let row = |r: &serde_json::Value| (text(r, "/method").to_owned(), text(r, "/action").to_owned());
    told.as_array().unwrap().iter().map(row).collect()
}

fn all_actions(host: &Host) -> BTreeSet<String> {
    let me = host.palyra(&["access", "whoami"]).good();
    me["rights"].as_array().unwrap().iter().map(|r| text(r, "/action").to_owned()).collect()
}

fn token(host: &Host, principal: &str, role: &str, scopes: &BTreeSet<String>) -> String {
    let scopes = scopes.iter().cloned().collect::<Vec<_>>().join(",");
    let args = ["access", "token", "create", principal, "--role", role, "--scope", &scopes, "--rate", "100000"];
    text(&host.palyra(&args).good(), "/token").to_owned()
}

#[tokio::test]
async fn no_method_is_reached_without_its_scope() {
    let host = Host::up();
    let rights = rights(&host);
    let mut known: BTreeSet<String> = methods().union(&routes(&host)).cloned().collect();
    // MCP describes itself.
    known.extend(["POST /mcp", "GET /mcp", "DELETE /mcp"].map(str::to_owned));
    // These are described by OpenAI.
    known.extend(COMPAT.map(str::to_owned));
    // The console's are its own; nobody comes there with a token.
    known.extend(rights.keys().filter(|method| is_console(method)).cloned());
    assert_eq!(rights.keys().cloned().collect::<BTreeSet<_>>(), known, "the table of rights is the interface");
    let all = all_actions(&host);
    let connection = host.owner().await.0;
    let full = token(&host, "user:local", "owner", &all);
    let mut without: BTreeMap<&str, String> = BTreeMap::new();
    for (method, action) in &rights {
        let lacking = without.entry(action).or_insert_with(|| {
            let scopes = all.iter().filter(|a| *a != action).cloned().collect();
            token(&host, "user:local", "owner", &scopes)
        });
        let refused = knock_any(&host, &connection, method, lacking).await;
        if is_console(method) {
            assert_eq!(refused.as_deref(), Some("console_unsigned"), "{method}");
            continue;
        }
        assert_eq!(refused.as_deref(), Some("scope_missing"), "{method}");
        // With every scope the same message gets further: the scope is what was missing.
        let further = knock_any(&host, &connection, method, &full).await;
        let refused = ["scope_missing", "role_insufficient", "forbidden", "unauthenticated", "unknown_method"];
        // Routines are sensitive: a token decides nothing about them, whatever its scopes.
        let sensitive = action.starts_with("cron.") && further.as_deref() == Some("forbidden");
        assert!(sensitive || further.as_deref().is_none_or(|code| !refused.contains(&code)), "{method}: {further:?}");
    }
}

#[tokio::test]
async fn no_method_is_reached_beyond_the_role() {
    let host = Host::up();
    host.palyra(&["access", "member", "add", "user:otto", "--role", "owner"]).exits(0).done();
    let all = all_actions(&host);
    let ottos = token(&host, "user:otto", "owner", &all);
    // Issued as an owner, and an operator now: the role of the moment counts, whatever the token says.
    host.palyra(&["access", "member", "role", "user:otto", "operator"]).exits(0).done();
    let connection = host.owner().await.0;
    let operators = [
        "tool.list",
        "daemon.status",
        "call.read",
        "call.cancel",
        "tool.execute",
        "policy.explain",
        "access.read",
        "effect.read",
        "vault.get",
        "run.start",
        "run.read",
        "run.cancel",
        "model.invoke",
        "compat.chat.create",
        "compat.models.list",
        "memory.search",
        "memory.retain",
        "memory.forget",
        "cron.create",
        "cron.run",
        "cron.delete",
        "cron.list",
        "console.open",
    ];
    for (method, action) in rights(&host).into_iter().filter(|(method, _)| !is_console(method)) {
        let code = knock_any(&host, &connection, &method, &ottos).await;
        let refused = code.as_deref() == Some("role_insufficient");
        assert_eq!(refused, !operators.contains(&action.as_str()), "{method}: {code:?}");
    }
}

#[tokio::test]
async fn no_method_is_reached_with_a_token_that_does_not_open() {
    let host = Host::up();
    let connection = host.owner().await.0;
    let expect = ["unauthenticated", "too_many_attempts"];
    for method in methods() {
        for bad in ["", "palyra_", "x", "Bearer x"] {
            let code = knock(&connection, &method, Some(bad)).await.unwrap();
            assert!(expect.contains(&code.as_str()), "{method} with `{bad}`: {code}");
        }
    }
    for other in ["palyra.v1.Daemon/Restart", "palyra.v1.Nothing/Here", "grpc.channelz.v1.Channelz/GetServers"] {
        assert_eq!(knock(&connection, other, None).await.as_deref(), Some("unknown_method"), "{other}");
    }
}

/// Things that exist, for requests that name one.
#[derive(Debug, Clone)]
struct World {
    call: String,
    approval: String,
    grant: String,
    token: String,
    entry: String,
    plan: String,
}

type Denied = Pin<Box<dyn Future<Output = Result<(), ApiError>>>>;
type Denial = (&'static str, fn(Connection, World) -> Denied);

macro_rules! denials {
    ($($path:literal: $service:ident.$method:ident($world:ident, $request:expr);)+) => {
        vec![$(($path, |connection: Connection, $world: World| {
            Box::pin(async move {
                let _unused = &$world;
                connection.$service().$method($request).await.map(drop).map_err(ApiError::from)
            })
        }),)+]
    };
}

fn secret() -> SecretRequest {
    SecretRequest { reference: "vault://global/x".into() }
}

fn skill() -> SkillRequest {
    SkillRequest { skill: "acme.x".into(), version: "1.0.0".into() }
}

fn key() -> TrustKeyRequest {
    TrustKeyRequest { key_id: "0123456789abcdef0123456789abcdef".into(), reason: "x".into() }
}

/// For every method a real request, about things that exist.
fn denials() -> Vec<Denial> {
    denials! {
        "palyra.v1.Daemon/Status": daemon.status(w, StatusRequest::default());
        "palyra.v1.Daemon/Stop": daemon.stop(w, StopRequest::default());
        "palyra.v1.Tools/List": tools.list(w, ListToolsRequest {});
        "palyra.v1.Tools/Get": tools.get(w, GetToolRequest { name: "palyra.echo".into() });
        "palyra.v1.Calls/Get": calls.get(w, GetCallRequest { call_id: w.call });
        "palyra.v1.Calls/Follow": calls.follow(w, FollowCallRequest { call_id: w.call, live_output: false });
        "palyra.v1.Calls/Cancel": calls.cancel(w, CancelCallRequest { call_id: w.call });
        "palyra.v1.Calls/Redeem": calls.redeem(w, RedeemRequest { ticket: format!("pt_{:032x}", 7) });
        "palyra.v1.Calls/Report": calls.report(w, ReportRequest { idempotency_key: "none".to_owned(), succeeded: true, message: String::new() });
        "palyra.v1.Calls/List": calls.list(w, ListCallsRequest::default());
        "palyra.v1.Approvals/List": approvals.list(w, ListApprovalsRequest { all: true, ..Default::default() });
        "palyra.v1.Approvals/Get": approvals.get(w, GetApprovalRequest { approval_id: w.approval });
        "palyra.v1.Approvals/Decide": approvals.decide(w, DecideRequest { approval_id: w.approval, allow: true, ..Default::default() });
        "palyra.v1.Approvals/Watch": approvals.watch(w, WatchApprovalsRequest {});
        "palyra.v1.Approvals/TakeBack": approvals.take_back(w, TakeBackRequest { approval_id: w.approval, allow: true });
        "palyra.v1.Grants/List": grants.list(w, ListGrantsRequest::default());
        "palyra.v1.Grants/Revoke": grants.revoke(w, RevokeGrantRequest { grant_id: w.grant });
        "palyra.v1.Runs/Start": runs.start(w, StartRunRequest { prompt: "x".into(), ..Default::default() });
        "palyra.v1.Runs/Get": runs.get(w, GetRunRequest { run: "run_x".into() });
        "palyra.v1.Runs/List": runs.list(w, ListRunsRequest::default());
        "palyra.v1.Runs/Stream": runs.stream(w, StreamRunRequest { run: "run_x".into() });
        "palyra.v1.Runs/Cancel": runs.cancel(w, CancelRunRequest { run: "run_x".into() });
        "palyra.v1.Runs/Resume": runs.resume(w, ResumeRunRequest { run: "run_x".into() });
        "palyra.v1.Models/List": models.list(w, ListModelsRequest {});
        "palyra.v1.Models/Test": models.test(w, TestModelRequest { model: "p/m".into() });
        "palyra.v1.Effects/List": effects.list(w, ListEffectsRequest::default());
        "palyra.v1.Effects/Show": effects.show(w, ShowEffectsRequest { id: w.call });
        "palyra.v1.Effects/Diff": effects.diff(w, DiffEffectsRequest { id: w.call, path: String::new() });
        "palyra.v1.Effects/Undo": effects.undo(w, UndoRequest { id: w.call, dry_run: true });
        "palyra.v1.Grants/Get": grants.get(w, GetGrantRequest { grant_id: w.grant });
        "palyra.v1.Policy/Explain": policy.explain(w, ProposeRequest { tool: "palyra.echo".into(), input: b"{\"text\":\"x\"}".to_vec(), ..Default::default() });
        "palyra.v1.Policy/Show": policy.show(w, ShowRulesRequest::default());
        "palyra.v1.Policy/Reload": policy.reload(w, ReloadPolicyRequest {});
        "palyra.v1.Policy/Compare": policy.compare(w, ComparePolicyRequest { files: vec![] });
        "palyra.v1.Policy/Simulate": policy.simulate(w, SimulatePolicyRequest::default());
        "palyra.v1.Policy/Suggest": policy.suggest(w, SuggestRulesRequest::default());
        "palyra.v1.Journal/Tail": journal.tail(w, TailRequest { first: 1, last: 0, follow: false });
        "palyra.v1.Journal/Get": journal.get(w, GetEventRequest { seq: 1 });
        "palyra.v1.Journal/OfCall": journal.of_call(w, GetCallRequest { call_id: w.call });
        "palyra.v1.Journal/Verify": journal.verify(w, VerifyRequest::default());
        "palyra.v1.Journal/Checkpoint": journal.checkpoint(w, CheckpointRequest {});
        "palyra.v1.Access/WhoAmI": access.who_am_i(w, WhoAmIRequest {});
        "palyra.v1.Access/Rights": access.rights(w, RightsRequest {});
        "palyra.v1.Access/ListTokens": access.list_tokens(w, ListTokensRequest {});
        "palyra.v1.Access/CreateToken": access.create_token(w, CreateTokenRequest { principal: "agent:bot".into(), ..Default::default() });
        "palyra.v1.Access/RotateToken": access.rotate_token(w, RotateTokenRequest { token_id: w.token, overlap_ms: 0, keep_issued: false });
        "palyra.v1.Access/RevokeToken": access.revoke_token(w, RevokeTokenRequest { token_id: w.token, keep_issued: false });
        "palyra.v1.Access/ListMembers": access.list_members(w, ListMembersRequest {});
        "palyra.v1.Access/SetMember": access.set_member(w, SetMemberRequest { principal: "user:new".into(), role: "operator".into() });
        "palyra.v1.Access/RemoveMember": access.remove_member(w, RemoveMemberRequest { principal: "user:stranger".into() });
        "palyra.v1.Access/ListAgents": access.list_agents(w, ListAgentsRequest {});
        "palyra.v1.Access/AddAgent": access.add_agent(w, AddAgentRequest { principal: "agent:new".into(), description: String::new() });
        "palyra.v1.Access/RemoveAgent": access.remove_agent(w, RemoveAgentRequest { principal: "agent:bot".into() });
        "palyra.v1.Access/ListGroups": access.list_groups(w, ListGroupsRequest {});
        "palyra.v1.Access/SetGroup": access.set_group(w, SetGroupRequest { name: "ops".into(), add: vec!["user:stranger".into()], remove: vec![] });
        "palyra.v1.Access/RemoveGroup": access.remove_group(w, RemoveGroupRequest { name: "ops".into() });
        "palyra.v1.Access/ListFeatures": access.list_features(w, ListFeaturesRequest {});
        "palyra.v1.Access/SetFeature": access.set_feature(w, SetFeatureRequest { name: "approval_reasons".into(), on: true });
        "palyra.v1.Vault/Put": vault.put(w, PutSecretRequest { reference: "vault://global/x".into(), value: b"v".to_vec(), ..Default::default() });
        "palyra.v1.Vault/Get": vault.get(w, GetSecretRequest { reference: "vault://global/x".into(), version: 0 });
        "palyra.v1.Vault/List": vault.list(w, ListSecretsRequest::default());
        "palyra.v1.Vault/Delete": vault.delete(w, secret());
        "palyra.v1.Vault/Versions": vault.versions(w, secret());
        "palyra.v1.Vault/EndGrace": vault.end_grace(w, EndGraceRequest { reference: "vault://global/x".into(), version: 1 });
        "palyra.v1.Vault/Bind": vault.bind(w, BindSecretRequest { reference: "vault://global/x".into(), hosts: vec!["a.example".into()], header: "X-Key: {}".into(), ..Default::default() });
        "palyra.v1.Vault/Unbind": vault.unbind(w, UnbindSecretRequest { binding_id: palyra_protocol::BindingId::mint().to_string() });
        "palyra.v1.Vault/Bindings": vault.bindings(w, ListBindingsRequest {});
        "palyra.v1.Vault/Blame": vault.blame(w, secret());
        "palyra.v1.Vault/Status": vault.status(w, VaultStatusRequest {});
        "palyra.v1.Vault/Unlock": vault.unlock(w, UnlockVaultRequest { value: b"p".to_vec() });
        "palyra.v1.Vault/AddSlot": vault.add_slot(w, AddSlotRequest { kind: "keyring".into(), ..Default::default() });
        "palyra.v1.Vault/RemoveSlot": vault.remove_slot(w, RemoveSlotRequest { slot: 0 });
        "palyra.v1.Vault/Rekey": vault.rekey(w, RekeyVaultRequest::default());
        "palyra.v1.Vault/Migrate": vault.migrate(w, MigrateVaultRequest { to: "files".into() });
        "palyra.v1.Vault/Export": vault.export(w, ExportVaultRequest { value: b"p".to_vec() });
        "palyra.v1.Vault/Import": vault.import(w, tokio_stream::iter([ImportPiece { value: b"p".to_vec(), ..Default::default() }]));
        "palyra.v1.Skills/List": skills.list(w, ListSkillsRequest {});
        "palyra.v1.Skills/Info": skills.info(w, skill());
        "palyra.v1.Skills/Examine": skills.examine(w, tokio_stream::iter([SkillChunk::default()]));
        "palyra.v1.Skills/Install": skills.install(w, tokio_stream::iter([SkillChunk::default()]));
        "palyra.v1.Skills/Diff": skills.diff(w, DiffSkillsRequest { skill: "acme.x".into(), from: "1.0.0".into(), to: "2.0.0".into() });
        "palyra.v1.Skills/Check": skills.check(w, CheckSkillsRequest {});
        "palyra.v1.Skills/Quarantine": skills.quarantine(w, QuarantineSkillRequest { skill: "acme.x".into(), version: String::new(), reason: "x".into() });
        "palyra.v1.Skills/Release": skills.release(w, ReleaseSkillRequest { skill: "acme.x".into(), reason: "x".into(), ..Default::default() });
        "palyra.v1.Skills/Use": skills.r#use(w, skill());
        "palyra.v1.Skills/Remove": skills.remove(w, skill());
        "palyra.v1.Skills/Replay": skills.replay(w, ReplaySkillRequest { call_id: w.call });
        "palyra.v1.Skills/TrustList": skills.trust_list(w, TrustListRequest {});
        "palyra.v1.Skills/TrustAdd": skills.trust_add(w, TrustAddRequest { publisher: "acme".into(), public_key: "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a".into(), expires_at_unix_ms: 0 });
        "palyra.v1.Skills/TrustRemove": skills.trust_remove(w, key());
        "palyra.v1.Skills/TrustRevoke": skills.trust_revoke(w, key());
        "palyra.v1.Skills/TrustRotate": skills.trust_rotate(w, TrustRotateRequest::default());
        "palyra.v1.Skills/TrustResetVersions": skills.trust_reset_versions(w, skill());
        "palyra.v1.Skills/TrustReset": skills.trust_reset(w, TrustListRequest {});
        "palyra.v1.Memory/Add": memory.add(w, AddMemoryRequest { text: "x".into(), scope: "workspace".into(), ..Default::default() });
        "palyra.v1.Memory/Show": memory.show(w, MemoryRequest { entry_id: w.entry });
        "palyra.v1.Memory/Forget": memory.forget(w, MemoryRequest { entry_id: w.entry });
        "palyra.v1.Routines/Add": routines.add(w, AddRoutineRequest { plan_json: w.plan });
        "palyra.v1.Routines/List": routines.list(w, ListRoutinesRequest {});
        "palyra.v1.Routines/Show": routines.show(w, RoutineRequest { routine: "nightly".into() });
        "palyra.v1.Routines/Pause": routines.pause(w, PauseRoutineRequest { routine: "nightly".into(), reason: "x".into() });
        "palyra.v1.Routines/Resume": routines.resume(w, RoutineRequest { routine: "nightly".into() });
        "palyra.v1.Routines/Run": routines.run(w, RoutineRequest { routine: "nightly".into() });
        "palyra.v1.Routines/Rehearse": routines.rehearse(w, RoutineRequest { routine: "nightly".into() });
        "palyra.v1.Routines/Remove": routines.remove(w, RoutineRequest { routine: "nightly".into() });
        "palyra.v1.Routines/History": routines.history(w, RoutineHistoryRequest { routine: "nightly".into(), limit: 1 });
        "palyra.v1.Console/CreateCode": console.create_code(w, CreateConsoleCodeRequest {});
        "palyra.v1.Console/ListSessions": console.list_sessions(w, ListConsoleSessionsRequest {});
        "palyra.v1.Console/ListPasskeys": console.list_passkeys(w, ListPasskeysRequest {});
        "palyra.v1.Console/RemovePasskey": console.remove_passkey(w, RemovePasskeyRequest { passkey: "x".to_owned() });
        "palyra.v1.Console/EndSession": console.end_session(w, EndConsoleSessionRequest { session: palyra_protocol::ConsoleId::mint().to_string() });
        "palyra.v1.Devices/List": devices.list(w, ListDevicesRequest {});
        "palyra.v1.Devices/Get": devices.get(w, GetDeviceRequest { device: "laptop".into() });
        "palyra.v1.Devices/Rename": devices.rename(w, RenameDeviceRequest { device: "laptop".into(), name: "x".into() });
        "palyra.v1.Devices/SetRole": devices.set_role(w, SetDeviceRoleRequest { device: "laptop".into(), role: "owner".into() });
        "palyra.v1.Devices/Rotate": devices.rotate(w, RotateDeviceRequest { device: "laptop".into() });
        "palyra.v1.Devices/Revoke": devices.revoke(w, RevokeDeviceRequest { device: "laptop".into(), reason: String::new() });
        "palyra.v1.Devices/Remove": devices.remove(w, RemoveDeviceRequest { device: "laptop".into() });
        "palyra.v1.Devices/Own": devices.own(w, OwnDeviceRequest {});
        "palyra.v1.Devices/Renew": devices.renew(w, RenewDeviceRequest::default());
        "palyra.v1.Devices/AddBrowser": devices.add_browser(w, AddBrowserRequest::default());
        "palyra.v1.Devices/Authority": devices.authority(w, AuthorityRequest {});
        "palyra.v1.Devices/RotateAuthority": devices.rotate_authority(w, RotateAuthorityRequest::default());
        "palyra.v1.Devices/Exposure": devices.exposure(w, ExposureRequest {});
        "palyra.v1.Devices/CreateCode": devices.create_code(w, CreateCodeRequest::default());
        "palyra.v1.Devices/WithdrawCode": devices.withdraw_code(w, WithdrawCodeRequest { code_id: "code_0123456789abcdef".into() });
    }
}

/// For every route a real request, about things that exist, and the code of its refusal. Calls of others are hidden.
fn http_denials(world: &World) -> Vec<(&'static str, String, String, &'static str)> {
    let call = format!("/v1/calls/{}", world.call);
    let invoke = json!({ "tool": "palyra.echo", "input": { "text": "x" } }).to_string();
    let decide = json!({ "decision": "allow" }).to_string();
    let nothing = String::new;
    vec![
        ("GET /v1/tools", "/v1/tools".to_owned(), nothing(), "forbidden"),
        ("POST /v1/tools/invoke", "/v1/tools/invoke".to_owned(), invoke, "policy_denied"),
        ("GET /v1/calls/{call_id}", call.clone(), nothing(), "not_found"),
        ("GET /v1/calls/{call_id}/events", format!("{call}/events"), nothing(), "not_found"),
        ("DELETE /v1/calls/{call_id}", call, nothing(), "not_found"),
        ("GET /v1/approvals", "/v1/approvals".to_owned(), nothing(), "forbidden"),
        ("GET /v1/approvals/{approval_id}", format!("/v1/approvals/{}", world.approval), nothing(), "forbidden"),
        (
            "POST /v1/approvals/{approval_id}/decide",
            format!("/v1/approvals/{}/decide", world.approval),
            decide,
            "forbidden",
        ),
    ]
}

const NOTHING_FOR_STRANGERS: &str = r#"
@id("nothing_for_strangers")
@reason("Strangers get nothing.")
forbid (principal == User::"stranger", action, resource);
"#;

#[tokio::test]
async fn no_method_is_reached_against_policy() {
    let mut host = Host::idle();
    fs::create_dir(host.path("policies")).unwrap();
    fs::write(host.path("policies").join("strangers.cedar"), NOTHING_FOR_STRANGERS).unwrap();
    host.configure(&format!("policy_dir = {:?}\n", host.path("policies")));
    host.start();
    for args in [
        &["access", "member", "add", "user:stranger", "--role", "owner"][..],
        &["access", "agent", "add", "agent:bot"],
        &["access", "group", "add", "ops"],
    ] {
        host.palyra(args).exits(0).done();
    }
    // A member with the highest role and every scope, whom a rule denies everything.
    let all = all_actions(&host);
    let strangers = token(&host, "user:stranger", "owner", &all);
    let ls = json!({ "argv": ["ls"] });
    let (answered, approval) = host.ask("palyra.process.run", &ls, &["--session", "s"]);
    host.decide(&approval, "allow", &["--scope", "session"]).exits(0).done();
    host.palyra(&["calls", "follow", &answered]).exits(0).done();
    let grants = host.palyra(&["grants", "list"]).good();
    let (call, approval) = host.ask("palyra.process.run", &json!({ "argv": ["ls", "-l"] }), &[]);
    let tokens = host.palyra(&["access", "token", "list"]).good();
    let entry = host.palyra(&["memory", "add", "a note", "--scope", "workspace"]).good();
    let nightly = ["--schedule", "30 2 * * *", "--agent", "agent:bot", "--call", "palyra.echo"];
    let input = ["--input", r#"{"text":"x"}"#];
    host.palyra(&[&["routines", "add", "nightly"], &nightly[..], &input].concat()).exits(0).done();
    let world = World {
        call,
        approval,
        grant: text(&grants, "/0/grant_id").to_owned(),
        token: text(&tokens, "/0/token_id").to_owned(),
        entry: text(&entry, "/entry_id").to_owned(),
        plan: json!({
            "name": "hourly", "schedule": { "pattern": "0 * * * *", "zone": "UTC" }, "principal": "agent:bot",
            "action": { "call": { "tool": "palyra.echo", "input": { "text": "x" } } },
        })
        .to_string(),
    };
    let journal = |host: &Host| host.palyra(&["status"]).good()["journal"]["size"].as_u64().unwrap();
    let before = journal(&host);

    let mut denied: BTreeSet<String> = BTreeSet::new();
    for (method, request) in denials() {
        let connection = host.owner().await.0.with_token(&strangers).unwrap();
        let error = request(connection, world.clone()).await.expect_err(method);
        // A call or a run that is not the caller's to know about looks like one that does not exist.
        let hidden = [
            "palyra.v1.Calls/Get",
            "palyra.v1.Calls/Follow",
            "palyra.v1.Calls/Cancel",
            "palyra.v1.Runs/Cancel",
            "palyra.v1.Runs/Resume",
            "palyra.v1.Skills/Replay",
            "palyra.v1.Memory/Show",
            "palyra.v1.Memory/Forget",
        ];
        if hidden.contains(&method) {
            assert_eq!(error.code, "not_found", "{method}: {error:?}");
        } else if let Some(code) = [("Redeem", "ticket_void"), ("Report", "not_found")]
            .iter()
            .find_map(|(name, code)| method.ends_with(&format!("Calls/{name}")).then_some(*code))
        {
            // The ticket is the authority, and a report is about a call of the caller's own.
            assert_eq!(error.code, code, "{method}: {error:?}");
        } else {
            assert_eq!(error.code, "forbidden", "{method}: {error:?}");
            assert!(error.message.contains("nothing_for_strangers"), "{method}: {error:?}");
        }
        denied.insert(method.to_owned());
    }
    // Memory is shown entry by entry: to a stranger, none.
    for args in [&["memory", "list"][..], &["memory", "search", "note"]] {
        assert_eq!(host.palyra(&[&["--token", strangers.as_str()], args].concat()).good(), json!([]), "{args:?}");
    }
    denied.extend(["palyra.v1.Memory/List", "palyra.v1.Memory/Search"].map(str::to_owned));
    // A call's denial is its outcome, and recorded like any other.
    let call = host.palyra(&["--token", &strangers, "call", "palyra.echo", "--input", "{\"text\":\"x\"}"]);
    call.fails(3, "policy_denied");
    denied.insert("palyra.v1.Calls/Propose".to_owned());
    for (route, path, body, code) in http_denials(&world) {
        let (verb, _) = route.split_once(' ').unwrap();
        let json = [("content-type", "application/json")];
        let problem = host.http().with(&strangers).send(verb, &path, &json, Some(body.as_bytes())).json();
        assert_eq!(text(&problem, "/code"), code, "{route}: {problem}");
        denied.insert(route.to_owned());
    }
    let all: BTreeSet<String> = methods().union(&routes(&host)).cloned().collect();
    let missing: Vec<_> = all.difference(&denied).cloned().collect();
    assert!(missing.is_empty(), "methods without a denial test; add them to `denials`: {missing:?}");

    let changed = ["access.changed", "approval.resolved", "grant.revoked", "devices.changed", "skill.trust"];
    let tail = host.palyra(&["journal", "tail", "-n", &(journal(&host) - before).to_string()]).exits(0).json_lines();
    for event in tail {
        assert!(!changed.contains(&text(&event, "/kind")), "nothing of it had an effect: {event}");
    }
}

//! The journal through its door: what is recorded stays, what is refused leaves no trace, and every change is noticed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod history;

use palyra_journal::{
    Against, ApprovalFilter, JournalError, JournalStore, KeyHolder, NotByGrant, NotOpened, Opening, Page, Rebind,
    Recorded, Resolve, Verdict, verify,
};
use palyra_protocol::access::{Credential, ShownToken};
use palyra_protocol::{
    ApprovalId, ApprovalRecord, ApprovalResolution, ApprovalScope, ApprovalState, Authority, CallId, CallRecord,
    CallState, DaemonKey, DecisionKind, Digest, EgressProtocol, EgressRecord, Facets, GrantId, GrantMatcher,
    GrantRecord, JournalEvent, MatchKey, Principal, Problem, Timestamp, TokenId, ToolDecision, WorkspaceRole,
};
use palyra_testkit::SetClock;
use palyra_testkit::records::{self, approval as question, policy_hash};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::Arc;

struct Fixture {
    dir: tempfile::TempDir,
    clock: Arc<SetClock>,
    store: JournalStore,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = SetClock::at(1_000);
        let store = JournalStore::open(&dir.path().join("journal.db"), clock.clone()).unwrap();
        Self { dir, clock, store }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("journal.db")
    }

    fn reopen(self) -> Self {
        let Self { dir, clock, store } = self;
        drop(store);
        let store = JournalStore::open(&dir.path().join("journal.db"), clock.clone()).unwrap();
        Self { dir, clock, store }
    }

    /// The database without its triggers, as somebody with the file and a tool would have it.
    fn tampered(&self) -> Connection {
        let connection = Connection::open(self.path()).unwrap();
        connection
            .execute_batch("DROP TRIGGER events_are_never_updated; DROP TRIGGER events_are_never_deleted;")
            .unwrap();
        connection
    }
}

fn call(text: &str, key: Option<&str>) -> CallRecord {
    let key = key.map(|key| key.parse().unwrap());
    Arc::unwrap_or_clone(records::call(records::origin(), serde_json::json!({ "text": text }), key))
}

fn opening(call: &CallRecord, run_limit: u64, kind: DecisionKind) -> Opening {
    Opening { call: Arc::new(call.clone()), decision: Arc::new(records::decision(call, kind)), run_limit }
}

async fn start(store: &JournalStore, call: &CallRecord, run_limit: u64) -> Result<Recorded<&'static str>, NotOpened> {
    store.start(opening(call, run_limit, DecisionKind::Allow), "permit").await.unwrap()
}

async fn start_by(
    store: &JournalStore,
    call: &CallRecord,
    grant: &GrantId,
) -> Result<Result<Recorded<&'static str>, NotByGrant>, JournalError> {
    store.start_by_grant(opening(call, 100, DecisionKind::NeedsApproval), grant.clone(), "permit").await
}

async fn ask_about(store: &JournalStore, call: &CallRecord, approval: &ApprovalRecord) {
    let opening = opening(call, 100, DecisionKind::NeedsApproval);
    store.ask(opening, Arc::new(approval.clone())).await.unwrap().unwrap();
}

fn answer(approval: &ApprovalRecord, state: ApprovalState) -> Resolve {
    Resolve {
        approval_id: approval.approval_id.clone(),
        state,
        resolution: ApprovalResolution {
            by: Principal::local_owner(),
            token: None,
            at: Timestamp::from_unix_ms(2_000),
            scope: ApprovalScope::Once,
            matcher: GrantMatcher::ExactCall,
            reason: None,
            grant: None,
            signature: None,
        },
        grant: None,
        problem: None,
    }
}

fn grant(call: &CallRecord, approval: &ApprovalRecord, expires_at: Option<u64>) -> (GrantRecord, MatchKey) {
    let record = GrantRecord {
        effect: Default::default(),
        grant_id: GrantId::mint(),
        approval_id: approval.approval_id.clone(),
        subject_id: approval.subject_id.clone(),
        tool: call.tool.clone(),
        principal: call.origin.principal.clone(),
        session: expires_at.is_none().then(|| call.origin.session.clone()),
        matcher: GrantMatcher::Tool,
        policy_hash: policy_hash(),
        granted_by: Principal::local_owner(),
        created_at: Timestamp::from_unix_ms(2_000),
        expires_at: expires_at.map(Timestamp::from_unix_ms),
        revoked_at: None,
        uses: 0,
        workspace: Some(call.workspace_root.clone()),
        shown: None,
        match_key: None,
        void: None,
    };
    let key =
        MatchKey::of(&GrantMatcher::Tool, &call.workspace_root, &call.tool, &call.digest, &Facets::default()).unwrap();
    (record, key)
}

async fn note(store: &JournalStore) {
    store.note(&JournalEvent::DaemonStopped {}).await.unwrap();
}

fn verdict(path: &Path) -> Verdict {
    verify(path, None, &mut |_| {}).unwrap()
}

#[tokio::test]
async fn recorded_means_durable() {
    let fixture = Fixture::new();
    let record = call("a", None);
    assert_eq!(*start(&fixture.store, &record, 10).await.unwrap().get(), "permit");
    // A second connection sees it before the permit can be used: it is committed.
    let kinds: Vec<String> = Connection::open(fixture.path())
        .unwrap()
        .prepare("SELECT kind FROM events ORDER BY seq")
        .unwrap()
        .query_map([], |r| r.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(kinds, ["tool.proposed", "tool.decided", "tool.started"]);
    let again = fixture.reopen();
    assert_eq!(again.store.call(&record.call_id).await.unwrap().state, CallState::Executing);
    assert_eq!(again.store.open_calls().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_running_calls_connections_stand_between_its_start_and_its_end() {
    let fixture = Fixture::new();
    let record = call("a", None);
    start(&fixture.store, &record, 10).await.unwrap();
    let connection = |host: &str| EgressRecord {
        host: Some(host.to_owned()),
        ..EgressRecord::new(EgressProtocol::HttpConnect, Timestamp::from_unix_ms(1))
    };
    fixture.store.record_egress(&record.call_id, &[connection("a.test"), connection("b.test")]).await.unwrap();
    let again = fixture.reopen();
    let events = again.store.events_of_call(&record.call_id).await.unwrap();
    let hosts: Vec<_> = events
        .iter()
        .filter_map(|event| match serde_json::from_str(&event.body).unwrap() {
            JournalEvent::EgressConnection { connection, .. } => connection.host,
            _ => None,
        })
        .collect();
    assert_eq!(hosts, ["a.test", "b.test"]);
    assert_eq!(events.last().unwrap().kind, "egress.connection");
}

#[tokio::test]
async fn a_key_belongs_to_one_call_of_one_principal() {
    let fixture = Fixture::new();
    let first = call("a", Some("k"));
    start(&fixture.store, &first, 10).await.unwrap();
    let (again, another) = (call("a", Some("k")), call("b", Some("k")));
    let held = |holder| Err(NotOpened::KeyHeld(holder));
    let opened = start(&fixture.store, &again, 10).await.map(drop);
    assert_eq!(opened, held(KeyHolder::SameCall(first.call_id.clone())));
    let opened = start(&fixture.store, &another, 10).await.map(drop);
    assert_eq!(opened, held(KeyHolder::OtherCall(first.call_id.clone())));
    let denied = fixture.store.deny(opening(&another, 10, DecisionKind::Deny), Problem::plain("no", "no")).await;
    assert_eq!(denied.unwrap(), Err(KeyHolder::OtherCall(first.call_id)));
    assert!(fixture.store.call(&again.call_id).await.is_err(), "a duplicate leaves no trace");
    let mut other = call("c", Some("k"));
    other.origin.principal = "agent:other".parse().unwrap();
    start(&fixture.store, &other, 10).await.unwrap();
}

#[tokio::test]
async fn budget_holds() {
    let fixture = Fixture::new();
    let store = Arc::new(fixture.store);
    let tasks: Vec<_> = (0..40)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let record = call(&n.to_string(), None);
                start(&store, &record, 7).await
            })
        })
        .collect();
    let mut started = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => started += 1,
            Err(NotOpened::OverBudget(outcome)) => {
                assert_eq!(store.call(&outcome.call_id).await.unwrap().outcome.as_ref(), Some(&*outcome));
                assert_eq!(outcome.problem.unwrap().code, "budget_exhausted");
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(started, 7);
    drop(store);
    let store = JournalStore::open(&fixture.dir.path().join("journal.db"), fixture.clock).unwrap();
    let opened = start(&store, &call("x", None), 7).await;
    assert!(matches!(opened, Err(NotOpened::OverBudget(_))), "the budget survives a restart");
}

#[tokio::test]
async fn resolved_once() {
    let fixture = Fixture::new();
    let record = call("a", None);
    let approval = question(&record);
    ask_about(&fixture.store, &record, &approval).await;
    let (yes, no) = tokio::join!(
        fixture.store.resolve_approval(answer(&approval, ApprovalState::Allowed)),
        fixture.store.resolve_approval(answer(&approval, ApprovalState::Denied)),
    );
    assert_eq!(yes.unwrap().state, ApprovalState::Allowed);
    assert!(matches!(no, Err(JournalError::AlreadyResolved { state: ApprovalState::Allowed })));
    assert_eq!(fixture.store.call(&record.call_id).await.unwrap().state, CallState::Approved);
    let started = fixture.store.start_approved(&approval, ()).await;
    assert!(started.is_ok());
    let twice = fixture.store.start_approved(&approval, ()).await;
    assert!(matches!(twice, Err(JournalError::CallMoved { state: CallState::Executing })), "one answer, one start");
}

#[tokio::test]
async fn people_are_counted_once() {
    let fixture = Fixture::new();
    let record = call("a", None);
    let approval = ApprovalRecord { people: 2, ..question(&record) };
    ask_about(&fixture.store, &record, &approval).await;
    let yes = |who: &str| {
        let mut resolve = answer(&approval, ApprovalState::Allowed);
        resolve.resolution.by = who.parse().unwrap();
        resolve
    };
    let first = fixture.store.resolve_approval(yes("user:ada")).await.unwrap();
    assert_eq!((first.state, first.given.len()), (ApprovalState::Pending, 1));
    assert_eq!(fixture.store.call(&record.call_id).await.unwrap().state, CallState::AwaitingApproval);
    // What was said survives a crash, and the same person does not count twice.
    let fixture = fixture.reopen();
    let again = fixture.store.resolve_approval(yes("user:ada")).await;
    assert!(matches!(again, Err(JournalError::AlreadyGiven { missing: 1, .. })), "{again:?}");
    let (one, other) = tokio::join!(
        fixture.store.resolve_approval(yes("user:grace")),
        fixture.store.resolve_approval(yes("user:linus")),
    );
    assert_eq!(one.unwrap().state, ApprovalState::Allowed);
    assert!(matches!(other, Err(JournalError::AlreadyResolved { .. })));
    assert_eq!(fixture.store.call(&record.call_id).await.unwrap().state, CallState::Approved);
    let kinds: Vec<_> = fixture.store.events(1, 10).await.unwrap().into_iter().map(|event| event.kind).collect();
    assert!(kinds.ends_with(&["approval.given".to_owned(), "approval.resolved".to_owned()]), "{kinds:?}");
}

/// Whoever issued a token may be the one who speaks by it.
#[tokio::test]
async fn two_tokens_of_one_hand_are_not_two_people() {
    let fixture = Fixture::new();
    let mut record = call("a", None);
    record.origin.proposed_by = "user:otto".parse().unwrap();
    let approval = ApprovalRecord { people: 3, ..question(&record) };
    ask_about(&fixture.store, &record, &approval).await;
    let yes = |who: &str, issuers: &[&str]| {
        let mut resolve = answer(&approval, ApprovalState::Allowed);
        resolve.resolution.by = who.parse().unwrap();
        resolve.resolution.token = (!issuers.is_empty()).then(|| ShownToken {
            credential: Credential::Token(TokenId::mint()),
            role: WorkspaceRole::Admin,
            issuers: issuers.iter().map(|i| i.parse().unwrap()).collect(),
        });
        fixture.store.resolve_approval(resolve)
    };
    let by_proposer = yes("user:ada", &["user:otto"]).await;
    assert!(matches!(by_proposer, Err(JournalError::SameHand { missing: 3, .. })), "{by_proposer:?}");
    let given = yes("user:ada", &["user:ada", "user:local"]).await.unwrap().given;
    assert_eq!(given[0].token.as_ref().unwrap().issuers.len(), 2, "kept with the answer");
    let issuer = yes("user:local", &[]).await;
    assert!(matches!(issuer, Err(JournalError::SameHand { .. })), "who issued the token of an earlier yes: {issuer:?}");
    let issued = yes("user:grace", &["user:ada"]).await;
    assert!(matches!(issued, Err(JournalError::SameHand { .. })), "whose token an earlier yes issued: {issued:?}");
    // The same owner let both in; that alone makes them nobody else.
    assert_eq!(yes("user:grace", &["user:local"]).await.unwrap().given.len(), 2);
    assert_eq!(yes("user:linus", &["user:local"]).await.unwrap().state, ApprovalState::Allowed);
    assert!(matches!(verdict(&fixture.path()), Verdict::Intact(_)));
}

#[tokio::test]
async fn a_question_is_bound_to_other_rules_only_while_it_waits() {
    let fixture = Fixture::new();
    let record = call("a", None);
    let approval = question(&record);
    ask_about(&fixture.store, &record, &approval).await;
    let rebind = || Rebind { approval_id: approval.approval_id.clone(), policy_hash: Digest::of(b"other rules") };
    let bound = fixture.store.rebind_approval(rebind()).await.unwrap();
    assert_eq!((bound.state, bound.policy_hash), (ApprovalState::Pending, Digest::of(b"other rules")));
    let fixture = fixture.reopen();
    assert_eq!(fixture.store.approval(&approval.approval_id).await.unwrap().policy_hash, Digest::of(b"other rules"));
    fixture.store.resolve_approval(answer(&approval, ApprovalState::Allowed)).await.unwrap();
    let late = fixture.store.rebind_approval(rebind()).await;
    assert!(matches!(late, Err(JournalError::AlreadyResolved { .. })), "{late:?}");
    let kinds: Vec<_> = fixture.store.events(1, 10).await.unwrap().into_iter().map(|event| event.kind).collect();
    assert!(kinds.ends_with(&["approval.rebound".to_owned(), "approval.resolved".to_owned()]), "{kinds:?}");
    assert!(matches!(verdict(&fixture.path()), Verdict::Intact(_)));
    fixture
        .tampered()
        .execute_batch("UPDATE approvals SET record = replace(record, '\"policy_hash\":\"', '\"policy_hash\":\"0')")
        .unwrap();
    assert!(matches!(verdict(&fixture.path()), Verdict::Unfounded(_)), "what it is bound to follows from the events");
}

#[tokio::test]
async fn a_denied_question_ends_its_call_and_survives_a_restart() {
    let fixture = Fixture::new();
    let record = call("a", None);
    let approval = question(&record);
    ask_about(&fixture.store, &record, &approval).await;
    let fixture = fixture.reopen();
    let page = Page { records: 10, bytes: 1 << 20 };
    let waiting = fixture.store.approvals(ApprovalFilter::Pending, None, page).await.unwrap().records;
    assert_eq!(waiting, std::slice::from_ref(&approval));
    let problem = Problem::plain("approval_denied", "no");
    let resolve = Resolve { problem: Some(problem.clone()), ..answer(&approval, ApprovalState::Denied) };
    fixture.store.resolve_approval(resolve).await.unwrap();
    assert!(fixture.store.approvals(ApprovalFilter::Pending, None, page).await.unwrap().records.is_empty());
    let outcome = fixture.store.call(&record.call_id).await.unwrap().outcome.unwrap();
    assert_eq!((outcome.state, outcome.problem), (CallState::Denied, Some(problem)));
}

#[tokio::test]
async fn grants_are_used_counted_expired_and_revoked() {
    let fixture = Fixture::new();
    let record = call("a", None);
    let approval = question(&record);
    ask_about(&fixture.store, &record, &approval).await;
    let (granted, key) = grant(&record, &approval, Some(5_000));
    let resolve = Resolve { grant: Some((granted.clone(), key)), ..answer(&approval, ApprovalState::Allowed) };
    fixture.store.resolve_approval(resolve).await.unwrap();

    let next = call("b", None);
    let keys = MatchKey::candidates(&next.workspace_root, &next.tool, &next.digest, &next.facets);
    let find = |at| {
        let (origin, keys) = (next.origin.clone(), keys.clone());
        let (store, clock) = (&fixture.store, &fixture.clock);
        async move {
            clock.set(at);
            store.live_grant(&origin.principal, &origin.session, policy_hash(), keys).await.unwrap()
        }
    };
    assert_eq!(find(5_000).await, None, "it ends on the dot");
    assert_eq!(find(4_999).await, Some(granted.grant_id.clone()));
    let by_grant = |text: &str| {
        let (call, grant) = (call(text, None), granted.grant_id.clone());
        let store = &fixture.store;
        async move { start_by(store, &call, &grant).await.unwrap().map(drop) }
    };
    assert_eq!(by_grant("b").await, Ok(()));
    assert_eq!(fixture.store.grants(None, Page { records: 10, bytes: 1 << 20 }).await.unwrap().records[0].uses, 1);

    fixture.clock.set(5_000);
    let late = by_grant("c").await;
    assert_eq!(late, Err(NotByGrant::GrantGone), "expiry is checked again in the transaction that uses it");
    fixture.clock.set(4_999);
    fixture.store.revoke_grant(&granted.grant_id, &Principal::local_owner()).await.unwrap();
    assert_eq!(find(4_999).await, None);
    assert_eq!(by_grant("d").await, Err(NotByGrant::GrantGone));
    let twice = fixture.store.revoke_grant(&granted.grant_id, &Principal::local_owner()).await;
    assert!(matches!(twice, Err(JournalError::AlreadyRevoked)));
}

/// Whoever sets the clock back revives nothing: the newest event's time is the earliest that there is.
#[tokio::test]
async fn a_clock_that_is_set_back_revives_no_grant() {
    let fixture = Fixture::new();
    let record = call("a", None);
    let approval = question(&record);
    ask_about(&fixture.store, &record, &approval).await;
    let (granted, key) = grant(&record, &approval, Some(5_000));
    let resolve = Resolve { grant: Some((granted.clone(), key)), ..answer(&approval, ApprovalState::Allowed) };
    fixture.store.resolve_approval(resolve).await.unwrap();
    fixture.clock.set(5_000);
    note(&fixture.store).await;
    fixture.clock.set(2_000);
    let mut fixture = fixture;
    for restarted in [false, true] {
        if restarted {
            fixture = fixture.reopen();
        }
        let keys = MatchKey::candidates(&record.workspace_root, &record.tool, &record.digest, &record.facets);
        let (principal, session) = (&record.origin.principal, &record.origin.session);
        let found = fixture.store.live_grant(principal, session, policy_hash(), keys).await.unwrap();
        assert_eq!(found, None, "restarted: {restarted}");
        let used = start_by(&fixture.store, &call("b", None), &granted.grant_id).await.unwrap().map(drop);
        assert_eq!(used, Err(NotByGrant::GrantGone), "restarted: {restarted}");
        note(&fixture.store).await;
    }
    let times: Vec<u64> = fixture.store.events(1, 100).await.unwrap().iter().map(|event| event.at.unix_ms()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(fixture.store.clock().now(), Timestamp::from_unix_ms(5_000));
}

#[tokio::test]
async fn a_grant_is_nobody_elses() {
    let fixture = Fixture::new();
    let record = call("a", None);
    let approval = question(&record);
    ask_about(&fixture.store, &record, &approval).await;
    let (granted, key) = grant(&record, &approval, None);
    let resolve = Resolve { grant: Some((granted.clone(), key)), ..answer(&approval, ApprovalState::Allowed) };
    fixture.store.resolve_approval(resolve).await.unwrap();
    let keys = || MatchKey::candidates(&record.workspace_root, &record.tool, &record.digest, &record.facets);
    for (principal, session, hash, found) in [
        ("agent:demo", "s", policy_hash(), true),
        ("agent:other", "s", policy_hash(), false),
        ("agent:demo", "t", policy_hash(), false),
        ("agent:demo", "s", Digest::of(b"another policy"), false),
    ] {
        let principal = principal.parse().unwrap();
        let session = session.parse().unwrap();
        let grant = fixture.store.live_grant(&principal, &session, hash, keys()).await.unwrap();
        assert_eq!(grant.is_some(), found, "{principal} {session}");
    }
}

#[tokio::test]
async fn events_cannot_be_changed_through_sql() {
    let fixture = Fixture::new();
    note(&fixture.store).await;
    let connection = Connection::open(fixture.path()).unwrap();
    for statement in ["UPDATE events SET body = '{}'", "DELETE FROM events", "REPLACE INTO events SELECT * FROM events"]
    {
        let refused = connection.execute_batch(statement);
        assert!(refused.is_err(), "{statement}");
    }
}

#[tokio::test]
async fn verify_names_the_first_event_that_does_not_fit() {
    for (damage, seq) in [
        ("UPDATE events SET body = replace(body, 'stopped', 'stoppeD') WHERE seq = 4", 4),
        ("UPDATE events SET at = at + 1 WHERE seq = 2", 2),
        ("UPDATE events SET kind = 'x' WHERE seq = 9", 9),
        ("DELETE FROM events WHERE seq = 5", 5),
        ("UPDATE events SET hash = zeroblob(32) WHERE seq = 3", 3),
        ("UPDATE events SET prev = zeroblob(32) WHERE seq = 6", 6),
        ("UPDATE events SET hash = zeroblob(31) WHERE seq = 7", 7),
        ("UPDATE events SET seq = seq + 100 WHERE seq = 10", 10),
    ] {
        let fixture = Fixture::new();
        for _ in 0..10 {
            note(&fixture.store).await;
        }
        assert!(matches!(verdict(&fixture.path()), Verdict::Intact(head) if head.size == 10));
        fixture.tampered().execute_batch(damage).unwrap();
        let Verdict::Broken(fault) = verdict(&fixture.path()) else { panic!("unnoticed: {damage}") };
        assert_eq!(fault.seq(), seq, "{damage}: {fault}");
    }
}

#[tokio::test]
async fn checkpoints_show_truncation_rewriting_and_other_journals() {
    let key = DaemonKey::generate().unwrap();
    let fixture = Fixture::new();
    for _ in 0..5 {
        note(&fixture.store).await;
    }
    let checkpoint = fixture.store.checkpoint(&key);
    note(&fixture.store).await;
    let against = |checkpoint, key: &DaemonKey| {
        let against = Against { checkpoint, key: key.public() };
        verify(&fixture.path(), Some(&against), &mut |_| {}).unwrap()
    };
    assert!(matches!(against(checkpoint.clone(), &key), Verdict::Intact(head) if head.size == 6));
    let stranger = DaemonKey::generate().unwrap();
    assert!(matches!(against(checkpoint.clone(), &stranger), Verdict::Contradicts(_)));
    let other = Fixture::new();
    assert!(matches!(against(other.store.checkpoint(&key), &key), Verdict::Contradicts(_)));

    let tampered = fixture.tampered();
    tampered.execute_batch("DELETE FROM events WHERE seq > 3").unwrap();
    let Verdict::Unfounded(fault) = verdict(&fixture.path()) else { panic!("unnoticed triggers") };
    assert!(fault.to_string().contains("events_are_never_deleted, events_are_never_updated"), "{fault}");
    drop(JournalStore::open(&fixture.path(), fixture.clock.clone()).unwrap());
    assert!(
        matches!(verdict(&fixture.path()), Verdict::Intact(head) if head.size == 3),
        "the chain alone does not show it"
    );
    let Verdict::Contradicts(fault) = against(checkpoint.clone(), &key) else { panic!("truncation unnoticed") };
    assert!(fault.to_string().contains("has 3 events"), "{fault}");

    // Grown again beyond the old length, with a chain that fits: only the checkpoint tells.
    fixture.clock.set(9_999);
    let grown = JournalStore::open(&fixture.path(), fixture.clock.clone()).unwrap();
    for _ in 0..4 {
        note(&grown).await;
    }
    assert!(matches!(verdict(&fixture.path()), Verdict::Intact(head) if head.size == 7));
    let Verdict::Contradicts(fault) = against(checkpoint, &key) else { panic!("rewriting unnoticed") };
    assert!(fault.to_string().contains("rewritten"), "{fault}");
}

/// Triggers that somebody removed, changed or brought along are noticed, and a start makes them what they were.
#[tokio::test]
async fn the_triggers_are_those_that_the_journal_was_made_with() {
    for (damage, name) in [
        ("DROP TRIGGER events_are_never_replaced", "events_are_never_replaced"),
        (
            "DROP TRIGGER events_are_never_updated;
             CREATE TRIGGER events_are_never_updated BEFORE UPDATE ON events BEGIN SELECT 1; END",
            "events_are_never_updated",
        ),
        ("CREATE TRIGGER \"it's \"\"mine\" AFTER INSERT ON events BEGIN DELETE FROM grants; END", "it's \"mine"),
    ] {
        let fixture = Fixture::new();
        note(&fixture.store).await;
        Connection::open(fixture.path()).unwrap().execute_batch(damage).unwrap();
        let Verdict::Unfounded(fault) = verdict(&fixture.path()) else { panic!("unnoticed: {damage}") };
        assert!(fault.to_string().ends_with(&format!(": {name}")), "{fault}");
        let fixture = fixture.reopen();
        assert_eq!(fixture.store.mended(), [name]);
        assert!(matches!(verdict(&fixture.path()), Verdict::Intact(_)));
        assert!(fixture.reopen().store.mended().is_empty());
    }
}

#[tokio::test]
async fn a_damaged_end_is_not_built_upon() {
    let fixture = Fixture::new();
    for _ in 0..3 {
        note(&fixture.store).await;
    }
    fixture.tampered().execute_batch("UPDATE events SET body = '{}' WHERE seq = 3").unwrap();
    let Fixture { dir, clock, store } = fixture;
    drop(store);
    let refused = JournalStore::open(&dir.path().join("journal.db"), clock).unwrap_err();
    assert!(matches!(&refused, JournalError::Damaged(fault) if fault.seq() == 3), "{refused}");
}

#[tokio::test]
async fn a_failed_job_leaves_its_group_untouched() {
    let fixture = Fixture::new();
    let store = Arc::new(fixture.store);
    let mut tasks = Vec::new();
    for n in 0..50 {
        let store = Arc::clone(&store);
        tasks.push(tokio::spawn(async move {
            if n % 2 == 0 {
                store.note(&JournalEvent::DaemonStopped {}).await.map(drop)
            } else {
                let problem = Problem::plain("x", "x");
                store.end_call(&CallId::mint(), CallState::Executing, CallState::Failed, problem).await.map(drop)
            }
        }));
    }
    let mut recorded = 0;
    for task in tasks {
        recorded += u64::from(task.await.unwrap().is_ok());
    }
    assert_eq!(recorded, 25);
    drop(store);
    assert!(matches!(verdict(&fixture.dir.path().join("journal.db")), Verdict::Intact(head) if head.size == 25));
}

#[test]
fn a_file_that_is_no_journal_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.db");
    std::fs::write(&path, b"this is not a database, and long enough to be looked at as one....................")
        .unwrap();
    let refused = JournalStore::open(&path, SetClock::at(0)).unwrap_err();
    assert!(matches!(refused, JournalError::Database(_)), "{refused}");
}

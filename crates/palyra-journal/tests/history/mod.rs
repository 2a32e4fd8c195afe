//! The tables are held against the events: what somebody writes into a table alone is found, and never acted upon.

mod subjects;

use super::*;
use palyra_journal::{CallView, Finish, HistoryFault, Page, Refused, RefusedCall};
use palyra_protocol::{FinishedCall, GrantMatcher, JournalId, ToolAttestation};

fn attestation(call: &CallRecord) -> ToolAttestation {
    records::statement(call).sign(&DaemonKey::generate().unwrap()).unwrap()
}

fn finished(call: &CallRecord) -> FinishedCall {
    FinishedCall {
        call_id: call.call_id.clone(),
        state: CallState::Succeeded,
        output: serde_json::Value::Null,
        problem: None,
        attestation: attestation(call),
    }
}

async fn finish(store: &JournalStore, call: &CallRecord) {
    let output = serde_json::json!({ "text": "done" });
    store.finish_call(&Finish::new(FinishedCall { output, ..finished(call) }, &[]).unwrap()).await.unwrap();
}

async fn ask(store: &JournalStore, text: &str) -> (CallRecord, ApprovalRecord) {
    let record = call(text, None);
    let approval = question(&record);
    ask_about(store, &record, &approval).await;
    (record, approval)
}

/// A question answered with a grant, which then covers another call.
async fn granted(store: &JournalStore) -> GrantRecord {
    let (record, approval) = ask(store, "granted").await;
    let (given, key) = grant(&record, &approval, Some(50_000));
    let mut resolve = Resolve { grant: Some((given.clone(), key)), ..answer(&approval, ApprovalState::Allowed) };
    resolve.resolution.grant = Some(given.grant_id.clone());
    resolve.resolution.matcher = GrantMatcher::Tool;
    store.resolve_approval(resolve).await.unwrap();
    store.start_approved(&approval, ()).await.unwrap();
    finish(store, &record).await;
    let covered = call("covered", None);
    start_by(store, &covered, &given.grant_id).await.unwrap().unwrap();
    finish(store, &covered).await;
    given
}

fn refused(key: Option<&str>) -> RefusedCall {
    let record = call("refused", key);
    RefusedCall {
        call_id: record.call_id,
        tool: "palyra.nonsense".to_owned(),
        input_sha256: record.digest,
        origin: record.origin,
        state: CallState::Rejected,
        problem: Problem::plain("unknown_tool", "there is none"),
        idempotency_key: record.idempotency_key,
    }
}

fn started(journal: &JournalId) -> JournalEvent {
    JournalEvent::DaemonStarted {
        version: "0".to_owned(),
        public_key: DaemonKey::generate().unwrap().public(),
        policy_hash: policy_hash(),
        journal: Some(journal.clone()),
    }
}

/// A journal in which everything has happened, with a question and an execution left open.
async fn lived() -> Fixture {
    let fixture = Fixture::new();
    let store = &fixture.store;
    store.note(&started(store.origin())).await.unwrap();
    let plain = call("plain", Some("k"));
    start(store, &plain, 100).await.unwrap();
    finish(store, &plain).await;
    let other = call("other", None);
    start(store, &other, 100).await.unwrap();
    finish(store, &other).await;
    let denied = opening(&call("denied", None), 100, DecisionKind::Deny);
    store.deny(denied, Problem::plain("policy_denied", "no")).await.unwrap().unwrap();
    assert!(matches!(start(store, &call("late", None), 1).await, Err(NotOpened::OverBudget(_))));
    store.refuse_call(refused(Some("r"))).await.unwrap();
    store.refuse_call(refused(None)).await.unwrap();
    let (_, no) = ask(store, "no").await;
    store.resolve_approval(answer(&no, ApprovalState::Denied)).await.unwrap();
    let (_, late) = ask(store, "nobody").await;
    store.resolve_approval(answer(&late, ApprovalState::Expired)).await.unwrap();
    let (void, yes) = ask(store, "void").await;
    store.resolve_approval(answer(&yes, ApprovalState::Allowed)).await.unwrap();
    let problem = Problem::plain("policy_changed", "other rules");
    store.end_call(&void.call_id, CallState::Approved, CallState::Cancelled, problem).await.unwrap();
    let given = granted(store).await;
    store.revoke_grant(&given.grant_id, &Principal::local_owner()).await.unwrap();
    granted(store).await;
    let (_, rebound) = ask(store, "waits").await;
    let other = Digest::of(b"other members");
    let rebind = Rebind { approval_id: rebound.approval_id, policy_hash: other };
    store.rebind_approval(rebind).await.unwrap();
    start(store, &call("runs", None), 100).await.unwrap();
    fixture
}

fn unfounded(verdict: Verdict, why: &str) -> HistoryFault {
    let fault = match verdict {
        Verdict::Unfounded(fault) => Some(fault),
        _ => None,
    };
    fault.ok_or(why).unwrap()
}

#[tokio::test]
async fn what_really_happened_verifies() {
    let fixture = Box::pin(lived()).await;
    let before = verdict(&fixture.path());
    assert!(matches!(before, Verdict::Intact(_)), "{before:?}");
    let fixture = fixture.reopen();
    assert_eq!(fixture.store.open_calls().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_table_that_does_not_follow_from_the_events_is_named() {
    let allowed = "UPDATE approvals SET state = 'allowed', record = json_set(record, '$.state', 'allowed')
                   WHERE state = 'pending'";
    for (edit, table) in [
        ("UPDATE approvals SET state = 'allowed' WHERE state = 'pending'", "approvals"),
        (allowed, "approvals"),
        ("UPDATE approvals SET record = json_set(record, '$.input.text', 'harmless') WHERE state = 'pending'", "approvals"),
        ("DELETE FROM approvals WHERE state = 'denied'", "approvals"),
        ("UPDATE calls SET state = 'approved' WHERE state = 'awaiting_approval'", "calls"),
        ("UPDATE calls SET digest = zeroblob(32) WHERE state = 'executing'", "calls"),
        ("UPDATE calls SET state = 'succeeded' WHERE state = 'denied'", "calls"),
        ("DELETE FROM calls WHERE key = 'k'", "calls"),
        ("UPDATE calls SET key = NULL WHERE key = 'r'", "calls"),
        ("UPDATE calls SET principal = 'agent:other' WHERE key = 'k'", "calls"),
        ("INSERT INTO calls SELECT 'call_x', principal, session, run, tool, digest, 'x', state, opened_seq, ended_seq
          FROM calls WHERE key = 'k'", "calls"),
        ("UPDATE runs SET calls = 0", "runs"),
        ("UPDATE runs SET calls = calls + 1", "runs"),
        ("UPDATE runs SET calls = calls - 9223372036854775807", "runs"),
        ("DELETE FROM runs", "runs"),
        ("INSERT INTO runs VALUES ('agent:x', 'r', 3)", "runs"),
        ("INSERT INTO grants SELECT 'grant_x', principal, session, match_key, policy_hash, expires_at, revoked_at, uses,
          record, created_seq, void FROM grants LIMIT 1", "grants"),
        ("UPDATE grants SET revoked_at = NULL", "grants"),
        ("UPDATE grants SET uses = 0", "grants"),
        ("UPDATE grants SET expires_at = expires_at + 1", "grants"),
        ("UPDATE grants SET principal = 'agent:other'", "grants"),
        ("UPDATE grants SET match_key = zeroblob(32)", "grants"),
        ("DELETE FROM grants WHERE revoked_at IS NOT NULL", "grants"),
        ("UPDATE grants SET void = 'the rules changed' WHERE revoked_at IS NOT NULL", "grants"),
        ("UPDATE grants SET created_seq = created_seq - 1", "grants"),
        ("UPDATE grants SET created_seq = NULL", "grants"),
        ("UPDATE calls SET ended_seq = (SELECT ended_seq FROM calls WHERE state = 'succeeded' AND key IS NULL LIMIT 1)
          WHERE key = 'k'", "calls"),
        ("UPDATE meta SET value = 'jrn_01ARZ3NDEKTSV4RRFFQ69G5FAV' WHERE key = 'origin'", "meta"),
        ("UPDATE meta SET value = 'x' WHERE key = 'origin'", "meta"),
        ("DELETE FROM meta WHERE key = 'format'", "meta"),
        ("INSERT INTO meta VALUES ('open_from', 'call_zzz')", "meta"),
    ] {
        let fixture = Box::pin(lived()).await;
        Connection::open(fixture.path()).unwrap().execute_batch(edit).unwrap();
        let fault = unfounded(verdict(&fixture.path()), edit);
        assert!(matches!(&fault, HistoryFault::Table { table: named, .. } if *named == table), "{edit}: {fault}");
    }
}

#[tokio::test]
async fn an_event_that_cannot_have_happened_is_named() {
    let starts = |call: &CallRecord, authority, digest: Digest| JournalEvent::ToolStarted {
        call_id: call.call_id.clone(),
        authority,
        call_digest: Some(digest),
    };
    let started = |call: &CallRecord, authority| starts(call, authority, call.digest);
    let ended = |call: &CallRecord, state| {
        let problem = Problem::plain("x", "x");
        JournalEvent::ToolEnded { call_id: call.call_id.clone(), state, problem, grant: None }
    };
    let finished = |call: &CallRecord| JournalEvent::ToolFinished(Arc::new(finished(call)));
    let fixture = Fixture::new();
    let (waits, approval) = ask(&fixture.store, "waits").await;
    let yes = JournalEvent::ApprovalResolved {
        approval_id: ApprovalId::mint(),
        call_id: waits.call_id.clone(),
        state: ApprovalState::Allowed,
        resolution: Box::new(answer(&approval, ApprovalState::Allowed).resolution),
    };
    let (given, _) = grant(&waits, &approval, Some(50_000));
    let stranger = call("never proposed", None);
    drop(fixture);
    let decided = |call: &CallRecord, digest| JournalEvent::ToolDecided {
        call_id: call.call_id.clone(),
        decision: Arc::new(ToolDecision { call_digest: Some(digest), ..records::decision(call, DecisionKind::Allow) }),
    };
    for (event, why) in [
        (decided(&waits, waits.digest), "twice"),
        (JournalEvent::CallsSettled { before: 4 }, "while a call is open"),
        (started(&waits, Authority::Policy), "without an answer"),
        (started(&waits, Authority::Approval(approval.approval_id.clone())), "before the answer"),
        (started(&waits, Authority::Grant(given.grant_id.clone())), "by a grant that nobody gave"),
        (started(&stranger, Authority::Policy), "without a proposal"),
        (finished(&waits), "without a start"),
        (ended(&waits, CallState::Denied), "while a person is asked"),
        (ended(&stranger, CallState::Denied), "without a proposal"),
        (yes, "to another question"),
        (JournalEvent::GrantCreated { grant: Box::new(given) }, "without an answer"),
    ] {
        let fixture = Fixture::new();
        ask_about(&fixture.store, &waits, &approval).await;
        let seq = fixture.store.note(&event).await.unwrap();
        let fault = unfounded(verdict(&fixture.path()), why);
        assert_eq!(fault.seq(), Some(seq), "{why}: {fault}");
    }
}

/// What was proposed is what was decided about, and what was decided about is what starts.
#[tokio::test]
async fn a_decision_belongs_to_its_call() {
    let record = call("a", None);
    let other = Digest::of(b"another call");
    let proposed = || JournalEvent::ToolProposed { call: Arc::new(record.clone()) };
    let decided = |digest, kind, fresh| JournalEvent::ToolDecided {
        call_id: record.call_id.clone(),
        decision: Arc::new(ToolDecision { call_digest: Some(digest), fresh, ..records::decision(&record, kind) }),
    };
    let started = |digest, authority| JournalEvent::ToolStarted {
        call_id: record.call_id.clone(),
        authority,
        call_digest: Some(digest),
    };
    let approval = ApprovalRecord { call_digest: other, ..question(&record) };
    let asked = JournalEvent::ApprovalRequested { approval: Arc::new(approval) };
    let (allow, ask) = (DecisionKind::Allow, DecisionKind::NeedsApproval);
    let nobodys = || Authority::Grant(GrantId::mint());
    for (events, why) in [
        (vec![proposed(), decided(other, allow, false)], "decided about something else"),
        (
            vec![proposed(), decided(record.digest, allow, false), started(other, Authority::Policy)],
            "something else starts",
        ),
        (vec![proposed(), decided(record.digest, ask, false), asked], "asks about something else"),
        (vec![proposed(), decided(record.digest, ask, true), started(record.digest, nobodys())], "by a grant"),
    ] {
        let fixture = Fixture::new();
        let mut last = 0;
        for event in &events {
            last = fixture.store.note(event).await.unwrap();
        }
        assert_eq!(unfounded(verdict(&fixture.path()), why).seq(), Some(last), "{why}");
    }
}

#[tokio::test]
async fn founded_in_events() {
    for edit in [
        "UPDATE approvals SET state = 'allowed', record = json_set(record, '$.state', 'allowed') WHERE state = 'pending';
         UPDATE calls SET state = 'approved' WHERE state = 'awaiting_approval'",
        "UPDATE calls SET state = 'approved' WHERE state = 'awaiting_approval'",
        "UPDATE approvals SET record = json_set(record, '$.input.text', 'harmless') WHERE state = 'pending'",
        "UPDATE calls SET ended_seq = opened_seq WHERE state = 'awaiting_approval'",
        "DELETE FROM calls WHERE state = 'awaiting_approval'",
    ] {
        let fixture = Box::pin(lived()).await.reopen();
        Connection::open(fixture.path()).unwrap().execute_batch(edit).unwrap();
        let taken_up = fixture.store.open_calls().await;
        assert!(taken_up.is_err(), "{edit}: {taken_up:?}");
    }
}

/// What only a table says is open is not taken up, and what the events leave open is, whatever the tables say.
#[tokio::test]
async fn open_calls_are_those_that_the_events_leave_open() {
    let fixture = Box::pin(lived()).await;
    let ids = |calls: Vec<CallView>| calls.into_iter().map(|call| call.call_id).collect::<Vec<_>>();
    let open = ids(fixture.store.open_calls().await.unwrap());
    for edit in [
        "UPDATE calls SET state = 'approved', ended_seq = NULL WHERE key = 'k'",
        "INSERT INTO calls SELECT 'call_zzzzzzzzzzzzzzzzzzzzzzzzzz', principal, session, run, tool, digest, 'x', 'approved',
         opened_seq, NULL FROM calls WHERE key = 'k'",
        "INSERT INTO meta VALUES ('open_from', 'call_zzz')",
    ] {
        let fixture = lived_as(&fixture).await;
        Connection::open(fixture.path()).unwrap().execute_batch(edit).unwrap();
        assert_eq!(ids(fixture.store.open_calls().await.unwrap()), open, "{edit}");
        assert_eq!(ids(fixture.reopen().store.open_calls().await.unwrap()), open, "{edit}");
    }
}

/// A copy of a journal.
async fn lived_as(fixture: &Fixture) -> Fixture {
    fixture.store.settle().await.unwrap();
    let (dir, clock) = (tempfile::tempdir().unwrap(), fixture.clock.clone());
    let path = dir.path().join("journal.db");
    std::fs::copy(fixture.path(), &path).unwrap();
    let store = JournalStore::open(&path, clock.clone()).unwrap();
    Fixture { dir, clock, store }
}

/// A row that leads to another call's events answers for no call, long before anybody verifies.
#[tokio::test]
async fn a_call_is_told_by_its_own_events() {
    let other = "(SELECT ended_seq FROM calls WHERE state = 'succeeded' AND key IS NULL LIMIT 1)";
    for edit in [
        &format!("UPDATE calls SET ended_seq = {other} WHERE key = 'k'"),
        "UPDATE calls SET ended_seq = opened_seq WHERE key = 'k'",
        "UPDATE calls SET opened_seq = 1 WHERE key = 'k'",
        "UPDATE calls SET principal = 'agent:other' WHERE key = 'k'",
        "UPDATE calls SET digest = zeroblob(32) WHERE key = 'k'",
        "UPDATE calls SET state = 'failed' WHERE key = 'k'",
    ] {
        let fixture = Box::pin(lived()).await;
        let found = fixture.store.call_by_key(&"agent:demo".parse().unwrap(), &"k".parse().unwrap()).await.unwrap();
        let call_id = found.unwrap().call_id;
        Connection::open(fixture.path()).unwrap().execute_batch(edit).unwrap();
        let told = fixture.store.call(&call_id).await;
        assert!(matches!(told, Err(JournalError::Unfounded(_))), "{edit}: {told:?}");
    }
    let fixture = Box::pin(lived()).await;
    let edit = "UPDATE calls SET key = NULL WHERE key = 'k'; UPDATE calls SET key = 'k' WHERE key = 'r'";
    Connection::open(fixture.path()).unwrap().execute_batch(edit).unwrap();
    let told = fixture.store.call_by_key(&"agent:demo".parse().unwrap(), &"k".parse().unwrap()).await;
    assert!(matches!(told, Err(JournalError::Unfounded(_))), "{told:?}");
}

/// Tables, indexes and views are those that the journal was made with; what can be mended is mended by a start.
#[tokio::test]
async fn the_schema_is_the_one_that_the_journal_was_made_with() {
    for (edit, name, mended) in [
        ("DROP INDEX calls_by_key", "calls_by_key", true),
        ("DROP INDEX events_settled", "events_settled", true),
        ("DROP VIEW sessions", "sessions", true),
        ("DROP VIEW sessions; CREATE VIEW sessions AS SELECT 1 AS principal", "sessions", true),
        ("CREATE INDEX mine ON calls (tool)", "mine", true),
        ("ALTER TABLE grants ADD COLUMN mine TEXT", "grants", false),
        ("CREATE TABLE mine (x TEXT)", "mine", false),
    ] {
        let Fixture { dir, clock, store } = Box::pin(lived()).await;
        drop(store);
        let path = dir.path().join("journal.db");
        Connection::open(&path).unwrap().execute_batch(edit).unwrap();
        let fault = unfounded(verdict(&path), edit);
        assert!(matches!(&fault, HistoryFault::Schema { names } if names == name), "{edit}: {fault}");
        match JournalStore::open(&path, clock) {
            Ok(store) => assert_eq!((store.mended(), mended), (&[name.to_owned()][..], true), "{edit}"),
            Err(error) => assert!(matches!(error, JournalError::Unfounded(_)) && !mended, "{edit}: {error}"),
        }
        assert_eq!(matches!(verdict(&path), Verdict::Intact(_)), mended, "{edit}");
    }
}

#[tokio::test]
async fn a_start_refuses_a_journal_that_goes_by_another_name() {
    let Fixture { dir, clock, store } = Box::pin(lived()).await;
    drop(store);
    let path = dir.path().join("journal.db");
    let edit = "UPDATE meta SET value = 'jrn_01ARZ3NDEKTSV4RRFFQ69G5FAV' WHERE key = 'origin'";
    Connection::open(&path).unwrap().execute_batch(edit).unwrap();
    let refused = JournalStore::open(&path, clock).unwrap_err();
    assert!(matches!(&refused, JournalError::Unfounded(HistoryFault::Table { table: "meta", .. })), "{refused}");
}

#[tokio::test]
async fn a_grant_that_is_not_as_it_was_given_covers_nothing() {
    for edit in [
        "UPDATE grants SET expires_at = 90000000",
        "UPDATE grants SET match_key = zeroblob(32)",
        "UPDATE grants SET created_seq = 1",
        "UPDATE grants SET created_seq = NULL",
        "UPDATE grants SET session = 's'",
        "UPDATE grants SET record = json_set(record, '$.granted_by', 'user:ada')",
        "UPDATE grants SET grant_id = 'grant_01ARZ3NDEKTSV4RRFFQ69G5FAV'",
    ] {
        let fixture = Fixture::new();
        granted(&fixture.store).await;
        let connection = Connection::open(fixture.path()).unwrap();
        connection.execute_batch(edit).unwrap();
        let id: String = connection.query_row("SELECT grant_id FROM grants", [], |r| r.get(0)).unwrap();
        let next = call("next", None);
        let opened = start_by(&fixture.store, &next, &id.parse().unwrap()).await;
        assert!(matches!(opened, Err(JournalError::Unfounded(_))), "{edit}: {opened:?}");
        assert!(fixture.store.call(&next.call_id).await.is_err(), "and nothing is recorded");
    }
}

#[tokio::test]
async fn an_event_that_was_changed_is_not_acted_upon() {
    let fixture = Box::pin(lived()).await;
    let known = fixture.store.call_by_key(&"agent:demo".parse().unwrap(), &"k".parse().unwrap()).await.unwrap();
    let call_id = known.unwrap().call_id;
    fixture.tampered().execute_batch("UPDATE events SET body = replace(body, 'done', 'dOne')").unwrap();
    let replayed = fixture.store.call(&call_id).await;
    assert!(matches!(replayed, Err(JournalError::Damaged(_))), "{replayed:?}");
}

#[tokio::test]
async fn other_rules_end_a_grant_for_good() {
    let fixture = Fixture::new();
    let given = granted(&fixture.store).await;
    let other = Digest::of(b"other rules");
    let page = Page { records: 10, bytes: 1 << 20 };
    fixture.store.note_rules(&JournalEvent::DaemonStopped {}, policy_hash()).await.unwrap();
    assert_eq!(fixture.store.grants(None, page).await.unwrap().records[0].revoked_at, None, "the same rules");
    for hash in [other, policy_hash()] {
        fixture.store.note_rules(&JournalEvent::DaemonStopped {}, hash).await.unwrap();
    }
    let opened = start_by(&fixture.store, &call("next", None), &given.grant_id).await.unwrap();
    assert!(matches!(opened, Err(NotByGrant::GrantGone)), "rules that come back do not bring it back");
    let listed = fixture.store.grants(None, page).await.unwrap().records;
    assert!(listed[0].void.is_some() && listed[0].revoked_at.is_some(), "{listed:?}");
    assert!(matches!(verdict(&fixture.path()), Verdict::Intact(_)));
}

#[tokio::test]
async fn a_refusal_belongs_to_its_key() {
    let fixture = Fixture::new();
    let first = refused(Some("k"));
    let id = first.call_id.clone();
    assert!(matches!(fixture.store.refuse_call(first).await.unwrap(), Refused::Recorded(_)));
    let again = fixture.store.refuse_call(refused(Some("k"))).await.unwrap();
    assert!(matches!(again, Refused::KeyHeld(earlier) if earlier == id));
    let later = start(&fixture.store, &call("x", Some("k")), 10).await.map(drop);
    assert_eq!(later, Err(NotOpened::KeyHeld(KeyHolder::OtherCall(id))));
}

#[tokio::test]
async fn listings_come_in_pages() {
    let fixture = Fixture::new();
    let mut asked = Vec::new();
    for n in 0..5 {
        asked.push(ask(&fixture.store, &n.to_string()).await.1.approval_id);
    }
    asked.sort();
    for page in [Page { records: 2, bytes: 1 << 20 }, Page { records: 100, bytes: 1 }] {
        for filter in [ApprovalFilter::Pending, ApprovalFilter::Newest(5)] {
            let (mut seen, mut pages) = (Vec::new(), 0);
            loop {
                let listing = fixture.store.approvals(filter, seen.last(), page).await.unwrap();
                seen.extend(listing.records.into_iter().map(|record| record.approval_id));
                pages += 1;
                if !listing.more {
                    break;
                }
            }
            assert_eq!(seen, asked);
            assert!(pages >= 3, "{pages}");
        }
    }
    let newest = fixture.store.approvals(ApprovalFilter::Newest(2), None, Page { records: 9, bytes: 1 << 20 }).await;
    assert_eq!(newest.unwrap().records.len(), 2);
}

#[tokio::test]
async fn a_journal_of_the_format_before_is_brought_up_to_date() {
    let fixture = Box::pin(lived()).await;
    let voided = granted(&fixture.store).await;
    fixture.store.note_rules(&JournalEvent::DaemonStopped {}, Digest::of(b"other rules")).await.unwrap();
    let older = "ALTER TABLE grants DROP COLUMN created_seq; ALTER TABLE grants DROP COLUMN void;
                 DROP INDEX events_key; DROP INDEX events_grants_ended; DROP INDEX events_settled;
                 CREATE INDEX approvals_pending ON approvals (expires_at) WHERE state = 'pending';
                 INSERT INTO meta VALUES ('open_from', ''); UPDATE meta SET value = '2' WHERE key = 'format';";
    let Fixture { dir, clock, store } = fixture;
    drop(store);
    let path = dir.path().join("journal.db");
    Connection::open(&path).unwrap().execute_batch(older).unwrap();
    let before = verify(&path, None, &mut |_| {});
    assert!(matches!(&before, Err(JournalError::Format { found, expected: 3 }) if found == "2"), "{before:?}");
    let store = JournalStore::open(&path, clock.clone()).unwrap();
    assert!(store.mended().is_empty(), "nobody was at it");
    assert_eq!(store.open_calls().await.unwrap().len(), 2);
    let listed = store.grants(None, Page { records: 9, bytes: 1 << 20 }).await.unwrap().records;
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().find(|grant| grant.grant_id == voided.grant_id).unwrap().void.is_some());
    let verdict = verdict(&path);
    assert!(matches!(verdict, Verdict::Intact(_)), "{verdict:?}");
}

/// What somebody writes into the row of a question that waits is neither shown nor answered.
#[tokio::test]
async fn shown_as_asked() {
    let fixture = Fixture::new();
    let (call, asked) = ask(&fixture.store, "harmful").await;
    let edit = "UPDATE approvals SET record = replace(record, 'harmful', 'harmless')";
    assert_eq!(Connection::open(fixture.path()).unwrap().execute(edit, []).unwrap(), 1);
    let page = Page { records: 9, bytes: 1 << 20 };
    assert_eq!(fixture.store.approval(&asked.approval_id).await.unwrap(), asked);
    assert_eq!(fixture.store.approval_of_call(&call.call_id).await.unwrap(), asked);
    for filter in [ApprovalFilter::Pending, ApprovalFilter::Newest(9)] {
        assert_eq!(fixture.store.approvals(filter, None, page).await.unwrap().records, std::slice::from_ref(&asked));
    }
    let fixture = fixture.reopen();
    assert_eq!(fixture.store.approval(&asked.approval_id).await.unwrap(), asked, "nor after a restart");
    assert!(fixture.store.open_calls().await.is_err(), "which notices");
    let answered = fixture.store.resolve_approval(answer(&asked, ApprovalState::Denied)).await.unwrap();
    assert_eq!(answered.input, asked.input);
    assert_eq!(fixture.store.pending_approvals(), 0);
    let again = "UPDATE approvals SET state = 'pending', record = json_set(record, '$.state', 'pending')";
    Connection::open(fixture.path()).unwrap().execute(again, []).unwrap();
    let twice = fixture.store.resolve_approval(answer(&asked, ApprovalState::Allowed)).await;
    assert!(matches!(twice, Err(JournalError::Unfounded(_))), "{twice:?}");
}

/// A grant that its events ended is not brought back by its row.
#[tokio::test]
async fn a_grant_that_ended_stays_ended_whatever_its_row_says() {
    for by_rules in [false, true] {
        let fixture = Fixture::new();
        let given = granted(&fixture.store).await;
        if by_rules {
            for hash in [Digest::of(b"other rules"), policy_hash()] {
                fixture.store.note_rules(&JournalEvent::DaemonStopped {}, hash).await.unwrap();
            }
        } else {
            fixture.store.revoke_grant(&given.grant_id, &Principal::local_owner()).await.unwrap();
        }
        let revive = "UPDATE grants SET revoked_at = NULL, void = NULL";
        assert_eq!(Connection::open(fixture.path()).unwrap().execute(revive, []).unwrap(), 1);
        let opened = start_by(&fixture.store, &call("next", None), &given.grant_id).await;
        assert!(matches!(opened, Err(JournalError::Unfounded(_))), "{opened:?}");
        let fixture = fixture.reopen();
        let opened = start_by(&fixture.store, &call("next", None), &given.grant_id).await;
        assert!(matches!(opened, Err(JournalError::Unfounded(_))), "{opened:?}");
    }
}

/// An index that leads past its table is found, and so is what the daemon did because of it.
#[tokio::test]
async fn an_index_that_was_emptied_is_noticed() {
    for (index, on, condition) in [
        ("calls_by_key", "UNIQUE INDEX calls_by_key ON calls (principal, key)", "key IS NOT NULL"),
        (
            "events_grants_ended",
            "INDEX events_grants_ended ON events (seq)",
            "kind = 'grant.revoked' OR kind = 'grant.voided'",
        ),
    ] {
        let Fixture { dir, clock, store } = Box::pin(lived()).await;
        drop(store);
        let connection = Connection::open(dir.path().join("journal.db")).unwrap();
        let sql: String =
            connection.query_row("SELECT sql FROM sqlite_master WHERE name = ?1", [index], |r| r.get(0)).unwrap();
        let emptied = format!("DROP INDEX {index}; CREATE {on} WHERE ({condition}) AND 0; PRAGMA writable_schema = ON");
        connection.execute_batch(&emptied).unwrap();
        connection.execute("UPDATE sqlite_master SET sql = ?1 WHERE name = ?2", [&sql, index]).unwrap();
        drop(connection);
        let fault = unfounded(verdict(&dir.path().join("journal.db")), "unnoticed");
        assert!(matches!(&fault, HistoryFault::Index { .. }), "{fault}");
        if index == "calls_by_key" {
            let store = JournalStore::open(&dir.path().join("journal.db"), clock).unwrap();
            let again = call("plain", Some("k"));
            start(&store, &again, 100).await.unwrap();
            let fault = unfounded(verdict(&dir.path().join("journal.db")), "unnoticed");
            assert!(fault.to_string().contains("another call had this idempotency key"), "{fault}");
        }
    }
}

//! Approvals that are about no call: asked, answered, found again, and held to their events.

use super::super::*;
use palyra_protocol::{ApprovalSubject, PairingDevice};

fn device() -> ApprovalRecord {
    let subject = ApprovalSubject::DevicePairing(Box::new(PairingDevice {
        name: "phone".to_owned(),
        platform: "linux".to_owned(),
        key_sha256: Digest::of(b"key"),
        words: "one two three".to_owned(),
    }));
    ApprovalRecord { call_id: CallId::mint(), subject, fresh: true, ..question(&call("x", None)) }
}

#[tokio::test]
async fn an_approval_about_no_call_is_answered_once_and_survives_a_restart() {
    let fixture = Fixture::new();
    let [asked, other] = [device(), device()];
    for approval in [&asked, &other] {
        fixture.store.request_approval(Arc::new(approval.clone())).await.unwrap();
    }
    // Marks do not pass over what waits, however many calls come after it.
    for number in 0..40 {
        let call = call(&format!("{number}"), None);
        start(&fixture.store, &call, 1000).await.unwrap();
        let (from, to) = (CallState::Executing, CallState::Indeterminate);
        fixture.store.end_call(&call.call_id, from, to, Problem::plain("x", "x")).await.unwrap();
    }
    let fixture = fixture.reopen();
    assert_eq!(fixture.store.pending_approvals(), 2);
    assert!(fixture.store.open_calls().await.unwrap().is_empty());
    assert!(matches!(verdict(&fixture.path()), Verdict::Intact(_)));
    let rebind = Rebind { approval_id: asked.approval_id.clone(), policy_hash: Digest::of(b"other") };
    fixture.store.rebind_approval(rebind).await.unwrap();
    let yes = fixture.store.resolve_approval(answer(&asked, ApprovalState::Allowed)).await.unwrap();
    assert_eq!((yes.state, yes.subject.clone()), (ApprovalState::Allowed, asked.subject.clone()));
    let again = fixture.store.resolve_approval(answer(&asked, ApprovalState::Denied)).await;
    assert!(matches!(again, Err(JournalError::AlreadyResolved { state: ApprovalState::Allowed })));
    fixture.store.resolve_approval(answer(&other, ApprovalState::Expired)).await.unwrap();
    let fixture = fixture.reopen();
    assert_eq!(fixture.store.pending_approvals(), 0);
    assert_eq!(fixture.store.approval(&asked.approval_id).await.unwrap().state, ApprovalState::Allowed);
    assert!(matches!(verdict(&fixture.path()), Verdict::Intact(_)));
}

#[tokio::test]
async fn an_approval_about_no_call_starts_no_call() {
    let fixture = Fixture::new();
    let record = call("a", None);
    let about_call = ApprovalRecord { call_id: CallId::mint(), ..question(&record) };
    assert!(fixture.store.request_approval(Arc::new(about_call)).await.is_err(), "a call is opened by its proposal");
    let asked = device();
    fixture.store.request_approval(Arc::new(asked.clone())).await.unwrap();
    fixture.store.resolve_approval(answer(&asked, ApprovalState::Allowed)).await.unwrap();
    assert!(matches!(fixture.store.start_approved(&asked, ()).await, Err(JournalError::NotFound { .. })));
    assert!(matches!(verdict(&fixture.path()), Verdict::Intact(_)));
}

#[tokio::test]
async fn an_edited_row_of_an_approval_about_no_call_is_found() {
    let fixture = Fixture::new();
    let asked = device();
    fixture.store.request_approval(Arc::new(asked.clone())).await.unwrap();
    let connection = Connection::open(fixture.path()).unwrap();
    connection.execute("UPDATE approvals SET record = replace(record, 'phone', 'other')", []).unwrap();
    assert!(matches!(verdict(&fixture.path()), Verdict::Unfounded(palyra_journal::HistoryFault::Table { .. })));
    assert!(fixture.store.open_calls().await.is_err(), "a start does not take it up");
    let shown = fixture.store.approval(&asked.approval_id).await.unwrap();
    assert_eq!(shown.subject, asked.subject, "what waits is shown as it was asked");
}

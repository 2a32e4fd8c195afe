//! The memory with a real database.

use super::*;
use palyra_protocol::Timestamp;

fn record(scope: &str) -> MemoryRecord {
    MemoryRecord {
        entry_id: MemoryId::mint(),
        scope: scope.parse().unwrap(),
        principal: "agent:demo".parse().unwrap(),
        proposed_by: "agent:demo".parse().unwrap(),
        call_id: None,
        session: None,
        sources: vec![MemorySource::new("web:a.example")],
        trust: MemoryTrust::External,
        at: Timestamp::from_unix_ms(7),
        bytes: 0,
    }
}

fn add(store: &MemoryStore, scope: &str, text: &str) -> MemoryId {
    let record = record(scope);
    store.stage(NewMemory { record: &record, text, key: &[9; 32] }, &MemoryQuota::default()).unwrap();
    store.settle(&record.entry_id, 1).unwrap();
    record.entry_id
}

fn found(store: &MemoryStore, text: &str, scopes: Option<&[&str]>) -> Vec<String> {
    let scopes = scopes.map(|scopes| scopes.iter().map(|scope| scope.parse().unwrap()).collect());
    let query = MemoryQuery { text: text.to_owned(), scopes };
    store.search(&query).unwrap().into_iter().map(|entry| entry.text).collect()
}

const DEMO: &str = "principal:agent:demo";

#[test]
fn words_identifiers_and_chinese_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = MemoryStore::open(&dir.path().join("memory.db")).unwrap();
    for text in ["The cats were running", "fn resolve_with(tool: Arc<CatalogTool>)", "用户喜欢喝绿茶", "tea 100%_x"]
    {
        add(&store, DEMO, text);
    }
    assert_eq!(found(&store, "run cat", None), ["The cats were running"]);
    assert_eq!(found(&store, "talogToo", None), ["fn resolve_with(tool: Arc<CatalogTool>)"]);
    assert_eq!(found(&store, "喜欢喝", None), ["用户喜欢喝绿茶"]);
    assert_eq!(found(&store, "绿茶", None), ["用户喜欢喝绿茶"], "below three characters");
    assert_eq!(found(&store, "_x", None), ["tea 100%_x"], "a wildcard is a letter");
    for nothing in ["", "   ", "\"", "* OR", "NEAR(", "zebra"] {
        assert!(found(&store, nothing, None).is_empty(), "{nothing}");
    }
    assert_eq!(found(&store, "zebra cats", None), ["The cats were running"], "any term where not all fit");
}

#[test]
fn scopes_are_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    let store = MemoryStore::open(&dir.path().join("memory.db")).unwrap();
    add(&store, DEMO, "the password hint is mango");
    add(&store, "session:agent:demo/a", "mango in session a");
    assert_eq!(found(&store, "mango", Some(&[DEMO])), ["the password hint is mango"]);
    assert_eq!(found(&store, "mango", Some(&["session:agent:other/a"])), Vec::<String>::new());
    assert_eq!(found(&store, "mango", Some(&[])), Vec::<String>::new());
    assert_eq!(found(&store, "in", Some(&["session:agent:demo/a"])), ["mango in session a"]);
    assert_eq!(store.page(Some(&DEMO.parse().unwrap()), None).unwrap().len(), 1);
}

#[test]
fn what_was_destroyed_is_nowhere_in_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = MemoryStore::open(&dir.path().join("memory.db")).unwrap();
    let keep: Vec<_> = (0..200).map(|n| add(&store, DEMO, &format!("ordinary entry {n} about gardens"))).collect();
    let gone = add(&store, DEMO, "Xylophonquartz Grumblewick 4711");
    assert_eq!(store.key(&gone).unwrap().unwrap(), (vec![9; 32], 1));
    assert!(store.destroy(&gone).unwrap());
    assert!(!store.destroy(&gone).unwrap());
    assert!(store.entry(&gone).unwrap().is_none() && store.key(&gone).unwrap().is_none());
    assert_eq!(store.page(None, None).unwrap().len(), 100);
    drop(keep);
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap().to_ascii_lowercase();
        for part in ["xylophonquartz", "xylophon", "grumblewick", "mblewi", "ylop"] {
            assert!(!bytes.windows(part.len()).any(|window| window == part.as_bytes()), "{part}");
        }
    }
}

#[test]
fn what_the_journal_does_not_know_is_pending_and_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("memory.db");
    let store = MemoryStore::open(&path).unwrap();
    let record = record(DEMO);
    store.stage(NewMemory { record: &record, text: "half done", key: &[1; 32] }, &MemoryQuota::default()).unwrap();
    assert!(found(&store, "half", None).is_empty() && store.entry(&record.entry_id).unwrap().is_none());
    drop(store);
    let store = MemoryStore::open(&path).unwrap();
    assert_eq!(store.pending().unwrap(), std::slice::from_ref(&record.entry_id));
    assert!(store.destroy(&record.entry_id).unwrap());
    assert!(store.pending().unwrap().is_empty());
}

#[test]
fn quotas_hold_and_come_back_with_what_is_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let store = MemoryStore::open(&dir.path().join("memory.db")).unwrap();
    let quota = MemoryQuota { scope_entries: 2, holder_entries: 3, holder_bytes: 100 };
    let stage = |scope: &str, text: &str| {
        let record = record(scope);
        let staged = store.stage(NewMemory { record: &record, text, key: &[0; 32] }, &quota);
        staged.map(|()| record.entry_id)
    };
    let first = stage(DEMO, "a").unwrap();
    stage(DEMO, "b").unwrap();
    assert!(matches!(stage(DEMO, "c"), Err(JournalError::MemoryFull { .. })));
    assert!(matches!(stage("session:agent:demo/x", &"x".repeat(99)), Err(JournalError::MemoryFull { .. })));
    stage("session:agent:demo/x", "c").unwrap();
    assert!(
        matches!(stage("session:agent:demo/y", "d"), Err(JournalError::MemoryFull { .. })),
        "a new session is no way out"
    );
    store.destroy(&first).unwrap();
    stage(DEMO, "e").unwrap();
}

#[test]
fn the_lowest_trust_of_a_source_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = MemoryStore::open(&dir.path().join("memory.db")).unwrap();
    let (who, session) = ("agent:demo".parse().unwrap(), "s".parse().unwrap());
    let source = |trust| SessionSource { source: MemorySource::new("web:x"), trust, recalled: false };
    store.note_sources(&who, &session, &[source(MemoryTrust::External)]).unwrap();
    store.note_sources(&who, &session, &[source(MemoryTrust::Person)]).unwrap();
    let mut seen = Vec::new();
    store.sessions(|_, _, source| seen.push(source.trust)).unwrap();
    assert_eq!(seen, [MemoryTrust::External]);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..proptest::prelude::ProptestConfig::with_cases(64) })]

    #[test]
    fn no_query_breaks_the_index(text in "\\PC{0,40}", operators in "['*^(){}:+ -]{0,12}(AND|OR|NOT|NEAR)?") {
        let dir = tempfile::tempdir().unwrap();
        let store = MemoryStore::open(&dir.path().join("memory.db")).unwrap();
        add(&store, DEMO, "some words to look through");
        for query in [text.clone(), format!("{operators}\"{text}\"{operators}")] {
            store.search(&MemoryQuery { text: query, scopes: None }).unwrap();
        }
    }
}

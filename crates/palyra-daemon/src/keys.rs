//! Which key signs, and whether the journal beside it is the one it signed for.
//!
//! The journal knows the key: every start records it. So a key that is missing or another one, and a journal that is
//! missing or was emptied, are found out at the start, and nothing is made anew in silence. The two ways on, accepting
//! another key and beginning another journal, are commands of their own, and the journal says that they were taken.
//!
//! At the first start the key is written under another name, recorded, then put in place: after a crash in between, the
//! next start finds the recorded key there and goes on.

use crate::serve::{DaemonError, Setup, io};
use crate::state::{StateDir, StateError, key_file, prepared_key_file, read_key};
use palyra_journal::JournalStore;
use palyra_protocol::{DaemonKey, JournalEvent, Principal, PublicKey, SystemClock};
use std::process::ExitCode;
use std::sync::Arc;

/// Opens the journal, unless it is missing beside the key that signed for it.
///
/// # Errors
/// It is, or it cannot be opened.
pub fn open_journal(state: &StateDir) -> Result<JournalStore, DaemonError> {
    if key_file(state.path()).exists() && is_missing(state) {
        return Err(lost(state).into());
    }
    let journal = JournalStore::open(&state.journal(), Arc::new(SystemClock))?;
    if !journal.mended().is_empty() {
        let mended = journal.mended().join(", ");
        tracing::warn!(
            mended,
            "the journal's indexes, views or triggers had been changed; they are restored. Verify it: `palyra journal verify`"
        );
    }
    Ok(journal)
}

/// The key that signs for this journal.
///
/// # Errors
/// It is missing, or another one, or the journal knows nothing of it.
pub async fn signing_key(state: &StateDir, journal: &JournalStore) -> Result<DaemonKey, DaemonError> {
    let path = key_file(state.path());
    let known = known_key(journal).await?;
    match (state.key()?, known) {
        (None, None) => Ok(state.prepare_key()?),
        (None, Some(known)) => {
            let prepared = prepared_key_file(state.path());
            match prepared.exists().then(|| read_key(&prepared)).transpose()? {
                Some(key) if key.public() == known => Ok(key),
                _ => Err(StateError::KeyMissing { path, known }.into()),
            }
        }
        (Some(key), Some(known)) if key.public() == known => Ok(key),
        (Some(key), Some(known)) => Err(StateError::OtherKey { path, found: key.public(), known }.into()),
        (Some(_), None) => Err(lost(state).into()),
    }
}

/// Accepts the key that is there, or a new one where none is.
///
/// # Errors
/// There is no journal to tell, or it cannot be written.
#[expect(clippy::print_stdout, reason = "the command's answer")]
pub fn accept(setup: &Setup) -> Result<ExitCode, DaemonError> {
    let state = StateDir::take(&setup.state_dir)?;
    let journal = open_journal(&state)?;
    runtime()?.block_on(async {
        let key = match state.key()? {
            Some(key) => key,
            None => state.prepare_key()?,
        };
        match known_key(&journal).await? {
            None => println!("the journal is new and knows no key yet. Start the daemon: palyra up"),
            Some(known) if known == key.public() => println!("this is the key that the journal knows"),
            Some(from) => {
                let to = key.public();
                let by = Principal::local_owner();
                journal.note(&JournalEvent::DaemonKeyAccepted { from, to, by }).await?;
                println!("accepted {to}; the journal says so. What {from} signed is still its own. Start the daemon: palyra up");
            }
        }
        state.put_key_in_place()?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Begins another journal in place of one that was lost.
///
/// # Errors
/// There is a journal, or none can be made.
#[expect(clippy::print_stdout, reason = "the command's answer")]
pub fn begin_journal(setup: &Setup) -> Result<ExitCode, DaemonError> {
    let state = StateDir::take(&setup.state_dir)?;
    let journal = JournalStore::open(&state.journal(), Arc::new(SystemClock))?;
    runtime()?.block_on(async {
        if known_key(&journal).await?.is_some() {
            return Err(StateError::JournalThere { path: state.journal() }.into());
        }
        let key = match state.key()? {
            Some(key) => key,
            None => state.prepare_key()?,
        };
        let begun = JournalEvent::JournalBegunAnew { public_key: key.public(), by: Principal::local_owner() };
        journal.note(&begun).await?;
        state.put_key_in_place()?;
        println!("another journal was begun, and says so. Grants, keys and budgets of the old one are gone. Start the daemon: palyra up");
        Ok(ExitCode::SUCCESS)
    })
}

async fn known_key(journal: &JournalStore) -> Result<Option<PublicKey>, DaemonError> {
    Ok(match journal.last_key_event().await? {
        Some(
            JournalEvent::DaemonStarted { public_key, .. }
            | JournalEvent::DaemonKeyAccepted { to: public_key, .. }
            | JournalEvent::JournalBegunAnew { public_key, .. },
        ) => Some(public_key),
        _ => None,
    })
}

fn is_missing(state: &StateDir) -> bool {
    std::fs::metadata(state.journal()).map_or(true, |file| file.len() == 0)
}

fn lost(state: &StateDir) -> StateError {
    StateError::JournalLost { path: state.journal() }
}

fn runtime() -> Result<tokio::runtime::Runtime, DaemonError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io("the runtime"))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn start(state: &StateDir) -> Result<PublicKey, DaemonError> {
        let journal = open_journal(state)?;
        let key = signing_key(state, &journal).await?;
        let policy_hash = palyra_protocol::Digest::ZERO;
        let started = JournalEvent::DaemonStarted {
            version: "0".to_owned(),
            public_key: key.public(),
            policy_hash,
            journal: None,
        };
        journal.note(&started).await?;
        state.put_key_in_place()?;
        Ok(key.public())
    }

    fn refusal(started: Result<PublicKey, DaemonError>) -> String {
        started.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn the_key_is_never_replaced_in_silence() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::take(dir.path()).unwrap();
        let first = start(&state).await.unwrap();
        assert_eq!(start(&state).await.unwrap(), first);
        let file = key_file(state.path());
        let kept = std::fs::read(&file).unwrap();

        std::fs::remove_file(&file).unwrap();
        let missing = refusal(start(&state).await);
        assert!(missing.contains("missing") && missing.contains("palyrad key accept"), "{missing}");
        std::fs::write(&file, [7; 32]).unwrap();
        let other = refusal(start(&state).await);
        assert!(other.contains("another key") && other.contains("palyrad key accept"), "{other}");

        std::fs::write(&file, kept).unwrap();
        assert_eq!(start(&state).await.unwrap(), first);
    }

    #[tokio::test]
    async fn a_lost_journal_is_noticed() {
        for lose in
            [|path: &std::path::Path| std::fs::remove_file(path), |path: &std::path::Path| std::fs::write(path, b"")]
        {
            let dir = tempfile::tempdir().unwrap();
            let state = StateDir::take(dir.path()).unwrap();
            start(&state).await.unwrap();
            lose(&state.journal()).unwrap();
            let refused = refusal(start(&state).await);
            assert!(refused.contains("journal is missing") && refused.contains("palyrad journal begin"), "{refused}");
        }
    }

    /// Whatever instant of the first start a crash cuts off, the next start goes on.
    #[tokio::test]
    async fn a_first_start_that_was_cut_off_is_taken_up() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::take(dir.path()).unwrap();
        drop(open_journal(&state).unwrap());
        let prepared = {
            let journal = open_journal(&state).unwrap();
            signing_key(&state, &journal).await.unwrap().public()
        };
        // Prepared and not recorded; then recorded and not in place.
        let journal = open_journal(&state).unwrap();
        let key = signing_key(&state, &journal).await.unwrap().public();
        assert_eq!(key, prepared);
        let policy_hash = palyra_protocol::Digest::ZERO;
        let event =
            JournalEvent::DaemonStarted { version: "0".to_owned(), public_key: key, policy_hash, journal: None };
        journal.note(&event).await.unwrap();
        drop(journal);
        assert!(!key_file(state.path()).exists());
        assert_eq!(start(&state).await.unwrap(), key);
        assert!(key_file(state.path()).exists());
    }
}

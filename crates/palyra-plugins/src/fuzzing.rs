//! The entries of fuzz targets: hostile bytes in, a broken promise is a panic.
//!
//! The same functions are called by the tests below, on seeds and on what proptest makes of them.

use crate::cache::{Key, Seal, TRAILER_BYTES};
use crate::hosts::HostPattern;
use crate::http_request::HttpRequest;
use crate::names::{SecretPattern, WorkspacePath};
use crate::record::{CallRecord, Tape};
use palyra_protocol::{Digest, Secret};

/// Reads the bytes as the record of a call.
///
/// # Panics
/// When a record that was read is written differently, or a tape gives more than it holds.
pub fn fuzz_record(bytes: &[u8]) {
    let Ok(record) = CallRecord::from_json(bytes) else { return };
    let again = record.to_json().map(|text| CallRecord::from_json(text.as_bytes()));
    assert!(matches!(again, Ok(Ok(again)) if again == record), "a record reads the same again");
    let replayable = record.check(record.component, "").is_ok();
    assert!(!replayable || (record.complete && record.input == Digest::of(b"")), "only whole records are replayed");
    let mut tape = Tape::replaying(&record);
    for event in &record.events {
        let kind = event.answer.kind();
        if event.times < 1_000 {
            for _ in 0..event.times.max(1) {
                assert_eq!(tape.next(kind, event.asked).ok().as_ref(), Some(&event.answer), "answers come in order");
            }
        } else {
            return;
        }
    }
    assert!(tape.next("time", None).is_err(), "nothing comes after the end");
}

/// Reads the bytes as a file of compiled code with its seal.
///
/// # Panics
/// When a seal holds that we did not make.
pub fn fuzz_seal(bytes: &[u8]) {
    let Some(length) = bytes.len().checked_sub(TRAILER_BYTES) else { return };
    let (code, trailer) = bytes.split_at(length);
    let key = Key::derive(&Secret::new(b"a key".to_vec()));
    let seal = || {
        let mut seal = Seal::begin(&key, &Digest::ZERO, code.len() as u64);
        seal.add(code);
        seal
    };
    assert_eq!(seal().verify(trailer).is_ok(), seal().finish() == trailer, "only our own seals hold");
}

/// Reads the bytes as the names and URLs that manifests and guests bring.
///
/// # Panics
/// When a name reads differently the second time, or a path leads out.
pub fn fuzz_names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(pattern) = text.parse::<HostPattern>() {
        assert_eq!(pattern.to_string().parse().as_ref(), Ok(&pattern), "a pattern reads the same again");
    }
    if let Ok(pattern) = text.parse::<SecretPattern>() {
        assert_eq!(pattern.to_string().parse().as_ref(), Ok(&pattern), "a pattern reads the same again");
    }
    if let Ok(base) = "a/b".parse::<WorkspacePath>()
        && let Ok(path) = base.join(text)
    {
        assert!(path.is_within(&base) && !path.names().any(|name| name == ".."), "{path} stays within");
    }
    if let Ok(request) = HttpRequest::new("GET", text, Vec::new(), Vec::new()) {
        let again = HttpRequest::new("GET", &request.url(), Vec::new(), Vec::new());
        assert_eq!(again.as_ref(), Ok(&request), "a URL reads the same again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Blob, HostAnswer};
    use crate::{FileAnswer, HttpFault, HttpReply, RequestedCapabilities, WasmPluginRunnerPolicy};
    use proptest::prelude::*;

    fn record() -> String {
        let grant = WasmPluginRunnerPolicy::default().grant(&RequestedCapabilities::default());
        let mut record = CallRecord::begin(Digest::of(b"component"), &grant, "run", "", [3; 32]);
        let mut tape = Tape::recording(100_000);
        let reply = HttpReply { status: 200, headers: vec![("a".into(), "b".into())], body: vec![0, 0xff] };
        for answer in [
            HostAnswer::Time(1),
            HostAnswer::Time(1),
            HostAnswer::Elapsed(0),
            HostAnswer::Ready(vec![0, 2]),
            HostAnswer::Http(Ok(reply)),
            HostAnswer::Http(Err(HttpFault::TimedOut)),
            HostAnswer::Secret(Ok(())),
            HostAnswer::Stored(Ok(Some(Blob(b"text".to_vec())))),
            HostAnswer::File(Ok(FileAnswer::Read(Blob(vec![]), true))),
        ] {
            tape.keep(Some(Digest::of(b"q")).filter(|_| answer.kind() != "time"), &answer);
        }
        (record.events, record.complete) = tape.finish();
        record.to_json().unwrap()
    }

    fn sealed() -> Vec<u8> {
        let key = Key::derive(&Secret::new(b"a key".to_vec()));
        let mut seal = Seal::begin(&key, &Digest::ZERO, 4);
        seal.add(b"code");
        [&b"code"[..], &seal.finish()].concat()
    }

    #[test]
    fn seeds_keep_their_promises() {
        assert!(CallRecord::from_json(record().as_bytes()).is_ok());
        fuzz_record(record().as_bytes());
        fuzz_seal(&sealed());
        for text in
            ["*.example.org:8443", "scope/*", "../..", "a/../../..", "https://a.org:8080/x?y", "http://[::1]:1/"]
        {
            fuzz_names(text.as_bytes());
        }
    }

    /// What a seed becomes when a few of its bytes are others.
    fn changed(seed: &[u8], changes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        bytes
    }

    proptest! {
        #[test]
        fn changed_records_keep_the_promises(changes: Vec<(prop::sample::Index, u8)>) {
            fuzz_record(&changed(record().as_bytes(), &changes));
        }

        #[test]
        fn changed_seals_do_not_hold(changes: Vec<(prop::sample::Index, u8)>) {
            fuzz_seal(&changed(&sealed(), &changes));
        }

        #[test]
        fn names_keep_the_promises(text in "[a-z*./:@%\\[\\]0-9?#-]{0,40}", bytes: Vec<u8>) {
            fuzz_names(text.as_bytes());
            fuzz_names(format!("https://{text}").as_bytes());
            fuzz_names(&bytes);
        }
    }
}

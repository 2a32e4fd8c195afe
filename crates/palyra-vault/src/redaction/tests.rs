//! Every form is found, wherever and however it is cut, and nothing else is.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use proptest::prelude::*;

fn reference(name: &str) -> SecretRef {
    SecretRef::from_operator(&format!("global/{name}")).unwrap()
}

fn redactor(values: &[&[u8]]) -> Arc<Redactor> {
    let mut builder = Redactor::builder();
    for (at, value) in values.iter().enumerate() {
        builder.add(&reference(&format!("s{at}")), &SecretValue::new(value.to_vec()).unwrap());
    }
    Arc::new(builder.build().unwrap())
}

fn redacted(redactor: &Arc<Redactor>, text: &[u8]) -> Vec<u8> {
    redactor.redact(text, Mask::Marker).map_or_else(|| text.to_vec(), |(text, _)| text)
}

/// The text with this value's redactor, as text.
fn check(value: &[u8], text: &str, expect: &str) {
    let found = redacted(&redactor(&[value]), text.as_bytes());
    assert_eq!(String::from_utf8_lossy(&found), expect, "{text:?}");
}

const VALUE: &[u8] = b"s3cr3t/t0ken+\"x\"";

#[test]
fn every_form_is_found() {
    let text = std::str::from_utf8(VALUE).unwrap();
    check(VALUE, &format!("token={text}!"), "token=[redacted]!");
    check(VALUE, &hex::encode(VALUE), "[redacted]");
    check(VALUE, &hex::encode_upper(VALUE), "[redacted]");
    check(VALUE, "s3cr3t%2Ft0ken%2B%22x%22", "[redacted]");
    check(VALUE, "s3cr3t%2ft0ken%2b%22x%22", "[redacted]");
    check(VALUE, "s3cr3t/t0ken+%22x%22", "[redacted]");
    let every: String = VALUE.iter().map(|b| format!("%{b:02x}")).collect();
    check(VALUE, &every, "[redacted]");
    check(VALUE, &every.to_uppercase(), "[redacted]");
    check(VALUE, r#"{"a":"s3cr3t/t0ken+\"x\""}"#, r#"{"a":"[redacted]"}"#);
    check(VALUE, r#"{"a":"s3cr3t\/t0ken+\"x\""}"#, r#"{"a":"[redacted]"}"#);
    check("pässword\n".as_bytes(), r"p\u00e4ssword p\u00E4ssword pässword", "[redacted] [redacted] [redacted]");
    check(b"a secret with blanks", "q=a+secret+with+blanks&x", "q=[redacted]&x");
}

#[test]
fn base64_is_found_in_all_alignments_and_alphabets() {
    let value = b"\xfb\xff\xbe s3cret?>~~";
    for engine in [&STANDARD, &URL_SAFE] {
        for before in 0..6 {
            for after in 0..4 {
                let whole = [&b"user:x"[..before], value, &b"tail"[..after]].concat();
                let encoded = engine.encode(whole);
                let found = String::from_utf8(redacted(&redactor(&[value]), encoded.as_bytes())).unwrap();
                let rest = found.replacen(MARKER, "", 1);
                assert!(found.contains(MARKER) && rest.len() <= 8 + 2 + 6 + 2, "{encoded} became {found}");
            }
        }
    }
    // What basic authentication sends.
    let header = format!("Authorization: Basic {}", STANDARD.encode("x-access-token:ghp_0123456789abcdef"));
    let found = redacted(&redactor(&[b"ghp_0123456789abcdef"]), header.as_bytes());
    assert!(!String::from_utf8(found).unwrap().contains("MDEyMzQ1Njc4OWFi"));
}

#[test]
fn a_line_end_at_the_end_of_a_value_does_not_matter() {
    for value in [&b"s3cr3tvalue"[..], b"s3cr3tvalue\n", b"s3cr3tvalue\r\n\n"] {
        check(value, "got s3cr3tvalue.", "got [redacted].");
        check(value, &hex::encode(b"s3cr3tvalue\n"), "[redacted]0a");
        assert!(redacted(&redactor(&[value]), STANDARD.encode(b"s3cr3tvalue\n").as_bytes()).starts_with(b"[redacted]"));
    }
}

/// A key of many lines, as it is kept in files.
fn long_value() -> Vec<u8> {
    let body: Vec<u8> = (0..1200_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let lines: Vec<String> =
        STANDARD.encode(body).as_bytes().chunks(64).map(|l| String::from_utf8_lossy(l).into_owned()).collect();
    format!("-----BEGIN KEY-----\n{}\n-----END KEY-----\n", lines.join("\n")).into_bytes()
}

#[test]
fn a_long_value_is_found_whole_in_parts_and_in_lines() {
    let value = long_value();
    let redactor = redactor(&[&value]);
    assert_eq!(redacted(&redactor, &value), b"[redacted]\n");
    // Indented, as in a configuration file: only short lines are left.
    let indented: Vec<u8> = value.split(|b| *b == b'\n').flat_map(|l| [b"    ", l, b"\n"].concat()).collect();
    let left = String::from_utf8(redacted(&redactor, &indented)).unwrap();
    assert!(left.lines().all(|line| line.trim().is_empty() || line.trim() == MARKER), "{left}");
    // In Base64, whole and in lines of both usual lengths.
    let encoded = STANDARD.encode(&value[..value.len() - 1]);
    for width in [usize::MAX, 64, 76] {
        let wrapped = encoded.as_bytes().chunks(width.min(encoded.len())).collect::<Vec<_>>().join(&b'\n');
        let left = String::from_utf8(redacted(&redactor, &wrapped)).unwrap().replace(MARKER, "");
        assert!(left.replace('\n', "").len() < 20, "{width}: {left}");
    }
    // A part of it.
    let part = &value[200..500];
    let left = redacted(&redactor, part);
    assert!(left.len() < 150 + MARKER.len(), "{}", String::from_utf8_lossy(&left));
}

#[test]
fn overlapping_values_are_hidden_whole() {
    let both = redactor(&[b"abcdefgh", b"fghijklm"]);
    assert_eq!(redacted(&both, b"<abcdefghijklm>"), b"<[redacted]>");
    let nested = redactor(&[b"abcdefghijklm", b"defg"]);
    assert_eq!(redacted(&nested, b"<abcdefghijklm> defg"), b"<[redacted]> [redacted]");
    assert_eq!(redacted(&redactor(&[b"aaaaaa"]), &[b'a'; 1000]), b"[redacted]");
    assert_eq!(redacted(&redactor(&[b"aaaaaa"]), b"xxaaaaabxx"), b"xxaaaaabxx");
}

#[test]
fn short_values_are_found_from_four_bytes_on() {
    let mut builder = Redactor::builder();
    assert_eq!(builder.add(&reference("a"), &SecretValue::new(b"abc\n".to_vec()).unwrap()), Coverage::TooShort);
    assert_eq!(builder.add(&reference("b"), &SecretValue::new(b"1234".to_vec()).unwrap()), Coverage::Full);
    let redactor = Arc::new(builder.build().unwrap());
    assert_eq!(redacted(&redactor, b"pin 1234, abc"), b"pin [redacted], abc");
    assert!(Redactor::builder().build().unwrap().is_empty());
}

#[test]
fn what_was_found_is_counted_by_secret() {
    let redactor = redactor(&[b"first-value", b"second-value", b"third-value"]);
    let text = format!("first-value second-value first-value {}", hex::encode("first-value"));
    let (_, counts) = redactor.redact(text.as_bytes(), Mask::Marker).unwrap();
    assert_eq!(counts, [(reference("s0"), 3), (reference("s1"), 1)]);
    assert!(redactor.redact(b"nothing here", Mask::Marker).is_none());
    assert_eq!(redactor.contained(text.as_bytes()), [&reference("s0"), &reference("s1")]);
}

#[test]
fn lengths_can_stay() {
    let (text, _) = redactor(&[b"first-value"]).redact(b"a first-value b", Mask::SameLength).unwrap();
    assert_eq!(text, b"a *********** b");
}

#[test]
fn a_stream_that_was_cut_off_shows_no_beginning_of_a_value() {
    let redactor = redactor(&[b"a-rather-long-value"]);
    for (end, expect) in [(StreamEnd::Cut, "x [redacted]"), (StreamEnd::Whole, "x a-rather-long-")] {
        let (mut stream, mut out) = (RedactionStream::new(Arc::clone(&redactor), Mask::Marker), Vec::new());
        stream.push(b"x a-rather-long-", &mut out);
        assert_eq!(out, b"x ");
        stream.finish(end, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }
}

#[test]
fn what_cannot_be_a_value_is_passed_on_at_once() {
    let (mut stream, mut out) = (RedactionStream::new(redactor(&[b"a-rather-long-value"]), Mask::Marker), Vec::new());
    stream.push(b"login: ", &mut out);
    assert_eq!(out, b"login: ");
}

#[test]
fn json_documents_are_redacted_in_keys_and_values() {
    let redactor = redactor(&[b"s3cret-value", b"12345678"]);
    let mut document = serde_json::json!({
        "s3cret-value": ["x s3cret-value y", { "a": null, "b": 12_345_678, "c": 12 }],
        "other": true,
    });
    let counts = redactor.redact_json(&mut document);
    assert_eq!(document["[redacted]"][0], "x [redacted] y");
    assert_eq!(document["[redacted]"][1]["b"], "[redacted]");
    assert_eq!(document["[redacted]"][1]["c"], 12);
    assert_eq!(counts, [(reference("s0"), 2), (reference("s1"), 1)]);
}

/// What must be hidden, found the slow way.
fn naive(redactor: &Redactor, text: &[u8]) -> Vec<bool> {
    let mut hidden = vec![false; text.len()];
    for piece in &redactor.pieces {
        for start in 0..text.len() {
            if text[start..].starts_with(&piece.bytes) {
                hidden[start..start + piece.bytes.len()].fill(true);
            }
        }
    }
    hidden
}

fn streamed(redactor: &Arc<Redactor>, text: &[u8], cuts: &[usize], mask: Mask) -> (Vec<u8>, Redactions) {
    let (mut stream, mut out) = (RedactionStream::new(Arc::clone(redactor), mask), Vec::new());
    let mut rest = text;
    for cut in cuts {
        let (chunk, after) = rest.split_at((*cut).min(rest.len()));
        stream.push(chunk, &mut out);
        rest = after;
    }
    stream.push(rest, &mut out);
    stream.finish(StreamEnd::Whole, &mut out);
    (out, stream.redactions())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Few letters make overlaps and near misses likely.
    #[test]
    fn exactly_the_values_are_hidden_however_the_text_is_cut(
        values in prop::collection::vec("[ab/]{4,20}", 1..6),
        text in "[ab/]{0,120}",
        cuts in prop::collection::vec(0_usize..20, 0..8),
    ) {
        let values: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
        let redactor = redactor(&values);
        let hidden = naive(&redactor, text.as_bytes());
        let expect: Vec<u8> = text.bytes().zip(&hidden).map(|(b, hidden)| if *hidden { b'*' } else { b }).collect();
        let (found, counts) = streamed(&redactor, text.as_bytes(), &cuts, Mask::SameLength);
        prop_assert_eq!(String::from_utf8(found).unwrap(), String::from_utf8(expect).unwrap());
        let whole = streamed(&redactor, text.as_bytes(), &[], Mask::Marker);
        prop_assert_eq!(&streamed(&redactor, text.as_bytes(), &cuts, Mask::Marker), &whole);
        prop_assert_eq!(counts, whole.1);
    }

    #[test]
    fn a_value_is_found_in_whatever_surrounds_it(
        value in prop::collection::vec(any::<u8>(), 4..200),
        before in prop::collection::vec(any::<u8>(), 0..60),
        after in prop::collection::vec(any::<u8>(), 0..60),
        cuts in prop::collection::vec(0_usize..50, 0..8),
    ) {
        prop_assume!(value.iter().filter(|b| !matches!(b, b'\r' | b'\n')).count() >= 4);
        prop_assume!(!matches!(value.last(), Some(b'\r' | b'\n')));
        let redactor = redactor(&[&value]);
        let forms = [value.clone(), hex::encode(&value).into_bytes(), STANDARD.encode(&value).into_bytes()];
        for form in forms {
            let text = [&before[..], &form, &after].concat();
            let (found, counts) = streamed(&redactor, &text, &cuts, Mask::SameLength);
            prop_assert!(!counts.is_empty());
            // At most the last characters of Base64 show, which are shared with what follows.
            let shown = found[before.len()..before.len() + form.len()].iter().filter(|b| **b != b'*').count();
            prop_assert!(shown <= 4, "{} of {} shown", shown, form.len());
        }
    }
}

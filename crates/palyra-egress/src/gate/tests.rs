//! Gates give the same result however the bytes are cut, and nothing passes an end.

use super::super::tls_hello::tests::{greeting, name_extension};
use super::*;
use proptest::prelude::*;

/// Feeds `input` in pieces of `size`; what went through, and how it ended.
fn run(mut gate: Gate, input: &[u8], size: usize) -> (Vec<u8>, Result<Step, Shut>) {
    let mut out = Vec::new();
    for piece in input.chunks(size.max(1)) {
        match gate.feed(piece, &mut out) {
            Ok(Step::More) => {}
            ended => return (out, ended),
        }
    }
    (out, Ok(Step::More))
}

fn chunked() -> Gate {
    Gate::Body(Body::new(Framing::Chunked).unwrap())
}

/// The data of a chunked body that we wrote ourselves.
fn unchunk(mut bytes: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    while let Some(at) = bytes.iter().position(|b| *b == b'\r') {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..at]).unwrap(), 16).unwrap();
        data.extend_from_slice(&bytes[at + 2..at + 2 + size]);
        assert_eq!(&bytes[at + 2 + size..at + 4 + size], b"\r\n");
        bytes = &bytes[at + 4 + size..];
    }
    data
}

#[test]
fn nothing_passes_the_end_of_a_body() {
    let (out, end) = run(Gate::Body(Body::Length(3)), b"abcGET http://b.test/ HTTP/1.1\r\n\r\n", 100);
    assert_eq!((out.as_slice(), end), (&b"abc"[..], Ok(Step::End)));
    for size in 1..40 {
        let (out, end) =
            run(chunked(), b"3\r\nabc\r\n00A\r\n0123456789\r\n0\r\n\r\nGET http://b.test/ HTTP/1.1\r\n\r\n", size);
        assert_eq!(end, Ok(Step::End));
        assert!(out.ends_with(b"\r\n0\r\n\r\n"));
        assert_eq!(unchunk(&out[..out.len() - 5]), b"abc0123456789");
    }
}

#[test]
fn chunks_have_one_form() {
    for bad in [
        "3;a=b\r\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n",
        "3\nabc\r\n",
        "3\r\nabcd\r\n",
        "3\r\nabc\n",
        "\r\n",
        "0x3\r\nabc\r\n",
        "-1\r\n",
        "+3\r\nabc",
        "0\r\nX: y\r\n\r\n",
        "0\r\n\n",
        "g\r\n",
        "fffffffffffffffff\r\n",
        "3\r\rabc",
    ] {
        for size in [1, 2, 100] {
            assert!(matches!(run(chunked(), bad.as_bytes(), size).1, Err(Shut::Request(_))), "{bad:?}");
        }
    }
    assert_eq!(run(chunked(), b"3\r\nab", 1).1, Ok(Step::More));
    assert!(chunked().finish().is_err());
}

#[test]
fn an_answer_is_rewritten_and_its_body_passes() {
    let input = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: keep-alive\r\n\r\nbody\0";
    for size in 1..80 {
        let mut gate = Gate::Answer(AnswerHead::to("GET"));
        let mut out = Vec::new();
        let mut open = false;
        for piece in input.chunks(size) {
            if open {
                out.extend_from_slice(piece);
            } else {
                open = gate.feed(piece, &mut out).unwrap() == Step::Pass;
            }
        }
        assert_eq!(out, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nconnection: close\r\n\r\nbody\0", "{size}");
    }
    let switch = run(Gate::Answer(AnswerHead::to("GET")), b"HTTP/1.1 101 Switching\r\n\r\n", 9).1;
    assert!(matches!(switch, Err(Shut::Answer(_))));
    let flood = [b"HTTP/1.1 200 OK\r\n".to_vec(), vec![b'x'; MAX_ANSWER_HEAD]].concat();
    assert!(matches!(run(Gate::Answer(AnswerHead::to("GET")), &flood, 4096).1, Err(Shut::Answer(_))));
    let interim = b"HTTP/1.1 102 x\r\n\r\n".repeat(9);
    assert!(matches!(run(Gate::Answer(AnswerHead::to("GET")), &interim, 4096).1, Err(Shut::Answer(_))));
}

#[test]
fn a_greeting_for_another_host_is_stopped_and_nothing_went_through() {
    let gate = || Gate::Hello(Hello::new(Host::parse("example.org").unwrap()));
    let same = greeting(&name_extension("Example.org"), 50);
    let other = greeting(&name_extension("other.test"), 50);
    let nameless = greeting(&[], 50);
    for size in [1, 7, 1000] {
        assert_eq!(run(gate(), &other, size), (vec![], Err(Shut::OtherHost("other.test".into()))));
        for fine in [&same, &nameless] {
            let (out, end) = run(gate(), fine, size);
            assert_eq!((out.as_slice(), end), (&fine[..out.len()], Ok(Step::Pass)));
        }
    }
    assert_eq!(run(gate(), b"SSH-2.0-x\r\n", 100), (b"SSH-2.0-x\r\n".to_vec(), Ok(Step::Pass)));
    assert_eq!(run(gate(), &[0x16, 3, 1, 0, 0, 0], 1).1, Err(Shut::BadHello));
    let address = Gate::Hello(Hello::new(Host::parse("127.0.0.1").unwrap()));
    assert_eq!(run(address, &other, 9).1, Ok(Step::Pass));
}

proptest! {
    #[test]
    fn cutting_changes_nothing(input in "[0-9a-f]{0,2}(\r\n)?[a-z]{0,4}(\r\n)?0?\r?\n?\r?\n?[A-Z]{0,3}", size in 1usize..8) {
        let (whole, by_piece) = (run(chunked(), input.as_bytes(), 1000), run(chunked(), input.as_bytes(), size));
        prop_assert_eq!(&whole.1, &by_piece.1);
        if whole.1 == Ok(Step::End) {
            prop_assert_eq!(unchunk(&whole.0[..whole.0.len() - 5]), unchunk(&by_piece.0[..by_piece.0.len() - 5]));
        }
    }
}

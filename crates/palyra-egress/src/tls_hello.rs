//! The first words of TLS: for whom a greeting is meant.
//!
//! A tunnel to an allowed host of a large provider can be used to speak to any other customer of that provider, by
//! putting that one's name into the greeting. So the name is compared with the tunnel's host. A greeting with an
//! encrypted inner one is judged by the name it shows outside. Nothing here is decrypted, and nothing is taken on
//! trust: a greeting that cannot be read is refused.

/// How much of a greeting is held back at most.
pub(super) const MAX_HELLO: usize = 32 * 1024;

/// What the first bytes of a stream are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Greeting {
    /// Not enough of it yet.
    More,
    /// Something other than TLS.
    NotTls,
    /// TLS, for the host named, if any.
    For(Option<String>),
    /// It begins as TLS and goes on as something else.
    Bad,
}

/// Reads a TLS ClientHello from the beginning of a stream. Whatever looks like TLS has to begin with one: the types of
/// its records are 20 to 24, its versions 3.x.
pub(super) fn read_greeting(bytes: &[u8]) -> Greeting {
    match bytes {
        [] | [20..=24] => return Greeting::More,
        [0x16, 0x03, ..] => {}
        // Servers pass over an alert or a change of ciphers and answer the greeting behind it.
        [20..=24, 0x03, ..] => return Greeting::Bad,
        _ => return Greeting::NotTls,
    }
    match handshake(bytes) {
        Ok(None) => Greeting::More,
        Ok(Some(message)) => match client_hello(&message) {
            Some(name) => Greeting::For(name),
            None => Greeting::Bad,
        },
        Err(NotAGreeting) => Greeting::Bad,
    }
}

struct NotAGreeting;

/// Puts the first handshake message together from its records; nothing while it is not whole.
fn handshake(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, NotAGreeting> {
    let mut message = Vec::new();
    loop {
        let Some((header, rest)) = bytes.split_at_checked(5) else {
            // As far as it is there, the header has to be one of a handshake.
            let begins = bytes.iter().zip([0x16, 0x03]).all(|(found, expected)| *found == expected);
            return if begins { Ok(None) } else { Err(NotAGreeting) };
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if header[..2] != [0x16, 0x03] || length == 0 || length > 16 * 1024 {
            return Err(NotAGreeting);
        }
        message.extend_from_slice(&rest[..length.min(rest.len())]);
        if let [kind, a, b, c, ..] = message[..] {
            let whole = 4 + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
            if kind != 1 || whole > MAX_HELLO {
                return Err(NotAGreeting);
            }
            if message.len() >= whole {
                message.truncate(whole);
                return Ok(Some(message));
            }
        }
        let Some(next) = rest.get(length..) else { return Ok(None) };
        bytes = next;
    }
}

/// A reader that never goes past the end.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<usize> {
        self.take(1).map(|bytes| usize::from(bytes[0]))
    }

    fn u16(&mut self) -> Option<usize> {
        self.take(2).map(|bytes| usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    }
}

/// The name in a ClientHello, or that there is none; nothing when it cannot be read.
#[expect(clippy::option_option, reason = "unreadable and nameless are two things")]
fn client_hello(message: &[u8]) -> Option<Option<String>> {
    let mut hello = Cursor(message.get(4..)?);
    hello.take(2 + 32)?;
    let session = hello.u8()?;
    hello.take(session)?;
    let suites = hello.u16()?;
    hello.take(suites)?;
    let compressions = hello.u8()?;
    hello.take(compressions)?;
    if hello.0.is_empty() {
        return Some(None);
    }
    let length = hello.u16()?;
    let mut extensions = Cursor(hello.take(length)?);
    if !hello.0.is_empty() {
        return None;
    }
    let mut name = None;
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let length = extensions.u16()?;
        let body = extensions.take(length)?;
        if kind == 0 && name.replace(server_name(body)?).is_some() {
            return None;
        }
    }
    Some(name)
}

/// The one host name of a server_name extension.
fn server_name(body: &[u8]) -> Option<String> {
    let mut body = Cursor(body);
    let length = body.u16()?;
    let mut list = Cursor(body.take(length)?);
    let kind = list.u8()?;
    let length = list.u16()?;
    let name = list.take(length)?;
    let whole = body.0.is_empty() && list.0.is_empty() && kind == 0;
    String::from_utf8(name.to_vec()).ok().filter(|name| whole && !name.is_empty())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with_length(width: usize, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32).to_be_bytes();
        [&length[4 - width..], body].concat()
    }

    pub(in super::super) fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        [kind.to_be_bytes().to_vec(), with_length(2, body)].concat()
    }

    pub(in super::super) fn name_extension(name: &str) -> Vec<u8> {
        let entry = [vec![0], with_length(2, name.as_bytes())].concat();
        extension(0, &with_length(2, &entry))
    }

    /// A ClientHello with these extensions, cut into records of this size.
    pub(in super::super) fn greeting(extensions: &[u8], record: usize) -> Vec<u8> {
        let body = [
            vec![3, 3],
            vec![7; 32],
            with_length(1, &[9; 32]),
            with_length(2, &[0x13, 1]),
            with_length(1, &[0]),
            with_length(2, extensions),
        ]
        .concat();
        let message = [vec![1], with_length(3, &body)].concat();
        let records = message.chunks(record).map(|part| [vec![0x16, 3, 1], with_length(2, part)].concat());
        records.collect::<Vec<_>>().concat()
    }

    #[test]
    fn the_name_is_found_however_the_greeting_is_cut() {
        let more = extension(0xfe0d, &[1, 2, 3]);
        for record in [1, 3, 7, 100, 16000] {
            let bytes = greeting(&[more.clone(), name_extension("example.org")].concat(), record);
            assert_eq!(read_greeting(&bytes), Greeting::For(Some("example.org".into())));
            for cut in 0..bytes.len() {
                assert_eq!(read_greeting(&bytes[..cut]), Greeting::More, "{record} {cut}");
            }
        }
        assert_eq!(read_greeting(&greeting(&more, 500)), Greeting::For(None));
    }

    #[test]
    fn no_other_record_comes_before_a_greeting() {
        let hello = greeting(&name_extension("b.test"), 500);
        for (before, what) in [
            (&[0x15, 3, 1, 0, 2, 1, 0x5a][..], "a warning"),
            (&[0x14, 3, 3, 0, 1, 1][..], "a change of ciphers"),
            (&[0x17, 3, 3, 0, 1, 0][..], "data"),
            (&[0x18, 3, 1, 0, 3, 1, 0, 0][..], "a heartbeat"),
            (&[0x15, 3, 9, 0, 0][..], "nothing, in a version that does not exist"),
        ] {
            let bytes = [before, &hello].concat();
            assert_eq!(read_greeting(&bytes[..1]), Greeting::More, "{what}");
            for length in 2..bytes.len() {
                assert_eq!(read_greeting(&bytes[..length]), Greeting::Bad, "{what} {length}");
            }
        }
        assert_eq!(read_greeting(&[0x15, 4]), Greeting::NotTls);
        assert_eq!(read_greeting(&[0x13, 3]), Greeting::NotTls);
    }

    #[test]
    fn what_is_no_greeting_is_refused_or_let_be() {
        assert_eq!(read_greeting(b"GET / HTTP/1.1\r\n"), Greeting::NotTls);
        assert_eq!(read_greeting(b"SSH-2.0"), Greeting::NotTls);
        assert_eq!(read_greeting(&[0x16, 3, 1, 0, 0]), Greeting::Bad);
        assert_eq!(read_greeting(&[0x16, 3, 1, 0x40, 1]), Greeting::Bad);
        let twice = [name_extension("a.test"), name_extension("b.test")].concat();
        assert_eq!(read_greeting(&greeting(&twice, 500)), Greeting::Bad);
        let mut alert_between = greeting(&name_extension("a.test"), 20);
        alert_between[25] = 0x15;
        assert_eq!(read_greeting(&alert_between), Greeting::Bad);
        assert_eq!(read_greeting(&greeting(&extension(0, &[0, 9, 0]), 500)), Greeting::Bad);
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200), record in 19u8..26) {
            let bytes = if record < 25 { [vec![record, 3, 1], bytes].concat() } else { bytes };
            super::super::fuzzing::greeting(&bytes);
        }

        #[test]
        fn a_changed_greeting_never_shows_two_names(at in 0usize..120, byte: u8) {
            let mut bytes = greeting(&name_extension("example.org"), 500);
            let at = at % bytes.len();
            bytes[at] = byte;
            // Whatever it has become, it is read the same way twice.
            prop_assert_eq!(read_greeting(&bytes), read_greeting(&bytes));
        }
    }
}

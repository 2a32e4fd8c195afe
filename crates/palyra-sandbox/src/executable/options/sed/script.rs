//! Whether a sed script executes anything.
//!
//! A script is read exactly, or it is not let pass. Where the seds of this world differ, it is read in every way that one of them
//! might: whether a delimiter ends a pattern inside brackets, and what a backslash and a class such as `[:alpha:]` mean there.

/// What a script comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It executes nothing.
    Harmless,
    /// Sed refuses it before it does anything.
    Fails,
    /// It is not known how sed would read it.
    Unclear,
    /// It has an `e` command or flag.
    Executes,
}

/// What brackets mean to a sed that looks for the end of a pattern.
#[derive(Debug, Clone, Copy)]
struct Brackets {
    /// A delimiter between them is like any other character.
    shield: bool,
    /// `[:`, `[.` and `[=` begin something that has an end of its own.
    classes: bool,
    /// A backslash takes the next character along.
    escapes: bool,
}

/// Judges a script by the worst that any sed would make of it.
pub(super) fn judge(script: &str) -> Verdict {
    let truths = [false, true];
    let inside = truths.iter().flat_map(|classes| truths.iter().map(move |escapes| (*classes, *escapes)));
    let shielding = inside.map(|(classes, escapes)| Brackets { shield: true, classes, escapes });
    let plain = Brackets { shield: false, classes: false, escapes: true };
    let verdicts = shielding.chain([plain]).map(|brackets| {
        let mut reader = Reader { bytes: script.as_bytes(), at: 0, brackets };
        reader.script().err().unwrap_or(Verdict::Harmless)
    });
    let severity = |verdict: &Verdict| match verdict {
        Verdict::Fails => 0,
        Verdict::Harmless => 1,
        Verdict::Unclear => 2,
        Verdict::Executes => 3,
    };
    verdicts.max_by_key(severity).unwrap_or(Verdict::Unclear)
}

/// One reading of a script. What ends it early is the verdict.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    brackets: Brackets,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
    }

    fn script(&mut self) -> Result<(), Verdict> {
        loop {
            self.skip(|byte| is_blank(byte) || matches!(byte, b'\n' | b';'));
            let begins = self.at == 0;
            self.addresses()?;
            let Some(command) = self.peek() else { return Ok(()) };
            self.at += 1;
            match command {
                b'e' => return Err(Verdict::Executes),
                b's' => self.substitution()?,
                b'y' => {
                    let delimiter = self.delimiter()?;
                    self.delimited(delimiter, false)?;
                    self.delimited(delimiter, false)?;
                    self.end_of_command()?;
                }
                b'a' | b'i' | b'c' => self.text()?,
                b'r' | b'R' | b'w' | b'W' | b'#' => self.skip(|byte| byte != b'\n'),
                b'b' | b't' | b'T' | b':' => {
                    self.skip(is_blank);
                    self.skip(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'));
                    self.end_of_command()?;
                }
                b'l' | b'L' | b'q' | b'Q' | b'v' => {
                    self.skip(is_blank);
                    self.skip(|byte| byte.is_ascii_digit() || byte == b'.');
                    self.end_of_command()?;
                }
                b'{' => {}
                b'=' | b'd' | b'D' | b'F' | b'g' | b'G' | b'h' | b'H' | b'n' | b'N' | b'p' | b'P' | b'x' | b'z'
                | b'}' => self.end_of_command()?,
                // At the very beginning nothing can have been misread.
                _ if begins => return Err(Verdict::Fails),
                _ => return Err(Verdict::Unclear),
            }
        }
    }

    /// Line numbers, patterns, what stands between them, and `!`.
    fn addresses(&mut self) -> Result<(), Verdict> {
        while let Some(byte) = self.peek() {
            match byte {
                b'/' => {
                    self.at += 1;
                    self.delimited(b'/', true)?;
                }
                b'\\' => {
                    self.at += 1;
                    let delimiter = self.delimiter()?;
                    self.delimited(delimiter, true)?;
                }
                b'I' | b'M' | b'$' | b',' | b'~' | b'+' | b'!' | b'0'..=b'9' => self.at += 1,
                byte if is_blank(byte) => self.at += 1,
                _ => break,
            }
        }
        Ok(())
    }

    fn delimiter(&mut self) -> Result<u8, Verdict> {
        let delimiter = self.peek().ok_or(Verdict::Fails)?;
        self.at += 1;
        let usual = delimiter == b' ' || delimiter.is_ascii_graphic();
        if usual && !matches!(delimiter, b'\\' | b'[' | b']') { Ok(delimiter) } else { Err(Verdict::Unclear) }
    }

    /// Goes past the next delimiter that ends something.
    fn delimited(&mut self, delimiter: u8, is_pattern: bool) -> Result<(), Verdict> {
        loop {
            let byte = self.peek().ok_or(Verdict::Fails)?;
            self.check_character(delimiter)?;
            self.at += 1;
            match byte {
                _ if byte == delimiter => return Ok(()),
                b'\n' => return Err(Verdict::Unclear),
                b'\\' => self.at += 1,
                b'[' if is_pattern && self.brackets.shield => self.bracket(delimiter)?,
                _ => {}
            }
        }
    }

    /// Goes past the bracket that closes the one before.
    fn bracket(&mut self, delimiter: u8) -> Result<(), Verdict> {
        if self.peek() == Some(b'^') {
            self.at += 1;
        }
        if self.peek() == Some(b']') {
            self.at += 1;
        }
        loop {
            let byte = self.peek().ok_or(Verdict::Fails)?;
            self.check_character(delimiter)?;
            self.at += 1;
            match (byte, self.peek()) {
                (b']', _) => return Ok(()),
                (b'\n', _) => return Err(Verdict::Unclear),
                (b'\\', Some(b'\n')) => return Err(Verdict::Unclear),
                (b'\\', Some(_)) if self.brackets.escapes => self.at += 1,
                (b'[', Some(kind @ (b':' | b'.' | b'='))) if self.brackets.classes => {
                    let rest = &self.bytes[self.at + 1..];
                    let length = rest.windows(2).position(|pair| pair == [kind, b']']).ok_or(Verdict::Fails)?;
                    if rest[..length].contains(&b'\n') {
                        return Err(Verdict::Unclear);
                    }
                    self.at += 1 + length + 2;
                }
                _ => {}
            }
        }
    }

    /// In some character sets what follows a byte that is not ASCII may belong to it.
    fn check_character(&self, delimiter: u8) -> Result<(), Verdict> {
        let Some(byte) = self.peek() else { return Ok(()) };
        let matters = byte == delimiter || matches!(byte, b'\\' | b'[' | b']');
        let follows = self.at.checked_sub(1).and_then(|before| self.bytes.get(before)).is_some_and(|b| !b.is_ascii());
        if matters && follows && byte >= b'0' { Err(Verdict::Unclear) } else { Ok(()) }
    }

    fn substitution(&mut self) -> Result<(), Verdict> {
        let delimiter = self.delimiter()?;
        self.delimited(delimiter, true)?;
        self.delimited(delimiter, false)?;
        while let Some(flag) = self.peek() {
            match flag {
                b'e' => return Err(Verdict::Executes),
                b'w' => {
                    self.skip(|byte| byte != b'\n');
                    return Ok(());
                }
                b'g' | b'p' | b'i' | b'I' | b'm' | b'M' | b'0'..=b'9' => self.at += 1,
                flag if is_blank(flag) => self.at += 1,
                b';' | b'}' | b'#' | b'\n' => return Ok(()),
                _ => return Err(Verdict::Fails),
            }
        }
        Ok(())
    }

    /// The text of `a`, `i` and `c`: to the first line that does not end in a backslash.
    fn text(&mut self) -> Result<(), Verdict> {
        self.skip(is_blank);
        if self.peek() == Some(b'\\') {
            self.at += 1;
            if self.peek() == Some(b'\n') {
                self.at += 1;
            } else {
                self.skip(is_blank);
                let next = (self.peek(), self.bytes.get(self.at + 1).copied());
                if matches!(next, (None | Some(b'\n'), _) | (Some(b'\\'), None | Some(b'\n'))) {
                    return Err(Verdict::Unclear);
                }
            }
        } else if matches!(self.peek(), None | Some(b'\n' | b'}')) {
            return Err(Verdict::Unclear);
        }
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'\n' {
                break;
            }
        }
        Ok(())
    }

    /// A command without an end is followed by something that is not known.
    fn end_of_command(&mut self) -> Result<(), Verdict> {
        self.skip(is_blank);
        if matches!(self.peek(), None | Some(b';' | b'\n' | b'}' | b'#')) { Ok(()) } else { Err(Verdict::Unclear) }
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_cut_anywhere_do_not_confuse_the_reader() {
        for script in ["1,/a\\/b/{s,x\\,y,z,gw f\n}; $!e id", "s/[^]a[:alpha:]\\]/[\\n/g;a\\\n  x\\\ny\ny/a/b/"] {
            for length in 0..=script.len() {
                let _answer = judge(&script[..length]);
            }
        }
    }

    #[test]
    fn what_executes_is_found() {
        for script in [
            "e",
            "1e id",
            "/a/,/b/{s,x,y,ge}",
            "$!e id",
            "/[/]/e id",
            "\\,[,],e id",
            "s/[^/]l/;/;e id",
            "s/a[/b]/X/;e id",
            "s/[a\\]b/]/e",
            "s/[]/]/x/;e id",
            "s/[^]/]/x/;e id",
            "s/[[:/]/x/;e id",
            "s/[[:alpha:]/]/x/;e id",
            "s,[,],x,e",
            "s/\\[/]/;e id",
            "s/a/b/ e",
            "s/a/[/e",
            "y/[/]/;e id",
            "a\\\nfoo\ne id",
            "a foo\ne id",
            "a\\foo\\\\\ne id",
            "i\\  foo\ne id",
            "w out\ne id",
            "b;e id",
            "1{bx};e id",
            "1q5;e id",
            "s/a/b/w f\ne id",
            "# a\ne id",
        ] {
            assert_eq!(judge(script), Verdict::Executes, "{script:?}");
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_unclear() {
        for script in [
            "a\\\\\ne id",
            "a\\  \ne id",
            "a\ne id",
            "1{b x y}",
            ":a b;e id",
            "p p",
            "s/a\nb/x/",
            "s[a[b[",
            "s\\a\\b\\",
            "sßaßbß",
            "p;k",
            "s|ä|x|",
            "s/[ä\\/]/x/",
        ] {
            assert_eq!(judge(script), Verdict::Unclear, "{script:?}");
        }
    }

    #[test]
    fn ordinary_scripts_pass() {
        for script in [
            "",
            "p",
            "1,20p",
            "s/one/three/g",
            "s/[^/]*$//",
            "s/[\\/]/x/",
            "s/.*\\/\\([^/]*\\)$/\\1/p",
            "s/a,e/b,e/g",
            "/^#/d;s/[a-e]/x/2w out",
            "s|a/e|b/e|",
            "s/ä/ae/g",
            "y/abc/def/",
            "$!N;P;D",
            ":a;N;$!ba;s/\\n/ /g",
            "/start/,/end/{ /x/!d; s/e/f/ }",
            "/x/a\\\nextra line\\\nelse",
            "/x/a extra",
            "/x/i\\    extra",
            "1i\\\\tx",
            "s/a/b\\\nc/",
            "1~2p;2,~4p;1,+1p",
            "2q;d",
            "/a/I,/b/Mp",
            "s/\\(e\\)\\{2\\}/[&]/",
            "# everything",
        ] {
            assert!(matches!(judge(script), Verdict::Harmless | Verdict::Fails), "{script:?}: {:?}", judge(script));
        }
        assert_eq!(judge("file.txt"), Verdict::Fails);
        assert_eq!(judge("s/a/b/X"), Verdict::Fails);
    }
}

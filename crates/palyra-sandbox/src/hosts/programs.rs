//! Where well-known programs take a host, and which of their short options have a value that is none.
//!
//! For the approval card and the facts that rules see. A program that is not here is read like any other: URLs,
//! `user@host:path` and `host:port` are found in its words, a bare name is not; nor is one right behind a long option,
//! whose value it may be.

/// What a program's plain words are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// URLs, with or without a scheme.
    Urls,
    /// A URL, after a method perhaps; what follows is sent there.
    UrlThenItems,
    /// A host, then something else.
    HostFirst,
    /// Hosts, all of them.
    Hosts,
    /// `host:path` where they are elsewhere, paths where they are here.
    Places,
    /// `TCP:host:port` and the like.
    Sockets,
    /// Nothing of the kind: only options name a host.
    Others,
}

/// A program that reaches other hosts.
#[derive(Debug)]
pub(super) struct Program {
    names: &'static [&'static str],
    pub(super) words: Words,
    /// Short options with a value that is no host.
    pub(super) valued: &'static str,
    /// Options whose value is a host or URL.
    pub(super) hosts: &'static [&'static str],
}

const NOTHING: Program = Program { names: &[], words: Words::Others, valued: "", hosts: &[] };

const PROGRAMS: &[Program] = &[
    Program {
        names: &["curl"],
        words: Words::Urls,
        valued: "AbCcDdEeFHhKmoPQrTtUuwXYyz",
        hosts: &[
            "-x",
            "--proxy",
            "--preproxy",
            "--proxy1.0",
            "--socks4",
            "--socks4a",
            "--socks5",
            "--socks5-hostname",
            "--url",
            "--doh-url",
        ],
    },
    Program { names: &["wget", "wget2"], words: Words::Urls, valued: "aABDeIiloOPQRtTUwX", hosts: &["-B", "--base"] },
    Program {
        names: &["aria2c"],
        words: Words::Urls,
        valued: "dijklmoOstTMx",
        hosts: &["--all-proxy", "--http-proxy", "--https-proxy", "--ftp-proxy"],
    },
    Program {
        names: &["http", "https", "xh", "xhs"],
        words: Words::UrlThenItems,
        valued: "aoApPs",
        hosts: &["--proxy"],
    },
    Program { names: &["lynx", "w3m", "links", "elinks"], words: Words::Urls, valued: "TIOtlo", ..NOTHING },
    Program { names: &["ssh", "slogin"], words: Words::HostFirst, valued: "BbcDEeFIiLlmOoPpQRSWw", hosts: &["-J"] },
    Program { names: &["scp"], words: Words::Places, valued: "cDFiloPSX", hosts: &["-J"] },
    Program { names: &["sftp"], words: Words::HostFirst, valued: "BbcDFilloPRSsX", hosts: &["-J"] },
    Program { names: &["rsync"], words: Words::Places, valued: "efBMT", ..NOTHING },
    Program {
        names: &["nc", "ncat", "netcat"],
        words: Words::HostFirst,
        valued: "IiMmOoPpqsTVWwXbegGDtd",
        hosts: &["-x", "--proxy"],
    },
    Program {
        names: &["telnet", "ftp", "tnftp", "lftp", "rlogin", "rsh", "finger"],
        words: Words::HostFirst,
        valued: "abelnSXkpu",
        ..NOTHING
    },
    Program {
        names: &["ping", "ping6", "traceroute", "traceroute6", "tracepath", "mtr", "nmap", "arping", "fping"],
        words: Words::Hosts,
        valued: "cFIilMmpQqSsTtwWnz",
        ..NOTHING
    },
    Program {
        names: &["dig", "host", "nslookup", "whois", "drill", "kdig"],
        words: Words::Hosts,
        valued: "bcfkpqtyxRWNm",
        hosts: &["-h"],
    },
    Program { names: &["socat"], words: Words::Sockets, ..NOTHING },
    Program { names: &["openssl"], hosts: &["-connect", "-proxy", "-host"], ..NOTHING },
    Program {
        names: &[
            "psql",
            "pg_dump",
            "pg_restore",
            "pg_isready",
            "createdb",
            "dropdb",
            "mysql",
            "mariadb",
            "mysqldump",
            "redis-cli",
            "mongosh",
            "mongo",
        ],
        hosts: &["-h", "--host"],
        ..NOTHING
    },
];

/// What is known of a program, by its base name.
pub(super) fn program(name: &str) -> Option<&'static Program> {
    PROGRAMS.iter().find(|program| program.names.contains(&name))
}

/// What a word of a command line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// An option, or the value of one that is no host.
    Option,
    /// The value of an option, which is a host or URL.
    Host(&'a str),
    /// Neither.
    Plain(&'a str),
}

impl Program {
    /// Tells the words after the program's name apart.
    pub(super) fn words<'a>(&self, arguments: &'a [String]) -> Vec<Word<'a>> {
        let mut words = Vec::with_capacity(arguments.len());
        let (mut value_of, mut all_plain): (Option<Value>, bool) = (None, false);
        for argument in arguments {
            words.push(match value_of.take() {
                Some(Value::Host) => Word::Host(argument),
                Some(Value::Other) => Word::Option,
                None if all_plain || !argument.starts_with('-') || argument == "-" => Word::Plain(argument),
                None if argument == "--" => {
                    all_plain = true;
                    Word::Option
                }
                None => {
                    let (word, following) = self.option(argument);
                    value_of = following;
                    word
                }
            });
        }
        words
    }

    /// What an option says itself, and what the word after it is, if that belongs to it.
    fn option<'a>(&self, option: &'a str) -> (Word<'a>, Option<Value>) {
        if self.hosts.contains(&option) {
            return (Word::Option, Some(Value::Host));
        }
        if let Some((name, value)) = option.split_once('=').filter(|_| option.starts_with("--")) {
            return (if self.hosts.contains(&name) { Word::Host(value) } else { Word::Option }, None);
        }
        if let Some(long) = option.strip_prefix("--") {
            // What follows may be its value or not; only what looks like a host anywhere is taken for one there.
            return (Word::Option, (!long.is_empty()).then_some(Value::Other));
        }
        for (at, letter) in option.char_indices().skip(1) {
            let rest = &option[at + letter.len_utf8()..];
            let is_host = self.hosts.iter().any(|host| host.strip_prefix('-') == Some(letter.encode_utf8(&mut [0; 4])));
            match (is_host, rest) {
                (true, "") => return (Word::Option, Some(Value::Host)),
                (true, value) => return (Word::Host(value), None),
                (false, rest) if self.valued.contains(letter) => {
                    return (Word::Option, rest.is_empty().then_some(Value::Other));
                }
                (false, _) => {}
            }
        }
        (Word::Option, None)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    Host,
    Other,
}

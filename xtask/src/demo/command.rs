//! A command as a person would type it: shown, run, its real output shown, its end checked.

use crate::quote::{quoted, without_colour};
use crate::shell::{Failure, Result, Trying as _};
use std::fs::File;
use std::io::{PipeReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A command that takes longer hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What is typed.
#[derive(Debug, Clone)]
pub struct Typed {
    words: Vec<String>,
    /// The file that standard output goes to.
    into: Option<&'static str>,
    reach: Reach,
}

/// Whom Ctrl-C reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// This command too, like any that is typed.
    Everybody,
    /// Not this command: half done it would leave something behind.
    Others,
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    typed: String,
    output: String,
}

/// A command that is running.
#[derive(Debug)]
pub struct Running {
    typed: String,
    pub child: Child,
    output: PipeReader,
}

/// Where commands are run.
#[derive(Debug)]
pub struct Terminal {
    command_dir: PathBuf,
    state_dir: PathBuf,
    dir: PathBuf,
    colour: bool,
}

/// The words of a command.
pub fn typed<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Typed {
    Typed { words: words.into_iter().map(Into::into).collect(), into: None, reach: Reach::Everybody }
}

impl Typed {
    /// Standard output goes to a file.
    pub fn into_file(self, name: &'static str) -> Self {
        Self { into: Some(name), ..self }
    }

    /// Ctrl-C lets it finish.
    pub fn undisturbed(self) -> Self {
        Self { reach: Reach::Others, ..self }
    }

    fn text(&self) -> String {
        let words: Vec<_> = self.words.iter().map(|word| quoted(word)).collect();
        let into = self.into.map_or_else(String::new, |file| format!(" > {file}"));
        words.join(" ") + &into
    }
}

impl Terminal {
    /// Programs of ours come from `command_dir`, files are made in `dir`.
    pub fn new(command_dir: &Path, dir: &Path, colour: bool) -> Self {
        Self { command_dir: command_dir.to_owned(), state_dir: dir.join("state"), dir: dir.to_owned(), colour }
    }

    /// Starts a command without showing it.
    pub fn start(&self, typed: &Typed, stdin: Stdio) -> Result<Running> {
        let text = typed.text();
        let Some((name, args)) = typed.words.split_first() else { return Err(Failure("nothing was typed".to_owned())) };
        let ours = self.command_dir.join(name);
        let (output, writer) = std::io::pipe().trying("making a pipe")?;
        let mut command = if ours.exists() { Command::new(ours) } else { Command::new(name) };
        command.args(args).current_dir(&self.dir).stdin(stdin);
        command.env("PALYRA_STATE_DIR", &self.state_dir).env_remove("PALYRA_CONFIG").env_remove("PALYRA_LOG");
        command.env("PALYRA_WORKSPACE", self.dir.join("workspace"));
        if typed.reach == Reach::Others {
            command.process_group(0);
        }
        if self.colour {
            command.env("CLICOLOR_FORCE", "1");
        }
        match typed.into {
            Some(file) => command.stdout(File::create(self.dir.join(file)).trying(format!("writing {file}"))?),
            None => command.stdout(writer.try_clone().trying("sharing a pipe")?),
        };
        let child = command.stderr(writer).spawn().trying(format!("`{text}` cannot be started"))?;
        // `command` holds the writing end; it goes here, so that the reader sees the end of the output.
        drop(command);
        Ok(Running { typed: text, child, output })
    }

    /// Shows a command, runs it, shows what it says, and checks how it ends.
    pub fn run(&self, typed: &Typed, exit: i32) -> Result<Ran> {
        self.run_with(typed, exit, Stdio::null())
    }

    /// The same with something on standard input.
    pub fn run_with(&self, typed: &Typed, exit: i32, stdin: Stdio) -> Result<Ran> {
        self.show(&typed.text());
        self.start(typed, stdin)?.finish(exit)
    }

    /// Shows a command that goes to the background and starts it.
    pub fn run_in_background(&self, typed: &Typed) -> Result<Running> {
        self.show(&format!("{} &", typed.text()));
        self.start(typed, Stdio::null())
    }

    /// Shows a command as it is typed.
    pub fn show(&self, text: &str) {
        if self.colour {
            println!("\n\u{1b}[1m$ {text}\u{1b}[0m");
        } else {
            println!("\n$ {text}");
        }
    }

    /// Tells in a sentence what comes next.
    pub fn tell(&self, sentence: &str) {
        println!("\n# {sentence}");
    }

    /// Begins a part.
    pub fn begin(&self, number: u8, name: &str) {
        let line = format!("── {number}. {name} ");
        let rule = "─".repeat(100_usize.saturating_sub(line.chars().count()));
        println!("\n\n{line}{rule}");
    }
}

impl Running {
    /// Waits for the end, shows the output, checks the exit code.
    pub fn finish(mut self, exit: i32) -> Result<Ran> {
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = self.output.read_to_end(&mut bytes).map(|_| bytes);
            // Nobody listens any more when the patience was used up.
            drop(sender.send(read));
        });
        let Ok(bytes) = receiver.recv_timeout(PATIENCE) else {
            stop(self.child);
            return Err(Failure(format!("`{}` did not end within {} s", self.typed, PATIENCE.as_secs())));
        };
        let output = String::from_utf8_lossy(&bytes.trying("reading the output")?).into_owned();
        print!("{output}");
        let status = self.child.wait().trying("waiting for a command")?;
        if let Some(code @ 1..) = status.code() {
            println!("(exit code {code})");
        }
        if status.code() != Some(exit) {
            return Err(Failure(format!("`{}` should end with exit code {exit}, and ended with {status}", self.typed)));
        }
        Ok(Ran { typed: self.typed, output: without_colour(&output) })
    }

    /// The first line of the output; the command is stopped then. It goes on only once somebody has something to say.
    pub fn first_line(self) -> Result<String> {
        use std::io::BufRead as _;
        let (sender, receiver) = mpsc::channel();
        let mut reader = std::io::BufReader::new(self.output);
        std::thread::spawn(move || {
            let mut line = String::new();
            drop(sender.send(reader.read_line(&mut line).map(|_| line)));
        });
        let line = receiver.recv_timeout(PATIENCE);
        stop(self.child);
        match line {
            Ok(line) => line.trying(format!("reading what `{}` says", self.typed)),
            Err(_) => Err(Failure(format!("`{}` said nothing for {} s", self.typed, PATIENCE.as_secs()))),
        }
    }
}

/// Ends a process that has done its part.
fn stop(mut child: Child) {
    if let Err(error) = child.kill().and_then(|()| child.wait()) {
        eprintln!("a process could not be stopped: {error}");
    }
}

impl Ran {
    /// The output must hold these words.
    pub fn says(&self, words: &str) -> Result<&Self> {
        if self.output.contains(words) {
            return Ok(self);
        }
        Err(Failure(format!("`{}` should say `{words}`", self.typed)))
    }

    /// The output must not hold this.
    pub fn hides(&self, words: &str) -> Result<&Self> {
        if !self.output.contains(words) {
            return Ok(self);
        }
        Err(Failure(format!("`{}` should not say `{words}`", self.typed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal() -> Terminal {
        Terminal::new(Path::new("/nowhere"), &std::env::temp_dir(), false)
    }

    #[test]
    fn what_is_shown_can_be_typed() {
        let command = typed(["palyra", "call", "--input", r#"{"text":"hi"}"#]).into_file("result.json");
        assert_eq!(command.text(), r#"palyra call --input '{"text":"hi"}' > result.json"#);
    }

    #[test]
    fn a_wrong_end_is_noticed() {
        assert!(terminal().run(&typed(["false"]), 1).is_ok());
        let failure = terminal().run(&typed(["false"]), 0).unwrap_err();
        assert_eq!(failure.0, "`false` should end with exit code 0, and ended with exit status: 1");
    }

    #[test]
    fn wrong_words_are_noticed() {
        let ran = terminal().run(&typed(["echo", "hello"]), 0).unwrap();
        assert!(ran.says("hello").is_ok() && ran.says("goodbye").is_err());
        assert!(ran.hides("goodbye").is_ok() && ran.hides("hello").is_err());
    }
}

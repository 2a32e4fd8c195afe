//! The demo's directory, its daemon's files, and the two ways to leave it.

use super::command::{Terminal, typed};
use super::janitor::Janitor;
use crate::quote::{quoted, without_colour};
use crate::shell::{Result, Trying as _, root};
use std::fs;
use std::io::IsTerminal as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A UNIX socket's path has at most 107 bytes.
const SOCKET_PATH_LIMIT: usize = 107;

const CONFIG: &str = "\
# What agents may call here. `palyra.fs.apply_patch` is not in the list.
[tool_call]
allowed_tools = [\"palyra.echo\", \"palyra.fs.read\", \"palyra.fs.list\", \"palyra.process.run\"]

# Processes run in Tier C: namespaces, seccomp, no network.
[process_runner]
tier = \"c\"
";

/// Where the demo takes place.
#[derive(Debug)]
pub struct Stage {
    pub terminal: Terminal,
    dir: PathBuf,
    programs: PathBuf,
    janitor: Janitor,
}

impl Stage {
    /// Makes the directory and what is in it.
    pub fn set(programs: &Path) -> Result<Self> {
        let dir = make_directory()?;
        let janitor = Janitor::hire(&programs.join("palyra"), &dir)?;
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let terminal = Terminal::new(programs, &dir, colour);
        let stage = Self { terminal, dir, programs: programs.to_owned(), janitor };
        stage.write("palyra.toml", CONFIG)?;
        stage.write("secret.txt", "nobody's business\n")?;
        fs::create_dir_all(stage.dir.join("workspace/src")).trying("making the workspace")?;
        stage.write("workspace/notes.txt", "The meeting is on Tuesday.\n")?;
        stage.write("workspace/src/main.c", "int main(void) { return 0; }\n")?;
        Ok(stage)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.dir.join(name), text).trying(format!("writing {name}"))
    }

    /// Starts the daemon. Interrupted now or later, it will not be left behind.
    pub fn start_daemon(&self) -> Result<()> {
        for line in self.exports(&self.programs_from_root()) {
            self.terminal.show(&line);
        }
        self.terminal.run(&typed(["cat", "palyra.toml"]), 0)?;
        let up = typed(["palyra", "up", "--config", "palyra.toml", "--workspace", "workspace"]).undisturbed();
        self.terminal.run_with(&up, 0, self.janitor.hold()?)?.says("is running")?;
        Ok(())
    }

    /// What to type first, so that everything shown works in another shell.
    fn exports(&self, programs: &str) -> [String; 4] {
        let text = |path: &Path| quoted(&path.to_string_lossy());
        [
            format!("export PATH={programs}:$PATH"),
            format!("export PALYRA_STATE_DIR={}", text(&self.dir.join("state"))),
            format!("export PALYRA_WORKSPACE={}", text(&self.dir.join("workspace"))),
            format!("cd {}", text(&self.dir)),
        ]
    }

    /// The programs' directory as one names it in a clone.
    fn programs_from_root(&self) -> String {
        match self.programs.strip_prefix(root()) {
            Ok(below) => format!("\"$PWD\"/{}", quoted(&below.to_string_lossy())),
            Err(_) => quoted(&self.programs.to_string_lossy()),
        }
    }

    /// A file that a command of the demo wrote.
    pub fn read(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.dir.join(name)).trying(format!("reading {name}"))
    }

    /// The end of the daemon's log, for somebody who has to find out what went wrong.
    pub fn show_log(&self) {
        if let Ok(log) = self.read("state/palyrad.log") {
            let lines: Vec<_> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(20)..];
            eprintln!("\nThe daemon's last words:\n{}", without_colour(&last.join("\n")));
        }
    }

    /// Stops the daemon and removes everything.
    pub fn clear(self) -> Result<()> {
        self.terminal.tell("That was all. The daemon is stopped and the directory removed.");
        self.terminal.run(&typed(["palyra", "down"]), 0)?;
        fs::remove_dir_all(&self.dir).trying("removing the demo's directory")?;
        self.janitor.dismiss()
    }

    /// Leaves the daemon for somebody who wants to go on.
    pub fn keep(self) -> Result<()> {
        println!("\n\nThe daemon goes on. In a shell of yours:\n");
        for line in self.exports(&quoted(&self.programs.to_string_lossy())) {
            println!("  {line}");
        }
        println!(
            "
Then try, as the agent:
  palyra call palyra.process.run --input '{{\"argv\":[\"grep\",\"-r\",\"main\",\".\"]}}' --session work --as agent:demo
and as yourself, in a second shell:
  palyra approvals watch
  palyra approvals decide ID allow --scope session --match argv-prefix --words 1
  palyra grants list
  palyra journal tail --follow
  palyra doctor

To stop it and remove everything:
  palyra down && rm -r {}",
            quoted(&self.dir.to_string_lossy())
        );
        self.janitor.dismiss()
    }
}

/// A new directory with a name that a socket's path can hold. Others may enter: the sandbox runs as another user.
fn make_directory() -> Result<PathBuf> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.subsec_micros());
    let name = format!("palyra-demo-{}-{now:05x}", std::process::id());
    let base = std::env::temp_dir();
    let base = base.canonicalize().trying(format!("finding {}", base.display()))?;
    let mut dir = base.join(&name);
    if dir.join("state/palyra.sock").as_os_str().len() > SOCKET_PATH_LIMIT {
        dir = Path::new("/tmp").join(&name);
    }
    fs::DirBuilder::new().mode(0o755).create(&dir).trying(format!("making {}", dir.display()))?;
    Ok(dir)
}

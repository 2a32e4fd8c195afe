//! Starting and ending a sandboxed process: each tier beside the same without us, in parallel, in a large workspace,
//! with many host rules, and beside other sandboxes. As the current user; when that is root, as an ordinary user too.

use crate::report::{Report, median, show};
use crate::{Result, egress, rivals};
use palyra_sandbox::{
    CancelSignal, ProcessRequest, ResolvedExecutable, SandboxProcessRunnerPolicy, SandboxTier, WorkspaceView,
    resolve_executable, run_constrained_process,
};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "/bin/true";
const ROUNDS: usize = 200;
/// In how many directories the files of a large workspace lie, and how many in each.
const MANY: (usize, usize) = (200, 1000);
const CALLERS: usize = 8;
const BLOCKS: usize = 5;
const RUNS_PER_BLOCK: usize = 64;
/// Whom root becomes to measure as an ordinary user.
const NOBODY: &str = "65534";

pub fn run(report: &mut Report) -> Result {
    let directory = tempfile::tempdir()?;
    // Root's runs are another user's.
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755))?;
    let (empty, full) = (directory.path().join("empty"), directory.path().join("full"));
    std::fs::create_dir(&empty)?;
    fill(&full)?;
    let uid = user()?;
    report.figure("as user", if uid == 0 { "root" } else { "an ordinary one" });
    tiers(report, &empty, uid)?;
    for (what, tier) in [("tier b", SandboxTier::B), ("tier c", SandboxTier::C)] {
        let (many, none) = (Run::new(tier, &full, 0)?, Run::new(tier, &empty, 0)?);
        let times = in_turns(ROUNDS, &mut [&mut || many.once(), &mut || none.once()])?;
        report.at_most(&format!("{what} among 200,000 files, over none"), times[0], times[1], 1.1);
    }
    let (many, few) = (Run::new(SandboxTier::C, &empty, 1000)?, Run::new(SandboxTier::C, &empty, 10)?);
    let times = in_turns(ROUNDS, &mut [&mut || many.once(), &mut || few.once()])?;
    report.at_most("tier c with 1,000 host rules, over 10", times[0], times[1], 1.1);
    parallel(report, &empty, uid)?;
    if uid == 0 {
        rivals::run(report, &empty)?;
        as_ordinary_user(report)?;
    }
    Ok(())
}

/// Each tier from start to exit beside the same without us, in turns.
fn tiers(report: &mut Report, workspace: &Path, uid: u32) -> Result {
    let (b, c) = (Run::new(SandboxTier::B, workspace, 0)?, Run::new(SandboxTier::C, workspace, 0)?);
    let bubblewrap = bubblewrap(workspace);
    let times = in_turns(
        ROUNDS,
        &mut [
            &mut || finish(Command::new(PROGRAM)),
            &mut || finish(forked(uid)),
            &mut || b.once(),
            &mut || finish(bubblewrap_command(&bubblewrap)),
            &mut || c.once(),
        ],
    )?;
    let [spawn, fork, b, raw, c] = times[..] else { return Err("a measurement is missing".into()) };
    report.at_most("tier b, over fork and exec", b, fork, 1.5);
    report.figure("the same, over vfork and exec", &format!("{} / {}", show(b), show(spawn)));
    report.at_most("tier c, over bubblewrap alone", c, raw, 1.2);
    Ok(())
}

/// How much more eight callers get done than one.
fn parallel(report: &mut Report, workspace: &Path, uid: u32) -> Result {
    let cores = std::thread::available_parallelism()?.get();
    let (b, c) = (Run::new(SandboxTier::B, workspace, 0)?, Run::new(SandboxTier::C, workspace, 0)?);
    let bubblewrap = bubblewrap(workspace);
    let subjects: [(&str, bool, &(dyn Fn() -> Result + Sync)); 4] = [
        ("fork and exec", false, &|| finish(forked(uid))),
        ("tier b", true, &|| b.once()),
        ("bubblewrap alone", false, &|| finish(bubblewrap_command(&bubblewrap))),
        ("tier c", true, &|| c.once()),
    ];
    for (what, ours, work) in subjects {
        let times = in_turns(BLOCKS, &mut [&mut || shared_among(CALLERS, work), &mut || shared_among(1, work)])?;
        let rate = |time: Duration| RUNS_PER_BLOCK as f64 / time.as_secs_f64();
        let (many, one) = (rate(times[0]), rate(times[1]));
        let what = format!("{CALLERS} at once, over one: {what}");
        if ours {
            report.at_least(&what, many, one, 0.8 * cores.min(CALLERS) as f64);
        } else {
            report.figure(&what, &format!("{many:.0}/s over {one:.0}/s = {:.1}× on {cores} cores", many / one));
        }
    }
    Ok(())
}

/// A block of runs, done by this many threads.
fn shared_among(callers: usize, work: &(dyn Fn() -> Result + Sync)) -> Result {
    let share = || (0..RUNS_PER_BLOCK / callers).try_for_each(|_| work().map_err(|error| error.to_string()));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..callers).map(|_| scope.spawn(share)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a caller broke".to_owned())))
    })?;
    Ok(())
}

/// The same again without privileges: by this program itself, which then measures no rivals.
fn as_ordinary_user(report: &mut Report) -> Result {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--inh-caps=-all"]);
    command.arg(std::env::current_exe()?).arg("sandbox").env_remove("TMPDIR").current_dir("/");
    match command.status() {
        Ok(status) => report.promise("all of these as an ordinary user", "see above", status.success()),
        Err(error) => report.figure("as an ordinary user", &format!("not measured: setpriv: {error}")),
    }
    Ok(())
}

/// Does several things in turns, so that whatever else the machine does hits all of them; the median of each.
pub fn in_turns(rounds: usize, subjects: &mut [&mut dyn FnMut() -> Result]) -> Result<Vec<Duration>> {
    let mut times = vec![Vec::with_capacity(rounds); subjects.len()];
    for _ in 0..rounds {
        for (subject, times) in subjects.iter_mut().zip(&mut times) {
            let started = Instant::now();
            subject()?;
            times.push(started.elapsed());
        }
    }
    Ok(times.into_iter().map(median).collect())
}

fn user() -> Result<u32> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("Uid:")).ok_or("no user")?;
    Ok(line.split_whitespace().nth(2).ok_or("no effective user")?.parse()?)
}

pub fn fill(directory: &Path) -> Result {
    let (directories, files) = MANY;
    for outer in 0..directories {
        let inner = directory.join(format!("part-{outer}"));
        std::fs::create_dir_all(&inner)?;
        for file in 0..files {
            std::fs::File::create(inner.join(format!("file-{file}.txt")))?;
        }
    }
    Ok(())
}

/// One command in one tier, checked once and run often.
/// A run that can be repeated.
pub struct Run {
    policy: SandboxProcessRunnerPolicy,
    request: ProcessRequest,
    executable: ResolvedExecutable,
    never: CancelSignal,
}

impl Run {
    pub fn new(tier: SandboxTier, workspace: &Path, rules: usize) -> Result<Self> {
        let egress_rules = if rules == 0 { <_>::default() } else { egress::rules_of(rules)?.into() };
        let policy = SandboxProcessRunnerPolicy { egress_rules, ..SandboxProcessRunnerPolicy::over(workspace, tier) };
        let request = ProcessRequest {
            argv: vec![PROGRAM.to_owned()],
            working_directory: workspace.to_owned(),
            stdin: vec![],
            env: BTreeMap::new(),
            requested_egress_hosts: vec![],
            view: None,
            secrets: palyra_sandbox::RunSecrets::default(),
            package: None,
        };
        let executable = resolve_executable(&policy, &request.argv, workspace)?;
        Ok(Self { policy, request, executable, never: CancelSignal::never()? })
    }

    /// Works on a view.
    pub fn on(mut self, view: WorkspaceView) -> Self {
        self.request.view = Some(view);
        self
    }

    pub fn once(&self) -> Result {
        let outcome = run_constrained_process(&self.policy, &self.executable, &self.request, &self.never, &mut ())?;
        if outcome.exit.success() { Ok(()) } else { Err(format!("{PROGRAM} ended with {:?}", outcome.exit).into()) }
    }
}

/// Runs a command with the three pipes that any runner needs.
pub fn finish(mut command: Command) -> Result {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()).into())
}

/// Fork and exec: told to become who it is already, the standard library does not take its faster way.
fn forked(uid: u32) -> Command {
    let mut command = Command::new(PROGRAM);
    command.uid(uid);
    command
}

fn bubblewrap_command(words: &[String]) -> Command {
    let mut command = Command::new("bwrap");
    command.args(words).env_clear();
    command
}

/// Bubblewrap by hand, with the same namespaces and mounts.
fn bubblewrap(workspace: &Path) -> Vec<String> {
    let mut line =
        "--unshare-user --unshare-all --disable-userns --die-with-parent --new-session --cap-drop ALL --clearenv \
                    --hostname sandbox --ro-bind /usr /usr"
            .to_owned();
    for directory in ["bin", "sbin", "lib", "lib64"].map(|name| Path::new("/").join(name)) {
        match std::fs::read_link(&directory) {
            Ok(target) => line += &format!(" --symlink {} {}", target.display(), directory.display()),
            Err(_) if directory.is_dir() => line += &format!(" --ro-bind {0} {0}", directory.display()),
            Err(_) => {}
        }
    }
    let entries = [
        "ld.so.cache",
        "alternatives",
        "localtime",
        "nsswitch.conf",
        "hosts",
        "resolv.conf",
        "ssl/certs",
        "passwd",
        "group",
    ];
    for entry in entries.map(|name| Path::new("/etc").join(name)).into_iter().filter(|entry| entry.exists()) {
        line += &format!(" --ro-bind {0} {0}", entry.display());
    }
    line += " --proc /proc --ro-bind /proc/sys /proc/sys --dev /dev --size 1000000 --tmpfs /dev/shm --size 1000000 --tmpfs /tmp";
    line += &format!(" --remount-ro /dev --bind {0} {0} --remount-ro / --chdir {0} -- {PROGRAM}", workspace.display());
    line.split_whitespace().map(str::to_owned).collect()
}

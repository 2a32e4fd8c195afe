//! The Linux side of `explain`: what a run would be given, from the same parts that a run is made of.

use super::bwrap;
use super::cgroup::Location;
use super::grants::{self, Access, Roots};
use super::guarded_paths;
use super::guards::{self, Guard, Hold};
use super::identity::Identity;
use super::inside_listener;
use super::minimum;
use super::opened_roots::Tops;
use super::run;
use super::tier_c::has_way_out;
use super::{host, landlock};
use crate::arguments::check_arguments;
use crate::environment;
use crate::error::SandboxError;
use crate::executable::{ResolvedExecutable, resolve_executable};
use crate::explain::{ArgumentView, Explanation, FileAccess, FileView, Limits, NamedFile, ProgramView, Refusal};
use crate::hidden_files::Hidden;
use crate::layout;
use crate::outcome::Layer;
use crate::policy::{EgressEnforcementMode, ProcessRequest, SandboxProcessRunnerPolicy, SandboxTier};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Says what a command would get.
pub(crate) fn explain(policy: &SandboxProcessRunnerPolicy, request: &ProcessRequest) -> Explanation {
    let resolved = resolve_executable(policy, &request.argv, &request.working_directory);
    let roots = Roots::resolve(policy);
    let files = roots.as_ref().map(|roots| files(policy, roots)).unwrap_or_default();
    let (environment, composed) = environment(policy, request);
    let hidden = roots.as_ref().ok().map(|roots| Hidden::of(policy, roots));
    let (mut uid, mut has_view, mut refusal) = (None, false, resolved.as_ref().err().map(Refusal::from));
    if let (Ok(executable), Ok(roots)) = (&resolved, &roots) {
        match start(policy, executable, request, roots) {
            Ok(identity) => (uid, has_view) = (Some(identity.uid), identity.view.is_some()),
            Err(error) => refusal = Some(Refusal::from(&error)),
        }
    }
    let layers = layers(policy, has_view, hidden.as_deref());
    let later = [roots.as_ref().err(), composed.as_ref()].into_iter().flatten().next();
    refusal = refusal.or_else(|| later.map(Refusal::from)).or_else(|| missing(&layers, policy));
    Explanation {
        tier: policy.tier,
        refusal,
        arguments: arguments(policy, request, &files),
        program: resolved.ok().as_ref().map(program),
        working_directory: request.working_directory.clone(),
        uid,
        files,
        egress: policy.egress,
        network: network(policy).to_owned(),
        allowed_hosts: policy.egress_rules.rules().iter().map(ToString::to_string).collect(),
        environment,
        limits: Limits::of(policy),
        hidden_programs: hidden.iter().flat_map(|hidden| hidden.names()).map(str::to_owned).collect(),
        layers,
    }
}

/// The checks that a run makes before it starts anything; who the command would be.
fn start(
    policy: &SandboxProcessRunnerPolicy,
    executable: &ResolvedExecutable,
    request: &ProcessRequest,
    roots: &Roots,
) -> Result<Identity, SandboxError> {
    let job = run::check(policy, executable, request)?;
    match policy.tier {
        SandboxTier::B => drop(grants::tier_b(roots)?),
        SandboxTier::C => {
            bwrap::find()?;
            guarded(roots)?;
        }
    }
    Ok(job.identity)
}

/// What would be kept from change.
fn guarded(roots: &Roots) -> Result<Vec<Guard>, SandboxError> {
    let tops = Tops::open(roots)?;
    Ok(guards::guards(&tops, &guarded_paths::all(&tops)?))
}

fn program(executable: &ResolvedExecutable) -> ProgramView {
    let identity = executable.identity();
    ProgramView {
        path: executable.path().to_owned(),
        called: executable.called().to_owned(),
        device: identity.device,
        inode: identity.inode,
        size: identity.size,
        chain: executable.chain(),
    }
}

fn environment(
    policy: &SandboxProcessRunnerPolicy,
    request: &ProcessRequest,
) -> (BTreeMap<String, String>, Option<SandboxError>) {
    let temporary = match policy.tier {
        SandboxTier::B => Path::new("/tmp/palyra-run-…"),
        SandboxTier::C => Path::new("/tmp"),
    };
    let proxy = environment::has_proxy(policy).then_some(inside_listener::PORT);
    match environment::compose(policy, &request.env, temporary, proxy) {
        Ok(composed) => {
            let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
            (composed.into_iter().map(|(name, value)| (text(name), text(value))).collect(), None)
        }
        Err(error) => (BTreeMap::new(), Some(error)),
    }
}

/// Each argument by itself, so that one refusal does not hide the others.
fn arguments(policy: &SandboxProcessRunnerPolicy, request: &ProcessRequest, files: &[FileView]) -> Vec<ArgumentView> {
    let mut found = Vec::new();
    for argument in request.argv.iter().skip(1) {
        let words = [String::new(), argument.clone()];
        let (named, refusal) = match check_arguments(policy, &words, &request.working_directory) {
            Ok(paths) => (paths.into_iter().filter_map(|path| lies_under(path, files)).collect(), None),
            Err(error) => (Vec::new(), Some(Refusal::from(&error))),
        };
        if !named.is_empty() || refusal.is_some() {
            found.push(ArgumentView { argument: argument.clone(), files: named, refusal });
        }
    }
    found
}

/// The innermost visible path that a file lies under. A word that names nothing yet may be no path at all, and is left
/// out.
fn lies_under(path: PathBuf, files: &[FileView]) -> Option<NamedFile> {
    let view =
        files.iter().filter(|view| path.starts_with(&view.path)).max_by_key(|view| view.path.components().count())?;
    path.exists().then(|| NamedFile { path, under: view.path.clone(), access: view.access })
}

fn access(access: Access) -> FileAccess {
    match access {
        Access::Read => FileAccess::Read,
        Access::Execute => FileAccess::ReadExecute,
        Access::Write | Access::Device => FileAccess::ReadWrite,
    }
}

/// Every path that the process would see.
fn files(policy: &SandboxProcessRunnerPolicy, roots: &Roots) -> Vec<FileView> {
    let mut files = Vec::new();
    let mut add =
        |path: &Path, access: FileAccess, why: &'static str| files.push(FileView { path: path.into(), access, why });
    for (path, granted) in layout::tier_b_system() {
        let own = policy.tier == SandboxTier::C
            && (layout::ACCOUNT_FILES.contains(&path) || path.starts_with("/sys/") || granted == Access::Device);
        if !own && path != "/proc" && Path::new(path).exists() {
            add(Path::new(path), access(granted), "system");
        }
    }
    match policy.tier {
        SandboxTier::B => {
            add(Path::new("/proc"), FileAccess::Read, "the host's processes, as far as this user may look");
            add(Path::new("/tmp/palyra-run-…"), FileAccess::Private, "home and temporary files");
        }
        SandboxTier::C => {
            add(Path::new("/proc"), FileAccess::Private, "its own processes");
            add(Path::new("/dev"), FileAccess::Private, "null, zero, full, random, urandom, tty, pts");
            add(Path::new("/dev/shm"), FileAccess::Private, "shared memory");
            add(Path::new("/tmp"), FileAccess::Private, "home and temporary files");
            add(Path::new("/etc/passwd"), FileAccess::Private, "one user: itself");
            add(Path::new("/etc/group"), FileAccess::Private, "one group: its own");
        }
    }
    add(&roots.workspace, access(roots.workspace_access), "workspace");
    roots.read.iter().for_each(|root| add(root, FileAccess::ReadExecute, "read root"));
    roots.write.iter().for_each(|root| add(root, FileAccess::ReadWrite, "write root"));
    if policy.tier == SandboxTier::C {
        // Where this cannot be told, the run would be refused, and that is said.
        for guard in guarded(roots).unwrap_or_default().iter().filter(|guard| guard.hold == Hold::ReadOnly) {
            add(&guard.path, FileAccess::ReadExecute, "guarded: a change here would run as code later, outside");
        }
    }
    for protected in &roots.protected {
        add(protected, FileAccess::Hidden, "the daemon's own state");
    }
    files
}

fn network(policy: &SandboxProcessRunnerPolicy) -> &'static str {
    match policy.egress {
        EgressEnforcementMode::None => "THE HOST'S NETWORK, with nothing to hold it back",
        EgressEnforcementMode::Preflight => "THE HOST'S NETWORK: hosts are compared beforehand, nothing is enforced",
        EgressEnforcementMode::Strict if has_way_out(policy) => {
            "a network of its own, and the filtering proxy, which lets through what a rule allows"
        }
        EgressEnforcementMode::Strict => "none: a network of its own with nothing but a loopback device",
    }
}

const READ_ONLY_REST: &str = "everything but writable roots is read-only";

/// The walls that a run would report on this host, by the same names.
fn layers(policy: &SandboxProcessRunnerPolicy, has_view: bool, hidden: Option<&Hidden>) -> Vec<Layer> {
    let capabilities = host::detect();
    let has = |name: &str| capabilities.capability(name).is_some_and(|capability| capability.available);
    let why = |name: &str| capabilities.capability(name).map_or_else(String::new, |c| c.detail.clone());
    let layer = |name: &str, stands: bool, detail: &str| {
        if stands { Layer::applied(name, detail) } else { Layer::missing(name, detail) }
    };
    let own_user = layer("user", capabilities.root, "dropped from root to an ordinary user");
    let scope = layer("landlock_scope", landlock::scopes_signals(), "signals and abstract sockets stay inside");
    let gone = hidden.map_or_else(|| "the roots cannot be used".to_owned(), Hidden::describe);
    let common = [
        layer("hidden_programs", hidden.is_some(), &gone),
        layer("no_new_privileges", true, "set-id programs give nothing"),
        own_user,
        scope,
        layer("seccomp", has("seccomp"), "system calls that no command needs are refused"),
        layer("process_tree", true, "every descendant ends with the run"),
        layer("rlimits", true, "CPU, memory per process, files, processes, no core dumps"),
    ];
    let strict = policy.egress == EgressEnforcementMode::Strict;
    let mut layers = match policy.tier {
        SandboxTier::B => vec![
            layer("landlock", has("landlock"), &why("landlock")),
            layer("session", true, "own session and process group"),
            layer(
                "mount_namespace",
                has_view,
                if has_view { READ_ONLY_REST } else { super::tier_b::ATTRIBUTES_REFUSED },
            ),
            layer("cgroup", false, "not in tier b: limits are per process and user"),
            layer("network_namespace", false, "not in tier b: the host's network"),
        ],
        SandboxTier::C => {
            let built = has("bubblewrap");
            let mut built: Vec<Layer> = [
                "bubblewrap",
                "user_namespace",
                "mount_namespace",
                "pid_namespace",
                "ipc_namespace",
                "uts_namespace",
                "cgroup_namespace",
                "capabilities",
                "guarded_paths",
            ]
            .into_iter()
            .map(|name| layer(name, built, &why("bubblewrap")))
            .collect();
            built.push(layer("network_namespace", strict, network(policy)));
            if has_way_out(policy) {
                built.push(layer("egress_proxy", true, "names are resolved outside, by the proxy alone"));
            }
            let group = Location::find();
            built.push(match group {
                Ok(location) => Layer::applied("cgroup", location.describe()),
                Err(reason) => Layer::missing("cgroup", reason),
            });
            built
        }
    };
    layers.extend(common);
    layers
}

/// What the tier, or the policy, cannot do without and this host does not have.
fn missing(layers: &[Layer], policy: &SandboxProcessRunnerPolicy) -> Option<Refusal> {
    if let Err(error) = minimum::steps(policy) {
        return Some(Refusal::from(&error));
    }
    let own = match policy.tier {
        SandboxTier::B => minimum::TIER_B,
        SandboxTier::C => minimum::TIER_C,
    };
    let demanded = policy.required_layers.iter().map(String::as_str);
    let lacks = |name: &&str| layers.iter().any(|layer| layer.name == *name && !layer.applied);
    let missing = own.iter().copied().chain(demanded).find(lacks)?;
    Some(Refusal::from(&crate::minimum::known(missing).map_or_else(|error| error, crate::minimum::lacking)))
}

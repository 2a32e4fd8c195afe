//! What a run shares a machine with: processes, files and services of the same user, which none of it may touch.

use palyra_containment::*;
use palyra_sandbox::*;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};

/// A process of the user that runs have, outside of any.
struct Victim(Child);

impl Victim {
    fn start(world: &World) -> Self {
        let uid = world.run(&["true"]).enforcement.uid.to_string();
        let mut command = if is_root() { Command::new("setpriv") } else { Command::new("sleep") };
        if is_root() {
            command.args(["--reuid", &uid, "--regid", &uid, "--clear-groups", "sleep"]);
        }
        Self(command.arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }

    /// Everything that others could have changed about it.
    fn state(&self) -> (String, String, Vec<String>) {
        let read = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap();
        let stat = read("stat");
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().map(str::to_owned).collect();
        let allowed = read("status").lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap().to_owned();
        // Priority, nice value, real-time priority, policy.
        (read("limits"), allowed, [15, 16, 37, 38].map(|at| fields[at].clone()).to_vec())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn limits_and_priorities_of_other_processes_cannot_be_changed() {
    for tier in TIERS {
        let world = world(tier);
        let victim = Victim::start(&world);
        // Until it has become the user that it shall be and runs what it shall run.
        while !fs::read_to_string(format!("/proc/{}/comm", victim.0.id())).unwrap().starts_with("sleep") {
            std::thread::yield_now();
        }
        let before = victim.state();
        let code = format!(
            r"
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
buf = ctypes.create_string_buffer(64)
for pid in [{victim}, {daemon}]:
    for limit in range(16):
        try: resource.prlimit(pid, limit, (0, 0)); print('LIMITED', pid, limit)
        except (OSError, ValueError): pass
    for which, who in [(0, pid), (1, pid), (2, os.getuid())]:
        if libc.setpriority(which, who, 19) == 0 and which != 2: print('RENICED', which)
    for name, args in {{'affinity': (203, pid, 8, b'\1' + bytes(7)), 'scheduler': (144, pid, 5, buf), 'attr': (314, pid, buf, 0),
                       'param': (142, pid, buf), 'ioprio': (251, 1, pid, 3 << 13)}}.items():
        if libc.syscall(*args) == 0: print('SCHEDULED', name)
print('done')
",
            victim = victim.0.id(),
            daemon = std::process::id(),
        );
        expect_output(&world.python(&code), "done");
        assert_eq!(victim.state(), before, "{tier}");
        // What a process does to itself is its own business.
        let own = "import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (32, 64)); os.sched_setaffinity(0, {0}); before = os.getpriority(os.PRIO_PROCESS, 0); os.nice(3); print(os.getpriority(os.PRIO_PROCESS, 0) - before)";
        expect_output(&world.python(own), "3");
    }
}

/// How many System V objects the host has.
fn system_v() -> usize {
    let lines = |name: &str| fs::read_to_string(format!("/proc/sysvipc/{name}")).unwrap().lines().count();
    lines("shm") + lines("sem") + lines("msg")
}

#[test]
fn nothing_is_left_in_the_hosts_shared_memory_or_read_from_it() {
    // Other tests of this suite leave nothing there either.
    let before = system_v();
    for tier in TIERS {
        let code = r"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
made = [libc.shmget(0x50414c, 1 << 20, 0o1666), libc.semget(0x50414c, 1, 0o1666), libc.msgget(0x50414c, 0o1666)]
print([m >= 0 for m in made])
";
        let made = stdout(&world(tier).python(code));
        // Tier C has objects of its own, which go with it.
        let expect = if tier == SandboxTier::B { "[False, False, False]" } else { "[True, True, True]" };
        assert_eq!(made.trim(), expect, "{tier}");
        assert_eq!(system_v(), before, "{tier}");
    }
    let made = Command::new("ipcmk").args(["-M", "4096", "-p", "0666"]).output().unwrap();
    let said = String::from_utf8(made.stdout).unwrap();
    let id = said.rsplit(' ').next().unwrap().trim().to_owned();
    for tier in TIERS {
        let code = format!(
            "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_void_p\nprint(libc.shmat({id}, None, 0) == 2**64 - 1)"
        );
        expect_output(&world(tier).python(&code), "True");
    }
    assert!(Command::new("ipcrm").args(["-m", &id]).status().unwrap().success());
}

#[test]
fn attributes_of_files_outside_stay_as_they_are() {
    for tier in TIERS {
        let mut world = world(tier);
        let (outside, library) = (world.top().join("outside"), world.top().canonicalize().unwrap().join("library"));
        fs::create_dir(&library).unwrap();
        fs::write(library.join("file"), "x").unwrap();
        fs::write(&outside, "x").unwrap();
        world.policy.read_roots.push(library.clone());
        let uid = world.run(&["true"]).enforcement.uid;
        let watched =
            [outside.clone(), world.state.clone(), world.state.join("key"), library.clone(), library.join("file")];
        for path in watched.iter().filter(|_| is_root()) {
            std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
        }
        let look = || {
            watched
                .iter()
                .map(|p| fs::metadata(p).map(|m| (m.mode(), m.uid(), m.mtime(), m.ctime_nsec())).unwrap())
                .collect::<Vec<_>>()
        };
        let before = look();
        let code = format!(
            r"
import os
def attempt(what, act):
    try: act(); print(what)
    except OSError: pass
for p in {watched:?}:
    attempt('CHMOD ' + p, lambda: os.chmod(p, 0o777))
    attempt('UTIME ' + p, lambda: os.utime(p, (1, 1)))
    attempt('CHOWN ' + p, lambda: os.chown(p, os.getuid(), os.getgid()))
    attempt('XATTR ' + p, lambda: os.setxattr(p, 'user.x', b'x'))
    attempt('PATH ' + p, lambda: os.chmod('/proc/self/fd/%d' % os.open(p, os.O_PATH), 0o777))
    attempt('OPEN ' + p, lambda: os.fchmod(os.open(p, os.O_RDONLY), 0o777))
open('own', 'w').close(); os.chmod('own', 0o750); os.utime('own', (5, 5)); os.mkdir('dir'); os.chmod('dir', 0o700)
t = os.environ['TMPDIR'] + '/x'; open(t, 'w').close(); os.chmod(t, 0o700)
print(oct(os.stat('own').st_mode), os.stat('own').st_mtime)
"
        );
        expect_output(&world.python(&code), "0o100750 5.0");
        assert_eq!(look(), before, "{tier}");
    }
}

/// A program's own file can be named by the link that the kernel keeps to it.
#[test]
fn a_program_cannot_change_its_own_file_where_it_may_only_read() {
    for tier in TIERS {
        let mut world = world(tier);
        let library = world.top().canonicalize().unwrap().join("library");
        fs::create_dir(&library).unwrap();
        let program = library.join("python3");
        fs::copy("/usr/bin/python3", &program).unwrap();
        world.policy.read_roots.push(library);
        let uid = world.run(&["true"]).enforcement.uid;
        if is_root() {
            std::os::unix::fs::chown(&program, Some(uid), Some(uid)).unwrap();
        }
        let code =
            "import os\ntry: os.chmod('/proc/self/exe', 0o777); print('CHANGED')\nexcept OSError: print('refused')";
        expect_output(&world.run(&[program.to_str().unwrap(), "-c", code]), "refused");
        assert_eq!(fs::metadata(&program).unwrap().mode() & 0o777, 0o755, "{tier}");
    }
}

#[test]
fn the_daemons_own_directory_cannot_even_be_looked_at() {
    for tier in TIERS {
        let world = world(tier);
        let code = format!(
            "import ctypes, os\nlibc = ctypes.CDLL(None)\nfor p in [{0:?}, {1:?}]:\n  print(os.path.exists(p) and os.stat(p).st_mode & 0o777)\n\
             print(libc.inotify_add_watch(libc.inotify_init(), os.fsencode({0:?}), 0xfff) > 0)",
            world.state,
            world.state.join("key")
        );
        let said = stdout(&world.python(&code));
        let said: Vec<_> = said.lines().collect();
        // In tier b there is an empty directory in its place, which nobody can look into.
        let expect = if tier == SandboxTier::B { ["0", "False", "False"] } else { ["False", "False", "False"] };
        assert_eq!(said, expect, "{tier}");
    }
}

#[test]
fn datagram_sockets_of_the_host_are_out_of_reach() {
    for tier in TIERS {
        let world = world(tier);
        let path = world.top().canonicalize().unwrap().join("log.sock");
        let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let code = format!(
            r"
import socket
for kind in [socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_STREAM, socket.SOCK_SEQPACKET]:
    for flags in [0, socket.SOCK_NONBLOCK]:
        try:
            a, b = socket.socketpair(socket.AF_UNIX, kind | flags); a.connect({path:?}); a.send(b'x'); print('SENT', kind)
        except OSError: pass
        # A connected pair sends to its other end, whatever the address.
        try: a, b = socket.socketpair(socket.AF_UNIX, kind | flags); a.sendto(b'x', {path:?})
        except OSError: pass
a, b = socket.socketpair(); a.send(b'pairs work'); print(b.recv(99).decode())
"
        );
        expect_output(&world.python(&code), "pairs work");
        assert!(socket.recv(&mut [0; 8]).is_err(), "{tier}: something came");
    }
}

#[test]
fn other_processes_are_hidden_where_the_daemon_is_root_and_in_tier_c() {
    for tier in TIERS {
        let world = world(tier);
        let seen =
            stdout(&world.python(&format!("import os; print(os.path.exists('/proc/{}/cmdline'))", std::process::id())));
        let outcome = world.run(&["true"]);
        if is_root() || tier == SandboxTier::C {
            assert_eq!(seen, "False\n", "{tier}");
        } else {
            // Known, and said.
            let layer = outcome.enforcement.layers.iter().find(|layer| layer.name == "mount_namespace").unwrap();
            assert!(layer.detail.contains("ARE SHOWN"), "{layer:?}");
        }
        expect_output(&world.shell("(sleep 5 & ls -d /proc/$! | wc -l; kill $!)"), "1");
    }
}

#[test]
fn a_crash_starts_nothing_outside() {
    for tier in TIERS {
        let world = world(tier);
        // One byte is the value that stops a dump to a program too; it cannot be given up for another.
        let code = "import resource, ctypes\nprint(resource.getrlimit(resource.RLIMIT_CORE))\n\
                    try: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); print('SET')\nexcept (OSError, ValueError): pass\n\
                    l = (ctypes.c_ulong * 2)(0, 0); print(ctypes.CDLL(None).syscall(160, 4, l), resource.getrlimit(resource.RLIMIT_CORE))";
        expect_output(&world.python(code), "(1, 1)\n-1 (1, 1)");
    }
}

/// Where no user namespace can be had, the stricter profile stands in for the mounts. Root always has them: this is
/// tried in the ordinary user's pass.
#[test]
fn without_a_namespace_attributes_cannot_be_changed_by_path_at_all() {
    const NAME: &str = "neighbours::without_a_namespace_attributes_cannot_be_changed_by_path_at_all";
    if is_root() {
        // `everything_holds_for_an_ordinary_user_too` sees to it that it was tried.
        return;
    }
    let none = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all \"$@\"";
    alone(NAME, &["unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", none, "sh"], || {
        let mut world = world(SandboxTier::B);
        let key = world.state.join("key");
        let before = fs::metadata(&key).unwrap().mode();
        let code = format!(
            "import os\ndef attempt(what, act):\n  try: act(); print(what)\n  except OSError: pass\n\
             open('own', 'w').close()\n\
             for p in [{key:?}, 'own']:\n  attempt('CHMOD', lambda: os.chmod(p, 0o777))\n  attempt('UTIME', lambda: os.utime(p, (1, 1)))\n  \
             attempt('XATTR', lambda: os.setxattr(p, 'user.x', b'x'))\n  attempt('PATH', lambda: os.chmod('/proc/self/fd/%d' % os.open(p, os.O_PATH), 0o777))\n\
             os.fchmod(os.open('own', os.O_RDONLY), 0o700); print(oct(os.stat('own').st_mode))"
        );
        let outcome = world.python(&code);
        expect_output(&outcome, "0o100700");
        assert_eq!(fs::metadata(&key).unwrap().mode(), before);
        let layer = outcome.enforcement.layers.iter().find(|layer| layer.name == "mount_namespace").unwrap();
        assert!(!layer.applied && layer.detail.contains("cannot be changed by path"), "{layer:?}");
        world.policy.required_layers.push("mount_namespace".to_owned());
        assert_eq!(world.try_run(&world.request(&["true"])).unwrap_err().code(), "sandbox_layer_unavailable");
    });
}

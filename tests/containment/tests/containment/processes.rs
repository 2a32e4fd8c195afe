//! Processes: those of the host cannot be seen, read or ended; those of a run end with it.

use palyra_containment::*;
use palyra_sandbox::*;
use std::fs;
use std::path::Path;

#[test]
fn nothing_of_the_daemons_environment_or_descriptors_is_inside() {
    // SAFETY-free: the variable is in this test binary's environment anyway.
    let inherited = fs::File::open("/etc/hostname").unwrap();
    for tier in TIERS {
        let world = world(tier);
        let code = r#"
import os
print(sorted(os.environ))
print(sorted(int(f) for f in os.listdir('/proc/self/fd'))[:-1])
for pid in filter(str.isdigit, os.listdir('/proc')):
    if pid == str(os.getpid()): continue
    try:
        e = open(f'/proc/{pid}/environ', 'rb').read()
        if e: print('ENVIRON', pid, e[:100])
    except OSError: pass
"#;
        let outcome = world.python(code);
        let text = stdout(&outcome);
        let mut lines = text.lines();
        let names = lines.next().unwrap();
        for name in ["CARGO", "USER", "SHELL", "LOGNAME"] {
            assert!(!names.contains(name), "{names}");
        }
        assert!(["[0, 1, 2]", "[0, 1, 2, 3]"].contains(&lines.next().unwrap()), "{text}");
        assert_eq!(lines.next(), None, "{text}");
    }
    drop(inherited);
}

/// Does something as soon as the command has written anything.
struct WhenHeard<F>(F);

impl<F: FnMut()> OutputSink for WhenHeard<F> {
    fn chunk(&mut self, _stream: OutputStream, _bytes: &[u8]) {
        (self.0)();
    }
}

#[test]
fn a_cancellation_wakes_at_once() {
    for tier in TIERS {
        let world = world(tier);
        let (handle, signal) = CancelSignal::new().unwrap();
        let request = world.request(&["bash", "-c", "echo begun; exec sleep 1000"]);
        let executable = resolve_executable(&world.policy, &request.argv, &world.workspace).unwrap();
        let mut sink = WhenHeard(|| handle.cancel());
        let outcome = run_constrained_process(&world.policy, &executable, &request, &signal, &mut sink).unwrap();
        assert_eq!((outcome.ended_by, stdout(&outcome).as_str()), (Some(LimitHit::Cancelled), "begun\n"), "{tier}");
    }
}

/// Starts a grandchild that leaves session, group and parent, and tells its number.
const DAEMONISE: &str = r"
import os, sys, time
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        for fd in CLOSE: os.close(fd)
        os.write(w, b'%d' % os.getpid())
        time.sleep(1000)
    os._exit(0)
os.wait()
print(open(os.path.dirname('/proc/self/') + '/status').read().split('NSpid:')[0] and os.read(r, 99).decode(), flush=True)
";

#[test]
fn daemonised_grandchildren_end_with_the_run() {
    for tier in TIERS {
        for close in ["[0, 1, 2]", "[]"] {
            let world = world(tier);
            let before = count_sleepers();
            let outcome = world.python(&DAEMONISE.replace("CLOSE", close));
            assert_eq!(outcome.exit, ProcessExit::Code(0), "{:?}", String::from_utf8_lossy(&outcome.stderr.bytes));
            assert_eq!(outcome.ended_by, None, "{tier}: held by its pipe");
            let pid: i32 = stdout(&outcome).trim().parse().unwrap();
            if tier == SandboxTier::B {
                assert!(!pid_alive(pid), "{tier} {pid}");
            }
            assert!(count_sleepers() <= before, "{tier}");
        }
    }
}

/// Processes of this machine whose command line has this suite's mark.
fn count_sleepers() -> usize {
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|e| fs::read(e.ok()?.path().join("cmdline")).ok())
        .filter(|c| String::from_utf8_lossy(c).contains("r, w = os.pipe()"))
        .count()
}

#[test]
fn one_run_does_not_end_another() {
    for tier in TIERS {
        let long = world(tier);
        let request = long.request(&["bash", "-c", "sleep 1 & wait; echo survived"]);
        std::thread::scope(|scope| {
            let run = scope.spawn(|| long.try_run(&request).unwrap());
            for _ in 0..5 {
                let short = world(tier);
                let mut killer = short.python("import os, signal\nfor p in range(2, 200000):\n  try: os.kill(p, 9) if p != os.getpid() else 0\n  except OSError: pass\n");
                killer.stdout.bytes.clear();
                let mut all = short.run(&["bash", "-c", "kill -9 -1"]);
                all.stdout.bytes.clear();
            }
            expect_output(&run.join().unwrap(), "survived");
        });
    }
}

#[test]
fn other_processes_cannot_be_read() {
    for tier in TIERS {
        let world = world(tier);
        let code = format!(
            r"
import os
for pid in [p for p in (os.getppid(), {}) if p != 1]:
    for name in ['mem', 'environ', 'maps', 'fd/0', 'root/etc/shadow', 'cwd']:
        try:
            p = f'/proc/{{pid}}/{{name}}'
            if name == 'cwd':
                os.listdir(p); print('LISTED', p)
            else:
                if open(p, 'rb').read(1): print('READ', p)
        except OSError: pass
print('done')
",
            std::process::id()
        );
        expect_output(&world.python(&code), "done");
    }
}

fn pid_alive(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

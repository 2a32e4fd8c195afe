//! The clock of one machine: a preloaded library adds so many seconds to the time that its programs are told.

use crate::host::Host;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Answers `clock_gettime` with the time of the system and what stands in the file that `TEST_CLOCK` names.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    if (syscall(SYS_clock_gettime, id, t) != 0) return -1;
    const char *path = getenv("TEST_CLOCK");
    if (id != CLOCK_REALTIME || !path) return 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    char text[32] = {0};
    if (read(file, text, sizeof text - 1) > 0) t->tv_sec += atol(text);
    close(file);
    return 0;
}
"#;

impl Host {
    /// Gives the host a clock of its own, which is right until it is set.
    pub fn own_clock(&mut self) {
        let source = self.path("clock.c");
        fs::write(&source, SOURCE).expect("the library's source can be written");
        let library = self.path("clock.so");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).output();
        let made = made.expect("`cc` is installed");
        assert!(made.status.success(), "{made:?}");
        self.set_machine_env("LD_PRELOAD", library);
        self.set_machine_env("TEST_CLOCK", self.clock());
    }

    /// Sets the host's clock so many seconds before or after the right time, for programs that run as well.
    pub fn set_clock(&self, seconds: i64) {
        // Renamed into place: no program reads half of a number.
        let new = self.path("clock.new");
        fs::write(&new, seconds.to_string()).and_then(|()| fs::rename(&new, self.clock())).expect("a clock");
    }

    fn clock(&self) -> PathBuf {
        self.path("clock")
    }
}

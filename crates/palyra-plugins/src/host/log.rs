//! `palyra:skill/log`.

use crate::bindings::palyra::skill::log;
use crate::guest::{Guest, HostCallKind, LogLevel};

impl log::Host for Guest {
    fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        self.count(HostCallKind::Log)?;
        let level = match level {
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warning => LogLevel::Warning,
            log::Level::Error => LogLevel::Error,
        };
        Ok(self.log.write(level, message)?)
    }
}

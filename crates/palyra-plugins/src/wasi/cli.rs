//! `wasi:cli`: a program's surroundings, of which there are none.
//!
//! No variables, no arguments, no directory, no terminal, an empty standard input. What is printed goes into the log.

use super::Nothing;
use super::streams::{InputStream, OutputStream};
use crate::bindings::wasi::cli::{
    environment, exit, stderr, stdin, stdout, terminal_input, terminal_output, terminal_stderr, terminal_stdin,
    terminal_stdout,
};
use crate::error::Stop;
use crate::guest::{Guest, HostCallKind, Stream};
use wasmtime::component::Resource;

impl environment::Host for Guest {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        self.count(HostCallKind::Cli)?;
        Ok(Vec::new())
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        self.count(HostCallKind::Cli)?;
        Ok(Vec::new())
    }

    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        self.count(HostCallKind::Cli)?;
        Ok(None)
    }
}

impl exit::Host for Guest {
    fn exit(&mut self, _status: Result<(), ()>) -> wasmtime::Result<()> {
        Err(Stop::Exit.into())
    }

    fn exit_with_code(&mut self, _status: u8) -> wasmtime::Result<()> {
        Err(Stop::Exit.into())
    }
}

impl stdin::Host for Guest {
    fn get_stdin(&mut self) -> wasmtime::Result<Resource<InputStream>> {
        self.count(HostCallKind::Cli)?;
        Ok(self.hand(InputStream::of_bytes(Vec::new()))?)
    }
}

impl stdout::Host for Guest {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<OutputStream>> {
        self.count(HostCallKind::Cli)?;
        Ok(self.hand(OutputStream::Log(Stream::Stdout))?)
    }
}

impl stderr::Host for Guest {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<OutputStream>> {
        self.count(HostCallKind::Cli)?;
        Ok(self.hand(OutputStream::Log(Stream::Stderr))?)
    }
}

impl terminal_input::Host for Guest {}

impl terminal_input::HostTerminalInput for Guest {
    fn drop(&mut self, this: Resource<Nothing>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl terminal_output::Host for Guest {}

impl terminal_output::HostTerminalOutput for Guest {
    fn drop(&mut self, this: Resource<Nothing>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl terminal_stdin::Host for Guest {
    fn get_terminal_stdin(&mut self) -> wasmtime::Result<Option<Resource<Nothing>>> {
        self.count(HostCallKind::Cli)?;
        Ok(None)
    }
}

impl terminal_stdout::Host for Guest {
    fn get_terminal_stdout(&mut self) -> wasmtime::Result<Option<Resource<Nothing>>> {
        self.count(HostCallKind::Cli)?;
        Ok(None)
    }
}

impl terminal_stderr::Host for Guest {
    fn get_terminal_stderr(&mut self) -> wasmtime::Result<Option<Resource<Nothing>>> {
        self.count(HostCallKind::Cli)?;
        Ok(None)
    }
}

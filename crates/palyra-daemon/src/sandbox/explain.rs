//! `sandbox explain`: what a command would get. Runs nothing.

use super::{Refused, policy, say, say_json};
use crate::serve::Setup;
use palyra_api::command_line::{Explain, Format, REFUSED};
use palyra_protocol::display::safe;
use palyra_sandbox::{Explanation, FileAccess, NamedFile};
use std::path::Path;
use std::process::ExitCode;

pub(super) fn explain(setup: &Setup, explain: &Explain, format: Format) -> Result<ExitCode, Refused> {
    let (policy, request) = policy::attempt(setup, &explain.attempt)?;
    let explanation = palyra_sandbox::explain(&policy, &request);
    match format {
        Format::Json => say_json(&explanation)?,
        Format::Text => print(&explanation, &request.argv),
    }
    Ok(if explanation.refusal.is_none() { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
}

fn shown(path: &Path) -> String {
    safe(&path.to_string_lossy())
}

fn print(explanation: &Explanation, argv: &[String]) {
    let words: Vec<_> = argv.iter().map(|word| safe(word)).collect();
    say(&words.join(" "));
    match &explanation.refusal {
        None => say(&format!("✔ would run in tier {}", explanation.tier)),
        Some(refusal) => {
            say(&format!("✘ would be refused: {}", safe(&refusal.message)));
            say(&format!("  code: {}", refusal.code));
            if let Some(hint) = &refusal.hint {
                say(&format!("  hint: {}", safe(hint)));
            }
        }
    }
    program(explanation);
    arguments(explanation);
    say("\nfiles");
    for file in &explanation.files {
        say(&format!("  {:<8} {:<32} {}", access(file.access), shown(&file.path), file.why));
    }
    if !explanation.hidden_programs.is_empty() {
        let names: Vec<_> = explanation.hidden_programs.iter().map(|name| safe(name)).collect();
        say(&format!("\nprograms that are not allowed, and gone\n  {}", names.join(" ")));
    }
    say(&format!("\nnetwork\n  {}", explanation.network));
    for rule in &explanation.allowed_hosts {
        say(&format!("  ✔ {}", safe(rule)));
    }
    say("\nenvironment");
    for (name, value) in &explanation.environment {
        say(&format!("  {}={}", safe(name), safe(value)));
    }
    limits(explanation);
    say("\nwalls on this host");
    for layer in &explanation.layers {
        say(&format!("  {} {:<18} {}", if layer.applied { '✔' } else { '–' }, layer.name, safe(&layer.detail)));
    }
}

fn program(explanation: &Explanation) {
    say("\nprogram");
    if let Some(program) = &explanation.program {
        for step in &program.chain {
            say(&format!("  {:<20} {}", step.role, shown(&step.path)));
        }
        say(&format!("  called as            {}", shown(&program.called)));
        let (device, inode, size) = (program.device, program.inode, program.size);
        say(&format!("  identity             device {device}, inode {inode}, {size} bytes"));
    } else {
        say("  none that may run");
    }
    say(&format!("  in                   {}", shown(&explanation.working_directory)));
    if let Some(uid) = explanation.uid {
        say(&format!("  as                   uid {uid}"));
    }
}

fn arguments(explanation: &Explanation) {
    if explanation.arguments.is_empty() {
        return;
    }
    say("\narguments that name files");
    for argument in &explanation.arguments {
        for NamedFile { path, under, access: granted } in &argument.files {
            let (argument, path, under) = (safe(&argument.argument), shown(path), shown(under));
            say(&match granted {
                FileAccess::Private => {
                    format!("  – {argument}  ->  {path} (not the host's: {under} is the command's own)")
                }
                granted => format!("  ✔ {argument}  ->  {path} ({}, under {under})", access(*granted)),
            });
        }
        if let Some(refusal) = &argument.refusal {
            say(&format!("  ✘ {}  ->  {}", safe(&argument.argument), safe(&refusal.message)));
        }
    }
}

fn limits(explanation: &Explanation) {
    let limits = &explanation.limits;
    say("\nlimits");
    for (name, value) in [
        ("CPU time", format!("{} ms of any one process", limits.cpu_time_ms)),
        ("wall clock", format!("{} ms", limits.wall_clock_ms)),
        ("memory", format!("{} bytes", limits.memory_bytes)),
        ("output", format!("{} bytes of each stream", limits.output_bytes)),
        ("processes", limits.processes.to_string()),
        ("open files", format!("{} of any one process", limits.open_files)),
        ("file size", format!("{} bytes", limits.file_size_bytes)),
    ] {
        say(&format!("  {name:<12} {value}"));
    }
}

fn access(access: FileAccess) -> &'static str {
    match access {
        FileAccess::Read => "read",
        FileAccess::ReadExecute => "read+x",
        FileAccess::ReadWrite => "write",
        FileAccess::Private => "own",
        FileAccess::Hidden => "hidden",
    }
}
